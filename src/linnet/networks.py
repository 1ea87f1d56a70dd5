"""Networks that are not linear, drawn at random and ready to run: on Equinox, as states on their samples."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from linnet import _check
from linnet._check import InputError, KeyLike
from linnet._random import keys, normal, sampler
from linnet.states import Network

Activation = Callable[[Array], Array]
_ACTIVATIONS: dict[str, Activation] = {
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "gelu": jax.nn.gelu,
    "linear": lambda x: x,
}


def mlp(
    key: KeyLike,
    inputs: Any,
    widths: Sequence[int],
    *,
    activation: str | Activation = "relu",
    scale: float = 1.0,
    deviation: float | None = None,
    bias: bool = False,
    chunk_size: int | None = None,
) -> Network:
    """A multilayer perceptron on samples (rows): `widths` of its hidden layers, then the number of outputs.

    Weights are scale N(0, 1/fan_in), or N(0, deviation^2) in all layers; biases, where asked for, begin at 0.
    `activation`: "relu", "tanh", "gelu", "linear", or any function of an array.
    """
    x = _check.array("inputs", inputs, ndim=2)
    sizes = [x.shape[1], *(_check.integer("a width", width, least=1) for width in widths)]
    if len(sizes) < 2:
        raise InputError("widths is empty: give the hidden widths, then the number of outputs.")
    between = eqx.nn.Lambda(_activation(activation))
    biased = _check.flag("bias", bias)
    layers = [_linear(below, above, biased) for below, above in pairwise(sizes)]
    deviations = [_deviation(scale, deviation, below) for below in sizes[:-1]]
    first, *others = _initialized(key, "mlp", layers, deviations, x.dtype)
    return Network.of(eqx.nn.Sequential([first, *(p for o in others for p in (between, o))]), x, chunk_size=chunk_size)


def conv(
    key: KeyLike,
    inputs: Any,
    channels: Sequence[int],
    outputs: int,
    *,
    kernel: int = 3,
    activation: str | Activation = "relu",
    scale: float = math.sqrt(2.0),
    bias: bool = True,
    chunk_size: int | None = None,
) -> Network:
    """A convolutional network on images (samples x channels x height x width), and a linear layer on its last channels.

    Each convolution is followed by the activation and by a mean over squares of two by two; `channels` of each. Weights
    are scale N(0, 1/fan_in), biases begin at 0.

    `outputs` is the number of outputs, `kernel` the odd size of each convolution.
    """
    x = _check.array("inputs", inputs, ndim=4)
    sizes = [x.shape[1], *(_check.integer("a number of channels", c, least=1) for c in channels)]
    count, side = _check.integer("outputs", outputs, least=1), _check.integer("kernel", kernel, least=1)
    height, width = x.shape[2:]
    if height % 2 ** (len(sizes) - 1) or width % 2 ** (len(sizes) - 1):
        raise InputError(f"images of {height} x {width} cannot be halved {len(sizes) - 1} times: give fewer channels.")
    biased = _check.flag("bias", bias)
    features = sizes[-1] * (height // 2 ** (len(sizes) - 1)) * (width // 2 ** (len(sizes) - 1))
    parts = [_linear(features, count, biased), *(_convolution(a, b, side, biased) for a, b in pairwise(sizes))]
    deviations = [_deviation(scale, None, fan_in) for fan_in in (features, *(a * side**2 for a in sizes[:-1]))]
    last, *layers = _initialized(key, "conv", parts, deviations, x.dtype)
    return Network.of(_Convolutional(layers, last, _activation(activation)), x, chunk_size=chunk_size)


def unet(
    key: KeyLike,
    inputs: Any,
    *,
    channels: int = 8,
    levels: int = 2,
    outputs: int = 1,
    slope: float = 0.1,
    scale: float = math.sqrt(2.0),
    chunk_size: int | None = None,
) -> Network:
    """A small UNet from images to images (samples x channels x height x width), without normalization.

    A convolution of 3 x 3; `levels` times a mean over two by two and a convolution; as many times the nearest
    upsampling, the channels of that size from the way down, and a convolution; a convolution of 1 x 1. Leaky ReLU with
    this `slope` after all but the last. Weights are scale N(0, 1/fan_in), biases begin at 0 and are trained.

    `outputs` is the number of channels of the result.
    """
    x = _check.array("inputs", inputs, ndim=4)
    wide, deep = _check.integer("channels", channels, least=1), _check.integer("levels", levels, least=1)
    if x.shape[2] % 2**deep or x.shape[3] % 2**deep:
        raise InputError(f"images of {x.shape[2]} x {x.shape[3]} cannot be halved {deep} times: give fewer levels.")
    sizes = [(x.shape[1], wide, 3), *[(wide, wide, 3)] * deep, *[(2 * wide, wide, 3)] * deep]
    sizes.append((wide, _check.integer("outputs", outputs, least=1), 1))
    deviations = [_deviation(scale, None, below * side**2) for below, _, side in sizes]
    *layers, last = _initialized(key, "unet", [_convolution(*size, True) for size in sizes], deviations, x.dtype)
    shape = _UNet(layers[: deep + 1], layers[deep + 1 :], last, _check.real("slope", slope))
    return Network.of(shape, x, chunk_size=chunk_size)


def reduced(network: Network) -> tuple[Network, Float[Array, "d k"]]:
    """The same multilayer perceptron on fewer inputs, k = min(n, d) for n samples of d, and the basis Q of their span.

    With the QR factors X^T = Q R, W_1 x_i is (W_1 Q) times a column of R: the network on the rows of R^T with W_1 Q has
    the same outputs, loss and gradient, and a Hessian with the same eigenvalues but zeros. Descent and flows without
    decay stay the same: W_1 never moves outside of the span, W_1(t) = W_1(0) (I - Q Q^T) + (W_1 Q)(t) Q^T. For
    n < d it saves a factor of d/n in the first layer. Singular values of W_1 are not those of W_1 Q.
    """
    module = network.module if isinstance(network, Network) else None
    if not isinstance(module, eqx.nn.Sequential) or not isinstance(module.layers[0], eqx.nn.Linear):
        raise InputError(f"network = {_check.show(network)} is not allowed: it must be a network of mlp(...).")
    if jax.tree.leaves(network.frozen):
        raise InputError("network has frozen parts: give one of which everything is trained.")
    basis, root = jnp.linalg.qr(network.inputs.T)
    first = module.layers[0]
    fewer = eqx.nn.Linear(basis.shape[1], first.out_features, use_bias=False, key=jax.random.key(0))
    fewer = eqx.tree_at(lambda layer: layer.weight, fewer, first.weight @ basis)
    fewer = eqx.tree_at(lambda layer: layer.bias, fewer, first.bias, is_leaf=lambda leaf: leaf is None)
    return Network.of(eqx.nn.Sequential([fewer, *module.layers[1:]]), root.T, chunk_size=network.chunk_size), basis


class _Convolutional(eqx.Module):
    layers: list[eqx.nn.Conv2d]
    last: eqx.nn.Linear
    activation: Activation

    def __call__(self, x: Float[Array, "c h w"]) -> Float[Array, " outputs"]:
        for layer in self.layers:
            x = _halved(self.activation(_convolved(layer, x)))
        return self.last(x.ravel())


class _UNet(eqx.Module):
    down: list[eqx.nn.Conv2d]
    up: list[eqx.nn.Conv2d]
    last: eqx.nn.Conv2d
    slope: float = eqx.field(static=True)

    def __call__(self, x: Float[Array, "c h w"]) -> Float[Array, "outputs h w"]:
        skips = []
        for i, layer in enumerate(self.down):
            if i:
                skips.append(x)
                x = _halved(x)
            x = jax.nn.leaky_relu(_convolved(layer, x), self.slope)
        for layer in self.up:
            x = jnp.concatenate([_doubled(x), skips.pop()])
            x = jax.nn.leaky_relu(_convolved(layer, x), self.slope)
        return _convolved(self.last, x)


def _convolved(layer: eqx.nn.Conv2d, x: Float[Array, "c h w"]) -> Float[Array, "o h w"]:
    """The layer's answer by one product of matrices: XLA's own takes four times as long in a loop on a CPU.

    The product sees each pixel with those above and below it, once for every column of the kernel, and these are added
    where they belong. What lies outside of the image is 0.
    """
    c, h, w = x.shape
    weight = layer.weight
    outputs, _, tall, wide = weight.shape
    padded = jnp.pad(x, ((0, 0), ((tall - 1) // 2, tall // 2), ((wide - 1) // 2, wide // 2)))
    patches = jnp.concatenate([padded[:, i : i + h] for i in range(tall)]).reshape(tall * c, -1)
    rows = weight.transpose(3, 0, 2, 1).reshape(wide * outputs, tall * c)
    columns = (rows @ patches).reshape(wide, outputs, h, w + wide - 1)
    answer = sum((columns[j, :, :, j : j + w] for j in range(1, wide)), columns[0, :, :, :w])
    return answer if layer.bias is None else answer + layer.bias


def _halved(x: Float[Array, "c h w"]) -> Float[Array, "c half_h half_w"]:
    """Means over squares of two by two."""
    c, h, w = x.shape
    return x.reshape(c, h // 2, 2, w // 2, 2).mean(axis=(2, 4))


def _doubled(x: Float[Array, "c h w"]) -> Float[Array, "c twice_h twice_w"]:
    """Each pixel four times."""
    return jnp.repeat(jnp.repeat(x, 2, axis=1), 2, axis=2)


def _activation(given: str | Activation) -> Activation:
    if callable(given):
        return given
    return _ACTIVATIONS[_check.choice("activation", given, tuple(_ACTIVATIONS))]


def _deviation(scale: Any, deviation: Any, fan_in: int) -> Array:
    if deviation is not None:
        return _check.number("deviation", deviation, least=0)
    return _check.number("scale", scale, least=0) / math.sqrt(fan_in)


def _linear(below: int, above: int, bias: bool) -> Any:
    """A layer without its numbers: Equinox would draw some."""
    return eqx.filter_eval_shape(lambda: eqx.nn.Linear(below, above, use_bias=bias, key=jax.random.key(0)))


def _convolution(below: int, above: int, side: int, bias: bool) -> Any:
    return eqx.filter_eval_shape(
        lambda: eqx.nn.Conv2d(below, above, side, padding="SAME", use_bias=bias, key=jax.random.key(0))
    )


def _initialized(key: Any, name: str, layers: list[Any], deviations: list[Array], dtype: Any) -> list[Any]:
    """The layers with Gaussian weights of these deviations and biases of 0."""
    shapes = tuple(layer.weight.shape for layer in layers)
    weights = _weights(_check.key("key", key), deviations, name, shapes, jnp.dtype(dtype).name)
    biases = [None if layer.bias is None else np.zeros(layer.bias.shape, dtype) for layer in layers]
    given = zip(layers, weights, biases, strict=True)
    return [eqx.tree_at(_numbers, layer, both, is_leaf=lambda x: x is None) for layer, *both in given]


def _numbers(layer: Any) -> list[Any]:
    return [layer.weight, layer.bias]


@sampler("name", "shapes", "dtype")
def _weights(
    key: Any, deviations: list[Array], name: str, shapes: tuple[tuple[int, ...], ...], dtype: str
) -> list[Array]:
    """All weights of a network in one program."""
    drawn = [normal(own, shape) for own, shape in zip(keys(key, name, len(shapes)), shapes, strict=True)]
    return [(size * one).astype(dtype) for size, one in zip(deviations, drawn, strict=True)]
