"""Known numbers are computed in NumPy: nothing is compiled before the first run."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import linnet as ln
from linnet.states import cast


@contextlib.contextmanager
def no_program():
    """Fails if a program is compiled, or fetched from the cache of compiled ones."""
    compiled = []

    def listener(event, _seconds, **_):
        if "backend_compile" in event:
            compiled.append(event)

    jax.clear_caches()
    jax.monitoring.register_event_duration_secs_listener(listener)
    try:
        yield
    finally:
        jax.monitoring.unregister_event_duration_listener(listener)
    assert not compiled


@pytest.fixture(scope="module")
def samples():
    rng = np.random.default_rng(3)
    return rng.normal(size=(13, 5)), rng.normal(size=(13, 3))


def problems(samples):
    x, y = samples
    return [ln.regression(x, y), ln.regression(x, y, average=True, output_scale=0.7), ln.factorization(y.T @ x)]


def test_weights_and_problems_compile_nothing(samples):
    rng = np.random.default_rng(4)
    layers = [rng.normal(size=(20, 5)), rng.normal(size=(3, 20))]
    with no_program():
        for problem in problems(samples):
            weights = ln.Weights(layers)
            for state in (weights, weights.compress(), weights.by_layer([1.0, 0.5]), weights.descend(problem, 0.1)):
                assert state.matrix.shape == problem.shape
                assert len(state.prefixes()) == 2
                problem.cost(state.matrix), problem.gradient(state.matrix), state.velocity(problem)
                state.vjp(state.matrix), state.imbalance(), state.size, state.balance()
            problem.target, problem.bases(), problem.fit(), problem.optimum(2), problem.noise_covariance()
        regression = problems(samples)[0]
        small, basis = regression.project()
        weights.project(basis).lift(basis, weights), weights.compress().expand(weights)
        regression.whiten(), regression.gram, regression.cross, regression.square, regression.sampled(), small.cost


@pytest.mark.parametrize("single", [False, True])
def test_numpy_computes_what_a_program_does(samples, single):
    rng = np.random.default_rng(5)
    dtype = jnp.float32 if single else jnp.float64
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if single else {"rtol": 1e-11, "atol": 1e-11}
    state = ln.Weights([rng.normal(size=(9, 5)), rng.normal(size=(9, 9)), rng.normal(size=(3, 9))])
    for problem in problems(samples):
        state, problem = cast(state, dtype), cast(problem, dtype)
        for function in (
            lambda s, p: s.matrix,
            lambda s, p: s.prefixes(),
            lambda s, p: s.velocity(p),
            lambda s, p: s.descend(p, 0.01),
            lambda s, p: s.imbalance(),
            lambda s, p: s.size,
            lambda s, p: s.by_layer([1.0, 2.0, 3.0]),
            lambda s, p: p.cost(s.matrix),
            lambda s, p: p.gradient(s.matrix),
            lambda s, p: p.noise_covariance()[0],
            lambda s, p: p.target,
        ):
            here, there = function(state, problem), jax.jit(function)(state, problem)
            assert jax.tree.structure(here) == jax.tree.structure(there)
            for one, other in zip(jax.tree.leaves(here), jax.tree.leaves(there), strict=True):
                assert isinstance(one, jax.Array)
                assert one.dtype == other.dtype == dtype
                np.testing.assert_allclose(one, other, **tolerance)


def test_initializations_compile_nothing(samples):
    problem, square = problems(samples)[0], ln.factorization(np.diag([3.0, 2.0, 1.0]))
    with no_program():
        for width in (1000, 3, (7, 6)):
            assert ln.init.gaussian(5, problem, width, 0.1).matrix.shape == problem.shape
        ln.init.identity(square, 0.1, 3), ln.init.one_zero(square, 0.1, 3), ln.init.orthogonal(5, square, 0.1, 3)
        ln.init.balanced(problem.target, (6,), key=5), ln.init.i_gamma(problem, 0.3, key=5, width=8)
        for lam in (-0.5, 0.0, 0.5):
            assert ln.init.lambda_balanced(5, problem, lam, 3).balance() == pytest.approx(lam)
        ln.init.readout(5, ln.regression(samples[0], samples[1][:, 0]), 50, sigma0=1.0, v0=0.1)
        ln.problems.low_rank_recovery(5, 4, 2), ln.problems.gaussian_samples(5, 6, 20)


@pytest.mark.parametrize("seed", [0, 3, 2**35])
def test_a_seed_is_its_key(samples, seed):
    problem = problems(samples)[0]
    one, other = (ln.init.gaussian(key, problem, 30, 0.1) for key in (seed, jax.random.key(seed)))
    for w, v in zip(one.layers, other.layers, strict=True):
        np.testing.assert_array_equal(w, v)
    with pytest.raises(ln.InputError, match="or a seed"):
        ln.init.gaussian(-1, problem, 30, 0.1)
