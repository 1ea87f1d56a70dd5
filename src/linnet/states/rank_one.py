"""Balanced networks of rank one: two vectors and a number, whatever the depth and the widths."""

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from linnet import _check
from linnet._check import InputError
from linnet.states.state import State
from linnet.states.weights import Weights


class RankOne(State):
    """A = w^{L-2} y x^T: W_1 = q x^T, W_L = y q^T, and L - 2 layers w q q^T between (any unit vectors q, any widths).

    Descent, flow and noise keep this form on any data, so a balanced start of rank one (|x| = |w| = |y|) costs
    d_in + d_out + 1 numbers at every depth: x += lr w^{L-2} F^T y, y += lr w^{L-2} F x, w += lr w^{L-3} y^T F x with
    the force F. The coordinate held for w is `middle` = sqrt(L-2) w, the length of all inner layers together, in which
    that is plain descent; curvatures are those inside this family of networks.
    """

    x: Float[Array, " d_in"]
    middle: Float[Array, ""] | None  # two layers have none
    y: Float[Array, " d_out"]
    depth: int = eqx.field(static=True)

    def __init__(self, x: Any, w: Any, y: Any, depth: int):
        self.depth = _check.integer("depth", depth, least=2)
        self.x, self.y = _check.array("x", x, ndim=1), _check.array("y", y, ndim=1)
        if self.depth == 2:
            if w is not None:
                raise InputError(f"w = {_check.show(w)} is not allowed: two layers have none between them, give None.")
            self.middle = None
        else:
            _, (w,) = _check.known(_check.number("w", w))
            self.middle = jnp.asarray(math.sqrt(self.depth - 2) * w, dtype=self.x.dtype)

    @classmethod
    def balanced(cls, strength: Any, left: Any, right: Any, depth: int) -> "RankOne":
        """The balanced start s_0 u_0 v_0^T: every layer has the singular value s_0^{1/L}; u_0, v_0 are normalized."""
        depth = _check.integer("depth", depth, least=2)
        u, v = _check.array("left", left, ndim=1), _check.array("right", right, ndim=1)
        for name, vector in (("left", u), ("right", v)):
            if not _check.traced(vector) and not np.any(vector):
                raise InputError(f"{name} is zero: it must be a direction.")
        xp, (s, u, v) = _check.known(_check.number("strength", strength, above=0), u, v)
        root = s ** (1 / depth)
        x, y = root * v / xp.linalg.norm(v), root * u / xp.linalg.norm(u)
        return cls(x, None if depth == 2 else root, y, depth)

    @property
    def rotated(self) -> bool:
        return True

    @property
    def w(self) -> Float[Array, ""] | None:
        """The value of each of the L - 2 inner layers."""
        return None if self.middle is None else self.middle / math.sqrt(self.depth - 2)

    def weights(self) -> Weights:
        """The same network as layers of width one."""
        inner = [] if self.w is None else [self.w[None, None]] * (self.depth - 2)
        return Weights((self.x[None, :], *inner, self.y[:, None]))

    @property
    def matrix(self) -> Float[Array, "d_out d_in"]:
        y = self.y if self.w is None else self.w ** (self.depth - 2) * self.y
        return y[:, None] * self.x[None, :]

    def vjp(self, force: Float[Array, "d_out d_in"]) -> "RankOne":
        pulled, pushed = self.y @ force, force @ self.x
        if self.w is None:
            return eqx.tree_at(lambda s: (s.x, s.y), self, (pulled, pushed))
        short = self.w ** (self.depth - 3)
        inner = math.sqrt(self.depth - 2) * short * (self.y @ pushed)
        long = short * self.w
        return eqx.tree_at(lambda s: (s.x, s.middle, s.y), self, (long * pulled, inner, long * pushed))

    @property
    def size(self) -> Float[Array, ""]:
        """The smallest of the layers' singular values that are not zero."""
        sizes = [jnp.linalg.norm(self.x), jnp.linalg.norm(self.y)] + ([] if self.w is None else [jnp.abs(self.w)])
        values = jnp.stack(sizes)
        return jnp.min(jnp.where(values > 0, values, jnp.inf))
