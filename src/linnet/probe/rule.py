"""Learning rates, momentum, decay, and preconditioner of PyTorch optimizers, and their stability threshold.

Where P is frozen, a step is w_{k+1} = (1 - lr d) w_k - lr F(g/P) with a linear filter F of the gradients g = H w + m w;
m is the decay inside of the gradient, d the decoupled one. The first instability is w_{k+1} = -w_k, where F multiplies
by a number, the gain. So training is stable while all eigenvalues of A^{1/2} (H + m) A^{1/2} + lr d are below 2,
A = lr gain / P; lr, gain, m, and d may differ between parameters.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from linnet._check import InputError
from linnet.optim import update


class Rule(NamedTuple):
    """An optimizer at one moment, by its group of parameters with the largest learning rate.

    `gain` is the step that alternating gradients of size 1 make, over lr; `adaptive` whether it divides by a
    preconditioner; `age` the steps that this has seen, and `memory` those that it averages over.
    """

    lr: float | None
    gain: float = 1.0
    weight_decay: float = 0.0
    adaptive: bool = False
    age: float = math.inf
    memory: float = 0.0
    name: str = "SGD"

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


class _Known(NamedTuple):
    """What is known of a kind of optimizer: functions of a group and of the state of one of its parameters."""

    gain: Callable[[dict[str, Any], dict[str, Any]], float]
    preconditioner: Callable[[dict[str, Any], dict[str, Any], torch.dtype], torch.Tensor] | None = None
    decoupled: Callable[[dict[str, Any]], bool] = lambda group: False


def _momentum(group: dict[str, Any], state: dict[str, Any]) -> float:
    b = float(group.get("momentum", 0.0))
    return update.alternating_gain(b, float(group.get("dampening", 0.0)), nesterov=bool(group.get("nesterov")))


def _averaged(group: dict[str, Any], state: dict[str, Any]) -> float:
    b = float(group["betas"][0])
    return update.alternating_gain(b, b, nesterov=False)


def _adam(group: dict[str, Any], state: dict[str, Any], dtype: torch.dtype) -> torch.Tensor:
    square = state["max_exp_avg_sq" if group["amsgrad"] else "exp_avg_sq"]
    unbiased = square.to(dtype) / (1 - float(group["betas"][1]) ** float(state["step"]))
    return unbiased.sqrt() + group["eps"]


_ADAM = _Known(_averaged, _adam, lambda group: bool(group.get("decoupled_weight_decay")))
_KNOWN: dict[type, _Known] = {torch.optim.SGD: _Known(_momentum), torch.optim.Adam: _ADAM, torch.optim.AdamW: _ADAM}


class Stepper:
    """An optimizer of PyTorch and the parameters that it moves."""

    def __init__(self, optimizer: torch.optim.Optimizer, weights: Sequence[torch.Tensor]):
        while isinstance(inner := getattr(optimizer, "optimizer", None), torch.optim.Optimizer):
            optimizer = inner  # as accelerators wrap it
        self._optimizer, self._weights = optimizer, weights
        self._known = _KNOWN.get(type(optimizer))

    def _groups(self) -> list[dict[str, Any] | None]:
        """The group of each parameter; None for one that it does not move."""
        known = {id(weight): group for group in self._optimizer.param_groups for weight in group["params"]}
        found = [known.get(id(weight)) for weight in self._weights]
        if not any(found):
            raise InputError("the optimizer has none of the model's parameters: give the one that trains it.")
        return found

    def rule(self) -> Rule:
        """Its current settings, with the largest of its learning rates."""
        groups = [(group, weight) for group, weight in zip(self._groups(), self._weights, strict=True) if group]
        group, weight = max(groups, key=lambda one: float(one[0]["lr"]))
        name = type(self._optimizer).__name__
        if self._known is None or any(one["maximize"] for one, _ in groups if "maximize" in one):
            return Rule(None, name=name)
        state = self._optimizer.state.get(weight, {})
        rule = Rule(float(group["lr"]), self._known.gain(group, state), name=name)
        if not self._known.decoupled(group):
            rule = rule._replace(weight_decay=float(group.get("weight_decay", 0.0)))
        if self._known.preconditioner is not None:
            betas = group.get("betas", (0.0, 0.0))
            ages = [float(self._optimizer.state.get(w, {}).get("step", 0.0)) for _, w in groups]
            rule = rule._replace(adaptive=True, age=max(ages), memory=1 / (1 - float(betas[1])))
        return rule

    def root(self, rule: Rule, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor] | None:
        """The square root of A over lr gain of the rule, and the decay over it, such that the curvature to compare with
        the threshold is the largest eigenvalue of root H root + decay; 0 where nothing moves. None if all parameters
        have the rule's lr, gain, and decay, and there is no preconditioner.
        """
        roots, decays = [], []
        known, even = self._known, not rule.adaptive
        unit = (rule.lr or 0.0) * rule.gain
        for weight, group in zip(self._weights, self._groups(), strict=True):
            state = self._optimizer.state.get(weight, {})
            rate, decay = torch.zeros_like(weight, dtype=dtype), torch.zeros_like(weight, dtype=dtype)
            if group is None or known is None or not unit or (rule.adaptive and "step" not in state):
                even = False
            else:
                lr, mu = float(group["lr"]), float(group.get("weight_decay", 0.0))
                share = lr * known.gain(group, state) / unit
                rate.fill_(share)
                even &= share == 1.0 and mu == rule.weight_decay
                if known.preconditioner is not None:
                    rate /= known.preconditioner(group, state, dtype)
                decay = decay.fill_(lr * mu / unit) if known.decoupled(group) else mu * rate
            roots.append(rate.sqrt().reshape(-1))
            decays.append(decay.reshape(-1))
        if even:
            return None
        return tuple(torch.cat([part.to(parts[0].device) for part in parts]) for parts in (roots, decays))  # type: ignore[return-value]
