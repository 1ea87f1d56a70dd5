"""The layers' own flow beside a prediction of rates."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from linnet import curves
from linnet._check import InputError
from linnet.motion import GradientFlow
from linnet.observe import observable
from linnet.predict.answer import Progress, When
from linnet.predict.rates import FAR, NEAR, Curves, RatesMeasured, RatesPrediction
from linnet.problems import factorisation
from linnet.record import at
from linnet.simulation import simulate
from linnet.states import RankOne
from linnet.theory.convergence import Coordinates


def measure(told: RatesPrediction, progress: Progress | None) -> RatesMeasured:
    """By an adaptive solver."""
    if not 1e-10 <= told.start.scale <= 1e4:
        raise InputError(f"scale = {told.start.scale:g} cannot be measured: a solver follows starts from 1e-10 to 1e4.")
    closed, c, z1, best = told.curves(), told.curvature, told.spectrum[0], _end(told)
    run = simulate(
        factorisation(told.target),
        RankOne.balanced(told.start.size, told.left, told.right, told.depth),
        GradientFlow(rtol=1e-10),
        time=float(c * closed.time[-1]),
        record=at(c * closed.time),
        observe=[_factors],
        progress=progress,
    )
    factors = (np.split(both, [len(best)]) for both in np.asarray(run["_factors"]))
    sizes = [(np.linalg.norm(np.outer(y, x) - best), np.linalg.norm(y) * np.linalg.norm(x)) for y, x in factors]
    seen = Curves(np.asarray(run.times) / c, *(np.array(sizes).T / z1))
    count = len(seen.time)
    grown = None if told.half_grown is None else _when(seen.time, seen.size, 0.5)
    return RatesMeasured(
        prediction=told,
        status=run.status,
        ended=float(run.ended) / c,
        far_phase_ends=_when(seen.time, -seen.size, -FAR),
        half_grown=grown,
        learned=_when(seen.time, -np.log(np.maximum(seen.distance, 1e-300)), -math.log(NEAR)),
        largest_gap_in_distance=float(np.max(np.abs(seen.distance - closed.distance[:count]))),
        largest_relative_gap_in_size=float(np.max(np.abs(seen.size / closed.size[:count] - 1))),
        curves=seen,
    )


def _end(told: RatesPrediction) -> Float[np.ndarray, "d_out d_in"]:
    """What distances are measured to: the end of the flow, or the best fit where it ends at zero."""
    p, values, qt = np.linalg.svd(told.target)
    goal = told.goal
    if float(goal.s) == 0:
        first = np.eye(len(goal.a))[0]
        goal = Coordinates(values[0], first, first, goal.z)
    return np.asarray(float(goal.s) * np.outer(p @ np.asarray(goal.a)[: len(p)], qt.T @ np.asarray(goal.b)[: len(qt)]))


@observable("entry")
def _factors(state: RankOne, problem: Any) -> Float[Array, " entries"]:
    """y and x of A = y x^T"""
    y = state.y if state.w is None else state.w ** (state.depth - 2) * state.y
    return jnp.concatenate([y, state.x])


def _when(clock: np.ndarray, curve: np.ndarray, level: float) -> When:
    return When(curves.crossing(clock, curve, level), error=0.0)
