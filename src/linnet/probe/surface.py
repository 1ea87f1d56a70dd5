"""The loss of a PyTorch model on a batch, as a function of its parameters alone, without side effects."""

import contextlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from linnet import _check
from linnet._check import InputError

Loss = Callable[[Any, Any], torch.Tensor]
_ONCE = torch.autograd.function.once_differentiable(lambda *_: None).__code__  # all functions so marked share it


class Surface:
    """The loss `loss_fn(model, batch)` on one batch, as a function of the parameters that train at its construction.

    It works on copies of them and of the buffers, random numbers are drawn from a fork, and modes are restored:
    gradients, running means, generators, and modes stay bit for bit as they were. Numbers are single precision, or
    double where the model has double parameters. The model is in evaluation mode, without dropout; with `training` in
    its own modes.
    """

    def __init__(self, model: Any, loss_fn: Loss, batch: Any, *, training: bool = False):
        if not isinstance(model, torch.nn.Module):
            raise InputError(f"model = {_check.show(model)} is not allowed: model must be a torch.nn.Module.")
        if not callable(loss_fn):
            raise InputError(
                f"loss_fn = {_check.show(loss_fn)} is not allowed: it must be a function of (model, batch)."
            )
        self.model = _bare(model)
        self.training = _check.flag("training", training)
        self._whole = _Whole(self.model, loss_fn)
        trained = {name: weight for name, weight in self._whole.named_parameters() if weight.requires_grad}
        self.names, self.weights = list(trained), list(trained.values())
        self.trouble = _trouble(trained)
        self._shapes = [] if self.trouble else [weight.shape for weight in self.weights]
        self.dtype = torch.float64 if any(w.dtype == torch.float64 for w in self.weights) else torch.float32
        self._batch, self._batch_device = _cast(batch, self.dtype), self.device
        self.twice_checked = False  # whether the loss is known to have two derivatives

    @property
    def device(self) -> torch.device:
        """The model's current device."""
        return self.weights[0].device if self.weights else torch.device("cpu")

    def flat(self) -> torch.Tensor:
        """A copy of the parameters as one vector."""
        return self._joined(self.weights)

    def slope(self) -> torch.Tensor | None:
        """A copy of the gradient in the parameters' `grad`; None if some have none."""
        found = [weight.grad for weight in self.weights]
        whole = [g for g in found if g is not None and g.layout == torch.strided]
        return self._joined(whole) if len(whole) == len(found) else None

    def _joined(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        with torch.no_grad():
            return torch.cat([part.detach().to(self.device, self.dtype).reshape(-1) for part in parts])

    def parted(self, vector: torch.Tensor) -> dict[int, torch.Tensor]:
        """The pieces of a vector in the shapes of the parameters, by their ids."""
        pieces = torch.split(vector, [weight.numel() for weight in self.weights])
        return {id(w): piece.reshape(w.shape) for w, piece in zip(self.weights, pieces, strict=True)}

    def here(self) -> "Point":
        """The loss at the model's current parameters, with its gradient and Hessian-vector products."""
        return Point(self)

    def slopes(self, frozen: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """The gradients of parameters that do not train, in double precision: the compute cost of one more step."""
        names = {id(weight): name for name, weight in self._whole.named_parameters()}
        held = self.held()
        leaves = {id(weight): held[names[id(weight)]].requires_grad_() for weight in frozen if weight is not None}
        with _sentence("the loss has no gradient in frozen matrices"), self.isolated():
            value = torch.func.functional_call(self._whole, held, (self.batch(),))
            found = torch.autograd.grad(value, list(leaves.values()), allow_unused=True, materialize_grads=True)
        given = {key: slope.detach().double() for key, slope in zip(leaves, found, strict=True)}
        return [None if weight is None else given[id(weight)] for weight in frozen]

    def call(self, function: Callable[[Any, Any], Any]) -> Any:
        """The value of a function of (model, batch) at the current parameters, without gradients."""
        with _sentence("outputs cannot be computed on the probe's batch"), self.isolated(), torch.no_grad():
            return torch.func.functional_call(_Whole(self.model, function), self.held(), (self.batch(),))

    def held(self) -> dict[str, torch.Tensor]:
        """All tensors of the model by name; trainable parameters and buffers are copies."""
        found = dict(self._whole.named_parameters())
        for name, weight, shape in zip(self.names, self.weights, self._shapes, strict=True):
            if found.get(name) is not weight or weight.shape != shape:
                raise InputError(f"{_own(name)} was replaced or resized since the probe was made: make another one.")
        trained = set(self.names)
        frozen = {n: w.detach().to(self._real(w)) for n, w in found.items() if n not in trained}
        moving = (*self._whole.named_buffers(), *((name, found[name]) for name in self.names))
        return frozen | {name: value.detach().to(self._real(value), copy=True) for name, value in moving}

    def _real(self, value: torch.Tensor) -> torch.dtype:
        return self.dtype if value.is_floating_point() else value.dtype

    def batch(self) -> Any:
        """The batch, on the model's device."""
        if self._batch_device != self.device:
            self._batch, self._batch_device = _mapped(self._batch, lambda value: value.to(self.device)), self.device
        return self._batch

    @contextlib.contextmanager
    def isolated(self) -> Iterator[None]:
        """Restores generators and modes afterwards."""
        modes = [(module, module.training) for module in self.model.modules()]
        with contextlib.ExitStack() as stack:
            stack.enter_context(_forked({weight.device for weight in self.model.parameters()}))
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.enable_grad())
            for kind in {"cpu", self.device.type}:
                stack.enter_context(torch.autocast(kind, enabled=False))
            # fused attention has no second derivative
            stack.enter_context(torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH))
            try:
                if not self.training:
                    for module, _ in modes:  # not by model.eval(), which users may have overridden
                        module.training = False
                yield
            finally:
                for module, mode in modes:
                    module.training = mode


class Point:
    """The loss at one point: its value, its gradient, and products with its Hessian.

    A gradient takes as long as a training step; each product about two.
    """

    def __init__(self, surface: Surface):
        self._surface = surface
        held = surface.held()
        self._weights = [held[name].requires_grad_() for name in surface.names]
        with _sentence("the loss cannot be computed on the probe's batch"), surface.isolated():
            value = torch.func.functional_call(surface._whole, held, (surface.batch(),))
            _one_number(value)
            if not surface.twice_checked:
                _require_two_derivatives(value)
                surface.twice_checked = True
            self._gradients = torch.autograd.grad(
                value, self._weights, create_graph=True, allow_unused=True, materialize_grads=True
            )
        self.loss = float(value.detach())
        self.gradient = surface._joined(self._gradients)

    def product(self, direction: torch.Tensor) -> torch.Tensor:
        """The Hessian times a vector, exactly."""
        parts = self._surface.parted(direction)
        return self._surface._joined(list(self.block(parts).values()))

    def block(self, parts: Mapping[int, torch.Tensor]) -> dict[int, torch.Tensor]:
        """The Hessian's block of some parameters times a vector: pieces of both by the ids of the parameters."""
        where = [i for i, weight in enumerate(self._surface.weights) if id(weight) in parts]
        keys, weights = [id(self._surface.weights[i]) for i in where], [self._weights[i] for i in where]
        slopes = [self._gradients[i] for i in where]
        curved = [(g, parts[key].to(g.device)) for g, key in zip(slopes, keys, strict=True) if g.requires_grad]
        if not curved:  # a loss that is linear in its parameters
            return {key: torch.zeros_like(parts[key]) for key in keys}
        try:
            with self._surface.isolated():
                found = torch.autograd.grad(
                    [g for g, _ in curved],
                    weights,
                    [v for _, v in curved],
                    retain_graph=True,
                    allow_unused=True,
                    materialize_grads=True,
                )
        except Exception as error:  # user code may raise anything
            raise InputError(f"the loss cannot be differentiated twice: {_first(error)}") from error
        return dict(zip(keys, found, strict=True))


class _Whole(torch.nn.Module):
    """A model and its loss as one module."""

    def __init__(self, model: torch.nn.Module, loss_fn: Loss):
        super().__init__()
        self.model = model
        self._loss = loss_fn

    def forward(self, batch: Any) -> torch.Tensor:
        return self._loss(self.model, batch)


def _bare(model: torch.nn.Module) -> torch.nn.Module:
    """The model inside wrappers that make it parallel or compiled: neither has a second derivative."""
    parallel = (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)
    inner = model.module if isinstance(model, parallel) else getattr(model, "_orig_mod", model)
    return model if inner is model else _bare(inner)


def _trouble(trained: dict[str, torch.nn.Parameter]) -> str | None:
    """Why a model with these parameters cannot be measured."""
    if not trained:
        return "model has no parameters that train (those of quantized layers do not)."
    for name, weight in trained.items():
        if torch.nn.parameter.is_lazy(weight):
            return f"{_own(name)} has no shape yet: call the model on a batch before the probe is made."
        if not weight.is_floating_point():
            return f"{_own(name)} is {weight.dtype}: parameters that train must be real."
    return None


def _own(name: str) -> str:
    """A parameter's name in the user's model."""
    return name.removeprefix("model.")


@contextlib.contextmanager
def _forked(devices: set[torch.device]) -> Iterator[None]:
    """Random numbers of PyTorch, NumPy and Python as from seed 0, the same at every product; then as they were."""
    cards = sorted({device.index or 0 for device in devices if device.type == "cuda"})
    others = random.getstate(), np.random.get_state()  # noqa: NPY002  users' losses may draw from it
    with torch.random.fork_rng(devices=cards):
        # not by torch.manual_seed, which seeds devices that are not ours
        for generator in (torch.default_generator, *(torch.cuda.default_generators[card] for card in cards)):
            generator.manual_seed(0)
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002
        try:
            yield
        finally:
            random.setstate(others[0])
            np.random.set_state(others[1])  # noqa: NPY002


def _one_number(value: Any) -> None:
    if not isinstance(value, torch.Tensor):
        raise InputError(f"loss_fn returns {_check.show(value)}: it must return a tensor with one number.")
    if value.numel() != 1 or not value.is_floating_point():
        raise InputError(
            f"loss_fn returns {value.dtype} of shape {tuple(value.shape)}: it must return one real number."
        )
    if not value.requires_grad:
        raise InputError("loss_fn returns a number that does not depend on the parameters.")


def _require_two_derivatives(value: torch.Tensor) -> None:
    """Refuses functions that are marked as differentiable once: PyTorch may omit their curvature without an error."""
    visited: set[Any] = set()
    waiting: list[Any] = [value.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in visited:
            continue
        visited.add(node)
        function = getattr(node, "_forward_cls", None)
        if function is not None and getattr(function.backward, "__code__", None) is _ONCE:
            raise InputError(f"the loss cannot be differentiated twice: {function.__name__} is once_differentiable.")
        waiting += [below for below, _ in node.next_functions]


def _cast(batch: Any, dtype: torch.dtype) -> Any:
    """A copy of a batch with its real tensors in one precision, detached from what they were made of."""
    return _mapped(batch, lambda x: x.detach().to(dtype if x.is_floating_point() else x.dtype, copy=True))


def _mapped(batch: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(batch, torch.Tensor):
        return change(batch)
    if isinstance(batch, Mapping):  # those of tokenizers too
        return {name: _mapped(value, change) for name, value in batch.items()}
    if isinstance(batch, tuple | list):
        parts = [_mapped(value, change) for value in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    return batch


@contextlib.contextmanager
def _sentence(what: str) -> Iterator[None]:
    """Turns errors of a model or its loss into one sentence."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # user code may raise anything
        raise InputError(f"{what}: {_first(error)}") from error


def _first(error: BaseException) -> str:
    """The first line of an error message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no reason was given'}"
