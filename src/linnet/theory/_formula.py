"""How formulas are computed: few known numbers in NumPy, many or traced ones as one compiled program.

`formula` declares what each argument of a formula may be and makes a public function of it: arguments are checked,
broadcast, and computed with by `evaluate`. Nothing runs operation by operation in JAX, where every operation of a new
shape would be compiled for itself: a first answer would take seconds, and the formula microseconds.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial, wraps
from typing import Any, ParamSpec, Protocol, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np

from linnet import _check
from linnet._check import InputError

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)
_S = TypeVar("_S")
_P = ParamSpec("_P")
_F = TypeVar("_F", bound=Callable[..., Any])
Number = Any  # a number or an array of them, of NumPy or JAX; inside a formula always an array
FEW = 100_000  # pairs of numbers up to which compiling a formula would take longer than many calls of it
_LOOPS = 256  # steps up to which a loop in Python is quicker than a compiler


# What an argument may be ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Domain:
    """What an argument of a formula may be."""

    check: Callable[[str, Any], Any]  # of its name and value: the value that the formula computes with
    static: bool = False  # it shapes the program and is not traced
    loops: bool = False  # a formula makes so many steps
    axes: Callable[[Any], Any] | None = None  # an array with the axes that broadcast with those of other arguments


def within(*, pairs: bool = True, **limits: Any) -> Domain:
    """Numbers of any shape in a range (`_check.numbers`); unless `pairs`, their axes lead and pair with no others."""
    return Domain(partial(_check.numbers, **limits), axes=(lambda value: value) if pairs else None)


def above(low: float, **limits: Any) -> Domain:
    """Numbers of any shape that are greater than `low`."""
    return within(above=low, **limits)


def at_least(low: float, **limits: Any) -> Domain:
    """Numbers of any shape that are `low` or more."""
    return within(least=low, **limits)


def scalar(**limits: Any) -> Domain:
    """One number in a range (`_check.number`)."""
    return Domain(partial(_check.number, **limits))


def vector(**limits: Any) -> Domain:
    """A vector of numbers in a range."""
    return Domain(partial(_check.numbers, ndim=1, **limits))


def integer(least: int, *, loops: bool = False, **limits: Any) -> Domain:
    """A whole number (`_check.integer`) that shapes the program; with `loops` the number of steps that it makes."""
    return Domain(partial(_check.integer, least=least, **limits), static=True, loops=loops)


def choice(options: Sequence[str]) -> Domain:
    """One of these texts."""
    return Domain(partial(_check.choice, options=options), static=True)


def instance(kind: type, source: str, axes: Callable[[Any], Any] | None = None) -> Domain:
    """An object of this type, which `source` makes."""

    def check(name: str, value: Any) -> Any:
        if not isinstance(value, kind):
            raise InputError(f"{name} = {_check.show(value)} is not allowed: {name} must be what {source} returns.")
        return value

    return Domain(check, axes=axes)


NUMBERS = within()
TIMES = at_least(0, pairs=False)
MATRIX = Domain(partial(_check.double, ndim=2))
FLAG = Domain(_check.flag, static=True)


# Formulas -------------------------------------------------------------------------------------------------------------


class Formula(Protocol[_P, _T_co]):
    """A formula that checks its arguments; `raw` is the formula itself, which others call with arrays."""

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _T_co: ...

    @property
    def raw(self) -> Callable[_P, _T_co]: ...


def formula(
    require: Callable[..., None] | None = None, /, **domains: Domain
) -> Callable[[Callable[_P, _T]], Formula[_P, _T]]:
    """Makes a public function of a formula, from the domain of each of its arguments.

    The function checks its arguments, checks that the axes of those that broadcast go together, calls `require` with
    all of them by name where arguments depend on each other, and evaluates the formula (see `evaluate`). The formula
    is given arrays of NumPy or JAX, and finds out which by `_check.namespace`.
    """

    def decorate(raw: Callable[_P, _T]) -> Formula[_P, _T]:
        signature = inspect.signature(raw)
        if set(signature.parameters) != set(domains):
            raise TypeError(f"{raw.__name__}: each argument must have a domain, and only arguments.")
        traced = [name for name in signature.parameters if not domains[name].static]

        def program(_: Any, *arrays: Any, **static: Any) -> _T:
            whole: Any = raw  # called by name, which a ParamSpec cannot express
            return whole(**dict(zip(traced, arrays, strict=True)), **static)

        program.__name__ = raw.__name__  # what a profile shows

        @wraps(raw)
        def checked(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            given = {name: domains[name].check(name, value) for name, value in bound.arguments.items()}
            _check.matching(**{name: axes(given[name]) for name in given if (axes := domains[name].axes)})
            if require is not None:
                require(**given)
            static = {name: value for name, value in given.items() if domains[name].static}
            steps = max([value for name, value in static.items() if domains[name].loops], default=1)
            few = FEW // max(steps, 1) if steps <= _LOOPS else -1
            return evaluate(program, *(given[name] for name in traced), few=few, **static)

        found: Any = checked
        del found.__wrapped__  # `inspect.unwrap` is to find what checks
        found.raw, found.__signature__ = raw, signature
        return cast("Formula[_P, _T]", found)

    return decorate


def in_doubles(function: _F) -> _F:
    """Makes a function refuse numbers for which its value, or what it is computed from, is beyond double precision."""
    inner = inspect.unwrap(function)  # without the checks of types that tests add, which come first otherwise

    @wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        refused = InputError(f"{function.__name__}: with numbers of these sizes it is beyond double precision.")
        try:
            with np.errstate(all="ignore"):
                found = inner(*args, **kwargs)
        except InputError:
            raise
        except (ArithmeticError, ValueError):  # also those of linear algebra and of searches for roots
            raise refused from None
        leaves = [leaf for leaf in jax.tree.leaves(found) if isinstance(leaf, float | np.ndarray | jax.Array)]
        if not _check.traced(leaves) and any(np.any(np.isnan(np.asarray(leaf))) for leaf in leaves):
            raise refused
        return found

    vars(checked).pop("__wrapped__")  # `inspect.unwrap` is to find what checks
    vars(checked).setdefault("__signature__", inspect.signature(function))
    return cast("_F", checked)


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
        state, output = step(state, value)
        found.append(output)
    # of no steps there is nothing, in the shape of one
    return state, _stacked(found) if found else jax.tree.map(lambda leaf: leaf[None][:0], step(state, None)[1])


def each(xp: Any, function: Callable[[Any], _T], values: Any) -> _T:
    """The function of each of the values, stacked: one after the other in JAX, which needs the memory of one."""
    if xp is jnp:
        return jax.lax.map(function, values)
    return _stacked([function(value) for value in values])


def _stacked(found: list[_T]) -> _T:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *found)
