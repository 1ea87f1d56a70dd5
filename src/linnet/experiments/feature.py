"""Figures of "Exact and Rich Feature Learning Dynamics of Two-Layer Linear Networks"."""

import abc
import math
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from pydantic import Field, field_validator, model_validator

from linnet import data as sets
from linnet import observe
from linnet._check import InputError
from linnet.claims import Finding, at_least, at_most, close
from linnet.curves import first_record
from linnet.experiments.experiment import Ascending, Experiment, Progress, tracked
from linnet.init import readout
from linnet.observe import Observable
from linnet.optim import SGD
from linnet.problems import factorization, gaussian_samples, mean_field_regression
from linnet.record import every
from linnet.simulation import simulate
from linnet.states import ReluNetwork
from linnet.theory import feature


def _norm(state: Any, problem: Any) -> Any:
    return jnp.linalg.eigvalsh(observe.sample_kernel(state, problem))[-1]


_NORM = Observable.from_function("norm", _norm, ())
_SQUARES = Observable.from_function("squares", lambda state, problem: jnp.sum(state.layers[1] ** 2), ())
_TRAINED = {"loss": observe.loss, "slope": observe.slope, "kernel": observe.sample_kernel, "squares": _SQUARES}


def _at(values: np.ndarray, step: np.ndarray) -> np.ndarray:
    """The value of each run at a step of its own, NaN where there is no such step."""
    there = (step >= 0) & (step < values.shape[-1])
    picked = np.take_along_axis(values, np.where(there, step, 0)[..., None], axis=-1)[..., 0]
    return np.asarray(np.where(there, picked, np.nan))


# Gaussian data (figure 1) --------------------------------------------------------------------------------------------

_SINGLE = 20  # draws of whole networks, neuron by neuron: the others are compressed


def _ratios(key: Any, x: Any, y: Any, width: int, v0: float, sigma0: float, lr: float, steps: int) -> Any:
    """The mean over the neurons of rho_r / v_r at every step, over sqrt(gamma)."""
    n, g = len(x), x.T @ y
    left, right = jax.random.split(key)
    initial = sigma0 * jax.random.normal(left, (width, x.shape[1])), v0 * jax.random.rademacher(right, (width,), float)

    def step(state: Any, _: None) -> tuple[Any, Any]:
        first, v = state
        ratio = jnp.mean((first - initial[0]) @ g / v) / jnp.linalg.norm(g)
        force = lr / (n * width) * (x.T @ (y - x @ (first.T @ v) / width))
        return (first + jnp.outer(v, force), v + first @ force), ratio

    return jax.lax.scan(step, initial, length=steps + 1)[1]


class FeatureFig1(Experiment):
    """A two-layer linear network learns in two stages: the neurons align with Xᵀy while the loss is constant, then the
    loss falls along that direction. Above one draw, as in the paper, with the two-scalar model of the whole training;
    below all draws, in units of the step t₁ where the slope reaches 0.95. The slope is the least-squares ratio of ρ to
    v; the mean of ρᵣ/vᵣ over the neurons, the paper's axis, is beside it, and both stay where they are from t₁ on, the
    mean in 57 of 60 draws: it leaves where vᵣ of a neuron passes zero. The kernel nears the target-aligned one at every
    step until t₁ and then leaves it a little; its norm is not kept in stage one but grows several hundredfold.
    """

    title = "Two stages of feature learning on Gaussian data"
    quick = {"draws": 50}
    minutes = {"quick": 0.3, "paper": 0.3}

    n: int = Field(default=10, ge=2, le=200, description="Samples.")
    d: int = Field(default=10_000, ge=2, le=10**9, description="Inputs.")
    width: int = Field(default=1024, ge=2, le=10**9, description="Hidden neurons.")
    lr: float = Field(default=0.1, gt=0, le=1e6, description="Learning rate.")
    sigma0: float = Field(
        default=0.01, ge=0, le=1e3, description="Standard deviation of the first layer's initialization."
    )
    v0: float = Field(default=0.001, gt=0, le=1e3, description="Size of the second layer's initialization, +-v0.")
    noise2: float = Field(default=0.01, ge=0, le=1e6, description="Variance of the noise on labels.")
    steps: int = Field(default=120, ge=10, le=10_000, description="Steps; three times t1 must fit.")
    draws: int = Field(
        default=400, ge=2, le=100_000, description="Draws of data and initialization; the first is shown."
    )

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        observed = {
            "loss": observe.loss,
            "slope": observe.slope,
            "distance": observe.target_distance,
            "norm": _NORM,
            "label": observe.label_kernel,
        }

        def one(key: Any) -> Any:
            samples = gaussian_samples(key, self.n, self.d, noise2=self.noise2)
            problem = mean_field_regression(*samples, width=self.width)
            initial = readout(key, problem, self.width, sigma0=self.sigma0, v0=self.v0)
            run = simulate(problem, initial, SGD(self.lr), steps=self.steps, record=every(1), observe=observed).values
            task = feature.task(problem)
            x = task.step(self.lr)
            model = feature.aligned_descent(
                feature.amplitudes(initial.layers[0], initial.layers[1], task), x, task.vstar2, self.steps
            )
            slope = feature.slope(feature.growth(jnp.arange(self.steps + 1.0), x), self.v0, self.sigma0)
            return {**run, "model": model.loss(task), "stage_one": slope, "x": x, "initial_loss": task.initial_loss}

        def single(key: Any) -> Any:
            samples = gaussian_samples(key, self.n, self.d, noise2=self.noise2)
            return _ratios(key, *samples, self.width, self.v0, self.sigma0, self.lr, self.steps)

        keys = jax.random.split(jax.random.key(self.seed), self.draws)
        values = jax.jit(jax.vmap(one))(keys)
        ratios = jax.jit(jax.vmap(single))(keys[:_SINGLE])
        return xarray.Dataset(
            {name: (("draw", "step")[: np.ndim(value)], np.asarray(value)) for name, value in values.items()}
            | {"ratio": (("single", "step"), np.asarray(ratios))},
            coords={"step": np.arange(self.steps + 1)},
        )

    @staticmethod
    def aligned(data: xarray.Dataset) -> np.ndarray:
        """t1 of every draw: the first step at which the slope is 0.95, -1 where it never is."""
        return first_record(data["slope"].values >= feature.ALIGNED)

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        t1 = self.aligned(data)
        loss, slope, distance = (data[name].values for name in ("loss", "slope", "distance"))
        left = loss / loss[:, :1]
        small = data["x"].values < 0.5
        late = _at(left, 3 * t1)[small]
        half = [first_record(curve <= 0.5 * loss[:, :1]) for curve in (loss, data["model"].values)]
        grown = _at(data["norm"].values / data["norm"].values[:, :1], t1)
        lowest, highest = _range(slope, t1, np.full_like(t1, self.steps))
        before = np.arange(1, self.steps + 1) <= t1[:, None]
        nearer = np.where(before, np.diff(distance, axis=1), -np.inf)
        mean = data["ratio"].values
        last = np.full(len(mean), self.steps)
        least, most = _range(mean, t1[: len(mean)] + 3, last)
        stays = np.mean((least >= 0.85) & (most <= 1.15))
        return {
            "draws that never align": at_most(np.sum(t1 < 0), 0),
            "loss left at t1, smallest": at_least(_at(left, t1), 0.9),
            "loss left at 3 t1, largest (x < 1/2)": at_most(np.max(late) if late.size else math.nan, 1e-6),
            "largest slope of a run, smallest": at_least(slope.max(axis=1), 0.985),
            "largest slope of a run, largest": at_most(slope, 1.0),
            "slope from t1 on, smallest": at_least(lowest, 0.94),
            "slope from t1 on, largest change": at_most(highest - lowest, 0.06),
            "mean of rho_r / v_r over sqrt(gamma), three steps after t1 and later: share of draws in 0.85 to 1.15": (
                at_least(
                    stays, 0.75, band="a rate: 57 of 60 draws of three seeds, less four standard errors of 20 draws"
                )
            ),
            "distance of the kernel until t1: largest change in a step": at_most(nearer, 0.0),
            "distance of the kernel from the target-aligned one at t1, largest": at_most(_at(distance, t1), 0.01),
            "distance of the kernel at the end, largest": at_most(distance[:, -1], 0.05),
            "it is closer at t1 than at the end: median of the ratio": at_most(
                np.median(_at(distance, t1) / distance[:, -1]), 1.0
            ),
            "growth of the kernel's norm until t1, smallest (not kept)": at_least(grown, 10),
            "two-scalar model: largest gap in loss / L(0)": at_most(
                np.abs(data["model"].values - loss) / loss[:, :1], 0.01
            ),
            "two-scalar model: share of draws with its half-loss step": at_least(np.mean(half[0] == half[1]), 0.99),
        }


# Lazy or rich --------------------------------------------------------------------------------------------------------

_SLOPE = 0.9  # two stages: this slope is reached while most of the loss is left


class FeaturePhase(Experiment):
    """From which initializations are features learned? Growth of the kernel in the direction of the labels over the
    whole training, and the loss that is left when the neurons are aligned (slope 0.9), for initializations of every
    size in units of v* (where the second layer ends): measured, and predicted without simulation. Initializations with
    more than half of the loss left there train in two stages; those above the line R = 1 are lazy and their kernel
    stays.
    """

    place = "section 3, quantified (no figure in the paper)"
    title = "Lazy or rich: how much the kernel grows"
    quick = {"sizes": (1e-3, 1e-2, 0.1, 0.3, 3.0, 30.0)}
    minutes = {"quick": 0.3, "paper": 0.3}
    staged_above: ClassVar[float] = 0.5  # two stages: more than this share of the loss is left at the slope

    n: int = Field(default=10, ge=2, le=200, description="Samples.")
    d: int = Field(default=10_000, ge=2, le=10**9, description="Inputs.")
    width: int = Field(default=1024, ge=2, le=10**9, description="Hidden neurons.")
    sizes: Ascending[Annotated[float, Field(ge=1e-8, le=1e4)]] = Field(
        default=(1e-3, 1e-2, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0),
        min_length=2,
        max_length=100,
        description="v0 / v* and sigma0 / v*, ascending.",
    )
    share: float = Field(default=0.02, gt=0, le=0.5, description="Learning rate over the largest stable one.")
    steps: int = Field(default=2000, ge=100, le=10**6, description="Steps.")

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        data, initializations = jax.random.split(jax.random.key(self.seed))
        samples = gaussian_samples(data, self.n, self.d)
        problem = mean_field_regression(*samples, width=self.width)
        task = feature.task(problem)
        unit = jnp.sqrt(task.vstar2)
        observed = {"loss": observe.loss, "slope": observe.slope, "label": observe.label_kernel}

        def one(key: Any, v: Any, sigma: Any) -> Any:
            initial = readout(key, problem, self.width, sigma0=sigma * unit, v0=v * unit)
            lr = self.share * feature.step_limits(task, v * unit, sigma * unit).isotropic
            run = simulate(problem, initial, SGD(lr), steps=self.steps, record=every(1), observe=observed).values
            aligned = run["slope"] >= _SLOPE
            left = jnp.where(aligned.any(), run["loss"][jnp.argmax(aligned)] / run["loss"][0], jnp.nan)
            return {
                "growth": run["label"][-1] / run["label"][0],
                "left": left,
                "end": run["loss"][-1] / run["loss"][0],
                "sampled": feature.end_growth(
                    feature.amplitudes(initial.layers[0], initial.layers[1], task), task.vstar2
                ),
                "richness": feature.richness(task.vstar2, v * unit, sigma * unit),
            }

        grid = np.array([(v, s) for v in self.sizes for s in self.sizes])
        values = jax.jit(jax.vmap(one))(jax.random.split(initializations, len(grid)), *grid.T)
        r = np.asarray(values["richness"])
        values["predicted"] = feature.kernel_growth(r)
        values["predicted_left"] = np.array(
            [float(feature.loss_left(_SLOPE, x, v, s, task)) for x, (v, s) in zip(r, grid, strict=True)]
        )
        side = len(self.sizes)
        return xarray.Dataset(
            {name: (("v0", "sigma0"), np.asarray(value).reshape(side, side)) for name, value in values.items()},
            coords={"v0": list(self.sizes), "sigma0": list(self.sizes)},
        )

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        growth = np.log(data["growth"].values)
        staged = data["left"].values > self.staged_above  # not reached is no
        v, sigma = (a.values for a in xarray.broadcast(data["v0"], data["sigma0"]))
        on, off = (v <= 0.1) & (sigma <= 0.01), (v >= 0.3) | (sigma >= 0.1)
        predicted = data["predicted_left"].values > self.staged_above
        found = {
            "loss at the end / at initialization, largest": at_most(data["end"].max(), 1e-6),
            "|log| of the growth / sqrt(1 + R²), largest": close(growth, np.log(data["predicted"].values), atol=0.15),
            "the same with the initialization's own amplitudes": close(
                growth, np.log(data["sampled"].values), atol=0.02
            ),
            "cells whose two stages are not as predicted": at_most(np.sum(staged != predicted), 0),
        }
        if on.any():
            found["v0 <= 0.1 v*, sigma0 <= 0.01 v*: cells without two stages"] = at_most(np.sum(~staged[on]), 0)
        if off.any():
            found["v0 >= 0.3 v* or sigma0 >= 0.1 v*: cells with two stages"] = at_most(np.sum(staged[off]), 0)
        return found


# Images (figures 2 and 3) --------------------------------------------------------------------------------------------

_SEPARABLE = 0.65  # on classes that overlap more than this floor, the third stage may begin within the second


class _Pictures(Experiment):
    """What figures 2 and 3 share: pairs of classes of a set of images, in units of their own gamma and phi."""

    followed: ClassVar[tuple[str, ...]] = ("loss", "floor")  # along a run, at every step
    measured: ClassVar[tuple[str, ...]]  # of the kernel
    interval: ClassVar[int]  # steps between two measurements of it
    images: tuple[Literal["digits", "mnist", "fashion", "cifar10"], ...] = Field(
        default=("mnist", "fashion", "cifar10"),
        min_length=1,
        max_length=4,
        description="Sets of images, a row of panels each: digits (of scikit-learn), mnist, fashion, cifar10.",
    )
    folder: str | None = Field(
        default=None,
        description="Folder with the published files, or with folders of the sets' names; default: by name.",
    )
    pairs: tuple[tuple[int, int], ...] = Field(
        default=((0, 1), (3, 8), (4, 9), (1, 7)), min_length=1, max_length=45, description="Pairs of classes."
    )
    draws: int = Field(default=10, ge=1, le=1000, description="Draws of images and initialization for each pair.")
    n: int = Field(default=100, ge=4, le=1000, description="Images, half of each class.")
    width: int = Field(default=256, ge=2, le=10_000, description="Hidden neurons.")
    x: float = Field(default=0.1, gt=0, lt=0.5, description="Dimensionless step, lr sqrt(gamma) / (n width).")
    initial: float = Field(default=0.01, gt=0, le=1, description="v0 = sigma0 in units of v*.")
    steps: int = Field(default=200, ge=20, le=10_000, description="Steps.")

    @field_validator("images", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        """One name, or several with commas between them, are what people type."""
        return tuple(name.strip() for name in value.split(",")) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.n % 2:
            raise ValueError(f"n = {self.n} must be even, half of the images from each class")
        if any(a == b for a, b in self.pairs):
            raise ValueError(f"pairs = {self.pairs} must be of two different classes each")
        if len(set(self.images)) < len(self.images):
            raise ValueError(f"images = {self.images} must be different sets")
        if self.folder is not None and "digits" in self.images:
            raise ValueError(f"folder = {self.folder!r} must not be given with digits, which need no files")
        return self

    def missing(self) -> str | None:
        lacks = sets.missing(*self.images, folder=self.folder)
        if lacks is None or "digits" in self.images:
            return lacks
        return f"{lacks.removesuffix('.')}; --set images=digits needs no files."

    def samples(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and labels of every run on a set; the inputs in an orthonormal basis of their span, which changes
        nothing.
        """
        found = sets.load(name, folder=self.folder)
        inputs, labels = [], []
        for i, classes in enumerate(self.pairs):
            for j in range(self.draws):
                x, y = self.labeled(found, classes, np.random.default_rng([self.seed, i, j]))
                if not np.linalg.norm(y @ x) > 1e-13 * np.linalg.norm(x) * np.linalg.norm(y):
                    raise InputError(f"classes {classes} have the same mean image: there is no feature to learn.")
                u, s, _ = np.linalg.svd(x, full_matrices=False)
                inputs.append(u * s)
                labels.append(y)
        return np.array(inputs), np.array(labels)

    def name(self, classes: tuple[int, int]) -> str:
        """What a run learns."""
        return f"{classes[0]} and {classes[1]}"

    def labeled(self, found: sets.Images, classes: tuple[int, int], rng: np.random.Generator) -> tuple[Any, Any]:
        """Inputs and labels of a run."""
        return found.pair(classes, self.n, rng)

    @abc.abstractmethod
    def train(self, key: Any, x: Any, y: Any) -> dict[str, Any]:
        """Loss, slope and kernel on samples at every step, and what the target-aligned kernels are made of."""

    @staticmethod
    @abc.abstractmethod
    def level(slope: np.ndarray) -> np.ndarray:
        """The slope at which stage one ends."""

    @abc.abstractmethod
    def require(self, data: xarray.Dataset) -> dict[str, Finding]:
        """What must hold of the runs on one set."""

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        count = len(self.pairs) * self.draws
        keys = jax.random.split(jax.random.key(self.seed), count)  # the same on every set: one shows nothing of others
        recorded = np.unique(np.append(np.arange(0, self.steps, self.interval), self.steps))
        train = jax.jit(self.train)
        # one after another by one program: a batch would share no work and keep all kernels
        arguments = [each for name in self.images for each in zip(keys, *self.samples(name), strict=True)]
        rows = [self._row(train(*each), recorded) for each in tracked(arguments, progress)]
        names = [self.name(classes) for classes in self.pairs for _ in range(self.draws)]
        axes = {self.steps + 1: ("run", "step"), len(recorded): ("run", "record")}
        stacked = {name: np.array([row[name] for row in rows]) for name in rows[0]}
        return xarray.Dataset(
            {name: (axes[v.shape[1]] if v.ndim == 2 else ("run",), v) for name, v in stacked.items()},
            coords={
                "step": np.arange(self.steps + 1),
                "record": recorded,
                "classes": ("run", names * len(self.images)),
                "images": ("run", [name for name in self.images for _ in range(count)]),
            },
        )

    def _row(self, run: dict[str, Any], recorded: np.ndarray) -> dict[str, Any]:
        """The variables of a run."""
        slope = np.asarray(run["slope"])
        t1 = int(first_record(slope >= self.level(slope)))
        # eigenvalues at every step would take most of the time
        steps = np.append(recorded, np.clip([t1, 2 * t1], 0, self.steps))
        found = _kernels(run["kernel"][steps], run["scale"][steps], run["gram"], run["labels"])
        row = {name: run[name] for name in self.followed} | {"slope": slope, "t1": t1}
        for name in self.measured:
            value = found[name]
            there = (t1 >= 0, 0 <= 2 * t1 <= self.steps)
            ends = np.where(there, value[-2:], np.nan)
            row |= {name: value[:-2], f"{name}_t1": ends[0], f"{name}_2t1": ends[1]}
        return jax.tree.map(np.asarray, row)

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        return {
            f"{name}: {words}": finding
            for name in self.images
            for words, finding in self.require(data.isel(run=data["images"].values == name)).items()
        }


class FeatureFig2(_Pictures):
    """Linear networks on pairs of classes of images: the neurons align with Xᵀy while almost all of the loss is left,
    then the loss falls to the floor of that one direction. A row for each set of images: all runs in units of t₁, and
    one of them as a line. About 2 t₁ a third stage follows that the two-stage picture does not have: the other
    directions of the data are learned, the slope falls and the kernel leaves the target-aligned one again. The more
    classes overlap, the sooner and the more: most on CIFAR-10, where one direction leaves half of the loss and more.
    With `regression` all ten classes are learned by their numbers, and the same holds.
    """

    place = "Figure 2 (which has CIFAR-10)"
    title = "Two stages, and a third, on images"
    quick = {"draws": 5, "images": ("digits",)}
    minutes = {"quick": 0.2, "paper": 0.5}
    measured: ClassVar[tuple[str, ...]] = ("distance", "norm")
    interval: ClassVar[int] = 4

    regression: bool = Field(
        default=False, description="Whether all ten classes are learned, by their numbers, in the place of every pair."
    )

    def name(self, classes: tuple[int, int]) -> str:
        return "all ten" if self.regression else super().name(classes)

    def labeled(self, found: sets.Images, classes: tuple[int, int], rng: np.random.Generator) -> tuple[Any, Any]:
        if not self.regression:
            return super().labeled(found, classes, rng)
        chosen = found.subset(self.n, seed=int(rng.integers(2**31)))
        pixels, numbers = chosen.pixels.astype(np.float64), chosen.classes.astype(np.float64)
        return pixels - pixels.mean(axis=0), (numbers - numbers.mean()) / numbers.std()

    @staticmethod
    def level(slope: np.ndarray) -> np.ndarray:
        return np.asarray(feature.ALIGNED)

    def train(self, key: Any, x: Any, y: Any) -> dict[str, Any]:
        problem = mean_field_regression(x, y, width=self.width)
        task = feature.task(problem)
        size = self.initial * jnp.sqrt(task.vstar2)
        initial = readout(key, problem, self.width, sigma0=size, v0=size)
        run = simulate(
            problem,
            initial,
            SGD(self.x / task.rate),
            steps=self.steps,
            record=every(1),
            observe=_TRAINED,
        ).values
        return {
            **run,
            "scale": run["squares"] / self.width**2,
            "gram": task.gram,
            "labels": task.labels,
            "floor": task.floor / task.initial_loss,
        }

    def require(self, data: xarray.Dataset) -> dict[str, Finding]:
        t1 = data["t1"].values
        left, slope, near = data["loss"].values, data["slope"].values, data["distance_t1"].values
        left = left / left[:, :1]
        floor = data["floor"].values
        clear = floor <= _SEPARABLE
        low, high = _range(slope, t1, 2 * t1)
        found = {
            "runs": at_least(len(t1), 20),
            "runs that never align": at_most(np.sum(t1 < 0), 0),
            "loss left at t1, smallest": at_least(_at(left, t1), 0.9),
            "loss left at 2 t1 less the floor of one direction, largest": at_most(_at(left, 2 * t1) - floor, 0.1),
        }
        if clear.any():
            found["slope between t1 and 2 t1, smallest (floors to 0.65)"] = at_least(low[clear], 0.9)
            found["slope between t1 and 2 t1, largest (floors to 0.65)"] = at_most(high[clear], 1.0)
        return found | {
            "distance of the kernel from the target-aligned one at t1, largest": at_most(near, 0.02),
            "growth of the kernel's norm until t1, smallest (not kept)": at_least(
                data["norm_t1"].values / data["norm"].values[:, 0], 10
            ),
            "third stage: distance at the end / at t1, smallest": at_least(data["distance"].values[:, -1] / near, 1.0),
            "third stage: slope at the end less the largest, largest": at_most(slope[:, -1] - slope.max(axis=1), 0.0),
        }


class FeatureFig3(_Pictures):
    """The same with ReLU neurons. Alignment comes about twice as late, and the loss still waits for it; the slope stays
    until the loss has come to the floor of one direction, on CIFAR-10 in some runs before 2 t₁. But the kernel
    does not become the target-aligned one: its distance does not fall and the cosine stays near 1/√2. One reason:
    an entry cannot become negative where the two images have a product of at least zero, whatever their classes. It
    is closer to the target-aligned kernel with zeros between the two sides of Xᵀy, in part from the beginning: positive
    and negative neurons divide the images by side, and by class only as far as the classes lie on two sides. Digits do;
    classes that overlap (CIFAR-10, shirts and coats) do not, and zeros between classes may then be worse than none.
    """

    place = "Figure 3 (which has CIFAR-10)"
    title = "ReLU networks on images: the stages, but not the kernel"
    quick = {"draws": 5, "images": ("digits",)}
    minutes = {"quick": 0.4, "paper": 0.6}
    followed: ClassVar[tuple[str, ...]] = ("loss", "floor", "kept")
    measured: ClassVar[tuple[str, ...]] = ("distance", "cosine", "masked", "sides")
    interval: ClassVar[int] = 10

    @staticmethod
    def level(slope: np.ndarray) -> np.ndarray:
        return feature.ALIGNED * slope.max(axis=-1, keepdims=True)

    def train(self, key: Any, x: Any, y: Any) -> dict[str, Any]:
        task = feature.task(mean_field_regression(x, y, width=self.width))
        size = self.initial * jnp.sqrt(task.vstar2)
        # relu is homogeneous: scaled inputs and labels make f = (1/w) relu(X W_1^T) v and the mean over n
        root = math.sqrt(self.n)
        first, second = readout(key, factorization(x[:1]), (self.width,), sigma0=size, v0=size).layers
        state = ReluNetwork(first, second, x / (self.width * root))
        run = simulate(
            factorization(y[None] / root),
            state,
            SGD(self.x / task.rate),
            steps=self.steps,
            record=every(1),
            observe=_TRAINED,
        ).values
        return {
            **run,
            "scale": run["squares"],
            "gram": state.inputs @ state.inputs.T,
            "labels": y,
            "floor": task.floor / task.initial_loss,
            "kept": _keeps_sides(task.gram, y),
        }

    def require(self, data: xarray.Dataset) -> dict[str, Finding]:
        t1 = data["t1"].values
        left, slope, distance = data["loss"].values, data["slope"].values, data["distance"].values
        left = left / left[:, :1]
        floor = data["floor"].values
        clear = floor <= _SEPARABLE
        low, _ = _range(slope, t1, first_record(left <= floor[:, None]))
        cosine, sides, kept = (data[name].values for name in ("cosine_2t1", "sides_2t1", "kept"))
        after = np.where(data["record"].values[None] >= t1[:, None], distance, np.inf)
        near = data["distance_t1"].values
        found = {
            "runs": at_least(len(t1), 20),
            "share of runs with more than 0.9 of the loss left at t1": at_least(np.mean(_at(left, t1) > 0.9), 0.95),
        }
        if clear.any():
            # the slope has left again what it needs at t1, or the loss has not waited for it
            early = ~(low >= self.level(slope)[:, 0])
            found["runs that leave stage two above the floor of one direction (floors to 0.65)"] = at_most(
                np.sum(early[clear]), 0
            )
            found["loss left at 2 t1, largest (floors to 0.65)"] = at_most(_at(left, 2 * t1)[clear], 0.8)
        if kept.any():
            found["zeros between sides less the whole kernel: cosine at 2 t1, smallest (sides that stay)"] = at_least(
                (sides - cosine)[kept], 0.0
            )
        return found | {
            "zeros between sides less the whole kernel: cosine at 2 t1, median": at_least(
                np.median(sides - cosine), 0.0
            ),
            "not the target-aligned kernel: distance from t1 on, smallest": at_least(
                min(np.min(after), np.min(near)), 1.0
            ),
            "not the target-aligned kernel: distance at the end / at t1, smallest": at_least(
                distance[:, -1] / near, 1.0
            ),
            "not the target-aligned kernel: cosine at 2 t1, largest": at_most(cosine, 0.9),
        }


def _keeps_sides(gram: Any, labels: Any) -> Any:
    """Whether both sides of X^T y stay: ReLU neurons active on one side alone are pulled to where they remain so.

    With z = X X^T y, a positive neuron that is active where z_i > 0 alone is pulled in stage one along
    u = sum_{z_i > 0} y_i x_i, and its products with images move along x_i . u: if x_i . u > 0 just where z_i > 0, no
    gate ever changes. Likewise a negative one with z_i < 0 and -y. The kernel of such neurons is zero between sides, so
    its product with T is that with T masked there, and its cosine with T masked is |T| / |T masked| >= 1 times that
    with T.
    """
    pulled = gram @ labels
    sides = jnp.stack([pulled, -pulled]) > 0
    return jnp.all(((jnp.stack([labels, -labels]) * sides) @ gram > 0) == sides)


@jax.jit
@partial(jax.vmap, in_axes=(0, 0, None, None))
def _targets(kernel: Any, scale: Any, gram: Any, labels: Any) -> tuple[Any, dict[str, Any]]:
    """A kernel less the target-aligned one; its cosines with that, whole and with zeros between classes or sides."""
    target = observe.target_kernel(gram, labels, scale)
    cosines = {"cosine": observe.kernel_cosine(kernel, target)}
    for name, parts in (("masked", labels), ("sides", gram @ labels)):
        cosines[name] = observe.kernel_cosine(kernel, jnp.where(jnp.outer(parts, parts) > 0, target, 0.0))
    return kernel - target, cosines


def _kernels(kernels: Any, scales: Any, gram: Any, labels: Any) -> dict[str, np.ndarray]:
    """Measurements of kernels at several steps.

    Eigenvalues by NumPy: on a busy machine those of XLA wait ten times longer for their threads.
    """
    gap, cosines = _targets(kernels, scales, gram, labels)
    norm, distance = (np.abs(np.linalg.eigvalsh(np.asarray(part))).max(axis=-1) for part in (kernels, gap))
    return {"distance": distance / norm, "norm": norm} | {name: np.asarray(part) for name, part in cosines.items()}


def _range(values: np.ndarray, t1: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Smallest and largest value of each run from t1 to its end, NaN where it has none or ends before."""
    steps = np.arange(values.shape[1])[None]
    inside = (steps >= t1[:, None]) & (steps <= end[:, None])
    there = (t1 >= 0) & (t1 <= end) & (end < values.shape[1])
    low, high = np.where(inside, values, np.inf).min(axis=1), np.where(inside, values, -np.inf).max(axis=1)
    return np.where(there, low, np.nan), np.where(there, high, np.nan)
