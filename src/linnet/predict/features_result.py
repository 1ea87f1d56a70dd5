"""What is told of features: predicted and measured."""

import enum
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Num

from linnet.curves import crossing
from linnet.predict.answer import Loss, Measured, Prediction, Progress, Source, When, hidden
from linnet.problems import Regression
from linnet.theory.feature import Condition, Task
from linnet.theory.regime import Regime

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType

ALIGNED = 0.95  # stage one ends at this slope


class Data(enum.StrEnum):
    """Where samples come from: one draw of standard normal inputs with a linear teacher, or one's own."""

    GAUSSIAN = "gaussian"
    OWN = "own"


@dataclass(frozen=True, kw_only=True)
class Stages:
    """Moments of training, None where they do not come; losses and kernels are shares of their start."""

    t1: When | None  # the neurons are aligned with X^T y: slope 0.95
    loss_left_at_t1: float | None
    kernel_growth_at_t1: float | None  # of y^T Theta y
    half_loss: When | None
    two_stages: bool  # most of the loss is left at t1


@dataclass(frozen=True, kw_only=True)
class End:
    """Where training ends."""

    mean_square_v: float  # mean of v_r^2 over the neurons
    kernel_norm: float  # largest eigenvalue of the tangent kernel on the samples
    target_distance: float  # of that kernel from the target-aligned one, relative (`observe.target_distance`)


@dataclass(frozen=True, kw_only=True)
class PredictedEnd(End):
    """Where gradient flow ends from a wide start, and by which factor a late step of descent shrinks the residual."""

    late_factor: float


@dataclass(frozen=True, kw_only=True)
class Curves:
    """Loss over that of an output of zero, slope, and y^T Theta y over its start, at steps of descent."""

    step: Num[np.ndarray, " records"]
    loss: Float[np.ndarray, " records"]
    slope: Float[np.ndarray, " records"]
    growth: Float[np.ndarray, " records"]


@dataclass(frozen=True, kw_only=True)
class FeaturesPrediction(Prediction):
    """What theory says of f = (1/width) X W_1^T v with loss |f - y|^2 / (2n), W_1 ~ N(0, sigma0^2) and v = +-v0.

    Times are learning rate times steps.
    """

    samples: int
    inputs: int
    width: int
    v0: float
    sigma0: float
    seed: int
    data: Data
    gamma: float  # |X^T y|^2
    condition: float  # of the inputs
    v_star: float  # where v saturates: sqrt(gamma^{3/2} / |X X^T y|^2)
    richness: float  # R = 2 v_star^2 / (v0^2 + sigma0^2)
    regime: Regime
    kernel_growth: float  # of y^T Theta y over the whole training, from its end state
    kernel_growth_isotropic: float  # sqrt(1 + R^2), if X X^T were a multiple of the identity
    lr: float
    lr_chosen: bool
    x: float  # the dimensionless step lr sqrt(gamma) / (samples width)
    largest_stable_lr: float
    largest_lr_without_overshoot: float
    settles: bool  # lr is below the largest stable one
    floor: float  # share of the loss that no output along X X^T y can remove
    loss: Loss
    stages: Stages | None  # None where lr does not settle
    end: PredictedEnd
    eps: float  # the loss that the paper's assumption is asked for
    assumptions: tuple[Condition, ...]
    notes: tuple[str, ...]
    theory: tuple[Source, ...]
    problem: Regression = hidden()
    task: Task = hidden()
    curves: Curves | None = hidden()  # of the two-scalar model

    def measure(self, *, progress: Progress | None = None) -> "FeaturesMeasured":
        """Exact gradient descent at the full width, in compressed coordinates, beside the prediction."""
        from linnet.predict.features_run import measure

        return measure(self, progress)

    def plot(self) -> "Figure":
        from linnet.plot.feature import prediction as draw

        return draw(self)

    def __rich__(self) -> "RenderableType":
        from linnet.predict.words.features import told

        return told(self)


@dataclass(frozen=True, kw_only=True)
class FeaturesMeasured(Measured):
    """What exact descent did; None where it diverged, or where kernels of many samples would be too dear."""

    prediction: FeaturesPrediction = hidden()
    status: str
    steps: int
    loss: Loss
    stages: Stages
    kernel_growth: float | None
    target_distance_at_t1: float | None
    end: End | None
    curves: Curves = hidden()

    def plot(self) -> "Figure":
        from linnet.plot.feature import prediction as draw

        return draw(self)

    def __rich__(self) -> "RenderableType":
        from linnet.predict.words.features import told

        return told(self)


def stages(curves: Curves, lr: float, *, rounded: bool = False, error: float | None = None) -> Stages:
    """What is told of curves, predicted or measured; `rounded` to three digits."""

    def moment(curve: np.ndarray, level: float) -> int | None:
        """The first whole step at which a curve has risen to a level, between two records by a line."""
        at = crossing(curves.step, curve, level, "line")
        return None if math.isnan(at) else math.ceil(at)

    def when(step: int | None) -> When | None:
        if step is None:
            return None
        told = int(float(f"{step:.3g}")) if rounded else step
        return When(lr * told, step=told, error=error)

    t1 = moment(curves.slope, ALIGNED)
    left, growth = (
        None if t1 is None else float(np.interp(t1, curves.step, curve)) for curve in (curves.loss, curves.growth)
    )
    return Stages(
        t1=when(t1),
        loss_left_at_t1=left,
        kernel_growth_at_t1=growth,
        half_loss=when(moment(-curves.loss, -0.5)),
        two_stages=left is not None and left > 0.5,
    )
