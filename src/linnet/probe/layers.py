"""The matrices of a model: its layers, and the factors that stand for one matrix together."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from linnet.probe.surface import Surface

_VALUES = 3  # singular values that are kept of each


class Layer(NamedTuple):
    """A product of matrices that train, the first one first; one of them is a layer of its own.

    Two factors are those of an adapter (peft's `lora_A` and `lora_B`) or of neighbouring linear layers without anything
    between them.
    """

    name: str
    factors: tuple[torch.Tensor, ...]
    scale: float = 1.0

    def values(self) -> torch.Tensor:
        """The largest singular values of the product, by thin factors where there are two."""
        with torch.no_grad():
            parts = [factor.detach().double() for factor in self.factors]
            if len(parts) == 2:  # B A = Q_b (R_b R_a^T) Q_a^T
                parts = [torch.linalg.qr(parts[1])[1] @ torch.linalg.qr(parts[0].T)[1].T]
            return self.scale * torch.linalg.svdvals(parts[0])

    def imbalance(self) -> torch.Tensor | None:
        """W_1 W_1^T - W_2^T W_2 of two factors: a constant of gradient flow."""
        if len(self.factors) != 2:
            return None
        with torch.no_grad():
            first, second = (factor.detach().double() for factor in self.factors)
            return first @ first.T - second.T @ second

    def seen(self, begin: torch.Tensor | None) -> dict[str, Any]:
        """Top singular values; for two factors the imbalance and how far it has drifted, in units of their squares."""
        values = self.values()[:_VALUES].tolist()
        out: dict[str, Any] = {"singular_values": values + [0.0] * (_VALUES - len(values))}
        now = self.imbalance()
        if now is None or begin is None:
            return {**out, "imbalance": None, "drift": None}
        with torch.no_grad():
            size = sum(float((factor.detach().double() ** 2).sum()) for factor in self.factors)
        unit = size if size > 0 else 1.0
        return {**out, "imbalance": float(now.norm()) / unit, "drift": float((now - begin).norm()) / unit}


def layers_of(surface: Surface) -> list[Layer]:
    """The layers of a model: factorised ones first found, then all other matrices that train."""
    model = surface.model
    training = {id(weight) for weight in surface.weights}
    pairs = [*_adapters(model), *_chains(model)]
    pairs = [pair for pair in pairs if all(id(factor) in training for factor in pair.factors)]
    used = {id(factor) for pair in pairs for factor in pair.factors}
    alone = [
        Layer(name, (weight,))
        for name, weight in model.named_parameters()
        if weight.ndim == 2 and id(weight) in training and id(weight) not in used
    ]
    return pairs + alone


def _adapters(model: torch.nn.Module) -> Iterator[Layer]:
    """Low-rank adapters as peft keeps them: two dictionaries of linear layers, and a factor."""
    for name, module in model.named_modules():
        first, second = getattr(module, "lora_A", None), getattr(module, "lora_B", None)
        if not isinstance(first, torch.nn.ModuleDict) or not isinstance(second, torch.nn.ModuleDict):
            continue
        for kind in first:
            if kind in second:
                factor = getattr(module, "scaling", {}).get(kind, 1.0)
                label = name if len(first) == 1 else f"{name} ({kind})"
                below, above = first[kind].weight, second[kind].weight
                if isinstance(below, torch.Tensor) and isinstance(above, torch.Tensor):
                    yield Layer(label, (below, above), float(factor))


def _chains(model: torch.nn.Module) -> Iterator[Layer]:
    """Two linear layers next to each other in a sequence: their product is what matters."""
    for name, module in model.named_modules():
        if not isinstance(module, torch.nn.Sequential):
            continue
        inner = list(module.named_children())
        i = 0
        while i < len(inner) - 1:
            (below, first), (above, second) = inner[i], inner[i + 1]
            if isinstance(first, torch.nn.Linear) and isinstance(second, torch.nn.Linear):
                # not by .weight, which a parametrisation may compute, and change its buffers by it
                matrices = first._parameters.get("weight"), second._parameters.get("weight")
                if matrices[0] is not None and matrices[1] is not None:
                    yield Layer(f"{name}.{below} and {above}".lstrip("."), (matrices[0], matrices[1]))
                    i += 1
            i += 1
