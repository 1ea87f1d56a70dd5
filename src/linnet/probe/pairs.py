"""What two-layer theory predicts of a pair of factors from its initialization, all other parameters constant.

A loss that depends on two factors through P = s W_2 W_1 alone has the gradients s W_2^T G and s G W_1^T in them,
G = dL/dP. They determine the part of G that the factors reach, P_2 G + (1 - P_2) G P_1 with projections on the range of
W_2 and the rows of W_1. Its top singular vectors -u, v are the steepest mode. With x = W_1 v and y = W_2^T u, its value
is a = s x.y and its kernel k = s^2 (|x|^2 + |y|^2). While it is alone, and u and v are constant,

    k = 2 s hypot(a, c),  c^2 = (s/2)^2 (|x|^2 + |y|^2)^2 - a^2 at initialization,

for any width and imbalance (`theory.mixed.mode_scale`): c = s |lambda| / 2 between balanced layers. One product with
the Hessian gives the curvature q of the loss along the mode, so that the value a + g/q is needed, g being the slope, if
the loss is quadratic there. Then the kernel grows by hypot(a + g/q, c) / hypot(a, c), which decides lazy or rich; and
nowhere in between is the curvature in the factors larger than at both ends (`theory.mixed.mode_sharpness`), which gives
the largest stable learning rate of the pair.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from linnet.probe.lanczos import ends
from linnet.probe.layers import Factor, Layer
from linnet.probe.surface import LossPoint, Surface
from linnet.theory.regime import Regime

_PRODUCTS, _TOL = 6, 0.02  # of the search for a pair's own sharpness
_REACHED = 1e-4  # of a factor's norm: directions in which it has less are out of reach


class Mode(NamedTuple):
    """The steepest mode of a pair: singular vectors of its product, and its kernel at initialization."""

    left: torch.Tensor
    right: torch.Tensor
    kernel: float

    def measure(self, layer: Layer) -> dict[str, float]:
        """Its value u^T P v, and the growth of its kernel since initialization."""
        x, y = self.halves(layer)
        return {
            "mode_value": layer.scale * float(x @ y),
            "mode_growth": layer.scale**2 * float(x @ x + y @ y) / self.kernel,
        }

    def halves(self, layer: Layer) -> tuple[torch.Tensor, torch.Tensor]:
        """W_1 v and W_2^T u."""
        first, second = layer.matrices()
        return first @ self.right, second.T @ self.left


def predicted(
    surface: Surface,
    point: LossPoint,
    layers: Sequence[Layer],
    matvecs: int,
    threshold: float | None,
    weight_decay: float = 0.0,
) -> tuple[list[dict[str, Any]], dict[int, Mode]]:
    """Predictions of pairs, those with the largest gradients first, until `matvecs` products are made; their modes.

    `threshold` is the stability threshold at a learning rate of 1, weight decay included; None where there is none, as
    for optimizers with a preconditioner.
    """
    slopes = surface.parted(point.gradient)
    found = []
    for i, layer in enumerate(layers):
        if len(layer.factors) == 2 and not _same(*layer.factors):
            gradients = [factor.matrix(slopes) for factor in layer.factors]
            found.append((sum(float((g**2).sum()) for g in gradients), i, gradients))
    wholes = surface.slopes([layer.base for layer in layers]) if any(layer.base is not None for layer in layers) else []
    predictions, modes, made = list[dict[str, Any]](), dict[int, Mode](), 0
    for _, i, gradients in sorted(found, key=lambda one: -one[0]):
        if made >= matvecs:
            break
        pair = _Pair(surface, layers[i], gradients, wholes[i] if wholes else None)
        if not pair.moves:
            continue
        modes[i] = pair.mode
        line, products = pair.prediction(point, threshold, weight_decay)
        made += products
        predictions.append({"layer": i, **line})
    return predictions, modes


def _same(first: Factor, second: Factor) -> bool:
    return first.weight is second.weight and (first.rows, first.columns) == (second.rows, second.columns)


class _Pair:
    """A pair at initialization: its matrices, their gradients, and the steepest mode that they reach."""

    def __init__(self, surface: Surface, layer: Layer, gradients: Sequence[torch.Tensor], whole: torch.Tensor | None):
        self._surface, self._layer, self._gradients, self._whole = surface, layer, gradients, whole
        self._first, self._second = layer.matrices()
        self._inverses = [torch.linalg.pinv(part, rtol=_REACHED) for part in (self._first, self._second)]
        (one, two), (below, above) = gradients, self._inverses
        # -(P_2 G + (1 - P_2) G P_1) s by two thin factors
        over, upper = torch.linalg.qr(torch.cat([-above.T, self._second @ (above @ two) - two], dim=1))
        under, lower = torch.linalg.qr(torch.cat([one.T, below], dim=1))
        left, values, right = torch.linalg.svd(upper @ lower.T)
        self._squares = (values / layer.scale) ** 2
        mode = Mode(over @ left[:, 0], under @ right[0], 1.0)
        self._x, self._y = mode.halves(layer)
        self.mode = mode._replace(kernel=layer.scale**2 * float(self._x @ self._x + self._y @ self._y))

    @property
    def moves(self) -> bool:
        """Whether its gradient is not zero."""
        return bool(self._squares[0] > 0) and self.mode.kernel > 0

    def prediction(self, point: LossPoint, threshold: float | None, weight_decay: float) -> tuple[dict[str, Any], int]:
        """What is predicted, with its assumptions as relative errors; the number of products that it took."""
        s, (d, length), curvatures = self._layer.scale, self._direction(), list[float]()

        def product(vector: torch.Tensor) -> torch.Tensor:
            found = self._product(point, vector)
            curvatures.append(float(vector @ found))
            return found

        top = ends(product, d, good=1, matvecs=_PRODUCTS, tol=_TOL)
        slope = -sum(float((g * part).sum()) for g, part in zip(self._gradients, self._parted(d), strict=True))
        value = s * float(self._x @ self._y)
        line: dict[str, Any] = {
            "value": value,
            "slope": slope / length,
            "share": float(self._squares[0] / self._squares.sum()),
            "reach": self._reach(),
            "imbalance": mode_scale(s * float(self._x @ self._x), s * float(self._y @ self._y), value),
            "curvature": curvatures[0] * float(d @ d) / length**2,  # the search begins with d over its own length
            "sharpness": float(top.values[0]),
            "residual": float(top.residuals[0]),
        }
        assumptions = {"product": self._product_error(), "aligned": self._misalignment()}
        line |= dict.fromkeys(("end", "growth", "regime", "sharpness_end", "largest_lr"))
        if line["curvature"] > 0:
            line |= _ended(line, s)
            assumptions["sharpness"] = abs(line.pop("sharpness_formula") / line["sharpness"] - 1)
            most = max(line["sharpness"] + line["residual"], line["sharpness_end"])
            line["largest_lr"] = None if threshold is None else threshold / (most + weight_decay)
        return line | {"assumptions": assumptions}, top.products

    def _direction(self) -> tuple[torch.Tensor, float]:
        """The least change of one factor that moves P along the mode, and how far it moves it: at most 1.

        One factor alone, W_1 or W_2, because P is linear in it: the Hessian's block of it is J^T H_P J, without G.
        """
        (below, above), (u, v), s = self._inverses, self.mode[:2], self._layer.scale
        change = [torch.zeros_like(part) for part in (self._first, self._second)]
        reach = float((self._second @ (above @ u)).norm()), float((below @ (self._first @ v)).norm())
        if reach[0] > reach[1]:
            change[0] = torch.outer(above @ u, v) / s
        else:
            change[1] = torch.outer(u, below.T @ v) / s
        return torch.cat([part.reshape(-1) for part in change]), max(reach)

    def _reach(self) -> float | None:
        """How much of |G|^2 the factors reach; None if that is not all of it and there is no matrix beside them."""
        ranks = [int(torch.linalg.matrix_rank(part, rtol=_REACHED)) for part in (self._first, self._second)]
        if ranks[0] == self._first.shape[1] or ranks[1] == self._second.shape[0]:
            return 1.0
        return None if self._whole is None else float(self._squares.sum() / (self._whole**2).sum())

    def _parted(self, vector: torch.Tensor) -> list[torch.Tensor]:
        """A vector of W_1's entries and then of W_2's, as two matrices."""
        shapes = self._first.shape, self._second.shape
        pieces = torch.split(vector, [shape.numel() for shape in shapes])
        return [piece.reshape(shape) for piece, shape in zip(pieces, shapes, strict=True)]

    def _product(self, point: LossPoint, vector: torch.Tensor) -> torch.Tensor:
        """The Hessian's block of the pair's entries, times a vector."""
        factors = self._layer.factors
        owned = {id(part) for factor in factors for part in (factor.weight, factor.bias)}
        into = {
            id(weight): torch.zeros_like(weight, dtype=self._surface.dtype, requires_grad=False)
            for weight in self._surface.weights
            if id(weight) in owned
        }
        for factor, part in zip(factors, self._parted(vector), strict=True):
            factor.put(part, into)
        found = point.block(into)
        return torch.cat([factor.matrix(found).reshape(-1) for factor in factors])

    def _misalignment(self) -> float:
        """The sine between u v^T and where gradients along it move P: 0 if u, v are eigenvectors of C2 and C1."""
        x, y = self._x, self._y
        squares = (self._first.T @ x).square().sum() + (self._second @ y).square().sum() + 2 * (x @ x) * (y @ y)
        return math.sqrt(max(0.0, 1 - float((x @ x + y @ y) ** 2 / squares)))

    def _product_error(self) -> float:
        """How far g_1 W_1^T is from W_2^T g_2: both are s W_2^T G W_1^T if the loss depends on the product alone."""
        (one, two), first, second = self._gradients, self._first, self._second
        size = float((one.norm() + two.norm()) * (first.norm() + second.norm()))
        return float((one @ first.T - second.T @ two).norm()) / size


def mode_scale(first: float, second: float, value: float) -> float:
    """`theory.mixed.mode_scale` in plain floats."""
    mean = (first + second) / 2
    return math.sqrt(max(mean - abs(value), 0.0)) * math.sqrt(mean + abs(value))


def mode_sharpness(value: float, target: float, c: float, kappa: float) -> float:
    """`theory.mixed.mode_sharpness` in plain floats."""
    return kappa * (math.hypot(value, c) + math.hypot(target - 2 * value, c))


def _ended(line: dict[str, Any], scale: float) -> dict[str, Any]:
    """Where the mode ends, the kernel and the sharpness there, and the same formula's sharpness at initialization."""
    value, c, curvature = line["value"], line["imbalance"], line["curvature"]
    end = value + line["slope"] / curvature
    first, last = math.hypot(value, c), math.hypot(end, c)
    least = c if value * end < 0 else min(first, last)  # a mode that changes its sign passes through zero
    initial, final = (mode_sharpness(a, end, c, curvature * scale) for a in (value, end))
    return {
        "end": end,
        "growth": last / first,
        "regime": Regime.of_growth(max(first, last) / least if least > 0 else math.inf).value,
        "sharpness_formula": initial,
        "sharpness_end": final,
    }
