"""Hessians: products, dense, Lanczos and exact blocks against automatic differentiation of the plain loss."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.flatten_util import ravel_pytree

import linnet as ln
from linnet import observe

# References are one program each: operation by operation they would be hundreds.


@eqx.filter_jit
def plain_hessian(state, problem):
    flat, back = ravel_pytree(state)
    return jax.hessian(lambda v: problem.cost(back(v).matrix))(flat)


@pytest.mark.parametrize("cost", ["squared", "logistic", "regression"])
def test_dense_hessian_is_the_derivative_of_the_loss(cost):
    rng = np.random.default_rng(0)
    problem = {
        "squared": ln.factorization(rng.normal(size=(3, 2))),
        "logistic": ln.problems.logistic(np.sign(rng.normal(size=(3, 2)))),
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


@eqx.filter_jit
def plain_parts(state, problem):
    """J^T C'' J and what is left of the Hessian, dense."""
    flat, back = ravel_pytree(state)
    jacobian = jax.jacobian(lambda v: back(v).matrix.ravel())(flat)
    shape = state.matrix.shape
    second = jax.hessian(lambda a: problem.cost(a.reshape(shape)))(state.matrix.ravel())
    first = jacobian.T @ second @ jacobian
    return first, plain_hessian(state, problem) - first


def random_weights(rng, shape, depth):
    widths = (shape[1], *rng.integers(1, 6, size=depth - 1), shape[0])
    return ln.Weights([rng.normal(size=(above, below)) for below, above in itertools.pairwise(widths)])


@eqx.filter_jit
def dense(product, state, problem):
    flat, back = ravel_pytree(state)
    return jax.vmap(lambda v: ravel_pytree(product(state, problem, back(v)))[0])(jnp.eye(flat.size))


@pytest.mark.compiles
@given(
    depth=st.integers(1, 4),
    d_in=st.integers(1, 5),
    d_out=st.integers(2, 4),
    n=st.integers(1, 6),
    cost=st.sampled_from(["regression", "classes", "factorization", "logistic"]),
    seed=st.integers(0, 10**6),
)
def test_the_two_parts_of_the_hessian(depth, d_in, d_out, n, cost, seed):
    rng = np.random.default_rng(seed)
    x, goal = rng.normal(size=(n, d_in)), rng.normal(size=(d_out, d_in))
    problem = {
        "regression": lambda: ln.regression(x, rng.normal(size=(n, d_out)), average=True, output_scale=0.5),
        "classes": lambda: ln.classification(x, rng.integers(0, d_out, size=n), classes=d_out),
        "factorization": lambda: ln.factorization(goal),
        "logistic": lambda: ln.problems.logistic(np.sign(goal)),
    }[cost]()
    state = random_weights(rng, problem.shape, depth)
    first, rest = plain_parts(state, problem)
    unit = 1 + float(jnp.max(jnp.abs(first)) + jnp.max(jnp.abs(rest)))
    assert jnp.max(jnp.abs(dense(observe.gauss_newton_product, state, problem) - first)) < 1e-12 * unit
    assert jnp.max(jnp.abs(dense(observe.residual_product, state, problem) - rest)) < 1e-12 * unit
    assert np.isclose(observe.gauss_newton_sharpness(state, problem), jnp.linalg.eigvalsh(first)[-1], atol=1e-11 * unit)
    values = jnp.linalg.eigvalsh((rest + rest.T) / 2)
    assert jnp.allclose(observe.residual_extremes(state, problem), values[jnp.array([-1, 0])], atol=1e-11 * unit)


@pytest.mark.slow
def test_parts_of_other_states_and_by_lanczos():
    rng = np.random.default_rng(3)
    vector = ln.factorization(rng.normal(size=4))
    matrix = ln.classification(rng.normal(size=(8, 9)), rng.integers(0, 4, size=8), average=True)
    wide = ln.Weights((rng.normal(size=(14, 9)), rng.normal(size=(4, 14))))
    assert ravel_pytree(wide)[0].size > observe.hessian.DENSE_SHARPNESS
    for state, problem in (
        (ln.Modes(rng.normal(size=(3, 4))), vector),
        (ln.RankOne(rng.normal(size=9), 0.7, rng.normal(size=4), 4), matrix),
        (wide, matrix),
        (ln.Weights([rng.normal(size=shape) for shape in ((8, 9), (8, 8), (4, 8))]), matrix),
    ):
        first, rest = plain_parts(state, problem)
        assert np.isclose(observe.gauss_newton_sharpness(state, problem), jnp.linalg.eigvalsh(first)[-1], rtol=1e-10)
        values = jnp.linalg.eigvalsh(rest)[jnp.array([-1, 0])]
        assert jnp.allclose(observe.residual_extremes(state, problem), values, rtol=1e-8, atol=1e-11)
        direction = jax.tree.map(lambda w: jnp.asarray(rng.normal(size=w.shape)), state)
        both = [f(state, problem, direction) for f in (observe.gauss_newton_product, observe.residual_product)]
        whole = observe.hessian_product(state, problem, direction)
        assert jnp.allclose(ravel_pytree(both[0])[0] + ravel_pytree(both[1])[0], ravel_pytree(whole)[0], atol=1e-12)


def relu():
    rng = np.random.default_rng(4)
    state = ln.states.ReluNetwork(rng.normal(size=(4, 3)), rng.normal(size=(2, 4)), rng.normal(size=(5, 3)))
    return state, ln.factorization(rng.normal(size=(2, 5)))


def test_samples_of_a_relu_network_are_no_weights():
    state, problem = relu()
    flat, back = ravel_pytree(state.layers)
    plain = jax.hessian(lambda v: problem.cost(ln.states.ReluNetwork(*back(v), state.inputs).matrix))(flat)
    assert jnp.allclose(observe.hessian_matrix(state, problem), plain, atol=1e-12)
    assert jnp.allclose(observe.sharpness(state, problem), jnp.linalg.eigvalsh(plain)[-1])
    along = observe.hessian_product(state, problem, state)  # a direction in which the samples would move
    assert jnp.allclose(ravel_pytree(along.layers)[0], plain @ flat)
    assert not jnp.any(along.inputs)
    scales = [jnp.exp(w) for w in state.layers]
    root = jnp.diag(ravel_pytree(scales)[0] ** -0.5)
    seen = observe.preconditioned_sharpness(scales)(state, problem)
    assert jnp.allclose(seen, jnp.linalg.eigvalsh(root @ plain @ root)[-1])


@pytest.mark.parametrize("width", [3, 20])
def test_preconditioned_sharpness(width):
    """Dense and by Lanczos; the linear stability of preconditioned descent is read off it."""
    rng = np.random.default_rng(5)
    problem = ln.regression(rng.normal(size=(9, 6)), rng.normal(size=(9, 3)), average=True)
    state = ln.Weights((0.5 * rng.normal(size=(width, 6)), 0.5 * rng.normal(size=(3, width))))
    scales = jax.tree.map(lambda w: jnp.asarray(rng.uniform(0.2, 5.0, size=w.shape)), state)
    h, p = plain_hessian(state, problem), ravel_pytree(scales)[0]
    top = jnp.linalg.eigvalsh(h / jnp.sqrt(p[:, None] * p[None, :]))[-1]
    assert np.isclose(observe.preconditioned_sharpness(scales)(state, problem), top, rtol=1e-10)
    assert np.isclose(jnp.max(jnp.linalg.eigvals(h / p[:, None]).real), top, rtol=1e-10)  # of P^{-1} H
    assert np.isclose(
        observe.preconditioned_sharpness(4.0)(state, problem), observe.sharpness(state, problem) / 4, rtol=1e-10
    )


def smoothed(values, points, width):
    """The density of these eigenvalues, as it is written."""
    gaps = (np.asarray(points)[:, None] - np.asarray(values)) / width
    return np.mean(np.exp(-(gaps**2) / 2), axis=1) / (width * np.sqrt(2 * np.pi))


@pytest.mark.slow
def test_density_of_the_hessian():
    rng = np.random.default_rng(6)
    problem = ln.regression(rng.normal(size=(9, 8)), rng.normal(size=(9, 4)), average=True)
    points, width = np.linspace(-3, 9, 25), 0.3
    small = ln.Weights((0.5 * rng.normal(size=(5, 8)), 0.5 * rng.normal(size=(4, 5))))
    look = observe.hessian_density(points, width)
    right = smoothed(jnp.linalg.eigvalsh(plain_hessian(small, problem)), points, width)
    np.testing.assert_allclose(look(small, problem), right, rtol=1e-9, atol=1e-12)
    state = ln.Weights((0.5 * rng.normal(size=(20, 8)), 0.5 * rng.normal(size=(4, 20))))
    values, vectors = np.linalg.eigh(plain_hessian(state, problem))
    right = smoothed(values, points, width)
    flat, back = ravel_pytree(state)
    assert flat.size > max(64, observe.hessian.DENSE_SHARPNESS)

    def product(v):
        return ravel_pytree(observe.hessian_product(state, problem, back(v)))[0]

    def densities(starts, matvecs):
        return np.asarray(observe.hessian.densities(product, starts, jnp.asarray(points), jnp.asarray(width), matvecs))

    # what one vector v sees is v^T f(H) v / |v|^2
    signs = rng.choice([-1.0, 1.0], size=(40, flat.size))
    bumps = np.exp(-(((points[:, None] - values) / width) ** 2) / 2) / (width * np.sqrt(2 * np.pi))
    exact = (signs @ vectors) ** 2 @ bumps.T / flat.size
    seen = densities(jnp.asarray(signs), 120)
    np.testing.assert_allclose(seen, exact, atol=1e-8)
    # a whole orthonormal basis sees the trace
    basis = np.linalg.qr(rng.normal(size=(flat.size, flat.size)))[0]
    np.testing.assert_allclose(np.mean(densities(jnp.asarray(basis), 120), axis=0), right, atol=1e-8)
    # and random probes see it within their statistical error
    error = np.std(exact, axis=0) / np.sqrt(16)
    found = look(state, problem)
    assert np.all(np.abs(found - right) <= 4.5 * error + 1e-6)
    assert np.max(np.abs(found - observe.hessian_density(points, width, seed=1)(state, problem))) > 1e-4
    run = ln.simulate(problem, state, ln.optim.SGD(0.01), steps=2, observe=[look], record=ln.record.every(1))
    assert run["hessian_density"].shape == (3, 25)
    np.testing.assert_allclose(run["hessian_density"][0], found, rtol=1e-9, atol=1e-12)


def test_density_of_few_distinct_eigenvalues():
    """An exhausted Krylov space: weights are those of the eigenspaces, and nothing comes from what follows."""
    problem = ln.factorization(np.eye(10))
    state = ln.init.identity(problem, 1.0, 2)
    points = np.array([-1.0, 0.0, 1.0, 2.0])
    starts = jnp.asarray(np.eye(200)[:3])
    back = ravel_pytree(state)[1]
    seen = observe.hessian.densities(
        lambda v: ravel_pytree(observe.hessian_product(state, problem, back(v)))[0],
        starts,
        jnp.asarray(points),
        jnp.asarray(0.2),
        100,
    )
    np.testing.assert_allclose(seen, np.tile(smoothed([0.0, 2.0], points, 0.2), (3, 1)), atol=1e-10)


@pytest.mark.slow
def test_lanczos_finds_the_top_of_a_larger_network(key):
    problem = ln.low_rank_recovery(key, 12, 3)
    state = ln.init.gaussian(key, problem, 200, 0.05)
    trained = ln.simulate(
        problem, state, ln.optim.SGD(2.0), steps=300, observe=["sharpness"], record=ln.record.linear(3)
    )
    dense = observe.hessian_spectrum(trained.final, problem)
    assert dense.size > observe.hessian.DENSE_SHARPNESS
    assert np.isclose(trained["sharpness"][-1], dense[0], rtol=1e-9)
    assert jnp.allclose(observe.top_hessian(5)(state, problem), observe.hessian_spectrum(state, problem)[:5], rtol=1e-6)
    # few distinct eigenvalues: the Krylov space is exhausted early and must not break down
    exact = ln.init.identity(ln.factorization(np.eye(14)), 1.0, 2)
    assert np.isclose(observe.sharpness(exact, ln.factorization(np.eye(14))), 2.0)
    assert jnp.allclose(
        observe.top_hessian(4)(exact, ln.factorization(np.eye(14))), jnp.array([2.0, 0, 0, 0]), atol=1e-7
    )
    single = ln.states.cast(exact, jnp.float32)
    assert np.isclose(
        observe.sharpness(single, ln.states.cast(ln.factorization(np.eye(14)), jnp.float32)), 2.0, rtol=1e-5
    )
    saddle = ln.Weights([np.zeros((14, 14))] * 3)  # the Hessian is zero
    assert np.isclose(observe.sharpness(saddle, ln.factorization(np.eye(14))), 0.0)


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
    modes, vector = ln.Modes(values), ln.factorization(spectrum, half=False)
    weights = modes.weights(u, v)
    dense = observe.hessian_spectrum(weights, ln.factorization((u * spectrum) @ v.T, half=False))
    blocks = observe.aligned_spectrum(modes, vector)
    scale = max(1.0, float(jnp.max(jnp.abs(dense))))
    assert jnp.max(jnp.abs(blocks - dense)) < 1e-11 * scale
    assert jnp.allclose(observe.aligned_sharpness(modes, vector), dense[0], atol=1e-11 * scale)


def test_spectrum_at_a_balanced_minimum_has_the_closed_form():
    """`stability/C2`: S_i = L s_i^{2-2/L} once, lam_ij twice, and zeros."""
    s, depth = np.array([3.0, 2.0, 0.5]), 3
    values = np.tile(s ** (1 / depth), (depth, 1))
    got = observe.aligned_spectrum(ln.Modes(values), ln.factorization(s))
    lam = [[sum(a ** (2 * (depth - 1 - j) / depth) * b ** (2 * j / depth) for j in range(depth)) for b in s] for a in s]
    expected = np.sort(np.concatenate([np.ravel(lam), np.zeros((depth - 1) * 9)]))[::-1]
    assert jnp.allclose(got, expected, atol=1e-12)


def test_diagonal_networks_lack_the_cross_directions():
    s, depth = np.array([3.0, 2.9]), 2
    modes = ln.Modes(np.tile(np.sqrt(s), (depth, 1)))
    vector = ln.factorization(s)
    assert jnp.allclose(observe.hessian_spectrum(modes, vector), jnp.array([6.0, 5.8, 0.0, 0.0]), atol=1e-12)
    assert jnp.allclose(observe.aligned_spectrum(modes, vector)[:4], jnp.array([6.0, 5.9, 5.9, 5.8]))


def test_wrong_questions_are_refused():
    with pytest.raises(ln.InputError, match="no Hessian"):
        observe.hessian_matrix(ln.EndToEnd(np.eye(2), ln.states.Lazy(1.0)), ln.factorization(np.eye(2)))
    for mirror in (ln.states.ScalarMirror([[1.0, 2.0]], 0.1), ln.states.SpectralMirror(np.diag([2.0, 1.0]), 0.1)):
        with pytest.raises(ln.InputError, match="no Hessian"):
            observe.sharpness(mirror, ln.factorization(mirror.matrix))
    for product in (observe.gauss_newton_product, observe.residual_product):
        end = ln.EndToEnd(np.eye(2), ln.states.Lazy(1.0))
        with pytest.raises(ln.InputError, match="no Hessian"):
            product(end, ln.factorization(np.eye(2)), end)
    with pytest.raises(ln.InputError, match="dense Hessian"):
        observe.hessian_matrix(ln.Weights([np.eye(60)]), ln.factorization(np.eye(60)))
    with pytest.raises(ln.InputError, match="aligned"):
        observe.aligned_blocks(ln.Modes(np.ones((2, 2))), ln.factorization(np.eye(2)))
    with pytest.raises(ln.InputError, match="count = 9"):
        observe.top_hessian(9)(ln.Weights([np.eye(2)]), ln.factorization(np.eye(2)))
    for bad in (0.0, ln.Weights([-np.eye(2)]), "large"):
        with pytest.raises(ln.InputError, match=r"preconditioner = .*greater than 0"):
            observe.preconditioned_sharpness(bad)
    with pytest.raises(ln.InputError, match=r"must be one number or have \[\(2, 2\)\]"):
        observe.preconditioned_sharpness(np.ones(4))(ln.Weights([np.eye(2)]), ln.factorization(np.eye(2)))
    for bad, words in (
        (lambda: observe.hessian_density([], 0.1), "points"),
        (lambda: observe.hessian_density([0.0], 0), "width = 0"),
        (lambda: observe.hessian_density([0.0], 0.1, probes=0), "probes = 0"),
        (lambda: observe.hessian_density([0.0], 0.1, matvecs=0.5), "matvecs = 0.5"),
        (lambda: observe.hessian_density([0.0], 0.1, seed=-1), "seed = -1"),
    ):
        with pytest.raises(ln.InputError, match=words):
            bad()
