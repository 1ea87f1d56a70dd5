"""What becomes of the modes of a deep factorization at one learning rate: of each for itself, and of each two together.

A mode is a chain of numbers, iterated from its start; `stability` says what to expect of it and gives exact cycles. The
loss is 1/2 |A - A_star|^2 and letters are those of `stability`; `init` is "one-zero" (all layers alpha but the last,
which is zero), "orthogonal" (the same up to rotations), or "balanced" (all layers alpha).

Arguments: `s` are the target's singular values in descending order, `kappas` the learning rate times the curvature of
each mode at its minimum, `fates` and `points` what `mode_fates` returned, `escape` what `escape_steps` returned.
"""

import enum
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from linnet import _check, maps
from linnet._check import InputError
from linnet.linalg import blocks_of_values
from linnet.theory import stability
from linnet.theory._formula import evaluate
from linnet.theory.stability import Fate, Outcome

__all__ = [
    "INITIALIZATIONS",
    "KEEP",
    "MOST_STEPS",
    "VISIBLE",
    "Cross",
    "CrossState",
    "Fate",
    "ModeFate",
    "ModePair",
    "Outcome",
    "Visible",
    "cross_fate",
    "escape_steps",
    "gaps_left",
    "mode_fates",
    "worst",
]

INITIALIZATIONS = ("one-zero", "orthogonal", "balanced")
KEEP = 128  # points of an orbit that are examined; periods up to half of them are found
MOST_STEPS = 500_000  # of the chain of numbers that a mode is
VISIBLE = 0.01  # a cross component of this share of s_1 is seen
_LONG = 8192  # points of which the lowest and the highest are returned
_NO_LIMIT = 1e300
_NEAR_ZERO = 0.2  # of the target: an orbit that stays below is at the saddle


# Each mode for itself ------------------------------------------------------------------------------------------------


class ModeFate(NamedTuple):
    """What becomes of one mode: its `fate`, and between which end-to-end values it moves in the end.

    `period` is 1 at rest, that of a cycle, None for all else; `low` and `high` are None where it diverges, which it
    does after `diverges_after` steps. `lyapunov` is the exponent a step of chaos, where one is known; `lingers` says
    that the orbit stays near 0 for long, from where it will come back. `kappa` = lr times `curvature`.
    """

    fate: Fate
    period: int | None
    low: float | None
    high: float | None
    diverges_after: int | None
    lyapunov: float | None
    lingers: bool
    curvature: float
    kappa: float

    @property
    def outcome(self) -> Outcome:
        """Fate and period alone."""
        return Outcome(self.fate, self.period)


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """What a whole network does: it diverges if a mode does, else what the first mode does that does not converge.

    `outcomes` are those of the modes, the largest first.
    """
    found = list(outcomes) if isinstance(outcomes, Iterable) else []
    if not found or not all(isinstance(one, Outcome) for one in found):
        raise InputError(f"outcomes = {_check.show(outcomes)} is not allowed: outcomes must be a list of Outcome.")
    lost = [one for one in found if one.fate is Fate.DIVERGES]
    moving = [one for one in found if one.fate is not Fate.CONVERGES]
    return (lost or moving or found)[0]


def escape_steps(
    s: Float[np.ndarray, " modes"], alpha: float, depth: int, init: str, step: float
) -> Float[np.ndarray, " modes"]:
    """The steps of size `step` that each mode takes to leave the saddle (`stability.escape_time`); 0 for one layer."""
    s, depth, alpha = _modes(s, depth, alpha)
    _check.choice("init", init, INITIALIZATIONS)
    step = _check.real("step", step, above=0)
    if depth == 1:
        return np.zeros(len(s))
    time = stability.escape_time(s, alpha, depth, "balanced" if init == "balanced" else "one_zero")
    return np.maximum(np.broadcast_to(time, s.shape), 0.0) / step


def mode_fates(
    s: Float[np.ndarray, " modes"],
    depth: int,
    kappas: Float[np.ndarray, " modes"],
    alpha: float,
    init: str,
    escape: Float[np.ndarray, " modes"],
) -> tuple[list[ModeFate], Float[np.ndarray, "points 2 modes"]]:
    """What becomes of each mode from this start, and its layer values in the end, y (all but the last) then x.

    `escape` are the steps that the modes need to leave the start (`escape_steps`).
    """
    s, depth, alpha = _modes(s, depth, alpha)
    kappas, escape = _of_each("kappas", kappas, s, above=0), _of_each("escape", escape, s, least=0)
    _check.choice("init", init, INITIALIZATIONS)
    steps = int(min(3 * np.ceil(escape.max()) + 20_000, MOST_STEPS))
    slow = 2 * escape > MOST_STEPS
    both, escaped = _late(s, depth, kappas, alpha, init, steps, slow)
    product = both[..., 0] ** (depth - 1) * both[..., 1]
    both = both[:, -KEEP:]
    periods = maps.period(maps.Orbits(_check.floating(both), jnp.asarray(escaped, dtype=escaped.dtype)), most=KEEP // 2)
    expected = stability.outcome(kappas, depth)
    rates = np.full(len(s), np.nan)
    if any(_wild(one) and p < 2 for one, p in zip(expected, periods, strict=True)):
        rates = np.asarray(maps.lyapunov(maps.balanced(depth), 0.9, kappas, skip=2000, steps=20_000).exponent)
    curvatures = stability.curvature(s, depth)
    cycles = stability.orbit(s, depth, kappas / curvatures) if depth > 1 else None
    fates = [
        _fate(
            depth,
            expected[i],
            (float(s[i]), float(curvatures[i]), float(kappas[i])),
            product[i],
            int(periods[i]),
            int(escaped[i]),
            None if cycles is None else (float(cycles.bottom[i]), float(cycles.top[i])),
            # too slow to be seen to the end, and steps so small that nothing else can happen
            patient=bool(slow[i] or kappas[i] < 0.5),
            rate=float(rates[i]),
        )
        for i in range(len(s))
    ]
    layers = np.swapaxes(both, 0, 1) * (s ** (1 / depth))[None, :, None]  # point, mode, (y, x)
    return fates, np.swapaxes(layers, 1, 2)


def _wild(expected: Outcome) -> bool:
    return expected.fate in (Fate.CHAOS, Fate.FLIPS)


def _fate(
    depth: int,
    expected: Outcome,
    numbers: tuple[float, float, float],
    product: np.ndarray,
    period: int,
    escaped: int,
    cycle: tuple[float, float] | None,
    *,
    patient: bool,
    rate: float,
) -> ModeFate:
    """One mode, from what theory expects and the last points of its chain (`product`, over the target)."""
    value, curvature, kappa = numbers
    low, high = float(value * product.min()), float(value * product.max())
    small = bool(np.max(np.abs(product)) < _NEAR_ZERO)

    def fate_of(fate: Fate, period: int | None, low: float | None, high: float | None, **more: Any) -> ModeFate:
        known = {"diverges_after": None, "lyapunov": None, "lingers": False} | more
        return ModeFate(fate, period, low, high, curvature=curvature, kappa=kappa, **known)

    if escaped >= 0:
        return fate_of(Fate.DIVERGES, None, None, None, diverges_after=escaped)
    if depth == 1 and expected.fate is Fate.DIVERGES:  # slowly: the limit is far
        left = math.log(maps.LIMIT) / math.log(kappa - 1)
        return fate_of(Fate.DIVERGES, None, None, None, diverges_after=math.ceil(left))
    # theory's digits where the start does lead there: a large one may end elsewhere
    if expected.fate is Fate.CONVERGES and (patient or np.max(np.abs(product[-KEEP:] - 1)) < 0.1):
        return fate_of(Fate.CONVERGES, 1, value, value)
    if expected.period == 2 and cycle is not None and _near((low, high), cycle):
        return fate_of(Fate.CYCLE, 2, *cycle)
    if expected.fate is Fate.CYCLE and expected.period != 2:
        return fate_of(Fate.CYCLE, expected.period, low, high)
    # with even depth 0 repels, however long they stay near it
    if small and np.ptp(product) < 1e-6 and not (depth % 2 == 0 and _wild(expected)):
        return fate_of(Fate.TRAPPED, None, 0.0, 0.0)
    if period > 1:
        return fate_of(Fate.CYCLE, period, low, high)
    exponent = rate if math.isfinite(rate) else None
    return fate_of(Fate.CHAOS, None, low, high, lyapunov=exponent, lingers=_wild(expected) and small)


def _near(levels: tuple[float, float], cycle: tuple[float, float]) -> bool:
    return abs(levels[0] - cycle[0]) + abs(levels[1] - cycle[1]) < 0.1 * cycle[1]


def _late(
    s: np.ndarray, depth: int, kappas: np.ndarray, alpha: float, init: str, steps: int, slow: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Layer values (y in all layers but the last, x in the last) of every mode at the last steps, in units of s^{1/L},
    and when a mode diverged. Those that the saddle holds for longer than anyone can iterate begin where it lets go.
    """
    found, escaped = _chain(s, depth, kappas, alpha, init, steps)
    both = np.array(found)
    if slow.any():
        with_x = np.where(slow, 0.9, 0.5)
        late = maps.orbits(maps.balanced(depth), with_x, kappas, skip=steps, keep=_LONG)
        both[slow] = np.asarray(late.values)[slow][..., None]
        escaped = np.where(slow, np.asarray(late.escaped), escaped)
    return both, escaped


def _chain(
    s: np.ndarray, depth: int, kappas: np.ndarray, alpha: float, init: str, steps: int
) -> tuple[np.ndarray, np.ndarray]:
    if depth == 1:
        begin = np.zeros(len(s)) if init != "balanced" else alpha / s
        found = maps.orbits(maps.balanced(1), begin, kappas, skip=steps, keep=_LONG)
        both = np.stack([np.ones_like(found.values), found.values], axis=-1)
        return both, np.asarray(found.escaped)
    root = alpha / s ** (1 / depth)
    limit = max(maps.LIMIT, 10 * float(root.max()))
    if init == "balanced":
        one = maps.orbits(maps.balanced(depth), root, kappas, skip=steps, keep=_LONG, limit=limit)
        return np.stack([one.values, one.values], axis=-1), np.asarray(one.escaped)
    begin = np.stack([np.zeros_like(root), root], axis=-1)
    two = maps.orbits(maps.one_zero(depth), begin, kappas, skip=steps, keep=_LONG, limit=limit)
    return np.asarray(two.values)[..., ::-1], np.asarray(two.escaped)


# Each two modes together ---------------------------------------------------------------------------------------------


class CrossState(enum.StrEnum):
    """Whether cross components of two modes grow out of rounding; NO_ORBIT where a mode diverges or is trapped."""

    STABLE = "stable"
    UNSTABLE = "unstable"
    NO_ORBIT = "no orbit"


class ModePair(NamedTuple):
    """Two modes, counted from 1; `second` is None for the directions that the target lacks."""

    first: int
    second: int | None


class Visible(NamedTuple):
    """The step after which cross components reach 1 % of s_1 out of the rounding of either precision."""

    double: float
    single: float


class Cross(NamedTuple):
    """What becomes of cross components, the entries of A between two modes.

    They grow from the learning rate `minimum_lr` on around the minimum itself and from `orbit_lr` on around the
    2-cycle of mode 1, both for modes 1 and 2 (infinite: not before it doubles; NaN: there is one mode). Here the
    fastest are those of `pair`, e^{growth} a step; `visible_after` where that is unstable.
    """

    state: CrossState
    minimum_lr: float
    orbit_lr: float
    pair: ModePair | None
    growth: float | None
    visible_after: Visible | None


def cross_fate(
    s: Float[np.ndarray, " modes"],
    depth: int,
    lr: float,
    points: Float[np.ndarray, "points 2 modes"],
    fates: Sequence[ModeFate],
    escape: Float[np.ndarray, " modes"],
    alpha: float,
    null: bool,
) -> Cross | None:
    """Whether and when cross components of two modes grow out of rounding on the orbit that `mode_fates` found.

    With `null` also those between a mode and the directions that the target lacks, where W_l, l < L, keep alpha. None
    where nothing can mix: one layer, or one mode and no null space.
    """
    s, depth, alpha = _modes(s, depth, alpha)
    lr, escape, null = _check.real("lr", lr, above=0), _of_each("escape", escape, s, least=0), _check.flag("null", null)
    points = np.asarray(_check.double("points", points, ndim=3))
    if points.shape[1:] != (2, len(s)) or len(points) < 2:
        raise InputError(f"points has shape {points.shape}: points must be 2 or more points x 2 x {len(s)} modes.")
    valid = isinstance(fates, Sequence) and all(isinstance(mode, ModeFate) for mode in fates)
    if not valid or len(fates) != len(s):
        raise InputError(f"fates = {_check.show(fates)} is not allowed: fates must be a ModeFate for each mode.")
    if (len(s) < 2 and not null) or depth == 1:
        return None
    minimum_lr = orbit_lr = math.nan
    if len(s) > 1:
        across = float(stability.cross_curvature(s[0], s[1], depth))
        along = float(stability.curvature(s[0], depth))
        if not min(across, along) > 0:
            raise InputError(f"s = {_check.show(s)} is not allowed: its curvatures are beyond double precision.")
        minimum_lr, orbit_lr = 2 / across, stability.cross_threshold(float(s[1] / s[0]), depth) / along
    if any(mode.fate in (Fate.DIVERGES, Fate.TRAPPED) for mode in fates):
        return Cross(CrossState.NO_ORBIT, minimum_lr, orbit_lr, None, None, None)
    known = [mode.period for mode in fates if mode.period is not None]
    period = math.lcm(*known) if len(known) == len(fates) else 0
    if period > KEEP:
        period = 0
    exact, goals = _settled(points, s, depth, fates, lr), s
    if null:
        rest = np.broadcast_to(np.array([alpha, 0.0])[:, None], (len(exact), 2, 1))
        exact, goals = np.concatenate([exact, rest], axis=2), np.append(s, 0.0)
    rates = _growth(np.asarray(evaluate(_pair_steps, exact, goals, lr, depth=depth)), period, depth)
    rows, columns = np.triu_indices(len(goals), 1)
    fastest = int(np.argmax(rates))
    rate, column = float(rates[fastest]), int(columns[fastest])
    pair = ModePair(int(rows[fastest]) + 1, column + 1 if column < len(s) else None)
    if rate <= (1e-9 if period else 5e-3):
        return Cross(CrossState.STABLE, minimum_lr, orbit_lr, pair, rate, None)
    begin = float(escape[min(column, len(s) - 1)])
    after = (begin + math.log(VISIBLE / np.finfo(kind).eps) / rate for kind in (np.float64, np.float32))
    return Cross(CrossState.UNSTABLE, minimum_lr, orbit_lr, pair, rate, Visible(*after))


def _pair_steps(xp: Any, points: Array, goal: Array, step: Array, *, depth: int) -> Array:
    """I - lr H of every pair of modes at every point of an orbit; `points` holds y and x of every mode."""
    layers = xp.concatenate([xp.repeat(points[:, :1], depth - 1, axis=1), points[:, 1:]], axis=1)
    return xp.eye(2 * depth) - step * blocks_of_values(xp, layers, goal)[1]


def _growth(jacobians: np.ndarray, period: int, depth: int) -> np.ndarray:
    """The rate a step at which cross components of each pair grow, 0 where nothing but rotations is left."""
    if period:
        found = maps.free(maps.floquet(jacobians[:period]), depth - 1)
        return np.log(np.maximum(np.abs(found[..., 0]), 1e-300)) / period
    # no period: the mean growth of a generic deviation over the points there are, the first part to let it turn
    rng = np.random.default_rng(0)
    vector = rng.normal(size=(*jacobians.shape[1:-1], 1))
    total = np.zeros(jacobians.shape[1])
    rounds, skip = 2, jacobians.shape[0] // 4
    for _ in range(rounds):
        for k, jacobian in enumerate(jacobians):
            vector = jacobian @ vector
            size = np.linalg.norm(vector, axis=(-2, -1), keepdims=True)
            vector = vector / size
            total += np.log(size[..., 0, 0]) if k >= skip else 0.0
    return np.asarray(total / (rounds * (jacobians.shape[0] - skip)))


def _settled(points: np.ndarray, s: np.ndarray, depth: int, fates: Sequence[ModeFate], lr: float) -> np.ndarray:
    """The points with 2-cycles put where theory has them: near a threshold iterates are still on their way."""
    out = np.array(points)
    cycles = stability.orbit(s, depth, lr)
    for i, mode in enumerate(fates):
        if mode.period == 2:  # at rest the layers may stay different, and theirs is the relevant minimum
            low = points[:, 0, i] < points[:, 0, i].mean()
            if low[0] == low[1]:  # not yet apart
                low = np.arange(len(points)) % 2 == 0
            out[:, :, i] = np.where(low, cycles.low[i], cycles.high[i])[:, None]
    return out


# Balance of the layers -----------------------------------------------------------------------------------------------


def gaps_left(
    s: Float[np.ndarray, " modes"], depth: int, kappas: Float[np.ndarray, " modes"], alpha: float
) -> list[float | None]:
    """What is left of y_l^2 - y_L^2 = alpha^2 (one-zero start) in the end, as a share, for modes that converge.

    By the product of 1 - q along the chain of the mode (`stability.gap_loss`); None for modes that do not converge.
    """
    s, depth, alpha = _modes(s, depth, alpha, least=2)
    kappas = _of_each("kappas", kappas, s, above=0)
    root = alpha / s ** (1 / depth)
    leave = escape_steps(s, alpha, depth, "one-zero", 1.0).max() * depth / kappas.min()
    steps = int(min(3 * np.ceil(leave) + 5000, MOST_STEPS))
    begin = np.stack([np.zeros_like(root), root, np.ones_like(root)], axis=-1)
    run = maps.orbits(stability.one_zero_gap(depth), begin, kappas, skip=steps, keep=1, limit=_NO_LIMIT)
    x, y, gaps = np.asarray(run.values)[:, 0].T
    with np.errstate(over="ignore", invalid="ignore"):  # of modes that diverge
        settled = (np.abs(x * y ** (depth - 1) - 1) < 1e-3) & ~np.asarray(run.diverged) & (kappas <= 2)
    return [float(gap) if there else None for gap, there in zip(gaps, settled, strict=True)]


# Checks --------------------------------------------------------------------------------------------------------------


def _modes(s: Any, depth: Any, alpha: Any, least: int = 1) -> tuple[np.ndarray, int, float]:
    """Singular values, depth and start scale."""
    values = np.asarray(_check.numbers("s", s, ndim=1, above=0))
    return values, _check.integer("depth", depth, least=least), _check.real("alpha", alpha, above=0)


def _of_each(name: str, value: Any, s: np.ndarray, **within: Any) -> np.ndarray:
    found = np.asarray(_check.numbers(name, value, ndim=1, **within))
    if found.shape != s.shape:
        raise InputError(f"{name} has shape {found.shape}: {name} must have one number for each of {len(s)} modes.")
    return found
