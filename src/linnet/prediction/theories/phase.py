"""Where a two-layer network lies between lazy and rich in noisy low-rank recovery, and what follows (mixed dynamics).

Loss |A - A* - E|^2 / d^2 with unit noise E and a signal A* of low rank, test error |A - A*|^2 / d^2, two Gaussian
layers. Singular values above c = variance * width are learned as in a rich network, those below as in a lazy one.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from linnet import _check
from linnet._check import InputError
from linnet.optim import SGD
from linnet.prediction import coerce, validation
from linnet.prediction.assumption import Assumption, Source
from linnet.prediction.prediction import Column, Prediction, Quantity, Row, Time, facts, rows
from linnet.prediction.theories.gradient_flow import constant_lr, learning_rate, require
from linnet.prediction.theories.phase_run import DENSE, NetworkSize, experiment, panels, passages
from linnet.prediction.theories.phase_target import phase_of_target
from linnet.problems import Factorization, low_rank_recovery
from linnet.states import Weights
from linnet.theory import mixed
from linnet.theory.mixed import Phase

MEANING = {
    Phase.RICH: "signals are learned first and alone, so stopping early removes most of the noise",
    Phase.LAZY: "signal and noise are learned at one rate, so stopping early helps little",
    Phase.INFINITE_NOISE: "the initial matrix itself is larger than the signal",
    Phase.UNDERPARAMETRIZED: "with fewer neurons than dimensions these figures are a guide only",
}
_RANK = 1e-9  # singular values of a truth below this share of the largest are zero
_LEVEL = Column("level", "level", ".3g")
_MODES = (
    Column("value", "of A* + E", spare=3),
    Column("half_learned", "half learned at"),
    Column("learned", "90% learned at", spare=2),
)


@dataclass(frozen=True)
class MixedFlow:
    """The mixed flow of noisy low-rank recovery.

    `levels` are the singular values of A* over d, descending; `initial` is the mean square of an entry of the initial
    A.
    """

    d: int
    levels: Float[np.ndarray, " rank"]
    c: float
    initial: float

    @property
    def kappa(self) -> float:
        """Curvature of the loss in A."""
        return 2 / float(self.d) ** 2

    @property
    def signal(self) -> float:
        """|A*|, its largest singular value."""
        return float(self.levels[0] * self.d)

    def test_errors(self, times: Any) -> Float[np.ndarray, " times"]:
        """The test error at these flow times."""
        clock = _check.double("times", times, ndim=1)
        errors = mixed.recovery_error(clock, self.levels, self.d, self.c, nodes=64, spiked=True, initial=self.initial)
        return np.asarray(errors)


def phase(
    *,
    d: int | None = None,
    gamma_w: float,
    gamma_sigma2: float,
    rank: int | None = None,
    levels: Any = None,
    target: Any = None,
    c_lr: float = 50.0,
    seed: int = 0,
) -> Prediction:
    """Lazy or rich? Where a two-layer network lies, when it learns each signal, when to stop and what it reaches.

    For networks and dimensions of any size, without building them; `for_triple` takes those that exist. With a `target`
    the task is that matrix as it is: where the transition is for it, which of its singular values are learned lazily,
    and when each is.

    Args:
        d: the dimension; A* + E are d x d matrices.
        gamma_w: the network has d^gamma_w hidden neurons.
        gamma_sigma2: weights have variance d^gamma_sigma2.
        rank: how many signals there are, as drawn by the seed; 5 by default.
        levels: in their place, their singular values over d.
        target: in the place of A* + E a matrix of any shape, as an array or a file; d is its larger dimension.
        c_lr: the learning rate is 1/c_lr of the fastest mode's time (`theory.mixed.step_size`).
        seed: of the target, the noise, and the initialization that `measure` draws.

    Raises:
        InputError: if a size is beyond what numbers hold, or the target is no matrix that can be learned.

    """
    gamma_w = _check.real("gamma_w", gamma_w, least=0, most=20)
    gamma_sigma2 = _check.real("gamma_sigma2", gamma_sigma2, least=-20, most=20)
    c_lr = _check.real("c_lr", c_lr, above=1, most=1e6)
    seed = _check.seed(seed)
    if target is not None:
        for name, value in (("d", d), ("rank", rank), ("levels", levels)):
            if value is not None:
                raise InputError(f"{name} = {_check.show(value)} is not allowed with target: the matrix has its own.")
        return phase_of_target(target, gamma_w=gamma_w, gamma_sigma2=gamma_sigma2, c_lr=c_lr, seed=seed)
    if d is None:
        raise InputError("d is missing: give the dimension d of the matrix to recover, or a matrix as target.")
    d = _check.integer("d", d, least=2, most=10**9)
    a, problem = _levels(d, 5 if rank is None else rank, levels, seed)
    size = NetworkSize.of(float(d), gamma_w, gamma_sigma2)
    width, variance = size.width, size.variance
    c = variance * width
    if not 1e-100 < c < 1e100 or not 1e-100 < variance * c < 1e100:
        raise InputError(
            f"gamma_sigma2 = {gamma_sigma2:g} is not allowed here: variance times width is {c:.3g}, beyond reason."
        )
    flow = MixedFlow(d, a, c, variance * c)
    lr = float(mixed.step_size(float(d), c, flow.signal, lazy=gamma_sigma2 + gamma_w > 1, c_lr=c_lr))
    small = 2 * math.sqrt(d * variance * c) / flow.signal
    prediction = _prediction(flow, size, SGD(lr), wide=math.sqrt(d / width), small=small)
    prediction = prediction.including(*facts(c_lr=c_lr, seed=seed))
    return replace(prediction, problem=problem, experiment=experiment(prediction, flow, problem, seed=seed))


def for_triple(problem: Any, network: Any, optimizer: Any = None) -> Prediction:
    """`phase` of a problem, a network, and an optimizer: signals, c, and the initial size are those of the arrays.

    Args:
        problem: what `ln.low_rank_recovery` returns, a square `Factorization` whose test problem has the truth.
        network: two Gaussian layers of `Weights`, in full or compressed. The width of a compressed network is
            estimated from c and the size of the initial A, with the error that this has.
        optimizer: plain gradient descent; gradient flow if None.

    Raises:
        NotApplicable: if one of these is something else, the noise is not of unit variance, the network is so narrow
            that W_1^T W_1 and W_2 W_2^T are far from c I, or the learning rate is not stable.

    """
    learning_rate("phase", optimizer)
    square = isinstance(problem, Factorization) and len(problem.shape) == 2 and problem.shape[0] == problem.shape[1]
    require("phase", "a square matrix to recover", float(not square))
    known = isinstance(problem.test, Factorization)
    require("phase", "a known truth, as that of ln.low_rank_recovery", float(not known))
    two = isinstance(network, Weights) and network.depth == 2
    require("phase", "a linear network of two layers", float(not two))
    d = problem.shape[0]
    coerce.same_shape(network, problem.shape)
    require("phase", f"at most {DENSE} dimensions (their number over that)", d / DENSE, exact=1.0)
    scales = [float(part.scale) * d**2 / 2 for part in (problem, problem.test)]
    require("phase", "a loss and a test error that are means over entries", max(abs(scale - 1) for scale in scales))
    truth = np.asarray(problem.test.goal)
    noise = math.sqrt(float(np.mean((np.asarray(problem.goal) - truth) ** 2)))
    Assumption.of("noise of unit variance", abs(noise - 1), rough=0.1 + 3 / d).required("phase")
    values = np.linalg.svd(truth, compute_uv=False)
    levels = values[values > _RANK * values[0]] / d
    first, second = (np.asarray(layer) for layer in network.layers)
    c = float(np.sum(first**2) + np.sum(second**2)) / (2 * d)
    require("phase", "layers that are not zero", float(not c > 0))
    off = [np.linalg.norm(gram - c * np.eye(d)) / (c * math.sqrt(d)) for gram in (first.T @ first, second @ second.T)]
    wide = float(max(off))
    Assumption.of("W_1^T W_1 and W_2 W_2^T are c I, as in a wide network (their distance)", wide).required("phase")
    initial = second @ first
    flow = MixedFlow(d, levels, c, float(np.mean(initial**2)))
    width, error = float(first.shape[0]), None
    if network.compressed:
        width, error = c**2 / flow.initial, math.sqrt(2) / d
    size = NetworkSize(math.log(width) / math.log(d), math.log(c / width) / math.log(d), width, c / width, error)
    small = float(np.linalg.norm(initial, 2)) / flow.signal
    prediction = _prediction(flow, size, optimizer, wide=wide, small=small)
    if isinstance(optimizer, SGD):
        share = constant_lr(optimizer) / prediction.largest_stable_lr
        Assumption.of("a stable learning rate", share, rough=1.0).required("phase")
    found = experiment(prediction, flow, problem, network=network)
    return replace(prediction, problem=problem, network=network, experiment=found)


def _levels(d: int, rank: Any, levels: Any, seed: int) -> tuple[Float[np.ndarray, " rank"], Factorization | None]:
    """Singular values of A* over d, descending; with the problem where one had to be drawn for them."""
    if levels is not None:
        given = validation.spectrum(levels, name="levels")
        _check.integer("the number of levels", len(given), least=1, most=d, reason="the dimension")
        return given, None
    count = _check.integer("rank", rank, least=1, most=d, reason="the dimension")
    _check.fits("rank", count, 1000 * count, "so many signals")
    if d > DENSE:
        return np.full(count, count**-0.5), None  # what the drawn levels tend to in high dimension
    problem = low_rank_recovery(jax.random.key(seed), d, count)
    return np.linalg.svd(np.asarray(problem.truth), compute_uv=False)[:count] / d, problem


def _prediction(flow: MixedFlow, network: NetworkSize, optimizer: Any, *, wide: float, small: float) -> Prediction:
    """The quantities; of the network `wide` and `small` are how far it is from what the theory assumes."""
    d, a, c, size = flow.d, flow.levels, flow.c, float(flow.d)
    gamma_w, gamma_sigma2, width, variance, error = network
    lr = constant_lr(optimizer) if isinstance(optimizer, SGD) else None
    values, _, detectable = (np.asarray(x) for x in mixed.spiked_signals(a, size))
    edge = 2 * math.sqrt(d - np.sum(detectable))
    stop = mixed.early_stopping(a, size, c, initial=flow.initial)
    noise = len(a) < d
    modes = _modes(flow, np.append(values, edge) if noise else values, lr)
    largest = float(mixed.largest_lr(values[0], c, flow.kappa))
    theorem, mode, all_modes, curvature = _sources(
        wide, small, 0.0 if lr is None else lr / largest, 1 / (a[-1] ** 2 * d)
    )
    kind = mixed.phase(gamma_w, gamma_sigma2)
    line = float(mixed.transition(gamma_w))
    signals = tuple(Row(level=float(x), **row) for x, row in zip(a, modes, strict=False))
    at = "at step" if lr is not None else "at time"
    return Prediction(
        topic="phase",
        headline=f"[bold]{kind.replace('_', ' ')}[/]: {MEANING[kind]}.",
        setting=(
            f"{d} -> {width:,.0f} -> {d} neurons, variance {variance:.3g}: threshold c = {c:.3g}, "
            f"{c / flow.signal:.2g} of the strongest signal.\n"
            f"Exponent {gamma_sigma2 - line:+.2f} from the transition, which at this width is at variance "
            f"{size**line:.3g}.\n"
            + (f"Learning rate {lr:.4g}; " if lr is not None else "Gradient flow; descent is ")
            + f"stable below {largest:.4g}."
        ),
        quantities=(
            *facts(prepared=(), d=d, rank=len(a)),
            *(Quantity(name, value, error=error) for name, value in network._asdict().items() if name != "error"),
            Quantity("c", c),
            Quantity("phase", kind, source=theorem),
            *facts(
                exponent_from_transition=gamma_sigma2 - line,
                variance_at_transition=size**line,
                c_over_signal=c / flow.signal,
                initial_mean_square=flow.initial,  # of the entries of A
                lr=lr,
            ),
            Quantity("largest_stable_lr", largest, source=curvature),
            Quantity("signals", signals, "Signals", source=mode, columns=(_LEVEL, *_MODES)),
            Quantity(
                "first_noise", modes[-1] if noise else None, "The strongest noise mode", source=mode, columns=_MODES
            ),
            Quantity("stop", _time(float(stop.time), lr), f"stop {at}", source=all_modes),
            Quantity("test_error", float(stop.error), "test error there", source=all_modes, format=".4f"),
        ),
        notes=_notes(a[~detectable], lr, largest),
        optimizer=optimizer,
        panels=panels,
        data={"flow": flow},
    )


def _modes(flow: MixedFlow, goals: Float[np.ndarray, " modes"], lr: float | None) -> tuple[Row, ...]:
    """Singular values of A* + E, and when the network has half and 90 % of each."""
    half, learned = ([_time(float(time), lr) for time in times] for times in passages(goals, flow.c, flow.kappa))
    return rows(value=goals, half_learned=half, learned=learned)


def _time(time: float, lr: float | None) -> Time:
    return Time(time, step=None if lr is None else time / lr)


def _notes(hidden: np.ndarray, lr: float | None, largest: float) -> tuple[str, ...]:
    notes = []
    if hidden.size:
        listed = ", ".join(f"{x:.3g}" for x in hidden)
        notes.append(
            f"Levels {listed} are below d^-1/2: the noise hides these signals from singular values altogether."
        )
    if lr is not None and lr >= largest:
        notes.append(f"The learning rate {lr:.4g} is not stable: raise c_lr by a factor of {lr / largest:.3g} or more.")
    return tuple(notes)


def _sources(wide: float, small: float, short: float, hiding: float) -> tuple[Source, Source, Source, Source]:
    """Of the phase, of single modes, of all modes together, and of the curvature."""
    width = Assumption.of("the network is wide (sqrt(d / width))", wide)
    initial = Assumption.of("the initial matrix is small (its norm over the signal's)", small)
    steps = Assumption.of("steps are short (lr over the largest stable)", short)
    stand_out = Assumption.of("signals stand out of the noise (1 / (d level^2) of the weakest)", hiding, rough=1.0)
    return (
        Source("Theorem 2, as d grows", ("mixed/C13", "mixed/C14")),
        Source("the mixed flow of one mode from zero", ("mixed/C15",), (width, initial, steps)),
        Source(
            "the mixed flow of all modes, with singular vectors that the noise has turned",
            ("mixed/C26",),
            (width, steps, stand_out),
        ),
        Source("the curvature at the minimum, (4 / d^2) hypot(s_1, c)", (), (width,)),
    )
