"""Stochastic gradient descent, with and without momentum."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, Num

from linnet import _check
from linnet import _update as update
from linnet._check import InputError
from linnet.optim.batches import Batches
from linnet.optim.optimizer import Optimizer, optional
from linnet.problems import Problem


class Buffer(NamedTuple):
    """The momentum buffer, and whether a step has filled it (None where that does not matter)."""

    momentum: Any
    filled: Bool[Array, ""] | None


class SGD(Optimizer):
    """Gradient descent theta <- theta - lr g, or with `momentum` b: v <- b v + (1 - dampening) g, theta <- theta - lr
    v.

    The arguments, their defaults, and the steps are those of `torch.optim.SGD`: the first step takes v = g, whatever
    the dampening, and `nesterov` steps along g + b v with the new v. (With dampening t, which PyTorch refuses beside
    `nesterov`, that is (1 - t) g + b v.) All samples are used at each step unless `batch_size` or `batches` says
    otherwise. `weight_decay`, `decoupled`, `lr_multipliers`, `batch_size`, and `batches` are those of every
    `Optimizer`.

    Times are those of the gradient flow that small steps follow, lr k (1 - dampening) / (1 - momentum) after k steps
    (`optimizers/C8`). On an `EndToEnd` state without momentum a step is forward Euler on its closed flow.

        SGD(0.1)
        SGD(0.1, momentum=0.9, nesterov=True, weight_decay=1e-4, batch_size=32)
    """

    momentum: Float[Array, ""] | None  # None where it is 0
    dampening: Float[Array, ""] | None
    nesterov: bool = eqx.field(static=True)

    def __init__(
        self,
        lr: Any = 1e-3,
        momentum: Any = 0.0,
        dampening: Any = 0.0,
        weight_decay: Any = 0.0,
        nesterov: bool = False,
        *,
        decoupled: bool = False,
        lr_multipliers: Sequence[float] | None = None,
        batch_size: int | None = None,
        batches: Batches | None = None,
    ):
        super().__init__(
            lr,
            weight_decay=weight_decay,
            decoupled=decoupled,
            lr_multipliers=lr_multipliers,
            batch_size=batch_size,
            batches=batches,
        )
        self.momentum = optional(_check.number("momentum", momentum, least=0, below=1))
        self.dampening = optional(_check.number("dampening", dampening, least=0, below=1))
        self.nesterov = _check.flag("nesterov", nesterov)
        if self.nesterov and self.momentum is None:
            raise InputError("nesterov = True is not allowed: it needs a momentum greater than 0.")

    @property
    def acts_on_weights(self) -> bool:
        return any(part is not None for part in (self.momentum, self.weight_decay, self.lr_multipliers))

    def advance(self, problem: Problem, state: Any, past: Any, key: Key[Array, ""] | None) -> tuple[Any, Any]:
        if self.acts_on_weights:
            return super().advance(problem, state, past, key)
        return state.descend(problem, self.step_size(state)), past

    def time(self, clock: Num[Array, "*n"]) -> Float[Array, "*n"]:
        if self.momentum is None:
            return super().time(clock)
        return super().time(clock) * self._gradient_factor / (1 - self.momentum)

    @property
    def coefficients(self) -> dict[str, Any]:
        """Momentum, dampening, Nesterov's form, and weight decay as `linnet.theory.optimizers` takes them.

        Python's numbers, or arrays where JAX traces or batches them.
        """
        return {
            "momentum": _number(self.momentum),
            "dampening": 0.0 if self.momentum is None else _number(self.dampening),
            "nesterov": self.nesterov,
            "weight_decay": _number(self.weight_decay),
            "decoupled": self.decoupled,
        }

    @property
    def effective_decay(self) -> Any:
        """The mu of the cost C + mu/2 |theta|^2 whose minimum it finds (`optimizers/C4`); Python's number if known."""
        own = self.coefficients
        return update.effective_decay(own["momentum"], own["dampening"], own["weight_decay"], decoupled=self.decoupled)

    @property
    def description(self) -> str:
        """Momentum and weight decay in a phrase; empty for plain gradient descent."""
        phrases = []
        if self.momentum is not None:
            kind = "Nesterov momentum" if self.nesterov else "momentum"
            dampening = "" if self.dampening is None else f", dampening {float(self.dampening):g}"
            phrases.append(f"{kind} {float(self.momentum):g}{dampening}")
        if self.weight_decay is not None:
            where = "decoupled" if self.decoupled else "in the gradient"
            phrases.append(f"weight decay {float(self.weight_decay):g} {where}")
        return " and ".join(phrases)

    @property
    def _gradient_factor(self) -> Any:
        """What a gradient is multiplied by on its way into the buffer."""
        return 1 if self.dampening is None else 1 - self.dampening

    def stability_threshold(self, step: Any) -> Float[Array, ""] | None:
        """2/lr less the weight decay; with momentum b 2 (1 + b)/lr (`optimizers/C1` to C4)."""
        own = self.coefficients
        return self.momentum_threshold(step, own["momentum"], own["dampening"], nesterov=self.nesterov)

    def initial_past(self, weights: Any) -> Any:
        if self.momentum is None:
            return None
        filled = None if self.dampening is None else jnp.zeros((), dtype=bool)
        return Buffer(jax.tree.map(jnp.zeros_like, weights), filled)

    def direction(self, gradient: Any, past: Any) -> tuple[Any, Any]:
        if self.momentum is None:
            return gradient, past
        own = self.coefficients
        add = partial(update.accumulate, momentum=own["momentum"], dampening=own["dampening"])
        buffer = jax.tree.map(add, past.momentum, gradient)
        if past.filled is not None:
            buffer = jax.tree.map(lambda v, g: jnp.where(past.filled, v, g), buffer, gradient)
        along = jax.tree.map(add, buffer, gradient) if self.nesterov else buffer
        return along, Buffer(buffer, None if past.filled is None else jnp.ones((), dtype=bool))


def _number(given: Float[Array, "..."] | None) -> Any:
    """A known scalar as Python's number, 0 for None."""
    if given is None:
        return 0.0
    return given if _check.traced(given) or given.ndim else float(given)
