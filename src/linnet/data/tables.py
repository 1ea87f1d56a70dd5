"""Tables and arrays from users' files (text, NumPy, Parquet), data frames, and arrays, checked cell by cell."""

import csv
import io
import re
import zipfile
import zlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from jaxtyping import Float

from linnet import _check
from linnet._check import InputError

LARGEST = 1e50  # the squares of larger numbers, and their sums, may overflow
TEXT = (".csv", ".tsv", ".txt", ".dat")
SUFFIXES = (*TEXT, ".npz", ".npy", ".parquet")
_INPUTS, _LABELS = ("inputs", "x", "data"), ("labels", "y", "targets", "target")
# RuntimeError: a .npz that is locked by a password, or packed in a way that is not known here
_DAMAGED = (ValueError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error, MemoryError)
_DELIMITERS = (",", ";", "\t", " ")
_DECIMAL_COMMA = re.compile(r"\s*[+-]?\d+,\d+([eE][+-]?\d+)?\s*$")
_SAMPLE_LINES = 200  # lines from which the delimiter is inferred


@dataclass(frozen=True)
class Table:
    """Numbers in rows and columns, NaN where a cell is none; `odd` holds what stands in such cells.

    `origin` names the source in sentences, `part` the array of it; `lines` are the lines of a text file.
    """

    origin: str
    values: Float[np.ndarray, "rows columns"]
    names: tuple[str, ...] | None = None
    lines: Sequence[int] | None = None
    odd: Mapping[tuple[int, int], Any] = field(default_factory=dict)
    part: str = ""

    def refused(self, why: str) -> InputError:
        """The sentence for something wrong with it."""
        return refused(self.origin, why)

    def column(self, index: int) -> str:
        """How a column is called in sentences."""
        return f"column {index + 1}" + (f" ({self.names[index]})" if self.names else "")

    def numbers(self, columns: list[int]) -> Float[np.ndarray, "rows chosen"]:
        """These columns; a cell that is not a finite number of a size that squares survive is named and refused."""
        found = self.values[:, columns]
        good = np.abs(found) <= LARGEST  # false for NaN too
        if good.all():
            return found
        row, chosen = (int(i) for i in np.unravel_index(int(np.argmin(good)), good.shape))
        index = columns[chosen]
        number = f"row {row + 1}" if self.lines is None else f"line {self.lines[row]}"
        where = f"{number}, {self.column(index)}" + (f" of {self.part}" if self.part else "")
        cell = self.odd.get((row, index), float(found[row, chosen]))
        raise self.refused(f"{where} {_wrong(cell)}")


def read_table(path: Path, argument: str = "data") -> Table:
    """The one table of a text file, a .npy or a .parquet file; `argument` is how sentences call it."""
    origin, suffix = f"{argument} = {str(path)!r}", path.suffix.lower()
    with _opened(origin):
        if suffix in TEXT:
            return _text(origin, path)
        if suffix == ".npy":
            return _array(origin, _npy(origin, path))
        return _frame(origin, _parquet(origin, path))


def read_array(path: Path, argument: str, array: str | None = None) -> Float[np.ndarray, "..."]:
    """The array of a file: a matrix of a text or .parquet file, the array of a .npy file, or of a .npz file the one
    named `array` (default the first). A cell of a table that is not a finite number is an `InputError`.

    `argument` is how messages call the file.
    """
    origin, suffix = f"{argument} = {str(path)!r}", path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"{origin} is not allowed: it must end in {', '.join(SUFFIXES)}.")
    if suffix not in (".npy", ".npz"):
        table = read_table(path, argument)
        return table.numbers([*range(table.values.shape[1])])
    with _opened(origin):
        if suffix == ".npy":
            return _npy(origin, path)
        with path.open("rb") as file:
            found = _load(origin, path, file)
            if isinstance(found, np.ndarray) or not found.files:
                raise refused(origin, "it is not a .npz file of named arrays")
            name = found.files[0] if array is None else array
            if name not in found.files:
                raise refused(origin, f"it has no array {name!r}, only {', '.join(found.files)}")
            try:
                return found[name]
            except _DAMAGED:
                raise refused(origin, f"{name} is damaged or not of numbers") from None


def read_pair(path: Path) -> tuple[Table, Table]:
    """Inputs and labels of a .npz file."""
    origin = f"data = {str(path)!r}"
    with _opened(origin), path.open("rb") as file:
        found = _load(origin, path, file)
        if isinstance(found, np.ndarray):
            raise refused(origin, "it is not a .npz file of named arrays")
        return pair_of(origin, found)


def pair_of(origin: str, arrays: Mapping[str, Any]) -> tuple[Table, Table]:
    """Inputs and labels among named arrays: X and y, inputs and labels, data and target, in capitals or not.

    `origin` is how messages call them.
    """
    chosen = []
    for known in (_INPUTS, _LABELS):
        there = [key for key in arrays if key.lower() in known]
        if len(there) != 1:
            has = f"both {' and '.join(there)}" if there else ", ".join(arrays) or "none"
            names = f"one array called {' or '.join(_INPUTS)}, and one called {' or '.join(_LABELS)}"
            raise refused(origin, f"it needs {names}, and has {has}")
        chosen.append(there[0])
    try:
        inputs, labels = (arrays[key] for key in chosen)
    except _DAMAGED:
        raise refused(origin, f"{chosen[0]} or {chosen[1]} is damaged or not of numbers") from None
    return table_of(origin, inputs, part=chosen[0]), table_of(origin, labels, part=chosen[1], vector=True)


def table_of(origin: str, value: Any, *, part: str = "", vector: bool = False) -> Table:
    """The table of a data frame, a series or an array; a `vector` is one column where that is allowed.

    `value` is what the user gave; `origin` and `part` are how messages call it.
    """
    if hasattr(value, "to_numpy") and hasattr(value, "columns"):
        return _frame(origin, value, part)
    if hasattr(value, "to_numpy") and vector:  # a series, and what it is called
        cells, odd = _cells(np.asarray(value.to_numpy(), dtype=object)[:, None])
        title = getattr(value, "name", None)
        return Table(origin, cells, None if title is None else (str(title),), odd=odd, part=part)
    try:
        found = np.asarray(value)
    except (TypeError, ValueError):
        found = np.asarray(value, dtype=object)
    return _array(origin, found[:, None] if vector and found.ndim == 1 else found, part)


def refused(origin: str, why: str) -> InputError:
    """The sentence for something wrong with what users bring."""
    return InputError(f"{origin} cannot be used: {why}.")


@contextmanager
def _opened(origin: str) -> Iterator[None]:
    """What an operating system says of a file, in one sentence."""
    try:
        yield
    except FileNotFoundError:
        raise refused(origin, "there is no such file") from None
    except IsADirectoryError:
        raise refused(origin, "it is a folder") from None
    except OSError as error:
        raise refused(origin, error.strerror or "it is damaged") from None


def _wrong(cell: Any) -> str:
    """What is wrong with a cell."""
    if isinstance(cell, str):
        if not cell.strip():
            return "is empty, and a number is needed"
        if _DECIMAL_COMMA.match(cell):
            return f"holds {cell.strip()!r}, a decimal comma: write a point, or separate columns by semicolons"
        if (size := _number(cell)) is None:
            return f"holds {_check.show(cell.strip())}, and a number is needed: choose the columns of numbers as inputs"
        cell = size
    if not isinstance(cell, float):
        return f"holds {_check.show(cell)}, and a number is needed"
    if not np.isfinite(cell):
        return f"holds {cell}, and a finite number is needed"
    return f"holds {cell:.3g}: give units that keep numbers below {LARGEST:g}"


# NumPy, frames, Parquet ----------------------------------------------------------------------------------------------


def _load(origin: str, path: Path, file: BinaryIO) -> Any:
    """What NumPy reads; object arrays stay closed, since opening them would run code of the file."""
    try:
        return np.load(file, allow_pickle=False)
    except _DAMAGED:
        raise refused(origin, f"it is empty, damaged or not a {path.suffix} file of numbers") from None


def _npy(origin: str, path: Path) -> np.ndarray:
    with path.open("rb") as file:
        found = _load(origin, path, file)
    if not isinstance(found, np.ndarray):
        raise refused(origin, "it is not a .npy file of one matrix")
    return found


def _array(origin: str, found: np.ndarray, part: str = "") -> Table:
    what = part or "its array"
    if found.ndim != 2 or 0 in found.shape:
        raise refused(origin, f"{what} has shape {found.shape}, and a matrix with a row for each sample is needed")
    if found.dtype == object:
        values, odd = _cells(found)
        return Table(origin, values, odd=odd, part=part)
    if found.dtype.kind not in "biuf":
        raise refused(origin, f"{what} is of type {found.dtype}, not of real numbers")
    with np.errstate(over="ignore"):  # what double precision cannot hold becomes infinite, and is refused as that
        return Table(origin, found.astype(float), part=part)


def _frame(origin: str, frame: Any, part: str = "") -> Table:
    """A data frame of whatever library: it has columns and becomes an array."""
    found = np.asarray(frame.to_numpy())
    names = tuple(str(column) for column in frame.columns)
    if 0 in found.shape:
        raise refused(origin, f"it has shape {found.shape}, and rows of numbers are needed")
    values, odd = _cells(found)
    return Table(origin, values, names, odd=odd, part=part)


def _cells(found: np.ndarray) -> tuple[np.ndarray, dict[tuple[int, int], Any]]:
    """Numbers of cells that may hold anything, and what is no number."""
    odd: dict[tuple[int, int], Any] = {}
    values = np.empty(found.shape)
    for i, column in enumerate(found.T):
        try:
            if column.dtype.kind in "mMc":  # moments and complex numbers would become numbers
                raise TypeError
            values[:, i] = column.astype(float)
        except (TypeError, ValueError):
            for j, cell in enumerate(column):
                try:
                    values[j, i] = float(cell)
                except (TypeError, ValueError):
                    values[j, i], odd[j, i] = np.nan, cell
    return values, odd


def _parquet(origin: str, path: Path) -> Any:
    import pandas  # which xarray brings; what reads the format it does not

    if not path.is_file():
        raise IsADirectoryError if path.is_dir() else FileNotFoundError
    try:
        return pandas.read_parquet(path)
    except ImportError:
        raise refused(origin, "reading it needs pyarrow, so install that (pip install pyarrow)") from None
    except (ValueError, OSError):
        raise refused(origin, "it is empty, damaged or not a .parquet file") from None


# Text ----------------------------------------------------------------------------------------------------------------


def _text(origin: str, path: Path) -> Table:
    """Numbers with commas, semicolons, tabs or spaces between them, with or without a line of names."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        delimiter = _delimiter(text)
        found = _numbered(origin, _rows(text, delimiter), commas=delimiter in ";\t")
        if found.names is None and text.startswith("#"):  # as NumPy writes names
            _, names = next(_rows(text.split("\n", 1)[0].lstrip("# \t"), delimiter), (0, []))
            if len(names) == found.values.shape[1]:
                return replace(found, names=tuple(cell.strip() for cell in names))
    except UnicodeDecodeError:
        raise refused(origin, "it is not text in UTF-8") from None
    except csv.Error as error:
        raise refused(origin, f"it is not a table ({error})") from None
    return found


def _numbered(origin: str, rows: Iterator[tuple[int, list[str]]], *, commas: bool) -> Table:
    """The numbers in rows of text; with `commas` decimal ones are understood, where no cell has a point."""
    names: tuple[str, ...] | None = None
    lines, values, width = array("q"), array("d"), 0
    odd: dict[tuple[int, int], str] = {}
    point: str | None = None
    for line, row in rows:
        if names is None and not lines and not any(_numeric(cell) for cell in row):
            names = tuple(cell.strip() for cell in row)
            continue
        width = width or len(row)
        if len(row) != width:
            raise refused(origin, f"line {line} has {len(row)} cells and the first row of numbers {width}")
        try:
            values.extend([float(cell) for cell in row])
        except ValueError:
            known = [_number(cell) for cell in row]
            odd |= {(len(lines), i): row[i] for i, number in enumerate(known) if number is None}
            values.extend([np.nan if number is None else number for number in known])
        if commas and point is None:
            point = next((f"line {line} {cell.strip()!r}" for cell in row if "." in cell and _numeric(cell)), None)
        lines.append(line)
    if not lines:
        raise refused(origin, "it has no rows of numbers")
    if names is not None and len(names) != width:
        raise refused(origin, f"its line of names has {len(names)} cells and the first row of numbers {width}")
    table = np.frombuffer(values).reshape(len(lines), width)
    for place in [place for place, cell in odd.items() if commas and _DECIMAL_COMMA.match(cell)]:
        cell = odd.pop(place)
        if point:
            both = f"line {lines[place[0]]} holds {cell.strip()!r} with a decimal comma and {point} with a point"
            raise refused(origin, f"{both}, and one kind is needed")
        table[place] = float(cell.replace(",", "."))
    return Table(origin, table, names, lines, odd)


def _rows(text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """(line, cells) of all lines that hold something, without those that begin with #."""
    if delimiter == " ":
        cut: Iterator[tuple[int, list[str]]] = ((i, line.split()) for i, line in enumerate(io.StringIO(text), 1))
    else:
        reader = csv.reader(io.StringIO(text), delimiter=delimiter, skipinitialspace=True)
        cut = ((reader.line_num, row) for row in reader)
    for line, row in cut:
        if any(cell and not cell.isspace() for cell in row) and not row[0].startswith("#"):
            yield line, row


def _delimiter(text: str) -> str:
    """What separates cells: that by which lines have most alike numbers of cells, and most cells are numbers.

    Both shares are multiplied, over the lines after the first (which may be names); of equals that comes first which
    gives the first line as many cells, and then a comma.
    """
    best, chosen = (-1.0, -1.0), ","
    for delimiter in _DELIMITERS:
        rows = []
        for _, row in _rows(text, delimiter):
            rows.append(row)
            if len(rows) > _SAMPLE_LINES:
                break
        body = rows[1:] or rows
        widths = [len(row) for row in body]
        usual = max(set(widths), key=widths.count, default=0)
        if usual < 2:
            continue
        alike = [row for row in body if len(row) == usual]
        cells = [cell for row in alike for cell in row]
        share = len(alike) / len(body) * sum(map(_numeric, cells)) / len(cells)
        score = share, float(len(rows[0]) == usual)
        if score > best:
            best, chosen = score, delimiter
    return chosen


def _numeric(cell: str) -> bool:
    """Whether it is a number, with a point or a comma (which no cell has where commas separate them)."""
    return _number(cell) is not None or _DECIMAL_COMMA.match(cell) is not None


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None
