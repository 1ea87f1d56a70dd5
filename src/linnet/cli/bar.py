"""Progress bars, shown on terminals only."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


@contextmanager
def bar(text: str, *, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error for as long as the block runs; gives a function of (done, total)."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as shown:
        task = shown.add_task(text, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)
