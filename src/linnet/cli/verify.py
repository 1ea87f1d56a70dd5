"""`linnet list` and `linnet verify`."""

import functools
import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from linnet import _check, report
from linnet._check import InputError
from linnet._files import dumps, machine, put, versions
from linnet._pool import Call, cores, finished
from linnet.claims import PAPERS, SIZES, Claim, Erratum, Verdict, find, registry
from linnet.cli.bar import bar
from linnet.experiments import experiments


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
    _check.choice("size", size, SIZES)
    if out is not None:
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"out = {str(out)!r} is not allowed: {error.strerror}.") from None
    console = Console(stderr=False, quiet=quiet)
    verdicts: dict[int, Verdict] = {}
    began = time.perf_counter()
    with bar("verifying", quiet=quiet) as progress:
        progress(0, len(entries))
        for number, verdict in finished([call(entry, size) for entry in entries], workers(len(entries))):
            verdicts[number] = verdict
            progress(len(verdicts), len(entries))
    results = [(entry, verdicts[number]) for number, entry in enumerate(entries)]
    result = told(results, size)
    console.print(_table(results))
    seconds = time.perf_counter() - began
    console.print(f"{len(results)} verified in {seconds:.0f} s, {result['failed']} not as stated.")
    if out is not None:
        store(out, result)
        console.print(f"Page: {report.write(out)}", highlight=False)
    return result


def workers(count: int) -> int:
    """How many processes verify so many entries. Checks are seeded and do not know of each other, and most of their
    time is compilation, which keeps one core busy: on a CPU each core has a process of its own.
    """
    return cores() if count >= 4 and jax.default_backend() == "cpu" else 1


def call(entry: Claim | Erratum, size: str) -> Call:
    """The verification of an entry, for any process."""
    return _verify, (entry.id, size)


def _verify(name: str, size: str) -> Verdict:
    entry = find([name])[0]
    _begin(entry.paper)
    return entry.verify(size)


@functools.lru_cache(maxsize=1)
def _begin(paper: str) -> None:
    """Drops what was compiled for another paper: it serves no more, and all of it together takes gigabytes."""
    jax.clear_caches()


def told(results: Sequence[tuple[Claim | Erratum, Verdict]], size: str) -> dict[str, Any]:
    """What `--json` prints."""
    return {
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
        "failed": sum(verdict.holds != entry.expected for entry, verdict in results),
    }


def store(out: Path, result: dict[str, Any]) -> None:
    """Puts verdicts into `claims.json`, with those of other entries that are still good."""
    new = {verdict["id"] for verdict in result["claims"]}
    claims = [*(verdict for name, verdict in stored(out, result["size"]).items() if name not in new), *result["claims"]]
    failed = sum(verdict["holds"] != registry()[verdict["id"]].expected for verdict in claims)
    put(
        out / "claims.json",
        dumps({**result, "claims": claims, "failed": failed, "machine": machine(), "versions": versions()}),
    )


def stored(out: Path, size: str) -> dict[str, dict[str, Any]]:
    """The verdicts in `out` by id, if they were found at this size and with these versions."""
    try:
        before = json.loads((out / "claims.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    if before["size"] != size or before.get("versions") != versions():
        return {}
    return {verdict["id"]: verdict for verdict in before["claims"] if verdict["id"] in registry()}


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
