"""Your data: a table of your own, and what a network makes of it, predicted and exact."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from linnet import predict
from linnet._check import InputError
from linnet.lab.control import Choice, Control, File, Several, Slider, Switch, Values
from linnet.lab.dress import COLOURS, SOFT, plain
from linnet.lab.kept import Kept, called
from linnet.lab.room import Plate, Room, Sight, Sources
from linnet.lab.rooms.network import as_toml, building, built, ended, starting, told, two_ways, until
from linnet.motion import GradientDescent
from linnet.predict.network import estimated
from linnet.predict.table import SUFFIXES, read_pair, read_table
from linnet.record import logarithmic
from linnet.simulation import simulate
from linnet.theory.regime import LAZY_BELOW, RICH_ABOVE

_MODES = len(COLOURS)
_MOST = 8 << 20  # bytes of a file that are sent
_LISTED = 100  # columns to choose labels among
_STEPS = (200, 20_000)  # between these: records then fill one program, whatever their number
_RECORDS = 300
_TOP = 1.6  # of a mode's end: what is drawn of it


class Columns(NamedTuple):
    """The columns of a table: the names by which they can be chosen, by their numbers, and how many there are: None
    where a file says itself which are labels.
    """

    names: dict[int, str]
    width: int | None

    def labels(self, value: list[str] | None = None) -> tuple[Control, ...]:
        """How labels are chosen among them: by name, else the last ones; a file with named arrays leaves no choice."""
        text: dict[str, Any] = {"name": "outputs", "label": "Labels", "group": "Data"}
        if self.width is None:
            return ()
        if not self.names:
            many = {str(k): f"the last {k} columns" for k in range(2, min(self.width, _LISTED))}
            return (Choice(**text, value="1", options={"1": "the last column"} | many),)
        options = {str(number): name for number, name in list(self.names.items())[-_LISTED:]}
        return (Several(**text, value=value or [*options][-1:], options=options, hint="All others are inputs."),)

    def chosen(self, value: Any) -> int | tuple[str, ...] | None:
        """The labels as `read_regression` is told of them."""
        if not self.names:
            return None if value is None else int(value)
        return tuple(self.names[int(number)] for number in value)


def _read(path: Path) -> Columns:
    if path.suffix == ".npz":
        read_pair(path)
        return Columns({}, None)
    table = read_table(path)
    if table.values.shape[1] < 2:
        raise table.refused("it has one column, and inputs and labels need two or more")
    often = Counter(table.names or ())
    names = {number: name for number, name in enumerate(table.names or (), 1) if name and often[name] == 1}
    return Columns(names, table.values.shape[1])


_KEPT = Kept(_read)
_EXAMPLE = "own-data.csv"
_EXAMPLE_LABELS = ["7", "8"]


class _Given(NamedTuple):
    """A file as its owner calls it, and where it lies here."""

    name: str
    path: Path
    columns: Columns


@lru_cache(maxsize=1)
def _example() -> _Given:
    path = Path(str(resources.files("linnet.examples").joinpath(_EXAMPLE)))
    return _Given(_EXAMPLE, path, _read(path))


def _given(file: str) -> _Given:
    """The file that a control's value names."""
    if not file:
        return _example()
    digest, name = file.split("/", 1)
    found = _KEPT.find(digest, Path(name).suffix.lower())
    if found is None:
        raise InputError(f"{name} is not kept here any more: drop the file again.")
    return _Given(name, *found)


class _Reading(NamedTuple):
    """What `read_regression` is told beside the file."""

    outputs: int | tuple[str, ...] | None
    standardise: bool
    center: bool
    intercept: bool

    def told(self) -> dict[str, Any]:
        """As a person writes it."""
        outputs = list(self.outputs) if isinstance(self.outputs, tuple) else self.outputs
        return {key: value for key, value in (self._asdict() | {"outputs": outputs}).items() if value}


@lru_cache(maxsize=4)
def _samples(path: str, reading: _Reading) -> predict.OwnSamples:
    return predict.read_regression(path, **reading.told(), average=True)


@lru_cache(maxsize=4)
def _said(path: str, reading: _Reading, tables: str) -> predict.NetworkPrediction:
    return predict.network(predict.Situation(**json.loads(tables)), problem=_samples(path, reading))


class Own(Room):
    """A file with samples: which of its modes a network learns, how and when."""

    name = "data"
    title = "Your data"
    lead = (
        "Drop a table of numbers and say which columns are labels: what a linear network learns of it, in which order, "
        "and with which step size."
    )
    formula = r"\frac{1}{2n}\,\lVert X\,(W_L \cdots W_1)^\top - Y \rVert^2"
    theory = ("spectral", "mixed", "stability")
    claims = ("mixed/C6", "spectral/C8", "spectral/C25", "stability/C1")
    controls = (
        File(
            name="file",
            label="A file with samples as rows",
            value="",
            accept=",".join(SUFFIXES),
            most=_MOST,
            hint="Text (csv), npz with X and y, npy or parquet. It stays on the machine that serves this page.",
            group="Data",
        ),
        Switch(name="standardise", label="Inputs to mean 0, variance 1", value=True, group="Data"),
        Switch(name="center", label="Subtract the means", value=True, group="Data"),
        Switch(name="intercept", label="An input that is always 1", value=False, group="Data"),
        *building(width=100),
        *starting(scale=0.03, largest=10.0),
        Switch(name="auto", label="Choose the step size for me", value=True, group="Training"),
        Slider(
            name="lr",
            label="Step size",
            value=0.05,
            low=1e-6,
            high=10.0,
            log=True,
            hint="Where it is not chosen for you.",
            group="Training",
        ),
    )
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "the example: six inputs, two labels": {"file": "", "outputs": _EXAMPLE_LABELS},
        "rich: from a small start": {"scale": 1e-4},
        "lazy: wide, from a large start": {"width": 10**6, "scale": 10.0},
        "three layers, in balance": {"depth": 3, "start": "balanced", "scale": 0.1},
    }
    files = (*Room.files, "gif", "mp4")

    def offered(self, given: Mapping[str, Any]) -> tuple[Control, ...]:
        file, *others = self.controls
        kept = file.check(given.get("file", ""))
        labels = _given(kept).columns.labels(None if kept else _EXAMPLE_LABELS)
        return (replace(file, value=kept), *labels, *others)

    def dropped(self, name: str, size: int, content: bytes | None, values: Values) -> Values:
        name = re.sub(r"[/\\\x00-\x1f\x7f]", "_", name.encode("utf-8", "replace").decode("utf-8"))[-120:]
        suffix = Path(name).suffix.lower()
        if suffix not in SUFFIXES:
            raise InputError(f"data = {name!r} is not allowed: it must end in {', '.join(SUFFIXES)}.")
        if content is None or len(content) > _MOST:
            raise InputError(
                f"{name} has {size / 2**20:,.1f} MiB, and {_MOST >> 20} MiB are the most that is sent here: use linnet "
                "predict network --data FILE."
            )
        digest = _KEPT.keep(content, suffix, name)
        others = {key: value for key, value in values.items() if key != "outputs"}
        return self.checked(others | {"file": f"{digest}/{name}"})

    def draw(self, sources: Sources) -> list[Plate]:
        from bokeh.models import BasicTicker

        loss = sources.empty("loss", "step", "loss")
        growth = sources.empty("growth", "mode", "growth", "colour")
        levels = sources.empty("levels", "mode", "lazy below", "rich above")
        modes = two_ways(
            sources, height=320, x_axis_label="step", y_axis_label="learned share of a mode", x_axis_type="log"
        )
        losses = plain(x_axis_label="step", y_axis_label="loss", x_axis_type="log", y_axis_type="log")
        losses.line("step", "loss", source=loss, color=COLOURS[1], line_width=2)
        kernels = plain(x_axis_label="mode", y_axis_label="growth of its kernel", y_axis_type="log")
        kernels.xaxis[0].ticker = BasicTicker(min_interval=1, num_minor_ticks=0)
        for name, dash in (("lazy below", "dotted"), ("rich above", "dashed")):
            kernels.line("mode", name, source=levels, color=SOFT, line_width=2, line_dash=dash, legend_label=name)
        kernels.legend.location = "center_right"
        kernels.scatter("mode", "growth", source=growth, color="colour", size=12)
        return [
            Plate(
                "modes", "Modes", "The learned share of each direction of the best fit, step by step.", modes, wide=True
            ),
            Plate("loss", "Loss", "Half the mean squared error above that of the best fit, exactly trained.", losses),
            Plate(
                "kernel",
                "Lazy or rich",
                "How much each mode's kernel grows: below both dashed lines features stay, above they are learned.",
                kernels,
            ),
        ]

    def look(self, values: Values) -> Iterator[Sight]:
        if values["depth"] > 1:  # to follow more than one layer takes longer than a blink
            rough = self._estimate(values)
            yield Sight(_kernels(rough), numbers=_numbers(rough))
        said = self._prediction(values)
        colours, count = list(COLOURS), min(len(said.modes), _MODES)
        steps, ends = _horizon(said), [mode.value for mode in said.modes[:count]]
        curves = [_shown(*until(*said.curve(i), float(steps)), ends[i]) for i in range(count)]
        line = {"step": [x for x, _ in curves], "value": [y for _, y in curves], "colour": colours[:count]}
        yield Sight({"said": line, **_kernels(said)}, sentence=ended(None, said), numbers=_numbers(said))
        run = simulate(
            said.problem,
            said.state,
            GradientDescent(said.lr),
            steps=steps,
            record=logarithmic(_RECORDS),
            observe=["loss", "modes"],
        )
        clock, seen = np.asarray(run.steps), np.asarray(run["modes"])
        lines = [_shown(clock, seen[:, i], ends[i]) for i in range(count)]
        cost = np.asarray(run["loss"])
        fine = (clock > 0) & (cost > 0) & np.isfinite(cost)
        yield Sight(
            {
                "seen": {"step": [x for x, _ in lines], "value": [y for _, y in lines], "colour": colours[:count]},
                "loss": {"step": clock[fine], "loss": cost[fine]},
            },
            sentence=ended(run, said),
        )

    def code(self, values: Values) -> str:
        if values["file"]:
            return self._lines(values, repr(_given(values["file"]).name))
        # the example is in the package, wherever that is
        example = f'str(resources.files("linnet.examples") / "{_EXAMPLE}")'
        return "from importlib import resources\n\n" + self._lines(values, example)

    def ran(self, values: Values) -> str:
        return self._lines(values, repr(str(_given(values["file"]).path)))

    def toml(self, values: Values) -> str:
        data = {"file": _given(values["file"]).name, **self._reading(values).told(), "loss": "mean"}
        return as_toml({"data": data, **self._tables(values)})

    def _lines(self, values: Values, file: str) -> str:
        reading = "".join(f"    {key}={value!r},\n" for key, value in self._reading(values).told().items())
        tables = ",\n".join(f"    {name}={table!r}" for name, table in self._tables(values).items())
        return f"""\
import linnet as ln

samples = ln.predict.read_regression(
    {file},
{reading}    average=True,
)
situation = ln.predict.Situation(
{tables},
)
said = ln.predict.network(situation, problem=samples)
print(said)
problem, start = ln.predict.network_start(situation, problem=samples)
run = ln.simulate(
    problem,
    start,
    ln.GradientDescent(said.lr),
    steps={_horizon(self._prediction(values))},
    record=ln.logarithmic({_RECORDS}),
    observe=["loss", "modes"],
)
data = run.to_xarray()
figure = run.plot(log="x")
"""

    def _reading(self, values: Values) -> _Reading:
        outputs = _given(values["file"]).columns.chosen(values.get("outputs"))
        return _Reading(outputs, values["standardise"], values["center"], values["intercept"])

    def _tables(self, values: Values) -> dict[str, dict[str, Any]]:
        given = _given(values["file"])
        with called(given.path, given.name):
            inputs = _samples(str(given.path), self._reading(values)).inputs.shape[1]
        return {**built(values, inputs), "training": {"lr": "auto" if values["auto"] else values["lr"]}}

    def _estimate(self, values: Values) -> predict.NetworkPrediction:
        """What is known at once: regimes and step sizes, but no times."""
        tables: dict[str, Any] = self._tables(values)
        situation = predict.Situation(**tables)
        return estimated(situation, problem=_samples(str(_given(values["file"]).path), self._reading(values)))

    def _prediction(self, values: Values) -> predict.NetworkPrediction:
        tables = json.dumps(self._tables(values))  # what is wrong with the file is said here
        return _said(str(_given(values["file"]).path), self._reading(values), tables)


def _horizon(said: predict.NetworkPrediction) -> int:
    """Somewhat more steps than it takes to learn, where that is known."""
    enough = said.learned.step
    if enough is None or not math.isfinite(enough):
        enough = 2000.0
    return int(np.clip(1.3 * enough, *_STEPS))


def _kernels(said: predict.NetworkPrediction) -> dict[str, dict[str, Any]]:
    """How much each mode's kernel grows, and where lazy ends and rich begins."""
    count = min(len(said.modes), _MODES)
    growth = np.array([mode.kernel_growth for mode in said.modes[:count]])
    return {
        "growth": {
            "mode": np.arange(1, count + 1),
            "growth": np.where((growth > 0) & np.isfinite(growth), growth, np.nan),
            "colour": list(COLOURS[:count]),
        },
        "levels": {
            "mode": np.array([0.5, count + 0.5]),
            "lazy below": np.full(2, LAZY_BELOW),
            "rich above": np.full(2, RICH_ABOVE),
        },
    }


def _shown(steps: np.ndarray, values: np.ndarray, end: float) -> tuple[np.ndarray, np.ndarray]:
    """A mode's share from the first step on; what leaves the picture is left out."""
    later = steps >= 1
    share = values[later] / end
    return steps[later], np.where(np.abs(share) <= _TOP, share, np.nan)


def _numbers(said: predict.NetworkPrediction) -> dict[str, str]:
    modes = {
        f"mode {i}, {mode.value:.3g}": f"{mode.regime}, half learned at step {told(mode.half_learned)}"
        for i, mode in enumerate(said.modes[:_MODES], 1)
    }
    return {
        "samples": f"{said.samples:,}",
        "inputs, outputs": f"{said.inputs:,}, {said.outputs:,}",
        "condition of the inputs": f"{said.condition:.3g}",
        "regime": str(said.regime),
        "step size": f"{said.lr:.3g}",
        "largest stable step where it ends": f"{said.largest_stable_lr:.3g}",
        "at the start": f"{said.largest_stable_lr_at_start:.3g}",
        "99 % learned at step": told(said.learned),
    } | modes
