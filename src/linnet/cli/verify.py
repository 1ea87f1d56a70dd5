"""`linnet verify`."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from linnet import _check, report, reproduction
from linnet._check import InputError
from linnet._table import Fitted, Heading
from linnet.claims import SIZES, Claim, Erratum, find
from linnet.cli.bar import bar
from linnet.cli.cluster import client_of
from linnet.cli.settings import changes, own
from linnet.reproduction import Verdicts
from linnet.reproduction.files import folder, store


def run(
    ids: list[str],
    paper: str | None,
    size: str,
    out: Path | None,
    settings: Sequence[str] = (),
    sources: Sequence[str] = (),
    *,
    cluster: str | None = None,
    quiet: bool,
) -> dict[str, Any]:
    """Verifies the entries, showing them unless quiet, on a page too if asked; the result is what `--json` prints."""
    among, changed = own(sources), changes(settings)
    entries = find(ids, paper)
    if among and not ids and paper is None:
        entries = [entry for entry in entries if entry.paper in among]
    _check.choice("size", size, SIZES)
    if out is not None:
        if changed:
            raise InputError(f"out = {str(out)!r} is not allowed with --set: the page shows claims as they are stated.")
        folder(out)
    console = Console(stderr=False, quiet=quiet)
    began = time.perf_counter()
    with client_of(cluster, console) as client, bar("verifying", quiet=quiet) as progress:
        verdicts = reproduction.verify(entries, size, changed, progress, client=client)
    console.print(_table(entries, verdicts))
    seconds = time.perf_counter() - began
    console.print(f"{len(entries)} verified in {seconds:.0f} s, {verdicts.failed} not as stated.")
    if out is not None:
        store(out, verdicts)
        console.print(f"Page: {report.write(out)}", highlight=False)
    return verdicts.to_dict()


def _table(entries: Sequence[Claim | Erratum], verdicts: Verdicts) -> Fitted:
    table = Fitted(
        Heading(""),
        Heading("id"),
        Heading("kind", spare=2),
        Heading("margin", spare=1, right=True),
        Heading("seconds", spare=4, right=True),
        Heading("statement", spare=3, prose=True),
    )
    for entry, verdict in zip(entries, verdicts.claims, strict=True):
        word = "holds" if verdict.holds else "fails"
        if isinstance(entry, Erratum):
            word = "shown" if verdict.holds else "not shown"
        color = "green" if verdict.as_stated else "bold red"
        kind = entry.grade if isinstance(entry, Erratum) else entry.kind
        table.add(
            f"[{color}]{word}[/]",
            entry.id,
            kind,
            f"{verdict.margin:.3g}",
            f"{verdict.seconds:.1f}",
            escape(entry.statement),
        )
    return table


def exit_code(result: dict[str, Any], **_: Any) -> int:
    """1 if anything was not as stated."""
    return int(result["failed"] > 0)
