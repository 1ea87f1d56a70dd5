"""Measuring curvature, thresholds, and layers of a PyTorch training while it runs."""

import functools
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
from torch import Tensor

from linnet import _input
from linnet._input import InputError
from linnet.probe import forward, reversal, summary
from linnet.probe.alarm import REFRESH, Alarm, Watch
from linnet.probe.curvature import PRODUCTS, Search
from linnet.probe.health import HealthStatus, assess
from linnet.probe.lanczos import inner, norm
from linnet.probe.layers import Layer, layers_of
from linnet.probe.loggers import Fresh, logger
from linnet.probe.outlets import LiveLine, Transfer, board, first_rank, leading
from linnet.probe.pairs import Mode, predicted
from linnet.probe.record import ProbeRecord, dataset
from linnet.probe.rule import Rule, TorchOptimizers
from linnet.probe.saddle import spreads
from linnet.probe.schedule import Schedule
from linnet.probe.steps import Steps
from linnet.probe.surface import SAMPLE, Loss, LossPoint, Surface

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

_SECONDS = 1.0  # between two writes of steps: what a killed run loses
_REGULAR = 50  # updates with one optimizer step each, after which one without was skipped
_ACCUMULATED = 64  # updates without an optimizer step, in which gradients may be accumulated
_WATCHED = (10, 100)  # updates after which gradients are compared, as after each loss on the probe's batch
_EARLIER = 25  # updates between two copies of the weights at least
_LATE = 0.02  # seconds for which losses stay on an accelerator, before they are transferred together


class ProbeWarning(UserWarning):
    """The probe cannot measure something; the training goes on."""


class Probe:
    """Measures the curvature, the stability threshold, and the layers of a training at some of its steps.

        probe = ln.probe.Probe(model, loss_fn, batch, optimizer=optimizer)
        for step, (x, y) in enumerate(loader):
            ...                                  # a training step
            probe.update(step, loss, batch=(x, y))

    It measures the loss along a step by forward passes alone, on the step's own batch if that is given and on parts of
    a `batch` that stays the same for all measurements; the loss on that batch; and, where the budget allows, curvature.
    From these it has a status (`linnet.probe.health`) and alarms with their causes (`linnet.probe.alarm`), which are in
    the record.

    - `loss_fn(model, batch)`: the loss as one number. `batch`: some hundred samples that training does not use, with
      tensors of one row for each.
    - `lr` and `momentum`, or the `optimizer`, or a list of several, read at each measurement: they set the stability
      threshold, or say why there is none (`Rule.reason`).
    - `budget`: the share of the training time that measurements may take, the first included. What is too slow for its
      share of the budget is not made. `every`: measure all every so many steps instead, at two consecutive steps,
      because an orbit at the edge has two sides.
    - `eigenvalues`: how many of the largest are found to `tol`, a residual relative to the first, or until `matvecs`
      Hessian-vector products are made; at least five are recorded, each with its residual, which bounds its error.
    - `products`: Hessian-vector products, `"exact"` by differentiating twice, or by `"differences"` of gradients, with
      which only the largest eigenvalue is searched, to 5 %. The default is exact up to a million parameters.
    - `folder`: where the record is written during training; one with the record of the same training, which has been
      restarted, is continued. `tensorboard`: a folder for its event files.
    - `log`: what gets `values()` after measurements and alarms: a function such as `wandb.log`, or a `SummaryWriter`.
    - `live`: print the current state on one line of the terminal.
    - `pairs`: names of two parameters whose product matters, the first one first; adapters of peft, adjacent linear
      layers, and attention heads are found automatically. The first measurement predicts their training
      (`Record.pairs`), of as many as half of `matvecs` allows, those with the largest gradients first.
    - `outputs(model, batch)`: the model's outputs for the batch and their labels, to detect constant outputs.
    - `training`: measure in the modes that the modules are in, with dropout (the same at all measurements), instead of
      evaluation mode.

    The loss is computed here, on a few rows of the batch where all would take more than a moment: a wrong `loss_fn` or
    `batch`, or an optimizer of another model, is an `InputError`; above ten million parameters only the arguments of
    `loss_fn` are checked. A measurement leaves gradients, buffers,
    generators, and modes as they were. What cannot be measured later is one `ProbeWarning`, and the training goes on.
    """

    _stepper: TorchOptimizers | None = None
    _steps: Steps | None = None
    # on the host the time of the processor, since other processes are no cost
    _clocks: tuple[Callable[[], float], Callable[[], float]] = time.thread_time, time.perf_counter

    def __init__(
        self,
        model: Any,
        loss_fn: Loss,
        batch: Any,
        *,
        lr: float | None = None,
        momentum: float | None = None,
        optimizer: Any = None,
        budget: float = 0.03,
        every: int | None = None,
        eigenvalues: int = 1,
        tol: float = 2e-3,
        matvecs: int = 60,
        products: str | None = None,
        folder: str | os.PathLike[str] | None = None,
        tensorboard: str | os.PathLike[str] | None = None,
        live: bool = False,
        log: Any = None,
        training: bool = False,
        pairs: Sequence[tuple[str, str]] = (),
        outputs: Callable[[Any, Any], tuple[Any, Any]] | None = None,
    ):
        self.surface = Surface(model, loss_fn, batch, training=training)
        if optimizer is not None and (lr is not None or momentum is not None):
            raise InputError("lr and momentum are not allowed beside optimizer: it has its own.")
        self._blind = not first_rank()
        if not self._blind:
            self.surface.require(loss_fn)
        self._given = Rule.sgd(
            None if lr is None else _input.real("lr", lr, above=0),
            0.0 if momentum is None else _input.real("momentum", momentum, least=0, below=1),
        )
        self._quiet, self._clock = 0, self._clocks[0 if self._on_host else 1]
        self._made, self._known = list[int](), list[int]()  # steps of each optimizer at the last update, and until then
        if optimizer is not None:
            self.follow(optimizer).require(self.surface.model)
        trouble = self.surface.trouble
        size = 0 if trouble else sum(weight.numel() for weight in self.surface.weights)
        self._search = Search(
            _input.integer("eigenvalues", eigenvalues, least=1),
            _input.real("tol", tol, above=0, below=1),
            _input.integer("matvecs", matvecs, least=2),
            _input.choice("products", products or ("exact" if size <= SAMPLE else "differences"), PRODUCTS),
        )
        self._outputs = _function("outputs", outputs)
        self._schedule = Schedule(
            _input.real("budget", budget, above=0, most=1),
            None if every is None else _input.integer("every", every, least=2),
            self._clock,
        )
        self.layers: list[Layer] = [] if trouble else layers_of(self.surface, pairs)
        self._references = [layer.reference() for layer in self.layers]
        about = {
            "parameters": size,
            "precision": str(self.surface.dtype).removeprefix("torch."),
            "device": str(self.surface.device),
            "layers": [layer.name for layer in self.layers],
            "training": self.surface.identity(loss_fn),
        }
        self._log, self._fresh = None if log is None else logger(log), Fresh()
        self._board = None if tensorboard is None else board(tensorboard)
        self._line = LiveLine() if _input.flag("live", live) else None
        self._record = ProbeRecord(about, None if self._blind else folder)
        self._begin()
        if trouble and not self._blind:
            self._give_up(trouble)

    def _begin(self) -> None:
        """What changes during the training: empty, or read from a record that is continued."""
        self.measured, self._steps_made = 0, 0  # measurements and alarms so far; calls of `step`
        self._waiting: list[Transfer] = []  # steps whose numbers are still on the device
        self._unwritten: list[dict[str, Any]] = []
        # steps that have passed without anything to notice, with their losses and lr: `_quiet` more may, up to `_safe`
        self._passed: list[tuple[int, Any, float | None]] = []
        self._safe: float | None = None
        self._passing = 0.0
        self._earlier, self._remembered = list[list[torch.Tensor]](), 0  # copies of weights, and when they were made
        self._written, self._now = time.monotonic(), -1
        self._watch, self._regular, self._flat = Watch(), 0, False
        self._status: HealthStatus | None = None
        self._resumes = bool(self._record.lines)
        if self._resumes:
            self._watch.resume(self._record)
            statuses, steps = self._record.statuses, self._record.steps
            self._status = HealthStatus(statuses[-1]["status"]) if statuses else None
            self._steps_made = steps[-1]["step"] + 1 if steps else 0
        # 1: the next step is only compared; 2: the parameters before the next step are copied
        self._stage, self._waited = 0, 0
        self._arm = False  # whether to compare gradients from the next optimizer step on
        self._idle = 0  # the number of an optimizer that makes no steps
        self._copies: list[torch.Tensor] | None = None
        self._own: list[Any] = []  # batches since the copy
        self._lr: float | None = None
        # where the last step ended, of a million parameters at most, the step itself, and its length
        self._last: tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None] | None = None
        self._modes: dict[int, Mode] | None = None  # of pairs of factors, from the first measurement on

    @property
    def _on_host(self) -> bool:
        return self.surface.device.type == "cpu"

    def follow(self, optimizer: Any) -> TorchOptimizers:
        """Takes learning rates from this optimizer from now on."""
        self._stepper = TorchOptimizers(optimizer, self.surface.weights)
        if self._steps is not None:
            self._steps.close()
        self._quiet = 0
        self._steps = Steps(self._stepper.optimizers, self.surface, self._clock)
        self._made, self._known = [], [0] * len(self._stepper.optimizers)
        return self._stepper

    # At every step ---------------------------------------------------------------------------------------------------

    def update(self, step: int, loss: Any = None, *, batch: Any = None) -> None:
        """Call it after each step, with the training's loss and the batch that made the step if they are at hand."""
        if self._quiet and type(step) is int:
            if self._passed:
                if self._passes(step, loss):
                    return
            else:  # of steps that pass the first one is timed
                began = self._clock()
                if self._passes(step, loss):
                    self._passing = self._clock() - began
                    return
        began = self._clock()
        number = step if type(step) is int and step >= 0 else _input.integer("step", step, least=0)
        value = None if loss is None else _loss(loss)
        if self._resumes:
            self._resumes = False
            self._unwritten.append({"kind": "resumed", "step": number})
        updates, seconds = self._drain()
        self._now = number
        line: dict[str, Any] = {"kind": "step", "step": number} | ({} if value is None else {"loss": value})
        checks = self._schedule.passed(updates)
        if not self._blind:
            self._follow(line)
        if self._on_host and not self._waiting:
            self._take(line)
        else:
            self._waiting.append(Transfer([line]))
            self._read()
        if not self._blind:
            self._compare(number, line)
        if checks:
            self._remember()
        if checks and (self._schedule.every or time.monotonic() - self._written > _SECONDS):
            self._write()
        self._schedule.read(seconds + self._clock() - began, updates)
        if (checks or self._stage) and not self._blind:
            self._measure(number, batch, line)
        self._quiet, self._safe = self._may_pass()
        if self._log is not None and (values := self._fresh.take(self)):
            try:
                self._log(values, number)
            except Exception as error:  # user code may raise anything
                self._log = None
                self._warn(f"log is not called again: {type(error).__name__}: {error}")

    def _passes(self, step: int, loss: Any) -> bool:
        """Keeps a step where there is nothing to notice: it is one of the optimizer, and its loss is not high, or still
        on an accelerator. Most steps end here, so it touches as little as possible.
        """
        steps, safe, lr, value = self._steps, self._safe, None, loss
        if type(loss) is Tensor:
            if loss.numel() != 1:
                return False
            value = loss.detach().clone().reshape(()) if safe is None else loss.item()
        elif safe is None or not isinstance(loss, float):
            return False
        else:
            value = float(loss)
        if step < 0 or not (safe is None or value <= safe):
            return False
        if steps is not None:
            counts, lrs, known = steps.counts, steps.lrs, self._known
            if len(counts) == 1 and len(lrs[0]) == 1:
                if counts[0] - known[0] != 1:
                    return False
                known[0], lr = counts[0], lrs[0][0]
            else:
                if max(counts) - max(known) != 1:
                    return False
                known[:], lr = counts, steps.lr
        self._quiet -= 1
        self._passed.append((step, value, lr))
        if safe is not None and not len(self._passed) % REFRESH:
            self._safe = self._watch.passed([loss for _, loss, _ in self._passed[-REFRESH:]])
        return True

    def _may_pass(self) -> tuple[int, float | None]:
        """How many of the next steps may pass, and up to which loss: None on an accelerator, whatever it is, since it
        is read with the others soon.
        """
        busy = self._stage or self._schedule.compares or self._arm
        if busy or (self._steps is not None and self._steps.watching):
            return 0, None
        until = self._schedule.until_check()
        if not self._on_host:
            seconds = self._schedule.step_seconds()
            return until if seconds * until <= _LATE else int(_LATE / seconds), None
        return (0, None) if self._waiting else (until, self._watch.safe)

    def step(self, loss: Any = None, *, batch: Any = None) -> None:
        """`update` with a count of its own, from 0."""
        self._steps_made += 1
        self.update(self._steps_made - 1, loss, batch=batch)

    def _drain(self) -> tuple[int, float]:
        """Takes the steps that have passed without anything to notice: with one more so many, and the time of all."""
        passed, self._passed = self._passed, []
        if passed:
            self._last = None
            lines = []
            for step, loss, lr in passed:
                line = {"kind": "step", "step": step, "loss": loss}
                if lr != self._lr:
                    line["lr"] = self._lr = lr
                lines.append(line)
            if self._on_host:
                self._unwritten += lines
                self._watch.passed([loss for _, loss, _ in passed[len(passed) // REFRESH * REFRESH :]])
                self._regular += len(passed)
            else:
                self._waiting.append(Transfer(lines))
        return len(passed) + 1, len(passed) * self._passing

    def _follow(self, line: dict[str, Any]) -> None:
        """What the optimizer did since the last update, and how this step lies to the one before."""
        if self._steps is not None:
            counts, known = self._steps.counts.copy(), self._known
            self._made, self._known = [a - b for a, b in zip(counts, known, strict=True)], counts
            if (stepped := max(counts) - max(known)) != 1:
                line["stepped"] = stepped
            if (lr := self._steps.lr) != self._lr:
                line["lr"] = self._lr = lr
        if not (self._stage or self._schedule.compares):
            self._last = None
            return
        try:
            line |= self._step()
        except RuntimeError as error:  # no memory for another copy
            self._give_up(str(error))

    def _compare(self, step: int, line: Mapping[str, Any]) -> None:
        """Records what a comparison of gradients gave, and begins another one where one is due."""
        if self._steps is None:
            return
        lines: list[dict[str, Any]] = []
        if self._steps.found is not None:
            lines.append({"kind": "check", "step": step, **self._steps.found})
            self._steps.found = None
            self._schedule.spent("anchor", self._steps.seconds)
            self._steps.seconds = 0.0
        if self._arm or self._schedule.steps in _WATCHED:
            self._watch_gradients(line)
        if self._steps.idle != self._idle:
            self._idle = self._steps.idle
            name = type(self._stepper.optimizers[self._idle - 1]).__name__ if self._stepper and self._idle else ""
            lines.append({"kind": "check", "step": step, "idle": self._idle, "idle_name": name})
        self._unwritten += lines

    def _watch_gradients(self, line: Mapping[str, Any]) -> None:
        """Compares gradients from the next optimizer step on, not between those that are being accumulated."""
        self._arm = self._waits(line)
        if not self._arm and self._steps is not None:
            self._steps.watch()

    def _step(self) -> dict[str, Any]:
        """The step's length and its cosine with the step before, both of a million parameters at most."""
        here = self.surface.sample()
        if self._last is None or self._last[0].shape != here.shape or self._last[0].device != here.device:
            self._last = (here, None, None)
            return {}
        previous, last_step, length = self._last
        step = here - previous
        size = norm(step)
        found: dict[str, Any] = {"moved": size * self.surface.sample_scale}
        if last_step is not None and length is not None:
            found["flip"] = inner(step, last_step) / (size * length)
        self._last = (here, step, size)
        return found

    def flush(self) -> None:
        """Reads what was computed on the device, and writes it."""
        updates, seconds = self._drain()
        if updates > 1:
            self._schedule.passed(updates - 1)
            self._schedule.read(seconds, updates - 1)
        self._quiet = 0
        self._read(wait=True)
        self._write()

    def _read(self, *, wait: bool = False) -> None:
        """Takes the steps whose numbers the device has computed."""
        while self._waiting and (wait or self._waiting[0].ready()):
            for line in self._waiting.pop(0).read():
                self._take(line)

    def _take(self, line: dict[str, Any]) -> None:
        """Keeps a step for the next write, and looks for an alarm in it."""
        for name in ("loss", "moved", "flip"):
            if isinstance(value := line.get(name), torch.Tensor):
                line[name] = value.item()
        self._unwritten.append(line)
        if self._blind:
            return
        if len(line) == 3 and "loss" in line and line["loss"] <= self._watch.safe:  # nothing to notice
            self._watch.passed([line["loss"]])
            self._regular += 1
        else:
            self._observe(line)

    def _write(self) -> None:
        lines, self._unwritten = self._unwritten, []
        self._written = time.monotonic()
        if lines:
            self._keep(lines)

    def _observe(self, line: dict[str, Any]) -> None:
        stepped, moved = line.get("stepped", 1), line.get("moved", 0.0)
        skipped = stepped == 0 and self._regular >= _REGULAR
        self._regular = self._regular + 1 if stepped == 1 else 0
        finite = math.isfinite(moved)
        now = line["step"] == self._now and not self._passed  # else its weights are gone
        before = functools.partial(self._before, line) if now else lambda: None
        found = self._watch.step(
            line["step"], line.get("loss"), skipped=skipped, finite=finite,
            before=before, after=self._after, earlier=self._least_earlier,
        )  # fmt: skip
        if found:
            self._report(found)

    def _report(self, alarms: Sequence[Alarm]) -> None:
        """Writes alarms into the record, and the status after them."""
        if alarms:
            self.measured += 1
            self._unwritten += [{"kind": "alarm", **alarm._asdict()} for alarm in alarms]
            self._note_status(alarms[-1].step)

    def _note_status(self, step: int) -> None:
        """Writes the status if it has changed."""
        self._write()
        found = assess(self._record)
        if found.status != self._status:
            self._status = found.status
            self._keep([{"kind": "status", "step": step, "status": found.status.value, "sentence": found.sentence}])

    def _before(self, line: Mapping[str, Any]) -> float | None:
        """The loss on the probe's batch before the last step; None if those weights are unknown."""
        if self._stepper is None or self._steps is None:
            return None
        if self._waits(line):
            return self._after()
        found = reversal.before(self._stepper.optimizers, self.surface.weights, self._steps.lrs, self._made)
        return None if found is None else self._after(found)

    def _remember(self) -> None:
        """Copies the weights for an alarm in the next steps, beside an earlier copy, up to a million of them."""
        steps = self._schedule.steps
        if self._blind or self.surface.sample_scale > 1 or steps < self._remembered + _EARLIER:
            return
        self._earlier, self._remembered = [*self._earlier[-1:], self.surface.copies()], steps

    def _least_earlier(self) -> float | None:
        """The least loss on the probe's batch at the copies of the weights; None without any."""
        values = [value for weights in self._earlier if (value := self._after(weights)) is not None]
        return min(filter(math.isfinite, values), default=None)

    def _after(self, weights: Sequence[torch.Tensor] | None = None) -> float | None:
        """The loss on the probe's batch with these weights or the current ones; None if it may not be computed."""
        if not self._schedule.may_borrow():
            return None
        began = self._clock()
        try:
            return self.surface.loss(weights)
        except (InputError, RuntimeError):
            return None
        finally:
            self._schedule.spent("alarm", self._clock() - began)

    def _keep(self, lines: Sequence[Mapping[str, Any]]) -> None:
        try:
            self._record.add(lines)
        except InputError as error:
            self._warn(str(error))
        if self._board is not None:
            for line in lines:
                for name, value in line.items():
                    if name not in ("kind", "step") and isinstance(value := leading(value), float):
                        self._board.add_scalar(f"probe/{name}", value, line["step"])
        if self._line is not None:
            self._line.show(summary.status_line(self._record))

    # Measuring -------------------------------------------------------------------------------------------------------

    def _measure(self, step: int, batch: Any, line: Mapping[str, Any]) -> None:
        """Makes what is due: forward passes after a copy, the loss on the probe's batch, and curvature; then a copy."""
        due = {kind: self._due(kind, step) for kind in ("anchor", "curvature", "forward")}
        before, timed = self._stage, {"forward": self._forward, "anchor": self._anchor, "curvature": self._curvature}
        for kind, make in timed.items():
            if self._blind or not (before > 0 if kind == "forward" else due[kind]):
                continue
            if self.surface.device.type == "cuda":
                torch.cuda.synchronize(self.surface.device)  # its queue belongs to the training's time
            began = self._clock()
            try:
                found = make(step, batch, line)
            except (InputError, RuntimeError) as error:  # the latter: no memory for as many vectors
                self._give_up(str(error), curvature=kind == "curvature")
                continue
            seconds = self._clock() - began
            if not found:  # nothing yet
                self._schedule.spent(kind, seconds)
                continue
            self._schedule.measured(kind, step, seconds)
            self.measured += 1
            *others, last = found
            self._unwritten += [*others, {**last, "seconds": seconds}]
            if kind == "anchor":
                self._watch_gradients(line)
                self._report(self._watch.anchor(step, last["anchor"]))
            if kind != "anchor" or self._schedule.every or self._schedule.affordable("status"):
                began = self._clock()
                self._note_status(step)
                self._schedule.measured("status", step, self._clock() - began)
        if not before and not self._blind and due["forward"]:
            # the step after the next one is measured, since two before it are compared with it; with `every` the next
            self._stage = 1
            if self._schedule.every and not self._waits(line):
                self._copy()

    def _due(self, kind: str, step: int) -> bool:
        return not (kind == "curvature" and self._flat) and self._schedule.due(kind, step)

    def _waits(self, line: Mapping[str, Any]) -> bool:
        """Whether the optimizer made no step: gradients are being accumulated."""
        return self._steps is not None and line.get("stepped", 1) == 0

    def _copy(self) -> None:
        self._stage, self._own = 2, []
        try:
            self._copies = self.surface.copies()
        except RuntimeError as error:
            self._give_up(str(error))
        if self._steps is not None:
            self._steps.watch()

    def _forward(self, step: int, batch: Any, line: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The critical step of the step since the copy, on its batches; nothing while there was none."""
        waits = self._waits(line)
        if self._stage == 1:
            if not waits:
                self._copy()
            return []
        self._own += [] if batch is None else [self.surface.here_too(batch)]
        if waits and len(self._own) < _ACCUMULATED and self._waited < _ACCUMULATED:
            self._waited += 1
            return []
        copies, own, self._copies, self._own, self._stage, self._waited = self._copies, self._own, None, [], 0, 0
        rule = self.rule()
        found = forward.measured(self.surface, self.surface.segment(copies or []), own, self._value(line.get("loss")))
        if not found:
            return [{"kind": "check", "step": step, "moved": 0.0}]
        about = {"flip": self._value(line.get("flip")), "lr": rule.lr, "age": float(self._age())}
        about["preconditioned"] = float(rule.adaptive)
        known = {name: value for name, value in about.items() if value is not None}
        return [{"kind": "forward", "step": step, **known, **found}]

    @staticmethod
    def _value(value: Any) -> float | None:
        return None if value is None else float(value)

    def _age(self) -> int:
        """How many steps the optimizer has made since the probe was made."""
        return self._schedule.steps if self._steps is None else self._steps.count

    def _anchor(self, step: int, batch: Any, line: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The loss on the probe's batch, after a check that the same parameters train."""
        thawed = self._renew()
        lines = [{"kind": "check", "step": step, "thawed": thawed}] if thawed else []
        return [*lines, {"kind": "anchor", "step": step, "anchor": self.surface.loss()}]

    def _renew(self) -> int:
        """Takes parameters into account that train now and did not when the probe was made; their number."""
        model = self.surface.model
        known = {id(weight) for weight in self.surface.weights}
        new = [weight for weight in model.parameters() if weight.requires_grad and id(weight) not in known]
        still = {id(weight) for weight in model.parameters()}
        if not new or not known <= still:  # the others were replaced: that is refused where they are needed
            return 0
        self.surface = self.surface.again()
        if self._stepper is not None:
            self.follow(self._stepper.optimizers)
        self._last, self._stage, self._copies, self._earlier = None, 0, None, []
        return len(new)

    def _give_up(self, why: str, *, curvature: bool = False) -> None:
        """Ends all measurements, or those of curvature."""
        self._flat = True
        self._blind |= not curvature
        self._stage, self._copies = 0, None
        self._warn(f"the probe has stopped measuring{' curvature' if curvature else ''}: {why}")

    def _warn(self, text: str) -> None:
        warnings.warn(text, ProbeWarning, stacklevel=2)

    def _curvature(self, step: int, batch: Any, line: Mapping[str, Any]) -> list[dict[str, Any]]:
        return self._measured(step)

    def _measured(self, step: int) -> list[dict[str, Any]]:
        """The line of a measurement of curvature, at the first one after that of the pairs."""
        rule = self.rule()
        found = self._search.measured(self.surface, rule, self._stepper, self.layers, self._update())
        if found is None:  # not finite
            self._report(self._watch.anchor(step, math.nan))
            return []
        line, point = found
        if self._outputs is not None:
            line |= spreads(self.surface.call(self._outputs))
        predicted_pairs = [] if self._modes is not None or point is None else self._predict(step, point, rule)
        return [*predicted_pairs, {"kind": "measurement", "step": step, **line, **self._of_layers()}]

    def _update(self) -> torch.Tensor | None:
        """The optimizer's last change of the parameters, where products need it and its state gives it."""
        if self._search.products == "exact" or self._stepper is None or self._steps is None or not any(self._made):
            return None
        found = reversal.before(self._stepper.optimizers, self.surface.weights, self._steps.lrs, self._made)
        return None if found is None else self.surface.change(found)

    def _predict(self, step: int, point: LossPoint, rule: Rule) -> list[dict[str, Any]]:
        """What two-layer theory predicts of pairs of factors from here."""
        even = self._stepper is None or self._stepper.root(rule, self.surface.dtype) is None
        edge = 2 / rule.gain if rule.lr is not None and even else None
        most = self._search.matvecs // 2
        pairs, self._modes = predicted(self.surface, point, self.layers, most, edge, rule.weight_decay)
        return [{"kind": "pairs", "step": step, "pairs": pairs}] if pairs else []

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
    def record(self) -> ProbeRecord:
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

    def values(self) -> dict[str, float]:
        """The last numbers by names that begin with `linnet/`, for loggers: `c_own`, `c_other` with `c_other_low` and
        `c_other_high`, `stochastic_edge`, `anchor`, `flip`, `sharpness`, `ratio`, and `alarm`, 1 for fifty steps.
        """
        return summary.values(self.record)

    def __enter__(self) -> "Probe":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Writes what is still buffered and the status, removes its hooks, and closes all files."""
        self.flush()
        if self._record.steps:
            self._note_status(self._record.steps[-1]["step"])
        if self._steps is not None:
            self._steps.close()
        self._stage, self._copies = 0, None
        self._record.close()
        if self._board is not None:
            self._board.close()
        if self._line is not None:
            self._line.close()


def _function(name: str, given: Any) -> Any:
    if given is not None and not callable(given):
        raise InputError(f"{name} = {_input.show(given)} is not allowed: it must be a function of (model, batch).")
    return given


def _loss(loss: Any) -> Any:
    """The loss as a float, on an accelerator still as a tensor."""
    if isinstance(loss, torch.Tensor) and loss.numel() == 1:
        return loss.item() if loss.is_cpu else loss.detach().clone().reshape(())
    if isinstance(loss, bool) or not isinstance(loss, numbers.Real):
        raise InputError(f"loss = {_input.show(loss)} is not allowed: loss must be one number.")
    return float(loss)
