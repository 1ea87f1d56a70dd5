"""The picture of `predict stability`."""

import math

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from linnet.plot.style import NOISE, SIGNAL, THEORY, canvas, tidy
from linnet.predict.answer import plural
from linnet.predict.stability_result import StabilityPrediction
from linnet.predict.stability_run import StabilityMeasured


def bifurcation(said: StabilityPrediction, seen: StabilityMeasured | None = None) -> Figure:
    """Where every mode goes, by step size: points of its orbit, with this step, the thresholds and the run marked."""
    figure = canvas(9, 5)
    axes = figure.subplots()
    rates, values = said.diagram()
    count = values.shape[1]
    colours = [SIGNAL, *np.asarray(mpl.colormaps["viridis"](np.linspace(0.1, 0.8, max(1, count - 1))))]
    for i in reversed(range(count)):
        label = f"mode {i + 1}, target {said.modes[i].value:g}"
        axes.plot(np.repeat(rates, values.shape[2]), values[:, i].ravel(), ",", color=colours[i], rasterized=True)
        axes.plot([], [], "o", ms=4, color=colours[i], label=label)
    first = said.modes[0].thresholds
    marks = (
        (first.oscillates, "period 2", "center"),
        (first.doubles, "period 4", "right"),
        (first.chaos, " chaos", "left"),
    )
    for where, word, side in marks:
        if where is not None and rates[0] < where < rates[-1]:
            axes.axvline(where, color=NOISE, lw=0.8, ls=":")
            axes.text(where, 1.01, word, transform=axes.get_xaxis_transform(), fontsize=8, color=NOISE, ha=side)
    mixing = math.nan if said.cross is None else said.cross.orbit_lr
    if rates[0] < mixing < rates[-1]:
        axes.axvline(mixing, color=NOISE, lw=1, ls="-.", label="modes 1 and 2 mix, out of rounding")
    inside = rates[0] <= said.lr <= rates[-1]
    told = f"lr = {said.lr:.4g}"
    if inside:
        axes.axvline(said.lr, color=THEORY, lw=1.4, label=told)
        if seen is not None and seen.status != "diverged":
            for i, mode in enumerate(seen.modes[:count]):
                axes.plot([said.lr] * 2, [mode.low, mode.high], "D", ms=6, mfc="none", mew=1.4, color=colours[i])
            axes.plot([], [], "D", ms=6, mfc="none", mew=1.4, color=THEORY, label="exact run, its last steps")
    axes.set(
        xlabel="step size, loss "
        + ("$|A - A_*|^2/2$" if said.unit == 1 else "$|A - A_*|^2$")
        + ("" if inside else f"  ({told} lies beyond)"),
        ylabel="modes $u_i^T A\\, v_i$",
        xlim=(rates[0], rates[-1]),
    )
    how = "" if said.optimiser.plain else f", {said.optimiser.words()}"
    axes.set_title(f"{plural(said.depth, 'layer')}, balanced modes{how}", pad=18)
    if said.depth == 1 or not np.isfinite(values).any():
        axes.set_ylim(0, 1.5 * said.modes[0].value)
    tidy(axes)
    shown, names = axes.get_legend_handles_labels()
    order = [*reversed(range(count)), *range(count, len(names))]
    listed = [shown[i] for i in order], [names[i] for i in order]
    axes.legend(*listed, frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure
