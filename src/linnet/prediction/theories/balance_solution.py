"""The flow of lambda-balanced layers on one task, in closed form: where it ends, when, and what the kernel does."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from linnet._check import InputError
from linnet.linalg import RANK_TOLERANCE
from linnet.maps import crossing
from linnet.prediction.theories.brackets import brackets, roots
from linnet.states import Weights
from linnet.theory import balance, mixed
from linnet.theory.balance import Grams

HALF, NEAR = 0.5, 0.01  # of a mode; what is left of a mode that is learned, and of an excess loss that is fitted
LARGEST = 200  # inputs and outputs together where the modes are not independent: the whole flow is evaluated
_ALIGNED = 1e-12  # of the layers' squares: what counts as zero beside a mode
_OCTAVE = 8  # samples of a flow while its time doubles
_FIRST, _LAST = -12, 17  # octaves of the flow's own time, the eigenvalue of F, within which it is sampled
_RECORDS = 300


class Triplets(NamedTuple):
    """Singular triplets of a target, as many as its smaller side, zeros included; vectors are columns."""

    left: Float[np.ndarray, "d_out k"]
    values: Float[np.ndarray, " k"]
    right: Float[np.ndarray, "d_in k"]


class BalanceCurves(NamedTuple):
    """At some times: u_i^T A v_i, the loss above its end, and |Theta - Theta_0| / |Theta_0|."""

    modes: Float[np.ndarray, "times k"]
    excess: Float[np.ndarray, " times"]
    kernel_change: Float[np.ndarray, " times"]


class Slopes(NamedTuple):
    """u_i^T A v_i and the loss above its end, and their derivatives in time."""

    modes: Float[np.ndarray, "times k"]
    excess: Float[np.ndarray, " times"]
    speed: Float[np.ndarray, "times k"]
    fall: Float[np.ndarray, " times"]


class LearningTimes(NamedTuple):
    """When each mode is half learned and learned, and the excess loss fitted: infinite if never, NaN if unknown."""

    half: Float[np.ndarray, " k"]
    near: Float[np.ndarray, " k"]
    fit: float


@dataclass(frozen=True, eq=False)
class BalancedFlow:
    """The flow of balanced layers on a target, from `first` to `last`; the loss is curvature/2 |A - Y|^2.

    `aligned`: the triplets diagonalize the initialization, so that every mode moves by itself and has its own formula.
    Else the whole flow is evaluated.
    """

    initial: Weights
    target: Float[np.ndarray, "d_out d_in"]
    curvature: float
    lam: float
    triplets: Triplets
    aligned: bool
    carried: Bool[np.ndarray, " k"]  # which modes have neurons at initialization
    first: Grams
    last: Grams
    missing: int  # modes that the width has room for and that never come

    @property
    def begin(self) -> Float[np.ndarray, " k"]:
        """u_i^T A v_i at initialization."""
        return along(self.triplets, self.first.matrix)

    @property
    def goal(self) -> Float[np.ndarray, " k"]:
        """u_i^T A v_i in the end."""
        return along(self.triplets, self.last.matrix)

    @property
    def unit(self) -> float:
        """The flow's shortest time: 1 / (c hypot(s_1, lambda/2))."""
        return float(1 / (self.curvature * np.hypot(self.triplets.values[0], self.lam / 2)))

    @property
    def horizon(self) -> float:
        """A time well after all is learned, and before rounding leaves a saddle."""
        moments = np.concatenate([self.times.half, self.times.near, [self.times.fit]])
        late = float(np.max(moments, initial=0.0, where=np.isfinite(moments)))
        return max(1.3 * late, 6 * self.unit) if self.missing or late == 0 else 1.3 * late

    @property
    def clock(self) -> Float[np.ndarray, " times"]:
        """Times from the initialization to the horizon, dense at both scales."""
        late = self.horizon
        return np.unique(np.append(np.linspace(0, late, _RECORDS // 2), np.geomspace(late / 1e3, late, _RECORDS)))

    def loss(self, matrix: Any) -> Any:
        """c/2 |A - Y|^2."""
        return self.curvature / 2 * np.sum((np.asarray(matrix) - self.target) ** 2, axis=(-2, -1))

    def curves(self, times: Any = None) -> BalanceCurves:
        """In closed form, by modes or by the whole flow: at these times, by default those of `clock`."""
        clock, (u, s, v) = np.asarray(self.clock if times is None else times, dtype=float), self.triplets
        end = float(self.loss(self.last.matrix))
        if not self.aligned:
            found = self._flow(clock)
            modes = np.einsum("ok,toi,ik->tk", u, found.matrix, v)
            return BalanceCurves(modes, self.loss(found.matrix) - end, kernel_change(self.first, found))
        moved = np.asarray(balance.mode(clock, self.begin, s, self.lam, self.curvature))
        modes = np.where(self.carried, moved, self.begin)
        grown = _grown(self.begin, modes, self.lam)
        change = np.sum(grown**2, axis=-1) * sum(self.target.shape) + 2 * np.sum(grown, axis=-1) ** 2
        excess = self.curvature / 2 * np.sum((modes - s) ** 2 - (self.goal - s) ** 2, axis=-1)
        return BalanceCurves(modes, excess, _over(np.sqrt(change), self.first))

    @cached_property
    def times(self) -> LearningTimes:
        """When modes are learned and the loss is fitted."""
        s, begin, goal = self.triplets.values, self.begin, self.goal
        comes = np.abs(goal - s) < NEAR * s
        half = np.where((s > 0) & (goal > HALF * s), np.where(begin >= HALF * s, 0.0, np.nan), np.inf)
        near = np.where(comes, np.where(np.abs(begin - s) <= NEAR * s, 0.0, np.nan), np.inf)
        if not self.aligned:
            return self._by_flow(half, near, comes)
        ends = np.where(begin < s, 1 - NEAR, 1 + NEAR) * s
        sides = [
            np.asarray(mixed.mode_time(begin, end, s, abs(self.lam) / 2, self.curvature)) for end in (HALF * s, ends)
        ]
        half, near = (np.where(np.isnan(known), side, known) for known, side in zip((half, near), sides, strict=True))
        return LearningTimes(half, near, self._fitted(self.unit * 2.0**_FIRST))

    @property
    def whole(self) -> float:
        """The excess loss at initialization, 0 if that is rounding."""
        begin, end = (float(self.loss(at.matrix)) for at in (self.first, self.last))
        unit = self.curvature * float(np.sum(self.triplets.values**2))
        return begin - end if begin - end > RANK_TOLERANCE * max(begin, unit) else 0.0

    def _fitted(self, early: float) -> float:
        """When the excess loss, which only falls, is down to its share."""
        whole = self.whole
        if whole == 0:
            return 0.0

        def left(time: float) -> float:
            return float(self.curves([time]).excess[0]) / (NEAR * whole) - 1

        late = early
        while left(late) > 0:
            late *= 2
            if late > 1e300:
                return math.nan
        return crossing(left, late / 2 if late > early else 0.0, late)

    def _by_flow(
        self, half: Float[np.ndarray, " k"], near: Float[np.ndarray, " k"], comes: Bool[np.ndarray, " k"]
    ) -> LearningTimes:
        """The times of the whole flow: from eight samples while its time doubles, and roots between two of them."""
        s, whole = self.triplets.values, self.whole
        clock = self.unit * np.concatenate([[0.0], 2.0 ** np.arange(_FIRST, 0, 1 / _OCTAVE)])
        modes, excess = self._slopes(clock)[:2]
        for octave in range(_LAST):
            more = self.unit * 2.0 ** (octave + np.arange(_OCTAVE) / _OCTAVE)
            new = self._slopes(more)
            clock, modes, excess = np.append(clock, more), np.append(modes, new.modes, 0), np.append(excess, new.excess)
            close = np.abs(new.modes - s)[:, comes] <= NEAR * s[comes]
            if close.all() and (whole == 0 or np.all(new.excess <= NEAR * whole)):
                break
        begins, ends = np.flatnonzero(np.isnan(half)), np.flatnonzero(np.isnan(near) | (near == 0))

        def rising(at: Slopes) -> tuple[np.ndarray, np.ndarray]:
            """What passes zero from below at the times to be found, one a column, and its derivative."""
            gap, side = at.modes[:, ends] - s[ends], -np.sign(at.modes[:, ends] - s[ends])
            left = NEAR * whole - at.excess[:, None]
            values = [at.modes[:, begins] - HALF * s[begins], NEAR * s[ends] - np.abs(gap), left]
            slopes = [at.speed[:, begins], side * at.speed[:, ends], -at.fall[:, None]]
            return np.concatenate(values, axis=1), np.concatenate(slopes, axis=1)

        curves = rising(Slopes(modes, excess, modes, excess))[0]
        low, high = (clock[sample] for sample in brackets(curves, len(begins)))
        found = roots(lambda times, i: [x[np.arange(len(i)), i] for x in rising(self._slopes(times))], low, high)
        half, near = half.copy(), near.copy()
        half[begins], near[ends] = found[: len(begins)], found[len(begins) : -1]
        return LearningTimes(half, near, float(found[-1]) if whole else 0.0)

    def _flow(self, times: Float[np.ndarray, " n"]) -> Grams:
        """The whole flow, eight times a call: where it is compiled, once is enough."""
        count = len(times)
        padded = np.append(times, np.full(-count % _OCTAVE, times[-1]))
        calls = padded.reshape(-1, _OCTAVE)
        parts = [balance.flow(times, self.initial, self.target, self.curvature) for times in calls]
        return in_numpy(np.concatenate(part)[:count] for part in zip(*parts, strict=True))

    def _slopes(self, times: Any) -> Slopes:
        """Modes and excess loss of the whole flow, with their derivatives: dA/dt = c (C2 G + G C1), G = Y - A."""
        u, _, v = self.triplets
        a, c1, c2 = self._flow(np.asarray(times))
        gap = self.target - a
        speed = self.curvature * (c2 @ gap + gap @ c1)
        modes, rise = (np.einsum("ok,toi,ik->tk", u, x, v, optimize=True) for x in (a, speed))
        fall = -self.curvature * np.sum(gap * speed, axis=(-2, -1))
        return Slopes(modes, self.loss(a) - float(self.loss(self.last.matrix)), rise, fall)


def solve(
    initial: Weights, target: Float[np.ndarray, "d_out d_in"], curvature: float, lam: float, triplets: Triplets
) -> BalancedFlow:
    """The flow of balanced layers on this target, by its singular triplets.

    Raises:
        InputError: for many inputs and outputs, if the layers are not aligned with the triplets.

    """
    u, s, v = triplets
    first = _grams(initial)
    size = float(np.trace(first.input_gram) + np.trace(first.output_gram))
    a, c1, c2 = along(triplets, first.matrix), _quadratic(v, first.input_gram), _quadratic(u, first.output_gram)
    off = (first.matrix - (u * a) @ v.T, first.input_gram @ v - v * c1, first.output_gram @ u - u * c2)
    aligned = max(float(np.linalg.norm(part)) for part in off) <= _ALIGNED * size
    carried = c1 + c2 > _ALIGNED * size
    if not aligned:
        if sum(target.shape) > LARGEST:
            raise InputError(
                f"problem has {target.shape[1]} inputs and {target.shape[0]} outputs: an initialization that is not "
                f"aligned with the target is followed up to {LARGEST} of both together; ask with one that is "
                "(--aligned), or `predict network`."
            )
        found = balance.end(initial, target, curvature)
        triplets = _rotated(triplets, np.asarray(found.at.matrix))
        last, missing = in_numpy(found.at), int(found.missing)
        return BalancedFlow(initial, target, curvature, lam, triplets, aligned, carried, first, last, missing)
    there = s > RANK_TOLERANCE * s[0]
    comes = carried & there & ((lam != 0) | (a > 0))
    goal = np.where(comes, s, np.where(carried, 0.0, a))
    grown = np.where(carried, _grown(a, goal, lam), 0.0)
    moved = (u * goal) @ v.T, first.input_gram + (v * grown) @ v.T, first.output_gram + (u * grown) @ u.T
    rank = min(initial.widths[1], int(np.sum(there)))
    missing = max(0, rank - int(np.sum(comes & (s >= s[rank - 1] * (1 - 1e-9)))))
    return BalancedFlow(initial, target, curvature, lam, triplets, aligned, carried, first, in_numpy(moved), missing)


def in_numpy(parts: Iterable[Any]) -> Grams:
    """A, C1 and C2 as NumPy has them."""
    known: Any = [np.asarray(part) for part in parts]
    return Grams(*known)


def triplets_of(target: Float[np.ndarray, "d_out d_in"]) -> Triplets:
    """By an SVD."""
    u, s, vt = np.linalg.svd(target, full_matrices=False)
    return Triplets(u, np.where(s > RANK_TOLERANCE * s[0], s, 0.0), vt.T)


def _rotated(triplets: Triplets, end: np.ndarray) -> Triplets:
    """Triplets of equal values rotated to those of the end, which may have some of them and not the others."""
    u, s, v = (part.copy() for part in triplets)
    for group in np.split(np.arange(len(s)), np.flatnonzero(-np.diff(s) > 1e-10 * s[0]) + 1):
        if len(group) > 1:
            rotation = np.linalg.eigh(u[:, group].T @ end @ v[:, group])[1][:, ::-1]
            u[:, group], v[:, group] = u[:, group] @ rotation, v[:, group] @ rotation
    return Triplets(u, s, v)


def weights_of(at: Grams, width: int) -> Weights:
    """Layers with these Gram matrices, up to a rotation of the neurons, which nothing depends on."""
    d_in = at.input_gram.shape[0]
    whole = np.block(
        [[np.asarray(at.input_gram), np.asarray(at.matrix).T], [np.asarray(at.matrix), np.asarray(at.output_gram)]]
    )
    values, vectors = np.linalg.eigh(whole)
    kept = values > len(values) * 1e-14 * values[-1]  # a root of rounding would be a neuron of 1e-8
    kept[: max(0, len(values) - width)] = False
    stack = np.zeros((len(values), width))
    stack[:, : int(np.sum(kept))] = vectors[:, kept] * np.sqrt(values[kept])
    return Weights((stack[:d_in].T, stack[d_in:]))


def along(triplets: Triplets, matrix: Any) -> Float[np.ndarray, " k"]:
    """u_i^T A v_i."""
    return np.asarray(np.sum(triplets.left * (np.asarray(matrix) @ triplets.right), axis=0))


def kernels(solution: BalancedFlow, at: Grams) -> Float[np.ndarray, " k"]:
    """The tangent kernel of each mode, u_i^T C2 u_i + v_i^T C1 v_i."""
    return _quadratic(solution.triplets.left, at.output_gram) + _quadratic(solution.triplets.right, at.input_gram)


def kernel_change(first: Grams, now: Grams) -> Any:
    """|Theta - Theta_0| / |Theta_0| of the kernel I x C1 + C2 x I on orthonormal inputs."""
    c1, c2 = now.input_gram - first.input_gram, now.output_gram - first.output_gram
    return _over(np.sqrt(_square(np.asarray(c1), np.asarray(c2))), first)


def _over(change: Any, first: Grams) -> Any:
    """In units of the initial kernel; layers of zero have none and never move."""
    size = float(np.sqrt(_square(np.asarray(first.input_gram), np.asarray(first.output_gram))))
    return change / size if size > 0 else change


def sharpness(solution: BalancedFlow) -> float:
    """The largest eigenvalue of the loss's Hessian in the end.

    c (|C1| + |C2|) where all is learned. A mode g that is not joins its input and its output by a neuron of value a:
    c [[C1, -g], [-g, C2]] has the eigenvalue c (hypot(a, lambda/2) + hypot(g, lambda/2)).
    """
    at, half = solution.last, abs(solution.lam) / 2
    a, g = (float(np.linalg.norm(x, 2)) for x in (at.matrix, solution.target - at.matrix))
    fitted = sum(float(np.linalg.norm(x, 2)) for x in (at.input_gram, at.output_gram))
    return solution.curvature * max(fitted, math.hypot(a, half) + math.hypot(g, half))


def _grams(state: Weights) -> Grams:
    first, second = (np.asarray(w, dtype=np.float64) for w in state.layers)
    return in_numpy((second @ first, first.T @ first, second @ second.T))


def _quadratic(vectors: Any, matrix: Any) -> Float[np.ndarray, " k"]:
    return np.asarray(np.sum(vectors * (np.asarray(matrix) @ vectors), axis=0))


def _grown(begin: Any, now: Any, lam: float) -> Any:
    """What C1 and C2 of a mode have grown by: hypot(a, lambda/2) - hypot(a_0, lambda/2)."""
    half = lam / 2
    total = np.hypot(now, half) + np.hypot(begin, half)
    return (now - begin) * (now + begin) / np.where(total > 0, total, 1.0)


def _square(c1: np.ndarray, c2: np.ndarray) -> Any:
    """|I x C1 + C2 x I|^2."""
    d_in, d_out = c1.shape[-1], c2.shape[-1]
    one, two = (np.sum(c**2, axis=(-2, -1)) for c in (c1, c2))
    return d_out * one + d_in * two + 2 * np.trace(c1, axis1=-2, axis2=-1) * np.trace(c2, axis1=-2, axis2=-1)
