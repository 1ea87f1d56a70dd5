"""The figure of lazy and non-local starts."""

from typing import Any

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from linnet.plot.style import THEORY, finish, panels, ramp

_NEAR, _FAR = 5.0, 30.0  # degrees, of the second and the third panel
_SIZE = "size of the start $|A_0| / |Z|$"
_RIM = {"color": "black", "lw": 4.0, "alpha": 0.4}  # keeps light lines visible
_THEOREM = {"color": "white", "lw": 2.2}
_LAZY: dict[str, Any] = {"colors": "#fde047", "linewidths": 2.0, "linestyles": "--"}
_NEARBY: dict[str, Any] = {"colors": "#67e8f9", "linewidths": 1.8, "linestyles": ":"}


def lazy(data: xarray.Dataset, depth: int, alpha: float, kappa: float, closed: xarray.Dataset) -> Figure:
    """How far the kernel moves over size and angle, over size and depth, and kernel and weights over size."""
    figure, (plane, layers, curves) = panels(16.5, 5.4, 1, 3)
    near, far = (float(data["angle"].sel(angle=angle, method="nearest")) for angle in (_NEAR, _FAR))
    limits, top = (float(data["scale"][0]), float(data["scale"][-1])), float(data["angle"][-1])
    edge = min(np.degrees(np.arccos(alpha)), top)

    _map(plane, data["angle"].values, data.sel(depth=depth))
    _lines(plane, closed["angle"].values, closed.sel(depth=depth), kappa)
    index = np.arange(data.sizes["depth"])
    image = _map(layers, index, data.sel(angle=near))
    _lines(layers, index, closed.sel(angle=near, method="nearest"), kappa)
    for style in (_RIM, _THEOREM):
        plane.plot([alpha, alpha, limits[1]], [0, edge, edge], **style)
        layers.axvline(alpha, **style)
    plane.plot([10], [_FAR], "*", color="white", mec="black", ms=14)
    finish(plane, log="x", xlabel=_SIZE, ylabel="angle to the target (degrees)", xlim=limits, ylim=(0, top))
    finish(layers, log="x", xlabel=_SIZE, ylabel="layers", xlim=limits, title=f"{near:.0f} degrees off the target")
    plane.set_title(f"Starts of {depth} layers (star: Figure 1)")
    layers.set_yticks(index, labels=[str(number) for number in data["depth"].values])
    figure.colorbar(image, ax=[plane, layers], label="change of the kernel, $|K - K_0| / |K_0|$", extend="both")

    exact = closed.sel(angle=far, method="nearest")
    for color, number in zip(ramp(data.sizes["depth"]), data["depth"].values, strict=True):
        curve, run = exact.sel(depth=number), data.sel(depth=number, angle=far)
        curves.plot(curve["scale"], curve["kernel"], color=color, lw=2.0, label=f"{number} layers")
        curves.plot(curve["scale"], curve["travel"], color=color, lw=1.5, ls="--")
        for name in ("kernel", "travel"):
            curves.plot(run["scale"], run[name], ".", color=color, ms=5)
    curves.plot([], [], color=THEORY, lw=2, label="kernel")
    curves.plot([], [], color=THEORY, lw=1.5, ls="--", label="weights")
    curves.plot([], [], ".", color=THEORY, ms=5, label="networks")
    title = f"{far:.0f} degrees off: what moves"
    finish(curves, log="xy", xlabel=_SIZE, ylabel="change over the initial norm", title=title, legend="upper right")
    curves.set(xlim=limits, ylim=(0.09, 30))

    handles = [
        Line2D([], [], color="0.6", lw=2.2, label=rf"the theorem's set, $\alpha$ = {alpha:g}: right of and below it"),
        Line2D([], [], color="#ca8a04", lw=2, ls="--", label=rf"lazy starts, $\kappa$ = {kappa:g}: inside"),
        Line2D([], [], color="#0891b2", lw=1.8, ls=":", label="$|A_0 - Z| = |Z|$, nearby starts of (29): inside"),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=3, frameon=False, fontsize=9)
    return figure


def _map(axes: Axes, y: np.ndarray, part: xarray.Dataset) -> QuadMesh:
    """The kernel's change over the size of the start and another axis."""
    x, values = part["scale"].values, np.maximum(part["kernel"].values, 1e-6)
    return axes.pcolormesh(x, y, values, norm=LogNorm(0.03, 30), cmap="magma", shading="nearest", rasterized=True)


def _lines(axes: Axes, y: np.ndarray, exact: xarray.Dataset, kappa: float) -> None:
    """Where the factor of lazy training is `kappa`, and the ball of starts that are nearer to the target than zero."""
    x = exact["scale"].values
    axes.contour(x, y, exact["laziness"].values, [kappa], **_LAZY)
    axes.contour(x, y, np.broadcast_to(exact["distance"].values, (len(y), len(x))), [1.0], **_NEARBY)
