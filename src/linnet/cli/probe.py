"""`linnet probe`: the summary of a probe's record, from its folder."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from linnet._files import placed
from linnet._table import Fitted, Heading
from linnet.cli.typed import picture
from linnet.probe import Record, dataset, read
from linnet.probe.summary import verdict

_ROWS = 12  # of the table: the first measurements and the last


def run(folder: Path, out: Path | None, report: Path | None, *, quiet: bool) -> dict[str, Any]:
    """Reads, draws and prints a record; returns what `--json` prints."""
    picture(out)
    record = read(folder)
    result: dict[str, Any] = {"about": record.about, "verdict": verdict(record)}
    result |= {"pairs": record.pairs, "measurements": record.measurements}
    console = Console(quiet=quiet, highlight=False)
    for sentence in result["verdict"]:
        console.print(escape(sentence))
    if record.measurements:
        console.print()
        console.print(_table(record))
    if out is not None:
        from linnet.plot.probe import probe

        with placed(out) as partial:
            probe(dataset(record)).savefig(partial)
        result["figure"] = str(out)
    if report is not None:
        from linnet.report import write_probe

        result["page"] = str(write_probe(record, report))
        console.print(f"\n{escape(result['page'])}", soft_wrap=True)
    return result


def _table(record: Record) -> Fitted:
    table = Fitted(
        Heading("step", right=True),
        Heading("loss on the batch", spare=3, right=True),
        Heading("sharpness", right=True),
        Heading("residual", spare=1, right=True),
        Heading("lowest", spare=2, right=True),
        Heading("of the edge", right=True),
        Heading("products", spare=4, right=True),
    )
    measurements = record.measurements
    half = _ROWS // 2
    for measurement in (
        measurements if len(measurements) <= _ROWS else [*measurements[:half], None, *measurements[-half:]]
    ):
        if measurement is None:
            table.add("…")
            continue
        ratio = measurement.get("ratio")
        table.add(
            str(measurement["step"]),
            f"{measurement['batch_loss']:.4g}",
            f"{measurement['sharpness'][0]:.4g}",
            f"{measurement['residual'][0]:.1g}",
            f"{measurement['lowest']:.3g}",
            "" if ratio is None else f"{ratio:.3g}",
            str(measurement["products"]),
        )
    return table
