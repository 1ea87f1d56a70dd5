"""What the figures of "Learning Dynamics of Deep Matrix Factorization Beyond the Edge of Stability" share.

Learning rates are those of the loss 1/2 |A - A_star|^2. The figures of the paper were made with |A - A_star|^2, so the
ones printed there are half of these. Modes are u_i^T A v_i, in the target's order; sorted values are shown beside them
where they differ.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import Field, PositiveFloat, model_validator

from linnet import maps
from linnet._random import with_spectrum
from linnet.claims import Finding, near
from linnet.experiments.experiment import Descending, Experiment
from linnet.init import one_zero
from linnet.optim import SGD
from linnet.problems import Factorization, factorization
from linnet.record import every
from linnet.simulation import simulate
from linnet.theory import stability

# Checks of parameters ------------------------------------------------------------------------------------------------


def check_range(low: float, high: float) -> None:
    """Refuses an empty range."""
    if low >= high:
        raise ValueError(f"low = {low:g} must be below high = {high:g}")


def check_modes_fit(d: int, spectrum: Sequence[float]) -> None:
    """Refuses matrices that are too small for their modes."""
    if d < len(spectrum):
        raise ValueError(f"d = {d} must be at least the number of modes, {len(spectrum)}")


def check_small(alpha: float, smallest: float) -> None:
    """Refuses an initialization that is not small."""
    if alpha >= smallest:
        raise ValueError(f"alpha = {alpha:g} must be below the smallest singular value, {smallest:g}")


def check_alphas(alphas: Sequence[float], smallest: float) -> None:
    """Refuses scales that do not ascend, or of which one is not small."""
    if any(b <= a for a, b in pairwise(alphas)) or not 0 < alphas[0] <= alphas[-1] < smallest:
        raise ValueError(f"alphas = {alphas} must ascend between 0 and the smallest singular value, {smallest:g}")


# Targets -------------------------------------------------------------------------------------------------------------


class Target(Experiment):
    """A target of a few modes, and an initialization with the last layer at zero and alpha I in all others."""

    spectrum: Descending[PositiveFloat] = Field(
        default=(10.0, 6.0, 3.0), min_length=2, max_length=20, description="Singular values of the target, descending."
    )
    depth: int = Field(default=3, ge=2, le=10, description="Layers.")
    alpha: float = Field(default=0.01, gt=0, le=10, description="Scale of the initialization.")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        check_small(self.alpha, self.spectrum[-1])
        return self

    @property
    def edge(self) -> float:
        """S, the curvature of the first mode at the minimum."""
        return float(stability.curvature(self.spectrum[0], self.depth))

    def matrix(self, d: int) -> tuple[Factorization, np.ndarray, np.ndarray]:
        """The target with random singular vectors, and these as columns."""
        left, right = jax.random.split(jax.random.key(self.seed))
        rank = len(self.spectrum)
        target, u, v = with_spectrum(left, right, np.pad(self.spectrum, (0, d - rank)), d)
        return factorization(target), np.asarray(u)[:, :rank], np.asarray(v)[:, :rank]


class Rank5(Experiment):
    """What figures 12 and 13 share: a target of rank five and a step in units of its sharpness."""

    spectrum: Descending[PositiveFloat] = Field(
        default=(10.0, 8.0, 6.0, 4.0, 2.0), min_length=1, max_length=20, description="Singular values, descending."
    )
    depth: int = Field(default=3, ge=2, le=6, description="Layers.")
    kappa: float = Field(default=1.8, gt=0, lt=2.6, description="Learning rate times the sharpness at the minimum.")

    @property
    def lr(self) -> float:
        """The learning rate."""
        return self.kappa / float(stability.curvature(self.spectrum[0], self.depth))

    def steps_needed(self, alpha: float) -> int:
        """Until the last mode has left the saddle and settled."""
        escape = float(stability.escape_time(self.spectrum[-1], alpha, self.depth)) / self.lr
        settle = 40 / (self.lr * float(stability.curvature(self.spectrum[-1], self.depth)))
        return math.ceil(1.2 * escape + settle)


# Runs ----------------------------------------------------------------------------------------------------------------


def chains(spectrum: Sequence[float], depth: int, alpha: float, lrs: Any, *, skip: int, keep: int) -> np.ndarray:
    """Layer values of every mode from the one-zero initialization, (lr, step, mode, 2): the last layer, then the
    others.
    """
    s, lrs = np.array(spectrum), np.asarray(lrs, dtype=float)
    root = s ** (1 / depth)
    kappas = lrs[:, None] * stability.curvature(s, depth)
    initializations = np.broadcast_to(np.stack([0 * root, alpha / root], axis=-1), (*kappas.shape, 2))
    run = maps.orbits(maps.one_zero(depth), initializations.reshape(-1, 2), kappas.ravel(), skip=skip, keep=keep)
    values = np.moveaxis(np.asarray(run.values).reshape(*kappas.shape, keep, 2), 2, 1)
    return values * root[:, None]


def products(values: np.ndarray, depth: int) -> np.ndarray:
    """End-to-end values of layer values as `chains` gives them."""
    return np.asarray(values[..., 0] * values[..., 1] ** (depth - 1))


def aligned_runs(targets: Any, depth: int, alpha: float, lrs: Any, steps: int, observed: Any) -> dict[str, np.ndarray]:
    """Aligned networks, every step recorded: a row of `targets` and a learning rate for each."""

    def one(target: Any, lr: Any) -> Any:
        problem = factorization(target)
        initial = one_zero(problem, alpha, depth)
        return simulate(problem, initial, SGD(lr), steps=steps, record=every(1), observe=observed).values

    found = jax.vmap(one)(jnp.asarray(targets, dtype=float), jnp.asarray(lrs, dtype=float))
    return {name: np.asarray(value) for name, value in found.items()}


def sorted_sizes(modes: np.ndarray) -> np.ndarray:
    """What a list of singular values shows of aligned modes: their sizes, in descending order at every step."""
    return -np.sort(-np.abs(modes), axis=-1)


def digits(value: Any, right: float, places: int) -> Finding:
    """The finding that a value is a published figure up to its last place."""
    return near(value, right, 0.51 * 10.0**-places)


def swings(values: np.ndarray, axis: int) -> np.ndarray:
    """The highest values minus the lowest."""
    return np.asarray(values.max(axis=axis) - values.min(axis=axis))
