"""Claims and experiments of users' own files: registered, verified, made, shown, in any process, and when broken."""

import json
import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest

import linnet as ln
from linnet import claims, papers, report, reproduction
from linnet.experiments import experiments

COMMAND = ()
FILE = '''
"""A subject of one's own."""
import matplotlib.pyplot as plt
import xarray
from linnet.claims import at_most, subject
from linnet.claims.claim import claim
from linnet.experiments import Experiment
from helper import scale

subject("mine", "My own conjectures", authors="Me")


@claim("mine/C1", "exact", "page 1", negative_control={"factor": 2.0})
def doubled(size, factor=1.0, n=3):
    """n + n = 2 n."""
    yield at_most(abs(factor * (n + n) - 2 * n), 0.0, n=n)


@claim("mine/C2", "bound", "page 2", hypotheses={"n > 1": lambda case: case["n"] > 1}, negative_control={"most": 0.0})
def bounded(size, most=1.0, n=2):
    """1/n is at most 1."""
    yield at_most(1 / n, most, n=n)


class Line(Experiment):
    """A line through the origin."""

    id = "mine/line"
    place = "page 3"
    title = "A line"
    quick = {"n": 2}
    minutes = {"quick": 0.01, "paper": 0.02}
    n: int = 5

    def run(self, folder, progress, workers):
        return xarray.Dataset({"y": ("x", [float(scale * k) for k in range(self.n)])})

    def draw(self, data):
        figure, axes = plt.subplots()
        axes.plot(data["y"])
        return figure

    def accept(self, data):
        return {"it starts at zero": at_most(abs(float(data["y"][0])), 0.0)}


class Other(Line):
    """Another line."""

    id = "mine/other"
    title = "Another line"
'''


@pytest.fixture(autouse=True)
def _forget(monkeypatch):
    """What a test registers is gone after it."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    claims.registry(), experiments()
    with papers.apart():
        yield
    sys.modules.pop("helper", None)


@pytest.fixture
def file(tmp_path):
    (tmp_path / "helper.py").write_text("scale = 2\n")
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    return path


def test_a_file_is_registered_once_and_behaves_like_the_papers(file):
    assert claims.load(str(file)) == ["mine"]
    assert claims.load(str(file)) == ["mine"]
    assert list(claims.subjects()) == [*claims.PAPERS, "mine"]
    assert list(claims.registry())[-2:] == ["mine/C1", "mine/C2"]
    assert list(experiments())[-2:] == ["mine/line", "mine/other"]
    for entry in claims.find([], paper="mine"):
        assert entry.verify().holds
        assert not entry.verify(**entry.negative_control).holds


def test_commands_and_the_page(file, typed, tmp_path, monkeypatch):
    monkeypatch.setattr(reproduction.work, "cores", lambda: 1)  # of the pool is the next test
    code, out, _ = typed("verify", "--from", "mine.py", "--json", "--out", "r")
    assert code == 0
    assert [c["id"] for c in json.loads(out)["claims"]] == ["mine/C1", "mine/C2"]
    code, out, _ = typed("reproduce", "--from", "mine.py", "--out", "r", "--json")
    told = json.loads(out)
    assert code == 0
    assert [e["id"] for e in told["experiments"]] == ["mine/line", "mine/other"]
    assert told["claims"] == {"size": "quick", "checked": 2, "failed": 0}
    page = " ".join((tmp_path / "r" / "index.html").read_text().split())
    assert "My own conjectures" in page
    assert "linnet reproduce mine/line --from mine.py --size quick" in page
    assert "2 claims and errata verified at quick size, 0 not as stated" in page
    assert "mine/C1" in typed("list", "--from", "mine.py")[1]
    listed = json.loads(typed("list", "mine/C2", "--from", "mine.py", "--json")[1])
    assert {kind: [e["id"] for e in listed[kind]] for kind in listed} == {
        "papers": ["mine"], "claims": ["mine/C2"], "errata": [], "experiments": []
    }  # fmt: skip


@pytest.mark.slow
def test_processes_of_the_pool_load_the_file_too(file, tmp_path, monkeypatch):
    claims.load(str(file))
    monkeypatch.setattr(reproduction.work, "cores", lambda: 2)
    planned = reproduction.plan([], "quick", tmp_path / "r", among=["mine"])
    done = list(planned.done())
    made = {one.result.id: one.result for one in done if isinstance(one, reproduction.Made)}
    assert set(made) == {"mine/line", "mine/other"}
    assert all(result.device.startswith("one core of") for result in made.values())
    assert planned.verdicts().failed == 0


def test_changed_code_is_run_again(file, tmp_path, monkeypatch):
    monkeypatch.setattr(reproduction.work, "cores", lambda: 1)

    def work():
        with papers.apart():
            claims.load(str(file))
            planned = reproduction.plan(["mine/line"], "quick", tmp_path / "r", claims=True, among=["mine"])
            return len(planned.entries), [one.kept for one in planned.done() if isinstance(one, reproduction.Made)]

    assert work() == (2, [False])
    assert work() == (0, [True])
    sys.modules.pop("helper")
    (tmp_path / "helper.py").write_text("scale = 3.5\n")
    assert work() == (2, [False])


def test_results_of_a_file_that_is_not_given_are_kept_and_named(file, typed, tmp_path):
    with papers.apart():
        typed("verify", "--from", "mine.py", "--out", "r")
    code, _, err = typed("verify", "mixed/C17", "--out", "r")
    assert code == 0, err
    kept = json.loads((tmp_path / "r" / "claims.json").read_text())
    assert [c["id"] for c in kept["claims"]] == ["mine/C1", "mine/C2", "mixed/C17"]
    page = " ".join(report.write(tmp_path / "r").read_text().split())
    assert "<code>mine/C1</code>, <code>mine/C2</code>" in page
    assert "1 claims and errata verified" in page


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("def doubled(size", "def doubled(size:", "mine.py, line 14: "),
        ("from helper import scale", "import no_such_thing", "mine.py, line 8: ModuleNotFoundError: No module"),
        ('subject("mine"', 'subject("mixed"', "mine.py, line 10: name = 'mixed' is not allowed: there is a subject"),
        ('subject("mine"', 'subject("My work"', "line 10: name = 'My work' is not allowed: a subject's name must be"),
        ('"mine/C1"', '"mixed/C99"', "line 13: 'mixed/C99' is not allowed: mixed is declared elsewhere"),
        ('"mine/C1"', '"yours/C1"', "line 13: 'yours/C1' is no id: use <subject>/C<number> with one of the subjects"),
        ('"mine/C1"', '"mine/C2"', "line 19: mine/C2 is registered twice."),
        ('"exact"', '"true"', "line 13: mine/C1: kind = 'true' must be one of"),
        ('    title = "A line"\n', "", "line 25: mine/line lacks title"),
    ],
)
def test_a_broken_file_is_one_sentence_and_leaves_nothing(file, typed, old, new, words):
    file.write_text(FILE.replace(old, new, 1))
    before = claims.registry()
    code, out, err = typed("verify", "--from", "mine.py")
    assert (code, out) == (2, "")
    assert words in err
    assert "Traceback" not in err
    assert claims.registry() == before
    assert "mine" not in claims.subjects()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("1 / n, most", "1 / (n - n), most", "mine/C2: mine.py, line 22: ZeroDivisionError: "),
        ("    yield at_most(1 / n, most, n=n)", "    yield from ()", "mine/C2 found nothing"),
        ("n=2):", "n=1):", "mine/C2 was checked outside its hypothesis 'n > 1': {'n': 1}"),
        ("most, n=n)", "most)", "mine/C2: mine.py, line 19: KeyError"),
    ],
)
def test_a_check_that_breaks_is_one_sentence(file, typed, old, new, words):
    file.write_text(FILE.replace(old, new, 1))
    code, _, err = typed("verify", "mine/C2", "--from", "mine.py")
    assert code == 2
    assert words in err
    code, _, err = typed("reproduce", "mine/line", "--from", "mine.py", "--set", "n=-1", "--out", "r")
    assert code == 2
    assert "mine/line: mine.py, line 44: IndexError" in err


def test_what_is_no_file_and_no_module(typed, tmp_path):
    (tmp_path / "empty.py").write_text("")
    for source, words in (
        ("nowhere.py", "from = 'nowhere.py' is not allowed: there is no such file."),
        ("no.such", "from = 'no.such' is not allowed: it is neither a Python file nor an installed module."),
        ("empty.py", "from = 'empty.py' is not allowed: it registers no claim and no experiment."),
    ):
        code, _, err = typed("list", "--from", source)
        assert code == 2
        assert words in err


def test_parameters_of_ones_own_checks(file, typed):
    told = json.loads(typed("show", "mine/C2", "--from", "mine.py", "--set", "n=4", "--json")[1])
    assert told["parameters"] == {"n": 4}
    assert told["verdict"]["findings"][0]["measured"] == 0.25
    code, _, err = typed("verify", "mine/C2", "--from", "mine.py", "--set", "n=many")
    assert code == 2
    assert "mine/C2: n = 'many' is not allowed" in err


@pytest.mark.slow
def test_installed_packages_bring_theirs(file, tmp_path, monkeypatch):
    package = tmp_path / "site" / "conjectures"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "stated.py").write_text(FILE.replace("from helper import scale", "scale = 2"))
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path / "site")!r})
from importlib.metadata import EntryPoint
from linnet import papers
from linnet.claims import registry, subjects
from linnet.experiments import experiments
papers.entry_points = lambda group: [EntryPoint("mine", "conjectures.stated", group)]
assert "mine/line" in experiments()
assert registry()["mine/C1"].verify().holds
assert not papers.sources()
assert papers.typed("mine") is None
assert len(papers.fingerprint("mine")) == 16
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    monkeypatch.setattr(papers, "entry_points", lambda group: [EntryPoint("bad", "no_such_package.stated", group)])
    papers.installed.cache_clear()
    with pytest.raises(ln.InputError, match=r"the installed package no_such_package.stated cannot be used: from = "):
        claims.registry()
    papers.installed.cache_clear()
