"""What is predicted and measured of lambda-balanced layers on one task."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float

from linnet import curves, observe
from linnet.linalg import RANK_TOLERANCE
from linnet.optim import SGD
from linnet.prediction import coerce
from linnet.prediction.assumption import Assumption, Source
from linnet.prediction.prediction import Column, ExactRun, Prediction, Progress, Quantity, Row, Time, rows
from linnet.prediction.theories.balance_solution import (
    HALF,
    NEAR,
    BalancedFlow,
    in_numpy,
    kernel_change,
    kernels,
    sharpness,
)
from linnet.prediction.theories.gradient_flow import in_steps, run_for
from linnet.problems import Problem
from linnet.theory.regime import LAZY_BELOW, RICH_ABOVE, Regime
from linnet.trajectory import Trajectory

# Quantities ----------------------------------------------------------------------------------------------------------


def learning(
    solution: BalancedFlow, problem: Any, optimizer: Any, assumptions: tuple[Assumption, ...], floor: float = 0.0
) -> Prediction:
    """What is predicted of one task; `floor` is the loss at its target."""
    s, (half, near, fit) = solution.triplets.values, solution.times
    count, first, last = int(np.sum(s > 0)), solution.first, solution.last
    growth, regimes = _kernels(solution, count)
    learned = [regimes[i] for i in range(count) if math.isfinite(near[i])] or regimes
    modes = rows(
        value=s[:count],
        initial=solution.begin[:count],
        final=solution.goal[:count],
        regime=regimes,
        kernel_growth=growth[:count],
        half_learned=map(_time, half[:count]),
        learned=map(_time, near[:count]),
    )
    columns = (
        Column("value", "value", spare=3),
        Column("regime", "", spare=4),
        Column("kernel_growth", "kernel grows", lambda x: f"{x:.4g}" if math.isfinite(x) else "from 0", spare=5),
        Column("half_learned", "half at"),
        Column("learned", f"{1 - NEAR:.0%} at"),
    )
    ended = float(solution.loss(last.matrix))
    loss = Row(
        initial=float(solution.loss(first.matrix)) + floor,
        final=(ended if ended > RANK_TOLERANCE**2 * float(np.sum(s**2)) * solution.curvature else 0.0) + floor,
    )
    rank = int(np.sum(np.linalg.svd(last.matrix, compute_uv=False) > RANK_TOLERANCE * s[0]))
    closed, regime, end, grams, edge = _sources(solution.aligned, assumptions)
    settles = "" if solution.missing else "gradient descent settles there below lr ="
    changes = {
        "kernel_change": (float(kernel_change(first, last)), "change of the tangent kernel over its initial norm"),
        "input_gram_change": (_change(first.input_gram, last.input_gram), "  of C1 = W_1^T W_1"),
        "output_gram_change": (_change(first.output_gram, last.output_gram), "  of C2 = W_2 W_2^T"),
    }
    return Prediction(
        topic="task",
        headline="",
        quantities=(
            Quantity("spectrum", tuple(map(float, s))),
            Quantity("regime", Regime.of_all(learned), source=regime),
            Quantity("modes", modes, source=closed, columns=columns),
            Quantity("rank", rank, source=end),
            Quantity("missing", solution.missing, source=end),
            Quantity("saddle", solution.missing > 0, source=end),
            Quantity("loss", loss, "loss at initialization -> in the end", format=_from_to, source=end),
            Quantity("fit", _time(fit), f"loss learned up to {NEAR:.0%} at", source=closed),
            *(Quantity(name, value, text, source=grams, format=_share) for name, (value, text) in changes.items()),
            Quantity("largest_stable_lr", 2 / sharpness(solution), settles, source=edge),
        ),
        problem=problem,
        network=solution.initial,
        optimizer=optimizer,
        experiment=_experiment(solution, count, problem, optimizer),
        data={"solution": solution},
    )


def with_steps(prediction: Prediction, optimizer: Any, quantities: tuple[Quantity, ...], **changes: Any) -> Prediction:
    """The prediction of a task with more quantities and words, and with steps for gradient descent."""
    prediction = replace(prediction, quantities=(*prediction.quantities, *quantities), **changes)
    return in_steps(prediction, optimizer) if isinstance(optimizer, SGD) else prediction


def _kernels(solution: BalancedFlow, count: int) -> tuple[Float[np.ndarray, " k"], list[Regime]]:
    """How much each mode's kernel grows, and the regimes of the nonzero modes by how much it changes on the way."""
    both = np.stack([kernels(solution, solution.first), kernels(solution, solution.last)])
    before, after = np.where(both > RANK_TOLERANCE * np.max(both), both, 0.0)  # less is rounding
    with np.errstate(divide="ignore", invalid="ignore"):
        growth = np.where((before == 0) & (after == 0), 1.0, after / before)
        through = solution.aligned & (solution.begin * solution.goal < 0)  # at zero the kernel is |lambda|
        least = np.where(through, abs(solution.lam), np.minimum(before, after))
        changed = np.where(least == np.maximum(before, after), 1.0, np.maximum(before, after) / least)
        return growth, [Regime.of_growth(float(x)) for x in changed[:count]]


def _change(first: Any, last: Any) -> float:
    """|C - C_0| / |C_0|; infinite for a layer that is zero at initialization."""
    moved, size = float(np.linalg.norm(last - first)), float(np.linalg.norm(first))
    return moved / size if size > 0 else math.inf if moved > 0 else 0.0


def _time(time: float) -> Time:
    return Time(float(time), error=None if math.isnan(time) else 0.0)


def _share(change: float) -> str:
    """A change over the initial size; what is left of rounding is zero."""
    return f"{change:.4g}" if change > 1e-12 else "0"


def _from_to(loss: Row) -> str:
    return f"{loss.initial:.4g} -> {loss.final:.4g}"


def _sources(by_modes: bool, assumptions: tuple[Assumption, ...]) -> tuple[Source, ...]:
    """Of times, regimes, the end, Gram matrices, and the largest learning rate."""
    whole = Source("closed form, exact: Q Q^T at any time, roots of it", ("balance/C3", "balance/C5"), assumptions)
    modes = Source("closed form, exact: each mode by itself", ("balance/C9",), assumptions)
    regimes = f"each mode's kernel, its largest over its least: lazy below {LAZY_BELOW:g}, rich above {RICH_ABOVE:g}"
    return (
        modes if by_modes else whole,
        Source(regimes, ("balance/C6", "balance/C8"), assumptions),
        Source("the modes that the initialization reaches", ("balance/C11",), assumptions),
        Source("Gram matrices where the flow ends", ("balance/C6", "balance/C8", "balance/C10"), assumptions),
        Source("2 over the Hessian's largest eigenvalue where the flow ends", (), assumptions),
    )


# Measured ------------------------------------------------------------------------------------------------------------


def _experiment(solution: BalancedFlow, count: int, problem: Any, optimizer: Any) -> ExactRun:
    """The layers' own training, by an adaptive solver or in steps, recorded at the times of the closed form."""
    recorded = {"matrix": observe.matrix, "input_gram": observe.input_gram, "output_gram": observe.output_gram}

    def run(progress: Progress | None) -> Trajectory:
        asked = problem if isinstance(problem, Problem) else coerce.regression(problem)
        return run_for(asked, solution.initial, optimizer, solution.clock, recorded, progress)

    def read(run: Trajectory) -> tuple[Quantity, ...]:
        clock, modes, kernel = measured_curves(solution, run)
        s, closed = solution.triplets.values[:count], solution.curves(clock)
        shares = modes[:, :count] / s
        times = rows(
            half_learned=[Time(curves.crossing(clock, share - HALF, 0.0), error=0.0) for share in shares.T],
            learned=[Time(_for_good(clock, np.abs(share - 1)), error=0.0) for share in shares.T],
        )
        gap = float(np.max(np.abs(modes - closed.modes)[:, :count]) / s[0])
        off = float(np.max(np.abs(kernel - closed.kernel_change)) / (np.max(closed.kernel_change) or 1.0))
        return (
            Quantity("status", run.status, "status"),
            Quantity("ended", float(clock[-1]), "ended at time"),
            Quantity("modes", times),
            Quantity("kernel_change", float(kernel[-1])),
            Quantity("largest_gap_in_modes", gap, "modes: largest gap to the closed form over s_1", format=".1e"),
            Quantity("largest_gap_in_kernel", off, "kernel's change: largest gap over its largest", format=".1e"),
        )

    return ExactRun(run, read, recorded)


def measured_curves(
    solution: BalancedFlow, run: Trajectory
) -> tuple[Float[np.ndarray, " times"], Float[np.ndarray, "times k"], Float[np.ndarray, " times"]]:
    """Times, modes u_i^T A v_i, and |Theta - Theta_0| / |Theta_0| of a run."""
    grams, (u, _, v) = in_numpy(run[name] for name in ("matrix", "input_gram", "output_gram")), solution.triplets
    return np.asarray(run.times), np.einsum("ok,toi,ik->tk", u, grams.matrix, v), kernel_change(solution.first, grams)


def _for_good(clock: Float[np.ndarray, " times"], left: Float[np.ndarray, " times"]) -> float:
    """When what is left has fallen below its share for the last time; NaN where it has not."""
    outside = np.flatnonzero(left > NEAR)
    if not outside.size:
        return 0.0
    if outside[-1] == len(clock) - 1:
        return math.nan
    late = slice(int(outside[-1]), None)
    return curves.crossing(clock[late], -np.log(np.maximum(left[late], 1e-300)), -math.log(NEAR))
