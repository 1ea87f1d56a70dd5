"""Claims and errata about low-rank adapters, of the same paper as `claims/stability.py` (appendix B).

They run on made data and a frozen network with adapters W = W_0 + B A in every layer, so that nothing need be fetched;
the figures `stability/fig20` and `stability/fig21` have the same statements on a pre-trained language model.
"""

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from linnet.claims.claim import Finding, Seed, as_printed, at_least, at_most, evidence, within
from linnet.optim import Adam, MiniBatch
from linnet.problems import Problem, supervised
from linnet.record import every
from linnet.simulation import simulate
from linnet.states import Network

_HEAD = 0.02  # standard deviation of a head's weights, as BERT's are drawn


def _forward(given: Any, x: Any) -> Any:
    """A frozen network with adapters, relu between its layers, below a head on tanh."""
    frozen = given["frozen"]
    for i, (w, (a, b)) in enumerate(zip(frozen, given["adapters"], strict=True)):
        x = x @ (w + b @ a).T
        x = jax.nn.relu(x) if i < len(frozen) - 1 else x
    return jnp.tanh(x) @ given["head"][:, None]


def _network(seed: int, rank: int, n: int) -> Network:
    """A random network, 40 - 64 - 64, with adapters of scale 1e-3 and a head that does not train.

    Inputs are much alike, as sentences are to a language model: outputs differ little at initialization.
    """
    rng = np.random.default_rng(seed)
    frozen = [rng.normal(size=(b, a)) * math.sqrt(2 / a) for a, b in pairwise((40, 64, 64))]
    adapters = [
        (1e-3 * rng.normal(size=(rank, w.shape[1])), 1e-3 * rng.normal(size=(w.shape[0], rank))) for w in frozen
    ]
    given = {"frozen": frozen, "adapters": adapters, "head": _HEAD * rng.normal(size=64)}
    x = 1 + 0.2 * rng.normal(size=(n, 40))
    return Network(_forward, given, x, trained={"frozen": False, "adapters": True, "head": False})


def _scores(seed: int, n: int) -> tuple[Problem, np.ndarray]:
    """Scores from 0 to 5 that have nothing to do with the inputs, and the mean of (f - y)^2."""
    y = np.random.default_rng([seed, 1]).uniform(0, 5, size=(n, 1))
    return supervised(y), y[:, 0]


@evidence("stability/E28", negative_control={"shift": 1.0})
def rises_are_sampling(size: str, shift: float = 0.0, seed: Seed = 0) -> Iterator[Finding]:
    """Adam with lr 1e-4 on adapters of a frozen network, 512 samples in batches of 64, and on all of them."""
    n, batch, steps = 512, 64, 160
    problem, y = _scores(seed, n)
    rng = np.random.default_rng([seed, 2])
    order = np.concatenate([rng.permutation(n).reshape(-1, batch) for _ in range(steps * batch // n)])
    for rank in (1, 4, 16) if size == "full" else (4,):
        network = _network(seed, rank, n)
        adam = Adam(1e-4, eps=1e-6, batches=MiniBatch(order=order))
        run = simulate(problem, network, adam, steps=steps, record=every(1), observe=["matrix"])
        outputs = np.asarray(run["matrix"])[:, 0]
        loss = np.array([np.mean((f[rows] - y[rows]) ** 2) for f, rows in zip(outputs, order, strict=False)])
        constant = np.mean((outputs[0].mean() + shift - y[order]) ** 2, axis=1)
        yield at_most(np.abs(loss - constant)[:16], 0.05, rank=rank, what="batch losses, 16 steps")
        yield within(np.mean(np.diff(loss) > 0), 0.4, 0.6, rank=rank, what="rises with batches")
        still = simulate(problem, network, Adam(1e-4, eps=1e-6), steps=steps, record=every(1), observe=["loss"])
        rises = np.mean(np.diff(np.asarray(still["loss"])) > 0)
        yield at_most(rises, 0, rank=rank, what="rises on a fixed batch")
        yield as_printed(at_least(rises, 0.1, rank=rank, what="rises on a fixed batch"))


@evidence("stability/E29", negative_control={"longer": 0.0})
def fall_is_an_escape(size: str, longer: float = 1.0, seed: Seed = 0) -> Iterator[Finding]:
    """Adam at two learning rates on adapters below a bounded random head without a bias, on a fixed batch: where lr
    times the number of steps is the same, so is the loss, var(y) + (mean(y) - f)^2 with one f for all samples, and it
    never rises. When the larger learning rate has done 95 % of its fall, the smaller one has done much less.
    """
    n, first = 256, (1e-3, 300)  # no step larger than the adapters are
    problem, y = _scores(seed, n)
    network = _network(seed, 8, n)
    ends, early, steps_of_first = [], [], 0
    for lr in (1e-3, 2e-4, 1e-4) if size == "full" else (1e-3, 2e-4):
        steps = round(first[1] * (first[0] / lr) ** longer)
        run = simulate(problem, network, Adam(lr, eps=1e-6), steps=steps, record=every(1), observe=["matrix"])
        outputs = np.asarray(run["matrix"])[:, 0]
        loss = np.mean((outputs - y) ** 2, axis=1)
        constant = y.var() + (y.mean() - outputs[-1].mean()) ** 2
        rises = np.sum(np.diff(loss) > 0)
        yield at_most(rises, 0, lr=lr, what="rises")
        yield as_printed(at_least(rises, 1, lr=lr, what="rises, of which a catapult has some"))
        yield at_most(outputs[-1].std() / y.std(), 1e-3, lr=lr, what="spread of the outputs over that of the labels")
        yield within(loss[-1] / constant, 0.98, 1.02, lr=lr, what="loss over that of a constant")
        ends.append(loss[0] - loss[-1])
        steps_of_first = steps_of_first or int(np.argmax(loss[0] - loss >= 0.95 * ends[0]))
        early.append(loss[0] - loss[steps_of_first])
    yield at_most(max(ends) / min(ends) - 1, 0.05, what="falls of the loss where lr times steps is the same")
    yield at_least(early[0] / max(early[1:]), 1.5, what="falls of the loss in equal numbers of steps")
