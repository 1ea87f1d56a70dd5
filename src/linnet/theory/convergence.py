"""Balanced deep linear networks of bottleneck one on whitened data (Eftekhari): the whole flow, its rates and bounds.

A = s u v^T has L layers, Z = sum_i z_i p_i q_i^T is the target, the loss is (n/2) |A - Z|^2, and e = 2 - 2/L. All is
expressed in the singular vectors of Z: a_i = <u, p_i>, b_i = <v, q_i>, with gamma = z_2 / z_1, f_1 = z_1 a_1 b_1,
g = sum_{i>=2} z_i a_i b_i and f = f_1 + g = u^T Z v. Times of any shape come first in what is returned.

Arguments: `samples` is n, `depth` L, `z1` and `z2` are the largest singular values of Z, `values` all of them in
descending order, `rank` is r of the minimum Z_r, `strength` s at time 0, `target` z of one aligned mode; `at` and
`initial` are points of the flow as `Coordinates`.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy  # its parts load when they are first used
from jaxtyping import Array, Float

from linnet import _check
from linnet._check import InputError, namespace
from linnet.theory import landscape
from linnet.theory._formula import (
    FLAG,
    TIMES,
    Domain,
    Number,
    above,
    at_least,
    choice,
    each,
    evaluate,
    formula,
    instance,
    integer,
)
from linnet.theory._riccati import composed, eigen, few, steps
from linnet.theory._times import leading
from linnet.theory.rank_one_flow import NODES, WEIGHTS, known, one_initial, whole_depth
from linnet.theory.rank_one_flow import Coordinates as Coordinates
from linnet.theory.rank_one_flow import Frames as Frames
from linnet.theory.rank_one_flow import ModesFlow as ModesFlow
from linnet.theory.rank_one_flow import RankOneFlow as RankOneFlow
from linnet.theory.rank_one_flow import aligned as aligned
from linnet.theory.rank_one_flow import coordinates as coordinates
from linnet.theory.rank_one_flow import modes as modes
from linnet.theory.rank_one_flow import passage_time as passage_time
from linnet.theory.rank_one_flow import rank_one as rank_one
from linnet.theory.rank_one_flow import transition_time as transition_time

_MOST_STEPS = 1e6  # composed steps that are made


class _Terms(NamedTuple):
    """What the bounds are made of; 1 - a^2, 1 - b^2 and 1 - ab keep their digits near the minimum."""

    s: Array
    z1: Array
    gamma: Array
    ab: Array
    less_ab: Array
    less_a2: Array
    less_b2: Array
    f1: Array
    g: Array


def _terms(at: Coordinates) -> _Terms:
    xp = namespace(at)
    s, a, b, z = (xp.asarray(x) for x in at)
    z1 = z[..., 0]
    second = z[..., 1] if z.shape[-1] > 1 else xp.zeros_like(z1)
    gamma = second / xp.where(z1 > 0, z1, 1.0)
    ab = a[..., 0] * b[..., 0]
    a2, b2 = (xp.sum(x[..., 1:] ** 2, axis=-1) for x in (a, b))
    less_ab = xp.where(ab > 0, (a2 + b2 - a2 * b2) / (1 + xp.abs(ab)), 1 - ab)
    g = xp.sum(z[..., 1:] * a[..., 1:] * b[..., 1:], axis=-1)
    return _Terms(s, z1, gamma, ab, less_ab, a2, b2, z1 * ab, g)


def _axes(at: Coordinates) -> Float[np.ndarray, "..."]:
    """Nothing, with the axes that coordinates have before their last."""
    return np.empty(np.broadcast_shapes(np.shape(at.s), *(np.shape(x)[:-1] for x in at[1:])))


_AT = Domain(lambda name, value: known(value, name), axes=_axes)
_NETWORK = {"depth": above(1), "samples": above(0)}  # any depth above 1, not only whole ones


# Other flows and their ends ------------------------------------------------------------------------------------------


def aligned_time(initial: float, end: float, target: float, depth: int, samples: float = 1.0) -> float:
    """The time from `initial` to `end` of one aligned mode, by quadrature of ds / (n L s^e (z - s)) in ln s."""
    s0, s1 = _check.real("initial", initial, above=0), _check.real("end", end, above=0)
    z, order = _check.real("target", target), 1 - 2 / whole_depth(depth)
    if not (s0 <= s1 < z or s0 >= s1 > z):
        raise InputError(f"end = {s1} is not allowed: end must lie between initial = {s0} and target = {z}.")
    value = scipy.integrate.quad(
        lambda y: np.exp(-order * y) / (z - np.exp(y)), np.log(s0), np.log(s1), epsrel=1e-12, limit=500
    )[0]
    return float(value / (_check.real("samples", samples, above=0) * depth))


@formula(time=TIMES, z1=above(0), **_NETWORK)
def scaled_time(time: Number, z1: Number, depth: Number, samples: Number = 1.0) -> Float[Array, "..."]:
    """n z_1^e t: in this time all flows with the same depth, s_0/z_1, directions and gamma are one curve."""
    root = z1 ** (1 - 1 / depth)
    return root * leading(time, z1, depth, samples) * (root * samples)


def limit(initial: Coordinates, *, tol: float = 1e-12) -> Coordinates:
    """Where the flow ends: z_* u v^T, z_* the largest z_i with a_i + b_i != 0, or zero if there is none.

    u and v are the normalized parts of a + b at z_*. `tol` is what counts as zero. So for max(d_in, d_out) >= 2 almost
    every start of rank one reaches the global minimum, whatever its size, sign and depth.
    """
    s, a, b, z = (np.asarray(x) for x in one_initial(initial))
    tol = _check.real("tol", tol, least=0, below=1)
    both = a + b
    present = (np.abs(both) > tol) & (z > tol * z[0])
    if not present.any():
        return Coordinates(0 * s, 0 * a, 0 * b, z)
    top = z[present].max()
    kept = np.where(present & (z >= top * (1 - tol)), both, 0.0)
    kept = kept / np.linalg.norm(kept)
    return Coordinates(np.asarray(top), kept, kept, z)


def two_layers(
    time: Number, initial: Any, target: Any, samples: float = 1.0, *, rank: int | None = None
) -> Float[Array, "... d_out d_in"]:
    """The flow of two balanced layers from a start of any rank, in closed form.

    Q = [W_1^T; W_2] obeys Q' = n (H Q - Q Q^T Q / 2), H = [[0, Z^T], [Z, 0]], a Riccati equation, solved in composed
    steps, so that nothing overflows and the rank stays constant. `theory.balance` has layers of any
    imbalance, and their Gram matrices.
    """
    a0, z = _check.double("initial", initial, ndim=2), _check.double("target", target, ndim=2)
    if a0.shape != z.shape:
        raise InputError(f"initial has shape {a0.shape}: it must have the target's shape {z.shape}.")
    count = _check.number("samples", samples, above=0)
    t = _check.numbers("time", time, least=0)
    s = np.linalg.svd(np.asarray(a0), compute_uv=False)
    found = max(1, int(np.sum(s > 1e-12 * s[0])))
    kept = found if rank is None else _check.integer("rank", rank, least=1, most=min(z.shape))
    needed = steps(t, count, z)
    if _MOST_STEPS < needed < np.inf or np.isnan(needed):
        raise InputError(
            f"time = {_check.show(time)} is not allowed: with samples and target it takes {needed:.1e} composed "
            f"steps, and at most {_MOST_STEPS:.0e} are made."
        )
    return evaluate(_two_layers, t, a0, z, count, rank=kept, few=few(needed))


def _two_layers(xp: Any, times: Array, a0: Array, target: Array, samples: Array, *, rank: int) -> Array:
    rates, frame = eigen(xp, target, 0.0)
    u, s, vt = xp.linalg.svd(a0, full_matrices=False)
    initial = frame.T @ (xp.concatenate([vt[:rank].T, u[:, :rank]]) * xp.sqrt(s[:rank]))

    def at(time: Array) -> Array:
        q = frame @ composed(xp, samples * time, initial, rates)
        return q[target.shape[1] :] @ q[: target.shape[1]].T

    return each(xp, at, times.reshape(-1)).reshape(*times.shape, *target.shape)


# Distance and its bounds ---------------------------------------------------------------------------------------------


@formula(at=_AT)
def distance(at: Coordinates) -> Float[Array, "..."]:
    """E_1 = 1/2 |Z_1 - A|^2 = 1/2 (s - f_1)^2 + (z_1^2 - f_1^2)/2, the functional of Theorem 20."""
    x = _terms(at)
    return (x.s - x.f1) ** 2 / 2 + x.z1**2 * (x.less_a2 + x.less_b2 - x.less_a2 * x.less_b2) / 2


class Parts(NamedTuple):
    """T_1 = 1/2 (s - f_1)^2 and T_2 = z_1 - f_1: E_1 <= T_1 + z_1 T_2 (eq. 33)."""

    size: Float[Array, "..."]
    direction: Float[Array, "..."]


@formula(at=_AT)
def parts(at: Coordinates) -> Parts:
    """T_1 and T_2; the flow is fast where T_1 >= z_1 T_2, slow where T_1 <= z_1 T_2 (eqs. 200, 203)."""
    x = _terms(at)
    return Parts((x.s - x.f1) ** 2 / 2, x.z1 * x.less_ab)


@formula(at=_AT, samples=above(0))
def excess(at: Coordinates, samples: Number = 1.0) -> Float[Array, "..."]:
    """The loss above the best of rank one: n (E_1 - s g)."""
    x = _terms(at)
    return samples * (distance.raw(at) - x.s * x.g)


@formula(at=_AT, **_NETWORK)
def distance_rate(at: Coordinates, depth: Number, samples: Number = 1.0) -> Float[Array, "..."]:
    """dE_1/dt, exactly (`nonlocal/C13`); it can be positive, the loss's never.

    -n s^e [L (s - f_1)^2 + z_1^2 (a^2 + b^2 - 2 a^2 b^2) - L (s - f_1) g - 2 f_1 g].
    """
    x = _terms(at)
    gap = x.s - x.f1
    misaligned = x.less_a2 + x.less_b2 - 2 * x.less_a2 * x.less_b2  # a^2 + b^2 - 2 a^2 b^2
    inner = depth * gap**2 + x.z1**2 * misaligned - depth * gap * x.g - 2 * x.f1 * x.g
    return -samples * x.s ** (2 - 2 / depth) * inner


@formula(at=_AT, **_NETWORK, sharp=FLAG)
def distance_rate_bound(
    at: Coordinates, depth: Number, samples: Number = 1.0, *, sharp: bool = False
) -> Float[Array, "..."]:
    """dE_1/dt <= n s^e [-2 L T_1 - 2 f_1 T_2 + sqrt 2 L gamma sqrt(T_1) T_2 + 2 z_2 T_2], all of rank one (eq. 35).

    `sharp` has 2 gamma f_1 T_2 as its last term, where f_1 >= 0.
    """
    xp, x = namespace(at), _terms(at)
    size, direction = parts.raw(at)
    last = xp.where(x.f1 >= 0, x.gamma * x.f1, x.gamma * x.z1) if sharp else x.gamma * x.z1
    inner = -2 * depth * size + direction * (-2 * x.f1 + xp.sqrt(2 * size) * depth * x.gamma + 2 * last)
    return samples * x.s ** (2 - 2 / depth) * inner


class Envelope(NamedTuple):
    """Exponents of |Z_1 - A|^2 before and after the first time with s <= level z_1; whether the start is covered."""

    fast: Float[Array, "..."]
    slow: Float[Array, "..."]
    level: Float[Array, "..."]
    applies: Any


FORMS = ("theorem", "sharper", "sharpest")


@formula(initial=_AT, alpha=at_least(0, below=1), beta=above(1), **_NETWORK, form=choice(FORMS))
def envelope(
    initial: Coordinates, alpha: Number, beta: Number, depth: Number, samples: Number = 1.0, *, form: str = "theorem"
) -> Envelope:
    """Theorem 20 with its exponent corrected, and two sharper forms of the same proof (`nonlocal/C15`).

    Hypotheses: f_1 > alpha z_1, (alpha - gamma) z_1 < s < beta z_1, alpha in (gamma, 1), beta > 1, both exponents
    positive. "theorem": n L z_1^e [(alpha-gamma)^e - 2 gamma beta^e] and n z_1^e [alpha (alpha-gamma)^e
    - 2 gamma L beta^e], level sqrt 6. "sharper": 1/sqrt 2 + 1/L for 2, and `slow_level`. "sharpest": s^e is bounded
    last, so that beta drops out.

    `form` is "theorem", "sharper", or "sharpest".
    """
    xp, x = namespace(initial), _terms(initial)
    e, near = 2 - 2 / depth, xp.maximum(alpha - x.gamma, 0.0)
    unit = samples * x.z1**e
    level = xp.full_like(alpha, np.sqrt(6)) if form == "theorem" else slow_level.raw(alpha)
    loss = 2.0 if form == "theorem" else 1 / np.sqrt(2) + 1 / depth
    if form == "sharpest":
        fast = unit * depth * level**e * (1 - x.gamma * loss)
        slow = unit * near**e * (alpha - x.gamma * depth * loss)
    else:
        fast = unit * depth * (near**e - x.gamma * loss * beta**e)
        slow = unit * (alpha * near**e - x.gamma * depth * loss * beta**e)
    inside = in_set.raw(initial, alpha, np.inf if form == "sharpest" else beta)
    applies = inside & (alpha > x.gamma) & (alpha < 1) & (beta > 1) & (fast > 0) & (slow > 0)
    return Envelope(fast, slow, level, applies)


@formula(alpha=at_least(0, most=1))
def slow_level(alpha: Number) -> Float[Array, "..."]:
    """The largest s/z_1 where T_1 <= z_1 T_2: alpha + sqrt(2 (1 - alpha)), 3/2 at alpha <= 1/2; eq. 207 has sqrt 6."""
    xp = namespace(alpha)
    a = xp.maximum(alpha, 0.5)
    return a + xp.sqrt(2 * (1 - a))


@formula(
    time=TIMES,
    square=at_least(0),
    rates=instance(Envelope, "envelope", axes=lambda rates: rates.fast),
    transition=at_least(0, infinite=True),
)
def envelope_bound(time: Number, square: Number, rates: Envelope, transition: Number) -> Float[Array, "..."]:
    """The bound of |Z_1 - A|^2 from its value at the start: fast until the transition, slow after it (eqs. 38, 39).

    `square` is that value, `rates` comes from `envelope`, and `transition` is the time of the transition.
    """
    xp = namespace(time)
    t = leading(time, square, rates.fast, rates.slow, transition)
    early = xp.minimum(t, transition)
    return square * xp.exp(-rates.fast * early - rates.slow * (t - early))


@formula(at=_AT, alpha=at_least(0, below=1), beta=above(0, infinite=True))
def in_set(at: Coordinates, alpha: Number, beta: Number = np.inf) -> Any:
    """Is A in N_alpha, s > (alpha - gamma) z_1 and f_1 > alpha z_1 (eq. 28); beta: also s < beta z_1 (eq. 36)."""
    x = _terms(at)
    return (x.s > (alpha - x.gamma) * x.z1) & (x.f1 > alpha * x.z1) & (x.s < beta * x.z1)


def _descend(*, z1: Array, z2: Array, **_: Any) -> None:
    if not _check.traced((z1, z2)) and np.any(np.asarray(z2) > np.asarray(z1)):
        raise InputError(f"z2 = {_check.show(z2)} is not allowed: z2 must not exceed z1 = {_check.show(z1)}.")


@formula(_descend, theta=TIMES, alignment=above(0, most=1), z1=at_least(0), z2=at_least(0))
def alignment_bound(theta: Number, alignment: Number, z1: Number, z2: Number) -> Float[Array, "..."]:
    """The least ab at clock theta from a_0 b_0 > 0: 1/(ab) - 1 <= (1/(a_0 b_0) - 1) exp(-2 (z_1 - z_2) theta).

    `nonlocal/C11`.

    `alignment` is a_0 b_0.
    """
    decay = namespace(theta).exp(-2 * (z1 - z2) * leading(theta, alignment, z1, z2))
    return alignment / (alignment + (1 - alignment) * decay)


# Rates ---------------------------------------------------------------------------------------------------------------


def _differs(*, at: Coordinates, **_: Any) -> None:
    here = distance(at)
    if not _check.traced(here) and np.any(np.asarray(here) <= 0):
        raise InputError("at is not allowed: A is Z_1 already, and nothing decays.")


@formula(_differs, at=_AT, **_NETWORK)
def far_rate(at: Coordinates, depth: Number, samples: Number = 1.0) -> Float[Array, "..."]:
    """-d ln|A - Z_1| / dt, about n L s^e while s is large; A is not Z_1 itself."""
    return -distance_rate.raw(at, depth, samples) / (2 * distance.raw(at))


def near_rates(
    values: Any, shape: tuple[int, int], depth: int, samples: float = 1.0, rank: int = 1
) -> Float[np.ndarray, " rates"]:
    """All rates of the flow of A linearized at the balanced minimum Z_r, descending: r (d_in + d_out - r) of them.

    They are the Hessian's eigenvalues there (`landscape.spectrum`), without those of changes of basis.
    """
    depth, n = whole_depth(depth), _check.real("samples", samples, above=0)
    if not isinstance(shape, tuple | list) or len(shape) != 2:
        raise InputError(f"shape = {_check.show(shape)} is not allowed: shape must be (d_out, d_in).")
    few, many = sorted(_check.integer("shape", d, least=1) for d in shape)
    z = np.asarray(_check.double("values", values, ndim=1, shape=(few,)))
    r = _check.integer("rank", rank, least=1, most=few)
    if np.any(np.diff(z) > 0) or z[r - 1] <= 0:
        raise InputError(
            f"values = {_check.show(z)} is not allowed: values must descend and the first {r} be positive."
        )
    # in a network without spare neurons the rest of the Hessian is zero
    widths = (shape[1], *[r] * (depth - 1), shape[0])
    found = landscape.spectrum(z, widths, range(1, r + 1), curvature=n).all()
    return found[: r * (few + many - r)]


def near_rate(values: Any, shape: tuple[int, int], depth: int, samples: float = 1.0, rank: int = 1) -> float:
    """The rate at which |A - Z_r| decays in the end from generic starts: n z_1^e (1 - gamma) for r = 1.

    In units of 1/(n z_1^e) it does not depend on depth; in t it is slower with depth if z_1 < 1, faster if z_1 > 1. One
    input and one output have the radial direction only: n L z_1^e.
    """
    return float(near_rates(values, shape, depth, samples, rank)[-1])


@formula(z1=above(0), **_NETWORK)
def largest_lr(z1: Number, depth: Number, samples: Number = 1.0) -> Float[Array, "..."]:
    """Descent is stable at the balanced minimum of rank one below 2 / (n L z_1^e).

    >>> from linnet.theory import convergence
    >>> print(f"{convergence.largest_lr(8.0, depth=3):.4f}")  # 2 / (3 * 8^(4/3))
    0.0417
    """
    root = z1 ** (1 - 1 / depth)
    return 2 / (samples * root) / (depth * root)


# Escape from small starts --------------------------------------------------------------------------------------------


def escape_time(initial: Coordinates, depth: int, samples: float = 1.0) -> float:
    """T = s_0^{-(1-2/L)} / n int_0^inf nu^{-(L-2)} d theta, the time to leave the origin as s_0 -> 0.

    L >= 3 (two layers take a logarithmic time); any start with a limit other than zero, also with f_0 < 0, where it may
    be more than the largest number.
    """
    depth = _check.integer("depth", depth, least=3, reason="two layers leave in logarithmic time: use passage_time")
    n = _check.real("samples", samples, above=0)
    s, a, b, z = (np.asarray(x) for x in one_initial(initial))
    if not z[0] > 0:
        raise InputError("initial has a target of zero: there is nothing to escape to.")
    rate, weight = np.concatenate([z, -z]) / z[0], np.concatenate([(a + b) ** 2, (a - b) ** 2]) / 4
    top = rate[weight > 0].max()
    if top <= 0:
        raise InputError("initial tends to zero: a_i + b_i must differ from 0 for some z_i > 0.")

    power, at, total, last = depth - 2, 0.0, 0.0, np.inf
    # the integrand has one maximum, so what is small after it stays small
    while total < np.inf and not last < 1e-17 * total:
        shares = weight * np.exp(2 * (rate - top) * at)
        f = float(rate @ shares / np.sum(shares))
        step = 2 / max(4.0, power * abs(f), power**0.5)  # f' <= 2: the exponent changes by 6 at most
        theta = at + step * NODES
        log_norm = top * theta + np.log(weight @ np.exp(2 * np.multiply.outer(rate - top, theta))) / 2
        with np.errstate(over="ignore"):
            values = np.exp(-power * log_norm)
        total, at = total + step * float(WEIGHTS @ values), at + step
        last = step * float(values[-1]) if values[-1] < values[0] else np.inf
    return total / (n * z[0] * float(s) ** (1 - 2 / depth))


@formula(strength=above(0), z1=above(0), depth=above(2), samples=above(0))
def escape_time_aligned(strength: Number, z1: Number, depth: Number, samples: Number = 1.0) -> Float[Array, "..."]:
    """s_0^{-(1-2/L)} / (n (L-2) z_1) where u_0 = p_1 and v_0 = q_1, L > 2."""
    return strength ** (2 / depth - 1) / (samples * (depth - 2) * z1)


@formula(strength=above(0), alignment=above(-1, most=1), z1=above(0), depth=integer(3, most=4), samples=above(0))
def escape_time_one_output(
    strength: Number, alignment: Number, z1: Number, depth: int, samples: Number = 1.0
) -> Float[Array, "..."]:
    """One output, depth 3 or 4, b_0 > -1 the cosine of A_0 and Z.

    L = 4: s_0^{-1/2} / (n z_1 (1 + b_0)). L = 3: s_0^{-1/3} acos(b_0) / (n z_1 sqrt(1 - b_0^2)).

    `alignment` is b_0.
    """
    xp, b = namespace(alignment), alignment
    sine = xp.sqrt((1 - b) * (1 + b))
    angle = xp.arctan2(sine, b)
    # angle / sine -> 1 at b = 1
    integral = 1 / (1 + b) if depth == 4 else xp.where(sine > 0, angle / xp.where(sine > 0, sine, 1.0), 1.0)
    return strength ** (2 / depth - 1) * integral / (samples * z1)
