"""A measurement by forward passes alone: the critical step on its own batch and on others."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch

from linnet.probe.critical import Bracket, Parabola, bracket, together
from linnet.probe.health import MANY_PARTS
from linnet.probe.surface import Segment, Surface

_ROUNDING = 8  # units of rounding of a loss, below which its curvature along a step is not known
_SAME = 1e-5  # relative difference of two losses, up to which they are of the same batch


def measured(surface: Surface, segment: Segment, own: Sequence[Any], loss: float | None) -> dict[str, Any]:
    """The critical step: `own_low` and `own_high` bracket it on the step's own batches, `c_own` is that of a parabola;
    `c_other` that on `parts` of the probe's batch, with its 80 % interval; None is infinite. `stochastic_edge` is
    1/c_own, 1 where a step no longer lowers the loss of its own batch; `path_sharpness` the curvature along the step.

    Without own batches these are the probe's batch, if its loss before the step was that of the training, `loss`.
    """
    square = segment.square()
    if not square > 0:
        return {}
    with surface.isolated(twice=False):  # once for all
        return _measured(surface, segment, own, loss, square)


def _measured(
    surface: Surface, segment: Segment, own: Sequence[Any], loss: float | None, square: float
) -> dict[str, Any]:
    line: dict[str, Any] = {}
    forwards = itertools.count(1)
    parts = surface.parts(MANY_PARTS)
    others = []
    for part in parts:
        others.append(Parabola.of(*(_loss(segment, c, [part], forwards) for c in (0.0, 1.0, 2.0))))
    base = _loss(segment, 0.0, [surface.batch()], forwards)
    mine = list(own) or ([surface.batch()] if loss is not None and _close(loss, base) else [])
    same = False
    if mine:
        known: dict[float, float] = {}

        def along(c: float) -> float:
            if c not in known:
                known[c] = _loss(segment, c, mine, forwards)
            return known[c]

        line |= _own(bracket(along), Parabola.of(along(0.0), along(1.0), along(2.0)), along(0.0), square, surface)
        same = _close(along(0.0), base)
    if not same and all(map(math.isfinite, itertools.chain(*others))):
        found = together(others)
        line |= {"c_other": found.value, "c_other_low": found.low, "c_other_high": found.high, "parts": len(parts)}
    return line | {"moved": math.sqrt(square), "forwards": next(forwards) - 1}


def _own(found: Bracket, parabola: Parabola, base: float, square: float, surface: Surface) -> dict[str, Any]:
    line: dict[str, Any] = {"own_low": found.low, "own_high": found.high}
    resolved = abs(parabola.half) > _ROUNDING * torch.finfo(surface.dtype).eps * abs(base)
    if not resolved or not math.isfinite(parabola.half):
        return line
    line["path_sharpness"] = 2 * parabola.half / square
    if parabola.slope < 0:
        line["stochastic_edge"] = -parabola.half / parabola.slope
        line["c_own"] = 1 / line["stochastic_edge"] if parabola.half > 0 else math.inf
    return line


def _loss(segment: Segment, c: float, batches: Sequence[Any], forwards: Any) -> float:
    """The mean over batches, as accumulated gradients have it."""
    values = []
    for batch in batches:
        next(forwards)
        values.append(segment.loss(c, batch))
    return math.fsum(values) / len(values)


def _close(a: float, b: float) -> bool:
    return abs(a - b) <= _SAME * max(abs(a), abs(b))
