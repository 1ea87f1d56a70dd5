"""The tables of a situation, as a TOML file has them."""

import math
from typing import Annotated, Literal

from pydantic import Field, StrictFloat, StrictInt, model_validator

from linnet._check import InputError
from linnet._schema import Part
from linnet.prediction import validation
from linnet.prediction.initializers import INITIALIZERS, Initializer, deviations
from linnet.prediction.validation import LARGEST, SMALLEST

InitKind = Literal["gaussian", "one-zero", "balanced", Initializer]
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
