"""When to stop."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from linnet import _check
from linnet.problems import Problem
from linnet.states import State


class LossBelow(eqx.Module):
    """True once C(A) < value."""

    value: Float[Array, ""] = eqx.field(converter=_check.floating)

    def __call__(self, state: State, problem: Problem) -> Array:
        return problem.cost(state.matrix) < self.value

    def level(self, state: State, problem: Problem) -> Array:
        """Positive before, negative after: a flow ends exactly where it vanishes."""
        return problem.cost(state.matrix) / self.value - 1


class ChangeBelow(eqx.Module):
    """True once |dA/dt| < rate |A|, relative change of A a unit of flow time.

    The start of a small network is a near-saddle and looks converged: give a rate below c times the gradient there.
    """

    rate: Float[Array, ""] = eqx.field(converter=_check.floating)

    def __call__(self, state: State, problem: Problem) -> Array:
        return self.level(state, problem) < 0

    def level(self, state: State, problem: Problem) -> Array:
        """Positive before, negative after."""
        matrix = state.matrix
        speed = state.tangent(problem.gradient(matrix))
        return jnp.linalg.norm(speed) - self.rate * jnp.linalg.norm(matrix)


def loss_below(value: Any) -> LossBelow:
    """Stop once the training cost is below `value`."""
    return LossBelow(_check.number("value", value, above=0))


def change_below(rate: Any) -> ChangeBelow:
    """Stop once A changes by less than `rate` of its norm a unit of flow time."""
    return ChangeBelow(_check.number("rate", rate, above=0))
