"""Your data: a table of samples, and the training of a network on it, predicted and exact."""

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

import linnet as ln
from linnet._check import InputError
from linnet.data import SUFFIXES, read_pair, read_table
from linnet.lab.control import Choice, Control, File, Several, Slider, Switch, Values
from linnet.lab.page import Page, Update, as_toml, headline
from linnet.lab.pages.network import (
    INIT_HINTS,
    init_controls,
    mode_columns,
    mode_panel,
    network_controls,
    network_tables,
    quantities,
    tables_as_arguments,
    until,
)
from linnet.lab.panel import COLORS, BokehPanel, Sources
from linnet.lab.upload_cache import UploadCache, called
from linnet.lab.work import affordable
from linnet.prediction import Quantity, mode_curve
from linnet.theory.regime import LAZY_BELOW, RICH_ABOVE

_MODES = len(COLORS)
_MOST = 8 << 20  # bytes of a file that are sent
_LISTED = 100  # columns to choose labels among
_TOP = 1.6  # the largest share of a mode that is drawn


# The code that the page shows -----------------------------------------------------------------------------------------


def steps_to_train(prediction: ln.prediction.Prediction) -> int:
    """30 % more steps than it takes to learn 99 %, from 200 to 20,000; 2,600 where that is unknown."""
    learned = prediction.learned.step
    known = learned is not None and math.isfinite(learned)
    return int(np.clip(1.3 * (learned if known else 2000.0), 200, 20_000))


def train(prediction: ln.prediction.Prediction) -> ln.Trajectory:
    """The exact training of what was predicted."""
    return ln.simulate(
        prediction.problem,
        prediction.network,
        ln.optim.SGD(prediction.lr),
        steps=steps_to_train(prediction),
        record=ln.record.logarithmic(300),
        observe=["loss", "modes"],
    )


# The file ------------------------------------------------------------------------------------------------------------


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
        return (Several(**text, value=value or [*options][-1:], options=options),)

    def chosen(self, value: Any) -> int | list[str] | None:
        """The labels as an argument of `read_regression`."""
        if not self.names:
            return None if value is None else int(value)
        return [self.names[int(number)] for number in value]


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


_UPLOADS = UploadCache(_read)
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
    found = _UPLOADS.find(digest, Path(name).suffix.lower())
    if found is None:
        raise InputError(f"{name} is not kept here any more: drop the file again.")
    return _Given(name, *found)


class DataPage(Page):
    """A file with samples: which of its modes a network learns, how, and when."""

    name = "data"
    title = "Your data"
    lead = (
        "Drop a table of numbers and say which columns are labels: what a linear network learns of it, in which order, "
        "and with which learning rate."
    )
    formula = r"\frac{1}{2n}\,\lVert X\,(W_L \cdots W_1)^\top - Y \rVert^2"
    theory = ("spectral", "mixed", "stability")
    claims = ("mixed/C6", "spectral/C8", "spectral/C25", "stability/C1")
    controls = (
        File("file", "A file with samples as rows", "", accept=",".join(SUFFIXES), most=_MOST, group="Data"),
        Switch("standardize", "Inputs to mean 0, variance 1", True, group="Data"),
        Switch("center", "Subtract the means", True, group="Data"),
        Switch("intercept", "An input that is always 1", False, group="Data"),
        *network_controls(width=100),
        *init_controls(scale=0.03, largest=10.0),
        Switch("auto", "Choose the learning rate for me", True, group="Training"),
        Slider("lr", "Learning rate", 0.05, low=1e-6, high=10.0, log=True, group="Training"),
    )
    hints: ClassVar = {
        **INIT_HINTS,
        "file": "Text (csv), npz with X and y, npy or parquet. It stays on the machine that serves this page.",
        "lr": "Where it is not chosen for you.",
        "outputs": "All others are inputs.",
    }
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "the example: six inputs, two labels": {"file": "", "outputs": _EXAMPLE_LABELS},
        "rich: from a small initialization": {"scale": 1e-4},
        "lazy: wide, from a large initialization": {"width": 10**6, "scale": 10.0},
        "three layers, in balance": {"depth": 3, "init": "balanced", "scale": 0.1},
    }
    functions = (steps_to_train, train)
    imports = ("import math", "from importlib import resources", "import linnet as ln", "import numpy as np")

    def controls_for(self, given: Mapping[str, Any]) -> tuple[Control, ...]:
        file, *others = self.controls
        kept = file.check(given.get("file", ""))
        labels = _given(kept).columns.labels(None if kept else _EXAMPLE_LABELS)
        return (replace(file, value=kept), *labels, *others)

    def on_upload(self, name: str, size: int, content: bytes | None, values: Values) -> Values:
        name = re.sub(r"[/\\\x00-\x1f\x7f]", "_", name.encode("utf-8", "replace").decode("utf-8"))[-120:]
        suffix = Path(name).suffix.lower()
        if suffix not in SUFFIXES:
            raise InputError(f"data = {name!r} is not allowed: it must end in {', '.join(SUFFIXES)}.")
        if content is None or len(content) > _MOST:
            raise InputError(
                f"{name} has {size / 2**20:,.1f} MiB, and {_MOST >> 20} MiB are the most that is sent here: use linnet "
                "predict network --data FILE."
            )
        digest = _UPLOADS.keep(content, suffix, name)
        others = {key: value for key, value in values.items() if key != "outputs"}
        return self.checked(others | {"file": f"{digest}/{name}"})

    def panels(self, sources: Sources) -> list[BokehPanel]:
        from bokeh.models import BasicTicker

        caption = "The learned share of each direction of the best fit, step by step."
        modes = mode_panel(sources, caption, "learned share of a mode", log="x")
        caption = "Half the mean squared error above that of the best fit, exactly trained."
        loss = BokehPanel(sources, "loss", "Loss", caption, "step", "loss", log="xy")
        loss.line("loss", "step", "loss", color=COLORS[1])
        caption = "Growth of each mode's kernel: below both lines features stay, above they are learned."
        kernel = BokehPanel(sources, "kernel", "Lazy or rich", caption, "mode", "growth of its kernel", log="y")
        kernel.figure.xaxis[0].ticker = BasicTicker(min_interval=1, num_minor_ticks=0)
        kernel.line("levels", "mode", "lazy below", "dotted", label="lazy below")
        kernel.line("levels", "mode", "rich above", "dashed", label="rich above")
        kernel.legend("center_right")
        kernel.points("growth", "mode", "growth", color="color", size=12)
        return [modes, loss, kernel]

    def afford(self, values: Values) -> None:
        situation = ln.prediction.Situation.model_validate(self._tables(values))
        samples = _samples(str(_given(values["file"]).path), json.dumps(self._reading(values)))
        affordable(situation.setup(samples))

    def updates(self, values: Values) -> Iterator[Update]:
        tables, path = self._tables(values), str(_given(values["file"]).path)
        arguments = json.dumps(self._reading(values)), json.dumps(tables)
        if values["depth"] > 1:  # following more than one layer takes longer than closed forms
            rough = _predict(path, *arguments, follow=False)
            yield Update(_kernels(rough), quantities=_quantities(rough))
        prediction = _predict(path, *arguments)
        count, steps = min(len(prediction.modes), _MODES), float(steps_to_train(prediction))
        ends = [mode.value for mode in prediction.modes[:count]]
        curves = [_share(*until(*mode_curve(prediction, i), steps), ends[i]) for i in range(count)]
        yield Update(
            {"predicted": mode_columns(curves), **_kernels(prediction)},
            headline=headline(None, prediction),
            quantities=_quantities(prediction),
        )
        run = train(prediction)
        clock, modes, loss = np.asarray(run.steps), np.asarray(run["modes"]), np.asarray(run["loss"])
        shown = (clock > 0) & (loss > 0) & np.isfinite(loss)
        yield Update(
            {
                "measured": mode_columns([_share(clock, modes[:, i], ends[i]) for i in range(count)]),
                "loss": {"step": clock[shown], "loss": loss[shown]},
            },
            headline=headline(run, prediction),
        )

    def script(self, values: Values) -> str:
        # the example is in the package, wherever that is
        example = f'str(resources.files("linnet.examples") / "{_EXAMPLE}")'
        return self._script(values, repr(_given(values["file"]).name) if values["file"] else example)

    def executed_code(self, values: Values) -> str:
        path = repr(str(_given(values["file"]).path))
        return self.code(values).replace(self.script(values), self._script(values, path))

    def toml(self, values: Values) -> str:
        data = {"file": _given(values["file"]).name, **self._reading(values), "loss": "mean"}
        return as_toml({"data": data, **self._tables(values)})

    def _script(self, values: Values, file: str) -> str:
        reading = "".join(f"    {key}={value!r},\n" for key, value in self._reading(values).items())
        return f"""\
samples = ln.prediction.read_regression(
    {file},
{reading}    average=True,
)
situation = ln.prediction.Situation(
    {tables_as_arguments(self._tables(values))}
)
prediction = situation.predict(samples)
print(prediction)
run = train(prediction)
data = run.to_xarray()
figure = run.plot(log="x")
"""

    def _reading(self, values: Values) -> dict[str, Any]:
        """Arguments of `read_regression` that differ from its defaults."""
        outputs = _given(values["file"]).columns.chosen(values.get("outputs"))
        given = {"outputs": outputs} | {name: values[name] for name in ("standardize", "center", "intercept")}
        return {name: value for name, value in given.items() if value}

    def _tables(self, values: Values) -> dict[str, dict[str, Any]]:
        """The tables of a `Situation`."""
        given = _given(values["file"])
        with called(given.path, given.name):
            inputs = _samples(str(given.path), json.dumps(self._reading(values))).inputs.shape[1]
        return {**network_tables(values, inputs), "training": {"lr": "auto" if values["auto"] else values["lr"]}}


@lru_cache(maxsize=4)
def _samples(path: str, reading: str) -> ln.prediction.OwnSamples:
    return ln.prediction.read_regression(path, **json.loads(reading), average=True)


@lru_cache(maxsize=4)
def _predict(path: str, reading: str, tables: str, *, follow: bool = True) -> ln.prediction.Prediction:
    """The prediction; without `follow` by closed forms alone, with regimes and learning rates but no times."""
    return ln.prediction.Situation(**json.loads(tables)).predict(_samples(path, reading), follow=follow)


def _quantities(prediction: ln.prediction.Prediction) -> tuple[Quantity, ...]:
    """The size and the condition of the samples, and what is predicted."""
    return (
        Quantity("samples", prediction.samples, "samples"),
        Quantity("inputs", prediction.inputs, "inputs"),
        Quantity("outputs", prediction.outputs, "labels"),
        Quantity("condition", prediction.condition, "condition of the inputs", format=".3g"),
        *quantities(prediction),
    )


def _kernels(prediction: ln.prediction.Prediction) -> dict[str, dict[str, Any]]:
    """How much each mode's kernel grows, and where lazy ends and rich begins."""
    count = min(len(prediction.modes), _MODES)
    growth = np.array([mode.kernel_growth for mode in prediction.modes[:count]])
    return {
        "growth": {
            "mode": np.arange(1, count + 1),
            "growth": np.where((growth > 0) & np.isfinite(growth), growth, np.nan),
            "color": list(COLORS[:count]),
        },
        "levels": {
            "mode": np.array([0.5, count + 0.5]),
            "lazy below": np.full(2, LAZY_BELOW),
            "rich above": np.full(2, RICH_ABOVE),
        },
    }


def _share(steps: np.ndarray, values: np.ndarray, end: float) -> tuple[np.ndarray, np.ndarray]:
    """The learned share of a mode from the first step on; NaN where it is too large to be drawn."""
    later = steps >= 1
    share = values[later] / end
    return steps[later], np.where(np.abs(share) <= _TOP, share, np.nan)
