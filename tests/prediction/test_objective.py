"""The loss of a deep network in NumPy and the solvers of its flow: Hessians, and linear systems of few directions."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csc_array

from linnet.prediction.theories.network import following
from linnet.prediction.theories.network.implicit import GaussNewtonBDF, LowRankPlusScalar
from linnet.prediction.theories.network.objective import Objective
from linnet.theory.optimizers import ModifiedEquation


def random_objective(dims, seed=0, decay=0.0, condition=1.0, scale=1.0, fitted=False):
    rng = np.random.default_rng(seed)
    layers = [scale * rng.normal(size=(b, a)) / np.sqrt(a) for a, b in pairwise(dims)]
    scales = np.geomspace(1, 1 / np.sqrt(condition), dims[0])
    limit = rng.normal(size=(dims[-1], dims[0]))
    if fitted:
        limit = np.linalg.multi_dot([*layers[::-1], np.eye(dims[0])])
    return Objective(SimpleNamespace(scales=scales, limit=limit), layers, [False] * len(dims[1:-1]), decay)


widths, seeds = st.lists(st.integers(1, 5), min_size=3, max_size=6), st.integers(0, 1000)


@given(widths, seeds, st.sampled_from([0.0, 0.3]))
def test_the_hessian_is_the_derivative_of_the_gradient(dims, seed, decay):
    objective = random_objective(dims, seed, decay, condition=10.0)
    found = objective.hessian(objective.initial)
    np.testing.assert_allclose(
        found, objective.hessian_product(objective.initial, np.eye(objective.initial.size)), atol=1e-12 * np.max(found)
    )
    step = np.random.default_rng(seed).normal(size=objective.initial.size)
    gradients = [objective.gradient(objective.initial + sign * 1e-5 * step) for sign in (1, -1)]
    np.testing.assert_allclose((gradients[0] - gradients[1]) / 2e-5, found @ step, rtol=1e-6, atol=1e-6 * np.max(found))


@given(widths, seeds)
def test_the_gauss_newton_matrix_is_the_hessian_where_all_is_fitted(dims, seed):
    objective = random_objective(dims, seed, condition=100.0, fitted=True)
    values, axes = objective.gauss_newton(objective.initial)
    assert values.size <= objective.limit.size
    hessian = objective.hessian(objective.initial)
    top = np.max(np.abs(hessian))
    np.testing.assert_allclose(axes * values @ axes.T, hessian, atol=1e-10 * top)
    few = values > 1e-6 * values[-1]  # rounding rotates the others
    np.testing.assert_allclose((axes.T @ axes)[np.ix_(few, few)], np.eye(few.sum()), atol=1e-6)


def test_systems_of_few_directions_are_solved():
    rng = np.random.default_rng(0)
    axes = np.linalg.qr(rng.normal(size=(30, 4)))[0]
    system = 1.0 - 0.7 * LowRankPlusScalar(axes, -np.geomspace(1e-3, 1e6, 4), -0.2)
    matrix = 1.14 * np.eye(30) + axes * (system.along - 1.14) @ axes.T
    right = rng.normal(size=30)
    np.testing.assert_allclose(matrix @ system.solve(right), right, rtol=1e-9)


def test_scipys_solver_has_the_attributes_that_are_set():
    """`GaussNewtonBDF` replaces them after construction, and SciPy's own steps call what was set."""
    solver = scipy.integrate.BDF(lambda _, y: -y, 0.0, np.ones(3), 1.0, jac=csc_array((3, 3)))
    for name in ("I", "J", "jac", "lu", "solve_lu", "njev", "nlu"):
        assert hasattr(solver, name), name
    calls = []
    objective = random_objective((3, 4, 2))
    mine = GaussNewtonBDF(
        lambda _, moved: -objective.gradient(objective.initial + moved),
        objective,
        ModifiedEquation(),
        objective.initial,
        0.0,
        t_bound=10.0,
    )
    assert set(vars(mine)) >= {"I", "J", "jac", "lu", "solve_lu"}
    lu, solve, jac = mine.lu, mine.solve_lu, mine.jac
    mine.lu = lambda matrix: (calls.append("lu"), lu(matrix))[1]
    mine.solve_lu = lambda matrix, right: (calls.append("solve_lu"), solve(matrix, right))[1]
    mine.jac = lambda t, y: (calls.append("jac"), jac(t, y))[1]
    while mine.status == "running":
        mine.step()
    assert mine.status == "finished"
    assert set(calls) == {"lu", "solve_lu", "jac"}
    assert isinstance(mine.J, LowRankPlusScalar)


@pytest.mark.parametrize("decay", [0.0, 0.02])
@pytest.mark.parametrize(
    "equation",
    [ModifiedEquation(), ModifiedEquation(0.01, 0.05), ModifiedEquation(0.01, 0.005, -0.1)],
    ids=["flow", "bend", "shift"],
)
def test_the_gauss_newton_matrix_leads_where_the_whole_hessian_does(monkeypatch, equation, decay):
    """The same flow where the rest of the Hessian matters at initialization, with about as many gradients."""
    objective = random_objective((3, 12, 12, 2), decay=decay, condition=1e4, scale=0.5)
    far = 40.0 / equation.rate

    def solved():
        solver = following.make_solver(objective, equation, objective.initial, 0.0, 1.0)
        solver.t_bound = far
        while solver.status == "running":
            solver.step()
        return type(solver), solver

    kind, whole = solved()
    assert kind is scipy.integrate.BDF
    monkeypatch.setattr(following, "STIFF", 0)
    kind, few = solved()
    assert kind is GaussNewtonBDF
    monkeypatch.setattr(following, "_FEW", 0)
    kind, explicit = solved()
    assert kind is scipy.integrate.DOP853
    for other in (few, explicit):
        np.testing.assert_allclose(other.y, whole.y, atol=1e-6 * np.max(np.abs(whole.y)))
    assert few.nfev < 2 * whole.nfev
