"""Where many sampled curves rise through zero: brackets, and Newton's method inside of them."""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float


def brackets(curves: Float[np.ndarray, "samples n"], first: int) -> tuple[np.ndarray, np.ndarray]:
    """The samples between which each curve rises through zero: the first time for the first so many, else for good.

    Both are the first sample where it is above from the beginning, and the last one where it has not come by then.
    """
    last = len(curves) - 1
    low = np.empty(curves.shape[1], dtype=int)
    for i, curve in enumerate(curves.T):
        below = np.flatnonzero(curve < 0)
        if curve[-1] < 0 or not below.size:
            low[i] = last if below.size else -1
        elif i < first:
            low[i] = -1 if curve[0] >= 0 else int(np.argmax(curve >= 0)) - 1
        else:
            low[i] = below[-1]
    return np.maximum(low, 0), np.minimum(low + 1, last)


def roots(function: Callable[..., Any], low: np.ndarray, high: np.ndarray) -> Float[np.ndarray, " n"]:
    """Newton's method inside of brackets, all at once; NaN where both ends are one, unless that is zero.

    `function` gives values and derivatives of the curves of these numbers, each at a time of its own.
    """
    low, high = low.copy(), high.copy()
    x, open_ = (low + high) / 2, np.flatnonzero(low < high)
    never = (low == high) & (low > 0)
    for _ in range(60):
        if not open_.size:
            break
        value, slope = function(x[open_], open_)
        below = value < 0
        low[open_], high[open_] = np.where(below, x[open_], low[open_]), np.where(below, high[open_], x[open_])
        with np.errstate(divide="ignore", invalid="ignore"):
            step = x[open_] - value / slope
        inside = (step >= low[open_]) & (step <= high[open_])
        step = np.where(inside, step, (low[open_] + high[open_]) / 2)
        settled = (np.abs(step - x[open_]) <= 4e-15 * step) | (value == 0)
        x[open_] = np.where(value == 0, x[open_], step)
        open_ = open_[~settled]
    return np.where(never, np.nan, x)
