"""The index that `linnet list` and `linnet show` read instead of the papers' code."""

import json
import subprocess
import sys

import pytest

from linnet import experiments
from linnet.cli import describe, index

COMMAND = ()
LOADED = "import sys; from linnet import cli; sys.argv = ['linnet', *sys.argv[1:]]\n" + (
    "try: cli.guarded()\nexcept SystemExit as ended: code = ended.code\nprint(code, *sys.modules, file=sys.stderr)"
)


def test_the_index_is_what_is_registered():
    kept = index.Index(**json.loads(index.INDEX.read_text(encoding="utf-8")))
    assert kept == describe.index(), "write it again: python -m linnet.cli.describe"
    assert list(kept.entries) == list(describe.index().entries)  # a list has an order


@pytest.mark.parametrize(
    "arguments",
    [
        ("list",),
        ("list", "mixed", "--json"),
        ("show", "mixed/fig1"),
        ("show", "mixed/E16", "--json"),
        ("show", "mixed/C6", "--no-run"),
    ],
)
def test_what_is_only_told_loads_no_code_of_the_papers(arguments):
    told = subprocess.run([sys.executable, "-c", LOADED, *arguments], check=True, capture_output=True, text=True)
    code, *loaded = told.stderr.split()
    assert code in ("0", "None")
    assert "mixed" in told.stdout
    for heavy in ("jax", "numpy", "xarray", "linnet.claims", "linnet.experiments"):
        assert heavy not in loaded


def test_packages_with_claims_of_their_own_are_listed(typed, monkeypatch):
    plain = typed("list", "--json")
    asked = []
    monkeypatch.setattr(index, "entry_points", lambda group: asked.append(group) or ["one"])
    monkeypatch.setattr(describe, "index", lambda: index.Index("", {"own": {"title": "Mine"}}, {}))
    assert typed("list", "own", "--json")[1] != plain[1]
    assert asked == ["linnet.claims"]


def test_what_a_machine_lacks_is_asked_of_it_and_not_of_the_index(typed, monkeypatch):
    kind = experiments.experiments()["feature/fig2"]
    monkeypatch.setattr(kind, "missing", lambda self: "no images.")
    assert json.loads(typed("show", "feature/fig2", "--json")[1])["missing"] == "no images."
    assert "no images." in typed("show", "feature/fig2")[1]
    monkeypatch.setattr(kind, "missing", lambda self: None if self.images == ("digits",) else "no images.")
    assert json.loads(typed("show", "feature/fig2", "--json")[1])["missing"] == "at paper size: no images."
    monkeypatch.setattr(kind, "missing", lambda self: None)
    assert json.loads(typed("show", "feature/fig2", "--json")[1])["missing"] is None


def test_a_size_that_there_is_not_is_refused_without_a_run_too(typed):
    code, _, err = typed("show", "mixed/C6", "--no-run", "--size", "huge")
    assert code == 2
    assert "size = 'huge' is not allowed" in err
