"""Figures of initializations at and beyond the edge of stability: which vectors, modes, and subspaces result."""

from collections.abc import Sequence

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from linnet.plot.style import MODES, NOISE, QUIET, SIGNAL, TEST, THEORY, TRAIN, finish, label_outer, panels, ramp


def fig3(data: xarray.Dataset, spectrum: Sequence[float]) -> Figure:
    """Modes, overlaps of singular vectors, and the last steps in the order of the values; a column a learning rate."""
    figure, grid = panels(4.3 * data.sizes["kappa"], 8.4, 3, data.sizes["kappa"], sharey="row", squeeze=False)
    step, last = data["step"].values, slice(-20, None)
    for column, kappa in zip(grid.T, data["kappa"].values, strict=True):
        run = data.sel(kappa=kappa)
        for i in range(data.sizes["mode"]):
            color, away = MODES[i % 4], 1 - run["overlap"].values[:, i]
            column[0].plot(step, run["modes"][:, i], color=color, lw=0.8)
            column[1].plot(step, np.maximum(away, 1e-17), ".", color=color, ms=2, mew=0, rasterized=True)
            column[2].plot(step[last], run["overlap"][last, i], color=color, lw=1.5)
            column[2].plot(step[last], run["in_order"][last, i], "o", mfc="none", mec=color, ms=4 + 2.5 * i)
        side = "below" if kappa < 2 else "beyond"
        finish(column[0], title=rf"$\kappa = {kappa:g}$, {side} the edge")
        column[1].axhline(1e-12, color=THEORY, lw=0.9, ls=":")
        finish(column[1], log="y", xlabel="step", ylim=(5e-18, 1e-9))
        column[2].xaxis.set_major_locator(MaxNLocator(5, integer=True))
        finish(column[2], xlabel="the last steps", ylim=(-0.08, 1.12))
    for i in range(data.sizes["mode"]):
        grid[0, 0].plot([], [], color=MODES[i % 4], lw=2, label=f"mode {i + 1}, $s = {spectrum[i]:g}$")
    grid[2, 0].plot([], [], color=THEORY, lw=1.5, label="the same vector, wherever it is")
    grid[2, 0].plot([], [], "o", mfc="none", mec=THEORY, ms=5, label="first, second, third in order")
    limits, legend = (None, 1.4 * float(data["modes"].max())), {"loc": "upper left", "ncol": 2}
    finish(grid[0, 0], ylabel=r"modes $u_i^T A\, v_i$", ylim=limits, legend=legend)
    grid[1, 0].set_ylabel("1 - overlap (zero shown as 1e-17)")
    finish(grid[2, 0], ylabel="overlap, by mode and by order", legend="center left")
    return figure


def fig12(data: xarray.Dataset, spectrum: Sequence[float]) -> Figure:
    """Modes, entries off the diagonal in the bases of the initialization, and the subspaces of an SVD of each layer."""
    figure, (left, middle, right) = panels(12, 4, 1, 3)
    steps = data["step"].values
    for i, (color, s) in enumerate(zip(ramp(len(spectrum)), spectrum, strict=True)):
        left.plot(steps, data["modes"].values[:, i], color=color, lw=1.6)
        left.axhline(s, color=color, lw=0.7, ls=":")
    finish(left, xlabel="step", title=r"modes $u_i^T A\, v_i$ (dotted: targets)")
    middle.plot(steps, np.maximum(data["deviation"].values, 1e-18), color=SIGNAL, lw=1.4)
    middle.axhline(1e-12, color=THEORY, lw=1, ls="--")
    finish(middle, log="y", xlabel="step", title="largest entry off the diagonal", ylim=(1e-18, 1e-10))
    for i, color in zip(range(data.sizes["junction"]), (*MODES, QUIET), strict=False):
        distance = np.maximum(data["distance"].values[:, i], 1e-17)
        right.plot(steps, distance, color=color, lw=1.4, label=f"layers {i + 1} and {i + 2}")
    finish(right, log="y", xlabel="step", title="subspace distance by SVD", legend="best")
    return figure


def _draw_orbits(axes: Axes, part: xarray.Dataset, shown: int, count: int) -> None:
    """Modes in the last steps, sorted values beside them."""
    late = part.isel(step=slice(-shown, None))
    for i, color in zip(range(count), (*MODES, QUIET), strict=False):
        axes.plot(late["step"].values, late["sorted"].values[:, i], color=THEORY, lw=1, ls=":", zorder=3)
        axes.plot(late["step"].values, late["modes"].values[:, i], ".-", color=color, lw=1.2, ms=4)


def _orbit_legend(axes: Axes, count: int) -> None:
    for i, color in zip(range(count), (*MODES, QUIET), strict=False):
        axes.plot([], [], ".-", color=color, label=f"mode {i + 1}")
    axes.plot([], [], color=THEORY, lw=1, ls=":", label="sorted singular values")
    axes.legend(frameon=False, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.12), ncols=count + 1)


def fig14(data: xarray.Dataset, shown: int, spectrum: Sequence[float]) -> Figure:
    """Modes and sorted values at the end, and the gaps between layers in time, for each scale of the initialization."""
    figure, grid = panels(11, 6.4, 2, 2)
    for (left, right), alpha in zip(grid, data["alpha"].values, strict=True):
        part, name = data.sel(alpha=alpha), rf"$\alpha$ = {alpha:g}"
        _draw_orbits(left, part, shown, len(spectrum))
        finish(left, ylabel=r"$u_i^T A\, v_i$", title=f"{name}: the last steps", xlabel="step")
        for i, color in zip(range(len(spectrum)), (*MODES, QUIET), strict=False):
            gap = np.abs(part["gaps"].values[:, 0, i]) / alpha**2
            right.plot(part["step"], np.maximum(gap, 1e-16), color=color, lw=1.3, label=f"mode {i + 1}")
        title = name + r": gap $|y_1^2 - y_L^2| / \alpha^2$"
        finish(right, log="y", title=title, xlabel="step", legend="best", legend_size=8)
    _orbit_legend(grid[0, 0], len(spectrum))
    return figure


def fig15(data: xarray.Dataset, shown: int, spectrum: Sequence[float]) -> Figure:
    """Modes and sorted values at the end, and subspace distances in time, for each initialization."""
    figure, grid = panels(11, 8.4, 3, 2)
    for name in data["initialization"].values[3:]:
        other = data.sel(initialization=name)
        grid[2, 1].plot(other["step"][1:], other["distance"].values[1:].max(axis=1), color=QUIET, lw=0.5, alpha=0.6)
    for (left, right), name in zip(grid, data["initialization"].values[:3], strict=True):
        part = data.sel(initialization=name)
        _draw_orbits(left, part, shown, len(spectrum))
        finish(left, ylabel=r"$u_i^T A\, v_i$", title=f"{name} initialization: the last steps")
        later = part.isel(step=part["step"].values > 0)
        for i, color in zip(range(data.sizes["junction"]), (TRAIN, TEST, NOISE, QUIET), strict=False):
            distance = np.maximum(later["distance"].values[:, i], 1e-17)
            right.plot(later["step"], distance, color=color, lw=1.3, label=f"layers {i + 1} and {i + 2}")
        finish(right, log="y", title=f"{name} initialization: subspace distance")
    finish(grid[0, 1], legend="best", legend_size=8)
    label_outer(grid, xlabel="step")
    _orbit_legend(grid[0, 0], len(spectrum))
    return figure
