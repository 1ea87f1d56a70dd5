"""What topics of `predict` accept on the command line."""

from pathlib import Path
from typing import Any

import numpy as np

from linnet import _check
from linnet._check import InputError
from linnet._files import ready
from linnet.predict import whitened
from linnet.predict.asked import LARGEST, SMALLEST
from linnet.predict.data import read_regression
from linnet.problems import Regression, regression

_PICTURES = (".png", ".svg", ".pdf")


def numbers(name: str, text: str, *, example: str = "3,2,1") -> np.ndarray:
    """Numbers with commas between them, as they stand: 0, or of a size from 1e-50 to 1e50."""
    try:
        values = np.array([float(part) for part in text.split(",")])
    except ValueError:
        values = np.array([np.nan])
    if not np.all(np.isfinite(values)):
        raise InputError(f"{name} = {text!r} is not allowed: give numbers with commas, such as {example}.")
    sizes = np.abs(values[values != 0])
    if np.any(sizes < SMALLEST) or np.any(sizes > LARGEST):
        raise InputError(
            f"{name} = {text!r} is not allowed: keep numbers between {SMALLEST:g} and {LARGEST:g} in size."
        )
    return values


def regression_of(
    data: Path | None, spectrum: str | None, inputs: int | None, outputs: int | None, samples: int | None, average: bool
) -> Regression:
    """The user's own data, or whitened data with a given spectrum."""
    if (data is None) == (spectrum is None):
        raise InputError("data or spectrum: give one of them, --data FILE or --spectrum 3,2,1.")
    if spectrum is not None:
        if average:
            raise InputError("average is not allowed with --spectrum: there are no samples to average over.")
        return whitened(numbers("spectrum", spectrum), inputs=inputs, outputs=outputs, samples=samples)
    assert data is not None
    for name, value in (("inputs", inputs), ("samples", samples)):
        if value is not None:
            raise InputError(f"{name} = {value} is not allowed with --data: the file has its own.")
    return regression(*read_regression(data, outputs=outputs), average=average)


def hidden_widths(depth: int | None, width: str) -> tuple[int, ...]:
    """The hidden widths from what was typed: one number for all of them, or one for each."""
    given = [_check.integer("width", w, least=1) for w in numbers("width", width).tolist()]
    if depth is None:
        return tuple(given)
    depth = _check.integer("depth", depth, least=2, most=1000)
    if len(given) == 1:
        return tuple(given * (depth - 1))
    if len(given) != depth - 1:
        raise InputError(
            f"width = {width!r} is not allowed: a network of depth {depth} has {depth - 1} hidden "
            f"width{'s' if depth > 2 else ''}; give that many, or one for all."
        )
    return tuple(given)


def picture(plot: Path | None, *, name: str = "plot") -> None:
    """Refuses a file that no picture can be written to, before anything is computed."""
    if plot is None:
        return
    if plot.suffix.lower() not in _PICTURES or not plot.parent.is_dir() or plot.is_dir():
        ends = ", ".join(_PICTURES)
        raise InputError(
            f"{name} = {str(plot)!r} is not allowed: give a file ending in {ends} in a folder that exists."
        )
    ready(plot)


def first_samples(data: Path, count: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and labels of a file, or of its first samples."""
    inputs, labels = read_regression(data)
    if count is None:
        return inputs, labels
    if not 1 <= count <= len(inputs):
        raise InputError(f"samples = {count} is not allowed: {str(data)!r} holds {len(inputs)} samples.")
    return inputs[:count], labels[:count]


def refuse(why: str, **given: object) -> None:
    """Refuses options that contradict another one."""
    for name, value in given.items():
        if value is not None:
            raise InputError(f"{name} = {value} is not allowed with {why}.")


def listed(name: str, text: str | None, *, whole: bool = False) -> Any:
    """One number, or several with commas between them, as they stand; None for what was not typed."""
    if text is None:
        return None
    try:
        values = [int(part) if whole else float(part) for part in text.split(",")]
    except ValueError:
        kind = "whole numbers" if whole else "numbers"
        raise InputError(f"{name} = {text!r} is not allowed: give {kind} with commas, such as 3,2.") from None
    return values[0] if len(values) == 1 else values
