"""Figures of the balance of layers beyond the edge, and of the sharpness of the flow's minimum."""

from collections.abc import Sequence

import numpy as np
import xarray
from matplotlib.figure import Figure

from linnet.plot.style import MODES, NOISE, SIGNAL, THEORY, TRAIN, finish, panels, ramp


def fig4(data: xarray.Dataset, spectrum: Sequence[float], rate: float | None) -> Figure:
    """Gaps of the squared layer values in time, with the law of the 2-cycle, and the last steps of the modes."""
    figure, (left, right) = panels(11, 4.4, 1, 2, width_ratios=(2, 1))
    step, gap = data["step"].values, data["gap"].values
    for i in range(data.sizes["mode"]):
        left.plot(step, data["direct"][:, i], color=MODES[i % 4], lw=0.5, alpha=0.5)
        left.plot(step, gap[:, i], color=MODES[i % 4], lw=2, label=f"mode {i + 1}, $s = {spectrum[i]:g}$")
        right.plot(step[-24:], data["modes"][-24:, i], "o-", color=MODES[i % 4], lw=1, ms=3)
    if rate is not None:
        middle = len(step) // 2
        law = gap[middle, 0] * np.exp(-rate * (step - middle))
        part = law < gap[0, 0]
        left.plot(step[part], law[part], color=THEORY, lw=1.2, ls=":", label=r"$[(2-z)(2-1/z)]^{t/2}$, mode 1")
    left.plot([], [], color=NOISE, lw=0.5, label="direct differences")
    finish(
        left,
        log="y",
        xlabel="step",
        ylabel=r"$|y_\ell^2 - y_L^2|$",
        title="Gaps between layers",
        ylim=(max(1e-18, 0.3 * gap.min()), None),
        legend="lower left",
    )
    finish(right, xlabel="step", ylabel=r"modes $u_i^T A\, v_i$", title="The last steps: who oscillates")
    return figure


def fig13(data: xarray.Dataset, gap_left: np.ndarray, spectrum: Sequence[float]) -> Figure:
    """Layer value from 0 against layer value from alpha, and what is left of the gap."""
    figure, (left, middle, right) = panels(12, 4.4, 1, 3)
    colors = ramp(data.sizes["alpha"])
    top = float(data["last"].values[:, :, 0].max())
    for axes, end in ((left, top), (middle, 2.2 * float(data["alpha"].values[-1]))):
        for color, alpha in zip(colors, data["alpha"].values, strict=True):
            part = data.sel(alpha=alpha).isel(mode=0)
            axes.plot(part["first"], part["last"], ".-", color=color, lw=0.6, ms=4, label=rf"$\alpha$ = {alpha:g}")
        axes.plot([0, end], [0, end], color=THEORY, lw=1, ls="--")
        limits = (0, 1.03 * end)
        finish(axes, xlabel=r"value that starts at $\alpha$", xlim=limits, ylim=limits, aspect="equal")
    finish(left, ylabel="value that starts at 0", title="mode 1, step by step", legend="best")
    middle.set_title("its beginning")
    steps = data["step"].values
    for i, s in enumerate(spectrum):
        for color, row in zip(colors, gap_left, strict=True):
            right.plot(steps[1:], row[1:, i], color=color, lw=1.2)
        at_end = (steps[-1], gap_left[0, -1, i])
        right.annotate(f"s = {s:g}", at_end, xytext=(4, 0), textcoords="offset points", fontsize=8, va="center")
    finish(right, log="x", xlabel="step", title=r"gap $y_1^2 - y_L^2$ over $\alpha^2$", ylim=(0, 1.05))
    return figure


def fig22(data: xarray.Dataset) -> Figure:
    """Psi over S with both bounds, a panel for each depth."""
    count = data.sizes["depth"]
    figure, (grid,) = panels(3.2 * count + 1, 3.8, 1, count, squeeze=False)
    alpha = data["alpha"].values
    for axes, depth in zip(grid, data["depth"].values, strict=True):
        part = data.sel(depth=depth)
        axes.plot(alpha, part["published"], color=NOISE, lw=1.4, ls="--", label="published bound")
        axes.plot(alpha, part["sharp"], color=TRAIN, lw=1.4, ls="-.", label="bound with $g(L)$")
        axes.plot(alpha, part["psi"], color=SIGNAL, lw=2, label=r"$\Psi(\alpha)$")
        axes.plot(data["flows"], part["flow"], "o", color=THEORY, ms=4, label="integrated flows")
        limits = (0.9, 40 * float(part["psi"].max()))
        finish(axes, log="y", xlabel=r"$\alpha / s^{1/L}$", title=f"{depth} layers", ylim=limits)
    finish(grid[0], ylabel="over $S$", legend="upper left", legend_size=8)
    return figure


def fig23(data: xarray.Dataset) -> Figure:
    """P(alpha) by depth, with its predicted maximum."""
    figure, axes = panels(7.5, 4.4)
    for color, depth in zip(ramp(data.sizes["depth"]), data["depth"].values, strict=True):
        part = data.sel(depth=depth)
        axes.plot(data["alpha"], part["p"], color=color, lw=1.8, label=f"{depth} layers")
        if float(part["critical"]) > 0:
            axes.axvline(float(part["critical"]), color=color, lw=1, ls=":")
    axes.plot([], [], color=THEORY, lw=1, ls=":", label=r"$\alpha_{crit}$")
    finish(axes, xlabel=r"$\alpha / s^{1/L}$", ylabel=r"$P(\alpha) / P(0)$", ylim=(0, None), legend="best")
    return figure
