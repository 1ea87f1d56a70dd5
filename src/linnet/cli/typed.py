"""What topics of `predict` accept on the command line; what is heavy loads when it is needed."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from linnet.predict.data import OwnSamples
    from linnet.problems import Regression

_PICTURES = (".png", ".svg", ".pdf")


def numbers(name: str, text: str, *, whole: bool = False, example: str = "3,2,1") -> list[Any]:
    """Numbers with commas between them; whole ones may be typed as 1000000, 1_000_000 or 1e6."""
    try:
        return [_whole(part) if whole else float(part) for part in text.split(",")]
    except ValueError:
        from linnet._check import InputError

        kind = "whole numbers" if whole else "numbers"
        raise InputError(f"{name} = {text!r} is not allowed: give {kind} with commas, such as {example}.") from None


def listed(name: str, text: str | None, *, whole: bool = False) -> Any:
    """One number, or several as a list; None for what was not typed."""
    if text is None:
        return None
    values = numbers(name, text, whole=whole)
    return values[0] if len(values) == 1 else values


def count(text: Any) -> int:
    """A whole number as an option has it."""
    try:
        return _whole(str(text))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a whole number, such as 1000000 or 1e6.") from None


def columns(text: str | None) -> int | str | None:
    """How many columns, or their names."""
    try:
        return None if text is None else _whole(text)
    except ValueError:
        return text


def dimension(name: str, text: str | None) -> int | None:
    """How many columns."""
    given = columns(text)
    if isinstance(given, str):
        from linnet._check import InputError

        raise InputError(f"{name} = {given!r} is not allowed without --data: give a dimension.")
    return given


def names(name: str, text: str | None) -> str | None:
    """Names of columns."""
    given = columns(text)
    if isinstance(given, int):
        from linnet._check import InputError

        raise InputError(f"{name} = {given} is not allowed with --data: give names of its columns.")
    return given


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        value = float(text)
        if not value.is_integer():  # infinity and NaN are not either
            raise
        return int(value)


def regression_of(
    data: Path | None,
    spectrum: str | None,
    inputs: str | None,
    outputs: str | None,
    samples: int | None,
    **reading: bool,
) -> "Regression | OwnSamples":
    """The user's own data, read as asked, or whitened data with a given spectrum."""
    from linnet._check import InputError
    from linnet.predict import read_regression, whitened

    if (data is None) == (spectrum is None):
        raise InputError("data or spectrum: give one of them, --data FILE or --spectrum 3,2,1.")
    if spectrum is not None:
        for name, value in reading.items():
            if value:
                raise InputError(f"{name} is not allowed with --spectrum: there are no samples.")
        sizes = {"inputs": dimension("inputs", inputs), "outputs": dimension("outputs", outputs), "samples": samples}
        return whitened(numbers("spectrum", spectrum), **sizes)
    if samples is not None:
        raise InputError(f"samples = {samples} is not allowed with --data: the file has its own.")
    return read_regression(data, inputs=names("inputs", inputs), outputs=columns(outputs), **reading)


def hidden_widths(depth: int | None, width: str) -> tuple[int, ...]:
    """The hidden widths from what was typed: one number for all of them, or one for each."""
    from linnet import _check

    given = [_check.integer("width", w, least=1) for w in numbers("width", width, whole=True)]
    if depth is None:
        return tuple(given)
    depth = _check.integer("depth", depth, least=2, most=1000)
    if len(given) == 1:
        return tuple(given * (depth - 1))
    if len(given) != depth - 1:
        raise _check.InputError(
            f"width = {width!r} is not allowed: a network of depth {depth} has {depth - 1} hidden "
            f"width{'s' if depth > 2 else ''}; give that many, or one for all."
        )
    return tuple(given)


def picture(plot: Path | None, *, name: str = "plot", films: bool = False) -> bool:
    """Refuses a file that no picture can be written to, before anything is computed; says whether it is a film."""
    from linnet._check import InputError
    from linnet._files import ready

    if plot is None:
        return False
    allowed, check, suffix = list(_PICTURES), ready, plot.suffix.lower()
    if films:
        from linnet.plot.animation import SUFFIXES, possible

        allowed.extend(SUFFIXES)
        check = possible if suffix in SUFFIXES else ready
    if suffix not in allowed or not plot.parent.is_dir() or plot.is_dir():
        ends = ", ".join(allowed)
        raise InputError(
            f"{name} = {str(plot)!r} is not allowed: give a file ending in {ends} in a folder that exists."
        )
    check(plot)
    return suffix not in _PICTURES


def refuse(why: str, **given: object) -> None:
    """Refuses options that contradict another one."""
    from linnet._check import InputError

    for name, value in given.items():
        if value is not None:
            raise InputError(f"{name} = {value} is not allowed with {why}.")
