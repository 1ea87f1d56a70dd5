"""Claims and errata of "On the spectral bias of two-layer linear networks"."""

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from linnet import observe
from linnet._random import haar
from linnet.claims.claim import Finding, Seed, as_printed, at_least, at_most, claim, close, evidence, two_sided, within
from linnet.init import gaussian, i_gamma, propagator
from linnet.optim import SGD, GradientFlow, LabelNoiseSGD, NoisyFlow
from linnet.problems import Problem, Regression, factorization, regression
from linnet.record import at, every, linear
from linnet.simulation import simulate
from linnet.states import Modes, Weights
from linnet.theory import spectral

# Runs that several checks share: one shape, so that they compile once ------------------------------------------------


class _Flow(NamedTuple):
    """A gradient flow from I_gamma at its recording times."""

    x: np.ndarray
    y: np.ndarray
    gamma: float
    times: np.ndarray
    a: np.ndarray
    loss: np.ndarray
    w1: np.ndarray
    w2: np.ndarray

    def force(self, i: int) -> np.ndarray:
        """G = (Y - X A^T)^T X."""
        return (self.y - self.x @ self.a[i].T).T @ self.x


def _data(seed: int, d_out: int) -> tuple[np.ndarray, np.ndarray]:
    """Four samples in five dimensions that can be fitted."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(4, 5)) / 2
    return x, x @ rng.normal(size=(5, d_out))


@lru_cache
def _flow(seed: int, gamma: float, d_out: int = 3, time: float = 6.0) -> _Flow:
    x, y = _data(seed, d_out)
    problem = regression(x, y)
    run = simulate(
        problem,
        i_gamma(problem, gamma),
        GradientFlow(rtol=1e-12),
        time=time,
        record=linear(13),
        observe=["matrix", "loss"],
        checkpoint="states",
    )
    return _Flow(x, y, gamma, *map(np.asarray, (run.times, run["matrix"], run["loss"], *run.states.layers)))


def _flows(size: str) -> Iterator[_Flow]:
    for seed, gamma in ((0, 0.3), (1, 1e-2)) if size == "quick" else ((0, 0.3), (1, 1e-2), (2, 3.0), (3, 1e-5)):
        yield _flow(seed, gamma)


def _size(*arrays: np.ndarray) -> float:
    return max(float(np.linalg.norm(array, 2)) for array in arrays)


# The flow ------------------------------------------------------------------------------------------------------------


@claim("spectral/C1", "exact", "Lemma 3.1", negative_control={"turn": 0.1})
def width_drops_out(size: str, turn: float = 0.0) -> Iterator[Finding]:
    """From I_gamma the first layer stays in the span of its frame Q, and Q^T W_1, W_2 Q move as d_in neurons do."""
    for seed in range(1 if size == "quick" else 4):
        x, y = _data(seed, 3)
        problem, gamma, width = regression(x, y), 0.3, 9
        full = i_gamma(problem, gamma, width=width, key=jax.random.key(seed))
        q = np.asarray(full.layers[0]) / np.sqrt(2 * gamma)
        optimizer = SGD(0.05)
        ends: Any = [simulate(problem, s, optimizer, steps=200).final for s in (full, i_gamma(problem, gamma))]
        wide, small = ends
        w1, w2 = (np.asarray(w) for w in wide.layers)
        q = q + turn * np.roll(q, 1, axis=0)
        yield at_most(_size(w1 - q @ (q.T @ w1)) / _size(w1), 1e-12, width=width, what="outside the frame")
        yield at_most(_size(q.T @ w1 - np.asarray(small.layers[0])) / _size(w1), 1e-12, width=width, what="Q^T W_1")
        yield at_most(_size(w2 @ q - np.asarray(small.layers[1])) / _size(w2), 1e-12, width=width, what="W_2 Q")


@claim("spectral/C2", "exact", "Lemma 3.2", negative_control={"share": 1.01})
def invariant(size: str, share: float = 1.0) -> Iterator[Finding]:
    """W_1 W_1^T - W_2^T W_2 = 2 gamma I along the flow."""
    for flow in _flows(size):
        for w1, w2 in zip(flow.w1, flow.w2, strict=True):
            gap = w1 @ w1.T - w2.T @ w2 - share * 2 * flow.gamma * np.eye(5)
            yield at_most(_size(gap) / _size(w1) ** 2, 1e-9, gamma=flow.gamma)


def _riccati(w1: np.ndarray, w2: np.ndarray) -> np.ndarray:
    return w2 @ np.linalg.inv(w1).T


@claim("spectral/C3", "exact", "Lemma 3.3 (corrected)", negative_control={"factor": 1.0})
def riccati_variable(size: str, factor: float = 2.0) -> Iterator[Finding]:
    """B = W_2 W_1^{-T} obeys B' = G - B G^T B; C1 = 2 gamma (I - B^T B)^{-1} and A = 2 gamma (I - B B^T)^{-1} B."""
    for flow in _flows(size):
        for i in range(1, len(flow.times), 3):
            w1, w2, g = flow.w1[i], flow.w2[i], flow.force(i)
            b = _riccati(w1, w2)
            rate = (g @ w1.T - b @ (w2.T @ g).T) @ np.linalg.inv(w1).T  # from the layers' own velocities
            yield at_most(_size(rate - (g - b @ g.T @ b)) / _size(g), 1e-9, gamma=flow.gamma, what="B'")
            scale = factor * flow.gamma
            c1 = scale * np.linalg.inv(np.eye(5) - b.T @ b)
            yield at_most(_size(c1 - w1.T @ w1) / _size(c1), 1e-6, gamma=flow.gamma, what="C1")
            a = scale * np.linalg.solve(np.eye(3) - b @ b.T, b)
            yield at_most(_size(a - flow.a[i]) / _size(a), 1e-6, gamma=flow.gamma, what="A")


@claim("spectral/C4", "exact", "Lemma C.3", negative_control={"row": 1})
def rows_stay_in_the_span_of_the_data(size: str, row: int = 0) -> Iterator[Finding]:
    """The rows of A and of B stay in the row space of X."""
    for flow in _flows(size):
        inside = np.linalg.pinv(flow.x[row:]) @ flow.x[row:]
        for i in range(1, len(flow.times), 3):
            for name, m in (("A", flow.a[i]), ("B", _riccati(flow.w1[i], flow.w2[i]))):
                yield at_most(_size(m - m @ inside) / _size(m), 1e-9, gamma=flow.gamma, what=name)


@lru_cache
def _limit(seed: int, gamma: float) -> _Flow:
    x, _ = _data(seed, 3)
    least = float(np.linalg.svd(x, compute_uv=False)[-1] ** 2)
    return _flow(seed, gamma, 3, 20 / (gamma * least))


@claim("spectral/C5", "exact", "Theorem 3.1(ii)", negative_control={"pull": 0.01})
def limit_is_the_least_norm(size: str, pull: float = 0.0) -> Iterator[Finding]:
    """For every gamma the flow ends at the minimum-norm interpolator A = (X^+ Y)^T."""
    for seed, gamma in ((0, 1.0), (1, 0.05)) if size == "quick" else ((0, 1.0), (1, 0.05), (2, 10.0), (3, 0.01)):
        flow = _limit(seed, gamma)
        right = (np.linalg.pinv(flow.x) @ flow.y).T * (1 + pull)
        yield at_most(_size(flow.a[-1] - right) / _size(right), 1e-9, gamma=gamma)
        yield at_most(flow.loss[-1] / flow.loss[0], 1e-16, gamma=gamma, what="loss")


@claim("spectral/C6", "bound", "Theorem 3.1(i), corrected", negative_control={"rate": 40.0})
def loss_decays(size: str, rate: float = 1.0) -> Iterator[Finding]:
    """L(t) <= L(0) exp(-4 gamma lambda t), lambda the least nonzero eigenvalue of X^T X."""
    for flow in _flows(size):
        least = float(np.linalg.svd(flow.x, compute_uv=False)[-1] ** 2)
        bound = spectral.loss_bound(rate * flow.times, flow.loss[0], flow.gamma, least)
        yield at_most(flow.loss / np.asarray(bound), 1 + 1e-9, gamma=flow.gamma)


@claim("spectral/C7", "exact", "Theorem 3.1(iii)", negative_control={"stretch": 1.05})
def limit_solves_the_variational_problem(size: str, stretch: float = 1.0) -> Iterator[Finding]:
    """The limit is the global minimum of |W_1|^2/2 + |W_2|^2/2 - gamma log det W_1^T W_1 over all weights that fit.

    Its conditions hold, the reduced objective is convex between random points, and weights that fit as well cost more.
    """
    for seed, gamma in ((0, 1.0), (1, 0.05)):
        flow = _limit(seed, gamma)
        w1, w2 = stretch * flow.w1[-1], flow.w2[-1] / stretch
        residuals = spectral.stationarity(w1, w2, flow.x, gamma)
        yield at_most(max(map(float, residuals)), 1e-7, gamma=gamma, what="conditions")
        rng = np.random.default_rng(seed)
        least = float(spectral.log_det_objective(w1, w2, gamma))
        rivals, bends = [], []
        for _ in range(10 if size == "quick" else 200):
            first = flow.w1[-1] + 0.2 * rng.normal(size=w1.shape)
            second = flow.w2[-1] + 0.2 * rng.normal(size=w2.shape)
            second += (flow.a[-1] - second @ first) @ np.linalg.inv(first)
            rivals.append(float(spectral.log_det_objective(first, second, gamma)))
            points = [(m @ m.T + 0.1 * np.eye(5), rng.normal(size=(3, 5))) for m in rng.normal(size=(2, 5, 5))]
            gram, matrix = ((p + q) / 2 for p, q in zip(*points, strict=True))
            ends = [float(spectral.reduced_objective(c1, a, gamma)) for c1, a in points]
            bends.append(sum(ends) / 2 - float(spectral.reduced_objective(gram, matrix, gamma)))
        yield at_least(min(rivals) - least, 0.0, gamma=gamma, what="rivals cost more", rivals=len(rivals))
        yield at_least(min(bends), 0.0, gamma=gamma, what="midpoint convexity", pairs=len(bends))


@claim("spectral/C8", "exact", "Corollary 3.1, Lemma C.10", negative_control={"share": 1.05})
def layer_spectra(size: str, share: float = 1.0) -> Iterator[Finding]:
    """At all times sigma_i(W_1) = sqrt(hypot(s_i, gamma) + gamma) and sigma_i(W_2) = s_i / sigma_i(W_1)."""
    for flow in _flows(size):
        for a, w1, w2 in zip(flow.a, flow.w1, flow.w2, strict=True):
            s, first, second = (np.linalg.svd(m, compute_uv=False) for m in (a, w1, w2))
            layers = spectral.layer_values(s, share * flow.gamma, 5)
            yield close(first, np.asarray(layers.first), rtol=1e-8, gamma=flow.gamma, layer=1)
            yield at_most(
                np.max(np.abs(second - np.asarray(layers.second))) / first[0], 1e-8, gamma=flow.gamma, layer=2
            )


@claim("spectral/C9", "exact", "Theorem 3.1, consequence", negative_control={"shrink": 0.9})
def least_norm_minimizes_every_singular_value(size: str, shrink: float = 1.0) -> Iterator[Finding]:
    """Among all A that fit, the minimum-norm one has the smallest s_i for every i: A A^T = A_inf A_inf^T + PSD."""
    for seed in range(5 if size == "quick" else 100):
        x, y = _data(seed, 3)
        least = (np.linalg.pinv(x) @ y).T
        free = np.random.default_rng(seed + 50).normal(size=(3, 5)) @ (np.eye(5) - np.linalg.pinv(x) @ x)
        other = shrink * least + free
        lowest = np.linalg.eigvalsh(other @ other.T - least @ least.T)[0]
        yield at_least(lowest / _size(least) ** 2, -1e-12, seed=seed)
        gap = np.linalg.svd(other, compute_uv=False) - np.linalg.svd(least, compute_uv=False)
        yield at_least(np.min(gap) / _size(least), -1e-12, seed=seed)


def _moved(flow: _Flow, i: int) -> np.ndarray:
    """dA/dt from the layers' velocities."""
    w1, w2, g = flow.w1[i], flow.w2[i], flow.force(i)
    return g @ w1.T @ w1 + w2 @ w2.T @ g


def _entropy_slope(s: np.ndarray, gamma: float) -> np.ndarray:
    """Second derivative of the corrected entropy: 1 / (2 hypot(s, gamma))."""
    return 1 / (2 * np.hypot(s, gamma))


@claim(
    "spectral/C10", "exact", "Theorem 3.2(a), corrected", negative_control={"slope": lambda s, g: 1 / np.hypot(s, g)}
)
def singular_values_follow_a_mirror_flow(
    size: str, slope: Callable[[np.ndarray, float], np.ndarray] = _entropy_slope
) -> Iterator[Finding]:
    """d/dt [1/2 asinh(s_i/gamma)] = u_i^T G v_i on general data, wherever s_i is simple and not zero."""
    for flow in _flows(size):
        for i in range(2, len(flow.times), 2):
            u, s, vt = np.linalg.svd(flow.a[i], full_matrices=False)
            rate = np.einsum("ij,ik,kj->j", u, _moved(flow, i), vt.T)
            pull = np.einsum("ij,ik,kj->j", u, flow.force(i), vt.T)
            gap = np.max(np.abs(slope(s, flow.gamma) * rate - pull))
            yield at_most(gap / _size(flow.force(i)), 1e-8, gamma=flow.gamma, time=flow.times[i])


@claim("spectral/C11", "exact", "Theorem 3.2(b)", negative_control={"power": 0.25})
def one_output_follows_a_mirror_flow(size: str, power: float = 0.5) -> Iterator[Finding]:
    """For one output, phi = A / sqrt(m) with m = hypot(|A|, gamma) + gamma moves by sqrt(m) G."""
    for seed, gamma in ((0, 0.3), (1, 1e-2)) if size == "quick" else ((0, 0.3), (1, 1e-2), (2, 5.0), (3, 1e-4)):
        flow = _flow(seed, gamma, 1)
        for i in range(1, len(flow.times), 3):
            a, moved = jnp.asarray(flow.a[i][0]), jnp.asarray(_moved(flow, i)[0])
            rate = jax.jvp(lambda b, g=gamma: spectral.potential_gradient(b, g), (a,), (moved,))[1]
            m = np.hypot(np.linalg.norm(a), gamma) + gamma
            gap = _norm1(np.asarray(rate) - m**power * flow.force(i)[0])
            yield at_most(gap / max(_norm1(np.asarray(rate)), 1e-12), 1e-7, gamma=gamma, time=flow.times[i])


def _norm1(vector: np.ndarray) -> float:
    return float(np.linalg.norm(vector))


@claim(
    "spectral/C12",
    "bound",
    "Lemma C.8",
    hypotheses={"one output": lambda case: case["d_out"] == 1},
    negative_control={"share": 0.02},
)
def rate_of_one_output(size: str, share: float = 1.0) -> Iterator[Finding]:
    """L(t) <= D(A_inf, 0) / (sqrt(2 gamma) t), and half of that, and |A_inf|^2 / (8 gamma t)."""
    for seed, gamma in ((0, 0.3), (1, 1e-2)) if size == "quick" else ((0, 0.3), (1, 1e-2), (2, 5.0), (3, 1e-4)):
        flow = _flow(seed, gamma, 1)
        limit = (np.linalg.pinv(flow.x) @ flow.y)[:, 0]
        rate = spectral.rate(flow.times[1:], limit, gamma)
        yield at_most(flow.loss[1:] / np.asarray(rate.printed), share, gamma=gamma, d_out=1, which="printed")
        yield at_most(flow.loss[1:] / np.asarray(rate.sharp), share, gamma=gamma, d_out=1, which="sharper")


@claim("spectral/C13", "exact", "section 3.3, after Lemma 3.2", negative_control={"swap": True})
def grams_commute(size: str, swap: bool = False) -> Iterator[Finding]:
    """A A^T commutes with C2 and A^T A with C1 at all times."""
    for flow in _flows(size):
        for a, w1, w2 in zip(flow.a[1:], flow.w1[1:], flow.w2[1:], strict=True):
            for left, right in ((a @ a.T, w2 @ w2.T), (a.T @ a, w1 @ w1.T if swap else w1.T @ w1)):
                yield at_most(_size(left @ right - right @ left) / (_size(left) * _size(right)), 1e-9, gamma=flow.gamma)


# Whitened data -------------------------------------------------------------------------------------------------------


def _whitened(scale: float, rows: int = 5) -> tuple[Regression, np.ndarray]:
    x = scale * np.asarray(haar(jax.random.key(1), 5, rows)).T
    y = x @ np.random.default_rng(4).normal(size=(5, 3))
    return regression(x, y), (np.linalg.pinv(x) @ y).T


@claim("spectral/C14", "exact", "Theorems C.11 and C.12", negative_control={"scale": 1.1})
def whitened_closed_form(size: str, scale: float = 1.0) -> Iterator[Finding]:
    """Where all nonzero singular values of X are equal, the singular vectors of A stand still and s_i(t) is closed."""
    for c, rows, gamma in (
        ((1.0, 4, 0.1), (0.7, 4, 1e-3)) if size == "quick" else ((1.0, 4, 0.1), (0.7, 4, 1e-3), (2.0, 4, 2.0))
    ):
        problem, limit = _whitened(c, rows)
        u, s, vt = np.linalg.svd(limit, full_matrices=False)
        run = simulate(
            problem, i_gamma(problem, gamma), GradientFlow(rtol=1e-12), time=6.0, record=linear(13), observe=["matrix"]
        )
        for t, a in zip(np.asarray(run.times)[1:], np.asarray(run["matrix"])[1:], strict=True):
            core = u.T @ a @ vt.T
            predicted = np.asarray(spectral.whitened(t, s, gamma, scale * c))
            yield at_most(np.max(np.abs(core - np.diag(predicted))) / s[0], 1e-8, gamma=gamma, c=c, time=t)


@claim("spectral/C15", "asymptotic", "Theorem C.12, corrected", negative_control={"power": 2.0})
def jumps(size: str, power: float = 1.0) -> Iterator[Finding]:
    """As gamma -> 0, s(ln(1/gamma) t) tends to 0 before 1/(2 s_star), s_star/(1 + 2 s_star) there, s_star after."""
    for target in (0.5, 1.0, 3.0):
        at = power / (2 * target)
        for share in (0.9, 1.0, 1.1):
            gaps = [
                abs(
                    float(spectral.whitened(np.log(1 / g) * share * at, target, g))
                    - float(spectral.jump(share / (2 * target), target))
                )
                for g in (1e-8, 1e-60)
            ]
            yield at_most(gaps[1], max(1e-5, 1e-2 * gaps[0]), target=target, share=share)


@claim("spectral/C16", "exact", "section 3.2", negative_control={"order": -1.0})
def larger_values_come_first(size: str, order: float = 1.0) -> Iterator[Finding]:
    """Hitting times decrease in s_star, and at any time s increases with s_star."""
    targets = np.geomspace(1e-2, 1e2, 60)
    for gamma in (1e-12, 1e-3, 1.0):
        for share in (0.01, 0.5, 0.99):
            times = np.asarray(spectral.hitting_time(share, targets, gamma))
            yield at_most(order * np.diff(np.log(times)), 1e-12, gamma=gamma, share=share)
        values = np.asarray(spectral.whitened(np.log(1 / gamma + 2) / 2, targets, gamma))
        yield at_least(order * np.diff(values), 0.0, gamma=gamma)


@claim("spectral/C17", "asymptotic", "text after Theorem 3.2, corrected", negative_control={"factor": 1.0})
def entropy_tends_to_the_nuclear_norm(size: str, factor: float = 0.5) -> Iterator[Finding]:
    """Psi / ln(1/gamma) tends to half the nuclear norm as gamma -> 0, with an error that falls as 1 / ln(1/gamma)."""
    values = jnp.array([2.0, 0.5, 0.1])
    gaps = []
    for gamma in (1e-10, 1e-20, 1e-40):
        ratio = float(spectral.entropy(values, gamma)) / (np.log(1 / gamma) * float(jnp.sum(values)))
        gaps.append(abs(ratio - factor))
    for before, after in pairwise(gaps):
        yield within(after / before, 0.45, 0.55)


@claim("spectral/C28", "exact", "section 3.1", negative_control={"gamma": 1e-3})
def zero_is_stationary(size: str, gamma: float = 0.0) -> Iterator[Finding]:
    """With gamma = 0 nothing moves: the limits of long times and of small gamma do not commute."""
    x, y = _data(0, 3)
    initial = Weights((np.sqrt(2 * gamma) * np.eye(5), np.zeros((3, 5))))
    run = simulate(regression(x, y), initial, SGD(0.1), steps=200, record=every(200))
    yield at_most(_size(np.asarray(run.final.matrix)), 0.0)


@claim("spectral/C29", "exact", "section 3.2", negative_control={"order": -1.0})
def smaller_initializations_are_slower(size: str, order: float = 1.0) -> Iterator[Finding]:
    """Every hitting time decreases in gamma."""
    gammas = np.geomspace(1e-12, 1e4, 80)
    for target in (1e-3, 1.0, 50.0):
        for share in (0.01, 0.5, 0.99):
            times = np.asarray(spectral.hitting_time(share, target, gammas))
            yield at_most(order * np.diff(times) / times[1:], 0.0, target=target, share=share)


# Descent -------------------------------------------------------------------------------------------------------------


@claim("spectral/C25", "exact", "appendix C.1, discrete steps", negative_control={"stretch": 1.01})
def descent_on_whitened_data(size: str, stretch: float = 1.0) -> Iterator[Finding]:
    """On whitened data descent from I_gamma keeps the singular vectors, and each mode is a recursion of two numbers."""
    problem, limit = _whitened(1.0)
    u, s, vt = np.linalg.svd(limit, full_matrices=False)
    gamma, steps, lr = 0.2, 300, SGD(0.05)
    full = simulate(problem, i_gamma(problem, gamma), lr, steps=steps, observe=["matrix"])["matrix"]
    pair = Modes(np.stack([np.full(3, np.sqrt(2 * gamma * stretch)), np.zeros(3)]))
    modes = simulate(factorization(s), pair, lr, steps=steps, observe=["modes"])["modes"]
    core = np.einsum("ij,tik,lk->tjl", u, np.asarray(full), vt)
    gap = core - np.asarray(modes)[:, :, None] * np.eye(3)
    yield at_most(np.max(np.abs(gap)) / s[0], 1e-12, gamma=gamma, steps=steps)


@claim("spectral/C26", "asymptotic", "appendix C.1, discrete steps", negative_control={"order": 2.0})
def descent_leaves_the_layer_law_slowly(size: str, order: float = 1.0) -> Iterator[Finding]:
    """Gradient descent departs from the law of the layers' singular values in proportion to the learning rate."""
    x, y = _data(0, 3)
    problem, gamma = regression(x, y), 0.3
    gaps = []
    for lr in (0.1, 0.05, 0.025):
        final: Any = simulate(problem, i_gamma(problem, gamma), SGD(lr), steps=round(60 / lr), record=linear(2)).final
        s, first = (np.linalg.svd(np.asarray(m), compute_uv=False) for m in (final.matrix, final.layers[0]))
        gaps.append(np.max(np.abs(first[:3] / np.asarray(spectral.layer_values(s, gamma, 5).first)[:3] - 1)))
    for before, after in pairwise(gaps):
        yield within(before / after / 2**order, 0.9, 1.1)


@claim("spectral/C27", "asymptotic", "appendix C.1, Figure 1a", negative_control={"factor": 2.0})
def wide_gaussian_layers(size: str, factor: float = 1.0, seed: Seed = 3) -> Iterator[Finding]:
    """A wide Gaussian first layer with W_2 = 0 acts as I_gamma with gamma = width variance / 2 when wide: A differs by
    at most 4 sqrt(d/w), and the singular values of the first layer by at most 2 sqrt(d/w), relative.
    """
    x, y = _data(2, 3)
    problem, gamma = regression(x, y), 0.3
    optimizer = SGD(0.02)
    right: Any = simulate(problem, i_gamma(problem, factor * gamma), optimizer, steps=400, record=linear(2)).final
    law = np.linalg.svd(np.asarray(right.layers[0]), compute_uv=False)
    found: dict[str, list[float]] = {"A": [], "spectrum of W_1": []}
    for width in (1e3, 1e5, 1e7):
        w1, w2 = gaussian(jax.random.key(seed), problem, width, 2 * gamma / width).layers
        end: Any = simulate(problem, Weights((w1, jnp.zeros_like(w2))), optimizer, steps=400, record=linear(2)).final
        found["A"].append(_size(np.asarray(end.matrix - right.matrix)) / _size(np.asarray(right.matrix)))
        first = np.linalg.svd(np.asarray(end.layers[0]), compute_uv=False)
        found["spectrum of W_1"].append(float(np.max(np.abs(first / law - 1))))
        for (name, gaps), constant in zip(found.items(), (4, 2), strict=True):
            yield at_most(gaps[-1], constant * np.sqrt(5 / width), width=width, of=name)
    for name, gaps in found.items():
        for before, after in pairwise(gaps):
            yield at_most(after / before, 0.2, what="a hundred times wider", of=name)


# Noise ---------------------------------------------------------------------------------------------------------------

_DT = 0.01  # steps of Euler and Maruyama; the checks know what the scheme itself does, so this is no error


@lru_cache
def _flow_maps(d: int, steps: int, paths: int, seed: int = 0) -> np.ndarray:
    """Phi(t) of the pure-noise process on many paths: S(t) = Phi(t) S(0) for every initialization."""
    problem = factorization(np.zeros((1, d)))
    optimizer = NoisyFlow(_DT, drift=False)

    def one(key: Any) -> Any:
        return simulate(
            problem, propagator(problem), optimizer, steps=steps, record=linear(2), observe=[], key=key
        ).final

    first, second = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(d + seed), paths)).layers
    return np.concatenate([np.swapaxes(np.asarray(first), 1, 2), np.asarray(second)], axis=1)


def _paths(size: str) -> int:
    return 20_000 if size == "quick" else 200_000


def _deviation(samples: np.ndarray, expected: float) -> float:
    """How many standard errors the mean of the samples is from what is expected."""
    return float((samples.mean() - expected) / (samples.std() / np.sqrt(len(samples))))


_INITIAL = np.array([[1.0, 0.3, -0.2], [0.1, 0.8, 0.5], [-0.4, 0.2, 1.1], [0.5, -0.7, 0.3]])  # columns c_i above a


@claim(
    "spectral/C18",
    "statistical",
    "Proposition 4.1(a)",
    negative_control={"growth": 2.0},
    level=two_sided(4),
    tests=2,
    band="the error of the scheme without noise",
)
def second_moments_of_noise(size: str, growth: float = 1.0, seed: Seed = 0) -> Iterator[Finding]:
    """E|W_1|^2 and E|a|^2 grow as cosh and sinh of sqrt(d_in) t: many paths to t = 1 meet the scheme's own exact mean
    within 4 standard errors, and that mean tends to the formula as the steps shrink.
    """
    d, steps = 3, 100
    stack = _flow_maps(d, steps, _paths(size), seed) @ _INITIAL
    squares = np.sum(_INITIAL**2, axis=1)
    initial = np.array([squares[:d].sum(), squares[d]])

    def scheme(h: float) -> np.ndarray:
        move = np.array([[1.0, growth * h * d], [growth * h, 1.0]])  # |W_1|^2 and |a|^2 after an Euler step, on average
        return np.linalg.matrix_power(move, round(steps * _DT / h)) @ initial

    for name, samples, mean in zip(
        ("|W_1|^2", "|a|^2"), (np.sum(stack[:, :d] ** 2, (1, 2)), np.sum(stack[:, d] ** 2, 1)), scheme(_DT), strict=True
    ):
        yield within(_deviation(samples, mean), -4, 4, d_in=d, of=name, paths=len(samples), unit="standard errors")
    right = np.array(spectral.noise_moments(steps * _DT, squares[:d], squares[d]))
    gaps = [np.max(np.abs(scheme(h) / right - 1)) for h in (1e-3, 1e-4)]
    yield within(gaps[1] / gaps[0], 0.09, 0.11, d_in=d, what="a tenth of the step, a tenth of the error")


@claim(
    "spectral/C20",
    "statistical",
    "Proposition 4.1(c), the signed mean",
    negative_control={"rate": 2.0},
    level=two_sided(4),
    tests=9,
)
def mean_of_the_commutator(size: str, rate: float = 1.0, seed: Seed = 0) -> Iterator[Finding]:
    """E[K_i(t)] = K_i(0) e^{-t} for K_i = c_i a^T - a c_i^T: within 4 standard errors of (1 - dt)^k K_i(0), which is
    exact for the scheme.
    """
    d, steps = 3, 100
    stack = _flow_maps(d, steps, _paths(size), seed) @ _INITIAL
    mean = np.asarray(
        spectral.commutator_mean(steps * _DT, _INITIAL[:d].T, _INITIAL[d], np.full(d, np.sqrt(rate)), step=_DT)
    )
    for i in range(d):
        for j, k in ((0, 1), (0, 2), (1, 2)):
            entry = stack[..., i, j] * stack[..., d, k] - stack[..., i, k] * stack[..., d, j]
            yield within(
                _deviation(entry, float(mean[i, j, k])),
                -4,
                4,
                d_in=d,
                entry=(i, j, k),
                paths=len(entry),
                unit="standard errors",
            )


def _commutators(size: str) -> np.ndarray:
    """The entry of K_1 on many paths at t = 2 from W_1 = I, a = 0 with two inputs."""
    stack = _flow_maps(2, 200, _paths(size))[:, :, :2]
    return np.asarray(stack[:, 0, 0] * stack[:, 2, 1] - stack[:, 0, 1] * stack[:, 2, 0])


@claim("spectral/C21", "refuted", "Proposition 4.1(c)", negative_control={"magnitude": lambda entry: entry})
def commutators_vanish_in_mean(size: str, magnitude: Callable[[np.ndarray], np.ndarray] = np.abs) -> Iterator[Finding]:
    """E|K_i(t)| = |K_i(0)| e^{-t}, so that layers align in the mean: from a = 0 it would stay 0 (see `spectral/E6`)."""
    entries = magnitude(_commutators(size))
    yield within(_deviation(entries, 0.0), -4, 4, d_in=2, time=2, paths=len(entries), unit="standard errors")


@claim("spectral/C24", "asymptotic", "section 4.1, label noise", negative_control={"power": 1.0})
def label_noise_shrinks_small_singular_values(size: str, power: float = 2.0) -> Iterator[Finding]:
    """Small label noise makes the other singular values of W_1 fall as exp(-lr^2 delta^2 k / 2) and the first tend to
    d_in^{1/4} |A|^{1/2}: within a few per cent for small noise, and closer as lr and delta^2 shrink.
    """
    d, norm, runs = 5, 2.0, 8 if size == "quick" else 32
    settings = np.array([[0.1, 1.0], [0.04, 0.4**0.5]])  # lr and delta^2 shrink by the same factor
    inputs = np.asarray(haar(jax.random.key(2), d, d))
    problem = regression(inputs, norm * inputs[:, 0])
    values = {"s": observe.layer_singular_values(1)}

    def one(lr: Any, delta: Any, steps: Any, key: Any) -> Any:
        optimizer = LabelNoiseSGD(lr, delta)
        run = simulate(problem, i_gamma(problem, 0.5), optimizer, steps=steps, record=at([1]), observe=values, key=key)
        return run["s"][-1]

    lr, delta = (np.repeat(column, runs) for column in settings.T)
    steps = np.round(6 / (lr * delta) ** 2).astype(int)
    ends = np.asarray(jax.vmap(one)(lr, delta, steps, jax.random.split(jax.random.key(0), len(lr))))
    rates = -np.log(ends[:, 1:]).mean(1) / ((lr * delta) ** power * steps / 2)
    gaps = np.abs(rates.reshape(2, runs).mean(1) - 1)
    yield at_most(gaps[-1], 0.05, lr=0.04, runs=runs, of="rate of decay")
    yield at_most(gaps[1] / gaps[0], 0.5, what="lr and delta^2 times 0.4: gap of the rate", runs=runs)
    first = ends[:, 0].reshape(2, runs).mean(1)[-1] / float(spectral.label_noise(1.0, norm, d).first)
    yield close(first, 1, atol=0.05, lr=0.04, runs=runs, of="first value")


def exponents_along_paths(problem: Problem, size: str, key: Any) -> np.ndarray:
    """Lyapunov exponents of pure noise by QR along paths of the geometric scheme, a row for each path."""
    paths, time, burn, block = (64, 40.0, 5.0, 20) if size == "quick" else (256, 200.0, 10.0, 20)
    d = problem.shape[1]
    dt = 0.02 / d
    optimizer = NoisyFlow(dt, drift=False, scheme="geometric")
    prepared = optimizer.prepare(problem, propagator(problem))
    blocks, skipped = (round(t / (block * dt)) for t in (time, burn))

    def stretch(frame: Any, key: Any) -> Any:
        state: Any = Weights((frame.T[:, :d], frame[d:]))
        state = jax.lax.fori_loop(
            0, block, lambda i, s: optimizer.step(problem, s, None, prepared, jax.random.fold_in(key, i))[0], state
        )
        basis, r = jnp.linalg.qr(jnp.concatenate([state.layers[0].T, state.layers[1]]))
        return basis, jnp.log(jnp.abs(jnp.diagonal(r)))

    def path(key: Any) -> Any:
        logs = jax.lax.scan(stretch, jnp.eye(d + 1), jax.random.split(key, blocks))[1]
        return logs[skipped:].mean(0) / (block * dt)

    return np.asarray(jax.jit(jax.vmap(path))(jax.random.split(key, paths)))


@claim("spectral/C19", "exact", "Proposition 4.1(b), for d_in >= 2", negative_control={"dimensions": (1,)})
def moments_grow(size: str, dimensions: Any = None) -> Iterator[Finding]:
    """E|W_1|^p grows for every p > 0 and d_in >= 2: the exponent g(p) is positive, and g(2) = sqrt(d_in)."""
    for d in dimensions or ((2, 3, 5) if size == "quick" else (2, 3, 4, 5, 6, 10, 20)):
        for p in (0.05, 0.5, 1.0):
            yield at_least(spectral.moment_exponent(p, d), 1e-9, d_in=d, p=p)
        yield close(spectral.moment_exponent(2.0, d), np.sqrt(d), rtol=1e-6, d_in=d, p=2.0)


@claim("spectral/C22", "exact", "text after Proposition 4.1, corrected", negative_control={"shift": 1})
def which_dimensions_align(size: str, shift: int = 0) -> Iterator[Finding]:
    """The first singular value grows and the others decay almost surely if and only if d_in is 3, 4 or 5."""
    for d in range(2, 9 if size == "quick" else 30):
        first, second = spectral.lyapunov(d + shift)[:2]
        if d in (3, 4, 5):
            yield at_least(first, 1e-3, d_in=d, what="the first grows")
            yield at_most(second, -1e-3, d_in=d, what="the second decays")
        elif d == 2:
            yield at_most(abs(first), 1e-12, d_in=d, what="the first neither grows nor decays")
        else:
            yield at_least(second, 1e-3, d_in=d, what="the second grows too")
    for d in (2, 4) if size == "quick" else range(2, 7):  # the formulas against paths
        found = exponents_along_paths(factorization(np.zeros((1, d))), size, jax.random.key(d))
        errors = found.std(0) / np.sqrt(len(found))
        worst = np.max(np.abs(found.mean(0) - spectral.lyapunov(d + shift)[: d + 1]) / errors)
        yield at_most(worst, 4.0, d_in=d, what="QR along paths", unit="standard errors")


@claim("spectral/C23", "exact", "section 4.1", negative_control={"d": 3})
def one_input_collapses(size: str, d: int = 1) -> Iterator[Finding]:
    """With one input both exponents are -1/2: everything collapses almost surely."""
    for exponent in spectral.lyapunov(d)[:2]:
        yield at_most(abs(exponent + 0.5), 1e-12, d_in=d)


# Errata --------------------------------------------------------------------------------------------------------------


def _printed_slope(s: np.ndarray, gamma: float) -> np.ndarray:
    """Second derivative of 1/2 s asinh(s/gamma) - hypot(s, gamma)."""
    h = np.hypot(s, gamma)
    return 1 / (2 * h) - gamma**2 / (2 * h**3)


@evidence("spectral/E1", negative_control={"slope": _printed_slope})
def potential_of_the_mirror_flow(
    size: str, slope: Callable[[np.ndarray, float], np.ndarray] = _entropy_slope
) -> Iterator[Finding]:
    """The time derivative of the potential's gradient against u_i^T G v_i, along flows on general data."""
    for flow in _flows(size):
        i = 4
        u, s, vt = np.linalg.svd(flow.a[i], full_matrices=False)
        rate, pull = (np.einsum("ij,ik,kj->j", u, m, vt.T) for m in (_moved(flow, i), flow.force(i)))
        unit = np.max(np.abs(pull))
        yield at_most(np.max(np.abs(slope(s, flow.gamma) * rate - pull)) / unit, 1e-8, gamma=flow.gamma)
        yield as_printed(
            at_most(np.max(np.abs(_printed_slope(s, flow.gamma) * rate - pull)) / unit, 1e-3, gamma=flow.gamma)
        )


@evidence("spectral/E2", negative_control={"factor": 1.0})
def entropy_at_small_gamma(size: str, factor: float = 0.5) -> Iterator[Finding]:
    """The ratio at gamma = 1e-100."""
    ratio = float(spectral.entropy(jnp.array([1.0, 0.5]), 1e-100)) / (np.log(1e100) * 1.5)
    yield close(ratio, factor, atol=0.01)
    yield as_printed(close(ratio, 1.0, atol=0.01))


_SLOW_GAMMA = 1e-6


def _slow_flow() -> tuple[np.ndarray, np.ndarray, Weights]:
    """Inputs, outputs, and initialization of a flow along which X^T (Y - X A) grows for a while."""
    x, y = np.array([[1.0, 0.2], [0.0, 0.01]]), np.array([[0.02], [0.05]])
    return x, y, i_gamma(regression(x, y), _SLOW_GAMMA)


@evidence("spectral/E4", negative_control={"rate": 40.0})
def trace_of_three_matrices(size: str, rate: float = 1.0) -> Iterator[Finding]:
    """A = diag(1, 0.01), B = [[1, 1], [1, 1.01]], C = v v^T with v = (1, -2); the matrices X^T X, C1 and R R^T of the
    flow of `spectral/E17` at t = 1000; and the loss bound along flows.
    """
    a, b, v = np.diag([1.0, 0.01]), np.array([[1.0, 1.0], [1.0, 1.01]]), np.array([1.0, -2.0])
    left = float(v @ a @ b @ v)
    bound = np.linalg.eigvalsh(a)[0] * np.linalg.eigvalsh(b)[0] * float(v @ v)
    yield as_printed(at_least(left, bound))
    x, y, initial = _slow_flow()
    end: Any = simulate(regression(x, y), initial, GradientFlow(rtol=1e-11), time=1000.0, record=linear(2)).final
    r, c1 = x.T @ (y - x @ np.asarray(end.matrix).T), np.asarray(end.layers[0].T @ end.layers[0])
    used = float((r.T @ x.T @ x @ c1 @ r)[0, 0]) / float(np.sum(r**2))
    yield as_printed(
        at_least(used / (np.linalg.eigvalsh(x.T @ x)[0] * np.linalg.eigvalsh(c1)[0]), 1.0, time=1000),
        "for the matrices of a flow",
    )
    yield from loss_decays.check(size, rate=rate)


@evidence("spectral/E5", negative_control={"shift": 0.02})
def value_at_the_jump(size: str, shift: float = 0.0) -> Iterator[Finding]:
    """The closed form at gamma = 1e-200, at the time of the jump."""
    for target in (0.5, 1.0, 3.0):
        value = float(spectral.whitened(np.log(1e200) * (1 + shift) / (2 * target), target, 1e-200))
        yield close(value, target / (1 + 2 * target), rtol=1e-9, target=target)
        yield as_printed(close(value, target, rtol=1e-2, target=target))


@evidence("spectral/E6", negative_control={"limit": 0.6})
def mean_size_of_the_commutator(size: str, limit: float | None = None) -> Iterator[Finding]:
    """Ito's formula for |x| needs the local time at 0. Paths at t = 2; by the exact exponents, K_i vanishes almost
    surely for d_in = 2 only, and the angle between c_i and a for every d_in >= 2.
    """
    entries = np.abs(_commutators(size))
    expected = spectral.commutator_limit() if limit is None else limit
    yield within(_deviation(entries, expected), -4, 4, d_in=2, time=2, paths=len(entries), unit="standard errors")
    yield as_printed(within(_deviation(entries, 0.0), -4, 4, d_in=2, time=2, paths=len(entries)))
    for d in range(2, 9):
        first, second = spectral.lyapunov(d)[:2]
        yield at_most(second - first, -1e-3, d_in=d, what="the angle closes")
        if d == 2:
            yield at_most(first + second, -1e-3, d_in=d, what="K_i vanishes")
        else:
            yield at_least(first + second, -1e-12, d_in=d, what="K_i does not vanish")
            yield as_printed(
                at_most(first + second, -1e-3, d_in=d, what="K_i vanishes"), "almost surely, for d_in >= 3"
            )


@evidence("spectral/E7", negative_control={"dimensions": (1,)})
def dimensions_of_the_proof(size: str, dimensions: Any = (2, 5)) -> Iterator[Finding]:
    """The printed expression at d = 5 for p = 0.01 and 0.0452, and the exact exponents."""

    def printed(p: float) -> float:
        return float(np.sqrt(5) + (p - 1) * (np.sqrt(5) + 1) ** 2 / (2 * np.sqrt(5)))

    yield as_printed(at_least(printed(0.01), 0.0, d_in=5, p=0.01))
    yield at_least(printed(0.0452), 0.0, d_in=5, p=0.0452)
    for d in dimensions:
        yield at_least(spectral.moment_exponent(0.01, d), 0.0, d_in=d)


@evidence("spectral/E8", negative_control={"shift": 1})
def growth_and_decay(size: str, shift: int = 0) -> Iterator[Finding]:
    """Signs of the exact Lyapunov exponents, and of those of the moments."""
    yield as_printed(at_least(spectral.lyapunov(2)[0], 1e-6, d_in=2, what="grows"))
    yield as_printed(at_most(spectral.lyapunov(6)[1], 0.0, d_in=6, what="decays"), reading="of what decays alone")
    yield at_least(spectral.moment_exponent(1.0, 2), 1e-6, d_in=2, what="grows in the mean")
    yield at_most(spectral.lyapunov(2)[1], -1e-6, d_in=2, what="the smaller value decays")
    yield from which_dimensions_align.check(size, shift=shift)


@evidence("spectral/E9", negative_control={"sign": -1.0})
def jensen(size: str, sign: float = 1.0) -> Iterator[Finding]:
    """Random positive vectors, and x = (1, 1) with p = 1/2."""
    for x in np.random.default_rng(0).uniform(0, 1, size=(20, 4)):
        yield at_least(x.sum() ** 0.5 - 4 ** (sign * -0.5) * (x**0.5).sum(), -1e-12)
    yield as_printed(at_least(2**0.5 - 2**0.5 * 2, 0.0, d=2))


@evidence("spectral/E10", negative_control={"factor": 3.0})
def convexity(size: str, factor: float = 2.0) -> Iterator[Finding]:
    """Along flows that fit their data."""
    for flow in _flows(size):
        limit = (np.linalg.pinv(flow.x) @ flow.y).T
        for i in (0, 3):
            inner = float(np.sum(-flow.force(i) * (flow.a[i] - limit)))
            yield close(inner, factor * flow.loss[i], rtol=1e-9)
            yield as_printed(at_most(inner, flow.loss[i]))


@evidence("spectral/E17", negative_control={"factor": 1e8})
def residual_of_the_gradient(size: str, factor: float = 1.0) -> Iterator[Finding]:
    """X = [[1, 0.2], [0, 0.01]], Y = (0.02, 0.05), gamma = 1e-6: |R|^2 grows from t = 450 to 2200, while the loss obeys
    its bound, whose exponent is twice the printed one.
    """
    x, y, initial = _slow_flow()
    problem, gamma = regression(x, y), _SLOW_GAMMA
    run = simulate(problem, initial, GradientFlow(rtol=1e-11), time=2200.0, record=linear(45), observe=["matrix"])
    left = [y - x @ np.asarray(a).T for a in run["matrix"]]
    times, size2 = np.asarray(run.times), np.array([np.sum((x.T @ one) ** 2) for one in left])
    loss = np.array([np.sum(one**2) for one in left])
    lowest = float(np.linalg.eigvalsh(x.T @ x)[0])
    bound = np.exp(-factor * 4 * gamma * lowest * times)
    yield at_most(loss[1:] / loss[0] / bound[1:], 1.0, what="loss over its bound")
    rate = np.exp(-2 * gamma * lowest * np.diff(times))
    early = times[:-1] >= 450
    growth = size2[1:] / size2[:-1]
    yield at_least(size2[-1] / size2[:-1][early][0], 1.05, what="|R|^2 at 2200 over that at 450")
    yield as_printed(at_most(growth / rate, 1.0, what="|R|^2 from one record to the next, over the printed bound"))
    yield as_printed(at_most(growth, 1.0, what="|R|^2 from one record to the next"), reading="R does not grow")


@evidence("spectral/E18", negative_control={"lr": 1.2})
def descent_on_orthogonal_data(size: str, lr: float = 0.05) -> Iterator[Finding]:
    """X^T X = I, one output, W_0 = 0.3 I: directions and sizes of R_t and a_t from a_0 = 0 and from another one."""
    rng = np.random.default_rng(0)
    d = 4
    x, y = np.linalg.qr(rng.normal(size=(d, d)))[0], rng.normal(size=d)
    for begin in (np.zeros(d), 0.3 * rng.normal(size=d)):
        w, a = 0.3 * np.eye(d), begin
        first = x.T @ (y - x @ w @ a)
        sizes: list[float] = []
        rotation = 0.0
        for _ in range(60):
            r = x.T @ (y - x @ w @ a)
            sizes.append(float(np.linalg.norm(r)))
            rotation = max(rotation, 1 - abs(float(r @ first)) / float(np.linalg.norm(r) * np.linalg.norm(first)))
            w, a = w + lr * np.outer(r, a), a + lr * w.T @ r
        if not begin.any():
            yield at_most(np.max(np.diff(sizes)), 0.0, a_0=0, what="growth of |R_t| in a step")
            yield at_most(rotation, 1e-12, a_0=0, what="turn of R_t")
            moved = w - 0.3 * np.eye(d)
            along = np.outer(first, first) / (first @ first)
            yield at_most(_size(moved - along * np.trace(moved)) / _size(moved), 1e-10, a_0=0, what="off R_0 R_0^T")
            yield as_printed(at_least(np.min(np.diff(sizes)), 0.0, a_0=0, what="growth of |R_t| in a step"))
            yield as_printed(
                at_least(np.linalg.norm(np.outer(first, begin)), 1e-12, a_0=0), reading="R_0 a_0^T is not 0"
            )
        else:
            yield as_printed(at_most(rotation, 1e-3, a_0="not 0", what="turn of R_t"), reading="any a_0")
