"""The base class of states, and the precision of their numbers."""

import abc
import typing
from collections.abc import Sequence
from typing import Any, ClassVar, Self, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from linnet._check import InputError
from linnet.problems import Problem, Samples

_T = TypeVar("_T")


def cast(tree: _T, dtype: Any) -> _T:
    """A state, problem or optimizer with all its real numbers in this precision.

    `tree` is a state, a problem, or an optimizer, `dtype` float32 or float64.
    """
    return jax.tree.map(lambda x: x.astype(dtype) if eqx.is_inexact_array(x) else x, tree)


def precision(state: Any) -> Any:
    """The type of the real numbers of a state."""
    return jnp.result_type(*jax.tree.leaves(eqx.filter(state, eqx.is_inexact_array)))


class State(eqx.Module):
    """Coordinates theta of a network, with its end-to-end matrix A(theta).

    A subclass gives `matrix` and `vjp`; the other answers follow from them. `still` names the fields that training
    does not move.
    """

    still: ClassVar[tuple[str, ...]] = ()

    @property
    @abc.abstractmethod
    def matrix(self) -> Float[Array, "..."]:
        """The end-to-end matrix A (the vector of its diagonal for a diagonal network)."""

    @abc.abstractmethod
    def vjp(self, force: Float[Array, "..."]) -> Self:
        """J^T force, J = dA/dtheta: the derivative of the state when -dC/dA is `force`, in the shape of a state."""

    @property
    @abc.abstractmethod
    def size(self) -> Float[Array, ""]:
        """The smallest relevant scale of the state; it sets a flow's absolute tolerance."""

    @property
    def weighted(self) -> bool:
        """Whether its coordinates are a network's weights; momentum and weight decay have no meaning elsewhere."""
        return True

    @property
    def rotated(self) -> bool:
        """Whether the weights are those of a network in other axes: what acts on each weight by itself must not."""
        return False

    def trained(self) -> Self:
        """The part that training moves, with None in place of the rest."""
        if not self.still:
            return self
        where, nothing = lambda s: [getattr(s, name) for name in self.still], [None] * len(self.still)
        return eqx.tree_at(where, self, nothing, is_leaf=lambda x: x is None)

    @property
    def whole(self) -> bool:
        """Whether all samples are computed at once, so that derivatives may keep what they need of them."""
        return True

    def sampled(self, problem: Problem) -> Samples:
        """Samples and labels, row by row: the problem's, unless the samples are part of the state."""
        return problem.sampled()

    def on_samples(
        self, problem: Problem, inputs: Float[Array, "b ..."], labels: Float[Array, "b ..."]
    ) -> tuple[Self, Problem]:
        """The state and the problem on these samples alone, rows as `sampled` gives them (`Problem.on_samples`)."""
        return self, problem.on_samples(inputs, labels)

    def by_layer(self, factors: Sequence[Any] | Float[Array, " depth"]) -> Self:
        """The state with each layer multiplied by its factor, the first layer first."""
        raise InputError(f"{type(self).__name__} has no layers: lr_multipliers need Weights, Modes or Network.")

    def tangent(self, gradient: Float[Array, "..."]) -> Float[Array, "..."]:
        """Theta(G) = J J^T G, the tangent kernel applied to a gradient: dA/dt = -Theta(G) under gradient flow."""
        moved = self.vjp(gradient).trained()
        return jax.jvp(lambda weights: eqx.combine(weights, self).matrix, (self.trained(),), (moved,))[1]

    def velocity(self, problem: Problem) -> Self:
        """The time derivative of the state under gradient flow on `problem`."""
        return self.vjp(-self._gradient(problem))

    def _gradient(self, problem: Problem) -> Float[Array, "..."]:
        return self._asked(problem, self.matrix)

    def _asked(self, problem: Problem, matrix: Float[Array, "..."]) -> Float[Array, "..."]:
        """dC/dA at this state's matrix."""
        if matrix.shape != problem.shape:  # a vector and a matrix would broadcast
            raise InputError(f"the state's matrix has shape {matrix.shape}: the problem has shape {problem.shape}.")
        return problem.gradient(matrix)

    def descend(self, problem: Problem, lr: Float[Array, ""] | float) -> Self:
        """The state after one gradient-descent step of all its coordinates: exact, all orders of lr in A."""
        return self._stepped(self.velocity(problem), lr)

    def step_along(self, force: Float[Array, "..."], step: Float[Array, ""] | float) -> Self:
        """The state moved by step * change(force)."""
        return self._stepped(self.vjp(force), step)

    def _stepped(self, change: Self, step: Float[Array, ""] | float) -> Self:
        moved = jax.tree.map(lambda x, v: x + step * v, self.trained(), change.trained())
        return typing.cast(Self, eqx.combine(moved, self))
