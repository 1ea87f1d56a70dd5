"""A network and its task as a user writes them down: tables in Python, or a small TOML file."""

import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StrictFloat, StrictInt, ValidationError, model_validator

from linnet._check import InputError
from linnet._part import Part, sentence
from linnet.predict import asked
from linnet.predict.asked import LARGEST, SMALLEST
from linnet.predict.initialisers import INITIALISERS, Initialiser

StartKind = Literal["gaussian", "one-zero", "balanced", Initialiser]
Table = Mapping[str, Any]
_WIDEST = 10**15
Scale = Annotated[float, Field(ge=0, le=LARGEST, allow_inf_nan=False)]
Dimension = Annotated[StrictInt, Field(ge=1, le=16_384)]
Names = str | list[str]


class Data(Part):
    """Samples in a file, or whitened inputs and the singular values of the target."""

    file: str | None = None
    spectrum: list[float] | None = Field(default=None, min_length=1, max_length=1000)
    inputs: Dimension | Names | None = None
    outputs: Dimension | Names | None = None
    loss: Literal["mean", "sum"] | None = None
    standardise: bool = False
    center: bool = False
    intercept: bool = False
    frozen: str | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> "Data":
        if (self.file is None) == (self.spectrum is None):
            raise ValueError("data needs one of file and spectrum")
        if isinstance(self.inputs, int) and self.file is not None:
            raise ValueError(f"data.inputs = {self.inputs} is not allowed with file: give names of its columns")
        if self.spectrum is not None:
            told = {"loss": self.loss, "standardise": self.standardise, "center": self.center}
            for name, value in (told | {"intercept": self.intercept}).items():
                if value:
                    raise ValueError(f"data.{name} is not allowed with spectrum: there are no samples")
            if self.frozen is not None:
                raise ValueError("data.frozen is not allowed with spectrum: that is the spectrum of the change alone")
            try:
                asked.spectrum(self.spectrum, name="data.spectrum", zeros=True, ratio=1e12)
            except InputError as error:
                raise ValueError(str(error).removesuffix(".")) from None
            for name, size in (("inputs", self.inputs), ("outputs", self.outputs)):
                if isinstance(size, str | list):
                    raise ValueError(f"data.{name} = {size!r} is not allowed with spectrum: give a dimension")
                if size is not None and size < len(self.spectrum):
                    raise ValueError(f"data.{name} = {size} is less than the {len(self.spectrum)} singular values")
        return self


class Layers(Part):
    """How many layers, and hidden neurons in each (one number, or one a hidden layer); alpha of an adapter."""

    depth: int = Field(default=2, ge=1, le=100)
    width: StrictInt | list[StrictInt] | None = None
    alpha: float | None = Field(default=None, ge=1e-10, le=1e10, allow_inf_nan=False)

    @model_validator(mode="after")
    def _fits(self) -> "Layers":
        widths = self.width if isinstance(self.width, list) else [1 if self.width is None else self.width]
        if any(not 1 <= w <= _WIDEST for w in widths):
            shown = [w if abs(w) <= _WIDEST else f"{w:.3g}" if abs(w) < 10**300 else "huge" for w in widths]
            raise ValueError(f"network.width = {shown} is not allowed: give 1 to {_WIDEST:.0e} neurons")
        if isinstance(self.width, list) and len(widths) != self.depth - 1:
            raise ValueError(f"network.width has {len(widths)} numbers, and depth {self.depth} has {self.depth - 1}")
        if self.width is not None and self.depth == 1:
            raise ValueError("network.width is not allowed with depth 1: one layer has no hidden neurons")
        if self.alpha is not None and (self.depth != 2 or self.width is None):
            raise ValueError("network.alpha needs depth 2 and a width, the rank r: the product is scaled by alpha/r")
        return self

    @property
    def scaling(self) -> float:
        """What the product of the layers is multiplied by: alpha/r of an adapter, else 1."""
        return 1.0 if self.alpha is None else self.alpha / self.hidden(1)[0]

    def hidden(self, default: int) -> list[int]:
        """The hidden widths."""
        if isinstance(self.width, list):
            return self.width
        return [default if self.width is None else self.width] * (self.depth - 1)


class Start(Part):
    """Where training begins."""

    kind: StartKind = "gaussian"
    scale: Scale | list[Scale] | None = None
    seed: int = Field(default=0, ge=0, lt=2**63)

    @model_validator(mode="after")
    def _sized(self) -> "Start":
        if self.kind in INITIALISERS and self.scale is not None:
            raise ValueError(f"start.scale is not allowed with start.kind = {self.kind!r}: the name says the scales")
        scales = self.scale if isinstance(self.scale, list) else [] if self.scale is None else [self.scale]
        if any(0 < x < SMALLEST for x in scales):
            raise ValueError(f"start.scale = {self.scale} is not allowed: give scales from {SMALLEST:g} to {LARGEST:g}")
        if self.kind != "gaussian" and (isinstance(self.scale, list) or self.scale == 0):
            raise ValueError(f"start.scale = {self.scale} is not allowed: a {self.kind} start needs one positive scale")
        if scales and not any(scales):
            raise ValueError("start.scale is zero, and a network of zeros never moves")
        return self

    @property
    def family(self) -> str:
        """gaussian, one-zero or balanced: PyTorch's starts are Gaussian ones of known scales."""
        return "gaussian" if self.kind in INITIALISERS else self.kind


class Training(Part):
    """The step size, momentum, decay, batches, and how many modes are signal."""

    lr: StrictInt | StrictFloat | str = "auto"
    beta: float = Field(default=0.0, ge=0, lt=1)
    nesterov: bool = False
    averaged: bool = False
    decay: float = Field(default=0.0, ge=0, le=LARGEST, allow_inf_nan=False)
    decoupled: bool = False
    batch: int | None = Field(default=None, ge=1)
    signal: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _a_step(self) -> "Training":
        if self.lr != "auto" and not (isinstance(self.lr, int | float) and 0 < self.lr <= 1e200):
            raise ValueError(f"training.lr = {self.lr!r} is not allowed: give a positive number, or auto")
        return self


class Situation(Part):
    """All that `network` needs to know, in four tables; only what differs from the defaults has to be said.

    - `data`: `spectrum` (singular values of the target on whitened inputs, with `inputs` and `outputs` for more
      dimensions), or `file` with `inputs`, `outputs`, `standardise`, `center`, `intercept` and `frozen` as
      `read_regression` has them, and `loss` "sum", 1/2 sum of squares (default), or "mean", 1/(2n) of it. Nothing where
      a problem is given.
    - `network`: `depth` (2), `width` (hidden neurons: one number, or one a hidden layer), `alpha` (of an adapter of
      rank r = width: the product of its two factors is multiplied by alpha/r).
    - `start`: `kind` ("gaussian", "one-zero" or "balanced"; or kaiming_uniform, kaiming_normal, xavier_uniform,
      xavier_normal, torch_linear, lora: gaussian with the variances of PyTorch's initialisers), `scale` (standard
      deviation of gaussian weights, one or one a layer; alpha of one-zero and balanced), `seed`.
    - `training`: `lr` ("auto": a tenth of the largest stable), `beta` (momentum: v <- beta v + g; `nesterov`: steps go
      along g + beta v; `averaged`: v <- beta v + (1 - beta) g), `decay` (of the loss + decay/2 sum |W_l|^2;
      `decoupled`: weights shrink by lr decay beside the step), `batch` (samples that a step sees: the largest stable
      lr with them, and what a run trains on; all else is told of training on all samples), `signal` (how many modes
      are signal: when to stop).

        Situation(data={"spectrum": [3, 1]}, network={"depth": 2, "width": 64}, start={"scale": 0.1})
    """

    title: str = ""
    data: Data | None = None
    network: Layers = Layers()
    start: Start = Start()
    training: Training = Training()

    def __init__(
        self,
        *,
        title: str = "",
        data: Table | None = None,
        network: Table | None = None,
        start: Table | None = None,
        training: Table | None = None,
        **unknown: Any,
    ) -> None:
        named = {"title": title, "data": data, "network": network, "start": start, "training": training}
        tables = {name: _plain(value) for name, value in named.items() if value is not None}
        try:
            super().__init__(**tables, **unknown)
        except ValidationError as error:
            raise InputError(sentence(error)) from None


def _plain(value: Any) -> Any:
    """What a TOML file could hold: arrays become lists, paths text."""
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, Path):
        return str(value)
    return value.tolist() if hasattr(value, "tolist") else value


def examples() -> dict[str, Path]:
    """The files that come with Linnet, by name."""
    folder = Path(str(resources.files("linnet.examples")))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def situation_text(file: str | Path | None) -> str:
    """A TOML file or an example as it stands."""
    if file is None:
        raise InputError(f"file is missing: name an example to show: {', '.join(examples())}.")
    path = _path(file)
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{str(path)!r} cannot be read: it is not text in UTF-8.") from None
    except OSError as error:
        why = error.strerror or "it is damaged"
        known = ", ".join(examples())
        raise InputError(f"{str(path)!r} cannot be read: {why.lower()}; give a TOML file, or one of {known}.") from None


def read_situation(file: str | Path | None = None, **changes: Table) -> Situation:
    """The situation in a TOML file or an example (edge, lazy, lora, own-data, small-start), with tables that change it.

    `read_situation("lora", training={"lr": 0.1})`. What a table does not name, or names None, stays as it is; other
    data replace the whole table. Without a file the tables stand alone.
    """
    tables: dict[str, Any] = {}
    where = "" if file is None else f"{_path(file)}: "
    if file is not None:
        try:
            tables = tomllib.loads(situation_text(file))
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"{_path(file)} is not TOML: {error}.") from None
        if not tables:
            raise InputError(f"{_path(file)} is empty: give at least [data] with a file or a spectrum.")
        data = tables.get("data")
        for field in ("file", "frozen"):
            if isinstance(data, dict) and isinstance(data.get(field), str):
                data[field] = str(_path(file).parent / data[field])
    for name, changed in changes.items():
        fresh = {key: value for key, value in changed.items() if value is not None}
        if fresh:
            old = tables.get(name, {})
            if name == "data" and {"file", "spectrum"} & set(fresh):
                old = {}  # other data: what was said of the first does not hold
            tables[name] = {**(old if isinstance(old, dict) else {}), **fresh}
    try:
        return Situation(**tables)
    except InputError as error:
        raise InputError(f"{where}{error}") from None


def _path(file: str | Path) -> Path:
    return examples().get(str(file), Path(file))
