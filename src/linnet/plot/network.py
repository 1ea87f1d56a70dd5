"""The picture of a network's prediction: its modes step by step, and where the step size lies."""

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from linnet.plot.style import NOISE, QUIET, SIGNAL, TEST, canvas, tidy
from linnet.predict.network import NetworkMeasured, NetworkMode, NetworkPrediction
from linnet.theory.regime import LAZY_BELOW, RICH_ABOVE, Regime

_CURVES = 8
_DOUBT = 0.01  # an error that is seen on a logarithmic axis
_COLOURS = {Regime.LAZY: QUIET, Regime.MIXED: TEST, Regime.RICH: SIGNAL}


def network(said: NetworkPrediction, seen: NetworkMeasured | None = None) -> Figure:
    """Each mode's share against the step (with the exact descent if there is one), and what each mode's kernel does."""
    figure = canvas(11, 4.2)
    left, right = figure.subplots(1, 2, width_ratios=[2, 1])
    modes = said.modes[:_CURVES]
    colours = mpl.colormaps["viridis"](np.linspace(0, 0.85, len(modes)))
    _shares(left, said, modes, colours)
    if seen is not None:
        _descent(left, said, seen, colours)
    left.plot([], [], color=colours[0], lw=3, alpha=0.45, label="prediction")
    span = [*(x for mode in modes if (x := _shown(mode.half_learned.step)) is not None)]
    fit = _shown(said.fit.step)
    if fit is not None:
        left.axvline(fit, color=NOISE, lw=1, ls=":", label="1 % of the excess loss left")
        span.append(fit)
    learned = _shown(said.learned.step)
    if learned is not None:
        left.axvline(learned, color=NOISE, lw=1, ls="-.", label="99 % learned")
        span.append(learned)
    if said.stop is not None and said.stop.open:
        begin, end = said.stop.signal_learned.time / said.lr, said.stop.noise_begins.time / said.lr
        left.axvspan(begin, min(end, 1e3 * begin), color=SIGNAL, alpha=0.12, label="stop here")
    if seen is not None:
        last = float(seen.curves.steps[-1])
        span.append(min(last, 30 * max(span, default=last)))
    if span:
        left.set_xlim(max(min(span) / 30, 1e-3), 3 * max(span))
    left.set(
        xscale="log",
        ylim=(0, 1.35) if said.settles else (-0.1, 2.0),
        xlabel=f"step of gradient descent, lr = {said.lr:.3g}",
        ylabel=r"$u_i^T A\,v_i\,/\,s_i$, learned share of mode $s_i$",
        title=said.title.replace("$", r"\$") or "When each mode is learned",
    )
    left.legend(frameon=False, fontsize=8, loc="upper left")
    _kernels(right, modes)
    for axes in (left, right):
        tidy(axes)
    return figure


def _shown(step: float | None) -> float | None:
    """A step that has a place on a logarithmic axis."""
    return step if step is not None and np.isfinite(step) and step > 0 else None


def _shares(axes: Axes, said: NetworkPrediction, modes: Sequence[NetworkMode], colours: Any) -> None:
    for i, (mode, colour) in enumerate(zip(modes, colours, strict=True)):
        steps, values = said.curve(i)
        seen = np.isfinite(steps) & (steps > 0)
        axes.plot(steps[seen], values[seen] / mode.value, color=colour, lw=3, alpha=0.45)
        if mode.between is not None and mode.oscillates:
            for level in mode.between:
                axes.axhline(level / mode.value, color=colour, lw=1.5, alpha=0.6)
        half, error = _shown(mode.half_learned.step), mode.half_learned.error
        if half is not None:
            if error is not None and error > _DOUBT:
                axes.plot([half * (1 - min(error, 0.9)), half * (1 + error)], [0.5, 0.5], color=colour, lw=2)
            axes.plot(half, 0.5, "o", color=colour, mec="white", ms=7, zorder=5)
            height = (1.04 if said.settles else 1.4) + 0.08 * (i % 2)  # above the levels of an orbit
            axes.text(half, height, f"{mode.value:.3g}", color=colour, fontsize=8, ha="center")


def _dark(colour: Any) -> Any:
    """The same colour, to be seen on itself."""
    return (*(0.6 * np.asarray(colour[:3])), 1.0)


def _descent(axes: Axes, said: NetworkPrediction, seen: NetworkMeasured, colours: Any) -> None:
    steps, values = seen.curves
    count = len(colours)
    shares = values[1:, :count] / [mode.value for mode in said.modes[:count]]
    # lines between records of an orbit would only show how it was sampled
    style: dict[str, Any] = {"lw": 1.2, "ls": "--"} if said.settles else {"ls": "", "marker": ".", "ms": 2.5}
    for share, colour in zip(shares.T, colours, strict=True):
        axes.plot(steps[1:], share, color=_dark(colour), **style)
    name = "exact descent" if said.batch is None else f"descent on batches of {said.batch}"
    axes.plot([], [], color=_dark(colours[0]), **style, label=name)


def _kernels(axes: Axes, modes: Sequence[NetworkMode]) -> None:
    growth = [min(mode.kernel_growth, 1e12) for mode in modes]
    axes.bar(np.arange(1, len(modes) + 1), growth, color=[_COLOURS[mode.regime] for mode in modes])
    for level in (LAZY_BELOW, RICH_ABOVE):
        axes.axhline(level, color=NOISE, lw=0.8, ls=":")
    for regime, colour in _COLOURS.items():
        if any(mode.regime is regime for mode in modes):
            axes.bar([1], [0], color=colour, label=regime)
    axes.set(
        yscale="log",
        ylim=(min(0.9, 0.8 * min(growth)), 3 * max(*growth, 10)),
        xlabel="mode",
        ylabel="growth of its kernel",
        title=f"Lazy below {LAZY_BELOW:g}, rich above {RICH_ABOVE:g}",
    )
    axes.xaxis.set_major_locator(mpl.ticker.MaxNLocator(integer=True))
    axes.legend(frameon=False, fontsize=8)
