"""Descent on the linear network of a layer, and training of the network itself beside it."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from linnet import observe
from linnet.optim import SGD
from linnet.outcome import Status
from linnet.prediction.assumption import Assumption
from linnet.prediction.panel import Curve, Panel
from linnet.prediction.prediction import Column, Comparison, ExactRun, Prediction, Progress, Quantity, Row
from linnet.problems import Problem
from linnet.record import Record, at
from linnet.simulation import simulate
from linnet.states import Network
from linnet.trajectory import Trajectory

_RECORDS = 64
_RIGHT = 0.1  # of the loss's fall: a prediction is right while its error is below
_ROUNDINGS = 100  # units of rounding of the loss that do not count
_DIFFERENT = 1000  # units of rounding by which outputs must differ to count as different


class LayerCurves(NamedTuple):
    """Recorded steps, the loss of linear theory there, and that of the network itself at the same weights."""

    steps: Int[np.ndarray, " records"]
    loss: Float[np.ndarray, " records"]
    there: Float[np.ndarray, " records"]


class Runs(NamedTuple):
    """Training of the layer alone, and of all weights (None where the layer is all weights)."""

    alone: Trajectory
    everything: Trajectory | None = None


def record_points(steps: int) -> Record:
    """All steps of few, else evenly in the logarithm."""
    if steps <= _RECORDS:
        return at(range(steps + 1))
    return at([0, *np.unique(np.rint(np.geomspace(1, steps, _RECORDS)).astype(int)).tolist()])


def over(part: Any, whole: Any) -> Float[Array, ""]:
    """The norm of one over that of the other; 0 where nothing moves."""
    size = jnp.linalg.norm(whole)
    return jnp.linalg.norm(part) / jnp.where(size > 0, size, jnp.inf)


def experiment(
    problem: Problem,
    network: Network,
    layer: int | None,
    lr: float,
    steps: int,
    curves: LayerCurves,
    linear_outputs: Float[np.ndarray, "d_out n"] | None,
    curvature: Callable[[Network, Problem], float],
) -> ExactRun:
    """Descent of the network itself, the layer alone and then all weights; `curvature` is the layer's at the end."""
    networks = [network] if layer is None else [network.alone(layer), network]

    def run(progress: Progress | None) -> Runs:
        def trained(i: int, state: Network) -> Trajectory:
            heard = None
            if progress is not None:
                heard = lambda done, total: progress(i * total + done, len(networks) * total)  # noqa: E731
            record = record_points(steps)
            return simulate(problem, state, SGD(lr), steps=steps, record=record, observe=[observe.loss], progress=heard)

        return Runs(*(trained(i, state) for i, state in enumerate(networks)))

    def row(name: str, run: Trajectory, end: Network) -> Row:
        loss = np.asarray(run["loss"], dtype=float)
        at_steps, error = _errors(curves, np.asarray(run.steps), loss, float(np.finfo(network.inputs.dtype).eps))
        wrong = np.flatnonzero(~(error <= _RIGHT))
        diverged = run.status == Status.DIVERGED
        off = math.nan
        if not diverged and linear_outputs is not None:
            off = float(over(end.matrix - linear_outputs, linear_outputs - network.matrix))
        return Row(
            trained=name,
            status=run.status,
            steps=int(run.ended),
            loss=Row(initial=float(loss[0]), final=float(loss[-1])),
            output_error=off,  # |f - f_lin| / |f_lin - f_0| at the end
            error=float(error[-1]),  # |C_lin - C| over the larger fall of the loss, at the end
            right_until=int(at_steps[wrong[0] - 1 if wrong.size else -1]),
            gauss_newton_sharpness=math.nan if diverged else curvature(end, problem),
        )

    def read(runs: Runs | Trajectory) -> tuple[Quantity, ...]:
        alone, everything = runs if isinstance(runs, Runs) else Runs(runs)
        rows = [row("all weights" if layer is None else f"W_{layer} alone", alone, alone.final)]  # type: ignore[arg-type]
        if everything is not None:
            rows.append(row("all weights", everything, everything.final.alone(layer)))  # type: ignore[attr-defined]
        return (
            Quantity("alone", rows[0]),
            Quantity("everything", None if everything is None else rows[1]),
            Quantity(
                "runs",
                tuple(rows),
                f"Exact runs (right: the loss is wrong by less than {_RIGHT:.0%} of what it has fallen by)",
                columns=(
                    Column("trained", "trained", prose=True),
                    Column("status", "status", spare=2),
                    Column("loss", "loss", lambda loss: f"{loss.final:.4g}"),
                    Column("error", "its error", ".2g"),
                    Column("output_error", "of outputs", ".2g"),
                    Column("right_until", "right until step"),
                    Column("gauss_newton_sharpness", "curvature", spare=1),
                ),
            ),
        )

    return ExactRun(run, read, {"loss": observe.loss}, kind=Runs)


def _errors(
    curves: LayerCurves, steps: Int[np.ndarray, " records"], loss: Float[np.ndarray, " records"], rounding: float
) -> tuple[Int[np.ndarray, " both"], Float[np.ndarray, " both"]]:
    """The steps that both have recorded, and |C_lin - C| over the larger fall of the loss there."""
    both, ours, theirs = np.intersect1d(curves.steps, steps, return_indices=True)
    linear, exact = (np.where(np.isfinite(x), x, math.inf) for x in (curves.loss[ours], loss[theirs]))
    ended = np.isinf(linear) | np.isinf(exact)  # one of them has diverged
    linear, exact = (np.where(ended, 0.0, x) for x in (linear, exact))
    apart = np.abs(linear - exact)
    fall = np.maximum(np.abs(loss[0] - exact), np.abs(curves.loss[0] - linear))
    nothing = (apart <= _ROUNDINGS * rounding * np.abs(loss[0])) | (fall == 0)
    return both, np.where(ended, math.inf, np.where(nothing, 0.0, apart / np.where(nothing, 1.0, fall)))


def panels(prediction: Prediction, comparison: Comparison | None) -> list[Panel]:
    """The loss against the step, with the runs if there are any, and curvature and share of every mode."""
    curves: LayerCurves = prediction.data["curves"]
    name = "all weights" if prediction.layer is None else f"$W_{{{prediction.layer}}}$"
    losses = [
        Curve(f"linear theory of {name}", curves.steps, curves.loss, "measured", "theory"),
        Curve("the network at its weights", curves.steps, curves.there, "line", "quiet"),
    ]
    if comparison is not None:
        runs = comparison.run if isinstance(comparison.run, Runs) else Runs(comparison.run)
        alone = f"{name} alone" if runs.everything is not None else name
        for run, color, label in ((runs.alone, "train", alone), (runs.everything, "test", "all weights")):
            if run is not None:
                losses.append(Curve(label, np.asarray(run.steps), np.asarray(run["loss"]), "theory", color))
    highest = max([prediction.loss.initial, *(float(np.max(c.y[np.isfinite(c.y)])) for c in losses[2:])])
    modes, limit = np.arange(len(prediction.modes)) + 1, np.array([2 / prediction.lr])
    shares = np.array([100 * mode.share for mode in prediction.modes])
    curvatures = np.array([mode.curvature for mode in prediction.modes])
    step = f"step of gradient descent, lr = {prediction.lr:.3g}"
    return [
        Panel(tuple(losses), "", step, "loss", ylim=(0, 1.15 * highest)),
        Panel(
            (Curve("share", modes, shares, "points", "signal", labeled=False),), "", "mode", "share of the loss in %"
        ),
        Panel(
            (
                Curve("curvature", modes, curvatures, "points", "noise"),
                Curve("2 / lr", modes[:1], limit, "horizontal", "theory"),
            ),
            "",
            "mode",
            "curvature",
            log="y",
        ),
    ]


# Descent of the linear network ---------------------------------------------------------------------------------------


class LinearEnd(NamedTuple):
    """The network itself at the weights to which linear theory leads, and the linear outputs there."""

    nonlinearity: float
    bent: float
    cost: float  # how far it is from quadratic
    kernel: float  # by how much it has changed
    outputs: Float[np.ndarray, "d_out n"] | None

    def assumptions(self, rounding: float) -> tuple[Assumption, Assumption]:
        """That outputs are linear along the way, and that the cost is quadratic."""
        linear = "outputs are linear in the weights along the way (|f - f_lin| / |f_lin - f_0|)"
        quadratic = "the cost is quadratic along the way (error of its gradient)"
        return (
            Assumption.of(linear, self.nonlinearity, exact=rounding),
            Assumption.of(quadratic, self.cost, exact=rounding),
        )


def linear_run(moving: Network, problem: Problem, lr: float, steps: int) -> tuple[LayerCurves, LinearEnd]:
    """Descent of the linear network, and the network itself at the same weights."""
    observables: dict[str, Any] = {"loss": observe.loss, "there": _there}
    linear = moving.linearized()
    run = simulate(problem, linear, SGD(lr), steps=steps, record=record_points(steps), observe=observables)
    loss, there = (np.asarray(run[name], dtype=float) for name in observables)
    if run.status == "diverged":
        loss = np.append(loss[:-1], math.inf)
        return LayerCurves(np.asarray(run.steps), loss, there), LinearEnd(math.nan, math.nan, math.nan, math.nan, None)
    final: Any = run.final
    ended = eqx.tree_at(lambda s: s.parameters, moving, final.parameters[0])
    off, bent, cost, kernel, outputs = _compared(moving, ended, final, problem)
    end = LinearEnd(float(off), float(bent), float(cost), float(kernel), np.asarray(outputs))
    return LayerCurves(np.asarray(run.steps), loss, there), end


def _there(state: Any, problem: Problem) -> Float[Array, ""]:
    """The loss of the network itself at the weights of its linearization"""
    moved, _, frozen = eqx.combine(state.parameters, state.frozen)
    there = Network(state.function.function, eqx.combine(moved, frozen), state.inputs, chunk_size=state.chunk_size)
    return problem.cost(there.matrix)


@eqx.filter_jit
def _compared(initial: Network, end: Network, linear: Network, problem: Problem) -> tuple[Array, ...]:
    """How far outputs, the cost's curvature, and the kernel have changed since initialization."""
    before, after, straight = initial.matrix, end.matrix, linear.matrix
    off, moved = after - straight, straight - before
    rounding = _DIFFERENT * float(np.finfo(before.dtype).eps)
    size = jnp.linalg.norm(after, axis=0) + jnp.linalg.norm(before, axis=0)
    force = problem.gradient(before)
    curved = problem.curvature(before, moved)
    apart = over(problem.gradient(straight) - force - curved, curved)
    kernels = [state.tangent(force) for state in (initial, end)]
    bent = jnp.mean(jnp.linalg.norm(off, axis=0) > rounding * size, dtype=before.dtype)
    return over(off, moved), bent, apart, over(kernels[1] - kernels[0], kernels[0]), straight
