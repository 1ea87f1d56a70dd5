"""Claims and errata about networks that are not linear, of the same paper as `claims/stability.py`.

They run on made data, so that nothing need be fetched; the figures `stability/fig17` and `stability/fig19` have the same
statements on published images. The loss is the mean of |f - y|^2 over samples and outputs.
"""

from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from linnet import observe
from linnet.problems import Problem

# Singular values against singular vectors -----------------------------------------------------------------------------


class Window(NamedTuple):
    """Consecutive steps of plain descent: what singular values and their vectors do to the loss.

    `excess` and `step` have rows for the cost, the whole, the values part and the rotations (`observe.Split`), by step.
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
    """So many steps of descent from a state, each seen in the singular frames of its layers."""
    states, size = [state], np.asarray(lr, state.layers[0].dtype)
    for _ in range(steps):
        states.append(_descended(states[-1], problem, size))
    excesses = [observe.excess(*states[i - 1 : i + 2], problem) for i in range(1, steps)]
    changes = [observe.step_split(*states[i : i + 2], problem) for i in range(steps)]
    excess, step = (np.array([split[:4] for split in splits], dtype=float).T for splits in (excesses, changes))
    return Window(
        loss=np.append(step[0], step[0, -1] + step[1, -1]),
        excess=excess,
        step=step,
        shares=np.mean([split.shares for split in changes], axis=0),
        moves=tuple(np.array(rows) for rows in zip(*(split.moves for split in changes), strict=True)),
        layers=[tuple(np.asarray(w) for w in one.layers) for one in states],
    )


@eqx.filter_jit
def _descended(state: Any, problem: Problem, lr: Any) -> Any:
    return state.descend(problem, lr)
