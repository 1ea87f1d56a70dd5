"""A deep network in NumPy and the solvers of its flow: curvatures, and systems of equations with few directions."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from linnet.predict.network import path
from linnet.predict.network.chain import Chain
from linnet.predict.network.implicit import FewDirections, Turn
from linnet.predict.optimiser import Pace


def chained(dims, seed=0, decay=0.0, condition=1.0, scale=1.0, fitted=False):
    rng = np.random.default_rng(seed)
    layers = [scale * rng.normal(size=(b, a)) / np.sqrt(a) for a, b in pairwise(dims)]
    scales = np.geomspace(1, 1 / np.sqrt(condition), dims[0])
    limit = rng.normal(size=(dims[-1], dims[0]))
    if fitted:
        limit = np.linalg.multi_dot([*layers[::-1], np.eye(dims[0])])
    return Chain(SimpleNamespace(scales=scales, limit=limit), layers, dims[1:-1], decay)


widths, seeds = st.lists(st.integers(1, 5), min_size=3, max_size=6), st.integers(0, 1000)


@given(widths, seeds, st.sampled_from([0.0, 0.3]))
def test_the_whole_hessian_is_what_the_slope_changes_by(dims, seed, decay):
    chain = chained(dims, seed, decay, condition=10.0)
    found = chain.hessian(chain.start)
    np.testing.assert_allclose(found, chain.curve(chain.start, np.eye(chain.start.size)), atol=1e-12 * np.max(found))
    step = np.random.default_rng(seed).normal(size=chain.start.size)
    slopes = [chain.slope(chain.start + sign * 1e-5 * step) for sign in (1, -1)]
    np.testing.assert_allclose((slopes[0] - slopes[1]) / 2e-5, found @ step, rtol=1e-6, atol=1e-6 * np.max(found))


@given(widths, seeds)
def test_the_curvature_of_the_fit_is_the_hessian_where_all_is_fitted(dims, seed):
    chain = chained(dims, seed, condition=100.0, fitted=True)
    values, axes = chain.fit_curvature(chain.start)
    assert values.size <= chain.limit.size
    hessian = chain.hessian(chain.start)
    top = np.max(np.abs(hessian))
    np.testing.assert_allclose(axes * values @ axes.T, hessian, atol=1e-10 * top)
    few = values > 1e-6 * values[-1]  # rounding turns the others
    np.testing.assert_allclose((axes.T @ axes)[np.ix_(few, few)], np.eye(few.sum()), atol=1e-6)


def test_systems_of_few_directions_are_solved():
    rng = np.random.default_rng(0)
    axes = np.linalg.qr(rng.normal(size=(30, 4)))[0]
    turn = 1.0 - 0.7 * Turn(axes, -np.geomspace(1e-3, 1e6, 4), -0.2)
    matrix = 1.14 * np.eye(30) + axes * (turn.along - 1.14) @ axes.T
    right = rng.normal(size=30)
    np.testing.assert_allclose(matrix @ turn.solved(right), right, rtol=1e-9)


@pytest.mark.parametrize("decay", [0.0, 0.02])
@pytest.mark.parametrize("pace", [Pace(), Pace(0.01, 0.05), Pace(0.01, 0.005, -0.1)], ids=["flow", "bent", "shifted"])
def test_few_directions_lead_where_the_whole_hessian_does(monkeypatch, pace, decay):
    """The same flow from a start whose rest of the Hessian matters, at about the same price."""
    chain = chained((3, 12, 12, 2), decay=decay, condition=1e4, scale=0.5)
    far = 40.0 / pace.rate

    def solved():
        solver = path.solving(chain, pace, chain.start, 0.0, 1.0)
        solver.t_bound = far
        while solver.status == "running":
            solver.step()
        return type(solver), solver

    kind, whole = solved()
    assert kind is scipy.integrate.BDF
    monkeypatch.setattr(path, "STIFF", 0)
    kind, few = solved()
    assert kind is FewDirections
    monkeypatch.setattr(path, "_FEW", 0)
    kind, explicit = solved()
    assert kind is scipy.integrate.DOP853
    for other in (few, explicit):
        np.testing.assert_allclose(other.y, whole.y, atol=1e-6 * np.max(np.abs(whole.y)))
    assert few.nfev < 2 * whole.nfev
