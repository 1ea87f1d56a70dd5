"""Figures about what is taken for a second mode that oscillates: sorting (18) and cross components (5)."""

import math
from pathlib import Path
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
import xarray
from pydantic import Field, PositiveFloat, model_validator

from linnet.claims import Finding, at_least, at_most, within
from linnet.experiments.experiment import Descending, Progress, along
from linnet.experiments.stability_shared import (
    Target,
    aligned_runs,
    chains,
    check_modes_fit,
    check_range,
    digits,
    products,
    sorted_sizes,
    swings,
)
from linnet.init import one_zero
from linnet.observe import Observable
from linnet.optim import SGD
from linnet.problems import factorization
from linnet.record import every
from linnet.simulation import cast, simulate
from linnet.theory import stability

# Sorting (figure 18) -------------------------------------------------------------------------------------------------


class StabilityFig18(Target):
    """Three modes close to each other at growing learning rates: modes (lines) and sorted singular values (rings) in
    the last steps, and the range of both by learning rate. The second and third sorted values begin to alternate when
    the first mode dips below them, far before their modes move; 2 over the second eigenvalue λ_2 (dashed) plays no
    part. The second mode itself starts only at 2/S_2, in or out of phase with the first; with matrices rounding noise
    has broken the alignment by then.
    """

    title = "Sorted values alternate although the modes are at rest"
    quick = {"count": 201}
    minutes = {"quick": 0.15, "paper": 0.2}

    spectrum: Descending[PositiveFloat] = Field(
        default=(10.0, 9.0, 8.0), min_length=3, max_length=3, description="Singular values of the target, descending."
    )
    alpha: float = Field(default=0.1, gt=0, le=10, description="Scale of the initialization.")
    shown: tuple[float, ...] = Field(
        default=(0.0156, 0.016, 0.0165, 0.0182), min_length=1, max_length=6, description="Half steps shown in time."
    )
    low: float = Field(default=0.015, gt=0, le=10, description="Smallest half step (as printed in the paper).")
    high: float = Field(default=0.019, gt=0, le=10, description="Largest half step.")
    count: int = Field(default=801, ge=10, le=10_000, description="Learning rates.")
    steps: int = Field(default=100_000, ge=1000, le=10**7, description="Steps.")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        check_range(self.low, self.high)
        top = 2 * max(self.high, *self.shown) * self.edge
        if min(self.shown) <= 0 or top > 2.48:
            raise ValueError(f"half steps must be positive and keep κ below 2.48, where the period doubles: {top:.4g}")
        return self

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        grid = np.linspace(self.low, self.high, self.count)
        halves = np.append(grid, self.shown)
        chain = chains(self.spectrum, self.depth, self.alpha, 2 * halves, skip=self.steps, keep=16)
        modes = products(chain, self.depth)
        return xarray.Dataset(
            {
                "range": (("half", "mode"), swings(modes[: len(grid)], 1)),
                "sorted_range": (("half", "mode"), swings(sorted_sizes(modes[: len(grid)]), 1)),
                "modes": (("shown", "last", "mode"), modes[len(grid) :]),
                "sorted": (("shown", "last", "mode"), sorted_sizes(modes[len(grid) :])),
            },
            coords={"half": grid, "shown": list(self.shown)},
        )

    @property
    def thresholds(self) -> dict[str, float]:
        """Half learning rates at which a change is predicted."""
        s, unit = self.spectrum, 2 * self.edge
        return {
            "2/S_1": 2 / unit,
            "2/λ_2": float(stability.cross_edge(s[1] / s[0], self.depth)) / unit,
            "2/S_2": 1 / float(stability.curvature(s[1], self.depth)),
            "sorted 2": stability.sorting_onset(s[1] / s[0], self.depth) / unit,
            "sorted 3": stability.sorting_onset(s[2] / s[0], self.depth) / unit,
        }

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        s, grid, begins = np.array(self.spectrum), data["half"].values, self.thresholds
        # closer to the edge than κ = 20 / steps no orbit has settled, and a grid resolves only its spacing
        slow, spacing = 20 / self.steps * begins["2/S_2"] / 2, grid[1] - grid[0]
        found = {}

        def first(name: str, values: np.ndarray, threshold: str) -> None:
            place = begins[threshold]
            if grid[0] < place < grid[-1]:
                visible = values > 1e-6 * s[0]
                measured = grid[np.argmax(visible)] if visible.any() else math.nan
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
                found[f"half step {half:g}: first mode, low"] = digits(modes[:, 0].min(), low, 3)
                found[f"half step {half:g}: first mode, high"] = digits(modes[:, 0].max(), high, 3)
                found[f"half step {half:g}: second and third mode at rest, largest range"] = at_most(
                    swings(modes[:, 1:], 0).max(), 1e-9
                )
            if half in apart:
                i, low, high = apart[half]
                found[f"half step {half:g}: sorted value {i + 1}, low"] = digits(values[:, i].min(), low, 3)
                found[f"half step {half:g}: sorted value {i + 1}, high"] = digits(values[:, i].max(), high, 3)
        return found


# The cross direction (figure 5) --------------------------------------------------------------------------------------


class StabilityFig5(Target):
    """A deep matrix network and the diagonal network with the same modes, at learning rates 2/K. The modes of both
    agree; the sorted second value of the matrix alternates because the first mode dips below it. Beyond 2/λ_2 the
    aligned orbit is unstable in the cross direction: rounding noise grows at the predicted rate (dotted), earlier in
    single precision, and then the top two modes move irregularly, in bursts, not on a 2-cycle. An exactly diagonal
    target has no noise to grow and stays with the diagonal network.
    """

    title = "Matrix and diagonal networks differ by sorting and by rounding noise"
    quick = {"d": 20, "steps": 3000}
    minutes = {"quick": 0.3, "paper": 0.6}

    spectrum: Descending[PositiveFloat] = Field(
        default=(10.0, 9.0, 6.0), min_length=2, max_length=20, description="Singular values of the target, descending."
    )
    d: int = Field(default=50, ge=3, le=200, description="Inputs and outputs.")
    levels: tuple[float, ...] = Field(
        default=(62.5, 59.0, 57.0), min_length=1, max_length=4, description="K: steps are 2/K."
    )
    steps: int = Field(default=4000, ge=1000, le=10**5, description="Steps.")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        check_modes_fit(self.d, self.spectrum)
        least = 2 * self.edge / 2.48
        if min(self.levels) < least:
            raise ValueError(f"levels = {self.levels} must be at least {least:.4g}, where the period doubles")
        return self

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        r, s = len(self.spectrum), np.array(self.spectrum)
        problem, u, v = self.matrix(self.d)
        straight = np.zeros((self.d, self.d))
        straight[np.arange(r), np.arange(r)] = s
        exact = factorization(straight)

        def followed(name: str) -> xarray.Dataset:
            task, left, right = problem, u, v
            if name == "diagonal target":
                task, left, right = exact, np.eye(self.d, r), np.eye(self.d, r)
            initial = one_zero(task, self.alpha, self.depth)
            if name == "single":
                initial = cast(initial, jnp.float32)

            def core(state: Any, problem: Any) -> Any:
                return left.T @ state.matrix @ right

            observed = {"core": Observable.from_function("core", core, ("output_mode", "input_mode"))}

            def one(level: float) -> dict[str, Any]:
                run = simulate(task, initial, SGD(2 / level), steps=self.steps, record=every(1), observe=observed)
                block = np.asarray(run["core"], dtype=float)
                block = np.concatenate([block, np.repeat(block[-1:], self.steps + 1 - len(block), axis=0)])
                end = np.asarray(run.final.matrix, dtype=float)
                return {
                    "modes": (("step", "mode"), np.einsum("tii->ti", block)),
                    "sorted": (("step", "mode"), np.linalg.svd(block, compute_uv=False)),
                    "cross": ("step", np.hypot(block[:, 0, 1], block[:, 1, 0])),
                    "outside": ((), float(np.linalg.norm(end - left @ block[-1] @ right.T, 2))),
                    "ended": ((), int(run.ended)),
                }

            return along("level", self.levels, one)

        data = along("target", ("double", "single", "diagonal target"), followed, progress)
        lrs = 2 / np.array(self.levels)
        diagonal = aligned_runs(np.tile(s, (len(lrs), 1)), self.depth, self.alpha, lrs, self.steps, ["modes"])["modes"]
        return data.assign(diagonal=(("level", "step", "mode"), diagonal)).assign_coords(step=np.arange(self.steps + 1))

    @property
    def growths(self) -> dict[float, float]:
        """The predicted growth of the cross component at each level."""
        return {level: self.growth(level) for level in self.levels}

    def growth(self, level: float) -> float:
        """The predicted growth of a cross deviation of the first two modes for one step: log |m| / 2."""
        ratio, kappa = self.spectrum[1] / self.spectrum[0], 2 * self.edge / level
        return float(np.log(np.abs(stability.cross_multipliers(ratio, self.depth, kappa)[0]))) / 2

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
                found[name] = digits(value, right, 5)
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
                    found[f"{name}: first mode, low"] = digits(ends[:, 0].min(), 8.45109, 5)
                    found[f"{name}: first mode, high"] = digits(ends[:, 0].max(), 11.27786, 5)
                    values = double["sorted"].values[-2:, 1]
                    found[f"{name}: sorted second value, low"] = digits(values.min(), 8.45109, 5)
                    found[f"{name}: sorted second value, high"] = digits(values.max(), 9.0, 5)
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
