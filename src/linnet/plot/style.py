"""Colors, and the functions that all figures are built from."""

from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

CROWDED = 12  # a panel with more lines than this has thin ones
SIGNAL, NOISE, TRAIN, TEST, QUIET, THEORY = "#c2410c", "#64748b", "#0f766e", "#7c3aed", "#94a3b8", "#111827"
MODES = (SIGNAL, TRAIN, TEST, NOISE)  # the color of each mode, largest first


def canvas(width: float, height: float) -> Figure:
    """An empty figure that needs no display."""
    return Figure(figsize=(width, height), dpi=150, layout="constrained")


def panels(width: float, height: float, rows: int = 1, columns: int = 1, **options: Any) -> tuple[Figure, Any]:
    """A figure and its axes: one, or an array of them. `options` are those of `Figure.subplots`."""
    figure = canvas(width, height)
    return figure, figure.subplots(rows, columns, **options)


def tidy(axes: Axes) -> None:
    """No box, a faint grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.01)
    axes.grid(color=QUIET, alpha=0.2)


def finish(
    axes: Any,
    *,
    log: str = "",
    legend: str | dict[str, Any] | None = None,
    legend_size: float = 9,
    title_size: float | None = None,
    **properties: Any,
) -> None:
    """Completes a panel, or each panel of an array, after its lines are drawn.

    `log` names the logarithmic axes ("x", "y", "xy"), `legend` is a location or options of `Axes.legend`, and
    `properties` are those of `Axes.set`: title, xlabel, ylim, and so on.
    """
    for each in np.ravel(axes):
        each.set(**{f"{axis}scale": "log" for axis in log}, **properties)
        if title_size is not None:
            each.title.set_fontsize(title_size)
        tidy(each)
        if legend is not None:
            options = {"loc": legend} if isinstance(legend, str) else legend
            each.legend(**{"frameon": False, "fontsize": legend_size, **options})


def label_outer(grid: np.ndarray, xlabel: str | None = None, ylabel: str | None = None) -> None:
    """Labels below the last row and beside the first column of a grid of panels."""
    for axes in grid[-1] if xlabel is not None else ():
        axes.set_xlabel(xlabel)
    for axes in grid[:, 0] if ylabel is not None else ():
        axes.set_ylabel(ylabel)


def ramp(count: int, end: float = 0.85) -> np.ndarray:
    """So many colors in order, from dark to light: shape (count, 4)."""
    return np.asarray(mpl.colormaps["viridis"](np.linspace(0, end, count)))


def band(
    axes: Axes, x: np.ndarray, values: np.ndarray, color: str, runs: str | None = None, median: str | None = None
) -> None:
    """The median of many runs (first axis), the central 80% of them, and all of them."""
    low, lower, middle, upper, high = np.quantile(values, (0.0, 0.1, 0.5, 0.9, 1.0), axis=0)
    axes.fill_between(x, low, high, color=color, alpha=0.12, lw=0, label=runs and f"all {runs}")
    axes.fill_between(x, lower, upper, color=color, alpha=0.28, lw=0, label=runs and f"80% of {runs}")
    axes.plot(x, middle, color=color, lw=2, label=median or (runs and "median"))
