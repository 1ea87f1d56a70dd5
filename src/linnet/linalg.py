"""Matrix routines that several packages share."""

import operator
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from linnet._check import namespace, numpy_if_known

_T = TypeVar("_T")
# Up to this many multiplications a fused sum beats a library call on CPUs (4x at 5 x 10 x 5, break-even near 12**3).
_SMALL_PRODUCT = 2048
RANK_TOLERANCE = 1e-13  # singular values below this share of the largest are rounding
DENSE_SPECTRUM = 500  # parameters up to which eigenvalues of a Hessian come from the whole matrix
_DENSE = 1000  # unknowns up to which an eigenproblem is solved as a matrix


def triplets(matrix: Any) -> tuple[Any, Any, Any]:
    """The singular triplets of a known matrix that are not zero, descending.

    Without an SVD where the rows are s_i v_i^T already, as those of a regression's root.
    """
    sizes = np.linalg.norm(matrix, axis=1)
    if np.all(np.diff(sizes) <= 0):
        r = int(np.sum(sizes > RANK_TOLERANCE * sizes[0]))
        rows = matrix[:r] / sizes[:r, None]
        if np.allclose(rows @ rows.T, np.eye(r), rtol=0, atol=1e-13):
            return np.eye(len(matrix), r), sizes[:r], rows
    q, s, vt = np.linalg.svd(matrix, full_matrices=False)
    r = int(np.sum(s > RANK_TOLERANCE * s[0]))
    return q[:, :r], s[:r], vt[:r]


@numpy_if_known
def product(a: Float[Array, "m k"], b: Float[Array, "k n"]) -> Float[Array, "m n"]:
    """The matrix product; in a program without the cost of a library call when the matrices are small."""
    if namespace(a, b) is np:
        return a @ b
    if a.shape[0] * a.shape[1] * b.shape[1] <= _SMALL_PRODUCT:
        return jnp.sum(a[:, None, :] * b.T[None, :, :], axis=-1)
    return a @ b


@numpy_if_known
def transposed_product(a: Float[Array, "k m"], b: Float[Array, "k n"]) -> Float[Array, "m n"]:
    """a^T b. XLA's product of a transposed left factor runs at half speed on CPUs, so a large one is copied first."""
    if namespace(a, b) is np or a.shape[0] * a.shape[1] * b.shape[1] <= _SMALL_PRODUCT:
        return product(a.T, b)
    return jax.lax.optimization_barrier(a.T) @ b


def norm(xp: Any, vector: Float[Any, " d"]) -> Any:
    """The Euclidean norm, whose squares may leave the range of numbers."""
    largest = xp.max(xp.abs(vector), initial=0.0)
    unit = xp.where(largest > 0, largest, 1.0)
    return unit * xp.linalg.norm(vector / unit)


def asinh(xp: Any, x: Any, unit: Any) -> Any:
    """The inverse hyperbolic sine of x / unit, a quotient that may leave the range of numbers; unit > 0."""
    far = xp.abs(x) / 1e100 > unit
    logarithm = xp.log(xp.where(far, xp.abs(x), 1.0)) - xp.log(unit) + np.log(2)
    return xp.where(far, xp.sign(x) * logarithm, xp.arcsinh(xp.where(far, 0.0, x) / unit))


def below_and_above(
    layers: Sequence[_T], bottom: _T, top: _T, times: Callable[[_T, _T], _T] = operator.matmul
) -> tuple[list[_T], list[_T]]:
    """For each of W_1 ... W_L the products of those below and above it: W_{l-1} ... W_1 bottom and top W_L ... W_{l+1}.

    With identities at both ends these are the products themselves; `times` is the product, such as `operator.mul` for
    layers that are diagonals.
    """
    below, above = [bottom], [top]
    for layer in layers[:-1]:
        below.append(times(layer, below[-1]))
    for layer in reversed(layers[1:]):
        above.append(times(above[-1], layer))
    return below, above[::-1]


def layers_hessian(
    layers: Sequence[Float[np.ndarray, "rows columns"]],
    force: Float[np.ndarray, "d_out d_in"],
    gram: Float[np.ndarray, "d_in d_in"],
) -> Float[np.ndarray, "parameters parameters"]:
    """The dense Hessian of a cost of W_L ... W_1 in all layers, one after another, each by rows.

    The cost has the gradient `force` in the product and turns it by D `gram` where the product moves by D. The block of
    layers j > i is (A_j^T A_i) x (B_j gram B_i^T), and (A_j^T force B_i^T)_ad (W_{j-1} ... W_{i+1})_bc beside it, with
    A the products above a layer and B those below.
    """
    below, above = below_and_above(layers, np.eye(layers[0].shape[1]), np.eye(layers[-1].shape[0]))
    ends = np.cumsum([0, *(w.size for w in layers)])
    parts = [slice(*pair) for pair in pairwise(ends)]
    out = np.empty((ends[-1], ends[-1]))
    for j, w in enumerate(layers):
        stretched, between = below[j] @ gram, np.eye(w.shape[1])
        for i in range(j, -1, -1):
            a, b = above[j].T @ above[i], stretched @ below[i].T
            block = a[:, None, :, None] * b[None, :, None, :]
            if i < j:
                side = above[j].T @ force @ below[i].T
                block += side[:, None, None, :] * between[None, :, :, None]
                between = between @ layers[i]
            out[parts[j], parts[i]] = flat = block.reshape(w.size, -1)
            if i < j:
                out[parts[i], parts[j]] = flat.T
    return out


def blocks_of_values(xp: Any, y: Array, goal: Array) -> tuple[Array, Array]:
    """The Hessian of 1/2 |A - A_star|^2 for the k x k matrix network with aligned layer values, as exact blocks.

    One L x L block for each mode and one 2L x 2L block for each pair i < j (`observe.aligned_blocks`), in the array
    module `xp`, of any number of points at once.

    `y` is ... x L x k and `goal` ... x k.
    """
    depth, k = y.shape[-2:]
    # span[a, b] = prod_{a <= m < b} y_m for every mode, 1 where there is nothing between
    levels = np.arange(depth)
    factors = xp.where(levels[None, :, None] >= np.arange(depth + 1)[:, None, None], y[..., None, :, :], 1.0)
    nothing = xp.ones((*y.shape[:-2], depth + 1, 1, k), y.dtype)
    span = xp.concatenate([nothing, xp.cumprod(factors, axis=-2)], axis=-2)
    residual = span[..., 0, depth, :] - goal
    rows, columns = levels[:, None], levels[None, :]
    low, high = np.minimum(rows, columns), np.maximum(rows, columns)
    below, between, above = span[..., 0, low, :], span[..., low + 1, high, :], span[..., high + 1, depth, :]

    others = span[..., 0, levels, :] * span[..., levels + 1, depth, :]
    pairs_of_layers = xp.where((rows != columns)[..., None], below * between * above, 0.0)
    modes = others[..., :, None, :] * others[..., None, :, :] + residual[..., None, None, :] * pairs_of_layers

    i, j = np.triu_indices(k, 1)

    def coupling(p: np.ndarray, q: np.ndarray) -> Array:
        """Between dW_high[p,q] and dW_low[q,p]."""
        return residual[..., None, None, p] * above[..., p] * between[..., q] * below[..., p]

    def outer(p: np.ndarray, q: np.ndarray) -> Array:
        side = span[..., levels + 1, depth, :][..., p] * span[..., 0, levels, :][..., q]
        return side[..., :, None, :] * side[..., None, :, :]

    # rows: dW_l[i,j]; columns: dW_m[j,i]. Above the diagonal the roles of i and j are exchanged.
    left, right = (rows < columns)[..., None], (rows > columns)[..., None]
    cross = xp.where(right, coupling(i, j), xp.where(left, coupling(j, i), 0.0))
    top = xp.concatenate([outer(i, j), cross], axis=-2)
    bottom = xp.concatenate([xp.swapaxes(cross, -2, -3), outer(j, i)], axis=-2)
    return xp.moveaxis(modes, -1, -3), xp.moveaxis(xp.concatenate([top, bottom], axis=-3), -1, -3)


@numpy_if_known
def singular_values(a: Float[Array, "..."]) -> Float[Array, " k"]:
    """Singular values, descending; a vector stands for a diagonal matrix."""
    xp = namespace(a)
    return xp.sort(xp.abs(a))[::-1] if a.ndim == 1 else xp.linalg.svd(a, compute_uv=False)


def top_singular_values(
    a: Float[Array, "m n"], block: Float[Array, "side block"], count: int, tol: float = 1e-3, rounds: int = 200
) -> tuple[Float[Array, " count"], Float[Array, "side block"]]:
    """The `count` largest singular values by subspace iteration from an orthonormal `block`, and where it ends.

    `side` is the smaller of m and n. It ends when |A^T A v - s^2 v| <= tol s^2 for all of them, up to rounding, which
    leaves an error of the order of tol^2 in the values, or after so many rounds.
    """
    tall = a if a.shape[0] >= a.shape[1] else a.T
    rounding = 10 * float(np.finfo(a.dtype).eps)

    def improve(now: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        basis, _, _, turn = now
        image = tall.T @ (tall @ basis)
        squares, mixed = jnp.linalg.eigh(basis.T @ image)
        rotated = image @ mixed
        gap = jnp.linalg.norm(rotated - (basis @ mixed) * squares, axis=0)
        far = jnp.any((gap > tol * squares + rounding * squares[-1])[-count:])
        return jnp.linalg.qr(rotated)[0], squares, far, turn + 1

    begin = (block, jnp.zeros(block.shape[1], block.dtype), jnp.ones((), bool), jnp.zeros((), jnp.int32))
    basis, squares, _, _ = jax.lax.while_loop(lambda now: now[2] & (now[3] < rounds), improve, begin)
    return jnp.sqrt(jnp.maximum(squares[::-1][:count], 0.0)), basis


@numpy_if_known
def smallest_singular_value(a: Float[Array, "m n"]) -> Float[Array, ""]:
    """The smallest singular value above the rounding of the largest; infinite for zero."""
    xp = namespace(a)
    s = xp.linalg.svd(a, compute_uv=False)
    return xp.min(xp.where(s > RANK_TOLERANCE * s[0], s, xp.inf))


def top_of_products(pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> float:
    """The largest eigenvalue of E -> sum P E Q over pairs of symmetric matrices (P, Q), in NumPy."""
    n, m = pairs[0][0].shape[0], pairs[0][1].shape[0]
    if n * m <= _DENSE:
        return float(np.linalg.eigvalsh(sum(np.kron(p, q) for p, q in pairs))[-1])

    def apply(flat: np.ndarray) -> np.ndarray:
        e = flat.reshape(n, m)
        return np.asarray(sum(p @ e @ q for p, q in pairs)).ravel()

    return largest_eigenvalue(apply, n * m, tol=1e-10)


def largest_eigenvalue(product: Callable[[np.ndarray], np.ndarray], size: int, *, tol: float) -> float:
    """The largest eigenvalue of a symmetric matrix of this size that is known by its products, to a relative `tol`."""
    from scipy.sparse.linalg import LinearOperator, eigsh  # slow to load

    operator = LinearOperator((size, size), matvec=lambda v: product(np.ravel(v)), dtype=float)
    vector = np.random.default_rng(0).normal(size=size)  # fixed and generic: the answer must not depend on a seed
    return float(eigsh(operator, 1, which="LA", v0=vector, return_eigenvectors=False, tol=tol)[0])
