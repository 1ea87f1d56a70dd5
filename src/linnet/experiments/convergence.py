"""The figure of "Training Linear Neural Networks: Non-Local Convergence and Complexity Results", and what goes on from
it: the rates in the end, depth in the far phase, and modes that are learned one after another.
"""

import math
from pathlib import Path
from typing import Annotated, Any, Self

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from pydantic import Field, model_validator

from linnet.claims import THREE, Finding, at_least, at_most, close, near
from linnet.curves import crossing
from linnet.experiments.experiment import Ascending, Experiment, Progress, along
from linnet.init import balanced
from linnet.observe import Observable
from linnet.optim import SGD, GradientFlow
from linnet.problems import factorization
from linnet.record import at, logarithmic
from linnet.simulation import simulate
from linnet.states import Balanced, EndToEnd, Weights
from linnet.theory import convergence
from linnet.theory.convergence import Coordinates

Depth = Annotated[int, Field(ge=2, le=1000)]


def _one_output(strength: float, norm: float, cosine: float) -> Coordinates:
    """An initialization of one output in the plane that it spans with the target."""
    sine = math.sqrt(1 - cosine**2)
    return Coordinates(np.asarray(strength), np.array([1.0, 0.0]), np.array([cosine, sine]), np.array([norm, 0.0]))


def _flow(times: np.ndarray, initial: Coordinates, depth: int, samples: float) -> tuple[np.ndarray, np.ndarray]:
    """|A - Z| and s at these times, in closed form."""
    flow = convergence.modes(times, initial, depth, samples)
    return np.sqrt(2 * np.asarray(convergence.distance(flow.at))), np.asarray(flow.at.s)


class NonlocalFig1(Experiment):
    """Euler steps on the induced flow of networks of several depths, from ten times the target and 30 degrees off it
    (dashed; the exact flow beneath). Deeper networks are faster far from the target and slower near it.
    """

    title = "Depth is fast far from the target and slow near it"
    quick = {"problems": 2, "depths": (2, 3, 5, 10)}
    minutes = {"quick": 0.2, "paper": 0.5}

    n: int = Field(default=50, ge=2, le=10_000, description="Samples.")
    d: int = Field(default=5, ge=2, le=1000, description="Inputs; one output.")
    depths: Ascending[Annotated[int, Field(ge=2, le=100)]] = Field(
        default=(2, 3, 4, 5, 8, 10), min_length=2, description="Layers, ascending."
    )
    ratio: float = Field(default=10.0, gt=0, le=1e3, description="Size of the initialization over that of the target.")
    angle: float = Field(default=30.0, ge=0, lt=90, description="Degrees between initialization and target.")
    lr: float = Field(default=1e-6, gt=0, le=1, description="Step of Euler on the induced flow.")
    steps: int = Field(default=100_000, ge=100, le=10**7, description="Steps.")
    problems: int = Field(default=6, ge=1, le=100, description="Draws of the data; the first is shown.")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.n < self.d:
            raise ValueError(f"n = {self.n} must be at least d = {self.d}: fewer samples cannot be whitened")
        # |Y|^2 = n, so |Z| <= 1
        top = 2 / (self.n * max(L * (3 - 2 / L) * self.ratio ** (2 - 2 / L) for L in self.depths))
        if self.lr > top:
            raise ValueError(f"lr = {self.lr:g} must be at most {top:.2g}, or Euler steps overshoot zero")
        return self

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        points = np.unique(np.concatenate([[0, 1], np.round(np.linspace(0, self.steps, 201)).astype(int)]))
        times, turn = self.lr * points, math.radians(self.angle)

        def gap(state: Any, problem: Any) -> Any:
            return jnp.linalg.norm(state.matrix - problem.target)

        observed = {
            "distance": Observable.from_function("distance", gap, ()),
            "s": Observable.from_function("s", lambda state, problem: jnp.linalg.norm(state.matrix), ()),
        }
        tasks, initializations = [], []
        for seed in range(self.problems):
            rng = np.random.default_rng([self.seed, seed])
            x = math.sqrt(self.n) * np.linalg.qr(rng.normal(size=(self.n, self.d)))[0]
            y = rng.normal(size=(self.n, 1))
            y *= math.sqrt(self.n) / np.linalg.norm(y)
            z = (y.T @ x / self.n)[0]
            side = rng.normal(size=self.d)
            side -= (side @ z) * z / (z @ z)
            side *= np.linalg.norm(z) / np.linalg.norm(side)
            initializations.append(self.ratio * (math.cos(turn) * z + math.sin(turn) * side)[None])
            tasks.append(factorization(z[None]))
        z1 = np.array([float(np.linalg.norm(task.target)) for task in tasks])
        targets = jnp.stack([task.target for task in tasks])

        def followed(depth: int) -> dict[str, Any]:
            def one(target: Any, initial: Any) -> Any:
                # whitened data: the loss is n/2 |A - Z|^2 up to a constant, so a step of lr n on 1/2 |A - Z|^2
                optimizer = SGD(self.lr * self.n)
                state = EndToEnd(initial, Balanced(depth, 1))
                run = simulate(
                    factorization(target), state, optimizer, steps=self.steps, record=at(points), observe=observed
                )
                return run.values

            runs = jax.vmap(one)(targets, jnp.stack(initializations))
            flows = [_flow(times, _one_output(self.ratio * z, z, math.cos(turn)), depth, self.n) for z in z1]
            exact, exact_s = np.moveaxis(np.array(flows), 1, 0)
            found = {"distance": runs["distance"], "s": runs["s"], "exact": exact, "exact_s": exact_s}
            return {name: (("problem", "time"), value) for name, value in found.items()}

        data = along("depth", self.depths, followed, progress)
        return data.assign(z1=("problem", z1)).assign_coords(time=times)

    def _gaps(self, distance: np.ndarray, exact: np.ndarray, time: np.ndarray) -> np.ndarray:
        """The largest relative gap of each run, over that of Euler's method to first order in lr.

        Steps of x' = f(x) are behind the flow by the time lr/2 log(f_0/f), so that log|A - Z| differs by its rate times
        that; f is the speed of |A - Z|.
        """
        rate = -np.gradient(np.log(exact), time, axis=-1)
        speed = rate * exact
        first = np.max(self.lr / 2 * rate * np.abs(np.log(speed[..., :1] / speed)), axis=-1)
        return np.asarray(np.max(np.abs(distance / exact - 1), axis=-1) / first)

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        distance, time, z1 = data["distance"].values, data["time"].values, data["z1"].values
        slope = -np.log(distance[:, :, 1] / distance[:, :, 0]) / self.lr
        cosine = math.cos(math.radians(self.angle))
        far = np.array(
            [
                [float(convergence.far_rate(_one_output(self.ratio * z, z, cosine), L, self.n)) for z in z1]
                for L in self.depths
            ]
        )
        # |A - Z| of an Euler step along v = n K (Z - A): with <Z - A, v> = r |Z - A|^2 and |v|^2 between r^2 and top r
        # times |Z - A|^2, -log|A - Z| grows by at least lr r (1 - lr top/2) and at most -log(1 - lr r)
        top = np.array([[self.n * L * (self.ratio * z) ** (2 - 2 / L) for z in z1] for L in self.depths])
        late = time >= 0.8 * time[-1]
        slow = -np.diff(np.log(distance[:, :, late][:, :, [0, -1]]), axis=-1)[..., 0] / np.ptp(time[late])
        far_end = np.array(
            [
                [crossing(time, -s, -math.sqrt(6) * z, "line") for z, s in zip(z1, row, strict=True)]
                for row in data["s"].values
            ]
        )
        left = distance[:, :, -1] / distance[:, :, 0]
        strong = z1 >= 0.27
        found = {
            "slope of the first step below theory: largest share of what a step may take off": at_most(
                (1 - slope / far) / (self.lr * top / 2), 1.0
            ),
            "slope of the first step above theory: largest share of what a step may add": at_most(
                (slope / far - 1) / (-np.log1p(-self.lr * far) / (self.lr * far) - 1), 1.0
            ),
            "slope in the end falls with depth: largest ratio": at_most(slow[1:] / slow[:-1], 1.0),
            "Euler steps against the exact flow: largest gap over that to first order in lr": at_most(
                self._gaps(distance, data["exact"].values, time), 1.1
            ),
        }
        if self.ratio > math.sqrt(6):  # both phases are passed
            # tenths of the time; near the target the slope is a constant, which the other mode may approach from below
            tenths = np.log(distance[:, :, np.linspace(1, len(time) - 1, 11).astype(int)])
            local = -np.diff(tenths, axis=-1)
            drops = np.log(local[..., :-1] / local[..., 1:])
            found |= {
                "the slope falls from one tenth of the time to the next: smallest ratio": at_least(np.exp(drops), 0.95),
                "slope of the first tenth / that of the last, smallest": at_least(local[..., 0] / local[..., -1], 2.0),
                "no sudden change: largest share of the fall, as logarithms, from one tenth of the way to the next": (
                    at_most(_sudden(time[1:], distance[:, :, 1:]), 0.5, band=THREE)
                ),
            }
        if self.ratio * z1.min() >= 1:  # smaller initializations may be slower with depth
            found["slope at initialization grows with depth: smallest ratio"] = at_least(slope[1:] / slope[:-1], 1.0)
        if self.ratio > math.sqrt(6) and z1.min() >= 0.1:
            found["s passes sqrt 6 |Z| earlier with depth: largest ratio"] = at_most(
                far_end[1:] / far_end[:-1], 1.0, band="derived: it falls with |Z|, from 0.9 at |Z| = 0.1"
            )
        if strong.any():
            found["|Z| >= 0.27: what is left in the end grows with depth, smallest ratio"] = at_least(
                left[1:, strong] / left[:-1, strong], 1.0
            )
        return found


def _sudden(time: np.ndarray, distance: np.ndarray) -> float:
    """The largest share that two neighboring tenths of the way, equal parts of the logarithm of the distance, have of
    the fall of the logarithm of the slope. How fast the distance falls depends on Z: tenths of the time would not do.
    """
    shares = []
    for row in -np.log(distance).reshape(-1, len(time)):
        slopes = np.log(1 / np.diff(np.interp(np.linspace(row[0], row[-1], 11), row, time)))
        shares.append(np.max(-np.diff(slopes)) / (slopes[0] - slopes[-1]))
    return float(max(shares))


class NonlocalRates(Experiment):
    """The flow in closed form, followed to the end. Near the target the rate is n z^(2-2/L): depth slows it down for
    z < 1, speeds it up for z > 1 and does nothing at z = 1. Far from a small target (right) depth can slow the flow
    down as well, against the rule.
    """

    place = "the open question after Theorem 20 (no figure in the paper)"
    title = "What depth does to the rate in the end, and far away"
    quick = {"records": 101}
    minutes = {"quick": 0.1, "paper": 0.1}

    n: int = Field(default=50, ge=1, le=10**6, description="Samples.")
    sizes: tuple[Annotated[float, Field(gt=0, le=1e3)], ...] = Field(
        default=(0.3, 1.0, 3.0), min_length=1, max_length=4, description="Sizes of Z."
    )
    depths: Ascending[Depth] = Field(default=(2, 3, 5, 10), min_length=2, description="Layers, ascending.")
    records: int = Field(default=401, ge=21, le=10_000, description="Recorded times.")
    far_target: float = Field(default=0.01, gt=0, le=1, description="Size of the target on the right.")
    far_scale: float = Field(default=0.1, gt=0, le=10, description="Size of the initialization on the right.")
    far_depths: Ascending[Depth] = Field(default=(2, 3, 4, 6, 10), min_length=2, description="Layers on the right.")

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        clock = np.linspace(0, 20, self.records)  # n z^(2-2/L) t
        cosine = math.cos(math.radians(30))
        shape = (len(self.sizes), len(self.depths), self.records)
        distance, times = np.empty(shape), np.empty(shape)
        for i, z in enumerate(self.sizes):
            for j, depth in enumerate(self.depths):
                times[i, j] = clock / (self.n * z ** (2 - 2 / depth))
                distance[i, j] = _flow(times[i, j], _one_output(10 * z, z, cosine), depth, self.n)[0] / z
            progress(i + 1, len(self.sizes))
        initial = _one_output(self.far_scale, self.far_target, cosine)
        return xarray.Dataset(
            {
                "distance": (("size", "depth", "record"), distance),
                "time": (("size", "depth", "record"), times),
                "transition": (
                    "far_depth",
                    [float(convergence.transition_time(initial, depth, self.n)) for depth in self.far_depths],
                ),
                "slope": (
                    "far_depth",
                    [float(convergence.far_rate(initial, depth, self.n)) for depth in self.far_depths],
                ),
            },
            coords={
                "size": list(self.sizes),
                "depth": list(self.depths),
                "far_depth": list(self.far_depths),
                "record": clock,
            },
        )

    def measured(self, data: xarray.Dataset) -> np.ndarray:
        """The slope of ln |A - Z| between n z^(2-2/L) t = 12 and 14, a row for each size."""
        clock = data["record"].values
        low, high = (int(np.argmin(np.abs(clock - x))) for x in (12, 14))
        d, t = data["distance"].values, data["time"].values
        return np.asarray(-np.log(d[..., high] / d[..., low]) / (t[..., high] - t[..., low]))

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        measured = self.measured(data)
        theory = np.array([[self.n * z ** (2 - 2 / L) for L in self.depths] for z in self.sizes])
        found = {"slope in the end / n z^(2-2/L): largest gap": close(measured, theory, rtol=1e-4)}
        for z, row in zip(self.sizes, measured, strict=True):
            ratio = row[1:] / row[:-1]
            if z < 1:
                found[f"z = {z:g}: depth slows the end down, largest ratio"] = at_most(ratio.max(), 1.0)
            elif z > 1:
                found[f"z = {z:g}: depth speeds the end up, smallest ratio"] = at_least(ratio.min(), 1.0)
            else:
                found["z = 1: depth changes nothing, largest relative change"] = close(ratio, 1, atol=1e-4)
        if (self.far_target, self.far_scale, self.far_depths, self.n) == (0.01, 0.1, (2, 3, 4, 6, 10), 50):
            wanted = (0.403, 0.786, 1.013, 1.165, 1.084)
            for depth, value, right in zip(self.far_depths, data["transition"].values, wanted, strict=True):
                found[f"a small target, {depth} layers: end of the far phase"] = near(value, right, 6e-4)
            slopes = (9.98, 6.95, 6.31, 6.45, 7.90)
            gap = np.max(np.abs(data["slope"].values - slopes))
            found["a small target: first slopes 9.98, 6.95, 6.31, 6.45, 7.90, largest gap"] = at_most(gap, 6e-3)
        return found


class NonlocalPeeling(Experiment):
    """Balanced networks of bottleneck three learn a matrix of rank five. From small initializations they pass close by
    the best matrices of rank one and two, as if modes were learned one at a time; from large initializations they do
    not.
    """

    place = "text after (23) (no figure in the paper)"
    title = "Small initializations learn one mode after another, large ones do not"
    quick = {"draws": 2, "depths": (3,)}
    minutes = {"quick": 0.3, "paper": 0.8}

    spectrum: tuple[float, ...] = Field(default=(3.0, 2.0, 1.2, 0.5, 0.2), min_length=2, description="Modes of Z.")
    rank: int = Field(default=3, ge=2, le=10, description="Width of every hidden layer.")
    n: int = Field(default=10, ge=1, le=10**6, description="Samples.")
    depths: tuple[Annotated[int, Field(ge=2, le=6)], ...] = Field(
        default=(2, 3), min_length=1, max_length=3, description="Layers."
    )
    initializations: tuple[float, ...] = Field(
        default=(1e-4, 1e-2, 1.0), min_length=2, description="Sizes of the initialization, ascending."
    )
    draws: int = Field(default=4, ge=1, le=100, description="Random initializations; the first is shown.")
    time: float = Field(default=30.0, gt=0, le=1e4, description="Time of the flow.")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if list(self.spectrum) != sorted(self.spectrum, reverse=True) or min(self.spectrum) <= 0:
            raise ValueError(f"spectrum = {self.spectrum} must be positive and descending")
        if self.rank >= len(self.spectrum):
            raise ValueError(f"rank = {self.rank} must be below the number of modes, {len(self.spectrum)}")
        if list(self.initializations) != sorted(self.initializations) or self.initializations[0] < 1e-8:
            raise ValueError(f"initializations = {self.initializations} must ascend from 1e-8 on")
        return self

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        k = len(self.spectrum)
        rng = np.random.default_rng(self.seed)
        z = np.zeros((k, k + 1))
        np.fill_diagonal(z, self.spectrum)
        # n/2 |A - Z|^2 in the unit n t
        problem = factorization(z)
        best = [np.where(np.arange(k)[:, None] < r, z, 0.0) for r in range(1, self.rank + 1)]

        def approach(state: Any, problem: Any) -> Any:
            return jnp.stack([jnp.linalg.norm(state.matrix - b) / np.linalg.norm(b) for b in best])

        observed = {
            "modes": Observable.from_function("modes", lambda s, p: jnp.diagonal(s.matrix), ("mode",)),
            "approach": Observable.from_function("approach", approach, ("rank",)),
        }
        drawn = [rng.normal(size=(k, self.rank)) @ rng.normal(size=(self.rank, k + 1)) for _ in range(self.draws)]
        horizon = self.n * self.time
        record = logarithmic(300, 1e-5 * horizon)

        def one(state: Weights) -> Any:
            run = simulate(problem, state, GradientFlow(rtol=1e-9), time=horizon, record=record, observe=observed)
            return run.values

        def learned(depth: int) -> dict[str, Any]:
            hidden, shape = (self.rank,) * (depth - 1), (len(self.initializations), self.draws)
            states = [
                balanced(c * g / np.linalg.norm(g, 2), hidden, rank=self.rank)
                for c in self.initializations
                for g in drawn
            ]
            values = jax.vmap(one)(jax.tree.map(lambda *leaves: jnp.stack(leaves), *states))
            modes, near = (np.asarray(values[name]) for name in ("modes", "approach"))
            return {
                "modes": (("initialization", "draw", "time", "mode"), modes.reshape(*shape, *modes.shape[1:])),
                "approach": (("initialization", "draw", "time", "rank"), near.reshape(*shape, *near.shape[1:])),
            }

        times = record.points(horizon, discrete=False) / self.n
        return along("depth", self.depths, learned, progress).assign_coords(
            initialization=list(self.initializations), time=times, rank=np.arange(1, self.rank + 1)
        )

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        closest = data["approach"].min("time")  # depth, initialization, draw, rank
        found = {
            "largest relative distance to the minimum in the end": at_most(
                data["approach"].isel(time=-1, rank=-1).max(), 1e-6
            )
        }
        for depth in self.depths:
            for r in range(1, self.rank):
                near = closest.sel(depth=depth, rank=r).transpose("initialization", "draw").values
                typical = np.exp(np.log(near).mean(axis=1))
                found[f"{depth} layers: closest approach to rank {r}, smallest initialization / largest"] = at_most(
                    typical[0] / typical[-1], 0.5
                )
                if depth == 3 and self.initializations[0] <= 1e-4:
                    found[f"3 layers, smallest initialization: closest approach to rank {r}"] = at_most(
                        typical[0], 0.03
                    )
        return found
