"""Cycles and their multipliers."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from linnet import _check
from linnet._check import InputError
from linnet.maps.modes import Map
from linnet.maps.root import roots


class TwoCycle(NamedTuple):
    """The positive 2-cycle of the balanced map: ratio z = high/low, its points and its multiplier F'(low) F'(high).

    Where kappa <= 2 there is none: z = 1, both points are the minimum and the multiplier is its square (1 - kappa)^2.
    """

    ratio: Float[np.ndarray, "..."]
    low: Float[np.ndarray, "..."]
    high: Float[np.ndarray, "..."]
    multiplier: Float[np.ndarray, "..."]


def two_cycle(depth: Any, kappa: Any) -> TwoCycle:
    """The unique positive 2-cycle of the balanced map (`stability/C4`); arrays broadcast.

    With z = e^{2a}: mu(a) = 2 sinh(a) cosh((2L-1)a)/sinh(La) c^{-(L-2)/L}, c = cosh((L-1)a)/cosh((2L-1)a),
    x = e^{-+a} c^{1/L}. log(L mu/2) increases from 0 with a and is summed from terms that vanish there, so a keeps its
    digits down to kappa = 2.
    """
    depths, given = np.broadcast_arrays(
        np.asarray(_check.double("depth", depth, ndim=(0, 1, 2))),
        np.asarray(_check.double("kappa", kappa, ndim=(0, 1, 2))),
    )
    if np.any((depths < 2) | (depths != np.round(depths))):
        raise InputError(f"depth = {_check.show(depth)} is not allowed: a 2-cycle needs whole depths of at least 2.")
    if np.any(given <= 0):
        raise InputError(f"kappa = {_check.show(kappa)} is not allowed: kappa must be positive.")
    above = given > 2
    goal = np.log1p((np.where(above, given, 3.0) - 2) / 2)

    # in t = a^2 the function is straight at the onset, and concave: Newton from below climbs to the root
    def miss(t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        a = np.sqrt(t)
        return _log_excess(a, depths) - goal, _log_excess_slope(a, depths) / (2 * a)

    onset = 3 * goal / (2 * (depths - 1) * (5 * depths - 4))
    a = np.where(above, np.sqrt(roots(miss, onset)), 0.0)
    shrink = (_log_cosh((depths - 1) * a) - _log_cosh((2 * depths - 1) * a)) / depths

    def slope(log_x: np.ndarray) -> np.ndarray:
        inner = (depths - 1) * np.exp((depths - 2) * log_x) - (2 * depths - 1) * np.exp((2 * depths - 2) * log_x)
        return 1 + given / depths * inner

    return TwoCycle(np.exp(2 * a), np.exp(shrink - a), np.exp(shrink + a), slope(shrink - a) * slope(shrink + a))


def _log_cosh(x: np.ndarray) -> np.ndarray:
    small = np.log1p(2 * np.sinh(np.minimum(x, 1.0) / 2) ** 2)
    return np.where(x < 1, small, x + np.log1p(np.exp(-2 * x)) - np.log(2.0))


def _log_sinhc(x: np.ndarray) -> np.ndarray:
    """log(sinh(x)/x)."""
    t = np.minimum(x, 1.0) ** 2
    series = np.zeros_like(t)
    for k in range(8, 0, -1):  # sinh(x)/x - 1 by Horner
        series = t / (2 * k * (2 * k + 1)) * (1 + series)
    big = np.maximum(x, 1.0)
    return np.where(x < 1, np.log1p(series), big + np.log1p(-np.exp(-2 * big)) - np.log(2 * big))


def _log_sinhc_slope(x: np.ndarray) -> np.ndarray:
    """coth(x) - 1/x, good enough for Newton near 0."""
    big = np.maximum(x, 0.05)
    return np.where(x < 0.05, x / 3 - x**3 / 45, 1 / np.tanh(big) - 1 / big)


def _log_excess(a: np.ndarray, depth: np.ndarray) -> np.ndarray:
    """log(L mu(a) / 2)."""
    wide, narrow = _log_cosh((2 * depth - 1) * a), _log_cosh((depth - 1) * a)
    return _log_sinhc(a) - _log_sinhc(depth * a) + wide + (depth - 2) / depth * (wide - narrow)


def _log_excess_slope(a: np.ndarray, depth: np.ndarray) -> np.ndarray:
    wide, narrow = (2 * depth - 1) * np.tanh((2 * depth - 1) * a), (depth - 1) * np.tanh((depth - 1) * a)
    ends = _log_sinhc_slope(a) - depth * _log_sinhc_slope(depth * a)
    return ends + wide + (depth - 2) / depth * (wide - narrow)


@partial(jax.jit, static_argnums=0)
def multiplier(step: Map, points: Float[Array, " period"], parameter: Float[Array, ""] | float) -> Float[Array, ""]:
    """The multiplier of a cycle of a map of one number: the product of the slopes at its points.

    `step` is the map, a function of a point and the `parameter`.
    """
    slope = jax.vmap(jax.grad(lambda x: step(x, jnp.asarray(parameter, dtype=jnp.float64))))
    return jnp.prod(slope(jnp.asarray(points, dtype=jnp.float64)))


def cycle(step: Map, initial: float, parameter: float, period: int) -> Float[Array, " period"]:
    """The cycle of a map of one number near `initial`, by Newton on F^p(x) = x: unstable ones too.

    The points come in the order of the orbit, from the one near `initial`. The minimal period may be a divisor of
    `period`.

    `step` is the map, a function of a point and the `parameter`.
    """
    period = _check.integer("period", period, least=1)
    found, gap = _cycle(step, _check.number("initial", initial), _check.number("parameter", parameter), period)
    if not float(gap) <= 1e-9 * max(1.0, float(jnp.max(jnp.abs(found)))):
        raise InputError(
            f"initial = {_check.show(initial)} leads to no cycle of period {period} at parameter = "
            f"{_check.show(parameter)}: Newton stopped at a gap of {float(gap):.3g}; start closer."
        )
    return found


@partial(jax.jit, static_argnums=(0, 3))
def _cycle(step: Map, initial: Array, parameter: Array, period: int) -> tuple[Array, Array]:
    import optimistix  # slow to load

    def miss(x: Array, _: Any) -> Array:
        return jax.lax.fori_loop(0, period, lambda _, y: step(y, parameter), x) - x

    solver: Any = optimistix.Newton(rtol=1e-14, atol=1e-15)
    x = optimistix.root_find(miss, solver, initial, max_steps=64, throw=False).value
    points = jax.lax.scan(lambda y, _: (step(y, parameter), y), x, length=period)[1]
    return points, jnp.abs(miss(x, None))
