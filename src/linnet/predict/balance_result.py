"""What is told of two layers in balance, and of what their own flow does beside it."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float

from linnet.outcome import Status
from linnet.predict.answer import Loss, Measured, Prediction, Progress, Source, When, hidden
from linnet.predict.balance_course import Course
from linnet.theory.regime import Regime

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType

REVERSAL = "reversal"
_RECORDS = 300


class Curves(NamedTuple):
    """In flow time: the modes u_i^T A v_i, and |Theta - Theta_0| / |Theta_0| of the tangent kernel."""

    time: Float[np.ndarray, " records"]
    modes: Float[np.ndarray, "records modes"]
    kernel_change: Float[np.ndarray, " records"]


@dataclass(frozen=True, kw_only=True)
class BalanceStart:
    """Where the layers start."""

    kind: str  # random frames, aligned (with the target) or given
    scale: float | None  # of the lighter layer's entries (aligned: of its singular values); None of a given start
    seed: int | None
    defect: float  # |W_2^T W_2 - W_1 W_1^T - lambda I| over |W_1|^2 + |W_2|^2


@dataclass(frozen=True, kw_only=True)
class BalanceMode:
    """A mode s u v^T of the target."""

    value: float  # s
    start: float  # u^T A v at the start
    end: float  # and in the end: s where it is learned
    regime: Regime
    kernel_growth: float  # u^T C2 u + v^T C1 v in the end over that at the start
    half_learned: When  # u^T A v = s/2
    learned: When  # within 1 % of s for good


@dataclass(frozen=True, kw_only=True)
class BalanceLearning:
    """What a balanced start makes of one task. Times are flow times, from the beginning of the task."""

    spectrum: tuple[float, ...]  # singular values of the target
    regime: Regime  # of the modes that are learned
    modes: tuple[BalanceMode, ...]  # the largest first
    rank: int  # of A in the end
    missing: int  # modes that the width has room for and that never come
    saddle: bool  # whether the end is one: a mode is missing that would lower the loss
    loss: Loss
    fit: When  # the loss above its end is down to 1 %
    kernel_change: float  # |Theta - Theta_0| / |Theta_0| in the end
    input_gram_change: float  # the same of C1 = W_1^T W_1
    output_gram_change: float  # and of C2 = W_2 W_2^T
    largest_stable_lr: float  # of gradient descent at the end
    course: Course = hidden()

    @property
    def horizon(self) -> float:
        """A time that is worth a look: well after all that is learned, and before rounding leaves a saddle."""
        moments = [self.fit, *(when for mode in self.modes for when in (mode.half_learned, mode.learned))]
        last = max((when.time for when in moments if math.isfinite(when.time)), default=0.0)
        return max(1.3 * last, 6 * self.course.unit) if self.saddle or last == 0 else 1.3 * last

    def curves(self, times: Any = None) -> Curves:
        """The closed form at these times, by default from the start to well after the end."""
        if times is None:
            late = self.horizon
            times = np.unique(np.append(np.linspace(0, late, _RECORDS // 2), np.geomspace(late / 1e3, late, _RECORDS)))
        clock = np.asarray(times, dtype=float)
        seen = self.course.at(clock)
        return Curves(clock, seen.modes[:, : len(self.modes)], seen.kernel)


@dataclass(frozen=True, kw_only=True)
class BalanceSwitch(BalanceLearning):
    """The task that follows, from where the first one ended."""

    to: str  # reversal (-Y), or another target
    explanation: str


@dataclass(frozen=True, kw_only=True)
class BalancePrediction(BalanceLearning, Prediction):
    """Two lambda-balanced layers on whitened data, and what a switch of the task does to them: closed form, exact."""

    inputs: int
    outputs: int
    width: int
    curvature: float  # c: the loss is c/2 |A - Y|^2 and a constant
    lam: float
    start: BalanceStart
    switch: BalanceSwitch
    theory: tuple[Source, ...]

    def measure(self, *, progress: Progress | None = None) -> "BalanceMeasured":
        """The layers' own flow on both tasks, by an adaptive solver; `progress` is told after each."""
        from linnet.predict.balance_run import measure

        return measure(self, progress)

    def plot(self) -> "Figure":
        """Modes and kernel in time, and the task that follows."""
        from linnet.plot.balance_predict import balance as draw

        return draw(self)

    def __rich__(self) -> "RenderableType":
        from linnet.predict.words.balance import words

        return words(self)


@dataclass(frozen=True, kw_only=True)
class MeasuredBalanceMode:
    """When the layers' own flow had half a mode, and when all of it; NaN where the run ended before."""

    half_learned: When
    learned: When


@dataclass(frozen=True, kw_only=True)
class MeasuredLearning:
    """The layers' own flow on one task."""

    status: Status
    ended: float  # in flow time
    modes: tuple[MeasuredBalanceMode, ...]
    kernel_change: float  # at the end of the run
    largest_gap_in_modes: float  # from the closed form, over the largest singular value
    largest_gap_in_kernel: float  # of |Theta - Theta_0| / |Theta_0|, over its largest
    curves: Curves = hidden()


@dataclass(frozen=True, kw_only=True)
class BalanceMeasured(MeasuredLearning, Measured):
    """The layers' own flow beside the closed form, on both tasks."""

    prediction: BalancePrediction = hidden()
    switch: MeasuredLearning

    def plot(self) -> "Figure":
        """Modes and kernel in time with the layers' own flow, and the task that follows."""
        from linnet.plot.balance_predict import balance as draw

        return draw(self.prediction, self)

    def __rich__(self) -> "RenderableType":
        from linnet.predict.words.balance import words

        return words(self.prediction, self)
