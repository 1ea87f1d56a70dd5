"""The layers' own flow beside a prediction of balance."""

import math
from typing import Any

import numpy as np

from linnet import curves
from linnet.motion import GradientFlow
from linnet.predict.answer import Progress, When
from linnet.predict.balance_course import HALF, NEAR, in_numpy, kernel_change
from linnet.predict.balance_result import (
    BalanceLearning,
    BalanceMeasured,
    BalancePrediction,
    Curves,
    MeasuredBalanceMode,
    MeasuredLearning,
)
from linnet.problems import factorisation
from linnet.record import at
from linnet.simulation import simulate


def measure(told: BalancePrediction, progress: Progress | None) -> BalanceMeasured:
    """Both tasks, each by an adaptive solver from where the prediction has it start."""
    found = []
    for done, part in enumerate((told, told.switch)):
        found.append(_followed(part))
        if progress is not None:
            progress(done + 1, 2)
    return BalanceMeasured(prediction=told, switch=MeasuredLearning(**found[1]), **found[0])


def _followed(told: BalanceLearning) -> dict[str, Any]:
    way, closed = told.course, told.curves()
    c, s = way.curvature, way.triplets.values
    run = simulate(
        factorisation(way.target),
        way.start,
        GradientFlow(rtol=1e-10),
        time=float(c * closed.time[-1]),
        record=at(c * closed.time),
        observe=["matrix", "input_gram", "output_gram"],
    )
    seen = in_numpy(run[name] for name in ("matrix", "input_gram", "output_gram"))
    count, clock = len(told.modes), np.asarray(run.times) / c
    u, _, v = way.triplets
    modes = np.einsum("ok,toi,ik->tk", u, seen.matrix, v)[:, :count]
    kernel = kernel_change(way.first, seen)
    gaps = np.abs(modes - closed.modes[: len(clock)]), np.abs(kernel - closed.kernel_change[: len(clock)])
    return {
        "status": run.status,
        "ended": float(run.ended) / c,
        "modes": tuple(
            MeasuredBalanceMode(
                half_learned=_first(clock, modes[:, i] / s[i] - HALF),
                learned=_for_good(clock, np.abs(modes[:, i] / s[i] - 1)),
            )
            for i in range(count)
        ),
        "kernel_change": float(kernel[-1]),
        "largest_gap_in_modes": float(np.max(gaps[0]) / s[0]),
        "largest_gap_in_kernel": float(np.max(gaps[1]) / (np.max(closed.kernel_change) or 1.0)),
        "curves": Curves(clock, modes, kernel),
    }


def _first(clock: np.ndarray, curve: np.ndarray) -> When:
    return When(curves.crossing(clock, curve, 0.0), error=0.0)


def _for_good(clock: np.ndarray, left: np.ndarray) -> When:
    """When what is left has fallen below its share for the last time."""
    outside = np.flatnonzero(left > NEAR)
    if not outside.size:
        return When(0.0, error=0.0)
    if outside[-1] == len(clock) - 1:
        return When(math.nan, error=0.0)
    late = slice(int(outside[-1]), None)
    return When(curves.crossing(clock[late], -np.log(np.maximum(left[late], 1e-300)), -math.log(NEAR)), error=0.0)
