"""What consecutive steps say about the ground they go over; when and where else to look."""

from functools import lru_cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Num

from linnet import _check
from linnet._check import InputError
from linnet.observe.observable import Observable, When
from linnet.problems import Problem
from linnet.record import Record
from linnet.states import Network, State


class _Last(NamedTuple):
    """Where the state was at the last look, its gradient there, and the step."""

    weights: Float[Array, " parameters"]
    gradient: Float[Array, " parameters"]
    clock: Num[Array, ""]


_PATH = (
    ("flip", (), "Cosine of this gradient and that of the step before"),
    ("sharpness", (), "Curvature along the last step"),
)


def _path_past(problem: Problem, start: State) -> _Last:
    flat = ravel_pytree(start.trained())[0]
    return _Last(flat, jnp.zeros_like(flat), jnp.asarray(-2))


def _path(state: State, problem: Problem, when: When, last: _Last) -> tuple[dict[str, Array], _Last]:
    """What two consecutive steps say: flip and directional sharpness"""
    weights, gradient = (ravel_pytree(tree.trained())[0] for tree in (state, state.velocity(problem)))
    gradient = -gradient
    moved = weights - last.weights
    norms = jnp.linalg.norm(gradient) * jnp.linalg.norm(last.gradient)
    next_to = jnp.asarray(when.clock) == last.clock + 1
    flip = jnp.sum(gradient * last.gradient) / norms
    sharp = jnp.sum((gradient - last.gradient) * moved) / jnp.sum(moved**2)
    seen = {"flip": flip, "sharpness": sharp}
    clock = jnp.asarray(when.clock).astype(last.clock.dtype)
    return {name: jnp.where(next_to, value, jnp.nan) for name, value in seen.items()}, _Last(weights, gradient, clock)


path = Observable("path", _path, (), past=_path_past, parts=_PATH)


def only(look: Observable | str, record: Record) -> Observable:
    """The observable `look` at the steps of this record alone (`every`, `pairs` or `at`), and NaN at others.

    So what is cheap can be recorded at every step, and what is dear at some: `only(curvature(), pairs(25))`.
    """
    if isinstance(look, str):
        from linnet.observe import named

        look = named(look)
    if not isinstance(look, Observable):
        raise InputError(f"look = {_check.show(look)} is not allowed: give an observable.")
    if not isinstance(record, Record):
        raise InputError(f"record = {_check.show(record)} is not allowed: use every, pairs or at.")
    record.holds(0)  # refuses what depends on the horizon
    return _only(look, record)


@lru_cache
def _only(seen: Observable, record: Record) -> Observable:
    """One object for one question, so that its program is found again."""

    def function(state: State, problem: Problem, *rest: Any) -> tuple[Any, Any]:
        *prepared, when, past = rest
        given = prepared[0] if prepared else None

        def now() -> Any:
            value, new = seen.look(state, problem, given, when, past)
            return jax.tree.map(_real, value), new

        shapes = eqx.filter_eval_shape(now)[0]
        nothing = jax.tree.map(lambda x: jnp.full(x.shape, jnp.nan, x.dtype), shapes)
        return jax.lax.cond(record.holds(when.clock), now, lambda: (nothing, past))

    function.__doc__ = f"{seen.text}, at some steps"
    past = seen.begin if seen.past is not None else _nothing
    prepare = None if seen.preparation is None else seen.prepare
    return Observable(seen.name, function, seen.dims, prepare, seen.pairs, past=past, parts=seen.parts)


def _nothing(problem: Problem, start: State) -> None:
    return None


def _real(value: Any) -> Array:
    array = jnp.asarray(value)
    return array if jnp.issubdtype(array.dtype, jnp.inexact) else array.astype(jnp.float64)


def on(look: Observable | str, inputs: Any, problem: Problem) -> Observable:
    """The observable `look` of the same network on other samples, with a problem of their own: held-out samples.

    `on("loss", X_test, supervised(Y_test))` is the test error of a `Network`, `on("accuracy", ...)` its accuracy.
    """
    from linnet.observe import named

    seen = named(look) if isinstance(look, str) else look
    if not isinstance(seen, Observable) or seen.motion or seen.past is not None:
        raise InputError(
            f"look = {_check.show(look)} is not allowed: give an observable of a state and a problem alone."
        )
    if not isinstance(problem, Problem):
        raise InputError(f"problem = {_check.show(problem)} is not allowed: use a problem such as supervised(labels).")

    def there(state: State) -> State:
        if not isinstance(state, Network):
            raise InputError(f"{type(state).__name__} has no samples of its own: use a problem with test=... for it.")
        return state.on(inputs)

    def prepare(_: Problem, start: State) -> Any:
        moved: Any = there(start)
        return moved.inputs, problem, seen.prepare(problem, moved)

    def function(state: Any, _: Problem, prepared: Any) -> Any:
        rows, asked, given = prepared
        return seen(eqx.tree_at(lambda s: s.inputs, state, rows), asked, given)

    function.__doc__ = f"{seen.text}, on other samples"
    return Observable(f"{seen.name}_on_others", function, seen.dims, prepare, parts=seen.parts)
