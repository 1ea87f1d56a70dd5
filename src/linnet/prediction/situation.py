"""A problem, a network, and an optimizer as a user writes them down: tables in Python, or a small TOML file."""

import math
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, StrictFloat, StrictInt, ValidationError, model_validator

from linnet._check import InputError
from linnet._schema import Part, sentence
from linnet.prediction import validation
from linnet.prediction.initializers import INITIALIZERS, Initializer, deviations
from linnet.prediction.validation import LARGEST, SMALLEST

if TYPE_CHECKING:
    from linnet.optim import SGD
    from linnet.prediction.data import OwnSamples
    from linnet.prediction.prediction import Prediction
    from linnet.prediction.theories.network.result import Setup
    from linnet.problems import Regression
    from linnet.states import Weights

InitKind = Literal["gaussian", "one-zero", "balanced", Initializer]
Table = Mapping[str, Any]
_WIDEST = 10**15
_POWERS = 250  # decades that powers of a scale may reach
Scale = Annotated[float, Field(ge=0, le=LARGEST, allow_inf_nan=False)]
Dimension = Annotated[StrictInt, Field(ge=1, le=16_384)]
Names = str | list[str]


class DataTable(Part):
    """Samples in a file, or whitened inputs and the singular values of the target."""

    file: str | None = None
    spectrum: list[float] | None = Field(default=None, min_length=1, max_length=1000)
    inputs: Dimension | Names | None = None
    outputs: Dimension | Names | None = None
    loss: Literal["mean", "sum"] | None = None
    standardize: bool = False
    center: bool = False
    intercept: bool = False
    frozen: str | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> "DataTable":
        if (self.file is None) == (self.spectrum is None):
            raise ValueError("data needs one of file and spectrum")
        if isinstance(self.inputs, int) and self.file is not None:
            raise ValueError(f"data.inputs = {self.inputs} is not allowed with file: give names of its columns")
        if self.spectrum is not None:
            for name in ("loss", "standardize", "center", "intercept"):
                if getattr(self, name):
                    raise ValueError(f"data.{name} is not allowed with spectrum: there are no samples")
            if self.frozen is not None:
                raise ValueError("data.frozen is not allowed with spectrum: that is the spectrum of the change alone")
            try:
                validation.spectrum(self.spectrum, name="data.spectrum", zeros=True, ratio=1e12)
            except InputError as error:
                raise ValueError(str(error).removesuffix(".")) from None
            for name, size in (("inputs", self.inputs), ("outputs", self.outputs)):
                if isinstance(size, str | list):
                    raise ValueError(f"data.{name} = {size!r} is not allowed with spectrum: give a dimension")
                if size is not None and size < len(self.spectrum):
                    raise ValueError(f"data.{name} = {size} is less than the {len(self.spectrum)} singular values")
        return self


class NetworkTable(Part):
    """How many layers, and hidden neurons in each (one number, or one a hidden layer); alpha of an adapter."""

    depth: int = Field(default=2, ge=1, le=100)
    width: StrictInt | list[StrictInt] | None = None
    alpha: float | None = Field(default=None, ge=1e-10, le=1e10, allow_inf_nan=False)

    @model_validator(mode="after")
    def _fits(self) -> "NetworkTable":
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


class InitTable(Part):
    """The initialization."""

    kind: InitKind = "gaussian"
    scale: Scale | list[Scale] | None = None
    seed: int = Field(default=0, ge=0, lt=2**63)

    @model_validator(mode="after")
    def _sized(self) -> "InitTable":
        if self.kind in INITIALIZERS and self.scale is not None:
            raise ValueError(f"init.scale is not allowed with init.kind = {self.kind!r}: the name says the scales")
        scales = self.scale if isinstance(self.scale, list) else [] if self.scale is None else [self.scale]
        if any(0 < x < SMALLEST for x in scales):
            raise ValueError(f"init.scale = {self.scale} is not allowed: give scales from {SMALLEST:g} to {LARGEST:g}")
        if self.kind != "gaussian" and (isinstance(self.scale, list) or self.scale == 0):
            raise ValueError(f"init.scale = {self.scale} is not allowed: {self.kind} layers need one positive scale")
        if scales and not any(scales):
            raise ValueError("init.scale is zero, and a network of zeros never moves")
        return self

    @property
    def family(self) -> str:
        """gaussian, one-zero or balanced: PyTorch's initializers are Gaussian ones of known scales."""
        return "gaussian" if self.kind in INITIALIZERS else self.kind

    @property
    def empty(self) -> bool:
        """Whether the last layer is zero, as that of an adapter."""
        return self.kind == "lora" or (isinstance(self.scale, list) and self.scale[-1] == 0)

    def scales(self, sizes: tuple[int, ...], top: float) -> tuple[float, ...]:
        """One number a layer: standard deviations, or alpha. `sizes` are the neurons from inputs to outputs, `top` the
        largest singular value that the network can learn.
        """
        depth = len(sizes) - 1
        if self.kind in INITIALIZERS:
            scale = deviations(self.kind, sizes)
        elif isinstance(self.scale, list):
            if len(self.scale) != depth:
                raise InputError(
                    f"init.scale has {len(self.scale)} numbers: give one, or one for each of the {depth} layers."
                )
            scale = self.scale
        elif self.scale is None and self.kind == "gaussian":
            scale = [1 / math.sqrt(fan_in) for fan_in in sizes[:-1]]
        else:
            scale = [0.01 * top ** (1 / depth) if self.scale is None else self.scale] * depth
        if 2 * depth * math.log10(max(scale)) > _POWERS:
            raise InputError(
                f"init.scale = {max(scale):g} is not allowed with depth {depth}: its {2 * depth}th power overflows."
            )
        return tuple(scale)


class TrainingTable(Part):
    """The learning rate, momentum, weight decay, batches, and how many modes are signal."""

    lr: StrictInt | StrictFloat | str = "auto"
    momentum: float = Field(default=0.0, ge=0, lt=1)
    dampening: float = Field(default=0.0, ge=0, lt=1)
    nesterov: bool = False
    weight_decay: float = Field(default=0.0, ge=0, le=LARGEST, allow_inf_nan=False)
    decoupled: bool = False
    batch_size: int | None = Field(default=None, ge=1)
    signal: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _positive(self) -> "TrainingTable":
        if self.lr != "auto" and not (isinstance(self.lr, int | float) and 0 < self.lr <= 1e200):
            raise ValueError(f"training.lr = {self.lr!r} is not allowed: give a positive number, or auto")
        return self


class Situation(Part):
    """A problem, a network, and an optimizer in four tables; only what differs from the defaults has to be given.

    - `data`: `spectrum` (singular values of the target on whitened inputs, with `inputs` and `outputs` for more
      dimensions), or `file` with `inputs`, `outputs`, `standardize`, `center`, `intercept` and `frozen` as
      `read_regression` has them, and `loss` "sum", 1/2 sum of squares (default), or "mean", 1/(2n) of it. Nothing where
      a problem is given.
    - `network`: `depth` (2), `width` (hidden neurons: one number, or one a hidden layer), `alpha` (of an adapter of
      rank r = width: the product of its two factors is multiplied by alpha/r).
    - `init`: `kind` ("gaussian", "one-zero" or "balanced"; or kaiming_uniform, kaiming_normal, xavier_uniform,
      xavier_normal, torch_linear, lora: gaussian with the variances of PyTorch's initializers), `scale` (standard
      deviation of gaussian weights, one or one a layer; alpha of one-zero and balanced), `seed`.
    - `training`: `lr` ("auto": a tenth of the largest stable), `momentum`, `dampening`, `nesterov`,
      `weight_decay`, `decoupled` (as `linnet.optim.SGD` has them), `batch_size` (the largest stable lr with such
      batches, and what a run trains on; all other quantities are those of training on all samples), `signal` (how many
      modes are signal: when to stop).

        Situation(data={"spectrum": [3, 1]}, network={"depth": 2, "width": 64}, init={"scale": 0.1}).predict()
    """

    title: str = ""
    data: DataTable | None = None
    network: NetworkTable = NetworkTable()
    init: InitTable = InitTable()
    training: TrainingTable = TrainingTable()

    def __init__(
        self,
        *,
        title: str = "",
        data: Table | None = None,
        network: Table | None = None,
        init: Table | None = None,
        training: Table | None = None,
        **unknown: Any,
    ) -> None:
        named = {"title": title, "data": data, "network": network, "init": init, "training": training}
        tables = {name: _plain(value) for name, value in named.items() if value is not None}
        try:
            super().__init__(**tables, **unknown)
        except ValidationError as error:
            raise InputError(sentence(error)) from None

    def triple(self, problem: "Regression | OwnSamples | None" = None) -> "tuple[Regression, Weights, SGD]":
        """The problem, the network, and the optimizer, for `simulate` and `predict`; lr = "auto" becomes a number.

        `problem` replaces the situation's data. Of a spectrum with more than 2000 inputs or outputs only those remain
        that training reaches.
        """
        from linnet.prediction.theories.network.build import triple

        return triple(self, problem)

    def setup(self, problem: "Regression | OwnSamples | None" = None) -> "Setup":
        """What `predict` needs of the triple: problem and layers in the coordinates of the samples, or of the modes of
        a spectrum.
        """
        from linnet.prediction.theories.network.build import prepared

        return prepared(self, problem)

    def predict(self, problem: "Regression | OwnSamples | None" = None, *, follow: bool = True) -> "Prediction":
        """The prediction of `linnet.prediction.network` for this triple, with how it was made.

        Without `follow` closed forms alone are used, at once: where they are not exact, times are unknown.
        """
        from linnet.prediction.theories.network.build import predict

        return predict(self, problem, follow=follow)


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

    `changes` are these tables, by name: data, network, init, training.
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
                old = {}  # other data: what held for the first does not
            tables[name] = {**(old if isinstance(old, dict) else {}), **fresh}
    try:
        return Situation(**tables)
    except InputError as error:
        raise InputError(f"{where}{error}") from None


def _path(file: str | Path) -> Path:
    return examples().get(str(file), Path(file))
