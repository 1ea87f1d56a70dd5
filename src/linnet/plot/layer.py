"""The picture of a layer's linear theory: its loss beside the network's, and its modes."""

import numpy as np
from matplotlib.figure import Figure

from linnet.plot.style import NOISE, QUIET, SIGNAL, TEST, THEORY, TRAIN, canvas, tidy
from linnet.predict.layer_result import LayerMeasured, LayerPrediction


def layer(said: LayerPrediction, seen: LayerMeasured | None = None) -> Figure:
    """The loss against the step (with both runs if there are any), and curvature and share of every mode."""
    figure = canvas(10, 3.8)
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])
    steps, name = said.curves.steps, "all that moves" if said.layer is None else f"$W_{{{said.layer}}}$"
    left.plot(steps, said.curves.loss, color=THEORY, lw=1.4, ls="--", label=f"linear theory of {name}")
    left.plot(steps, said.curves.there, color=QUIET, lw=1.2, ls=":", label="the network at its weights")
    top = said.loss.start
    for run, colour, words in _runs(seen, name):
        left.plot(steps[: run.size], run, color=colour, lw=2.2, alpha=0.6, label=words)
        top = max(top, float(np.max(run[np.isfinite(run)])))
    left.set(xlabel=f"step of gradient descent, lr = {said.lr:.3g}", ylabel="loss", ylim=(0, 1.15 * top))
    left.legend(frameon=False, fontsize=9)
    places = np.arange(len(said.modes)) + 1
    right.bar(places, [100 * mode.share for mode in said.modes], color=SIGNAL, alpha=0.5)
    right.set(xlabel="mode", xticks=places)
    right.set_ylabel("share of the loss in %", color=SIGNAL)
    beside = right.twinx()
    beside.plot(places, [mode.curvature for mode in said.modes], "o-", color=NOISE, ms=4, lw=1)
    beside.axhline(2 / said.lr, color=THEORY, lw=1, ls="--")
    beside.set(yscale="log")
    beside.set_ylabel("curvature (dashes: 2/lr)", color=NOISE)
    beside.spines["top"].set_visible(False)
    for axes in (left, right):
        tidy(axes)
    return figure


def _runs(seen: LayerMeasured | None, name: str) -> list[tuple[np.ndarray, str, str]]:
    """Losses with a colour and words."""
    if seen is None:
        return []
    both = [(seen.alone.curve, TRAIN, f"{name} alone" if seen.everything is not None else name)]
    return both if seen.everything is None else [*both, (seen.everything.curve, TEST, "everything moves")]
