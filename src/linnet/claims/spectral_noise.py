"""Claims of the spectral-bias paper on noise: descent with label noise, its equation, and growth."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from linnet import observe
from linnet._random import haar
from linnet.claims.claim import Finding, Seed, at_least, at_most, claim, close, near, one_sided, two_sided
from linnet.claims.spectral import exponents_along_paths
from linnet.init import i_gamma
from linnet.optim import LabelNoiseSGD, NoisyFlow
from linnet.problems import factorization, regression
from linnet.record import at, linear
from linnet.simulation import simulate
from linnet.states import Weights
from linnet.theory import spectral


@claim("spectral/C36", "asymptotic", "section 4.1", negative_control={"delta": 0.0})
def noise_acts_at_every_scale(size: str, delta: float = 1.0) -> Iterator[Finding]:
    """Label noise makes the first layer of low rank from larger initializations too: from every gamma the other
    singular values fall by the same factor, and the first one ends at the same value, while without noise they stay.
    """
    d, norm, lr, runs = 5, 2.0, 0.05, 6 if size == "quick" else 32
    inputs = np.asarray(haar(jax.random.key(2), d, d))
    problem = regression(inputs, norm * inputs[:, 0])
    gammas = np.repeat([0.1, 0.5, 2.0], runs)
    steps = 4000

    def one(gamma: Any, key: Any) -> Any:
        initial = Weights((jnp.sqrt(2 * gamma) * jnp.eye(d), jnp.zeros((1, d))))
        values = {"s": observe.layer_singular_values(1)}
        optimizer = LabelNoiseSGD(lr, delta)
        return simulate(problem, initial, optimizer, steps=steps, record=at([1]), observe=values, key=key)["s"][-1]

    ends = np.asarray(jax.vmap(one)(gammas, jax.random.split(jax.random.key(0), len(gammas)))).reshape(3, runs, d)
    expected = float(spectral.label_noise(1.0, norm, d).first)
    for gamma, found in zip((0.1, 0.5, 2.0), ends, strict=True):
        fall = np.mean(np.log(found[:, 1:] / np.sqrt(2 * gamma)))
        yield close(fall / (-(lr**2) * steps / 2), 1, atol=0.2, gamma=gamma, of="rate of the others / the law's")
        yield close(found[:, 0].mean() / expected, 1, atol=0.1, gamma=gamma, of="first value / its limit")


@lru_cache
def _moments(kind: str, dt: float, delta: float, paths: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Means of |W_1|^2, |a|^2 and the loss at t = 2, and their standard errors."""
    x = np.array([[1.0, 0.2, 0.0], [0.0, 0.8, 0.3], [0.1, 0.0, 0.6]])
    problem = regression(x, np.array([1.0, -0.5, 0.7]))
    # a step of descent with noise delta is one of the equation with noise delta sqrt(lr)
    optimizer: Any = LabelNoiseSGD(dt, delta / np.sqrt(dt)) if kind == "descent" else NoisyFlow(dt, delta)

    def one(key: Any) -> Any:
        state: Any = simulate(
            problem, i_gamma(problem, 0.2), optimizer, steps=round(2 / dt), record=linear(2), observe=[], key=key
        ).final
        w1, w2 = state.layers
        return jnp.array([jnp.sum(w1**2), jnp.sum(w2**2), problem.cost(state.matrix)])

    found = np.asarray(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(int(1e4 * dt) + seed), paths)))
    return found.mean(0), found.std(0) / np.sqrt(paths)


@claim("spectral/C37", "statistical", "appendix D", negative_control={"factor": 1.6}, level=two_sided(4), tests=6)
def descent_with_noise_follows_its_equation(size: str, factor: float = 1.0, seed: Seed = 0) -> Iterator[Finding]:
    """Descent with noisy labels has the moments of dW_1 = -dL/dW_1 dt + delta a dB^T X, da = -dL/da dt + delta W_1 X^T
    dB, with drift and noise of order one: means differ by 4 standard errors and 3 lr of their size at most.
    """
    paths = 8000 if size == "quick" else 100_000
    right, errors = _moments("equation", 0.01, 0.6, paths, seed)
    for lr in (0.1, 0.05):
        found, spread = _moments("descent", lr, 0.6 * factor, paths, seed)
        for name, one, other, error in zip(
            ("|W_1|^2", "|a|^2", "loss"), found, right, np.hypot(errors, spread), strict=True
        ):
            yield at_most(abs(one - other) / (4 * error + 3 * lr * other), 1.0, lr=lr, of=name, paths=paths)


_SCALES = ((1.0, 0.6, 0.3), (1.0, 0.9))  # singular values D of the data


@lru_cache
def _exponents(scales: tuple[float, ...], size: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Lyapunov exponents, their sum, the first less the second, and the standard errors of all."""
    problem, key = regression(np.diag(scales), np.zeros(len(scales))), jax.random.key(len(scales) + seed)
    found = exponents_along_paths(problem, size, key)
    found = np.hstack([found, found.sum(1, keepdims=True), found[:, :1] - found[:, 1:2]])
    return found.mean(0), found.std(0) / np.sqrt(len(found))


@claim(
    "spectral/C38",
    "statistical",
    "appendix D",
    negative_control={"power": 4},
    level=one_sided(4, 63),
    tests=2,
    band="the sum, which has no noise, to 1e-9",
)
def noise_of_any_data(size: str, power: int = 2, seed: Seed = 0) -> Iterator[Finding]:
    """For data with any singular values D, the Lyapunov exponents of pure noise add up to -sum D_j^2, and the first one
    is larger than the second, so that the layers align.
    """
    for scales in _SCALES:
        found, errors = _exponents(scales, size, seed)
        total, gap = found[-2], found[-1]
        right = -sum(scale**power for scale in scales)
        yield at_most(
            abs(total - right) / (4 * errors[-2] + 1e-9), 1.0, scales=scales, of="sum", unit="4 standard errors"
        )
        yield at_least(gap / errors[-1], 4.0, scales=scales, of="first less second", unit="standard errors")


@lru_cache
def _powers(d: int, p: float, paths: int, seed: int) -> dict[str, np.ndarray]:
    """E|a|^p, E|a-bar|^p for the moving average of a, and E of the root of that of |a|^2, at times 0.5, 1, ..., 3."""
    problem, dt = factorization(np.zeros((1, d))), 0.02
    optimizer = NoisyFlow(dt, drift=False)

    def one(key: Any) -> Any:
        def step(carry: Any, key: Any) -> Any:
            state, mean, square = carry
            state = optimizer.step(problem, state, None, None, key)[0]
            a = state.layers[1][0]
            mean, square = (m + dt * (x - m) for m, x in ((mean, a), (square, jnp.sum(a**2))))
            return (state, mean, square), jnp.array([jnp.sum(a**2), jnp.sum(mean**2), square])

        initial: Any = i_gamma(problem, 0.5)
        keys = jax.random.split(key, round(3 / dt))
        return jax.lax.scan(step, (initial, jnp.zeros(d), jnp.zeros(())), keys)[1][24::25]

    squares = np.asarray(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(d + seed), paths)))
    return dict(zip(("a", "average of a", "average of a^2"), np.moveaxis(squares ** (p / 2), 2, 0), strict=True))


@claim(
    "spectral/C39",
    "statistical",
    "Proposition 4.1(b)",
    negative_control={"d": 1},
    level=one_sided(4),
    tests=15,
    band="the growth rate to 0.15: 27 standard deviations over ten seeds are left",
)
def readouts_grow(size: str, d: int = 5, p: float = 0.5, seed: Seed = 0) -> Iterator[Finding]:
    """E|a|^p grows without bound for d >= 5 and p = 1/2, at the exponent of E|W_1|^p in the end, and so do the p-th
    moments of both averages, that of a, as in the statement, and that of a^2, as in the proof: by more than 4 standard
    errors from each half unit of time to the next.
    """
    found = _powers(d, p, 4000 if size == "quick" else 40_000, seed)
    for name, samples in found.items():
        logs = np.log(samples.mean(0))
        for i in range(1, samples.shape[1]):
            moved = samples[:, i] - samples[:, i - 1]
            yield at_least(
                moved.mean() / (moved.std() / np.sqrt(len(moved))), 4.0, of=name, d_in=d, p=p, time=(i + 1) / 2
            )
        if name == "a":
            slope = logs[-1] - logs[-3]  # over one unit of time
            yield near(slope, spectral.moment_exponent(p, d), 0.15, of=name, d_in=d, p=p, what="growth rate")
