"""Claims of the mixed-dynamics paper on alignment: the sets P_1 and P_2 along runs, stages of the active phase."""

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from linnet import observe
from linnet.claims.claim import Finding, at_least, at_most, claim, near
from linnet.init import gaussian
from linnet.observe import on_second
from linnet.optim import SGD
from linnet.problems import Factorization, low_rank_recovery
from linnet.record import every
from linnet.simulation import simulate
from linnet.states import Closure, EndToEnd, Mixed, Pair
from linnet.theory import mixed

_LEVELS = (1.0, 0.7)  # of the signals, over d
_RANK = len(_LEVELS)
_GAMMA_W, _GAMMA_S = 2.25, -1.85  # the exponents of Figure 1
_C_LR = 50
_LATE = 0.16  # the time t_2 of Lemma C.9 over d


def _sizes(size: str) -> tuple[int, ...]:
    return (50, 100, 200) if size == "quick" else (50, 100, 200, 400)


def _problem(d: int) -> Factorization:
    return low_rank_recovery(jax.random.key(1), d, _RANK, levels=_LEVELS)


class _Series(NamedTuple):
    """Singular values and misalignment of a matrix at the recorded times."""

    values: np.ndarray
    misalignment: np.ndarray
    matrices: np.ndarray


class _Run(NamedTuple):
    """A network in the active phase beside the mixed equation, iterated from the same start."""

    d: int
    c: float
    width: float
    problem: Factorization
    times: np.ndarray
    network: _Series
    mixed: _Series
    gram_error: np.ndarray

    @property
    def both(self) -> dict[str, _Series]:
        return {"network": self.network, "mixed equation": self.mixed}

    def first(self, reached: np.ndarray) -> int:
        """The first record at which a condition holds."""
        assert reached.any()
        return int(np.argmax(reached))

    @property
    def late(self) -> int:
        """The record of t_2 = 0.16 d."""
        return self.first(self.times >= _LATE * self.d * (1 - 1e-9))


def _series(problem: Factorization, matrices: Any) -> _Series:
    u, s, vt = np.linalg.svd(np.asarray(matrices))
    left, _, right = np.linalg.svd(np.asarray(problem.truth))
    both = left[:, :_RANK].T @ u[:, :, :_RANK] + right[:_RANK] @ np.swapaxes(vt, 1, 2)[:, :, :_RANK]
    x = 4 * _RANK - np.sum(np.diagonal(both, axis1=1, axis2=2) ** 2, axis=1)
    return _Series(s, x, np.asarray(matrices))


@lru_cache
def _run(d: int) -> _Run:
    """Until t = 0.5 d ln d."""
    problem, width = _problem(d), float(round(d**_GAMMA_W))
    c = width * d**_GAMMA_S
    initial = gaussian(jax.random.key(2), problem, width, d**_GAMMA_S)
    lr = d / _C_LR
    run = simulate(
        problem,
        Pair(initial, EndToEnd(initial.matrix, Mixed(c))),
        SGD(lr),
        steps=2 * round(0.25 * _C_LR * math.log(d)),
        record=every(2),
        observe={"a": observe.matrix, "b": on_second(observe.matrix), "gram": observe.input_gram},
    )
    network, equation = _series(problem, run["a"]), _series(problem, run["b"])
    hats = [Mixed(c).grams(jnp.asarray(a))[0] for a in network.matrices]
    errors = [float(jnp.linalg.norm(gram - hat, 2)) for gram, hat in zip(run["gram"], hats, strict=True)]
    return _Run(d, c, width, problem, np.asarray(run.times), network, equation, np.asarray(errors))


@claim(
    "mixed/C34",
    "asymptotic",
    "Definition C.1, Theorems C.2 and E.3, Lemmas C.7 and E.2",
    negative_control={"begin": 0.0},
)
def alignment_is_kept(size: str, begin: float = _LATE) -> Iterator[Finding]:
    """From t_2 = 0.16 d until 0.5 d ln d the network and the mixed equation stay in P_1 and in P_2(30, 1): s_K >= 0.4
    c, s_{K+1} <= 2 c, s_{K+1} <= 0.45 s_K, s_1 - s_2 >= 0.25 s_1, and x <= 30/d, with one set of constants for d >=
    100; and s_{K+1} grows by at most 5 c d^{-1/2} ln d.
    """
    for d in _sizes(size)[1:]:
        run = _run(d)
        after = run.times >= begin * d * (1 - 1e-9)
        for name, series in run.both.items():
            s = series.values[after]
            case = {"d": d, "of": name}
            yield at_least(s[:, _RANK - 1] / run.c, 0.4, what="s_K / c", **case)
            yield at_most(s[:, _RANK] / run.c, 2.0, what="s_{K+1} / c", **case)
            yield at_most(s[:, _RANK] / s[:, _RANK - 1], 0.45, what="s_{K+1} / s_K", **case)
            yield at_least(1 - s[:, 1] / s[:, 0], 0.25, what="gap / s_1", **case)
            yield at_most(d * series.misalignment[after], 30.0, what="d x", **case)
            grown = (s[-1, _RANK] - s[0, _RANK]) / (run.c * np.log(d) / np.sqrt(d))
            yield at_most(grown, 5.0, what="growth of s_{K+1} / (c d^{-1/2} ln d)", **case)
            if d >= 200:  # one constant for both conditions, as `in_p1` has it
                inside = [mixed.in_p1(values, _LEVELS, run.c, 0.25, 0.4, 2.0) for values in s]
                aligned = [mixed.in_p2(float(x), d, 30.0, 1.0) for x in series.misalignment[after]]
                share = float(np.mean([*inside, *aligned]))
                yield near(share, 1, 0.25 / len(s), what="share of records in_p1 and in_p2", **case)


@claim("mixed/C35", "bound", "Lemma C.4", negative_control={"power": 0.5})
def singular_values_move_slowly(size: str, power: float = 1.0) -> Iterator[Finding]:
    """d^2 |ds_j/dt| <= 5 d (s_j + c) for j = 1 ... K + 1, so that from P_1 no condition of P_1' fails for a time of the
    order of d: s_j + c changes by less than a quarter in t = d/25, which is longer than the lemma's c / sqrt(d).
    """
    for d in _sizes(size):
        run = _run(d)
        for name, series in run.both.items():
            s = series.values[:, : _RANK + 1]
            rate = d**2 * np.abs(np.diff(s, axis=0)) / np.diff(run.times)[:, None]
            yield at_most(rate / (d**power * (s[:-1] + run.c)), 5.0, d=d, of=name)
            moved = np.abs(np.diff(np.log(s + run.c), axis=0))  # the records are d/25 apart
            yield at_most(moved, 0.25, d=d, of=name, what="change of ln(s_j + c) in d/25")
            yield at_most(run.c / np.sqrt(d) / (d / 25), 1.0, d=d, what="the lemma's time over d/25")


def _misalignment(a: Array, left: Array, right: Array) -> Array:
    u, _, vt = jnp.linalg.svd(a, full_matrices=False)
    return 4 * _RANK - jnp.sum(jnp.diagonal(left.T @ u[:, :_RANK] + right.T @ vt[:_RANK].T) ** 2)


@claim("mixed/C36", "asymptotic", "Lemma C.6", negative_control={"factor": 8.0})
def misalignment_decays(size: str, factor: float = 1.0) -> Iterator[Finding]:
    """Along the mixed equation from t_2 on, d^2 dx/dt <= -c_d x + 4 (sqrt(d x) + d x^{3/2}) with the lemma's c_d, the
    least of (a_k - a_j)(s~_k + s~_j)/(s_k - s_j) and (a_k + a_j)(s~_k + s~_j)/(s_k + s_j) over pairs, for every d.
    """
    for d in _sizes(size):
        run = _run(d)
        left, _, right = jnp.linalg.svd(run.problem.truth)
        left, right = left[:, :_RANK], right[:_RANK].T
        targets = np.append(np.multiply(_LEVELS, d), 0.0)
        k, j = np.triu_indices(_RANK + 1, 1)

        def slope(a: Array, d: int = d, run: Any = run, left: Array = left, right: Array = right) -> Array:
            """d^2 dx/dt in the units of the appendix, half the loss."""
            field = -Mixed(run.c).tangent(a, a - run.problem.target)
            return (_misalignment(a + 1e-5 * field, left, right) - _misalignment(a - 1e-5 * field, left, right)) / 2e-5

        chosen = np.arange(run.late, len(run.times), 4)
        slopes = np.asarray(jax.lax.map(slope, jnp.asarray(run.mixed.matrices[chosen])))
        worst = -math.inf
        for i, moved in zip(chosen, slopes, strict=True):
            s, x = run.mixed.values[i, : _RANK + 1], float(run.mixed.misalignment[i])
            rate = float(jnp.min(mixed.pair_rate(targets[k], targets[j], s[k], s[j], run.c, 1.0)))
            worst = max(worst, (moved + factor * rate * x) / (np.sqrt(d * x) + d * x**1.5))
        yield at_most(worst, 4.0, d=d)


@claim("mixed/C37", "asymptotic", "Lemmas C.8 and C.9", negative_control={"power": 6.0})
def lazy_stage_aligns(size: str, power: float = 1.0) -> Iterator[Finding]:
    """At the time t_1 at which s_1 = c d^{-delta/2}, delta = (gamma_w - 1)/2, x is of order d^{-min(1/2, delta/2)}; at
    t_2 = 0.16 d it is of that order too, and A is within c d^{-min((gamma_w - 1)/8, 1/4)} of a diagonal matrix of the
    signals, in order: times these powers of d all three fall from one d to the next, in networks as in the equation.
    """
    delta = (_GAMMA_W - 1) / 2
    scaled: dict[tuple[str, str], list[float]] = {}
    for d in _sizes(size):
        run = _run(d)
        left, _, right = np.linalg.svd(np.asarray(run.problem.truth))
        for name, series in run.both.items():
            top, level = series.values[:, 0], run.c * d ** (-delta / 2)
            t1 = run.first(top >= level)
            around = slice(t1 - 1, t1 + 1)  # x falls fast there: on the line between two records, in logarithms
            at_t1 = np.exp(np.interp(np.log(level), np.log(top[around]), np.log(series.misalignment[around])))
            s = series.values[run.late]
            core = left[:, :_RANK] @ np.diag(s[:_RANK]) @ right[:_RANK]
            gap = np.linalg.norm(series.matrices[run.late] - core, 2) / run.c
            first, second = min(0.5, delta / 2), min((_GAMMA_W - 1) / 8, 0.25)
            scaled.setdefault((name, "x(t_1)"), []).append(float(at_t1) * d ** (power * first))
            scaled.setdefault((name, "x(t_2)"), []).append(series.misalignment[run.late] * d ** (power * first))
            scaled.setdefault((name, "|A - Sigma| / c at t_2"), []).append(gap * d ** (power * second))
    for (name, what), found in scaled.items():
        for before, after, d in zip(found, found[1:], _sizes(size)[1:], strict=False):
            yield at_most(after / before, 1.0, d=d, of=name, what=what)


@claim("mixed/C38", "asymptotic", "Lemma E.4, proof of Theorem E.3", negative_control={"level": 4.0})
def networks_stay_near_the_equation(size: str, level: float = 1.0) -> Iterator[Finding]:
    """At the time T_1' at which |A| + |A_theta| = c the network is within sigma^2 sqrt(w d) / 2 of the mixed equation;
    and from t_2 on |C1 - C1_hat| <= 1.5 d^{-lambda} s_K with lambda = 0.15.
    """
    for d in _sizes(size):
        run = _run(d)
        both = run.network.values[:, 0] + run.mixed.values[:, 0]
        at = run.first(both >= level * run.c)
        gap = np.linalg.norm(run.network.matrices[at] - run.mixed.matrices[at], 2)
        yield at_most(gap / (run.c * np.sqrt(d / run.width)), 0.5, d=d, what="|A - A_theta| / (sigma^2 sqrt(w d))")
        error = run.gram_error[run.late :] / run.network.values[run.late :, _RANK - 1]
        yield at_most(error * d**0.15, 1.5, d=d, what="|C1 - C1_hat| d^0.15 / s_K")


@claim("mixed/C39", "asymptotic", "appendix E.3", negative_control={"power": 3.0})
def stages(size: str, power: float = 1.0) -> Iterator[Finding]:
    """The stages of the active phase on networks: T_1 = O(d), where s_1 = c; until then signals grow linearly within a
    factor 2; x(T_2) is of order d^{-(gamma_w - 1)/2}, where s_1 = c (w/d)^{1/4}; x(T_3) of order 1/d + d^{-2 Delta},
    where s_K = a_K d/2, and stays so; and |s_i - a_i d| <= (1 + d^{1 - 2 Delta}) ln d is reached in the time T_5 - T_4.
    """
    delta = 1 - _GAMMA_S - _GAMMA_W
    scaled: dict[str, list[float]] = {}
    for d in _sizes(size):
        run = _run(d)
        s, x = run.network.values, run.network.misalignment
        first = run.first(s[:, 0] >= run.c)
        yield at_most(run.times[first] / d, 0.3, d=d, what="T_1 / d")
        early = np.arange(2, first + 1)
        growth = s[early, 0] / run.times[early]
        yield at_most(growth.max() / growth.min(), 2.0, d=d, what="s_1 / t until T_1: largest / smallest")
        second = run.first(s[:, 0] >= run.c * (run.width / d) ** 0.25)
        scaled.setdefault("x(T_2) d^{(gamma_w - 1)/2}", []).append(x[second] * d ** (power * (_GAMMA_W - 1) / 2))
        third = run.first(s[:, _RANK - 1] >= _LEVELS[-1] * d / 2)
        unit = 1 / d + d ** (-2 * delta)
        yield at_most(x[third:] / unit, 16.0, d=d, what="x / (1/d + d^{-2 Delta}) from T_3 on")
        gaps = np.max(np.abs(s[third:, :_RANK] - np.multiply(_LEVELS, d)), axis=1)
        reached = gaps <= d * unit * np.log(d)
        allowed = min(1, 2 * delta) / (2 * _LEVELS[-1]) * d * np.log(d)
        taken = (run.times[third:][reached][0] if reached.any() else np.inf) - run.times[third]
        yield at_most(taken / allowed, 1.0, d=d, what="T_5 - T_3 over the bound of T_5 - T_4")
    for what, found in scaled.items():
        for before, after, d in zip(found, found[1:], _sizes(size)[1:], strict=False):
            yield at_most(after / before, 1.0, d=d, what=what)


class _Disturbed(Closure):
    """The mixed closure with d^{-lambda} s_K (M G + G N), |M| = |N| = 1."""

    c: Array
    size: Array
    left: Array
    right: Array

    def tangent(self, matrix: Array, gradient: Array) -> Array:
        s = jnp.linalg.svd(matrix, compute_uv=False)[_RANK - 1]
        return Mixed(self.c).tangent(matrix, gradient) + self.size * s * (self.left @ gradient + gradient @ self.right)


@claim("mixed/C40", "asymptotic", "Lemmas E.1 and E.2", negative_control={"power": 3.0})
def disturbed_dynamics_stay_aligned(size: str, power: float = 1.0) -> Iterator[Finding]:
    """With a disturbance d^{-lambda} s_K (M G + G N) of the mixed equation from t_2 on, x stays of order
    d^{-min(1, 2 lambda)} and s_{K+1} <= 0.45 s_K, s_1 - s_2 >= 0.2 s_1, for lambda = 0.25 and 0.5.
    """
    sizes = _sizes(size)[1:3] if size == "quick" else _sizes(size)[1:]
    scaled: dict[float, list[float]] = {}
    for d in sizes:
        run = _run(d)
        rng = np.random.default_rng(d)
        turns = [jnp.asarray(np.linalg.qr(rng.normal(size=(d, d)))[0]) for _ in range(2)]
        for strength in (0.25, 0.5):
            closure = _Disturbed(jnp.asarray(run.c), jnp.asarray(d**-strength), *turns)
            initial = EndToEnd(run.mixed.matrices[run.late], closure)
            later = simulate(run.problem, initial, SGD(d / _C_LR), steps=64, record=every(16), observe=["matrix"])
            series = _series(run.problem, later["matrix"])
            case = {"d": d, "lambda": strength}
            s = series.values
            yield at_most(s[:, _RANK] / s[:, _RANK - 1], 0.45, what="s_{K+1} / s_K", **case)
            yield at_least(1 - s[:, 1] / s[:, 0], 0.2, what="gap / s_1", **case)
            scaled.setdefault(strength, []).append(series.misalignment.max() * d ** (power * min(1, 2 * strength)))
    for strength, found in scaled.items():
        for before, after, d in zip(found, found[1:], sizes[1:], strict=False):
            yield at_most(after / before, 1.3, d=d, what="x d^{min(1, 2 lambda)}", **{"lambda": strength})
