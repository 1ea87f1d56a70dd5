"""Figures of optimisers: the edge of stability of each, what decay leaves of a spectrum, what mini-batches bear."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import numpy as np
import xarray
from pydantic import Field

from linnet.claims import Finding, at_least, at_most
from linnet.experiments.experiment import Experiment, Progress
from linnet.initial import balanced
from linnet.motion import Adam, GradientDescent, GradientFlow, Momentum, Optimiser
from linnet.problems import Regression, regression
from linnet.record import every, linear
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
        found = {}
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
