"""How a network is trained beside its step size: momentum and decay, as `predict` accepts them."""

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float

from linnet import _check
from linnet.theory import optimisers as theory

if TYPE_CHECKING:
    from linnet.motion import Batches, GradientDescent, Momentum

NOT_FITTED = "no formula covers a minimum that does not fit every sample"
_STILL = 1e-9  # a step: rounding decides how a direction moves that is slower
_LIMIT = 1e3  # layer values beyond so many of the target's do not come back


class Pace(NamedTuple):
    """The flow that small steps follow to second order: dtheta/dk = -rate ((1 + shift) s + bend H s), k counts steps.

    s is the slope of the loss with decay in it, H its Hessian. By default it is gradient flow.
    """

    rate: float = 1.0
    bend: float = 0.0
    shift: float = 0.0


class Optimiser(NamedTuple):
    """Momentum b = `beta` (Nesterov's form, averaged) and decay mu (in the gradient, or decoupled); none by default."""

    beta: float = 0.0
    nesterov: bool = False
    averaged: bool = False
    decay: float = 0.0
    decoupled: bool = False

    @classmethod
    def of(cls, **given: Any) -> "Optimiser":
        """What was asked for, checked."""
        flags = {name: _check.flag(name, given[name]) for name in ("nesterov", "averaged", "decoupled")}
        beta = _check.real("beta", given["beta"], least=0, below=1)
        return cls(beta=beta, decay=_check.real("decay", given["decay"], least=0), **flags)

    @property
    def plain(self) -> bool:
        """Whether it is gradient descent and nothing else."""
        return self.beta == 0 and self.decay == 0

    @property
    def mu(self) -> float:
        """The decay of the cost whose minimum is found."""
        return float(
            theory.effective_decay(self.decay, beta=self.beta, average=self.averaged, decoupled=self.decoupled)
        )

    @property
    def beyond_batches(self) -> str:
        """Why no formula says which steps batches bear with it, nothing where one does."""
        if self.decay:
            return NOT_FITTED
        return "no formula covers Nesterov's form" if self.nesterov and self.beta else ""

    @property
    def speed(self) -> float:
        """How many steps of descent one step amounts to where it is small."""
        return float(theory.momentum_time(1.0, 1.0, self.beta, average=self.averaged))

    def _stepping(self) -> dict[str, Any]:
        """In the words of theory."""
        told = self._asdict()
        return told | {"average": told.pop("averaged")}

    def largest(self, sharpness: Any) -> Any:
        """The largest stable step at a minimum of this sharpness, the decay of its cost included."""
        alone = np.maximum(np.asarray(sharpness, dtype=float) - self.mu, 0.0)
        return np.asarray(theory.largest_stable_lr(alone, **self._stepping()))

    def short(self, sharpness: float) -> float:
        """The step below which no direction oscillates: both roots are real, and small steps follow the flow."""
        alike = (1 - self.beta) / (1 + self.beta) if self.nesterov else 1 - math.sqrt(self.beta)
        share = 1 - self.beta if self.averaged else 1.0
        return alike**2 / (share * sharpness) if sharpness > 0 else math.inf

    def pace(self, lr: float) -> Pace:
        """Put theta(k + 1) = theta + f + f' f/2 into (1 - b S^-1)(theta_{k+1} - (1 - lr mu) theta_k) = -lr g, S a shift
        by one step: (1 - b) f + (1 + b)/2 f' f = -lr s without decay beside the gradient. Nesterov's form has
        (1 + b) g_k - b g_{k-1} = g + b g' f in place of g. Once the start without momentum is forgotten, as b^k.
        """
        b, rate = self.beta, lr * self.speed
        bend = (1 + b) / (2 * (1 - b)) - (b if self.nesterov else 0.0)
        shift = 0.0
        if self.decoupled:
            shift = b * ((rate * self.mu if self.nesterov else 0.0) - lr * self.decay / (1 - b))
        return Pace(rate, rate * bend, shift)

    def strays(self, lr: float, sharpness: float) -> float:
        """By how much `pace` is wrong, relatively, in a direction as sharp as this; infinite where it oscillates."""
        alone = max(sharpness - self.mu, 0.0)
        columns = [self.step(1.0, 0.0, alone, lr), self.step(0.0, 1.0, 0.0, lr)]
        roots = np.linalg.eigvals(np.array(columns).T)
        if np.any(np.imag(roots)) or np.max(np.real(roots)) <= 0:
            return math.inf
        pace = self.pace(lr)
        told = pace.rate * ((1 + pace.shift) * sharpness + pace.bend * sharpness**2)
        if told < _STILL:
            return 0.0
        return abs(-math.log(np.max(np.real(roots))) / told - 1)

    def step(self, theta: Any, v: Any, gradient: Any, lr: Any) -> tuple[Any, Any]:
        """Weights and momenta after one step, from the gradient without decay."""
        share = 1 - self.beta if self.averaged else 1.0
        g = share * (gradient if self.decoupled else gradient + self.decay * theta)
        v = self.beta * v + g
        along = g + self.beta * v if self.nesterov else v
        return (1 - lr * self.decay if self.decoupled else 1.0) * theta - lr * along, v

    def motion(self, lr: float, unit: float = 1.0, batch: "Batches | None" = None) -> "GradientDescent | Momentum":
        """What `simulate` runs: a step of `lr` on `unit` times a cost is one of unit lr on it, with decay / unit."""
        from linnet.motion import GradientDescent, Momentum  # predictions do without

        if self.plain:
            return GradientDescent(unit * lr, batch=batch)
        how = self._stepping() | {"batch": batch}
        return Momentum(unit * lr, how.pop("beta"), **how | {"decay": self.decay / unit})

    def words(self) -> str:
        """What it is, for people."""
        parts = []
        if self.beta:
            kind = ("averaged " if self.averaged else "") + ("Nesterov momentum" if self.nesterov else "momentum")
            parts.append(f"{kind} {self.beta:g}")
        if self.decay:
            parts.append(f"decay {self.decay:g} {'decoupled' if self.decoupled else 'in the gradient'}")
        return " and ".join(parts)


class Followed(NamedTuple):
    """End-to-end values of the last steps (points first), the step that left all bounds (-1: none), the first step at
    which half of the given level was reached (-1: none), how many steps were made, and y and x after them.
    """

    late: Float[np.ndarray, "points *modes"]
    lost: np.ndarray
    half: np.ndarray
    steps: int
    ends: Float[np.ndarray, "2 *modes"]


def follow(
    start: Float[np.ndarray, "2 *modes"],
    s: np.ndarray,
    depth: int,
    lr: np.ndarray | float,
    optimiser: Optimiser,
    level: np.ndarray,
    *,
    scale: float,
    least: int,
    most: int,
    keep: int,
) -> Followed:
    """Aligned modes are chains of numbers with momentum and decay too (`optimisers/C12`): their steps, one by one.

    A mode has y in all layers but the last and x there; its cost is scale/2 (x y^{L-1} - s)^2 + mu/2 of all squares.
    From step `least` on it ends when nothing moves any more.
    """
    both, v = start.copy(), np.zeros_like(start)
    lost, half = np.full(both.shape[1:], -1), np.full(both.shape[1:], -1)
    bound = _LIMIT * np.maximum(s ** (1 / depth), np.max(np.abs(start), axis=0))
    points: list[np.ndarray] = []
    step = 0
    for step in range(1, most + 1):
        y, x = both
        inner = y ** (depth - 2) if depth > 1 else np.zeros_like(y)
        outer = inner * y if depth > 1 else np.ones_like(y)
        product = outer * x
        points.append(product)
        half = np.where((half < 0) & (product >= level / 2) & (level > 0), step - 1, half)
        both, v = optimiser.step(both, v, scale * (product - s) * np.stack([inner * x, outer]), lr)
        gone = (lost < 0) & ~np.all(np.abs(both) <= bound, axis=0)
        if gone.any():
            lost = np.where(gone, step, lost)
            both, v = np.where(lost >= 0, math.nan, both), np.where(lost >= 0, math.nan, v)
        if step % 1000 == 0:
            points = points[-keep:]
            going = np.ptp(points, axis=0) > 1e-12 * s
            if step >= least and not np.any(going & (lost < 0)):
                break
    return Followed(np.array(points[-keep:]), lost, half, step, both)
