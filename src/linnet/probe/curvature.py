"""A measurement of curvature on the probe's batch: the largest eigenvalues, and the threshold to compare them with."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from linnet.probe.health import MANY_PARTS
from linnet.probe.lanczos import Ends, ends, inner, norm
from linnet.probe.layers import Layer, tokens
from linnet.probe.products import Differences, Largest, largest
from linnet.probe.rule import Rule, TorchOptimizers
from linnet.probe.saddle import adapters
from linnet.probe.surface import LossPoint, Surface

PRODUCTS = ("exact", "differences")
_RECORDED = 5  # eigenvalues that are recorded at least
_UNSURE = 0.05  # relative change with other displacements, above which an eigenvalue is not known
_FRESH = 3  # parts of the batch, of eight, that a direction is checked on and not searched with


class Search(NamedTuple):
    """How eigenvalues are searched: so many to `tol`, or until `matvecs` products, of one of two kinds."""

    eigenvalues: int
    tol: float
    matvecs: int
    products: str

    def measured(
        self,
        surface: Surface,
        rule: Rule,
        stepper: TorchOptimizers | None,
        layers: Sequence[Layer],
        update: torch.Tensor | None = None,
    ) -> tuple[dict[str, Any], LossPoint | None] | None:
        """The line of a measurement and the point of exact products; None where the loss or gradient is not finite.

        With the optimizer's preconditioner embeddings are held constant: their rows of rare tokens have so small a P
        that the sharpest direction of a batch is in them, and belongs to that batch alone. `update` is the optimizer's
        last change of the parameters, if it is known: it limits the displacements of differences.
        """
        threshold = rule.threshold
        scaled = stepper.root(rule, surface.dtype) if stepper is not None and threshold is not None else None
        if scaled is not None and (held := tokens(surface)) is not None and rule.adaptive:
            scaled = scaled[0] * held.to(scaled[0]), scaled[1] * held.to(scaled[1])
        if scaled is not None and not bool(scaled[0].any()):  # the optimizer has made no step
            threshold = None
        given = None if threshold is None else scaled
        exact = self.products == "exact"
        found = self._exact(surface, given) if exact else self._differences(surface, given, update)
        if found is None:
            return None
        line, top, loss, point = found
        line |= {} if rule.lr is None else {"lr": rule.lr}
        line |= {"age": rule.age, "memory": rule.memory} if rule.adaptive else {}
        line |= {} if rule.reason is None else {"reason": rule.reason}
        if rule.threshold is not None:
            line["threshold"] = rule.threshold
        if threshold is not None and not line.get("unsure"):
            if scaled is None:
                line["ratio"] = (line["sharpness"][0] + rule.weight_decay) / threshold
                line |= {"decay": rule.weight_decay} if rule.weight_decay else {}
            else:
                line["ratio"] = line["adaptive"] / threshold
        line |= adapters(surface, layers, top, loss, rule.lr)
        return line, point

    def _exact(self, surface: Surface, scaled: Any) -> tuple[dict[str, Any], Ends, float, LossPoint] | None:
        point = surface.here()
        if not math.isfinite(point.loss) or not bool(torch.isfinite(point.gradient).all()):
            return None
        found = self._ends(point.product, point.gradient, max(_RECORDED, self.eigenvalues))
        line = _line(point.loss, point.gradient, found)
        if scaled is not None:
            root, decay = scaled
            top = self._ends(lambda v: root * point.product(root * v) + decay * v, root * point.gradient, 1)
            line |= {"adaptive": float(top.values[0]), "adaptive_residual": float(top.residuals[0])}
            line["products"] += top.products + self._fresh(surface, root, decay, line)
        return line, found, point.loss, point

    def _fresh(self, surface: Surface, root: torch.Tensor, decay: torch.Tensor, line: dict[str, Any]) -> int:
        """Adds `fresh`: the curvature of the sharpest direction of five eighths of the batch on the others, relative to
        that on its own; the products that this took.
        """
        parts = surface.split(1 - _FRESH / MANY_PARTS)
        if parts is None:
            return 0
        own, other = (LossPoint(surface, part) for part in parts)
        top = ends(
            lambda v: root * own.product(root * v) + decay * v,
            _generic(root * own.gradient),
            good=1,
            count=1,
            matvecs=self.matvecs,
            tol=_UNSURE,
        )
        vector, value = top.vector, float(top.values[0])
        if value > 0:
            bent = root * other.product(root * vector) + decay * vector
            line["fresh"] = float(inner(vector, bent)) / value
        return top.products + 1

    def _ends(self, product: Any, gradient: torch.Tensor, count: int) -> Ends:
        """From the gradient: where the last search ended is no better after some steps, and a whole vector."""
        good = self.eigenvalues if count > 1 else 1
        return ends(product, _generic(gradient), good=good, count=count, matvecs=self.matvecs, tol=self.tol)

    def _differences(
        self, surface: Surface, scaled: Any, update: torch.Tensor | None
    ) -> tuple[dict[str, Any], Ends, float, None] | None:
        """The largest eigenvalue by differences of gradients. With a preconditioner the direction is that of five parts
        of the batch out of eight, and `fresh` is its curvature on the other three, relative to that on the five.
        """
        plain = Differences(surface, update=update)
        if not math.isfinite(plain.loss) or not bool(torch.isfinite(plain.gradient).all()):
            return None
        found = largest(plain, matvecs=self.matvecs)
        line = _line(plain.loss, plain.gradient, _as_ends(found))
        line |= {"change": found.change} | ({"unsure": 1.0} if found.change > _UNSURE else {})
        if scaled is not None:
            root, decay = scaled
            parts = surface.parts(MANY_PARTS)
            whole = len(parts) < MANY_PARTS
            own = Differences(surface, batches=() if whole else parts[:-_FRESH], update=update, root=root)
            top = largest(own, root=root, decay=decay, matvecs=self.matvecs)
            line |= {"adaptive": top.value, "adaptive_residual": top.error, "change": top.change}
            line |= {"unsure": 1.0} if top.change > _UNSURE else {}
            line["products"] += top.products
            if not whole and top.value > 0:
                other = Differences(surface, batches=parts[-_FRESH:], update=update, root=root)
                vector = root * top.vector
                fresh = float(inner(vector, other.product(vector)) + inner(top.vector, decay * top.vector))
                line["fresh"] = fresh / top.value
        return line, _as_ends(found), plain.loss, None


def _as_ends(found: Largest) -> Ends:
    values = torch.tensor([found.value], dtype=torch.float64)
    return Ends(values, torch.tensor([found.error], dtype=torch.float64), found.lowest, found.vector, found.products)


def _line(loss: float, gradient: torch.Tensor, found: Ends) -> dict[str, Any]:
    square = float(inner(gradient, gradient))
    along = float(inner(gradient, found.vector)) ** 2
    return {
        "batch_loss": loss,
        "gradient": math.sqrt(square),
        "sharpness": found.values.tolist(),
        "residual": found.residuals.tolist(),
        "lowest": found.lowest,
        "gradient_share": along / square if square > 0 else 0.0,
        "products": found.products,
    }


def _generic(gradient: torch.Tensor) -> torch.Tensor:
    """A search's initial vector: the gradient plus fixed noise. Curvature must not depend on a seed."""
    draw = torch.Generator(gradient.device).manual_seed(0)
    drawn = torch.randn(gradient.shape, generator=draw, dtype=gradient.dtype, device=gradient.device)
    size = float(norm(gradient))
    return drawn / float(norm(drawn)) + (gradient / size if size > 0 else 0)
