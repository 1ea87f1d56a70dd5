"""How fast balanced deep networks of rank one learn white data: far from the target, from small weights, in the end.

Non-local convergence: the whole gradient flow from a balanced initialization of rank one has a closed form. Rates are
-d ln|A - Z_1| / dt in flow time, with Z_1 the target's best approximation of rank one.
"""

import dataclasses
import math
from itertools import pairwise
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from linnet import _check, curves
from linnet._check import InputError
from linnet.observe import Observable, ObservationContext
from linnet.optim import SGD
from linnet.prediction import coerce
from linnet.prediction.assumption import Assumption, Source
from linnet.prediction.panel import Curve, Panel
from linnet.prediction.prediction import Comparison, ExactRun, Prediction, Progress, Quantity, Row, Time
from linnet.prediction.theories.gradient_flow import in_steps, learning_rate, require, run_for
from linnet.prediction.theories.rates_solution import FAR, NEAR, SMALL, ClosedForm, RateCurves
from linnet.problems import Regression
from linnet.states import RankOne, State, Weights
from linnet.theory import convergence
from linnet.theory.convergence import Coordinates
from linnet.trajectory import Trajectory


def rates(problem: Any, network: Any, optimizer: Any = None) -> Prediction:
    """How fast this network learns: where the flow ends, its rates at the start and in the end, and when it is where.

    Args:
        problem: a regression on white inputs (X^T X = c I), whose loss is c/2 |A - Z|^2 and a constant.
        network: a balanced initialization of rank one of any depth and widths, such as `ln.init.rank_one` draws:
            `RankOne` or `Weights`.
        optimizer: plain gradient descent, whose steps are then predicted too; gradient flow if None.

    Raises:
        NotApplicable: if the inputs are not white (`Regression.whiten` makes them so), the initialization is not
            balanced or not of rank one, or the optimizer is another one.

    """
    learning_rate("rates", optimizer)
    white = coerce.regression(problem)
    c, spread = coerce.curvature(white), coerce.anisotropy(white)
    require("rates", "white inputs: X^T X is a multiple of the identity", spread)
    target = np.asarray(white.target)
    size, u, v, depth = _rank_one(network, white.shape)
    coordinates, frames = convergence.coordinates(size, u, v, target)
    flow = ClosedForm(coordinates, _check.integer("depth", depth, least=2, most=1000), c)
    prediction = _prediction(flow, white, network, spread)
    end = flow.goal
    if float(end.s) == 0:  # distances are then those to the best fit
        first = np.eye(len(end.a))[0]
        end = Coordinates(flow.initial.z[0], first, first, end.z)
    goal = np.outer(frames.left @ np.asarray(end.a)[: len(target)], frames.right @ np.asarray(end.b)[: len(target[0])])
    experiment = _experiment(flow, white, network, optimizer, float(end.s) * goal)
    prediction = dataclasses.replace(prediction, experiment=experiment, optimizer=optimizer)
    return in_steps(prediction, optimizer) if isinstance(optimizer, SGD) else prediction


def _rank_one(
    network: Any, shape: tuple[int, ...]
) -> tuple[float, Float[np.ndarray, " d_out"], Float[np.ndarray, " d_in"], int]:
    """Size, directions, and depth of a balanced network of rank one."""
    known = isinstance(network, RankOne) or (isinstance(network, Weights) and network.depth > 1)
    require("rates", "a linear network of two layers or more", float(not known))
    coerce.same_shape(network, shape)
    if isinstance(network, RankOne):
        sizes = [float(np.linalg.norm(x)) for x in (network.x, network.y)]
        sizes += [] if network.w is None else [float(network.w)]
        require("rates", "a balanced initialization", (max(sizes) - min(sizes)) / max(max(map(abs, sizes)), 1e-300))
        u, v = (np.asarray(x) / np.linalg.norm(x) for x in (network.y, network.x))
        return math.prod([sizes[0]] * network.depth), u, v, network.depth
    layers = [np.asarray(w) for w in network.layers]
    triplets = [np.linalg.svd(w, full_matrices=False) for w in layers]
    top = max(float(s[0]) for _, s, _ in triplets)
    second = max(float(s[1]) if len(s) > 1 else 0.0 for _, s, _ in triplets)
    require("rates", "an initialization of rank one", second / max(top, 1e-300))
    off = max(float(np.linalg.norm(b.T @ b - a @ a.T)) for a, b in pairwise(layers))
    require("rates", "a balanced initialization", off / max(top, 1e-300) ** 2)
    u, v = triplets[-1][0][:, 0], triplets[0][2][0]
    rotation = math.prod(float(low[0][:, 0] @ high[2][0]) for low, high in pairwise(triplets))
    return top**network.depth, math.copysign(1.0, rotation) * u, v, network.depth


def _prediction(flow: ClosedForm, problem: Regression, network: State, spread: float) -> Prediction:
    first, z1, depth, c = flow.initial, flow.spectrum[0], flow.depth, flow.curvature
    alignment, reaches, scale = float(first.a[0] * first.b[0]), flow.reaches, flow.scale
    here = float(flow.gap(first)) / z1
    near, more = (flow.near_rate(layers) if reaches else None for layers in (depth, depth + 1))
    fast, slow = flow.proved_rates() or (None, None)
    moves, leaves = flow.ratio < 1 - 1e-9 and here > 1e-9, reaches and scale < SMALL and depth > 2
    far_rate = float(convergence.far_rate(first, depth, c)) if moves else None
    escapes = Time(convergence.escape_time(first, depth, c)) if leaves else None
    far_phase = "far phase ends (size 1.5 of the target's) at" if flow.far_phase_ends else ""
    settles = "gradient descent settles there below lr =" if reaches else ""
    half = float(convergence.passage_time(z1 / 2, first, depth, c)) if reaches and scale < 0.5 else None
    closed, far, end, proved, edge, escape = _sources(spread, scale)
    d_out, d_in = problem.shape
    quantities = (
        Quantity("prepared", ()),
        Quantity("depth", depth),
        Quantity("inputs", d_in),
        Quantity("outputs", d_out),
        Quantity("samples", problem.samples),
        Quantity("normalization", coerce.normalization(problem)),
        Quantity("curvature", c),  # the loss is c/2 |A - Z|^2 and a constant
        Quantity("spectrum", flow.spectrum[: min(problem.shape)]),
        Quantity("ratio", flow.ratio),
        Quantity("initialization", Row(scale=scale, size=float(first.s), alignment=alignment)),
        Quantity("reaches_the_best_rank_one_fit", reaches, source=closed),
        Quantity("limit", float(flow.goal.s), source=closed),
        Quantity("far_rate", far_rate, "rate of |A - Z_1| at the start", source=far),
        Quantity("far_phase_ends", Time(flow.far_phase_ends, error=0.0), far_phase, source=closed),
        Quantity("half_grown", None if half is None else Time(half, error=0.0), "half grown at", source=closed),
        Quantity("escape", escapes, "  by the law of small initializations", source=escape),
        Quantity("learned", Time(flow.learned, error=0.0), f"within {NEAR:.0%} of the target at", source=closed),
        Quantity("near_rate", near, "rate of |A - Z_1| in the end", source=end),
        Quantity("proved_fast_rate", fast, "  proved: at least, in the fast phase", source=proved),
        Quantity("proved_slow_rate", slow, "  proved: at least, in the slow phase", source=proved),
        Quantity("near_rate_of_one_layer_more", more, "  with one layer more", source=end),
        Quantity("largest_stable_lr", float(convergence.largest_lr(z1, depth, c)), settles, source=edge),
    )
    return Prediction(
        topic="rates",
        headline=(
            f"[bold]It gets there:[/] the flow ends at the best fit of rank one, of size {z1:.4g}."
            if reaches
            else f"[bold]It does not get there:[/] the flow ends at size {float(flow.goal.s):.4g}, not at {z1:.4g}."
        ),
        setting=(
            f"{d_in} inputs, {d_out} outputs, {depth} balanced layers, white data, loss {c:.4g}/2 |A - Z|^2; "
            f"initialization of rank one and size {float(first.s):.4g}, {scale:.3g} of the target's, alignment "
            f"{alignment:+.3f}. Times are flow times: learning rate times steps."
        ),
        quantities=quantities,
        problem=problem,
        network=network,
        panels=_panels,
        data={"closed_form": flow},
    )


def _sources(spread: float, scale: float) -> tuple[Source, ...]:
    """Of the closed form, the rate at the start, the rate in the end, the bounds, the largest lr, the escape."""
    white = Assumption.of("white inputs: X^T X is a multiple of the identity", spread)
    small = Assumption.of("an initialization that is small beside the target", scale)
    closed = "the whole flow of a balanced network of rank one in closed form"
    return (
        Source(closed, ("nonlocal/C8", "nonlocal/C9", "nonlocal/C12"), (white,)),
        Source("the exact derivative of |A - Z_1|", ("nonlocal/C13",), (white,)),
        Source(
            "the flow linearized at its end, in the directions that the initialization excites",
            ("nonlocal/C18",),
            (white,),
        ),
        Source("Theorem 20 corrected, its sharpest form", ("nonlocal/C15",), (white,)),
        Source("the Hessian at the balanced minimum, 2 / (c L z_1^(2-2/L))", (), (white,)),
        Source("the time to leave the origin as the initialization shrinks", (), (white, small)),
    )


# Measured ------------------------------------------------------------------------------------------------------------


def _experiment(
    flow: ClosedForm, problem: Regression, network: Any, optimizer: Any, goal: Float[np.ndarray, "d_out d_in"]
) -> ExactRun:
    """The layers' own training, recorded at the times of the closed form's curves."""
    observed = {"sizes": Observable("sizes", _sizes, ("size",), lambda problem, initial: jnp.asarray(goal))}

    def run(progress: Progress | None) -> Trajectory:
        if not 1e-10 <= flow.scale <= 1e4:
            raise InputError(
                f"scale = {flow.scale:.6g} cannot be measured: a solver follows initializations from 1e-10 to 1e4."
            )
        return run_for(problem, network, optimizer, flow.times(), observed, progress)

    def read(run: Trajectory) -> tuple[Quantity, ...]:
        found = measured_curves(flow, run)
        closed = flow.curves(found.time)
        clock, size = found.time, found.size
        half = curves.crossing(clock, size, 0.5) if flow.reaches and flow.scale < 0.5 else None
        near = curves.crossing(clock, -np.log(np.maximum(found.distance, 1e-300)), -math.log(NEAR))
        steps = isinstance(optimizer, SGD)
        gap, size_gap = np.max(np.abs(found.distance - closed.distance)), np.max(np.abs(size / closed.size - 1))
        texts = "largest gap to the closed form in distance / |Z_1|", "largest relative gap to the closed form in size"

        def when(time: float) -> Time:
            return Time(time, step=time / float(optimizer.lr) if steps else None, error=0.0)

        return (
            Quantity("status", run.status, "status"),
            Quantity("ended", float(clock[-1]), "ended at time"),
            Quantity("far_phase_ends", when(curves.crossing(clock, -size, -FAR))),
            Quantity("half_grown", None if half is None else when(half)),
            Quantity("learned", when(near)),
            Quantity("largest_gap_in_distance", float(gap), texts[0], format=".1e"),
            Quantity("largest_relative_gap_in_size", float(size_gap), texts[1], format=".1e"),
        )

    return ExactRun(run, read, observed)


def _sizes(context: ObservationContext) -> Float[Array, "2"]:
    """|A - Z_1| and |A|"""
    matrix = context.state.matrix
    return jnp.stack([jnp.linalg.norm(matrix - context.prepared), jnp.linalg.norm(matrix)])


def measured_curves(flow: ClosedForm, run: Trajectory) -> RateCurves:
    """Distance and size in a run of `measure`."""
    return RateCurves(np.asarray(run.times), *(np.asarray(run["sizes"]).T / flow.spectrum[0]))


# Figure --------------------------------------------------------------------------------------------------------------


def _panels(prediction: Prediction, comparison: Comparison | None) -> tuple[Panel, Panel]:
    """Distance to the target and size of A."""
    flow = prediction.data["closed_form"]
    time, distance, size = flow.curves()
    distances = [Curve("closed form", time, distance, "theory", color="signal")]
    sizes = [Curve("closed form", time, size, "theory", color="signal")]
    if comparison is not None:
        measured = measured_curves(flow, comparison.run)
        distances.append(Curve("exact run of the layers", measured.time, measured.distance, "measured", color="theory"))
        sizes.append(Curve("exact run of the layers", measured.time, measured.size, "measured", color="theory"))
    if flow.reaches and math.isfinite(flow.learned):
        law = distance[-1] * np.exp(prediction.near_rate * (time[-1] - time))
        late = (time >= 0.5 * flow.learned) & (law <= distance.max())
        name = f"rate in the end, {prediction.near_rate:.3g}"
        distances.append(Curve(name, time[late], law[late], "dotted", color="theory"))
    sizes.append(Curve("target", np.zeros(1), np.ones(1), "horizontal", color="theory"))
    for when, name, color in (
        (prediction.escape, "escape, law of small initializations", "test"),
        (prediction.half_grown, "half grown", "noise"),
        (prediction.far_phase_ends if flow.far_phase_ends else None, "far phase ends", "noise"),
    ):
        if when is not None and when.time <= time[-1]:
            sizes.append(Curve(name, np.array([when.time]), np.zeros(1), "vertical", color=color))
    xlabel = "time of gradient flow"
    return (
        Panel(tuple(distances), f"{flow.depth} layers", xlabel, r"$|A - Z_1| / |Z_1|$", log="y"),
        Panel(
            tuple(sizes),
            "Size of the end-to-end matrix",
            xlabel,
            "$s / z_1$",
            log="y" if flow.far_phase_ends else "",
        ),
    )
