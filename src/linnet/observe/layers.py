"""Relations of neighboring layers: Gram matrices, balance, alignment."""

from functools import lru_cache
from itertools import pairwise

import jax.numpy as jnp
from jaxtyping import Array, Float

from linnet import _check
from linnet._check import InputError
from linnet.observe.observables import Observable, ObservationContext, context_observable, observable
from linnet.observe.spectra import layers_of, target_bases
from linnet.problems import Problem
from linnet.states import EndToEnd, Modes, Network, State, Weights, junctions


def grams(state: State) -> tuple[Float[Array, "d_in d_in"], Float[Array, "d_out d_out"]]:
    """C1 = W_1^T W_1 and C2 = W_L W_L^T; for an `EndToEnd` state, as its closure sees them.

    Of a `Network` those of the first and the last of its `layers`.
    """
    if isinstance(state, Weights | Network):
        first, last = state.layers[0], state.layers[-1]
        return first.T @ first, last @ last.T
    if isinstance(state, EndToEnd) and state.matrix.ndim == 2:
        return state.closure.grams(state.matrix)
    raise InputError(
        f"{type(state).__name__} has no Gram matrices here: use Weights, Network, or EndToEnd with a matrix."
    )


@observable("input", "input_")
def input_gram(state: State, problem: Problem) -> Float[Array, "d_in d_in"]:
    """C1 = W_1^T W_1"""
    return grams(state)[0]


@observable("output", "output_")
def output_gram(state: State, problem: Problem) -> Float[Array, "d_out d_out"]:
    """C2 = W_L W_L^T"""
    return grams(state)[1]


@observable("junction")
def imbalance(state: State, problem: Problem) -> Float[Array, " junctions"]:
    """Frobenius norm of W_l W_l^T - W_{l+1}^T W_{l+1} at each junction of layers"""
    if isinstance(state, Weights | Network) and len(state.layers) > 1:
        return jnp.stack([jnp.linalg.norm(defect) for defect in state.imbalance()])
    if isinstance(state, Modes):
        above, below = state.values[1:], state.values[:-1]
        return jnp.linalg.norm((above - below) * (above + below), axis=1)
    name = type(state).__name__
    raise InputError(f"{name} has no two layers to be balanced: use Weights, Modes or a Network of two or more.")


@observable("index")
def hidden_alignment(state: State, problem: Problem) -> Float[Array, " k"]:
    """Cosine between W_2^T u_i and W_1 v_i for each singular triplet of A, s_i / sqrt(u^T C2 u v^T C1 v)

    0 when lazy, 1 when the mode is balanced; 0 where the triplet vanishes.
    """
    c1, c2 = grams(state)
    if isinstance(state, Network):
        raise InputError("hidden alignment is about the matrix of a linear network, a Network has none: use Weights.")
    if isinstance(state, Weights) and state.depth != 2:
        raise InputError(f"hidden alignment is for two layers: this network has {state.depth}.")
    u, s, vt = jnp.linalg.svd(state.matrix, full_matrices=False)
    lengths = jnp.sqrt(jnp.einsum("ik,ij,jk->k", u, c2, u)) * jnp.sqrt(jnp.einsum("ki,ij,kj->k", vt, c1, vt))
    return s / jnp.where(lengths > 0, lengths, jnp.inf)


@lru_cache
def misalignment(rank: int) -> Observable:
    """Misalignment x = 4K - sum over blocks |U_k + V_k|_F^2, from 0 (aligned) to 4K (mixed dynamics, Def. C.1).

    U_k and V_k are the blocks, at equal singular values of the truth, of A's top K = `rank` singular vectors in the
    truth's bases. Joint signs and joint rotations inside a block do not matter.
    """
    rank = _check.integer("rank", rank, least=1)

    def preparation(problem: Problem, initial: State) -> tuple[Array, Array, Array]:
        truth = problem.truth
        if truth.ndim != 2 or rank > min(truth.shape):
            raise InputError(f"rank = {rank} is not allowed: the truth has shape {truth.shape}.")
        u, s, vt = jnp.linalg.svd(truth, full_matrices=False)
        level = s[:rank]
        same = jnp.abs(level[:, None] - level[None, :]) <= 1e-9 * level[0]
        return u[:, :rank], vt[:rank].T, same.astype(u.dtype)

    def function(context: ObservationContext) -> Float[Array, ""]:
        """Misalignment x of A with the truth, from 0 to 4K"""
        left, right, same = context.prepared
        u, _, vt = jnp.linalg.svd(context.state.matrix, full_matrices=False)
        both = left.T @ u[:, :rank] + right.T @ vt[:rank].T
        return jnp.maximum(4 * rank - jnp.sum(same * both**2), 0.0)

    return Observable(f"misalignment_{rank}", function, (), preparation)


@lru_cache
def subspace_distance(rank: int) -> Observable:
    """|U_{l-1,r}^T V_{l,r} - I|_F for l = 2..L with the signs of columns fixed (edge of stability, section 2).

    U_{l,r} and V_{l,r} are the first r = `rank` singular vectors of W_l. One number for each junction of layers.
    """
    rank = _check.integer("rank", rank, least=1)

    def function(state: State, problem: Problem) -> Float[Array, " junctions"]:
        """Distance of the top singular subspaces of neighboring layers, signs fixed"""
        out = []
        for overlap in _overlaps(state, "rank", rank):
            signed = overlap * jnp.where(jnp.diagonal(overlap) < 0, -1.0, 1.0)
            out.append(jnp.linalg.norm(signed - jnp.eye(rank, dtype=signed.dtype)))
        return jnp.stack(out)

    return Observable.from_function(f"subspace_distance_{rank}", function, ("junction",))


@lru_cache
def layer_alignment(count: int) -> Observable:
    """|V_k^T U_k|_F^2 / k at each junction: the overlap of a layer's top outputs with the next layer's top inputs.

    U_k spans the `count` = k top left singular vectors of W_l, V_k the top right ones of W_{l+1}: 1 if they are one
    space, about k/width if they know nothing of each other. Take the number of outputs for k; a single vector jumps
    where singular values cross. It costs an SVD of each layer, no gradient.
    """
    count = _check.integer("count", count, least=1)

    def function(state: State, problem: Problem) -> Float[Array, " junctions"]:
        """Share of the top left singular space of a layer in the top right one of the next"""
        return jnp.stack([jnp.sum(overlap**2) / count for overlap in _overlaps(state, "count", count)])

    return Observable.from_function(f"layer_alignment_{count}", function, ("junction",))


def _overlaps(state: State, name: str, rank: int) -> list[Float[Array, "rank rank"]]:
    """U_{l,r}^T V_{l+1,r} at each junction of layers."""
    if not isinstance(state, Weights | Network):
        raise InputError(f"{type(state).__name__} has no layers with singular vectors: use Weights or Network.")
    junctions(state.layers)
    narrowest = min(min(layer.shape) for layer in state.layers)
    if rank > narrowest:
        raise InputError(f"{name} = {rank} is not allowed: the narrowest width is {narrowest}.")
    triplets = [jnp.linalg.svd(w, full_matrices=False) for w in state.layers]
    return [u[:, :rank].T @ vt[:rank].T for (u, _, _), (_, _, vt) in pairwise(triplets)]


def _initial_layers(problem: Problem, initial: State) -> tuple[Array, ...]:
    return layers_of(initial, "balance")


@context_observable("junction", preparation=_initial_layers)
def balance_drift(context: ObservationContext) -> Float[Array, " junctions"]:
    """|B_l - B_l(0)|_F / |W_l W_l^T|_F with B_l = W_l W_l^T - W_{l+1}^T W_{l+1}, at each junction of layers

    Always 0 under the gradient flow of a linear network, and for the diagonals with relu between layers; a finite
    step breaks it. It costs a product of matrices for each layer, no gradient.
    """
    layers = layers_of(context.state, "balance")
    out = []
    for (below, above), (below0, above0) in zip(junctions(layers), junctions(context.prepared), strict=True):
        drift = _gram_change(above.T, above0.T) - _gram_change(below, below0)
        out.append(jnp.linalg.norm(drift) / jnp.linalg.norm(below @ below.T if below.ndim == 2 else below**2))
    return jnp.stack(out)


def _gram_change(new: Array, old: Array) -> Array:
    """W W^T - V V^T of differences, so that a small drift keeps its digits; squares of the values of `Modes`."""
    if new.ndim == 1:
        return (new - old) * (new + old)
    return (new - old) @ new.T + old @ (new - old).T


@context_observable("output_mode", "input_mode", preparation=target_bases)
def rotated(context: ObservationContext) -> Float[Array, "k k"]:
    """U^T A V in the truth's singular vectors: modes on the diagonal, cross components off it"""
    if context.prepared is None:
        return jnp.diag(context.state.matrix)
    u, v = context.prepared
    return u.T @ context.state.matrix @ v
