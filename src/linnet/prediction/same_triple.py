"""Whether a run can be compared with a prediction: what it recorded, and whether it is one of the same triple."""

from typing import Any

import numpy as np

from linnet._check import InputError
from linnet.optim import DiscreteDynamics
from linnet.prediction.prediction import ExactRun, Prediction
from linnet.trajectory import Trajectory

_ROUNDING = 1e-6  # relative: runs in single precision are compared too


def check(prediction: Prediction, experiment: ExactRun, run: Any) -> None:
    """Raises `InputError` for a run that the prediction cannot be compared with."""
    if experiment.kind is not None and isinstance(run, experiment.kind):
        return
    if not isinstance(run, Trajectory):
        raise InputError(
            f"run = {type(run).__name__} is not allowed: compare takes what simulate returns, or the run of measure()."
        )
    if np.ndim(run.code):
        raise InputError("a batch of runs cannot be compared: take one of it, jax.tree.map(lambda x: x[i], runs).")
    missing = [name for name in experiment.observables if name not in run.values and name not in experiment.optional]
    if missing:
        raise InputError(
            f"the run has not recorded {', '.join(missing)}: give simulate observe=prediction.observables."
        )
    if experiment.kind is not None and not experiment.observables:
        raise InputError(f"{prediction.topic} is not read from a run: measure() computes what it predicts.")
    _same_problem(prediction, run)
    _same_clock(prediction.optimizer, run)


def _same_problem(prediction: Prediction, run: Trajectory) -> None:
    """The shape of the end-to-end matrix, and where it was recorded, the matrix at initialization."""
    if "matrix" not in run.values or prediction.network is None:
        return
    matrix, initial = np.asarray(run["matrix"]), np.asarray(prediction.network.matrix)
    if matrix.shape[1:] != initial.shape:
        raise InputError(
            f"the run has a matrix of shape {matrix.shape[1:]}: that of this prediction has shape {initial.shape}."
        )
    clock = run.times if run.steps is None else run.steps
    off = np.max(np.abs(matrix[0] - initial), initial=0.0)
    if float(clock[0]) == 0 and off > _ROUNDING * np.max(np.abs(initial), initial=1e-300):
        raise InputError("the run begins with another network: its matrix differs from that of this prediction.")


def _same_clock(optimizer: Any, run: Trajectory) -> None:
    """The flow time of a step, which the learning rate decides."""
    if run.steps is None or not isinstance(optimizer, DiscreteDynamics):
        return
    taken, predicted = float(run.times[-1]), float(optimizer.time(run.steps)[-1])
    if abs(taken - predicted) > _ROUNDING * abs(predicted):
        raise InputError(
            f"the run has another learning rate: its {int(run.steps[-1])} steps take flow time {taken:.6g}, and those "
            f"of this prediction {predicted:.6g}."
        )
