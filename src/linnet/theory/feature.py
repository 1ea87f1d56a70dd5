"""Feature learning in two-layer linear networks of one output: two stages, what decides lazy or rich, and the end.

f = (1/w) X W_1^T v with loss |f - y|^2 / (2n) (`mean_field_regression`), W_1 ~ N(0, sigma0^2), v_r = +-v0 (`readout`).
Letters as in the paper: K = X X^T, g = X^T y, gamma = |g|^2, phi = |K y|^2, rho_r = <w_r - w_r(0), g>,
alpha_r = <w_r(0), g> / sqrt(gamma), omega_r = <w_r, g>. The dimensionless step is x = lr sqrt(gamma) / (n w), and the
rapidity of a flow theta = sqrt(gamma) t / (n w). "Isotropic" says K = kappa I; d >> n is near it. Steps and rapidities
of any shape come first in what is returned, then the axes of the quantity itself.

Arguments: `task` is the result of `task(problem)`, which has gamma, phi, and `vstar2` = gamma^{3/2} / phi; `grown` the
result of `growth`, with C and S; `first` and `second` are W_1 and W_2 = v^T; `richness` is R. Of Gaussian samples,
`samples` is n, `dimension` d, `sigma` the result of `covariance`, `beta_bar` the norm beta of the teacher.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy  # its parts load when they are first used
from jaxtyping import Array, Float

from linnet import _check
from linnet._check import InputError, namespace
from linnet.linalg import RANK_TOLERANCE
from linnet.maps import crossing
from linnet.problems import Regression
from linnet.theory._formula import (
    NUMBERS,
    TIMES,
    Domain,
    Number,
    above,
    at_least,
    evaluate,
    formula,
    in_doubles,
    instance,
    integer,
    scalar,
    scan,
    within,
)
from linnet.theory._times import leading

ALIGNED = 0.95  # stage one ends at the first step with this slope
_LARGE_INITIAL = 1e100  # in units of vstar2
_Three = tuple[Array, Array, Array]


# What of the data matters --------------------------------------------------------------------------------------------


class FeatureTask(NamedTuple):
    """All that feature learning knows of its data.

    `root` and `inside` are X and y in the coordinates of the problem, X = Q root and inside = Q^T y (the part of y in
    the range of X): the same norms and angles in at most d_in rows. `square` is |y|^2 with what lies outside the range
    of X, `samples` is n of the loss |f - y|^2 / (2n), `width` w of the output X W_1^T v / w, and `feature` g = X^T y.

    `gamma` = y^T K y = |g|^2, `phi` = y^T K^2 y = |K y|^2, and `kbar` = phi / gamma is the curvature along y, kappa for
    isotropic data. v^2 saturates at `vstar2` = gamma^{3/2} / phi, rho^2 at `rhostar2` = gamma^{5/2} / phi. `rate` =
    sqrt(gamma) / (n w) is the growth rate of stage one under gradient flow, x per unit of lr. `initial_loss` = |y|^2 /
    (2n) is the loss of an output of zero, and `floor` the least loss of any output b K y, (|y|^2 - gamma^2 / phi) /
    (2n), reached at b = gamma / phi.
    """

    problem: Regression
    root: Float[Array, "k d_in"]
    inside: Float[Array, " k"]
    square: Float[Array, ""]
    samples: Float[Array, ""]
    width: Float[Array, ""]
    feature: Float[Array, " d_in"]
    gamma: Float[Array, ""]
    phi: Float[Array, ""]
    kbar: Float[Array, ""]
    vstar2: Float[Array, ""]
    rhostar2: Float[Array, ""]
    rate: Float[Array, ""]
    initial_loss: Float[Array, ""]
    floor: Float[Array, ""]

    @property
    def gram(self) -> Float[Array, "n n"]:
        """K = X X^T, sample by sample, in their order."""
        return evaluate(_gram, self.problem.sampled().inputs)

    @property
    def labels(self) -> Float[Array, " n"]:
        """The labels y, sample by sample."""
        return evaluate(_column, self.problem.sampled().labels)

    def step(self, lr: Any) -> Float[Array, ""]:
        """x = lr sqrt(gamma) / (n w), the dimensionless step."""
        return evaluate(_step, self.rate, _check.number("lr", lr, above=0))


def _gram(_: Any, inputs: Array) -> Array:
    return inputs @ inputs.T


def _column(_: Any, labels: Array) -> Array:
    return labels[:, 0]


def _step(_: Any, rate: Array, lr: Array) -> Array:
    return lr * rate


def _numbers(
    xp: Any, root: Array, labels: Array, unexplained: Array, scale: Array, output_scale: Array
) -> tuple[Array, ...]:
    inside, samples, width = labels[0], 1 / scale, 1 / output_scale
    feature = inside @ root
    square, gamma, pulled = xp.sum(inside**2) + unexplained, xp.sum(feature**2), root @ feature
    phi = xp.sum(pulled**2)
    kbar = phi / gamma
    vstar2, rate = xp.sqrt(gamma) / kbar, xp.sqrt(gamma) / (samples * width)
    left = xp.sum((inside - gamma / phi * pulled) ** 2) + unexplained
    sizes = inside, square, samples, width, feature, gamma, phi, kbar, vstar2, gamma * vstar2, rate
    return *sizes, square / (2 * samples), left / (2 * samples)


def task(problem: Regression) -> FeatureTask:
    """What feature learning needs to know of a regression with one output, such as `mean_field_regression`."""
    if not isinstance(problem, Regression) or len(problem.shape) != 2 or problem.shape[0] != 1:
        raise InputError(
            f"problem = {_check.show(problem)} is not allowed: use a regression with one output, such as "
            "mean_field_regression(X, y, width=w)."
        )
    given = problem.root, problem.labels, problem.unexplained, problem.scale, problem.output_scale
    found = FeatureTask(problem, problem.root, *evaluate(_numbers, *given))
    # what is left of zero by rounding counts as zero
    size = None if _check.traced(given) else np.sum(np.square(found.root)) * float(found.square)
    if size is not None and not float(found.gamma) > RANK_TOLERANCE**2 * size:
        raise InputError(
            "X^T y is zero: there is no feature to learn; the labels must not be orthogonal to the inputs."
        )
    return found


_KNOWN_TASK = instance(FeatureTask, "feature.task(problem)")
# a formula computes with the numbers of a task, not with its samples
_TASK = Domain(lambda name, value: _KNOWN_TASK.check(name, value)._replace(problem=None))
_LR, _V0, _SIGMA0 = scalar(above=0), scalar(above=0), scalar(least=0)


# Stage one -----------------------------------------------------------------------------------------------------------


class Growth(NamedTuple):
    """C = (lp + lm)/2, S = (lp - lm)/2 and C - 1 with lp = (1+x)^k, lm = (1-x)^k; cosh, sinh and cosh - 1 in a flow."""

    even: Float[Array, "..."]
    odd: Float[Array, "..."]
    gain: Float[Array, "..."]


def _whole(*, steps: Array, x: Array) -> None:
    if not _check.traced((steps, x)) and np.any(np.asarray(x) > 1) and np.any(np.asarray(steps) % 1 > 0):
        raise InputError(
            f"steps = {_check.show(steps)} is not allowed: steps must be whole numbers where x is above 1."
        )


@formula(_whole, steps=TIMES, x=above(0))
def growth(steps: Number, x: Number) -> Growth:
    """The growth of stage one after k steps of dimensionless size x > 0, no digits lost at small k x (`feature/C2`).

    lp and lm are m exp(+-q) with q = k atanh x and m = (1 - x^2)^{k/2}; where q is large or x >= 1 they are formed
    directly, lm with the sign (-1)^k for x > 1, where k must be whole.
    """
    xp = namespace(steps)
    k, x = xp.broadcast_arrays(leading(steps, x), x)
    inside = xp.where(x < 1, x, 0.5)
    q = k * xp.arctanh(inside)
    small = (x < 1) & (q < 1)
    half = k / 2 * xp.log1p(-(inside**2))
    near = xp.where(small, q, 0.0)
    scale = xp.exp(xp.where(small, half, 0.0))
    # C - 1 = m (cosh q - 1) + (m - 1), exactly 0 for one step
    gain = xp.where(k == 1, 0.0, 2 * scale * xp.sinh(near / 2) ** 2 + xp.expm1(xp.where(small, half, 0.0)))

    # |lm| / lp = exp(-turn). Their sum and difference are lp (1 +- exp(-turn)), in logarithms: lp may be no number
    far = xp.where(x > 1, x, 2.0)
    beyond = k * xp.where(far < 2, xp.log1p(far) - xp.log(xp.minimum(far, 2.0) - 1), 2 * xp.arctanh(1 / far))
    turn = xp.where(x < 1, 2 * q, xp.where(x > 1, xp.where(k % 1 > 0, np.nan, beyond), xp.where(k > 0, np.inf, 0.0)))
    more, less = (xp.exp(k * xp.log1p(x) + part) / 2 for part in (xp.log1p(xp.exp(-turn)), xp.log(-xp.expm1(-turn))))
    swapped = (x > 1) & (k % 2 == 1)
    cosh, sinh = xp.where(swapped, less, more), xp.where(swapped, more, less)
    return Growth(
        xp.where(small, scale * xp.cosh(near), cosh),
        xp.where(small, scale * xp.sinh(near), sinh),
        xp.where(small, gain, xp.where(k == 1, 0.0, cosh - 1)),
    )


@formula(theta=TIMES)
def flow_growth(theta: Number) -> Growth:
    """The growth of stage one under gradient flow at the rapidity theta: cosh, sinh, cosh - 1."""
    xp = namespace(theta)
    return Growth(xp.cosh(theta), xp.sinh(theta), 2 * xp.sinh(theta / 2) ** 2)


class Neurons(NamedTuple):
    """rho_r = <w_r - w_r(0), g> and v_r of every neuron."""

    rho: Float[Array, "... w"]
    v: Float[Array, "... w"]


_GROWN = instance(Growth, "growth or flow_growth")


@formula(grown=_GROWN, v=NUMBERS, alpha=NUMBERS, gamma=above(0))
def stage_one(grown: Growth, v: Number, alpha: Number, gamma: Number) -> Neurons:
    """The neurons while the output is small, from v_r(0) and alpha_r (`feature/C2`).

    rho = sqrt(gamma) [alpha (C - 1) + v(0) S], v = v(0) C + alpha S: late signs are those of v(0) + alpha.
    """
    even, odd, gain = (leading(part, v, alpha, gamma) for part in grown)
    return Neurons(namespace(v).sqrt(gamma) * (alpha * gain + v * odd), v * even + alpha * odd)


def _not_zero(*, v0: Array, sigma0: Array, **_: Any) -> None:
    if not _check.traced((v0, sigma0)) and not np.all(np.hypot(v0, sigma0) > 0):
        raise InputError(f"v0 = {_check.show(v0)} is not allowed: v0 and sigma0 must not both be 0.")


@formula(_not_zero, grown=_GROWN, v0=at_least(0), sigma0=at_least(0))
def slope(grown: Growth, v0: Number, sigma0: Number) -> Float[Array, "..."]:
    """sum(rho v) / (sqrt(gamma) sum(v^2)) in stage one, averaged over signs and W_1(0).

    [v0^2 C S + sigma0^2 (C - 1) S] / [v0^2 C^2 + sigma0^2 S^2]: tanh(theta) in a flow with sigma0 << v0, tanh(theta/2)
    with sigma0 >> v0. In descent tanh(k atanh x), sigma0 << v0. One of them is above 0.
    """
    xp = namespace(grown)
    size = xp.hypot(v0, sigma0)
    # each share of v0^2 + sigma0^2 by itself: one minus the other would lose the smaller
    readout, tilt = (v0 / size) ** 2, (sigma0 / size) ** 2
    known = xp.isfinite(grown.even)  # beyond the largest number all three are alike
    odd, gain = (leading(xp.where(known, part / grown.even, 1.0), size) for part in (grown.odd, grown.gain))
    below = readout + tilt * odd**2
    return xp.where(below > 0, odd * (readout + tilt * gain) / xp.where(below > 0, below, 1.0), 0.0)


def alignment_rapidity(level: float, v0: float, sigma0: float) -> float:
    """The rapidity theta at which the slope reaches `level` under gradient flow."""
    p, (v, sigma) = _inside("level", level), _initial(v0, sigma0)

    def gap(theta: float) -> float:
        return float(slope.raw(flow_growth.raw(np.asarray(theta)), v, sigma)) - p

    with np.errstate(all="ignore"):
        return crossing(gap, 0.0, 2 * math.atanh(p) + 1, tolerance=1e-14)


def alignment_steps(level: float, x: float, v0: float, sigma0: float) -> float:
    """The number of descent steps (not rounded) after which the slope reaches `level`; x < 1.

    atanh(level) / atanh(x) for sigma0 << v0.
    """
    p, (v, sigma) = _inside("level", level), _initial(v0, sigma0)
    step = _inside("x", x)

    def gap(k: float) -> float:
        return float(slope.raw(growth.raw(np.asarray(k), np.asarray(step)), v, sigma)) - p

    high = 2.0
    with np.errstate(all="ignore"):
        while gap(high) < 0:
            high *= 2
        return crossing(gap, 0.0, high, tolerance=1e-12)


@formula(task=_TASK, lr=_LR, v0=_V0)
def first_step(task: FeatureTask, lr: Any, v0: Any) -> Float[Array, ""]:
    """Steps until rho = 1, the end of stage one in the paper, for sigma0 << v0 (`feature/C3`).

    asinh(1 / (sqrt(gamma) v0)) / log(1+x); where x sqrt(gamma) v0 >= 1 the first step passes it.
    """
    xp = namespace(lr)
    return xp.arcsinh(1 / (xp.sqrt(task.gamma) * v0)) / xp.log1p(lr * task.rate)


# Stage two -----------------------------------------------------------------------------------------------------------


def _of_one_length(*, v: Array, **others: Any) -> None:
    for name, value in others.items():
        if name in ("omega", "rho"):
            _check.double("v", v, ndim=1, shape=value.shape)


_VECTOR = Domain(partial(_check.double, ndim=1))


@formula(_of_one_length, omega=_VECTOR, v=_VECTOR, task=_TASK, lr=_LR, steps=integer(1, loops=True))
def mean_field(
    omega: Any, v: Any, task: FeatureTask, lr: Any, steps: int
) -> tuple[Float[Array, "_ w"], Float[Array, "_ w"]]:
    """omega_r and v_r at steps 0..k by the mean-field map of both stages, for any start (`feature/C20`).

    omega_r += s gamma v_r - (s phi / gamma) v_r c, v_r += s omega_r - (s phi / gamma^2) omega_r c, with
    c = mean(v omega) before the step and s = lr / (n w).
    """
    return _map_neurons(omega, v, task, lr, steps, namespace(v).mean)


@formula(_of_one_length, rho=_VECTOR, v=_VECTOR, task=_TASK, lr=_LR, steps=integer(1, loops=True))
def pair_map(
    rho: Any, v: Any, task: FeatureTask, lr: Any, steps: int
) -> tuple[Float[Array, "_ w"], Float[Array, "_ w"]]:
    """rho_r and v_r at steps 0..k by the paper's map of one neuron, right where all v_r rho_r are equal (eq. 10).

    `rho` and `v` are those at step 0.
    """
    return _map_neurons(rho, v, task, lr, steps, lambda product: product)


def _map_neurons(
    omega: Array, v: Array, task: FeatureTask, lr: Array, steps: int, mean: Callable[[Array], Array]
) -> tuple[Array, Array]:
    xp, s = namespace(v), lr / (task.samples * task.width)

    def step(now: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        omega, v = now
        left = 1 - task.kbar / task.gamma * mean(v * omega)
        new = omega + s * task.gamma * v * left, v + s * omega * left
        return new, new

    _, later = scan(xp, step, (omega, v), None, length=steps)
    return xp.concatenate([omega[None], later[0]]), xp.concatenate([v[None], later[1]])


@formula(u=NUMBERS, x=above(0), steps=integer(0, loops=True))
def cubic_map(u: Number, x: Number, steps: int) -> Float[Array, "_ ..."]:
    """rho / rho_star at steps 0..k by eq. 11, r <- r (1 + x (1 - r^2)), from r(0) = `u`; steps come first."""
    xp = namespace(u)
    u, x = xp.broadcast_arrays(u, x)

    def step(r: Array, _: None) -> tuple[Array, Array]:
        new = r * (1 + x * (1 - r) * (1 + r))
        return new, new

    return xp.concatenate([u[None], scan(xp, step, u, None, length=steps)[1]])


@formula(theta=TIMES, u=NUMBERS)
def cubic_flow(theta: Number, u: Number) -> Float[Array, "..."]:
    """rho / rho_star under the flow of eq. 11 at the rapidity theta, from rho(0) / rho_star = `u`; the sign stays."""
    xp, theta = namespace(theta), leading(theta, u)
    # u^2 / (u^2 + (1 - u^2) exp(-2 theta)) without the square of a tiny start
    below = xp.hypot(u * xp.sqrt(-xp.expm1(-2 * theta)), xp.exp(-theta))
    return xp.where(u == 0, 0.0, u / xp.where(u == 0, 1.0, below))


def _gap_ahead(*, u: Array, gap: Array) -> None:
    if not _check.traced(u) and np.any(np.asarray(u) == 0):
        raise InputError(f"u = {_check.show(u)} is not allowed: what starts at 0 stays there.")
    if not _check.traced((u, gap)) and np.any(np.asarray(gap) > (1 - np.asarray(u) ** 2) * (1 + 1e-12)):
        raise InputError(
            f"gap = {_check.show(gap)} is not allowed: the initialization has a smaller gap, 1 - u^2, already."
        )


@formula(_gap_ahead, u=above(-1, below=1), gap=above(0, below=1))
def cubic_time(u: Number, gap: Number) -> Float[Array, "..."]:
    """The rapidity from rho / rho_star = `u` to 1 - rho^2 / rho_star^2 = `gap`, 0 < |u| < 1 and 0 < gap <= 1 - u^2."""
    xp = namespace(u)
    return 0.5 * (xp.log1p(-gap) - xp.log(gap) + xp.log1p(-(u**2))) - xp.log(xp.abs(u))


@formula(u=above(-1, below=1))
def proxy(u: Number) -> Float[Array, "..."]:
    """r / sqrt(1 - r^2) of r = rho / rho_star: grows exactly like exp(theta) in the flow of eq. 11; |r| < 1.

    `u` is r^2.
    """
    return u / namespace(u).sqrt((1 - u) * (1 + u))


def _not_beyond(*, square: Array, x: Array) -> None:
    if not _check.traced((square, x)) and np.any(_not_passed(np.asarray(square), np.asarray(x)) <= 0):
        raise InputError(
            f"x = {_check.show(x)} is not allowed: from here a step must not pass rho_star; x < 1/2 never does."
        )


@formula(_not_beyond, square=at_least(0, most=1), x=above(0))
def proxy_growth(square: Number, x: Number) -> Float[Array, "..."]:
    """The factor by which the proxy grows in a step of eq. 11 at rho^2 / rho_star^2 = `square`.

    From 1 + x at 0 up to (1 - 2x)^{-1/2} at 1, defined everywhere for x < 1/2, and for larger x where the step does not
    pass 1: 2 x u + x^2 u (1 - u) < 1.
    """
    return (1 + x * (1 - square)) / namespace(x).sqrt(_not_passed(square, x))


def _not_passed(u: Any, x: Any) -> Any:
    """Positive where a step from u does not pass 1."""
    return 1 - 2 * x * u - x**2 * u * (1 - u)


@formula(eps=TIMES, task=_TASK)
def loss_gap(eps: Number, task: FeatureTask) -> Float[Array, "..."]:
    """The gap 1 - rho^2 / rho_star^2 at which the loss of the aligned output is `eps` (isotropic)."""
    return namespace(eps).sqrt(2 * task.samples * eps / task.square)


# The whole training, aligned -----------------------------------------------------------------------------------------


class Amplitudes(NamedTuple):
    """Mean squares of v_r(0) + alpha_r and of v_r(0) - alpha_r, both about v0^2 + sigma0^2."""

    plus: Float[Array, ""]
    minus: Float[Array, ""]


def _in_coordinates(*, first: Array, second: Array, task: FeatureTask) -> None:
    if first.shape[1] != task.root.shape[1] or second.shape != (1, first.shape[0]):
        raise InputError(
            f"first has shape {first.shape} and second {second.shape}: they must be w x {task.root.shape[1]} and 1 x w."
        )


_LAYER = Domain(partial(_check.array, ndim=2))


@formula(_in_coordinates, first=_LAYER, second=_LAYER, task=_TASK)
def amplitudes(first: Any, second: Any, task: FeatureTask) -> Amplitudes:
    """The amplitudes of a start (W_1, W_2), in full or compressed width, in the coordinates of `task`."""
    xp = namespace(first)
    alpha = first @ (task.feature / xp.sqrt(task.gamma))
    return Amplitudes(*(xp.sum((second[0] + sign * alpha) ** 2) / task.width for sign in (1, -1)))


@formula(v0=_V0, sigma0=_SIGMA0)
def expected_amplitudes(v0: Any, sigma0: Any) -> Amplitudes:
    """v0^2 + sigma0^2, twice."""
    square = namespace(v0).hypot(v0, sigma0) ** 2
    return Amplitudes(square, square)


class Aligned(NamedTuple):
    """The aligned model: factors P and N of v_r(0) +- alpha_r, and the share a of the output that is learned.

    v_r = [(v+alpha) P + (v-alpha) N]/2, omega_r = sqrt(gamma) [(v+alpha) P - (v-alpha) N]/2, f = a (gamma/phi) K y.
    Kept as P - 1, N - 1, a and 1 - a: a lazy start moves by far less than its own size.
    """

    rise: Float[Array, "..."]
    fall: Float[Array, "..."]
    learned: Float[Array, "..."]
    left: Float[Array, "..."]

    @property
    def up(self) -> Float[Array, "..."]:
        """P."""
        return evaluate(_one_more, self.rise)

    @property
    def down(self) -> Float[Array, "..."]:
        """N."""
        return evaluate(_one_more, self.fall)

    def neurons(self, v: Any, alpha: Any, gamma: Any) -> Neurons:
        """rho_r and v_r from v_r(0) and alpha_r."""
        given = {"v": _check.numbers("v", v), "alpha": _check.numbers("alpha", alpha)}
        given["gamma"] = _check.numbers("gamma", gamma, above=0)
        _check.matching(**given)
        return evaluate(_aligned_neurons, self, *given.values())

    def loss(self, task: FeatureTask) -> Float[Array, "..."]:
        """The loss of f, floor included."""
        return evaluate(_aligned_loss, self, _TASK.check("task", task))

    def kernel_growth(self, initial: Amplitudes) -> Float[Array, "..."]:
        """y^T Theta y over its initial value, (Ap P^2 + Am N^2) / (Ap + Am)."""
        return evaluate(_aligned_growth, self, _amplitudes("initial", initial))

    @in_doubles
    def slope(self, initial: Amplitudes, v0: Any) -> Float[Array, "..."]:
        """sum(rho v) / (sqrt(gamma) sum(v^2)) in both stages, from v_r(0) = +-v0."""
        return evaluate(_aligned_slope, self, _amplitudes("initial", initial), _check.number("v0", v0, above=0))


def _one_more(_: Any, x: Array) -> Array:
    return 1 + x


def _aligned_neurons(xp: Any, at: Aligned, before: Array, tilt: Array, gamma: Array) -> Neurons:
    plus, minus = before + tilt, before - tilt
    rise, fall = (leading(part, plus, gamma) for part in (at.rise, at.fall))
    rho = xp.sqrt(gamma) * (plus * rise - minus * fall) / 2
    return Neurons(rho, (plus * (1 + rise) + minus * (1 + fall)) / 2)


def _aligned_loss(_: Any, at: Aligned, task: FeatureTask) -> Array:
    return task.floor + at.left**2 * task.gamma / task.kbar / (2 * task.samples)


def _aligned_growth(_: Any, at: Aligned, initial: Amplitudes) -> Array:
    return (initial.plus * (1 + at.rise) ** 2 + initial.minus * (1 + at.fall) ** 2) / (initial.plus + initial.minus)


def _aligned_slope(_: Any, at: Aligned, initial: Amplitudes, v0: Array) -> Array:
    cross = 2 * v0**2 - (initial.plus + initial.minus) / 2  # mean(v^2 - alpha^2)
    p, n = 1 + at.rise, 1 + at.fall
    up, down = initial.plus * p, initial.minus * n
    product = up * at.rise - down * at.fall + cross * (at.rise - at.fall)
    return product / (up * p + down * n + 2 * cross * p * n)


def _amplitudes(name: str, initial: Any, *, growing: bool = False) -> Amplitudes:
    """The amplitudes of a start, whose sum is above 0; `growing` asks it of those that grow."""
    if not isinstance(initial, tuple) or len(initial) != 2:
        raise InputError(f"{name} = {_check.show(initial)} is not allowed: {name} must be Amplitudes(plus, minus).")
    plus, minus = (
        _check.numbers(f"{name}.{part}", x, least=0) for part, x in zip(("plus", "minus"), initial, strict=True)
    )
    _check.matching(plus=plus, minus=minus)
    if growing and not _check.traced(plus) and not np.all(np.asarray(plus) > 0):
        raise InputError(
            f"{name}.plus = {_check.show(plus)} is not allowed: {name}.plus must be above 0, since neurons with "
            "v(0) = -alpha only shrink and learn nothing."
        )
    if not _check.traced((plus, minus)) and not np.all(np.asarray(plus) + np.asarray(minus) > 0):
        raise InputError(f"{name} = 0 is not allowed: {name}.plus and {name}.minus must not both be 0.")
    return Amplitudes(plus, minus)


def _axes(initial: Amplitudes) -> np.ndarray:
    return np.empty(np.broadcast_shapes(np.shape(initial.plus), np.shape(initial.minus)))


_AMPLITUDES = Domain(_amplitudes, axes=_axes)
_GROWING = Domain(partial(_amplitudes, growing=True), axes=_axes)


def _moderate(*, initial: Amplitudes, vstar2: Array, **_: Any) -> None:
    if _check.traced((initial, vstar2)):
        return
    with np.errstate(all="ignore"):
        if np.any(
            np.maximum(np.asarray(initial.plus), np.asarray(initial.minus)) / np.asarray(vstar2) > _LARGE_INITIAL
        ):
            raise InputError(
                f"vstar2 = {_check.show(vstar2)} is not allowed: it must be at least {1 / _LARGE_INITIAL:g} of initial."
            )


@formula(_moderate, initial=_AMPLITUDES, x=above(0), vstar2=above(0), steps=integer(0, loops=True))
def aligned_descent(initial: Amplitudes, x: Number, vstar2: Number, steps: int) -> Aligned:
    """The aligned model of gradient descent at steps 0..k: two scalars for the whole training (`feature/C21`).

    a = (Ap P^2 - Am N^2) / (4 vstar2), h = x (1-a), P *= 1+h, N *= 1-h. Exact where K = kappa I and every w_r(0) is
    parallel to g up to the null space of X.

    `initial` is the result of `amplitudes`, `x` the dimensionless step.
    """
    xp = namespace(x)
    b, c, x = xp.broadcast_arrays(*_shares(initial, vstar2), x)
    root_b, root_c = xp.sqrt(b), xp.sqrt(c)  # P^2 may be no number where b P^2 is one

    def step(now: _Three, _: None) -> tuple[_Three, _Three]:
        rise, fall, left = now
        h = x * left
        # 1 - a by its own recursion: as a difference of b P^2 and b' N^2 it would drown in a large start
        slower = (root_b * (1 + rise)) ** 2 * (2 + h) + (root_c * (1 + fall)) ** 2 * (2 - h)
        new = rise + h * (1 + rise), fall - h * (1 + fall), left * (1 - x * slower)
        return new, new

    before: _Three = xp.zeros_like(b), xp.zeros_like(b), 1 - (b - c)
    _, later = scan(xp, step, before, None, length=steps)
    rise, fall, left = (xp.concatenate([first[None], rest]) for first, rest in zip(before, later, strict=True))
    gained, lost = (root_b * (1 + rise)) ** 2, (root_c * (1 + fall)) ** 2
    return Aligned(rise, fall, _learned(xp, b, c, gained, lost, left), left)


def _shares(initial: Amplitudes, vstar2: Any) -> tuple[Array, Array]:
    """b = Ap / (4 vstar2) and b' = Am / (4 vstar2), with a = b P^2 - b' N^2."""
    return initial.plus / (4 * vstar2), initial.minus / (4 * vstar2)


def _learned(xp: Any, b: Array, c: Array, gained: Array, lost: Array, left: Array) -> Array:
    """a = b P^2 - b' N^2 from its terms, or from 1 - a where they are larger than 1."""
    return xp.where(xp.maximum(b, c) > 1, 1 - left, xp.where(b > 0, gained, 0.0) - lost)


class _Riccati(NamedTuple):
    """Of z' = 2 (z - b z^2 + b') with roots zm < 0 < zp, z = P/N: b, b', D, 1 + D - 2b = 2b (zp - 1) and zm."""

    plus: Array
    minus: Array
    root: Array
    ahead: Array
    low: Array


def _riccati(xp: Any, initial: Amplitudes, vstar2: Any) -> _Riccati:
    b, c = _shares(initial, vstar2)
    root = xp.hypot(1.0, 2 * xp.sqrt(b) * xp.sqrt(c))
    # D - 2b by its product with D + 2b
    ahead = 1 + (1 + 4 * b * (c - b)) / (root + 2 * b)
    return _Riccati(b, c, root, ahead, -2 * c / (1 + root))


@formula(_moderate, theta=within(pairs=False), initial=_AMPLITUDES, vstar2=above(0))
def aligned_flow(theta: Number, initial: Amplitudes, vstar2: Number) -> Aligned:
    """The aligned model of gradient flow at the rapidity theta (negative: before the start), z = P/N and N = 1/P.

    A Riccati equation, z' = 2 z (1 - b z + b'/z) with b = Ap / (4 vstar2), b' = Am / (4 vstar2); b = 0 included. z - 1
    and 1 - a come as products, and no sum has terms of both signs.
    """
    xp = namespace(theta)
    b, c, root, ahead, low = _riccati(xp, initial, vstar2)
    turn = 2 * root * leading(theta, root)
    rest, gone = xp.exp(-turn), -xp.expm1(-turn)
    grows = ahead > 0
    above = xp.where(grows, 2 * root - low * ahead * gone, (1 + root) * (1 - low) + low * ahead * rest)
    below = xp.where(grows, 2 * b * (1 - low) + ahead * rest, 2 * root - ahead * gone)
    z, more = above / below, ahead * (1 - low) * gone / below
    rise = more / (1 + xp.sqrt(z))
    left = 2 * (root / above) * (root / below) * ahead * (1 - low) * rest
    return Aligned(rise, -rise / xp.sqrt(z), _learned(xp, b, c, b * z, c / z, left), left)


@formula(_moderate, share=NUMBERS, initial=_GROWING, vstar2=above(0))
def aligned_time(share: Number, initial: Amplitudes, vstar2: Number) -> Float[Array, "..."]:
    """The rapidity at which the flow has learned a = `share` of the output.

    NaN where it never does, infinite at 1, negative where the initialization has learned more.
    """
    xp, q = namespace(share), share
    b, c, root, ahead, low = _riccati(xp, initial, vstar2)
    behind = (1 - q) * (1 + (1 + q) / (root + xp.hypot(q, 2 * xp.sqrt(b) * xp.sqrt(c))))  # 2b (zp - z)
    ratio = (_level_of(xp, q, b, c) - low) * ahead / (behind * (1 - low))
    return xp.where(ratio > 0, xp.log(xp.where(ratio > 0, ratio, 1.0)), np.nan) / (2 * root)


def _level_of(xp: Any, q: Any, b: Array, c: Array) -> Array:
    """The z > 0 with b z - b'/z = q, by the root that does not cancel."""
    width = xp.hypot(q, 2 * xp.sqrt(b) * xp.sqrt(c))
    return xp.where(q >= 0, (q + width) / (2 * b), 2 * c / (width - q))


def loss_steps(share: float, x: Number, task: FeatureTask, v0: Any, sigma0: Any) -> Float[Array, ""]:
    """Descent steps (not rounded) until the loss is `share` of its start, K near kappa I and a small start.

    a = 1 - sqrt(share) is learned after log(4 a vstar2 / ((1-a) (v0^2 + sigma0^2))) / (2 log(1+x)).
    """
    rest, step = math.sqrt(_inside("share", share)), _check.numbers("x", x, above=0)
    vstar2 = _TASK.check("task", task).vstar2
    grown = evaluate(_grown_until, rest, vstar2, _V0.check("v0", v0), _SIGMA0.check("sigma0", sigma0))
    if not _check.traced(grown) and float(grown) < 0:
        raise InputError(f"v0 = {_check.show(v0)} is not allowed: v0^2 + sigma0^2 must be small beside vstar2.")
    return evaluate(_loss_steps, grown, step)


def _grown_until(xp: Any, rest: Array, vstar2: Array, v0: Array, sigma0: Array) -> Array:
    # the square of a tiny start would underflow, and 1 - a lose a small share
    return 0.5 * xp.log(4 * (1 - rest) / rest * vstar2) - xp.log(xp.hypot(v0, sigma0))


def _loss_steps(xp: Any, grown: Array, x: Array) -> Array:
    return grown / xp.log1p(x)


# Lazy or rich --------------------------------------------------------------------------------------------------------


@formula(vstar2=above(0), v0=_V0, sigma0=_SIGMA0)
def richness(vstar2: Number, v0: Any, sigma0: Any) -> Float[Array, "..."]:
    """R = 2 vstar2 / (v0^2 + sigma0^2): lazy for R << 1, rich for R >> 1 (`feature/C22`)."""
    size = namespace(v0).hypot(v0, sigma0)
    return 2 * vstar2 / size / size


@formula(richness=at_least(0))
def kernel_growth(richness: Number) -> Float[Array, "..."]:
    """G = sqrt(1 + R^2), by which y^T Theta y grows over the whole training (flow, K near kappa I).

    >>> from linnet.theory import feature
    >>> print(f"{feature.kernel_growth(3.0):.3f}")
    3.162
    """
    return namespace(richness).hypot(1.0, richness)


@formula(richness=at_least(0))
def total_rapidity(richness: Number) -> Float[Array, "..."]:
    """asinh(R) / 2, the rapidity of the whole training."""
    return namespace(richness).arcsinh(richness) / 2


@formula(initial=_GROWING, vstar2=above(0))
def end_growth(initial: Amplitudes, vstar2: Number) -> Float[Array, "..."]:
    """G from the amplitudes of one start, (Ap z + Am / z) / (Ap + Am) at the z where a = 1."""
    xp = namespace(vstar2)
    b, c, *_ = _riccati(xp, initial, vstar2)
    z = _level_of(xp, xp.ones(()), b, c)
    return (initial.plus * z + initial.minus / z) / (initial.plus + initial.minus)


@in_doubles
@formula(task=_TASK, v0=_V0, sigma0=_SIGMA0)
def total_growth(task: FeatureTask, v0: Any, sigma0: Any) -> Float[Array, ""]:
    """G of any K and any start in a wide network, from its end state: sqrt(1 + R^2) for isotropic data.

    (c + 1)/2 + (c - 1)/2 |f|^4 / (V^2 gamma) with c = sqrt(1 + (2V / (v0^2 + sigma0^2))^2), V and f of `end_state`.
    """
    xp, end = namespace(v0), end_state.raw(task, v0, sigma0)
    size = xp.hypot(v0, sigma0)
    unit = end.norm / size / size  # R/2, with V in place of vstar2
    overlap = end.explained**2 / (end.norm**2 * task.gamma)
    # (c - 1)/2 without the difference
    return 1 + 2 * unit * (unit / (1 + xp.hypot(1.0, 2 * unit))) * (1 + overlap)


def loss_left(
    level: float, richness: Number, v0: float, sigma0: float, task: FeatureTask | None = None
) -> Float[Array, ""]:
    """L / L(0) when the slope reaches `level`, small steps: (1 - a)^2 with a = sinh(2 theta) / R.

    With a task, 1 - (gamma^2 / (phi |y|^2)) (2a - a^2): any K. NaN where the training ends before (a > 1).
    """
    size = _check.numbers("richness", richness, above=0)
    sinh = math.sinh(2 * alignment_rapidity(level, v0, sigma0))
    return evaluate(_loss_left, size, sinh, None if task is None else _TASK.check("task", task))


def _loss_left(xp: Any, richness: Array, sinh: Array, task: FeatureTask | None) -> Array:
    part = 1.0 if task is None else task.gamma / (task.kbar * task.square)
    a = sinh / richness
    return xp.where(a <= 1, 1 - part * a * (2 - a), np.nan)


def growth_at_alignment(level: float, v0: float, sigma0: float) -> float:
    """Growth of y^T Theta y until the slope reaches `level`: cosh(2 theta), 19.5 to 760 at 0.95 (flow)."""
    return math.cosh(2 * alignment_rapidity(level, v0, sigma0))


# Learning rate, end state, late rate ----------------------------------------------------------------------------------


class EndState(NamedTuple):
    """Where gradient flow ends, any K: mean(v^2), X^+ y / V with V = |X^+ y|, and |f|^2 of the output f = K K^+ y.

    `values` are the eigenvalues of the kernel, descending and 0 outside the range of K. Output and kernel are functions
    of inputs: of X for the samples in their order, of `task.root` in the coordinates of the problem, of any others.
    """

    mean_square: Float[Array, ""]
    norm: Float[Array, ""]
    direction: Float[Array, " d_in"]
    explained: Float[Array, ""]
    weight: Float[Array, ""]
    width: Float[Array, ""]
    values: Float[Array, " k"]

    def fitted(self, inputs: Any) -> Float[Array, " n"]:
        """The output V <x, u> of each row x, u the direction."""
        x = _check.array("inputs", inputs, ndim=2)
        return evaluate(_fitted, x, self.norm, self.direction)

    def kernel(self, inputs: Any) -> Float[Array, "n n"]:
        """The tangent kernel on rows x, (weight X X^T + f f^T / weight) / w, weight = (H + A)/2 of `end_state`."""
        return evaluate(_end_kernel, _check.array("inputs", inputs, ndim=2), self)


def _fitted(_: Any, inputs: Array, norm: Array, direction: Array) -> Array:
    return norm * (inputs @ direction)


def _end_kernel(xp: Any, x: Array, end: EndState) -> Array:
    f = _fitted(xp, x, end.norm, end.direction)
    return (end.weight * (x @ x.T) + xp.outer(f, f) / end.weight) / end.width


def _both_or_none(*, v0: Array, sigma0: Array, **_: Any) -> None:
    none = not _check.traced(v0) and float(v0) == 0
    if none and (_check.traced(sigma0) or float(sigma0) != 0):
        raise InputError(f"sigma0 = {_check.show(sigma0)} is not allowed without v0: a initial has both.")


_V0_OR_NONE = Domain(lambda name, value: _check.number(name, 0.0) if value is None else _V0.check(name, value))


@in_doubles
@formula(_both_or_none, task=_TASK, v0=_V0_OR_NONE, sigma0=_SIGMA0)
def end_state(task: FeatureTask, v0: Any = None, sigma0: Any = 0.0) -> EndState:
    """The end of gradient flow from a vanishing start (`feature/C24`), or from v0 and sigma0 in a wide network.

    Along the flow [W_1, v] is multiplied by a Lorentz matrix, a rotation of inputs times one boost (`feature/C25`). A
    wide initial has W_1^T W_1 / w = sigma0^2 I, which no rotation changes, so the fit fixes the end: with V = |X^+ y|,
    A = v0^2 + sigma0^2 and H = sqrt(A^2 + 4 V^2), mean(v^2) = (H + v0^2 - sigma0^2)/2, W_1^T W_1 / w = sigma0^2 I +
    2 V^2/(A + H) u u^T along u = X^+ y / V, and Theta = [(H + A)/2 K + 2/(A + H) f f^T] / w with f = K K^+ y.
    From a vanishing start mean(v^2) = V and w_r = v_r u.
    """
    xp = namespace(v0)
    left, values, right = xp.linalg.svd(task.root, full_matrices=False)
    inside = values > RANK_TOLERANCE * values[0]
    along = xp.where(inside, task.inside @ left, 0.0)
    least = xp.where(inside, along / xp.where(inside, values, 1.0), 0.0)
    norm = xp.linalg.norm(least)
    size = v0**2 + sigma0**2
    total = xp.hypot(size, 2 * norm)
    weight = (size + total) / 2
    # singular values of the factor sqrt(weight) [S, f / weight], whose small ones keep their digits
    factor = xp.concatenate([xp.diag(xp.where(inside, values, 0.0)), (along / weight)[:, None]], axis=1)
    spectrum = weight * xp.linalg.svd(factor, compute_uv=False) ** 2
    positive = xp.where(xp.arange(len(spectrum)) < xp.sum(inside), spectrum, 0.0) / task.width
    mean_square = (total + (v0 - sigma0) * (v0 + sigma0)) / 2
    return EndState(mean_square, norm, least / norm @ right, xp.sum(along**2), weight, task.width, positive)


class StepLimits(NamedTuple):
    """Learning rates: below `monotone` no overshoot, below `isotropic` convergence (both K near kappa I);
    `end`, `initial`.

    The last two are for any K: 2n / lambda_max(Theta) at the end and, where a start is given, at the start.
    """

    monotone: Float[Array, ""]
    isotropic: Float[Array, ""]
    end: Float[Array, ""]
    initial: Float[Array, ""]


@formula(_both_or_none, task=_TASK, v0=_V0_OR_NONE, sigma0=_SIGMA0)
def step_limits(task: FeatureTask, v0: Any = None, sigma0: Any = 0.0) -> StepLimits:
    """Largest learning rates (`feature/C23`).

    `monotone`: x = 1/2, small start. `isotropic`: x = R / sqrt(1 + R^2) of the start (v0, sigma0), 1
    without one. `end`: 2n / lambda_max(Theta) at the end state, necessary for any K and the one to use where K is
    spread; it may be far below x = 1. `initial`: the same at the start, infinite without one. In finite width the
    largest eigenvalue of X W_1^T W_1 X^T / w is not sigma0^2 |K| but sigma0^2 (sqrt(|K|) + sqrt(tr(K) / w))^2, the
    edge of its random spectrum (Chevet); for K = kappa I that is (1 + sqrt(n/w))^2. Both limits count it.
    """
    xp, root = namespace(v0), task.root
    size, whole = v0**2 + sigma0**2, 2 * task.vstar2
    top, wide = xp.linalg.norm(root, 2), xp.sqrt(xp.sum(root**2) / task.width)
    # what the edge adds to sigma0^2 |K| / w
    more = sigma0**2 * wide * (2 * top + wide) / task.width
    return StepLimits(
        0.5 / task.rate,
        whole / xp.hypot(whole, size) / task.rate,
        2 * task.samples / (end_state.raw(task, v0, sigma0).values[0] + more),
        2 * task.samples / (size * top**2 / task.width + more),
    )


def late_factor(task: FeatureTask, lr: Any, end: EndState | None = None) -> Float[Array, ""]:
    """By which the residual shrinks a step after stage two, the largest |1 - lr lambda / n| over the range of K.

    `end` is that of a vanishing start unless given. Small steps leave the smallest eigenvalue last, large ones the
    largest (for K = kappa I from x = 2/3 on).
    """
    if end is not None and not isinstance(end, EndState):
        raise InputError(f"end = {_check.show(end)} is not allowed: end must be what end_state returns.")
    values = (end_state(task) if end is None else end).values
    return evaluate(_late_factor, values, _LR.check("lr", lr), _TASK.check("task", task).samples)


def _late_factor(xp: Any, values: Array, lr: Array, samples: Array) -> Array:
    return xp.max(xp.where(values > 0, xp.abs(1 - lr * values / samples), 0.0))


@formula(task=_TASK, lr=_LR)
def isotropic_late_factor(task: FeatureTask, lr: Any) -> Float[Array, ""]:
    """The late factor for K near kappa I: 1 - x lambda_min(K) / kbar, or |1 - 2x| along the labels if larger."""
    xp, x = namespace(lr), lr * task.rate
    values = xp.linalg.svd(task.root, compute_uv=False) ** 2
    least = xp.min(xp.where(values > RANK_TOLERANCE**2 * values[0], values, np.inf))
    return xp.maximum(xp.abs(1 - x * least / task.kbar), xp.abs(1 - 2 * x))


# Lorentz structure ---------------------------------------------------------------------------------------------------


@in_doubles
def boost_spectrum(first: Any, second: Any) -> Float[np.ndarray, " d"]:
    """Eigenvalues of Q J, Q the Gram matrix of [W_1, W_2^T] and J = diag(1, -1): constants of gradient flow.

    Those of the imbalance W_1 W_1^T - W_2^T W_2 on the neurons, descending; in full or compressed width.
    """
    w1, w2 = (np.asarray(_check.array(name, w, ndim=2)) for name, w in (("first", first), ("second", second)))
    if w2.shape[1] != w1.shape[0]:
        raise InputError(f"second has shape {w2.shape}: second must have a column for each of {w1.shape[0]} neurons.")
    p = np.concatenate([w1, w2.T], axis=1)
    signs = np.concatenate([np.ones(w1.shape[1]), -np.ones(w2.shape[0])])
    # the nonzero spectrum of P^T P J is that of the symmetric P J P^T
    values = np.linalg.eigvalsh((p * signs) @ p.T)
    largest = np.argsort(-np.abs(values))[: p.shape[1]]
    return np.sort(np.pad(values[largest], (0, max(0, p.shape[1] - len(largest)))))[::-1]


def _one_output(*, first: Array, second: Array, force: Array, **_: Any) -> None:
    w, d_in = first.shape
    if second.shape != (1, w) or force.shape != (1, d_in):
        raise InputError(
            f"second has shape {second.shape} and force {force.shape}: they must be 1 x {w} and 1 x {d_in}."
        )


@in_doubles
@formula(_one_output, first=_LAYER, second=_LAYER, force=_LAYER, lr=_LR)
def imbalance_step(first: Any, second: Any, force: Any, lr: Any) -> Float[Array, "w w"]:
    """What a descent step adds to W_1 W_1^T - v v^T: lr^2 (|F|^2 v v^T - (W_1 F^T)(W_1 F^T)^T), F = -dC/dA.

    `force` is F (1 x d_in).
    """
    xp, v, forced = namespace(first), second[0], first @ force[0]
    return lr**2 * (xp.sum(force**2) * xp.outer(v, v) - xp.outer(forced, forced))


# What the paper assumes and estimates --------------------------------------------------------------------------------


class Covariance(NamedTuple):
    """Trace, spectral and Frobenius norm of Sigma, and its dimension."""

    trace: float
    top: float
    frobenius: float
    dimension: int


def covariance(groups: Any) -> Covariance:
    """Of Sigma given as in `gaussian_samples`: a dimension, or (eigenvalue, multiplicity) pairs.

    `groups` is that description.
    """
    pairs = [(1.0, groups)] if not isinstance(groups, list | tuple) else list(groups)
    if not pairs or not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs):
        raise InputError(
            f"groups = {_check.show(groups)} is not allowed: groups must be a dimension or pairs (eigenvalue, "
            "multiplicity)."
        )
    values = np.array([_check.real("an eigenvalue in groups", v, above=0) for v, _ in pairs])
    counts = np.array([_check.integer("a multiplicity in groups", d, least=1) for _, d in pairs])
    return Covariance(
        float(counts @ values), float(values.max()), float(np.sqrt(counts @ values**2)), int(counts.sum())
    )


class Times(NamedTuple):
    """The paper's times in steps, with its constants (Theorem 4.1): end of stage one, end of training."""

    first: float
    total: float


@in_doubles
def source_times(
    samples: int,
    width: float,
    sigma: Covariance,
    beta_bar: float,
    *,
    v0: float,
    lr: float,
    eps: float,
    constants: tuple[float, float] = (1.0, 1.0),
) -> Times:
    """C1 (w sqrt(n) / (lr sqrt(tr) beta)) log(1/v0), and the same with C and log(1/v0) + log(n beta tr / eps).

    For v0 < 1 and eps < n beta tr.

    `constants` are C1 and C.
    """
    n, w = _check.integer("samples", samples, least=1), _check.real("width", width, above=0)
    beta, v = _check.real("beta_bar", beta_bar, above=0), _inside("v0", v0)
    trace = _covariance(sigma).trace
    unit = w * math.sqrt(n) / (_check.real("lr", lr, above=0) * math.sqrt(trace) * beta)
    initial = math.log(1 / v)
    late = math.log(n * beta * trace / _check.real("eps", eps, above=0, most=n * beta * trace))
    one, two = np.asarray(_check.double("constants", constants, ndim=1, shape=(2,)))
    return Times(float(one) * unit * initial, float(two) * unit * (initial + late))


class Failures(NamedTuple):
    """Probabilities that the paper's concentration bounds fail for Gaussian isotropic data (Lemmas A.1 to
    A.4).
    """

    gamma: float  # gamma / (n tr beta^2) outside [1/2, 3/2]
    quadratic: float  # |X alpha|^2 / (n |alpha|_Sigma^2) outside [1/2, 2]
    largest: float  # max_r a_r below sigma0 sqrt(gamma) / 2


def failures(samples: int, width: float) -> Failures:
    """chi2_n / n outside its intervals (d -> infinity, no noise), and Phi(1/2)^w."""
    n, w = _check.integer("samples", samples, least=1), _check.real("width", width, least=1)
    chi2 = scipy.stats.chi2(n)
    return Failures(
        float(chi2.cdf(n / 2) + chi2.sf(1.5 * n)),
        float(chi2.cdf(n / 2) + chi2.sf(2 * n)),
        float(scipy.stats.norm.cdf(0.5) ** w),
    )


def initialization_bound(gamma: float, sigma0: float, width: float, delta: float) -> float:
    """sigma0 sqrt(2 gamma log(8 w / delta)), above all |<w_r(0), g>| with probability 1 - delta (Lemma A.1)."""
    size = _check.real("sigma0", sigma0, least=0) * math.sqrt(_check.real("gamma", gamma, above=0))
    share = _inside("delta", delta)
    return size * math.sqrt(2 * math.log(8 * _check.real("width", width, least=1) / share))


@in_doubles
def spread_unit(samples: int, sigma: Covariance, sigma_x: float = 1.0) -> float:
    """sigma_x^2 (n |Sigma| + sqrt(n) |Sigma|_F): |K - tr(Sigma) I| is at most a constant times it (Lemma 5.1)."""
    n = _check.integer("samples", samples, least=1)
    return _check.real("sigma_x", sigma_x, above=0) ** 2 * (n * _covariance(sigma).top + math.sqrt(n) * sigma.frobenius)


class Condition(NamedTuple):
    """A hypothesis of the paper, value <= constant or value >= constant: the value is the constant that it needs."""

    id: str
    text: str
    value: float
    sense: str
    limit: float | None  # the constant, where one is known or was given
    holds: bool | None  # None where the paper leaves the constant open


@in_doubles
def assumptions(
    samples: int,
    dimension: int,
    width: float,
    sigma: Covariance,
    *,
    beta_bar: float,
    sigma0: float,
    v0: float,
    lr: float,
    eps: float,
    noise2: float = 0.0,
    sigma_x: float = 1.0,
    constants: dict[str, float] | None = None,
    variant: str = "corrected",
) -> list[Condition]:
    """The paper's assumption, condition by condition, with the constant that each would need.

    The paper leaves its constants open, so a condition is judged only where the constant is known (c2b, `extra`) or
    `constants` gives it by id. "corrected" where the print is wrong: c4 has the width outside the root (`feature/E7`),
    c5 has no n (`feature/E8`), c6 needs the larger of its constant and beta_bar / sqrt(eps) (`feature/E10`; so that
    without the constant it can fail but not be known to hold), and `extra`, missing in print, is what every statement
    about single neurons needs (`feature/E3`). "printed" is the letter: sqrt(n w) in c4, noise2 <= 8 n beta_bar^2 in c5,
    sqrt(eps) beta_bar in c6, and no `extra`.

    `sigma_x` is that of Lemma 5.1 (`spread_unit`). `variant` is "corrected" or "printed".
    """
    printed = _check.choice("variant", variant, ("printed", "corrected")) == "printed"
    n, d = _check.integer("samples", samples, least=1), _check.integer("dimension", dimension, least=1)
    w, beta = _check.real("width", width, above=0), _check.real("beta_bar", beta_bar, above=0)
    s0, v = _check.real("sigma0", sigma0, least=0), _check.real("v0", v0, above=0)
    eta, target = _check.real("lr", lr, above=0), _check.real("eps", eps, above=0)
    noise = _check.real("noise2", noise2, least=0)
    trace = _covariance(sigma).trace
    if sigma.dimension != d:
        raise InputError(f"dimension = {d} is not allowed: sigma has dimension {sigma.dimension}.")
    if not isinstance(constants, dict | None):
        raise InputError(f"constants = {_check.show(constants)} is not allowed: constants must be a dict by condition.")
    given = {name: _check.real(f"constants[{name!r}]", x, above=0) for name, x in (constants or {}).items()}
    spread = trace / spread_unit(n, sigma, sigma_x)
    step = (
        ("lr sqrt(tr) beta / sqrt(n w)", math.sqrt(n * w))
        if printed
        else ("lr sqrt(tr) beta / (w sqrt(n))", w * n**0.5)
    )
    dirt = ("noise2 / (n beta^2)", n, 8.0) if printed else ("noise2 / beta^2 (n removed)", 1, None)
    even = beta * math.sqrt(target) if printed else beta / math.sqrt(target)
    # (id, what, value, sense, constant that is known)
    rows: list[tuple[str, str, float, str, float | None]] = [
        ("c1", "w / log(2n)", w / math.log(2 * n), ">=", None),
        ("c2a", "sigma0 sqrt(n d tr) beta", s0 * math.sqrt(n * d * trace) * beta, "<=", None),
        ("c2b", "sigma0 (n tr)^(1/4) sqrt(beta / eps)", s0 * (n * trace) ** 0.25 * math.sqrt(beta / target), "<=", 1.0),
        ("c3", "v0 sqrt(n tr) beta", v * math.sqrt(n * trace) * beta, "<=", None),
        ("c4", step[0], eta * math.sqrt(trace) * beta / step[1], "<=", None),
        ("c5", dirt[0], noise / (dirt[1] * beta**2), "<=", dirt[2]),
        ("c6", "tr / (sigma_x^2 (n |Sigma| + sqrt(n) |Sigma|_F))", spread, ">=", even),
        ("c6b", "tr beta^2", trace * beta**2, ">=", None),
    ]
    if not printed:
        neurons = s0 * math.sqrt(2 * math.log(8 * w * n**2)) / v
        rows.append(("extra", "sigma0 sqrt(2 log(8 w n^2)) / v0", neurons, "<=", 1.0))
    unknown = sorted(set(given) - {row[0] for row in rows})
    if unknown:
        raise InputError(f"constants has {unknown[0]!r}: it must name conditions, {', '.join(row[0] for row in rows)}.")
    out = []
    for name, text, value, sense, known in rows:
        limit = given.get(name, known)
        if name == "c6" and name in given:
            limit = max(given[name], even)
        holds = None if limit is None else bool(value >= limit if sense == ">=" else value <= limit)
        if name == "c6" and name not in given and holds:
            holds = None
        out.append(Condition(name, text, value, sense, limit, holds))
    return out


# Checks --------------------------------------------------------------------------------------------------------------


def _inside(name: str, value: Any) -> float:
    return _check.real(name, value, above=0, below=1)


def _covariance(given: Any) -> Covariance:
    if not isinstance(given, Covariance):
        raise InputError(f"sigma = {_check.show(given)} is not allowed: sigma must be what covariance returns.")
    return given


def _initial(v0: Any, sigma0: Any) -> tuple[float, float]:
    return _check.real("v0", v0, above=0), _check.real("sigma0", sigma0, least=0)
