"""The figure of any prediction, from its panels."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from linnet._check import InputError
from linnet.plot import style
from linnet.prediction import Comparison, Curve, Panel, Prediction

_STYLES: dict[str, dict[str, Any]] = {
    "line": {"lw": 1.4},
    "theory": {"lw": 3, "alpha": 0.45},
    "measured": {"lw": 1.2, "ls": "--"},
    "dotted": {"lw": 1, "ls": ":"},
    "faint": {"lw": 0.5, "alpha": 0.3},
    "points": {"ls": "", "marker": "o", "ms": 5},
    "squares": {"ls": "", "marker": "s", "ms": 5},
    "stars": {"ls": "", "marker": "*", "ms": 12, "mec": "black", "mew": 0.8},
    "rings": {"ls": "", "marker": "o", "ms": 11, "mfc": "none", "mew": 0.9},
    "diamonds": {"ls": "", "marker": "D", "ms": 6, "mfc": "none", "mew": 1.4},
    "dots": {"ls": "", "marker": ",", "rasterized": True},
    "vertical": {"lw": 0.9, "alpha": 0.7},
    "horizontal": {"lw": 0.9, "alpha": 0.7},
}


def draw(prediction: Prediction, comparison: Comparison | None) -> Figure:
    """All panels of a prediction side by side, with the run if there is one."""
    if prediction.panels is None:
        raise InputError(f"{prediction.topic} has no curves to draw.")
    panels = prediction.panels(prediction, comparison)
    figure = style.canvas(5.2 * len(panels) if len(panels) > 1 else 8, 4.4)
    grid = np.atleast_1d(np.asarray(figure.subplots(1, len(panels))))
    for axes, panel in zip(grid, panels, strict=True):
        draw_panel(figure, axes, panel)
    return figure


def draw_panel(figure: Figure, axes: Axes, panel: Panel) -> None:
    """One panel."""
    for curve in panel.curves:
        _curve(figure, axes, curve)
    if all(np.issubdtype(curve.x.dtype, np.integer) for curve in panel.curves):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(title=panel.title, xlabel=panel.xlabel, ylabel=panel.ylabel)
    if "x" in panel.log:
        axes.set_xscale("log")
    if "y" in panel.log:
        axes.set_yscale("log")
    if panel.xlim is not None:
        axes.set_xlim(*panel.xlim)
    if panel.ylim is not None:
        axes.set_ylim(*panel.ylim)
    style.tidy(axes)
    if any(curve.labeled for curve in panel.curves):
        axes.legend(frameon=any(curve.z is not None for curve in panel.curves), fontsize=8)


def _curve(figure: Figure, axes: Axes, curve: Curve) -> None:
    color = getattr(style, str(curve.color).upper(), curve.color) if isinstance(curve.color, str) else curve.color
    how = _STYLES.get(curve.style, {}) | ({} if color is None else {"color": color})
    label = curve.name if curve.labeled else None
    if curve.z is not None:
        how = {"cmap": "viridis", "norm": "log" if curve.style == "log image" else "linear"}
        image = axes.pcolormesh(curve.x, curve.y, curve.z, shading="gouraud", rasterized=True, **how)
        figure.colorbar(image, ax=axes, label=curve.name)
    elif curve.style == "bars":
        axes.bar(curve.x, curve.y, label=label, **how)
    elif curve.style == "labels":
        _labels(axes, curve, **how)
    elif curve.style in ("vertical", "horizontal"):
        line = axes.axvline if curve.style == "vertical" else axes.axhline
        for i, place in enumerate(np.atleast_1d(curve.x if curve.style == "vertical" else curve.y)):
            line(float(place), label=label if i == 0 else None, **how)
    else:
        axes.plot(curve.x, curve.y, label=label, **how)


def _labels(axes: Axes, curve: Curve, **how: Any) -> None:
    """Words to the right of points, to the left where another point is near on the right, else above."""
    x, y = curve.x, curve.y
    wide, high = max(float(np.ptp(x)), 1.0), float(np.ptp(y)) or 1.0
    for i, words in enumerate(curve.text):
        side = (x - x[i]) * (np.abs(y - y[i]) < 0.05 * high)
        right, left = (np.any((sign * side > 0) & (sign * side < 0.14 * wide)) for sign in (1, -1))
        offset, ha, va = ((7, 0), "left", "center") if not right else ((-7, 0), "right", "center")
        if right and left:
            offset, ha, va = (0, 6), "center", "bottom"
        place = (x[i], y[i])
        axes.annotate(words, place, offset, textcoords="offset points", fontsize=8, va=va, ha=ha, **how)
