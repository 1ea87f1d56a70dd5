"""What happens to a network, in the order in which it can be known: where it ends, which steps that bears, and when."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from linnet.predict.frame import Frame
from linnet.predict.network.chain import Chain, Flat
from linnet.predict.network.clock import Clock
from linnet.predict.network.end import End, at_most, expected, reached
from linnet.predict.network.modes import Modes, state_grams
from linnet.predict.network.path import EXACT, Path, descended, feasible, flowed, trained
from linnet.predict.network.plan import Plan
from linnet.predict.network.step import Edges, NetworkOutcome, Verdict, flattest, judged, pushed, seen
from linnet.predict.optimiser import Optimiser
from linnet.states import Weights


class Course(NamedTuple):
    """A learning rate, what becomes of the network at it, when, and where it ends."""

    lr: float
    edges: Edges
    verdict: Verdict
    clock: Clock | Path
    end: End
    growth: Float[np.ndarray, " modes"]  # of each mode's kernel, from the start to the end


def coursed(
    frame: Frame,
    state: Weights,
    chain: Chain,
    modes: Modes,
    plan: Plan,
    asked: float | str,
    optimiser: Optimiser,
    rest: Flat | None,
    *,
    follow: bool,
) -> Course:
    """By closed forms where they are exact; else the network itself is followed, as long as that costs little.

    `rest` is where it ends with decay. Without `follow` there are closed forms alone, but for decay.
    """
    if rest is not None:
        end = reached(chain, modes, rest)
        # with one or two layers of enough neurons there is no other minimum
        alike = plan.depth == 1 or (plan.depth == 2 and min(plan.hidden) >= min(frame.limit.shape))
        edges = Edges(chain.sharpness(chain.start), end.sharpness, end.sharpness if alike else math.nan)
        return _trained(chain, modes, edges, end, asked, optimiser, follow=True)
    follow = follow and feasible(chain)
    exact = plan.aligned and bool(modes.alone.all())
    end = expected(frame, chain, state, modes, plan)
    if follow and not exact:
        flow = flowed(chain, modes)
        end = reached(chain, modes, flow.end) if flow.arrived else end
    begin = chain.sharpness(chain.start) if follow else at_most(frame, chain, state_grams(state), state.matrix)
    edges = Edges(begin, end.sharpness, flattest(modes, plan.depth, end.sharpness))
    if not optimiser.plain:
        return _trained(chain, modes, edges, end, asked, optimiser, follow=follow)
    lr = edges.step(asked, optimiser)
    verdict = judged(frame, modes, plan, edges, lr)
    closed = _closed(frame, modes, plan, end, lr)
    clock: Clock | Path = closed
    settles = verdict.outcome is NetworkOutcome.CONVERGES
    if follow and not (exact and settles and None not in closed.errors):
        way = descended(chain, modes, lr, settles)
        if way.arrived:
            end = reached(chain, modes, way.end)
            edges = edges._replace(end=end.sharpness)
        if not exact or settles:  # else each mode was iterated for itself
            verdict = seen(verdict, way, lr, end.sharpness)
        clock = Path(modes, way if verdict.outcome is NetworkOutcome.CONVERGES else way.cut(), lr)
    return Course(lr, edges, verdict, clock, end, _growth(modes, end))


def _trained(
    chain: Chain, modes: Modes, edges: Edges, end: End, asked: float | str, optimiser: Optimiser, *, follow: bool
) -> Course:
    """With momentum: other limits, and the steps themselves for what happens on the way, then the flow that they follow
    where they have become calm. With decay alone: descent on another loss, whose minimum is known.
    """
    lr = edges.step(asked, optimiser)
    if optimiser.beta:
        way = trained(chain, modes, lr, optimiser, lr < optimiser.largest(edges.end), count=EXACT if follow else 0)
    else:
        way = descended(chain, modes, lr, lr < optimiser.largest(max(edges.start, edges.end)))
    if way.arrived and not chain.decay:
        end = reached(chain, modes, way.end)
        edges = edges._replace(end=end.sharpness)
    verdict = pushed(modes, edges, lr, way, optimiser)
    if not optimiser.beta and verdict.outcome is not NetworkOutcome.CONVERGES:
        way = way.cut()
    return Course(lr, edges, verdict, Path(modes, way, lr), end, _growth(modes, end))


def _closed(frame: Frame, modes: Modes, plan: Plan, end: End, lr: float) -> Clock:
    begin = np.sum(modes.grams, axis=0)
    return Clock(modes, plan, _growth(modes, end), np.maximum(end.kernel, begin), lr, frame)


def _growth(modes: Modes, end: End) -> Float[np.ndarray, " modes"]:
    begin = np.sum(modes.grams, axis=0)
    return np.divide(end.kernel, begin, out=np.full(begin.size, np.inf), where=begin > 0)
