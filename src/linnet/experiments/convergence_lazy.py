"""Lazy and non-local starts of "Training Linear Neural Networks: Non-Local Convergence and Complexity Results": how far
the kernel and the weights move from starts of every size, direction, and depth.
"""

from pathlib import Path
from typing import Annotated, Any, Self

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float
from pydantic import Field, model_validator

from linnet import observe
from linnet.claims import Finding, at_least, at_most
from linnet.experiments.experiment import Ascending, Experiment, Progress, along
from linnet.init import balanced
from linnet.observe import Observable, ObservationContext
from linnet.optim import GradientFlow
from linnet.problems import Problem, factorization
from linnet.record import linear
from linnet.simulation import simulate
from linnet.states import State, Weights

_TIME = 30.0  # in units of 1 / (n z^(2-2/L)), the rate in the end
_RESOLVED = 1e-3  # changes below are compared by their difference, larger ones by their ratio


def _first(problem: Problem, initial: State) -> State:
    return initial


def _weights_moved(context: ObservationContext) -> Float[Array, ""]:
    """|W - W_0| / |W_0| over all layers."""
    now, then = (jax.tree.leaves(state.trained()) for state in (context.state, context.prepared))
    moved = sum(jnp.sum((a - b) ** 2) for a, b in zip(now, then, strict=True))
    return jnp.sqrt(moved / sum(jnp.sum(b**2) for b in then))


def _target_missed(state: Any, problem: Any) -> Float[Array, ""]:
    return jnp.linalg.norm(state.matrix - problem.target)


def _cosine(data: xarray.Dataset) -> xarray.DataArray:
    return xarray.DataArray(np.cos(np.radians(data["angle"])))


_OBSERVED = {
    "kernel": observe.kernel_drift,
    "travel": Observable("travel", _weights_moved, None, _first),
    "distance": Observable.from_function("distance", _target_missed, ()),
}


class NonlocalLazy(Experiment):
    """Balanced networks of one output from starts s v, by their size s over that of the target and the angle between
    them, until they have learned the target. Colors are how far the tangent kernel moves. Starts near the target are
    lazy (dashed: kappa, the factor of lazy training, is 0.1), those of the theorem (white: its set for one alpha) need
    not be: from ten times the target and farther the kernel loses nine tenths and more, while the weights of a deep
    network move little.
    """

    place = "section 4, text after Theorem 20, and Appendix J (no figure in the paper)"
    title = "Lazy and non-local starts: how far the kernel moves"
    quick = {"depths": (2, 3, 6), "scales": 25, "angles": 18}
    minutes = {"quick": 0.2, "paper": 0.8}

    d: int = Field(default=5, ge=2, le=50, description="Inputs; one output.")
    depths: Ascending[Annotated[int, Field(ge=2, le=20)]] = Field(
        default=(2, 3, 4, 5, 6, 8, 10), min_length=2, description="Layers, ascending."
    )
    depth: int = Field(default=3, ge=2, le=20, description="Layers of the map; one of them.")
    largest: float = Field(default=30.0, ge=10, le=100, description="Sizes go from one over this up to it.")
    scales: int = Field(default=61, ge=5, le=401, description="Sizes, an odd number.")
    angles: int = Field(default=35, ge=3, le=171, description="Angles from 0 on, below 90 degrees.")
    alpha: float = Field(default=0.5, gt=0, lt=1, description="The theorem's set N_alpha: s > alpha z_1, ab > alpha.")
    kappa: float = Field(default=0.1, gt=0, lt=0.3, description="Lazy are starts whose factor kappa is at most this.")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.depth not in self.depths:
            raise ValueError(f"depth = {self.depth} must be one of depths = {self.depths}")
        if self.scales % 2 == 0:
            raise ValueError(f"scales = {self.scales} must be odd, so that the size of the target is among them")
        return self

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        scales = np.geomspace(1 / self.largest, self.largest, self.scales)
        angles = np.linspace(0, 90, self.angles, endpoint=False)
        frame, _ = np.linalg.qr(np.random.default_rng(self.seed).normal(size=(self.d, 2)))
        goal, side = frame.T
        problem = factorization(goal[None])  # z = 1 and n = 1: nothing measured depends on them
        turn = np.radians(angles)[:, None, None]
        initializations = scales[:, None] * (np.cos(turn) * goal + np.sin(turn) * side)

        def one(state: Weights) -> Any:
            flow = GradientFlow(rtol=1e-9)
            return simulate(problem, state, flow, time=_TIME, record=linear(7), observe=_OBSERVED).values

        def moved(depth: int) -> dict[str, Any]:
            states = [balanced(a[None], (1,) * (depth - 1), rank=1) for a in initializations.reshape(-1, self.d)]
            runs = jax.vmap(one)(jax.tree.map(lambda *leaves: jnp.stack(leaves), *states))
            kernel, travel, distance = (
                np.asarray(runs[name]).reshape(self.angles, self.scales, -1) for name in _OBSERVED
            )
            dims = ("angle", "scale")
            return {
                "kernel": (dims, kernel[..., -1], {"long_name": "Change of the tangent kernel over its initial norm"}),
                "travel": (dims, travel[..., -1], {"long_name": "Change of the weights over their initial norm"}),
                "distance": (dims, distance[..., -1], {"long_name": "Distance from the target over its norm"}),
                "largest_kernel": (
                    dims,
                    kernel.max(axis=-1),
                    {"long_name": "Largest change of the tangent kernel on the way"},
                ),
            }

        return along("depth", self.depths, moved, progress).assign_coords(angle=angles, scale=scales)

    # In closed form --------------------------------------------------------------------------------------------------

    def kernel_change(self, data: xarray.Dataset) -> xarray.DataArray:
        """|K - K_0| / |K_0| from s v to the target q of norm 1.

        The kernel at s v is s^e [I + (L-1) v v^T], e = 2 - 2/L, and |K|^2 = s^2e (d - 1 + L^2).
        """
        depth, ratio = data["depth"], data["scale"] ** (2 / data["depth"] - 2)
        square = (depth - 1) ** 2 * (1 - _cosine(data) ** 2) / (self.d - 1 + depth**2)
        return ((ratio - 1) ** 2 + 2 * ratio * square) ** 0.5

    def weight_change(self, data: xarray.Dataset) -> xarray.DataArray:
        """|W - W_0| / |W_0|: L - 1 layers go from s^(1/L) to 1, and the first turns to q too."""
        depth, size = data["depth"], data["scale"] ** (1 / data["depth"])
        rotation = 2 * size * (1 - _cosine(data))
        return ((depth * (size - 1) ** 2 + rotation) / depth) ** 0.5 / size

    def laziness(self, data: xarray.Dataset) -> xarray.DataArray:
        """The factor kappa of lazy training, |A_0 - Z| |D^2 A| / |DA|^2 (Chizat, Oyallon, and Bach, Equation (1)).

        At a balanced start of norm s, |DA|^2 = L s^(2-2/L) and |D^2 A| = (L-1) s^(1-2/L), so that it is
        (1 - 1/L) |A_0 - Z| / |A_0|.
        """
        return (1 - 1 / data["depth"]) * self.distances(data) / data["scale"]

    def distances(self, data: xarray.Dataset) -> xarray.DataArray:
        """|A_0 - Z| / |Z|."""
        square = data["scale"] ** 2 - 2 * data["scale"] * _cosine(data) + 1
        return square.clip(min=0) ** 0.5

    def in_theorem(self, data: xarray.Dataset) -> xarray.DataArray:
        """The theorem's set N_alpha; for one output the spectral gap gamma is 0 and ab is the cosine."""
        return (data["scale"] > self.alpha) & (_cosine(data) > self.alpha)

    def closed(self, data: xarray.Dataset) -> xarray.Dataset:
        """All of these between the sizes and angles of the networks, for the figure."""
        sizes = np.geomspace(1 / self.largest, self.largest, 401)
        fine = xarray.Dataset(coords={"depth": data["depth"], "angle": np.linspace(0, 90, 361), "scale": sizes})
        found = {
            "kernel": self.kernel_change(fine),
            "travel": self.weight_change(fine),
            "laziness": self.laziness(fine),
            "distance": self.distances(fine),
        }
        return xarray.Dataset(found).transpose("depth", "angle", "scale")

    def _lazy_bound(self, depth: xarray.DataArray) -> xarray.DataArray:
        """The most that the kernel can change from a lazy start.

        With delta = kappa L / (L-1), |A_0 - Z| <= delta |A_0| means |Z| / |A_0| <= 1 + delta and sin(angle) <= delta.
        """
        delta = self.kappa * depth / (depth - 1)
        ratio = (1 + delta) ** (2 - 2 / depth)
        return ((ratio - 1) ** 2 + 2 * ratio * ((depth - 1) * delta) ** 2 / (self.d - 1 + depth**2)) ** 0.5

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        kernel, travel, depth = data["kernel"], data["travel"], data["depth"]
        laziness, inside = self.laziness(data), self.in_theorem(data).broadcast_like(kernel)
        lazy, far = laziness <= self.kappa, inside & (data["scale"] >= 10).broadcast_like(kernel)
        lost = abs(1 - data["scale"] ** (2 / depth - 2)).broadcast_like(kernel)
        shallow = 1 - 1 / self.depths[0]
        delta = self.kappa / (1 - 1 / depth)
        # lazy starts lie in this box of sizes and angles
        box = (data["scale"] >= 1 / (1 + delta)) & (data["scale"] * (1 - delta) <= 1)
        box = box & (_cosine(data) ** 2 >= 1 - delta**2)
        most = (box & inside).sum() / inside.sum()
        weights = travel.where(far).mean(("angle", "scale")).values
        kernels = kernel.where(far).mean(("angle", "scale")).values
        return {
            "every start reaches the target: largest distance in the end": at_most(data["distance"], 1e-6),
            "kernel: largest gap between networks and the closed form": at_most(
                self._gap(kernel, self.kernel_change(data)), 1e-5
            ),
            "weights: largest gap between networks and the closed form": at_most(
                self._gap(travel, self.weight_change(data)), 1e-5
            ),
            "kernel: smallest change less its bound |1 - (|Z| / |A_0|)^(2-2/L)|": at_least(kernel - lost, -1e-5),
            "the theorem's set, ten times the target and farther: smallest change of the kernel": at_least(
                kernel.where(far, np.inf), 1 - 10 ** (-2 * shallow) - 1e-5
            ),
            "there: smallest factor kappa of lazy training": at_least(
                laziness.where(far, np.inf), 0.9 * shallow - 1e-9
            ),
            "lazy starts: largest share of what the kernel may change": at_most(
                (kernel / self._lazy_bound(depth)).where(lazy, 0.0), 1.0
            ),
            "lazy starts outside of the theorem's set": at_most((lazy & ~inside).sum(), 0),
            "share of the theorem's starts that are not lazy": at_least(
                (inside & ~lazy).sum() / inside.sum(), 1 - float(most) - 1e-9
            ),
            "ten times the target and farther: the kernel moves more with depth, smallest ratio": at_least(
                kernels[1:] / kernels[:-1], 1.0
            ),
            "the weights move less with depth, largest ratio": at_most(weights[1:] / weights[:-1], 1.0),
        }

    def _gap(self, measured: xarray.DataArray, exact: xarray.DataArray) -> Float[np.ndarray, "depth angle scale"]:
        theory = exact.transpose(*measured.dims).values
        return np.asarray(np.abs(measured.values - theory) / np.maximum(theory, _RESOLVED))
