"""`linnet lab`: the laboratory's page."""

import tomllib
from pathlib import Path
from typing import Any

from linnet._check import InputError, choice
from linnet.lab import serve
from linnet.lab.control import write
from linnet.lab.room import Room
from linnet.lab.rooms import ROOMS


def run(file: Path | None, room: str | None, address: str, port: int, browser: bool) -> None:
    """Serves the rooms until it is interrupted, and opens the one that was asked for."""
    serve(address=address, port=port, browser=browser, path=_path(file, room))


def _path(file: Path | None, room: str | None) -> str:
    rooms = {kind.name: kind for kind in ROOMS}
    if file is None:
        return "" if room is None else choice("room", room, list(rooms))
    if room is not None:
        raise InputError(f"room = {room!r} is not allowed with a file: the file says which room it is.")
    table = _table(file)
    made: Room = rooms[choice("room", table.get("room"), list(rooms))]()
    given = table.get("controls", {})
    if not isinstance(given, dict):
        raise InputError(f"{file}: controls = {given!r} is not allowed: give a table.")
    known = {control.name for control in made.controls}
    for name in given:
        if name not in known:
            raise InputError(f"{file}: {name} is no control of this room: it has {', '.join(sorted(known))}.")
    query = write(made.controls, made.checked(given))
    return f"{made.name}?{query}" if query else made.name


def _table(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{file} is no TOML file: {error}.") from None
