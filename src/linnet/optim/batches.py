"""The samples of each training step: some of the given ones, or new ones."""

import abc
from collections.abc import Callable
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from linnet import _check
from linnet._check import InputError
from linnet.problems import Problem, Samples
from linnet.states import State


class Batches(eqx.Module):
    """Which samples a step uses: a subclass gives `select`."""

    @property
    def random(self) -> bool:
        """Whether `select` draws random samples, and needs a key."""
        return True

    def at(self, step: Int[Array, ""]) -> Self:
        """The batches as they are at this step; the same at all unless they have an order."""
        return self

    def check(self, problem: Problem, state: State) -> None:
        """Refuses a problem that has not what it shows."""
        return

    def prepare(self, problem: Problem, state: State) -> Any:
        """What all steps share."""
        return None

    def memory(self, problem: Problem, state: State) -> Any:
        """What one step leaves for the next."""
        return None

    @abc.abstractmethod
    def select(self, prepared: Any, memory: Any, key: Key[Array, ""] | None) -> tuple[Samples, Any]:
        """The samples of the step, and the next memory."""


class MiniBatch(Batches):
    """`size` of the samples at each step; the gradient is n/size times that of their cost, so right on average.

    - draw = "shuffled": passes through the samples, each in a new order; what is left over when `size` does not divide
      their number is left out of that pass (PyTorch's DataLoader with shuffle and drop_last).
    - draw = "subset": other samples at each step, none twice in a batch. draw = "replacement": each by itself.
    - `order`: the samples of each step, a row a batch, used again from the first row on; nothing is drawn.

    The problem must know its samples: `regression(..., samples=True)` where they are many.
    """

    size: int = eqx.field(static=True)
    draw: str = eqx.field(static=True)
    order: Int[Array, "batches size"] | None
    now: Int[Array, ""] | None

    def __init__(self, size: int | None = None, *, draw: str = "shuffled", order: Any = None):
        self.draw = _check.choice("draw", draw, ("shuffled", "subset", "replacement"))
        self.now = None
        if order is None:
            self.order, self.size = None, _check.integer("size", size, least=1)
            return
        if size is not None:
            raise InputError(f"size = {_check.show(size)} is not allowed beside order: its rows have a length.")
        rows = np.asarray(order)
        if rows.ndim != 2 or rows.size == 0 or rows.dtype.kind not in "iu" or rows.min() < 0:
            raise InputError("order is not allowed: it must be a matrix of samples' numbers, from 0 on, a row a batch.")
        self.order, self.size = jnp.asarray(rows), rows.shape[1]

    @property
    def random(self) -> bool:
        return self.order is None

    def at(self, step: Int[Array, ""]) -> "MiniBatch":
        return eqx.tree_at(lambda batch: batch.now, self, step, is_leaf=lambda x: x is None)

    def check(self, problem: Problem, state: State) -> None:
        n = jax.eval_shape(state.sampled, problem).inputs.shape[0]
        if self.order is None and self.draw != "replacement" and self.size > n:
            raise InputError(f"size = {self.size} is not allowed: there are {n} samples.")
        if self.order is not None and not _check.traced(self.order) and int(self.order.max()) >= n:
            raise InputError(f"order names sample {int(self.order.max())}: there are {n} samples, from 0 on.")

    def prepare(self, problem: Problem, state: State) -> Any:
        return state.sampled(problem)

    def memory(self, problem: Problem, state: State) -> Any:
        """The order of this pass."""
        if self.order is not None or self.draw != "shuffled":
            return None
        return jnp.arange(jax.eval_shape(state.sampled, problem).inputs.shape[0], dtype=jnp.int32)

    def select(self, prepared: Any, memory: Any, key: Key[Array, ""] | None) -> tuple[Samples, Any]:
        rows, memory = self._rows(prepared.inputs.shape[0], memory, key)
        return Samples(prepared.inputs[rows], prepared.labels[rows]), memory

    def _rows(self, n: int, memory: Any, key: Key[Array, ""] | None) -> tuple[Int[Array, " size"], Any]:
        if self.order is not None:
            assert self.now is not None
            return self.order[self.now % self.order.shape[0]], memory
        assert key is not None
        if self.draw == "replacement":
            return jax.random.randint(key, (self.size,), 0, n), memory
        if self.draw == "subset":
            return jax.random.choice(key, n, (self.size,), replace=False), memory
        assert self.now is not None
        place = self.now % (n // self.size)
        memory = jax.lax.cond(place == 0, lambda: jax.random.permutation(key, memory), lambda: memory)
        return jax.lax.dynamic_slice(memory, (place * self.size,), (self.size,)), memory


class Online(Batches):
    """`size` new samples at each step, none used twice.

    `draw(key, size)` gives their inputs and labels, a row each. Without it they are Gaussian with the second moments of
    the problem's own samples, and labels as its best fit leaves them (`Problem.sampler`).
    """

    size: int = eqx.field(static=True)
    draw: Callable[[Key[Array, ""], int], Any] | None

    def __init__(self, size: int, *, draw: Callable[[Key[Array, ""], int], Any] | None = None):
        self.size = _check.integer("size", size, least=1)
        if draw is not None and not callable(draw):
            raise InputError(f"draw = {_check.show(draw)} is not allowed: draw must be a function of (key, size).")
        self.draw = draw

    def check(self, problem: Problem, state: State) -> None:
        self.prepare(problem, state)

    def prepare(self, problem: Problem, state: State) -> Any:
        return problem.sampler() if self.draw is None else None

    def select(self, prepared: Any, memory: Any, key: Key[Array, ""] | None) -> tuple[Samples, Any]:
        assert key is not None
        if self.draw is None:
            return prepared.draw(key, self.size), memory
        with _check.traceable("draw"):
            inputs, labels = self.draw(key, self.size)
        return Samples(jnp.asarray(inputs), jnp.asarray(labels)), memory
