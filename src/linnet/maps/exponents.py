"""Lyapunov exponents of maps."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from linnet import _check
from linnet.maps.modes import Map
from linnet.maps.orbit import LIMIT, advance, batch


class Lyapunov(NamedTuple):
    """The largest exponent for every parameter (infinite where the orbit diverged), and the step at which it left."""

    exponent: Float[Array, " batch"]
    escaped: Int[Array, " batch"]


def lyapunov(step: Map, initial: Any, parameters: Any, *, skip: int, steps: int, limit: float = LIMIT) -> Lyapunov:
    """lim (1/n) sum log |DF v_k|, v_k a tangent vector carried along and normalized: the largest exponent.

    For a map of one number it is the mean of log |F'|. `step`, `initial`, and `parameters` are as in `orbits`, one
    orbit for each parameter; `skip` steps are made first, `steps` are averaged, and an orbit beyond `limit` has
    diverged.
    """
    given, points = batch(initial, parameters)
    return _lyapunov(
        step,
        points,
        given,
        _check.integer("skip", skip, least=0),
        _check.integer("steps", steps, least=1),
        _check.number("limit", limit, above=0),
    )


@partial(jax.jit, static_argnums=0)
def _lyapunov(step: Map, points: Array, parameters: Array, skip: int, steps: int, limit: Array) -> Lyapunov:
    def walk(count: Any, run: tuple[Array, Array]) -> tuple[Array, Array]:
        return advance(step, run[0], parameters, run[1], count, limit)

    def stretch(count: Any, run: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        x, escaped, tangent, total = run
        moved = jax.vmap(lambda x, q, v: jax.jvp(lambda y: step(y, q), (x,), (v,))[1])(x, parameters, tangent)
        length = jnp.sqrt(jnp.sum((moved**2).reshape(moved.shape[0], -1), axis=1))
        grown = jnp.where(length > 0, length, np.finfo(np.float64).tiny)
        shaped = grown.reshape(-1, *[1] * (x.ndim - 1))
        tangent = jnp.where(jnp.abs(moved) > 0, moved / shaped, tangent)
        return *walk(count, (x, escaped)), tangent, total + jnp.log(grown)

    x, escaped = jax.lax.fori_loop(0, skip, walk, (points, jnp.full(points.shape[0], -1)))
    entries = max(1, x[0].size)
    first = jnp.full_like(x, 1 / jnp.sqrt(entries))
    _, escaped, _, total = jax.lax.fori_loop(
        skip, skip + steps, stretch, (x, escaped, first, jnp.zeros(points.shape[0]))
    )
    return Lyapunov(jnp.where(escaped >= 0, jnp.inf, total / steps), escaped)
