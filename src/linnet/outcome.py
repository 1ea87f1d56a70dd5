"""How a run ends, and what a motion hands back of it."""

from enum import StrEnum
from typing import Any, NamedTuple

from jaxtyping import Array, Int, Num


class Status(StrEnum):
    """How a run ended: a word, with a sentence in `message`."""

    message: str

    def __new__(cls, word: str, message: str) -> "Status":
        status = str.__new__(cls, word)
        status._value_ = word
        status.message = message
        return status

    HORIZON = "horizon", "The run reached its last step or time."
    CONVERGED = "converged", "The stop condition held."
    DIVERGED = "diverged", "The state outgrew the limit or its cost was no longer finite."
    STALLED = "stalled", "The solver of the flow gave up."

    @property
    def code(self) -> int:
        """Its number in compiled programs and stores."""
        return list(Status).index(self)


class Kept(NamedTuple):
    """A state that was kept, the step (for flows the time) it was recorded at and the value it was kept for."""

    state: Any
    step: Any
    value: Any


class Outcome(NamedTuple):
    """What a motion hands back: records along the first axis, and where and how the run ended.

    `clock` has the step or time at which each record was taken; a run that has ended repeats its last record.
    `memory` is what the motion needs to go on from `final`, `past` what the observables remembered before
    their last look; `states` are those of the records, if they were asked for.
    """

    values: dict[str, Num[Array, "records ..."]]
    clock: Num[Array, " records"]
    code: Int[Array, ""]
    ended: Num[Array, ""]
    final: Any
    memory: Any
    past: Any
    kept: dict[str, Kept]
    states: Any
