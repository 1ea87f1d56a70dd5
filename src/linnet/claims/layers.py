"""Linear networks as lists of NumPy matrices, first layer first, and their training written out, to compare with."""

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp

from linnet.linalg import below_and_above

Layers = Sequence[Any]
Slope = Callable[[Any], Any]  # the gradient of a cost in the end-to-end matrix


def gaussian_layers(rng: np.random.Generator, widths: Sequence[int], scale: float = 1.0) -> list[Any]:
    """Layers with entries N(0, scale^2)."""
    return [scale * rng.normal(size=(after, before)) for before, after in pairwise(widths)]


def end_to_end(layers: Layers) -> Any:
    """The end-to-end matrix W_L ... W_1."""
    return reduce(lambda below, w: w @ below, layers[1:], layers[0])


def in_frames(layers: Layers, frames: Sequence[Any]) -> np.ndarray:
    """Q_{l+1}^T W_l Q_l of every layer, `frames` being Q_1 ... Q_{L+1}."""
    return np.stack([up.T @ w @ down for w, (down, up) in zip(layers, pairwise(frames), strict=True)])


def layer_gradients(layers: Layers, slope: Slope) -> list[Any]:
    """Those of a cost on the end-to-end matrix in all layers."""
    below, above = below_and_above(layers, np.eye(layers[0].shape[1]), np.eye(layers[-1].shape[0]))
    force = slope(layers[-1] @ below[-1])
    return [up.T @ force @ down.T for down, up in zip(below, above, strict=True)]


def descent(layers: Layers, slope: Slope, lr: float, steps: int) -> Iterator[list[Any]]:
    """The layers at every step of gradient descent, the first included."""
    now = list(layers)
    yield now
    for _ in range(steps):
        now = [w - lr * g for w, g in zip(now, layer_gradients(now, slope), strict=True)]
        yield now


def gradient_flow(
    layers: Layers,
    slope: Slope,
    times: Any,
    *,
    weight_decay: float = 0.0,
    lr_multipliers: Sequence[float] | None = None,
    method: str = "DOP853",
    rtol: float = 1e-12,
    atol: float = 1e-13,
) -> list[list[Any]]:
    """The layers at these times along gradient flow, by SciPy's solvers."""
    shapes = [w.shape for w in layers]
    rates = [1.0] * len(layers) if lr_multipliers is None else lr_multipliers

    def velocity(_: float, flat: np.ndarray) -> np.ndarray:
        ws = unflattened(flat, shapes)
        slopes = zip(rates, layer_gradients(ws, slope), ws, strict=True)
        return flattened([-rate * (g + weight_decay * w) for rate, g, w in slopes])

    run = solve_ivp(velocity, (0, times[-1]), flattened(layers), method, t_eval=times, rtol=rtol, atol=atol)
    return [unflattened(flat, shapes) for flat in run.y.T]


def flattened(parts: Layers) -> np.ndarray:
    """The entries of matrices as one vector."""
    return np.concatenate([np.ravel(part) for part in parts])


def unflattened(flat: Any, shapes: Sequence[tuple[int, ...]]) -> list[Any]:
    """The matrices of these shapes that `flattened` has put into a vector."""
    ends = np.cumsum([np.prod(shape) for shape in shapes])[:-1]
    return [part.reshape(shape) for part, shape in zip(np.split(flat, ends), shapes, strict=True)]
