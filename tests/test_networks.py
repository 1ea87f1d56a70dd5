"""Builders of networks: what they draw, and what they refuse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import linnet as ln

KEY = jax.random.key(0)
ROWS, IMAGES = np.ones((2, 300)), np.ones((2, 3, 8, 8))


def test_weights_have_the_deviation_that_was_asked_for():
    for network, deviations in (
        (ln.networks.mlp(KEY, ROWS, (400, 200), scale=0.5), (0.5 / np.sqrt(300), 0.5 / np.sqrt(400))),
        (ln.networks.mlp(KEY, ROWS, (400, 200), deviation=0.1), (0.1, 0.1)),
        (ln.networks.conv(KEY, IMAGES, (64,), 100, bias=False), (np.sqrt(2 / 27), np.sqrt(2 / (64 * 16)))),
        (ln.networks.unet(KEY, IMAGES, channels=32, levels=1), np.sqrt(2 / np.array([27, 9 * 32, 9 * 64, 32]))),
    ):
        weights = [leaf for leaf in jax.tree.leaves(network.parameters) if leaf.ndim > 1 and leaf.shape[1:] != (1, 1)]
        if len(weights) < len(deviations):  # the last convolution of a UNet is as small as a bias
            weights.append(network.module.last.weight)
        for leaf, wanted in zip(weights, deviations, strict=True):
            assert abs(float(jnp.std(leaf)) / wanted - 1) < 5 / np.sqrt(2 * leaf.size)
    biases = [
        leaf for leaf in jax.tree.leaves(ln.networks.mlp(KEY, ROWS, (4, 2), bias=True).parameters) if leaf.ndim == 1
    ]
    assert [leaf.shape for leaf in biases] == [(4,), (2,)]
    assert not any(jnp.any(leaf) for leaf in biases)


def test_samples_decide_the_precision():
    for network in (
        ln.networks.mlp(KEY, ROWS.astype(np.float32), (4, 2), bias=True),
        ln.networks.unet(KEY, IMAGES.astype(np.float32)),
    ):
        assert {leaf.dtype for leaf in jax.tree.leaves(network)} == {jnp.dtype("float32")}
        assert network.matrix.dtype == jnp.float32


def test_other_keys_draw_other_weights_in_the_same_program():
    one, other = (ln.networks.mlp(jax.random.key(k), ROWS, (4, 2)) for k in (0, 1))
    assert not np.allclose(one.layers[0], other.layers[0])
    np.testing.assert_array_equal(one.layers[0], ln.networks.mlp(KEY, ROWS, (4, 2)).layers[0])
    assert one.function == other.function


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: ln.networks.mlp(KEY, ROWS, ()), "widths is empty"),
        (lambda: ln.networks.mlp(KEY, ROWS, (0, 1)), "a width = 0 is not allowed"),
        (lambda: ln.networks.mlp(KEY, ROWS, (2, 1), activation="sine"), "activation = 'sine' is not allowed"),
        (lambda: ln.networks.mlp(KEY, ROWS, (2, 1), scale=-1.0), "scale = -1.0 is not allowed"),
        (lambda: ln.networks.mlp(KEY, ROWS, (2, 1), deviation=np.nan), "deviation = nan is not allowed"),
        (lambda: ln.networks.mlp(KEY, ROWS, (2, 1), bias="yes"), "bias = 'yes' is not allowed"),
        (lambda: ln.networks.mlp(-1, ROWS, (2, 1)), "key = -1 is not allowed"),
        (lambda: ln.networks.mlp(KEY, IMAGES, (2, 1)), "inputs has shape"),
        (lambda: ln.networks.mlp(KEY, ROWS * np.nan, (2, 1)), "inputs holds 600 NaN or infinite"),
        (lambda: ln.networks.mlp(KEY, ROWS, (2, 1), chunk_size=0), "chunk_size = 0 is not allowed"),
        (lambda: ln.networks.conv(KEY, IMAGES, (2, 2, 2, 2), 1), "images of 8 x 8 cannot be halved 4 times"),
        (lambda: ln.networks.conv(KEY, ROWS, (2,), 1), "inputs has shape"),
        (lambda: ln.networks.unet(KEY, IMAGES, levels=4), "images of 8 x 8 cannot be halved 4 times"),
        (lambda: ln.networks.unet(KEY, IMAGES, channels=0), "channels = 0 is not allowed"),
    ],
)
def test_what_cannot_be_built_is_refused(make, sentence):
    with pytest.raises(ln.InputError, match=sentence):
        make()
