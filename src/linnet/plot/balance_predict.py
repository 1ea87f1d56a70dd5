"""The picture of a prediction of balance: modes and kernel on one task, and on the one that follows."""

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from linnet.plot.style import NOISE, SIGNAL, THEORY, canvas, tidy
from linnet.predict.balance_result import (
    REVERSAL,
    BalanceLearning,
    BalanceMeasured,
    BalancePrediction,
    MeasuredLearning,
)

_CURVES = 8


def balance(said: BalancePrediction, seen: BalanceMeasured | None = None) -> Figure:
    """Modes in time on both tasks, and how far the tangent kernel moves; with the layers' own flow if there is one."""
    figure = canvas(13, 4.2)
    left, middle, right = figure.subplots(1, 3)
    _modes(left, said, seen)
    left.set(title=rf"{said.regime.capitalize()}: $\lambda$ = {said.lam:.3g}", xlabel="time of gradient flow")
    _kernel(middle, said, seen)
    then = said.switch
    _modes(right, then, None if seen is None else seen.switch)
    task = "Reversal, now $-Y$" if then.to == REVERSAL else "Another target"
    right.set(title=task + (": stuck at a saddle" if then.saddle else ""), xlabel="time since the switch")
    for axes in (left, middle, right):
        tidy(axes)
    return figure


def _modes(axes: Axes, said: BalanceLearning, seen: MeasuredLearning | None) -> None:
    closed, shown = said.curves(), said.modes[:_CURVES]
    for i, colour in enumerate(mpl.colormaps["viridis"](np.linspace(0, 0.85, len(shown)))):
        mode = shown[i]
        axes.plot(closed.time, closed.modes[:, i], color=colour, lw=3, alpha=0.45, label=f"s = {mode.value:.3g}")
        axes.axhline(mode.value, color=colour, lw=0.8, ls=":")
        if np.isfinite(mode.half_learned.time) and mode.half_learned.time > 0:
            axes.plot(mode.half_learned.time, mode.value / 2, "o", color=colour, mec="white", ms=7, zorder=5)
    if seen is not None:
        axes.plot(seen.curves.time, seen.curves.modes[:, : len(shown)], color=THEORY, lw=1.1, ls="--")
        axes.plot([], [], color=THEORY, lw=1.1, ls="--", label="exact flow of layers")
    axes.plot([], [], "o", color=NOISE, mec="white", ms=7, label="half learned")
    axes.set_ylabel(r"$u_i^T A\, v_i$")
    axes.legend(frameon=False, fontsize=8)


def _kernel(axes: Axes, said: BalancePrediction, seen: BalanceMeasured | None) -> None:
    closed = said.curves()
    axes.plot(closed.time, closed.kernel_change, color=SIGNAL, lw=3, alpha=0.45, label="closed form")
    axes.axhline(said.kernel_change, color=SIGNAL, lw=0.8, ls=":", label=f"in the end, {said.kernel_change:.3g}")
    if seen is not None:
        axes.plot(seen.curves.time, seen.curves.kernel_change, color=THEORY, lw=1.1, ls="--", label="exact flow")
    axes.set(
        title="The tangent kernel moves",
        xlabel="time of gradient flow",
        ylabel=r"$|\Theta - \Theta_0|\,/\,|\Theta_0|$",
        ylim=(0, None),
    )
    axes.legend(frameon=False, fontsize=8)
