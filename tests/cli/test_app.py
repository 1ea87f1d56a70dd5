"""The command line as a user meets it."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
from PIL import Image


def linnet(*arguments, cwd=None):
    code = "import sys; from linnet.cli import main; sys.argv = ['linnet', *sys.argv[1:]]; main()"
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, cwd=cwd)


COMMAND = ()


@pytest.fixture
def here(typed):
    """The same without a process of its own, which would import and compile anew."""

    def run(*arguments):
        code, out, err = typed(*arguments)
        return SimpleNamespace(returncode=code, stdout=out, stderr=err)

    return run


@pytest.fixture
def inside(typed):
    """(exit code, what it told on standard error)."""

    def run(*arguments):
        code, _, err = typed(*arguments)
        return code, err

    return run


def test_help_and_version():
    assert "demo" in linnet("--help").stdout
    assert linnet("--version").stdout.startswith("linnet 0.")


def test_the_package_runs_as_a_module():
    command = [sys.executable, "-m", "linnet"]
    assert subprocess.run([*command, "--version"], capture_output=True, text=True).stdout.startswith("linnet 0.")
    wrong = subprocess.run([*command, "predict", "rates", "--depth", "2"], capture_output=True, text=True)
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
    assert "data or spectrum: give one of them" in wrong.stderr


def test_demo_draws_and_tells(tmp_path, here):
    told = here("demo", "--d", "20", "--rank", "2", "--steps", "60")
    assert told.returncode == 0, told.stderr
    assert "Test error" in told.stdout
    assert (tmp_path / "linnet-demo.png").stat().st_size > 10_000
    result = here("demo", "--d", "20", "--rank", "2", "--steps", "60", "--json", "--out", "x.svg")
    found = json.loads(result.stdout)
    assert found["status"] == "horizon"
    assert 0 < found["best_test_error"] < 1.5
    assert (tmp_path / "x.svg").read_text().startswith("<?xml")


def test_demo_makes_a_film(tmp_path, here):
    told = here("demo", "--d", "20", "--rank", "2", "--steps", "12", "--out", "x.gif")
    assert (told.returncode, told.stderr) == (0, "")
    assert "Film: x.gif" in told.stdout
    with Image.open(tmp_path / "x.gif") as image:
        assert (image.format, image.n_frames) == ("GIF", 13)
    told = here("demo", "--d", "20", "--rank", "2", "--steps", "12", "--out", "x.gif", "--json")
    assert json.loads(told.stdout)["figure"] == "x.gif"


def test_list_and_verify(inside, here):
    listed = json.loads(here("list", "--json").stdout)
    assert {c["id"] for c in listed["claims"]} >= {"mixed/C1", "mixed/C25"}
    assert {e["grade"] for e in listed["errata"]} == {"error", "misprint", "clarification"}
    assert {"id", "title", "minutes"} <= set(listed["experiments"][0])
    assert "mixed/C17" in here("list").stdout
    told = here("verify", "mixed/C17", "mixed/C22", "mixed/E20", "--json")
    assert told.returncode == 0, told.stderr
    result = json.loads(told.stdout)
    assert result["failed"] == 0
    assert [c["holds"] for c in result["claims"]] == [True, False, True]  # mixed/C22 is refuted
    assert set(result["claims"][0]) == {
        "id", "paper", "kind", "statement", "holds", "measured", "required", "margin", "seconds", "detail"
    }  # fmt: skip
    table = here("verify", "mixed/C17").stdout
    assert "holds" in table
    assert "1 verified" in table
    for arguments, words in ((("mixed/C99",), "'mixed/C99' is not known"), (("--paper", "x"), "paper = 'x'")):
        code, wrong = inside("verify", *arguments)
        assert code == 2
        assert words in wrong


def test_a_part_of_the_list(here):
    listed = json.loads(here("list", "mixed/C6", "nonlocal", "--json").stdout)
    assert {paper["id"] for paper in listed["papers"]} == {"mixed", "nonlocal"}
    assert [c["id"] for c in listed["claims"] if c["paper"] == "mixed"] == ["mixed/C6"]
    assert {e["paper"] for e in (*listed["errata"], *listed["experiments"])} == {"nonlocal"}
    errors = json.loads(here("list", "nonlocal", "--kind", "error", "--json").stdout)
    assert {entry["grade"] for entry in errors["errata"]} == {"error"}
    assert not errors["claims"]
    assert not errors["experiments"]
    assert all(part in listed["errata"] for part in errors["errata"])
    assert "kind = 'eror' is not known: did you mean error" in here("list", "--kind", "eror").stderr
    wrong = here("list", "nonlocl")
    assert wrong.returncode == 2
    assert "'nonlocl' is not known: did you mean nonlocal" in wrong.stderr


def test_show_tells_everything(here):
    told = json.loads(here("show", "mixed/C20", "--set", "seed=4", "--json").stdout)
    assert told["paper"]["id"] == "mixed"
    assert told["hypotheses"] == ["A has full column rank"]
    assert told["parameters"] == {"seed": 4}
    assert told["negative_control"] == [
        {"name": "low", "right": "-1", "wrong": "0"},
        {"name": "high", "right": "0", "wrong": "-1"},
    ]
    verdict = told["verdict"]
    assert verdict["holds"]
    assert len(verdict["findings"]) == 100
    assert min(f["margin"] for f in verdict["findings"]) == verdict["margin"]
    assert {"measured", "required", "margin", "holds", "case", "printed", "text"} == set(verdict["findings"][0])
    shown = here("show", "mixed/C15", "--no-run").stdout
    assert "Lemma C.8, appendix E.3" in shown
    assert "Negative control: kappa = lambda d: 1 / d ** 2 instead of lambda d: 2 / d ** 2." in shown
    erratum = here("show", "mixed/E20").stdout
    assert "fails (printed)" in erratum
    assert "shown, as stated" in erratum
    noted = json.loads(here("show", "mixed/E16", "--json").stdout)
    assert not noted["computed"]
    assert noted["verdict"] is None
    assert "sqrt(d/w) |C1| <= c" in noted["evidence"]


def test_show_an_experiment(here):
    told = json.loads(here("show", "mixed/fig1", "--json").stdout)
    by_name = {p["name"]: p for p in told["parameters"]}
    assert (by_name["d"]["paper"], by_name["d"]["quick"]) == (500, 100)
    assert by_name["d"]["description"] == "Dimension of the matrix to recover."
    assert "linnet reproduce mixed/fig1 makes it" in " ".join(here("show", "mixed/fig1").stdout.split())


def test_verify_with_other_parameters(here):
    told = json.loads(here("verify", "mixed/C17", "mixed/C19", "--set", "seed=3", "--json").stdout)
    plain = json.loads(here("verify", "mixed/C17", "mixed/C19", "--json").stdout)
    assert told["claims"][1]["measured"] != plain["claims"][1]["measured"]
    for arguments, words in (
        (("verify", "mixed/C17", "--set", "x=3"), "set = 'x' is not allowed: mixed/C17 has seed."),
        (("verify", "mixed/C17", "--set", "seed=3", "--out", "r"), "is not allowed with --set"),
        (("show", "mixed/C170"), "'mixed/C170' is not known: did you mean mixed/C17"),
    ):
        wrong = here(*arguments)
        assert wrong.returncode == 2
        assert words in wrong.stderr


def test_reproduce_writes_everything_and_keeps_it(tmp_path, here):
    arguments = ("reproduce", "mixed/fig1", "--set", "d=20", "--set", "rank=2", "--set", "steps=120", "--out", "r")
    first = here(*arguments, "--json")
    assert first.returncode == 0, first.stderr
    result = json.loads(first.stdout)
    assert result["failed"] == 0
    assert set(result) == {"out", "experiments", "failed", "skipped", "claims"}
    assert result["claims"] is None
    assert set(result["experiments"][0]) == {"id", "size", "seconds", "verdicts"}
    assert set(result["experiments"][0]["verdicts"][0]) == {"name", "holds", "measured", "required"}
    folder = tmp_path / "r" / "mixed" / "fig1"
    assert {path.name for path in folder.iterdir()} == {
        "data.nc", "figure.png", "figure.svg", "parameters.json", "result.json"
    }  # fmt: skip
    kept = json.loads((folder / "result.json").read_text())
    assert kept["parameters"]["d"] == 20
    assert {"linnet", "python", "jax"} <= set(kept["versions"])
    page = (tmp_path / "r" / "index.html").read_text()
    assert "mixed/fig1/figure.png" in page
    assert "http" not in page  # nothing is loaded from elsewhere
    again = here(*arguments)
    assert "kept from an earlier run" in " ".join(again.stdout.split())
    assert "1 reproduced, 0 not as required" in " ".join(again.stdout.split())


def test_sweep(tmp_path, here):
    (tmp_path / "s.toml").write_text(
        """
        [axes]
        lr = [0.1, 0.2]
        [problem]
        kind = "factorization"
        target = { file = "m.csv" }
        [init]
        kind = "i_gamma"
        gamma = 0.1
        [optimizer]
        kind = "SGD"
        lr = "lr"
        [run]
        steps = 5
        [store]
        loss = "loss at end"
        """
    )
    (tmp_path / "m.csv").write_text("2,0\n0,1\n")
    told = here("sweep", "s.toml", "--out", "s.zarr")
    assert told.returncode == 0, told.stderr
    assert "2 runs in" in told.stdout
    assert json.loads(here("sweep", "s.toml", "--out", "s.zarr", "--json").stdout)["computed"] == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("reproduce", "mixed/fig7"), "'mixed/fig7' is not known"),
        (("reproduce", "--size", "big"), "size = 'big'"),
        (("reproduce", "mixed/fig1", "--set", "d"), "write field=value"),
        (("reproduce", "mixed/fig1", "--set", "x=1"), "fields here are"),
        (("reproduce", "mixed/fig1", "--set", "d=1.5"), "d = 1.5 is not allowed"),
        (("sweep", "no.toml", "--out", "x.zarr"), "cannot be read"),
    ],
)
def test_mistakes_anywhere_are_one_sentence(arguments, words, inside):
    code, told = inside(*arguments)
    assert code == 2
    assert words in told
    assert "Traceback" not in told


def test_interrupting_ends_at_once_and_keeps_what_is_finished(tmp_path, started):
    (tmp_path / "s.toml").write_text(
        """
        batch = 1
        [axes]
        steps = [10, 20, 1e8]
        [problem]
        kind = "low_rank_recovery"
        d = 30
        rank = 2
        [init]
        kind = "gaussian"
        width = 100
        variance = 1e-3
        [optimizer]
        kind = "SGD"
        lr = 0.1
        [run]
        steps = "steps"
        record = [0, 5]
        [store]
        loss = "loss at end"
        """
    )
    child = started("sweep", "s.toml", "--out", "s.zarr", cwd=tmp_path)
    store = tmp_path / "s.zarr" / "status"
    child.until((store / "1").exists)
    child.until(child.worked(0.5))  # all is compiled: that is inside the endless run
    code, told = child.interrupt()
    assert code == 130
    assert "what was finished is kept" in told
    assert "Traceback" not in told
    child.until(lambda: not child.family(), alive=False)
    assert sorted(path.name for path in store.iterdir() if path.name.isdigit()) == ["0", "1"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--rank", "0"), "rank = 0"),
        (("--rank", "50", "--d", "20"), "rank = 50"),
        (("--d", "1"), "d = 1"),
        (("--steps", "0"), "steps = 0"),
        (("--out", "picture.bmp"), "ending in"),
        (("--out", "nowhere/x.png"), "in a folder that exists"),
        (("--gamma-w", "-1"), "gamma_w = -1"),
        (("--d", "many"), "--d"),
        (("--speed", "3"), "No such option"),
        (("--out", "x[/].bmp"), "ending in"),
        (("--gamma-w", "100"), "gamma_w = 100"),
        (("--seed", "99999999999999999999999"), "seed"),
    ],
)
def test_mistakes_are_one_sentence(arguments, words, inside):
    code, told = inside("demo", *arguments)
    assert code == 2
    assert words in told
    assert "Traceback" not in told
