"""A small network with low-rank adapters, for the tests of the probe."""

import itertools
import math

import torch


class Adapted(torch.nn.Module):
    """A frozen linear layer beside s B A, with the names that peft gives."""

    def __init__(self, base, rank, alpha, scale):
        super().__init__()
        outputs, inputs = base.weight.shape
        self.base_layer, self.scaling = base.requires_grad_(False), {"default": scale}
        self.lora_A = torch.nn.ModuleDict({"default": torch.nn.Linear(inputs, rank, bias=False)})
        self.lora_B = torch.nn.ModuleDict({"default": torch.nn.Linear(rank, outputs, bias=False)})
        for part in (self.lora_A, self.lora_B):
            weight = part["default"].weight
            weight.data = alpha * torch.randn(weight.shape)

    def forward(self, x):
        low = self.lora_B["default"](self.lora_A["default"](x))
        return self.base_layer(x) + self.scaling["default"] * low


def adapted_net(seed, alpha, dtype=torch.float32, scale=1.0):
    """A frozen random ReLU network 40-64-64-3 with adapters of rank 4, 256 Gaussian inputs, labels of another one."""
    torch.manual_seed(seed)

    def net(wrap):
        sizes = list(itertools.pairwise((40, 64, 64, 3)))
        parts = [wrap(torch.nn.Linear(a, b)) for a, b in sizes]
        for part in parts:
            base = getattr(part, "base_layer", part)
            base.weight.data = torch.randn(base.weight.shape) * math.sqrt(2 / base.weight.shape[1])
            base.bias.data = torch.zeros_like(base.bias)
        return torch.nn.Sequential(parts[0], torch.nn.ReLU(), parts[1], torch.nn.ReLU(), parts[2]).to(dtype)

    x = torch.randn(256, 40, dtype=dtype)
    y = net(lambda linear: linear)(x).detach()
    return net(lambda linear: Adapted(linear, 4, alpha, scale)), (x, y)
