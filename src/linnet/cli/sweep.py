"""`linnet sweep`: a grid of runs into one store."""

import math
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from linnet import sweep
from linnet._check import InputError
from linnet._files import duration
from linnet._pool import cores
from linnet.cli.bar import bar
from linnet.cli.cluster import client_of

if TYPE_CHECKING:
    from linnet.sweep import Sweep, Throughput


def run(
    *,
    places: list[str],
    out: str | None,
    part: str,
    cluster: str | None,
    check: bool,
    export: bool,
    merge: bool,
    dry_run: bool,
    quiet: bool,
) -> dict[str, Any]:
    """Does what the options select, with as many places as that needs; returns what `--json` prints."""
    computes = {"--part": part != "1/1", "--cluster": cluster is not None}
    options = {"--check": check, "--export": export, "--merge": merge, "--dry-run": dry_run, **computes}
    asked = [name for name, given in options.items() if given]
    if len(asked) > 1 and set(asked) not in ({"--part", "--cluster"}, {"--dry-run", "--cluster"}):
        raise InputError(f"{' and '.join(asked)} are not allowed together: give one of them.")
    if check and out is None and len(places) == 1:
        return _checked(None, places[0], quiet=quiet)
    if export and out is None and len(places) == 2:
        return _exported(places[0], Path(places[1]), quiet=quiet)
    if merge and out is not None and len(places) == 2:
        return _merged(places[0], places[1], out, quiet=quiet)
    if not (export or merge) and out is not None and len(places) == 1:
        spec = Path(places[0])
        if check:
            return _checked(spec, out, quiet=quiet)
        return (
            _expected(spec, out, cluster, quiet=quiet) if dry_run else _computed(spec, out, part, cluster, quiet=quiet)
        )
    usage = {
        "--check": "--check STORE",
        "--export": "--export STORE FILE",
        "--merge": "--merge FIRST SECOND --out STORE",
    }
    raise InputError(f"linnet sweep needs other arguments: {usage.get(asked[0] if asked else '', 'SPEC --out STORE')}.")


def _computed(spec: Path, out: str, part: str, cluster: str | None, *, quiet: bool) -> dict[str, Any]:
    """Makes or completes the store; returns what `--json` prints."""
    described, share = sweep.read(spec), _part(part)
    console = Console(quiet=quiet, highlight=False)
    console.print(f"{_grid(described)} into {out}")
    with client_of(cluster, console) as client:
        began = time.perf_counter()
        with bar("runs", quiet=quiet) as progress:

            def show(now: "Throughput") -> None:
                progress.say(f"{f'{now.speed:,.0f} steps a second, ' * bool(now.steps)}{now.use} % in use")

            counts = sweep.run(described, out, progress, throughput=show, workers=cores(), part=share, client=client)
        seconds = time.perf_counter() - began
    ends = ", ".join(
        f"{counts[word]} {word}" for word in ("horizon", "converged", "diverged", "stalled") if counts[word]
    )
    if counts["damaged"]:
        console.print(f"Damaged chunks that were computed again: {counts['damaged']}.")
    console.print(f"{counts['computed']} runs in {seconds:.1f} s; in the store: {ends}.")
    if counts["steps"]:
        many = f"{counts['workers']} worker{'s' * (counts['workers'] > 1)}"
        rate = f"{counts['steps'] / seconds:,.0f} run-steps a second"
        console.print(f"{rate} on {many}, which computed {counts['use']} % of the time.")
    return {"out": out, "seconds": round(seconds, 2), **counts}


def _part(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if found is None:
        raise InputError(f"--part {text} is not allowed: it must be 1/N, 2/N ... or N/N.")
    return int(found[1]), int(found[2])


def _expected(spec: Path, out: str, cluster: str | None, *, quiet: bool) -> dict[str, Any]:
    """Says what the sweep will take; returns what `--json` prints."""
    described = sweep.read(spec)
    console = Console(quiet=quiet, highlight=False)
    console.print(f"{_grid(described)} into {out}, of which nothing is computed now")
    with client_of(cluster, console) as client:
        cost = sweep.expect(described, out, workers=cores(), client=client)
    many = f"{cost.workers} worker{'s' * (cost.workers > 1)} on {cost.device}"
    console.print(
        f"{cost.missing} of {cost.cells} runs are missing, in {cost.chunks} chunks of up to {cost.batch} runs that go "
        f"through a device together.\nMemory of a worker: about {cost.memory / 2**20:,.3g} MiB; of the store: at most "
        f"{cost.store / 2**20:,.3g} MiB.\nTime expected, from runs measured: {_seconds(cost.seconds)} with {many}, and "
        f"{_seconds(cost.compilation)} of compilation for each kind of program.",
    )
    return {"out": out, **cost._asdict()}


def _seconds(count: float) -> str:
    return duration(count) if count >= 10 else f"{count:.2g} s"


def _grid(described: "Sweep") -> str:
    sizes = {name: len(values) for name, values in described.grid().items()}
    shape = " x ".join(f"{size} {name}" for name, size in sizes.items())
    return f"{shape}: {math.prod(sizes.values())} runs"


def _checked(spec: Path | None, out: str, *, quiet: bool) -> dict[str, Any]:
    """Says what is damaged in the store; returns what `--json` prints."""
    found = sweep.check(None if spec is None else sweep.read(spec), out)
    console = Console(quiet=quiet, highlight=False)
    for part in found.damage:
        console.print(f"[bold red]damaged[/] {', '.join(part.arrays)} at {part.place}")
    missing = found.cells - found.finished
    console.print(f"{out}: {found.finished} of {found.cells} runs are complete.")
    if missing or found.damage:
        console.print("The same command without --check computes the others.")
    damage = [part._asdict() for part in found.damage]
    return {"out": out, "cells": found.cells, "finished": found.finished, "damage": damage}


def _exported(store: str, file: Path, *, quiet: bool) -> dict[str, Any]:
    """Writes the store to one file; returns what `--json` prints."""
    finished = sweep.export(store, file)
    Console(quiet=quiet, highlight=False).print(f"{finished} finished runs of {store} into {file}.")
    return {"store": store, "out": str(file), "finished": finished}


def _merged(first: str, second: str, out: str, *, quiet: bool) -> dict[str, Any]:
    """Makes one store of two; returns what `--json` prints."""
    made = sweep.merge(first, second, out)
    text = f"{out}: {made.finished} of {made.cells} runs, {made.first} from {first} and {made.second} from {second}."
    Console(quiet=quiet, highlight=False).print(text)
    return {"out": out, **made._asdict()}


def exit_code(result: dict[str, Any], **_: Any) -> int:
    """1 if anything in the store is damaged."""
    return int(bool(result.get("damage")))
