"""The picture of a prediction from I_gamma: modes one after another, and what they leave in the first layer."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from linnet.plot.style import NOISE, QUIET, SIGNAL, THEORY, canvas, tidy

_CURVES, _BARS = 8, 24


def bias(
    answer: dict[str, Any],
    predicted: tuple[np.ndarray, np.ndarray],
    measured: tuple[np.ndarray, np.ndarray, np.ndarray] | None,
    out: Path,
) -> None:
    """Modes of A and singular values of W_1 in time (with the exact flow if there is one), and W_1 at the end."""
    figure = canvas(13, 4.2)
    left, middle, right = figure.subplots(1, 3)
    gamma, start = answer["gamma"], answer["first_layer"]["start"]
    modes = answer["modes"][:_CURVES]
    exact = all(mode["half_learned"]["exact"] for mode in modes)
    clock, curves = predicted
    colours = mpl.colormaps["viridis"](np.linspace(0, 0.85, len(modes)))
    for i, (mode, colour) in enumerate(zip(modes, colours, strict=True)):
        half = mode["half_learned"]["time"]
        left.plot(clock, curves[:, i] / mode["value"], color=colour, lw=3, alpha=0.45)
        left.plot(half, 0.5, "o", color=colour, mec="white", ms=7, zorder=5)
        # neighbours at two heights
        height = 1.03 + 0.08 * (i % 2)
        left.text(half, height, f"{mode['value']:.3g}", color=colour, fontsize=8, ha="center", va="bottom")
        left.axvline(half, ymax=1 / 1.45, color=colour, lw=0.8, ls=":")
        # layer values follow from those of A at all times
        middle.plot(clock, np.sqrt(np.hypot(curves[:, i], gamma) + gamma), color=colour, lw=3, alpha=0.45)
        middle.axvline(half, color=colour, lw=0.8, ls=":")
    if measured is not None:
        times, seen, first = measured
        left.plot(times[1:], seen[1:, : len(modes)] / [mode["value"] for mode in modes], color=THEORY, lw=1.1, ls="--")
        middle.plot(times[1:], first[1:, : len(modes) + 1], color=THEORY, lw=1.1, ls="--")
    word = "theory, exact" if exact else "estimate from the predictor's directions"
    left.plot([], [], color=colours[0], lw=3, alpha=0.45, label=word)
    left.plot([], [], "o", color=colours[0], mec="white", ms=7, label="half learned")
    if measured is not None:
        left.plot([], [], color=THEORY, lw=1.1, ls="--", label="exact flow")
    left.set(
        ylabel=r"$u_i^T A\, v_i\,/\,s_i$,  learned share of mode $s_i$", title="One mode after another", ylim=(0, 1.45)
    )
    left.legend(frameon=False, fontsize=8, loc="upper left")
    middle.axhline(start, color=NOISE, lw=1, label=r"start, $\sqrt{2\gamma}$" + f" = {start:.3g}")
    middle.set(ylabel="singular values of $W_1$", title="The first layer grows with them", yscale="log")
    middle.legend(frameon=False, fontsize=8, loc="upper left")
    last = clock[-1] if measured is None else max(clock[-1], min(measured[0][-1], 3 * clock[-1]))
    for axes in (left, middle):
        axes.set(xscale="log", xlabel="time of gradient flow", xlim=(clock[0], last))

    shown = answer["modes"][:_BARS]
    heights = [mode["first_layer"] for mode in shown]
    shades = [SIGNAL if mode["regime"] == "rich" else QUIET for mode in shown]
    rest = min(answer["first_layer"]["unmoved"], _BARS - len(shown))
    place = np.arange(1, len(shown) + rest + 1)
    right.bar(place, heights + [start] * rest, color=shades + ["0.88"] * rest)
    right.axhline(start, color=NOISE, lw=1)
    for shade, label in (
        (SIGNAL, r"rich: $s_i > \gamma$"),
        (QUIET, r"lazy: $s_i \leq \gamma$"),
        ("0.88", f"{answer['first_layer']['unmoved']} that stay at the start"),
    ):
        if shade in shades or (shade == "0.88" and rest):
            right.bar([1], [0], color=shade, label=label)
    right.plot([], [], color=NOISE, lw=1, label=r"start, $\sqrt{2\gamma}$")
    right.set(
        xlabel="index" if place.size == answer["d_in"] else f"index (the first {place.size} of {answer['d_in']})",
        ylabel="singular values of $W_1$ at the end",
        title=f"{answer['regime'].capitalize()}: the first layer ends with rank {answer['first_layer']['rank']}",
    )
    right.xaxis.set_major_locator(mpl.ticker.MaxNLocator(integer=True))
    right.legend(frameon=False, fontsize=8)
    for axes in (left, middle, right):
        tidy(axes)
    figure.savefig(out)
