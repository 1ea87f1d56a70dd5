"""Maps: functions of a point and a parameter that give the next point.

A maker returns the same function for the same argument, so that what was compiled for it is found again.
"""

from collections.abc import Callable
from functools import lru_cache

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from linnet import _check

Map = Callable[[Array, Array], Array]


@lru_cache
def balanced(depth: int) -> Map:
    """One mode of a balanced deep network under descent, x = rho / s^{1/L}: x + (kappa/L) (1 - x^L) x^{L-1}.

    kappa = lr L s^{2-2/L} is the learning rate in units of the inverse curvature at the minimum x = 1.
    """
    power = _check.integer("depth", depth, least=1)

    def step(x: Float[Array, ""], kappa: Float[Array, ""]) -> Float[Array, ""]:
        inner = x ** (power - 1)
        return x + kappa / power * (1 - x * inner) * inner

    return step


@lru_cache
def one_zero(depth: int) -> Map:
    """One mode whose last layer started apart: the point is (x, y), y in L - 1 layers and x in the last one.

    x' = x - m (x y^{L-1} - 1) y^{L-1}, y' = y - m (x y^{L-1} - 1) x y^{L-2}, m = kappa/L, in units of s^{1/L}.
    """
    power = _check.integer("depth", depth, least=2)

    def step(point: Float[Array, " 2"], kappa: Float[Array, ""]) -> Float[Array, " 2"]:
        x, y = point[..., 0], point[..., 1]
        inner = y ** (power - 2)
        gain = kappa / power * (1 - x * y * inner) * inner
        return jnp.stack([x + gain * y, y + gain * x], axis=-1)

    return step


def exponential(u: Float[Array, ""], kappa: Float[Array, ""]) -> Float[Array, ""]:
    """The limit of infinite depth, u = L log x: u + kappa (1 - e^u) e^u."""
    return u - kappa * jnp.expm1(u) * jnp.exp(u)


@lru_cache
def descent(cost: Callable[[Array], Array]) -> Map:
    """Gradient descent on a cost of one point, any differentiable function: x - lr cost'(x)."""
    slope = jax.grad(cost)

    def step(x: Float[Array, "..."], lr: Float[Array, ""]) -> Float[Array, "..."]:
        return x - lr * slope(x)

    return step
