"""The exact run beside a prediction of what a step size does."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from linnet import _check
from linnet._random import with_spectrum
from linnet.initial import identity, one_zero, orthogonal
from linnet.motion import Online
from linnet.predict.answer import Measured, Progress, hidden
from linnet.predict.stability_result import StabilityPrediction
from linnet.problems import factorisation, regression
from linnet.record import at
from linnet.simulation import simulate
from linnet.theory.mode_fate import KEEP, VISIBLE

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType

_MOST_STEPS, _RECORDS = 50_000, 800
_FADED = 15  # e^-15 of an imbalance counts as none


@dataclass(frozen=True, kw_only=True)
class MeasuredStabilityMode:
    """One mode u^T A v of the matrices."""

    low: float  # in the last 128 steps
    high: float
    error: float  # the largest difference from its chain of numbers, over the target, until cross components are seen


@dataclass(frozen=True, kw_only=True)
class MeasuredCross:
    """The entries of A between modes, over s_1."""

    largest: float
    visible_after: int | None  # the first recorded step at which one is above 1 %


@dataclass(frozen=True, kw_only=True)
class StabilityMeasured(Measured):
    """Training of the d x d matrices themselves, towards a target with random singular vectors; on batches if asked."""

    prediction: StabilityPrediction = hidden()
    status: str
    steps: int
    long_enough: bool  # to see where the modes end
    cross: MeasuredCross | None  # None for d = 1
    modes: tuple[MeasuredStabilityMode, ...]

    def plot(self) -> "Figure":
        """The bifurcation diagram, with what the run did at this step."""
        from linnet.plot.stability_predict import bifurcation

        return bifurcation(self.prediction, self)

    def __rich__(self) -> "RenderableType":
        from linnet.predict.words.stability import words

        return words(self.prediction, self)


def measure(said: StabilityPrediction, progress: Progress | None) -> StabilityMeasured:
    """Training of the matrices beside the chains of its modes."""
    s, d, depth, start = said.spectrum, said.d, said.depth, said.start
    left, right, turn = jax.random.split(jax.random.key(said.seed), 3)
    draws = jax.random.fold_in(jax.random.key(said.seed), 3)
    if start == "balanced":
        right = left  # from alpha I in every layer only a symmetric target is learned mode by mode
    values = np.pad(s, (0, d - len(s)))
    target, u, v = with_spectrum(left, right, values, d)
    problem, chain = factorisation(target), factorisation(values)
    maker = identity if start == "balanced" else one_zero
    shadow = maker(chain, said.alpha, depth)
    begin = orthogonal(turn, problem, said.alpha, depth) if start == "orthogonal" else maker(problem, said.alpha, depth)
    wanted = _wanted(said)
    steps = int(wanted) if wanted <= _MOST_STEPS else _MOST_STEPS // 10
    last = np.arange(max(0, steps - KEEP), steps)
    record = at(np.unique(np.concatenate([np.linspace(0, steps, _RECORDS).round(), last])))
    step = said.optimiser.motion(said.lr, said.unit)
    how: dict[str, Any] = {"steps": steps, "record": record}
    if said.batch is None:
        run = simulate(problem, begin, step, observe=["matrix"], progress=progress, **how)
    else:
        _check.fits("batch", said.batch, 2 * said.batch * d, f"{said.batch} samples a step")
        # white inputs, and labels that A_star fits
        fresh, noisy = regression(np.eye(d), target.T), said.optimiser.motion(said.lr, said.unit, Online(said.batch))
        run = simulate(fresh, begin, noisy, observe=["matrix"], progress=progress, key=draws, **how)
    beside = simulate(chain, shadow, step, observe=["modes"], **how)
    inner, taken = np.asarray(u).T @ np.asarray(run["matrix"]) @ np.asarray(v), np.asarray(run.steps)
    cross = _cross(inner, taken, s[0]) if d > 1 else None
    modes = np.diagonal(inner, axis1=1, axis2=2)[:, : len(s)]
    count = min(len(modes), len(beside["modes"]))
    broken = None if cross is None else cross.visible_after
    before = np.arange(count) if broken is None else np.flatnonzero(taken[:count] < broken)
    errors = np.max(np.abs(modes[before] - np.asarray(beside["modes"])[before, : len(s)]), axis=0) / s
    late = modes[taken >= max(0, taken[-1] - KEEP)]
    return StabilityMeasured(
        prediction=said,
        status=str(run.status),
        steps=int(run.ended),
        long_enough=bool(wanted <= _MOST_STEPS),
        cross=cross,
        modes=tuple(
            MeasuredStabilityMode(low=float(late[:, i].min()), high=float(late[:, i].max()), error=float(errors[i]))
            for i in range(len(s))
        ),
    )


def _wanted(said: StabilityPrediction) -> float:
    """Steps after which the modes have shown where they end; infinite where nobody knows."""
    leave = [mode.leaves_start_after for mode in said.modes]
    if any(map(math.isnan, leave)):
        return math.inf
    wanted = 2 * max((steps for steps in leave if said.optimiser.plain or math.isfinite(steps)), default=0.0) + 2000
    if said.cross is not None and said.cross.visible_after is not None:
        wanted = max(wanted, 1.3 * said.cross.visible_after.double)
    mu = said.optimiser.mu
    if mu:  # layers become alike at the rate of the decay, against which two layers are pulled where nothing is learned
        pulls = [mu - said.unit * mode.value for mode in said.modes if mode.rest == 0 and said.depth == 2]
        rate = said.lr * said.optimiser.speed * min([mu, *pulls])
        wanted += _FADED / rate if rate > 0 else math.inf
    return wanted


def _cross(inner: np.ndarray, taken: np.ndarray, first: float) -> MeasuredCross:
    off = np.max(np.abs(inner * (1 - np.eye(inner.shape[1]))), axis=(1, 2)) / first
    seen = off > VISIBLE
    return MeasuredCross(largest=float(off.max()), visible_after=int(taken[np.argmax(seen)]) if seen.any() else None)
