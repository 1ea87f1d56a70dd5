"""Where a probe's numbers come from and go to: accelerators, the terminal, and event files."""

import os
from typing import Any

import torch

from linnet._input import InputError


class LiveLine:
    """One line of the terminal that is overwritten; nothing where there is no terminal."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True)

    def show(self, text: str) -> None:
        if self._console.is_terminal:
            width = self._console.width - 1
            self._console.print(text[:width].ljust(width), end="\r", highlight=False, markup=False)

    def close(self) -> None:
        if self._console.is_terminal:
            self._console.print()


def board(folder: str | os.PathLike[str]) -> Any:
    """TensorBoard's writer for this folder."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise InputError(
            "tensorboard is not installed: pip install tensorboard, or leave tensorboard=... out."
        ) from None
    return SummaryWriter(os.fspath(folder))


def to_host(line: dict[str, Any]) -> Any:
    """Starts the copy of a line's numbers from an accelerator; the event of its end, None where there is none."""
    device = [name for name, value in line.items() if isinstance(value, torch.Tensor) and value.device.type == "cuda"]
    if not device:
        return None
    for name in device:
        line[name] = line[name].to("cpu", non_blocking=True)
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()
    return event


def first_rank() -> bool:
    """Whether this process reports, where several train one model."""
    return not (torch.distributed.is_available() and torch.distributed.is_initialized()) or (
        torch.distributed.get_rank() == 0
    )


def leading(value: Any) -> Any:
    """The first of a row of numbers, of the layers' rows none."""
    return value[0] if isinstance(value, list) and value and isinstance(value[0], float) else value
