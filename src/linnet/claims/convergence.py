"""Claims and errata of "Training Linear Neural Networks: Non-Local Convergence and Complexity Results", dynamics."""

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from linnet import observe
from linnet.claims.claim import Finding, Seed, as_printed, at_least, at_most, claim, close, evidence, near, within
from linnet.claims.layers import end_to_end, gaussian_layers
from linnet.init import balanced
from linnet.optim import SGD, GradientFlow
from linnet.problems import Factorization
from linnet.record import linear
from linnet.simulation import simulate
from linnet.states import Balanced, EndToEnd, RankOne, Weights
from linnet.theory import convergence
from linnet.theory.convergence import Coordinates

# Runs that several checks share: one shape each, so that they compile once -------------------------------------------

_COUNT, _TIMES, _DIMENSION = 500, 60, 4


class _Instances(NamedTuple):
    """Initializations of rank one against targets, with depths and sample counts: one a row."""

    initial: Coordinates
    depth: np.ndarray
    samples: np.ndarray

    @property
    def gamma(self) -> np.ndarray:
        """z_2 / z_1."""
        return np.asarray(self.initial.z[:, 1] / self.initial.z[:, 0])

    @property
    def alignment(self) -> np.ndarray:
        """a b."""
        return np.asarray(self.initial.a[:, 0] * self.initial.b[:, 0])

    @property
    def size(self) -> np.ndarray:
        """s / z_1."""
        return np.asarray(self.initial.s / self.initial.z[:, 0])

    @property
    def unit(self) -> np.ndarray:
        """The time 1 / (n z_1^e)."""
        return np.asarray(1 / (self.samples * self.initial.z[:, 0] ** (2 - 2 / self.depth)))

    def take(self, which: Any) -> "_Instances":
        """Some of the rows."""
        initial = Coordinates(*(x[which] for x in self.initial))
        return _Instances(initial, self.depth[which], self.samples[which])


def _directions(rng: np.random.Generator, count: int, *, aligned: bool) -> tuple[np.ndarray, np.ndarray]:
    a, b = rng.normal(size=(2, count, _DIMENSION))
    if aligned:
        a[:, 0], b[:, 0] = np.abs(rng.normal(size=(2, count))) * 4
    a[::5, 3] = 0.0  # a surplus dimension on one side
    b[1::5, 2:] = 0.0
    plane = slice(2, None, 5)  # u and v alike, in a plane: where the bounds are tight
    a[plane, 2:], b[plane] = 0.0, a[plane] * np.where(a[plane, :1] < 0, -1, 1)
    a[plane] = b[plane]
    a, b = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (a, b))
    return a, b


def _instances(seed: int, count: int, *, gap: float = 0.7, aligned: bool = False) -> _Instances:
    """Depths 2 to 7, z_1 from 0.1 to 10, gamma up to `gap`, s_0/z_1 from 0.3 to 16."""
    rng = np.random.default_rng(seed)
    a, b = _directions(rng, count, aligned=aligned)
    z1 = 10 ** rng.uniform(-1, 1, count)
    gamma = gap * 10 ** rng.uniform(-4 if aligned else -1, 0, count) * (np.arange(count) % 4 != 3)
    rest = np.stack([np.ones(count), rng.uniform(0, 1, count), np.zeros(count)], axis=1)
    z = z1[:, None] * np.concatenate([np.ones((count, 1)), gamma[:, None] * rest], axis=1)
    size = z1 * 10 ** rng.uniform(np.log10(0.3), np.log10(16), count)
    return _Instances(Coordinates(size, a, b, z), rng.integers(2, 8, count).astype(float), rng.uniform(1, 30, count))


_modes = jax.jit(jax.vmap(convergence.modes))
_transition = jax.jit(jax.vmap(convergence.transition_time))
_distance, _in_set = jax.jit(convergence.distance), jax.jit(convergence.in_set)
_rate, _bound = jax.jit(convergence.distance_rate), jax.jit(convergence.distance_rate_bound)
_parts, _envelope = jax.jit(convergence.parts), jax.jit(convergence.envelope, static_argnames="form")


def _run(instances: _Instances, times: np.ndarray) -> convergence.ModesFlow:
    """Flows of `_COUNT` instances at `_TIMES` times each."""
    assert times.shape == (_COUNT, _TIMES)
    initial = Coordinates(*(jnp.asarray(x) for x in instances.initial))
    return _modes(times, initial, jnp.asarray(instances.depth), jnp.asarray(instances.samples))


@lru_cache
def _flows(seed: int) -> tuple[_Instances, convergence.ModesFlow]:
    """From all directions, to t = 10 / (n z_1^e)."""
    instances = _instances(seed, _COUNT)
    times = instances.unit[:, None] * np.concatenate([np.geomspace(1e-3, 1, 30), np.linspace(1.3, 10, 30)])
    return instances, _run(instances, times)


def _seeds(size: str) -> range:
    return range(1 if size == "quick" else 6)


_SHAPE, _HIDDEN, _SPECTRUM = (3, 4), (3, 3), np.array([1.5, 0.9, 0.4])


def _whitened(target: np.ndarray, samples: float) -> Factorization:
    """What whitened data leave of the loss: (n/2) |A - Z|^2."""
    return Factorization(jnp.asarray(target), jnp.asarray(samples))


def _target() -> np.ndarray:
    target = np.zeros(_SHAPE)
    np.fill_diagonal(target, _SPECTRUM)
    return target


class _LayerRuns(NamedTuple):
    """Three-layer flows at their recording times: runs, times, then matrices."""

    a: np.ndarray
    layers: tuple[np.ndarray, ...]

    def defects(self, share: float) -> np.ndarray:
        """The largest change of W_l W_l^T - W_{l+1}^T W_{l+1} since the initialization, of every run, relative."""
        worst = []
        for below, above in pairwise(self.layers):
            gap = share * np.einsum("rtij,rtkj->rtik", below, below) - np.einsum("rtij,rtik->rtjk", above, above)
            scale = np.max(np.sum(above**2, axis=(2, 3)), axis=1)
            worst.append(np.max(np.linalg.norm(gap - gap[:, :1], axis=(2, 3)), axis=1) / scale)
        return np.max(np.stack(worst), axis=0)


@lru_cache
def _layer_runs(kind: str) -> _LayerRuns:
    """Eight flows of 4-3-3-3 networks: Gaussian initializations, the same blind to the first mode, or balanced of rank
    1, 2.
    """
    rng, problem = np.random.default_rng(3), _whitened(_target(), 2.0)
    initializations: list[Weights] = []
    for i in range(8):
        widths = (_SHAPE[1], *_HIDDEN, _SHAPE[0])
        layers = gaussian_layers(rng, widths, 0.5)
        if kind == "blind":
            layers[0][:, 0] = 0.0
            layers[-1][0] = 0.0
        if kind == "balanced":
            rank = 1 + i % 2
            a = 0.5 * rng.normal(size=(_SHAPE[0], rank)) @ rng.normal(size=(rank, _SHAPE[1]))
            layers = [np.asarray(w) for w in balanced(a, _HIDDEN, rank=rank, key=jax.random.key(i)).layers]
        initializations.append(Weights(layers))
    many = jax.tree.map(lambda *x: jnp.stack(x), *initializations)

    def run(initial: Weights) -> Any:
        found = simulate(
            problem,
            initial,
            GradientFlow(rtol=1e-11),
            time=400.0,
            observe=["matrix"],
            record=linear(41),
            checkpoint="states",
        )
        return found["matrix"], found.states.layers

    a, layers = jax.tree.map(np.asarray, jax.vmap(run)(many))
    return _LayerRuns(a, layers)


# The flow of the layers ----------------------------------------------------------------------------------------------


@claim("nonlocal/C6", "asymptotic", "Lemma 9", negative_control={"kind": "blind"})
def flows_end_at_second_order_points(size: str, kind: str = "gaussian") -> Iterator[Finding]:
    """From Gaussian weights every flow converges, and its limit is a second-order stationary point."""
    problem, runs = _whitened(_target(), 2.0), _layer_runs(kind)
    curvature = jax.jit(jax.vmap(lambda w: observe.hessian_spectrum(w, problem)))
    initializations = [Weights([layer[i, -1] for layer in runs.layers]) for i in range(runs.a.shape[0])]
    ends = curvature(jax.tree.map(lambda *x: jnp.stack(x), *initializations))
    moved = np.linalg.norm(runs.a[:, -1] - runs.a[:, -2], axis=(1, 2))
    yield at_most(moved, 1e-6, runs=len(moved), what="change over the last fortieth")
    yield at_least(np.asarray(ends), -1e-5, runs=len(moved), what="least curvature")


@claim("nonlocal/C7", "exact", "(15)", negative_control={"share": 0.99})
def balance_is_conserved(size: str, share: float = 1.0) -> Iterator[Finding]:
    """W_l W_l^T - W_{l+1}^T W_{l+1} is a constant of every gradient flow, so balance is kept."""
    for kind in ("gaussian", "balanced"):
        for i, drift in enumerate(_layer_runs(kind).defects(share)):
            yield at_most(drift, 1e-8, initialization=kind, run=i)


@lru_cache
def _induced(depth: int) -> np.ndarray:
    """The induced flow from the balanced initializations of rank two."""
    problem, initializations = _whitened(_target(), 2.0), _layer_runs("balanced").a[1::2, 0]
    return np.asarray(
        jax.vmap(
            lambda a: simulate(
                problem,
                EndToEnd(a, Balanced(depth, rank=2)),
                GradientFlow(rtol=1e-11),
                time=20.0,
                observe=["matrix"],
                record=linear(3),
            )["matrix"]
        )(jnp.asarray(initializations))
    )


@claim("nonlocal/C8", "exact", "(17)", negative_control={"depth": 4})
def induced_flow(size: str, depth: int = 3) -> Iterator[Finding]:
    """From balanced layers A follows dA/dt = -sum_j (A A^T)^{(L-j)/L} G (A^T A)^{(j-1)/L}."""
    layers, induced = _layer_runs("balanced").a[1::2], _induced(depth)
    gap = np.max(np.abs(layers[:, :3] - induced), axis=(1, 2, 3)) / np.max(np.abs(induced), axis=(1, 2, 3))
    for i, value in enumerate(gap):
        yield at_most(value, 1e-7, run=i)
    # rank one: the layers against the closed form
    for i, a in enumerate(_layer_runs("balanced").a[::2]):
        u, s, vt = np.linalg.svd(a[0])
        flow = convergence.rank_one(np.linspace(0, 400, 41), s[0], u[:, 0], vt[0], _target(), depth, 2.0)
        yield at_most(np.max(np.abs(np.asarray(flow.matrix) - a)) / np.max(np.abs(a)), 1e-7, run=i, what="rank one")


@claim("nonlocal/C9", "exact", "Lemma 11", negative_control={"kind": "gaussian"})
def rank_never_changes(size: str, kind: str = "balanced") -> Iterator[Finding]:
    """In finite time the flow from a balanced initialization keeps the rank of A."""
    for k in (1, 2):
        values = np.linalg.svd(_layer_runs(kind).a[k - 1 :: 2], compute_uv=False)
        yield at_most(values[..., k] / values[..., 0], 1e-13, rank=k, what="the next singular value")
        yield at_least(values[..., k - 1] / values[..., 0], 1e-6, rank=k, what="the last one kept")


@claim("nonlocal/C10", "exact", "Lemma 12", negative_control={"spare": -1})
def gaussian_weights_have_full_rank(size: str, spare: int = 0, seed: Seed = 0) -> Iterator[Finding]:
    """Gaussian weights have rank(A) = r almost surely, but a flow can lose rank in the limit."""
    rng = np.random.default_rng(seed)
    for widths in ((4, 2, 5, 3), (3, 6, 3), (5, 4, 4, 4, 1)):
        r = min(widths)
        layers = [rng.normal(size=(1000, high, low)) for low, high in pairwise(widths)]
        layers[0][:, r + spare :] *= spare + 1  # negative control: fewer neurons are alive
        values = np.linalg.svd(end_to_end(layers), compute_uv=False)
        yield at_least(np.sum(values[:, r - 1] > 1e-13 * values[:, 0]), 1000, widths=widths, draws=1000)
    initial = Coordinates(np.asarray(1.0), np.array([1.0, 0]), np.array([-1.0, 0]), np.array([1.0, 0.5]))
    late = np.asarray(convergence.modes(np.array([0.0, 1e4, 1e8]), initial, 3).at.s)
    for before, after in pairwise(late):
        yield at_most(after / before, 0.1, what="s of an antisymmetric initialization")


@claim("nonlocal/C20", "exact", "section 3, after (23)", negative_control={"agree": -1.0})
def sign_of_the_determinant(size: str, agree: float = 1.0, seed: Seed = 7) -> Iterator[Finding]:
    """If d_in = d_out = r, sign det A is conserved: balanced initializations of the target's sign reach it, others
    cannot.
    """
    rng = np.random.default_rng(seed)
    target = np.diag([1.5, 0.8])
    initializations = rng.normal(size=(30, 2, 2))
    same = agree * np.linalg.det(initializations) > 0
    # three layers
    weights = [balanced(a, (2, 2), rank=2) for a in initializations]
    many = jax.tree.map(lambda *x: jnp.stack(x), *weights)
    problem = _whitened(target, 5.0)
    ends = jax.vmap(
        lambda w: simulate(problem, w, GradientFlow(rtol=1e-9), time=300.0, observe=["matrix"], record=linear(2))[
            "matrix"
        ][-1]
    )(many)
    gaps = np.linalg.norm(np.asarray(ends) - target, axis=(1, 2))
    yield at_most(gaps[same], 1e-6, depth=3, runs=int(same.sum()), what="the right sign arrives")
    yield at_least(gaps[~same], 0.1, depth=3, runs=int((~same).sum()), what="the wrong sign does not")
    # two layers: the limit is Z_r if and only if P^T U + Q^T V is invertible
    u, _, vt = np.linalg.svd(initializations)
    singular = np.linalg.svd(u + np.swapaxes(vt, 1, 2), compute_uv=False)[:, -1]
    yield at_most(singular[~same], 1e-14, depth=2, what="U + V is singular")
    for i in np.flatnonzero(same)[:4]:
        end = convergence.two_layers(100.0, initializations[i], target, 5.0)
        yield at_most(np.linalg.norm(np.asarray(end) - target), 1e-9, depth=2, least=float(singular[i]))


@claim("nonlocal/C19", "asymptotic", "text after (23)", negative_control={"order": -1})
def small_initializations_peel_off_one_mode_after_another(
    size: str, order: int = 1, seed: Seed = 5
) -> Iterator[Finding]:
    """From small balanced initializations of rank r the flow passes ever closer to Z_1 and Z_2 on its way to Z_r."""
    rng = np.random.default_rng(seed)
    z, rank = np.array([3.0, 2.0, 1.2, 0.5, 0.2]), 3
    target = np.zeros((5, 6))
    np.fill_diagonal(target, z)
    direction = rng.normal(size=(5, rank)) @ rng.normal(size=(rank, 6))
    direction /= np.linalg.norm(direction, 2)
    problem = _whitened(target, 10.0)
    approaches = []
    for c in (1.0, 1e-3, 1e-5)[::order]:
        initial = balanced(c * direction, (rank, rank), rank=rank)
        run = simulate(
            problem,
            initial,
            GradientFlow(rtol=1e-8),
            time=8.0 + 2 * c ** (-1 / 3),
            observe=["matrix"],
            record=linear(800),
        )["matrix"]
        gaps = []
        for k in range(1, rank + 1):
            best = np.where(np.arange(5)[:, None] < k, target, 0.0)
            gaps.append(np.min(np.linalg.norm(np.asarray(run) - best, axis=(1, 2))) / np.linalg.norm(best))
        approaches.append(gaps)
        yield at_most(gaps[2], 1e-5, initialization=c, what="Z_3 is reached")
    for before, after in pairwise(approaches):
        for k in (0, 1):
            yield at_most(
                after[k] / before[k], 0.5, mode=k + 1, what="closest approach, beside the larger initialization"
            )


# The set N_alpha and the limit ---------------------------------------------------------------------------------------


@claim("nonlocal/C11", "bound", "Lemmas 15, 22, 23", negative_control={"factor": 2.2})
def alignment_grows(size: str, factor: float = 2.0) -> Iterator[Finding]:
    """N_alpha is left by no flow, and d(ab)/dtheta >= 2 (z_1 - z_2) ab (1 - ab) wherever ab > 0."""
    states = _instances(11, 20000 if size == "quick" else 400000).initial
    a, b, z = (np.asarray(x) for x in states[1:])
    f = np.sum(z * a * b, axis=1)
    ab = a[:, 0] * b[:, 0]
    slope = (z[:, 0] * (a[:, 0] ** 2 + b[:, 0] ** 2) - 2 * f * ab) / z[:, 0]
    slack = slope - factor * (1 - z[:, 1] / z[:, 0]) * ab * (1 - ab)
    yield at_least(slack[ab > 0], -1e-13, states=int(np.sum(ab > 0)), what="d(ab)/dtheta")
    for seed in _seeds(size):
        instances, flow = _flows(seed)
        at = Coordinates(*(np.asarray(x) for x in flow.at))
        product = at.a[..., 0] * at.b[..., 0]
        right = product[:, 0] > 0
        yield at_least(np.diff(product[right], axis=1), -1e-13, runs=int(right.sum()), what="ab increases")
        # just inside at the first record; alpha may lie below gamma, down to 0
        share = np.random.default_rng(seed).uniform(0, 1, _COUNT)
        alpha = share * np.minimum(product[:, 0], at.s[:, 0] / at.z[:, 0, 0] + instances.gamma)
        kept = np.asarray(_in_set(at, alpha[:, None]))[right]
        yield at_least(np.mean(kept), 1.0, runs=int(right.sum()), what="share inside N_alpha")


def _limits(instances: _Instances) -> np.ndarray:
    """|A - Z_1| / z_1 in the end."""
    late = np.broadcast_to(1e30 * instances.unit[:, None], (_COUNT, _TIMES))
    end = np.asarray(_distance(_run(instances, late).at))[:, -1]
    return np.asarray(np.sqrt(2 * end) / instances.initial.z[:, 0])


@claim("nonlocal/C12", "asymptotic", "Theorem 16", negative_control={"sign": -1.0})
def balanced_initializations_in_the_set_converge(size: str, sign: float = 1.0) -> Iterator[Finding]:
    """Every balanced initialization in N_alpha with alpha > gamma reaches Z_1, without exception."""
    for seed in _seeds(size):
        pool = _instances(100 + seed, 4000, aligned=True)
        inside = (pool.alignment > pool.gamma) & (pool.size > 0.01)
        chosen = pool.take(np.flatnonzero(inside)[:_COUNT])
        initial = chosen.initial
        # negative control: the antisymmetric initializations, which are as good in everything but the sign of v
        chosen = chosen._replace(initial=initial._replace(b=initial.b if sign > 0 else -np.asarray(initial.a)))
        yield at_most(_limits(chosen), 1e-9, runs=_COUNT)


@claim("nonlocal/C14", "exact", "Lemma 19", negative_control={"shrink": 0.5})
def sets_are_invariant(size: str, shrink: float = 1.0) -> Iterator[Finding]:
    """N_{alpha,beta} is left by no flow for alpha in [gamma, 1) and beta > 1."""
    for seed in _seeds(size):
        instances, flow = _flows(seed)
        top = np.minimum(instances.alignment, instances.size + instances.gamma)
        able = top > instances.gamma
        share = np.random.default_rng(seed).uniform(0, 0.999, _COUNT)
        alpha = instances.gamma + share * (top - instances.gamma)
        beta = np.maximum(1.0, instances.size) * 1.001 * shrink
        kept = np.asarray(_in_set(flow.at, alpha[:, None], beta[:, None]))[able]
        yield at_least(np.mean(kept), 1.0, runs=int(able.sum()), records=_TIMES)


# The distance --------------------------------------------------------------------------------------------------------


def _operator(at: Coordinates, force: np.ndarray, depth: np.ndarray) -> np.ndarray:
    """Op_A(D) at A = s u v^T: s^e [(L-2) (u^T D v) u v^T + u u^T D + D v v^T], for a batch."""
    u, v = np.asarray(at.a), np.asarray(at.b)
    left, right = np.einsum("bi,bij->bj", u, force), np.einsum("bij,bj->bi", force, v)
    inner = (depth - 2) * np.einsum("bi,bi->b", u, right)
    outer = inner[:, None, None] * u[:, :, None] * v[:, None, :]
    both = outer + u[:, :, None] * left[:, None, :] + right[:, :, None] * v[:, None, :]
    return np.asarray((at.s ** (2 - 2 / depth))[:, None, None] * both)


class _Matrices(NamedTuple):
    """A, Z and Z_1 of a batch of states."""

    a: np.ndarray
    target: np.ndarray
    best: np.ndarray


def _matrices(at: Coordinates) -> _Matrices:
    z = np.asarray(at.z)
    target = z[:, :, None] * np.eye(z.shape[1])
    first = np.arange(z.shape[1]) == 0
    a = np.asarray(at.s)[:, None, None] * np.asarray(at.a)[:, :, None] * np.asarray(at.b)[:, None, :]
    return _Matrices(a, target, target * (first[:, None] & first))


@claim("nonlocal/C13", "bound", "Lemma 18, (35)", negative_control={"shrink": 0.9})
def derivative_of_the_distance(size: str, shrink: float = 1.0) -> Iterator[Finding]:
    """dE_1/dt = -n s^e [...] exactly, and it is below the bound (35), for every A of rank one."""
    instances = _instances(13, 20000 if size == "quick" else 400000)
    at, depth = instances.initial, instances.depth
    a, target, best = _matrices(at)
    move = _operator(at, target - a, depth)
    right = np.einsum("bij,bij->b", a - best, move)
    scale = np.linalg.norm(a - best, axis=(1, 2)) * np.linalg.norm(move, axis=(1, 2))
    rate = np.asarray(_rate(at, depth))
    yield at_most(np.abs(rate - right) / scale, 1e-12, states=len(rate), what="the identity")
    weaker = at._replace(z=np.asarray(at.z) * np.array([1.0, shrink, shrink, shrink]))
    slack = (np.asarray(_bound(weaker, depth)) - rate) / np.maximum(np.abs(rate), 1e-12 * scale)
    yield at_least(slack, -1e-9, states=len(rate), what="the bound")


class _Theorem(NamedTuple):
    """Theorem 20 on random instances: the largest D / bound before and after t_tr, and what was run."""

    fast: np.ndarray
    slow: np.ndarray
    instances: _Instances
    transition: np.ndarray


@lru_cache
def _theorem(seed: int, form: str, shift: float = 0.0) -> _Theorem:
    """The ratios on `_COUNT` instances that satisfy the hypotheses; the fast exponent is times z_1^shift."""
    pool = _instances(200 + seed, 8000, gap=0.1, aligned=True)
    alpha = 0.9999 * np.minimum(pool.alignment, pool.size + pool.gamma)
    beta = 1.0001 * np.maximum(1.0, pool.size)
    chosen = np.flatnonzero(_envelope(pool.initial, alpha, beta, pool.depth, pool.samples, form=form).applies)[:_COUNT]
    assert len(chosen) == _COUNT
    some = pool.take(chosen)
    rates = _envelope(some.initial, alpha[chosen], beta[chosen], some.depth, some.samples, form=form)
    level = np.broadcast_to(np.asarray(rates.level), (_COUNT,))
    switch = np.asarray(_transition(some.initial, some.depth, some.samples, level))
    half = _TIMES // 2
    early = switch[:, None] * np.linspace(0, 1, half)
    late = switch[:, None] + some.unit[:, None] * np.concatenate([[0.0], np.geomspace(1e-3, 8, half - 1)])
    square = 2 * np.asarray(_distance(_run(some, np.concatenate([early, late], axis=1)).at))
    fast, slow = np.asarray(rates.fast) * np.asarray(some.initial.z)[:, 0] ** shift, np.asarray(rates.slow)
    before = square[:, :half] / (square[:, :1] * np.exp(-fast[:, None] * early))
    after = square[:, half:] / (square[:, half : half + 1] * np.exp(-slow[:, None] * (late - switch[:, None])))
    return _Theorem(np.max(before[:, 1:], axis=1), np.max(after[:, 1:], axis=1), some, switch)


@claim("nonlocal/C15", "bound", "Theorem 20, corrected", negative_control={"shift": -2.0})
def envelopes_hold(size: str, shift: float = 0.0) -> Iterator[Finding]:
    """|Z_1 - A|^2 decays at least at the fast exponent until s <= sqrt 6 z_1, and at least at the slow one after it."""
    for form in convergence.FORMS:
        for seed in _seeds(size):
            run = _theorem(seed, form, shift)
            far = run.transition > 0
            yield at_most(run.fast[far], 1 + 1e-9, form=form, instances=int(far.sum()), what="fast phase")
            yield at_most(run.slow, 1 + 1e-9, form=form, instances=_COUNT, what="slow phase")


@claim("nonlocal/C16", "asymptotic", "Figure 1", negative_control={"power": 1.0})
def euler_on_the_induced_flow_raises_the_rank(size: str, power: float = 2.0, seed: Seed = 2) -> Iterator[Finding]:
    """One Euler step on the induced flow gives a second singular value of order lr^2; descent on layers gives none."""
    rng = np.random.default_rng(seed)
    problem = _whitened(rng.normal(size=(3, 4)), 5.0)
    u, v = rng.normal(size=3), rng.normal(size=4)
    initial = RankOne.balanced(0.8, u, v, 3)
    rates = (1e-3, 1e-4)
    for time, order in ((None, power), (0.05, power - 1)):
        seconds = []
        for lr in rates:
            steps = 1 if time is None else round(time / lr)
            end = simulate(
                problem, EndToEnd(initial.matrix, Balanced(3)), SGD(lr), steps=steps, record=linear(2)
            ).final.matrix
            seconds.append(np.linalg.svd(np.asarray(end), compute_uv=False)[1])
        yield within(seconds[0] / seconds[1] / 10**order, 0.7, 1.4, time=time or "one step", second=seconds[0])
    layers = balanced(np.asarray(initial.matrix), (3, 3), rank=1)
    end = simulate(problem, layers, SGD(1e-3), steps=500, record=linear(2)).final.matrix
    values = np.linalg.svd(np.asarray(end), compute_uv=False)
    yield at_most(values[1] / values[0], 1e-14, what="descent on layers")


@claim("nonlocal/C17", "bound", "(40)", negative_control={"extra": 1})
def a_narrow_network_is_never_that_close(size: str, extra: int = 0, seed: Seed = 0) -> Iterator[Finding]:
    """If rank(Z) > r then |Z - A| >= z_{r+1} for every A of rank r: the condition (40) cannot hold."""
    rng = np.random.default_rng(seed)
    for shape, r in (((3, 4), 1), ((4, 4), 2), ((5, 3), 2)):
        target = rng.normal(size=shape)
        u, z, vt = np.linalg.svd(target, full_matrices=False)
        best = (u[:, : r + extra] * z[: r + extra]) @ vt[: r + extra]
        noise = rng.normal(size=(200, shape[0], r)) @ rng.normal(size=(200, r, shape[1]))
        others = np.linalg.norm(target - 0.3 * noise, axis=(1, 2))
        least = min(float(np.linalg.norm(target - best)), float(np.min(others)))
        yield at_least(least / z[r], 1 - 1e-12, shape=shape, rank=r)


@claim("nonlocal/C18", "bound", "text after Theorem 20", negative_control={"form": "sharpest"})
def slow_exponent_needs_a_small_gamma(size: str, form: str = "theorem") -> Iterator[Finding]:
    """The slow exponent is positive only where gamma < 1/(2L); the flow itself decays at 2 n z_1^e (1 - gamma) > 0."""
    gammas, alphas = np.linspace(1e-3, 0.6, 300), np.linspace(0.002, 0.999999, 400)
    gamma, alpha = (x.ravel() for x in np.meshgrid(gammas, alphas))
    z = np.stack([np.ones_like(gamma), gamma], axis=1)
    initial = Coordinates(np.ones_like(gamma), z * [1.0, 0.0], z * [1.0, 0.0], z)
    for depth in (2, 3, 5, 10, 20):
        slow = np.asarray(_envelope(initial, alpha, 1 + 1e-9, float(depth), 1.0, form=form).slow)
        largest = np.max(gamma[(slow > 0) & (alpha > gamma)])
        yield at_most(largest * 2 * depth, 1.0, depth=depth)
        # the flow at twice that gamma decays all the same, at its own rate
        z = np.array([1.0, 2 * largest])
        generic = Coordinates(np.asarray(0.5), np.array([0.8, 0.6]), np.array([0.6, 0.8]), z)
        at = convergence.modes(np.array([20.0, 22.0]), generic, float(depth)).at
        rate = -float(np.diff(np.log(np.asarray(convergence.distance(at))))[0]) / 4
        yield close(rate, 1 - 2 * largest, rtol=1e-3, depth=depth, what="rate of the flow at twice that gamma")


# Errata --------------------------------------------------------------------------------------------------------------


@evidence("nonlocal/E1", negative_control={"shift": -2.0})
def exponent_of_the_fast_phase(size: str, shift: float = 0.0) -> Iterator[Finding]:
    """Five hundred random instances: where z_1 < 1 and there is a fast phase, the printed bound is passed."""
    for seed in _seeds(size):
        right, print_ = _theorem(seed, "theorem", shift), _theorem(seed, "theorem", -2.0)
        yield at_most(right.fast[right.transition > 0], 1 + 1e-9, instances=_COUNT)
        small = (np.asarray(print_.instances.initial.z)[:, 0] < 1) & (print_.transition > 0)
        failed = int(np.sum(print_.fast[small] > 1 + 1e-9))
        yield as_printed(at_most(print_.fast[small], 1.0, instances=int(small.sum()), failed=failed))


@lru_cache
def _outside(sign: float) -> tuple[_Instances, np.ndarray]:
    """Five hundred random initializations outside every N_alpha with alpha > gamma, and |A - Z_1| / z_1 in the end."""
    pool = _instances(300, 4000)
    outside = np.flatnonzero((pool.alignment <= pool.gamma) & (np.arange(4000) % 5 != 2))[:_COUNT]
    chosen = pool.take(outside)
    initial = chosen.initial
    chosen = chosen._replace(initial=initial._replace(b=initial.b if sign > 0 else -np.asarray(initial.a)))
    return chosen, _limits(chosen)


@evidence("nonlocal/E3", negative_control={"sign": -1.0})
def almost_every_balanced_initialization(size: str, sign: float = 1.0) -> Iterator[Finding]:
    """Five hundred random balanced starts of rank one with d_in, d_out > 1, all outside of N_alpha: all end at Z_1. One
    input and one output, two layers, w_2 = +-w_1: half end at 0, whose least curvature is -z_1. With three layers half
    end there as well, where the least curvature is 0: second-order stationary, as printed.
    """
    _, gaps = _outside(sign)
    yield at_most(
        gaps, 1e-9, initializations=len(gaps), depths="2 to 7", what="distance from Z_1 where d_in, d_out > r"
    )
    strength, ones = np.random.default_rng(0).uniform(0.1, 2, _COUNT), np.ones(_COUNT)
    first = np.outer(ones, np.arange(_DIMENSION) == 0)
    initial = Coordinates(strength, first * np.resize([1.0, -1.0], _COUNT)[:, None], first, first)
    for depth in (2, 3):
        run = _run(_Instances(initial, depth * ones, ones), np.full((_COUNT, _TIMES), 1e8))
        arrived = np.asarray(run.at.s)[:, -1] > 0.5
        layers = Weights([np.zeros((1, 1))] * depth)
        least = float(np.min(np.asarray(observe.hessian_spectrum(layers, _whitened(np.ones((1, 1)), 1.0)))))
        stationary = np.where(arrived, 0.0, least) >= -1e-12
        found = at_least(np.mean(stationary), 1.0, depth=depth, d=1, what="share that ends at a second-order point")
        yield near(np.mean(arrived), 0.5, 0.01, depth=depth, d=1, what="share that ends at the minimum")
        yield as_printed(found) if depth == 2 else found


@evidence("nonlocal/E4", negative_control={"sign": -1.0})
def initializations_outside_the_set(size: str, sign: float = 1.0) -> Iterator[Finding]:
    """Five hundred random initializations outside every N_alpha with alpha > gamma, most with ab < 0: all reach Z_1."""
    chosen, gaps = _outside(sign)
    wrong = int(np.sum(chosen.alignment < 0))
    yield at_most(gaps, 1e-9, initializations=_COUNT, anti_correlated=wrong)
    yield as_printed(at_most(np.mean(gaps < 1e-3), 0.0, initializations=_COUNT, what="share that reaches Z_1"))


def _crossings(s: float, z1: float, depths: np.ndarray, b: float = np.sqrt(0.75)) -> np.ndarray:
    initial = Coordinates(np.asarray(s), np.array([1.0, 0]), np.array([b, np.sqrt(1 - b * b)]), np.array([z1, 0]))
    return np.array([float(convergence.transition_time(initial, depth, 50.0)) for depth in depths])


@evidence("nonlocal/E6", negative_control={"z1": 0.02})
def depth_in_the_far_phase(size: str, z1: float = 0.151) -> Iterator[Finding]:
    """Exact times to s = sqrt 6 z_1 for z_1 = 0.01 and 0.151, depths 2 to 20."""
    depths = np.array([2.0, 3.0, 4.0, 6.0, 10.0, 20.0])
    yield as_printed(at_most(np.diff(_crossings(0.1, 0.01, depths)), 0.0, z1=0.01, initialization=0.1))
    for ratio in (3.0, 10.0, 50.0):
        for b in (-0.5, 0.2, 0.99):
            times = _crossings(ratio * z1, z1, depths, b)
            yield at_most(np.diff(times) / times[1:], 0.0, z1=z1, ratio=ratio, b=b)


def _misprint_states() -> tuple[Coordinates, np.ndarray]:
    instances = _instances(400, 2000)
    size = np.asarray(instances.initial.s) * 10 ** np.random.default_rng(1).uniform(-2, 0, 2000)
    return instances.initial._replace(s=size), instances.depth


@evidence("nonlocal/E9", negative_control={"swap": True})
def two_norms(size: str, swap: bool = False) -> Iterator[Finding]:
    """|u^T Z_1 V|^2 + |U^T Z_1 v|^2 of random states, V and U the complements of v and u."""
    at, _ = _misprint_states()
    _, _, best = _matrices(at)
    u, v = np.asarray(at.a), np.asarray(at.b)
    rows, columns = np.einsum("bi,bij->bj", u, best), np.einsum("bij,bj->bi", best, v)
    inner = np.einsum("bi,bi->b", u, columns)
    right = np.sum(rows**2, axis=1) + np.sum(columns**2, axis=1) - 2 * inner**2
    a2, b2, z2 = u[:, 0] ** 2, v[:, 0] ** 2, np.asarray(at.z)[:, 0] ** 2
    second = (1 - b2) * a2 if swap else (1 - a2) * b2
    yield close(right / z2, a2 * (1 - b2) + second, atol=1e-13, states=2000)
    yield as_printed(close(right / z2, 2 * a2 * (1 - b2), atol=1e-3, states=2000))


@evidence("nonlocal/E10", negative_control={"power": 1.0})
def derivative_of_the_right_alignment(size: str, power: float = 2.0) -> Iterator[Finding]:
    """d<v, q_1>/dt from the velocities of the layers, against the formula, at random states."""
    at, depth = _misprint_states()
    a, target, _ = _matrices(at)
    u, v, s = np.asarray(at.a), np.asarray(at.b), np.asarray(at.s)
    root = s ** (1 / depth)
    force = np.einsum("bi,bij->bj", root[:, None] * u, target - a) * (root ** (depth - 2))[:, None]  # velocity of x
    rotated = (force - np.sum(force * v, axis=1)[:, None] * v) / root[:, None]
    pull = np.einsum("bij,bi->bj", target, u)
    formula = (pull - np.sum(pull * v, axis=1)[:, None] * v)[:, 0]
    scale = s ** (1 - 2 / depth) * np.asarray(at.z)[:, 0]
    for exponent, mark in ((power, False), (1.0, True)):
        gap = np.max(np.abs(rotated[:, 0] - s ** (1 - exponent / depth) * formula) / scale)
        yield as_printed(at_most(gap, 1e-3)) if mark else at_most(gap, 1e-12, states=2000)


@evidence("nonlocal/E11", negative_control={"whole": True})
def inner_product_with_the_residual(size: str, whole: bool = False) -> Iterator[Finding]:
    """Both sides at random states: the identity (183), and the bound (188) with |a| + |b|."""
    at, depth = _misprint_states()
    a, target, best = _matrices(at)
    rest = target - best
    u, v, s = np.asarray(at.a), np.asarray(at.b), np.asarray(at.s)
    moved = _operator(at, rest, depth)
    e = s ** (2 - 2 / depth)

    def along(m: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """u^T M v, and what is left of u^T M and M v without v and u."""
        rows, columns = np.einsum("bi,bij->bj", u, m), np.einsum("bij,bj->bi", m, v)
        inner = np.sum(u * columns, axis=1)
        return inner, rows - inner[:, None] * v, columns - inner[:, None] * u

    f1, rows1, columns1 = along(best)
    g, rows2, columns2 = along(rest)
    right = e * (depth * (s - f1) * g - np.sum(rows1 * rows2, axis=1) - np.sum(columns1 * columns2, axis=1))
    z1, z2 = np.asarray(at.z)[:, 0], np.asarray(at.z)[:, 1]
    off = [np.sqrt(np.sum(x[:, 1:] ** 2, axis=1)) for x in (u, v)]
    bound = e * depth * z2 * np.abs(s - f1) * (1 - u[:, 0] * v[:, 0])
    bound = bound + e * z1 * z2 * (np.abs(u[:, 0]) + np.abs(v[:, 0])) * off[0] * off[1]
    scale = np.linalg.norm(a - best, axis=(1, 2)) * np.linalg.norm(moved, axis=(1, 2)) + 1e-300

    def left(minus: np.ndarray) -> np.ndarray:
        return np.asarray(np.einsum("bij,bij->b", a - minus, moved))

    mine = left(target if whole else best)
    yield at_most(np.abs(mine - right) / scale, 1e-11, states=2000, what="(183)")
    yield at_most((np.abs(mine) - bound) / scale, 1e-11, states=2000, what="(188)")
    yield as_printed(at_most(np.abs(left(target) - right) / scale, 1e-3, what="(183)"))
    yield as_printed(at_most((np.abs(left(target)) - bound) / scale, 0.0, what="(188)"))


@evidence("nonlocal/E12", negative_control={"signed": True})
def norms_are_positive(size: str, signed: bool = False) -> Iterator[Finding]:
    """|u^T Z_1 V| of random states with a of either sign."""
    at, _ = _misprint_states()
    _, _, best = _matrices(at)
    u, v, z1 = np.asarray(at.a), np.asarray(at.b), np.asarray(at.z)[:, 0]
    rows = np.einsum("bi,bij->bj", u, best)
    rows = rows - np.sum(rows * v, axis=1)[:, None] * v
    right = np.linalg.norm(rows, axis=1) / z1
    off = np.sqrt(np.sum(v[:, 1:] ** 2, axis=1))
    first = u[:, 0] if signed else np.abs(u[:, 0])
    yield close(right, first * off, atol=1e-13, states=2000)
    yield as_printed(close(right, u[:, 0] * off, atol=1e-3, states=2000))


@evidence("nonlocal/E13", negative_control={"level": 1.4})
def end_of_the_fast_phase(size: str, level: float = 1.5) -> Iterator[Finding]:
    """The largest s / z_1 among slow states on a fine grid."""
    ab, ratio = (x.ravel() for x in np.meshgrid(np.linspace(-1, 1, 401), np.linspace(0.01, 3, 600)))
    slow = (ratio - ab) ** 2 / 2 <= 1 - ab
    largest = np.max(ratio[slow & (ab > 0)])
    yield at_most(largest, level, states=int(slow.sum()))
    yield at_least(largest, 1.49, states=int(slow.sum()), what="and no smaller")
    yield as_printed(at_least(largest, np.sqrt(6), states=int(slow.sum()), what="sqrt 6 is attained"))
