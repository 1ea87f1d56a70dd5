"""Pictures of the landscape."""

from collections.abc import Sequence

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from linnet.observe.landscape import Kind
from linnet.plot.style import NOISE, SIGNAL, THEORY, TRAIN, canvas, tidy
from linnet.predict.landscape import LandscapeMeasured, LandscapePrediction

_KINDS = {
    Kind.STRICT_SADDLE: (NOISE, "o", "strict saddle"),
    Kind.DEGENERATE_SOSP: (SIGNAL, "s", "degenerate: no second-order descent"),
    Kind.GLOBAL_MIN: (TRAIN, "*", "global minimum"),
}
_NAMED = 40  # points up to which all have words; of more only 1 ... k


def critical_map(data: xarray.Dataset) -> Figure:
    """Every critical point by loss and index, one panel for each depth, with the modes that it keeps."""
    depths, kinds = data["depth"].values, str(data.attrs["kinds"]).split()
    figure = canvas(4.2 * len(depths), 4.8)
    panels = figure.subplots(1, len(depths), sharey=True, squeeze=False)[0]
    kept = [tuple((np.flatnonzero(k) + 1).tolist()) for k in data["kept"].values]
    for axes, row in zip(panels, range(len(depths)), strict=True):
        labels = [Kind(kinds[i]) for i in data["label"].values[row]]
        _panel(axes, kept, data["negative"].values[row], data["loss"].values[row], labels)
        axes.set_title(f"{depths[row]} layers", fontsize=11)
    panels[0].set_ylabel("loss")
    _legend(figure, panels[-1])
    return figure


def points(said: LandscapePrediction, seen: LandscapeMeasured | None = None) -> Figure:
    """A network's critical points by loss and index, with the modes they keep; rings are those built as weights."""
    figure = canvas(7, 5.2)
    axes = figure.subplots()
    x, y = (np.array([getattr(p, name) for p in said.points]) for name in ("negative_eigenvalues", "loss"))
    _panel(axes, [p.kept for p in said.points], x, y, [p.label for p in said.points])
    if seen is not None:
        x, y = (np.array([getattr(p, name) for p in seen.points]) for name in ("negative_eigenvalues", "loss"))
        axes.scatter(x, y, s=130, facecolor="none", edgecolor=THEORY, lw=0.9, zorder=2, label="built as weights")
    axes.set(ylabel="loss", title=f"{said.depth} layers, bottleneck {said.bottleneck}")
    _legend(figure, axes)
    return figure


def _panel(axes: Axes, kept: Sequence[tuple[int, ...]], x: np.ndarray, y: np.ndarray, labels: Sequence[Kind]) -> None:
    """Points with words and lines to one mode more."""
    height, wide = float(y.max() - y.min()) or 1.0, max(float(x.max()), 1.0)
    place = {modes: i for i, modes in enumerate(kept)}
    for modes, b in place.items():
        for mode in modes:  # a step of the ladder: one mode more
            a = place.get(tuple(m for m in modes if m != mode))
            if a is not None:
                axes.plot(x[[a, b]], y[[a, b]], color=NOISE, lw=0.5, alpha=0.3, zorder=1)
    for kind, (colour, marker, words) in _KINDS.items():
        chosen = [i for i, label in enumerate(labels) if label == kind]
        if chosen:
            size = 170 if marker == "*" else 42
            axes.scatter(
                x[chosen], y[chosen], s=size, c=colour, marker=marker, label=words, zorder=3, edgecolor="white"
            )
    for i, modes in enumerate(kept):
        if len(kept) > _NAMED and modes != tuple(range(1, len(modes) + 1)):
            continue
        # words stand on the right, unless another point is there; then on the left, and at last above
        side = (x - x[i]) * (np.abs(y - y[i]) < 0.05 * height)
        right, left = (np.any((way * side > 0) & (way * side < 0.14 * wide)) for way in (1, -1))
        offset, ha, va = ((7, 0), "left", "center") if not right else ((-7, 0), "right", "center")
        if right and left:
            offset, ha, va = (0, 6), "center", "bottom"
        axes.annotate(
            _name(modes), (x[i], y[i]), offset, textcoords="offset points", fontsize=8, color=THEORY, va=va, ha=ha
        )
    axes.set_xlabel("negative eigenvalues of the Hessian")
    axes.set_xlim(-0.1 * wide, 1.16 * wide)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    tidy(axes)


def _name(modes: tuple[int, ...]) -> str:
    """124, or with commas where modes have two digits; 1 ... k where there are many."""
    if len(modes) > 5 and modes[-1] == len(modes):
        return f"1 ... {len(modes)}"
    return ("," if modes and modes[-1] > 9 else "").join(map(str, modes)) or "none"


def _legend(figure: Figure, axes: Axes) -> None:
    handles, words = axes.get_legend_handles_labels()
    figure.legend(
        handles, words, loc="outside upper center", ncols=3 if len(words) < 4 else 2, frameon=False, fontsize=9
    )
