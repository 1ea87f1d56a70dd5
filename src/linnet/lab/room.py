"""A room of the laboratory: what can be moved in it, and what is then seen."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from linnet.lab.control import Control, Values, check, defaults, read

if TYPE_CHECKING:
    from bokeh.models import ColumnDataSource
    from bokeh.plotting import figure


@dataclass(frozen=True)
class Sight:
    """What is seen after a move, or a part of it: what is not named stays as it was.

    `columns` are the data of the pictures, by the source's name: the very same object is not sent twice, so a room may
    keep what is dear. `windows` are what pictures show, (left, right, bottom, top) by the plate's name; `sentence` is
    what it all means; `numbers` stand beside the pictures, each with its name.
    """

    columns: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    sentence: str | None = None
    numbers: Mapping[str, str] | None = None
    windows: Mapping[str, tuple[float, float, float, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Plate:
    """One picture: a Bokeh figure with its title, and a caption for those who cannot see it too.

    `clicked` and `zoomed` name what a click or a new window is worth: they make of it values to move to.
    """

    name: str
    title: str
    caption: str
    figure: "figure"
    clicked: bool = False
    zoomed: bool = False
    wide: bool = False


class Sources(dict[str, "ColumnDataSource"]):
    """The data of a page's pictures, by name."""

    def empty(self, name: str, *columns: str) -> "ColumnDataSource":
        """A source of these columns with nothing in it yet."""
        from bokeh.models import ColumnDataSource

        self[name] = ColumnDataSource({column: [] for column in columns})
        return self[name]


class Room(ABC):
    """One page of the laboratory. A subclass says what can be moved, what is seen, and the lines that make it.

    `look` computes and knows nothing of pages; it may hand over what it has in parts, what is quick first, and is left
    when somebody has moved on. `draw` makes pictures of sources that `look` fills. `code` are Python lines that leave
    `data` (an xarray dataset), `figure` (matplotlib's) and, where something moves, `run` (a trajectory): what can be
    taken away is made by these very lines.
    """

    name: ClassVar[str]  # in the address
    title: ClassVar[str]
    lead: ClassVar[str]  # what there is to see, in a sentence
    formula: ClassVar[str]  # LaTeX
    theory: ClassVar[tuple[str, ...]]  # pages of docs/theory
    claims: ClassVar[tuple[str, ...]]
    controls: ClassVar[tuple[Control, ...]]
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    backs: ClassVar[Mapping[str, tuple[str, ...]]] = {}  # buttons, and the controls that each puts back
    files: ClassVar[tuple[str, ...]] = ("nc", "svg", "png")  # what can be taken away; gif and mp4 where there is a run

    @abstractmethod
    def draw(self, sources: Sources) -> list[Plate]:
        """The pictures, made once for a page, on empty sources."""

    @abstractmethod
    def look(self, values: Values) -> Iterator[Sight]:
        """What is seen with these values."""

    @abstractmethod
    def code(self, values: Values) -> str:
        """The Python lines that make what is seen."""

    def ran(self, values: Values) -> str:
        """The same lines as they are run here, where files of users lie in other places than with them."""
        return self.code(values)

    def toml(self, values: Values) -> str:
        """The file that makes it: by default the page's own state, which `linnet lab FILE` opens."""
        lines = [f'room = "{self.name}"', "", "[controls]"]
        lines += [f"{control.name} = {written(values[control.name])}" for control in self.offered(values)]
        return "\n".join(lines) + "\n"

    def clicked(self, plate: str, x: float, y: float, values: Values) -> Values:
        """The values that a click on a picture asks for."""
        return values

    def zoomed(self, plate: str, window: tuple[float, float, float, float], values: Values) -> Values:
        """The values that a new window (left, right, bottom, top) asks for; all four NaN for the whole."""
        return values

    def dropped(self, name: str, size: int, content: bytes | None, values: Values) -> Values:
        """The values that a dropped file asks for; its content is None where it was too large to be sent."""
        return values

    def offered(self, given: Mapping[str, Any]) -> tuple[Control, ...]:
        """What can be moved where this is given: what a file offers, or else always the same."""
        return self.controls

    def first(self) -> Values:
        """Where everything stands at first."""
        return defaults(self.offered({}))

    def checked(self, given: Mapping[str, Any]) -> Values:
        """All values, those that were given checked."""
        return check(self.offered(given), given)

    def read(self, query: Mapping[str, str]) -> Values:
        """All values, with those that an address has."""
        return read(self.offered(query), query)


def written(value: Any) -> str:
    """A value as TOML has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return "[" + ", ".join(written(part) for part in value) + "]"
    return repr(value)
