"""The largest learning rate that is stable with mini-batches, at a minimum that fits every sample."""

import numpy as np
from jaxtyping import Float

from linnet._check import InputError
from linnet.linalg import below_and_above
from linnet.optim import SGD
from linnet.prediction.assumption import Source
from linnet.prediction.reduced import ReducedRegression
from linnet.prediction.theories.network.end import End, NetworkEnd
from linnet.prediction.theories.network.objective import Objective
from linnet.theory.optimizers import largest_batch_lr

_NOT_FITTED = "no formula covers a minimum that does not fit every sample"
MOMENTS = "the problem keeps only the second moments of its samples"
_ENTRIES = 2e7  # of the derivative of A in all weights
_OPERATIONS = 1e8  # of a product with all samples' Hessians


def check_batch(batch: int | None, reduction: ReducedRegression) -> None:
    """Refuses batches where there are no samples, or fewer."""
    if batch is not None and reduction.samples is None:
        raise InputError(f"batch_size = {batch} is not allowed with a spectrum: there are no samples.")
    if batch is not None and reduction.samples is not None and batch > reduction.samples:
        raise InputError(f"batch_size = {batch} is not allowed: there are {reduction.samples} samples.")


def batch_threshold(
    objective: Objective, reduction: ReducedRegression, end: End, batch: int, optimizer: SGD, fits: bool
) -> tuple[float, Source]:
    """The learning rate below which fresh batches are stable in mean square where training on all samples ends.

    NaN where no formula covers it, with the reason in the source. The gradient of a batch is n/B times that of its part
    of the loss.
    """
    why = _unknown(objective, reduction, end, optimizer, fits)
    if why:
        return float("nan"), Source(f"unknown: {why}")
    hessians = _hessians(objective, reduction, end)
    momentum, dampening = (optimizer.coefficients[name] for name in ("momentum", "dampening"))
    lr = largest_batch_lr(hessians, batch, momentum=momentum, dampening=dampening)
    origin = f"in mean square, {batch} fresh samples of {reduction.samples} a step, at the end that all of them lead to"
    return lr, Source(origin, ("optimizers/C10",))


def _unknown(objective: Objective, reduction: ReducedRegression, end: End, optimizer: SGD, fits: bool) -> str:
    """Why no formula holds, empty where one does."""
    if not fits or optimizer.weight_decay is not None:
        return _NOT_FITTED
    if optimizer.nesterov:
        return "no formula covers Nesterov's form"
    if reduction.units is None:
        return MOMENTS
    if end.kind is not NetworkEnd.REACHED or end.weights is None:
        return "the end of training is unknown"
    directions = min(objective.limit.size, objective.initial.size)
    entries = objective.limit.size * objective.initial.size
    if entries > _ENTRIES or len(reduction.units) * directions**3 > _OPERATIONS:
        return "there are too many samples, inputs, and outputs to compute it"
    return ""


def _hessians(
    objective: Objective, reduction: ReducedRegression, end: End
) -> Float[np.ndarray, "n directions directions"]:
    """n J_i^T J_i of every sample, in the directions of the weights that change A."""
    assert reduction.units is not None
    assert end.weights is not None
    shape, size = objective.limit.shape, objective.limit.size
    below, above = below_and_above(objective.layers(end.weights), np.eye(shape[1]), np.eye(shape[0]))
    parts = [np.einsum("oa,bj->ojab", q, p).reshape(size, -1) for p, q in zip(below, above, strict=True)]
    u, s, _ = np.linalg.svd(np.concatenate(parts, axis=1), full_matrices=False)
    kept = (u * s)[:, s > 1e-12 * s[0]].reshape(*shape, -1)
    jacobians = np.einsum("oja,ij->ioa", kept, reduction.units * reduction.scales)
    return len(jacobians) * np.einsum("ioa,iob->iab", jacobians, jacobians)
