"""Parsers of option values: counts, lists of numbers, columns, and files for figures."""

from pathlib import Path
from typing import Any

import typer

_PICTURES = (".png", ".svg", ".pdf")


def numbers(name: str, text: str, *, whole: bool = False) -> list[Any]:
    """Numbers with commas between them; whole ones may be typed as 1000000, 1_000_000 or 1e6."""
    try:
        return [_whole(part) if whole else float(part) for part in text.split(",")]
    except ValueError:
        from linnet._check import InputError

        kind = "whole numbers" if whole else "numbers"
        raise InputError(f"{name} = {text!r} is not allowed: give {kind} with commas, such as 3,2,1.") from None


def count(text: Any) -> int:
    """A whole number as an option has it."""
    try:
        return _whole(str(text))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a whole number, such as 1000000 or 1e6.") from None


def columns(text: str) -> int | str:
    """How many columns, or their names."""
    try:
        return _whole(text)
    except ValueError:
        return text


def dimension(name: str, given: int | str | None) -> int | None:
    """A dimension, where there is no file whose columns have names."""
    if isinstance(given, str):
        from linnet._check import InputError

        raise InputError(f"{name} = {given!r} is not allowed without --data: give a dimension.")
    return given


def names(name: str, given: int | str | None) -> str | None:
    """Names of columns of a file."""
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
