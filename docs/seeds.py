"""The table of `linnet reproduce --seeds`: `python docs/seeds.py FOLDER...` prints a row for each experiment of their
`seeds.json`, as on the page of what is reproduced.
"""

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

HEAD = """| figure | seeds | requirements | fail with a seed | smallest margin | of |
|---|---|---|---|---|---|"""


def table(folders: Iterable[Path]) -> str:
    """The table in Markdown; margins are in standard deviations, those that have none (always the same) left out."""
    figures: dict[str, list[Mapping[str, Any]]] = {}
    for folder in folders:
        for one in json.loads((folder / "seeds.json").read_text(encoding="utf-8"))["requirements"]:
            figures.setdefault(one["id"], []).append(one)
    return "\n".join([HEAD, *(_row(name, several) for name, several in sorted(figures.items()))])


def _row(name: str, several: list[Mapping[str, Any]]) -> str:
    failed = sum(one["failed"] > 0 for one in several)
    finite = [one for one in several if one["margin"] is not None]
    least = min(finite, key=lambda one: one["margin"], default=None)
    last = (
        "always the same | "
        if least is None
        else f"{least['margin']:.3g} | {least['name'].replace('|', chr(92) + '|')}"
    )
    if least is not None and least["band"] not in ("", "three standard deviations over ten seeds"):
        last += f" ({least['band'].replace('|', chr(92) + '|')})"
    seeds = max(len(one["measured"]) for one in several)
    return f"| `{name}` | {seeds} | {len(several)} | {failed} | {last} |"


if __name__ == "__main__":
    sys.stdout.write(table(map(Path, sys.argv[1:])) + "\n")
