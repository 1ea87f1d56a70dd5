"""The period of an orbit."""

import numpy as np
from jaxtyping import Int

from linnet import _check
from linnet._check import InputError
from linnet.maps.orbit import Orbits

APERIODIC, DIVERGED = 0, -1


def period(run: Orbits, *, most: int = 64, tol: float = 1e-9) -> Int[np.ndarray, " batch"]:
    """The smallest p <= `most` with |x_{k+p} - x_k| <= tol max|x| for all recorded k; 0 if none, -1 if diverged.

    Near a bifurcation orbits converge slowly: skip enough steps (a flip at distance e needs more than 20/e), or ask
    `cycle`, which does not iterate to convergence.

    `run` is what `orbits` returned; the result has a whole number for each of its orbits.
    """
    most = _check.integer("most", most, least=1)
    tol = _check.real("tol", tol, least=0)
    values = np.asarray(run.values)
    if values.shape[1] < 2 * most:
        raise InputError(f"keep = {values.shape[1]} is not enough for periods up to {most}: keep at least {2 * most}.")
    values = values.reshape(*values.shape[:2], -1)
    allowed = tol * np.max(np.abs(values), axis=(1, 2))
    out = np.full(values.shape[0], APERIODIC)
    open_ = np.arange(values.shape[0])
    for p in range(1, most + 1):
        back = np.max(np.abs(values[open_, p:] - values[open_, :-p]), axis=(1, 2)) <= allowed[open_]
        out[open_[back]] = p
        open_ = open_[~back]
        if not open_.size:
            break
    return np.where(np.asarray(run.escaped) >= 0, DIVERGED, out)


def label(periods: Int[np.ndarray, " batch"]) -> list[str]:
    """Words for periods: "period 2", "aperiodic", "diverged".

    >>> import numpy as np
    >>> from linnet import maps
    >>> maps.label(np.array([1, 4, 0, -1]))
    ['period 1', 'period 4', 'aperiodic', 'diverged']
    """
    names = {APERIODIC: "aperiodic", DIVERGED: "diverged"}
    return [names.get(int(p), f"period {int(p)}") for p in np.ravel(periods)]
