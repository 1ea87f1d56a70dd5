"""What all optimizers share: learning rates, weight decay, multipliers of layers, and batches."""

import abc
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, Num

from linnet import _check
from linnet import _update as update
from linnet._check import InputError
from linnet.optim.batches import Batches, MiniBatch
from linnet.optim.discrete import DiscreteDynamics
from linnet.problems import Problem
from linnet.states import State

Schedule = Callable[[Any], Any]  # of the number of steps made before, as optax has them


class BatchedDynamics(DiscreteDynamics):
    """Steps on batches of samples: `batches` chooses them, None means all samples. A subclass gives `advance`.

    Its memory is `past`, what it remembers of earlier gradients, beside the memory of the batches.
    """

    batches: Batches | None

    def __init__(self, batch_size: int | None, batches: Batches | None):
        if batches is not None and not isinstance(batches, Batches):
            raise InputError(f"batches = {_check.show(batches)} is not allowed: give MiniBatch or Online.")
        if batches is not None and batch_size is not None:
            raise InputError("batch_size and batches are both given: batches has a size of its own.")
        if batch_size is not None:
            batches = MiniBatch(_check.integer("batch_size", batch_size, least=1))
        self.batches = batches

    @property
    def random(self) -> bool:
        return self.batches is not None and self.batches.random

    def check(self, problem: Problem, state: State) -> None:
        if self.batches is not None:
            self.batches.check(problem, state)

    def at(self, step: Int[Array, ""]) -> "BatchedDynamics":
        if self.batches is None:
            return self
        return eqx.tree_at(lambda optimizer: optimizer.batches, self, self.batches.at(step))

    def prepare(self, problem: Problem, state: State) -> Any:
        return None if self.batches is None else self.batches.prepare(problem, state)

    def initial_past(self, weights: Any) -> Any:
        """What it remembers of earlier gradients before the first step."""
        return None

    def memory(self, problem: Problem, state: State) -> Any:
        drawn = None if self.batches is None else self.batches.memory(problem, state)
        past = self.initial_past(state.trained())
        return None if drawn is None and past is None else (past, drawn)

    def step(
        self, problem: Problem, state: Any, memory: Any, prepared: Any, key: Key[Array, ""] | None
    ) -> tuple[Any, Any]:
        past, drawn = (None, None) if memory is None else memory
        on_batch = state
        if self.batches is not None:
            own = None if key is None else jax.random.fold_in(key, 1)  # beside the noise of the optimizer itself
            samples, drawn = self.batches.select(prepared, drawn, own)
            on_batch, problem = state.on_samples(problem, *samples)
        moved, past = self.advance(problem, on_batch, past, key)
        moved = moved if on_batch is state else eqx.combine(moved.trained(), state)  # which keeps all its samples
        return moved, None if memory is None else (past, drawn)

    @abc.abstractmethod
    def advance(self, problem: Problem, state: Any, past: Any, key: Key[Array, ""] | None) -> tuple[Any, Any]:
        """The next state and the next past; `problem` holds the samples of this step."""


class Optimizer(BatchedDynamics):
    """theta <- theta - lr d with a direction d made of the gradient g: a subclass gives `direction`.

    - `lr`: a number, or a function of the step, 0 for the first one (any schedule of optax is such a function).
    - `weight_decay` mu: inside the gradient, g + mu theta, which is descent on C + mu/2 |theta|^2 (PyTorch's SGD and
      Adam), or with `decoupled` beside the direction, theta <- theta - lr (d + mu theta) (AdamW, Muon). The two differ
      where there is momentum.
    - `lr_multipliers`: factors of lr, one for each layer, the first layer first.
    - `batch_size`: the samples of a step, as `MiniBatch(batch_size)` draws them; `batches`: `MiniBatch` or `Online`
      with options of their own. All samples if neither is given.
    """

    lr: Float[Array, ""] | Schedule
    weight_decay: Float[Array, ""] | None  # None where there is none
    decoupled: bool = eqx.field(static=True)
    lr_multipliers: Float[Array, " depth"] | None

    def __init__(
        self,
        lr: Any,
        *,
        weight_decay: Any = 0.0,
        decoupled: bool = False,
        lr_multipliers: Sequence[float] | None = None,
        batch_size: int | None = None,
        batches: Batches | None = None,
    ):
        super().__init__(batch_size, batches)
        self.lr = scheduled("lr", lr)
        self.weight_decay = optional(_check.number("weight_decay", weight_decay, least=0))
        self.decoupled = _check.flag("decoupled", decoupled)
        self.lr_multipliers = layer_multipliers(lr_multipliers)

    @property
    def acts_on_weights(self) -> bool:
        """Whether it acts on weights, and not only through the gradient in A: momentum, decay, and multipliers do."""
        return True

    def check(self, problem: Problem, state: State) -> None:
        super().check(problem, state)
        if self.acts_on_weights and not state.weighted:
            raise InputError(
                f"{type(state).__name__} has no weights for momentum, weight_decay, or lr_multipliers to act on: use "
                "Weights or Modes."
            )

    def time(self, clock: Num[Array, "*n"]) -> Float[Array, "*n"]:
        """The sum of the learning rates."""
        return elapsed(self.lr, clock)

    def at(self, step: Int[Array, ""]) -> "Optimizer":
        now: Any = super().at(step)
        if callable(self.lr):
            with _check.traceable("lr"):
                now = eqx.tree_at(lambda optimizer: optimizer.lr, now, jnp.asarray(self.lr(step)))
        return now

    def momentum_threshold(
        self, step: Any, momentum: Any = 0.0, dampening: Any = 0.0, *, nesterov: bool = False
    ) -> Float[Array, ""] | None:
        """The stability threshold with this momentum at the lr of this step; None where layers have their own lr."""
        if self.lr_multipliers is not None:
            return None
        lr, decay = self.at(step).lr, 0.0 if self.weight_decay is None else self.weight_decay
        return update.stability_threshold(lr, momentum, dampening, decay, nesterov=nesterov, decoupled=self.decoupled)

    def gradient(self, problem: Problem, state: State, key: Key[Array, ""] | None) -> Any:
        """dC/dtheta on the samples of the step."""
        return jax.tree.map(jnp.negative, state.velocity(problem).trained())

    @abc.abstractmethod
    def direction(self, gradient: Any, past: Any) -> tuple[Any, Any]:
        """The direction of the step from the gradient and the past, and the next past."""

    def advance(self, problem: Problem, state: Any, past: Any, key: Key[Array, ""] | None) -> tuple[Any, Any]:
        weights = state.trained()
        gradient = self._decayed(self.gradient(problem, state, key), weights, decoupled=False)
        direction, past = self.direction(gradient, past)
        direction = self._decayed(direction, weights, decoupled=True)
        direction = direction if self.lr_multipliers is None else direction.by_layer(self.lr_multipliers)
        lr = self.step_size(state)
        return eqx.combine(jax.tree.map(lambda w, d: w - lr * d, weights, direction), state), past

    def step_size(self, state: Any) -> Float[Array, ""]:
        """The learning rate of this step, in the precision of the state."""
        return jnp.asarray(self.lr).astype(self.precision(state))

    def _decayed(self, direction: Any, weights: Any, *, decoupled: bool) -> Any:
        if self.weight_decay is None or decoupled != self.decoupled:
            return direction
        return jax.tree.map(lambda d, w: d + self.weight_decay * w, direction, weights)


def optional(number: Float[Array, ""]) -> Float[Array, ""] | None:
    """None for a number that is known to be 0, so that the program does without it."""
    return number if _check.traced(number) or float(number) != 0 else None


def layer_multipliers(multipliers: Any) -> Float[Array, " depth"] | None:
    """Factors of the layers, if they are given."""
    return None if multipliers is None else _check.numbers("lr_multipliers", multipliers, least=0, ndim=1)


def scheduled(name: str, lr: Any) -> Float[Array, ""] | Schedule:
    """A learning rate above 0, or a function of the step that gives one number."""
    if not callable(lr):
        return _check.number(name, lr, above=0)
    with _check.traceable(name):
        answer = jax.eval_shape(lambda k: jnp.asarray(lr(k)), jax.ShapeDtypeStruct((), jnp.int64))
    if answer.shape != () or not jnp.issubdtype(answer.dtype, jnp.floating):
        raise InputError(
            f"{name} returns {answer.dtype} of shape {answer.shape}: a schedule must return one real number."
        )
    return lr


def elapsed(lr: Float[Array, ""] | Schedule, clock: Num[Array, "*n"]) -> Float[Array, "*n"]:
    """The sum of the first learning rates, so many at each point of an ascending clock."""
    if not callable(lr):
        return clock * lr
    schedule = lr

    def longer(now: tuple[Array, Array]) -> tuple[Array, Array]:
        step, total = now
        return step + 1, total + jax.lax.stop_gradient(jnp.asarray(schedule(step), dtype=total.dtype))

    def until(now: tuple[Array, Array], goal: Array) -> tuple[tuple[Array, Array], Array]:
        now = jax.lax.while_loop(lambda at: at[0] < goal, longer, now)
        return now, now[1]

    steps = jnp.asarray(clock).astype(jnp.int64)
    carry = (jnp.zeros((), jnp.int64), jnp.zeros((), jnp.float64))
    return jax.lax.scan(until, carry, steps.ravel())[1].reshape(steps.shape)
