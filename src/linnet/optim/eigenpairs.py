"""The highest eigenpairs of a symmetric map, from those of a map nearby."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

_DENSE = 64  # parameters up to which the matrix is formed
_BLOCKS = 4  # of vectors that are kept; then the search begins again at its best ones


class Eigenpairs(NamedTuple):
    """Eigenvalues, descending, and orthonormal eigenvectors as rows."""

    values: Float[Array, " k"]
    vectors: Float[Array, "k parameters"]


class _Space(NamedTuple):
    """An orthonormal basis in rows, its images, the map in it, and the Ritz pairs; rows that are not used are 0."""

    basis: Float[Array, "n parameters"]
    images: Float[Array, "n parameters"]
    matrix: Float[Array, "n n"]
    blocks: Int[Array, ""]
    sweeps: Int[Array, ""]
    pairs: Eigenpairs
    residuals: Float[Array, "k parameters"]


def top_eigenpairs(
    product: Callable[[Array], Array],
    begin: Float[Array, "k parameters"],
    allowed: Callable[[Float[Array, " k"]], Float[Array, " k"]],
    *,
    sweeps: int | Int[Array, ""],
) -> Eigenpairs:
    """The k highest eigenpairs of a symmetric map by a block Krylov space that begins at orthonormal rows near them.

    Each sweep adds the residuals H u - lambda u of the k Ritz pairs to the space, made orthogonal to it twice, which
    takes k products. It ends when the residuals of all pairs are within `allowed(values)`, or after so many sweeps.
    Degenerate eigenvalues are no trouble, single vectors of which have no meaning. Small matrices are formed.
    """
    k, size = begin.shape
    many = jax.vmap(product)
    if size <= max(_DENSE, k * (_BLOCKS + 1)):
        values, vectors = jnp.linalg.eigh(_symmetric(many(jnp.eye(size, dtype=begin.dtype))))
        return Eigenpairs(values[::-1][:k], vectors.T[::-1][:k])
    rows = k * _BLOCKS

    def ritz(space: _Space) -> _Space:
        used = jnp.arange(rows) < k * space.blocks
        floor = -3 * jnp.max(jnp.abs(space.matrix)) - 1  # below every value
        values, vectors = jnp.linalg.eigh(_symmetric(space.matrix) + jnp.diag(jnp.where(used, 0.0, floor)))
        values, mix = values[::-1][:k], vectors.T[::-1][:k]
        found = mix @ space.basis
        return space._replace(pairs=Eigenpairs(values, found), residuals=mix @ space.images - values[:, None] * found)

    def packed(pairs: Eigenpairs, images: Array, done: Any) -> _Space:
        """The space of Ritz pairs alone."""
        basis, kept = (jnp.zeros((rows, size), begin.dtype).at[:k].set(block) for block in (pairs.vectors, images))
        small = jnp.zeros((rows, rows), begin.dtype).at[jnp.arange(k), jnp.arange(k)].set(pairs.values)
        residuals = images - pairs.values[:, None] * pairs.vectors
        return _Space(basis, kept, small, jnp.ones((), jnp.int32), done, pairs, residuals)

    def sweep(space: _Space) -> _Space:
        full = space.blocks == _BLOCKS
        again = packed(space.pairs, space.residuals + space.pairs.values[:, None] * space.pairs.vectors, space.sweeps)
        space = jax.tree.map(lambda a, b: jnp.where(full, a, b), again, space)
        new = space.residuals
        for _ in range(2):  # once more for the sake of rounding
            new = jnp.linalg.qr((new - (new @ space.basis.T) @ space.basis).T)[0].T
        images, place, first = many(new), k * space.blocks, jnp.zeros_like(space.blocks)
        basis = jax.lax.dynamic_update_slice(space.basis, new, (place, first))
        coupling = images @ basis.T
        matrix = jax.lax.dynamic_update_slice(space.matrix, coupling, (place, first))
        matrix = jax.lax.dynamic_update_slice(matrix, coupling.T, (first, place))
        kept = jax.lax.dynamic_update_slice(space.images, images, (place, first))
        return ritz(
            space._replace(basis=basis, images=kept, matrix=matrix, blocks=space.blocks + 1, sweeps=space.sweeps + 1)
        )

    def unfinished(space: _Space) -> Array:
        off = jnp.linalg.norm(space.residuals, axis=1) > allowed(space.pairs.values)
        return (space.sweeps < sweeps) & jnp.any(off)

    images = many(begin)
    values, vectors = jnp.linalg.eigh(_symmetric(begin @ images.T))
    mix = vectors.T[::-1]
    space = packed(Eigenpairs(values[::-1], mix @ begin), mix @ images, jnp.zeros((), jnp.int32))
    found = jax.lax.while_loop(unfinished, sweep, space).pairs
    # rounding of many steps, each of which begins at the last one's vectors
    return Eigenpairs(found.values, found.vectors / jnp.linalg.norm(found.vectors, axis=1, keepdims=True))


def generic_block(k: int, size: int, dtype: Any) -> Float[Array, "k parameters"]:
    """k orthonormal rows without structure, always the same: curvature must not depend on a seed."""
    drawn = jax.random.normal(jax.random.key(0), (size, k), dtype=dtype)
    return jnp.linalg.qr(drawn)[0].T


def _symmetric(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    return (matrix + matrix.T) / 2
