"""Claims and errata about mild sharpening, of the same paper as `claims/stability.py`: which data lead to the edge.

They run on made data, so that nothing need be fetched; the figure `stability/fig9` has the same statements on published
images. The loss is the mean of |f - y|^2 over samples and outputs. At the edge the sharpness is at 2/lr and the loss
rises every other step; a run is mild where neither happens.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import jax
import numpy as np

from linnet import observe
from linnet.claims.claim import Finding, Seed, as_printed, at_least, at_most, claim, evidence, within
from linnet.curves import rise_count
from linnet.data import gaussian_classes, synthetic_image
from linnet.networks import mlp, reduced, unet
from linnet.optim import SGD
from linnet.problems import supervised
from linnet.record import every, pairs
from linnet.simulation import simulate

# How many samples -----------------------------------------------------------------------------------------------------


class _Trained(NamedTuple):
    """How often the loss rose, and the sharpness at twenty pairs of consecutive steps."""

    rises: int
    sharpness: np.ndarray

    @property
    def end(self) -> float:
        """The sharpness of the last pair."""
        return float(self.sharpness[-2:].mean())


def _trained(x: np.ndarray, y: np.ndarray, seed: int, width: int, lr: float, steps: int) -> _Trained:
    """A network of two layers with relu, weights 0.3 N(0, 1/fan_in)."""
    initial = mlp(jax.random.key(seed), x.astype(np.float32), (width, y.shape[1]), scale=0.3)
    gap = steps // 20
    observed = {"loss": observe.loss, "curvature": observe.only(observe.curvature(), pairs(gap))}
    problem, network = supervised(y.astype(np.float32)), reduced(initial)[0]
    run = simulate(problem, network, SGD(lr), steps=steps, record=every(1), observe=observed)
    first = np.arange(0, steps, gap)
    measured = np.stack([first, first + 1], axis=1).ravel()
    return _Trained(int(rise_count(np.asarray(run["loss"]))), np.asarray(run["curvature_top"])[measured])


@claim(
    "stability/C24",
    "statistical",
    "Figure 9c and section 4.2",
    negative_control={"many": 10},
    band="three standard deviations over five seeds",
)
def few_are_mild(size: str, many: int = 400, seed: Seed = 0) -> Iterator[Finding]:
    """A ReLU network that learns few samples stays mild, and the same one at the same learning rate reaches the edge
    with many.
    """
    lr, steps, few = 0.4, 3000, 10
    for draw in range(seed, seed + (3 if size == "quick" else 10)):
        runs = {}
        for n in (few, many):
            runs[n] = _trained(*gaussian_classes(np.random.default_rng([draw]), n, 20, 5, 1.5), draw, 60, lr, steps)
        mild, edge = runs[few], runs[many]
        yield at_most(mild.sharpness.max() * lr / 2, 0.9, N=few, draw=draw, what="largest sharpness / (2/lr)")
        yield at_most(mild.rises, 0, N=few, draw=draw, what="rises of the loss")
        yield within(edge.end * lr / 2, 0.9, 1.1, N=many, draw=draw, what="sharpness in the end / (2/lr)")
        yield at_least(edge.rises / steps, 0.1, N=many, draw=draw, what="share of steps at which the loss rises")


@claim(
    "stability/C25",
    "statistical",
    "Figure 9c",
    negative_control={"power": 0.0},
    band="three standard deviations over five seeds",
)
def more_are_sharper(size: str, power: float = 1.0, seed: Seed = 0) -> Iterator[Finding]:
    """Without an edge the sharpness in the end does not depend on the learning rate and grows with the number N of
    samples, about as its root, on inputs whose variances fall off as those of images do (the k-th as 1/k): how many
    samples it takes to meet the edge is up to the learning rate.
    """
    d, few, many, lr, steps = 50, 50, 200, 0.1, 6000
    deviations = np.arange(1, d + 1.0) ** (-power / 2)
    deviations *= np.sqrt(d / np.sum(deviations**2))
    exponents = []
    for draw in range(seed, seed + (2 if size == "quick" else 8)):
        rng = np.random.default_rng([draw])
        x, y = rng.normal(size=(many, d)) * deviations, np.eye(5)[rng.integers(5, size=many)]
        short, twice = (_trained(x[:few], y[:few], draw, 100, rate, steps).end for rate in (lr, 2 * lr))
        yield within(twice / short, 0.95, 1.05, N=few, draw=draw, what="sharpness at twice the learning rate, ratio")
        ratio = _trained(x, y, draw, 100, lr, steps).end / short
        yield at_least(ratio, 1.2, N=many, draw=draw, what="sharpness of four times as many samples, ratio")
        exponents.append(np.log(ratio) / np.log(many / few))
    yield within(np.mean(exponents), 0.35, 0.85, N=(few, many), what="exponent of N, mean of draws")


# Which image ----------------------------------------------------------------------------------------------------------


@lru_cache
def _risen(kind: str, draw: int, lr: float, steps: int) -> int:
    """How often the loss of a UNet rises that learns an image of 32 x 32 and contrast 0.25."""
    image = synthetic_image(kind, 0.25, np.random.default_rng([draw]))
    inputs = np.random.default_rng([draw, 1]).uniform(-0.5, 0.5, (1, 8, 32, 32)).astype(np.float32)
    network = unet(jax.random.key(draw), inputs)
    problem = supervised(image[None, None].astype(np.float32))
    run = simulate(problem, network, SGD(lr), steps=steps, record=every(1), observe=["loss"])
    return int(rise_count(np.asarray(run["loss"])))


@evidence("stability/E27", negative_control={"calm": 0.1})
def edge_between_the_levels(size: str, calm: float = 0.05, seed: Seed = 0) -> Iterator[Finding]:
    """A UNet of 4081 parameters learns one image of mean 1/2 and contrast 0.25. At lr = 0.05, where 2/lr = 40, the loss
    of the smooth image (bumps) never rises and that of the texture of 3 to 6 cycles does; at lr = 0.1 the loss of the
    bumps rises in nearly every other step. The checkerboard of two pixels has no rise at either. Medians of draws: the
    bumps of two draws of five saturate above 40, and the slowest texture needs more than 4000 steps. Figure
    `stability/fig9` has longer runs of five draws at lr = 0.04.
    """
    steps, draws = (4000, range(seed, seed + 1)) if size == "quick" else (12_000, range(seed, seed + 5))

    def share(kind: str, lr: float, count: int) -> np.ndarray:
        return np.array([_risen(kind, draw, lr, count) for draw in draws]) / count

    case = {"draws": len(draws), "what": "share of steps at which the loss rises, median"}
    yield at_most(np.median(share("bumps", calm, steps)), 0.0, image="bumps", lr=calm, **case)
    yield at_least(np.median(share("texture", calm, steps)), 0.005, image="texture", lr=calm, **case)
    smooth = np.median(share("bumps", 0.1, 1000))
    yield at_least(smooth, 0.3, image="bumps", lr=0.1, **case)
    yield as_printed(at_most(smooth, 0.01, image="bumps", lr=0.1, **case))
    cells = np.median(share("checkerboard", 0.1, 1000))
    yield at_most(cells, 0.005, image="checkerboard", lr=0.1, **case)
    yield as_printed(at_least(cells, 0.1, image="checkerboard", lr=0.1, **case), reading="every higher frequency")
