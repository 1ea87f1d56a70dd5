"""What reaches an optimizer: its steps and learning rates, and at some steps its gradients."""

import math
import weakref
from typing import Any

import torch

from linnet.probe.surface import Surface

_SAME = 1e-3  # relative difference up to which two gradients are one
_ROWS = 4  # units of a layer, below which it has too few


class Steps:
    """Counts an optimizer's steps, and compares what backward passes gave with what the optimizer took.

    Between `watch` and the next step it has a hook on the smallest parameter; otherwise only one after each step.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, surface: Surface):
        self.count, self.lr = 0, 0.0  # the largest of its groups
        self.lrs: list[float] = []
        self.found: dict[str, Any] | None = None  # what a watched step gave
        self._optimizer = optimizer
        self._smallest = min(surface.weights, key=lambda weight: weight.numel(), default=None)
        self._named = _matrices(surface)
        self._backward: Any = None
        self._sum: torch.Tensor | None = None
        self._before: torch.Tensor | None = None
        self._passes = 0
        own = weakref.ref(self)

        def after(*_: Any) -> None:
            if (found := own()) is not None:
                found._stepped()

        self._handle = optimizer.register_step_post_hook(after)
        weakref.finalize(self, self._handle.remove)

    def watch(self) -> None:
        """Compares the gradients of the next step."""
        if self._smallest is None or self._backward is not None:
            return
        slope = self._smallest.grad
        self._before = None if slope is None or slope.layout != torch.strided else slope.detach().clone()
        self._sum, self._passes = None, 0
        own = weakref.ref(self)

        def backward(slope: torch.Tensor) -> None:
            if (found := own()) is not None:
                part = slope.detach().clone()
                found._sum = part if found._sum is None else found._sum + part
                found._passes += 1

        self._backward = self._smallest.register_hook(backward)  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Removes its hooks."""
        self._handle.remove()
        self._unwatch()

    def _unwatch(self) -> None:
        if self._backward is not None:
            self._backward.remove()
            self._backward = None

    def _stepped(self) -> None:
        self.count += 1
        self.lrs = [float(group["lr"]) for group in self._optimizer.param_groups]
        self.lr = max(self.lrs)
        if self._backward is None or self._passes == 0:
            return
        self._unwatch()
        taken = None if self._smallest is None else self._smallest.grad
        self.found = {"passes": self._passes, **_dead(self._named)}
        if taken is not None and self._sum is not None and taken.layout == torch.strided:
            self.found |= _compared(taken.detach(), self._sum, self._before)
        decays = [float(group.get("weight_decay") or 0.0) for group in self._optimizer.param_groups]
        if any(decays):
            self.found["weight_decay"] = max(decays)
        self._sum = self._before = None


def _matrices(surface: Surface) -> list[tuple[str, torch.Tensor]]:
    """Weights whose rows are units, by name: not of embeddings, whose rows are tokens."""
    tokens = {
        id(part.weight)
        for part in surface.model.modules()
        if isinstance(part, torch.nn.Embedding | torch.nn.EmbeddingBag)
    }
    named = zip(surface.names, surface.weights, strict=True)
    return [
        (name.removeprefix("model."), weight)
        for name, weight in named
        if weight.ndim >= 2 and len(weight) >= _ROWS and id(weight) not in tokens
    ]


def _dead(named: list[tuple[str, torch.Tensor]]) -> dict[str, Any]:
    """The largest share of a layer's units whose gradient is exactly 0, where another layer has a gradient."""
    shares = [
        (float((weight.grad.detach().flatten(1) == 0).all(1).double().mean()), name)
        for name, weight in named
        if weight.grad is not None and weight.grad.layout == torch.strided
    ]
    if not shares:
        return {}
    share, name = max(shares, key=lambda one: one[0])  # the first of them
    return {"dead": share, "dead_layer": name}


def _compared(taken: torch.Tensor, given: torch.Tensor, before: torch.Tensor | None) -> dict[str, Any]:
    """Whether what the optimizer took is the sum of what was given since its last step, times `gradient_scale` (below 1
    where it was clipped); `kept` where the gradient before was never set to zero. Neither if it is something else.
    """
    parts = [part.double().reshape(-1) for part in (taken, given)]
    whole = parts[1] if before is None else parts[1] + before.double().reshape(-1)
    errors, scales = [], []
    for one in (parts[1], whole):
        square = float(one @ one)
        scale = float(parts[0] @ one) / square if square > 0 else math.nan
        size = float(parts[0].norm())
        errors.append(float((parts[0] - scale * one).norm()) / size if size > 0 else math.nan)
        scales.append(scale)
    if before is None or not bool(before.any()):
        return {"gradient_scale": scales[0]} if errors[0] < _SAME else {}
    if errors[0] < _SAME and errors[1] < _SAME:  # parallel: only the length can decide
        kept = abs(scales[1] - 1) < _SAME < abs(scales[0] - 1)
    else:
        kept = errors[1] < _SAME
    if not kept and not errors[0] < _SAME:
        return {}
    return {"gradient_scale": scales[1 if kept else 0], "kept": kept}
