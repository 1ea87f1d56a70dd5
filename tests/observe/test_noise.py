"""Gradient noise against the gradients of all samples, one by one."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.flatten_util import ravel_pytree

import linnet as ln
from linnet import observe


def gradients(state, problem):
    """Of each sample alone, by automatic differentiation of its cost."""
    moving = state.layers if isinstance(state, ln.states.ReluNetwork) else state
    flat, back = ravel_pytree(moving)
    x, y = state.sampled(problem)

    def cost(v, i):
        if isinstance(state, ln.states.ReluNetwork):
            outputs = ln.states.ReluNetwork(*back(v), x).matrix[:, i]
            return jnp.sum((outputs - y[i]) ** 2) / 2  # of the mean over samples
        return problem.on_samples(x[i][None], y[i][None]).cost(back(v).matrix)

    return np.asarray(jax.vmap(jax.grad(cost), (None, 0))(flat, jnp.arange(x.shape[0])))


def covariance(g):
    return (g - g.mean(axis=0)).T @ (g - g.mean(axis=0)) / len(g)


def compare(state, problem, rtol=1e-11):
    g = gradients(state, problem)
    whole = ravel_pytree(state.velocity(problem).trained())[0]
    np.testing.assert_allclose(g.mean(axis=0), -whole, atol=1e-12 * (1 + np.max(np.abs(g))))
    noise = covariance(g)
    tiny = 1e-13 * np.sum(g**2)
    np.testing.assert_allclose(observe.gradient_noise(state, problem), np.trace(noise), rtol=rtol, atol=tiny)
    np.testing.assert_allclose(
        observe.gradient_noise_top(state, problem), np.linalg.eigvalsh(noise)[-1], rtol=rtol, atol=tiny
    )


@pytest.mark.compiles
@given(
    depth=st.integers(1, 4),
    d_in=st.integers(1, 6),
    d_out=st.integers(1, 4),
    n=st.integers(1, 8),
    classes=st.booleans(),
    average=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_noise_of_linear_networks(depth, d_in, d_out, n, classes, average, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d_in))
    if classes:
        d_out = d_out + 1
        problem = ln.classification(x, rng.integers(0, d_out, size=n), classes=d_out, average=average)
    else:
        problem = ln.regression(x, rng.normal(size=(n, d_out)), average=average, output_scale=0.7)
    widths = (d_in, *rng.integers(1, 9, size=depth - 1), d_out)
    compare(ln.Weights([rng.normal(size=(b, a)) for a, b in itertools.pairwise(widths)]), problem)


@pytest.mark.slow
def test_noise_of_other_states_and_of_many_samples():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(6, 4)), rng.normal(size=(6, 3))
    data = ln.regression(x, y, average=True)
    compare(ln.RankOne(rng.normal(size=4), 0.7, rng.normal(size=3), 4), data)
    compare(ln.Modes(rng.normal(size=(3, 4))), ln.problems.diagonal_regression(x, y[:, 0], average=True))
    relu = ln.states.ReluNetwork(rng.normal(size=(5, 4)), rng.normal(size=(3, 5)), x)
    compare(relu, ln.supervised(y, "half squares", average="samples"))
    # a closed flow has the noise of the layers it stands for
    layers = ln.init.balanced(rng.normal(size=(3, 4)), (5, 5))
    end = ln.EndToEnd(layers.matrix, ln.states.Balanced(3))
    for look in (observe.gradient_noise, observe.gradient_noise_top):
        np.testing.assert_allclose(look(end, data), look(layers, data), rtol=1e-10)
    many = rng.normal(size=(300, 4))  # by Lanczos
    assert len(many) > observe.hessian.DENSE_SHARPNESS
    compare(
        ln.Weights((rng.normal(size=(7, 4)), rng.normal(size=(3, 7)))),
        ln.classification(many, rng.integers(0, 3, size=300), average=True),
        rtol=1e-9,
    )


def test_noise_is_that_of_batches():
    """All batches of b out of n: their gradients scatter by noise / b (n - b) / (n - 1)."""
    rng = np.random.default_rng(2)
    problem = ln.regression(rng.normal(size=(6, 4)), rng.normal(size=(6, 2)), average=True)
    state = ln.Weights((rng.normal(size=(3, 4)), rng.normal(size=(2, 3))))
    x, y = problem.sampled()
    for b in (1, 2, 5):
        chosen = np.array(list(itertools.combinations(range(6), b)))
        batch = jax.vmap(lambda rows: ravel_pytree(state.velocity(problem.on_samples(x[rows], y[rows])))[0])(chosen)
        spread = covariance(np.asarray(batch))
        share = (6 - b) / (b * 5)
        np.testing.assert_allclose(np.trace(spread), share * observe.gradient_noise(state, problem), rtol=1e-11)
        top = np.linalg.eigvalsh(spread)[-1]
        np.testing.assert_allclose(top, share * observe.gradient_noise_top(state, problem), rtol=1e-11)


def test_small_noise_does_not_cancel():
    """Samples that differ by their sign, or by 1e-9: a difference of two squares would be rounding."""
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(1, 4)), rng.normal(size=(1, 2))
    state = ln.Weights((rng.normal(size=(9, 4)), rng.normal(size=(2, 9))))
    one = ravel_pytree(state.velocity(ln.regression(x, y, average=True)))[0]
    signs = np.array([1.0, -1.0, -1.0])[:, None]
    same = ln.regression(signs * x, signs * y, average=True)
    for look in (observe.gradient_noise, observe.gradient_noise_top):
        assert look(state, same) < 1e-28 * jnp.sum(one**2)
    # labels move by 1e-9 up and down: gradients by the same share of their derivative
    labels = y + 1e-9 * np.array([[1.0, 0.0], [-1.0, 0.0]])
    pair = ln.regression(np.repeat(x, 2, axis=0), labels, average=True)
    force = np.array([[1.0], [0.0]]) @ x
    shift = 1e-9 * ravel_pytree(state.vjp(jnp.asarray(force)))[0]
    for look in (observe.gradient_noise, observe.gradient_noise_top):
        np.testing.assert_allclose(look(state, pair), jnp.sum(shift**2), rtol=1e-5)


def test_noise_is_recorded_and_refused():
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(6, 4)), rng.normal(size=(6, 2))
    problem = ln.regression(x, y, average=True)
    state = ln.Weights((rng.normal(size=(3, 4)), rng.normal(size=(2, 3))))
    names = ["gradient_noise", "gradient_noise_top"]
    run = ln.simulate(problem, state, ln.optim.SGD(0.01), steps=3, observe=names, record=ln.record.every(1))
    for name in names:
        np.testing.assert_allclose(run[name][-1], observe.named(name)(run.final, problem), rtol=1e-10)
    with pytest.raises(ln.InputError, match="has no samples: use regression or classification"):
        observe.gradient_noise(state, ln.factorization(np.ones((2, 4))))
    with pytest.raises(ln.InputError, match="samples=True"):
        observe.gradient_noise_top(state, ln.regression(x, y, samples=False))
