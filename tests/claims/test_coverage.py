"""The page on coverage: its tables name what exists, and all claims, errata, and figures of the papers are in them."""

import importlib.util
import operator
import tomllib
from pathlib import Path

import pytest

import linnet
from linnet.claims import PAPERS, registry
from linnet.experiments import experiments

DOCS = Path(__file__).parents[2] / "docs"
TABLES = {path.stem: path for path in sorted((DOCS / "coverage").glob("*.toml"))}
ROWS = {paper: tomllib.loads(path.read_text(encoding="utf-8"))["statement"] for paper, path in TABLES.items()}
KEYS = {"place", "says", "status", "ids", "functions", "reason"}
STATUSES = ("whole", "in part", "not computable")


def of_paper(paper):
    """Claims, errata, and figures of a paper."""
    return [name for name in (*registry(), *experiments()) if name.split("/")[0] == paper]


def test_the_five_papers_have_tables():
    assert set(TABLES) == {"mixed", "spectral", "nonlocal", "stability", "feature"}
    assert set(TABLES) <= set(PAPERS)


@pytest.mark.parametrize("paper", ROWS)
def test_rows_are_complete(paper):
    known = {*registry(), *experiments()}
    for row in ROWS[paper]:
        assert set(row) <= KEYS, row
        assert row["place"], row
        assert row["says"], row
        assert row["status"] in STATUSES, row
        assert ("reason" in row) == (row["status"] != "whole"), row
        assert row.get("reason", "a reason").strip(), row
        if row["status"] != "not computable":
            assert row.get("ids") or row.get("functions"), row
        assert not set(row.get("ids", ())) - known, row
        for name in row.get("functions", ()):
            package, _, inside = name.partition(".")
            assert package == "linnet", row
            operator.attrgetter(inside)(linnet)


@pytest.mark.parametrize("paper", ROWS)
def test_every_claim_erratum_and_figure_appears(paper):
    listed = {name for row in ROWS[paper] for name in row.get("ids", ())}
    assert set(of_paper(paper)) - listed == set()


@pytest.mark.parametrize("paper", ROWS)
def test_no_statement_is_listed_twice(paper):
    stated = [(row["place"], row["says"]) for row in ROWS[paper]]
    assert len(stated) == len(set(stated))


def test_the_page_is_made_of_the_tables():
    for name in ("markdown", "latex2mathml"):
        pytest.importorskip(name, reason="needs the extra docs")
    spec = importlib.util.spec_from_file_location("site_hooks", DOCS / "hooks.py")
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    assert hooks.statements() == {paper: ROWS[paper] for paper in PAPERS if paper in ROWS}
    assert hooks.STATUSES == STATUSES
    page = hooks.on_page_markdown(
        (DOCS / "coverage.md").read_text(encoding="utf-8"), page=None, config=None, files=None
    )
    assert "<!-- coverage -->" not in page
    for paper, rows in ROWS.items():
        assert page.count(f"{{ #{paper} }}") == 1
        for row in rows:
            assert str(hooks.typeset(row["says"])) in page, row
    assert page.count("<tr><td>") == sum(map(len, ROWS.values()))
