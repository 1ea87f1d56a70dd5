"""What a learning rate does to a network: where it converges, oscillates, or diverges."""

import enum
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from linnet.optim import SGD
from linnet.prediction.reduced import ReducedRegression
from linnet.prediction.theories.network.copies import COPIES, LONGEST, Copies
from linnet.prediction.theories.network.following import Solution
from linnet.prediction.theories.network.initialization import Initialization
from linnet.prediction.theories.network.modes import ALONE, NetworkModes
from linnet.prediction.theories.network.thresholds import largest_lr, largest_monotone_lr
from linnet.theory import mode_fate
from linnet.theory import stability as edge
from linnet.theory.mode_fate import Fate, Outcome

_CHOSEN = 0.1  # of the largest stable learning rate
_BALANCED = "as balanced layers would: "
_NEAR, _SEPARATED = 0.01, 1e-3  # of a mode, of the largest entry of A


class NetworkOutcome(enum.StrEnum):
    """What a learning rate does to a network."""

    CONVERGES = "converges"
    SURVIVES = "converges if it survives its start"  # the initialization is too sharp for it
    ELSEWHERE = "settles elsewhere or not at all"  # the end of the flow is too sharp, and flatter minima exist
    CYCLE = "cycle"  # of the first mode that does not converge, as the next three
    CHAOS = "chaos"
    FLIPS = "flips"
    TRAPPED = "trapped"
    DIVERGES = "diverges"
    MIXED = "unknown: modes mix"  # beyond the edge, where nothing that is known of single modes holds


class Between(NamedTuple):
    """The lowest and the highest value that a mode visits in the end."""

    low: float
    high: float


@dataclass(frozen=True)
class NetworkVerdict:
    """The outcome, an explanation, and the outcome of each mode.

    `mix` is the step from which modes mix visibly, `alone` says that none does, and `followed` is the number of steps
    in which an outcome without end was seen.
    """

    outcome: NetworkOutcome
    explanation: str
    modes: list[Outcome]
    between: list[Between | None]
    mix: float | None = None
    alone: bool = False
    followed: int | None = None

    @classmethod
    def alike(cls, outcome: NetworkOutcome, explanation: str, mode: Outcome, count: int) -> "NetworkVerdict":
        """The same outcome for all modes."""
        return cls(outcome, explanation, [mode] * count, [None] * count)


class Sharpness(NamedTuple):
    """The sharpness at initialization, where training ends, and at the flattest minimum there is."""

    initial: float
    end: float
    flattest: float

    def choose(self, lr: float | None, optimizer: SGD) -> float:
        """The learning rate, by default a tenth of what initialization and end allow."""
        if lr is not None:
            return float(lr)
        return _CHOSEN * largest_lr(optimizer, max(self.initial, self.end))


def flattest(modes: NetworkModes, depth: int, end: float) -> float:
    """A lower bound of the sharpness of all minima, attained on white data; with one layer all are alike."""
    return float(np.max(modes.curvature * edge.curvature(modes.value, depth))) if depth > 1 else end


_CONVERGES, _UNKNOWN, _DIVERGES = Outcome(Fate.CONVERGES, 1), Outcome(Fate.UNKNOWN), Outcome(Fate.DIVERGES)


def descent_verdict(
    reduction: ReducedRegression, modes: NetworkModes, initialization: Initialization, sharpness: Sharpness, lr: float
) -> NetworkVerdict:
    """Gradient descent with this learning rate, by its sharpness and by the maps of single modes."""
    at_init, at_end, at_best = (lr * curvature for curvature in sharpness)
    count, depth = modes.value.size, initialization.depth
    if at_end < 2 and (at_init < 2 or depth == 1):
        text = f"lr times the sharpness is {at_init:.3g} at the start and {at_end:.3g} in the end, both below 2"
        return NetworkVerdict.alike(NetworkOutcome.CONVERGES, text, _CONVERGES, count)
    if at_end < 2:
        text = f"the start is too sharp for it (lr times sharpness {at_init:.3g}, above 2): it jumps first"
        return NetworkVerdict.alike(NetworkOutcome.SURVIVES, text, _CONVERGES, count)
    if depth == 1:
        text = f"lr times the curvature is {at_end:.3g}, above 2"
        return replace(NetworkVerdict.alike(NetworkOutcome.DIVERGES, text, _DIVERGES, count), alone=True)
    text = f"lr times the sharpness is {at_end:.3g} where the flow ends and {at_best:.3g} or more at the flattest end"
    kappas = lr * modes.curvature * edge.curvature(modes.value, depth)
    white = bool(np.all(reduction.scales >= (1 - ALONE) * reduction.scales[0]))
    if white and initialization.aligned:
        return _single_modes(reduction, modes, initialization, kappas, lr, text)
    if at_best < 2:
        text += ": descent has to find a flatter one"
        return NetworkVerdict.alike(NetworkOutcome.ELSEWHERE, text, _UNKNOWN, count)
    outcomes = edge.outcome(kappas, depth)
    worst = NetworkOutcome(mode_fate.worst(outcomes).fate)
    return NetworkVerdict(worst, _BALANCED + text, outcomes, [None] * count)


def _single_modes(
    reduction: ReducedRegression,
    modes: NetworkModes,
    initialization: Initialization,
    kappas: Float[np.ndarray, " modes"],
    lr: float,
    text: str,
) -> NetworkVerdict:
    """Aligned layers on white data: each mode is a map of its layers' singular values."""
    s, depth, alpha, kind = modes.value, initialization.depth, initialization.scale[0], initialization.kind
    step = lr * float(reduction.scales[0] ** 2)
    leave = mode_fate.escape_steps(s, alpha, depth, kind, step)
    found, points = mode_fate.mode_fates(s, depth, kappas, alpha, kind, leave)
    null = kind == "one-zero" and min(reduction.limit.shape) > s.size
    cross = mode_fate.cross_fate(s, depth, step, points, found, leave, alpha, null)
    mix = None if cross is None or cross.visible_after is None else cross.visible_after.double
    if mix is not None:
        text += f"; modes mix, visibly after about step {mix:,.0f}"
    between = [None if one.low is None or one.high is None else Between(one.low, one.high) for one in found]
    outcomes = [one.outcome for one in found]
    settled = all(one.fate is Fate.DIVERGES or one.period is not None for one in outcomes)
    lost = any(one.fate is Fate.DIVERGES for one in outcomes)
    alone = mix is None and (settled or lost)
    return NetworkVerdict(NetworkOutcome(mode_fate.worst(outcomes).fate), text, outcomes, between, mix, alone)


def followed_verdict(
    verdict: NetworkVerdict, copies: Copies | None, modes: NetworkModes, *, diverged: bool = False
) -> NetworkVerdict:
    """The verdict beyond the edge after copies of the network were followed; None: that would take too long.

    `diverged` says whether the network itself did, in the steps that were made before. What single modes or balanced
    layers would do is kept where modes stay apart alone.
    """
    if verdict.alone or verdict.outcome is NetworkOutcome.SURVIVES:
        return verdict
    if verdict.outcome is NetworkOutcome.CONVERGES and (copies is None or not copies.lost):
        return verdict
    if copies is None and diverged:
        return verdict
    count, text = modes.value.size, verdict.explanation.removeprefix(_BALANCED)
    if copies is None:
        if verdict.outcome is NetworkOutcome.ELSEWHERE:
            return verdict
        return replace(NetworkVerdict.alike(NetworkOutcome.MIXED, text, _UNKNOWN, count), mix=verdict.mix)
    copied = f"of {len(copies.diverged)} copies whose weights differ by 1e-9"
    if diverged and copies.lost == len(copies.diverged):
        return verdict
    flatter = verdict.outcome in (
        NetworkOutcome.ELSEWHERE,
        NetworkOutcome.CONVERGES,
    )  # there are stable ends, and what moves may yet find one
    unknown = NetworkOutcome.ELSEWHERE if flatter else NetworkOutcome.MIXED
    outcome, fates = unknown, [_UNKNOWN] * count
    at_rest = copies.periods == 1
    lingers = at_rest & (copies.errors > _NEAR)  # near a saddle
    if copies.lost or diverged:
        itself = "diverges" if diverged else "does not"
        text += f"; {copies.lost} {copied} diverge in {copies.steps:,} steps, and the network itself {itself}"
    elif not copies.left:
        text += f"; in {copies.steps:,} steps mode 1 is not learned"
    elif np.all(at_rest) and np.all(copies.errors > _NEAR) and not flatter:
        outcome, fates = NetworkOutcome.TRAPPED, [Outcome(Fate.TRAPPED)] * count
        text += f"; descent comes to rest at a saddle in {copies.steps:,} steps"
    elif np.all(copies.periods > 1):
        outcome, fates = NetworkOutcome.CYCLE, _fates(copies, modes, Fate.UNKNOWN)
        text += f"; descent comes to a cycle in {copies.steps:,} steps"
    elif np.all((copies.periods == 0) | (lingers & copies.repels)) and copies.apart > _SEPARATED and not flatter:
        flips = bool(np.any((copies.low < -_NEAR * modes.value) & (copies.high > _NEAR * modes.value)))
        outcome = NetworkOutcome.FLIPS if flips else NetworkOutcome.CHAOS
        fates = _fates(copies, modes, Fate(outcome))
        text += f"; none {copied} diverges in {copies.steps:,} steps, and they separate"
    elif not np.all(at_rest):
        text += f"; what moves after {copies.steps:,} steps has no period up to {LONGEST}"
    between = [Between(float(a), float(b)) for a, b in zip(copies.low, copies.high, strict=True)]
    if outcome is unknown:
        return NetworkVerdict(outcome, text, fates, [None] * count, verdict.mix)
    return NetworkVerdict(outcome, text, fates, [*between], verdict.mix, followed=copies.steps)


def _fates(copies: Copies, modes: NetworkModes, moving: Fate) -> list[Outcome]:
    """Of the modes of a network that cycles or moves chaotically; `moving` is that of a mode without a period."""
    found = []
    for period, low, high, value in zip(copies.modes, copies.low, copies.high, modes.value, strict=True):
        rests = period == 1 and max(abs(low - value), abs(high - value)) < _NEAR * value
        known = Outcome(Fate.CYCLE, int(period)) if period > 1 else Outcome(moving)
        found.append(_CONVERGES if rests else known)
    return found


def momentum_verdict(
    modes: NetworkModes, sharpness: Sharpness, lr: float, solution: Solution, optimizer: SGD, lost: int | None = None
) -> NetworkVerdict:
    """SGD with momentum or weight decay, by the steps that were made and the sharpness of initialization and end.

    Where the steps diverge, `lost` is how many copies of the network do; None: they were not followed.
    """
    count = modes.value.size
    if solution.diverged and lost is not None and lost < COPIES:
        text = f"it diverges at step {solution.exact:,}, but {lost} of {COPIES} copies whose weights differ by 1e-9 do"
        return NetworkVerdict.alike(NetworkOutcome.ELSEWHERE, text, _UNKNOWN, count)
    if solution.diverged:
        return NetworkVerdict.alike(
            NetworkOutcome.DIVERGES, f"it diverges at step {solution.exact:,}", _DIVERGES, count
        )
    if lr * solution.peak >= 2 and optimizer.momentum is None:
        text = f"lr times the sharpness comes to {lr * solution.peak:.3g} during training, above 2"
        return NetworkVerdict.alike(NetworkOutcome.ELSEWHERE, text, _UNKNOWN, count)
    if solution.arrived:
        text = f"it arrives after {solution.steps[-1]:,.0f} steps"
        return NetworkVerdict.alike(NetworkOutcome.CONVERGES, text, _CONVERGES, count)
    share = lr / largest_lr(optimizer, sharpness.end)
    if share >= 1:
        text = f"lr is {share:.3g} of the largest stable one where the flow ends"
        return NetworkVerdict.alike(NetworkOutcome.ELSEWHERE, text, _UNKNOWN, count)
    top = max(sharpness.initial, sharpness.end, solution.peak)
    if lr < (largest_lr if optimizer.momentum is None else largest_monotone_lr)(optimizer, top):
        text = f"lr is {share:.3g} of the largest stable one where it ends, and too small to overshoot"
        return NetworkVerdict.alike(NetworkOutcome.CONVERGES, text, _CONVERGES, count)
    why = "the start is too sharp for it" if optimizer.momentum is None else "with momentum it may overshoot first"
    text = f"lr is {share:.3g} of the largest stable one where the flow ends, but {why}"
    return NetworkVerdict.alike(NetworkOutcome.SURVIVES, text, _UNKNOWN, count)


def revised(verdict: NetworkVerdict, solution: Solution, lr: float, sharpness: float) -> NetworkVerdict:
    """The verdict after descent was followed; `sharpness` is that of the predicted end."""
    count, converges = len(verdict.modes), verdict.outcome is NetworkOutcome.CONVERGES
    if solution.diverged:
        text = f"descent diverges at step {solution.exact:,}"
        if converges:
            text += ", though start and end allow this learning rate"
        elif verdict.mix is not None:
            text += f", since modes mix, visibly after about step {verdict.mix:,.0f}"
        return replace(NetworkVerdict.alike(NetworkOutcome.DIVERGES, text, _DIVERGES, count), mix=verdict.mix)
    if solution.arrived and not converges:
        text = f"descent arrives after {solution.exact:,} steps, though {verdict.explanation}"
        return NetworkVerdict.alike(NetworkOutcome.CONVERGES, text, _CONVERGES, count)
    if converges and lr * max(solution.peak, sharpness) >= 2:
        text = f"lr times the sharpness comes to {lr * max(solution.peak, sharpness):.3g} during training, above 2"
        return NetworkVerdict.alike(NetworkOutcome.ELSEWHERE, text, _UNKNOWN, count)
    return verdict
