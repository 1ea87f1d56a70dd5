"""Checks of what users give: one sentence with the argument, its value and what is allowed.

Values that JAX is tracing are not known and pass; all others are checked where they are given.
"""

import contextlib
import functools
import math
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import equinox as eqx
import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from linnet._input import InputError as InputError
from linnet._input import allowed_range, inside
from linnet._input import choice as choice
from linnet._input import flag as flag
from linnet._input import integer as integer
from linnet._input import real as real
from linnet._input import show as show
from linnet._input import traced as traced

_P = ParamSpec("_P")
_T = TypeVar("_T")
KeyLike = Key[Array, ""] | int  # a random key, or its seed
_KINDS = {1: "a vector", 2: "a matrix"}


def known(*arrays: Any) -> tuple[Any, tuple[Any, ...]]:
    """NumPy and these arrays in it, or JAX's where they are traced: in JAX every shape would compile its products."""
    return (jnp, arrays) if traced(arrays) else (np, jax.tree.map(np.asarray, arrays))


def namespace(*arrays: Any) -> Any:
    """jax.numpy if one of the arrays is JAX's, else numpy."""
    return jnp if any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(arrays)) else np


def numpy_if_known(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Makes a function or method compute in NumPy where its arguments are known; it returns JAX arrays.

    The arrays in its arguments, a module's own included, are given to it in NumPy unless one of them is traced; which
    of the two it got is what `namespace` says. Where it is called with NumPy arrays alone, as by another such function,
    it returns such. Operation by operation in JAX, every shape would be compiled.
    """

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        leaves = jax.tree.leaves((args, kwargs))
        if namespace(leaves) is np or traced(leaves):
            return function(*args, **kwargs)
        given: Any = jax.tree.map(lambda x: np.asarray(x) if eqx.is_inexact_array(x) else x, (args, kwargs))
        with np.errstate(all="ignore"):
            found = function(*given[0], **given[1])
        return jax.tree.map(_in_jax, found)

    return call


def _in_jax(leaf: Any) -> Any:
    return jnp.asarray(np.asarray(leaf), dtype=leaf.dtype) if isinstance(leaf, np.ndarray | np.generic) else leaf


def number(
    name: str,
    value: Any,
    *,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
    most: float | None = None,
) -> Array:
    """`value` as a double scalar, inside the given range unless it is traced."""
    if not traced(value):
        value = np.asarray(real(name, value, above=above, least=least, below=below, most=most))
    elif jnp.ndim(value) != 0:
        raise InputError(f"{name} has shape {jnp.shape(value)}: {name} must be one number; batch with jax.vmap.")
    return jnp.asarray(value, dtype=jnp.float64)  # one type for all: a weak or single scalar would compile again


def numbers(
    name: str,
    value: Any,
    *,
    ndim: int | None = None,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
    most: float | None = None,
    infinite: bool = False,
) -> Array:
    """`value` as doubles of any shape (or with `ndim` axes, not empty), each inside the given range unless traced.

    With `infinite` it may be plus infinity.
    """
    allowed = allowed_range(above, least, below, most)
    if infinite:
        allowed += " or infinite"
    allowed = f"{allowed}, or an array of such" if ndim is None else f"{_KINDS[ndim]}, each entry {allowed}"
    refused = InputError(f"{name} = {show(value)} is not allowed: {name} must be {allowed}.")
    if not traced(value):
        try:
            value = np.asarray(value)
        except (TypeError, ValueError):
            raise refused from None
        if value.dtype.kind not in "iuf":
            raise refused
        if not np.all(inside(value, above, least, below, most) | (infinite & (value == math.inf))):
            raise refused
        value = value.astype(np.float64)
    if ndim is not None and (np.ndim(value) != ndim or 0 in np.shape(value)):
        raise refused
    return jnp.asarray(value, dtype=jnp.float64)


def matching(**given: Any) -> tuple[int, ...]:
    """The shape that these values have together, where they broadcast."""
    try:
        return np.broadcast_shapes(*(np.shape(value) for value in given.values()))
    except ValueError:
        shapes = ", ".join(f"{name} {np.shape(value)}" for name, value in given.items())
        raise InputError(f"shapes that do not go together are not allowed: they are {shapes}.") from None


def modes(name: str, value: Any, *, known: int, most: int | None = None) -> tuple[int, ...]:
    """`value` as an increasing tuple of distinct mode numbers from 1 to `known`, at most `most` of them."""
    given = list(value) if isinstance(value, Sequence | set | frozenset) and not isinstance(value, str) else None
    if given is None:
        raise InputError(
            f"{name} = {show(value)} is not allowed: {name} must be a list of mode numbers, such as (1, 3)."
        )
    numbers = [integer(f"a mode in {name}", mode, least=1, most=known, reason="the modes there are") for mode in given]
    if len(set(numbers)) < len(numbers):
        raise InputError(f"{name} = {show(value)} is not allowed: {name} must not repeat a mode.")
    if most is not None and len(numbers) > most:
        raise InputError(f"{name} = {show(value)} is not allowed: the bottleneck leaves room for {most} modes.")
    return tuple(sorted(numbers))


def floating(value: Any) -> Array:
    """`value` as a floating-point array: float32 stays, everything else that is real becomes float64."""
    # Python's numbers would be weakly typed, and a weak and a strong scalar compile twice
    array = value if isinstance(value, jax.Array) else np.asarray(value)
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        raise InputError(f"complex values ({show(value)}) are not allowed: Linnet's networks are real.")
    if not (jnp.issubdtype(array.dtype, jnp.number) or array.dtype == bool):
        raise TypeError(f"{array.dtype} is no type of numbers.")
    array = array if array.dtype == jnp.float32 else array.astype(jnp.float64)
    return jnp.asarray(array, dtype=array.dtype)


def array(name: str, value: Any, *, ndim: int | tuple[int, ...], shape: tuple[int, ...] | None = None) -> Array:
    """`value` as a finite floating-point array of the given number of dimensions (and shape)."""
    dims = (ndim,) if isinstance(ndim, int) else ndim
    try:
        x = floating(value)
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise InputError(f"{name}: {error}") from None
        raise InputError(f"{name} = {show(value)} is not allowed: {name} must be an array of numbers.") from None
    if x.ndim not in dims:
        kind = " or ".join(_KINDS.get(n, f"{n}-dimensional") for n in dims)
        raise InputError(f"{name} has shape {x.shape}: {name} must be {kind}.")
    if 0 in x.shape:
        raise InputError(f"{name} has shape {x.shape}: {name} must not be empty.")
    if shape is not None and x.shape != shape:
        raise InputError(f"{name} has shape {x.shape}: {name} must have shape {shape}.")
    # in NumPy: inside a traced function jnp would trace a known array too
    if not traced(x) and (bad := int(np.sum(~np.isfinite(np.asarray(x))))):
        raise InputError(f"{name} holds {bad} NaN or infinite entries: {name} must be finite.")
    return x


def double(name: str, value: Any, *, ndim: int | tuple[int, ...], shape: tuple[int, ...] | None = None) -> Array:
    """`array` in double precision."""
    return array(name, value, ndim=ndim, shape=shape).astype(jnp.float64)


def key(name: str, value: Any) -> Any:
    """`value` if it is one random key, or the key of a seed."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool) and 0 <= value < 2**63:
        if jax.config.values["jax_default_prng_impl"] != "threefry2x32":
            return jax.random.key(value)
        words: Any = np.array(divmod(int(value), 2**32), np.uint32)
        return jax.random.wrap_key_data(words)  # what jax.random.key(value) compiles a program for
    is_key = isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
    if not is_key or value.ndim != 0:
        raise InputError(
            f"{name} = {show(value)} is not allowed: {name} must be one key from jax.random.key(seed), or a seed."
        )
    return value


# Memory ---------------------------------------------------------------------------------------------------------------


def seed(value: Any) -> int:
    """A seed that JAX can make a key of."""
    return integer("seed", value, least=0, most=2**63 - 1)


@functools.cache
def memory() -> int:
    """The bytes that arrays may take: the memory of the device, or of this machine, or of the container around us."""
    device = jax.devices()[0]
    if device.platform != "cpu":
        return int((device.memory_stats() or {}).get("bytes_limit", 2**33))
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 2**33
    limits = [pages]
    for name in ("memory.max", "memory/memory.limit_in_bytes"):  # of control groups, new and old
        with contextlib.suppress(OSError, ValueError):
            limits.append(int((Path("/sys/fs/cgroup") / name).read_text(encoding="utf-8")))
    return min(limits)


def fits(name: str, value: Any, numbers: float, what: str) -> None:
    """Refuses a value that asks for so many double numbers at once, before any is allocated."""
    if 8 * numbers > memory():
        raise InputError(
            f"{name} = {show(value)} is not allowed: {what} would take about {gibibytes(8 * numbers)}, and there are "
            f"{gibibytes(memory())} of memory."
        )


def gibibytes(size: float) -> str:
    """A number of bytes in GiB, as text."""
    return f"{size / 2**30:,.3g} GiB" if size < 2**40 * 1000 else f"{size / 2**30:.1e} GiB"


# Functions of users ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def traceable(name: str) -> Iterator[None]:
    """A function of a user's that needs the numbers of what JAX is tracing is refused in one sentence."""
    try:
        yield
    except jax.errors.JAXTypeError:
        raise InputError(
            f"{name} needs numbers that are not known while the run is compiled: use jax.numpy in it instead of numpy, "
            "and jnp.where instead of if; float(...), int(...) and .item() have no place there."
        ) from None


_KINKS = {"max", "min", "abs", "clamp", "reduce_window_max", "select_and_scatter_add"}
_KINKED = {"relu", "relu6", "leaky_relu", "hard_tanh", "hard_sigmoid", "hard_silu"}
_SMOOTH = {"softmax", "_softmax", "log_softmax", "logsumexp"}  # which subtract a maximum that drops out


def has_kinks(function: Callable[..., Any], *arguments: Any) -> bool:
    """Whether a function is made with relu, max, min, abs, and the like, whose derivatives jump.

    Functions with derivatives of their own, such as logaddexp, count as smooth unless they are called relu or so.
    """
    return _kinked(jax.make_jaxpr(function)(*arguments).jaxpr)


def _kinked(program: jax.extend.core.Jaxpr, *, inside: bool = False) -> bool:
    for step in program.eqns:
        kind, name = str(step.primitive), str(step.params.get("name", ""))
        if name in _KINKED or (kind in _KINKS and not inside):
            return True
        own = inside or kind == "custom_jvp_call"
        if name not in _SMOOTH and any(
            _kinked(inner, inside=own) for inner in jax.extend.core.jaxprs_in_params(step.params)
        ):
            return True
    return False
