"""A regression as predictions see it, and what is read off measured curves."""

import math
from typing import NamedTuple

import numpy as np
from scipy.interpolate import CubicSpline

from linnet.problems import regression


class Frame(NamedTuple):
    """A regression in the frame of its samples, where d_in and n drop out, and what was left outside.

    `scales` are the nonzero singular values of X and `limit` is A_inf, in the frame of X's right singular vectors; X
    and Y already carry the normalisation of the loss. `basis` (orthonormal rows) leads back: A = limit @ basis.
    """

    scales: np.ndarray
    limit: np.ndarray
    unexplained: float
    samples: int | None
    basis: np.ndarray

    @property
    def d_in(self) -> int:
        """Inputs, those that the samples do not span included."""
        return self.basis.shape[1]


def whitened(spectrum: np.ndarray, d_out: int | None = None, d_in: int | None = None) -> Frame:
    """Inputs with X^T X = I and a target of these singular values, by default square and of full rank."""
    d_out, d_in = (spectrum.size if d is None else d for d in (d_out, d_in))
    limit = np.zeros((d_out, d_in))
    np.fill_diagonal(limit, np.pad(spectrum, (0, min(d_out, d_in) - spectrum.size)))
    return Frame(np.ones(d_in), limit, 0.0, None, np.eye(d_in))


def of_samples(inputs: np.ndarray, labels: np.ndarray, average: bool) -> Frame:
    """Samples as rows, with the loss 1/(2n) sum of squares or 1/2 sum of squares."""
    problem, basis = regression(inputs, labels, average=average).project()
    scale = float(problem.scale)
    scales, target = np.diagonal(np.asarray(problem.root)), np.asarray(problem.labels)
    unexplained = scale * float(problem.unexplained) / 2
    if unexplained <= 1e-26 * scale * np.sum(labels**2):  # rounding
        unexplained = 0.0
    return Frame(math.sqrt(scale) * scales, target / scales, unexplained, inputs.shape[0], np.asarray(basis))


def crossing(clock: np.ndarray, curve: np.ndarray, level: float) -> float:
    """When a curve first rises through a level, by a cubic spline in the logarithm of time; NaN if it does not."""
    above = curve >= level
    if not above.any():
        return math.nan
    k = int(np.argmax(above))
    if k <= 1:
        return float(clock[k])
    # a few records around it: the flat ends of a run have nothing to say
    near = slice(max(1, k - 8), k + 8)
    x = np.log(clock[near])
    roots = CubicSpline(x, curve[near]).solve(level, extrapolate=False)
    inside = roots[(roots >= np.log(clock[k - 1]) - 1e-12) & (roots <= np.log(clock[k]) + 1e-12)]
    return float(np.exp(inside[0])) if inside.size else float(clock[k])
