"""Measuring curvature, thresholds, and layers of a PyTorch training while it runs."""

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
from linnet.probe import summary
from linnet.probe.lanczos import Ends, ends, inner, norm
from linnet.probe.layers import Layer, layers_of
from linnet.probe.pairs import Mode, predicted
from linnet.probe.record import Record, dataset
from linnet.probe.rule import Rule, Stepper
from linnet.probe.saddle import adapters, spreads
from linnet.probe.schedule import Schedule
from linnet.probe.surface import Loss, Point, Surface

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

_FLUSH = 50  # steps between two reads of what an accelerator has computed: each waits for all that it has to do
_RECORDED = 5  # eigenvalues that are recorded at least


class ProbeWarning(UserWarning):
    """The probe cannot measure something; the training goes on."""


class Probe:
    """Measures the curvature, the stability threshold, and the layers of a training at some of its steps.

        probe = ln.probe.Probe(model, loss_fn, batch, optimizer=optimizer)
        for step, (x, y) in enumerate(loader):
            ...                                  # a training step
            probe.update(step, loss)

    - `loss_fn(model, batch)`: the loss as one number, on a `batch` that stays the same for all measurements.
    - `lr` and `momentum`, or the `optimizer` (SGD, Adam, or AdamW, read at each measurement): they set the stability
      threshold.
    - `budget`: the share of the training time that measurements may take, after the first. `every`: measure every so
      many steps instead. Measurements come in pairs at consecutive steps, because an orbit at the edge has two sides;
      within the budget they come earlier where a step reverses the one before or the loss rises.
    - `eigenvalues`: how many of the largest are found to `tol`, a residual relative to the first, or until `matvecs`
      Hessian-vector products are made; at least five are recorded, each with its residual, which bounds its error.
    - `folder`: where the record is written during training; `tensorboard`: a folder for its event files.
    - `live`: print the current state on one line of the terminal.
    - `pairs`: names of two parameters whose product matters, the first one first; adapters of peft, adjacent linear
      layers, and attention heads are found automatically. The first measurement predicts their training
      (`Record.pairs`), of as many as half of `matvecs` allows, those with the largest gradients first.
    - `outputs(model, batch)`: the model's outputs for the batch and their labels, to detect constant outputs.
    - `training`: measure in the modes that the modules are in, with dropout (the same at all measurements), instead of
      evaluation mode.

    A measurement leaves gradients, buffers, generators, and modes as they were. What cannot be measured is one
    `ProbeWarning`, and the training goes on.
    """

    def __init__(
        self,
        model: Any,
        loss_fn: Loss,
        batch: Any,
        *,
        lr: float | None = None,
        momentum: float | None = None,
        optimizer: Any = None,
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
        if optimizer is not None and (lr is not None or momentum is not None):
            raise InputError("lr and momentum are not allowed beside optimizer: it has its own.")
        self._given = Rule.sgd(
            None if lr is None else _check.real("lr", lr, above=0),
            0.0 if momentum is None else _check.real("momentum", momentum, least=0, below=1),
        )
        self._stepper: Stepper | None = None
        if optimizer is not None:
            self.follow(optimizer)
        self._good = _check.integer("eigenvalues", eigenvalues, least=1)
        self._tol = _check.real("tol", tol, above=0, below=1)
        self._matvecs = _check.integer("matvecs", matvecs, least=2)
        if outputs is not None and not callable(outputs):
            raise InputError(
                f"outputs = {_check.show(outputs)} is not allowed: it must be a function of (model, batch)."
            )
        self._outputs = outputs
        self._schedule = Schedule(
            _check.real("budget", budget, above=0, most=1),
            None if every is None else _check.integer("every", every, least=2),
        )
        trouble = self.surface.trouble
        self.layers: list[Layer] = [] if trouble else layers_of(self.surface, pairs)
        self._references = [layer.reference() for layer in self.layers]
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
        # where the last step ended, the gradient that made it, the step itself, and its length
        self._last: tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None, torch.Tensor | None] | None = None
        self._starts: dict[str, torch.Tensor] = {}
        self._pair: tuple[int, torch.Tensor, torch.Tensor] | None = None
        self._modes: dict[int, Mode] | None = None  # of pairs of factors, from the first measurement on
        if trouble and not self._blind:
            self._give_up(trouble)

    def follow(self, optimizer: Any) -> None:
        """Takes learning rates from this optimizer from now on."""
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise InputError(f"optimizer = {_check.show(optimizer)} is not allowed: give a torch.optim optimizer.")
        self._stepper = Stepper(optimizer, self.surface.weights)

    # Measuring -------------------------------------------------------------------------------------------------------

    def update(self, step: int, loss: Any = None) -> None:
        """Call it after each step, with the training's loss if it is at hand."""
        number = _check.integer("step", step, least=0)
        began = time.perf_counter()
        line = {"kind": "step", "step": number, **_loss(loss)}
        try:
            if not self._blind and self._schedule.compares_step():
                line |= self._step()
            else:
                self._last = None
        except RuntimeError as error:  # no memory for another copy
            self._give_up(str(error))
        self._waiting.append(line)
        if self.surface.device.type == "cpu" or len(self._waiting) >= _FLUSH:
            self.flush()
        self._schedule.spent(time.perf_counter() - began)
        if not self._blind and self._schedule.due(number):
            self.flush()
            if self.surface.device.type == "cuda":
                torch.cuda.synchronize(self.surface.device)  # its queue belongs to the training's time
            self._measure(number, time.perf_counter())

    def _step(self) -> dict[str, Any]:
        """The step's length, its cosine with the step before, and the curvature along that one by the training's own
        gradients, (g_t - g_{t-1}) . d / |d|^2, noisy where their batches differ.
        """
        here, slope = self.surface.flat(), self.surface.slope()
        if self._last is None or self._last[0].shape != here.shape or self._last[0].device != here.device:
            self._last = (here, slope, None, None)
            return {}
        previous, before, last_step, length = self._last
        step = here - previous
        found: dict[str, Any] = {"moved": norm(step)}
        if last_step is not None and length is not None:
            found["flip"] = inner(step, last_step) / (found["moved"] * length)
            if slope is not None and before is not None:
                found["directional"] = inner(slope - before, last_step) / length**2
        self._last = (here, slope, step, found["moved"])
        return found

    def flush(self) -> None:
        """Reads what was computed on the device, and writes it."""
        lines = [
            {name: float(x) if isinstance(x, torch.Tensor) else x for name, x in line.items()} for line in self._waiting
        ]
        self._waiting = []
        for line in lines:
            self._schedule.observe_step(line.get("flip"), line.get("loss"))
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
            self._line.show(summary.status_line(self._record))

    def _measure(self, step: int, began: float) -> None:
        try:
            lines = self._measured(step)
        except (InputError, RuntimeError) as error:  # the latter: no memory for as many vectors
            self._give_up(str(error))
            return
        seconds = time.perf_counter() - began
        self._schedule.measured(step, seconds)
        *others, line = lines
        self._keep([*others, {**line, "seconds": seconds}])

    def _give_up(self, why: str) -> None:
        self._blind = True
        self._warn(f"the probe has stopped measuring: {why}")

    def _warn(self, text: str) -> None:
        warnings.warn(text, ProbeWarning, stacklevel=2)

    def _measured(self, step: int) -> list[dict[str, Any]]:
        """The line of a measurement, at the first one after that of the pairs."""
        point, rule = self.surface.here(), self.rule()
        if not math.isfinite(point.loss) or not bool(torch.isfinite(point.gradient).all()):
            raise InputError(f"the loss on its batch is {point.loss} at step {step}, or its gradient is not finite.")
        found = self._ends("plain", point.product, point.gradient, count=max(_RECORDED, self._good))
        line = {**_curvature(point, found), **self._along(step, point)}
        line |= {} if rule.lr is None else {"lr": rule.lr}
        if (threshold := rule.threshold) is not None:
            line["threshold"] = threshold
            root = self._stepper.root(rule, self.surface.dtype) if self._stepper is not None else None
            if root is None:
                line["ratio"] = (line["sharpness"][0] + rule.weight_decay) / threshold
                line |= {"decay": rule.weight_decay} if rule.weight_decay else {}
            elif bool(root[0].any()):  # Adam has made a step
                line |= self._adaptive(point, *root)
                line["ratio"] = line["adaptive"] / threshold
        line["products"] = found.products + line.pop("adaptive_products", 0)
        line |= adapters(self.surface, self.layers, found, point.loss, rule.lr)
        if self._outputs is not None:
            line |= spreads(self.surface.call(self._outputs))
        predicted_pairs = [] if self._modes is not None else self._predict(step, point, rule)
        return [*predicted_pairs, {"kind": "measurement", "step": step, **line, **self._of_layers()}]

    def _predict(self, step: int, point: Point, rule: Rule) -> list[dict[str, Any]]:
        """What two-layer theory predicts of pairs of factors from here."""
        even = self._stepper is None or self._stepper.root(rule, self.surface.dtype) is None
        edge = 2 / rule.gain if rule.lr is not None and even else None
        pairs, self._modes = predicted(self.surface, point, self.layers, self._matvecs // 2, edge, rule.weight_decay)
        return [{"kind": "pairs", "step": step, "pairs": pairs}] if pairs else []

    def _ends(self, kind: str, product: Any, gradient: torch.Tensor, *, count: int = 1) -> Ends:
        """Starts where the previous search ended: curvature changes little between measurements."""
        start = self._starts.get(kind)
        if start is None or start.shape != gradient.shape:
            start = _generic(gradient)
        good = self._good if count > 1 else 1
        found = ends(product, start.to(gradient), good=good, count=count, matvecs=self._matvecs, tol=self._tol)
        self._starts[kind] = found.next
        return found

    def _along(self, step: int, point: Point) -> dict[str, Any]:
        """The curvature along the step between two consecutive measurements."""
        here = self.surface.flat()
        before, self._pair = self._pair, (step, here, point.gradient)
        if before is None or before[0] != step - 1 or before[1].device != here.device:
            return {}
        difference = here - before[1]
        square = float(inner(difference, difference))
        return {"path_sharpness": float(inner(point.gradient - before[2], difference)) / square} if square > 0 else {}

    def _adaptive(self, point: Point, root: torch.Tensor, decay: torch.Tensor) -> dict[str, Any]:
        """The top of A^{1/2} H A^{1/2} + decay with the optimizer's own A, in units in which A is 1/P for Adam."""
        top = self._ends("adaptive", lambda v: root * point.product(root * v) + decay * v, root * point.gradient)
        values = {"adaptive": float(top.values[0]), "adaptive_residual": float(top.residuals[0])}
        return values | {"adaptive_products": top.products}

    def _of_layers(self) -> dict[str, Any]:
        found = [layer.measure(reference) for layer, reference in zip(self.layers, self._references, strict=True)]
        rows = {name: [one[name] for one in found] for name in (found[0] if found else {})}
        modes = {i: mode.measure(self.layers[i]) for i, mode in (self._modes or {}).items()}
        names = dict.fromkeys(name for mode in modes.values() for name in mode)
        return rows | {name: [modes.get(i, {}).get(name) for i in range(len(self.layers))] for name in names}

    # Results ---------------------------------------------------------------------------------------------------------

    def rule(self) -> Rule:
        """What the optimizer is at this moment."""
        return self._given if self._stepper is None else self._stepper.rule()

    @property
    def record(self) -> Record:
        """All that was recorded, line by line."""
        self.flush()
        return self._record

    def to_xarray(self) -> "xarray.Dataset":
        """The record as a dataset: along `step` what every step gives, along `measurement` what measurements give."""
        return dataset(self.record)

    def verdict(self) -> list[str]:
        """The summary of the record, in sentences."""
        return summary.verdict(self.record)

    def __str__(self) -> str:
        return "\n".join(self.verdict())

    def _repr_html_(self) -> str:
        return "".join(f"<p>{html.escape(sentence)}</p>" for sentence in self.verdict())

    def plot(self) -> "Figure":
        """A figure: the loss, curvature and its threshold, cosines of consecutive steps, layers and their balance."""
        from linnet.plot.probe import probe

        return probe(self.to_xarray())

    def report(self, out: str | os.PathLike[str]) -> Path:
        """Writes `index.html` into this folder, a self-contained page of the record."""
        from linnet.report import write_probe

        return write_probe(self.record, Path(out))

    def close(self) -> None:
        """Writes what is still buffered, and closes all files."""
        self.flush()
        self._record.close()
        if self._board is not None:
            self._board.close()
        if self._line is not None:
            self._line.close()


class _Line:
    """One line of the terminal that is overwritten; nothing where there is no terminal."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True)

    def show(self, text: str) -> None:
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
    """Whether this process reports, where several train one model."""
    return not (torch.distributed.is_available() and torch.distributed.is_initialized()) or (
        torch.distributed.get_rank() == 0
    )


def _loss(loss: Any) -> dict[str, Any]:
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
    """The first search's initial vector: the gradient plus fixed noise. Curvature must not depend on a seed."""
    drawn = torch.randn(gradient.shape, generator=torch.Generator().manual_seed(0), dtype=gradient.dtype)
    drawn = drawn.to(gradient.device)
    size = float(norm(gradient))
    return drawn / float(norm(drawn)) + (gradient / size if size > 0 else 0)
