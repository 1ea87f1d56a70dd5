"""Figures of networks with relu at the edge of stability."""

from collections.abc import Sequence

import numpy as np
import xarray
from matplotlib.figure import Figure

from linnet.plot.style import NOISE, SIGNAL, TEST, THEORY, TRAIN, canvas, finish, panels

LAYERS = (TRAIN, SIGNAL, TEST, NOISE)
Frequencies = tuple[np.ndarray, np.ndarray, np.ndarray]  # frequency, power of each layer's values, power of the loss


def fig17(data: xarray.Dataset, lr: float, frequencies: Frequencies) -> Figure:
    """Loss, top singular values and sharpness in time; below, the last steps and the frequencies of the first two."""
    figure, ((loss, values, sharp), (cycle, last, power)) = panels(13, 7.6, 2, 3)
    run, level = data.isel(draw=0), 2 / lr
    frequency, layers, slow = frequencies
    step = run["step"].values
    loss.plot(step, run["loss"], color=THEORY, lw=0.8)
    finish(loss, log="y", xlabel="step", ylabel=r"loss, mean of $|f - y|^2$", title="Loss: slow oscillation")
    for color, layer in zip(LAYERS, run["layer"].values, strict=False):
        for i, row in enumerate(run["values"].sel(layer=layer).values.T):
            name = f"layer {layer}" if i == 0 else None
            values.plot(step, row, color=color, lw=0.9 if i == 0 else 0.4, label=name, rasterized=True)
    label, title = "five largest singular values", "Singular values of the layers: flip"
    finish(values, xlabel="step", ylabel=label, title=title, legend="lower right")
    measured = np.isfinite(run["sharpness"].values)
    at, sharpness = step[measured], run["sharpness"].values[measured]
    for parity, color, word in ((0, SIGNAL, "even"), (1, TEST, "odd")):
        side = at % 2 == parity
        sharp.plot(at[side], sharpness[side], "o", color=color, ms=3, mew=0, label=f"{word} steps")
    sharp.plot(at, sharpness, color=NOISE, lw=0.5, zorder=1)
    sharp.axhline(level, color=THEORY, lw=1.2, ls="--", label=rf"$2/\eta = {level:g}$")
    label, title = "largest eigenvalue of the Hessian", "Sharpness, in pairs of consecutive steps"
    finish(sharp, xlabel="step", ylabel=label, title=title, legend="lower right")
    shown = slice(-256, None)
    cycle.plot(step[shown], run["loss"][shown], color=THEORY, lw=1)
    finish(cycle, log="y", xlabel="step", ylabel="loss", title="The last 256 steps: the slow clock")
    few = slice(-32, None)
    last.plot(step[few], run["values"].sel(layer=1)[few, 0], "o-", color=LAYERS[0], lw=1, ms=3)
    title = "The last 32 steps: the fast clock"
    finish(last, xlabel="step", ylabel="largest singular value, layer 1", title=title)
    power.plot(frequency, np.cumsum(slow), color=THEORY, lw=1.8, label="log loss")
    for color, layer, share in zip(LAYERS, run["layer"].values, layers, strict=False):
        power.plot(frequency, np.cumsum(share), color=color, lw=1.5, label=f"singular values, layer {layer}")
    peak = frequency[np.argmax(slow)]
    power.axvline(peak, color=THEORY, lw=0.9, ls=":", label=f"{1 / peak:.0f} steps")
    power.axvline(0.5, color=NOISE, lw=0.9, ls=":", label="2 steps")
    label, legend = "share of the power up to there", {"loc": "center", "bbox_to_anchor": (0.55, 0.6)}
    finish(power, xlabel="frequency, per step", ylabel=label, title="Frequencies", legend=legend)
    return figure


def fig19(data: xarray.Dataset, begins: Sequence[int]) -> Figure:
    """A column for each network: loss, singular values and excess loss in its window; below, who carries the excess."""
    run = data.isel(draw=0)
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
        for j, color in zip(range(3), LAYERS, strict=False):
            values.plot(step, moved[:, j], "o-", color=color, lw=0.9, ms=2.5, label=f"$\\sigma_{j + 1}$")
        for part, color, style, word in parts:
            excess.plot(step[1:-1], one["excess"].sel(part=part), style, color=color, lw=1.6, label=word)
        finish((loss, values, excess), xlabel="step")
        if i == 0:
            loss.set_ylabel("loss")
            legend = {"loc": "upper left", "ncol": 3}
            finish(values, ylabel="layer 2: singular values\nminus their mean", legend=legend)
            finish(excess, ylabel="excess loss of the oscillation", legend="upper left")
    shares = figure.add_subplot(grid[3, :])
    places = np.arange(count)
    for side, (name, color) in enumerate((("values", TRAIN), ("rotations", SIGNAL))):
        share = run[f"{name} share"].values
        where = places + 0.4 * side - 0.2
        shares.bar(where, share, 0.36, color=color, label=f"{name} alone")
        for x, y in zip(where, share, strict=True):
            text, above = f"{round(y, 4) + 0.0:.4f}", (x, max(y, 0.0))
            shares.annotate(text, above, (0, 3), textcoords="offset points", ha="center", fontsize=10)
    shares.set_xticks(places, [str(name) for name in run["case"].values])
    label, title = "share of the excess loss", "Who carries the oscillation of the loss"
    legend = {"loc": "upper right", "ncol": 2, "fontsize": 10}
    finish(shares, ylabel=label, ylim=(-0.05, 1.35), title=title, legend=legend)
    return figure
