"""Pictures of networks with relu at the edge of stability."""

from collections.abc import Sequence

import numpy as np
import xarray
from matplotlib.figure import Figure

from linnet.plot.style import NOISE, SIGNAL, TEST, THEORY, TRAIN, canvas, tidy

LAYERS = (TRAIN, SIGNAL, TEST, NOISE)


def clocks(run: xarray.Dataset, level: float, frequency: np.ndarray, layers: np.ndarray, slow: np.ndarray) -> Figure:
    """Loss, top singular values and sharpness in time; below, the last steps and the frequencies of the first two."""
    figure = canvas(13, 7.6)
    panels = figure.subplots(2, 3)
    (loss, values, sharp), (cycle, last, power) = panels
    step = run["step"].values
    loss.plot(step, run["loss"], color=THEORY, lw=0.8)
    loss.set(ylabel=r"loss, mean of $|f - y|^2$", title="Loss: breathes")
    for colour, layer in zip(LAYERS, run["layer"].values, strict=False):
        for i, row in enumerate(run["values"].sel(layer=layer).values.T):
            name = f"layer {layer}" if i == 0 else None
            values.plot(step, row, color=colour, lw=0.9 if i == 0 else 0.4, label=name, rasterized=True)
    values.set(ylabel="five largest singular values", title="Singular values of the layers: flip")
    values.legend(frameon=False, fontsize=9, loc="lower right")
    seen = np.isfinite(run["sharpness"].values)
    at, sharpness = step[seen], run["sharpness"].values[seen]
    for parity, colour, word in ((0, SIGNAL, "even"), (1, TEST, "odd")):
        side = at % 2 == parity
        sharp.plot(at[side], sharpness[side], "o", color=colour, ms=3, mew=0, label=f"{word} steps")
    sharp.plot(at, sharpness, color=NOISE, lw=0.5, zorder=1)
    sharp.axhline(level, color=THEORY, lw=1.2, ls="--", label=rf"$2/\eta = {level:g}$")
    sharp.set(ylabel="largest eigenvalue of the Hessian", title="Sharpness, in pairs of consecutive steps")
    sharp.legend(frameon=False, fontsize=9, loc="lower right")
    shown = slice(-256, None)
    cycle.plot(step[shown], run["loss"][shown], color=THEORY, lw=1)
    cycle.set(ylabel="loss", title="The last 256 steps: the slow clock")
    few = slice(-32, None)
    last.plot(step[few], run["values"].sel(layer=1)[few, 0], "o-", color=LAYERS[0], lw=1, ms=3)
    last.set(ylabel="largest singular value, layer 1", title="The last 32 steps: the fast clock")
    for axes in (loss, cycle):
        axes.set_yscale("log")
    for axes in (loss, values, sharp, cycle, last):
        axes.set_xlabel("step")
    power.plot(frequency, np.cumsum(slow), color=THEORY, lw=1.8, label="log loss")
    for colour, layer, share in zip(LAYERS, run["layer"].values, layers, strict=False):
        power.plot(frequency, np.cumsum(share), color=colour, lw=1.5, label=f"singular values, layer {layer}")
    peak = frequency[np.argmax(slow)]
    power.axvline(peak, color=THEORY, lw=0.9, ls=":", label=f"{1 / peak:.0f} steps")
    power.axvline(0.5, color=NOISE, lw=0.9, ls=":", label="2 steps")
    power.set(xlabel="frequency, per step", ylabel="share of the power up to there", title="Frequencies")
    power.legend(frameon=False, fontsize=9, loc="center", bbox_to_anchor=(0.55, 0.6))
    for axes in panels.ravel():
        tidy(axes)
    return figure


def carriers(run: xarray.Dataset, begins: Sequence[int]) -> Figure:
    """A column for each network: loss, singular values and excess loss in its window; below, who carries the excess."""
    count = run.sizes["case"]
    figure = canvas(4.3 * count, 10.5)
    grid = figure.add_gridspec(4, count, height_ratios=(1, 1, 1, 0.9))
    parts = (
        ("whole", THEORY, "-", "all of it"),
        ("rotations", SIGNAL, "--", "rotations"),
        ("values", TRAIN, "-", "values"),
    )
    for i, (name, begin) in enumerate(zip(run["case"].values, begins, strict=True)):
        one = run.isel(case=i)
        loss, values, excess = (figure.add_subplot(grid[row, i]) for row in range(3))
        step = begin + np.arange(run.sizes["step"])
        loss.plot(step, one["loss"], "o-", color=THEORY, lw=1, ms=2.5)
        loss.set_title(str(name))
        moved = one["values"].values - one["values"].values.mean(axis=0)
        for j, colour in zip(range(3), LAYERS, strict=False):
            values.plot(step, moved[:, j], "o-", color=colour, lw=0.9, ms=2.5, label=f"$\\sigma_{j + 1}$")
        for part, colour, style, word in parts:
            excess.plot(step[1:-1], one["excess"].sel(part=part), style, color=colour, lw=1.6, label=word)
        for axes in (loss, values, excess):
            axes.set_xlabel("step")
            tidy(axes)
        if i == 0:
            loss.set_ylabel("loss")
            values.set_ylabel("layer 2: singular values\nminus their mean")
            excess.set_ylabel("excess loss of the oscillation")
            values.legend(frameon=False, fontsize=9, ncol=3, loc="upper left")
            excess.legend(frameon=False, fontsize=9, loc="upper left")
    shares = figure.add_subplot(grid[3, :])
    places = np.arange(count)
    for side, (name, colour) in enumerate((("values", TRAIN), ("rotations", SIGNAL))):
        share = run[f"{name} share"].values
        where = places + 0.4 * side - 0.2
        shares.bar(where, share, 0.36, color=colour, label=f"{name} alone")
        for x, y in zip(where, share, strict=True):
            shares.annotate(
                f"{round(y, 4) + 0.0:.4f}",
                (x, max(y, 0.0)),
                (0, 3),
                textcoords="offset points",
                ha="center",
                fontsize=10,
            )
    shares.set_xticks(places, [str(name) for name in run["case"].values])
    shares.set(ylabel="share of the excess loss", ylim=(-0.05, 1.35), title="Who carries the oscillation of the loss")
    shares.legend(frameon=False, fontsize=10, loc="upper right", ncol=2)
    tidy(shares)
    return figure
