"""The end-to-end matrix on its own, moved by a theory's guess of the tangent kernel."""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from linnet import _check
from linnet._check import InputError
from linnet.linalg import smallest_singular_value, transposed_product
from linnet.states.state import State


class Closure(eqx.Module):
    """An approximation of the tangent kernel as a function of A; for a vector A (aligned modes), mode by mode."""

    @abc.abstractmethod
    def tangent(self, matrix: Float[Array, "..."], gradient: Float[Array, "..."]) -> Float[Array, "..."]:
        """Theta_A(G)."""

    def grams(self, matrix: Float[Array, "d_out d_in"]) -> tuple[Array, Array]:
        """(C1, C2) = (W_1^T W_1, W_2 W_2^T) as the closure defines them, for two layers."""
        raise InputError(f"{type(self).__name__} does not define the two layers' Gram matrices: use Lazy or Mixed.")

    @property
    def scale(self) -> Float[Array, ""]:
        """The size below which A is small for this closure; infinite if it has none."""
        return jnp.asarray(jnp.inf)


class Lazy(Closure):
    """Theta(G) = 2c G: both layers keep their initial Gram matrices c I, c = variance * width."""

    c: Float[Array, ""]

    def __init__(self, c: Any):
        self.c = _check.number("c", c, above=0)

    def tangent(self, matrix: Float[Array, "..."], gradient: Float[Array, "..."]) -> Float[Array, "..."]:
        return 2 * self.c * gradient

    def grams(self, matrix: Float[Array, "d_out d_in"]) -> tuple[Array, Array]:
        d_out, d_in = matrix.shape
        return self.c * jnp.eye(d_in), self.c * jnp.eye(d_out)

    @property
    def scale(self) -> Float[Array, ""]:
        return self.c


class Mixed(Closure):
    """Theta(G) = sqrt(A A^T + c^2) G + G sqrt(A^T A + c^2): the self-consistent dynamics (mixed dynamics, eq. 2).

    Exact for two layers with Q J Q = c^2 J, and for W_1 W_1^T - W_2^T W_2 = 2c I with w = d_in neurons or -2c I with
    w = d_out; with fewer neurons only if the rows of the target lie in the row space of W_1 (its columns in the range
    of W_2). c = 0 is the balanced two-layer network, whatever its width.
    """

    c: Float[Array, ""]

    def __init__(self, c: Any):
        self.c = _check.number("c", c, least=0)

    def tangent(self, matrix: Float[Array, "..."], gradient: Float[Array, "..."]) -> Float[Array, "..."]:
        if matrix.ndim == 1:
            return 2 * jnp.hypot(matrix, self.c) * gradient
        # sqrt(A A^T + c^2) = c + U diag(k) U^T with k = hypot(s, c) - c, formed without cancellation
        u, k, vt = self._factors(matrix)
        return 2 * self.c * gradient + (u * k) @ transposed_product(u, gradient) + ((gradient @ vt.T) * k) @ vt

    def grams(self, matrix: Float[Array, "d_out d_in"]) -> tuple[Array, Array]:
        d_out, d_in = matrix.shape
        u, k, vt = self._factors(matrix)
        return self.c * jnp.eye(d_in) + (vt.T * k) @ vt, self.c * jnp.eye(d_out) + (u * k) @ u.T

    def _factors(self, matrix: Float[Array, "d_out d_in"]) -> tuple[Array, Array, Array]:
        u, s, vt = jnp.linalg.svd(matrix, full_matrices=False)
        total = jnp.hypot(s, self.c) + self.c
        return u, s * (s / jnp.where(total > 0, total, 1.0)), vt

    @property
    def scale(self) -> Float[Array, ""]:
        return jnp.where(self.c > 0, self.c, jnp.inf)


class Balanced(Closure):
    """Theta(G) = sum_j (A A^T)^{(L-j)/L} G (A^T A)^{(j-1)/L}: the induced flow of balanced layers (nonlocal, eq. 16).

    `rank` keeps only that many singular triplets: fractional powers of the rounding noise of a rank-deficient A are
    not small (1e-16 becomes 1e-16^{2/L}), so give the rank of the start.
    """

    depth: int = eqx.field(static=True)
    rank: int | None = eqx.field(static=True)

    def __init__(self, depth: int, rank: int | None = None):
        self.depth = _check.integer("depth", depth, least=1)
        self.rank = None if rank is None else _check.integer("rank", rank, least=1)

    def tangent(self, matrix: Float[Array, "..."], gradient: Float[Array, "..."]) -> Float[Array, "..."]:
        if self.depth == 1:
            return gradient
        power = 2 / self.depth
        if matrix.ndim == 1:
            return self.depth * jnp.abs(matrix) ** (2 - power) * gradient
        if self.rank is not None and self.rank > min(matrix.shape):
            raise InputError(f"rank = {self.rank} is not allowed: rank must be at most {min(matrix.shape)}.")
        if min(matrix.shape) == 1:  # one triplet, no SVD
            norm = jnp.linalg.norm(matrix)
            along = jnp.sum(matrix * gradient) / jnp.where(norm > 0, norm**2, 1.0)
            return norm ** (2 - power) * (gradient + (self.depth - 1) * along * matrix)
        u, s, vt = jnp.linalg.svd(matrix, full_matrices=False)
        u, s, vt = u[:, : self.rank], s[: self.rank], vt[: self.rank]
        x = s**power  # squared layer singular values
        full = sum(x[:, None] ** (self.depth - j) * x[None, :] ** (j - 1) for j in range(1, self.depth + 1))
        one_sided = x ** (self.depth - 1)
        left, right = transposed_product(u, gradient), gradient @ vt.T
        inner = (full - one_sided[:, None] - one_sided[None, :]) * (left @ vt.T)
        return u @ (inner @ vt + one_sided[:, None] * left) + (right * one_sided) @ vt

    def grams(self, matrix: Float[Array, "d_out d_in"]) -> tuple[Array, Array]:
        if self.depth != 2:
            return super().grams(matrix)
        return Mixed(0.0).grams(matrix)


class EndToEnd(State):
    """A closed flow of the end-to-end matrix: dA/dt = -Theta_A(G) with the closure's Theta.

    `descend` is its forward-Euler step A - lr Theta_A(G), which is what papers iterate; it is not descent on layers.
    """

    still: ClassVar[tuple[str, ...]] = ("closure",)
    end: Float[Array, "..."]
    closure: Closure

    def __init__(self, matrix: Any, closure: Closure):
        if not isinstance(closure, Closure):
            raise InputError(f"closure = {_check.show(closure)} is not allowed: use Lazy(c), Mixed(c) or Balanced(L).")
        self.end = _check.array("matrix", matrix, ndim=(1, 2))
        self.closure = closure

    @property
    def weighted(self) -> bool:
        return False

    @property
    def matrix(self) -> Float[Array, "..."]:
        return self.end

    def tangent(self, gradient: Float[Array, "..."]) -> Float[Array, "..."]:
        return self.closure.tangent(self.end, gradient)

    def vjp(self, force: Float[Array, "..."]) -> "EndToEnd":
        still = jax.tree.map(jnp.zeros_like, self.closure)
        return eqx.tree_at(lambda s: (s.end, s.closure), self, (self.tangent(force), still))

    @property
    def size(self) -> Float[Array, ""]:
        """The smaller of the closure's scale and the smallest singular value that is not rounding of the largest."""
        if self.end.ndim == 2:
            return jnp.minimum(smallest_singular_value(self.end), self.closure.scale)
        sizes = jnp.abs(self.end)
        return jnp.minimum(jnp.min(jnp.where(sizes > 0, sizes, jnp.inf)), self.closure.scale)
