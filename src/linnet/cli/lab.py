"""`linnet lab`: the lab's page."""

import tomllib
from pathlib import Path
from typing import Any

from linnet._check import InputError, choice
from linnet.lab import serve
from linnet.lab.control import write
from linnet.lab.page import Page
from linnet.lab.pages import PAGES


def run(file: Path | None, page: str | None, address: str, port: int, browser: bool) -> None:
    """Serves the pages until interrupted, and opens the given one."""
    serve(address=address, port=port, browser=browser, path=_path(file, page))


def _path(file: Path | None, page: str | None) -> str:
    pages = {kind.name: kind for kind in PAGES}
    if file is None:
        return "" if page is None else choice("page", page, list(pages))
    if page is not None:
        raise InputError(f"page = {page!r} is not allowed with a file: the file says which page it is.")
    table = _table(file)
    made: Page = pages[choice("page", table.get("page"), list(pages))]()
    given = table.get("controls", {})
    if not isinstance(given, dict):
        raise InputError(f"{file}: controls = {given!r} is not allowed: give a table.")
    known = {control.name for control in made.controls}
    for name in given:
        if name not in known:
            raise InputError(f"{file}: {name} is not a control of this page; controls are {', '.join(sorted(known))}.")
    query = write(made.controls, made.checked(given))
    return f"{made.name}?{query}" if query else made.name


def _table(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{file} is no TOML file: {error}.") from None
