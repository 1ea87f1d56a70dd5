"""Hessians: products, dense, Lanczos and exact blocks against automatic differentiation of the plain loss."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.flatten_util import ravel_pytree

import linnet as ln
from linnet import observe


def plain_hessian(state, problem):
    flat, back = ravel_pytree(state)
    return jax.hessian(lambda v: problem.cost(back(v).matrix))(flat)


@pytest.mark.parametrize("cost", ["squared", "logistic", "regression"])
def test_dense_hessian_is_the_derivative_of_the_loss(cost):
    rng = np.random.default_rng(0)
    problem = {
        "squared": ln.factorisation(rng.normal(size=(3, 2))),
        "logistic": ln.logistic(np.sign(rng.normal(size=(3, 2)))),
        "regression": ln.regression(rng.normal(size=(5, 2)), rng.normal(size=(5, 3)), average=True),
    }[cost]
    state = ln.Weights((rng.normal(size=(4, 2)), rng.normal(size=(2, 4)), rng.normal(size=(3, 2))))
    plain = plain_hessian(state, problem)
    assert jnp.allclose(observe.hessian_matrix(state, problem), plain, atol=1e-11)
    values = jnp.linalg.eigvalsh(plain)[::-1]
    assert jnp.allclose(observe.hessian_spectrum(state, problem), values, atol=1e-11)
    assert jnp.allclose(observe.sharpness(state, problem), values[0])
    direction = jax.tree.map(lambda w: jnp.asarray(rng.normal(size=w.shape)), state)
    product = observe.hessian_product(state, problem, direction)
    assert jnp.allclose(ravel_pytree(product)[0], plain @ ravel_pytree(direction)[0])


def test_lanczos_finds_the_top_of_a_larger_network(key):
    problem = ln.low_rank_recovery(key, 12, 3)
    state = ln.gaussian(key, problem, 200, 0.05)
    trained = ln.simulate(
        problem, state, ln.GradientDescent(2.0), steps=300, observe=["sharpness"], record=ln.linear(3)
    )
    dense = observe.hessian_spectrum(trained.final, problem)
    assert dense.size > observe.hessian.DENSE_SHARPNESS
    assert np.isclose(trained["sharpness"][-1], dense[0], rtol=1e-9)
    assert jnp.allclose(observe.top_hessian(5)(state, problem), observe.hessian_spectrum(state, problem)[:5], rtol=1e-6)
    # few distinct eigenvalues: the Krylov space is exhausted early and must not break down
    exact = ln.identity(ln.factorisation(np.eye(14)), 1.0, 2)
    assert np.isclose(observe.sharpness(exact, ln.factorisation(np.eye(14))), 2.0)
    assert jnp.allclose(
        observe.top_hessian(4)(exact, ln.factorisation(np.eye(14))), jnp.array([2.0, 0, 0, 0]), atol=1e-7
    )
    single = ln.cast(exact, jnp.float32)
    assert np.isclose(observe.sharpness(single, ln.cast(ln.factorisation(np.eye(14)), jnp.float32)), 2.0, rtol=1e-5)
    saddle = ln.Weights([np.zeros((14, 14))] * 3)  # the Hessian is zero
    assert np.isclose(observe.sharpness(saddle, ln.factorisation(np.eye(14))), 0.0)


@pytest.mark.compiles
@given(depth=st.integers(2, 5), k=st.integers(1, 4), seed=st.integers(0, 10**6), residual=st.booleans())
def test_aligned_blocks_are_the_dense_hessian(depth, k, seed, residual):
    """`stability/C2` and beyond: all eigenvalues with multiplicities, any aligned point, any rotations."""
    rng = np.random.default_rng(seed)
    values = rng.uniform(0.3, 1.3, size=(depth, k)) * rng.choice([-1, 1], size=(depth, k))
    if seed % 3 == 0:
        values[-1] = 0  # the one-zero start
    spectrum = np.prod(values, axis=0) + (rng.normal(size=k) if residual else 0)
    u, v = (np.linalg.qr(rng.normal(size=(k, k)))[0] for _ in range(2))
    modes, vector = ln.Modes(values), ln.factorisation(spectrum, half=False)
    weights = modes.weights(u, v)
    dense = observe.hessian_spectrum(weights, ln.factorisation((u * spectrum) @ v.T, half=False))
    blocks = observe.aligned_spectrum(modes, vector)
    scale = max(1.0, float(jnp.max(jnp.abs(dense))))
    assert jnp.max(jnp.abs(blocks - dense)) < 1e-11 * scale
    assert jnp.allclose(observe.aligned_sharpness(modes, vector), dense[0], atol=1e-11 * scale)


def test_spectrum_at_a_balanced_minimum_has_the_closed_form():
    """`stability/C2`: S_i = L s_i^{2-2/L} once, lam_ij twice, and zeros."""
    s, depth = np.array([3.0, 2.0, 0.5]), 3
    values = np.tile(s ** (1 / depth), (depth, 1))
    got = observe.aligned_spectrum(ln.Modes(values), ln.factorisation(s))
    lam = [[sum(a ** (2 * (depth - 1 - j) / depth) * b ** (2 * j / depth) for j in range(depth)) for b in s] for a in s]
    expected = np.sort(np.concatenate([np.ravel(lam), np.zeros((depth - 1) * 9)]))[::-1]
    assert jnp.allclose(got, expected, atol=1e-12)


def test_diagonal_networks_lack_the_cross_directions():
    s, depth = np.array([3.0, 2.9]), 2
    modes = ln.Modes(np.tile(np.sqrt(s), (depth, 1)))
    vector = ln.factorisation(s)
    assert jnp.allclose(observe.hessian_spectrum(modes, vector), jnp.array([6.0, 5.8, 0.0, 0.0]), atol=1e-12)
    assert jnp.allclose(observe.aligned_spectrum(modes, vector)[:4], jnp.array([6.0, 5.9, 5.9, 5.8]))


def test_wrong_questions_are_refused():
    with pytest.raises(ln.InputError, match="no Hessian"):
        observe.hessian_matrix(ln.EndToEnd(np.eye(2), ln.Lazy(1.0)), ln.factorisation(np.eye(2)))
    with pytest.raises(ln.InputError, match="dense Hessian"):
        observe.hessian_matrix(ln.Weights([np.eye(60)]), ln.factorisation(np.eye(60)))
    with pytest.raises(ln.InputError, match="aligned"):
        observe.aligned_blocks(ln.Modes(np.ones((2, 2))), ln.factorisation(np.eye(2)))
    with pytest.raises(ln.InputError, match="count = 9"):
        observe.top_hessian(9)(ln.Weights([np.eye(2)]), ln.factorisation(np.eye(2)))
