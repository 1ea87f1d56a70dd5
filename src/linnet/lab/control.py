"""Controls of a page: their values, what they allow, and how an address writes them."""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any
from urllib.parse import urlencode

from linnet._check import InputError, show

Values = dict[str, Any]


@dataclass(frozen=True)
class Control(ABC):
    """A named value that is changed on a page, below the heading of its `group`."""

    name: str
    label: str
    value: Any
    _: KW_ONLY
    group: str = ""

    @abstractmethod
    def check(self, value: Any) -> Any:
        """The value if it is allowed, else an `InputError`: it may come from an address that anyone typed."""

    @abstractmethod
    def field(self) -> dict[str, Any]:
        """What the browser needs to draw it."""

    def read(self, text: str) -> Any:
        """The value in an address."""
        return self.check(text)

    def write(self, value: Any) -> str:
        """The value as text of an address."""
        return str(value)

    def differs(self, value: Any) -> bool:
        """Whether the value is not the default one, so that an address includes it."""
        return bool(value != self.value)

    def _refuse(self, value: Any, allowed: str) -> InputError:
        return InputError(f"{self.name} = {show(value)} is not allowed: {allowed}.")


@dataclass(frozen=True, kw_only=True)
class Slider(Control):
    """A number from `low` to `high`, on an even or a logarithmic scale; of `whole` numbers only if set.

    `rungs`, where there are any, are the only allowed values: each shape has a compiled program of its own.
    """

    low: float
    high: float
    log: bool = False
    whole: bool = False
    step: float = 0.01
    rungs: Sequence[float] = ()
    unit: str = ""
    digits: int = 3  # shown

    def check(self, value: Any) -> float | int:
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise self._refuse(value, f"give a number from {self.low:g} to {self.high:g}") from None
        if not self.low <= number <= self.high:
            raise self._refuse(value, f"give a number from {self.low:g} to {self.high:g}")
        if self.rungs and number not in self.rungs:
            raise self._refuse(value, "give one of " + ", ".join(f"{rung:g}" for rung in self.rungs))
        if self.whole and number != int(number):
            raise self._refuse(value, "give a whole number")
        return int(number) if self.whole else number

    def write(self, value: Any) -> str:
        return f"{value:.12g}"

    def field(self) -> dict[str, Any]:
        return {"low": self.low, "high": self.high, "log": self.log, "whole": self.whole, "step": self.step} | {
            "rungs": list(self.rungs),
            "unit": self.unit,
            "digits": self.digits,
        }


@dataclass(frozen=True, kw_only=True)
class Player(Slider):
    """A slider that also plays: from its value to its end, `step` by `step`."""


@dataclass(frozen=True, kw_only=True)
class File(Control):
    """A file that is dropped on the page, of at most `most` bytes; "" is none.

    Its value is the sha256 of its content, under which the server keeps it, a slash, and its name.
    """

    accept: str
    most: int  # bytes

    def check(self, value: Any) -> str:
        if not isinstance(value, str) or not re.fullmatch(r"([0-9a-f]{64}/[^/\\\x00-\x1f\x7f]{1,200})?", value):
            raise self._refuse(value, "give the value that the page has for an uploaded file")
        return value

    def differs(self, value: Any) -> bool:
        return bool(value)  # the default is the file itself once there is one

    def field(self) -> dict[str, Any]:
        return {"accept": self.accept, "most": self.most}


@dataclass(frozen=True, kw_only=True)
class Choice(Control):
    """One of a few names; `options` are the names with their labels on the page."""

    options: Mapping[str, str]

    def check(self, value: Any) -> str:
        if value not in self.options:
            raise self._refuse(value, "give one of " + ", ".join(self.options))
        return str(value)

    def field(self) -> dict[str, Any]:
        return {"options": [[name, text] for name, text in self.options.items()]}


@dataclass(frozen=True, kw_only=True)
class Several(Choice):
    """One or more of a few names, in their order."""

    def check(self, value: Any) -> list[str]:  # type: ignore[override]
        if not isinstance(value, list | tuple) or not value or any(name not in self.options for name in value):
            raise self._refuse(value, "give one or more of " + ", ".join(self.options))
        return [name for name in self.options if name in value]

    def read(self, text: str) -> list[str]:
        return self.check(text.split(","))

    def write(self, value: Any) -> str:
        return ",".join(value)


@dataclass(frozen=True, kw_only=True)
class Switch(Control):
    """On or off."""

    def check(self, value: Any) -> bool:
        if value not in (True, False, "1", "0"):
            raise self._refuse(value, "give 1 or 0")
        return value in (True, "1")

    def write(self, value: Any) -> str:
        return "1" if value else "0"

    def field(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True, kw_only=True)
class Bars(Control):
    """A few numbers from `low` to `high`, each a bar to drag."""

    low: float
    high: float
    step: float = 0.05

    def check(self, value: Any) -> list[float]:
        try:
            numbers = [float(part) for part in value]
        except (TypeError, ValueError):
            numbers = [math.nan]
        if len(numbers) != len(self.value) or not all(self.low <= number <= self.high for number in numbers):
            raise self._refuse(value, f"give {len(self.value)} numbers from {self.low:g} to {self.high:g}")
        return numbers

    def read(self, text: str) -> list[float]:
        return self.check(text.split(","))

    def write(self, value: Any) -> str:
        return ",".join(f"{number:.6g}" for number in value)

    def field(self) -> dict[str, Any]:
        return {"low": self.low, "high": self.high, "step": self.step}


def defaults(controls: Iterable[Control]) -> Values:
    """The default values."""
    return {control.name: control.value for control in controls}


def check(controls: Iterable[Control], given: Mapping[str, Any]) -> Values:
    """All values, the given ones checked, the others at their defaults; names without a control are left out."""
    return {c.name: c.check(given[c.name]) if c.name in given else c.value for c in controls}


def read(controls: Iterable[Control], query: Mapping[str, str]) -> Values:
    """The values in an address."""
    return {c.name: c.read(query[c.name]) if c.name in query else c.value for c in controls}


def write(controls: Iterable[Control], values: Mapping[str, Any]) -> str:
    """The address's query: values that differ from their defaults, and files."""
    changed = {c.name: c.write(values[c.name]) for c in controls if c.differs(values[c.name])}
    return urlencode(changed, safe=",")
