"""The training loss of a deep linear network as a function of all its weights, in NumPy.

Steps, integrators, and eigenvalue solvers call it thousands of times on small matrices, where a compiled program and
the checks of a `Weights` would take longer than the computation.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from linnet.linalg import below_and_above, largest_eigenvalue, layers_hessian
from linnet.prediction.reduced import ReducedRegression

Flat = Float[np.ndarray, " weights"]
# the overhead of a gradient in multiplications, measured with 1,000 to 10,000 weights and 2 to 50 inputs
_CALLS, _TOUCHED = 1500, 40
_ROUNDING = 1e-12  # of the largest curvature
_DENSE = 200  # weights up to which the Hessian is a matrix


class Objective:
    """1/2 |(W_L ... W_1 - limit) diag(scales)|^2 + decay/2 |weights|^2 of the flattened weights.

    `spare` says of each hidden layer whether it has further neurons without weights, as compressed layers have: they
    have a curvature.
    """

    def __init__(
        self,
        reduction: ReducedRegression,
        layers: Sequence[Float[np.ndarray, "rows columns"]],
        spare: Sequence[bool],
        decay: float = 0.0,
    ):
        self.gram, self.limit = reduction.scales**2, reduction.limit
        self.shapes = [w.shape for w in layers]
        self.initial = flat(layers)
        self.spare = tuple(spare)
        self.decay = decay
        self.operations = 6 * (_CALLS + self.initial.size) * (_TOUCHED + min(self.limit.shape))  # of a gradient

    def layers(self, weights: Float[np.ndarray, "*many weights"]) -> list[Float[np.ndarray, "*many rows columns"]]:
        """The layers' matrices, or stacks of them."""
        out, at = [], 0
        for rows, columns in self.shapes:
            out.append(weights[..., at : at + rows * columns].reshape(*weights.shape[:-1], rows, columns))
            at += rows * columns
        return out

    def matrix(self, weights: Float[np.ndarray, "*many weights"]) -> Float[np.ndarray, "*many d_out rank"]:
        """The end-to-end matrix, or a stack of them."""
        return prefixes(self.layers(weights))[-1]

    def matrix_gradient(self, matrix: Float[np.ndarray, "*many d_out rank"]) -> Float[np.ndarray, "*many d_out rank"]:
        """dC/dA."""
        return (matrix - self.limit) * self.gram

    @property
    def one_layer(self) -> tuple[Float[np.ndarray, "d_out rank"], Float[np.ndarray, " rank"]]:
        """The minimum of a single layer, limit K/(K + decay) with K = X^T X, and the curvatures K + decay."""
        gram = self.gram + self.decay
        return (self.limit * (self.gram / gram) if self.decay else self.limit), gram

    def loss_gradient(self, weights: Float[np.ndarray, "*many weights"]) -> Float[np.ndarray, "*many weights"]:
        """The gradient without weight decay, of one network or of a stack of them."""
        layers = self.layers(weights)
        below = prefixes(layers)
        cotangent, out = self.matrix_gradient(below[-1]), []
        for layer in range(len(layers) - 1, 0, -1):
            out.append(cotangent @ below[layer - 1].swapaxes(-1, -2))
            cotangent = layers[layer].swapaxes(-1, -2) @ cotangent
        many = weights.shape[:-1]
        return np.concatenate([part.reshape(*many, -1) for part in (cotangent, *out[::-1])], axis=-1)

    def gradient(self, weights: Float[np.ndarray, "*many weights"]) -> Float[np.ndarray, "*many weights"]:
        """The gradient."""
        gradient = self.loss_gradient(weights)
        return gradient + self.decay * weights if self.decay else gradient

    def hessian_product(
        self, weights: Flat, direction: Float[np.ndarray, "*many weights"]
    ) -> Float[np.ndarray, "*many weights"]:
        """The Hessian times a direction, or a stack of them."""
        layers, directions = self.layers(weights), self.layers(direction)
        below, moved = prefixes(layers), [directions[0]]
        for w, step, product in zip(layers[1:], directions[1:], below, strict=False):
            moved.append(step @ product + w @ moved[-1])
        cotangent, change, out = self.matrix_gradient(below[-1]), moved[-1] * self.gram, []
        for layer in range(len(layers) - 1, 0, -1):
            out.append(change @ below[layer - 1].T + cotangent @ moved[layer - 1].swapaxes(-1, -2))
            change = directions[layer].swapaxes(-1, -2) @ cotangent + layers[layer].T @ change
            cotangent = layers[layer].T @ cotangent
        parts = [part.reshape(*direction.shape[:-1], -1) for part in (change, *out[::-1])]
        return np.concatenate(parts, axis=-1) + self.decay * direction

    def hessian(self, weights: Flat) -> Float[np.ndarray, "weights weights"]:
        """The Hessian as a matrix."""
        layers = self.layers(weights)
        hessian = layers_hessian(layers, self.matrix_gradient(prefixes(layers)[-1]), np.diag(self.gram))
        hessian[np.diag_indices_from(hessian)] += self.decay
        return hessian

    def gauss_newton(self, weights: Flat) -> tuple[Float[np.ndarray, " few"], Float[np.ndarray, "weights few"]]:
        """Nonzero eigenvalues and eigenvectors of J^T J, J the derivative of A diag(scales): the Hessian where all is
        fitted, without weight decay. There are at most as many as A has entries.
        """
        below, above = below_and_above(self.layers(weights), np.diag(np.sqrt(self.gram)), np.eye(self.shapes[-1][0]))
        parts = [(a[:, None, :, None] * b.T[None, :, None, :]) for a, b in zip(above, below, strict=True)]
        jacobian = np.concatenate([part.reshape(self.limit.size, -1) for part in parts], axis=1)
        values, vectors = np.linalg.eigh(jacobian @ jacobian.T)
        kept = values > _ROUNDING * values[-1]
        return values[kept], jacobian.T @ (vectors[:, kept] / np.sqrt(values[kept]))

    def sharpness(self, weights: Flat) -> float:
        """The largest eigenvalue of the Hessian."""
        size = weights.size
        if len(self.shapes) == 1:
            return float(np.max(self.gram)) + self.decay
        if size <= _DENSE:
            top = float(np.linalg.eigvalsh(self.hessian(weights))[-1])
        else:
            top = largest_eigenvalue(lambda v: self.hessian_product(weights, v), size, tol=1e-7)
        layers = self.layers(weights)
        if not any(self.spare):
            return top
        # a neuron without weights: its incoming and outgoing vector share a block with dC/dA between them
        below, above = below_and_above(layers, np.eye(self.shapes[0][1]), np.eye(self.shapes[-1][0]))
        cotangent = self.matrix_gradient(layers[-1] @ below[-1])
        for layer in np.flatnonzero(self.spare):
            turning = float(np.linalg.norm(above[layer + 1].T @ cotangent @ below[layer].T, 2))
            top = max(top, turning + self.decay)
        return top


def flat(layers: Sequence[np.ndarray]) -> Flat:
    """All weights in one vector."""
    return np.concatenate([np.ravel(w) for w in layers])


def prefixes(layers: Sequence[np.ndarray]) -> list[np.ndarray]:
    """W_1, W_2 W_1, ..., W_L ... W_1, also of stacks."""
    out = [layers[0]]
    for w in layers[1:]:
        out.append(w @ out[-1])
    return out
