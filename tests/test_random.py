import jax
import numpy as np
import pytest
from scipy import stats

import linnet as ln
from linnet import _random

DRAWS, SIGNIFICANCE = 40_000, 1e-3
SHAPES = (0.5, 1.0, 2.5, 50.0, 1e6)


def distance_from(drawn, a):
    """The p-value of a Kolmogorov-Smirnov test against Gamma(a)."""
    return stats.kstest(drawn, stats.gamma(a).cdf).pvalue


@pytest.fixture(scope="module")
def drawn():
    """All shape parameters in one draw, one column each."""
    shapes = np.broadcast_to(SHAPES, (DRAWS, len(SHAPES)))
    return np.asarray(_random.gamma(jax.random.key(0), shapes)).T


def test_gamma_numbers_have_their_law(drawn):
    """40,000 numbers of each shape parameter: a right sampler fails with a chance of 1e-3 in all."""
    assert all(distance_from(x, a) > SIGNIFICANCE / len(SHAPES) for a, x in zip(SHAPES, drawn, strict=True))


def test_that_test_sees_another_shape_parameter(drawn):
    """Five per cent more, which is 0.03 standard deviations where they are widest."""
    assert all(distance_from(x, 1.05 * a) < SIGNIFICANCE / len(SHAPES) for a, x in zip(SHAPES, drawn, strict=True))


def test_gamma_numbers_are_independent(drawn):
    """Neighbors, and shape parameters beside each other: correlations of 40,000 ranks are below 4.5 / 200."""
    ranks = np.concatenate([drawn, np.roll(drawn, 1, axis=1)]).argsort(axis=1).argsort(axis=1)
    correlations = np.corrcoef(ranks) - np.eye(len(ranks))
    assert np.max(np.abs(correlations)) < 4.5 / np.sqrt(DRAWS)


@pytest.mark.parametrize("a", [1e-3, 1.0, 1e12])
def test_gamma_numbers_are_finite_and_not_negative(key, a):
    x = np.asarray(_random.gamma(key, np.full(DRAWS, a)))
    assert np.all(np.isfinite(x))
    assert np.all(x >= 0)


@pytest.mark.parametrize("seed", [0, 7, 2**40 + 3])
@pytest.mark.parametrize("shape", [(3,), (5, 7), (1200, 900)])
def test_known_keys_draw_what_jax_draws(seed, shape):
    key, words = jax.random.key(seed), _random.KnownKey(np.asarray(jax.random.key_data(jax.random.key(seed))))
    for one, other in zip(_random.split(words, 4), jax.random.split(key, 4), strict=True):
        np.testing.assert_array_equal(one.words, jax.random.key_data(other))
    drawn = _random.uniform(words, shape, -1.0, 3.0)
    np.testing.assert_array_equal(drawn, jax.random.uniform(key, shape, minval=-1.0, maxval=3.0))
    np.testing.assert_array_equal(_random.signs(words, shape), jax.random.rademacher(key, shape, dtype=float))
    np.testing.assert_allclose(
        _random.normal(key, shape), jax.random.normal(key, shape), rtol=1e-10
    )  # XLA rounds tails to 1e-12


def test_samplers_draw_the_same_in_numpy_and_in_a_program(key):
    for draw in (
        lambda key: _random.stream(key, "name"),
        lambda key: _random.keys(key, "name", 3)[2],
        lambda key: _random.normal(key, (4, 3)),
        lambda key: _random.bartlett(key, 11.0, 6, 9),
        lambda key: _random.bartlett(key, 4.5, 6, 9),
        lambda key: _random.gamma(key, np.array([0.3, 1.0, 40.0])),
    ):
        here, there = draw(key), jax.jit(draw)(key)
        if jax.dtypes.issubdtype(here.dtype, jax.dtypes.prng_key):
            here, there = jax.random.key_data(here), jax.random.key_data(there)
        np.testing.assert_allclose(here, there, rtol=1e-10)


def test_keys_of_other_kinds_are_compiled():
    key = jax.random.key(3, impl="rbg")
    np.testing.assert_array_equal(_random.normal(key, (4,)), jax.random.normal(key, (4,)))


@pytest.mark.parametrize("kind", [None, "rbg"])
def test_gaussian_samples_are_the_same_in_a_program(kind):
    def draw(key):
        x, y = ln.problems.gaussian_samples(key, 4, [(2.0, 7), (0.5, 3)], noise2=0.1)
        return x @ x.T, y

    for here, there in zip(draw(key := jax.random.key(3, impl=kind)), jax.jit(draw)(key), strict=True):
        np.testing.assert_allclose(here, there, rtol=1e-10, atol=1e-12)
