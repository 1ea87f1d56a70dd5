"""A ReLU student on the same road, against the same training written out."""

import jax
import numpy as np
import pytest

import linnet as ln


def student(rng, n=10, d_in=5, width=20, d_out=1, scale=0.5):
    x, y = rng.normal(size=(n, d_in)) / np.sqrt(n), rng.normal(size=(n, d_out)) / np.sqrt(n)
    w1, w2 = scale * rng.normal(size=(width, d_in)), scale * rng.normal(size=(d_out, width))
    return x, y, w1, w2


@pytest.mark.parametrize("d_out", [1, 3])
def test_descent_of_a_relu_network(d_out):
    x, y, w1, w2 = student(np.random.default_rng(d_out), d_out=d_out)
    problem, lr, steps = ln.factorisation(y.T), 0.05, 500
    looks = {"loss": ln.observe.loss, "s": ln.observe.layer_singular_values(1)}
    run = ln.simulate(problem, ln.ReluNetwork(w1, w2, x), ln.GradientDescent(lr), steps=steps, observe=looks)
    for _ in range(steps):
        hidden = np.maximum(x @ w1.T, 0)
        error = hidden @ w2.T - y
        w1, w2 = w1 - lr * ((error @ w2) * (hidden > 0)).T @ x, w2 - lr * error.T @ hidden
    np.testing.assert_allclose(run.final.layers[0], w1, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(run.final.layers[1], w2, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(run.final.inputs, x)
    np.testing.assert_allclose(run["s"][-1], np.linalg.svd(w1, compute_uv=False), rtol=1e-10)
    assert run["loss"][-1] < 0.5 * run["loss"][0]


def test_its_change_is_the_gradient_and_its_tangent_the_kernel():
    x, y, w1, w2 = student(np.random.default_rng(5), d_out=2)
    state, problem = ln.ReluNetwork(w1, w2, x), ln.factorisation(y.T)
    gradient = jax.grad(lambda s: problem.cost(s.matrix))(state)
    change = state.change(-problem.gradient(state.matrix))
    for one, other in zip(gradient.layers, change.layers, strict=True):
        np.testing.assert_allclose(-one, other, rtol=1e-12, atol=1e-15)
    # coarse: a fine solver creeps over every kink
    flow = ln.simulate(problem, state, ln.GradientFlow(rtol=1e-5), time=1.0)
    assert flow.status == "horizon"
    assert np.all(np.diff(np.asarray(flow["loss"])) <= 0)


def test_shapes_are_checked():
    x, _, w1, w2 = student(np.random.default_rng(0))
    with pytest.raises(ln.InputError, match="second has 19 columns: it must have one for each of the 20 neurons"):
        ln.ReluNetwork(w1, w2[:, 1:], x)
    with pytest.raises(ln.InputError, match="inputs have 4 columns: they must have d_in = 5"):
        ln.ReluNetwork(w1, w2, x[:, 1:])
    with pytest.raises(ln.InputError, match="first has shape"):
        ln.ReluNetwork(w1[0], w2, x)
