"""What every state answers."""

import abc
from typing import Self, cast

import equinox as eqx
import jax
from jaxtyping import Array, Float

from linnet._check import InputError
from linnet.problems import Problem


class State(eqx.Module):
    """Coordinates theta of a network, with its end-to-end matrix A(theta).

    A subclass gives `matrix` and `change`; the other answers follow from them.
    """

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
