"""The learning rates of SGD at a minimum of known sharpness, weight decay included in it."""

import math
from typing import Any

from linnet.optim import SGD
from linnet.theory import optimizers as theory


def is_plain(optimizer: SGD) -> bool:
    """Whether it is gradient descent without momentum and weight decay."""
    return optimizer.momentum is None and optimizer.weight_decay is None


def largest_lr(optimizer: SGD, sharpness: float) -> float:
    """The largest stable learning rate; NaN where the sharpness is unknown."""
    if math.isnan(sharpness):
        return math.nan
    if is_plain(optimizer):
        return 2 / sharpness if sharpness > 0 else math.inf
    return float(theory.largest_stable_lr(_cost_alone(optimizer, sharpness), **optimizer.coefficients))


def largest_monotone_lr(optimizer: SGD, sharpness: float) -> float:
    """The learning rate up to which no direction oscillates."""
    return float(theory.largest_monotone_lr(_cost_alone(optimizer, sharpness), **optimizer.coefficients))


def flow_error(optimizer: SGD, lr: float, sharpness: float) -> float:
    """The relative error of the modified equation in a direction of this curvature."""
    return theory.modified_equation_error(lr, _cost_alone(optimizer, sharpness), **optimizer.coefficients)


def with_lr(optimizer: SGD, lr: float, batches: Any = None) -> SGD:
    """The same optimizer with this learning rate and these batches."""
    return SGD(lr, **optimizer.coefficients, batches=batches)


def _cost_alone(optimizer: SGD, sharpness: float) -> float:
    return max(sharpness - float(optimizer.effective_decay), 0.0)
