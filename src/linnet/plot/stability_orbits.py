"""Figures of the orbits of the first mode."""

import matplotlib as mpl
import numpy as np
import xarray
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from linnet.plot.style import MODES, NOISE, QUIET, SIGNAL, TEST, THEORY, TRAIN, finish, panels
from linnet.theory import stability


def fig1(data: xarray.Dataset, depth: int, edge: float) -> Figure:
    """The orbit of every mode by learning rate, and the curvature along it; dotted where the period doubles."""
    figure, (left, right) = panels(13, 5.2, 1, 2)
    kappa = data["kappa"].values
    fine = {"ls": "", "marker": ".", "ms": 1.3, "mew": 0, "rasterized": True}
    for i in range(data.sizes["mode"]):
        left.plot(kappa, data["modes"].values[:, :, i], color=MODES[i % 4], **fine)
        left.plot([], [], color=MODES[i % 4], ls="", marker="o", ms=4, label=f"mode {i + 1}")
    for tested, orbit in zip(data["tested"].values, data["matrices"].values[:, :, 0], strict=True):
        left.plot(np.full(len(orbit), tested), orbit, "x", color=THEORY, ms=4, mew=0.8)
    left.plot([], [], "x", color=THEORY, ms=4, mew=0.8, label="matrices, mode 1")
    right.plot(kappa, data["curvature"].values, color=SIGNAL, **fine)
    right.plot(kappa, data["sharpness"].values, color=TRAIN, **(fine | {"ms": 2.2}))
    right.plot(kappa, 2 * edge / kappa, color=THEORY, lw=1.2, ls="--", label=r"$2/\eta$")
    right.plot([], [], color=TRAIN, ls="", marker="o", ms=4, label="sharpness of the network")
    right.plot([], [], color=SIGNAL, ls="", marker="o", ms=4, label="curvature along mode 1")
    table = stability.stages(depth)
    marks = {"period 2": 2.0, "period 4": table.doublings[1], "period 8": table.doublings[2]}
    for axes in (left, right):
        for name, place in (marks | {"chaos": table.accumulation}).items():
            if kappa[0] < place < kappa[-1]:
                axes.axvline(place, color=THEORY, lw=0.7, ls=":")
                side, offset = ("left", 2) if name == "chaos" else ("right", -1)
                axes.annotate(
                    name,
                    (place, 0.985),
                    (offset, 0),
                    xycoords=("data", "axes fraction"),
                    textcoords="offset points",
                    fontsize=8,
                    rotation=90,
                    ha=side,
                    va="top",
                )
        top = axes.secondary_xaxis("top", functions=(lambda k: k / edge / 2, lambda lr: 2 * edge * lr))
        top.set_xlabel(r"$\eta / 2$, as printed in the paper", fontsize=9)
        top.tick_params(labelsize=8)
    finish((left, right), xlabel=r"learning rate $\kappa = \eta S$")
    legend = {"loc": "lower left", "bbox_to_anchor": (0.0, 0.0), "ncol": 2}
    finish(left, ylabel=r"modes $u_i^T A\, v_i$", title="Modes", legend=legend)
    legend = {"loc": "upper left", "bbox_to_anchor": (0.0, 0.8)}
    finish(right, ylabel="eigenvalues of the Hessian", title="Curvature along the orbit", legend=legend)
    return figure


def fig6(data: xarray.Dataset, s: float) -> Figure:
    """The range of the first mode by learning rate, and its onset on logarithmic axes."""
    figure, (left, right) = panels(11, 4.4, 1, 2, width_ratios=(1.6, 1))
    for color, depth in zip((*MODES, THEORY), data["depth"].values, strict=False):
        run = data.sel(depth=depth)
        every = slice(None, None, max(1, data.sizes["kappa"] // 40))
        kappa, exact = data["kappa"].values, run["exact"].values / s
        edge = int(np.searchsorted(kappa, 2.0))  # left out of the runs
        curve = np.insert(kappa, edge, 2.0), np.insert(exact, edge, 0.0)
        left.plot(*curve, color=color, lw=1.4, label=f"{depth} layers: exact 2-cycle")
        left.plot(data["kappa"][every], run["range"][every] / s, "o", color=color, ms=3.5, mew=0)
        left.plot(data["kappa"], run["printed"] / s, color=color, lw=1, ls=":")
        right.plot(data["near"] - 2, run["onset"] / s, "o", color=color, ms=4, mew=0)
        right.plot(data["near"] - 2, run["law"] / s, color=color, lw=1.2)
    left.plot([], [], "o", color=NOISE, ms=3.5, mew=0, label="descent")
    left.plot([], [], color=NOISE, lw=1, ls=":", label="equation as printed")
    finish(
        left,
        xlabel=r"learning rate $\kappa = \eta S$",
        ylabel="range of the first mode / $s$",
        title="Range of the orbit",
        legend={"loc": "center left", "bbox_to_anchor": (0.0, 0.55)},
    )
    finish(right, log="xy", xlabel=r"$\kappa - 2$", title="Onset: the square-root law (lines)")
    return figure


def fig16(data: xarray.Dataset, s: float) -> Figure:
    """What every learning rate does at every depth, with the predicted boundary."""
    figure, axes = panels(8.5, 4.4)
    names = ("at rest", "oscillates", "still at the saddle", "diverged")
    colors = (THEORY, "#f8fafc", SIGNAL, TEST)
    lr, depths = data["lr"].values, data["depth"].values
    half = (lr[1] - lr[0]) / 2
    axes.pcolormesh(
        np.append(lr - half, lr[-1] + half),
        np.arange(len(depths) + 1) - 0.5,
        data["kind"].values,
        cmap=mpl.colors.ListedColormap(list(colors)),
        vmin=-0.5,
        vmax=3.5,
    )
    for i, edge in enumerate(data["boundary"].values):
        axes.plot([edge, edge], [i - 0.5, i + 0.5], color=SIGNAL, lw=2)
        axes.text(edge + 2 * half, i, f"{edge:.5g}", color=SIGNAL, fontsize=9, va="center")
    axes.set_yticks(range(len(depths)), [f"{depth}" for depth in depths])
    axes.set(xlabel="learning rate", ylabel="layers", title=f"First mode, s = {s:g}; line: $2/(L s^{{2-2/L}})$")
    present = np.unique(data["kind"].values)
    handles = [Patch(facecolor=colors[k], edgecolor=QUIET, label=names[k]) for k in present]
    axes.legend(handles=handles, frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure
