"""The mirror flows of the spectral-bias paper, integrated on their own, against the weights."""

import numpy as np
import pytest

import linnet as ln


@pytest.mark.parametrize(
    ("n", "d_in", "d_out", "gamma"), [pytest.param(6, 4, 3, 0.2, marks=pytest.mark.slow), (5, 3, 4, 1e-3)]
)
def test_singular_values_follow_the_hyperbolic_entropy(n, d_in, d_out, gamma):
    rng = np.random.default_rng(n * d_in)
    problem = ln.regression(rng.normal(size=(n, d_in)) / np.sqrt(n), rng.normal(size=(n, d_out)))
    # the values are simple and nonzero after a while of descent, which stays close to the manifold of the flow
    a = np.asarray(ln.simulate(problem, ln.init.i_gamma(problem, gamma), ln.optim.SGD(1e-3), steps=300).final.matrix)
    assert np.linalg.svd(a, compute_uv=False)[-1] > 1e-4 * np.linalg.norm(a)
    looks = {"exact": ln.observe.singular_values, "mirror": ln.observe.on_second(ln.observe.singular_values)}
    looks |= {"gap": ln.observe.closure_error}

    def run(scale):
        pair = ln.states.Pair(ln.init.two_c_balanced(a, gamma), ln.states.SpectralMirror(a, scale * gamma))
        return ln.simulate(
            problem, pair, ln.optim.GradientFlow(rtol=1e-11), time=2.0, observe=looks, record=ln.record.linear(9)
        )

    right, wrong = run(1.0), run(1.5)
    assert right.status == "horizon"
    np.testing.assert_allclose(right["mirror"], right["exact"], rtol=1e-7, atol=1e-9)
    assert np.sqrt(np.max(right["gap"])) < 1e-7 * np.linalg.norm(a)
    assert np.max(np.abs(wrong["mirror"] - wrong["exact"])) > 1e-4


@pytest.mark.parametrize("gamma", [1e-4, 20.0])
def test_one_output_follows_its_potential_from_zero(gamma):
    rng = np.random.default_rng(7)
    problem = ln.regression(rng.normal(size=(6, 4)), rng.normal(size=(6, 1)))
    optimizer, time = ln.optim.GradientFlow(rtol=1e-11), 5.0 / (1 + gamma)
    weights = ln.simulate(
        problem, ln.init.i_gamma(problem, gamma), optimizer, time=time, observe=["matrix"], record=ln.record.linear(9)
    )
    mirror = ln.simulate(
        problem,
        ln.states.ScalarMirror(np.zeros((1, 4)), gamma),
        optimizer,
        time=time,
        observe=["matrix"],
        record=ln.record.linear(9),
    )
    np.testing.assert_allclose(mirror["matrix"], weights["matrix"], atol=1e-8 * np.max(np.abs(weights["matrix"])))
    back = ln.states.ScalarMirror(weights["matrix"][-1], gamma).matrix
    np.testing.assert_allclose(back, weights["matrix"][-1], rtol=1e-13)


def test_wrong_mirrors():
    with pytest.raises(ln.InputError, match="one output"):
        ln.states.ScalarMirror(np.ones((2, 3)), 1.0)
    with pytest.raises(ln.InputError, match="gamma = 0"):
        ln.states.ScalarMirror(np.ones((1, 3)), 0.0)
    with pytest.raises(ln.InputError, match="singular value of zero"):
        ln.states.SpectralMirror(np.ones((2, 2)), 1.0)
