"""The end-to-end matrix in the mirror coordinates of the start I_gamma (spectral bias, Theorem 3.2)."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from linnet import _check
from linnet._check import InputError
from linnet.linalg import product, transposed_product
from linnet.states.state import State


class ScalarMirror(State):
    """One output, from I_gamma: phi = grad psi(A) = A / sqrt(m) moves by dphi/dt = -sqrt(m) dC/dA.

    psi is `theory.spectral.potential` and m = hypot(|A|, gamma) + gamma = |phi|^2 + 2 gamma, so A = sqrt(m) phi. Exact
    under gradient flow for any data; under descent it is the Euler step of this flow.
    """

    still: ClassVar[tuple[str, ...]] = ("gamma",)
    phi: Float[Array, "1 d_in"]
    gamma: Float[Array, ""]

    def __init__(self, matrix: Any, gamma: Any):
        a = _check.array("matrix", matrix, ndim=2)
        self.gamma = _check.number("gamma", gamma, above=0)
        if a.shape[0] != 1:
            raise InputError(f"matrix has shape {a.shape}: ScalarMirror is for one output; use SpectralMirror.")
        self.phi = a / jnp.sqrt(jnp.hypot(jnp.linalg.norm(a), self.gamma) + self.gamma)

    @property
    def _m(self) -> Float[Array, ""]:
        return jnp.sum(self.phi**2) + 2 * self.gamma

    @property
    def weighted(self) -> bool:
        return False

    @property
    def matrix(self) -> Float[Array, "1 d_in"]:
        return jnp.sqrt(self._m) * self.phi

    def vjp(self, force: Float[Array, "1 d_in"]) -> "ScalarMirror":
        return eqx.tree_at(lambda s: (s.phi, s.gamma), self, (jnp.sqrt(self._m) * force, jnp.zeros_like(self.gamma)))

    @property
    def size(self) -> Float[Array, ""]:
        return jnp.sqrt(self.gamma)


class SpectralMirror(State):
    """From I_gamma: singular values s_i = gamma sinh(2 theta_i) with dtheta_i/dt = u_i^T G v_i, G = -dC/dA, and the
    singular vectors of A turning as its flow turns them.

    theta_i = 1/2 asinh(s_i / gamma) is the gradient of the hyperbolic entropy (`theory.spectral.entropy`): a mirror
    flow. Exact under gradient flow for any data while the singular values are simple and nonzero: start from A != 0.
    """

    still: ClassVar[tuple[str, ...]] = ("gamma",)
    left: Float[Array, "d_out k"]
    theta: Float[Array, " k"]
    right: Float[Array, "d_in k"]
    gamma: Float[Array, ""]

    def __init__(self, matrix: Any, gamma: Any):
        a = _check.array("matrix", matrix, ndim=2)
        self.gamma = _check.number("gamma", gamma, above=0)
        u, s, vt = jnp.linalg.svd(a, full_matrices=False)
        if not _check.traced(s) and not bool(s[-1] > 1e-14 * s[0]):
            raise InputError(
                "matrix has a singular value of zero: the mirror flow of singular values needs all nonzero."
            )
        self.left, self.right = u, vt.T
        self.theta = jnp.arcsinh(s / self.gamma) / 2

    @property
    def weighted(self) -> bool:
        return False

    @property
    def matrix(self) -> Float[Array, "d_out d_in"]:
        return product(self.left * (self.gamma * jnp.sinh(2 * self.theta)), self.right.T)

    def vjp(self, force: Float[Array, "d_out d_in"]) -> "SpectralMirror":
        s, h = self.gamma * jnp.sinh(2 * self.theta), self.gamma * jnp.cosh(2 * self.theta)
        pulled, pushed = product(force, self.right), transposed_product(force, self.left)
        g = transposed_product(self.left, pulled)
        moved = (h[:, None] + h[None, :]) * g
        gap = s[None, :] ** 2 - s[:, None] ** 2
        other = ~jnp.eye(s.shape[0], dtype=bool)
        inverse = jnp.where(other, 1 / jnp.where(other, gap, 1.0), 0.0)
        turn_left = (moved * s[None, :] + s[:, None] * moved.T) * inverse
        turn_right = (s[:, None] * moved + moved.T * s[None, :]) * inverse
        rate = (self.gamma + h) / s
        outside_left = (pulled - product(self.left, g)) * rate
        outside_right = (pushed - product(self.right, g.T)) * rate
        return eqx.tree_at(
            lambda state: (state.left, state.theta, state.right, state.gamma),
            self,
            (
                product(self.left, turn_left) + outside_left,
                jnp.diagonal(g),
                product(self.right, turn_right) + outside_right,
                jnp.zeros_like(self.gamma),
            ),
        )

    @property
    def size(self) -> Float[Array, ""]:
        return jnp.minimum(1.0, jnp.min(jnp.abs(self.theta)))
