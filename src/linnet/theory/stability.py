"""Deep matrix factorization beyond the edge of stability: curvature at minima, orbits, balancing, what breaks them.

Letters as in the paper: L = `depth`, s_1 >= ... >= s_r > 0 the target's singular values, alpha the start's scale. The
loss is 1/2 |A - A_star|^2; `half=False` means |A - A_star|^2, for which a step counts twice. S_i = L s_i^{2-2/L} is the
curvature of mode i at the balanced minimum and kappa_i = lr S_i the step in its units: the edge is at kappa = 2. The
Hessian at any aligned point is in `observe.aligned_blocks`, `aligned_spectrum` and `aligned_sharpness`.

Arguments: `spectrum` are the s_i in descending order, `first` and `second` the s_i and s_j of two modes, `ratio` is
s_2/s_1, `half` as above.
"""

import enum
import math
import operator
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from linnet import _check, maps
from linnet._check import InputError
from linnet.linalg import below_and_above, blocks_of_values
from linnet.maps import crossing
from linnet.theory._formula import NUMBERS, Number, above, evaluate, formula, integer

_PRODUCTS = 1e150  # numbers up to which squares and their sums are numbers in double precision
_LOGARITHM = 700.0  # of the largest number in double precision, about

# Curvature at a minimum ----------------------------------------------------------------------------------------------


def curvature(s: Any, depth: int) -> Float[np.ndarray, "..."]:
    """S = L s^{2-2/L}, the curvature along a mode at the balanced minimum.

    >>> from linnet.theory import stability
    >>> print(f"{stability.curvature(8.0, depth=3):.1f}")  # 3 * 8^(4/3)
    48.0
    """
    depth = _check.integer("depth", depth, least=1)
    return depth * _positive("s", s) ** (2 - 2 / depth)


def kappa(s: Any, depth: int, lr: Any, *, half: bool = True) -> Float[np.ndarray, "..."]:
    """The learning rate in units of the inverse curvature, lr S: the mode converges below 2."""
    steps = _positive("lr", lr) * (1 if _check.flag("half", half) else 2)
    sharp = curvature(s, depth)
    _check.matching(s=sharp, lr=steps)
    return steps * sharp


def cross_curvature(first: Any, second: Any, depth: int) -> Float[np.ndarray, "..."]:
    """lam_ij = sum_l s_i^{2(L-1-l)/L} s_j^{2l/L}, curvature along the cross direction of two modes (`stability/C2`).

    It is (s_i^2 - s_j^2) / (s_i^{2/L} - s_j^{2/L}), as a sum without cancellation; S_i for i = j.
    """
    depth = _check.integer("depth", depth, least=1)
    a, b = (_positive(name, s) ** (2 / depth) for name, s in (("first", first), ("second", second)))
    _check.matching(first=a, second=b)
    return np.sum([a ** (depth - 1 - level) * b**level for level in range(depth)], axis=0)


def pair_curvatures(values: Any) -> Float[np.ndarray, "d d"]:
    """All lam_ij at an aligned global minimum with layer values y_{l,i} (L x d), balanced or not.

    lam_ij = sum_l (prod_{m>l} y_{m,i})^2 (prod_{m<l} y_{m,j})^2, i the output mode and j the input mode; the other
    (L - 1) d^2 eigenvalues of the Hessian are 0.
    """
    squares = np.asarray(_check.double("values", values, ndim=2)) ** 2
    ones = np.ones(squares.shape[1])
    below, above = below_and_above(list(squares), ones, ones, operator.mul)
    return np.einsum("li,lj->ij", above, below)


class Level(NamedTuple):
    """An eigenvalue of the Hessian, how often it occurs and the directions it belongs to."""

    value: float
    multiplicity: int
    what: str


def minimum_spectrum(spectrum: Any, depth: int, d: int, alpha: float = 0.0) -> tuple[Level, ...]:
    """The Hessian's eigenvalues with multiplicities where descent from the one-zero start ends (`stability/C2`).

    d x d layers, balanced on the r modes of the target; W_l, l < L, still carry alpha on the rest and W_L carries 0.
    A balanced start forgets its alpha, slowly: alpha = 0. Descending; L d^2 in all.
    """
    s = _spectrum(spectrum)
    depth = _check.integer("depth", depth, least=1)
    d = _check.integer("d", d, least=len(s), reason="the rank of the target")
    alpha = _check.real("alpha", alpha, least=0)
    if alpha >= s[-1]:
        raise InputError(
            f"alpha = {alpha:g} is not allowed: alpha must be below the smallest singular value, {s[-1]:g}."
        )
    rest = d - len(s)
    if (
        2 * (depth - 1) / depth * math.log(s[0]) > _LOGARITHM
        or 2 * (depth - 1) * math.log(max(alpha, 1.0)) > _LOGARITHM
    ):
        raise InputError(f"spectrum = {_check.show(s)} is not allowed: its curvatures are beyond double precision.")
    levels = [Level(float(v), 1, "mode") for v in curvature(s, depth)]
    for i in range(len(s)):
        levels += [Level(float(cross_curvature(s[i], s[j], depth)), 2, "cross") for j in range(i + 1, len(s))]
    if rest:
        power = s ** (2 / depth)
        with_null = sum(power ** (depth - 1 - level) * alpha ** (2 * level) for level in range(depth))
        levels += [Level(float(v), rest, "output mode, null input") for v in np.asarray(with_null)]
        levels += [Level(float(v), rest, "null output, input mode") for v in power ** (depth - 1)]
        levels.append(Level(float(alpha ** (2 * (depth - 1))), rest**2, "null"))
    if depth > 1:
        levels.append(Level(0.0, (depth - 1) * d**2, "flat"))
    return tuple(sorted(levels, key=lambda level: -level.value))


def cross_eigenvector(first: float, second: float, depth: int) -> Float[np.ndarray, " depth"]:
    """The unit eigenvector of lam_ij: layer l carries entry (i, j) with weight s_i^{(L-l)/L} s_j^{(l-1)/L}."""
    depth = _check.integer("depth", depth, least=1)
    a, b = (_check.real(name, s, above=0) ** (1 / depth) for name, s in (("first", first), ("second", second)))
    a, b = a / max(a, b), b / max(a, b)
    weights = np.array([a ** (depth - 1 - level) * b**level for level in range(depth)])
    return weights / np.linalg.norm(weights)


def mode_curvature(rho: Any, s: Any, depth: int) -> Float[np.ndarray, "..."]:
    """h(rho) = (2L-1) rho^{2L-2} - (L-1) s rho^{L-2}, the curvature along a balanced mode with layer value rho.

    The slope of the map is 1 - lr h; the mode's other L - 1 eigenvalues are (s - rho^L) rho^{L-2}.
    """
    depth = _check.integer("depth", depth, least=1)
    rho, s = np.asarray(_check.numbers("rho", rho)), _positive("s", s)
    _check.matching(rho=rho, s=s)
    if depth == 1:
        return np.ones(np.broadcast_shapes(rho.shape, s.shape))
    with np.errstate(over="ignore"):  # infinite beyond double precision, and never infinity less infinity
        return rho ** (depth - 2) * ((2 * depth - 1) * rho**depth - (depth - 1) * s)


# Orbits --------------------------------------------------------------------------------------------------------------


class Orbit(NamedTuple):
    """The 2-cycle of a mode: layer values, end-to-end values and curvatures at both points, and two multipliers.

    `multiplier` is that of a deviation of the mode, `gap` that of a difference between layers; the cycle attracts
    where both are below 1 in modulus. Where kappa <= 2 both points are the minimum.
    """

    low: Float[np.ndarray, "..."]
    high: Float[np.ndarray, "..."]
    bottom: Float[np.ndarray, "..."]
    top: Float[np.ndarray, "..."]
    curvature_low: Float[np.ndarray, "..."]
    curvature_high: Float[np.ndarray, "..."]
    multiplier: Float[np.ndarray, "..."]
    gap: Float[np.ndarray, "..."]


def orbit(s: Any, depth: int, lr: Any, *, half: bool = True) -> Orbit:
    """Where a balanced mode goes for 2 < kappa < kappa_4 (`stability/C4`), exactly; arrays of s and lr broadcast.

    Layer values are s^{1/L} x, x the normalized cycle of `maps.two_cycle`; the gap's multiplier over the cycle is
    (2 - z)(2 - 1/z), z = high/low.
    """
    steps = kappa(s, depth, lr, half=half)
    found = maps.two_cycle(_check.integer("depth", depth, least=2), steps)
    z, low, high, multiplier = found
    s = np.broadcast_to(_positive("s", s), steps.shape)
    root = s ** (1 / depth)
    return Orbit(
        root * low,
        root * high,
        s * low**depth,
        s * high**depth,
        mode_curvature(root * low, s, depth),
        mode_curvature(root * high, s, depth),
        multiplier,
        (2 - z) * (2 - 1 / z),
    )


def onset_amplitude(s: Any, depth: int, lr: Any, *, half: bool = True) -> Float[np.ndarray, "..."]:
    """The square-root law of the end-to-end amplitude near the onset: s L sqrt(3 (kappa - 2) / ((L-1)(5L-4)))."""
    steps = kappa(s, depth, lr, half=half)
    depth = _check.integer("depth", depth, least=2)
    return _positive("s", s) * depth * np.sqrt(3 * np.maximum(steps - 2, 0) / ((depth - 1) * (5 * depth - 4)))


class Stages(NamedTuple):
    """The values of kappa at which the dynamics of a balanced mode change (`stability/C5`).

    `doublings[n]` is where period 2^{n+1} begins (the first is 2), `superstable` where the 2-cycle has multiplier 0.
    From `leaves` on the chaotic orbit reaches x <= 0: with even depth the sign changes and the orbit goes on, with
    odd depth it is trapped at the saddle 0. From `diverges` on orbits reach infinity: almost all of them with even
    depth, those that are not trapped with odd depth.
    """

    superstable: float
    doublings: Float[np.ndarray, " n"]
    accumulation: float
    leaves: float
    diverges: float


def stages(depth: int) -> Stages:
    """The cascade of a balanced mode of this depth.

    With F' = 0 at the critical point x_c, no point above 0 goes higher than M = F(x_c), so orbits leave x > 0 where
    F(M) = 0. They grow without end outside the outer cycle {X > 1, -Y < 0}, which M reaches where F(F(M)) = M.
    """
    return _stages(_check.integer("depth", depth, least=2))


@lru_cache
def _stages(depth: int) -> Stages:
    found = maps.cascade(maps.balanced(depth), 1.0, 1.0, 8)

    def step(x: float, k: float) -> float:
        return x + k / depth * (1 - x**depth) * x ** (depth - 1)

    def slope(x: float, k: float) -> float:
        return 1 + k / depth * ((depth - 1) * x ** (depth - 2) - (2 * depth - 1) * x ** (2 * depth - 2))

    def highest(k: float) -> float:
        return step(crossing(lambda x: slope(x, k), 0.0, 1.0), k)

    def margin(k: float) -> float:
        top = highest(k)
        return top - step(step(top, k), k)

    leaves = _root(lambda k: step(highest(k), k), 2.0, 4.0)
    diverges = _root(margin, leaves, leaves + 0.5)
    return Stages(float(found.superstable[1]), found.thresholds, found.accumulation, leaves, diverges)


class Fate(enum.StrEnum):
    """What becomes of a mode under descent with a constant step."""

    CONVERGES = "converges"  # to its target
    CYCLE = "cycle"  # it repeats itself after some steps
    CHAOS = "chaos"
    FLIPS = "flips"  # chaos that visits both signs
    TRAPPED = "trapped"  # at the saddle 0
    DIVERGES = "diverges"
    UNKNOWN = "unknown"


class Outcome(NamedTuple):
    """A fate with its period: 1 at rest, that of a cycle, None for all else."""

    fate: Fate
    period: int | None = None

    def __str__(self) -> str:
        return f"period {self.period}" if self.fate is Fate.CYCLE else str(self.fate)


def outcome(kappa: Any, depth: int) -> list[Outcome]:
    """What becomes of a balanced mode at these values of kappa; kappa = 2 itself converges, slowly, from two layers on,
    and always alternates with one.

    CHAOS is everything between the end of the doublings and the first visit to x <= 0, periodic windows included.
    Then the mode is TRAPPED at the saddle 0 (odd depth) or FLIPS its sign (even depth), and at last it DIVERGES (with
    odd depth some starts are still trapped).
    """
    given = np.ravel(_positive("kappa", kappa))
    rest = Outcome(Fate.CONVERGES, 1)
    if _check.integer("depth", depth, least=1) == 1:
        return [rest if k < 2 else Outcome(Fate.CYCLE, 2) if k == 2 else Outcome(Fate.DIVERGES) for k in given]
    found = []
    for k in given:
        if k <= 2:
            found.append(rest)
            continue
        table = stages(depth)
        doubled = int(np.sum(k > table.doublings))
        if k > table.diverges:
            found.append(Outcome(Fate.DIVERGES))
        elif k > table.leaves:
            found.append(Outcome(Fate.TRAPPED if depth % 2 else Fate.FLIPS))
        elif k > table.accumulation:
            found.append(Outcome(Fate.CHAOS))
        else:
            found.append(Outcome(Fate.CYCLE, 2**doubled) if doubled else rest)
    return found


# Balancing -----------------------------------------------------------------------------------------------------------


def gap_loss(values: Any, s: float, lr: float) -> Float[np.ndarray, "depth depth"]:
    """q_ij of one step of a chain: y_i^2 - y_j^2 is multiplied by 1 - q_ij exactly (`stability/C8`).

    q_ij = lr^2 (pi - s)^2 (prod_{m != i,j} y_m)^2; the diagonal is 0.
    """
    y = np.asarray(_check.double("values", values, ndim=1))
    s, lr, depth = _check.real("s", s), _check.real("lr", lr, above=0), len(y)
    rest = np.array([[0.0 if i == j else np.prod(np.delete(y, [i, j])) for j in range(depth)] for i in range(depth)])
    with np.errstate(over="ignore", invalid="ignore"):
        found = (lr * (np.prod(y) - s) * rest) ** 2
    if not np.all(np.isfinite(found)):
        raise InputError(
            f"values = {_check.show(y)} is not allowed: with s and lr the loss is beyond double precision."
        )
    return found


@formula(x=NUMBERS, y=NUMBERS, s=NUMBERS, lr=above(0), depth=integer(2))
def one_zero_loss(x: Number, y: Number, s: Number, lr: Number, depth: int) -> Any:
    """The same between x, the value of the last layer, and y, that of all others: (lr (x y^{L-1} - s) y^{L-2})^2."""
    return (lr * (x * y ** (depth - 1) - s) * y ** (depth - 2)) ** 2


def one_zero_gap(depth: int) -> maps.Map:
    """`maps.one_zero` with a third entry, y^2 - x^2 over its start: the product of 1 - q, without cancellation."""
    return _one_zero_gap(_check.integer("depth", depth, least=2))


@lru_cache
def _one_zero_gap(depth: int) -> maps.Map:
    step = maps.one_zero(depth)

    def both(point: Float[Array, " 3"], kappa: Float[Array, ""]) -> Float[Array, " 3"]:
        left = 1 - one_zero_loss(point[0], point[1], 1.0, kappa / depth, depth)
        return jnp.append(step(point[:2], kappa), point[2] * left)

    return both


# The minimum of the gradient flow ------------------------------------------------------------------------------------


def flow_values(initial: Any, s: Any) -> Float[np.ndarray, "depth *batch"]:
    """The layer values where gradient flow ends from non-negative values y_l(0) (L x ...), at most one of them zero.

    y_l = sqrt(c + y_l(0)^2) with the one c > -min y_l(0)^2 for which prod y_l = s, found on a log scale.
    """
    given = np.asarray(_check.double("initial", initial, ndim=(1, 2)))
    if np.any(given < 0) or np.any(np.sum(given == 0, axis=0) > 1):
        raise InputError("initial is not allowed: its layer values must not be negative, and at most one may be zero.")
    goal = _positive("s", s)
    if _check.matching(initial=given[0], s=goal) != given.shape[1:]:
        raise InputError(f"s has shape {goal.shape}: s must be one number or one for each column of initial.")
    goal = np.broadcast_to(goal, given.shape[1:])
    excess = _log_excess(given)
    return np.exp(np.logaddexp(_log_lowest_square(excess, np.ones(len(excess)), goal), excess) / 2)


def _log_excess(values: np.ndarray) -> np.ndarray:
    """log(y_l^2 - min y^2), in logarithms since squares of large and tiny numbers have no double."""
    lowest = np.min(values, axis=0)
    with np.errstate(divide="ignore"):
        return np.log(values - lowest) + np.log(values / 2 + lowest / 2) + math.log(2)


def _log_lowest_square(excess: np.ndarray, counts: np.ndarray, s: np.ndarray) -> np.ndarray:
    """log e with prod_l (e + exp(excess_l))^{counts_l / 2} = s, for every column."""
    counts = counts.reshape(-1, *[1] * s.ndim)

    # convex and increasing in log e: Newton from above descends to the root
    def miss(log_e: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        both = np.logaddexp(log_e, excess)
        return (
            np.sum(counts * both, axis=0) / 2 - np.log(s),
            np.sum(counts * np.exp(log_e - both), axis=0) / 2,
        )

    return maps.roots(miss, 2 / np.sum(counts) * np.log(s))


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)
_PANEL = 0.7  # length of a panel in a logarithm
_LINEAR = 0.05  # up to this share of where it would curve, K is integrated in s itself


def flow_time(initial: Any, end: Any, s: float) -> Float[np.ndarray, " k"]:
    """The flow times at which a mode passes the values `end`, from layer values y_l(0) >= 0, at most one of them zero.

    All y_l^2 grow alike, so ds/dt = (s_star - s) K with K(s) = s^2 sum_l 1/y_l^2, and the time is the integral of
    1 / (K (s_star - s)): for equal layers that of `convergence.aligned_time`, for two layers that of `mixed.mode_time`.
    By quadrature in ln s far from the target and in ln|s_star - s| near it. 0 where the mode begins beyond a value,
    infinite for the target itself and what lies behind it, and where it is beyond all numbers.
    """
    given = np.asarray(_check.double("initial", initial, ndim=1))
    goal = _check.real("s", s, above=0)
    if np.any(given < 0) or np.sum(given == 0) > 1:
        raise InputError("initial is not allowed: its layer values must not be negative, and at most one may be zero.")
    unit = goal ** (1 / given.size)  # squares of tiny numbers must not underflow
    ends = np.atleast_1d(np.asarray(_check.numbers("end", end)))
    if ends.ndim > 1:
        raise InputError(f"end has shape {ends.shape}: end must be one value or a vector of them.")
    y, ends = given / unit, ends / goal
    excess = _log_excess(y)[:, None]

    def clock(values: np.ndarray) -> np.ndarray:
        """1 / K."""
        flat = values.ravel()
        lowest = _log_lowest_square(np.broadcast_to(excess, (y.size, flat.size)), np.ones(y.size), flat)
        rates = 2 * np.log(flat) - np.logaddexp(lowest, excess)
        return (1 / np.sum(np.exp(rates), axis=0)).reshape(values.shape)

    def panels(low: float, high: float, near: bool) -> tuple[np.ndarray, np.ndarray]:
        """Values from `low` to `high` on one side of half (or twice) the target, and the weight of 1 / K there."""
        if low == high:
            return np.zeros(0), np.zeros(0)
        first, last = np.log(np.abs(1 - np.array([low, high]))) if near else np.log([low, high])
        edges = np.linspace(first, last, 1 + math.ceil(abs(last - first) / _PANEL))
        half = np.diff(edges)[:, None] / 2
        nodes = np.exp(edges[:-1, None] + half * (_NODES + 1))
        weights = -half * _WEIGHTS if near else half * _WEIGHTS * nodes / (1 - nodes)
        return ((1 - nodes if up else 1 + nodes) if near else nodes).ravel(), weights.ravel()

    at = float(np.prod(y))
    up = at < 1
    if at < np.finfo(float).tiny and np.all(y > 0):
        raise InputError(f"initial = {_check.show(given)} is not allowed: its product is below double precision.")
    ahead = (at < ends) & (ends < 1) if up else (ends > 1) & (ends < at)
    times = np.where((ends <= at) if up else (ends >= at), 0.0, np.inf)
    passed: list[Any] = []
    pieces: list[tuple[np.ndarray, np.ndarray]] = []
    parts = [0]
    for k in sorted(np.flatnonzero(ahead), key=lambda k: ends[k] if up else -ends[k]):
        aim = float(ends[k])
        if at == 0:  # K is analytic around 0, on the scale at which the zero layer meets the next
            rest = y[y > 0]
            at = min(aim, _LINEAR, _LINEAR * float(np.prod(rest) * np.min(rest, initial=1.0)))
            if at < np.finfo(float).tiny:
                if y.size == 2:  # a logarithm, which is no large number
                    raise InputError(
                        f"initial = {_check.show(given)} is not allowed: its square is below double precision."
                    )
                break  # 1 / K is beyond all numbers
            values = at * (_NODES + 1) / 2
            pieces.append((values, _WEIGHTS / (1 - values) * at / 2))
        turn = float(np.clip(0.5 if up else 2.0, min(at, aim), max(at, aim)))
        pieces += [panels(at, turn, near=False), panels(turn, aim, near=True)]
        at = aim
        passed.append(k)
        parts.append(len(pieces))
    if passed:  # all values at once: solving for K at one costs as much as at thousands
        values, weights = (np.concatenate(part) for part in zip(*pieces, strict=True))
        cuts = np.cumsum([0, *(part.size for part, _ in pieces)])[parts[1:-1]]
        times[passed] = np.cumsum([np.sum(part) for part in np.split(weights * clock(values), cuts)])
    return times / unit ** (2 * y.size - 2)


def flow_sharpness(alpha: Any, s: Any, depth: int) -> Float[np.ndarray, "..."]:
    """Psi(alpha) = s^2 sum_l 1/y_l^2, the sharpness of one mode where gradient flow ends from the one-zero start.

    Psi = s^2 (1/x^2 + (L-1)/y^2), x y^{L-1} = s, y^2 - x^2 = alpha^2 (`stability/C10`); S at alpha = 0, and above it.
    """
    depth = _check.integer("depth", depth, least=2)
    x, y = _one_zero_flow(alpha, s, depth)
    s = _positive("s", s)
    with np.errstate(over="ignore"):
        return (s / x) ** 2 + (depth - 1) * (s / y) ** 2


def flow_growth(alpha: Any, s: Any, depth: int) -> Float[np.ndarray, "..."]:
    """P(alpha) = 2 (1/L - 1/L^2) / (x^2 + alpha^2/L)^2 with d log Psi / d alpha = P alpha^3; largest at `top_alpha`."""
    depth = _check.integer("depth", depth, least=2)
    x, _ = _one_zero_flow(alpha, s, depth)
    with np.errstate(over="ignore"):
        return 2 * (1 / depth - 1 / depth**2) / np.hypot(x, np.asarray(alpha, dtype=float) / math.sqrt(depth)) ** 4


def _one_zero_flow(alpha: Any, s: Any, depth: int) -> tuple[np.ndarray, np.ndarray]:
    alpha, s = np.asarray(_check.numbers("alpha", alpha, least=0)), _positive("s", s)
    _check.matching(alpha=alpha, s=s)
    alpha, s = np.broadcast_arrays(alpha, s)
    # in units of s^{1/L}
    unit = s ** (1 / depth)
    with np.errstate(divide="ignore"):
        excess = np.stack([np.full(unit.shape, -np.inf), 2 * (np.log(alpha) - np.log(unit))])
    x = unit * np.exp(_log_lowest_square(excess, np.array([1.0, depth - 1.0]), np.ones_like(unit)) / 2)
    return x, np.hypot(x, alpha)


def top_alpha(s: Any, depth: int) -> Float[np.ndarray, "..."]:
    """The alpha at which P is largest: (s/B)^{1/L}, B = (L(L-2))^{-1/2} (1 + 1/(L(L-2)))^{(L-1)/2}; 0 for L = 2."""
    depth = _check.integer("depth", depth, least=2)
    s = _positive("s", s)
    return 0 * s if depth == 2 else (s / _b(depth)) ** (1 / depth)


def _b(depth: int) -> float:
    inner = depth * (depth - 2)
    return float(inner**-0.5 * (1 + 1 / inner) ** ((depth - 1) / 2))


def growth(depth: int) -> float:
    """g(L) of the bound Psi <= S exp(g(L) alpha^4 / (2 s^{4/L})): 1/4 for L = 2, about L for large L."""
    depth = _check.integer("depth", depth, least=2)
    if depth == 2:
        return 0.25
    return (1 / depth - 1 / depth**2) * _b(depth) ** (4 / depth) / (1 / (depth * (depth - 2)) + 1 / depth) ** 2


ALPHA_BOUNDS = ("exact", "sharp", "crude", "printed")


def largest_alpha(s: float, depth: int, kappa: float, bound: str = "exact") -> float:
    """The start scale up to which Psi <= 2 sqrt2 / lr, which keeps layer gaps from growing; needs kappa < 2 sqrt2.

    "exact" solves for it; "sharp" uses g(L), "crude" L^2 2^{2(L-1)/L} in its place, and "printed" is the paper's
    alpha' with 2^{(2L-3)/L} (Lemma 2): each is smaller than the one before. The largest s decides for all modes.

    `bound` is "exact", "sharp", "crude", or "printed".
    """
    depth = _check.integer("depth", depth, least=2)
    s, kappa = _check.real("s", s, above=0), _check.real("kappa", kappa, above=0)
    _check.choice("bound", bound, ALPHA_BOUNDS)
    slack = math.log(2 * math.sqrt(2) / kappa)
    if slack <= 0:
        raise InputError(f"kappa = {kappa:g} is not allowed: kappa must be below 2 sqrt(2); take a smaller step.")
    unit = s ** (1 / depth)
    if bound == "exact":
        goal = float(curvature(1.0, depth)) * 2 * math.sqrt(2) / kappa
        guess = (2 * slack / growth(depth)) ** 0.25  # a lower bound, close for kappa near the end of its range
        return unit * _root(lambda a: float(flow_sharpness(a, 1.0, depth)) - goal, 0.999 * guess, 2 * guess)
    power = {"sharp": growth(depth) / 2, "crude": depth**2 * 2 ** ((depth - 2) / depth)}
    return unit * (slack / power.get(bound, depth**2 * 2 ** ((2 * depth - 3) / depth))) ** 0.25


# Along a line through the minimum ------------------------------------------------------------------------------------


class Line(NamedTuple):
    """Derivatives of the loss along a line through a global minimum."""

    second: float
    third: float
    fourth: float

    @property
    def flip(self) -> float:
        """3 f'''^2 - f'' f'''': where it is positive, crossing lr = 2/f'' on this line gives a stable 2-cycle."""
        return 3 * self.third**2 - self.second * self.fourth


def line(layers: Any, direction: Any) -> Line:
    """The loss 1/2 |A(t) - A(0)|^2 on W_l + t D_l, exactly: from the coefficients of the polynomial A(t).

    `layers` are the W_l and `direction` the D_l, both from the input on.
    """
    one, two = (_matrices(name, given) for name, given in (("layers", layers), ("direction", direction)))
    if [w.shape for w in one] != [d.shape for d in two]:
        raise InputError(
            f"direction has layers of shapes {[d.shape for d in two]} and the network {[w.shape for w in one]}: "
            "they must agree."
        )
    d_in = one[0].shape[1]
    total = [np.eye(d_in)] + [np.zeros((d_in, d_in))] * 3
    for w, d in zip(one, two, strict=True):
        total = [w @ total[k] + (d @ total[k - 1] if k else 0 * (w @ total[0])) for k in range(4)]
    _, a, b, c = total
    return Line(float(np.vdot(a, a)), float(6 * np.vdot(a, b)), float(24 * (np.vdot(b, b) / 2 + np.vdot(a, c))))


def mode_line(s: float, depth: int) -> Line:
    """Along a mode: f'' = S and 3 f'''^2 - f'' f'''' = 4 L (L-1)(5L-4) s^{4-6/L} > 0, L >= 2 (`stability/C11`)."""
    depth = _check.integer("depth", depth, least=1)
    rho = _check.real("s", s, above=0) ** (1 / depth)
    return line([[[rho]]] * depth, [[[depth**-0.5]]] * depth)


def cross_line(first: float, second: float, depth: int, angle: float = 0.0) -> Line:
    """Along cos(angle) (i,j) + sin(angle) (j,i), unit eigenvectors of lam_ij: f''' = 0 always (`stability/C11`).

    At angle 0 the loss is exactly quadratic: no 2-cycle is born on that line at any learning rate.
    """
    depth = _check.integer("depth", depth, least=1)
    forth, back = (cross_eigenvector(*pair, depth) for pair in ((first, second), (second, first)))
    layers = [np.diag([first, second]) ** (1 / depth)] * depth
    angle = _check.real("angle", angle)
    cos, sin = math.cos(angle), math.sin(angle)
    return line(layers, [[[0.0, cos * p], [sin * q, 0.0]] for p, q in zip(forth, back, strict=True)])


# Cross directions ----------------------------------------------------------------------------------------------------

SECOND = ("rest", "phase", "antiphase")


def cross_multipliers(ratio: Any, depth: int, kappa: Any, second: str = "rest") -> Complex[np.ndarray, "*batch m"]:
    """Floquet multipliers of cross deviations between mode 1 on its 2-cycle and mode 2 with s_2/s_1 = `ratio`.

    Eigenvalues of (I - lr H_2)(I - lr H_1) with the pair blocks at the two points, without the L - 1 ones that a
    rotation of the hidden layers holds at 1 (`stability/C12`): L + 1 in all, largest first. `kappa` is that of mode 1.
    Mode 2 is at rest at its target, or on its own 2-cycle in phase or in antiphase.

    `second` is "rest", "phase", or "antiphase".
    """
    depth = _check.integer("depth", depth, least=2)
    _check.choice("second", second, SECOND)
    q, k = _positive("ratio", ratio), _positive("kappa", kappa)
    _check.matching(ratio=q, kappa=k)
    q, k = np.broadcast_arrays(q, k)
    one = maps.two_cycle(depth, k.ravel())
    own = k.ravel() * q.ravel() ** (2 - 2 / depth)
    if second == "rest":
        other = np.ones((2, k.size))
    else:
        two = maps.two_cycle(depth, own)
        other = np.stack([two.low, two.high] if second == "phase" else [two.high, two.low])
    values = np.stack([np.stack([one.low, one.high]), q.ravel() ** (1 / depth) * other], axis=-1)
    blocks = np.asarray(evaluate(_pair_blocks, values, q.ravel(), depth=depth))
    steps = (k.ravel() / depth)[None, :, None, None]
    with np.errstate(over="ignore", invalid="ignore"):
        large = np.max(np.abs(steps * blocks))
    if not large < _PRODUCTS:
        raise InputError(
            "ratio and kappa as large as these are not allowed: the multipliers are beyond double precision."
        )
    found = maps.free(maps.floquet(np.eye(2 * depth) - steps * blocks), depth - 1)
    return found.reshape(*k.shape, depth + 1)


def _pair_blocks(xp: Any, values: Array, ratio: Array, *, depth: int) -> Array:
    y = xp.broadcast_to(values[..., None, :], (*values.shape[:-1], depth, 2))
    return blocks_of_values(xp, y, xp.stack([xp.ones_like(ratio), ratio], axis=-1))[1][..., 0, :, :]


def cross_multipliers_two_layers(first: float, second: float) -> Complex[np.ndarray, " 3"]:
    """The same for L = 2 and mode 2 at rest in closed form, largest first: 1 - (e_1-e_2)(1+e_2) and a pair.

    The pair solves m^2 - tau m + D, tau = 4 - 3e_1 - e_2 + e_1 e_2 + e_2^2, D = 1 + delta (1+e_1) + delta^2,
    delta = e_1 + e_2 - 2, e_i = lr s_i: it leaves the unit circle exactly at lr = 2 / lam_12. Mode 1 has a 2-cycle, or
    is at the onset of one, where e_1 >= 1.
    """
    a, b = _check.real("first", first, least=1), _check.real("second", second, above=0)
    if max(a, b) > _PRODUCTS:
        raise InputError(
            f"first = {a:g} with second = {b:g} is not allowed: the multipliers are beyond double precision."
        )
    delta = a + b - 2
    pair = np.roots([1.0, -(4 - 3 * a - b + a * b + b * b), 1 + delta * (1 + a) + delta**2])
    values = np.array([1 - (a - b) * (1 + b), *pair], dtype=complex)
    return values[np.argsort(-np.abs(values))]


def cross_edge(ratio: Any, depth: int) -> Float[np.ndarray, "..."]:
    """kappa at lr = 2 / lam_12, where the minimum itself becomes unstable in the cross directions."""
    return 2 * curvature(1.0, depth) / cross_curvature(1.0, _positive("ratio", ratio), depth)


def cross_threshold(ratio: float, depth: int) -> float:
    """kappa_c from which cross deviations grow on the 2-cycle of mode 1, mode 2 at rest with s_2/s_1 = `ratio`.

    Exactly `cross_edge` for L = 2 and a little above for L >= 3. Infinite where the 2-cycle is stable until it
    doubles.
    """
    return _cross_threshold(_check.real("ratio", ratio, above=0, most=1), _check.integer("depth", depth, least=2))


@lru_cache
def _cross_threshold(ratio: float, depth: int) -> float:
    last = stages(depth).doublings[1]
    edge = float(cross_edge(ratio, depth))

    def excess(steps: float) -> float:
        return float(np.abs(cross_multipliers(ratio, depth, steps)[0])) - 1

    if edge >= last or excess(last) <= 0:
        return math.inf
    if depth == 2:
        return edge
    return crossing(excess, edge * (1 - 1e-9), last, tolerance=1e-13)


def cross_ratio(depth: int) -> float:
    """The s_2/s_1 below which the 2-cycle of mode 1 is stable in the cross directions until it doubles."""
    depth = _check.integer("depth", depth, least=2)
    last = float(stages(depth).doublings[1])
    return crossing(lambda q: float(np.abs(cross_multipliers(q, depth, last)[0])) - 1, 0.5, 0.95, tolerance=1e-12)


# Other predictions ---------------------------------------------------------------------------------------------------


def sorting_onset(ratio: float, depth: int) -> float:
    """kappa of mode 1 from which *sorted* second singular values alternate although mode 2 is at rest.

    The low phase of mode 1 then passes below mode 2: x_low^L = s_2/s_1 = `ratio`.
    """
    ratio = _check.real("ratio", ratio, above=0, below=1)
    depth = _check.integer("depth", depth, least=2)
    return _root(lambda k: float(maps.two_cycle(depth, k).low) ** depth - ratio, 2.0, 3.0)


def sorting_crossover(depth: int) -> float:
    """The s_2/s_1 above which sorted values alternate already below lr = 2 / lam_12."""
    return crossing(lambda q: sorting_onset(q, depth) - float(cross_edge(q, depth)), 0.2, 0.7, tolerance=1e-12)


def escape_time(s: Any, alpha: Any, depth: int, init: str = "one_zero") -> Float[np.ndarray, "..."]:
    """The time lr * steps that a mode takes to leave the saddle, for small alpha and lr.

    `init` "one_zero", n = L - 2: (sqrt(pi)/2) Gamma(n/2) / Gamma((n+1)/2) / (s alpha^n); "balanced":
    alpha^{-n} / (n s). For L = 2 when the linearized growth reaches s: asinh(2s/alpha^2)/(2s) and ln(s/alpha^2)/(2s).
    """
    depth = _check.integer("depth", depth, least=2)
    _check.choice("init", init, ("one_zero", "balanced"))
    s, alpha = _positive("s", s), _positive("alpha", alpha)
    _check.matching(s=s, alpha=alpha)
    n = depth - 2
    if init == "balanced":
        return alpha**-n / (n * s) if n else np.log(s / alpha**2) / (2 * s)
    if n == 0:
        return np.arcsinh(2 * s / alpha**2) / (2 * s)
    return math.sqrt(math.pi) / 2 * math.exp(math.lgamma(n / 2) - math.lgamma((n + 1) / 2)) / (s * alpha**n)


# Checks --------------------------------------------------------------------------------------------------------------


def _positive(name: str, value: Any) -> np.ndarray:
    return np.asarray(_check.numbers(name, value, above=0))


def _matrices(name: str, given: Any) -> list[np.ndarray]:
    """Layers that can be multiplied, the first one first."""
    if not isinstance(given, list | tuple | np.ndarray) or not len(given):
        raise InputError(f"{name} = {_check.show(given)} is not allowed: {name} must be a list of matrices.")
    found = [np.asarray(_check.double(f"{name}[{i}]", w, ndim=2)) for i, w in enumerate(given)]
    if any(above.shape[1] != below.shape[0] for below, above in pairwise(found)):
        raise InputError(f"{name} has shapes {[w.shape for w in found]}: each must fit on the one before.")
    return found


def _spectrum(spectrum: Any) -> np.ndarray:
    s = np.asarray(_check.double("spectrum", spectrum, ndim=1))
    if np.any(s <= 0):
        raise InputError(
            f"spectrum = {_check.show(spectrum)} is not allowed: leave out zeros; singular values are positive."
        )
    if np.any(np.diff(s) > 0):
        raise InputError(f"spectrum = {_check.show(spectrum)} is not allowed: it must descend; sort it.")
    return s


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """The root above `low`; the bracket is moved up and doubled until the sign has changed."""
    sign = function(low) > 0
    while (function(high) > 0) == sign:
        low, high = high, high + 2 * (high - low)
        if high > 1e300:
            raise InputError("no root was found: the numbers given are too extreme.")
    return crossing(function, low, high, tolerance=1e-14)
