"""Observables of dynamics whose state is averaged over an oscillation: `optim.RodFlow` and `optim.CentralFlow`."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from linnet._check import InputError
from linnet.observe.observables import ObservationContext, context_observable


def _averages(context: ObservationContext) -> Any:
    """`optim.Averages` at this step."""
    optimizer = context.optimizer
    if optimizer is None:
        raise InputError("an oscillation depends on the optimizer and its memory: observe it in simulate.")
    found = optimizer.averages(context.problem, context.state, context.memory)
    if found is None:
        raise InputError(
            f"{type(optimizer).__name__} does not average over an oscillation: use RodFlow or CentralFlow."
        )
    return found


@context_observable()
def predicted_loss(context: ObservationContext) -> Float[Array, ""]:
    """Mean loss of descent over its oscillation around the averaged weights

    Of `optim.RodFlow` it is a prediction only where the rod follows an attracting cycle of descent: beyond period
    doubling (lr S above 2.5 for a balanced mode) and in chaos it is a number without meaning for descent.
    `linnet.prediction.edge` checks that the rod settles and that its cycle attracts, and predicts nothing elsewhere.
    """
    return _averages(context).loss


@context_observable()
def oscillation(context: ObservationContext) -> Float[Array, ""]:
    """Trace of the covariance of descent's weights around the averaged ones"""
    return _averages(context).oscillation


@context_observable()
def critical_directions(context: ObservationContext) -> Int[Array, ""]:
    """How many eigenvalues of the Hessian at the averaged weights exceed 0.95 of the stability threshold

    Where the last step began; none before the first step.
    """
    directions = _averages(context).directions
    if directions is None:
        raise InputError(f"{type(context.optimizer).__name__} computes no eigenvalues of the Hessian: use CentralFlow.")
    return jnp.asarray(directions)
