"""The network itself beside the linear theory of one of its layers."""

import math

import numpy as np
from jaxtyping import Float

from linnet.motion import GradientDescent
from linnet.observe.hessian import gauss_newton_product
from linnet.predict.answer import Loss, Progress
from linnet.predict.layer import moments, over, top
from linnet.predict.layer_result import RIGHT, LayerMeasured, LayerPrediction, LayerRun
from linnet.simulation import simulate
from linnet.states import Network

_ROUNDINGS = 100  # units of rounding of the loss that count for nothing


def measured(said: LayerPrediction, progress: Progress | None) -> LayerMeasured:
    """Descent of the network itself, the layer alone and then everything."""
    states = [said.moving] if said.layer is None else [said.moving, said.network]
    runs = [_ran(said, state, i, len(states), progress) for i, state in enumerate(states)]
    return LayerMeasured(prediction=said, alone=runs[0], everything=runs[1] if len(runs) > 1 else None)


def _ran(said: LayerPrediction, state: Network, which: int, count: int, progress: Progress | None) -> LayerRun:
    heard = None if progress is None else lambda done, total: progress(which * total + done, count * total)
    run = simulate(
        said.problem,
        state,
        GradientDescent(said.lr),
        steps=said.steps,
        record=moments(said.steps),
        observe=["loss"],
        progress=heard,
    )
    loss = np.asarray(run["loss"], dtype=float)
    final = run.final
    assert isinstance(final, Network)
    error = _errors(said.curves.loss, loss, float(np.finfo(state.inputs.dtype).eps))
    wrong = np.flatnonzero(~(error <= RIGHT))
    last = wrong[0] - 1 if wrong.size else error.size - 1
    end = final if said.layer is None or which == 0 else final.alone(said.layer)
    sharp = off = math.nan
    if run.status != "diverged":
        sharp = float(top(end, said.problem, gauss_newton_product, 1)[0][0])
    if run.status != "diverged" and said.linear_outputs is not None:
        off = float(over(end.matrix - said.linear_outputs, said.linear_outputs - said.network.matrix))
    return LayerRun(
        status=run.status,
        steps=int(run.ended),
        loss=Loss(float(loss[0]), float(loss[-1])),
        output_error=off,
        error=float(error[-1]),
        right_until=int(np.asarray(run.steps)[last]),
        gauss_newton_sharpness=sharp,
        curve=loss,
    )


def _errors(
    said: Float[np.ndarray, " said"], seen: Float[np.ndarray, " seen"], rounding: float
) -> Float[np.ndarray, " both"]:
    """|C_lin - C| over the larger fall, at the records that both have."""
    both = min(said.size, seen.size)
    ours, theirs = (np.where(np.isfinite(loss[:both]), loss[:both], math.inf) for loss in (said, seen))
    ended = np.isinf(ours) | np.isinf(theirs)  # one of them has diverged
    ours, theirs = (np.where(ended, 0.0, loss) for loss in (ours, theirs))
    apart = np.abs(ours - theirs)
    fall = np.maximum(np.abs(seen[0] - theirs), np.abs(said[0] - ours))
    nothing = (apart <= _ROUNDINGS * rounding * np.abs(seen[0])) | (fall == 0)
    return np.where(ended, math.inf, np.where(nothing, 0.0, apart / np.where(nothing, 1.0, fall)))
