"""`linnet verify --seeds`: what claims find over several seeds."""

import json

import numpy as np
import pytest

from linnet import claims, papers, reproduction
from linnet.experiments import experiments
from linnet.reproduction.seeds import APART

COMMAND = ("verify",)
CLAIM = """
import numpy as np
from linnet.claims import at_most, subject, within
from linnet.claims.claim import claim

subject("drawn", "What is drawn", authors="Me")


@claim("drawn/C1", "statistical", "page 1", negative_control={"shift": 9.0}, level=0.05, tests=1)
def mean(size, shift=0.0, seed: int = 3):
    '''The mean of nine normal numbers is zero.'''
    for draw in range(seed, seed + 2):
        drawn = np.random.default_rng(draw).normal(size=9) + shift
        yield within(3 * drawn.mean(), -1, 1, of="mean", draw=draw)
        yield at_most(abs(drawn).max(), 9.0, of="largest", draw=draw, at=int(abs(drawn).argmax()))


@claim("drawn/C2", "exact", "page 1", negative_control={"one": 2})
def one(size, one=1):
    '''One is one.'''
    yield within(one, 1, 1)
"""


@pytest.fixture(autouse=True)
def _forget():
    """What a test registers is gone after it."""
    claims.registry(), experiments()
    with papers.apart():
        yield


def test_claims_over_seeds(typed, tmp_path, monkeypatch):
    monkeypatch.setattr(reproduction.seeds, "cores", lambda: 1)
    (tmp_path / "drawn.py").write_text(CLAIM)
    code, out, _ = typed("--from", "drawn.py", "--seeds", 3, "--json")
    told = json.loads(out)
    largest, mean = sorted(told["findings"], key=lambda one: one["name"])
    assert (largest["name"], mean["name"]) == ("at most, of='largest'", "within, of='mean'")
    each = [[3 * np.random.default_rng(3 + APART * k + j).normal(size=9).mean() for j in (0, 1)] for k in range(3)]
    assert [abs(value) for value in mean["measured"]] == pytest.approx([max(map(abs, two)) for two in each])
    failed = sum(max(map(abs, two)) > 1 for two in each)
    assert (mean["failed"], largest["failed"], told["claims"]) == (failed, 0, 1)
    assert (code, told["failed"]) == (int(failed > 0), int(failed > 0))
    code, out, _ = typed("--from", "drawn.py", "--seeds", 2, "--kind", "exact", columns=160)
    assert code == 0
    assert "0 findings of 0 claims with 2 seeds: 0 fail with a seed or more. 1 that draw nothing, or are refuted" in out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--seeds", 0), "seeds = 0 is not allowed: seeds must be a whole number of at least 2."),
        (("--seeds", 3, "--out", "r"), "out = 'r' is not allowed with --seeds"),
        (("--seeds", 3, "--cluster", "local"), "cluster = 'local' is not allowed with --seeds"),
        (("--kind", "true"), "kind = 'true'"),
        (("--seeds", 3, "--set", f"seed={2**32 - 2}"), "seed = "),
    ],
)
def test_seeds_of_claims_that_are_refused(options, words, typed):
    code, out, err = typed("feature/C14", *options)
    assert (code, out) == (2, "")
    assert words in err
