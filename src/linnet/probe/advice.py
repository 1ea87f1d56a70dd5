"""Advice on the learning rate, from the last measurement along a step alone.

Twice the lr was better in trainings by AdamW where the last step could have been at least 2.5 times as long on other
batches, and worse where this was below 1.9; at 20 steps and before neither. With SGD and momentum it was worse in most
trainings, and once far worse (benchmarks/advice.py): there is no advice there, nor with optimizers that have no known
preconditioner. A curvature below its threshold bounds instability, and does not say which lr is better: it follows the
lr.
"""

import itertools
from typing import Any

from linnet.probe.health import MANY_PARTS, OWN_BELOW, RECENT
from linnet.probe.record import ProbeRecord

OLD = 100  # steps of an optimizer, before which a larger lr is not suggested
TWICE = 2.0  # the interval must be above, and no larger factor is ever named


def advice(record: ProbeRecord) -> list[str]:
    """At most one sentence; none while it is too early, after an alarm, without a preconditioner, or on fewer than
    eight parts of a batch.
    """
    forward = record.forwards[-1] if record.forwards else None
    if forward is None or (forward.get("own_high") or OWN_BELOW) < OWN_BELOW:
        return []  # the status says it
    if not forward.get("preconditioned"):
        return []
    low, high, now = forward.get("c_other_low"), forward.get("c_other_high"), _now(record)
    if low is None or forward["parts"] < MANY_PARTS or not _quiet(record, now, forward):
        return []
    if low <= TWICE:
        return []
    old = now - forward["step"]
    when = f"step {forward['step']}" + (f" ({ago(old)})" if old else "")
    length = f"{low:.2g} times as long or longer" if high is None else f"{low:.2g} to {high:.2g} times as long"
    return [
        f"On {forward['parts']} parts of the probe's batch {when} could have been {length} before the loss rose. Twice "
        "the lr is worth a trial; stable now is not best."
    ]


def ago(steps: int) -> str:
    """How long ago that is."""
    return f"{steps} step{'' if steps == 1 else 's'} ago"


def _now(record: ProbeRecord) -> int:
    """The last step."""
    return max([line["step"] for line in record.lines[-1:]] + [record.steps[-1]["step"] if record.steps else 0])


def _quiet(record: ProbeRecord, now: int, forward: dict[str, Any]) -> bool:
    """Whether the optimizer is old enough, the lr has not grown, and there was no alarm."""
    if forward.get("age", 0.0) < OLD or any(alarm["step"] > now - RECENT for alarm in record.alarms):
        return False
    before = [line for line in record.steps if line["step"] > now - RECENT and line.get("lr") is not None]
    earlier = [line["lr"] for line in record.steps if line["step"] <= now - RECENT and line.get("lr") is not None]
    lrs = [*earlier[-1:], *(line["lr"] for line in before)]
    return all(b <= a for a, b in itertools.pairwise(lrs))
