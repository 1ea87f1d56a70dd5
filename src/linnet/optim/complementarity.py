"""The semidefinite complementarity problem on small matrices, by an interior-point method."""

from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

_STEPS = 60
_TOLERANCE = 1e-11  # of the gap and the residual, relative to the size of the problem; at least 30 roundings
_SOLVED = 1e-7  # above this the problem has no solution; at least 3000 roundings
_SLACK = 1e-3  # the same, whatever the size of X: where nothing solves the problem X grows without bound
_TO_BOUNDARY = 0.98


@lru_cache
def pairs(k: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns i <= j of a symmetric k x k matrix, in an order in which smaller matrices come first."""
    entries = [(i, j) for j in range(k) for i in range(j + 1)]
    rows, columns = np.array(entries).T
    return rows, columns


def svec(matrix: Float[Array, "k k"]) -> Float[Array, " m"]:
    """The entries i <= j, those off the diagonal times sqrt 2, so that dot products are traces of products."""
    rows, columns = pairs(matrix.shape[-1])
    return matrix[rows, columns] * _factors(matrix.shape[-1]).astype(matrix.dtype)


def smat(vector: Float[Array, " m"], k: int) -> Float[Array, "k k"]:
    """The symmetric matrix with this `svec`."""
    rows, columns = pairs(k)
    entries = vector / _factors(k).astype(vector.dtype)
    return jnp.zeros((k, k), vector.dtype).at[rows, columns].set(entries).at[columns, rows].set(entries)


def _factors(k: int) -> np.ndarray:
    rows, columns = pairs(k)
    return np.where(rows == columns, 1.0, np.sqrt(2.0))


def congruence(g: Float[Array, "k k"]) -> Float[Array, "m m"]:
    """The map X -> G X G^T between the `svec`s of symmetric matrices."""
    k = g.shape[-1]
    rows, columns = pairs(k)
    factors = _factors(k).astype(g.dtype)
    products = g[rows][:, rows] * g[columns][:, columns] + g[rows][:, columns] * g[columns][:, rows]
    return 0.5 * factors[:, None] * factors[None, :] * products


class Complementarity(NamedTuple):
    """X of the problem, its slack Y = A + B[X], and the steps that it took."""

    x: Float[Array, "k k"]
    y: Float[Array, "k k"]
    steps: Int[Array, ""]


class _Iterate(NamedTuple):
    x: Float[Array, "k k"]
    y: Float[Array, "k k"]
    gap: Float[Array, ""]
    residual: Float[Array, ""]
    steps: Int[Array, ""]


def solve(a: Float[Array, "k k"], b: Float[Array, "m m"], count: Int[Array, ""] | int | None = None) -> Complementarity:
    """X >= 0 with Y = A + B[X] >= 0 and <X, Y> = 0, for a symmetric A and a positive semidefinite B on `svec`s.

    X minimizes <X, B[X]>/2 + <A, X> over X >= 0, and is unique if B is definite. X = 0 where A >= 0, and -B^{-1}[A]
    where that is >= 0, both without iteration. Otherwise a primal-dual interior-point method takes Nesterov-Todd steps
    with Mehrotra's predictor: with G such that G^{-1} X G^{-T} = G^T Y G = V, diagonal, and dX = G D G^T,

        (I + G^T B[G . G^T] G) D = mu V^{-1} - V - G^T (A + B[X] - Y) G,

    whose matrix is never smaller than I, until the gap <X, Y> and the residual are below 1e-11 of the size of X (4e-6
    in single precision). Not finite where there is no solution: A has a negative eigenvalue, and B vanishes along it.

    With `count` the problem is that of the first rows and columns, so many, and X and Y are 0 in the others.
    """
    k, m = a.shape[-1], b.shape[-1]
    inner = np.arange(k) < (k if count is None else count)
    a, within = jnp.where(inner[:, None] & inner[None, :], a, 0.0), inner[pairs(k)[1]]
    b = jnp.where(within[:, None] & within[None, :], b, 0.0)
    tiny, rounding, unit = float(np.finfo(a.dtype).tiny), float(np.finfo(a.dtype).eps), jnp.eye(m, dtype=a.dtype)
    size_a, size_b = jnp.maximum(jnp.max(jnp.abs(a)), tiny), jnp.maximum(jnp.max(jnp.abs(b)), tiny)
    form = jnp.where(within[:, None], b / size_b, unit)
    # the others are those of a problem that is solved by X = 0
    scaled = svec(a / size_a + jnp.diag(jnp.where(inner, 0.0, 1.0).astype(a.dtype)))

    def apply(x: Array) -> Array:
        return smat(scaled + form @ svec(x), k)

    def step(now: _Iterate) -> _Iterate:
        # both in one call: the CPU's batched decompositions can wait for each other where they run side by side
        low, high = jnp.linalg.cholesky(jnp.stack([now.x, now.y]))
        _, v, right = jnp.linalg.svd(high.T @ low)
        g = (low @ right.T) / jnp.sqrt(v)
        act = congruence(g)
        factor = jax.scipy.linalg.cho_factor(jnp.eye(m, dtype=a.dtype) + act.T @ form @ act)
        missing = apply(now.x) - now.y
        off = g.T @ missing @ g

        def direction(target: Array) -> tuple[Array, Array, Array]:
            """D, its counterpart of Y, and the part of both that may be gone."""
            dx = smat(jax.scipy.linalg.cho_solve(factor, svec(target - off)), k)
            dy = target - dx
            return dx, dy, _longest_step(v, jnp.stack([dx, dy]))

        here = jnp.diag(v)
        dx, dy, far = direction(-here)
        affine = jnp.sum((here + far * dx) * (here + far * dy))
        mu = now.gap / k * jnp.maximum(0.1, jnp.maximum((affine / now.gap) ** 2, (1 - far) ** 2 / 2))
        dx, dy, far = direction(jnp.diag(mu / v) - here)
        moved = svec(far * g @ dx @ g.T)
        # of Y by the equation: G^{-T} (...) G^{-1} would lose the digits that the residual needs
        x, y = now.x + smat(moved, k), now.y + smat(form @ moved, k) + far * missing
        after = _Iterate(x, y, jnp.sum(x * y), jnp.max(jnp.abs(apply(x) - y)), now.steps + 1)
        # X or Y no longer definite by rounding: no step is better than the last
        lost = ~(jnp.isfinite(after.gap) & jnp.isfinite(after.residual))
        kept = now._replace(steps=jnp.full_like(now.steps, _STEPS))
        return jax.tree.map(lambda a, b: jnp.where(lost, a, b), kept, after)

    def unsolved(now: _Iterate) -> Array:
        allowed = max(_TOLERANCE, 30 * rounding) * jnp.maximum(1.0, jnp.max(jnp.abs(now.x)))
        return (now.steps < _STEPS) & ((now.gap > allowed) | (now.residual > allowed))

    rates, basis = jnp.linalg.eigh(form)
    full = smat(-basis @ ((basis.T @ jnp.where(within, scaled, 0.0)) / rates), k)
    full = jnp.where(jnp.all(jnp.isfinite(full)), full, -jnp.eye(k, dtype=a.dtype))
    lowest = jnp.linalg.eigvalsh(jnp.stack([a, full]))[:, 0]
    inactive = lowest[0] >= -10 * rounding * size_a
    known = inactive | (lowest[1] >= 0)
    x = jnp.eye(k, dtype=a.dtype) / jnp.maximum(rates[0], 1e-6)
    y = jnp.eye(k, dtype=a.dtype) * jnp.maximum(1.0, 1.5 * jnp.linalg.norm(apply(x)))
    gap, residual = jnp.where(known, 0.0, jnp.sum(x * y)), jnp.where(known, 0.0, jnp.inf)
    end = jax.lax.while_loop(unsolved, step, _Iterate(x, y, gap, residual, jnp.zeros((), jnp.int32)))
    size = max(_SOLVED, 3000 * rounding) * jnp.maximum(1.0, jnp.max(jnp.abs(end.x)))
    found = jnp.where((end.gap <= size) & (end.residual <= jnp.minimum(size, _SLACK)), end.x, jnp.nan)
    both = inner[:, None] & inner[None, :]
    found = jnp.where(inactive, 0.0, jnp.where(known, full, jnp.where(both, found, 0.0)))
    slack = jnp.where(known & ~inactive, 0.0, jnp.where(both, apply(found), 0.0))
    return Complementarity(found * (size_a / size_b), slack * size_a, end.steps)


def _longest_step(v: Float[Array, " k"], changes: Float[Array, "2 k k"]) -> Float[Array, ""]:
    """The part of two changes of diag(v) that keeps both positive, at most 1."""
    root = jnp.sqrt(v)
    lowest = jnp.min(jnp.linalg.eigvalsh(changes / (root[:, None] * root[None, :])))
    return jnp.where(lowest < -_TO_BOUNDARY, -_TO_BOUNDARY / lowest, 1.0)
