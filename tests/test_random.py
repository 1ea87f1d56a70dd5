import jax
import numpy as np
import pytest
from scipy import stats

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
    """Neighbours, and shape parameters beside each other: correlations of 40,000 ranks are below 4.5 / 200."""
    ranks = np.concatenate([drawn, np.roll(drawn, 1, axis=1)]).argsort(axis=1).argsort(axis=1)
    correlations = np.corrcoef(ranks) - np.eye(len(ranks))
    assert np.max(np.abs(correlations)) < 4.5 / np.sqrt(DRAWS)


@pytest.mark.parametrize("a", [1e-3, 1.0, 1e12])
def test_gamma_numbers_are_finite_and_not_negative(key, a):
    x = np.asarray(_random.gamma(key, np.full(DRAWS, a)))
    assert np.all(np.isfinite(x))
    assert np.all(x >= 0)
