"""Pictures of the edge of stability: landscapes, starts, balance, the minimum of the flow."""

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from linnet.plot.style import NOISE, QUIET, SIGNAL, TEST, THEORY, TRAIN, canvas, tidy

_MODES = (SIGNAL, TRAIN, TEST, NOISE, QUIET)


def _colours(count: int) -> np.ndarray:
    return np.asarray(mpl.colormaps["viridis"](np.linspace(0, 0.85, count)))


def landscapes(data: xarray.Dataset, lr: float, rates: Sequence[float]) -> Figure:
    """Both landscapes with descent on them."""
    figure = canvas(11, 5)
    left, right = figure.subplots(1, 2)
    side = data["holder_side"].values
    filled = left.contourf(side, side, data["holder"].values, 24, cmap="viridis_r")
    figure.colorbar(filled, ax=left, shrink=0.8)
    path = data["thrown"].values
    left.plot(*path.T, color="white", lw=0.4, alpha=0.7)
    left.plot(*path.T, ".", color=SIGNAL, ms=3)
    left.plot(*data["minima"].values.T, "+", color=THEORY, ms=9, mew=1.6)
    left.plot(*path[0], "o", color="white", mec=THEORY, ms=7, label="start")
    left.plot(*path[-1], "s", color="white", mec=THEORY, ms=7, label="end")
    left.set(xlabel="$x$", ylabel="$y$", title=f"Holder table, lr from {rates[0]:g} to {rates[-1]:g}")
    left.legend(fontsize=8, loc="upper left")
    side = data["quartic_side"].values
    levels = np.geomspace(1e-4, 3, 20)
    filled = right.contourf(
        side, side, np.maximum(data["quartic"].values, 1e-4), levels, cmap="viridis_r", norm=mpl.colors.LogNorm()
    )
    bar = figure.colorbar(filled, ax=right, shrink=0.8, ticks=[1e-4, 1e-3, 1e-2, 1e-1, 1])
    bar.ax.set_yticklabels(["$10^{-4}$", "$10^{-3}$", "$10^{-2}$", "$10^{-1}$", "1"])
    path = data["around"].values
    right.plot(*path.T, color="white", lw=0.5, alpha=0.7)
    right.plot(*path.T, ".", color=SIGNAL, ms=4)
    right.plot(*path[0], "o", color="white", mec=THEORY, ms=7)
    right.plot(*path[-2:].T, "s", color="white", mec=THEORY, ms=7)
    right.set(xlabel="$x$", ylabel="$y$", title=f"$(x^4 - 0.8)^2 + (y^4 - 1)^2$, lr {lr:g}: an orbit")
    return figure


def directions(data: xarray.Dataset, shown: int) -> Figure:
    """Both coordinates in time at both step sizes."""
    figure = canvas(11, 5.6)
    panels = figure.subplots(2, 2, sharex=True)
    thresholds = 2 / data["curvature"].values
    for row, lr in zip(panels, data["lr"].values, strict=True):
        for axes, name, colour, edge in zip(row, ("x", "y"), (TRAIN, SIGNAL), thresholds, strict=True):
            part = data.sel(lr=lr, coordinate=name)
            axes.plot(part["step"][:shown], part["orbit"][:shown], ".-", color=colour, lw=0.8, ms=5)
            spread, rate = float(np.ptp(part["orbit"].values)), float(part["lyapunov"])
            word = "at rest" if spread < 1e-9 else "chaos" if rate > 1e-3 else "2-cycle"
            axes.set_title(f"lr {lr:g}: ${name}$, {word} (threshold {edge:.5g})", fontsize=11)
            low, high = float(part["orbit"].min()), float(part["orbit"].max())
            middle, half = (low + high) / 2, max(0.6 * spread, 0.01)
            axes.set_ylim(middle - half, middle + half)
            axes.ticklabel_format(useOffset=False)
            axes.set_ylabel(f"${name}$")
            tidy(axes)
    for axes in panels[1]:
        axes.set_xlabel("step")
    return figure


def catapults(data: xarray.Dataset) -> Figure:
    """Sharpness and loss while the step size grows, and where the iterates are."""
    figure = canvas(12, 4.2)
    left, middle, right = figure.subplots(1, 3)
    rates, steps = data["stage"].values, data.sizes["step"]
    time = np.arange(len(rates) * steps)
    left.plot(time, data["sharpness"].values.ravel(), ".", color=SIGNAL, ms=2)
    left.plot([], [], ".", color=SIGNAL, label="sharpness")
    left.step(time[::steps], 2 / rates, where="post", color=THEORY, lw=1.2, ls="--", label="2 / lr")
    left.hlines(2 / rates[-1], time[-steps], time[-1], color=THEORY, lw=1.2, ls="--")
    left.set(xlabel="step", title=f"lr from {rates[0]:g} to {rates[-1]:g}", ylim=(-0.1, 2.7))
    left.legend(frameon=False, fontsize=9)
    middle.plot(time, data["loss"].values.ravel(), ".", color=TRAIN, ms=2)
    middle.set(xlabel="step", title="loss")
    colours = _colours(len(rates))
    for colour, lr, path in zip(colours, rates, data["point"].values, strict=True):
        late = path[steps // 2 :]
        right.plot(*late.T, ".", color=colour, ms=3)
        right.plot([], [], "o", color=colour, ms=5, label=f"lr {lr:g}")
    right.set(xlabel="$x$", ylabel="$y$", title="second half of each stage")
    right.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    for axes in (left, middle, right):
        tidy(axes)
    right.margins(0.08)
    return figure


def decomposition(data: xarray.Dataset, spectrum: Sequence[float]) -> Figure:
    """Modes, what is off the diagonal in the bases of the start, and what an SVD of each layer says."""
    figure = canvas(12, 4)
    left, middle, right = figure.subplots(1, 3)
    steps = data["step"].values
    for colour, i, s in zip(_colours(len(spectrum)), range(len(spectrum)), spectrum, strict=True):
        left.plot(steps, data["modes"].values[:, i], color=colour, lw=1.6)
        left.axhline(s, color=colour, lw=0.7, ls=":")
    left.set(xlabel="step", title=r"modes $u_i^T A\, v_i$ (dotted: targets)")
    middle.plot(steps, np.maximum(data["deviation"].values, 1e-18), color=SIGNAL, lw=1.4)
    middle.axhline(1e-12, color=THEORY, lw=1, ls="--")
    middle.set(xlabel="step", title="largest entry off the diagonal", ylim=(1e-18, 1e-10))
    middle.set_yscale("log")
    for i, colour in zip(range(data.sizes["junction"]), _MODES, strict=False):
        label = f"layers {i + 1} and {i + 2}"
        right.plot(steps, np.maximum(data["distance"].values[:, i], 1e-17), color=colour, lw=1.4, label=label)
    right.set(xlabel="step", title="subspace distance by SVD")
    right.set_yscale("log")
    right.legend(frameon=False, fontsize=9)
    for axes in (left, middle, right):
        tidy(axes)
    return figure


def balance(data: xarray.Dataset, left_over: np.ndarray, spectrum: Sequence[float]) -> Figure:
    """Layer value from 0 against layer value from alpha, and what is left of the gap."""
    figure = canvas(12, 4.4)
    left, middle, right = figure.subplots(1, 3)
    colours = _colours(data.sizes["alpha"])
    top = float(data["last"].values[:, :, 0].max())
    for axes, end in ((left, top), (middle, 2.2 * float(data["alpha"].values[-1]))):
        for colour, alpha in zip(colours, data["alpha"].values, strict=True):
            part = data.sel(alpha=alpha).isel(mode=0)
            axes.plot(part["first"], part["last"], ".-", color=colour, lw=0.6, ms=4, label=rf"$\alpha$ = {alpha:g}")
        axes.plot([0, end], [0, end], color=THEORY, lw=1, ls="--")
        axes.set(xlabel=r"value that starts at $\alpha$", xlim=(0, end), ylim=(0, end))
        axes.set_aspect("equal")
        tidy(axes)
        axes.set(xlim=(0, 1.03 * end), ylim=(0, 1.03 * end))
    left.set(ylabel="value that starts at 0", title="mode 1, step by step")
    middle.set_title("its beginning")
    left.legend(frameon=False, fontsize=9)
    steps = data["step"].values
    for i, s in enumerate(spectrum):
        for colour, row in zip(colours, left_over, strict=True):
            right.plot(steps[1:], row[1:, i], color=colour, lw=1.2)
        end = left_over[0, -1, i]
        right.annotate(
            f"s = {s:g}", (steps[-1], end), xytext=(4, 0), textcoords="offset points", fontsize=8, va="center"
        )
    right.set(xlabel="step", title=r"gap $y_1^2 - y_L^2$ over $\alpha^2$", ylim=(0, 1.05))
    right.set_xscale("log")
    tidy(right)
    return figure


def _orbits(axes: Axes, part: xarray.Dataset, shown: int, spectrum: Sequence[float]) -> None:
    """Modes in the last steps, sorted values beside them."""
    late = part.isel(step=slice(-shown, None))
    steps = late["step"].values
    for i, colour in zip(range(len(spectrum)), _MODES, strict=False):
        axes.plot(steps, late["sorted"].values[:, i], color=THEORY, lw=1, ls=":", zorder=3)
        axes.plot(steps, late["modes"].values[:, i], ".-", color=colour, lw=1.2, ms=4)
    tidy(axes)


def _orbit_legend(axes: Axes, count: int) -> None:
    for i, colour in zip(range(count), _MODES, strict=False):
        axes.plot([], [], ".-", color=colour, label=f"mode {i + 1}")
    axes.plot([], [], color=THEORY, lw=1, ls=":", label="sorted singular values")
    axes.legend(frameon=False, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.12), ncols=count + 1)


def scales(data: xarray.Dataset, shown: int, spectrum: Sequence[float]) -> Figure:
    """Modes and sorted values in the end, and the gaps between layers in time, for each start scale."""
    figure = canvas(11, 6.4)
    panels = figure.subplots(2, 2)
    for row, alpha in zip(panels, data["alpha"].values, strict=True):
        part = data.sel(alpha=alpha)
        _orbits(row[0], part, shown, spectrum)
        row[0].set(ylabel=r"$u_i^T A\, v_i$", title=rf"$\alpha$ = {alpha:g}: the last steps", xlabel="step")
        for i, colour in zip(range(len(spectrum)), _MODES, strict=False):
            gap = np.abs(part["gaps"].values[:, 0, i]) / alpha**2
            row[1].plot(part["step"], np.maximum(gap, 1e-16), color=colour, lw=1.3, label=f"mode {i + 1}")
        row[1].set(title=rf"$\alpha$ = {alpha:g}: gap $|y_1^2 - y_L^2| / \alpha^2$", xlabel="step")
        row[1].set_yscale("log")
        row[1].legend(frameon=False, fontsize=8)
        tidy(row[1])
    _orbit_legend(panels[0, 0], len(spectrum))
    return figure


def starts(data: xarray.Dataset, shown: int, spectrum: Sequence[float]) -> Figure:
    """Modes and sorted values in the end, and subspace distances in time, for each start."""
    figure = canvas(11, 8.4)
    panels = figure.subplots(3, 2)
    for name in data["start"].values[3:]:
        other = data.sel(start=name)
        panels[2, 1].plot(other["step"][1:], other["distance"].values[1:].max(axis=1), color=QUIET, lw=0.5, alpha=0.6)
    for row, name in zip(panels, data["start"].values[:3], strict=True):
        part = data.sel(start=name)
        _orbits(row[0], part, shown, spectrum)
        row[0].set(ylabel=r"$u_i^T A\, v_i$", title=f"{name} start: the last steps")
        seen = part["step"].values > 0
        for i, colour in zip(range(data.sizes["junction"]), (TRAIN, TEST, NOISE, QUIET), strict=False):
            row[1].plot(
                part["step"][seen],
                np.maximum(part["distance"].values[seen, i], 1e-17),
                color=colour,
                lw=1.3,
                label=f"layers {i + 1} and {i + 2}",
            )
        row[1].set(title=f"{name} start: subspace distance")
        row[1].set_yscale("log")
        tidy(row[1])
    panels[0, 1].legend(frameon=False, fontsize=8)
    for axes in panels[-1]:
        axes.set_xlabel("step")
    _orbit_legend(panels[0, 0], len(spectrum))
    return figure


def depth_map(data: xarray.Dataset, s: float) -> Figure:
    """What every step size does at every depth, with the predicted boundary."""
    figure = canvas(8.5, 4.4)
    axes = figure.subplots()
    names = ("at rest", "oscillates", "still at the saddle", "diverged")
    colours = (THEORY, "#f8fafc", SIGNAL, TEST)
    lr, depths = data["lr"].values, data["depth"].values
    half = (lr[1] - lr[0]) / 2
    axes.pcolormesh(
        np.append(lr - half, lr[-1] + half),
        np.arange(len(depths) + 1) - 0.5,
        data["kind"].values,
        cmap=mpl.colors.ListedColormap(list(colours)),
        vmin=-0.5,
        vmax=3.5,
    )
    for i, edge in enumerate(data["boundary"].values):
        axes.plot([edge, edge], [i - 0.5, i + 0.5], color=SIGNAL, lw=2)
        axes.text(edge + 2 * half, i, f"{edge:.5g}", color=SIGNAL, fontsize=9, va="center")
    axes.set_yticks(range(len(depths)), [f"{depth}" for depth in depths])
    axes.set(xlabel="step size", ylabel="layers", title=f"First mode, s = {s:g}; line: $2/(L s^{{2-2/L}})$")
    present = np.unique(data["kind"].values)
    handles = [Patch(facecolor=colours[k], edgecolor=QUIET, label=names[k]) for k in present]
    axes.legend(handles=handles, frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def bounds(data: xarray.Dataset) -> Figure:
    """Psi over S with both bounds, a panel for each depth."""
    count = data.sizes["depth"]
    figure = canvas(3.2 * count + 1, 3.8)
    panels = np.atleast_1d(figure.subplots(1, count))
    alpha = data["alpha"].values
    for axes, depth in zip(panels, data["depth"].values, strict=True):
        part = data.sel(depth=depth)
        axes.plot(alpha, part["published"], color=NOISE, lw=1.4, ls="--", label="published bound")
        axes.plot(alpha, part["sharp"], color=TRAIN, lw=1.4, ls="-.", label="bound with $g(L)$")
        axes.plot(alpha, part["psi"], color=SIGNAL, lw=2, label=r"$\Psi(\alpha)$")
        axes.plot(data["flows"], part["flow"], "o", color=THEORY, ms=4, label="integrated flows")
        axes.set_yscale("log")
        axes.set(xlabel=r"$\alpha / s^{1/L}$", title=f"{depth} layers", ylim=(0.9, 40 * float(part["psi"].max())))
        tidy(axes)
    panels[0].set_ylabel("over $S$")
    panels[0].legend(frameon=False, fontsize=8, loc="upper left")
    return figure


def growth(data: xarray.Dataset) -> Figure:
    """P(alpha) by depth, with its predicted maximum."""
    figure = canvas(7.5, 4.4)
    axes = figure.subplots()
    for colour, depth in zip(_colours(data.sizes["depth"]), data["depth"].values, strict=True):
        part = data.sel(depth=depth)
        axes.plot(data["alpha"], part["p"], color=colour, lw=1.8, label=f"{depth} layers")
        if float(part["critical"]) > 0:
            axes.axvline(float(part["critical"]), color=colour, lw=1, ls=":")
    axes.plot([], [], color=THEORY, lw=1, ls=":", label=r"$\alpha_{crit}$")
    axes.set(xlabel=r"$\alpha / s^{1/L}$", ylabel=r"$P(\alpha) / P(0)$")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=9)
    tidy(axes)
    return figure
