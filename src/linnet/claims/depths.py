"""Claims of "Training Linear Neural Networks: Non-Local Convergence and Complexity Results" at every depth and for data
that are not white.

The claims of `claims/convergence.py` about the flow of the layers have three layers and white data; these have two to
six layers, bottlenecks in different places, and inputs of full rank with any spectrum. Flows are integrated by SciPy.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from linnet import observe
from linnet.claims.claim import Finding, Seed, at_least, at_most, claim, within
from linnet.claims.layers import Layers, end_to_end, gaussian_layers, gradient_flow, layer_gradients
from linnet.init import balanced
from linnet.problems import regression
from linnet.states import Balanced, Weights

_WIDTHS = {2: (4, 3, 3), 3: (4, 2, 5, 3), 4: (3, 4, 2, 3, 3), 5: (3, 2, 3, 3, 2, 4), 6: (3, 3, 2, 3, 2, 3, 2)}


class _Data(NamedTuple):
    """Inputs and labels, samples as rows."""

    x: np.ndarray
    y: np.ndarray

    def gradient(self, a: np.ndarray) -> np.ndarray:
        """That of 1/2 |Y - X A^T|^2 in A."""
        return np.asarray((a @ self.x.T - self.y.T) @ self.x)

    def loss(self, a: np.ndarray) -> float:
        return float(np.sum((self.x @ a.T - self.y) ** 2)) / 2

    def best(self, rank: int) -> np.ndarray:
        """The least-squares fit of this rank: the SVD of A X^T."""
        u, s, vt = np.linalg.svd((self.x @ np.linalg.pinv(self.x) @ self.y).T, full_matrices=False)
        return np.asarray((u[:, :rank] * s[:rank]) @ vt[:rank] @ np.linalg.pinv(self.x.T))


def _colored(seed: int, d_in: int, d_out: int, n: int = 7) -> _Data:
    """Inputs of full rank whose squared singular values go from 1.5 to 0.5, and normal labels."""
    rng = np.random.default_rng([seed, d_in, d_out])
    q, _ = np.linalg.qr(rng.normal(size=(n, d_in)))
    turn, _ = np.linalg.qr(rng.normal(size=(d_in, d_in)))
    return _Data((q * np.sqrt(np.geomspace(1.5, 0.5, d_in))) @ turn, rng.normal(size=(n, d_out)))


def _flow(layers: Layers, data: _Data, times: Any) -> list[list[np.ndarray]]:
    """The layers at these times."""
    return gradient_flow(layers, data.gradient, times, method="LSODA", rtol=1e-10, atol=1e-12)


def _gaussian(rng: np.random.Generator, widths: Sequence[int]) -> list[np.ndarray]:
    return [w / math.sqrt(w.shape[1]) for w in gaussian_layers(rng, widths)]


def _depths(size: str) -> tuple[int, ...]:
    return (2, 4) if size == "quick" else tuple(_WIDTHS)


@claim("nonlocal/C21", "asymptotic", "Lemma 9", negative_control={"scale": 0.0})
def flows_converge_at_every_depth(size: str, scale: float = 1.0, seed: Seed = 0) -> Iterator[Finding]:
    """For any inputs of full rank and any depth the flow from Gaussian weights converges to a second-order stationary
    point, whose loss is the least of its rank.
    """
    for depth in _depths(size):
        widths = _WIDTHS[depth]
        data = _colored(seed, widths[0], widths[-1])
        problem = regression(data.x, data.y)
        curvature = jax.jit(lambda w, problem=problem: observe.hessian_spectrum(w, problem))
        rng, least = np.random.default_rng([seed, depth]), data.loss(data.best(min(widths)))
        for run in range(2 if size == "quick" else 6):
            initial = [scale * w for w in _gaussian(rng, widths)]
            before, end = _flow(initial, data, np.array([0.0, 600.0, 1000.0]))[1:]
            case = {"depth": depth, "widths": widths, "run": run}
            yield at_most(
                np.linalg.norm(end_to_end(end) - end_to_end(before)), 1e-6, **case, what="change of A at the end"
            )
            lowest = float(np.asarray(curvature(Weights(end)))[-1])
            yield at_least(
                lowest / np.linalg.norm(data.y.T @ data.x, 2), -1e-5, **case, what="least curvature / |Y^T X|"
            )
            yield at_most(data.loss(end_to_end(end)) / least - 1, 1e-8, **case, what="loss over the least one, less 1")


def _balanced(rng: np.random.Generator, widths: Sequence[int], rank: int) -> list[np.ndarray]:
    """Balanced layers of a normal matrix of this rank."""
    a = rng.normal(size=(widths[-1], rank)) @ rng.normal(size=(rank, widths[0])) / math.sqrt(rank * widths[0])
    return [np.asarray(w) for w in balanced(a, widths[1:-1], rank=rank, key=jax.random.key(0)).layers]


@lru_cache
def _balanced_flow(depth: int, rank: int, seed: int, noise: float = 0.0) -> tuple[_Data, list[list[np.ndarray]]]:
    """The flow from a balanced initialization, disturbed by so much noise, at five times.

    No later: at two layers rounding grows exponentially in the directions that A lacks.
    """
    widths = _WIDTHS[depth]
    data, rng = _colored(seed, widths[0], widths[-1]), np.random.default_rng([seed, depth, rank])
    initial = [w + noise * rng.normal(size=w.shape) for w in _balanced(rng, widths, rank)]
    return data, _flow(initial, data, np.array([0.0, 0.3, 1.0, 3.0, 6.0]))


@claim(
    "nonlocal/C22",
    "exact",
    "(16), (17)",
    negative_control={"closure": lambda depth, rank: Balanced(depth + 1, rank)},
)
def induced_flow_at_every_depth(
    size: str, closure: Callable[[int, int], Balanced] = Balanced, seed: Seed = 0
) -> Iterator[Finding]:
    """For any inputs of full rank, any depth, and any rank of the initialization, the flow of balanced layers moves A
    along dA/dt = -sum_j (A A^T)^{(L-j)/L} G (A^T A)^{(j-1)/L} with G = A X^T X - Y^T X.
    """
    for depth in _depths(size):
        for rank in range(1, min(_WIDTHS[depth]) + 1):
            data, path = _balanced_flow(depth, rank, seed)
            for layers in path:
                slopes = layer_gradients(layers, data.gradient)
                direct = -sum(end_to_end([*layers[:i], slopes[i], *layers[i + 1 :]]) for i in range(depth))
                a = end_to_end(layers)
                induced = -np.asarray(closure(depth, rank).tangent(jnp.asarray(a), jnp.asarray(data.gradient(a))))
                scale = np.linalg.norm(data.y.T @ data.x) * np.linalg.norm(a) ** (2 - 2 / depth)
                yield at_most(np.linalg.norm(direct - induced) / scale, 1e-8, depth=depth, rank=rank)


@claim("nonlocal/C23", "exact", "Lemma 11", negative_control={"noise": 0.05})
def rank_is_kept_at_every_depth(size: str, noise: float = 0.0, seed: Seed = 0) -> Iterator[Finding]:
    """In finite time the flow from a balanced initialization of rank k keeps rank(A) = k for any inputs of full rank
    and any depth.
    """
    for depth in _depths(size):
        for rank in range(1, min(_WIDTHS[depth]) + 1):
            for layers in _balanced_flow(depth, rank, seed, noise)[1]:
                values = np.append(np.linalg.svd(end_to_end(layers), compute_uv=False), 0.0)
                case = {"depth": depth, "rank": rank}
                yield at_most(values[rank] / values[0], 1e-12, **case, what="the next singular value")
                yield at_least(values[rank - 1] / values[0], 1e-6, **case, what="the last one kept")


@claim("nonlocal/C24", "exact", "(19), (106)", negative_control={"shift": 1.0})
def singular_values_move_on_their_own(size: str, shift: float = 0.0, seed: Seed = 0) -> Iterator[Finding]:
    """The singular values of the induced flow are smooth in time and in no order: ds_i/dt = -L s_i^{2-2/L} u_i^T G v_i,
    and where two cross, as those of an aligned initialization in another order than the target's do, each goes on
    smoothly with its own singular vectors.
    """
    for depth in _depths(size):
        rank = min(_WIDTHS[depth])
        data, path = _balanced_flow(depth, rank, seed)
        for layers in path[1:4]:
            step, slopes = 1e-5, layer_gradients(layers, data.gradient)
            sides = [[w - side * g for w, g in zip(layers, slopes, strict=True)] for side in (-step, step)]
            low, high = (np.linalg.svd(end_to_end(side), compute_uv=False)[:rank] for side in sides)
            a = end_to_end(layers)
            u, s, vt = np.linalg.svd(a)
            pulled = np.einsum("ir,ij,rj->r", u[:, :rank], data.gradient(a), vt[:rank])
            predicted = -depth * s[:rank] ** (2 - (2 + shift) / depth) * pulled
            gap = np.max(np.abs((high - low) / (2 * step) - predicted)) / np.max(np.abs(predicted))
            yield at_most(gap, 1e-5, depth=depth, what="ds/dt")
        goal = np.diag([0.5, 2.0])
        white = _Data(np.eye(2), goal)
        layers = [np.diag([1.0, 0.2]) ** (1 / depth) for _ in range(depth)]
        path = _flow(layers, white, np.linspace(0, 5, 101))
        modes = np.array([np.diag(end_to_end(at)) for at in path])
        off = max(abs(end_to_end(at)[0, 1]) + abs(end_to_end(at)[1, 0]) for at in path)
        yield at_most(off, 1e-12, depth=depth, what="rotation of the singular vectors where values cross")
        apart = (modes[-1, 0] - modes[-1, 1]) / (modes[0, 0] - modes[0, 1])
        yield at_most(apart, -1.0, depth=depth, what="their distance at the end over that at the start: they cross")
        kink, smooth = (np.max(np.abs(np.diff(x, 2, axis=0))) for x in (np.sort(modes, axis=1), modes))
        yield at_least(kink / smooth, 1.5, depth=depth, what="second differences, sorted over tracked")


@claim("nonlocal/C25", "statistical", "section 3, after (23)", negative_control={"rank": 3}, band="every draw, to 1e-6")
def narrow_networks_reach_the_best_fit(size: str, rank: int = 2, seed: Seed = 0) -> Iterator[Finding]:
    """For r > 1 and networks whose bottleneck is below the number of inputs or of outputs, the flow from balanced
    normal initializations of rank r reached the best fit of rank r in every draw, at every depth; only r = d_in = d_out
    has a sign that forbids it (nonlocal/C20). Deep networks may pass by a saddle slowly: the time is long.
    """
    draws = 10 if size == "quick" else 20
    shapes = ((4, 3), (3, 3)) if size == "quick" else ((4, 3), (3, 3), (3, 2), (2, 5))
    for depth in (2, 3) if size == "quick" else (2, 3, 5):
        for low, high in shapes:
            data, rng = _colored(seed, low, high), np.random.default_rng([seed, depth, low, high])
            least, widths = data.loss(data.best(rank)), (low, *[rank] * (depth - 1), high)
            ends = (_flow(_balanced(rng, widths, rank), data, np.array([0.0, 1e6]))[-1] for _ in range(draws))
            worst = max(data.loss(end_to_end(end)) / least - 1 for end in ends)
            case = {"d_in": low, "d_out": high, "depth": depth, "draws": draws, "rank": rank}
            yield at_most(worst, 1e-6, **case, what="loss over the least of the rank, less 1")


@claim("nonlocal/C26", "bound", "(29), (30)", negative_control={"speed": 4.0})
def rate_from_nearby_initializations(size: str, speed: float = 1.0, seed: Seed = 0) -> Iterator[Finding]:
    """From a balanced initialization with |Z - A(0)| <= s_min(Z) - c and white data the smallest singular value of A
    stays above c and L(t) <= L(0) exp(-2 n L c^{2-2/L} t), so that the time to a level eps is of the order of
    c^{-2(1-1/L)} log(1/eps).
    """
    n, d = 4.0, 3
    for depth in (2, 3, 6) if size == "quick" else (2, 3, 4, 6, 10):
        rng = np.random.default_rng([seed, depth])
        for c in (0.2, 0.5):
            u, _, vt = np.linalg.svd(rng.normal(size=(d, d)))
            target = (u * [2.0, 1.5, 1.0]) @ vt
            # the smallest singular value made smaller: where the bound is tightest
            initial = (u * [2.0, 1.5, c]) @ vt
            data = _Data(math.sqrt(n) * np.eye(d), math.sqrt(n) * target.T)
            layers = [np.asarray(w) for w in balanced(initial, (d,) * (depth - 1), rank=d).layers]
            rate = speed * 2 * n * depth * c ** (2 - 2 / depth)
            times = np.linspace(0, 5 / rate, 26)
            path = [end_to_end(at) for at in _flow(layers, data, times)]
            loss = np.array([data.loss(a) for a in path])
            case = {"depth": depth, "c": c}
            bound = loss[0] * np.exp(-rate * times)
            yield at_most(loss[1:] / bound[1:], 1.0, **case, what="loss over the bound")
            smallest = min(np.linalg.svd(a, compute_uv=False)[-1] for a in path[1:])
            yield at_least(smallest / c, 1.0, **case, what="smallest singular value over c")


def _kernel(a: np.ndarray, depth: int) -> np.ndarray:
    """The matrix of A_W, (16)."""
    u, s, vt = np.linalg.svd(a)

    def root(vectors: np.ndarray, power: float) -> np.ndarray:
        values = np.zeros(len(vectors))
        values[: len(s)] = s
        return np.asarray((vectors * (values ** (2 * power) if power else np.ones(len(values)))) @ vectors.T)

    return sum(
        (np.kron(root(u, (depth - j) / depth), root(vt.T, (j - 1) / depth)) for j in range(1, depth + 1)),
        start=np.zeros((a.size, a.size)),
    )


@claim("nonlocal/C27", "asymptotic", "Appendix J", negative_control={"far": 1.0})
def nearby_initializations_are_lazy(size: str, far: float = 10.0, seed: Seed = 0) -> Iterator[Finding]:
    """The operator A_W, the tangent kernel, changes over the whole training in proportion to |Z - A(0)| from
    initializations close to the target, so that small initial losses mean lazy training; from those of Theorem 20, ten
    times the target and 30 degrees off it, it loses more than 90 % with three layers and more.
    """
    rng = np.random.default_rng(seed)
    angle = math.radians(30)
    for depth in (2, 3, 6):
        u, _, vt = np.linalg.svd(rng.normal(size=(3, 3)))
        target, side = (u * [2.0, 1.5, 1.0]) @ vt, rng.normal(size=(3, 3))
        changes = []
        for gap in (1e-2, 1e-3):
            first, last = _kernel(target + gap * side, depth), _kernel(target, depth)
            changes.append(np.linalg.norm(last - first) / np.linalg.norm(first))
        yield within(changes[0] / changes[1], 9.5, 10.5, depth=depth, what="change, ten times the distance")
        rotated = far * np.outer(u[:, 0], math.cos(angle) * vt[0] + math.sin(angle) * vt[1])
        before, after = _kernel(rotated, depth), _kernel(np.outer(u[:, 0], vt[0]), depth)
        if depth > 2:
            yield at_most(np.linalg.norm(after) / np.linalg.norm(before), 0.1, depth=depth, what="what is left of it")


@claim("nonlocal/C28", "bound", "(33), text after Lemma 18", negative_control={"factor": 2.5})
def size_is_learned_faster_with_depth(size: str, factor: float = 2.0, seed: Seed = 0) -> Iterator[Finding]:
    """For Z = Z_1 and s above u^T Z v, the part T_1 = (s - u^T Z v)^2 / 2 of the loss falls at the rate 2 n L s^{2-2/L}
    at least, and the time in which it falls to a hundredth is the shorter the deeper the network is, if z_1 is not
    small.
    """
    rng, n = np.random.default_rng(seed), 3.0
    for draw in range(1 if size == "quick" else 6):
        u, v, side = (x / np.linalg.norm(x) for x in rng.normal(size=(3, 3)))
        target = np.outer(u, v)
        rotated = math.cos(0.5) * v + math.sin(0.5) * (side - (side @ v) * v) / np.linalg.norm(side - (side @ v) * v)
        data, fallen = _Data(math.sqrt(n) * np.eye(3), math.sqrt(n) * target.T), []
        for depth in (2, 3, 5, 10):
            layers = [np.asarray(w) for w in balanced(5 * np.outer(u, rotated), (1,) * (depth - 1), rank=1).layers]
            times = np.concatenate([[0.0], np.geomspace(1e-5, 2.0, 120)]) / n
            values = np.array([np.linalg.norm(end_to_end(at)) for at in _flow(layers, data, times)])
            along = np.array([np.sum(end_to_end(at) * target) for at in _flow(layers, data, times)]) / values
            part = (values - along) ** 2 / 2
            above = (values[1:] > along[1:]) & (part[1:] > 1e-8)
            rate = -np.diff(np.log(part))[above] / np.diff(times)[above]
            bound = factor * n * depth * values[1:][above] ** (2 - 2 / depth)
            yield at_least(rate / bound, 1.0, depth=depth, draw=draw, what="rate of T_1 over the bound")
            fallen.append(times[np.argmax(part < 0.01 * part[0])])
        yield at_most(
            np.array(fallen[1:]) / fallen[:-1],
            0.95,
            draw=draw,
            what="time to a hundredth of T_1, deeper over shallower",
        )


@claim(
    "nonlocal/C29",
    "statistical",
    "text after Theorem 16",
    negative_control={"imbalance": 0.0},
    band="three standard deviations over five seeds",
)
def imbalance_does_not_vanish_with_depth(size: str, imbalance: float = 0.3, seed: Seed = 0) -> Iterator[Finding]:
    """The guess that disadvantages of an unbalanced initialization vanish with depth, in one case: r = 1, one layer
    larger by e^0.3 and the others smaller, so that A(0) is the same; draws at 2 and 12 layers, at full size at 2, 4, 8
    and 12. There the deviation of A from the induced flow does not become less but more; a disadvantage for the limit
    is not seen at any depth, as all of these networks reach Z_1. Other imbalances and ranks are not decided.
    """
    draws, goal = 12 if size == "quick" else 20, np.array([2.0, 1.0, 0.5])
    deviations = []
    for depth in (2, 12) if size == "quick" else (2, 4, 8, 12):
        found = []
        for draw in range(draws):
            rng = np.random.default_rng([seed, draw])
            u, _, vt = np.linalg.svd(rng.normal(size=(3, 3)))
            target, a = (u * goal) @ vt, np.outer(*rng.normal(size=(2, 3)))
            a *= 0.5 * np.sign(np.sum(a * target)) / np.linalg.norm(a)
            data = _Data(np.eye(3), target.T)
            even = [np.asarray(w) for w in balanced(a, (1,) * (depth - 1), rank=1).layers]
            sizes = np.exp(imbalance * (np.arange(depth) == 0) - imbalance / depth)
            times = np.append(np.linspace(0, 6, 61), 200.0)
            paths = [_flow(layers, data, times) for layers in (even, [w * x for w, x in zip(even, sizes, strict=True)])]
            one, other = ([end_to_end(at) for at in path] for path in paths)
            found.append(max(np.linalg.norm(x - y) for x, y in zip(one, other, strict=True)) / goal[0])
            end = np.linalg.norm(other[-1] - goal[0] * np.outer(u[:, 0], vt[0])) / goal[0]
            yield at_most(end, 1e-6, depth=depth, draw=draw, what="distance of the limit from Z_1")
        deviations.append(np.median(found))
    yield at_least(deviations[0], 0.02, draws=draws, what="deviation at two layers, median")
    yield at_least(deviations[-1] / deviations[0], 1.0, draws=draws, what="deviation, deepest over two layers, medians")


@claim("nonlocal/C30", "exact", "Lemma 24", negative_control={"closure": lambda depth: Balanced(depth + 1)})
def operator_of_the_flow(size: str, closure: Callable[[int], Balanced] = Balanced, seed: Seed = 0) -> Iterator[Finding]:
    """A_W in the singular frame of W is the sum of (S S^T)^{(L-j)/L} (U^T D V) (S^T S)^{(j-1)/L}, and <D, A_W D> the
    sum of the squared norms of (S S^T)^{(L-j)/(2L)} (U^T D V) (S^T S)^{(j-1)/(2L)}.
    """
    rng = np.random.default_rng(seed)
    for shape in ((3, 4), (4, 2), (3, 3)):
        a, force = rng.normal(size=(2, *shape))
        u, s, vt = np.linalg.svd(a)
        rows, columns = (np.pad(s, (0, n - len(s))) for n in shape)
        rotated = u.T @ force @ vt.T
        for depth in (2, 3, 5):
            moved = _kernel(a, depth) @ force.ravel()
            found = np.asarray(closure(depth).tangent(a, force))
            case = {"shape": shape, "depth": depth}
            yield at_most(np.linalg.norm(found.ravel() - moved) / np.linalg.norm(moved), 1e-12, **case, what="A_W(D)")
            squares = 0.0
            for j in range(1, depth + 1):
                sides = (
                    values ** (k / depth) if k else np.ones(len(values))
                    for values, k in ((rows, depth - j), (columns, j - 1))
                )
                left, right = sides
                squares += float(np.sum((left[:, None] * rotated * right) ** 2))
            gap = abs(float(np.sum(force * found)) / squares - 1)
            yield at_most(gap, 1e-12, **case, what="<D, A_W(D)>")
