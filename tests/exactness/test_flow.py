"""Gradient flow in every coordinate: weights, closures on their manifolds, descent as lr -> 0, conserved quantities."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import linnet as ln


def problem_of(kind, d_out, d_in, seed=0):
    rng = np.random.default_rng(seed)
    target = rng.normal(size=(d_out, d_in))
    if kind == "squared":
        return ln.factorization(target)
    if kind == "logistic":
        return ln.problems.logistic(np.sign(target))
    if kind == "huber":
        return ln.problems.pseudo_huber(target)
    n = max(2, d_in - 2)
    return ln.regression(rng.normal(size=(n, d_in)), rng.normal(size=(n, d_out)), average=True)


def relative(a, b):
    return float(jnp.max(jnp.abs(jnp.asarray(a) - b)) / jnp.max(jnp.abs(b)))


SHAPES, SCALES = ((3, 5), (5, 3), (4, 4)), (1e-8, 1e-3, 0.4, 30.0)
QUICK = {(3, 5, c) for c in SCALES}  # one shape compiles once


@pytest.mark.parametrize(
    ("d_out", "d_in", "c"),
    [
        pytest.param(*case, marks=[] if case in QUICK else [pytest.mark.slow])
        for case in ((*shape, c) for shape in SHAPES for c in SCALES)
    ],
)
def test_mixed_closure_on_its_manifolds_is_the_exact_flow(d_out, d_in, c):
    """`mixed/C4`, `mixed/C5` and the flow from I_gamma: one flow in four coordinates."""
    problem = problem_of("squared", d_out, d_in)
    start = 0.3 * np.random.default_rng(1).normal(size=(d_out, d_in)) * min(1.0, 10 * c)
    states = [
        ln.EndToEnd(start, ln.states.Mixed(c)),
        ln.init.mixed_manifold(start, c),
        ln.init.two_c_balanced(start, c),
        ln.init.two_c_balanced(start, c, sign=-1),
    ]
    for state in states[1:]:
        assert relative(state.matrix, start) < 1e-12
    time = 2.0 / max(c, 0.2) + (np.log(1 / c) if c < 1e-2 else 0)
    ends = [
        ln.simulate(problem, s, ln.optim.GradientFlow(rtol=1e-11), time=time, record=ln.record.linear(3))
        for s in states
    ]
    for end in ends[1:]:
        assert end.status == "horizon"
        assert np.allclose(end["loss"], ends[0]["loss"], rtol=1e-8)
        assert relative(end.final.matrix, ends[0].final.matrix) < 1e-8


def test_mixed_manifold_stays_on_itself():
    c, start = 0.3, np.random.default_rng(2).normal(size=(3, 5))
    problem = problem_of("huber", 3, 5)
    end = ln.simulate(problem, ln.init.mixed_manifold(start, c), ln.optim.GradientFlow(rtol=1e-12), time=5.0).final
    c1, c2 = ln.observe.grams(end)
    hat1, hat2 = ln.states.Mixed(c).grams(end.matrix)
    assert relative(c1, hat1) < 1e-10
    assert relative(c2, hat2) < 1e-10


@pytest.mark.parametrize("kind", [pytest.param("squared", marks=pytest.mark.slow), "logistic", "regression"])
def test_i_gamma_is_the_closed_flow_of_the_matrix(kind, key):
    """Spectral bias, section 2: full Haar frame, no frame at all, and A alone."""
    problem, gamma = problem_of(kind, 2, 6), 0.05
    states = [
        ln.init.i_gamma(problem, gamma, width=15, key=key),
        ln.init.i_gamma(problem, gamma),
        ln.EndToEnd(jnp.zeros(problem.shape), ln.states.Mixed(gamma)),
    ]
    runs = [ln.simulate(problem, s, ln.optim.GradientFlow(rtol=1e-11), time=20.0) for s in states]
    for run in runs[1:]:
        assert relative(run.final.matrix, runs[0].final.matrix) < 1e-8
    s = jnp.linalg.svd(runs[0].final.matrix, compute_uv=False)
    first = jnp.linalg.svd(runs[0].final.layers[0], compute_uv=False)
    assert jnp.allclose(first[:2], jnp.sqrt(jnp.hypot(s, gamma) + gamma), rtol=1e-8)
    assert jnp.allclose(first[2:], jnp.sqrt(2 * gamma), rtol=1e-8)


@pytest.mark.parametrize("depth", [*(pytest.param(d, marks=pytest.mark.slow) for d in (1, 2)), 3, 5])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_balanced_closure_is_the_balanced_layer_flow(depth, rank, key):
    """Nonlocal, eq. 17: the induced flow with an explicit rank, against layers of assorted widths."""
    rng = np.random.default_rng(depth)
    start = 0.7 * rng.normal(size=(4, rank)) @ rng.normal(size=(rank, 3))
    problem = problem_of("squared", 4, 3)
    layers = ln.init.balanced(start, [5, 3, 6, 4][: depth - 1], rank=rank, key=key)
    assert relative(layers.matrix, start) < 1e-12
    assert all(jnp.max(jnp.abs(defect)) < 1e-12 for defect in layers.imbalance())
    closed = ln.EndToEnd(start, ln.states.Balanced(depth, rank=rank))
    a, b = (ln.simulate(problem, s, ln.optim.GradientFlow(rtol=1e-11), time=1.0) for s in (layers, closed))
    assert relative(b.final.matrix, a.final.matrix) < 1e-8
    if depth > 1:  # the rank never changes (one layer alone leaves it at once)
        s = jnp.linalg.svd(a.final.matrix, compute_uv=False)
        assert jnp.all(s[rank:] < 1e-12)


@pytest.mark.parametrize(
    "closure",
    [
        pytest.param(ln.states.Lazy(0.5), marks=pytest.mark.slow),
        ln.states.Mixed(0.2),
        pytest.param(ln.states.Balanced(2), marks=pytest.mark.slow),
        ln.states.Balanced(4, rank=3),
    ],
    ids=["lazy", "mixed", "balanced-2", "balanced-4"],
)
def test_mode_flows_of_the_closures_are_the_matrix_flows(closure):
    """A vector A is an aligned matrix: closures act mode by mode."""
    rng = np.random.default_rng(0)
    target = np.array([3.0, 1.0, 0.2])
    start = np.array([0.1, 0.3, 0.02])
    u, v = (np.linalg.qr(rng.normal(size=(4, 3)))[0] for _ in range(2))
    vector = ln.simulate(ln.factorization(target), ln.EndToEnd(start, closure), ln.optim.GradientFlow(), time=1.5)
    matrix = ln.simulate(
        ln.factorization((u * target) @ v.T), ln.EndToEnd((u * start) @ v.T, closure), ln.optim.GradientFlow(), time=1.5
    )
    modes = jnp.diagonal(u.T @ matrix.final.matrix @ v)
    assert relative(modes, vector.final.matrix) < 1e-8


@pytest.mark.parametrize("depth", [2, 4])
@pytest.mark.parametrize("kind", ["squared", "logistic"])
def test_flow_conserves_the_imbalance(depth, kind):
    rng = np.random.default_rng(depth)
    widths = [*[4, 6, 3, 5, 2][:depth], 3]
    problem = problem_of(kind, widths[-1], widths[0])
    start = ln.Weights([rng.normal(size=(b, a)) * 0.6 for a, b in pairwise(widths)])
    end = ln.simulate(problem, start, ln.optim.GradientFlow(rtol=1e-12), time=4.0).final
    for before, after in zip(start.imbalance(), end.imbalance(), strict=True):
        assert jnp.max(jnp.abs(after - before)) < 1e-10
    assert relative(end.matrix, start.matrix) > 1e-2  # it did move


def test_descent_imbalance_drift_has_its_exact_form():
    """`mixed/C1`: D' = D + lr^2 (W2^T G G^T W2 - W1 G^T G W1^T)."""
    rng = np.random.default_rng(5)
    problem = problem_of("squared", 3, 4)
    start = ln.Weights((rng.normal(size=(6, 4)), rng.normal(size=(3, 6))))
    lr = 0.05
    g = problem.gradient(start.matrix)
    w1, w2 = start.layers
    (d,) = start.imbalance()
    (after,) = start.descend(problem, lr).imbalance()
    assert relative(after, d + lr**2 * (w2.T @ g @ g.T @ w2 - w1 @ g.T @ g @ w1.T)) < 1e-13


@pytest.mark.parametrize("depth", [2, 3])
def test_descent_tends_to_the_flow_at_first_order(depth, key):
    problem = problem_of("squared", 3, 3)
    start = ln.init.gaussian(key, problem, [4] * (depth - 1), 0.2)
    flow = ln.simulate(problem, start, ln.optim.GradientFlow(rtol=1e-12), time=2.0).final.matrix
    errors = []
    for steps in (200, 400, 800, 1600):
        end = ln.simulate(problem, start, ln.optim.SGD(2.0 / steps), steps=steps).final.matrix
        errors.append(float(jnp.linalg.norm(end - flow)))
    ratios = np.array(errors[:-1]) / np.array(errors[1:])
    assert np.all(np.abs(ratios - 2) < 0.1), ratios


def test_flow_tolerance_follows_tiny_states():
    """Balanced modes from 1e-8: the logistic closed form s(t) to relative accuracy, far below the tolerance."""
    for start in (1e-8, 1e-4, 1e-1):
        target = np.array([2.0, 1.0])
        values = np.full((2, 2), np.sqrt(start))
        run = ln.simulate(
            ln.factorization(target), ln.Modes(values), ln.optim.GradientFlow(), time=12.0, observe=["modes"]
        )
        t = np.asarray(run.times)[:, None]
        exact = target / (1 + (target / start - 1) * np.exp(-2 * target * t))
        assert np.max(np.abs(np.asarray(run["modes"]) / exact - 1)) < 1e-8


@pytest.mark.parametrize(("small", "state", "tolerance"), [(1e-8, "weights", 1e-7), (1e-4, "end to end", 1e-6)])
def test_flow_tolerance_follows_the_small_modes_of_a_matrix(small, state, tolerance):
    """A learned mode beside a tiny one: the tiny one, too, keeps its digits while it grows to one half.

    A alone holds s = small^2 beside 1.44 only to the rounding of 1.44, so its tiny mode is less tiny here.
    """
    layer = np.diag([1.2, small])
    start = ln.Weights([layer, layer]) if state == "weights" else ln.EndToEnd(layer**2, ln.states.Balanced(2))
    time = np.log(1 / small)
    exact = 1 / (1 + (1 / small**2 - 1) * np.exp(-2 * time))
    end = ln.simulate(
        ln.factorization(np.eye(2)), start, ln.optim.GradientFlow(), time=time, record=ln.record.linear(2)
    ).final.matrix
    assert abs(end[1, 1] - exact) < tolerance


def test_lazy_closure_has_its_closed_form():
    rng = np.random.default_rng(0)
    a0, target, c, lr = rng.normal(size=(3, 2)), rng.normal(size=(3, 2)), 0.7, 0.1
    problem = ln.factorization(target, half=False)  # kappa = 2
    run = ln.simulate(problem, ln.EndToEnd(a0, ln.states.Lazy(c)), ln.optim.SGD(lr), steps=50)
    assert relative(run.final.matrix, target + (1 - 4 * lr * c) ** 50 * (a0 - target)) < 1e-13
    flow = ln.simulate(problem, ln.EndToEnd(a0, ln.states.Lazy(c)), ln.optim.GradientFlow(), time=1.0)
    assert relative(flow.final.matrix, target + np.exp(-4 * c) * (a0 - target)) < 1e-9


def test_tangent_kernel_is_the_velocity_of_the_matrix(key):
    """dA/dt = -Theta(G) for every state, by finite differences of the state itself."""
    problem = problem_of("squared", 3, 4)
    states = [
        ln.init.gaussian(key, problem, [5], 0.3),
        ln.init.gaussian(key, problem, [5, 2, 6], 0.3),
        ln.EndToEnd(jax.random.normal(key, (3, 4)), ln.states.Mixed(0.3)),
        ln.EndToEnd(jax.random.normal(key, (3, 4)), ln.states.Balanced(3)),
    ]
    h = 1e-5
    for state in states:
        ahead, back = state.descend(problem, h).matrix, state.descend(problem, -h).matrix
        g = problem.gradient(state.matrix)
        assert relative((ahead - back) / (-2 * h), state.tangent(g)) < 1e-8
