"""Pictures of feature learning."""

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from linnet._check import InputError
from linnet.data import SETS
from linnet.plot.style import NOISE, SIGNAL, TEST, THEORY, TRAIN, canvas, tidy
from linnet.predict.features_result import FeaturesMeasured, FeaturesPrediction


def _band(
    axes: Axes, x: np.ndarray, values: np.ndarray, colour: str, words: str | None = None, median: str | None = None
) -> None:
    """The median of many runs, the middle 80% of them and all of them."""
    low, lower, middle, upper, high = np.quantile(values, (0.0, 0.1, 0.5, 0.9, 1.0), axis=0)
    axes.fill_between(x, low, high, color=colour, alpha=0.12, lw=0, label=words and f"all {words}")
    axes.fill_between(x, lower, upper, color=colour, alpha=0.28, lw=0, label=words and f"80% of {words}")
    axes.plot(x, middle, color=colour, lw=2, label=median or (words and "median"))


def _rescaled(steps: np.ndarray, values: np.ndarray, t1: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Each run at multiples of its own t1, between two steps by a line."""
    return np.array([np.interp(units * t, steps, row) for t, row in zip(t1, values, strict=True)])


def stages(data: xarray.Dataset, t1: np.ndarray) -> Figure:
    """Loss, slope and distance of the kernel from the target-aligned one: one draw, then all of them in units of t1."""
    figure = canvas(12, 6.8)
    above, below = figure.subplots(2, 3)
    steps, first = data["step"].values, data.isel(draw=0)
    start = float(first["loss"][0])
    end = int(min(steps[-1], max(30, 3 * t1[0])))
    shown = slice(0, end + 1)
    for axes, name, scale, colour in zip(
        above, ("loss", "slope", "distance"), (start, 1.0, 1.0), (TRAIN, SIGNAL, TEST), strict=True
    ):
        axes.plot(steps[shown], first[name].values[shown] / scale, color=colour, lw=2.2, label="gradient descent")
        if t1[0] >= 0:
            axes.axvline(t1[0], color=NOISE, lw=1.1, ls="--", label=f"$t_1$ = {t1[0]}")
        axes.set_xlabel("step")
    above[0].plot(
        steps[shown],
        first["model"].values[shown] / start,
        color=THEORY,
        lw=1.1,
        ls=":",
        label="two-scalar model, to its floor",
    )
    above[1].plot(
        steps[shown], first["stage_one"].values[shown], color=THEORY, lw=1.1, ls=":", label="law of stage one"
    )
    above[0].set(title=f"One draw, $x$ = {float(first['x']):.2f}: loss", ylabel="$L / L(0)$")
    above[1].set(title=r"The neurons' $\rho_r / v_r$", ylabel=r"slope $\sum\rho v\, /\, (\sqrt{\gamma}\,\sum v^2)$")
    above[2].set(title="Distance of the tangent kernel", ylabel="relative distance from\nthe target-aligned kernel")
    for axes in above:
        axes.legend(frameon=False, fontsize=9)

    reached = t1 > 0
    units = np.linspace(0, 3, 181)
    count = int(np.sum(reached))
    if count:
        left = data["loss"].values / data["loss"].values[:, :1]
        series = (left, data["slope"].values, data["distance"].values)
        for axes, values, colour in zip(below, series, (TRAIN, SIGNAL, TEST), strict=True):
            _band(axes, units, _rescaled(steps, values[reached], t1[reached], units), colour, f"{count} draws")
            axes.axvline(1.0, color=NOISE, lw=1.1, ls="--")
        grown = np.median(data["norm"].values[reached, t1[reached]] / data["norm"].values[reached, 0])
        below[2].text(
            0.98,
            0.95,
            f"the kernel's norm has grown\n{grown:.0f}-fold at $t_1$ (median)",
            transform=below[2].transAxes,
            ha="right",
            va="top",
            fontsize=9,
        )
        below[0].legend(frameon=False, fontsize=9, loc="lower left")
    below[0].set(title=f"All draws: $t_1$ from {t1.min()} to {t1.max()}", ylabel="$L / L(0)$")
    below[1].set(ylabel="slope")
    below[2].set(ylabel="relative distance")
    for axes in below:
        axes.set_xlabel("step / $t_1$")
    for axes in (above[0], above[2], below[0], below[2]):
        axes.set_yscale("log")
    above[0].set_ylim(bottom=1e-9)
    below[0].set_ylim(bottom=1e-12)
    for axes in (*above, *below):
        tidy(axes)
    return figure


def phase_map(data: xarray.Dataset, left: float) -> Figure:
    """Growth of the kernel and loss left at alignment for starts of every size, measured beside predicted."""
    figure = canvas(11.5, 9)
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    top = max(2.0, *(float(data[name].max()) for name in ("growth", "predicted")))
    rows: tuple[tuple[tuple[str, str], Normalize, str], ...] = (
        (("growth", "predicted"), LogNorm(1.0, top), "growth of $y^TΘy$ over the training"),
        (("left", "predicted_left"), Normalize(0.0, 1.0), "loss left when the slope is 0.9"),
    )
    sizes = [f"{size:g}" for size in data["v0"].values]
    for row, (names, scale, title) in zip(panels, rows, strict=True):
        shades = mpl.colormaps["viridis" if names[0] == "growth" else "magma"].with_extremes(bad="#e5e7eb")
        for axes, name, word in zip(row, names, ("measured", "predicted"), strict=True):
            values = data[name].transpose("v0", "sigma0").values
            clipped = np.maximum(values, 1.0) if names[0] == "growth" else values
            image = axes.imshow(clipped, origin="lower", norm=scale, cmap=shades, aspect="auto")
            for (i, j), value in np.ndenumerate(values):
                staged = names[0] == "left" and value > left
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
            axes.set_title(f"{title}: {word}", fontsize=11)
            axes.set_xticks(range(len(sizes)), sizes)
            axes.set_yticks(range(len(sizes)), sizes)
            axes.tick_params(length=0)
            for side in axes.spines.values():
                side.set_visible(False)
            _threshold(axes, data["v0"].values)
        figure.colorbar(image, ax=list(row), shrink=0.9)
    for axes in panels[1]:
        axes.set_xlabel(r"$\sigma_0 / v_*$")
    for axes in panels[:, 0]:
        axes.set_ylabel("$v_0 / v_*$")
    figure.supxlabel(
        "Line: R = 1, lazy beyond it.   Framed: two stages (more than half of the loss is left).   "
        "Grey: the slope is never reached.",
        fontsize=9.5,
    )
    return figure


def _threshold(axes: Axes, sizes: np.ndarray) -> None:
    """v0^2 + sigma0^2 = 2 v*^2 between the cells' centres, on axes that number the cells."""
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


def prediction(result: FeaturesPrediction | FeaturesMeasured) -> Figure:
    """Loss, slope and growth of the kernel by the two-scalar model, with the exact descent if there is one."""
    run = result if isinstance(result, FeaturesMeasured) else None
    answer = result.prediction if isinstance(result, FeaturesMeasured) else result
    model = answer.curves
    if model is None and run is None:
        raise InputError(
            f"plot needs a stable step size: lr = {answer.lr:g} is above {answer.largest_stable_lr:.4g}; lower lr, or "
            "draw the exact run."
        )
    figure = canvas(12, 3.9)
    panels = figure.subplots(1, 3)
    t1 = None if answer.stages is None else answer.stages.t1
    for axes, name, colour in zip(panels, ("loss", "slope", "growth"), (TRAIN, SIGNAL, TEST), strict=True):
        if model is not None:
            axes.plot(model.step, getattr(model, name), color=colour, lw=3, alpha=0.45, label="two-scalar model")
        if run is not None:
            axes.plot(run.curves.step, getattr(run.curves, name), color=THEORY, lw=1.1, ls="--", label="exact descent")
        if t1 is not None:
            axes.axvline(t1.step, color=NOISE, lw=1, ls=":", label=f"$t_1$ = {t1.step}")
        axes.set_xlabel("step")
        tidy(axes)
    panels[0].set(title=f"{answer.regime}, R = {answer.richness:.3g}: loss", ylabel="$L / L(0)$")
    panels[1].set(title="Alignment of the neurons", ylabel="slope")
    panels[2].set(title="Kernel along the labels", ylabel="$y^TΘy$ over its start")
    panels[0].set_yscale("log")
    panels[0].set_ylim(1e-9, 3)
    if answer.kernel_growth > 10:
        panels[2].set_yscale("log")
    else:
        panels[2].set_ylim(0, 1.2 * answer.kernel_growth)
    panels[1].set_ylim(0, 1.05)
    if model is not None:
        for axes in panels:
            axes.set_xlim(0, model.step[-1])
    for axes in panels:
        axes.legend(frameon=False, fontsize=9)
    return figure


_COSINES = {
    "cosine": "the target-aligned kernel",
    "masked": "with zeros between classes",
    "sides": "with zeros between sides of $X^\\top y$",
}
_COLOURS = {"loss": TRAIN, "slope": SIGNAL, "distance": TEST, "cosine": NOISE, "masked": SIGNAL, "sides": TRAIN}


def image_stages(data: xarray.Dataset) -> Figure:
    """Loss, slope and kernel on images in units of t1, the third stage included: a row for each set."""
    there = data["images"].values
    names = list(dict.fromkeys(there))
    cosines = "cosine" in data
    figure = canvas(15 if cosines else 12, 0.5 + 3.2 * len(names))
    grid = figure.subplots(len(names), 4 if cosines else 3, squeeze=False, sharex=True)
    last = (data["step"].values[-1] / np.maximum(data["t1"].values, 1)).min()
    units = np.linspace(0, min(last, 6), 241)
    for row, name in zip(grid, names, strict=True):
        _set_of_images(row, data.isel(run=there == name), units, SETS[str(name)].title.split(",")[0])
    grid[0][2].set_title("Distance from the target-aligned kernel")
    if cosines:
        grid[0][3].set_title("Cosine of the tangent kernel with")
    for axes in grid[-1]:
        axes.set_xlabel("step / $t_1$")
    for axes in grid[0][:: 3 if cosines else 4]:
        axes.legend(
            fontsize=8.5, loc="lower right" if axes is not grid[0][0] else "best", framealpha=0.9, edgecolor="none"
        )
    return figure


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
                _band(axes, units, curves, _COLOURS[name], "runs" if name == "loss" else None, _COSINES.get(name))
            if t1[0] > 0 and len(shown) == 1:
                words = f"classes {first['classes'].item()}"
                axes.plot(where / t1[0], values[0], color=THEORY, lw=1, label=words if name == "loss" else None)
        axes.axvline(1, color=NOISE, lw=1.1, ls="--")
        axes.axvline(2, color=NOISE, lw=1.1, ls=":")
        axes.set_xlim(0, units[-1])
        tidy(axes)
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
