"""Roots: of many monotone functions at once, and of one that changes its sign."""

from collections.abc import Callable

import numpy as np


def roots(
    function: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]], initial: np.ndarray, most: int = 100
) -> np.ndarray:
    """Newton from `initial` for an array of unknowns; `function` gives values and slopes.

    For functions that are monotone and bent one way, from the side where Newton cannot overshoot. In NumPy: a compiled
    solver would compile for every shape, which takes a thousand times longer than this.

    At most `most` iterations; fewer where all unknowns have converged to rounding.
    """
    x = np.array(initial, dtype=float)
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


def crossing(function: Callable[[float], float], low: float, high: float, *, tolerance: float = 0.0) -> float:
    """Where a continuous function of one number changes its sign between `low` and `high` (Chandrupatla 1997).

    Raises ValueError if the signs at both are equal. Inverse quadratic steps where three points lie well for them, else
    halves: to the last digits, or to `tolerance`. The names are the paper's: a is the last point, b one of the other
    sign, c the one before. By itself because `scipy.optimize` takes longer to load than all that is computed here.
    """
    a, b = float(high), float(low)
    fa, fb = float(function(a)), float(function(b))
    if not fa * fb <= 0:
        raise ValueError(f"the function is {fb:g} at {low:g} and {fa:g} at {high:g}: it must change its sign.")
    c, fc, share = a, fa, 0.5
    while fa != 0 and fb != 0:
        x = a + share * (b - a)
        fx = float(function(x))
        if (fx > 0) == (fa > 0):
            c, fc = a, fa
        else:
            b, c, fb, fc = a, b, fa, fb
        a, fa = x, fx
        best = a if abs(fa) < abs(fb) else b
        least = (2 * np.finfo(float).eps * abs(best) + tolerance / 2) / abs(b - a) if a != b else 1.0
        if least > 0.5:
            return best
        xi, phi = (a - b) / (c - b), (fa - fb) / (fc - fb)
        share = 0.5
        if phi**2 < xi and (1 - phi) ** 2 < 1 - xi:
            share = fa / (fb - fa) * fc / (fb - fc) + (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
        share = min(1 - least, max(least, share))
    return a if fa == 0 else b
