"""Progress bars, shown on terminals only."""

import sys
from collections.abc import Callable, Iterator
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


@contextmanager
def bar(text: str, *, quiet: bool = False, share: bool = False) -> Iterator[Callable[[float, float], None]]:
    """A bar on standard error for as long as the block runs; gives a function of (done, total).

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
    ) as shown:
        task = shown.add_task(text, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)
