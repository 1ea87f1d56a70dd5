"""`linnet sweep`: a grid of runs into one store."""

import math
import re
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from linnet import sweep
from linnet._check import InputError
from linnet._pool import cores
from linnet.cli.bar import bar
from linnet.sweep.sweep import place


def chosen(
    places: list[str], out: str | None, part: str, *, check: bool, export: bool, merge: bool, quiet: bool
) -> dict[str, Any]:
    """What the options ask for, with as many places as that needs."""
    options = {"--check": check, "--export": export, "--merge": merge, "--part": part != "1/1"}
    asked = [name for name, given in options.items() if given]
    if len(asked) > 1:
        raise InputError(f"{' and '.join(asked)} are not allowed together: give one of them.")
    if check and out is None and len(places) == 1:
        return checked(None, places[0], quiet=quiet)
    if export and out is None and len(places) == 2:
        return exported(places[0], Path(places[1]), quiet=quiet)
    if merge and out is not None and len(places) == 2:
        return merged(places[0], places[1], out, quiet=quiet)
    if not (export or merge) and out is not None and len(places) == 1:
        return checked(Path(places[0]), out, quiet=quiet) if check else run(Path(places[0]), out, part, quiet=quiet)
    usage = {
        "--check": "--check STORE",
        "--export": "--export STORE FILE",
        "--merge": "--merge FIRST SECOND --out STORE",
    }
    raise InputError(f"linnet sweep needs other arguments: {usage.get(''.join(asked), 'SPEC --out STORE')}.")


def run(spec: Path, out: str, part: str, *, quiet: bool) -> dict[str, Any]:
    """Makes or completes the store; returns what `--json` prints."""
    described = sweep.read(spec)
    console = Console(quiet=quiet)
    sizes = {name: len(values) for name, values in described.grid().items()}
    shape = " x ".join(f"{size} {name}" for name, size in sizes.items())
    console.print(f"{shape}: {math.prod(sizes.values())} runs into {out}", highlight=False)
    began = time.perf_counter()
    with bar("runs", quiet=quiet) as progress:
        counts = sweep.run(described, out, progress, workers=cores(), part=_part(part))
    seconds = time.perf_counter() - began
    ends = ", ".join(
        f"{counts[word]} {word}" for word in ("horizon", "converged", "diverged", "stalled") if counts[word]
    )
    if counts["damaged"]:
        console.print(f"Damaged chunks that were computed again: {counts['damaged']}.", highlight=False)
    console.print(f"{counts['computed']} runs in {seconds:.1f} s; in the store: {ends}.", highlight=False)
    return {"out": out, "seconds": round(seconds, 2), **counts}


def _part(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if found is None:
        raise InputError(f"--part {text} is not allowed: it must be 1/N, 2/N ... or N/N.")
    return int(found[1]), int(found[2])


def checked(spec: Path | None, out: str, *, quiet: bool) -> dict[str, Any]:
    """Says what is damaged in the store; returns what `--json` prints."""
    found = sweep.check(None if spec is None else sweep.read(spec), out)
    console = Console(quiet=quiet)
    for part in found.damage:
        console.print(f"[bold red]damaged[/] {', '.join(part.arrays)} at {place(part.cells)}", highlight=False)
    missing = found.cells - found.finished
    console.print(f"{out}: {found.finished} of {found.cells} runs are there and whole.", highlight=False)
    if missing or found.damage:
        console.print("The same command without --check computes the others.")
    damage = [part._asdict() for part in found.damage]
    return {"out": out, "cells": found.cells, "finished": found.finished, "damage": damage}


def exported(store: str, file: Path, *, quiet: bool) -> dict[str, Any]:
    """Writes the store to one file; returns what `--json` prints."""
    finished = sweep.export(store, file)
    Console(quiet=quiet).print(f"{finished} finished runs of {store} into {file}.", highlight=False)
    return {"store": store, "out": str(file), "finished": finished}


def merged(first: str, second: str, out: str, *, quiet: bool) -> dict[str, Any]:
    """Makes one store of two; returns what `--json` prints."""
    made = sweep.merge(first, second, out)
    told = f"{out}: {made.finished} of {made.cells} runs, {made.first} from {first} and {made.second} from {second}."
    Console(quiet=quiet).print(told, highlight=False)
    return {"out": out, **made._asdict()}
