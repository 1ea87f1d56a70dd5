"""`linnet probe`: the summary of a probe's record, from its folder."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from linnet._files import placed
from linnet._table import Fitted, Heading
from linnet.cli.typed import picture
from linnet.probe import ProbeRecord, assess, dataset, format_interval, read, verdict

_ROWS = 12  # of the table: the first measurements and the last


def run(folder: Path, out: Path | None, report: Path | None, *, quiet: bool) -> dict[str, Any]:
    """Reads, draws and prints a record; returns what `--json` prints."""
    picture(out)
    record = read(folder)
    result: dict[str, Any] = {"about": record.about, "status": assess(record).status.value, "verdict": verdict(record)}
    result |= {"statuses": record.statuses, "alarms": record.alarms, "forwards": record.forwards}
    result |= {"pairs": record.pairs, "measurements": record.measurements}
    console = Console(quiet=quiet, highlight=False)
    for sentence in result["verdict"]:
        console.print(escape(sentence))
    for table in (_events(record), _forwards(record), _table(record)):
        if table is not None:
            console.print()
            console.print(table)
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


def _shown(lines: list[dict[str, Any]]) -> list[dict[str, Any] | None]:
    """The first lines and the last, None where some are left out."""
    half = _ROWS // 2
    return [*lines] if len(lines) <= _ROWS else [*lines[:half], None, *lines[-half:]]


def _events(record: ProbeRecord) -> Fitted | None:
    """The changes of status and the alarms with their causes."""
    lines = sorted([*record.statuses, *record.alarms], key=lambda line: line["step"])
    if not lines:
        return None
    table = Fitted(Heading("step", right=True), Heading("status or alarm"), Heading("cause"))
    for line in _shown(lines):
        if line is None:
            table.add("…")
        elif line["kind"] == "status":
            table.add(str(line["step"]), line["status"].replace("_", " "))
        else:
            cause = line["cause"] or "not known yet"
            table.add(str(line["step"]), f"alarm: {line['trigger']}".replace("_", " "), cause.replace("_", " "))
    return table


def _forwards(record: ProbeRecord) -> Fitted | None:
    """The critical steps, on their own batches and on others."""
    if not record.forwards:
        return None
    table = Fitted(
        Heading("step", right=True),
        Heading("critical step, own batch", right=True),
        Heading("other batches", right=True),
        Heading("80 % interval", spare=1, right=True),
        Heading("stochastic edge", spare=2, right=True),
        Heading("lr", spare=3, right=True),
    )
    for line in _shown(record.forwards):
        if line is None:
            table.add("…")
            continue
        own = format_interval(line["own_low"], line["own_high"]) if line.get("own_low") is not None else ""
        known = line.get("c_other_low") is not None
        other = "" if not known else "∞" if line["c_other"] is None else f"{line['c_other']:.2g}"
        interval = format_interval(line["c_other_low"], line["c_other_high"]) if known else ""
        edge, lr = line.get("stochastic_edge"), line.get("lr")
        numbers = ("" if edge is None else f"{edge:.2g}", "" if lr is None else f"{lr:.3g}")
        table.add(str(line["step"]), own, other, interval, *numbers)
    return table


def _table(record: ProbeRecord) -> Fitted | None:
    """The measurements of curvature."""
    if not record.measurements:
        return None
    table = Fitted(
        Heading("step", right=True),
        Heading("loss on the batch", spare=3, right=True),
        Heading("sharpness", right=True),
        Heading("residual", spare=1, right=True),
        Heading("lowest", spare=2, right=True),
        Heading("of the edge", right=True),
        Heading("products", spare=4, right=True),
    )
    for measurement in _shown(record.measurements):
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
