"""Every number of a landscape against weights that are built, and against what is done to them."""

import jax
import numpy as np
import pytest

import linnet as ln
from linnet import predict
from linnet._check import InputError
from linnet.observe import Kind


def white():
    return predict.whitened([1.0, 3.0, 2.0], inputs=4, samples=10)


def coloured(n=8, average=False):
    rng = np.random.default_rng(4)
    x = rng.normal(size=(n, 4)) * [2, 1, 1, 0.5]
    return ln.regression(x, rng.normal(size=(n, 3)), average=average)


def cost(state, problem):
    """Of layers, by their product."""
    return float(problem.cost(np.linalg.multi_dot([np.asarray(w) for w in state.layers[::-1]])))


CASES = {
    "white, two layers": (white, (2,)),
    "white, three layers": (white, (2, 5)),
    "coloured": (coloured, (3, 2)),
    "mean": (lambda: coloured(average=True), (2,)),
    "fewer samples than inputs": (lambda: coloured(n=3), (4,)),
}


@pytest.mark.parametrize("case", CASES)
def test_every_number_is_that_of_weights(case):
    """Loss, excess, label and eigenvalues at built points: gradients vanish there, Hessians are dense."""
    make, hidden = CASES[case]
    problem = make()
    found = predict.landscape(problem, hidden)
    assert found.widths == (4, *hidden, 3)
    assert found.depth == len(hidden) + 1
    assert found.bottleneck == min(3, *hidden)
    assert found.samples == problem.samples
    assert found.normalisation == ("mean" if case == "mean" else "sum")
    assert found.whitened == case.startswith("white")
    a = np.asarray(problem.target)
    values = np.linalg.svd(a if found.whitened else a @ np.asarray(problem.root).T, compute_uv=False)
    np.testing.assert_allclose(found.spectrum, values, atol=1e-12)
    rank = 3
    counted = sum(1 for k in range(2**rank) if bin(k).count("1") <= found.bottleneck)
    assert found.critical_sets == found.shown == len(found.points) == counted
    least = min(cost(ln.critical(problem, hidden, p.kept), problem) for p in found.points)
    assert [p.loss for p in found.points] == sorted(p.loss for p in found.points)
    for point in found.points:
        state = ln.critical(problem, hidden, point.kept)
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


@pytest.mark.parametrize("case", ["white, three layers", "coloured", "mean"])
def test_measured_points_are_built(case):
    make, hidden = CASES[case]
    problem, seen = make(), []
    predicted = predict.landscape(problem, hidden)
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
    true = predict.landscape(white(), (2, 2))
    lied = predict.LandscapePrediction(
        **{**vars(true), "problem": predict.whitened([2.0, 2.0, 2.0], inputs=4, samples=10)}
    )
    measured = lied.measure()
    assert measured.different
    assert measured.largest_gap_in_eigenvalue > 0.01


def test_a_network_too_large_to_measure_is_one_sentence():
    wide = predict.landscape([2.0, 1.0], (10**6,))
    assert [p.negative_eigenvalues for p in wide.points] == [0, 999_999, 1_000_000, 2_000_000]
    with pytest.raises(InputError, match=r"4,000,000 weights cannot be measured: whole Hessians are for at most 500\."):
        wide.measure()


def test_pictures_of_both():
    predicted = predict.landscape(white(), (2, 2))
    axes = predicted.plot().axes[0]
    names = [text.get_text() for text in axes.texts]
    assert sorted(names) == sorted(["none", "1", "2", "3", "12", "13", "23"])
    for text, point in zip(axes.texts, predicted.points, strict=True):
        assert text.xy == (point.negative_eigenvalues, pytest.approx(point.loss))
    drawn = predicted.measure().plot().axes[0].collections[-1].get_offsets()
    np.testing.assert_allclose(drawn, [[p.negative_eigenvalues, p.loss] for p in predicted.points], rtol=1e-9)
    many = predict.landscape([6, 5, 4, 3, 2, 1], (6,)).plot().axes[0]
    assert {text.get_text() for text in many.texts} == {"none", "1", "12", "123", "1234", "12345", "1 ... 6"}


def test_what_it_is_from():
    sources = predict.landscape(white(), (2,)).theory
    assert sources[-1].needs[0].holds == "exactly"
    assert predict.landscape(coloured(), (2,)).theory[-1].needs == ()
    known = set(ln.claims.registry())
    assert {name for source in sources for name in source.claims} <= known


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
        predict.landscape([2.0, 1.0], hidden, most=most)


def test_directions_of_least_curvature_go_down():
    """What the smallest eigenvalue means: a step along its vector loses lambda/2 step^2."""
    problem = white()
    for point in predict.landscape(problem, (2, 2)).points:
        if not point.negative_eigenvalues:
            continue
        state = ln.critical(problem, (2, 2), point.kept)
        flat, back = jax.flatten_util.ravel_pytree(state)
        vector = np.linalg.eigh(np.asarray(ln.observe.hessian_matrix(state, problem)))[1][:, 0]
        step = 1e-4
        change = cost(back(flat + step * vector), problem) + cost(back(flat - step * vector), problem) - 2 * point.loss
        assert change / step**2 == pytest.approx(point.smallest_eigenvalue, rel=1e-4)
