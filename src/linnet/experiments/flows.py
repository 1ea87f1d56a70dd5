"""Figures of averages at the edge of stability: the central flow and the rod beside descent."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jax.flatten_util import ravel_pytree
from pydantic import Field

from linnet import maps
from linnet.claims import Finding, at_least, at_most
from linnet.data import scored_classes
from linnet.experiments.experiment import Experiment, Progress, tracked
from linnet.networks import mlp
from linnet.observe import curvature, loss, only, oscillation, predicted_loss
from linnet.optim import SGD, AveragedDescent, CentralFlow, Dynamics, GradientFlow, RodFlow
from linnet.problems import factorization, supervised
from linnet.record import at, every, linear
from linnet.simulation import simulate
from linnet.states import State, Weights
from linnet.theory import flows


class EdgeOfNetwork(Experiment):
    """Descent at the edge beside three flows, on a network with tanh. Left, the mean loss: of descent over windows of
    steps, and what the central flow and the rod predict; gradient flow departs. Middle, the sharpness in units of 2/lr:
    the central flow stays on it, the rod and descent move around it. Right, the distance of the mean weights from those
    of descent, over windows. The loss is judged by its mean over the whole run (over ten draws at most .7 % off, the
    distance at most .33 of gradient flow's): descent's bursts are as long as a window, and the mean loss of single
    windows is up to half off.
    """

    id = "flows/edge"
    place = "after Cohen, Damian et al. 2025"
    title = "Descent at the edge, the central flow, the rod, and gradient flow"
    quick = {"steps": 1000}
    minutes = {"quick": 0.5, "paper": 0.8}

    lr: float = Field(default=0.25, gt=0, le=0.3, description="Learning rate.")
    steps: int = Field(default=1600, ge=400, le=20_000, description="Steps.")
    window: int = Field(default=200, ge=20, le=400, description="Steps over which curves are averaged.")
    width: int = Field(default=32, ge=2, le=500, description="Hidden neurons.")

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        inputs, labels = scored_classes(np.random.default_rng(self.seed), 100, 20, 3)
        problem = supervised(labels, "half squares", average="samples")
        initial = mlp(self.seed, inputs, (self.width, 3), activation="tanh", bias=True)
        runs: dict[str, Dynamics] = {
            "descent": SGD(self.lr),
            "stable": GradientFlow(1e-7),
            "central": CentralFlow(self.lr),
            "rod": RodFlow(self.lr),
        }
        count = self.steps // self.window * self.window
        rows: dict[str, list[np.ndarray]] = {"loss": [], "sharpness": []}
        found: dict[str, Any] = {}
        centers = []
        for name, dynamics in tracked(list(runs.items()), progress):
            averaged = isinstance(dynamics, AveragedDescent)
            observed: dict[str, Any] = {"mean_loss": predicted_loss if averaged else loss, "weights": _weights}
            if averaged:
                observed |= {"cost": loss, "oscillation": oscillation}
            horizon: dict[str, Any] = {"steps": count, "record": every(1)}
            if name == "stable":
                horizon = {"time": self.lr * count, "record": linear(count + 1)}
            else:
                observed["curvature"] = only(curvature(), every(10))
            run = simulate(problem, initial, dynamics, observe=observed, **horizon)
            rows["loss"].append(np.asarray(run["mean_loss"]))
            top = np.full(count // 10 + 1, np.nan) if name == "stable" else np.asarray(run["curvature_top"])[::10]
            rows["sharpness"].append(top * self.lr / 2)
            centers.append(self._means(np.asarray(run["weights"])))
            if averaged:
                found[f"{name}_cost"] = ("step", np.asarray(run["cost"]))
                found[f"{name}_oscillation"] = ("step", np.asarray(run["oscillation"]))
        distance = np.linalg.norm(np.array(centers) - centers[0], axis=2)
        found |= {
            "loss": (("run", "step"), np.array(rows["loss"])),
            "sharpness": (("run", "measured"), np.array(rows["sharpness"])),
            "distance": (("run", "window"), distance),
        }
        measured, steps = np.arange(0, count + 1, 10), np.arange(count + 1)
        middles = (np.arange(count // self.window) + 0.5) * self.window
        return xarray.Dataset(found, coords={"run": list(runs), "step": steps, "measured": measured, "window": middles})

    def _means(self, values: np.ndarray) -> np.ndarray:
        """Means over windows of steps, the initial one left out."""
        return values[1:].reshape(-1, self.window, *values.shape[1:]).mean(axis=1)

    def mean_losses(self, data: xarray.Dataset) -> xarray.DataArray:
        """Mean losses of windows."""
        means = np.array([self._means(row) for row in data["loss"].values])
        return xarray.DataArray(means, dims=("run", "window"), coords={name: data[name] for name in ("run", "window")})

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        means = self.mean_losses(data)
        whole = means.mean("window")
        errors = abs(whole / whole.sel(run="descent") - 1)
        end = data["distance"].isel(window=-1)
        held = data["central_oscillation"].values > 0
        if held.sum() < self.steps / 4:  # this draw reaches the edge late
            before = data["loss"].isel(step=slice(0, int(np.argmax(held)) if held.any() else None))
            off = np.abs(before.sel(run="central") / before.sel(run="descent") - 1)
            return {"loss below the edge, central flow: relative error": at_most(off, 1e-9)}
        edge = data["sharpness"].sel(run="central").values[held[::10]]
        cost = data["central_cost"].values
        rises = np.diff(cost)[held[1:]] / cost[:-1][held[1:]]
        found = {
            "central flow: largest distance of the sharpness from 2/lr, over 2/lr": at_most(np.abs(edge - 1), 3e-3),
            "central flow at the edge: largest relative rise of the cost in a step": at_most(rises, 1e-6),
        }
        for name in ("central", "rod"):
            apart = end.sel(run=name) / end.sel(run="stable")
            found |= {
                f"mean loss of the run, {name}: relative error": at_most(errors.sel(run=name), 0.06),
                f"the same over that of gradient flow, {name}": at_most(
                    errors.sel(run=name) / errors.sel(run="stable"), 0.5
                ),
                f"end, {name}: distance over that of gradient flow": at_most(apart, 0.5),
            }
        return found


class ModeOnAverage(Experiment):
    """Variance of the layer value of one balanced mode at and beyond the edge, and its mean loss, over kappa = lr S, in
    units of those of the exact 2-cycle. Lines: the central flow, also with the fourth derivative in its threshold, from
    theory; dots: simulated central flow and rod; gray: descent. The rod is exact as long as it settles. Descent leaves
    its 2-cycle where periods double, and in chaos none of them describes it.
    """

    id = "flows/modes"
    place = "no paper's"
    title = "One mode beyond the edge: central flow, rod, and the exact 2-cycle"
    quick = {"depths": (2, 3), "count": 12, "steps": 2000}
    minutes = {"quick": 0.5, "paper": 0.8}

    depths: tuple[int, ...] = Field(default=(2, 3, 4), min_length=1, max_length=4, description="Numbers of layers.")
    count: int = Field(default=48, ge=6, le=1000, description="Values of kappa, from 2.02 to 3.")
    steps: int = Field(default=4000, ge=500, le=100_000, description="Steps of each run.")

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        kappas = np.linspace(2.02, 3.0, self.count)
        rows: dict[str, list[list[np.ndarray]]] = {}
        for depth in tracked(self.depths, progress):
            values = {
                "exact": flows.exact_mode(depth, kappas)[1:],
                "central": flows.central_mode(depth, kappas)[1:],
                "corrected": flows.central_mode(depth, kappas, corrected=True)[1:],
                "rod run": _settled(RodFlow, depth, kappas, self.steps),
                "central run": _settled(CentralFlow, depth, kappas, self.steps),
                "descent": _descended(depth, kappas, self.steps),
            }
            for name, (variance, cost) in values.items():
                rows.setdefault(name, []).append([np.asarray(variance), np.asarray(cost)])
        table = np.array(list(rows.values()))
        return xarray.Dataset(
            {name: (("flow", "depth", "kappa"), table[:, :, i]) for i, name in enumerate(("variance", "loss"))},
            coords={"flow": list(rows), "depth": list(self.depths), "kappa": kappas},
        )

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        ratio = data / data.sel(flow="exact")
        settled, tame = ratio.sel(kappa=slice(None, 2.8)), ratio.sel(kappa=slice(None, 2.4))
        found: dict[str, Finding] = {}
        for depth in self.depths:
            one, first = settled.sel(depth=depth), float(data["kappa"][0])
            theory = data.sel(flow="central", depth=depth, kappa=slice(None, 2.8))
            simulated = data.sel(flow="central run", depth=depth, kappa=slice(None, 2.8))
            off = {what: np.abs(one[what].sel(flow="rod run") - 1) for what in ("variance", "loss")}
            found |= {
                f"{depth} layers: the rod against the 2-cycle, variance up to kappa = 2.8": at_most(
                    off["variance"], 1e-9
                ),
                f"{depth} layers: the rod against the 2-cycle, loss": at_most(off["loss"], 1e-9),
                f"{depth} layers: the simulated central flow against theory": at_most(
                    np.abs(simulated["variance"] / theory["variance"] - 1), 1e-8
                ),
                f"{depth} layers: central over exact variance at kappa = {first:.3g}, from that at 2": at_most(
                    abs(float(one["variance"].sel(flow="central")[0]) - flows.mode_ratio(depth)), 1e-3
                ),
                f"{depth} layers: descent against its 2-cycle up to kappa = 2.4": at_most(
                    np.abs(tame["variance"].sel(flow="descent", depth=depth) - 1), 1e-6
                ),
                f"{depth} layers: the corrected central flow up to kappa = 2.4, variance": at_most(
                    np.abs(tame["variance"].sel(flow="corrected", depth=depth) - 1), 0.02
                ),
                f"{depth} layers, chaos: largest distance of descent's variance from that of the 2-cycle": at_least(
                    np.abs(ratio["variance"].sel(flow="descent", depth=depth, kappa=slice(2.65, None)) - 1).max(), 0.1
                ),
            }
        return found


def _mode(depth: int) -> tuple[Any, Weights]:
    """A balanced mode of size 1, a little below its minimum: kappa is the depth times the learning rate."""
    return factorization(np.ones((1, 1))), Weights([np.full((1, 1), 0.9)] * depth)


def _settled(flow: Any, depth: int, kappas: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Variance of a layer and predicted loss where runs with these kappas end."""
    problem, initial = _mode(depth)

    def end(lr: Any) -> tuple[Any, Any]:
        run = simulate(
            problem, initial, flow(lr), steps=steps, observe=[predicted_loss, oscillation], record=at([0, steps])
        )
        return run["oscillation"][-1] / depth, run["predicted_loss"][-1]

    variance, cost = jax.vmap(end)(jnp.asarray(kappas / depth))
    return np.asarray(variance), np.asarray(cost)


def _descended(depth: int, kappas: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Variance and mean loss of descent's last 2000 steps."""
    values = np.asarray(maps.orbits(maps.balanced(depth), 0.9, kappas, skip=20 * steps, keep=2000).values)
    return np.var(values, axis=1), np.mean((1 - values**depth) ** 2, axis=1) / 2


class Mirror(Experiment):
    """A start beyond the edge on the minima x y = 1, without progressive sharpening: a catapult. Left, the sharpness in
    time for one excess over 2/lr. Right, the final excess over the initial one, over the edge: descent and the rod end
    mirrored, the central flow, which leaves out the oscillation's own energy, at 0.
    """

    id = "flows/catapult"
    place = "no paper's"
    title = "Catapults: the final sharpness mirrors the initial one"
    quick = {"excesses": (0.01, 0.02, 0.05, 0.1)}
    minutes = {"quick": 0.3, "paper": 0.4}

    lr: float = Field(default=0.3, gt=0, le=0.9, description="Learning rate.")
    excesses: tuple[float, ...] = Field(
        default=(0.005, 0.01, 0.02, 0.05, 0.1, 0.2), min_length=2, max_length=20, description="Initial S lr/2 - 1."
    )
    kick: float = Field(default=1e-3, gt=0, le=0.1, description="Distance of the start from the minimum.")
    steps: int = Field(default=6000, ge=500, le=10**6, description="Steps.")

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        excesses = np.array(self.excesses)
        sharpness = (1 + excesses) * 2 / self.lr
        y = np.sqrt((sharpness + np.sqrt(sharpness**2 - 4)) / 2)  # x^2 + y^2 = S and x y = 1
        initializations = jnp.asarray(np.stack([1 / y + self.kick, y], axis=1))
        problem = factorization(np.ones((1, 1)))

        def followed(flow: Any, initial: Any) -> Any:
            state = Weights([initial[:1, None], initial[1:, None]])
            run = simulate(problem, state, flow(self.lr), steps=self.steps, observe={"s": _squares}, record=every(5))
            return run["s"] * self.lr / 2 - 1

        kinds = {"descent": SGD, "rod": RodFlow, "central": CentralFlow}
        rows = [
            np.asarray(jax.vmap(lambda initial, kind=kind: followed(kind, initial))(initializations))
            for kind in tracked(list(kinds.values()), progress)
        ]
        slope = 4 * (sharpness**2 - 4) / sharpness  # |grad S|^2 along the minima
        predicted = flows.catapult(sharpness - 2 / self.lr, slope).final * self.lr / 2
        return xarray.Dataset(
            {"excess": (("flow", "initial", "step"), np.array(rows)), "law": ("initial", np.asarray(predicted))},
            coords={"flow": list(kinds), "initial": excesses, "step": np.arange(0, self.steps + 1, 5)},
        )

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        end = data["excess"].isel(step=-1)
        ratio = end / data["law"]
        return {
            "descent: final excess over the mirror law, minus 1, over the initial excess": at_most(
                np.abs(ratio.sel(flow="descent") - 1) / (data["initial"] + 0.01), 1.3
            ),
            "rod: final excess over the mirror law, minus 1": at_most(np.abs(ratio.sel(flow="rod") - 1), 0.02),
            "central flow: final distance from the edge": at_most(np.abs(end.sel(flow="central")), 1e-3),
            "smallest fall of descent below the edge, over the initial excess": at_least(
                (-end.sel(flow="descent") / data["initial"]).min(), 0.9
            ),
        }


def _squares(state: Any, problem: Any) -> Any:
    """x^2 + y^2, the curvature of a mode of two layers at its minimum."""
    return sum(jnp.sum(layer**2) for layer in state.layers)


def _weights(state: State, problem: Any) -> Any:
    return ravel_pytree(state.trained())[0]
