"""Initializations: where a network starts.

Wide two-layer starts are drawn compressed, from the exact distribution of the network that `Weights.compress` would
give: the width is a number and no array of that width ever exists.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from linnet import _check
from linnet._check import InputError, KeyLike, known, namespace
from linnet._random import bartlett, haar, keys, normal, sampler, signs, split, stream, uniform
from linnet.problems import Factorization, Problem, Regression
from linnet.states import Modes, RankOne, Weights, balance_exists


def gaussian(
    key: KeyLike,
    problem: Problem | tuple[int, int],
    width: float | Sequence[int],
    variance: float | Sequence[float],
) -> Weights:
    """Independent N(0, variance) weights; one variance, or one a layer. `problem` may be its shape (d_out, d_in).

    A number as `width` means two layers, drawn compressed: the R factor of [W_1, W_2^T] is Bartlett's, with
    min(width, d_in + d_out) neurons, any width >= 1. A traced width gives d_in + d_out neurons, of which those beyond
    the width are zero. A sequence means the hidden widths of a deeper network, drawn in full.
    """
    d_out, d_in = _matrix(problem)
    random = _check.key("key", key)
    if isinstance(width, Sequence) and not isinstance(width, str):
        widths = (d_in, *_hidden(width), d_out)
        _drawn(widths)
        deviations = _deviations(variance, len(widths) - 1)
        return Weights(_normal_layers(random, deviations, widths))
    deviations = _deviations(variance, 2)
    total = d_in + d_out
    neurons = _width(width, total)
    _check.fits("width", width, 3 * neurons * total, f"{neurons} neurons of {total} weights, the compressed network,")
    drawn = _factor(random, _check.number("width", width, least=1), neurons, total)
    _, (r, first, second) = known(drawn, *deviations)
    return Weights((first * r[:, :d_in], second * r[:, d_in:].T), compressed=True)


@sampler("widths")
def _normal_layers(key: Any, deviations: Sequence[Array], widths: tuple[int, ...]) -> list[Array]:
    """Normal layers between these widths."""
    layers = zip(deviations, keys(key, "gaussian", len(deviations)), pairwise(widths), strict=True)
    return [s * normal(k, (above, below)) for s, k, (below, above) in layers]


@sampler("neurons", "total")
def _factor(key: Any, width: Array, neurons: int, total: int) -> Array:
    """[W_1, W_2^T] of two normal layers, compressed."""
    return bartlett(stream(key, "gaussian"), width, neurons, total)


def readout(
    key: KeyLike, problem: Problem, width: float | Sequence[int], *, sigma0: float | Array, v0: float | Array
) -> Weights:
    """W_1 ~ N(0, sigma0^2), W_2 = +-v0 with random signs, one output (feature learning, section 3.3).

    A number as `width` draws it compressed: the neurons are rotated so that W_2 = v0 sqrt(width) e_1, and W_1 is one
    Gaussian row above a Bartlett factor of width - 1 rows. The law of every rotation-invariant quantity is exact;
    it depends on the samples through X X^T alone, so `problem` may hold any inputs with that Gram matrix. A sequence
    of one width draws every neuron.
    """
    d_out, d_in = _matrix(problem)
    if d_out != 1:
        raise InputError(f"the problem has d_out = {d_out}: a +-v0 readout has one output.")
    numbers = _check.number("sigma0", sigma0, least=0), _check.number("v0", v0, above=0)
    random = _check.key("key", key)
    if isinstance(width, Sequence) and not isinstance(width, str):
        if len(width) != 1:
            raise InputError(
                f"width = {_check.show(width)} is not allowed: a readout initialization has one hidden layer."
            )
        (neurons,) = _hidden(width)
        _drawn((d_in, neurons, 1))
        return Weights(_signs(random, *numbers, neurons, d_in))
    rest = _width(width, d_in + 1) - 1
    _check.fits("width", width, 3 * rest * d_in, f"{rest + 1} neurons of {d_in + 1} weights, the compressed network,")
    layers = _readout(random, _check.number("width", width, least=1), *numbers, rest, d_in)
    return Weights(layers, compressed=True)


@sampler("neurons", "d_in")
def _signs(key: Any, sigma0: Array, v0: Array, neurons: int, d_in: int) -> tuple[Array, Array]:
    """Normal neurons below random signs."""
    first, second = keys(key, "readout", 2)
    return sigma0 * normal(first, (neurons, d_in)), v0 * signs(second, (1, neurons))


@sampler("rest", "d_in")
def _readout(key: Any, width: Array, sigma0: Array, v0: Array, rest: int, d_in: int) -> tuple[Array, Array]:
    """The same, compressed: one neuron, and the rest of them below it."""
    row, below = keys(key, "readout", 2)
    rows = [normal(row, (1, d_in))]
    if rest:
        rows.append(bartlett(below, width - 1, rest, d_in))
    xp = namespace(width)
    second = v0 * xp.sqrt(width) * np.eye(1, rest + 1)
    return sigma0 * xp.concatenate(rows), second


def i_gamma(problem: Problem, gamma: float, *, width: int | None = None, key: KeyLike | None = None) -> Weights:
    """W_1 = sqrt(2 gamma) Q with orthonormal columns, W_2 = 0 (spectral bias, section 2).

    Without a key the frame Q is rotated away: d_in neurons, exactly the same A as for any width. With a key, Q is a
    Haar frame of `width` >= d_in neurons in full.

    >>> import linnet as ln
    >>> network = ln.init.i_gamma(ln.factorization([[2.0, 0.0], [0.0, 1.0]]), gamma=0.5)
    >>> [layer.tolist() for layer in network.layers]
    [[[1.0, 0.0], [0.0, 1.0]], [[0.0, 0.0], [0.0, 0.0]]]
    """
    d_out, d_in = _matrix(problem)
    xp, (gamma,) = known(_check.number("gamma", gamma, above=0))
    scale = xp.sqrt(2 * gamma)
    w = d_in if width is None else _check.integer("width", width, least=d_in, reason="d_in: the frame needs it")
    neurons = d_in if key is None else w
    _check.fits("width", neurons, neurons * (3 * d_in + d_out), f"a frame of {neurons} x {d_in}")
    if key is None:
        if w > d_in:
            raise InputError(
                f"width = {w} is not allowed: without a key there are d_in = {d_in} neurons, and A is that of any "
                "width; give a key for all of them."
            )
        return Weights((_times(scale, np.eye(d_in)), np.zeros((d_out, d_in))))
    return Weights((_times(scale, haar(stream(_check.key("key", key), "i_gamma"), w, d_in)), np.zeros((d_out, w))))


def propagator(problem: Problem) -> Weights:
    """Phi = I, the start of the flow map of the pure-noise process: d_in + d_out neurons, W_1^T over W_2 the identity.

    Noise moves the stack S = [W_1^T; W_2] from the left, so S(t) = Phi(t) S(0) with one Phi(t) for all starts and
    widths: `state.propagated(phi)` is where the network `state` has moved.
    """
    d_out, d_in = _matrix(problem)
    _check.fits("d_in + d_out", d_in + d_out, 2 * (d_in + d_out) ** 2, "a matrix of that size")
    eye = np.eye(d_in + d_out)
    return Weights((eye[:, :d_in], eye[d_in:]))


def balanced(matrix: Any, hidden: Sequence[int], *, rank: int | None = None, key: KeyLike | None = None) -> Weights:
    """Balanced layers with the given end-to-end matrix: W_{l+1}^T W_{l+1} = W_l W_l^T (nonlocal, Definition 10).

    `hidden` are the hidden widths, each at least the rank of the matrix. Inner frames are coordinate vectors, or Haar
    frames with a key. `rank` defaults to the number of singular values above 1e-12 of the largest.
    """
    a = _check.array("matrix", matrix, ndim=2)
    widths = _widths(hidden)
    _drawn((a.shape[1], *widths, a.shape[0]))
    xp, (a,) = known(a)
    u, s, vt = xp.linalg.svd(a, full_matrices=False)
    if rank is None and _check.traced(s):
        raise InputError("rank is missing: give it when the matrix is traced.")
    needed = 1 if _check.traced(s) else max(1, int(np.sum(s > 1e-12 * s[0])))
    rank = _check.integer(
        "rank",
        needed if rank is None else rank,
        least=needed,
        most=min(a.shape),
        reason="the rank of the matrix or more",
    )
    if widths and rank > min(widths):
        raise InputError(
            f"matrix has rank {rank}: hidden widths must be at least that, and the smallest is {min(widths)}."
        )
    return _balanced(u[:, :rank], s[:rank], vt[:rank], _frames(key, widths, rank))


def _frames(key: Any, widths: Sequence[int], rank: int) -> list[Any]:
    """Orthonormal frames of the hidden layers: coordinate vectors, or Haar with a key."""
    if key is None:
        return [np.eye(w, rank) for w in widths]
    drawn = keys(_check.key("key", key), "balanced", len(widths))
    return [haar(k, w, rank) for k, w in zip(drawn, widths, strict=True)]


def _balanced(u: Any, s: Any, vt: Any, frames: Sequence[Any]) -> Weights:
    """W_l = Q_l S^{1/L} Q_{l-1}^T."""
    _, (u, s, vt, *frames) = known(u, s, vt, *frames)
    root = s ** (1 / (len(frames) + 1))
    return Weights([(above * root) @ below.T for below, above in pairwise([vt.T, *frames, u])])


def critical(problem: Problem, hidden: Sequence[int], kept: Sequence[int], *, key: KeyLike | None = None) -> Weights:
    """The balanced critical point that has learned the `kept` modes (numbered from 1) and no other.

    A is the sum of these modes of the least-squares fit (`problem.fit`): singular triplets of the target, or, for a
    regression on any data (n < d_in allowed), of the projection of Y onto the range of X. Then col(A) is orthogonal to
    G = dC/dA and row(A) too, so all gradients of balanced layers vanish. At most min(hidden, d_in, d_out) modes.
    Inner frames are coordinate vectors, or Haar frames with a key; `gauge` leads to critical points out of balance.
    """
    d_out, d_in = _matrix(problem)
    if not isinstance(problem, Factorization | Regression):
        raise InputError(
            f"problem = {type(problem).__name__} is not allowed: critical points by modes need a factorization or a "
            "regression."
        )
    widths, fit = _widths(hidden), problem.fit()
    _drawn((d_in, *widths, d_out))
    chosen = _check.modes("kept", kept, known=fit.rank, most=min(d_out, d_in, *widths))
    rank = max(1, len(chosen))
    u, s, vt = np.linalg.svd(np.asarray(fit.matrix(chosen)), full_matrices=False)
    return _balanced(u[:, :rank], s[:rank], vt[:rank], _frames(key, widths, rank))


def gauge(key: KeyLike, state: Weights, *, spread: float = 30.0) -> Weights:
    """The same A and, at a critical point, still a critical point, in other bases: W_l -> g_l W_l g_{l-1}^{-1}.

    The g_l of the hidden layers have Haar singular vectors and log-uniform singular values from spread^{-1/2} to
    spread^{1/2}: a condition number of up to `spread` each.
    """
    if not isinstance(state, Weights):
        raise InputError(f"state = {_check.show(state)} is not allowed: a change of basis needs Weights.")
    size = math.log(_check.real("spread", spread, least=1)) / 2
    widest = max(state.widths[1:-1], default=1)
    _check.fits("width", widest, 6 * widest**2, f"changes of basis of {widest} x {widest}")
    layers = [np.asarray(w) for w in state.layers]
    for i, k in enumerate(keys(_check.key("key", key), "gauge", state.depth - 1)):
        u, v, values = (np.asarray(x) for x in _basis(k, layers[i].shape[0]))
        s = np.exp(size * values)
        layers[i], layers[i + 1] = (u * s) @ (v.T @ layers[i]), (layers[i + 1] @ v) / s @ u.T
    return Weights(layers, compressed=state.compressed)


@sampler("d")
def _basis(key: Any, d: int) -> tuple[Array, Array, Array]:
    """Haar singular vectors, and numbers from -1 to 1."""
    left, right, values = split(key, 3)
    return haar(left, d, d), haar(right, d, d), uniform(values, (d,), -1.0, 1.0)


def identity(problem: Problem, alpha: float, depth: int) -> Weights | Modes:
    """Every layer alpha times the identity (all values alpha for a diagonal network)."""
    alpha, depth, d = _deep(problem, alpha, depth)
    if len(problem.shape) == 1:
        return Modes(_times(alpha, np.ones((depth, d))))
    return Weights([_times(alpha, np.eye(d))] * depth)


def one_zero(problem: Problem, alpha: float, depth: int) -> Weights | Modes:
    """Layers alpha I in every layer but the last, which is zero (edge of stability, section 2)."""
    alpha, depth, d = _deep(problem, alpha, depth)
    if len(problem.shape) == 1:
        return Modes(_times(alpha, np.append(np.ones((depth - 1, d)), np.zeros((1, d)), axis=0)))
    return Weights([*[_times(alpha, np.eye(d))] * (depth - 1), np.zeros((d, d))])


def orthogonal(key: KeyLike, problem: Problem, alpha: float, depth: int) -> Weights:
    """Layers alpha times Haar orthogonal matrices in every layer but the last, which is zero."""
    alpha, depth, d = _deep(problem, alpha, depth)
    _matrix(problem)
    drawn = keys(_check.key("key", key), "orthogonal", depth)[:-1]
    return Weights([*(_times(alpha, haar(k, d, d)) for k in drawn), np.zeros((d, d))])


def random_one_zero(key: KeyLike, problem: Problem, alpha: float, depth: int) -> Weights:
    """Layers alpha times standard normal matrices in every layer but the last, which is zero."""
    alpha, depth, d = _deep(problem, alpha, depth)
    _matrix(problem)
    drawn = keys(_check.key("key", key), "random_one_zero", depth)[:-1]
    return Weights([*(_times(alpha, normal(k, (d, d))) for k in drawn), np.zeros((d, d))])


def rank_one(key: KeyLike, problem: Problem, scale: float, depth: int, *, alignment: float | None = None) -> RankOne:
    """Balanced layers of rank one, A = scale z_1 u v^T, with z_1 the largest singular value of the target.

    The directions u and v are uniformly random, or with `alignment` random among those whose cosines with the target's
    first singular vectors have this product (uneven cosines if it is not positive: equal ones would never reach the
    target). They are drawn in NumPy, without a compiler, so the key must not be traced.

    Raises:
        InputError: if one input and one output leave no such alignment, or the key or the target is traced.

    """
    depth, scale = _check.integer("depth", depth, least=2), _check.real("scale", scale, least=1e-100, most=1e100)
    z, random = problem.target, _check.key("key", key)
    _matrix(problem)
    if _check.traced((z, random)):
        raise InputError("the key or the problem is traced: this initialization is drawn outside of JAX.")
    p, values, qt = np.linalg.svd(np.asarray(z))
    rng = np.random.default_rng(np.asarray(jax.random.key_data(random))[::-1])
    sides = [rng.normal(size=(d,)) for d in z.shape]
    if alignment is not None:
        c = _check.real("alignment", alignment, least=-1, most=1)
        one = [d == 1 for d in z.shape]
        if all(one) and abs(c) < 1:
            raise InputError(f"alignment = {c:g} is not allowed here: one input and one output are aligned by +-1.")
        first = 1.0 if one[0] else abs(c) if one[1] else math.sqrt(c) if c > 0 else abs(c) ** (1 / 3)
        for side, cosine in zip(sides, (math.copysign(first, c), abs(c) / first if first else 0.5), strict=True):
            side[0] = 0.0
            size = float(np.linalg.norm(side))
            side *= math.sqrt(max(0.0, 1 - cosine**2)) / (size or 1.0)
            side[0] = cosine
    return RankOne.balanced(scale * float(values[0]), p @ sides[0], qt.T @ sides[1], depth)


def aligned(problem: Problem, values: Any, *, key: KeyLike | None = None) -> Weights:
    """Layers that share the target's singular vectors, with layer values `values` (depth x modes, signed).

    W_L = U D_L Q_L^T, W_l = Q_{l+1} D_l Q_l^T, W_1 = Q_2 D_1 V^T; the Q_l are identities, or Haar with a key. `Modes`
    with the same values on `problem.aligned()` moves exactly like it.
    """
    _matrix(problem)
    xp, (target,) = known(problem.target)
    u, _, vt = xp.linalg.svd(target, full_matrices=False)
    weights = Modes(values).weights(u, vt.T)
    if key is None or weights.depth == 1:
        return weights
    k = weights.layers[0].shape[0]
    drawn = [haar(q, k, k) for q in keys(_check.key("key", key), "aligned", weights.depth - 1)]
    _, ((first, *middle, last), turns) = known(weights.layers, drawn)
    rotated = [up @ w @ down.T for down, up, w in zip(turns, turns[1:], middle, strict=False)]
    return Weights((turns[0] @ first, *rotated, last @ turns[-1].T))


def mixed_manifold(matrix: Any, c: Any) -> Weights:
    """Two layers with end-to-end matrix A and Q J Q = c^2 J, Q the Gram matrix of [W_1, W_2^T] (`mixed/C4`).

    Then C1 = sqrt(A^T A + c^2), C2 = sqrt(A A^T + c^2) always under gradient flow: `Mixed(c)` is exact. d_in + d_out
    neurons: for each singular triplet the pair sqrt(p/2) (v, u), sqrt(c^2/(2p)) (v, -u) with p = s + hypot(s, c).
    """
    a = _check.array("matrix", matrix, ndim=2)
    c = _check.number("c", c, above=0)
    xp, (a, c) = known(a, c)
    d_out, d_in = a.shape
    _check.fits("matrix", a, 3 * (d_out + d_in) ** 2, f"{d_in + d_out} neurons of as many weights")
    u, s, vt = xp.linalg.svd(a, full_matrices=True)
    r = min(d_out, d_in)
    p = s + xp.hypot(s, c)
    plus, minus = xp.sqrt(p / 2)[:, None], (c / xp.sqrt(2 * p))[:, None]
    first = xp.concatenate([plus * vt[:r], minus * vt[:r], xp.sqrt(c) * vt[r:], np.zeros((d_out - r, d_in))])
    second = xp.concatenate([plus * u.T[:r], -minus * u.T[:r], np.zeros((d_in - r, d_out)), xp.sqrt(c) * u.T[r:]])
    return Weights((first, second.T))


def two_c_balanced(matrix: Any, c: Any, *, sign: int = 1) -> Weights:
    """Two layers with end-to-end matrix A and W_1 W_1^T - W_2^T W_2 = +2c I (or -2c I) (`mixed/C5`).

    `sign=+1` has d_in neurons, `sign=-1` has d_out: so `Mixed(c)` is exact for both, which it is not for fewer neurons.
    """
    a = _check.array("matrix", matrix, ndim=2)
    c = _check.number("c", c, above=0)
    if sign not in (1, -1):
        raise InputError(f"sign = {_check.show(sign)} is not allowed: sign must be 1 or -1.")
    if sign == -1:
        mirrored = two_c_balanced(a.T, c)
        return Weights((mirrored.layers[1].T, mirrored.layers[0].T))
    xp, (a, c) = known(a, c)
    d_out, d_in = a.shape
    _check.fits("matrix", a, 3 * (d_out**2 + d_in**2), "its singular vectors, all of them,")
    u, s, vt = xp.linalg.svd(a, full_matrices=True)
    r = min(d_out, d_in)
    p = xp.sqrt(c + xp.hypot(xp.pad(s, (0, d_in - r)), c))
    second = xp.pad(u[:, :r] * (s / p[:r]), ((0, 0), (0, d_in - r)))
    return Weights((p[:, None] * vt, second))


def lambda_balanced(
    key: KeyLike, problem: Problem, lam: float, width: int, *, scale: float = 0.1, aligned: bool = False
) -> Weights:
    """Two layers with W_2^T W_2 - W_1 W_1^T = lambda I: lazy for large |lambda|, rich for small (`balance/C1`).

    The literature's sign: `Weights.imbalance` is -lambda I. Such layers exist for lambda = 0, for lambda > 0 with width
    <= d_out and for lambda < 0 with width <= d_in. For lambda > 0, W_1 has entries N(0, scale^2) and W_2 is
    Z sqrt(lambda + W_1 W_1^T) with a Haar frame Z; for lambda < 0 the layers change places; for lambda = 0 they are
    W_1 = K Z_1^T and W_2 = Z_2 K^T with such entries of K, width x min(width, d_in, d_out). `aligned` takes the
    problem's singular vectors as frames, and `scale` for every singular value of the lighter layer.

    `lam` is lambda.
    """
    d_out, d_in = _matrix(problem)
    number, size = _check.real("lam", lam), _check.real("scale", scale, least=0)
    w = _check.integer("width", width, least=1)
    balance_exists(number, w, (d_out, d_in))
    _check.fits("width", w, 3 * w * (w + d_in + d_out), f"layers of {w} neurons with their frames")
    turns, free, one, other = keys(_check.key("key", key), "lambda_balanced", 4)
    heavy, light = (d_out, d_in) if number >= 0 else (d_in, d_out)  # what the heavier and the lighter layer lead to
    k = min(w, heavy, light)
    if _check.flag("aligned", aligned):
        u, _, vt = np.linalg.svd(np.asarray(problem.target), full_matrices=True)
        above, below = (u, vt.T[:, :k]) if number >= 0 else (vt.T, u[:, :k])
        xp, (turn,) = known(haar(turns, w, w))
        values = np.full(k, size)
    elif number == 0:
        xp, (inner, above, below) = known(normal(free, (w, k)), haar(one, heavy, k), haar(other, light, k))
        return Weights((size * inner @ below.T, size * above @ inner.T))
    else:
        xp, (entries, frame) = known(normal(free, (w, light)), haar(one, heavy, w))
        turn, values, rows = xp.linalg.svd(size * entries, full_matrices=True)
        above, below = frame @ turn, rows[:k].T
    reached = min(w, heavy)
    root = xp.sqrt(abs(number) + xp.pad(values, (0, w - k))[:reached] ** 2)
    lighter, heavier = (turn[:, :k] * values) @ below.T, turn[:, :reached] * root @ above[:, :reached].T
    return Weights((lighter, heavier.T) if number >= 0 else (heavier, lighter.T))


def _times(number: Any, array: Any) -> Any:
    """number * array."""
    number, array = known(number, array)[1]
    return number * array


# Checks --------------------------------------------------------------------------------------------------------------


def _matrix(problem: Problem | tuple[int, int]) -> tuple[int, int]:
    if isinstance(problem, tuple) and len(problem) == 2:
        return _check.integer("d_out", problem[0], least=1), _check.integer("d_in", problem[1], least=1)
    if not isinstance(problem, Problem):
        raise InputError(f"problem = {_check.show(problem)} is not allowed: use a problem such as factorization(M).")
    if len(problem.shape) != 2:
        raise InputError(
            f"the problem has shape {problem.shape}: this initialization needs a matrix problem (d_out, d_in)."
        )
    return problem.shape[0], problem.shape[1]


def _widths(hidden: Any) -> tuple[int, ...]:
    if not isinstance(hidden, Sequence):
        raise InputError(f"hidden = {_check.show(hidden)} is not allowed: hidden must be a sequence of widths.")
    return _hidden(hidden)


def _hidden(widths: Sequence[int]) -> tuple[int, ...]:
    return tuple(_check.integer("width", w, least=1) for w in widths)


def _drawn(widths: Sequence[int]) -> None:
    """Refuses layers that would not fit into memory, drawn in full."""
    numbers = sum(below * above for below, above in pairwise(widths))
    _check.fits("width", list(widths[1:-1]), 2 * numbers, f"{numbers:.3g} weights, drawn in full,")


def _width(width: Any, most: int) -> int:
    """How many neurons a compressed network of this width has."""
    if _check.traced(width):
        return most
    value = _check.real("width", width, least=1)
    if value != int(value) and value <= most - 1:
        raise InputError(f"width = {_check.show(width)} is not allowed: width must be whole, or above {most - 1}.")
    return min(math.ceil(value), most)


def _deviations(variance: Any, layers: int) -> list[Array]:
    given = list(variance) if isinstance(variance, Sequence) else [variance] * layers
    if len(given) != layers:
        raise InputError(f"variance has {len(given)} values: give one number, or one for each of the {layers} layers.")
    numbers = [known(_check.number("variance", v, least=0)) for v in given]
    return [xp.sqrt(v) for xp, (v,) in numbers]


def _deep(problem: Problem, alpha: Any, depth: Any) -> tuple[Any, int, int]:
    if not isinstance(problem, Problem):
        raise InputError(f"problem = {_check.show(problem)} is not allowed: use a problem such as factorization(M).")
    if len(problem.shape) == 2 and problem.shape[0] != problem.shape[1]:
        raise InputError(f"the problem has shape {problem.shape}: this initialization needs a square one.")
    depth = _check.integer("depth", depth, least=1)
    numbers = depth * math.prod(problem.shape)
    _check.fits("depth", depth, 2 * numbers, f"{numbers:.3g} weights")
    return _check.number("alpha", alpha, above=0), depth, problem.shape[0]
