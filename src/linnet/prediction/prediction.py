"""Predictions are data: quantities and curves, with their sources, assumptions, and errors."""

import dataclasses
import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from linnet._check import InputError
from linnet.prediction.assumption import Assumption, Source
from linnet.prediction.panel import Panel

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Time:
    """A time of training.

    - `time`: flow time, learning rate times steps. NaN: no theory knows it. Infinity: it never comes.
    - `step`: the step of the optimizer, None where there are no steps.
    - `error`: the relative error to expect; 0.0 is exact, None unknown.
    - `not_before`, `not_after`: proved bounds of the time, where there are any.
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


class Row(Mapping[str, Any]):
    """One row of a table, such as a mode: values by name, as items and as attributes."""

    def __init__(self, **values: Any):
        self.__dict__.update(values)

    def __getitem__(self, name: str) -> Any:
        return self.__dict__[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.__dict__)

    def __len__(self) -> int:
        return len(self.__dict__)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"this row has no {name!r}: it has {', '.join(self)}")

    def __repr__(self) -> str:
        return f"Row({', '.join(f'{name}={value!r}' for name, value in self.items())})"


def rows(**columns: Iterable[Any]) -> tuple[Row, ...]:
    """The rows of a table with these columns, which have the same length; numbers of arrays become Python's."""
    lists = [column.tolist() if isinstance(column, np.ndarray) else column for column in columns.values()]
    return tuple(Row(**dict(zip(columns, cells, strict=True))) for cells in zip(*lists, strict=True))


@dataclass(frozen=True)
class Column:
    """How a field of a table's rows is shown in a terminal.

    - `format`: a format of `format()`, or a function of the value, or of the row where `field` is None.
    - `spare`: where a terminal is too narrow, columns with the largest number are left out first, those with 0 never.
    - `measured`: whether a measured field has a column beside this one.
    """

    field: str | None
    title: str
    format: str | Callable[[Any], str] = ".4g"
    spare: int = 0
    prose: bool = False
    measured: bool = True


@dataclass(frozen=True)
class Quantity:
    """A predicted or measured value.

    - `value`: a number, a word, a `Time`, a `Row`, a tuple of rows (a table), or the `Prediction` of another training,
      which follows this one and is measured with it; None where it does not apply, NaN where no theory knows it.
    - `unit`, `description`: what it is, in a few words; a quantity without a description is in the JSON alone.
    - `error`: the relative error to expect, None where nothing is known (a `Time` has its own).
    - `columns`: of a table (rows, or a single `Row`), what a terminal shows of each row; `rows`, of how many rows.
    """

    name: str
    value: Any
    description: str = ""
    unit: str = ""
    error: float | None = None
    source: Source | None = None
    format: str | Callable[[Any], str] = ".4g"
    columns: tuple[Column, ...] = ()
    rows: int = 8


def facts(**values: Any) -> tuple[Quantity, ...]:
    """Quantities that are in the JSON alone, such as the problem's dimensions."""
    return tuple(Quantity(name, value) for name, value in values.items())


class _Named:
    """Values of quantities as attributes, and the four ways to show them."""

    quantities: tuple[Quantity, ...]

    def __getitem__(self, name: str) -> Quantity:
        for quantity in self.quantities:
            if quantity.name == name:
                return quantity
        raise InputError(f"{name!r} is not a quantity of this result: it has {', '.join(self)}.")

    def __iter__(self) -> Iterator[str]:
        return iter(quantity.name for quantity in self.quantities)

    def __contains__(self, name: object) -> bool:
        return any(quantity.name == name for quantity in self.quantities)

    def __getattr__(self, name: str) -> Any:
        for quantity in self.__dict__.get("quantities", ()):
            if quantity.name == name:
                return quantity.value
        raise AttributeError(f"{type(self).__name__} has no quantity {name!r}")

    def __str__(self) -> str:
        from linnet.prediction.render import text

        return text(self)

    def _repr_html_(self) -> str:
        from linnet.prediction.render import html

        return html(self)


@dataclass(frozen=True)
class ExactRun:
    """How a prediction is compared with an exact run.

    - `run(progress)`: makes the run, by `simulate`, or computes what else is measured.
    - `read(run)`: the measured quantities, by the names of the predicted ones where both exist.
    - `observables`: what a run has to record to be read, as `simulate` takes it; without those in `optional`, what
      follows from them is unknown.
    - `kind`: the class of what is read, None for a `Trajectory`.
    """

    run: Callable[[Progress | None], Any]
    read: Callable[[Any], tuple[Quantity, ...]]
    observables: Mapping[str, Any] = field(default_factory=dict)
    optional: tuple[str, ...] = ()
    kind: type | None = None


@dataclass(frozen=True, repr=False)
class Prediction(_Named):
    """What a theory says about a triple (problem, network, optimizer), before anyone trains.

    Quantities are items, `prediction["fit"]` with unit, error, source, and assumptions, and their values attributes,
    `prediction.fit`. `measure()` makes the exact run, `compare(run)` takes one that was made; `plot()` draws curves,
    `to_dict()` is what `--json` prints.

    - `headline`: the recommendation, one or two sentences.
    - `setting`: a sentence that says what it is about.
    - `panels(prediction, comparison)`: the panels of `plot`, computed when they are drawn.
    - `parts`: predictions of other theories about the same triple; `unmet`: theories that do not apply, each with the
      assumption that fails.
    """

    topic: str
    headline: str
    quantities: tuple[Quantity, ...]
    setting: str = ""
    notes: tuple[str, ...] = ()
    problem: Any = None
    network: Any = None
    optimizer: Any = None
    panels: "Callable[[Prediction, Comparison | None], Sequence[Panel]] | None" = None
    experiment: ExactRun | None = None
    parts: tuple["Prediction", ...] = ()
    unmet: tuple[tuple[str, Assumption], ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)  # what panels and experiments need besides

    def to_dict(self) -> dict[str, Any]:
        """Plain Python: every quantity by its name, the sources, and the notes; NaN and infinity stay floats."""
        from linnet.prediction.render import plain_text

        out: dict[str, Any] = {"topic": self.topic, "headline": plain_text(self.headline)}
        out |= {quantity.name: plain(quantity.value) for quantity in self.quantities}
        out |= {"notes": list(self.notes), "sources": self._sources()}
        if self.parts:
            out["parts"] = {part.topic: part.to_dict() for part in self.parts}
        if self.unmet:
            out["unmet"] = [{"theory": name, "assumption": plain(why)} for name, why in self.unmet]
        return out

    def _sources(self) -> list[dict[str, Any]]:
        grouped: dict[Source, list[str]] = {}
        for quantity in self.quantities:
            if quantity.source is not None:
                grouped.setdefault(quantity.source, []).append(quantity.name)
        return [{"quantities": names} | plain(source) for source, names in grouped.items()]

    def including(self, *quantities: Quantity, notes: Sequence[str] = ()) -> "Prediction":
        """The prediction with what its caller knows besides, such as the seed of the initialization: quantities (each
        in the place of one of the same name, if there is one) and notes, which come before its own.
        """
        given = {quantity.name: quantity for quantity in quantities}
        present = tuple(given.pop(quantity.name, quantity) for quantity in self.quantities)
        return dataclasses.replace(self, quantities=(*given.values(), *present), notes=(*notes, *self.notes))

    def measure(self, *, progress: Progress | None = None) -> "Comparison":
        """The exact run beside the prediction; `progress` is called with (records done, records in all)."""
        experiment = self._experiment()
        run = experiment.run(progress)
        comparison = Comparison(self, run, experiment.read(run))
        measured = (
            replace(quantity, value=quantity.value.measure(progress=progress))
            for quantity in self.quantities
            if isinstance(quantity.value, Prediction)
        )
        return replace(comparison, quantities=(*comparison.quantities, *measured))

    def compare(self, run: Any) -> "Comparison":
        """The prediction beside a run of the same triple, which recorded `prediction.observables`.

            run = ln.simulate(problem, network, optimizer, steps=1000, observe=prediction.observables)
            prediction.compare(run)

        Raises `InputError` for a batch of runs, for runs that lack an observable, and for those of another problem,
        network, or learning rate as far as they show it.
        """
        from linnet.prediction.same_triple import check

        experiment = self._experiment()
        check(self, experiment, run)
        return Comparison(self, run, experiment.read(run))

    @property
    def observables(self) -> dict[str, Any]:
        """What `simulate` has to observe so that `compare` can read the run."""
        return dict(self._experiment().observables)

    def _experiment(self) -> ExactRun:
        if self.experiment is None:
            raise InputError(f"{self.topic} has no exact run: it predicts what no single run shows.")
        return self.experiment

    def plot(self) -> "Figure":
        """A matplotlib figure of its curves."""
        from linnet.plot.prediction import draw

        return draw(self, None)

    def __rich__(self) -> "RenderableType":
        from linnet.prediction.render import prediction

        return prediction(self)

    def __repr__(self) -> str:
        return f"Prediction({self.topic}: {', '.join(self)})"


@dataclass(frozen=True, repr=False)
class Comparison(_Named):
    """A prediction beside an exact run: measured quantities, by the names of the predicted ones."""

    prediction: Prediction
    run: Any
    quantities: tuple[Quantity, ...]

    def to_dict(self) -> dict[str, Any]:
        """The prediction, and under `run` what was measured."""
        return {**self.prediction.to_dict(), "run": plain(self)}

    def plot(self) -> "Figure":
        """The curves of the prediction with those of the run."""
        from linnet.plot.prediction import draw

        return draw(self.prediction, self)

    def __rich__(self) -> "RenderableType":
        from linnet.prediction.render import prediction

        return prediction(self.prediction, self)

    def __repr__(self) -> str:
        return f"Comparison({self.prediction.topic}: {', '.join(self)})"


def plain(value: Any) -> Any:
    """Plain Python of a value: rows and dataclasses become dicts, enumerations their values, results their numbers."""
    if isinstance(value, Prediction):
        return value.to_dict()
    if isinstance(value, Comparison):
        return {quantity.name: plain(quantity.value) for quantity in value.quantities}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {part.name: plain(getattr(value, part.name)) for part in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: plain(part) for name, part in zip(value._fields, value, strict=True)}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, str | bool | int | float) or value is None:
        return value
    return np.asarray(value).tolist()
