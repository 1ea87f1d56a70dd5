"""Optimizers: closed forms against companion matrices, brute-force minima, dense Hessians and all batches there are."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import solve_ivp
from scipy.optimize import minimize

import linnet as ln
from linnet import _update as update
from linnet.theory import optimizers, stability

BETA = st.floats(0.0, 0.98)
FLAGS = st.booleans()


def step(theta, v, g, lr, momentum=0.0, dampening=0.0, nesterov=False, weight_decay=0.0, decoupled=False):
    """One step in PyTorch's convention, for anything that adds up."""
    g = g if decoupled else g + weight_decay * theta
    v = momentum * v + (1 - dampening) * g
    u = (1 - dampening) * g + momentum * v if nesterov else v
    return (1 - lr * weight_decay if decoupled else 1.0) * theta - lr * u, v


def radius(curvature, lr, **how):
    """The spectral radius of a step on a quadratic, from what it makes of both unit vectors."""
    columns = [step(x, v, curvature * x, lr, **how) for x, v in ((1.0, 0.0), (0.0, 1.0))]
    return float(np.max(np.abs(np.linalg.eigvals(np.array(columns).T))))


# Stable steps --------------------------------------------------------------------------------------------------------


@given(st.floats(0.01, 100.0), BETA, FLAGS, FLAGS, st.floats(0.0, 3.0), FLAGS)
def test_the_largest_stable_step_is_where_a_companion_matrix_leaves_the_circle(
    s, beta, nesterov, average, decay, apart
):
    how = {
        "momentum": beta,
        "dampening": beta * average,
        "nesterov": nesterov,
        "weight_decay": decay,
        "decoupled": apart,
    }
    lr = float(optimizers.largest_stable_lr(s, **how))
    assert radius(s, lr, **how) == pytest.approx(1, abs=1e-6)  # the square root of a rounding, at a double root
    assert radius(s, 0.999 * lr, **how) < 1 < radius(s, 1.001 * lr, **how)
    assert all(radius(s, share * lr, **how) < 1 for share in (0.01, 0.3, 0.7))
    assert float(optimizers.stability_limit(lr, **how)) == pytest.approx(s, rel=1e-9, abs=1e-9 * decay)


@given(st.floats(0.01, 100.0), BETA, FLAGS, FLAGS, st.floats(0.0, 3.0), FLAGS)
def test_up_to_the_largest_monotone_lr_both_roots_are_real_and_positive(s, beta, nesterov, average, decay, apart):
    how = {
        "momentum": beta,
        "dampening": beta * average,
        "nesterov": nesterov,
        "weight_decay": decay,
        "decoupled": apart,
    }
    lr = float(optimizers.largest_monotone_lr(s, **how))

    def discriminant_and_smaller_root(lr):
        matrix = np.array([step(x, v, s * x, lr, **how) for x, v in ((1.0, 0.0), (0.0, 1.0))])
        trace, determinant = np.trace(matrix), np.linalg.det(matrix)
        under = trace**2 - 4 * determinant
        return under, (trace - np.sqrt(max(under, 0.0))) / 2

    under, root = discriminant_and_smaller_root(0.999 * lr)
    assert under > -1e-12
    assert root > -1e-12
    under, root = discriminant_and_smaller_root(1.001 * lr)
    assert under < 0 or root < 0
    assert optimizers.largest_monotone_lr(0.0) == np.inf


@given(st.floats(0.1, 10.0), st.floats(0.0, 0.9), FLAGS, FLAGS, st.floats(0.0, 1.0), FLAGS)
def test_the_modified_equation_is_right_to_second_order(s, beta, nesterov, average, decay, apart):
    how = {
        "momentum": beta,
        "dampening": beta * average,
        "nesterov": nesterov,
        "weight_decay": decay,
        "decoupled": apart,
    }
    lr = 0.02 * float(optimizers.largest_monotone_lr(s, **how))
    once, half = (optimizers.modified_equation_error(share * lr, s, **how) for share in (1.0, 0.5))
    assert once < 1e-2
    assert half < once / 3 + 1e-9  # a quarter for small lr
    assert optimizers.modified_equation_error(0.1, 1.0, momentum=0.9) == np.inf  # it oscillates
    assert optimizers.modified_equation(lr) == (lr, lr / 2, 0.0)


def test_one_step_is_that_of_sgd():
    how = {"momentum": 0.7, "dampening": 0.2, "nesterov": True, "weight_decay": 0.1}
    problem = ln.factorization(np.diag([2.0, 1.0]))
    rng = np.random.default_rng(0)
    state = ln.Weights([rng.normal(size=(3, 2)), rng.normal(size=(2, 3))])
    optimizer = ln.optim.SGD(0.05, **how)
    own = optimizer.coefficients
    assert own == {**how, "decoupled": False}
    assert all(type(value) in (float, bool) for value in own.values())
    run = ln.simulate(problem, state, optimizer, steps=2)
    weights = state.trained()
    slope = jax.tree.map(np.negative, state.velocity(problem).trained())
    buffer = jax.tree.map(lambda w, g: update.initial_buffer(w, g, **own), weights, slope)
    for _ in range(2):
        slope = jax.tree.map(np.negative, weights.velocity(problem).trained())
        moved = jax.tree.map(lambda w, v, g: update.sgd_step(w, v, g, 0.05, **own), weights, buffer, slope)
        weights, buffer = jax.tree.transpose(jax.tree.structure(weights), jax.tree.structure((0, 0)), moved)
    for one, other in zip(jax.tree.leaves(run.final.trained()), jax.tree.leaves(weights), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_coefficients_are_numbers_without_compiling(caplog):
    with jax.log_compiles(True):
        optimizer = ln.optim.SGD(0.1, momentum=0.9, weight_decay=0.019, decoupled=True)
        assert optimizer.effective_decay == pytest.approx(0.0019)
        assert float(optimizers.largest_stable_lr(1.0, **optimizer.coefficients)) > 0
    assert not any("ompil" in record.message for record in caplog.records)
    traced = jax.jit(lambda b: ln.optim.SGD(0.1, momentum=b).coefficients["momentum"] + 0)
    assert traced(0.5) == 0.5


def test_the_limits_that_papers_print():
    assert optimizers.stability_limit(0.1) == pytest.approx(20)
    assert optimizers.stability_limit(0.1, momentum=0.9) == pytest.approx(38)
    assert optimizers.stability_limit(1.0, momentum=0.9, dampening=0.9) == pytest.approx(38)  # Adam
    assert optimizers.stability_limit(0.1, momentum=0.9, nesterov=True) == pytest.approx(38 / 2.8)
    assert optimizers.largest_stable_lr(0.0) == np.inf
    assert optimizers.largest_stable_lr(0.0, weight_decay=0.5, decoupled=True, momentum=0.3) == pytest.approx(4)
    assert optimizers.stability_limit(1.0, weight_decay=3.0) == -1  # too much for the step by itself


@given(st.floats(0.2, 3.0), BETA, FLAGS, FLAGS, st.floats(0.01, 1.0), FLAGS)
def test_training_rests_at_the_minimum_of_the_effective_decay(s, beta, nesterov, average, decay, apart):
    how = {
        "momentum": beta,
        "dampening": beta * average,
        "nesterov": nesterov,
        "weight_decay": decay,
        "decoupled": apart,
    }
    lr = 0.5 * float(optimizers.largest_stable_lr(1.0, **how))
    theta = v = 0.0
    for _ in range(20_000):
        theta, v = step(theta, v, theta - s, lr, **how)
    mu = optimizers.effective_decay(decay, momentum=beta, dampening=beta * average, decoupled=apart)
    assert theta == pytest.approx(s / (1 + float(mu)), rel=1e-9)


@pytest.mark.parametrize(("nesterov", "dampening"), [(False, 0.0), (True, 0.0), (False, 0.8)])
def test_momentum_is_the_flow_at_another_time_to_first_order(nesterov, dampening):
    errors = []
    for steps in (2000, 4000):
        lr = float(2.0 / optimizers.momentum_time(1.0, steps, 0.8, dampening=dampening))
        w, v = np.array([0.3, 0.5]), np.zeros(2)
        for _ in range(steps):
            w, v = step(w, v, (w[0] * w[1] - 2) * w[::-1], lr, 0.8, dampening, nesterov)
        flow = solve_ivp(lambda _, w: -(w[0] * w[1] - 2) * w[::-1], (0, 2.0), [0.3, 0.5], rtol=1e-11, atol=1e-12)
        errors.append(np.max(np.abs(w - flow.y[:, -1])))
    assert errors[0] / errors[1] == pytest.approx(2, abs=0.02)


# Minima with decay ---------------------------------------------------------------------------------------------------


@given(st.floats(-8.0, 3.0), st.integers(1, 100), st.floats(1e-12, 0.999), st.floats(-2.0, 2.0))
def test_the_decayed_value_solves_its_equation(log_s, depth, part, log_scale):
    s, scale = 10.0**log_s, 10.0**log_scale
    lost = part * depth / (2 * depth - 2) if depth > 2 else part
    sigma = s * (1 - lost)
    decay = scale * s * lost * sigma ** (1 - 2 / depth)
    found = float(optimizers.decayed_value(s, decay, depth, scale=scale, local=True))
    # what a rounding of the decay does: the slope of (s - x) x^p vanishes where both roots meet
    power = 1 - 2 / depth
    slope = abs(sigma**power - power * (s - sigma) * sigma ** (power - 1))
    assert abs(found - sigma) <= 2e-14 * (s + decay / scale / slope) + 1e-300
    assert (found > 0) == (s > 0)


@given(st.floats(-3.0, 2.0), st.integers(1, 20), st.floats(0.05, 5.0))
def test_the_global_minimum_is_the_lowest_of_a_grid(log_decay, depth, times):
    decay = 10.0**log_decay
    thresholds = optimizers.decay_thresholds(decay, depth)
    s = times * (float(thresholds.wins) or 1.0)
    found = float(optimizers.decayed_value(s, decay, depth))
    cost = lambda x: (s - x) ** 2 / 2 + decay * depth / 2 * x ** (2 / depth)  # noqa: E731
    grid = np.append(np.linspace(0, s, 20_001), np.geomspace(1e-12 * s, s, 2001))
    assert cost(found) <= np.min(cost(grid)) * (1 + 1e-12)
    if abs(times - 1) > 1e-3 and depth > 1:
        assert (found > 0) == (times > 1)
    if depth > 2:
        exists = float(thresholds.exists)
        assert exists < float(thresholds.wins)
        assert optimizers.decayed_value(0.999 * exists, decay, depth, local=True) == 0
        edge = float(optimizers.decayed_value(1.001 * exists, decay, depth, local=True))
        assert edge > 0
        slope = (edge - 1.001 * exists) + decay * edge ** (2 / depth - 1)
        assert abs(slope) < 1e-10 * exists


def test_no_decay_and_traced_numbers():
    assert np.array_equal(optimizers.decayed_value([0.0, 1e-8, 3.0], 0.0, 5), [0.0, 1e-8, 3.0])
    slope = jax.grad(lambda mu: optimizers.decayed_value(2.0, mu, 4))(0.3)
    near = [float(optimizers.decayed_value(2.0, mu, 4)) for mu in (0.3 - 1e-6, 0.3 + 1e-6)]
    assert slope == pytest.approx((near[1] - near[0]) / 2e-6, rel=1e-6)


def cost_of(shapes, target, decay):
    """The whole cost with decay, as a function of all weights in one vector."""
    ends = np.cumsum([0, *(a * b for a, b in shapes)])

    def cost(flat):
        layers = [flat[i:j].reshape(shape) for i, j, shape in zip(ends, ends[1:], shapes, strict=False)]
        product = layers[0]
        for layer in layers[1:]:
            product = layer @ product
        return jnp.sum((product - target) ** 2) / 2 + decay / 2 * jnp.sum(flat**2)

    return cost


@pytest.mark.parametrize(("depth", "width"), [(1, 3), (2, 3), (2, 2), (3, 3), (3, 2), (4, 3)])
def test_whole_matrices_have_no_lower_minimum(depth, width):
    rng, decay = np.random.default_rng(depth), 0.3
    target = (np.linalg.qr(rng.normal(size=(3, 3)))[0] * [3.0, 2.0, 0.5]) @ np.linalg.qr(rng.normal(size=(3, 3)))[0]
    widths = [3, *[width] * (depth - 1), 3]
    cost = cost_of([(b, a) for a, b in itertools.pairwise(widths)], target, decay)
    slope = jax.jit(jax.value_and_grad(cost))
    size = sum(a * b for a, b in itertools.pairwise(widths))
    told = np.sort(np.asarray(optimizers.decayed_value([3.0, 2.0, 0.5], decay, depth)))[::-1]
    told[width:] = 0
    lowest = None
    for _ in range(6):
        found = minimize(lambda x: [np.asarray(y) for y in slope(x)], rng.normal(size=size), jac=True, tol=1e-8)
        lowest = found if lowest is None or found.fun < lowest.fun else lowest
    s = np.array([3.0, 2.0, 0.5])
    ideal = np.sum((s - told) ** 2) / 2 + decay * depth / 2 * np.sum(told[told > 0] ** (2 / depth))
    assert lowest.fun == pytest.approx(ideal, rel=1e-9)


@pytest.mark.compiles
@given(st.integers(1, 4), st.integers(1, 3), st.floats(0.01, 0.6), st.floats(0.5, 2.0), FLAGS, st.integers(0, 99))
def test_curvatures_with_decay_are_the_dense_hessians(depth, d, decay, scale, local, seed):
    rng = np.random.default_rng(seed)
    s = rng.uniform(0.0, 3.0, d)
    s[rng.uniform(size=d) < 0.2] = 0.0
    values = np.asarray(optimizers.decayed_value(s, decay, depth, scale=scale, local=local)) ** (1 / depth)
    frames = np.linalg.qr(rng.normal(size=(depth + 1, d, d)))[0]
    layers = [up @ np.diag(values) @ down.T for down, up in itertools.pairwise(frames)]
    target = (frames[-1] * s) @ frames[0].T
    cost = cost_of([(d, d)] * depth, target, decay / scale)
    flat = np.concatenate([w.ravel() for w in layers])
    assert np.max(np.abs(jax.grad(cost)(flat))) < 1e-13
    dense = scale * np.linalg.eigvalsh(jax.hessian(cost)(flat))[::-1]
    found = optimizers.decayed_curvatures(s, decay, depth, scale=scale, local=local)
    assert found.shape == dense.shape
    assert np.max(np.abs(found - dense)) < 1e-11
    sharp = optimizers.decayed_sharpness(s, decay, depth, scale=scale, local=local)
    assert sharp == pytest.approx(found[0], rel=1e-13)
    assert found[-1] > -1e-12


def test_close_values_set_the_edge_together():
    s, decay = [2.0, 1.95], 0.1
    for depth, pair, alone in ((2, 3.95, 3.8), (4, 10.90, 10.51)):
        assert optimizers.decayed_sharpness(s, decay, depth) == pytest.approx(pair, abs=5e-3)
        assert optimizers.decayed_sharpness(s[:1], decay, depth) == pytest.approx(alone, abs=5e-3)
    for depth in (2, 3, 7):
        sigma = float(optimizers.decayed_value(2.0, decay, depth))
        closed = depth * sigma ** (2 - 2 / depth)
        assert optimizers.decayed_sharpness([2.0], decay, depth) == pytest.approx(closed - (depth - 2) * decay)
        assert optimizers.decayed_sharpness([2.0] * 40, decay, depth) == pytest.approx(closed + depth * decay)
        own = np.sort(optimizers.decayed_curvatures([2.0], decay, depth))
        assert np.allclose(own[:-1], 2 * decay, rtol=1e-12)
        still = optimizers.decayed_curvatures([2.0, 1.0], 0.0, depth)
        levels = stability.minimum_spectrum([2.0, 1.0], depth, 2)
        assert np.allclose(still, np.repeat([x.value for x in levels], [x.multiplicity for x in levels]), atol=1e-12)


# Balance -------------------------------------------------------------------------------------------------------------


@given(st.integers(2, 4), st.floats(0.0, 1.0), st.integers(0, 99))
def test_imbalance_decays_at_twice_the_rate(depth, decay, seed):
    rng = np.random.default_rng(seed)
    sizes = [3, *rng.integers(1, 5, depth - 1), 2]
    shapes = [(b, a) for a, b in itertools.pairwise(sizes)]
    ends = np.cumsum([a * b for a, b in shapes])[:-1]
    target = rng.normal(size=(2, 3))

    def layers(flat):
        return [w.reshape(shape) for w, shape in zip(np.split(flat, ends), shapes, strict=True)]

    def product(parts, size):
        return np.linalg.multi_dot([*parts[::-1], np.eye(size)]) if parts else np.eye(size)

    def velocity(_, flat):
        ws = layers(flat)
        residual = target - product(ws, 3)
        pieces = [
            product(ws[i + 1 :], sizes[i + 1]).T @ residual @ product(ws[:i], 3).T - decay * w for i, w in enumerate(ws)
        ]
        return np.concatenate([piece.ravel() for piece in pieces])

    initial, times = rng.normal(size=sum(a * b for a, b in shapes)), np.array([0.4, 1.3])
    found = solve_ivp(velocity, (0, 1.3), initial, t_eval=times, rtol=1e-11, atol=1e-12, method="DOP853").y.T
    before = ln.Weights(layers(initial)).imbalance()
    after = [ln.Weights(layers(end)).imbalance() for end in found]
    for layer, gap in enumerate(before):  # times come first, whatever the shape of the matrix
        left = np.stack([gaps[layer] for gaps in after])
        assert np.max(np.abs(optimizers.decayed_imbalance(times, gap, decay) - left)) < 1e-8


def test_label_noise_balances_at_the_rate():
    lr, noise, steps, runs = 0.05, 0.3, 4000, 400
    rng = np.random.default_rng(0)
    w1, w2 = np.full(runs, 1.5), np.full(runs, 1.5001)  # a small gap leaves S as it is
    before = w2**2 - w1**2
    for _ in range(steps):
        r = w2 * w1 - 2.25 - noise * rng.normal(size=runs)
        w1, w2 = w1 - lr * r * w2, w2 - lr * r * w1
    rates = -np.log(np.abs((w2**2 - w1**2) / before)) / (lr * steps)
    expected = float(optimizers.label_noise_rate(lr, noise, 4.5))
    # -log(1 - x) - x and what S feels of the noise are of second order in the noise: 2 % here
    assert abs(rates.mean() - expected) < 4 * rates.std() / np.sqrt(runs) + 0.02 * expected
    assert np.isnan(optimizers.label_noise_rate(1.0, 0.1, 2.0))


# Mini-batches --------------------------------------------------------------------------------------------------------


def brute(hessians, batch, lr, beta, replacement):
    """The spectral radius of the mean of T (x) T over every batch there is."""
    n, d, _ = hessians.shape
    draws = itertools.product(range(n), repeat=batch) if replacement else itertools.combinations(range(n), batch)
    total, count = np.zeros((4 * d * d, 4 * d * d)), 0
    for draw in draws:
        h = hessians[list(draw)].mean(axis=0)
        t = np.block([[(1 + beta) * np.eye(d) - lr * h, -beta * np.eye(d)], [np.eye(d), np.zeros((d, d))]])
        total, count = total + np.kron(t, t), count + 1
    return float(np.max(np.abs(np.linalg.eigvals(total / count))))


def samples(seed, n, d, rank):
    """Hessians of n samples, without negative eigenvalues."""
    a = np.random.default_rng(seed).normal(size=(n, d, rank))
    return a @ a.swapaxes(1, 2)


@given(st.integers(0, 999), st.integers(1, 3), st.integers(2, 5), st.integers(1, 3), BETA, FLAGS, st.floats(0.05, 3.0))
def test_batches_are_the_mean_over_all_of_them(seed, d, n, batch, beta, replacement, times):
    hessians, batch = samples(seed, n, d, d), min(batch, n)
    how = {"momentum": beta, "replacement": replacement}
    lr = optimizers.largest_batch_lr(hessians, batch, **how)
    assert brute(hessians, batch, lr, beta, replacement) == pytest.approx(1, abs=1e-6)
    assert (
        brute(hessians, batch, 0.99 * lr, beta, replacement) < 1 < brute(hessians, batch, 1.01 * lr, beta, replacement)
    )
    found = optimizers.batch_spectral_radius(hessians, batch, times * lr, **how)
    assert found == pytest.approx(brute(hessians, batch, times * lr, beta, replacement), rel=1e-6)
    averaged = optimizers.largest_batch_lr(hessians, batch, dampening=beta, **how)
    assert averaged * (1 - beta) == pytest.approx(lr)
    again = optimizers.batch_spectral_radius(hessians, batch, times * averaged, dampening=beta, **how)
    assert again == pytest.approx(found, rel=1e-9)


@given(st.integers(0, 999), st.integers(2, 6), st.integers(1, 6), BETA, FLAGS)
def test_one_direction_has_a_closed_form(seed, n, batch, beta, replacement):
    h, batch = np.random.default_rng(seed).uniform(0.1, 3.0, n), min(batch, n)
    draws = itertools.product(range(n), repeat=batch) if replacement else itertools.combinations(range(n), batch)
    means = [h[list(draw)].mean() for draw in draws]
    variance = optimizers.batch_variance(h, batch, replacement=replacement)
    assert variance == pytest.approx(np.var(means), abs=1e-14)
    lr = float(optimizers.batch_stable_lr(h.mean(), variance, momentum=beta))
    assert lr == pytest.approx(
        optimizers.largest_batch_lr(h[:, None, None], batch, momentum=beta, replacement=replacement)
    )
    assert lr <= float(optimizers.largest_stable_lr(h.mean(), momentum=beta)) * (1 + 1e-12)
    averaged = optimizers.batch_stable_lr(h.mean(), variance, momentum=beta, dampening=beta)
    assert float(averaged) * (1 - beta) == pytest.approx(lr)


def test_flat_directions_whole_batches_and_large_maps(monkeypatch):
    flat = np.zeros((4, 3, 3))
    flat[:, :2, :2] = samples(1, 4, 2, 2)
    assert optimizers.largest_batch_lr(flat, 2, momentum=0.5) == pytest.approx(
        optimizers.largest_batch_lr(flat[:, :2, :2], 2, momentum=0.5)
    )
    all_of_it = optimizers.largest_batch_lr(flat, 4, momentum=0.5)
    top = np.linalg.eigvalsh(flat.mean(axis=0))[-1]
    assert all_of_it == pytest.approx(float(optimizers.largest_stable_lr(top, momentum=0.5)))
    assert optimizers.batch_spectral_radius(flat, 4, all_of_it, momentum=0.5) == pytest.approx(1)
    # steps that land on the minimum in one: only the noise is left
    ones = np.array([[[0.5]], [[1.5]]])
    assert optimizers.batch_spectral_radius(ones, 1, 1.0) == pytest.approx(0.25)
    # more dimensions than a matrix of the map is made for: at the largest step the radius is 1, momentum or not
    wide = samples(3, 60, 30, 1)
    for beta in (0.0, 0.9):
        lr = optimizers.largest_batch_lr(wide, 4, momentum=beta)
        assert optimizers.batch_spectral_radius(wide, 4, lr, momentum=beta) == pytest.approx(1, abs=1e-9)
        assert optimizers.batch_spectral_radius(wide, 4, 0.5 * lr, momentum=beta) < 1
    hessians = samples(2, 8, 5, 1)
    dense = [optimizers.largest_batch_lr(hessians, 2, momentum=0.7), optimizers.batch_spectral_radius(hessians, 2, 0.1)]
    monkeypatch.setattr(optimizers, "_DENSE", 2)
    large = [optimizers.largest_batch_lr(hessians, 2, momentum=0.7), optimizers.batch_spectral_radius(hessians, 2, 0.1)]
    assert np.allclose(large, dense, rtol=1e-9)


@given(st.integers(0, 999), st.integers(1, 3), st.integers(1, 30), BETA, FLAGS)
def test_fresh_gaussian_samples_have_one_equation(seed, d, batch, beta, average):
    """Points with a Gaussian's moments up to the fifth are as good as a Gaussian: squares of a step see four."""
    h = np.random.default_rng(seed).uniform(0.01, 3.0, d)
    inputs = np.array(list(itertools.product([0, 0, 0, 0, 3**0.5, -(3**0.5)], repeat=d))) * np.sqrt(h)
    hessians = inputs[:, :, None] * inputs[:, None, :]
    found = optimizers.largest_online_lr(h, batch, momentum=beta, dampening=beta * average)
    how = {"momentum": beta, "dampening": beta * average, "replacement": True}
    assert found == pytest.approx(optimizers.largest_batch_lr(hessians, batch, **how), rel=1e-11)


def test_fresh_samples_of_many_inputs_and_large_batches():
    h = np.array([2.0, 1e-6, 0.0])
    # a batch of everything is no batch
    assert optimizers.largest_online_lr(h, 10**15, momentum=0.9) == pytest.approx(1.9, rel=1e-13)
    # equal inputs: c + d/B in place of c + 1/B
    assert optimizers.largest_online_lr(np.full(50, 0.5), 8) == pytest.approx(4 / (1 + 51 / 8), rel=1e-14)
    assert optimizers.largest_online_lr(1e-200 * h, 3) == pytest.approx(1e200 * optimizers.largest_online_lr(h, 3))


def test_what_batches_refuse():
    with pytest.raises(ln.InputError, match="negative eigenvalues"):
        optimizers.largest_batch_lr(-samples(0, 2, 2, 2), 1)
    with pytest.raises(ln.InputError, match="symmetric"):
        optimizers.largest_batch_lr(np.triu(np.ones((2, 3, 3))), 1)
    with pytest.raises(ln.InputError, match="batch_size = 3"):
        optimizers.largest_batch_lr(samples(0, 2, 2, 2), 3)
    assert optimizers.largest_batch_lr(samples(0, 2, 2, 2), 3, replacement=True) > 0
