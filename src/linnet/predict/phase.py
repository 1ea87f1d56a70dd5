"""Where a two-layer network lies between lazy and rich in noisy low-rank recovery, and what follows."""

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from linnet import _check
from linnet._check import InputError
from linnet._compiler import hurried
from linnet.predict import asked
from linnet.predict.answer import Hypothesis, Measured, Prediction, Progress, Source, When, hidden
from linnet.problems import Factorisation, low_rank_recovery
from linnet.theory import mixed
from linnet.theory.mixed import Phase

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType

DENSE = 3000  # dimensions up to which matrices are made
HALF, LEARNED = 0.5, 0.9  # shares of a singular value


@dataclass(frozen=True, kw_only=True)
class Mode:
    """A singular value of A* + E, and when the network has half and 90 % of it."""

    value: float
    half_learned: When
    learned: When


@dataclass(frozen=True, kw_only=True)
class Signal(Mode):
    """A mode that is signal; `level` is its singular value in A* over d."""

    level: float


@dataclass(frozen=True, kw_only=True)
class MeasuredMode:
    """A singular value of A* + E, and the first steps with half and 90 % of it; None where the run ends before."""

    value: float
    half_learned: When | None
    learned: When | None


class Plane(NamedTuple):
    """The predicted smallest test error over the plane of exponents."""

    gamma_sigma2: Float[np.ndarray, " x"]
    gamma_w: Float[np.ndarray, " y"]
    test_error: Float[np.ndarray, "y x"]


@dataclass(frozen=True, kw_only=True)
class PhasePrediction(Prediction):
    """What the mixed dynamics say of a network of d^gamma_w neurons and weights of variance d^gamma_sigma2.

    The setting is noisy low-rank recovery: loss |A - A* - E|^2 / d^2 and test error |A - A*|^2 / d^2. Times are
    learning rate times steps. `phase` is that of d -> infinity, all numbers are those of this d.
    """

    d: int
    rank: int  # of the signal
    gamma_w: float
    gamma_sigma2: float
    c_lr: float
    seed: int
    width: float  # hidden neurons: d^gamma_w, rounded
    variance: float  # of each weight
    c: float  # variance * width, the threshold between lazy and rich singular values
    phase: Phase
    exponent_from_transition: float  # gamma_sigma2 less the transition's: lazy above 0
    variance_at_transition: float  # at this width
    c_over_signal: float  # c / |A*|
    start_mean_square: float  # of an entry of A at the start: variance^2 width
    lr: float
    largest_stable_lr: float  # where descent is stable at the minimum
    signals: tuple[Signal, ...]  # the strongest first
    first_noise: Mode | None  # the strongest mode that is noise; None where the signal has full rank
    stop: When  # where the test error is smallest
    test_error: float  # there
    notes: tuple[str, ...]
    theory: tuple[Source, ...]
    problem: Factorisation | None = hidden()  # where it was drawn for its levels

    @property
    def levels(self) -> Float[np.ndarray, " rank"]:
        """Singular values of A* over d, descending."""
        return np.array([signal.level for signal in self.signals])

    @property
    def horizon(self) -> float:
        """Steps that are worth a look: beyond the stop, until noise is learned or four times as long."""
        noise = math.inf if self.first_noise is None else self.first_noise.learned.time
        return max(1.3 * self.stop.time / self.lr, min(noise, 4 * self.stop.time) / self.lr, 2.0)

    def test_errors(self, steps: Any) -> Float[np.ndarray, " steps"]:
        """The predicted test error after each of these numbers of steps."""
        times = self.lr * _check.double("steps", steps, ndim=1)
        return np.asarray(
            mixed.recovery_error(
                times, self.levels, self.d, self.c, nodes=64, spiked=True, start=self.start_mean_square
            )
        )

    def plane(self) -> Plane:
        """The predicted smallest test error of other widths and variances on the same target."""
        x, y, d = np.linspace(-3, 0, 31), np.linspace(0, 2.8, 29), float(self.d)
        variance, width = np.meshgrid(d**x, np.maximum(1, np.round(d**y)))
        c = variance * width
        errors = _smallest()(jnp.asarray(self.levels), d, c.ravel(), (variance * c).ravel())
        return Plane(x, y, np.asarray(errors).reshape(c.shape))

    def measure(self, *, progress: Progress | None = None) -> "PhaseMeasured":
        """The exact run beside the prediction, until well after the predicted stop; needs d <= 3000."""
        from linnet.predict.phase_run import measure

        return measure(self, progress)

    def plot(self) -> "Figure":
        from linnet.plot.phase import phase as draw

        return draw(self)

    def __rich__(self) -> "RenderableType":
        from linnet.predict.words.phase import told

        return told(self)


@dataclass(frozen=True, kw_only=True)
class PhaseMeasured(Measured):
    """The exact run: when each singular value of A* + E was learned, and where the test error was smallest.

    What is learned of a value s is u^T A v / s in its own singular vectors, looked at after every step.
    """

    prediction: PhasePrediction = hidden()
    status: str
    steps: int
    signals: tuple[MeasuredMode, ...]
    first_noise: MeasuredMode | None
    stop: When
    test_error: float
    test_errors: Float[np.ndarray, " steps"] = hidden()  # at each step

    def plot(self) -> "Figure":
        from linnet.plot.phase import phase as draw

        return draw(self)

    def __rich__(self) -> "RenderableType":
        from linnet.predict.words.phase import told

        return told(self)


def phase(
    *,
    d: int,
    gamma_w: float,
    gamma_sigma2: float,
    rank: int = 5,
    levels: Any = None,
    c_lr: float = 50.0,
    seed: int = 0,
) -> PhasePrediction:
    """Lazy or rich? Where a two-layer network lies, when it learns each signal, when to stop and what it reaches.

    The setting is noisy low-rank recovery: A* + E with d x d entries of unit variance each, loss |A - A* - E|^2 / d^2.
    The network has d^gamma_w neurons and weights of variance d^gamma_sigma2. The signal has `rank` singular values as
    drawn by the seed, or d times `levels`. A step is 1/c_lr of the fastest mode's time (`theory.mixed.step_size`).
    """
    d = _check.integer("d", d, least=2, most=10**9)
    gamma_w = _check.real("gamma_w", gamma_w, least=0, most=20)
    gamma_sigma2 = _check.real("gamma_sigma2", gamma_sigma2, least=-20, most=20)
    c_lr = _check.real("c_lr", c_lr, above=1, most=1e6)
    seed = asked.seed(seed)
    a, problem = _levels(d, rank, levels, seed)
    size, signal = float(d), float(a[0] * d)
    if gamma_w * math.log10(size) > 100:
        raise InputError(f"gamma_w = {gamma_w:g} is not allowed: the width d^gamma_w must be at most 1e100.")
    width, variance = float(max(1, round(size**gamma_w))), size**gamma_sigma2
    c, kappa = variance * width, 2 / size**2
    if not 1e-100 < c < 1e100 or not 1e-100 < variance * c < 1e100:
        raise InputError(
            f"gamma_sigma2 = {gamma_sigma2:g} is not allowed here: variance times width is {c:.3g}, beyond reason."
        )
    lr = float(mixed.step_size(size, c, signal, lazy=gamma_sigma2 + gamma_w > 1, c_lr=c_lr))
    values, _, seen = (np.asarray(x) for x in mixed.spiked_signals(a, size))
    edge = 2 * math.sqrt(d - np.sum(seen))
    stop = mixed.early_stopping(a, size, c, start=variance * c)
    noise = len(a) < d
    goals = np.append(values, edge) if noise else values
    half, learned = (_times(share, goals, c, kappa, lr) for share in (HALF, LEARNED))
    largest = float(mixed.largest_lr(values[0], c, kappa))
    return PhasePrediction(
        d=d,
        rank=len(a),
        gamma_w=gamma_w,
        gamma_sigma2=gamma_sigma2,
        c_lr=c_lr,
        seed=seed,
        width=width,
        variance=variance,
        c=c,
        phase=mixed.phase(gamma_w, gamma_sigma2),
        exponent_from_transition=gamma_sigma2 - float(mixed.transition(gamma_w)),
        variance_at_transition=size ** float(mixed.transition(gamma_w)),
        c_over_signal=c / signal,
        start_mean_square=variance * c,
        lr=lr,
        largest_stable_lr=largest,
        signals=tuple(
            Signal(level=float(x), value=float(s), half_learned=h, learned=n)
            for x, s, h, n in zip(a, values, half, learned, strict=False)
        ),
        first_noise=Mode(value=edge, half_learned=half[-1], learned=learned[-1]) if noise else None,
        stop=When(float(stop.time), step=float(stop.time) / lr),
        test_error=float(stop.error),
        notes=_notes(a[~seen], lr, largest),
        theory=_sources(d, width, 2 * math.sqrt(size * variance * c) / signal, lr / largest, 1 / (a[-1] ** 2 * size)),
        problem=problem,
    )


def _levels(d: int, rank: Any, levels: Any, seed: int) -> tuple[Float[np.ndarray, " rank"], Factorisation | None]:
    """Singular values of A* over d, descending; with the problem where one had to be drawn for them."""
    if levels is not None:
        given = asked.spectrum(levels, name="levels")
        _check.integer("the number of levels", len(given), least=1, most=d, reason="the dimension")
        return given, None
    count = _check.integer("rank", rank, least=1, most=d, reason="the dimension")
    _check.fits("rank", count, 1000 * count, "so many signals")
    if d > DENSE:
        return np.full(count, count**-0.5), None  # what the drawn levels tend to in high dimension
    problem = low_rank_recovery(jax.random.key(seed), d, count)
    return np.linalg.svd(np.asarray(problem.truth), compute_uv=False)[:count] / d, problem


def _times(share: float, goals: np.ndarray, c: float, kappa: float, lr: float) -> list[When]:
    times = np.asarray(mixed.mode_time(0.0, share * goals, goals, c, kappa))
    return [When(float(t), step=float(t) / lr) for t in times]


def _notes(unseen: np.ndarray, lr: float, largest: float) -> tuple[str, ...]:
    notes = []
    if unseen.size:
        listed = ", ".join(f"{x:.3g}" for x in unseen)
        notes.append(f"levels {listed} are below d^-1/2: the noise hides these signals from singular values altogether")
    if lr >= largest:
        notes.append(f"the step size {lr:.4g} is not stable: raise c_lr by a factor of {lr / largest:.3g} or more")
    return tuple(notes)


def _sources(d: int, width: float, start: float, step: float, hiding: float) -> tuple[Source, ...]:
    """Where each figure is from."""
    wide = Hypothesis.of("the network is wide (sqrt(d / width))", math.sqrt(d / width))
    small = Hypothesis.of("the start is small (its norm over the signal's)", start)
    short = Hypothesis.of("steps are short (lr over the largest stable)", step)
    stand_out = Hypothesis.of("signals stand out of the noise (1 / (d level^2) of the weakest)", hiding, rough=1.0)
    return (
        Source("phase", "Theorem 2, as d grows", ("mixed/C13", "mixed/C14")),
        Source("signals, first_noise", "the mixed flow of one mode from zero", ("mixed/C15",), (wide, small, short)),
        Source(
            "stop, test_error",
            "the mixed flow of all modes, with singular vectors that the noise has turned",
            ("mixed/C26",),
            (wide, short, stand_out),
        ),
        Source("largest_stable_lr", "the curvature at the minimum, (4 / d^2) hypot(s_1, c)", (), (wide,)),
    )


@cache
def _smallest() -> Any:
    return jax.jit(_smallest_errors, compiler_options=hurried())


def _smallest_errors(levels: Any, d: Any, c: Any, start: Any) -> Any:
    pairs = (c, start)
    return jax.lax.map(lambda one: mixed.early_stopping(levels, d, one[0], start=one[1]).error, pairs, batch_size=64)
