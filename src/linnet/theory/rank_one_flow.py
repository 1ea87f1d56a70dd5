"""The gradient flow of balanced deep networks of bottleneck one on whitened data, marched at Radau nodes.

A = s u v^T has L layers, Z = sum_i z_i p_i q_i^T is the target, the loss is (n/2) |A - Z|^2. All is expressed in the
singular vectors of Z: a_i = <u, p_i>, b_i = <v, q_i>. Rates and bounds of this flow are in `convergence`.

Arguments: `samples` is n, `depth` L; an initial matrix is `strength` s_0 times the outer product of the vectors `left`
u_0 and `right` v_0, and `target` is Z; `at` and `initial` are points of the flow as `Coordinates`.
"""

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float
from numpy.polynomial import legendre

from linnet import _check
from linnet._check import InputError
from linnet.theory._formula import Number, cond, evaluate, in_doubles, scan, while_loop
from linnet.theory._times import leading

Values = Array | np.ndarray


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
    """The coordinates of s u v^T against Z, and the bases that lead back; u and v are normalized."""
    s = _check.real("strength", strength, above=0)
    z = np.asarray(_check.double("target", target, ndim=2))
    d_out, d_in = z.shape
    u = np.asarray(_check.double("left", left, ndim=1, shape=(d_out,)))
    v = np.asarray(_check.double("right", right, ndim=1, shape=(d_in,)))
    for name, vector in (("left", u), ("right", v)):
        if not np.any(vector):
            raise InputError(f"{name} is zero: it must be a direction.")
    u, v = u / np.max(np.abs(u)), v / np.max(np.abs(v))  # squares of tiny numbers must not underflow
    p, values, qt = np.linalg.svd(z)
    d = max(z.shape)

    def filled(x: np.ndarray) -> np.ndarray:
        return np.concatenate([x, np.zeros(d - x.shape[0])])

    a, b = p.T @ (u / np.linalg.norm(u)), qt @ (v / np.linalg.norm(v))
    return Coordinates(np.asarray(s), filled(a), filled(b), filled(values)), Frames(p, qt.T)


# The flow in closed form ---------------------------------------------------------------------------------------------

# Radau nodes on [0, 1] (1 is one of them), weights, and the matrix of integrals from 0 to each node
_ORDER = 16
_RADAU = [0] * (_ORDER - 1) + [1, -1]  # P_15 - P_16 vanishes at them
_X = np.real(legendre.legroots(_RADAU))  # complex from NumPy 2.5 on
_X -= legendre.legval(_X, _RADAU) / legendre.legval(_X, legendre.legder(_RADAU))
_POLYNOMIALS = legendre.legvander(_X, _ORDER)
NODES, WEIGHTS = (_X + 1) / 2, (_X + 1) / _POLYNOMIALS[:, -2] ** 2
WEIGHTS /= np.sum(WEIGHTS)
_STEPS = (_POLYNOMIALS[:, 2:] - _POLYNOMIALS[:, :-2]) / (2 * (2 * np.arange(1, _ORDER) + 1))
_INTEGRALS = np.column_stack([NODES, _STEPS])
_TO_NODES = _INTEGRALS @ ((2 * np.arange(_ORDER) + 1) * _POLYNOMIALS[:, :_ORDER] * WEIGHTS[:, None]).T
# the last two Legendre coefficients of the polynomial through the nodes and through 0 at 0
_LAST = np.linalg.inv(legendre.legvander(np.append(-1.0, _X), _ORDER))[-2:, 1:]

_SHARE, _LEVEL = 1e-17, 1e-14  # below these the directions and the size have settled
_ROUGH = 1e-12  # last coefficients of a panel that is short enough; what is integrated is far better
_LOST = 1e305  # 1/s beyond which s counts as zero


class ModesFlow(NamedTuple):
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

    def shares(self, xp: Any, theta: Array) -> Array:
        """weight exp(2 (rate - top) theta) at each theta: nothing overflows."""
        return self.weight * xp.exp(2 * self.lag * xp.asarray(theta)[..., None])

    def log_norm(self, xp: Any, theta: Array) -> Array:
        """log nu - top theta."""
        return xp.log(xp.sum(self.shares(xp, theta), axis=-1)) / 2

    def f(self, xp: Any, theta: Array) -> Array:
        """u^T Z v."""
        shares = self.shares(xp, theta)
        return xp.sum(self.rate * shares, axis=-1) / xp.sum(shares, axis=-1)

    def settled(self, xp: Any, theta: Array) -> Array:
        """Whether only the largest rate is left."""
        shares = self.shares(xp, theta)
        return xp.sum(xp.where(self.lag < 0, shares, 0.0)) < _SHARE * xp.sum(shares)


def _plane(xp: Any, a: Array, b: Array, z: Array) -> _Plane:
    weight, rate = xp.concatenate([(a + b) ** 2, (a - b) ** 2]) / 4, xp.concatenate([z, -z])
    top = xp.max(xp.where(weight > 0, rate, -np.inf))
    lag = xp.where(top - rate > 4e-16 * xp.abs(top), rate - top, 0.0)
    return _Plane(weight, xp.minimum(rate, top), top, lag)


class _Spot(NamedTuple):
    """Where the march stands: theta, w = 1/s and t in units with z_1 = 1 and n = 1, and the next panel's length."""

    theta: Array
    w: Array
    t: Array
    reach: Array


def _beginning(xp: Any, plane: _Plane, w: Array, depth: Array) -> _Spot:
    """The start; over the first panel w^{1-2/L}, with a branch point at about w/L, and nu^L are smooth."""
    zero = xp.zeros(())
    return _Spot(zero, w, zero, 0.5 / (depth * xp.maximum(xp.max(xp.abs(plane.rate)), 1 / w)))


def _panel(xp: Any, plane: _Plane, spot: _Spot, length: Array, depth: Array) -> tuple[_Spot, Array]:
    """One panel: w' = L (1 - f w) by collocation and t = int w^{1-2/L}; how rough both are on it.

    The equation is linear, so that w is one small solve; at Radau nodes it is right for panels much longer than the
    1/(L f) in which w forgets where it was, once it has.
    """
    f = plane.f(xp, spot.theta + length * NODES)
    system = depth * length * _TO_NODES
    change = xp.linalg.solve(np.eye(_ORDER) + system * f, system @ (1 - f * spot.w))
    w = spot.w + change
    order = 1 - 2 / depth
    rate = w**order

    def rough(values: Array, before: Array) -> Array:
        return xp.max(xp.abs(_LAST @ (values - before))) / xp.min(values)

    worst = xp.maximum(rough(w, spot.w), rough(rate, spot.w**order))
    end = _Spot(spot.theta + length, w[-1], spot.t + length * (WEIGHTS @ rate), length)
    return end, xp.where(xp.min(w) > 0, worst, np.inf)


def _step(xp: Any, plane: _Plane, spot: _Spot, depth: Array) -> _Spot:
    """The next panel, as long as its polynomials allow.

    It cannot step over what it should see. f increases (log nu is convex), so that where f < 0 the growth of w shows,
    and once w has found 1/f whatever happens to f stays.
    """
    lost = spot.w >= _LOST

    def attempt(tried: tuple[_Spot, Array]) -> tuple[_Spot, Array]:
        length = tried[0].reach
        end, rough = _panel(xp, plane, spot, length, depth)
        rough = xp.nan_to_num(rough, nan=np.inf, posinf=np.inf)
        return end._replace(reach=length * xp.clip(0.9 * (_ROUGH / rough) ** (1 / _ORDER), 0.2, 3.0)), rough

    far = xp.asarray(np.inf)
    # no length is short enough for what is not a number
    end, rough = while_loop(xp, lambda tried: (tried[1] > _ROUGH) & (tried[0].reach > 0) & ~lost, attempt, (spot, far))
    return end._replace(w=xp.where(lost, far, xp.where(rough > _ROUGH, xp.nan, end.w)))


def _unit(xp: Any, s: Array, z: Array) -> Array:
    """The size that everything is measured in: z_1, or s_0 where the target is zero."""
    return xp.where(xp.max(z) > 0, xp.max(z), s)


def _march(xp: Any, times: Array, s: Array, a: Array, b: Array, z: Array, depth: Array, samples: Array) -> ModesFlow:
    unit = _unit(xp, s, z)
    speed = samples * unit ** (2 - 2 / depth)
    plane = _plane(xp, a, b, z / unit)

    def step(spot: _Spot) -> _Spot:
        return _step(xp, plane, spot, depth)

    def done(spot: _Spot) -> Array:
        """From here on s = f and nothing changes any more, or s is zero."""
        level = xp.abs(1 - plane.f(xp, spot.theta) * spot.w) < _LEVEL
        return (plane.settled(xp, spot.theta) & (plane.top > 0) & level) | ~xp.isfinite(spot.w)

    def visit(carry: tuple[_Spot, _Spot], goal: Array) -> tuple[tuple[_Spot, _Spot], _Spot]:
        spot, end = while_loop(
            xp, lambda pair: (pair[1].t < goal) & ~done(pair[0]), lambda pair: (pair[1], step(pair[1])), carry
        )
        length, left = end.theta - spot.theta, goal - spot.t

        def newton(found: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            count, x, _ = found
            here = _panel(xp, plane, spot, x, depth)[0]
            new = xp.clip(x + (goal - here.t) * here.w ** (2 / depth - 1), 0.0, length)
            return count + 1, new, xp.abs(new - x)

        guess = length * xp.clip(left / xp.where(end.t > spot.t, end.t - spot.t, 1.0), 0.0, 1.0)
        # a step of 1e-8 leaves 1e-16; where the panel's time is lost in t it never ends
        found = while_loop(
            xp, lambda found: (found[0] < 12) & (found[2] > 1e-8 * length), newton, (xp.zeros((), int), guess, length)
        )
        inside = _panel(xp, plane, spot, found[1], depth)[0]
        lost = ~xp.isfinite(end.w)  # s is below the smallest number
        size = xp.where(lost, end.w, 1 / plane.f(xp, spot.theta))
        still = _Spot(spot.theta + left * spot.w ** (2 / depth - 1), size, goal, end.reach)
        visited = jax.tree.map(lambda p, q: xp.where(done(spot) | lost, p, q), still, inside)
        return (spot, end), visited

    initial = _beginning(xp, plane, unit / s, depth)
    flat = times.reshape(-1)
    order = xp.argsort(flat)
    _, visited = scan(xp, visit, (initial, initial), speed * flat[order])
    back = xp.argsort(order)
    theta, w = (x[back].reshape(times.shape) for x in (visited.theta, visited.w))
    grown = xp.exp(plane.lag * theta[..., None] - plane.log_norm(xp, theta)[..., None])
    up, down = (a + b) / 2 * grown[..., : a.shape[0]], (a - b) / 2 * grown[..., a.shape[0] :]
    return ModesFlow(Coordinates(unit / w, up + down, up - down, xp.broadcast_to(z, up.shape)), theta / unit)


_FEW = 64  # times that are marched to without a compiler


@in_doubles
def modes(time: Number, initial: Coordinates, depth: Number, samples: Number = 1.0) -> ModesFlow:
    """The whole gradient flow from a balanced rank-one start in closed form, in singular coordinates.

    In the clock theta the directions follow a linear flow without the depth in it, a_i +- b_i growing as
    exp(+- z_i theta) under one norm nu, and 1/s = nu^{-L} (1/s_0 + L int nu^L). That is marched over panels of 16 Radau
    nodes, each as long as its polynomials allow, and t(theta) is inverted by Newton. The cost depends neither on the
    width nor, but for log L panels at the start, on the depth: panels are as short as 1/(L f) only until the start is
    forgotten, and where s falls like exp(-L theta) they are no more than the logarithm of the smallest number allows.
    Nothing overflows or cancels, from s_0 = 1e-300 to 1e300. Batch starts, depths and samples with `jax.vmap`.
    """
    t = _check.numbers("time", time, least=0)
    length = _check.number("depth", depth, least=2)
    count = _check.number("samples", samples, above=0)
    place = one_initial(initial)
    return evaluate(_march, t, *place, length, count, few=_FEW * place.a.shape[0])


def rank_one(
    time: Number, strength: float, left: Any, right: Any, target: Any, depth: int, samples: float = 1.0
) -> RankOneFlow:
    """The gradient flow of a balanced network of any widths from A_0 = s_0 u_0 v_0^T, at any times."""
    initial, frames = coordinates(strength, left, right, target)
    flow = modes(time, initial, whole_depth(depth), samples)
    u, v = (np.asarray(_check.double(name, x, ndim=1)) for name, x in (("left", left), ("right", right)))
    u, v = u / np.max(np.abs(u)), v / np.max(np.abs(v))  # squares of tiny numbers must not underflow
    return evaluate(_rotated_back, flow, initial, frames, u / np.linalg.norm(u), v / np.linalg.norm(v))


def _rotated_back(xp: Any, flow: ModesFlow, initial: Coordinates, frames: Frames, u: Array, v: Array) -> RankOneFlow:
    """What has changed is turned back: the start itself would not survive both turns to the last digit."""
    d_out, d_in = frames.left.shape[0], frames.right.shape[0]
    u = u + (flow.at.a - initial.a)[..., :d_out] @ frames.left.T
    v = v + (flow.at.b - initial.b)[..., :d_in] @ frames.right.T
    return RankOneFlow(xp.asarray(flow.at.s), u, v, flow.theta)


def _passage(xp: Any, level: Array, s: Array, a: Array, b: Array, z: Array, depth: Array, samples: Array) -> Array:
    unit = _unit(xp, s, z)
    plane = _plane(xp, a, b, z / unit)
    goal = unit / level  # in w
    initial = _beginning(xp, plane, unit / s, depth)
    rising = goal < initial.w

    def before(spot: _Spot) -> Array:
        return xp.where(rising, spot.w > goal, spot.w < goal)

    def never(spot: _Spot) -> Array:
        level = xp.abs(1 - plane.f(xp, spot.theta) * spot.w) < _LEVEL
        return plane.settled(xp, spot.theta) & (level | (rising & (plane.top <= 0))) | ~xp.isfinite(spot.w + spot.t)

    def slope(spot: _Spot) -> Array:
        return 1 - plane.f(xp, spot.theta) * spot.w

    def turning(spot: _Spot, length: Array) -> _Spot:
        """Where s turns inside a panel, by bisection; there it is flat, so that half the digits give all of it."""

        def halve(found: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            count, low, high = found
            middle = (low + high) / 2
            same = slope(_panel(xp, plane, spot, middle, depth)[0]) * slope(spot) > 0
            return count + 1, xp.where(same, middle, low), xp.where(same, high, middle)

        _, low, _ = while_loop(xp, lambda found: found[0] < 30, halve, (xp.zeros((), int), xp.zeros(()), length))
        return _panel(xp, plane, spot, low, depth)[0]

    def step(spot: _Spot) -> _Spot:
        """The next panel, or the part of it up to a turning point that has passed the level."""
        end = _step(xp, plane, spot, depth)
        missed = ~rising & before(end) & (slope(spot) * slope(end) < 0)
        top = cond(xp, missed, lambda: turning(spot, end.theta - spot.theta), lambda: spot)
        return jax.tree.map(lambda p, q: xp.where(before(top), q, p), top, end)

    spot, end = while_loop(
        xp, lambda pair: before(pair[1]) & ~never(pair[1]), lambda pair: (pair[1], step(pair[1])), (initial, initial)
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
        new = Guess(x, xp.log(_panel(xp, plane, spot, x, depth)[0].w / goal))
        other = jax.tree.map(lambda p, q: xp.where(new.gap * last.gap < 0, p, q), last, Guess(other.x, other.gap / 2))
        return count + 1, other, new

    ends = Guess(xp.zeros(()), xp.log(spot.w / goal)), Guess(length, xp.log(end.w / goal))
    found = while_loop(
        xp, lambda found: (found[0] < 40) & (xp.abs(found[2].gap) > 4e-16), narrow, (xp.zeros((), int), *ends)
    )
    here = _panel(xp, plane, spot, found[2].x, depth)[0]
    time = here.t / (samples * unit ** (2 - 2 / depth))
    return xp.where(before(initial), xp.where(before(end), np.inf, time), 0.0)


def passage_time(level: Number, initial: Coordinates, depth: Number, samples: Number = 1.0) -> Float[Array, ""]:
    """The first time at which s passes `level`, up or down; infinite if it never does. Turning points are located."""
    place, high = one_initial(initial), _check.number("level", level, above=0)
    numbers = _check.number("depth", depth, least=2), _check.number("samples", samples, above=0)
    return evaluate(_passage, high, *place, *numbers, few=_FEW * place.a.shape[0])


def transition_time(
    initial: Coordinates, depth: Number, samples: Number = 1.0, level: Number = 6**0.5
) -> Float[Array, ""]:
    """t_tr, the first time with s <= level z_1; 0 if it is so from the start (Theorem 20; 3/2 will do for sqrt 6)."""
    place, share = one_initial(initial), _check.number("level", level, above=0)
    numbers = _check.number("depth", depth, least=2), _check.number("samples", samples, above=0)
    return evaluate(_transition, share, *place, *numbers, few=_FEW * place.a.shape[0])


def _transition(xp: Any, level: Array, s: Array, a: Array, b: Array, z: Array, depth: Array, samples: Array) -> Array:
    threshold = level * z[0]
    below = s <= threshold
    # a start below is replaced by one at the threshold, which takes no time; no target is never reached
    goal = xp.maximum(threshold, 1e-300)
    time = _passage(xp, goal, xp.where(below, goal, s), a, b, z, depth, samples)
    return xp.where(z[0] > 0, xp.where(below, 0.0, time), np.inf)


def aligned(time: Number, initial: Number, target: Number, depth: int, samples: float = 1.0) -> Float[Array, "..."]:
    """s(t) of one aligned mode, ds/dt = -n L s^e (s - z); a negative target is a mode of the wrong sign.

    `initial` is s at time 0, `target` is z.
    """
    given = _check.numbers("initial", initial, above=0), _check.numbers("target", target)
    _check.matching(initial=given[0], target=given[1])
    numbers = float(whole_depth(depth)), _check.number("samples", samples, above=0)
    return evaluate(_aligned, _check.numbers("time", time, least=0), *given, *numbers, few=_FEW)


def _aligned(xp: Any, t: Array, s: Array, z: Array, depth: Array, samples: Array) -> Array:
    one = xp.ones(1)

    def mode(t: Array, s: Array, z: Array) -> Array:
        sign = xp.where(z < 0, -1.0, 1.0)
        return xp.asarray(_march(xp, t, s, sign * one, one, xp.abs(z)[None], depth, samples).at.s)

    given = xp.broadcast_arrays(leading(t, s, z), s, z)
    flat = [x.reshape(-1) for x in given]
    found = np.array([mode(*one) for one in zip(*flat, strict=True)]) if xp is np else jax.vmap(mode)(*flat)
    return xp.asarray(found).reshape(given[0].shape)


# Checks --------------------------------------------------------------------------------------------------------------


def known(at: Any, name: str = "at") -> Coordinates:
    """Coordinates that can be: sizes and values not negative, directions no longer than 1, values that descend.

    `name` is how a message calls the argument.
    """
    if not isinstance(at, tuple) or len(at) != 4:
        raise InputError(f"{name} = {_check.show(at)} is not allowed: {name} must be Coordinates(s, a, b, z).")
    s, z = (_check.numbers(f"{name}.{part}", x, least=0) for part, x in (("s", at[0]), ("z", at[3])))
    a, b = (_check.numbers(f"{name}.{part}", x) for part, x in (("a", at[1]), ("b", at[2])))
    _check.matching(
        **{f"{name}.{part}": x for part, x in (("s", np.empty((*s.shape, 1))), ("a", a), ("b", b), ("z", z))}
    )
    if len({x.shape[-1:] for x in (a, b, z)}) > 1 or not a.shape[-1:] or 0 in a.shape[-1:]:
        raise InputError(
            f"{name} has a, b and z of shapes {a.shape}, {b.shape} and {z.shape}: they must have one length."
        )
    if not _check.traced((a, b)) and any(np.any(np.sum(np.asarray(x) ** 2, axis=-1) > 1 + 1e-6) for x in (a, b)):
        raise InputError(f"{name}.a and {name}.b must be parts of unit vectors: they are longer than 1.")
    if not _check.traced(z) and np.any(np.diff(np.asarray(z), axis=-1) > 0):
        raise InputError(f"{name}.z is not allowed: it must descend.")
    return Coordinates(s, a, b, z)


def one_initial(initial: Any) -> Coordinates:
    """The coordinates of one rank-one matrix: s > 0 and unit vectors."""
    s, a, b, z = found = known(initial, "initial")
    if s.ndim != 0 or a.ndim != 1 or b.ndim != 1 or z.ndim != 1:
        raise InputError(
            f"initial has shapes {s.shape}, {a.shape}, {b.shape} and {z.shape}: it must be one number and three "
            "vectors of one length; batch with jax.vmap."
        )
    if not _check.traced(s) and float(s) <= 0:
        raise InputError(f"initial.s = {_check.show(s)} is not allowed: initial.s must be above 0.")
    if not _check.traced((a, b)) and any(abs(np.sum(np.asarray(x) ** 2) - 1) > 1e-6 for x in (a, b)):
        raise InputError("initial.a and initial.b are not allowed: they must be unit vectors.")
    return found


def whole_depth(depth: Any) -> int:
    """`depth` if it is a whole number of at least 2."""
    return _check.integer("depth", depth, least=2)
