"""Samplers that several rooms share."""

import zlib
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key


def stream(key: Key[Array, ""], name: str) -> Key[Array, ""]:
    """An independent key for the sampler called `name`, so that one key may be given to several samplers."""
    return jax.random.fold_in(key, zlib.crc32(name.encode()))


@partial(jax.jit, static_argnames=("rows", "columns"))
def haar(key: Key[Array, ""], rows: int, columns: int) -> Float[Array, "rows columns"]:
    """A uniformly distributed matrix with orthonormal columns (rows >= columns)."""
    q, r = jnp.linalg.qr(jax.random.normal(key, (rows, columns)))
    return q * jnp.sign(jnp.diagonal(r))


@partial(jax.jit, static_argnames=("rows", "columns"))
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
