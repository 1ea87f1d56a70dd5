"""The exact run and the bifurcation diagram of a prediction of stability."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from linnet import _check, maps, observe
from linnet._random import with_spectrum
from linnet.init import identity, one_zero, orthogonal
from linnet.optim import SGD
from linnet.prediction.numbers import plural
from linnet.prediction.panel import Curve, Panel
from linnet.prediction.prediction import Comparison, ExactRun, Prediction, Progress, Quantity, Row, rows
from linnet.prediction.theories.aligned_modes import AlignedModes
from linnet.prediction.theories.momentum_modes import momentum_orbits
from linnet.problems import Factorization, regression
from linnet.record import at
from linnet.simulation import simulate
from linnet.states import Modes, Weights
from linnet.theory import stability as theory
from linnet.theory.mode_fate import KEEP, VISIBLE
from linnet.trajectory import Trajectory

_MOST_STEPS, _RECORDS = 50_000, 800
_DRAWN, _KEEP, _SKIP = 6, 96, 4000  # of the diagram: modes, points of an orbit, and steps before them
_FADED = 15  # e^-15 of an imbalance counts as none


class Triple(NamedTuple):
    """What is simulated, the key of its batches, and the singular vectors of the target (None for `Modes`)."""

    problem: Any
    network: Any
    optimizer: Any
    key: Any
    u: Float[np.ndarray, "d d"] | None
    v: Float[np.ndarray, "d d"] | None


def with_random_frames(prediction: Prediction, seed: int) -> Prediction:
    """The prediction with an exact run of d x d matrices in which the target has random singular vectors."""
    modes, optimizer = prediction.data["aligned"], prediction.optimizer
    found = experiment(modes, lambda: _random_triple(prediction, seed), optimizer, prediction.modes, prediction.cross)
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


def experiment(
    modes: AlignedModes, triple: Callable[[], Triple], optimizer: SGD, rows: tuple[Row, ...], cross: Row | None
) -> ExactRun:
    """Training of the network of this triple beside the maps of its modes."""
    wanted = _steps(modes, optimizer, rows, cross)

    def run(progress: Progress | None) -> Trajectory:
        problem, network, how, key, _, _ = triple()
        steps = int(wanted) if wanted <= _MOST_STEPS else _MOST_STEPS // 10
        last = np.arange(max(0, steps - KEEP), steps)
        record = at(np.unique(np.concatenate([np.linspace(0, steps, _RECORDS).round(), last])))
        given = {} if key is None else {"key": key}
        return simulate(
            problem, network, how, steps=steps, record=record, observe=[observe.matrix], progress=progress, **given
        )

    def read(run: Trajectory) -> tuple[Quantity, ...]:
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


def _read(modes: AlignedModes, triple: Triple, optimizer: SGD, run: Trajectory, wanted: float) -> tuple[Quantity, ...]:
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
    return (
        Quantity("status", str(run.status), "status"),
        Quantity("steps", int(run.ended), "steps"),
        Quantity("long_enough", bool(wanted <= _MOST_STEPS), "long enough to see where the modes end"),
        Quantity("cross", cross),
        Quantity(
            "largest_cross", None if cross is None else cross.largest, "largest cross component, over s_1", format=".1e"
        ),
        Quantity("modes", rows(low=late.min(axis=0), high=late.max(axis=0), error=errors)),
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


# Figure --------------------------------------------------------------------------------------------------------------


class Diagram(NamedTuple):
    """Points of the orbit of the first modes at many learning rates, NaN where they diverge."""

    lr: Float[np.ndarray, " rates"]
    values: Float[np.ndarray, "rates modes points"]


def diagram(prediction: Prediction) -> Diagram:
    """Orbits of balanced modes, from below the edge of stability to beyond this learning rate or divergence."""
    modes, lr = prediction.data["aligned"], prediction.lr
    first, depth, s = prediction.modes[0].thresholds, modes.depth, modes.s[:_DRAWN]
    edge = first.oscillates
    end = max(1.25 * edge, 1.08 * lr)
    if first.leaves is not None:
        end = min(max(end, first.leaves), 1.02 * first.diverges)
    rates = np.linspace(min(0.9 * edge, 0.95 * lr if lr < edge else edge), end, 900)
    if prediction.optimizer.acts_on_weights:
        rest = np.array([mode.rest or mode.value for mode in prediction.modes[: len(s)]])
        layers = np.broadcast_to(0.9 * rest ** (1 / depth), (2, len(rates), len(s)))
        own = prediction.optimizer.coefficients
        orbits = momentum_orbits(
            layers, s, depth, rates[:, None], own, s, scale=modes.scale, least=0, most=_SKIP, keep=_KEEP
        )
        values = np.moveaxis(orbits.late, 0, -1)
        values[orbits.diverged >= 0] = math.nan
        return Diagram(rates, values)
    kappas = (modes.scale * rates[:, None] * theory.curvature(s, depth)).ravel()
    found = maps.orbits(maps.balanced(depth), 0.9, kappas, skip=_SKIP, keep=_KEEP)
    values = np.asarray(found.values) ** depth
    values[np.asarray(found.escaped) >= 0] = math.nan
    return Diagram(rates, values.reshape(len(rates), len(s), -1) * s[:, None])


def panels(prediction: Prediction, comparison: Comparison | None) -> tuple[Panel]:
    """Where every mode goes, by learning rate, with this one, the thresholds, and the run marked."""
    rates, values = diagram(prediction)
    lr, first, depth = prediction.lr, prediction.modes[0].thresholds, prediction.depth
    inside, curves, colors = rates[0] <= lr <= rates[-1], [], ("signal", "C0", "C2", "C4", "C8", "C9")
    for i in range(values.shape[1]):
        points = np.repeat(rates, values.shape[2]), values[:, i].ravel()
        curves.append(Curve("", *points, "dots", color=colors[i], labeled=False))
        name = f"mode {i + 1}, target {prediction.modes[i].value:g}"
        curves.append(Curve(name, np.full(1, math.nan), np.full(1, math.nan), "points", color=colors[i]))
    marks = {"period 2": first.oscillates, "period 4": first.doubles, "chaos": first.chaos}
    shown = {name: x for name, x in marks.items() if x is not None and rates[0] < x < rates[-1]}
    if shown:
        places = np.array(list(shown.values()))
        curves.append(Curve("", places, places, "vertical", color="noise", labeled=False))
        height = np.full(len(shown), np.nanmax(values, initial=prediction.modes[0].value))
        curves.append(Curve("", places, height, "labels", color="noise", text=tuple(shown), labeled=False))
    mixing = math.nan if prediction.cross is None else prediction.cross.orbit_lr
    if rates[0] < mixing < rates[-1]:
        name = "modes 1 and 2 mix, out of rounding"
        curves.append(Curve(name, np.array([mixing]), np.zeros(1), "vertical", color="test"))
    if inside:
        curves.append(Curve(f"lr = {lr:.4g}", np.array([lr]), np.zeros(1), "vertical", color="theory"))
        if comparison is not None and comparison.status != "diverged":
            measured = comparison.modes[: values.shape[1]]
            ends = np.array([[mode.low, mode.high] for mode in measured]).ravel()
            name = "exact run, its last steps"
            curves.append(Curve(name, np.full(len(ends), lr), ends, "diamonds", color="theory"))
    flat = depth == 1 or not np.isfinite(values).any()
    how = prediction.optimizer.description
    return (
        Panel(
            tuple(curves),
            f"{plural(depth, 'layer')}, balanced modes" + (f", {how}" if how else ""),
            f"learning rate, loss {prediction.normalization}" + ("" if inside else f"  (lr = {lr:.4g} lies beyond)"),
            r"modes $u_i^T A\, v_i$",
            xlim=(float(rates[0]), float(rates[-1])),
            ylim=(0.0, 1.5 * prediction.modes[0].value) if flat else None,
        ),
    )
