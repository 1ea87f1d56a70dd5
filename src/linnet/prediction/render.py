"""One renderer for all predictions: terminal, text, and notebook HTML.

Arguments: `result` is a `Prediction` or a `Comparison`, `comparison` the run beside it, `quantities` are those of a
prediction; `form` is a format specification or a function of the value.
"""

import io
import math
from collections.abc import Callable, Sequence, Set
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.text import Text

from linnet._table import Fitted, Heading
from linnet.prediction.assumption import Assumption, Holds, Source
from linnet.prediction.numbers import percent, step
from linnet.prediction.prediction import Column, Comparison, Prediction, Quantity, Time

_WIDTH = 110  # characters of a line in text and notebooks
_COLORS = {Holds.EXACTLY: "green", Holds.ROUGHLY: "yellow", Holds.NOT: "red"}
_PAGE = (
    '<pre style="font-family:ui-monospace,Menlo,Consolas,monospace;line-height:1.3;white-space:pre;overflow-x:auto">'
    "{code}</pre>"
)


def text(result: Any) -> str:
    """The text of a result as a terminal shows it, without colors."""
    console = _console()
    console.print(result)
    return console.export_text().rstrip()


def plain_text(markup: str) -> str:
    """A text of the terminal without its markup."""
    return Text.from_markup(markup).plain


def html(result: Any) -> str:
    """The HTML of a result for a notebook."""
    console = _console()
    console.print(result)
    return console.export_html(inline_styles=True, code_format=_PAGE)


def _console() -> Console:
    return Console(record=True, file=io.StringIO(), width=_WIDTH, force_terminal=True, highlight=False)


def prediction(
    result: Prediction, comparison: Comparison | None = None, shown_sources: frozenset[Source] = frozenset()
) -> RenderableType:
    """The recommendation, the setting, tables and numbers with what was measured, notes, and sources.

    What follows (quantities that are predictions themselves) comes last, without the `shown_sources`.
    """
    parts: list[RenderableType] = [result.headline, *([result.setting] if result.setting else [])]
    measured = {} if comparison is None else {quantity.name: quantity for quantity in comparison.quantities}
    scalars, following = [], []
    for quantity in result.quantities:
        if isinstance(quantity.value, Prediction):
            following.append(quantity)
        elif quantity.columns and quantity.value is not None:
            parts += _table(quantity, measured.get(quantity.name))
        elif quantity.description and quantity.value is not None:
            scalars.append(quantity)
    parts += _numbers(scalars, measured, comparison is not None)
    parts += [escape(note) for note in result.notes]
    known = [quantity for quantity in result.quantities if quantity.value is not None]
    sources = {quantity.source: None for quantity in known if quantity.source is not None}
    listed = {assumption for one in shown_sources for assumption in one.assumptions}
    for one in sources:
        if one not in shown_sources:
            parts.append(source(one, [quantity.name for quantity in known if quantity.source == one], listed))
            listed |= set(one.assumptions)
    if comparison is not None:
        predicted = {quantity.name for quantity in result.quantities}
        extra = [q for q in comparison.quantities if q.name not in predicted and q.description]
        numbers = _numbers([quantity for quantity in extra if not quantity.columns], {}, False, "measured")
        parts += [f"[bold]Exact run[/]: {comparison.run!r}", *numbers] if numbers else []
        parts += [part for quantity in extra if quantity.columns for part in _table(quantity, None)]
    for quantity in following:
        beside = measured[quantity.name].value if quantity.name in measured else None
        parts += [f"\n[bold]{quantity.description}[/]"] if quantity.description else []
        parts.append(prediction(quantity.value, beside, shown_sources | frozenset(sources)))
    for part in result.parts:
        parts += [f"\n[bold]{part.topic}[/]", prediction(part)]
    parts += [f"[dim]{name} does not apply:[/] {escape(why.name)} ({why.measured:.2g})" for name, why in result.unmet]
    return Group(*parts)


def _table(quantity: Quantity, measured: Quantity | None) -> list[RenderableType]:
    """A table of rows; fields that were measured have a column beside the predicted one."""
    rows, found = _rows(quantity.value), () if measured is None else _rows(measured.value)
    columns: list[tuple[Column, bool]] = []
    for column in quantity.columns:
        columns.append((column, False))
        if column.measured and column.field is not None and found and column.field in found[0]:
            columns.append((column, True))
    table = Fitted(
        Heading("", right=True),
        *(Heading("measured" if run else c.title, c.spare, right=not c.prose, prose=c.prose) for c, run in columns),
    )
    for i, row in enumerate(rows[: quantity.rows]):
        cells = [_cell(column, (found[i] if i < len(found) else None) if run else row) for column, run in columns]
        table.add(str(i + 1), *cells)
    title = [f"[bold]{quantity.description}[/]"] if quantity.description else []
    more = len(rows) - quantity.rows
    return [*title, table, *([f"… and {more} more: --json lists them."] if more > 0 else [])]


def _rows(value: Any) -> tuple[Any, ...]:
    """The rows of a table; a single row is a table too."""
    return value if isinstance(value, tuple) else () if value is None else (value,)


def _cell(column: Column, row: Any) -> str:
    if row is None:
        return "–"
    return shown(row if column.field is None else row[column.field], column.format)


def _numbers(
    quantities: Sequence[Quantity], measured: dict[str, Quantity], run: bool, title: str = "predicted"
) -> list[RenderableType]:
    """Numbers and times, a line each."""
    if not quantities:
        return []
    beside = (Heading("measured", 1, right=True),) if run else ()
    table = Fitted(Heading("", prose=True), Heading(title, right=True), Heading("+-", 2, right=True), *beside)
    for quantity in quantities:
        error = quantity.value.error if isinstance(quantity.value, Time) else quantity.error
        cells = [escape(quantity.description), shown(quantity.value, quantity.format, quantity.unit), percent(error)]
        found = measured.get(quantity.name)
        if run:
            cells.append("" if found is None else shown(found.value, found.format, quantity.unit))
        table.add(*cells)
    return [table]


def shown(value: Any, form: str | Callable[[Any], str] = ".4g", unit: str = "") -> str:
    """A value in a cell: few digits, "?" for unknown, "never" for infinity where `unit` is one of time, a dash for what
    does not apply.
    """
    if callable(form):
        return form(value)
    if value is None:
        return "–"
    if isinstance(value, Time):
        return step(value.step) if value.step is not None else shown(value.time, form, "time")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if not isinstance(value, float):
        return escape(str(value))
    if math.isnan(value):
        return "?"
    if math.isinf(value):
        return "never" if unit in ("step", "time") else "inf"
    return format(value, form)


def source(one: Source, names: Sequence[str], printed: Set[Assumption] = frozenset()) -> str:
    """Where the quantities called `names` come from (the source `one`), and how far the assumptions hold that are not
    `printed` before.
    """
    claims = f" ({', '.join(one.claims)})" if one.claims else ""
    held = "; ".join(
        f"[{_COLORS[a.holds]}]{a.holds}[/]: {escape(a.name)}"
        + ("" if a.holds is Holds.EXACTLY else f" ({a.measured:.2g})")
        for a in one.assumptions
        if a not in printed
    )
    first = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
    return f"[dim]{first}:[/] {escape(one.origin)}{claims}" + (f"\n  {held}" if held else "")


def listing(quantities: Sequence[Quantity]) -> dict[str, str]:
    """The values of `quantities` by description, for a page that lays them out itself: no tables, nothing that does not
    apply.
    """
    single = [q for q in quantities if q.description and q.value is not None and not q.columns]
    return {q.description: plain_text(shown(q.value, q.format, q.unit)) for q in single}


def tables(quantities: Sequence[Quantity]) -> list[dict[str, Any]]:
    """The tables of `quantities` for a page that lays them out itself: of each its title, the titles of its columns,
    and rows of cells.
    """
    return [
        {
            "title": quantity.description,
            "columns": [column.title for column in quantity.columns],
            "rows": [
                [plain_text(_cell(column, row)) for column in quantity.columns]
                for row in _rows(quantity.value)[: quantity.rows]
            ],
        }
        for quantity in quantities
        if quantity.columns and quantity.value is not None
    ]
