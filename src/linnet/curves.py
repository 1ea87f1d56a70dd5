"""What is read off recorded curves."""

import math
from typing import Literal

import numpy as np
import scipy  # its parts load when they are first used
from jaxtyping import Bool, Float, Int, Num

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
    """When a curve first rises through a level (or stands there from the beginning); NaN if it does not.

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
    return np.fft.rfftfreq(rest.shape[1]), power / power.sum()


def rises(loss: Float[np.ndarray, "*runs steps"]) -> Int[np.ndarray, "*runs"]:
    """How many steps make the loss of each run (the last axis) larger, down to where it is no more than rounding."""
    rounding = 1e3 * float(np.finfo(loss.dtype).eps) ** 2 * loss[..., :1]
    return np.asarray(np.sum((np.diff(loss, axis=-1) > 0) & (loss[..., 1:] > rounding), axis=-1))
