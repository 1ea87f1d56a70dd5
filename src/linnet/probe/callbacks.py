"""A probe as a callback of other libraries' training loops."""

import contextlib
import importlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Self

import torch

from linnet._input import InputError
from linnet.probe.loggers import Fresh
from linnet.probe.probe import Probe


class ProbeCallback:
    """A probe as a callback of the `Trainer` of Hugging Face, or of Lightning's.

        ln.probe.ProbeCallback(probe).attach(trainer)                        # transformers
        Trainer(callbacks=[ln.probe.ProbeCallback(probe)])                   # either

    Learning rates are those of the trainer's optimizer, schedules included, and steps are its steps. It logs
    `probe.values()`: with Lightning by the module, with transformers, once attached, by the trainer, whose loggers show
    them as `train/linnet/...`; not attached, they are only in the probe's record.

    With transformers a step has the loss that the model returned, and the inputs of the model as its own batch if there
    was one forward pass: `loss_fn(model, batch)` gets a dictionary then, as in `model(**batch).loss`. With Lightning
    its own batch is that of the training if none was accumulated. It is a subclass of the callbacks of those of the two
    libraries that are imported.
    """

    def __new__(cls, probe: Probe) -> Self:
        bases = _bases()
        return object.__new__(cls if issubclass(cls, bases) else type(cls.__name__, (cls, *bases), {}))

    def __init__(self, probe: Probe):
        self._probe, self._fresh = probe, Fresh()
        self._trainer: Any = None
        self._passes: _Passes | None = None
        self._step, self._batches = 0, 0

    # transformers

    def attach(self, trainer: Any) -> Self:
        """Has the `Trainer` of transformers call this, and log the probe's values."""
        self._trainer = trainer
        if self not in trainer.callback_handler.callbacks:
            trainer.add_callback(self)
        return self

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self._probe.follow(others["optimizer"])
        # a hook would be compiled with the model
        self._passes = None if getattr(args, "torch_compile", False) else _Passes(self._probe.surface.model)

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        if self._passes is None:
            self._probe.update(state.global_step)
        else:
            loss, batch = self._passes.take()
            with self._passes.pause():
                self._probe.update(state.global_step, loss, batch=batch)
        if self._trainer is not None and (values := self._fresh.take(self._probe)):
            should = control.should_log  # logging ends it, and the trainer's own line would be left out
            self._trainer.log(values)
            control.should_log = should

    # Lightning

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._step = trainer.global_step  # of a training that is continued
        self._probe.follow(list(trainer.optimizers))

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self._batches += 1
        if trainer.global_step == self._step:  # batches that are only accumulated make no step
            return
        own, self._step, self._batches = batch if self._batches == 1 else None, trainer.global_step, 0
        self._probe.update(self._step, outputs["loss"] if isinstance(outputs, Mapping) else outputs, batch=own)
        for name, value in self._fresh.take(self._probe).items():
            pl_module.log(name, value, on_step=True, on_epoch=False)

    # both

    def on_train_end(self, *_: Any, **__: Any) -> None:
        if self._passes is not None:
            self._passes.close()
        self._probe.close()


def _bases() -> tuple[type, ...]:
    """The callbacks' classes of the libraries that are imported; where none is, of the first that can be."""
    names = {"transformers": "TrainerCallback", "lightning.pytorch": "Callback", "pytorch_lightning": "Callback"}
    found = [getattr(sys.modules[place], name) for place, name in names.items() if sys.modules.get(place) is not None]
    for place, name in names.items():
        if not found:
            with contextlib.suppress(ImportError):
                found.append(getattr(importlib.import_module(place), name))
    if not found:
        raise InputError(
            "neither transformers nor lightning is installed: pip install one of them for its Trainer, or call "
            "probe.update in a training loop."
        )
    return tuple(dict.fromkeys(one for one in found if one is not object))


class _Passes:
    """References to the inputs and losses of a model's forward passes in training, since the last step."""

    def __init__(self, model: torch.nn.Module):
        self._batches, self._losses = list[Any](), list[torch.Tensor]()
        self._shared = False  # whether losses are shares of one mean over all passes
        self._paused = False
        self._hooks = (
            model.register_forward_pre_hook(self._before, with_kwargs=True),
            model.register_forward_hook(self._after),
        )

    def _before(self, module: torch.nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        if self._counts(module):
            self._shared = named.get("num_items_in_batch") is not None
            batch = {name: value for name, value in named.items() if name != "num_items_in_batch"}
            self._batches.append(batch if not inputs else inputs if not batch else None)

    def _after(self, module: torch.nn.Module, inputs: tuple[Any, ...], outputs: Any) -> None:
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else None
        if self._counts(module) and isinstance(loss, torch.Tensor):
            self._losses.append(loss.detach())

    def _counts(self, module: torch.nn.Module) -> bool:
        return module.training and torch.is_grad_enabled() and not self._paused

    def take(self) -> tuple[torch.Tensor | None, Any]:
        """The loss of the step and its batch, if there was one."""
        losses, batches, self._losses, self._batches = self._losses, self._batches, [], []
        loss = None
        if losses and len(losses) == len(batches):
            total = torch.stack([part.mean() for part in losses])
            loss = total.sum() if self._shared else total.mean()
        return loss, batches[0] if len(batches) == 1 else None

    def close(self) -> None:
        """Removes the hooks."""
        for hook in self._hooks:
            hook.remove()

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """While the probe measures, forward passes do not count."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False
