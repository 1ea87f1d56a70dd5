"""The record of a probe: lines of JSON in a folder, written during training, and a dataset made of them.

    FOLDER/probe.json      the model: "format" 3, parameters, precision, device, layers
    FOLDER/record.jsonl    a line for each event, by its "kind":

    step           a step: its loss, and where they were compared its length and its cosine with the step before
    anchor         the loss on the probe's batch
    forward        a measurement by forward passes along a step
    measurement    one of curvature
    pairs          predictions of pairs of factors, before the first of curvature
    check          what the optimizer took, against what backward passes gave
    alarm          an alarm, once more when its cause is known
    status         a change of status

A last line that a killed run has cut short is left out.
"""

import json
import math
import os
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from linnet._files import dumps, plain, put, refusal, writing
from linnet._input import InputError

if TYPE_CHECKING:
    import xarray

FORMAT = 3
ABOUT, LINES = "probe.json", "record.jsonl"
_EIGENVALUES = ("sharpness", "residual")  # one number for each eigenvalue; other rows have one for each layer
_NEEDED = {  # numbers of each kind of line
    **dict.fromkeys(("step", "anchor", "forward", "check", "pairs", "status"), ()),
    "measurement": ("batch_loss", "lowest", "products"),
    "alarm": ("factor", "usual"),
}
_TRIGGERS = ("non_finite", "skipped", "loss", "anchor")
_WORDS: dict[str, dict[str, tuple[Any, ...] | None]] = {  # what is not a number: any text where there is no list
    "status": {"status": None, "sentence": None},
    "alarm": {"trigger": _TRIGGERS, "cause": (None, "learning_rate", "bad_batch", "precision", "data_shift")},
    "check": {"dead_layer": None, "kept": (True, False)},
    "measurement": {"reason": None},
}
_TOGETHER = (("own_low", "own_high"), ("c_other_low", "c_other_high", "parts"), ("dead", "dead_layer"))
_NOT_NUMBERS = ("layer", "regime", "assumptions")  # of a pair


class Record:
    """The lines of one probe, in memory and in a folder if there is one."""

    def __init__(self, about: Mapping[str, Any], folder: str | os.PathLike[str] | None = None):
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
            self._file = (place / LINES).open("wb", buffering=0)  # lines are on disk when `add` returns
            weakref.finalize(self, self._file.close)

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The lines of steps."""
        return [line for line in self.lines if line["kind"] == "step"]

    @property
    def measurements(self) -> list[dict[str, Any]]:
        """The lines of measurements."""
        return [line for line in self.lines if line["kind"] == "measurement"]

    @property
    def forwards(self) -> list[dict[str, Any]]:
        """The lines of measurements by forward passes."""
        return [line for line in self.lines if line["kind"] == "forward"]

    @property
    def anchors(self) -> list[dict[str, Any]]:
        """The lines of losses on the probe's batch."""
        return [line for line in self.lines if line["kind"] == "anchor"]

    @property
    def checks(self) -> list[dict[str, Any]]:
        """The lines of comparisons of gradients."""
        return [line for line in self.lines if line["kind"] == "check"]

    @property
    def alarms(self) -> list[dict[str, Any]]:
        """One line for each alarm, with its cause if that is known."""
        return list({line["step"]: line for line in self.lines if line["kind"] == "alarm"}.values())

    @property
    def statuses(self) -> list[dict[str, Any]]:
        """The lines of changes of status: `step`, `status`, and the `sentence`."""
        return [line for line in self.lines if line["kind"] == "status"]

    @property
    def pairs(self) -> list[dict[str, Any]]:
        """Predictions of pairs of factors at the first measurement, those with the largest gradients first.

        `layer` is the pair's number among the layers, `value` u^T P v of its mode, `slope` and `curvature` those of the
        loss along it, `imbalance` c, `share` that of the mode in the gradient that the pair reaches, and `reach` the
        share of this in the whole gradient; `sharpness` is the largest curvature in its factors, up to `residual`.
        Unless the loss curves downwards: `end`, the value that is needed, `growth` of the kernel until then, `regime`,
        `sharpness_end`, and `largest_lr`. `assumptions` has the errors of three: the loss depends on the `product`
        alone, the mode is `aligned` with its kernel, and its formula gives the measured `sharpness`.
        """
        return [pair for line in self.lines if line["kind"] == "pairs" for pair in line["pairs"]]

    def add(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Adds lines. If the disk refuses them, it is an `InputError`, and they and all later ones stay in memory."""
        new = [_plain(line) for line in lines]
        self.lines += new
        if self._file is None:
            return
        text = memoryview("".join(json.dumps(line) + "\n" for line in new).encode())
        try:
            while text:
                text = text[self._file.write(text) :]
        except OSError as error:
            name = self._file.name
            self.close()
            why = refusal(error).partition(";")[0]
            raise InputError(f"{name!r} cannot be written: {why}. Later lines stay in memory.") from None

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _plain(line: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers that JSON has; most lines are those of steps, and have nothing else."""
    kinds = {type(value) for value in line.values()}
    if kinds <= {str, int, float} and all(math.isfinite(x) for x in line.values() if type(x) is float):
        return dict(line)
    found: dict[str, Any] = plain(line)
    return found


def read(folder: str | os.PathLike[str]) -> Record:
    """The record that a probe has written, also of a training that is still running."""
    place = Path(folder)
    try:
        about = json.loads((place / ABOUT).read_text(encoding="utf-8"))
        text = (place / LINES).read_text(encoding="utf-8")
    except (OSError, ValueError, RecursionError):
        raise InputError(f"folder = {str(folder)!r} is not allowed: there is no record of a probe.") from None
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise InputError(f"{str(place / ABOUT)!r} is not of format {FORMAT}: this version of Linnet reads no other.")
    names = about.get("layers")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{str(place / ABOUT)!r} is damaged: layers are no list of names.")
    found = Record(about)
    *whole, last = text.split("\n")
    for i, line in enumerate([*whole, last]):
        try:
            new = [json.loads(line)] if line else []
        except (ValueError, RecursionError):
            if i < len(whole):
                raise InputError(f"{str(place / LINES)!r} is damaged: line {i + 1} cannot be read.") from None
            continue
        for one in new:
            if not _is_line(one, len(names)):
                raise InputError(f"{str(place / LINES)!r} is damaged: line {i + 1} is none that a probe writes.")
        found.lines += new
    return found


def _is_line(line: Any, layers: int) -> bool:
    """Whether this is a line of a probe of so many layers: its kind, what tables show of it, and numbers elsewhere."""
    if not isinstance(line, dict) or not isinstance(line.get("kind"), str) or line["kind"] not in _NEEDED:
        return False
    if line["kind"] == "pairs":
        pairs = line.get("pairs")
        return isinstance(pairs, list) and all(_is_pair(pair, layers) for pair in pairs)
    words = _WORDS.get(line["kind"], {})
    required = (*_NEEDED[line["kind"]], *(words if line["kind"] in ("status", "alarm") else ()))
    if type(line.get("step")) is not int or not all(name in line for name in required):
        return False
    if any(0 < sum(name in line for name in names) < len(names) for names in _TOGETHER):
        return False
    rows = all(isinstance(line.get(name), list) and line[name] for name in _EIGENVALUES)
    if line["kind"] == "measurement" and not rows:
        return False
    if not all(_is_number(line[name]) for name in _NEEDED[line["kind"]]):
        return False
    return all(
        _is_word(value, words[name]) if name in words else _are_numbers(value)
        for name, value in line.items()
        if name != "kind"
    )


def _is_word(value: Any, allowed: tuple[Any, ...] | None) -> bool:
    return (
        isinstance(value, str)
        if allowed is None
        else value is None or (isinstance(value, str | bool) and value in allowed)
    )


def _is_pair(pair: Any, layers: int) -> bool:
    if not isinstance(pair, dict) or not isinstance(pair.get("layer"), int) or not 0 <= pair["layer"] < layers:
        return False
    return all(_is_number(value) for name, value in pair.items() if name not in _NOT_NUMBERS)


def _is_number(value: Any) -> bool:
    """Null stands for what is not finite."""
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _are_numbers(value: Any, depth: int = 3) -> bool:
    """A number or lists of them, one in another at most twice."""
    if isinstance(value, list):
        return depth > 1 and all(_are_numbers(part, depth - 1) for part in value)
    return isinstance(value, bool) or _is_number(value)


def dataset(record: Record) -> "xarray.Dataset":
    """An `xarray.Dataset`: values of steps along `step`, of measurements of curvature along `measurement`, of those by
    forward passes along `forward`, and of losses on the probe's batch along `anchor_step`; NaN is unknown. A name that
    two of them have begins with its axis the second time: `forward_lr`.

    Rows of numbers go along `eigenvalue` (the largest first) or along `layer`, several of a layer along `value`.
    Predictions of pairs of factors are `pair_end`, `pair_growth`, and so on, along `layer`.
    """
    import xarray

    data: dict[str, Any] = {}
    coords: dict[str, Any] = {"layer": record.about["layers"]}
    axes = {"step": record.steps, "measurement": record.measurements, "forward": record.forwards}
    for axis, lines in (axes | {"anchor_step": record.anchors}).items():
        coords[axis] = [line["step"] for line in lines]
        for name in dict.fromkeys(name for line in lines for name in line if name not in ("kind", "step")):
            rows = _stacked([line.get(name) for line in lines])
            inner = ("eigenvalue",) if name in _EIGENVALUES else ("layer", "value")
            data[f"{axis}_{name}" if name in data else name] = ((axis, *inner[: rows.ndim - 1]), rows)
    for name in dict.fromkeys(name for pair in record.pairs for name in pair if name not in _NOT_NUMBERS):
        data[f"pair_{name}"] = ("layer", np.full(len(record.about["layers"]), np.nan))
        for pair in record.pairs:
            data[f"pair_{name}"][1][pair["layer"]] = np.nan if pair[name] is None else pair[name]
    return xarray.Dataset(data, coords=coords, attrs={"about": json.dumps(record.about)})


def _stacked(values: list[Any]) -> np.ndarray:
    """Numbers or rows of numbers as one array, with NaN where there is none."""
    rows = [np.asarray(np.nan if value is None else value, dtype=float) for value in values]
    most = max(row.ndim for row in rows)
    rows = [row.reshape((1,) * (most - row.ndim) + row.shape) for row in rows]
    shape = np.max([row.shape for row in rows], axis=0).astype(int) if most else ()
    out = np.full((len(rows), *shape), np.nan)
    for i, row in enumerate(rows):
        where: tuple[int | slice, ...] = (i, *map(slice, row.shape))
        out[where] = row
    return out
