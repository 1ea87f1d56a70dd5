"""Every number of a landscape against weights that are built, and against what is done to them."""

import jax
import numpy as np
import pytest

import linnet as ln
from linnet import prediction
from linnet._check import InputError
from linnet.observe import Kind
from linnet.prediction.assumption import NotApplicable
from linnet.prediction.theories import landscape


def white():
    return prediction.whitened([1.0, 3.0, 2.0], inputs=4, samples=10)


def colored(n=8, average=False):
    rng = np.random.default_rng(4)
    x = rng.normal(size=(n, 4)) * [2, 1, 1, 0.5]
    return ln.regression(x, rng.normal(size=(n, 3)), average=average)


def cost(state, problem):
    """Of layers, by their product."""
    return float(problem.cost(np.linalg.multi_dot([np.asarray(w) for w in state.layers[::-1]])))


CASES = {
    "white, two layers": (white, (2,)),
    "white, three layers": (white, (2, 5)),
    "colored": (colored, (3, 2)),
    "mean": (lambda: colored(average=True), (2,)),
    "fewer samples than inputs": (lambda: colored(n=3), (4,)),
}


@pytest.mark.parametrize("case", CASES)
def test_every_number_is_that_of_weights(case):
    """Loss, excess, label and eigenvalues at built points: gradients vanish there, Hessians are dense."""
    make, hidden = CASES[case]
    problem = make()
    found = prediction.landscape(problem, hidden)
    assert found.widths == (4, *hidden, 3)
    assert found.depth == len(hidden) + 1
    assert found.bottleneck == min(3, *hidden)
    assert found.samples == problem.samples
    assert found.normalization == ("mean" if case == "mean" else "sum")
    assert found.whitened == case.startswith("white")
    a = np.asarray(problem.target)
    values = np.linalg.svd(a if found.whitened else a @ np.asarray(problem.root).T, compute_uv=False)
    np.testing.assert_allclose(found.spectrum, values, atol=1e-12)
    rank = 3
    counted = sum(1 for k in range(2**rank) if bin(k).count("1") <= found.bottleneck)
    assert found.critical_sets == found.shown == len(found.points) == counted
    least = min(cost(ln.init.critical(problem, hidden, p.kept), problem) for p in found.points)
    assert [p.loss for p in found.points] == sorted(p.loss for p in found.points)
    for point in found.points:
        state = ln.init.critical(problem, hidden, point.kept)
        h = np.asarray(ln.observe.hessian_matrix(state, problem))
        eigenvalues = np.linalg.eigvalsh(h)
        unit = np.max(np.abs(eigenvalues))
        assert point.loss == pytest.approx(cost(state, problem), rel=1e-12)
        assert point.excess == pytest.approx(cost(state, problem) - least, abs=1e-12 * found.points[-1].loss)
        assert point.smallest_eigenvalue == pytest.approx(eigenvalues[0], abs=1e-12 * unit)
        assert point.negative_eigenvalues == np.sum(eigenvalues < -1e-10 * unit)
        kind = Kind.STRICT_SADDLE if point.negative_eigenvalues else Kind.DEGENERATE_SOSP
        assert point.label is (Kind.GLOBAL_MIN if point.excess < 1e-12 else kind)
        assert float(ln.observe.classify(state, problem).gradient) <= 1e-10 * unit


@pytest.mark.parametrize("case", ["white, three layers", "colored", "mean"])
def test_measured_points_are_built(case):
    make, hidden = CASES[case]
    problem, seen = make(), []
    predicted = prediction.landscape(problem, hidden)
    measured = predicted.measure(progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (predicted.shown, predicted.shown)
    assert measured.different == ()
    assert measured.largest_gap_in_eigenvalue < 1e-13
    for said, found in zip(predicted.points, measured.points, strict=True):
        assert (found.kept, found.label) == (said.kept, said.label)
        assert found.negative_eigenvalues == said.negative_eigenvalues
        for name in ("loss", "excess", "smallest_eigenvalue"):
            assert getattr(found, name) == pytest.approx(getattr(said, name), rel=1e-11, abs=1e-11)
    assert measured.to_dict()["run"]["points"][0]["label"] == "global_min"
    assert f"as predicted at {predicted.shown} of {predicted.shown} points" in str(measured)


def test_a_measurement_can_disagree():
    """Weights of another problem are other points: the measurement takes nothing from the prediction."""
    other = prediction.landscape(prediction.whitened([2.0, 2.0, 2.0], inputs=4, samples=10), (2, 2))
    measured = prediction.landscape(white(), (2, 2)).compare(other.experiment.run(None))
    assert measured.different
    assert measured.largest_gap_in_eigenvalue > 0.01


def test_a_network_too_large_to_measure_is_one_sentence():
    wide = prediction.landscape([2.0, 1.0], (10**6,))
    assert [p.negative_eigenvalues for p in wide.points] == [0, 999_999, 1_000_000, 2_000_000]
    with pytest.raises(InputError, match=r"4,000,000 weights cannot be measured: whole Hessians are for at most 500\."):
        wide.measure()


def test_pictures_of_both():
    predicted = prediction.landscape(white(), (2, 2))
    axes = predicted.plot().axes[0]
    names = [text.get_text() for text in axes.texts]
    assert sorted(names) == sorted(["none", "1", "2", "3", "1 2", "1 3", "2 3"])
    for text, point in zip(axes.texts, predicted.points, strict=True):
        assert text.xy == (point.negative_eigenvalues, pytest.approx(point.loss))
    (rings,) = (line for line in predicted.measure().plot().axes[0].lines if line.get_label() == "built as weights")
    drawn = rings.get_xydata()
    np.testing.assert_allclose(drawn, [[p.negative_eigenvalues, p.loss] for p in predicted.points], rtol=1e-9)
    many = prediction.landscape([6, 5, 4, 3, 2, 1], (6,)).plot().axes[0]
    assert {text.get_text() for text in many.texts} == {"none", "1", "1 2", "1 2 3", "1-4", "1-5", "1-6"}


def test_what_it_is_from():
    source = prediction.landscape(white(), (2,))["points"].source
    assert source.assumptions[0].holds == "exactly"
    assert prediction.landscape(colored(), (2,))["points"].source.assumptions == ()
    known = set(ln.claims.registry())
    assert set(source.claims) <= known


def test_the_network_may_be_given_as_weights():
    """Only its widths matter; every triple with a network of two layers or more has a landscape."""
    problem = white()
    network = ln.Weights((np.ones((2, 4)), np.ones((5, 2)), np.ones((3, 5))))
    by_weights, by_widths = prediction.landscape(problem, network), prediction.landscape(problem, (2, 5))
    assert by_weights.to_dict() == by_widths.to_dict()
    target = ln.factorization(np.diag([3.0, 1.0]))
    found = landscape.for_triple(target, ln.init.balanced(target.target, (2,)), ln.optim.SGD(0.1))
    assert (found.widths, found.samples, found.whitened) == ((2, 2, 2), None, True)
    assert [point.loss for point in found.points] == pytest.approx([0, 0.5, 4.5, 5])
    with pytest.raises(InputError, match=r"network gives a matrix of shape \(3, 4\), and the problem needs"):
        prediction.landscape(target, network)
    wide = ln.init.gaussian(jax.random.key(0), problem, 500, 0.1)
    with pytest.raises(InputError, match="give the widths of its hidden layers"):
        prediction.landscape(problem, wide)
    for given in (
        (target, ln.networks.mlp(jax.random.key(0), np.eye(2), (3, 2))),
        ("no problem", network),
        (problem, wide),
    ):
        with pytest.raises(NotApplicable) as refused:
            landscape.for_triple(*given, ln.optim.SGD(0.1))
        assert refused.value.theory == "landscape"
        assert refused.value.assumption.holds == "not"


@pytest.mark.parametrize(
    ("hidden", "most", "words"),
    [
        ((), 64, "give at least one hidden width"),
        ("3", 64, "width = '3'"),
        (3, 64, "hidden = 3"),
        ((0,), 64, "width = 0"),
        ((2, 10**7), 64, "width = 10000000"),
        ((2,), 0, "most = 0"),
    ],
)
def test_mistakes_are_one_sentence(hidden, most, words):
    with pytest.raises(InputError, match=words):
        prediction.landscape([2.0, 1.0], hidden, most=most)


def test_directions_of_least_curvature_go_down():
    """What the smallest eigenvalue means: a step along its vector loses lambda/2 step^2."""
    problem = white()
    for point in prediction.landscape(problem, (2, 2)).points:
        if not point.negative_eigenvalues:
            continue
        state = ln.init.critical(problem, (2, 2), point.kept)
        flat, back = jax.flatten_util.ravel_pytree(state)
        vector = np.linalg.eigh(np.asarray(ln.observe.hessian_matrix(state, problem)))[1][:, 0]
        step = 1e-4
        change = cost(back(flat + step * vector), problem) + cost(back(flat - step * vector), problem) - 2 * point.loss
        assert change / step**2 == pytest.approx(point.smallest_eigenvalue, rel=1e-4)
