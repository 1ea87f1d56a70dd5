"""Learning rates, momentum, decay, and preconditioner of the optimizers of a training, and their stability threshold.

Where P is frozen, a step is w_{k+1} = (1 - lr d) w_k - lr F(g/P) with a linear filter F of the gradients g = H w + m w;
m is the decay inside of the gradient, d the decoupled one. The first instability is w_{k+1} = -w_k, where F multiplies
by a number, the gain. So training is stable while all eigenvalues of A^{1/2} (H + m) A^{1/2} + lr d are below 2,
A = lr gain / P; lr, gain, m, and d may differ between parameters.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from linnet import _input
from linnet import _update as update
from linnet._input import InputError
from linnet.probe.optimizers import Known, age, known


class Rule(NamedTuple):
    """Optimizers at one moment, by their group of parameters with the largest learning rate.

    `gain` is the step that alternating gradients of size 1 make, over lr; `adaptive` whether there is a preconditioner;
    `age` the steps that it has seen, and `memory` those that it averages over. Where `lr` is None, `reason` says in one
    sentence why there is no threshold, if an optimizer is the cause.
    """

    lr: float | None
    gain: float = 1.0
    weight_decay: float = 0.0
    adaptive: bool = False
    age: float = math.inf
    memory: float = 0.0
    name: str = "SGD"
    reason: str | None = None

    @classmethod
    def sgd(cls, lr: float | None, momentum: float = 0.0) -> "Rule":
        """Gradient descent with heavy-ball momentum."""
        return cls(lr, update.alternating_gain(momentum, 0.0, nesterov=False))

    @property
    def threshold(self) -> float | None:
        """The curvature up to which it is stable, weight decay included: 2/(lr gain), such as 2/lr, 2(1 + b)/lr with
        momentum b, and 38/lr for Adam's preconditioned Hessian at b = 0.9 (`optimizers/C1` to C3). None without a
        learning rate.
        """
        return 2 / (self.lr * self.gain) if self.lr else None


class _Part(NamedTuple):
    """A parameter with its optimizer, group, and state; `known` is a sentence if nothing is known."""

    weight: torch.Tensor
    optimizer: torch.optim.Optimizer
    known: Known | str
    group: dict[str, Any]

    @property
    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = self.optimizer.state.get(self.weight, {})
        return found

    @property
    def age(self) -> float:
        return age(self.group, self.state) if self.state else 0.0


class TorchOptimizers:
    """One or several optimizers of PyTorch and the parameters that they move."""

    def __init__(
        self, optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer], weights: Sequence[torch.Tensor]
    ):
        given = optimizer if isinstance(optimizer, list | tuple) else [optimizer]
        self.optimizers, self._weights = [unwrapped(one) for one in given], weights

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The first one, inside of its wrappers."""
        return self.optimizers[0]

    def require(self, model: torch.nn.Module) -> None:
        """Refuses optimizers that have none of a model's parameters."""
        own = {id(weight) for weight in model.parameters()}
        for optimizer in self.optimizers:
            if not any(id(weight) in own for group in optimizer.param_groups for weight in group["params"]):
                raise InputError(
                    f"optimizer = {type(optimizer).__name__}(...) is not allowed: it has none of the model's "
                    "parameters; give the one that trains it."
                )

    def _parts(self) -> list[_Part | None]:
        """What moves each parameter; None for one that does not move."""
        found: dict[int, _Part] = {}
        for optimizer in self.optimizers:
            kind = known(optimizer)
            for group in optimizer.param_groups:
                found |= {id(weight): _Part(weight, optimizer, kind, group) for weight in group["params"]}
        parts = [found.get(id(weight)) for weight in self._weights]
        if not any(parts):
            raise InputError("the optimizer has none of the model's parameters: give the one that trains it.")
        return parts

    def rule(self) -> Rule:
        """Their current settings, with the largest of their learning rates."""
        parts = [part for part in self._parts() if part is not None]
        name = " + ".join(dict.fromkeys(type(part.optimizer).__name__ for part in parts))
        for part in parts:
            if isinstance(part.known, str):
                return Rule(None, name=name, reason=part.known)
        first = max(parts, key=lambda part: float(part.group["lr"]))
        what = first.known
        assert isinstance(what, Known)
        rule = Rule(
            float(first.group["lr"]),
            what.gain(first.group, first.state, first.weight),
            what.inside(first.group, first.state),
            name=name,
        )
        divided = [part for part in parts if isinstance(part.known, Known) and part.known.preconditioner is not None]
        if divided:
            memory = max(part.known.memory(part.group) for part in divided if isinstance(part.known, Known))
            rule = rule._replace(adaptive=True, age=max(part.age for part in divided), memory=memory)
        return rule

    def root(self, rule: Rule, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor] | None:
        """The square root of A over lr gain of the rule, and the decay over it, such that the curvature to compare with
        the threshold is the largest eigenvalue of root H root + decay; 0 where nothing moves. None if all parameters
        have the rule's lr, gain, and decay, and there is no preconditioner.
        """
        roots, decays = [], []
        even, unit = not rule.adaptive, (rule.lr or 0.0) * rule.gain
        for weight, part in zip(self._weights, self._parts(), strict=True):
            rate, decay = torch.zeros_like(weight, dtype=dtype), torch.zeros_like(weight, dtype=dtype)
            divided = part is not None and isinstance(part.known, Known) and part.known.preconditioner is not None
            if part is None or isinstance(part.known, str) or not unit or (divided and not part.age):
                even = False
            else:
                what, group, state, lr = part.known, part.group, part.state, float(part.group["lr"])
                inside, beside = what.inside(group, state), what.beside(group, state)
                share = lr * what.gain(group, state, weight) / unit
                rate.fill_(share)
                even &= share == 1.0 and inside == rule.weight_decay and not beside
                if what.preconditioner is not None:
                    rate /= what.preconditioner(group, state, weight, dtype)
                decay = inside * rate + lr * beside / unit
            roots.append(rate.sqrt().reshape(-1))
            decays.append(decay.reshape(-1))
        if even:
            return None
        return tuple(torch.cat([part.to(parts[0].device) for part in parts]) for parts in (roots, decays))  # type: ignore[return-value]


def unwrapped(optimizer: Any) -> torch.optim.Optimizer:
    """The optimizer inside of wrappers, as accelerators make them."""
    while isinstance(inner := getattr(optimizer, "optimizer", None), torch.optim.Optimizer):
        optimizer = inner
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InputError(
            f"optimizer = {_input.show(optimizer)} is not allowed: give a torch.optim optimizer, or a list of such."
        )
    return optimizer
