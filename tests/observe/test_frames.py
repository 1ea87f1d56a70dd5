"""What moves at the edge: singular values or singular vectors."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import linnet as ln


def relu(layers, x):
    for layer in layers[:-1]:
        x = jax.nn.relu(x @ layer.T)
    return x @ layers[-1].T


def networks(rng, count, widths=(4, 6, 5, 3), n=8):
    """States of one network a small step apart, and the cost on its samples."""
    x, y = rng.normal(size=(n, widths[0])), rng.normal(size=(n, widths[-1]))
    layers = [rng.normal(size=(b, a)) for a, b in pairwise(widths)]
    near = [tuple(w + 0.1 * rng.normal(size=w.shape) for w in layers) for _ in range(count)]
    return [ln.Network(relu, given, x) for given in near], ln.supervised(y), x, y


def written_out(base, frames, change, x, y):
    """The definitions in NumPy."""

    def cost(layers):
        return np.mean((np.asarray(relu(layers, x)) - y) ** 2)

    values, shares = [], []
    for w, d in zip(frames, change, strict=True):
        u, _, vt = np.linalg.svd(w, full_matrices=False)
        diagonal = np.diagonal(u.T @ d @ vt.T)
        values.append(u @ np.diag(diagonal) @ vt)
        shares.append(np.sum(diagonal**2) / np.sum(d**2))
    rest = [d - v for d, v in zip(change, values, strict=True)]
    parts = [[w + p for w, p in zip(base, part, strict=True)] for part in (change, values, rest)]
    return cost(base), *(cost(part) - cost(base) for part in parts), shares


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), widths=st.sampled_from([(4, 6, 5, 3), (7, 3), (2, 9, 1)]))
def test_parts_are_those_of_their_definition(seed, widths):
    (before, now, after), problem, x, y = networks(np.random.default_rng(seed), 3, widths)
    a, b, c = ([np.asarray(w) for w in state.layers] for state in (before, now, after))
    mean = [(p + 2 * q + r) / 4 for p, q, r in zip(a, b, c, strict=True)]
    delta = [(2 * q - p - r) / 4 for p, q, r in zip(a, b, c, strict=True)]
    step = [q - p for p, q in zip(a, b, strict=True)]
    for seen, wanted in (
        (ln.observe.excess(before, now, after, problem), written_out(mean, b, delta, x, y)),
        (ln.observe.step_split(before, now, problem), written_out(a, a, step, x, y)),
    ):
        for one, other in zip(seen[:5], wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(seen.top(100), 1)
    np.testing.assert_allclose(seen.top(1)[0], seen.moves[0][0] ** 2 / np.sum(seen.moves[0] ** 2))
    # the step of plain descent is the gradient
    moved = before.descend(problem, 1e-3)
    shares = ln.observe.step_split(before, moved, problem).shares
    np.testing.assert_allclose(ln.observe.value_shares(before, problem), shares, rtol=1e-8)


def test_values_carry_the_oscillation_of_an_aligned_linear_network():
    problem = ln.factorization(np.diag([10.0, 9.0, 6.0, 0.0]))
    start = ln.init.orthogonal(jax.random.key(0), problem, 0.1, 3)
    lr = 1.03 * 2 / float(ln.theory.stability.curvature(10.0, 3))
    run = ln.simulate(problem, start, ln.optim.SGD(lr), steps=1000, record=ln.record.at([1000]))
    states = [run.final]
    for _ in range(9):
        states.append(states[-1].descend(problem, lr))
    seen = [ln.observe.excess(*states[k : k + 3], problem) for k in range(8)]
    whole, values, rotations = (sum(float(getattr(s, name)) for s in seen) for name in ("whole", "values", "rotations"))
    assert whole > 1e-3
    np.testing.assert_allclose(values / whole, 1, atol=1e-6)
    np.testing.assert_allclose(rotations / whole, 0, atol=1e-6)
    assert np.max(np.abs(np.asarray(ln.observe.value_shares(states[-1], problem)) - 1)) < 1e-6


def test_biases_move_in_the_whole_alone():
    x = np.random.default_rng(3).normal(size=(5, 3))
    before = ln.networks.mlp(jax.random.key(1), x, (4, 2), bias=True)
    after = jax.tree.map(lambda leaf: leaf + 0.1 if leaf.ndim == 1 else leaf, before)
    seen = ln.observe.step_split(before, after, ln.supervised(np.ones((5, 2))))
    assert abs(float(seen.whole)) > 1e-3
    assert float(seen.values) == float(seen.rotations) == 0
    np.testing.assert_array_equal(seen.shares, 0)


def test_single_precision_stays():
    (before, now, after), problem, *_ = networks(np.random.default_rng(4), 3)
    states, problem = ln.states.cast((before, now, after), jnp.float32), ln.states.cast(problem, jnp.float32)
    seen = ln.observe.excess(*states, problem), ln.observe.value_shares(states[0], problem)
    assert {leaf.dtype for leaf in jax.tree.leaves(seen)} == {jnp.dtype("float32")}


def test_what_has_no_frame_is_refused():
    (before, now), problem, *_ = networks(np.random.default_rng(5), 2)
    other = networks(np.random.default_rng(5), 1, (4, 3))[0][0]
    with pytest.raises(ln.InputError, match="not of one network: give states of one run, a step apart"):
        ln.observe.excess(before, now, other, problem)
    modes = ln.Modes(np.ones((2, 3)))
    with pytest.raises(ln.InputError, match="Modes has no layers that are matrices: use Weights or Network"):
        ln.observe.step_split(modes, modes, ln.factorization(np.ones(3)))
    with pytest.raises(ln.InputError, match="no layers that are matrices"):
        ln.observe.value_shares(
            ln.networks.unet(jax.random.key(0), np.ones((1, 1, 4, 4))), ln.supervised(np.ones((1, 1, 4, 4)))
        )
