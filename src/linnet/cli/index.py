"""What is registered, without loading it: `index.json`, which `python -m linnet.cli.describe` writes."""

import json
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple

INDEX = Path(__file__).with_name("index.json")


class Index(NamedTuple):
    """Papers and what is registered of them, by id, in their order.

    `group` names the entry points by which packages bring their own; `demanding` experiments may lack something on a
    machine, and must be asked.
    """

    group: str
    papers: Mapping[str, Mapping[str, Any]]
    entries: Mapping[str, Mapping[str, Any]]


def known(sources: Sequence[str]) -> tuple[Index, list[str]]:
    """What is registered, and the names of the subjects that files of the user's own declare.

    Code is loaded only where there are such files, or packages that bring theirs.
    """
    ours = Index(**json.loads(INDEX.read_text(encoding="utf-8")))
    if not sources and not entry_points(group=ours.group):
        return ours, []
    from linnet.cli.describe import index
    from linnet.cli.settings import own

    among = own(sources)
    return index(), among
