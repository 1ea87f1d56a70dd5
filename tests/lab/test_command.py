"""`linnet lab`: which page it opens, and what it refuses in a sentence."""

import os
import subprocess
import sys

import pytest

from linnet._check import InputError
from linnet.cli.lab import run
from linnet.lab.pages import PAGES
from linnet.lab.server import _path


@pytest.mark.parametrize("kind", [page for page in PAGES if "toml" not in vars(page)], ids=lambda page: page.name)
def test_a_pages_own_file_opens_it_again(kind, tmp_path):
    page = kind()
    values = page.checked(dict(next(iter(page.presets.values()))))
    (tmp_path / "page.toml").write_text(page.toml(values), encoding="utf-8")
    name, _, query = _path(tmp_path / "page.toml", None).partition("?")
    assert name == page.name
    assert page.read(dict(part.split("=") for part in query.split("&") if part)) == values


@pytest.mark.parametrize(
    ("text", "page", "port", "words"),
    [
        (None, "attic", 0, "page = 'attic'"),
        (None, None, 99_999, "127.0.0.1:99999 cannot be served at"),
        ("page = 3", None, 0, "page = 3"),
        ('page = "edge"\n[controls]\nkappa = 99', None, 0, "kappa = 99 is not allowed"),
        ('page = "edge"\n[controls]\ncolor = 1', None, 0, "color is not a control of this page"),
        ('page = "edge"\ncontrols = 1', None, 0, "controls = 1 is not allowed"),
        ("page =", None, 0, "is no TOML file"),
        ('page = "edge"', "edge", 0, "is not allowed with a file"),
    ],
)
def test_refusals(text, page, port, words, tmp_path):
    file = None if text is None else tmp_path / "page.toml"
    if file is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="(?s)" + words):
        run(file, page, "127.0.0.1", port, browser=False)


_DROPPED = """
from linnet.lab.pages.data import _UPLOADS
from linnet.lab.server import run

_UPLOADS.keep(b"a,b\\n1,2\\n3,5\\n4,4\\n", ".csv", "mine.csv")
run(None, None, address="127.0.0.1", port=0, browser=False)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM that a process could answer")
def test_what_was_dropped_goes_with_a_server_that_is_asked_to_end(tmp_path):
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", _DROPPED]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as server:
        try:
            assert "http://127.0.0.1:" in server.stdout.readline()
            assert len(list(tmp_path.glob("linnet-lab-*/*.csv"))) == 1
            server.terminate()
            _, errors = server.communicate(timeout=300)
        finally:
            server.kill()
    assert "Traceback" not in errors
    assert not list(tmp_path.glob("linnet-lab-*"))
