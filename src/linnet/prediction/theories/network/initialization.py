"""What closed forms need to know of a network's initialization."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

_EQUAL = 1e-12  # relative


class Initialization(NamedTuple):
    """Depth, hidden widths, and how the layers lie to the modes.

    - `kind`: "one-zero" (orthonormal layers times alpha, the last one zero), "balanced" (alpha in all layers along the
      modes and zero beside them), or "gaussian" (any others, such as Gaussian ones).
    - `scale`: one number a layer: alpha, or the root mean square of its entries.
    """

    kind: str
    depth: int
    hidden: tuple[int, ...]
    scale: tuple[float, ...]

    @property
    def aligned(self) -> bool:
        """Whether the layers share the modes' singular vectors: each mode moves alone on a principal axis."""
        return self.kind != "gaussian"

    @property
    def mixed(self) -> bool:
        """Whether the mixed dynamics of two layers hold, mode by mode, up to what modes share."""
        return self.depth == 2 and not self.aligned

    @property
    def unknown(self) -> bool:
        """Whether no closed form follows the modes: deep layers that are not aligned."""
        return self.depth > 2 and not self.aligned

    def spare(self, layers: Sequence[np.ndarray], compressed: bool) -> tuple[bool, ...]:
        """Whether the hidden layers have more neurons than these layers have weights for."""
        return tuple(compressed or width > w.shape[0] for width, w in zip(self.hidden, layers, strict=False))


def recognized(
    layers: Sequence[np.ndarray], hidden: Sequence[int], u: np.ndarray, v: np.ndarray
) -> tuple[Initialization, list[np.ndarray]]:
    """The initialization of layers with these modes (columns of u and v), and the layers in their smallest form."""
    depth, layers = len(layers), list(layers)
    alpha = float(np.linalg.norm(layers[0] @ v[:, 0]))
    (d_out, _), rank, modes = layers[-1].shape, layers[0].shape[1], v.shape[1]
    if depth == 1 and not np.any(layers[0]):
        return Initialization("one-zero", 1, (), (0.0,)), layers
    if depth > 1 and alpha > 0 and not np.any(layers[-1]) and all(_isometry(w, alpha) for w in layers[:-1]):
        found = Initialization("one-zero", depth, tuple(hidden), (alpha,) * depth)
        return found, [*[alpha * np.eye(rank)] * (depth - 1), np.zeros((d_out, rank))]
    if alpha > 0 and _balanced(layers, alpha, u, v):
        found = Initialization("balanced", depth, tuple(hidden), (alpha,) * depth)
        inner = [alpha * v.T, *[alpha * np.eye(modes)] * (depth - 2), alpha * u]
        return found, layers if depth == 1 else inner
    scale = tuple(float(np.sqrt(np.mean(w**2))) for w in layers)
    return Initialization("gaussian", depth, tuple(hidden), scale), layers


def _isometry(layer: np.ndarray, alpha: float) -> bool:
    """Whether W^T W = alpha^2 I."""
    scaled = layer / alpha
    return bool(np.max(np.abs(scaled.T @ scaled - np.eye(layer.shape[1]))) <= _EQUAL)


def _balanced(layers: Sequence[np.ndarray], alpha: float, u: np.ndarray, v: np.ndarray) -> bool:
    """Whether W_{l+1}^T W_{l+1} = W_l W_l^T, W_1^T W_1 = alpha^2 V V^T, and the product is alpha^L U V^T."""
    scaled = [w / alpha for w in layers]
    product = v
    for w in scaled:
        product = w @ product
    apart = [np.max(np.abs(above.T @ above - w @ w.T)) for w, above in pairwise(scaled)]
    first = np.max(np.abs(scaled[0].T @ scaled[0] - v @ v.T))
    return bool(max(first, *apart, np.max(np.abs(product - u))) <= len(layers) * _EQUAL)
