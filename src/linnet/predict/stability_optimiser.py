"""What a step size does to a deep factorisation with momentum or decay, mode by mode."""

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from linnet import dynamics
from linnet.predict.answer import Source
from linnet.predict.optimiser import Followed, Optimiser, follow
from linnet.predict.stability_result import Diagram, StabilityMode, StabilityPrediction, Thresholds
from linnet.theory import mode_fate, optimisers
from linnet.theory import stability as edge
from linnet.theory.mode_fate import KEEP, Fate

_MOST_STEPS, _AT_LEAST = 100_000, 10_000


class Minimum(NamedTuple):
    """Where each mode rests with this optimiser, how sharp that is along it, and which steps it and all can bear."""

    values: Float[np.ndarray, " modes"]
    curvatures: Float[np.ndarray, " modes"]
    largest: Float[np.ndarray, " modes"]
    largest_of_all: float


def minimum(s: np.ndarray, depth: int, d: int, unit: float, optimiser: Optimiser) -> Minimum:
    """The minimum with decay: of a mode that can rest above 0 there, since small ones are lost only by their start."""
    how: Any = {"decay": optimiser.mu, "depth": depth, "scale": unit, "local": True}
    values = np.asarray(optimisers.decayed_value(s, **how))
    curvatures = np.array([optimisers.decayed_sharpness([value], **how) for value in s])
    padded = np.append(s, np.zeros(min(d - len(s), 2)))
    whole = optimisers.decayed_sharpness(padded, **how)
    return Minimum(values, curvatures, optimiser.largest(curvatures), float(optimiser.largest(whole)))


def fields(
    s: np.ndarray, depth: int, alpha: float, start: str, unit: float, lr: float, optimiser: Optimiser, at: Minimum
) -> dict[str, Any]:
    """What differs from plain descent in an answer."""
    speed = unit * lr * optimiser.speed
    escape = mode_fate.escape_steps(s, alpha, depth, start, speed)
    steps = int(min(3 * np.ceil(escape.max()) + _AT_LEAST, _MOST_STEPS))
    begin = np.stack([np.full(len(s), alpha), np.full(len(s), alpha if start == "balanced" else 0.0)])
    seen = follow(
        begin, s, depth, lr, optimiser, at.values, scale=unit, least=steps - _AT_LEAST, most=steps, keep=2 * KEEP
    )
    largest = np.max(np.abs(seen.ends), axis=0)
    # where the target pulls less than the decay: layers that are small enough shrink for ever
    sinks = (unit * s * largest ** (depth - 2) < optimiser.mu) | (np.max(np.abs(seen.late), axis=0) == 0)
    late = [
        # without decay a small start does leave, and steps that do not overshoot follow the flow
        float(x) if not optimiser.decay and 2 * x > steps and lr < optimiser.short(c) else None
        for x, c in zip(escape, at.curvatures, strict=True)
    ]
    modes = tuple(_mode(i, float(value), lr, seen, at, slow=late[i], sinks=bool(sinks[i])) for i, value in enumerate(s))
    sharp = None
    if not optimiser.decay and depth > 1 and start != "balanced":
        sharp = float(optimiser.largest(unit * edge.flow_sharpness(alpha, s[0], depth)))
    return {
        "modes": modes,
        "largest_stable_lr": at.largest_of_all,
        "largest_stable_lr_at_flow_end": sharp,
        "cross": None,
        "sorting": None,
        "balancing": None,
        "notes": _notes(modes, seen.steps, lr, at),
        "theory": _sources(optimiser, start),
    }


def _mode(
    i: int, value: float, lr: float, seen: Followed, at: Minimum, *, slow: float | None, sinks: bool
) -> StabilityMode:
    """One mode; `slow` is when it should leave its start, where that is too late to be seen and sure to come, and
    `sinks` says that decay pulls harder at its layers than the target.
    """
    late, rest, largest = seen.late[:, i], float(at.values[i]), float(at.largest[i])
    low, high = float(late.min()), float(late.max())
    fate, period, lost = Fate.UNKNOWN, None, None
    shrinks = abs(late[-1]) <= abs(late[0])
    if seen.lost[i] >= 0:
        fate, lost = Fate.DIVERGES, int(seen.lost[i])
    elif rest > 0 and lr < largest and (slow is not None or np.max(np.abs(late - rest)) < 0.1 * rest):
        fate, period, low, high = Fate.CONVERGES, 1, rest, rest
    elif sinks and shrinks:
        # 0 is a minimum where decay has made it one; where a better one is left the start was too small for it
        fate, period = (Fate.TRAPPED, None) if rest > 0 else (Fate.CONVERGES, 1)
        low = high = 0.0
    elif (found := _period(late)) > 1:
        fate, period = Fate.CYCLE, found
    leaves = float(seen.half[i]) if seen.half[i] >= 0 else slow
    if leaves is None:
        leaves = math.nan if fate is Fate.UNKNOWN else math.inf
    return StabilityMode(
        value=value,
        rest=rest,
        curvature=float(at.curvatures[i]),
        kappa=2 * lr / largest,
        fate=fate,
        period=period,
        low=None if lost else low,
        high=None if lost else high,
        diverges_after=lost,
        lyapunov=None,
        lingers=False,
        leaves_start_after=leaves,
        gap_left=None,
        thresholds=Thresholds(oscillates=largest, doubles=None, chaos=None, leaves=None, diverges=None),
    )


def _period(late: Float[np.ndarray, " points"]) -> int:
    return int(dynamics.period(dynamics.Orbits(jnp.asarray(late[None]), jnp.asarray([-1])), most=KEEP // 2)[0])


def _notes(modes: tuple[StabilityMode, ...], steps: int, lr: float, at: Minimum) -> tuple[str, ...]:
    notes = []
    if any(mode.fate is Fate.UNKNOWN for mode in modes):
        notes.append(f"Modes were followed for {steps:,} steps: no theory says where those go that have not settled.")
    early = [i + 1 for i, mode in enumerate(modes) if mode.fate is Fate.DIVERGES and lr < at.largest[i]]
    if early:
        notes.append(f"Mode {early[0]} would be stable at its minimum: it is lost on the way there.")
    if at.largest_of_all < lr < at.largest[0]:
        notes.append(
            f"Entries of A between modes grow from lr = {at.largest_of_all:.6g} on: each mode alone is stable."
        )
    return tuple(notes)


def _sources(optimiser: Optimiser, start: str) -> tuple[Source, ...]:
    found = [
        Source(
            "thresholds, largest_stable_lr",
            "both roots of a step's characteristic polynomial inside the unit circle",
            ("optimisers/C1", "optimisers/C2", "optimisers/C3", "optimisers/C4"),
        ),
        Source("fate, period, low, high, leaves_start_after", "the mode's own chain of numbers from this start"),
    ]
    if optimiser.decay:
        words = "the minimum with decay, and the whole Hessian there"
        found.insert(0, Source("rest, curvature", words, ("optimisers/C4", "optimisers/C6", "optimisers/C7")))
    elif start != "balanced":
        words = "the sharpness where gradient flow ends"
        found.append(Source("largest_stable_lr_at_flow_end", words, ("stability/C10", "optimisers/C1")))
    return tuple(found)


def diagram(said: StabilityPrediction, rates: np.ndarray, shown: np.ndarray) -> Diagram:
    """Late values of balanced modes, from near the minimum, at many step sizes."""
    rest = np.array([mode.rest or mode.value for mode in said.modes[: len(shown)]])
    begin = np.broadcast_to(0.9 * rest ** (1 / said.depth), (2, len(rates), len(shown)))
    seen = follow(
        begin, shown, said.depth, rates[:, None], said.optimiser, shown, scale=said.unit, least=0, most=4000, keep=96
    )
    values = np.moveaxis(seen.late, 0, -1)
    values[seen.lost >= 0] = math.nan
    return Diagram(rates, values)
