"""`linnet demo`: noisy low-rank recovery by a network of any width."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import jax
import jax.numpy as jnp

from linnet import _check, observe
from linnet._check import InputError
from linnet.init import gaussian
from linnet.optim import SGD
from linnet.problems import low_rank_recovery
from linnet.simulation import simulate
from linnet.theory import mixed
from linnet.trajectory import Trajectory

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDEST = 15  # decades


@dataclass(frozen=True, kw_only=True)
class DemonstrationSetting:
    """The network d -> width -> d, its initial variance, and the learning rate of the paper."""

    d: int
    rank: int
    width: float
    variance: float
    c: float  # the threshold variance * width: singular values below are lazy
    lazy: bool  # the phase, which sets the learning rate
    steps: int
    seed: int

    @classmethod
    def of(cls, *, d: int, rank: int, gamma_w: float, gamma_sigma2: float, steps: int, seed: int) -> Self:
        """A network of d^gamma_w neurons whose weights have variance d^gamma_sigma2, on a noisy d x d matrix."""
        d = _check.integer("d", d, least=2, most=5000)
        steps = _check.integer("steps", steps, least=1)
        gamma_w = _check.real("gamma_w", gamma_w, least=0, most=100)
        variance = float(d) ** _check.real("gamma_sigma2", gamma_sigma2, least=-50, most=50)
        if gamma_w * math.log10(d) > _WIDEST:
            raise InputError(f"gamma_w = {gamma_w:g} is not allowed: the width d^gamma_w must be at most 1e{_WIDEST}.")
        width = float(round(d**gamma_w))
        return cls(
            d=d,
            rank=_check.integer("rank", rank, least=1, most=d, reason="the smaller dimension"),
            width=width,
            variance=variance,
            c=variance * width,
            lazy=gamma_sigma2 + gamma_w > 1,
            steps=steps,
            seed=_check.integer("seed", seed, least=0, most=2**63 - 1),
        )


@dataclass(frozen=True, kw_only=True)
class Demonstration:
    """A run, and where its test error was smallest."""

    setting: DemonstrationSetting
    lr: float
    run: Trajectory
    best_step: int
    best_test_error: float
    stable_rank_there: float
    final_test_error: float
    seconds: float

    def plot(self) -> "Figure":
        """Train and test error, and every singular value with the threshold c."""
        from linnet.plot.recovery import recovery

        return recovery(self.run, self.setting.c, self.setting.rank)

    def animate(self, path: Path, progress: Callable[[int, int], None] | None = None) -> None:
        """Writes that picture as a film, a .gif or a .mp4."""
        from linnet.plot.animation import film

        film(self.plot(), path, progress=progress)


def demonstrate(chosen: DemonstrationSetting, progress: Callable[[int, int], None] | None = None) -> Demonstration:
    """Trains the `chosen` network exactly, in compressed width, and records all singular values at each step."""
    key = jax.random.key(chosen.seed)
    problem = low_rank_recovery(key, chosen.d, chosen.rank)
    lr = float(mixed.step_size(chosen.d, chosen.c, float(jnp.linalg.norm(problem.truth, 2)), lazy=chosen.lazy))
    began = time.perf_counter()
    run = simulate(
        problem,
        gaussian(key, problem, chosen.width, chosen.variance),
        SGD(lr),
        steps=chosen.steps,
        observe={
            "singular values": observe.singular_values,
            "train": observe.loss,
            "test": observe.test_error,
            "stable rank": observe.stable_rank,
        },
        progress=progress,
    )
    best = int(jnp.argmin(run["test"]))
    assert run.steps is not None
    return Demonstration(
        setting=chosen,
        lr=lr,
        run=run,
        best_step=int(run.steps[best]),
        best_test_error=float(run["test"][best]),
        stable_rank_there=float(run["stable rank"][best]),
        final_test_error=float(run["test"][-1]),
        seconds=round(time.perf_counter() - began, 2),
    )
