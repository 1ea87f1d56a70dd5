"""Networks that are not linear against the same ones in PyTorch: outputs, gradients, Hessian products, descent."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.flatten_util import ravel_pytree
from torch.nn import functional

import linnet as ln

KEY, RNG = jax.random.key(0), np.random.default_rng(0)
ROWS, IMAGES = RNG.normal(size=(12, 5)), RNG.normal(size=(3, 2, 8, 8))


def perceptron(biased, activation):
    def answer(parameters, x):
        while parameters:
            weight, *bias = parameters[: 1 + biased]
            parameters = parameters[1 + biased :]
            x = functional.linear(x, weight, *bias)
            x = activation(x) if parameters else x
        return x

    return answer


def convolution(x, weight, bias):
    return functional.conv2d(x, weight, bias.reshape(-1), padding="same")


def convolutional(parameters, x):
    *parameters, weight, bias = parameters
    for i in range(0, len(parameters), 2):
        x = functional.avg_pool2d(torch.tanh(convolution(x, *parameters[i : i + 2])), 2)
    return functional.linear(x.flatten(1), weight, bias)


def unet(parameters, x):
    layers = [parameters[i : i + 2] for i in range(0, len(parameters), 2)]
    levels, skips = (len(layers) - 2) // 2, []
    for i, layer in enumerate(layers[: levels + 1]):
        if i:
            skips.append(x)
            x = functional.avg_pool2d(x, 2)
        x = functional.leaky_relu(convolution(x, *layer), 0.1)
    for layer in layers[levels + 1 : -1]:
        x = torch.cat([functional.interpolate(x, scale_factor=2, mode="nearest"), skips.pop()], dim=1)
        x = functional.leaky_relu(convolution(x, *layer), 0.1)
    return convolution(x, *layers[-1])


PLAIN, BIASED = (ln.networks.mlp(KEY, ROWS, (7, 6, 3), bias=bias) for bias in (False, True))
SOFT = ln.networks.mlp(KEY, ROWS, (7, 3), activation="gelu", bias=True, chunk_size=5)
CONV = ln.networks.conv(KEY, IMAGES, (3, 4), 3, activation="tanh")
UNET = ln.networks.unet(KEY, IMAGES, channels=3)
ENTRIES, KINDS, PICTURES = RNG.normal(size=(12, 3)), RNG.integers(3, size=12), RNG.normal(size=(3, 1, 8, 8))
SIGNS = np.sign(ENTRIES)


def mean_squares(out, y):
    return functional.mse_loss(out, y)


def sums(out, y):
    return functional.mse_loss(out, y, reduction="sum")


def logistic(reduction):
    return lambda out, y: functional.binary_cross_entropy_with_logits(out, (y + 1) / 2, reduction=reduction)


def entropy(reduction):
    return lambda out, y: functional.cross_entropy(out, y, reduction=reduction)


relu = perceptron(False, torch.relu)
CASES = {
    "mlp": (PLAIN, relu, ln.supervised(ENTRIES), mean_squares, ENTRIES),
    "mlp, sum of squares": (PLAIN, relu, ln.supervised(ENTRIES, average="sum"), sums, ENTRIES),
    "mlp, squares by samples": (
        PLAIN,
        relu,
        ln.supervised(ENTRIES, average="samples"),
        lambda out, y: sums(out, y) / 12,
        ENTRIES,
    ),
    "mlp, half squares": (
        PLAIN,
        relu,
        ln.supervised(ENTRIES, "half squares", average="samples"),
        lambda out, y: sums(out, y) / 24,
        ENTRIES,
    ),
    "mlp, logistic": (PLAIN, relu, ln.supervised(SIGNS, "logistic"), logistic("mean"), SIGNS),
    "mlp, sum of logistic": (PLAIN, relu, ln.supervised(SIGNS, "logistic", average="sum"), logistic("sum"), SIGNS),
    "mlp with biases, softmax": (
        BIASED,
        perceptron(True, torch.relu),
        ln.supervised(KINDS, "softmax"),
        entropy("mean"),
        KINDS,
    ),
    "mlp in pieces, sum of softmax": (
        SOFT,
        perceptron(True, lambda x: functional.gelu(x, approximate="tanh")),
        ln.supervised(KINDS, "softmax", average="sum"),
        entropy("sum"),
        KINDS,
    ),
    "conv": (CONV, convolutional, ln.supervised(KINDS[:3], "softmax", classes=3), entropy("mean"), KINDS[:3]),
    "unet": (UNET, unet, ln.supervised(PICTURES), mean_squares, PICTURES),
}


@pytest.mark.quick(5)
@pytest.mark.parametrize("name", CASES)
def test_a_network_is_pytorchs(name):
    network, function, problem, cost, labels = CASES[name]
    x, y = torch.tensor(np.array(network.inputs)), torch.tensor(labels)
    theirs = [torch.tensor(np.array(leaf), requires_grad=True) for leaf in jax.tree.leaves(network.parameters)]
    out = function(theirs, x)
    ours = np.asarray(network.matrix)
    np.testing.assert_allclose(ours, out.detach().reshape(len(x), -1).T, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(ln.observe.loss(network, problem), cost(out, y).item(), rtol=1e-12)

    flat, back = ravel_pytree(network.trained())
    direction = jax.random.normal(jax.random.key(1), flat.shape, flat.dtype)
    along = [torch.tensor(np.array(leaf)) for leaf in jax.tree.leaves(back(direction))]
    gradient = torch.autograd.grad(cost(out, y), theirs, create_graph=True)
    product = torch.autograd.grad(sum((g * d).sum() for g, d in zip(gradient, along, strict=True)), theirs)
    velocity = jax.tree.leaves(network.velocity(problem).trained())
    seen = jax.tree.leaves(ln.observe.hessian_product(network, problem, back(direction)).trained())
    for tensors, arrays in (([-g for g in gradient], velocity), (product, seen)):
        for tensor, array in zip(tensors, arrays, strict=True):
            np.testing.assert_allclose(array, tensor.detach(), rtol=1e-8, atol=1e-10)

    lr = 0.02 / max(1.0, float(jnp.linalg.norm(jnp.asarray(ravel_pytree(velocity)[0]))))
    run = ln.simulate(problem, network, ln.optim.SGD(lr), steps=200)
    sgd = torch.optim.SGD(theirs, lr)
    for _ in range(200):
        sgd.zero_grad()
        cost(function(theirs, x), y).backward()
        sgd.step()
    moved = 0.0
    for tensor, array, start in zip(
        theirs, jax.tree.leaves(run.final.parameters), jax.tree.leaves(network.parameters), strict=True
    ):
        np.testing.assert_allclose(array, tensor.detach(), rtol=1e-8, atol=1e-10)
        moved = max(moved, float(jnp.max(jnp.abs(array - start))))
    assert moved > 1e-2
