"""Lazy or rich on a given matrix: `phase` of a target of any shape and spectrum, measured or made.

A two-layer Gaussian network learns the matrix B with the loss |A - B|^2 / (d_out d_in). Its first layer's Gram matrix
ends at sqrt(B^T B + c^2), c = variance * width: a singular value s of B makes it grow by hypot(1, s/c) along its
direction, so the transition between lazy and mixed is at c = |B|, whatever the matrix is (mixed dynamics, section 2.1,
remark).
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from linnet import _check
from linnet._check import InputError
from linnet.curves import crossing
from linnet.data import read_array, table_of
from linnet.init import gaussian
from linnet.optim import SGD
from linnet.prediction import validation
from linnet.prediction.assumption import Assumption, Source
from linnet.prediction.panel import Curve, Panel
from linnet.prediction.prediction import (
    Column,
    Comparison,
    ExactRun,
    Prediction,
    Progress,
    Quantity,
    Row,
    Time,
    facts,
    rows,
)
from linnet.prediction.theories.gradient_flow import STEPS, run_for
from linnet.prediction.theories.phase_run import DENSE, HALF, LEARNED, NetworkSize, passages, shares
from linnet.problems import Factorization
from linnet.states import Weights
from linnet.theory import mixed
from linnet.theory.mixed import Phase
from linnet.theory.regime import LAZY_BELOW, RICH_ABOVE, Regime
from linnet.trajectory import Trajectory

_RANK = 1e-9  # singular values below this share of the largest are zero
_WHOLE = 0.999  # share of the largest singular value from which the Gram matrix has its final norm
_SHOWN = 8  # modes of a table and of a figure
_RECORDS = 2000  # of a run
_COLUMNS = (
    Column("value", "value"),
    Column("regime", "", spare=1),
    Column("growth", "C1 grows by", spare=2),
    Column("half_learned", "half learned at"),
    Column("learned", "90% learned at", spare=3),
)


@dataclass(frozen=True)
class FittedMatrix:
    """A matrix to fit, by its singular values above rounding, and the network's threshold c = variance * width."""

    matrix: Float[np.ndarray, "d_out d_in"]
    values: Float[np.ndarray, " rank"]
    c: float

    @property
    def kappa(self) -> float:
        """Curvature of the loss in A."""
        return 2 / self.matrix.size

    @property
    def growth(self) -> Float[np.ndarray, " rank"]:
        """By how much C1 = W_1^T W_1 grows along the direction of each singular value until that is learned."""
        return np.hypot(1, self.values / self.c)


def read_target(given: Any) -> Float[np.ndarray, "d_out d_in"]:
    """The matrix of a file or an array: of two rows and two columns at least, finite, and not zero."""
    origin = "target"
    if isinstance(given, str | Path):
        origin, given = f"target = {str(given)!r}", read_array(Path(given), "target")
    if isinstance(given, np.ndarray) and given.ndim != 2:
        raise InputError(
            f"{origin} has shape {given.shape}: it must be a matrix, of two rows and two columns at least."
        )
    table = table_of(origin, given)
    target = np.asarray(table.numbers([*range(table.values.shape[1])]), dtype=float)
    if min(target.shape) < 2:
        raise InputError(
            f"{origin} has shape {target.shape}: it must have two rows and two columns at least; singular values of a "
            "signal in noise are levels."
        )
    size = float(np.max(np.abs(target)))
    if size == 0:
        raise InputError(f"{origin} is zero everywhere: one of its entries must differ from 0.")
    if size < validation.SMALLEST:
        raise InputError(f"{origin} reaches {size:.3g} only: give units that keep it above {validation.SMALLEST:g}.")
    return target


def phase_of_target(given: Any, *, gamma_w: float, gamma_sigma2: float, c_lr: float, seed: int) -> Prediction:
    """`phase` of a network on this matrix, with exponents of its larger dimension."""
    matrix = read_target(given)
    d = float(max(matrix.shape))
    _, _, width, variance, _ = NetworkSize.of(d, gamma_w, gamma_sigma2)
    values = np.linalg.svd(matrix, compute_uv=False)
    fitted = FittedMatrix(matrix, values[values > _RANK * values[0]], variance * width)
    norm, c = float(values[0]), fitted.c
    if not 1e-100 < variance * c < 1e100 or not 1e-12 < c / norm < 1e12:
        raise InputError(
            f"gamma_sigma2 = {gamma_sigma2:g} is not allowed here: variance times width is {c:.3g}, and it must lie "
            f"within 1e12 of the largest singular value {norm:.3g}."
        )
    line = float(mixed.transition(gamma_w, target=_check.floating(matrix)))
    # as the paper's step, with the number of entries in place of d^2
    lr = float(mixed.step_size(math.sqrt(matrix.size), c, norm, lazy=c > norm, c_lr=c_lr))
    largest = float(mixed.largest_lr(norm, c, fitted.kappa))
    kind = _phase(fitted, width, variance * c)
    rich = int(np.sum(fitted.values > c))
    wide = Assumption.of("the network is wide (sqrt(d / width))", math.sqrt(d / width))
    initial = 2 * math.sqrt(d * variance * c) / norm
    small = Assumption.of("the initial matrix is small (its norm over the target's)", initial)
    short = Assumption.of("steps are short (lr over the largest stable)", lr / largest)
    ends = Source("the Gram matrix where the target is learned, hypot(c, |B|)", ("mixed/C32",), (wide,))
    mode = Source("the mixed flow of one mode from zero", ("mixed/C15", "mixed/C27"), (wide, small, short))
    d_out, d_in = matrix.shape
    problem = Factorization(_check.floating(matrix), _check.floating(fitted.kappa))
    return Prediction(
        topic="phase",
        headline=f"[bold]{kind.replace('_', ' ')}[/]: {_meaning(kind, rich, len(fitted.values))}.",
        setting=(
            f"{d_in} -> {width:,.0f} -> {d_out} neurons, variance {variance:.3g}: threshold c = {c:.3g}, "
            f"{c / norm:.2g} of the largest singular value {norm:.4g}.\n"
            f"The transition is at c = {norm:.4g}, at this width at variance {norm / width:.3g}: exponent "
            f"{gamma_sigma2 - line:+.2f} from it.\n"
            f"Learning rate {lr:.4g}; stable below {largest:.4g}."
        ),
        quantities=(
            *facts(d_out=d_out, d_in=d_in, rank=len(fitted.values), gamma_w=gamma_w, gamma_sigma2=gamma_sigma2),
            *facts(width=width, variance=variance, c=c),
            Quantity("phase", kind, source=ends),
            Quantity("c_at_transition", norm, source=ends),
            Quantity("variance_at_transition", norm / width, source=ends),
            Quantity("gamma_sigma2_at_transition", line, source=ends),
            Quantity("exponent_from_transition", gamma_sigma2 - line, source=ends),
            Quantity("rich_modes", rich, source=ends),
            Quantity("initial_mean_square", variance * c),  # of the entries of A
            *facts(c_lr=c_lr, seed=seed, lr=lr, largest_stable_lr=largest),
            Quantity("modes", _modes(fitted, lr), "Modes", source=mode, columns=_COLUMNS, rows=_SHOWN),
            Quantity("gram_growth", float(fitted.growth[0]), "|C1| in the end over its initial value", source=ends),
        ),
        notes=(f"Regimes of modes: lazy where C1 grows by less than {LAZY_BELOW:g}, rich from {RICH_ABOVE:g} on.",),
        optimizer=SGD(lr),
        problem=problem,
        panels=_panels,
        data={"fitted": fitted},
        experiment=_experiment(fitted, problem, width, variance, lr, seed),
    )


def _phase(fitted: FittedMatrix, width: float, initial: float) -> Phase:
    """The phase of `theory.mixed.phase`, with |B| and the mean square of B in the place of their exponents."""
    if width < max(fitted.matrix.shape):
        return Phase.UNDERPARAMETRIZED
    if initial > float(np.mean(fitted.matrix**2)):
        return Phase.INFINITE_NOISE
    return Phase.LAZY if fitted.c > fitted.values[0] else Phase.RICH


def _meaning(kind: Phase, rich: int, count: int) -> str:
    if kind is Phase.UNDERPARAMETRIZED:
        return "with fewer neurons than dimensions these figures are a guide only"
    if kind is Phase.INFINITE_NOISE:
        return "the initial matrix itself is larger than the target"
    if kind is Phase.LAZY:
        return "c is above all singular values, which are learned at one rate"
    which = f"{rich} of {count} singular values are" if rich < count else f"all {count} singular values are"
    rest = "; the others are learned lazily, at one rate" if rich < count else ""
    return f"{which} above c and learned first, the largest before the others{rest}"


def _modes(fitted: FittedMatrix, lr: float) -> tuple[Row, ...]:
    passed = passages(fitted.values, fitted.c, fitted.kappa)
    half, learned = ([Time(time, step=time / lr) for time in times.tolist()] for times in passed)
    regimes = [Regime.of_growth(growth) for growth in fitted.growth.tolist()]
    return rows(value=fitted.values, regime=regimes, growth=fitted.growth, half_learned=half, learned=learned)


def _horizon(fitted: FittedMatrix, lr: float) -> float:
    """The flow time until the modes that are shown are learned, as far as a run may go."""
    shown = fitted.values[:_SHOWN]
    ends = passages(shown, fitted.c, fitted.kappa)[1]
    top = float(mixed.mode_time(0.0, _WHOLE * shown[0], shown[0], fitted.c, fitted.kappa))
    return min(max(1.1 * float(ends.max()), top), STEPS * lr)


# Measured ------------------------------------------------------------------------------------------------------------


def _experiment(
    fitted: FittedMatrix, problem: Factorization, width: float, variance: float, lr: float, seed: int
) -> ExactRun:
    """Descent of the network drawn with the seed, until the modes that are shown are learned."""
    count = min(_SHOWN, len(fitted.values))
    observed = {"shares": shares(count)}

    def run(progress: Progress | None) -> Trajectory:
        if max(fitted.matrix.shape) > DENSE:
            raise InputError(f"target has shape {fitted.matrix.shape}: the exact run needs dimensions <= {DENSE}.")
        steps = math.ceil(_horizon(fitted, lr) / lr - 1e-6)
        times = lr * np.unique(np.rint(np.linspace(0, steps, min(steps, _RECORDS) + 1)))
        network = gaussian(jax.random.key(seed), problem, width, variance)
        return run_for(problem, network, SGD(lr), times, observed, progress)

    def read(run: Trajectory) -> tuple[Quantity, ...]:
        clock, shown = np.asarray(run.steps), np.asarray(run["shares"])

        def passed(mode: int, share: float) -> Time | None:
            step = crossing(clock, shown[:, mode], share, "line")
            return None if math.isnan(step) else Time(lr * step, step=step, error=0.0)

        assert isinstance(run.final, Weights)
        first = np.asarray(run.final.layers[0])
        _, _, vt = np.linalg.svd(fitted.matrix, full_matrices=False)
        growth = np.sum((first @ vt[:count].T) ** 2, axis=0) / fitted.c
        half, learned = ([passed(i, share) for i in range(count)] for share in (HALF, LEARNED))
        modes = rows(value=fitted.values[:count], growth=growth, half_learned=half, learned=learned)
        return (
            Quantity("status", run.status, "status"),
            Quantity("steps", int(run.ended)),
            Quantity("modes", modes),
            Quantity("gram_growth", float(np.linalg.norm(first, 2) ** 2) / fitted.c),
        )

    return ExactRun(run, read, observed)


# Figure --------------------------------------------------------------------------------------------------------------


def _panels(prediction: Prediction, comparison: Comparison | None) -> tuple[Panel, Panel]:
    """The modes in time, and where the singular values lie beside c."""
    return _in_time(prediction, comparison), _spectrum(prediction.data["fitted"])


def _in_time(prediction: Prediction, comparison: Comparison | None) -> Panel:
    fitted, lr = prediction.data["fitted"], prediction.lr
    steps = np.linspace(0, _horizon(fitted, lr) / lr, 400)
    curves = []
    for i, value in enumerate(fitted.values[:_SHOWN]):
        values = np.asarray(mixed.mode(lr * steps, 0.0, value, fitted.c, fitted.kappa))
        color = "signal" if value > fitted.c else "noise"
        curves.append(Curve("", steps, values, "theory", color=color, labeled=False))
        if comparison is not None:
            clock, learned = np.asarray(comparison.run.steps, float), np.asarray(comparison.run["shares"])
            curves.append(Curve("", clock, value * learned[:, i], "measured", color=color, labeled=False))
    curves.append(Curve("c: lazy below", np.zeros(1), np.array([fitted.c]), "horizontal", color="black"))
    return Panel(
        tuple(curves),
        "The largest singular values",
        "step of gradient descent",
        "learned, $u_i^T A\\, v_i$",
        xlim=(0, float(steps[-1])),
        ylim=(0, 1.05 * float(fitted.values[0])),
    )


def _spectrum(fitted: FittedMatrix) -> Panel:
    index = np.arange(1, len(fitted.values) + 1)
    rich = fitted.values > fitted.c
    kinds = (("above c: rich", rich, "signal"), ("below c: lazy", ~rich, "noise"))
    curves = [
        Curve(name, index[chosen], fitted.values[chosen], "points", color=color)
        for name, chosen, color in kinds
        if chosen.any()
    ]
    lines = (
        (f"c = {fitted.c:.3g}", fitted.c, "black"),
        (f"transition: {fitted.values[0]:.3g}", fitted.values[0], "test"),
    )
    curves += [Curve(name, np.zeros(1), np.array([y]), "horizontal", color=color) for name, y, color in lines]
    return Panel(tuple(curves), "Singular values of the target", "index", "value", log="y")
