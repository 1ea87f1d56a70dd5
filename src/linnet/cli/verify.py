"""`linnet verify`."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from linnet import _check, report, reproduction
from linnet._check import InputError
from linnet._table import Fitted, Heading
from linnet.claims import KINDS, SIZES, Claim, Erratum, find
from linnet.cli.bar import bar
from linnet.cli.cluster import client_of
from linnet.cli.reproduce import spread_table
from linnet.cli.settings import changes, own
from linnet.reproduction import Spread, Verdicts, prepare_folder, store


def run(
    ids: list[str],
    paper: str | None,
    size: str,
    out: Path | None,
    settings: Sequence[str] = (),
    sources: Sequence[str] = (),
    *,
    kind: str | None = None,
    seeds: int = 1,
    cluster: str | None = None,
    quiet: bool,
) -> dict[str, Any]:
    """Verifies the entries, showing them unless quiet, on a page too if asked; the result is what `--json` prints."""
    among, changed = own(sources), changes(settings)
    entries = find(ids, paper)
    if among and not ids and paper is None:
        entries = [entry for entry in entries if entry.paper in among]
    if kind is not None:
        _check.choice("kind", kind, (*KINDS, "erratum"))
        entries = [entry for entry in entries if entry.kind == kind]
    _check.choice("size", size, SIZES)
    if seeds != 1:
        for name, given in (("out", None if out is None else str(out)), ("cluster", cluster)):
            if given is not None:
                raise InputError(f"{name} = {given!r} is not allowed with --seeds: it shows findings on this machine.")
        return _seeds(entries, seeds, size, changed, Console(quiet=quiet, highlight=False), quiet=quiet)
    if out is not None:
        if changed:
            raise InputError(f"out = {str(out)!r} is not allowed with --set: the page shows claims as they are stated.")
        prepare_folder(out)
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


def _seeds(
    entries: Sequence[Claim | Erratum],
    seeds: int,
    size: str,
    changed: Mapping[str, Any],
    console: Console,
    *,
    quiet: bool,
) -> dict[str, Any]:
    """The table of all findings over seeds, and what `--json` prints; claims without a seed are left out."""
    seeded = [entry for entry in entries if "seed" in entry.parameters and entry.expected]
    spreads: list[Spread] = []
    with bar("seeds", quiet=quiet) as progress:
        for some in reproduction.claims_over_seeds(seeded, seeds, size, changed, progress):
            spreads += some
            console.print(spread_table(some))
    failed = sum(one.failed > 0 for one in spreads)
    left_out = len(entries) - len(seeded)
    console.print(
        f"{len(spreads)} findings of {len(seeded)} claims with {seeds} seeds: {failed} fail with a seed or more. "
        f"{left_out} that draw nothing, or are refuted, are left out."
    )
    return {
        "size": size,
        "seeds": seeds,
        "claims": len(seeded),
        "findings": [one.to_dict() for one in spreads],
        "failed": failed,
    }


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
