"""The modes of the predictor that training ends with: their kernels at initialization and at the end."""

import operator
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from linnet.linalg import below_and_above, top_of_products
from linnet.prediction.reduced import ReducedRegression
from linnet.prediction.theories.network.initialization import Initialization
from linnet.prediction.theories.network.objective import prefixes
from linnet.theory import mixed
from linnet.theory import stability as edge

HALF = 0.5  # of its target: a mode is half learned
FIT = LEARNED = 0.01  # of the excess loss, of |A - A_end|: what is left
SIGNAL, NOISE = 0.9, 0.1  # of their targets: signal is learned, noise begins
ALONE = 1e-9  # an axis is a principal one to this accuracy
Layers = Sequence[Float[np.ndarray, "rows columns"]]
Grams = list[tuple[np.ndarray, np.ndarray]]
Samples = tuple[Float[np.ndarray, " points"], Float[np.ndarray, " points"]]  # values, times


class NetworkModes(NamedTuple):
    """The modes s_i u_i v_i^T of the final predictor, in the coordinates of the samples, and what they start from.

    - `curvature`: k_i = v_i^T X^T X v_i; `alone`: whether v_i is a principal axis of the inputs.
    - `begin`: u_i^T A v_i at initialization; `rest`: the part of the initial loss outside of these entries of A.
    - `grams`: |W_{l-1} ... W_1 v_i|^2 |u_i^T W_L ... W_{l+1}|^2 at initialization, whose sum over l is mode i's kernel.
    - `crosstalk`: the norm of the kernel's image of u_i v_i^T beside that entry, over the entry.
    """

    value: Float[np.ndarray, " modes"]
    left: Float[np.ndarray, "d_out modes"]
    right: Float[np.ndarray, "rank modes"]
    curvature: Float[np.ndarray, " modes"]
    alone: Bool[np.ndarray, " modes"]
    begin: Float[np.ndarray, " modes"]
    grams: Float[np.ndarray, "layers modes"]
    rest: float
    crosstalk: Float[np.ndarray, " modes"]

    @property
    def matrix(self) -> Float[np.ndarray, "d_out rank"]:
        """The predictor at the end of training."""
        return (self.left * self.value) @ self.right.T

    @property
    def kernel(self) -> Float[np.ndarray, " modes"]:
        """Each mode's tangent kernel at initialization."""
        return np.sum(self.grams, axis=0)


def modes_of(reduction: ReducedRegression, layers: Layers, u: np.ndarray, s: np.ndarray, v: np.ndarray) -> NetworkModes:
    """The modes s_i u_i v_i^T of a network with these layers."""
    pairs = layer_grams(layers)
    crosstalk = np.empty(s.size)
    for i in range(s.size):
        image = np.sum([np.outer(outputs @ u[:, i], inputs @ v[:, i]) for inputs, outputs in pairs], axis=0)
        along = float(u[:, i] @ image @ v[:, i])
        beside = np.linalg.norm(image - along * np.outer(u[:, i], v[:, i]))
        crosstalk[i] = beside / along if along > 0 else 0.0
    gram = reduction.scales[:, None] ** 2
    curvature = np.sum(gram * v**2, axis=0)
    alone = np.linalg.norm(gram * v - curvature * v, axis=0) <= ALONE * curvature
    matrix = prefixes(layers)[-1]
    begin = np.einsum("oi,oj,ji->i", u, matrix, v)
    rest = float(np.sum(((matrix - (u * begin) @ v.T) * reduction.scales) ** 2))
    return NetworkModes(s, u, v, curvature, alone, begin, mode_grams(layers, u, v), rest, crosstalk)


def mode_grams(layers: Layers, u: np.ndarray, v: np.ndarray) -> Float[np.ndarray, "layers modes"]:
    """|W_{l-1} ... W_1 v_i|^2 |u_i^T W_L ... W_{l+1}|^2 of each layer and mode."""
    below, above = below_and_above(layers, v, u.T)
    return np.stack([np.sum(b**2, axis=0) * np.sum(a**2, axis=1) for b, a in zip(below, above, strict=True)])


def layer_values(layers: Layers, u: np.ndarray, v: np.ndarray) -> Float[np.ndarray, "layers modes"]:
    """What each layer multiplies each mode by: |W_1 v_i|, the growth of v_i in the layers between, |u_i^T W_L|."""
    below = below_and_above(layers, v, u.T)[0]
    sizes = np.stack([np.linalg.norm(b, axis=0) for b in below])
    with np.errstate(divide="ignore", invalid="ignore"):
        grown = sizes[1:] / sizes[:-1]
    return np.concatenate([grown, np.linalg.norm(u.T @ layers[-1], axis=1)[None]])


def layer_grams(layers: Layers) -> Grams:
    """For each layer P^T P of the product P of the layers below, and S S^T of the product S of those above."""
    below, above = below_and_above(layers, np.eye(layers[0].shape[1]), np.eye(layers[-1].shape[0]))
    return [(p.T @ p, q @ q.T) for p, q in zip(below, above, strict=True)]


def final_values(modes: NetworkModes, initialization: Initialization) -> Float[np.ndarray, "layers modes"]:
    """Layer values of each mode where gradient flow ends; those of balanced layers where no theory has better ones."""
    s, depth = modes.value, initialization.depth
    if depth == 1:
        return s[None]
    if depth == 2:
        second, first = modes.grams  # C2 and C1 of each mode
        c = np.asarray(mixed.mode_scale(first, second, modes.begin))
        shift = (first - second) / 2
        total = np.hypot(s, c) + np.abs(shift)
        # C1 C2 - s^2 is conserved, so that the smaller one needs no difference
        other = (s**2 + np.maximum(first * second - modes.begin**2, 0)) / total
        return np.sqrt(np.where(shift >= 0, [total, other], [other, total]))
    if not initialization.aligned:
        return np.tile(s ** (1 / depth), (depth, 1))
    initial = np.full((depth, s.size), initialization.scale[0])
    if initialization.kind == "one-zero":
        initial[-1] = 0.0
    return edge.flow_values(initial, s)


def kernels(values: Float[np.ndarray, "layers modes"]) -> Float[np.ndarray, " modes"]:
    """The kernel of each mode between aligned layers of these values: sum over l of prod_{m != l} y_m^2."""
    ones = np.ones(values.shape[1])
    below, above = below_and_above(list(values**2), ones, ones, operator.mul)
    return np.sum([b * a for b, a in zip(below, above, strict=True)], axis=0)


def squares(values: Float[np.ndarray, " modes"], depth: int) -> float:
    """|W_1|^2 + ... + |W_L|^2 of balanced layers, which all minima with weight decay have: L sum_i s_i^{2/L}."""
    return depth * float(np.sum(values ** (2 / depth)))


def final_grams(
    reduction: ReducedRegression,
    layers: Layers,
    modes: NetworkModes,
    values: np.ndarray,
    initialization: Initialization,
) -> Grams:
    """As `layer_grams`, where gradient flow ends."""
    u, v, depth = modes.left, modes.right, initialization.depth
    if depth == 2 and initialization.kind != "balanced":  # what the modes do not reach stays as it was
        (one, second), (first, other) = layer_grams(layers)
        c2, c1 = modes.grams
        grown = (v * (values[0] ** 2 - c1)) @ v.T, (u * (values[1] ** 2 - c2)) @ u.T
        return [(one, second + grown[1]), (first + grown[0], other)]
    rest = np.eye(reduction.scales.size) - v @ v.T
    out = []
    for layer in range(depth):
        inputs = (v * np.prod(values[:layer] ** 2, axis=0)) @ v.T
        outputs = (u * np.prod(values[layer + 1 :] ** 2, axis=0)) @ u.T
        if layer == 0 or initialization.kind == "one-zero":
            inputs += initialization.scale[0] ** (2 * layer) * rest if layer else rest
        if layer == depth - 1:
            outputs = np.eye(reduction.limit.shape[0])
        out.append((inputs, outputs))
    return out


def kernel_sharpness(reduction: ReducedRegression, grams: Grams) -> float:
    """The largest eigenvalue of E -> sum over layers of X P^T P X^T E S S^T: the sharpness of a minimum."""
    x = reduction.scales
    if len(grams) == 2 and reduction.white:  # then it is a sum of two commuting terms
        return float(x[0] ** 2 * (np.linalg.eigvalsh(grams[1][0])[-1] + np.linalg.eigvalsh(grams[0][1])[-1]))
    return top_of_products([(x[:, None] * inputs * x, outputs) for inputs, outputs in grams])
