"""Curvature of the training cost in the weights: exact products, dense and Lanczos spectra, exact blocks."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from linnet import _check
from linnet._check import InputError
from linnet.observe.observable import Observable, observable
from linnet.problems import Factorisation, Problem
from linnet.states import EndToEnd, Modes, State

DENSE_HESSIAN = 3000  # parameters up to which the Hessian is formed as a matrix
DENSE_SHARPNESS = 150  # below this a dense eigenproblem is cheaper than Lanczos


def _flat(state: Any) -> tuple[Array, Callable[[Array], Any]]:
    flat, back = ravel_pytree(state)
    return flat, back


def hessian_product(state: State, problem: Problem, direction: Any) -> Any:
    """The Hessian of the cost in the state's coordinates applied to a direction (a state), exactly."""
    if isinstance(state, EndToEnd):
        raise InputError("EndToEnd has no weights, so no Hessian: use Weights or Modes.")
    return jax.tree.map(jnp.negative, jax.jvp(lambda s: s.velocity(problem), (state,), (direction,))[1])


def hessian_matrix(state: State, problem: Problem) -> Float[Array, "parameters parameters"]:
    """The dense Hessian, coordinates in the order of `jax.flatten_util.ravel_pytree(state)`."""
    flat, back = _flat(state)
    if flat.size > DENSE_HESSIAN:
        raise InputError(f"the state has {flat.size} parameters: the dense Hessian is for at most {DENSE_HESSIAN}.")
    product: Callable[[Array], Array] = jax.vmap(lambda v: _flat(hessian_product(state, problem, back(v)))[0])
    h = product(jnp.eye(flat.size, dtype=flat.dtype))
    return (h + h.T) / 2


@observable("index")
def hessian_spectrum(state: State, problem: Problem) -> Float[Array, " parameters"]:
    """All eigenvalues of the Hessian, descending (dense)"""
    return jnp.linalg.eigvalsh(hessian_matrix(state, problem))[::-1]


@lru_cache
def top_hessian(count: int = 1, matvecs: int | None = None) -> Observable:
    """The `count` largest distinct Hessian eigenvalues by Lanczos with `matvecs` Hessian products (dense if small).

    By default 20 + 60 `count` products: clustered eigenvalues need more. One Krylov space sees each multiple eigenvalue
    once; dense spectra repeat it.
    """
    count = _check.integer("count", count, least=1)
    matvecs = _check.integer("matvecs", 20 + 60 * count if matvecs is None else matvecs, least=count)

    def function(state: State, problem: Problem) -> Float[Array, " count"]:
        """Largest Hessian eigenvalues, descending"""
        flat, back = _flat(state)
        if count > flat.size:
            raise InputError(f"count = {count} is not allowed: the state has {flat.size} parameters.")
        if flat.size <= max(DENSE_SHARPNESS, matvecs):
            return jnp.linalg.eigvalsh(hessian_matrix(state, problem))[::-1][:count]
        return ritz_values(lambda v: _flat(hessian_product(state, problem, back(v)))[0], flat, matvecs)[:count]

    return Observable(f"top_hessian_{count}", function, ("index",))


def ritz_values(
    product: Callable[[Array], Array], like: Float[Array, " parameters"], matvecs: int
) -> Float[Array, " matvecs"]:
    """What so many Lanczos steps know of the eigenvalues of a symmetric map of vectors `like` this one, descending."""
    from matfree import decomp  # the one place that needs it

    # a fixed generic start: curvature must not depend on a seed
    first = jax.random.normal(jax.random.key(0), like.shape, dtype=like.dtype)
    return _cut_values(decomp.tridiag_sym(matvecs, materialize=True)(product, first)[1])


def _cut_values(tridiagonal: Float[Array, "m m"]) -> Float[Array, " m"]:
    """Eigenvalues of a Lanczos matrix, descending, without what follows an exhausted Krylov space.

    Once a coupling is tiny the space is invariant and all further entries are amplified rounding. Cutting there costs
    the square of the coupling; the values that are then missing repeat the smallest one.
    """
    diagonal, coupling = jnp.diagonal(tridiagonal), jnp.abs(jnp.diagonal(tridiagonal, 1))
    scale = jax.lax.cummax(jnp.maximum(jnp.abs(diagonal[:-1]), coupling))
    alive = jnp.concatenate(
        [jnp.ones(1, bool), jnp.cumprod(coupling > float(np.sqrt(np.finfo(coupling.dtype).eps)) * scale).astype(bool)]
    )
    both = alive[:, None] & alive[None, :]
    floor = -3 * jnp.max(jnp.where(both, jnp.abs(tridiagonal), 0.0)) - 1  # below every true value
    cut = jnp.where(both, tridiagonal, 0.0) + jnp.diag(jnp.where(alive, 0.0, floor))
    values = jnp.linalg.eigvalsh(cut)[::-1]
    return jnp.maximum(values, values[jnp.sum(alive) - 1])


@observable()
def sharpness(state: State, problem: Problem) -> Float[Array, ""]:
    """Sharpness: the largest eigenvalue of the Hessian"""
    return top_hessian().function(state, problem)[0]


def aligned_blocks(
    state: Modes, problem: Factorisation
) -> tuple[Float[Array, "k depth depth"], Float[Array, "pairs 2*depth 2*depth"]]:
    """The Hessian of the k x k matrix network with these aligned layer values, as exact blocks.

    One L x L block for each mode and one 2L x 2L block for each pair i < j, whose unknowns are dW_l[i,j], l = 1..L,
    then dW_l[j,i] (edge of stability, Lemma 1 off the minimum). `problem` is the vector problem of the modes.
    """
    if not isinstance(state, Modes) or not isinstance(problem, Factorisation) or len(problem.shape) != 1:
        raise InputError("aligned blocks need Modes and a vector factorisation: use problem.aligned().")
    modes, pairs = blocks_of_values(jnp, state.values, problem.goal)
    return problem.scale * modes, problem.scale * pairs


def blocks_of_values(xp: Any, y: Array, goal: Array) -> tuple[Array, Array]:
    """`aligned_blocks` for the loss 1/2 |A - A_star|^2, in the array module `xp`, of any number of points at once.

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


@observable("index")
def aligned_spectrum(state: Modes, problem: Factorisation) -> Float[Array, " parameters"]:
    """All Hessian eigenvalues of the aligned matrix network, descending, from its exact blocks"""
    modes, pairs = aligned_blocks(state, problem)
    parts = [jnp.linalg.eigvalsh(modes).ravel(), jnp.linalg.eigvalsh(pairs).ravel()]
    return jnp.sort(jnp.concatenate(parts), descending=True)


@observable()
def aligned_sharpness(state: Modes, problem: Factorisation) -> Float[Array, ""]:
    """Sharpness of the aligned matrix network, from its exact blocks"""
    modes, pairs = aligned_blocks(state, problem)
    largest = jnp.max(jnp.linalg.eigvalsh(modes))
    return jnp.maximum(largest, jnp.max(jnp.linalg.eigvalsh(pairs))) if pairs.shape[0] else largest
