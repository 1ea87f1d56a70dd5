"""Samplers that several rooms share."""

import contextlib
import functools
import math
import zlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, NamedTuple, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from linnet import _check
from linnet._check import known
from linnet._compiler import hurried, inside

_P = ParamSpec("_P")
_T = TypeVar("_T")
_CANDIDATES = 24
_NEEDED = 2 * _CANDIDATES + 1  # uniform numbers for one Gamma number


class Memory:
    """Draws that may be asked for again, in cells of a grid that differ in other things; at most 128 MiB of them."""

    def __init__(self) -> None:
        self._draws: dict[Any, Any] = {}
        self._bytes = 0

    def recall(self, mark: Any, draw: Callable[[], _T]) -> _T:
        """The draw with this mark."""
        if mark not in self._draws:
            drawn = draw()
            size = sum(x.nbytes for x in jax.tree.leaves(drawn))
            if self._bytes + size > 1 << 27:
                self._draws.clear()
                self._bytes = 0
            self._bytes += size
            self._draws[mark] = drawn
        found: _T = self._draws[mark]
        return found

    def __len__(self) -> int:
        return len(self._draws)

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Where samplers with known keys draw into this memory."""
        before = _memory.set(self)
        try:
            yield
        finally:
            _memory.reset(before)


_memory: ContextVar[Memory | None] = ContextVar("_memory", default=None)


def _mark(leaf: Any) -> Any:
    """Tells arguments apart to the last bit."""
    if not hasattr(leaf, "dtype"):
        return leaf
    numbers = jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf
    return leaf.shape, str(leaf.dtype), np.asarray(numbers).tobytes()


def sampler(*static: str) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Compiles a sampler, once for all values of the arguments that are not `static`.

    A draw takes less time than a compiler on a CPU takes to make it fast: where the key is known, programs are compiled
    without optimisation, in a tenth of the time. Inside another program they are a part of it.
    """

    def compiled(draw: Callable[_P, _T]) -> Callable[_P, _T]:
        whole = jax.jit(draw, static_argnames=static)

        @functools.cache
        def quick() -> Any:
            return jax.jit(draw, static_argnames=static, compiler_options=hurried(optimised=False))

        @functools.wraps(draw)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            if inside((args, kwargs)):
                return whole(*args, **kwargs)
            memory = _memory.get()
            if memory is None:
                return quick()(*args, **kwargs)
            leaves, structure = jax.tree.flatten((args, kwargs))
            return memory.recall((draw, structure, *map(_mark, leaves)), lambda: quick()(*args, **kwargs))

        return call

    return compiled


@sampler("name")
def stream(key: Key[Array, ""], name: str) -> Key[Array, ""]:
    """An independent key for the sampler called `name`, so that one key may be given to several samplers."""
    return jax.random.fold_in(key, zlib.crc32(name.encode()))


@sampler("name", "number")
def keys(key: Key[Array, ""], name: str, number: int) -> list[Key[Array, ""]]:
    """So many keys of that stream."""
    return list(jax.random.split(stream(key, name), number))


@sampler("shape")
def normal(key: Key[Array, ""], shape: tuple[int, ...]) -> Float[Array, "..."]:
    """Standard normal numbers."""
    return jax.random.normal(key, shape, dtype=jnp.float64)


def haar(key: Key[Array, ""], rows: int, columns: int) -> Float[Array, "rows columns"]:
    """A uniformly distributed matrix with orthonormal columns (rows >= columns)."""
    xp, (numbers,) = known(normal(key, (rows, columns)))  # in JAX every shape would compile a factorisation
    q, r = xp.linalg.qr(numbers)
    return _check.floating(q * xp.sign(xp.diagonal(r)))


def _symmetric(key: Key[Array, ""], shape: tuple[int, ...]) -> Float[Array, "..."]:
    """Uniform numbers w in (-1, 1): sqrt(2) erf_inv(w) is standard normal, and (1 + w) / 2 never zero."""
    return jax.random.uniform(key, shape, jnp.float64, np.nextafter(-1.0, 0.0), 1.0)


@sampler()
def gamma(key: Key[Array, ""], a: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """Gamma numbers of shape parameters a > 0 and scale one, without a loop, which would take a second to compile.

    Marsaglia and Tsang (2000): for a >= 1, d = a - 1/3, v = (1 + x / sqrt(9 d))^3 with x normal and u uniform, d v is
    accepted if v > 0 and log u < x^2/2 + d (1 - v + log v). For a < 1 it is that of a + 1 times u^{1/a}. More than 95 %
    are accepted whatever a >= 1 is, so of 24 candidates the first that is; that there is none has a chance below
    1e-30.
    """
    return _gamma(_symmetric(key, (_NEEDED, *a.shape)), a)


def _gamma(symmetric: Float[Array, "needed *n"], a: Float[Array, "*n"]) -> Float[Array, "*n"]:
    x = math.sqrt(2) * jax.lax.erf_inv(symmetric[:_CANDIDATES])
    log_u = jnp.log1p(symmetric[_CANDIDATES:]) - math.log(2)
    d = jnp.where(a < 1, a + 1, a) - 1 / 3
    v = (1 + x / jnp.sqrt(9 * d)) ** 3
    positive = jnp.where(v > 0, v, 1.0)
    accepted = (v > 0) & (log_u[1:] < x**2 / 2 + d * (1 - positive + jnp.log(positive)))
    drawn = jnp.take_along_axis(positive, jnp.argmax(accepted, axis=0)[None], axis=0)[0]
    return d * drawn * jnp.where(a < 1, jnp.exp(log_u[0] / a), 1.0)


@sampler("rows", "columns")
def bartlett(
    key: Key[Array, ""], degrees: Float[Array, ""] | float, rows: int, columns: int
) -> Float[Array, "rows columns"]:
    """The R factor of a `degrees` x `columns` standard Gaussian matrix, drawn directly (Bartlett).

    Upper trapezoidal, R_ii = sqrt(chi2(degrees - i)), standard normals above the diagonal. Rows with
    degrees - i <= 0 are zero, so `rows` may exceed `degrees`.
    """
    index = jnp.arange(rows)
    freedom = degrees - index.astype(jnp.float64)
    # one draw for all: in a program it costs as much to compile as what is made of it
    symmetric = _symmetric(key, (_NEEDED + columns, rows))
    # chi2(k) = 2 Gamma(k / 2); zero degrees of freedom are a zero row
    chi2 = 2 * _gamma(symmetric[:_NEEDED], jnp.where(freedom > 0, freedom, 1.0) / 2)
    normals = math.sqrt(2) * jax.lax.erf_inv(symmetric[_NEEDED:].T)
    upper = jnp.where(jnp.arange(columns)[None, :] > index[:, None], normals, 0.0)
    r = upper + jnp.sqrt(chi2)[:, None] * jnp.eye(rows, columns)
    return jnp.where((freedom > 0)[:, None], r, 0.0)


class Turned(NamedTuple):
    """A matrix U diag(s) V^T with its singular vectors as columns."""

    matrix: Float[Array, "d_out d_in"]
    left: Float[Array, "d_out rank"]
    right: Float[Array, "d_in rank"]


def with_spectrum(
    left: Key[Array, ""], right: Key[Array, ""], values: Any, d_out: int, d_in: int | None = None
) -> Turned:
    """A d_out x d_in matrix (square by default) with these singular values in uniformly distributed frames."""
    columns = np.size(values)
    u, v = haar(left, d_out, columns), haar(right, d_out if d_in is None else d_in, columns)
    _, (s, a, b) = known(values, u, v)
    return Turned(_check.floating((a * s) @ b.T), u, v)
