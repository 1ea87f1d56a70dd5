"""A deep linear network in the frame of its samples, in NumPy: gradient, Hessian and sharpness without a compiler."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from linnet.linalg import below_and_above, layers_hessian
from linnet.predict.frame import Frame

Flat = Float[np.ndarray, " weights"]
_CALLS, _TOUCHED = 1500, 40  # weights, multiplications: measured with 1,000 to 10,000 weights and 2 to 50 inputs
_ROUNDING = 1e-12  # of the largest curvature
_DENSE = 200  # weights up to which the Hessian is a matrix


class Chain:
    """1/2 |(W_L ... W_1 - A_inf) X^T|^2 and its derivatives in all weights; curvatures are those of this loss with
    `decay` mu, mu/2 of all squared weights, in it.

    `hidden` are the widths of the network itself: where it has more neurons than `layers` (a compressed start), those
    have no weights, but a curvature.
    """

    def __init__(
        self,
        frame: Frame,
        layers: Sequence[Float[np.ndarray, "rows columns"]],
        hidden: Sequence[int],
        decay: float = 0.0,
    ):
        self.gram, self.limit = frame.scales**2, frame.limit
        self.shapes = [w.shape for w in layers]
        self.start = flat(layers)
        self.hidden = tuple(hidden)
        self.decay = decay
        # multiplications of a gradient, and as many as would take the time of its calls and of touching its weights
        self.operations = 6 * (_CALLS + self.start.size) * (_TOUCHED + min(self.limit.shape))

    def layers(self, weights: Float[np.ndarray, "*many weights"]) -> list[Float[np.ndarray, "*many rows columns"]]:
        """The matrices that the weights stand for, or stacks of them."""
        out, at = [], 0
        for rows, columns in self.shapes:
            out.append(weights[..., at : at + rows * columns].reshape(*weights.shape[:-1], rows, columns))
            at += rows * columns
        return out

    def matrix(self, weights: Float[np.ndarray, "*many weights"]) -> Float[np.ndarray, "*many d_out rank"]:
        """The end-to-end matrix, or a stack of them."""
        return _products(self.layers(weights))[-1]

    def force(self, matrix: Float[np.ndarray, "d_out rank"]) -> Float[np.ndarray, "d_out rank"]:
        """The gradient of the loss in the matrix."""
        return (matrix - self.limit) * self.gram

    @property
    def one_layer(self) -> tuple[Float[np.ndarray, "d_out rank"], Float[np.ndarray, " rank"]]:
        """Where a single layer ends, and how fast along each axis: A_inf K/(K + mu), and K + mu."""
        gram = self.gram + self.decay
        return (self.limit * (self.gram / gram) if self.decay else self.limit), gram

    def gradient(self, weights: Flat) -> Flat:
        """The gradient of the loss in all weights."""
        layers = self.layers(weights)
        below = _products(layers)
        force, out = self.force(below[-1]), []
        for layer in range(len(layers) - 1, 0, -1):
            out.append(force @ below[layer - 1].T)
            force = layers[layer].T @ force
        return flat([force, *out[::-1]])

    def slope(self, weights: Flat) -> Flat:
        """The gradient of the loss with decay in it."""
        gradient = self.gradient(weights)
        return gradient + self.decay * weights if self.decay else gradient

    def curve(self, weights: Flat, direction: Float[np.ndarray, "*many weights"]) -> Float[np.ndarray, "*many weights"]:
        """The Hessian times a direction, or many: what the slope changes by."""
        layers, turns = self.layers(weights), self.layers(direction)
        below, turned = _products(layers), [turns[0]]
        for w, turn, product in zip(layers[1:], turns[1:], below, strict=False):
            turned.append(turn @ product + w @ turned[-1])
        force, forced, out = self.force(below[-1]), turned[-1] * self.gram, []
        for layer in range(len(layers) - 1, 0, -1):
            out.append(forced @ below[layer - 1].T + force @ turned[layer - 1].swapaxes(-1, -2))
            forced = turns[layer].swapaxes(-1, -2) @ force + layers[layer].T @ forced
            force = layers[layer].T @ force
        curved = np.concatenate([part.reshape(*direction.shape[:-1], -1) for part in (forced, *out[::-1])], axis=-1)
        return curved + self.decay * direction if self.decay else curved

    def hessian(self, weights: Flat) -> Float[np.ndarray, "weights weights"]:
        """The whole Hessian."""
        layers = self.layers(weights)
        hessian = layers_hessian(layers, self.force(_products(layers)[-1]), np.diag(self.gram))
        if self.decay:
            hessian[np.diag_indices_from(hessian)] += self.decay
        return hessian

    def fit_curvature(self, weights: Flat) -> tuple[Float[np.ndarray, " few"], Float[np.ndarray, "weights few"]]:
        """The part of the Hessian that is left where all is fitted, J^T J with J the derivative of A X^T: what it
        multiplies by, and the directions of that; it has no more of them than A has entries.
        """
        below, above = below_and_above(self.layers(weights), np.diag(np.sqrt(self.gram)), np.eye(self.shapes[-1][0]))
        slopes = [(a[:, None, :, None] * b.T[None, :, None, :]) for a, b in zip(above, below, strict=True)]
        jacobian = np.concatenate([slope.reshape(self.limit.size, -1) for slope in slopes], axis=1)
        values, vectors = np.linalg.eigh(jacobian @ jacobian.T)
        there = values > _ROUNDING * values[-1]
        return values[there], jacobian.T @ (vectors[:, there] / np.sqrt(values[there]))

    def sharpness(self, weights: Flat) -> float:
        """The largest eigenvalue of the whole Hessian."""
        size = weights.size
        if len(self.shapes) == 1:
            return float(np.max(self.gram)) + self.decay
        if size <= _DENSE:
            top = float(np.linalg.eigvalsh(self.hessian(weights))[-1])
        else:
            from scipy.sparse.linalg import LinearOperator, eigsh  # slow to load

            operator = LinearOperator((size, size), matvec=lambda v: self.curve(weights, np.ravel(v)), dtype=float)
            begin = np.random.default_rng(0).normal(size=size)  # fixed: the answer must not depend on a seed
            top = float(eigsh(operator, 1, which="LA", v0=begin, return_eigenvectors=False, tol=1e-7)[0])
        layers = self.layers(weights)
        if all(w.shape[0] == width for w, width in zip(layers, self.hidden, strict=False)):
            return top
        # a neuron without weights: its two vectors turn together, with the force between them as curvature
        below, above = below_and_above(layers, np.eye(self.shapes[0][1]), np.eye(self.shapes[-1][0]))
        force = self.force(layers[-1] @ below[-1])
        for layer, width in enumerate(self.hidden):
            if layers[layer].shape[0] < width:
                turning = float(np.linalg.norm(above[layer + 1].T @ force @ below[layer].T, 2))
                top = max(top, turning + self.decay)
        return top


def flat(layers: Sequence[np.ndarray]) -> Flat:
    """All weights in a row."""
    return np.concatenate([np.ravel(w) for w in layers])


def _products(layers: Sequence[np.ndarray]) -> list[np.ndarray]:
    """W_1, W_2 W_1, ..., W_L ... W_1."""
    out = [layers[0]]
    for w in layers[1:]:
        out.append(w @ out[-1])
    return out
