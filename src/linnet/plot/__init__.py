"""Figures: `animation` writes films, `style` has colors and axes, the other modules draw what they are called after."""

import logging

_log = logging.getLogger("matplotlib")
_level = _log.level
_log.setLevel(logging.ERROR)  # without a home it complains that it has no place for its fonts, and then makes one
import matplotlib.figure  # noqa: E402, F401

_log.setLevel(_level)

__all__ = ["animation", "prediction", "probe", "recovery", "style", "trajectory"]
