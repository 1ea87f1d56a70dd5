"""Figures of "Learning Dynamics of Deep Matrix Factorization Beyond the Edge of Stability" about landscapes, starts and
balance: 8 to 16, 22 and 23. Step sizes are those of the loss 1/2 |A - A_star|^2: twice the figures' own.
"""

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jax.flatten_util import ravel_pytree
from jaxtyping import Array
from matfree import decomp
from pydantic import Field, model_validator
from scipy.integrate import solve_ivp

from linnet import dynamics, observe
from linnet._random import haar
from linnet.claims import Finding, at_least, at_most, within
from linnet.experiments.experiment import Experiment, Progress
from linnet.initial import one_zero, orthogonal, random_one_zero
from linnet.motion import GradientDescent
from linnet.observe import Observable
from linnet.problems import Factorisation, factorisation
from linnet.record import at
from linnet.simulation import simulate
from linnet.states import ReluNetwork, Weights
from linnet.theory import stability

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _stack(states: list[Any]) -> Any:
    return jax.tree.map(lambda *parts: jnp.stack(parts), *states)


def _descending(name: str, values: tuple[float, ...]) -> None:
    if min(values) <= 0 or list(values) != sorted(set(values), reverse=True):
        raise ValueError(f"{name} = {values} must be positive and descend")


# Landscapes of the plane (figures 8, 10 and 11) ----------------------------------------------------------------------

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


def _stages(start: tuple[float, float], rates: tuple[float, ...], steps: int) -> np.ndarray:
    """Descent on the Holder table with one step size after another: (stage, step, 2), each begins where one ended."""
    out, point = [], np.array([start])
    for lr in rates:
        run = dynamics.orbits(dynamics.descent(_holder), point, [lr], skip=0, keep=steps + 1)
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


class Fig8(Experiment):
    """Two landscapes and descent on them. The Holder table has many basins, and a larger step is thrown into a flatter
    one. The landscape of deep linear networks has equivalent minima only: beyond the edge descent goes round one of
    them.
    """

    id: ClassVar[str] = "stability/fig8"
    place: ClassVar[str] = "Figure 8"
    title: ClassVar[str] = "Two landscapes: catapults and orbits"
    quick: ClassVar[dict[str, Any]] = {"grid": 121, "steps": 1000}
    minutes: ClassVar[dict[str, float]] = {"quick": 0.1, "paper": 0.1}

    start: tuple[float, float] = Field(default=(0.9, 0.9), description="Start on the landscape of linear networks.")
    lr: float = Field(default=0.07, gt=0, le=0.1, description="Step size there.")
    steps: int = Field(default=2000, ge=200, le=10**6, description="Steps there.")
    away: tuple[float, float] = Field(default=(1.3, 0.2), description="Start on the Holder table.")
    rates: tuple[float, ...] = Field(default=(0.8, 1.2, 1.6, 2.0, 2.4, 2.8, 3.2), description="Step sizes there.")
    each: int = Field(default=200, ge=50, le=2000, description="Steps with each of them.")
    grid: int = Field(default=241, ge=21, le=1001, description="Points of the landscapes on each side.")

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        progress(0, 1)
        sides = {"holder": np.linspace(-6, 6, self.grid), "quartic": np.linspace(0.6, 1.25, self.grid)}
        costs = {"holder": _holder, "quartic": _quartic}
        surface = {}
        for name, side in sides.items():
            points = jnp.asarray(np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2))
            surface[name] = np.asarray(jax.jit(jax.vmap(costs[name]))(points)).reshape(self.grid, self.grid)
        around = dynamics.orbits(
            dynamics.descent(_quartic), np.array([self.start]), [self.lr], skip=0, keep=self.steps
        ).values[0]
        thrown = _stages(self.away, self.rates, self.each).reshape(-1, 2)
        minima = np.asarray(_minima())
        progress(1, 1)
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

    def draw(self, data: xarray.Dataset) -> "Figure":
        from linnet.plot.stability_starts import landscapes

        return landscapes(data, self.lr, self.rates)

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
            found[f"Holder, minimum ({x:g}, {y:g}): distance"] = at_most(np.max(np.abs(place - (x, y))), 6e-6)
            found[f"Holder, minimum ({x:g}, {y:g}): 2 / sharpness"] = within(measured, edge - 6e-6, edge + 6e-6)
        late = data["around"].values[-100:]
        centre = np.array(GOALS) ** 0.25
        found["linear networks: largest distance from the minimum in the end"] = at_most(
            np.max(np.linalg.norm(late - centre, axis=1)), 0.1
        )
        found["linear networks: smallest motion in the end"] = at_least(np.ptp(late[:, 1]), 0.1)
        jump = np.linalg.norm(data["thrown"].values[-1] - data["thrown"].values[0])
        found["Holder: distance from the first point to the last"] = at_least(jump, 3.0)
        found["Holder: sharpness in the end / at the first minimum"] = at_most(
            float(data["end"]) / data["sharpness"].values[0], 0.5
        )
        return found


class Fig10(Experiment):
    """Descent on (x^4 - 0.8)^2 + (y^4 - 1)^2 beyond the first and beyond the second threshold. The sharper direction,
    y, is the first to oscillate. Beyond the second threshold x is on a 2-cycle too, but y is chaotic by then.
    """

    id: ClassVar[str] = "stability/fig10"
    place: ClassVar[str] = "Figure 10 (its caption has x and y exchanged)"
    title: ClassVar[str] = "One direction after the other begins to oscillate"
    quick: ClassVar[dict[str, Any]] = {"steps": 8000, "average": 20_000}
    minutes: ClassVar[dict[str, float]] = {"quick": 0.1, "paper": 0.1}

    start: tuple[float, float] = Field(default=(0.9, 0.9), description="Start.")
    rates: tuple[float, float] = Field(default=(0.07, 0.0875), description="Step sizes, the smaller first.")
    steps: int = Field(default=20_000, ge=200, le=10**7, description="Steps before the orbits are looked at.")
    average: int = Field(default=200_000, ge=1000, le=10**7, description="Steps of the Lyapunov exponents.")
    shown: int = Field(default=60, ge=10, le=128, description="Steps that are drawn.")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if not 0 < self.rates[0] < self.rates[1] <= 0.12:
            raise ValueError(f"rates = {self.rates} must ascend between 0 and 0.12, beyond which descent diverges")
        return self

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        progress(0, 1)
        step, start, rates = dynamics.descent(_quartic), np.array([self.start]), np.array(self.rates)
        late = dynamics.orbits(step, start, rates, skip=self.steps, keep=128)
        # the coordinates do not know of each other, so each has an exponent of its own: eight steps of a chain
        kappas = 8 * rates[:, None] * stability.curvature(np.array(GOALS), 4)
        units = np.array(self.start) / np.array(GOALS) ** 0.25
        rate = dynamics.lyapunov(
            dynamics.balanced(4), np.tile(units, 2), kappas.ravel(), skip=1000, steps=self.average
        ).exponent
        curvatures = np.diagonal(np.asarray(jax.jit(jax.hessian(_quartic))(jnp.asarray(np.array(GOALS) ** 0.25))))
        progress(1, 1)
        return xarray.Dataset(
            {
                "orbit": (("lr", "step", "coordinate"), np.asarray(late.values)),
                "diverged": ("lr", np.asarray(late.diverged).astype(int)),
                "lyapunov": (("lr", "coordinate"), np.asarray(rate).reshape(2, 2)),
                "curvature": ("coordinate", curvatures),
            },
            coords={"lr": rates, "coordinate": ["x", "y"], "step": self.steps + np.arange(128)},
        )

    def draw(self, data: xarray.Dataset) -> "Figure":
        from linnet.plot.stability_starts import directions

        return directions(data, self.shown)

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
            f"lr {low:g}: motion of x": at_most(top[0, 0] - bottom[0, 0], 1e-9),
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
                found[name] = within(value, goal - 6e-7, goal + 6e-7)
            found["lr 0.0875: Lyapunov exponent of y (chaos)"] = within(data["lyapunov"].values[1, 1], 0.3, 0.42)
        return found


class Fig11(Experiment):
    """Descent on the Holder table while the step size grows. At each size it settles where the sharpness is about 2/lr
    or less, and is thrown into a flatter basin when the step has become too large.
    """

    id: ClassVar[str] = "stability/fig11"
    place: ClassVar[str] = "Figure 11"
    title: ClassVar[str] = "Thrown from basin to basin"
    quick: ClassVar[dict[str, Any]] = {"others": 1}
    minutes: ClassVar[dict[str, float]] = {"quick": 0.1, "paper": 0.1}

    starts: tuple[tuple[float, float], ...] = Field(
        default=((1.3, 0.2), (1.1, 0.1)), min_length=2, description="Starts; the first is drawn."
    )
    others: int = Field(default=2, ge=1, le=100, description="How many of the starts are run.")
    first: float = Field(default=0.8, gt=0, le=2, description="The first step size.")
    increment: float = Field(default=0.4, gt=0, le=2, description="What is added at each stage.")
    stages: int = Field(default=9, ge=2, le=20, description="Step sizes.")
    steps: int = Field(default=200, ge=50, le=400, description="Steps of a stage: longer ones end on the axis y = 0.")

    def _rates(self) -> tuple[float, ...]:
        return tuple(self.first + self.increment * np.arange(self.stages))

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        progress(0, 1)
        starts = self.starts[: self.others]
        points = np.array([_stages(start, self._rates(), self.steps) for start in starts])
        sharp = np.asarray(_sharpness(_holder, jnp.asarray(points.reshape(-1, 2)))).reshape(points.shape[:-1])
        loss = np.asarray(jax.jit(jax.vmap(_holder))(jnp.asarray(points.reshape(-1, 2)))).reshape(points.shape[:-1])
        progress(1, 1)
        dims = ("start", "stage", "step")
        return xarray.Dataset(
            {"point": ((*dims, "coordinate"), points), "sharpness": (dims, sharp), "loss": (dims, loss)},
            coords={"stage": np.array(self._rates())},
        )

    def draw(self, data: xarray.Dataset) -> "Figure":
        from linnet.plot.stability_starts import catapults

        return catapults(data.isel(start=0))

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        sharp, point = data["sharpness"].values, data["point"].values
        rates = data["stage"].values
        # each stage begins where the last one ended: its second half is what belongs to its own step size
        mean = sharp[:, :, self.steps // 2 :].mean(axis=2)
        found = {
            "largest mean sharpness of a stage (second half) / (2 / lr)": at_most(np.max(mean * rates / 2), 1.1),
            "largest coordinate ever": at_most(np.max(np.abs(point)), 20.0),
        }
        if len(point) > 1:
            found["starts: largest distance of their ends"] = at_most(
                np.max(np.abs(point[:, -1, -1] - point[0, -1, -1])), 1e-6
            )
        if (self.first, self.increment, self.stages, self.steps) == (0.8, 0.4, 9, 200):
            end = point[:, :, -1]
            found |= {
                "lr 0.8: sharpness at rest": within(sharp[0, 0, -1], 2.1695, 2.1705),
                "lr 0.8: motion in the end": at_most(np.max(np.ptp(point[:, 0, -20:], axis=1)), 1e-9),
                "lr 1.2: sharpness in the end": within(sharp[0, 1, -1], 1.2765, 1.2775),
                "lr 1.2: distance from the first minimum": at_least(abs(end[0, 1, 1]), 0.3),
                "lr 2.0: mean sharpness": within(mean[0, 3], 1.05, 1.07),
                "lr 3.2 and on: largest distance from (4.453, -2.967)": at_most(
                    np.max(np.abs(end[:, 6:] - (4.45343, -2.96691))), 1e-4
                ),
                "lr 3.2 and on: sharpness": within(sharp[0, -1, -1], 0.52245, 0.52255),
            }
        return found


# Mild sharpening (figure 9) ------------------------------------------------------------------------------------------

_LANCZOS = 40  # Hessian products for one sharpness


def _layer_sharpness(state: ReluNetwork, problem: Factorisation) -> Array:
    """Sharpness in both layers of a ReLU network (its samples stay where they are)"""
    flat, back = ravel_pytree(state.layers)

    def product(vector: Array) -> Array:
        moved = eqx.tree_at(lambda s: (s.layers, s.inputs), state, (back(vector), jnp.zeros_like(state.inputs)))
        return ravel_pytree(observe.hessian_product(state, problem, moved).layers)[0]

    count = min(_LANCZOS, flat.size)
    lanczos = decomp.tridiag_sym(count, materialize=True)
    first = jax.random.normal(jax.random.key(0), flat.shape, dtype=flat.dtype)
    return jnp.linalg.eigvalsh(lanczos(product, first)[1])[-1]


class Fig9(Experiment):
    """A stand-in for the figure, whose images and networks are not given: a two-layer ReLU network learns Gaussian
    classes drawn at random. With few samples the sharpness stops growing far below 2/lr; with many it reaches the edge.
    """

    id: ClassVar[str] = "stability/fig9"
    place: ClassVar[str] = "Figure 9 (a stand-in on synthetic data, not the published images)"
    title: ClassVar[str] = "Mild sharpening on easy data (synthetic stand-in)"
    quick: ClassVar[dict[str, Any]] = {"draws": 1, "steps": 12_000, "samples": (10, 100, 400)}
    minutes: ClassVar[dict[str, float]] = {"quick": 0.4, "paper": 2.0}

    samples: tuple[int, ...] = Field(default=(10, 30, 100, 400), min_length=2, description="Samples, ascending.")
    classes: int = Field(default=5, ge=2, le=100, description="Classes: one-hot labels.")
    d: int = Field(default=20, ge=2, le=1000, description="Inputs; class means are standard normal.")
    noise: float = Field(default=1.5, gt=0, le=100, description="Standard deviation inside a class.")
    width: int = Field(default=60, ge=2, le=2000, description="Neurons.")
    scale: float = Field(default=0.3, gt=0, le=10, description="Weights start as scale N(0, 1/fan_in).")
    lr: float = Field(default=0.5, gt=0, le=10, description="Step size for half the mean square over all labels.")
    steps: int = Field(default=20_000, ge=100, le=10**6, description="Steps.")
    draws: int = Field(default=3, ge=1, le=50, description="Draws of data and network; the first is shown.")

    @model_validator(mode="after")
    def _ascend(self) -> Self:
        if list(self.samples) != sorted(set(self.samples)) or not 2 <= self.samples[0] <= self.samples[-1] <= 5000:
            raise ValueError(f"samples = {self.samples} must ascend between 2 and 5000")
        return self

    def _draw(self, draw: int, n: int) -> tuple[np.ndarray, ...]:
        rng = np.random.default_rng([self.seed, draw])
        means = rng.normal(size=(self.classes, self.d))
        kind = rng.integers(self.classes, size=self.samples[-1])
        x = means[kind] + self.noise * rng.normal(size=(self.samples[-1], self.d))
        first = self.scale * rng.normal(size=(self.width, self.d)) / math.sqrt(self.d)
        second = self.scale * rng.normal(size=(self.classes, self.width)) / math.sqrt(self.width)
        size = math.sqrt(n * self.classes)  # the mean over samples and labels: relu is homogeneous
        return x[:n] / size, np.eye(self.classes)[kind[:n]] / size, first, second

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        record = at(np.unique(np.linspace(0, self.steps, 41).round()))
        looks = {"sharpness": Observable("sharpness", _layer_sharpness, ()), "loss": observe.loss}

        def one(x: Any, y: Any, first: Any, second: Any) -> Any:
            state = ReluNetwork(first, second, x)
            run = simulate(
                factorisation(y.T), state, GradientDescent(self.lr), steps=self.steps, record=record, observe=looks
            )
            return run.values, run.steps

        values: dict[str, list[np.ndarray]] = {"sharpness": [], "loss": []}
        for done, n in enumerate(self.samples):
            progress(done, len(self.samples))
            drawn = [np.array(part) for part in zip(*(self._draw(k, n) for k in range(self.draws)), strict=True)]
            out, steps = jax.vmap(one)(*drawn)
            for name, rows in values.items():
                rows.append(np.asarray(out[name]))
        progress(len(self.samples), len(self.samples))
        return xarray.Dataset(
            {name: (("samples", "draw", "step"), np.array(rows)) for name, rows in values.items()},
            coords={"samples": list(self.samples), "step": np.asarray(steps[0])},
        )

    def draw(self, data: xarray.Dataset) -> "Figure":
        from linnet.plot.stability_starts import sharpening

        return sharpening(data, self.lr)

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        edge = 2 / self.lr
        plateau = data["sharpness"].values[:, :, -5:].mean(axis=2)
        found = {
            f"{n} samples: plateau / (2 / lr), highest draw": at_most(row.max() / edge, 0.8)
            for n, row in zip(self.samples[:-1], plateau[:-1], strict=True)
        }
        last = plateau[-1] / edge
        found[f"{self.samples[-1]} samples: plateau / (2 / lr), the draw farthest from 1"] = within(
            last[np.argmax(np.abs(last - 1))], 0.9, 1.1
        )
        return found


# Aligned starts (figures 12 and 13) ----------------------------------------------------------------------------------


class _Rank5(Experiment):
    """What figures 12 and 13 share: a target of rank five and a step in units of its sharpness."""

    spectrum: tuple[float, ...] = Field(
        default=(10.0, 8.0, 6.0, 4.0, 2.0), min_length=1, max_length=20, description="Singular values, descending."
    )
    depth: int = Field(default=3, ge=2, le=6, description="Layers.")
    kappa: float = Field(default=1.8, gt=0, lt=2.6, description="Step size times the sharpness at the minimum.")

    @model_validator(mode="after")
    def _sorted(self) -> Self:
        _descending("spectrum", self.spectrum)
        return self

    @property
    def lr(self) -> float:
        """The step size."""
        return self.kappa / float(stability.curvature(self.spectrum[0], self.depth))

    def steps_needed(self, alpha: float) -> int:
        """Until the last mode has left the saddle and settled."""
        escape = float(stability.escape_time(self.spectrum[-1], alpha, self.depth)) / self.lr
        settle = 40 / (self.lr * float(stability.curvature(self.spectrum[-1], self.depth)))
        return math.ceil(1.2 * escape + settle)


class Fig12(_Rank5):
    """An orthogonal start is aligned from the first step on, and at the start itself: in the bases Q_{l+1} = P_l Q_l
    all layers are diagonal, to rounding, at every step. Singular vectors computed by an SVD say so only once the modes
    have grown: those of multiples of a rotation are arbitrary.
    """

    id: ClassVar[str] = "stability/fig12"
    place: ClassVar[str] = "Figure 12 (its start lies inside the set, not outside)"
    title: ClassVar[str] = "Orthogonal starts stay aligned"
    quick: ClassVar[dict[str, Any]] = {"d": 30}
    minutes: ClassVar[dict[str, float]] = {"quick": 0.2, "paper": 0.6}

    d: int = Field(default=100, ge=2, le=500, description="Dimension of the matrices.")
    alpha: float = Field(default=0.01, gt=0, le=1, description="Scale of the start.")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.d < len(self.spectrum):
            raise ValueError(f"d = {self.d} must be at least the rank of the target, {len(self.spectrum)}")
        if self.alpha >= self.spectrum[-1]:
            raise ValueError(f"alpha = {self.alpha:g} must be below the smallest singular value {self.spectrum[-1]:g}")
        if self.steps_needed(self.alpha) > 50_000:
            raise ValueError(f"alpha = {self.alpha:g} must be larger: this start leaves the saddle too late")
        return self

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        left, right, turn = jax.random.split(jax.random.key(self.seed), 3)
        u, v = haar(left, self.d, self.d), haar(right, self.d, self.d)
        rank = len(self.spectrum)
        problem = factorisation((u[:, :rank] * jnp.array(self.spectrum)) @ v[:, :rank].T)
        start = orthogonal(turn, problem, self.alpha, self.depth)
        frames = [v]
        for layer in start.layers[:-1]:
            frames.append(layer @ frames[-1] / self.alpha)
        frames.append(u)
        off = 1 - jnp.eye(self.d)

        def deviation(state: Weights, _: Any) -> Array:
            turned = [up.T @ w @ down for w, down, up in zip(state.layers, frames, frames[1:], strict=False)]
            return jnp.max(jnp.abs(jnp.stack(turned) * off))

        steps = self.steps_needed(self.alpha)
        looks = {
            "deviation": Observable("deviation", deviation, ()),
            "distance": observe.subspace_distance(rank),
            "modes": observe.modes,
        }
        points = np.unique(np.append(np.arange(1, 10), np.linspace(0, steps, 151).round()))
        progress(0, 1)
        run = simulate(
            problem, start, GradientDescent(self.lr), steps=steps, record=at(points), observe=looks, progress=None
        )
        progress(1, 1)
        return xarray.Dataset(
            {
                "deviation": ("step", np.asarray(run["deviation"])),
                "distance": (("step", "junction"), np.asarray(run["distance"])),
                "modes": (("step", "mode"), np.asarray(run["modes"])[:, :rank]),
            },
            coords={"step": np.asarray(run.steps)},
        )

    def draw(self, data: xarray.Dataset) -> "Figure":
        from linnet.plot.stability_starts import decomposition

        return decomposition(data, self.spectrum)

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        goal = np.array(self.spectrum)
        return {
            "largest entry off the diagonal, all steps": at_most(data["deviation"].max(), 1e-12),
            "largest relative distance of a mode from its target in the end": at_most(
                np.max(np.abs(data["modes"].values[-1] / goal - 1)), 1e-6
            ),
            "distance of top singular subspaces in the end": at_most(data["distance"].values[-1].max(), 1e-6),
        }


class Fig13(_Rank5):
    """The layer value that starts at 0 against one that starts at alpha, step by step (dashed: equal). They look
    balanced in the end because alpha^2 is small: most of the gap is still there, whatever alpha is. One number for each
    mode and layer is exact here, at any dimension.
    """

    id: ClassVar[str] = "stability/fig13"
    place: ClassVar[str] = "Figure 13"
    title: ClassVar[str] = "Small starts look balanced"
    quick: ClassVar[dict[str, Any]] = {"alphas": (0.01, 0.1, 0.5)}
    minutes: ClassVar[dict[str, float]] = {"quick": 0.1, "paper": 0.1}

    alphas: tuple[float, ...] = Field(
        default=(0.01, 0.03, 0.1, 0.3, 0.5), min_length=1, max_length=20, description="Scales of the start, ascending."
    )

    @model_validator(mode="after")
    def _below(self) -> Self:
        if (
            list(self.alphas) != sorted(set(self.alphas))
            or not 0 < self.alphas[0] <= self.alphas[-1] < self.spectrum[-1]
        ):
            raise ValueError(
                f"alphas = {self.alphas} must ascend between 0 and the smallest value {self.spectrum[-1]:g}"
            )
        if self.steps_needed(self.alphas[0]) > 10**6:
            raise ValueError(f"alphas = {self.alphas} must be larger: the smallest leaves the saddle too late")
        return self

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        problem = factorisation(np.array(self.spectrum))
        steps = self.steps_needed(self.alphas[0])
        points = np.unique(np.append(np.arange(200), np.geomspace(200, steps, 400).round()))

        def one(alpha: Any) -> Any:
            start = one_zero(problem, alpha, self.depth)
            return simulate(
                problem,
                start,
                GradientDescent(self.lr),
                steps=steps,
                record=at(points),
                observe={"values": observe.layer_modes},
            )

        progress(0, 1)
        run = jax.vmap(one)(jnp.array(self.alphas))
        progress(1, 1)
        values = np.asarray(run["values"])
        return xarray.Dataset(
            {
                "last": (("alpha", "step", "mode"), values[:, :, -1]),
                "first": (("alpha", "step", "mode"), values[:, :, 0]),
            },
            coords={"alpha": list(self.alphas), "step": np.asarray(run.steps[0])},
        )

    def _left(self, data: xarray.Dataset) -> np.ndarray:
        """Gap over alpha^2 in time."""
        x, y = data["last"].values, data["first"].values
        return np.asarray((y - x) * (y + x) / np.array(self.alphas)[:, None, None] ** 2)

    def draw(self, data: xarray.Dataset) -> "Figure":
        from linnet.plot.stability_starts import balance

        return balance(data, self._left(data), self.spectrum)

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        left = self._left(data)
        product = data["last"].values[:, -1] * data["first"].values[:, -1] ** (self.depth - 1)
        found = {
            "largest relative distance of a mode from its target in the end": at_most(
                np.max(np.abs(product / np.array(self.spectrum) - 1)), 1e-6
            ),
            "the gap never grows: largest increase over alpha^2": at_most(np.max(np.diff(left, axis=1)), 1e-9),
        }
        default = (self.spectrum, self.depth, self.kappa) == ((10.0, 8.0, 6.0, 4.0, 2.0), 3, 1.8)
        if default and 0.01 in self.alphas:
            end = left[self.alphas.index(0.01), -1]
            for i, (value, goal) in enumerate(zip(end, (0.603, 0.696, 0.787, 0.872, 0.948), strict=True)):
                found[f"alpha 0.01, mode {i + 1}: gap / alpha^2 in the end"] = within(value, goal - 6e-4, goal + 6e-4)
        if default:
            found["gap / alpha^2 in the end, largest difference between alphas"] = at_most(
                np.max(np.ptp(left[:, -1], axis=0)), 0.1
            )
        return found


# Starts beyond the edge (figures 14 and 15) --------------------------------------------------------------------------


class _Beyond(Experiment):
    """What figures 14 and 15 share: matrices with random singular vectors beyond the edge of stability."""

    d: int = Field(default=10, ge=2, le=200, description="Dimension of the matrices.")
    spectrum: tuple[float, ...] = Field(
        default=(10.0, 8.0, 6.0), min_length=2, max_length=20, description="Singular values, descending."
    )
    depth: int = Field(default=3, ge=2, le=6, description="Layers.")
    lr: float = Field(default=0.0332, gt=0, le=1e3, description="Step size (0.0166 in the figure's loss).")
    steps: int = Field(default=6000, ge=200, le=10**6, description="Steps.")
    shown: int = Field(default=40, ge=4, le=100, description="Last steps that are drawn.")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        _descending("spectrum", self.spectrum)
        if self.d < len(self.spectrum):
            raise ValueError(f"d = {self.d} must be at least the rank of the target, {len(self.spectrum)}")
        kappa = self.lr * float(stability.curvature(self.spectrum[0], self.depth))
        if not 2 < kappa < stability.stages(self.depth).doublings[1]:
            raise ValueError(
                f"lr = {self.lr:g} must lie between the edge of stability and the first doubling: "
                f"lr times the sharpness is {kappa:.4g}"
            )
        return self

    @property
    def rank(self) -> int:
        """Modes of the target."""
        return len(self.spectrum)

    def problem(self) -> Factorisation:
        """The target with random singular vectors."""
        left, right = jax.random.split(jax.random.key(self.seed))
        u, v = haar(left, self.d, self.rank), haar(right, self.d, self.rank)
        return factorisation((u * jnp.array(self.spectrum)) @ v.T)

    def runs(self, problem: Factorisation, starts: list[Any], names: list[Any], axis: str) -> xarray.Dataset:
        """All starts at once."""
        points = np.unique(
            np.concatenate([np.linspace(0, self.steps, 301).round(), self.steps - np.arange(self.shown + 1)])
        )
        looks = {
            "modes": observe.modes,
            "sorted": observe.singular_values,
            "distance": observe.subspace_distance(self.rank),
            "loss": observe.loss,
            "gaps": observe.layer_gaps,
        }
        motion = GradientDescent(self.lr)
        run = jax.vmap(
            lambda start: simulate(problem, start, motion, steps=self.steps, record=at(points), observe=looks)
        )(_stack(starts))
        assert run.steps is not None
        lead, r = (axis, "step"), self.rank
        return xarray.Dataset(
            {
                "modes": ((*lead, "mode"), np.asarray(run["modes"])[..., :r]),
                "sorted": ((*lead, "index"), np.asarray(run["sorted"])[..., :r]),
                "distance": ((*lead, "junction"), np.asarray(run["distance"])),
                "gaps": ((*lead, "lower_layer", "mode"), np.asarray(run["gaps"])[..., :r]),
                "loss": (lead, np.asarray(run["loss"])),
                "diverged": (axis, (run.status == "diverged").astype(int)),
            },
            coords={axis: names, "step": np.asarray(run.steps[0])},
        )

    def late(self, data: xarray.Dataset, name: str) -> np.ndarray:
        """The last steps, one by one."""
        return np.asarray(data[name].values[:, -self.shown :])

    def orbit_findings(self, label: str, modes: np.ndarray, allowed: float) -> dict[str, Finding]:
        """Mode 1 on its exact 2-cycle and the others at rest, in the last steps."""
        cycle = stability.orbit(self.spectrum[0], self.depth, self.lr)
        gap = max(abs(modes[:, 0].min() - cycle.bottom), abs(modes[:, 0].max() - cycle.top))
        return {
            f"{label}: mode 1 from its exact 2-cycle, largest gap": at_most(gap, allowed),
            f"{label}: other modes from their targets, largest gap": at_most(
                np.max(np.abs(modes[:, 1:] - np.array(self.spectrum[1:]))), allowed
            ),
        }

    def printed(self) -> bool:
        """Whether the numbers of the figure are to be expected."""
        return (self.spectrum, self.depth, self.lr) == ((10.0, 8.0, 6.0), 3, 0.0332)


class Fig14(_Beyond):
    """A step beyond the edge from a small and from a large start: the same orbit of mode 1, the others at rest. Sorted
    singular values (dotted) alternate in second place because mode 1 passes below mode 2: sorting suffices to produce
    an oscillation of "the second singular value". The large start is inside the published bound on alpha.
    """

    id: ClassVar[str] = "stability/fig14"
    place: ClassVar[str] = "Figure 14"
    title: ClassVar[str] = "Small and large starts beyond the edge"
    quick: ClassVar[dict[str, Any]] = {"steps": 4000}
    minutes: ClassVar[dict[str, float]] = {"quick": 0.2, "paper": 0.3}

    alphas: tuple[float, float] = Field(default=(0.01, 0.5), description="Scales of the start, ascending.")

    @model_validator(mode="after")
    def _below(self) -> Self:
        if not 0 < self.alphas[0] < self.alphas[1] < self.spectrum[-1]:
            raise ValueError(
                f"alphas = {self.alphas} must ascend between 0 and the smallest value {self.spectrum[-1]:g}"
            )
        return self

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        progress(0, 1)
        problem = self.problem()
        starts = [one_zero(problem, alpha, self.depth) for alpha in self.alphas]
        data = self.runs(problem, starts, list(self.alphas), "alpha")
        progress(1, 1)
        return data

    def draw(self, data: xarray.Dataset) -> "Figure":
        from linnet.plot.stability_starts import scales

        return scales(data, self.shown, self.spectrum)

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        modes, values = self.late(data, "modes"), self.late(data, "sorted")
        found: dict[str, Finding] = {}
        for i, alpha in enumerate(self.alphas):
            found |= self.orbit_findings(f"alpha {alpha:g}", modes[i], 1e-9)
        kappa = self.lr * float(stability.curvature(self.spectrum[0], self.depth))
        bound = stability.largest_alpha(self.spectrum[0], self.depth, kappa, "printed")
        if self.printed():
            for i, alpha in enumerate(self.alphas):
                low, high = modes[i, :, 0].min(), modes[i, :, 0].max()
                found[f"alpha {alpha:g}: mode 1, low"] = within(low, 7.706698, 7.7067)
                found[f"alpha {alpha:g}: mode 1, high"] = within(high, 11.732885, 11.732887)
                second = values[i, :, 1]
                found[f"alpha {alpha:g}: sorted second value, low"] = within(second.min(), 7.706698, 7.7067)
                found[f"alpha {alpha:g}: sorted second value, high"] = within(second.max(), 8 - 1e-6, 8 + 1e-6)
            found["published bound of alpha"] = within(bound, 0.7582, 0.7584)
        return found


class Fig15(_Beyond):
    """The same from three starts. Identity and orthogonal starts give identical orbits; random ones come to the same
    orbit, while the singular subspaces of their layers stay a little apart: how far differs from draw to draw (faint).
    Jumps to 2 are a matter of order: mode 1, when low, passes below mode 2 in some layers only.
    """

    id: ClassVar[str] = "stability/fig15"
    place: ClassVar[str] = "Figure 15"
    title: ClassVar[str] = "Three starts, one orbit"
    quick: ClassVar[dict[str, Any]] = {"steps": 4000, "draws": 16}
    minutes: ClassVar[dict[str, float]] = {"quick": 0.2, "paper": 0.4}

    alpha: float = Field(default=0.01, gt=0, le=1, description="Scale of the starts.")
    draws: int = Field(default=48, ge=1, le=1000, description="Random starts; the modes of the first are shown.")

    @model_validator(mode="after")
    def _below(self) -> Self:
        if self.alpha >= self.spectrum[-1]:
            raise ValueError(f"alpha = {self.alpha:g} must be below the smallest singular value {self.spectrum[-1]:g}")
        return self

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        progress(0, 1)
        problem, key = self.problem(), jax.random.key(self.seed + 1)
        starts: list[Any] = [
            one_zero(problem, self.alpha, self.depth),
            orthogonal(key, problem, self.alpha, self.depth),
        ]
        for each in jax.random.split(key, self.draws):
            starts.append(random_one_zero(each, problem, self.alpha, self.depth))
        names = ["identity", "orthogonal", "random", *(f"random {k + 1}" for k in range(1, self.draws))]
        data = self.runs(problem, starts, names, "start")
        progress(1, 1)
        return data

    def draw(self, data: xarray.Dataset) -> "Figure":
        from linnet.plot.stability_starts import starts

        return starts(data, self.shown, self.spectrum)

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        modes, distance = self.late(data, "modes"), self.late(data, "distance")
        one, two = (data["modes"].values[i] for i in (0, 1))
        found = {
            "identity and orthogonal start: largest difference of modes, all steps": at_most(
                np.max(np.abs(one - two)), 1e-10
            )
        }
        for i, name in enumerate(("identity", "orthogonal")):
            found |= self.orbit_findings(name, modes[i], 1e-9)
            found[f"{name}: largest subspace distance in the end"] = at_most(distance[i].max(), 1e-7)
        found |= self.orbit_findings(f"{self.draws} random starts", np.concatenate(modes[2:]), 1e-9)
        # where mode 1 is high: when it is low, layers that are not balanced may put modes 1 and 2 in different order,
        # and the distance of sorted singular vectors is then 2
        second = data.sel(step=slice(self.steps // 2, None)).isel(start=slice(2, None))
        farther = np.where(
            second["modes"].values[:, :, 0] > self.spectrum[0], second["distance"].values.max(axis=2), np.nan
        )
        low, plateau = np.nanmin(farther, axis=1), np.nanmax(farther, axis=1)
        found["random: subspace distance in the end, median of the draws"] = within(np.median(plateau), 1e-3, 1e-2)
        found["random: subspace distance in the end, largest"] = at_most(plateau.max(), 0.015)
        found["random: it stays, largest change in the second half"] = at_most(np.max(plateau - low), 1e-6)
        return found


# Depth (figure 16) ---------------------------------------------------------------------------------------------------

STABLE, OSCILLATES, SADDLE, LEFT = range(4)


class Fig16(Experiment):
    """Which step sizes oscillate, by depth, from a small start: descent of the first mode, one chain a cell. The
    boundary (line) is 2/(L s^{2-2/L}); it falls with depth where L > 2 ln(1/s). A run that has not left the saddle has
    a colour of its own: it is not stable.
    """

    id: ClassVar[str] = "stability/fig16"
    place: ClassVar[str] = "Figure 16"
    title: ClassVar[str] = "Deeper networks reach the edge at smaller steps"
    quick: ClassVar[dict[str, Any]] = {"rates": 45, "depths": (2, 3, 4)}
    minutes: ClassVar[dict[str, float]] = {"quick": 0.1, "paper": 0.4}

    s: float = Field(default=0.5, gt=0, le=1e3, description="The largest singular value.")
    alpha: float = Field(default=0.01, gt=0, le=1, description="Scale of the start.")
    depths: tuple[int, ...] = Field(default=(2, 3, 4, 5), min_length=2, description="Depths, ascending from 2 or more.")
    low: float = Field(default=1.0, gt=0, description="The smallest step size.")
    high: float = Field(default=2.2, gt=0, description="The largest step size.")
    rates: int = Field(default=121, ge=5, le=2001, description="Step sizes.")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if list(self.depths) != sorted(set(self.depths)) or self.depths[0] < 2:
            raise ValueError(f"depths = {self.depths} must ascend from 2 or more")
        if self.alpha >= self.s:
            raise ValueError(f"alpha = {self.alpha:g} must be below s = {self.s:g}")
        if self.low >= self.high:
            raise ValueError(f"low = {self.low:g} must be below high = {self.high:g}")
        most = max(self._steps(depth) for depth in self.depths)
        if most > 10**7:
            raise ValueError(f"alpha = {self.alpha:g} must be larger: leaving the saddle would take {most:.0e} steps")
        return self

    def _steps(self, depth: int) -> int:
        """Twice the time to leave the saddle, and some to settle in."""
        return math.ceil(2 * float(stability.escape_time(self.s, self.alpha, depth)) / self.low) + 20_000

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        rates = np.linspace(self.low, self.high, self.rates)
        kind, spread, boundary = [], [], []
        for done, depth in enumerate(self.depths):
            progress(done, len(self.depths))
            start = np.array([[0.0, self.alpha / self.s ** (1 / depth)]])
            kappas = stability.kappa(self.s, depth, rates)
            run = dynamics.orbits(dynamics.one_zero(depth), start, kappas, skip=self._steps(depth), keep=512)
            values = np.asarray(run.values)
            product = values[:, :, 0] * values[:, :, 1] ** (depth - 1)
            amplitude = np.ptp(product, axis=1)
            # at the saddle the product is small and hardly moves; on the way to rest the motion is small as well
            found = np.where(amplitude > 1e-4, OSCILLATES, STABLE)
            found = np.where(np.max(np.abs(product), axis=1) < 0.5, SADDLE, found)
            kind.append(np.where(np.asarray(run.diverged), LEFT, found))
            spread.append(amplitude)
            boundary.append(2 / float(stability.curvature(self.s, depth)))
        progress(len(self.depths), len(self.depths))
        return xarray.Dataset(
            {
                "kind": (("depth", "lr"), np.array(kind)),
                "amplitude": (("depth", "lr"), np.array(spread)),
                "boundary": ("depth", np.array(boundary)),
            },
            coords={"depth": list(self.depths), "lr": rates},
        )

    def draw(self, data: xarray.Dataset) -> "Figure":
        from linnet.plot.stability_starts import depth_map

        return depth_map(data, self.s)

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        lr, kind, theory = data["lr"].values, data["kind"].values, data["boundary"].values
        width = lr[1] - lr[0]
        found = {}
        for depth, row, edge in zip(self.depths, kind, theory, strict=True):
            inside = self.low < edge < self.high
            wrong = np.sum(row[lr < edge - width] != STABLE) + np.sum(row[lr > edge + width] == STABLE)
            found[f"L = {depth}: cells on the wrong side, one cell from the boundary left out"] = at_most(wrong, 0)
            if inside and np.any(row == STABLE) and np.any(row == OSCILLATES):
                seen = (lr[row == STABLE].max() + lr[row == OSCILLATES].min()) / 2
                found[f"L = {depth}: boundary of the runs"] = within(seen, edge - width, edge + width)
        found["cells still at the saddle"] = at_most(np.sum(kind == SADDLE), 0)
        printed = {2: 2.0, 3: 1.67989, 4: 1.41421, 5: 1.21257}
        if self.s == 0.5:
            for depth, edge in zip(self.depths, theory, strict=True):
                if depth in printed:
                    goal = printed[depth]
                    found[f"L = {depth}: 2 / (L s^(2-2/L))"] = within(edge, goal - 6e-6, goal + 6e-6)
        return found


# The minimum of the flow (figures 22 and 23) -------------------------------------------------------------------------


class _FlowMinimum(Experiment):
    """What figures 22 and 23 share: one mode of several depths, and a range of starts."""

    s: float = Field(default=10.0, gt=0, le=1e6, description="Singular value of the target.")
    depths: tuple[int, ...] = Field(default=(2, 3, 4, 5), min_length=1, max_length=8, description="Depths, ascending.")
    points: int = Field(default=400, ge=50, le=20_000, description="Values of alpha.")
    reach: float = Field(default=1.5, gt=0, le=10, description="The largest alpha in units of s^(1/L).")

    @model_validator(mode="after")
    def _ascend(self) -> Self:
        if list(self.depths) != sorted(set(self.depths)) or not 2 <= self.depths[0] <= self.depths[-1] <= 20:
            raise ValueError(f"depths = {self.depths} must ascend between 2 and 20")
        return self

    def alphas(self, depth: int) -> np.ndarray:
        """Starts, in the units of the layers."""
        return np.linspace(0, self.reach, self.points + 1)[1:] * self.s ** (1 / depth)


class Fig22(_FlowMinimum):
    """Sharpness Psi of the minimum that gradient flow finds, by the scale of the start, over its value at alpha = 0,
    with the published bound and with the sharper one, g(L) in place of L^2 2^{2(L-1)/L}. Dots are flows integrated to
    their end.
    """

    id: ClassVar[str] = "stability/fig22"
    place: ClassVar[str] = "Figure 22"
    title: ClassVar[str] = "Sharpness of the flow's minimum and its bounds"
    quick: ClassVar[dict[str, Any]] = {"points": 120}
    minutes: ClassVar[dict[str, float]] = {"quick": 0.1, "paper": 0.1}

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

        # the slowest start takes its escape time and some more
        horizon = 60 + 3 * float(stability.escape_time(1.0, min(unit, 0.9), depth))
        x, y = solve_ivp(velocity, (0, horizon), [0.0, unit], "DOP853", rtol=1e-11, atol=1e-13).y[:, -1]
        others = np.array([y ** (depth - 1)] + [x * y ** (depth - 2)] * (depth - 1))
        return float(self.s ** (2 - 2 / depth) * others @ others)

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        rows: dict[str, list[Any]] = {"psi": [], "sharp": [], "published": [], "flow": []}
        picked = np.unique(np.linspace(self.points // 6, self.points - 1, self.flows).round().astype(int))
        for done, depth in enumerate(self.depths):
            progress(done, len(self.depths))
            alpha = self.alphas(depth)
            base = float(stability.curvature(self.s, depth))
            power = alpha**4 / (2 * self.s ** (4 / depth))
            rows["psi"].append(stability.flow_sharpness(alpha, self.s, depth) / base)
            rows["sharp"].append(np.exp(stability.growth(depth) * power))
            rows["published"].append(np.exp(depth**2 * 2 ** (2 * (depth - 1) / depth) * power))
            rows["flow"].append([self._flow(a, depth) / base for a in alpha[picked]])
        progress(len(self.depths), len(self.depths))
        dims = {name: ("depth", "flows" if name == "flow" else "alpha") for name in rows}
        return xarray.Dataset(
            {name: (dims[name], np.array(value)) for name, value in rows.items()},
            coords={
                "depth": list(self.depths),
                "alpha": np.linspace(0, self.reach, self.points + 1)[1:],
                "flows": np.linspace(0, self.reach, self.points + 1)[1:][picked],
            },
        )

    def draw(self, data: xarray.Dataset) -> "Figure":
        from linnet.plot.stability_starts import bounds

        return bounds(data)

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        psi, sharp, published = (data[name].values for name in ("psi", "sharp", "published"))
        inside = psi[:, np.searchsorted(data["alpha"].values, data["flows"].values)]
        found = {
            "published bound / Psi, smallest": at_least(np.min(published / psi), 1.0),
            # exact to the order alpha^4 at L = 2: equal to rounding for the smallest starts
            "bound with g(L) / Psi, smallest": at_least(np.min(sharp / psi), 1 - 1e-14),
            "published bound / bound with g(L), smallest": at_least(np.min(published / sharp), 1.0),
            "Psi increases: smallest ratio of neighbours": at_least(np.min(psi[:, 1:] / psi[:, :-1]), 1.0),
            "integrated flows from Psi, largest relative gap": at_most(
                np.max(np.abs(data["flow"].values / inside - 1)), 1e-6
            ),
        }
        for depth, low, high in ((2, 54.0, 55.0), (3, 8.0e4, 8.5e4)):
            if depth in self.depths and self.reach >= 1:
                row = published[self.depths.index(depth)]
                at_one = math.exp(np.interp(1.0, data["alpha"].values ** 4, np.log(row)))
                found[f"L = {depth}: published bound / S at alpha = s^(1/L)"] = within(at_one, low, high)
        return found


class Fig23(_FlowMinimum):
    """P(alpha), with d log Psi / d alpha = P alpha^3: it has one maximum, at alpha_crit (dotted), for L > 2, and falls
    from the start for L = 2. In units of its value at alpha = 0.
    """

    id: ClassVar[str] = "stability/fig23"
    place: ClassVar[str] = "Figure 23"
    title: ClassVar[str] = "P(alpha) has one maximum"
    quick: ClassVar[dict[str, Any]] = {"points": 150}
    minutes: ClassVar[dict[str, float]] = {"quick": 0.1, "paper": 0.1}

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        rows: dict[str, list[Any]] = {"p": [], "slope": []}
        progress(0, 1)
        for depth in self.depths:
            alpha = np.append(0.0, self.alphas(depth))
            p = stability.flow_growth(alpha, self.s, depth)
            rows["p"].append(p[1:] / p[0])
            # the same from Psi itself, by central differences; Psi is even in alpha
            step = 1e-4 * self.s ** (1 / depth)
            psi = [np.log(stability.flow_sharpness(np.abs(alpha + side), self.s, depth)) for side in (step, -step)]
            rows["slope"].append((psi[0] - psi[1])[1:] / (2 * step * p[0]))
        progress(1, 1)
        critical = [float(stability.top_alpha(1.0, depth)) for depth in self.depths]
        return xarray.Dataset(
            {**{name: (("depth", "alpha"), np.array(v)) for name, v in rows.items()}, "critical": ("depth", critical)},
            coords={"depth": list(self.depths), "alpha": np.linspace(0, self.reach, self.points + 1)[1:]},
        )

    def draw(self, data: xarray.Dataset) -> "Figure":
        from linnet.plot.stability_starts import growth

        return growth(data)

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        unit, found = data["alpha"].values, {}
        for depth, p, slope, critical in zip(
            self.depths, data["p"].values, data["slope"].values, data["critical"].values, strict=True
        ):
            alpha = self.alphas(depth)
            predicted = p * alpha**3
            away = unit > 0.2
            found[f"L = {depth}: P alpha^3 from d log Psi / d alpha, largest relative gap"] = at_most(
                np.max(np.abs(predicted / slope - 1)[away]), 1e-5
            )
            turns = int(np.sum(np.diff(np.sign(np.diff(p))) != 0))
            if depth == 2:
                found["L = 2: P falls, largest increase"] = at_most(np.max(np.diff(p)), 0.0)
            elif critical < self.reach:
                found[f"L = {depth}: turning points"] = within(turns, 1, 1)
                found[f"L = {depth}: place of the maximum - alpha_crit, in steps of alpha"] = within(
                    (unit[np.argmax(p)] - critical) / (unit[1] - unit[0]), -1, 1
                )
        return found
