"""Which steps are stable where a step sees a batch of the samples: at a minimum that fits every one of them."""

import numpy as np
from jaxtyping import Float

from linnet._check import InputError
from linnet.linalg import below_and_above
from linnet.predict.answer import Source
from linnet.predict.frame import Frame
from linnet.predict.network.chain import Chain
from linnet.predict.network.end import End, NetworkEnd
from linnet.predict.optimiser import NOT_FITTED, Optimiser
from linnet.theory.optimisers import largest_batch_lr

MOMENTS = "the problem keeps only the second moments of its samples"
_ENTRIES = 2e7  # of the derivative of A in all weights
_OPERATIONS = 1e8  # of a product with all samples' Hessians


def checked(batch: int | None, frame: Frame) -> None:
    """Refuses a batch of what is not there."""
    if batch is not None and frame.samples is None:
        raise InputError(f"training.batch = {batch} is not allowed with a spectrum: there are no samples.")
    if batch is not None and frame.samples is not None and batch > frame.samples:
        raise InputError(f"training.batch = {batch} is not allowed: there are {frame.samples} samples.")


def bearable(
    chain: Chain, frame: Frame, end: End, batch: int, optimiser: Optimiser, fits: bool
) -> tuple[float, Source]:
    """The step below which fresh batches are stable in mean square where training on all samples ends, and its source.

    NaN where no formula covers it. The gradient of a batch is n/B times that of its part of the loss.
    """
    figure = "step sizes with batches"
    why = _unknown(chain, frame, end, optimiser, fits)
    if why:
        return float("nan"), Source(figure, f"unknown: {why}")
    hessians = _hessians(chain, frame, end)
    lr = largest_batch_lr(hessians, batch, beta=optimiser.beta, average=optimiser.averaged)
    words = f"in mean square, {batch} fresh samples of {frame.samples} a step, at the end that all of them lead to"
    return lr, Source(figure, words, ("optimisers/C10",))


def _unknown(chain: Chain, frame: Frame, end: End, optimiser: Optimiser, fits: bool) -> str:
    """Why no formula says it, nothing where one does."""
    if not fits:
        return NOT_FITTED
    if optimiser.beyond_batches:
        return optimiser.beyond_batches
    if frame.units is None:
        return MOMENTS
    if end.kind is not NetworkEnd.REACHED or end.weights is None:
        return "nobody knows where this start ends"
    directions = min(chain.limit.size, chain.start.size)
    if chain.limit.size * chain.start.size > _ENTRIES or len(frame.units) * directions**3 > _OPERATIONS:
        return "so many samples, inputs and outputs cost too much"
    return ""


def _hessians(chain: Chain, frame: Frame, end: End) -> Float[np.ndarray, "n directions directions"]:
    """n J_i^T J_i of every sample, in the directions of the weights that change A."""
    assert frame.units is not None
    assert end.weights is not None
    layers = chain.layers(end.weights)
    below, above = below_and_above(layers, np.eye(chain.limit.shape[1]), np.eye(chain.limit.shape[0]))
    parts = [np.einsum("oa,bj->ojab", q, p).reshape(chain.limit.size, -1) for p, q in zip(below, above, strict=True)]
    u, s, _ = np.linalg.svd(np.concatenate(parts, axis=1), full_matrices=False)
    kept = (u * s)[:, s > 1e-12 * s[0]].reshape(*chain.limit.shape, -1)
    jacobians = np.einsum("oja,ij->ioa", kept, frame.units * frame.scales)
    return len(jacobians) * np.einsum("ioa,iob->iab", jacobians, jacobians)
