"""The modes of a network, what their kernels are at the start and in the end, and how sharp it is there."""

import operator
from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from linnet.linalg import below_and_above, top_of_products
from linnet.predict.frame import Frame
from linnet.predict.network.plan import Plan
from linnet.states import Weights
from linnet.theory import mixed
from linnet.theory import stability as edge

HALF = 0.5  # of its target: a mode is half learned
ALONE = 1e-9  # an axis is a principal one to this accuracy
Grams = list[tuple[np.ndarray, np.ndarray]]
Curve = tuple[Float[np.ndarray, " points"], Float[np.ndarray, " points"]]  # values, times


class Modes(NamedTuple):
    """The modes s_i u_i v_i^T of where training ends, in the frame of the samples, and what decides how they move."""

    value: Float[np.ndarray, " modes"]  # s_i
    left: Float[np.ndarray, "d_out modes"]  # u_i as columns
    right: Float[np.ndarray, "rank modes"]  # v_i as columns
    curvature: Float[np.ndarray, " modes"]  # k_i = v_i^T X^T X v_i
    alone: Bool[np.ndarray, " modes"]  # whether v_i is a principal axis of the inputs
    begin: Float[np.ndarray, " modes"]  # u_i^T A v_i at the start
    # |W_{l-1} ... W_1 v_i|^2 |u_i^T W_L ... W_{l+1}|^2 at the start, layer by layer
    grams: Float[np.ndarray, "layers modes"]
    rest: float  # what of the start's loss is not in these entries of A
    # what the kernel makes of u_i v_i^T besides itself, at the start, over what it makes of it
    crosstalk: Float[np.ndarray, " modes"]

    @property
    def matrix(self) -> Float[np.ndarray, "d_out rank"]:
        """The predictor where training ends."""
        return (self.left * self.value) @ self.right.T


def modes_of(frame: Frame, state: Weights, u: np.ndarray, s: np.ndarray, v: np.ndarray) -> Modes:
    """What decides how the modes s_i u_i v_i^T move from this start."""
    grams = mode_grams([np.asarray(w) for w in state.layers], u, v)
    pairs = state_grams(state)
    crosstalk = np.empty(s.size)
    for i in range(s.size):
        moved = np.sum([np.outer(outputs @ u[:, i], inputs @ v[:, i]) for inputs, outputs in pairs], axis=0)
        along = float(u[:, i] @ moved @ v[:, i])
        beside = np.linalg.norm(moved - along * np.outer(u[:, i], v[:, i]))
        crosstalk[i] = beside / along if along > 0 else 0.0
    gram = frame.scales[:, None] ** 2
    curvature = np.sum(gram * v**2, axis=0)
    alone = np.linalg.norm(gram * v - curvature * v, axis=0) <= ALONE * curvature
    matrix = matrix_of(state)
    begin = np.einsum("oi,oj,ji->i", u, matrix, v)
    rest = float(np.sum(((matrix - (u * begin) @ v.T) * frame.scales) ** 2))
    return Modes(s, u, v, curvature, alone, begin, grams, rest, crosstalk)


def matrix_of(state: Weights) -> Float[np.ndarray, "d_out d_in"]:
    """A in NumPy."""
    return reduce(lambda below, w: np.asarray(w) @ below, state.layers[1:], np.asarray(state.layers[0]))


def mode_grams(layers: Sequence[np.ndarray], u: np.ndarray, v: np.ndarray) -> Float[np.ndarray, "layers modes"]:
    """|W_{l-1} ... W_1 v_i|^2 |u_i^T W_L ... W_{l+1}|^2 of each layer and mode; their sum is a mode's kernel."""
    below, above = below_and_above(layers, v, u.T)
    return np.stack([np.sum(b**2, axis=0) * np.sum(a**2, axis=1) for b, a in zip(below, above, strict=True)])


def layer_values(layers: Sequence[np.ndarray], u: np.ndarray, v: np.ndarray) -> Float[np.ndarray, "layers modes"]:
    """What each layer does to each mode: |W_1 v_i|, |u_i^T W_L|, and between what v_i grows by from layer to layer."""
    below = below_and_above(layers, v, u.T)[0]
    sizes = np.stack([np.linalg.norm(b, axis=0) for b in below])
    with np.errstate(divide="ignore", invalid="ignore"):
        grown = sizes[1:] / sizes[:-1]
    return np.concatenate([grown, np.linalg.norm(u.T @ layers[-1], axis=1)[None]])


def state_grams(state: Weights) -> Grams:
    """For each layer what its inputs and its outputs weigh: P^T P of the layers below, S S^T of those above."""
    layers = [np.asarray(w) for w in state.layers]
    below, above = below_and_above(layers, np.eye(layers[0].shape[1]), np.eye(layers[-1].shape[0]))
    return [(p.T @ p, q @ q.T) for p, q in zip(below, above, strict=True)]


def ends_of(modes: Modes, plan: Plan) -> Float[np.ndarray, "layers modes"]:
    """Layer values of each mode where gradient flow ends; balanced ones where no theory knows better."""
    s, depth = modes.value, plan.depth
    if depth == 1:
        return s[None]
    if depth == 2:
        second, first = modes.grams  # C2 and C1 of each mode
        c = np.asarray(mixed.mode_scale(first, second, modes.begin))
        shift = (first - second) / 2
        total = np.hypot(s, c) + np.abs(shift)
        # C1 C2 - s^2 is constant, so the smaller one needs no difference
        other = (s**2 + np.maximum(first * second - modes.begin**2, 0)) / total
        return np.sqrt(np.where(shift >= 0, [total, other], [other, total]))
    if plan.kind == "gaussian":
        return np.tile(s ** (1 / depth), (depth, 1))
    start = np.full((depth, s.size), plan.scale[0])
    if plan.kind == "one-zero":
        start[-1] = 0.0
    return edge.flow_values(start, s)


def kernels(values: Float[np.ndarray, "layers modes"]) -> Float[np.ndarray, " modes"]:
    """The kernel of each mode between aligned layers of these values: sum over l of prod_{m != l} y_m^2."""
    ones = np.ones(values.shape[1])
    below, above = below_and_above(list(values**2), ones, ones, operator.mul)
    return np.sum([b * a for b, a in zip(below, above, strict=True)], axis=0)


def squares(values: Float[np.ndarray, " modes"], depth: int) -> float:
    """|W_1|^2 + ... + |W_L|^2 of balanced layers, as all minima with decay have them: L sum_i s_i^{2/L}."""
    return depth * float(np.sum(values ** (2 / depth)))


def end_grams(frame: Frame, state: Weights, modes: Modes, ends: np.ndarray, plan: Plan) -> Grams:
    """As `state_grams`, where gradient flow ends."""
    u, v = modes.left, modes.right
    rank, d_out = frame.scales.size, frame.limit.shape[0]
    if plan.depth == 2 and plan.kind != "balanced":  # what the modes do not touch stays as it was drawn
        (one, second), (first, other) = state_grams(state)
        c2, c1 = modes.grams
        grown = (v * (ends[0] ** 2 - c1)) @ v.T, (u * (ends[1] ** 2 - c2)) @ u.T
        return [(one, second + grown[1]), (first + grown[0], other)]
    rest = np.eye(rank) - v @ v.T
    out = []
    for layer in range(plan.depth):
        inputs = (v * np.prod(ends[:layer] ** 2, axis=0)) @ v.T
        outputs = (u * np.prod(ends[layer + 1 :] ** 2, axis=0)) @ u.T
        if layer == 0 or plan.kind == "one-zero":
            inputs += plan.scale[0] ** (2 * layer) * rest if layer else rest
        if layer == plan.depth - 1:
            outputs = np.eye(d_out)
        out.append((inputs, outputs))
    return out


def sharpness(frame: Frame, grams: Grams) -> float:
    """The largest eigenvalue of E -> sum over layers of X P^T P X^T E S S^T: the sharpness of a minimum."""
    x = frame.scales
    if len(grams) == 2 and x[0] == x[-1]:  # then it is a sum of two that know nothing of each other
        return float(x[0] ** 2 * (np.linalg.eigvalsh(grams[1][0])[-1] + np.linalg.eigvalsh(grams[0][1])[-1]))
    return top_of_products([(x[:, None] * inputs * x, outputs) for inputs, outputs in grams])
