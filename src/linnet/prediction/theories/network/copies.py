"""What descent does beyond the largest stable learning rate: the network itself is followed, in several copies.

Where no minimum is stable a network may cycle, move chaotically, or diverge, and modes that each would stay bounded may
mix out of rounding and diverge together. So copies of the network whose weights differ by 1e-9 make the same steps:
what they agree on does not depend on rounding.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from linnet._update import initial_buffer, sgd_step
from linnet.optim import SGD
from linnet.prediction.theories.network.modes import HALF, NetworkModes
from linnet.prediction.theories.network.objective import Objective

COPIES = 8
_APART = 1e-9  # the differences of the copies at initialization, relative
_STEPS, _MORE = 4096, 4  # and so many times more where the saddle is left late
_LATE, LONGEST = 256, 64  # the steps that are examined, and the longest period that is found in them
_OPERATIONS = 2e10  # multiplications: one or two seconds
_OFTEN = 16  # steps between two checks of the first mode
_FEWEST = 1024  # steps that must be possible within them
_SAME, _CLOSE = 1e-9, 1e-2  # of the largest entry: equal, and settling
_DIFFER = 0.1  # of the largest weight: copies have separated
_DRIFTED = 1e-3  # the same with momentum, where oscillations last and a mode on its way is late by their differences
_LOST = 1e6  # times the size of start and end: diverged


class Copies(NamedTuple):
    """Copies of a network after `steps` steps of descent.

    - `diverged`: the step at which each diverged, -1 for those that did not.
    - `periods`: of each copy that did not: 1 at rest, 0 for none up to 64.
    - `modes`: the period of each mode of the first of these, `low` and `high` its smallest and largest value in them.
    - `apart`: the largest distance of these copies in the end over the largest entry of A.
    - `errors`: the distance of each from the predicted end, relative.
    - `separated`: the step from which the weights of copies differ by more than 0.1 of the largest: later times may
      depend on rounding. Infinite if they do not.
    - `repels`: whether the saddle 0 repels from all sides, as with an even number of layers.
    - `left`: whether the first mode came to half of its target in the first half of the steps.
    """

    steps: int
    diverged: Int[np.ndarray, " copies"]
    periods: Int[np.ndarray, " bounded"]
    modes: Int[np.ndarray, " modes"]
    low: Float[np.ndarray, " modes"]
    high: Float[np.ndarray, " modes"]
    apart: float
    errors: Float[np.ndarray, " bounded"]
    separated: float
    left: bool
    repels: bool

    @property
    def lost(self) -> int:
        """How many copies diverged."""
        return int(np.sum(self.diverged >= 0))


def follow_copies(objective: Objective, modes: NetworkModes, lr: float) -> Copies | None:
    """Eight copies of the network under descent; None where that would take more than seconds."""
    most = int(_OPERATIONS / (COPIES * objective.operations))
    if most < _FEWEST:
        return None
    found = _followed(objective, modes, lr, min(_STEPS, most))
    if not found.left and found.lost < COPIES:
        found = _followed(objective, modes, lr, min(_MORE * _STEPS, most))
    return found


def copies_lost(
    objective: Objective, modes: NetworkModes, lr: float, optimizer: SGD, steps: int
) -> tuple[int, float] | None:
    """How many of eight copies diverge under SGD within so many steps, and the step from which copies have separated.

    None where that would take more than seconds.
    """
    if COPIES * objective.operations * steps > _OPERATIONS:
        return None
    lost, separated = 0, np.inf
    for _, weights, since in _stepped(objective, modes, lr, optimizer, steps, _DRIFTED):
        lost, separated = int(np.sum(np.isnan(weights[:, 0]))), since
    return lost, separated


def _stepped(
    objective: Objective, modes: NetworkModes, lr: float, optimizer: SGD, steps: int, apart: float
) -> Iterator[tuple[int, Float[np.ndarray, "copies weights"], float]]:
    """Steps of the copies, until all have diverged: their number, the weights, NaN in copies that have diverged, and
    the step from which weights differ by `apart` of the largest, infinite before.
    """
    how, weights, separated = optimizer.coefficients, _copies(objective), np.inf
    buffer = initial_buffer(weights, objective.loss_gradient(weights), **how)
    most = _LOST * max(float(np.max(np.abs(objective.initial))), float(np.max(modes.value)))
    for step in range(1, steps + 1):
        with np.errstate(over="ignore", invalid="ignore"):
            weights, buffer = sgd_step(weights, buffer, objective.loss_gradient(weights), lr, **how)
            weights[~(np.max(np.abs(weights), axis=1) <= most)] = np.nan
            if step % _OFTEN == 0 and separated == np.inf:
                spread = np.max(np.abs(weights - weights[0]))  # NaN where one has diverged: they have separated
                separated = separated if spread <= apart * np.max(np.abs(weights)) else float(step - _OFTEN)
        yield step, weights, separated
        if np.all(np.isnan(weights[:, 0])):
            break


def _copies(objective: Objective) -> Float[np.ndarray, "copies weights"]:
    sizes = [float(np.max(np.abs(w))) for w in objective.layers(objective.initial) if np.any(w)]
    noise = np.random.default_rng(0).normal(size=(COPIES, objective.initial.size))
    return objective.initial + _APART * min(sizes) * noise


def _followed(objective: Objective, modes: NetworkModes, lr: float, steps: int) -> Copies:
    diverged, left, late, separated, step = np.full(COPIES, -1), np.zeros(COPIES, bool), [], np.inf, 0
    for step, weights, since in _stepped(objective, modes, lr, SGD(lr), steps, _DIFFER):
        diverged = np.where((diverged < 0) & np.isnan(weights[:, 0]), step, diverged)
        if np.all(diverged >= 0):
            break
        separated = since
        with np.errstate(over="ignore", invalid="ignore"):
            if step % _OFTEN == 0 and step <= steps // 2 and not left.all():
                first = modes.left[:, 0] @ objective.matrix(weights) @ modes.right[:, 0]
                left |= ~(np.abs(first) < HALF * modes.value[0])
            if step > steps - _LATE:
                late.append(objective.matrix(weights))
    bounded, repels = diverged < 0, len(objective.shapes) % 2 == 0
    if not bounded.any():
        no_period, none, no_copies = np.zeros(modes.value.size, int), np.full(modes.value.size, np.nan), np.zeros(0)
        known = step, diverged, no_copies.astype(int), no_period, none, none, np.nan, no_copies
        return Copies(*known, separated=min(separated, step), left=True, repels=repels)
    matrices = np.array(late)[:, bounded]
    size = max(float(np.max(np.abs(matrices))), float(np.max(modes.value)))  # what stays near a saddle does not move
    along = np.sum((modes.left.T @ matrices[:, 0]) * modes.right.T, axis=-1)
    return Copies(
        steps,
        diverged,
        np.array([_period(one.reshape(len(one), -1), size) for one in np.swapaxes(matrices, 0, 1)]),
        np.array([_period(one[:, None], size) for one in along.T]),
        np.min(along, axis=0),
        np.max(along, axis=0),
        float(np.max(np.abs(matrices[-1] - matrices[-1, :1]))) / size,
        np.max(np.abs(matrices[-1] - modes.matrix), axis=(1, 2)) / float(np.max(modes.value)),
        separated,
        bool(left.all()),
        repels,
    )


def _period(points: Float[np.ndarray, "points entries"], size: float) -> int:
    """The smallest period with which the points repeat, or come closer to it with time; 0 if there is none."""
    half = len(points) // 2
    for p in range(1, LONGEST + 1):
        away = np.max(np.abs(points[p:] - points[:-p]), axis=1)
        early, last = float(np.max(away[: half - p])), float(np.max(away[half:]))
        if max(early, last) <= _SAME * size or (last <= _CLOSE * size and last <= early / 2):
            return p
    return 0
