"""One singular value of the mixed flow, in closed form (`mixed.mode`)."""

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from linnet.linalg import asinh

_FAR = 1e60  # times larger than c: products of c with itself may be no numbers in double precision
_LINEAR = 1e10  # times smaller than c: the mode moves at a constant rate, to double precision
_NEAR = 1e30  # times smaller than c: a target to which the rest decays as to zero, to double precision
_SMALL = 1e-100  # up to which 1 - exp(-x) = x


def mode_at(
    xp: Any, time: Array, initial: Array, target: Array, c: Array, kappa: Array, *, any_scale: bool = True
) -> Array:
    """`mixed.mode` in NumPy or JAX, with `time` of the shape of the result; kappa times the time may be no number.

    Without `any_scale` in a third of the time, for c that is at least 1e-150 times the initial value or the target.
    """
    sign = xp.where(target < 0, -1.0, 1.0)  # the equation is odd
    s0, goal = sign * initial, xp.abs(target)
    most = xp.maximum(xp.abs(s0), goal)
    unit = xp.maximum(most, c)  # squares of tiny numbers must not underflow
    unit = xp.where(unit > 0, unit, 1.0)
    end = xp.where(goal < c / _NEAR, goal, 0.0)
    low, high = (c > 0) & (c < unit / _FAR), most < c / _LINEAR
    s = unit * _unit_mode(xp, unit * time * kappa, s0 / unit, (goal - end) / unit, c / unit)
    if not any_scale:
        return sign * (s + end)

    def far_above() -> Array:
        return _low_mode(xp, time, s0, goal - end, xp.where(low, c, 1.0), kappa)

    def far_below() -> Array:
        done = 2 * c * time * kappa
        return xp.exp(-done) * s0 - xp.expm1(-done) * goal

    s = xp.where(low, _if_any(xp, low, far_above, s), s)
    return sign * xp.where(high, _if_any(xp, high, far_below, s), s + end)


def _if_any(xp: Any, chosen: Array, function: Callable[[], Array], otherwise: Array) -> Array:
    """function(), which is computed only where some of its values are chosen; else `otherwise`."""
    if xp is np:
        return function() if np.any(chosen) else otherwise
    values: Array = jax.lax.cond(xp.any(chosen), function, lambda: otherwise)
    return values


def _low_mode(xp: Any, time: Array, s0: Array, goal: Array, c: Array, kappa: Array) -> Array:
    """`mode_at` for c far below the initial value or the target, by the logarithm theta = asinh(s / c) of p / c."""
    h, first, last = xp.hypot(goal, c), asinh(xp, s0, c), asinh(xp, goal, c)
    done = 2 * h * time * kappa
    q, gone = xp.exp(-done), -xp.expm1(-done)
    log_done = math.log(2) + xp.log(kappa) + xp.log(h) + xp.log(xp.where(time > 0, time, 1.0))
    log_gone = xp.where(done > _SMALL, xp.log(xp.where(done > _SMALL, gone, 1.0)), log_done)
    log_gone = xp.where(time > 0, log_gone, -math.inf)
    up = xp.logaddexp(xp.logaddexp(first + last, first - last - done), log_gone)
    theta = up - xp.logaddexp(xp.logaddexp(first + log_gone, -last), last - done)
    large = xp.sign(theta) * xp.exp(xp.abs(theta) + xp.log(c) - math.log(2)) * -xp.expm1(-2 * xp.abs(theta))
    # theta has no digits near 0: there by k = tanh(theta / 2)
    k0, near = s0 / (c + xp.hypot(s0, c)), goal * (goal / (h + c))
    k = (k0 * (near + (h + c) * q) + goal * gone) / (h + c + near * q + goal * k0 * gone)
    small = (xp.abs(k) < 0.414) & ((s0 >= -c) | (goal <= c))
    return xp.where(small, 2 * c * k / ((1 - k) * (1 + k)), large)


def _unit_mode(xp: Any, tau: Array, s0: Array, goal: Array, c: Array) -> Array:
    h = xp.hypot(goal, c)
    plus = goal + h
    minus = ratio(xp, c * c, plus)  # h - goal
    root0 = xp.hypot(s0, c)
    p0 = xp.where(s0 >= 0, s0 + root0, ratio(xp, c * c, root0 - s0))
    q, gone = xp.exp(-2 * h * tau), -xp.expm1(-2 * h * tau)

    p = ratio(xp, p0 * (plus + minus * q) + c * c * gone, p0 * gone + minus + plus * q)
    large = (p - ratio(xp, c * c, p)) / 2

    near = ratio(xp, goal * goal, h + c)  # h - c
    k0 = ratio(xp, s0, c + root0)
    k = ratio(xp, k0 * (near + (h + c) * q) + goal * gone, h + c + near * q + goal * k0 * gone)
    m0 = ratio(xp, 2 * p0, p0 + c)  # 1 + k0, for initial values far on the wrong side
    flipped = ratio(
        xp,
        (c - minus) - (plus + c) * q + m0 * (near + (h + c) * q),
        c + minus + (goal + near) * q + m0 * goal * gone,
    )
    k = xp.where((s0 < -c) & (goal > c), flipped, k)
    small = ratio(xp, 2 * c * k, (1 - k) * (1 + k))

    # c = 0: positive initial values are in the p form; negative ones die at zero; a zero target is approached as 1/t
    stuck = xp.where(goal > 0, ratio(xp, s0 * goal * q, goal + xp.abs(s0) * gone), s0 / (1 + 2 * xp.abs(s0) * tau))
    frozen = (c == 0) & ((s0 <= 0) | (goal == 0))
    below = xp.abs(k) < 0.414  # |s| < c; asked of k, which rounds to 1 where c is lost beside s
    return xp.where(frozen, stuck, xp.where(below, small, large))


def ratio(xp: Any, a: Array, b: Array) -> Array:
    """A / b, 0 where b is 0 (branches that are not taken must stay finite)."""
    return xp.where(b != 0, a / xp.where(b != 0, b, 1.0), 0.0)
