"""A regression as predictions see it."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from linnet import _check
from linnet.problems import Regression, regression


class Frame(NamedTuple):
    """A regression in the frame of its samples, where d_in and n drop out, and what was left outside.

    `scales` are the nonzero singular values of X and `limit` is A_inf, in the frame of X's right singular vectors; X
    and Y already carry the normalisation of the loss. `basis` (orthonormal rows) leads back: A = limit @ basis.
    `beyond` counts the inputs and outputs of whitened data that are left out, since nothing ever happens in them.
    `units` leads to the samples, where they are known: X = units diag(scales), orthonormal columns; `labels` is Y.
    """

    scales: Float[np.ndarray, " rank"]
    limit: Float[np.ndarray, "d_out rank"]
    unexplained: float
    samples: int | None
    basis: Float[np.ndarray, "rank d_in"]
    beyond: tuple[int, int] = (0, 0)
    units: Float[np.ndarray, "n rank"] | None = None
    labels: Float[np.ndarray, "n d_out"] | None = None

    @property
    def d_in(self) -> int:
        """Inputs, those that the samples do not span included."""
        return self.basis.shape[1] + self.beyond[0]

    @property
    def d_out(self) -> int:
        """Outputs."""
        return self.limit.shape[0] + self.beyond[1]

    @property
    def problem(self) -> Regression:
        """The regression in this frame."""
        return regression(np.diag(self.scales), (self.limit * self.scales).T)

    @property
    def sampled(self) -> Regression:
        """The same with its samples, whose labels need not be fitted; its loss leaves out what no matrix explains."""
        assert self.samples is not None
        assert self.units is not None
        assert self.labels is not None
        parts = (np.diag(self.scales), self.limit * self.scales, self.units, self.labels)
        root, inside, units, labels = (_check.floating(part) for part in parts)
        zero, one = _check.floating(0.0), _check.floating(1.0)
        return Regression(root, inside, zero, one, one, self.samples, units, labels)

    def best(self, rank: int) -> tuple[Float[np.ndarray, "d_out rank"], float]:
        """The best matrix of a rank, and its loss (Eckart and Young on the fitted labels)."""
        u, t, vt = np.linalg.svd(self.limit * self.scales, full_matrices=False)
        return (u[:, :rank] * t[:rank]) @ vt[:rank] / self.scales, float(np.sum(t[rank:] ** 2) / 2)

    def loss(self, matrix: Float[np.ndarray, "d_out rank"]) -> float:
        """1/2 |(A - A_inf) X^T|^2."""
        return float(np.sum(((matrix - self.limit) * self.scales) ** 2) / 2)


def whitened(
    spectrum: Float[np.ndarray, " modes"],
    d_out: int | None = None,
    d_in: int | None = None,
    touched: tuple[int, int] | None = None,
) -> Frame:
    """Inputs with X^T X = I and a target of these singular values, by default square and of full rank.

    `touched` says in how many inputs and outputs beside those of the modes a start has weights: it can be turned so
    that it has none in the others, training never leads there, and the frame leaves them out.
    """
    d_out, d_in = (spectrum.size if d is None else d for d in (d_out, d_in))
    whole = spectrum.size
    columns, rows = (
        (d_in, d_out) if touched is None else (min(d_in, whole + touched[0]), min(d_out, whole + touched[1]))
    )
    limit = np.zeros((rows, columns))
    np.fill_diagonal(limit, np.pad(spectrum, (0, min(rows, columns) - whole)))
    return Frame(np.ones(columns), limit, 0.0, None, np.eye(columns), (d_in - columns, d_out - rows))


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
        math.sqrt(scale) * output_scale * scales,
        limit,
        scale * unexplained / 2,
        problem.samples,
        np.asarray(basis),
        units=None if small.frame is None else np.asarray(small.frame),
        labels=None if small.outputs is None else math.sqrt(scale) * np.asarray(small.outputs),
    )
