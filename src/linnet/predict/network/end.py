"""Where a network ends: its layers there, its kernels and how sharp it is."""

import enum
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from linnet.predict.frame import Frame
from linnet.predict.network.chain import Chain, Flat, flat
from linnet.predict.network.modes import Grams, Modes, end_grams, ends_of, kernels, layer_values, mode_grams, sharpness
from linnet.predict.network.path import feasible
from linnet.predict.network.plan import Plan
from linnet.states import Weights


class NetworkEnd(enum.StrEnum):
    """Whose end it is that step sizes and regimes are told of."""

    REACHED = "reached"  # by this start
    ESTIMATED = "estimated"  # by this start, as if its modes shared no neurons
    BALANCED = "balanced"  # that of balanced layers: nobody knows where this start ends


class End(NamedTuple):
    """Where it ends."""

    kind: NetworkEnd
    layers: Float[np.ndarray, "layers modes"]  # singular values of the modes, layer by layer
    kernel: Float[np.ndarray, " modes"]
    sharpness: float
    weights: Flat | None = None  # where they are known


def reached(chain: Chain, modes: Modes, weights: Flat) -> End:
    """The end with these weights."""
    layers, (u, v) = chain.layers(weights), (modes.left, modes.right)
    kernel = np.sum(mode_grams(layers, u, v), axis=0)
    return End(NetworkEnd.REACHED, layer_values(layers, u, v), kernel, chain.sharpness(weights), weights)


def expected(frame: Frame, chain: Chain, state: Weights, modes: Modes, plan: Plan) -> End:
    """The end as closed forms have it, with the whole Hessian there if that is cheap."""
    values = ends_of(modes, plan)
    known = plan.aligned and (modes.alone.all() or (plan.kind == "one-zero" and plan.depth == 2))
    kind = NetworkEnd.REACHED if known else NetworkEnd.BALANCED if plan.guess else NetworkEnd.ESTIMATED
    weights = None
    if plan.drawn or not feasible(chain):
        top = at_most(frame, chain, end_grams(frame, state, modes, values, plan), modes.matrix)
    else:
        layers = _aligned(modes, plan, values)
        weights = flat(layers)
        top = Chain(frame, layers, plan.hidden).sharpness(weights)
    return End(kind, values, kernels(values), top, weights)


def at_most(frame: Frame, chain: Chain, grams: Grams, matrix: Any) -> float:
    """The curvature of the kernel, and what the residual adds to it at most: its own size with two layers."""
    left = float(np.linalg.norm(chain.force(np.asarray(matrix)), 2))
    rounding = 1e-9 * float(np.linalg.norm(chain.limit * chain.gram))
    return sharpness(frame, grams) + (left if left > rounding else 0.0)


def _aligned(modes: Modes, plan: Plan, values: Float[np.ndarray, "layers modes"]) -> list[np.ndarray]:
    """Layers of these values along the modes; from one-zero, what the modes do not touch stays as it was."""
    u, v = modes.left, modes.right
    if plan.depth == 1:
        return [modes.matrix]
    if plan.kind != "one-zero":
        return [values[0][:, None] * v.T, *(np.diag(y) for y in values[1:-1]), u * values[-1]]
    rest = plan.scale[0] * (np.eye(len(v)) - v @ v.T)
    return [*((v * y) @ v.T + rest for y in values[:-1]), (u * values[-1]) @ v.T]
