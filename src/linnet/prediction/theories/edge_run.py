"""Descent itself beside the end of the rod: averages over the last steps of a run."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from linnet._check import InputError
from linnet.observe import observable
from linnet.optim import SGD
from linnet.outcome import Status
from linnet.prediction.prediction import Comparison, Curve, ExactRun, Panel, Prediction, Progress, Quantity
from linnet.record import every, linear
from linnet.simulation import simulate

if TYPE_CHECKING:
    from linnet.trajectory import Trajectory

WINDOW = 200  # steps of descent over which is averaged


@observable()
def weights(state: Any, problem: Any) -> Float[Array, " weights"]:
    """All weights, in a row"""
    return ravel_pytree(state.trained())[0]


def experiment(problem: Any, network: Any, lr: float, steps: int) -> ExactRun:
    """Descent for so many steps; of the last ones all are recorded."""
    observed: dict[str, Any] = {"loss": "loss", "matrix": "matrix", "weights": weights}

    def run(progress: Progress | None) -> "Trajectory":
        first = simulate(problem, network, SGD(lr), steps=steps - WINDOW, record=linear(2), progress=progress)
        if first.status == Status.DIVERGED:
            return first
        return simulate(problem, first.final, SGD(lr), steps=WINDOW - 1, record=every(1), observe=observed)

    def read(run: "Trajectory") -> tuple[Quantity, ...]:
        return _read(network, run)

    return ExactRun(run, read, observed, optional=("matrix", "weights"))


def _read(network: Any, run: "Trajectory") -> tuple[Quantity, ...]:
    """Averages over the last steps, of what the run has recorded."""
    status = Quantity("status", str(run.status), "status")
    if run.status == Status.DIVERGED:
        return (status, Quantity("mean_loss", math.inf))
    taken = np.asarray(run.steps)
    if not np.array_equal(taken[-WINDOW:], np.arange(taken[-1] - WINDOW + 1, taken[-1] + 1)):
        raise InputError(
            f"the run is not recorded at each of its last {WINDOW} steps, over which the loss is averaged."
        )
    late = {name: np.asarray(run[name])[-WINDOW:] for name in run.values}
    found = [status, Quantity("mean_loss", float(np.mean(late["loss"])))]
    if "matrix" in late:
        found.append(Quantity("mean_predictor_norm", float(np.linalg.norm(np.mean(late["matrix"], axis=0)))))
    if "weights" in late:
        initial = np.asarray(ravel_pytree(network.trained())[0])
        found.append(Quantity("amplitude", float(np.sqrt(np.sum(np.var(late["weights"], axis=0))))))
        found.append(Quantity("distance", float(np.linalg.norm(np.mean(late["weights"], axis=0) - initial))))
    return tuple(found)


def panels(prediction: Prediction, comparison: Comparison | None) -> list[Panel]:
    """The mean loss and the amplitude along the rod, with those of the run's last steps if there is one."""
    rod = prediction.data["rod"]
    steps = np.asarray(rod.steps)
    loss = [Curve("rod, mean loss", steps, np.asarray(rod["predicted_loss"]), "theory")]
    size = [Curve("rod", steps, np.sqrt(np.asarray(rod["oscillation"])), "theory")]
    if comparison is not None:
        last = steps[-1:]
        loss.append(Curve("descent, last steps", last, np.array([comparison["mean_loss"].value]), "squares"))
        if "amplitude" in comparison:
            size.append(Curve("descent, last steps", last, np.array([comparison["amplitude"].value]), "squares"))
    return [Panel(tuple(loss), "", "step", "loss", log="y"), Panel(tuple(size), "", "step", "amplitude", log="y")]
