"""Edge of stability: closed forms against dense Hessians, iteration and the printed figures."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

import linnet as ln
from linnet import maps
from linnet.theory import convergence, mixed, stability


def network(values, seed=0):
    """Weights with these layer values, in random frames."""
    d = values.shape[1]
    frames = np.linalg.qr(np.random.default_rng(seed).normal(size=(values.shape[0] + 1, d, d)))[0]
    layers = [up @ np.diag(y) @ down.T for y, down, up in zip(values, frames, frames[1:], strict=False)]
    return ln.Weights(layers)


def dense(state):
    return np.asarray(spectrum_here(state))


@jax.jit
def spectrum_here(state):
    return ln.observe.hessian_spectrum(state, ln.factorization(state.matrix))


# Curvature -----------------------------------------------------------------------------------------------------------


@pytest.mark.compiles
@given(st.integers(2, 5), st.integers(0, 2), st.integers(1, 2), st.floats(0.0, 0.4), st.integers(0, 99))
def test_spectrum_at_the_minimum_is_the_dense_hessians(depth, rest, rank, alpha, seed):
    s = np.sort(np.random.default_rng(seed).uniform(0.5, 3, rank))[::-1]
    d = rank + rest
    values = np.full((depth, d), alpha)
    values[-1] = 0
    values[:, :rank] = s ** (1 / depth)
    levels = stability.minimum_spectrum(s, depth, d, alpha)
    found = np.sort(np.repeat([x.value for x in levels], [x.multiplicity for x in levels]))[::-1]
    measured = dense(network(values, seed))
    assert found.shape == measured.shape
    assert np.max(np.abs(found - measured)) < 1e-10
    pairs = np.sort(np.append(stability.pair_curvatures(values).ravel(), np.zeros((depth - 1) * d * d)))[::-1]
    assert np.max(np.abs(pairs - measured)) < 1e-10


def test_spectrum_for_every_depth_and_unbalanced_layers():
    for depth, d in ((2, 4), (3, 3), (4, 3), (5, 2)):
        values = np.random.default_rng(depth).uniform(0.5, 1.5, (depth, d)) * np.where(np.arange(d) % 2, -1, 1)
        found = np.sort(stability.pair_curvatures(values).ravel())[::-1]
        measured = dense(network(values, depth))
        assert np.max(np.abs(measured[: d * d] - found)) < 1e-10
        assert np.max(np.abs(measured[d * d :])) < 1e-10


def test_repeated_and_extreme_spectra():
    assert np.allclose(stability.cross_curvature(3.0, 3.0, 4), stability.curvature(3.0, 4), rtol=1e-15)
    for s in (1e-8, 1e3):
        near = s * (1 - 1e-13)
        assert np.allclose(stability.cross_curvature(s, near, 3), stability.curvature(s, 3), rtol=1e-12)
    levels = stability.minimum_spectrum([2.0, 2.0], 3, 2)
    assert sum(x.multiplicity for x in levels) == 12
    assert sum(x.multiplicity for x in stability.minimum_spectrum([5.0, 2.0, 1.0], 4, 9, 0.1)) == 4 * 81
    assert [x.value for x in stability.minimum_spectrum([5.0, 2.0], 1, 3, 0.1)] == [1.0] * 8  # no depth: a quadratic


def test_cross_eigenvectors():
    for depth in (2, 3, 4):
        layers = [np.diag([10.0, 9.0]) ** (1 / depth)] * depth
        weights = stability.cross_eigenvector(10.0, 9.0, depth)
        value = float(stability.cross_curvature(10.0, 9.0, depth))
        direction = ln.Weights([np.array([[0.0, w], [0.0, 0.0]]) for w in weights])
        product = jax.jit(ln.observe.hessian_product)
        image = product(ln.Weights(layers), ln.factorization(np.diag([10.0, 9.0])), direction)
        for got, w in zip(image.layers, direction.layers, strict=True):
            assert np.max(np.abs(np.asarray(got - value * w))) < 1e-12


aligned_blocks = jax.jit(ln.observe.aligned_blocks)


@given(st.integers(1, 5), st.floats(0.3, 1.6), st.floats(0.2, 3))
def test_curvature_of_a_balanced_mode_anywhere(depth, rho, s):
    blocks, _ = aligned_blocks(ln.Modes(np.full((depth, 1), rho)), ln.factorization(np.array([s])))
    found = np.linalg.eigvalsh(np.asarray(blocks[0]))
    h = float(stability.mode_curvature(rho, s, depth))
    assert np.min(np.abs(found - h)) < 1e-10
    slope = jax.grad(maps.balanced(depth))(rho / s ** (1 / depth), 0.7)
    assert abs(slope - (1 - 0.7 / float(stability.curvature(s, depth)) * h)) < 1e-10


# Orbits --------------------------------------------------------------------------------------------------------------

TABLE = {  # superstable 2, periods 4, 8, 16, accumulation, leaves x > 0
    2: (2.242641, 2.472136, 2.576064, 2.598456, 2.604567, 3.196152),
    3: (2.247240, 2.489215, 2.600833, 2.624963, 2.631556, 3.660996),
    4: (2.248587, 2.494339, 2.608300, 2.632957, 2.639695, 3.978578),
    5: (2.249217, 2.496754, 2.611826, 2.636731, 2.643539, 4.224495),
    10: (2.250195, 2.500528, 2.617342, 2.642637, 2.649553, 5.008329),
}


@pytest.mark.parametrize("depth", TABLE)
def test_the_table_of_the_cascade(depth):
    found = stability.stages(depth)
    assert abs(found.doublings[0] - 2) < 1e-12
    got = (found.superstable, *found.doublings[1:4], found.accumulation, found.leaves)
    assert np.max(np.abs(np.array(got) - TABLE[depth])) <= 0.51e-6
    assert abs(maps.two_cycle(depth, found.doublings[1]).multiplier + 1) < 1e-10
    assert abs(maps.two_cycle(depth, found.superstable).multiplier) < 1e-10


def test_where_orbits_leave_and_diverge():
    assert abs(stability.stages(2).leaves - (3 * np.sqrt(3) - 2)) < 1e-12
    assert abs(stability.stages(2).diverges - 4) < 1e-12
    assert abs(stability.stages(2).doublings[1] - 2 * (np.sqrt(5) - 1)) < 1e-12
    assert abs(stability.stages(4).diverges - 4.818148) < 1e-6
    for depth in (2, 3, 4, 5):
        table = stability.stages(depth)
        initializations = np.random.default_rng(depth).uniform(0.01, 1.05, 400)
        for kappa, low, high in ((table.diverges - 1e-3, 0.0, 0.0), (table.diverges + 0.05, 0.2, 1.0)):
            run = maps.orbits(maps.balanced(depth), initializations, np.full(400, kappa), skip=5000, keep=1)
            assert low <= float(np.mean(np.asarray(run.diverged))) <= high
        run = maps.orbits(maps.balanced(depth), initializations, np.full(400, table.leaves - 1e-3), skip=2000, keep=200)
        assert np.min(np.asarray(run.values)) > 0
    trapped = maps.orbits(maps.balanced(3), np.linspace(0.01, 1.2, 400), np.full(400, 4.0), skip=20_000, keep=1)
    assert np.max(np.abs(np.asarray(trapped.values))) < 0.1


def test_outcomes():
    fate, outcome = stability.Fate, stability.Outcome
    found = stability.outcome([1.9, 2.1, 2.5, 2.61, 2.63, 2.7, 3.8, 1e12], 3)
    assert found == [
        outcome(fate.CONVERGES, 1),
        *(outcome(fate.CYCLE, period) for period in (2, 4, 8, 16)),
        outcome(fate.CHAOS),
        outcome(fate.TRAPPED),
        outcome(fate.DIVERGES),
    ]
    assert [str(one) for one in found[:2]] == ["converges", "period 2"]
    assert stability.outcome([3.5], 2) == [outcome(fate.FLIPS)]
    one_layer = [outcome(fate.CONVERGES, 1), outcome(fate.CYCLE, 2), outcome(fate.DIVERGES)]
    assert stability.outcome([1.9, 2.0, 2.1], 1) == one_layer


def test_orbit_of_a_network():
    s, depth, lr = np.array([10.0, 6.0, 3.0]), 3, 2.1 / 64.63304070095652
    found = stability.orbit(s, depth, lr)
    assert abs(found.bottom[0] - 8.111579) < 1e-6
    assert abs(found.top[0] - 11.496654) < 1e-6
    assert np.allclose(found.bottom[1:], [6, 3])
    problem = ln.factorization(s)
    run = ln.simulate(
        problem,
        ln.init.one_zero(problem, 0.01, depth),
        ln.optim.SGD(lr),
        steps=4000,
        observe=["modes"],
        record=ln.record.at([3999, 4000]),
    )
    ends = np.sort(np.asarray(run["modes"][-2:]), axis=0)
    assert np.max(np.abs(ends - [found.bottom, found.top])) < 1e-12
    assert np.allclose(stability.orbit(10.0, 3, lr / 2, half=False).top, found.top[0], rtol=1e-14)
    # s = 1e-8: steps of 1e9 and more
    tiny = stability.orbit(1e-8, 4, 2.2 / stability.curvature(1e-8, 4))
    assert np.allclose(tiny.top / 1e-8, stability.orbit(1.0, 4, 2.2 / 4).top, rtol=1e-12)


def test_curvature_averages_above_the_edge_and_the_square_root_law():
    for depth in (2, 3, 5):
        for kappa in (2.01, 2.2, 2.4):
            found = stability.orbit(2.0, depth, kappa / stability.curvature(2.0, depth))
            mean = (found.curvature_low + found.curvature_high) / 2
            assert 1 < mean * kappa / stability.curvature(2.0, depth) / 2 < 1.2
        lr = (2 + 1e-6) / stability.curvature(2.0, depth)
        found = stability.orbit(2.0, depth, lr)
        assert abs((found.top - found.bottom) / stability.onset_amplitude(2.0, depth, lr) - 1) < 1e-5


# Balancing and the flow's minimum ------------------------------------------------------------------------------------


@given(st.integers(2, 6), st.integers(0, 1000))
def test_gaps_of_one_step(depth, seed):
    rng = np.random.default_rng(seed)
    y, s, lr = rng.uniform(0, 1.5, depth), rng.uniform(0.1, 5), rng.uniform(0.01, 0.5)
    y[seed % depth] *= seed % 3  # zero now and then
    others = np.array([np.prod(np.delete(y, i)) for i in range(depth)])
    new = y - lr * (np.prod(y) - s) * others
    before = y[:, None] ** 2 - y[None] ** 2
    after = new[:, None] ** 2 - new[None] ** 2
    assert np.max(np.abs(after - before * (1 - stability.gap_loss(y, s, lr)))) < 1e-12 * (1 + np.max(new**2))


@pytest.mark.parametrize("depth", [2, 3, 6])
def test_gaps_of_a_one_zero_chain(depth):
    x, y, s, lr = 0.3, 0.9, 1.7, 0.2
    q = stability.gap_loss([*[y] * (depth - 1), x], s, lr)[0, -1]
    assert abs(stability.one_zero_loss(x, y, s, lr, depth) - q) < 1e-15
    # the map's third entry is the ratio of the gaps of the other two
    kappa = 1.7
    run = maps.orbits(stability.one_zero_gap(depth), [[0.0, 0.5, 1.0]], [kappa], skip=0, keep=40)
    x, y, gap = np.asarray(run.values)[0].T
    assert np.allclose((y**2 - x**2) / 0.25, gap, rtol=0, atol=1e-13)
    plain = maps.orbits(maps.one_zero(depth), [[0.0, 0.5]], [kappa], skip=0, keep=40)
    assert np.allclose(np.asarray(plain.values)[0], np.stack([x, y], axis=-1), rtol=1e-13)


def test_gap_multiplier_over_a_cycle():
    for depth in (2, 3, 6):
        kappa = 2.3
        found = stability.orbit(1.0, depth, kappa / depth)
        total = 1.0
        for rho in (found.low, found.high):
            y = np.full(depth, rho)
            q = stability.gap_loss(y, 1.0, kappa / depth)[0, 1]
            total *= 1 - q
        # the gap of squares carries the ratio of the sums too, which is 1 over a cycle
        assert abs(total - found.gap) < 1e-12
    assert abs(stability.orbit(1.0, 2, 1.15).gap - (3 - 2 * 1.15)) < 1e-13


def test_where_the_flow_ends():
    rng = np.random.default_rng(0)
    for depth in (2, 3, 5, 20):
        initial = np.abs(rng.normal(size=(depth, 30)))
        initial[depth - 1, ::2] = 0
        s = 10 ** rng.uniform(-8, 3, 30)
        end = stability.flow_values(initial, s)
        assert np.max(np.abs(np.prod(end, axis=0) / s - 1)) < 1e-10
        moved = end**2 - initial**2
        assert np.max(np.abs(moved - moved[0]) / np.max(end**2 + initial**2, axis=0)) < 1e-12
    problem = ln.factorization(np.array([2.0]))
    initial = np.array([[0.5], [1.2], [0.0]])
    flow = ln.simulate(
        problem, ln.Modes(initial), ln.optim.GradientFlow(rtol=1e-11), time=30.0, record=ln.record.linear(2)
    )
    assert np.max(np.abs(np.asarray(flow.final.values) - stability.flow_values(initial, 2.0))) < 1e-8


def test_the_time_of_a_mode_is_that_of_the_closed_forms():
    shares = np.array([0.01, 0.5, 0.9, 0.999])
    for alpha, s in ((1e-8, 3.0), (0.3, 2.0), (5.0, 1.0), (1e-3, 1e3), (1e3, 1e-8)):
        expected = mixed.mode_time(0.0, shares * s, s, alpha**2 / 2)
        np.testing.assert_allclose(stability.flow_time([alpha, 0.0], shares * s, s), expected, rtol=1e-11)
    np.testing.assert_allclose(stability.flow_time([0.3], shares, 1.0)[1:], -np.log((1 - shares[1:]) / 0.7), rtol=1e-12)
    for depth in (2, 3, 5, 30):
        for initial, s in ((1e-4, 3.0), (0.3, 2.0), (1.7, 1.0)):
            begin = initial**depth
            ends = shares * s if begin < s else s / shares
            ends = ends[(ends > begin) == (begin < s)]
            expected = [convergence.aligned_time(begin, float(end), s, depth) for end in ends]
            np.testing.assert_allclose(stability.flow_time([initial] * depth, ends, s), expected, rtol=1e-11)


@given(st.integers(2, 6), st.floats(-2, 0.5), st.floats(-3, 3), st.integers(0, 2**31))
def test_the_time_of_a_mode_is_that_of_its_flow(depth, log_start, log_s, seed):
    s = 10**log_s
    initial = s ** (1 / depth) * 10**log_start * np.random.default_rng(seed).uniform(0.3, 3, depth)
    begin = np.prod(initial)
    (time,) = stability.flow_time(initial, [(0.9 if begin < s else 1.1) * s], s)
    assume(time > 0)

    def rate(_, y):
        return np.prod(y) / y * (s - np.prod(y))

    end = solve_ivp(rate, (0, time), initial, "LSODA", rtol=1e-11, atol=1e-13 * initial.min()).y[:, -1]
    now = np.prod(end)
    late = (now - (0.9 if begin < s else 1.1) * s) / (
        now**2 * np.sum(1 / end**2) * (s - now)
    )  # in time: ds/dt = K (s - now)
    assert abs(late) < 1e-9 * time


def test_times_before_the_start_and_behind_the_target():
    assert stability.flow_time([0.5, 0.5], [0.1, 0.25, 1.0, 2.0], 1.0).tolist() == [0, 0, np.inf, np.inf]
    assert stability.flow_time([2.0, 2.0], [5.0, 4.0, 1.0, 0.5], 1.0).tolist() == [0, 0, np.inf, np.inf]


def test_sharpness_of_the_flows_minimum_and_its_bounds():
    for depth in (2, 3, 4, 8):
        for s in (1e-8, 0.3, 10.0, 1e3):
            unit = s ** (1 / depth)
            assert np.allclose(stability.flow_sharpness(0.0, s, depth), stability.curvature(s, depth), rtol=1e-12)
            alphas = unit * np.geomspace(1e-2, 1.5, 40)
            psi = stability.flow_sharpness(alphas, s, depth)
            assert np.all(np.diff(psi) >= -1e-13 * psi[0])
            bound = stability.curvature(s, depth) * np.exp(stability.growth(depth) / 2 * (alphas / unit) ** 4)
            assert np.all(psi <= bound * (1 + 1e-12))
            a, h = alphas[30], 1e-4 * alphas[30]
            slope = np.log(np.divide(*stability.flow_sharpness([a + h, a - h], s, depth))) / (2 * h)
            assert abs(slope / (stability.flow_growth(a, s, depth) * a**3) - 1) < 1e-6
        top = float(stability.top_alpha(2.0, depth))
        around = stability.flow_growth(top + np.array([-0.05, 0.0, 0.05]) * (1 if depth > 2 else 0), 2.0, depth)
        assert np.argmax(around) == (1 if depth > 2 else 0)
    assert abs(stability.growth(8) - 2.025653) < 1e-6
    assert abs(stability.growth(20) - 9.515905) < 1e-6


def test_largest_alpha():
    found = [stability.largest_alpha(10.0, 3, 2.05, bound) for bound in stability.ALPHA_BOUNDS]
    assert np.allclose(found, [2.541, 2.504, 0.884, 0.788], atol=5e-4)
    assert np.all(np.diff(found) < 0)
    for depth in (2, 4, 10):
        a = stability.largest_alpha(3.0, depth, 2.4)
        goal = 2 * np.sqrt(2) / 2.4
        assert abs(stability.flow_sharpness(a, 3.0, depth) / stability.curvature(3.0, depth) / goal - 1) < 1e-9


# Lines and cross directions ------------------------------------------------------------------------------------------


def test_lines_against_automatic_differentiation():
    rng = np.random.default_rng(1)
    layers = [rng.normal(size=shape) for shape in ((3, 2), (4, 3), (2, 4))]
    direction = [rng.normal(size=w.shape) for w in layers]

    def loss(t):
        total, goal = jnp.eye(2), jnp.eye(2)
        for w, d in zip(layers, direction, strict=True):
            total, goal = (jnp.asarray(w) + t * d) @ total, jnp.asarray(w) @ goal
        return jnp.sum((total - goal) ** 2) / 2

    found = stability.line(layers, direction)
    second = jax.grad(jax.grad(loss))
    third = jax.grad(second)
    measured = jax.jit(lambda t: (second(t), third(t), jax.grad(third)(t)))(0.0)
    for got, expected in zip(measured, found, strict=True):
        assert abs(got / expected - 1) < 1e-10


def test_flip_condition():
    for depth in (2, 3, 6):
        for s in (0.3, 7.0):
            along = stability.mode_line(s, depth)
            assert abs(along.second / stability.curvature(s, depth) - 1) < 1e-12
            assert abs(along.flip / (4 * depth * (depth - 1) * (5 * depth - 4) * s ** (4 - 6 / depth)) - 1) < 1e-11
        quadratic = stability.cross_line(10.0, 9.0, depth)
        assert abs(quadratic.second / stability.cross_curvature(10.0, 9.0, depth) - 1) < 1e-12
        assert quadratic.third == quadratic.fourth == 0
    # mixtures: positive exactly for 0 < -cos sin < (2/3)(L-2)/(L-1) at s_i = s_j
    for depth in (2, 3, 4, 6):
        for angle in np.linspace(-1.5, 1.5, 31):
            mixed = stability.cross_line(1.0, 1.0, depth, angle)
            x = -np.cos(angle) * np.sin(angle)
            edge = 2 / 3 * (depth - 2) / (depth - 1)
            assert abs(mixed.third) < 1e-12
            if abs(x) > 1e-9 and abs(x - edge) > 1e-9:
                assert (mixed.flip > 0) == (0 < x < edge)


def test_cross_multipliers_are_those_of_the_whole_network():
    """Against the Jacobian of two steps of descent on 2 x 2 matrices by automatic differentiation."""
    for depth, ratio, kappa in ((2, 0.93, 2.15), (3, 0.9, 2.2)):
        problem = ln.factorization(np.diag([1.0, ratio]))
        cycle = maps.two_cycle(depth, kappa)
        initial = np.diag([float(cycle.low), ratio ** (1 / depth)])

        def twice(flat, depth=depth, problem=problem, kappa=kappa):
            state = ln.Weights(list(flat.reshape(depth, 2, 2)))
            for _ in range(2):
                state = state.descend(problem, kappa / depth)
            return jnp.stack(state.layers).ravel()

        point = jnp.asarray(np.stack([initial] * depth).ravel())
        end, jacobian = jax.jit(lambda p, f=twice: (f(p), jax.jacfwd(f)(p)))(point)
        assert np.max(np.abs(np.asarray(end - point))) < 1e-13
        everything = np.linalg.eigvals(np.asarray(jacobian))
        found = stability.cross_multipliers(ratio, depth, kappa)
        assert found.shape == (depth + 1,)
        for value in found:
            assert np.min(np.abs(everything - value)) < 1e-9


def test_cross_thresholds():
    two = stability.cross_multipliers_two_layers(2.15 / 2, 0.93 * 2.15 / 2)
    assert np.allclose(np.sort_complex(two), np.sort_complex(stability.cross_multipliers(0.93, 2, 2.15)), atol=1e-12)
    for ratio in (0.99, 0.8, 0.65):
        edge = float(stability.cross_edge(ratio, 2))
        assert abs(edge - 4 / (1 + ratio)) < 1e-12
        assert stability.cross_threshold(ratio, 2) == edge
        for side in (-1, 1):
            top = np.abs(stability.cross_multipliers(ratio, 2, edge * (1 + side * 1e-6))[0])
            assert (top > 1) == (side > 0)
    for depth, ratios, expected in (
        (3, (0.99, 0.9, 0.75), (1.00032, 1.00343, 1.00978)),
        (4, (0.99, 0.8), (1.00061, 1.01407)),
        (5, (0.95, 0.85), (1.00423, 1.01359)),
    ):
        got = [stability.cross_threshold(q, depth) / stability.cross_edge(q, depth) for q in ratios]
        assert np.max(np.abs(np.array(got) - expected)) < 0.6e-5
    assert stability.cross_threshold(0.5, 3) == np.inf
    for depth, ratio in ((2, (np.sqrt(5) - 1) / 2), (3, 0.7146), (4, 0.7502), (5, 0.7683)):
        assert abs(stability.cross_ratio(depth) - ratio) < 1e-4


def test_two_oscillating_modes_are_unstable_across():
    """In phase and in antiphase, wherever both modes are beyond the edge: numerical evidence, no theorem."""
    for depth in (2, 3, 5):
        last = stability.stages(depth).doublings[1]
        for ratio in (0.88, 0.95, 0.999):
            first = 2 * ratio ** (2 / depth - 2)  # where mode 2 passes its own edge
            assert first < last
            for kappa in np.linspace(first, last, 6)[1:]:
                for second in ("phase", "antiphase"):
                    assert np.abs(stability.cross_multipliers(ratio, depth, kappa, second)[0]) > 1


def test_sorting():
    for depth, expected in (
        (2, (2.018504, 2.071068, 2.287136)),
        (3, (2.029433, 2.111746, 2.451955)),
        (4, (2.035706, 2.134920, 2.547271)),
    ):
        got = [stability.sorting_onset(q, depth) for q in (0.9, 0.8, 0.6)]
        assert np.max(np.abs(np.array(got) - expected)) < 0.6e-6
    for depth, ratio in ((2, 1 / 3), (3, 0.377), (4, 0.396), (5, 0.406), (10, 0.426)):
        assert abs(stability.sorting_crossover(depth) - ratio) < 1e-3


def test_escape_times():
    for depth, alpha, initial in (
        (3, 1e-3, "one_zero"),
        (4, 0.02, "one_zero"),
        (3, 2e-3, "balanced"),
        (2, 1e-3, "one_zero"),
    ):
        lr, s = 1e-2, 1.0
        layers = np.full((depth, 1), alpha)
        if initial == "one_zero":
            layers[-1] = 0
        expected = float(stability.escape_time(s, alpha, depth, initial)) / lr
        problem = ln.factorization(np.array([s]))
        steps = int(1.3 * expected)
        run = ln.simulate(
            problem,
            ln.Modes(layers),
            ln.optim.SGD(lr),
            steps=steps,
            observe=["modes"],
            record=ln.record.every(max(1, steps // 2000)),
        )
        half = np.asarray(run.steps)[np.argmax(np.asarray(run["modes"])[:, 0] > 0.5)]
        assert abs(half / expected - 1) < 0.03


def test_bad_input():
    for call, match in (
        (lambda: stability.curvature(1.0, 0), "depth = 0"),
        (lambda: stability.curvature(-1.0, 2), "s = -1.0"),
        (lambda: stability.minimum_spectrum([1.0, 2.0], 3, 4), "must descend"),
        (lambda: stability.minimum_spectrum([2.0, -1.0], 3, 4), "singular values are positive"),
        (lambda: stability.minimum_spectrum([], 3, 4), "must not be empty"),
        (lambda: stability.minimum_spectrum([2.0, 1.0], 3, 1), "d = 1"),
        (lambda: stability.minimum_spectrum([2.0, 1.0], 3, 4, 1.0), "alpha = 1 is not allowed: alpha must be below"),
        (lambda: stability.minimum_spectrum([2.0, 1.0], 3, 4, -0.1), "alpha = -0.1"),
        (lambda: stability.orbit(1.0, 1, 0.5), "depth = 1"),
        (lambda: stability.orbit(1.0, 3, -0.5), "lr = -0.5"),
        (lambda: stability.kappa(1.0, 3, 0.5, half=1), "half = 1"),
        (lambda: stability.stages(1), "depth = 1"),
        (lambda: stability.outcome([0.0], 3), "kappa"),
        (lambda: stability.largest_alpha(1.0, 3, 3.0), "must be below 2 sqrt"),
        (lambda: stability.largest_alpha(1.0, 3, 2.1, "loose"), "bound = 'loose'"),
        (lambda: stability.flow_values([[0.0], [0.0]], 1.0), "at most one may be zero"),
        (lambda: stability.flow_time([0.0, 0.0], 0.5, 1.0), "at most one may be zero"),
        (lambda: stability.flow_time([0.0, 1.0], 0.5, -1.0), "s = -1.0"),
        (lambda: stability.flow_sharpness(-1.0, 1.0, 3), "alpha"),
        (lambda: stability.cross_multipliers(0.9, 3, 2.1, "sideways"), "second = 'sideways'"),
        (lambda: stability.sorting_onset(1.0, 3), "ratio = 1.0"),
        (lambda: stability.escape_time(1.0, 0.0, 3), "alpha"),
        (lambda: stability.line([np.eye(2)], [np.eye(2), np.eye(2)]), "must agree"),
        (lambda: stability.line([np.eye(2)], []), "must be a list of matrices"),
    ):
        with pytest.raises(ln.InputError, match=match):
            call()


def test_cross_multipliers_of_two_layers_need_a_cycle():
    """Below e_1 = 1 mode 1 is at rest and the closed form says nothing; above it is the general one."""
    for first, second in ((1.0, 0.4), (1.07, 0.9), (1.1, 1.05)):
        general = stability.cross_multipliers(second / first, 2, 2 * first)
        np.testing.assert_allclose(
            np.sort(np.abs(general)), np.sort(np.abs(stability.cross_multipliers_two_layers(first, second))), rtol=1e-9
        )
    for first in (0.5, 0.999, -1.0, np.nan):
        with pytest.raises(ln.InputError, match=r"first must be a finite number of at least 1\."):
            stability.cross_multipliers_two_layers(first, 0.4)
