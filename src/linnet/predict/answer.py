"""What every prediction can do: tell itself as numbers, words, a picture."""

import abc
import dataclasses
import enum
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType

Progress = Callable[[int, int], None]
_PAGE = (
    '<pre style="font-family:ui-monospace,Menlo,Consolas,monospace;line-height:1.3;white-space:pre;overflow-x:auto">'
    "{code}</pre>"
)
_COLUMNS = 110  # of text in a notebook


def hidden() -> Any:
    """A field that a result needs and does not tell: curves, problems, states."""
    return dataclasses.field(repr=False, compare=False, metadata={"told": False})


class Answer(abc.ABC):
    """A frozen dataclass of named numbers that can show itself: in a terminal, in a notebook, as JSON, as a picture."""

    @abc.abstractmethod
    def __rich__(self) -> "RenderableType":
        """What a terminal shows."""

    @abc.abstractmethod
    def plot(self) -> "Figure":
        """A matplotlib figure of it."""

    def to_dict(self) -> dict[str, Any]:
        """All that is told as plain Python: what `--json` prints, with infinite and unknown numbers as floats."""
        return _told(self)

    def __str__(self) -> str:
        console = _console(_COLUMNS)
        console.print(self)
        return console.export_text().rstrip()

    def _repr_html_(self) -> str:
        console = _console(_COLUMNS)
        console.print(self)
        return console.export_html(inline_styles=True, code_format=_PAGE)


@dataclass(frozen=True, kw_only=True)
class Prediction(Answer):
    """What theory says before anyone trains; `measure` puts the exact run beside it."""

    prepared: tuple[str, ...] = ()  # what was done to users' samples first, in words

    @abc.abstractmethod
    def measure(self, *, progress: Progress | None = None) -> "Measured":
        """The exact run beside the prediction; `progress` is called with (records done, records in all)."""


@dataclass(frozen=True, kw_only=True)
class Measured(Answer):
    """What the exact run gave, beside what was predicted."""

    prediction: Prediction = hidden()

    def to_dict(self) -> dict[str, Any]:
        """The prediction, and under `run` what was measured."""
        return {**self.prediction.to_dict(), "run": _told(self)}


class Holds(enum.StrEnum):
    """How far a hypothesis is true of what was given."""

    EXACTLY = "exactly"
    ROUGHLY = "roughly"
    NOT = "not"


@dataclass(frozen=True)
class Hypothesis:
    """What a figure needs to be true, how far from true it is (0: exactly, relative), and that in a word."""

    text: str
    measured: float
    holds: Holds

    @classmethod
    def of(cls, text: str, measured: float, *, exact: float = 1e-9, rough: float = 0.5) -> "Hypothesis":
        """Exactly true up to `exact`, roughly below `rough`."""
        holds = Holds.EXACTLY if measured <= exact else Holds.ROUGHLY if measured < rough else Holds.NOT
        return cls(text, float(measured), holds)


@dataclass(frozen=True)
class Source:
    """Where a figure comes from: in words, the claims that state it, and what it needs."""

    figure: str
    origin: str
    claims: tuple[str, ...] = ()
    needs: tuple[Hypothesis, ...] = ()


@dataclass(frozen=True)
class When:
    """A moment of training: flow time (learning rate times steps), the step of descent if one is known, the relative
    error to expect (0.0 exact, None unknown), and certain bounds of the time where there are any.
    """

    time: float
    step: float | None = None
    error: float | None = None
    not_before: float | None = None
    not_after: float | None = None

    @property
    def exact(self) -> bool:
        """Whether nothing was estimated."""
        return self.error == 0.0


class Loss(NamedTuple):
    """The loss before training and in the end, with what no linear network explains."""

    start: float
    end: float


def _console(columns: int) -> Any:
    import io

    from rich.console import Console

    return Console(record=True, file=io.StringIO(), width=columns, force_terminal=True, highlight=False)


def _told(value: Any) -> Any:
    """Plain Python of a result: dataclasses and named tuples become dicts, enumerations their values."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = (field for field in dataclasses.fields(value) if field.metadata.get("told", True))
        return {field.name: _told(getattr(value, field.name)) for field in fields}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): _told(part) for name, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: _told(part) for name, part in zip(value._fields, value, strict=True)}
    if isinstance(value, list | tuple):
        return [_told(part) for part in value]
    if isinstance(value, str | bool | int | float) or value is None:
        return value
    return np.asarray(value).tolist()


def preparation(said: Prediction) -> list[str]:
    """What was done to users' samples, as a line of text where there was anything."""
    from rich.markup import escape

    text = "; ".join(said.prepared)
    return [escape(f"{text[:1].upper()}{text[1:]}.")] if text else []


def number(value: float | None, digits: int = 4) -> str:
    """A number in a table: few digits, a dash where there is none, words for what never comes or nobody knows."""
    if value is None:
        return "–"
    if math.isnan(value):
        return "?"
    if math.isinf(value):
        return "never"
    return f"{value:d}" if isinstance(value, int) else f"{value:.{digits}g}"


def plural(count: int, word: str) -> str:
    """`1 mode`, `3 modes`."""
    return f"{count:,} {word}{'s' * (count != 1)}"
