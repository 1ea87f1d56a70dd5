"""Mild sharpening (figure 9): which images and how many of them take a network to the edge of stability.

Records are pairs of consecutive steps: at the edge the sharpness of two steps in a row differs by some 5 %, and an even
interval would show one side of the orbit alone. The loss is the mean of |f - y|^2 over all entries.
"""

import math
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

import jax
import numpy as np
import xarray
from pydantic import Field, model_validator

from linnet import data as sets
from linnet import observe
from linnet.claims import Finding, at_least, at_most, within
from linnet.curves import first_record, rise_count
from linnet.data import gaussian_classes, rescale_contrast, synthetic_image
from linnet.experiments.experiment import Ascending, Experiment, Progress
from linnet.networks import mlp, reduced, unet
from linnet.optim import SGD
from linnet.problems import Problem, supervised
from linnet.record import every, pairs
from linnet.simulation import simulate
from linnet.states import Network

SIDE, CHANNELS, CONTRAST = 32, 8, 0.25
KINDS = ("bumps", "texture", "checkerboard")  # from smooth to detailed, all of one contrast
_LAW = 1.3  # sharpness in the end over the root of the number of CIFAR-10 images, near gradient flow


class _Run(NamedTuple):
    """The loss of every step, and the sharpness of pairs of consecutive ones."""

    loss: np.ndarray
    sharpness: np.ndarray


def _recorded_pairs(steps: int, gap: int) -> np.ndarray:
    """The pairs of steps at which the sharpness is recorded, one pair a row."""
    first = np.arange(0, steps, gap)
    return np.stack([first, first + 1], axis=1)


def _sharpened(problem: Problem, network: Network, lr: float, steps: int, gap: int) -> _Run:
    observed = {"loss": observe.loss, "curvature": observe.only(observe.curvature(), pairs(gap))}
    run = simulate(problem, network, SGD(lr), steps=steps, record=every(1), observe=observed)
    return _Run(np.asarray(run["loss"]), np.asarray(run["curvature_top"])[_recorded_pairs(steps, gap)])


class StabilityFig9(Experiment):
    """Mild sharpening. Above, a UNet learns one image, all of one contrast. At a learning rate whose 2/lr lies between
    the levels at which they saturate the paper's sentence holds: the sharpness of a smooth image stays low and its loss
    never rises, in all draws but one; a texture, though slower, goes on to the edge of stability. At a larger learning
    rate (middle) smooth images are at the edge as well, and first. Higher is not always sharper: a checkerboard of two
    pixels stays lowest. Below, a network with relu learns N images of CIFAR-10, or, with images = "synthetic" as at
    quick size, a stand-in that needs no files: samples of Gaussian classes. Few are mild, many reach the edge. The
    border moves with the learning rate: without an edge the sharpness of CIFAR-10 grows as the root of N. Thin: the
    other draws; bands: from one step to the next.
    """

    title = "Mild sharpening: smooth images and few samples stay below the edge"
    quick = {
        "images": "synthetic",
        "samples": (10, 400),
        "width": 60,
        "lr": 0.25,
        "steps": 7000,
        "draws": 1,
        "picture_lr": 0.05,
        "picture_steps": 4000,
        "picture_draws": 1,
        "large_steps": 1000,
    }
    minutes = {"quick": 0.9, "paper": 15.0}

    images: Literal["cifar10", "synthetic"] = Field(default="cifar10", description="What the ReLU network learns.")
    samples: Ascending[Annotated[int, Field(ge=2, le=5000)]] = Field(
        default=(100, 200, 500, 1000), min_length=2, description="Samples N, ascending."
    )
    classes: int = Field(default=5, ge=2, le=100, description="Synthetic: classes.")
    d: int = Field(default=20, ge=2, le=1000, description="Synthetic: inputs; class means are standard normal.")
    noise: float = Field(default=1.5, gt=0, le=100, description="Synthetic: standard deviation inside a class.")
    width: int = Field(default=100, ge=2, le=2000, description="Neurons.")
    scale: float = Field(default=0.3, gt=0, le=10, description="Weights start as scale N(0, 1/fan_in).")
    lr: float = Field(default=0.08, gt=0, le=10, description="Learning rate.")
    steps: int = Field(default=2500, ge=100, le=10**6, description="Steps.")
    picture_lr: float = Field(default=0.04, gt=0, le=1, description="Learning rate of the UNet.")
    picture_steps: int = Field(default=40_000, ge=200, le=10**6, description="Steps of the UNet.")
    picture_draws: int = Field(default=5, ge=1, le=50, description="Draws of images and of the UNet.")
    large_lr: float = Field(default=0.1, gt=0, le=1, description="The larger learning rate of the UNet.")
    large_steps: int = Field(default=1500, ge=200, le=10**5, description="Steps at the larger learning rate.")
    draws: int = Field(default=3, ge=1, le=50, description="Draws of data and networks; the first is shown.")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.large_lr <= self.picture_lr:
            raise ValueError(f"large_lr = {self.large_lr:g} must be above picture_lr = {self.picture_lr:g}")
        return self

    def missing(self) -> str | None:
        lacks = sets.missing("cifar10") if self.images == "cifar10" else None
        return lacks and f"{lacks} images = synthetic needs none."

    # A UNet and an image ---------------------------------------------------------------------------------------------

    def picture(self, kind: str, draw: int) -> np.ndarray:
        """The image of a draw."""
        if kind == "CIFAR-10":
            image = sets.load("cifar10").subset(1, seed=self.seed + draw)
            return rescale_contrast(image.scaled().reshape(image.shape).mean(axis=0), CONTRAST)
        return synthetic_image(kind, CONTRAST, np.random.default_rng([self.seed, draw]), SIDE)

    def _fitted(self, image: np.ndarray, draw: int, lr: float, steps: int) -> _Run:
        rng = np.random.default_rng([self.seed, draw, 1])
        inputs = rng.uniform(-0.5, 0.5, (1, CHANNELS, SIDE, SIDE)).astype(np.float32)
        network = unet(jax.random.key(self.seed + draw), inputs, channels=CHANNELS)
        return _sharpened(supervised(image[None, None].astype(np.float32)), network, lr, steps, _gap(steps))

    @property
    def kinds(self) -> tuple[str, ...]:
        """The images, with a photograph where CIFAR-10 is learned below."""
        return (*KINDS, "CIFAR-10") if self.images == "cifar10" else KINDS

    # A network with relu and N samples -------------------------------------------------------------------------------

    def _samples(self, n: int, draw: int) -> tuple[np.ndarray, np.ndarray]:
        if self.images == "cifar10":
            chosen = sets.load("cifar10").subset(n, seed=self.seed + draw)
            return chosen.standardized(), chosen.one_hot()
        rng = np.random.default_rng([self.seed, draw])
        x, y = gaussian_classes(rng, self.samples[-1], self.d, self.classes, self.noise)
        return x[:n], y[:n]

    def _trained(self, n: int, draw: int) -> tuple[_Run, np.ndarray]:
        """The run, and the sharpness in the end without an edge: of half the learning rate where this one meets it."""
        x, y = (part.astype(np.float32) for part in self._samples(n, draw))
        network = reduced(mlp(jax.random.key(self.seed + draw), x, (self.width, y.shape[1]), scale=self.scale))[0]
        problem = supervised(y)
        run = _sharpened(problem, network, self.lr, self.steps, _gap(self.steps))
        if np.max(run.sharpness) < 0.9 * 2 / self.lr:
            return run, run.sharpness[-1].mean()
        calm = _sharpened(problem, network, self.lr / 2, 2 * self.steps, _gap(2 * self.steps))
        return run, calm.sharpness[-1].mean()

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        draws, done = range(self.picture_draws), 0
        total = self.picture_draws * (len(self.kinds) + len(KINDS)) + self.draws * len(self.samples)

        def count(value: Any) -> Any:
            nonlocal done
            done += 1
            progress(done, total)
            return value

        progress(0, total)
        pictures = [[self.picture(kind, k) for k in draws] for kind in self.kinds]
        fitted = [
            [count(self._fitted(i, k, self.picture_lr, self.picture_steps)) for k, i in enumerate(row)]
            for row in pictures
        ]
        large = [
            [count(self._fitted(i, k, self.large_lr, self.large_steps)) for k, i in enumerate(row)]
            for row in pictures[: len(KINDS)]
        ]
        trained = [[count(self._trained(n, k)) for k in range(self.draws)] for n in self.samples]
        held = {
            "picture": (("kind", "image", "y", "x"), np.array(pictures)),
            **_held("picture", ("kind", "image"), self.picture_steps, fitted),
            **_held("large", ("made", "image"), self.large_steps, large),
            **_held("", ("samples", "draw"), self.steps, [[run for run, _ in row] for row in trained]),
            "end": (("samples", "draw"), np.array([[end for _, end in row] for row in trained])),
        }
        return xarray.Dataset(
            held, coords={"kind": list(self.kinds), "made": list(KINDS), "samples": list(self.samples)}
        )

    @property
    def law(self) -> float | None:
        """Sharpness at the end over the root of the number of images, where it is known."""
        return _LAW if self.images == "cifar10" else None

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        return self._pictures(data) | (self._cifar10(data) if self.images == "cifar10" else self._synthetic(data))

    @staticmethod
    def in_the_end(data: xarray.Dataset) -> xarray.DataArray:
        """The mean sharpness of the last tenth of the pairs, by kind and image."""
        return data["picture_sharpness"].isel(picture_pair=slice(-10, None)).mean(("picture_pair", "side"))

    def _pictures(self, data: xarray.Dataset) -> dict[str, Finding]:
        """The first step alone lifts the sharpness by up to 60 %, and ten steps later that is gone: the first tenth of
        the steps, in which means are learned, is left out.

        At learning rate 0.04 four of five smooth images ended at 0.51 to 0.82 of 2/lr without a rise, the fifth at the
        edge; of the textures four were at the edge, the fifth at 0.88 and climbing. So medians are asked, and the
        lowest and the highest draw as the spread.
        """
        edge, found = 2 / self.picture_lr, {}
        later = data["picture_record"].values[:, 0] >= self.picture_steps / 10
        top = data["picture_sharpness"].values[:, :, later].max(axis=(2, 3)) / edge
        tops, ends = dict(zip(self.kinds, top, strict=True)), self.in_the_end(data)
        risen = {kind: rise_count(data["picture_loss"].sel(kind=kind).values) for kind in self.kinds}
        last = data["picture_loss"].sel(kind="texture").values[:, -self.picture_steps // 4 :]
        found["bumps: share of the draws whose loss never rises"] = at_least(np.mean(risen["bumps"] == 0), 0.6)
        found["bumps: largest sharpness / (2/lr), median"] = at_most(np.median(tops["bumps"]), 0.85)
        found["bumps: largest sharpness / (2/lr), highest draw"] = at_most(tops["bumps"].max(), 1.1)
        found["texture: largest sharpness / (2/lr), median"] = at_least(np.median(tops["texture"]), 0.95)
        found["texture: largest sharpness / (2/lr), lowest draw"] = at_least(tops["texture"].min(), 0.75)
        found["texture: share of the last quarter of the steps at which the loss rises, median"] = at_least(
            np.median(rise_count(last)) / last.shape[-1], 0.05
        )
        ratio = (ends.sel(kind="texture") / ends.sel(kind="bumps")).values
        found["sharpness in the end, texture / bumps, median"] = at_least(np.median(ratio), 1.2)
        found["sharpness in the end, texture / bumps, lowest draw"] = at_least(ratio.min(), 0.9)
        found["checkerboard: rises of the loss, most"] = at_most(risen["checkerboard"].max(), 0)
        found["checkerboard: largest sharpness / (2/lr), highest draw"] = at_most(tops["checkerboard"].max(), 0.5)
        if "CIFAR-10" in self.kinds:
            ratio = (ends.sel(kind="CIFAR-10") / ends.sel(kind="bumps")).values
            found["sharpness in the end, CIFAR-10 / bumps, median"] = at_least(np.median(ratio), 1.1)
        return found | self._large(data)

    def _large(self, data: xarray.Dataset) -> dict[str, Finding]:
        """At the larger learning rate smooth images are at the edge as well.

        In one draw of twelve the bumps end at 0.9 of 2/lr instead of reaching it, so medians are asked.
        """
        edge, record = 2 / self.large_lr, data["large_record"].values
        runs, name = {kind: data.sel(made=kind) for kind in KINDS}, f"lr {self.large_lr:g}"
        smooth, texture = (
            np.minimum(_first(record, runs[kind]["large_sharpness"].values, edge), self.large_steps)
            for kind in ("bumps", "texture")
        )
        share = np.median(rise_count(runs["bumps"]["large_loss"].values)) / self.large_steps
        cells = rise_count(runs["checkerboard"]["large_loss"].values)
        ratio = np.median(smooth / np.maximum(texture, 1))
        return {
            f"{name}, bumps: share of steps at which the loss rises, median": at_least(share, 0.1),
            f"{name}: first step at 2/lr, bumps / texture, median": at_most(ratio, 0.5),
            f"{name}, checkerboard: rises of the loss, most": at_most(cells.max(), 0),
        }

    def _cifar10(self, data: xarray.Dataset) -> dict[str, Finding]:
        """Bands for width 100 and learning rate 0.08.

        A mild run may rise at some steps by a thousandth, where a sample passes a kink of relu; at the edge every other
        step does. The sharpness is known to 0.2 %, so 2/lr counts as met at 0.99 of it.
        """
        edge, record = 2 / self.lr, data["record"].values
        found = {}
        for n in self.samples:
            part = data.sel(samples=n)
            pair, risen, loss = part["sharpness"].values, rise_count(part["loss"].values), part["loss"].values[:, -1]
            mild = {100: (12.0, 17.0, 1e-7), 200: (16.0, 22.5, 2e-5)}.get(n)
            name = f"{n} images"
            if mild is not None:
                tops = pair.max(axis=(1, 2))
                found[f"{name}: largest sharpness, of the lowest draw"] = at_least(tops.min(), mild[0])
                found[f"{name}: largest sharpness, of the highest draw"] = at_most(tops.max(), mild[1])
                found[f"{name}: share of steps at which the loss rises, most"] = at_most(risen.max() / self.steps, 0.02)
                found[f"{name}: loss at the end, largest"] = at_most(loss.max(), mild[2])
            elif n in (500, 1000):
                first = _first(record, pair, 0.99 * edge)
                found[f"{name}: first step at 2/lr, last draw"] = at_most(first.max(), 1700 if n == 1000 else 2400)
                found[f"{name}: rises of the loss, least"] = at_least(risen.min(), 400 if n == 1000 else 100)
            if n == 1000:
                late = pair[:, record[:, 0] >= 0.75 * self.steps]
                found[f"{name}: first step at 2/lr, first draw"] = at_least(first.min(), 900)
                found[f"{name}: sharpness in the last quarter, lowest"] = at_least(late.min(), 22.5)
                found[f"{name}: sharpness in the last quarter, highest"] = at_most(late.max(), 29)
        law = data["end"].values.mean(axis=1) / (_LAW * np.sqrt(self.samples))
        found["sharpness without an edge / (1.3 sqrt(N)), mean of draws, smallest"] = at_least(law.min(), 0.9)
        found["sharpness without an edge / (1.3 sqrt(N)), mean of draws, largest"] = at_most(law.max(), 1.1)
        return found

    def _synthetic(self, data: xarray.Dataset) -> dict[str, Finding]:
        edge = 2 / self.lr
        risen = rise_count(data["loss"].values)
        plateau = data["sharpness"].values[:, :, -5:].mean(axis=(2, 3)) / edge
        found = {}
        for n, row, count in zip(self.samples[:-1], plateau[:-1], risen, strict=False):
            found[f"synthetic, {n} samples: plateau / (2 / lr), highest draw"] = at_most(row.max(), 0.8)
            found[f"synthetic, {n} samples: rises of the loss, most"] = at_most(count.max(), 0)
        last, most = plateau[-1], self.samples[-1]
        found[f"synthetic, {most} samples: plateau / (2 / lr), the draw farthest from 1"] = within(
            last[np.argmax(np.abs(last - 1))], 0.9, 1.1
        )
        found["synthetic: sharpness without an edge from one N to the next, smallest ratio"] = at_least(
            data["end"].values[1:] / data["end"].values[:-1], 1.0
        )
        return found


def _gap(steps: int) -> int:
    """Steps between two pairs of records: a hundred pairs."""
    return max(2, steps // 100)


def _held(name: str, axes: tuple[str, str], steps: int, runs: list[list[_Run]]) -> dict[str, Any]:
    """Runs as variables, by two axes."""
    prefix = f"{name}_" if name else ""
    return {
        f"{prefix}loss": ((*axes, f"{prefix}step"), np.array([[run.loss for run in row] for row in runs])),
        f"{prefix}sharpness": (
            (*axes, f"{prefix}pair", "side"),
            np.array([[run.sharpness for run in row] for row in runs]),
        ),
        f"{prefix}record": ((f"{prefix}pair", "side"), _recorded_pairs(steps, _gap(steps))),
    }


def _first(record: np.ndarray, pair: np.ndarray, edge: float) -> np.ndarray:
    """The first recorded step of each draw whose sharpness is at 2/lr; infinite where none is."""
    flat = pair.reshape(len(pair), -1)
    at = first_record(flat >= edge)
    return np.where(at >= 0, record.ravel()[at].astype(float), math.inf)
