"""`linnet probe`: what a probe has seen of a training, from its folder."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from linnet._files import placed
from linnet._table import Column, Fitted
from linnet.probe import dataset, read
from linnet.probe.record import Record
from linnet.probe.words import verdict

_ROWS = 12  # of the table: the first looks and the last


def run(folder: Path, figure: Path | None, page: Path | None, *, quiet: bool) -> dict[str, Any]:
    """Reads, draws and prints a record; returns what `--json` prints."""
    record = read(folder)
    result: dict[str, Any] = {"about": record.about, "verdict": verdict(record)}
    result |= {"pairs": record.pairs, "looks": record.looks}
    console = Console(quiet=quiet)
    for sentence in result["verdict"]:
        console.print(escape(sentence), highlight=False)
    if record.looks:
        console.print()
        console.print(_table(record))
    if figure is not None:
        from linnet.plot.probe import probe

        with placed(figure) as partial:
            probe(dataset(record)).savefig(partial)
        result["figure"] = str(figure)
    if page is not None:
        from linnet.report import write_probe

        result["page"] = str(write_probe(record, page))
        console.print(f"\n{escape(result['page'])}", highlight=False, soft_wrap=True)
    return result


def _table(record: Record) -> Fitted:
    table = Fitted(
        Column("step", right=True),
        Column("loss on the batch", spare=3, right=True),
        Column("sharpness", right=True),
        Column("residual", spare=1, right=True),
        Column("lowest", spare=2, right=True),
        Column("of the edge", right=True),
        Column("products", spare=4, right=True),
    )
    looks = record.looks
    half = _ROWS // 2
    for look in looks if len(looks) <= _ROWS else [*looks[:half], None, *looks[-half:]]:
        if look is None:
            table.add("…")
            continue
        ratio = look.get("ratio")
        table.add(
            str(look["step"]),
            f"{look['batch_loss']:.4g}",
            f"{look['sharpness'][0]:.4g}",
            f"{look['residual'][0]:.1g}",
            f"{look['lowest']:.3g}",
            "" if ratio is None else f"{ratio:.3g}",
            str(look["products"]),
        )
    return table
