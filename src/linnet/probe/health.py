"""What a training does, in one word and one sentence, from its record alone: before any word on curvature.

- non_finite: the last loss is not finite
- no_progress: the optimizer makes no step, or the weights do not move
- diverging: the loss is three times what it was, or has not come back after an alarm, and does not fall
- dead_units: nearly all units of a layer get no gradient
- not_learning: the loss has hardly fallen, and no longer falls, or has never fallen on the probe's batch
- above_edge: steps raise the loss of their own batch, or the curvature is above its threshold
- at_edge: each step reverses the one before it
- noise_floor: on other batches no longer step would lower the loss
- healthy: none of these, and the loss has fallen by two standard errors or more
- unknown: too little was recorded
"""

import enum
import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from linnet.probe.record import ProbeRecord

RECENT = 50  # steps for which an alarm counts
DEAD = 0.9  # share of a layer's units without a gradient, from which on it is dead
OWN_BELOW = 0.8  # a critical step on its own batch: one batch scatters by a fifth
FLOOR = 0.4, 1.8  # an interval of the critical step on other batches inside these is the noise floor
MANY_PARTS = 8  # of a batch, from which on an interval says something
FRESH = 0.5  # of a curvature, that it must have on other parts of the batch
AT_EDGE, REVERSES, _OSCILLATES = 0.9, -0.9, 0.1  # of the threshold; a cosine with the step before; a share of steps
_HELD, _LEAST_FALL = 4, 0.02  # losses on the probe's batch at least, and a fall of them that is one; twice of the loss
_EARLY, _LATE = 0.25, 0.5  # of the steps: the first of them must be among the first ones, and the last among the last
_FEW = 5  # updates without an optimizer step that are no accident
_PLATEAU, _LEARNED = 200, 0.2  # steps before "not learning" is concluded; the fall of the loss that excludes it
_BLOCK = 10  # losses whose median is one value
_PEAK, _ROSE = 5, 3.5  # losses whose median is above the first one by so many deviations where the loss rises at once
_DIVERGED, _BACK = 3.0, 1.5  # times its least median, and times that before an alarm


class HealthStatus(enum.StrEnum):
    """What a training does, the worst first."""

    NON_FINITE = "non_finite"
    NO_PROGRESS = "no_progress"
    DIVERGING = "diverging"
    DEAD_UNITS = "dead_units"
    NOT_LEARNING = "not_learning"
    ABOVE_EDGE = "above_edge"
    AT_EDGE = "at_edge"
    NOISE_FLOOR = "noise_floor"
    HEALTHY = "healthy"
    UNKNOWN = "unknown"


class Health(NamedTuple):
    """A status, and the sentence with its numbers."""

    status: HealthStatus
    sentence: str


class Losses(NamedTuple):
    """The training's loss in a few numbers: means with their standard errors, and medians."""

    steps: int
    first: float  # mean of the first twenty, or the first one where the next ones are far above it
    first_error: float
    now: float  # median of the last ten
    least: float  # least median of ten consecutive ones
    second: tuple[float, float]  # mean and error of the second quarter
    last: tuple[float, float]  # and of the last one
    before: tuple[float, float]  # of the last twenty but ten
    recent: tuple[float, float]  # of the last ten

    @classmethod
    def of(cls, losses: Sequence[float]) -> "Losses | None":
        """None where there are fewer than ten."""
        n, x = len(losses), np.asarray(losses, dtype=float)
        if n < _BLOCK:
            return None
        blocks = np.median(x[n % _BLOCK :].reshape(-1, _BLOCK), axis=1)
        second, last = (_mean(x[a * n // 4 : (a + 1) * n // 4]) for a in (1, 3))
        both = _mean(x[-2 * _BLOCK : -_BLOCK]) if n >= 2 * _BLOCK else (math.nan, math.nan), _mean(x[-_BLOCK:])
        early, scatter = x[: 2 * _BLOCK], last[1] * math.sqrt(n - 3 * n // 4)
        peak = max(float(np.median(early[k : k + _PEAK])) for k in range(len(early) - _PEAK + 1))
        rose = peak - x[0] > _ROSE * scatter  # at once: to fall from there is no progress
        first = (float(x[0]), scatter) if rose else _mean(early)
        return cls(n, *first, float(blocks[-1]), float(blocks.min()), second, last, *both)

    @property
    def falling(self) -> bool:
        """Whether the last ten are two standard errors below the ten before."""
        (then, error), (now, error_now) = self.before, self.recent
        return then - now > 2 * math.hypot(error, error_now)

    @property
    def fallen(self) -> bool:
        """Whether the last quarter is two standard errors below the first losses."""
        return self.first - self.last[0] > 2 * math.hypot(self.first_error, self.last[1])


def _mean(values: np.ndarray) -> tuple[float, float]:
    """Mean, and its standard error."""
    if len(values) < 2:
        return float(values.mean()), math.inf
    return float(values.mean()), float(values.std(ddof=1)) / math.sqrt(len(values))


def assess(record: ProbeRecord) -> Health:
    """The status of the training at the end of its record: the first that applies."""
    steps = record.steps
    known = [line["loss"] for line in steps if line.get("loss") is not None]
    known = known or [line["anchor"] for line in record.anchors if line.get("anchor") is not None]
    losses = Losses.of(known)
    recent = steps[-RECENT:]
    found = _non_finite(recent) or _no_progress(recent) or _idle(record) or _diverging(record, losses) or _dead(record)
    found = found or _not_learning(losses) or _memorizing(record, losses) or _edge(record, recent) or _floor(record)
    return found or _healthy(losses) or Health(HealthStatus.UNKNOWN, _too_little(record, losses))


def oscillating_share(steps: Sequence[dict[str, Any]]) -> float:
    """The share of the last steps that reversed the one before, or raised the loss where no step was compared."""
    last = steps[-RECENT:]
    reversals = [line["flip"] < -0.5 for line in last if line.get("flip") is not None]
    if reversals:
        return sum(reversals) / len(reversals)
    losses = [line["loss"] for line in last if line.get("loss") is not None]
    rises = [b > a for a, b in itertools.pairwise(losses)]
    return sum(rises) / len(rises) if rises else 0.0


def judged(line: dict[str, Any]) -> bool:
    """Whether a measured curvature can be compared: an optimizer's own average must have seen all that it averages, and
    the direction must be as sharp on other parts of the batch.
    """
    fresh = line.get("fresh") is None or line["fresh"] >= FRESH
    old = line.get("age") is None or line["age"] >= (line.get("memory") or 0.0)
    return line.get("ratio") is not None and old and fresh


def _non_finite(steps: list[dict[str, Any]]) -> Health | None:
    for line in reversed(steps):
        if "loss" in line:
            if line["loss"] is not None:
                return None
            text = f"Not finite: the loss at step {line['step']} is NaN or infinite. Go back to a checkpoint before it."
            return Health(HealthStatus.NON_FINITE, text)
    return None


def _no_progress(steps: list[dict[str, Any]]) -> Health | None:
    known = [line.get("stepped", 1) for line in steps]
    if len(known) >= _FEW and not any(known):
        first = steps[0]["step"]
        text = f"No progress: the optimizer has made no step since step {first}, so the weights do not change."
        return Health(HealthStatus.NO_PROGRESS, text)
    moved = [(line["step"], line["moved"]) for line in steps if line.get("moved") is not None]
    if len(moved) >= 2 and not any(size for _, size in moved):
        text = f"No progress: the weights have not moved since step {moved[0][0]}."
        return Health(HealthStatus.NO_PROGRESS, f"{text} Is the learning rate 0, or do gradients not reach them?")
    return None


def _idle(record: ProbeRecord) -> Health | None:
    """One of several optimizers makes no step."""
    known = [line for line in record.checks if "idle" in line]
    if not known or not known[-1]["idle"]:
        return None
    name, now = known[-1]["idle_name"], record.steps[-1]["step"] if record.steps else known[-1]["step"]
    text = f"No progress: {name}, number {known[-1]['idle']} of the optimizers, has made no step until step {now}."
    return Health(HealthStatus.NO_PROGRESS, text)


def _diverging(record: ProbeRecord, losses: Losses | None) -> Health | None:
    if losses is None or losses.falling:
        return None
    alarm = record.alarms[-1] if record.alarms else {}
    usual, now = alarm.get("usual") or 0.0, losses.now
    if usual > 0 and now > _BACK * usual:
        since = [
            line["loss"] for line in record.steps if line["step"] >= alarm["step"] and line.get("loss") is not None
        ]
        if not since or now > math.sqrt(usual * max(since)):  # not even half of the way back
            factor = f"{now / usual:.2g} times what it was before the alarm at step {alarm['step']}"
            return Health(HealthStatus.DIVERGING, f"Diverging: the loss is {now:.3g}, {factor}, and it is not falling.")
    if losses.least > 0 and now > _DIVERGED * losses.least and now > losses.first:
        n = digits(now, losses.first)
        text = f"Diverging: the loss is {now:.{n}g}, {now / losses.least:.2g} times its least"
        return Health(HealthStatus.DIVERGING, f"{text}, and above the {losses.first:.{n}g} with which it began.")
    return None


def _dead(record: ProbeRecord) -> Health | None:
    dead = next((line for line in reversed(record.checks) if line.get("dead") is not None), None)
    if dead is None or dead["dead"] < DEAD:
        return None
    text = (
        f"Dead units: {dead['dead']:.0%} of the units of {dead['dead_layer']} got a gradient of exactly 0 at step "
        f"{dead['step']}: they no longer learn. Initialize again, with a smaller lr."
    )
    return Health(HealthStatus.DEAD_UNITS, text)


def _not_learning(losses: Losses | None) -> Health | None:
    if losses is None or losses.steps < _PLATEAU:
        return None
    (second, error), (last, last_error) = losses.second, losses.last
    if last < losses.first - _LEARNED * abs(losses.first) or last < second - 2 * math.hypot(error, last_error):
        return None
    text = (
        f"Not learning: the loss began at {losses.first:.3g}; in the last quarter of the steps it is {last:.4g} ± "
        f"{last_error:.1g}, not below the {second:.4g} ± {error:.1g} of the second quarter."
    )
    return Health(HealthStatus.NOT_LEARNING, text)


def _memorizing(record: ProbeRecord, losses: Losses | None) -> Health | None:
    """The loss falls, and on the probe's batch it never has, since the first steps on."""
    held = [(line["step"], line["anchor"]) for line in record.anchors if line.get("anchor") is not None]
    steps = [line["step"] for line in record.steps if line.get("loss") is not None]
    if losses is None or not losses.fallen or len(held) < _HELD or not steps:
        return None
    (step, first), (until, last) = held[0], held[-1]
    whole = steps[-1] - steps[0]
    early, late = step - steps[0] <= _EARLY * whole, steps[-1] - until <= _LATE * whole
    least = min(value for _, value in held)
    if not (early and late) or first <= 0 or least < (1 - _LEAST_FALL) * first:
        return None
    if losses.now > (1 - 2 * _LEAST_FALL) * losses.first:  # by too little to expect as much
        return None
    text = (
        f"Not learning what holds for other samples: the loss has fallen {_from_to(losses)}, but on the probe's batch "
        f"it was {first:.4g} at step {step} and is {last:.4g} at step {until}, and never was 2 % lower."
    )
    return Health(HealthStatus.NOT_LEARNING, text)


def _edge(record: ProbeRecord, recent: list[dict[str, Any]]) -> Health | None:
    forward = record.forwards[-1] if record.forwards else None
    if forward is not None and forward.get("own_high") is not None and forward["own_high"] < OWN_BELOW:
        text = (
            f"Above the edge: at step {forward['step']} the step did not lower the loss of its own batch; only "
            f"{forward['own_low']:.2g} to {forward['own_high']:.2g} of it would have. The lr is too large."
        )
        return Health(HealthStatus.ABOVE_EDGE, text)
    on_orbit = forward is not None and forward.get("own_low") is not None and forward["own_low"] <= 1.05
    if forward is not None and on_orbit and forward.get("flip") is not None and forward["flip"] < REVERSES:
        text = (
            f"At the edge: at step {forward['step']} the step reversed the one before it (cosine "
            f"{forward['flip']:.3f}), and a longer one would have raised the loss."
        )
        return Health(HealthStatus.AT_EDGE, text)
    measured = [line for line in record.measurements if judged(line)]
    if not measured:
        return None
    ratio, step = measured[-1]["ratio"], measured[-1]["step"]
    text = f"the curvature is {ratio:.3g} of its threshold (step {step})"
    if ratio >= AT_EDGE and oscillating_share(recent) > _OSCILLATES:
        since = list(itertools.takewhile(lambda line: line["ratio"] >= AT_EDGE, reversed(measured)))[-1]["step"]
        after = "and steps reverse the ones before them. The loss falls over many steps."
        return Health(HealthStatus.AT_EDGE, f"At the edge since step {since}: {text}, {after}")
    if ratio >= 1:
        after = "Steps will grow along the sharpest direction until it flattens."
        return Health(HealthStatus.ABOVE_EDGE, f"Above the edge: {text}. {after}")
    return None


def _floor(record: ProbeRecord) -> Health | None:
    forward = next((line for line in reversed(record.forwards) if line.get("c_other_low") is not None), None)
    if forward is None or forward["parts"] < MANY_PARTS:
        return None
    low, high = forward["c_other_low"], forward["c_other_high"]
    if high is None or not (FLOOR[0] <= low and high <= FLOOR[1]):
        return None
    text = (
        f"Noise floor: on {forward['parts']} parts of the probe's batch {low:.2g} to {high:.2g} of the step at "
        f"{forward['step']} was the longest that lowers the loss. A larger lr will not help now; decay or a larger "
        "batch will."
    )
    return Health(HealthStatus.NOISE_FLOOR, text)


def _healthy(losses: Losses | None) -> Health | None:
    if losses is None or losses.steps < 4 * _BLOCK or not losses.fallen:
        return None
    return Health(HealthStatus.HEALTHY, f"Healthy: the loss has fallen {_from_to(losses)}.")


def _from_to(losses: Losses) -> str:
    """The mean of the first steps and of the last quarter or the last ten, with digits that differ."""
    now = losses.now if losses.now < losses.first else losses.last[0]
    n = digits(losses.first, now)
    return f"from {losses.first:.{n}g} to {now:.{n}g}"


def digits(a: float, b: float) -> int:
    """So many significant digits, three at least, that two numbers which differ look different."""
    return next((n for n in range(3, 18) if f"{a:.{n}g}" != f"{b:.{n}g}"), 3)


def _too_little(record: ProbeRecord, losses: Losses | None) -> str:
    if losses is not None:
        return f"Unknown: the loss was {losses.first:.3g} and is {losses.now:.3g} after {losses.steps} steps."
    if not record.steps and not record.measurements:
        return "Nothing was measured yet."
    return "Unknown: no loss was given, or that of a few steps only."
