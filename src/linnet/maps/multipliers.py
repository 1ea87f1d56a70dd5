"""Floquet multipliers: how small deviations from a cycle grow over one period."""

from typing import Any

import numpy as np
from jaxtyping import Complex

from linnet import _check
from linnet._check import InputError


def floquet(jacobians: Any) -> Complex[np.ndarray, "*batch m"]:
    """Eigenvalues of J_p ... J_1, largest first, from the Jacobians (period, *batch, m, m) along a cycle.

    For descent on a cost with Hessians H_k at the points of the cycle, J_k = I - lr H_k.

    `jacobians` is an array of this shape; the result has shape (*batch, m).
    """
    steps = np.asarray(jacobians, dtype=float)
    if steps.ndim < 3 or steps.shape[-1] != steps.shape[-2]:
        raise InputError(f"jacobians has shape {steps.shape}: it must be (period, ..., m, m).")
    if not np.all(np.isfinite(steps)):
        raise InputError("jacobians holds NaN or infinite entries: jacobians must be finite.")
    total = steps[0]
    for jacobian in steps[1:]:
        total = jacobian @ total
    return _by_modulus(np.linalg.eigvals(total).astype(complex))


def free(multipliers: Any, neutral: int) -> Complex[np.ndarray, "*batch m"]:
    """The multipliers without the `neutral` ones that a symmetry holds at 1: those closest to 1 are left out."""
    values = np.asarray(multipliers, dtype=complex)
    neutral = _check.integer("neutral", neutral, least=0, most=values.shape[-1])
    order = np.argsort(np.abs(values - 1), axis=-1)
    return _by_modulus(np.take_along_axis(values, order, axis=-1)[..., neutral:])


def _by_modulus(values: np.ndarray) -> np.ndarray:
    return np.take_along_axis(values, np.argsort(-np.abs(values), axis=-1), axis=-1)
