"""Claims and errata about low-rank adapters, of the same paper as `claims/stability.py` (section B.6).

They run on made data and a frozen network with adapters W = W_0 + B A in every layer, so that nothing need be fetched;
the figures `stability/fig20` and `stability/fig21` have the same statements on a pre-trained language model.
"""

import math
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from linnet.claims.claim import Finding, Seed, as_printed, at_least, at_most, claim, erratum, within
from linnet.motion import Adam, GradientDescent, MiniBatch
from linnet.problems import Problem, supervised
from linnet.record import every
from linnet.simulation import simulate
from linnet.states import Network

_HEAD = 0.02  # standard deviation of a head's weights, as BERT's are drawn


@cache
def _forward(last: str) -> Any:
    """The function of a frozen network with adapters: relu between the layers, and what stands after the last."""

    def outputs(given: Any, x: Any) -> Any:
        frozen, adapters = given["frozen"], given["adapters"]
        for i, (w, (a, b)) in enumerate(zip(frozen, adapters, strict=True)):
            x = x @ (w + b @ a).T
            x = jax.nn.relu(x) if i < len(frozen) - 1 else x
        return jnp.tanh(x) @ given["head"][:, None] if last == "head" else x

    return outputs


def _network(seed: int, widths: tuple[int, ...], rank: int, alpha: float, *, n: int, head: bool = False) -> Network:
    """A random network with adapters of scale alpha, on Gaussian inputs; with a head on tanh that does not train.

    Below a head inputs are much alike, as sentences are to a language model: its outputs differ little at the start.
    """
    rng = np.random.default_rng(seed)
    frozen = [rng.normal(size=(b, a)) * math.sqrt(2 / a) for a, b in pairwise(widths)]
    adapters = [
        (alpha * rng.normal(size=(rank, w.shape[1])), alpha * rng.normal(size=(w.shape[0], rank))) for w in frozen
    ]
    given = {"frozen": frozen, "adapters": adapters, "head": _HEAD * rng.normal(size=widths[-1])}
    trained = {"frozen": False, "adapters": True, "head": False}
    x = rng.normal(size=(n, widths[0])) * (0.2 if head else 1.0) + head
    return Network(_forward("head" if head else "none"), given, x, trained=trained)


def _scores(seed: int, n: int) -> tuple[Problem, np.ndarray]:
    """Scores from 0 to 5 that have nothing to do with the inputs, and the mean of (f - y)^2."""
    y = np.random.default_rng([seed, 1]).uniform(0, 5, size=(n, 1))
    return supervised(y), y[:, 0]


# The saddle of fresh adapters -----------------------------------------------------------------------------------------


def _taught(seed: int, widths: tuple[int, ...], alpha: float, n: int) -> tuple[Network, Problem]:
    """Adapters of rank 4 on a random network, to learn what another one says."""
    other = _network(seed + 100, widths, 4, 0.0, n=n)
    student = _network(seed, widths, 4, alpha, n=n)
    return student, supervised(np.asarray(other.on(student.inputs).matrix).T)


def _cost(adapters: Any, frozen: Any, x: Any, problem: Problem) -> Any:
    given = {"frozen": frozen, "adapters": adapters}
    return problem.cost(_forward("none")(given, x).T)


_slopes = jax.jit(jax.grad(_cost, argnums=1))
_bends = jax.jit(jax.hessian(_cost))


def _parts(network: Network, problem: Problem) -> tuple[Any, ...]:
    return network.parameters["adapters"], network.frozen["frozen"], network.inputs, problem


def _top_slope(network: Network, problem: Problem) -> float:
    """max_l |dL/dW_l| over the frozen matrices."""
    return max(float(np.linalg.norm(g, 2)) for g in _slopes(*_parts(network, problem)))


def _ends(network: Network, problem: Problem) -> tuple[float, float]:
    """The largest and the lowest eigenvalue of the dense Hessian in the adapters."""
    sizes = [leaf.size for leaf in jax.tree.leaves(network.parameters)]
    blocks = iter(jax.tree.leaves(_bends(*_parts(network, problem))))
    values = np.linalg.eigvalsh(np.block([[np.reshape(next(blocks), (a, b)) for b in sizes] for a in sizes]))
    return float(values[-1]), float(values[0])


@claim("stability/C80", "exact", "section B.6, derived", broken={"factor": 1.01})
def saddle_of_adapters(size: str, factor: float = 1.0) -> Iterator[Finding]:
    """Where A = B = 0 the Hessian in the adapters of W = W_0 + B A has the largest eigenvalue max_l |dL/dW_l| and the
    lowest its mirror; at a scale of 1e-3 to 0.5 %.
    """
    for seed in range(3 if size == "full" else 1):
        for alpha, most in ((0.0, 1e-12), (1e-3, 5e-3)):
            network, problem = _taught(seed, (10, 12, 12, 3), alpha, 64)
            told = factor * _top_slope(network, problem)
            top, low = _ends(network, problem)
            yield at_most(abs(top / told - 1), most, seed=seed, alpha=alpha, what="largest")
            yield at_most(abs(low / told + 1), most, seed=seed, alpha=alpha, what="lowest")


@claim("stability/C81", "asymptotic", "section B.6, derived", broken={"power": 0.5})
def escape_of_adapters(size: str, power: float = 1.0) -> Iterator[Finding]:
    """Plain descent leaves the saddle of small adapters by a factor 1 + lr S a step, S = max_l |dL/dW_l|: the steps
    until the loss is 5 % lower, times ln(1 + lr S), are the same at every lr.
    """
    for seed in range(3 if size == "full" else 1):
        network, problem = _taught(seed, (10, 12, 12, 3), 1e-3, 64)
        top = _top_slope(network, problem)
        found = []
        for grown in (0.03, 0.1, 0.3):
            steps = int(9 / math.log1p(grown))
            run = simulate(
                problem, network, GradientDescent(grown / top), steps=steps, record=every(1), observe=["loss"]
            )
            loss = np.asarray(run["loss"])
            found.append(float(np.argmax(loss < 0.95 * loss[0])) * math.log1p(grown) ** power)
        yield at_most(max(found) / min(found) - 1, 0.1, seed=seed, products=[round(x, 2) for x in found])


# Sampling, and the fall -----------------------------------------------------------------------------------------------


def _said(state: Any, problem: Any) -> Any:
    return state.matrix[0]


@erratum(
    "stability/E80",
    "error",
    "section B.6, figure 20",
    printed="the loss oscillates at every rank, by catapults (the text suspects the batches)",
    corrected="by the batches alone: each has the loss of a constant output, and a fixed batch has no rise at any rank",
    broken={"shift": 1.0},
)
def rises_are_sampling(size: str, shift: float = 0.0, seed: Seed = 0) -> Iterator[Finding]:
    """Adam with lr 1e-4 on adapters of a frozen network, 512 samples in batches of 64, and on all of them."""
    n, batch, steps = 512, 64, 160
    problem, y = _scores(seed, n)
    rng = np.random.default_rng([seed, 2])
    order = np.concatenate([rng.permutation(n).reshape(-1, batch) for _ in range(steps * batch // n)])
    for rank in (1, 4, 16) if size == "full" else (4,):
        network = _network(seed, (40, 64, 64), rank, 1e-3, n=n, head=True)
        adam = Adam(1e-4, eps=1e-6, batch=MiniBatch(order=order))
        run = simulate(problem, network, adam, steps=steps, record=every(1), observe={"said": _said})
        said = np.asarray(run["said"])
        loss = np.array([np.mean((f[rows] - y[rows]) ** 2) for f, rows in zip(said, order, strict=False)])
        constant = np.mean((said[0].mean() + shift - y[order]) ** 2, axis=1)
        yield at_most(np.max(np.abs(loss - constant)[:16]), 0.05, rank=rank, what="batch losses, 16 steps")
        yield within(np.mean(np.diff(loss) > 0), 0.4, 0.6, rank=rank, what="rises with batches")
        still = simulate(problem, network, Adam(1e-4, eps=1e-6), steps=steps, record=every(1), observe=["loss"])
        rises = np.mean(np.diff(np.asarray(still["loss"])) > 0)
        yield at_most(rises, 0, rank=rank, what="rises on a fixed batch")
        yield as_printed(at_least(rises, 0.1, rank=rank, what="rises on a fixed batch"))


@erratum(
    "stability/E81",
    "error",
    "section B.6, figure 21",
    printed="at one lr the loss catapults from 7 to 4; others cannot decrease it as far",
    corrected="a smooth escape from the saddle, without a rise, to one constant output; every lr gets there in time",
    broken={"longer": 0.0},
)
def fall_is_an_escape(size: str, longer: float = 1.0, seed: Seed = 0) -> Iterator[Finding]:
    """Adam at two step sizes on adapters below a bounded random head without a bias, on a fixed batch: where lr times
    the number of steps is the same, so is the loss, var(y) + (mean(y) - f)^2 with one f for all samples.
    """
    n, first = 256, (1e-3, 300)  # no step larger than the adapters are
    problem, y = _scores(seed, n)
    network = _network(seed, (40, 64, 64), 8, 1e-3, n=n, head=True)
    ends = []
    for lr in (1e-3, 2e-4, 1e-4) if size == "full" else (1e-3, 2e-4):
        steps = round(first[1] * (first[0] / lr) ** longer)
        run = simulate(problem, network, Adam(lr, eps=1e-6), steps=steps, record=every(1), observe={"said": _said})
        said = np.asarray(run["said"])
        loss = np.mean((said - y) ** 2, axis=1)
        constant = y.var() + (y.mean() - said[-1].mean()) ** 2
        yield at_most(np.sum(np.diff(loss) > 0), 0, lr=lr, what="rises")
        yield at_most(said[-1].std() / y.std(), 1e-3, lr=lr, what="spread of the outputs over that of the labels")
        yield within(loss[-1] / constant, 0.98, 1.02, lr=lr, what="loss over that of a constant")
        ends.append(loss[0] - loss[-1])
    yield at_most(max(ends) / min(ends) - 1, 0.05, what="falls of the loss")
    yield as_printed(at_least(max(ends) / min(ends), 1.5, what="falls of the loss"))
