"""Claims of the spectral-bias paper on data and networks of any shape, on spaces of solutions, and on descent."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from linnet.claims.claim import Finding, Seed, at_least, at_most, claim, close, within
from linnet.init import i_gamma
from linnet.optim import SGD, GradientFlow
from linnet.problems import Regression, regression
from linnet.record import at, linear
from linnet.simulation import simulate
from linnet.states import Weights
from linnet.theory import spectral


def _size(array: Any) -> float:
    return float(np.linalg.norm(array, 2))


def _data(n: int, d: int, k: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Samples that can be fitted."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) / np.sqrt(max(n, d))
    return x, x @ rng.normal(size=(d, k))


@claim(
    "spectral/C30",
    "exact",
    "section 2; Theorems 3.1 and 3.2",
    negative_control={"law": lambda s, gamma: 1 / np.hypot(s, gamma)},
)
def any_shape(
    size: str, law: Callable[[Any, float], Any] = lambda s, gamma: 1 / (2 * np.hypot(s, gamma)), seed: Seed = 0
) -> Iterator[Finding]:
    """The invariant, the layers' spectra, the mirror flow of the singular values, the decay of the loss, and the limit
    hold for any n, d and k: more outputs than inputs, more samples than inputs, and one sample.
    """
    shapes = (
        ((3, 4, 6), (7, 3, 2), (1, 4, 3))
        if size == "quick"
        else ((3, 4, 6), (7, 3, 2), (6, 3, 8), (1, 4, 3), (6, 8, 1))
    )
    for n, d, k in shapes:
        x, y = _data(n, d, k, seed)
        problem, gamma = regression(x, y), 0.3
        squares = np.linalg.svd(x, compute_uv=False) ** 2
        times = np.array([0, 0.5, 1, 2, 5, 10 / (gamma * squares[-1])])
        run = simulate(
            problem,
            i_gamma(problem, gamma),
            GradientFlow(rtol=1e-12),
            time=times[-1],
            record=at(times),
            observe=["matrix", "loss"],
            checkpoint="states",
        )
        a, loss, w1, w2 = map(np.asarray, (run["matrix"], run["loss"], *run.states.layers))
        case = {"n": n, "d_in": d, "d_out": k}
        for i in range(1, 5):
            gap = w1[i] @ w1[i].T - w2[i].T @ w2[i] - 2 * gamma * np.eye(d)
            yield at_most(_size(gap) / _size(w1[i]) ** 2, 1e-9, what="invariant", **case)
            u, s, vt = np.linalg.svd(a[i], full_matrices=False)
            first = np.linalg.svd(w1[i], compute_uv=False)
            right = np.asarray(spectral.layer_values(s, gamma, d).first)
            yield close(first, right, rtol=1e-8, what="spectrum of W_1", **case)
            force = (y - x @ a[i].T).T @ x
            rate, pull = (
                np.einsum("ij,ik,kj->j", u, m, vt.T) for m in (force @ w1[i].T @ w1[i] + w2[i] @ w2[i].T @ force, force)
            )
            there = s > 1e-6 * s[0]
            gap = np.max(np.abs(law(s, gamma) * rate - pull)[there])
            yield at_most(gap / _size(force), 1e-7, what="mirror flow", **case)
        bound = np.asarray(spectral.loss_bound(times[1:5], loss[0], gamma, squares[-1]))
        yield at_most(loss[1:5] / bound, 1 + 1e-9, what="loss over its bound", **case)
        limit = (np.linalg.pinv(x) @ y).T
        yield at_most(_size(a[-1] - limit) / _size(limit), 1e-7, what="limit", **case)


@claim("spectral/C31", "asymptotic", "section 3.1", negative_control={"power": 2.0})
def neurons_align(size: str, power: float = 1.0, seed: Seed = 0) -> Iterator[Finding]:
    """For one output the tangent of the angle between a neuron's input weights and A is sqrt(2 gamma (r - 1) / m) with
    m = hypot(|A|, gamma) + gamma and r = |q|^2 |a|^2 / a_j^2, q its row of the initial frame and a_j its readout: all
    neurons align with A as gamma -> 0.
    """
    x, y = _data(4, 5, 1, seed)
    problem, width = regression(x, y), 20
    worst = []
    for gamma in (1e-1, 1e-3, 1e-5):
        initial = i_gamma(problem, gamma, width=width, key=jax.random.key(seed))
        end: Any = simulate(problem, initial, GradientFlow(rtol=1e-10), time=200.0, record=linear(2)).final
        q = np.asarray(initial.layers[0]) / np.sqrt(2 * gamma)
        a, w1, readout = np.asarray(end.matrix)[0], np.asarray(end.layers[0]), np.asarray(end.layers[1])[0]
        unit = a / np.linalg.norm(a)
        along = w1 @ unit
        tangent = np.linalg.norm(w1 - np.outer(along, unit), axis=1) / np.abs(along)
        m = np.hypot(np.linalg.norm(a), gamma) + gamma
        ratio = np.sum(q**2, axis=1) * np.sum(readout**2) / readout**2
        law = np.sqrt(2 * gamma * (ratio - 1) / m) ** power
        yield close(tangent, law, rtol=1e-4, gamma=gamma, neurons=width)
        worst.append(tangent.max())
    for before, after in pairwise(worst):
        yield at_most(after / before, 0.2, what="largest tangent, gamma a hundredth")


@claim("spectral/C32", "exact", "section 2", negative_control={"scale": 0.0})
def dimensions_of_the_solutions(size: str, scale: float = 1.0, seed: Seed = 0) -> Iterator[Finding]:
    """The solutions A are an affine set of dimension (d - n) k, and the weights that fit a manifold of dimension
    l (d + k) - n k around almost all of its points: dimensions of kernels, counted by singular values.
    """
    for n, d, k, width in (
        ((2, 4, 3, 6), (3, 5, 1, 7)) if size == "quick" else ((2, 4, 3, 6), (3, 5, 1, 7), (4, 6, 2, 9))
    ):
        rng = np.random.default_rng(seed)
        x, _ = _data(n, d, k, seed)
        w1, w2 = scale * rng.normal(size=(width, d)), scale * rng.normal(size=(k, width))

        def fitted(flat: Any, x: np.ndarray = x, shapes: Any = (w1.shape, w2.shape), at: int = w1.size) -> Any:
            first, second = (part.reshape(shape) for part, shape in zip(jnp.split(flat, [at]), shapes, strict=True))
            return (x @ (second @ first).T).ravel()

        slope = np.asarray(jax.jacobian(fitted)(jnp.concatenate([w1.ravel(), w2.ravel()])))
        linear_map = np.kron(x, np.eye(k))
        for what, matrix, right in (
            ("of the solutions A", scale * linear_map, (d - n) * k),
            ("of the weights that fit", slope, width * (d + k) - n * k),
        ):
            s = np.linalg.svd(matrix, compute_uv=False)
            dimension = matrix.shape[1] - int(np.sum(s > 1e-9 * max(s[0], 1e-30)))
            yield within(dimension, right - 0.5, right + 0.5, what=what, n=n, d_in=d, d_out=k, width=width)


@claim("spectral/C33", "exact", "section 2", negative_control={"rank": 1})
def balanced_initializations_have_low_rank(size: str, rank: int | None = None, seed: Seed = 0) -> Iterator[Finding]:
    """From a balanced initialization W_1 has rank k at most, all along the flow and whatever its scale; from I_gamma it
    has full rank, and the small values are sqrt(2 gamma).
    """
    n, d, k = 4, 6, 2
    x, y = _data(n, d, k, seed)
    problem = regression(x, y)
    u, s, vt = np.linalg.svd(np.random.default_rng(seed).normal(size=(k, d)), full_matrices=False)
    frame = np.linalg.qr(np.random.default_rng(seed + 1).normal(size=(8, k)))[0]
    for scale in (1e-2, 1.0, 10.0):
        root = np.sqrt(scale * s)
        balanced = Weights(((frame * root) @ vt, (u * root) @ frame.T))
        run = simulate(problem, balanced, GradientFlow(rtol=1e-11), time=6.0, record=linear(4), checkpoint="states")
        for w1 in np.asarray(run.states.layers[0]):
            values = np.linalg.svd(w1, compute_uv=False)
            yield at_most(values[rank or k] / values[0], 1e-7, scale=scale, what="sigma_{k+1}(W_1) / sigma_1(W_1)")
    gamma = 0.05
    end: Any = simulate(problem, i_gamma(problem, gamma), GradientFlow(rtol=1e-11), time=6.0, record=linear(2)).final
    values = np.linalg.svd(np.asarray(end.layers[0]), compute_uv=False)
    yield close(values[k:], np.sqrt(2 * gamma), rtol=1e-7, what="from I_gamma")


@claim("spectral/C34", "exact", "Lemma C.4, proof", negative_control={"shift": 0.0})
def only_isotropic_imbalance_has_a_potential(size: str, shift: float = 1.0, seed: Seed = 0) -> Iterator[Finding]:
    """Z -> Z - Z^{-T} D, the gradient that the proof needs for an imbalance D, is a gradient for D = c I, where its
    Jacobian is symmetric, and is none for any other diagonal D.
    """
    rng, d = np.random.default_rng(seed), 3
    for draw in range(2 if size == "quick" else 50):
        z = jnp.asarray(rng.normal(size=(d, d)) + 2 * np.eye(d))
        for name, diagonal in (("c I", np.full(d, 0.7)), ("diagonal", 0.7 + shift * np.arange(d))):

            def field(flat: Any, diagonal: np.ndarray = diagonal) -> Any:
                m = flat.reshape(d, d)
                return (m - jnp.linalg.inv(m).T * diagonal).ravel()

            slope = np.asarray(jax.jacobian(field)(z.ravel()))
            asymmetry = _size(slope - slope.T) / _size(slope - np.eye(d * d))
            if name == "c I":
                yield at_most(asymmetry, 1e-12, imbalance=name, draw=draw)
            else:
                yield at_least(asymmetry, 0.03, imbalance=name, draw=draw)


def _near_orthogonal(delta: float, seed: int) -> tuple[Regression, float]:
    """Inputs with X^T X = I + delta S, |S| = 1, and |A_inf|."""
    rng = np.random.default_rng(seed)
    d = 5
    symmetric = rng.normal(size=(d, d))
    symmetric = symmetric + symmetric.T
    values, basis = np.linalg.eigh(np.eye(d) + delta * symmetric / _size(symmetric))
    x = np.linalg.qr(rng.normal(size=(d, d)))[0] @ (basis * np.sqrt(values)) @ basis.T
    target = rng.normal(size=d)
    return regression(x, x @ (2 * target / np.linalg.norm(target))), 2.0


@claim("spectral/C35", "asymptotic", "appendix C.1, discrete steps", negative_control={"scale": 30.0})
def descent_on_nearly_orthogonal_data(size: str, scale: float = 1.0, seed: Seed = 0) -> Iterator[Finding]:
    """Descent with one output from W = sqrt(2 gamma) I, a = 0 ends at W of rank one nearly: sigma_2 / sigma_1 is at
    most 1.2 sqrt(2 gamma) / sqrt(|A|), on orthogonal data and, as the paper expects, on data with X^T X = I + delta S.
    """
    gamma = 1e-4
    for delta in (0.0, 0.1, 0.4) if size == "quick" else (0.0, 0.1, 0.2, 0.4, 0.6):
        problem, norm = _near_orthogonal(delta, seed)
        for lr in (0.02, 0.1):
            steps = round(60 / lr)
            end: Any = simulate(
                problem, i_gamma(problem, scale**2 * gamma), SGD(lr), steps=steps, record=linear(2)
            ).final
            values = np.linalg.svd(np.asarray(end.layers[0]), compute_uv=False)
            yield at_most(values[1] / values[0] / np.sqrt(2 * gamma / norm), 1.2, delta=delta, lr=lr)
            left = float(problem.cost(end.matrix)) / float(problem.cost(jnp.zeros_like(end.matrix)))
            yield at_most(left, 1e-6, what="loss / initial loss", delta=delta, lr=lr)
