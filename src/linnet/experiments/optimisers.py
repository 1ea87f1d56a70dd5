"""Figures of optimisers: the edge of stability of each, what decay leaves of a spectrum, what mini-batches bear."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jax.flatten_util import ravel_pytree
from pydantic import Field, model_validator

from linnet.claims import Finding, at_least, at_most
from linnet.experiments.experiment import Experiment, Progress
from linnet.initial import balanced, gaussian
from linnet.motion import Adam, GradientDescent, GradientFlow, Momentum, Optimiser
from linnet.problems import Regression, factorisation, regression
from linnet.record import at, every, linear
from linnet.simulation import simulate
from linnet.states import Weights
from linnet.theory import optimisers

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Edge(Experiment):
    """Sharpness in units of what each optimiser can bear, and the loss, at every step. Three layers have learned a
    strong input and grow to learn a weak one; with them grows the sharpness, in gradient flow (dashed) beyond the
    limit. Descent, heavy ball and Nesterov's momentum follow the flow until they pass it, then the loss jumps, and they
    come to rest at another minimum, which is flat enough. Adam passes its limit again and again, since what it divides
    by shrinks with the gradient: the loss grows above 1 and shrinks below.
    """

    id: ClassVar[str] = "optimisers/edge"
    place: ClassVar[str] = "after Cohen et al. 2021 and 2022"
    title: ClassVar[str] = "The edge of stability of descent, heavy ball, Nesterov's momentum and Adam"
    quick: ClassVar[dict[str, Any]] = {"steps": 5000}
    minutes: ClassVar[dict[str, float]] = {"quick": 0.2, "paper": 0.2}

    beta: float = Field(default=0.5, ge=0.1, le=0.6, description="Momentum of heavy ball and of Nesterov's form.")
    share: float = Field(default=0.8, ge=0.7, le=0.95, description="Limit / sharpness where the flow would end.")
    lr: float = Field(default=0.02, gt=0, le=0.1, description="Step of Adam.")
    weak: float = Field(default=0.002, gt=0, le=0.01, description="Second moment of the weak input; the other has 1.")
    steps: int = Field(default=6000, ge=1000, le=20_000, description="Steps of each.")

    def _problem(self) -> Regression:
        inputs = np.diag(np.sqrt([1.0, self.weak]))
        return regression(inputs, inputs @ [[1.0], [8.0]])

    def _start(self) -> Weights:
        """Near a balanced network that has learned the strong input; all its neurons, since Adam needs them."""
        first, *others = jax.random.split(jax.random.key(self.seed), 4)
        layers = balanced([[0.9, 0.1]], (4, 4), key=first).layers
        return Weights(tuple(w + 0.05 * jax.random.normal(k, w.shape) for k, w in zip(others, layers, strict=True)))

    def _motions(self, limit: float) -> dict[str, Optimiser]:
        """Each with the step that bears this sharpness; what Adam bears is told by its step."""
        largest = optimisers.largest_stable_lr
        return {
            "descent": GradientDescent(largest(limit)),
            "heavy ball": Momentum(largest(limit, beta=self.beta), self.beta),
            "Nesterov": Momentum(largest(limit, beta=self.beta, nesterov=True), self.beta, nesterov=True),
            "Adam": Adam(self.lr),
        }

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        problem, start = self._problem(), self._start()
        # by then the weak input is learned, and the flow rests
        flow = simulate(problem, start, GradientFlow(), time=4 / self.weak, observe=["sharpness"], record=linear(2001))
        limit = self.share * float(flow["sharpness"][-1])
        motions = self._motions(limit)
        sharp, loss, followed = [], [], []
        for done, (name, motion) in enumerate(motions.items()):
            progress(done, len(motions))
            run = simulate(
                problem, start, motion, steps=self.steps, observe=["adaptive_sharpness", "loss"], record=every(1)
            )
            bears = optimisers.stability_limit(self.lr, beta=0.9, average=True) if name == "Adam" else limit
            sharp.append(np.asarray(run["adaptive_sharpness"]) / float(bears))
            loss.append(np.asarray(run["loss"]))
            if name != "Adam":
                followed.append(np.interp(run.times, flow.times, flow["sharpness"]) / limit)
        progress(len(motions), len(motions))
        return xarray.Dataset(
            {
                "sharpness": (("optimiser", "step"), np.array(sharp)),
                "loss": (("optimiser", "step"), np.array(loss)),
                "flow": (("following", "step"), np.array(followed)),
            },
            coords={"optimiser": list(motions), "following": list(motions)[:3], "step": np.arange(self.steps + 1)},
        )

    def draw(self, data: xarray.Dataset) -> "Figure":
        from linnet.plot.optimisers import edges

        return edges(data, self.beta, self.lr)

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        found: dict[str, Finding] = {}
        for name in data["following"].values:
            sharp, flow = (data[what].sel({kind: name}).values for what, kind in
                           (("sharpness", "optimiser"), ("flow", "following")))  # fmt: skip
            loss = data["loss"].sel(optimiser=name).values
            passed = int(np.argmax(sharp > 1))
            found |= {
                f"{name} reaches its limit: largest sharpness / limit": at_least(sharp.max(), 1.0),
                f"{name} follows the flow until then: largest gap of the sharpness / limit": at_most(
                    np.abs(sharp - flow)[: passed + 1].max(), 0.1
                ),
                f"{name}: sharpness / limit where flow ends": at_least(flow[-1], 1.0),
                f"{name} rests below its limit: largest sharpness / limit of the last tenth": at_most(
                    sharp[-len(sharp) // 10 :].max(), 1.0
                ),
                f"{name} rests at a minimum: loss in the end / at the start": at_most(loss[-1] / loss[0], 1e-4),
            }
        sharp, loss = (data[what].sel(optimiser="Adam").values[1:] for what in ("sharpness", "loss"))
        above, change = sharp[:-1] > 1, np.diff(np.log(loss))
        return found | {
            "Adam passes its limit upwards: how often": at_least(np.sum(~above[:-1] & above[1:]), 3),
            "Adam's loss grows above the limit: sum of the changes of its logarithm": at_least(change[above].sum(), 0),
            "Adam's loss shrinks below the limit: the same sum": at_most(change[~above].sum(), 0),
        }


class Decay(Experiment):
    """Singular values that networks learn with weight decay, over its strength. Lines are the global minimum, dashed
    where the mode's own is local only. Dots are descent from the target itself, filled where the whole cost is lower
    with the mode than without; crosses are descent from small weights. Two layers have a soft threshold, which all
    starts find. From three layers on a mode jumps to zero; which minimum is found depends on the start, and small
    weights find nothing but zero.
    """

    id: ClassVar[str] = "optimisers/decay"
    place: ClassVar[str] = "no paper's"
    title: ClassVar[str] = "What weight decay leaves of a spectrum: soft and hard thresholds by depth"
    quick: ClassVar[dict[str, Any]] = {"grid": 12, "steps": 8000}
    minutes: ClassVar[dict[str, float]] = {"quick": 0.2, "paper": 0.6}

    depths: tuple[Annotated[int, Field(ge=2, le=6)], ...] = Field(
        default=(2, 3, 4), min_length=1, max_length=4, description="Layers."
    )
    values: tuple[Annotated[float, Field(gt=0, le=10)], ...] = Field(
        default=(2.0, 1.2, 0.6), min_length=1, max_length=4, description="Singular values of the target, descending."
    )
    most: float = Field(default=1.1, gt=0, le=3, description="Largest decay / largest singular value.")
    grid: int = Field(default=36, ge=5, le=200, description="Decays.")
    steps: int = Field(default=20_000, ge=100, le=1_000_000, description="Steps of a run.")
    small: float = Field(default=1e-2, gt=0, le=0.1, description="Deviation of the small weights.")

    @model_validator(mode="after")
    def _descend(self) -> Self:
        if list(self.values) != sorted(set(self.values), reverse=True):
            raise ValueError(f"values = {self.values} must descend")
        return self

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        key, size = jax.random.key(self.seed), len(self.values)
        u, v = np.linalg.qr(np.random.default_rng(self.seed).normal(size=(2, size, size)))[0]
        s = np.array(self.values)
        problem = factorisation((u * s) @ v.T)
        decays = np.linspace(0, self.most * s[0], self.grid + 1)[1:]
        learned, costs = [], []
        for done, depth in enumerate(self.depths):
            progress(done, len(self.depths))
            hidden = (size,) * (depth - 1)
            # its first modes, from none to all of them, and small weights
            starts = [balanced((u * s * k) @ v.T, hidden, rank=size, key=key) for k in np.tri(size + 1, size, -1)]
            starts.append(gaussian(key, problem, hidden, self.small**2))
            lr = 0.8 * optimisers.largest_stable_lr(depth * s[0] ** (2 - 2 / depth), decay=depth * decays[-1])

            def end(start: Weights, decay: Any, lr: Any = lr) -> tuple[Any, Any]:
                run = simulate(
                    problem,
                    start,
                    GradientDescent(lr, decay=decay),
                    steps=self.steps,
                    observe=["modes", "loss"],
                    record=at([self.steps]),
                )
                weights = ravel_pytree(run.final)[0]
                return run["modes"][-1], run["loss"][-1] + decay / 2 * weights @ weights

            many = jax.tree.map(lambda *leaves: jnp.stack(leaves), *starts)
            found = jax.vmap(jax.vmap(end, in_axes=(None, 0)), in_axes=(0, None))(many, jnp.asarray(decays))
            learned.append(found[0])
            costs.append(found[1])
        progress(len(self.depths), len(self.depths))
        values, cost = np.array(learned), np.array(costs)
        return xarray.Dataset(
            {
                "large": (("depth", "decay", "target"), values[:, -2]),
                "small": (("depth", "decay", "target"), values[:, -1]),
                "saved": (("depth", "target", "decay"), -np.diff(cost[:, :-1], axis=1)),
            },
            coords={"depth": list(self.depths), "decay": decays, "target": s},
        )

    def draw(self, data: xarray.Dataset) -> "Figure":
        from linnet.plot.optimisers import decayed

        return decayed(data)

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        found: dict[str, Finding] = {}
        s, decays = data["target"].values, data["decay"].values[:, None]
        for depth in self.depths:
            part = data.sel(depth=depth).transpose("decay", "target")
            large, small, saved = (part[name].values for name in ("large", "small", "saved"))
            told = np.asarray(optimisers.decayed_value(s, decays, depth, local=True))
            exists, wins = (np.asarray(limit) for limit in optimisers.decay_thresholds(decays, depth))
            slow = np.abs(s / exists - 1) < 0.02  # where a minimum is about to vanish nothing comes to rest
            found[f"depth {depth}, from the target: largest gap of a value to its formula"] = at_most(
                np.abs(large - told)[~slow].max(), 1e-6
            )
            found[f"depth {depth}, from small weights: the same"] = at_most(
                np.abs(small - (told if depth == 2 else 0))[~slow].max(), 1e-6
            )
            if depth > 2:
                alive = large > 0.01 * s
                found[f"depth {depth}: modes whose minimum is on the wrong side of the threshold"] = at_most(
                    np.sum(((saved > 0) != (s > wins))[alive & ~slow]), 0
                )
                found[f"depth {depth} jumps: smallest learned value / target"] = at_least(
                    (large / s)[alive].min(), (depth - 2) / (2 * depth - 2)
                )
        return found
