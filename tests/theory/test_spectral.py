"""Spectral bias: closed forms against high precision, known figures and brute force."""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import solve_ivp
from scipy.linalg import expm

import linnet as ln
from linnet import linalg
from linnet.theory import spectral


def exact_mode(tau, target, gamma):
    """`whitened` in high precision."""
    tau, s, g = mp.mpf(tau), mp.mpf(target), mp.mpf(gamma)
    q = mp.sqrt(s * s + g * g)
    p, e = q + g, mp.exp(-2 * q * tau)
    v = s * s / p
    return s * (1 - e) * (p + v * e) / (p + 2 * s * s / g * e - v * e * e)


def exact_hitting(f, target, gamma):
    """`hitting_time` as an integral over the path, in closed form, in high precision."""
    f, s, g = mp.mpf(f), mp.mpf(target), mp.mpf(gamma)
    h, q = mp.sqrt((f * s) ** 2 + g * g), mp.sqrt(s * s + g * g)
    return mp.log1p(2 * q * f / (g * (1 - f) * (1 + g * (1 + f) / (h + f * q)))) / (2 * q)


def test_the_references_agree_with_each_other():
    with mp.workdps(400):
        for s, g in ((1.0, 1e-3), (3.0, 2.0), (0.1, 1e-100)):
            for f in (0.01, 0.5, 0.999):
                assert abs(exact_mode(exact_hitting(f, s, g), s, g) / (mp.mpf(f) * mp.mpf(s)) - 1) < 1e-30
                slope = mp.diff(lambda t, s=s, g=g: exact_mode(t, s, g), exact_hitting(f, s, g))
                value = mp.mpf(f) * mp.mpf(s)
                assert abs(slope / (2 * mp.sqrt(value**2 + mp.mpf(g) ** 2) * (mp.mpf(s) - value)) - 1) < 1e-20


def test_closed_form_and_hitting_times_keep_their_digits():
    rng = np.random.default_rng(0)
    count = 600
    gamma, target = 10 ** rng.uniform(-200, 3, count), 10 ** rng.uniform(-3, 2, count)
    target[::7] = gamma[::7] * 10 ** rng.uniform(-3, 3, len(gamma[::7]))  # near the threshold, wherever it is
    share = rng.choice([1e-12, 1e-3, 0.1, 0.5, 0.9, 1 - 1e-9], count)
    times = np.asarray(spectral.hitting_time(share, target, gamma))
    with mp.workdps(500):
        for i in range(count):
            right = exact_hitting(share[i], target[i], gamma[i])
            assert abs(mp.mpf(times[i]) / right - 1) < 1e-12, (share[i], target[i], gamma[i])
    tau = times * np.random.default_rng(1).uniform(0.2, 2, count)
    got = np.asarray(jax.vmap(spectral.whitened)(tau, target, gamma))
    with mp.workdps(500):
        for i in range(count):
            right = exact_mode(tau[i], target[i], gamma[i])
            # the time itself is rounded: what a relative error of 1e-16 in it does belongs to the input
            given = abs(exact_mode(tau[i] * (1 + 2e-16), target[i], gamma[i]) - right)
            assert abs(mp.mpf(got[i]) - right) < 1e-12 * abs(right) + 2 * given, (tau[i], target[i], gamma[i])


def test_jump_limit():
    for s, value in ((0.5, 0.25), (1.0, 1 / 3), (3.0, 3 / 7)):
        at = 1 / (2 * s)
        assert spectral.jump(at, s) == pytest.approx(value)
        assert spectral.jump(0.99 * at, s) == 0
        assert spectral.jump(1.01 * at, s) == s
        near = float(spectral.whitened(np.log(1e200) * at, s, 1e-200))
        assert near == pytest.approx(value, rel=1e-9)


def test_layers_loss_and_rates_along_a_flow(key):
    rng = np.random.default_rng(3)
    for shape, gamma in (((6, 4, 3), 0.3), ((3, 5, 2), 1e-3), ((4, 3, 5), 2.0), ((5, 6, 1), 0.05)):
        n, d_in, d_out = shape
        x = rng.normal(size=(n, d_in)) / np.sqrt(n)
        y = x @ rng.normal(size=(d_in, d_out))
        problem = ln.regression(x, y)
        initial = ln.init.i_gamma(problem, gamma)
        names = {"s": ln.observe.singular_values, "loss": ln.observe.loss, "a": ln.observe.matrix}
        names |= {f"w{i}": ln.observe.layer_singular_values(i) for i in (1, 2)}
        run = ln.simulate(
            problem, initial, ln.optim.GradientFlow(), time=20.0, observe=names, record=ln.record.linear(41)
        )
        k = min(d_in, d_out)
        for s, first, second in zip(run["s"], run["w1"], run["w2"], strict=True):
            layers = spectral.layer_values(s[:k], gamma, d_in)
            np.testing.assert_allclose(first[:d_in], layers.first, rtol=1e-7)
            np.testing.assert_allclose(second[:k], layers.second, atol=1e-7)
        eigenvalues = np.linalg.eigvalsh(x.T @ x)
        curvature = eigenvalues[eigenvalues > 1e-12][0]
        bound = spectral.loss_bound(run.times, run["loss"][0], gamma, curvature)
        assert np.all(run["loss"] <= bound * (1 + 1e-9) + 1e-15)
        if d_out == 1:
            rate = spectral.rate(run.times[1:], problem.target[0], gamma)
            assert np.all(run["loss"][1:] <= rate.sharp)
            assert np.all(rate.sharp <= rate.printed / 2 * (1 + 1e-12))


def test_potentials_are_what_their_gradients_say():
    s, gamma = jnp.array([2.0, 0.3, 1e-9]), 0.2
    np.testing.assert_allclose(jax.grad(spectral.entropy)(s, gamma), spectral.entropy_gradient(s, gamma), rtol=1e-12)
    a = jnp.array([0.4, -1.0, 2.0])
    np.testing.assert_allclose(
        jax.grad(spectral.potential)(a, gamma), spectral.potential_gradient(a, gamma), rtol=1e-12
    )
    with mp.workdps(60):
        for b, g in ((1e-8, 1.0), (1.0, 1e-12), (3.0, 0.5)):
            psi = lambda x, g=g: (  # noqa: E731
                mp.mpf(2) / 3 * (mp.sqrt(x * x + g * g) + g) ** 1.5 - 2 * g * mp.sqrt(mp.sqrt(x * x + g * g) + g)
            )
            right = psi(mp.mpf(b)) - psi(mp.mpf(0))
            assert abs(mp.mpf(float(spectral.potential(jnp.array([b]), g))) / right - 1) < 1e-13
    # spectral/C17: Psi ~ 1/2 ln(1/gamma) |A|_*
    for gamma, ratio in ((1e-4, 0.506), (1e-16, 0.501)):
        measured = float(spectral.entropy(jnp.array([1.0, 0.5]), gamma)) / (np.log(1 / gamma) * 1.5)
        assert 0.5 * ratio < measured < 1.6 * ratio


def test_limit_weights_solve_the_variational_problem():
    rng = np.random.default_rng(5)
    x, gamma = rng.normal(size=(3, 5)), 0.2
    y = rng.normal(size=(3, 2))
    problem = ln.regression(x, y)
    run = ln.simulate(problem, ln.init.i_gamma(problem, gamma), ln.optim.GradientFlow(rtol=1e-12), time=2000.0)
    w1, w2 = run.final.layers
    np.testing.assert_allclose(run.final.matrix, problem.target, atol=1e-9)
    np.testing.assert_allclose(w1.T @ w1, spectral.gram_limit(problem.target, gamma), atol=1e-8)
    assert max(map(float, spectral.stationarity(w1, w2, x, gamma))) < 1e-9
    assert max(map(float, spectral.stationarity(1.1 * w1, w2 / 1.1, x, gamma))) > 1e-3
    least = spectral.log_det_objective(w1, w2, gamma)
    reduced = spectral.reduced_objective(w1.T @ w1, run.final.matrix, gamma)
    assert float(least) == pytest.approx(float(reduced), rel=1e-9)
    for seed in range(20):  # competitors that fit as well
        g = np.random.default_rng(seed)
        first = np.asarray(w1) + 0.3 * g.normal(size=w1.shape)
        second = np.asarray(w2) + 0.3 * g.normal(size=w2.shape)
        second += (problem.target - second @ first) @ np.linalg.pinv(first)
        assert spectral.log_det_objective(first, second, gamma) > least


def test_the_largest_step_is_where_descent_stops_settling():
    rng = np.random.default_rng(6)
    x = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    problem = ln.regression(x, x @ np.diag([2.0, 1.0, 0.5, 0.2]))
    gamma = 0.1
    limit = spectral.largest_lr(x, problem.target, gamma)
    assert limit == pytest.approx(1 / np.hypot(2.0, gamma), rel=1e-12)
    for share, settles in ((0.9, True), (1.1, False)):
        run = ln.simulate(problem, ln.init.i_gamma(problem, gamma), ln.optim.SGD(share * limit), steps=2000)
        assert (float(run["loss"][-1]) < 1e-8) == settles


def test_noise_figures_of_the_spec():
    np.testing.assert_allclose(spectral.lyapunov(2), [0, -0.2374, -1.7626], atol=6e-5)
    np.testing.assert_allclose(spectral.lyapunov(3)[:2], [0.1418, -0.1418], atol=6e-5)
    np.testing.assert_allclose(spectral.lyapunov(4)[:2], [0.25, -0.0689], atol=6e-5)
    np.testing.assert_allclose(spectral.lyapunov(5)[:2], [0.3410, -0.0077], atol=6e-5)
    assert spectral.lyapunov(5)[:2].sum() == pytest.approx(1 / 3, rel=1e-10)
    np.testing.assert_allclose(spectral.lyapunov(6)[:2], [0.4211, 0.0462], atol=6e-5)
    for d in range(1, 12):
        assert spectral.lyapunov(d).sum() == pytest.approx(-d)
        assert np.all(np.diff(spectral.lyapunov(d)) <= 1e-12)
    for d in (2, 3, 5, 10):
        assert spectral.moment_exponent(2.0, d) == pytest.approx(np.sqrt(d), rel=1e-6)
        slope = (spectral.moment_exponent(1e-4, d) - spectral.moment_exponent(-1e-4, d)) / 2e-4
        assert slope == pytest.approx(spectral.lyapunov(d)[0], abs=1e-6)  # g'(0) is the first exponent
    assert spectral.moment_exponent(0.5, 2) == pytest.approx(0.0527, abs=6e-5)
    assert spectral.moment_exponent(1.0, 2) == pytest.approx(0.2594, abs=6e-5)
    assert spectral.moment_exponent(0.5, 5) == pytest.approx(0.2349, abs=6e-5)
    assert spectral.moment_exponent(0.5, 1) == -0.125
    assert spectral.commutator_limit() == pytest.approx(0.4819, abs=6e-5)


def test_noise_moments_solve_their_equations():
    scales, columns = np.array([1.3, 0.7, 0.4]), np.array([1.0, 0.5, 2.0])
    h = 1e-5
    for t in (0.1, 1.5):
        low, mid, high = (spectral.noise_moments(t + k * h, columns, 0.3, scales, frozen=0.2) for k in (-1, 0, 1))
        # V' = U and |W_1|^2' = (sum D^2) V
        assert (high.first - low.first) / (2 * h) == pytest.approx(np.sum(scales**2) * float(mid.second), rel=1e-7)
        second = (high.second - 2 * mid.second + low.second) / h**2
        assert second == pytest.approx(np.sum(scales**4) * float(mid.second), rel=1e-4)
    initial = spectral.noise_moments(0.0, columns, 0.3, scales, frozen=0.2)
    assert (float(initial.first), float(initial.second)) == pytest.approx((3.7, 0.3))
    p, q = np.array([0.2, 0.1, 0.4]), np.array([1.0, 0.3, 0.5])
    later, _ = spectral.commutator_moments(30.0, p, q)
    before, _ = spectral.commutator_moments(29.0, p, q)
    assert np.log(later.sum() / before.sum()) == pytest.approx(spectral.commutator_growth(3), rel=1e-6)


def _closed_flow(scales, limit, gamma, horizon, events):
    """The flow of A alone where X = diag(scales), by SciPy: the times of the events' first zeros."""

    def velocity(_, flat):
        a = flat.reshape(limit.shape)
        force = (limit - a) * scales**2
        u, s, vt = np.linalg.svd(a, full_matrices=False)
        k = s * (s / (np.hypot(s, gamma) + gamma))
        return (2 * gamma * force + (u * k) @ (u.T @ force) + ((force @ vt.T) * k) @ vt).ravel()

    initial = np.zeros(limit.size)
    found = solve_ivp(
        velocity, (0, horizon), initial, method="DOP853", rtol=1e-11, atol=1e-13 * gamma, events=events
    ).t_events
    return np.array([times[0] for times in found])


def _half_and_fit(scales, limit):
    u, s, vt = np.linalg.svd(limit, full_matrices=False)

    def half(i):
        return lambda _, flat: u[:, i] @ flat.reshape(limit.shape) @ vt[i] - s[i] / 2

    def fit(_, flat):
        left = (limit - flat.reshape(limit.shape)) * scales
        return np.sum(left**2) / np.sum((limit * scales) ** 2) - 0.01

    return [*(half(i) for i in range(len(s))), fit]


@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(1, 4), st.floats(-2.0, 1.0), st.floats(0.0, 1.0))
def test_activation_bounds_hold_on_any_data(seed, d_out, rank, size, spread):
    rng = np.random.default_rng(seed)
    gamma, scales = 10**size, np.exp(spread * rng.normal(size=rank))
    limit = rng.normal(size=(d_out, rank)) * 10 ** rng.uniform(-1, 1)
    turn = np.linalg.qr(rng.normal(size=(rank + 2, rank)))[0]  # neither samples nor inputs know the frame
    inputs = np.linalg.qr(rng.normal(size=(rank + 1, rank)))[0] * scales @ turn.T
    found = spectral.activation(0.5, inputs, limit @ turn.T, gamma)
    fit = spectral.fit_time(0.01, inputs, limit @ turn.T, gamma)
    *half, fitted = _closed_flow(scales, limit, gamma, 1.001 * max(fit.most, *found.most), _half_and_fit(scales, limit))
    assert np.all(found.least <= half)
    assert np.all(half <= found.most * (1 + 1e-9))
    assert fitted <= fit.most * (1 + 1e-9)
    assert np.all((found.least <= found.time) & (found.time <= found.most * (1 + 1e-9)))
    np.testing.assert_allclose(np.where(found.exact, found.time / half, 1), 1, rtol=1e-8)
    assert found.exact.all() == fit.exact
    if fit.exact:
        assert fit.time == pytest.approx(fitted, rel=1e-8)


def test_modes_along_principal_axes_are_exact_among_others(key):
    scales, gamma = np.array([2.0, 0.5, 1.0]), 0.05
    limit = np.zeros((2, 3))
    limit[0, 1], limit[1, [0, 2]] = 3.0, (1.0, 0.4)  # the first mode lies along an axis, the second between two
    found = spectral.activation(0.5, np.diag(scales), limit, gamma)
    assert found.exact.tolist() == [True, False]
    half = _closed_flow(scales, limit, gamma, 40.0, _half_and_fit(scales, limit))
    assert found.time[0] == pytest.approx(half[0], rel=1e-9)
    assert abs(found.time[1] / half[1] - 1) > 1e-3  # an estimate, and marked as one
    assert not spectral.fit_time(0.01, np.diag(scales), limit, gamma).exact
    diagonal = np.diag([1.0, 2.0, 0.3])
    apart = spectral.fit_time(0.01, np.diag(scales), diagonal, gamma)
    assert apart.exact
    assert apart.time == pytest.approx(
        _closed_flow(scales, diagonal, gamma, 80.0, _half_and_fit(scales, diagonal))[-1], rel=1e-9
    )
    for share in (0.0, 1.0, -1.0):
        with pytest.raises(ln.InputError, match="share"):
            spectral.activation(share, np.eye(2), np.eye(2), gamma)


def test_largest_lr_without_the_matrix_is_the_same(monkeypatch):
    rng = np.random.default_rng(2)
    x, a = rng.normal(size=(9, 14)), rng.normal(size=(4, 14))
    dense = spectral.largest_lr(x, a, 0.1)
    monkeypatch.setattr(linalg, "_DENSE", 1)
    assert spectral.largest_lr(x, a, 0.1) == pytest.approx(dense, rel=1e-9)


def test_layer_values_at_the_edges_of_their_domain():
    balanced = spectral.layer_values(np.array([4.0, 0.0]), 0.0, 3)
    np.testing.assert_allclose(balanced.first, [2.0, 0.0, 0.0])
    np.testing.assert_allclose(balanced.second, [2.0, 0.0])
    with pytest.raises(ln.InputError, match="d_in = 2 is not allowed: d_in must be a whole number of at least 3"):
        spectral.layer_values(np.array([3.0, 2.0, 1.0]), 0.1, 2)


def test_whitened_and_hitting_time_refuse_what_has_no_meaning():
    with pytest.raises(ln.InputError, match=r"gamma = -0.1 is not allowed"):
        spectral.whitened(1.0, 2.0, -0.1)
    assert spectral.hitting_time(1.0, 2.0, 0.1) == np.inf
    assert spectral.hitting_time(0.0, 2.0, 0.1) == 0
    for share in (-0.5, 1.5, np.nan):
        with pytest.raises(ln.InputError, match="share must be a number from 0 to 1"):
            spectral.hitting_time(share, 2.0, 0.1)
    with pytest.raises(ln.InputError, match=r"gamma = 0.0 is not allowed"):
        spectral.hitting_time(0.5, 2.0, 0.0)


def test_mean_of_the_commutators():
    """Against the second moments of all entries, dx = sum_j B_j x dB_j: E[x x^T]' = sum_j B_j E[x x^T] B_j^T."""
    rng = np.random.default_rng(8)
    w, d, scales = 3, 2, np.array([1.3, 0.6])
    first, readout = rng.normal(size=(w, d)), rng.normal(size=w)
    stack = np.concatenate([first.T, readout[None]]).ravel()  # c_1, c_2, a
    generator = 0.0
    for j in range(d):
        move = np.zeros((d + 1, d + 1))
        move[j, d] = move[d, j] = scales[j]
        move = np.kron(move, np.eye(w))
        generator = generator + np.kron(move, move)
    steps, dt = 40, 0.02
    moments = np.outer(stack, stack).ravel()
    right = expm(steps * dt * generator) @ moments
    euler = np.linalg.matrix_power(np.eye(len(generator)) + dt * generator, steps) @ moments
    for found, step in ((right, None), (euler, dt)):
        blocks = found.reshape(d + 1, w, d + 1, w)
        expected = np.array([blocks[i, :, d] - blocks[i, :, d].T for i in range(d)])
        got = spectral.commutator_mean(np.array([0.0, steps * dt]), first, readout, scales, step=step)
        np.testing.assert_allclose(got[1], expected, rtol=1e-10, atol=1e-12)
        assert got.shape == (2, d, w, w)


@pytest.mark.parametrize("gamma", [1e-8, 1e-2, 1.0, 1e3])
@pytest.mark.parametrize("value", [1e-6, 0.3, 10.0])
def test_the_earliest_time_is_its_integral(gamma, value):
    """The closed form against high precision, for theta' <= min(first + square gamma sinh(2 theta), top)."""
    data = spectral.Limit(np.diag([3.0, 1.0, 0.5]), np.array([[2.0, 0.3, 0.1], [0.0, 1.0, 0.4]]))
    top, square = np.sqrt(2 * data.excess) * data.scales[0], data.scales[0] ** 2
    first = np.linalg.norm(data.limit * data.scales**2, 2)
    end = mp.asinh(mp.mpf(value) / gamma) / 2
    bend = min(end, mp.asinh(max(top - first, 0.0) / square / gamma) / 2)
    rate = lambda theta: 1 / (first + square * gamma * mp.sinh(2 * theta))  # noqa: E731
    expected = mp.quad(rate, mp.linspace(0, bend, 9)) + (end - bend) / top
    assert spectral._earliest(value, gamma, data) == pytest.approx(float(expected) * (1 - 1e-9), rel=1e-13)
