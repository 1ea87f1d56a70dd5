"""What a step size does to a network: where it settles, oscillates or diverges."""

import enum
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from linnet.predict.frame import Frame
from linnet.predict.network.modes import ALONE, Modes
from linnet.predict.network.path import Way
from linnet.predict.network.plan import Plan
from linnet.predict.optimiser import Optimiser
from linnet.theory import mode_fate
from linnet.theory import stability as edge
from linnet.theory.mode_fate import Fate, Outcome

_CHOSEN = 0.1  # of the largest stable step


class NetworkOutcome(enum.StrEnum):
    """What becomes of a whole network at a step size."""

    CONVERGES = "converges"
    SURVIVES = "converges if it survives its start"  # which is too sharp for the step
    ELSEWHERE = "settles elsewhere or not at all"  # where the flow ends is too sharp, and flatter ends exist
    CYCLE = "cycle"  # what the first mode does that does not converge, this and the next three
    CHAOS = "chaos"
    FLIPS = "flips"
    TRAPPED = "trapped"
    DIVERGES = "diverges"


class Between(NamedTuple):
    """The lowest and the highest value that a mode visits in the end."""

    low: float
    high: float


@dataclass(frozen=True)
class Verdict:
    """What a step size does, why, and what becomes of each mode; `mix` is the step from which on modes mix visibly."""

    outcome: NetworkOutcome
    explanation: str
    modes: list[Outcome]
    between: list[Between | None]
    mix: float | None = None


class Edges(NamedTuple):
    """The sharpness at the start, where it ends, and at the flattest end there is."""

    start: float
    end: float
    flattest: float

    def step(self, asked: float | str, optimiser: Optimiser) -> float:
        """The step size that was asked for, or a tenth of what start and end allow."""
        if not isinstance(asked, str):
            return float(asked)
        top = max(self.start, self.end)
        return _CHOSEN * 2 / top if optimiser.plain else _CHOSEN * float(optimiser.largest(top))


def flattest(modes: Modes, depth: int, end: float) -> float:
    """No end is flatter, and on whitened data one is as flat; with one layer all ends are alike."""
    return float(np.max(modes.curvature * edge.curvature(modes.value, depth))) if depth > 1 else end


def judged(frame: Frame, modes: Modes, plan: Plan, edges: Edges, lr: float) -> Verdict:
    """What becomes of the network and its modes at this step size."""
    at_start, at_end, at_best = (lr * curvature for curvature in edges)
    count = modes.value.size
    calm, nowhere = [Outcome(Fate.CONVERGES, 1)] * count, [None] * count
    if at_end < 2 and (at_start < 2 or plan.depth == 1):
        text = f"lr times the sharpness is {at_start:.3g} at the start and {at_end:.3g} in the end, both below 2"
        return Verdict(NetworkOutcome.CONVERGES, text, calm, [*nowhere])
    if at_end < 2:
        text = f"the start is too sharp for it (lr times sharpness {at_start:.3g}, above 2): it jumps first"
        return Verdict(NetworkOutcome.SURVIVES, text, calm, [*nowhere])
    if plan.depth == 1:
        text = f"lr times the curvature is {at_end:.3g}, above 2"
        return Verdict(NetworkOutcome.DIVERGES, text, [Outcome(Fate.DIVERGES)] * count, [*nowhere])
    text = f"lr times the sharpness is {at_end:.3g} where the flow ends and {at_best:.3g} or more at the flattest end"
    kappas = lr * modes.curvature * edge.curvature(modes.value, plan.depth)
    alike = bool(np.all(frame.scales >= (1 - ALONE) * frame.scales[0]))
    if alike and plan.kind != "gaussian":
        return _chains(frame, modes, plan, kappas, lr, text)
    if at_best < 2:
        text += ": descent has to find a flatter one"
        return Verdict(NetworkOutcome.ELSEWHERE, text, [Outcome(Fate.UNKNOWN)] * count, [*nowhere])
    outcomes = edge.outcome(kappas, plan.depth)
    word = NetworkOutcome(mode_fate.worst(outcomes).fate)
    return Verdict(word, f"as balanced layers would: {text}", outcomes, [*nowhere])


def _chains(
    frame: Frame, modes: Modes, plan: Plan, kappas: Float[np.ndarray, " modes"], lr: float, text: str
) -> Verdict:
    """Aligned layers on whitened data: each mode is a chain of numbers."""
    s, depth, alpha = modes.value, plan.depth, plan.scale[0]
    step = lr * float(frame.scales[0] ** 2)
    leave = mode_fate.escape_steps(s, alpha, depth, plan.kind, step)
    found, points = mode_fate.mode_fates(s, depth, kappas, alpha, plan.kind, leave)
    null = plan.kind == "one-zero" and min(frame.limit.shape) > s.size
    cross = mode_fate.cross_fate(s, depth, step, points, found, leave, alpha, null)
    mix = None if cross is None or cross.visible_after is None else cross.visible_after.double
    if mix is not None:
        text += f"; modes mix, visibly after about step {mix:,.0f}"
    between = [None if one.low is None or one.high is None else Between(one.low, one.high) for one in found]
    outcomes = [one.outcome for one in found]
    return Verdict(NetworkOutcome(mode_fate.worst(outcomes).fate), text, outcomes, between, mix)


def pushed(modes: Modes, edges: Edges, lr: float, way: Way, optimiser: Optimiser) -> Verdict:
    """What becomes of the network with momentum or decay, from the steps that were made and the sharpness of start and
    end.
    """
    count = modes.value.size
    calm, open_, nowhere = [Outcome(Fate.CONVERGES, 1)] * count, [Outcome(Fate.UNKNOWN)] * count, [None] * count
    if way.lost:
        text = f"it leaves at step {way.exact:,}"
        return Verdict(NetworkOutcome.DIVERGES, text, [Outcome(Fate.DIVERGES)] * count, [*nowhere])
    if lr * way.peak >= 2 and not optimiser.beta:
        text = f"lr times the sharpness comes to {lr * way.peak:.3g} on the way, above 2"
        return Verdict(NetworkOutcome.ELSEWHERE, text, open_, [*nowhere])
    if way.arrived:
        return Verdict(NetworkOutcome.CONVERGES, f"it arrives after {way.steps[-1]:,.0f} steps", calm, [*nowhere])
    share = lr / float(optimiser.largest(edges.end))
    if share >= 1:
        text = f"lr is {share:.3g} of the largest stable one where the flow ends"
        return Verdict(NetworkOutcome.ELSEWHERE, text, open_, [*nowhere])
    top = max(edges.start, edges.end, way.peak)
    if lr < (optimiser.short(top) if optimiser.beta else optimiser.largest(top)):
        text = f"lr is {share:.3g} of the largest stable one where it ends, and too short to overshoot"
        return Verdict(NetworkOutcome.CONVERGES, text, calm, [*nowhere])
    why = "with momentum it may overshoot first" if optimiser.beta else "the start is too sharp for it"
    text = f"lr is {share:.3g} of the largest stable one where the flow ends, but {why}"
    return Verdict(NetworkOutcome.SURVIVES, text, open_, [*nowhere])


def seen(verdict: Verdict, way: Way, lr: float, sharpness: float) -> Verdict:
    """What becomes of a verdict when descent itself was followed; `sharpness` is that of the predicted end."""
    count, settles = len(verdict.modes), verdict.outcome is NetworkOutcome.CONVERGES
    if way.lost:
        text = f"descent leaves at step {way.exact:,}" + (
            "" if not settles else ", though start and end allow the step"
        )
        return Verdict(NetworkOutcome.DIVERGES, text, [Outcome(Fate.DIVERGES)] * count, [None] * count)
    if way.arrived and not settles:
        text = f"descent itself arrives after {way.exact:,} steps, though {verdict.explanation}"
        return Verdict(NetworkOutcome.CONVERGES, text, [Outcome(Fate.CONVERGES, 1)] * count, [None] * count)
    if settles and lr * max(way.peak, sharpness) >= 2:
        text = f"lr times the sharpness comes to {lr * max(way.peak, sharpness):.3g} on the way, above 2"
        return Verdict(NetworkOutcome.ELSEWHERE, text, [Outcome(Fate.UNKNOWN)] * count, [None] * count)
    return verdict
