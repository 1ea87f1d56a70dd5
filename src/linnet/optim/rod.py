"""The rod flow: the midpoint and the half difference of neighboring iterates of descent, averaged in time."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from linnet.optim.averaged import AveragedDescent, cost, gradient
from linnet.optim.dynamics import Averages
from linnet.problems import Problem

_RESEED = 0.5  # share of the variance that a step along the gradient would have
_LIMIT = 1e9  # of the rod over the weights, where the run has diverged


class RodFlow(AveragedDescent):
    """The averaged weights c of gradient descent at and beyond the edge of stability, with a rod D: w = c +- D.

    With g+- = dC/dtheta at c +- D, gradient descent itself is c' = c - lr/2 (g+ + g-), D' = -D + lr/2 (g+ - g-), where
    c is the midpoint of two neighboring iterates, and dc/dt = -lr/2 (g+ + g-), dD/dt = -2 D + lr/2 (g+ - g-) is the
    equation of which these are steps. A step of the flow is two Euler steps of half its length,

        c <- c - lr/4 (g+ + g-),  D <- lr/4 (g+ - g-),

    so that D, multiplied by (lr S / 2)^2 along a direction of curvature S, neither flips nor overshoots. Its fixed
    points are the 2-cycles c +- D of descent, exactly, at any distance from the edge. It needs four gradients a step,
    no Hessian and no eigenvectors, and follows kinks such as relu's.

    Below the edge D fades. After each half step |D|^2 grows by 1/2 (lr/2)^2 (g . D / |D|)^2 with g = (g+ + g-)/2, so
    that it can grow again; at a 2-cycle, where g = 0, that is nothing. The mean loss of descent is predicted as the
    mean of C at c +- D, the covariance as D D^T. Its memory is D, at first -lr/2 dC/dtheta.

    In chaos (lr S > 2.6 at the minimum of a balanced mode of two layers) it does not describe descent, and it may stay
    bounded where descent diverges. It computes no sharpness and does not warn of a start beyond the edge, where it
    follows the catapult for small excess only (`theory.flows.catapult`); `CentralFlow` warns of one.

        run = ln.simulate(problem, state, ln.optim.RodFlow(0.1), steps=1000, observe=["predicted_loss", "oscillation"])
    """

    def __init__(self, lr: Any):
        super().__init__(lr)

    def memory(self, problem: Problem, state: Any) -> Any:
        return jax.tree.map(lambda g: -self.lr / 2 * g, gradient(problem, state, state.trained()))

    def step(
        self, problem: Problem, state: Any, memory: Any, prepared: Any, key: Key[Array, ""] | None
    ) -> tuple[Any, Any]:
        def half(_: Any, now: tuple[Any, Any]) -> tuple[Any, Any]:
            center, rod = now
            ahead = gradient(problem, state, jax.tree.map(jnp.add, center, rod))
            behind = gradient(problem, state, jax.tree.map(jnp.subtract, center, rod))
            center = jax.tree.map(lambda c, a, b: c - self.lr / 4 * (a + b), center, ahead, behind)
            rod = jax.tree.map(lambda a, b: self.lr / 4 * (a - b), ahead, behind)
            return center, self._reseeded(rod, jax.tree.map(lambda a, b: (a + b) / 2, ahead, behind))

        center, rod = jax.lax.fori_loop(0, 2, half, (state.trained(), memory))
        # a rod may grow alone, as on a quadratic cost: then the run has diverged as descent does
        lost = ~(_largest(rod) <= _LIMIT * jnp.maximum(1.0, _largest(center)))
        center = jax.tree.map(lambda c: jnp.where(lost, jnp.nan, c), center)
        return eqx.combine(center, state), rod

    def averages(self, problem: Problem, state: Any, memory: Any) -> Averages:
        center = state.trained()
        ends = [jax.tree.map(add, center, memory) for add in (jnp.add, jnp.subtract)]
        loss = (cost(problem, state, ends[0]) + cost(problem, state, ends[1])) / 2
        return Averages(loss, _dot(memory, memory), None)

    def _reseeded(self, rod: Any, mean: Any) -> Any:
        """The rod with what the gradient's part along it adds to its length."""
        tiny = float(np.finfo(jax.tree.leaves(rod)[0].dtype).tiny)
        # The result does not depend on it. No maximum and no hypot below: their derivatives compare numbers for
        # equality that a compiled program computes twice, not to the same last digit.
        largest = jax.lax.stop_gradient(jnp.maximum(_largest(rod), tiny))
        unit = jax.tree.map(lambda d: d / largest, rod)  # whose squares do not underflow
        square = _dot(unit, unit)
        norm = jnp.sqrt(jnp.where(square > tiny, square, tiny))
        own, extra = largest * norm, _RESEED**0.5 * self.lr / 2 * jnp.abs(_dot(mean, unit)) / norm
        long, short = jnp.where(own > extra, own, extra), jnp.where(own > extra, extra, own)
        length = long * jnp.sqrt(1 + (short / long) ** 2)
        return jax.tree.map(lambda d: d * (length / norm), unit)


def _largest(tree: Any) -> Float[Array, ""]:
    return jnp.max(jnp.stack([jnp.max(jnp.abs(leaf)) for leaf in jax.tree.leaves(tree)]))


def _dot(one: Any, other: Any) -> Float[Array, ""]:
    products = [jnp.sum(a * b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)]
    return jnp.sum(jnp.stack(products))
