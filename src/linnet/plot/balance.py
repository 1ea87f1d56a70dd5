"""Figures of balance."""

from typing import Any

import numpy as np
import xarray
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from linnet.plot.style import NOISE, QUIET, SIGNAL, THEORY, TRAIN, finish, panels, ramp


def qqt(data: xarray.Dataset) -> Figure:
    """A column for each lambda: entries of A in time, and both Gram matrices at the end."""
    lams = data["lam"].values
    figure, grid = panels(2.6 * len(lams), 7.4, 3, len(lams), height_ratios=(1.25, 1, 1))
    lines = ({"color": SIGNAL, "lw": 2.6, "alpha": 0.4}, {"color": THEORY, "lw": 0.8, "ls": "--"})
    for column, lam in zip(grid.T, lams, strict=True):
        part = data.sel(lam=lam)
        time = part["time"].values
        for name, style in zip(("closed", "simulated"), lines, strict=True):
            column[0].plot(time, part[name].values.reshape(len(time), -1), **style)
        finish(
            column[0],
            xlabel="time $t$",
            title=rf"$\lambda = {lam:g}$" + f"\nkernel moves by {float(part['drift'][-1]):.2g}",
            ylim=(1.15 * float(data["closed"].min()), 1.15 * float(data["closed"].max())),
        )
        for axes, name in zip(column[1:], ("inputs", "outputs"), strict=True):
            gram = part[name].values
            top = np.abs(gram).max()
            axes.imshow(gram, cmap="RdBu_r", vmin=-top, vmax=top)
            axes.set(xticks=[], yticks=[])
            axes.set_xlabel(f"up to {top:.2g}", fontsize=8, color=NOISE)
    grid[0, 0].set_ylabel("entries of $A$")
    grid[1, 0].set_ylabel("inputs, $C_1 = W_1^T W_1$\nin the end")
    grid[2, 0].set_ylabel("outputs, $C_2 = W_2 W_2^T$\nin the end")
    names = ("closed form", "layers, simulated")
    handles = [grid[0, 0].plot([], [], label=name, **style)[0] for name, style in zip(names, lines, strict=True)]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return figure


def reversal(data: xarray.Dataset, left: float, slowest: float) -> Figure:
    """Loss after the change, and when the new task is learned, over lambda."""
    figure, (first, second, last) = panels(12.5, 4.2, 1, 3)
    titles = {"reversal": "Reversal: now $-Y$", "transfer": "Transfer: other vectors, same values"}
    for axes, (task, title) in zip((first, second), titles.items(), strict=True):
        for color, lam in zip(ramp(data.sizes["lam"]), data["lam"].values, strict=True):
            curve = data["loss"].sel(task=task, lam=lam)
            axes.plot(data["time"], curve, color=color, lw=2.4, alpha=0.6, label=rf"$\lambda = {lam:g}$")
            if lam in data["shown"].values:
                axes.plot(data["few"], data["simulated"].sel(task=task, shown=lam), "o", color=color, ms=3)
        axes.set_yscale("symlog", linthresh=1e-2)
        limits = (0, 1.3 * float(data["loss"].max()))
        finish(axes, xlabel="time since the change", ylabel="loss", title=title, ylim=limits)
    second.plot([], [], "o", color=THEORY, ms=3, label="layers, simulated")
    finish(second, xlim=(0, 0.25 * float(data["time"][-1])), legend="upper right", legend_size=8)
    lams = data["imbalance"].values
    for task, color in (("reversal", SIGNAL), ("transfer", TRAIN)):
        last.plot(lams, data["learned"].sel(task=task), color=color, lw=2.4, alpha=0.7, label=task)
    small, large = lams[lams < 0.1], lams[lams > 1]
    last.plot(small, np.log(1 / small) / slowest, color=THEORY, lw=1, ls="--", label=r"$\ln(1/\lambda)/s_{min}$")
    lazy = np.log(1 / np.sqrt(left)) / large
    last.plot(large, lazy, color=THEORY, lw=1, ls=":", label=r"lazy, $\propto 1/\lambda$")
    finish(
        last,
        xlabel=r"imbalance $\lambda$",
        ylabel=f"time to {left:.0%} of the loss",
        title="When the new task is learned",
        log="xy",
        legend="lower left",
        legend_size=8,
    )
    return figure


def neuron(data: xarray.Dataset) -> Figure:
    """Above the plane of the two weights with its basins, below the paths of the vector that the neuron computes."""
    columns = max(data.sizes["ratio"], data.sizes["lam"])
    figure, grid = panels(3.9 * columns, 7.6, 2, columns, squeeze=False)
    axis = data["first"].values
    edge = axis[-1]
    for axes, ratio in zip(grid[0], data["ratio"].values, strict=False):
        end = data["end"].sel(ratio=ratio).values
        axes.imshow(
            np.sign(end[..., 0]).T,
            origin="lower",
            extent=(-edge, edge, -edge, edge),
            cmap=ListedColormap([QUIET, SIGNAL]),
            alpha=0.35,
            interpolation="nearest",
            aspect="equal",
        )
        for sign in (1, -1):
            w = sign * np.linspace(1 / edge, edge, 100)
            axes.plot(w, 1 / w, color=THEORY, lw=2)
        line = np.array([-edge, edge])
        axes.plot(line, -line / np.sqrt(ratio), color=THEORY, lw=1, ls="--")
        chosen = slice(len(axis) // 10, None, max(1, len(axis) // 5))
        initial_points = np.stack(np.meshgrid(axis[chosen], axis[chosen], indexing="ij"), axis=-1).reshape(-1, 2)
        final_points = end[chosen, chosen].reshape(-1, 2)
        for initial, final in zip(initial_points, final_points, strict=True):
            axes.plot(*_hyperbola(initial, final, float(ratio)), color=TRAIN, lw=0.8)
            axes.plot(*initial, "o", color=TRAIN, ms=2)
        axes.set(xlim=(-edge, edge), ylim=(-edge, edge), xlabel="$w$", ylabel="$a$")
        axes.set_title(rf"$\eta_1/\eta_2 = {ratio:g}$")
    for axes, lam in zip(grid[1], data["lam"].values, strict=False):
        for path in data["trajectory"].sel(lam=lam).values:
            axes.plot(*path.T, color=SIGNAL, lw=1.2, alpha=0.8)
            axes.plot(*path[0], "o", color=NOISE, ms=3)
        axes.plot(1.0, 0.0, "*", color=THEORY, ms=10)
        axes.plot(0.0, 0.0, "+", color=THEORY, ms=8)
        limits: dict[str, Any] = {"xlim": (-0.9, 1.2), "ylim": (-0.9, 0.9), "aspect": "equal"}
        title = rf"what it computes, $\lambda = {lam:g}$"
        finish(axes, xlabel="first input", ylabel="second input", title=title, **limits)
    for row, used in zip(grid, (data.sizes["ratio"], data.sizes["lam"]), strict=True):
        for axes in row[used:]:
            axes.set_visible(False)
    return figure


def _hyperbola(initial: np.ndarray, final: np.ndarray, ratio: float) -> np.ndarray:
    """The curve between two points with the same a^2 g^2 - w^2/g^2, g = ratio^{1/4}."""
    g = ratio**0.25
    (w, a), (w1, a1) = initial / g * [1, g * g], final / g * [1, g * g]
    if abs(a * a - w * w) < 1e-9:  # two straight lines, through zero if the side changes
        return np.stack([np.linspace(w, w1, 50) * g, np.linspace(a, a1, 50) / g])
    if a * a > w * w:
        x = np.linspace(w, w1, 50)
        y = np.sign(a) * np.sqrt(np.maximum(a * a - w * w + x * x, 0))
    else:
        y = np.linspace(a, a1, 50)
        x = np.sign(w) * np.sqrt(np.maximum(w * w - a * a + y * y, 0))
    return np.stack([x * g, y / g])
