import jax
import numpy as np
import pytest

import linnet as ln
from linnet.prediction.reduced import reduce_regression, white


@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize(("n", "d_in", "output_scale"), [(9, 4, 1.0), (3, 6, 1.0), (7, 5, 0.3)])
def test_a_reduced_regression_has_the_loss_of_its_regression(average, n, d_in, output_scale):
    """Loss and minimum-norm predictor, whatever the normalization, with and without samples to spare."""
    rng = np.random.default_rng(n)
    x, y = rng.normal(size=(n, d_in)), rng.normal(size=(n, 2))
    problem = ln.regression(x, y, average=average, output_scale=output_scale)
    reduction = reduce_regression(problem)
    assert (reduction.d_in, reduction.samples, reduction.scales.size) == (d_in, n, min(n, d_in))
    a = rng.normal(size=(2, d_in))
    inside = np.sum(((a @ reduction.basis.T - reduction.limit) * reduction.scales) ** 2) / 2 + reduction.unexplained
    assert inside == pytest.approx(float(problem.cost(a)), rel=1e-12)
    np.testing.assert_allclose(reduction.limit @ reduction.basis, problem.target, rtol=1e-9, atol=1e-12)
    assert (reduction.unexplained == 0) == (n <= d_in)


def test_whitened_data_have_the_target_asked_for():
    reduction = white(np.array([3.0, 1.0]), (4, 5), (4, 5))
    problem = ln.regression(np.diag(reduction.scales), (reduction.limit * reduction.scales).T)
    state = ln.init.gaussian(jax.random.key(0), problem, 7, 0.1)
    found = np.linalg.svd(np.asarray(problem.target), compute_uv=False)
    np.testing.assert_allclose(found, [3, 1, 0, 0], atol=1e-12)
    assert float(problem.cost(state.matrix)) == pytest.approx(float(np.sum((state.matrix - reduction.limit) ** 2)) / 2)
