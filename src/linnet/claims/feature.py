"""Claims and errata of "Exact and Rich Feature Learning Dynamics of Two-Layer Linear Networks"."""

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy import optimize, stats

from linnet.claims.claim import Finding, Seed, as_printed, at_least, at_most, claim, close, evidence, near, within
from linnet.claims.layers import gradient_flow
from linnet.optim import SGD
from linnet.problems import mean_field_regression
from linnet.record import at
from linnet.simulation import simulate
from linnet.states import Weights
from linnet.theory import feature

# Runs: ten samples in reduced coordinates, 151 records, so that all of them share one program -------------------------

_N, _RECORDS = 10, 150


class _Data(NamedTuple):
    """Inputs (n x n) with the Gram matrix of the samples, and labels."""

    x: np.ndarray
    y: np.ndarray

    @property
    def gram(self) -> np.ndarray:
        return self.x @ self.x.T

    @property
    def g(self) -> np.ndarray:
        return self.x.T @ self.y

    @property
    def gamma(self) -> float:
        return float(self.g @ self.g)


def _gaussian(seed: int, d: int, beta_norm: float | None = None, noise2: float = 0.01) -> _Data:
    """n standard normal samples in d dimensions, from the law of their Gram matrix."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=_N)
    lower = np.tril(rng.normal(size=(_N, _N)), -1) + np.diag(np.sqrt(rng.chisquare(d - 1 - np.arange(_N))))
    size = math.sqrt(rng.chisquare(d)) if beta_norm is None else beta_norm
    root = np.asarray(np.linalg.qr(np.concatenate([z[None], lower.T]), mode="r"))
    return _Data(root.T, size * z + math.sqrt(noise2) * rng.normal(size=_N))


def _spread(condition: float, seed: int = 0) -> _Data:
    """A geometric spectrum of K with this condition number, normal labels."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(_N, _N)))[0]
    return _Data(basis * condition ** np.linspace(0.25, -0.25, _N), rng.normal(size=_N))


class _Run(NamedTuple):
    """A descent in compressed width, with the frame that gives every neuron back."""

    data: _Data
    task: feature.FeatureTask
    width: int
    x: float  # the dimensionless step
    frame: np.ndarray
    steps: np.ndarray
    w1: np.ndarray
    w2: np.ndarray
    end: np.ndarray  # the last state, [W_1, v]
    status: str

    def v(self, i: int) -> np.ndarray:
        return self.frame @ self.w2[i]

    def first(self, i: int) -> np.ndarray:
        return self.frame @ self.w1[i]

    def moved(self, i: int) -> np.ndarray:
        return self.frame @ (self.w1[i] - self.w1[0])

    def rho(self, i: int) -> np.ndarray:
        return self.moved(i) @ self.data.g

    @property
    def alpha(self) -> np.ndarray:
        return self.first(0) @ self.data.g / math.sqrt(self.data.gamma)

    def output(self, i: int) -> np.ndarray:
        return self.data.x @ (self.w1[i].T @ self.w2[i]) / self.width

    def learned(self, i: int) -> float:
        """The share a of the aligned output."""
        return float(self.output(i) @ self.data.y / (self.data.y @ self.data.y))

    @property
    def losses(self) -> np.ndarray:
        return np.array([np.sum((self.output(i) - self.data.y) ** 2) / (2 * _N) for i in range(len(self.steps))])

    @property
    def slopes(self) -> np.ndarray:
        rho = (self.w1 - self.w1[0]) @ self.data.g
        return np.sum(rho * self.w2, axis=1) / np.sum(self.w2**2, axis=1) / math.sqrt(self.data.gamma)

    def kernel(self, i: int) -> np.ndarray:
        hidden = self.data.x @ self.w1[i].T
        return (np.sum(self.w2[i] ** 2) * self.data.gram + hidden @ hidden.T) / self.width**2

    def target(self, scale: float) -> np.ndarray:
        """T(scale)."""
        pulled = self.data.gram @ self.data.y
        return scale * (self.data.gram + np.outer(pulled, pulled) / self.data.gamma)

    def distance(self, i: int, square: float | None = None) -> float:
        """From T(square / w), square the mean of v^2 unless given, relative to the kernel."""
        kernel = self.kernel(i)
        mean = float(np.sum(self.w2[i] ** 2)) / self.width if square is None else square
        return _norm(kernel - self.target(mean / self.width)) / _norm(kernel)

    def first_at(self, level: float) -> int | None:
        """The first record with a slope of at least `level`."""
        reached = np.flatnonzero(self.slopes >= level)
        return int(reached[0]) if len(reached) else None

    def nearest(self, step: float) -> int:
        return int(np.argmin(np.abs(self.steps - step)))


def _norm(matrix: np.ndarray) -> float:
    return float(np.linalg.norm(matrix, 2))


def _descent(
    data: _Data, width: int, *, v0: float, sigma0: float, steps: int = _RECORDS, seed: int = 0, **step: float
) -> _Run:
    """Descent with lr or with the dimensionless step x, recorded at 151 steps."""
    rng = np.random.default_rng(seed + 1000)
    initial = np.column_stack([sigma0 * rng.normal(size=(width, _N)), v0 * rng.choice([-1.0, 1.0], size=width)])
    frame, r = np.linalg.qr(initial)
    problem = mean_field_regression(data.x, data.y, width=width)
    known = feature.task(problem)
    rate = math.sqrt(data.gamma) / (_N * width)
    lr = step["lr"] if "lr" in step else step["x"] / rate
    points = np.unique(np.round(np.linspace(0, steps, _RECORDS + 1)))
    run = simulate(
        problem,
        Weights((r[:, :_N], r[:, _N:].T)),
        SGD(lr),
        steps=steps,
        record=at(points),
        checkpoint="states",
    )
    final: Any = run.final
    end = np.column_stack([np.asarray(final.layers[0]), np.asarray(final.layers[1])[0]])
    w1, w2 = np.asarray(run.states.layers[0]), np.asarray(run.states.layers[1])[:, 0]
    return _Run(data, known, width, lr * rate, frame, np.asarray(run.steps), w1, w2, end, run.status)


@lru_cache
def _synthetic(seed: int) -> _Run:
    """The paper's synthetic experiment, with d >> n: lr = 0.1, width 1024."""
    return _descent(_gaussian(seed, 10_000), 1024, v0=1e-3, sigma0=1e-2, lr=0.1, seed=seed)


@lru_cache
def _inside(ratio: float, level: float = 1e-2, d: int = 10_000, seed: int = 0) -> _Run:
    """A run inside the assumption: |beta| = 1, width 256, x = 0.01, v0 = level / sqrt(gamma), sigma0 = ratio v0."""
    data = _gaussian(seed, d, beta_norm=1.0)
    v0 = level / math.sqrt(data.gamma)
    return _descent(data, 256, v0=v0, sigma0=ratio * v0, steps=1800, seed=seed, x=0.01)


def _end_of_stage_one(run: _Run) -> int:
    """The record nearest the corrected time of rho = 1 (v(0) and sigma0 as started)."""
    v0 = float(np.abs(run.v(0)[0]))
    return run.nearest(math.asinh(1 / (math.sqrt(run.data.gamma) * v0)) / math.log1p(run.x))


def _extra(ratio: float, width: int = 256) -> float:
    """sigma0 sqrt(2 log(8 w n^2)) / v0: the condition that single neurons need."""
    return ratio * math.sqrt(2 * math.log(8 * width * _N**2))


# Stage one -----------------------------------------------------------------------------------------------------------


@claim("feature/C1", "exact", "equation (8)", negative_control={"share": 1.01})
def recursions(size: str, share: float = 1.0) -> Iterator[Finding]:
    """rho_r and v_r obey their recursions exactly, the terms of the output included."""
    for n, d, w in ((5, 30, 8), (6, 3, 2)) if size == "quick" else ((5, 30, 8), (6, 3, 2), (1, 4, 3), (20, 200, 50)):
        rng = np.random.default_rng(d)
        x, y = rng.normal(size=(n, d)), rng.normal(size=n)
        first, v, s = 0.3 * rng.normal(size=(w, d)), 0.2 * rng.normal(size=w), 0.01
        initial, g = first, x.T @ y
        rho = np.zeros(w)
        for step in range(20):
            q = x.T @ (x @ (first.T @ v))
            new = rho + s * (g @ g) * v - share * s / w * v * (q @ g)
            new_v = v + s * rho + s * (initial @ g) - share * s / w * (first @ q)
            e = y - x @ (first.T @ v) / w
            first, v = first + s * np.outer(v, x.T @ e), v + s * (first @ (x.T @ e))
            rho = (first - initial) @ g
            yield at_most(np.max(np.abs(new - rho)) / np.max(np.abs(rho)), 1e-12, step=step, n=n, d=d, w=w)
            yield at_most(np.max(np.abs(new_v - v)) / np.max(np.abs(v)), 1e-12, step=step, n=n, d=d, w=w)


@claim("feature/C2", "asymptotic", "section 5.1, equation (9) corrected", negative_control={"tilt": 0.0})
def stage_one_is_linear(size: str, tilt: float = 1.0) -> Iterator[Finding]:
    """While the output is a small share of y, rho_r and v_r grow as (1 +- x)^k, initial projections included.

    The relative error is of the order of that share: twice the share bounds it, before, at and after rho = 1.
    """
    for ratio in (1e-3, 0.1, 1.0):
        run = _inside(ratio)
        end = _end_of_stage_one(run)
        for i in (end, end + 10, end + 20):
            found = feature.stage_one(
                feature.growth(float(run.steps[i]), run.x), run.v(0), tilt * run.alpha, run.data.gamma
            )
            share = float(np.max(np.abs(run.output(i))) / np.max(np.abs(run.data.y)))
            for name, theirs, ours in (("rho", found.rho, run.rho(i)), ("v", found.v, run.v(i))):
                gap = np.max(np.abs(np.asarray(theirs) - ours)) / np.max(np.abs(ours))
                yield at_most(gap, 2 * share, ratio=ratio, what=name, step=int(run.steps[i]))


_EXTRA = {"sigma0 sqrt(2 log(8 w n^2)) < v0": lambda case: case["extra"] < 1}


@claim(
    "feature/C3",
    "bound",
    "Lemma 5.2(i), (ii), with the missing condition",
    hypotheses=_EXTRA,
    negative_control={"share": 0.5},
)
def end_of_stage_one(size: str, share: float = 1.0) -> Iterator[Finding]:
    """At k1 = asinh(1/(sqrt(gamma) v0)) / log(1+x) all |rho_r| and sqrt(gamma) |v_r| are 1, up to sigma0 / v0.

    |alpha_r| <= extra v0 for all r, so both lie within 1 +- extra and the few percent that x and one step leave.
    """
    for ratio in (1e-3, 0.1):
        run, extra = _inside(ratio), _extra(ratio)
        i = run.nearest(share * run.steps[_end_of_stage_one(run)])
        for name, values in (("rho", run.rho(i)), ("v", math.sqrt(run.data.gamma) * run.v(i))):
            sizes = np.abs(values)
            yield at_least(sizes, 1 - extra - 0.1, ratio=ratio, extra=extra, what=name)
            yield at_most(sizes, 1 + extra + 0.1, ratio=ratio, extra=extra, what=name)


@claim(
    "feature/C4",
    "statistical",
    "section 5.1, with the missing condition",
    negative_control={"tilt": 0.0},
    band="every neuron of three draws but the ties",
)
def late_signs(size: str, tilt: float = 1.0, seed: Seed = 0) -> Iterator[Finding]:
    """Signs of v_r are kept where extra < 1; in general the late sign is that of v_r(0) + alpha_r, but for ties.

    Neurons of three draws, 1024 each; a tie has |v_r(0) + alpha_r| below a thousandth of its rms.
    """
    for ratio in (1e-3, 0.1):
        run = _inside(ratio, seed=seed)
        yield at_least(run.v(0) * run.v(-1), 0.0, ratio=ratio, extra=_extra(ratio), neurons=256)
    for draw in range(seed, seed + (3 if size == "quick" else 30)):
        run = _synthetic(draw)
        lead = run.v(0) + tilt * run.alpha
        clear = np.abs(lead) > 1e-3 * np.sqrt(np.mean(lead**2))
        yield at_least(np.mean((run.v(-1) * lead > 0)[clear]), 1.0, draw=draw, neurons=int(np.sum(clear)))


@claim("feature/C5", "asymptotic", "section 4", negative_control={"level": 0.3})
def increments_align(size: str, level: float = 1.0) -> Iterator[Finding]:
    """Increments of all neurons but ties align with X^T y as d/n grows: the largest 1 - cos at the end falls as n/d.

    A tie has |v_r(0) + alpha_r| below a hundredth of its rms and hardly moves. A hundredfold d gives a hundredth of it,
    within a factor of 3, in each draw.
    """
    for seed in range(3 if size == "quick" else 10):
        worst = []
        for d in (100, 10_000):
            data = _gaussian(seed, d)
            v = math.sqrt(float(feature.task(mean_field_regression(data.x, data.y, width=256)).vstar2))
            run = _descent(data, 256, v0=1e-3 * v, sigma0=1e-2 * v, x=0.2, seed=seed)
            lead = run.v(0) + run.alpha
            moved = run.moved(-1)[np.abs(lead) > 0.01 * np.sqrt(np.mean(lead**2))]
            # `level` mixes the labels with others
            g = data.x.T @ (level * data.y + (1 - level) * np.linalg.norm(data.y) * np.ones(_N) / math.sqrt(_N))
            cosines = np.abs(moved @ g) / np.linalg.norm(moved, axis=1) / np.linalg.norm(g)
            worst.append(1 - float(np.min(cosines)))
        yield within(worst[1] / worst[0], 0.01 / 3, 0.03, seed=seed, ratio="d = 1e4 to d = 1e2")
    run = _synthetic(0)
    aligned = run.first_at(0.95)
    assert aligned is not None
    moved = run.moved(aligned)
    cosines = np.abs(moved @ run.data.g) / np.linalg.norm(moved, axis=1) / math.sqrt(run.data.gamma)
    yield at_least(cosines, 0.9999, what="every neuron at the alignment step", neurons=run.width)


@claim("feature/C6", "bound", "Lemma 5.3, first item corrected", hypotheses=_EXTRA, negative_control={"power": 0.9})
def increments_stay_along_the_feature(size: str, power: float = 1.0) -> Iterator[Finding]:
    """|w_r - w_r(0) - (rho_r/gamma) X^T y| <= rho_r / (2 sqrt(gamma)) for all neurons in stage two."""
    for ratio in (1e-3, 0.1):
        run = _inside(ratio)
        for i in range(_end_of_stage_one(run), len(run.steps), 10):
            rho = run.rho(i)
            rest = run.moved(i) - np.outer(rho / run.data.gamma**power, run.data.g)
            gap = np.max(np.linalg.norm(rest, axis=1) * math.sqrt(run.data.gamma) / np.abs(rho))
            yield at_most(gap, 0.5, ratio=ratio, extra=_extra(ratio), step=int(run.steps[i]))


@claim("feature/C7", "bound", "Lemma 5.3, second item", hypotheses=_EXTRA, negative_control={"power": 0.4})
def features_and_readout_move_together(size: str, power: float = 0.5) -> Iterator[Finding]:
    """|rho_r - sqrt(gamma) v_r| <= rho_r / 2 for all neurons from the end of stage one on."""
    for ratio in (1e-3, 0.1):
        run = _inside(ratio)
        for i in range(_end_of_stage_one(run), len(run.steps), 10):
            rho = run.rho(i)
            gap = np.max(np.abs(rho - run.data.gamma**power * run.v(i)) / np.abs(rho))
            yield at_most(gap, 0.5, ratio=ratio, extra=_extra(ratio), step=int(run.steps[i]))


# Kernels -------------------------------------------------------------------------------------------------------------


def _scale_of(run: _Run, i: int, printed: bool) -> float | None:
    return 1 / run.data.gamma if printed else None


@claim("feature/C8", "asymptotic", "Lemma 5.2(iii), scale corrected", negative_control={"printed": True})
def kernel_at_the_end_of_stage_one(size: str, printed: bool = False) -> Iterator[Finding]:
    """At rho = 1 the tangent kernel is T(mean(v^2)/w), the nearer the smaller the initialization."""
    runs = [_inside(0.1, level) for level in (1e-2, 1e-4)]
    large, small = (r.distance(i := _end_of_stage_one(r), _scale_of(r, i, printed)) for r in runs)
    yield at_most(large, 0.01, initialization="v0 sqrt(gamma) = 1e-2")
    yield at_most(small / large, 0.1, initialization="1e-4 against 1e-2")


@claim("feature/C9", "asymptotic", "Lemma 5.3, third item", negative_control={"neuron": 0})
def kernel_in_stage_two(size: str, neuron: int | None = None) -> Iterator[Finding]:
    """In stage two the kernel stays near T(mean(v^2)/w), the nearer the larger d/n: a factor 10 in d gives sqrt(10)."""
    worst = []
    for d in (1_000, 10_000):
        run = _inside(1.0, d=d)
        # from well inside stage one's end on, so that the random initialization is gone
        later = range(_end_of_stage_one(run), len(run.steps), 10)
        squares = [None if neuron is None else float(run.v(i)[neuron] ** 2) for i in later]
        worst.append(max(run.distance(i, square) for i, square in zip(later, squares, strict=True)))
    yield at_most(worst[1], 0.1, d=10_000)
    yield within(worst[0] / worst[1], math.sqrt(10) / 2, 2 * math.sqrt(10), ratio="d = 1e3 to 1e4")


@claim("feature/C18", "refuted", "section 1; section 4.1", negative_control={"until": 0})
def kernel_keeps_its_norm(size: str, until: int | None = None) -> Iterator[Finding]:
    """The tangent kernel keeps its norm in stage one, in the paper's synthetic experiment.

    It grows by the rapidity that aligns the features: cosh(4 atanh 0.95) = 760 in the label direction.
    """
    for seed in range(3 if size == "quick" else 30):
        run = _synthetic(seed)
        i = run.first_at(0.95) if until is None else until
        assert i is not None
        before, after = (np.linalg.eigvalsh(run.kernel(k)) for k in (0, i))
        for name, norm in (("spectral", np.max), ("Frobenius", np.linalg.norm), ("trace", np.sum)):
            yield within(float(norm(after)) / float(norm(before)), 0.5, 2.0, seed=seed, norm=name)


# Stage two and the whole training ------------------------------------------------------------------------------------


@claim("feature/C10", "asymptotic", "Theorem 4.1", negative_control={"step": 1.5})
def loss_vanishes(size: str, step: float = 0.3) -> Iterator[Finding]:
    """For x <= 1/2 the loss falls at every step and reaches any level."""
    for seed in range(3 if size == "quick" else 20):
        for x in (step, step / 3):
            run = _descent(_gaussian(seed, 10_000), 1024, v0=1e-3, sigma0=1e-2, x=x, seed=seed)
            losses = run.losses
            # below 1e-20 of the initialization the differences are rounding
            falling = np.diff(losses)[losses[1:] > 1e-20 * losses[0]]
            yield at_most(np.max(falling) / losses[0], 0.0, seed=seed, x=x)
            yield at_most(losses[-1] / losses[0], 1e-6, seed=seed, x=x)


class _Law(NamedTuple):
    """Where samples come from: eigenvalues of the covariance, and whether entries are signs instead of normal."""

    name: str
    n: int
    values: np.ndarray
    signs: bool = False


def _laws(size: str) -> Iterator[_Law]:
    for n in (10, 40) if size == "quick" else (10, 20, 60):
        for d in (3000,) if size == "quick" else (3000, 30_000):
            flat = np.ones(d)
            yield _Law("isotropic", n, flat)
            yield _Law("isotropic, signs", n, flat, signs=True)
            yield _Law("power law", n, 20 * np.arange(1, d + 1) ** -0.4)
            yield _Law("one spike", n, np.where(np.arange(d) == 0, d / (4 * n), 1.0))


def _source_run(
    law: _Law,
    rng: np.random.Generator,
    beta: float,
    v0: float,
    levels: tuple[float, float],
    times: Callable[..., feature.Times],
) -> tuple[float, ...]:
    """The steps until L <= 4 eps for two eps, descending, and until rho = 1, over the paper's times with constants 1;
    those between the two eps, likewise; and the steps until rho = 1 and their time themselves.

    Width 64, learning rate 0.1 in units of n w / sqrt(gamma), sigma0 = v0 / 10, noise of a hundredth of |beta|. Samples
    and neurons are replaced by their triangular factors, which changes nothing.
    """
    n, d, width = law.n, len(law.values), 64
    z = rng.choice([-1.0, 1.0], size=(n, d)) if law.signs else rng.normal(size=(n, d))
    inputs = z * np.sqrt(law.values)
    direction = rng.normal(size=d)
    teacher = beta * direction / math.sqrt(float(np.sum(law.values * direction**2)))
    y = inputs @ teacher + 0.01 * beta * rng.normal(size=n)
    x = np.asarray(np.linalg.qr(inputs.T, mode="r")).T
    initial = np.column_stack([0.1 * v0 * rng.normal(size=(width, n)), v0 * rng.choice([-1.0, 1.0], size=width)])
    small = np.asarray(np.linalg.qr(initial, mode="r"))
    first, v = small[:, :n].copy(), small[:, n].copy()
    begin, g = first, x.T @ y
    lr = 0.1 * n * width / float(np.linalg.norm(g))
    aligned, reached = 0, [0, 0]
    for step in range(10_000):
        error = y - x @ (first.T @ v) / width
        if not aligned and np.linalg.norm((first - begin) @ g) >= math.sqrt(width):
            aligned = step
        below = [float(error @ error) / (2 * n) <= 4 * eps for eps in levels]
        reached = [before or step * now for before, now in zip(reached, below, strict=True)]
        if below[1]:
            break
        force = lr / (n * width) * (x.T @ error)
        first, v = first + np.outer(v, force), v + first @ force
    trace = float(np.sum(law.values))
    sigma = feature.Covariance(trace, float(law.values.max()), float(np.linalg.norm(law.values)), d)
    early, late = (times(n, width, sigma, beta, v0=v0, lr=lr, eps=eps) for eps in levels)
    shares = reached[0] / early.total, reached[1] / late.total, aligned / early.first
    return *shares, (reached[1] - reached[0]) / max(late.total - early.total, 1e-9), aligned, early.first


def _without_root(n: int, width: float, *rest: Any, **numbers: Any) -> feature.Times:
    """The time of the theorem with n in place of sqrt(n)."""
    found = feature.source_times(n, width, *rest, **numbers)
    return feature.Times(found.first * math.sqrt(n), found.total * math.sqrt(n))


@claim("feature/C27", "asymptotic", "Theorem 4.1", negative_control={"times": _without_root})
def time_of_the_theorem(
    size: str, times: Callable[..., feature.Times] = feature.source_times, seed: Seed = 0
) -> Iterator[Finding]:
    """The rate of Theorem 4.1 is right: the number of steps to L <= 4 eps is between 0.2 and 0.8 of
    (w sqrt(n) / (lr sqrt(tr Sigma) beta)) (log(1/v0) + log(n beta tr Sigma / eps)) for all numbers of samples,
    dimensions, sizes of the teacher, initializations, levels, and covariances (isotropic, a power law, a spike), and
    for signs as for normal entries; and rho is 1 by the time (w sqrt(n) / (lr sqrt(tr Sigma) beta)) log(1/v0). Of each
    logarithm by itself: a smaller eps takes 0.2 to 0.5 of what its own adds, and a smaller v0 delays rho = 1 by 0.5 to
    2.2 of it. Medians of nine draws.
    """
    rng = np.random.default_rng(seed)
    for law in _laws(size):
        for beta in (1.0, 30.0):
            initializations = []
            for root in (1e-1, 1e-4):  # v0 sqrt(gamma)
                v0 = root / (math.sqrt(law.n * float(np.sum(law.values))) * beta)
                levels = (1e-2 * beta**2, 1e-5 * beta**2)
                runs = [_source_run(law, rng, beta, v0, levels, times) for _ in range(9)]
                case = {"law": law.name, "n": law.n, "d": len(law.values), "beta": beta, "v0 sqrt(gamma)": root}
                early, late, aligned, between, *initial = np.median(np.array(runs), axis=0)
                yield within(early, 0.2, 0.8, **case, eps=1e-2 * beta**2, what="steps to 4 eps, over the time")
                yield within(late, 0.2, 0.8, **case, eps=1e-5 * beta**2, what="steps to 4 eps, over the time")
                yield at_most(aligned, 1.0, **case, what="steps to rho = 1, over the time")
                yield within(between, 0.2, 0.5, **case, what="steps between two eps, over that of the logarithm")
                initializations.append(initial)
            (steps, first), (later, second) = initializations
            delay = (later - steps) / max(abs(second - first), 1e-9)
            case = {"law": law.name, "n": law.n, "d": len(law.values), "beta": beta}
            yield within(delay, 0.5, 2.2, **case, what="delay of rho = 1 by a smaller v0, over that of the logarithm")


@claim("feature/C11", "exact", "equation (11)", negative_control={"unit": 1.3})
def cubic_map_saturates(size: str, unit: float = 1.0) -> Iterator[Finding]:
    """The cubic map rises monotonically to rho_star iff x <= 1/2, overshoots beyond, and converges iff x < 1."""
    xs = unit * np.array([0.01, 0.1, 0.3, 0.49])
    paths = np.asarray(feature.cubic_map(1e-3, xs, 4000))
    yield at_least(np.diff(paths, axis=0), -1e-15, x="up to 0.49")
    yield close(paths[-1], 1, atol=1e-12, x="up to 0.49")
    beyond = np.asarray(feature.cubic_map(1e-3, unit * np.array([0.51, 0.8, 0.99]), 4000))
    yield at_least(np.max(beyond, axis=0), 1 + 1e-6, x="0.51 to 0.99")
    yield close(beyond[-1], 1, atol=1e-9, x="0.51 to 0.99")
    cycle = np.asarray(feature.cubic_map(1e-3, unit * 1.01, 4000))
    yield at_least(abs(cycle[-1] - cycle[-2]), 1e-3, x="1.01")
    yield close(cycle[-1], cycle[-3], atol=1e-9, x="1.01")


def _proxy_limit() -> float:
    """The x at which (1 - 2x)^{-1/2} = 1.5 (1 + 1.5x): 0.41566."""
    return float(optimize.brentq(lambda x: 2.25 * (1 + 1.5 * x) ** 2 * (1 - 2 * x) - 1, 0.3, 0.49))


@claim("feature/C12", "bound", "Lemma B.2, proof", negative_control={"stretch": 1.05})
def proxy_growth(size: str, stretch: float = 1.0) -> Iterator[Finding]:
    """On the cubic map the proxy grows by 1 + x/4 at least for x < 1/2; by 1.5 (1 + 1.5x) at most iff x <= 0.4157."""
    u, limit = np.linspace(0, 1, 2001)[:, None], _proxy_limit()
    for xs, side in ((np.linspace(0.001, 0.499, 50), 1), (np.linspace(0.001, stretch * limit * (1 - 1e-9), 50), -1)):
        bound = 1 + xs / 4 if side == 1 else 1.5 * (1 + 1.5 * xs)
        yield at_least(side * (np.asarray(feature.proxy_growth(u, xs)) - bound), 0.0, upto=float(xs[-1]))
    beyond = 1.001 * limit
    yield at_least(float(feature.proxy_growth(1.0, beyond)) - 1.5 * (1 + 1.5 * beyond), 0.0, x=beyond)


@claim(
    "feature/C17",
    "statistical",
    "section 6, figure 1",
    negative_control={"level": 0.3},
    band="every draw: nine standard deviations over ten seeds are left",
)
def two_stages(size: str, level: float = 0.95, seed: Seed = 0) -> Iterator[Finding]:
    """Features align before the loss falls: L(t1) > 0.9 L(0) at slope 0.95, and L(3 t1) < 1e-6 L(0) (x < 1/2).

    Every draw of the paper's synthetic experiment, d >> n and the start as printed.
    """
    draws = 15 if size == "quick" else 150
    for draw in range(seed, seed + draws):
        run = _synthetic(draw)
        aligned = run.first_at(level)
        yield at_least(0.0 if aligned is None else run.losses[aligned] / run.losses[0], 0.9, draw=draw, draws=draws)
        if aligned is not None and run.x < 0.5:
            yield at_most(run.losses[3 * aligned] / run.losses[0], 1e-6, draw=draw, x=run.x, draws=draws)


@claim("feature/C19", "asymptotic", "section 6", negative_control={"condition": 100.0})
def slope_stays(size: str, condition: float = 1.0) -> Iterator[Finding]:
    """The slope stays near 1 through stage two and after it where K is near a multiple of the identity."""
    for seed in range(2 if size == "quick" else 10):
        data = _gaussian(seed, 10_000) if condition == 1 else _spread(condition, seed)
        v = math.sqrt(float(feature.task(mean_field_regression(data.x, data.y, width=256)).vstar2))
        run = _descent(data, 256, v0=1e-2 * v, sigma0=1e-2 * v, steps=3000, x=0.1, seed=seed)
        aligned = run.first_at(0.95)
        assert aligned is not None
        yield within(np.min(run.slopes[aligned:]), 0.94, 1.0, seed=seed, condition=condition)


@lru_cache
def _heterogeneous() -> _Run:
    """sigma0 = 10 v0 at x = 0.05: neurons of very different sizes."""
    data = _gaussian(6, 2_000)
    v = math.sqrt(float(feature.task(mean_field_regression(data.x, data.y, width=200)).vstar2))
    return _descent(data, 200, v0=1e-3 * v, sigma0=1e-2 * v, steps=300, x=0.05)


def _stage_two_gap(run: _Run, each: bool) -> float:
    """Largest error of v at the end, in units of its largest, by the mean-field map or by that of one neuron."""
    lr, steps = run.x / float(run.task.rate), int(run.steps[-1])
    if each:
        v = feature.pair_map(np.zeros(run.width), run.v(0), run.task, lr, steps)[1]
    else:
        v = feature.mean_field(run.first(0) @ run.data.g, run.v(0), run.task, lr, steps)[1]
    return float(np.max(np.abs(np.asarray(v)[-1] - run.v(-1))) / np.max(np.abs(run.v(-1))))


@claim("feature/C20", "asymptotic", "equation (10), corrected", negative_control={"each": True})
def mean_field_stage_two(size: str, each: bool = False) -> Iterator[Finding]:
    """With the mean over neurons in its cubic terms the stage-two map follows every neuron, up to the spread of K."""
    yield at_most(_stage_two_gap(_heterogeneous(), each), 0.02, width=200, d=2_000)


@claim(
    "feature/C21",
    "statistical",
    "section 5, extended",
    negative_control={"amplitude": 1.5},
    band="the loss to nine standard deviations over five seeds; a step follows from half a percent of the loss",
)
def aligned_model(size: str, amplitude: float = 1.0, seed: Seed = 0) -> Iterator[Finding]:
    """Two scalars follow the whole training: loss within 0.5 % of L(0) at every step, and the half-loss step, exactly
    in 149 of 150 draws and to one step in all.

    Every draw of the paper's synthetic experiment, with the initialization's own amplitudes.
    """
    draws = 15 if size == "quick" else 150
    for draw in range(seed, seed + draws):
        run = _synthetic(draw)
        plus, minus = (float(np.mean((run.v(0) + sign * run.alpha) ** 2)) for sign in (1, -1))
        initial = feature.Amplitudes(*(jnp.asarray(amplitude * value) for value in (plus, minus)))
        model = np.asarray(feature.aligned_descent(initial, run.x, run.task.vstar2, len(run.steps) - 1).loss(run.task))
        losses = run.losses
        yield at_most(np.max(np.abs(model - losses)) / losses[0], 5e-3, draw=draw, draws=draws, what="loss")
        half = [int(np.argmax(path < losses[0] / 2)) for path in (model, losses)]
        yield close(half[0], half[1], atol=1.0, draw=draw, draws=draws, what="half-loss step")


@claim("feature/C22", "asymptotic", "section 1, made quantitative", negative_control={"factor": 2.0})
def lazy_or_rich(size: str, factor: float = 1.0) -> Iterator[Finding]:
    """y^T Theta y grows by sqrt(1 + R^2) over the whole training, R = 2 vstar2 / (v0^2 + sigma0^2), K near kappa I.

    Within 15 % for one initialization of width 1024, and within 2 % with the initialization's own amplitudes.
    """
    levels = (1e-2, 1.0, 10.0) if size == "quick" else (1e-3, 1e-2, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
    data = _gaussian(11, 10_000)
    task = feature.task(mean_field_regression(data.x, data.y, width=1024))
    unit, top = math.sqrt(float(task.vstar2)), factor * float(task.vstar2)
    for v0 in levels:
        for sigma0 in levels:
            r = float(feature.richness(task.vstar2, v0 * unit, sigma0 * unit))
            run = _descent(
                data, 1024, v0=v0 * unit, sigma0=sigma0 * unit, steps=1500, x=0.02 * r / math.hypot(1, r), seed=7
            )
            y = data.y
            growth = (y @ run.kernel(-1) @ y) / (y @ run.kernel(0) @ y)
            predicted = float(feature.kernel_growth(factor * r))
            yield at_most(abs(math.log(growth / predicted)), 0.15, v0=v0, sigma0=sigma0)
            plus, minus = (np.mean((run.v(0) + sign * run.alpha) ** 2) for sign in (1, -1))
            own = float(feature.end_growth(feature.Amplitudes(plus, minus), top))
            yield at_most(abs(math.log(growth / own)), 0.02, v0=v0, sigma0=sigma0, what="own amplitudes")


@claim("feature/C23", "asymptotic", "Assumption 4.1(4), made sharp", negative_control={"unit": 1.3})
def step_sizes(size: str, unit: float = 1.0) -> Iterator[Finding]:
    """For K near kappa I and a small initialization there is no overshoot iff x <= 1/2 and convergence iff x < 1.

    The curvature at the end is lr lambda_max(Theta) / n = 2x.
    """
    data = _gaussian(5, 10**7)
    v = math.sqrt(float(feature.task(mean_field_regression(data.x, data.y, width=1024)).vstar2))
    # at 0.55 the map cannot pass 1.0031
    cases = ((0.3, None, True), (0.48, None, True), (0.55, 1e-4, True), (0.7, 0.01, True), (0.98, None, True))
    for x, beyond, settles in (*cases, (1.02, None, False)):
        run = _descent(data, 1024, v0=1e-3 * v, sigma0=1e-3 * v, steps=1500 if x > 0.9 else 150, x=unit * x)
        passed = max(run.learned(i) for i in range(len(run.steps))) - 1
        if x < 0.9:  # recorded at every step
            yield at_most(passed, 1e-9, x=x) if beyond is None else at_least(passed, beyond, x=x)
        left = run.losses[-1] / run.losses[0]
        yield at_most(left, 1e-6, x=x) if settles else at_least(left, 1e-6, x=x)
        if settles:
            lr = run.x / float(run.task.rate)
            yield within(lr * _norm(run.kernel(-1)) / _N / (2 * x), 0.99, 1.01, x=x, what="curvature")


@claim("feature/C24", "asymptotic", "section 5, extended", negative_control={"aligned": True})
def end_state(size: str, aligned: bool = False) -> Iterator[Finding]:
    """From a vanishing initialization mean(v^2) ends at V = sqrt(y^T K^{-1} y) and the kernel at (V K + y y^T / V) / w.

    So in the flow; descent ends below V, by less than 2e-4 here and in proportion to the step or faster.
    """
    for seed in range(3 if size == "quick" else 30):
        below = []
        for x in (0.3, 0.1):
            run = _descent(_gaussian(seed, 10_000), 1024, v0=1e-6, sigma0=1e-6, steps=600, x=x, seed=seed)
            v = float(feature.end_state(run.task).mean_square)
            mean = float(np.sum(run.end[:, -1] ** 2)) / run.width
            below.append(1 - mean / v)
            right = (v * run.data.gram + np.outer(run.data.y, run.data.y) / v) / run.width
            guess = run.target(mean / run.width) if aligned else right
            kernel = run.kernel(-1)
            yield at_most(_norm(kernel - guess) / _norm(kernel), 2e-4, seed=seed, x=x, what="kernel")
        yield within(below[0], 0.0, 2e-4, seed=seed, x=0.3)
        yield within(below[1] / below[0], 0.0, 0.4, seed=seed, what="a third of the step")


@lru_cache
def _flow() -> np.ndarray:
    """[W_1, v] along a gradient flow of a small problem."""
    rng = np.random.default_rng(0)
    n, d, w = 4, 5, 6
    x = rng.normal(size=(n, d))
    y = x @ rng.normal(size=d)
    first, v = 0.1 * rng.normal(size=(w, d)), 0.2 * rng.choice([-1.0, 1.0], size=(1, w))
    times = np.linspace(0, 60, 7)
    path = gradient_flow([first, v], lambda a: (a @ x.T / w - y) @ x / (n * w), times, atol=1e-14)
    return np.array([np.column_stack([first, v[0]]) for first, v in path])


@claim("feature/C25", "exact", "section 5, extended", negative_control={"sign": 1.0})
def lorentz_invariants(size: str, sign: float = -1.0) -> Iterator[Finding]:
    """Along gradient flow W_1 W_1^T - v v^T, each |w_r|^2 - v_r^2 and the spectrum of Q J stay constant."""
    path = _flow()
    before = path[0]

    def imbalance(p: np.ndarray) -> np.ndarray:
        return p[:, :-1] @ p[:, :-1].T + sign * np.outer(p[:, -1], p[:, -1])

    yield at_least(_norm(path[-1]) / _norm(before), 1.5, what="something was learned")
    for p in path[1:]:
        yield at_most(_norm(imbalance(p) - imbalance(before)) / _norm(p) ** 2, 1e-10, what="matrix and its diagonal")
        spectra = [feature.boost_spectrum(q[:, :-1], q[:, -1:].T) for q in (p, before)]
        yield at_most(np.max(np.abs(spectra[0] - spectra[1])) / _norm(p) ** 2, 1e-10, what="spectrum of Q J")


@claim("feature/C26", "asymptotic", "section 5, extended", negative_control={"factor": 0.8})
def late_rate(size: str, factor: float = 1.0) -> Iterator[Finding]:
    """After stage two the residual shrinks by the largest |1 - lr lambda / n| a step, lambda the eigenvalues of Theta.

    At x = 0.3 that is the smallest lambda, and other modes only speed it up; at x = 0.8 the largest, along the labels.
    Between losses of 1e-12 and 1e-20 of the initialization, where the per-step factor is within 5 %.
    """
    for seed in range(4 if size == "quick" else 30):
        for x in (0.3, 0.8):
            run = _descent(_gaussian(seed, 10_000), 1024, v0=1e-3, sigma0=1e-2, x=x, seed=seed)
            losses = run.losses / run.losses[0]
            first, last = (int(np.argmax(losses < level)) for level in (1e-12, 1e-20))
            measured = (losses[last] / losses[first]) ** (1 / (2 * (last - first)))
            predicted = float(feature.late_factor(run.task, factor * run.x / float(run.task.rate)))
            yield within(measured / predicted, 0.95, 1.0 + 1e-3, seed=seed, x=x, steps=last - first)


# Concentration -------------------------------------------------------------------------------------------------------


@claim(
    "feature/C13",
    "statistical",
    "Lemma 5.1",
    negative_control={"frobenius": 0.0},
    band="a factor of 1.5: fifty standard deviations over ten seeds are left",
)
def gram_concentrates(size: str, frobenius: float = 1.0, seed: Seed = 0) -> Iterator[Finding]:
    """|K - tr(Sigma) I| is of the order n |Sigma| + sqrt(n) |Sigma|_F: the ratio's median is the same at all d.

    Isotropic data, 10 samples, dimensions 1e3 to 1e6, 200 draws each (standard error of a median about 2 %).
    """
    draws = 200 if size == "quick" else 2000
    medians = []
    for d in (10**3, 10**4, 10**6):
        sigma = feature.covariance(d)
        unit = feature.spread_unit(_N, sigma._replace(frobenius=frobenius * sigma.frobenius))
        ratios = []
        for draw in range(seed, seed + draws):
            gram = _gaussian(draw, d).gram
            ratios.append(_norm(gram - d * np.eye(_N)) / unit)
        medians.append(float(np.median(ratios)))
        if len(medians) > 1:
            yield within(medians[-1] / medians[0], 1 / 1.5, 1.5, d=d, draws=draws)


def _rate(measured: float, predicted: float, draws: int, **case: Any) -> Finding:
    """A frequency in units of its standard error."""
    error = math.sqrt(predicted * (1 - predicted) / draws)
    return at_most(abs(measured - predicted) / error, 4.0, draws=draws, frequency=measured, error=error, **case)


@claim("feature/C14", "statistical", "Lemma A.4, at finite n", negative_control={"shift": 4}, level=1.6e-4, tests=3)
def gamma_concentrates(size: str, shift: int = 0, seed: Seed = 14) -> Iterator[Finding]:
    """gamma / (n tr(Sigma) beta^2) leaves [1/2, 3/2] as often as chi2_n / n does: 24 % at n = 10, 0.09 % at n = 100."""
    draws = 20_000 if size == "quick" else 200_000
    rng = np.random.default_rng(seed)
    for n in (10, 30, 100):
        d = 10**7
        square = rng.chisquare(n, draws)  # |z|^2; y^T K y = beta^2 |z|^2 (|z|^2 + chi2_{d-1})
        ratio = square * (square + rng.chisquare(d - 1, draws)) / (n * d)
        failed = float(np.mean((ratio < 0.5) | (ratio > 1.5)))
        yield _rate(failed, feature.failures(n + shift, 1).gamma, draws, n=n)


@claim("feature/C15", "statistical", "Lemma A.3, at finite n", negative_control={"shift": 4}, level=1.1e-4, tests=2)
def quadratic_forms_concentrate(size: str, shift: int = 0, seed: Seed = 15) -> Iterator[Finding]:
    """|X alpha|^2 / |alpha|_Sigma^2 leaves [n/2, 2n] as often as chi2_n does: 14 % at n = 10, 1 % at n = 30."""
    draws, d = 4_000 if size == "quick" else 40_000, 20
    rng = np.random.default_rng(seed)
    scale = np.linspace(0.2, 2.0, d)
    alpha = rng.normal(size=d)
    for n in (10, 30):
        samples = rng.normal(size=(draws, n, d)) @ (scale * alpha)
        ratio = np.sum(samples**2, axis=1) / np.sum((scale * alpha) ** 2)
        failed = float(np.mean((ratio < n / 2) | (ratio > 2 * n)))
        yield _rate(failed, feature.failures(n + shift, 1).quadratic, draws, n=n)


@claim("feature/C36", "exact", "Lemmas A.3 and A.4; Theorem 4.1", negative_control={"power": 0.5})
def order_of_the_probability(size: str, power: float = 0.0) -> Iterator[Finding]:
    """For Gaussian inputs the probability 1 - O(n^-2) of Lemmas A.3 and A.4 is right: by the law of chi-square n^2 P is
    at most 16 and 45, and falls for n above 20 and 40, to 1e-5 and 0.2 at n = 200, and to nothing: P falls
    exponentially. The law is exact in Lemma A.3 for every covariance, and the limit of a large d, without noise, in
    Lemma A.4. Signs and other sub-Gaussian entries are not decided.
    """
    counts = np.unique(np.round(np.geomspace(1, 3000, 200)))
    for name, high, most, peak, late in (("A.3", 2.0, 16.0, 20, 2e-5), ("A.4", 1.5, 45.0, 40, 0.3)):
        law, shrink = stats.chi2(counts), counts**-power
        outside = law.cdf(counts * (1 - shrink / 2)) + law.sf(counts * (1 + shrink * (high - 1)))
        scaled = counts**2 * outside
        yield at_most(scaled, most, lemma=name, n="1 to 3000", what="n^2 P")
        yield at_most(np.diff(scaled[counts > peak]), 0.0, lemma=name, n=f"from {peak}", what="growth of n^2 P")
        yield at_most(scaled[counts >= 200], late, lemma=name, n="200 and more", what="n^2 P")
    for n, right in ((10, 13.8), (30, 10.06), (100, 0.0697), (200, 1.28e-5)):
        yield close(n**2 * feature.failures(n, 1).quadratic, right, rtol=0.01, lemma="A.3", n=n, what="n^2 P")


@claim(
    "feature/C16",
    "statistical",
    "Lemmas A.1 and A.2",
    negative_control={"power": 2.0},
    level=6.4e-5,
    tests=2,
    band="the bounds hold with room: a level below 1e-100",
)
def initializations_concentrate(size: str, power: float = 1.0, seed: Seed = 16) -> Iterator[Finding]:
    """max_r <w_r(0), g> < sigma0 sqrt(gamma)/2 has probability Phi(1/2)^w; the other bounds hold with room."""
    draws = 20_000 if size == "quick" else 200_000
    rng = np.random.default_rng(seed)
    for w in (5, 10):
        projections = rng.normal(size=(draws, w))
        yield _rate(float(np.mean(projections.max(axis=1) < 0.5)), feature.failures(10, power * w).largest, draws, w=w)
        delta = 0.05
        bound = feature.initialization_bound(1.0, 1.0, w, delta)
        yield at_most(np.mean(np.abs(projections).max(axis=1) > bound), delta, w=w, draws=draws, what="all below")
    squares = rng.chisquare(400, size=(draws // 20, 20)) / 400
    yield at_most(np.mean((squares < 0.5) | (squares > 1.5)), 1e-3, d=400, what="|w_r(0)|^2")


# Errata --------------------------------------------------------------------------------------------------------------


@evidence("feature/E1", negative_control={"sign": 1.0})
def sign_of_the_kernel_equation(size: str, sign: float = -1.0) -> Iterator[Finding]:
    """A finite difference of the flow agrees with the minus sign only."""
    rng = np.random.default_rng(1)
    x, y, w, n = rng.normal(size=(4, 7)), rng.normal(size=4), 5, 4
    first, v = rng.normal(size=(w, 7)), rng.normal(size=w)
    f = x @ (first.T @ v) / w
    theta = (v @ v * x @ x.T + x @ first.T @ first @ x.T) / w**2
    force = x.T @ (y - f) / (n * w)
    h = 1e-5
    ends = [x @ ((first + k * h * np.outer(v, force)).T @ (v + k * h * (first @ force))) / w for k in (1, -1)]
    rate, gradient = (ends[0] - ends[1]) / (2 * h), (f - y) / n
    yield at_most(np.linalg.norm(rate - sign * theta @ gradient) / np.linalg.norm(rate), 1e-8)
    yield as_printed(at_most(np.linalg.norm(rate - theta @ gradient) / np.linalg.norm(rate), 1e-8))


@evidence("feature/E2", negative_control={"share": 1.1})
def factor_of_the_linear_system(size: str, share: float = 1.0) -> Iterator[Finding]:
    """Five steps at x = 0.3, gamma = 7 from v = 0.1: 0.194 by the exact recursion, 1.21 as printed."""
    gamma, v0 = 7.0, 0.1
    s = 0.3 / math.sqrt(gamma)
    right = float(feature.stage_one(feature.growth(5, 0.3), v0, 0.0, gamma).v)
    for factor, mark in ((share * s, False), (1.0, True)):
        rho, v = 0.0, v0
        for _ in range(5):
            rho, v = rho + s * gamma * v, v + factor * rho
        found = close(v, right, rtol=1e-12, factor=factor)
        yield as_printed(found) if mark else found


@evidence("feature/E3", negative_control={"tilt": 0.0})
def signs_need_a_condition(size: str, tilt: float = 1.0) -> Iterator[Finding]:
    """Inside the assumption with all constants 1, at sigma0 = v0, 13 to 19 % of the neurons change sign; at the paper's
    synthetic parameters, sigma0 = 10 v0, almost half of them. At sigma0 = 0.1 v0 none does.
    """
    for seed in range(3):
        for name, run in (("inside", _inside(1.0, seed=seed)), ("synthetic", _synthetic(seed))):
            lead = run.v(0) + tilt * run.alpha
            case = {"seed": seed, "run": name, "neurons": run.width}
            yield at_least(np.mean(run.v(-1) * lead > 0), 0.98, **case)
            yield as_printed(at_least(np.mean(run.v(-1) * run.v(0) > 0), 0.95, **case))
    run = _inside(0.1)
    yield at_least(np.mean(run.v(-1) * run.v(0) > 0), 1.0, run="sigma0 = 0.1 v0", neurons=run.width)


@evidence("feature/E4", negative_control={"tilt": 0.0})
def induction_bounds(size: str, tilt: float = 1.0) -> Iterator[Finding]:
    """After one step v_r v_r(0) / v0^2 - 1, which both bounds have as 0, is x alpha_r v_r(0) / v0^2: at sigma0 = 10 v0,
    the paper's synthetic parameters, up to 2.6 and beyond 0.1 for half of the neurons and more; at sigma0 = v0 / 1000
    the growth is that of the print within 5e-3.
    """
    for seed in range(3):
        run = _synthetic(seed)
        change = run.v(1) * run.v(0) / 1e-6 - 1
        right = tilt * run.x * run.alpha * run.v(0) / 1e-6
        yield at_most(np.max(np.abs(change - right)) / np.max(np.abs(change)), 0.05, seed=seed)
        yield as_printed(at_most(np.mean(np.abs(change) > 0.1), 0.0, seed=seed, what="share more than 0.1 outside"))
    run = _inside(1e-3)
    v0 = float(np.abs(run.v(0)[0]))
    first = int(run.steps[1])
    grown = run.v(1) * run.v(0) / v0**2 / float(feature.growth(first, run.x).even) - 1
    yield at_most(np.abs(grown), 5e-3, sigma0="v0 / 1000", step=first, what="relative to the printed growth")


@evidence("feature/E5", negative_control={"share": 0.5})
def first_time(size: str, share: float = 1.0) -> Iterator[Finding]:
    """With C1 = 1 the linear system reaches rho = sqrt(gamma)/2. Of constants from 0.05 to 2 none has rho between 0.01
    and 100 in all four cases of sqrt(gamma) = 10, 1e8 and sqrt(gamma) v0 = 1e-2, 1e-8; as an upper bound of the time
    C1 = 1 serves all of them.
    """
    for level in (1e-2, 1e-4):
        run = _inside(1e-3, level)
        v0, x, gamma = level / math.sqrt(run.data.gamma), run.x, run.data.gamma
        corrected = share * float(feature.first_step(run.task, x / float(run.task.rate), v0))
        rho = math.sqrt(gamma) * v0 * float(feature.growth(corrected, x).odd)
        yield within(rho, 0.5, 2.0, initialization=level, steps=corrected)
        printed = math.log(1 / v0) / x
        rho = math.sqrt(gamma) * v0 * float(feature.growth(printed, x).odd)
        yield as_printed(within(rho, 0.5, 2.0, initialization=level, steps=printed))
    cases = [(math.log(root), math.log(level)) for root in (10.0, 1e8) for level in (1e-2, 1e-8)]
    best = math.inf
    for constant in np.linspace(0.05, 2, 391):
        # ln rho = ln(level / 2) + C1 ln(1/v0) for small x and late times
        sizes = [initial - math.log(2) + constant * (root - initial) for root, initial in cases]
        best = min(best, max(abs(size) for size in sizes))
    yield as_printed(at_most(best, math.log(100), what="largest |ln rho|, the best C1"), reading="another C1")
    late = [initial - math.log(2) + (root - initial) for root, initial in cases]
    yield at_least(min(late), 0.0, C1=1, what="smallest ln rho: reached by then")


@evidence("feature/E8", negative_control={"share": 8.0})
def noise_condition(size: str, share: float = 0.25) -> Iterator[Finding]:
    """At noise2 = 8 n beta^2 the median of gamma over 200 draws is about 1 + 8n times n tr(Sigma) beta^2."""
    d = 10_000

    def ratio(noise2: float) -> float:
        draws = (_gaussian(seed, d, beta_norm=1.0, noise2=noise2).gamma / (_N * d) for seed in range(200))
        return float(np.median(list(draws)))

    yield at_most(ratio(share), 1.5, noise2=share, draws=200)
    numbers: dict[str, Any] = dict.fromkeys(("beta_bar", "sigma0", "v0", "lr", "eps", "noise2"), 1.0)
    conditions = feature.assumptions(_N, d, 256, feature.covariance(d), **numbers, variant="printed")
    allowed = next(one.limit / one.value for one in conditions if one.id == "c5" and one.limit is not None)
    yield as_printed(at_most(ratio(allowed), 1.5, noise2=allowed, draws=200))
    for noise2, reading in ((_N / 4, "n >= 4 noise2 / beta^2, as in the proof"), (8.0, "n noise2 <= 8 n beta^2")):
        yield as_printed(at_most(ratio(noise2), 1.5, noise2=noise2, draws=200), reading=reading)


@evidence("feature/E11", negative_control={"power": 1.0})
def residual_of_a_gap(size: str, power: float = 0.0) -> Iterator[Finding]:
    """For K = kappa I the aligned output at the gap eps_rho leaves the loss eps_rho^2 |y|^2 / (2n), free of kappa. The
    printed bound is below it for kappa = 0.1, and above it for kappa = 30.
    """
    for kappa in (0.1, 30.0):
        y = np.random.default_rng(2).normal(size=_N)
        task = feature.task(mean_field_regression(math.sqrt(kappa) * np.eye(_N), y, width=8))
        gap = 0.2
        share = 1 - gap  # rho^2 / rho_star^2 is the learned share of the output
        true = float(np.sum((share * float(task.gamma / task.phi) * kappa * y - y) ** 2)) / (2 * _N)
        yield near(gap**2 * y @ y / (2 * _N) * kappa**power / true, 1, 1e-9, kappa=kappa)
        bound = at_most(true / (gap**2 * kappa**2 * y @ y / _N), 1.0, kappa=kappa, what="loss over the printed bound")
        yield as_printed(bound) if kappa < 0.5 else bound


@evidence("feature/E13", negative_control={"each": True})
def cubic_terms_carry_the_mean(size: str, each: bool = False) -> Iterator[Finding]:
    """At sigma0 = 10 v0 the map of one neuron is off by half of the largest v, and would send all |v_r| to v_star; at
    sigma0 = v0 / 1000 it is right.
    """
    yield at_most(_stage_two_gap(_inside(1e-3), True), 0.02, sigma0="v0 / 1000")
    run = _heterogeneous()
    yield at_most(_stage_two_gap(run, each), 0.02)
    yield as_printed(at_most(_stage_two_gap(run, True), 0.1))
    sizes = np.abs(run.v(-1)) / math.sqrt(float(run.task.vstar2))
    yield as_printed(within(np.min(sizes), 0.9, 1.1, what="smallest |v_r| / v_star"))


@evidence("feature/E14", negative_control={"power": 0.5})
def increments_over_gamma(size: str, power: float = 1.0) -> Iterator[Finding]:
    """The increments of a run inside the assumption, at the end of stage one."""
    run = _inside(0.1)
    i = _end_of_stage_one(run)
    moved, rho = run.moved(i), run.rho(i)
    yield at_most(_norm(moved - np.outer(rho / run.data.gamma**power, run.data.g)) / _norm(moved), 0.05)
    yield as_printed(at_most(_norm(moved - np.outer(rho, run.data.g)) / _norm(moved), 0.5))


@evidence("feature/E15", negative_control={"printed": True})
def scale_of_the_kernel(size: str, printed: bool = False) -> Iterator[Finding]:
    """One and two tenths of e-foldings after rho = 1, where rho is still Theta(1); and at rho = 1 itself."""
    sharp = _inside(1e-3, 1e-4)
    sizes = np.array([np.mean(np.abs(sharp.rho(i))) for i in range(len(sharp.steps))])
    i = int(np.argmin(np.abs(sizes - 1)))
    scale = 1 / (sharp.data.gamma * sharp.width) * sizes[i] ** 2
    yield at_most(
        _norm(sharp.kernel(i) - sharp.target(scale)) / _norm(sharp.kernel(i)), 0.01, what="T(rho^2 / (w gamma))"
    )
    run = _inside(0.1)
    end = _end_of_stage_one(run)
    for extra in (10, 30):
        i = run.nearest(run.steps[end] + extra)
        yield at_most(run.distance(i, _scale_of(run, i, printed)), 0.01, step=int(run.steps[i]))
        yield as_printed(at_most(run.distance(i, 1 / run.data.gamma), 0.01, step=int(run.steps[i])))


def _third_item(run: _Run, i: int, squares: np.ndarray) -> float:
    """The constant that |Theta - T(square / w)| <= C square tr / w needs, largest over squares."""
    trace, kernel = float(np.trace(run.data.gram)) / _N, run.kernel(i)
    gaps = [_norm(kernel - run.target(square / run.width)) * run.width / (square * trace) for square in squares]
    return max(gaps)


@evidence("feature/E29", negative_control={"power": 4.0})
def square_of_one_neuron(size: str, power: float = 2.0) -> Iterator[Finding]:
    """The constant C of the third item at the end of stage one and in stage two, with the mean of v^2, and with v_r^2
    for every r: where sigma0 = v0, which the assumption admits, neurons differ and C is 1e5 and more;
    at sigma0 = v0 / 1000 it is below 0.04.
    """
    for seed in range(2 if size == "quick" else 5):
        run = _inside(1.0, seed=seed)
        for i in (_end_of_stage_one(run), len(run.steps) - 1):
            case = {"sigma0": "v0", "seed": seed, "step": int(run.steps[i])}
            mean = np.array([np.mean(np.abs(run.v(i)) ** power)])
            yield at_most(_third_item(run, i, mean), 0.5, **case, what="C, with the mean of v^2")
            yield as_printed(at_most(_third_item(run, i, run.v(i) ** 2), 10.0, **case, what="C, with v_r^2"))
    run = _inside(1e-3)
    for i in (_end_of_stage_one(run), len(run.steps) - 1):
        found = _third_item(run, i, run.v(i) ** 2)
        yield at_most(found, 0.5, sigma0="v0 / 1000", step=int(run.steps[i]), what="C, with v_r^2")


def _without_proxy(run: _Run, level: float) -> float:
    """The share of neurons with rho_r^2 > gamma^{3/2} / tr where the loss is first below `level` of its start."""
    i = int(np.argmax(run.losses < level * run.losses[0]))
    trace = float(np.trace(run.data.gram)) / _N
    return float(np.mean(run.rho(i) ** 2 * trace / run.data.gamma**1.5 > 1))


@evidence("feature/E17", negative_control={"level": 0.9})
def proxy_of_a_neuron(size: str, level: float = 0.01) -> Iterator[Finding]:
    """1 - (81/16) u at u = 8/81 and at the u of 1 % of the loss, 0.9; and the neurons whose u is above 1 there, which
    have no proxy: none at sigma0 = v0 / 1000, a quarter to a third at sigma0 = 0.1 v0.
    """
    yield close(1 - 81 / 16 * (8 / 81), 0.5, atol=1e-12, u="8/81")
    yield as_printed(at_least(1 - 81 / 16 * (1 - math.sqrt(0.01)), 0.5, loss=0.01, what="1 - (81/16) u"))
    for seed in range(3 if size == "quick" else 10):
        share = _without_proxy(_inside(0.1, seed=seed), level)
        yield within(share, 0.15, 0.4, seed=seed, sigma0="0.1 v0", what="share of neurons without a proxy")
        yield as_printed(at_most(share, 0.0, seed=seed, sigma0="0.1 v0"), reading="of the proxy itself")
    yield at_most(_without_proxy(_inside(1e-3), level), 0.0, sigma0="v0 / 1000", what="share without a proxy")


@evidence("feature/E20", negative_control={"power": 2.0})
def power_of_the_maximum(size: str, power: float = 1.0) -> Iterator[Finding]:
    """The frequency over 20000 draws of ten neurons, in standard errors."""
    draws, w = 20_000, 10
    failed = float(np.mean(np.random.default_rng(20).normal(size=(draws, w)).max(axis=1) < 0.5))
    single = float(stats.norm.cdf(0.5))
    yield _rate(failed, single ** (power * w), draws, w=w)
    yield as_printed(_rate(failed, single ** (2 * w), draws, w=w))


@evidence("feature/E21", negative_control={"stretch": 1.1})
def descent_is_not_the_flow(size: str, stretch: float = 1.0) -> Iterator[Finding]:
    """At x = 0.3 and k = 14, from v = 0.1 and alpha = 0."""
    x, k, v = 0.3, 14, np.array([0.0, 0.1])
    for _ in range(k):
        v = v + x * v[::-1]  # (rho / sqrt(gamma), v)
    yield near(0.1 * float(feature.growth(stretch * k, x).even) / v[1], 1, 1e-12)
    yield as_printed(within(0.1 * float(feature.flow_growth(k * x).even) / v[1], 0.9, 1.1))


@evidence("feature/E23", negative_control={"sigma0": 1.0})
def learned_function(size: str, sigma0: float = 1e-5) -> Iterator[Finding]:
    """Five samples in 40 dimensions, width 60, v0 = 1e-4: W_1^T v / w at the end against X^T (X X^T)^{-1} y, and the
    kernel against X X^T.
    """
    rng = np.random.default_rng(3)
    n, d, w = 5, 40, 60
    x = rng.normal(size=(n, d))
    y = x @ rng.normal(size=d) / math.sqrt(d)
    first, v = sigma0 * rng.normal(size=(w, d)), 1e-4 * rng.choice([-1.0, 1.0], size=w)
    lr = 0.2 * n * w / float(np.linalg.norm(x.T @ y))
    for _ in range(3000):
        force = x.T @ (y - x @ (first.T @ v) / w) / (n * w)
        first, v = first + lr * np.outer(v, force), v + lr * first @ force
    least = x.T @ np.linalg.solve(x @ x.T, y)
    gap = float(np.linalg.norm(first.T @ v / w - least) / np.linalg.norm(least))
    yield at_most(np.linalg.norm(x @ first.T @ v / w - y) / np.linalg.norm(y), 1e-6, what="residual")
    yield at_most(gap, 1e-3, what="distance from the minimum norm solution")
    yield as_printed(at_least(gap, 0.05, what="distance from the minimum norm solution"))
    kernel = x @ (v @ v * np.eye(d) + first.T @ first) @ x.T
    cosine = float(np.sum(kernel * (x @ x.T)) / np.linalg.norm(kernel) / np.linalg.norm(x @ x.T))
    yield at_most(cosine, 0.98, what="cosine of the kernel with X X^T")


@evidence("feature/E24", negative_control={"variant": "corrected"})
def assumption_of_figure_one(size: str, variant: str = "printed") -> Iterator[Finding]:
    """The printed conditions at n = 10, d = 10,000, width 1024, |beta|^2 = d, sigma0 = 0.01, v0 = 0.001, lr = 0.1: the
    eps that the second and the sixth allow, with constants 1.
    """
    d = 10_000
    numbers: dict[str, Any] = {"beta_bar": math.sqrt(d), "sigma0": 0.01, "v0": 1e-3, "lr": 0.1, "noise2": 0.01}
    sigma = feature.covariance(d)

    at_one = {c.id: c for c in feature.assumptions(_N, d, 1024, sigma, **numbers, eps=1.0, variant=variant)}
    least = at_one["c2b"].value ** 2  # in proportion to eps^(-1/2), at most 1
    limit = at_one["c6"].limit
    assert limit is not None
    most = (at_one["c6"].value / limit) ** (2 if variant == "printed" else -2)  # the limit has the root of eps
    yield near(least, 3.16, 0.02, what="eps at least, second condition")
    yield near(most, 0.094, 0.002, what="eps at most, sixth condition")
    yield as_printed(at_most(least / most, 1.0, what="least over most"))
