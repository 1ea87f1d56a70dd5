"""Two layers of any imbalance in closed form: from lazy to rich by one number (Domine, Anguita et al.; Fukumizu).

Layers are lambda-balanced where W_2^T W_2 - W_1 W_1^T = lambda I, which gradient flow keeps. `lam` is that number, with
the literature's sign: `Weights.imbalance` is -lambda I, and `two_c_balanced` has lambda = -2c. The cost is
(scale/2) |W_2 W_1 - Y|^2, the target Y has singular values s, and the flow moves the stack Q = [W_1^T; W_2] by

    dQ/dt = scale (F Q - Q Q^T Q / 2),  F = [[-lambda/2, Y^T], [Y, lambda/2]],

a Riccati equation. So Q Q^T, which holds A = W_2 W_1, C1 = W_1^T W_1 and C2 = W_2 W_2^T, is known at every time, for
every width, shape and lambda (`balance/C3`). Times of any shape come first in what is returned.

Arguments: `lam` is lambda, `target` Y or s, `scale` that of the cost; lambda counts as zero up to `tol` times the
squared size of the layers.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from linnet import _check
from linnet._check import InputError, namespace
from linnet.linalg import RANK_TOLERANCE
from linnet.states import Weights, balance_exists, measured_balance
from linnet.theory import mixed
from linnet.theory._formula import MATRIX, Number, each, evaluate, formula, in_doubles, integer, scalar
from linnet.theory._riccati import composed, eigen, few, steps
from linnet.theory._times import leading

MOST = 1_000_000  # steps that one call makes: seconds


# The flow ------------------------------------------------------------------------------------------------------------


class Grams(NamedTuple):
    """A = W_2 W_1, C1 = W_1^T W_1 and C2 = W_2 W_2^T: the blocks of Q Q^T, and all that the outputs can show."""

    matrix: Float[Array, "... d_out d_in"]
    input_gram: Float[Array, "... d_in d_in"]
    output_gram: Float[Array, "... d_out d_out"]

    @in_doubles
    def kernel(self, inputs: Any) -> Float[Array, "... entries entries"]:
        """The tangent kernel on these inputs (rows), I x X C1 X^T + C2 x X X^T: as `observe.sample_kernel` orders it.

        Samples of the first output come first, then those of the next.
        """
        return evaluate(_kernel, self.input_gram, self.output_gram, self._rows(inputs))

    def similarity(self, inputs: Any) -> Float[Array, "... n n"]:
        """X C1 X^T, the inner products of what the hidden layer makes of these inputs (rows)."""
        return evaluate(_similarity, self.input_gram, self._rows(inputs))

    def _rows(self, inputs: Any) -> Array:
        x, d_in = _check.double("inputs", inputs, ndim=2), self.input_gram.shape[-1]
        if x.shape[1] != d_in:
            raise InputError(f"inputs has shape {x.shape}: it must have d_in = {d_in} columns.")
        return x


def _similarity(_: Any, c1: Array, x: Array) -> Array:
    return x @ c1 @ x.T


def _kernel(xp: Any, c1: Array, c2: Array, x: Array) -> Array:
    n, d_out = x.shape[0], c2.shape[-1]
    inner: Any = np.eye(d_out)[:, None, :, None] * _similarity(xp, c1, x)[..., None, :, None, :]
    outer = c2[..., :, None, :, None] * (x @ x.T)[:, None, :]
    return (inner + outer).reshape(*c1.shape[:-2], d_out * n, d_out * n)


def flow(
    time: Number, initial: Weights, target: Any, scale: Number = 1.0, *, weight_decay: Number = 0.0, tol: float = 1e-10
) -> Grams:
    """The flow of lambda-balanced layers, Q Q^T = e^{F t} Q_0 M^{-1} Q_0^T e^{F t} with M = I + Q_0^T Phi Q_0.

    Phi is the integral of e^{2 F x} from 0 to t, times in units of scale. F need not be invertible nor the start of
    full rank. Evaluated by composed steps of |F| t <= 5, in which nothing overflows, no exponent is cut and nothing is
    divided by lambda. The weights follow up to a rotation of the hidden neurons; those of one are `neuron`.

    `weight_decay` mu adds (mu/2) (|W_1|^2 + |W_2|^2) to the cost: F - mu/scale, for lambda = 0 alone, since it shrinks
    lambda as e^{-2 mu t} (`balance/C14`). A start is refused if W_2^T W_2 - W_1 W_1^T differs from lambda I by more
    than `tol` of the layers' squares.

    Where a mode that is to grow is missing in the start (`end` says so), rounding brings it in at about t = 36/(scale
    s), here as in any simulation.
    """
    t, kappa = _check.numbers("time", time, least=0), _check.number("scale", scale, above=0)
    mu = _check.number("weight_decay", weight_decay, least=0)
    first, second, goal = _layers(initial, target)
    lam = _lambda(initial, tol, zero=_check.traced(weight_decay) or float(weight_decay) > 0)
    return evaluate(_flow, t, first, second, goal, kappa, mu, lam, few=_few(time, t, kappa, goal, lam, mu))


def _flow(
    xp: Any, times: Array, first: Array, second: Array, target: Array, scale: Array, decay: Array, lam: Array
) -> Grams:
    d_in = target.shape[1]
    rates, frame = eigen(xp, target, lam)
    initial = frame.T @ xp.concatenate([first.T, second])
    if initial.shape[1] > initial.shape[0]:  # neurons beyond d_in + d_out are rotated away
        initial = xp.linalg.qr(initial.T, mode="r").T

    def at(time: Array) -> Array:
        q = frame @ composed(xp, scale * time, initial, rates - decay / scale)
        return q @ q.T

    whole = each(xp, at, times.reshape(-1)).reshape(*times.shape, *frame.shape)
    return Grams(whole[..., d_in:, :d_in], whole[..., :d_in, :d_in], whole[..., d_in:, d_in:])


class Eigen(NamedTuple):
    """Eigenvalues of F, descending, and its eigenvectors as columns, inputs above outputs."""

    values: Float[Array, " d"]
    vectors: Float[Array, "d d"]


@formula(target=MATRIX, lam=scalar())
def eigenvectors(target: Any, lam: Number) -> Eigen:
    """F = [[-lambda/2, Y^T], [Y, lambda/2]] by one angle a = atan2(s, -lambda/2)/2 for each singular triplet (s, u, v).

    (v cos a, u sin a) has the eigenvalue hypot(s, lambda/2) and (-v sin a, u cos a) its negative; an input without a
    partner has -lambda/2, an output lambda/2. Right for all s and lambda, zero included.
    """
    return Eigen(*eigen(namespace(target), target, lam))


class Neuron(NamedTuple):
    """The weights of one hidden neuron: its row of W_1 and its column of W_2."""

    first: Float[Array, "... d_in"]
    second: Float[Array, "... d_out"]


def neuron(
    time: Number,
    initial: Weights,
    target: Any,
    scale: Number = 1.0,
    *,
    lr_multipliers: tuple[Number, Number] = (1.0, 1.0),
) -> Neuron:
    """One hidden neuron, its weights themselves: Q = e^{F t} Q_0 / sqrt(M), whatever the start (`balance/C13`).

    Every network of width 1 is balanced, lambda = |W_2|^2 - |W_1|^2. Learning rates eta_1 and eta_2 of the layers
    (`lr_multipliers`) are the same flow of W_1 / g and W_2 g, g = (eta_1/eta_2)^{1/4}, with times sqrt(eta_1 eta_2) t.
    So is any width whose layers are balanced after that.
    """
    t = _check.numbers("time", time, least=0)
    if not isinstance(lr_multipliers, tuple | list) or len(lr_multipliers) != 2:
        raise InputError(
            f"lr_multipliers = {_check.show(lr_multipliers)} is not allowed: give two numbers, one for each layer."
        )
    both = [_check.number("lr_multipliers", x, above=0) for x in lr_multipliers]
    first, second, goal = _layers(initial, target)
    if first.shape[0] != 1:
        raise InputError(f"initial has {first.shape[0]} hidden neurons: this is the flow of one; use balance.flow.")
    kappa = _check.number("scale", scale, above=0)
    known = not _check.traced((first, second, both))
    one, two = (np.asarray(x) for x in both) if known else (1.0, 1.0)
    lam = float(np.sqrt(one / two) * np.sum(second**2) - np.sqrt(two / one) * np.sum(first**2)) if known else 0.0
    passed = t if _check.traced(t) else np.asarray(t) * np.sqrt(one * two)
    count = _few(time, passed, kappa, goal, lam, 0.0)
    return evaluate(_neuron, t, first, second, goal, kappa, *both, few=count if known else -1)


def _neuron(
    xp: Any, times: Array, first: Array, second: Array, target: Array, scale: Array, one: Array, two: Array
) -> Neuron:
    d_in, g = target.shape[1], (one / two) ** 0.25
    lam = g**2 * xp.sum(second**2) - xp.sum(first**2) / g**2
    rates, frame = eigen(xp, target, lam)
    initial = frame.T @ xp.concatenate([first.T / g, second * g])

    def at(time: Array) -> Array:
        return frame @ composed(xp, scale * xp.sqrt(one * two) * time, initial, rates)[:, 0]

    q = each(xp, at, times.reshape(-1)).reshape(*times.shape, -1)
    return Neuron(g * q[..., :d_in], q[..., d_in:] / g)


# Grams from the matrix, one mode, limits -----------------------------------------------------------------------------


def _decides(*, matrix: Array, lam: Array, width: int) -> None:
    balance_exists(lam, width, (matrix.shape[0], matrix.shape[1]))
    if _check.traced((matrix, lam)):
        return
    values = np.linalg.svd(np.asarray(matrix), compute_uv=False)
    rank, heavy = int(np.sum(values > RANK_TOLERANCE * values[0])), matrix.shape[0] if lam > 0 else matrix.shape[1]
    if rank > width or (lam != 0 and rank < width < heavy):
        raise InputError(
            f"width = {width} is not allowed: A has rank {rank} and decides the Gram matrices for widths "
            f"{f'from {rank} on' if lam == 0 else f'{rank} and {heavy}'} alone."
        )


@formula(_decides, matrix=MATRIX, lam=scalar(), width=integer(1))
def grams(matrix: Any, lam: Number, width: int) -> Grams:
    """C1 = sqrt(A^T A + lambda^2/4) - lambda/2 and C2 = sqrt(A A^T + lambda^2/4) + lambda/2, where A decides them.

    The lighter layer's is always so. The heavier one's has `width` directions, those of A: below its full dimension it
    is the formula on them and zero outside if rank A is the width, and else no function of A (`balance/C6`), which is
    refused. All from the singular values a, the small ones as a^2 / (hypot(a, lambda/2) + |lambda|/2): a root of A^T A
    would lose half the digits at lambda = 0.

    `matrix` is A (d_out x d_in).
    """
    xp = namespace(matrix)
    u, s, vt = xp.linalg.svd(matrix, full_matrices=True)
    c = xp.abs(lam) / 2

    def gram(frame: Array, *, heavy: Any) -> Array:
        d = frame.shape[1]
        values = xp.pad(s, (0, d - len(s)))
        large = xp.hypot(values, c) + c
        small = values * (values / xp.where(large > 0, large, 1.0))
        return (frame * xp.where(heavy, xp.where(np.arange(d) < width, large, 0.0), small)) @ frame.T

    return Grams(matrix, gram(vt.T, heavy=lam < 0), gram(u, heavy=lam >= 0))


def mode(time: Number, initial: Number, target: Number, lam: Number, scale: Number = 1.0) -> Float[Array, "..."]:
    """A singular value that a hidden neuron carries: da/dt = scale sqrt(lambda^2 + 4 a^2) (s - a), in closed form.

    It is a mode of the mixed flow with c = |lambda|/2, whose formula cancels nowhere (`mixed.mode`). A mode without a
    neuron stays zero.

    `initial` is a at time 0, `target` is s.

    >>> from linnet.theory import balance
    >>> print(f"{balance.mode(1.0, 0.0, 2.0, lam=1.0):.3f}")  # a target of 2 at time 1, from 0
    1.805
    """
    number: Any = _check.numbers("lam", lam)
    c = abs(number if _check.traced(number) else np.asarray(number)) / 2
    return mixed.mode(time, initial, target, c, _check.numbers("scale", scale, above=0))


def lazy(
    time: Number, initial: Weights, target: Any, scale: Number = 1.0, *, tol: float = 1e-10
) -> Float[Array, "... d_out d_in"]:
    """The limit |lambda| -> infinity: A = A_0 + P (Y - A_0) (1 - e^{-scale |lambda| t}), P the projection on range W_2.

    For lambda < 0 it is the projection on the row space of W_1, from the right. With w = d_out (w = d_in) P is the
    identity and both Gram matrices stand still up to 1/|lambda|; with fewer neurons the rest of Y is learned later, by
    a large Gram matrix that moves at order t whatever lambda is (`balance/C10`).

    Raises:
        InputError: if the layers are balanced with lambda = 0, where nothing is lazy.

    """
    t, kappa = _check.numbers("time", time, least=0), _check.number("scale", scale, above=0)
    layers, lam = _layers(initial, target), _lambda(initial, tol)
    if not _check.traced(lam) and abs(lam) <= tol * measured_balance(*initial.layers).size:
        raise InputError("initial has lambda = 0: this limit is for large |lambda|; use flow.")
    return evaluate(_lazy, t, *layers, kappa, lam)


def _lazy(xp: Any, times: Array, first: Array, second: Array, target: Array, scale: Array, lam: Array) -> Array:
    a0 = second @ first
    left, right = xp.linalg.qr(second)[0], xp.linalg.qr(first.T)[0]
    gap = target - a0
    inside = xp.where(lam > 0, left @ (left.T @ gap), gap @ right @ right.T)
    return a0 - xp.expm1(-scale * xp.abs(lam) * leading(times, gap)) * inside


class FlowEnd(NamedTuple):
    """Where a flow ends, and how many of the modes that the width has room for never came."""

    at: Grams
    missing: int

    @property
    def saddle(self) -> bool:
        """Whether the end is a saddle: a mode is missing that would lower the cost."""
        return self.missing > 0


def end(initial: Weights, target: Any, scale: float = 1.0, *, weight_decay: float = 0.0, tol: float = 1e-10) -> FlowEnd:
    """The limit of `flow`: sum of 2 f_i o_i o_i^T over the eigenvectors of F - mu/scale, mu = `weight_decay`, that the
    start can reach.

    Faster ones come first: of each group with equal f > 0 those directions are reached that the initialization has,
    less what faster groups took. From almost every start they are the top w, and A is the target's best approximation
    of that rank, its values less mu/scale. For lambda = 0, square, w >= d and all s > mu/scale the sign of det A is
    conserved, so half of all starts end at a saddle (`balance/C11`). `tol` is what counts as zero, relative to the
    start and to |F|: what the start lacks in exact arithmetic is rounding here.
    """
    kappa, mu = _check.real("scale", scale, above=0), _check.real("weight_decay", weight_decay, least=0)
    first, second, goal = map(np.asarray, _layers(initial, target))
    values, frame = eigen(np, goal, np.asarray(_lambda(initial, tol, zero=mu > 0)))
    values = values - mu / kappa
    p, d_in = frame.T @ np.concatenate([first.T, second]), goal.shape[1]
    size, near = np.linalg.norm(p, 2), tol * np.max(np.abs(values))
    growing = values > near
    left, total = np.eye(p.shape[1]), np.zeros_like(frame)
    reached: list[float] = []
    for group in np.split(np.flatnonzero(growing), np.flatnonzero(-np.diff(values[growing]) > near) + 1):
        u, found, vt = np.linalg.svd(p[group] @ left, full_matrices=True)
        rank = int(np.sum(found > tol * size))
        out = frame[:, group] @ u[:, :rank]
        total += 2 * np.mean(values[group]) * out @ out.T if rank else 0.0
        left, reached = left @ vt[rank:].T, [*reached, *values[group][:rank]]
    possible = values[growing][: p.shape[1]]
    missing = len(possible) - sum(x >= possible[-1] - near for x in reached) if len(possible) else 0
    blocks = total[d_in:, :d_in], total[:d_in, :d_in], total[d_in:, d_in:]
    return FlowEnd(Grams(*(jnp.asarray(x) for x in blocks)), missing)


# Checks --------------------------------------------------------------------------------------------------------------


def _layers(initial: Any, target: Any) -> tuple[Array, Array, Array]:
    """W_1, W_2 and the target, all double."""
    if not isinstance(initial, Weights) or initial.depth != 2:
        raise InputError(f"initial = {_check.show(initial)} is not allowed: initial must be Weights of two layers.")
    goal = _check.double("target", target, ndim=2)
    if goal.shape != (shape := (initial.widths[2], initial.widths[0])):
        raise InputError(f"initial has shape {shape}: it must have the target's shape {goal.shape}.")
    first, second = (w.astype(np.float64) for w in initial.layers)
    return first, second, goal


def _lambda(initial: Weights, tol: float, *, zero: bool = False) -> Any:
    """The start's lambda; zero where it must be."""
    tol = _check.real("tol", tol, least=0, below=1)
    found = measured_balance(*initial.layers)
    if not _check.traced(found):
        if found.defect > tol:
            raise InputError(
                f"initial is not balanced: W_2^T W_2 - W_1 W_1^T differs from {float(found.lam):.3g} I by "
                f"{float(found.defect):.1e} of the layers' squares, and tol = {tol:g}."
            )
        if zero and abs(found.lam) > tol * found.size:
            raise InputError(
                f"weight_decay is not allowed from this start: it has lambda = {float(found.lam):.3g}, and there is a "
                "closed form with decay for lambda = 0 alone."
            )
    return np.zeros(()) if zero else found.lam


def _few(shown: Any, time: Any, scale: Any, target: Any, lam: Any, decay: Any) -> int:
    """What `evaluate` needs to know of the steps; a time that takes too many is refused."""
    count = steps(time, scale, target, lam, decay)
    if MOST < count < np.inf:
        raise InputError(
            f"time = {_check.show(shown)} is not allowed: it would take {count:.1e} steps, and at most {MOST:.0e} are "
            "made; balance.end says where the flow ends."
        )
    return few(count)
