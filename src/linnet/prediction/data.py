"""Samples that users bring, as inputs and labels: which columns are which, and what is done to them first."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from linnet import _check
from linnet._check import InputError
from linnet.data import SUFFIXES, Table, pair_of, read_pair, read_table, table_of
from linnet.prediction.validation import LARGEST, SMALLEST

_CONSTANT = 1e-12  # of its largest entry: a column that varies by less is constant
_NAMED = 20  # columns that a sentence lists


@dataclass(frozen=True, eq=False)
class OwnSamples:
    """Inputs and labels, samples as rows, with the names of their columns where there are any.

    `average` is whether the loss is 1/(2n) sum of squares in place of 1/2 sum of squares, `prepared` what was done to
    the columns, in words. `x, y = read_regression(...)` takes the two matrices alone.
    """

    inputs: Float[np.ndarray, "n d_in"]
    labels: Float[np.ndarray, "n d_out"]
    input_names: tuple[str, ...] | None
    label_names: tuple[str, ...] | None
    average: bool
    prepared: tuple[str, ...]

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter((self.inputs, self.labels))


def read_regression(
    data: Any,
    labels: Any = None,
    *,
    inputs: str | Sequence[str] | None = None,
    outputs: int | str | Sequence[str] | None = None,
    samples: int | None = None,
    standardize: bool = False,
    center: bool = False,
    intercept: bool = False,
    frozen: Any = None,
    average: bool = False,
) -> OwnSamples:
    """Inputs and labels of a regression from a file, a data frame or arrays; every topic and `regression` take it.

    `data` is a file: text (.csv, .tsv, .txt, .dat: cells with commas, semicolons, tabs or spaces between them, decimal
    commas where semicolons or tabs separate), .npz (X and y, inputs and labels or targets), .npy, .parquet. Or it is a
    data frame, a matrix, a dictionary or a bunch of such arrays, or inputs with their `labels` beside them.

    Of one table the last `outputs` columns are labels (default 1), or those of these names ("price" or "price,area");
    all others are inputs, or those named by `inputs`. `samples` takes the first so many rows.

    Then, in this order: `frozen` is W_0 beside which an adapter is trained (outputs x inputs, an array or a file), and
    labels become Y - X W_0^T; `standardize` makes each input column (x - mean)/sqrt(variance), constant ones zero;
    `center` subtracts the column means of inputs and labels; `intercept` appends a column of ones to the inputs.

    `average` divides the loss by the number of samples where a topic makes a problem of them.

    >>> from linnet.prediction import read_regression
    >>> own = read_regression([[1.0, 2.0], [3.0, 4.0], [5.0, 9.0]], center=True)  # the last column is the label
    >>> own.labels.ravel().tolist(), own.prepared
    ([-3.0, -1.0, 4.0], ('inputs and labels centered',))
    """
    x, y = _parts(data, labels, inputs, outputs)
    rows = x.table.values.shape[0]
    if rows != y.table.values.shape[0]:
        raise x.table.refused(f"inputs have {rows} rows and labels {y.table.values.shape[0]}")
    if samples is not None and _check.integer("samples", samples, least=1) > rows:
        raise InputError(f"samples = {samples} is not allowed: {x.table.origin} holds {rows} samples.")
    first, second = x.numbers()[:samples], y.numbers()[:samples]
    names, done = x.names, [x.left_out] if x.left_out else []
    if frozen is not None:
        if standardize:
            raise InputError("standardize is not allowed with frozen: W_0 belongs to the inputs as they are.")
        second = second - first @ read_matrix("frozen", frozen, (second.shape[1], first.shape[1])).T
        done.append("labels less what the frozen matrix gives")
    if _check.flag("standardize", standardize):
        first, constant = _standardized(first)
        zero = ", ".join(x.table.column(x.columns[i]) for i in constant)
        done.append("inputs standardized" + (f" (constant, so zero: {zero})" if zero else ""))
    if _check.flag("center", center):
        first, second = (part - part.mean(axis=0) for part in (first, second))
        done.append("labels centered" if standardize else "inputs and labels centered")
    if _check.flag("intercept", intercept):
        if center:
            raise InputError("intercept is not allowed with center: centered data leave none to learn.")
        first = np.column_stack([first, np.ones(len(first))])
        names = None if names is None else (*names, "intercept")
        done.append("a column of ones appended to the inputs")
    _usable(x.table, first, second, done)
    return OwnSamples(first, second, names, y.names, _check.flag("average", average), tuple(done))


class _Part(NamedTuple):
    """Columns of a table, and a note about those left out."""

    table: Table
    columns: list[int]
    left_out: str = ""

    @property
    def names(self) -> tuple[str, ...] | None:
        known = self.table.names
        return None if known is None else tuple(known[i] for i in self.columns)

    def numbers(self) -> Float[np.ndarray, "rows chosen"]:
        return self.table.numbers(self.columns)


def _parts(data: Any, labels: Any, inputs: Any, outputs: Any) -> tuple[_Part, _Part]:
    """Which columns are inputs and which are labels."""
    pair: tuple[Table, Table] | None = None
    if isinstance(data, str | Path):
        path, suffix = Path(data), Path(data).suffix.lower()
        if suffix not in SUFFIXES:
            raise InputError(f"data = {str(path)!r} is not allowed: it must end in {', '.join(SUFFIXES)}.")
        if labels is not None:
            raise InputError("labels are not allowed with a file: outputs says which of its columns they are.")
        if suffix != ".npz":
            return _split(read_table(path), inputs, outputs)
        pair, why = read_pair(path), "with .npz: the file itself names its labels"
    elif isinstance(data, Mapping):
        pair, why = pair_of("data", data), "with named arrays: their names say what the labels are"
        titles = data.get("feature_names")  # of a bunch
        if pair[0].names is None and titles is not None and len(titles) == pair[0].values.shape[1]:
            pair = replace(pair[0], names=tuple(map(str, titles))), pair[1]
    elif labels is None:
        return _split(table_of("data", data), inputs, outputs)
    else:
        pair = table_of("data", data), table_of("labels", labels, vector=True)
        why = "with labels: they say it"
    if outputs is not None:
        raise InputError(f"outputs = {_check.show(outputs)} is not allowed {why}.")
    x, y = pair
    columns = [*range(x.values.shape[1])] if inputs is None else _found(x, "inputs", inputs)
    return _Part(x, columns), _Part(y, [*range(y.values.shape[1])])


def _split(table: Table, inputs: Any, outputs: Any) -> tuple[_Part, _Part]:
    """Labels are the last columns or those named; inputs are those named or all others."""
    rows, width = table.values.shape
    there, left_out = [*range(width)], ""
    # an index that a data frame wrote beside its columns
    if table.names and not table.names[0] and np.array_equal(table.values[:, 0], np.arange(rows)):
        there, left_out = there[1:], "the first column has no name and counts the rows: left out"
    if isinstance(outputs, str | Sequence):
        chosen = _found(table, "outputs", outputs)
    else:
        count = _check.integer("outputs", 1 if outputs is None else outputs, least=1)
        chosen = there[-count:]
    if inputs is not None:
        rest = _found(table, "inputs", inputs)
        if both := [table.column(i) for i in rest if i in chosen]:
            raise InputError(f"inputs = {_check.show(inputs)} is not allowed: {both[0]} is a label.")
        return _Part(table, rest), _Part(table, chosen)
    rest = [i for i in there if i not in chosen]
    if not rest:
        many = f"{len(there)} column{'s' * (len(there) != 1)}"
        count = len(chosen) if isinstance(outputs, str | Sequence) else outputs or 1
        raise table.refused(f"it has {many}, and {count} for labels leaves none for inputs")
    return _Part(table, rest, left_out), _Part(table, chosen)


def _found(table: Table, argument: str, wanted: Any) -> list[int]:
    """The columns of these names; a text may hold several, with commas between them."""
    known = table.names
    if isinstance(wanted, str):
        whole = known is not None and wanted in known
        wanted = [wanted] if whole else [part.strip() for part in wanted.split(",")]
    if not isinstance(wanted, Sequence) or not wanted or not all(isinstance(part, str) for part in wanted):
        raise InputError(f"{argument} = {_check.show(wanted)} is not allowed: give names of columns.")
    if known is None:
        raise InputError(f"{argument} = {', '.join(wanted)!r} is not allowed: {table.origin} has no names of columns.")
    columns = []
    for part in wanted:
        if known.count(part) != 1:
            close = difflib.get_close_matches(part, known, n=1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            listed = ", ".join(known[:_NAMED]) + (" ..." if len(known) > _NAMED else "")
            kind = "the name of several columns" if part in known else f"not a column{hint}"
            raise InputError(f"{argument} = {part!r} is {kind}: {table.origin} has {listed}.")
        columns.append(known.index(part))
    if len(set(columns)) < len(columns):
        raise InputError(f"{argument} = {', '.join(wanted)!r} is not allowed: a column is named twice.")
    return columns


def read_matrix(name: str, given: Any, shape: tuple[int, int]) -> Float[np.ndarray, "d_out d_in"]:
    """A matrix of outputs x inputs, such as W_0, of a file or an array; `name` is how sentences call it."""
    if isinstance(given, str | Path):
        allowed = [suffix for suffix in SUFFIXES if suffix != ".npz"]
        if Path(given).suffix.lower() not in allowed:
            raise InputError(f"{name} = {str(given)!r} is not allowed: it must end in {', '.join(allowed)}.")
        table = read_table(Path(given), name)
    else:
        table = table_of(name, given)
    if table.values.shape != shape:
        raise table.refused(f"it has shape {table.values.shape}, and {shape} is needed (outputs x inputs)")
    return table.numbers([*range(shape[1])])


def _standardized(inputs: Float[np.ndarray, "n d"]) -> tuple[Float[np.ndarray, "n d"], list[int]]:
    """Columns of mean 0 and variance 1, and those that are constant and become zero."""
    spread = np.ptp(inputs, axis=0)
    constant = spread <= _CONSTANT * np.max(np.abs(inputs), axis=0)
    inputs = inputs - inputs.mean(axis=0)
    inputs[:, constant] = 0.0
    return inputs / np.where(constant, 1.0, inputs.std(axis=0)), [int(i) for i in np.flatnonzero(constant)]


def _usable(table: Table, inputs: np.ndarray, labels: np.ndarray, done: list[str]) -> None:
    """Refuses what leaves nothing to learn, and units that squares do not survive."""
    for what, array in (("inputs", inputs), ("labels", labels)):
        largest = np.max(np.abs(array))
        if largest == 0:
            after = f" once prepared ({'; '.join(done)})" if done else ""
            raise table.refused(f"its {what} are all zero{after}, so there is nothing to learn")
        if not SMALLEST < largest < LARGEST:
            why = f"its {what} reach {largest:.3g}: give them in units that keep them"
            raise table.refused(f"{why} between {SMALLEST:g} and {LARGEST:g}")
