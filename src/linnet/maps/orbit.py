"""Orbits of a map, thousands of parameters at once: a bifurcation diagram is one call."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from linnet import _check
from linnet._check import InputError, known
from linnet.maps.modes import Map

LIMIT = 1e3  # a point larger than this has diverged, long before it overflows


class Orbits(NamedTuple):
    """The last points of every orbit, and the step at which it left for infinity (-1: it did not).

    An orbit that has left keeps its last point below the limit, so that no value is ever NaN.
    """

    values: Float[Array, "batch keep *point"]
    escaped: Int[Array, " batch"]

    @property
    def diverged(self) -> Array:
        """Which orbits have left."""
        _, (escaped,) = known(self.escaped)
        return jnp.asarray(escaped >= 0, dtype=bool)


def orbits(step: Map, initial: Any, parameters: Any, *, skip: int, keep: int, limit: float = LIMIT) -> Orbits:
    """Iterates `step(point, parameter)` for every parameter: `skip` transient steps, then `keep` points.

    Transient steps are not recorded.

    `initial` is a number, or an array of points whose first axis has one entry for each parameter (or one for all). An
    orbit has diverged once an entry of its point exceeds `limit`. One compiled loop; other numbers reuse it.
    """
    given, points = batch(initial, parameters)
    keep = _check.integer("keep", keep, least=1)
    _check.fits("keep", keep, 2 * keep * points.size, f"so many points of {given.size} orbits")
    return _orbits(
        step,
        points,
        given,
        _check.integer("skip", skip, least=0),
        keep,
        _check.number("limit", limit, above=0),
    )


def batch(initial: Any, parameters: Any) -> tuple[Float[Array, " batch"], Float[Array, "batch *point"]]:
    """Parameters as a vector and a start for each of them."""
    xp, (given, points) = known(
        _check.double("parameters", parameters, ndim=(0, 1)), _check.double("initial", initial, ndim=(0, 1, 2))
    )
    given, points = given.reshape(-1), points.reshape(points.shape or (1,))
    if points.shape[0] not in (1, given.shape[0]):
        raise InputError(
            f"initial has shape {points.shape}: its first axis must have 1 entry or {given.shape[0]}, the parameters."
        )
    return _check.floating(given), _check.floating(xp.broadcast_to(points, (given.shape[0], *points.shape[1:])))


def advance(step: Map, points: Array, parameters: Array, escaped: Array, count: Any, limit: Array) -> tuple[Any, Any]:
    """One step of every orbit that has not left; `count` is the number of steps made before."""
    new = jax.vmap(step)(points, parameters)
    inside = jnp.abs(new) <= limit  # NaN is outside
    inside = inside.reshape(inside.shape[0], -1).all(axis=1)
    alive = escaped < 0
    moved = (alive & inside).reshape(-1, *[1] * (points.ndim - 1))
    return jnp.where(moved, new, points), jnp.where(alive & ~inside, count + 1, escaped)


@partial(jax.jit, static_argnums=(0, 4))
def _orbits(step: Map, points: Array, parameters: Array, skip: int, keep: int, limit: Array) -> Orbits:
    def walk(count: Any, run: tuple[Array, Array]) -> tuple[Array, Array]:
        return advance(step, *_order(run, parameters), count, limit)

    def record(run: tuple[Array, Array], count: Any) -> tuple[tuple[Array, Array], Array]:
        return walk(count, run), run[0]

    run = jax.lax.fori_loop(0, skip, walk, (points, jnp.full(points.shape[0], -1)))
    (_, escaped), values = jax.lax.scan(record, run, skip + jnp.arange(keep))
    return Orbits(jnp.swapaxes(values, 0, 1), escaped)


def _order(run: tuple[Array, Array], parameters: Array) -> tuple[Array, Array, Array]:
    return run[0], parameters, run[1]
