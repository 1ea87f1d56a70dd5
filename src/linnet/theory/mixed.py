"""Mixed dynamics of two-layer linear networks (Tu, Aranguri, Jacot): lazy, active and everything between.

Letters as in the paper: c = variance * width is the threshold between lazy and active singular values, kappa the
curvature of the cost C(A) = (kappa/2) |A - A_obs|^2 (the paper's loss 1/d^2 has kappa = 2/d^2), t = lr * steps.
Times of any shape come first in what is returned, then the axes of the quantity itself.

The mixed flow dA/dt = kappa [sqrt(A A^T + c^2) (A_obs - A) + (A_obs - A) sqrt(A^T A + c^2)] is exact on the mixed
manifold (`mixed/C4`), and from W_1 W_1^T - W_2^T W_2 = 2c I where the target's rows lie in the row space of W_1, from
-2c I where its columns lie in the range of W_2: for every target, then, with w = d_in or w = d_out neurons
(`mixed/C5`). Fewer cannot follow it. For wide Gaussian layers it holds up to sqrt(d/w) (`mixed/C6`).

Arguments: `initial` is the value at time 0, `target` the value that a mode reaches, `observed` is A_obs, `truth` is
A_star. Of noisy recovery, `levels` are the a_i in descending order (signals are a_i d), width = d^`gamma_w`, variance =
d^`gamma_sigma2`. `variant` is "derived" or, for a formula as it was printed, "printed".
"""

import enum
import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float

from linnet import _check
from linnet._check import InputError, namespace
from linnet.theory._formula import (
    FLAG,
    NUMBERS,
    TIMES,
    Domain,
    Number,
    above,
    at_least,
    choice,
    each,
    evaluate,
    formula,
    scalar,
    vector,
)
from linnet.theory._mode import mode_at, ratio
from linnet.theory._riccati import eigen
from linnet.theory._times import leading

_SQUARES = 1e150  # numbers up to which, and from whose inverse on, sums of squares are numbers in double precision
_MOST_DIMENSIONS = 1e100
_EQUAL = 1e-9  # of the largest: singular values so near to each other form one block
_ARRAY = Domain(partial(_check.array, ndim=2))
_LEVELS = vector(above=0)
_CURVES = {"c": at_least(0), "kappa": above(0)}  # of modes


def _same_shape(*, initial: Array, observed: Array, **_: Any) -> None:
    _check.array("observed", observed, ndim=2, shape=initial.shape)


# Lazy ----------------------------------------------------------------------------------------------------------------


@formula(_same_shape, time=TIMES, initial=_ARRAY, observed=_ARRAY, c=scalar(least=0), kappa=scalar(above=0))
def lazy(
    time: Number, initial: Float[Array, "d_out d_in"], observed: Float[Array, "d_out d_in"], c: Number, kappa: Number
) -> Float[Array, "... d_out d_in"]:
    """The lazy flow dA/dt = -2c G: A(t) = A_obs + exp(-2 kappa c t) (A_0 - A_obs)."""
    left = namespace(time).exp(-2 * kappa * c * leading(time, observed)).astype(observed.dtype)
    return observed + left * (initial - observed)


class LazyOptimum(NamedTuple):
    """The best early stopping of a lazy network: the share q of the start that is left, and |A - A_star|^2 there."""

    left: Float[Array, ""]
    square: Float[Array, ""]


def _noise_of(*, truth: Array, noise: Array) -> None:
    _check.array("noise", noise, ndim=2, shape=truth.shape)
    if _check.traced((truth, noise)):
        return
    size = max(float(np.max(np.abs(one))) for one in (np.asarray(truth), np.asarray(noise)))
    if size > 0 and not 1 / _SQUARES < size < _SQUARES:
        raise InputError(
            f"truth and noise of at most {size:g} are not allowed: their squares are no numbers in double precision."
        )


@formula(_noise_of, truth=_ARRAY, noise=_ARRAY)
def lazy_optimum(truth: Float[Array, "d_out d_in"], noise: Float[Array, "d_out d_in"]) -> LazyOptimum:
    """Minimum over q in [0, 1] of |-q A_star + (1-q) E|^2 = (|A_star|^2 |E|^2 - <A_star, E>^2) / |A_star + E|^2.

    The mean over the start of the lazy error (section 1.4 of the paper, sign corrected); its own noise comes on top.
    Where the noise is -A_star every q is as good, and q = 0.
    """
    xp, observed = namespace(truth), truth + noise
    q = xp.clip(ratio(xp, xp.sum(noise * observed), xp.sum(observed**2)), 0.0, 1.0)
    return LazyOptimum(q, xp.sum((-q * truth + (1 - q) * noise) ** 2))


# One mode ------------------------------------------------------------------------------------------------------------


@formula(time=TIMES, initial=NUMBERS, target=NUMBERS, **_CURVES)
def mode(time: Number, initial: Number, target: Number, c: Number, kappa: Number = 1.0) -> Float[Array, "..."]:
    """A singular value under ds/dt = 2 kappa hypot(s, c) (s_star - s), in closed form for all signs, c >= 0 and times.

    In p = s + hypot(s, c) the flow is a Riccati equation with constant coefficients; every sum below has terms of one
    sign. Values below c come out of k = s / (c + hypot(s, c)) instead, where the p form would cancel.
    """
    return mode_at(namespace(time, target), leading(time, initial, target, c, kappa), initial, target, c, kappa)


@formula(initial=NUMBERS, end=NUMBERS, target=NUMBERS, **_CURVES)
def mode_time(initial: Number, end: Number, target: Number, c: Number, kappa: Number = 1.0) -> Float[Array, "..."]:
    """The time a mode takes from `initial` to `end`; NaN where `end` is not strictly between `initial` and `target`.

    t = ln[(p_star - p_0)(p_1 + n) / ((p_star - p_1)(p_0 + n))] / (2 kappa h), in one logarithm: the argument less one
    is 2h (p_1 - p_0) / ((p_star - p_1)(p_0 + n)).

    >>> from linnet.theory import mixed
    >>> print(f"{mixed.mode_time(0.0, 1.0, 2.0, c=0.1):.4f}")  # from 0 to half of a target of 2
    0.9100
    """
    xp, s0, s1, goal = namespace(target), initial, end, target
    sign = xp.where(goal < 0, -1.0, 1.0)
    unit = xp.maximum(xp.maximum(xp.abs(s0), xp.abs(s1)), xp.maximum(xp.abs(goal), c))
    unit = xp.where(unit > 0, unit, 1.0)  # squares of tiny numbers must not underflow
    s0, s1, goal, c = sign * s0 / unit, sign * s1 / unit, xp.abs(goal) / unit, c / unit
    h, root0, root1 = (xp.hypot(s, c) for s in (goal, s0, s1))
    minus = ratio(xp, c * c, goal + h)
    p0, p1 = (xp.where(s >= 0, s + r, ratio(xp, c * c, r - s)) for s, r in ((s0, root0), (s1, root1)))
    step = (s1 - s0) * ratio(xp, p0 + p1, root0 + root1)  # p_1 - p_0
    # p_star - p_1; far on the wrong side p_1 is small and the plain difference is the one that does not cancel
    gap = xp.where(s1 >= -c, (goal - s1) * (1 + ratio(xp, goal + s1, h + root1)), goal + h - p1)
    x = ratio(xp, step, gap * (p0 + minus))
    time = xp.where(h > 0, ratio(xp, xp.log1p(2 * h * x), 2 * h), x) / (kappa * unit)
    between = ((s0 < s1) & (s1 < goal)) | ((s0 > s1) & (s1 > goal))
    reachable = (c > 0) | (s0 > 0)
    return xp.where(between & reachable, time, xp.nan)


def _within_mean(*, first: Array, second: Array, initial: Array) -> None:
    known = not _check.traced((first, second, initial))
    if known and np.any(np.abs(initial) > (np.asarray(first) + np.asarray(second)) / 2 * (1 + 1e-9)):
        raise InputError(
            f"initial = {_check.show(initial)} is not allowed: u^T A v cannot exceed (first + second) / 2 in modulus."
        )


@formula(_within_mean, first=at_least(0), second=at_least(0), initial=NUMBERS)
def mode_scale(first: Number, second: Number, initial: Number) -> Float[Array, "..."]:
    """The c of one mode from where its network starts: c^2 = ((C1 + C2)/2)^2 - s^2, a constant of the flow.

    C1 = |W_1 v|^2, C2 = |W_2^T u|^2 and s = u^T A v. For one input and one output d(C1 + C2)/dt = 4 g s and
    ds/dt = g (C1 + C2) whatever the width and the cost (g = -dC/dA), so C1 + C2 = 2 hypot(s, c) always and `mode` is
    exact. It is variance * width for wide Gaussian layers, and gamma for W_1 = sqrt(2 gamma) Q, W_2 = 0.

    `first` is C1, `second` C2, and `initial` s.
    """
    xp = namespace(initial)
    mean, s = (first + second) / 2, xp.abs(initial)
    return xp.sqrt(xp.maximum(mean - s, 0.0)) * xp.sqrt(mean + s)  # |s| <= sqrt(C1 C2) <= mean


@formula(value=NUMBERS, target=NUMBERS, **_CURVES)
def mode_sharpness(value: Number, target: Number, c: Number, kappa: Number = 1.0) -> Float[Array, "..."]:
    """The largest curvature in W_1 and W_2 of (kappa/2) (s - s_star)^2: kappa [hypot(s, c) + hypot(s_star - 2s, c)].

    With x = W_1 v, y = W_2^T u and s = x.y the Hessian is kappa z z^T - g S, z = (y, x), g = kappa (s_star - s), and S
    exchanges x and y: its largest eigenvalue is in the plane of z's even and odd parts, whatever the width. It is
    2 kappa hypot(s_star, c) where all is learned (`largest_lr`), |g| at the saddle x = y = 0, and convex in s: nowhere
    on the way from one s to another is it larger than at both ends.

    `value` is s.
    """
    xp = namespace(value)
    return kappa * (xp.hypot(value, c) + xp.hypot(target - 2 * value, c))


# The whole matrix ----------------------------------------------------------------------------------------------------


@formula(_same_shape, time=TIMES, initial=_ARRAY, observed=_ARRAY, c=scalar(least=0), kappa=scalar(above=0))
def matrix(
    time: Number,
    initial: Float[Array, "d_out d_in"],
    observed: Float[Array, "d_out d_in"],
    c: Number,
    kappa: Number = 1.0,
) -> Float[Array, "... d_out d_in"]:
    """The mixed flow of the whole matrix in closed form: any c >= 0, any times from 0 on, any start.

    On the 2c-balanced manifold Z = [W_1, W_2^T]^T obeys a Riccati equation, and its column space moves linearly under
    exp(kappa t H), H = [[c, A_obs^T], [A_obs, -c]]. A QR factor keeps growing and decaying directions apart, so nothing
    overflows and nothing cancels. One SVD of each matrix, then O((d_in + d_out)^3) for each time.
    At c = 0 a start of low rank keeps its rank, but its rounding grows with every mode that it lacks: at long
    times use `convergence.two_layers`, which takes the rank as an argument.
    """
    xp, a0, goal = namespace(initial), initial, observed
    times, c = (kappa * time).astype(goal.dtype), c.astype(goal.dtype)
    d_out, d_in = goal.shape
    r = min(d_out, d_in)
    rates, frame = eigen(xp, goal, -2 * c)
    (up, down), grow, decay = (rates[:d_in], -rates[d_in:]), frame[:, :d_in], frame[:, d_in:]
    u0, s0, v0t = xp.linalg.svd(a0, full_matrices=True)
    p = xp.sqrt(c + xp.hypot(xp.pad(s0, (0, d_in - r)), c))
    z0 = xp.concatenate(
        [v0t.T * p, xp.concatenate([u0[:, :r] * ratio(xp, s0, p[:r]), np.zeros((d_out, d_in - r))], axis=1)]
    )

    def at(tau: Array) -> Array:
        def phi(rate: Array) -> Array:
            """(1 - exp(-2 tau rate)) / (2 rate), tau at rate 0."""
            return xp.where(rate > 0, -xp.expm1(-2 * tau * rate) / xp.where(rate > 0, 2 * rate, 1.0), tau)

        root_up, root_down = xp.sqrt(phi(up)), xp.sqrt(phi(down))
        blocks = [
            (xp.exp(xp.minimum(tau * up, 340.0)) * root_up)[:, None] * (grow.T @ z0),
            root_down[:, None] * (decay.T @ z0),
            np.eye(d_in),
        ]
        stacked = xp.concatenate(blocks)
        order = xp.argsort(-xp.max(xp.abs(stacked), axis=1))  # graded rows keep their digits if the large come first
        q = xp.linalg.qr(stacked[order])[0][xp.argsort(order)]
        moved = grow @ (ratio(xp, q[:d_in], root_up[:, None])) + decay @ (
            ratio(xp, q[d_in : d_in + d_out] * xp.exp(-tau * down)[:, None], root_down[:, None])
        )
        return xp.where(tau > 0, moved[d_in:] @ moved[:d_in].T, a0)

    return each(xp, at, times.reshape(-1)).reshape(*times.shape, d_out, d_in)


# Stability, sizes, phases --------------------------------------------------------------------------------------------


@formula(top=at_least(0), **_CURVES)
def largest_lr(top: Number, c: Number, kappa: Number) -> Float[Array, "..."]:
    """Gradient descent is stable at the minimum below 1 / (kappa hypot(s_1(A_obs), c)); infinite for s_1 = c = 0.

    `top` is s_1(A_obs).
    """
    return 1 / (kappa * namespace(top).hypot(top, c))


def step_size(d: float, c: Number, signal: Number, *, lazy: Any, c_lr: float = 50.0) -> Float[np.ndarray, "..."]:
    """The paper's lr for low-rank recovery: d^2 / (c_lr c) where lazy, d^2 / (c_lr |A_star|) elsewhere (appendix G).

    `signal` is |A_star|, the largest signal; lazy is gamma_sigma2 + gamma_w > 1. One step is 1/c_lr of the largest
    stable one of the fastest mode. In NumPy; any of c, signal and lazy may be arrays.
    """
    if not all(isinstance(one, bool | np.bool_) for one in np.asarray(lazy, dtype=object).flat):
        raise InputError(f"lazy = {_check.show(lazy)} is not allowed: lazy must be True or False, or an array of them.")
    scales = {name: np.asarray(_check.numbers(name, x, above=0)) for name, x in (("c", c), ("signal", signal))}
    _check.matching(**scales, lazy=lazy)
    size = _check.real("d", d, above=0)
    factor = _check.real("c_lr", c_lr, above=0)
    with np.errstate(over="ignore"):
        found = (size / factor) * (size / np.where(lazy, scales["c"], scales["signal"]))
    if not np.all(np.isfinite(found)):
        raise InputError(f"d = {size:g} is not allowed: the lr is beyond double precision.")
    return found


VARIANTS = ("printed", "derived")  # of what the paper prints with a mistake, and as its proof has it


@formula(steps=TIMES, lr=above(0), force=at_least(0), slope=at_least(0), variant=choice(VARIANTS))
def descent_bound(
    steps: Number, lr: Number, force: Number, slope: Number, *, variant: str = "derived"
) -> Float[Array, "..."]:
    """How far descent A <- A + lr F(A) can be from the flow dA/dt = F(A) after k steps from one start (Lemma F.1).

    (lr C_0 / 2) [(1 + lr C_1)^k - 1], where `force` is C_0 >= |F| and `slope` is C_1 >= |dF/dA| in a norm with
    |AB| <= |A| |B|, on all that both visit. Printed with the power k - 1, which has no error after the first step and
    is no bound (`mixed/E26`); the true distance is linear in lr as well, with a smaller constant (`mixed/C24`).
    """
    xp = namespace(steps)
    power = leading(xp.maximum(steps - 1, 0.0) if variant == "printed" else steps, lr, force, slope)
    grown = power * xp.log1p(lr * slope)
    some = (force > 0) & (grown > 700)  # whose exponential may be no number
    large = xp.exp(xp.where(some, grown + xp.log(lr / 2) + xp.log(xp.where(some, force, 1.0)), 0.0))
    return xp.where(some, large, lr * force / 2 * xp.expm1(xp.minimum(grown, 701.0)))


class Phase(enum.StrEnum):
    """The phases of low-rank recovery as d grows. The paper calls RICH active."""

    UNDERPARAMETRIZED = "underparametrized"
    INFINITE_NOISE = "infinite_noise"
    LAZY = "lazy"
    RICH = "rich"


def phase(gamma_w: float, gamma_sigma2: float) -> Phase:
    """The phase of width d^gamma_w and variance d^gamma_sigma2 for low-rank recovery.

    gamma_w < 1: underparametrized; 2 gamma_sigma2 + gamma_w > 0: infinite noise at the start; above the transition line
    gamma_sigma2 + gamma_w = 1 lazy, below it rich (active in the paper).
    """
    gamma_w, gamma_sigma2 = _check.real("gamma_w", gamma_w), _check.real("gamma_sigma2", gamma_sigma2)
    if gamma_w < 1:
        return Phase.UNDERPARAMETRIZED
    if 2 * gamma_sigma2 + gamma_w > 0:
        return Phase.INFINITE_NOISE
    return Phase.LAZY if gamma_sigma2 + gamma_w > 1 else Phase.RICH


def _given_target(name: str, value: Any) -> Any:
    """A matrix that is not zero, or None where none is given."""
    if value is None:
        return None
    target = _check.array(name, value, ndim=2)
    if min(target.shape) < 2:
        raise InputError(f"{name} has shape {target.shape}: {name} must have two rows and two columns at least.")
    if not _check.traced(target) and not np.any(np.asarray(target)):
        raise InputError(f"{name} is zero everywhere: one of its entries must differ from 0.")
    return target


@formula(gamma_w=NUMBERS, low_rank=FLAG, target=Domain(_given_target))
def transition(
    gamma_w: Number, *, low_rank: bool = True, target: Float[Array, "d_out d_in"] | None = None
) -> Float[Array, "..."]:
    """The gamma_sigma2 at which c ~ |A_obs|: 1 - gamma_w for a low-rank target, 1/2 - gamma_w for a full-rank one.

    `low_rank` chooses between the two as d grows. A `target` of any shape takes their place: there the transition is at
    c = |target|, its largest singular value (mixed dynamics, section 2.1, remark; `mixed/C32`), so at
    ln |target| / ln d - gamma_w with d = max(d_out, d_in).

    >>> from linnet.theory import mixed
    >>> print(f"{mixed.transition(2.0, target=[[30.0, 0.0, 0.0], [0.0, 1.0, 0.0]]):.3f}")  # ln 30 / ln 3 - 2
    1.096
    """
    if target is None:
        return (1.0 if low_rank else 0.5) - gamma_w
    xp = namespace(target, gamma_w)
    return xp.log(xp.linalg.norm(target, 2)) / math.log(max(target.shape)) - gamma_w


class Sandwich(NamedTuple):
    """Lower and upper bounds of a Gram matrix in the order of symmetric operators."""

    low: Float[Array, "d d"]
    high: Float[Array, "d d"]


def _square(*, imbalance: Array, **_: Any) -> None:
    if imbalance.shape[0] != imbalance.shape[1]:
        raise InputError(f"imbalance has shape {imbalance.shape}: imbalance must be square, w x w.")


@formula(_square, matrix=_ARRAY, imbalance=_ARRAY)
def sandwich(matrix: Float[Array, "d_out d_in"], imbalance: Float[Array, "w w"]) -> tuple[Sandwich, Sandwich]:
    """Bounds of C1 = W_1^T W_1 and C2 = W_2 W_2^T along any gradient flow, from A(t) and D = W_1 W_1^T - W_2^T W_2.

    sqrt(A^T A + l^2/4) - l/2 <= C1 <= sqrt(A^T A + L^2/4) + L/2 with L = max(lambda_max(D), 0) and
    l = max(-lambda_min(D), 0); for C2 the two change places. D is constant along the flow.

    `matrix` is A(t), `imbalance` D.
    """
    xp = namespace(matrix)
    rates = xp.linalg.eigvalsh(imbalance)
    high, low = xp.maximum(rates[-1], 0.0), xp.maximum(-rates[0], 0.0)
    u, s, vt = xp.linalg.svd(matrix, full_matrices=True)

    def bound(basis: Array, level: Array, sign: int) -> Array:
        values = xp.pad(s, (0, basis.shape[0] - s.shape[0]))
        root = xp.hypot(values, level / 2)
        # sqrt(s^2 + l^2/4) - l/2 = s^2 / (sqrt(s^2 + l^2/4) + l/2)
        shifted = root + level / 2 if sign > 0 else values * ratio(xp, values, root + level / 2)
        return (basis * shifted) @ basis.T

    return Sandwich(bound(vt.T, low, -1), bound(vt.T, high, 1)), Sandwich(bound(u, high, -1), bound(u, low, 1))


# Theorem 2 -----------------------------------------------------------------------------------------------------------


def _distinct(*, value: Array, other_value: Array, **_: Any) -> None:
    if not _check.traced((value, other_value)) and np.any(np.asarray(other_value) >= np.asarray(value)):
        raise InputError(
            f"other_value = {_check.show(other_value)} is not allowed: other_value must be below value = "
            f"{_check.show(value)}; equal values have no vectors of their own."
        )


@formula(_distinct, target=at_least(0), other=at_least(0), value=above(0), other_value=at_least(0), **_CURVES)
def pair_rate(
    target: Number, other: Number, value: Number, other_value: Number, c: Number = 0.0, kappa: Number = 1.0
) -> Float[Array, "..."]:
    """How fast the singular vectors of two modes turn to those of their targets a_k, a_j, at values s_k > s_j >= 0.

    Near alignment the mixed flow turns the two frames together (as one rotation) and against each other, and the angles
    decay at the rates kappa (h_k + h_j) (a_k - a_j) / (s_k - s_j) and kappa (h_k + h_j) (a_k + a_j) / (s_k + s_j), with
    h = hypot(s, c); the smaller one is returned. For c << s it is that of Lemma C.6 (`mixed/E28`). Negative: they turn
    away, for the larger mode has the smaller target. Noise is a mode with a_j = 0.

    `value` and `other_value` are s_k and s_j, `target` and `other` a_k and a_j.
    """
    xp = namespace(value)
    pull = xp.hypot(value, c) + xp.hypot(other_value, c)
    together, against = pull / (value - other_value) * (target - other), pull / (value + other_value) * (target + other)
    return kappa * xp.minimum(together, against)


def alignment_rate(levels: Any, *, variant: str = "derived") -> float:
    """c(a) = min|a_k - a_j| a_K^2 / max|a_k^2 - a_j^2| over distinct levels, a_K the weakest signal (Theorem 2).

    The noise level 0 is among them; "printed" has pairs of signals alone, which promises more than noise allows
    (`mixed/E28`), and needs two distinct ones.
    """
    a = np.asarray(_levels(levels))
    noise = () if _check.choice("variant", variant, VARIANTS) == "printed" else (0.0,)
    distinct = np.unique([*a, *noise])
    if len(distinct) < 2:
        raise InputError(f"levels = {_check.show(levels)} is not allowed: as printed, two levels must differ.")
    first, second = np.triu_indices(len(distinct), 1)
    gaps, sums = (distinct[second] - distinct[first]) / a.max(), (distinct[second] + distinct[first]) / a.max()
    rate = float(gaps.min() * (a.min() / a.max()) / np.max(gaps * sums) * a.min())
    if rate == 0:
        raise InputError(f"levels = {_check.show(levels)} is not allowed: c(a) is below double precision.")
    return rate


class Recovery(NamedTuple):
    """The quantities of Theorem 2 for targets with singular values a_i d, in steps of gradient descent."""

    delta: float
    rate: float
    steps: float
    leading_steps: float
    errors: dict[str, float]


def recovery(
    levels: Any, gamma_w: float, gamma_sigma2: float, d: float, lr: float, *, variant: str = "derived"
) -> Recovery:
    """Delta, the alignment rate c(a), the steps T_star and the error terms of Theorem 2.

    T_star = [Delta/a_K + 2m/c(a) + m/(2 a_K)] d ln d / lr with m = max(1, 2 Delta) as printed, min(1, 2 Delta) as the
    proof derives it (`mixed/E20`). c(a) is `alignment_rate`, with the noise level. `leading_steps` is the truth for the
    weakest signal to leading order, Delta d ln d / (4 a_K lr) for the loss |A - A_obs|^2 / d^2 (`mixed/E19`). All of it
    is stated of the rich phase alone, and Delta > 0.

    `variant` is "printed" or "derived".
    """
    a = np.asarray(_levels(levels))
    _check.choice("variant", variant, VARIANTS)
    d, lr = _check.real("d", d, above=1), _check.real("lr", lr, above=0)
    found, delta = phase(gamma_w, gamma_sigma2), 1 - gamma_sigma2 - gamma_w
    if found is not Phase.RICH or delta == 0:
        where = f"{found} phase" if delta else "line between lazy and rich"
        raise InputError(
            f"gamma_w = {gamma_w:g} with gamma_sigma2 = {gamma_sigma2:g} is not allowed: Theorem 2 is about the rich "
            f"phase, and this is the {where}."
        )
    weakest, rate = float(a.min()), alignment_rate(a)
    m = max(1.0, 2 * delta) if variant == "printed" else min(1.0, 2 * delta)
    unit = d * np.log(d) / lr
    c = d ** (gamma_sigma2 + gamma_w)
    errors = {
        "initial": float(d ** (2 * gamma_sigma2 + gamma_w)),
        "laziness": float((c * np.log(d) / d) ** 2),
        "noise": float(d**-0.5),
        "threshold": float(c / d),
        "step": float((lr * np.log(d) / d) ** 2),
    }
    steps = float((delta / weakest + 2 * m / rate + m / (2 * weakest)) * unit)
    return Recovery(float(delta), rate, steps, float(delta / (4 * weakest) * unit), errors)


class Spiked(NamedTuple):
    """What noise makes of signals a_i d: singular values of A_star + E, by how much their overlap with A_star falls
    short of a_i d, and whether they can be detected at all.
    """

    value: Float[Array, " k"]
    lost: Float[Array, " k"]
    detectable: Bool[Array, " k"]


@formula(levels=_LEVELS, d=scalar(above=0))
def spiked_signals(levels: Any, d: Number) -> Spiked:
    """Singular values a_i d + 1/a_i with overlaps a_i d - 1/a_i (spiked-matrix theory).

    Where a_i^2 d <= 1 no singular vector overlaps with the signal: 2 sqrt(d), the edge of the noise, and no overlap.
    """
    xp, a = namespace(levels), levels
    detectable = a * a * d > 1
    shift = 1 / xp.where(detectable, a, 1.0)
    return Spiked(xp.where(detectable, a * d + shift, 2 * xp.sqrt(d)), xp.where(detectable, shift, a * d), detectable)


def recovery_error(
    time: Number, levels: Any, d: Number, c: Number, *, nodes: int = 2000, spiked: bool = False, initial: Number = 0.0
) -> Float[Array, "..."]:
    """The test error of noisy low-rank recovery at flow time t, mode by mode, at any d (no simulation).

    Signals a_i d and noise 2 sqrt(d) y with the quarter-circle density (4/pi) sqrt(1 - y^2), all from 0 by the closed
    form: (1/d^2) [sum (s_i - a_i d)^2 + d mean s^2]. The mean is a Gauss-Chebyshev sum.

    `spiked` adds what noise does to signals at finite d (`spiked_signals`). The singular vectors of A_star + E are
    rotated: a signal's target is a_i d + 1/a_i and its overlap with A_star a_i d - 1/a_i, so its squared error is
    (s_i - a_i d + 1/a_i)^2 + 2d - 1/a_i^2; a signal that the noise hides always costs (a_i d)^2. The other dimensions
    are left for the noise. `initial` is the mean square |A_0|^2 / d^2 = variance^2 width of the start, which decays as
    exp(-4 kappa c t). d is at least the number of signals.

    `nodes` is the number of terms of that sum.
    """
    a = _levels(levels)
    d, t = _check.number("d", d, least=a.shape[0], most=_MOST_DIMENSIONS), _check.numbers("time", time, least=0)
    c, initial = _check.number("c", c, least=0), _check.number("initial", initial, least=0)
    nodes = _check.integer("nodes", nodes, least=1, most=1_000_000)
    shape = {"nodes": nodes, "spiked": _check.flag("spiked", spiked)}
    return evaluate(_recovery_error, t, a, d, c, initial, **shape, few=_MANY // nodes)


def _recovery_error(
    xp: Any, t: Array, a: Array, d: Array, c: Array, initial: Array, *, nodes: int, spiked: bool
) -> Array:
    kappa = 2 / d**2
    if spiked:
        value, lost, detectable = spiked_signals.raw(a, d)
    else:
        value, lost, detectable = a * d, xp.zeros_like(a), xp.ones_like(a, dtype=bool)
    left = d - xp.sum(detectable, dtype=d.dtype) if spiked else d
    angle = np.pi * xp.arange(1.0, nodes + 1) / (nodes + 1)
    weight = 2 / (nodes + 1) * xp.sin(angle) ** 2
    zero = xp.zeros_like(d)

    def learned(target: Array) -> Array:
        return mode_at(xp, leading(t, zero, target, c, kappa), zero, target, c, kappa, any_scale=False)

    signal = xp.where(detectable, learned(value), 0.0) - a * d + lost
    noise = learned(2 * xp.sqrt(left) * xp.cos(angle))
    rest = xp.sum(lost * (2 * a * d - lost))
    decayed = initial * xp.exp(-4 * kappa * c * t)
    return (xp.sum(signal**2, axis=-1) + rest + left * xp.sum(weight * noise**2, axis=-1)) / d**2 + decayed


_MANY = 2_000_000  # times and nodes together that are compiled
_NODES = 64  # of the noise's mean: 6e-14 relative for all phases, d = 60 to 2000


class Stopping(NamedTuple):
    """The best moment to stop: flow time (steps are time / lr) and the test error there."""

    time: Float[Array, ""]
    error: Float[Array, ""]


def _enough_dimensions(*, levels: Array, d: Array, **_: Any) -> None:
    _check.number("d", d, least=levels.shape[0], most=_MOST_DIMENSIONS)


@formula(_enough_dimensions, levels=_LEVELS, d=scalar(above=0), c=scalar(above=0), initial=scalar(least=0))
def early_stopping(levels: Any, d: Number, c: Number, *, initial: Number = 0.0) -> Stopping:
    """The minimum over time of the spiked `recovery_error`: when to stop and what is reached, without simulation.

    Searched on 256 times until the strongest noise mode is learned and the initial matrix has decayed, then twice more
    between the neighbors of the best.
    """
    xp = namespace(d)
    kappa, edge = 2 / d**2, 2 * xp.sqrt(d)
    decay = xp.log1p(100 * initial) / (4 * kappa * c)
    horizon = mode_time.raw(xp.zeros_like(d), 0.95 * edge, edge, c, kappa) + decay

    low, high = xp.zeros_like(horizon), horizon
    for count in (256, 32, 32):
        times = xp.linspace(low, high, count)
        errors = _recovery_error(xp, times, levels, d, c, initial, nodes=_NODES, spiked=True)
        best = xp.argmin(errors)
        low, high = times[xp.maximum(best - 1, 0)], times[xp.minimum(best + 1, count - 1)]
    return Stopping(times[best], errors[best])


# Regions of the proof ------------------------------------------------------------------------------------------------


def in_p1(values: Float[Array, " k"], levels: Any, c: float, c0: float, high: float, low: float) -> bool:
    """Region P1(c0, C, C'): s_K >= C c, s_{K+1} <= C' c, s_{K+1} <= c0 s_K, and gaps s_k - s_{k+1} >= c0 s_k.

    `values` are the singular values of A, descending, `levels` those of the target (equal levels need no gap).

    `high` is C and `low` C'.
    """
    s = np.asarray(_check.numbers("values", values, ndim=1, least=0))
    a, k = np.asarray(_levels(levels)), len(levels)
    if len(s) <= k:
        raise InputError(f"values has shape {s.shape}: values must be more than the {k} levels.")
    numbers = (("c", c), ("c0", c0), ("high", high), ("low", low))
    c, c0, high, low = (_check.real(name, x, least=0) for name, x in numbers)
    separated = all(s[i] - s[i + 1] >= c0 * s[i] for i in range(k - 1) if a[i] > a[i + 1])
    return bool(s[k - 1] >= high * c and s[k] <= low * c and s[k] <= c0 * s[k - 1] and separated)


def in_p2(misalignment: float, d: float, constant: float, gamma: float) -> bool:
    """Region P2(C, gamma): x <= C d^{-gamma}.

    `misalignment` is x and `constant` C.
    """
    x, size = _check.real("misalignment", misalignment, least=0), _check.real("d", d, above=0)
    return bool(x <= _check.real("constant", constant, least=0) * size ** -_check.real("gamma", gamma))


def misalignment_bound(matrix: Any, target: Any, rank: int) -> float:
    """The right-hand side of Lemma A.4, K D/s_K + m (s_1/s_K) (2 min(...)/gap)^2 D^2, D the spectral norm of X - S.

    The lemma bounds by it the misalignment (`observe.misalignment`) of X = `matrix` with the first K = `rank` singular
    vectors of S = `target`, of which m values differ: `mixed/E10` shows that it does not. The minimum is over sqrt(K)
    (|X| + |S|) in spectral norms and |X| + |S| in Frobenius norms, the gap that between squares of neighboring values.
    """
    x = np.asarray(_check.array("matrix", matrix, ndim=2))
    goal = np.asarray(_check.array("target", target, ndim=2, shape=x.shape))
    k = _check.integer("rank", rank, least=1, most=min(x.shape))
    size = max(float(np.max(np.abs(one))) for one in (x, goal)) or 1.0
    x, goal = x / size, goal / size  # the bound is the same
    s = np.append(np.linalg.svd(goal, compute_uv=False), 0.0)
    last = np.flatnonzero(s[:k] - s[1 : k + 1] > _EQUAL * s[0])  # of each block of equal values
    if k - 1 not in last:
        raise InputError(f"rank = {k} is not allowed: the singular values {k} and {k + 1} of target are equal.")
    gap = (s[last] - s[last + 1]) * (s[last] + s[last + 1])
    norms = [np.linalg.norm(m, order) for order in (2, None) for m in (x, goal)]
    spread = min(math.sqrt(k) * (norms[0] + norms[1]), norms[2] + norms[3])
    distance = float(np.linalg.norm(x - goal, 2))
    with np.errstate(over="ignore", divide="ignore"):
        worst = np.max(2 * spread / gap * distance)
        return float(k * distance / s[k - 1] + len(last) * s[0] / s[k - 1] * worst**2)


# Checks --------------------------------------------------------------------------------------------------------------


def _levels(levels: Any) -> Float[Array, " k"]:
    return _check.numbers("levels", levels, ndim=1, above=0)
