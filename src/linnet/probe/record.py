"""The record of a probe: lines of JSON in a folder, written during training, and a dataset made of them.

    FOLDER/probe.json      the model: "format" 3, parameters, precision, device, layers, and a hash of the names and
                           shapes of its parameters and the name of the loss, "training"
    FOLDER/record.jsonl    a line for each event, by its "kind":

    step           a step: its loss, and where they were compared its length and its cosine with the step before
    anchor         the loss on the probe's batch
    forward        a measurement by forward passes along a step
    measurement    one of curvature
    pairs          predictions of pairs of factors, before the first of curvature
    check          what the optimizer took, against what backward passes gave
    alarm          an alarm, once more when its cause is known
    status         a change of status
    resumed        the first step after a restart: of earlier lines those from this step on no longer count

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
    **dict.fromkeys(("step", "anchor", "forward", "check", "pairs", "status", "resumed"), ()),
    "measurement": ("batch_loss", "lowest", "products"),
    "alarm": ("factor", "usual"),
}
_TRIGGERS = ("non_finite", "skipped", "loss", "anchor")
_WORDS: dict[str, dict[str, tuple[Any, ...] | None]] = {  # what is not a number: any text where there is no list
    "status": {"status": None, "sentence": None},
    "alarm": {"trigger": _TRIGGERS, "cause": (None, "learning_rate", "bad_batch", "precision", "data_shift")},
    "check": {"dead_layer": None, "idle_name": None, "left_out_name": None, "kept": (True, False)},
    "measurement": {"reason": None},
}
_TOGETHER = (
    ("own_low", "own_high"),
    ("c_other", "c_other_low", "c_other_high"),
    ("dead", "dead_layer"),
    ("idle", "idle_name"),
    ("left_out", "left_out_name"),
    ("saddle", "saddle_share", "saddle_layer"),
)
_WITH = {  # numbers that there must be where the first of them is one
    "own_high": ("own_low",),
    "c_other_low": ("parts",),
    "saddle": ("saddle_share", "saddle_layer"),
    "ratio": ("threshold", "lr"),
    "adaptive": ("adaptive_residual",),
    "unsure": ("change",),
    "escape": ("lr",),
    "output_spread": ("output_mean",),
}
_KNOWN = ("age", "memory", "thawed", "passes", "adaptive", "parts")  # a number wherever they are
_NO_VARIABLES = ("kind", "step", "reason")  # of lines, in a dataset
_NOT_NUMBERS = ("layer", "regime", "assumptions")  # of a pair
_OF_PAIR = ("value", "imbalance", "sharpness", "reach", "end", "growth", "regime", "sharpness_end", "assumptions")
_LARGEST = 2**63  # of a whole number


class ProbeRecord:
    """The lines of one probe, in memory and in a folder if there is one."""

    def __init__(self, about: Mapping[str, Any], folder: str | os.PathLike[str] | None = None):
        self.about = {"format": FORMAT, **about}
        self._lines, self._kinds = list[dict[str, Any]](), dict[str, list[dict[str, Any]]]()
        self._file: Any = None
        if folder is None:
            return
        place = Path(folder)
        with writing(place):
            place.mkdir(parents=True, exist_ok=True)
            if (place / LINES).exists():
                self._continue(place)
            else:
                put(place / ABOUT, dumps(self.about))
            self._file = (place / LINES).open("ab", buffering=0)  # lines are on disk when `add` returns
            weakref.finalize(self, self._file.close)

    def _continue(self, place: Path) -> None:
        """Takes the lines of a record of the same training, without a last one that was cut short."""
        earlier = read(place)
        if earlier.about.get("training") != self.about.get("training"):
            raise InputError(
                f"folder = {str(place)!r} is not allowed: it has the record of another training, with other parameters "
                "or another loss."
            )
        self.about, self.lines = earlier.about, earlier.lines
        whole = (place / LINES).read_bytes()
        if not whole.endswith(b"\n"):
            with (place / LINES).open("r+b") as file:
                cut = whole.rfind(b"\n") + 1
                file.truncate(cut)
                if len(earlier.lines) > whole.count(b"\n"):  # only its end was missing
                    file.seek(cut)
                    file.write(json.dumps(earlier.lines[-1]).encode() + b"\n")

    @property
    def lines(self) -> list[dict[str, Any]]:
        """All lines."""
        return self._lines

    @lines.setter
    def lines(self, lines: list[dict[str, Any]]) -> None:
        self._lines, self._kinds = [], {}
        self._index(lines)

    def _index(self, lines: Sequence[dict[str, Any]]) -> None:
        self._lines += lines
        for line in lines:
            if line["kind"] == "resumed":
                for kind, known in self._kinds.items():
                    self._kinds[kind] = [one for one in known if one["step"] < line["step"]]
                continue
            self._kinds.setdefault(line["kind"], []).append(line)

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The lines of steps."""
        return [*self._kinds.get("step", ())]

    @property
    def measurements(self) -> list[dict[str, Any]]:
        """The lines of measurements."""
        return [*self._kinds.get("measurement", ())]

    @property
    def forwards(self) -> list[dict[str, Any]]:
        """The lines of measurements by forward passes."""
        return [*self._kinds.get("forward", ())]

    @property
    def anchors(self) -> list[dict[str, Any]]:
        """The lines of losses on the probe's batch."""
        return [*self._kinds.get("anchor", ())]

    @property
    def checks(self) -> list[dict[str, Any]]:
        """The lines of comparisons of gradients."""
        return [*self._kinds.get("check", ())]

    @property
    def alarms(self) -> list[dict[str, Any]]:
        """One line for each alarm, with its cause if that is known."""
        return list({line["step"]: line for line in self._kinds.get("alarm", ())}.values())

    @property
    def statuses(self) -> list[dict[str, Any]]:
        """The lines of changes of status: `step`, `status`, and the `sentence`."""
        return [*self._kinds.get("status", ())]

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
        return [pair for line in self._kinds.get("pairs", ())[-1:] for pair in line["pairs"]]

    def add(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Adds lines. If the disk refuses them, it is an `InputError`, and they and all later ones stay in memory."""
        new = [_plain(line) for line in lines]
        self._index(new)
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
    if len(line) == 3 and type(loss := line.get("loss")) is float and math.isfinite(loss):
        return dict(line)
    kinds = {type(value) for value in line.values()}
    if kinds <= {str, int, float} and all(math.isfinite(x) for x in line.values() if type(x) is float):
        return dict(line)
    found: dict[str, Any] = plain(line)
    return found


def read(folder: str | os.PathLike[str]) -> ProbeRecord:
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
    size = about.get("parameters")
    if not _is_count(size) or not all(isinstance(about.get(name), str) for name in ("precision", "device")):
        raise InputError(f"{str(place / ABOUT)!r} is damaged: a number of parameters and two texts are not there.")
    found = ProbeRecord(about)
    lines = list[dict[str, Any]]()
    *whole, last = text.split("\n")
    widths: dict[str, int] = {}
    for i, line in enumerate([*whole, last]):
        try:
            new = [json.loads(line)] if line else []
        except (ValueError, RecursionError):
            if i < len(whole):
                raise InputError(f"{str(place / LINES)!r} is damaged: line {i + 1} cannot be read.") from None
            continue
        for one in new:
            if not _is_line(one, len(names), widths):
                raise InputError(f"{str(place / LINES)!r} is damaged: line {i + 1} is none that a probe writes.")
        lines += new
    found.lines = lines
    last_rows = found.measurements[-1].get("mode_growth") if found.measurements else None
    if found.measurements and not all(
        isinstance(last_rows, list) and _is_known(last_rows[pair["layer"]]) for pair in found.pairs
    ):
        raise InputError(f"{str(place / LINES)!r} is damaged: there are pairs that no measurement has.")
    return found


def _is_line(line: Any, layers: int, widths: dict[str, int]) -> bool:
    """Whether this is a line of a probe of so many layers: its kind, what tables show of it, and numbers elsewhere.

    `widths` are the lengths of rows in measurements before it, and are filled.
    """
    if not isinstance(line, dict) or not isinstance(line.get("kind"), str) or line["kind"] not in _NEEDED:
        return False
    if type(line.get("step")) is not int or not _is_count(abs(line["step"])):
        return False
    if line["kind"] == "pairs":
        pairs = line.get("pairs")
        return isinstance(pairs, list) and all(_is_pair(pair, layers) for pair in pairs)
    words = _WORDS.get(line["kind"], {})
    required = (*_NEEDED[line["kind"]], *(words if line["kind"] in ("status", "alarm") else ()))
    if not all(name in line for name in required):
        return False
    if any(0 < sum(name in line for name in names) < len(names) for names in _TOGETHER):
        return False
    if any(_is_known(line.get(name)) and not all(_is_known(line.get(n)) for n in _WITH[name]) for name in _WITH):
        return False
    if not all(_is_known(line[name]) for name in _KNOWN if name in line):
        return False
    if line.get("saddle_layer") is not None and not _is_index(line["saddle_layer"], layers):
        return False
    measured = line["kind"] == "measurement"
    if measured and (("age" in line) != ("memory" in line) or not _has_rows(line, layers, widths)):
        return False
    return all(
        _is_word(value, words[name])
        if name in words
        else isinstance(value, bool) or _is_number(value) or (measured and isinstance(value, list))
        for name, value in line.items()
        if name != "kind"
    )


def _has_rows(line: dict[str, Any], layers: int, widths: dict[str, int]) -> bool:
    """Whether the numbers of a measurement are known and its rows are as long as those before it: one number for each
    eigenvalue, of which the first is known, and for each layer a number or a row of numbers.
    """
    rows = [line.get(name) for name in _EIGENVALUES]
    if not all(isinstance(row, list) and row and all(map(_is_number, row)) and _is_known(row[0]) for row in rows):
        return False
    if len({len(row) for row in rows if row}) > 1 or not all(_is_known(line[name]) for name in _NEEDED["measurement"]):
        return False
    for name, value in line.items():
        if not isinstance(value, list) or name in _EIGENVALUES:
            continue
        inner = {len(row) if isinstance(row, list) else 0 for row in value}
        if len(value) != layers or len(inner) > 1 or not all(_are_numbers(row) for row in value):
            return False
        if inner and widths.setdefault(name, *inner) not in inner:
            return False
    nested = line.get("singular_values", [[0.0]] * layers)
    drift = line.get("drift", [None] * layers)
    return isinstance(drift, list) and isinstance(nested, list) and all(isinstance(row, list) and row for row in nested)


def _is_word(value: Any, allowed: tuple[Any, ...] | None) -> bool:
    return (
        isinstance(value, str)
        if allowed is None
        else value is None or (isinstance(value, str | bool) and value in allowed)
    )


def _is_pair(pair: Any, layers: int) -> bool:
    if not isinstance(pair, dict) or not _is_index(pair.get("layer"), layers) or not set(_OF_PAIR) <= set(pair):
        return False
    errors, ended = pair["assumptions"], pair["end"] is not None
    if not isinstance(errors, dict) or "product" not in errors or not all(map(_is_known, errors.values())):
        return False
    if not (isinstance(pair["regime"], str) if ended else pair["regime"] is None or isinstance(pair["regime"], str)):
        return False
    if ended and not all(_is_known(pair[name]) for name in ("value", "imbalance", "growth")):
        return False
    return all(_is_number(value) for name, value in pair.items() if name not in _NOT_NUMBERS)


def _is_index(value: Any, layers: int) -> bool:
    return type(value) is int and 0 <= value < layers


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < _LARGEST


def _is_known(value: Any) -> bool:
    return value is not None and _is_number(value)


def _is_number(value: Any) -> bool:
    """Null stands for what is not finite."""
    if value is None:
        return True
    return _is_count(abs(value)) if type(value) is int else isinstance(value, float) and math.isfinite(value)


def _are_numbers(value: Any) -> bool:
    """A number or a row of them."""
    return all(map(_is_number, value)) if isinstance(value, list) else _is_number(value)


def dataset(record: ProbeRecord) -> "xarray.Dataset":
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
        for name in dict.fromkeys(name for line in lines for name in line if name not in _NO_VARIABLES):
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
