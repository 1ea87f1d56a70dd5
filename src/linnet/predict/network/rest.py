"""Where a network rests with decay: no closed form knows it on correlated inputs, so its flow is followed there."""

import numpy as np
import scipy  # its parts load when they are first used

from linnet._check import InputError
from linnet.predict.network.chain import Chain, Flat
from linnet.predict.network.path import OFTEN, SOLVER_STEPS, STIFF, feasible, solving, tired
from linnet.predict.optimiser import Pace

_NEAR, _AT_REST = 1e-4, 1e-12  # slopes, in sharpness times weights: Newton's method may be tried, has arrived
_FURTHER = 1e-2  # of the weights: what lies further away is not where this flow ends
_TRIES = 8
_SADDLE = 1e-7  # of the sharpness: a curvature so far below 0 leads on
_NOTHING = 1e-7  # of what the largest mode needs: weights that small are on their way to 0


def rested(chain: Chain, goal: float) -> Flat:
    """The weights where the flow of the loss with decay ends from this start: a minimum, whose curvatures say so.

    `goal` is the largest singular value that could be learned.
    """
    if len(chain.shapes) == 1:
        return np.ravel(chain.one_layer[0])
    found = _followed(chain, goal) if feasible(chain) else None
    if found is None:
        raise InputError(
            f"training.decay = {chain.decay:g} is not allowed here: nobody knows where so large or slow a network ends "
            "with it; give fewer neurons or inputs, or more decay."
        )
    if not np.any(found):
        raise InputError(
            f"training.decay = {chain.decay:g} is not allowed: from this start all weights decay to 0, and nothing is "
            "learned; give less decay or a larger start.scale."
        )
    return found


def _followed(chain: Chain, goal: float) -> Flat | None:
    """The flow, and from near its end on Newton's method; None where that costs too much."""
    small = _NOTHING * goal ** (1 / len(chain.shapes))
    try:
        with np.errstate(all="ignore"):
            pace = Pace()
            solver = solving(chain, pace, chain.start, 0.0, goal)
            for index in range(SOLVER_STEPS):
                if tired(solver, chain, pace):
                    return None
                solver.step()
                weights = chain.start + solver.y
                if index % OFTEN:
                    continue
                if np.max(np.abs(weights)) <= small and _minimum(chain, still := np.zeros_like(weights)):
                    return still
                end = _polished(chain, weights)
                if end is not None and _minimum(chain, end):
                    return end
    except (ValueError, np.linalg.LinAlgError):  # infinite entries of a matrix, in the words of SciPy
        pass
    return None


def _polished(chain: Chain, weights: Flat) -> Flat | None:
    """The point of rest beside these weights, None where none is near."""
    size = float(np.linalg.norm(weights))
    unit = chain.sharpness(weights) * size
    begin = weights
    for _ in range(_TRIES):
        slope = chain.slope(weights)
        left = float(np.linalg.norm(slope))
        if left <= _AT_REST * unit:
            return weights
        if left > _NEAR * unit:
            return None
        weights = weights - _solved(chain, weights, slope)  # the shortest: rotations of hidden neurons are flat
        if not np.linalg.norm(weights - begin) <= _FURTHER * size:
            return None
    return None


def _solved(chain: Chain, weights: Flat, slope: Flat) -> Flat:
    """The shortest x with H x = slope."""
    if weights.size <= STIFF:
        return np.linalg.lstsq(chain.hessian(weights), slope, rcond=1e-11)[0]
    shape = (weights.size, weights.size)
    hessian = scipy.sparse.linalg.LinearOperator(shape, matvec=lambda v: chain.curve(weights, np.ravel(v)), dtype=float)
    return np.asarray(scipy.sparse.linalg.minres(hessian, slope, rtol=1e-10, maxiter=2000)[0])


def _minimum(chain: Chain, weights: Flat) -> bool:
    """Whether no direction leads down from a point of rest."""
    if weights.size <= STIFF:
        values = np.linalg.eigvalsh(chain.hessian(weights))
        return bool(values[0] >= -_SADDLE * values[-1])
    top = chain.sharpness(weights)
    shape = (weights.size, weights.size)
    below = scipy.sparse.linalg.LinearOperator(
        shape, matvec=lambda v: top * np.ravel(v) - chain.curve(weights, np.ravel(v)), dtype=float
    )
    begin = np.random.default_rng(0).normal(size=weights.size)  # fixed: the answer must not depend on a seed
    lowest = top - float(
        scipy.sparse.linalg.eigsh(below, 1, which="LA", v0=begin, return_eigenvectors=False, tol=1e-9)[0]
    )
    return lowest >= -_SADDLE * top
