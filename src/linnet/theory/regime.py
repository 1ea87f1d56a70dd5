"""Lazy or rich: one word for all subjects."""

import enum
import math
from collections.abc import Sequence

from linnet import _input
from linnet._input import InputError

LAZY_BELOW, RICH_ABOVE = 1.1, 10.0  # by how much the tangent kernel grows until what it sees is learned


class Regime(enum.StrEnum):
    """What the tangent kernel does while a network (or a mode of it) learns.

    RICH is called active in the paper on mixed dynamics: the kernel is made by what is learned. LAZY: it stays what it
    was at the start. MIXED lies between.
    """

    LAZY = "lazy"
    MIXED = "mixed"
    RICH = "rich"

    @classmethod
    def of_growth(cls, growth: float) -> "Regime":
        """Lazy below 1.1, rich above 10: the factor by which the kernel grows until the end, which may be infinite."""
        if not isinstance(growth, float) or growth != math.inf:
            growth = _input.real("growth", growth, least=0)
        return cls.LAZY if growth < LAZY_BELOW else cls.RICH if growth > RICH_ABOVE else cls.MIXED

    @classmethod
    def of_all(cls, parts: "Sequence[Regime]") -> "Regime":
        """What all modes share, MIXED where they differ."""
        if not isinstance(parts, Sequence) or not parts or not all(isinstance(part, cls) for part in parts):
            raise InputError(
                f"parts = {_input.show(parts)} is not allowed: parts must be a list of regimes, one or more."
            )
        return parts[0] if len(set(parts)) == 1 else cls.MIXED
