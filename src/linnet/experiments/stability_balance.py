"""Figures about the balance of layers (4 and 13) and the minimum that gradient flow finds (22 and 23)."""

import math
from pathlib import Path
from typing import Annotated, Any, Self

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from pydantic import Field, PositiveFloat, model_validator
from scipy.integrate import solve_ivp

from linnet import maps, observe
from linnet.claims import Finding, at_least, at_most, close, near, within
from linnet.experiments.experiment import Ascending, Descending, Experiment, Progress, along
from linnet.experiments.stability_shared import (
    Rank5,
    Target,
    aligned_runs,
    check_alphas,
)
from linnet.init import one_zero
from linnet.optim import SGD
from linnet.problems import factorization
from linnet.record import at
from linnet.simulation import simulate
from linnet.theory import stability

# Gaps of layers (figures 4 and 13) -----------------------------------------------------------------------------------


class StabilityFig4(Target):
    """The gap of the squared layer values of every mode. Only the mode that keeps oscillating is balanced in the end,
    at the rate of its 2-cycle; the gaps of modes at rest stay, small because alpha is. Thin: the same as a direct
    difference, which rounding stops.
    """

    title = "Only oscillating modes become balanced"
    quick = {"steps": 4000}
    minutes = {"quick": 0.1, "paper": 0.1}

    spectrum: Descending[PositiveFloat] = Field(
        default=(10.0, 9.0, 6.0), min_length=2, max_length=20, description="Singular values of the target, descending."
    )
    kappa: float = Field(default=2.05, gt=0, lt=2.48, description="Step, in units of 1/S (the edge is at 2).")
    steps: int = Field(default=8000, ge=4000, le=10**6, description="Steps.")

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        s, lr = np.array(self.spectrum), self.kappa / self.edge
        root = s ** (1 / self.depth)
        initializations = np.stack([0 * s, self.alpha / root, np.ones(len(s))], axis=-1)
        kappas = stability.kappa(s, self.depth, lr)
        run = maps.orbits(stability.one_zero_gap(self.depth), initializations, kappas, skip=0, keep=self.steps + 1)
        direct = aligned_runs(s[None], self.depth, self.alpha, [lr], self.steps, ["layer_gaps", "modes"])
        return xarray.Dataset(
            {
                "gap": (("step", "mode"), self.alpha**2 * np.abs(np.asarray(run.values)[:, :, 2].T)),
                "direct": (("step", "mode"), np.abs(direct["layer_gaps"][0, :, 0])),
                "modes": (("step", "mode"), direct["modes"][0]),
            },
            coords={"step": np.arange(self.steps + 1)},
        )

    @property
    def rate(self) -> float | None:
        """The predicted decay of the first gap for one step: -log |(2 - z)(2 - 1/z)| / 2; None without a 2-cycle."""
        if self.kappa <= 2:
            return None
        return -math.log(abs(float(stability.orbit(self.spectrum[0], self.depth, self.kappa / self.edge).gap))) / 2

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
                found[f"mode {i + 1} oscillates: decay of its gap / law of the 2-cycle"] = near(
                    math.log(part[0] / part[1]) / 1000 / (self.rate or math.nan), 1, 1e-6
                )
            elif kappa < 1.99:
                found[f"mode {i + 1} is at rest: what is left of its gap"] = at_least(gap[-1, i] / gap[0, i], 0.1)
        if (self.spectrum, self.depth, self.alpha, self.kappa) == ((10.0, 9.0, 6.0), 3, 0.01, 2.05):
            found["gap of mode 1 after 4000 steps"] = within(gap[4000, 0], 2.35e-15, 2.45e-15)
            found["gap of mode 2 after 4000 steps"] = within(gap[4000, 1], 6.055e-5, 6.065e-5)
            found["gap of mode 3 after 4000 steps"] = within(gap[4000, 2], 7.585e-5, 7.595e-5)
        return found


class StabilityFig13(Rank5):
    """The layer value that starts at 0 against one that starts at alpha, step by step (dashed: equal). They look
    balanced in the end because alpha^2 is small: most of the gap is still there, whatever alpha is. One number for each
    mode and layer is exact here, at any dimension.
    """

    title = "Small initializations look balanced"
    quick = {"alphas": (0.01, 0.1, 0.5)}
    minutes = {"quick": 0.1, "paper": 0.1}

    alphas: tuple[float, ...] = Field(
        default=(0.01, 0.03, 0.1, 0.3, 0.5),
        min_length=1,
        max_length=20,
        description="Scales of the initialization, ascending.",
    )

    @model_validator(mode="after")
    def _below(self) -> Self:
        check_alphas(self.alphas, self.spectrum[-1])
        if self.steps_needed(self.alphas[0]) > 10**6:
            raise ValueError(f"alphas = {self.alphas} must be larger: the smallest leaves the saddle too late")
        return self

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        problem = factorization(np.array(self.spectrum))
        steps = self.steps_needed(self.alphas[0])
        points = np.unique(np.append(np.arange(200), np.geomspace(200, steps, 400).round()))

        def one(alpha: Any) -> Any:
            initial = one_zero(problem, alpha, self.depth)
            return simulate(
                problem,
                initial,
                SGD(self.lr),
                steps=steps,
                record=at(points),
                observe={"values": observe.layer_modes},
            )

        run = jax.vmap(one)(jnp.array(self.alphas))
        values = np.asarray(run["values"])
        return xarray.Dataset(
            {
                "last": (("alpha", "step", "mode"), values[:, :, -1]),
                "first": (("alpha", "step", "mode"), values[:, :, 0]),
            },
            coords={"alpha": list(self.alphas), "step": np.asarray(run.steps[0])},
        )

    def gap_left(self, data: xarray.Dataset) -> np.ndarray:
        """Gap over alpha^2 in time."""
        x, y = data["last"].values, data["first"].values
        return np.asarray((y - x) * (y + x) / np.array(self.alphas)[:, None, None] ** 2)

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        left = self.gap_left(data)
        product = data["last"].values[:, -1] * data["first"].values[:, -1] ** (self.depth - 1)
        found = {
            "largest relative distance of a mode from its target in the end": close(
                product, np.array(self.spectrum), rtol=1e-6
            ),
            "the gap never grows: largest increase over alpha^2": at_most(np.diff(left, axis=1), 1e-9),
        }
        default = (self.spectrum, self.depth, self.kappa) == ((10.0, 8.0, 6.0, 4.0, 2.0), 3, 1.8)
        if default and 0.01 in self.alphas:
            end = left[self.alphas.index(0.01), -1]
            for i, (value, goal) in enumerate(zip(end, (0.603, 0.696, 0.787, 0.872, 0.948), strict=True)):
                found[f"alpha 0.01, mode {i + 1}: gap / alpha^2 in the end"] = near(value, goal, 6e-4)
        if default:
            found["gap / alpha^2 in the end, largest difference between alphas"] = at_most(
                np.ptp(left[:, -1], axis=0), 0.1
            )
        return found


# The minimum of the flow (figures 22 and 23) -------------------------------------------------------------------------


class _FlowMinimum(Experiment):
    """What figures 22 and 23 share: one mode of several depths, and a range of initializations."""

    s: float = Field(default=10.0, gt=0, le=1e6, description="Singular value of the target.")
    depths: Ascending[Annotated[int, Field(ge=2, le=20)]] = Field(
        default=(2, 3, 4, 5), min_length=1, max_length=8, description="Depths, ascending."
    )
    points: int = Field(default=400, ge=50, le=20_000, description="Values of alpha.")
    reach: float = Field(default=1.5, gt=0, le=10, description="The largest alpha in units of s^(1/L).")

    def alphas(self, depth: int) -> np.ndarray:
        """Starts, in the units of the layers."""
        return np.linspace(0, self.reach, self.points + 1)[1:] * self.s ** (1 / depth)


class StabilityFig22(_FlowMinimum):
    """Sharpness Psi of the minimum that gradient flow finds, by the scale of the initialization, over its value at
    alpha = 0, with the published bound and with the sharper one, g(L) in place of L^2 2^{2(L-1)/L}. Dots are flows
    integrated to their end.
    """

    title = "Sharpness of the flow's minimum and its bounds"
    quick = {"points": 120}
    minutes = {"quick": 0.1, "paper": 0.1}

    flows: int = Field(default=6, ge=1, le=100, description="Flows that are integrated, for each depth.")

    @model_validator(mode="after")
    def _finite(self) -> Self:
        power = max(L**2 * 2 ** (2 * (L - 1) / L) for L in self.depths) * self.reach**4 / 2
        if power > 690:
            raise ValueError(f"reach = {self.reach:g} must be smaller: the published bound would be e^{power:.0f}")
        return self

    def _flow(self, alpha: float, depth: int) -> float:
        """The sharpness where the flow of the chain ends, by a solver; time in units of s^(2/L - 2)."""
        unit = alpha / self.s ** (1 / depth)

        def velocity(_: float, point: np.ndarray) -> list[float]:
            x, y = point
            force = 1 - x * y ** (depth - 1)
            return [force * y ** (depth - 1), force * x * y ** (depth - 2)]

        # the slowest initialization takes its escape time and some more
        horizon = 60 + 3 * float(stability.escape_time(1.0, min(unit, 0.9), depth))
        x, y = solve_ivp(velocity, (0, horizon), [0.0, unit], "DOP853", rtol=1e-11, atol=1e-13).y[:, -1]
        others = np.array([y ** (depth - 1)] + [x * y ** (depth - 2)] * (depth - 1))
        return float(self.s ** (2 - 2 / depth) * others @ others)

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        picked = np.unique(np.linspace(self.points // 6, self.points - 1, self.flows).round().astype(int))

        def bounds(depth: int) -> dict[str, Any]:
            alpha = self.alphas(depth)
            base = float(stability.curvature(self.s, depth))
            power = alpha**4 / (2 * self.s ** (4 / depth))
            return {
                "psi": ("alpha", stability.flow_sharpness(alpha, self.s, depth) / base),
                "sharp": ("alpha", np.exp(stability.growth(depth) * power)),
                "published": ("alpha", np.exp(depth**2 * 2 ** (2 * (depth - 1) / depth) * power)),
                "flow": ("flows", [self._flow(a, depth) / base for a in alpha[picked]]),
            }

        units = np.linspace(0, self.reach, self.points + 1)[1:]
        return along("depth", self.depths, bounds, progress).assign_coords(alpha=units, flows=units[picked])

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        psi, sharp, published = (data[name].values for name in ("psi", "sharp", "published"))
        inside = psi[:, np.searchsorted(data["alpha"].values, data["flows"].values)]
        found = {
            "published bound / Psi, smallest": at_least(published / psi, 1.0),
            # exact to the order alpha^4 at L = 2: equal to rounding for the smallest initializations
            "bound with g(L) / Psi, smallest": at_least(sharp / psi, 1 - 1e-14),
            "published bound / bound with g(L), smallest": at_least(published / sharp, 1.0),
            "Psi increases: smallest ratio of neighbors": at_least(psi[:, 1:] / psi[:, :-1], 1.0),
            "integrated flows from Psi, largest relative gap": close(data["flow"].values, inside, rtol=1e-6),
        }
        for depth, low, high in ((2, 54.0, 55.0), (3, 8.0e4, 8.5e4)):
            if depth in self.depths and self.reach >= 1:
                row = published[self.depths.index(depth)]
                at_one = math.exp(np.interp(1.0, data["alpha"].values ** 4, np.log(row)))
                found[f"L = {depth}: published bound / S at alpha = s^(1/L)"] = within(at_one, low, high)
        return found


class StabilityFig23(_FlowMinimum):
    """P(alpha), with d log Psi / d alpha = P alpha^3: it has one maximum, at alpha_crit (dotted), for L > 2, and falls
    from the beginning for L = 2. In units of its value at alpha = 0.
    """

    title = "P(alpha) has one maximum"
    quick = {"points": 150}
    minutes = {"quick": 0.1, "paper": 0.1}

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        def growth(depth: int) -> dict[str, Any]:
            alpha = np.append(0.0, self.alphas(depth))
            p = stability.flow_growth(alpha, self.s, depth)
            # the same from Psi itself, by central differences; Psi is even in alpha
            step = 1e-4 * self.s ** (1 / depth)
            psi = [np.log(stability.flow_sharpness(np.abs(alpha + side), self.s, depth)) for side in (step, -step)]
            return {
                "p": ("alpha", p[1:] / p[0]),
                "slope": ("alpha", (psi[0] - psi[1])[1:] / (2 * step * p[0])),
                "critical": ((), float(stability.top_alpha(1.0, depth))),
            }

        units = np.linspace(0, self.reach, self.points + 1)[1:]
        return along("depth", self.depths, growth, progress).assign_coords(alpha=units)

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        unit, found = data["alpha"].values, {}
        for depth, p, slope, critical in zip(
            self.depths, data["p"].values, data["slope"].values, data["critical"].values, strict=True
        ):
            alpha = self.alphas(depth)
            predicted = p * alpha**3
            away = unit > 0.2
            found[f"L = {depth}: P alpha^3 from d log Psi / d alpha, largest relative gap"] = at_most(
                np.abs(predicted / slope - 1)[away], 1e-5
            )
            turns = int(np.sum(np.diff(np.sign(np.diff(p))) != 0))
            if depth == 2:
                found["L = 2: P falls, largest increase"] = at_most(np.diff(p), 0.0)
            elif critical < self.reach:
                found[f"L = {depth}: turning points"] = within(turns, 1, 1)
                found[f"L = {depth}: place of the maximum - alpha_crit, in steps of alpha"] = within(
                    (unit[np.argmax(p)] - critical) / (unit[1] - unit[0]), -1, 1
                )
        return found
