"""Cycles and their multipliers."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optimistix
from jaxtyping import Array, Float

from linnet import _check
from linnet._check import InputError
from linnet.dynamics.maps import Map


class TwoCycle(NamedTuple):
    """The positive 2-cycle of the balanced map: ratio z = high/low, its points and its multiplier F'(low) F'(high).

    Where kappa <= 2 there is none: z = 1, both points are the minimum and the multiplier is its square (1 - kappa)^2.
    """

    ratio: Float[Array, "..."]
    low: Float[Array, "..."]
    high: Float[Array, "..."]
    multiplier: Float[Array, "..."]


def two_cycle(depth: Any, kappa: Any) -> TwoCycle:
    """The unique positive 2-cycle of the balanced map (edge of stability, section 3.3); arrays broadcast.

    With z = e^{2a}: mu(a) = 2 sinh(a) cosh((2L-1)a)/sinh(La) c^{-(L-2)/L}, c = cosh((L-1)a)/cosh((2L-1)a),
    x = e^{-+a} c^{1/L}. log(L mu/2) increases from 0 with a and is summed from terms that vanish there, so a keeps its
    digits down to kappa = 2. Newton from above.
    """
    depths = _check.double("depth", depth, ndim=(0, 1, 2))
    given = _check.double("kappa", kappa, ndim=(0, 1, 2))
    if not _check.traced(depths) and bool(jnp.any((depths < 2) | (depths != jnp.round(depths)))):
        raise InputError(f"depth = {_check.show(depth)} is not allowed: a 2-cycle needs whole depths of at least 2.")
    if not _check.traced(given) and bool(jnp.any(given <= 0)):
        raise InputError(f"kappa = {_check.show(kappa)} is not allowed: kappa must be positive.")
    return _two_cycle(*jnp.broadcast_arrays(depths, given))


def _log_cosh(x: Array) -> Array:
    small = jnp.log1p(2 * jnp.sinh(jnp.minimum(x, 1.0) / 2) ** 2)
    return jnp.where(x < 1, small, x + jnp.log1p(jnp.exp(-2 * x)) - jnp.log(2.0))


def _log_sinhc(x: Array) -> Array:
    """log(sinh(x)/x)."""
    t = jnp.minimum(x, 1.0) ** 2
    terms = [6.0, 20.0, 42.0, 72.0, 110.0, 156.0, 210.0, 272.0]  # (2k)(2k+1): sinh(x)/x - 1 by Horner
    series = jnp.zeros_like(t)
    for divisor in reversed(terms):
        series = t / divisor * (1 + series)
    big = jnp.maximum(x, 1.0)
    return jnp.where(x < 1, jnp.log1p(series), big + jnp.log1p(-jnp.exp(-2 * big)) - jnp.log(2 * big))


def _log_excess(a: Array, depth: Array) -> Array:
    """log(L mu(a) / 2)."""
    wide, narrow = _log_cosh((2 * depth - 1) * a), _log_cosh((depth - 1) * a)
    return _log_sinhc(a) - _log_sinhc(depth * a) + wide + (depth - 2) / depth * (wide - narrow)


@jax.jit
def _two_cycle(depth: Array, kappa: Array) -> TwoCycle:
    def solve(depth: Array, kappa: Array) -> Array:
        goal = jnp.log1p((kappa - 2) / 2)

        # in t = a^2 the function is straight at the onset, and concave: Newton from below climbs to the root
        def miss(t: Array, _: Any) -> Array:
            return _log_excess(jnp.sqrt(t), depth) - goal

        onset = 3 * goal / (2 * (depth - 1) * (5 * depth - 4))
        solver: Any = optimistix.Newton(rtol=1e-13, atol=0.0)
        found: Any = optimistix.root_find(miss, solver, jnp.maximum(onset, 1e-300), max_steps=64, throw=False)
        return jnp.sqrt(found.value)

    above = kappa > 2
    flat = jax.vmap(solve)(depth.ravel(), jnp.where(above, kappa, 3.0).ravel()).reshape(kappa.shape)
    a = jnp.where(above, flat, 0.0)
    shrink = (_log_cosh((depth - 1) * a) - _log_cosh((2 * depth - 1) * a)) / depth
    low, high = jnp.exp(shrink - a), jnp.exp(shrink + a)

    def slope(log_x: Array) -> Array:
        inner = (depth - 1) * jnp.exp((depth - 2) * log_x) - (2 * depth - 1) * jnp.exp((2 * depth - 2) * log_x)
        return 1 + kappa / depth * inner

    return TwoCycle(jnp.exp(2 * a), low, high, slope(shrink - a) * slope(shrink + a))


@partial(jax.jit, static_argnums=0)
def multiplier(step: Map, points: Float[Array, " period"], parameter: Float[Array, ""] | float) -> Float[Array, ""]:
    """The multiplier of a cycle of a map of one number: the product of the slopes at its points."""
    slope = jax.vmap(jax.grad(lambda x: step(x, jnp.asarray(parameter, dtype=jnp.float64))))
    return jnp.prod(slope(jnp.asarray(points, dtype=jnp.float64)))


def cycle(step: Map, start: float, parameter: float, period: int) -> Float[Array, " period"]:
    """The cycle of a map of one number near `start`, by Newton on F^p(x) = x: unstable ones too.

    The points come in the order of the orbit, from the one near `start`. The minimal period may be a divisor of
    `period`.
    """
    period = _check.integer("period", period, least=1)
    found, gap = _cycle(step, _check.number("start", start), _check.number("parameter", parameter), period)
    if not float(gap) <= 1e-9 * max(1.0, float(jnp.max(jnp.abs(found)))):
        raise InputError(
            f"start = {_check.show(start)} leads to no cycle of period {period} at parameter = "
            f"{_check.show(parameter)}: Newton stopped at a gap of {float(gap):.3g}; start closer."
        )
    return found


@partial(jax.jit, static_argnums=(0, 3))
def _cycle(step: Map, start: Array, parameter: Array, period: int) -> tuple[Array, Array]:
    def miss(x: Array, _: Any) -> Array:
        return jax.lax.fori_loop(0, period, lambda _, y: step(y, parameter), x) - x

    solver: Any = optimistix.Newton(rtol=1e-14, atol=1e-15)
    x = optimistix.root_find(miss, solver, start, max_steps=64, throw=False).value
    points = jax.lax.scan(lambda y, _: (step(y, parameter), y), x, length=period)[1]
    return points, jnp.abs(miss(x, None))
