"""Tables for terminals: where one is too narrow, whole columns are left out, and never digits."""

from typing import NamedTuple

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

_GAP = 2  # between columns
_PROSE = 16  # the least width of a column that may be broken into lines


class Heading(NamedTuple):
    """What stands above it, whether its numbers stand at the right or its prose may be broken into lines, and how
    easily it can be spared: columns with the largest number go first, those with 0 never.
    """

    name: str
    spare: int = 0
    right: bool = False
    prose: bool = False


class Fitted:
    """A table that fits the terminal. Where even the required columns are too wide, cells are wrapped."""

    def __init__(self, *columns: Heading, title: str | None = None, header: bool = True):
        self.columns, self.title, self.header = columns, title, header
        self.rows: list[tuple[Text, ...]] = []

    def add(self, *cells: str | Text) -> None:
        """A row: markup or text, a cell for each column; those at the end may be left out."""
        row = [cell if isinstance(cell, Text) else Text.from_markup(cell) for cell in cells]
        self.rows.append((*row, *[Text()] * (len(self.columns) - len(row))))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown = self._shown(options.max_width)
        fits = self._width(shown) <= options.max_width
        table = Table(
            title=self.title,
            title_justify="left",
            title_style="bold",
            box=None,
            pad_edge=False,
            show_header=self.header,
        )
        for i in shown:
            column = self.columns[i]
            table.add_column(
                column.name,
                justify="right" if column.right else "left",
                no_wrap=fits and not column.prose,
                overflow="fold",
            )
        for row in self.rows:
            table.add_row(*(row[i] for i in shown))
        yield table
        left = [column.name for i, column in enumerate(self.columns) if i not in shown and column.name.strip()]
        if left:
            yield Text(f"Columns left out: {', '.join(left)}.", style="dim")

    def _shown(self, width: int) -> list[int]:
        shown = list(range(len(self.columns)))
        while self._width(shown) > width and (spared := [i for i in shown if self.columns[i].spare]):
            shown.remove(max(spared, key=lambda i: (self.columns[i].spare, i)))
        return shown

    def _width(self, shown: list[int]) -> int:
        """What these columns need at least."""
        return sum(self._least(i) for i in shown) + _GAP * (len(shown) - 1)

    def _least(self, i: int) -> int:
        column = self.columns[i]
        whole = max([Text(column.name).cell_len * self.header, *(row[i].cell_len for row in self.rows)])
        return min(whole, _PROSE) if column.prose else whole
