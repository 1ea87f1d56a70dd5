"""Pictures of non-local convergence."""

import math
from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
import xarray
from matplotlib.figure import Figure

from linnet.plot.style import NOISE, SIGNAL, THEORY, canvas, tidy
from linnet.predict.rates import RatesMeasured, RatesPrediction


def _colours(count: int) -> np.ndarray:
    return np.asarray(mpl.colormaps["viridis"](np.linspace(0, 0.85, count)))


def depths(data: xarray.Dataset) -> Figure:
    """|A - Z| in time for every depth: the whole run, and its first part, where the order is the other way round."""
    figure = canvas(11, 4.4)
    whole, early = figure.subplots(1, 2)
    part = data.isel(problem=0)
    time = part["time"].values
    for colour, depth in zip(_colours(data.sizes["depth"]), data["depth"].values, strict=True):
        run = part.sel(depth=depth)
        for axes in (whole, early):
            axes.plot(time, run["exact"], color=colour, lw=3, alpha=0.4)
            axes.plot(time, run["distance"], color=colour, lw=1.2, ls="--", label=f"{depth} layers")
    for axes, end, title in ((whole, time[-1], "The whole run"), (early, 0.12 * time[-1], "Its beginning")):
        inside = part["distance"].values[:, time <= end]
        axes.set_yscale("log")
        axes.set(xlabel="time $t$", title=title, xlim=(0, end), ylim=(0.9 * inside.min(), 1.1 * inside.max()))
        tidy(axes)
    whole.set_ylabel(rf"$|A - Z|$,  $|Z| = {float(part['z1']):.2f}$")
    whole.plot([], [], color=THEORY, lw=3, alpha=0.4, label="exact flow")
    whole.legend(frameon=False, fontsize=9)
    return figure


def flow(said: RatesPrediction, seen: RatesMeasured | None = None) -> Figure:
    """Distance to the target and size of A in closed form, with the exact run if there is one."""
    figure = canvas(10, 4)
    left, right = figure.subplots(1, 2)
    time, distance, size = said.curves()
    left.plot(time, distance, color=SIGNAL, lw=3, alpha=0.45, label="closed form")
    right.plot(time, size, color=SIGNAL, lw=3, alpha=0.45)
    if seen is not None:
        left.plot(seen.curves.time, seen.curves.distance, color=THEORY, lw=1.1, ls="--", label="exact flow of layers")
        right.plot(seen.curves.time, seen.curves.size, color=THEORY, lw=1.1, ls="--")
    if said.near_rate is not None and math.isfinite(said.learned.time):
        law = distance[-1] * np.exp(said.near_rate * (time[-1] - time))
        late = (time >= 0.5 * said.learned.time) & (law <= distance.max())
        left.plot(time[late], law[late], color=THEORY, lw=1, ls=":", label=f"rate in the end, {said.near_rate:.3g}")
    left.set(xlabel="time of gradient flow", ylabel=r"$|A - Z_1| / |Z_1|$", title=f"{said.depth} layers")
    left.set_yscale("log")
    left.legend(frameon=False, fontsize=9)
    right.axhline(1.0, color=THEORY, lw=0.9, ls=":", label="target")
    for when, style, label in (
        (said.escape, ":", "escape, law of small starts"),
        (said.half_grown, "--", "half grown"),
        (said.far_phase_ends if said.far_phase_ends.time else None, "--", "far phase ends"),
    ):
        if when is not None and when.time <= time[-1]:
            right.axvline(when.time, color=NOISE, lw=1, ls=style, label=label)
    right.set(xlabel="time of gradient flow", ylabel="$s / z_1$", title="Size of the end-to-end matrix")
    if said.far_phase_ends.time:
        right.set_yscale("log")
    place = "best"
    if said.half_grown is not None:  # before the curve rises, or below its end
        place = "center left" if said.half_grown.time > 0.5 * time[-1] else "lower right"
    right.legend(facecolor="white", edgecolor="none", framealpha=0.9, fontsize=9, loc=place)
    for axes in (left, right):
        tidy(axes)
    return figure


def rates(data: xarray.Dataset, start: float, target: float) -> Figure:
    """|A - Z| / |Z| to the end for each size of the target, and how long the far phase of a small one takes."""
    sizes = data["size"].values
    figure = canvas(3.4 * (len(sizes) + 1), 4)
    panels = figure.subplots(1, len(sizes) + 1)
    colours = _colours(data.sizes["depth"])
    for axes, size in zip(panels, sizes, strict=False):
        for colour, depth in zip(colours, data["depth"].values, strict=True):
            run = data.sel(size=size, depth=depth)
            axes.plot(run["time"], run["distance"], color=colour, lw=1.8, label=f"{depth} layers")
        axes.set_yscale("log")
        word = "slower with depth" if size < 1 else "faster with depth" if size > 1 else "depth changes nothing"
        axes.set(
            xlabel="time $t$",
            title=f"|Z| = {size:g}: {word}",
            xlim=(0, float(data["time"].sel(size=size).min("depth")[-1])),
        )
        tidy(axes)
    panels[0].set_ylabel("$|A - Z| / |Z|$")
    panels[0].legend(frameon=False, fontsize=9)
    last = panels[-1]
    last.plot(data["far_depth"], data["transition"], "o-", color=SIGNAL, lw=1.8)
    last.set(
        xlabel="layers",
        ylabel=r"time until $s = \sqrt{6}\,|Z|$",
        title=f"Far phase, from {start:g} to |Z| = {target:g}",
        ylim=(0, None),
    )
    tidy(last)
    return figure


def peeling(data: xarray.Dataset, spectrum: Sequence[float]) -> Figure:
    """Modes in time from the smallest and the largest start, and the distances to the best matrices of each rank."""
    shown = data.isel(draw=0).sel(depth=data["depth"].values[-1])
    figure = canvas(11, 6.6)
    panels = figure.subplots(2, 2, sharex="col")
    time = data["time"].values
    seen = time > 0
    modes, ranks = _colours(data.sizes["mode"]), _colours(data.sizes["rank"])
    for row, place in zip(panels, (0, -1), strict=True):
        run = shown.isel(start=place)
        begin = float(run["start"])
        for colour, i in zip(modes, range(data.sizes["mode"]), strict=True):
            row[0].plot(time[seen], run["modes"].values[seen, i], color=colour, lw=1.8)
            row[0].axhline(spectrum[i], color=colour, lw=0.7, ls=":")
        for colour, r in zip(ranks, data["rank"].values, strict=True):
            row[1].plot(
                time[seen], run["approach"].sel(rank=r).values[seen], color=colour, lw=1.8, label=f"of rank {r}"
            )
        row[0].set(xscale="log", ylabel="modes $u_i^T A\\, v_i$", title=f"Start of size {begin:g}: modes")
        row[1].set(
            xscale="log", ylabel="relative distance", title=f"Start of size {begin:g}: distance to the best matrix"
        )
        row[1].set_yscale("log")
        row[1].set_ylim(bottom=1e-5)
        for axes in row:
            tidy(axes)
    panels[0, 1].legend(frameon=False, fontsize=9, loc="lower left")
    panels[0, 0].plot([], [], color=THEORY, lw=0.7, ls=":", label="modes of the target")
    panels[0, 0].legend(frameon=False, fontsize=9, loc="center left")
    for axes in panels[1]:
        axes.set_xlabel(f"time $t$  ({int(shown['depth'])} layers)")
    return figure
