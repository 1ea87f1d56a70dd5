"""`linnet reproduce`: figures of the papers with data, verdicts and claims, and one page about it all."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from linnet import report, reproduction
from linnet._check import InputError
from linnet._files import duration
from linnet._table import Fitted, Heading
from linnet.cli.bar import bar
from linnet.cli.cluster import client_of
from linnet.cli.settings import changes, own
from linnet.reproduction import Made, Result, Spread, Work


def run(
    ids: Sequence[str],
    size: str,
    out: Path,
    settings: Sequence[str],
    *,
    claims: bool | None = None,
    seeds: int = 1,
    sources: Sequence[str] = (),
    cluster: str | None = None,
    quiet: bool,
) -> dict[str, Any]:
    """Reproduces the experiments into `out`, and verifies the claims too (by default if all experiments are asked for);
    returns what `--json` prints.
    """
    among = own(sources)
    if seeds != 1:
        for name, given in (("claims", claims), ("cluster", cluster)):
            if given:
                raise InputError(f"{name} = {given!r} is not allowed with --seeds: it checks figures on this machine.")
        return _seeds(seeds, reproduction.plan(ids, size, out, changes(settings), claims=False, among=among), quiet)
    work = reproduction.plan(ids, size, out, changes(settings), claims=claims, among=among)
    console = Console(quiet=quiet, highlight=False)
    _announce(console, work)
    results: dict[str, Result] = {}
    words = "all papers" if not ids and not among else "reproducing"
    with client_of(cluster, console) as client, bar(words, quiet=quiet, share=True) as progress:
        done = None
        for done in work.done(progress, client=client):
            report.write(out)  # after each, so that an interrupted run leaves a page
            if isinstance(done, Made):
                results[done.result.id] = done.result
                _show(console, done, out)
    if done is None:
        report.write(out)
    facts: dict[str, Any] = {
        "out": str(out),
        "experiments": [_facts(results[experiment.id]) for experiment in work.experiments],
        "failed": sum(not result.holds for result in results.values()),
        "skipped": [{"id": name, "reason": lacks} for name, lacks in work.lacking.items()],
        "claims": None,
    }
    verdicts = work.verdicts()
    if verdicts is not None:
        facts["claims"] = {"size": "quick", "checked": len(verdicts.claims), "failed": verdicts.failed}
        for verdict in verdicts.claims:
            if not verdict.as_stated:
                console.print(f"[bold red]{verdict.id}[/] is not as stated: {escape(verdict.detail)}")
        console.print(f"{len(verdicts.claims)} claims and errata verified, {verdicts.failed} not as stated.")
    left_out = f", {len(work.lacking)} left out" if work.lacking else ""
    console.print(
        f"{len(results)} reproduced, {facts['failed']} not as required{left_out}. Page: {out / 'index.html'}",
    )
    return facts


def _seeds(seeds: int, work: Work, quiet: bool) -> dict[str, Any]:
    """The table of all requirements over seeds, and what `--json` prints."""
    console = Console(quiet=quiet, highlight=False)
    for name, lacks in work.lacking.items():
        console.print(f"[bold]{name}[/] is left out: {escape(lacks)}")
    spreads: list[Spread] = []
    with bar("seeds", quiet=quiet) as progress:
        for some in reproduction.over_seeds(work.experiments, seeds, work.out, progress):
            spreads += some
            console.print(spread_table(some))
    failed = sum(one.failed > 0 for one in spreads)
    close = sum(one.close for one in spreads)
    console.print(
        f"{len(spreads)} requirements of {len(work.experiments)} experiments with {seeds} seeds: {failed} fail with a "
        f"seed or more, {close} of the others have less than {reproduction.ENOUGH:g} standard deviations left."
    )
    return {
        "out": str(work.out),
        "size": work.size,
        "seeds": seeds,
        "requirements": [one.to_dict() for one in spreads],
        "failed": failed,
        "close": close,
        "skipped": [{"id": name, "reason": lacks} for name, lacks in work.lacking.items()],
        "claims": None,
    }


def spread_table(spreads: Sequence[Spread]) -> Fitted:
    """Requirements of one experiment, or findings of one claim, over seeds."""
    table = Fitted(
        Heading(spreads[0].id if spreads else ""),
        Heading("fails", right=True),
        Heading("sd left", right=True),
        Heading("requirement", spare=1, prose=True),
        Heading("measured", spare=2),
        Heading("must be", spare=3),
    )
    for one in spreads:
        low, high = max(one.low), min(one.high)
        bounds = f"{low:.4g} to {high:.4g}" if math.isfinite(low + high) else f">= {low:.4g}"
        bounds = f"<= {high:.4g}" if not math.isfinite(low) else bounds
        word = "[bold red]fails[/]" if one.failed else "[yellow]close[/]" if one.close else "[green]holds[/]"
        measured = f"{min(one.measured):.4g} to {max(one.measured):.4g}"
        table.add(
            word, f"{one.failed}/{len(one.measured)}", f"{one.margin:.3g}", escape(one.name), measured, escape(bounds)
        )
    return table


def exit_code(result: dict[str, Any], **_: Any) -> int:
    """1 if anything was not as required, or a claim not as stated."""
    return int(result["failed"] > 0 or (result["claims"] or {}).get("failed", 0) > 0)


def _facts(result: Result) -> dict[str, Any]:
    return {
        "id": result.id,
        "size": result.size,
        "seconds": result.seconds,
        "verdicts": [
            {"name": v.name, "holds": v.holds, "measured": v.measured, "required": v.required} for v in result.verdicts
        ],
    }


def _announce(console: Console, work: Work) -> None:
    """Says what will be done, and what not."""
    for name, lacks in work.lacking.items():
        console.print(f"[bold]{name}[/] is left out: {escape(lacks)}")
    made, size = work.experiments, work.size
    for experiment in made if len(made) == 1 else []:
        expected = duration(60 * experiment.minutes[size])
        console.print(f"{escape(experiment.title)} ({size}; about {expected} on two cores)")
    if len(made) + len(work.entries) > 1:
        what = f"{len(made)} experiments ({size})" + (
            f" and {len(work.entries)} claims and errata" if work.asked else ""
        )
        console.print(f"{what}. Ctrl-C keeps what is finished.")


def _show(console: Console, made: Made, out: Path) -> None:
    result = made.result
    console.print(f"[bold]{result.id}[/] {escape(result.title)}")
    for verdict in result.verdicts:
        mark = "[green]holds[/]" if verdict.holds else "[bold red]fails[/]"
        console.print(
            f"  {mark} {escape(verdict.name)}: {verdict.measured:.4g} ({escape(verdict.text)})", highlight=False
        )
    kept = " (data kept from an earlier run)" if made.kept else ""
    console.print(f"  {duration(result.seconds)}{kept}, {out / result.id / 'figure.png'}")
