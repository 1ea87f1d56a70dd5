"""What a sweep is, as a user writes it down."""

import hashlib
import tomllib
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError, field_validator, model_validator

from linnet._check import InputError
from linnet._schema import Part, sentence

Value = bool | int | float | str
# names of the store itself, of expressions, and of the observables' axes
RESERVED = ("status", "ended", "record", "problem", "state", "init", "truth", "target")
PARTS = ("problem", "init", "optimizer")  # tables that an axis may hold several of, by name
DIMENSIONS = ("mode", "layer", "lower_layer", "input", "output", "record")


class Axis(Part):
    """`count` numbers from `start` to `stop`, evenly spaced or with equal ratios."""

    start: float
    stop: float
    count: Annotated[int, Field(ge=1, le=1_000_000)]
    spacing: Literal["linear", "log"] = "linear"

    @model_validator(mode="after")
    def _positive(self) -> "Axis":
        if self.spacing == "log" and not (self.start > 0 and self.stop > 0):
            raise ValueError("spacing = 'log' needs a positive start and stop")
        return self

    def values(self) -> np.ndarray:
        """The numbers along the axis."""
        space = np.geomspace if self.spacing == "log" else np.linspace
        return space(self.start, self.stop, self.count)


class Call(BaseModel):
    """A function of Linnet by name (`kind`) and its arguments: numbers, expressions, lists, or `{ file = ... }`."""

    model_config = ConfigDict(extra="allow", frozen=True)
    kind: str

    @property
    def arguments(self) -> dict[str, Any]:
        """What is given besides the name."""
        return dict(self.model_extra or {})


def _kind(axis: Any) -> str:
    """Which of the three an axis is: numbers in a list, named tables, or numbers by their ends."""
    if isinstance(axis, list):
        return "Numbers"
    named = isinstance(axis, dict) and axis and all(isinstance(value, dict | Call) for value in axis.values())
    return "Named" if named else "Axis"


# the tags select the alternative that was meant, so that errors are about that one
AnyAxis = Annotated[
    Annotated[Axis, Tag("Axis")] | Annotated[list[float], Tag("Numbers")] | Annotated[dict[str, Call], Tag("Named")],
    Discriminator(_kind),
]


class RunTable(Part):
    """The length of a run, when it is recorded, and when it stops."""

    steps: int | str | None = None
    time: float | None = Field(default=None, gt=0)
    record: str | list[float] | None = None
    stop: Call | None = None
    divergence_limit: float = Field(default=1e9, gt=1)

    @model_validator(mode="after")
    def _one_horizon(self) -> "RunTable":
        if (self.steps is None) == (self.time is None):
            raise ValueError("give either steps (descent, noise) or time (flows)")
        return self


class Sweep(Part):
    """A grid of runs: every combination of the values on the axes, which are numbers, or problems,
    initializations, and optimizers by name.
    """

    title: str = ""
    seed: int = Field(default=0, ge=0, lt=2**63)
    let: dict[str, Value] = Field(default_factory=dict)
    axes: dict[str, AnyAxis] = Field(min_length=1)
    problem: Call | None = None
    init: Call | None = None
    second: Call | None = None
    optimizer: Call | None = None
    run: RunTable
    store: dict[str, str] = Field(min_length=1)
    batch: int | None = Field(default=None, ge=1)
    chunks: Literal["runs", "records"] = "runs"

    @field_validator("let")
    @classmethod
    def _numbers(cls, let: dict[str, Value]) -> dict[str, Value]:
        for name, value in let.items():
            if isinstance(value, float) and not np.isfinite(value):
                raise ValueError(f"let.{name} = {value} is not a finite number")
        return let

    @field_validator("axes")
    @classmethod
    def _finite(cls, axes: dict[str, AnyAxis]) -> dict[str, AnyAxis]:
        for name, axis in axes.items():
            values = _values(axis)
            if not name.isidentifier():
                raise ValueError(f"the axis {name!r} needs a name of letters, digits and underscores")
            if isinstance(axis, dict):
                if name not in PARTS:
                    raise ValueError(f"the axis {name} has tables: only {', '.join(PARTS)} may have them")
            elif not len(values) or not np.all(np.isfinite(values)) or len(np.unique(values)) != len(values):
                raise ValueError(f"the axis {name} needs finite numbers, each once")
        return axes

    @model_validator(mode="after")
    def _names(self) -> "Sweep":
        for name in self.let:
            if name in self.axes or name in ("seed", *RESERVED):
                raise ValueError(f"let.{name} is not a free name")
        for name, axis in self.axes.items():
            if (name in RESERVED and not isinstance(axis, dict)) or name in DIMENSIONS:
                raise ValueError(f"the axis {name} is not a free name")
        for name in PARTS:
            named = isinstance(self.axes.get(name), dict)
            if named == (getattr(self, name) is not None):
                raise ValueError(f"{name} is given twice: as a table and as an axis" if named else f"{name} is missing")
        for name in self.store:
            if name in self.axes or name in RESERVED or name in DIMENSIONS or not name.isidentifier():
                raise ValueError(f"store.{name} is not a free name of letters, digits and underscores")
        return self

    def grid(self) -> dict[str, np.ndarray]:
        """The values along each axis, in the order written."""
        return {name: _values(axis) for name, axis in self.axes.items()}

    def part(self, name: str, point: Mapping[str, Any]) -> Call:
        """The problem, the initialization, or the optimizer at a point of the grid."""
        axis = self.axes.get(name)
        return axis[point[name]] if isinstance(axis, dict) else getattr(self, name)

    def identity(self) -> dict[str, Any]:
        """What decides the results: all but the title and the chunks, the contents of the files named, the versions."""
        out = self.model_dump(exclude={"title", "batch", "chunks"}, exclude_none=True)
        out["versions"] = {name: version(name) for name in ("linnet", "jax", "numpy")}
        files = {path: _digest(path) for path in _files(out)}
        return {**out, "files": files} if files else out


def _values(axis: Axis | list[float] | dict[str, Call]) -> np.ndarray:
    if isinstance(axis, dict):
        return np.asarray(list(axis))
    return axis.values() if isinstance(axis, Axis) else np.asarray(axis, dtype=float)


_NAMES = ("let", "store")  # tables whose keys are names of the user's own, "file" too


def _files(tree: Any) -> list[str]:
    if isinstance(tree, dict):
        own = [tree["file"]] if isinstance(tree.get("file"), str) else []
        return own + [path for name, value in tree.items() if name not in _NAMES for path in _files(value)]
    return []


def placed(tree: Any, folder: Path) -> Any:
    """The same table with the files that it names relative to `folder`."""
    if not isinstance(tree, dict):
        return tree
    here = {name: value if name in _NAMES else placed(value, folder) for name, value in tree.items()}
    if isinstance(here.get("file"), str):
        here["file"] = str(folder / here["file"])
    return here


def _digest(path: str) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        raise InputError(f"file = {path!r} is not allowed: it cannot be read.") from None


def read(path: Path) -> Sweep:
    """The sweep that a TOML file describes."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise InputError(f"{str(path)!r} cannot be read: give a TOML file that describes a sweep.") from None
    return parse(text, str(path), path.parent)


def parse(text: str, where: str = "the sweep", folder: Path = Path()) -> Sweep:
    """The sweep that a TOML text describes; files it names are relative to `folder`."""
    try:
        return Sweep.model_validate(placed(tomllib.loads(text), folder))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{where} is not TOML: {error}.") from None
    except ValidationError as error:
        raise InputError(f"{where}: {sentence(error)}") from None
