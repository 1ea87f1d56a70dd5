"""What reaches the optimizers of a training: their steps and learning rates, and at some steps their gradients."""

import math
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from linnet.probe.surface import Surface

_SAME = 1e-3  # relative difference up to which two gradients are one
_ROWS = 4  # units of a layer, below which it has too few
_IDLE = 10  # steps of one optimizer, after which another one without any is no accident


class Steps:
    """Counts the steps of one or several optimizers, and compares what backward passes gave with what one of them took.

    Between `watch` and the next step it has a hook on one small parameter; otherwise only one after each step.
    """

    def __init__(
        self,
        optimizers: Sequence[torch.optim.Optimizer],
        surface: Surface,
        clock: Callable[[], float] = time.perf_counter,
    ):
        self.counts = [0] * len(optimizers)
        self.lrs: list[list[float]] = [[] for _ in optimizers]  # of the groups, at the last step
        self.found: dict[str, Any] | None = None  # what a watched step gave
        self.seconds = 0.0  # what comparing took
        self._optimizers, self._clock = list(optimizers), clock
        self._smallest = [_smallest(optimizer, surface) for optimizer in optimizers]
        self._named, self._names, self._weights = _matrices(surface), surface.names, surface.weights
        self._watched: int | None = None
        self._backward: Any = None
        self._sum: torch.Tensor | None = None
        self._before: torch.Tensor | None = None
        self._passes = 0
        self._waiting: list[weakref.ref[Steps]] = []  # itself while it waits for a step
        self._handles = [self._hooked(i, optimizer) for i, optimizer in enumerate(optimizers)]

    def _hooked(self, i: int, optimizer: torch.optim.Optimizer) -> Any:
        counts, lrs, waiting = self.counts, self.lrs, self._waiting  # at every step: nothing but these

        def after(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            counts[i] += 1
            lrs[i] = [float(group["lr"]) for group in optimizer.param_groups]
            if waiting and (found := waiting[0]()) is not None:
                found._stepped(i)

        handle = optimizer.register_step_post_hook(after)
        weakref.finalize(self, handle.remove)
        return handle

    @property
    def count(self) -> int:
        """The largest count of all."""
        return max(self.counts)

    @property
    def lr(self) -> float:
        """The largest lr of all at their last steps; 0 before them."""
        lrs = self.lrs[0] if len(self.lrs) == 1 else [lr for own in self.lrs for lr in own]
        return lrs[0] if len(lrs) == 1 else max(lrs, default=0.0)

    @property
    def watching(self) -> bool:
        """Whether a comparison is under way, or its result has not been taken."""
        return self._backward is not None or self.found is not None

    @property
    def idle(self) -> int:
        """The number, from 1 on, of an optimizer that has made no step while others have made ten; 0 if none."""
        if len(self.counts) == 1:
            return 0
        return next((i for i, count in enumerate(self.counts, 1) if not count and self.count >= _IDLE), 0)

    def watch(self) -> None:
        """Compares the gradients of the next step of the optimizer that has made the most."""
        if self._backward is not None:
            return
        active = max(range(len(self.counts)), key=self.counts.__getitem__)
        smallest = self._smallest[active]
        if smallest is None:
            return
        slope = smallest.grad
        self._before = None if slope is None or slope.layout != torch.strided else slope.detach().clone()
        self._sum, self._passes, self._watched = None, 0, active
        own = weakref.ref(self)

        def backward(slope: torch.Tensor) -> None:
            if (found := own()) is not None:
                part = slope.detach().clone()
                found._sum = part if found._sum is None else found._sum + part
                found._passes += 1

        self._backward = smallest.register_hook(backward)  # type: ignore[no-untyped-call]
        self._waiting.append(own)

    def close(self) -> None:
        """Removes its hooks."""
        for handle in self._handles:
            handle.remove()
        self._unwatch()

    def _unwatch(self) -> None:
        if self._backward is not None:
            self._backward.remove()
            self._backward = None
            self._waiting.clear()

    def _stepped(self, i: int) -> None:
        if i == self._watched and self._passes:
            began = self._clock()
            self._compare(self._smallest[i])
            self.seconds += self._clock() - began

    def _compare(self, smallest: torch.Tensor | None) -> None:
        self._unwatch()
        taken = None if smallest is None else smallest.grad
        groups = [group for optimizer in self._optimizers for group in optimizer.param_groups]
        moved = {id(weight) for group in groups for weight in group["params"]}
        named = [(name, weight) for name, weight in self._named if id(weight) in moved]
        self.found = {"passes": self._passes, **_dead(named, self._weights)}
        both = zip(self._names, self._weights, strict=True)
        if left_out := [name.removeprefix("model.") for name, weight in both if id(weight) not in moved]:
            self.found |= {"left_out": len(left_out), "left_out_name": left_out[0]}
        if taken is not None and self._sum is not None and taken.layout == torch.strided:
            self.found |= _compared(taken.detach(), self._sum, self._before)
        decays = [float(group.get("weight_decay") or 0.0) for group in groups]
        if any(decays):
            self.found["weight_decay"] = max(decays)
        self._sum = self._before = None


def _smallest(optimizer: torch.optim.Optimizer, surface: Surface) -> torch.Tensor | None:
    """The smallest parameter that it moves."""
    own = {id(weight) for group in optimizer.param_groups for weight in group["params"]}
    return min((w for w in surface.weights if id(w) in own), key=lambda weight: weight.numel(), default=None)


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


def _dead(named: list[tuple[str, torch.Tensor]], weights: Sequence[torch.Tensor]) -> dict[str, Any]:
    """The largest share of a layer's units whose gradient is exactly 0; none where no parameter has a gradient."""
    known = [(name, weight.grad) for name, weight in named if weight.grad is not None]
    known = [(name, slope.detach()) for name, slope in known if slope.layout == torch.strided]
    if not known:
        return {}
    shares = [(slope.flatten(1) == 0).all(1).double().mean().to(known[0][1].device) for _, slope in known]
    values = torch.stack(shares).tolist()  # one transfer
    if min(values) == 1 and not any(weight.grad is not None and bool(weight.grad.any()) for weight in weights):
        return {"dead": 0.0, "dead_layer": known[0][0]}
    share, place = max((value, -i) for i, value in enumerate(values))  # the first of them
    return {"dead": share, "dead_layer": known[-place][0]}


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
