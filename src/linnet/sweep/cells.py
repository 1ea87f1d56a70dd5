"""The cells of a sweep: from the numbers of one cell to a network, and many networks in one compiled run."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from linnet import _check, init, observe, optim, problems, record, states
from linnet._check import InputError
from linnet._compiler import hurried
from linnet._random import Memory
from linnet.data import read_array
from linnet.linalg import singular_values
from linnet.optim import Dynamics
from linnet.problems import Problem
from linnet.simulation import run_one
from linnet.states import EndToEnd, Pair, State, Weights
from linnet.sweep.expression import FUNCTIONS, evaluate
from linnet.theory import mixed

PROBLEMS = (
    "factorization",
    "low_rank_recovery",
    "regression",
    "mean_field_regression",
    "diagonal_regression",
    "classification",
    "masked",
    "logistic",
    "pseudo_huber",
)
INITIALIZERS = (
    "gaussian",
    "readout",
    "i_gamma",
    "balanced",
    "identity",
    "one_zero",
    "orthogonal",
    "random_one_zero",
    "mixed_manifold",
    "two_c_balanced",
    "lambda_balanced",
)
CLOSURES = ("Lazy", "Mixed", "Balanced")
OPTIMIZERS = (
    "SGD",
    "Adam",
    "AdamW",
    "RMSprop",
    "SignSGD",
    "Muon",
    "GradientFlow",
    "InertialFlow",
    "LabelNoiseSGD",
    "NoisyFlow",
)
STOPS = ("loss_below", "change_below")
_PACKAGES = (problems, init, optim, states)  # where a `kind` is looked up


class StoredQuantity(NamedTuple):
    """What is stored: an observable at every record (`where` empty), at the end, or where another is lowest/highest."""

    name: str
    what: str
    where: str

    @classmethod
    def parse(cls, name: str, text: str) -> "StoredQuantity":
        """Reads "stable_rank at lowest test_error", "loss at end" or "loss"."""
        what, _, where = (part.strip() for part in text.partition(" at "))
        if what not in ("step", "time"):
            observe.named(what)
        elif not where:
            raise InputError(f"store.{name} = {text!r} is not allowed: {what} needs an end, lowest or highest.")
        if where and where != "end":
            how, _, of = where.partition(" ")
            if how not in ("lowest", "highest") or not of:
                raise InputError(
                    f"store.{name} = {text!r} is not allowed: after 'at' comes end, lowest NAME or highest NAME."
                )
            observe.named(of)
        return cls(name, what, where)

    @property
    def of(self) -> str:
        """The observable whose extreme is meant."""
        return self.where.partition(" ")[2]

    @property
    def dims(self) -> tuple[str, ...]:
        """The names of its axes after those of the grid."""
        if self.what in ("step", "time"):
            return ()
        own = observe.named(self.what).dims or ()
        own = tuple(f"{self.name}_index" if dim == "index" else dim for dim in own)
        return own if self.where else ("record", *own)

    @property
    def text(self) -> str:
        """What it is, for a person."""
        what = {"step": "Step", "time": "Time"}.get(self.what) or observe.named(self.what).text
        return f"{what}, at {self.where}" if self.where else what


class Cell(NamedTuple):
    """One run of the grid: its problem, initial state, optimizer, number of steps, random key, and stop condition."""

    problem: Problem
    state: State
    optimizer: Dynamics
    steps: int
    key: Key[Array, ""]
    stop: Any

    def signature(self) -> tuple[Any, ...]:
        """Cells of one signature run in one program."""
        leaves, tree = jax.tree.flatten((self.problem, self.state, self.optimizer, self.stop))
        return str(tree), tuple((jnp.shape(x), str(jnp.result_type(x))) for x in leaves)

    @property
    def cap(self) -> int:
        """The number of steps rounded up, so that few programs are compiled; 0 for flows."""
        return int(4 ** max(5, np.ceil(np.log2(self.steps) / 2))) if self.steps else 0


def widened(cells: Sequence[Cell]) -> list[Cell]:
    """The same runs of networks of one shape: two layers with fewer neurons than the widest get neurons of weight zero,
    which stay zero, so that they run in one program.
    """
    most: dict[Any, int] = {}
    for cell in cells:
        if (layers := _two_layers(cell.state)) is not None:
            shape = (layers[0].shape[1], layers[1].shape[0])
            most[shape] = max(most.get(shape, 0), layers[0].shape[0])

    def wide(cell: Cell) -> Cell:
        layers = _two_layers(cell.state)
        if layers is None:
            return cell
        first, second = map(np.asarray, layers)
        more = most[first.shape[1], second.shape[0]] - first.shape[0]
        filled = np.pad(first, ((0, more), (0, 0))), np.pad(second, ((0, 0), (0, more)))
        return cell._replace(state=eqx.tree_at(_two_layers, cell.state, filled)) if more else cell

    return [wide(cell) for cell in cells]


def _two_layers(state: State) -> tuple[Array, ...] | None:
    """The layers of a network that has two of them, of the first one in a pair."""
    network = state.first if isinstance(state, Pair) else state
    return network.layers if isinstance(network, Weights) and network.depth == 2 else None


class Batch(NamedTuple):
    """Cells that run together, by their numbers, and the program with its arguments that runs them."""

    numbers: tuple[int, ...]
    program: Callable[..., Any]
    arguments: tuple[Any, ...]


class Builder:
    """Makes cells from a sweep. Equal problems and draws are made once and shared."""

    def __init__(self, spec: Any):
        self.spec = spec
        self.quantities = tuple(StoredQuantity.parse(name, text) for name, text in spec.store.items())
        self._problems: dict[Any, Problem] = {}
        self._spectra: dict[int, tuple[Any, np.ndarray]] = {}
        self._draws = Memory()

    def problem(self, mark: Any, make: Callable[[], Problem]) -> Problem:
        """The problem with this mark; the last few are kept, so that memory does not grow with the grid."""
        if mark not in self._problems:
            if len(self._problems) >= 8:
                self._problems.clear()
                self._spectra.clear()
            self._problems[mark] = make()
        return self._problems[mark]

    def cell(self, point: Mapping[str, Any]) -> Cell:
        """The run at a point of the grid."""
        with self._draws.active():
            return self._cell(point)

    def _cell(self, point: Mapping[str, Any]) -> Cell:
        names = _Names(self, point)
        spec = self.spec
        key = names.key
        problem, state = names.problem(), names.state()
        optimizer = names.build("optimizer", spec.part("optimizer", point), OPTIMIZERS, {"problem": problem})
        stop = None if spec.run.stop is None else names.build("run.stop", spec.run.stop, STOPS, {})
        if spec.second is not None:
            state = Pair(state, names.second(state))
        steps = 0
        if spec.run.steps is not None:
            value = names.number("run.steps", spec.run.steps)
            if not 1 <= value <= 10**9:
                raise InputError(f"run.steps = {value:g} at {_place(point)} is not allowed: it must be 1 to 1e9.")
            steps = int(np.ceil(value))
        return Cell(problem, state, optimizer, steps, key, stop)

    def values(self, array: Any) -> np.ndarray:
        """Singular values of a problem's matrix, computed once for each (and kept with it: identities are reused)."""
        if id(array) not in self._spectra:
            self._spectra[id(array)] = array, np.asarray(singular_values(array))
        return self._spectra[id(array)][1]


class _Names:
    """The names that expressions may use in one cell, computed when asked for."""

    def __init__(self, builder: Builder, point: Mapping[str, Any]):
        self.builder, self.point = builder, point
        self.known: dict[str, Any] = {name: value for name, value in point.items() if not isinstance(value, str)}
        self.numbers = tuple(self.known)
        self.pending: list[str] = []
        self.functions: dict[str, Callable[..., Any]] = {
            **FUNCTIONS,
            "norm": self.norm,
            "singular_value": self.singular_value,
            "mode_time": lambda *x: float(_mode_time(*map(float, x))),
            "largest_lr": lambda *x: float(mixed.largest_lr(*x)),
        }

    def __call__(self, name: str) -> Any:
        if name in self.known:
            return self.known[name]
        if name in self.pending:
            raise InputError(f"{name} is defined by itself: {' -> '.join([*self.pending, name])}.")
        self.pending.append(name)
        if name in self.builder.spec.let:
            self.known[name] = self.argument(f"let.{name}", self.builder.spec.let[name])
        elif name in ("truth", "target"):
            self.known[name] = getattr(self.problem(), name)
        elif name == "init":
            self.known[name] = self.state().matrix
        elif name == "lr":
            self.known[name] = self.number("optimizer.lr", self.part("optimizer").arguments.get("lr", "lr"))
        else:
            names = [*self.numbers, *self.builder.spec.let, "truth", "target", "init", "lr"]
            raise InputError(f"{name} is not known: expressions may use {', '.join(names)}.")
        self.pending.pop()
        return self.known[name]

    def singular_value(self, array: Any, number: float) -> float:
        """The singular value with this number, from 1 on."""
        values = self.values(array)
        if number != int(number) or not 1 <= number <= len(values):
            raise InputError(
                f"singular_value(x, {number:g}) is not allowed: the matrix has numbers 1 to {len(values)}."
            )
        return float(values[int(number) - 1])

    def norm(self, array: Any) -> float:
        """The largest singular value; of an initial matrix by its Gram matrix, in half the time."""
        if not self.own(array) or np.ndim(array) != 2:
            return float(self.values(array)[0])
        x = np.asarray(array)
        largest = np.abs(x).max(initial=0.0)
        x = x / largest if largest > 0 else x
        return float(largest * np.sqrt(np.linalg.eigvalsh(x.T @ x if x.shape[0] >= x.shape[1] else x @ x.T)[-1]))

    def values(self, array: Any) -> np.ndarray:
        """Singular values; an initial matrix belongs to one cell, so they are not cached."""
        return np.asarray(singular_values(array)) if self.own(array) else self.builder.values(array)

    def own(self, array: Any) -> bool:
        """Whether it is the initial matrix of this cell."""
        return "init" in self.known and array is self.known["init"]

    @property
    def key(self) -> Key[Array, ""]:
        seed = self.known.get("seed", self.builder.spec.seed)
        if not float(seed).is_integer() or not 0 <= seed < 2**63:
            raise InputError(f"seed = {seed:g} is not allowed: seeds are whole numbers from 0 to 2^63 - 1.")
        return jax.random.key(int(seed))

    def part(self, name: str) -> Any:
        """The table of this cell."""
        return self.builder.spec.part(name, self.point)

    def problem(self) -> Problem:
        if "problem" not in self.known:
            call = self.part("problem")
            arguments = {name: self.argument(f"problem.{name}", value) for name, value in call.arguments.items()}
            mark = (call.kind, *(f"{name} {_mark(value)}" for name, value in arguments.items()), self.known.get("seed"))
            self.known["problem"] = self.builder.problem(mark, lambda: self.build("problem", call, PROBLEMS, {}))
        return self.known["problem"]

    def state(self) -> State:
        if "state" not in self.known:
            self.known["state"] = self.build("init", self.part("init"), INITIALIZERS, {"problem": self.problem()})
        return self.known["state"]

    def second(self, state: State) -> State:
        call = self.builder.spec.second
        given = {"matrix": state.matrix, "problem": self.problem()}
        made = self.build("second", call, (*CLOSURES, *INITIALIZERS), given)
        return EndToEnd(state.matrix, made) if call.kind in CLOSURES else made

    def build(self, field: str, call: Any, allowed: Sequence[str], given: Mapping[str, Any]) -> Any:
        """Calls the function named `kind` with its arguments, and with those of `given` that it takes."""
        kind = _check.choice(f"{field}.kind", call.kind, allowed)
        function = next(getattr(package, kind) for package in _PACKAGES if hasattr(package, kind))
        takes = inspect.signature(function).parameters
        words = {name for name, parameter in takes.items() if parameter.annotation is str}  # not arithmetic
        arguments = {
            name: value if name in words else self.argument(f"{field}.{name}", value)
            for name, value in call.arguments.items()
        }
        for name in arguments:
            if name not in takes or name in ("key", *given):
                free = [n for n in takes if n not in ("key", *given)]
                raise InputError(f"{field}.{name} is not known: {kind} takes {', '.join(free)}.")
        for name, value in {"key": self.key, **given}.items():
            if name in takes and takes[name].default is inspect.Parameter.empty:  # a key that may be left out is
                arguments[name] = value
        missing = [n for n, p in takes.items() if p.default is p.empty and n not in arguments]
        if missing:
            raise InputError(f"{field}.{missing[0]} is missing: {kind} needs it.")
        try:
            return function(**arguments)
        except (ValueError, TypeError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{field} is not allowed: {kind} cannot take these arguments ({error}).") from None

    def argument(self, field: str, value: Any) -> Any:
        if isinstance(value, str):
            return evaluate(value, self, self.functions)
        if isinstance(value, list):
            return [self.argument(field, item) for item in value]
        if isinstance(value, Mapping):
            return _file(field, value)
        return value

    def number(self, field: str, value: Any) -> float:
        found = self.argument(field, value)
        if not isinstance(found, int | float) or not np.isfinite(found):
            raise InputError(
                f"{field} = {value!r} gives {found!r} at {_place(self.point)}: it must be a finite number."
            )
        return found


_mode_time = jax.jit(mixed.mode_time)


def _mark(value: Any) -> str:
    """A key that differs between arguments that differ in any bit."""
    return f"{value.shape} {value.tobytes().hex()}" if isinstance(value, np.ndarray) else repr(value)


def _place(point: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value if isinstance(value, str) else f'{value:g}'}" for name, value in point.items())


def _file(field: str, value: Mapping[str, Any]) -> np.ndarray:
    if "file" not in value or set(value) - {"file", "array"}:
        raise InputError(f'{field} is not allowed: give a number, an expression, a list or {{ file = "x.npy" }}.')
    return read_array(Path(value["file"]), f"{field}.file", value.get("array"))


class Runner:
    """Runs cells of one signature together and returns what is stored of each."""

    def __init__(self, spec: Any, quantities: Sequence[StoredQuantity]):
        self.spec, self.quantities = spec, quantities
        extremes = [q for q in quantities if q.where not in ("", "end")]
        # what the records contain needs no stored state
        self.checkpoint = tuple(dict.fromkeys(q.where for q in extremes if q.what not in ("step", "time", q.of)))
        names = [q.what for q in quantities if not q.where] + [q.of for q in extremes]
        self.observe = tuple(dict.fromkeys(names)) or ("loss",)
        self.series = any(not q.where for q in quantities)
        self._alone = eqx.filter_jit(self._one)
        together: Any = eqx.filter_jit  # which hands options on, as its types do not say
        self._together = together(self._many, compiler_options=hurried())

    def cap(self, cells: Sequence[Cell]) -> int:
        """The number of steps that a program for these cells is made for; with series it is the cells' own."""
        if not self.series:
            return max(cell.cap for cell in cells)
        lengths = {cell.steps for cell in cells}
        if len(lengths) > 1:
            raise InputError("run.steps differs from cell to cell: every record of a series needs one number for all.")
        return lengths.pop()

    def points(self, cap: int) -> Any:
        """The recording rule as it stands in the specification; by default every step, if records are asked for."""
        given = self.spec.run.record
        if given is None:
            along = any(q.where != "end" for q in self.quantities)
            given = ("every 1" if cap else "linear 201") if along else [0.0]
        if isinstance(given, list):
            return record.at([0.0, *given])
        kind, _, count = given.partition(" ")
        rules: dict[str, Callable[[float], Any]] = {
            "every": record.every,
            "linear": lambda n: record.linear(int(n)),
            "logarithmic": lambda n: record.logarithmic(int(n)),
        }
        try:
            rule = rules[kind](float(count))
        except (KeyError, ValueError, OverflowError):
            raise InputError(
                f"run.record = {given!r} is not allowed: use 'every N', 'linear N', 'logarithmic N' or a list of steps."
            ) from None
        return rule if cap == 0 or self.series else record.at(rule.points(cap, discrete=True))

    def batch(self, cells: Sequence[Cell], numbers: Sequence[int], count: int) -> "Batch":
        """The cells with these numbers, to run together as so many: the last one again for those that are missing, so
        that one program serves many batches.
        """
        chosen = [cells[number] for number in numbers]
        cap = self.cap(chosen)
        if count == 1:
            return Batch(tuple(numbers), self._alone, (cap, *_inputs(chosen[0])))
        shared = all(cell.problem is chosen[0].problem for cell in chosen)
        columns = [_inputs(cell) for cell in chosen]
        columns += columns[-1:] * (count - len(chosen))
        if shared:
            columns = [(None, *column[1:]) for column in columns]
        stacked = jax.tree.map(_stacked, *columns)
        problem = chosen[0].problem if shared else stacked[0]
        return Batch(tuple(numbers), self._together, (cap, shared, problem, *stacked[1:]))

    def _many(self, cap: int, shared: bool, problem: Problem, *rest: Any) -> Any:
        one = functools.partial(self._one, cap, together="runs")
        return jax.vmap(one, in_axes=(None if shared else 0, 0, 0, 0, 0, 0), axis_name="runs")(problem, *rest)

    def shapes(self, cell: Cell) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """Shape and type of what is stored of a cell."""
        for q in self.quantities:
            if q.of and jax.eval_shape(lambda q=q: observe.named(q.of)(cell.state, cell.problem)).shape != ():
                raise InputError(f"store.{q.name} = '{q.what} at {q.where}' is not allowed: {q.of} is not one number.")
        cap = self.cap([cell])
        values, _, _ = jax.eval_shape(lambda steps: self._one(cap, *_inputs(cell, steps)), 1)
        return {name: (tuple(value.shape), np.dtype(value.dtype)) for name, value in values.items()}

    def clock(self, cell: Cell) -> np.ndarray:
        """The steps or times of a series' records."""
        cap = self.cap([cell])
        horizon = cap or self.spec.run.time
        return self.points(cap).points(horizon, discrete=cap > 0).astype(float)

    def _one(
        self,
        cap: int,
        problem: Problem,
        state: State,
        optimizer: Dynamics,
        steps: Any,
        key: Any,
        stop: Any,
        together: str | None = None,
    ) -> Any:
        run = run_one(
            problem,
            state,
            optimizer,
            steps=(cap if self.series else steps) if cap else None,
            time=None if cap else self.spec.run.time,
            observe=self.observe,
            record=self.points(cap),
            stop=stop,
            checkpoint=self.checkpoint,
            divergence_limit=self.spec.run.divergence_limit,
            key=key,
            progress=None,
            resume_from=None,
            differentiable=False,
            batch_axis=together,
        )
        values = {}
        for q in self.quantities:
            if not q.where:
                values[q.name] = run[q.what]
                continue
            if q.what in ("step", "time", q.of):
                index: Any = -1
                if q.where != "end":
                    series = run[q.of]
                    index = jnp.nanargmin(series if q.where.startswith("lowest") else -series)
                clock = run.times if run.steps is None or q.what == "time" else run.steps
                values[q.name] = (clock if q.what in ("step", "time") else run[q.of])[index]
                continue
            there = run.final if q.where == "end" else run.checkpoints[q.where].state
            observable = observe.named(q.what)
            values[q.name] = observable(there, problem, observable.prepare(problem, state))
        return values, run.code, run.ended


def _stacked(*arrays: Any) -> Any:
    """In NumPy: a device would be given them one by one. Keys are arrays of JAX."""
    key = eqx.is_array(arrays[0]) and jnp.issubdtype(arrays[0].dtype, jax.dtypes.prng_key)
    return jnp.stack(arrays) if key else np.stack([np.asarray(x) for x in arrays])


def _inputs(cell: Cell, steps: Any = None) -> tuple[Any, ...]:
    steps = jnp.asarray(cell.steps) if steps is None else steps
    return cell.problem, cell.state, cell.optimizer, steps, cell.key, cell.stop
