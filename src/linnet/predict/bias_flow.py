"""The flow from I_gamma on data that no closed form knows, integrated."""

import math

import numpy as np
from jaxtyping import Float

from linnet.predict.answer import When
from linnet.predict.frame import Frame
from linnet.predict.network.chain import Chain
from linnet.predict.network.modes import modes_of
from linnet.predict.network.path import Path, feasible, flowed
from linnet.predict.network.plan import Plan, begun

_ERROR = 1e-4  # of a time that is read off the integrated flow; its steps are accurate to 1e-8


def integrated(frame: Frame, gamma: float) -> Path | None:
    """The way of W_1 = sqrt(2 gamma) I, W_2 = 0 in the frame of the samples; None where it would cost too much."""
    rank = frame.scales.size
    plan = Plan("one-zero", 2, (rank,), (math.sqrt(2 * gamma),) * 2)
    u, s, vt = np.linalg.svd(frame.limit, full_matrices=False)
    kept = int(np.sum(s > 1e-12 * s[0]))
    state = begun(plan, 0, frame, u[:, :kept], vt[:kept])
    modes = modes_of(frame, state, u[:, :kept], s[:kept], vt[:kept].T)
    chain = Chain(frame, [np.asarray(w) for w in state.layers], plan.hidden)
    if not feasible(chain):
        return None
    way = flowed(chain, modes)
    return Path(modes, way, 1.0) if way.arrived else None


def moment(time: float, least: float | None, most: float) -> When:
    """A time that was read off, between bounds that are certain."""
    return When(time, error=_ERROR, not_before=least, not_after=most)


def at(path: Path, times: Float[np.ndarray, " records"]) -> Float[np.ndarray, "records modes"]:
    """The modes at these times."""
    clock, modes = path.way.steps, path.way.seen[:, : path.modes.value.size]
    return np.stack([np.interp(times, clock, mode) for mode in modes.T], axis=1)
