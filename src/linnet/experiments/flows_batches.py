"""Figures of training at the edge on average: mini-batches of two networks, and the rod beside training on images."""

from pathlib import Path
from typing import Any, Literal, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jax.flatten_util import ravel_pytree
from pydantic import Field, model_validator

from linnet.claims import Finding, at_least, at_most, within
from linnet.data import load, missing, scored_classes
from linnet.experiments.experiment import Experiment, Progress, tracked
from linnet.networks import mlp
from linnet.observe import (
    batch_sharpness,
    curvature,
    gradient_noise_interaction,
    hessian_matrix,
    hessian_product,
    loss,
    only,
    predicted_loss,
)
from linnet.optim import SGD, Dynamics, MiniBatch, RodFlow
from linnet.problems import Problem, regression, supervised
from linnet.record import at, every
from linnet.simulation import simulate
from linnet.states import State, Weights
from linnet.theory.optimizers import batch_share

_RATIOS = ("numerator", "denominator")


class FlowsBatches(Experiment):
    """Sharpness of all samples, batch sharpness, and gradient-noise interaction over the size of the batches, in units
    of 2/lr, as means over the second half of the steps. Left, a linear network that cannot fit labels with noise, far
    below the edge: the interaction is at 2/lr for all batches, as for a quadratic cost, and batch sharpness anywhere.
    Middle, a network with tanh that descent holds at the edge: batches keep the sharpness below it, and their own
    sharpness too. Dotted, the sharpness up to which the sharpest direction would be stable in mean square if every
    sample were fitted. Right, batch sharpness in time: it rises to 2/lr late, if at all.
    """

    place = "after Andreyev and Beneventano 2024"
    title = "Sharpness, batch sharpness, and gradient-noise interaction over the batch size"
    quick = {"sizes": (10, 50), "steps": 3000, "draws": 20}
    minutes = {"quick": 0.8, "paper": 3}

    sizes: tuple[int, ...] = Field(
        default=(5, 10, 25, 50, 75), min_length=1, max_length=8, description="Sizes of batches, beside all 100 samples."
    )
    lr: float = Field(default=0.15, gt=0, le=0.3, description="Learning rate of the network with tanh.")
    linear_lr: float = Field(default=0.2, gt=0, le=0.3, description="Learning rate of the linear network.")
    noise: float = Field(default=0.3, gt=0, le=2, description="Standard deviation of the linear network's label noise.")
    steps: int = Field(default=6000, ge=1000, le=100_000, description="Steps of each run.")
    draws: int = Field(default=40, ge=2, le=1000, description="Batches of which a batch sharpness is the mean.")

    @model_validator(mode="after")
    def _ascend(self) -> Self:
        if list(self.sizes) != sorted(set(self.sizes)) or self.sizes[0] < 1 or self.sizes[-1] >= 100:
            raise ValueError(f"sizes = {self.sizes} must ascend, from 1 to 99")
        return self

    def _cases(self) -> dict[str, tuple[Problem, State, float]]:
        rng = np.random.default_rng(self.seed)
        x = rng.normal(size=(100, 6))
        labels = x @ rng.normal(size=(6, 3)) / 2 + self.noise * rng.normal(size=(100, 3))
        layers = [rng.normal(size=(8, 6)) / np.sqrt(6), rng.normal(size=(3, 8)) / np.sqrt(8)]
        inputs, classes = scored_classes(np.random.default_rng(self.seed), 100, 20, 3)
        network = mlp(self.seed, inputs, (32, 3), activation="tanh", bias=True)
        return {
            "linear": (regression(x, labels, average=True), Weights(layers), self.linear_lr),
            "tanh": (supervised(classes, "half squares", average="samples"), network, self.lr),
        }

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        cases, sizes, interval = self._cases(), (*self.sizes, 100), max(self.steps // 120, 1)
        todo = [(name, size) for name in cases for size in sizes]
        rows: dict[str, list[np.ndarray]] = {}
        edges: list[float] = []
        for name, size in tracked(todo, progress):
            problem, state, lr = cases[name]
            draws = self.draws if size < 100 else 2  # all batches are one
            observed: dict[str, Any] = {
                "curvature": curvature(),
                "batch": batch_sharpness(size, draws=draws),
                "noise": gradient_noise_interaction(size, draws=self.draws),
            }
            optimizer = SGD(lr, batches=MiniBatch(size, draw="subset"))
            run = simulate(
                problem, state, optimizer, steps=self.steps, record=every(interval), observe=observed, key=self.seed
            )
            rows.setdefault("sharpness", []).append(np.asarray(run["curvature_top"]) * lr / 2)
            for what in ("batch", "noise"):
                for part in _RATIOS:
                    scale = lr / 2 if part == "numerator" else 1.0
                    rows.setdefault(f"{what}_{part}", []).append(np.asarray(run[f"{what}_{part}"]) * scale)
            variance = batch_share(100, size) * float(_spread(problem, run.final))
            edges.append((1 + np.sqrt(max(1 - lr**2 * variance, 0.0))) / 2)
        shape = (len(cases), len(sizes), -1)
        found: dict[str, Any] = {
            name: (("network", "batch", "step"), np.reshape(values, shape)) for name, values in rows.items()
        }
        found["mean_square_edge"] = (("network", "batch"), np.reshape(edges, shape[:2]))
        return xarray.Dataset(
            found,
            coords={"network": list(cases), "batch": list(sizes), "step": np.asarray(run.steps)},
        )

    @staticmethod
    def means(data: xarray.Dataset) -> xarray.Dataset:
        """Of the second half of the steps: the sharpness, and ratios of means, in units of 2/lr."""
        late = data.where(data["step"] >= data["step"][-1] / 2, drop=True).mean("step")
        ratios = {what: late[f"{what}_numerator"] / late[f"{what}_denominator"] for what in ("batch", "noise")}
        found = {"sharpness": late["sharpness"], "batch_sharpness": ratios["batch"], "interaction": ratios["noise"]}
        return xarray.Dataset(found | {"mean_square_edge": data["mean_square_edge"]})

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        late = self.means(data)
        linear, tanh = (late.sel(network=name) for name in ("linear", "tanh"))
        drawn = linear.sel(batch=list(self.sizes))
        sharp = tanh["sharpness"].values
        return {
            "linear network: largest distance of the interaction from 2/lr": at_most(
                np.abs(drawn["interaction"] - 1), 0.12
            ),
            "linear network: largest sharpness lr/2": at_most(drawn["sharpness"], 0.9),
            "tanh, all samples: sharpness lr/2": within(sharp[-1], 0.97, 1.05),
            "tanh: least growth of the sharpness from one size of batches to the next": at_least(np.diff(sharp), 0),
            "tanh: largest batch sharpness lr/2 of batches": at_most(tanh["batch_sharpness"][:-1], 1.1),
            "tanh, smallest batches: sharpness lr/2": at_most(sharp[0], 0.9),
        }


@eqx.filter_jit
def _spread(problem: Problem, state: State) -> Any:
    """Var u^T H_i u over the samples, u the top eigenvector of the Hessian."""
    u = jnp.linalg.eigh(hessian_matrix(state, problem))[1][:, -1]
    direction = eqx.combine(ravel_pytree(state.trained())[1](u), state)

    def one(sample: Any) -> Any:
        view, own = state.on_samples(problem, sample.inputs[None], sample.labels[None])
        along = eqx.combine(direction.trained(), view)
        return jnp.vdot(u, ravel_pytree(hessian_product(view, own, along).trained())[0])

    return jnp.var(jax.lax.map(one, state.sampled(problem)))


class FlowsReal(Experiment):
    """Training on images beside its prediction. Descent at the edge (dots are steps, the line their mean over `window`
    steps), the rod, and descent with a tenth of the learning rate, which stays below the edge and stands for gradient
    flow. The rod predicts the mean loss, holds the sharpness where descent does, and stays near the mean weights, from
    which the flow departs.
    """

    place = "no paper's"
    title = "The rod beside training: loss, sharpness, and mean weights on Fashion-MNIST"
    quick = {"images": "digits", "lr": 0.6}
    minutes = {"quick": 0.5, "paper": 0.8}

    images: Literal["fashion", "mnist", "digits"] = Field(
        default="fashion", description="Set of images; digits (of scikit-learn) need no files."
    )
    n: int = Field(default=200, ge=20, le=10_000, description="Images.")
    width: int = Field(default=32, ge=2, le=2000, description="Hidden neurons, with tanh.")
    lr: float = Field(default=0.45, gt=0, le=10, description="Learning rate; samples have mean square 9.")
    steps: int = Field(default=1500, ge=600, le=100_000, description="Steps.")
    window: int = Field(default=200, ge=20, le=300, description="Steps over which both curves are averaged.")

    def missing(self) -> str | None:
        lacks = missing(self.images)
        return lacks and f"{lacks.removesuffix('.')}; --set images=digits needs no files."

    def _made(self) -> tuple[Problem, State]:
        """Standardized images in a basis of their span, which changes nothing, scaled to a mean square of 9."""
        images = load(self.images).subset(self.n, seed=self.seed)
        x = images.standardized()
        u, s, _ = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
        x = (u * s)[:, s > 1e-9 * s[0]]
        x *= 3 / np.sqrt(np.mean(np.sum(x**2, axis=1)))
        problem = supervised(images.one_hot(), "half squares", average="samples")
        return problem, mlp(self.seed, x, (self.width, 10), activation="tanh", bias=True)

    def _windows(self) -> np.ndarray:
        """Pairs of consecutive steps, ten steps apart, in each window: windows x steps."""
        first = np.arange(self.steps // self.window)[:, None, None] * self.window
        return (first + np.arange(0, self.window - 1, 10)[:, None] + np.arange(2)).reshape(len(first), -1)

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        problem, initial = self._made()
        runs: dict[str, tuple[Dynamics, int]] = {
            "descent": (SGD(self.lr), 1),
            "rod": (RodFlow(jnp.asarray(self.lr)), 1),
            "flow": (SGD(self.lr / 10), 10),
        }
        windows, count = self._windows(), self.steps // 10 * 10
        found: dict[str, Any] = {}
        centers = {}
        for name, (dynamics, factor) in tracked(list(runs.items()), progress):
            observed: dict[str, Any] = {"loss": predicted_loss if name == "rod" else loss}
            observed["curvature"] = only(curvature(), every(10 * factor))
            run = simulate(problem, initial, dynamics, steps=count * factor, observe=observed, record=every(factor))
            found[f"{name}_loss"] = ("step", np.asarray(run["loss"]))
            edge = np.asarray(run["curvature_top"])[::10] * self.lr / 2
            found[f"{name}_sharpness"] = ("measured", edge)
            steps = factor * windows
            followed = simulate(
                problem,
                initial,
                dynamics,
                steps=int(steps[-1, -1]),
                observe={"weights": _weights},
                record=at(steps.ravel()),
            )
            centers[name] = np.asarray(followed["weights"]).reshape(*steps.shape, -1).mean(axis=1)
        for name in ("rod", "flow"):
            found[f"{name}_distance"] = ("window", np.linalg.norm(centers[name] - centers["descent"], axis=1))
        found["moved"] = ("window", np.linalg.norm(centers["descent"] - _weights(initial, problem), axis=1))
        coords = {"step": np.arange(count + 1), "measured": np.arange(0, count + 1, 10)}
        return xarray.Dataset(found, coords=coords | {"window": windows.mean(axis=1)})

    def mean_losses(self, data: xarray.Dataset) -> xarray.Dataset:
        """Means over whole windows of steps."""
        whole = (data.sizes["step"] - 1) // self.window
        kept = data[["descent_loss", "rod_loss", "flow_loss"]].isel(step=slice(whole * self.window))
        return kept.coarsen(step=self.window).mean()

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        means = self.mean_losses(data)
        descent, rod, flow = (means[f"{name}_loss"].values for name in ("descent", "rod", "flow"))
        at_edge = data["descent_sharpness"].values >= 0.98
        reached = data["measured"].values[int(np.argmax(at_edge))] if at_edge.any() else np.inf
        late = np.arange(len(descent)) * self.window >= reached
        found = {"descent reaches the edge: step": at_most(reached, self.steps / 2)}
        if late.sum() < 2:
            return found
        errors = np.abs(rod / descent - 1)[late]
        sharp = data["rod_sharpness"].values[data["measured"].values >= reached + self.window]
        distance = (data["rod_distance"] / data["flow_distance"]).values
        return found | {
            "mean loss from there on: median error of the rod": at_most(np.median(errors), 0.1),
            "the same of the flow, over the rod's": at_least(
                np.median(np.abs(flow / descent - 1)[late]) / np.median(errors),
                1.2,
                band="three standard deviations over three seeds",
            ),
            "sharpness lr/2 along the rod: median": within(np.median(sharp), 0.97, 1.06),
            "mean weights at the end: distance of the rod over that of the flow": at_most(distance[-1], 0.35),
        }


def _weights(state: State, problem: Problem) -> Any:
    return ravel_pytree(state.trained())[0]
