"""Roots of many monotone functions at once."""

from collections.abc import Callable

import numpy as np


def roots(
    function: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]], start: np.ndarray, most: int = 100
) -> np.ndarray:
    """Newton from `start` for an array of unknowns; `function` gives values and slopes.

    For functions that are monotone and bent one way, from the side where Newton cannot overshoot. In NumPy: a compiled
    solver would compile for every shape anew, which takes a thousand times longer than this.
    """
    x = np.array(start, dtype=float)
    done, before = np.zeros(x.shape, dtype=bool), np.zeros(x.shape)
    for step in range(most):
        value, slope = function(x)
        change = value / slope
        # after its first step Newton goes one way here: where it turns round, rounding is all that is left
        done = done | ((change * before < 0) if step > 1 else done) | (np.abs(change) <= 4e-16 * np.abs(x))
        x, before = np.where(done, x, x - change), np.sign(change)
        if done.all():
            break
    return x
