"""`linnet list` and `linnet verify`."""

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from linnet import _check, report
from linnet._check import InputError
from linnet._pool import cores, pool
from linnet.claims import Claim, Erratum, Verdict, find, registry
from linnet.claims.claim import PAPERS, SIZES
from linnet.cli.bar import bar
from linnet.cli.output import dumps
from linnet.experiments import experiments
from linnet.experiments.experiment import put


def listing() -> dict[str, list[dict[str, Any]]]:
    """Everything registered, as `linnet list --json` prints it."""
    entries = registry().values()
    return {
        "papers": [{"id": paper, "title": title} for paper, title in PAPERS.items()],
        "claims": [
            {"id": e.id, "paper": e.paper, "kind": e.kind, "place": e.place, "statement": e.statement}
            for e in entries
            if isinstance(e, Claim)
        ],
        "errata": [
            {
                "id": e.id,
                "paper": e.paper,
                "grade": e.grade,
                "place": e.place,
                "printed": e.printed,
                "corrected": e.corrected,
                "computed": e.check is not None,
            }
            for e in entries
            if isinstance(e, Erratum)
        ],
        "experiments": [
            {"id": name, "paper": name.split("/")[0], "place": e.place, "title": e.title, "minutes": dict(e.minutes)}
            for name, e in experiments().items()
        ],
    }


def show_list() -> None:
    """Prints the list for a person."""
    everything, console = listing(), Console()
    for paper, title in PAPERS.items():
        claims = [c for c in everything["claims"] if c["paper"] == paper]
        errata = [e for e in everything["errata"] if e["paper"] == paper]
        figures = [e for e in everything["experiments"] if e["paper"] == paper]
        if not claims and not errata and not figures:
            continue
        table = Table(title=f"{paper}: {title}", title_justify="left", box=None, pad_edge=False, title_style="bold")
        for column in ("id", "kind", "place", "statement"):
            table.add_column(column, overflow="fold", no_wrap=column == "id")
        for c in claims:
            table.add_row(c["id"], c["kind"], c["place"], escape(c["statement"]))
        for e in errata:
            table.add_row(e["id"], e["grade"], e["place"], escape(f"{e['printed']}  ->  {e['corrected']}"))
        for f in figures:
            table.add_row(f["id"], "experiment", f["place"], escape(f["title"]))
        console.print(table)
        console.print()


def run(ids: list[str], paper: str | None, size: str, out: Path | None, *, quiet: bool) -> dict[str, Any]:
    """Verifies the entries, showing them unless quiet, on a page too if asked; the result is what `--json` prints."""
    entries = find(ids, paper)
    if out is not None:
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"out = {str(out)!r} is not allowed: {error.strerror}.") from None
    console = Console(stderr=False, quiet=quiet)
    results = []
    began = time.perf_counter()
    with bar("verifying", quiet=quiet) as progress:
        progress(0, len(entries))
        for done, verdict in enumerate(_verdicts([entry.id for entry in entries], size), start=1):
            results.append((entries[done - 1], verdict))
            progress(done, len(entries))
    failed = sum(verdict.holds != entry.expected for entry, verdict in results)
    console.print(_table(results))
    seconds = time.perf_counter() - began
    console.print(f"{len(results)} verified in {seconds:.0f} s, {failed} not as stated.")
    result = {
        "size": size,
        "claims": [
            {
                "id": entry.id,
                "paper": entry.paper,
                "kind": entry.kind,
                "statement": entry.statement,
                "holds": verdict.holds,
                "measured": verdict.measured,
                "required": verdict.required,
                "margin": verdict.margin,
                "seconds": round(verdict.seconds, 3),
                "detail": verdict.detail,
            }
            for entry, verdict in results
        ],
        "failed": failed,
    }
    if out is not None:
        put(out / "claims.json", dumps(_joined(out / "claims.json", result)))
        console.print(f"Page: {report.write(out)}", highlight=False)
    return result


def _joined(stored: Path, result: dict[str, Any]) -> dict[str, Any]:
    """The new verdicts with those of other entries that were stored at the same size."""
    if not stored.exists():
        return result
    before = json.loads(stored.read_text(encoding="utf-8"))
    new = {verdict["id"] for verdict in result["claims"]}
    kept = [v for v in before["claims"] if v["id"] not in new] if before["size"] == result["size"] else []
    claims, known = [*kept, *result["claims"]], registry()
    failed = sum(v["holds"] != known[v["id"]].expected for v in claims if v["id"] in known)
    return {**result, "claims": claims, "failed": failed}


def _verdicts(ids: Sequence[str], size: str) -> Iterator[Verdict]:
    """The verdicts in order. Checks are seeded and do not know of each other, and most of their time is compilation,
    which keeps one core busy: on a CPU each core has a process of its own.
    """
    workers = min(cores(), len(ids)) if jax.default_backend() == "cpu" else 1
    if workers < 2 or len(ids) < 4:
        yield from (_verify(name, size) for name in ids)
        return
    _check.choice("size", size, SIZES)
    with pool(workers) as processes:
        try:
            yield from processes.map(_verify, ids, [size] * len(ids))
        except BaseException:
            processes.shutdown(wait=False, cancel_futures=True)
            raise


def _verify(name: str, size: str) -> Verdict:
    return find([name])[0].verify(size)


def _table(results: Iterable[tuple[Claim | Erratum, Verdict]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name, justify in (("", "left"), ("id", "left"), ("kind", "left"), ("margin", "right"), ("seconds", "right")):
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    table.add_column("statement", overflow="fold")
    for entry, verdict in results:
        right = verdict.holds == entry.expected
        word = "holds" if verdict.holds else "fails"
        if isinstance(entry, Erratum):
            word = "shown" if verdict.holds else "not shown"
        colour = "green" if right else "bold red"
        kind = entry.grade if isinstance(entry, Erratum) else entry.kind
        table.add_row(
            f"[{colour}]{word}[/]",
            entry.id,
            kind,
            f"{verdict.margin:.3g}",
            f"{verdict.seconds:.1f}",
            escape(entry.statement),
        )
    return table


def exit_code(result: dict[str, Any]) -> int:
    """1 if anything was not as stated."""
    return int(result["failed"] > 0)
