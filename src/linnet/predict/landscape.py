"""Where training can get stuck: the critical points of a deep linear network, by the modes they have learned."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from linnet import _check, observe
from linnet._check import InputError
from linnet.initial import critical
from linnet.observe.landscape import DENSE, Kind
from linnet.predict import given
from linnet.predict.answer import Hypothesis, Measured, Prediction, Progress, Source, hidden
from linnet.problems import Regression
from linnet.theory import landscape as theory

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType

_ZERO = 1e-10  # eigenvalues below this share of the largest are rounding


@dataclass(frozen=True, kw_only=True)
class CriticalSet:
    """The critical points that keep these modes: the balanced one, and what changes of basis between layers make of it.

    They share loss, label and number of negative eigenvalues; the smallest eigenvalue is the balanced point's.
    """

    kept: tuple[int, ...]  # mode numbers, from 1
    loss: float
    excess: float  # the loss above the global minimum
    label: Kind
    negative_eigenvalues: int  # of the Hessian: the index
    smallest_eigenvalue: float  # of the Hessian

    @property
    def name(self) -> str:
        """The modes in words, long runs shortened: `1-4 6`."""
        if not self.kept:
            return "none"
        runs: list[list[int]] = []
        for mode in self.kept:
            if runs and runs[-1][-1] == mode - 1:
                runs[-1].append(mode)
            else:
                runs.append([mode])
        return " ".join(" ".join(map(str, run)) if len(run) < 4 else f"{run[0]}-{run[-1]}" for run in runs)


@dataclass(frozen=True, kw_only=True)
class LandscapePrediction(Prediction):
    """The critical points of a network by the set of modes that they keep, in the order of their loss."""

    widths: tuple[int, ...]  # inputs, hidden layers, outputs
    depth: int
    bottleneck: int  # the smallest width
    samples: int
    normalisation: str  # of the loss
    whitened: bool  # whether X^T X is a multiple of the identity, so that eigenvalues have a closed form
    spectrum: tuple[float, ...]  # of the target on whitened data, else of the labels projected onto the inputs
    critical_sets: int  # how many sets of modes there are
    shown: int  # how many of them are in `points`
    points: tuple[CriticalSet, ...]
    theory: tuple[Source, ...]
    problem: Regression = hidden()

    @property
    def parameters(self) -> int:
        """How many weights there are."""
        return sum(below * above for below, above in pairwise(self.widths))

    def measure(self, *, progress: Progress | None = None) -> "LandscapeMeasured":
        """Builds every balanced point and takes its cost and the eigenvalues of its whole Hessian."""
        if self.parameters > DENSE:
            raise InputError(
                f"a network of {self.parameters:,} weights cannot be measured: whole Hessians are for at most {DENSE}."
            )
        points, gaps = [], []
        for done, point in enumerate(self.points):
            state = critical(self.problem, self.widths[1:-1], point.kept)
            values = np.linalg.eigvalsh(np.asarray(_hessian(state, self.problem)))
            found = observe.classify(state, self.problem)
            unit = float(np.max(np.abs(values))) or 1.0
            points.append(
                CriticalSet(
                    kept=point.kept,
                    loss=float(self.problem.cost(state.matrix)),
                    excess=found.excess,
                    label=found.label,
                    negative_eigenvalues=int(np.sum(values < -_ZERO * unit)),
                    smallest_eigenvalue=float(values[0]),
                )
            )
            gaps.append(abs(float(values[0]) - point.smallest_eigenvalue) / unit)
            if progress is not None:
                progress(done + 1, len(self.points))
        return LandscapeMeasured(prediction=self, points=tuple(points), largest_gap_in_eigenvalue=max(gaps))

    def plot(self) -> "Figure":
        """Every point by loss and index."""
        from linnet.plot.landscape import points

        return points(self)

    def __rich__(self) -> "RenderableType":
        from linnet.predict.words.landscape import words

        return words(self)


@dataclass(frozen=True, kw_only=True)
class LandscapeMeasured(Measured):
    """The same points built as weights: cost, label by `observe.classify`, and whole Hessians by differentiation."""

    prediction: LandscapePrediction = hidden()
    points: tuple[CriticalSet, ...]  # as in the prediction, measured
    largest_gap_in_eigenvalue: float  # between smallest eigenvalues, relative to the largest eigenvalue of the point

    @property
    def different(self) -> tuple[CriticalSet, ...]:
        """Points whose label or number of negative eigenvalues is not the predicted one."""
        pairs = zip(self.prediction.points, self.points, strict=True)
        return tuple(b for a, b in pairs if (a.label, a.negative_eigenvalues) != (b.label, b.negative_eigenvalues))

    def plot(self) -> "Figure":
        """Every point by loss and index, with what was measured as rings."""
        from linnet.plot.landscape import points

        return points(self.prediction, self)

    def __rich__(self) -> "RenderableType":
        from linnet.predict.words.landscape import words

        return words(self.prediction, self)


def landscape(problem: Any, hidden: Sequence[int], *, most: int = 64) -> LandscapePrediction:
    """The critical points of a network with these hidden widths on a regression, by the modes they have learned.

    `problem` is a regression on any data (n < d_in allowed), or the singular values of a target (`whitened`). Loss,
    label and number of negative eigenvalues hold for any data (nonlocal/C2 to C5). All sets of modes if there are at
    most `most`; else {1 ... k}, which training from small weights visits, and those of the smallest loss.
    """
    asked = given.regression(problem)
    if isinstance(hidden, Sequence):  # else theory says what is needed
        hidden = tuple(_check.integer("width", width, least=1, most=10**6) for width in hidden)
    found = theory.critical_points(asked, hidden, most=_check.integer("most", most, least=1, most=10_000))
    widths = (asked.shape[1], *hidden, asked.shape[0])
    points = tuple(
        CriticalSet(
            kept=point.kept,
            loss=point.loss,
            excess=point.excess,
            label=point.label,
            negative_eigenvalues=point.negative,
            smallest_eigenvalue=_smallest(asked, hidden, point),
        )
        for point in found.points
    )
    return LandscapePrediction(
        prepared=given.prepared(problem),
        widths=widths,
        depth=len(hidden) + 1,
        bottleneck=found.bottleneck,
        samples=asked.samples,
        normalisation=given.normalisation(asked),
        whitened=found.whitened,
        spectrum=tuple(map(float, found.values)),
        critical_sets=found.total,
        shown=len(points),
        points=points,
        theory=_theory(asked, found.whitened),
        problem=asked,
    )


def _smallest(problem: Regression, widths: Sequence[int], point: theory.CriticalPoint) -> float:
    """In closed form for whitened data, else from the balanced point's Hessian; changes of basis make 0 the least."""
    if not math.isnan(point.smallest) or not point.negative:
        return 0.0 if math.isnan(point.smallest) else point.smallest + 0.0  # -0 is 0
    room = len(point.kept) + 1  # one neuron without a mode stands for all of them
    return observe.classify(critical(problem, tuple(min(w, room) for w in widths), point.kept), problem).smallest


def _theory(problem: Regression, white: bool) -> tuple[Source, ...]:
    scales = np.linalg.svd(np.asarray(problem.root), compute_uv=False)
    least = float(scales[-1]) if len(scales) == problem.shape[1] else 0.0
    inputs = Hypothesis.of("white inputs: X^T X is a multiple of the identity", 1 - (least / float(scales[0])) ** 2)
    return (
        Source(
            "kept, loss, excess",
            "balanced critical points, and their changes of basis, keep modes of the least-squares fit",
            ("nonlocal/C1", "nonlocal/C2"),
        ),
        Source(
            "label, negative_eigenvalues",
            "second-order form, the same in all bases and for any data (Theorems 7 and 8)",
            ("nonlocal/C3", "nonlocal/C4", "nonlocal/C5"),
        ),
        Source(
            "smallest_eigenvalue",
            "the Hessian's spectrum in closed form" if white else "the balanced point's Hessian, computed",
            ("nonlocal/C5",),
            (inputs,) if white else (),
        ),
    )


_hessian = jax.jit(observe.hessian_matrix)
