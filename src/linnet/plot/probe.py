"""The figure of a probe's record."""

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from linnet.plot.style import NOISE, QUIET, SIGNAL, TEST, THEORY, TRAIN, canvas, finish, ramp

if TYPE_CHECKING:
    import xarray

_NAMED = 8  # layers up to which a legend names them
_DRAWN = 1e300  # up to which numbers are drawn: an axis to larger ones has a length that is no number


def probe(data: "xarray.Dataset") -> Figure:
    """Panels over steps: loss, curvature and threshold, cosines of consecutive steps, singular values, imbalance."""
    data = data.map(lambda one: one.where(abs(one) < _DRAWN) if one.dtype.kind == "f" else one)
    panels = {"loss": _loss, "sharpness": _sharpness, "flip": _flip, "singular_values": _values, "drift": _drift}
    shown = [panel for name, panel in panels.items() if name in data and bool(data[name].notnull().any())]
    figure = canvas(max(4.8, 4.2 * min(3, len(shown))), 3.2 * max(1, -(-len(shown) // 3)))
    if not shown:
        figure.text(0.5, 0.5, "nothing was measured yet", ha="center", color=QUIET)
        return figure
    axes = figure.subplots(-(-len(shown) // 3), min(3, len(shown)), squeeze=False).ravel()
    for panel, place in zip(shown, axes, strict=False):
        panel(place, data)
        finish(place, xlabel="step")
    for place in axes[len(shown) :]:
        place.remove()
    return figure


def _loss(axes: Axes, data: "xarray.Dataset") -> None:
    loss = data["loss"].values
    axes.plot(data["step"], loss, color=TRAIN, lw=1.2)
    axes.set(title="loss", yscale="log" if np.nanmin(loss) > 0 else "linear")


def _sharpness(axes: Axes, data: "xarray.Dataset") -> None:
    measurement, adaptive = data["measurement"].values, "adaptive" in data
    top = data["adaptive"].values if adaptive else data["sharpness"].values[:, 0]
    error = data["adaptive_residual"].values if adaptive else data["residual"].values[:, 0]
    axes.fill_between(measurement, top - error, top + error, color=SIGNAL, alpha=0.25, lw=0)
    axes.plot(
        measurement, top, color=SIGNAL, lw=1.2, marker=".", ms=3, label="preconditioned" if adaptive else "largest"
    )
    axes.plot(measurement, data["lowest"], color=NOISE, lw=0.8, label="lowest of the Hessian" if adaptive else "lowest")
    if "threshold" in data and np.nanmax(top) > 0.05 * np.nanmin(data["threshold"]):
        axes.plot(measurement, data["threshold"], color=THEORY, lw=1, ls="--", label="edge of stability")
    elif "ratio" in data:
        axes.plot([], [], " ", label=f"at most {np.nanmax(data['ratio']):.1g} of the edge")
    axes.set(title="curvature")
    axes.legend(frameon=False, fontsize="small")


def _flip(axes: Axes, data: "xarray.Dataset") -> None:
    axes.axhline(0, color=QUIET, lw=0.8)
    axes.plot(data["step"], data["flip"], color=TEST, lw=0.8)
    axes.set(title="cosine of a step with the one before", ylim=(-1.05, 1.05))


def _values(axes: Axes, data: "xarray.Dataset") -> None:
    _layers(axes, data, data["singular_values"].values[:, :, 0])
    axes.set(title="largest singular value of each layer")


def _drift(axes: Axes, data: "xarray.Dataset") -> None:
    _layers(axes, data, data["drift"].values)
    axes.set(title="drift of the balance, over squared weights")


def _layers(axes: Axes, data: "xarray.Dataset", values: np.ndarray) -> None:
    kept = [i for i in range(values.shape[1]) if np.isfinite(values[:, i]).any()]
    for i, color in zip(kept, ramp(len(kept), 0.9), strict=True):
        axes.plot(
            data["measurement"], values[:, i], color=color, lw=1.2, marker=".", ms=3, label=str(data["layer"].values[i])
        )
    if len(kept) <= _NAMED:
        axes.legend(frameon=False, fontsize="small")
