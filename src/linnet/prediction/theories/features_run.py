"""Exact gradient descent beside a prediction of feature learning: the run, what is read off it, and the panels."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Num

from linnet import observe
from linnet._check import InputError
from linnet.curves import crossing
from linnet.optim import SGD
from linnet.outcome import Status
from linnet.prediction.assumption import Assumption, Source
from linnet.prediction.panel import Curve, Panel
from linnet.prediction.prediction import Comparison, ExactRun, Prediction, Progress, Quantity, Row, Time
from linnet.problems import Regression
from linnet.record import linear
from linnet.simulation import simulate
from linnet.states import Weights
from linnet.theory.feature import ALIGNED
from linnet.trajectory import Trajectory

_STEPS = 20_000  # the longest run
_RECORDS = 4000
_KERNELS = 200  # the most samples whose kernel is formed at every record


@dataclass(frozen=True, kw_only=True)
class Law:
    """A problem, the initialization W_1 ~ N(0, sigma0^2) and v = +-v0, and how even its kernel and small its output is.

    `network` holds the initial weights, or draws them.
    """

    problem: Regression
    width: int
    v0: float
    sigma0: float
    even: Assumption
    small: Assumption
    network: Weights | Callable[[], Weights]


class FeatureCurves(NamedTuple):
    """Loss over that of an output of zero, slope, and y^T Theta y over its initial value, at steps of descent."""

    step: Num[np.ndarray, " records"]
    loss: Float[np.ndarray, " records"]
    slope: Float[np.ndarray, " records"]
    growth: Float[np.ndarray, " records"]


def stages(
    curves: FeatureCurves | None,
    lr: float,
    *,
    rounded: bool = False,
    error: float | None = None,
    source: Source | None = None,
) -> tuple[Quantity, ...]:
    """The stages on predicted or measured curves: times that do not come are None, `rounded` ones have three digits."""
    t1 = half = left = growth = two = None
    if curves is not None:
        t1, half = _reached(curves.step, curves.slope, ALIGNED), _reached(curves.step, -curves.loss, -0.5)
        if t1 is not None:
            left, growth = (float(np.interp(t1, curves.step, curve)) for curve in (curves.loss, curves.growth))
        two = left is not None and left > 0.5

    def when(step: int | None) -> Time | None:
        if step is None:
            return None
        shown = int(float(f"{step:.3g}")) if rounded else step
        return Time(lr * shown, step=shown, error=error)

    return (
        Quantity("t1", when(t1), f"aligned (slope {ALIGNED:g}) at step t1", "step", source=source),
        Quantity("loss_left_at_t1", left, "  loss left there", source=source),
        Quantity("kernel_growth_at_t1", growth, "  growth of the kernel until then", source=source),
        Quantity("half_loss", when(half), "loss halved at step", "step", source=source),
        Quantity("two_stages", two),
    )


def _reached(steps: np.ndarray, curve: np.ndarray, level: float) -> int | None:
    """The first whole step at which a curve has risen to a level, between two records by a line."""
    at = crossing(steps, curve, level, "line")
    return None if math.isnan(at) else math.ceil(at)


def end_quantities(
    mean_square: float | None, norm: float | None, distance: float | None, *, source: Source | None = None
) -> tuple[Quantity, ...]:
    """Where training ends: the second layer, and the tangent kernel on the samples."""
    return (
        Quantity("target_distance", distance, "distance from the target-aligned kernel, end", source=source),
        Quantity("mean_square_v", mean_square, "mean of v² at the end", source=source),
        Quantity("kernel_norm", norm, "largest eigenvalue of the kernel there", source=source),
    )


def experiment(
    law: Law, lr: float, *, initial_loss: float, stable: float, late: float, curves: FeatureCurves | None
) -> ExactRun:
    """Exact gradient descent at the full width, in compressed coordinates.

    It lasts until the model has settled and the residual has shrunk to a thousandth after it (`late` is its factor).
    """
    observables = {"loss": observe.loss, "slope": observe.slope, "label_kernel": observe.label_kernel}
    if law.problem.root.shape[0] <= _KERNELS:
        observables["target_distance"] = observe.target_distance

    def run(progress: Progress | None) -> Trajectory:
        steps = _steps(curves, lr, stable, late)
        network = law.network() if callable(law.network) else law.network
        record = linear(min(steps, _RECORDS) + 1)
        return simulate(
            law.problem, network, SGD(lr), steps=steps, record=record, observe=observables, progress=progress
        )

    def read(run: Trajectory) -> tuple[Quantity, ...]:
        measured, diverged = measured_curves(run, initial_loss), run.status == Status.DIVERGED
        found = {quantity.name: quantity for quantity in stages(measured, lr, error=0.0)}
        there, loss = None, np.asarray(run["loss"])
        if "target_distance" in run.values and found["t1"].value is not None:
            there = float(np.interp(found["t1"].value.time / lr, measured.step, np.asarray(run["target_distance"])))
        return (
            *found.values(),
            Quantity("kernel_growth", None if diverged else float(measured.growth[-1])),
            *(end_quantities(None, None, None) if diverged else _end(run.final, law)),
            Quantity("target_distance_at_t1", there, "distance from the target-aligned kernel at t1"),
            Quantity("loss", Row(initial=float(loss[0]), final=float(loss[-1]))),
            Quantity("loss_left", float(loss[-1]) / initial_loss, "loss at the end over that of an output of zero"),
            Quantity("status", run.status),
            Quantity("steps", int(measured.step[-1]), "steps"),
        )

    return ExactRun(run, read, observables, optional=("target_distance",))


def measured_curves(run: Trajectory, initial_loss: float) -> FeatureCurves:
    """What a run with the observables `loss`, `slope`, and `label_kernel` recorded."""
    step, loss, slope, label = (np.asarray(x) for x in (run.steps, run["loss"], run["slope"], run["label_kernel"]))
    return FeatureCurves(step=step, loss=loss / initial_loss, slope=slope, growth=label / label[0])


def _steps(curves: FeatureCurves | None, lr: float, stable: float, late: float) -> int:
    if curves is None:
        return 200
    factor = min(max(late, 0.0), 1 - 1e-12)
    more = math.log(1e-3) / math.log(factor) if factor > 0 else 0.0
    steps = math.ceil(curves.step[-1]) + 1
    if steps > _STEPS:
        raise InputError(
            f"lr = {lr:g} is too small for the exact run: it takes about {steps} steps, and {_STEPS} are the most; "
            f"raise it, up to {stable:.4g}."
        )
    return min(_STEPS, steps + math.ceil(more))


def _end(final: Any, law: Law) -> tuple[Quantity, ...]:
    problem = law.problem
    first, second, root = (np.asarray(x) for x in (*final.layers, problem.root))
    # X = Q root, so that root has the kernel's eigenvalues in at most as many rows as there are inputs
    inner = np.sum(second**2) * np.eye(first.shape[1]) + first.T @ first
    kernel = float(problem.output_scale) ** 2 * root @ inner @ root.T
    distance = float(observe.target_distance(final, problem))
    return end_quantities(float(np.sum(second**2)) / law.width, float(np.linalg.eigvalsh(kernel)[-1]), distance)


def panels(prediction: Prediction, comparison: Comparison | None) -> list[Panel]:
    """Loss, slope, and growth of the kernel by the two-scalar model, with the exact descent if there is one."""
    model: FeatureCurves | None = prediction.data["curves"]
    run = None if comparison is None else measured_curves(comparison.run, prediction.loss.initial)
    if model is None and run is None:
        raise InputError(
            f"plot needs a stable learning rate: lr = {prediction.lr:g} is above {prediction.largest_stable_lr:.4g}; "
            "lower lr, or draw the exact run."
        )

    def drawn(name: str, color: str) -> tuple[Curve, ...]:
        found = []
        if model is not None:
            found.append(Curve("two-scalar model", model.step, getattr(model, name), "theory", color))
        if run is not None:
            found.append(Curve("exact descent", run.step, getattr(run, name), "measured", "theory"))
        if prediction.t1 is not None:
            step = np.array([prediction.t1.step])
            found.append(Curve(f"$t_1$ = {prediction.t1.step}", step, step, "vertical", "noise"))
        return tuple(found)

    xlim = None if model is None else (0, float(model.step[-1]))
    grown = prediction.kernel_growth
    title = f"{prediction.regime}, R = {prediction.richness:.3g}: loss"
    return [
        Panel(drawn("loss", "train"), title, "step", "$L / L(0)$", "y", xlim, (1e-9, 3)),
        Panel(drawn("slope", "signal"), "Alignment of the neurons", "step", "slope", "", xlim, (0, 1.05)),
        Panel(
            drawn("growth", "test"),
            "Kernel along the labels",
            "step",
            "$y^TΘy$ over its initial value",
            "y" if grown > 10 else "",
            xlim,
            None if grown > 10 else (0, 1.2 * grown),
        ),
    ]
