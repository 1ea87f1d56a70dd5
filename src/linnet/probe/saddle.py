"""The saddle at which adapters are initialized, from one gradient.

An adapter makes W = W_0 + s B A. Where A = B = 0 the Hessian of the loss in (A, B) is s [[0, G^T], [G, 0]] (x) I_r with
G = dL/dW, and blocks of different adapters vanish: its largest eigenvalue is max_l s_l |G_l|, its lowest the mirror,
each r times. Near it gradient descent is linear: with G = sum_i sigma_i u_i v_i^T, a = A v_i and b = B^T u_i, the part
a - b grows by 1 + lr s sigma_i a step, a + b by 1 - lr s sigma_i, and the loss falls as sum_i s sigma_i a.b does.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from linnet._input import InputError
from linnet.probe.lanczos import Ends
from linnet.probe.layers import Layer, spectral_norm
from linnet.probe.summary import SADDLE_TOLERANCE
from linnet.probe.surface import Surface

FALL = 0.05  # of the loss, at which the saddle is left
_SLOWEST = 0.5  # of the fastest growth: slower ones come too late to matter


def adapters(surface: Surface, layers: Sequence[Layer], top: Ends, loss: float, lr: float | None) -> dict[str, Any]:
    """A measurement of adapters: the saddle's sharpness and its layer, the share of the measured sharpness that their
    own product makes, and the steps until gradient descent leaves the saddle, while the two sharpnesses agree.
    """
    if all(layer.base is None for layer in layers):
        return {}
    slopes = surface.slopes([layer.base for layer in layers])
    for i, layer in enumerate(layers):  # some adapters store the transposed matrix
        slope, sides = slopes[i], tuple(factor.weight.shape for factor in layer.factors)
        if slope is not None and slope.shape != (sides[1][0], sides[0][1]):
            slopes[i] = slope.T
    found, measured = saddle(layers, slopes), float(top.values[0])
    if found is None or not measured > 0:
        return {}
    parts = surface.parted(top.vector)
    line: dict[str, Any] = {"saddle": found.sharpness, "saddle_layer": found.layer}
    line["saddle_share"] = share(layers, slopes, parts) / measured
    if lr is not None and abs(found.sharpness / measured - 1) < SADDLE_TOLERANCE:
        line["escape"] = escape(layers, slopes, loss, lr, found.sharpness)
    return line


def spreads(given: Any) -> dict[str, float]:
    """Mean and spread of a model's outputs over the batch, and the spread of the labels."""
    try:
        outputs, labels = (torch.as_tensor(part).detach().double() for part in given)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(
            "outputs must give two tensors: the model's outputs for the batch, and their labels."
        ) from None
    if outputs.ndim == 0 or labels.ndim == 0 or len(outputs) != len(labels) or len(outputs) < 2:
        raise InputError("outputs must give two tensors with a row for each of two or more samples.")
    spread, labels_spread = (float(part.var(0, correction=0).mean().sqrt()) for part in (outputs, labels))
    return {"output_mean": float(outputs.mean()), "output_spread": spread, "label_spread": labels_spread}


class Saddle(NamedTuple):
    """The largest curvature if all adapters were 0, and the layer in which it is."""

    sharpness: float
    layer: int


def saddle(layers: Sequence[Layer], slopes: Sequence[torch.Tensor | None]) -> Saddle | None:
    """max_l s_l |dL/dW_l|; None without adapters. Layers of a smaller Frobenius norm are skipped."""
    sizes = [
        (layer.scale * float(torch.linalg.matrix_norm(slope)), i)
        for i, (layer, slope) in enumerate(zip(layers, slopes, strict=True))
        if slope is not None
    ]
    best: Saddle | None = None
    for size, i in sorted(sizes, reverse=True):
        slope = slopes[i]
        if slope is None or (best is not None and size <= best.sharpness):
            break
        found = layers[i].scale * spectral_norm(slope)
        best = Saddle(found, i) if best is None or found > best.sharpness else best
    return best


def share(layers: Sequence[Layer], slopes: Sequence[torch.Tensor | None], parts: dict[int, torch.Tensor]) -> float:
    """The part of a curvature d^T H d from the factors' own product: sum_l 2 s_l <G_l, dB_l dA_l>, exactly.

    The rest is <dW, H_W dW> with dW = s (dB A + B dA), the network's curvature along the adapters' directions. `parts`
    are the pieces of d by the id of their parameter.
    """
    total = 0.0
    for layer, slope in zip(layers, slopes, strict=True):
        if slope is not None:
            first, second = (parts[id(factor.weight)].double() for factor in layer.factors)
            total += 2 * layer.scale * float((slope * (second @ first)).sum())
    return total


def escape(
    layers: Sequence[Layer], slopes: Sequence[torch.Tensor | None], loss: float, lr: float, top: float
) -> float | None:
    """Steps of gradient descent until the loss is 5 % lower, to first order in the products; None without growth."""
    rows = []
    for layer, slope in zip(layers, slopes, strict=True):
        if slope is None or layer.scale * float(torch.linalg.matrix_norm(slope)) < _SLOWEST * top:
            continue
        left, values, right = torch.linalg.svd(slope, full_matrices=False)
        first, second = layer.matrices()
        a, b = right @ first.T, left.T @ second
        rows.append(torch.stack([layer.scale * values, ((a - b) ** 2).sum(1), ((a + b) ** 2).sum(1)]).cpu().numpy())
    if not rows or not loss > 0 or not lr > 0:
        return None
    curvature, growing, fading = np.concatenate(rows, axis=1)
    grow, fade = np.log1p(lr * curvature), np.log(np.maximum(np.abs(1 - lr * curvature), 1e-300))

    def fallen(step: float) -> float:
        with np.errstate(over="ignore", invalid="ignore"):
            gained = np.where(growing > 0, growing * np.expm1(2 * step * grow), 0.0)
            return float(np.sum(curvature * (gained - fading * np.expm1(2 * step * fade))) / 4)

    target, most = FALL * loss, 1.0
    while fallen(most) < target:
        most *= 2
        if most > 1e15:
            return None
    least = 0.0
    while most - least > 1e-3 * max(most, 1.0):
        middle = (least + most) / 2
        least, most = (middle, most) if fallen(middle) < target else (least, middle)
    return most
