"""What is told about a step size: fates, thresholds and balance of the modes of a deep factorisation."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float

from linnet import dynamics
from linnet.predict.answer import Prediction, Progress, Source, hidden
from linnet.predict.optimiser import Optimiser
from linnet.theory import stability as theory
from linnet.theory.mode_fate import Cross, Fate

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType

    from linnet.predict.stability_run import StabilityMeasured

_DRAWN = 6  # modes of a diagram
NORMALISATIONS = {True: "1/2 |A - A_star|^2", False: "|A - A_star|^2"}  # half or not


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """The step sizes at which the motion of a mode changes; None where one layer has no such stage, or where momentum
    or decay leave it unknown.
    """

    oscillates: float
    doubles: float | None  # period 2 becomes period 4
    chaos: float | None  # where the doublings end
    leaves: float | None  # a chaotic orbit reaches 0: trapped there (odd depth) or changing its sign (even depth)
    diverges: float | None


@dataclass(frozen=True, kw_only=True)
class StabilityMode:
    """One mode u^T A v: what becomes of it at this step size, and which steps would change that."""

    value: float  # of the target
    rest: float  # its value at the minimum: less with decay
    curvature: float  # of the loss along the mode at the balanced minimum, decay included
    kappa: (
        float  # lr times the curvature: it converges below 2; with momentum or decay twice lr over the largest stable
    )
    fate: Fate
    period: int | None  # in steps: 1 at rest, that of a cycle, None for all else
    low: float | None  # of the values of u^T A v in the end; None where it diverges
    high: float | None
    diverges_after: int | None  # steps
    lyapunov: float | None  # of chaos, a step
    lingers: bool  # the chaotic orbit is near 0 for long
    leaves_start_after: float  # steps, for a small start
    gap_left: float | None  # of y_l^2 - y_L^2 = alpha^2, where the mode converges from a start of that kind
    thresholds: Thresholds


@dataclass(frozen=True, kw_only=True)
class Sorting:
    """From the step size `lr` on mode 1 passes below mode 2, so that sorted values alternate; and whether it does."""

    lr: float
    here: bool


@dataclass(frozen=True, kw_only=True)
class Balancing:
    """Differences between the layers of a mode, y_l^2 - y_m^2."""

    largest_alpha: float | None  # the start scale up to which they cannot grow; None from kappa = 2 sqrt(2) on
    gap_multiplier: float | None  # of a difference in mode 1 over its 2-cycle, where there is one


class Diagram(NamedTuple):
    """A bifurcation diagram: points of the orbit of the first modes at many step sizes, NaN where they diverge."""

    lr: Float[np.ndarray, " rates"]
    values: Float[np.ndarray, "rates modes points"]


@dataclass(frozen=True, kw_only=True)
class StabilityPrediction(Prediction):
    """Descent with a constant step on a deep factorisation, mode by mode; with momentum and decay where asked for.

    With batches only `largest_stable_lr_with_batches` speaks of them, and `measure` trains on them.
    """

    depth: int
    d: int  # dimension of the matrices
    start: str
    alpha: float  # scale of the start
    alpha_chosen: bool
    seed: int  # of singular vectors and batches, for `measure`
    normalisation: str  # of the loss
    lr: float
    lr_chosen: bool
    beta: float  # momentum
    nesterov: bool
    averaged: bool  # v is a mean of gradients, as in Adam
    decay: float
    decoupled: bool  # decay beside the gradient, as in AdamW
    batch: int | None  # fresh Gaussian samples that a step sees; None: the loss itself
    modes: tuple[StabilityMode, ...]
    largest_stable_lr: float  # at the balanced minimum
    largest_stable_lr_at_flow_end: float | None  # at the minimum that gradient flow finds; None where that is the same
    largest_stable_lr_with_batches: float | None  # in mean square, at the balanced minimum; NaN: unknown; None: all
    cross: Cross | None  # entries of A between two modes; None where nothing can mix
    sorting: Sorting | None  # None where there is no smaller second mode, or one layer
    balancing: Balancing | None  # None for one layer
    notes: tuple[str, ...]
    theory: tuple[Source, ...]
    lr_reason: str = hidden()

    @property
    def unit(self) -> float:
        """How often a step counts: twice on |A - A_star|^2."""
        return 1.0 if self.normalisation == NORMALISATIONS[True] else 2.0

    @property
    def optimiser(self) -> Optimiser:
        """Momentum and decay."""
        return Optimiser(self.beta, self.nesterov, self.averaged, self.decay, self.decoupled)

    @property
    def spectrum(self) -> Float[np.ndarray, " modes"]:
        """The target's singular values."""
        return np.array([mode.value for mode in self.modes])

    def measure(self, *, progress: Progress | None = None) -> "StabilityMeasured":
        """Training of the matrices, with random singular vectors, beside the chains of its modes."""
        from linnet.predict.stability_run import measure

        return measure(self, progress)

    def diagram(self) -> Diagram:
        """Orbits of the first modes, from below the edge to beyond this step or divergence."""
        first = self.modes[0].thresholds
        edge, lr = first.oscillates, self.lr
        end = max(1.25 * edge, 1.08 * lr)
        if first.leaves is not None and first.diverges is not None:
            end = min(max(end, first.leaves), 1.02 * first.diverges)
        rates = np.linspace(min(0.9 * edge, 0.95 * lr if lr < edge else edge), end, 900)
        shown = self.spectrum[:_DRAWN]
        if not self.optimiser.plain:
            from linnet.predict.stability_optimiser import diagram

            return diagram(self, rates, shown)
        kappas = (self.unit * rates[:, None] * theory.curvature(shown, self.depth)).ravel()
        found = dynamics.orbits(dynamics.balanced(self.depth), 0.9, kappas, skip=4000, keep=96)
        values = np.asarray(found.values) ** self.depth
        values[np.asarray(found.escaped) >= 0] = np.nan
        return Diagram(rates, values.reshape(len(rates), len(shown), -1) * shown[:, None])

    def plot(self) -> "Figure":
        """The bifurcation diagram of its modes, with this step and the thresholds marked."""
        from linnet.plot.stability_predict import bifurcation

        return bifurcation(self)

    def __rich__(self) -> "RenderableType":
        from linnet.predict.words.stability import words

        return words(self)
