"""The exact run beside a prediction of stability."""

import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from linnet import _check, observe
from linnet._random import with_spectrum
from linnet.init import identity, one_zero, orthogonal
from linnet.optim import SGD
from linnet.prediction.prediction import ExactRun, Prediction, Progress, Quantity, Row
from linnet.prediction.theories.aligned_modes import AlignedModes
from linnet.problems import Factorization, regression
from linnet.record import at
from linnet.simulation import simulate
from linnet.states import Modes, Weights
from linnet.theory.mode_fate import KEEP, VISIBLE

if TYPE_CHECKING:
    from linnet.trajectory import Trajectory

_MOST_STEPS, _RECORDS = 50_000, 800
_FADED = 15  # e^-15 of an imbalance counts as none


class Triple(NamedTuple):
    """What is simulated, the key of its batches, and the singular vectors of the target (None for `Modes`)."""

    problem: Any
    network: Any
    optimizer: Any
    key: Any
    u: Float[np.ndarray, "d d"] | None
    v: Float[np.ndarray, "d d"] | None


def experiment(
    modes: AlignedModes, problem: Any, network: Any, optimizer: SGD, rows: tuple[Row, ...], cross: Row | None
) -> ExactRun:
    """Training of the network itself beside the maps of its modes."""
    key = None if optimizer.batches is None else jax.random.key(0)
    triple = Triple(problem, network, optimizer, key, modes.u, modes.v)
    return _experiment(modes, lambda: triple, optimizer, rows, cross)


def with_random_frames(prediction: Prediction, seed: int) -> Prediction:
    """The prediction with an exact run of d x d matrices in which the target has random singular vectors."""
    modes, optimizer = prediction.data["aligned"], prediction.optimizer
    found = _experiment(modes, lambda: _random_triple(prediction, seed), optimizer, prediction.modes, prediction.cross)
    return dataclasses.replace(prediction, experiment=found)


def _random_triple(prediction: Prediction, seed: int) -> Triple:
    modes, optimizer = prediction.data["aligned"], prediction.optimizer
    left, right, turn = jax.random.split(jax.random.key(seed), 3)
    if modes.balanced:
        right = left  # from alpha I in every layer only a symmetric target is learned mode by mode
    target, u, v = with_spectrum(left, right, _padded(modes), modes.d)
    problem: Any = Factorization(target, _check.floating(modes.scale))
    network = _network(modes, problem)
    if prediction.init == "orthogonal":
        network = orthogonal(turn, problem, modes.alpha, modes.depth)
    key = None
    if optimizer.batches is not None:
        size = optimizer.batches.size
        _check.fits("batch_size", size, 2 * size * modes.d, f"{size} samples a step")
        # white inputs, and labels that A_star fits
        problem = eqx.tree_at(lambda p: p.scale, regression(np.eye(modes.d), target.T), problem.scale)
        key = jax.random.fold_in(jax.random.key(seed), 3)
    return Triple(problem, network, optimizer, key, np.asarray(u), np.asarray(v))


def _network(modes: AlignedModes, problem: Factorization) -> Weights | Modes:
    return (identity if modes.balanced else one_zero)(problem, modes.alpha, modes.depth)


def _padded(modes: AlignedModes) -> Float[np.ndarray, " d"]:
    return np.pad(modes.s, (0, modes.d - len(modes.s)))


def _experiment(
    modes: AlignedModes, triple: Callable[[], Triple], optimizer: SGD, rows: tuple[Row, ...], cross: Row | None
) -> ExactRun:
    wanted = _steps(modes, optimizer, rows, cross)

    def run(progress: Progress | None) -> "Trajectory":
        problem, network, how, key, _, _ = triple()
        steps = int(wanted) if wanted <= _MOST_STEPS else _MOST_STEPS // 10
        last = np.arange(max(0, steps - KEEP), steps)
        record = at(np.unique(np.concatenate([np.linspace(0, steps, _RECORDS).round(), last])))
        given = {} if key is None else {"key": key}
        return simulate(
            problem, network, how, steps=steps, record=record, observe=[observe.matrix], progress=progress, **given
        )

    def read(run: "Trajectory") -> tuple[Quantity, ...]:
        return _read(modes, triple(), optimizer, run, wanted)

    return ExactRun(run, read, {"matrix": observe.matrix})


def _steps(modes: AlignedModes, optimizer: SGD, rows: tuple[Row, ...], cross: Row | None) -> float:
    """Steps after which the modes have shown where they end; infinite where no theory knows."""
    escapes = [mode.escapes_after for mode in rows]
    if any(map(math.isnan, escapes)):
        return math.inf
    plain = not optimizer.acts_on_weights
    wanted = 2 * max((steps for steps in escapes if plain or math.isfinite(steps)), default=0.0) + 2000
    if cross is not None and cross.visible_after is not None:
        wanted = max(wanted, 1.3 * cross.visible_after.double)
    mu = optimizer.effective_decay
    if mu:  # layers become alike at the rate of the decay, less the pull of two layers where nothing is learned
        pulls = [mu - modes.scale * mode.value for mode in rows if mode.rest == 0 and modes.depth == 2]
        rate = float(optimizer.time(jnp.ones(1))[0]) * min([mu, *pulls])
        wanted += _FADED / rate if rate > 0 else math.inf
    return wanted


def _read(
    modes: AlignedModes, triple: Triple, optimizer: SGD, run: "Trajectory", wanted: float
) -> tuple[Quantity, ...]:
    s, taken, matrices = modes.s, np.asarray(run.steps), np.asarray(run["matrix"])
    cross = None
    if triple.u is None or triple.v is None:
        values = matrices[:, modes.order][:, : len(s)]
    else:
        inner = triple.u.T @ matrices @ triple.v
        values = np.diagonal(inner, axis1=1, axis2=2)[:, : len(s)]
        cross = _cross(inner, taken, s[0]) if modes.d > 1 else None
    mixed = None if cross is None else cross.visible_after
    alone = _alone(modes, optimizer, taken)
    before = np.arange(min(len(values), len(alone)))
    before = before if mixed is None else before[taken[before] < mixed]
    errors = np.max(np.abs(values[before] - alone[before]), axis=0) / s
    late = values[taken >= max(0, taken[-1] - KEEP)]
    rows = tuple(
        Row(low=float(late[:, i].min()), high=float(late[:, i].max()), error=float(errors[i])) for i in range(len(s))
    )
    return (
        Quantity("status", str(run.status), "status"),
        Quantity("steps", int(run.ended), "steps"),
        Quantity("long_enough", bool(wanted <= _MOST_STEPS), "long enough to see where the modes end"),
        Quantity("cross", cross),
        Quantity(
            "largest_cross", None if cross is None else cross.largest, "largest cross component, over s_1", format=".1e"
        ),
        Quantity("modes", rows),
        Quantity("largest_error", float(errors.max()), "largest error of the maps of modes, over s", format=".1e"),
    )


def _alone(modes: AlignedModes, optimizer: SGD, steps: np.ndarray) -> Float[np.ndarray, "records modes"]:
    """The modes as numbers, at these steps, on the loss itself."""
    problem = Factorization(_check.floating(_padded(modes)), _check.floating(modes.scale))
    alone = SGD(optimizer.lr, **optimizer.coefficients)
    run = simulate(problem, _network(modes, problem), alone, steps=int(steps[-1]), record=at(steps), observe=["modes"])
    return np.asarray(run["modes"])[:, : len(modes.s)]


def _cross(inner: np.ndarray, taken: np.ndarray, first: float) -> Row:
    """The largest entry between modes, over s_1, and the first recorded step at which one is above 1 %."""
    off = np.max(np.abs(inner * (1 - np.eye(inner.shape[1]))), axis=(1, 2)) / first
    visible = off > VISIBLE
    return Row(largest=float(off.max()), visible_after=int(taken[np.argmax(visible)]) if visible.any() else None)
