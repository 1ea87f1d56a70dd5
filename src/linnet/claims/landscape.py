"""Claims and errata about the landscape, of "Training Linear Neural Networks: Non-Local Convergence and Complexity"."""

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise
from typing import Any, NamedTuple

import jax
import numpy as np

from linnet.claims.claim import Finding, as_printed, at_least, at_most, claim, evidence, within
from linnet.claims.layers import end_to_end, gaussian_layers
from linnet.init import balanced, critical, gauge
from linnet.linalg import below_and_above
from linnet.observe import Kind, classify
from linnet.problems import Regression, factorization, regression
from linnet.states import Weights

# Networks that several checks share: few shapes, so that little compiles ---------------------------------------------


class _Network(NamedTuple):
    """A regression, the hidden widths of a network for it, and the bottleneck."""

    problem: Regression
    x: np.ndarray
    y: np.ndarray
    hidden: tuple[int, ...]
    case: dict[str, Any]

    @property
    def bottleneck(self) -> int:
        """min over all widths, ends included."""
        return min(*self.hidden, *self.problem.shape)

    def kept(self, size: int) -> Iterator[tuple[int, ...]]:
        """All sets of `size` modes."""
        return combinations(range(1, self.problem.fit().rank + 1), size)

    def points(self, size: int) -> Iterator[tuple[tuple[int, ...], Weights]]:
        """The critical points that keep `size` modes: balanced, then in other bases between the layers."""
        for kept in self.kept(size):
            even = critical(self.problem, self.hidden, kept)
            yield kept, even
            yield kept, gauge(jax.random.key(sum(kept)), even)


_HIDDEN = {2: ((2,), (4,)), 3: ((2, 4), (5, 3)), 4: ((4, 2, 3), (4, 5, 4))}


def _networks(size: str, depths: tuple[int, ...] = (2, 3, 4)) -> Iterator[_Network]:
    """Colored data with n > d_in = 4 and n < d_in, three outputs, the bottleneck inside (2) or at the output (3)."""
    for seed in range(1 if size == "quick" else 6):
        for n in (7, 3):
            rng = np.random.default_rng(seed)
            x = rng.normal(size=(n, 4)) @ np.diag([2.0, 1.0, 0.7, 0.3])
            y = rng.normal(size=(n, 3))
            for depth in depths:
                for hidden in _HIDDEN[depth][: 1 if size == "quick" else 2]:
                    yield _Network(regression(x, y), x, y, hidden, {"seed": seed, "n": n, "hidden": hidden})


def _optimum(x: np.ndarray, y: np.ndarray, rank: int) -> float:
    """min of 1/2 |Y - X A^T|^2 over matrices of rank at most `rank` (10a), from the SVD of the projection of Y."""
    fitted = x @ np.linalg.pinv(x) @ y
    s = np.linalg.svd(fitted, compute_uv=False)
    return float(np.sum((y - fitted) ** 2) + np.sum(s[rank:] ** 2)) / 2


def _loss(x: np.ndarray, y: np.ndarray, matrix: Any) -> float:
    return float(np.sum((x @ np.asarray(matrix).T - y) ** 2)) / 2


def _zero(widths: Sequence[int]) -> Weights:
    return Weights([np.zeros((above, below)) for below, above in pairwise(widths)])


# Claims --------------------------------------------------------------------------------------------------------------


def _alternate(x: np.ndarray, y: np.ndarray, layers: list[np.ndarray], sweeps: int) -> np.ndarray:
    """Least squares in one layer after another, which needs no theory of the landscape; the end-to-end matrix."""
    for _ in range(sweeps):
        for i in range(len(layers)):
            below, above = below_and_above(layers, np.eye(x.shape[1]), np.eye(y.shape[1]))
            layers[i] = np.linalg.pinv(above[i]) @ y.T @ np.linalg.pinv(below[i] @ x.T)
    return np.asarray(end_to_end(layers))


@claim("nonlocal/C1", "exact", "(10a), (10b)", negative_control={"spare": 1})
def bottleneck_decides_the_minimum(size: str, spare: int = 0) -> Iterator[Finding]:
    """Products of layers reach every matrix of rank at most r, so min Loss is the best rank-r least-squares fit."""
    for network in _networks(size):
        x, y, r = network.x, network.y, network.bottleneck - spare
        low, unit = _optimum(x, y, r), float(np.sum(y**2)) / 2
        a = network.problem.optimum(network.bottleneck).matrix
        reached = balanced(a, network.hidden, rank=network.bottleneck).matrix
        yield at_most(abs(_loss(x, y, reached) - low) / unit, 1e-12, **network.case, what="a network that has it")
        rng = np.random.default_rng(0)
        widths = (4, *network.hidden, 3)
        excess = (_loss(x, y, _alternate(x, y, gaussian_layers(rng, widths), 400)) - low) / unit
        yield within(excess, -1e-12, 1e-9, **network.case, what="least squares layer by layer, from Gaussian weights")


@claim("nonlocal/C2", "exact", "Lemmas 4 to 6", negative_control={"missing": 1})
def critical_points_carry_over(size: str, missing: int = 0) -> Iterator[Finding]:
    """At a critical point with rank(A) = r, P = W_L ... W_{j+1} and Q = W_j ... W_1 (d_j = r) are critical for
    1/2 |Y - X (PQ)^T|^2, and negative curvature appears in both or in neither.
    """
    for network in _networks(size, (3, 4)):
        widths = (4, *network.hidden, 3)
        j = int(np.argmin(widths))
        for kept, state in network.points(network.bottleneck - missing):
            layers = [np.asarray(w) for w in state.layers]
            q, p = end_to_end(layers[:j]), end_to_end([*layers[j:], np.eye(3)])  # nothing is above the output
            deep, pair = classify(state, network.problem), classify(Weights((q, p)), network.problem)
            scale = float(np.linalg.norm(network.x.T @ network.y)) * (np.linalg.norm(p, 2) + np.linalg.norm(q, 2))
            yield at_most(pair.gradient / scale, 1e-10, **network.case, kept=kept, what="gradient of P and Q")
            same = (deep.label == Kind.STRICT_SADDLE) == (pair.label == Kind.STRICT_SADDLE)
            yield at_least(float(same), 1.0, **network.case, kept=kept, what="both have negative curvature, or neither")


@claim("nonlocal/C3", "exact", "Theorem 7", negative_control={"depth": 3})
def two_layers_have_no_bad_second_order_point(size: str, depth: int = 2) -> Iterator[Finding]:
    """With two layers every critical point that is not a global minimum has negative curvature."""
    for network in _networks(size, (depth,)):
        unit = float(np.linalg.norm(network.x.T @ network.y, 2))
        for k in range(network.bottleneck + 1):
            for kept, state in network.points(k):
                point = classify(state, network.problem)
                if kept == tuple(range(1, network.bottleneck + 1)):
                    yield at_most(abs(point.excess) / float(np.sum(network.y**2)), 1e-12, **network.case, kept=kept)
                else:
                    yield at_most(point.smallest / unit, -1e-6, **network.case, kept=kept)


def _outside(network: _Network, matrix: np.ndarray, rank: int) -> np.ndarray:
    """A plus parts that the data do not see, from outputs without labels to the null space of X: still critical."""
    left = np.linalg.svd(network.y.T)[0][:, np.linalg.matrix_rank(network.y) :]
    right = np.linalg.svd(network.x)[2][np.linalg.matrix_rank(network.x) :]
    return matrix + left[:, :rank] @ right[:rank]


def _degenerate_data(size: str, depths: tuple[int, ...], rank: int) -> Iterator[_Network]:
    """n = 2 < d_in = 4 and labels of rank 1 or 2 for three outputs: A may have full rank while A X^T has not."""
    for seed in range(1 if size == "quick" else 6):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(2, 4))
        y = rng.normal(size=(2, rank)) @ np.linalg.qr(rng.normal(size=(3, rank)))[0].T
        for depth in depths:
            hidden = _HIDDEN[depth][0]
            yield _Network(regression(x, y), x, y, hidden, {"seed": seed, "n": 2, "hidden": hidden})


def _unseen(network: _Network) -> Iterator[tuple[tuple[int, ...], Weights]]:
    """Critical points of full rank r = 2 that keep one mode: the other direction is one that the data do not see."""
    for kept in network.kept(1):
        a = _outside(network, np.asarray(network.problem.fit().matrix(kept)), 1)
        even = balanced(a, network.hidden, rank=2)
        yield kept, even
        yield kept, gauge(jax.random.key(1), even)


@claim("nonlocal/C4", "exact", "Theorem 8", negative_control={"missing": 1})
def full_rank_second_order_points_are_global(size: str, missing: int = 0) -> Iterator[Finding]:
    """A critical point without negative curvature and with rank(A) = r is a global minimum, also for n < d_in."""
    for network in _networks(size):
        second_order = 0
        for kept, state in network.points(network.bottleneck - missing):
            point = classify(state, network.problem)
            if point.label != Kind.STRICT_SADDLE:
                second_order += 1
                unit = float(np.sum(network.y**2)) / 2
                yield at_most(point.excess / unit, 1e-12, **network.case, kept=kept)
        yield at_least(second_order, 1, **network.case, what="second-order points found")


@claim("nonlocal/C5", "exact", "text after Theorem 8, corrected", negative_control={"factor": 1.01})
def degenerate_points(size: str, factor: float = 1.0) -> Iterator[Finding]:
    """Zero weights and balanced Z_k, k < r, are strict saddles for two layers, with lambda_min = -|Y^T X| and
    -n z_{k+1}, and second-order points from three layers on; with spare rank in the middle they are saddles again.
    """
    network = next(_networks(size))
    x, y, problem = network.x, network.y, network.problem
    top = float(np.linalg.norm(y.T @ x, 2))
    for depth in (2, 3, 4):
        point = classify(_zero((4, *_HIDDEN[depth][0], 3)), problem)
        right = -factor * top if depth == 2 else 0.0
        yield at_most(abs(point.smallest - right) / top, 1e-12, depth=depth, what="zero weights")
        label = Kind.STRICT_SADDLE if depth == 2 else Kind.DEGENERATE_SOSP
        yield at_least(float(point.label is label), 1.0, depth=depth)
    middle = np.arange(8.0).reshape(4, 2)
    between = classify(Weights((np.zeros((2, 4)), middle, np.zeros((3, 4)))), problem)
    right = factor * top * float(np.linalg.norm(middle, 2))
    yield at_most(abs(between.smallest / right + 1), 1e-12, what="a layer between zero layers")

    n, z = 6, np.array([3.0, 2.0, 0.5])
    q = np.linalg.qr(np.random.default_rng(1).normal(size=(n, 4)))[0] * np.sqrt(n)
    white = regression(q, q @ np.eye(4, 3) * z)
    for depth in (2, 3, 4):
        hidden = (3,) * (depth - 1)
        for k in (1, 2):
            point = classify(critical(white, hidden, range(1, k + 1)), white)
            right = -factor * n * z[k] if depth == 2 else 0.0
            yield at_most(abs(point.smallest - right) / (n * z[0]), 1e-12, depth=depth, k=k, what="balanced Z_k")
            label = Kind.STRICT_SADDLE if depth == 2 else Kind.DEGENERATE_SOSP
            yield at_least(float(point.label == label), 1.0, depth=depth, k=k)
    first, second, third = (np.asarray(w) for w in critical(white, (3, 3), (1,)).layers)
    second = second + 0.8 * np.diag([0.0, 1.0, 0.0])
    point = classify(Weights((first, second, third)), white)
    yield at_most(abs(point.smallest / (factor * n * z[1] * 0.8) + 1), 1e-12, what="Z_1 with spare rank in W_2")


# Errata --------------------------------------------------------------------------------------------------------------


@evidence("nonlocal/E2", negative_control={"depth": 2})
def zero_is_spurious_from_three_layers_on(size: str, depth: int = 3) -> Iterator[Finding]:
    """The smallest Hessian eigenvalue at zero weights for two and three layers."""
    for network in _networks(size, (2,)):
        top = float(np.linalg.norm(network.y.T @ network.x, 2))
        for layers, printed in ((2, True), (depth, False)):
            point = classify(_zero((4, *[2] * (layers - 1), 3)), network.problem)
            finding = at_least(point.smallest / top, 0.0, depth=layers, **network.case)
            yield as_printed(finding) if printed else finding
            if printed:
                yield at_most(abs(point.smallest / top + 1), 1e-12, depth=layers, **network.case)


@evidence("nonlocal/E5", negative_control={"missing": 1})
def data_may_be_degenerate(size: str, missing: int = 0) -> Iterator[Finding]:
    """X X^T is invertible with column rank d_x < m; with n < d_in the second-order points of full rank have no excess,
    also where rank(Pi_X Y) < r, and full-rank points with a rank-deficient A X^T and a residual are strict saddles.
    """
    x = np.random.default_rng(0).normal(size=(3, 8))
    yield at_most(np.linalg.cond(x @ x.T), 1e6, what="X X^T is invertible")
    yield as_printed(at_least(np.linalg.matrix_rank(x), x.shape[1], what="column rank against the number of columns"))
    for network in _degenerate_data(size, (2, 3, 4), rank=1):
        for kept, state in _unseen(network):
            point = classify(state, network.problem)
            yield at_least(point.rank, 2 - missing, **network.case, kept=kept, what="rank of A, labels of rank one")
            yield at_least(
                float(point.label == Kind.GLOBAL_MIN), 1.0, **network.case, kept=kept, what="labels of rank one"
            )
    for network in _degenerate_data(size, (2, 3, 4), rank=2):
        unit = float(np.sum(network.y**2)) / 2
        for kept, state in network.points(2 - missing):
            point = classify(state, network.problem)
            yield at_most(point.excess / unit, 1e-12, **network.case, kept=kept, rank=point.rank)
        top = float(np.linalg.norm(network.x.T @ network.y, 2))
        for kept, state in _unseen(network):
            point = classify(state, network.problem)
            yield at_least(point.rank, 2, **network.case, kept=kept, what="rank of A")
            yield at_least(point.excess / unit, 1e-3, **network.case, kept=kept, what="residual")
            yield at_most(point.smallest / top, -1e-6, **network.case, kept=kept, what="curvature")


@evidence("nonlocal/E7", negative_control={"missing": 1})
def reduction_to_equal_ranks(size: str, missing: int = 0) -> Iterator[Finding]:
    """P = diag(1, 0, 0), Q with rows e_1, e_1, e_2: P Q = P, rank P < rank Q < 3 and S = {0}. With the identity as the
    target, whose rank is 3 as the lemma asks, the objective is 1 for P Q and 1.5 for the reduced pair; with P as the
    target the pair is a global minimizer and the reduced one is not. And the ranks of minimizers on random data.
    """
    p = np.diag([1.0, 0.0, 0.0])
    q = np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    ranks = [int(np.linalg.matrix_rank(m)) for m in (p, q)]
    rows, columns = np.linalg.svd(p)[2][: ranks[0]].T, np.linalg.svd(q)[0][:, : ranks[1]]
    # a vector of both spaces solves rows a = columns b
    _, s, vt = np.linalg.svd(np.concatenate([rows, -columns], axis=1))
    common = rows @ vt[int(np.sum(s > 1e-12)) :].T[: ranks[0]]
    onto = common @ np.linalg.pinv(common) if common.size else np.zeros((3, 3))
    target = p @ q
    yield within(ranks[1] - ranks[0], 1, 1, what="rank Q - rank P")
    own, reduced = (float(np.sum((np.eye(3) - m) ** 2)) / 2 for m in (p @ q, p @ onto @ q))
    yield within(own, 1, 1, target="identity", what="objective of the pair")
    yield as_printed(at_most(abs(reduced - own), 1e-12, target="identity", what="change of the objective"))
    minimum = np.sum((target - p @ onto @ q) ** 2) / 2
    yield as_printed(at_most(minimum, 1e-12, target="P", what="objective of the reduced pair"), reading="minimizers")
    point = classify(Weights((q, p)), factorization(target))
    yield at_least(float(point.label == Kind.GLOBAL_MIN), 1.0, what="the pair itself is a global minimizer")
    for network in _networks(size):
        a = np.asarray(network.problem.optimum(network.bottleneck - missing).matrix)
        rank = int(np.linalg.matrix_rank(a, tol=1e-10 * np.linalg.norm(a, 2)))
        yield within(rank - network.bottleneck, 0, 0, **network.case, what="rank of the minimizer less r")


@evidence("nonlocal/E8", negative_control={"order": 2})
def third_order_descent(size: str, order: int = 3) -> Iterator[Finding]:
    """Loss along W_l = t d_l with d_3 d_2 d_1 = p_1 q_1^T at zero weights, where the Hessian vanishes."""
    z = np.array([2.0, 1.0])
    problem = factorization(np.diag(z))
    initial = float(problem.cost(_zero((2, 2)).matrix))
    unit = np.diag([1.0, 0.0])
    zero = classify(Weights([np.zeros((2, 2))] * 3), problem)
    yield at_most(abs(zero.smallest), 0.0, what="curvature at zero weights")
    for step in (1e-1, 1e-2, 1e-3):
        moved = float(problem.cost(Weights([step * unit] * 3).matrix)) - initial
        # exactly -z_1 t^3 + t^6 / 2
        yield at_most(abs(moved / (-z[0] * step**order + step ** (2 * order) / 2) - 1), 1e-6, step=step)
        yield as_printed(at_least(moved, 0.0, step=step))
