"""Gradient descent, with and without momentum."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, Num

from linnet import _check
from linnet.motion.batches import Batches
from linnet.motion.optimiser import Optimiser
from linnet.problems import Problem


class GradientDescent(Optimiser):
    """theta <- theta - lr dC/dtheta, all coordinates at once.

    On an `EndToEnd` state this is forward Euler on its closed flow. `decay`, `rates` and `batch` are those of every
    `Optimiser`; without momentum the two kinds of decay are one.
    """

    def __init__(
        self, lr: Any, *, decay: Any = 0.0, rates: Sequence[float] | None = None, batch: Batches | int | None = None
    ):
        super().__init__(lr, decay=decay, rates=rates, batch=batch)

    @property
    def on_weights(self) -> bool:
        return self.decay is not None or self.rates is not None

    def advance(self, problem: Problem, state: Any, past: Any, key: Key[Array, ""] | None) -> tuple[Any, Any]:
        if self.on_weights:
            return super().advance(problem, state, past, key)
        return state.descend(problem, self.rate(state)), past

    def threshold(self, step: Any) -> Float[Array, ""] | None:
        """2/lr, less the decay."""
        return self.bears(step)

    def direction(self, gradient: Any, past: Any) -> tuple[Any, Any]:
        return gradient, past


class Momentum(Optimiser):
    """Descent with momentum: v <- beta v + g, theta <- theta - lr v, from v = 0 (Polyak's heavy ball).

    - `nesterov`: theta <- theta - lr (g + beta v) with the new v.
    - `average`: v <- beta v + (1 - beta) g, and (1 - beta) g + beta v for Nesterov; the same steps at lr / (1 - beta).

    Without `average` these are PyTorch's SGD with momentum (dampening 0), and `lr` acts like lr / (1 - beta): times are
    those of the flow that it follows, lr k / (1 - beta) after k steps, and lr k with `average` (`optimisers/C8`).
    """

    beta: Float[Array, ""]
    nesterov: bool = eqx.field(static=True)
    average: bool = eqx.field(static=True)

    def __init__(
        self,
        lr: Any,
        beta: Any = 0.9,
        *,
        nesterov: bool = False,
        average: bool = False,
        decay: Any = 0.0,
        decoupled: bool = False,
        rates: Sequence[float] | None = None,
        batch: Batches | int | None = None,
    ):
        super().__init__(lr, decay=decay, decoupled=decoupled, rates=rates, batch=batch)
        self.beta = _check.number("beta", beta, least=0, below=1)
        self.nesterov = _check.flag("nesterov", nesterov)
        self.average = _check.flag("average", average)

    def time(self, clock: Num[Array, "*n"]) -> Float[Array, "*n"]:
        return super().time(clock) / (1 if self.average else 1 - self.beta)

    def threshold(self, step: Any) -> Float[Array, ""] | None:
        """2 (1 + beta)/lr for the heavy ball (`optimisers/C1` to C4)."""
        return self.bears(step, self.beta, nesterov=self.nesterov, average=self.average)

    def past(self, weights: Any) -> Any:
        return jax.tree.map(jnp.zeros_like, weights)

    def direction(self, gradient: Any, past: Any) -> tuple[Any, Any]:
        share = 1 - self.beta if self.average else 1

        def follow(speed: Array, force: Array) -> Array:
            return self.beta * speed + share * force

        speed = jax.tree.map(follow, past, gradient)
        return (jax.tree.map(follow, speed, gradient) if self.nesterov else speed), speed
