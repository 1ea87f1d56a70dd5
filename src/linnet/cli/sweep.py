"""`linnet sweep`: a grid of runs into one store."""

import math
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from linnet import sweep
from linnet._pool import cores
from linnet.cli.bar import bar


def run(spec: Path, out: Path, *, quiet: bool) -> dict[str, Any]:
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
    console.print(f"{counts['computed']} runs in {seconds:.1f} s; in the store: {ends}.", highlight=False)
    return {"out": str(out), "seconds": round(seconds, 2), **counts}
