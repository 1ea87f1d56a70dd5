"""How formulas are computed: few known numbers in NumPy, many or traced ones as one compiled program.

A formula takes the module of its arrays first, `xp`, then arrays, then words and whole numbers that shape the program
by keyword. Nothing runs op by op in JAX, where every operation of a new shape would be compiled for itself: a first
answer would take seconds, and the formula microseconds.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from linnet import _check

_T = TypeVar("_T")
_S = TypeVar("_S")
FEW = 100_000  # pairs of numbers up to which compiling a formula would take longer than many calls of it


def evaluate(formula: Callable[..., _T], *given: Any, few: int = FEW, **static: Any) -> _T:
    """formula(xp, *given, **static) in JAX's arrays, with NumPy as `xp` where the numbers are known and few.

    Few are up to `few` pairs: the two largest arrays decide, since times and modes multiply.
    """
    *_, second, first = sizes = sorted(np.size(leaf) for leaf in jax.tree.leaves((given, 1, 1)))
    # no loop of Python's knows the shape of nothing
    if _check.traced(given) or first * second > few or not sizes[0]:
        return _compiled(formula, tuple(static.items()))(*jax.tree.map(_strong, given))
    with np.errstate(all="ignore"):
        found = formula(np, *jax.tree.map(np.asarray, given), **static)
    # a NumPy array of a known type, which a scalar is not, reaches JAX without a compiler
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf), dtype=leaf.dtype), found)


@cache
def _compiled(formula: Callable[..., _T], static: tuple[tuple[str, Any], ...]) -> Callable[..., _T]:
    return jax.jit(partial(formula, jnp, **dict(static)))


def _strong(leaf: Any) -> Any:
    """Python's numbers are weak and would compile again."""
    return leaf if isinstance(leaf, jax.Array) else np.asarray(leaf)


def while_loop(xp: Any, going: Callable[[_T], Any], step: Callable[[_T], _T], state: _T) -> _T:
    """`jax.lax.while_loop`, or Python's."""
    if xp is jnp:
        return jax.lax.while_loop(going, step, state)
    while going(state):
        state = step(state)
    return state


def cond(xp: Any, true: Any, then: Callable[[], _T], otherwise: Callable[[], _T]) -> _T:
    """`jax.lax.cond`, or Python's if."""
    if xp is jnp:
        return jax.lax.cond(true, then, otherwise)
    return then() if true else otherwise()


def scan(
    xp: Any, step: Callable[[_S, Any], tuple[_S, _T]], state: _S, values: Any, length: int | None = None
) -> tuple[_S, _T]:
    """`jax.lax.scan`, or Python's loop; over `values`, or `length` times without any."""
    if xp is jnp:
        return jax.lax.scan(step, state, values, length=length)
    found = []
    for value in [None] * (length or 0) if values is None else values:
        state, seen = step(state, value)
        found.append(seen)
    # of no steps there is nothing, in the shape of one
    return state, _stacked(found) if found else jax.tree.map(lambda leaf: leaf[None][:0], step(state, None)[1])


def each(xp: Any, function: Callable[[Any], _T], values: Any) -> _T:
    """The function of each of the values, stacked: one after the other in JAX, which needs the memory of one."""
    if xp is jnp:
        return jax.lax.map(function, values)
    return _stacked([function(value) for value in values])


def _stacked(found: list[_T]) -> _T:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *found)
