"""How a run ends, and the states that are stored on the way."""

from enum import StrEnum
from typing import Any, NamedTuple


class Status(StrEnum):
    """How a run ended: a string, with a sentence in `message`."""

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


class Checkpoint(NamedTuple):
    """A recorded state with the step (for flows the time) of its record and the value it was chosen for."""

    state: Any
    step: Any
    value: Any
