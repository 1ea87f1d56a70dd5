"""What every state answers."""

import abc
from collections.abc import Sequence
from typing import Any, ClassVar, Self, cast

import equinox as eqx
import jax
from jaxtyping import Array, Float

from linnet._check import InputError
from linnet.problems import Problem


class State(eqx.Module):
    """Coordinates theta of a network, with its end-to-end matrix A(theta).

    A subclass gives `matrix` and `change`; the other answers follow from them. `still` names the fields that training
    does not move.
    """

    still: ClassVar[tuple[str, ...]] = ()

    @property
    @abc.abstractmethod
    def matrix(self) -> Float[Array, "..."]:
        """The end-to-end matrix A (the vector of its diagonal for a diagonal network)."""

    @abc.abstractmethod
    def change(self, force: Float[Array, "..."]) -> Self:
        """J^T force, J = dA/dtheta: the derivative of the state when -dC/dA is `force`, in the shape of a state."""

    @property
    @abc.abstractmethod
    def size(self) -> Float[Array, ""]:
        """The scale of the smallest thing that matters in this state; a flow's absolute tolerance follows it."""

    @property
    def weighted(self) -> bool:
        """Whether its coordinates are a network's weights; momentum and weight decay have no meaning elsewhere."""
        return True

    @property
    def turned(self) -> bool:
        """Whether the weights are those of a network in other axes: what acts on each weight by itself must not."""
        return False

    def trained(self) -> Self:
        """The part that training moves, with None in place of the rest."""
        if not self.still:
            return self
        return eqx.tree_at(lambda s: [getattr(s, name) for name in self.still], self, [None] * len(self.still))

    def by_layer(self, factors: Sequence[Any] | Float[Array, " depth"]) -> Self:
        """The state with each layer multiplied by its factor, the first layer first."""
        raise InputError(f"{type(self).__name__} has no layers: rates by layer need Weights, Modes or ReluNetwork.")

    def tangent(self, gradient: Float[Array, "..."]) -> Float[Array, "..."]:
        """Theta(G) = J J^T G, the tangent kernel applied to a gradient: dA/dt = -Theta(G) under gradient flow."""
        return jax.jvp(lambda state: state.matrix, (self,), (self.change(gradient),))[1]

    def velocity(self, problem: Problem) -> Self:
        """The time derivative of the state under gradient flow on `problem`."""
        return self.change(-self._gradient(problem))

    def _gradient(self, problem: Problem) -> Float[Array, "..."]:
        matrix = self.matrix
        if matrix.shape != problem.shape:  # a vector and a matrix would broadcast
            raise InputError(f"the state's matrix has shape {matrix.shape}: the problem has shape {problem.shape}.")
        return problem.gradient(matrix)

    def descend(self, problem: Problem, lr: Float[Array, ""] | float) -> Self:
        """The state after one gradient-descent step of all its coordinates: exact, all orders of lr in A."""
        return self.push(-self._gradient(problem), lr)

    def push(self, force: Float[Array, "..."], step: Float[Array, ""] | float) -> Self:
        """The state moved by step * change(force)."""
        return cast(Self, jax.tree.map(lambda x, v: x + step * v, self, self.change(force)))
