"""What all predictions accept, checked in one place."""

from typing import Any

import numpy as np
from jaxtyping import Float

from linnet import _check
from linnet._check import InputError
from linnet.data import LARGEST as LARGEST

SMALLEST = 1e-50  # as LARGEST: sizes of numbers whose squares, and roots of squares, are exact to rounding


def spectrum(
    value: Any, *, name: str = "spectrum", zeros: bool = False, ratio: float | None = None
) -> Float[np.ndarray, " modes"]:
    """Singular values, descending: positive (with `zeros` some may be 0), from 1e-50 to 1e50, within `ratio`."""
    s = np.sort(np.asarray(_check.double(name, value, ndim=1)))[::-1]
    if s[0] <= 0 or np.any(s < 0) or (not zeros and s[-1] == 0):
        allowed = "not be negative, and one must be positive" if zeros else "be positive; leave out zeros"
        raise InputError(f"{name} = {_listed(s)} is not allowed: its values must {allowed}.")
    small = s[s > 0][-1]
    if small < SMALLEST or s[0] > LARGEST:
        raise InputError(f"{name} = {_listed(s)} is not allowed: keep its values between {SMALLEST:g} and {LARGEST:g}.")
    if ratio is not None and small * ratio < s[0]:
        raise InputError(f"{name} goes from {s[0]:g} to {small:g}: keep it within a ratio of {ratio:g}.")
    return s


def _listed(s: np.ndarray) -> str:
    return ", ".join(f"{x:g}" for x in s[:5]) + (" ..." if s.size > 5 else "")
