"""What a probe has seen: lines of JSON in a folder, written while training goes on, and a dataset made of them.

    FOLDER/probe.json      what was probed: "format" 1, parameters, device, optimiser, layers
    FOLDER/looks.jsonl     a line for each step ("kind": "step") and for each look ("kind": "look")

A line is whole once it is written; a last one that a killed run has cut short is left out.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from linnet._check import InputError
from linnet._files import dumps, put, writing

if TYPE_CHECKING:
    import xarray

FORMAT = 1
ABOUT, LINES = "probe.json", "looks.jsonl"


class Record:
    """The lines of one probe, in memory and in a folder if there is one."""

    def __init__(self, about: Mapping[str, Any], folder: str | os.PathLike[str] | None):
        self.about, self.lines = {"format": FORMAT, **about}, list[dict[str, Any]]()
        self._file: Any = None
        if folder is None:
            return
        place = Path(folder)
        with writing(place):
            place.mkdir(parents=True, exist_ok=True)
            if (place / LINES).exists():
                raise InputError(f"folder = {str(folder)!r} is not allowed: it has the record of another probe.")
            put(place / ABOUT, dumps(self.about))
            self._file = (place / LINES).open("w", encoding="utf-8")

    def add(self, lines: list[dict[str, Any]]) -> None:
        """Keeps these lines, on the disk before it returns."""
        self.lines += lines
        if self._file is not None and lines:
            try:
                self._file.write("".join(json.dumps(_plain(line)) + "\n" for line in lines))
                self._file.flush()
            except (OSError, ValueError):
                self._file = None  # a full disk does not end a training; what is in memory stays

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def read(folder: str | os.PathLike[str]) -> Record:
    """The record that a probe has written."""
    place = Path(folder)
    try:
        about = json.loads((place / ABOUT).read_text(encoding="utf-8"))
        text = (place / LINES).read_text(encoding="utf-8")
    except (OSError, ValueError):
        raise InputError(f"folder = {str(folder)!r} is not allowed: there is no record of a probe.") from None
    if about.get("format") != FORMAT:
        raise InputError(f"{str(folder)!r} has format {about.get('format')}: this version of Linnet reads {FORMAT}.")
    found = Record({}, None)
    found.about = about
    for i, line in enumerate(whole := text.split("\n")):
        try:
            if line:
                found.lines.append(json.loads(line))
        except ValueError:
            if i < len(whole) - 1:
                raise InputError(f"{str(place / LINES)!r} is damaged: line {i + 1} cannot be read.") from None
    return found


def dataset(record: Record) -> "xarray.Dataset":
    """An `xarray.Dataset`: what was seen at every step along `step`, what at the looks along `look`."""
    import xarray

    data: dict[str, Any] = {}
    coords: dict[str, Any] = {}
    for axis in ("step", "look"):
        lines = [line for line in record.lines if line["kind"] == axis]
        coords[axis] = [line["step"] for line in lines]
        for name in dict.fromkeys(name for line in lines for name in line if name not in ("kind", "step")):
            rows = _stacked([line.get(name) for line in lines])
            data[name] = ((axis, *(f"{name}_{i}" for i in range(1, rows.ndim))), rows)
    return xarray.Dataset(data, coords=coords, attrs={"about": json.dumps(record.about)})


def _stacked(values: list[Any]) -> np.ndarray:
    """Numbers or rows of numbers as one array, with NaN where there is none."""
    rows = [np.asarray(np.nan if value is None else value, dtype=float) for value in values]
    most = max(row.ndim for row in rows)
    rows = [row.reshape((1,) * (most - row.ndim) + row.shape) for row in rows]
    out = np.full((len(rows), *np.max([row.shape for row in rows], axis=0).astype(int)), np.nan)
    for i, row in enumerate(rows):
        out[(i, *(slice(n) for n in row.shape))] = row
    return out


def _plain(value: Any) -> Any:
    """What JSON can hold; numbers that are not finite become null."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
