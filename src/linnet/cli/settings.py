"""The values of `--set name=value`, and the files of `--from`."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from linnet._check import InputError
from linnet.claims import load


def changes(settings: Sequence[str]) -> dict[str, Any]:
    """`name=value` as typed, with lists and numbers understood."""
    out: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name.strip():
            raise InputError(f"set = {setting!r} is not allowed: write field=value.")
        try:
            out[name.strip()] = json.loads(text)
        except json.JSONDecodeError:
            out[name.strip()] = text
    return out


def own(sources: Iterable[str]) -> list[str]:
    """Loads the files or modules; the names of the subjects that they declare."""
    return [name for source in sources for name in load(source)]
