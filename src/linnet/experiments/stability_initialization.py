"""Figures about starts and their singular vectors: aligned all the way (3 and 12), and beyond the edge (14 and 15)."""

from pathlib import Path
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array
from pydantic import Field, PositiveFloat, model_validator

from linnet import observe
from linnet._random import with_spectrum
from linnet.claims import THREE, Finding, at_least, at_most, close, near, within
from linnet.experiments.experiment import Descending, Experiment, Progress
from linnet.experiments.stability_shared import (
    Rank5,
    Target,
    check_alphas,
    check_modes_fit,
    check_small,
)
from linnet.init import one_zero, orthogonal, random_one_zero
from linnet.observe import Observable
from linnet.optim import SGD
from linnet.problems import Factorization, factorization
from linnet.record import at, every
from linnet.simulation import simulate
from linnet.states import Weights
from linnet.theory import stability

# Singular vectors (figures 3 and 12) ---------------------------------------------------------------------------------


class StabilityFig3(Target):
    """Singular vectors of the network against those of the target, for small and large steps. From the first step on
    every singular vector of the target is one of the network, whatever the learning rate; only the modes move. Taken in
    the order of the singular values (dotted) vectors seem to jump as soon as modes cross: that is sorting.
    """

    title = "Singular vectors are constant, modes oscillate"
    quick = {"steps": 1500}
    minutes = {"quick": 0.1, "paper": 0.15}

    d: int = Field(default=5, ge=2, le=100, description="Inputs and outputs.")
    kappas: tuple[float, ...] = Field(
        default=(1.5, 2.05, 2.48), min_length=2, max_length=4, description="Steps, in units of 1/S (the edge is at 2)."
    )
    steps: int = Field(default=3000, ge=100, le=10**5, description="Steps.")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        check_modes_fit(self.d, self.spectrum)
        if min(self.kappas) <= 0 or max(self.kappas) > 2.6:
            raise ValueError(f"kappas = {self.kappas} must lie between 0 and 2.6, before rounding noise grows")
        return self

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        problem, u, v = self.matrix(self.d)
        r = len(self.spectrum)

        def one(lr: Any) -> Any:
            initial = one_zero(problem, self.alpha, self.depth)
            optimizer = SGD(lr)
            return simulate(
                problem, initial, optimizer, steps=self.steps, record=every(1), observe=["modes", "matrix"]
            ).values

        values = jax.vmap(one)(jnp.array(self.kappas) / self.edge)
        # A = 0 at initialization has no singular vectors
        left, _, right = np.linalg.svd(np.asarray(values["matrix"])[:, 1:])
        overlaps = np.abs(np.stack([u.T @ left, v.T @ right.swapaxes(-1, -2)]))  # side, kappa, step, target, network
        best = overlaps.max(axis=-1).min(axis=0)
        in_order = overlaps[..., np.arange(r), np.arange(r)].min(axis=0)
        lead = ("kappa", "step")
        return xarray.Dataset(
            {
                "modes": ((*lead, "mode"), np.asarray(values["modes"])[:, 1:, :r]),
                "overlap": ((*lead, "mode"), best),
                "in_order": ((*lead, "mode"), in_order),
            },
            coords={"kappa": list(self.kappas), "step": np.arange(1, self.steps + 1)},
        )

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        found = {}
        for kappa in self.kappas:
            run = data.sel(kappa=kappa)
            modes, expected = run["modes"].values, stability.outcome([kappa], self.depth)[0]
            found[f"κ = {kappa:g}: overlap with the target's vectors, 1 minus the smallest"] = at_most(
                1 - run["overlap"].min(), 1e-12
            )
            orbit = stability.orbit(self.spectrum[0], self.depth, kappa / self.edge)
            if expected.period in (1, 2):
                ends = np.sort(modes[-2:, 0])
                gap = max(abs(ends[0] - orbit.bottom), abs(ends[1] - orbit.top)) / self.spectrum[0]
                found[f"κ = {kappa:g}: first mode in the end, gap from its orbit"] = at_most(gap, 1e-9)
            swapped = float(run["in_order"].isel(step=slice(-2, None)).min())
            if modes[-2:, 0].min() < self.spectrum[1]:
                found[f"κ = {kappa:g}: the same vectors in the order of the values, smallest overlap"] = at_most(
                    swapped, 1e-6
                )
            else:
                found[f"κ = {kappa:g}: no modes cross: overlap in order, 1 minus the smallest"] = at_most(
                    1 - swapped, 1e-12
                )
        return found


class StabilityFig12(Rank5):
    """An orthogonal initialization is aligned from the first step on, and at initialization itself: in the bases
    Q_{l+1} = P_l Q_l all layers are diagonal, to rounding, at every step. Singular vectors computed by an SVD say so
    only once the modes have grown: those of multiples of a rotation are arbitrary.
    """

    place = "Figure 12 (its initialization lies inside the set, not outside)"
    title = "Orthogonal initializations stay aligned"
    quick = {"d": 30}
    minutes = {"quick": 0.2, "paper": 0.6}

    d: int = Field(default=100, ge=2, le=500, description="Dimension of the matrices.")
    alpha: float = Field(default=0.01, gt=0, le=1, description="Scale of the initialization.")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        check_modes_fit(self.d, self.spectrum)
        check_small(self.alpha, self.spectrum[-1])
        if self.steps_needed(self.alpha) > 50_000:
            raise ValueError(f"alpha = {self.alpha:g} must be larger: this initialization leaves the saddle too late")
        return self

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        left, right, turn = jax.random.split(jax.random.key(self.seed), 3)
        rank = len(self.spectrum)
        target, u, v = with_spectrum(left, right, np.pad(self.spectrum, (0, self.d - rank)), self.d)
        problem = factorization(target)
        initial = orthogonal(turn, problem, self.alpha, self.depth)
        frames = [v]
        for layer in initial.layers[:-1]:
            frames.append(layer @ frames[-1] / self.alpha)
        frames.append(u)
        off = 1 - jnp.eye(self.d)

        def deviation(state: Weights, _: Any) -> Array:
            rotated = [up.T @ w @ down for w, down, up in zip(state.layers, frames, frames[1:], strict=False)]
            return jnp.max(jnp.abs(jnp.stack(rotated) * off))

        steps = self.steps_needed(self.alpha)
        observed = {
            "deviation": Observable.from_function("deviation", deviation, ()),
            "distance": observe.subspace_distance(rank),
            "modes": observe.modes,
        }
        points = np.unique(np.append(np.arange(1, 10), np.linspace(0, steps, 151).round()))
        run = simulate(problem, initial, SGD(self.lr), steps=steps, record=at(points), observe=observed, progress=None)
        return xarray.Dataset(
            {
                "deviation": ("step", np.asarray(run["deviation"])),
                "distance": (("step", "junction"), np.asarray(run["distance"])),
                "modes": (("step", "mode"), np.asarray(run["modes"])[:, :rank]),
            },
            coords={"step": np.asarray(run.steps)},
        )

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        goal = np.array(self.spectrum)
        return {
            "largest entry off the diagonal, all steps": at_most(data["deviation"].max(), 1e-12),
            "largest relative distance of a mode from its target in the end": close(
                data["modes"].values[-1], goal, rtol=1e-6
            ),
            "distance of top singular subspaces in the end": at_most(data["distance"].values[-1].max(), 1e-6),
        }


# Initializations beyond the edge (figures 14 and 15)
# --------------------------------------------------------------------------


def _stack(states: list[Any]) -> Any:
    return jax.tree.map(lambda *parts: jnp.stack(parts), *states)


class _Beyond(Experiment):
    """What figures 14 and 15 share: matrices with random singular vectors beyond the edge of stability."""

    d: int = Field(default=10, ge=2, le=200, description="Dimension of the matrices.")
    spectrum: Descending[PositiveFloat] = Field(
        default=(10.0, 8.0, 6.0), min_length=2, max_length=20, description="Singular values, descending."
    )
    depth: int = Field(default=3, ge=2, le=6, description="Layers.")
    lr: float = Field(default=0.0332, gt=0, le=1e3, description="Learning rate (0.0166 in the figure's loss).")
    steps: int = Field(default=6000, ge=200, le=10**6, description="Steps.")
    shown: int = Field(default=40, ge=4, le=100, description="Last steps that are drawn.")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        check_modes_fit(self.d, self.spectrum)
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

    def problem(self) -> Factorization:
        """The target with random singular vectors."""
        left, right = jax.random.split(jax.random.key(self.seed))
        return factorization(with_spectrum(left, right, self.spectrum, self.d).matrix)

    def runs(self, problem: Factorization, initializations: list[Any], names: list[Any], axis: str) -> xarray.Dataset:
        """All starts at once."""
        points = np.unique(
            np.concatenate([np.linspace(0, self.steps, 301).round(), self.steps - np.arange(self.shown + 1)])
        )
        observed = {
            "modes": observe.modes,
            "sorted": observe.singular_values,
            "distance": observe.subspace_distance(self.rank),
            "loss": observe.loss,
            "gaps": observe.layer_gaps,
        }
        optimizer = SGD(self.lr)
        run = jax.vmap(
            lambda initial: simulate(problem, initial, optimizer, steps=self.steps, record=at(points), observe=observed)
        )(_stack(initializations))
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
            f"{label}: other modes from their targets, largest gap": close(
                modes[:, 1:], np.array(self.spectrum[1:]), atol=allowed
            ),
        }

    def printed(self) -> bool:
        """Whether the numbers of the figure are to be expected."""
        return (self.spectrum, self.depth, self.lr) == ((10.0, 8.0, 6.0), 3, 0.0332)


class StabilityFig14(_Beyond):
    """A step beyond the edge from a small and from a large initialization: the same orbit of mode 1, the others at
    rest. Sorted singular values (dotted) alternate in second place because mode 1 passes below mode 2: sorting suffices
    to produce an oscillation of "the second singular value". The layers of mode 1 become balanced from either; those of
    the modes at rest keep most of their gap, which is small only if alpha is. The large initialization is inside the
    published bound on alpha.
    """

    title = "Small and large initializations beyond the edge"
    quick = {"steps": 4000}
    minutes = {"quick": 0.2, "paper": 0.3}

    alphas: tuple[float, float] = Field(default=(0.01, 0.5), description="Scales of the initialization, ascending.")

    @model_validator(mode="after")
    def _below(self) -> Self:
        check_alphas(self.alphas, self.spectrum[-1])
        return self

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        problem = self.problem()
        initializations = [one_zero(problem, alpha, self.depth) for alpha in self.alphas]
        return self.runs(problem, initializations, list(self.alphas), "alpha")

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        modes, values = self.late(data, "modes"), self.late(data, "sorted")
        found: dict[str, Finding] = {}
        for i, alpha in enumerate(self.alphas):
            found |= self.orbit_findings(f"alpha {alpha:g}", modes[i], 1e-9)
            gaps = np.abs(data["gaps"].values[i, -1])
            found[f"alpha {alpha:g}: gap of the layers of mode 1 in the end / alpha^2"] = at_most(
                gaps[:, 0] / alpha**2, 1e-6
            )
            # not balanced: small or large as alpha^2 is
            found[f"alpha {alpha:g}: gap of the layers of the other modes in the end / alpha^2, smallest"] = at_least(
                gaps[:, 1:] / alpha**2, 0.1
            )
        kappa = self.lr * float(stability.curvature(self.spectrum[0], self.depth))
        bound = stability.largest_alpha(self.spectrum[0], self.depth, kappa, "printed")
        if self.printed():
            for i, alpha in enumerate(self.alphas):
                low, high = modes[i, :, 0].min(), modes[i, :, 0].max()
                found[f"alpha {alpha:g}: mode 1, low"] = within(low, 7.706698, 7.7067)
                found[f"alpha {alpha:g}: mode 1, high"] = within(high, 11.732885, 11.732887)
                second = values[i, :, 1]
                found[f"alpha {alpha:g}: sorted second value, low"] = within(second.min(), 7.706698, 7.7067)
                found[f"alpha {alpha:g}: sorted second value, high"] = near(second.max(), 8, 1e-6)
            found["published bound of alpha"] = within(bound, 0.7582, 0.7584)
        return found


class StabilityFig15(_Beyond):
    """The same from three initializations. Identity and orthogonal initializations give identical orbits; random ones
    come to the same orbit, while the singular subspaces of their layers stay a little apart: how far differs from draw
    to draw (faint). Jumps to 2 are a matter of order: mode 1, when low, passes below mode 2 in some layers only.
    """

    title = "Three initializations, one orbit"
    quick = {"steps": 4000, "draws": 16}
    minutes = {"quick": 0.2, "paper": 0.4}

    alpha: float = Field(default=0.01, gt=0, le=1, description="Scale of the initializations.")
    draws: int = Field(
        default=48, ge=1, le=1000, description="Random initializations; the modes of the first are shown."
    )

    @model_validator(mode="after")
    def _below(self) -> Self:
        check_small(self.alpha, self.spectrum[-1])
        return self

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        problem, key = self.problem(), jax.random.key(self.seed + 1)
        initializations: list[Any] = [
            one_zero(problem, self.alpha, self.depth),
            orthogonal(key, problem, self.alpha, self.depth),
        ]
        for each in jax.random.split(key, self.draws):
            initializations.append(random_one_zero(each, problem, self.alpha, self.depth))
        names = ["identity", "orthogonal", "random", *(f"random {k + 1}" for k in range(1, self.draws))]
        return self.runs(problem, initializations, names, "initialization")

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        modes, distance = self.late(data, "modes"), self.late(data, "distance")
        one, two = (data["modes"].values[i] for i in (0, 1))
        found = {
            "identity and orthogonal initialization: largest difference of modes, all steps": close(
                one, two, atol=1e-10
            )
        }
        for i, name in enumerate(("identity", "orthogonal")):
            found |= self.orbit_findings(name, modes[i], 1e-9)
            found[f"{name}: largest subspace distance in the end"] = at_most(distance[i].max(), 1e-7)
        found |= self.orbit_findings(f"{self.draws} random initializations", np.concatenate(modes[2:]), 1e-9)
        # where mode 1 is high: when it is low, layers that are not balanced may put modes 1 and 2 in different order,
        # and the distance of sorted singular vectors is then 2
        second = data.sel(step=slice(self.steps // 2, None)).isel(initialization=slice(2, None))
        farther = np.where(
            second["modes"].values[:, :, 0] > self.spectrum[0], second["distance"].values.max(axis=2), np.nan
        )
        low, plateau = np.nanmin(farther, axis=1), np.nanmax(farther, axis=1)
        found["random: subspace distance in the end, median of the draws"] = within(
            np.median(plateau), 5e-4, 1e-2, band=THREE
        )
        found["random: subspace distance in the end, largest"] = at_most(plateau.max(), 0.06, band=THREE)
        found["random: it stays, largest change in the second half"] = at_most(plateau - low, 1e-6)
        return found
