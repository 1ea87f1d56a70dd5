"""Runs the pages: `python docs/run.py` writes what they print and draw, `--check` only compares; names choose pages.

On a page all python blocks run in order in one namespace and one empty folder; in bash blocks the `linnet` commands do
(a comment "exits with 1" is held to). A text block right after one of them is what it prints, up to durations. A block
with a title, or after a line such as "`mine.toml`:", is that file in the folder. A picture that the page
shows from docs/images is one that it left in its folder. A page with the line "<!-- needs fashion -->" runs where that
data set is (LINNET_DATA names its folder), and is left as it is elsewhere.
"""

import argparse
import contextlib
import difflib
import io
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from linnet import data
from linnet.papers import apart

DOCS = Path(__file__).parent
BLOCK = re.compile(
    r'^(?:`(?P<name>[\w.-]+)`:\n+)?```(?P<kind>\w+)(?: title="(?P<title>[\w.-]+)")?\n(?P<code>.*?)^```'
    r"(?:\n\n```text\n(?P<shown>.*?)^```)?$",
    re.MULTILINE | re.DOTALL,
)
NEEDS = re.compile(r"^<!-- needs (\w+) -->$", re.MULTILINE)
PICTURE = re.compile(r"!\[[^\]]*\]\((?:docs/|(?:\.\./)*)images/([\w.-]+)\)")
COMMANDS = {"demo.png": "linnet demo --d 500", "mixed-fig2.png": "linnet reproduce mixed/fig2 --size paper"}
COMMANDS |= {f"lab-{page}.png": "python docs/lab.py" for page in ("network", "edge", "rich", "dark")}
COMMANDS |= dict.fromkeys(("readme.png", "badge-python.svg", "badge-license.svg"), "python docs/readme.py")
TERMINAL = {"COLUMNS": "96", "NO_COLOR": "1"}  # what the commands write to


def execute(
    page: str, folder: Path, *, smaller: Mapping[str, str] | None = None, commands: bool = True
) -> tuple[str, dict[str, Any]]:
    """The page with what its blocks print now, and its Python names; `smaller` replaces sizes in Python blocks."""
    names: dict[str, Any] = {"__name__": "page"}

    def block(found: re.Match[str]) -> str:
        code, file, printed = found["code"], found["title"] or found["name"], None
        if file is not None:
            (folder / file).write_text(code, encoding="utf-8")
        elif found["kind"] == "python":
            for large, small in (smaller or {}).items():
                code = code.replace(large, small)
            with contextlib.redirect_stdout(io.StringIO()) as heard:
                exec(compile(code, "page", "exec"), names)
            printed = heard.getvalue()
        elif found["kind"] == "bash" and commands:
            printed = "".join(map(_command, code.splitlines()))
        if printed is None or found["shown"] is None:
            return found[0]
        tidy = "".join(f"{line.rstrip()}\n" for line in printed.rstrip().splitlines())
        return f"{found[0][: found.start('shown') - found.start()]}{tidy}```"

    ours = {"path": [*sys.path]}  # a file that a page brings adds its folder
    with contextlib.chdir(folder), mock.patch.dict(os.environ, TERMINAL), mock.patch.multiple(sys, **ours), apart():
        os.environ.pop("FORCE_COLOR", None)
        return BLOCK.sub(block, page), names


def _command(line: str) -> str:
    """What a `linnet` command shows on a terminal; other lines do nothing."""
    from linnet import cli

    words, wanted = shlex.split(line, comments=True), re.search(r"# exits with (\d)", line)
    if not words or words[0] != "linnet":
        return ""
    code: Any = 0
    shown = io.StringIO()
    with mock.patch.object(sys, "argv", words), contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
        try:
            cli.guarded()
        except SystemExit as ended:
            code = ended.code or 0
    if code != int(wanted[1] if wanted else 0):
        raise RuntimeError(f"{line!r} exits with {code}:\n{shown.getvalue()}")
    return shown.getvalue()


def pages() -> list[Path]:
    """All pages of the documentation."""
    return sorted(DOCS.rglob("*.md"))


def lacks(path: Path) -> str | None:
    """What this machine lacks to run a page: a data set, in a sentence with the cure."""
    found = NEEDS.search(path.read_text(encoding="utf-8"))
    return None if found is None else data.status(found[1]).trouble


def check(path: Path, *, write: bool = False) -> list[str]:
    """Runs a page and returns the differences from what it shows, or writes it again with its pictures."""
    page = path.read_text(encoding="utf-8")
    pictures = [name for name in PICTURE.findall(page) if name not in COMMANDS]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        again, _ = execute(page, folder)
        wrong = [f"{path}: shows {name} and does not make it" for name in pictures if not (folder / name).is_file()]
        changed = _words(page) != _words(again)
        if changed and not write:
            lines = difflib.unified_diff(
                page.splitlines(), again.splitlines(), "as it is", "as printed", n=1, lineterm=""
            )
            wrong.append("\n".join([f"{path}: see the difference, then run python docs/run.py", *lines]))
        if write and not wrong:
            if changed:
                path.write_text(again, encoding="utf-8")
            for picture in pictures:
                shutil.copy(folder / picture, DOCS / "images" / picture)
    return wrong


def _words(text: str) -> str:
    """The words of a text, durations and speeds left out: they also shift spaces and where lines break."""
    return re.sub(r"\s+", " ", re.sub(r"\b[\d.]+ (s|min)\b|[\d,]+ (?=run-steps)|(?<=computed )\d+", "", text))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Run the pages of the documentation.")
    parser.add_argument("pages", nargs="*", type=Path, help="pages; default all")
    parser.add_argument("--check", action="store_true", help="compare and change nothing")
    asked = parser.parse_args()
    wrong = []
    for page in asked.pages or pages():
        if (reason := lacks(page)) is not None:
            sys.stderr.write(f"{page} is left out: {reason}\n")
        else:
            wrong += check(page, write=not asked.check)
    sys.exit("\n".join(wrong) or 0)
