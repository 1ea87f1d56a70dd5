"""A regression as predictions see it."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from linnet.problems import Regression


class Frame(NamedTuple):
    """A regression in the frame of its samples, where d_in and n drop out, and what was left outside.

    `scales` are the nonzero singular values of X and `limit` is A_inf, in the frame of X's right singular vectors; X
    and Y already carry the normalisation of the loss. `basis` (orthonormal rows) leads back: A = limit @ basis.
    """

    scales: Float[np.ndarray, " rank"]
    limit: Float[np.ndarray, "d_out rank"]
    unexplained: float
    samples: int | None
    basis: Float[np.ndarray, "rank d_in"]

    @property
    def d_in(self) -> int:
        """Inputs, those that the samples do not span included."""
        return self.basis.shape[1]


def whitened(spectrum: Float[np.ndarray, " modes"], d_out: int | None = None, d_in: int | None = None) -> Frame:
    """Inputs with X^T X = I and a target of these singular values, by default square and of full rank."""
    d_out, d_in = (spectrum.size if d is None else d for d in (d_out, d_in))
    limit = np.zeros((d_out, d_in))
    np.fill_diagonal(limit, np.pad(spectrum, (0, min(d_out, d_in) - spectrum.size)))
    return Frame(np.ones(d_in), limit, 0.0, None, np.eye(d_in))


def of_samples(problem: Regression) -> Frame:
    """The frame of a regression: its inputs carry the square root of its scale, and its output scale."""
    small, basis = problem.project()
    scale, output_scale = float(small.scale), float(small.output_scale)
    scales, labels = np.diagonal(np.asarray(small.root)), np.asarray(small.labels)
    unexplained = float(small.unexplained)
    if unexplained <= 1e-26 * float(problem.square):  # rounding
        unexplained = 0.0
    limit = labels / (output_scale * scales)
    return Frame(
        math.sqrt(scale) * abs(output_scale) * scales,
        limit,
        scale * unexplained / 2,
        problem.samples,
        np.asarray(basis),
    )
