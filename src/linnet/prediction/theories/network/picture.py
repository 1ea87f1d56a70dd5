"""The panels of a network's prediction: the modes over the steps, and the change of their kernels."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from linnet.prediction.panel import Curve, Panel
from linnet.prediction.prediction import Comparison, Prediction, Row
from linnet.prediction.theories.network.modes import HALF
from linnet.prediction.theories.network.shown import oscillates
from linnet.prediction.theories.network.verdict import NetworkOutcome
from linnet.theory.regime import LAZY_BELOW, RICH_ABOVE, Regime

_CURVES = 8
_COLORS = {Regime.LAZY: "quiet", Regime.MIXED: "test", Regime.RICH: "signal"}


def panels(prediction: Prediction, comparison: Comparison | None) -> Sequence[Panel]:
    """Learned shares of the modes, with the exact run if there is one; growth of their kernels."""
    return [_shares(prediction, comparison), _kernels(prediction.modes[:_CURVES])]


def mode_curve(prediction: Prediction, i: int) -> tuple[Float[np.ndarray, " points"], Float[np.ndarray, " points"]]:
    """Steps, and u_i^T A v_i of mode i (from 0) there."""
    values, times = prediction.data["analysis"].times.curve(i)
    return times / prediction.lr, values


def _shares(prediction: Prediction, comparison: Comparison | None) -> Panel:
    lr = prediction.lr
    measured = None if comparison is None else prediction.data["training"].shares(comparison.run)
    curves, marks = [], []
    for i, mode in enumerate(prediction.modes[:_CURVES]):
        steps, values = mode_curve(prediction, i)
        shown = np.isfinite(steps) & (steps > 0)
        color = f"C{i}"
        label = f"mode {i + 1}, s = {mode.value:.3g}"
        curves.append(Curve(label, steps[shown], values[shown] / mode.value, "theory", color))
        if oscillates(mode):
            levels = np.array(mode.between) / mode.value
            curves.append(Curve("", levels, levels, "horizontal", color, labeled=False))
        half = mode.half_learned.step
        if half is not None and 0 < half < np.inf:
            marks.append(half)
            error = mode.half_learned.error or 0.0
            ends = np.array([half * (1 - min(error, 0.9)), half * (1 + error)])
            curves.append(Curve("", ends, np.full(2, HALF), "line", color, labeled=False))
            curves.append(Curve("", np.array([half]), np.array([HALF]), "points", color, labeled=False))
        if measured is not None:
            clock, shares = measured
            curves.append(Curve("", clock[clock > 0], shares[clock > 0, i], "measured", color, labeled=False))
    events = {"1 % of the excess loss left": (prediction.fit, "noise"), "99 % learned": (prediction.learned, "test")}
    if prediction.stop is not None and prediction.stop.open:
        events |= {"signal learned": (prediction.stop.signal_learned, "signal")}
        events |= {"noise begins": (prediction.stop.noise_begins, "quiet")}
    for name, (time, color) in events.items():
        if 0 < time.step < np.inf:
            marks.append(time.step)
            curves.append(Curve(name, np.array([time.step]), np.zeros(1), "vertical", color))
    converges = prediction.outcome is NetworkOutcome.CONVERGES
    title = prediction.title if "title" in prediction else ""
    return Panel(
        tuple(curves),
        title.replace("$", r"\$") or "When each mode is learned",
        f"step, lr = {lr:.3g}",
        r"learned share $u_i^T A\,v_i\,/\,s_i$",
        "x",
        (max(min(marks) / 30, 1e-3), 3 * max(marks)) if marks else None,
        (0, 1.35) if converges else (-0.1, 2.0),
    )


def _kernels(modes: Sequence[Row]) -> Panel:
    curves = []
    for regime, color in _COLORS.items():
        chosen = [i for i, mode in enumerate(modes) if mode.regime is regime and np.isfinite(mode.kernel_growth)]
        if chosen:
            growth = np.array([modes[i].kernel_growth for i in chosen])
            curves.append(Curve(str(regime), np.array(chosen) + 1, growth, "bars", color))
    edges = np.array([LAZY_BELOW, RICH_ABOVE])
    curves.append(Curve("lazy below, rich above", np.arange(2), edges, "horizontal", "quiet"))
    return Panel(tuple(curves), "What each mode's kernel does", "mode", "growth of the kernel", "y")
