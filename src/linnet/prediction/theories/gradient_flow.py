"""What theories of gradient flow share: the optimizers they hold for, flow times as steps, and runs of either."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from linnet._check import InputError
from linnet.optim import SGD
from linnet.prediction.assumption import Assumption, NotApplicable
from linnet.prediction.prediction import Prediction, Progress, Quantity, Row, Time
from linnet.record import at, every
from linnet.simulation import simulate
from linnet.trajectory import Trajectory

STEPS = 100_000  # the longest run of gradient descent


def require(theory: str, name: str, measured: float, *, exact: float = 1e-9) -> None:
    """Raises NotApplicable with this assumption if it does not hold exactly."""
    Assumption.of(name, measured, exact=exact, rough=exact).required(theory)


def learning_rate(theory: str, optimizer: Any) -> float | None:
    """The learning rate of plain gradient descent on all samples, None for gradient flow, or for no optimizer at all.

    Raises:
        NotApplicable: for any other optimizer or flow.

    """
    if optimizer is None:
        return None
    if isinstance(optimizer, SGD):
        return descent_lr(theory, optimizer)
    from linnet.optim import GradientFlow  # loads the solvers, which a prediction of descent does not need

    plain = type(optimizer) is GradientFlow and optimizer.weight_decay is None and optimizer.lr_multipliers is None
    require(theory, "gradient flow or plain gradient descent", float(not plain))
    return None


def descent_lr(theory: str, optimizer: Any) -> float:
    """The learning rate of plain gradient descent on all samples; raises NotApplicable for any other optimizer."""
    plain = isinstance(optimizer, SGD) and not (optimizer.acts_on_weights or callable(optimizer.lr))
    plain = plain and optimizer.batches is None
    require(theory, "plain gradient descent on all samples at a constant learning rate", float(not plain))
    return constant_lr(optimizer)


def constant_lr(optimizer: SGD) -> float:
    """The learning rate of an optimizer whose learning rate is a number."""
    assert not callable(optimizer.lr)
    return float(optimizer.lr)


def in_steps(prediction: Prediction, optimizer: SGD) -> Prediction:
    """A prediction of gradient flow for gradient descent: every flow time as a step too, with an unknown error.

    Raises:
        NotApplicable: if the learning rate is not below the prediction's `largest_stable_lr`.

    """
    lr = constant_lr(optimizer)
    short = Assumption.of("steps are short (lr over the largest stable)", lr / prediction.largest_stable_lr, rough=1.0)
    if short.measured >= 1:
        raise NotApplicable(prediction.topic, short)

    def with_step(time: Time) -> Time:
        return dataclasses.replace(time, step=time.time / lr, error=time.error or None)

    quantities = [Quantity("lr", lr, "learning rate")]
    for quantity in prediction.quantities:
        value, source = _converted(quantity.value, with_step), quantity.source
        if source is not None and value is not quantity.value:
            source = dataclasses.replace(source, assumptions=(*source.assumptions, short))
        quantities.append(dataclasses.replace(quantity, value=value, source=source))
    return dataclasses.replace(prediction, quantities=tuple(quantities), optimizer=optimizer)


def _converted(value: Any, convert: Callable[[Time], Time]) -> Any:
    """The value with its times converted, also those in rows; the very same value if there are none."""
    if isinstance(value, Time):
        return convert(value)
    if isinstance(value, Row):
        parts = {name: _converted(part, convert) for name, part in value.items()}
        return value if all(part is value[name] for name, part in parts.items()) else Row(**parts)
    if isinstance(value, tuple) and any(isinstance(part, Row) for part in value):
        return tuple(_converted(part, convert) for part in value)
    return value


def run_for(
    problem: Any,
    network: Any,
    optimizer: Any,
    times: np.ndarray,
    observe: dict[str, Any],
    progress: Progress | None,
) -> Trajectory:
    """Gradient flow, or gradient descent as far as its steps allow, recorded at these flow times."""
    if not isinstance(optimizer, SGD):
        from linnet.optim import GradientFlow

        flow = GradientFlow(rtol=1e-10) if optimizer is None else optimizer
        return simulate(
            problem, network, flow, time=float(times[-1]), record=at(times), observe=observe, progress=progress
        )
    lr = constant_lr(optimizer)
    steps = math.ceil(times[-1] / lr - 1e-6)
    if steps > STEPS:
        raise InputError(
            f"the run would take {steps} steps, and {STEPS} are the most: choose a larger initialization or a larger "
            "learning rate."
        )
    points = np.unique(np.rint(times / lr).clip(0, steps))
    record = every(1) if len(points) > steps else at(points)
    return simulate(problem, network, optimizer, steps=steps, record=record, observe=observe, progress=progress)
