"""Training followed numerically where no closed form holds: exact steps first, then the flow that the steps follow."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy  # its parts load when they are first used
from jaxtyping import Float

from linnet._update import initial_buffer, sgd_step
from linnet.optim import SGD
from linnet.prediction.theories.network.modes import NetworkModes, squares
from linnet.prediction.theories.network.objective import Flat, Objective
from linnet.prediction.theories.network.thresholds import flow_error, largest_lr
from linnet.theory.optimizers import ModifiedEquation, modified_equation

EXACT = 4096  # steps that are made one by one
_OPERATIONS = 4e10  # multiplications that a part of the solution may take: two or three seconds
_DENSE = 0.5  # the time of a multiplication in a linear system, in that of others
_FEWEST = 64  # steps that must be possible within these multiplications
STIFF = 800  # weights up to which linear systems of that size are cheap
_FEW = 100  # entries of A up to which its Gauss-Newton matrix has few directions
SOLVER_STEPS = 20_000
_INSIDE = np.array([0.25, 0.5, 0.75, 1.0])  # where the interpolant of a solver's step is read
_ARRIVED = 1e-6  # of the initial distance is left
_CALM = 1e-2  # the relative distance of a step from the flow's at which the flow takes over
_LOST = 1e6  # times the size of start and end: diverged
_TOLERANCE = 1e-8
OFTEN = 16  # steps of the solver between two computations of the sharpness
_POINTS = 2000  # of the closed form of a single layer

Measure = Callable[[Float[np.ndarray, "*many weights"]], Float[np.ndarray, "*many measured"]]
Valid = Callable[[float, float], bool]  # whether steps follow a flow, by its largest sharpness and path curvature


class Solution(NamedTuple):
    """A training run as the theory follows it.

    - `steps`, and in the rows of `values` u_i^T A v_i of every mode, |A - A_end|, and the excess loss (decay included).
    - `end`: the last weights; `before`: those before the last exact step.
    - `exact`: the number of steps that were made one by one.
    - `arrived`: within 1e-6 of the end; `diverged`.
    - `peak`: the largest sharpness on the flow; `steepness`: the largest curvature along it, |H g|/|g|.
    - `flow_error`: the largest relative error of the flow's speed.
    - `left`: the step from which times depend on rounding: beyond the edge copies have separated, or it came within
      1e-6 of the end at weights that are too sharp for the learning rate and leaves again. Infinite if neither.
    - `returns`: momentum overshoots and comes back: what is left is down to a share when that is so for the last time.
    """

    steps: Float[np.ndarray, " points"]
    values: Float[np.ndarray, "points values"]
    end: Flat
    exact: int
    arrived: bool
    diverged: bool = False
    peak: float = 0.0
    steepness: float = 0.0
    flow_error: float = 0.0
    before: Flat | None = None
    left: float = math.inf
    returns: bool = False

    def exact_part(self) -> "Solution":
        """The exact steps alone, where the flow does not stand for the steps."""
        last = self.exact + 1
        return self._replace(steps=self.steps[:last], values=self.values[:last], arrived=False)


def feasible(objective: Objective) -> bool:
    """Whether training can be followed within a few seconds."""
    return len(objective.shapes) == 1 or _FEWEST * objective.operations <= _OPERATIONS


def follow_flow(objective: Objective, modes: NetworkModes) -> Solution:
    """Gradient flow until it arrives or has taken too long; a step is a unit of time."""
    if len(objective.shapes) == 1:
        initial = _measure(objective, modes)(objective.initial)
        return Solution(np.zeros(1), initial[None], np.ravel(objective.limit), 0, True)
    return _integrated(objective, modes, ModifiedEquation(), objective.initial, 0.0)


def follow_descent(objective: Objective, modes: NetworkModes, lr: float, converges: bool) -> Solution:
    """Gradient descent: exact steps, and if it converges, from there on the modified equation to second order in lr,
    dtheta/dt = -(g + lr/2 H g).
    """
    if len(objective.shapes) == 1:
        return _one_layer(objective, modes, lr)
    first = _stepped(objective, modes, lr)
    if first.arrived or first.diverged or not converges:
        return first
    return _joined(first, _integrated(objective, modes, modified_equation(lr), first.end, first.steps[-1]))


def follow_optimizer(
    objective: Objective, modes: NetworkModes, lr: float, optimizer: SGD, converges: bool = False, count: int = EXACT
) -> Solution:
    """SGD with momentum: exact steps, and if they converge, from there on the flow that they follow.

    The flow is used where oscillations have died out and nothing moves that would oscillate (`_continued`).
    """
    solution = _stepped(objective, modes, lr, optimizer, count)
    if converges and not (solution.arrived or solution.diverged):
        solution = _continued(objective, modes, lr, optimizer, solution)
    return solution._replace(returns=True)


def _continued(objective: Objective, modes: NetworkModes, lr: float, optimizer: SGD, solution: Solution) -> Solution:
    """Steps with momentum and the flow after them; the steps alone where the flow does not stand for what follows.

    It does if the last step was one along it, if all of it is stable, and if it moves only in curvatures in which steps
    do not oscillate: sharper directions may exist, but they are at rest.
    """
    equation = modified_equation(lr, **optimizer.coefficients)
    apart = _distance_from_flow(objective, equation, solution)
    if not apart <= _CALM:
        return solution

    def valid(peak: float, steepness: float) -> bool:
        return math.isfinite(flow_error(optimizer, lr, steepness)) and lr < largest_lr(optimizer, peak)

    then = _integrated(objective, modes, equation, solution.end, solution.steps[-1], valid)
    if valid(max(then.peak, objective.sharpness(then.end)), then.steepness):
        return _joined(solution, then._replace(flow_error=apart + flow_error(optimizer, lr, then.steepness)))
    return solution._replace(peak=then.peak)


def _distance_from_flow(objective: Objective, equation: ModifiedEquation, solution: Solution) -> float:
    """The relative distance of the last step from one of the flow, which is evaluated at its midpoint."""
    if solution.before is None:
        return math.inf
    along = _velocity(objective, equation, (solution.before + solution.end) / 2)
    difference = solution.end - solution.before - along
    return float(np.linalg.norm(difference) / max(float(np.linalg.norm(along)), 1e-300))


def _joined(first: Solution, then: Solution) -> Solution:
    """Exact steps, and the flow from their end on."""
    pairs = (first.steps, then.steps[1:]), (first.values, then.values[1:])
    steps, values = (np.concatenate(both) for both in pairs)
    return then._replace(steps=steps, values=values, exact=first.exact, left=first.left)


def _measure(objective: Objective, modes: NetworkModes) -> Measure:
    """The function of the weights that makes the rows of `Solution.values`."""
    goal, depth = modes.matrix, len(objective.shapes)
    cotangent = objective.matrix_gradient(goal)  # not zero where the widths allow no better fit

    def measure(weights: Float[np.ndarray, "*many weights"]) -> np.ndarray:
        matrix = objective.matrix(weights)
        away = matrix - goal
        excess = np.sum(away * (away * objective.gram / 2 + cotangent), axis=(-2, -1))
        if objective.decay:
            excess += objective.decay / 2 * (np.sum(weights**2, axis=-1) - squares(modes.value, depth))
        along = np.sum((modes.left.T @ matrix) * modes.right.T, axis=-1)  # einsum would plan the product at every call
        left = np.sqrt(np.sum(away**2, axis=(-2, -1)))
        return np.concatenate([along, left[..., None], excess[..., None]], axis=-1)

    return measure


def _one_layer(objective: Objective, modes: NetworkModes, lr: float) -> Solution:
    """A_n = A_end + (A_0 - A_end) (1 - lr K)^n with K = X^T X + decay, at selected steps."""
    goal, gram = objective.one_layer
    begin, factor = objective.matrix(objective.initial) - goal, 1 - lr * gram
    slowest = float(np.max(np.abs(factor)))
    last = 1.0 if slowest >= 1 else math.log(_ARRIVED) / math.log(max(slowest, _ARRIVED))
    steps = np.unique(np.rint(np.concatenate([[0.0], np.geomspace(1, max(last, 1), _POINTS)])))
    powers = factor ** steps[:, None]
    along = modes.value + powers @ ((begin.T @ modes.left) * modes.right)
    powered = powers**2 * np.sum(begin**2, axis=0)
    away, excess = np.sqrt(np.sum(powered, axis=1)), np.sum(powered * gram, axis=1) / 2
    values = np.concatenate([along, away[:, None], excess[:, None]], axis=1)
    return Solution(steps, values, np.ravel(goal), int(steps[-1]), slowest < 1, slowest >= 1)


def _stepped(
    objective: Objective, modes: NetworkModes, lr: float, optimizer: SGD | None = None, count: int = EXACT
) -> Solution:
    """Exact steps, at most `count` of them."""
    measure = _measure(objective, modes)
    how = {} if optimizer is None else optimizer.coefficients
    buffer = initial_buffer(objective.initial, objective.loss_gradient(objective.initial), **how)
    count = min(count, int(_OPERATIONS / objective.operations))
    most = _LOST * max(float(np.max(np.abs(objective.initial))), float(np.max(modes.value)))
    weights, before, values = objective.initial, None, [measure(objective.initial)]
    near, asked = _ARRIVED * values[0][-2], 0
    rows = 1 if optimizer is None else 2  # with momentum it may pass its end
    arrived, diverged, left = False, False, math.inf
    with np.errstate(over="ignore", invalid="ignore"):
        while len(values) <= count:
            if len(values) > asked and max(row[-2] for row in values[-rows:]) <= near:
                # a minimum that is too sharp for this learning rate is left again
                arrived, asked = lr < largest_lr(optimizer or SGD(), objective.sharpness(weights)), len(values) + OFTEN
                if arrived:
                    break
                left = min(left, len(values) - 1.0)
            before = weights
            if optimizer is None:
                weights = weights - lr * objective.gradient(weights)
            else:
                weights, buffer = sgd_step(weights, buffer, objective.loss_gradient(weights), lr, **how)
            values.append(measure(weights))
            diverged = not np.max(np.abs(weights)) <= most
            if diverged:
                break
    steps = np.arange(float(len(values)))
    return Solution(steps, np.array(values), weights, len(values) - 1, arrived, diverged, before=before, left=left)


def _integrated(
    objective: Objective,
    modes: NetworkModes,
    equation: ModifiedEquation,
    weights: Flat,
    begin: float,
    valid: Valid | None = None,
) -> Solution:
    """A flow from these weights on until it arrives or is no longer valid; not at all where numbers overflow."""
    try:
        with np.errstate(all="ignore"):
            return _solved(objective, modes, equation, weights, begin, valid)
    except (ValueError, np.linalg.LinAlgError):  # SciPy's report of infinite entries
        return Solution(np.array([begin]), _measure(objective, modes)(weights)[None], weights, 0, False)


def _solved(
    objective: Objective,
    modes: NetworkModes,
    equation: ModifiedEquation,
    weights: Flat,
    begin: float,
    valid: Valid | None,
) -> Solution:
    """The solver's steps. Where the second-order term outweighs the gradient the flow would rest, and no step does."""
    measure = _measure(objective, modes)
    solver = make_solver(objective, equation, weights, begin, float(np.max(modes.value)))
    near = _ARRIVED * measure(objective.initial)[-2]
    steps, values, peak, steepness = [begin], [measure(weights)], 0.0, 0.0
    for index in range(SOLVER_STEPS):
        if values[-1][-2] <= near or exhausted(solver, objective, equation):
            break
        if equation.bend and index % OFTEN == 0:
            here = weights + solver.y
            peak, steepness = max(peak, objective.sharpness(here)), max(steepness, _steepness(objective, here))
            if valid is not None and not valid(peak, steepness):
                break
        before = solver.t
        solver.step()
        if solver.status == "failed":
            break
        inside = solver.dense_output()
        points = before + _INSIDE * (solver.t - before)
        steps.extend(points)
        values.extend(measure(weights + inside(points).T))
    arrived = bool(values[-1][-2] <= near)
    end = weights + solver.y
    return Solution(np.array(steps), np.array(values), end, 0, arrived, peak=peak, steepness=steepness)


def _steepness(objective: Objective, weights: Flat) -> float:
    """|H g|/|g|: the curvature along the flow."""
    gradient = objective.gradient(weights)
    product = objective.hessian_product(weights, gradient)
    return float(np.linalg.norm(product) / max(float(np.linalg.norm(gradient)), 1e-300))


def _velocity(objective: Objective, equation: ModifiedEquation, weights: Flat) -> Flat:
    """The flow's velocity; H g is a difference of two gradients."""
    here = objective.gradient(weights)
    if not equation.bend:
        return -equation.rate * here
    return equation.rate * (objective.gradient(weights - equation.bend * here) - (2 + equation.shift) * here)


def make_solver(
    objective: Objective, equation: ModifiedEquation, weights: Flat, begin: float, goal: float
) -> "scipy.integrate.OdeSolver":
    """A solver for the displacement from `weights` (large weights move by little); `goal` is the largest singular value
    that is learned.

    Implicit, with the whole Hessian of few weights and the Gauss-Newton matrix of many, if A has few entries.
    """
    rate, bend, shift = equation
    size = float(np.max(np.abs(objective.initial)))
    far = begin + 1e15 / (rate * float(np.max(objective.gram)) * max(size, 1e-3))

    def jacobian(_: float, moved: Flat) -> Float[np.ndarray, "weights weights"]:
        hessian = objective.hessian(weights + moved)
        return -rate * ((1 + shift) * hessian + (bend * hessian @ hessian if bend else 0.0))

    def velocity(_: float, moved: Flat) -> Flat:
        return _velocity(objective, equation, weights + moved)

    options = {"rtol": _TOLERANCE, "atol": _tolerances(objective, goal)}
    if weights.size <= STIFF:
        return scipy.integrate.BDF(velocity, begin, np.zeros_like(weights), far, jac=jacobian, **options)
    if objective.limit.size <= _FEW:
        from linnet.prediction.theories.network.implicit import GaussNewtonBDF  # SciPy's part is slow to load

        return GaussNewtonBDF(velocity, objective, equation, weights, begin, t_bound=far, **options)
    return scipy.integrate.DOP853(velocity, begin, np.zeros_like(weights), far, **options)


def exhausted(solver: "scipy.integrate.OdeSolver", objective: Objective, equation: ModifiedEquation) -> bool:
    """Whether the solver has ended or taken too long, by its gradients and linear systems."""
    gradients = solver.nfev * (2 if equation.bend else 1)
    systems = getattr(solver, "multiplications", solver.nlu * objective.initial.size**3 / 3)
    return bool(solver.status != "running" or gradients * objective.operations + _DENSE * systems > _OPERATIONS)


def _tolerances(objective: Objective, goal: float) -> Flat:
    """Absolute errors of the weights: small beside the initial ones, which grow, and beside what multiplies them."""
    layers = objective.layers(objective.initial)
    sizes = [float(np.linalg.norm(w)) for w in layers]
    size = float(np.max(np.abs(objective.initial)))
    limits = []
    for i, w in enumerate(layers):
        others = math.prod(sizes[:i] + sizes[i + 1 :])
        limits.append(np.full(w.size, _TOLERANCE * min(size, goal / others if others > 0 else size)))
    return np.concatenate(limits)
