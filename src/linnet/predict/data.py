"""Data files that users bring."""

import csv
import zipfile
import zlib
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from linnet import _check
from linnet._check import InputError
from linnet.linalg import RANK_TOLERANCE
from linnet.predict.asked import LARGEST, SMALLEST

SUFFIXES = (".npz", ".npy", ".csv")
_NAMES = (("inputs", "labels"), ("X", "Y"))
_DAMAGED = (ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error, MemoryError)


def read_regression(path: Path, *, outputs: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(inputs, labels) of a regression, samples as rows, both finite matrices.

    .npz: arrays called inputs and labels, or X and Y; labels may be a vector. .npy: one matrix. .csv: numbers with
    commas, with or without a line of names. In the last two the last `outputs` columns are the labels (default 1).
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"data = {str(path)!r} is not allowed: it must end in {', '.join(SUFFIXES)}.")
    if path.is_dir():
        raise _unreadable(path, "it is a folder")
    if outputs is not None:
        outputs = _check.integer("outputs", outputs, least=1)
    try:
        if suffix == ".npz":
            if outputs is not None:
                raise InputError(f"outputs = {outputs} is not allowed with .npz: the file itself names its labels.")
            inputs, labels = _pair(path)
        else:
            inputs, labels = _split(path, _npy(path) if suffix == ".npy" else _csv(path), outputs or 1)
    except FileNotFoundError:
        raise _unreadable(path, "there is no such file") from None
    except OSError as error:
        raise _unreadable(path, error.strerror or "it is damaged") from None
    if inputs.shape[0] != labels.shape[0]:
        raise _unreadable(path, f"inputs have {inputs.shape[0]} rows and labels {labels.shape[0]}")
    for name, array in (("inputs", inputs), ("labels", labels)):
        if bad := int(np.sum(~np.isfinite(array))):
            raise _unreadable(path, f"its {name} hold {bad} NaN or infinite entries")
        if not np.any(array):
            raise _unreadable(path, f"its {name} are all zero, so there is nothing to learn")
        if not SMALLEST < np.max(np.abs(array)) < LARGEST:
            why = f"its {name} reach {np.max(np.abs(array)):.3g}: give them in units that keep them"
            raise _unreadable(path, f"{why} between {SMALLEST:g} and {LARGEST:g}")
    # what the inputs see of the labels, in the frame of the inputs
    q, s, _ = np.linalg.svd(inputs, full_matrices=False)
    if np.linalg.norm(q[:, s > RANK_TOLERANCE * s[0]].T @ labels) <= RANK_TOLERANCE * np.linalg.norm(labels):
        raise _unreadable(path, "its labels are orthogonal to its inputs, so there is nothing to learn")
    return inputs, labels


def _unreadable(path: Path, why: str) -> InputError:
    return InputError(f"data = {str(path)!r} cannot be used: {why}.")


def _load(path: Path, file: BinaryIO) -> Any:
    """What NumPy reads; object arrays stay closed, since opening them would run code of the file."""
    try:
        return np.load(file, allow_pickle=False)
    except _DAMAGED:
        raise _unreadable(path, f"it is empty, damaged or not a {path.suffix} file of numbers") from None


def _npy(path: Path) -> np.ndarray:
    with path.open("rb") as file:
        found = _load(path, file)
    if not isinstance(found, np.ndarray):
        raise _unreadable(path, "it is not a .npy file of one matrix")
    return _matrix(path, "its array", found)


def _pair(path: Path) -> tuple[np.ndarray, np.ndarray]:
    with path.open("rb") as file:
        found = _load(path, file)
        if isinstance(found, np.ndarray):
            raise _unreadable(path, "it is not a .npz file of named arrays")
        names = next((pair for pair in _NAMES if set(pair) <= set(found.files)), None)
        if names is None:
            there = ", ".join(found.files) or "none"
            raise _unreadable(path, f"it needs arrays called inputs and labels, or X and Y, and has {there}")
        try:
            inputs, labels = (found[name] for name in names)
        except _DAMAGED:
            raise _unreadable(path, f"{names[0]} or {names[1]} is damaged or not of numbers") from None
    labels = labels[:, None] if labels.ndim == 1 else labels
    return _matrix(path, names[0], inputs), _matrix(path, names[1], labels)


def _matrix(path: Path, name: str, array: np.ndarray) -> np.ndarray:
    if array.dtype.kind not in "biuf":
        raise _unreadable(path, f"{name} is of type {array.dtype}, not of real numbers")
    if array.ndim != 2 or 0 in array.shape:
        raise _unreadable(path, f"{name} has shape {array.shape}, and a matrix with a row for each sample is needed")
    with np.errstate(over="ignore"):  # what double precision cannot hold becomes infinite, and is refused as that
        return array.astype(float)


def _split(path: Path, table: np.ndarray, outputs: int) -> tuple[np.ndarray, np.ndarray]:
    columns = table.shape[1]
    if columns <= outputs:
        raise _unreadable(
            path, f"it has {columns} column{'s' * (columns != 1)}, and {outputs} for labels leaves none for inputs"
        )
    return table[:, :-outputs], table[:, -outputs:]


def _csv(path: Path) -> np.ndarray:
    try:
        text = path.read_text(encoding="utf-8-sig")
        rows = [(number, row) for number, row in _rows(text) if row]
    except UnicodeDecodeError:
        raise _unreadable(path, "it is not text in UTF-8") from None
    except csv.Error as error:
        raise _unreadable(path, f"it is not a table with commas ({error})") from None
    if rows and not any(_number(cell) for cell in rows[0][1]):
        rows = rows[1:]  # names
    if not rows:
        raise _unreadable(path, "it has no rows of numbers")
    width = len(rows[0][1])
    for number, row in rows:
        if len(row) != width:
            raise _unreadable(path, f"line {number} has {len(row)} cells and the first row of numbers {width}")
    try:
        return np.array([row for _, row in rows], dtype=float)
    except ValueError:
        number, column, cell = next((n, i, c) for n, row in rows for i, c in enumerate(row, 1) if not _number(c))
        what = f"holds {_check.show(cell.strip())}" if cell.strip() else "is empty"
        raise _unreadable(path, f"line {number}, column {column} {what}, and numbers are needed") from None


def _rows(text: str) -> Any:
    lines = csv.reader(text.splitlines(), skipinitialspace=True)
    for row in lines:
        yield lines.line_num, row if any(cell.strip() for cell in row) else []


def _number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
