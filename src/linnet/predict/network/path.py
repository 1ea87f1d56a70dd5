"""The way of a given start where no closed form knows it: exact steps first, then the flow that descent follows."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy  # its parts load when they are first used
from jaxtyping import Float

from linnet.curves import crossing
from linnet.predict.answer import When
from linnet.predict.network.chain import Chain, Flat
from linnet.predict.network.modes import HALF, Curve, Modes, squares
from linnet.predict.optimiser import Optimiser, Pace

EXACT = 4096  # steps of descent that are made one by one
_OPERATIONS = 4e10  # multiplications that a part of the way may cost: two or three seconds
_DENSE = 0.5  # of the time of others: multiplications in a system of equations
_FEWEST = 64  # steps that must be possible at that price
STIFF = 800  # weights up to which systems of so many equations are cheap
_FEW = 100  # directions up to which a curvature has few
SOLVER_STEPS = 20_000
_INSIDE = np.array([0.25, 0.5, 0.75, 1.0])  # where a step of the solver is looked at
_ARRIVED = 1e-6  # of the way is left
_CALM = 1e-2  # of a step: so far from the flow's it may be where the flow takes over
_LOST = 1e6  # times the size of start and end: descent has left for good
_TOLERANCE = 1e-8
OFTEN = 16  # steps of the solver between two looks at the sharpness
_READING, _BETWEEN = 1e-3, 0.1  # relative, and in steps: what is read off between two steps
_MOMENTS = 2000  # at which the way of a single layer is told

Look = Callable[[Float[np.ndarray, "*many weights"]], Float[np.ndarray, "*many seen"]]
Stands = Callable[[float, float], bool]  # whether steps follow a flow, by the largest sharpness and steepness on it


class Way(NamedTuple):
    """Where a network was when, and how it ended.

    A row of `seen` is u_i^T A v_i of every mode, |A - A_end| and the excess loss, that of decay included.
    """

    steps: Float[np.ndarray, " points"]
    seen: Float[np.ndarray, "points seen"]
    end: Flat
    exact: int  # steps that were made one by one
    arrived: bool
    lost: bool = False  # descent left for good
    peak: float = 0.0  # the largest sharpness that was seen where a flow stands for steps, or could not
    steep: float = 0.0  # the largest curvature in which that flow moves, |H s|/|s|
    strays: float = 0.0  # by how much, at most and relatively, it is too fast or too slow
    before: Flat | None = None  # the weights before the last exact step

    def cut(self) -> "Way":
        """Its exact steps alone, where the flow does not stand for descent."""
        last = self.exact + 1
        return self._replace(steps=self.steps[:last], seen=self.seen[:last], arrived=False)


def feasible(chain: Chain) -> bool:
    """Whether the way can be followed at a price nobody minds."""
    return len(chain.shapes) == 1 or _FEWEST * chain.operations <= _OPERATIONS


def flowed(chain: Chain, modes: Modes) -> Way:
    """Gradient flow from the start until it arrives or has cost too much; a step is a unit of time."""
    if len(chain.shapes) == 1:  # whatever the start
        start = _look(chain, modes)(chain.start)
        return Way(np.zeros(1), start[None], np.ravel(chain.limit), 0, True)
    return _integrated(chain, modes, Pace(), chain.start, 0.0)


def trained(
    chain: Chain, modes: Modes, lr: float, optimiser: Optimiser, settles: bool = False, count: int = EXACT
) -> Way:
    """Steps with momentum, one by one; if they settle, from there on the flow that they follow, `Optimiser.pace`.

    It stands for them where what oscillates has come to rest, and nothing moves that would (see `_followed`). Distance
    and excess loss are the largest that are still to come, since momentum passes its aim and comes back.
    """
    way = _stepped(chain, modes, lr, optimiser, count)
    if settles and not (way.arrived or way.lost):
        way = _followed(chain, modes, lr, optimiser, way)
    later = np.maximum.accumulate(way.seen[::-1, -2:], axis=0)[::-1]
    later[0] = way.seen[0, -2:]  # what shares are of
    return way._replace(seen=np.concatenate([way.seen[:, :-2], later], axis=1))


def _followed(chain: Chain, modes: Modes, lr: float, optimiser: Optimiser, way: Way) -> Way:
    """Steps with momentum and the flow after them; the steps alone where the flow does not stand for what follows.

    It does if the last step was one along it, if the whole way is stable, and if it moves only in curvatures in which
    steps do not oscillate: sharper directions may be there, but they are at rest.
    """
    pace = optimiser.pace(lr)
    off = _off(chain, pace, way)
    if not off <= _CALM:
        return way

    def stands(peak: float, steep: float) -> bool:
        return math.isfinite(optimiser.strays(lr, steep)) and bool(lr < optimiser.largest(peak))

    then = _integrated(chain, modes, pace, way.end, way.steps[-1], stands)
    if stands(max(then.peak, chain.sharpness(then.end)), then.steep):
        return _joined(way, then._replace(strays=off + optimiser.strays(lr, then.steep)))
    return way._replace(peak=then.peak)


def _off(chain: Chain, pace: Pace, way: Way) -> float:
    """How far the last step was from one of the flow, relatively; the flow is that of its middle."""
    if way.before is None:
        return math.inf
    along = _velocity(chain, pace, (way.before + way.end) / 2)
    return float(np.linalg.norm(way.end - way.before - along) / max(float(np.linalg.norm(along)), 1e-300))


def descended(chain: Chain, modes: Modes, lr: float, settles: bool) -> Way:
    """Gradient descent: step by step, and if it settles, from there on the flow that it follows to second order in lr.

    That is dtheta/dt = -(g + lr/2 H g), of the loss with decay in it, which is the same descent.
    """
    if len(chain.shapes) == 1:
        return _one_layer(chain, modes, lr)
    first = _stepped(chain, modes, lr)
    if first.arrived or first.lost or not settles:
        return first
    return _joined(first, _integrated(chain, modes, Optimiser().pace(lr), first.end, first.steps[-1]))


def _joined(first: Way, then: Way) -> Way:
    """Exact steps, and the flow from their end on."""
    steps, seen = (np.concatenate(both) for both in ((first.steps, then.steps[1:]), (first.seen, then.seen[1:])))
    return then._replace(steps=steps, seen=seen, exact=first.exact)


def _look(chain: Chain, modes: Modes) -> Look:
    """What is kept of the weights."""
    goal, depth = modes.matrix, len(chain.shapes)
    pull = chain.force(goal)  # where the widths allow no better, it is not zero

    def look(weights: Float[np.ndarray, "*many weights"]) -> np.ndarray:
        matrix = chain.matrix(weights)
        away = matrix - goal
        excess = np.sum(away * (away * chain.gram / 2 + pull), axis=(-2, -1))
        if chain.decay:
            excess += chain.decay / 2 * (np.sum(weights**2, axis=-1) - squares(modes.value, depth))
        along = np.sum((modes.left.T @ matrix) * modes.right.T, axis=-1)  # einsum would plan it anew at every look
        left = np.sqrt(np.sum(away**2, axis=(-2, -1)))
        return np.concatenate([along, left[..., None], excess[..., None]], axis=-1)

    return look


def _one_layer(chain: Chain, modes: Modes, lr: float) -> Way:
    """A_n = A_end + (A_0 - A_end) (1 - lr K)^n with K = X^T X + mu, at any step; sums are over the inputs' axes."""
    goal, gram = chain.one_layer
    begin, share = chain.matrix(chain.start) - goal, 1 - lr * gram
    slowest = float(np.max(np.abs(share)))
    last = 1.0 if slowest >= 1 else math.log(_ARRIVED) / math.log(max(slowest, _ARRIVED))
    steps = np.unique(np.rint(np.concatenate([[0.0], np.geomspace(1, max(last, 1), _MOMENTS)])))
    powers = share ** steps[:, None]
    along = modes.value + powers @ ((begin.T @ modes.left) * modes.right)
    powered = powers**2 * np.sum(begin**2, axis=0)
    away, excess = np.sqrt(np.sum(powered, axis=1)), np.sum(powered * gram, axis=1) / 2
    seen = np.concatenate([along, away[:, None], excess[:, None]], axis=1)
    return Way(steps, seen, np.ravel(goal), int(steps[-1]), slowest < 1, slowest >= 1)


def _stepped(chain: Chain, modes: Modes, lr: float, optimiser: Optimiser | None = None, count: int = EXACT) -> Way:
    """The steps that are made one by one."""
    look, speed = _look(chain, modes), np.zeros_like(chain.start)
    count = min(count, int(_OPERATIONS / chain.operations))
    most = _LOST * max(float(np.max(np.abs(chain.start))), float(np.max(modes.value)))
    weights, before, seen = chain.start, None, [look(chain.start)]
    near = _ARRIVED * seen[0][-2]
    looks = 1 if optimiser is None else 2  # with momentum it may fly past its end
    with np.errstate(over="ignore", invalid="ignore"):
        while len(seen) <= count and max(row[-2] for row in seen[-looks:]) > near:
            before = weights
            if optimiser is None:
                weights = weights - lr * chain.slope(weights)
            else:
                weights, speed = optimiser.step(weights, speed, chain.gradient(weights), lr)
            seen.append(look(weights))
            if not np.max(np.abs(weights)) <= most:
                break
    lost = not np.max(np.abs(weights)) <= most
    arrived = all(row[-2] <= near for row in seen[-looks:])
    return Way(np.arange(float(len(seen))), np.array(seen), weights, len(seen) - 1, arrived, lost, before=before)


def _integrated(
    chain: Chain, modes: Modes, pace: Pace, weights: Flat, begin: float, stands: Stands | None = None
) -> Way:
    """A flow from these weights on until it arrives, or stands for steps no more; not at all where numbers leave all
    bounds.
    """
    try:
        with np.errstate(all="ignore"):
            return _marched(chain, modes, pace, weights, begin, stands)
    except (ValueError, np.linalg.LinAlgError):  # infinite entries of a matrix, in the words of SciPy
        return Way(np.array([begin]), _look(chain, modes)(weights)[None], weights, 0, False)


def _marched(chain: Chain, modes: Modes, pace: Pace, weights: Flat, begin: float, stands: Stands | None) -> Way:
    """The steps of the solver. Where the bend outweighs the slope the flow would rest, and no step does."""
    look = _look(chain, modes)
    solver = solving(chain, pace, weights, begin, float(np.max(modes.value)))
    near = _ARRIVED * look(chain.start)[-2]
    steps, seen, peak, steep = [begin], [look(weights)], 0.0, 0.0
    for index in range(SOLVER_STEPS):
        if seen[-1][-2] <= near or tired(solver, chain, pace):
            break
        if pace.bend and index % OFTEN == 0:
            here = weights + solver.y
            peak, steep = max(peak, chain.sharpness(here)), max(steep, _steepness(chain, here))
            if stands is not None and not stands(peak, steep):
                break
        before = solver.t
        solver.step()
        if solver.status == "failed":
            break
        inside = solver.dense_output()
        moments = before + _INSIDE * (solver.t - before)
        steps.extend(moments)
        seen.extend(look(weights + inside(moments).T))
    arrived = bool(seen[-1][-2] <= near)
    return Way(np.array(steps), np.array(seen), weights + solver.y, 0, arrived, peak=peak, steep=steep)


def _steepness(chain: Chain, weights: Flat) -> float:
    """|H s|/|s|: the curvature in which the flow moves."""
    slope = chain.slope(weights)
    return float(np.linalg.norm(chain.curve(weights, slope)) / max(float(np.linalg.norm(slope)), 1e-300))


def _velocity(chain: Chain, pace: Pace, weights: Flat) -> Flat:
    """The flow's; H s is the difference from the slope that lies `bend` times it further."""
    here = chain.slope(weights)
    if not pace.bend:
        return -pace.rate * here
    return pace.rate * (chain.slope(weights - pace.bend * here) - (2 + pace.shift) * here)


def solving(chain: Chain, pace: Pace, weights: Flat, begin: float, goal: float) -> "scipy.integrate.OdeSolver":
    """A solver of what weights move by, since large ones move by little; `goal` is the size of what is learned.

    Implicit, with the whole Hessian of few weights and the curvature of the fit of many, unless even that is large.
    """
    rate, bend, shift = pace
    size = float(np.max(np.abs(chain.start)))
    far = begin + 1e15 / (rate * float(np.max(chain.gram)) * max(size, 1e-3))

    def turn(_: float, moved: Flat) -> Float[np.ndarray, "weights weights"]:
        hessian = chain.hessian(weights + moved)
        return -rate * ((1 + shift) * hessian + bend * hessian @ hessian)

    def velocity(_: float, moved: Flat) -> Flat:
        return _velocity(chain, pace, weights + moved)

    still, how = np.zeros_like(weights), {"rtol": _TOLERANCE, "atol": _tolerances(chain, goal)}
    if weights.size <= STIFF:
        return scipy.integrate.BDF(velocity, begin, still, far, jac=turn, **how)
    if chain.limit.size <= _FEW:
        from linnet.predict.network.implicit import FewDirections  # SciPy's part is slow to load

        return FewDirections(velocity, chain, pace, weights, begin, t_bound=far, **how)
    return scipy.integrate.DOP853(velocity, begin, still, far, **how)


def tired(solver: "scipy.integrate.OdeSolver", chain: Chain, pace: Pace) -> bool:
    """Whether it has come to its end or costs too much, by its gradients and by the systems of implicit steps."""
    gradients = solver.nfev * (2 if pace.bend else 1)
    systems = getattr(solver, "multiplications", solver.nlu * chain.start.size**3 / 3)
    return bool(solver.status != "running" or gradients * chain.operations + _DENSE * systems > _OPERATIONS)


def _tolerances(chain: Chain, goal: float) -> Flat:
    """Absolute errors of the weights: small beside the start, which grows, and beside what they are multiplied by."""
    layers = chain.layers(chain.start)
    sizes = [float(np.linalg.norm(w)) for w in layers]
    size = float(np.max(np.abs(chain.start)))
    limits = []
    for i, w in enumerate(layers):
        others = math.prod(sizes[:i] + sizes[i + 1 :])
        limits.append(np.full(w.size, _TOLERANCE * min(size, goal / others if others > 0 else size)))
    return np.concatenate(limits)


class Path(NamedTuple):
    """When each mode passes which value, read off the way of the network itself; NaN where it was not followed so far.

    Times are the learning rate times the steps.
    """

    modes: Modes
    way: Way
    lr: float

    def curve(self, i: int) -> Curve:
        """Values of mode i on its way, and their times."""
        return self.way.seen[:, i], self.lr * self.way.steps

    def reached(self, i: int, share: float) -> float:
        """When mode i is at this share of its target."""
        s = self.modes.value[i]
        return 0.0 if self.modes.begin[i] >= share * s else self._when(self.way.seen[:, i] / s, share)

    def learned(self, i: int, share: float) -> float:
        """When mode i has come to its target up to 1 - share of it, from below or from above."""
        s = self.modes.value[i]
        if self.modes.begin[i] < s:
            return self.reached(i, share)
        return self._when(-self.way.seen[:, i] / s, share - 2)

    def fit(self, share: float) -> float:
        """When the excess loss is down to a share of its start."""
        return self._down(self.way.seen[:, -1], share)

    def predictor(self, share: float) -> float:
        """When |A - A_end| is down to a share of its start."""
        return self._down(self.way.seen[:, -2], share)

    def half(self, i: int) -> When:
        """When mode i is half learned; what was not followed so far comes later."""
        return self.when(self.reached(i, HALF))

    def when(self, time: float) -> When:
        """A moment on the way, and how sure it is: it is read off between steps, or off the flow that they follow."""
        step = time / self.lr
        if math.isnan(step):
            return When(step, step, not_before=float(self.lr * self.way.steps[-1]))
        if step <= 0:
            return When(time, step, 0.0)
        flowed = self.way.strays * max(step - self.way.exact, 0.0) / step
        return When(time, step, max(_READING, _BETWEEN / step) + flowed)

    @property
    def last(self) -> float:
        """The step up to which it was followed."""
        return float(self.way.steps[-1])

    def _down(self, curve: Float[np.ndarray, " points"], share: float) -> float:
        if curve[0] <= 0:
            return 0.0
        return self._when(-np.log(np.maximum(curve / curve[0], 1e-300)), -math.log(share))

    def _when(self, curve: Float[np.ndarray, " points"], level: float) -> float:
        return self.lr * crossing(self.way.steps, curve, level, "line")
