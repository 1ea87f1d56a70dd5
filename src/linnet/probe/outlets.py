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


class Transfer:
    """Numbers of lines that are on an accelerator, on their way in one copy."""

    def __init__(self, lines: list[dict[str, Any]]):
        self.lines = lines
        self._places = [(line, name) for line in lines for name, x in line.items() if isinstance(x, torch.Tensor)]
        self._values: torch.Tensor | None = None
        self._event: Any = None
        if not self._places:
            return
        parts = [line[name].detach().reshape(()) for line, name in self._places]
        double = any(part.dtype == torch.float64 for part in parts)
        kind = torch.float64 if double else torch.float32
        self._values = torch.stack([part.to(parts[0].device, kind, non_blocking=True) for part in parts])
        if self._values.is_cuda:
            self._values = self._values.to("cpu", non_blocking=True)
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._event.record()

    def ready(self) -> bool:
        """Whether they can be read without waiting."""
        return self._event is None or self._event.query()

    def read(self) -> list[dict[str, Any]]:
        """The lines with their numbers."""
        if self._event is not None:
            self._event.synchronize()
        if self._values is not None:
            for (line, name), value in zip(self._places, self._values.tolist(), strict=True):
                line[name] = value
        return self.lines


def first_rank() -> bool:
    """Whether this process reports, where several train one model."""
    return not (torch.distributed.is_available() and torch.distributed.is_initialized()) or (
        torch.distributed.get_rank() == 0
    )


def leading(value: Any) -> Any:
    """The first of a row of numbers, of the layers' rows none."""
    return value[0] if isinstance(value, list) and value and isinstance(value[0], float) else value
