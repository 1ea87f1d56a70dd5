"""Classification of points: the Hessian's formula against automatic differentiation, labels on constructed points."""

from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import linnet as ln
from linnet import linalg, observe
from linnet.observe import landscape

# (d_in, hidden ..., d_out), samples: few data shapes, many networks; n < d_in in every third
NETWORKS = [
    ((d_in, *hidden, d_out), n)
    for (d_in, d_out, n) in ((4, 3, 7), (3, 4, 3), (5, 2, 3), (2, 5, 9), (4, 4, 2), (1, 3, 5), (4, 1, 6), (5, 3, 4))
    for hidden in ((2,), (4, 3), (3, 2, 4), (1, 3), (5,))
]


def drawn(widths, n, seed):
    """A regression with the data's scale from 1e-4 to 1e4; every third fits perfectly, every fourth lacks a mode."""
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(n, widths[0])), rng.normal(size=(n, widths[-1]))
    if seed % 3 == 0:
        y = x @ rng.normal(size=(widths[0], widths[-1]))
    if seed % 4 == 0:
        u, s, vt = np.linalg.svd(y, full_matrices=False)
        s[-1] = 0 if seed % 8 == 0 else 1e-4 * s[0]
        y = (u * s) @ vt
    return ln.regression(10 ** rng.uniform(-4, 4) * x, 10 ** rng.uniform(-4, 4) * y)


def expected(values, widths, kept):
    """`nonlocal/C3` to `nonlocal/C5`, written down again: what the label of a constructed critical point must be."""
    dropped = [z for i, z in enumerate(values, start=1) if i not in kept]
    worse = any(z > values[p - 1] for p in kept for z in dropped)
    room = len(kept) < min(widths) and bool(dropped)
    if worse or (room and len(widths) == 3):
        return "strict_saddle"
    return "degenerate_sosp" if room else "global_min"


def test_every_constructed_point_of_forty_networks_has_its_label():
    assert len(NETWORKS) == 40
    seen = {}
    for seed, (widths, n) in enumerate(NETWORKS):
        problem = drawn(widths, n, seed)
        fit = problem.fit()
        values = np.asarray(fit.values)[: fit.rank]
        rng, key = np.random.default_rng(seed), jax.random.key(seed)
        for k in range(min(*widths, len(values)) + 1):
            for kept in combinations(range(1, len(values) + 1), k):
                even = ln.init.critical(problem, widths[1:-1], kept, key=key if seed % 4 == 1 else None)
                skew = ln.init.gauge(key, even)
                scales = 30.0 ** rng.uniform(-1, 1, size=skew.depth)
                scales[-1] /= np.prod(scales)
                skew = ln.Weights([s * np.asarray(w) for s, w in zip(scales, skew.layers, strict=True)])
                right = expected(values, widths, kept)
                for state in (even, skew):
                    found = observe.classify(state, problem)
                    assert found.label == right, (seed, widths, n, kept, found)
                    assert found.rank == k
                    seen[right] = seen.get(right, 0) + 1
                # a step that moves A by 1e-4 is no longer critical
                if k:
                    pushed = [
                        np.asarray(w) + 1e-4 * np.linalg.norm(w, 2) * rng.normal(size=w.shape) for w in even.layers
                    ]
                    assert observe.classify(ln.Weights(pushed), problem).label == "not_critical", (seed, kept)
    assert min(seen.values()) > 60, seen
    assert set(seen) == {"strict_saddle", "degenerate_sosp", "global_min"}


def test_figures_are_those_of_the_given_weights():
    rng = np.random.default_rng(0)
    for problem in (
        ln.regression(rng.normal(size=(3, 4)), rng.normal(size=(3, 2)), average=True, output_scale=0.3),
        ln.factorization(rng.normal(size=(2, 4)), half=False),
    ):
        state = ln.Weights([30 * rng.normal(size=(3, 4)), rng.normal(size=(3, 3)), 0.1 * rng.normal(size=(2, 3))])
        local = landscape._Local([np.asarray(w) for w in state.layers], landscape._data(problem))
        dense = np.asarray(jax.jit(observe.hessian_matrix)(state, problem))
        assert np.max(np.abs(local.hessian() - dense)) < 1e-12 * np.max(np.abs(dense))
        found = observe.classify(state, problem)
        assert found.label == "not_critical"
        assert np.isclose(found.smallest, np.linalg.eigvalsh(dense)[0], rtol=1e-9)
        gradient = jax.jit(lambda s, p: s.velocity(p))(state, problem)
        assert np.isclose(found.gradient, np.sqrt(sum(float(jnp.sum(w**2)) for w in gradient.layers)), rtol=1e-12)
        assert np.isclose(found.excess, float(problem.cost(state.matrix) - problem.optimum(2).cost), rtol=1e-12)
        assert found.rank == 2


def test_zero_weights_and_one_layer():
    target = np.diag([3.0, 1.0])
    problem = ln.factorization(target)
    for depth, label, smallest in (
        (2, "strict_saddle", -3.0),
        (3, "degenerate_sosp", 0.0),
        (4, "degenerate_sosp", 0.0),
    ):
        found = observe.classify(ln.Weights([np.zeros((2, 2))] * depth), problem)
        assert (found.label, found.rank, found.excess) == (label, 0, 5.0)
        assert np.isclose(found.smallest, smallest)
    # not a function of A alone: W_2 != 0 between zero layers has curvature -||Y^T X|| ||W_2||
    middle = ln.Weights([np.zeros((2, 2)), np.diag([0.5, 2.0]), np.zeros((2, 2))])
    found = observe.classify(middle, problem)
    assert found.label == "strict_saddle"
    assert np.isclose(found.smallest, -6.0)
    assert observe.classify(ln.Weights([target]), problem).label == "global_min"
    assert observe.classify(ln.Weights([target + 1e-3]), problem).label == "not_critical"
    nothing = ln.factorization(np.zeros((2, 2)))
    assert observe.classify(ln.Weights([np.zeros((2, 2))] * 3), nothing).label == "global_min"


def test_lanczos_beyond_five_hundred_parameters():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(30, 12)) @ np.diag(np.geomspace(1, 0.1, 12))
    problem = ln.regression(x, rng.normal(size=(30, 10)))
    hidden = (15, 14)
    for kept in ((1, 2, 3), (1, 2, 4), tuple(range(1, 11)), ()):
        state = ln.init.critical(problem, hidden, kept)
        local = landscape._Local([np.asarray(w) for w in state.layers], landscape._data(problem))
        dense = np.linalg.eigvalsh(local.hessian())
        assert len(dense) > linalg.DENSE_SPECTRUM
        found = observe.classify(state, problem)
        assert abs(found.smallest - dense[0]) < 1e-11 * max(dense[-1], 1)
        assert found.label == expected(np.asarray(problem.fit().values), (12, *hidden, 10), kept)
    # a saddle that misses only a mode of 1e-6
    u, s, vt = np.linalg.svd(rng.normal(size=(10, 12)), full_matrices=False)
    s[-1] = 1e-6
    problem = ln.factorization((u * s) @ vt)
    state = ln.init.critical(problem, (30,), range(1, 10))
    found = observe.classify(state, problem)
    assert found.label == "strict_saddle"
    assert np.isclose(found.smallest, -1e-6, rtol=1e-4)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (
            lambda: observe.classify(ln.EndToEnd(np.eye(2), ln.states.Lazy(1.0)), ln.factorization(np.eye(2))),
            "are Weights",
        ),
        (
            lambda: observe.classify(ln.Weights([np.eye(2)]), ln.problems.logistic(np.eye(2) * 2 - 1)),
            "Logistic is not allowed",
        ),
        (lambda: observe.classify(ln.Weights([np.eye(2)]), ln.factorization(np.eye(3))), "shape (2, 2)"),
        (
            lambda: jax.jit(lambda w: observe.classify(ln.Weights([w]), ln.factorization(np.eye(2))).excess)(np.eye(2)),
            "cannot be used under jit or vmap",
        ),
    ],
)
def test_wrong_questions_are_refused(wrong, words):
    with pytest.raises(ln.InputError) as error:
        wrong()
    assert words in str(error.value)
