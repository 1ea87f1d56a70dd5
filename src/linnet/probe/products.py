"""Hessian products by central differences of gradients, and the largest eigenvalue from them.

H v = (g(w + e v) - g(w - e v)) / 2e needs two ordinary gradients: any kernel, checkpointed or not, at twice the time of
a gradient and without the memory of a second derivative. e is such that the gradient changes by a share tau of itself,
which balances rounding (relative error about eps / tau) with the third derivative (about tau^2).
"""

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from linnet.probe.lanczos import ends, inner, norm
from linnet.probe.surface import Surface

_SHARE = {torch.float64: 6e-6, torch.float32: 5e-3, torch.float16: 3e-2, torch.bfloat16: 5e-2}  # tau
_LOW, _HIGH = 0.1, 3.0  # of tau: outside of this the difference is computed again
_TRIES, _FACTOR = 6, 1e4  # such computations, and the change of e in one
_CAP = 0.1  # of the optimizer's last update
_FIRST = 0.01  # of the weights: the assumed distance over which the gradient changes by itself
_CHECK = 0.25  # of e: the second Rayleigh quotient


class Differences:
    """The loss at the model's current parameters, its mean over `batches` or that on the surface's own: `loss`,
    `gradient`, and products.

    `update` is the optimizer's last change of the parameters: no
    displacement is longer than a tenth of it, in the norm of P for an optimizer with the preconditioner P = `root`^-2,
    where `root` is 0 for what does not move. Weights stored in less than single precision are displaced as copies in
    single precision. `gradients` counts evaluations.
    """

    def __init__(
        self,
        surface: Surface,
        *,
        batches: Sequence[Any] = (),
        update: torch.Tensor | None = None,
        root: torch.Tensor | None = None,
    ):
        self._surface, self._batches, self._root = surface, batches or [None], root
        self.gradients = 0
        with _autocast_types(surface.device.type) as types:
            self.loss, self.gradient = self._at(None, 0.0)
        self._size, self._share = float(norm(self.gradient)), _share(surface, types)
        self._weights = float(norm(surface.flat()))
        self._curvature = self._size / (_FIRST * self._weights) if self._weights else 1.0  # |H v| of the last unit v
        self._cap = None if update is None else _CAP * self._length(update)

    def _length(self, vector: torch.Tensor) -> float:
        """In the norm of P; what does not move is left out."""
        if self._root is None:
            return float(norm(vector))
        return float(norm(torch.where(self._root > 0, vector / self._root, 0.0)))

    def _at(self, direction: torch.Tensor | None, e: float) -> tuple[float, torch.Tensor]:
        """The loss and its gradient at w + e v."""
        displaced = None if direction is None else (direction, e)
        loss, total = self._surface.gradient(displaced, self._batches[0])
        for batch in self._batches[1:]:
            value, slope = self._surface.gradient(displaced, batch)
            loss, total = loss + value, total.add_(slope)
        self.gradients += len(self._batches)
        return loss / len(self._batches), total.div_(len(self._batches))

    def _difference(self, direction: torch.Tensor, e: float) -> torch.Tensor:
        """e H v."""
        above = self._at(direction, e)[1]
        return above.sub_(self._at(direction, -e)[1]).div_(2)

    def _bounded(self, direction: torch.Tensor, e: float, size: float) -> float:
        """Not above the cap, and not so small that rounding of the weights hides it."""
        if self._cap is not None and (length := self._length(direction)) > 0:
            e = min(e, self._cap / length)
        return max(e, 8 * torch.finfo(self.gradient.dtype).eps * self._weights / size)

    def _scaled(self, direction: torch.Tensor) -> tuple[torch.Tensor, float]:
        """H v, and its e."""
        size, target = float(norm(direction)), self._share * self._size
        if not size > 0:
            return torch.zeros_like(direction), 0.0
        e = self._bounded(direction, target / (self._curvature * size), size)
        for _ in range(_TRIES):
            found = self._difference(direction, e)
            change = float(norm(found))
            if _LOW * target <= change <= _HIGH * target:
                break
            factor = min(max(target / change, 1 / _FACTOR), _FACTOR) if change > 0 else _FACTOR
            better = self._bounded(direction, e * factor, size)
            if better == e:
                break
            e = better
        else:
            found = self._difference(direction, e)
            change = float(norm(found))
        if change > 0:
            self._curvature = change / (e * size)
        return found.div_(e), e

    def product(self, direction: torch.Tensor) -> torch.Tensor:
        """The Hessian times a vector."""
        return self._scaled(direction)[0]

    def change(self, direction: torch.Tensor, *found: float) -> float:
        """The spread of v'Hv with e, with e/4, and as `found` by other products, relative to the least: large where the
        share tau of the whole gradient is the wrong scale for v, such as in a few rows of an embedding, where gradients
        jump, as with ReLU, or where rounding dominates.
        """
        product, e = self._scaled(direction)
        values = [*found, float(inner(direction, product))]
        if e:
            values.append(float(inner(direction, self._difference(direction, _CHECK * e))) / (_CHECK * e))
        spread, least = max(values) - min(values), min(map(abs, values))
        if spread == 0:
            return 0.0
        return spread / least if least and math.isfinite(spread / least) else math.inf


class Largest(NamedTuple):
    """The largest eigenvalue: `residual` bounds its error for exact products, `change` is its relative change with
    other displacements, `lowest` a bound on the smallest eigenvalue from above.
    """

    value: float
    residual: float
    change: float
    lowest: float
    vector: torch.Tensor
    products: int

    @property
    def error(self) -> float:
        """The error bar of the value, that of the search and that of its products; none where `change` is above 0.05:
        there the value is to be left out.
        """
        return self.residual + self.change * abs(self.value)


def largest(
    differences: Differences,
    *,
    root: torch.Tensor | None = None,
    decay: torch.Tensor | None = None,
    first: torch.Tensor | None = None,
    matvecs: int = 40,
    tol: float = 0.05,
    least: int = 6,
    vectors: int = 5,
) -> Largest:
    """The top of root H root + decay by Lanczos with `vectors` basis vectors, from the gradient or from `first`, until
    its residual is below `tol` times the value. The vector is that of the scaled matrix, of length 1.
    """

    def scaled(v: torch.Tensor) -> torch.Tensor:
        return v.clone() if root is None else root * v

    def product(v: torch.Tensor) -> torch.Tensor:
        found = differences.product(scaled(v))
        found = found if root is None else found.mul_(root)
        return found if decay is None else found.add_(decay * v)

    vector = scaled(differences.gradient) if first is None else first
    found = ends(product, vector, good=1, matvecs=matvecs, tol=tol, least=least, vectors=vectors)
    value, vector = float(found.values[0]), found.vector
    of_decay = 0.0 if decay is None else float(inner(vector, decay * vector))
    return Largest(
        value=value,
        residual=float(found.residuals[0]),
        change=differences.change(scaled(vector), value - of_decay),
        lowest=found.lowest,
        vector=vector,
        products=found.products,
    )


def _share(surface: Surface, types: set[torch.dtype]) -> float:
    """tau of the least precise arithmetic that the gradient uses."""
    tf32 = surface.device.type == "cuda" and torch.get_float32_matmul_precision() != "highest"
    used = {surface.dtype, *types} | ({torch.float16} if tf32 and surface.dtype == torch.float32 else set())
    return max(_SHARE[dtype] for dtype in used)


@contextlib.contextmanager
def _autocast_types(kind: str) -> Iterator[set[torch.dtype]]:
    """The types that autocast has on while modules are called."""
    types = set[torch.dtype]()

    def observe(module: torch.nn.Module, inputs: Any) -> None:
        if torch.is_autocast_enabled(kind):
            types.add(torch.get_autocast_dtype(kind))

    hook = torch.nn.modules.module.register_module_forward_pre_hook(observe)
    try:
        yield types
    finally:
        hook.remove()
