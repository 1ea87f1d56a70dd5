"""`linnet lab`: which page it opens, and what it refuses in a sentence."""

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
