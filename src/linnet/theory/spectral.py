"""Spectral bias of two-layer linear networks (Varre, Vladarean, Pillaud-Vivien, Flammarion).

Letters as in the paper, matrices as everywhere here: the start I_gamma has W_1 = sqrt(2 gamma) Q and W_2 = 0, s_i are
the singular values of A = W_2 W_1, the loss is 1/2 |X A^T - Y|^2. The end-to-end matrix then follows the mixed flow
with c = gamma from A = 0 (`linnet.theory.mixed`), for I_gamma has w >= d_in. Times of any shape come first in what is
returned.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy  # its parts load when they are first used
from jaxtyping import Array, Bool, Float

from linnet import _check
from linnet._check import InputError, namespace
from linnet.linalg import asinh, norm, top_of_products, triplets
from linnet.maps import crossing
from linnet.theory._formula import (
    MATRIX,
    NUMBERS,
    TIMES,
    Number,
    above,
    at_least,
    evaluate,
    formula,
    in_doubles,
    integer,
    scalar,
    vector,
)
from linnet.theory._mode import mode_at
from linnet.theory._times import leading

Values = Array | np.ndarray
_GAMMA = scalar(above=0)


# Layers --------------------------------------------------------------------------------------------------------------


class Layers(NamedTuple):
    """Singular values of the two layers, descending."""

    first: Float[Values, " d_in"]
    second: Float[Values, " k"]


def _enough_inputs(*, values: Array, d_in: int, **_: Any) -> None:
    _check.integer("d_in", d_in, least=values.shape[0], reason="the number of values")


@formula(_enough_inputs, values=vector(least=0), gamma=scalar(least=0), d_in=integer(1))
def layer_values(values: Float[Values, " k"], gamma: Number, d_in: int) -> Layers:
    """The layers' singular values from those of A, at all times of the flow from I_gamma (`spectral/C8`).

    sigma_i(W_1) = sqrt(hypot(s_i, gamma) + gamma), sigma_i(W_2) = s_i / sigma_i(W_1); the d_in - k others of W_1 stay
    at sqrt(2 gamma). gamma = 0 is the balanced network, sqrt(s_i) in both layers.
    """
    xp = namespace(values)
    first = xp.sqrt(_m(xp, values, gamma))
    rest = xp.full(d_in - values.shape[0], xp.sqrt(2 * gamma))
    second = xp.where(first > 0, values / xp.where(first > 0, first, 1.0), 0.0)
    return Layers(xp.concatenate([first, rest]), second)


@formula(time=TIMES, excess=at_least(0), gamma=at_least(0), curvature=at_least(0))
def loss_bound(time: Number, excess: Number, gamma: Number, curvature: Number) -> Float[Array, "..."]:
    """L(t) - L_inf <= (L(0) - L_inf) exp(-4 gamma lambda t), lambda the least nonzero eigenvalue of X^T X.

    `spectral/C6`.

    `excess` is L(0) - L_inf, `curvature` is lambda.
    """
    return excess * namespace(time).exp(-4 * gamma * curvature * leading(time, excess, gamma, curvature))


# Whitened data -------------------------------------------------------------------------------------------------------


@formula(time=TIMES, target=NUMBERS, gamma=at_least(0), scale=above(0))
def whitened(time: Number, target: Number, gamma: Number, scale: Number = 1.0) -> Float[Array, "..."]:
    """s(t) from zero where all nonzero singular values of X are `scale`: the mixed mode, c = gamma (`spectral/C14`)."""
    xp = namespace(target)
    scaled = scale * leading(time, target, gamma, scale)  # scale^2 may be no number
    return mode_at(xp, scaled, xp.zeros_like(target), target, gamma, scale)


@formula(share=at_least(0, most=1), target=NUMBERS, gamma=above(0), scale=above(0))
def hitting_time(share: Number, target: Number, gamma: Number, scale: Number = 1.0) -> Float[Array, "..."]:
    """The time at which s reaches the share f of its target, 0 <= f <= 1: infinite at 1 (`spectral/C16`).

    It falls with target and gamma > 0.

    With h = hypot(f s_star, gamma), q = hypot(s_star, gamma): log1p{2 q f / (gamma (1-f) [1 + gamma (1+f)/(h + f q)])}
    / (2 q scale^2). In f itself: the difference of s_star and f s_star would lose digits near 1.

    >>> from linnet.theory import spectral
    >>> print([f"{time:.2f}" for time in spectral.hitting_time(0.5, [2.0, 1.0], gamma=1e-3)])  # larger targets first
    ['2.07', '3.80']
    """
    xp, f = namespace(share), share
    h, q = xp.hypot(f * target, gamma), xp.hypot(target, gamma)
    factor = 2 * (f / (1 - f)) / (1 + gamma * ((1 + f) / (h + f * q)))
    far = (q / 1e100 > gamma) & (f > 1e-50)  # the quotient may be no number
    logarithm = xp.log(q) - xp.log(gamma) + xp.log(xp.where(far, factor, 1.0))
    return xp.where(far, logarithm, xp.log1p(factor * xp.where(far, 1.0, q / gamma))) / (2 * q) / scale / scale


@formula(time=TIMES, target=above(0))
def jump(time: Number, target: Number) -> Float[Array, "..."]:
    """The limit gamma -> 0 of s(ln(1/gamma) t): 0 before 1/(2 s_star), s_star/(1 + 2 s_star) at it, s_star after."""
    xp = namespace(time)
    t, at = leading(time, target), 1 / (2 * target)
    return xp.where(t < at, 0.0, xp.where(t > at, target, target / (1 + 2 * target)))


# Any data ------------------------------------------------------------------------------------------------------------


class Activation(NamedTuple):
    """When each mode u_i^T A v_i of the limit first reaches a share of its value s_i, and what is certain about it.

    `time` is exact for the modes marked `exact` and an estimate for the others; `least` <= true time <= `most` always.
    `curvature` is v_i^T X^T X v_i.
    """

    time: Float[np.ndarray, " k"]
    exact: Bool[np.ndarray, " k"]
    least: Float[np.ndarray, " k"]
    most: Float[np.ndarray, " k"]
    curvature: Float[np.ndarray, " k"]


_SOON = 1e-6


@in_doubles
def activation(share: float, inputs: Any, limit: Any, gamma: float) -> Activation:
    """Activation times on any data, from the inputs X and the limit A_inf = sum s_i u_i v_i^T.

    On the vectors of the limit the flow is u_i^T G v_i = k_i (s_i - u_i^T A v_i), k_i = v_i^T X^T X v_i, while A keeps
    them: the whitened hitting time with scale^2 = k_i. Where X^T X v_i = k_i v_i it does keep u_i, v_i and that time is
    exact: on whitened data for all modes.

    The bounds are certain. With s = gamma sinh(2 theta) the largest theta' <= |G|, and |G| <= |X| |Y| since the loss
    decreases, and |G| <= |G(0)| + |X|^2 s. The other one comes from the loss (`loss_bound`; one output: `rate`).
    The estimates are good where the condition number of X is near 1, and a guide only, often too early, beyond 5.

    `share` is the share of s_i that a mode has reached.
    """
    return Limit(inputs, limit).activation(share, gamma)


class FitTime(NamedTuple):
    """When L - L_inf has fallen to a share of its start: exact or an estimate as in `Activation`, and a bound."""

    time: float
    exact: bool
    most: float


@in_doubles
def fit_time(share: float, inputs: Any, limit: Any, gamma: float) -> FitTime:
    """From L - L_inf = 1/2 sum k_i (s_i - u_i^T A v_i)^2 over the modes, each as in `activation`, bounds included.

    The time at which L - L_inf is down to `share` of its initial value; `limit` is A_inf, `inputs` X.
    """
    return Limit(inputs, limit).fit_time(share, gamma)


class Limit:
    """The limit of the flow in the frame of the inputs' right singular vectors, with its singular triplets.

    `activation`, `fit_time`, and `largest_lr` are the functions of these names, from one decomposition.
    """

    def __init__(self, inputs: Any, limit: Any):
        x, a = _data(inputs, limit)
        _, self.scales, frame = triplets(x)
        self.limit = a @ frame.T
        self.left, self.values, self.right = triplets(self.limit)
        self.curvature = np.sum((self.right * self.scales) ** 2, axis=1)
        self.excess = float(np.sum((self.limit * self.scales) ** 2) / 2)
        if not self.excess > 0:
            raise InputError("X A_inf^T is zero: inputs and limit must leave something to learn.")

    def activation(self, share: float, gamma: float) -> Activation:
        """When each mode first reaches a share of its value."""
        f, g = _check.real("share", share, above=0, below=1), _check.real("gamma", gamma, above=0)
        s, exact = self.values, self.exact
        least = np.array([_earliest(f * x, g, self) for x in s])
        # |s_i - u_i^T A v_i|^2 <= 2 (L - L_inf) v_i^T (X^T X)^+ v_i
        spread = np.sum((self.right / self.scales) ** 2, axis=1)
        most = np.array([self._latest(level, g) for level in ((1 - f) * s) ** 2 / (2 * spread)])
        time = np.asarray(hitting_time(f, s, g, np.sqrt(self.curvature)))
        return Activation(np.where(exact, time, np.clip(time, least, most)), exact, least, most, self.curvature)

    @in_doubles
    def fit_time(self, share: float, gamma: float) -> FitTime:
        """When the excess loss has fallen to a share."""
        f, g = _check.real("share", share, above=0, below=1), _check.real("gamma", gamma, above=0)
        scale = np.sqrt(self.curvature)

        def left(logarithm: float) -> float:
            now = np.asarray(whitened(np.exp(logarithm), self.values, g, scale))
            return float(np.sum((scale * (self.values - now)) ** 2) / 2 / (f * self.excess) - 1)

        # in units of the fastest and of the slowest mode: before and after
        fast = np.log(_SOON / (np.hypot(self.values, g) * self.curvature).max())
        slow = np.log(-np.log(f) / (2 * g * self.curvature.min()))
        time, most = float(np.exp(crossing(left, fast, slow, tolerance=1e-13))), self._latest(f * self.excess, g)
        exact = bool(self.exact.all())
        return FitTime(time if exact else min(time, most), exact, most)

    @in_doubles
    def largest_lr(self, gamma: float) -> float:
        """2 over the sharpness at the limit."""
        x, gamma = np.diag(self.scales), _check.real("gamma", gamma, above=0)
        return _largest_lr(x, self.left, self.values, self.right, gamma)

    @property
    def exact(self) -> np.ndarray:
        """Which v_i are eigenvectors of X^T X, so that their modes move on their own."""
        moved = self.right * self.scales**2
        return np.linalg.norm(moved - self.curvature[:, None] * self.right, axis=1) <= 1e-9 * self.curvature

    def _latest(self, level: float, gamma: float) -> float:
        """By when L - L_inf is certainly at most `level`."""
        by_curvature = max(np.log(self.excess / level), 0.0) / (4 * gamma * self.scales[-1] ** 2)
        if self.limit.shape[0] > 1:
            return float(by_curvature)
        return float(min(by_curvature, float(rate(1.0, self.limit[0], gamma).sharp) / level))


def _earliest(value: float, gamma: float, data: Limit) -> float:
    """Before this time no singular value of A reaches `value`: the integral of dtheta over the largest theta'.

    That of 1 / (a + b sinh(2 theta)) is artanh(w)/r, r = hypot(a, b), w = r tanh(theta) / (a + b tanh(theta)).
    """
    top, square = np.sqrt(2 * data.excess) * data.scales[0], data.scales[0] ** 2
    first = np.linalg.norm(data.limit * data.scales**2, 2)
    end = np.arcsinh(value / gamma) / 2
    bend = min(end, np.arcsinh(max(top - first, 0.0) / square / gamma) / 2)
    a, b, slope = first, square * gamma, np.tanh(bend)
    r, below = np.hypot(a, b), a + b * slope
    fall = np.exp(-2 * bend)
    # 1 - w without a difference: 1 - tanh(theta) = 2 fall / (1 + fall)
    rest = a / (r + b) * ((b + b * (b / (r + a)) + 2 * a * fall / (1 + fall)) / below)
    early = np.log1p(2 * r * slope / below / rest) / (2 * r)
    return float(early + (end - bend) / top) * (1 - 1e-9)


# Mirror potentials ---------------------------------------------------------------------------------------------------


@formula(values=vector(), gamma=_GAMMA)
def entropy(values: Float[Values, " k"], gamma: Number) -> Float[Array, ""]:
    """The hyperbolic entropy Psi(s) - Psi(0), Psi = 1/2 sum [s asinh(s/gamma) - hypot(s, gamma)] (`spectral/E1`).

    The singular values of A follow its mirror flow: d/dt [1/2 asinh(s_i/gamma)] = u_i^T G v_i with G = -dL/dA.
    """
    xp, s = namespace(values), values
    return xp.sum(s * asinh(xp, s, gamma) - s * (s / _m(xp, s, gamma))) / 2


@formula(values=vector(), gamma=_GAMMA)
def entropy_gradient(values: Float[Values, " k"], gamma: Number) -> Float[Array, " k"]:
    """The gradient 1/2 asinh(s/gamma) of `entropy`, at the singular values s = `values`."""
    return asinh(namespace(values), values, gamma) / 2


def _m(xp: Any, norm: Any, gamma: Any) -> Any:
    return xp.hypot(norm, gamma) + gamma


@formula(matrix=vector(), gamma=_GAMMA)
def potential(matrix: Float[Values, " d"], gamma: Number) -> Float[Array, ""]:
    """psi(A) - psi(0) for one output: psi = (2/3) m^{3/2} - 2 gamma m^{1/2}, m = hypot(|A|, gamma) + gamma.

    With k = |A|^2 / m it is (2/3) k (m + sqrt(2 gamma m) - gamma) / (sqrt m + sqrt(2 gamma)), where nothing cancels.
    """
    xp = namespace(matrix)
    return _potential(xp, norm(xp, matrix), gamma)


@formula(matrix=vector(), gamma=_GAMMA)
def potential_gradient(matrix: Float[Values, " d"], gamma: Number) -> Float[Array, " d"]:
    """A / sqrt(m); along the flow its derivative is sqrt(m) G."""
    xp = namespace(matrix)
    return matrix / xp.sqrt(_m(xp, norm(xp, matrix), gamma))


def _potential(xp: Any, b: Any, gamma: Any, over: Any = 1.0, root_over: Any = 1.0) -> Any:
    """The potential at |A| = b over both divisors, in an order in which no product leaves the range of numbers."""
    m = _m(xp, b, gamma)
    root, twice = xp.sqrt(m), xp.sqrt(2 * gamma)
    return 2 / 3 * (b / over / root_over) * (b / m) * ((m + twice * root - gamma) / (root + twice))


class Rate(NamedTuple):
    """Bounds of L(t): the paper's, and half of it or |A_inf|^2 / (8 gamma t), whichever is smaller."""

    printed: Float[Values, "..."]
    sharp: Float[Values, "..."]


@formula(time=above(0, pairs=False), limit=vector(), gamma=_GAMMA)
def rate(time: Number, limit: Float[Values, " d"], gamma: Number) -> Rate:
    """L(t) <= D(A_inf, 0) / (sqrt(2 gamma) t) for one output that can be fitted, t > 0 (`spectral/C12`).

    `limit` is A_inf (a vector for one output).
    """
    xp = namespace(time)
    b = norm(xp, limit)
    printed = _potential(xp, b, gamma, time, xp.sqrt(2 * gamma))
    return Rate(printed, xp.minimum(printed / 2, b / gamma * (b / time) / 8))


# Descent -------------------------------------------------------------------------------------------------------------


@in_doubles
def largest_lr(inputs: Any, limit: Any, gamma: float) -> float:
    """2 / lambda_max of E -> X (C1 X^T E + X^T E C2) at the limit of the flow.

    C1 = gamma + M_in and C2 = M_out - gamma, so on the singular vectors of X and A it is an eigenproblem of n x d_out.
    Exact for the linearization there; large steps select a flatter minimum, so descent may be stable a little above it.
    """
    x, a = _data(inputs, limit)
    return _largest_lr(x, *triplets(a), _check.real("gamma", gamma, above=0))


def _largest_lr(x: np.ndarray, u: np.ndarray, s: np.ndarray, vt: np.ndarray, gamma: float) -> float:
    total = np.hypot(s, gamma) + gamma
    k = s * (s / total)  # hypot - gamma
    first = 2 * gamma * np.eye(x.shape[1]) + (vt.T * k) @ vt
    second = (u * k) @ u.T
    return 2 / top_of_products([(x @ first @ x.T, np.eye(len(u))), (x @ x.T, second)])


# The variational problem ---------------------------------------------------------------------------------------------


@formula(limit=MATRIX, gamma=_GAMMA)
def gram_limit(limit: Float[Values, "d_out d_in"], gamma: Number) -> Float[Array, "d_in d_in"]:
    """C1 = gamma I + (gamma^2 I + A^T A)^{1/2}: what minimizes the log-det objective at a given A (`spectral/C7`).

    `limit` is A.
    """
    xp = namespace(limit)
    _, s, vt = xp.linalg.svd(limit, full_matrices=False)
    k = s * (s / _m(xp, s, gamma))
    return 2 * gamma * np.eye(limit.shape[1]) + (vt.T * k) @ vt


def _composable(*, first: Array, second: Array, **_: Any) -> None:
    if second.shape[1] != first.shape[0]:
        raise InputError(
            f"second has shape {second.shape}: second must have a column for each of {first.shape[0]} neurons."
        )


@formula(_composable, first=MATRIX, second=MATRIX, gamma=_GAMMA)
def log_det_objective(first: Float[Values, "w d_in"], second: Float[Values, "d_out w"], gamma: Number) -> Array:
    """F = 1/2 |W_1|^2 + 1/2 |W_2|^2 - gamma log det(W_1^T W_1); infinite where W_1 has not full rank.

    `first` is W_1, `second` W_2.
    """
    xp = namespace(first)
    sign, size = xp.linalg.slogdet(first.T @ first)
    size = xp.where(sign > 0, size, -np.inf)  # what rounding makes of a determinant of zero may be negative
    return (xp.sum(first**2) + xp.sum(second**2)) / 2 - gamma * size


def _definite(*, gram: Array, matrix: Array, **_: Any) -> None:
    _check.double("gram", gram, ndim=2, shape=(matrix.shape[1], matrix.shape[1]))
    if _check.traced(gram):
        return
    known = np.asarray(gram)
    if np.max(np.abs(known - known.T)) > 1e-9 * np.max(np.abs(known)) or np.linalg.eigvalsh(known)[0] <= 0:
        raise InputError("gram is not allowed: it must be symmetric and positive definite.")


@in_doubles
@formula(_definite, gram=MATRIX, matrix=MATRIX, gamma=_GAMMA)
def reduced_objective(gram: Float[Values, "d_in d_in"], matrix: Float[Values, "d_out d_in"], gamma: Number) -> Array:
    """The least F over W_2 at given C1 and A, jointly convex: 1/2 tr(A C1^{-1} A^T) + 1/2 tr C1 - gamma log det C1.

    C1 is symmetric and positive definite.

    `gram` is C1, `matrix` A.
    """
    xp = namespace(gram)
    inner = xp.sum(matrix * xp.linalg.solve(gram, matrix.T).T)
    return (inner + xp.trace(gram)) / 2 - gamma * xp.linalg.slogdet(gram)[1]


class Stationarity(NamedTuple):
    """Residuals of the conditions of min F subject to X A^T = Y, relative to the weights."""

    first: Float[Values, ""]
    second: Float[Values, ""]
    multiplier: Float[Values, ""]


def _full_rank(*, first: Array, second: Array, inputs: Array, **_: Any) -> None:
    _composable(first=first, second=second)
    if inputs.shape[1] != first.shape[1]:
        raise InputError(f"inputs has shape {inputs.shape}: inputs must have d_in = {first.shape[1]} columns.")
    if not _check.traced(first) and np.linalg.matrix_rank(np.asarray(first)) < first.shape[1]:
        raise InputError("first is not allowed: W_1 must have full rank, with d_in neurons or more.")


@in_doubles
@formula(_full_rank, first=MATRIX, second=MATRIX, inputs=MATRIX, gamma=_GAMMA)
def stationarity(
    first: Float[Values, "w d_in"], second: Float[Values, "d_out w"], inputs: Float[Values, "n d_in"], gamma: Number
) -> Stationarity:
    """W_2 = B W_1^T, W_1 - 2 gamma W_1 C1^{-1} = W_2^T B, and the rows of B in the row space of X.

    W_1 has full rank, w >= d_in.

    `first` is W_1, `second` W_2, `inputs` X; returned are the relative errors of the three.
    """
    xp = namespace(first)
    c1, size = first.T @ first, xp.linalg.norm
    b = xp.linalg.solve(c1, (second @ first).T).T
    outside = b - b @ xp.linalg.pinv(inputs) @ inputs
    return Stationarity(
        size(first - 2 * gamma * xp.linalg.solve(c1, first.T).T - second.T @ b) / size(first),
        size(second - b @ first.T) / size(first),
        size(outside) / xp.maximum(size(b), 1e-300),
    )


# Pure noise ----------------------------------------------------------------------------------------------------------


class Moments(NamedTuple):
    """Means of |W_1|^2 and |a|^2."""

    first: Float[Values, "..."]
    second: Float[Values, "..."]


def noise_moments(
    time: Number, columns: Float[Values, " d"], readout: Number, scales: Any = None, *, frozen: Number = 0.0
) -> Moments:
    """Exact second moments of dW_1 = a dB^T, da = W_1 dB for data with singular values D (`spectral/C18`).

    `columns` are |c_j|^2 at the start in the frame of the data's right singular vectors, `readout` is |a|^2, `frozen`
    what W_1 has outside the row space. With kap = sqrt(sum D^4), U = sum D_j^2 |c_j|^2, V = |a|^2:
    E V = V cosh(kap t) + U sinh(kap t)/kap.

    `scales` are D, 1 unless given.
    """
    square = _check.numbers("columns", columns, ndim=1, least=0)
    d = np.ones(square.shape) if scales is None else _check.numbers("scales", scales, ndim=1, least=0)
    if d.shape != square.shape:
        raise InputError(f"scales has shape {d.shape}: scales must have the shape {square.shape} of columns.")
    v, frozen = _check.numbers("readout", readout, least=0), _check.numbers("frozen", frozen, least=0)
    _check.matching(readout=v, frozen=frozen)
    return evaluate(_noise_moments, _check.numbers("time", time, least=0), square, v, d, frozen)


def _noise_moments(xp: Any, t: Array, square: Array, v: Array, d: Array, frozen: Array) -> Moments:
    t, d2 = leading(t, v, frozen), d**2
    kap = xp.maximum(xp.sqrt(xp.sum(d2**2)), 1e-150)  # no noise is the limit of little
    u = xp.sum(d2 * square)
    cosh, sinh, less = xp.cosh(kap * t), xp.sinh(kap * t), 2 * xp.sinh(kap * t / 2) ** 2
    first = xp.sum(square) + frozen + xp.sum(d2) * (v * sinh / kap + u * less / kap**2)
    return Moments(first, v * cosh + u * sinh / kap)


@in_doubles
def commutator_mean(
    time: Number,
    first: Float[Values, "w d"],
    readout: Float[Values, " w"],
    scales: Any = None,
    *,
    step: float | None = None,
) -> Float[Array, "... d w w"]:
    """E K_i in time under pure noise: K_i(0) exp(-D_i^2 t), K_i = c_i a^T - a c_i^T (`spectral/C20`).

    c_i are the columns of W_1 in the frame of the data's right singular vectors, a the readout and D the data's
    singular values, 1 unless given. With `step` it is that of the Euler-Maruyama scheme, exactly: K_i(0) (1 - D_i^2
    step)^k after k = t / step steps. The mean is signed: E|K_i| does not vanish (`commutator_limit`).

    `scales` are D.
    """
    w1, a = _check.double("first", first, ndim=2), _check.double("readout", readout, ndim=1)
    w, d = w1.shape
    if a.shape != (w,):
        raise InputError(f"readout has shape {a.shape}: readout must have an entry for each of {w} neurons.")
    sizes = np.ones(d) if scales is None else _check.numbers("scales", scales, ndim=1, least=0)
    if sizes.shape != (d,):
        raise InputError(f"scales has shape {sizes.shape}: scales must have an entry for each of {d} columns.")
    dt = None if step is None else _check.real("step", step, above=0)
    return evaluate(_commutator_mean, _check.numbers("time", time, least=0), w1, a, sizes, dt)


def _commutator_mean(xp: Any, t: Array, w1: Array, a: Array, d: Array, dt: Array | None) -> Array:
    outer, t = w1.T[:, :, None] * a, leading(t, d)
    left = xp.exp(-(d**2) * t) if dt is None else (1 - d**2 * dt) ** xp.round(t / dt)
    return left[..., None, None] * (outer - xp.swapaxes(outer, 1, 2))


def commutator_growth(d: int) -> float:
    """The growth rate of E sum_i |K_i|^2, K_i = c_i a^T - a c_i^T: -1 + sqrt(2d - 1), positive from d = 2 on."""
    return float(-1 + np.sqrt(2 * _check.integer("d", d, least=1) - 1))


@in_doubles
def commutator_moments(
    time: Number, minors: Any, others: Any
) -> tuple[Float[np.ndarray, "... d"], Float[np.ndarray, "... d"]]:
    """E p_i and E q_i in time: p_i the squared entry of K_i for a pair of columns, q_i = sum_j (minor of c_i, c_j)^2.

    p_i' = -2 p_i + q_i, q_i' = (d - 2) p_i + sum_j p_j: linear, so one matrix exponential.

    `minors` are p_i and `others` q_i at time 0 (d numbers each).
    """
    p, q = (
        np.asarray(_check.numbers(name, x, ndim=1, least=0)) for name, x in (("minors", minors), ("others", others))
    )
    if p.shape != q.shape:
        raise InputError(f"others has shape {q.shape}: others must have the shape {p.shape} of minors.")
    t, d = np.asarray(_check.numbers("time", time, least=0)), p.shape[0]
    eye, ones = np.eye(d), np.ones((d, d))
    generator = np.block([[-2 * eye, eye], [(d - 2) * eye + ones, np.zeros((d, d))]])
    out = scipy.linalg.expm(np.multiply.outer(t, generator)) @ np.concatenate([p, q])
    return out[..., :d], out[..., d:]


def lyapunov(d: int) -> np.ndarray:
    """The d + 1 Lyapunov exponents of the pure-noise process with d inputs, by integrals (`spectral/C22`).

    Partial sums Lam_m = ((d-1-m)/2) E[x^2/(1+x^2)] under the density x^{m-1} (1+x^2)^{(d-1-m)/2} exp(-(d-1) x^2/2) for
    m = 1 ... d, and Lam_{d+1} = -d. So Lam_{d-1} = 0 exactly.
    """
    d = _check.integer("d", d, least=1)
    if d == 1:  # two geometric Brownian motions: exponents -1/2 each
        return np.array([-0.5, -0.5])
    sums = [0.0]
    edge = 12 / np.sqrt(d - 1) + 2
    for m in range(1, d + 1):

        def log_weight(x: Any, m: int = m) -> Any:
            return (m - 1) * np.log(x) + (d - 1 - m) / 2 * np.log1p(x * x) - (d - 1) * x * x / 2

        top = np.max(log_weight(np.linspace(edge / 4000, edge, 4000)))

        def weight(x: float, top: float = top, log_weight: Any = log_weight) -> float:
            return float(np.exp(log_weight(max(x, 1e-300)) - top))

        norm = scipy.integrate.quad(weight, 0, edge, epsabs=0, epsrel=1e-13, limit=200)[0]
        mean = (
            scipy.integrate.quad(
                lambda x, w=weight: x * x / (1 + x * x) * w(x), 0, edge, epsabs=0, epsrel=1e-13, limit=200
            )[0]
            / norm
        )
        sums.append((d - 1 - m) / 2 * mean)
    return np.diff([*sums, -float(d)])


def moment_exponent(p: float, d: int, *, nodes: int = 400) -> float:
    """g(p) = lim (1/t) ln E|W_1|^p: the top eigenvalue of a one-dimensional operator (`spectral/C19`).

    1/2 f'' - ((d-1)/2) (sinh^3/cosh) f' + (p/2) ((d-1) sinh^2 - 1) f on |theta| <= 3.5, symmetric in the weight
    w = cosh^{d-1} exp(-(d-1) cosh^2 / 2). With f = g / sqrt(w) it is 1/2 g'' + V g, on a sine basis (spectrally exact).

    `nodes` is the number of functions of that basis.
    """
    p, d = _check.real("p", p), _check.integer("d", d, least=1)
    nodes = _check.integer("nodes", nodes, least=1, most=10_000)
    if d == 1:
        return (p * p - p) / 2
    length = 3.5
    x = np.linspace(-length, length, nodes + 2)[1:-1]
    sinh, cosh = np.sinh(x), np.cosh(x)
    # (ln w)'/2 = -drift: b = -((d-1)/2) sinh^3/cosh, potential -(b^2 + b')/2
    b = -(d - 1) / 2 * sinh**3 / cosh
    slope = -(d - 1) / 2 * (3 * sinh**2 - sinh**4 / cosh**2)
    potential = -(b**2 + slope) / 2 + p / 2 * ((d - 1) * sinh**2 - 1)
    k = np.arange(1, nodes + 1)
    basis = np.sqrt(2 / (nodes + 1)) * np.sin(np.outer(k, k) * np.pi / (nodes + 1))
    kinetic = (basis * (-((k * np.pi / (2 * length)) ** 2) / 2)) @ basis.T
    return float(np.linalg.eigvalsh(kinetic + np.diag(potential))[-1])


def commutator_limit() -> float:
    """lim E|entry of K_i| / |det W_1(0)| for d_in = w = 2 and a(0) = 0: 0.4819, not 0 (erratum `spectral/E6`)."""
    integral = scipy.integrate.quad(
        lambda x: x * np.sqrt(1 + x * x) * np.exp(-x * x / 2), 0, 40, epsabs=0, epsrel=1e-12
    )[0]
    return float(2 / np.pi * np.sqrt(np.pi / 2) / integral)


# Label noise ---------------------------------------------------------------------------------------------------------


class LabelNoise(NamedTuple):
    """What small label noise does slowly: the decay rate of all but one singular value of W_1, and the end."""

    decay: Float[Values, "..."]
    first: Float[Values, "..."]
    readout: Float[Values, "..."]


@formula(delta=at_least(0), norm=at_least(0), rank=integer(1), scale=above(0))
def label_noise(delta: Number, norm: Number, rank: int, scale: Number = 1.0) -> LabelNoise:
    """sigma_{i>=2}(W_1) ~ exp(-delta^2 t/2); sigma_1(W_1) -> r^{1/4} |A|^{1/2}, |a| -> r^{-1/4} |A|^{1/2}.

    `spectral/C24`. One output, equal singular values `scale` of rank r; for descent t = lr * steps and delta = sqrt(lr)
    times that of the labels. A leading-order argument on the slow manifold, not a theorem: within a few per cent for
    delta <= 0.12.

    `norm` is |A|.
    """
    xp, root = namespace(norm), float(np.sqrt(np.sqrt(rank)))
    return LabelNoise((scale * delta) ** 2 / 2, root * xp.sqrt(norm), xp.sqrt(norm) / root)


# Checks --------------------------------------------------------------------------------------------------------------


def _data(inputs: Any, limit: Any) -> tuple[np.ndarray, np.ndarray]:
    """X and A; one output may be a vector."""
    x = np.asarray(_check.double("inputs", inputs, ndim=2))
    a = np.atleast_2d(np.asarray(_check.double("limit", limit, ndim=(1, 2))))
    if not np.any(x):
        raise InputError("inputs is zero: inputs must hold something to learn from.")
    if a.shape[1] != x.shape[1]:
        raise InputError(f"limit has shape {a.shape}: limit must have the {x.shape[1]} columns of inputs.")
    return x, a
