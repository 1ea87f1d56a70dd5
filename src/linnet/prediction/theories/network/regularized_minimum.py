"""The minimum with weight decay that training leads to, found by following the flow."""

import numpy as np
import scipy  # its parts load when they are first used

from linnet._check import InputError
from linnet.linalg import largest_eigenvalue
from linnet.prediction.theories.network.following import OFTEN, SOLVER_STEPS, STIFF, exhausted, feasible, make_solver
from linnet.prediction.theories.network.objective import Flat, Objective
from linnet.theory.optimizers import ModifiedEquation

_NEAR, _AT_REST = 1e-4, 1e-12  # gradients over sharpness times weights: Newton's method may be tried, has arrived
_FURTHER = 1e-2  # of the weights: a point further away is not where this flow ends
_TRIES = 8
_SADDLE = 1e-7  # of the sharpness: a negative curvature of this size is a way down
_NOTHING = 1e-7  # of what the largest mode needs: weights that small decay to 0


def regularized_minimum(objective: Objective, goal: float) -> Flat:
    """The weights where the gradient flow of the loss with weight decay ends: a minimum by its second derivatives.

    `goal` is the largest singular value that can be learned. Raises `InputError` where the flow takes too long, and
    where all weights decay to zero.
    """
    if len(objective.shapes) == 1:
        return np.ravel(objective.one_layer[0])
    found = _followed(objective, goal) if feasible(objective) else None
    if found is None:
        raise InputError(
            f"weight_decay = {objective.decay:g} is not allowed here: where a network of this size or speed ends with "
            "it is unknown; give fewer neurons or inputs, or more decay."
        )
    if not np.any(found):
        raise InputError(
            f"weight_decay = {objective.decay:g} is not allowed: from this initialization all weights decay to 0, and "
            "nothing is learned; give less decay or a larger scale."
        )
    return found


def _followed(objective: Objective, goal: float) -> Flat | None:
    """The flow, and near its end Newton's method; None where that takes too long."""
    small = _NOTHING * goal ** (1 / len(objective.shapes))
    try:
        with np.errstate(all="ignore"):
            equation = ModifiedEquation()
            solver = make_solver(objective, equation, objective.initial, 0.0, goal)
            for index in range(SOLVER_STEPS):
                if exhausted(solver, objective, equation):
                    return None
                solver.step()
                weights = objective.initial + solver.y
                if index % OFTEN:
                    continue
                if np.max(np.abs(weights)) <= small and _is_minimum(objective, zero := np.zeros_like(weights)):
                    return zero
                end = _newton(objective, weights)
                if end is not None and _is_minimum(objective, end):
                    return end
    except (ValueError, np.linalg.LinAlgError):  # SciPy's report of infinite entries
        pass
    return None


def _newton(objective: Objective, weights: Flat) -> Flat | None:
    """The critical point beside these weights, None where none is near."""
    size = float(np.linalg.norm(weights))
    unit = objective.sharpness(weights) * size
    begin = weights
    for _ in range(_TRIES):
        gradient = objective.gradient(weights)
        left = float(np.linalg.norm(gradient))
        if left <= _AT_REST * unit:
            return weights
        if left > _NEAR * unit:
            return None
        weights = weights - _newton_step(objective, weights, gradient)
        if not np.linalg.norm(weights - begin) <= _FURTHER * size:
            return None
    return None


def _newton_step(objective: Objective, weights: Flat, gradient: Flat) -> Flat:
    """The shortest x with H x = gradient: rotations of hidden neurons are flat directions."""
    if weights.size <= STIFF:
        return np.linalg.lstsq(objective.hessian(weights), gradient, rcond=1e-11)[0]
    shape = (weights.size, weights.size)
    hessian = scipy.sparse.linalg.LinearOperator(
        shape, matvec=lambda v: objective.hessian_product(weights, np.ravel(v)), dtype=float
    )
    return np.asarray(scipy.sparse.linalg.minres(hessian, gradient, rtol=1e-10, maxiter=2000)[0])


def _is_minimum(objective: Objective, weights: Flat) -> bool:
    """Whether a critical point has no descent direction to second order."""
    if weights.size <= STIFF:
        values = np.linalg.eigvalsh(objective.hessian(weights))
        return bool(values[0] >= -_SADDLE * values[-1])
    top = objective.sharpness(weights)
    # twice the top: with three or more layers the Hessian of decay at zero weights is a multiple of the identity
    largest = largest_eigenvalue(lambda v: 2 * top * v - objective.hessian_product(weights, v), weights.size, tol=1e-9)
    return bool(2 * top - largest >= -_SADDLE * top)
