"""Pictures of descent beyond the edge of stability."""

from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from linnet.plot.style import NOISE, SIGNAL, TEST, THEORY, TRAIN, canvas, tidy

MODES = (SIGNAL, TRAIN, TEST, NOISE)


def cascade(data: xarray.Dataset, marks: Mapping[str, float], edge: float) -> Figure:
    """The orbit of every mode by step size, and the curvature along it; dotted where the period doubles."""
    figure = canvas(13, 5.2)
    left, right = figure.subplots(1, 2)
    kappa = data["kappa"].values
    fine = {"ls": "", "marker": ".", "ms": 1.3, "mew": 0, "rasterized": True}
    points = data["modes"].values
    for i in range(data.sizes["mode"]):
        left.plot(kappa, points[:, :, i], color=MODES[i % 4], **fine)
        left.plot([], [], color=MODES[i % 4], ls="", marker="o", ms=4, label=f"mode {i + 1}")
    for tested, orbit in zip(data["tested"].values, data["matrices"].values[:, :, 0], strict=True):
        left.plot(np.full(len(orbit), tested), orbit, "x", color=THEORY, ms=4, mew=0.8)
    left.plot([], [], "x", color=THEORY, ms=4, mew=0.8, label="matrices, mode 1")
    left.set(ylabel=r"modes $u_i^T A\, v_i$", title="Modes")
    right.plot(kappa, data["curvature"].values, color=SIGNAL, **fine)
    right.plot(kappa, data["sharpness"].values, color=TRAIN, **(fine | {"ms": 2.2}))
    right.plot(kappa, 2 * edge / kappa, color=THEORY, lw=1.2, ls="--", label=r"$2/\eta$")
    right.plot([], [], color=TRAIN, ls="", marker="o", ms=4, label="sharpness of the network")
    right.plot([], [], color=SIGNAL, ls="", marker="o", ms=4, label="curvature along mode 1")
    right.set(ylabel="eigenvalues of the Hessian", title="Curvature along the orbit")
    for axes in (left, right):
        tidy(axes)
        for name, place in marks.items():
            if kappa[0] < place < kappa[-1]:
                axes.axvline(place, color=THEORY, lw=0.7, ls=":")
                side = ("left", 2) if name == "chaos" else ("right", -1)
                axes.annotate(
                    name,
                    (place, 0.985),
                    (side[1], 0),
                    xycoords=("data", "axes fraction"),
                    textcoords="offset points",
                    fontsize=8,
                    rotation=90,
                    ha=side[0],
                    va="top",
                )
        axes.set_xlabel(r"step size $\kappa = \eta S$")
        top = axes.secondary_xaxis("top", functions=(lambda k: k / edge / 2, lambda lr: 2 * edge * lr))
        top.set_xlabel(r"$\eta / 2$, as printed in the paper", fontsize=9)
        top.tick_params(labelsize=8)
    left.legend(frameon=False, fontsize=9, loc="lower left", bbox_to_anchor=(0.0, 0.0), ncol=2)
    right.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(0.0, 0.8))
    return figure


def sharpening(data: xarray.Dataset, level: float) -> Figure:
    """Loss and sharpness in time, and the last steps of the sharpness."""
    figure = canvas(13, 4.2)
    left, middle, right = figure.subplots(1, 3)
    step, sharpness = data["step"].values, data["sharpness"].values
    left.plot(step, data["loss"], color=TRAIN, lw=1)
    left.set(xlabel="step", ylabel=r"loss $\frac{1}{2}|A - A_\star|^2$", title="Loss")
    left.set_yscale("log")
    middle.plot(step, sharpness, color=SIGNAL, lw=0.8)
    middle.plot(data["seen"], data["dense"], "x", color=THEORY, ms=4, mew=0.9, label="dense Hessian of matrices")
    middle.set(xlabel="step", ylabel="sharpness", title="Sharpness: climbs, then alternates")
    last = slice(-24, None)
    right.plot(step[last], sharpness[last], "o-", color=SIGNAL, lw=1, ms=4, label="sharpness")
    mean = sharpness[-2:].mean()
    right.axhline(mean, color=SIGNAL, lw=1, ls=":", label=f"its mean, {mean:.2f}")
    right.set(xlabel="step", title="The last steps")
    for axes in (middle, right):
        axes.axhline(level, color=THEORY, lw=1.2, ls="--", label=rf"$2/\eta = {level:.2f}$")
    middle.legend(frameon=False, fontsize=9, loc="lower right", bbox_to_anchor=(1.0, 0.2))
    right.set_ylim(top=sharpness.max() + 0.3 * np.ptp(sharpness[last]))
    right.legend(frameon=False, fontsize=9, loc="upper right")
    for axes in (left, middle, right):
        tidy(axes)
    return figure


def vectors(data: xarray.Dataset, spectrum: Sequence[float]) -> Figure:
    """Modes, overlaps of singular vectors, and the last steps in the order of the values; a column a step size."""
    figure = canvas(4.3 * data.sizes["kappa"], 8.4)
    panels = figure.subplots(3, data.sizes["kappa"], sharey="row", squeeze=False)
    step, last = data["step"].values, slice(-20, None)
    for column, kappa in zip(panels.T, data["kappa"].values, strict=True):
        run = data.sel(kappa=kappa)
        for i in range(data.sizes["mode"]):
            colour, away = MODES[i % 4], 1 - run["overlap"].values[:, i]
            column[0].plot(step, run["modes"][:, i], color=colour, lw=0.8)
            column[1].plot(step, np.maximum(away, 1e-17), ".", color=colour, ms=2, mew=0, rasterized=True)
            column[2].plot(step[last], run["overlap"][last, i], color=colour, lw=1.5)
            column[2].plot(step[last], run["in_order"][last, i], "o", mfc="none", mec=colour, ms=4 + 2.5 * i)
        word = "below" if kappa < 2 else "beyond"
        column[0].set_title(rf"$\kappa = {kappa:g}$, {word} the edge")
        column[1].set_yscale("log")
        column[1].set(xlabel="step", ylim=(5e-18, 1e-9))
        column[1].axhline(1e-12, color=THEORY, lw=0.9, ls=":")
        column[2].set(xlabel="the last steps", ylim=(-0.08, 1.12))
        column[2].xaxis.set_major_locator(MaxNLocator(5, integer=True))
        for axes in column:
            tidy(axes)
    panels[0, 0].set_ylabel(r"modes $u_i^T A\, v_i$")
    panels[1, 0].set_ylabel("1 - overlap (zero shown as 1e-17)")
    panels[2, 0].set_ylabel("overlap, by mode and by order")
    for i in range(data.sizes["mode"]):
        panels[0, 0].plot([], [], color=MODES[i % 4], lw=2, label=f"mode {i + 1}, $s = {spectrum[i]:g}$")
    panels[2, 0].plot([], [], color=THEORY, lw=1.5, label="the same vector, wherever it is")
    panels[2, 0].plot([], [], "o", mfc="none", mec=THEORY, ms=5, label="first, second, third in order")
    panels[0, 0].set_ylim(top=1.4 * float(data["modes"].max()))
    panels[0, 0].legend(frameon=False, fontsize=9, loc="upper left", ncol=2)
    panels[2, 0].legend(frameon=False, fontsize=9, loc="center left")
    return figure


def gaps(data: xarray.Dataset, spectrum: Sequence[float], rate: float | None) -> Figure:
    """Gaps of the squared layer values in time, with the law of the 2-cycle, and the last steps of the modes."""
    figure = canvas(11, 4.4)
    left, right = figure.subplots(1, 2, width_ratios=(2, 1))
    step, gap = data["step"].values, data["gap"].values
    for i in range(data.sizes["mode"]):
        left.plot(step, data["direct"][:, i], color=MODES[i % 4], lw=0.5, alpha=0.5)
        left.plot(step, gap[:, i], color=MODES[i % 4], lw=2, label=f"mode {i + 1}, $s = {spectrum[i]:g}$")
        right.plot(step[-24:], data["modes"][-24:, i], "o-", color=MODES[i % 4], lw=1, ms=3)
    if rate is not None:
        middle = len(step) // 2
        law = gap[middle, 0] * np.exp(-rate * (step - middle))
        seen = law < gap[0, 0]
        left.plot(step[seen], law[seen], color=THEORY, lw=1.2, ls=":", label=r"$[(2-z)(2-1/z)]^{t/2}$, mode 1")
    left.plot([], [], color=NOISE, lw=0.5, label="direct differences")
    left.set(xlabel="step", ylabel=r"$|y_\ell^2 - y_L^2|$", title="Gaps between layers")
    left.set_yscale("log")
    left.set_ylim(bottom=max(1e-18, 0.3 * gap.min()))
    left.legend(frameon=False, fontsize=9, loc="lower left")
    right.set(xlabel="step", ylabel=r"modes $u_i^T A\, v_i$", title="The last steps: who oscillates")
    for axes in (left, right):
        tidy(axes)
    return figure


def amplitudes(data: xarray.Dataset, s: float) -> Figure:
    """The range of the first mode by step size, and its onset on logarithmic axes."""
    figure = canvas(11, 4.4)
    left, right = figure.subplots(1, 2, width_ratios=(1.6, 1))
    for colour, depth in zip((*MODES, THEORY), data["depth"].values, strict=False):
        run = data.sel(depth=depth)
        every = slice(None, None, max(1, data.sizes["kappa"] // 40))
        kappa, exact = data["kappa"].values, run["exact"].values / s
        edge = int(np.searchsorted(kappa, 2.0))  # left out of the runs
        curve = np.insert(kappa, edge, 2.0), np.insert(exact, edge, 0.0)
        left.plot(*curve, color=colour, lw=1.4, label=f"{depth} layers: exact 2-cycle")
        left.plot(data["kappa"][every], run["range"][every] / s, "o", color=colour, ms=3.5, mew=0)
        left.plot(data["kappa"], run["printed"] / s, color=colour, lw=1, ls=":")
        right.plot(data["near"] - 2, run["onset"] / s, "o", color=colour, ms=4, mew=0)
        right.plot(data["near"] - 2, run["law"] / s, color=colour, lw=1.2)
    left.plot([], [], "o", color=NOISE, ms=3.5, mew=0, label="descent")
    left.plot([], [], color=NOISE, lw=1, ls=":", label="equation as printed")
    left.set(xlabel=r"step size $\kappa = \eta S$", ylabel="range of the first mode / $s$", title="Range of the orbit")
    left.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(0.0, 0.55))
    right.set(xlabel=r"$\kappa - 2$", title="Onset: the square-root law (lines)")
    right.set_xscale("log")
    right.set_yscale("log")
    for axes in (left, right):
        tidy(axes)
    return figure


def plateaus(data: xarray.Dataset, edges: np.ndarray, level: float) -> Figure:
    """Sharpness in time for each target, against its plateau and 2/lr."""
    figure = canvas(11, 4.4)
    left, right = figure.subplots(1, 2, width_ratios=(2, 1), sharey=True)
    step = data["step"].values
    early = step <= 1200
    colours = mpl.colormaps["viridis"](np.linspace(0, 0.85, data.sizes["first"]))
    for colour, s, edge in zip(colours, data["first"].values, edges, strict=False):
        run = data["sharpness"].sel(first=s).values
        # the band of an oscillation must not cover what is at rest
        left.plot(
            step[early], run[early], color=colour, lw=1, zorder=3 - s / 1e6, label=f"$s_1 = {s:g}$, $S = {edge:.1f}$"
        )
        right.plot(step[-24:], run[-24:], "o-", color=colour, lw=1, ms=3)
        left.axhline(edge, color=colour, lw=0.8, ls=":")
    right.plot(step[-24:], data["alone"][-24:], ":", color=THEORY, lw=1, label="largest target, one mode alone")
    for axes in (left, right):
        axes.axhline(level, color=THEORY, lw=1.2, ls="--", zorder=4, label=rf"$2/\eta = {level:g}$")
        axes.set_xlabel("step")
        tidy(axes)
    left.set(ylabel="sharpness", title="Sharpness (dotted: $S$ of the target)")
    right.set_title("The last steps")
    left.legend(frameon=False, fontsize=9, loc="upper right", ncol=3)
    right.legend(frameon=False, fontsize=9, loc="upper right")
    low, high = left.get_ylim()
    left.set_ylim(low, high + 0.3 * (high - low))
    return figure


def sorting(data: xarray.Dataset, thresholds: Mapping[str, float]) -> Figure:
    """Modes and sorted values in the last steps for a few step sizes, and the range of both by step size."""
    count = data.sizes["shown"]
    figure = canvas(13, 7)
    grid = figure.add_gridspec(2, 2 * count, height_ratios=(1, 1.1))
    panels = [figure.add_subplot(grid[0, 2 * i : 2 * i + 2]) for i in range(count)]
    for axes, half in zip(panels, data["shown"].values, strict=True):
        run = data.sel(shown=half)
        time_modes(axes, np.arange(data.sizes["last"]), run["modes"].values, run["sorted"].values)
        axes.set(xlabel="last steps", title=rf"$\eta/2 = {half:g}$")
    panels[0].set_ylabel(r"modes (lines), sorted values (rings)")
    low, high = float(data["modes"].min()), float(data["modes"].max())
    for axes in panels:
        axes.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))
    left, right = figure.add_subplot(grid[1, :count]), figure.add_subplot(grid[1, count:])
    for axes, name, title in (
        (left, "range", "Range of the modes"),
        (right, "sorted_range", "Range of the sorted values"),
    ):
        axes.set_ylim(-0.2, 1.25 * float(data["range"].max()))
        for i in range(data.sizes["mode"]):
            what = "mode" if name == "range" else "sorted value"
            axes.plot(data["half"], data[name][:, i], color=MODES[i], lw=1.8, label=f"{what} {i + 1}")
        for label, style in (("2/S_1", ":"), ("2/λ_2", "--"), ("2/S_2", "-.")):
            axes.axvline(thresholds[label], color=THEORY, lw=0.9, ls=style, label=rf"$\eta = {_tex(label)}$")
        axes.set(xlabel=r"$\eta/2$, as printed in the paper", title=title)
        axes.legend(fontsize=9, loc="upper left", framealpha=1, edgecolor="none")
        tidy(axes)
    for i in (1, 2):
        right.plot(thresholds[f"sorted {i + 1}"], 0.0, "^", color=MODES[i], ms=7, zorder=3)
        right.plot([], [], "^", color=MODES[i], ms=6, label=f"mode 1 dips below mode {i + 1}")
    right.legend(fontsize=9, loc="upper left", framealpha=1, edgecolor="none", ncol=2)
    left.set_ylabel("highest minus lowest value")
    return figure


def _tex(label: str) -> str:
    return label.replace("λ", r"\lambda")


def time_modes(axes: Axes, step: np.ndarray, modes: np.ndarray, values: np.ndarray) -> None:
    """Modes as lines and sorted values as rings, in the colour of their place in the order."""
    for i in range(modes.shape[1]):
        axes.plot(step, modes[:, i], color=MODES[i % 4], lw=1.2)
        axes.plot(step, values[:, i], "o", mfc="none", mec=MODES[i % 4], mew=1.1, ms=5)
    tidy(axes)


def cross(data: xarray.Dataset, growth: Mapping[float, float]) -> Figure:
    """Matrix network, its sorted values, diagonal network and cross component, a column for each step size."""
    figure = canvas(4.4 * data.sizes["level"], 11)
    panels = figure.subplots(4, data.sizes["level"], sharey="row", squeeze=False)
    step = data["step"].values
    window = slice(960, 981)  # all modes learned, noise still small
    for column, level in zip(panels.T, data["level"].values, strict=True):
        here = data.sel(level=level)
        run = here.sel(target="double")
        for i in range(data.sizes["mode"]):
            column[0].plot(step, run["modes"][:, i], color=MODES[i % 4], lw=0.5, rasterized=True)
            column[2].plot(step, here["diagonal"][:, i], color=MODES[i % 4], lw=0.5, rasterized=True)
        time_modes(column[1], step[window], run["modes"].values[window], run["sorted"].values[window])
        column[1].xaxis.set_major_locator(MaxNLocator(integer=True))
        for name, colour in (("double", THEORY), ("single", NOISE)):
            seen = here.sel(target=name)["cross"].values
            column[3].plot(
                step, np.maximum(seen, 1e-18), color=colour, lw=0.8, label=f"{name} precision", rasterized=True
            )
        rate, noise = growth[float(level)], run["cross"].values
        if rate > 0 and np.any(noise > 1e-6):
            middle = int(np.argmax(noise > 1e-6))
            law = 1e-6 * np.exp(rate * (step - middle))
            part = (law > 1e-16) & (law < 1)
            column[3].plot(step[part], law[part], color=SIGNAL, lw=1.8, ls=":", label="predicted growth")
        column[3].set_yscale("log")
        column[3].set_ylim(1e-17, 30)
        place = (1.0, 0.75) if rate <= 0 else (1.0, 0.2)
        column[3].legend(frameon=False, fontsize=8, loc="center right", bbox_to_anchor=place)
        column[0].set_title(f"$K = {level:g}$: matrix network, modes", fontsize=11)
        column[1].set_title("the same: modes (lines), sorted values (rings)", fontsize=10)
        column[2].set_title("diagonal network", fontsize=10)
        column[3].set_title("cross component of modes 1 and 2", fontsize=10)
        column[3].set_xlabel("step")
        for axes in column:
            tidy(axes)
    for axes, label in zip(panels[:, 0], (r"$u_i^T A\, v_i$", "values", "coordinates", "size"), strict=True):
        axes.set_ylabel(label)
    return figure
