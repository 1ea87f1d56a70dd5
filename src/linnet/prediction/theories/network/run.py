"""The exact training of a network beside its prediction."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from linnet import observe
from linnet._check import InputError
from linnet.curves import crossing, last_crossing
from linnet.optim import Event, MiniBatch, loss_below
from linnet.prediction.prediction import Progress, Quantity, Time, rows
from linnet.prediction.theories.network.analysis import Analysis
from linnet.prediction.theories.network.batches import MOMENTS
from linnet.prediction.theories.network.modes import FIT, HALF, LEARNED, NetworkModes, layer_values, squares
from linnet.prediction.theories.network.objective import Objective
from linnet.prediction.theories.network.thresholds import with_lr
from linnet.prediction.theories.network.times import FollowedTimes
from linnet.prediction.theories.network.verdict import Between
from linnet.record import at, every
from linnet.simulation import simulate
from linnet.states import Weights
from linnet.theory.optimizers import modified_equation
from linnet.trajectory import Trajectory

if TYPE_CHECKING:
    from linnet.prediction.theories.network.result import Setup

LATE = 128  # steps over which the range of a mode that keeps moving is taken
_LARGEST_RUN = 600  # rank of the data
_MOST_STEPS, _RECORDS, _CLOSELY = 300_000, 300, 8
_ENTRIES = 10_000_000  # of the matrices that are recorded
_FADED = 15  # over decay times steps: layers are balanced, to all digits of the loss
_REDUCED = "matrix in the coordinates of the samples"


class TrainingRun:
    """The exact run of a setup, and how it is read; `values` are those of the predicted quantities."""

    def __init__(self, setup: "Setup", objective: Objective, analysis: Analysis, values: Mapping[str, Any]):
        self.setup, self.objective, self.analysis, self.values = setup, objective, analysis, values
        self.layers = layers = objective.layers(objective.initial)
        reduction, modes, self.decay = setup.reduction, analysis.times.modes, float(setup.optimizer.effective_decay)
        floor, begin = reduction.best(values["bottleneck"])[1], values["loss"].initial - reduction.unexplained
        if self.decay:  # all losses are those with weight decay in them
            floor = reduction.loss(modes.matrix) + self.decay / 2 * squares(modes.value, len(layers))
            begin += self.decay / 2 * sum(float(np.sum(w**2)) for w in layers)
        self.floor, self.begin = floor, max(begin - floor, 1e-300)

    def run(self, progress: Progress | None) -> Trajectory:
        """Training in the coordinates of the samples, until 1e-12 of the excess loss is left."""
        rank = self.setup.reduction.scales.size
        if rank > _LARGEST_RUN:
            raise InputError(f"data of rank {rank} cannot be measured: exact runs need a rank <= {_LARGEST_RUN}.")
        steps = self._horizon()
        record, stop = at(self._records(steps)), self._converged()
        return simulate(**self._triple(), steps=steps, record=record, progress=progress, stop=stop)

    def _triple(self) -> dict[str, Any]:
        """Arguments of `simulate`: all samples by their moments, or fresh batches of them."""
        setup, lr = self.setup, self.analysis.lr
        observables = {"loss": observe.loss, _REDUCED: observe.matrix} | ({"squares": _squares} if self.decay else {})
        how: dict[str, Any] = {"state": Weights(self.layers, compressed=True), "observe": observables}
        if setup.batch_size is None:
            return how | {"problem": setup.reduction.problem, "optimizer": with_lr(setup.optimizer, lr)}
        if setup.reduction.units is None:
            raise InputError(
                f"run is not allowed with batch_size = {setup.batch_size}: {MOMENTS}; build it with samples=True."
            )
        optimizer = with_lr(setup.optimizer, lr, MiniBatch(setup.batch_size, draw="subset"))
        return how | {"problem": setup.reduction.sampled, "optimizer": optimizer, "key": jax.random.key(setup.seed)}

    def _converged(self) -> Event:
        goal = self.floor + 1e-12 * self.begin
        if not self.decay:
            return loss_below(goal)
        numbers = jnp.asarray(goal), jnp.asarray(self.decay)
        return Event(jax.tree_util.Partial(_regularized_loss_is_below, *numbers))

    def read(self, run: Trajectory) -> tuple[Quantity, ...]:
        """What a run of this triple shows: that of `run`, or one of the network itself that recorded loss or matrix."""
        modes, lr = self.analysis.times.modes, self.analysis.lr
        clock = np.asarray(run.times / lr if run.steps is None else run.steps, dtype=float)
        matrices, excess = self.matrices(run), self._excess(run)
        unknown = np.full(clock.size, math.nan)
        away = unknown if matrices is None else np.linalg.norm(matrices - modes.matrix, axis=(1, 2))
        left = unknown if excess is None else excess / self.begin
        events: Any = [math.nan] * modes.value.size
        ranges: list[Between | None] = [None] * modes.value.size
        if matrices is not None:
            shares = _along(modes, matrices) / modes.value
            rising = modes.begin < HALF * modes.value
            events = [crossing(clock, shares[:, i], HALF, "line") if up else 0.0 for i, up in enumerate(rising)]
            if run.status == "horizon" and not self.analysis.converges and _REDUCED in run.values:
                ranges = self._ranges(run)
        found = rows(half_learned=[_at(step, lr) for step in events], between=ranges)
        size, converged = float(np.linalg.norm(modes.value)), run.status == "converged"
        batches = "" if self.setup.batch_size is None else f" on batches of {self.setup.batch_size}"
        return (
            Quantity("status", run.status, f"how the run{batches} ended"),
            Quantity("steps", int(run.ended) if run.steps is not None else float(run.ended), "after"),
            Quantity("modes", found),
            Quantity("fit", _at(self._down(clock, left, FIT), lr)),
            Quantity("learned", _at(self._down(clock, away / max(away[0], 1e-300), LEARNED), lr)),
            Quantity("excess_loss_left", float(max(left[-1], 0.0)), "share of the excess loss left", format=".1e"),
            Quantity("predictor_error", float(away[-1] / size), "distance from the predicted end", format=".1e"),
            Quantity(
                "layer_error",
                self._layer_error(run) if converged else None,
                "the same of the layers' singular values",
                format=".1e",
            ),
        )

    def matrices(self, run: Trajectory) -> Float[np.ndarray, "records d_out rank"] | None:
        """The recorded end-to-end matrices in the coordinates of the samples, None where there are none."""
        if _REDUCED in run.values:
            return np.asarray(run[_REDUCED])
        basis = self.setup.reduction.basis
        if "matrix" not in run.values or np.shape(run["matrix"])[1:] != (self.setup.reduction.d_out, basis.shape[1]):
            return None
        return np.asarray(run["matrix"]) @ basis.T

    def shares(self, run: Trajectory) -> tuple[Int[np.ndarray, " records"], Float[np.ndarray, "records modes"]] | None:
        """Steps, and the learned shares of all modes there; None where the run did not record the matrix."""
        matrices, modes = self.matrices(run), self.analysis.times.modes
        if matrices is None or run.steps is None:
            return None
        return np.asarray(run.steps), _along(modes, matrices) / modes.value

    def _excess(self, run: Trajectory) -> Float[np.ndarray, " records"] | None:
        """The recorded excess losses, None where there are none."""
        if "loss" not in run.values:
            return None
        loss = np.asarray(run["loss"])
        if _REDUCED not in run.values:
            return None if self.decay else loss - self.setup.reduction.unexplained - self.floor
        return loss - self.floor + (self.decay / 2 * np.asarray(run["squares"]) if self.decay else 0.0)

    def _ranges(self, run: Trajectory) -> list[Between | None]:
        """Where each mode goes in the steps after a run that did not settle."""
        late = simulate(**self._triple(), steps=LATE, record=every(1), divergence_limit=1e300, resume_from=run)
        values = _along(self.analysis.times.modes, np.asarray(late[_REDUCED])[-LATE - 1 :])
        return [Between(float(x.min()), float(x.max())) for x in values.T]

    def _down(self, clock: Float[np.ndarray, " records"], left: Float[np.ndarray, " records"], share: float) -> float:
        """The step at which a share is left; with momentum, which comes back, the last one, unless there are batches,
        with which all of it comes back.
        """
        if np.isnan(left).any():
            return math.nan
        learned = -np.log(np.maximum(left, 1e-300))
        if self.setup.optimizer.momentum is not None and self.setup.batch_size is None:
            return last_crossing(clock, learned, -math.log(share))
        return crossing(clock, learned, -math.log(share), "line")

    def _horizon(self) -> int:
        """Enough steps to converge; where it is unknown how many, the loss says when to stop."""
        times, optimizer = self.analysis.times, self.setup.optimizer
        followed = isinstance(times, FollowedTimes) and not times.solution.arrived
        known = self.analysis.converges and not (optimizer.momentum is not None and followed)
        far = 1.5 * times.last if known else math.nan
        if self.decay and self.setup.batch_size is None:  # on batches nothing comes to rest with weight decay
            far += _FADED / (modified_equation(self.analysis.lr, **optimizer.coefficients).rate * self.decay)
        return self._unknown_horizon() if math.isnan(far) else int(min(max(far, 2000), _MOST_STEPS))

    def _unknown_horizon(self) -> int:
        """What is unknown may take long; what keeps moving shows soon how."""
        halves = [mode.half_learned.step for mode in self.values["modes"]]
        known = [step for step in halves if math.isfinite(step)]
        followed = self.analysis.verdict.followed
        if followed is not None:
            return followed
        if self.analysis.converges or len(known) < len(halves):
            return _MOST_STEPS
        return int(min(max(20 * max(known), 2000), _MOST_STEPS))

    def _records(self, steps: int) -> list[int]:
        """Evenly spaced in the logarithm, and densely where something is expected to happen."""
        entries, get = self.setup.reduction.limit.size, self.values
        count = int(min(_RECORDS, max(_ENTRIES / entries, 20)))
        halves = [mode.half_learned.step for mode in get["modes"][:_CLOSELY]]
        events = [x for x in (*halves, get["fit"].step, get["learned"].step) if math.isfinite(x)]
        near = [event * np.linspace(0.7, 1.5, count // 5) for event in events]
        if self.setup.optimizer.momentum is not None:  # it oscillates, so that each step counts
            assert isinstance(self.analysis.times, FollowedTimes)
            near.append(np.arange(min(self.analysis.times.solution.exact, _ENTRIES / entries) + 1))
        chosen = np.unique(np.rint(np.concatenate([[0], np.geomspace(1, steps, count), *near])))
        return [int(step) for step in chosen if step <= steps]

    def _layer_error(self, run: Trajectory) -> float | None:
        """The largest relative error of what each layer multiplies each mode by."""
        predicted = [mode.layers for mode in self.values["modes"] if mode.layers is not None]
        if not predicted or not isinstance(run.final, Weights) or run.final.depth == 1:
            return None
        layers = [np.asarray(w) for w in run.final.layers]
        if _REDUCED not in run.values:
            layers[0] = layers[0] @ self.setup.reduction.basis.T
        modes = self.analysis.times.modes
        found = layer_values(layers, modes.left, modes.right)
        return float(np.max(np.abs(found / np.array(predicted).T - 1)))


def _along(
    modes: NetworkModes, matrices: Float[np.ndarray, "records d_out rank"]
) -> Float[np.ndarray, "records modes"]:
    return np.einsum("oi,toj,ji->ti", modes.left, matrices, modes.right, optimize=True)


def _at(step: float, lr: float) -> Time:
    return Time(step * lr, step, 0.0)


def _squares(state: Any, problem: Any = None) -> Any:
    """|W_1|^2 + ... + |W_L|^2."""
    return sum((jnp.sum(w**2) for w in state.layers), start=jnp.zeros(()))


def _regularized_loss_is_below(value: Any, decay: Any, state: Any, problem: Any) -> Any:
    return problem.cost(state.matrix) + decay / 2 * _squares(state) < value
