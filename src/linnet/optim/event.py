"""Conditions that end a run."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from linnet import _check
from linnet._check import InputError
from linnet.problems import Problem
from linnet.states import State


class Event(eqx.Module):
    """A condition that ends a run, as `diffrax.Event` does: `simulate(..., stop=Event(...))`.

    - `condition(state, problem)` returns a boolean: the run ends at the first step at which it is true.
    - `root(state, problem)` returns a real number that is positive before the event and negative after it. A flow ends
      at the time where it crosses zero, found by Newton's method inside a step of the solver; without it a flow ends
      after the first step of the solver at which the condition is true. The condition is root < 0 if none is given.

        ln.simulate(problem, state, optimizer, steps=1000, stop=ln.Event(lambda s, p: jnp.max(s.matrix) > 1))
    """

    condition: Callable[[Any, Any], Any] | None
    root: Callable[[Any, Any], Any] | None

    def __init__(
        self, condition: Callable[[Any, Any], Any] | None = None, *, root: Callable[[Any, Any], Any] | None = None
    ):
        for name, function in (("condition", condition), ("root", root)):
            if function is not None and not callable(function):
                raise InputError(
                    f"{name} = {_check.show(function)} is not allowed: {name} must be a function of (state, problem)."
                )
        if condition is None and root is None:
            raise InputError("condition and root are both missing: give a function of (state, problem).")
        self.condition, self.root = condition, root

    def __call__(self, state: State, problem: Problem) -> Bool[Array, ""]:
        """Whether the run ends in this state."""
        if self.condition is not None:
            return jnp.asarray(self.condition(state, problem), dtype=bool)
        assert self.root is not None
        return jnp.asarray(self.root(state, problem)) < 0

    def check(self, problem: Problem, state: State) -> None:
        """Refuses functions that do not return one number of the right type."""
        for name, function, kind, words in (
            ("stop", self.condition, jnp.bool_, "one boolean"),
            ("root", self.root, jnp.floating, "one real number"),
        ):
            if function is None:
                continue
            with _check.traceable(name):
                answer = jax.eval_shape(lambda s, function=function: jnp.asarray(function(s, problem)), state)
            if answer.shape != () or not jnp.issubdtype(answer.dtype, kind):
                raise InputError(f"{name} returns {answer.dtype} of shape {answer.shape}: it must return {words}.")


def loss_below(value: Any) -> Event:
    """The event C(A) < value."""
    bound = _check.number("value", value, above=0)
    return Event(jax.tree_util.Partial(_loss_is_below, bound), root=jax.tree_util.Partial(_relative_loss, bound))


def _loss_is_below(value: Float[Array, ""], state: State, problem: Problem) -> Array:
    return problem.cost(state.matrix) < value


def _relative_loss(value: Float[Array, ""], state: State, problem: Problem) -> Array:
    return problem.cost(state.matrix) / value - 1


def change_below(rate: Any) -> Event:
    """The event |dA/dt| < rate |A|: the relative change of A in a unit of flow time.

    A small initialization is near a saddle, where A changes slowly as well: give a rate below that of the beginning.
    """
    return Event(root=jax.tree_util.Partial(_relative_change, _check.number("rate", rate, above=0)))


def _relative_change(rate: Float[Array, ""], state: State, problem: Problem) -> Array:
    matrix = state.matrix
    speed = state.tangent(problem.gradient(matrix))
    return jnp.linalg.norm(speed) - rate * jnp.linalg.norm(matrix)
