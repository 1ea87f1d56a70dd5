"""Samplers that several rooms share."""

import functools
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from linnet import _check

_P = ParamSpec("_P")
_T = TypeVar("_T")
_QUICK = {"xla_backend_optimization_level": 0}


def stream(key: Key[Array, ""], name: str) -> Key[Array, ""]:
    """An independent key for the sampler called `name`, so that one key may be given to several samplers."""
    return jax.random.fold_in(key, zlib.crc32(name.encode()))


def sampler(*static: str) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Compiles a sampler, once for all values of the arguments that are not `static`.

    A draw takes less time than a compiler on a CPU takes to make it fast: where the key is known, programs are compiled
    without optimisation, in a fifth of the time. Inside another program they are a part of it.
    """

    def compiled(draw: Callable[_P, _T]) -> Callable[_P, _T]:
        whole = jax.jit(draw, static_argnames=static)
        quick = jax.jit(draw, static_argnames=static, compiler_options=_QUICK)

        @functools.wraps(draw)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            inside = _check.traced((args, kwargs, jax.device_put(0)))  # a known key may stand in a traced function
            return (whole if inside or jax.default_backend() != "cpu" else quick)(*args, **kwargs)

        return call

    return compiled


@sampler("shape")
def normal(key: Key[Array, ""], shape: tuple[int, ...]) -> Float[Array, "..."]:
    """Standard normal numbers."""
    return jax.random.normal(key, shape, dtype=jnp.float64)


@sampler("rows", "columns")
def haar(key: Key[Array, ""], rows: int, columns: int) -> Float[Array, "rows columns"]:
    """A uniformly distributed matrix with orthonormal columns (rows >= columns)."""
    q, r = jnp.linalg.qr(jax.random.normal(key, (rows, columns)))
    return q * jnp.sign(jnp.diagonal(r))


@sampler("rows", "columns")
def bartlett(
    key: Key[Array, ""], degrees: Float[Array, ""] | float, rows: int, columns: int
) -> Float[Array, "rows columns"]:
    """The R factor of a `degrees` x `columns` standard Gaussian matrix, drawn directly (Bartlett).

    Upper trapezoidal, R_ii = sqrt(chi2(degrees - i)), standard normals above the diagonal. Rows with
    degrees - i <= 0 are zero, so `rows` may exceed `degrees`.
    """
    diagonal_key, upper_key = jax.random.split(key)
    index = jnp.arange(rows)
    freedom = degrees - index.astype(jnp.float64)
    # chi2(k) = 2 Gamma(k / 2); zero degrees of freedom are a zero row
    chi2 = 2 * jax.random.gamma(diagonal_key, jnp.where(freedom > 0, freedom, 1.0) / 2, (rows,), dtype=jnp.float64)
    normals = jax.random.normal(upper_key, (rows, columns), dtype=jnp.float64)
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
    s = jnp.asarray(values)
    u, v = haar(left, d_out, s.size), haar(right, d_out if d_in is None else d_in, s.size)
    return Turned((u * s) @ v.T, u, v)
