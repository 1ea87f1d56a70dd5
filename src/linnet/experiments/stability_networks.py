"""Figures of networks with relu on published images: two clocks (17), singular values against rotations (19).

The loss is the mean of |f - y|^2 over samples and outputs, as in PyTorch: with it alone the printed step sizes are near
the edge.
"""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from pydantic import Field, model_validator

from linnet import data as sets
from linnet import observe
from linnet.claims import Finding, at_least, at_most, within
from linnet.curves import first_record, powers
from linnet.experiments.experiment import Experiment, Progress
from linnet.motion import GradientDescent
from linnet.networks import mlp
from linnet.problems import supervised
from linnet.record import every, pairs
from linnet.simulation import simulate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SETTLED = 100  # steps from the first record at 2/lr after which a run counts as being at the edge
WINDOW, SMOOTH = 512, 65  # steps whose frequencies are asked, and those of the running mean


# Two clocks (figure 17) ----------------------------------------------------------------------------------------------


class Fig17(Experiment):
    """Loss, top singular values and sharpness of a network with relu on MNIST. All three oscillate at the edge, and
    "almost periodic" is true in part: there are two clocks. The weights flip at every step, so that singular values
    and sharpness have a period of two; the loss has none, but breathes on a slow cycle as the flips grow and shrink.
    """

    id: ClassVar[str] = "stability/fig17"
    place: ClassVar[str] = "Figure 17"
    title: ClassVar[str] = "Two clocks of a network at the edge, on MNIST"
    quick: ClassVar[dict[str, Any]] = {"n": 1000, "width": 200, "deviation": 0.02234, "steps": 1200}
    minutes: ClassVar[dict[str, float]] = {"quick": 0.7, "paper": 40.0}

    n: int = Field(default=5000, ge=20, le=60_000, description="Images.")
    width: int = Field(default=1000, ge=6, le=10_000, description="Neurons of each of the two hidden layers.")
    deviation: float = Field(default=0.01, gt=0, le=1, description="Standard deviation of all weights at the start.")
    lr: float = Field(default=4.0, gt=0, le=100, description="Step size.")
    steps: int = Field(default=1500, ge=WINDOW + SMOOTH, le=10**5, description="Steps.")
    interval: int = Field(default=25, ge=2, le=1000, description="Steps between two pairs of sharpness records.")
    draws: int = Field(default=1, ge=1, le=50, description="Draws of images and start; the first is shown.")

    def missing(self) -> str | None:
        return sets.missing("mnist")

    def _one(self, draw: int) -> dict[str, np.ndarray]:
        images = sets.load("mnist").subset(self.n, seed=self.seed + draw)
        x = jnp.asarray(images.scaled(), jnp.float32)
        key = jax.random.key(self.seed + draw)
        network = mlp(key, x, (self.width, self.width, sets.CLASSES), deviation=self.deviation)
        looks = {"loss": observe.loss, "path": observe.path}
        looks["curvature"] = observe.only(observe.curvature(), pairs(self.interval))
        looks |= {f"layer {i}": observe.layer_singular_values(i, 5) for i in (1, 2, 3)}
        problem = supervised(images.one_hot().astype(np.float32))
        run = simulate(problem, network, GradientDescent(self.lr), steps=self.steps, record=every(1), observe=looks)
        return {
            "loss": np.asarray(run["loss"]),
            "flip": np.asarray(run["path_flip"]),
            "sharpness": np.asarray(run["curvature_top"]),
            "products": np.asarray(run["curvature_products"]),
            "values": np.stack([np.asarray(run[f"layer {i}"]) for i in (1, 2, 3)]),
        }

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        rows = []
        for draw in range(self.draws):
            progress(draw, self.draws)
            rows.append(self._one(draw))
        progress(self.draws, self.draws)
        axes = {"values": ("draw", "layer", "step", "index")}
        return xarray.Dataset(
            {name: (axes.get(name, ("draw", "step")), np.stack([row[name] for row in rows])) for name in rows[0]},
            coords={"layer": [1, 2, 3], "step": np.arange(self.steps + 1)},
        )

    def draw(self, data: xarray.Dataset) -> "Figure":
        from linnet.plot.stability_networks import clocks

        return clocks(data.isel(draw=0), 2 / self.lr, *self._frequencies(data.isel(draw=0)))

    @staticmethod
    def _frequencies(run: xarray.Dataset) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Frequencies, and the power of the second layer's top singular value and of the log loss at each."""
        last = slice(-(WINDOW + SMOOTH - 1), None)
        frequency, value = powers(run["values"].sel(layer=2).values[last, 0], SMOOTH)
        return frequency, value, powers(np.log(run["loss"].values[last]), SMOOTH)[1]

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        found = {}
        for draw in range(self.draws):
            name = f"draw {draw + 1}: " if self.draws > 1 else ""
            found |= {name + what: finding for what, finding in self._bands(data.isel(draw=draw)).items()}
        return found

    def _bands(self, run: xarray.Dataset) -> dict[str, Finding]:
        loss, flip, edge = run["loss"].values, run["flip"].values, 2 / self.lr
        seen = np.isfinite(run["sharpness"].values)
        step, sharpness = run["step"].values[seen], run["sharpness"].values[seen]
        k = int(first_record(sharpness >= edge))
        found = {"first record of the sharpness at 2/lr, step": at_most(step[k] if k >= 0 else math.inf, 400)}
        if k < 0 or step[k] + SETTLED + self.interval > self.steps:
            return found
        begin = step[k] + SETTLED
        late = sharpness[step >= begin] / edge
        found["sharpness / (2/lr) at the edge, lowest"] = at_least(late.min(), 0.88)
        found["sharpness / (2/lr) at the edge, median"] = within(np.median(late), 0.96, 1.24)
        found["sharpness / (2/lr) at the edge, highest"] = at_most(late.max(), 1.6)
        both = step[:-1][(np.diff(step) == 1) & (step[:-1] >= begin)]
        first, second = (run["sharpness"].sel(step=both + i).values for i in (0, 1))
        apart = np.median(np.abs(second - first) / (first + second) * 2)
        found["two consecutive records of the sharpness, relative gap, median"] = within(apart, 0.03, 0.12)
        found["share of steps at the edge at which the loss rises"] = within(
            np.mean(np.diff(loss[begin:]) > 0), 0.4, 0.5
        )
        found["cosine of consecutive steps before the edge, median"] = at_least(np.nanmedian(flip[: step[k]]), 0.7)
        found["cosine of consecutive steps at the edge, median"] = at_most(np.nanmedian(flip[begin:]), -0.97)
        frequency, value, slow = self._frequencies(run)
        found["period 2: its share of the second layer's top singular value"] = at_least(
            value[frequency > 0.45].sum(), 0.6
        )
        found["period 2: its share of the log loss"] = at_most(slow[frequency > 0.45].sum(), 0.1)
        found["slow cycle (over 10 steps): its share of the log loss"] = at_least(slow[frequency < 0.1].sum(), 0.9)
        found["slow cycle: its period"] = within(1 / frequency[np.argmax(slow)], 30, 200)
        if self.at_paper_size:
            found["loss at the end"] = at_most(loss[-1], 2e-3)
        elif self == self.of_size("quick", {"seed": self.seed, "draws": self.draws}):
            found["first record of the sharpness at 2/lr, step"] = at_most(step[k], 150)
            found["loss at the end"] = at_most(loss[-1], 6e-4)
        return found
