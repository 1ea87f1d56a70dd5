"""Figures of optimizers: the edge of stability of each, what decay leaves of a spectrum, the largest learning rate of
mini-batches.
"""

from collections.abc import Callable
from functools import partial
from itertools import permutations, product
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jax.flatten_util import ravel_pytree
from pydantic import Field
from scipy.optimize import brentq

from linnet.claims import Finding, at_least, at_most
from linnet.experiments.experiment import Ascending, Descending, Experiment, Progress, along, tracked
from linnet.init import balanced, gaussian
from linnet.optim import SGD, Adam, GradientFlow, MiniBatch, Optimizer
from linnet.problems import Regression, factorization, regression
from linnet.record import at, every, linear
from linnet.simulation import simulate
from linnet.states import Weights
from linnet.theory import optimizers


class OptimizersEdge(Experiment):
    """Sharpness in units of the stability threshold of each optimizer, and the loss, at every step. Three layers have
    learned a strong input and grow to learn a weak one; with them grows the sharpness, in gradient flow (dashed) beyond
    the limit. Descent, heavy ball and Nesterov's momentum follow the flow until they pass it, then the loss jumps, and
    they come to rest at another minimum, which is flat enough. Adam passes its limit again and again, since what it
    divides by shrinks with the gradient: the loss grows above 1 and shrinks below.
    """

    place = "after Cohen et al. 2021 and 2022"
    title = "The edge of stability of descent, heavy ball, Nesterov's momentum and Adam"
    quick = {"steps": 5000}
    minutes = {"quick": 0.2, "paper": 0.2}

    beta: float = Field(default=0.5, ge=0.1, le=0.6, description="SGD of heavy ball and of Nesterov's form.")
    share: float = Field(default=0.8, ge=0.7, le=0.95, description="Limit / sharpness where the flow would end.")
    lr: float = Field(default=0.02, gt=0, le=0.1, description="Step of Adam.")
    weak: float = Field(default=0.002, gt=0, le=0.01, description="Second moment of the weak input; the other has 1.")
    steps: int = Field(default=6000, ge=1000, le=20_000, description="Steps of each.")

    def _problem(self) -> Regression:
        inputs = np.diag(np.sqrt([1.0, self.weak]))
        return regression(inputs, inputs @ [[1.0], [8.0]])

    def _initial(self) -> Weights:
        """Near a balanced network that has learned the strong input; all its neurons, since Adam needs them."""
        first, *others = jax.random.split(jax.random.key(self.seed), 4)
        layers = balanced([[0.9, 0.1]], (4, 4), key=first).layers
        return Weights(tuple(w + 0.05 * jax.random.normal(k, w.shape) for k, w in zip(others, layers, strict=True)))

    def _optimizers(self, limit: float) -> dict[str, Optimizer]:
        """Each with the learning rate whose stability threshold is this sharpness; that of Adam follows from its own
        `lr`.
        """
        largest = optimizers.largest_stable_lr
        return {
            "descent": SGD(largest(limit)),
            "heavy ball": SGD(largest(limit, momentum=self.beta), self.beta),
            "Nesterov": SGD(largest(limit, momentum=self.beta, nesterov=True), self.beta, nesterov=True),
            "Adam": Adam(self.lr),
        }

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        problem, initial = self._problem(), self._initial()
        # by then the weak input is learned, and the flow rests
        flow = simulate(
            problem, initial, GradientFlow(), time=4 / self.weak, observe=["sharpness"], record=linear(2001)
        )
        limit = self.share * float(flow["sharpness"][-1])
        runs = self._optimizers(limit)
        sharp, loss, followed = [], [], []
        for name, optimizer in tracked(list(runs.items()), progress):
            run = simulate(
                problem, initial, optimizer, steps=self.steps, observe=["adaptive_sharpness", "loss"], record=every(1)
            )
            threshold = optimizers.stability_limit(self.lr, momentum=0.9, dampening=0.9) if name == "Adam" else limit
            sharp.append(np.asarray(run["adaptive_sharpness"]) / float(threshold))
            loss.append(np.asarray(run["loss"]))
            if name != "Adam":
                followed.append(np.interp(run.times, flow.times, flow["sharpness"]) / limit)
        return xarray.Dataset(
            {
                "sharpness": (("optimizer", "step"), np.array(sharp)),
                "loss": (("optimizer", "step"), np.array(loss)),
                "flow": (("following", "step"), np.array(followed)),
            },
            coords={
                "optimizer": list(runs),
                "following": list(runs)[:3],
                "step": np.arange(self.steps + 1),
            },
        )

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        found: dict[str, Finding] = {}
        for name in data["following"].values:
            sharp, flow = (data[what].sel({kind: name}).values for what, kind in
                           (("sharpness", "optimizer"), ("flow", "following")))  # fmt: skip
            loss = data["loss"].sel(optimizer=name).values
            passed = int(np.argmax(sharp > 1))
            found |= {
                f"{name} reaches its limit: largest sharpness / limit": at_least(sharp.max(), 1.0),
                f"{name} follows the flow until then: largest gap of the sharpness / limit": at_most(
                    np.abs(sharp - flow)[: passed + 1], 0.1
                ),
                f"{name}: sharpness / limit where flow ends": at_least(flow[-1], 1.0),
                f"{name} rests below its limit: largest sharpness / limit of the last tenth": at_most(
                    sharp[-len(sharp) // 10 :].max(), 1.0
                ),
                f"{name} rests at a minimum: loss in the end / at initialization": at_most(loss[-1] / loss[0], 1e-4),
            }
        sharp, loss = (data[what].sel(optimizer="Adam").values[1:] for what in ("sharpness", "loss"))
        above, change = sharp[:-1] > 1, np.diff(np.log(loss))
        return found | {
            "Adam passes its limit upwards: how often": at_least(np.sum(~above[:-1] & above[1:]), 3),
            "Adam's loss grows above the limit: sum of the changes of its logarithm": at_least(change[above].sum(), 0),
            "Adam's loss shrinks below the limit: the same sum": at_most(change[~above].sum(), 0),
        }


class OptimizersDecay(Experiment):
    """Singular values that networks learn with weight decay, over its strength. Lines are the global minimum, dashed
    where the mode's own is local only. Dots are descent from the target itself, hollow where the whole cost is lower
    without the mode; crosses are descent from small weights. Two layers have a soft threshold, which all
    initializations find. From three layers on a mode jumps to zero; which minimum is found depends on the
    initialization, and small weights find nothing but zero.
    """

    place = "no paper's"
    title = "What weight decay leaves of a spectrum: soft and hard thresholds by depth"
    quick = {"grid": 12, "steps": 8000}
    minutes = {"quick": 0.2, "paper": 0.6}

    depths: tuple[Annotated[int, Field(ge=2, le=6)], ...] = Field(
        default=(2, 3, 4), min_length=1, max_length=4, description="Layers."
    )
    values: Descending[Annotated[float, Field(gt=0, le=10)]] = Field(
        default=(2.0, 1.2, 0.6), min_length=1, max_length=4, description="Singular values of the target, descending."
    )
    most: float = Field(default=1.1, gt=0, le=3, description="Largest decay / largest singular value.")
    grid: int = Field(default=36, ge=5, le=200, description="Decays.")
    steps: int = Field(default=20_000, ge=100, le=1_000_000, description="Steps of a run.")
    small: float = Field(default=1e-2, gt=0, le=0.1, description="Deviation of the small weights.")

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        key, size = jax.random.key(self.seed), len(self.values)
        u, v = np.linalg.qr(np.random.default_rng(self.seed).normal(size=(2, size, size)))[0]
        s = np.array(self.values)
        problem = factorization((u * s) @ v.T)
        decays = np.linspace(0, self.most * s[0], self.grid + 1)[1:]

        def learned(depth: int) -> dict[str, Any]:
            hidden = (size,) * (depth - 1)
            # its first modes, from none to all of them, and small weights
            initializations = [
                balanced((u * s * k) @ v.T, hidden, rank=size, key=key) for k in np.tri(size + 1, size, -1)
            ]
            initializations.append(gaussian(key, problem, hidden, self.small**2))
            lr = 0.8 * optimizers.largest_stable_lr(depth * s[0] ** (2 - 2 / depth), weight_decay=depth * decays[-1])

            def end(initial: Weights, decay: Any) -> tuple[Any, Any]:
                run = simulate(
                    problem,
                    initial,
                    SGD(lr, weight_decay=decay),
                    steps=self.steps,
                    observe=["modes", "loss"],
                    record=at([self.steps]),
                )
                weights = ravel_pytree(run.final)[0]
                return run["modes"][-1], run["loss"][-1] + decay / 2 * weights @ weights

            many = jax.tree.map(lambda *leaves: jnp.stack(leaves), *initializations)
            found = jax.vmap(jax.vmap(end, in_axes=(None, 0)), in_axes=(0, None))(many, jnp.asarray(decays))
            values, cost = (np.asarray(part) for part in found)
            return {
                "large": (("decay", "target"), values[-2]),
                "small": (("decay", "target"), values[-1]),
                "saved": (("target", "decay"), -np.diff(cost[:-1], axis=0)),
            }

        return along("depth", self.depths, learned, progress).assign_coords(decay=decays, target=s)

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        found: dict[str, Finding] = {}
        s, decays = data["target"].values, data["decay"].values[:, None]
        for depth in self.depths:
            part = data.sel(depth=depth).transpose("decay", "target")
            large, small, saved = (part[name].values for name in ("large", "small", "saved"))
            predicted = np.asarray(optimizers.decayed_value(s, decays, depth, local=True))
            exists, wins = (np.asarray(limit) for limit in optimizers.decay_thresholds(decays, depth))
            slow = np.abs(s / exists - 1) < 0.02  # where a minimum is about to vanish nothing comes to rest
            found[f"depth {depth}, from the target: largest gap of a value to its formula"] = at_most(
                np.abs(large - predicted)[~slow], 1e-6
            )
            found[f"depth {depth}, from small weights: the same"] = at_most(
                np.abs(small - (predicted if depth == 2 else 0))[~slow], 1e-6
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


_INPUTS = np.linspace(0.5, 1.5, 8)
_CURVATURES = 2 * _INPUTS**2  # of the samples, where both weights are 1
_RECORDS = (0, 4, 8, *range(17, 25), *range(33, 41))


def _windows(beta: float, draw: str) -> tuple[range, range]:
    """Steps between which growth is measured.

    Squares of rare runs soon outweigh all others, so that few steps are better; whole passes, where there are any. With
    momentum the initialization is forgotten as beta^k, and squares swing, so that a mean over some steps is taken.
    """
    if beta > 0:
        return range(17, 25), range(33, 41)
    return range(1), range(8, 9) if draw == "shuffled" else range(4, 5)


@partial(jax.jit, static_argnames=("batch", "draw"))
def _squares(keys: Any, lr: Any, beta: Any, steps: Any, *, batch: int, draw: str) -> Any:
    """The loss at the recorded steps, of two layers of one neuron that start near their minimum; a run for each key."""
    problem = regression(_INPUTS[:, None], _INPUTS[:, None], average=True)
    near = Weights(([[1 + 1e-7]], [[1.0]]))
    optimizer = SGD(lr, beta, batches=MiniBatch(batch, draw=draw))

    def one(key: Any) -> Any:
        return simulate(problem, near, optimizer, steps=steps, record=at(_RECORDS), key=key)["loss"]

    return jax.vmap(one)(keys)


def _edge(growth: Callable[[float], float], least: float, factor: float) -> float:
    """Where growth becomes positive, on the way upwards."""
    high = least
    while growth(high) < 0:
        high *= factor
    return float(brentq(growth, high / factor, high, xtol=1e-3 * high))


def _measured(ends: Callable[[float], np.ndarray], least: float) -> tuple[float, float]:
    """The learning rate at which mean squares neither grow nor shrink, and its error.

    `ends` gives the first and the last square of every run, the same runs for all learning rates.
    """

    def growth(lr: float) -> float:
        first, last = np.mean(ends(lr), axis=0)
        return float(np.log(last / first))

    lr = _edge(growth, least, 1.2)
    slope = (growth(1.01 * lr) - growth(0.99 * lr)) / (0.02 * lr)
    squares = ends(lr)
    shares = squares / np.mean(squares, axis=0)  # of each run: what they add to the logarithms
    return lr, float(np.std(shares[:, 1] - shares[:, 0]) / np.sqrt(len(shares)) / slope)


def _passes(batch: int, beta: float) -> float:
    """The largest learning rate that is stable in mean square on shuffled passes, over every order that there is."""
    orders = _CURVATURES[np.array(list(permutations(range(8))))]
    passes = np.unique(orders.reshape(len(orders), -1, batch).mean(axis=2).round(12), axis=0, return_counts=True)

    def growth(lr: float) -> float:
        whole = np.broadcast_to(np.eye(2), (len(passes[0]), 2, 2))
        for h in passes[0].T:
            step = np.zeros_like(whole)
            step[:, 0] = np.stack([1 + beta - lr * h, np.full_like(h, -beta)], axis=1)
            step[:, 1, 0] = 1
            whole = step @ whole
        squares = np.einsum("n,nab,ncd->acbd", passes[1] / passes[1].sum(), whole, whole).reshape(4, 4)
        return float(np.max(np.abs(np.linalg.eigvals(squares)))) - 1

    return _edge(growth, 0.5 * _formula(batch, beta, "subset"), 1.05)


def _formula(batch: int, beta: float, draw: str) -> float:
    variance = optimizers.batch_variance(_CURVATURES, batch, replacement=draw == "replacement")
    return float(optimizers.batch_stable_lr(_CURVATURES.mean(), variance, momentum=beta))


class OptimizersNoise(Experiment):
    """The largest learning rate that is stable in mean square near a minimum where every sample is fitted, over the
    size of the batches, in units of the full batch's. Solid lines are the formula for fresh batches. Dots are many runs
    of two layers, with errors: the one at which their mean square neither grows nor shrinks. With momentum batches
    matter more. Shuffled passes through the samples are another law, known only by going through all orders (dashed):
    without momentum they allow larger learning rates than fresh batches, with much of it smaller ones.
    """

    place = "no paper's"
    title = "The largest stable learning rate over the batch size: formula and runs"
    quick = {"batches": (1, 4), "runs": 4000}
    minutes = {"quick": 0.5, "paper": 2}
    curvature: ClassVar[float] = float(_CURVATURES.mean())

    batches: Ascending[Literal[1, 2, 4, 8]] = Field(
        default=(1, 2, 4, 8), min_length=1, max_length=4, description="Sizes of batches of the 8 samples, ascending."
    )
    beta: float = Field(default=0.9, ge=0.1, le=0.9, description="SGD, beside none.")
    runs: int = Field(default=16_000, ge=1000, le=10_000_000, description="Runs for each learning rate.")

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        keys = jax.random.split(jax.random.key(self.seed), self.runs)

        def compared(draw: str, beta: float, batch: int) -> dict[str, Any]:
            windows = _windows(beta, draw)

            def ends(lr: float) -> np.ndarray:
                loss = np.asarray(_squares(keys, lr, beta, windows[1][-1], batch=batch, draw=draw))
                return np.stack([loss[:, [_RECORDS.index(k) for k in w]].mean(axis=1) for w in windows], axis=1)

            predicted = _passes(batch, beta) if draw == "shuffled" else _formula(batch, beta, draw)
            found, error = _measured(ends, 0.5 * _formula(batch, beta, draw))
            return {"predicted": ((), predicted), "measured": ((), found), "error": ((), error)}

        def batches(draw: str, beta: float) -> xarray.Dataset:
            return along("batch", self.batches, partial(compared, draw, beta))

        def betas(draw: str) -> xarray.Dataset:
            return along("beta", (0.0, self.beta), partial(batches, draw))

        return along("draw", ("subset", "replacement", "shuffled"), betas, progress)

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        found = {"largest error of a step / the step": at_most((data["error"] / data["measured"]).max(), 0.1)}
        for draw, beta in product(data["draw"].values, data["beta"].values):
            part = data.sel(draw=draw, beta=beta)
            by = "all orders" if draw == "shuffled" else "the formula"
            # beside the errors, one part in a hundred for what momentum has not forgotten by then
            allowed = 4 * part["error"] + 0.01 * part["predicted"]
            found[f"{draw}, momentum {beta:g}: largest gap to {by} / what errors allow"] = at_most(
                np.abs(part["measured"] - part["predicted"]) / allowed, 1.0
            )
        return found
