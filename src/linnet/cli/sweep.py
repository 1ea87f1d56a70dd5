"""`linnet sweep`: a grid of runs into one store."""

import math
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from linnet import sweep
from linnet._pool import cores
from linnet.cli.bar import bar


def run(spec: Path, out: str, *, quiet: bool) -> dict[str, Any]:
    """Makes or completes the store; returns what `--json` prints."""
    described = sweep.read(spec)
    console = Console(quiet=quiet)
    sizes = {name: len(values) for name, values in described.grid().items()}
    shape = " x ".join(f"{size} {name}" for name, size in sizes.items())
    console.print(f"{shape}: {math.prod(sizes.values())} runs into {out}", highlight=False)
    began = time.perf_counter()
    with bar("runs", quiet=quiet) as progress:
        counts = sweep.run(described, out, progress, workers=cores())
    seconds = time.perf_counter() - began
    ends = ", ".join(
        f"{counts[word]} {word}" for word in ("horizon", "converged", "diverged", "stalled") if counts[word]
    )
    if counts["damaged"]:
        console.print(f"Damaged chunks that were computed again: {counts['damaged']}.", highlight=False)
    console.print(f"{counts['computed']} runs in {seconds:.1f} s; in the store: {ends}.", highlight=False)
    return {"out": out, "seconds": round(seconds, 2), **counts}


def check(spec: Path, out: str, *, quiet: bool) -> dict[str, Any]:
    """Says what is damaged in the store; returns what `--json` prints."""
    found = sweep.check(sweep.read(spec), out)
    console = Console(quiet=quiet)
    for part in found.damage:
        where = ", ".join(
            f"{name} = {low:g}" + f" to {high:g}" * (low != high) for name, (low, high) in part.cells.items()
        )
        console.print(f"[bold red]damaged[/] {', '.join(part.arrays)} at {where}", highlight=False)
    missing = found.cells - found.finished
    console.print(f"{out}: {found.finished} of {found.cells} runs are there and whole.", highlight=False)
    if missing or found.damage:
        console.print("The same command without --check computes the others.")
    damage = [part._asdict() for part in found.damage]
    return {"out": out, "cells": found.cells, "finished": found.finished, "damage": damage}
