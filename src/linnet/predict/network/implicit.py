"""Implicit steps for many weights: what makes their flow stiff is the curvature of the fit, of few directions."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.integrate import BDF
from scipy.sparse import csc_array

from linnet.predict.network.chain import Chain, Flat
from linnet.predict.optimiser import Pace

_ONCE = 8  # times as long: multiplications by numbers that are read for them alone


@dataclass(frozen=True)
class Turn:
    """A symmetric matrix that multiplies by one number, `rest`, but for a few directions: the orthonormal `axes`."""

    axes: Float[np.ndarray, "weights few"]
    along: Float[np.ndarray, " few"]
    rest: float

    def __rmul__(self, factor: float) -> "Turn":
        return Turn(self.axes, factor * self.along, factor * self.rest)

    def __rsub__(self, one: float) -> "Turn":
        """So many times the identity, less this."""
        return Turn(self.axes, one - self.along, one - self.rest)

    def solved(self, right: Flat) -> Flat:
        """The solution of a system of equations."""
        return right / self.rest + self.axes @ ((1 / self.along - 1 / self.rest) * (self.axes.T @ right))


class FewDirections(BDF):
    """SciPy's method, with the curvature of the fit alone in its systems of equations.

    What they solve is the same: a step is refined until it has converged. The rest of the Hessian vanishes with what is
    left to learn, and while there is much of it steps are short.
    """

    def __init__(
        self, velocity: Callable[[float, Flat], Flat], chain: Chain, pace: Pace, weights: Flat, begin: float, **how: Any
    ):
        def speed(curvature: Any) -> Any:
            return -pace.rate * ((1 + pace.shift) * curvature + pace.bend * curvature**2)

        def turn(_: float, moved: Flat) -> Turn:
            values, axes = chain.fit_curvature(weights + moved)
            self.njev += 1
            return Turn(axes, speed(values + chain.decay), speed(chain.decay))

        none = csc_array((weights.size, weights.size))
        super().__init__(velocity, begin, np.zeros_like(weights), jac=none, **how)
        self.I, self.J, self.jac = 1.0, turn(begin, self.y), turn
        self.lu, self.solve_lu = lambda matrix: matrix, lambda matrix, right: matrix.solved(right)
        self._directions = chain.limit.size

    @property
    def multiplications(self) -> float:
        """Those of its systems of equations, in the time of large products."""
        few, many = self._directions, self.n
        return self.njev * (2 * many * few**2 + 10 * few**3) + _ONCE * self.nfev * 2 * many * few
