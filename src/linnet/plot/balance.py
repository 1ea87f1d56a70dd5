"""Pictures of balance."""

import matplotlib as mpl
import numpy as np
import xarray
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from linnet.plot.style import NOISE, QUIET, SIGNAL, THEORY, TRAIN, canvas, tidy


def _colours(count: int) -> np.ndarray:
    return np.asarray(mpl.colormaps["viridis"](np.linspace(0, 0.85, count)))


def representations(data: xarray.Dataset) -> Figure:
    """A column for each lambda: entries of A in time, and both Gram matrices in the end."""
    lams = data["lam"].values
    figure = canvas(2.6 * len(lams), 7.4)
    panels = figure.subplots(3, len(lams), height_ratios=(1.25, 1, 1))
    for column, lam in enumerate(lams):
        part = data.sel(lam=lam)
        axes, time = panels[0, column], part["time"].values
        entries = part["closed"].values.reshape(len(time), -1)
        axes.plot(time, entries, color=SIGNAL, lw=2.6, alpha=0.4)
        axes.plot(time, part["simulated"].values.reshape(len(time), -1), color=THEORY, lw=0.8, ls="--")
        axes.set(xlabel="time $t$", title=rf"$\lambda = {lam:g}$" + f"\nkernel moves by {float(part['drift'][-1]):.2g}")
        axes.set_ylim(1.15 * float(data["closed"].min()), 1.15 * float(data["closed"].max()))
        tidy(axes)
        for row, name in ((1, "inputs"), (2, "outputs")):
            gram = part[name].values
            top = np.abs(gram).max()
            panels[row, column].imshow(gram, cmap="RdBu_r", vmin=-top, vmax=top)
            panels[row, column].set(xticks=[], yticks=[])
            panels[row, column].set_xlabel(f"up to {top:.2g}", fontsize=8, color=NOISE)
    panels[0, 0].set_ylabel("entries of $A$")
    panels[1, 0].set_ylabel("inputs, $C_1 = W_1^T W_1$\nin the end")
    panels[2, 0].set_ylabel("outputs, $C_2 = W_2 W_2^T$\nin the end")
    lines = [
        panels[0, 0].plot([], [], color=SIGNAL, lw=2.6, alpha=0.4, label="closed form")[0],
        panels[0, 0].plot([], [], color=THEORY, lw=0.8, ls="--", label="layers, simulated")[0],
    ]
    figure.legend(handles=lines, loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return figure


def change_of_task(data: xarray.Dataset, left: float, slowest: float) -> Figure:
    """Loss after the change, and when the new task is learned, over lambda."""
    figure = canvas(12.5, 4.2)
    panels = figure.subplots(1, 3)
    for axes, (task, title) in zip(
        panels, (("reversal", "Reversal: now $-Y$"), ("transfer", "Transfer: other vectors, same values")), strict=False
    ):
        for colour, lam in zip(_colours(data.sizes["lam"]), data["lam"].values, strict=True):
            curve = data["loss"].sel(task=task, lam=lam)
            axes.plot(data["time"], curve, color=colour, lw=2.4, alpha=0.6, label=rf"$\lambda = {lam:g}$")
            if lam in data["shown"].values:
                axes.plot(data["few"], data["simulated"].sel(task=task, shown=lam), "o", color=colour, ms=3)
        axes.set(xlabel="time since the change", ylabel="loss", title=title)
        axes.set_yscale("symlog", linthresh=1e-2)
        axes.set_ylim(0, 1.3 * float(data["loss"].max()))
        tidy(axes)
    panels[1].set_xlim(0, 0.25 * float(data["time"][-1]))
    panels[1].plot([], [], "o", color=THEORY, ms=3, label="layers, simulated")
    panels[1].legend(frameon=False, fontsize=8, loc="upper right")
    lams, last = data["imbalance"].values, panels[2]
    for task, colour in (("reversal", SIGNAL), ("transfer", TRAIN)):
        last.plot(lams, data["learned"].sel(task=task), color=colour, lw=2.4, alpha=0.7, label=task)
    small = lams < 0.1
    last.plot(
        lams[small], np.log(1 / lams[small]) / slowest, color=THEORY, lw=1, ls="--", label=r"$\ln(1/\lambda)/s_{min}$"
    )
    large = lams > 1
    last.plot(
        lams[large],
        np.log(1 / np.sqrt(left)) / lams[large],
        color=THEORY,
        lw=1,
        ls=":",
        label=r"lazy, $\propto 1/\lambda$",
    )
    last.set(
        xlabel=r"imbalance $\lambda$", ylabel=f"time to {left:.0%} of the loss", title="When the new task is learned"
    )
    last.set_xscale("log")
    last.set_yscale("log")
    tidy(last)
    last.legend(frameon=False, fontsize=8, loc="lower left")
    return figure


def one_neuron(data: xarray.Dataset) -> Figure:
    """Above the plane of the two weights with its basins, below the roads of what the neuron computes."""
    columns = max(data.sizes["ratio"], data.sizes["lam"])
    figure = canvas(3.9 * columns, 7.6)
    panels = figure.subplots(2, columns, squeeze=False)
    axis = data["first"].values
    edge = axis[-1]
    for axes, ratio in zip(panels[0], data["ratio"].values, strict=False):
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
        starts = np.stack(np.meshgrid(axis[chosen], axis[chosen], indexing="ij"), axis=-1).reshape(-1, 2)
        stops = end[chosen, chosen].reshape(-1, 2)
        for start, stop in zip(starts, stops, strict=True):
            axes.plot(*_hyperbola(start, stop, float(ratio)), color=TRAIN, lw=0.8)
            axes.plot(*start, "o", color=TRAIN, ms=2)
        axes.set(xlim=(-edge, edge), ylim=(-edge, edge), xlabel="$w$", ylabel="$a$")
        axes.set_title(rf"$\eta_1/\eta_2 = {ratio:g}$")
    for axes, lam in zip(panels[1], data["lam"].values, strict=False):
        for road in data["road"].sel(lam=lam).values:
            axes.plot(*road.T, color=SIGNAL, lw=1.2, alpha=0.8)
            axes.plot(*road[0], "o", color=NOISE, ms=3)
        axes.plot(1.0, 0.0, "*", color=THEORY, ms=10)
        axes.plot(0.0, 0.0, "+", color=THEORY, ms=8)
        axes.set(xlabel="first input", ylabel="second input", xlim=(-0.9, 1.2), ylim=(-0.9, 0.9), aspect="equal")
        axes.set_title(rf"what it computes, $\lambda = {lam:g}$")
        tidy(axes)
    for row, used in zip(panels, (data.sizes["ratio"], data.sizes["lam"]), strict=True):
        for axes in row[used:]:
            axes.set_visible(False)
    return figure


def _hyperbola(start: np.ndarray, stop: np.ndarray, ratio: float) -> np.ndarray:
    """The road between two points with the same a^2 g^2 - w^2/g^2, g = ratio^{1/4}."""
    g = ratio**0.25
    (w, a), (w1, a1) = start / g * [1, g * g], stop / g * [1, g * g]
    if abs(a * a - w * w) < 1e-9:  # two straight lines, through zero if the side changes
        return np.stack([np.linspace(w, w1, 50) * g, np.linspace(a, a1, 50) / g])
    if a * a > w * w:
        x = np.linspace(w, w1, 50)
        y = np.sign(a) * np.sqrt(np.maximum(a * a - w * w + x * x, 0))
    else:
        y = np.linspace(a, a1, 50)
        x = np.sign(w) * np.sqrt(np.maximum(w * w - a * a + y * y, 0))
    return np.stack([x * g, y / g])
