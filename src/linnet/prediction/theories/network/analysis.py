"""What happens to a network, in the order in which it can be known: the end, the stable learning rates, the times."""

from typing import NamedTuple

import numpy as np

from linnet.optim import SGD
from linnet.prediction.reduced import ReducedRegression
from linnet.prediction.theories.network.copies import copies_lost, follow_copies
from linnet.prediction.theories.network.end import End, expected, reached, sharpness_bound
from linnet.prediction.theories.network.following import (
    EXACT,
    feasible,
    follow_descent,
    follow_flow,
    follow_optimizer,
)
from linnet.prediction.theories.network.initialization import Initialization
from linnet.prediction.theories.network.modes import Layers, NetworkModes, layer_grams
from linnet.prediction.theories.network.objective import Flat, Objective, prefixes
from linnet.prediction.theories.network.thresholds import is_plain, largest_lr
from linnet.prediction.theories.network.times import ClosedFormTimes, FollowedTimes
from linnet.prediction.theories.network.verdict import (
    NetworkOutcome,
    NetworkVerdict,
    Sharpness,
    descent_verdict,
    flattest,
    followed_verdict,
    momentum_verdict,
    revised,
)


class Analysis(NamedTuple):
    """A learning rate, the sharpness along training, the verdict, the times of all modes, and the end."""

    lr: float
    sharpness: Sharpness
    verdict: NetworkVerdict
    times: ClosedFormTimes | FollowedTimes
    end: End

    @property
    def converges(self) -> bool:
        """Whether it surely does."""
        return self.verdict.outcome is NetworkOutcome.CONVERGES


def analyze(
    reduction: ReducedRegression,
    objective: Objective,
    layers: Layers,
    modes: NetworkModes,
    initialization: Initialization,
    lr: float | None,
    optimizer: SGD,
    minimum: Flat | None,
    *,
    follow: bool,
) -> Analysis:
    """By closed forms where they are exact; otherwise training is followed if that takes seconds at most.

    `minimum` is where training with weight decay ends. Without `follow` closed forms alone are used, unless there is
    weight decay.
    """
    if minimum is not None:
        end = reached(objective, modes, minimum)
        # with one or two layers of enough neurons all minima are alike
        depth, hidden = initialization.depth, initialization.hidden
        alike = depth == 1 or (depth == 2 and min(hidden) >= min(reduction.limit.shape))
        initial = objective.sharpness(objective.initial)
        sharpness = Sharpness(initial, end.sharpness, end.sharpness if alike else np.nan)
        return _followed(objective, modes, sharpness, end, lr, optimizer, follow=True)
    follow = follow and feasible(objective)
    exact = initialization.aligned and bool(modes.alone.all())
    end = expected(reduction, objective, layers, modes, initialization)
    if follow and not exact:
        flow = follow_flow(objective, modes)
        end = reached(objective, modes, flow.end) if flow.arrived else end
    if follow:
        initial = objective.sharpness(objective.initial)
    else:
        initial = sharpness_bound(reduction, objective, layer_grams(layers), prefixes(layers)[-1])
    sharpness = Sharpness(initial, end.sharpness, flattest(modes, initialization.depth, end.sharpness))
    if not is_plain(optimizer):
        return _followed(objective, modes, sharpness, end, lr, optimizer, follow=follow)
    rate = sharpness.choose(lr, optimizer)
    verdict = descent_verdict(reduction, modes, initialization, sharpness, rate)
    largest = np.maximum(end.kernel, modes.kernel)
    closed = ClosedFormTimes(modes, initialization, end.growth(modes), largest, rate, reduction)
    times: ClosedFormTimes | FollowedTimes = closed
    converges = verdict.outcome is NetworkOutcome.CONVERGES
    if follow and not (exact and converges and None not in closed.errors):
        solution = follow_descent(objective, modes, rate, converges)
        if solution.arrived:
            end = reached(objective, modes, solution.end)
            sharpness = sharpness._replace(end=end.sharpness)
        if not verdict.alone:  # otherwise each mode was iterated by itself, and none disturbs another
            verdict = revised(verdict, solution, rate, end.sharpness)
            if not converges:
                copies = follow_copies(objective, modes, rate)
                if copies is not None:
                    solution = solution._replace(left=min(solution.left, copies.separated))
                verdict = followed_verdict(verdict, copies, modes, diverged=solution.diverged)
        kept = solution if verdict.outcome is NetworkOutcome.CONVERGES else solution.exact_part()
        times = FollowedTimes(modes, kept, rate)
    elif initialization.depth > 1:
        verdict = followed_verdict(verdict, None, modes)
    return Analysis(rate, sharpness, verdict, times, end)


def _followed(
    objective: Objective,
    modes: NetworkModes,
    sharpness: Sharpness,
    end: End,
    lr: float | None,
    optimizer: SGD,
    *,
    follow: bool,
) -> Analysis:
    """With momentum: exact steps, then the flow that they follow once oscillations have died out. With weight decay
    alone: descent on another loss, whose minimum is known.
    """
    rate = sharpness.choose(lr, optimizer)
    if optimizer.momentum is not None:
        stable = rate < largest_lr(optimizer, sharpness.end)
        solution = follow_optimizer(objective, modes, rate, optimizer, stable, count=EXACT if follow else 0)
    else:
        stable = rate < largest_lr(optimizer, max(sharpness.initial, sharpness.end))
        solution = follow_descent(objective, modes, rate, stable)
    if solution.arrived and not objective.decay:
        end = reached(objective, modes, solution.end)
        sharpness = sharpness._replace(end=end.sharpness)
    lost = None
    verdict = momentum_verdict(modes, sharpness, rate, solution, optimizer)
    if verdict.outcome is not NetworkOutcome.CONVERGES and len(objective.shapes) > 1:
        steps = 2 * solution.exact if solution.diverged else solution.exact
        lost = copies_lost(objective, modes, rate, optimizer, steps)
    if lost is not None:  # later times depend on rounding
        solution = solution._replace(left=min(solution.left, lost[1]))
        verdict = momentum_verdict(modes, sharpness, rate, solution, optimizer, lost[0])
    if optimizer.momentum is None and verdict.outcome is not NetworkOutcome.CONVERGES:
        solution = solution.exact_part()
    return Analysis(rate, sharpness, verdict, FollowedTimes(modes, solution, rate), end)
