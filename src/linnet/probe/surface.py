"""The loss of a PyTorch model on a batch, as a function of its parameters alone, without side effects."""

import contextlib
import hashlib
import inspect
import itertools
import json
import operator
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from linnet import _input
from linnet._input import InputError

SAMPLE = 10**6  # parameters whose steps are compared
_CHECKED = 10**7  # parameters, up to which the loss is computed at construction
_ROWS, _MORE, _MOMENT = 2, 8, 0.05  # rows of the batch for that, then times as many, while so many seconds allow it
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
            raise InputError(f"model = {_input.show(model)} is not allowed: model must be a torch.nn.Module.")
        if not callable(loss_fn):
            raise InputError(
                f"loss_fn = {_input.show(loss_fn)} is not allowed: it must be a function of (model, batch)."
            )
        self.model = _bare(model)
        self.training = _input.flag("training", training)
        self._whole = _Whole(self.model, loss_fn)
        trained = {name: weight for name, weight in self._whole.named_parameters() if weight.requires_grad}
        self.names, self.weights = list(trained), list(trained.values())
        self.trouble = _trouble(trained)
        self._shapes = [] if self.trouble else [weight.shape for weight in self.weights]
        self.dtype = torch.float64 if any(w.dtype == torch.float64 for w in self.weights) else torch.float32
        self._batch, self._batch_device = _cast(batch, self.dtype), self.device
        self._loss_fn, self._inside = loss_fn, False
        self._sampled: list[torch.Tensor | None] | None = None
        self.twice_checked = False  # whether the loss is known to have two derivatives

    def require(self, loss_fn: Loss) -> None:
        """Refuses a loss that cannot be computed on the batch, or that is not one number with a gradient: on a few of
        its rows where all of them would take long.
        """
        if self.trouble:
            return
        _require_two_arguments(loss_fn)
        count = sum(weight.numel() for weight in self.weights)
        if count > _CHECKED or self.device.type == "meta":
            return
        held = self.held()
        for name in self.names:
            held[name].requires_grad_()

        def check(batch: Any) -> None:
            _one_number(torch.func.functional_call(self._whole, held, (batch,)))

        with _sentence("the loss cannot be computed on the probe's batch"), self.isolated(twice=False):
            parts, rows = self.parts(2), _ROWS
            whole = sum(map(_rows, parts)) if len(parts) == 2 else 0
            with contextlib.suppress(Exception):  # user code may raise anything, and need more rows
                while rows < whole:
                    began = time.perf_counter()
                    check(_mapped(self.batch(), operator.itemgetter(slice(rows))))
                    if _MORE * (time.perf_counter() - began) > _MOMENT:
                        return
                    rows *= _MORE
            check(self.batch())

    def identity(self, loss_fn: Loss) -> str:
        """A hash of the names and shapes of the parameters and the name of the loss: the same in another process."""
        known = [] if self.trouble else zip(self.names, self.weights, strict=True)
        about = [
            getattr(loss_fn, "__qualname__", type(loss_fn).__qualname__),
            [[name, list(weight.shape)] for name, weight in known],
        ]
        return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]

    @property
    def device(self) -> torch.device:
        """The model's current device."""
        return self.weights[0].device if self.weights else torch.device("cpu")

    def flat(self) -> torch.Tensor:
        """A copy of the parameters as one vector."""
        return self._joined(self.weights)

    def change(self, before: Sequence[torch.Tensor]) -> torch.Tensor:
        """The parameters' change from these, as one vector."""
        return self.flat() - self._joined(before)

    def sample(self) -> torch.Tensor:
        """A copy of the parameters, or of a million of them, drawn once."""
        if self._sampled is None:
            draw, total = torch.Generator().manual_seed(0), sum(weight.numel() for weight in self.weights)
            share = min(1.0, SAMPLE / max(1, total))
            self._sampled = [
                None if share == 1 else torch.randint(w.numel(), (round(share * w.numel()),), generator=draw)
                for w in self.weights
            ]
        with torch.no_grad():
            rows = [weight.detach().reshape(-1) for weight in self.weights]
            return self._joined(
                [row if at is None else row[at.to(row.device)] for row, at in zip(rows, self._sampled, strict=True)]
            )

    @property
    def sample_scale(self) -> float:
        """What the length of a sample is multiplied by to estimate that of the whole vector."""
        return max(1.0, sum(weight.numel() for weight in self.weights) / SAMPLE) ** 0.5

    def _joined(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        with torch.no_grad():
            return torch.cat([part.detach().to(self.device, self.dtype).reshape(-1) for part in parts])

    def parted(self, vector: torch.Tensor) -> dict[int, torch.Tensor]:
        """The pieces of a vector in the shapes of the parameters, by their ids."""
        pieces = torch.split(vector, [weight.numel() for weight in self.weights])
        return {id(w): piece.reshape(w.shape) for w, piece in zip(self.weights, pieces, strict=True)}

    def here(self) -> "LossPoint":
        """The loss at the model's current parameters, with its gradient and Hessian-vector products."""
        return LossPoint(self)

    def again(self) -> "Surface":
        """The same with the parameters that train now."""
        return Surface(self.model, self._loss_fn, self.batch(), training=self.training)

    def segment(self, before: Sequence[torch.Tensor]) -> "Segment":
        """The loss along the change of the parameters since `before`, copies that `copies` made."""
        return Segment(self, before)

    def copies(self) -> list[torch.Tensor]:
        """Copies of the parameters."""
        return [weight.detach().clone() for weight in self.weights]

    def loss(self, weights: Sequence[torch.Tensor] | None = None, batch: Any = None) -> float:
        """The loss by one forward pass: on its own batch and at the model's parameters, unless others are given."""
        held = self.held(None if weights is None else dict(zip(self.names, weights, strict=True)))
        given = self.batch() if batch is None else batch
        where = "the probe's batch" if batch is None else "a batch of the training"
        with _sentence(f"the loss cannot be computed on {where}"), self.isolated(twice=False), torch.no_grad():
            value = torch.func.functional_call(self._whole, held, (given,))
        _one_number(value, differentiable=False)
        return float(value.double())

    def here_too(self, batch: Any) -> Any:
        """A batch of the training on the model's device, in the precision of measurements."""
        return _mapped(batch, lambda x: x.detach().to(self.device, self.dtype if x.is_floating_point() else x.dtype))

    def split(self, share: float) -> tuple[Any, Any] | None:
        """Its batch in two by rows, the first with this share; None where it has fewer than eight rows."""
        eighths = self.parts(8)
        if len(eighths) < 8:
            return None
        rows = sum(_rows(part) for part in eighths)
        cut = round(share * rows)
        return tuple(_mapped(self.batch(), operator.itemgetter(part)) for part in (slice(cut), slice(cut, rows)))

    def parts(self, most: int) -> list[Any]:
        """Its batch in so many parts of rows, as equal as possible; fewer where there are fewer rows, and one where
        its tensors do not have the same number of rows.
        """
        whole, lengths = self.batch(), set[int]()

        def measured(value: torch.Tensor) -> torch.Tensor:
            lengths.add(len(value) if value.ndim else 0)
            return value

        _mapped(whole, measured)
        rows = lengths.pop() if len(lengths) == 1 else 0
        count = min(most, rows)
        if count < 2:
            return [whole]
        ends = [rows * k // count for k in range(count + 1)]
        return [_mapped(whole, operator.itemgetter(slice(a, b))) for a, b in itertools.pairwise(ends)]

    def gradient(
        self, displaced: tuple[torch.Tensor, float] | None = None, batch: Any = None
    ) -> tuple[float, torch.Tensor]:
        """The loss and its gradient on its own batch or another, at the parameters or displaced from them by a vector
        times a number.
        """
        held = self.held()
        weights = [held[name] for name in self.names]
        if displaced is not None:
            parts = self.parted(displaced[0])
            for copy, weight in zip(weights, self.weights, strict=True):
                copy.add_(parts[id(weight)].to(copy.device), alpha=displaced[1])
        for copy in weights:
            copy.requires_grad_()
        slopes, held = _Slopes(self._whole), {f"whole.{name}": value for name, value in held.items()}
        with _sentence("the loss cannot be computed on the probe's batch"), self.isolated(twice=False):
            given = self.batch() if batch is None else batch
            value, found = torch.func.functional_call(slopes, held, (given, weights))
        return float(value), self._joined([slope.to_dense() for slope in found])

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

    def held(self, given: Mapping[str, torch.Tensor] | None = None) -> dict[str, torch.Tensor]:
        """All tensors of the model by name; trainable parameters and buffers are copies, of parameters `given` ones if
        there are any.
        """
        found = dict(self._whole.named_parameters())
        for name, weight, shape in zip(self.names, self.weights, self._shapes, strict=True):
            if found.get(name) is not weight or weight.shape != shape:
                raise InputError(f"{_own(name)} was replaced or resized since the probe was made: make another one.")
        trained = set(self.names)
        frozen = {n: w.detach().to(self._real(w)) for n, w in found.items() if n not in trained}
        moving = [*self._whole.named_buffers(), *((name, found[name]) for name in self.names if given is None)]
        copied = {name: value.detach().to(self._real(value), copy=True) for name, value in moving}
        return frozen | copied | {name: value.detach().to(self._real(value)) for name, value in (given or {}).items()}

    def _real(self, value: torch.Tensor) -> torch.dtype:
        return self.dtype if value.is_floating_point() else value.dtype

    def batch(self) -> Any:
        """The batch, on the model's device."""
        if self._batch_device != self.device:
            self._batch, self._batch_device = _mapped(self._batch, lambda value: value.to(self.device)), self.device
        return self._batch

    def _cards(self) -> list[int]:
        """The accelerators that the model is on."""
        devices = {weight.device for weight in self.model.parameters()}
        return sorted({device.index or 0 for device in devices if device.type == "cuda"})

    @contextlib.contextmanager
    def isolated(self, *, twice: bool = True) -> Iterator[None]:
        """Restores generators and modes afterwards. `twice`: with kernels that can be differentiated twice.

        Inside of another one it draws the same numbers again.
        """
        if self._inside:
            _seed(self._cards())
            yield
            return
        modes = [(module, module.training) for module in self.model.modules()]
        with contextlib.ExitStack() as stack:
            stack.enter_context(_forked(self._cards()))
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.enable_grad())
            for kind in {"cpu", self.device.type}:
                stack.enter_context(torch.autocast(kind, enabled=False))
            if twice:  # fused attention has no second derivative
                stack.enter_context(torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH))
            try:
                if not self.training:
                    for module, _ in modes:  # not by model.eval(), which users may have overridden
                        module.training = False
                self._inside = True
                yield
            finally:
                self._inside = False
                for module, mode in modes:
                    module.training = mode


class Segment:
    """The loss along the last change of the parameters, before + c (now - before), by forward passes."""

    def __init__(self, surface: Surface, before: Sequence[torch.Tensor]):
        self._surface, self._before = surface, [part.to(surface.dtype) for part in before]
        self._now = [weight.detach() for weight in surface.weights]
        if any(a.shape != b.shape for a, b in zip(self._before, self._now, strict=True)):
            raise InputError("a parameter was resized since the step before.")

    def loss(self, c: float, batch: Any = None) -> float:
        """The loss at c, exactly that of the parameters before the change at 0 and after it at 1."""
        if c in (0.0, 1.0):
            return self._surface.loss(self._now if c else self._before, batch)
        both = zip(self._before, self._now, strict=True)
        return self._surface.loss([torch.lerp(a, b.to(a), c) for a, b in both], batch)

    def square(self) -> float:
        """The squared length of the change."""
        both = zip(self._before, self._now, strict=True)
        return sum(float((b.to(a) - a).double().square().sum()) for a, b in both)


class LossPoint:
    """The loss at one point: its value, its gradient, and products with its Hessian.

    A gradient takes as long as a training step; each product about two.
    """

    def __init__(self, surface: Surface, batch: Any = None):
        self._surface = surface
        held = surface.held()
        self._weights = [held[name].requires_grad_() for name in surface.names]
        with _sentence("the loss cannot be computed on the probe's batch"), surface.isolated():
            given = surface.batch() if batch is None else batch
            value = torch.func.functional_call(surface._whole, held, (given,))
            _one_number(value)
            if not surface.twice_checked:
                _require_parameters_in_graph(value)
                _require_two_derivatives(value)
                surface.twice_checked = True
            self._gradients = torch.autograd.grad(
                value, self._weights, create_graph=True, allow_unused=True, materialize_grads=True
            )
        for name, slope in zip(surface.names, self._gradients, strict=True):
            if slope.layout != torch.strided:
                raise InputError(f"the gradient of {_own(name)} is sparse, and cannot be differentiated again.")
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


class _Slopes(torch.nn.Module):
    """The loss and its gradient in one call: checkpointed modules compute their activations again for the gradient."""

    def __init__(self, whole: _Whole):
        super().__init__()
        self.whole = whole

    def forward(self, batch: Any, weights: Sequence[torch.Tensor]) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        value = self.whole(batch)
        _one_number(value)
        _require_parameters_in_graph(value)
        return value.detach(), torch.autograd.grad(value, weights, allow_unused=True, materialize_grads=True)


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
        if hasattr(weight, "full_tensor"):
            return f"{_own(name)} is sharded over processes, which a measurement in one of them cannot gather."
        if not weight.is_floating_point():
            return f"{_own(name)} is {weight.dtype}: parameters that train must be real."
    return None


def _own(name: str) -> str:
    """A parameter's name in the user's model."""
    return name.removeprefix("model.")


@contextlib.contextmanager
def _forked(cards: list[int]) -> Iterator[None]:
    """Random numbers of PyTorch, NumPy and Python as from seed 0, the same at every product; then as they were."""
    others = random.getstate(), np.random.get_state()  # noqa: NPY002  users' losses may draw from it
    with torch.random.fork_rng(devices=cards):
        _seed(cards)
        try:
            yield
        finally:
            random.setstate(others[0])
            np.random.set_state(others[1])  # noqa: NPY002


def _seed(cards: list[int]) -> None:
    """Not by torch.manual_seed, which seeds devices that are not ours."""
    for generator in (torch.default_generator, *(torch.cuda.default_generators[card] for card in cards)):
        generator.manual_seed(0)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002


def _one_number(value: Any, *, differentiable: bool = True) -> None:
    if not isinstance(value, torch.Tensor):
        raise InputError(f"loss_fn returns {_input.show(value)}: it must return a tensor with one number.")
    if value.numel() != 1 or not value.is_floating_point():
        raise InputError(
            f"loss_fn returns {value.dtype} of shape {tuple(value.shape)}: it must return one real number."
        )
    if differentiable and not value.requires_grad:
        raise InputError("loss_fn returns a number that does not depend on the parameters.")


def _require_two_derivatives(value: torch.Tensor) -> None:
    """Refuses functions that are marked as differentiable once: PyTorch may omit their curvature without an error."""
    for node in _nodes(value):
        function = getattr(node, "_forward_cls", None)
        if function is not None and getattr(function.backward, "__code__", None) is _ONCE:
            raise InputError(f"the loss cannot be differentiated twice: {function.__name__} is once_differentiable.")


def _require_parameters_in_graph(value: torch.Tensor) -> None:
    """Refuses reentrant checkpoints, which hide their parameters from the graph: gradients would be 0."""
    if any(node.name() == "CheckpointFunctionBackward" for node in _nodes(value)):
        raise InputError("reentrant checkpoints give copies of parameters no gradient: use_reentrant=False does.")


def _require_two_arguments(loss_fn: Loss) -> None:
    try:
        inspect.signature(loss_fn).bind(None, None)
    except TypeError as error:
        raise InputError(
            f"loss_fn = {_input.show(loss_fn)} is not allowed: it must be a function of (model, batch), but {error}."
        ) from None
    except ValueError:  # a built-in function
        pass


def _nodes(value: torch.Tensor) -> Iterator[Any]:
    """The functions that a number was computed by."""
    visited: set[Any] = set()
    waiting: list[Any] = [value.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in visited:
            continue
        visited.add(node)
        yield node
        waiting += [below for below, _ in node.next_functions]


def _cast(batch: Any, dtype: torch.dtype) -> Any:
    """A copy of a batch with its real tensors in one precision, detached from what they were made of."""
    return _mapped(batch, lambda x: x.detach().to(dtype if x.is_floating_point() else x.dtype, copy=True))


def _rows(batch: Any) -> int:
    """The number of rows of its first tensor."""
    found = list[int]()
    _mapped(batch, lambda value: found.append(len(value)) or value)  # type: ignore[func-returns-value]
    return found[0]


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
