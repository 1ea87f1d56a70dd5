"""A regression in the coordinates of its samples, where d_in and n drop out."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from linnet import _check
from linnet.problems import Regression


class ReducedFit(NamedTuple):
    """The singular values and vectors of the labels inside the span of the inputs, and the best matrix of a rank."""

    left: Float[np.ndarray, "d_out k"]
    values: Float[np.ndarray, " k"]
    right: Float[np.ndarray, "k rank"]


@dataclass(frozen=True, eq=False)
class ReducedRegression:
    """1/2 |(A - limit) diag(scales)|^2 + unexplained: a regression in the basis of its inputs' right singular vectors.

    - `scales`: the nonzero singular values of X, which carry the square root of the loss's scale and its output scale.
    - `limit`: the least-squares solution in this basis; `basis` (orthonormal rows) leads back, A = limit @ basis.
    - `unexplained`: the loss that no matrix can remove.
    - `samples`: their number, None for whitened inputs of a given spectrum.
    - `beyond`: inputs and outputs of whitened data that are left out, since no gradient ever reaches them.
    - `units`, `labels`: where samples are kept one by one, X = units diag(scales) and Y.
    """

    scales: Float[np.ndarray, " rank"]
    limit: Float[np.ndarray, "d_out rank"]
    basis: Float[np.ndarray, "rank d_in"]
    unexplained: float = 0.0
    samples: int | None = None
    beyond: tuple[int, int] = (0, 0)
    units: Float[np.ndarray, "n rank"] | None = None
    labels: Float[np.ndarray, "n d_out"] | None = None

    @property
    def d_in(self) -> int:
        """Inputs, those outside the span of the samples included."""
        return self.basis.shape[1] + self.beyond[0]

    @property
    def d_out(self) -> int:
        """Outputs."""
        return self.limit.shape[0] + self.beyond[1]

    @property
    def white(self) -> bool:
        """Whether all inputs have the same scale, exactly."""
        return bool(self.scales[0] == self.scales[-1])

    @property
    def spread(self) -> float:
        """1 - (smallest / largest)^2 of the scales: 0 for white inputs."""
        return float(1 - (self.scales[-1] / self.scales[0]) ** 2)

    @property
    def problem(self) -> Regression:
        """The regression in these coordinates."""
        return self._regression(self.scales.size)

    @property
    def sampled(self) -> Regression:
        """The same with its samples, whose labels need not be fitted; its loss leaves out what no matrix explains."""
        assert self.samples is not None
        return self._regression(self.samples, self.units, self.labels)

    def _regression(self, samples: int, *parts: Any) -> Regression:
        root, labels = _check.floating(np.diag(self.scales)), _check.floating(self.limit * self.scales)
        zero, one = _check.floating(0.0), _check.floating(1.0)
        return Regression(root, labels, zero, one, one, samples, *parts)

    @cached_property
    def fit(self) -> ReducedFit:
        """The singular value decomposition of the labels that can be explained."""
        return ReducedFit(*np.linalg.svd(self.limit * self.scales, full_matrices=False))

    def best(self, rank: int) -> tuple[Float[np.ndarray, "d_out rank"], float]:
        """The best matrix of a rank, and its loss (Eckart and Young)."""
        u, t, vt = self.fit
        return (u[:, :rank] * t[:rank]) @ vt[:rank] / self.scales, float(np.sum(t[rank:] ** 2) / 2)

    def loss(self, matrix: Float[np.ndarray, "d_out rank"]) -> float:
        """1/2 |(A - limit) diag(scales)|^2."""
        return float(np.sum(((matrix - self.limit) * self.scales) ** 2) / 2)


def reduce_regression(problem: Regression) -> ReducedRegression:
    """The regression in the span of its samples."""
    small, basis = problem.project()
    scale, output_scale = float(small.scale), float(small.output_scale)
    scales, labels = np.diagonal(np.asarray(small.root)), np.asarray(small.labels)
    unexplained = float(small.unexplained)
    if unexplained <= 1e-26 * float(problem.square):  # rounding
        unexplained = 0.0
    return ReducedRegression(
        math.sqrt(scale) * output_scale * scales,
        labels / (output_scale * scales),
        np.asarray(basis),
        scale * unexplained / 2,
        problem.samples,
        units=None if small.frame is None else np.asarray(small.frame),
        labels=None if small.outputs is None else math.sqrt(scale) * np.asarray(small.outputs),
    )


def white(
    spectrum: Float[np.ndarray, " modes"], shape: tuple[int, int], kept: tuple[int, int], scale: float = 1.0
) -> ReducedRegression:
    """Whitened inputs X^T X = scale^2 I and a target of these singular values; `kept` of the outputs and inputs of
    `shape` stay in it.
    """
    limit = np.zeros(kept)
    np.fill_diagonal(limit, np.pad(spectrum, (0, min(kept) - spectrum.size)) / scale)
    beyond = (shape[1] - kept[1], shape[0] - kept[0])
    return ReducedRegression(np.full(kept[1], scale), limit, np.eye(kept[1]), beyond=beyond)
