"""Sizes are estimated before anything is allocated; functions of users are refused or named in one sentence."""

import functools
import re
from pathlib import Path

import jax
import numpy as np
import pytest

import linnet as ln
from linnet import _check, sweep

KEY = jax.random.key(0)
PROBLEM, STATE = ln.factorization(np.eye(3)), ln.Weights([0.1 * np.eye(3)] * 2)
LONG = np.zeros((1, 10**6))
WIDE = ln.factorization(LONG)
GRID = """
[axes]
a = { start = 0.0, stop = 1.0, count = 1000000 }
b = { start = 0.0, stop = 1.0, count = 1000000 }
[problem]
kind = "factorization"
target = [[1.0]]
[init]
kind = "i_gamma"
gamma = 0.1
[optimizer]
kind = "SGD"
lr = 0.1
[run]
steps = 5
[store]
loss = "loss at end"
"""


def run(**more):
    return ln.simulate(PROBLEM, STATE, more.pop("optimizer", ln.optim.SGD(0.1)), **more)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: ln.low_rank_recovery(KEY, 200_000, 5), "d = 200000"),
        (lambda: ln.low_rank_recovery(KEY, (10**12, 3), 2), r"d = \(1000000000000, 3\)"),
        (lambda: ln.classification(LONG, [0], classes=10**12), "classes = 1000000000000"),
        (lambda: ln.problems.gaussian_samples(KEY, 10**6, 10**7), "samples = 1000000"),
        (lambda: ln.init.gaussian(KEY, PROBLEM, [10**7, 10**7], 1.0), r"width = \[10000000, 10000000\]"),
        (lambda: ln.init.gaussian(KEY, WIDE, 10**9, 1.0), "width = 1000000000"),
        (lambda: ln.init.readout(KEY, WIDE, [10**9], sigma0=1.0, v0=1.0), r"width = \[1000000000\]"),
        (lambda: ln.init.readout(KEY, WIDE, 10**9, sigma0=1.0, v0=1.0), "width = 1000000000"),
        (lambda: ln.init.i_gamma(WIDE, 0.1), "width = 1000000"),
        (lambda: ln.init.i_gamma(PROBLEM, 0.1, width=10**12, key=KEY), "width = 1000000000000"),
        (lambda: ln.init.propagator(WIDE), "d_in"),
        (lambda: ln.init.balanced(np.eye(3), [10**6, 10**6]), "width"),
        (lambda: ln.init.critical(PROBLEM, [10**6, 10**6], [1]), "width"),
        (lambda: ln.init.one_zero(PROBLEM, 0.1, 10**12), "depth = 1000000000000"),
        (lambda: ln.init.mixed_manifold(LONG, 1.0), r"matrix = an array of shape \(1, 1000000\)"),
        (lambda: ln.init.two_c_balanced(LONG, 1.0), "matrix"),
        (lambda: run(steps=10**12, record=ln.record.every(1)), "interval = 1.0"),
        (lambda: run(steps=10**12, record=ln.record.logarithmic(10**12)), "count = 1000000000000"),
        (lambda: run(optimizer=ln.optim.GradientFlow(), time=1.0, record=ln.record.linear(10**12)), "count"),
        (lambda: ln.maps.orbits(lambda x, m: m * x, 0.3, [2.0, 3.0], skip=1, keep=10**12), "keep"),
        (lambda: ln.prediction.phase(d=10**9, gamma_w=1.0, gamma_sigma2=-1.0, rank=10**9), "rank"),
        (lambda: sweep.run(sweep.parse(GRID), Path("none.zarr")), "axes"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_size(ask, words, monkeypatch):
    monkeypatch.setattr(_check, "memory", lambda: 2**34)
    with pytest.raises(
        ln.InputError, match=rf"^{words}.* would take about [\d.,e+]+ GiB, and there are 16 GiB of memory.$"
    ):
        ask()


def test_records_and_states_count(monkeypatch):
    monkeypatch.setattr(_check, "memory", lambda: 10**5)
    assert run(steps=1000, record=ln.record.every(1))["loss"].shape == (1001,)
    with pytest.raises(ln.InputError, match="1,001 records of 152 bytes with their states"):
        run(steps=1000, record=ln.record.every(1), checkpoint="states")
    with pytest.raises(ln.InputError, match="1,001 records of 80 bytes would"):
        run(steps=1000, record=ln.record.every(1), observe=["loss", "matrix"])


def test_the_memory_of_this_machine():
    assert 2**28 < _check.memory() < 2**45


def test_numpy_on_what_is_traced_is_one_sentence():
    for wrong in (lambda s, p: np.linalg.norm(s.matrix), lambda s, p: float(s.matrix[0, 0]), _branches):
        with pytest.raises(ln.InputError, match=r"use jax\.numpy in it instead of numpy") as error:
            run(steps=3, observe={"mine": wrong})
        assert str(error.value).startswith("the observable 'mine' ")
        assert "\n" not in str(error.value)
    with pytest.raises(ln.InputError, match=r"^stop needs numbers"):
        run(steps=3, stop=lambda s, p: bool(s.matrix[0, 0] > 1))


def _branches(state, problem):
    return 1.0 if state.matrix[0, 0] > 0 else 0.0


def corner(state, problem):
    return state.matrix[0, 0]


def test_functions_have_names():
    looks = [lambda s, p: s.matrix[0, 1], corner, lambda s, p: s.matrix[1, 1], functools.partial(corner), "loss"]
    found = run(steps=3, observe=looks)
    assert set(found.values) == {"lambda", "corner", "lambda_2", "corner_2", "loss"}
    np.testing.assert_array_equal(found["lambda_2"], found["corner"])
    assert set(run(steps=3, observe=lambda s, p: s.matrix).values) == {"lambda"}
    assert not re.search("0x", repr(found))
