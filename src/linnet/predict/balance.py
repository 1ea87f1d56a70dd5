"""Lazy or rich by one number: two layers in balance in closed form, on a task and on the one that follows it."""

import math
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from linnet import _check
from linnet._check import InputError
from linnet.initial import lambda_balanced
from linnet.linalg import RANK_TOLERANCE
from linnet.predict import asked, given
from linnet.predict.answer import Hypothesis, Loss, Source, When
from linnet.predict.balance_course import (
    Course,
    course,
    kernel_change,
    kernels,
    sharpness,
    triplets_of,
    weights_of,
)
from linnet.predict.balance_result import REVERSAL, BalanceMode, BalancePrediction, BalanceStart, BalanceSwitch
from linnet.predict.data import read_matrix
from linnet.problems import Factorisation, Problem
from linnet.states import Weights
from linnet.states.weights import measured_balance
from linnet.theory.regime import LAZY_BELOW, RICH_ABOVE, Regime

SCALE = 0.01  # of the lighter layer, where nothing else is said
_BALANCED = 1e-10  # of the layers' squares
_LARGEST = 200  # inputs and outputs together of a start in frames of its own, whose whole flow is evaluated
_BESIDE = 1e8  # squares of the layers over the largest singular value: what is learned keeps eight digits beside them


def balance(
    problem: Any,
    lam: float | Weights,
    *,
    width: int | None = None,
    scale: float | None = None,
    aligned: bool = False,
    seed: int = 0,
    switch: Any = REVERSAL,
) -> BalancePrediction:
    """Lazy or rich by lambda, W_2^T W_2 - W_1 W_1^T = lambda I: when modes are learned, what the kernel does, where it
    ends, and what happens when the task is switched then. Two layers, white inputs: closed form, exact.

    `problem` is a regression with X^T X a multiple of the identity, a factorisation, or the singular values of a target
    (`whitened`). In place of lambda stand the layers themselves, whose lambda is measured. The start is that of
    `lambda_balanced` (`scale`, 0.01 by default; `aligned` with the target or in random frames by `seed`); its width is
    by default what the heavier layer leads to, d_out for lambda > 0 and d_in for lambda < 0, so that all can be learned
    lazily. `switch` is the task that follows: "reversal" (Y becomes -Y), or its target, a matrix or a file of it.
    """
    target, curvature, rest, spread = _task(problem)
    if sum(target.shape) > _LARGEST and (isinstance(lam, Weights) or not aligned):
        raise InputError(
            f"problem has {target.shape[1]} inputs and {target.shape[0]} outputs: a start in frames of its own is "
            f"followed up to {_LARGEST} of both together; ask with aligned=True (--aligned), or `predict network`."
        )
    state, told, number = _start(target, lam, width, scale, aligned, seed)
    first = course(state, target, curvature, number, triplets_of(target))
    size = float(np.trace(first.first.input_gram) + np.trace(first.first.output_gram))
    if not size <= _BESIDE * first.triplets.values[0]:
        raise InputError(
            f"lam = {number:g} and this start are not allowed: the layers' squares sum to {size:.3g}, and what is "
            f"learned is lost in rounding beside more than {_BESIDE:g} times the largest singular value."
        )
    where = weights_of(first.last, state.widths[1])
    if isinstance(switch, str) and switch == REVERSAL:
        frames = first.triplets._replace(left=-first.triplets.left)
        after = course(where, -target, curvature, number, frames)
    else:
        other = _other(switch, target.shape)
        after = course(where, other, curvature, number, triplets_of(other))
    to = REVERSAL if np.array_equal(after.target, -target) else "another target"
    return BalancePrediction(
        prepared=given.prepared(problem),
        inputs=target.shape[1],
        outputs=target.shape[0],
        width=state.widths[1],
        curvature=curvature,
        lam=number,
        start=told,
        **_learning(first, rest),
        switch=BalanceSwitch(to=to, explanation=_explanation(after, to), **_learning(after, 0.0)),
        theory=_theory(spread, told.defect, first.aligned, after.aligned),
    )


def _task(problem: Any) -> tuple[Float[np.ndarray, "d_out d_in"], float, float, float]:
    """The target, the curvature of the loss, the loss at the target, and how far inputs are from white."""
    if isinstance(problem, Factorisation) and len(problem.shape) == 2 and not _check.traced(problem):
        target = np.asarray(problem.goal, dtype=np.float64)
        if not np.any(target):
            raise InputError("problem has a target of zero: there is nothing to learn.")
        return target, float(problem.scale), 0.0, 0.0
    asked_about = given.regression(problem)
    scales, d_in = np.linalg.svd(np.asarray(asked_about.root), compute_uv=False), asked_about.shape[1]
    lowest = float(scales[-1]) if len(scales) == d_in else 0.0
    spread = 1 - (lowest / float(scales[0])) ** 2
    if spread > 1e-9:
        raise InputError(
            f"problem has inputs that are not white: the smallest eigenvalue of X^T X is {1 - spread:.3g} of the "
            "largest, and this closed form needs them equal; ask `predict network`, or whiten the inputs first."
        )
    stretch = float(asked_about.scale) * float(asked_about.output_scale) ** 2
    rest = float(asked_about.scale) * float(asked_about.unexplained) / 2
    rest = rest if rest > 1e-26 * float(asked_about.square) else 0.0  # rounding
    return np.asarray(asked_about.target, dtype=np.float64), stretch * float(np.mean(scales**2)), rest, spread


def _start(
    target: np.ndarray, lam: Any, width: Any, scale: Any, aligned: Any, seed: Any
) -> tuple[Weights, BalanceStart, float]:
    """The layers, what is told of them, and their lambda: measured where they are given."""
    d_out, d_in = target.shape
    if isinstance(lam, Weights):
        for name, value in (("width", width), ("scale", scale), ("aligned", aligned or None), ("seed", seed or None)):
            if value is not None:
                raise InputError(f"{name} = {_check.show(value)} is not allowed with layers, which have their own.")
        number, defect = _measured(lam, (d_out, d_in))
        return lam, BalanceStart(kind="given", scale=None, seed=None, defect=defect), number
    number = _check.real("lam", lam, least=-asked.LARGEST, most=asked.LARGEST)
    size = _check.real("scale", SCALE if scale is None else scale, least=0, most=asked.LARGEST)
    if size == 0 and number == 0:
        raise InputError("scale = 0 is not allowed with lam = 0: layers of zero never move.")
    heavy = d_out if number > 0 else d_in if number < 0 else min(d_out, d_in)
    w = _check.integer("width", heavy if width is None else width, least=1)
    key, along = asked.seed(seed), _check.flag("aligned", aligned)
    problem = Factorisation(_check.floating(target), _check.floating(1.0))
    state = lambda_balanced(jax.random.key(key), problem, number, w, scale=size, aligned=along)
    defect = float(measured_balance(*state.layers).defect)
    kind = "aligned" if along else "random frames"
    return state, BalanceStart(kind=kind, scale=size, seed=None if along else key, defect=defect), number


def _measured(state: Weights, shape: tuple[int, int]) -> tuple[float, float]:
    """lambda of given layers, and how far they are from it."""
    if state.depth != 2:
        raise InputError(f"lam has {state.depth} layers: balance is about two; ask `predict network`.")
    if _check.traced(state.layers):
        raise InputError("lam is traced: predictions are made for known numbers.")
    if (state.widths[2], state.widths[0]) != shape:
        raise InputError(
            f"lam has layers of shape {(state.widths[2], state.widths[0])}: they must have the target's shape {shape}."
        )
    found = measured_balance(*state.layers)
    if found.size == 0:
        raise InputError("lam has layers of zero: they never move.")
    if found.defect > _BALANCED:
        raise InputError(
            f"lam has layers that are not balanced: W_2^T W_2 - W_1 W_1^T differs from {float(found.lam):.3g} I by "
            f"{float(found.defect):.1e} of the layers' squares, and {_BALANCED:g} is allowed; ask `predict network`, "
            "or start from lambda_balanced."
        )
    return float(found.lam), float(found.defect)


def _other(switch: Any, shape: tuple[int, ...]) -> Float[np.ndarray, "d_out d_in"]:
    """The target of another task."""
    if isinstance(switch, Problem):
        raise InputError("switch = a problem is not allowed: give its target, a matrix of outputs x inputs.")
    if isinstance(switch, str) and not Path(switch).suffix:
        raise InputError(f"switch = {switch!r} is not allowed: switch must be {REVERSAL!r}, a matrix or a file of one.")
    other = read_matrix("switch", switch, (shape[0], shape[1]))
    top = float(np.max(np.abs(other)))
    if not asked.SMALLEST < top < asked.LARGEST:
        raise InputError(
            f"switch has entries that reach {top:.3g}: keep them between {asked.SMALLEST:g} and {asked.LARGEST:g}."
        )
    return other


def _learning(way: Course, rest: float) -> dict[str, Any]:
    """The fields of one task."""
    s, begin, goal = way.triplets.values, way.begin, way.goal
    count, (half, near, fit) = int(np.sum(s > 0)), way.times()
    both = np.stack([kernels(way, way.first), kernels(way, way.last)])
    before, after = np.where(both > RANK_TOLERANCE * np.max(both), both, 0.0)  # less is rounding
    with np.errstate(divide="ignore", invalid="ignore"):
        growth = np.where((before == 0) & (after == 0), 1.0, after / before)
        through = way.aligned & (begin * goal < 0)  # a kernel that shrinks has changed as well: at zero it is |lambda|
        least = np.where(through, abs(way.lam), np.minimum(before, after))
        changed = np.where(least == np.maximum(before, after), 1.0, np.maximum(before, after) / least)
        regimes = [Regime.of_growth(float(x)) for x in changed[:count]]
    learned = [regimes[i] for i in range(count) if math.isfinite(near[i])] or regimes
    modes = tuple(
        BalanceMode(
            value=float(s[i]),
            start=float(begin[i]),
            end=float(goal[i]),
            regime=regimes[i],
            kernel_growth=float(growth[i]),
            half_learned=_when(half[i]),
            learned=_when(near[i]),
        )
        for i in range(count)
    )
    values = np.linalg.svd(way.last.matrix, compute_uv=False)
    ended = float(way.loss(way.last.matrix))
    return {
        "spectrum": tuple(map(float, s)),
        "regime": Regime.of_all(learned),
        "modes": modes,
        "rank": int(np.sum(values > RANK_TOLERANCE * s[0])),
        "missing": way.missing,
        "saddle": way.missing > 0,
        "loss": Loss(
            float(way.loss(way.first.matrix)) + rest,
            (ended if ended > RANK_TOLERANCE**2 * float(np.sum(s**2)) * way.curvature else 0.0) + rest,
        ),
        "fit": _when(fit),
        "kernel_change": float(kernel_change(way.first, way.last)),
        "input_gram_change": _change(way.first.input_gram, way.last.input_gram),
        "output_gram_change": _change(way.first.output_gram, way.last.output_gram),
        "largest_stable_lr": 2 / sharpness(way),
        "course": way,
    }


def _change(first: Any, last: Any) -> float:
    """|C - C_0| / |C_0|; infinite for a layer that starts at zero."""
    moved, size = float(np.linalg.norm(last - first)), float(np.linalg.norm(first))
    return moved / size if size > 0 else math.inf if moved > 0 else 0.0


def _when(time: float) -> When:
    return When(float(time), error=None if math.isnan(time) else 0.0)


def _explanation(way: Course, to: str) -> str:
    """Why the new task is learned, or not."""
    if not way.missing:
        if to == REVERSAL:
            return "every mode that was learned passes through zero at the speed c |lambda| s, as lambda is not zero"
        return "the layers have something of every mode that the width has room for"
    modes = f"{way.missing} mode{'s' * (way.missing > 1)}"
    if to == REVERSAL and way.lam == 0:
        return "it stays at 0: layers with lambda = 0 carry no mode through zero, and zero is a saddle"
    if way.lam == 0:
        return (
            f"it ends at a saddle without {modes}: with lambda = 0 a mode neither begins at zero nor changes its sign"
        )
    return f"it ends at a saddle without {modes}: where it starts it has no neuron for what they need"


def _theory(spread: float, defect: float, by_modes: bool, then_by_modes: bool) -> tuple[Source, ...]:
    needs = (
        Hypothesis.of("white inputs: X^T X is a multiple of the identity", spread),
        Hypothesis.of("layers in balance: W_2^T W_2 - W_1 W_1^T = lambda I", defect),
    )
    words = f"lazy below {LAZY_BELOW:g}, rich above {RICH_ABOVE:g}"
    modes, whole = "closed form, exact: each mode by itself", "closed form, exact: Q Q^T at any time, roots of it"
    ways = {True: (modes, ("balance/C9",)), False: (whole, ("balance/C3", "balance/C5"))}
    return (
        Source("half_learned, learned, fit", *ways[by_modes], needs),
        Source("switch.half_learned, switch.learned, switch.fit", *ways[then_by_modes], needs),
        Source(
            "regime", f"each mode's kernel, its largest over its least: {words}", ("balance/C6", "balance/C8"), needs
        ),
        Source(
            "kernel_change, input_gram_change, output_gram_change",
            "Gram matrices where the flow ends",
            ("balance/C6", "balance/C8", "balance/C10"),
            needs,
        ),
        Source("end, rank, missing, saddle, loss", "the modes that the start reaches", ("balance/C11",), needs),
        Source("switch", "reversal gets stuck at lambda = 0 alone", ("balance/C12",), needs),
        Source("largest_stable_lr", "2 over the Hessian's largest eigenvalue where the flow ends", (), needs),
    )
