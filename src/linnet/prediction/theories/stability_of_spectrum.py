"""`stability` for a network whose modes are those of a target with given singular values."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from linnet import _check
from linnet.init import identity, one_zero
from linnet.optim import SGD, Online
from linnet.prediction import validation
from linnet.prediction.prediction import Prediction, Quantity
from linnet.prediction.theories.aligned_modes import small_alpha
from linnet.prediction.theories.stability import chosen_note, stability, suggested_lr
from linnet.prediction.theories.stability_run import with_random_frames
from linnet.problems import factorization


def stability_of_spectrum(
    spectrum: Sequence[float],
    depth: int,
    *,
    lr: float | None = None,
    init: str = "one-zero",
    alpha: float | None = None,
    d: int | None = None,
    seed: int = 0,
    half: bool = True,
    batch_size: int | None = None,
    **optimizer: Any,
) -> Prediction:
    """The prediction of `stability` for a square target with these positive singular values; zeros are left out.

    Args:
        spectrum: the singular values, in any order.
        depth: layers of the network, 1 to 100.
        lr: learning rate; None is one between the edge of stability and what comes next (`suggested_lr`).
        init: "one-zero" (layers alpha I, the last 0), "orthogonal" (alpha times rotations, the last 0), or "balanced"
            (alpha I in all layers, for a symmetric target).
        alpha: scale of the initialization, below the smallest singular value; None is a small one.
        d: dimension of the matrices that `measure()` trains, at most 1000; None is the number of modes.
        seed: of the singular vectors and batches of `measure()`.
        half: loss 1/2 |A - A*|^2, or |A - A*|^2.
        batch_size: fresh Gaussian samples of a step; None trains on the loss itself.
        **optimizer: momentum, weight decay, and so on, as of `SGD`.

    """
    s = validation.spectrum(spectrum)
    depth = _check.integer("depth", depth, least=1, most=100)
    _check.choice("init", init, ("one-zero", "balanced", "orthogonal"))
    size = _check.integer("d", len(s) if d is None else d, least=len(s), most=1000, reason="the modes")
    seed = _check.seed(seed)
    problem = factorization(np.pad(s, (0, size - len(s))), half=half)
    scale = small_alpha(s, depth) if alpha is None else _check.real("alpha", alpha, above=0)
    network = (identity if init == "balanced" else one_zero)(problem, scale, depth)
    batches = None if batch_size is None else Online(_check.integer("batch_size", batch_size, least=1, most=10**9))
    notes = [] if np.array_equal(s, spectrum) else ["The spectrum was sorted, largest first."]
    if lr is None:
        chosen, reason = suggested_lr(problem, network, SGD(1.0, **optimizer))
        notes.append(chosen_note(chosen, reason))
    else:
        chosen = lr
    found = stability(problem, network, SGD(chosen, batches=batches, **optimizer)).including(
        Quantity("init", init, "initialization"),
        Quantity("alpha", scale, "  alpha"),
        Quantity("alpha_chosen", alpha is None),
        Quantity("lr_chosen", lr is None),
        Quantity("seed", seed),
        notes=notes,
    )
    return with_random_frames(found, seed)
