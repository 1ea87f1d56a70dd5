"""Two-stage feature learning of a two-layer network of one output: stages, growth of the kernel, end, learning rates.

f = (1/width) X W_1^T v with loss |f - y|^2 / (2n), from W_1 ~ N(0, sigma0^2) and v = +-v0. While the loss stands still
the neurons align with X^T y; then the output grows along that direction. The equations are in `linnet.theory.feature`.
"""

import math
from typing import Any

import jax
import numpy as np

from linnet import _check
from linnet._check import InputError
from linnet.init import readout
from linnet.prediction.assumption import Assumption
from linnet.prediction.data import OwnSamples
from linnet.prediction.prediction import Prediction
from linnet.prediction.theories.features_prediction import Population, predicted
from linnet.prediction.theories.features_run import Law
from linnet.prediction.theories.gradient_flow import descent_lr, require
from linnet.prediction.validation import LARGEST, SMALLEST
from linnet.problems import Regression, mean_field_regression, samples_and_teacher
from linnet.states import Weights
from linnet.theory import feature
from linnet.theory.feature import Covariance

_EVEN = "the initial kernel is even (its spread at this width)"
_SMALL = "the initial output is small (beside the labels)"
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
) -> Prediction:
    """Stages, kernel growth, end, and learning rates of a two-layer network on these samples, before it is trained.

    The output is f = (1/width) X W_1^T v, the loss |f - y|^2 / (2n); training starts from W_1 ~ N(0, sigma0^2) and
    v = +-v0.

    - `inputs`: samples as rows, or what `read_regression` returns in place of both; subtract the column means first.
    - `labels`: a number for each sample.
    - `lr`: by default a tenth of the largest stable one.
    - `eps`: the loss to be reached, for the paper's assumption; by default 1 % of the initial one.
    - `seed`: of the initialization that `measure` draws.

    Raises an InputError for samples that are zero, out of range, or too many, and for labels orthogonal to the inputs.
    """
    prepared: tuple[str, ...] = ()
    if isinstance(inputs, OwnSamples):
        prepared, (inputs, labels) = inputs.prepared, inputs
    x = np.asarray(_check.double("inputs", inputs, ndim=2))
    y = np.asarray(_check.double("labels", labels, ndim=(1, 2)))
    if y.ndim == 2 and y.shape[1] != 1:
        raise InputError(f"labels has {y.shape[1]} columns: it must have one, a number a sample.")
    for name, array in (("inputs", x), ("labels", y)):
        largest = np.max(np.abs(array))
        if largest == 0:
            raise InputError(f"{name} are all zero: there is nothing to learn.")
        if not SMALLEST < largest < LARGEST:
            raise InputError(f"{name} reach {largest:.3g}: give units that keep them from {SMALLEST:g} to {LARGEST:g}.")
    if min(x.shape) > _SAMPLES:
        raise InputError(
            f"inputs has shape {x.shape}: with more than {_SAMPLES} samples of more than {_SAMPLES} inputs it is too "
            "large; give fewer samples."
        )
    width = _width(width)
    problem = mean_field_regression(x, y, width=width)
    population, notes = _estimated(problem, x.mean(axis=0))
    # the span of the samples is all that moves, and a rotation-invariant initialization stays one there
    law = _drawn(problem.project().problem, width, v0, sigma0, seed)
    return predicted(law, population, "own", lr=lr, eps=eps, seed=seed, prepared=prepared, notes=notes)


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
) -> Prediction:
    """`features` of one draw of standard normal samples with labels x^T beta + noise, at a cost without `inputs`.

    `inputs` is their dimension, `noise2` the variance of the noise, `teacher` the norm of beta, by default that of as
    many normal numbers as there are inputs. The seed is that of the data and the initialization.

    `samples` is n; `width`, `v0`, and `sigma0` are those of the network; `lr` is by default a tenth of the largest
    stable one, and `eps` the loss to be reached by default 1 % of the initial one.
    """
    n = _check.integer("samples", samples, least=1, most=_SAMPLES)
    d = _check.integer("inputs", inputs, least=1, most=10**12)
    noise = _check.real("noise2", noise2, least=0, most=LARGEST)
    width, key = _width(width), jax.random.key(_check.seed(seed))
    if teacher is not None:
        _check.real("teacher", teacher, least=SMALLEST, most=LARGEST)
    drawn, (norm,) = samples_and_teacher(key, n, d, noise2=noise, teacher=teacher)
    law = _drawn(mean_field_regression(*drawn, width=width), width, v0, sigma0, seed)
    population = Population(feature.covariance(d), float(norm), noise)
    return predicted(law, population, "gaussian", lr=lr, eps=eps, seed=seed)


def for_triple(problem: Any, network: Any, optimizer: Any) -> Prediction:
    """`features` of a triple, with v0, sigma0, and the assumptions on the initialization measured on the network.

    It applies to `mean_field_regression` with one output, `Weights` of two layers such as `ln.init.readout` draws (in
    full or compressed width), and gradient descent on all samples. Raises NotApplicable where that is not so, and where
    the initial kernel is far from even or the initial output is not small.
    """
    one = isinstance(problem, Regression) and len(problem.shape) == 2 and problem.shape[0] == 1
    require("features", "a regression with one output", float(not one))
    two = isinstance(network, Weights) and network.depth == 2
    require("features", "a linear network of two layers", float(not two))
    lr = descent_lr("features", optimizer)
    few = f"at most {_SAMPLES} samples or inputs (their number over that)"
    Assumption.of(few, min(problem.root.shape) / _SAMPLES, rough=1).required("features")
    require("features", "the loss is an average over samples", abs(float(problem.scale) * problem.samples - 1))
    width, neurons = 1 / float(problem.output_scale), network.widths[1]
    off = max(neurons / width - 1, 0.0) if network.compressed else abs(width / neurons - 1)
    require("features", "the output is divided by the width", off)
    first, second = (np.asarray(layer) for layer in network.project(problem.project().basis).layers)
    rank, labels = first.shape[1], math.sqrt(float(problem.square))
    v0, gram = float(np.linalg.norm(second)) / math.sqrt(width), first.T @ first / width
    sigma0 = math.sqrt(float(np.trace(gram)) / rank)
    spread = float(np.linalg.norm(gram - sigma0**2 * np.eye(rank))) / math.sqrt(rank) / (v0**2 + sigma0**2)
    output = float(np.linalg.norm(np.asarray(problem.root) @ np.asarray(network.matrix)[0])) / width / labels
    law = Law(
        problem=problem,
        width=round(width),
        v0=_check.real("the second layer's size", v0, least=SMALLEST, most=LARGEST),
        sigma0=sigma0,
        even=Assumption.of(_EVEN, spread).required("features"),
        small=Assumption.of(_SMALL, output).required("features"),
        network=network,
    )
    mean = None if problem.frame is None else np.asarray(problem.frame).mean(axis=0) @ np.asarray(problem.root)
    population, notes = _estimated(problem, mean)
    return predicted(law, population, "own", lr=lr, notes=notes)


# Setting -------------------------------------------------------------------------------------------------------------


def _estimated(problem: Regression, mean: Any) -> tuple[Population, list[str]]:
    """The distribution estimated from the samples, with what makes the estimate or the prediction worse."""
    n, dimension = problem.samples, problem.shape[1]
    values = np.asarray(problem.singular_values) ** 2 / n
    covariance = Covariance(float(np.sum(values)), float(values[0]), float(np.linalg.norm(values)), dimension)
    notes = []
    if mean is not None and mean @ mean > 0.1 * covariance.trace:
        notes.append(
            "The inputs are not centered: the slope may pass 1 and the stages blur; subtract the column means."
        )
    if n < dimension:
        notes.append("With fewer samples than inputs the covariance is overestimated: c6 is really larger.")
    return Population(covariance, math.sqrt(float(problem.square) / n)), notes


def _width(width: Any) -> int:
    return _check.integer("width", width, least=1, most=10**12)


def _drawn(problem: Regression, width: int, v0: Any, sigma0: Any, seed: Any) -> Law:
    """The initialization N(0, sigma0^2), +-v0: its spread and its output as they are expected at this width."""
    v, key = _check.real("v0", v0, least=SMALLEST, most=LARGEST), _check.seed(seed)
    sigma = _check.real("sigma0", sigma0, least=0, most=LARGEST)
    if 0 < sigma < SMALLEST:
        raise InputError(f"sigma0 = {sigma:g} is not allowed: sigma0 must be 0 or at least {SMALLEST:g}.")
    task = feature.task(problem)
    return Law(
        problem=problem,
        width=width,
        v0=v,
        sigma0=sigma,
        even=Assumption.of(_EVEN, math.sqrt(len(problem.singular_values) / width) * sigma / math.hypot(v, sigma)),
        small=Assumption.of(_SMALL, v * sigma / (float(task.vstar2) * math.sqrt(width / problem.samples))),
        network=lambda: readout(jax.random.key(key), problem, width, sigma0=sigma, v0=v),
    )
