"""One update of SGD as formulas, for numbers and arrays of NumPy or JAX (`optimizers/C1` to C4)."""

from typing import Any

import numpy as np


def accumulate(buffer: Any, gradient: Any, momentum: Any, dampening: Any) -> Any:
    """b v + (1 - t) g: the next buffer of a step, and Nesterov's direction where v is that next buffer already."""
    return momentum * buffer + (1 - dampening) * gradient


def sgd_step(
    theta: Any,
    buffer: Any,
    gradient: Any,
    lr: Any,
    *,
    momentum: float = 0.0,
    dampening: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    decoupled: bool = False,
) -> tuple[Any, Any]:
    """Weights and momentum buffer after one step, from the gradient without decay; numbers or arrays."""
    shrunk = theta
    if decoupled:
        shrunk = (1 - lr * weight_decay) * theta
    else:
        gradient = gradient + weight_decay * theta
    buffer = accumulate(buffer, gradient, momentum, dampening)
    along = accumulate(buffer, gradient, momentum, dampening) if nesterov else buffer
    return shrunk - lr * along, buffer


def initial_buffer(
    theta: Any,
    gradient: Any,
    *,
    momentum: float = 0.0,
    dampening: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    decoupled: bool = False,
) -> Any:
    """The buffer before the first `sgd_step`, such that this step has v = g whatever the dampening, as in PyTorch."""
    if not dampening or not momentum:
        return np.zeros_like(theta)
    decayed = gradient if decoupled else gradient + weight_decay * theta
    return dampening / momentum * decayed


def effective_decay(momentum: Any, dampening: Any, weight_decay: Any, *, decoupled: bool) -> Any:
    """The mu of the cost whose minimum training with this decay finds."""
    if decoupled:
        return weight_decay * (1 - momentum) / (1 - dampening)
    return weight_decay + 0 * momentum * dampening


def curvature_factor(momentum: Any, dampening: Any, *, nesterov: bool) -> Any:
    """n: a curvature h counts as n h beside the limit 2 (1 + b) / lr."""
    return (1 + 2 * momentum if nesterov else 1.0) * (1 - dampening)


def alternating_gain(momentum: Any, dampening: Any, *, nesterov: bool) -> Any:
    """The step over lr for gradients +1, -1, +1, ...: n / (1 + b), so that 2 / (lr gain) is the threshold."""
    return curvature_factor(momentum, dampening, nesterov=nesterov) / (1 + momentum)


def stability_threshold(
    lr: Any, momentum: Any, dampening: Any, weight_decay: Any, *, nesterov: bool, decoupled: bool
) -> Any:
    """The curvature of the cost alone below which a step is stable; numbers or arrays."""
    n = curvature_factor(momentum, dampening, nesterov=nesterov)
    if decoupled:
        return (1 + momentum) * (2 / lr - weight_decay) / n
    return 2 * (1 + momentum) / (n * lr) - weight_decay
