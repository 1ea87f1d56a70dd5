"""The weights before the last step, from the optimizer's state after it: no copy is kept for that."""

from collections.abc import Sequence
from typing import Any

import torch


def before(
    optimizers: Sequence[torch.optim.Optimizer],
    weights: Sequence[torch.Tensor],
    lrs: Sequence[Sequence[float]],
    made: Sequence[int],
) -> list[torch.Tensor] | None:
    """The weights from which SGD, Adam, or AdamW made their last step with these learning rates of their groups, up to
    rounding; `made` is how many steps each has made since. None for others, for several steps, and where gradients that
    are needed have been deleted.
    """
    found = {id(weight): weight.detach() for weight in weights}
    for optimizer, own, steps in zip(optimizers, lrs, made, strict=True):
        if not steps:
            continue
        kind = type(optimizer)
        undo = _sgd if kind is torch.optim.SGD else _adam if kind in (torch.optim.Adam, torch.optim.AdamW) else None
        if undo is None or steps > 1 or len(own) != len(optimizer.param_groups):
            return None
        for group, lr in zip(optimizer.param_groups, own, strict=True):
            for weight in group["params"]:
                if id(weight) not in found:
                    continue
                with torch.no_grad():
                    part = undo(weight.detach(), weight.grad, group, optimizer.state.get(weight, {}), lr)
                if part is None:
                    return None
                found[id(weight)] = part
    return [found[id(weight)] for weight in weights]


def _sgd(
    weight: torch.Tensor, slope: torch.Tensor | None, group: dict[str, Any], state: dict[str, Any], lr: float
) -> torch.Tensor | None:
    """w' = w - lr d with d = buf, or d = g + mu w (+ b buf of Nesterov), which has w in it."""
    b, decay = float(group["momentum"]), float(group["weight_decay"])
    sign = -1.0 if group["maximize"] else 1.0
    buffer = state.get("momentum_buffer")
    if b and not group["nesterov"]:
        return None if buffer is None else weight + lr * buffer
    if slope is None:
        return None
    moved = sign * slope
    if b:
        if buffer is None:
            return None
        moved = moved + b * buffer
    return (weight + lr * moved) / (1 - lr * decay)


def _adam(
    weight: torch.Tensor, slope: torch.Tensor | None, group: dict[str, Any], state: dict[str, Any], lr: float
) -> torch.Tensor | None:
    """w' = (1 - lr mu) w - lr m/(sqrt(v) + eps), bias corrected; mu only where the decay is decoupled."""
    if "exp_avg" not in state:
        return weight
    (b1, b2), t = map(float, group["betas"]), float(state["step"])
    square = state["max_exp_avg_sq" if group["amsgrad"] else "exp_avg_sq"]
    step = (state["exp_avg"] / (1 - b1**t)) / ((square / (1 - b2**t)).sqrt() + group["eps"])
    decay = float(group["weight_decay"]) if group.get("decoupled_weight_decay") else 0.0
    return (weight + lr * step) / (1 - lr * decay)
