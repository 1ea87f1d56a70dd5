"""`linnet reproduce --seeds`: what must hold of a figure over several seeds."""

import json
import math
import statistics

import numpy as np
import pytest

from linnet import claims, papers, reproduction
from linnet.claims import at_least, at_most, within
from linnet.experiments import experiments
from linnet.reproduction import Requirement, Spread
from linnet.reproduction.seeds import _spreads

COMMAND = ("reproduce",)
FILE = """
import numpy as np
import xarray
from linnet.claims import at_most, subject, within
from linnet.experiments import Experiment

subject("drawn", "What is drawn", authors="Me")


class Mean(Experiment):
    '''The mean of nine normal numbers.'''

    id = "drawn/mean"
    place = "page 1"
    title = "A mean"
    quick = {"n": 9}
    minutes = {"quick": 0.01, "paper": 0.02}
    n: int = 100
    most: float = 0.3

    def run(self, folder, progress, workers):
        drawn = np.random.default_rng(self.seed).normal(size=self.n)
        return xarray.Dataset({"y": ("x", drawn)})

    def accept(self, data):
        mean = float(np.mean(data["y"]))
        return {
            "the mean is small": at_most(abs(mean), self.most),
            "it is drawn": within(float(data["y"].size), self.n - 0.5, self.n + 0.5),
        }
"""


@pytest.fixture(autouse=True)
def _forget():
    """What a test registers is gone after it."""
    claims.registry(), experiments()
    with papers.apart():
        yield


def test_what_is_left_in_standard_deviations():
    found = [
        {"a": at_most(value, 1.0), "b": at_least(2.0, 1.0), "c": within(value, 0.0, 2.0)} for value in (0.5, 0.9, 1.2)
    ]
    a, b, c = _spreads("x/y", found)
    left = [0.5, 0.1, -0.2]
    assert (a.failed, b.failed, c.failed) == (1, 0, 0)
    assert a.margin == pytest.approx(statistics.fmean(left) / statistics.stdev(left))
    assert b.margin == math.inf  # it is the same with every seed
    sides = [0.5, 0.9, 0.8]
    assert c.margin == pytest.approx(statistics.fmean(sides) / statistics.stdev(sides))
    assert math.isnan(Spread("x/y", "one", (0.0,), (1.0,), (0.5,)).margin)
    lost = Spread("x/y", "none", (0.0, 0.0), (1.0, 1.0), (0.5, math.nan))
    assert lost.failed == 1
    assert math.isnan(lost.margin)


def test_positive_lower_bounds_are_compared_by_factors():
    values = (4.0, 8.0, 32.0)
    left = [math.log(value / 2) for value in values]
    (low,) = _spreads("x/y", [{"a": at_least(value, 2.0)} for value in values])
    assert low.margin == pytest.approx(statistics.fmean(left) / statistics.stdev(left))
    (both,) = _spreads("x/y", [{"a": within(value, 2.0, 1e9)} for value in values])
    assert both.margin == pytest.approx(low.margin)


def test_bounds_that_are_derived_are_never_close():
    def spread(band):
        return Spread("x/y", "a", (0.0,) * 3, (1.0,) * 3, (0.4, 0.1, 0.9), band)

    assert spread("").margin < 3
    assert (spread("").close, spread(claims.THREE).close, spread("derived: a law").close) == (True, True, False)
    (found,) = _spreads("x/y", [{"a": at_most(0.0, 1.0, band="derived: a law")}] * 2)
    assert found.band == "derived: a law"


def test_a_table_over_seeds_and_its_file(typed, tmp_path, monkeypatch):
    monkeypatch.setattr(reproduction.seeds, "cores", lambda: 1)
    (tmp_path / "drawn.py").write_text(FILE)
    command = ("drawn/mean", "--from", "drawn.py", "--seeds", 6, "--out", "r", "--set", "seed=3")
    code, out, _ = typed(*command, "--json")
    told = json.loads(out)
    means = [abs(float(np.mean(np.random.default_rng(seed).normal(size=9)))) for seed in range(3, 9)]
    mean, drawn = told["requirements"]
    assert mean["measured"] == pytest.approx(means)
    assert (mean["failed"], drawn["failed"]) == (sum(one > 0.3 for one in means), 0)
    assert 0 < mean["failed"] < 6
    assert drawn["margin"] is None  # infinite
    assert (code, told["failed"], told["close"]) == (1, 1, 0)
    kept = json.loads((tmp_path / "r" / "seeds.json").read_text())
    assert kept["requirements"] == told["requirements"]
    assert (kept["seeds"], kept["enough"]) == (6, 3.0)
    assert sorted(path.name for path in (tmp_path / "r" / "seeds").iterdir()) == list("345678")
    code, out, _ = typed(*command, "--set", "most=100", columns=160)
    assert code == 0
    assert "2 requirements of 1 experiments with 6 seeds: 0 fail with a seed or more, 0 of the others" in out
    row = next(line for line in out.splitlines() if "the mean is small" in line)
    assert row.split()[:2] == ["holds", "0/6"]
    assert "<= 100" in row


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--seeds", 0), "seeds = 0 is not allowed: seeds must be a whole number of at least 2."),
        (("--seeds", 3, "--claims"), "claims = True is not allowed with --seeds"),
        (("--seeds", 3, "--cluster", "local"), "cluster = 'local' is not allowed with --seeds"),
        (("--seeds", 3, "--set", f"seed={2**63 - 2}"), "seeds = 3 is not allowed: the seeds that follow"),
    ],
)
def test_seeds_that_are_refused(options, words, typed):
    code, out, err = typed("stability/fig23", *options)
    assert (code, out) == (2, "")
    assert words in err


def test_a_requirement_tells_how_its_bound_was_set():
    assert Requirement.of("a", at_most(1.0, 2.0, band=claims.THREE)).text == f"at most 2; {claims.THREE}"
    assert Requirement.of("a", within(1.0, 0.0, 2.0, band="")).text == "0 to 2"
