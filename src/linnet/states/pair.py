"""Two states of one shape moved side by side."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from linnet import _check
from linnet._check import InputError
from linnet.problems import Problem
from linnet.states.state import State


class Pair(State):
    """A state and its second, each moved on its own by the same descent or flow: an exact run beside a theory's.

    Observables are those of the first one, except `observe.closure_error`, the distance of the two, and `on_second`.
    A closure can be the second in two ways: `EndToEnd(A, Mixed(c))` iterates its equation by Euler steps (an SVD
    each), and `two_c_balanced(A, c)` is a network on which the closure is exact under gradient flow, so that under
    descent both have the same discretization and what is left between them is the closure's own error. A run of a pair
    ends when either of them diverges.
    """

    first: State
    second: State

    def __init__(self, first: State, second: State):
        for name, state in (("first", first), ("second", second)):
            if not isinstance(state, State) or isinstance(state, Pair):
                raise InputError(f"{name} = {_check.show(state)} is not allowed: use Weights, Modes or EndToEnd.")
        shapes = [jax.eval_shape(lambda s: s.matrix, state).shape for state in (first, second)]
        if shapes[0] != shapes[1]:
            raise InputError(
                f"second has a matrix of shape {shapes[1]}: it must have the first one's shape {shapes[0]}."
            )
        self.first, self.second = first, second

    @property
    def matrix(self) -> Float[Array, "..."]:
        return self.first.matrix

    @property
    def size(self) -> Float[Array, ""]:
        return jnp.minimum(self.first.size, self.second.size)

    @property
    def weighted(self) -> bool:
        return self.first.weighted and self.second.weighted

    @property
    def rotated(self) -> bool:
        return self.first.rotated or self.second.rotated

    def trained(self) -> "Pair":
        return self._moved(self.first.trained(), self.second.trained())

    def tangent(self, gradient: Float[Array, "..."]) -> Float[Array, "..."]:
        return self.first.tangent(gradient)

    def velocity(self, problem: Problem) -> "Pair":
        return self._moved(self.first.velocity(problem), self.second.velocity(problem))

    def descend(self, problem: Problem, lr: Float[Array, ""] | float) -> "Pair":
        return self._moved(self.first.descend(problem, lr), self.second.descend(problem, lr))

    def vjp(self, force: Float[Array, "..."]) -> "Pair":
        raise InputError("a Pair feels two forces, one at each of its states: move it by SGD or GradientFlow.")

    def _moved(self, first: Any, second: Any) -> "Pair":
        return eqx.tree_at(lambda pair: (pair.first, pair.second), self, (first, second))
