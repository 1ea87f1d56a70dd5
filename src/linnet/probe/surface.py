"""The loss of a PyTorch model on a batch, as a function of its parameters alone: its training notices nothing."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from linnet import _check
from linnet._check import InputError

Loss = Callable[[Any, Any], torch.Tensor]


class Surface:
    """The loss `loss_fn(model, batch)` on one batch, at copies of the parameters that train.

    Buffers are copies too, random numbers are drawn from a fork, and hidden modes are put back, so that a look leaves
    gradients, running means, generators and modes bit for bit as they were. Numbers are single precision, or double
    where the model has double parameters. `training` says in which mode the model is looked at: by default in that of
    evaluation, without dropout.
    """

    def __init__(self, model: Any, loss_fn: Loss, batch: Any, *, training: bool = False):
        if not isinstance(model, torch.nn.Module):
            raise InputError(f"model = {_check.show(model)} is not allowed: model must be a torch.nn.Module.")
        if not callable(loss_fn):
            raise InputError(
                f"loss_fn = {_check.show(loss_fn)} is not allowed: it must be a function of (model, batch)."
            )
        parallel = (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)
        self.model: torch.nn.Module = model.module if isinstance(model, parallel) else model
        self.training = _check.flag("training", training)
        self._whole = _Whole(self.model, loss_fn)
        self.names = [name for name, weight in self._whole.named_parameters() if weight.requires_grad]
        if not self.names:
            raise InputError("model has no parameters that train: there is nothing to look at.")
        weights = dict(self._whole.named_parameters())
        odd = [name for name in self.names if not weights[name].is_floating_point()]
        if odd:
            raise InputError(f"{odd[0].removeprefix('model.')} is {weights[odd[0]].dtype}: parameters must be real.")
        self.dtype = torch.float64 if any(weights[n].dtype == torch.float64 for n in self.names) else torch.float32
        self.device = weights[self.names[0]].device
        self.batch = _cast(batch, self.dtype)

    @property
    def weights(self) -> list[torch.Tensor]:
        """The model's own parameters that train, in order."""
        found = dict(self._whole.named_parameters())
        return [found[name] for name in self.names]

    def flat(self) -> torch.Tensor:
        """A copy of them as one vector."""
        with torch.no_grad():
            return torch.cat([w.detach().to(self.dtype).reshape(-1) for w in self.weights])

    def here(self) -> "Point":
        """The loss at the model's present parameters, ready for gradients and products."""
        return Point(self)

    def slopes(self, frozen: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """The gradients in parameters of the model that do not train, in double precision; one more step's cost."""
        names = {id(weight): name for name, weight in self._whole.named_parameters()}
        held = self._held()
        leaves = {id(weight): held[names[id(weight)]].requires_grad_() for weight in frozen if weight is not None}
        with _told("the loss has no gradient in frozen matrices"), self.apart():
            value = torch.func.functional_call(self._whole, held, (self.batch,))
            found = torch.autograd.grad(value, list(leaves.values()), allow_unused=True, materialize_grads=True)
        given = {key: slope.detach().double() for key, slope in zip(leaves, found, strict=True)}
        return [None if weight is None else given[id(weight)] for weight in frozen]

    def call(self, function: Callable[[Any, Any], Any]) -> Any:
        """What a function of (model, batch) gives at the present parameters, without gradients."""
        with _told("outputs cannot be computed on the probe's batch"), self.apart(), torch.no_grad():
            return torch.func.functional_call(_Whole(self.model, function), self._held(), (self.batch,))

    def _held(self) -> dict[str, torch.Tensor]:
        """Copies of all parameters and buffers, real ones in the precision of the looks."""
        return {
            name: value.detach().to(self.dtype, copy=True) if value.is_floating_point() else value.detach().clone()
            for name, value in (*self._whole.named_parameters(), *self._whole.named_buffers())
        }

    @contextlib.contextmanager
    def apart(self) -> Iterator[None]:
        """Where nothing that is done to the model is seen by its training."""
        modes = [(module, module.training) for module in self.model.modules()]
        cards = sorted({w.device.index or 0 for w in self.model.parameters() if w.device.type == "cuda"})
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.random.fork_rng(devices=cards))
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.enable_grad())
            for kind in {"cpu", self.device.type}:
                stack.enter_context(torch.autocast(kind, enabled=False))
            # fused attention has no second derivative
            stack.enter_context(torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH))
            torch.manual_seed(0)  # dropout is the same at every product
            try:
                self.model.train(self.training)
                yield
            finally:
                for module, mode in modes:
                    module.training = mode


class Point:
    """The loss at one point: its value, its gradient, and products with its Hessian.

    A gradient costs a training step; each product about two.
    """

    def __init__(self, surface: Surface):
        self._surface = surface
        held = surface._held()
        self._weights = [held[name].requires_grad_() for name in surface.names]
        with _told("the loss cannot be computed on the probe's batch"), surface.apart():
            value = torch.func.functional_call(surface._whole, held, (surface.batch,))
            if not isinstance(value, torch.Tensor) or value.numel() != 1 or not value.requires_grad:
                raise InputError(
                    f"loss_fn returns {_check.show(value)}: it must return one number that depends on the parameters."
                )
            self._gradients = torch.autograd.grad(
                value, self._weights, create_graph=True, allow_unused=True, materialize_grads=True
            )
        self.loss = float(value.detach())
        self.gradient = _joined(self._gradients)

    def product(self, direction: torch.Tensor) -> torch.Tensor:
        """The Hessian times a vector, exactly."""
        sizes = [w.numel() for w in self._weights]
        parts = [v.reshape(w.shape) for v, w in zip(direction.split(sizes), self._weights, strict=True)]
        bent = [(g, v) for g, v in zip(self._gradients, parts, strict=True) if g.requires_grad]
        if not bent:  # a loss that is linear in its parameters
            return torch.zeros_like(direction)
        try:
            with self._surface.apart():
                found = torch.autograd.grad(
                    [g for g, _ in bent],
                    self._weights,
                    [v for _, v in bent],
                    retain_graph=True,
                    allow_unused=True,
                    materialize_grads=True,
                )
        except (RuntimeError, NotImplementedError) as error:
            raise InputError(f"the loss cannot be differentiated twice: {_first(error)}") from error
        return _joined(found)


class _Whole(torch.nn.Module):
    """A model and its loss as one module."""

    def __init__(self, model: torch.nn.Module, loss_fn: Loss):
        super().__init__()
        self.model = model
        self._loss = loss_fn

    def forward(self, batch: Any) -> torch.Tensor:
        return self._loss(self.model, batch)


def _joined(parts: Any) -> torch.Tensor:
    return torch.cat([part.detach().reshape(-1) for part in parts])


def _cast(batch: Any, dtype: torch.dtype) -> Any:
    """A batch with its real tensors in one precision, detached from what they were made of."""
    if isinstance(batch, torch.Tensor):
        return batch.detach().to(dtype, copy=True) if batch.is_floating_point() else batch.detach().clone()
    if isinstance(batch, dict) or hasattr(batch, "items"):
        return {name: _cast(value, dtype) for name, value in batch.items()}
    if isinstance(batch, tuple | list):
        parts = [_cast(value, dtype) for value in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    return batch


@contextlib.contextmanager
def _told(what: str) -> Iterator[None]:
    """What goes wrong in a model or in its loss becomes one sentence."""
    try:
        yield
    except InputError:
        raise
    except (RuntimeError, TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise InputError(f"{what}: {_first(error)}") from error


def _first(error: BaseException) -> str:
    """The first line of what PyTorch says."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no reason was given'}"
