"""Modes of a deep factorization under SGD with momentum and weight decay, step by step."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from linnet import maps
from linnet._update import initial_buffer, sgd_step
from linnet.theory.mode_fate import KEEP, Fate, escape_steps
from linnet.theory.optimizers import (
    decayed_sharpness,
    decayed_value,
    effective_decay,
    largest_monotone_lr,
    largest_stable_lr,
    momentum_time,
)

_MOST_STEPS, _AT_LEAST = 100_000, 10_000
_LIMIT = 1e3  # layer values beyond so many of the target's do not come back


class MomentumOrbits(NamedTuple):
    """End-to-end values of the last steps (points first), the step at which a mode diverged (-1: it did not), the first
    step at which half of the given level was reached (-1: none), how many steps were made, and y and x after them.
    """

    late: Float[np.ndarray, "points *modes"]
    diverged: np.ndarray
    half: np.ndarray
    steps: int
    ends: Float[np.ndarray, "2 *modes"]


def momentum_orbits(
    layers: Float[np.ndarray, "2 *modes"],
    s: np.ndarray,
    depth: int,
    lr: np.ndarray | float,
    coefficients: Mapping[str, Any],
    level: np.ndarray,
    *,
    scale: float,
    least: int,
    most: int,
    keep: int,
) -> MomentumOrbits:
    """The orbits of aligned modes, numbers also with momentum and decay (`optimizers/C12`), from these layer values.

    A mode has y in all layers but the last and x there; its cost is scale/2 (x y^{L-1} - s)^2 + mu/2 of all squares.
    `coefficients` are those of `SGD.coefficients`. From step `least` on it ends when nothing moves any more.
    """

    def gradient(both: Any) -> Any:
        y, x = both
        inner = y ** (depth - 2) if depth > 1 else np.zeros_like(y)
        outer = inner * y if depth > 1 else np.ones_like(y)
        return outer * x, scale * (outer * x - s) * np.stack([inner * x, outer])

    both, v = layers.copy(), initial_buffer(layers, gradient(layers)[1], **coefficients)
    diverged, half = np.full(both.shape[1:], -1), np.full(both.shape[1:], -1)
    bound = _LIMIT * np.maximum(s ** (1 / depth), np.max(np.abs(layers), axis=0))
    points: list[np.ndarray] = []
    step = 0
    for step in range(1, most + 1):
        product, slope = gradient(both)
        points.append(product)
        half = np.where((half < 0) & (product >= level / 2) & (level > 0), step - 1, half)
        both, v = sgd_step(both, v, slope, lr, **coefficients)
        outside = (diverged < 0) & ~np.all(np.abs(both) <= bound, axis=0)
        if outside.any():
            diverged = np.where(outside, step, diverged)
            both, v = np.where(diverged >= 0, math.nan, both), np.where(diverged >= 0, math.nan, v)
        if step % 1000 == 0:
            points = points[-keep:]
            moving = np.ptp(points, axis=0) > 1e-12 * s
            if step >= least and not np.any(moving & (diverged < 0)):
                break
    return MomentumOrbits(np.array(points[-keep:]), diverged, half, step, both)


class Minimum(NamedTuple):
    """Where each mode ends with this optimizer, the curvature along it there, the largest stable lr along it, and the
    largest stable lr in all directions.
    """

    values: Float[np.ndarray, " modes"]
    curvatures: Float[np.ndarray, " modes"]
    largest: Float[np.ndarray, " modes"]
    largest_of_all: float


def minimum(s: np.ndarray, depth: int, d: int, scale: float, coefficients: Mapping[str, Any]) -> Minimum:
    """The minimum with decay: of a mode that can be above 0 there, since small ones are lost only by their beginning.

    Curvatures include the decay of the cost. The target has the singular values `s` and d - len(s) zeros.
    """
    mu = float(effective_decay(**coefficients))
    how: Any = {"weight_decay": mu, "depth": depth, "scale": scale, "local": True}
    curvatures = np.array([decayed_sharpness([value], **how) for value in s])
    whole = decayed_sharpness(np.append(s, np.zeros(min(d - len(s), 2))), **how)
    alone = np.maximum(np.append(curvatures, whole) - mu, 0.0)
    largest = np.asarray(largest_stable_lr(alone, **coefficients))
    return Minimum(np.asarray(decayed_value(s, **how)), curvatures, largest[:-1], float(largest[-1]))


class MomentumFate(NamedTuple):
    """What becomes of a mode: `ModeFate` without what only plain descent has, and when half of its end is reached."""

    fate: Fate
    period: int | None
    low: float | None
    high: float | None
    diverges_after: int | None
    escapes_after: float  # infinite: never; NaN: unknown


def momentum_fates(
    s: np.ndarray,
    depth: int,
    alpha: float,
    lr: float,
    at: Minimum,
    coefficients: Mapping[str, Any],
    *,
    balanced: bool,
    scale: float,
) -> tuple[list[MomentumFate], int]:
    """The fate of each mode from layers alpha, the last 0 unless `balanced`; and after how many steps that was read."""
    speed = scale * float(momentum_time(lr, 1.0, coefficients["momentum"], dampening=coefficients["dampening"]))
    escape = escape_steps(s, alpha, depth, "balanced" if balanced else "one-zero", speed)
    steps = int(min(3 * np.ceil(escape.max()) + _AT_LEAST, _MOST_STEPS))
    layers = np.stack([np.full(len(s), alpha), np.full(len(s), alpha if balanced else 0.0)])
    orbits = momentum_orbits(
        layers, s, depth, lr, coefficients, at.values, scale=scale, least=steps - _AT_LEAST, most=steps, keep=2 * KEEP
    )
    decay = float(effective_decay(**coefficients))
    # where the target pulls less than the decay: layers that are small enough always shrink
    pull = scale * s * np.max(np.abs(orbits.ends), axis=0) ** (depth - 2)
    sinks = (pull < decay) | (np.max(np.abs(orbits.late), axis=0) == 0)
    # without decay a small initialization is left, and steps that do not overshoot follow the flow
    monotone = lr < np.asarray(largest_monotone_lr(at.curvatures - decay, **coefficients))
    late = (2 * escape > steps) & monotone & (decay == 0)
    fates = [
        _fate(i, lr, orbits, at, slow=float(escape[i]) if late[i] else None, sinks=bool(sinks[i]))
        for i in range(len(s))
    ]
    return fates, orbits.steps


def _fate(i: int, lr: float, orbits: MomentumOrbits, at: Minimum, *, slow: float | None, sinks: bool) -> MomentumFate:
    """One mode; `slow` is when it should escape, where that is too late to be computed and sure to come, and `sinks`
    says that the decay of its layers is stronger than the pull of the target.
    """
    late, end = orbits.late[:, i], float(at.values[i])
    low, high = float(late.min()), float(late.max())
    escapes = float(orbits.half[i]) if orbits.half[i] >= 0 else math.inf if slow is None else slow
    if orbits.diverged[i] >= 0:
        return MomentumFate(Fate.DIVERGES, None, None, None, int(orbits.diverged[i]), escapes)
    if end > 0 and lr < at.largest[i] and (slow is not None or np.max(np.abs(late - end)) < 0.1 * end):
        return MomentumFate(Fate.CONVERGES, 1, end, end, None, escapes)
    if sinks and abs(late[-1]) <= abs(late[0]):
        # 0 is a minimum where decay has made it one; where there is a better one the initialization was too small
        fate, period = (Fate.TRAPPED, None) if end > 0 else (Fate.CONVERGES, 1)
        return MomentumFate(fate, period, 0.0, 0.0, None, escapes)
    found = maps.period(maps.Orbits(jnp.asarray(late[None]), jnp.asarray([-1])), most=KEEP // 2)
    if (period := int(found[0])) > 1:
        return MomentumFate(Fate.CYCLE, period, low, high, None, escapes)
    return MomentumFate(Fate.UNKNOWN, None, low, high, None, math.nan if math.isinf(escapes) else escapes)
