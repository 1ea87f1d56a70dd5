"""Noise: label-noise descent, the SDE and its schemes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm

import linnet as ln
from linnet.optim.noise import _boost


def start(rng, width, d_in, d_out):
    return ln.Weights((0.5 * rng.normal(size=(width, d_in)), 0.5 * rng.normal(size=(d_out, width))))


def test_no_label_noise_is_descent(key):
    rng = np.random.default_rng(0)
    problem = ln.regression(rng.normal(size=(6, 4)), rng.normal(size=(6, 2)))
    state = start(rng, 5, 4, 2)
    quiet = ln.simulate(problem, state, ln.optim.LabelNoiseSGD(0.02, 0.0), steps=200, key=key)
    plain = ln.simulate(problem, state, ln.optim.SGD(0.02), steps=200)
    assert jnp.allclose(quiet["loss"], plain["loss"], rtol=1e-12)


def test_label_noise_descent_is_euler_maruyama(key):
    """Spectral bias, appendix D: t = lr k and delta_SDE = sqrt(lr) delta_label, the same path."""
    rng = np.random.default_rng(1)
    problem = ln.regression(rng.normal(size=(6, 4)), rng.normal(size=(6, 2)), average=True)
    state, lr, delta = start(rng, 5, 4, 2), 0.05, 0.4
    a = ln.simulate(problem, state, ln.optim.LabelNoiseSGD(lr, delta), steps=300, key=key)
    b = ln.simulate(problem, state, ln.optim.NoisyFlow(lr, np.sqrt(lr) * delta), steps=300, key=key)
    assert jnp.allclose(a["loss"], b["loss"], rtol=1e-9)


@pytest.mark.parametrize("scheme", ["euler", "geometric"])
@pytest.mark.parametrize("d_out", [1, 2])
def test_width_drops_out_of_noisy_optimizer(scheme, d_out, key):
    rng = np.random.default_rng(2)
    problem = ln.regression(rng.normal(size=(6, 3)), rng.normal(size=(6, d_out)), average=True)
    full = start(rng, 40, 3, d_out)
    optimizer = ln.optim.NoisyFlow(0.02, 0.3, scheme=scheme)
    ends = [ln.simulate(problem, s, optimizer, steps=2000, key=key).final for s in (full, full.compress())]
    assert jnp.allclose(ends[1].matrix, ends[0].matrix, rtol=1e-10, atol=1e-12)
    for one, other in zip(*(ln.observe.grams(e) for e in ends), strict=True):
        assert jnp.allclose(other, one, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("d_out", "d_in"), [(1, 3), (2, 3), (3, 2), (1, 1)])
def test_boost_is_the_matrix_exponential(d_out, d_in):
    rng = np.random.default_rng(3)
    state, force = start(rng, 4, d_in, d_out), rng.normal(size=(d_out, d_in))
    z = np.concatenate([state.layers[0], state.layers[1].T], axis=1)
    n = np.block([[np.zeros((d_in, d_in)), force.T], [force, np.zeros((d_out, d_out))]])
    new = _boost(state, jnp.asarray(force))
    assert jnp.allclose(jnp.concatenate([new.layers[0], new.layers[1].T], axis=1), z @ expm(n), rtol=1e-12)
    assert jnp.allclose(new.imbalance()[0], state.imbalance()[0], atol=1e-12)  # a Lorentz boost
    still = _boost(state, jnp.zeros((d_out, d_in)))
    assert jnp.allclose(still.matrix, state.matrix)


def test_geometric_scheme_without_noise_conserves_the_imbalance(key):
    rng = np.random.default_rng(4)
    problem = ln.regression(rng.normal(size=(6, 3)), rng.normal(size=(6, 2)), average=True)
    state = start(rng, 4, 3, 2)
    optimizer = ln.optim.NoisyFlow(0.05, 0.0, scheme="geometric")
    end = ln.simulate(problem, state, optimizer, steps=400, key=key).final
    descent = ln.simulate(problem, state, ln.optim.SGD(0.05), steps=400).final
    assert jnp.max(jnp.abs(end.imbalance()[0] - state.imbalance()[0])) < 1e-11
    assert jnp.max(jnp.abs(descent.imbalance()[0] - state.imbalance()[0])) > 1e-4


def moments(w1_0, a_0, t, d_in):
    """`spectral/C18`: E|W_1|^2 and E|a|^2 of the pure noise."""
    k = np.sqrt(d_in)
    return (
        w1_0 * np.cosh(k * t) + k * a_0 * np.sinh(k * t),
        a_0 * np.cosh(k * t) + w1_0 * np.sinh(k * t) / k,
    )


@pytest.mark.parametrize("scheme", ["euler", "geometric"])
def test_pure_noise_has_its_exact_second_moments(scheme):
    d_in, paths, steps, dt = 2, 20_000, 100, 0.005
    problem = ln.regression(np.eye(d_in), np.zeros(d_in))
    state = ln.Weights((np.eye(2), np.array([[0.3, -0.2]])))
    optimizer = ln.optim.NoisyFlow(dt, 1.0, drift=False, scheme=scheme)
    keys = jax.random.split(jax.random.key(0), paths)
    ends = jax.vmap(lambda k: ln.simulate(problem, state, optimizer, steps=steps, key=k, record=ln.record.linear(2)))(
        keys
    ).final
    squares = [np.asarray(jnp.sum(w**2, axis=(1, 2))) for w in ends.layers]
    u, v = 2.0, 0.13
    if scheme == "euler":  # exact for the scheme itself
        for _ in range(steps):
            u, v = u + dt * d_in * v, v + dt * u
        expected, bias = (u, v), 0.0
    else:
        expected, bias = moments(u, v, dt * steps, d_in), 0.01
    for sample, mean in zip(squares, expected, strict=True):
        assert abs(sample.mean() - mean) < 4 * sample.std() / np.sqrt(paths) + bias * mean
    assert abs(expected[0] / 2.0 - 1) > 0.1  # growth worth seeing


def test_noise_is_colored_by_the_data(key):
    """General data: E|a|^2 grows with kap = |X X^T|_F."""
    x = np.diag([1.5, 0.5])
    problem = ln.regression(x, np.zeros(2))
    state = ln.Weights((np.eye(2), np.zeros((1, 2))))
    paths, steps, dt = 20_000, 60, 0.002
    optimizer = ln.optim.NoisyFlow(dt, 1.0, drift=False)
    keys = jax.random.split(key, paths)
    ends = jax.vmap(lambda k: ln.simulate(problem, state, optimizer, steps=steps, key=k, record=ln.record.linear(2)))(
        keys
    ).final
    a2 = np.asarray(jnp.sum(ends.layers[1] ** 2, axis=(1, 2)))
    u, v = 1.5**2 + 0.5**2, 0.0
    for _ in range(steps):
        u, v = u + dt * (1.5**4 + 0.5**4) * v, v + dt * u
    assert abs(a2.mean() - v) < 4 * a2.std() / np.sqrt(paths)


def test_noise_needs_labels_and_the_geometric_scheme_two_layers(key):
    with pytest.raises(ln.InputError, match="no labels"):
        ln.simulate(
            ln.problems.logistic(np.ones((2, 2))), ln.Weights([np.eye(2)]), ln.optim.NoisyFlow(0.1), steps=1, key=key
        )
    problem, optimizer = ln.factorization(np.eye(2)), ln.optim.NoisyFlow(0.1, scheme="geometric")
    with pytest.raises(ln.InputError, match="two layers"):
        ln.simulate(problem, ln.init.identity(problem, 1.0, 3), optimizer, steps=1, key=key)


@pytest.mark.parametrize("scheme", ["euler", "geometric"])
def test_one_flow_map_carries_every_start_through_pure_noise(scheme, key):
    rng = np.random.default_rng(8)
    problem = ln.regression(rng.normal(size=(6, 3)), rng.normal(size=(6, 2)))
    optimizer = ln.optim.NoisyFlow(0.003, drift=False, scheme=scheme)
    phi = ln.simulate(problem, ln.init.propagator(problem), optimizer, steps=300, key=key).final
    for width in (1, 4, 30):
        state = start(rng, width, 3, 2)
        end = ln.simulate(problem, state, optimizer, steps=300, key=key).final
        moved = state.propagated(phi)
        for one, other in zip(end.layers, moved.layers, strict=True):
            assert jnp.allclose(one, other, rtol=1e-10, atol=1e-12)
        assert jnp.max(jnp.abs(end.layers[0] - state.layers[0])) > 0.01
    with pytest.raises(ln.InputError, match=r"phi has widths \(3, 4, 2\): it must have \(3, 5, 2\)"):
        state.propagated(start(rng, 4, 3, 2))
    with pytest.raises(ln.InputError, match="two layers"):
        state.propagated(ln.init.identity(ln.factorization(np.eye(3)), 0.1, 3))


def test_steps_that_shrink(key):
    problem = ln.factorization(np.zeros((1, 2)))
    state, dt = ln.init.i_gamma(problem, 0.5), 0.1
    run = ln.simulate(
        problem, state, ln.optim.NoisyFlow(dt, drift=False, power=0.5), steps=200, observe=["matrix"], key=key
    )
    sizes = dt * np.arange(1, 201) ** -0.5
    np.testing.assert_allclose(run.times[1:], np.cumsum(sizes), rtol=1e-13)
    # the second step by hand
    one, two = (
        ln.simulate(problem, state, ln.optim.NoisyFlow(dt, drift=False, power=0.5), steps=k, key=key).final
        for k in (1, 2)
    )
    noise = np.sqrt(sizes[1]) * problem.label_noise(jax.random.fold_in(key, 1))
    assert jnp.allclose(two.layers[1], one.layers[1] + noise @ one.layers[0].T, rtol=1e-12)
    with pytest.raises(ln.InputError, match=r"power = 0\.5 is not allowed with scheme = 'geometric'"):
        ln.optim.NoisyFlow(dt, scheme="geometric", power=0.5)
    with pytest.raises(ln.InputError, match="power = 2 is not allowed: power must be a number from 0 to 1"):
        ln.optim.NoisyFlow(dt, power=2)


@pytest.mark.parametrize(("d_out", "share"), [(2, 1.0), (3, 1.0), (2, 0.0)])
def test_the_geometric_scheme_is_the_ito_process_for_several_outputs(d_out, share, monkeypatch):
    """E tr P, E tr R and E tr(P S) of P = W_1^T W_1, R = W_2 W_2^T obey p' = r tr S, r' = d_out q, q' = r tr S^2."""
    x, paths, steps, dt = np.diag([1.2, 0.6]), 3000, 100, 0.005
    problem, rng = ln.regression(x, np.zeros((2, d_out))), np.random.default_rng(0)
    state = ln.Weights((np.eye(2), rng.normal(size=(d_out, 2)) / 2))
    optimizer = ln.optim.NoisyFlow(dt, 1.0, drift=False, scheme="geometric")
    if not share:  # without the correction the process is Stratonovich's, which grows faster: the test must notice
        monkeypatch.setattr(type(optimizer), "prepare", lambda *_: (jnp.eye(2), jnp.ones(())))
        jax.clear_caches()
    keys = jax.random.split(jax.random.key(3), paths)
    ends = jax.vmap(lambda k: ln.simulate(problem, state, optimizer, steps=steps, key=k, record=ln.record.linear(2)))(
        keys
    ).final
    w1, w2 = ends.layers
    s = x.T @ x
    seen = [
        np.asarray(each)
        for each in (
            jnp.sum(w1**2, (1, 2)),
            jnp.sum(w2**2, (1, 2)),
            jnp.einsum("kwi,ij,kwj->k", w1, s, w1),
        )
    ]
    now = np.array([2.0, float(jnp.sum(state.layers[1] ** 2)), np.trace(s)])
    rate = np.array([[0, np.trace(s), 0], [0, 0, d_out], [0, np.trace(s @ s), 0]])
    expected = expm(rate * dt * steps) @ now
    off = [abs(a.mean() - b) - 4 * a.std() / np.sqrt(paths) - 0.01 * b for a, b in zip(seen, expected, strict=True)]
    assert (max(off) < 0) == bool(share)
    assert np.all(expected / now > 1.2)


@pytest.mark.parametrize("scheme", ["euler", "geometric"])
def test_noise_with_weight_decay_has_its_second_moments(scheme):
    """d E|W_1|^2 = (d_in E|a|^2 - 2 mu E|W_1|^2) dt and d E|a|^2 = (E|W_1|^2 - 2 mu E|a|^2) dt for unit inputs."""
    d_in, paths, steps, dt, mu = 2, 20_000, 100, 0.005, 0.7
    problem = ln.regression(np.eye(d_in), np.zeros(d_in))
    state = ln.Weights((np.eye(2), np.array([[0.3, -0.2]])))
    optimizer = ln.optim.NoisyFlow(dt, 1.0, drift=False, scheme=scheme, weight_decay=mu)
    keys = jax.random.split(jax.random.key(0), paths)
    ends = jax.vmap(lambda k: ln.simulate(problem, state, optimizer, steps=steps, key=k, record=ln.record.linear(2)))(
        keys
    ).final
    squares = [np.asarray(jnp.sum(w**2, axis=(1, 2))) for w in ends.layers]
    u, v = 2.0, 0.13
    if scheme == "euler":  # exact for the scheme itself
        for _ in range(steps):
            u, v = (1 - dt * mu) ** 2 * u + dt * d_in * v, (1 - dt * mu) ** 2 * v + dt * u
        expected, bias = (u, v), 0.0
    else:
        expected = tuple(np.exp(-2 * mu * dt * steps) * x for x in moments(u, v, dt * steps, d_in))
        bias = 0.01
    for sample, mean in zip(squares, expected, strict=True):
        assert abs(sample.mean() - mean) < 4 * sample.std() / np.sqrt(paths) + bias * mean
