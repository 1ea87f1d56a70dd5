"""Implicit steps for many weights whose stiffness comes from the few directions of the Gauss-Newton matrix."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.integrate import BDF
from scipy.sparse import csc_array

from linnet.prediction.theories.network.objective import Flat, Objective
from linnet.theory.optimizers import ModifiedEquation

_ONCE = 8  # the time of a multiplication by numbers that are read for it alone, in that of others


@dataclass(frozen=True)
class LowRankPlusScalar:
    """axes diag(along - rest) axes^T + rest I, with orthonormal `axes`."""

    axes: Float[np.ndarray, "weights few"]
    along: Float[np.ndarray, " few"]
    rest: float

    def __rmul__(self, factor: float) -> "LowRankPlusScalar":
        return LowRankPlusScalar(self.axes, factor * self.along, factor * self.rest)

    def __rsub__(self, one: float) -> "LowRankPlusScalar":
        """one I - self."""
        return LowRankPlusScalar(self.axes, one - self.along, one - self.rest)

    def solve(self, right: Flat) -> Flat:
        """The solution x of self x = right."""
        return right / self.rest + self.axes @ ((1 / self.along - 1 / self.rest) * (self.axes.T @ right))


class GaussNewtonBDF(BDF):
    """SciPy's BDF with the Gauss-Newton matrix in place of the Hessian in its Newton iterations.

    The solution is the same: a step is iterated until it has converged, or shortened. The difference to the Hessian
    vanishes with the residual. SciPy has no public way to give a solver of the linear systems: `I`, `J`, `jac`, `lu`,
    and `solve_lu` are set after construction (tests/prediction/test_objective.py checks that SciPy still has them).
    """

    def __init__(
        self,
        velocity: Callable[[float, Flat], Flat],
        objective: Objective,
        equation: ModifiedEquation,
        weights: Flat,
        begin: float,
        **options: Any,
    ):
        def speed(curvature: Any) -> Any:
            return -equation.rate * ((1 + equation.shift) * curvature + equation.bend * curvature**2)

        def jacobian(_: float, moved: Flat) -> LowRankPlusScalar:
            values, axes = objective.gauss_newton(weights + moved)
            self.njev += 1
            return LowRankPlusScalar(axes, speed(values + objective.decay), speed(objective.decay))

        none = csc_array((weights.size, weights.size))
        super().__init__(velocity, begin, np.zeros_like(weights), jac=none, **options)
        self.I, self.J, self.jac = 1.0, jacobian(begin, self.y), jacobian
        self.lu, self.solve_lu = lambda matrix: matrix, lambda matrix, right: matrix.solve(right)
        self._directions = objective.limit.size

    @property
    def multiplications(self) -> float:
        """Those of its linear systems, in the time of large products."""
        few, many = self._directions, self.n
        return self.njev * (2 * many * few**2 + 10 * few**3) + _ONCE * self.nfev * 2 * many * few
