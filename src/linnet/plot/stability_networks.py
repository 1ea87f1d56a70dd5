"""Pictures of networks with relu at the edge of stability."""

import numpy as np
import xarray
from matplotlib.figure import Figure

from linnet.plot.style import NOISE, SIGNAL, TEST, THEORY, TRAIN, canvas, tidy

LAYERS = (TRAIN, SIGNAL, TEST, NOISE)


def clocks(
    run: xarray.Dataset, level: float, frequency: np.ndarray, value: np.ndarray, slow: np.ndarray
) -> Figure:
    """Loss, top singular values and sharpness in time; below, the last steps and the frequencies of the first two."""
    figure = canvas(13, 7.6)
    panels = figure.subplots(2, 3)
    (loss, values, sharp), (cycle, last, power) = panels
    step = run["step"].values
    loss.plot(step, run["loss"], color=TRAIN, lw=0.8)
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
    cycle.plot(step[shown], run["loss"][shown], color=TRAIN, lw=1)
    cycle.set(ylabel="loss", title="The last 256 steps: the slow clock")
    few = slice(-32, None)
    last.plot(step[few], run["values"].sel(layer=2)[few, 0], "o-", color=SIGNAL, lw=1, ms=3)
    last.set(ylabel="largest singular value, layer 2", title="The last 32 steps: the fast clock")
    for axes in (loss, cycle):
        axes.set_yscale("log")
    for axes in (loss, values, sharp, cycle, last):
        axes.set_xlabel("step")
    for share, colour, word in ((slow, TRAIN, "log loss"), (value, SIGNAL, "largest singular value, layer 2")):
        power.plot(frequency, np.cumsum(share), color=colour, lw=1.5, label=word)
    peak = frequency[np.argmax(slow)]
    power.axvline(peak, color=TRAIN, lw=0.9, ls=":", label=f"{1 / peak:.0f} steps")
    power.axvline(0.5, color=SIGNAL, lw=0.9, ls=":", label="2 steps")
    power.set(xlabel="frequency, per step", ylabel="share of the power up to there", title="Frequencies")
    power.legend(frameon=False, fontsize=9, loc="center", bbox_to_anchor=(0.55, 0.6))
    for axes in panels.ravel():
        tidy(axes)
    return figure
