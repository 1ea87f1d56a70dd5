"""Fewer inputs than pixels: the same network, exactly."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import linnet as ln
from linnet.networks import reduced


@pytest.mark.compiles
@given(st.integers(0, 99), st.integers(1, 12), st.integers(1, 12), st.booleans())
def test_the_same_network_on_the_span_of_its_samples(seed, n, d, bias):
    rng = np.random.default_rng(seed)
    problem = ln.supervised(rng.normal(size=(n, 2)))
    whole = ln.networks.mlp(jax.random.key(seed), rng.normal(size=(n, d)), (5, 4, 2), activation="tanh", bias=bias)
    fewer, basis = reduced(whole)
    k = min(n, d)
    assert fewer.inputs.shape == (n, k)
    assert fewer.layers[0].shape == (5, k)
    np.testing.assert_allclose(basis.T @ basis, np.eye(k), atol=1e-13)
    np.testing.assert_allclose(fewer.inputs @ basis.T, whole.inputs, atol=1e-12)
    np.testing.assert_allclose(fewer.matrix, whole.matrix, atol=1e-12)
    ends = [ln.simulate(problem, one, ln.optim.SGD(0.1), steps=20).final for one in (whole, fewer)]
    np.testing.assert_allclose(ends[1].matrix, ends[0].matrix, atol=1e-11)
    back = whole.layers[0] + (ends[1].layers[0] - fewer.layers[0]) @ basis.T
    np.testing.assert_allclose(ends[0].layers[0], back, atol=1e-11)


def test_what_has_no_first_matrix_is_refused():
    rng = np.random.default_rng(0)
    pictures = ln.networks.conv(jax.random.key(0), rng.normal(size=(3, 1, 4, 4)), (2,), 2)
    bare = ln.Network(lambda w, x: x @ w.T, rng.normal(size=(2, 4)), rng.normal(size=(3, 4)))
    for given_, words in ((3, "network = 3"), (pictures, "mlp"), (bare, "not made of an Equinox module")):
        with pytest.raises(ln.InputError, match=words):
            reduced(given_)
    whole = ln.networks.mlp(jax.random.key(0), rng.normal(size=(3, 4)), (5, 2))
    held = ln.Network.of(whole.module, whole.inputs, trained=lambda leaf: leaf.shape[0] == 2)
    with pytest.raises(ln.InputError, match="frozen"):
        reduced(held)
