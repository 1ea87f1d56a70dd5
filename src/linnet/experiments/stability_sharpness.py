"""Figures about sharpness in time: beyond the edge (2) and by the target's size (7)."""

import math
from pathlib import Path
from typing import Any, Self

import numpy as np
import xarray
from pydantic import Field, PositiveFloat, model_validator

from linnet import observe
from linnet.claims import Finding, at_most, close, within
from linnet.experiments.experiment import Ascending, Experiment, Progress
from linnet.experiments.stability_shared import (
    Target,
    aligned_runs,
    check_modes_fit,
    check_small,
    digits,
)
from linnet.init import one_zero
from linnet.optim import SGD
from linnet.record import at
from linnet.simulation import simulate
from linnet.theory import stability

# Loss and sharpness (figures 2 and 7) --------------------------------------------------------------------------------


class StabilityFig2(Target):
    """Loss and sharpness beyond the edge. The sharpness climbs while the first mode leaves the saddle, passes 2/lr and
    then alternates around it; its mean is a little above. The sharpness is exact, from the blocks of the Hessian;
    crosses: the dense Hessian of matrices with random singular vectors.
    """

    title = "Sharpness climbs to 2/lr and alternates around it"
    quick = {"steps": 1000}
    minutes = {"quick": 0.2, "paper": 0.3}

    d: int = Field(default=5, ge=2, le=30, description="Inputs and outputs.")
    kappa: float = Field(default=2.05, gt=0, le=10, description="Step, in units of 1/S (the edge is at 2).")
    steps: int = Field(default=2000, ge=10, le=10**5, description="Steps.")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        check_modes_fit(self.d, self.spectrum)
        if self.depth * self.d**2 > observe.hessian.DENSE_HESSIAN:
            raise ValueError(f"d = {self.d} is too large for a dense Hessian of {self.depth} layers")
        return self

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        lr = self.kappa / self.edge
        target = np.append(self.spectrum, np.zeros(min(1, self.d - len(self.spectrum))))
        observed = ["loss", "modes", observe.aligned_sharpness]
        run = aligned_runs(target[None], self.depth, self.alpha, [lr], self.steps, observed)
        progress(1, 2)
        problem, _, _ = self.matrix(self.d)
        places = np.linspace(0, self.steps - 1, 41).astype(int)
        # low and high phases in turn
        measured = np.unique(np.append(np.minimum(places // 2 * 2 + np.arange(41) % 2, self.steps), [0, self.steps]))

        def dense(state: Any, problem: Any) -> Any:
            return observe.hessian_spectrum(state, problem)[0]

        matrices = simulate(
            problem,
            one_zero(problem, self.alpha, self.depth),
            SGD(lr),
            steps=self.steps,
            record=at(measured),
            observe={"dense": dense},
        )
        return xarray.Dataset(
            {
                "loss": ("step", run["loss"][0]),
                "modes": (("step", "mode"), run["modes"][0, :, : len(self.spectrum)]),
                "sharpness": ("step", run["aligned_sharpness"][0]),
                "dense": ("recorded", np.asarray(matrices["dense"])),
            },
            coords={"step": np.arange(self.steps + 1), "recorded": measured},
        )

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        sharpness, level = data["sharpness"].values, 2 * self.edge / self.kappa
        dense = data["dense"].values / sharpness[data["recorded"].values] - 1
        found = {"sharpness from blocks against the dense Hessian: largest gap": at_most(np.abs(dense), 1e-9)}
        if not 2 < self.kappa < stability.stages(self.depth).doublings[1]:
            return found
        orbit = stability.orbit(self.spectrum[0], self.depth, self.kappa / self.edge)
        last = sharpness[-2:]
        crossed = np.argmax(sharpness > level) if np.any(sharpness > level) else math.nan
        escape = float(stability.escape_time(self.spectrum[0], self.alpha, self.depth)) * self.edge / self.kappa
        found["first step above 2/lr / escape time of small initializations"] = within(crossed / escape, 0.97, 1.03)
        found["upper sharpness in the end / curvature of the 2-cycle, minus 1"] = close(
            last.max(), float(orbit.curvature_high), rtol=1e-9
        )
        found["mean sharpness in the end / (2/lr)"] = within(last.mean() / level, 1.0, 1.1)
        loss, goal = data["loss"].values, self.spectrum[0]
        rises = np.diff(loss) > 0
        first = int(np.argmax(rises)) if rises.any() else math.nan
        found["first rise of the loss / first step above 2/lr"] = within(first / crossed, 0.99, 1.02)
        sides = [(float(end) - goal) ** 2 / 2 for end in (orbit.bottom, orbit.top)]
        others = np.sum((data["modes"].values[-2:, 1:] - self.spectrum[1:]) ** 2, axis=1) / 2
        found["loss of the last two steps without the other modes / that of the 2-cycle, minus 1"] = close(
            np.sort(loss[-2:] - others), np.sort(sides), rtol=1e-5
        )
        if (self.spectrum, self.depth, self.alpha, self.kappa) == ((10.0, 6.0, 3.0), 3, 0.01, 2.05):
            found["first step above 2/lr"] = within(crossed, 498, 504)
            found["lower sharpness in the end"] = digits(last.min(), 48.1228, 4)
            found["upper sharpness in the end"] = digits(last.max(), 79.4225, 4)
            found["mean sharpness in the end"] = digits(last.mean(), 63.77, 2)
        return found


class StabilityFig7(Experiment):
    """Sharpness in time at one learning rate, for targets of several sizes: it settles at S of the first mode and stays
    below 2/lr if S does. Only the largest target crosses the line and oscillates; its lower value belongs to the pair
    of both modes (dotted: the same with one mode alone).
    """

    title = "No edge of stability for small targets"
    quick = {"steps": 3000}
    minutes = {"quick": 0.15, "paper": 0.3}

    firsts: Ascending[PositiveFloat] = Field(
        default=(2.0, 5.0, 8.0, 12.0, 15.0), min_length=2, max_length=8, description="First singular values, ascending."
    )
    ratio: float = Field(default=0.5, gt=0, lt=1, description="Second singular value over the first.")
    depth: int = Field(default=3, ge=2, le=10, description="Layers.")
    alpha: float = Field(default=0.05, gt=0, le=1, description="Scale of the initialization.")
    lr: float = Field(default=0.02, gt=0, le=10, description="Learning rate.")
    steps: int = Field(default=6000, ge=100, le=10**5, description="Steps.")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        check_small(self.alpha, self.ratio * self.firsts[0])
        top = float(stability.kappa(self.firsts[-1], self.depth, self.lr))
        if top > 2.4:
            raise ValueError(f"lr = {self.lr:g} takes s_1 = {self.firsts[-1]:g} to κ = {top:.3g}: stay below 2.4")
        return self

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        s = np.array(self.firsts)
        observed = ["modes", observe.aligned_sharpness]
        targets = np.stack([s, self.ratio * s], axis=1)
        both = aligned_runs(targets, self.depth, self.alpha, np.full(len(s), self.lr), self.steps, observed)
        progress(1, 2)
        alone = aligned_runs(s[-1:, None], self.depth, self.alpha, [self.lr], self.steps, observed)
        return xarray.Dataset(
            {
                "sharpness": (("first", "step"), both["aligned_sharpness"]),
                "modes": (("first", "step", "mode"), both["modes"]),
                "alone": ("step", alone["aligned_sharpness"][0]),
            },
            coords={"first": s, "step": np.arange(self.steps + 1)},
        )

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
                    found[f"s_1 = {s:g}: sharpness in the end"] = digits(last[-1], known[s], 5)
                continue
            orbit = stability.orbit(s, self.depth, self.lr)
            found[f"s_1 = {s:g}: upper sharpness / curvature of the 2-cycle, minus 1"] = close(
                last.max(), float(orbit.curvature_high), rtol=1e-9
            )
            if given and s == 15:
                found["s_1 = 15: lower sharpness in the end"] = digits(last.min(), 65.63, 2)
                found["s_1 = 15: upper sharpness in the end"] = digits(last.max(), 157.32, 2)
        if given and self.firsts[-1] == 15:
            found["s_1 = 15, one mode alone: lower sharpness"] = digits(data["alone"].values[-2:].min(), 52.63, 2)
        return found
