"""What topics of `predict` accept on the command line."""

from pathlib import Path

import numpy as np

from linnet._check import InputError

_PICTURES = (".png", ".svg", ".pdf")


def numbers(name: str, text: str, *, example: str = "3,2,1") -> np.ndarray:
    """Finite numbers with commas between them, as they stand."""
    try:
        values = np.array([float(part) for part in text.split(",")])
    except ValueError:
        values = np.array([np.nan])
    if not np.all(np.isfinite(values)):
        raise InputError(f"{name} = {text!r} is not allowed: give numbers with commas, such as {example}.")
    return values


def picture(plot: Path | None) -> None:
    """Refuses a file that no picture can be written to, before anything is computed."""
    if plot is not None and (plot.suffix.lower() not in _PICTURES or not plot.parent.is_dir()):
        ends = ", ".join(_PICTURES)
        raise InputError(f"plot = {str(plot)!r} is not allowed: give a file ending in {ends} in a folder that exists.")
