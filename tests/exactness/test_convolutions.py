"""Convolutions as products of matrices: against the sum that defines them, and in networks against XLA's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal import correlate2d

import linnet as ln
from linnet import networks


@pytest.mark.compiles
@given(
    seed=st.integers(0, 10**6),
    shape=st.tuples(st.integers(1, 4), st.integers(1, 7), st.integers(1, 7)),
    outputs=st.integers(1, 4),
    side=st.integers(1, 4),
    bias=st.booleans(),
)
def test_a_convolution_is_its_sum(seed, shape, outputs, side, bias):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape)
    blank = networks._convolution(shape[0], outputs, side, bias)
    (layer,) = networks._initialized(jax.random.key(seed), "conv", [blank], [jnp.ones(())], jnp.float64)
    weight, low, high = np.asarray(layer.weight), (side - 1) // 2, side // 2
    padded = np.pad(x, ((0, 0), (low, high), (low, high)))
    wanted = [sum(map(lambda a, b: correlate2d(a, b, "valid"), padded, kernel)) for kernel in weight]
    np.testing.assert_allclose(networks._convolved(layer, jnp.asarray(x)), wanted, atol=1e-13)


@pytest.mark.quick(1)
@pytest.mark.parametrize("build", [ln.networks.unet, lambda key, x: ln.networks.conv(key, x, (4, 3), 2)])
def test_networks_agree_with_the_compilers_convolution(build, monkeypatch):
    x = np.random.default_rng(0).normal(size=(2, 3, 8, 8))
    network = build(jax.random.key(1), x)
    problem = ln.supervised(np.zeros(jax.eval_shape(network.function, network.parameters, x).shape))

    def looked():
        return network.matrix, *jax.tree.leaves(network.velocity(problem))

    ours = looked()
    monkeypatch.setattr(networks, "_convolved", lambda layer, x: layer(x))
    for one, other in zip(ours, looked(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-13)
