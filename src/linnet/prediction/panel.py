"""Figures are data: panels with their curves."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Real

from linnet.prediction.assumption import Source


@dataclass(frozen=True)
class Curve:
    """A line, points, labels, or an image of a panel.

    - `x`, `y`: one-dimensional, or for an image the two axes; NaN breaks a line, whole numbers have whole ticks.
    - `style`: "line", "faint", "theory" (thick, pale: a prediction), "measured" (dashed: the exact run), "dotted",
      "points", "squares", "diamonds", "stars", "rings", "bars", "dots" (single pixels), "vertical" or "horizontal" (at
      every x or y), "labels" (the words of `text` beside the points), "image" or "log image" (`z` over x and y).
    - `color`: a name of `linnet.plot.style` or any color of matplotlib; None takes the next one.
    """

    name: str
    x: Real[np.ndarray, " x"]
    y: Real[np.ndarray, " y"]
    style: str = "line"
    color: Any = None
    error: float | None = None
    source: Source | None = None
    z: Float[np.ndarray, "y x"] | None = None
    text: tuple[str, ...] = ()
    labeled: bool = True  # whether it stands in the legend


@dataclass(frozen=True)
class Panel:
    """Axes with their curves."""

    curves: tuple[Curve, ...]
    title: str = ""
    xlabel: str = ""
    ylabel: str = ""
    log: str = ""  # "x", "y", or "xy"
    xlim: tuple[float | None, float | None] | None = None
    ylim: tuple[float | None, float | None] | None = None
