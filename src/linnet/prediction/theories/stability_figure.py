"""The bifurcation diagram of a prediction of stability."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from linnet import maps
from linnet.prediction.numbers import plural
from linnet.prediction.prediction import Comparison, Curve, Panel, Prediction
from linnet.prediction.theories.momentum_modes import momentum_orbits
from linnet.theory import stability as theory

_DRAWN = 6  # modes
_KEEP, _SKIP = 96, 4000


class Diagram(NamedTuple):
    """Points of the orbit of the first modes at many learning rates, NaN where they diverge."""

    lr: Float[np.ndarray, " rates"]
    values: Float[np.ndarray, "rates modes points"]


def diagram(prediction: Prediction) -> Diagram:
    """Orbits of balanced modes, from below the edge of stability to beyond this learning rate or divergence."""
    modes, lr = prediction.data["aligned"], prediction.lr
    first, depth, s = prediction.modes[0].thresholds, modes.depth, modes.s[:_DRAWN]
    edge = first.oscillates
    end = max(1.25 * edge, 1.08 * lr)
    if first.leaves is not None:
        end = min(max(end, first.leaves), 1.02 * first.diverges)
    rates = np.linspace(min(0.9 * edge, 0.95 * lr if lr < edge else edge), end, 900)
    if prediction.optimizer.acts_on_weights:
        rest = np.array([mode.rest or mode.value for mode in prediction.modes[: len(s)]])
        layers = np.broadcast_to(0.9 * rest ** (1 / depth), (2, len(rates), len(s)))
        own = prediction.optimizer.coefficients
        orbits = momentum_orbits(
            layers, s, depth, rates[:, None], own, s, scale=modes.scale, least=0, most=_SKIP, keep=_KEEP
        )
        values = np.moveaxis(orbits.late, 0, -1)
        values[orbits.diverged >= 0] = math.nan
        return Diagram(rates, values)
    kappas = (modes.scale * rates[:, None] * theory.curvature(s, depth)).ravel()
    found = maps.orbits(maps.balanced(depth), 0.9, kappas, skip=_SKIP, keep=_KEEP)
    values = np.asarray(found.values) ** depth
    values[np.asarray(found.escaped) >= 0] = math.nan
    return Diagram(rates, values.reshape(len(rates), len(s), -1) * s[:, None])


def panels(prediction: Prediction, comparison: Comparison | None) -> tuple[Panel]:
    """Where every mode goes, by learning rate, with this one, the thresholds, and the run marked."""
    rates, values = diagram(prediction)
    lr, first, depth = prediction.lr, prediction.modes[0].thresholds, prediction.depth
    inside, curves, colors = rates[0] <= lr <= rates[-1], [], ("signal", "C0", "C2", "C4", "C8", "C9")
    for i in range(values.shape[1]):
        points = np.repeat(rates, values.shape[2]), values[:, i].ravel()
        curves.append(Curve("", *points, "dots", color=colors[i], labeled=False))
        name = f"mode {i + 1}, target {prediction.modes[i].value:g}"
        curves.append(Curve(name, np.full(1, math.nan), np.full(1, math.nan), "points", color=colors[i]))
    marks = {"period 2": first.oscillates, "period 4": first.doubles, "chaos": first.chaos}
    shown = {name: x for name, x in marks.items() if x is not None and rates[0] < x < rates[-1]}
    if shown:
        places = np.array(list(shown.values()))
        curves.append(Curve("", places, places, "vertical", color="noise", labeled=False))
        height = np.full(len(shown), np.nanmax(values, initial=prediction.modes[0].value))
        curves.append(Curve("", places, height, "labels", color="noise", text=tuple(shown), labeled=False))
    mixing = math.nan if prediction.cross is None else prediction.cross.orbit_lr
    if rates[0] < mixing < rates[-1]:
        name = "modes 1 and 2 mix, out of rounding"
        curves.append(Curve(name, np.array([mixing]), np.zeros(1), "vertical", color="test"))
    if inside:
        curves.append(Curve(f"lr = {lr:.4g}", np.array([lr]), np.zeros(1), "vertical", color="theory"))
        if comparison is not None and comparison.status != "diverged":
            measured = comparison.modes[: values.shape[1]]
            ends = np.array([[mode.low, mode.high] for mode in measured]).ravel()
            name = "exact run, its last steps"
            curves.append(Curve(name, np.full(len(ends), lr), ends, "diamonds", color="theory"))
    flat = depth == 1 or not np.isfinite(values).any()
    how = prediction.optimizer.description
    return (
        Panel(
            tuple(curves),
            f"{plural(depth, 'layer')}, balanced modes" + (f", {how}" if how else ""),
            f"learning rate, loss {prediction.normalization}" + ("" if inside else f"  (lr = {lr:.4g} lies beyond)"),
            r"modes $u_i^T A\, v_i$",
            xlim=(float(rates[0]), float(rates[-1])),
            ylim=(0.0, 1.5 * prediction.modes[0].value) if flat else None,
        ),
    )
