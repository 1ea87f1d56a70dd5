"""Lazy or rich by one number: two lambda-balanced layers in closed form, on a task and on the one that follows it."""

import math
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from linnet import _check
from linnet._check import InputError
from linnet.prediction import coerce, validation
from linnet.prediction.assumption import Assumption, NotApplicable, Source
from linnet.prediction.data import read_matrix
from linnet.prediction.numbers import number, plural
from linnet.prediction.panel import Curve, Panel
from linnet.prediction.prediction import Comparison, Prediction, Quantity, facts
from linnet.prediction.theories.balance_solution import NEAR, BalancedFlow, solve, triplets_of, weights_of
from linnet.prediction.theories.balance_task import learning, measured_curves, with_steps
from linnet.prediction.theories.gradient_flow import learning_rate, require
from linnet.problems import Factorization, Problem
from linnet.states import Weights, measured_balance
from linnet.theory.regime import LAZY_BELOW, RICH_ABOVE, Regime

REVERSAL = "reversal"
_BALANCED = 1e-10  # of the layers' squares
_BESIDE = 1e8  # squares of the layers over the largest singular value: what is learned keeps eight digits beside them
_WORDS = {
    Regime.LAZY: "the kernel stays nearly what it was at initialization",
    Regime.MIXED: "the kernel is partly what it was and partly made by what is learned",
    Regime.RICH: "the kernel is made by what is learned",
}
_DRAWN = 8  # modes in a figure


def balance(problem: Any, network: Any, optimizer: Any = None, *, switch: Any = REVERSAL) -> Prediction:
    """Lazy or rich by lambda, W_2^T W_2 - W_1 W_1^T = lambda I: when modes are learned, what the tangent kernel does,
    where training ends, and what happens when the task is switched then. In closed form, exact for gradient flow.

    Args:
        problem: a regression with X^T X a multiple of the identity, or a factorization.
        network: two balanced layers, such as `ln.init.lambda_balanced` draws.
        optimizer: plain gradient descent, whose steps are then predicted too; gradient flow if None.
        switch: the task that follows: "reversal" (Y becomes -Y), or its target, a matrix or a file of it.

    Raises:
        NotApplicable: if the inputs are not white, the network does not consist of two balanced layers, or the
            optimizer is another one.

    """
    learning_rate("balance", optimizer)
    target, curvature, floor, spread = _task(problem)
    lam, defect = _lambda(network, target.shape)
    first = solve(network, target, curvature, lam, triplets_of(target))
    size = float(np.trace(first.first.input_gram) + np.trace(first.first.output_gram))
    if not size <= _BESIDE * first.triplets.values[0]:
        raise InputError(
            f"lam = {lam:g} and this initialization are not allowed: the layers' squares sum to {size:.3g}, and what "
            f"is learned is lost in rounding beside more than {_BESIDE:g} times the largest singular value."
        )
    left = weights_of(first.last, network.widths[1])
    if isinstance(switch, str) and switch == REVERSAL:
        triplets = first.triplets._replace(left=-first.triplets.left)
        second = solve(left, -target, curvature, lam, triplets)
    else:
        other = _other(switch, target.shape)
        second = solve(left, other, curvature, lam, triplets_of(other))
    assumptions = (
        Assumption.of("white inputs: X^T X is a multiple of the identity", spread),
        Assumption.of("layers in balance: W_2^T W_2 - W_1 W_1^T = lambda I", defect),
    )
    about = facts(
        prepared=(),
        inputs=target.shape[1],
        outputs=target.shape[0],
        width=network.widths[1],
        curvature=curvature,  # c: the loss is c/2 |A - Y|^2 and a constant
        lam=lam,
        defect=defect,  # |W_2^T W_2 - W_1 W_1^T - lambda I| over |W_1|^2 + |W_2|^2
        switch=_switched(second, target, assumptions, optimizer),
    )
    found = learning(first, problem, optimizer, assumptions, floor)
    return with_steps(
        found,
        optimizer,
        about,
        topic="balance",
        headline=_headline(first, found.regime, found.kernel_change),
        setting=(
            f"{plural(target.shape[1], 'input')}, {plural(target.shape[0], 'output')}, "
            f"{plural(network.widths[1], 'hidden neuron')}, white inputs, loss "
            f"{'1' if curvature == 1 else f'{curvature:.4g}'}/2 |A - Y|^2. All that follows is the closed form, exact."
        ),
        notes=(*_unknown(first), *_end(first, found), *_mixed(found.regime)),
        panels=_panels,
    )


def _task(problem: Any) -> tuple[Float[np.ndarray, "d_out d_in"], float, float, float]:
    """The target, the curvature of the loss, the loss at the target, and how far inputs are from white."""
    if isinstance(problem, Factorization) and len(problem.shape) == 2 and not _check.traced(problem):
        target = np.asarray(problem.goal, dtype=np.float64)
        if not np.any(target):
            raise InputError("problem has a target of zero: there is nothing to learn.")
        return target, float(problem.scale), 0.0, 0.0
    asked = coerce.regression(problem)
    spread = coerce.anisotropy(asked)
    if spread > 1e-9:
        white = Assumption.of("white inputs: X^T X is a multiple of the identity", spread, rough=0.0)
        raise NotApplicable(
            "balance",
            white,
            f"problem has inputs that are not white: the smallest eigenvalue of X^T X is {1 - spread:.3g} of the "
            "largest, and this closed form needs them equal; ask `predict network`, or whiten the inputs first.",
        )
    floor = float(asked.scale) * float(asked.unexplained) / 2
    floor = floor if floor > 1e-26 * float(asked.square) else 0.0  # rounding
    return np.asarray(asked.target, dtype=np.float64), coerce.curvature(asked), floor, spread


def _lambda(network: Any, shape: tuple[int, ...]) -> tuple[float, float]:
    """lambda of the layers, and how far they are from balance."""
    if not isinstance(network, Weights) or network.depth != 2:
        raise NotApplicable("balance", Assumption.fails("Weights of two layers"))
    if _check.traced(network.layers):
        raise InputError("network is traced: predictions are made for known numbers.")
    coerce.same_shape(network, shape)
    found = measured_balance(*network.layers)
    if found.size == 0:
        raise InputError("network has layers of zero: they never move.")
    require("balance", f"layers with W_2^T W_2 - W_1 W_1^T = {float(found.lam):.3g} I", found.defect, exact=_BALANCED)
    return float(found.lam), float(found.defect)


def _other(switch: Any, shape: tuple[int, ...]) -> Float[np.ndarray, "d_out d_in"]:
    """The target of another task."""
    if isinstance(switch, Problem):
        raise InputError("switch = a problem is not allowed: give its target, a matrix of outputs x inputs.")
    if isinstance(switch, str) and not Path(switch).suffix:
        raise InputError(f"switch = {switch!r} is not allowed: switch must be {REVERSAL!r}, a matrix or a file of one.")
    other = read_matrix("switch", switch, (shape[0], shape[1]))
    top = float(np.max(np.abs(other)))
    if not validation.SMALLEST < top < validation.LARGEST:
        raise InputError(
            f"switch has entries that reach {top:.3g}: keep them between {validation.SMALLEST:g} and "
            f"{validation.LARGEST:g}."
        )
    return other


# The task that follows -----------------------------------------------------------------------------------------------


def _switched(
    solution: BalancedFlow, target: Float[np.ndarray, "d_out d_in"], assumptions: tuple[Assumption, ...], optimizer: Any
) -> Prediction:
    """What is predicted of the task that follows, from where the first one ended."""
    to = REVERSAL if np.array_equal(solution.target, -target) else "another target"
    problem = Factorization(_check.floating(solution.target), _check.floating(solution.curvature))
    found = learning(solution, problem, optimizer, assumptions)
    explanation = _explanation(solution, to)
    task = "the reversed task, -Y" if to == REVERSAL else "the other task"
    if solution.missing:
        headline = f"[bold]Then {task}: never learned.[/] {explanation[:1].upper()}{explanation[1:]}."
    else:
        last = max(mode.learned.time for mode in found.modes)
        slowest = f", the last mode at {last:.4g}" if math.isfinite(last) else ""
        headline = (
            f"[bold]Then {task}: learned[/] up to {NEAR:.0%} of the loss at time {number(found.fit.time)} after the "
            f"switch{slowest}: {explanation}."
        )
    stuck = Source("reversal gets stuck at lambda = 0 alone", ("balance/C12",), assumptions)
    quantities = Quantity("to", to), Quantity("explanation", explanation, source=stuck)
    notes = (*_unknown(solution), *([_leaves(solution)] if solution.missing else []))
    return with_steps(found, optimizer, quantities, topic="switch", headline=headline, notes=notes)


def _explanation(solution: BalancedFlow, to: str) -> str:
    """Why the new task is learned, or not."""
    if not solution.missing:
        if to == REVERSAL:
            return "every mode that was learned passes through zero at the speed c |lambda| s, as lambda is not zero"
        return "the layers have something of every mode that the width has room for"
    modes = plural(solution.missing, "mode")
    if to == REVERSAL and solution.lam == 0:
        return "it stays at 0: layers with lambda = 0 carry no mode through zero, and zero is a saddle"
    if solution.lam == 0:
        return (
            f"it ends at a saddle without {modes}: with lambda = 0 a mode neither begins at zero nor changes its sign"
        )
    return f"it ends at a saddle without {modes}: where it starts it has no neuron for what they need"


# Words ---------------------------------------------------------------------------------------------------------------


def _headline(solution: BalancedFlow, regime: Regime, change: float) -> str:
    lam, top = solution.lam, solution.triplets.values[0]
    beside = "lambda = 0" if lam == 0 else f"lambda = {lam:.4g}, 2 s_1 / |lambda| = {2 * top / abs(lam):.3g}"
    return (
        f"[bold]{regime}[/]: {_WORDS[regime]} ({beside}). Until the end the tangent kernel changes by "
        f"{number(change, 3)} times its initial norm."
    )


def _unknown(solution: BalancedFlow) -> list[str]:
    if not np.any(np.isnan([*solution.times.half, *solution.times.near])):
        return []
    return ["? comes later than the flow was evaluated; an aligned initialization has formulas for every time."]


def _end(solution: BalancedFlow, found: Prediction) -> list[str]:
    """Where the flow ends, and when rounding leaves a saddle."""
    (d_out, d_in), missing, width = solution.target.shape, solution.missing, solution.initial.widths[1]
    if missing:
        signed = solution.lam == 0 and d_in == d_out == len(found.modes) <= width and missing == 1
        lacking = f"the initialization has nothing of {'it' if missing == 1 else 'them'}"
        why = "the sign of det A never changes at lambda = 0" if signed else lacking
        modes = f"{plural(missing, 'mode')} that the width has room for never come{'s' * (missing == 1)}"
        return [f"It ends at a saddle: {modes}, since {why}.", _leaves(solution)]
    if found.rank < len(found.modes):
        return [f"It ends at the best fit of rank {found.rank}, which is what {plural(width, 'neuron')} can hold."]
    return ["It ends at the target."]


def _leaves(solution: BalancedFlow) -> str:
    """When rounding, 1e-16 of a neuron, has grown into a mode that is missing."""
    value = float(solution.triplets.values[np.argmax(np.isinf(solution.times.near))])
    late = 36 / (solution.curvature * value)
    return f"In floating point rounding may lead out of it from a time of about {late:.2g} on."


def _mixed(regime: Regime) -> list[str]:
    if regime is not Regime.MIXED:
        return []
    return [f"A mode is lazy where its kernel grows by less than {LAZY_BELOW:g}, rich above {RICH_ABOVE:g}."]


# Figure --------------------------------------------------------------------------------------------------------------


def _panels(prediction: Prediction, comparison: Comparison | None) -> list[Panel]:
    """Modes in time on both tasks, and how far the tangent kernel moves."""
    then, solution = prediction.switch, prediction.data["solution"]
    title = rf"{prediction.regime.capitalize()}: $\lambda$ = {prediction.lam:.3g}"
    after = "Reversal, now $-Y$" if then.to == REVERSAL else "Another target"
    moved = [Curve("closed form", solution.clock, solution.curves().kernel_change, "theory", "signal")]
    if comparison is not None:
        clock, _, kernel = measured_curves(solution, comparison.run)
        moved.append(Curve("exact run", clock, kernel, "measured", "theory"))
    level = f"in the end, {prediction.kernel_change:.3g}"
    moved.append(Curve(level, np.zeros(1), np.array([prediction.kernel_change]), "horizontal", "signal"))
    run = comparison is not None and "switch" in comparison
    return [
        _modes(prediction, comparison, title, "time of gradient flow"),
        Panel(
            tuple(moved),
            "The tangent kernel moves",
            "time of gradient flow",
            r"$|\Theta - \Theta_0|\,/\,|\Theta_0|$",
            ylim=(0, None),
        ),
        _modes(
            then,
            comparison.switch if comparison is not None and run else None,
            after + (": stuck at a saddle" if then.saddle else ""),
            "time since the switch",
        ),
    ]


def _modes(prediction: Prediction, comparison: Comparison | None, title: str, xlabel: str) -> Panel:
    solution = prediction.data["solution"]
    closed, drawn = solution.curves().modes, []
    for i, mode in enumerate(prediction.modes[:_DRAWN]):
        color, s = f"C{i}", mode.value
        drawn.append(Curve(f"s = {s:.3g}", solution.clock, closed[:, i], "theory", color))
        drawn.append(Curve("", np.zeros(1), np.array([s]), "horizontal", color, labeled=False))
        if math.isfinite(mode.half_learned.time) and mode.half_learned.time > 0:
            half = np.array([mode.half_learned.time]), np.array([s / 2])
            drawn.append(Curve("half learned", *half, "points", color, labeled=i == 0))
    if comparison is not None:
        clock, modes, _ = measured_curves(solution, comparison.run)
        for i, mode in enumerate(modes.T[: min(_DRAWN, len(prediction.modes))]):
            drawn.append(Curve("exact run of the layers", clock, mode, "measured", "theory", labeled=i == 0))
    return Panel(tuple(drawn), title, xlabel, r"$u_i^T A\, v_i$")
