"""The whole job: experiments side by side, claims after them, and what an earlier run leaves to do."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import xarray

from linnet import claims
from linnet.cli import reproduce
from linnet.experiments import experiments
from linnet.experiments.mixed import MixedFig2
from linnet.reproduction import Made, Result, Work, files, work

FIGURES = ["stability/fig13", "stability/fig23"]
CLAIMS = ["mixed/C17", "mixed/C22", "mixed/C19"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder that two processes filled, and what was told about it."""
    out = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(work, "find_claims", lambda ids: claims.find(CLAIMS))
        patch.setattr(work, "cores", lambda: 2)
        return out, reproduce.run(FIGURES, "quick", out, [], claims=True, quiet=True)


@pytest.fixture
def again(made, tmp_path, monkeypatch):
    """A copy of that folder, and a function that runs the same again; it gives the result and the calls made."""
    out = tmp_path / "report"
    shutil.copytree(made[0], out)
    called = []

    def alone(calls, workers):
        called.extend(calls)
        return [(number, function(*arguments)) for number, (function, arguments) in enumerate(calls)]

    monkeypatch.setattr(work, "find_claims", lambda ids: claims.find(CLAIMS))
    monkeypatch.setattr(work, "as_completed", alone)
    monkeypatch.setattr(work, "cores", lambda: 2)
    return out, lambda: (reproduce.run(FIGURES, "quick", out, [], claims=True, quiet=True), called)


@pytest.mark.slow
def test_side_by_side_gives_the_same_numbers(made, tmp_path, monkeypatch):
    out, told = made
    assert [e["id"] for e in told["experiments"]] == FIGURES
    assert told["claims"] == {"size": "quick", "checked": 3, "failed": 0}
    assert reproduce.exit_code(told) == 0
    monkeypatch.setattr(work, "cores", lambda: 1)
    reproduce.run(FIGURES, "quick", tmp_path, [], quiet=True)
    for figure in FIGURES:
        one, two = (json.loads((folder / figure / "result.json").read_text()) for folder in (tmp_path, out))
        assert one["device"] == "a CPU with 1 core"
        assert two["device"] == "one core of a CPU with 2 cores"
        assert set(two["machine"]) == {"system", "processor"}
        assert [v["name"] for v in one["verdicts"]] == [v["name"] for v in two["verdicts"]]
        with (
            xarray.open_dataset(tmp_path / figure / "data.nc", engine="scipy") as first,
            xarray.open_dataset(out / figure / "data.nc", engine="scipy") as second,
        ):
            xarray.testing.assert_allclose(first, second, rtol=1e-9, atol=1e-12)
    assert "3 claims and errata verified at quick size, 0 not as stated" in " ".join(
        (out / "index.html").read_text().split()
    )


def test_one_figure_imports_its_own_paper_and_writes_one_page(tmp_path):
    """In a process of its own: other tests import all papers."""
    code = """
import sys
from linnet import report
from linnet.cli import reproduce
write, pages = report.write, []
report.write = lambda out: pages.append(write(out))
reproduce.run(["stability/fig23"], "quick", __import__("pathlib").Path("out"), [], quiet=True)
print(len(pages), *sys.modules)
"""
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path)
    pages, *loaded = told.stdout.split()
    assert pages == "1"
    assert {"linnet.claims.stability", "linnet.experiments.stability_balance"} <= set(loaded)
    for paper in ("mixed", "spectral", "feature", "balance", "optimizers"):
        assert not {f"linnet.claims.{paper}", f"linnet.experiments.{paper}"} & set(loaded)
    assert "stability/fig23" in (tmp_path / "out" / "index.html").read_text()


def test_what_is_finished_is_not_done_again(again):
    out, go = again
    before = (out / "claims.json").read_text()
    told, called = go()
    assert [arguments[1] for _, arguments in called] == FIGURES  # drawn again from the data that were kept
    assert told["claims"]["checked"] == 3
    assert (out / "claims.json").read_text() == before


def test_verdicts_of_other_versions_or_sizes_are_found_again(again):
    out, go = again
    stored = json.loads((out / "claims.json").read_text())
    stored["versions"]["numpy"] = "0"
    (out / "claims.json").write_text(json.dumps(stored))
    assert files.good(out, "quick") == {}
    _, called = go()
    assert [arguments[1] for _, arguments in called] == [*FIGURES, *CLAIMS]
    assert set(files.good(out, "quick")) == set(CLAIMS)
    assert files.good(out, "full") == {}


def test_a_claim_not_as_stated_is_a_failure(again):
    out, go = again
    stored = json.loads((out / "claims.json").read_text())
    for verdict in stored["claims"]:
        verdict["holds"] = True  # mixed/C22 is refuted: it ought to fail
    (out / "claims.json").write_text(json.dumps(stored))
    told, _ = go()
    assert told["claims"]["failed"] == 1
    assert told["failed"] == 0
    assert reproduce.exit_code(told) == 1
    assert reproduce.exit_code({"failed": 1, "claims": None}) == 1
    assert reproduce.exit_code({"failed": 0, "claims": None}) == 0


def test_claims_come_with_all_experiments_only(tmp_path, monkeypatch):
    monkeypatch.setattr(work, "find", lambda ids: [experiments()[FIGURES[1]]])
    monkeypatch.setattr(work, "find_claims", lambda ids: claims.find(CLAIMS[:1]))
    monkeypatch.setattr(work, "cores", lambda: 1)
    assert reproduce.run([], "quick", tmp_path / "a", [], quiet=True)["claims"]["checked"] == 1
    assert reproduce.run([], "quick", tmp_path / "b", [], claims=False, quiet=True)["claims"] is None
    assert reproduce.run(FIGURES[1:], "quick", tmp_path / "b", [], quiet=True)["claims"] is None


def test_long_sweeps_have_every_core_and_come_first(tmp_path, monkeypatch):
    assert MixedFig2.of_size("paper", {}).shared
    assert not MixedFig2.of_size("quick", {}).shared
    asked = []

    def note(experiment, size, folder, made_on, workers=1, progress=None):
        asked.append((experiment.id, workers))
        about = {"place": "", "caption": "", "parameters": {}, "seed": 0, "machine": {}, "versions": {}, "again": ""}
        result = Result(experiment.id, "", size=size, seconds=0.0, device=made_on, data="data.nc", verdicts=[], **about)
        return Made(result, kept=False)

    def alone(calls, workers):
        return [(number, function(*arguments)) for number, (function, arguments) in enumerate(calls)]

    monkeypatch.setattr(work, "make", note)
    monkeypatch.setattr(work, "as_completed", alone)
    monkeypatch.setattr(work, "cores", lambda: 3)
    reproduce.run(["stability/fig13", "mixed/fig2", "mixed/fig1"], "paper", tmp_path, [], quiet=True)
    assert asked == [("mixed/fig2", 3), ("mixed/fig1", 1), ("stability/fig13", 1)]


def test_progress_never_runs_backwards(tmp_path, monkeypatch):
    shares = []
    planned = Work([experiments()[FIGURES[1]].of_size("quick", {})], claims.find(CLAIMS[:2]), "quick", tmp_path)
    monkeypatch.setattr(work, "cores", lambda: 1)
    list(planned.done(lambda done, total: shares.append(done / total)))
    assert shares[0] == 0
    assert np.isclose(shares[-1], 1)
    assert shares == sorted(shares)


@pytest.mark.slow
def test_an_interrupted_run_leaves_a_page_and_no_processes(tmp_path, started):
    out = tmp_path / "report"
    going = started("reproduce", *FIGURES, "--claims", "--out", out)
    going.until((out / "index.html").exists)
    code, told = going.interrupt()
    assert code == 130
    assert told == "linnet: interrupted; what was finished is kept.\n"
    assert len(list(out.glob("*/*/result.json"))) >= 1
    assert "requirements met" in " ".join((out / "index.html").read_text().split())
    going.until(lambda: not going.family(), alive=False)
