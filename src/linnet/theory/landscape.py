"""The landscape of deep linear networks: critical points by the modes they have learned (Eftekhari, section 2).

Letters as in the paper, modes z_1 >= z_2 >= ... numbered from 1. A critical point that is balanced, or balanced up to a
change of basis between layers, keeps a set I of modes and drops the others; r is the smallest width, ends included.

Arguments: `values` are the z_i in descending order, `widths` the numbers of neurons from inputs to outputs, ends
included.
"""

import heapq
import math
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from linnet import _check
from linnet._check import InputError
from linnet.linalg import RANK_TOLERANCE
from linnet.observe import Kind
from linnet.problems import Factorization, Regression

# One point -----------------------------------------------------------------------------------------------------------


class Spectrum(NamedTuple):
    """Distinct eigenvalues, descending, and how often each occurs."""

    values: Float[np.ndarray, " k"]
    multiplicities: Int[np.ndarray, " k"]

    @property
    def smallest(self) -> float:
        """The smallest eigenvalue."""
        return float(self.values[-1])

    def all(self) -> Float[np.ndarray, " parameters"]:
        """Every eigenvalue as often as it occurs, descending."""
        return np.repeat(self.values, self.multiplicities)


def spectrum(values: Any, widths: Sequence[int], kept: Sequence[int], *, curvature: float = 1.0) -> Spectrum:
    """The Hessian at the balanced critical point that keeps some modes of whitened data, in closed form.

    `values` are the singular values z of the target Z, `widths` = (d_in, hidden ..., d_out), `curvature` is c in
    dC/dA = c (A - Z): n for the loss 1/2 |X A^T - Y|^2. With e = 2 - 2/L, eigenvalues in units of c:

    - kept p and kept p': K = sum_j z_p^{2(L-j)/L} z_p'^{2(j-1)/L}, for each ordered pair;
    - kept p and dropped q: z_p^{1-2/L} (z_p - z_q) and z_p^{1-2/L} (z_p + z_q);
    - kept p and a dimension that the shorter side lacks: z_p^e;
    - two layers, a dropped q and a neuron that learned nothing: z_q and -z_q;
    - all others are zero.
    """
    widths, z = _widths(widths), _values(values, widths)
    c, depth = _check.real("curvature", curvature, above=0), len(widths) - 1
    kept = _kept(kept, z, widths)
    inside = np.array([i + 1 in kept for i in range(len(z))], dtype=bool)
    p, q, k = z[inside], z[~inside], len(kept)
    j = np.arange(depth)
    pairs = np.sum(p[:, None, None] ** (2 * (depth - 1 - j) / depth) * p[None, :, None] ** (2 * j / depth), axis=-1)
    slope = p[:, None] ** (1 - 2 / depth)
    gap = np.where(np.abs(p[:, None] - q) > RANK_TOLERANCE * z[0], p[:, None] - q, 0.0)  # as `index` counts them
    groups = [
        ((pairs + pairs.T) / 2, 1),  # equal in both orders to the last digit, so that they count as one value
        (slope * gap, 1),
        (slope * (p[:, None] + q), 1),
        (p ** (2 - 2 / depth), abs(widths[0] - widths[-1])),
    ]
    if depth == 2:
        groups += [(q, widths[1] - k), (-q, widths[1] - k)]
    found = np.concatenate([np.ravel(group) for group, _ in groups])
    times = np.concatenate([np.full(np.size(group), count) for group, count in groups])
    parameters = sum(below * above for below, above in pairwise(widths))
    found, times = np.append(found, 0.0), np.append(times, parameters - np.sum(times))
    distinct, place = np.unique(found[times > 0], return_inverse=True)
    counts = np.zeros(len(distinct), dtype=int)
    np.add.at(counts, place, times[times > 0])
    return Spectrum(c * distinct[::-1], counts[::-1])


def index(values: Any, widths: Sequence[int], kept: Sequence[int]) -> int:
    """How many Hessian eigenvalues are negative: one for each kept p and dropped q with z_q > z_p; for two layers also
    one for each dropped q and each neuron that learned nothing.

    It is the same for any data (`values` are then those of `problem.fit()`) and in any basis between the layers: the
    second-order form depends on the layers only through P = W_L ... W_2 and Q = W_1, so whitening and changes of basis
    are congruences. Values within 1e-13 of the largest count as equal.

    >>> from linnet.theory import landscape
    >>> landscape.index([3.0, 2.0, 1.0], widths=(3, 1, 3), kept=(2,))  # mode 1 is larger: one descent direction
    1
    """
    widths, z = _widths(widths), _values(values, widths)
    kept = _kept(kept, z, widths)
    count, tie = _rank(z), RANK_TOLERANCE * float(z[0])
    dropped = [z[i] for i in range(count) if i + 1 not in kept]
    pairs = sum(q > z[p - 1] + tie for p in kept for q in dropped)
    return int(pairs) + (len(dropped) * (widths[1] - len(kept)) if len(widths) == 3 else 0)


def label(values: Any, widths: Sequence[int], kept: Sequence[int]) -> Kind:
    """A strict saddle, degenerate or a global minimum, as `observe.classify` would find (nonlocal/C3 to C5).

    Negative curvature is a strict saddle. Without it the kept modes are the largest; then the point is a global minimum
    if the bottleneck or the modes are used up, and degenerate else, which happens from three layers on.
    """
    widths, z = _widths(widths), _values(values, widths)
    kept = _kept(kept, z, widths)
    if index(z, widths, kept):
        return Kind.STRICT_SADDLE
    return Kind.GLOBAL_MIN if len(kept) == min(*widths, _rank(z)) else Kind.DEGENERATE_SOSP


# A network's points --------------------------------------------------------------------------------------------------


class CriticalPoint(NamedTuple):
    """The balanced critical point with these modes.

    `negative` eigenvalues of its Hessian, of which the `smallest` is nan where it has no closed form.
    """

    kept: tuple[int, ...]
    loss: float
    excess: float
    label: Kind
    negative: int
    smallest: float


class Landscape(NamedTuple):
    """Critical points in the order of their loss, how many sets of modes there are, and whether data are white."""

    points: list[CriticalPoint]
    total: int
    whitened: bool
    values: Float[np.ndarray, " k"]
    bottleneck: int


def critical_points(problem: Factorization | Regression, hidden: Sequence[int], *, most: int | None = 64) -> Landscape:
    """The critical points of a network with these hidden widths, by the set of modes they keep.

    Loss, label and index hold for any data; the smallest eigenvalue of the balanced point has a closed form if
    X^T X is a multiple of the identity. All sets if there are at most `most` (or it is None); else the sets
    {1 ... k}, which training from small weights visits, always, and then those of the smallest loss up to `most`.
    """
    if not isinstance(problem, Factorization | Regression):
        raise InputError(
            f"problem = {_check.show(problem)} is not allowed: critical points by modes need a factorization or a "
            "regression."
        )
    fit = problem.fit()
    if not isinstance(hidden, Sequence) or isinstance(hidden, str) or not hidden:
        raise InputError(
            f"hidden = {_check.show(hidden)} is not allowed: give at least one hidden width, such as (3,)."
        )
    inner = (_check.integer("a hidden width", width, least=1) for width in hidden)
    widths = (problem.shape[1], *inner, problem.shape[0])
    z, gains, floor = np.asarray(fit.values), np.asarray(fit.gains), float(fit.floor)
    count, r = _rank(z), min(widths)
    c = _curvature(problem)
    total = sum(math.comb(count, k) for k in range(min(r, count) + 1))
    limit = total if most is None else _check.integer("most", most, least=1)
    if total <= limit:
        sets = [kept for k in range(min(r, count) + 1) for kept in combinations(range(1, count + 1), k)]
    else:
        sets = [tuple(range(1, k + 1)) for k in range(min(r, count) + 1)]
        known = set(sets)
        for kept in _by_loss(gains[:count], r):
            if len(sets) >= limit:
                break
            if kept not in known:
                sets.append(kept)
    best = float(np.sum(gains[r:]))
    # values of the fit are those of sqrt(X^T X) Z: for white data z sqrt(c) up to the cost's scale
    white = None if c is None else np.sqrt(2 * gains / c)

    def point(kept: tuple[int, ...]) -> CriticalPoint:
        dropped = float(np.sum(np.delete(gains, [i - 1 for i in kept])))
        smallest = math.nan if white is None or c is None else spectrum(white, widths, kept, curvature=c).smallest
        return CriticalPoint(
            kept, floor + dropped, dropped - best, label(z, widths, kept), index(z, widths, kept), smallest
        )

    points = sorted(map(point, sets), key=lambda found: (found.loss, len(found.kept), found.kept))
    return Landscape(points, total, c is not None, z if white is None else white, r)


def _by_loss(gains: np.ndarray, rank: int) -> Iterator[tuple[int, ...]]:
    """All sets of at most `rank` modes, the largest sum of gains first.

    From the best set every other one is reached by exchanging a mode for the next smaller one or dropping the last,
    and no exchange gains: a heap of the sets reached so far gives them in order.
    """
    count = len(gains)
    first = tuple(range(1, min(rank, count) + 1))
    heap, visited = [(-float(np.sum(gains[: len(first)])), first)], {first}
    while heap:
        negative, kept = heapq.heappop(heap)
        yield kept
        for place, mode in enumerate(kept):
            if mode + 1 in kept:
                continue
            moved = kept[:place] + ((mode + 1,) if mode < count else ()) + kept[place + 1 :]
            if moved not in visited:
                visited.add(moved)
                lost = float(gains[mode - 1]) - (float(gains[mode]) if mode < count else 0.0)
                heapq.heappush(heap, (negative + lost, moved))


def _curvature(problem: Factorization | Regression) -> float | None:
    """c if the second derivative of the cost in A is c times the identity, else None."""
    if isinstance(problem, Factorization):
        return float(problem.scale)
    gram = np.asarray(problem.gram) * float(problem.scale) * float(problem.output_scale) ** 2
    c = float(np.trace(gram)) / len(gram)
    return c if np.max(np.abs(gram - c * np.eye(len(gram)))) <= 1e-10 * c else None


# Checks --------------------------------------------------------------------------------------------------------------


def _widths(widths: Sequence[int]) -> tuple[int, ...]:
    if not isinstance(widths, Sequence) or isinstance(widths, str) or len(widths) < 3:
        raise InputError(
            f"widths = {_check.show(widths)} is not allowed: give (d_in, hidden ..., d_out), two layers or more."
        )
    return tuple(_check.integer("width", width, least=1) for width in widths)


def _values(values: Any, widths: tuple[int, ...]) -> Float[np.ndarray, " k"]:
    try:
        z = np.atleast_1d(np.asarray(values, dtype=float))
    except (TypeError, ValueError):
        z = np.array([np.nan])
    short = min(widths[0], widths[-1])
    if z.ndim != 1 or len(z) > short or not np.all(np.isfinite(z)) or np.any(z < 0) or np.any(np.diff(z) > 0):
        raise InputError(
            f"values = {_check.show(values if np.ndim(values) == 0 else list(np.ravel(values)))} are not allowed: give "
            f"at most min(d_in, d_out) = {short} singular values, not negative, in descending order."
        )
    return np.concatenate([z, np.zeros(short - len(z))])


def _rank(z: Float[np.ndarray, " k"]) -> int:
    return int(np.sum(z > RANK_TOLERANCE * z[0]))


def _kept(kept: Sequence[int], z: Float[np.ndarray, " k"], widths: tuple[int, ...]) -> tuple[int, ...]:
    return _check.modes("kept", kept, known=_rank(z), most=min(widths))
