"""The critical step: how much longer the last step could have been before it would have raised the loss.

Along w + c u, u the last change of the weights, c* is the largest c with L(w + c u) <= L(w): 2 (-g.u) / (u.H u) of a
parabola. psi(c) = (L(w + c u) - L(w)) / c is then linear, so c* is bracketed by secants of psi. From c = 0, 1, 2
alone, with d1 and d2 the changes of the loss, s = d1 - q is the slope and q = (d2 - 2 d1) / 2 half the curvature:
c* = -s / q. Over several batches C = - sum s / sum q. At c* = 1 a step no longer lowers the loss. Of the step's own
batch, 1 / c* is the distance from the stochastic edge; it is lr (g.H g) / (2 |g|^2) for gradient descent.
"""

import math
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

MOST, FORWARDS, WIDTH = 64.0, 7, 1.1  # the largest c that is tried, how often, and up to which ratio of bounds
_SHORT, _LONG = 1.5, 8.0  # factors of one trial to the next while there is no bound
_DRAWS, _SIDE = 400, 0.1  # of the bootstrap; what is outside of its interval on each side


class Bracket(NamedTuple):
    """low <= c* <= high; high is infinite above the largest c that is tried. `forwards` evaluations were made."""

    low: float
    high: float
    forwards: int


class Parabola(NamedTuple):
    """Slope and half the curvature of the loss along a step, for one batch."""

    slope: float
    half: float

    @classmethod
    def of(cls, base: float, once: float, twice: float) -> "Parabola":
        """Through the losses at c = 0, 1, 2."""
        half = ((twice - base) - 2 * (once - base)) / 2
        return cls(once - base - half, half)


class Interval(NamedTuple):
    """C of several batches, and an 80 % interval; infinite where the loss does not curve upwards."""

    value: float
    low: float
    high: float


def bracket(loss: Callable[[float], float]) -> Bracket:
    """Bounds of c* of a loss along a step."""
    base = loss(0.0)
    if not math.isfinite(base):
        return Bracket(math.nan, math.nan, 1)
    low, high, c = 0.0, math.inf, 1.0
    known: list[tuple[float, float]] = []
    made = 1
    while made < FORWARDS:
        made += 1
        value = loss(c)
        psi = (value - base) / c if math.isfinite(value) else math.inf
        low, high = (max(low, c), high) if psi <= 0 else (low, min(high, c))
        known.append((c, psi))
        if high / max(low, 1 / MOST) <= WIDTH or low >= MOST or high <= 1 / MOST:
            break
        c = _next(low, high, known)
    return Bracket(low, math.inf if low >= MOST else high, made)


def _next(low: float, high: float, known: Sequence[tuple[float, float]]) -> float:
    """The next c: the root of the secant, inside of what is known, or a limited step outwards."""
    finite = sorted((pair for pair in known if math.isfinite(pair[1])), key=lambda pair: abs(pair[1]))[:2]
    root = math.nan
    if len(finite) == 2 and finite[0][1] != finite[1][1]:
        (a, f), (b, g) = finite
        root = a - f * (b - a) / (g - f)
    if high == math.inf:
        up = root if root > low else _LONG * low
        return min(MOST, max(_SHORT * low, min(_LONG * low, up)))
    if low == 0:
        down = root if 0 < root < high else high / _LONG
        return max(high / _LONG, min(high / _SHORT, down))
    inside = root if low < root < high else math.sqrt(low * high)
    # not at the root but a little beyond: so both bounds come near
    side = WIDTH**0.45
    inside = inside * side if inside / low < high / inside else inside / side
    return inside if low < inside < high else math.sqrt(low * high)


def together(parabolas: Sequence[Parabola], draws: int = _DRAWS) -> Interval:
    """C of several batches, with the interval of resampled batches."""
    choose = random.Random(0).choices  # its own generator
    samples = sorted(_ratio(choose(parabolas, k=len(parabolas))) for _ in range(draws))
    return Interval(_ratio(parabolas), samples[round(_SIDE * draws)], samples[round((1 - _SIDE) * draws) - 1])


def _ratio(parabolas: Sequence[Parabola]) -> float:
    """- sum s / sum q: 0 where the step goes uphill, infinite where it goes downhill without end."""
    slope, half = math.fsum(one.slope for one in parabolas), math.fsum(one.half for one in parabolas)
    if slope >= 0:
        return 0.0
    return -slope / half if half > 0 else math.inf
