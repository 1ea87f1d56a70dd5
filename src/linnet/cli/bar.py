"""Progress bars, shown on terminals only."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


class Shown:
    """A bar that is shown: called with what is done and the whole; `say` changes its words."""

    def __init__(self, progress: Progress, text: str):
        self._progress, self._text = progress, text
        self._task = progress.add_task(text, total=None)

    def __call__(self, done: float, total: float) -> None:
        self._progress.update(self._task, completed=done, total=total)

    def say(self, words: str) -> None:
        """Says this behind the name of the work."""
        self._progress.update(self._task, description=f"{self._text}: {words}")


@contextmanager
def bar(text: str, *, quiet: bool = False, share: bool = False) -> Iterator[Shown]:
    """A bar on standard error for as long as the block runs.

    It counts, or shows the share of the whole. What the block prints meanwhile appears above it.
    """
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn() if share else MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns,
        console=console,
        transient=True,
        redirect_stdout=sys.stdout.isatty(),  # a file that standard output was sent to gets all of it
        disable=quiet or not console.is_terminal,
    ) as progress:
        yield Shown(progress, text)
