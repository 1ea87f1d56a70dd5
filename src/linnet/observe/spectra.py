"""Errors, singular values and ranks of the end-to-end matrix and of the layers."""

import dataclasses
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from linnet import _check, linalg
from linnet._check import InputError
from linnet.observe.observables import Observable, ObservationContext, context_observable, observable
from linnet.problems import Classification, Problem, Softmax
from linnet.states import Modes, Network, Pair, State, Weights


@observable()
def loss(state: State, problem: Problem) -> Float[Array, ""]:
    """Training cost C(A)"""
    return problem.cost(state.matrix)


def losses(problems: Sequence[Problem]) -> Observable:
    """The cost of each of these problems, whichever of them is being trained on."""
    given = tuple(problems)
    return Observable("losses", _losses, ("task",), lambda problem, initial: given)


def _losses(context: ObservationContext) -> Float[Array, " task"]:
    """Training cost of each task"""
    return jnp.stack([problem.cost(context.state.matrix) for problem in context.prepared])


@observable()
def test_error(state: State, problem: Problem) -> Float[Array, ""]:
    """Test error: the cost of the test problem"""
    return problem.test_error(state.matrix)


@observable()
def accuracy(state: State, problem: Problem) -> Float[Array, ""]:
    """Share of the samples of a classification whose largest output is their class"""
    return _classes(problem).accuracy(state.matrix)


@observable()
def test_accuracy(state: State, problem: Problem) -> Float[Array, ""]:
    """Share of the test samples of a classification whose largest output is their class"""
    if problem.test is None:
        raise InputError(f"{type(problem).__name__} has no test problem: build it with test=..., or observe accuracy.")
    return _classes(problem.test).accuracy(state.matrix)


def _classes(problem: Problem) -> Classification | Softmax:
    if not isinstance(problem, Classification | Softmax):
        raise InputError(f"problem = {type(problem).__name__} is not allowed: accuracy needs a classification.")
    return problem


@context_observable(pairs=True)
def closure_error(context: ObservationContext) -> Float[Array, ""]:
    """Mean squared entry |A - A_hat|_F^2 / (d_out d_in) of the difference of a `Pair`'s matrices"""
    state = context.state
    if not isinstance(state, Pair):
        raise InputError(f"closure_error compares two states: {type(state).__name__} is one; give Pair(first, second).")
    return jnp.mean((state.matrix - state.second.matrix) ** 2)


@lru_cache
def on_second(observed: Observable) -> Observable:
    """The observable `observed` of the second state of a `Pair`."""

    def second(state: State) -> State:
        if not isinstance(state, Pair):
            raise InputError(f"{type(state).__name__} has no second state: give Pair(first, second).")
        return state.second

    def function(context: ObservationContext) -> Any:
        second(context.state)
        value, past = observed.measure(context.select("second"))
        return value if observed.initial_past is None else (value, past)

    function.__doc__ = f"{observed.text}, on the second state"
    return dataclasses.replace(
        observed,
        name=f"{observed.name}_on_second",
        function=function,
        preparation=lambda problem, initial: observed.prepare(problem, second(initial)),
        pairs=True,
        initial_past=observed.initial_past and (lambda problem, initial: observed.begin(problem, second(initial))),
    )


@observable("output", "input")
def matrix(state: State, problem: Problem) -> Float[Array, "..."]:
    """End-to-end matrix A"""
    return state.matrix


@observable("index")
def singular_values(state: State, problem: Problem) -> Float[Array, " k"]:
    """Singular values of A, descending"""
    return linalg.singular_values(state.matrix)


def target_bases(problem: Problem, initial: State) -> tuple[Array, Array] | None:
    """The truth's singular vectors, the `preparation` of observables in these bases; None for a diagonal problem."""
    return problem.bases()


@context_observable("mode", preparation=target_bases)
def modes(context: ObservationContext) -> Float[Array, " k"]:
    """Modes u_i^T A v_i in the truth's singular vectors: signed, in the truth's order whatever their size"""
    if context.prepared is None:
        return context.state.matrix
    u, v = context.prepared
    return jnp.einsum("ik,ij,jk->k", u, context.state.matrix, v)


@lru_cache
def layer_singular_values(layer: int, count: int | None = None) -> Observable:
    """Singular values of layer `layer` (1 is the first; -1 the last): all of them, or the `count` largest.

    With `count` they come from subspace iteration, which begins at the vectors of the previous measurement and ends
    when the residuals |W^T W v - s^2 v| are below 1e-3 s^2, so that the values are right to about 1e-5. In a run that
    takes one or two products of the layer with a few vectors, where all of them would take an SVD.
    """
    layer = _check.integer("layer", layer, least=-1)
    if layer == 0:
        raise InputError("layer = 0 is not allowed: layers count from 1, and -1 is the last.")
    most = None if count is None else _check.integer("count", count, least=1)

    def of(state: State) -> Array:
        layers = layers_of(state, "layer singular values")
        if layer > len(layers):
            raise InputError(f"layer = {layer} is not allowed: the network has {len(layers)} layers.")
        found = layers[layer - 1 if layer > 0 else -1]
        if most is not None and (found.ndim != 2 or most > min(found.shape)):
            raise InputError(f"count = {most} is not allowed: the layer has shape {found.shape}.")
        return found

    if most is None:

        def function(state: State, problem: Problem) -> Float[Array, " k"]:
            """Singular values of a layer, descending"""
            return linalg.singular_values(of(state))

        return Observable.from_function(f"layer_{layer}_singular_values", function, ("index",))

    def initial_past(problem: Problem, initial: State) -> Float[Array, "side block"]:
        # fixed generic vectors: values must not depend on a seed
        side = min(of(initial).shape)
        block = jax.random.normal(jax.random.key(0), (side, min(2 * most + 5, side)), of(initial).dtype)
        return jnp.linalg.qr(block)[0]

    def largest(context: ObservationContext) -> tuple[Float[Array, " count"], Array]:
        """Largest singular values of a layer, descending"""
        return linalg.top_singular_values(of(context.state), context.past, most)

    return Observable(f"layer_{layer}_singular_values", largest, ("index",), initial_past=initial_past)


@context_observable("layer", "mode", preparation=target_bases)
def layer_modes(context: ObservationContext) -> Float[Array, "depth k"]:
    """Layer values along each mode: |W_l x| / |x| as v_i travels up, the last one signed by u_i

    For an aligned network these are its layer values mode by mode; a layer above a zero one reads zero.
    """
    state, bases = context.state, context.prepared
    if isinstance(state, Modes):
        return state.values
    if bases is None or isinstance(state, Network):
        raise InputError("layer modes need Modes on a diagonal problem, or Weights on a matrix problem.")
    layers = layers_of(state, "layer modes")
    u, x = bases
    out = []
    for i, w in enumerate(layers):
        norm = jnp.linalg.norm(x, axis=0)
        x = w @ (x / jnp.where(norm > 0, norm, 1.0))
        out.append(jnp.sum(u * x, axis=0) if i == len(layers) - 1 else jnp.linalg.norm(x, axis=0))
    return jnp.stack(out)


@context_observable("lower_layer", "mode", preparation=target_bases)
def layer_gaps(context: ObservationContext) -> Float[Array, "lower k"]:
    """Gaps y_l^2 - y_L^2 of the layer values, mode by mode, l = 1..L-1"""
    values = layer_modes.function(context)
    return (values[:-1] - values[-1]) * (values[:-1] + values[-1])


@observable()
def stable_rank(state: State, problem: Problem) -> Float[Array, ""]:
    """Stable rank |A|_F^2 / |A|_op^2 (0 for A = 0)"""
    s = linalg.singular_values(state.matrix)
    return jnp.sum((s / jnp.where(s[0] > 0, s[0], 1.0)) ** 2)


@observable()
def effective_rank(state: State, problem: Problem) -> Float[Array, ""]:
    """Effective rank: exp of the entropy of s_i / sum s (0 for A = 0)"""
    s = linalg.singular_values(state.matrix)
    total = jnp.sum(s)
    p = s / jnp.where(total > 0, total, 1.0)
    entropy = -jnp.sum(p * jnp.log(jnp.where(p > 0, p, 1.0)))
    return jnp.where(total > 0, jnp.exp(entropy), 0.0)


def layers_of(state: State, what: str) -> tuple[Array, ...]:
    """The layers of a state, the first one first; those of `Modes` are vectors."""
    if isinstance(state, Weights | Network):
        return state.layers
    if isinstance(state, Modes):
        return tuple(state.values)
    raise InputError(
        f"{what} need a state with layers: {type(state).__name__} has none; use Weights, Modes or Network."
    )
