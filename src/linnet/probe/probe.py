"""Watching a PyTorch training with the eyes of theory."""

import math
import os
import time
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from linnet import _check
from linnet._check import InputError
from linnet.probe import words
from linnet.probe.lanczos import Ends, ends
from linnet.probe.layers import Layer, layers_of
from linnet.probe.record import Record, dataset
from linnet.probe.saddle import adapters, spreads
from linnet.probe.surface import Loss, Point, Surface

if TYPE_CHECKING:
    import xarray

_FLUSH = 50  # steps between two reads of what was computed on the device


class ProbeWarning(UserWarning):
    """The probe cannot see something; the training goes on."""


class Rule(NamedTuple):
    """What theory needs to know of an optimiser."""

    lr: float | None
    beta: float = 0.0
    nesterov: bool = False
    adaptive: bool = False

    @property
    def threshold(self) -> float | None:
        """The curvature above which it does not settle: 2/lr, 2(1 + b)/lr, 2(1 + b)/((1 + 2b) lr) for Nesterov's form;
        of the preconditioned Hessian 2(1 + b)/((1 - b) lr) for Adam (`optimisers/C1` to C3).
        """
        if not self.lr:
            return None
        from linnet.theory.optimisers import stability_limit

        return float(stability_limit(self.lr, beta=self.beta, nesterov=self.nesterov, average=self.adaptive))


class Probe:
    """Looks at a training from time to time, records what theory speaks about, and says what it means.

        probe = ln.probe.Probe(model, loss_fn, batch, optimiser=optimiser)
        for step, (x, y) in enumerate(loader):
            ...                                  # a training step as always
            probe.look(step, loss)

    - `loss_fn(model, batch)`: the loss as one number, on a `batch` that stays the same for all looks.
    - `lr` and `momentum`, or the `optimiser` (a torch.optim one, asked at each look): what the edge of stability is.
    - `budget`: the share of the training's time that looks may take. `every`: a look at every so many steps instead.
      Looks come in pairs at consecutive steps, because an orbit at the edge has two sides.
    - `eigenvalues`: how many of the largest; `tol`: the relative residual at which the first is good enough.
    - `folder`: where the record is written while training goes on.
    - `pairs`: names of two parameters whose product matters, the first one first; adapters of peft, linear layers next
      to each other and heads of attention are found.
    - `outputs(model, batch)`: what the model gives for the batch and what it should give, to see whether the first has
      become one constant.
    - `training`: whether to look in training mode, with dropout (the same at all looks); by default in evaluation mode.

    It changes nothing: gradients, buffers, generators and modes are after a look what they were before. What cannot be
    seen is told in one warning, and the training goes on.
    """

    def __init__(
        self,
        model: Any,
        loss_fn: Loss,
        batch: Any,
        *,
        lr: float | None = None,
        momentum: float | None = None,
        optimiser: Any = None,
        budget: float = 0.05,
        every: int | None = None,
        eigenvalues: int = 5,
        tol: float = 2e-3,
        matvecs: int = 60,
        folder: str | os.PathLike[str] | None = None,
        training: bool = False,
        pairs: Sequence[tuple[str, str]] = (),
        outputs: Callable[[Any, Any], tuple[Any, Any]] | None = None,
    ):
        self.surface = Surface(model, loss_fn, batch, training=training)
        if optimiser is not None and (lr is not None or momentum is not None):
            raise InputError("lr and momentum are not allowed beside optimiser: it knows its own.")
        if optimiser is not None and not isinstance(optimiser, torch.optim.Optimizer):
            raise InputError(f"optimiser = {_check.show(optimiser)} is not allowed: give a torch.optim optimiser.")
        self._optimiser = optimiser
        self._given = Rule(
            None if lr is None else _check.real("lr", lr, above=0),
            0.0 if momentum is None else _check.real("momentum", momentum, least=0, below=1),
        )
        self._budget = _check.real("budget", budget, above=0, most=1)
        self._every = None if every is None else _check.integer("every", every, least=2)
        self._count = _check.integer("eigenvalues", eigenvalues, least=1)
        self._tol = _check.real("tol", tol, above=0, below=1)
        self._matvecs = _check.integer("matvecs", matvecs, least=2)
        if outputs is not None and not callable(outputs):
            raise InputError(
                f"outputs = {_check.show(outputs)} is not allowed: it must be a function of (model, batch)."
            )
        self._outputs = outputs
        self.layers: list[Layer] = layers_of(self.surface, pairs)
        self._begin = [layer.begin() for layer in self.layers]
        about = {
            "parameters": sum(w.numel() for w in self.surface.weights),
            "precision": str(self.surface.dtype).removeprefix("torch."),
            "device": str(self.surface.device),
            "layers": [layer.name for layer in self.layers],
            "eigenvalues": self._count,
        }
        self._record = Record(about, folder)
        self._waiting: list[dict[str, Any]] = []  # steps whose numbers are still on the device
        self._last: torch.Tensor | None = None
        self._moved: torch.Tensor | None = None
        self._start: torch.Tensor | None = None
        self._pair: tuple[int, torch.Tensor, torch.Tensor] | None = None
        self._next, self._second = 0, False
        self._spent = 0.0
        self._began = time.perf_counter()
        self._blind = False

    # Looking ---------------------------------------------------------------------------------------------------------

    def look(self, step: int, loss: Any = None) -> None:
        """To be called after each step, with the loss that the training has seen, if it is at hand."""
        number = _check.integer("step", step, least=0)
        began = time.perf_counter()
        self._waiting.append({"kind": "step", "step": number, **self._passing(loss)})
        dear = not self._blind and (self._second or number >= self._next)
        if dear:
            self.flush()
            self._look(number, time.perf_counter())
        elif len(self._waiting) >= _FLUSH:
            self.flush()
        self._spent += time.perf_counter() - began

    def _passing(self, loss: Any) -> dict[str, Any]:
        """What costs nothing: the loss, how far the step went, and the cosine with the step before."""
        seen: dict[str, Any] = {}
        if loss is not None:
            seen["loss"] = loss.detach().clone() if isinstance(loss, torch.Tensor) else float(loss)
        here = self.surface.flat()
        if self._last is not None and self._last.shape == here.shape:
            moved = here - self._last
            seen["moved"] = torch.linalg.vector_norm(moved)
            if self._moved is not None:
                seen["flip"] = torch.nn.functional.cosine_similarity(moved, self._moved, dim=0, eps=0)
            self._moved = moved
        self._last = here
        return seen

    def flush(self) -> None:
        """Reads what was computed on the device, and writes it."""
        lines = [
            {name: float(x) if isinstance(x, torch.Tensor) else x for name, x in line.items()} for line in self._waiting
        ]
        self._waiting = []
        self._record.add(lines)

    def _look(self, step: int, began: float) -> None:
        second, self._second = self._second, False
        try:
            line = self._seen(step)
        except InputError as error:
            self._blind = True
            warnings.warn(f"the probe looks no further: {error}", ProbeWarning, stacklevel=4)
            return
        seconds = time.perf_counter() - began
        self._record.add([{"kind": "look", "step": step, **line, "seconds": seconds}])
        self._second = not second
        if second:
            self._next = step + self._interval(step, seconds)

    def _interval(self, step: int, seconds: float) -> int:
        """Steps until the next pair, so that looks keep to their share of the time."""
        if self._every is not None:
            return self._every - 1
        rest = time.perf_counter() - self._began - self._spent
        a_step = rest / (step + 1)
        owed = (self._spent + 3 * seconds) / self._budget - rest  # after another pair
        return max(9, math.ceil(owed / max(a_step, 1e-9)))

    def _seen(self, step: int) -> dict[str, Any]:
        point, rule = self.surface.here(), self.rule()
        if not math.isfinite(point.loss):
            raise InputError(f"the loss on its batch is {point.loss} at step {step}.")
        start = self._start if self._start is not None else _generic(point.gradient)
        found = ends(point.product, start, count=self._count, matvecs=self._matvecs, tol=self._tol)
        self._start = found.next
        line = {**_curvature(point, found), **self._along(step, point)}
        if rule.adaptive and (adapted := self._adaptive(point, found)) is not None:
            line |= adapted
        if (threshold := rule.threshold) is not None:
            top = line.get("adaptive", math.nan) if rule.adaptive else line["sharpness"][0]
            line |= {"lr": rule.lr, "threshold": threshold, "ratio": top / threshold}
        line["products"] = found.products + line.pop("adaptive_products", 0)
        line |= adapters(self.surface, self.layers, found, point.loss, rule.lr)
        if self._outputs is not None:
            line |= spreads(self.surface.call(self._outputs))
        return line | self._of_layers()

    def _along(self, step: int, point: Point) -> dict[str, Any]:
        """The curvature along the step between two consecutive looks."""
        here = self.surface.flat()
        before, self._pair = self._pair, (step, here, point.gradient)
        if before is None or before[0] != step - 1:
            return {}
        moved = here - before[1]
        square = float(moved @ moved)
        return {"path_sharpness": float((point.gradient - before[2]) @ moved) / square} if square > 0 else {}

    def _adaptive(self, point: Point, found: Ends) -> dict[str, Any] | None:
        """The top of P^{-1/2} H P^{-1/2} with Adam's own P = sqrt(v^) + eps."""
        roots = []
        for weight in self.surface.weights:
            state, group = self._optimiser.state.get(weight, {}), self._group(weight)
            if "exp_avg_sq" not in state:
                return None
            corrected = state["exp_avg_sq"] / (1 - group["betas"][1] ** float(state["step"]))
            roots.append((corrected.sqrt() + group["eps"]).to(self.surface.dtype).rsqrt().reshape(-1))
        root = torch.cat(roots)
        top = ends(
            lambda v: root * point.product(root * v), found.vector / root, count=1, matvecs=self._matvecs, tol=self._tol
        )
        values = {"adaptive": float(top.values[0]), "adaptive_residual": float(top.residuals[0])}
        return values | {"adaptive_products": top.products}

    def _of_layers(self) -> dict[str, Any]:
        seen = [layer.seen(begin) for layer, begin in zip(self.layers, self._begin, strict=True)]
        return {name: [one[name] for one in seen] for name in (seen[0] if seen else {})}

    # Telling ---------------------------------------------------------------------------------------------------------

    def rule(self) -> Rule:
        """What the optimiser is at this moment."""
        if self._optimiser is None:
            return self._given
        group = self._group(self.surface.weights[0])
        if "betas" in group:
            return Rule(float(group["lr"]), float(group["betas"][0]), adaptive=True)
        return Rule(float(group["lr"]), float(group.get("momentum", 0.0)), bool(group.get("nesterov", False)))

    def _group(self, weight: torch.Tensor) -> dict[str, Any]:
        for group in self._optimiser.param_groups:
            if any(weight is one for one in group["params"]):
                return group
        raise InputError("the optimiser does not have the model's parameters: give the one that trains it.")

    def to_xarray(self) -> "xarray.Dataset":
        """All that was seen: along `step` what was seen at every step, along `look` what at the looks."""
        self.flush()
        return dataset(self._record)

    def verdict(self) -> list[str]:
        """What it means, in sentences."""
        self.flush()
        return words.verdict(self._record)

    def close(self) -> None:
        """Writes what is left."""
        self.flush()
        self._record.close()


def _curvature(point: Point, found: Ends) -> dict[str, Any]:
    square = float(point.gradient @ point.gradient)
    along = float(point.gradient @ found.vector) ** 2
    return {
        "batch_loss": point.loss,
        "gradient": math.sqrt(square),
        "sharpness": found.values.tolist(),
        "residual": found.residuals.tolist(),
        "lowest": found.lowest,
        "gradient_share": along / square if square > 0 else 0.0,
    }


def _generic(gradient: torch.Tensor) -> torch.Tensor:
    """Where the first search begins: the gradient, and a little of everything. Curvature must not depend on a seed."""
    drawn = torch.randn(gradient.shape, generator=torch.Generator().manual_seed(0), dtype=gradient.dtype)
    drawn = drawn.to(gradient.device)
    size = torch.linalg.vector_norm(gradient)
    return drawn / torch.linalg.vector_norm(drawn) + (gradient / size if float(size) > 0 else 0)
