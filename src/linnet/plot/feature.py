"""Figures of feature learning."""

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from linnet.data import SETS
from linnet.plot.style import NOISE, SIGNAL, TEST, THEORY, TRAIN, band, finish, label_outer, panels


def _rescaled(steps: np.ndarray, values: np.ndarray, t1: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Each run at multiples of its own t1, interpolated linearly between steps."""
    return np.array([np.interp(units * t, steps, row) for t, row in zip(t1, values, strict=True)])


def fig1(data: xarray.Dataset, aligned: np.ndarray) -> Figure:
    """Loss, slope, and distance of the kernel from the target-aligned one: one draw, then all in units of t1.

    `aligned` are the steps t1 of the draws, -1 where there is none.
    """
    figure, grid = panels(12, 6.8, 2, 3)
    above, below = grid
    t1, first = aligned, data.isel(draw=0)
    initial = float(first["loss"][0])
    shown = slice(0, int(min(data["step"].values[-1], max(30, 3 * t1[0]))) + 1)
    steps = data["step"].values[shown]
    names, colors = ("loss", "slope", "distance"), (TRAIN, SIGNAL, TEST)
    for axes, name, scale, color in zip(above, names, (initial, 1.0, 1.0), colors, strict=True):
        axes.plot(steps, first[name].values[shown] / scale, color=color, lw=2.2, label="gradient descent")
        if t1[0] >= 0:
            axes.axvline(t1[0], color=NOISE, lw=1.1, ls="--", label=f"$t_1$ = {t1[0]}")
    dotted = {"color": THEORY, "lw": 1.1, "ls": ":"}
    above[0].plot(steps, first["model"].values[shown] / initial, label="two-scalar model, to its floor", **dotted)
    above[1].plot(steps, first["stage_one"].values[shown], label="law of stage one", **dotted)
    mean = data["ratio"].values[0][shown]
    above[1].plot(steps, mean, color=NOISE, lw=1.2, label=r"mean of $\rho_r / v_r$, over $\sqrt{\gamma}$")
    loss: dict[str, Any] = {"log": "y", "ylabel": "$L / L(0)$"}
    finish(above[0], title=f"One draw, $x$ = {float(first['x']):.2f}: loss", ylim=(1e-9, None), **loss)
    slope = r"slope $\sum\rho v\, /\, (\sqrt{\gamma}\,\sum v^2)$"
    finish(above[1], title=r"The neurons' $\rho_r / v_r$", ylabel=slope)
    label = "relative distance from\nthe target-aligned kernel"
    finish(above[2], log="y", title="Distance of the tangent kernel", ylabel=label)
    finish(above, xlabel="step", legend="best")

    reached = t1 > 0
    units = np.linspace(0, 3, 181)
    if count := int(np.sum(reached)):
        left = data["loss"].values / data["loss"].values[:, :1]
        series = (left, data["slope"].values, data["distance"].values)
        for axes, values, color in zip(below, series, colors, strict=True):
            curves = _rescaled(data["step"].values, values[reached], t1[reached], units)
            band(axes, units, curves, color, f"{count} draws")
            axes.axvline(1.0, color=NOISE, lw=1.1, ls="--")
        grown = np.median(data["norm"].values[reached, t1[reached]] / data["norm"].values[reached, 0])
        text = f"the kernel's norm has grown\n{grown:.0f}-fold at $t_1$ (median)"
        below[2].text(0.98, 0.95, text, transform=below[2].transAxes, ha="right", va="top", fontsize=9)
        below[0].legend(frameon=False, fontsize=9, loc="lower left")
    finish(below[0], title=f"All draws: $t_1$ from {t1.min()} to {t1.max()}", ylim=(1e-12, None), **loss)
    finish(below[1], ylabel="slope")
    finish(below[2], log="y", ylabel="relative distance")
    label_outer(grid, xlabel="step / $t_1$")
    return figure


def phase(data: xarray.Dataset, staged_above: float) -> Figure:
    """Growth of the kernel and loss left at alignment for initializations of every size, measured beside predicted."""
    figure, grid = panels(11.5, 9, 2, 2, sharex=True, sharey=True)
    top = max(2.0, *(float(data[name].max()) for name in ("growth", "predicted")))
    rows: tuple[tuple[tuple[str, str], Normalize, str], ...] = (
        (("growth", "predicted"), LogNorm(1.0, top), "growth of $y^TΘy$ over the training"),
        (("left", "predicted_left"), Normalize(0.0, 1.0), "loss left when the slope is 0.9"),
    )
    sizes = [f"{size:g}" for size in data["v0"].values]
    for row, (names, scale, title) in zip(grid, rows, strict=True):
        shades = mpl.colormaps["viridis" if names[0] == "growth" else "magma"].with_extremes(bad="#e5e7eb")
        for axes, name, origin in zip(row, names, ("measured", "predicted"), strict=True):
            values = data[name].transpose("v0", "sigma0").values
            clipped = np.maximum(values, 1.0) if names[0] == "growth" else values
            image = axes.imshow(clipped, origin="lower", norm=scale, cmap=shades, aspect="auto")
            for (i, j), value in np.ndenumerate(values):
                staged = names[0] == "left" and value > staged_above
                dark = np.isfinite(value) and scale(clipped[i, j]) < 0.6
                axes.text(
                    j,
                    i,
                    "–" if np.isnan(value) else _short(value) if names[0] == "growth" else f"{value:.2f}",
                    ha="center",
                    va="center",
                    fontsize=8.5,
                    color="white" if dark else THEORY,
                    fontweight="bold" if staged else "normal",
                )
                if staged:
                    axes.add_patch(Rectangle((j - 0.47, i - 0.47), 0.94, 0.94, fill=False, ec=TRAIN, lw=2.2))
            axes.set_title(f"{title}: {origin}", fontsize=11)
            axes.set_xticks(range(len(sizes)), sizes)
            axes.set_yticks(range(len(sizes)), sizes)
            axes.tick_params(length=0)
            axes.spines[:].set_visible(False)
            _threshold(axes, data["v0"].values)
        figure.colorbar(image, ax=list(row), shrink=0.9)
    label_outer(grid, xlabel=r"$\sigma_0 / v_*$", ylabel="$v_0 / v_*$")
    figure.supxlabel(
        "Line: R = 1, lazy beyond it.   Framed: two stages (more than half of the loss is left).   "
        "Gray: the slope is never reached.",
        fontsize=9.5,
    )
    return figure


def _threshold(axes: Axes, sizes: np.ndarray) -> None:
    """v0^2 + sigma0^2 = 2 v*^2 between the cells' centers, on axes that number the cells."""
    place = np.linspace(-0.5, len(sizes) - 0.5, 400)
    numbers = np.arange(len(sizes))
    along = np.log(sizes)

    def log_size(position: np.ndarray) -> np.ndarray:
        inner = np.interp(position, numbers, along)
        first, last = along[1] - along[0], along[-1] - along[-2]
        inner = np.where(position < 0, along[0] + position * first, inner)
        return np.where(position > numbers[-1], along[-1] + (position - numbers[-1]) * last, inner)

    square = np.exp(2 * log_size(place))
    richness = 2 / (square[:, None] + square[None, :])
    if richness.min() < 1 < richness.max():
        axes.contour(place, place, richness, levels=[1.0], colors=["white"], linewidths=2.5)
        axes.contour(place, place, richness, levels=[1.0], colors=[NOISE], linewidths=1.2)


def _short(value: float) -> str:
    """Three digits, powers of ten from ten thousand on."""
    if value < 1e4:
        return f"{value:.3g}" if value < 1000 else f"{value:.0f}"
    mantissa, power = f"{value:.0e}".split("e")
    return f"{mantissa}e{int(power)}"


_COSINES = {
    "cosine": "the target-aligned kernel",
    "masked": "with zeros between classes",
    "sides": "with zeros between sides of $X^\\top y$",
}
_COLORS = {"loss": TRAIN, "slope": SIGNAL, "distance": TEST, "cosine": NOISE, "masked": SIGNAL, "sides": TRAIN}


def fig2(data: xarray.Dataset) -> Figure:
    """Loss, slope and kernel on images in units of t1, the third stage included: a row for each set."""
    there = data["images"].values
    names = list(dict.fromkeys(there))
    cosines = "cosine" in data
    width, columns = (15, 4) if cosines else (12, 3)
    figure, grid = panels(width, 0.5 + 3.2 * len(names), len(names), columns, squeeze=False, sharex=True)
    last = (data["step"].values[-1] / np.maximum(data["t1"].values, 1)).min()
    units = np.linspace(0, min(last, 6), 241)
    for row, name in zip(grid, names, strict=True):
        _set_of_images(row, data.isel(run=there == name), units, SETS[str(name)].title.split(",")[0])
    grid[0][2].set_title("Distance from the target-aligned kernel")
    if cosines:
        grid[0][3].set_title("Cosine of the tangent kernel with")
    label_outer(grid, xlabel="step / $t_1$")
    for axes, place in zip(grid[0][:: 3 if cosines else 4], ("best", "lower right"), strict=False):
        axes.legend(fontsize=8.5, loc=place, framealpha=0.9, edgecolor="none")
    return figure


fig3 = fig2


def _set_of_images(row: Sequence[Axes], data: xarray.Dataset, units: np.ndarray, title: str) -> None:
    """All runs on a set, each in units of its own t1, and the first of them as a line."""
    t1, floor, first = data["t1"].values, data["floor"].values, data.isel(run=0)
    reached = t1 > 0
    for axes, shown in zip(row, (["loss"], ["slope"], ["distance"], list(_COSINES)), strict=False):
        for name in shown:
            values, where = data[name].values, data[data[name].dims[1]].values
            values = values / values[:, :1] if name == "loss" else values
            if reached.any():
                curves = _rescaled(where, values[reached], t1[reached], units)
                band(axes, units, curves, _COLORS[name], "runs" if name == "loss" else None, _COSINES.get(name))
            if t1[0] > 0 and len(shown) == 1:
                label = f"classes {first['classes'].item()}" if name == "loss" else None
                axes.plot(where / t1[0], values[0], color=THEORY, lw=1, label=label)
        axes.axvline(1, color=NOISE, lw=1.1, ls="--")
        axes.axvline(2, color=NOISE, lw=1.1, ls=":")
        finish(axes, xlim=(0, units[-1]))
    row[0].axhline(float(first["floor"]), color=THEORY, lw=1, ls=":", label="its floor of one direction")
    row[0].set(title=f"{title}: {len(t1)} runs, $t_1$ from {t1.min()} to {t1.max()}", ylabel="$L / L(0)$", yscale="log")
    row[1].set(
        title=f"floors of one direction: {floor.min():.2f} to {floor.max():.2f}",
        ylabel="slope of the neurons",
        ylim=(0, 1.05),
    )
    row[2].set_ylabel("relative distance")
    if len(row) == 3:
        row[2].set_yscale("log")
        return
    row[2].set_ylim(0, None)
    row[3].set(ylabel="cosine", ylim=(0, 1.05))
    row[3].axhline(np.sqrt(0.5), color=THEORY, lw=0.9, ls=":")
    row[3].text(0.05, np.sqrt(0.5) - 0.03, r"$1/\sqrt{2}$", va="top", fontsize=9)
