"""The picture of a prediction from I_gamma: modes one after another, and what they leave in the first layer."""

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from linnet.plot.style import NOISE, QUIET, SIGNAL, THEORY, canvas, tidy
from linnet.predict.bias import BiasMeasured, BiasPrediction
from linnet.theory.regime import Regime

_CURVES, _BARS = 8, 24


def bias(said: BiasPrediction, seen: BiasMeasured | None = None) -> Figure:
    """Modes of A and singular values of W_1 in time (with the exact flow if there is one), and W_1 at the end."""
    figure = canvas(13, 4.2)
    left, middle, right = figure.subplots(1, 3)
    _in_time(left, middle, said, seen)
    _at_the_end(right, said)
    for axes in (left, middle, right):
        tidy(axes)
    return figure


def _in_time(left: Axes, middle: Axes, said: BiasPrediction, seen: BiasMeasured | None) -> None:
    modes, start = said.modes[:_CURVES], said.first_layer.start
    clock, curves, first = said.curves()
    colours = mpl.colormaps["viridis"](np.linspace(0, 0.85, len(modes)))
    for i, (mode, colour) in enumerate(zip(modes, colours, strict=True)):
        half = mode.half_learned.time
        left.plot(clock, curves[:, i] / mode.value, color=colour, lw=3, alpha=0.45)
        left.plot(half, 0.5, "o", color=colour, mec="white", ms=7, zorder=5)
        # neighbours at two heights
        left.text(half, 1.03 + 0.08 * (i % 2), f"{mode.value:.3g}", color=colour, fontsize=8, ha="center", va="bottom")
        left.axvline(half, ymax=1 / 1.45, color=colour, lw=0.8, ls=":")
        middle.plot(clock, first[:, i], color=colour, lw=3, alpha=0.45)
        middle.axvline(half, color=colour, lw=0.8, ls=":")
    exact = all(mode.half_learned.exact for mode in modes)
    known = all(mode.half_learned.error is not None for mode in modes)
    word = "theory, exact" if exact else "integrated" if known else "estimate from the predictor's directions"
    left.plot([], [], color=colours[0], lw=3, alpha=0.45, label=word)
    left.plot([], [], "o", color=colours[0], mec="white", ms=7, label="half learned")
    last = clock[-1]
    if seen is not None:
        times, found, layer = seen.curves
        left.plot(times[1:], found[1:, : len(modes)] / [mode.value for mode in modes], color=THEORY, lw=1.1, ls="--")
        middle.plot(times[1:], layer[1:, : len(modes) + 1], color=THEORY, lw=1.1, ls="--")
        left.plot([], [], color=THEORY, lw=1.1, ls="--", label="exact flow")
        last = max(clock[-1], min(times[-1], 3 * clock[-1]))
    left.set(
        ylabel=r"$u_i^T A\, v_i\,/\,s_i$,  learned share of mode $s_i$", title="One mode after another", ylim=(0, 1.45)
    )
    left.legend(frameon=False, fontsize=8, loc="upper left")
    middle.axhline(start, color=NOISE, lw=1, label=r"start, $\sqrt{2\gamma}$" + f" = {start:.3g}")
    middle.set(ylabel="singular values of $W_1$", title="The first layer grows with them", yscale="log")
    middle.legend(frameon=False, fontsize=8, loc="upper left")
    for axes in (left, middle):
        axes.set(xscale="log", xlabel="time of gradient flow", xlim=(clock[0], last))


def _at_the_end(axes: Axes, said: BiasPrediction) -> None:
    shown, layer = said.modes[:_BARS], said.first_layer
    shades = [SIGNAL if mode.regime is Regime.RICH else QUIET for mode in shown]
    rest = min(layer.unmoved, _BARS - len(shown))
    place = np.arange(1, len(shown) + rest + 1)
    axes.bar(place, [mode.first_layer for mode in shown] + [layer.start] * rest, color=shades + ["0.88"] * rest)
    axes.axhline(layer.start, color=NOISE, lw=1)
    for shade, label in (
        (SIGNAL, r"rich: $s_i > \gamma$"),
        (QUIET, r"lazy: $s_i \leq \gamma$"),
        ("0.88", f"{layer.unmoved} that stay at the start"),
    ):
        if shade in shades or (shade == "0.88" and rest):
            axes.bar([1], [0], color=shade, label=label)
    axes.plot([], [], color=NOISE, lw=1, label=r"start, $\sqrt{2\gamma}$")
    axes.set(
        xlabel="index" if place.size == said.inputs else f"index (the first {place.size} of {said.inputs})",
        ylabel="singular values of $W_1$ at the end",
        title=f"{said.regime.capitalize()}: {layer.rank} of {said.inputs} values of the first layer grow",
    )
    axes.xaxis.set_major_locator(mpl.ticker.MaxNLocator(integer=True))
    axes.legend(frameon=False, fontsize=8)
