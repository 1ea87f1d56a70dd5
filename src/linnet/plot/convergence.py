"""Figures of non-local convergence."""

from collections.abc import Sequence

import xarray
from matplotlib.figure import Figure

from linnet.plot.style import SIGNAL, THEORY, finish, label_outer, panels, ramp


def fig1(data: xarray.Dataset) -> Figure:
    """|A - Z| in time for every depth: the whole run, and its first part, where the order is the other way round."""
    figure, (whole, early) = panels(11, 4.4, 1, 2)
    part = data.isel(problem=0)
    time = part["time"].values
    for color, depth in zip(ramp(data.sizes["depth"]), data["depth"].values, strict=True):
        run = part.sel(depth=depth)
        for axes in (whole, early):
            axes.plot(time, run["exact"], color=color, lw=3, alpha=0.4)
            axes.plot(time, run["distance"], color=color, lw=1.2, ls="--", label=f"{depth} layers")
    whole.plot([], [], color=THEORY, lw=3, alpha=0.4, label="exact flow")
    for axes, end, title in ((whole, time[-1], "The whole run"), (early, 0.12 * time[-1], "Its beginning")):
        inside = part["distance"].values[:, time <= end]
        limits = (0.9 * inside.min(), 1.1 * inside.max())
        finish(axes, log="y", xlabel="time $t$", title=title, xlim=(0, end), ylim=limits)
    finish(whole, ylabel=rf"$|A - Z|$,  $|Z| = {float(part['z1']):.2f}$", legend="best")
    return figure


def rates(data: xarray.Dataset, far_scale: float, far_target: float) -> Figure:
    """|A - Z| / |Z| to the end for each size of the target, and how long the far phase of a small one takes."""
    sizes = data["size"].values
    figure, (*grid, last) = panels(3.4 * (len(sizes) + 1), 4, 1, len(sizes) + 1)
    for axes, size in zip(grid, sizes, strict=True):
        for color, depth in zip(ramp(data.sizes["depth"]), data["depth"].values, strict=True):
            run = data.sel(size=size, depth=depth)
            axes.plot(run["time"], run["distance"], color=color, lw=1.8, label=f"{depth} layers")
        order = "slower with depth" if size < 1 else "faster with depth" if size > 1 else "depth changes nothing"
        end = float(data["time"].sel(size=size).min("depth")[-1])
        finish(axes, log="y", xlabel="time $t$", title=f"|Z| = {size:g}: {order}", xlim=(0, end))
    finish(grid[0], ylabel="$|A - Z| / |Z|$", legend="best")
    last.plot(data["far_depth"], data["transition"], "o-", color=SIGNAL, lw=1.8)
    finish(
        last,
        xlabel="layers",
        ylabel=r"time until $s = \sqrt{6}\,|Z|$",
        title=f"Far phase, from {far_scale:g} to |Z| = {far_target:g}",
        ylim=(0, None),
    )
    return figure


def peeling(data: xarray.Dataset, spectrum: Sequence[float]) -> Figure:
    """Modes in time from the smallest and the largest start, and the distances to the best matrices of each rank."""
    shown = data.isel(draw=0).sel(depth=data["depth"].values[-1])
    figure, grid = panels(11, 6.6, 2, 2, sharex="col")
    later = data["time"].values > 0
    time = data["time"].values[later]
    for row, place in zip(grid, (0, -1), strict=True):
        run = shown.isel(initialization=place)
        name = f"Initial size {float(run['initialization']):g}"
        for i, color in enumerate(ramp(data.sizes["mode"])):
            row[0].plot(time, run["modes"].values[later, i], color=color, lw=1.8)
            row[0].axhline(spectrum[i], color=color, lw=0.7, ls=":")
        for color, r in zip(ramp(data.sizes["rank"]), data["rank"].values, strict=True):
            row[1].plot(time, run["approach"].sel(rank=r).values[later], color=color, lw=1.8, label=f"of rank {r}")
        finish(row[0], log="x", ylabel="modes $u_i^T A\\, v_i$", title=f"{name}: modes")
        title = f"{name}: distance to the best matrix"
        finish(row[1], log="xy", ylabel="relative distance", title=title, ylim=(1e-5, None))
    grid[0, 0].plot([], [], color=THEORY, lw=0.7, ls=":", label="modes of the target")
    finish(grid[0, 0], legend="center left")
    finish(grid[0, 1], legend="lower left")
    label_outer(grid, xlabel=f"time $t$  ({int(shown['depth'])} layers)")
    return figure
