"""Figures of averages at the edge of stability."""

import xarray
from matplotlib.figure import Figure

from linnet.plot.style import NOISE, QUIET, SIGNAL, TEST, THEORY, TRAIN, finish, panels

_STYLES = {
    "descent": ("descent", THEORY, "-"),
    "central": ("central flow", TRAIN, "-"),
    "rod": ("rod", SIGNAL, "--"),
    "stable": ("gradient flow", NOISE, ":"),
}


def edge(data: xarray.Dataset, mean_losses: xarray.DataArray, lr: float) -> Figure:
    """Loss, sharpness, and distance of the mean weights."""
    figure, (left, middle, right) = panels(13.5, 4.4, 1, 3)
    left.plot(data["step"], data["loss"].sel(run="descent"), ".", color=QUIET, ms=1.2, label="descent, each step")
    for name, (label, color, line) in _STYLES.items():
        left.plot(data["window"], mean_losses.sel(run=name), color=color, ls=line, lw=1.8, label=label)
        if name != "stable":
            sharpness = data["sharpness"].sel(run=name)
            middle.plot(data["measured"], sharpness, color=color, ls=line, lw=1.4, label=label)
        if name != "descent":
            right.plot(data["window"], data["distance"].sel(run=name), color=color, ls=line, lw=1.8, label=label)
    middle.axhline(1, color=QUIET, lw=1)
    floor = 0.3 * float(
        data["distance"].sel(run=["rod", "stable"]).min()
    )  # before the edge the central flow is descent
    finish(left, log="y", xlabel="step", title=rf"mean loss of windows, $\eta = {lr:g}$", title_size=10)
    finish(middle, xlabel="step", title=r"sharpness in units of $2/\eta$", title_size=10)
    finish(
        right,
        log="y",
        xlabel="step",
        title="distance from the mean weights of descent",
        title_size=10,
        ylim=(floor, None),
    )
    for axes in (left, middle, right):
        axes.legend(frameon=False, fontsize=8)
    return figure


def modes(data: xarray.Dataset) -> Figure:
    """A column for each depth: variance and loss over those of the 2-cycle."""
    columns = data.sizes["depth"]
    figure, grid = panels(4.4 * columns, 7, 2, columns, sharex=True, sharey="row", squeeze=False)
    ratio = data / data.sel(flow="exact")
    for column, depth in zip(grid.T, data["depth"].values, strict=True):
        for axes, what in zip(column, ("variance", "loss"), strict=True):
            one = ratio[what].sel(depth=depth)
            axes.plot(data["kappa"], one.sel(flow="descent"), color=QUIET, lw=1.2, label="descent")
            axes.axhline(1, color=THEORY, lw=1, label="exact 2-cycle")
            axes.plot(data["kappa"], one.sel(flow="central"), color=TRAIN, lw=1.6, label="central flow")
            axes.plot(data["kappa"], one.sel(flow="corrected"), color=TEST, ls="--", lw=1.4, label="corrected")
            for name, color, marker in (("central run", TRAIN, "o"), ("rod run", SIGNAL, "s")):
                label = "central flow, simulated" if name == "central run" else "rod, simulated"
                axes.plot(data["kappa"], one.sel(flow=name), marker, color=color, ms=3, label=label)
            title = f"{depth} layers" if what == "variance" else None
            xlabel = r"$\kappa = \eta S$" if what == "loss" else None
            finish(axes, xlabel=xlabel, title=title, title_size=10, ylim=(0.5, 1.5))
    for axes, what in zip(grid[:, 0], ("variance", "mean loss"), strict=True):
        axes.set_ylabel(f"{what}, over the 2-cycle's")
    grid[0, 0].legend(frameon=False, fontsize=8, loc="upper left")
    return figure


def catapult(data: xarray.Dataset, lr: float) -> Figure:
    """The sharpness in time for one excess, and the final excess over the initial one."""
    figure, (left, right) = panels(10.5, 4.4, 1, 2)
    shown = data["initial"].values[-1]
    initial = data["initial"].values
    for name, marker in (("descent", "o"), ("rod", "s"), ("central", "^")):
        label, color, line = _STYLES[name]
        time = data["excess"].sel(flow=name, initial=shown)
        early = slice(0, max(2, data.sizes["step"] // 20))
        left.plot(data["step"][early], time[early], color=color, ls=line, lw=1.4, label=label)
        right.plot(initial, data["excess"].sel(flow=name).isel(step=-1), marker, color=color, ms=5, label=label)
    right.plot(initial, data["law"], color=QUIET, lw=1.2, label="mirror law")
    left.axhline(0, color=QUIET, lw=1)
    title = rf"$S \eta / 2 - 1$ in time, $\eta = {lr:g}$"
    finish(left, xlabel="step", title=title, title_size=10)
    finish(right, xlabel=r"initial $S \eta / 2 - 1$", title=r"final $S \eta / 2 - 1$", title_size=10)
    for axes in (left, right):
        axes.legend(frameon=False, fontsize=8)
    return figure
