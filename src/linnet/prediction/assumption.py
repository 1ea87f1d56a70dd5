"""What theories assume, and where their quantities come from."""

import enum
import math
from dataclasses import dataclass

from linnet._check import InputError


class Holds(enum.StrEnum):
    """How far an assumption holds for the given triple."""

    EXACTLY = "exactly"
    ROUGHLY = "roughly"
    NOT = "not"


@dataclass(frozen=True)
class Assumption:
    """What a theory assumes, how far the given triple is from it (0: exactly, relative), and that in a word."""

    name: str
    measured: float
    holds: Holds

    @classmethod
    def of(cls, name: str, measured: float, *, exact: float = 1e-9, rough: float = 0.5) -> "Assumption":
        """Holds exactly up to `exact`, roughly below `rough`."""
        holds = Holds.EXACTLY if measured <= exact else Holds.ROUGHLY if measured < rough else Holds.NOT
        return cls(name, float(measured), holds)

    @classmethod
    def fails(cls, name: str) -> "Assumption":
        """Does not hold, and has no measure: such as a problem of another kind."""
        return cls(name, math.inf, Holds.NOT)

    def required(self, theory: str) -> "Assumption":
        """The assumption itself; raises `NotApplicable` if it does not hold."""
        if self.holds is Holds.NOT:
            raise NotApplicable(theory, self)
        return self


class NotApplicable(InputError):  # noqa: N818
    """A theory does not apply to the given triple, because one of its assumptions fails.

    - `theory`: the name of the topic, such as "balance".
    - `assumption`: what fails, with how far the triple is from it.
    - `message`: a sentence for the caller who asked for this theory by name; by default made of the two.
    """

    def __init__(self, theory: str, assumption: Assumption, message: str = ""):
        super().__init__(message or f"{theory} does not apply: it needs {assumption.name} ({assumption.measured:.2g}).")
        self.theory = theory
        self.assumption = assumption


@dataclass(frozen=True)
class Source:
    """Where quantities come from: a phrase, the ids of the claims that state it, and the assumptions of the theory."""

    origin: str
    claims: tuple[str, ...] = ()
    assumptions: tuple[Assumption, ...] = ()
