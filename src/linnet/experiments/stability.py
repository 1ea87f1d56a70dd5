"""Figures of "Learning Dynamics of Deep Matrix Factorization Beyond the Edge of Stability": orbits, sharpness, sorting.

Step sizes are those of the loss 1/2 |A - A_star|^2. The figures of the paper were made with |A - A_star|^2, so the ones
printed there are half of these. Modes are u_i^T A v_i, in the target's order; sorted values are shown beside them where
they differ.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from pydantic import Field, model_validator

from linnet import dynamics, observe
from linnet.claims import Finding, at_least, at_most, within
from linnet.experiments.experiment import Experiment, Progress
from linnet.initial import one_zero
from linnet.linalg import haar
from linnet.motion import GradientDescent
from linnet.observe import Observable
from linnet.problems import Factorisation, factorisation
from linnet.record import at, every
from linnet.simulation import cast, simulate
from linnet.states import Modes
from linnet.theory import stability

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# What the figures share ----------------------------------------------------------------------------------------------


class _Target(Experiment):
    """A target of a few modes, and a start with the last layer at zero and alpha I in all others."""

    spectrum: tuple[float, ...] = Field(
        default=(10.0, 6.0, 3.0), min_length=2, max_length=20, description="Singular values of the target, descending."
    )
    depth: int = Field(default=3, ge=2, le=10, description="Layers.")
    alpha: float = Field(default=0.01, gt=0, le=10, description="Scale of the start.")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        s = self.spectrum
        if s[-1] <= 0 or any(b >= a for a, b in pairwise(s)):
            raise ValueError(f"spectrum = {s} must be positive and descend without repetition")
        if self.alpha >= s[-1]:
            raise ValueError(f"alpha = {self.alpha:g} must be below the smallest singular value, {s[-1]:g}")
        return self

    @property
    def edge(self) -> float:
        """S, the curvature of the first mode at the minimum."""
        return float(stability.curvature(self.spectrum[0], self.depth))

    def matrix(self, d: int) -> tuple[Factorisation, np.ndarray, np.ndarray]:
        """The target with random singular vectors, and these as columns."""
        left, right = (np.asarray(haar(k, d, d)) for k in jax.random.split(jax.random.key(self.seed)))
        u, v = left[:, : len(self.spectrum)], right[:, : len(self.spectrum)]
        return factorisation((u * np.array(self.spectrum)) @ v.T), u, v


def _chains(spectrum: Sequence[float], depth: int, alpha: float, lrs: Any, *, skip: int, keep: int) -> np.ndarray:
    """Layer values of every mode from the one-zero start, (lr, step, mode, 2): the last layer, then the others."""
    s, lrs = np.array(spectrum), np.asarray(lrs, dtype=float)
    root = s ** (1 / depth)
    kappas = lrs[:, None] * stability.curvature(s, depth)
    starts = np.broadcast_to(np.stack([0 * root, alpha / root], axis=-1), (*kappas.shape, 2))
    run = dynamics.orbits(dynamics.one_zero(depth), starts.reshape(-1, 2), kappas.ravel(), skip=skip, keep=keep)
    values = np.moveaxis(np.asarray(run.values).reshape(*kappas.shape, keep, 2), 2, 1)
    return values * root[:, None]


def _products(values: np.ndarray, depth: int) -> np.ndarray:
    """End-to-end values of layer values as `_chains` gives them."""
    return np.asarray(values[..., 0] * values[..., 1] ** (depth - 1))


def _aligned(targets: Any, depth: int, alpha: float, lrs: Any, steps: int, looks: Any) -> dict[str, np.ndarray]:
    """Aligned networks, every step recorded: a row of `targets` and a step size for each."""

    def one(target: Any, lr: Any) -> Any:
        problem = factorisation(target)
        start = one_zero(problem, alpha, depth)
        return simulate(problem, start, GradientDescent(lr), steps=steps, record=every(1), observe=looks).values

    found = jax.vmap(one)(jnp.asarray(targets, dtype=float), jnp.asarray(lrs, dtype=float))
    return {name: np.asarray(value) for name, value in found.items()}


def _sorted(modes: np.ndarray) -> np.ndarray:
    """What a list of singular values shows of aligned modes: their sizes, in descending order at every step."""
    return -np.sort(-np.abs(modes), axis=-1)


def _digits(value: Any, right: float, places: int) -> Finding:
    """The finding that a value is a published figure up to its last place."""
    return within(value, right - 0.51 * 10.0**-places, right + 0.51 * 10.0**-places)


def _swing(values: np.ndarray, axis: int) -> np.ndarray:
    return np.asarray(values.max(axis=axis) - values.min(axis=axis))


# Cascade (figure 1) --------------------------------------------------------------------------------------------------


class Fig1(_Target):
    """Period doubling of the first mode as the step size grows, and the curvature along the orbit. All modes follow
    their exact maps from the start of the paper; the others stay at rest. Crosses: full matrices with random singular
    vectors. On the right the curvature of the first mode and the sharpness, which at low phases is that of a pair.
    """

    id: ClassVar[str] = "stability/fig1"
    place: ClassVar[str] = "Figure 1"
    title: ClassVar[str] = "Period doubling to chaos in the first mode"
    quick: ClassVar[dict[str, Any]] = {"count": 353, "skip": 20_000, "matrix_steps": 5000}
    minutes: ClassVar[dict[str, float]] = {"quick": 0.3, "paper": 0.4}

    d: int = Field(default=5, ge=2, le=100, description="Inputs and outputs.")
    low: float = Field(default=1.9, gt=0, le=10, description="Smallest step, in units of 1/S (the edge is at 2).")
    high: float = Field(default=3.66, gt=0, le=10, description="Largest step, in units of 1/S.")
    count: int = Field(default=1761, ge=10, le=100_000, description="Step sizes.")
    skip: int = Field(default=40_000, ge=1000, le=10**7, description="Steps before anything is shown.")
    tested: tuple[float, ...] = Field(
        default=(2.1, 2.3, 2.48, 2.52, 2.615, 2.629, 2.66), min_length=1, description="Steps also made with matrices."
    )
    matrix_steps: int = Field(default=10_000, ge=200, le=10**6, description="Steps of the matrices.")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"low = {self.low:g} must be below high = {self.high:g}")
        if self.d < len(self.spectrum):
            raise ValueError(f"d = {self.d} must be at least the number of modes, {len(self.spectrum)}")
        if min(self.tested) <= 0 or max(self.tested) > self.high:
            raise ValueError(f"tested = {self.tested} must lie between 0 and high = {self.high:g}")
        return self

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        kappas, keep, shown = np.linspace(self.low, self.high, self.count), 128, 16
        progress(0, 4)
        chain = _chains(self.spectrum, self.depth, self.alpha, kappas / self.edge, skip=self.skip, keep=keep)
        values = _products(chain, self.depth)
        # the curvature of a balanced mode: the gap of the layers has closed long before
        curvature = stability.mode_curvature(chain[:, :, 0].mean(axis=-1).ravel(), self.spectrum[0], self.depth)
        progress(1, 4)
        exponent = dynamics.lyapunov(dynamics.balanced(self.depth), 0.9, kappas, skip=1000, steps=self.skip).exponent
        progress(2, 4)
        sharpness = self._sharpness(chain[:, :shown])
        progress(3, 4)
        problem, _, _ = self.matrix(self.d)
        last = at(np.arange(self.matrix_steps - 63, self.matrix_steps + 1))

        def one(lr: Any) -> Any:
            start = one_zero(problem, self.alpha, self.depth)
            steps = self.matrix_steps
            return simulate(problem, start, GradientDescent(lr), steps=steps, record=last, observe=["modes"]).values

        lrs = np.array(self.tested) / self.edge
        measured = np.asarray(jax.vmap(one)(jnp.asarray(lrs))["modes"])[:, 1:, : len(self.spectrum)]
        same = _chains(self.spectrum, self.depth, self.alpha, lrs, skip=self.matrix_steps - 63, keep=64)
        progress(4, 4)
        return xarray.Dataset(
            {
                "modes": (("kappa", "point", "mode"), values),
                "curvature": (("kappa", "point"), curvature.reshape(values.shape[:2])),
                "sharpness": (("kappa", "shown"), sharpness),
                "exponent": ("kappa", np.asarray(exponent)),
                "matrices": (("tested", "last", "mode"), measured),
                "maps": (("tested", "last", "mode"), _products(same, self.depth)),
            },
            coords={"kappa": kappas, "tested": list(self.tested)},
        )

    def _sharpness(self, chain: np.ndarray) -> np.ndarray:
        """The largest eigenvalue of the whole Hessian. Null modes are alike and a pair of them is the flattest, so one
        stands for all.
        """
        null = min(1, self.d - len(self.spectrum))
        layers = np.stack([chain[..., 1]] * (self.depth - 1) + [chain[..., 0]], axis=-2)
        rest = np.full((*layers.shape[:-1], null), self.alpha)
        rest[..., -1, :] = 0
        layers = np.concatenate([layers, rest], axis=-1)
        problem = factorisation(np.append(self.spectrum, np.zeros(null)))
        see = jax.jit(jax.vmap(lambda y: observe.aligned_sharpness.function(Modes(y), problem)))
        return np.asarray(see(jnp.asarray(layers.reshape(-1, *layers.shape[-2:])))).reshape(chain.shape[:2])

    def draw(self, data: xarray.Dataset) -> "Figure":
        from linnet.plot.stability import cascade

        table = stability.stages(self.depth)
        marks = {
            "period 2": 2.0,
            "period 4": float(table.doublings[1]),
            "period 8": float(table.doublings[2]),
            "chaos": table.accumulation,
        }
        return cascade(data, marks, self.edge)

    def periods(self, values: np.ndarray) -> np.ndarray:
        """The period of every orbit, by its recorded points; 0 if it has none up to 32."""
        run = dynamics.Orbits(jnp.asarray(values), jnp.full(len(values), -1))
        return np.asarray(dynamics.period(run, most=min(32, values.shape[1] // 2), tol=1e-7))

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        s, kappas, table = self.spectrum, data["kappa"].values, stability.stages(self.depth)
        periods, exponent = self.periods(data["modes"].values[:, :, 0]), data["exponent"].values
        # no orbit has settled that is closer to a doubling than 20 / steps, and a grid sees what is beyond its spacing
        slow, spacing = 20 / self.skip, kappas[1] - kappas[0]
        found = {}
        for n, period in enumerate((2, 4, 8)):
            begins = float(table.doublings[n])
            if kappas[0] < begins < kappas[-1]:
                first = kappas[np.argmax(periods == period)] if np.any(periods == period) else math.nan
                found[f"period {period} begins"] = within(first, begins - slow, begins + slow + spacing)
        if kappas[0] < table.accumulation < kappas[-1]:
            first = kappas[np.argmax(exponent > 1e-3)] if np.any(exponent > 1e-3) else math.nan
            found["chaos begins (positive Lyapunov exponent)"] = within(
                first, table.accumulation - slow, table.accumulation + slow + spacing
            )
        rest = np.abs(data["modes"].values[:, :, 1:] / np.array(s[1:]) - 1)
        quiet = kappas[:, None] * (np.array(s[1:]) / s[0]) ** (2 - 2 / self.depth) < 1.99
        found["the other modes are at rest: largest relative deviation"] = at_most(
            rest.max(axis=1)[quiet].max(initial=0), 1e-12
        )
        matrices, maps = data["matrices"].values, data["maps"].values
        calm = np.array(self.tested) < table.accumulation
        gap = np.abs(matrices - maps).max(axis=(1, 2)) / s[0]
        found["matrices against maps, where not chaotic: largest gap / s_1"] = at_most(gap[calm].max(initial=0), 1e-13)
        named = {1: "converges"} | {p: f"period {p}" for p in (2, 4, 8, 16, 32)}
        words = stability.outcome(np.array(self.tested), self.depth)
        for kappa, orbit, period, word in zip(
            self.tested, matrices[:, :, 0], self.periods(matrices[:, :, 0]), words, strict=True
        ):
            if word in named.values():
                wanted = next(p for p, name in named.items() if name == word)
                found[f"matrices, κ = {kappa:g}: period"] = within(period, wanted, wanted)
            elif word == "chaos":
                found[f"matrices, κ = {kappa:g}: no period up to 32"] = within(period, 0, 0)
            if (s[0], self.depth) == (10.0, 3) and kappa in _ORBITS:
                low, high = _ORBITS[kappa]
                found[f"matrices, κ = {kappa:g}: lowest value of the first mode"] = _digits(orbit.min(), low, 6)
                found[f"matrices, κ = {kappa:g}: highest value of the first mode"] = _digits(orbit.max(), high, 6)
        return found


_ORBITS = {  # first mode, s_1 = 10, L = 3: lowest and highest value by kappa
    2.1: (8.111579, 11.496654),
    2.3: (6.707431, 12.208651),
    2.48: (5.887979, 12.490634),
    2.52: (5.228208, 12.833911),
}


# Loss, sharpness and singular vectors in time (figures 2, 3 and 7) ---------------------------------------------------


class Fig2(_Target):
    """Loss and sharpness beyond the edge. The sharpness climbs while the first mode leaves the saddle, passes 2/lr and
    then alternates around it; its mean is a little above. The sharpness is exact, from the blocks of the Hessian;
    crosses: the dense Hessian of matrices with random singular vectors.
    """

    id: ClassVar[str] = "stability/fig2"
    place: ClassVar[str] = "Figure 2"
    title: ClassVar[str] = "Sharpness climbs to 2/lr and alternates around it"
    quick: ClassVar[dict[str, Any]] = {"steps": 1000}
    minutes: ClassVar[dict[str, float]] = {"quick": 0.2, "paper": 0.3}

    d: int = Field(default=5, ge=2, le=30, description="Inputs and outputs.")
    kappa: float = Field(default=2.05, gt=0, le=10, description="Step, in units of 1/S (the edge is at 2).")
    steps: int = Field(default=2000, ge=10, le=10**5, description="Steps.")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.d < len(self.spectrum):
            raise ValueError(f"d = {self.d} must be at least the number of modes, {len(self.spectrum)}")
        if self.depth * self.d**2 > observe.hessian.DENSE_HESSIAN:
            raise ValueError(f"d = {self.d} is too large for a dense Hessian of {self.depth} layers")
        return self

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        lr = self.kappa / self.edge
        target = np.append(self.spectrum, np.zeros(min(1, self.d - len(self.spectrum))))
        looks = ["loss", "modes", observe.aligned_sharpness]
        progress(0, 2)
        run = _aligned(target[None], self.depth, self.alpha, [lr], self.steps, looks)
        progress(1, 2)
        problem, _, _ = self.matrix(self.d)
        places = np.linspace(0, self.steps - 1, 41).astype(int)
        # low and high phases in turn
        seen = np.unique(np.append(np.minimum(places // 2 * 2 + np.arange(41) % 2, self.steps), [0, self.steps]))

        def dense(state: Any, problem: Any) -> Any:
            return observe.hessian_spectrum.function(state, problem)[0]

        matrices = simulate(
            problem,
            one_zero(problem, self.alpha, self.depth),
            GradientDescent(lr),
            steps=self.steps,
            record=at(seen),
            observe={"dense": dense},
        )
        progress(2, 2)
        return xarray.Dataset(
            {
                "loss": ("step", run["loss"][0]),
                "modes": (("step", "mode"), run["modes"][0, :, : len(self.spectrum)]),
                "sharpness": ("step", run["aligned_sharpness"][0]),
                "dense": ("seen", np.asarray(matrices["dense"])),
            },
            coords={"step": np.arange(self.steps + 1), "seen": seen},
        )

    def draw(self, data: xarray.Dataset) -> "Figure":
        from linnet.plot.stability import sharpening

        return sharpening(data, 2 * self.edge / self.kappa)

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        sharpness, level = data["sharpness"].values, 2 * self.edge / self.kappa
        dense = data["dense"].values / sharpness[data["seen"].values] - 1
        found = {"sharpness from blocks against the dense Hessian: largest gap": at_most(np.abs(dense).max(), 1e-9)}
        if not 2 < self.kappa < stability.stages(self.depth).doublings[1]:
            return found
        orbit = stability.orbit(self.spectrum[0], self.depth, self.kappa / self.edge)
        last = sharpness[-2:]
        crossed = np.argmax(sharpness > level) if np.any(sharpness > level) else math.nan
        escape = float(stability.escape_time(self.spectrum[0], self.alpha, self.depth)) * self.edge / self.kappa
        found["first step above 2/lr / escape time of small starts"] = within(crossed / escape, 0.97, 1.03)
        found["upper sharpness in the end / curvature of the 2-cycle, minus 1"] = at_most(
            abs(last.max() / float(orbit.curvature_high) - 1), 1e-9
        )
        found["mean sharpness in the end / (2/lr)"] = within(last.mean() / level, 1.0, 1.1)
        if (self.spectrum, self.depth, self.alpha, self.kappa) == ((10.0, 6.0, 3.0), 3, 0.01, 2.05):
            found["first step above 2/lr"] = within(crossed, 498, 504)
            found["lower sharpness in the end"] = _digits(last.min(), 48.1228, 4)
            found["upper sharpness in the end"] = _digits(last.max(), 79.4225, 4)
            found["mean sharpness in the end"] = _digits(last.mean(), 63.77, 2)
        return found


class Fig3(_Target):
    """Singular vectors of the network against those of the target, for small and large steps. From the first step on
    every singular vector of the target is one of the network, whatever the step size; only the modes move. Taken in the
    order of the singular values (dotted) vectors seem to jump as soon as modes cross: that is sorting.
    """

    id: ClassVar[str] = "stability/fig3"
    place: ClassVar[str] = "Figure 3"
    title: ClassVar[str] = "Singular vectors stand still, modes oscillate"
    quick: ClassVar[dict[str, Any]] = {"steps": 1500}
    minutes: ClassVar[dict[str, float]] = {"quick": 0.1, "paper": 0.15}

    d: int = Field(default=5, ge=2, le=100, description="Inputs and outputs.")
    kappas: tuple[float, ...] = Field(
        default=(1.5, 2.05, 2.48), min_length=2, max_length=4, description="Steps, in units of 1/S (the edge is at 2)."
    )
    steps: int = Field(default=3000, ge=100, le=10**5, description="Steps.")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.d < len(self.spectrum):
            raise ValueError(f"d = {self.d} must be at least the number of modes, {len(self.spectrum)}")
        if min(self.kappas) <= 0 or max(self.kappas) > 2.6:
            raise ValueError(f"kappas = {self.kappas} must lie between 0 and 2.6, before rounding noise grows")
        return self

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        problem, u, v = self.matrix(self.d)
        r = len(self.spectrum)

        def one(lr: Any) -> Any:
            start = one_zero(problem, self.alpha, self.depth)
            motion = GradientDescent(lr)
            return simulate(
                problem, start, motion, steps=self.steps, record=every(1), observe=["modes", "matrix"]
            ).values

        progress(0, 1)
        values = jax.vmap(one)(jnp.array(self.kappas) / self.edge)
        progress(1, 1)
        # A = 0 at the start has no singular vectors
        left, _, right = np.linalg.svd(np.asarray(values["matrix"])[:, 1:])
        overlaps = np.abs(np.stack([u.T @ left, v.T @ right.swapaxes(-1, -2)]))  # side, kappa, step, target, network
        best = overlaps.max(axis=-1).min(axis=0)
        in_order = overlaps[..., np.arange(r), np.arange(r)].min(axis=0)
        lead = ("kappa", "step")
        return xarray.Dataset(
            {
                "modes": ((*lead, "mode"), np.asarray(values["modes"])[:, 1:, :r]),
                "overlap": ((*lead, "mode"), best),
                "in_order": ((*lead, "mode"), in_order),
            },
            coords={"kappa": list(self.kappas), "step": np.arange(1, self.steps + 1)},
        )

    def draw(self, data: xarray.Dataset) -> "Figure":
        from linnet.plot.stability import vectors

        return vectors(data, self.spectrum)

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        found = {}
        for kappa in self.kappas:
            run = data.sel(kappa=kappa)
            modes, word = run["modes"].values, stability.outcome([kappa], self.depth)[0]
            found[f"κ = {kappa:g}: overlap with the target's vectors, 1 minus the smallest"] = at_most(
                1 - run["overlap"].min(), 1e-12
            )
            orbit = stability.orbit(self.spectrum[0], self.depth, kappa / self.edge)
            if word in ("converges", "period 2"):
                ends = np.sort(modes[-2:, 0])
                gap = max(abs(ends[0] - orbit.bottom), abs(ends[1] - orbit.top)) / self.spectrum[0]
                found[f"κ = {kappa:g}: first mode in the end, gap from its orbit"] = at_most(gap, 1e-9)
            swapped = float(run["in_order"].isel(step=slice(-2, None)).min())
            if modes[-2:, 0].min() < self.spectrum[1]:
                found[f"κ = {kappa:g}: the same vectors in the order of the values, smallest overlap"] = at_most(
                    swapped, 1e-6
                )
            else:
                found[f"κ = {kappa:g}: no modes cross: overlap in order, 1 minus the smallest"] = at_most(
                    1 - swapped, 1e-12
                )
        return found


class Fig7(Experiment):
    """Sharpness in time at one step size, for targets of several sizes: it settles at S of the first mode and stays
    below 2/lr if S does. Only the largest target crosses the line and oscillates; its lower value belongs to the pair
    of both modes (dotted: the same with one mode alone).
    """

    id: ClassVar[str] = "stability/fig7"
    place: ClassVar[str] = "Figure 7"
    title: ClassVar[str] = "No edge of stability for small targets"
    quick: ClassVar[dict[str, Any]] = {"steps": 3000}
    minutes: ClassVar[dict[str, float]] = {"quick": 0.15, "paper": 0.3}

    firsts: tuple[float, ...] = Field(
        default=(2.0, 5.0, 8.0, 12.0, 15.0), min_length=2, max_length=8, description="First singular values, ascending."
    )
    ratio: float = Field(default=0.5, gt=0, lt=1, description="Second singular value over the first.")
    depth: int = Field(default=3, ge=2, le=10, description="Layers.")
    alpha: float = Field(default=0.05, gt=0, le=1, description="Scale of the start.")
    lr: float = Field(default=0.02, gt=0, le=10, description="Step size.")
    steps: int = Field(default=6000, ge=100, le=10**5, description="Steps.")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if list(self.firsts) != sorted(set(self.firsts)) or self.firsts[0] <= 0:
            raise ValueError(f"firsts = {self.firsts} must be positive and ascend")
        if self.alpha >= self.ratio * self.firsts[0]:
            raise ValueError(f"alpha = {self.alpha:g} must be below the smallest singular value")
        top = float(stability.kappa(self.firsts[-1], self.depth, self.lr))
        if top > 2.4:
            raise ValueError(f"lr = {self.lr:g} takes s_1 = {self.firsts[-1]:g} to κ = {top:.3g}: stay below 2.4")
        return self

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        s = np.array(self.firsts)
        looks = ["modes", observe.aligned_sharpness]
        progress(0, 2)
        targets = np.stack([s, self.ratio * s], axis=1)
        both = _aligned(targets, self.depth, self.alpha, np.full(len(s), self.lr), self.steps, looks)
        progress(1, 2)
        alone = _aligned(s[-1:, None], self.depth, self.alpha, [self.lr], self.steps, looks)
        progress(2, 2)
        return xarray.Dataset(
            {
                "sharpness": (("first", "step"), both["aligned_sharpness"]),
                "modes": (("first", "step", "mode"), both["modes"]),
                "alone": ("step", alone["aligned_sharpness"][0]),
            },
            coords={"first": s, "step": np.arange(self.steps + 1)},
        )

    def draw(self, data: xarray.Dataset) -> "Figure":
        from linnet.plot.stability import plateaus

        return plateaus(data, stability.curvature(np.array(self.firsts), self.depth), 2 / self.lr)

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        given = (self.ratio, self.depth, self.alpha, self.lr) == (0.5, 3, 0.05, 0.02)
        known = {2.0: 7.55953, 5.0: 25.64964, 8.0: 48.0, 12.0: 82.41943}
        found = {}
        for s in self.firsts:
            edge = float(stability.curvature(s, self.depth))
            sharpness = data["sharpness"].sel(first=s).values
            last = sharpness[-2:]
            if self.lr * edge < 2:
                found[f"s_1 = {s:g}: sharpness in the end / S, minus 1"] = within(last[-1] / edge - 1, -1e-12, 3e-7)
                found[f"s_1 = {s:g}: largest sharpness on the way / (2/lr)"] = at_most(sharpness.max() * self.lr / 2, 1)
                if given and s in known:
                    found[f"s_1 = {s:g}: sharpness in the end"] = _digits(last[-1], known[s], 5)
                continue
            orbit = stability.orbit(s, self.depth, self.lr)
            found[f"s_1 = {s:g}: upper sharpness / curvature of the 2-cycle, minus 1"] = at_most(
                abs(last.max() / float(orbit.curvature_high) - 1), 1e-9
            )
            if given and s == 15:
                found["s_1 = 15: lower sharpness in the end"] = _digits(last.min(), 65.63, 2)
                found["s_1 = 15: upper sharpness in the end"] = _digits(last.max(), 157.32, 2)
        if given and self.firsts[-1] == 15:
            found["s_1 = 15, one mode alone: lower sharpness"] = _digits(data["alone"].values[-2:].min(), 52.63, 2)
        return found


# Balancing (figure 4) ------------------------------------------------------------------------------------------------


@lru_cache
def _with_gap(depth: int) -> dynamics.Map:
    """The one-zero map with a third entry: y_l^2 - y_L^2 over its start, by the product of `stability.gap_loss`."""
    step = dynamics.one_zero(depth)

    def both(point: Any, kappa: Any) -> Any:
        x, y = point[0], point[1]
        loss = (kappa / depth * (x * y ** (depth - 1) - 1) * y ** (depth - 2)) ** 2
        return jnp.append(step(point[:2], kappa), point[2] * (1 - loss))

    return both


class Fig4(_Target):
    """The gap of the squared layer values of every mode. Only the mode that keeps oscillating is balanced in the end,
    at the rate of its 2-cycle; the gaps of modes at rest stay, small because alpha is. Thin: the same as a direct
    difference, which rounding stops.
    """

    id: ClassVar[str] = "stability/fig4"
    place: ClassVar[str] = "Figure 4"
    title: ClassVar[str] = "Only oscillating modes become balanced"
    quick: ClassVar[dict[str, Any]] = {"steps": 4000}
    minutes: ClassVar[dict[str, float]] = {"quick": 0.1, "paper": 0.1}

    spectrum: tuple[float, ...] = Field(
        default=(10.0, 9.0, 6.0), min_length=2, max_length=20, description="Singular values of the target, descending."
    )
    kappa: float = Field(default=2.05, gt=0, lt=2.48, description="Step, in units of 1/S (the edge is at 2).")
    steps: int = Field(default=8000, ge=4000, le=10**6, description="Steps.")

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        s, lr = np.array(self.spectrum), self.kappa / self.edge
        root = s ** (1 / self.depth)
        starts = np.stack([0 * s, self.alpha / root, np.ones(len(s))], axis=-1)
        kappas = stability.kappa(s, self.depth, lr)
        progress(0, 1)
        run = dynamics.orbits(_with_gap(self.depth), starts, kappas, skip=0, keep=self.steps + 1)
        direct = _aligned(s[None], self.depth, self.alpha, [lr], self.steps, ["layer_gaps", "modes"])
        progress(1, 1)
        return xarray.Dataset(
            {
                "gap": (("step", "mode"), self.alpha**2 * np.abs(np.asarray(run.values)[:, :, 2].T)),
                "direct": (("step", "mode"), np.abs(direct["layer_gaps"][0, :, 0])),
                "modes": (("step", "mode"), direct["modes"][0]),
            },
            coords={"step": np.arange(self.steps + 1)},
        )

    def rate(self) -> float:
        """The predicted decay of the first gap for one step: -log |(2 - z)(2 - 1/z)| / 2."""
        return -math.log(abs(float(stability.orbit(self.spectrum[0], self.depth, self.kappa / self.edge).gap))) / 2

    def draw(self, data: xarray.Dataset) -> "Figure":
        from linnet.plot.stability import gaps

        return gaps(data, self.spectrum, self.rate() if self.kappa > 2 else None)

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        gap, direct = data["gap"].values, data["direct"].values
        growth = np.max(gap[1:] - gap[:-1]) / self.alpha**2
        early = gap > 1e-3 * gap[0]
        found = {
            "no gap ever grows: largest growth / first gap": at_most(growth, 0.0),
            "product formula against the difference: largest gap / first gap, while above 1e-3 of it": at_most(
                np.abs(gap - direct)[early].max() / gap[0, 0], 1e-9
            ),
        }
        kappas = stability.kappa(np.array(self.spectrum), self.depth, self.kappa / self.edge)
        for i, kappa in enumerate(kappas):
            if kappa > 2.01:
                part = gap[[3000, 4000], i]
                found[f"mode {i + 1} oscillates: decay of its gap / law of the 2-cycle"] = within(
                    math.log(part[0] / part[1]) / 1000 / self.rate(), 1 - 1e-6, 1 + 1e-6
                )
            elif kappa < 1.99:
                found[f"mode {i + 1} is at rest: what is left of its gap"] = at_least(gap[-1, i] / gap[0, i], 0.1)
        if (self.spectrum, self.depth, self.alpha, self.kappa) == ((10.0, 9.0, 6.0), 3, 0.01, 2.05):
            found["gap of mode 1 after 4000 steps"] = within(gap[4000, 0], 2.35e-15, 2.45e-15)
            found["gap of mode 2 after 4000 steps"] = within(gap[4000, 1], 6.055e-5, 6.065e-5)
            found["gap of mode 3 after 4000 steps"] = within(gap[4000, 2], 7.585e-5, 7.595e-5)
        return found


# Amplitude (figure 6) ------------------------------------------------------------------------------------------------


class Fig6(Experiment):
    """The range over which the first mode oscillates, by step size and depth: nothing below the edge, a square root
    above it, and the exact 2-cycle (lines) all the way. Dotted: the orbit equation as printed, with the step multiplied
    by the depth.
    """

    id: ClassVar[str] = "stability/fig6"
    place: ClassVar[str] = "Figure 6"
    title: ClassVar[str] = "How far the first mode oscillates"
    quick: ClassVar[dict[str, Any]] = {"count": 58}
    minutes: ClassVar[dict[str, float]] = {"quick": 0.15, "paper": 0.2}

    s: float = Field(default=10.0, gt=0, le=1e3, description="First singular value.")
    depths: tuple[int, ...] = Field(default=(2, 3, 4), min_length=1, max_length=5, description="Layers, ascending.")
    alpha: float = Field(default=0.03, gt=0, le=1, description="Scale of the start.")
    low: float = Field(default=1.9, gt=0, lt=2, description="Smallest step, in units of 1/S (the edge is at 2).")
    high: float = Field(default=2.47, gt=2, le=2.47, description="Largest step, before the period doubles.")
    count: int = Field(default=115, ge=10, le=10_000, description="Step sizes; the edge itself is left out.")
    steps: int = Field(default=100_000, ge=1000, le=10**7, description="Steps.")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if list(self.depths) != sorted(set(self.depths)) or self.depths[0] < 2 or self.depths[-1] > 6:
            raise ValueError(f"depths = {self.depths} must ascend between 2 and 6")
        for depth in self.depths:
            lr = 2 / float(stability.curvature(self.s, depth))
            escape = float(stability.escape_time(self.s, self.alpha, depth)) / lr
            if escape > self.steps / 2:
                raise ValueError(
                    f"alpha = {self.alpha:g} is too small for {depth} layers: leaving the saddle takes {escape:.2g} "
                    f"steps, more than half of steps = {self.steps}"
                )
        return self

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        grid = np.linspace(self.low, self.high, self.count)
        spacing = grid[1] - grid[0]
        grid = grid[np.abs(grid - 2) > spacing / 4]  # at the edge itself descent converges algebraically
        onset = 2 + np.geomspace(1e-3, 1e-2, 6)
        rows: dict[str, list[Any]] = {"range": [], "exact": [], "printed": [], "onset": [], "law": []}
        for done, depth in enumerate(self.depths):
            progress(done, len(self.depths))
            edge = float(stability.curvature(self.s, depth))
            lrs = np.append(grid, onset) / edge
            chain = _chains([self.s], depth, self.alpha, lrs, skip=self.steps, keep=16)
            swing = _swing(_products(chain, depth)[..., 0], 1)
            rows["range"].append(swing[: len(grid)])
            rows["onset"].append(swing[len(grid) :])
            for name, factor in (("exact", 1), ("printed", depth)):
                orbit = stability.orbit(self.s, depth, factor * grid / edge)
                rows[name].append(orbit.top - orbit.bottom)
            rows["law"].append(stability.onset_amplitude(self.s, depth, onset / edge))
        progress(len(self.depths), len(self.depths))
        return xarray.Dataset(
            {
                **{name: (("depth", "kappa"), np.array(rows[name])) for name in ("range", "exact", "printed")},
                **{name: (("depth", "near"), np.array(rows[name])) for name in ("onset", "law")},
            },
            coords={"depth": list(self.depths), "kappa": grid, "near": onset},
        )

    def draw(self, data: xarray.Dataset) -> "Figure":
        from linnet.plot.stability import amplitudes

        return amplitudes(data, self.s)

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        found = {}
        above, near = data["kappa"].values > 2, data["near"].values
        for depth in self.depths:
            run = data.sel(depth=depth)
            measured, exact = run["range"].values / self.s, run["exact"].values / self.s
            found[f"{depth} layers: range below the edge / s"] = at_most(measured[~above].max(), 1e-10)
            found[f"{depth} layers: range above against the exact 2-cycle, largest gap / s"] = at_most(
                np.abs(measured - exact)[above].max(), 1e-10
            )
            slope = np.polyfit(np.log(near - 2), np.log(run["onset"].values), 1)[0]
            found[f"{depth} layers: exponent at the onset"] = within(slope, 0.49, 0.51)
            found[f"{depth} layers: range at κ - 2 = 0.001 / square-root law"] = within(
                run["onset"].values[0] / run["law"].values[0], 0.999, 1.001
            )
            found[f"{depth} layers: the equation as printed fails that, smallest gap / s"] = at_least(
                np.abs(measured - run["printed"].values / self.s)[above].min(), 1e-10
            )
        return found


# Sorting (figure 18) -------------------------------------------------------------------------------------------------


class Fig18(_Target):
    """Three modes close to each other at growing step sizes: modes (lines) and sorted singular values (rings) in the
    last steps, and the range of both by step size. The second and third sorted values begin to alternate when the first
    mode dips below them, far before their modes move; 2 over the second eigenvalue λ_2 (dashed) plays no part. The
    second mode itself starts only at 2/S_2, in or out of phase with the first; with matrices rounding noise has
    broken the alignment by then.
    """

    id: ClassVar[str] = "stability/fig18"
    place: ClassVar[str] = "Figure 18"
    title: ClassVar[str] = "Sorted values alternate although the modes are at rest"
    quick: ClassVar[dict[str, Any]] = {"count": 201}
    minutes: ClassVar[dict[str, float]] = {"quick": 0.15, "paper": 0.2}

    spectrum: tuple[float, ...] = Field(
        default=(10.0, 9.0, 8.0), min_length=3, max_length=3, description="Singular values of the target, descending."
    )
    alpha: float = Field(default=0.1, gt=0, le=10, description="Scale of the start.")
    shown: tuple[float, ...] = Field(
        default=(0.0156, 0.016, 0.0165, 0.0182), min_length=1, max_length=6, description="Half steps shown in time."
    )
    low: float = Field(default=0.015, gt=0, le=10, description="Smallest half step (as printed in the paper).")
    high: float = Field(default=0.019, gt=0, le=10, description="Largest half step.")
    count: int = Field(default=801, ge=10, le=10_000, description="Step sizes.")
    steps: int = Field(default=100_000, ge=1000, le=10**7, description="Steps.")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"low = {self.low:g} must be below high = {self.high:g}")
        top = 2 * max(self.high, *self.shown) * self.edge
        if min(self.shown) <= 0 or top > 2.48:
            raise ValueError(f"half steps must be positive and keep κ below 2.48, where the period doubles: {top:.4g}")
        return self

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        grid = np.linspace(self.low, self.high, self.count)
        halves = np.append(grid, self.shown)
        progress(0, 1)
        chain = _chains(self.spectrum, self.depth, self.alpha, 2 * halves, skip=self.steps, keep=16)
        modes = _products(chain, self.depth)
        progress(1, 1)
        return xarray.Dataset(
            {
                "range": (("half", "mode"), _swing(modes[: len(grid)], 1)),
                "sorted_range": (("half", "mode"), _swing(_sorted(modes[: len(grid)]), 1)),
                "modes": (("shown", "last", "mode"), modes[len(grid) :]),
                "sorted": (("shown", "last", "mode"), _sorted(modes[len(grid) :])),
            },
            coords={"half": grid, "shown": list(self.shown)},
        )

    def thresholds(self) -> dict[str, float]:
        """Half steps at which something is said to begin."""
        s, unit = self.spectrum, 2 * self.edge
        return {
            "2/S_1": 2 / unit,
            "2/λ_2": float(stability.cross_edge(s[1] / s[0], self.depth)) / unit,
            "2/S_2": 1 / float(stability.curvature(s[1], self.depth)),
            "sorted 2": stability.sorting_onset(s[1] / s[0], self.depth) / unit,
            "sorted 3": stability.sorting_onset(s[2] / s[0], self.depth) / unit,
        }

    def draw(self, data: xarray.Dataset) -> "Figure":
        from linnet.plot.stability import sorting

        return sorting(data, self.thresholds())

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        s, grid, begins = np.array(self.spectrum), data["half"].values, self.thresholds()
        # closer to the edge than κ = 20 / steps no orbit has settled, and a grid sees what is beyond its spacing
        slow, spacing = 20 / self.steps * begins["2/S_2"] / 2, grid[1] - grid[0]
        found = {}

        def first(name: str, values: np.ndarray, threshold: str) -> None:
            place = begins[threshold]
            if grid[0] < place < grid[-1]:
                seen = values > 1e-6 * s[0]
                measured = grid[np.argmax(seen)] if seen.any() else math.nan
                found[f"{name} begins to alternate, half step"] = within(measured, place - slow, place + slow + spacing)

        for i, threshold in ((0, "2/S_1"), (1, "2/S_2")):
            first(f"mode {i + 1}", data["range"].values[:, i], threshold)
        for i in (1, 2):
            first(f"sorted value {i + 1}", data["sorted_range"].values[:, i], f"sorted {i + 1}")
        early = data["sorted_range"].values[grid < begins["2/λ_2"], 1]
        found["sorted value 2: range already below 2/λ_2"] = at_least(early.max(initial=0), 1e-6 * s[0])
        if (self.spectrum, self.depth) != ((10.0, 9.0, 8.0), 3):
            return found
        orbits = {0.0156: (9.258, 10.675), 0.016: (8.451, 11.278), 0.0165: (7.813, 11.673)}
        apart = {0.016: (1, 8.451, 9.0), 0.0165: (2, 7.813, 8.0)}
        for half in self.shown:
            modes, values = (data[name].sel(shown=half).values for name in ("modes", "sorted"))
            if half in orbits:
                low, high = orbits[half]
                found[f"half step {half:g}: first mode, low"] = _digits(modes[:, 0].min(), low, 3)
                found[f"half step {half:g}: first mode, high"] = _digits(modes[:, 0].max(), high, 3)
                found[f"half step {half:g}: second and third mode at rest, largest range"] = at_most(
                    _swing(modes[:, 1:], 0).max(), 1e-9
                )
            if half in apart:
                i, low, high = apart[half]
                found[f"half step {half:g}: sorted value {i + 1}, low"] = _digits(values[:, i].min(), low, 3)
                found[f"half step {half:g}: sorted value {i + 1}, high"] = _digits(values[:, i].max(), high, 3)
        return found


# The cross direction (figure 5) --------------------------------------------------------------------------------------


class Fig5(_Target):
    """A deep matrix network and the diagonal network with the same modes, at step sizes 2/K. The modes of both agree;
    the sorted second value of the matrix alternates because the first mode dips below it. Beyond 2/λ_2 the aligned
    orbit is unstable in the cross direction: rounding noise grows at the predicted rate (dotted), earlier in single
    precision, and then the top two modes move irregularly, in bursts, not on a 2-cycle. An exactly diagonal target has
    no noise to grow and stays with the diagonal network.
    """

    id: ClassVar[str] = "stability/fig5"
    place: ClassVar[str] = "Figure 5"
    title: ClassVar[str] = "Matrix and diagonal networks differ by sorting and by rounding noise"
    quick: ClassVar[dict[str, Any]] = {"d": 20, "steps": 3000}
    minutes: ClassVar[dict[str, float]] = {"quick": 0.3, "paper": 0.6}

    spectrum: tuple[float, ...] = Field(
        default=(10.0, 9.0, 6.0), min_length=2, max_length=20, description="Singular values of the target, descending."
    )
    d: int = Field(default=50, ge=3, le=200, description="Inputs and outputs.")
    levels: tuple[float, ...] = Field(
        default=(62.5, 59.0, 57.0), min_length=1, max_length=4, description="K: steps are 2/K."
    )
    steps: int = Field(default=4000, ge=1000, le=10**5, description="Steps.")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.d < len(self.spectrum):
            raise ValueError(f"d = {self.d} must be at least the number of modes, {len(self.spectrum)}")
        least = 2 * self.edge / 2.48
        if min(self.levels) < least:
            raise ValueError(f"levels = {self.levels} must be at least {least:.4g}, where the period doubles")
        return self

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        r, s = len(self.spectrum), np.array(self.spectrum)
        problem, u, v = self.matrix(self.d)
        straight = np.zeros((self.d, self.d))
        straight[np.arange(r), np.arange(r)] = s
        exact = factorisation(straight)
        total, done = 3 * len(self.levels) + 1, 0
        modes: dict[str, list[Any]] = {"double": [], "single": [], "diagonal target": []}
        cross: dict[str, list[Any]] = {name: [] for name in modes}
        sizes: dict[str, list[Any]] = {name: [] for name in modes}
        outside: dict[str, list[float]] = {name: [] for name in modes}
        ended: dict[str, list[int]] = {name: [] for name in modes}
        for name in modes:
            task, left, right = problem, u, v
            if name == "diagonal target":
                task, left, right = exact, np.eye(self.d, r), np.eye(self.d, r)
            start = one_zero(task, self.alpha, self.depth)
            if name == "single":
                start = cast(start, jnp.float32)

            def core(state: Any, problem: Any, left: Any = left, right: Any = right) -> Any:
                return left.T @ state.matrix @ right

            looks = {"core": Observable("core", core, ("output_mode", "input_mode"))}
            for level in self.levels:
                progress(done, total)
                done += 1
                motion = GradientDescent(2 / level)
                run = simulate(task, start, motion, steps=self.steps, record=every(1), observe=looks)
                block = np.asarray(run["core"], dtype=float)
                block = np.concatenate([block, np.repeat(block[-1:], self.steps + 1 - len(block), axis=0)])
                modes[name].append(np.einsum("tii->ti", block))
                sizes[name].append(np.linalg.svd(block, compute_uv=False))
                cross[name].append(np.hypot(block[:, 0, 1], block[:, 1, 0]))
                end = np.asarray(run.final.matrix, dtype=float)
                outside[name].append(float(np.linalg.norm(end - left @ block[-1] @ right.T, 2)))
                ended[name].append(int(run.ended))
        progress(done, total)
        lrs = 2 / np.array(self.levels)
        diagonal = _aligned(np.tile(s, (len(lrs), 1)), self.depth, self.alpha, lrs, self.steps, ["modes"])["modes"]
        progress(total, total)
        lead = ("target", "level", "step")
        return xarray.Dataset(
            {
                "modes": ((*lead, "mode"), np.array(list(modes.values()))),
                "sorted": ((*lead, "mode"), np.array(list(sizes.values()))),
                "cross": (lead, np.array(list(cross.values()))),
                "outside": (lead[:2], np.array(list(outside.values()))),
                "ended": (lead[:2], np.array(list(ended.values()))),
                "diagonal": ((*lead[1:], "mode"), diagonal),
            },
            coords={"target": list(modes), "level": list(self.levels), "step": np.arange(self.steps + 1)},
        )

    def growth(self, level: float) -> float:
        """The predicted growth of a cross deviation of the first two modes for one step: log |m| / 2."""
        ratio, kappa = self.spectrum[1] / self.spectrum[0], 2 * self.edge / level
        return float(np.log(np.abs(stability.cross_multipliers(ratio, self.depth, kappa)[0]))) / 2

    def draw(self, data: xarray.Dataset) -> "Figure":
        from linnet.plot.stability import cross

        return cross(data, {level: self.growth(level) for level in self.levels})

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        s, found = np.array(self.spectrum), {}
        given = (self.spectrum, self.depth, self.alpha) == ((10.0, 9.0, 6.0), 3, 0.01)
        if given:
            pair = float(stability.cross_curvature(s[0], s[1], self.depth))
            second = float(stability.curvature(s[1], self.depth))
            for name, value, right in (
                ("λ_1", self.edge, 64.63304),
                ("λ_2", pair, 60.34809),
                ("S_2", second, 56.16226),
            ):
                found[name] = _digits(value, right, 5)
        exact = data.sel(target="diagonal target")
        gap = np.abs(exact["modes"].values - data["diagonal"].values).max() / s[0]
        found["diagonal target: largest cross component"] = at_most(exact["cross"].max(), 0.0)
        found["diagonal target: modes against the diagonal network, largest gap / s_1"] = at_most(gap, 1e-13)
        # so that the singular values of the block of modes are those of A
        found["double precision: what A has outside the modes in the end, largest / s_1"] = at_most(
            data["outside"].sel(target="double").max() / s[0], 1e-12
        )
        found["runs that diverged"] = at_most(np.sum(data["ended"].values < self.steps), 0)
        for level in self.levels:
            here = data.sel(level=level)
            # one by one: the solver is compiled for each shape
            each = [stability.orbit(x, self.depth, 2 / level) for x in self.spectrum]
            orbits = np.array([[orbit.bottom for orbit in each], [orbit.top for orbit in each]])
            name, kappa = f"K = {level:g}", 2 * self.edge / level
            ends = here["diagonal"].values[-2:]
            gap = np.abs(np.sort(ends, axis=0) - orbits).max() / s[0]
            found[f"{name}: diagonal network against its orbits, largest gap / s_1"] = at_most(gap, 1e-9)
            double = here.sel(target="double")
            if self.growth(level) <= 0 or kappa < 2:
                ends = double["modes"].values[-2:]
                gap = np.abs(np.sort(ends, axis=0) - orbits).max() / s[0]
                found[f"{name}: modes of the matrix against the orbits, largest gap / s_1"] = at_most(gap, 1e-9)
                if given and level == 62.5:
                    found[f"{name}: first mode, low"] = _digits(ends[:, 0].min(), 8.45109, 5)
                    found[f"{name}: first mode, high"] = _digits(ends[:, 0].max(), 11.27786, 5)
                    values = double["sorted"].values[-2:, 1]
                    found[f"{name}: sorted second value, low"] = _digits(values.min(), 8.45109, 5)
                    found[f"{name}: sorted second value, high"] = _digits(values.max(), 9.0, 5)
                continue
            cross = double["cross"].values
            for which in ("double", "single"):
                broke = self.breaks(here.sel(target=which)["cross"].values)
                expected = {"double": {59.0: 2160, 57.0: 1120}, "single": {59.0: 1095, 57.0: 730}}[which].get(level)
                if given and expected:
                    found[f"{name}, {which} precision: step at which the cross component passes 0.01"] = within(
                        broke, 0.85 * expected, 1.15 * expected
                    )
            low, high = (int(np.argmax(cross > size)) for size in (1e-10, 1e-4))
            rising = np.arange(low, max(low, high))
            rate = np.polyfit(rising, np.log(cross[rising]), 1)[0] if len(rising) > 20 else math.nan
            found[f"{name}: growth of the cross component / prediction"] = within(rate / self.growth(level), 0.9, 1.1)
            before = slice(0, max(1, int(np.argmax(cross > 1e-6))))
            gap = np.abs(double["modes"].values[before] - here["diagonal"].values[before]).max() / s[0]
            found[f"{name}: modes against the diagonal network until the cross component passes 1e-6"] = at_most(
                gap, 1e-6
            )
            broke = self.breaks(cross)
            tail = double["modes"].values[self.steps // 2 + int(np.nan_to_num(broke)) // 2 :, :2]
            found[f"{name}: no 2-cycle afterwards: largest change of the first two modes in two steps"] = at_least(
                np.abs(tail[2:] - tail[:-2]).max(), 0.01 * s[0]
            )
        return found

    @staticmethod
    def breaks(cross: np.ndarray) -> float:
        """The first step at which the cross component is above 0.01."""
        return float(np.argmax(cross > 0.01)) if np.any(cross > 0.01) else math.nan
