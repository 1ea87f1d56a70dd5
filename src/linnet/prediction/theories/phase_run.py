"""The exact run and the figure of `phase`: the test error in time, and where the network lies among others."""

import math
from functools import cache, lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from linnet import observe
from linnet._check import InputError
from linnet._compiler import hurried
from linnet.curves import crossing
from linnet.init import gaussian
from linnet.observe import Observable, ObservationContext
from linnet.prediction.panel import Curve, Panel
from linnet.prediction.prediction import Comparison, ExactRun, Prediction, Progress, Quantity, Time, rows
from linnet.prediction.theories.gradient_flow import run_for
from linnet.problems import Factorization, low_rank_recovery
from linnet.states import Weights
from linnet.theory import mixed
from linnet.trajectory import Trajectory

DENSE = 3000  # dimensions up to which matrices are made
HALF, LEARNED = 0.5, 0.9  # shares of a singular value
_RECORDS = 400  # of a flow


class NetworkSize(NamedTuple):
    """Width and variance of the weights, and both as exponents of the dimension; `error` is that of estimates."""

    gamma_w: float
    gamma_sigma2: float
    width: float
    variance: float
    error: float | None = None

    @classmethod
    def of(cls, d: float, gamma_w: float, gamma_sigma2: float) -> "NetworkSize":
        """Of these exponents."""
        if gamma_w * math.log10(d) > 100:
            raise InputError(f"gamma_w = {gamma_w:g} is not allowed: the width d^gamma_w must be at most 1e100.")
        return cls(gamma_w, gamma_sigma2, float(max(1, round(d**gamma_w))), d**gamma_sigma2)


def passages(
    values: Float[np.ndarray, " modes"], c: float, kappa: float
) -> tuple[Float[np.ndarray, " modes"], Float[np.ndarray, " modes"]]:
    """When modes of these singular values are half learned, and when they are learned to 90 %, from zero."""
    half, learned = (np.asarray(mixed.mode_time(0.0, share * values, values, c, kappa)) for share in (HALF, LEARNED))
    return half, learned


class PhasePlane(NamedTuple):
    """The predicted smallest test error over the plane of exponents."""

    gamma_sigma2: Float[np.ndarray, " x"]
    gamma_w: Float[np.ndarray, " y"]
    test_error: Float[np.ndarray, "y x"]


def phase_plane(d: int, levels: Any) -> PhasePlane:
    """The predicted smallest test error of networks of many widths and variances, on a d x d target with `levels`."""
    x, y, size = np.linspace(-3, 0, 31), np.linspace(0, 2.8, 29), float(d)
    variance, width = np.meshgrid(size**x, np.maximum(1, np.round(size**y)))
    c = variance * width
    errors = _smallest()(jnp.asarray(levels), size, c.ravel(), (variance * c).ravel())
    return PhasePlane(x, y, np.asarray(errors).reshape(c.shape))


@cache
def _smallest() -> Any:
    return jax.jit(_smallest_errors, compiler_options=hurried())


def _smallest_errors(levels: Any, d: Any, c: Any, initial: Any) -> Any:
    pairs = (c, initial)
    return jax.lax.map(lambda one: mixed.early_stopping(levels, d, one[0], initial=one[1]).error, pairs, batch_size=64)


def horizon(prediction: Prediction) -> float:
    """The flow time that is worth showing: beyond the stop, until noise is learned or four times as long."""
    stop, noise = prediction.stop.time, prediction.first_noise
    learned = math.inf if noise is None else noise.learned.time
    return max(1.3 * stop, min(learned, 4 * stop), 2.0 * (prediction.lr or 0.0))


# Measured ------------------------------------------------------------------------------------------------------------


def experiment(
    prediction: Prediction,
    flow: Any,
    problem: Factorization | None,
    *,
    network: Weights | None = None,
    seed: int = 0,
) -> ExactRun:
    """The exact run of the network, drawn with the seed where none was given, until well after the predicted stop."""
    d, rank, lr = prediction.d, prediction.rank, prediction.lr
    count = rank + (prediction.first_noise is not None)
    observed = {"test": observe.test_error, "shares": shares(count)}

    @cache
    def target() -> Factorization:
        return problem or low_rank_recovery(jax.random.key(seed), d, rank, levels=flow.levels)

    def run(progress: Progress | None) -> Trajectory:
        if d > DENSE:
            raise InputError(f"d = {d} is too large for the exact run: it needs d <= {DENSE}.")
        last = max(signal.learned.time for signal in prediction.signals)
        end = max(horizon(prediction), 1.1 * last)
        times = lr * np.arange(math.ceil(end / lr) + 1) if lr is not None else np.linspace(0, end, _RECORDS)
        drawn = network or gaussian(jax.random.key(seed), target(), prediction.width, prediction.variance)
        return run_for(target(), drawn, prediction.optimizer, times, observed, progress)

    def read(run: Trajectory) -> tuple[Quantity, ...]:
        test, learned = np.asarray(run["test"]), np.asarray(run["shares"])
        clock = np.asarray(run.times if lr is None else run.steps)
        values = np.linalg.svd(np.asarray(target().target), compute_uv=False)

        def when(point: float) -> Time | None:
            if math.isnan(point):
                return None  # the run ends before
            return Time(point, error=0.0) if lr is None else Time(lr * point, step=int(point), error=0.0)

        def passed(i: int, share: float) -> Time | None:
            return when(crossing(clock, learned[:, i], share, "records" if lr is not None else "spline"))

        half, whole = ([passed(i, share) for i in range(count)] for share in (HALF, LEARNED))
        modes = rows(value=values[:count], half_learned=half, learned=whole)
        best = int(np.nanargmin(test))
        return (
            Quantity("status", run.status, "status"),
            Quantity("steps", int(run.ended) if lr is not None else None),
            Quantity("signals", modes[:rank]),
            Quantity("first_noise", modes[rank] if count > rank else None),
            Quantity("stop", when(float(clock[best]))),
            Quantity("test_error", float(test[best]), format=".4f"),
        )

    return ExactRun(run, read, observed)


@lru_cache  # the same observable for the same count, so that what was compiled for it is found again
def shares(count: int) -> Observable:
    """u_i^T A v_i over s_i for the first modes of the target."""

    def prepare(problem: Factorization, _: Any) -> tuple[Any, Any, Any]:
        u, s, vt = jnp.linalg.svd(problem.target, full_matrices=False)
        return u[:, :count], s[:count], vt[:count]

    def measured(context: ObservationContext) -> Any:
        u, s, vt = context.prepared
        return jnp.einsum("ik,ij,kj->k", u, context.state.matrix, vt) / s

    return Observable("shares", measured, None, prepare)


# Figure --------------------------------------------------------------------------------------------------------------


def panels(prediction: Prediction, comparison: Comparison | None) -> tuple[Panel, Panel]:
    """The predicted test error in time, and the plane of exponents."""
    return _errors(prediction, comparison), _exponents(prediction)


def _errors(prediction: Prediction, comparison: Comparison | None) -> Panel:
    lr = prediction.lr
    unit = 1.0 if lr is None else lr
    steps = np.linspace(0, horizon(prediction) / unit, 400)
    errors = prediction.data["flow"].test_errors(unit * steps)
    curves = [Curve("predicted", steps, errors, "theory", color="test")]
    if comparison is not None:
        clock = comparison.run.times if lr is None else comparison.run.steps
        curves.append(
            Curve("exact run", np.asarray(clock, float), np.asarray(comparison.run["test"]), "measured", "theory")
        )
    stop, best = prediction.stop.time / unit, prediction.test_error
    curves.append(Curve(f"stop: {best:.3f} at {stop:.0f}", np.array([stop]), np.array([best]), "points", color="test"))
    halves = np.array([signal.half_learned.time / unit for signal in prediction.signals])
    curves.append(Curve("signals half learned", halves, np.zeros(len(halves)), "vertical", color="signal"))
    return Panel(
        tuple(curves),
        "When to stop",
        "time of gradient flow" if lr is None else "step of gradient descent",
        "test error",
        xlim=(0, float(steps[-1])),
        ylim=(0, 1.05 * max(float(errors.max()), 0.1)),
    )


def _exponents(prediction: Prediction) -> Panel:
    x, y, values = phase_plane(prediction.d, prediction.data["flow"].levels)
    here = np.array([prediction.gamma_sigma2]), np.array([prediction.gamma_w])
    return Panel(
        (
            Curve("predicted smallest test error", x, y, "log image", z=np.minimum(values, 1.0)),
            Curve("lazy above", x, 1 - x, color="black"),
            Curve("infinite noise above", x, -2 * x, color="#ef4444"),
            Curve("fewer neurons than dimensions below", np.zeros(1), np.ones(1), "horizontal", color="0.85"),
            Curve("this network", *here, "stars", color="white"),
        ),
        f"Where it lies: {prediction.phase.replace('_', ' ')}",
        r"$\gamma_{\sigma^2}$",
        r"$\gamma_w$",
        xlim=(float(x[0]), float(x[-1])),
        ylim=(float(y[0]), float(y[-1])),
    )
