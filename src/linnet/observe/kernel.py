"""The tangent kernel Theta = J J^T as an operator on the entries of A: its spectrum and how far it drifts.

Data and output scales are the problem's and do not enter.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from linnet._check import InputError
from linnet.observe.observable import observable
from linnet.problems import Problem
from linnet.states import State, Weights

DENSE_KERNEL = 4096  # entries of A up to which Theta is formed as a matrix


def kernel_matrix(state: State) -> Float[Array, "entries entries"]:
    """Theta as a matrix on the entries of A (row by row)."""
    shape = state.matrix.shape
    entries = state.matrix.size
    if entries > DENSE_KERNEL:
        raise InputError(f"A has {entries} entries: the dense tangent kernel is for at most {DENSE_KERNEL}.")
    basis = jnp.eye(entries).reshape(entries, *shape)
    return jax.vmap(state.tangent)(basis).reshape(entries, entries).T


def _factors(state: Weights) -> list[tuple[Array, Array]]:
    """Theta(G) = sum_l L_l G R_l, L_l = (W_L..W_{l+1})(..)^T and R_l = (W_{l-1}..W_1)^T(..)."""
    d_in, d_out = state.widths[0], state.widths[-1]
    below = [jnp.eye(d_in), *(p.T @ p for p in state.prefixes()[:-1])]
    left = jnp.eye(d_out)
    above = [left]
    for w in reversed(state.layers[1:]):
        left = left @ w
        above.append(left @ left.T)
    return list(zip(reversed(above), below, strict=True))


@observable("index")
def kernel_spectrum(state: State, problem: Problem) -> Float[Array, " entries"]:
    """Eigenvalues of the tangent kernel, descending

    Two layers: all sums lambda_i(C2) + lambda_j(C1); otherwise from the dense kernel.
    """
    if isinstance(state, Weights) and state.depth == 2:
        w1, w2 = state.layers
        first = jnp.linalg.eigvalsh(w1.T @ w1)
        second = jnp.linalg.eigvalsh(w2 @ w2.T)
        return jnp.sort((second[:, None] + first[None, :]).ravel(), descending=True)
    return jnp.linalg.eigvalsh(kernel_matrix(state))[::-1]


def _start(problem: Problem, start: State) -> State:
    return start


@observable(preparation=_start)
def kernel_drift(state: State, problem: Problem, start: State) -> Float[Array, ""]:
    """Relative change |Theta - Theta_0|_F / |Theta_0|_F of the tangent kernel since the start of the run"""
    if not (isinstance(state, Weights) and isinstance(start, Weights)):
        initial = kernel_matrix(start)
        return jnp.linalg.norm(kernel_matrix(state) - initial) / jnp.linalg.norm(initial)
    # Theta - Theta_0 as a sum of products with one small factor each, so that small drifts keep their digits
    now, then = _factors(state), _factors(start)
    change = []
    for (left, right), (left0, right0) in zip(now, then, strict=True):
        change += [(left - left0, right), (left0, right - right0)]
    return jnp.sqrt(jnp.maximum(_square(change), 0.0) / _square(then))


def _square(terms: list[tuple[Array, Array]]) -> Float[Array, ""]:
    """|sum_l L_l x R_l|_F^2 from traces of small matrices."""
    lefts = jnp.stack([left for left, _ in terms]).reshape(len(terms), -1)
    rights = jnp.stack([right for _, right in terms]).reshape(len(terms), -1)
    return jnp.sum((lefts @ lefts.T) * (rights @ rights.T))
