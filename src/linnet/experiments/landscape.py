"""The landscape that "Training Linear Neural Networks" describes in section 2, drawn for a small network."""

from pathlib import Path
from typing import Annotated, Any, Self

import jax
import numpy as np
import xarray
from pydantic import Field, model_validator

from linnet import observe
from linnet.claims import Finding, at_least, at_most, within
from linnet.experiments.experiment import Experiment, Progress, along
from linnet.init import critical, gauge
from linnet.observe import Kind
from linnet.problems import Regression, regression
from linnet.theory import landscape

_KINDS = tuple(Kind)  # what the numbers of a dataset stand for
_TEXTS = {
    "loss": "Loss",
    "excess": "Loss above that of the minimum",
    "label": "Kind by theory",
    "negative": "Negative eigenvalues of the Hessian",
    "smallest": "Smallest eigenvalue of the Hessian, in closed form",
    "gap": "Largest gap between closed and dense spectrum, relative",
    "counted": "Negative eigenvalues of the dense Hessian",
    "measured": "Kind found at the balanced point",
    "measured_skew": "Kind found in other bases between the layers",
}


class NonlocalLandscape(Experiment):
    """Every critical point of a small network on whitened data, by the modes that it keeps (in words; lines lead to one
    mode more): its loss, and how many eigenvalues of its Hessian are negative. Two layers leave no trap: every point
    but the minimum has descent directions. From three layers on the points that keep only the largest modes have none,
    until the bottleneck is full.
    """

    place = "Theorems 7 and 8 (no figure in the paper)"
    title = "Where a deep linear network can get stuck"
    quick = {"depths": (2, 3)}
    minutes = {"quick": 0.2, "paper": 0.3}

    spectrum: tuple[float, ...] = Field(
        default=(4.0, 2.5, 1.5, 0.8),
        min_length=1,
        max_length=6,
        description="Singular values of the target, descending.",
    )
    depths: tuple[Annotated[int, Field(ge=2, le=6)], ...] = Field(
        default=(2, 3, 4), min_length=1, max_length=4, description="Numbers of layers."
    )
    bottleneck: int = Field(default=3, ge=1, le=8, description="Width of every hidden layer.")
    inputs: int = Field(default=5, ge=1, le=12, description="Input dimension; the output has one for each mode.")
    samples: int = Field(default=10, ge=1, le=1000, description="Samples n of the whitened data.")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if list(self.spectrum) != sorted(self.spectrum, reverse=True) or min(self.spectrum) <= 0:
            raise ValueError(f"spectrum = {self.spectrum} must be positive and descending")
        if self.inputs < len(self.spectrum):
            raise ValueError(f"inputs = {self.inputs} must be at least the number of modes, {len(self.spectrum)}")
        if self.samples < self.inputs:
            raise ValueError(f"samples = {self.samples} must be at least inputs = {self.inputs} for whitened data")
        return self

    def problem(self) -> Regression:
        """Whitened data with this target and labels that no network explains, in random directions."""
        rng = np.random.default_rng(self.seed)
        modes, n = len(self.spectrum), self.samples
        x = np.sqrt(n) * np.linalg.qr(rng.normal(size=(n, self.inputs)))[0]
        u, v = (np.linalg.qr(rng.normal(size=(d, modes)))[0] for d in (modes, self.inputs))
        noise = rng.normal(size=(n, modes))
        return regression(x, x @ (v * self.spectrum) @ u.T + noise - x @ (x.T @ noise) / n)

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        problem = self.problem()
        kept: list[tuple[int, ...]] = []

        def points(depth: int) -> dict[str, Any]:
            hidden = (self.bottleneck,) * (depth - 1)
            found = landscape.critical_points(problem, hidden, most=None)
            ordered = sorted(found.points, key=lambda point: (len(point.kept), point.kept))
            kept[:] = [point.kept for point in ordered]
            rows = [self._checked(problem, found.values, hidden, point) for point in ordered]
            return {name: ("point", [row[name] for row in rows], {"long_name": _TEXTS[name]}) for name in _TEXTS}

        data = along("depth", self.depths, points, progress)
        modes = [[i + 1 in k for i in range(len(self.spectrum))] for k in kept]
        data["kept"] = (("point", "mode"), np.array(modes, int))
        data.attrs["kinds"] = " ".join(_KINDS)
        return data

    def _checked(self, problem: Regression, values: Any, hidden: tuple[int, ...], point: Any) -> dict[str, float]:
        """A critical point by theory, and what automatic differentiation of the loss finds there."""
        state = critical(problem, hidden, point.kept)
        unit = self.samples * max(self.spectrum) ** (2 - 2 / (len(hidden) + 1))
        dense = np.linalg.eigvalsh(np.asarray(_hessian(state, problem)))[::-1]
        widths = (self.inputs, *hidden, len(self.spectrum))
        closed = landscape.spectrum(values, widths, point.kept, curvature=self.samples).all()
        skew = gauge(jax.random.key(self.seed), state)
        return {
            "loss": point.loss,
            "excess": point.excess,
            "label": _KINDS.index(point.label),
            "negative": point.negative,
            "smallest": point.smallest,
            "gap": float(np.max(np.abs(dense - closed))) / unit,
            "counted": float(np.sum(dense < -1e-10 * unit)),
            "measured": _KINDS.index(observe.classify(state, problem).label),
            "measured_skew": _KINDS.index(observe.classify(skew, problem).label),
        }

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        kind, kept = data["label"].values, data["kept"].values.astype(bool)
        minimum, degenerate = (kind == _KINDS.index(name) for name in (Kind.GLOBAL_MIN, Kind.DEGENERATE_SOSP))
        deep = data["depth"].values > 2
        z, rank = np.array(self.spectrum), min(self.bottleneck, len(self.spectrum))
        lost = np.array([np.sum(z[~k] ** 2) for k in kept])
        best = lost <= np.min(lost) + 1e-12 * np.sum(z**2)  # the largest modes, or others as large
        rungs = [any(np.array_equal(k, np.arange(len(z)) < size) for size in range(rank)) for k in kept]
        out = {
            "minima that do not keep the largest modes": at_most(np.sum(minimum & ~best), 0),
            "networks whose largest modes are no minimum": at_most(np.sum(~minimum[:, best]), 0),
            "closed form against dense Hessians: largest relative gap": at_most(data["gap"].max(), 1e-10),
            "labels of theory that the balanced points contradict": at_most(np.sum(data["measured"].values != kind), 0),
            "labels that other bases contradict": at_most(np.sum(data["measured_skew"].values != kind), 0),
            "points whose negative eigenvalues theory miscounts": at_most(
                np.sum(data["negative"].values != data["counted"].values), 0
            ),
            "loss: largest relative gap to n/2 of the dropped z^2": at_most(
                np.max(np.abs(data["excess"].values / (self.samples / 2 * np.sum(z**2)) - _share(lost, z))), 1e-12
            ),
        }
        if not deep.all():
            out["two layers: degenerate points"] = at_most(np.sum(degenerate[~deep]), 0)
        if deep.any():
            out["three layers and more: degenerate points at least, each"] = at_least(
                np.min(np.sum(degenerate[deep], axis=1)), rank
            )
            if len(set(self.spectrum)) == len(self.spectrum):
                same = degenerate[deep] == np.array(rungs)
                out["three layers and more: degenerate points other than 1 ... k"] = within(np.sum(~same), 0, 0)
        return out


def _share(lost: np.ndarray, z: np.ndarray) -> np.ndarray:
    return (lost - np.min(lost)) / np.sum(z**2)


_hessian = jax.jit(observe.hessian_matrix)
