"""Critical points by mode sets: closed forms against dense Hessians, and enumeration against brute force."""

from itertools import combinations

import jax
import numpy as np
import pytest

import linnet as ln
from linnet.observe import hessian_matrix
from linnet.observe.landscape import _data, _Local
from linnet.theory import landscape


def white(rng, d_in, d_out, z, n, scale=1.0):
    """Whitened data with target singular values z."""
    u, v, q = (np.linalg.qr(rng.normal(size=(d, d)))[0] for d in (d_out, d_in, n))
    target = (u[:, : len(z)] * z) @ v[:, : len(z)].T
    x = np.sqrt(n) * q[:, :d_in]
    outside = q[:, d_in:] @ rng.normal(size=(n - d_in, d_out))  # labels that no network explains
    return ln.regression(x, x @ target.T + outside)


def dense(state, problem):
    """All Hessian eigenvalues, ascending."""
    return np.linalg.eigvalsh(_Local([np.asarray(w) for w in state.layers], _data(problem)).hessian())


SHAPES = [
    (4, 3, 3),
    (3, 2, 4),
    (3, 5, 3),
    (4, 2, 3, 3),
    (3, 4, 5, 4),
    (2, 3, 3, 2),
    (4, 3, 2, 4, 3),
    (1, 2, 3),
    (3, 1, 2, 1),
]


@pytest.mark.parametrize("widths", SHAPES, ids=str)
def test_the_spectrum_is_that_of_the_dense_hessian(widths):
    """The dense Hessian, every kept set, with repeated and missing modes and scales from 1e-4 to 1e3."""
    rng = np.random.default_rng(sum(widths))
    short, n = min(widths[0], widths[-1]), 6
    spectra = [np.sort(rng.uniform(0.2, 3, short))[::-1], np.array([2.0, 2.0, 2.0, 0.5])[:short], np.eye(1, short)[0]]
    for z, scale in zip(spectra, (1e-4, 1.0, 1e3), strict=True):
        z = z * scale
        problem = white(rng, widths[0], widths[-1], z, n)
        for k in range(min(*widths, np.count_nonzero(z)) + 1):
            for kept in combinations(range(1, np.count_nonzero(z) + 1), k):
                right = dense(ln.init.critical(problem, widths[1:-1], kept), problem)[::-1]
                found = landscape.spectrum(z, widths, kept, curvature=n)
                unit = max(np.max(np.abs(right)), 1e-300)
                assert np.max(np.abs(found.all() - right)) < 1e-10 * unit, (z, kept)
                assert np.all(np.diff(found.values) < 0)
                assert found.smallest == found.all()[-1]


def test_the_reference_is_automatic_differentiation():
    rng = np.random.default_rng(0)
    problem = white(rng, 3, 2, np.array([2.0, 1.0]), 5)
    state = ln.init.critical(problem, (4, 2), (2,))
    plain = np.linalg.eigvalsh(np.asarray(jax.jit(hessian_matrix)(state, problem)))
    assert np.allclose(dense(state, problem), plain, atol=1e-12)
    assert np.allclose(landscape.spectrum([2.0, 1.0], (3, 4, 2, 2), (2,), curvature=5).all()[::-1], plain, atol=1e-10)


def test_the_index_is_the_same_for_any_data_and_basis():
    """Negative eigenvalues counted at unbalanced points of colored data, n < d_in included."""
    rng = np.random.default_rng(3)
    seen = set()
    for n, widths in ((7, (4, 3, 3)), (2, (4, 3, 3)), (7, (4, 3, 2, 3)), (2, (4, 5, 3, 3))):
        x = rng.normal(size=(n, 4)) @ np.diag([3.0, 1.0, 0.5, 0.2])
        problem = ln.regression(x, rng.normal(size=(n, 3)))
        land = landscape.critical_points(problem, widths[1:-1])
        assert not land.whitened
        assert land.total == len(land.points)
        for point in land.points:
            even = ln.init.critical(problem, widths[1:-1], point.kept)
            assert np.isclose(point.loss, float(problem.cost(even.matrix)), rtol=1e-10)
            assert np.isclose(point.excess, point.loss - float(problem.optimum(min(widths)).cost), atol=1e-10)
            assert np.isnan(point.smallest)
            for state in (even, ln.init.gauge(jax.random.key(1), even, spread=10.0)):
                values = dense(state, problem)
                assert np.sum(values < -1e-10 * values[-1]) == point.negative, (n, widths, point)
                assert ln.observe.classify(state, problem).label == point.label
            seen.add((point.label, point.negative > 2))
    assert len(seen) == 4


def test_enumeration_by_loss_and_the_ladder():
    rng = np.random.default_rng(4)
    z = np.sort(rng.uniform(0.1, 2, 7))[::-1]
    gains = z**2
    sets = list(landscape._by_loss(gains, 3))
    every = [kept for k in range(4) for kept in combinations(range(1, 8), k)]
    assert sorted(sets) == sorted(every)
    sums = [sum(gains[i - 1] for i in kept) for kept in sets]
    assert np.all(np.diff(sums) < 1e-12)
    problem = ln.factorization(np.diag(z))
    land = landscape.critical_points(problem, (3, 9), most=10)
    assert (land.total, len(land.points), land.bottleneck) == (len(every), 10, 3)
    kept = [point.kept for point in land.points]
    ladder = [(1, 2, 3), (1, 2), (1,), ()]
    assert [k for k in kept if k in ladder] == ladder
    assert set(kept) - set(ladder) == set([k for k in sets if k not in ladder][:6])
    assert land.points[0].label == "global_min"
    assert {p.label for p in land.points if p.kept in ladder[1:]} == {"degenerate_sosp"}
    assert [p.loss for p in land.points] == sorted(p.loss for p in land.points)
    large = landscape.critical_points(ln.factorization(np.diag(np.arange(60.0, 0, -1))), (30,), most=40)
    assert large.total > 1e17
    assert len(large.points) == 40


def test_only_top_sets_are_minima_and_two_layers_have_no_degenerate_point():
    z = [3.0, 2.0, 2.0, 0.0]
    for widths in ((4, 2, 4), (4, 3, 4), (4, 2, 3, 4), (4, 4, 4, 4)):
        labels = {
            kept: landscape.label(z, widths, kept)
            for k in range(min(3, *widths) + 1)
            for kept in combinations((1, 2, 3), k)
        }
        minima = {kept for kept, label in labels.items() if label == "global_min"}
        assert minima == ({(1, 2), (1, 3)} if min(widths) == 2 else {(1, 2, 3)})  # equal modes stand for each other
        assert ("degenerate_sosp" in labels.values()) == (len(widths) > 3)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: landscape.spectrum([1.0], (2, 0, 2), ()), "width = 0"),
        (lambda: landscape.spectrum([1.0], (2, 2), ()), "two layers or more"),
        (lambda: landscape.spectrum([1.0, 2.0], (2, 2, 2), ()), "descending order"),
        (lambda: landscape.spectrum([2.0, -1.0], (2, 2, 2), ()), "not negative"),
        (lambda: landscape.spectrum([2.0, 1.0, 1.0], (3, 2, 2), ()), "at most min(d_in, d_out) = 2"),
        (lambda: landscape.spectrum([2.0, np.nan], (3, 2, 2), ()), "singular values"),
        (lambda: landscape.spectrum([2.0, 1.0], (2, 2, 2), (3,)), "from 1 to 2"),
        (lambda: landscape.spectrum([2.0, 0.0], (2, 2, 2), (2,)), "from 1 to 1"),
        (lambda: landscape.index([2.0, 1.0], (2, 2, 2), (1, 1)), "must not repeat"),
        (lambda: landscape.label([2.0, 1.0], (2, 1, 2), (1, 2)), "room for 1 modes"),
        (lambda: landscape.label([2.0, 1.0], (2, 1, 2), 1), "list of mode numbers"),
        (lambda: landscape.spectrum([2.0], (2, 1, 2), (), curvature=0.0), "curvature = 0"),
        (lambda: landscape.critical_points(ln.factorization(np.eye(2)), ()), "at least one hidden width"),
        (lambda: landscape.critical_points(ln.factorization(np.eye(2)), (0,)), "width = 0"),
        (
            lambda: landscape.critical_points(ln.problems.logistic(np.ones((2, 2))), (2,)),
            "factorization or a regression",
        ),
        (lambda: landscape.critical_points(ln.factorization(np.eye(2)), (2,), most=0), "most = 0"),
        (lambda: ln.regression(np.ones((2, 3)), np.ones((2, 1))).whiten(), "whitening needs rank X = d_in"),
        (lambda: ln.init.critical(ln.factorization(np.eye(2)), (0,), ()), "width = 0"),
        (lambda: ln.init.critical(ln.factorization(np.eye(2)), (1,), (1, 2)), "room for 1 modes"),
        (lambda: ln.init.critical(ln.factorization(np.diag([1.0, 0.0])), (2,), (2,)), "from 1 to 1"),
        (lambda: ln.init.critical(ln.problems.logistic(np.ones((2, 2))), (2,), ()), "Logistic is not allowed"),
        (lambda: ln.init.critical(ln.factorization(np.ones(2)), (2,), ()), "matrix problem"),
        (lambda: ln.init.gauge(jax.random.key(0), ln.Modes(np.ones((2, 2)))), "needs Weights"),
        (lambda: ln.init.gauge(jax.random.key(0), ln.Weights([np.eye(2)] * 2), spread=0.5), "spread = 0.5"),
    ],
)
def test_mistakes_are_one_sentence(wrong, words):
    with pytest.raises(ln.InputError) as error:
        wrong()
    assert words in str(error.value)


def test_gauge_keeps_the_matrix_and_loses_the_balance(key):
    problem = ln.factorization(np.diag([3.0, 2.0, 1.0]))
    even = ln.init.critical(problem, (4, 3), (1, 3), key=key)
    assert max(float(np.max(np.abs(d))) for d in even.imbalance()) < 1e-12
    skew = ln.init.gauge(key, even)
    assert np.allclose(skew.matrix, even.matrix, atol=1e-12)
    assert max(float(np.max(np.abs(d))) for d in skew.imbalance()) > 0.1
    single = ln.Weights([np.eye(2)])
    assert np.array_equal(ln.init.gauge(key, single).matrix, np.eye(2))
