"""Random numbers: those of `jax.random`, in NumPy where the key is known, and the samplers that several packages share.

A program for each shape takes longer to compile than most draws to make, so `sampler` makes them in NumPy: the bits are
JAX's (Threefry, Salmon et al. 2011, counted as `jax_threefry_partitionable` does), and the numbers JAX's to rounding.
"""

import contextlib
import functools
import itertools
import math
import zlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, NamedTuple, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import scipy  # its parts load when they are first used
from jaxtyping import Array, Float, Key, UInt32

from linnet import _check
from linnet._check import known, namespace, numpy_if_known
from linnet._compiler import hurried, inside

_P = ParamSpec("_P")
_T = TypeVar("_T")
_CANDIDATES = 24
_NEEDED = 2 * _CANDIDATES + 1  # uniform numbers for one Gamma number
_ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
_MANY = 1 << 20  # uniform numbers that take longer to draw in NumPy than to compile


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
    def active(self) -> Iterator[None]:
        """Where samplers with known keys draw into this memory."""
        before = _memory.set(self)
        try:
            yield
        finally:
            _memory.reset(before)


_memory: ContextVar[Memory | None] = ContextVar("_memory", default=None)


def _mark(leaf: Any) -> Any:
    """A key that differs between arguments that differ in any bit."""
    if not hasattr(leaf, "dtype"):
        return leaf
    numbers = jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf
    return leaf.shape, str(leaf.dtype), np.asarray(numbers).tobytes()


class KnownKey(NamedTuple):
    """A random key whose two words are known, as samplers are given it in NumPy."""

    words: UInt32[np.ndarray, "2"]


def _threefry(key: KnownKey, high: Any, low: Any) -> tuple[Any, Any]:
    """Two words of random bits for each counter (high, low)."""
    first, second = (np.uint32(word) for word in key.words)
    words = [first, second, first ^ second ^ np.uint32(0x1BD11BDA)]
    x, y = high + words[0], low + words[1]
    for i, rotations in enumerate(itertools.islice(itertools.cycle(_ROTATIONS), 5), start=1):
        for rotation in rotations:
            x = x + y
            y = x ^ (y << np.uint32(rotation) | y >> np.uint32(32 - rotation))
        x, y = x + words[i % 3], y + words[(i + 1) % 3] + np.uint32(i)
    return x, y


def _counted(key: KnownKey, count: int) -> tuple[np.ndarray, np.ndarray]:
    counter = np.arange(count, dtype=np.uint64)
    return _threefry(key, (counter >> np.uint64(32)).astype(np.uint32), counter.astype(np.uint32))


def split(key: Any, number: int) -> list[Any]:
    """`jax.random.split`, as a list."""
    if not isinstance(key, KnownKey):
        return list(jax.random.split(key, number))
    return [KnownKey(words) for words in np.stack(_counted(key, number), axis=1)]


def uniform(key: Any, shape: tuple[int, ...], low: float = 0.0, high: float = 1.0) -> Float[Array, "..."]:
    """`jax.random.uniform` in double precision, bit for bit."""
    if not isinstance(key, KnownKey):
        return jax.random.uniform(key, shape, jnp.float64, low, high)
    drawn: Any
    size = math.prod(shape)
    if size > _MANY:
        drawn = np.asarray(_compiled_uniform(_wrapped(key), shape, low, high))
    else:
        high_word, low_word = (word.astype(np.uint64) for word in _counted(key, size))
        mantissa = (high_word << np.uint64(32) | low_word) >> np.uint64(12)
        numbers = (mantissa | np.float64(1).view(np.uint64)).view(np.float64) - 1
        drawn = np.maximum(low, numbers * (high - low) + low).reshape(shape)
    return drawn


_compiled_uniform = jax.jit(uniform, static_argnums=1)


def _erf_inv(x: Float[Array, "..."]) -> Float[Array, "..."]:
    return scipy.special.erfinv(x) if namespace(x) is np else jax.lax.erf_inv(x)


def signs(key: Any, shape: tuple[int, ...]) -> Float[Array, "..."]:
    """+1 or -1 (`jax.random.rademacher`)."""
    return namespace(drawn := uniform(key, shape)).where(drawn < 0.5, 1.0, -1.0)


def sampler(*static: str, numpy: bool = True) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Makes a function of a key a sampler: it draws in NumPy where its arguments are known.

    It uses `split`, `uniform`, `normal`, and other samplers instead of `jax.random`. Inside another program it is
    compiled as a part of it. With keys of another kind than JAX's default, or without `numpy`, it is compiled, once for
    all values of the arguments that are not `static`: without optimization, in a tenth of the time, since a draw takes
    less time than the compiler to make it fast.
    """

    def compiled(draw: Callable[_P, _T]) -> Callable[_P, _T]:
        whole = jax.jit(draw, static_argnames=static)

        @functools.cache
        def quick() -> Any:
            return jax.jit(draw, static_argnames=static, compiler_options=hurried(optimized=False))

        def in_numpy(*args: Any, **kwargs: Any) -> Any:
            args, kwargs = jax.tree.map(lambda x: KnownKey(_words(x)) if _is_key(x) else x, (args, kwargs))
            found = numpy_if_known(draw)(*args, **kwargs)
            return jax.tree.map(_returned, found, is_leaf=_is_known)

        @functools.wraps(draw)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            leaves, structure = jax.tree.flatten((args, kwargs), is_leaf=_is_known)
            if any(map(_is_known, leaves)):  # within another sampler
                return draw(*args, **kwargs)
            if inside(leaves):
                return whole(*args, **kwargs)
            made = in_numpy if numpy and all(_is_default(leaf) for leaf in leaves if _is_key(leaf)) else quick()
            memory = _memory.get()
            if memory is None:
                return made(*args, **kwargs)
            return memory.recall((draw, structure, *map(_mark, leaves)), lambda: made(*args, **kwargs))

        return call

    return compiled


def _is_known(leaf: Any) -> bool:
    return isinstance(leaf, KnownKey)


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _words(key: Key[Array, ""]) -> np.ndarray:
    return np.asarray(jax.random.key_data(key))


def _wrapped(key: KnownKey) -> Key[Array, ""]:
    words: Any = key.words
    return jax.random.wrap_key_data(words)


def _is_default(key: Key[Array, ""]) -> bool:
    """Whether it is a key of Threefry, counted as by default."""
    return str(jax.random.key_impl(key)) == "threefry2x32" and bool(jax.config.values["jax_threefry_partitionable"])


def _returned(leaf: Any) -> Any:
    if isinstance(leaf, KnownKey):
        return _wrapped(leaf)
    return _check.floating(leaf) if isinstance(leaf, np.ndarray | np.generic) else leaf


@sampler("name")
def stream(key: Any, name: str) -> Any:
    """An independent key for the sampler called `name`, so that one key may be given to several samplers."""
    mark = zlib.crc32(name.encode())
    if not isinstance(key, KnownKey):
        return jax.random.fold_in(key, mark)
    return KnownKey(np.array(_threefry(key, np.zeros(1, np.uint32), np.array([mark], np.uint32))).ravel())


@sampler("name", "number")
def keys(key: Any, name: str, number: int) -> list[Any]:
    """So many keys of that stream."""
    return split(stream(key, name), number)


@sampler("shape")
def normal(key: Any, shape: tuple[int, ...]) -> Float[Array, "..."]:
    """Standard normal numbers."""
    return math.sqrt(2) * _erf_inv(_symmetric(key, shape))


def haar(key: Any, rows: int, columns: int) -> Float[Array, "rows columns"]:
    """A uniformly distributed matrix with orthonormal columns (rows >= columns)."""
    xp, (numbers,) = known(normal(key, (rows, columns)))  # in JAX every shape would compile a factorization
    q, r = xp.linalg.qr(numbers)
    return _check.floating(q * xp.sign(xp.diagonal(r)))


def _symmetric(key: Any, shape: tuple[int, ...]) -> Float[Array, "..."]:
    """Uniform numbers w in (-1, 1): sqrt(2) erf_inv(w) is standard normal, and (1 + w) / 2 never zero."""
    return uniform(key, shape, np.nextafter(-1.0, 0.0), 1.0)


@sampler()
def gamma(key: Any, a: Float[Array, "..."]) -> Float[Array, "..."]:
    """Gamma numbers of shape parameters a > 0 and scale one, without a loop, which would take a second to compile.

    Marsaglia and Tsang (2000): for a >= 1, d = a - 1/3, v = (1 + x / sqrt(9 d))^3 with x normal and u uniform, d v is
    accepted if v > 0 and log u < x^2/2 + d (1 - v + log v). For a < 1 it is that of a + 1 times u^{1/a}. More than 95 %
    are accepted whatever a >= 1 is, so of 24 candidates the first that is; that there is none has a chance below
    1e-30.
    """
    return _gamma(_symmetric(key, (_NEEDED, *a.shape)), a)


def _gamma(symmetric: Float[Array, "..."], a: Float[Array, "..."]) -> Float[Array, "..."]:
    xp = namespace(symmetric)
    x = math.sqrt(2) * _erf_inv(symmetric[:_CANDIDATES])
    log_u = xp.log1p(symmetric[_CANDIDATES:]) - math.log(2)
    d = xp.where(a < 1, a + 1, a) - 1 / 3
    v = (1 + x / xp.sqrt(9 * d)) ** 3
    positive = xp.where(v > 0, v, 1.0)
    accepted = (v > 0) & (log_u[1:] < x**2 / 2 + d * (1 - positive + xp.log(positive)))
    drawn = xp.take_along_axis(positive, xp.argmax(accepted, axis=0)[None], axis=0)[0]
    return d * drawn * xp.where(a < 1, xp.exp(log_u[0] / a), 1.0)


@sampler("rows", "columns")
def bartlett(key: Any, degrees: Float[Array, ""] | float, rows: int, columns: int) -> Float[Array, "rows columns"]:
    """The R factor of a `degrees` x `columns` standard Gaussian matrix, drawn directly (Bartlett).

    Upper trapezoidal, R_ii = sqrt(chi2(degrees - i)), standard normals above the diagonal. Rows with
    degrees - i <= 0 are zero, so `rows` may exceed `degrees`.
    """
    index = np.arange(rows)
    freedom = degrees - index.astype(np.float64)
    # one draw for all: in a program it costs as much to compile as what is made of it
    symmetric = _symmetric(key, (_NEEDED + columns, rows))
    # chi2(k) = 2 Gamma(k / 2); zero degrees of freedom are a zero row
    xp = namespace(symmetric)
    chi2 = 2 * _gamma(symmetric[:_NEEDED], xp.where(freedom > 0, freedom, 1.0) / 2)
    normals = math.sqrt(2) * _erf_inv(symmetric[_NEEDED:].T)
    upper = xp.where(np.arange(columns)[None, :] > index[:, None], normals, 0.0)
    r = upper + xp.sqrt(chi2)[:, None] * np.eye(rows, columns)
    return xp.where((freedom > 0)[:, None], r, 0.0)


class Factored(NamedTuple):
    """A matrix U diag(s) V^T with its singular vectors as columns."""

    matrix: Float[Array, "d_out d_in"]
    left: Float[Array, "d_out rank"]
    right: Float[Array, "d_in rank"]


def with_spectrum(left: Any, right: Any, values: Any, d_out: int, d_in: int | None = None) -> Factored:
    """A d_out x d_in matrix (square by default) with these singular values in uniformly distributed frames."""
    columns = np.size(values)
    u, v = haar(left, d_out, columns), haar(right, d_out if d_in is None else d_in, columns)
    _, (s, a, b) = known(values, u, v)
    return Factored(_check.floating((a * s) @ b.T), u, v)
