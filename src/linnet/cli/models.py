"""The input models of `linnet predict`, one for each topic.

The fields of a model are the options of its command: their types, defaults, and descriptions make the help. `predict`
calls the topic of `linnet.prediction`, which checks the values and loads on first use, so that help is fast.
"""

from abc import abstractmethod
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer
from pydantic import BeforeValidator, Field, ValidationInfo

import linnet as ln
from linnet import _input
from linnet._input import InputError
from linnet._schema import Part
from linnet.cli import typed


def _numbers(text: Any, info: ValidationInfo) -> Any:
    return typed.numbers(str(info.field_name), text) if isinstance(text, str) else text


def _one_or_more(text: Any, info: ValidationInfo) -> Any:
    """One number, or several as a list."""
    values = _numbers(text, info) if text != "auto" else text
    return values[0] if isinstance(values, list) and len(values) == 1 else values


def _counts(text: Any, info: ValidationInfo) -> Any:
    """One whole number, or several as a list."""
    values = typed.numbers(str(info.field_name), text, whole=True) if isinstance(text, str) else text
    return values[0] if isinstance(values, list) and len(values) == 1 else values


def _columns(text: Any) -> Any:
    return typed.columns(text) if isinstance(text, str) else text


_BUILT = 2000  # inputs up to which the network I_gamma is built

Numbers = Annotated[list[float], BeforeValidator(_numbers)]
NumberOrList = Annotated[Any, BeforeValidator(_one_or_more)]
CountOrList = Annotated[Any, BeforeValidator(_counts)]
Columns = Annotated[int | str, BeforeValidator(_columns)]

Data = Annotated[
    Path | None,
    Field(description="Samples as rows: .csv, .tsv, .txt or .dat, .npz (X and y, inputs and labels), .npy, .parquet."),
]
Samples = Annotated[
    int | None,
    Field(description="Samples n with --spectrum, so that X^T X = n I; default X = I: loss 1/2 |A - Z|^2."),
]
Standardize = Annotated[
    bool, Field(description="Give each input column mean 0 and variance 1; constant ones become 0.")
]
Center = Annotated[bool, Field(description="Subtract the column means of inputs and labels.")]


class Topic(Part):
    """A topic of `linnet predict` with its options."""

    measured: ClassVar[str] = "exact run"  # what --run computes
    run_help: ClassVar[str] = "Compute the exact run too and show the errors."
    plot_help: ClassVar[str] = "Draw it to this file (.png, .svg or .pdf)."
    argument: ClassVar[str | None] = None  # the field that is given without an option's name

    @abstractmethod
    def predict(self) -> "ln.prediction.Prediction":
        """The prediction for these inputs."""

    def given(self, *names: str) -> dict[str, Any]:
        """The fields of these names that are neither None nor a flag left out."""
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if value is not None and value is not False}


class FileOptions(Topic):
    """Samples in a file, or whitened data with a given spectrum."""

    data: Data = None
    spectrum: Numbers | None = Field(
        None, description="Or whitened inputs and a target of these singular values, such as 3,2,1."
    )
    inputs: Columns | None = Field(
        None,
        description="Input dimension with --spectrum, default the number of modes; of a file names of columns, default "
        "all that are not labels.",
    )
    outputs: Columns | None = Field(
        None,
        description="Output dimension with --spectrum, default the number of modes; of a file how many last columns "
        "are labels, default 1, or their names, such as price,area.",
    )
    standardize: Standardize = False
    center: Center = False
    intercept: bool = Field(False, description="Append a column of ones to the inputs.")


class RegressionOptions(FileOptions):
    """A regression, with its loss."""

    samples: Samples = None
    average: bool = Field(False, description="Loss 1/(2n) sum of squares instead of 1/2 sum of squares, with --data.")

    def regression(self) -> "ln.problems.Regression | ln.prediction.OwnSamples":
        """The regression on the samples in the file, or on whitened data."""
        reading = self.given("standardize", "center", "intercept", "average")
        if (self.data is None) == (self.spectrum is None):
            raise InputError("data or spectrum: give one of them, --data FILE or --spectrum 3,2,1.")
        if self.spectrum is not None:
            for name in reading:
                raise InputError(f"{name} is not allowed with --spectrum: there are no samples.")
            sizes = {name: typed.dimension(name, getattr(self, name)) for name in ("inputs", "outputs")}
            return ln.prediction.whitened(self.spectrum, samples=self.samples, **sizes)
        if self.samples is not None:
            raise InputError(f"samples = {self.samples} is not allowed with --data: the file has its own.")
        inputs = typed.names("inputs", self.inputs)
        return ln.prediction.read_regression(self.data, inputs=inputs, outputs=self.outputs, **reading)


class OptimizerOptions(Topic):
    """Gradient descent with momentum, weight decay, and batches, in the convention of torch.optim.SGD."""

    momentum: float | None = Field(None, description="Momentum b of SGD, from 0 to below 1: v <- b v + g; default 0.")
    nesterov: bool = Field(False, description="Nesterov's momentum: step along g + b v.")
    dampening: float | None = Field(None, description="Dampening t of the momentum: v <- b v + (1 - t) g; default 0.")
    weight_decay: float | None = Field(
        None, description="Weight decay mu, of the loss + mu/2 times all squared weights; default 0."
    )
    decoupled: bool = Field(False, description="Decay beside the gradient, as in AdamW.")
    batch_size: int | None = Field(
        None, description="Samples of a step, in --run too: the largest stable lr with such batches."
    )

    def optimizer(self) -> dict[str, Any]:
        """The options that were given."""
        return self.given(*OptimizerOptions.model_fields)


class PhaseTopic(Topic):
    """Lazy or rich? Where a two-layer network lies, when it learns each signal, when to stop and what it reaches.

    The setting is noisy low-rank recovery: A* + E with d x d entries of unit variance each, loss |A - A* - E|^2 / d^2.
    With --target it is a matrix B of your own, of any shape and as it is, and d its larger dimension: the transition
    between lazy and rich is where the variance times the width is the largest singular value of B.
    """

    gamma_w: float = Field(description="The network has d^gamma_w hidden neurons.")
    gamma_sigma2: float = Field(description="Weights start with variance d^gamma_sigma2.")
    d: int | None = Field(None, description="Dimension of the matrix to recover; without --target it is needed.")
    target: Path | None = Field(
        None, description="Or a matrix to learn, outputs x inputs: .csv, .tsv, .txt or .dat, .npy, .npz, .parquet."
    )
    rank: int | None = Field(None, description="Rank of the signal, default 5.")
    levels: Numbers | None = Field(
        None, description="Singular values of the signal over d, such as 1,0.8; default those of the seed."
    )
    c_lr: float = Field(50.0, description="The learning rate is 1/c_lr of the fastest mode's time.")
    seed: int = Field(0, description="Seed of the target, the noise, and the initialization.")

    def predict(self) -> "ln.prediction.Prediction":
        return ln.prediction.phase(**self.model_dump())


class BiasTopic(RegressionOptions):
    """Which predictor does gradient flow find, by which layers, in which order and when? For your own regression.

    A two-layer network from W_1 = sqrt(2 gamma) Q, Q of orthonormal columns, and W_2 = 0. Its predictor is the one of
    minimum norm whatever gamma is; its first layer has low rank if gamma is small. Times are those of gradient flow:
    learning rate times steps. The network has no intercept: use --center or --intercept.
    """

    measured = "exact flow"
    run_help = "Compute the exact flow too and show the errors."

    gamma: float = Field(description="Scale of the initialization: W_1 has singular values sqrt(2 gamma), W_2 = 0.")
    width: int | None = Field(None, description="Hidden neurons, at least d_in: nothing else depends on them.")

    def predict(self) -> "ln.prediction.Prediction":
        given = self.regression()
        problem = ln.prediction.coerce.regression(given)
        inputs = problem.shape[1]
        gamma = _input.real("gamma", self.gamma, least=1e-100, most=1e100)
        small = inputs <= _BUILT  # of more, gamma is enough
        initialization: Any = {"network": ln.init.i_gamma(problem, gamma)} if small else {"gamma": gamma}
        answer = ln.prediction.bias(given, **initialization)
        if self.width is None:
            return answer
        width = _input.integer("width", self.width, least=inputs, reason="d_in: I_gamma needs orthonormal columns")
        note = f"The width {width:,} changes nothing of this: from d_in on all widths move alike."
        return answer.including(ln.prediction.Quantity("width", width), notes=[note])


class BalanceTopic(Topic):
    """Lazy or rich? What the imbalance of two layers decides: times, kernel, end, and a switch of the task afterwards.

    For two layers with W_2^T W_2 - W_1 W_1^T = lambda I on white inputs, in closed form, exact: when each mode is
    learned, how far the tangent kernel moves, where training ends or gets stuck, and whether it can learn another task
    then. Times are those of gradient flow: learning rate times steps.
    """

    measured = "exact flow"
    run_help = "Compute the exact flow of the layers too and show the errors."

    spectrum: Numbers = Field(description="Singular values of the target on white inputs, such as 3,2,1.")
    lam: float = Field(description="Imbalance lambda of the layers: W_2^T W_2 - W_1 W_1^T = lambda I.")
    width: int | None = Field(
        None,
        description="Hidden neurons, at most --outputs for lambda > 0 and --inputs for lambda < 0, which are the "
        "default.",
    )
    inputs: int | None = Field(None, description="Input dimension, default the number of modes.")
    outputs: int | None = Field(None, description="Output dimension, default the number of modes.")
    samples: Samples = None
    scale: float = Field(0.01, description="Scale of the lighter layer at initialization.")
    aligned: bool = Field(False, description="An initialization aligned with the target, in place of random frames.")
    seed: int = Field(0, description="Seed of the random frames.")
    switch: str = Field(
        "reversal",
        description="The task that follows: reversal (Y becomes -Y), or a file of its target, outputs x inputs.",
    )

    def predict(self) -> "ln.prediction.Prediction":
        problem = ln.prediction.whitened(self.spectrum, **self.given("inputs", "outputs", "samples"))
        d_out, d_in = problem.shape
        heavier = d_out if self.lam > 0 else d_in if self.lam < 0 else min(d_out, d_in)
        width = heavier if self.width is None else self.width
        network = ln.init.lambda_balanced(self.seed, problem, self.lam, width, scale=self.scale, aligned=self.aligned)
        kind, seed = ("aligned", None) if self.aligned else ("random frames", self.seed)
        where = "aligned with the target" if self.aligned else "in random frames"
        initialization = ln.prediction.Row(kind=kind, scale=self.scale, seed=seed)
        return ln.prediction.balance(problem, network, switch=self.switch).including(
            ln.prediction.Quantity("initialization", initialization),
            notes=(f"Initialization {where}, lighter layer of scale {self.scale:.3g}.",),
        )


class LandscapeTopic(RegressionOptions):
    """Where can training get stuck? The critical points of a deep linear network by the modes they have learned.

    The loss is 1/2 |X A^T - Y|^2 summed over samples. A set of modes stands for its balanced critical point and all
    that changes of basis between layers make of it: they share loss, kind and index; lambda_min is the balanced one's.
    """

    measured = "whole Hessians"
    run_help = "Build every point as weights too and show what its whole Hessian says."

    width: CountOrList = Field(description="Hidden neurons, such as 3 or 3,4; one number serves all hidden layers.")
    depth: int | None = Field(None, description="Layers of the network; default one more than the hidden ones.")
    most: int = Field(64, description="Show all sets of modes up to so many, else 1 ... k and those of least loss.")

    def predict(self) -> "ln.prediction.Prediction":
        given, coerce = self.regression(), ln.prediction.coerce
        prepared, widths = coerce.prepared(given), self.hidden_widths()
        return ln.prediction.landscape(coerce.regression(given), widths, most=self.most).including(
            ln.prediction.Quantity("prepared", prepared), notes=coerce.preparation_notes(prepared)
        )

    def hidden_widths(self) -> tuple[int, ...]:
        """The hidden widths: one number for all of them, or one for each."""
        widths = self.width if isinstance(self.width, list) else [self.width]
        widths = [_input.integer("width", width, least=1) for width in widths]
        if self.depth is None:
            return tuple(widths)
        hidden = _input.integer("depth", self.depth, least=2, most=1000) - 1
        if len(widths) == 1:
            return tuple(widths * hidden)
        if len(widths) != hidden:
            raise InputError(
                f"width = {self.width} is not allowed: a network of depth {self.depth} has {hidden} hidden "
                f"width{'s' * (hidden > 1)}; give that many, or one for all."
            )
        return tuple(widths)


class RatesTopic(RegressionOptions):
    """How fast does a deep network learn, far from the target, from a small initialization, and in the end?

    For a balanced network of any widths with an initialization of rank one, on whitened data (others are whitened
    first); loss 1/2 |X A^T - Y|^2 summed over samples. Times are those of gradient flow: learning rate times steps.
    """

    measured = "exact flow"
    run_help = BalanceTopic.run_help

    depth: int = Field(description="Layers of the network, 2 or more.")
    scale: float = Field(0.01, description="Size of the initial product over that of the target.")
    alignment: float | None = Field(
        None, description="Product of the initial cosines with the largest mode; default random directions."
    )
    seed: int = Field(0, description="Seed of the initial directions.")

    def predict(self) -> "ln.prediction.Prediction":
        from linnet import _check

        given, coerce = self.regression(), ln.prediction.coerce
        asked, prepared = coerce.regression(given), coerce.prepared(given)
        problem, anisotropy = coerce.white(asked)
        network = ln.init.rank_one(_check.seed(self.seed), problem, self.scale, self.depth, alignment=self.alignment)
        whitened = ["This is about your data, whitened first."] if problem is not asked else []
        return ln.prediction.rates(problem, network).including(
            ln.prediction.Quantity("prepared", prepared),
            ln.prediction.Quantity("normalization", coerce.normalization(asked)),
            ln.prediction.Quantity("seed", self.seed),
            ln.prediction.Quantity("whitened_first", problem is not asked),
            ln.prediction.Quantity("anisotropy", anisotropy),  # of the inputs before: 1 - (s_min / s_max)^2
            notes=(*coerce.preparation_notes(prepared), *whitened),
        )


class StabilityTopic(OptimizerOptions):
    """What does a learning rate do beyond the edge of stability? For a deep factorization, mode by mode.

    Which modes converge, which oscillate between which values, double their period, become chaotic or diverge; whether
    modes mix and when rounding shows it; whether the layers balance; the largest stable learning rate. With momentum or
    decay: where modes converge to, which learning rates are stable, and where this one leads. With batches of fresh
    samples: which learning rates are stable at the minimum; the modes are those of the loss itself.
    """

    run_help = "Compute the exact run of the matrices too and show the errors."
    plot_help = "Draw the bifurcation diagram to this file (.png, .svg or .pdf)."

    depth: int = Field(description="Layers of the network, 1 to 100.")
    spectrum: Numbers = Field(description="Singular values of the target, such as 10,9,6; zeros left out.")
    lr: float | None = Field(
        None, description="Learning rate; default one between the edge of stability and what comes next."
    )
    init: str = Field(
        "one-zero",
        description="one-zero (layers alpha I, the last 0), orthogonal (alpha times rotations, the last 0) or balanced "
        "(alpha I in all layers, for a symmetric target).",
    )
    alpha: float | None = Field(
        None, description="Scale of the initialization, below the smallest singular value; default a small one."
    )
    d: int | None = Field(None, description="Dimension of the matrices in --run; default the modes.")
    seed: int = Field(0, description="Seed of the singular vectors and batches in --run.")
    half: Annotated[bool, "--half/--whole"] = Field(
        True, description="Loss 1/2 |A - A*|^2, or |A - A*|^2 as in the paper's figures."
    )
    batch_size: int | None = Field(
        None, description="Fresh Gaussian samples of a step: the largest stable lr with such batches."
    )

    def predict(self) -> "ln.prediction.Prediction":
        options = self.optimizer()
        names = ("spectrum", "depth", "lr", "init", "alpha", "d", "seed", "half")
        return ln.prediction.stability_of_spectrum(
            **{name: getattr(self, name) for name in names}, batch_size=options.pop("batch_size", None), **options
        )


class FeaturesTopic(Topic):
    """Does a two-layer network learn features, in which stages and when? Before training, on Gaussian or your own data.

    f = (1/width) X W_1^T v with one output and loss |f - y|^2 / (2n), from W_1 ~ N(0, sigma0^2) and v = +-v0. Your own
    inputs should be centered: --center.
    """

    measured = "exact descent"
    run_help = "Compute the exact descent too and show it beside."

    width: int = Field(description="Hidden neurons.")
    v0: float = Field(description="Size of the second layer at initialization, +-v0.")
    sigma0: float = Field(description="Standard deviation of the first layer at initialization.")
    samples: int | None = Field(None, description="Samples n; with --data the first n of the file.")
    inputs: Columns | None = Field(
        None, description="Input dimension; with --data names of columns, default all but the label."
    )
    outputs: Columns | None = Field(None, description="With --data the name of the label; default the last column.")
    lr: float | None = Field(None, description="Learning rate; default a tenth of the largest stable one.")
    noise2: float | None = Field(None, description="Variance of the noise on labels; default 0.")
    teacher: float | None = Field(
        None, description="Norm of the teacher; default that of as many normal numbers as inputs."
    )
    data: Data = None
    standardize: Standardize = False
    center: Center = False
    eps: float | None = Field(
        None, description="Loss to be reached, for the paper's assumption; default 1% of the initial one."
    )
    seed: int = Field(0, description="Seed of the data and the initialization.")

    def predict(self) -> "ln.prediction.Prediction":
        options = self.model_dump(include={"width", "v0", "sigma0", "lr", "eps", "seed"})
        if self.data is not None:
            self.refuse("--data: the file has its own", "noise2", "teacher")
            columns: Any = {"inputs": typed.names("inputs", self.inputs), "outputs": self.outputs}
            reading = self.given("samples", "standardize", "center")
            return ln.prediction.features(ln.prediction.read_regression(self.data, **columns, **reading), **options)
        if self.samples is None or self.inputs is None:
            raise InputError(
                "samples and inputs are missing: give --samples and --inputs, or samples of your own with --data FILE."
            )
        size = typed.dimension("inputs", self.inputs)
        self.refuse("Gaussian samples: give --data too", "outputs", "standardize", "center")
        options |= {"samples": self.samples, "inputs": size, **self.given("noise2", "teacher")}
        return ln.prediction.gaussian_features(**options)

    def refuse(self, why: str, *names: str) -> None:
        """Refuses options that contradict another one."""
        for name, value in self.given(*names).items():
            raise InputError(f"{name} = {value} is not allowed with {why}.")


class NetworkTopic(OptimizerOptions, FileOptions):
    """Your own network: which modes are lazy or rich, when each is learned, which learning rates are stable, when to
    stop.

    A file says what the data, the network, the initialization, and the training are; options change it or stand alone.
    Initializations: gaussian layers, one-zero (orthonormal layers times the scale, the last one zero) or balanced (all
    layers equal, along the modes of the target). Every quantity comes with the theory it is from and how far its
    hypotheses hold.
    """

    measured = "exact descent"
    run_help = FeaturesTopic.run_help
    argument = "file"

    file: str | None = Field(None, description="A TOML file, or an example: edge, lazy, lora, own-data, small-start.")
    frozen: Path | None = Field(
        None, description="With --data a frozen W_0 beside the network: labels become Y - X W_0^T."
    )
    depth: int | None = Field(None, description="Layers; default 2.")
    width: CountOrList = Field(None, description="Hidden neurons: one number, or one a hidden layer.")
    alpha: float | None = Field(
        None, description="Of an adapter of rank r = width: the product is multiplied by alpha/r."
    )
    init: str | None = Field(
        None,
        description="gaussian (default), one-zero or balanced; or as PyTorch has it kaiming_uniform, kaiming_normal, "
        "xavier_uniform, xavier_normal, torch_linear (what nn.Linear does), lora (that, and a second factor zero).",
    )
    scale: NumberOrList = Field(
        None, description="Standard deviation of gaussian weights (one, or one a layer), or alpha."
    )
    lr: NumberOrList = Field(None, description="Learning rate, or auto (default): a tenth of the largest stable.")
    signal: int | None = Field(None, description="How many modes are signal: when to stop before noise.")
    seed: int | None = Field(None, description="Seed of a gaussian initialization.")
    average: Annotated[bool | None, "--average/--sum"] = Field(
        None, description="Loss 1/(2n) sum of squares or 1/2 sum of squares (default)."
    )
    show: bool = Field(False, description="Print the file itself, to write one's own from.")

    def predict(self) -> "ln.prediction.Prediction":
        if self.show:
            for name in self.model_fields_set - {"file", "show"}:
                if getattr(self, name) != type(self).model_fields[name].default:
                    raise alone(name.replace("_", "-"))
            typer.echo(ln.prediction.situation_text(self.file), nl=False)
            raise typer.Exit
        data = self.given("spectrum", "inputs", "outputs", "standardize", "center", "intercept", "frozen")
        data |= {"file": self.data, "loss": None if self.average is None else "mean" if self.average else "sum"}
        situation = ln.prediction.read_situation(
            self.file,
            data=data,
            network=self.given("depth", "width", "alpha"),
            init={"kind": self.init, **self.given("scale", "seed")},
            training=self.given("lr", "signal") | self.optimizer(),
        )
        return situation.predict()


def alone(name: str) -> InputError:
    """The error of an option beside --show."""
    return InputError(f"{name} is not allowed with --show: the file alone is printed.")


_ALL = (PhaseTopic, BiasTopic, BalanceTopic, LandscapeTopic, RatesTopic, StabilityTopic, FeaturesTopic, NetworkTopic)
TOPICS: dict[str, type[Topic]] = {topic.__name__.removesuffix("Topic").lower(): topic for topic in _ALL}
