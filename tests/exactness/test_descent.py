"""The same descent in every coordinate: full weights, compressed weights, modes, against plain NumPy."""

from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import linnet as ln

COSTS = ("squared", "masked", "logistic", "huber", "regression")


def make_problem(cost, d_out, d_in, rng, rank=None):
    if rank is None:
        target = rng.normal(size=(d_out, d_in))
    else:
        target = rng.normal(size=(d_out, rank)) @ rng.normal(size=(rank, d_in))
    if cost == "squared":
        return ln.factorization(target)
    if cost == "masked":
        return ln.problems.masked(target, rng.integers(0, 2, size=target.shape))
    if cost == "logistic":
        return ln.problems.logistic(np.where(target > 0, 1.0, -1.0))
    if cost == "huber":
        return ln.problems.pseudo_huber(target, delta=0.7)
    n = int(rng.integers(1, 2 * d_in + 1))  # n < d_in included
    x = rng.normal(size=(n, d_in))
    return ln.regression(x, x @ target.T + 0.1 * rng.normal(size=(n, d_out)), average=True)


def numpy_descent(problem, layers, lr, steps):
    """Plain descent on full weights; only the gradient of the matrix cost is the library's."""
    gradient = eqx.filter_jit(type(problem).gradient)
    layers = [np.array(w) for w in layers]
    for _ in range(steps):
        prefix = [np.eye(layers[0].shape[1])]
        for w in layers:
            prefix.append(w @ prefix[-1])
        suffix = [np.eye(layers[-1].shape[0])]
        for w in reversed(layers):
            suffix.append(suffix[-1] @ w)
        suffix = suffix[::-1]
        g = np.asarray(gradient(problem, prefix[-1]))
        layers = [w - lr * suffix[i + 1].T @ g @ prefix[i].T for i, w in enumerate(layers)]
    return layers


def relative(a, b):
    a, b = np.asarray(a), np.asarray(b)
    return np.max(np.abs(a - b)) / max(np.max(np.abs(b)), 1e-300)


shapes = st.tuples(st.integers(1, 6), st.integers(1, 6))


@pytest.mark.compiles
@given(
    shape=shapes,
    width=st.sampled_from([1, 2, 3, 7, 40, 90]),
    cost=st.sampled_from(COSTS),
    scale=st.sampled_from([1e-8, 1e-3, 0.3]),
    low=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_two_layers_full_compressed_and_numpy_agree(shape, width, cost, scale, low, seed):
    d_out, d_in = shape
    rng = np.random.default_rng(seed)
    problem = make_problem(cost, d_out, d_in, rng, rank=1 if low else None)
    full = ln.Weights((scale * rng.normal(size=(width, d_in)), scale * rng.normal(size=(d_out, width))))
    small = full.compress()
    assert small.widths[1] == min(width, d_in + d_out)
    # a few hundred steps against a Python loop ...
    lr, steps = 0.02, 200
    run = ln.simulate(problem, small, ln.optim.SGD(lr), steps=steps)
    w1, w2 = numpy_descent(problem, full.layers, lr, steps)
    assert run.status == "horizon"
    assert relative(run.final.matrix, w2 @ w1) < 1e-10
    c1, c2 = ln.observe.grams(run.final)
    assert relative(c1, w1.T @ w1) < 1e-10
    assert relative(c2, w2 @ w2.T) < 1e-10
    # ... and thousands against the full width in the library
    a = ln.simulate(problem, full, ln.optim.SGD(lr), steps=4000, record=ln.record.linear(5)).final
    b = ln.simulate(problem, small, ln.optim.SGD(lr), steps=4000, record=ln.record.linear(5)).final
    assert relative(b.matrix, a.matrix) < 1e-10
    for one, other in zip(ln.observe.grams(a), ln.observe.grams(b), strict=True):
        assert relative(other, one) < 1e-10


@pytest.mark.compiles
@given(
    widths=st.lists(st.integers(1, 9), min_size=3, max_size=6),
    cost=st.sampled_from(["squared", "logistic", "huber"]),
    seed=st.integers(0, 10**6),
)
def test_deep_networks_agree_in_every_width(widths, cost, seed):
    rng = np.random.default_rng(seed)
    problem = make_problem(cost, widths[-1], widths[0], rng)
    layers = [rng.normal(size=(b, a)) / np.sqrt(max(a, b)) for a, b in pairwise(widths)]
    # a hidden layer wider than its neighbors together must be cut
    fat = int(rng.integers(0, len(layers) - 1))
    extra = widths[fat] + widths[fat + 2] + 5
    layers[fat] = rng.normal(size=(extra, widths[fat])) / np.sqrt(extra)
    layers[fat + 1] = rng.normal(size=(widths[fat + 2], extra)) / np.sqrt(extra)
    full = ln.Weights(layers)
    small = full.compress()
    assert small.widths[fat + 1] < full.widths[fat + 1]
    assert all(w <= a + b for a, w, b in zip(small.widths, small.widths[1:], small.widths[2:], strict=False))
    lr = 0.02
    end = ln.simulate(problem, small, ln.optim.SGD(lr), steps=300).final
    reference = numpy_descent(problem, full.layers, lr, 300)
    product = reference[0]
    for w in reference[1:]:
        product = w @ product
    assert relative(end.matrix, product) < 1e-10
    assert relative(*[w.layers[0].T @ w.layers[0] for w in (end, ln.Weights(reference))]) < 1e-10
    long = [
        ln.simulate(problem, s, ln.optim.SGD(lr), steps=3000, record=ln.record.linear(2)).final.matrix
        for s in (small, full)
    ]
    assert relative(*long) < 1e-10


@pytest.mark.compiles
@given(
    depth=st.integers(2, 5),
    d=st.integers(1, 6),
    shape=st.sampled_from(["square", "tall", "wide"]),
    signed=st.booleans(),
    repeated=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_modes_are_the_aligned_matrix_network(depth, d, shape, signed, repeated, seed):
    rng = np.random.default_rng(seed)
    spectrum = np.sort(rng.uniform(0.1, 2, size=d))[::-1].copy()
    if repeated:
        spectrum[:] = spectrum[0]
    d_out, d_in = d + 2 * (shape == "tall"), d + 3 * (shape == "wide")
    u = np.linalg.qr(rng.normal(size=(d_out, d)))[0]
    v = np.linalg.qr(rng.normal(size=(d_in, d)))[0]
    problem = ln.factorization((u * spectrum) @ v.T)
    values = rng.uniform(0.2, 1.1, size=(depth, d)) * (rng.choice([-1, 1], size=(depth, d)) if signed else 1)
    weights = ln.init.aligned(problem, values, key=jax.random.key(seed))
    modes = ln.Modes(values)
    lr, steps = 0.02, 500
    one = ln.simulate(problem, weights, ln.optim.SGD(lr), steps=steps, observe=["modes", "rotated", "loss"])
    two = ln.simulate(problem.aligned(), modes, ln.optim.SGD(lr), steps=steps, observe=["modes", "loss"])
    assert relative(one["modes"], two["modes"]) < 1e-10
    assert np.allclose(one["loss"], two["loss"], rtol=1e-9, atol=1e-13)
    off = np.asarray(one["rotated"])[:, ~np.eye(d, dtype=bool)]
    assert np.max(np.abs(off), initial=0) < 1e-10


def test_one_zero_and_orthogonal_starts_are_the_same_chain(key):
    rng = np.random.default_rng(0)
    q, _ = np.linalg.qr(rng.normal(size=(8, 8)))
    p, _ = np.linalg.qr(rng.normal(size=(8, 8)))
    problem = ln.factorization((q[:, :3] * [3.0, 2.0, 1.0]) @ p[:, :3].T)
    starts = [ln.init.one_zero(problem, 0.3, 3), ln.init.orthogonal(key, problem, 0.3, 3)]
    runs = [ln.simulate(problem, s, ln.optim.SGD(0.05), steps=1000, observe=["modes"]) for s in starts]
    reduced = problem.aligned()
    chain = ln.simulate(reduced, ln.init.one_zero(reduced, 0.3, 3), ln.optim.SGD(0.05), steps=1000, observe=["modes"])
    for run in runs:
        assert np.max(np.abs(run["modes"] - chain["modes"])) < 1e-12


def test_balanced_rank_k_start_needs_only_k_neurons(key):
    """Balanced starts of rank k: hidden widths of k, far beyond what counting dimensions gives."""
    rng = np.random.default_rng(1)
    start = 0.3 * rng.normal(size=(6, 2)) @ rng.normal(size=(2, 5))
    problem = ln.factorization(rng.normal(size=(6, 5)))
    full = ln.init.balanced(start, (9, 7, 8), key=key)
    small = full.compress(tol=1e-10)
    assert small.widths == (5, 2, 2, 2, 6)
    assert np.max(np.abs(full.matrix - start)) < 1e-13
    runs = [ln.simulate(problem, s, ln.optim.SGD(0.01), steps=2000).final.matrix for s in (full, small)]
    assert relative(*runs) < 1e-10


@pytest.mark.compiles
@given(
    depth=st.integers(2, 8),
    shape=shapes,
    cost=st.sampled_from(["squared", "huber", "regression"]),
    scale=st.sampled_from([1e-6, 0.1, 1.0]),
    seed=st.integers(0, 10**6),
)
def test_rank_one_is_the_balanced_network_of_any_widths(depth, shape, cost, scale, seed):
    """`RankOne` is exact: colored data, n < d_in, anti-correlated starts; layers of uneven widths in random frames."""
    rng = np.random.default_rng(seed)
    problem = make_problem(cost, *shape, rng)
    u, v = rng.normal(size=shape[0]), rng.normal(size=shape[1])
    small = ln.RankOne.balanced(scale, u, v, depth)
    hidden = rng.integers(1, 5, size=depth - 1).tolist()
    full = ln.init.balanced(small.matrix, hidden, rank=1, key=jax.random.key(seed))
    lr = 0.02
    end = ln.simulate(problem, small, ln.optim.SGD(lr), steps=300).final
    reference = numpy_descent(problem, full.layers, lr, 300)
    product = reference[0]
    for w in reference[1:]:
        product = w @ product
    assert relative(end.matrix, product) < 1e-10
    norms = [np.linalg.norm(w) for w in reference]
    assert relative([np.linalg.norm(w) for w in end.weights().layers], norms) < 1e-10
    force = rng.normal(size=shape)
    assert relative(small.tangent(force), small.weights().tangent(force)) < 1e-12
    assert small.size == pytest.approx(scale ** (1 / depth))


def test_rank_one_away_from_balance_and_its_curvature():
    """Any x, w, y are layers of one form; a Hessian inside the family holds the top curvature of the minimum."""
    rng = np.random.default_rng(5)
    z = np.diag([1.5, 0.6, 0.2])
    problem = ln.factorization(z)
    state = ln.RankOne(rng.normal(size=3), -0.4, rng.normal(size=3), 5)
    runs = [ln.simulate(problem, s, ln.optim.SGD(0.01), steps=500).final for s in (state, state.weights())]
    assert relative(runs[0].matrix, runs[1].matrix) < 1e-12
    assert runs[0].w == pytest.approx(float(runs[1].layers[2][0, 0]), rel=1e-12)
    ends = ln.RankOne.balanced(1.5, np.eye(3)[0], np.eye(3)[0], 5)
    values = [np.asarray(ln.observe.hessian_spectrum(s, problem)) for s in (ends, ends.weights())]
    top = 2 / float(ln.theory.convergence.largest_lr(1.5, 5, float(problem.scale)))
    assert values[0][0] == pytest.approx(top, rel=1e-12)
    assert values[1][0] == pytest.approx(top, rel=1e-12)
    single = ln.simulate(problem, ln.states.cast(state, jnp.float32), ln.optim.SGD(0.01), steps=500).final
    assert single.middle.dtype == jnp.float32
    assert relative(single.matrix, runs[0].matrix) < 1e-4


def test_rank_one_refuses():
    e = np.eye(2)[0]
    for message, call in {
        "depth = 1 ": lambda: ln.RankOne(e, None, e, 1),
        "two layers have none": lambda: ln.RankOne(e, 1.0, e, 2),
        "w = None ": lambda: ln.RankOne(e, None, e, 3),
        "must be a vector": lambda: ln.RankOne(np.eye(2), 1.0, e, 3),
        "right is zero": lambda: ln.RankOne.balanced(1.0, e, 0 * e, 3),
        "strength = -1.0 ": lambda: ln.RankOne.balanced(-1.0, e, e, 3),
    }.items():
        with pytest.raises(ln.InputError, match=message):
            call()


@pytest.mark.parametrize("n", [3, 6, 20])
def test_projection_onto_the_samples_is_exact(n, key):
    rng = np.random.default_rng(n)
    d_in, d_out, w = 6, 2, 11
    x = rng.normal(size=(n, d_in))
    if n == 20:
        x[:, -1] = x[:, 0]  # rank deficient
    problem = ln.regression(x, rng.normal(size=(n, d_out)), average=True)
    start = ln.Weights((0.3 * rng.normal(size=(w, d_in)), 0.3 * rng.normal(size=(d_out, w))))
    small, basis = problem.project()
    assert small.shape == (d_out, np.linalg.matrix_rank(x))
    direct = ln.simulate(problem, start, ln.optim.SGD(0.05), steps=2000, observe=["loss"])
    reduced = ln.simulate(small, start.project(basis), ln.optim.SGD(0.05), steps=2000, observe=["loss"])
    back = reduced.final.lift(basis, start)
    assert np.allclose(direct["loss"], reduced["loss"], rtol=1e-12, atol=1e-15)
    for a, b in zip(direct.final.layers, back.layers, strict=True):
        assert relative(b, a) < 1e-11


def test_mean_field_scaling_is_the_papers_recursion():
    """Feature learning, section 3.3: f = X W1^T v / w with steps s = lr / (n w)."""
    rng = np.random.default_rng(3)
    n, d, w, lr = 5, 12, 9, 0.5
    x, y = rng.normal(size=(n, d)), rng.normal(size=n)
    w1, v = 0.2 * rng.normal(size=(w, d)), 0.2 * rng.choice([-1.0, 1.0], size=w)
    problem = ln.problems.mean_field_regression(x, y, width=w)
    run = ln.simulate(problem, ln.Weights((w1, v[None])), ln.optim.SGD(lr), steps=300)
    s = lr / (n * w)
    losses = []
    for _ in range(301):
        e = y - x @ w1.T @ v / w
        losses.append(np.sum(e**2) / (2 * n))
        w1, v = w1 + s * np.outer(v, x.T @ e), v + s * w1 @ x.T @ e
    assert np.allclose(run["loss"], losses, rtol=1e-11, atol=1e-14 * losses[0])


def test_scales_from_tiny_to_huge():
    """Scaling law: target times k^2, weights times k and lr / k^2 is the same run."""
    rng = np.random.default_rng(4)
    target, w1, w2 = rng.normal(size=(3, 4)), rng.normal(size=(5, 4)), rng.normal(size=(3, 5))
    runs = []
    for k in (1e-8, 1.0, 1e3):
        problem = ln.factorization(target * k**2)
        start = ln.Weights((0.3 * w1 * k, 0.3 * w2 * k))
        end = ln.simulate(problem, start, ln.optim.SGD(0.05 / k**2), steps=3000).final
        runs.append(np.asarray(end.matrix) / k**2)
    assert relative(runs[0], runs[1]) < 1e-10
    assert relative(runs[2], runs[1]) < 1e-10
    assert jnp.allclose(runs[1], target, atol=1e-6)
