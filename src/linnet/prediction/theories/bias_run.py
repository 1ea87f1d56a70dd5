"""The flow from I_gamma in the span of the samples: integrated in NumPy for times, exactly by `simulate`, and drawn."""

import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from linnet import observe
from linnet._check import InputError
from linnet.curves import crossing
from linnet.init import i_gamma
from linnet.optim import loss_below
from linnet.outcome import Status
from linnet.prediction.panel import Curve, Panel
from linnet.prediction.prediction import Comparison, ExactRun, Prediction, Progress, Quantity, Row, Time
from linnet.prediction.reduced import ReducedRegression
from linnet.prediction.theories.network.following import feasible, follow_flow
from linnet.prediction.theories.network.modes import modes_of
from linnet.prediction.theories.network.objective import Objective
from linnet.prediction.theories.network.times import FollowedTimes
from linnet.record import logarithmic
from linnet.simulation import simulate
from linnet.states import ScalarMirror, State
from linnet.theory import spectral
from linnet.trajectory import Trajectory

HALF, FIT = 0.5, 0.01  # a mode is half learned, the data are fitted at this share of the excess loss
ERROR = 1e-4  # of a time that is read off the integrated flow; its steps are accurate to 1e-8
STEPS = 50_000  # of a solver, after which a measurement ends
_RECORDS, _FITTED, LARGEST = 240, 1e-16, 600
_STIFF = 3000  # steps of descent to the fit
_CURVES, _BARS = 8, 24


class BiasCurves(NamedTuple):
    """In flow time: the modes u_i^T A v_i of the predictor, and the singular values of W_1."""

    time: Float[np.ndarray, " records"]
    modes: Float[np.ndarray, "records modes"]
    first_layer: Float[np.ndarray, "records k"]


def follow(reduced: ReducedRegression, gamma: float, limit: spectral.Limit) -> FollowedTimes | None:
    """The flow of W_1 = sqrt(2 gamma) I, W_2 = 0 in the span of the samples, integrated; None where it would cost too
    much.
    """
    d_out, rank = reduced.limit.shape
    layers = [math.sqrt(2 * gamma) * np.eye(rank), np.zeros((d_out, rank))]
    modes = modes_of(reduced, layers, limit.left, limit.values, limit.right.T)
    objective = Objective(reduced, layers, (False,))
    if not feasible(objective):
        return None
    solution = follow_flow(objective, modes)
    return FollowedTimes(modes, solution, 1.0) if solution.arrived else None


def predicted_curves(prediction: Prediction, times: Any = None) -> BiasCurves:
    """Modes as their times are predicted (closed form, integrated, estimated), and W_1's values that follow."""
    limit, followed, gamma = prediction.data["limit"], prediction.data["followed"], prediction.gamma
    halves = [mode.half_learned.time for mode in prediction.modes]
    if times is None:
        times = np.geomspace(min(halves) / 30, max(6 * max(halves), 1.5 * prediction.fit.time), 300)
    clock, values = np.asarray(times, dtype=float), np.array([mode.value for mode in prediction.modes])
    if followed is not None:
        steps, known = followed.solution.steps, followed.solution.values[:, : len(values)]
        modes = np.stack([np.interp(clock, steps, mode) for mode in known.T], axis=1)
    else:
        modes = np.asarray(spectral.whitened(clock, values, gamma, np.sqrt(limit.curvature)))
    return BiasCurves(clock, modes, np.sqrt(np.hypot(modes, gamma) + gamma))


# Measured ------------------------------------------------------------------------------------------------------------


def experiment(
    reduced: ReducedRegression, gamma: float, modes: tuple[Row, ...], fit: Time, steps_to_fit: float
) -> ExactRun:
    """The exact flow of both layers in the span of the samples, until the excess loss has vanished.

    It is made twice: to find its end, then with records spaced for it; progress is called after each of them.
    """
    # inputs of many scales are stiff, and explicit solvers would go in steps of descent: implicit ones do well in the
    # mirror coordinate of one output, which needs no layers (they follow from A), and badly in weights
    stiff = reduced.limit.shape[0] == 1 and steps_to_fit > _STIFF
    values = np.array([mode.value for mode in modes])
    excess = float(np.sum((reduced.limit * reduced.scales) ** 2) / 2)
    observed: dict[str, Any] = {"loss": observe.loss, "modes": observe.modes, "values": observe.singular_values}
    if not stiff:
        observed |= {"first": observe.layer_singular_values(1), "second": observe.layer_singular_values(2)}

    def run(progress: Progress | None) -> Trajectory:
        import diffrax  # which a prediction does not need, nor the flow

        from linnet.optim import GradientFlow

        if reduced.scales.size > LARGEST:
            raise InputError(
                f"data of rank {reduced.scales.size} cannot be measured: the exact flow needs <= {LARGEST}."
            )
        problem = reduced.problem
        initial: State = ScalarMirror(np.zeros(problem.shape), gamma) if stiff else i_gamma(problem, gamma)
        solver = diffrax.Kvaerno5() if stiff else None
        optimizer = GradientFlow(1e-8 if stiff else 1e-10, solver=solver, max_steps=STEPS)
        early = min(mode.half_learned.not_before for mode in modes) / 30
        late = 10 * max(time.not_after or 0.0 for time in (fit, *(mode.half_learned for mode in modes)))
        for turn in range(2):
            result = simulate(  # without its progress, which would double the time to compile it
                problem,
                initial,
                optimizer,
                time=late,
                observe=observed,
                record=logarithmic(_RECORDS, first=early),
                stop=loss_below(_FITTED * excess),
            )
            halves = [half.time for half in _halves(result, values)]
            early, late = np.nanmin([*halves, result.ended]) / 30, float(result.ended) * (1 + 1e-6)
            if progress is not None:
                progress(turn + 1, 2)
        return result

    def read(run: Trajectory) -> tuple[Quantity, ...]:
        loss, final = np.asarray(run["loss"]), np.asarray(run.final.matrix)
        if final.shape != reduced.limit.shape:  # a run in the coordinates of the inputs
            final = final @ reduced.basis.T
        fitted = crossing(np.asarray(run.times), -np.log(np.maximum(loss / loss[0], 1e-300)), -math.log(FIT))
        first, second = (None, None) if stiff else _layer_errors(run, gamma, modes)
        distance = float(np.linalg.norm(final - reduced.limit) / np.linalg.norm(reduced.limit))
        found = (
            Quantity("status", run.status, "status"),
            Quantity("ended", float(run.times[-1]), "ended at time"),
            Quantity("excess_loss_left", float(loss[-1] / excess), "excess loss left", format=".1e"),
            Quantity("modes", tuple(Row(half_learned=half) for half in _halves(run, values))),
            Quantity("fit", Time(fitted, error=0.0), format=shown_time),
            Quantity("predictor_error", distance, "relative distance from the predictor", format=".1e"),
            Quantity("first_layer_error", first, "" if stiff else "from W_1's singular values", format=".1e"),
            Quantity("second_layer_error", second, "" if stiff else "from W_2's singular values", format=".1e"),
        )
        if run.status == Status.CONVERGED:
            return found
        condition = reduced.scales[0] / reduced.scales[-1]
        slow = f"left before its end: inputs of condition number {condition:.3g} are slow, standardize the columns"
        return (*found, Quantity("caution", slow, "caution"))

    return ExactRun(run, read, observed)


def _halves(run: Trajectory, values: Float[np.ndarray, " modes"]) -> list[Time]:
    """When each mode was half learned; NaN if the run ended before."""
    clock, measured = np.asarray(run.times), np.asarray(run["modes"])
    return [Time(crossing(clock, measured[:, i] / value, HALF), error=0.0) for i, value in enumerate(values)]


def _layer_errors(run: Trajectory, gamma: float, modes: tuple[Row, ...]) -> tuple[float, float]:
    """The largest relative errors of the predicted singular values of both layers."""
    first, second = (np.asarray(run[name])[-1] for name in ("first", "second"))
    values = np.array([mode.value for mode in modes])
    predicted = np.asarray(spectral.layer_values(values, gamma, len(first)).first)
    # what is below the rounding of the largest value cannot be measured
    gap = np.max(np.abs(first - predicted) / np.maximum(predicted, 1e-12 * predicted[0]))
    lower = np.array([mode.second_layer for mode in modes])
    return float(gap), float(np.max(np.abs(second[: len(modes)] / lower - 1)))


def measured_curves(prediction: Prediction, run: Trajectory) -> BiasCurves:
    """Modes and the singular values of W_1 in a run of `measure`; W_1's follow from A where it was run without it."""
    count, gamma = len(prediction.modes), prediction.gamma
    clock, modes = np.asarray(run.times), np.asarray(run["modes"])[:, :count]
    if "first" in run.values:
        return BiasCurves(clock, modes, np.asarray(run["first"]))
    wide = prediction.data["reduced"].scales.size
    values = np.asarray(run["values"])[:, :count]
    return BiasCurves(clock, modes, np.array([spectral.layer_values(s, gamma, wide).first for s in values]))


def shown_time(time: Time) -> str:
    """A flow time; ~ marks an estimate, and of a run NaN is a time after its end."""
    return "not reached" if math.isnan(time.time) else f"{'' if time.error is not None else '~ '}{time.time:.4g}"


# Figure --------------------------------------------------------------------------------------------------------------


def panels(prediction: Prediction, comparison: Comparison | None) -> tuple[Panel, Panel, Panel]:
    """Modes of A and singular values of W_1 in time, and W_1's at the end."""
    from matplotlib import colormaps  # slow to load

    modes, initial = prediction.modes[:_CURVES], prediction.first_layer.initial
    clock, curves, first = predicted_curves(prediction)
    measured = None if comparison is None else measured_curves(prediction, comparison.run)
    last = float(clock[-1] if measured is None else max(clock[-1], min(measured.time[-1], 3 * clock[-1])))
    halves = [mode.half_learned for mode in prediction.modes]
    known = all(half.error is not None for half in halves)
    kind = "theory, exact" if all(half.exact for half in halves) else "integrated" if known else "estimate"
    left, middle = [], []
    for i, mode in enumerate(modes):
        color = colormaps["viridis"](0.85 * i / max(len(modes) - 1, 1))
        half, one = np.array([mode.half_learned.time]), i == 0
        left.append(Curve(kind, clock, curves[:, i] / mode.value, "theory", color, labeled=one))
        left.append(Curve("half learned", half, np.array([0.5]), "points", color, labeled=one))
        height = np.array([1.03 + 0.08 * (i % 2)])  # neighbors at two heights
        left.append(Curve("", half, height, "labels", color, text=(f"{mode.value:.3g}",), labeled=False))
        left.append(Curve("", half, np.zeros(1), "vertical", color, labeled=False))
        middle.append(Curve("", clock, first[:, i], "theory", color, labeled=False))
        middle.append(Curve("", half, np.zeros(1), "vertical", color, labeled=False))
        if measured is not None:
            share = measured.modes[1:, i] / mode.value
            left.append(Curve("exact flow", measured.time[1:], share, "measured", "theory", labeled=one))
    if measured is not None:
        for values in measured.first_layer[1:, : len(modes) + 1].T:
            middle.append(Curve("", measured.time[1:], values, "measured", "theory", labeled=False))
    name = r"initially $\sqrt{2\gamma}$" + f" = {initial:.3g}"
    middle.append(Curve(name, np.zeros(1), np.array([initial]), "horizontal", "noise"))
    xlabel, xlim = "time of gradient flow", (float(clock[0]), last)
    share = r"$u_i^T A\, v_i\,/\,s_i$,  learned share of mode $s_i$"
    return (
        Panel(tuple(left), "One mode after another", xlabel, share, log="x", xlim=xlim, ylim=(0, 1.45)),
        Panel(tuple(middle), "The first layer grows with them", xlabel, "singular values of $W_1$", "xy", xlim),
        _final_layer(prediction),
    )


def _final_layer(prediction: Prediction) -> Panel:
    """The singular values of W_1 at the end, as bars."""
    shown, layer = prediction.modes[:_BARS], prediction.first_layer
    rest = min(layer.unmoved, _BARS - len(shown))
    place = np.arange(1, len(shown) + rest + 1)
    values = np.array([mode.first_layer for mode in shown] + [layer.initial] * rest)
    rich = np.array([mode.regime == "rich" for mode in shown] + [False] * rest)
    kinds = (
        (rich, r"rich: $s_i > \gamma$", "signal"),
        (~rich & (place <= len(shown)), r"lazy: $s_i \leq \gamma$", "quiet"),
        (place > len(shown), f"{layer.unmoved} that stay where they were", "0.88"),
    )
    bars = [Curve(name, place[chosen], values[chosen], "bars", color) for chosen, name, color in kinds if chosen.any()]
    line = Curve(r"initially $\sqrt{2\gamma}$", np.zeros(1, int), np.array([layer.initial]), "horizontal", "noise")
    return Panel(
        (*bars, line),
        f"{prediction.regime.capitalize()}: {layer.rank} of {prediction.inputs} values of the first layer grow",
        "index" if place.size == prediction.inputs else f"index (the first {place.size} of {prediction.inputs})",
        "singular values of $W_1$ at the end",
    )
