"""Figures of descent on landscapes of two coordinates."""

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
import xarray
from matplotlib.figure import Figure

from linnet.plot.style import SIGNAL, THEORY, TRAIN, finish, label_outer, panels, ramp


def fig8(data: xarray.Dataset, lr: float, rates: Sequence[float]) -> Figure:
    """Both landscapes with descent on them."""
    figure, (left, right) = panels(11, 5, 1, 2)
    side = data["holder_side"].values
    filled = left.contourf(side, side, data["holder"].values, 24, cmap="viridis_r")
    figure.colorbar(filled, ax=left, shrink=0.8)
    path = data["thrown"].values
    left.plot(*path.T, color="white", lw=0.4, alpha=0.7)
    left.plot(*path.T, ".", color=SIGNAL, ms=3)
    left.plot(*data["minima"].values.T, "+", color=THEORY, ms=9, mew=1.6)
    left.plot(*path[0], "o", color="white", mec=THEORY, ms=7, label="initial point")
    left.plot(*path[-1], "s", color="white", mec=THEORY, ms=7, label="end")
    left.set(xlabel="$x$", ylabel="$y$", title=f"Holder table, lr from {rates[0]:g} to {rates[-1]:g}")
    left.legend(fontsize=8, loc="upper left")
    side = data["quartic_side"].values
    levels, cost = np.geomspace(1e-4, 3, 20), np.maximum(data["quartic"].values, 1e-4)
    filled = right.contourf(side, side, cost, levels, cmap="viridis_r", norm=mpl.colors.LogNorm())
    bar = figure.colorbar(filled, ax=right, shrink=0.8, ticks=[1e-4, 1e-3, 1e-2, 1e-1, 1])
    bar.ax.set_yticklabels(["$10^{-4}$", "$10^{-3}$", "$10^{-2}$", "$10^{-1}$", "1"])
    path = data["around"].values
    right.plot(*path.T, color="white", lw=0.5, alpha=0.7)
    right.plot(*path.T, ".", color=SIGNAL, ms=4)
    right.plot(*path[0], "o", color="white", mec=THEORY, ms=7)
    right.plot(*path[-2:].T, "s", color="white", mec=THEORY, ms=7)
    right.set(xlabel="$x$", ylabel="$y$", title=f"$(x^4 - 0.8)^2 + (y^4 - 1)^2$, lr {lr:g}: an orbit")
    return figure


def fig10(data: xarray.Dataset, shown: int) -> Figure:
    """Both coordinates in time at both learning rates."""
    figure, grid = panels(11, 5.6, 2, 2, sharex=True)
    thresholds = 2 / data["curvature"].values
    for row, lr in zip(grid, data["lr"].values, strict=True):
        for axes, name, color, edge in zip(row, ("x", "y"), (TRAIN, SIGNAL), thresholds, strict=True):
            part = data.sel(lr=lr, coordinate=name)
            axes.plot(part["step"][:shown], part["orbit"][:shown], ".-", color=color, lw=0.8, ms=5)
            spread, rate = float(np.ptp(part["orbit"].values)), float(part["lyapunov"])
            fate = "at rest" if spread < 1e-9 else "chaos" if rate > 1e-3 else "2-cycle"
            low, high = float(part["orbit"].min()), float(part["orbit"].max())
            middle, half = (low + high) / 2, max(0.6 * spread, 0.01)
            axes.ticklabel_format(useOffset=False)
            title = f"lr {lr:g}: ${name}$, {fate} (threshold {edge:.5g})"
            finish(axes, title=title, title_size=11, ylabel=f"${name}$", ylim=(middle - half, middle + half))
    label_outer(grid, xlabel="step")
    return figure


def fig11(data: xarray.Dataset) -> Figure:
    """Sharpness and loss while the learning rate grows, and where the iterates are."""
    figure, (left, middle, right) = panels(12, 4.2, 1, 3)
    data = data.isel(initialization=0)
    lrs, steps = data["stage"].values, data.sizes["step"]
    time = np.arange(len(lrs) * steps)
    left.plot(time, data["sharpness"].values.ravel(), ".", color=SIGNAL, ms=2)
    left.plot([], [], ".", color=SIGNAL, label="sharpness")
    left.step(time[::steps], 2 / lrs, where="post", color=THEORY, lw=1.2, ls="--", label="2 / lr")
    left.hlines(2 / lrs[-1], time[-steps], time[-1], color=THEORY, lw=1.2, ls="--")
    finish(left, xlabel="step", title=f"lr from {lrs[0]:g} to {lrs[-1]:g}", ylim=(-0.1, 2.7), legend="best")
    middle.plot(time, data["loss"].values.ravel(), ".", color=TRAIN, ms=2)
    finish(middle, xlabel="step", title="loss")
    for color, lr, path in zip(ramp(len(lrs)), lrs, data["point"].values, strict=True):
        right.plot(*path[steps // 2 :].T, ".", color=color, ms=3)
        right.plot([], [], "o", color=color, ms=5, label=f"lr {lr:g}")
    legend = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
    finish(right, xlabel="$x$", ylabel="$y$", title="second half of each stage", legend=legend, legend_size=8)
    right.margins(0.08)
    return figure
