"""The picture of a network's prediction: its modes step by step, and where the step size lies."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from linnet.plot.style import NOISE, QUIET, SIGNAL, TEST, THEORY, canvas, tidy

_CURVES = 8
_COLOURS = {"lazy": QUIET, "mixed": TEST, "active": SIGNAL}


def network(
    answer: dict[str, Any],
    predicted: list[tuple[np.ndarray, np.ndarray]],
    measured: tuple[np.ndarray, np.ndarray] | None,
    out: Path,
) -> None:
    """Each mode's share against the step (with the exact descent if there is one), and what each mode's kernel does."""
    figure = canvas(11, 4.2)
    left, right = figure.subplots(1, 2, width_ratios=[2, 1])
    modes, lr = answer["modes"][:_CURVES], answer["lr"]
    colours = mpl.colormaps["viridis"](np.linspace(0, 0.85, len(modes)))
    settles = lr["outcome"] == "converges"
    halves = [mode["half_learned"]["step"] for mode in modes]
    known = [step for step in halves if np.isfinite(step) and step > 0]
    for i, (mode, colour) in enumerate(zip(modes, colours, strict=True)):
        steps, values = predicted[i]
        seen = np.isfinite(steps) & (steps > 0)
        left.plot(steps[seen], values[seen] / mode["value"], color=colour, lw=3, alpha=0.45)
        if mode["between"] is not None and mode["between"][1] - mode["between"][0] > 1e-6 * mode["value"]:
            for level in mode["between"]:
                left.axhline(level / mode["value"], color=colour, lw=1.5, alpha=0.6)
        if np.isfinite(halves[i]) and halves[i] > 0:
            left.plot(halves[i], 0.5, "o", color=colour, mec="white", ms=7, zorder=5)
            left.text(halves[i], 1.04 + 0.08 * (i % 2), f"{mode['value']:.3g}", color=colour, fontsize=8, ha="center")
    if measured is not None:
        steps, seen_modes = measured
        shares = seen_modes[1:, : len(modes)] / [mode["value"] for mode in modes]
        if settles:
            left.plot(steps[1:], shares, color=THEORY, lw=1.1, ls="--")
            left.plot([], [], color=THEORY, lw=1.1, ls="--", label="exact descent")
        else:  # lines between records of an orbit would only show how it was sampled
            left.plot(steps[1:], shares, ".", color=THEORY, ms=2.5)
            left.plot([], [], ".", color=THEORY, ms=5, label="exact descent")
    left.plot([], [], color=colours[0], lw=3, alpha=0.45, label="prediction")
    fit = answer["stopping"]["fit"]["step"]
    if np.isfinite(fit) and fit > 0:
        left.axvline(fit, color=NOISE, lw=1, ls=":", label="1 % of the excess loss left")
    window = answer["stopping"]["window"]
    if window is not None and window["open"]:
        begin, end = (window[name]["step"] for name in ("signal_learned", "noise_begins"))
        left.axvspan(begin, min(end, 1e3 * begin), color=SIGNAL, alpha=0.12, label="stop here")
    span = [*known, *([fit] if np.isfinite(fit) and fit > 0 else [])]
    if measured is not None:
        span.append(float(min(measured[0][-1], 30 * max(span, default=measured[0][-1]))))
    if span:
        left.set_xlim(max(min(span) / 30, 1e-3), 3 * max(span))
    top = 1.35 if settles else 2.0
    left.set(
        xscale="log",
        ylim=(0 if settles else -0.1, top),
        xlabel=f"step of gradient descent, lr = {lr['value']:.3g}",
        ylabel=r"$u_i^T A\,v_i\,/\,s_i$, learned share of mode $s_i$",
        title=answer["title"].replace("$", r"\$") or "When each mode is learned",
    )
    left.legend(frameon=False, fontsize=8, loc="upper left")

    place = np.arange(1, len(modes) + 1)
    growth = [min(mode["kernel_growth"], 1e12) for mode in modes]
    right.bar(place, growth, color=[_COLOURS[mode["regime"]] for mode in modes])
    for level in (1.1, 10.0):
        right.axhline(level, color=NOISE, lw=0.8, ls=":")
    for word, colour in _COLOURS.items():
        if any(mode["regime"] == word for mode in modes):
            right.bar([1], [0], color=colour, label=word)
    right.set(
        yscale="log",
        ylim=(min(0.9, 0.8 * min(growth)), 3 * max(*growth, 10)),
        xlabel="mode",
        ylabel="growth of its kernel",
        title="Lazy below 1.1, active above 10",
    )
    right.xaxis.set_major_locator(mpl.ticker.MaxNLocator(integer=True))
    right.legend(frameon=False, fontsize=8)
    for axes in (left, right):
        tidy(axes)
    figure.savefig(out)
