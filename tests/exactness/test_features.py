"""Feature learning: networks of any width and input dimension in the coordinates of their samples, by brute force."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import linnet as ln
from linnet import observe
from linnet.observe.kernel import sample_kernel

SIGNIFICANCE = 1e-3


def brute(x, y, first, second, lr, steps):
    """The paper's iteration as it stands: losses, kernels on the samples, slopes, and the final weights."""
    (n, _), w = x.shape, len(second)
    gram, feature, s = x @ x.T, x.T @ y, lr / (n * w)
    a = first @ feature
    losses, kernels, slopes = [], [], []
    for k in range(steps + 1):
        hidden = first @ x.T
        e = y - hidden.T @ second / w
        losses.append(e @ e / (2 * n))
        kernels.append((second @ second * gram + hidden.T @ hidden) / w**2)
        slopes.append((first @ feature - a) @ second / (second @ second) / np.linalg.norm(feature))
        if k < steps:
            first, second = first + s * np.outer(second, x.T @ e), second + s * (hidden @ e)
    return np.array(losses), np.array(kernels), np.array(slopes), first, second


def reduced(x, y, first, second, lr, steps):
    """The same in reduced coordinates, with every neuron recovered."""
    projection = ln.problems.mean_field_regression(x, y, width=len(second)).project()
    full = ln.Weights((first, second[None]))
    seen = full.project(projection.basis)
    looks = ["loss", "sample_kernel", "slope", "target_distance"]
    run = ln.simulate(projection.problem, seen.compress(), ln.optim.SGD(lr), steps=steps, observe=looks)
    assert run.status == "horizon"
    return run, run.final.expand(seen).lift(projection.basis, full)


def compare(x, y, first, second, lr, steps):
    losses, kernels, slopes, w1, v = brute(x, y, first, second, lr, steps)
    run, end = reduced(x, y, first, second, lr, steps)
    assert np.max(np.abs(run["loss"] - losses)) < 1e-12 * losses[0]
    for ours, theirs in zip(np.asarray(run["sample_kernel"]), kernels, strict=True):
        assert np.linalg.norm(ours - theirs, 2) < 1e-10 * np.linalg.norm(theirs, 2)
    np.testing.assert_allclose(run["slope"], slopes, atol=1e-10)
    assert np.linalg.norm(end.layers[1][0] - v) < 1e-10 * np.linalg.norm(v)
    assert np.linalg.norm(end.layers[0] - w1) < 1e-10 * np.linalg.norm(w1)
    gram, pulled = x @ x.T, x @ (x.T @ y)
    target = np.mean(v**2) / len(v) * (gram + np.outer(pulled, pulled) / (y @ pulled))
    distance = np.linalg.norm(kernels[-1] - target, 2) / np.linalg.norm(kernels[-1], 2)
    assert float(run["target_distance"][-1]) == pytest.approx(distance, abs=1e-9)


def draw(seed, n, d, w, sigma0, v0, noise=0.1):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    y = x @ rng.normal(size=d) + noise * rng.normal(size=n)
    return x, y, sigma0 * rng.normal(size=(w, d)), v0 * rng.choice([-1.0, 1.0], size=w)


def stable(x, y, w, share=0.3):
    """A step of x = share where that is stable: below 2/lambda_max of the end kernel."""
    limits = ln.theory.feature.step_limits(ln.theory.feature.task(ln.problems.mean_field_regression(x, y, width=w)))
    return share * float(min(limits.isotropic, limits.end))


def test_reduction_is_exact():
    x, y, first, second = draw(1, 6, 400, 64, 0.01, 0.003)
    compare(x, y, first, second, stable(x, y, 64), 60)


@pytest.mark.compiles
@given(
    st.integers(0, 10**6),
    st.sampled_from([(3, 9, 20), (5, 3, 4), (4, 6, 2), (1, 1, 1), (2, 7, 3), (6, 1, 5)]),
    st.sampled_from([1e-8, 1e-2, 1.0]),
    st.sampled_from([1e-3, 1.0, 1e3]),
)
def test_reduction_is_exact_for_any_shape_and_scale(seed, shape, start, scale):
    """n > d, w < n, one sample, one input; the start in units of the end state, the data in any."""
    n, d, w = shape
    x, y, first, second = draw(seed, n, d, w, 1.0, 1.0)
    x, y = scale * x, scale * y
    size = start * float(jnp.sqrt(ln.theory.feature.task(ln.problems.mean_field_regression(x, y, width=w)).vstar2))
    compare(x, y, size * first, size * second, stable(x, y, w), 25)


def test_reduction_of_repeated_samples_is_exact():
    x, y, first, second = draw(3, 4, 9, 7, 0.1, 0.1)
    x[3] = x[2]  # the rank of the data is 3, and the labels are not in its range
    compare(x, y, first, second, stable(x, y, 7), 40)


@pytest.mark.slow
def test_reduction_is_exact_at_full_size():
    x, y, first, second = draw(0, 10, 10_000, 1024, 0.01, 0.001)
    compare(x, y, first, second, 0.1, 60)


def test_several_outputs_and_depths_have_kernels_on_samples():
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(4, 3)), rng.normal(size=(4, 2))
    problem = ln.regression(x, y, output_scale=0.5)
    state = ln.Weights([rng.normal(size=(b, a)) for a, b in pairwise((3, 4, 6, 2))])

    @jax.jit
    @jax.jacobian
    def jacobian(s):
        return (0.5 * s.matrix @ x.T).ravel()

    flat = np.concatenate([np.asarray(j).reshape(j.shape[0], -1) for j in jacobian(state).layers], axis=1)
    np.testing.assert_allclose(sample_kernel(state, problem), flat @ flat.T, rtol=1e-10, atol=1e-12)
    lazy = ln.EndToEnd(np.zeros((2, 3)), ln.states.Lazy(0.7))  # Theta = 2 c on A
    np.testing.assert_allclose(sample_kernel(lazy, problem), 1.4 * 0.25 * np.kron(np.eye(2), x @ x.T), atol=1e-12)


def test_kernels_of_a_relu_network():
    rng = np.random.default_rng(2)
    n, d, w = 5, 4, 6
    x, y = rng.normal(size=(n, d)), rng.normal(size=n)
    first, v = rng.normal(size=(w, d)), rng.normal(size=w)
    state, problem = ln.states.ReluNetwork(first, v[None], x / w), ln.factorization(y[None])  # relu is homogeneous
    hidden = np.maximum(x @ first.T, 0)
    gate = v * (x @ first.T > 0)
    theta = (gate @ gate.T * (x @ x.T) + hidden @ hidden.T) / w**2
    np.testing.assert_allclose(observe.sample_kernel(state, problem), theta, rtol=1e-12)
    assert float(observe.label_kernel(state, problem)) == pytest.approx(y @ theta @ y, rel=1e-12)
    later = ln.states.ReluNetwork(first + 0.3, v[None], x / w)
    rho = 0.3 * np.ones((w, d)) @ (x.T @ y)
    right = rho @ v / (v @ v) / np.linalg.norm(x.T @ y)
    assert float(observe.slope(later, problem, state)) == pytest.approx(right, rel=1e-10)


def test_kernels_and_their_distances():
    x, y, first, second = draw(4, 5, 60, 40, 0.2, 0.3)
    w = len(second)
    problem, state = ln.problems.mean_field_regression(x, y, width=w), ln.Weights((first, second[None]))
    hidden, gram = first @ x.T, x @ x.T
    theta = (second @ second * gram + hidden.T @ hidden) / w**2
    assert float(observe.label_kernel(state, problem)) == pytest.approx(y @ theta @ y, rel=1e-12)
    pulled = gram @ y
    gamma = y @ pulled
    aligned = np.outer(pulled, pulled) / gamma
    np.testing.assert_allclose(observe.target_kernel(gram, y, 0.3), 0.3 * (gram + aligned), rtol=1e-12)
    omega = first @ (x.T @ y)
    refined = (0.09 * gram + np.mean(omega**2) / gamma * aligned + 0.04 * (gram - aligned)) / w
    ours = observe.refined_kernel(gram, y, squares=0.09, projections=np.mean(omega**2), variance=0.04, width=w)
    np.testing.assert_allclose(ours, refined, rtol=1e-12)
    distance = np.linalg.norm(theta - refined, 2) / np.linalg.norm(theta, 2)
    assert float(observe.kernel_distance(theta, refined)) == pytest.approx(distance, rel=1e-12)
    assert float(observe.refined_distance(0.2)(state, problem)) == pytest.approx(distance, rel=1e-10)
    plain = np.linalg.norm(theta - 0.09 / w * (gram + aligned), 2) / np.linalg.norm(theta, 2)
    assert float(observe.target_distance(state, problem)) == pytest.approx(plain, rel=1e-10)
    assert distance < plain
    cosine = np.sum(theta * refined) / np.linalg.norm(theta) / np.linalg.norm(refined)
    assert float(observe.kernel_cosine(1e-200 * theta, 1e200 * refined)) == pytest.approx(cosine, rel=1e-12)


# Draws ---------------------------------------------------------------------------------------------------------------


def statistics(gram, y, hidden_gram, cross):
    """Numbers that see K, y, U^T U = (W_1 X^T)^T W_1 X^T and (W_1 X^T)^T v; a rotation of the samples is kept."""
    pulled = np.einsum("bij,bj->bi", gram, y)
    return {
        "trace": np.einsum("bii->b", gram),
        "off-diagonal": gram[:, 0, 1],
        "determinant": np.linalg.slogdet(gram)[1],
        "label": y[:, 0],
        "gamma": np.einsum("bi,bi->b", y, pulled),
        "phi": np.einsum("bi,bi->b", pulled, pulled),
        "product": y[:, 0] * y[:, 1] * gram[:, 0, 1],
        "kernel": np.einsum("bi,bij,bj->b", y, hidden_gram, y),
        "hidden": hidden_gram[:, 0, 1],
        "output": np.einsum("bi,bi->b", cross, y),
        "first output": cross[:, 0],
    }


@pytest.mark.parametrize(
    ("groups", "teacher", "n", "w"),
    [
        (12, None, 3, 6),
        (((3.0, 2), (0.5, 9)), (1.0, 2.0), 3, 2),
        pytest.param(2, None, 3, 6, marks=pytest.mark.slow),
        pytest.param(((2.0, 1), (1.0, 4)), None, 2, 5, marks=pytest.mark.slow),
    ],
)
def test_draws_of_data_and_start_have_the_law_of_full_draws(groups, teacher, n, w):
    """Both drawn compressed: d < n, w < n and several groups included; corrected for the number of statistics."""
    draws, sigma0, v0, noise2 = 6000, 0.4, 0.3, 0.2
    pairs = ((1.0, groups),) if isinstance(groups, int) else groups

    @jax.jit
    @jax.vmap
    def ours(key):
        x, y = ln.problems.gaussian_samples(key, n, groups, noise2=noise2, teacher=teacher)
        shape = ln.factorization(jnp.ones((1, x.shape[1])))
        state = ln.init.readout(key, shape, w, sigma0=sigma0, v0=v0)
        hidden = state.layers[0] @ x.T
        return x @ x.T, y, hidden.T @ hidden, hidden.T @ state.layers[1][0]

    got = statistics(*(np.asarray(a) for a in ours(jax.random.split(jax.random.key(7), draws))))
    rng = np.random.default_rng(11)
    values = np.concatenate([np.full(d, v) for v, d in pairs])
    x = rng.normal(size=(draws, n, len(values))) * np.sqrt(values)
    beta = rng.normal(size=(draws, len(values)))
    if teacher is not None:
        edges = np.cumsum([0, *(d for _, d in pairs)])
        for b, low, high in zip(teacher, edges, edges[1:], strict=False):
            part = beta[:, low:high]
            beta[:, low:high] = b * part / np.linalg.norm(part, axis=1, keepdims=True)
    y = np.einsum("bij,bj->bi", x, beta) + np.sqrt(noise2) * rng.normal(size=(draws, n))
    first, v = sigma0 * rng.normal(size=(draws, w, len(values))), v0 * rng.choice([-1.0, 1.0], size=(draws, w))
    hidden = np.einsum("brd,bid->bri", first, x)
    theirs = statistics(
        np.einsum("bid,bjd->bij", x, x),
        y,
        np.einsum("bri,brj->bij", hidden, hidden),
        np.einsum("bri,br->bi", hidden, v),
    )
    if len(values) < n:
        got.pop("determinant"), theirs.pop("determinant")  # zero
    p_values = [stats.ks_2samp(got[name], theirs[name]).pvalue for name in got]
    assert min(p_values) > SIGNIFICANCE / len(p_values), dict(zip(got, p_values, strict=True))


def test_a_start_in_full_width_has_every_neuron(key):
    problem = ln.factorization(np.ones((1, 4)))
    state = ln.init.readout(key, problem, (500,), sigma0=0.5, v0=0.3)
    assert state.widths == (4, 500, 1)
    assert np.all(np.abs(state.layers[1]) == 0.3)
    assert stats.kstest(np.asarray(state.layers[0]).ravel() / 0.5, "norm").pvalue > SIGNIFICANCE
    assert stats.binomtest(int(np.sum(state.layers[1] > 0)), 500).pvalue > SIGNIFICANCE


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda k: ln.problems.gaussian_samples(k, 0, 5), "samples = 0"),
        (lambda k: ln.problems.gaussian_samples(k, 3, 0), "groups = 0"),
        (lambda k: ln.problems.gaussian_samples(k, 3, [(1.0, 2.5)]), "multiplicity in groups = 2.5"),
        (lambda k: ln.problems.gaussian_samples(k, 3, [(-1.0, 2)]), "eigenvalue in groups = -1.0"),
        (lambda k: ln.problems.gaussian_samples(k, 3, [2, 3]), "pairs (eigenvalue, multiplicity)"),
        (lambda k: ln.problems.gaussian_samples(k, 3, 5, noise2=-1.0), "noise2 = -1.0"),
        (lambda k: ln.problems.gaussian_samples(k, 3, 5, teacher=(1.0, 2.0)), "each of the 1 groups"),
        (lambda k: ln.problems.gaussian_samples(3.5, 3, 5), "key = 3.5"),
        (
            lambda k: ln.init.readout(k, ln.factorization(np.ones((1, 3))), (4, 4), sigma0=1.0, v0=1.0),
            "one hidden layer",
        ),
        (lambda k: ln.Weights((np.ones((3, 2)), np.ones((1, 3)))).expand(ln.Weights([np.ones((1, 2))])), "initial = "),
        (
            lambda k: ln.Weights((np.ones((4, 2)), np.ones((1, 4)))).expand(
                ln.Weights((np.ones((9, 2)), np.ones((1, 9))))
            ),
            "compresses to has (2, 3, 1)",
        ),
        (lambda k: observe.slope(ln.Weights([np.ones((1, 2))]), ln.regression(np.eye(2), [1, 2])), "two layers"),
        (lambda k: observe.sample_kernel(ln.Weights([np.ones((1, 2))]), ln.factorization(np.eye(2))), "regression"),
        (lambda k: observe.refined_distance(-1.0), "sigma0 = -1.0"),
        (lambda k: observe.kernel_distance(np.eye(2), np.eye(3)), "other has shape"),
        (lambda k: observe.target_kernel(np.eye(2), np.ones(3)), "labels has shape"),
    ],
)
def test_bad_input_is_one_sentence(call, words, key):
    with pytest.raises(ln.InputError) as caught:
        call(key)
    message = str(caught.value)
    assert words in message
    assert message.endswith(".")


@pytest.mark.parametrize("size", [1e-160, 1e-200, 1e-300])
def test_distances_do_not_depend_on_the_size_of_the_weights(size):
    x, y, first, second = draw(4, 5, 60, 40, 0.2, 0.3)
    problem = ln.problems.mean_field_regression(x, y, width=len(second))
    large, small = (ln.Weights((unit * first, unit * second[None])) for unit in (1.0, size))
    for near, far in (
        (observe.target_distance,) * 2,
        (observe.refined_distance(0.2 * size), observe.refined_distance(0.2)),
    ):
        assert float(near(small, problem)) == pytest.approx(float(far(large, problem)), rel=1e-12)
