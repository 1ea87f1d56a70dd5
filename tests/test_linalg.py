import operator
from functools import reduce
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linnet import _random
from linnet.linalg import below_and_above, top_of_products, top_singular_values


@given(st.lists(st.integers(1, 4), min_size=2, max_size=6), st.integers(0, 99))
def test_products_below_and_above_each_layer(widths, seed):
    rng = np.random.default_rng(seed)
    layers = [rng.normal(size=(b, a)) for a, b in pairwise(widths)]
    bottom, top = rng.normal(size=(widths[0], 2)), rng.normal(size=(3, widths[-1]))
    below, above = below_and_above(layers, bottom, top)
    for index, layer in enumerate(layers):
        whole = above[index] @ layer @ below[index]
        expected = reduce(operator.matmul, [top, *layers[::-1], bottom])
        np.testing.assert_allclose(whole, expected, atol=1e-10)
        assert below[index].shape == (layer.shape[1], 2)
    numbers = rng.normal(size=len(layers))
    below, above = below_and_above(list(numbers), 1.0, 1.0, operator.mul)
    others = [np.prod(np.delete(numbers, i)) for i in range(len(numbers))]
    np.testing.assert_allclose(np.multiply(below, above), others, rtol=1e-12)


@pytest.mark.parametrize("size", [(3, 4), (40, 30)])
def test_the_largest_eigenvalue_of_a_sum_of_products(size):
    rng = np.random.default_rng(0)
    pairs = [tuple((a := rng.normal(size=(n, n))) @ a.T for n in size) for _ in range(3)]
    expected = np.linalg.eigvalsh(sum(np.kron(p, q) for p, q in pairs))[-1]
    assert top_of_products(pairs) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("shape", "values"), [((5, 3), [3.0, 1.0]), ((2, 6), [2.0, 2.0]), ((4, None), [5.0])])
def test_a_matrix_of_given_spectrum_in_random_frames(key, shape, values):
    matrix, u, v = _random.with_spectrum(*jax.random.split(key), values, *shape)
    np.testing.assert_allclose(np.linalg.svd(matrix, compute_uv=False)[: len(values)], values, rtol=1e-12)
    assert np.linalg.matrix_rank(matrix) == len(values)
    np.testing.assert_allclose(u.T @ matrix @ v, np.diag(values), atol=1e-12)


@pytest.mark.parametrize(("shape", "rank"), [((40, 90), 40), ((60, 60), 60), ((7, 30), 7), ((50, 20), 3), ((5, 5), 5)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_few_of_the_largest_singular_values(shape, rank, dtype):
    rng = np.random.default_rng(1)
    a = (rng.normal(size=(shape[0], rank)) @ rng.normal(size=(rank, shape[1]))).astype(dtype)
    side, count = min(shape), min(4, rank)
    block = np.linalg.qr(rng.normal(size=(side, min(13, side))))[0].astype(dtype)
    values, again = top_singular_values(jnp.asarray(a), jnp.asarray(block), count)
    expected = np.linalg.svd(a.astype(float), compute_uv=False)
    assert values.dtype == dtype
    np.testing.assert_allclose(values, expected[:count], rtol=2e-5, atol=1e-4 * expected[0] * (dtype == np.float32))
    # from where it ended, near-by values need few rounds; from nowhere two are not enough
    near = jnp.asarray(a + 1e-3 * rng.normal(size=shape).astype(dtype))
    right = np.linalg.svd(np.asarray(near, float), compute_uv=False)[:count]
    warm, cold = (top_singular_values(near, one, count, rounds=2)[0] for one in (again, jnp.asarray(block)))
    np.testing.assert_allclose(warm, right, rtol=1e-4, atol=1e-4 * expected[0] * (dtype == np.float32))
    if side > 30:
        assert np.max(np.abs(cold / right - 1)) > 1e-2
