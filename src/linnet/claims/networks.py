"""Claims and errata about networks that are not linear, of the same paper as `claims/stability.py`.

They run on made data, so that nothing need be fetched; the figures `stability/fig17` and `stability/fig19` have the
same statements on published images. The loss is the mean of |f - y|^2 over samples and outputs.
"""

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from linnet import observe
from linnet._random import with_spectrum
from linnet.claims.claim import (
    THREE,
    Finding,
    Seed,
    as_printed,
    at_least,
    at_most,
    claim,
    close,
    evidence,
    near,
    within,
)
from linnet.curves import first_record, powers
from linnet.init import orthogonal
from linnet.networks import mlp, reduced
from linnet.optim import SGD
from linnet.problems import Problem, factorization, supervised
from linnet.record import at, every
from linnet.simulation import simulate
from linnet.states import Network
from linnet.theory import stability

# Made data ------------------------------------------------------------------------------------------------------------

_CLASSES = 10


def _made(seed: int, mean: float, noise: float, n: int = 200, d: int = 30) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian classes with what makes images sharp: a mean that all share, and variances that fall as 1/j."""
    rng = np.random.default_rng(seed)
    size = 1 / np.sqrt(np.arange(1, d + 1))
    means, kind = size * rng.normal(size=(_CLASSES, d)), rng.integers(_CLASSES, size=n)
    x = (means[kind] + noise * size * rng.normal(size=(n, d))) / np.linalg.norm(size)
    x[:, 0] += mean
    return x, np.eye(_CLASSES)[kind]


def _network(seed: int, depth: int, width: int, mean: float = 1.0, noise: float = 1.0) -> tuple[Network, Problem]:
    """A network with relu on made data."""
    x, y = _made(seed, mean, noise)
    widths = [width] * (depth - 1) + [_CLASSES]
    return mlp(jax.random.key(seed), x, widths, scale=0.6), supervised(y)


# Two clocks -----------------------------------------------------------------------------------------------------------

_LAST = 128  # steps at whose end the sharpness is seen at every step


class _Clocks(NamedTuple):
    """A run of three layers at the edge: the loss and the layers' largest singular values at every step."""

    loss: np.ndarray
    values: np.ndarray
    sharpness: np.ndarray


@lru_cache
def _clocks(seed: int, lr: float, mean: float = 1.0, noise: float = 1.0, steps: int = 1200) -> _Clocks:
    network, problem = _network(seed, 3, 64, mean, noise)
    observed = {f"layer {i}": observe.layer_singular_values(i, 5) for i in (1, 2, 3)}
    observed |= {
        "loss": observe.loss,
        "curvature": observe.only(observe.curvature(), at(range(steps - _LAST, steps + 1))),
    }
    run = simulate(problem, network, SGD(lr), steps=steps, record=every(1), observe=observed)
    values = np.concatenate([np.asarray(run[f"layer {i}"]).T for i in (1, 2, 3)])
    return _Clocks(np.asarray(run["loss"]), values, np.asarray(run["curvature_top"])[-_LAST - 1 :])


def _draws(seed: int, size: str) -> range:
    return range(seed, seed + (1 if size == "quick" else 6))


@claim(
    "stability/C19",
    "statistical",
    "appendix B.5, figure 17, in part",
    negative_control={"lr": 2.0},
    level=8e-4,
    tests=1,
    band=THREE,
)
def two_clocks(size: str, lr: float = 10.0, seed: Seed = 0) -> Iterator[Finding]:
    """At the edge the singular values of the layers of a network with relu oscillate with period 2. On data with a mean
    that all samples share, as images have, the loss has no such period but a slow one, of 20 to 250 steps; without that
    mean, at a larger step, the loss has period 2 as well in most draws (seven of ten, with a standard error of 1.5), so
    the slow clock is no law.

    Three layers on made data; shares of the squared oscillation in the last 512 steps, less a running mean of 65.
    """
    last = slice(-(512 + 64), None)
    for draw in _draws(seed, size):
        run, other = _clocks(draw, lr), _clocks(draw, 2 * lr, mean=0.0, noise=0.5)
        frequency, loss = powers(np.log(run.loss[last]))
        fast, slow = frequency > 0.45, frequency < 0.1
        for one, data in ((run, "shared mean"), (other, "no shared mean")):
            share = powers(one.values[:, last])[1][fast].sum()
            yield at_least(share, 0.6, seed=draw, data=data, what="singular values, share of period 2")
        yield at_most(loss[fast].sum(), 0.25, seed=draw, data="shared mean", what="log loss, share of period 2")
        yield at_least(loss[slow].sum(), 0.75, seed=draw, data="shared mean", what="log loss, share of over 10 steps")
        yield within(1 / frequency[np.argmax(loss)], 20, 250, seed=draw, data="shared mean", what="strongest period")
    others = (_clocks(draw, 2 * lr, mean=0.0, noise=0.5).loss[last] for draw in range(seed, seed + 6))
    own = [powers(np.log(loss))[1][fast].sum() for loss in others]
    yield at_least(max(own), 0.2, data="no shared mean", draws=6, what="log loss, share of period 2, largest")


@claim(
    "stability/C20", "statistical", "appendix B.5, figure 17, consequence", negative_control={"between": 2}, band=THREE
)
def two_sides(size: str, between: int = 1, seed: Seed = 0) -> Iterator[Finding]:
    """At the edge the sharpness alternates: records of two consecutive steps differ by 0.2 % to 9 %, more than those
    two steps apart, mostly several times as much, so that an even interval between records shows one side of the orbit
    only.
    """
    for draw in _draws(seed, size):
        sharpness = _clocks(draw, 10.0).sharpness
        apart, same = (np.abs(sharpness[k:] - sharpness[:-k]) for k in (between, 2))
        yield at_least(np.median(apart) / np.median(sharpness), 0.002, seed=draw, what="consecutive, relative gap")
        yield at_least(np.median(apart) / np.median(same), 1.0, seed=draw, what="gap over that two steps apart")
        up = sharpness[between:] > sharpness[:-between]
        yield at_least(np.mean(up[1:] != up[:-1]), 0.8, seed=draw, what="share of steps at which it turns")


# Fewer inputs ---------------------------------------------------------------------------------------------------------


def _cut(network: Network) -> tuple[Network, Any]:
    """Fewer inputs by leaving out the others."""
    n = network.inputs.shape[0]
    few = mlp(jax.random.key(0), network.inputs[:, :n], [layer.shape[0] for layer in network.layers])
    return few.with_layers([network.layers[0][:, :n], *network.layers[1:]]), jnp.eye(network.inputs.shape[1])[:, :n]


@claim("stability/C21", "exact", "figures 9 and 19, not in the paper", negative_control={"reduction": _cut})
def fewer_inputs(
    size: str, reduction: Callable[[Network], tuple[Network, Any]] = reduced, seed: Seed = 0
) -> Iterator[Finding]:
    """With n < d samples a network trains exactly like the one on n inputs, R^T with W_1 Q for X^T = Q R: the same
    losses, a Hessian with the same eigenvalues but zeros, and no change of W_1 outside the span of the samples.
    """
    rng = np.random.default_rng(seed)
    for n, d in ((12, 30),) if size == "quick" else ((12, 30), (5, 40), (1, 20), (20, 60)):
        problem = supervised(rng.normal(size=(n, 3)))
        whole = mlp(jax.random.key(seed), rng.normal(size=(n, d)) / math.sqrt(d), (8, 8, 3))
        fewer, basis = reduction(whole)
        runs = [simulate(problem, one, SGD(0.5), steps=300) for one in (whole, fewer)]
        first, second = (np.asarray(run["loss"]) for run in runs)
        yield at_most(np.max(np.abs(second - first)) / first[0], 1e-10, n=n, d=d, what="losses of 300 steps")
        ends: list[Any] = [run.final for run in runs]
        spectra = [np.asarray(observe.hessian_spectrum(end, problem)) for end in ends]
        padded = np.sort(np.append(spectra[1], np.zeros(len(spectra[0]) - len(spectra[1]))))[::-1]
        gap = np.max(np.abs(spectra[0] - padded)) / spectra[0][0]
        yield at_most(gap, 1e-10, n=n, d=d, what="Hessian spectrum at the end")
        back = whole.layers[0] + (ends[1].layers[0] - fewer.layers[0]) @ basis.T
        yield close(ends[0].layers[0], back, atol=1e-10, n=n, d=d, what="the whole first layer at the end")


# Adapters -------------------------------------------------------------------------------------------------------------


def _adapted(parameters: Any, inputs: Any) -> Any:
    """relu between layers W_l + A_l B_l^T."""
    x = inputs
    for i, (w, (a, b)) in enumerate(zip(parameters["layers"], parameters["adapters"], strict=True)):
        x = (jax.nn.relu(x) if i else x) @ (w + a @ b.T).T
    return x


class _Adapters(NamedTuple):
    """A frozen random network with adapters of rank r on all layers, and dL/dW_l of the network alone."""

    state: Network
    problem: Problem
    gradients: list[np.ndarray]

    @property
    def edge(self) -> float:
        """max_l |dL/dW_l|_2."""
        return max(float(np.linalg.norm(g, 2)) for g in self.gradients)


def _adapters(seed: int, alpha: float, rank: int = 4, widths: tuple[int, ...] = (40, 64, 64, 3)) -> _Adapters:
    rng = np.random.default_rng(seed)
    layers = [rng.normal(size=(up, down)) * math.sqrt(2 / down) for down, up in pairwise(widths)]
    adapters = [tuple(alpha * rng.normal(size=(side, rank)) for side in layer.shape) for layer in layers]
    x, y = rng.normal(size=(256, widths[0])), rng.normal(size=(256, widths[-1]))
    problem = supervised(y, average="samples")
    bare = Network(_adapted, {"layers": layers, "adapters": [(0 * a, 0 * b) for a, b in adapters]}, x)
    inside = {"layers": True, "adapters": False}
    alone = Network(_adapted, bare.parameters, x, trained=inside)
    gradients = [-np.asarray(w) for w in jax.tree.leaves(alone.velocity(problem).parameters)]
    trained = {"layers": False, "adapters": True}
    state = Network(_adapted, {"layers": layers, "adapters": adapters}, x, trained=trained)
    return _Adapters(state, problem, gradients)


@claim("stability/C22", "exact", "appendix B.6, adapters, not in the paper", negative_control={"norm": "nuc"})
def saddle_of_adapters(size: str, norm: Any = 2, seed: Seed = 0) -> Iterator[Finding]:
    """At A = B = 0 the Hessian in the adapters of W_l + A_l B_l^T is [[0, G_l], [G_l^T, 0]] (x) I_r, G_l = dL/dW_l, and
    blocks of different adapters vanish: the sharpness is max_l |G_l|_2, and the lowest eigenvalue is its mirror.

    Exact at zero; at an initialization of 1e-3 within 0.5 %.
    """
    rank, widths = 4, (20, 32, 32, 3) if size == "quick" else (40, 64, 64, 3)
    for draw in range(seed, seed + (1 if size == "quick" else 3)):
        for alpha, allowed in ((0.0, 1e-12), (1e-3, 5e-3)):
            made = _adapters(draw, alpha, rank, widths)
            edge = max(float(np.linalg.norm(g, norm)) for g in made.gradients)
            found = np.asarray(observe.hessian_spectrum(made.state, made.problem))
            case = {"seed": draw, "alpha": alpha}
            yield close(found[0], edge, rtol=allowed, what="sharpness", **case)
            yield at_most(abs(found[-1] / edge + 1), allowed, what="lowest eigenvalue", **case)
            if alpha == 0:
                values = np.concatenate([np.linalg.svd(g, compute_uv=False) for g in made.gradients])
                both = np.repeat(np.concatenate([values, -values]), rank)
                right = np.sort(np.append(both, np.zeros(len(found) - len(both))))[::-1]
                yield at_most(np.max(np.abs(found - right)) / found[0], 1e-12, what="whole spectrum", **case)


@claim(
    "stability/C23",
    "asymptotic",
    "appendix B.6, adapters, not in the paper",
    negative_control={"rate": lambda x: -math.log1p(-x)},
)
def escape_of_adapters(size: str, rate: Callable[[float], float] = math.log1p, seed: Seed = 0) -> Iterator[Finding]:
    """Plain descent leaves the saddle of adapters at the rate 1 + lr S(0) a step: the first step with 5 % less loss
    times ln(1 + lr S(0)) is the same for all learning rates within 10 %.
    """
    for draw in range(seed, seed + (2 if size == "quick" else 5)):
        made = _adapters(draw, 1e-3)
        times = {}
        for share in (0.03, 0.1, 0.3):
            optimizer, steps = SGD(share / made.edge), math.ceil(8 / math.log1p(share))
            loss = np.asarray(simulate(made.problem, made.state, optimizer, steps=steps, record=every(1))["loss"])
            left = int(first_record(loss <= 0.95 * loss[0]))
            times[share] = left * rate(share) if left > 0 else math.nan
        for share, clock in times.items():
            yield within(clock / np.mean(list(times.values())), 0.95, 1.05, seed=draw, lr=f"{share} / S(0)")


# Singular values against singular vectors -----------------------------------------------------------------------------


_SPECTRUM, _BEYOND = (10.0, 9.0, 6.0), 1.03


def aligned_window(seed: int, steps: int, d: int = 50, beyond: float = _BEYOND) -> observe.Window:
    """The window of a linear network of three layers that begins aligned, beyond its edge by this factor."""
    left, right, initial = jax.random.split(jax.random.key(seed), 3)
    target = with_spectrum(left, right, np.pad(_SPECTRUM, (0, d - len(_SPECTRUM))), d)
    problem = factorization(target.matrix)
    lr = beyond * 2 / float(stability.curvature(_SPECTRUM[0], 3))
    run = simulate(problem, orthogonal(initial, problem, 0.01, 3), SGD(lr), steps=3000, record=at([3000]))
    return observe.window(run.final, problem, lr, steps)


@lru_cache
def _relu_window(seed: int, steps: int) -> observe.Window:
    """That of a network of four layers with relu on made data."""
    network, problem = _network(seed, 4, 128)
    run = simulate(problem, network, SGD(8.0), steps=300, record=at([300]))
    return observe.window(run.final, problem, 8.0, steps)


def _top_share(seed: int, window: observe.Window, count: int) -> float:
    """The share of the excess loss that the period-two part has in the span of the `count` top singular directions of
    each layer, on both sides: their values and the rotations among them.
    """
    network, problem = _network(seed, 4, 128)
    cost = jax.jit(lambda layers: problem.cost(network.with_layers(layers).matrix))
    part, whole = 0.0, 0.0
    for three in zip(window.layers, window.layers[1:], window.layers[2:], strict=False):
        mean = [(a + 2 * b + c) / 4 for a, b, c in zip(*three, strict=True)]
        inside = []
        for now, base in zip(three[1], mean, strict=True):
            u, _, vt = np.linalg.svd(now, full_matrices=False)
            u, vt = u[:, :count], vt[:count]
            inside.append(base + u @ (u.T @ (now - base) @ vt.T) @ vt)
        least = float(cost(tuple(mean)))
        part, whole = part + float(cost(tuple(inside))) - least, whole + float(cost(tuple(three[1]))) - least
    return part / whole


@evidence("stability/E26", negative_control={"network": aligned_window})
def rotations(
    size: str, network: Callable[[int, int], observe.Window] = _relu_window, seed: Seed = 0
) -> Iterator[Finding]:
    """Of three consecutive steps the excess of the loss over that of their mean is split, in the singular frame of each
    layer, into what the movement of singular values does alone and what the rotations do alone: four layers on made
    data, and an aligned linear network as the control. The ten top directions, rotations among them included, have 2 to
    3 % of it. On MNIST and CIFAR-10: figure `stability/fig19`.
    """
    steps = 16 if size == "quick" else 40
    for draw in _draws(seed, size):
        found = network(draw, steps)
        yield at_most(abs(found.values_share), 0.03, seed=draw, what="share of the values")
        yield at_least(found.rotations_share, 0.75, seed=draw, what="share of the rotations")
        yield as_printed(at_least(found.values_share, 0.5, seed=draw, what="share of the values"))
        top = _top_share(draw, _relu_window(draw, steps), 10)
        yield within(top, 0.01, 0.06, seed=draw, what="share of the ten top directions")
        reading = "rotations among the ten top directions as well"
        yield as_printed(at_least(top, 0.5, seed=draw, what="share of the ten top directions"), reading)
    control = aligned_window(seed, steps, d=10)
    yield near(control.values_share, 1, 1e-6, control="aligned linear network", what="share of the values")
    yield at_most(abs(control.rotations_share), 1e-6, control="aligned linear network", what="share of the rotations")
