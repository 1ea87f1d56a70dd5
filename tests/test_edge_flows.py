"""Flows of the averaged weights at the edge of stability: against descent, its 2-cycles, and plain loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import linnet as ln
from linnet import observe
from linnet.optim import SGD, RodFlow
from linnet.record import every, linear


def one_mode(depth, start=0.8):
    """A balanced mode s = 1, whose curvature at the minimum is the depth: lr = kappa / depth."""
    return ln.factorization(jnp.ones((1, 1))), ln.Weights([jnp.full((1, 1), start)] * depth)


def classes(seed=0, n=100, d=20):
    """Inputs N(0, 4/j^2), classes by random linear and quadratic scores, as half squares averaged over samples."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) * 2 / np.arange(1, d + 1)
    scores = x @ rng.normal(size=(d, 3)) + x**2 @ rng.normal(size=(d, 3))
    labels = np.eye(3)[np.argmax(scores, axis=1)]
    return x, ln.problems.supervised(labels, "half squares", average="samples")


def tanh_network(seed=0, widths=(32,), **sizes):
    x, problem = classes(seed, **sizes)
    return problem, ln.networks.mlp(seed, x, (*widths, 3), activation="tanh", bias=True)


def weights(state):
    return jax.flatten_util.ravel_pytree(state.trained())[0]


@pytest.mark.parametrize("depth", [2, 3, 4])
@pytest.mark.parametrize("kappa", [2.01, 2.3, 2.8])
def test_fixed_points_of_the_rod_are_the_2_cycles_of_descent(depth, kappa):
    problem, state = one_mode(depth)
    lr = kappa / depth
    run = ln.simulate(problem, state, RodFlow(lr), steps=4000, record=linear(2), observe=["predicted_loss"])
    ends = [jax.tree.map(add, run.final.trained(), run.memory) for add in (jnp.add, jnp.subtract)]
    assert float(jnp.abs(weights(ends[0]) - weights(ends[1])).max()) > 0.05 * np.sqrt(kappa - 2)
    for here, there in (ends, ends[::-1]):
        np.testing.assert_allclose(weights(here.descend(problem, lr)), weights(there), rtol=0, atol=1e-12)
    loss = sum(problem.cost(end.matrix) for end in ends) / 2
    np.testing.assert_allclose(run["predicted_loss"][-1], loss, rtol=1e-14)


def test_rod_is_its_equations():
    """Against a loop in NumPy, on a network of one mode: g = -(1 - y x) (y, x)."""
    problem, state, lr = *one_mode(2, 0.4), 1.1
    run = ln.simulate(problem, state, RodFlow(lr), steps=40, record=every(1), observe=["oscillation", "predicted_loss"])

    def slope(w):
        return -(1 - w[0] * w[1]) * w[::-1]

    c = np.array([0.4, 0.4])
    rod = -lr / 2 * slope(c)
    for step in range(40):
        np.testing.assert_allclose(run["oscillation"][step], rod @ rod, rtol=1e-10)
        losses = [(1 - w[0] * w[1]) ** 2 / 2 for w in (c + rod, c - rod)]
        np.testing.assert_allclose(run["predicted_loss"][step], np.mean(losses), rtol=1e-10)
        for _ in range(2):
            ahead, behind = slope(c + rod), slope(c - rod)
            c, rod = c - lr / 4 * (ahead + behind), lr / 4 * (ahead - behind)
            unit = rod / np.linalg.norm(rod)
            rod = unit * np.sqrt(rod @ rod + (lr / 2 * (ahead + behind) @ unit / 2) ** 2 / 2)
    np.testing.assert_allclose(weights(run.final), c, rtol=1e-10)


def test_the_rod_wakes_where_it_has_faded():
    """A tenth above the edge after 4000 steps below it, in which |D| fades: it reaches the 2-cycle."""
    problem, state = one_mode(2, 1.0)
    below = ln.simulate(problem, state, RodFlow(0.9), steps=4000, record=linear(2))
    assert float(weights(below.memory) @ weights(below.memory)) < 1e-28
    above = ln.simulate(problem, ln.Weights([layer * 1.01 for layer in state.layers]), RodFlow(1.05), steps=4000)
    np.testing.assert_allclose(weights(above.memory) @ weights(above.memory) / 2, (1 - 2 / 2.1) / 4, rtol=1e-9)


FLOWS = {"rod": lambda lr: RodFlow(lr)}


@pytest.mark.parametrize("flow", FLOWS.values(), ids=FLOWS)
class TestRuns:
    """What every flow of averages has as a run, on a small tanh network at its edge."""

    def asked(self, flow, lr=0.5):
        problem, state = tanh_network(widths=(6,), n=30, d=6)
        return problem, state, flow(lr)

    def test_a_resumed_run_is_the_uninterrupted_one(self, flow):
        given = {"observe": ["loss", "predicted_loss", "oscillation"], "record": every(5)}
        whole = ln.simulate(*self.asked(flow), steps=60, **given)
        first = ln.simulate(*self.asked(flow), steps=35, **given)
        both = ln.simulate(*self.asked(flow), steps=25, resume_from=first, **given)
        for name in given["observe"]:
            np.testing.assert_array_equal(both[name], whole[name])
        for here, there in zip(jax.tree.leaves(both.memory), jax.tree.leaves(whole.memory), strict=True):
            np.testing.assert_array_equal(here, there)
        np.testing.assert_array_equal(weights(both.final), weights(whole.final))

    def test_many_learning_rates_at_once_are_single_runs(self, flow):
        problem, state, _ = self.asked(flow)
        rates = jnp.linspace(0.1, 0.6, 4)
        given = {"steps": 60, "observe": ["predicted_loss", "oscillation"], "record": every(10)}
        many = jax.vmap(lambda lr: ln.simulate(problem, state, flow(lr), **given))(rates)
        for i, lr in enumerate(rates):
            alone = ln.simulate(problem, state, flow(lr), **given)
            for name in given["observe"]:
                np.testing.assert_allclose(many[name][i], alone[name], rtol=1e-7, atol=1e-14)
            leaves = zip(*map(jax.tree.leaves, (many.final.trained(), alone.final.trained())), strict=True)
            for here, there in leaves:
                np.testing.assert_allclose(here[i], there, rtol=1e-8, atol=1e-12)

    def test_an_end_to_end_matrix_is_refused(self, flow):
        problem, state = ln.factorization(np.eye(3)), ln.EndToEnd(0.1 * np.eye(3), ln.states.Mixed(0.1))
        with pytest.raises(ln.InputError, match="EndToEnd does not have the weights of one network"):
            ln.simulate(problem, state, flow(0.1), steps=3)
        two = ln.states.Pair(ln.Weights([np.eye(3)] * 2), state)
        with pytest.raises(ln.InputError, match="Pair does not have the weights of one network"):
            ln.simulate(problem, two, flow(0.1), steps=3)

    def test_a_run_that_diverges_says_so(self, flow):
        problem, state = one_mode(2, 3.0)
        run = ln.simulate(problem, state, flow(2.0), steps=200)
        descent = ln.simulate(problem, state, SGD(2.0), steps=200)
        assert run.status == descent.status == "diverged"


def test_observables_of_averages_need_an_optimizer_that_has_them():
    problem, state = one_mode(2)
    with pytest.raises(ln.InputError, match="SGD does not average over an oscillation: use RodFlow or CentralFlow"):
        ln.simulate(problem, state, SGD(0.1), steps=2, observe=["predicted_loss"])
    with pytest.raises(ln.InputError, match="RodFlow computes no eigenvalues of the Hessian: use CentralFlow"):
        ln.simulate(problem, state, RodFlow(0.1), steps=2, observe=["critical_directions"])
    with pytest.raises(ln.InputError, match="observe it in simulate"):
        observe.predicted_loss(state, problem)
