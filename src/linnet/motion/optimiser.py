"""What all optimisers share: step sizes, weight decay, rates by layer and what a step sees."""

import abc
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, Num

from linnet import _check
from linnet._check import InputError
from linnet.motion import edge
from linnet.motion.batches import Batches, MiniBatch
from linnet.motion.stepping import Stepping
from linnet.problems import Problem
from linnet.states import State

Schedule = Callable[[Any], Any]  # of the number of steps made before, as optax has them


class Seeing(Stepping):
    """Steps that see samples: `batch` says which, all of them if there is none. A subclass gives `advance`.

    What it remembers is `past`, beside what the batches remember.
    """

    batch: Batches | None

    def __init__(self, batch: Batches | int | None):
        if batch is not None and not isinstance(batch, int | Batches):
            raise InputError(
                f"batch = {_check.show(batch)} is not allowed: give a number of samples, MiniBatch or Online."
            )
        self.batch = MiniBatch(batch) if isinstance(batch, int) else batch

    @property
    def random(self) -> bool:
        return self.batch is not None and self.batch.random

    def check(self, problem: Problem, state: State) -> None:
        if self.batch is not None:
            self.batch.check(problem, state)

    def at(self, step: Int[Array, ""]) -> "Seeing":
        if self.batch is None:
            return self
        return eqx.tree_at(lambda motion: motion.batch, self, self.batch.at(step))

    def prepare(self, problem: Problem, state: State) -> Any:
        return None if self.batch is None else self.batch.prepare(problem, state)

    def past(self, weights: Any) -> Any:
        """What it remembers of earlier gradients, at the start."""
        return None

    def memory(self, problem: Problem, state: State) -> Any:
        drawn = None if self.batch is None else self.batch.memory(problem, state)
        past = self.past(state.trained())
        return None if drawn is None and past is None else (past, drawn)

    def step(
        self, problem: Problem, state: Any, memory: Any, prepared: Any, key: Key[Array, ""] | None
    ) -> tuple[Any, Any]:
        past, drawn = (None, None) if memory is None else memory
        view = state
        if self.batch is not None:
            own = None if key is None else jax.random.fold_in(key, 1)  # beside the noise of the motion itself
            samples, drawn = self.batch.seen(prepared, drawn, own)
            view, problem = state.seen(problem, *samples)
        moved, past = self.advance(problem, view, past, key)
        moved = moved if view is state else eqx.combine(moved.trained(), state)  # which keeps all its samples
        return moved, None if memory is None else (past, drawn)

    @abc.abstractmethod
    def advance(self, problem: Problem, state: Any, past: Any, key: Key[Array, ""] | None) -> tuple[Any, Any]:
        """The next state and the next past; `problem` is what the step sees."""


class Optimiser(Seeing):
    """theta <- theta - lr d with a direction d made of the gradient g: a subclass gives `direction`.

    - `lr`: a number, or a function of the step, 0 for the first one (any schedule of optax is such a function).
    - `decay` mu: weight decay, inside the gradient, g + mu theta, which is descent on C + mu/2 |theta|^2 (PyTorch's SGD
      and Adam), or with `decoupled` beside the direction, theta <- theta - lr (d + mu theta) (AdamW, Muon). The two
      differ where there is momentum.
    - `rates`: factors of lr, one for each layer, the first layer first.
    - `batch`: what a step sees, `MiniBatch` or `Online`; a number is that of a `MiniBatch`. All samples if none is.
    """

    lr: Float[Array, ""] | Schedule
    decay: Float[Array, ""] | None  # None where there is none
    decoupled: bool = eqx.field(static=True)
    rates: Float[Array, " depth"] | None

    def __init__(
        self,
        lr: Any,
        *,
        decay: Any = 0.0,
        decoupled: bool = False,
        rates: Sequence[float] | None = None,
        batch: Batches | int | None = None,
    ):
        super().__init__(batch)
        self.lr = scheduled("lr", lr)
        self.decay = decayed(decay)
        self.decoupled = _check.flag("decoupled", decoupled)
        self.rates = layer_rates(rates)

    @property
    def on_weights(self) -> bool:
        """Whether it acts on weights, and not through the force on the matrix alone: momentum, decay and rates do."""
        return True

    def check(self, problem: Problem, state: State) -> None:
        super().check(problem, state)
        if self.on_weights and not state.weighted:
            raise InputError(
                f"{type(state).__name__} has no weights for momentum, decay or rates to act on: use Weights or Modes."
            )

    def time(self, clock: Num[Array, "*n"]) -> Float[Array, "*n"]:
        """The sum of the step sizes."""
        return elapsed(self.lr, clock)

    def at(self, step: Int[Array, ""]) -> "Optimiser":
        now: Any = super().at(step)
        if callable(self.lr):
            with _check.traceable("lr"):
                now = eqx.tree_at(lambda motion: motion.lr, now, jnp.asarray(self.lr(step)))
        return now

    def bears(
        self, step: Any, beta: Any = 0.0, *, nesterov: bool = False, average: bool = False
    ) -> Float[Array, ""] | None:
        """The threshold of descent with this momentum, at the rate of this step; none where rates differ by layer."""
        if self.rates is not None:
            return None
        now, decay = self.at(step), 0.0 if self.decay is None else self.decay
        return edge.limit(now.lr, beta, decay, nesterov=nesterov, average=average, decoupled=self.decoupled)

    def gradient(self, problem: Problem, state: State, key: Key[Array, ""] | None) -> Any:
        """dC/dtheta of what the step sees."""
        return jax.tree.map(jnp.negative, state.velocity(problem).trained())

    @abc.abstractmethod
    def direction(self, gradient: Any, past: Any) -> tuple[Any, Any]:
        """The direction of the step from the gradient and the past, and the next past."""

    def advance(self, problem: Problem, state: Any, past: Any, key: Key[Array, ""] | None) -> tuple[Any, Any]:
        weights = state.trained()
        gradient = self._decayed(self.gradient(problem, state, key), weights, decoupled=False)
        direction, past = self.direction(gradient, past)
        direction = self._decayed(direction, weights, decoupled=True)
        direction = direction if self.rates is None else direction.by_layer(self.rates)
        lr = self.rate(state)
        return eqx.combine(jax.tree.map(lambda w, d: w - lr * d, weights, direction), state), past

    def rate(self, state: Any) -> Float[Array, ""]:
        """The step size of this step, in the precision of the state."""
        return jnp.asarray(self.lr).astype(self.precision(state))

    def _decayed(self, direction: Any, weights: Any, *, decoupled: bool) -> Any:
        if self.decay is None or decoupled != self.decoupled:
            return direction
        return jax.tree.map(lambda d, w: d + self.decay * w, direction, weights)


def decayed(decay: Any) -> Float[Array, ""] | None:
    """Weight decay as a number, None where there is none."""
    strength = _check.number("decay", decay, least=0)
    return strength if _check.traced(strength) or float(strength) > 0 else None


def layer_rates(rates: Any) -> Float[Array, " depth"] | None:
    """Factors of the layers, if they are given."""
    return None if rates is None else _check.numbers("rates", rates, least=0, ndim=1)


def scheduled(name: str, lr: Any) -> Float[Array, ""] | Schedule:
    """A step size above 0, or a function of the step that gives one number."""
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
    """The sum of the first step sizes, so many at each point of an ascending clock."""
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
    start = (jnp.zeros((), jnp.int64), jnp.zeros((), jnp.float64))
    return jax.lax.scan(until, start, steps.ravel())[1].reshape(steps.shape)
