"""`linnet lab`: which page it opens, and what it refuses in a sentence."""

import os
import subprocess
import sys

import pytest

from linnet._check import InputError
from linnet.cli.lab import _path, run
from linnet.lab.rooms import ROOMS


@pytest.mark.parametrize("kind", [room for room in ROOMS if "toml" not in vars(room)], ids=lambda room: room.name)
def test_a_pages_own_file_opens_it_again(kind, tmp_path):
    room = kind()
    values = room.checked(dict(next(iter(room.presets.values()))))
    (tmp_path / "page.toml").write_text(room.toml(values), encoding="utf-8")
    name, _, query = _path(tmp_path / "page.toml", None).partition("?")
    assert name == room.name
    assert room.read(dict(part.split("=") for part in query.split("&") if part)) == values


@pytest.mark.parametrize(
    ("text", "room", "port", "told"),
    [
        (None, "attic", 0, "room = 'attic'"),
        (None, None, 99_999, "127.0.0.1:99999 cannot be served at"),
        ("room = 3", None, 0, "room = 3"),
        ('room = "edge"\n[controls]\nkappa = 99', None, 0, "kappa = 99 is not allowed"),
        ('room = "edge"\n[controls]\ncolour = 1', None, 0, "colour is no control of this room"),
        ('room = "edge"\ncontrols = 1', None, 0, "controls = 1 is not allowed"),
        ("room =", None, 0, "is no TOML file"),
        ('room = "edge"', "edge", 0, "is not allowed with a file"),
    ],
)
def test_refusals(text, room, port, told, tmp_path):
    file = None if text is None else tmp_path / "page.toml"
    if file is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="(?s)" + told):
        run(file, room, "127.0.0.1", port, browser=False)


_DROPPED = """
from linnet.lab.rooms.own import _KEPT
from linnet.lab.server import run

_KEPT.keep(b"a,b\\n1,2\\n3,5\\n4,4\\n", ".csv", "mine.csv")
run(address="127.0.0.1", port=0, browser=False, path="")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM that a process could answer")
def test_what_was_dropped_goes_with_a_server_that_is_told_to_end(tmp_path):
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", _DROPPED]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as server:
        assert "http://127.0.0.1:" in server.stdout.readline()
        assert len(list(tmp_path.glob("linnet-lab-*/*.csv"))) == 1
        server.terminate()
        _, errors = server.communicate(timeout=60)
    assert "Traceback" not in errors
    assert not list(tmp_path.glob("linnet-lab-*"))
