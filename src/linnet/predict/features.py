"""Does a two-layer network of one output learn features, in which stages and when?"""

import math
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from linnet import _check, observe
from linnet._check import InputError
from linnet.linalg import RANK_TOLERANCE
from linnet.predict import asked
from linnet.predict.answer import Hypothesis, Loss, Source
from linnet.predict.asked import LARGEST, SMALLEST
from linnet.predict.data import OwnSamples
from linnet.predict.features_result import Curves, Data, FeaturesPrediction, PredictedEnd, stages
from linnet.problems import Regression, mean_field_regression, samples_and_teacher
from linnet.theory import feature
from linnet.theory.feature import Covariance, EndState, Task
from linnet.theory.regime import Regime

_SAMPLES = 2000  # the most samples whose kernel is formed


def features(
    inputs: Any,
    labels: Any = None,
    *,
    width: int,
    v0: float,
    sigma0: float,
    lr: float | None = None,
    eps: float | None = None,
    seed: int = 0,
) -> FeaturesPrediction:
    """Does a two-layer network learn features of these samples, in which stages and when?

    Samples are rows, with one label each, or what `read_regression` returns in place of both; subtract the column means
    of the inputs first (`center`). f = (1/width) X W_1^T v with
    loss |f - y|^2 / (2n), from W_1 ~ N(0, sigma0^2) and v = +-v0. Without `lr` a tenth of the largest stable step is
    taken. `eps` is a loss to be reached, for the paper's assumption, by default 1 % of the start's. The seed is that of
    the start.
    """
    prepared: tuple[str, ...] = ()
    if isinstance(inputs, OwnSamples):
        prepared, (inputs, labels) = inputs.prepared, inputs
    x, y = (
        np.asarray(_check.double("inputs", inputs, ndim=2)),
        np.asarray(_check.double("labels", labels, ndim=(1, 2))),
    )
    if y.ndim == 2 and y.shape[1] != 1:
        raise InputError(f"labels has {y.shape[1]} columns: it must have one, a number a sample.")
    for name, array in (("inputs", x), ("labels", y)):
        largest = np.max(np.abs(array))
        if largest == 0:
            raise InputError(f"{name} are all zero: there is nothing to learn.")
        if not SMALLEST < largest < LARGEST:
            raise InputError(f"{name} reach {largest:.3g}: give units that keep them from {SMALLEST:g} to {LARGEST:g}.")
    samples, dimension = x.shape
    if min(samples, dimension) > _SAMPLES:
        raise InputError(
            f"inputs has shape {x.shape}: with more than {_SAMPLES} samples of more than {_SAMPLES} inputs it is too "
            "large; give fewer samples."
        )
    width = _width(width)
    values = np.linalg.svd(x, compute_uv=False) ** 2 / samples
    notes = []
    mean = x.mean(axis=0)
    if mean @ mean > 0.1 * np.sum(values):
        notes.append("the inputs are not centred: the slope may pass 1 and the stages blur; subtract the column means")
    if samples < dimension:
        notes.append("with fewer samples than inputs the covariance is overestimated: c6 is really larger")
    given = _Given(
        data=Data.OWN,
        # the span of the samples is all that moves, and a rotation-invariant start stays one there
        problem=mean_field_regression(x, y, width=width).project().problem,
        dimension=dimension,
        sigma=Covariance(float(np.sum(values)), float(values[0]), float(np.linalg.norm(values))),
        beta_bar=float(np.linalg.norm(y) / math.sqrt(samples)),
        noise2=0.0,
        notes=tuple(notes),
    )
    return replace(_predict(given, width, v0, sigma0, lr, eps, asked.seed(seed)), prepared=prepared)


def gaussian_features(
    *,
    samples: int,
    inputs: int,
    width: int,
    v0: float,
    sigma0: float,
    noise2: float = 0.0,
    teacher: float | None = None,
    lr: float | None = None,
    eps: float | None = None,
    seed: int = 0,
) -> FeaturesPrediction:
    """`features` of one draw of standard normal samples with labels x^T beta + noise, at a price without `inputs`.

    `inputs` is their dimension, `noise2` the variance of the noise, `teacher` the norm of beta, by default that of as
    many normal numbers as there are inputs. The seed is that of the data and the start.
    """
    n = _check.integer("samples", samples, least=1, most=_SAMPLES)
    d = _check.integer("inputs", inputs, least=1, most=10**12)
    noise = _check.real("noise2", noise2, least=0, most=LARGEST)
    width, key = _width(width), jax.random.key(asked.seed(seed))
    if teacher is not None:
        _check.real("teacher", teacher, least=SMALLEST, most=LARGEST)
    drawn, (norm,) = samples_and_teacher(key, n, d, noise2=noise, teacher=teacher)
    given = _Given(
        data=Data.GAUSSIAN,
        problem=mean_field_regression(*drawn, width=width),
        dimension=d,
        sigma=feature.covariance(d),
        beta_bar=float(norm),
        noise2=noise,
        notes=(),
    )
    return _predict(given, width, v0, sigma0, lr, eps, asked.seed(seed))


# Prediction ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Given:
    """Samples, and what the paper's assumption wants to know of where they come from."""

    data: Data
    problem: Regression
    dimension: int
    sigma: Covariance
    beta_bar: float
    noise2: float
    notes: tuple[str, ...]


def _width(width: Any) -> int:
    return _check.integer("width", width, least=1, most=10**12)


def _predict(given: _Given, width: int, v0: Any, sigma0: Any, lr: Any, eps: Any, seed: int) -> FeaturesPrediction:
    v = _check.real("v0", v0, least=SMALLEST, most=LARGEST)
    sigma0 = _check.real("sigma0", sigma0, least=0, most=LARGEST)
    if 0 < sigma0 < SMALLEST:
        raise InputError(f"sigma0 = {sigma0:g} is not allowed: sigma0 must be 0 or at least {SMALLEST:g}.")
    task = feature.task(given.problem)
    start_loss = float(task.start_loss)
    eps = 0.01 * start_loss if eps is None else _check.real("eps", eps, least=SMALLEST, most=LARGEST)
    limits, end = feature.step_limits(task, v, sigma0), feature.end_state(task, v, sigma0)
    stable = min(float(limits.start), float(limits.end))
    step = 0.1 * stable if lr is None else _check.real("lr", lr, least=SMALLEST, most=LARGEST)
    richness, growth = (
        float(f) for f in (feature.richness(task.vstar2, v, sigma0), feature.total_growth(task, v, sigma0))
    )
    spectrum = np.linalg.svd(np.asarray(task.root), compute_uv=False)
    spectrum = spectrum[spectrum > RANK_TOLERANCE * spectrum[0]]
    samples = int(given.problem.samples)
    x, settles = float(task.step(step)), step < stable
    curves = _model(task, x, richness, v, sigma0) if settles else None
    left = _left(task, end)
    output = v * sigma0 / (float(task.vstar2) * math.sqrt(width / samples))
    return FeaturesPrediction(
        samples=samples,
        inputs=given.dimension,
        width=width,
        v0=v,
        sigma0=sigma0,
        seed=seed,
        data=given.data,
        gamma=float(task.gamma),
        condition=float(spectrum[0] / spectrum[-1]),
        v_star=math.sqrt(float(task.vstar2)),
        richness=richness,
        regime=Regime.of_growth(growth),
        kernel_growth=growth,
        kernel_growth_isotropic=float(feature.kernel_growth(richness)),
        lr=step,
        lr_chosen=lr is None,
        x=x,
        largest_stable_lr=stable,
        largest_lr_without_overshoot=min(float(limits.monotone), stable),
        settles=settles,
        floor=float(task.floor) / start_loss,
        loss=Loss(start=start_loss, end=left * start_loss),
        stages=None if curves is None else stages(curves, step, rounded=bool(curves.step[1] > 1)),
        end=PredictedEnd(
            mean_square_v=float(end.mean_square),
            kernel_norm=float(np.asarray(end.values)[0]),
            target_distance=_distance(task, end),
            late_factor=float(feature.late_factor(task, step, end)),
        ),
        eps=eps,
        assumptions=tuple(
            feature.assumptions(
                samples,
                given.dimension,
                width,
                given.sigma,
                beta_bar=given.beta_bar,
                sigma0=sigma0,
                v0=v,
                lr=step,
                eps=eps,
                noise2=given.noise2,
            )
        ),
        notes=(*given.notes, *_notes(output, sigma0 / v, width, len(spectrum))),
        theory=_sources(
            uneven=math.sqrt(len(spectrum) / width) * sigma0 / math.hypot(v, sigma0),
            output=output,
            turned=float(task.floor) / start_loss - left,
            step=step / stable,
        ),
        problem=given.problem,
        task=task,
        curves=curves,
    )


def _notes(output: float, tilt: float, width: int, directions: int) -> list[str]:
    notes = []
    if output > 0.1:
        notes.append(
            "the start's own output is not small beside the labels, as the model wants it: the loss will differ"
        )
    if tilt > 0.1 and width < 10 * directions:
        notes.append(
            f"width {width} is not large beside the {directions} directions of the samples, as the model wants it: "
            "the start's kernel is uneven, and times and growth will differ"
        )
    return notes


def _sources(*, uneven: float, output: float, turned: float, step: float) -> tuple[Source, ...]:
    """Where each figure is from."""
    wide = Hypothesis.of("the start's kernel is even (its spread at this width)", uneven)
    small = Hypothesis.of("the start's output is small (beside the labels)", output)
    along = Hypothesis.of("X X^T y is along y (the share of the loss that is not)", turned, exact=1e-12)
    short = Hypothesis.of("steps are short (lr over the largest stable)", step)
    return (
        Source("stages", "two scalars for the whole training", ("feature/C17", "feature/C21"), (along, wide, small)),
        Source(
            "kernel_growth, end",
            "the flow multiplies [W_1, v] by a Lorentz matrix, which the labels fix",
            ("feature/C22", "feature/C24", "feature/C25", "feature/C26"),
            (wide, short),
        ),
        Source(
            "largest_stable_lr, largest_lr_without_overshoot",
            "kernels at the start and the end; no overshoot up to x = 1/2",
            ("feature/C23",),
            (wide,),
        ),
    )


def _left(task: Task, end: EndState) -> float:
    """The share of the loss that no linear function of the samples removes."""
    inside = float(np.sum((np.asarray(task.inside) - np.asarray(end.fitted(task.root))) ** 2))
    left = (inside + float(task.problem.unexplained)) / float(task.square)
    return left if left > 1e-14 else 0.0


def _distance(task: Task, end: EndState) -> float:
    root = np.asarray(task.root)
    target = observe.target_kernel(root @ root.T, task.inside, float(end.mean_square) / float(task.width))
    return float(observe.kernel_distance(end.kernel(task.root), target))


def _model(task: Task, x: float, richness: float, v0: float, sigma0: float) -> Curves:
    """Loss, slope and growth of the kernel by the aligned model: map of descent, or the flow where steps are tiny.

    Steps of the flow are those of descent to a share of x/2, below 1/2000.
    """
    start = feature.expected_amplitudes(v0, sigma0)
    share = float(feature.kernel_growth(richness)) / richness  # 1/x of the largest step
    rapidity = float(feature.total_rapidity(richness)) + 8 / share
    if x * share >= 1e-3:
        steps = np.arange(math.ceil(rapidity / math.log1p(x)) + 2.0)
        path = feature.aligned_descent(start, x, task.vstar2, len(steps) - 1)
    else:
        theta = np.linspace(0, rapidity, 8001)
        steps, path = theta / x, feature.aligned_flow(theta, start, task.vstar2)
    return Curves(
        step=steps,
        loss=np.asarray(path.loss(task)) / float(task.start_loss),
        slope=np.asarray(path.slope(start, v0)),
        growth=np.asarray(path.kernel_growth(start)),
    )
