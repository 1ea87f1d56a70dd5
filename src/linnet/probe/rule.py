"""Learning rate, momentum, and preconditioner of a PyTorch optimizer, and its stability threshold."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from linnet._check import InputError


class Rule(NamedTuple):
    """Learning rate and momentum of an optimizer; `adaptive` where it divides by Adam's P."""

    lr: float | None
    momentum: float = 0.0
    nesterov: bool = False
    adaptive: bool = False

    @property
    def threshold(self) -> float | None:
        """The curvature up to which it is stable: 2/lr, 2(1 + b)/lr, 2(1 + b)/((1 + 2b) lr) for Nesterov's form; of the
        preconditioned Hessian 2(1 + b)/((1 - b) lr) for Adam (`optimizers/C1` to C3). None without a learning rate.
        """
        if not self.lr:
            return None
        from linnet.theory.optimizers import stability_limit

        return float(
            stability_limit(
                self.lr,
                momentum=self.momentum,
                nesterov=self.nesterov,
                dampening=self.momentum if self.adaptive else 0.0,
            )
        )


class Stepper:
    """An optimizer of PyTorch and the parameters that it moves. SGD, Adam, and AdamW are supported."""

    def __init__(self, optimizer: torch.optim.Optimizer, weights: Sequence[torch.Tensor]):
        while isinstance(inner := getattr(optimizer, "optimizer", None), torch.optim.Optimizer):
            optimizer = inner  # as accelerators wrap it
        self._optimizer, self._weights = optimizer, weights

    def _groups(self) -> list[dict[str, Any] | None]:
        """The group of each parameter; None for one that it does not move."""
        known = {id(weight): group for group in self._optimizer.param_groups for weight in group["params"]}
        found = [known.get(id(weight)) for weight in self._weights]
        if not any(found):
            raise InputError("the optimizer has none of the model's parameters: give the one that trains it.")
        return found

    def rule(self) -> Rule:
        """Its current settings, with the largest of its learning rates."""
        group = max((group for group in self._groups() if group), key=lambda group: float(group["lr"]))
        lr = float(group["lr"])
        if group.get("maximize"):
            return Rule(None)
        if isinstance(self._optimizer, torch.optim.Adam):  # AdamW is one
            return Rule(lr, float(group["betas"][0]), adaptive=True)
        if isinstance(self._optimizer, torch.optim.SGD) and not group["dampening"]:
            return Rule(lr, float(group["momentum"]), bool(group["nesterov"]))
        return Rule(None)

    def root(self, rule: Rule, dtype: torch.dtype) -> torch.Tensor | None:
        """The square root of the preconditioner: of lr_i / lr for parameters with smaller learning rates, of P^{-1}
        with P = sqrt(v^) + eps for Adam, and 0 where nothing moves. None if it is 1.
        """
        roots, even = [], not rule.adaptive
        for weight, group in zip(self._weights, self._groups(), strict=True):
            state = self._optimizer.state.get(weight, {})
            rest = group is None or (rule.adaptive and "exp_avg_sq" not in state)
            share = 0.0 if rest or group is None or not rule.lr else float(group["lr"]) / rule.lr
            even &= share == 1.0
            root = torch.full_like(weight, share, dtype=dtype)
            if rule.adaptive and not rest and group is not None:
                square = state["max_exp_avg_sq" if group["amsgrad"] else "exp_avg_sq"]
                unbiased = square.to(dtype) / (1 - float(group["betas"][1]) ** float(state["step"]))
                root = root / (unbiased.sqrt() + group["eps"])
            roots.append(root.sqrt().reshape(-1))
        return None if even else torch.cat([root.to(roots[0].device) for root in roots])
