"""A problem, a network, and an optimizer as a user writes them down, in tables of Python or TOML, and the triple."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float
from pydantic import ValidationError
from rich.markup import escape

from linnet import init
from linnet._check import InputError
from linnet._schema import Part, sentence
from linnet.optim import SGD
from linnet.prediction import coerce
from linnet.prediction.data import OwnSamples, read_regression
from linnet.prediction.prediction import Prediction, facts, plain
from linnet.prediction.reduced import ReducedRegression, reduce_regression, white
from linnet.prediction.situation_tables import DataTable, InitTable, NetworkTable, TrainingTable
from linnet.prediction.theories.network.result import Setup, predicted
from linnet.prediction.theories.network.shown import WHITENED
from linnet.problems import Regression
from linnet.states import Modes, Weights

Table = Mapping[str, Any]
Samples = Regression | OwnSamples | None
_LARGEST = 2000  # inputs and outputs that layers have weights for
_ENTRIES = 20_000_000  # of the weights of a deep Gaussian network, which are drawn in full


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
        tables = {name: plain(value) for name, value in named.items() if value is not None}
        try:
            super().__init__(**tables, **unknown)
        except ValidationError as error:
            raise InputError(sentence(error)) from None

    def triple(self, problem: Samples = None) -> tuple[Regression, Weights, SGD]:
        """The problem, the network, and the optimizer, for `simulate` and `predict`; lr = "auto" becomes a number.

        `problem` replaces the situation's data. Of a spectrum with more than 2000 inputs or outputs only those remain
        that training reaches.
        """
        asked = self.training
        lr = self.predict(problem).lr if isinstance(asked.lr, str) else float(asked.lr)
        optimizer = _optimizer(self, lr, asked.batch_size)
        regression, _ = _regression(self, problem)
        if regression is None:
            spectrum, shape = _spectrum(self)
            if max(shape) > _LARGEST:
                small = self.setup()
                return small.reduction.problem, Weights(small.layers, compressed=True), optimizer
            regression = coerce.whitened(spectrum, inputs=shape[1], outputs=shape[0])
            regression = replace(regression, output_scale=self.network.scaling * regression.output_scale)
        reduction = reduce_regression(regression)
        hidden = _hidden(self, reduction.d_in, reduction.d_out, reduction.limit.shape)
        return regression, _network(self, regression, reduction, hidden, _scales(self, reduction, hidden)), optimizer

    def setup(self, problem: Samples = None) -> Setup:
        """What `predict` needs of the triple: problem and layers in the coordinates of the samples, or of the modes of
        a spectrum.
        """
        return _setup(self, _regression(self, problem)[0])

    def predict(self, problem: Samples = None, *, follow: bool = True) -> Prediction:
        """The prediction of `linnet.prediction.network` for this triple, with its title and how it was made.

        Without `follow` closed forms alone are used, at once: where they are not exact, times are unknown.
        """
        regression, done = _regression(self, problem)
        found = predicted(_setup(self, regression), follow=follow)
        if self.title:
            found = replace(found, setting=f"{escape(self.title)}\n{found.setting}")
        return found.including(*facts(title=self.title, prepared=done), notes=coerce.preparation_notes(done))


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


# The triple ----------------------------------------------------------------------------------------------------------


def _setup(situation: Situation, regression: Regression | None) -> Setup:
    """The triple in the coordinates of the samples, of the situation's spectrum or of a regression."""
    training = situation.training
    if regression is not None:
        reduction, normalization = reduce_regression(regression), coerce.normalization(regression)
        hidden = _hidden(situation, reduction.d_in, reduction.d_out, reduction.limit.shape)
        scale = _scales(situation, reduction, hidden)
        drawn = _network(situation, regression, reduction, hidden, scale)
        layers = [np.asarray(w) for w in drawn.layers]
        layers[0] = layers[0] @ reduction.basis.T
    else:
        reduction, layers, hidden, scale = _white(situation)
        c = situation.network.scaling
        normalization = WHITENED if c == 1 else f"1/2 |{c:.4g} A - A*|^2"
    return Setup(
        reduction,
        [np.asarray(w) for w in Weights(layers).compress().layers],
        hidden,
        False,
        normalization,
        _optimizer(situation),
        lr=None if isinstance(training.lr, str) else float(training.lr),
        batch_size=training.batch_size,
        signal=training.signal,
        seed=situation.init.seed,
        kind=situation.init.kind,
        scale=scale,
    )


def _optimizer(situation: Situation, lr: float = 1e-3, batch_size: int | None = None) -> SGD:
    given = situation.training.model_dump(exclude={"lr", "batch_size", "signal"})
    return SGD(lr, **given, batch_size=batch_size)


def _regression(situation: Situation, problem: Samples) -> tuple[Regression | None, tuple[str, ...]]:
    """The regression, None for a spectrum, and what was done to its samples."""
    data, c = situation.data, situation.network.scaling
    asked: Any = problem
    if problem is not None and data is not None:
        raise InputError("data and problem: give one of them.")
    if problem is None:
        if data is None:
            raise InputError("data is missing: give a spectrum, such as 3,1,0.5, or a file (or, in Python, a problem).")
        if data.spectrum is not None:
            return None, ()
        table = data.model_dump(exclude={"file", "spectrum", "loss"})
        asked = read_regression(data.file, **table, average=data.loss == "mean")
    regression = coerce.regression(asked, samples=None if situation.training.batch_size is None else True)
    return replace(regression, output_scale=c * regression.output_scale), coerce.prepared(asked)


def _spectrum(situation: Situation) -> tuple[Float[np.ndarray, " modes"], tuple[int, int]]:
    """The singular values of the target on whitened inputs, and the shape (d_out, d_in)."""
    data = situation.data
    assert data is not None
    spectrum = np.sort(np.array(data.spectrum))[::-1]
    d_out, d_in = (size if isinstance(size, int) else spectrum.size for size in (data.outputs, data.inputs))
    return spectrum, (d_out, d_in)


def _hidden(situation: Situation, d_in: int, d_out: int, weights: tuple[int, int]) -> tuple[int, ...]:
    """The hidden widths; `weights` are the outputs and inputs that layers have weights for."""
    kind, depth = situation.init.family, situation.network.depth
    if kind == "gaussian" and depth > 1 and situation.network.width is None:
        raise InputError("network.width is missing: a gaussian initialization depends on it.")
    hidden = situation.network.hidden(max(d_in, d_out))
    if max(weights) > _LARGEST:
        raise InputError(
            f"data.inputs or data.outputs = {max(d_in, d_out)} is not allowed with {max(hidden, default=1):,} neurons: "
            f"a Gaussian initialization this wide has weights everywhere; give at most {_LARGEST} inputs and outputs, "
            "or fewer neurons (adapters)."
        )
    if kind == "one-zero" and hidden and min(hidden) < d_in:
        raise InputError(
            f"network.width = {min(hidden)} is not allowed with a one-zero initialization: its layers have orthonormal "
            f"columns and need {d_in} neurons or more (the inputs); a gaussian initialization takes any width."
        )
    if kind == "gaussian" and depth > 2:
        entries = sum(a * b for a, b in pairwise([weights[1], *hidden, weights[0]]))
        if entries > _ENTRIES:
            raise InputError(
                f"network.width = {max(hidden)} is not allowed with depth {depth}: {entries:,} weights are drawn in "
                f"full, and {_ENTRIES:,} are the most (two layers take any width)."
            )
    return tuple(hidden)


def _scales(situation: Situation, reduction: ReducedRegression, hidden: tuple[int, ...]) -> tuple[float, ...]:
    """One number a layer: standard deviations, or alpha."""
    top = 0.0
    if situation.init.scale is None and situation.init.family != "gaussian":
        top = float(np.linalg.norm(reduction.best(min([*hidden, *reduction.limit.shape]))[0], 2))
    return situation.init.scales((reduction.d_in, *hidden, reduction.d_out), top)


def _network(
    situation: Situation,
    regression: Regression,
    reduction: ReducedRegression,
    hidden: tuple[int, ...],
    scale: Sequence[float],
) -> Weights:
    """The network at initialization."""
    if situation.init.family == "gaussian":
        return _gaussian(situation, (regression.shape[0], regression.shape[1]), hidden, scale)
    return _aligned(situation, reduction, hidden, scale)


def _gaussian(situation: Situation, shape: tuple[int, int], hidden: tuple[int, ...], scale: Sequence[float]) -> Weights:
    """`init.gaussian` with the seed; two layers are drawn compressed."""
    width = hidden[0] if len(hidden) == 1 else hidden
    return init.gaussian(jax.random.key(situation.init.seed), shape, width, [x**2 for x in scale])


def _aligned(
    situation: Situation, reduction: ReducedRegression, hidden: tuple[int, ...], scale: Sequence[float]
) -> Weights:
    """One-zero: orthonormal layers times alpha, the last one zero. Balanced: alpha in all layers along the modes.

    They have the neurons that training needs; where the network is wider they are marked as compressed.
    """
    alpha, depth, d_in = scale[0], len(scale), reduction.basis.shape[1]
    if situation.init.kind == "one-zero":
        layers = [*[alpha * np.eye(d_in)] * (depth - 1), np.zeros((reduction.limit.shape[0], d_in))]
        return Weights(layers, compressed=max(hidden, default=d_in) > d_in)
    u, s, vt = np.linalg.svd(reduction.best(min([*hidden, *reduction.limit.shape]))[0], full_matrices=False)
    modes = int(np.sum(s > 1e-12 * s[0]))
    aligned = Modes(np.full((depth, modes), alpha)).weights(u[:, :modes], (vt[:modes] @ reduction.basis).T)
    return Weights(aligned.layers, compressed=max(hidden, default=modes) > modes)


def _white(
    situation: Situation,
) -> tuple[ReducedRegression, list[np.ndarray], tuple[int, ...], tuple[float, ...]]:
    """Whitened inputs without those inputs and outputs that training never reaches: the layers can be rotated so that
    they have no weights there.
    """
    spectrum, (d_out, d_in) = _spectrum(situation)
    modes, c = spectrum.size, situation.network.scaling
    depth, gaussian = situation.network.depth, situation.init.family == "gaussian"
    neurons = situation.network.hidden(max(d_in, d_out)) if gaussian and situation.network.width is not None else ()
    if gaussian:
        free = (neurons[-1], neurons[0]) if neurons else (d_out, d_in)
        if neurons and situation.init.empty:
            free = 1, free[1]
    else:
        free = 1, 1  # aligned layers are alike in all others: one is enough
    kept = min(d_out, modes + free[0]), min(d_in, modes + free[1])
    hidden = _hidden(situation, d_in, d_out, kept)
    reduction = white(spectrum, (d_out, d_in), kept, c)
    scale = _scales(situation, reduction, hidden)
    if not gaussian:
        aligned = _aligned(situation, reduction, hidden, scale)
        return reduction, [np.asarray(w) for w in aligned.layers], hidden, scale
    layers = [np.asarray(w) for w in _gaussian(situation, (d_out, d_in), hidden, scale).layers]
    if depth > 1:
        layers[0] = np.concatenate([layers[0][:, :modes], _outside(layers[0][:, modes:].T, kept[1] - modes).T], axis=1)
        layers[-1] = np.concatenate([layers[-1][:modes], _outside(layers[-1][modes:], kept[0] - modes)])
    return reduction, layers, hidden, scale


def _outside(rows: Float[np.ndarray, "many neurons"], kept: int) -> Float[np.ndarray, "kept neurons"]:
    """Rows in a basis of their span, of at most `kept` directions."""
    return rows if len(rows) <= kept else np.asarray(np.linalg.qr(rows, mode="r"))[:kept]
