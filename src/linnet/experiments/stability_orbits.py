"""Figures about the orbits of the first mode: their cascade (1), how far they go (6), which depths have them (16)."""

import math
from pathlib import Path
from typing import Annotated, Any, Self

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from pydantic import Field, model_validator

from linnet import maps, observe
from linnet.claims import Finding, at_least, at_most, near, within
from linnet.experiments.experiment import Ascending, Experiment, Progress, along
from linnet.experiments.stability_shared import (
    Target,
    chains,
    check_modes_fit,
    check_range,
    check_small,
    digits,
    products,
    swings,
)
from linnet.init import one_zero
from linnet.optim import SGD
from linnet.problems import factorization
from linnet.record import at
from linnet.simulation import simulate
from linnet.states import Modes
from linnet.theory import stability

# Cascade (figure 1) --------------------------------------------------------------------------------------------------


class StabilityFig1(Target):
    """Period doubling of the first mode as the learning rate grows, and the curvature along the orbit. All modes follow
    their exact maps from the initialization of the paper; the others stay at rest. Crosses: full matrices with random
    singular vectors. On the right the curvature of the first mode and the sharpness, which at low phases is that of a
    pair.
    """

    title = "Period doubling to chaos in the first mode"
    quick = {"count": 353, "skip": 20_000, "matrix_steps": 5000}
    minutes = {"quick": 0.3, "paper": 0.4}

    d: int = Field(default=5, ge=2, le=100, description="Inputs and outputs.")
    low: float = Field(default=1.9, gt=0, le=10, description="Smallest step, in units of 1/S (the edge is at 2).")
    high: float = Field(default=3.66, gt=0, le=10, description="Largest learning rate, in units of 1/S.")
    count: int = Field(default=1761, ge=10, le=100_000, description="Learning rates.")
    skip: int = Field(default=40_000, ge=1000, le=10**7, description="Steps before anything is shown.")
    tested: tuple[float, ...] = Field(
        default=(2.1, 2.3, 2.48, 2.52, 2.615, 2.629, 2.66), min_length=1, description="Steps also made with matrices."
    )
    matrix_steps: int = Field(default=10_000, ge=200, le=10**6, description="Steps of the matrices.")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        check_range(self.low, self.high)
        check_modes_fit(self.d, self.spectrum)
        if min(self.tested) <= 0 or max(self.tested) > self.high:
            raise ValueError(f"tested = {self.tested} must lie between 0 and high = {self.high:g}")
        return self

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        kappas, keep, shown = np.linspace(self.low, self.high, self.count), 128, 16
        chain = chains(self.spectrum, self.depth, self.alpha, kappas / self.edge, skip=self.skip, keep=keep)
        values = products(chain, self.depth)
        # the curvature of a balanced mode: the gap of the layers has closed long before
        curvature = stability.mode_curvature(chain[:, :, 0].mean(axis=-1).ravel(), self.spectrum[0], self.depth)
        progress(1, 4)
        exponent = maps.lyapunov(maps.balanced(self.depth), 0.9, kappas, skip=1000, steps=self.skip).exponent
        progress(2, 4)
        sharpness = self._sharpness(chain[:, :shown])
        progress(3, 4)
        problem, _, _ = self.matrix(self.d)
        last = at(np.arange(self.matrix_steps - 63, self.matrix_steps + 1))

        def one(lr: Any) -> Any:
            initial = one_zero(problem, self.alpha, self.depth)
            steps = self.matrix_steps
            return simulate(problem, initial, SGD(lr), steps=steps, record=last, observe=["modes"]).values

        lrs = np.array(self.tested) / self.edge
        measured = np.asarray(jax.vmap(one)(jnp.asarray(lrs))["modes"])[:, 1:, : len(self.spectrum)]
        same = chains(self.spectrum, self.depth, self.alpha, lrs, skip=self.matrix_steps - 63, keep=64)
        return xarray.Dataset(
            {
                "modes": (("kappa", "point", "mode"), values),
                "curvature": (("kappa", "point"), curvature.reshape(values.shape[:2])),
                "sharpness": (("kappa", "shown"), sharpness),
                "exponent": ("kappa", np.asarray(exponent)),
                "matrices": (("tested", "last", "mode"), measured),
                "maps": (("tested", "last", "mode"), products(same, self.depth)),
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
        problem = factorization(np.append(self.spectrum, np.zeros(null)))
        see = jax.jit(jax.vmap(lambda y: observe.aligned_sharpness(Modes(y), problem)))
        return np.asarray(see(jnp.asarray(layers.reshape(-1, *layers.shape[-2:])))).reshape(chain.shape[:2])

    def periods(self, values: np.ndarray) -> np.ndarray:
        """The period of every orbit, by its recorded points; 0 if it has none up to 32."""
        run = maps.Orbits(jnp.asarray(values), jnp.full(len(values), -1))
        return np.asarray(maps.period(run, most=min(32, values.shape[1] // 2), tol=1e-7))

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        s, kappas, table = self.spectrum, data["kappa"].values, stability.stages(self.depth)
        periods, exponent = self.periods(data["modes"].values[:, :, 0]), data["exponent"].values
        # no orbit has settled that is closer to a doubling than 20 / steps, and a grid resolves only its spacing
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
        doubled = np.isin(periods, (2, 4, 8))
        for name in ("curvature", "sharpness"):
            own = self.periods(data[name].values / self.edge)
            found[f"share of orbits of period 2, 4, 8 whose {name} has the same period"] = at_least(
                np.mean((own == periods)[doubled]) if doubled.any() else math.nan, 0.99
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
        expected = stability.outcome(np.array(self.tested), self.depth)
        for kappa, orbit, period, known in zip(
            self.tested, matrices[:, :, 0], self.periods(matrices[:, :, 0]), expected, strict=True
        ):
            if known.period is not None and known.period <= 32:
                found[f"matrices, κ = {kappa:g}: period"] = within(period, known.period, known.period)
            elif known.fate is stability.Fate.CHAOS:
                found[f"matrices, κ = {kappa:g}: no period up to 32"] = within(period, 0, 0)
            if (s[0], self.depth) == (10.0, 3) and kappa in _ORBITS:
                low, high = _ORBITS[kappa]
                found[f"matrices, κ = {kappa:g}: lowest value of the first mode"] = digits(orbit.min(), low, 6)
                found[f"matrices, κ = {kappa:g}: highest value of the first mode"] = digits(orbit.max(), high, 6)
        return found


_ORBITS = {  # first mode, s_1 = 10, L = 3: lowest and highest value by kappa
    2.1: (8.111579, 11.496654),
    2.3: (6.707431, 12.208651),
    2.48: (5.887979, 12.490634),
    2.52: (5.228208, 12.833911),
}


# Amplitude (figure 6) ------------------------------------------------------------------------------------------------


class StabilityFig6(Experiment):
    """The range over which the first mode oscillates, by learning rate and depth: nothing below the edge, a square root
    above it, and the exact 2-cycle (lines) all the way. Dotted: the orbit equation as printed, with the step multiplied
    by the depth.
    """

    title = "How far the first mode oscillates"
    quick = {"count": 58}
    minutes = {"quick": 0.15, "paper": 0.2}

    s: float = Field(default=10.0, gt=0, le=1e3, description="First singular value.")
    depths: Ascending[Annotated[int, Field(ge=2, le=6)]] = Field(
        default=(2, 3, 4), min_length=1, max_length=5, description="Layers, ascending."
    )
    alpha: float = Field(default=0.03, gt=0, le=1, description="Scale of the initialization.")
    low: float = Field(default=1.9, gt=0, lt=2, description="Smallest step, in units of 1/S (the edge is at 2).")
    high: float = Field(default=2.47, gt=2, le=2.47, description="Largest learning rate, before the period doubles.")
    count: int = Field(default=115, ge=10, le=10_000, description="Learning rates; the edge itself is left out.")
    steps: int = Field(default=100_000, ge=1000, le=10**7, description="Steps.")

    @model_validator(mode="after")
    def _possible(self) -> Self:
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

        def ranges(depth: int) -> dict[str, Any]:
            edge = float(stability.curvature(self.s, depth))
            lrs = np.append(grid, onset) / edge
            chain = chains([self.s], depth, self.alpha, lrs, skip=self.steps, keep=16)
            swing = swings(products(chain, depth)[..., 0], 1)
            exact, printed = (stability.orbit(self.s, depth, factor * grid / edge) for factor in (1, depth))
            return {
                "range": ("kappa", swing[: len(grid)]),
                "exact": ("kappa", exact.top - exact.bottom),
                "printed": ("kappa", printed.top - printed.bottom),
                "onset": ("near", swing[len(grid) :]),
                "law": ("near", stability.onset_amplitude(self.s, depth, onset / edge)),
            }

        return along("depth", self.depths, ranges, progress).assign_coords(kappa=grid, near=onset)

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        found = {}
        above, near = data["kappa"].values > 2, data["near"].values
        for depth in self.depths:
            run = data.sel(depth=depth)
            measured, exact = run["range"].values / self.s, run["exact"].values / self.s
            found[f"{depth} layers: range below the edge / s"] = at_most(measured[~above].max(), 1e-10)
            found[f"{depth} layers: range above against the exact 2-cycle, largest gap / s"] = at_most(
                np.abs(measured - exact)[above], 1e-10
            )
            slope = np.polyfit(np.log(near - 2), np.log(run["onset"].values), 1)[0]
            found[f"{depth} layers: exponent at the onset"] = within(slope, 0.49, 0.51)
            found[f"{depth} layers: range at κ - 2 = 0.001 / square-root law"] = within(
                run["onset"].values[0] / run["law"].values[0], 0.999, 1.001
            )
            found[f"{depth} layers: the equation as printed fails that, smallest gap / s"] = at_least(
                np.abs(measured - run["printed"].values / self.s)[above], 1e-10
            )
        return found


# Depth (figure 16) ---------------------------------------------------------------------------------------------------


STABLE, OSCILLATES, SADDLE, LEFT = range(4)


class StabilityFig16(Experiment):
    """Which learning rates oscillate, by depth, from a small initialization: descent of the first mode, one chain a
    cell. The boundary (line) is 2/(L s^{2-2/L}); it falls with depth where L > 2 ln(1/s). A run that has not left the
    saddle has a color of its own: it is not stable.
    """

    title = "Deeper networks reach the edge at smaller steps"
    quick = {"rates": 45, "depths": (2, 3, 4)}
    minutes = {"quick": 0.1, "paper": 0.4}

    s: float = Field(default=0.5, gt=0, le=1e3, description="The largest singular value.")
    alpha: float = Field(default=0.01, gt=0, le=1, description="Scale of the initialization.")
    depths: Ascending[Annotated[int, Field(ge=2, le=100)]] = Field(
        default=(2, 3, 4, 5), min_length=2, description="Depths, ascending from 2 or more."
    )
    low: float = Field(default=1.0, gt=0, description="The smallest learning rate.")
    high: float = Field(default=2.2, gt=0, description="The largest learning rate.")
    rates: int = Field(default=121, ge=5, le=2001, description="Learning rates.")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        check_small(self.alpha, self.s)
        check_range(self.low, self.high)
        most = max(self._steps(depth) for depth in self.depths)
        if most > 10**7:
            raise ValueError(f"alpha = {self.alpha:g} must be larger: leaving the saddle would take {most:.0e} steps")
        return self

    def _steps(self, depth: int) -> int:
        """Twice the time to leave the saddle, and some to settle in."""
        return math.ceil(2 * float(stability.escape_time(self.s, self.alpha, depth)) / self.low) + 20_000

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        rates = np.linspace(self.low, self.high, self.rates)

        def outcomes(depth: int) -> dict[str, Any]:
            initial = np.array([[0.0, self.alpha / self.s ** (1 / depth)]])
            kappas = stability.kappa(self.s, depth, rates)
            run = maps.orbits(maps.one_zero(depth), initial, kappas, skip=self._steps(depth), keep=512)
            values = np.asarray(run.values)
            product = values[:, :, 0] * values[:, :, 1] ** (depth - 1)
            amplitude = np.ptp(product, axis=1)
            # at the saddle the product is small and hardly moves; near a fixed point the amplitude is small as well
            kind = np.where(amplitude > 1e-4, OSCILLATES, STABLE)
            kind = np.where(np.max(np.abs(product), axis=1) < 0.5, SADDLE, kind)
            return {
                "kind": ("lr", np.where(np.asarray(run.diverged), LEFT, kind)),
                "amplitude": ("lr", amplitude),
                "boundary": ((), 2 / float(stability.curvature(self.s, depth))),
            }

        return along("depth", self.depths, outcomes, progress).assign_coords(lr=rates)

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        lr, kind, theory = data["lr"].values, data["kind"].values, data["boundary"].values
        width = lr[1] - lr[0]
        found = {}
        for depth, row, edge in zip(self.depths, kind, theory, strict=True):
            inside = self.low < edge < self.high
            wrong = np.sum(row[lr < edge - width] != STABLE) + np.sum(row[lr > edge + width] == STABLE)
            found[f"L = {depth}: cells on the wrong side, one cell from the boundary left out"] = at_most(wrong, 0)
            if inside and np.any(row == STABLE) and np.any(row == OSCILLATES):
                measured = (lr[row == STABLE].max() + lr[row == OSCILLATES].min()) / 2
                found[f"L = {depth}: boundary of the runs"] = near(measured, edge, width)
        found["cells still at the saddle"] = at_most(np.sum(kind == SADDLE), 0)
        printed = {2: 2.0, 3: 1.67989, 4: 1.41421, 5: 1.21257}
        if self.s == 0.5:
            for depth, edge in zip(self.depths, theory, strict=True):
                if depth in printed:
                    goal = printed[depth]
                    found[f"L = {depth}: 2 / (L s^(2-2/L))"] = near(edge, goal, 6e-6)
        return found
