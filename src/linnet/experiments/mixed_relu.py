"""Mixed regimes of ReLU networks, which the paper on mixed dynamics, section 3, asks for: a measurement."""

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float
from pydantic import Field, PositiveFloat, model_validator

from linnet.claims import Finding, at_least, at_most
from linnet.experiments.experiment import Ascending, Descending, Experiment, Progress, along
from linnet.observe import Observable
from linnet.optim import SGD
from linnet.problems import factorization
from linnet.record import every
from linnet.simulation import simulate
from linnet.states import ReluNetwork, Weights
from linnet.theory.regime import LAZY_BELOW

KINDS = ("linear network", "ReLU network", "ReLU network, ReLU teacher")
# Three standard deviations and more beyond the mean of ten independent runs of two draws at quick size:
_RATIOS = (1.4, 1.4, 2.2)  # of growth to the law, by kind
_LEARNED, _ACTIVE = 0.7, 2.0  # share of a mode, and growth of the kernel along an active one


class _Draw(NamedTuple):
    """White inputs as rows, singular vectors of the target, and normal layers."""

    inputs: Float[np.ndarray, "n d"]
    left: Float[np.ndarray, "d k"]
    right: Float[np.ndarray, "d k"]
    first: Float[np.ndarray, "w d"]
    second: Float[np.ndarray, "d w"]


def _along(state: Any, force: Float[Array, "d _"]) -> Float[Array, ""]:
    """The tangent kernel in a direction, |J^T force|^2."""
    return jnp.sum(jnp.stack([jnp.sum(leaf**2) for leaf in jax.tree.leaves(state.vjp(force).trained())]))


class MixedRelu(Experiment):
    """Two-layer networks of three kinds learn singular values s_k from initializations of several scales: how much the
    tangent kernel and the first layer's Gram matrix grow along each mode until it is learned. In linear networks it is
    the mixed law sqrt(1 + (s/c)^2) with c = variance * width (line). With ReLU the same law is measured with c/2, also
    for a ReLU teacher: in one network large values are active and small ones lazy. No theorem says so.
    """

    place = "section 3 (no figure in the paper)"
    title = "ReLU networks have mixed regimes too"
    quick = {"samples": 256, "width": 256, "draws": 2}
    minutes = {"quick": 0.2, "paper": 1}

    d: int = Field(default=8, ge=3, le=50, description="Inputs, and as many outputs.")
    values: Descending[PositiveFloat] = Field(default=(4.0, 1.0, 0.25), min_length=2, description="Modes, descending.")
    scales: Ascending[PositiveFloat] = Field(
        default=(0.0625, 0.25, 0.5, 1.0, 4.0, 16.0),
        min_length=3,
        description="c of the linear networks and c/2 of those with ReLU, ascending.",
    )
    samples: int = Field(default=512, ge=32, le=4096, description="White inputs of the ReLU networks.")
    width: int = Field(default=512, ge=16, le=10_000, description="Hidden neurons.")
    draws: int = Field(default=4, ge=1, le=100, description="Draws of data, target, and initialization.")
    steps: int = Field(default=800, ge=100, le=100_000, description="Steps of gradient descent.")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if len(self.values) > self.d:
            raise ValueError(f"values = {self.values} must be at most d = {self.d} numbers")
        if self.samples < 4 * self.d:
            raise ValueError(f"samples = {self.samples} must be at least 4 d = {4 * self.d}")
        return self

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        drawn = [self._draw(draw) for draw in range(self.draws)]
        stacked = jax.tree.map(lambda *parts: jnp.stack(parts), *drawn)
        data = along("kind", KINDS, lambda kind: self._trained(kind, stacked), progress)
        return data.assign_coords(scale=list(self.scales), mode=list(self.values))

    def _draw(self, draw: int) -> _Draw:
        rng, k = np.random.default_rng([self.seed, draw]), len(self.values)
        u, _, vt = np.linalg.svd(rng.normal(size=(self.samples, self.d)), full_matrices=False)
        left, right = (np.linalg.qr(rng.normal(size=(self.d, self.d)))[0][:, :k] for _ in range(2))
        layers = rng.normal(size=(self.width, self.d)), rng.normal(size=(self.d, self.width))
        return _Draw(u @ vt, left, right, *layers)  # X^T X = I: white inputs divided by sqrt(n)

    def _trained(self, kind: str, drawn: _Draw) -> dict[str, Any]:
        """Growth and learned shares at the end of training."""
        values, nonlinear = jnp.asarray(self.values), kind != KINDS[0]
        # of relu(X W_1^T) a half is linear: W_2 W_1 / 2 is learned, and its kernel is (C1 + C2) / 4
        gain, speed = (2.0, 1.0) if nonlinear else (1.0, 2.0)

        def one(draw: _Draw, scale: Any) -> Any:
            forces = jnp.einsum("ik,jk->kij", draw.left, draw.right)
            target = (draw.left * values) @ draw.right.T
            if nonlinear:
                target, forces = target @ draw.inputs.T, forces @ draw.inputs.T
            if kind == KINDS[2]:  # of 2 relu(v x) the linear part is v x on symmetric inputs
                target = 2 * (draw.left * values) @ jnp.maximum(draw.right.T @ draw.inputs.T, 0)

            def measure(state: Any, problem: Any) -> Any:
                parts = jnp.sum(state.matrix * forces, axis=(1, 2)), jax.vmap(partial(_along, state))(forces)
                return jnp.stack([*parts, jnp.sum((state.layers[0] @ draw.right) ** 2, axis=0)])

            deviation = jnp.sqrt(gain * scale / self.width)
            layers = deviation * draw.first, deviation * draw.second
            state = ReluNetwork(*layers, draw.inputs) if nonlinear else Weights(layers)
            fastest = speed * jnp.hypot(scale, self.values[0])
            lr = jnp.minimum(6 / (speed * scale) / self.steps, 0.5 / fastest)  # e^-6 of a lazy mode is left
            observed = {"measured": Observable.from_function("measured", measure, ("part", "mode"))}
            record = every(self.steps)
            run = simulate(factorization(target), state, SGD(lr), steps=self.steps, record=record, observe=observed)
            return run["measured"], jnp.sum(target * forces, axis=(1, 2))  # and of the target along each mode

        scales = jnp.asarray(self.scales)
        measured, part = jax.vmap(lambda draw: jax.vmap(partial(one, draw))(scales))(drawn)
        (_, kernel0, gram0), (learned, kernel, gram) = np.moveaxis(np.asarray(measured), (2, 3), (0, 1))
        dims = ("draw", "scale", "mode")
        return {
            "kernel": (dims, kernel / kernel0, {"long_name": "Growth of the tangent kernel along the mode"}),
            "gram": (dims, gram / gram0, {"long_name": "Growth of C1 along the mode"}),
            "learned": (dims, learned / np.asarray(part), {"long_name": "Share of the mode that is learned"}),
        }

    def law(self, data: xarray.Dataset) -> xarray.DataArray:
        """The growth of a mode in a wide linear network, sqrt(1 + (s/c)^2)."""
        square: xarray.DataArray = (data["mode"] / data["scale"]) ** 2
        return ((1 + square) ** 0.5).transpose("scale", "mode")

    @property
    def middle(self) -> float:
        """The scale between the largest and the smallest value."""
        wanted = float(np.log(self.values[0] * self.values[-1]) / 2)
        return min(self.scales, key=lambda scale: abs(float(np.log(scale)) - wanted))

    @property
    def _as_measured(self) -> bool:
        """Whether modes, scales, and dimension are those for which the ranges were measured."""
        given = type(self)()
        return (self.d, self.values, self.scales) == (given.d, given.values, given.scales)

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        law, found = self.law(data), {}
        for kind, most in zip(KINDS, _RATIOS, strict=True):
            part = data.sel(kind=kind)
            kernel, gram = part["kernel"], part["gram"]
            found[f"{kind}: smallest share of a mode that is learned"] = at_least(part["learned"], _LEARNED)
            if self._as_measured:
                found |= {
                    f"{kind}, smallest scale: all modes are active, smallest growth of the kernel": at_least(
                        kernel.isel(scale=0), _ACTIVE
                    ),
                    f"{kind}, middle scale: the largest mode is active, smallest growth": at_least(
                        kernel.sel(scale=self.middle).isel(mode=0), _ACTIVE
                    ),
                    f"{kind}, middle scale: the smallest mode is lazy, largest growth": at_most(
                        kernel.sel(scale=self.middle).isel(mode=-1), LAZY_BELOW
                    ),
                    f"{kind}, largest scale: all modes are lazy, largest growth": at_most(
                        kernel.isel(scale=-1), LAZY_BELOW
                    ),
                }
                ratio = np.exp(np.abs(np.log(kernel / law)))
                found[f"{kind}: kernel, largest ratio to the law, one way or the other"] = at_most(ratio, most)
                ratio = np.exp(np.abs(np.log(gram / law)))
                found[f"{kind}: C1, largest ratio to the law, one way or the other"] = at_most(ratio, most)
        return found
