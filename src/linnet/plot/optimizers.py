"""Figures of optimizers."""

import numpy as np
import xarray
from matplotlib.figure import Figure

from linnet.plot.style import NOISE, SIGNAL, TEST, THEORY, TRAIN, finish, panels, ramp
from linnet.theory import optimizers


def edge(data: xarray.Dataset, beta: float, lr: float) -> Figure:
    """A column for each optimizer: sharpness over its limit, and the loss."""
    limits = {
        "descent": r"$2/\eta$",
        "heavy ball": rf"$2(1+b)/\eta$, $b = {beta:g}$",
        "Nesterov": rf"$2(1+b)/((1+2b)\eta)$, $b = {beta:g}$",
        "Adam": rf"$38/\eta$, $\eta = {lr:g}$",
    }
    figure, grid = panels(14, 5.6, 2, len(limits), sharex=True, sharey="row", height_ratios=(1.5, 1))
    step = data["step"]
    for (above, below), (name, limit) in zip(grid.T, limits.items(), strict=True):
        label = "optimizer" if name == "descent" else None
        above.plot(step, data["sharpness"].sel(optimizer=name), color=SIGNAL, lw=1, label=label)
        if name in data["following"].values:
            above.plot(step, data["flow"].sel(following=name), color=NOISE, lw=1.4, ls="--", label="gradient flow")
        above.axhline(1, color=THEORY, lw=1, label="limit")
        finish(above, title=f"{name}: limit {limit}", title_size=10)
        below.plot(step, data["loss"].sel(optimizer=name), color=SIGNAL, lw=1)
        finish(below, log="y", xlabel="step", ylim=(1e-13, 3 * float(data["loss"].max())))
    limits_of_y = (0, 1.05 * float(data["sharpness"].max()))
    finish(grid[0, 0], ylabel="sharpness / limit", ylim=limits_of_y, legend="lower right", legend_size=8)
    grid[0, 3].set_ylabel(r"sharpness of $P^{-1/2} H P^{-1/2}$ / limit", fontsize=8)
    grid[1, 0].set_ylabel("loss")
    return figure


def decay(data: xarray.Dataset) -> Figure:
    """A panel for each depth: learned values over decay."""
    figure, (grid,) = panels(4.4 * data.sizes["depth"], 4.8, 1, data.sizes["depth"], sharey=True, squeeze=False)
    decays, targets = data["decay"].values, data["target"].values
    fine = np.linspace(0, decays[-1], 4001)
    colors = ramp(len(targets), 0.75)
    for axes, depth in zip(grid, data["depth"].values, strict=True):
        for color, s in zip(colors, targets, strict=True):
            part = data.sel(depth=depth, target=s)
            lowest, local = (
                np.asarray(optimizers.decayed_value(s, fine, int(depth), local=word)) for word in (False, True)
            )
            gone = (lowest == 0) & (depth > 2)  # two layers have no jump to leave out
            axes.plot(fine, np.where(gone, np.nan, lowest), color=color, lw=1.6, label=f"$s = {s:g}$")
            axes.plot(fine, np.where(gone, 0, np.nan), color=color, lw=1.6)
            axes.plot(fine, np.where(gone & (local > 0), local, np.nan), color=color, lw=1.2, ls="--")
            large = part["large"].values
            lower = (part["saved"].values > 0) | (large < 0.01 * s) | (depth == 2)  # of two equal costs neither is
            axes.plot(decays[lower], large[lower], "o", color=color, ms=4)
            axes.plot(decays[~lower], large[~lower], "o", color=color, mfc="white", ms=4)
            axes.plot(decays, part["small"], "x", color=color, ms=7, mew=0.8)
        finish(axes, xlabel=r"decay $\mu$", title=f"{depth} layers")
    grid[0].set_ylabel(r"learned singular value $\sigma$")
    handles = grid[0].get_legend_handles_labels()[0]
    for label, style in (
        ("global minimum", {"lw": 1.6}),
        ("local minimum", {"lw": 1.2, "ls": "--"}),
        ("from the target", {"marker": "o", "ls": "", "ms": 4}),
        ("from the target, zero is lower", {"marker": "o", "ls": "", "ms": 4, "mfc": "white"}),
        ("from small weights", {"marker": "x", "ls": "", "ms": 7, "mew": 0.8}),
    ):
        handles += grid[0].plot([], [], color=THEORY, label=label, **style)
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    return figure


def noise(data: xarray.Dataset, curvature: float) -> Figure:
    """A panel for each momentum: the largest stable learning rate over the batch size, divided by that of all data."""
    figure, (grid,) = panels(5.2 * data.sizes["beta"], 4.6, 1, data.sizes["beta"], squeeze=False)
    styles = {
        "subset": ("fresh batches, no sample twice", SIGNAL, "o", "-"),
        "replacement": ("fresh batches with replacement", TEST, "s", "-"),
        "shuffled": ("shuffled passes", TRAIN, "^", "--"),
    }
    for axes, beta in zip(grid, data["beta"].values, strict=True):
        whole = float(optimizers.largest_stable_lr(curvature, momentum=beta))
        for draw, (label, color, marker, line) in styles.items():
            part = data.sel(draw=draw, beta=beta)
            axes.plot(data["batch"], part["predicted"] / whole, color=color, lw=1.4, ls=line)
            bars = {"color": color, "marker": marker, "ms": 5, "ls": "", "capsize": 3, "label": label}
            axes.errorbar(data["batch"], part["measured"] / whole, part["error"] / whole, **bars)
        axes.axhline(1, color=NOISE, lw=1, ls=":")
        axes.set_xscale("log", base=2)
        axes.set_xticks(data["batch"].values, [f"{size}" for size in data["batch"].values])
        finish(axes, xlabel="samples in a batch", title=f"momentum $b = {beta:g}$", ylim=(0, None))
        axes.margins(x=0.05)
    grid[0].set_ylabel(r"largest stable $\eta$ / that of all samples")
    handles = grid[0].get_legend_handles_labels()[0]
    for label, line in (("formula", "-"), ("all orders", "--")):
        handles += grid[0].plot([], [], color=THEORY, lw=1.4, ls=line, label=label)
    figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False, fontsize=8)
    return figure
