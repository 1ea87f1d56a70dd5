"""Figures about descent in the plane (8, 10 and 11): orbits and catapults."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array
from pydantic import Field

from linnet import maps
from linnet.claims import Finding, at_least, at_most, close, near, within
from linnet.experiments.experiment import Ascending, Experiment, Progress
from linnet.theory import stability

GOALS = (0.8, 1.0)  # x^4 and y^4 at the minimum of the first landscape


def _quartic(point: Array) -> Array:
    """(x^4 - 0.8)^2 + (y^4 - 1)^2: two chains of four layers, so that a step counts eight times."""
    return jnp.sum((point**4 - jnp.array(GOALS)) ** 2)


def _holder(point: Array) -> Array:
    """-|sin x cos y exp(1 - r/pi)|: the exponent is not in modulus, as it is in the usual Holder table."""
    return -jnp.abs(jnp.sin(point[0]) * jnp.cos(point[1]) * jnp.exp(1 - jnp.sqrt(jnp.sum(point**2)) / jnp.pi))


@partial(jax.jit, static_argnums=0)
def _sharpness(cost: Any, points: Array) -> Array:
    """The largest Hessian eigenvalue at every point."""
    return jax.vmap(lambda p: jnp.linalg.eigvalsh(jax.hessian(cost)(p))[-1])(points)


def _stages(initial: tuple[float, float], rates: tuple[float, ...], steps: int) -> np.ndarray:
    """Descent on the Holder table with one learning rate after another, each from the end of the last: (stage, step,
    2).
    """
    out, point = [], np.array([initial])
    for lr in rates:
        run = maps.orbits(maps.descent(_holder), point, [lr], skip=0, keep=steps + 1)
        out.append(np.asarray(run.values)[0])
        point = out[-1][-1:]
    return np.array(out)


# nearest first, rough: Newton finds the rest
_BASINS = ((1.26, 0.01), (1.43, 2.86), (4.40, 0.01), (4.45, 2.97))


@jax.jit
def _minima() -> Array:
    """The minima of the Holder table in the first quadrant, by Newton."""

    def find(point: Array) -> Array:
        def better(_: Any, p: Array) -> Array:
            return p - jnp.linalg.solve(jax.hessian(_holder)(p), jax.grad(_holder)(p))

        return jax.lax.fori_loop(0, 20, better, point)

    return jax.vmap(find)(jnp.array(_BASINS))


class StabilityFig8(Experiment):
    """Two landscapes and descent on them. The Holder table has many basins, and a larger step is thrown into a flatter
    one. The landscape of deep linear networks has equivalent minima only: beyond the edge descent goes round one of
    them.
    """

    title = "Two landscapes: catapults and orbits"
    quick = {"grid": 121, "steps": 1000}
    minutes = {"quick": 0.1, "paper": 0.1}

    initial: tuple[float, float] = Field(default=(0.9, 0.9), description="Start on the landscape of linear networks.")
    lr: float = Field(default=0.07, gt=0, le=0.1, description="Learning rate there.")
    steps: int = Field(default=2000, ge=200, le=10**6, description="Steps there.")
    away: tuple[float, float] = Field(default=(1.3, 0.2), description="Start on the Holder table.")
    rates: tuple[float, ...] = Field(default=(0.8, 1.2, 1.6, 2.0, 2.4, 2.8, 3.2), description="Learning rates there.")
    each: int = Field(default=200, ge=50, le=2000, description="Steps with each of them.")
    grid: int = Field(default=241, ge=21, le=1001, description="Points of the landscapes on each side.")

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        sides = {"holder": np.linspace(-6, 6, self.grid), "quartic": np.linspace(0.6, 1.25, self.grid)}
        costs = {"holder": _holder, "quartic": _quartic}
        surface = {}
        for name, side in sides.items():
            points = jnp.asarray(np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2))
            surface[name] = np.asarray(jax.jit(jax.vmap(costs[name]))(points)).reshape(self.grid, self.grid)
        around = maps.orbits(
            maps.descent(_quartic), np.array([self.initial]), [self.lr], skip=0, keep=self.steps
        ).values[0]
        thrown = _stages(self.away, self.rates, self.each).reshape(-1, 2)
        minima = np.asarray(_minima())
        return xarray.Dataset(
            {
                **{f"{name}_side": (f"{name}_axis", side) for name, side in sides.items()},
                **{name: ((f"{name}_up", f"{name}_axis"), values) for name, values in surface.items()},
                "around": (("step", "coordinate"), np.asarray(around)),
                "thrown": (("thrown_step", "coordinate"), thrown),
                "minima": (("minimum", "coordinate"), minima),
                "sharpness": ("minimum", np.asarray(_sharpness(_holder, jnp.asarray(minima)))),
                "end": ((), float(_sharpness(_holder, jnp.asarray(thrown[-1:]))[0])),
            }
        )

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        edges = 2 / data["sharpness"].values
        minima = data["minima"].values
        printed = (
            (1.26263, 0.0, 0.92172),
            (1.42959, 2.86414, 1.87752),
            (4.40422, 0.0, 2.84852),
            (4.45343, 2.96691, 3.82774),
        )
        found = {}
        for (x, y, edge), place, measured in zip(printed, minima, edges, strict=True):
            found[f"Holder, minimum ({x:g}, {y:g}): distance"] = close(place, (x, y), atol=6e-6)
            found[f"Holder, minimum ({x:g}, {y:g}): 2 / sharpness"] = near(measured, edge, 6e-6)
        late = data["around"].values[-100:]
        center = np.array(GOALS) ** 0.25
        found["linear networks: largest distance from the minimum in the end"] = at_most(
            np.linalg.norm(late - center, axis=1), 0.1
        )
        found["linear networks: amplitude in the end"] = at_least(np.ptp(late[:, 1]), 0.1)
        jump = np.linalg.norm(data["thrown"].values[-1] - data["thrown"].values[0])
        found["Holder: distance from the first point to the last"] = at_least(jump, 3.0)
        found["Holder: sharpness in the end / at the first minimum"] = at_most(
            float(data["end"]) / data["sharpness"].values[0], 0.5
        )
        return found


class StabilityFig10(Experiment):
    """Descent on (x^4 - 0.8)^2 + (y^4 - 1)^2 beyond the first and beyond the second threshold. The sharper direction,
    y, is the first to oscillate. Beyond the second threshold x is on a 2-cycle too, but y is chaotic by then.
    """

    place = "Figure 10 (its caption has x and y exchanged)"
    title = "One direction after the other begins to oscillate"
    quick = {"steps": 8000, "average": 20_000}
    minutes = {"quick": 0.1, "paper": 0.1}

    initial: tuple[float, float] = Field(default=(0.9, 0.9), description="Start.")
    rates: Ascending[Annotated[float, Field(gt=0, le=0.12)]] = Field(  # beyond 0.12 descent diverges
        default=(0.07, 0.0875), min_length=2, max_length=2, description="Learning rates, the smaller first."
    )
    steps: int = Field(default=20_000, ge=200, le=10**7, description="Steps before the orbits are recorded.")
    average: int = Field(default=200_000, ge=1000, le=10**7, description="Steps of the Lyapunov exponents.")
    shown: int = Field(default=60, ge=10, le=128, description="Steps that are drawn.")

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        step, initial, rates = maps.descent(_quartic), np.array([self.initial]), np.array(self.rates)
        late = maps.orbits(step, initial, rates, skip=self.steps, keep=128)
        # the coordinates are independent, so each has its own exponent: eight steps of a chain
        kappas = 8 * rates[:, None] * stability.curvature(np.array(GOALS), 4)
        units = np.array(self.initial) / np.array(GOALS) ** 0.25
        rate = maps.lyapunov(
            maps.balanced(4), np.tile(units, 2), kappas.ravel(), skip=1000, steps=self.average
        ).exponent
        curvatures = np.diagonal(np.asarray(jax.jit(jax.hessian(_quartic))(jnp.asarray(np.array(GOALS) ** 0.25))))
        return xarray.Dataset(
            {
                "orbit": (("lr", "step", "coordinate"), np.asarray(late.values)),
                "diverged": ("lr", np.asarray(late.diverged).astype(int)),
                "lyapunov": (("lr", "coordinate"), np.asarray(rate).reshape(2, 2)),
                "curvature": ("coordinate", curvatures),
            },
            coords={"lr": rates, "coordinate": ["x", "y"], "step": self.steps + np.arange(128)},
        )

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        curved = data["curvature"].values
        orbit, low, high = data["orbit"].values, self.rates[0], self.rates[1]
        cycles = [stability.orbit(np.array(GOALS), 4, 8 * lr) for lr in self.rates]
        bottom, top = orbit.min(axis=1), orbit.max(axis=1)
        found = {
            "curvature along x": within(curved[0], 22.89733, 22.89735),
            "curvature along y": within(curved[1], 31.99999, 32.00001),
            "threshold of y": within(2 / curved[1], 0.06249, 0.06251),
            "threshold of x": within(2 / curved[0], 0.0873463, 0.0873465),
            f"lr {low:g}: amplitude of x": at_most(top[0, 0] - bottom[0, 0], 1e-9),
        }
        for row, column, lr, name in ((0, 1, low, "y"), (1, 0, high, "x")):
            gap = max(
                abs(bottom[row, column] - cycles[row].low[column]), abs(top[row, column] - cycles[row].high[column])
            )
            found[f"lr {lr:g}: {name} from its exact 2-cycle, largest gap"] = at_most(gap, 1e-9)
        if self.rates == (0.07, 0.0875):
            for name, value, goal in (
                ("lr 0.07: y, low", bottom[0, 1], 0.924804),
                ("lr 0.07: y, high", top[0, 1], 1.043743),
                ("lr 0.0875: x, low", bottom[1, 0], 0.938500),
                ("lr 0.0875: x, high", top[1, 0], 0.952516),
            ):
                found[name] = near(value, goal, 6e-7)
            found["lr 0.0875: Lyapunov exponent of y (chaos)"] = within(data["lyapunov"].values[1, 1], 0.3, 0.42)
        return found


class StabilityFig11(Experiment):
    """Descent on the Holder table while the learning rate grows. At each size it settles where the sharpness is about
    2/lr or less, and is thrown into a flatter basin when the step has become too large.
    """

    title = "Thrown from basin to basin"
    quick = {"others": 1}
    minutes = {"quick": 0.1, "paper": 0.1}

    initializations: tuple[tuple[float, float], ...] = Field(
        default=((1.3, 0.2), (1.1, 0.1)), min_length=2, description="Starts; the first is drawn."
    )
    others: int = Field(default=2, ge=1, le=100, description="How many of the initializations are run.")
    first: float = Field(default=0.8, gt=0, le=2, description="The first learning rate.")
    increment: float = Field(default=0.4, gt=0, le=2, description="What is added at each stage.")
    stages: int = Field(default=9, ge=2, le=20, description="Learning rates.")
    steps: int = Field(default=200, ge=50, le=400, description="Steps of a stage: longer ones end on the axis y = 0.")

    def _rates(self) -> tuple[float, ...]:
        return tuple(self.first + self.increment * np.arange(self.stages))

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        initializations = self.initializations[: self.others]
        points = np.array([_stages(initial, self._rates(), self.steps) for initial in initializations])
        sharp = np.asarray(_sharpness(_holder, jnp.asarray(points.reshape(-1, 2)))).reshape(points.shape[:-1])
        loss = np.asarray(jax.jit(jax.vmap(_holder))(jnp.asarray(points.reshape(-1, 2)))).reshape(points.shape[:-1])
        dims = ("initialization", "stage", "step")
        return xarray.Dataset(
            {"point": ((*dims, "coordinate"), points), "sharpness": (dims, sharp), "loss": (dims, loss)},
            coords={"stage": np.array(self._rates())},
        )

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        sharp, point = data["sharpness"].values, data["point"].values
        rates = data["stage"].values
        # each stage begins where the last one ended: its second half is what belongs to its own learning rate
        mean = sharp[:, :, self.steps // 2 :].mean(axis=2)
        found = {
            "largest mean sharpness of a stage (second half) / (2 / lr)": at_most(mean * rates / 2, 1.1),
            "largest coordinate ever": at_most(np.abs(point), 20.0),
        }
        if self.stages >= 5:
            # at one learning rate of nine the iterate was thrown into a basin half as sharp
            follows = (mean * rates / 2 > 0.8) & (mean * rates / 2 < 1.1)
            found["share of the stages whose mean sharpness is between 0.8 and 1.1 of 2 / lr"] = at_least(
                follows.mean(), 0.8
            )
        if len(point) > 1:
            found["starts: largest distance of their ends"] = close(point[:, -1, -1], point[0, -1, -1], atol=1e-6)
        if (self.first, self.increment, self.stages, self.steps) == (0.8, 0.4, 9, 200):
            end = point[:, :, -1]
            found |= {
                "lr 0.8: sharpness at rest": within(sharp[0, 0, -1], 2.1695, 2.1705),
                "lr 0.8: amplitude in the end": at_most(np.ptp(point[:, 0, -20:], axis=1), 1e-9),
                "lr 1.2: sharpness in the end": within(sharp[0, 1, -1], 1.2765, 1.2775),
                "lr 1.2: distance from the first minimum": at_least(abs(end[0, 1, 1]), 0.3),
                "lr 2.0: mean sharpness": within(mean[0, 3], 1.05, 1.07),
                "lr 3.2 and on: largest distance from (4.453, -2.967)": close(
                    end[:, 6:], (4.45343, -2.96691), atol=1e-4
                ),
                "lr 3.2 and on: sharpness": within(sharp[0, -1, -1], 0.52245, 0.52255),
            }
        return found
