"""The exact descent beside a prediction of features."""

import math

import jax
import numpy as np

from linnet import observe
from linnet._check import InputError
from linnet.initial import readout
from linnet.motion import GradientDescent
from linnet.predict.answer import Loss, Progress
from linnet.predict.features_result import Curves, End, FeaturesMeasured, FeaturesPrediction, stages
from linnet.problems import Regression
from linnet.record import linear
from linnet.simulation import simulate
from linnet.states import State, Weights

_STEPS = 20_000  # the longest run
_RECORDS = 4000
_KERNELS = 200  # the most samples whose kernel is formed at every record


def measure(told: FeaturesPrediction, progress: Progress | None) -> FeaturesMeasured:
    """Exact gradient descent at the full width, in compressed coordinates."""
    steps, problem = _steps(told), told.problem
    looks = {"loss": observe.loss, "slope": observe.slope, "label": observe.label_kernel}
    if problem.root.shape[0] <= _KERNELS:
        looks["distance"] = observe.target_distance
    run = simulate(
        problem,
        readout(jax.random.key(told.seed), problem, told.width, sigma0=told.sigma0, v0=told.v0),
        GradientDescent(told.lr),
        steps=steps,
        record=linear(min(steps, _RECORDS) + 1),
        observe=looks,
        progress=progress,
    )
    at, loss, label = (np.asarray(values) for values in (run.steps, run["loss"], run["label"]))
    seen = Curves(step=at, loss=loss / told.loss.start, slope=np.asarray(run["slope"]), growth=label / label[0])
    found, diverged = stages(seen, told.lr, error=0.0), run.status == "diverged"
    there = None
    if "distance" in looks and found.t1 is not None:
        there = float(np.interp(found.t1.time / told.lr, at, np.asarray(run["distance"])))
    return FeaturesMeasured(
        prediction=told,
        status=run.status,
        steps=int(at[-1]),
        loss=Loss(start=float(loss[0]), end=float(loss[-1])),
        stages=found,
        kernel_growth=None if diverged else float(seen.growth[-1]),
        target_distance_at_t1=there,
        end=None if diverged else _end(run.final, problem, told.width),
        curves=seen,
    )


def _steps(told: FeaturesPrediction) -> int:
    """Until the model has settled and the residual has shrunk to a thousandth after it."""
    if told.curves is None:
        return 200
    factor = min(max(told.end.late_factor, 0.0), 1 - 1e-12)
    late = math.log(1e-3) / math.log(factor) if factor > 0 else 0.0
    steps = math.ceil(told.curves.step[-1]) + 1
    if steps > _STEPS:
        raise InputError(
            f"lr = {told.lr:g} is too small for the exact run: it takes about {steps} steps, and {_STEPS} are the "
            f"most; raise it, up to {told.largest_stable_lr:.4g}."
        )
    return min(_STEPS, steps + math.ceil(late))


def _end(state: State, problem: Regression, width: int) -> End:
    assert isinstance(state, Weights)
    first, second, root = (np.asarray(x) for x in (*state.layers, problem.root))
    # X = Q root, so that root has the kernel's eigenvalues in at most as many rows as there are inputs
    inner = np.sum(second**2) * np.eye(first.shape[1]) + first.T @ first
    kernel = float(problem.output_scale) ** 2 * root @ inner @ root.T
    return End(
        mean_square_v=float(np.sum(second**2)) / width,
        kernel_norm=float(np.linalg.eigvalsh(kernel)[-1]),
        target_distance=float(observe.target_distance(state, problem)),
    )
