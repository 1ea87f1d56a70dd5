"""Figures of modes that cross: sorted singular values, and matrix beside diagonal networks."""

from collections.abc import Mapping

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from linnet.plot.style import MODES, NOISE, SIGNAL, THEORY, canvas, finish, panels


def fig18(data: xarray.Dataset, thresholds: Mapping[str, float]) -> Figure:
    """Modes and sorted values in the last steps for a few learning rates, and the range of both by learning rate."""
    count = data.sizes["shown"]
    figure = canvas(13, 7)
    grid = figure.add_gridspec(2, 2 * count, height_ratios=(1, 1.1))
    above = [figure.add_subplot(grid[0, 2 * i : 2 * i + 2]) for i in range(count)]
    low, high = float(data["modes"].min()), float(data["modes"].max())
    limits = (low - 0.05 * (high - low), high + 0.05 * (high - low))
    for axes, half in zip(above, data["shown"].values, strict=True):
        run = data.sel(shown=half)
        _draw_modes(axes, np.arange(data.sizes["last"]), run["modes"].values, run["sorted"].values)
        finish(axes, xlabel="last steps", title=rf"$\eta/2 = {half:g}$", ylim=limits)
    above[0].set_ylabel(r"modes (lines), sorted values (rings)")
    left, right = figure.add_subplot(grid[1, :count]), figure.add_subplot(grid[1, count:])
    for axes, name, what in ((left, "range", "mode"), (right, "sorted_range", "sorted value")):
        for i in range(data.sizes["mode"]):
            axes.plot(data["half"], data[name][:, i], color=MODES[i], lw=1.8, label=f"{what} {i + 1}")
        for label, style in (("2/S_1", ":"), ("2/λ_2", "--"), ("2/S_2", "-.")):
            tex = label.replace("λ", r"\lambda")
            axes.axvline(thresholds[label], color=THEORY, lw=0.9, ls=style, label=rf"$\eta = {tex}$")
    for i in (1, 2):
        right.plot(thresholds[f"sorted {i + 1}"], 0.0, "^", color=MODES[i], ms=7, zorder=3)
        right.plot([], [], "^", color=MODES[i], ms=6, label=f"mode 1 dips below mode {i + 1}")
    legend = {"loc": "upper left", "frameon": True, "framealpha": 1, "edgecolor": "none"}
    xlabel, limits = r"$\eta/2$, as printed in the paper", (-0.2, 1.25 * float(data["range"].max()))
    left.set_ylabel("highest minus lowest value")
    finish(left, xlabel=xlabel, ylim=limits, title="Range of the modes", legend=legend)
    finish(right, xlabel=xlabel, ylim=limits, title="Range of the sorted values", legend=legend | {"ncol": 2})
    return figure


def _draw_modes(axes: Axes, step: np.ndarray, modes: np.ndarray, values: np.ndarray) -> None:
    """Modes as lines and sorted values as rings, in the color of their place in the order."""
    for i in range(modes.shape[1]):
        axes.plot(step, modes[:, i], color=MODES[i % 4], lw=1.2)
        axes.plot(step, values[:, i], "o", mfc="none", mec=MODES[i % 4], mew=1.1, ms=5)


def fig5(data: xarray.Dataset, growths: Mapping[float, float]) -> Figure:
    """Matrix network, its sorted values, diagonal network and cross component, a column for each learning rate."""
    figure, grid = panels(4.4 * data.sizes["level"], 11, 4, data.sizes["level"], sharey="row", squeeze=False)
    step = data["step"].values
    window = slice(960, 981)  # all modes learned, noise still small
    for column, level in zip(grid.T, data["level"].values, strict=True):
        here = data.sel(level=level)
        run = here.sel(target="double")
        for i in range(data.sizes["mode"]):
            column[0].plot(step, run["modes"][:, i], color=MODES[i % 4], lw=0.5, rasterized=True)
            column[2].plot(step, here["diagonal"][:, i], color=MODES[i % 4], lw=0.5, rasterized=True)
        _draw_modes(column[1], step[window], run["modes"].values[window], run["sorted"].values[window])
        column[1].xaxis.set_major_locator(MaxNLocator(integer=True))
        for name, color in (("double", THEORY), ("single", NOISE)):
            size = np.maximum(here.sel(target=name)["cross"].values, 1e-18)
            column[3].plot(step, size, color=color, lw=0.8, label=f"{name} precision", rasterized=True)
        rate, noise = growths[float(level)], run["cross"].values
        if rate > 0 and np.any(noise > 1e-6):
            middle = int(np.argmax(noise > 1e-6))
            law = 1e-6 * np.exp(rate * (step - middle))
            part = (law > 1e-16) & (law < 1)
            column[3].plot(step[part], law[part], color=SIGNAL, lw=1.8, ls=":", label="predicted growth")
        finish(column[0], title=f"$K = {level:g}$: matrix network, modes", title_size=11)
        finish(column[1], title="the same: modes (lines), sorted values (rings)", title_size=10)
        finish(column[2], title="diagonal network", title_size=10)
        legend = {"loc": "center right", "bbox_to_anchor": (1.0, 0.75 if rate <= 0 else 0.2)}
        finish(column[3], title="cross component of modes 1 and 2", title_size=10)
        finish(column[3], log="y", xlabel="step", ylim=(1e-17, 30), legend=legend, legend_size=8)
    for axes, label in zip(grid[:, 0], (r"$u_i^T A\, v_i$", "values", "coordinates", "size"), strict=True):
        axes.set_ylabel(label)
    return figure
