"""Observables of mini-batches against all batches, gradient and dense Hessian of each by automatic differentiation."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import linnet as ln
from linnet import observe
from linnet.optim import SGD
from linnet.record import at, every


def linear(n=6):
    rng = np.random.default_rng(0)
    problem = ln.regression(rng.normal(size=(n, 3)), rng.normal(size=(n, 2)), average=True)
    return problem, ln.Weights([0.7 * rng.normal(size=(4, 3)), 0.7 * rng.normal(size=(2, 4))])


def tanh(n=6):
    rng = np.random.default_rng(1)
    problem = ln.problems.supervised(rng.normal(size=(n, 2)), "half squares", average="samples")
    return problem, ln.networks.mlp(2, rng.normal(size=(n, 3)), (4, 2), activation="tanh", bias=True)


def of_batch(state, problem, rows):
    """Gradient and dense Hessian of the cost of these samples."""
    x, y = state.sampled(problem)
    flat, back = ravel_pytree(state.trained())

    def cost(v):
        view, own = state.on_samples(problem, x[rows], y[rows])
        return own.cost(eqx.combine(back(v), view).matrix)

    return np.asarray(jax.grad(cost)(flat)), np.asarray(jax.hessian(cost)(flat))


CASES = pytest.mark.parametrize("case", [linear, tanh])


@pytest.mark.quick(2)
@CASES
@pytest.mark.parametrize("size", [2, 5])
def test_all_batches(case, size):
    problem, state = case()
    found = [of_batch(state, problem, np.array(rows)) for rows in itertools.combinations(range(6), size)]
    g, h = (np.mean([part[i] for part in found], axis=0) for i in (0, 1))
    square = np.mean([b @ b for b, _ in found])
    own, whole = (np.mean([b @ (m if i else h) @ b for b, m in found]) for i in (1, 0))
    bs = observe.batch_sharpness(size, draws=None)(state, problem)
    np.testing.assert_allclose(
        [bs["ratio"], bs["numerator"], bs["denominator"]], [own / square, own, square], rtol=1e-10
    )
    gni = observe.gradient_noise_interaction(size, draws=None)(state, problem)
    np.testing.assert_allclose([gni["ratio"], gni["numerator"]], [whole / (g @ g), whole], rtol=1e-10)
    q = observe.mean_square_ratio(size)(state, problem)
    cost = float(problem.cost(state.matrix))
    np.testing.assert_allclose([q["ratio"], q["numerator"]], [square / (2 * cost), square], rtol=1e-10)
    assert bs["error"] == gni["error"] == 0


@CASES
def test_draws_scatter_by_their_error_around_the_mean(case):
    """Weights that do not move, measured at 60 steps: other batches at each, and the same in another run."""
    problem, state = case(9)
    observed = {
        "bs": observe.batch_sharpness(3, draws=40),
        "gni": observe.gradient_noise_interaction(3, draws=5),
        "all_bs": observe.only(observe.batch_sharpness(3, draws=None), at([0])),
        "all_gni": observe.only(observe.gradient_noise_interaction(3, draws=None), at([0])),
    }
    run, again = (ln.simulate(problem, state, SGD(1e-300), steps=59, observe=observed, record=every(1)) for _ in "ab")
    for name in ("bs", "gni"):
        ratios, errors = (np.asarray(run[f"{name}_{part}"]) for part in ("ratio", "error"))
        np.testing.assert_array_equal(again[f"{name}_ratio"], ratios)
        assert len(np.unique(ratios)) > 40  # nine samples have few sets of five
        right = float(run[f"all_{name}_ratio"][0])
        assert abs(ratios.mean() - right) < 4 * ratios.std() / np.sqrt(60) + 0.02 * right
        assert 0.6 < np.sqrt(np.mean(errors**2)) / ratios.std() < 1.6
        assert np.all(np.asarray(run[f"{name}_numerator"] / run[f"{name}_denominator"]) == ratios)


def test_whole_batches_are_plain_curvature():
    problem, state = linear()
    gradient = state.velocity(problem)
    along = ravel_pytree(gradient)[0] @ ravel_pytree(observe.hessian_product(state, problem, gradient))[0]
    plain = along / jnp.sum(ravel_pytree(gradient)[0] ** 2)
    for make in (observe.batch_sharpness, observe.gradient_noise_interaction):
        np.testing.assert_allclose(make(6)(state, problem)["ratio"], plain, rtol=1e-12)


def test_other_states_and_float32():
    problem, state = linear()
    end = ln.EndToEnd(state.matrix, ln.states.Balanced(2))
    with pytest.raises(ln.InputError, match="no weights"):
        observe.batch_sharpness(2)(end, problem)
    small = jax.tree.map(lambda x: x.astype(jnp.float32), state)
    for look in (observe.batch_sharpness(2, None), observe.gradient_noise_interaction(2), observe.mean_square_ratio(2)):
        one, two = look(small, problem)["ratio"], look(state, problem)["ratio"]
        assert one.dtype == jnp.float32
        np.testing.assert_allclose(one, two, rtol=1e-4)


def test_what_is_refused():
    problem, state = linear()
    with pytest.raises(ln.InputError, match=r"batch_size = 7 is not allowed: .* from 1 to 6 \(the samples there are\)"):
        observe.mean_square_ratio(7)(state, problem)
    with pytest.raises(ln.InputError, match="batch_size = 0"):
        observe.batch_sharpness(0)
    with pytest.raises(ln.InputError, match="draws = 1"):
        observe.batch_sharpness(1, draws=1)
    many = ln.regression(np.ones((40, 3)), np.ones((40, 2)), average=True)
    with pytest.raises(ln.InputError, match="40 samples have more than 4096 batches of 10"):
        observe.batch_sharpness(10, draws=None)(state, many)
    with pytest.raises(ln.InputError, match="Factorization has no samples"):
        observe.batch_sharpness(1)(state, ln.factorization(np.ones((2, 3))))
