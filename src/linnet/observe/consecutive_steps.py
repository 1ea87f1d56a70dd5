"""Observables of consecutive steps; observables at some steps only, and on other samples."""

import dataclasses
from functools import lru_cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Num

from linnet import _check
from linnet._check import InputError
from linnet.observe.observables import Observable, ObservationContext
from linnet.problems import Problem
from linnet.record import Record
from linnet.states import Network, State


class _Last(NamedTuple):
    """The weights of the previous measurement, their gradient, and the step."""

    weights: Float[Array, " parameters"]
    gradient: Float[Array, " parameters"]
    clock: Num[Array, ""]


_PATH = (
    ("flip", (), "Cosine of this gradient and that of the step before"),
    ("sharpness", (), "Curvature along the last step"),
)


def _initial_last(problem: Problem, initial: State) -> _Last:
    flat = ravel_pytree(initial.trained())[0]
    return _Last(flat, jnp.zeros_like(flat), jnp.asarray(-2))


def _path(context: ObservationContext) -> tuple[dict[str, Array], _Last]:
    """Flip and directional sharpness of two consecutive steps"""
    state, last = context.state, context.past
    weights, gradient = (ravel_pytree(tree.trained())[0] for tree in (state, state.velocity(context.problem)))
    gradient = -gradient
    moved = weights - last.weights
    norms = jnp.linalg.norm(gradient) * jnp.linalg.norm(last.gradient)
    consecutive = jnp.asarray(context.clock) == last.clock + 1
    values = {
        "flip": jnp.sum(gradient * last.gradient) / norms,
        "sharpness": jnp.sum((gradient - last.gradient) * moved) / jnp.sum(moved**2),
    }
    clock = jnp.asarray(context.clock).astype(last.clock.dtype)
    values = {name: jnp.where(consecutive, value, jnp.nan) for name, value in values.items()}
    return values, _Last(weights, gradient, clock)


path = Observable("path", _path, (), initial_past=_initial_last, parts=_PATH)


def only(observed: Observable | str, record: Record) -> Observable:
    """The observable `observed` at the steps of this record alone (`every`, `pairs`, or `at`), and NaN at others.

    So a cheap observable can be recorded at every step, and an expensive one at some: `only(curvature(), pairs(25))`.
    """
    chosen = _chosen(observed)
    if not isinstance(record, Record):
        raise InputError(f"record = {_check.show(record)} is not allowed: use every, pairs or at.")
    record.holds(0)  # refuses what depends on the horizon
    return _only(chosen, record)


@lru_cache
def _only(observed: Observable, record: Record) -> Observable:
    """Cached, so that the same arguments give the same object, and its compiled program is found again."""

    def function(context: ObservationContext) -> tuple[Any, Any]:
        def measure() -> Any:
            value, past = observed.measure(context)
            return jax.tree.map(_real, value), past

        shapes = eqx.filter_eval_shape(measure)[0]
        missing = jax.tree.map(lambda x: jnp.full(x.shape, jnp.nan, x.dtype), shapes)
        return jax.lax.cond(record.holds(context.clock), measure, lambda: (missing, context.past))

    function.__doc__ = f"{observed.text}, at some steps"
    return dataclasses.replace(
        observed, function=function, preparation=observed.prepare, initial_past=observed.begin, pairs=observed.pairs
    )


def _real(value: Any) -> Array:
    array = jnp.asarray(value)
    return array if jnp.issubdtype(array.dtype, jnp.inexact) else array.astype(jnp.float64)


def on(observed: Observable | str, inputs: Any, problem: Problem) -> Observable:
    """The observable `observed` of the same network on other samples, with a problem of their own: held-out samples.

    `on("loss", X_test, supervised(Y_test))` is the test error of a `Network`, `on("accuracy", ...)` its accuracy.
    """
    chosen = _chosen(observed)
    if not isinstance(problem, Problem):
        raise InputError(f"problem = {_check.show(problem)} is not allowed: use a problem such as supervised(labels).")

    def moved(state: State) -> Network:
        if not isinstance(state, Network):
            raise InputError(f"{type(state).__name__} has no samples of its own: use a problem with test=... for it.")
        return state.on(inputs)

    def prepare(_: Problem, initial: State) -> Any:
        there = moved(initial)
        return there.inputs, problem, chosen.prepare(problem, there)

    def function(context: ObservationContext) -> Any:
        rows, other, prepared = context.prepared
        state = eqx.tree_at(lambda s: s.inputs, context.state, rows)
        value, past = chosen.measure(context._replace(state=state, problem=other, prepared=prepared))
        return value if chosen.initial_past is None else (value, past)

    function.__doc__ = f"{chosen.text}, on other samples"
    return dataclasses.replace(
        chosen,
        name=f"{chosen.name}_on_others",
        function=function,
        preparation=prepare,
        initial_past=chosen.initial_past and (lambda _, initial: chosen.begin(problem, moved(initial))),
    )


def _chosen(observed: Observable | str) -> Observable:
    """An observable that is given as such or by its name."""
    from linnet.observe import named

    found = named(observed) if isinstance(observed, str) else observed
    if not isinstance(found, Observable):
        raise InputError(f"observed = {_check.show(observed)} is not allowed: give an observable or its name.")
    return found
