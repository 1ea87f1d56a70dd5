"""Aligned deep networks and diagonal networks: one number for each layer and mode."""

from functools import reduce
from operator import mul
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from linnet import _check
from linnet._check import InputError, known
from linnet.linalg import below_and_above
from linnet.states.state import State
from linnet.states.weights import Weights, scaled_layers


class Modes(State):
    """A diagonal network: values y_{l,i} (signed) of layer l in mode i; end to end it is the vector prod_l y_{l,i}.

    A matrix network whose layers share singular vectors with the target and with each other moves exactly like this
    (edge of stability, section 2), on `Factorization.aligned()`.
    """

    values: Float[Array, "depth modes"]

    def __init__(self, values: Any):
        self.values = _check.array("values", values, ndim=2)

    @property
    def depth(self) -> int:
        """The number of layers L."""
        return self.values.shape[0]

    @property
    def matrix(self) -> Float[Array, " modes"]:
        return reduce(mul, list(self.values))

    def by_layer(self, factors: Any) -> "Modes":
        return eqx.tree_at(lambda s: s.values, self, jnp.stack(scaled_layers(list(self.values), factors)))

    def others(self) -> Float[Array, "depth modes"]:
        """prod_{m != l} y_{m,i}, by products alone: layers may be zero."""
        ones = jnp.ones_like(self.values[0])
        below, above = below_and_above(list(self.values), ones, ones, mul)
        return jnp.stack([a * b for a, b in zip(below, above, strict=True)])

    def vjp(self, force: Float[Array, " modes"]) -> "Modes":
        return eqx.tree_at(lambda s: s.values, self, self.others() * force)

    @property
    def size(self) -> Float[Array, ""]:
        """The smallest value that is not zero."""
        sizes = jnp.abs(self.values)
        return jnp.min(jnp.where(sizes > 0, sizes, jnp.inf))

    def weights(self, left: Any, right: Any) -> Weights:
        """The matrix network with these values: W_L = left D_L, W_l = D_l, W_1 = D_1 right^T.

        `left` and `right` have orthonormal columns, one a mode: usually the target's singular vectors.
        """
        u = _check.array("left", left, ndim=2)
        v = _check.array("right", right, ndim=2)
        k = self.values.shape[1]
        if u.shape[1] != k or v.shape[1] != k:
            raise InputError(
                f"left and right have {u.shape[1]} and {v.shape[1]} columns: they must have {k}, the modes."
            )
        xp, (u, v, values) = known(u, v, self.values)
        if self.depth == 1:
            return Weights(((u * values[0]) @ v.T,))
        middle = [xp.diag(y) for y in values[1:-1]]
        return Weights((values[0][:, None] * v.T, *middle, u * values[-1]))
