"""What is told about a layer of a network: the prediction, and the network itself beside it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from linnet.outcome import Status
from linnet.predict.answer import Loss, Measured, Prediction, Progress, Source, When, hidden
from linnet.problems import Problem
from linnet.states import Network
from linnet.theory.regime import Regime

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType

RIGHT = 0.1  # of the loss's fall: a prediction is right while it is wrong by less


@dataclass(frozen=True, kw_only=True)
class LayerMode:
    """An eigenvector v of the Gauss-Newton block J^T C'' J: what linear theory learns at one rate."""

    curvature: float  # its eigenvalue k
    share: float  # of the start's loss: (v . gradient)^2 / (2 k) over C, what learning this mode takes off
    half_learned: When  # (1 - lr k)^t = 1/2; never where lr k >= 2


@dataclass(frozen=True, kw_only=True)
class LayerPrediction(Prediction):
    """What a layer does where all else rests and the outputs are linear in it, and how far they are."""

    layer: int | None  # W_1 is 1; None: all that moves
    shape: tuple[int, ...] | None  # of the layer's matrix
    samples: int
    outputs: int
    weights: int  # that this layer has
    weights_in_all: int  # that move in the network
    lr: float
    lr_chosen: bool  # here: a tenth of the largest that the network bears at its start
    steps: int
    gradient_share: float  # |dC/dW_l|^2 over |dC/dtheta|^2: the layer's part in the first fall of the loss
    gradient_values: tuple[float, ...] | None  # the largest singular values of dC/dW_l; None where it is no matrix
    sharpness: float  # the largest eigenvalue of the layer's block of the Hessian
    gauss_newton_sharpness: float  # and of its block J^T C'' J, all that linear theory knows
    network_sharpness: float  # of the whole Hessian
    largest_stable_lr: float  # 2 over the largest curvature of linear theory
    network_largest_stable_lr: float  # 2 over the sharpness of the network at its start
    modes: tuple[LayerMode, ...]  # the largest curvatures first
    loss: Loss  # at the start, and after `steps` steps in linear theory; infinity where it diverges
    loss_there: float  # of the network itself at the weights to which linear theory leads
    nonlinearity: float  # |f - f_lin| / |f_lin - f_0| there
    bent: float  # the share of samples whose outputs are no longer the linear ones there
    kernel_change: float  # |(K - K_0) g| / |K_0 g| there, K = J J^T the tangent kernel and g = dC/df at the start
    regime: Regime | None  # None where linear theory diverges
    theory: tuple[Source, ...]
    curves: "Curves" = hidden()
    linear_outputs: Float[np.ndarray, "d_out n"] | None = hidden()  # after `steps` steps
    network: Network = hidden()
    problem: Problem = hidden()

    @property
    def settles(self) -> bool:
        """Whether linear theory is stable at this step size."""
        return self.lr < self.largest_stable_lr

    @property
    def moving(self) -> Network:
        """The network in which only this layer moves."""
        return self.network if self.layer is None else self.network.alone(self.layer)

    def measure(self, *, progress: Progress | None = None) -> "LayerMeasured":
        """The network itself, with this layer alone moving, and with everything moving."""
        from linnet.predict.layer_run import measured

        return measured(self, progress)

    def plot(self) -> "Figure":
        """The loss against the step, and the modes."""
        from linnet.plot.layer import layer

        return layer(self)

    def __rich__(self) -> "RenderableType":
        from linnet.predict.words.layer import words

        return words(self)


class Curves(NamedTuple):
    """Recorded steps, the loss of linear theory there, and that of the network itself at the same weights."""

    steps: Int[np.ndarray, " records"]
    loss: Float[np.ndarray, " records"]
    there: Float[np.ndarray, " records"]


@dataclass(frozen=True, kw_only=True)
class LayerRun:
    """Descent of the network itself, beside the linear theory of the layer."""

    status: Status
    steps: int
    loss: Loss
    output_error: float  # |f - f_lin| / |f_lin - f_0| in the end
    error: float  # |C_lin - C| over the larger fall from the start, in the end
    right_until: int  # the last recorded step up to which that was below a tenth
    gauss_newton_sharpness: float  # of the layer's block, in the end; linear theory has that of the start for ever
    curve: Float[np.ndarray, " records"] = hidden()


@dataclass(frozen=True, kw_only=True)
class LayerMeasured(Measured):
    """The network itself: the layer alone, and everything."""

    prediction: LayerPrediction = hidden()
    alone: LayerRun
    everything: LayerRun | None  # None where the layer is everything

    def plot(self) -> "Figure":
        """The prediction with both runs in it."""
        from linnet.plot.layer import layer

        return layer(self.prediction, self)

    def __rich__(self) -> "RenderableType":
        from linnet.predict.words.layer import words

        return words(self.prediction, self)
