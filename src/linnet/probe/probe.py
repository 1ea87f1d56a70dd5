"""Watching a PyTorch training with the eyes of theory."""

import html
import math
import numbers
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from linnet import _check
from linnet._check import InputError
from linnet.probe import words
from linnet.probe.lanczos import Ends, ends, inner, norm
from linnet.probe.layers import Layer, layers_of
from linnet.probe.pace import Pace
from linnet.probe.pairs import Mode, predicted
from linnet.probe.record import Record, dataset
from linnet.probe.rule import Rule, Stepper
from linnet.probe.saddle import adapters, spreads
from linnet.probe.surface import Loss, Point, Surface

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

_FLUSH = 50  # steps between two reads of what an accelerator has computed: each waits for all that it has to do
_KEPT = 5  # eigenvalues that are recorded at least


class ProbeWarning(UserWarning):
    """The probe cannot see something; the training goes on."""


class Probe:
    """Looks at a training from time to time, records what theory speaks about, and says what it means.

        probe = ln.probe.Probe(model, loss_fn, batch, optimiser=optimiser)
        for step, (x, y) in enumerate(loader):
            ...                                  # a training step as always
            probe.look(step, loss)

    - `loss_fn(model, batch)`: the loss as one number, on a `batch` that stays the same for all looks.
    - `lr` and `momentum`, or the `optimiser` (SGD, Adam or AdamW, asked at each look): where the edge of stability is.
    - `budget`: the share of the training's time that looks may take, after the first. `every`: looks at every so many
      steps instead.
      Looks come in pairs at consecutive steps, because an orbit at the edge has two sides; within the budget they
      come earlier where steps turn back or the loss rises, which is seen at every step for nothing.
    - `eigenvalues`: how many of the largest are found to `tol`, a residual relative to the first, or until `matvecs`
      products are made; five are recorded at least. Each has its residual beside it: an eigenvalue is so near.
    - `folder`: where the record is written while training goes on; `tensorboard`: a folder for its event files.
    - `live`: a line in the terminal says where the training stands.
    - `pairs`: names of two parameters whose product matters, the first one first; adapters of peft, linear layers next
      to each other and heads of attention are found. The first look tells what becomes of them (`Record.pairs`), of as
      many as half of `matvecs` affords, those with the largest gradients first.
    - `outputs(model, batch)`: what the model gives for the batch and what it should give, to see whether the first has
      become one constant.
    - `training`: look in the modes that the model is in, with dropout (the same at all looks), and not in evaluation
      mode.

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
        eigenvalues: int = 1,
        tol: float = 2e-3,
        matvecs: int = 60,
        folder: str | os.PathLike[str] | None = None,
        tensorboard: str | os.PathLike[str] | None = None,
        live: bool = False,
        training: bool = False,
        pairs: Sequence[tuple[str, str]] = (),
        outputs: Callable[[Any, Any], tuple[Any, Any]] | None = None,
    ):
        self.surface = Surface(model, loss_fn, batch, training=training)
        if optimiser is not None and (lr is not None or momentum is not None):
            raise InputError("lr and momentum are not allowed beside optimiser: it knows its own.")
        self._given = Rule(
            None if lr is None else _check.real("lr", lr, above=0),
            0.0 if momentum is None else _check.real("momentum", momentum, least=0, below=1),
        )
        self._stepper: Stepper | None = None
        if optimiser is not None:
            self.follow(optimiser)
        self._good = _check.integer("eigenvalues", eigenvalues, least=1)
        self._tol = _check.real("tol", tol, above=0, below=1)
        self._matvecs = _check.integer("matvecs", matvecs, least=2)
        if outputs is not None and not callable(outputs):
            raise InputError(
                f"outputs = {_check.show(outputs)} is not allowed: it must be a function of (model, batch)."
            )
        self._outputs = outputs
        self._pace = Pace(
            _check.real("budget", budget, above=0, most=1),
            None if every is None else _check.integer("every", every, least=2),
        )
        trouble = self.surface.trouble
        self.layers: list[Layer] = [] if trouble else layers_of(self.surface, pairs)
        self._begin = [layer.begin() for layer in self.layers]
        about = {
            "parameters": 0 if trouble else sum(w.numel() for w in self.surface.weights),
            "precision": str(self.surface.dtype).removeprefix("torch."),
            "device": str(self.surface.device),
            "layers": [layer.name for layer in self.layers],
        }
        self._board = None if tensorboard is None else _board(tensorboard)
        self._line = _Line() if _check.flag("live", live) else None
        self._blind = not _first_rank()
        self._record = Record(about, None if self._blind else folder)
        self._waiting: list[dict[str, Any]] = []  # steps whose numbers are still on the device
        # where the last step has ended, the gradient it was made by, its way and the length of that
        self._last: tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None, torch.Tensor | None] | None = None
        self._starts: dict[str, torch.Tensor] = {}
        self._pair: tuple[int, torch.Tensor, torch.Tensor] | None = None
        self._modes: dict[int, Mode] | None = None  # of pairs of factors, known from the first look on
        if trouble and not self._blind:
            self._give_up(trouble)

    def follow(self, optimiser: Any) -> None:
        """Takes step sizes from this optimiser from now on."""
        if not isinstance(optimiser, torch.optim.Optimizer):
            raise InputError(f"optimiser = {_check.show(optimiser)} is not allowed: give a torch.optim optimiser.")
        self._stepper = Stepper(optimiser, self.surface.weights)

    # Looking ---------------------------------------------------------------------------------------------------------

    def look(self, step: int, loss: Any = None) -> None:
        """To be called after each step, with the loss that the training has seen, if it is at hand."""
        number = _check.integer("step", step, least=0)
        began = time.perf_counter()
        line = {"kind": "step", "step": number, **_told(loss)}
        try:
            if not self._blind and self._pace.glance():
                line |= self._passing()
            else:
                self._last = None
        except RuntimeError as error:  # no memory for another copy
            self._give_up(str(error))
        self._waiting.append(line)
        if self.surface.device.type == "cpu" or len(self._waiting) >= _FLUSH:
            self.flush()
        self._pace.passed(time.perf_counter() - began)
        if not self._blind and self._pace.due(number):
            self.flush()
            if self.surface.device.type == "cuda":
                torch.cuda.synchronize(self.surface.device)  # what it still has to do is the training's
            self._look(number, time.perf_counter())

    def _passing(self) -> dict[str, Any]:
        """What costs nothing: how far the step went, the cosine with the step before, and the curvature along that one,
        by the training's own gradients: (g_t - g_{t-1}) . d / |d|^2, a noisy one where their batches differ.
        """
        here, slope = self.surface.flat(), self.surface.slope()
        if self._last is None or self._last[0].shape != here.shape or self._last[0].device != here.device:
            self._last = (here, slope, None, None)
            return {}
        place, before, went, length = self._last
        moved = here - place
        seen: dict[str, Any] = {"moved": norm(moved)}
        if went is not None and length is not None:
            seen["flip"] = inner(moved, went) / (seen["moved"] * length)
            if slope is not None and before is not None:
                seen["directional"] = inner(slope - before, went) / length**2
        self._last = (here, slope, moved, seen["moved"])
        return seen

    def flush(self) -> None:
        """Reads what was computed on the device, and writes it."""
        lines = [
            {name: float(x) if isinstance(x, torch.Tensor) else x for name, x in line.items()} for line in self._waiting
        ]
        self._waiting = []
        for line in lines:
            self._pace.noticed(line.get("flip"), line.get("loss"))
        self._keep(lines)

    def _keep(self, lines: Sequence[Mapping[str, Any]]) -> None:
        try:
            self._record.add(lines)
        except InputError as error:
            self._warn(str(error))
        if self._board is not None:
            for line in lines:
                for name, value in line.items():
                    if name not in ("kind", "step") and isinstance(value := _leading(value), float):
                        self._board.add_scalar(f"probe/{name}", value, line["step"])
        if self._line is not None:
            self._line.tell(words.line(self._record))

    def _look(self, step: int, began: float) -> None:
        try:
            lines = self._seen(step)
        except (InputError, RuntimeError) as error:  # the latter: no memory for as many vectors
            self._give_up(str(error))
            return
        seconds = time.perf_counter() - began
        self._pace.looked(step, seconds)
        *others, line = lines
        self._keep([*others, {**line, "seconds": seconds}])

    def _give_up(self, why: str) -> None:
        self._blind = True
        self._warn(f"the probe looks no further: {why}")

    def _warn(self, text: str) -> None:
        warnings.warn(text, ProbeWarning, stacklevel=2)

    def _seen(self, step: int) -> list[dict[str, Any]]:
        """The line of a look; at the first before it that of the pairs."""
        point, rule = self.surface.here(), self.rule()
        if not math.isfinite(point.loss) or not bool(torch.isfinite(point.gradient).all()):
            raise InputError(f"the loss on its batch is {point.loss} at step {step}, or its gradient is not finite.")
        found = self._ends("plain", point.product, point.gradient, kept=max(_KEPT, self._good))
        line = {**_curvature(point, found), **self._along(step, point)}
        line |= {} if rule.lr is None else {"lr": rule.lr}
        if (threshold := rule.threshold) is not None:
            line["threshold"] = threshold
            root = self._stepper.root(rule, self.surface.dtype) if self._stepper is not None else None
            if root is None:
                line["ratio"] = line["sharpness"][0] / threshold
            elif bool(root.any()):  # Adam has made a step
                line |= self._adaptive(point, root)
                line["ratio"] = line["adaptive"] / threshold
        line["products"] = found.products + line.pop("adaptive_products", 0)
        line |= adapters(self.surface, self.layers, found, point.loss, rule.lr)
        if self._outputs is not None:
            line |= spreads(self.surface.call(self._outputs))
        told = [] if self._modes is not None else self._predict(step, point, rule)
        return [*told, {"kind": "look", "step": step, **line, **self._of_layers()}]

    def _predict(self, step: int, point: Point, rule: Rule) -> list[dict[str, Any]]:
        """What two-layer theory tells of pairs of factors from here."""
        even = self._stepper is None or self._stepper.root(rule, self.surface.dtype) is None
        bears = rule._replace(lr=1.0).threshold if rule.lr is not None and even else None
        told, self._modes = predicted(self.surface, point, self.layers, self._matvecs // 2, bears)
        return [{"kind": "pairs", "step": step, "pairs": told}] if told else []

    def _ends(self, kind: str, product: Any, gradient: torch.Tensor, *, kept: int = 1) -> Ends:
        """From where the search before has ended: curvature changes little between looks."""
        start = self._starts.get(kind)
        if start is None or start.shape != gradient.shape:
            start = _generic(gradient)
        good = self._good if kept > 1 else 1
        found = ends(product, start.to(gradient), good=good, kept=kept, matvecs=self._matvecs, tol=self._tol)
        self._starts[kind] = found.next
        return found

    def _along(self, step: int, point: Point) -> dict[str, Any]:
        """The curvature along the step between two consecutive looks."""
        here = self.surface.flat()
        before, self._pair = self._pair, (step, here, point.gradient)
        if before is None or before[0] != step - 1 or before[1].device != here.device:
            return {}
        moved = here - before[1]
        square = float(inner(moved, moved))
        return {"path_sharpness": float(inner(point.gradient - before[2], moved)) / square} if square > 0 else {}

    def _adaptive(self, point: Point, root: torch.Tensor) -> dict[str, Any]:
        """The top of P^{-1/2} H P^{-1/2} with the optimiser's own P."""
        top = self._ends("adaptive", lambda v: root * point.product(root * v), root * point.gradient)
        values = {"adaptive": float(top.values[0]), "adaptive_residual": float(top.residuals[0])}
        return values | {"adaptive_products": top.products}

    def _of_layers(self) -> dict[str, Any]:
        seen = [layer.seen(begin) for layer, begin in zip(self.layers, self._begin, strict=True)]
        rows = {name: [one[name] for one in seen] for name in (seen[0] if seen else {})}
        modes = {i: mode.seen(self.layers[i]) for i, mode in (self._modes or {}).items()}
        names = dict.fromkeys(name for mode in modes.values() for name in mode)
        return rows | {name: [modes.get(i, {}).get(name) for i in range(len(self.layers))] for name in names}

    # Telling ---------------------------------------------------------------------------------------------------------

    def rule(self) -> Rule:
        """What the optimiser is at this moment."""
        return self._given if self._stepper is None else self._stepper.rule()

    @property
    def record(self) -> Record:
        """All that was seen, line by line."""
        self.flush()
        return self._record

    def to_xarray(self) -> "xarray.Dataset":
        """All that was seen: along `step` what was seen at every step, along `look` what at the looks."""
        return dataset(self.record)

    def verdict(self) -> list[str]:
        """What it means, in sentences."""
        return words.verdict(self.record)

    def __str__(self) -> str:
        return "\n".join(self.verdict())

    def _repr_html_(self) -> str:
        return "".join(f"<p>{html.escape(sentence)}</p>" for sentence in self.verdict())

    def plot(self) -> "Figure":
        """A picture: the loss, curvature against its threshold, turns of the steps, the layers and their balance."""
        from linnet.plot.probe import probe

        return probe(self.to_xarray())

    def report(self, out: str | os.PathLike[str]) -> Path:
        """Writes `index.html` into this folder, a page of what was seen that needs nothing from elsewhere."""
        from linnet.report import write_probe

        return write_probe(self.record, Path(out))

    def close(self) -> None:
        """Writes what is left."""
        self.flush()
        self._record.close()
        if self._board is not None:
            self._board.close()
        if self._line is not None:
            self._line.close()


class _Line:
    """One line of the terminal, written over and over; nothing where there is no terminal."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True)

    def tell(self, text: str) -> None:
        if self._console.is_terminal:
            width = self._console.width - 1
            self._console.print(text[:width].ljust(width), end="\r", highlight=False, markup=False)

    def close(self) -> None:
        if self._console.is_terminal:
            self._console.print()


def _board(folder: str | os.PathLike[str]) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise InputError(
            "tensorboard is not installed: pip install tensorboard, or leave tensorboard=... out."
        ) from None
    return SummaryWriter(os.fspath(folder))


def _first_rank() -> bool:
    """Whether this process is the one that tells, where several train one model."""
    return not (torch.distributed.is_available() and torch.distributed.is_initialized()) or (
        torch.distributed.get_rank() == 0
    )


def _told(loss: Any) -> dict[str, Any]:
    if loss is None:
        return {}
    if isinstance(loss, torch.Tensor) and loss.numel() == 1:
        return {"loss": loss.detach().clone().reshape(())}
    if isinstance(loss, bool) or not isinstance(loss, numbers.Real):
        raise InputError(f"loss = {_check.show(loss)} is not allowed: loss must be one number.")
    return {"loss": float(loss)}


def _leading(value: Any) -> Any:
    """The first of a row of numbers, of the layers' rows none."""
    return value[0] if isinstance(value, list) and value and isinstance(value[0], float) else value


def _curvature(point: Point, found: Ends) -> dict[str, Any]:
    square = float(inner(point.gradient, point.gradient))
    along = float(inner(point.gradient, found.vector)) ** 2
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
    size = float(norm(gradient))
    return drawn / float(norm(drawn)) + (gradient / size if size > 0 else 0)
