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
    for _ in range(most):
        value, slope = function(x)
        change = value / slope
        x = x - change
        if np.all(np.abs(change) <= 4e-16 * np.abs(x)):
            break
    return x
