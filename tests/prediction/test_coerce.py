import jax
import numpy as np
import pytest

import linnet as ln
from linnet import prediction
from linnet._check import InputError
from linnet.prediction.coerce import normalization, regression


@pytest.mark.parametrize(("samples", "curvature"), [(None, 1.0), (7, 7.0)])
def test_whitened_inputs_leave_a_factorization(samples, curvature):
    """c/2 |A - Z|^2 with the spectrum asked for: X = I by default, X^T X = n I with samples."""
    problem = prediction.whitened([1.0, 3.0, 0.0], inputs=5, outputs=4, samples=samples)
    assert problem.shape == (4, 5)
    assert problem.samples == (samples or 5)
    np.testing.assert_allclose(problem.gram, curvature * np.eye(5), atol=1e-14)
    target = np.asarray(problem.target)
    np.testing.assert_allclose(np.linalg.svd(target, compute_uv=False), [3, 1, 0, 0], atol=1e-14)
    a = np.random.default_rng(0).normal(size=(4, 5))
    assert float(problem.cost(a)) == pytest.approx(curvature / 2 * np.sum((a - target) ** 2))
    assert normalization(problem) == "sum"


def test_samples_of_ones_own_are_taken_as_they_are():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(6, 3)), rng.normal(size=(6, 2))
    words = {
        "sum": ln.regression(x, y),
        "mean": ln.regression(x, y, average=True),
        "0.1667/2 |0.2 X A^T - Y|^2": ln.problems.mean_field_regression(x, y, width=5),
    }
    for word, problem in words.items():
        assert regression(problem) is problem
        assert normalization(problem) == word
    assert regression([2.0, 1.0]).shape == (2, 2)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: "3,1", "spectrum"),
        (list, "spectrum"),
        (lambda: [1, -1], "its values must not be negative"),
        (lambda: [1, 1e-13], "within a ratio of 1e"),
        (lambda: ln.factorization(np.ones(2)), "problem = Factorization of shape"),
        (lambda: ln.problems.diagonal_regression(np.eye(2), np.ones(2)), "a regression on a matrix"),
        (lambda: ln.regression([[1.0], [1.0]], [[1.0], [-1.0]]), "there is nothing to learn"),
        (lambda: ln.regression(np.eye(2), np.zeros(2)), "there is nothing to learn"),
        (lambda: ln.regression(np.zeros((2, 2)), np.ones(2)), "inputs are all zero"),
        (lambda: ln.regression(1e80 * np.eye(2), np.ones(2)), r"problem has inputs that reach 1e\+80"),
    ],
)
def test_what_cannot_be_asked_about_is_one_sentence(make, words):
    with pytest.raises(InputError, match=words) as told:
        regression(make())
    assert str(told.value).endswith(".")
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("half", [False, True])
def test_a_factorization_is_a_regression_on_inputs_that_are_the_identity(half):
    rng = np.random.default_rng(0)
    problem = ln.factorization(rng.normal(size=(3, 5)), half=half)
    same, matrix = regression(problem), rng.normal(size=(3, 5))
    assert same.shape == problem.shape
    assert float(same.cost(matrix)) == pytest.approx(float(problem.cost(matrix)), rel=1e-12)
    np.testing.assert_allclose(same.gradient(matrix), problem.gradient(matrix), rtol=1e-12)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"inputs": 1}, "inputs = 1 is not allowed"),
        ({"outputs": 5000}, "outputs = 5000 is not allowed"),
        ({"samples": 1}, "whitened data need n >= d_in"),
    ],
)
def test_whitened_data_need_room(options, words):
    with pytest.raises(InputError, match=words):
        prediction.whitened([2.0, 1.0], **options)


def test_a_traced_problem_is_one_sentence():
    with pytest.raises(InputError, match="traced"):
        jax.jit(lambda y: regression(ln.regression(np.eye(2), y)).cost(np.eye(2)))(np.ones((2, 1)))
