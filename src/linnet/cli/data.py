"""`linnet data`: which sets of images are on this machine, and the way to the others."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape

from linnet import _check, data
from linnet._table import Fitted, Heading
from linnet.cli.bar import bar
from linnet.data import SETS, SetStatus


def listed(names: Sequence[str], *, quiet: bool) -> dict[str, Any]:
    """Reads and checks the sets, by default all; returns what `--json` prints."""
    return _shown([data.status(name) for name in _known(names or tuple(SETS))], quiet)


def fetch(names: Sequence[str], *, quiet: bool) -> dict[str, Any]:
    """Fetches what is missing of the sets; returns what `--json` prints."""
    found = []
    for name in _known(names):
        with bar(name, quiet=quiet, share=True) as progress:
            data.fetch(name, progress=progress)
        found.append(data.status(name))
    return _shown(found, quiet)


def exit_code(result: dict[str, Any], *, names: Sequence[str]) -> int:
    """1 if a set is not whole; those that nobody has asked for by name may be missing."""
    asked = (one for one in result["sets"] if one["folder"] is not None or one["name"] in names)
    return int(not all(one["whole"] for one in asked))


def _known(names: Sequence[str]) -> list[str]:
    """Each of them once; a name that is not known is refused before anything is done."""
    return list(dict.fromkeys(_check.choice("name", name, tuple(SETS)) for name in names))


def _shown(found: Sequence[SetStatus], quiet: bool) -> dict[str, Any]:
    console = Console(quiet=quiet, highlight=False)
    table = Fitted(
        Heading("set"),
        Heading("images", spare=3, right=True),
        Heading("MB", spare=2, right=True),
        Heading(""),
        Heading("where", spare=1),
        Heading("what it is", spare=4, prose=True),
    )
    for one in found:
        count = f"{one.train:,}" + f" + {one.test:,}" * bool(one.test)
        state = "[green]whole[/]" if one.whole else "missing" if one.folder is None else "[bold red]not whole[/]"
        table.add(one.name, count, str(one.megabytes or ""), state, escape(one.folder or ""), escape(one.title))
    console.print(table)
    absent = [one.name for one in found if one.folder is None and SETS[one.name].downloads]
    if absent:
        console.print(f"\nlinnet data fetch {' '.join(absent)} gets what is missing.")
    for one in found:
        if one.trouble and one.name not in absent:
            console.print(f"\n{escape(one.trouble)}")
    return {"sets": [one._asdict() | {"whole": one.whole} for one in found]}
