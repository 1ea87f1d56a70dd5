"""Non-local convergence: the closed form against brute force, and every rate and bound against a second computation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

import linnet as ln
from linnet.theory import convergence, mixed, rank_one_flow
from linnet.theory.convergence import Coordinates

SHAPES = ((4, 4), (1, 4), (4, 2), (3, 4), (4, 1))  # all of one padded size: one program


def brute(times, strength, left, right, target, depth, samples):
    """The flow of (x, w, y), by an eighth-order integrator."""
    d_in = target.shape[1]
    root = strength ** (1 / depth)

    def velocity(_, state):
        x, y, w = state[:d_in], state[d_in:-1], state[-1]
        force = samples * (target - w ** (depth - 2) * np.outer(y, x))
        pushed = force @ x
        inner = w ** (depth - 3) * (y @ pushed) if depth > 2 else 0.0
        return np.concatenate([w ** (depth - 2) * (y @ force), w ** (depth - 2) * pushed, [inner]])

    initial = root * np.concatenate([right, left, [1.0]])
    run = solve_ivp(
        velocity, (0, times[-1]), initial, t_eval=times, method="DOP853", rtol=3e-14, atol=1e-17 * root,
        first_step=1e-9 * times[-1],
    )  # fmt: skip
    return np.array([y[-1] ** (depth - 2) * np.outer(y[d_in:-1], y[:d_in]) for y in run.y.T])


def directions(rng, shape):
    u, v = rng.normal(size=shape[0]), rng.normal(size=shape[1])
    return u / np.linalg.norm(u), v / np.linalg.norm(v)


def relative(a, b):
    return max(np.max(np.abs(x - y)) / np.max(np.abs(y)) for x, y in zip(np.asarray(a), np.asarray(b), strict=True))


def random_states(count, d=4, seed=0):
    """Coordinates of random matrices of rank one against random targets, ab of any sign."""
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(2, count, d)) * 10 ** rng.uniform(-3, 0, size=(2, count, 1)) + 0.0
    a[:, 0], b[:, 0] = rng.normal(size=(2, count))
    a, b = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (a, b))
    z = np.sort(rng.uniform(0, 1, size=(count, d)), axis=1)[:, ::-1] * 10 ** rng.uniform(-1, 1, size=(count, 1))
    z[::3, 1:] *= 0.1
    return Coordinates(z[:, 0] * 10 ** rng.uniform(-3, 2, size=count), a, b, z)


# The flow ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(25))
def test_closed_form_is_the_flow(seed):
    """Depths 2 to 10, all shapes, small and large starts on both sides of the target."""
    rng = np.random.default_rng(seed)
    depth, shape = 2 + seed % 9, SHAPES[seed % len(SHAPES)]
    target = rng.normal(size=shape) * 10 ** rng.uniform(-1, 1)
    if seed % 4 == 0:
        target = np.outer(target[:, 0], target[0])
    u, v = directions(rng, shape)
    if (u @ target @ v > 0) == (seed % 3 == 0):
        u = -u  # a third is anti-correlated
    z1, n = np.linalg.norm(target, 2), rng.uniform(1, 20)
    s = z1 * (1e-7, 1e-4, 1e-2, 0.3, 1.0, 10.0, 30.0)[seed % 7]
    initial, _ = convergence.coordinates(s, u, v, target)
    end = float(convergence.passage_time(0.9 * z1 if s < z1 else 1.1 * z1, initial, depth, n))
    unit = 1 / (n * z1 ** (2 - 2 / depth))
    end = min(end, 2e4 * unit) if np.isfinite(end) else 3 * unit
    times = np.array([0.3 * end, 0.9 * end, 0.99 * end, end, end + 2 * unit])
    flow = convergence.rank_one(times, s, u, v, target, depth, n)
    assert relative(flow.matrix, brute(times, s, u, v, target, depth, n)) < 1e-9
    assert np.allclose(np.linalg.norm(flow.u, axis=1), 1, atol=1e-13)


def marched(thetas, initial, depth):
    """1/s and t at ascending thetas: 1/s = nu^{-L} (1/s_0 + L int nu^L) as it stands, on panels below 1/(2 L)."""
    s, a, b, z = initial
    weight, rate = np.concatenate([(a + b) ** 2, (a - b) ** 2]) / 4, np.concatenate([z, -z])
    x, weights = np.polynomial.legendre.leggauss(16)
    nodes, weights = (x + 1) / 2, weights / 2
    powers = np.vander(x, 16, increasing=True)
    integrals = (powers * x[:, None] - (-1.0) ** np.arange(1, 17)) / np.arange(1, 17) / 2
    to_nodes = np.linalg.solve(powers.T, integrals.T).T
    theta, w, t, seen = 0.0, 1 / float(s), 0.0, []
    for goal in thetas:
        while theta < goal:
            step = min(0.5 / (depth * max(1.0, 1 / w)), goal - theta)
            # nu's growth over the panel alone, so that its logarithm keeps its digits
            now = weight * np.exp(2 * (rate - 1) * theta)
            ends = step * np.append(nodes, 1.0)
            power = depth / 2 * np.log1p(np.expm1(2 * np.multiply.outer(ends, rate)) @ now / np.sum(now))
            grown = np.exp(power[:-1])
            pace = np.exp(-power[:-1]) * (w + depth * step * to_nodes @ grown)
            t += step * float(weights @ pace ** (1 - 2 / depth))
            w = float(np.exp(-power[-1]) * (w + depth * step * weights @ grown))
            theta = theta + step if step < goal - theta else goal
        seen.append((w, t))
    return np.array(seen).T


@given(
    st.sampled_from([2, 9, 100, 700]),
    st.sampled_from(["correlated", "hardly", "against"]),
    st.sampled_from(["plain", "repeated", "deficient"]),
    st.floats(-8, -0.1) | st.floats(0.1, 3),
    st.integers(0, 10**6),
)
def test_deep_flow_is_the_formula(depth, kind, spectrum, scale, seed):
    """Any depth, correlation, spectrum and size: s and t at the clock that is returned."""
    rng = np.random.default_rng(seed)
    z = np.append(1.0, np.sort(rng.uniform(0.1, 0.9, size=3))[::-1])
    z = {"plain": z, "repeated": z[[0, 0, 1, 1]], "deficient": z * [1, 1, 0, 0]}[spectrum]
    a, b = directions(rng, (4, 4))
    pull = z * a
    if kind == "hardly":
        b = b - (pull @ b - 1e-4) / (pull @ pull) * pull
        b = b / np.linalg.norm(b)
    elif (pull @ b > 0) == (kind == "against"):
        b = -b
    initial = Coordinates(np.asarray(10**scale), a, b, z)
    level = 0.9 if scale < 0 else 1.1
    end = min(float(convergence.passage_time(level, initial, depth)), 1e100)
    times = end * np.array([1e-3, 0.1, 0.9, 1.0, 1.0]) + np.array([0, 0, 0, 0, 1.0])
    flow = convergence.modes(times, initial, depth)
    w, t = marched(np.asarray(flow.theta), initial, depth)
    assert np.allclose(np.asarray(flow.at.s) * w, 1, rtol=0, atol=1e-10)
    assert np.allclose(times / t, 1, rtol=0, atol=1e-10)
    if end < 1e4:  # a time has sixteen digits, and s moves in 1/L of its unit
        assert flow.at.s[3] == pytest.approx(level, rel=1e-9)


def panels(initial, depth):
    """How many panels the flow takes until it rests or is lost."""
    plane = rank_one_flow._plane(np, *initial[1:])
    spot, count = rank_one_flow._beginning(np, plane, 1 / initial.s, depth), 0

    def rests(theta, w):
        return plane.settled(np, theta) and abs(1 - plane.f(np, theta) * w) < 1e-14

    with np.errstate(all="ignore"):
        while np.isfinite(spot.w) and not rests(spot.theta, spot.w):
            spot, count = rank_one_flow._step(np, plane, spot, depth), count + 1
            assert count < 1000
    return count


def test_price_does_not_grow_with_depth():
    """Two panels at the start for each tripling of depth; where s falls to the smallest number a bounded count."""
    z = np.array([1.0, 0.6, 0.3, 0.1])
    a = np.array([0.5, 0.5, 0.5, 0.5])
    for b, most in ((a, 65), (a * [1, -1, -1, 1], 65), (a * [-0.9, -1, 1, -1], 270)):
        for s in (1e-8, 0.5, 1e3):
            initial = Coordinates(np.asarray(s), a, b / np.linalg.norm(b), z)
            counts = [panels(initial, depth) for depth in (1e2, 1e3, 1e6)]
            assert max(counts) <= most
    # and the values are right: one aligned mode by quadrature, and s at the time of a passage
    for depth in (10**3, 10**6):
        alone = Coordinates(np.asarray(1e-3), np.eye(4)[0], np.eye(4)[0], z)
        time = convergence.aligned_time(1e-3, 0.9, 1.0, depth)
        assert convergence.passage_time(0.9, alone, float(depth)) == pytest.approx(time, rel=1e-10)
        close = Coordinates(np.asarray(0.3), a, a, np.array([1.0, 1 - 1e-6, 0.5, 0.2]))
        when = float(convergence.passage_time(1 - 1e-7, close, float(depth)))
        assert convergence.modes(np.full(5, when), close, float(depth)).at.s[0] == pytest.approx(1 - 1e-7, rel=1e-14)
        # s follows f = u^T Z v at a distance of 1/L
        at = convergence.modes(np.linspace(1, 9, 5), close, float(depth)).at
        f = np.sum(np.asarray(at.z) * np.asarray(at.a) * np.asarray(at.b), axis=1)
        assert np.allclose(at.s, f, rtol=1 / depth)


def test_elementary_cases():
    """Two layers and one output in closed form; a mode of its own; no target; sizes from 1e-8 to 1e3."""
    t = np.linspace(0, 3, 5)
    for s, z in ((1e-8, 1.0), (5.0, 0.3), (0.2, 1e3)):
        right = z / (1 + (z / s - 1) * np.exp(-2 * 4.0 * z * t))
        assert relative(convergence.aligned(t, s, z, 2, 4.0)[:, None], right[:, None]) < 1e-12
    for depth in (2, 3, 7):
        e = 2 - 2 / depth
        right = (0.7**-e + 4.0 * depth * e * t) ** (-1 / e)
        assert relative(convergence.aligned(t, 0.7, 0.0, depth, 4.0)[:, None], right[:, None]) < 1e-12
        wrong = np.asarray(convergence.aligned(t, 0.7, -0.5, depth, 4.0))
        assert np.all(np.diff(wrong) < 0)
        assert np.all(wrong < right + 1e-15)
        for end in (0.8, 1.9):
            time = convergence.aligned_time(0.1, end, 2.0, depth, 4.0)
            assert convergence.aligned(time, 0.1, 2.0, depth, 4.0) == pytest.approx(end, rel=1e-10)
            alone = Coordinates(np.asarray(0.1), np.ones(1), np.ones(1), np.array([2.0]))
            assert convergence.passage_time(end, alone, depth, 4.0) == pytest.approx(time, rel=1e-10)
    # one output: b = tanh(atanh b_0 + z theta)
    target, u, v = np.array([[0.0, 0.0, 0.0, 2.0]]), np.array([1.0]), np.array([0.8, 0.0, 0.0, 0.6])
    flow = convergence.rank_one(t, 1e-3, u, v, target, 5, 3.0)
    assert np.allclose(flow.u[:, 0] * flow.v[:, 3], np.tanh(np.arctanh(0.6) + 2 * flow.theta), rtol=1e-13)
    # theta = n t for two layers, in any units
    for unit in (1e-8, 1.0, 1e3):
        two = convergence.rank_one(t, 0.1, u, v, target, 2, 3.0)
        scaled = convergence.rank_one(t / unit, 0.1 * unit, u, v, target * unit, 2, 3.0)
        assert np.allclose(two.theta, 3 * t, rtol=1e-13)
        assert relative(scaled.matrix / unit, two.matrix) < 1e-12
        assert convergence.scaled_time(1.0, unit, 4, 3.0) == pytest.approx(3 * unit**1.5)


def test_times_in_any_order_and_for_ever():
    rng = np.random.default_rng(2)
    target = rng.normal(size=(3, 4))
    u, v = directions(rng, target.shape)
    times = np.array([0.5, 0.0, 3.0, 0.1, 1e12])
    flow = convergence.rank_one(times, 0.1, u, v, target, 4, 2.0)
    for i in range(5):
        one = convergence.rank_one(times[[i] * 5], 0.1, u, v, target, 4, 2.0)
        assert relative(one.matrix[:1], flow.matrix[i : i + 1]) < 1e-13
    assert relative(flow.matrix[1:2], [0.1 * np.outer(u, v)]) < 1e-15
    p, z, qt = np.linalg.svd(target)
    assert relative(flow.matrix[4:], [z[0] * np.outer(p[:, 0], qt[0])]) < 1e-14
    assert convergence.rank_one(0.5, 0.1, u, v, target, 4, 2.0).matrix.shape == (3, 4)


@pytest.mark.parametrize("depth", [2, 3, 6])
def test_limits(depth):
    """The largest z with a_i + b_i != 0 wins, repeated values share, and starts with none die at zero."""
    z, late = np.array([2.0, 1.0, 1.0, 0.0]), np.full(5, 1e4)
    root = np.sqrt(0.5)
    cases = (
        ([0.6, 0.8, 0, 0], [0.6, 0, 0.8, 0], 2.0),
        ([0.6, 0.8, 0, 0], [-0.6, 0, 0.8, 0], 1.0),
        ([root, 0, 0, root], [-root, 0, 0, root], 0.0),
        ([1, 0, 0, 0], [-1, 0, 0, 0], 0.0),
    )
    for a, b, top in cases:
        initial = Coordinates(np.asarray(0.3), np.array(a, dtype=float), np.array(b, dtype=float), z)
        end = convergence.limit(initial)
        assert end.s == top
        late_at = convergence.modes(late, initial, depth).at
        matrix = np.asarray(late_at.s)[0] * np.outer(late_at.a[0], late_at.b[0])
        assert np.max(np.abs(matrix - end.s * np.outer(end.a, end.b))) < (1e-12 if top else 0.02)
        for_ever = convergence.modes(np.array([0.0, 1.0, 1e3, 1e30, 1e200]), initial, depth).at.s
        assert for_ever[-1] == pytest.approx(top, abs=1e-60 if depth < 6 else 1e-20)
    # a positive level is not reached from below by a start that dies
    assert convergence.passage_time(0.5, initial, depth) == np.inf
    assert np.isfinite(convergence.passage_time(0.1, initial, depth))
    assert convergence.transition_time(initial, depth) == 0
    assert convergence.transition_time(initial._replace(z=0 * z), depth) == np.inf


def test_two_balanced_layers_of_any_rank():
    rng = np.random.default_rng(3)
    times = np.array([0.05, 0.4, 1.5])
    for shape, rank in (((4, 5), 2), ((3, 3), 1), ((5, 3), 3), ((1, 4), 1)):
        target = rng.normal(size=shape)
        initial = 0.1 * rng.normal(size=(shape[0], rank)) @ rng.normal(size=(rank, shape[1]))
        u, s, vt = np.linalg.svd(initial, full_matrices=False)
        layers = [np.sqrt(s[:rank])[:, None] * vt[:rank], u[:, :rank] * np.sqrt(s[:rank])]
        size = layers[0].size

        def velocity(_, flat, target=target, layers=layers, size=size):
            w1, w2 = flat[:size].reshape(layers[0].shape), flat[size:].reshape(layers[1].shape)
            force = 7.0 * (target - w2 @ w1)
            return np.concatenate([(w2.T @ force).ravel(), (force @ w1.T).ravel()])

        flat = np.concatenate([w.ravel() for w in layers])
        run = solve_ivp(velocity, (0, 1.5), flat, t_eval=times, method="DOP853", rtol=1e-13, atol=1e-16)
        right = [y[size:].reshape(layers[1].shape) @ y[:size].reshape(layers[0].shape) for y in run.y.T]
        closed = convergence.two_layers(times, initial, target, 7.0)
        assert relative(closed, right) < 1e-9
        p, z, qt = np.linalg.svd(target, full_matrices=False)
        best = (p[:, :rank] * z[:rank]) @ qt[:rank]
        assert relative(convergence.two_layers(np.full(3, 1e3), initial, target, 7.0), [best] * 3) < 1e-12
        if rank == 3:  # full rank: the same as the mixed flow at c = 0, another way of solving it
            one = mixed.matrix(0.4, jnp.asarray(initial), jnp.asarray(target), 0.0, 7.0)
            assert relative(closed[1:2], [one]) < 1e-11
    zero = convergence.two_layers(0.7, np.eye(2), np.zeros((2, 2)))
    assert np.allclose(zero, np.eye(2) / (1 + 2 * 0.7), rtol=1e-14)  # ds/dt = -2 s^2


# Distance and its bounds ---------------------------------------------------------------------------------------------


def induced(u, v, s, force, depth):
    """dA/dt of balanced layers at s u v^T (nonlocal, eq. 17)."""
    along = (depth - 2) * (u @ force @ v) * np.outer(u, v)
    return s ** (2 - 2 / depth) * (along + np.outer(u, u @ force) + np.outer(force @ v, v))


def test_distance_and_its_derivative_are_those_of_the_matrix():
    states = random_states(40)
    for i in range(40):
        at = Coordinates(*(x[i] for x in states))
        depth, n = 2 + i % 5, 3.0
        a, target = at.s * np.outer(at.a, at.b), np.diag(at.z)
        best = np.diag(at.z * (np.arange(4) == 0))
        move = induced(at.a, at.b, at.s, n * (target - a), depth)
        right = float(np.sum((a - best) ** 2)) / 2
        assert convergence.distance(at) == pytest.approx(right, rel=1e-11)
        slope = float(np.sum((a - best) * move))
        scale = np.linalg.norm(a - best) * np.linalg.norm(move)
        assert abs(convergence.distance_rate(at, depth, n) - slope) < 1e-11 * scale
        loss = n / 2 * float(np.sum((a - target) ** 2) - np.sum((best - target) ** 2))
        assert convergence.excess(at, n) == pytest.approx(loss, rel=1e-9, abs=1e-11 * n * right)
        assert convergence.far_rate(at, depth, n) == pytest.approx(-slope / (2 * right), abs=1e-11 * scale / right)
        size, direction = convergence.parts(at)
        assert convergence.distance(at) <= size + at.z[0] * direction + 1e-12 * right
    near = Coordinates(np.asarray(2.0), np.array([1.0, 1e-9]), np.array([1.0, -1e-9]), np.array([2.0, 0.5]))
    assert convergence.distance(near) == pytest.approx(4e-18, rel=1e-9)  # digits near the minimum


def test_bounds_hold_for_random_states():
    states = random_states(20000, seed=1)
    for depth in (2, 3, 8):
        rate = np.asarray(convergence.distance_rate(states, depth))
        for sharp in (False, True):
            bound = np.asarray(convergence.distance_rate_bound(states, depth, sharp=sharp))
            assert np.all(rate <= bound + 1e-12 * np.abs(bound))
        loose, tight = (convergence.distance_rate_bound(states, depth, sharp=sharp) for sharp in (False, True))
        assert np.all(np.asarray(tight) <= np.asarray(loose) + 1e-12 * np.abs(loose))


def test_envelopes_of_a_run():
    initial = Coordinates(
        np.asarray(8.0), np.array([0.95, 0.3, 0.1, 0]), np.array([0.9, -0.2, 0, 0.4]), np.array([2.0, 0.02, 0, 0])
    )
    initial = initial._replace(a=initial.a / np.linalg.norm(initial.a), b=initial.b / np.linalg.norm(initial.b))
    times = np.linspace(0, 1.0, 60)
    flow = convergence.modes(times, initial, 3, 2.0)
    square = 2 * np.asarray(convergence.distance(flow.at))
    previous = None
    for form in convergence.FORMS:
        rates = convergence.envelope(initial, 0.8, 4.5, 3, 2.0, form=form)
        assert rates.applies
        switch = convergence.transition_time(initial, 3, 2.0, rates.level)
        assert switch > 0
        bound = np.asarray(convergence.envelope_bound(times, square[0], rates, switch))
        assert np.all(square <= bound * (1 + 1e-12))
        assert previous is None or np.all(bound <= previous * (1 + 1e-12))
        previous = bound
        for wrong in (
            convergence.envelope(initial, 0.9, 4.5, 3, form=form),  # not so well aligned
            convergence.envelope(initial, 0.005, 4.5, 3, form=form),  # alpha below gamma
        ):
            assert not wrong.applies
    assert not convergence.envelope(initial, 0.8, 3.0, 3).applies  # beta below s
    assert convergence.envelope(initial, 0.8, 3.0, 3, form="sharpest").applies
    assert convergence.slow_level(0.2) == pytest.approx(1.5)
    assert convergence.slow_level(0.9) == pytest.approx(0.9 + np.sqrt(0.2))
    # the sets
    assert convergence.in_set(initial, 0.8)
    assert convergence.in_set(initial, 0.8, 4.5)
    assert not convergence.in_set(initial, 0.8, 3.9)
    assert np.all(convergence.in_set(flow.at, 0.8, 4.5))
    # alignment
    ab = np.asarray(flow.at.a[:, 0] * flow.at.b[:, 0])
    assert np.all(ab >= np.asarray(convergence.alignment_bound(flow.theta, ab[0], 2.0, 0.02)) - 1e-14)


# Rates ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "depth", "rank"), [((3, 4), 3, 1), ((4, 3), 2, 2), ((3, 3), 4, 3), ((1, 3), 3, 1), ((1, 1), 5, 1)]
)
def test_near_rates_are_the_nonzero_curvatures(shape, depth, rank):
    z = np.array([1.7, 0.9, 0.4])[: min(shape)]
    target = np.zeros(shape)
    np.fill_diagonal(target, z)
    best = np.where(np.arange(shape[0])[:, None] < rank, target, 0.0)
    problem = ln.factorization(target)
    weights = ln.init.balanced(best, (rank,) * (depth - 1), rank=rank)
    scale = float(problem.scale)
    curvature = np.asarray(ln.observe.hessian_spectrum(weights, problem)) / scale
    rates = convergence.near_rates(z, shape, depth, 1.0, rank)
    assert rates.size == rank * (sum(shape) - rank)
    found = curvature[np.abs(curvature) > 1e-9]
    assert np.allclose(found, rates, rtol=1e-10)
    assert convergence.near_rate(z, shape, depth, 2.0, rank) == pytest.approx(2 * found[-1])
    if rank == 1:
        assert convergence.largest_lr(z[0], depth, 3.0) == pytest.approx(2 / (3 * curvature[0]))


def test_flow_ends_at_the_near_rate():
    initial = Coordinates(np.asarray(0.5), np.array([0.8, 0.6]), np.array([0.6, 0.8]), np.array([0.7, 0.3]))
    for depth in (2, 3, 6):
        rate = convergence.near_rate([0.7, 0.3], (2, 2), depth, 5.0)
        at = convergence.modes(np.array([12.0, 14.0]) / rate, initial, depth, 5.0).at
        slope = -np.diff(np.log(np.asarray(convergence.distance(at)))) / 2 / (2 / rate)
        assert slope[0] == pytest.approx(rate, rel=1e-3)


def test_escape_times():
    for depth in (3, 4):
        for b in (-0.99, -0.3, 0.0, 0.6, 0.999):
            initial = Coordinates(
                np.asarray(1e-5), np.array([1.0, 0]), np.array([b, np.sqrt(1 - b * b)]), np.array([2.0, 0])
            )
            closed = float(convergence.escape_time_one_output(1e-5, b, 2.0, depth, 3.0))
            assert convergence.escape_time(initial, depth, 3.0) == pytest.approx(closed, rel=1e-12)
    for depth in (3, 4, 9):
        initial = Coordinates(np.asarray(1e-5), np.ones(1), np.ones(1), np.array([2.0]))
        closed = float(convergence.escape_time_aligned(1e-5, 2.0, depth, 3.0))
        assert convergence.escape_time(initial, depth, 3.0) == pytest.approx(closed, rel=1e-12)
    assert convergence.escape_time_one_output(1e-5, 1.0, 2.0, 3) == pytest.approx(1e5 ** (1 / 3) / 2)
    # nearly exceptional: the way out begins late
    initial = Coordinates(np.asarray(1e-5), np.array([1.0, 0]), np.array([-1 + 5e-13, 1e-6]), np.array([2.0, 0]))
    closed = float(convergence.escape_time_one_output(1e-5, -1 + 5e-13, 2.0, 4))
    assert convergence.escape_time(initial, 4) == pytest.approx(closed, rel=1e-3)


@pytest.mark.parametrize("depth", [3, 4, 5, 8])
def test_true_times_to_leave_approach_the_prediction(depth):
    """The rest is a time of order one beside s_0^{-(1-2/L)}; the figures are those of one output with b_0 = 1/2."""
    rng = np.random.default_rng(4)
    initializations = [directions(rng, (4, 4)) for _ in range(3)]
    initializations.append((np.eye(4)[0], np.array([0.5, np.sqrt(0.75), 0, 0])))
    for u, v in initializations:
        gaps = []
        for size in (1e-3, 1e-5, 1e-7):
            initial = Coordinates(np.asarray(size), u, v, np.array([1.0, 0.4, 0.1, 0.0]))
            gaps.append(
                float(convergence.passage_time(0.5, initial, depth)) / convergence.escape_time(initial, depth) - 1
            )
        assert abs(gaps[2]) < 5 * 1e-4 ** (1 - 2 / depth) * abs(gaps[0])
    low, high = {3: (0.996, 0.998), 4: (0.9998, 1.0), 5: (0.99999, 1.00001), 8: (0.99999, 1.00001)}[depth]
    assert low < 1 + gaps[2] < high


def test_figures_of_the_specification():
    """The counterexample to the printed exponent, the far phase that slows with depth, the crossings of the figure."""
    b = np.array([0.9, np.sqrt(0.19), 0, 0])
    initial = Coordinates(np.asarray(1.0), np.eye(4)[0], b, np.array([0.1, 0, 0, 0]))
    switch = float(convergence.transition_time(initial, 2, 10.0))
    square = 2 * float(convergence.distance(convergence.modes(switch, initial, 2, 10.0).at))
    assert switch == pytest.approx(0.2036, rel=1e-3)
    assert square == pytest.approx(2.4e-2, rel=2e-2)
    rates = convergence.envelope(initial, 0.8999, 10.001, 2, 10.0)
    first = 2 * float(convergence.distance(initial))
    assert rates.applies
    assert convergence.envelope_bound(switch, first, rates, switch) == pytest.approx(0.575, rel=1e-2)
    printed = rates._replace(fast=rates.fast / 0.1**2)
    assert convergence.envelope_bound(switch, first, printed, switch) == pytest.approx(1.0e-16, rel=0.1)
    depths = np.array([2.0, 3.0, 4.0, 6.0, 10.0])
    b = np.array([np.sqrt(0.75), 0.5, 0, 0])

    def crossings(s, z1, n, depths):
        initial = Coordinates(np.asarray(s), np.eye(4)[0], b, np.array([z1, 0, 0, 0]))
        return np.array([float(convergence.transition_time(initial, depth, n)) for depth in depths])

    assert np.allclose(crossings(0.1, 0.01, 50.0, depths), [0.403, 0.786, 1.013, 1.165, 1.084], atol=2e-3)
    assert np.allclose(crossings(1.0, 0.01, 50.0, depths), [0.50, 0.90, 1.12, 1.26, 1.16], atol=6e-3)
    initial = Coordinates(np.asarray(0.1), np.eye(4)[0], b, np.array([0.01, 0, 0, 0]))
    assert np.allclose(convergence.far_rate(initial, depths, 50.0), [9.98, 6.95, 6.31, 6.45, 7.90], atol=6e-3)
    times = crossings(2.8, 0.28, 50.0, (2, 3, 4, 5, 8, 10))
    assert np.allclose(times, [1.5e-2, 9.3e-3, 7.0e-3, 5.5e-3, 3.5e-3, 2.8e-3], rtol=0.045)  # z_1 has two digits


def test_batches_are_vmap():
    """Starts and depths of one shape share one program."""
    states = random_states(6, seed=5)
    depths = jnp.array([2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
    times = np.linspace(0, 2, 5)
    many = jax.vmap(lambda initial, depth: convergence.modes(times, initial, depth).at.s)(
        jax.tree.map(jnp.asarray, states), depths
    )
    for i in range(6):
        one = convergence.modes(times, Coordinates(*(x[i] for x in states)), depths[i]).at.s
        assert np.allclose(many[i], one, rtol=1e-13)


# Input ---------------------------------------------------------------------------------------------------------------


def test_a_level_that_is_only_grazed():
    """s dips below its start and comes back inside one panel."""
    initial = Coordinates(0.5, np.array([1.0, 0.0]), np.array([-0.5, 0.75**0.5]), np.array([1.0, 0.1]))
    times = np.linspace(0, 5, 4001)
    s = np.asarray(convergence.modes(times, initial, 3).at.s)
    low = int(np.argmin(s))
    for share in (1.2, 1.001, 1.00001):
        when = float(convergence.passage_time(share * s[low], initial, 3))
        assert when < times[low]
        assert float(convergence.modes(when, initial, 3).at.s) == pytest.approx(share * s[low], rel=1e-9)
    assert np.isinf(convergence.passage_time(0.999 * s[low], initial, 3))


def test_mistakes_are_one_sentence():
    target, u, v = np.eye(2), np.array([1.0, 0.0]), np.array([0.0, 1.0])
    wrong = {
        "strength = 0 ": lambda: convergence.rank_one(1.0, 0, u, v, target, 3),
        "left is zero": lambda: convergence.rank_one(1.0, 1.0, 0 * u, v, target, 3),
        r"right has shape \(3,\)": lambda: convergence.rank_one(1.0, 1.0, u, np.ones(3), target, 3),
        "depth = 1 ": lambda: convergence.rank_one(1.0, 1.0, u, v, target, 1),
        "depth = 2.5 ": lambda: convergence.rank_one(1.0, 1.0, u, v, target, 2.5),
        "time = nan ": lambda: convergence.two_layers(np.nan, target, target),
        "initial = -1.0": lambda: convergence.aligned(1.0, -1.0, 1.0, 3),
        "target of zero": lambda: convergence.escape_time(Coordinates(1.0, u, v, 0 * u), 3),
        "depth = 1 is not allowed: depth must be a finite number greater than 1": lambda: convergence.largest_lr(
            1.0, 1
        ),
        "initial has shapes .3,.,": lambda: convergence.passage_time(1.0, random_states(3), 3),
        "time = -1.0 ": lambda: convergence.rank_one(-1.0, 1.0, u, v, target, 2),
        "samples = -1.0 ": lambda: convergence.rank_one(1.0, 1.0, u, v, target, 2, -1.0),
        "initial has shapes": lambda: convergence.modes(1.0, random_states(3), 2),
        r"initial has shape \(2, 2\)": lambda: convergence.two_layers(1.0, target, np.ones((2, 3))),
        "rank = 3 ": lambda: convergence.two_layers(1.0, target, target, rank=3),
        "end = 3.0 ": lambda: convergence.aligned_time(0.1, 3.0, 2.0, 3),
        "form = 'best'": lambda: convergence.envelope(random_states(1), 0.5, 2.0, 2, form="best"),
        "alpha = 1.5 ": lambda: convergence.envelope(random_states(1), 1.5, 2.0, 2),
        "beta = 1.0 is not allowed: beta must be a finite number greater than 1": lambda: convergence.envelope(
            random_states(1), 0.5, 1.0, 2
        ),
        "alpha = -0.1 ": lambda: convergence.in_set(random_states(1), -0.1),
        "values must descend": lambda: convergence.near_rates([1.0, 2.0], (2, 2), 3),
        "values has shape": lambda: convergence.near_rates([2.0], (2, 2), 3),
        "rank = 3": lambda: convergence.near_rates([2.0, 1.0], (2, 2), 3, rank=3),
        "level = 0 ": lambda: convergence.passage_time(0, Coordinates(1.0, u, v, u), 3),
        "logarithmic time": lambda: convergence.escape_time(Coordinates(1.0, u, u, u), 2),
        "initial tends to zero": lambda: convergence.escape_time(Coordinates(1.0, u, -u, u), 3),
        "depth = 5": lambda: convergence.escape_time_one_output(1e-3, 0.5, 1.0, 5),
    }
    for message, call in wrong.items():
        with pytest.raises(ln.InputError, match=message):
            call()
