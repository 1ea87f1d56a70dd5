"""PyTorch's initializers by name, as the standard deviations of Gaussian layers."""

import math
from itertools import pairwise
from typing import Literal, get_args

from linnet._check import InputError

Initializer = Literal["kaiming_uniform", "kaiming_normal", "xavier_uniform", "xavier_normal", "torch_linear", "lora"]
INITIALIZERS: tuple[str, ...] = get_args(Initializer)


def deviations(name: str, sizes: tuple[int, ...]) -> list[float]:
    """The standard deviation of each layer's entries, from `torch.nn.init` with its defaults.

    `sizes` are the neurons from inputs to outputs. Uniform entries on [-b, b] have variance b^2/3: kaiming (gain
    sqrt(2), fan_in) has 2/fan_in, uniform or normal; xavier 2/(fan_in + fan_out). `torch_linear` is what `nn.Linear`
    does, kaiming_uniform with a = sqrt(5), whose gain is sqrt(2/(1 + a^2)): 1/(3 fan_in). `lora` is that with a second
    factor of zeros. At large width nothing but the variance enters: W_1^T W_1 and W_2 W_2^T are sums over neurons.
    """
    if name == "lora" and len(sizes) != 3:
        raise InputError(f"init.kind = 'lora' is not allowed with depth {len(sizes) - 1}: an adapter has two factors.")
    if name.startswith("kaiming"):
        return [math.sqrt(2 / fan_in) for fan_in in sizes[:-1]]
    if name.startswith("xavier"):
        return [math.sqrt(2 / (fan_in + fan_out)) for fan_in, fan_out in pairwise(sizes)]
    linear = [math.sqrt(1 / (3 * fan_in)) for fan_in in sizes[:-1]]
    return [linear[0], 0.0] if name == "lora" else linear
