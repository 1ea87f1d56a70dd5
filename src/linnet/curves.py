"""Quantities computed from recorded curves: crossings, spectra, rises, catapults."""

import math
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy  # its parts load when they are first used
from jaxtyping import Bool, Float, Int, Num

from linnet import _check
from linnet._check import InputError

_NEAR = 8  # records on each side that a spline passes through: the flat ends of a run have nothing to say


def first_record(reached: Bool[np.ndarray, "*runs records"]) -> Int[np.ndarray, "*runs"]:
    """The first record of each run (the last axis) at which something is true, -1 where it never is."""
    return np.where(reached.any(axis=-1), np.argmax(reached, axis=-1), -1)


def crossing(
    clock: Num[np.ndarray, " records"],
    curve: Float[np.ndarray, " records"],
    level: float,
    between: Literal["spline", "line", "records"] = "spline",
) -> float:
    """When a curve first rises through a level (or the first record, if it is there already); NaN if it does not.

    Between two records by a cubic spline in the logarithm of time, by a line, or not at all: the first record there.
    """
    k = int(first_record(curve >= level))
    if k < 0:
        return math.nan
    if k == 0 or between == "records" or not np.isfinite(curve[k - 1]):
        return float(clock[k])
    if between == "line" or clock[k - 1] <= 0:  # the logarithm of the start is no number
        share = (level - curve[k - 1]) / (curve[k] - curve[k - 1])
        return float(clock[k - 1] + share * (clock[k] - clock[k - 1]))
    near = slice(max(0 if clock[0] > 0 else 1, k - _NEAR), k + _NEAR)
    roots = scipy.interpolate.CubicSpline(np.log(clock[near]), curve[near]).solve(level, extrapolate=False)
    low, high = np.log(clock[k - 1]), np.log(clock[k])
    inside = roots[(roots >= low - 1e-12) & (roots <= high + 1e-12)]
    return float(np.exp(inside[0])) if inside.size else float(clock[k])


def last_crossing(clock: Num[np.ndarray, " records"], curve: Float[np.ndarray, " records"], level: float) -> float:
    """When a curve last rises through a level, by a line between two records; the first record if it is never below.

    NaN if it ends below the level, or where it is not a number.
    """
    below = np.flatnonzero(~(curve >= level))
    if not below.size:
        return float(clock[0])
    k = int(below[-1])
    if k + 1 == len(curve):
        return math.nan
    share = (level - curve[k]) / (curve[k + 1] - curve[k])
    return float(clock[k] + share * (clock[k + 1] - clock[k]))


def powers(
    curves: Float[np.ndarray, "*curves steps"], smooth: int = 65
) -> tuple[Float[np.ndarray, " frequencies"], Float[np.ndarray, " frequencies"]]:
    """How curves that are recorded at every step oscillate: frequencies, per step from 0 to 1/2, and their shares.

    The shares are those of the squared deviations of all curves from their running means over `smooth` steps (odd),
    which take off the trend and half of that number at each end. A period of two is the frequency 1/2.
    """
    rows = np.reshape(np.asarray(curves, dtype=float), (-1, np.shape(curves)[-1]))
    trend = np.array([np.convolve(row, np.ones(smooth) / smooth, "valid") for row in rows])
    half = smooth // 2
    rest = rows[:, half : rows.shape[1] - half] - trend
    power = np.sum(np.abs(np.fft.rfft(rest - rest.mean(axis=1, keepdims=True), axis=1)) ** 2, axis=0)
    frequency = np.fft.rfftfreq(rest.shape[1])
    power[frequency < 0.5] *= 2  # those between stand for their mirrors too
    return frequency, power / power.sum()


def rises(loss: Any, last: int = 50) -> Float[np.ndarray, "*runs records"]:
    """The share of the `last` steps before each record that went up, L_{t+1} > L_t, of a loss recorded at every step.

    Of as many steps as there are near the start; NaN at the start itself and where the loss is not known. Full-batch
    descent below its edge has 0, at the edge 0.2 to 0.5; with mini-batches a half means nothing. It costs no gradient.

    >>> from linnet.curves import rises
    >>> rises([4.0, 1.0, 2.0]).tolist()  # one of the two steps before the last record
    [nan, 0.0, 0.5]
    """
    curve = _curve("loss", loss)
    count = _check.integer("last", last, least=1)
    known = ~(np.isnan(curve[..., 1:]) | np.isnan(curve[..., :-1]))
    up, counted = _sums(curve[..., 1:] > curve[..., :-1]), _sums(known)
    before = np.maximum(np.arange(curve.shape[-1]) - count, 0)
    total = counted - counted[..., before]
    return np.where(total > 0, (up - up[..., before]) / np.maximum(total, 1), np.nan)


def rise_count(loss: Float[np.ndarray, "*runs steps"]) -> Int[np.ndarray, "*runs"]:
    """How many steps make the loss of each run (the last axis) larger, down to where it is no more than rounding."""
    rounding = 1e3 * float(np.finfo(loss.dtype).eps) ** 2 * loss[..., :1]
    return np.asarray(np.sum((np.diff(loss, axis=-1) > 0) & (loss[..., 1:] > rounding), axis=-1))


class Catapults(NamedTuple):
    """The two signs of a catapult, at each record, and the records that have both."""

    jumps: Bool[np.ndarray, " records"]
    """Where the loss is well above the least of the steps just before."""
    falls: Bool[np.ndarray, " records"]
    """Where the sharpness has a peak that it is well below some steps later."""
    events: Int[np.ndarray, " events"]
    """Peaks of the sharpness with a jump of the loss no further from them: the catapults."""


def catapults(
    loss: Any, sharpness: Any, *, rise: float = 0.03, before: int = 5, fall: float = 0.1, later: int = 20
) -> Catapults:
    """Finds the catapults of a run: jumps of the loss, each followed by a lower sharpness.

    Both curves at every step, NaN where the sharpness was not measured (`observe.only`). A jump is a loss of at least
    1 + `rise` times the least of the `before` steps before. A fall is a peak of the sharpness (the largest of all
    within `later` steps of it, on both sides, and not the first) that it is below by the share `fall` or more `later`
    steps afterwards, at the first measurement from there on. With mini-batches losses jump by sampling.
    """
    curve, sharp = _curve("loss", loss, ndim=1), _curve("sharpness", sharpness, ndim=1)
    if curve.shape != sharp.shape:
        raise InputError(f"sharpness has {sharp.size} records: it must have {curve.size}, as loss has.")
    more, less = _check.real("rise", rise, above=0), _check.real("fall", fall, above=0, below=1)
    near, far = _check.integer("before", before, least=1), _check.integer("later", later, least=1)
    floor = np.where(np.isnan(curve), np.inf, curve)
    lowest = [floor[max(t - near, 0) : t].min(initial=np.inf) for t in range(curve.size)]
    jumps = curve >= (1 + more) * np.asarray(lowest)
    jumps[0] = False
    measured = np.flatnonzero(~np.isnan(sharp))
    falls = np.zeros(curve.size, dtype=bool)
    for t in measured[1:]:
        afterwards = measured[measured >= t + far]
        peak = sharp[t] >= np.nanmax(sharp[max(t - far, 0) : t + far + 1])
        falls[t] = peak and afterwards.size > 0 and sharp[afterwards[0]] <= (1 - less) * sharp[t]
    events = [t for t in np.flatnonzero(falls) if jumps[max(t - far, 0) : t + far + 1].any()]
    return Catapults(jumps, falls, np.asarray(events, dtype=int))


def _sums(flags: Bool[np.ndarray, "*runs steps"]) -> Int[np.ndarray, "*runs records"]:
    """How many are true before each record."""
    nothing = np.zeros((*flags.shape[:-1], 1), int)
    return np.concatenate([nothing, np.cumsum(flags, axis=-1)], axis=-1)


def _curve(name: str, given: Any, ndim: int | None = None) -> Float[np.ndarray, "*runs records"]:
    """Recorded numbers; some may have been lost on the way."""
    try:
        curve = np.asarray(given, dtype=float)
    except (TypeError, ValueError):
        raise InputError(f"{name} = {_check.show(given)} is not allowed: it must be recorded numbers.") from None
    if curve.ndim == 0 or curve.shape[-1] == 0 or ndim not in (None, curve.ndim):
        wanted = "a curve" if ndim == 1 else "a curve, or several,"
        raise InputError(f"{name} has shape {curve.shape}: it must be {wanted} of at least one record.")
    return curve
