"""Balanced deep linear networks of bottleneck one on whitened data (Eftekhari): the whole flow, its rates and bounds.

A = s u v^T has L layers, Z = sum_i z_i p_i q_i^T is the target, the loss is (n/2) |A - Z|^2, and e = 2 - 2/L. All is
said in the singular vectors of Z: a_i = <u, p_i>, b_i = <v, q_i>, with gamma = z_2 / z_1, f_1 = z_1 a_1 b_1,
g = sum_{i>=2} z_i a_i b_i and f = f_1 + g = u^T Z v. Times of any shape come first in what is returned.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.polynomial import legendre
from scipy.integrate import quad
from scipy.special import roots_jacobi

from linnet import _check
from linnet._check import InputError
from linnet.theory import landscape
from linnet.theory._times import leading

Values = Array | np.ndarray
Number = float | Values


# Coordinates ---------------------------------------------------------------------------------------------------------


class Coordinates(NamedTuple):
    """A = s u v^T in the singular vectors of Z, filled up with zeros to max(d_in, d_out) entries; axes may precede.

    z descends. A direction without partner is a pair with z = 0 whose other half is zero: it moves the same.
    """

    s: Float[Values, "..."]
    a: Float[Values, "... d"]
    b: Float[Values, "... d"]
    z: Float[Values, "... d"]


class Frames(NamedTuple):
    """Full singular bases of Z: columns p_i and q_i."""

    left: Float[np.ndarray, "d_out d_out"]
    right: Float[np.ndarray, "d_in d_in"]


def coordinates(strength: float, left: Any, right: Any, target: Any) -> tuple[Coordinates, Frames]:
    """The coordinates of s u v^T against Z, and the bases that lead back; u and v are normalised."""
    s = _check.real("strength", strength, above=0)
    z = np.asarray(_check.double("target", target, ndim=2))
    d_out, d_in = z.shape
    u = np.asarray(_check.double("left", left, ndim=1, shape=(d_out,)))
    v = np.asarray(_check.double("right", right, ndim=1, shape=(d_in,)))
    for name, vector in (("left", u), ("right", v)):
        if not np.any(vector):
            raise InputError(f"{name} is zero: it must be a direction.")
    p, values, qt = np.linalg.svd(z)
    d = max(z.shape)

    def filled(x: np.ndarray) -> np.ndarray:
        return np.concatenate([x, np.zeros(d - x.shape[0])])

    a, b = p.T @ (u / np.linalg.norm(u)), qt @ (v / np.linalg.norm(v))
    return Coordinates(np.asarray(s), filled(a), filled(b), filled(values)), Frames(p, qt.T)


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
    s, a, b, z = (jnp.asarray(x) for x in at)
    z1 = z[..., 0]
    second = z[..., 1] if z.shape[-1] > 1 else jnp.zeros_like(z1)
    gamma = second / jnp.where(z1 > 0, z1, 1.0)
    ab = a[..., 0] * b[..., 0]
    a2, b2 = (jnp.sum(x[..., 1:] ** 2, axis=-1) for x in (a, b))
    less_ab = jnp.where(ab > 0, (a2 + b2 - a2 * b2) / (1 + jnp.abs(ab)), 1 - ab)
    g = jnp.sum(z[..., 1:] * a[..., 1:] * b[..., 1:], axis=-1)
    return _Terms(s, z1, gamma, ab, less_ab, a2, b2, z1 * ab, g)


# The flow in closed form ---------------------------------------------------------------------------------------------

# Radau nodes on [0, 1] (1 is one of them), weights, and the matrix of integrals from 0 to each node
_ORDER = 16
_X = np.append(roots_jacobi(_ORDER - 1, 1, 0)[0], 1.0)
_POLYNOMIALS = legendre.legvander(_X, _ORDER)
_NODES, _WEIGHTS = (_X + 1) / 2, (_X + 1) / _POLYNOMIALS[:, -2] ** 2
_WEIGHTS /= np.sum(_WEIGHTS)
_STEPS = (_POLYNOMIALS[:, 2:] - _POLYNOMIALS[:, :-2]) / (2 * (2 * np.arange(1, _ORDER) + 1))
_INTEGRALS = np.column_stack([_NODES, _STEPS])
_TO_NODES = _INTEGRALS @ ((2 * np.arange(_ORDER) + 1) * _POLYNOMIALS[:, :_ORDER] * _WEIGHTS[:, None]).T
# the last two Legendre coefficients of the polynomial through the nodes and through 0 at 0
_LAST = np.linalg.inv(legendre.legvander(np.append(-1.0, _X), _ORDER))[-2:, 1:]

_SHARE, _LEVEL = 1e-17, 1e-14  # below these the directions and the size have settled
_ROUGH = 1e-12  # last coefficients of a panel that is short enough; what is integrated is far better
_LOST = 1e305  # 1/s beyond which s counts as zero


class Flow(NamedTuple):
    """Coordinates at each time, and the clock theta, d theta = n s^{1-2/L} dt."""

    at: Coordinates
    theta: Float[Array, "..."]


class RankOneFlow(NamedTuple):
    """A = s u v^T at each time, and the clock theta."""

    s: Float[Array, "..."]
    u: Float[Array, "... d_out"]
    v: Float[Array, "... d_in"]
    theta: Float[Array, "..."]

    @property
    def matrix(self) -> Float[Array, "... d_out d_in"]:
        """The end-to-end matrix s u v^T."""
        return self.s[..., None, None] * self.u[..., :, None] * self.v[..., None, :]


class _Plane(NamedTuple):
    """The linear flow that carries (u, v): nu^2 = sum_j weight_j exp(2 rate_j theta); nu'/nu = f."""

    weight: Array
    rate: Array
    top: Array  # the largest rate that is present
    lag: Array  # rate - top, exactly 0 at the top whatever the compiler rounds, and where there is no weight

    def shares(self, theta: Array) -> Array:
        """weight exp(2 (rate - top) theta): nothing overflows."""
        return self.weight * jnp.exp(2 * self.lag * theta)

    def log_norm(self, theta: Array) -> Array:
        """log nu - top theta."""
        return jnp.log(jnp.sum(self.shares(theta))) / 2

    def f(self, theta: Array) -> Array:
        """u^T Z v."""
        shares = self.shares(theta)
        return jnp.sum(self.rate * shares) / jnp.sum(shares)

    def settled(self, theta: Array) -> Array:
        """Whether only the largest rate is left."""
        shares = self.shares(theta)
        return jnp.sum(jnp.where(self.lag < 0, shares, 0.0)) < _SHARE * jnp.sum(shares)


def _plane(a: Array, b: Array, z: Array) -> _Plane:
    weight, rate = jnp.concatenate([(a + b) ** 2, (a - b) ** 2]) / 4, jnp.concatenate([z, -z])
    top = jnp.max(jnp.where(weight > 0, rate, -jnp.inf))
    lag = jnp.where(top - rate > 4e-16 * jnp.abs(top), rate - top, 0.0)
    return _Plane(weight, jnp.minimum(rate, top), top, lag)


class _Spot(NamedTuple):
    """Where the march stands: theta, w = 1/s and t in units with z_1 = 1 and n = 1, and the next panel's length."""

    theta: Array
    w: Array
    t: Array
    reach: Array


def _beginning(plane: _Plane, w: Array, depth: Array) -> _Spot:
    """The start; over the first panel w^{1-2/L}, with a branch point at about w/L, and nu^L are smooth."""
    zero = jnp.zeros(())
    return _Spot(zero, w, zero, 0.5 / (depth * jnp.maximum(jnp.max(jnp.abs(plane.rate)), 1 / w)))


def _panel(plane: _Plane, spot: _Spot, length: Array, depth: Array) -> tuple[_Spot, Array]:
    """One panel: w' = L (1 - f w) by collocation and t = int w^{1-2/L}; how rough both are on it.

    The equation is linear, so that w is one small solve; at Radau nodes it is right for panels much longer than the
    1/(L f) in which w forgets where it was, once it has.
    """
    f = jax.vmap(plane.f)(spot.theta + length * _NODES)
    system = depth * length * _TO_NODES
    change = jnp.linalg.solve(jnp.eye(_ORDER) + system * f, system @ (1 - f * spot.w))
    w = spot.w + change
    order = 1 - 2 / depth
    pace = w**order

    def rough(values: Array, before: Array) -> Array:
        return jnp.max(jnp.abs(_LAST @ (values - before))) / jnp.min(values)

    worst = jnp.maximum(rough(w, spot.w), rough(pace, spot.w**order))
    end = _Spot(spot.theta + length, w[-1], spot.t + length * (_WEIGHTS @ pace), length)
    return end, jnp.where(jnp.min(w) > 0, worst, jnp.inf)


def _step(plane: _Plane, spot: _Spot, depth: Array) -> _Spot:
    """The next panel, as long as its polynomials allow.

    It cannot step over what it should see. f increases (log nu is convex), so that where f < 0 the growth of w shows,
    and once w has found 1/f whatever happens to f stays.
    """
    lost = spot.w >= _LOST

    def attempt(tried: tuple[_Spot, Array]) -> tuple[_Spot, Array]:
        length = tried[0].reach
        end, rough = _panel(plane, spot, length, depth)
        rough = jnp.nan_to_num(rough, nan=jnp.inf, posinf=jnp.inf)
        return end._replace(reach=length * jnp.clip(0.9 * (_ROUGH / rough) ** (1 / _ORDER), 0.2, 3.0)), rough

    far = jnp.asarray(jnp.inf)
    # no length is short enough for what is not a number
    end, rough = jax.lax.while_loop(
        lambda tried: (tried[1] > _ROUGH) & (tried[0].reach > 0) & ~lost, attempt, (spot, far)
    )
    return end._replace(w=jnp.where(lost, far, jnp.where(rough > _ROUGH, jnp.nan, end.w)))


def _unit(s: Array, z: Array) -> Array:
    """The size that everything is measured in: z_1, or s_0 where the target is zero."""
    return jnp.where(jnp.max(z) > 0, jnp.max(z), s)


@jax.jit
def _march(times: Array, s: Array, a: Array, b: Array, z: Array, depth: Array, samples: Array) -> Flow:
    unit = _unit(s, z)
    speed = samples * unit ** (2 - 2 / depth)
    plane = _plane(a, b, z / unit)

    def step(spot: _Spot) -> _Spot:
        return _step(plane, spot, depth)

    def done(spot: _Spot) -> Array:
        """From here on s = f and nothing changes any more, or s is zero."""
        level = jnp.abs(1 - plane.f(spot.theta) * spot.w) < _LEVEL
        return (plane.settled(spot.theta) & (plane.top > 0) & level) | ~jnp.isfinite(spot.w)

    def visit(carry: tuple[_Spot, _Spot], goal: Array) -> tuple[tuple[_Spot, _Spot], _Spot]:
        spot, end = jax.lax.while_loop(
            lambda pair: (pair[1].t < goal) & ~done(pair[0]), lambda pair: (pair[1], step(pair[1])), carry
        )
        length, left = end.theta - spot.theta, goal - spot.t

        def newton(found: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            count, x, _ = found
            here = _panel(plane, spot, x, depth)[0]
            new = jnp.clip(x + (goal - here.t) * here.w ** (2 / depth - 1), 0.0, length)
            return count + 1, new, jnp.abs(new - x)

        guess = length * jnp.clip(left / jnp.where(end.t > spot.t, end.t - spot.t, 1.0), 0.0, 1.0)
        # a step of 1e-8 leaves 1e-16; where the panel's time is lost in t it never ends
        found = jax.lax.while_loop(
            lambda found: (found[0] < 12) & (found[2] > 1e-8 * length), newton, (jnp.zeros((), int), guess, length)
        )
        inside = _panel(plane, spot, found[1], depth)[0]
        lost = ~jnp.isfinite(end.w)  # s is below the smallest number
        size = jnp.where(lost, end.w, 1 / plane.f(spot.theta))
        still = _Spot(spot.theta + left * spot.w ** (2 / depth - 1), size, goal, end.reach)
        seen = jax.tree.map(lambda p, q: jnp.where(done(spot) | lost, p, q), still, inside)
        return (spot, end), seen

    start = _beginning(plane, unit / s, depth)
    order = jnp.argsort(times)
    _, seen = jax.lax.scan(visit, (start, start), speed * times[order])
    back = jnp.argsort(order)
    theta, w = seen.theta[back], seen.w[back]

    def turned(theta: Array) -> tuple[Array, Array]:
        grown = jnp.exp(plane.lag * theta - plane.log_norm(theta))
        up, down = (a + b) / 2 * grown[: a.shape[0]], (a - b) / 2 * grown[a.shape[0] :]
        return up + down, up - down

    left, right = jax.vmap(turned)(theta)
    return Flow(Coordinates(unit / w, left, right, jnp.broadcast_to(z, left.shape)), theta / unit)


def modes(time: Number, start: Coordinates, depth: Number, samples: Number = 1.0) -> Flow:
    """The whole gradient flow from a balanced rank-one start in closed form, in singular coordinates.

    In the clock theta the directions follow a linear flow that knows nothing of depth, a_i +- b_i growing as
    exp(+- z_i theta) under one norm nu, and 1/s = nu^{-L} (1/s_0 + L int nu^L). That is marched over panels of 16 Radau
    nodes, each as long as its polynomials allow, and t(theta) is inverted by Newton. The price depends neither on the
    width nor, but for log L panels at the start, on the depth: panels are as short as 1/(L f) only until the start is
    forgotten, and where s falls like exp(-L theta) they are no more than the logarithm of the smallest number allows.
    Nothing overflows or cancels, from s_0 = 1e-300 to 1e300. Batch starts, depths and samples with `jax.vmap`.
    """
    t = _times(time)
    length = _check.number("depth", depth, least=2)
    count = _check.number("samples", samples, above=0)
    s, a, b, z = (jnp.asarray(x, dtype=jnp.float64) for x in start)
    if a.ndim != 1 or a.shape != b.shape or a.shape != z.shape or s.ndim != 0:
        raise InputError(
            f"start has shapes {s.shape}, {a.shape}, {b.shape} and {z.shape}: it must be one number and three vectors "
            "of one length; batch with jax.vmap."
        )
    flow = _march(t.reshape(-1), s, a, b, z, length, count)
    return jax.tree.map(lambda x: x.reshape(t.shape + x.shape[1:]), flow)


def rank_one(
    time: Number, strength: float, left: Any, right: Any, target: Any, depth: int, samples: float = 1.0
) -> RankOneFlow:
    """The gradient flow of a balanced network of any widths from A_0 = s_0 u_0 v_0^T, at any times."""
    start, frames = coordinates(strength, left, right, target)
    flow = modes(time, start, _depth(depth), samples)
    d_out, d_in = frames.left.shape[0], frames.right.shape[0]
    u, v = flow.at.a[..., :d_out] @ frames.left.T, flow.at.b[..., :d_in] @ frames.right.T
    return RankOneFlow(jnp.asarray(flow.at.s), u, v, flow.theta)


@jax.jit
def _passage(level: Array, s: Array, a: Array, b: Array, z: Array, depth: Array, samples: Array) -> Array:
    unit = _unit(s, z)
    plane = _plane(a, b, z / unit)
    goal = unit / level  # in w
    start = _beginning(plane, unit / s, depth)
    rising = goal < start.w

    def before(spot: _Spot) -> Array:
        return jnp.where(rising, spot.w > goal, spot.w < goal)

    def never(spot: _Spot) -> Array:
        level = jnp.abs(1 - plane.f(spot.theta) * spot.w) < _LEVEL
        return plane.settled(spot.theta) & (level | (rising & (plane.top <= 0))) | ~jnp.isfinite(spot.w + spot.t)

    def slope(spot: _Spot) -> Array:
        return 1 - plane.f(spot.theta) * spot.w

    def turning(spot: _Spot, length: Array) -> _Spot:
        """Where s turns inside a panel, by bisection; there it is flat, so that half the digits give all of it."""

        def halve(_: int, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = bracket
            middle = (low + high) / 2
            same = slope(_panel(plane, spot, middle, depth)[0]) * slope(spot) > 0
            return jnp.where(same, middle, low), jnp.where(same, high, middle)

        low, _ = jax.lax.fori_loop(0, 30, halve, (jnp.zeros(()), length))
        return _panel(plane, spot, low, depth)[0]

    def step(spot: _Spot) -> _Spot:
        """The next panel, or the part of it up to a turning point that has passed the level."""
        end = _step(plane, spot, depth)
        missed = ~rising & before(end) & (slope(spot) * slope(end) < 0)
        top = jax.lax.cond(missed, lambda: turning(spot, end.theta - spot.theta), lambda: spot)
        return jax.tree.map(lambda p, q: jnp.where(before(top), q, p), top, end)

    spot, end = jax.lax.while_loop(
        lambda pair: before(pair[1]) & ~never(pair[1]), lambda pair: (pair[1], step(pair[1])), (start, start)
    )
    length = end.theta - spot.theta

    class Guess(NamedTuple):
        """A point of the panel and log(w/goal) there."""

        x: Array
        gap: Array

    def narrow(found: tuple[Array, Guess, Guess]) -> tuple[Array, Guess, Guess]:
        """Regula falsi (Illinois): the slope 1 - f w is all cancellation where w follows 1/f."""
        count, other, last = found
        x = last.x - last.gap * (last.x - other.x) / (last.gap - other.gap)
        new = Guess(x, jnp.log(_panel(plane, spot, x, depth)[0].w / goal))
        other = jax.tree.map(lambda p, q: jnp.where(new.gap * last.gap < 0, p, q), last, Guess(other.x, other.gap / 2))
        return count + 1, other, new

    ends = Guess(jnp.zeros(()), jnp.log(spot.w / goal)), Guess(length, jnp.log(end.w / goal))
    found = jax.lax.while_loop(
        lambda found: (found[0] < 40) & (jnp.abs(found[2].gap) > 4e-16), narrow, (jnp.zeros((), int), *ends)
    )
    here = _panel(plane, spot, found[2].x, depth)[0]
    time = here.t / (samples * unit ** (2 - 2 / depth))
    return jnp.where(before(start), jnp.where(before(end), jnp.inf, time), 0.0)


def passage_time(level: Number, start: Coordinates, depth: Number, samples: Number = 1.0) -> Float[Array, ""]:
    """The first time at which s passes `level`, up or down; infinite if it never does. Turning points are located."""
    if np.ndim(start.s) != 0:
        raise InputError(f"start has sizes of shape {np.shape(start.s)}: it must be one start; batch with jax.vmap.")
    given = (_check.number("level", level, above=0), *start, _check.number("depth", depth, least=2))
    return _passage(*(jnp.asarray(x, dtype=jnp.float64) for x in given), _check.number("samples", samples, above=0))


def transition_time(
    start: Coordinates, depth: Number, samples: Number = 1.0, level: Number = 6**0.5
) -> Float[Array, ""]:
    """t_tr, the first time with s <= level z_1; 0 if it is so from the start (Theorem 20; 3/2 will do for sqrt 6)."""
    z1 = jnp.asarray(start.z)[0]
    threshold = jnp.asarray(level) * z1
    below = jnp.asarray(start.s) <= threshold
    # a start below is replaced by one at the threshold, which takes no time; no target is never reached
    top = start._replace(s=jnp.where(below, jnp.maximum(threshold, 1e-300), start.s))
    time = passage_time(jnp.maximum(threshold, 1e-300), top, depth, samples)
    return jnp.where(z1 > 0, jnp.where(below, 0.0, time), jnp.inf)


def aligned(time: Number, start: Number, target: Number, depth: int, samples: float = 1.0) -> Float[Array, "..."]:
    """s(t) of one aligned mode, ds/dt = -n L s^e (s - z); a negative target is a mode of the wrong sign."""
    if not _check.traced(start) and not np.all(np.asarray(start) > 0):
        raise InputError(f"start = {_check.show(start)} is not allowed: start must be above 0.")
    t, s, z = jnp.broadcast_arrays(
        leading(_times(time), start, target), *(jnp.asarray(x, dtype=jnp.float64) for x in (start, target))
    )
    one = jnp.ones(1)
    length, count = jnp.asarray(float(_depth(depth))), _check.number("samples", samples, above=0)

    def mode(t: Array, s: Array, z: Array) -> Array:
        sign = jnp.where(z < 0, -1.0, 1.0)
        return jnp.asarray(_march(t[None], s, sign * one, one, jnp.abs(z)[None], length, count).at.s)[0]

    return jax.vmap(mode)(t.reshape(-1), s.reshape(-1), z.reshape(-1)).reshape(t.shape)


def aligned_time(start: float, end: float, target: float, depth: int, samples: float = 1.0) -> float:
    """The time from `start` to `end` of one aligned mode, by quadrature of ds / (n L s^e (z - s)) in ln s."""
    s0, s1 = _check.real("start", start, above=0), _check.real("end", end, above=0)
    z, order = _check.real("target", target), 1 - 2 / _depth(depth)
    if not (s0 <= s1 < z or s0 >= s1 > z):
        raise InputError(f"end = {s1} is not allowed: end must lie between start = {s0} and target = {z}.")
    value = quad(lambda y: np.exp(-order * y) / (z - np.exp(y)), np.log(s0), np.log(s1), epsrel=1e-12, limit=500)[0]
    return float(value / (_check.real("samples", samples, above=0) * depth))


def scaled_time(time: Number, z1: Number, depth: Number, samples: Number = 1.0) -> Float[Array, "..."]:
    """n z_1^e t: in this time all flows with the same depth, s_0/z_1, directions and gamma are one curve."""
    t = leading(time, z1, depth, samples)
    return jnp.asarray(samples) * jnp.asarray(z1) ** (2 - 2 / jnp.asarray(depth)) * t


def limit(start: Coordinates, *, tol: float = 1e-12) -> Coordinates:
    """Where the flow ends: z_* u v^T, z_* the largest z_i with a_i + b_i != 0, or zero if there is none.

    u and v are the normalised parts of a + b at z_*. `tol` is what counts as zero. So for max(d_in, d_out) >= 2 almost
    every start of rank one reaches the global minimum, whatever its size, sign and depth.
    """
    s, a, b, z = (np.asarray(x, dtype=float) for x in start)
    both = a + b
    present = (np.abs(both) > tol) & (z > tol * z[0])
    if not present.any():
        return Coordinates(0 * s, 0 * a, 0 * b, z)
    top = z[present].max()
    kept = np.where(present & (z >= top * (1 - tol)), both, 0.0)
    kept = kept / np.linalg.norm(kept)
    return Coordinates(np.asarray(top), kept, kept, z)


def two_layers(
    time: Number, start: Any, target: Any, samples: float = 1.0, *, rank: int | None = None
) -> Float[Array, "... d_out d_in"]:
    """The flow of two balanced layers from a start of any rank, in closed form.

    Q = [W_1^T; W_2] obeys Q' = n (H Q - Q Q^T Q / 2), H = [[0, Z^T], [Z, 0]], a Riccati equation. Composed in steps of
    n z_1 dt <= 5, each Q <- E Q chol(M)^{-T} with E = exp(n H dt), M = I + Q^T (int n exp(2 n H x) dx) Q, so that
    nothing overflows and the rank stays what it is, for ever.
    """
    a0, z = _check.double("start", start, ndim=2), _check.double("target", target, ndim=2)
    if a0.shape != z.shape:
        raise InputError(f"start has shape {a0.shape}: it must have the target's shape {z.shape}.")
    count = _check.number("samples", samples, above=0)
    t = _times(time)
    s = np.linalg.svd(np.asarray(a0), compute_uv=False)
    found = max(1, int(np.sum(s > 1e-12 * s[0])))
    kept = found if rank is None else _check.integer("rank", rank, least=1, most=min(z.shape))
    return _two_layers(t.reshape(-1), a0, z, count, kept).reshape(*t.shape, *z.shape)


@partial(jax.jit, static_argnums=4)
def _two_layers(times: Array, a0: Array, target: Array, samples: Array, rank: int) -> Array:
    d_out, d_in = target.shape
    k = min(d_out, d_in)
    p, values, qt = jnp.linalg.svd(target)
    root = np.sqrt(0.5)
    # eigenvectors of H in the order +z, -z, 0
    paired = jnp.concatenate([qt[:k].T, p[:, :k]]) * root
    mirrored = jnp.concatenate([qt[:k].T, -p[:, :k]]) * root
    alone = jnp.zeros((d_in + d_out, d_in + d_out - 2 * k))
    alone = alone.at[:d_in, : d_in - k].set(qt[k:].T).at[d_in:, d_in - k :].set(p[:, k:])
    frame = jnp.concatenate([paired, mirrored, alone], axis=1)
    rate = jnp.concatenate([values, -values, jnp.zeros(d_in + d_out - 2 * k)])
    u, s, vt = jnp.linalg.svd(a0, full_matrices=False)
    start = frame.T @ (jnp.concatenate([vt[:rank].T, u[:, :rank]]) * jnp.sqrt(s[:rank]))

    def at(time: Array) -> Array:
        total = samples * time
        steps = jnp.maximum(jnp.ceil(total * values[0] / 5), 1.0)
        dt = total / steps
        gain = jnp.exp(rate * dt)[:, None]
        safe = jnp.where(rate != 0, rate, 1.0)
        integral = jnp.where(rate != 0, jnp.expm1(2 * safe * dt) / (2 * safe), dt)[:, None]

        def step(_: int, y: Array) -> Array:
            factor = jnp.linalg.cholesky(jnp.eye(rank) + y.T @ (integral * y))
            return jax.scipy.linalg.solve_triangular(factor, (gain * y).T, lower=True).T

        q = frame @ jax.lax.fori_loop(0, steps.astype(int), step, start)
        return q[d_in:] @ q[:d_in].T

    return jax.lax.map(at, times)


# Distance and its bounds ---------------------------------------------------------------------------------------------


def distance(at: Coordinates) -> Float[Array, "..."]:
    """E_1 = 1/2 |Z_1 - A|^2 = 1/2 (s - f_1)^2 + (z_1^2 - f_1^2)/2, the functional of Theorem 20."""
    x = _terms(at)
    return (x.s - x.f1) ** 2 / 2 + x.z1**2 * (x.less_a2 + x.less_b2 - x.less_a2 * x.less_b2) / 2


class Parts(NamedTuple):
    """T_1 = 1/2 (s - f_1)^2 and T_2 = z_1 - f_1: E_1 <= T_1 + z_1 T_2 (eq. 33)."""

    size: Float[Array, "..."]
    direction: Float[Array, "..."]


def parts(at: Coordinates) -> Parts:
    """T_1 and T_2; the flow is fast where T_1 >= z_1 T_2, slow where T_1 <= z_1 T_2 (eqs. 200, 203)."""
    x = _terms(at)
    return Parts((x.s - x.f1) ** 2 / 2, x.z1 * x.less_ab)


def excess(at: Coordinates, samples: Number = 1.0) -> Float[Array, "..."]:
    """The loss above the best of rank one: n (E_1 - s g)."""
    return jnp.asarray(samples) * (distance(at) - jnp.asarray(at.s) * _terms(at).g)


def distance_rate(at: Coordinates, depth: Number, samples: Number = 1.0) -> Float[Array, "..."]:
    """dE_1/dt, exactly (`nonlocal/C13`); it can be positive, the loss's never.

    -n s^e [L (s - f_1)^2 + z_1^2 (a^2 + b^2 - 2 a^2 b^2) - L (s - f_1) g - 2 f_1 g].
    """
    x, depth = _terms(at), jnp.asarray(depth)
    gap = x.s - x.f1
    turn = x.less_a2 + x.less_b2 - 2 * x.less_a2 * x.less_b2  # a^2 + b^2 - 2 a^2 b^2
    inner = depth * gap**2 + x.z1**2 * turn - depth * gap * x.g - 2 * x.f1 * x.g
    return -jnp.asarray(samples) * x.s ** (2 - 2 / depth) * inner


def distance_rate_bound(
    at: Coordinates, depth: Number, samples: Number = 1.0, *, sharp: bool = False
) -> Float[Array, "..."]:
    """dE_1/dt <= n s^e [-2 L T_1 - 2 f_1 T_2 + sqrt 2 L gamma sqrt(T_1) T_2 + 2 z_2 T_2], all of rank one (eq. 35).

    `sharp` has 2 gamma f_1 T_2 as its last term, where f_1 >= 0.
    """
    x, depth = _terms(at), jnp.asarray(depth)
    size, direction = parts(at)
    last = jnp.where(x.f1 >= 0, x.gamma * x.f1, x.gamma * x.z1) if sharp else x.gamma * x.z1
    inner = -2 * depth * size + direction * (-2 * x.f1 + jnp.sqrt(2 * size) * depth * x.gamma + 2 * last)
    return jnp.asarray(samples) * x.s ** (2 - 2 / depth) * inner


class Envelope(NamedTuple):
    """Exponents of |Z_1 - A|^2 before and after the first time with s <= level z_1; whether the start is covered."""

    fast: Float[Array, "..."]
    slow: Float[Array, "..."]
    level: Float[Array, "..."]
    applies: Any


FORMS = ("theorem", "sharper", "sharpest")


def envelope(
    start: Coordinates, alpha: Number, beta: Number, depth: Number, samples: Number = 1.0, *, form: str = "theorem"
) -> Envelope:
    """Theorem 20 with its exponent corrected, and two sharper forms of the same proof (`nonlocal/C15`).

    Hypotheses: f_1 > alpha z_1, (alpha - gamma) z_1 < s < beta z_1, alpha in (gamma, 1), beta > 1, both exponents
    positive. "theorem": n L z_1^e [(alpha-gamma)^e - 2 gamma beta^e] and n z_1^e [alpha (alpha-gamma)^e
    - 2 gamma L beta^e], level sqrt 6. "sharper": 1/sqrt 2 + 1/L for 2, and `slow_level`. "sharpest": s^e is bounded
    last, so that beta drops out.
    """
    form = _check.choice("form", form, FORMS)
    _inside("alpha", alpha, 0.0, 1.0)
    _inside("beta", beta, 1.0, math.inf)
    _inside("depth", depth, 1.0, math.inf)
    x, depth = _terms(start), jnp.asarray(depth, dtype=jnp.float64)
    alpha, beta, n = (jnp.asarray(value, dtype=jnp.float64) for value in (alpha, beta, samples))
    e, near = 2 - 2 / depth, jnp.maximum(alpha - x.gamma, 0.0)
    unit = n * x.z1**e
    level = jnp.full_like(alpha, np.sqrt(6)) if form == "theorem" else slow_level(alpha)
    loss = 2.0 if form == "theorem" else 1 / np.sqrt(2) + 1 / depth
    if form == "sharpest":
        fast = unit * depth * level**e * (1 - x.gamma * loss)
        slow = unit * near**e * (alpha - x.gamma * depth * loss)
    else:
        fast = unit * depth * (near**e - x.gamma * loss * beta**e)
        slow = unit * (alpha * near**e - x.gamma * depth * loss * beta**e)
    inside = in_set(start, alpha, jnp.inf if form == "sharpest" else beta)
    applies = inside & (alpha > x.gamma) & (alpha < 1) & (beta > 1) & (fast > 0) & (slow > 0)
    return Envelope(fast, slow, level, applies)


def slow_level(alpha: Number) -> Float[Array, "..."]:
    """The largest s/z_1 where T_1 <= z_1 T_2: alpha + sqrt(2 (1 - alpha)), 3/2 at alpha <= 1/2; eq. 207 has sqrt 6."""
    a = jnp.maximum(jnp.asarray(alpha), 0.5)
    return a + jnp.sqrt(2 * (1 - a))


def envelope_bound(time: Number, square: Number, rates: Envelope, transition: Number) -> Float[Array, "..."]:
    """The bound of |Z_1 - A|^2 from its value at the start: fast until the transition, slow after it (eqs. 38, 39)."""
    t, t_tr = leading(time, square, rates.fast, rates.slow, transition), jnp.asarray(transition)
    early = jnp.minimum(t, t_tr)
    return jnp.asarray(square) * jnp.exp(-rates.fast * early - rates.slow * (t - early))


def in_set(at: Coordinates, alpha: Number, beta: Number = jnp.inf) -> Any:
    """Is A in N_alpha, s > (alpha - gamma) z_1 and f_1 > alpha z_1 (eq. 28); beta: also s < beta z_1 (eq. 36)."""
    _inside("alpha", alpha, 0.0, 1.0)
    x = _terms(at)
    alpha = jnp.asarray(alpha)
    return (x.s > (alpha - x.gamma) * x.z1) & (x.f1 > alpha * x.z1) & (x.s < jnp.asarray(beta) * x.z1)


def alignment_bound(theta: Number, alignment: Number, z1: Number, z2: Number) -> Float[Array, "..."]:
    """The least ab at clock theta from a_0 b_0 > 0: 1/(ab) - 1 <= (1/(a_0 b_0) - 1) exp(-2 (z_1 - z_2) theta).

    `nonlocal/C11`.
    """
    ab, t = jnp.asarray(alignment), leading(theta, alignment, z1, z2)
    return ab / (ab + (1 - ab) * jnp.exp(-2 * (jnp.asarray(z1) - jnp.asarray(z2)) * t))


# Rates ---------------------------------------------------------------------------------------------------------------


def far_rate(at: Coordinates, depth: Number, samples: Number = 1.0) -> Float[Array, "..."]:
    """-d ln|A - Z_1| / dt, about n L s^e while s is large."""
    return -distance_rate(at, depth, samples) / (2 * distance(at))


def near_rates(
    values: Any, shape: tuple[int, int], depth: int, samples: float = 1.0, rank: int = 1
) -> Float[np.ndarray, " rates"]:
    """All rates of the flow of A linearised at the balanced minimum Z_r, descending: r (d_in + d_out - r) of them.

    They are the Hessian's eigenvalues there (`landscape.spectrum`), without those of changes of basis.
    """
    depth, n = _depth(depth), _check.real("samples", samples, above=0)
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


def largest_lr(z1: Number, depth: Number, samples: Number = 1.0) -> Float[Array, "..."]:
    """Descent is stable at the balanced minimum of rank one below 2 / (n L z_1^e)."""
    _inside("depth", depth, 1.0, math.inf)
    depth = jnp.asarray(depth)
    return 2 / (jnp.asarray(samples) * depth * jnp.asarray(z1) ** (2 - 2 / depth))


# Escape from small starts --------------------------------------------------------------------------------------------


def escape_time(start: Coordinates, depth: int, samples: float = 1.0) -> float:
    """T = s_0^{-(1-2/L)} / n int_0^inf nu^{-(L-2)} d theta, the time to leave the origin as s_0 -> 0.

    L >= 3 (two layers take a logarithmic time); any start with a limit other than zero, also with f_0 < 0, where it may
    be more than the largest number.
    """
    depth = _check.integer("depth", depth, least=3, reason="two layers leave in logarithmic time: use passage_time")
    n = _check.real("samples", samples, above=0)
    s, a, b, z = (np.asarray(x, dtype=float) for x in start)
    if not z[0] > 0:
        raise InputError("start has a target of zero: there is nothing to escape to.")
    rate, weight = np.concatenate([z, -z]) / z[0], np.concatenate([(a + b) ** 2, (a - b) ** 2]) / 4
    top = rate[weight > 0].max()
    if top <= 0:
        raise InputError("start tends to zero: a_i + b_i must differ from 0 for some z_i > 0.")

    power, at, total, last = depth - 2, 0.0, 0.0, np.inf
    # the integrand has one maximum, so what is small after it stays small
    while total < np.inf and not last < 1e-17 * total:
        shares = weight * np.exp(2 * (rate - top) * at)
        f = float(rate @ shares / np.sum(shares))
        step = 2 / max(4.0, power * abs(f), power**0.5)  # f' <= 2: the exponent changes by 6 at most
        theta = at + step * _NODES
        log_norm = top * theta + np.log(weight @ np.exp(2 * np.multiply.outer(rate - top, theta))) / 2
        with np.errstate(over="ignore"):
            values = np.exp(-power * log_norm)
        total, at = total + step * float(_WEIGHTS @ values), at + step
        last = step * float(values[-1]) if values[-1] < values[0] else np.inf
    return total / (n * z[0] * float(s) ** (1 - 2 / depth))


def escape_time_aligned(strength: Number, z1: Number, depth: Number, samples: Number = 1.0) -> Float[Array, "..."]:
    """s_0^{-(1-2/L)} / (n (L-2) z_1) where u_0 = p_1 and v_0 = q_1."""
    depth = jnp.asarray(depth)
    return jnp.asarray(strength) ** (2 / depth - 1) / (jnp.asarray(samples) * (depth - 2) * jnp.asarray(z1))


def escape_time_one_output(
    strength: Number, alignment: Number, z1: Number, depth: int, samples: Number = 1.0
) -> Float[Array, "..."]:
    """One output, depth 3 or 4, b_0 the cosine of A_0 and Z.

    L = 4: s_0^{-1/2} / (n z_1 (1 + b_0)). L = 3: s_0^{-1/3} acos(b_0) / (n z_1 sqrt(1 - b_0^2)).
    """
    depth = _check.integer("depth", depth, least=3, most=4)
    b = jnp.asarray(alignment)
    sine = jnp.sqrt((1 - b) * (1 + b))
    angle = jnp.arctan2(sine, b)
    # angle / sine -> 1 at b = 1
    integral = 1 / (1 + b) if depth == 4 else jnp.where(sine > 0, angle / jnp.where(sine > 0, sine, 1.0), 1.0)
    return jnp.asarray(strength) ** (2 / depth - 1) * integral / (jnp.asarray(samples) * jnp.asarray(z1))


def _times(time: Number) -> Array:
    t = jnp.asarray(time, dtype=jnp.float64)
    if not _check.traced(t) and not bool(jnp.all((t >= 0) & (t < jnp.inf))):
        raise InputError(f"time = {_check.show(time)} is not allowed: times must be finite and at least 0.")
    return t


def _depth(depth: Any) -> int:
    return _check.integer("depth", depth, least=2)


def _inside(name: str, value: Number, low: float, high: float) -> None:
    """Refuses what lies outside an open interval, where the value is known; 0 is allowed as the lower end."""
    if _check.traced(value):
        return
    x = np.asarray(value, dtype=float)
    if not np.all(((x > low) | ((low == 0) & (x == 0))) & (x < high)):
        allowed = f"from {low:g} to below {high:g}" if math.isfinite(high) else f"above {low:g}"
        raise InputError(f"{name} = {_check.show(value)} is not allowed: {name} must be {allowed}.")
