"""Observables against their definitions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import linnet as ln
from linnet import observe

RNG = np.random.default_rng(0)
PROBLEM = ln.factorization(RNG.normal(size=(4, 3)))
STATE = ln.Weights((RNG.normal(size=(5, 3)), RNG.normal(size=(4, 5))))
DEEP = ln.Weights((RNG.normal(size=(5, 3)), RNG.normal(size=(2, 5)), RNG.normal(size=(4, 2))))


def test_values_and_ranks():
    s = np.linalg.svd(STATE.matrix, compute_uv=False)
    assert jnp.allclose(observe.singular_values(STATE, PROBLEM), s)
    assert np.isclose(observe.stable_rank(STATE, PROBLEM), np.sum(s**2) / s[0] ** 2)
    p = s / s.sum()
    assert np.isclose(observe.effective_rank(STATE, PROBLEM), np.exp(-np.sum(p * np.log(p))))
    zero = ln.Weights([np.zeros((4, 3))])
    assert observe.stable_rank(zero, PROBLEM) == 0
    assert observe.effective_rank(zero, PROBLEM) == 0
    tiny = ln.Weights([1e-200 * np.eye(3)])
    assert np.isclose(observe.stable_rank(tiny, None), 3)
    assert np.isclose(observe.effective_rank(ln.Modes(np.array([[2.0, -2.0]])), None), 2)
    assert jnp.allclose(observe.singular_values(ln.Modes(np.array([[1.0, -2.0]])), None), jnp.array([2.0, 1.0]))


def test_modes_are_signed_and_not_sorted():
    u, _, vt = np.linalg.svd(PROBLEM.target, full_matrices=False)
    planted = np.array([0.1, -5.0, 2.0])
    state = ln.EndToEnd((u * planted) @ vt, ln.states.Lazy(1.0))
    assert jnp.allclose(observe.modes(state, PROBLEM), planted)
    assert jnp.allclose(observe.rotated(state, PROBLEM), jnp.diag(planted), atol=1e-13)
    assert jnp.allclose(observe.singular_values(state, PROBLEM), jnp.array([5.0, 2.0, 0.1]))


def test_layer_values_and_gaps():
    assert jnp.allclose(observe.layer_singular_values(1)(DEEP, None), np.linalg.svd(DEEP.layers[0])[1])
    assert jnp.allclose(observe.layer_singular_values(-1)(DEEP, None), np.linalg.svd(DEEP.layers[2])[1])
    for layer, count in ((1, 2), (2, 1), (-1, 2)):
        few = observe.layer_singular_values(layer, count)(DEEP, None)
        assert jnp.allclose(few, np.linalg.svd(DEEP.layers[layer - (layer > 0)])[1][:count], rtol=1e-4)
    values = np.array([[1.0, 2.0, 3.0], [0.5, 0.0, 1.0], [2.0, -1.0, 1.0]])
    weights = ln.init.aligned(PROBLEM, values, key=jax.random.key(0))
    expected = values[:-1] ** 2 - values[-1] ** 2
    modes = ln.Modes(values)
    assert jnp.allclose(observe.layer_gaps(modes, ln.factorization(np.ones(3))), expected)
    seen = observe.layer_gaps(weights, PROBLEM)
    assert jnp.allclose(seen[:, [0, 2]], expected[:, [0, 2]])  # mode 1 passes a zero layer: nothing above it is seen
    assert jnp.allclose(observe.imbalance(modes, None), np.linalg.norm(values[1:] ** 2 - values[:-1] ** 2, axis=1))
    defects = [np.asarray(d) for d in DEEP.imbalance()]
    assert jnp.allclose(observe.imbalance(DEEP, None), np.array([np.linalg.norm(d) for d in defects]))
    assert np.allclose(defects[0], DEEP.layers[0] @ DEEP.layers[0].T - DEEP.layers[1].T @ DEEP.layers[1])


def test_grams_and_hidden_alignment():
    w1, w2 = STATE.layers
    assert jnp.allclose(observe.input_gram(STATE, None), w1.T @ w1)
    assert jnp.allclose(observe.output_gram(STATE, None), w2 @ w2.T)
    u, _, vt = np.linalg.svd(STATE.matrix, full_matrices=False)
    cosines = [
        (w2.T @ u[:, i]) @ (w1 @ vt[i]) / np.linalg.norm(w2.T @ u[:, i]) / np.linalg.norm(w1 @ vt[i]) for i in range(3)
    ]
    assert jnp.allclose(observe.hidden_alignment(STATE, None), jnp.asarray(cosines))
    c, a = 0.4, RNG.normal(size=(4, 3))
    s = np.linalg.svd(a, compute_uv=False)
    for state in (ln.init.mixed_manifold(a, c), ln.EndToEnd(a, ln.states.Mixed(c))):  # s / hypot(s, c) on the manifold
        assert jnp.allclose(observe.hidden_alignment(state, None), s / np.hypot(s, c))
    root = jnp.linalg.svd(a.T @ a + c**2 * np.eye(3))
    assert jnp.allclose(
        observe.input_gram(ln.EndToEnd(a, ln.states.Mixed(c)), None), (root[0] * jnp.sqrt(root[1])) @ root[2]
    )
    balanced = ln.init.balanced(a, (3,))
    assert jnp.allclose(
        observe.output_gram(balanced, None), observe.output_gram(ln.EndToEnd(a, ln.states.Balanced(2)), None)
    )


def test_misalignment():
    """Mixed dynamics, Definition C.1: 0 when aligned, invariant under joint signs and rotations inside equal levels."""
    q, p = (np.linalg.qr(RNG.normal(size=(6, 6)))[0] for _ in range(2))
    levels = np.array([3.0, 3.0, 1.0])
    problem = ln.factorization((q[:, :3] * levels) @ p[:, :3].T)
    x = observe.misalignment(3)

    def see(left, right, values):
        return float(x(ln.EndToEnd((left * values) @ right.T, ln.states.Lazy(1.0)), problem))

    assert see(q[:, :3], p[:, :3], np.array([5.0, 4.0, 2.0])) < 1e-13
    angle = 0.7
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    left, right = q[:, :3].copy(), p[:, :3].copy()
    left[:, :2], right[:, :2] = left[:, :2] @ turn, right[:, :2] @ turn
    assert see(left, right, np.array([5.0, 4.0, 2.0])) < 1e-13
    # turning one side alone: x = |U - V|^2 summed = 2 |I - R|^2 / 2 ... = 4 (1 - cos) for a plane
    left[:, :2] = left[:, :2] @ turn
    assert np.isclose(see(left, right, np.array([5.0, 4.0, 2.0])), 4 * (1 - np.cos(angle)))
    # modes in the wrong order: both leave their blocks
    assert np.isclose(see(q[:, :3], p[:, :3], np.array([5.0, 1.0, 2.0])), 8)
    assert np.isclose(see(q[:, 3:], p[:, 3:], np.array([5.0, 1.0, 2.0])), 12)
    with pytest.raises(ln.InputError, match="rank = 7"):
        observe.misalignment(7)(ln.EndToEnd(np.eye(6), ln.states.Lazy(1.0)), problem)


def test_subspace_distance_fixes_signs():
    values = np.array([[3.0, 2.0, 1.0], [2.5, 1.5, 0.5], [3.0, 1.0, 0.2]])
    weights = ln.init.aligned(PROBLEM, values, key=jax.random.key(1))
    assert jnp.max(observe.subspace_distance(2)(weights, PROBLEM)) < 1e-12
    first, middle, last = weights.layers
    q = np.linalg.qr(RNG.normal(size=(3, 3)))[0]
    turned = ln.Weights((q @ first, middle, last))
    assert observe.subspace_distance(2)(turned, PROBLEM)[0] > 0.1
    with pytest.raises(ln.InputError, match="narrowest"):
        observe.subspace_distance(4)(weights, PROBLEM)


@pytest.mark.parametrize("state", [STATE, DEEP, ln.Weights([RNG.normal(size=(4, 3))])])
def test_tangent_kernel_is_jacobian_times_its_transpose(state):
    def end_to_end(layers):
        out = layers[0]
        for w in layers[1:]:
            out = w @ out
        return out.ravel()

    jacobian = jnp.concatenate([j.reshape(12, -1) for j in jax.jacobian(end_to_end)(list(state.layers))], axis=1)
    kernel = jacobian @ jacobian.T
    assert jnp.allclose(observe.kernel_matrix(state), kernel)
    assert jnp.allclose(observe.kernel_spectrum(state, PROBLEM), jnp.linalg.eigvalsh(kernel)[::-1])
    g = RNG.normal(size=(4, 3))
    assert jnp.allclose(state.tangent(jnp.asarray(g)).ravel(), kernel @ g.ravel())


def test_kernel_drift_keeps_small_changes():
    kernel = np.asarray(observe.kernel_matrix(DEEP))
    for size in (1.0, 1e-6, 1e-11):
        other = ln.Weights([w + size * RNG.normal(size=w.shape) for w in DEEP.layers])
        drift = float(observe.kernel_drift(other, PROBLEM, DEEP))
        direct = np.linalg.norm(np.asarray(observe.kernel_matrix(other)) - kernel) / np.linalg.norm(kernel)
        assert np.isclose(drift, direct, rtol=1e-3)
    run = ln.simulate(PROBLEM, DEEP, ln.optim.SGD(1e-3), steps=10, observe=["kernel_drift"])
    assert run["kernel_drift"][0] == 0
    assert jnp.all(jnp.diff(run["kernel_drift"]) > 0)
    modes = ln.simulate(
        ln.factorization(np.ones(2)),
        ln.Modes(np.ones((2, 2)) * 0.5),
        ln.optim.SGD(0.1),
        steps=3,
        observe=["kernel_drift"],
    )
    assert modes["kernel_drift"][-1] > 0


def test_what_a_state_does_not_have_is_said():
    closed = ln.EndToEnd(np.eye(3), ln.states.Balanced(3))
    for see in (observe.imbalance, observe.layer_singular_values(1), observe.input_gram):
        with pytest.raises(ln.InputError):
            see(closed, PROBLEM)
    with pytest.raises(ln.InputError, match="count = 99 is not allowed"):
        observe.layer_singular_values(1, 99)(DEEP, PROBLEM)
    with pytest.raises(ln.InputError, match="two layers"):
        observe.hidden_alignment(DEEP, PROBLEM)
    with pytest.raises(ln.InputError, match="dense tangent kernel"):
        observe.kernel_matrix(ln.EndToEnd(np.eye(80), ln.states.Lazy(1.0)))
    with pytest.raises(ln.InputError, match="must be one of"):
        observe.named("zzz")


def test_a_few_singular_values_are_followed_in_a_run():
    key = jax.random.key(3)
    network = ln.networks.mlp(key, np.random.default_rng(3).normal(size=(30, 20)), (40, 40, 5), scale=0.5)
    problem = ln.supervised(np.random.default_rng(4).normal(size=(30, 5)))
    looks = {"all": observe.layer_singular_values(2), "few": observe.layer_singular_values(2, 4)}
    run = ln.simulate(problem, network, ln.optim.SGD(0.5), steps=30, observe=looks)
    assert run["few"].shape == (31, 4)
    assert jnp.allclose(run["few"], run["all"][:, :4], rtol=2e-5)
    half = ln.simulate(problem, network, ln.optim.SGD(0.5), steps=12, observe=looks)
    both = ln.simulate(problem, network, ln.optim.SGD(0.5), steps=18, observe=looks, resume_from=half)
    assert jnp.array_equal(both["few"], run["few"])  # it remembers over a cut
