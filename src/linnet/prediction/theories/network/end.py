"""Where training ends: the layers' singular values, the kernels, and the sharpness there."""

import enum
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from linnet.prediction.reduced import ReducedRegression
from linnet.prediction.theories.network.following import feasible
from linnet.prediction.theories.network.initialization import Initialization
from linnet.prediction.theories.network.modes import (
    Grams,
    Layers,
    NetworkModes,
    final_grams,
    final_values,
    kernel_sharpness,
    kernels,
    layer_values,
    mode_grams,
)
from linnet.prediction.theories.network.objective import Flat, Objective, flat


class NetworkEnd(enum.StrEnum):
    """Which end learning rates and regimes refer to."""

    REACHED = "reached"  # the one that this initialization leads to
    ESTIMATED = "estimated"  # the same, as if its modes shared no neurons
    BALANCED = "balanced"  # that of balanced layers: where this initialization leads is unknown


class End(NamedTuple):
    """Where training ends: layer values and kernels of the modes, sharpness, and the weights where they are known."""

    kind: NetworkEnd
    layers: Float[np.ndarray, "layers modes"]
    kernel: Float[np.ndarray, " modes"]
    sharpness: float
    weights: Flat | None = None

    def growth(self, modes: NetworkModes) -> Float[np.ndarray, " modes"]:
        """Each mode's kernel over that at initialization."""
        begin = modes.kernel
        return np.divide(self.kernel, begin, out=np.full(begin.size, np.inf), where=begin > 0)


def reached(objective: Objective, modes: NetworkModes, weights: Flat) -> End:
    """The end with these weights."""
    layers, (u, v) = objective.layers(weights), (modes.left, modes.right)
    kernel = np.sum(mode_grams(layers, u, v), axis=0)
    return End(NetworkEnd.REACHED, layer_values(layers, u, v), kernel, objective.sharpness(weights), weights)


def expected(
    reduction: ReducedRegression,
    objective: Objective,
    layers: Layers,
    modes: NetworkModes,
    initialization: Initialization,
) -> End:
    """The end by closed forms, with the Hessian there where it is cheap."""
    values = final_values(modes, initialization)
    known = initialization.aligned and (
        modes.alone.all() or (initialization.kind == "one-zero" and initialization.depth == 2)
    )
    unknown = NetworkEnd.BALANCED if initialization.unknown else NetworkEnd.ESTIMATED
    weights = None
    if initialization.mixed or not feasible(objective):
        grams = final_grams(reduction, layers, modes, values, initialization)
        top = sharpness_bound(reduction, objective, grams, modes.matrix)
    else:
        final = _aligned(modes, initialization, values)
        weights = flat(final)
        spare = initialization.spare(final, compressed=False)
        top = Objective(reduction, final, spare).sharpness(weights)
    return End(NetworkEnd.REACHED if known else unknown, values, kernels(values), top, weights)


def sharpness_bound(
    reduction: ReducedRegression, objective: Objective, grams: Grams, matrix: Float[np.ndarray, "d_out rank"]
) -> float:
    """The curvature of the kernel plus the most that the residual adds to it: its norm with two layers."""
    left = float(np.linalg.norm(objective.matrix_gradient(matrix), 2))
    rounding = 1e-9 * float(np.linalg.norm(objective.limit * objective.gram))
    return kernel_sharpness(reduction, grams) + (left if left > rounding else 0.0)


def _aligned(
    modes: NetworkModes, initialization: Initialization, values: Float[np.ndarray, "layers modes"]
) -> list[np.ndarray]:
    """Layers of these values along the modes; from one-zero, the directions beside the modes keep alpha."""
    u, v = modes.left, modes.right
    if initialization.depth == 1:
        return [modes.matrix]
    if initialization.kind != "one-zero":
        return [values[0][:, None] * v.T, *(np.diag(y) for y in values[1:-1]), u * values[-1]]
    rest = initialization.scale[0] * (np.eye(len(v)) - v @ v.T)
    return [*((v * y) @ v.T + rest for y in values[:-1]), (u * values[-1]) @ v.T]
