"""The period-doubling cascade of a map of one number."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from linnet import _check
from linnet._check import InputError
from linnet.maps.modes import Map

FEIGENBAUM = 4.669201609102990671853203820466  # the limit of the ratios for a quadratic maximum


class Cascade(NamedTuple):
    """Parameters of a cascade; entry n of `thresholds` is where the cycle of period 2^n doubles.

    `superstable[n]` is where the critical point lies on the cycle of period 2^n (multiplier 0), before that threshold.
    `accumulation` is where the doublings end, extrapolated from the last two thresholds.
    """

    superstable: Float[np.ndarray, " n"]
    thresholds: Float[np.ndarray, " n"]
    accumulation: float

    @property
    def ratios(self) -> Float[np.ndarray, " ratios"]:
        """Lengths of successive windows, which approach Feigenbaum's 4.6692."""
        windows = np.diff(self.thresholds)
        return windows[:-1] / windows[1:]


def cascade(step: Map, point: float, parameter: float, doublings: int = 7) -> Cascade:
    """The cascade that begins at a superstable fixed point near (`point`, `parameter`) and goes up in the parameter.

    Each threshold by Newton on (F^p(x) = x, (F^p)'(x) = m), p = 2^n, with m led from 0, where the cycle contains the
    critical point, to -1, where it doubles; the next superstable cycle is searched at the distance that Feigenbaum's
    scaling suggests.

    `step` is the map, a function of a point and the parameter; `doublings` is the number of thresholds, at most 12.
    """
    doublings = _check.integer("doublings", doublings, least=1, most=12)
    x, q = _check.real("point", point), _check.real("parameter", parameter)
    superstable: list[float] = []
    thresholds: list[float] = []
    for n in range(doublings):
        count = 2**n
        # first the critical point at this parameter, then both: a cycle of half the period must not catch them
        for _ in range(20):
            value, slopes = (np.asarray(v) for v in _linear(step, np.array([x, q]), 1))
            slope, bend = float(value[2]), float(slopes[2, 0])
            x -= slope / bend if bend else 0.0
        critical = _newton(_ON_CRITICAL, step, np.array([x, q]), 0.0, count)
        x, q = critical
        if thresholds and q <= thresholds[-1]:
            raise InputError(f"no cascade near point = {point:g}, parameter = {parameter:g}: period {count} is lost.")
        superstable.append(float(q))
        both = critical
        for m in (-0.3, -0.6, -0.8, -1.0):
            both = _newton(_ON_CYCLE, step, both, m, count)
        thresholds.append(float(both[1]))
        q = thresholds[-1] + (thresholds[-1] - q) / 4.2  # between a threshold and the next superstable cycle
    last = thresholds[-1] - (thresholds[-2] if doublings > 1 else superstable[-1])
    return Cascade(np.array(superstable), np.array(thresholds), thresholds[-1] + last / (FEIGENBAUM - 1))


@partial(jax.jit, static_argnums=0)
def _linear(step: Map, both: Array, count: int) -> tuple[Array, Array]:
    """F^p(x) - x, (F^p)'(x) and F'(x), and their derivatives in x and the parameter: one program for all of a map."""

    def of(both: Array) -> Array:
        def through(x: Array) -> Array:
            return jax.lax.fori_loop(0, count, lambda _, y: step(y, both[1]), x)

        unit = jnp.ones_like(both[0])
        end, slope = jax.jvp(through, (both[0],), (unit,))
        return jnp.stack([end - both[0], slope, jax.jvp(lambda x: step(x, both[1]), (both[0],), (unit,))[1]])

    return of(both), jax.jacfwd(of)(both)


_ON_CYCLE, _ON_CRITICAL = [0, 1], [0, 2]  # which of them Newton leads to (0, m)


def _newton(rows: list[int], step: Map, both: np.ndarray, m: float, count: int) -> np.ndarray:
    for _ in range(40):
        value, slopes = (np.asarray(v)[rows] for v in _linear(step, both, count))
        if not np.all(np.isfinite(slopes)) or np.linalg.matrix_rank(slopes) < 2:
            break
        change = np.linalg.solve(slopes, value - [0.0, m])
        both = both - change
        # quadratic convergence: after a change this small the next one is rounding
        if np.all(np.abs(change) <= 1e-11 * np.maximum(1.0, np.abs(both))):
            return both
    raise InputError(f"no cycle of period {count} with multiplier {m:g}: Newton does not converge; start closer.")
