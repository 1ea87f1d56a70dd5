"""The exact descent beside a prediction of the phase."""

import math
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from linnet import observe
from linnet._check import InputError
from linnet.curves import crossing
from linnet.initial import gaussian
from linnet.motion import GradientDescent
from linnet.observe import Observable
from linnet.predict.answer import Progress, When
from linnet.predict.phase import DENSE, HALF, LEARNED, MeasuredMode, PhaseMeasured, PhasePrediction
from linnet.problems import Factorisation, low_rank_recovery
from linnet.simulation import simulate

_STEPS = 100_000  # the longest run


def measure(told: PhasePrediction, progress: Progress | None) -> PhaseMeasured:
    """Gradient descent at the full width, in compressed coordinates."""
    if told.d > DENSE:
        raise InputError(f"d = {told.d} is too large for the exact run: it needs d <= {DENSE}.")
    last = max(signal.learned.time for signal in told.signals) / told.lr
    steps = math.ceil(max(told.horizon, 1.1 * last))
    if steps > _STEPS:
        raise InputError(
            f"the run would take {steps} steps, and {_STEPS} are the most: choose a larger start or a smaller c_lr."
        )
    key = jax.random.key(told.seed)
    problem = told.problem
    if problem is None:
        problem = low_rank_recovery(key, told.d, told.rank, levels=told.levels)
    count = told.rank + (told.first_noise is not None)
    s = np.linalg.svd(np.asarray(problem.target), compute_uv=False)
    run = simulate(
        problem,
        gaussian(key, problem, told.width, told.variance),
        GradientDescent(told.lr),
        steps=steps,
        observe={"test": observe.test_error, "shares": _shares(count)},
        progress=progress,
    )
    test, shares, clock = (np.asarray(x) for x in (run["test"], run["shares"], run.steps))
    best = int(np.nanargmin(test))
    modes = tuple(
        MeasuredMode(
            value=float(s[i]),
            half_learned=_passed(clock, shares[:, i], HALF, told.lr),
            learned=_passed(clock, shares[:, i], LEARNED, told.lr),
        )
        for i in range(count)
    )
    return PhaseMeasured(
        prediction=told,
        status=run.status,
        steps=int(run.ended),
        signals=modes[: told.rank],
        first_noise=modes[told.rank] if count > told.rank else None,
        stop=When(told.lr * best, step=int(clock[best]), error=0.0),
        test_error=float(test[best]),
        test_errors=test,
    )


@lru_cache  # the same observable for the same count, so that what was compiled for it is found again
def _shares(count: int) -> Observable:
    """u_i^T A v_i over s_i for the first modes of the target."""

    def prepare(problem: Factorisation, _: Any) -> tuple[Any, Any, Any]:
        u, s, vt = jnp.linalg.svd(problem.target, full_matrices=False)
        return u[:, :count], s[:count], vt[:count]

    def shares(state: Any, _: Any, modes: tuple[Any, Any, Any]) -> Any:
        u, s, vt = modes
        return jnp.einsum("ik,ij,kj->k", u, state.matrix, vt) / s

    return Observable("shares", shares, None, prepare)


def _passed(clock: Int[np.ndarray, " steps"], shares: np.ndarray, level: float, lr: float) -> When | None:
    """The first step there; None where the run ends before."""
    step = crossing(clock, shares, level, "records")
    return None if math.isnan(step) else When(lr * step, step=int(step), error=0.0)
