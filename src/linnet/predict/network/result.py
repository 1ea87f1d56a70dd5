"""What is told about a network: the prediction, and the exact descent beside it."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from linnet._check import InputError
from linnet.predict import answer
from linnet.predict.answer import Loss, Measured, Prediction, Progress, Source, When
from linnet.predict.frame import Frame
from linnet.predict.network.batch import MOMENTS
from linnet.predict.network.clock import Clock
from linnet.predict.network.end import NetworkEnd
from linnet.predict.network.path import Path
from linnet.predict.network.step import Between, NetworkOutcome
from linnet.predict.optimiser import Optimiser
from linnet.problems import Regression
from linnet.states import Weights
from linnet.theory.mode_fate import Fate, Outcome
from linnet.theory.regime import Regime

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType

FIT, LEARNED, SIGNAL, NOISE = 0.01, 0.01, 0.9, 0.1
NEVER = When(math.nan, math.nan)  # it does not settle
_LARGEST_RUN = 600
_MOVES = 1e-6  # of its target: a mode that goes to and fro by less is at rest


@dataclass(frozen=True, kw_only=True)
class NetworkStart:
    """Where training begins."""

    kind: str  # gaussian, one-zero or balanced
    scale: tuple[float, ...]  # one number a layer: standard deviations, or alpha
    seed: int


@dataclass(frozen=True, kw_only=True)
class NetworkMode:
    """A mode s u v^T of the predictor that training ends with: what it does and when."""

    value: float  # s
    regime: Regime
    kernel_growth: float  # its tangent kernel in the end over that at the start
    crosstalk: float  # what its kernel makes of other entries of A at the start, over what it makes of its own
    half_learned: When  # u^T A v = s/2; 0 where it begins beyond
    layers: tuple[float, ...] | None  # its singular value in each layer where the flow ends; None: nobody knows
    fate: Fate  # at this step size
    period: int | None  # of its fate: 1 at rest
    between: Between | None  # where a mode goes that does not settle, as far as theory knows

    @property
    def outcome(self) -> Outcome:
        """Fate and period: what it does at this step size, in words."""
        return Outcome(self.fate, self.period)

    @property
    def oscillates(self) -> bool:
        """Whether it goes on moving between two known values."""
        return self.between is not None and self.between.high - self.between.low > _MOVES * self.value


@dataclass(frozen=True, kw_only=True)
class StopWindow:
    """When to stop: between signal and noise."""

    signal: int  # how many modes are signal
    signal_learned: When  # when they all are, to 90 %
    noise_begins: When  # when the first of the others is at 10 %
    open: bool | None  # whether the one comes before the other; None: nobody knows


@dataclass(frozen=True, kw_only=True)
class NetworkPrediction(Prediction):
    """What becomes of a network: regimes, times, step sizes, when to stop and where it ends.

    Times are learning rate times steps, those of gradient flow where there is no momentum; NaN is what no theory knows,
    infinity what never comes.
    """

    title: str
    samples: int | None  # None: whitened inputs
    inputs: int
    outputs: int
    rank: int  # of the inputs
    condition: float  # of the inputs: their largest singular value over the smallest nonzero one
    normalisation: str  # of the loss: sum, mean or a formula
    depth: int
    hidden: tuple[int, ...]  # neurons of the hidden layers
    bottleneck: int  # how many modes the widths allow
    start: NetworkStart
    loss: Loss
    regime: Regime
    modes: tuple[NetworkMode, ...]  # the largest first
    modes_out_of_reach: int  # those of the target that need wider layers
    modes_lost_to_decay: int  # those that decay takes to 0
    predictor_norm: float  # |A| in the end, on the span of the samples
    lr: float
    lr_chosen: bool  # here: a tenth of the largest that start and end allow
    beta: float  # momentum
    nesterov: bool
    averaged: bool  # v is a mean of gradients, as in Adam
    decay: float
    decoupled: bool  # decay beside the gradient, as in AdamW
    end: NetworkEnd  # whose end it is that regimes, layers and the largest stable lr are told of
    largest_stable_lr: float  # 2 over the sharpness (of the whole Hessian) where it ends; its own limit with momentum
    largest_stable_lr_at_start: float  # 2 over the sharpness of the start
    largest_stable_lr_at_flattest_end: float  # no end allows more; NaN where decay leaves other minima
    batch: int | None  # samples that a step sees; None: all
    largest_stable_lr_with_batches: float | None  # in mean square, where it ends; NaN: unknown, None: no batches
    outcome: NetworkOutcome  # at this step size
    explanation: str
    modes_mix: When | None  # when entries of A between modes become visible at this step size, out of rounding
    fit: When  # 1 % of the excess loss is left, that of decay included; NaN where it does not settle
    learned: When  # 99 % of what can be learned is: |A - A_end| is 1 % of what it was, on the span of the samples
    stop: StopWindow | None
    theory: tuple[Source, ...]
    frame: Frame = answer.hidden()
    state: Weights = answer.hidden()  # the start, in the frame of the samples
    clock: Clock | Path = answer.hidden()

    @property
    def problem(self) -> Regression:
        """The regression in the frame of the samples."""
        return self.frame.problem

    @property
    def optimiser(self) -> Optimiser:
        """Momentum and decay."""
        return Optimiser(self.beta, self.nesterov, self.averaged, self.decay, self.decoupled)

    @property
    def settles(self) -> bool:
        """Whether it surely converges, so that times and the end are told."""
        return self.outcome is NetworkOutcome.CONVERGES

    def curve(self, i: int) -> tuple[Float[np.ndarray, " points"], Float[np.ndarray, " points"]]:
        """Steps, and what u_i^T A v_i of mode i (from 0) is there."""
        values, times = self.clock.curve(i)
        return times / self.lr, values

    def measure(self, *, progress: Progress | None = None) -> "NetworkMeasured":
        """The exact training of the network itself beside the prediction; on batches, if there are any."""
        from linnet.predict.network.run import measured

        if self.batch is not None and self.frame.units is None:
            raise InputError(f"run is not allowed with batch = {self.batch}: {MOMENTS}; build it with samples=True.")
        rank = self.frame.scales.size
        if rank > _LARGEST_RUN:
            raise InputError(f"data of rank {rank} cannot be measured: exact runs need a rank <= {_LARGEST_RUN}.")
        return measured(self, progress)

    def plot(self) -> "Figure":
        """Each mode's share against the step, and what each mode's kernel does."""
        from linnet.plot.network import network

        return network(self)

    def __rich__(self) -> "RenderableType":
        from linnet.predict.words.network import words

        return words(self)


class Curves(NamedTuple):
    """What the exact descent looked at: steps, and u_i^T A v_i of every mode there."""

    steps: Int[np.ndarray, " records"]
    modes: Float[np.ndarray, "records modes"]


@dataclass(frozen=True, kw_only=True)
class MeasuredMode:
    """What the exact descent did to a mode."""

    half_learned: When  # NaN: not within the run
    between: Between | None  # where it went in the last steps of a run that was not predicted to settle


@dataclass(frozen=True, kw_only=True)
class NetworkMeasured(Measured):
    """Exact gradient descent on the network itself, with its momentum and decay, beside what was predicted.

    With batches a step sees fresh ones, drawn by the seed of the start; losses are those of all samples.
    """

    prediction: NetworkPrediction = answer.hidden()
    status: str  # converged (to 1e-12 of the excess loss), horizon or diverged
    steps: int
    modes: tuple[MeasuredMode, ...]
    fit: When  # 1 % of the excess loss is left; with momentum for good, as in the prediction, unless there are batches
    learned: When  # |A - A_end| is 1 % of what it was
    excess_loss_left: float  # in the end, over that of the start
    predictor_error: float  # |A - predicted| / |predicted| in the end
    layer_error: float | None  # largest relative error of the layers' singular values; None: not converged or not told
    curves: Curves = answer.hidden()

    def plot(self) -> "Figure":
        """The prediction with the exact descent in it."""
        from linnet.plot.network import network

        return network(self.prediction, self)

    def __rich__(self) -> "RenderableType":
        from linnet.predict.words.network import words

        return words(self.prediction, self)
