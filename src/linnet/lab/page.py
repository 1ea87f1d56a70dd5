"""What a page of the lab consists of: controls, panels, updates, and the code that it shows."""

import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from linnet.lab.control import Control, Values, check, defaults, read
from linnet.lab.panel import BokehPanel, Sources
from linnet.prediction import Prediction, Quantity, render
from linnet.trajectory import Trajectory


@dataclass(frozen=True)
class Update:
    """What changes on a page, or a part of it; everything not named stays.

    - `columns`: the data of the panels, by source; the same object is not sent twice, so that a page may cache it.
    - `headline`, `quantities`: shown above the panels, the headline without markup; tables are shown below the numbers.
    - `ranges`: (left, right, bottom, top) of the axes, by panel.
    """

    columns: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    headline: str | None = None
    quantities: tuple[Quantity, ...] | None = None
    ranges: Mapping[str, tuple[float, float, float, float]] = field(default_factory=dict)


class Page(ABC):
    """One page of the lab: its controls, the functions that compute what it shows, and its panels.

    `updates` computes, in parts, the quick ones first; it is abandoned after a newer change of the controls. `panels`
    makes figures of sources that `updates` fills. The code of a page is the source of `functions`, which `updates`
    calls, and `script`, which calls them with the current values and leaves `data` (an xarray dataset), `figure`
    (matplotlib) and, where there is a training, `run` (a trajectory). Exports execute this code.
    """

    name: ClassVar[str]  # in the address
    title: ClassVar[str]
    lead: ClassVar[str]  # one or two sentences below the title
    formula: ClassVar[str]  # LaTeX
    theory: ClassVar[tuple[str, ...]]  # pages of docs/theory
    claims: ClassVar[tuple[str, ...]]
    controls: ClassVar[tuple[Control, ...]]
    hints: ClassVar[Mapping[str, str]] = {}  # a sentence about a control, by its name
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    resets: ClassVar[Mapping[str, tuple[str, ...]]] = {}  # buttons, and the controls that each sets to their defaults
    files: ClassVar[tuple[str, ...]] = ("nc", "svg", "png", "gif", "mp4")  # formats of exports
    functions: ClassVar[tuple[Callable[..., Any], ...]]
    imports: ClassVar[tuple[str, ...]] = ("import linnet as ln",)  # of the functions and the script

    @abstractmethod
    def panels(self, sources: Sources) -> list[BokehPanel]:
        """The panels, made once for each visitor, on empty sources."""

    @abstractmethod
    def updates(self, values: Values) -> Iterator[Update]:
        """What is shown for these values."""

    def afford(self, values: Values) -> None:  # noqa: B027
        """Raises `InputError` for values that would compute too long; called before `updates` and before an export."""

    @abstractmethod
    def script(self, values: Values) -> str:
        """Lines that call the functions with these values and leave `data`, `figure` and `run`."""

    def code(self, values: Values) -> str:
        """The imports, the source of the functions, and the script."""
        sources = [inspect.getsource(function) for function in self.functions]
        return "\n\n".join(["\n".join(self.imports) + "\n", *sources, self.script(values)])

    def executed_code(self, values: Values) -> str:
        """The same code with the paths of files on this machine."""
        return self.code(values)

    def toml(self, values: Values) -> str:
        """The page's own state, which `linnet lab FILE` opens; pages with a command have the file of that command."""
        controls = {control.name: values[control.name] for control in self.controls_for(values)}
        return f'page = "{self.name}"\n\n' + as_toml({"controls": controls})

    def on_click(self, panel: str, x: float, y: float, values: Values) -> Values:
        """The values after a click on a panel."""
        return values

    def on_zoom(self, panel: str, window: tuple[float, float, float, float], values: Values) -> Values:
        """The values after new ranges (left, right, bottom, top) of a panel; all NaN for a reset."""
        return values

    def on_upload(self, name: str, size: int, content: bytes | None, values: Values) -> Values:
        """The values after the upload of a file; its content is None if it was too large to be sent."""
        return values

    def controls_for(self, given: Mapping[str, Any]) -> tuple[Control, ...]:
        """The controls for these values: always the same ones unless they depend on an uploaded file."""
        return self.controls

    def first(self) -> Values:
        """The default values."""
        return defaults(self.controls_for({}))

    def checked(self, given: Mapping[str, Any]) -> Values:
        """All values: the given ones checked, the others at their defaults."""
        return check(self.controls_for(given), given)

    def read(self, query: Mapping[str, str]) -> Values:
        """All values, those in an address's query included."""
        return read(self.controls_for(query), query)


def headline(run: Trajectory | None, prediction: Prediction | None = None, *, notes: bool = False) -> str:
    """Whether the run diverged, the recommendation of the prediction, and its notes if asked, without markup."""
    parts = [] if run is None or run.status != "diverged" else [f"The training diverged at step {int(run.ended):,}."]
    if prediction is not None:
        parts += [render.plain_text(prediction.headline), *(prediction.notes if notes else ())]
    return " ".join(parts)


def arguments(function: Callable[..., Any], values: Mapping[str, Any]) -> Values:
    """The values that a function takes, by the names of its parameters."""
    return {name: values[name] for name in inspect.signature(function).parameters if name in values}


def call(function: Callable[..., Any], values: Mapping[str, Any]) -> str:
    """A call of the function with these values as Python, on one line if it fits."""
    given = [f"{name}={value!r}" for name, value in arguments(function, values).items()]
    line = f"{function.__name__}({', '.join(given)})"
    return line if len(line) <= 90 else "\n    ".join([f"{function.__name__}(", *(f"{one}," for one in given)]) + "\n)"


def as_toml(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Tables as TOML, such as those of a situation that `linnet predict network FILE` reads."""
    lines = []
    for name, table in tables.items():
        lines += [f"[{name}]", *(f"{key} = {_toml_value(value)}" for key, value in table.items()), ""]
    return "\n".join(lines)


def _toml_value(value: Any) -> str:
    """A value as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml_value(part) for part in value) + "]"
    return repr(value)
