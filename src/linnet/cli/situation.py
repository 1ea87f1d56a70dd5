"""A network and its task as a user writes them down: a small TOML file, or flags."""

import tomllib
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, StrictFloat, StrictInt, ValidationError, model_validator

from linnet._check import InputError
from linnet._part import Part, sentence
from linnet.cli.typed import LARGEST, SMALLEST

START = Literal["gaussian", "one-zero", "balanced"]
_WIDEST = 10**15
Scale = Annotated[float, Field(ge=0, le=LARGEST, allow_inf_nan=False)]


class Data(Part):
    """Samples in a file, or whitened inputs and the singular values of the target."""

    file: str | None = None
    spectrum: list[float] | None = Field(default=None, min_length=1, max_length=1000)
    inputs: int | None = Field(default=None, ge=1, le=2000)
    outputs: int | None = Field(default=None, ge=1, le=2000)
    loss: Literal["mean", "sum"] | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> "Data":
        if (self.file is None) == (self.spectrum is None):
            raise ValueError("data needs one of file and spectrum")
        if self.file is not None and self.inputs is not None:
            raise ValueError("data.inputs is not allowed with file: its columns say it")
        if self.spectrum is not None:
            if self.loss is not None:
                raise ValueError("data.loss is not allowed with spectrum: there are no samples")
            if any(not (x == 0 or SMALLEST <= x <= LARGEST) for x in self.spectrum):
                raise ValueError(f"data.spectrum needs numbers that are 0 or from {SMALLEST:g} to {LARGEST:g}")
            if not any(self.spectrum):
                raise ValueError("data.spectrum is zero, so there is nothing to learn")
            for name, size in (("inputs", self.inputs), ("outputs", self.outputs)):
                if size is not None and size < len(self.spectrum):
                    raise ValueError(f"data.{name} = {size} is less than the {len(self.spectrum)} singular values")
        return self


class Network(Part):
    """Layers, and hidden neurons in each (one number, or one a hidden layer)."""

    depth: int = Field(default=2, ge=1, le=100)
    width: StrictInt | list[StrictInt] | None = None

    @model_validator(mode="after")
    def _fits(self) -> "Network":
        widths = self.width if isinstance(self.width, list) else [1 if self.width is None else self.width]
        if any(not 1 <= w <= _WIDEST for w in widths):
            shown = [w if abs(w) <= _WIDEST else f"{w:.3g}" if abs(w) < 10**300 else "huge" for w in widths]
            raise ValueError(f"network.width = {shown} is not allowed: give 1 to {_WIDEST:.0e} neurons")
        if isinstance(self.width, list) and len(widths) != self.depth - 1:
            raise ValueError(f"network.width has {len(widths)} numbers, and depth {self.depth} has {self.depth - 1}")
        if self.width is not None and self.depth == 1:
            raise ValueError("network.width is not allowed with depth 1: one layer has no hidden neurons")
        return self

    def hidden(self, default: int) -> list[int]:
        """The hidden widths."""
        if isinstance(self.width, list):
            return self.width
        return [default if self.width is None else self.width] * (self.depth - 1)


class Start(Part):
    """Where training begins."""

    kind: START = "gaussian"
    scale: Scale | list[Scale] | None = None
    seed: int = Field(default=0, ge=0, lt=2**63)

    @model_validator(mode="after")
    def _sized(self) -> "Start":
        scales = self.scale if isinstance(self.scale, list) else [] if self.scale is None else [self.scale]
        if any(0 < x < SMALLEST for x in scales):
            raise ValueError(f"start.scale = {self.scale} is not allowed: give scales from {SMALLEST:g} to {LARGEST:g}")
        if self.kind != "gaussian" and (isinstance(self.scale, list) or self.scale == 0):
            raise ValueError(f"start.scale = {self.scale} is not allowed: a {self.kind} start needs one positive scale")
        if scales and not any(scales):
            raise ValueError("start.scale is zero, and a network of zeros never moves")
        return self


class Training(Part):
    """The step size, and how many modes are signal."""

    lr: StrictInt | StrictFloat | str = "auto"
    signal: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _a_step(self) -> "Training":
        if self.lr != "auto" and not (isinstance(self.lr, int | float) and 0 < self.lr <= 1e200):
            raise ValueError(f"training.lr = {self.lr!r} is not allowed: give a positive number, or auto")
        return self


class Situation(Part):
    """All that a prediction needs to know."""

    title: str = ""
    data: Data
    network: Network = Network()
    start: Start = Start()
    training: Training = Training()


def examples() -> dict[str, Path]:
    """The files that come with Linnet, by name."""
    folder = Path(str(resources.files("linnet.examples")))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def flags(
    data: Path | None,
    spectrum: str | None,
    depth: int | None,
    width: str | None,
    start: str | None,
    scale: str | None,
    lr: str | None,
    signal: int | None,
    seed: int | None,
) -> dict[str, dict[str, Any]]:
    """What was typed on the command line, as tables of the file."""

    def listed(name: str, text: str | None, whole: bool = False) -> Any:
        if text is None:
            return None
        try:
            values = [int(part) if whole else float(part) for part in text.split(",")]
        except ValueError:
            kind = "whole numbers" if whole else "numbers"
            raise InputError(f"{name} = {text!r} is not allowed: give {kind} with commas, such as 3,2.") from None
        return values[0] if len(values) == 1 else values

    values = listed("spectrum", spectrum)
    step = lr if lr is None or lr == "auto" else listed("lr", lr)
    return {
        "data": {
            "file": None if data is None else str(data),
            "spectrum": values if values is None else np.ravel(values).tolist(),
        },
        "network": {"depth": depth, "width": listed("width", width, whole=True)},
        "start": {"kind": start, "scale": listed("scale", scale), "seed": seed},
        "training": {"lr": step, "signal": signal},
    }


def text(given: str | None) -> str:
    """A file as it stands."""
    if given is None:
        raise InputError(f"file is missing: name an example to show: {', '.join(examples())}.")
    return _text(examples().get(given, Path(given)))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{str(path)!r} cannot be read: it is not text in UTF-8.") from None
    except OSError as error:
        why = error.strerror or "it is damaged"
        known = ", ".join(examples())
        raise InputError(f"{str(path)!r} cannot be read: {why.lower()}; give a TOML file, or one of {known}.") from None


def read(given: str | None, flags: dict[str, dict[str, Any]]) -> Situation:
    """The situation in a TOML file or example, with what flags change; without a file, flags alone."""
    tables: dict[str, Any] = {}
    where, folder = "the command", Path()
    if given is not None:
        path = examples().get(given, Path(given))
        where, folder = str(path), path.parent
        try:
            tables = tomllib.loads(_text(path))
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"{where} is not TOML: {error}.") from None
        if not tables:
            raise InputError(f"{where} is empty: give at least [data] with a file or a spectrum.")
    data = tables.get("data")
    if isinstance(data, dict) and isinstance(data.get("file"), str):
        data["file"] = str(folder / data["file"])
    for name, changed in flags.items():
        fresh = {field: value for field, value in changed.items() if value is not None}
        if fresh:
            old = tables.get(name, {})
            if name == "data" and {"file", "spectrum"} & set(fresh):
                old = {}  # other data: what was said of the first does not hold
            tables[name] = {**(old if isinstance(old, dict) else {}), **fresh}
    if "data" not in tables:
        raise InputError(f"{where}: data is missing: give a TOML file, or --spectrum 3,1,0.5, or --data FILE.")
    try:
        return Situation.model_validate(tables)
    except ValidationError as error:
        raise InputError(f"{where}: {sentence(error)}") from None
