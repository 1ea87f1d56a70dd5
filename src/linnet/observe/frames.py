"""Singular values against singular vectors: which of the two a step moves, and what each does to the cost.

In the singular frame of a layer, W_l = U_l S_l V_l^T, a change dW_l is D_l = U_l^T dW_l V_l. Its values part
U_l diag(D_l) V_l^T moves the singular values alone, to first order; the rest of dW_l rotates singular vectors.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from linnet import _check
from linnet._check import InputError
from linnet.observe.observables import observable
from linnet.problems import Problem
from linnet.states import Network, State, Weights

Layered = Weights | Network
Layers = tuple[Float[Array, "_ _"], ...]


class Split(NamedTuple):
    """What a change d of the weights does to the cost, L(W + d) - L(W), and what each part of it does alone."""

    cost: Float[Array, ""]
    """L(W)."""
    whole: Float[Array, ""]
    """That of all of d. Parameters that are no matrices, such as biases, move here alone."""
    values: Float[Array, ""]
    """That of the values parts of all layers together."""
    rotations: Float[Array, ""]
    """That of the rotations of all layers together."""
    shares: Float[Array, " layer"]
    """The values' share |diag D_l|^2 / |d_l|^2 of each layer."""
    moves: tuple[Float[Array, " _"], ...]
    """diag D_l of each layer, in the order of its singular values: the movement of each, to first order."""

    def top(self, count: int) -> Float[Array, " layer"]:
        """The share of the `count` largest singular values in the squared movement of all, layer by layer."""
        k = _check.integer("count", count, least=1)
        return jnp.stack([_share(jnp.sum(move[:k] ** 2), jnp.sum(move**2)) for move in self.moves])


def excess(before: Layered, now: Layered, after: Layered, problem: Problem) -> Split:
    """What an oscillation of period two costs, and how much of that its singular values and its vectors cost alone.

    Of three consecutive states the mean W = (before + 2 now + after)/4 and the period-two part d = now - W, split in
    the frames of `now`. Near the edge of stability, sums of `values` and of `rotations` over a window of steps, each
    over the sum of `whole`, tell which of them makes up the oscillation of the loss. It costs an SVD of each layer and
    four evaluations of the cost, no gradient.
    """
    _same(before, now, after)
    return _excess(before, now, after, problem)


def step_split(before: Layered, after: Layered, problem: Problem) -> Split:
    """What a step from `before` to `after` does to the cost, and what its values and its rotations do alone.

    In the frames of `before`. It costs an SVD of each layer and four evaluations of the cost, no gradient.
    """
    _same(before, after)
    return _step(before, after, problem)


@observable("layer")
def value_shares(state: State, problem: Problem) -> Float[Array, " layer"]:
    """Share of singular values in the squared gradient of each layer, |diag(U_l^T G_l V_l)|^2 / |G_l|^2

    That of the step too, for plain descent; rotations of singular vectors have the rest. A gradient that knows nothing
    of the frame has about 1/max(rows, columns), an aligned linear network 1. It costs one gradient and an SVD of each
    layer.
    """
    layered = _layered(state)
    gradient = layered.velocity(problem).layers
    return _shares(tuple(move for move, _ in _framed(layered.layers, gradient)), gradient)


@eqx.filter_jit
def _excess(before: Any, now: Any, after: Any, problem: Problem) -> Split:
    mean = _mapped(lambda a, b, c: (a + 2 * b + c) / 4, before, now, after)
    delta = _mapped(jnp.subtract, now, mean)
    return _split(mean, now, delta, now.layers, problem)


@eqx.filter_jit
def _step(before: Any, after: Any, problem: Problem) -> Split:
    return _split(before, after, _mapped(jnp.subtract, after, before), before.layers, problem)


def _split(base: Any, end: Any, change: Any, frames: Layers, problem: Problem) -> Split:
    """From `base` by `vjp` to `end`."""
    moves, values = zip(*_framed(frames, change.layers), strict=True)
    rest = [d - part for d, part in zip(change.layers, values, strict=True)]

    def moved(parts: Sequence[Array]) -> Any:
        return base.with_layers(tuple(w + part for w, part in zip(base.layers, parts, strict=True)))

    cost = problem.cost(base.matrix)
    whole, valued, rotated = (problem.cost(s.matrix) - cost for s in (end, moved(values), moved(rest)))
    return Split(cost, whole, valued, rotated, _shares(moves, change.layers), moves)


def _framed(frames: Layers, change: Layers) -> list[tuple[Float[Array, " _"], Float[Array, "_ _"]]]:
    """diag(U_l^T dW_l V_l) and the values part U_l diag(.) V_l^T of each layer."""
    out = []
    for layer, d in zip(frames, change, strict=True):
        u, _, vt = jnp.linalg.svd(layer, full_matrices=False)
        move = jnp.sum(u * (d @ vt.T), axis=0)
        out.append((move, (u * move) @ vt))
    return out


def _shares(moves: tuple[Float[Array, " _"], ...], change: Layers) -> Float[Array, " layer"]:
    pairs = zip(moves, change, strict=True)
    return jnp.stack([_share(jnp.sum(move**2), jnp.sum(d**2)) for move, d in pairs])


def _share(part: Array, whole: Array) -> Array:
    return part / jnp.where(whole > 0, whole, 1.0)


def _mapped(function: Any, *states: Any) -> Any:
    """A function of what moves, in a state; what does not move is the first one's."""
    return eqx.combine(jax.tree.map(function, *(state.trained() for state in states)), states[0])


def _layered(state: Any) -> Layered:
    if not isinstance(state, Weights | Network):
        raise InputError(f"{type(state).__name__} has no layers that are matrices: use Weights or Network.")
    return state


def _same(*states: Any) -> None:
    for state in states:
        _layered(state)
    shapes = [[leaf.shape for leaf in jax.tree.leaves(state)] for state in states]
    if any(type(state) is not type(states[0]) for state in states) or any(one != shapes[0] for one in shapes):
        raise InputError("the states are not of one network: give states of one run, a step apart.")


class Window(NamedTuple):
    """What singular values and their vectors do to the loss at consecutive steps of plain descent.

    `excess` and `step` have rows for the cost, the whole, the values part and the rotations (`Split`), by step.
    """

    loss: np.ndarray
    excess: np.ndarray
    step: np.ndarray
    shares: np.ndarray
    moves: tuple[np.ndarray, ...]
    layers: list[tuple[np.ndarray, ...]]

    @property
    def values_share(self) -> float:
        """The share of the excess loss of the oscillation that the movement of singular values alone has."""
        return float(self.excess[2].sum() / self.excess[1].sum())

    @property
    def rotations_share(self) -> float:
        """The share that the rotations of singular vectors alone have."""
        return float(self.excess[3].sum() / self.excess[1].sum())

    @property
    def size(self) -> float:
        """The excess loss over the loss, in the median."""
        return float(np.median(self.excess[1] / self.excess[0]))

    @property
    def correlations(self) -> tuple[float, float]:
        """How the change of the loss at a step goes with what its values and its rotations would do alone."""
        whole = np.corrcoef(self.step[1:])[0]
        return float(whole[1]), float(whole[2])

    @property
    def rises(self) -> int:
        """Steps at which the loss rises."""
        return int(np.sum(np.diff(self.loss) > 0))

    def top(self, count: int) -> np.ndarray:
        """The share of the largest singular values in the squared movement of all, layer by layer."""
        squares = [np.sum(move**2, axis=0) for move in self.moves]
        return np.array([square[:count].sum() / square.sum() for square in squares])


def window(state: Any, problem: Problem, lr: float, steps: int) -> Window:
    """The excess and the change of the cost at `steps` steps of plain descent from a state, split by `excess` and
    `step_split` in the singular frames of the layers.
    """
    states, size = [state], np.asarray(lr, state.layers[0].dtype)
    for _ in range(steps):
        states.append(_descended(states[-1], problem, size))
    excesses = [excess(*three, problem) for three in zip(states, states[1:], states[2:], strict=False)]
    changes = [step_split(*two, problem) for two in pairwise(states)]
    over, step = (np.array([split[:4] for split in splits], dtype=float).T for splits in (excesses, changes))
    return Window(
        loss=np.append(step[0], step[0, -1] + step[1, -1]),
        excess=over,
        step=step,
        shares=np.mean([split.shares for split in changes], axis=0),
        moves=tuple(np.array(rows) for rows in zip(*(split.moves for split in changes), strict=True)),
        layers=[tuple(np.asarray(w) for w in one.layers) for one in states],
    )


@eqx.filter_jit
def _descended(state: Any, problem: Problem, lr: Any) -> Any:
    return state.descend(problem, lr)
