"""`linnet sweep`: a grid of runs into one store."""

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from linnet import sweep
from linnet._files import duration
from linnet._pool import cores
from linnet.cli.bar import bar
from linnet.cli.cluster import client_of
from linnet.sweep.sweep import place

if TYPE_CHECKING:
    from linnet.sweep import Sweep


def run(spec: Path, out: Path, cluster: str | None = None, *, quiet: bool) -> dict[str, Any]:
    """Makes or completes the store; returns what `--json` prints."""
    described = sweep.read(spec)
    console = Console(quiet=quiet)
    console.print(f"{_grid(described)} into {out}", highlight=False)
    with client_of(cluster, console) as client:
        began = time.perf_counter()
        with bar("runs", quiet=quiet) as progress:
            counts = sweep.run(described, out, progress, workers=cores(), client=client)
        seconds = time.perf_counter() - began
    ends = ", ".join(
        f"{counts[word]} {word}" for word in ("horizon", "converged", "diverged", "stalled") if counts[word]
    )
    if counts["damaged"]:
        console.print(f"Damaged chunks that were computed again: {counts['damaged']}.", highlight=False)
    console.print(f"{counts['computed']} runs in {seconds:.1f} s; in the store: {ends}.", highlight=False)
    if counts["steps"]:
        many = f"{counts['workers']} worker{'s' * (counts['workers'] > 1)}"
        rate = f"{counts['steps'] / seconds:,.0f} run-steps a second"
        console.print(f"{rate} on {many}, which computed {counts['use']} % of the time.", highlight=False)
    return {"out": str(out), "seconds": round(seconds, 2), **counts}


def expect(spec: Path, out: Path, cluster: str | None = None, *, quiet: bool) -> dict[str, Any]:
    """Says what the sweep will take; returns what `--json` prints."""
    described = sweep.read(spec)
    console = Console(quiet=quiet)
    console.print(f"{_grid(described)} into {out}, of which nothing is computed now", highlight=False)
    with client_of(cluster, console) as client:
        told = sweep.expect(described, out, workers=cores(), client=client)
    many = f"{told.workers} worker{'s' * (told.workers > 1)} on {told.device}"
    console.print(
        f"{told.missing} of {told.cells} runs are missing, in {told.chunks} chunks of up to {told.batch} runs that go "
        f"through a device together.\nMemory of a worker: about {told.memory / 2**20:,.3g} MiB; of the store: at most "
        f"{told.store / 2**20:,.3g} MiB.\nTime expected, from runs measured: {_seconds(told.seconds)} with {many}, and "
        f"{_seconds(told.compilation)} of compilation for each kind of program.",
        highlight=False,
    )
    return {"out": str(out), **told._asdict()}


def _seconds(count: float) -> str:
    return duration(count) if count >= 10 else f"{count:.2g} s"


def _grid(described: "Sweep") -> str:
    sizes = {name: len(values) for name, values in described.grid().items()}
    shape = " x ".join(f"{size} {name}" for name, size in sizes.items())
    return f"{shape}: {math.prod(sizes.values())} runs"


def check(spec: Path, out: Path, *, quiet: bool) -> dict[str, Any]:
    """Says what is damaged in the store; returns what `--json` prints."""
    found = sweep.check(sweep.read(spec), out)
    console = Console(quiet=quiet)
    for part in found.damage:
        console.print(f"[bold red]damaged[/] {', '.join(part.arrays)} at {place(part.cells)}", highlight=False)
    missing = found.cells - found.finished
    console.print(f"{out}: {found.finished} of {found.cells} runs are there and whole.", highlight=False)
    if missing or found.damage:
        console.print("The same command without --check computes the others.")
    damage = [part._asdict() for part in found.damage]
    return {"out": str(out), "cells": found.cells, "finished": found.finished, "damage": damage}
