"""Starts: the laws of the compressed ones against brute force, the structure of the others exactly."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import linnet as ln

D_OUT, D_IN, DRAWS = 2, 3, 4000
WIDTHS = [1, 2, 5, 12, 150]  # width / (d_in + d_out) from 1/5 to 30
SIGNIFICANCE = 1e-3  # for all tests of one function together


def statistics(w1, w2):
    """What a rotation of neurons leaves alone: entries of A, C1, C2 and the spectrum of their Gram matrix."""
    z = np.concatenate([w1, np.swapaxes(w2, 1, 2)], axis=2)
    gram = np.swapaxes(z, 1, 2) @ z
    eigenvalues = np.linalg.eigvalsh(gram)
    upper = np.triu_indices(gram.shape[1])
    named = {f"Q{i}{j}": gram[:, i, j] for i, j in zip(*upper, strict=True)}
    rank = min(w1.shape[1], gram.shape[1])
    return named | {f"eig{i}": eigenvalues[:, -1 - i] for i in range(rank)}


def brute(rng, width, s1, s2):
    return s1 * rng.normal(size=(DRAWS, width, D_IN)), s2 * rng.normal(size=(DRAWS, D_OUT, width))


def compressed(width, s1, s2, seed=0):
    problem = ln.factorization(np.ones((D_OUT, D_IN)))
    keys = jax.random.split(jax.random.key(seed), DRAWS)
    drawn = jax.vmap(lambda k: ln.init.gaussian(k, problem, width, (s1**2, s2**2)))(keys)
    return tuple(np.asarray(w) for w in drawn.layers)


def test_gaussian_starts_have_the_law_of_full_draws():
    p_values = []
    for width in WIDTHS:
        rng = np.random.default_rng(width)
        ours, theirs = statistics(*compressed(width, 0.7, 1.3)), statistics(*brute(rng, width, 0.7, 1.3))
        p_values += [stats.ks_2samp(ours[name], theirs[name]).pvalue for name in ours]
    assert len(p_values) > 80
    assert min(p_values) > SIGNIFICANCE / len(p_values)


def test_that_test_sees_one_degree_of_freedom():
    ours = statistics(*compressed(5, 0.7, 1.3))
    theirs = statistics(*brute(np.random.default_rng(1), 6, 0.7, 1.3))
    assert min(stats.ks_2samp(ours[name], theirs[name]).pvalue for name in ours) < 1e-10


def test_gaussian_means_and_covariances():
    """E C1 = c I, E A = 0, Var A_ij = variance^2 width, Var C1_ii = 2 variance^2 width: all z-scores are ordinary."""
    s = 0.6
    z_scores = []
    for width in WIDTHS:
        w1, w2 = compressed(width, s, s, seed=3)
        a = w2 @ w1
        c1 = np.swapaxes(w1, 1, 2) @ w1
        c = s**2 * width
        entries = [a[:, i, j] for i in range(D_OUT) for j in range(D_IN)]
        z_scores += [x.mean() / (x.std() / np.sqrt(DRAWS)) for x in entries]
        z_scores += [(c1[:, i, i].mean() - c) / (c1[:, i, i].std() / np.sqrt(DRAWS)) for i in range(D_IN)]
        for x, variance in [
            *((x, s**4 * width) for x in entries),
            *((c1[:, i, i], 2 * s**4 * width) for i in range(D_IN)),
        ]:
            squares = (x - x.mean()) ** 2
            z_scores.append((squares.mean() - variance) / (squares.std() / np.sqrt(DRAWS)))
        product = a[:, 0, 0] * a[:, 1, 1]  # independent signs: uncorrelated
        z_scores.append(product.mean() / (product.std() / np.sqrt(DRAWS)))
    limit = stats.norm.isf(SIGNIFICANCE / (2 * len(z_scores)))
    assert np.max(np.abs(z_scores)) < limit


def test_width_is_a_number(key):
    problem = ln.factorization(np.ones((D_OUT, D_IN)))
    for width, neurons in [(1, 1), (4, 4), (5, 5), (10**12, 5), (4.5, 5)]:
        assert ln.init.gaussian(key, problem, width, 1.0).widths == (D_IN, neurons, D_OUT)
    c1 = ln.observe.grams(ln.init.gaussian(key, problem, 1e12, 1e-12))[0]
    assert jnp.allclose(c1, jnp.eye(D_IN), atol=1e-5)
    # a traced width keeps one shape for all; the neurons beyond it are zero
    many = jax.vmap(lambda w: ln.init.gaussian(key, problem, w, 1.0))(jnp.array([2.0, 7.0]))
    assert many.layers[0].shape == (2, 5, D_IN)
    assert jnp.all(many.layers[0][0, 2:] == 0)
    assert jnp.all(many.layers[1][0, :, 2:] == 0)
    assert jnp.linalg.matrix_rank(many.layers[0][1]) == D_IN
    alone = ln.init.gaussian(key, problem, 2, 1.0)
    assert alone.widths[1] == 2


def test_one_key_may_serve_problem_and_start(key):
    """The user's example gives the same key twice: the draws must not be related."""
    problem = ln.low_rank_recovery(key, d=40, rank=1)
    start = ln.init.gaussian(key, problem, 60, 1.0)
    truth = np.asarray(problem.truth / jnp.linalg.norm(problem.truth))
    overlap = abs(np.sum(truth * np.asarray(start.matrix))) / np.sqrt(60)
    assert overlap < 4.5


def test_readout_starts_have_the_law_of_full_draws():
    """Any width, also width - 1 < d_in."""
    problem = ln.factorization(np.ones((1, D_IN)))
    p_values = []
    for width in [1, 2, 3, 8, 60]:
        keys = jax.random.split(jax.random.key(width), DRAWS)
        drawn = jax.vmap(lambda k, w=width: ln.init.readout(k, problem, w, sigma0=0.5, v0=0.3))(keys)
        assert drawn.layers[0].shape[1] == min(width, D_IN + 1)
        ours = statistics(*(np.asarray(w) for w in drawn.layers))
        rng = np.random.default_rng(width)
        signs = 0.3 * rng.choice([-1.0, 1.0], size=(DRAWS, 1, width))
        theirs = statistics(0.5 * rng.normal(size=(DRAWS, width, D_IN)), signs)
        fixed = f"Q{D_IN}{D_IN}"  # |v|^2 is not random
        assert np.allclose(ours.pop(fixed), theirs.pop(fixed))
        p_values += [stats.ks_2samp(ours[name], theirs[name]).pvalue for name in ours]
    assert min(p_values) > SIGNIFICANCE / len(p_values)


def test_structured_starts(key):
    square = ln.factorization(np.diag([3.0, 2.0, 1.0]))
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(4, 6))

    frame = ln.init.i_gamma(ln.factorization(matrix), 0.02, width=9, key=key)
    assert jnp.allclose(frame.layers[0].T @ frame.layers[0], 0.04 * jnp.eye(6), atol=1e-15)
    assert not jnp.any(frame.layers[1])

    assert jnp.allclose(ln.init.identity(square, 0.5, 3).matrix, 0.125 * jnp.eye(3))
    assert not jnp.any(ln.init.one_zero(square, 0.5, 3).layers[-1])
    turned = ln.init.orthogonal(key, square, 0.5, 3)
    assert jnp.allclose(turned.layers[0] @ turned.layers[0].T, 0.25 * jnp.eye(3))
    assert not jnp.allclose(turned.layers[0], turned.layers[1])
    random = ln.init.random_one_zero(key, square, 2.0, 4)
    assert random.depth == 4
    assert not jnp.any(random.layers[-1])
    assert 0.5 < jnp.std(jnp.stack(random.layers[:-1])) / 2.0 < 1.5

    for sign, w in ((1, 6), (-1, 4)):
        state = ln.init.two_c_balanced(matrix, 0.3, sign=sign)
        assert state.widths == (6, w, 4)
        assert jnp.allclose(state.matrix, matrix)
        assert jnp.allclose(state.imbalance()[0], sign * 0.6 * jnp.eye(w), atol=1e-13)

    for a in (matrix, matrix.T, matrix[:, :4], np.zeros((3, 2)), np.outer(matrix[0], matrix[1])):
        w1, w2 = ln.init.mixed_manifold(a, 0.3).layers
        z = jnp.concatenate([w1, w2.T], axis=1)
        q = z.T @ z
        j = jnp.diag(jnp.array([1.0] * a.shape[1] + [-1.0] * a.shape[0]))
        assert jnp.allclose(w2 @ w1, a, atol=1e-13)
        assert jnp.allclose(q @ j @ q, 0.09 * j, atol=1e-12)


def test_balanced_starts_of_any_width_and_rank(key):
    rng = np.random.default_rng(1)
    for rank, hidden in [(1, (1,)), (2, (5, 2)), (3, (3, 4, 9)), (3, ())]:
        a = rng.normal(size=(4, rank)) @ rng.normal(size=(rank, 5))
        for k in (None, key):
            state = ln.init.balanced(a, hidden, key=k)
            assert state.widths == (5, *hidden, 4)
            assert jnp.allclose(state.matrix, a, atol=1e-12)
            assert all(jnp.max(jnp.abs(defect)) < 1e-11 for defect in state.imbalance())


@pytest.mark.parametrize("shape", [(3, 3), (2, 4), (1, 3), (3, 1)])
@pytest.mark.parametrize("alignment", [None, 0.3, -0.3, 0.0, 1.0])
def test_rank_one_starts_have_their_size_and_alignment(shape, alignment, key):
    problem = ln.factorization(np.random.default_rng(0).normal(size=shape))
    start = ln.init.rank_one(key, problem, 0.2, 4, alignment=alignment)
    u, s, vt = np.linalg.svd(np.asarray(problem.target))
    lengths = [np.linalg.norm(start.x), np.linalg.norm(start.y), start.w]
    np.testing.assert_allclose(lengths, (0.2 * s[0]) ** (1 / 4))
    assert np.linalg.norm(start.matrix, 2) == pytest.approx(0.2 * s[0])
    cosines = [float(u[:, 0] @ start.y / lengths[0]), float(vt[0] @ start.x / lengths[0])]
    if alignment is not None:
        assert np.prod(cosines) == pytest.approx(alignment, abs=1e-12)
        if alignment <= 0 and min(shape) > 1:
            assert abs(cosines[0]) != pytest.approx(abs(cosines[1]), rel=0.01)
    again = ln.init.rank_one(key, problem, 0.2, 4, alignment=alignment)
    assert (again.x == start.x).all()
    with pytest.raises(ln.InputError, match="traced"):
        jax.jit(lambda key: ln.init.rank_one(key, problem, 0.2, 4))(key)


def test_aligned_layers_are_modes():
    rng = np.random.default_rng(2)
    problem = ln.factorization(rng.normal(size=(4, 3)))
    values = rng.normal(size=(3, 3))
    for key in (None, jax.random.key(0)):
        weights = ln.init.aligned(problem, values, key=key)
        assert jnp.allclose(ln.observe.modes(weights, problem), jnp.prod(values, axis=0))
        assert jnp.allclose(jnp.abs(ln.observe.layer_modes(weights, problem)), jnp.abs(values))
    noisy = ln.low_rank_recovery(jax.random.key(0), 6, 2)  # aligned with what is fitted, not with the truth
    values = np.full((2, 6), 0.3)
    matrices = ln.simulate(noisy, ln.init.aligned(noisy, values), ln.optim.SGD(0.5), steps=100)
    modes = ln.simulate(noisy.aligned(), ln.Modes(values), ln.optim.SGD(0.5), steps=100)
    assert jnp.allclose(matrices["loss"], modes["loss"], rtol=1e-10)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda p, k: ln.init.gaussian(k, p, 0, 1.0), "width = 0"),
        (lambda p, k: ln.init.gaussian(k, p, -3, 1.0), "width = -3"),
        (lambda p, k: ln.init.gaussian(k, p, 1.5, 1.0), "width = 1.5"),
        (lambda p, k: ln.init.gaussian(k, p, [4, 0], 1.0), "width = 0"),
        (lambda p, k: ln.init.gaussian(k, p, 4, -1.0), "variance = -1.0"),
        (lambda p, k: ln.init.gaussian(k, p, 4, [1.0, 1.0, 1.0]), "variance has 3 values"),
        (lambda p, k: ln.init.gaussian(k, p, 4, float("nan")), "variance = nan"),
        (lambda p, k: ln.init.gaussian(k, p, "wide", 1.0), "width = 'wide'"),
        (lambda p, k: ln.init.gaussian(k, np.ones((2, 3)), 4, 1.0), "problem = an array of shape (2, 3)"),
        (lambda p, k: ln.init.gaussian(k, ln.factorization(np.ones(3)), 4, 1.0), "needs a matrix problem"),
        (lambda p, k: ln.init.i_gamma(p, 0.0), "gamma = 0.0"),
        (lambda p, k: ln.init.i_gamma(p, 1.0, width=2), "width = 2"),
        (lambda p, k: ln.init.i_gamma(p, 1.0, width=9), "width = 9 is not allowed: without a key there are d_in ="),
        (lambda p, k: ln.init.readout(k, p, 4, sigma0=1.0, v0=1.0), "d_out = 2"),
        (lambda p, k: ln.init.readout(k, ln.factorization(np.ones((1, 3))), 4, sigma0=1.0, v0=0.0), "v0 = 0.0"),
        (lambda p, k: ln.init.balanced(np.eye(3), (2, 4)), "rank 3"),
        (lambda p, k: ln.init.balanced(np.eye(3), (4,), rank=4), "rank = 4"),
        (lambda p, k: ln.init.balanced(np.diag([3.0, 2.0, 1.0]), (4,), rank=1), "rank = 1"),
        (lambda p, k: ln.init.balanced(np.eye(3), 5), "hidden = 5"),
        (lambda p, k: ln.init.gaussian(-1, p, 4, 1.0), "key = -1"),
        (lambda p, k: ln.init.gaussian(jax.random.split(k), p, 4, 1.0), "one key"),
        (lambda p, k: ln.init.balanced(np.full((2, 2), np.nan), (2,)), "NaN"),
        (lambda p, k: ln.init.identity(p, 1.0, 3), "needs a square one"),
        (lambda p, k: ln.init.one_zero(ln.factorization(np.eye(2)), -0.1, 3), "alpha = -0.1"),
        (lambda p, k: ln.init.orthogonal(k, ln.factorization(np.eye(2)), 0.1, 0), "depth = 0"),
        (lambda p, k: ln.init.mixed_manifold(np.eye(2), 0.0), "c = 0.0"),
        (lambda p, k: ln.init.two_c_balanced(np.eye(2), 1.0, sign=2), "sign = 2"),
        (lambda p, k: ln.init.aligned(p, np.ones((2, 3))), "must have 3"),
    ],
)
def test_bad_input_is_one_sentence(call, words, key):
    with pytest.raises(ln.InputError) as caught:
        call(ln.factorization(np.arange(6.0).reshape(2, 3)), key)
    message = str(caught.value)
    assert words in message
    assert message.endswith(".")
    assert "\n" not in message


def test_samplers_draw_the_same_inside_and_outside_of_programs(key):
    from linnet._random import bartlett, haar, normal

    for draw in (lambda k: haar(k, 4, 3), lambda k: bartlett(k, 9.5, 4, 5), lambda k: normal(k, (2, 3))):
        known = draw(key)
        for inside in (
            jax.jit(draw)(key),
            jax.jit(lambda x, draw=draw: x * draw(key))(1.0),
            jax.vmap(draw)(key[None])[0],
        ):
            np.testing.assert_allclose(inside, known, rtol=0, atol=1e-14)


# Balance -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize(("d_out", "d_in"), [(3, 3), (4, 2), (2, 4), (1, 3)])
def test_lambda_balanced_starts_are(d_out, d_in, aligned, key):
    target = np.random.default_rng(3).normal(size=(d_out, d_in))
    problem = ln.factorization(target)
    u, _, vt = np.linalg.svd(target)
    for lam in (-3.0, -1e-6, 0.0, 1e-6, 3.0):
        for width in (1, 2, 4, 9):
            if lam and width > (d_out if lam > 0 else d_in):
                with pytest.raises(ln.InputError, match=f"width = {width} is not allowed: lambda"):
                    ln.init.lambda_balanced(key, problem, lam, width, aligned=aligned)
                continue
            start = ln.init.lambda_balanced(key, problem, lam, width, scale=0.3, aligned=aligned)
            assert start.widths == (d_in, width, d_out)
            assert start.balance(tol=1e-14) == pytest.approx(lam, abs=1e-14)
            assert np.allclose(start.imbalance()[0], -lam * np.eye(width), atol=1e-13)
            assert np.linalg.matrix_rank(start.matrix, tol=1e-8) == min(width, d_in, d_out)
            if aligned:
                modes = u.T @ start.matrix @ vt.T
                assert np.allclose(modes, np.diag(np.diagonal(modes)) if d_out == d_in else modes * np.eye(d_out, d_in))
    both = jax.vmap(lambda k: ln.init.lambda_balanced(k, problem, 0.5, 1).matrix)(jax.random.split(key, 2))
    assert np.allclose(
        both[0], ln.init.lambda_balanced(jax.random.split(key, 2)[0], problem, 0.5, 1).matrix, atol=1e-14
    )


def test_whether_layers_are_balanced_is_measured(key):
    rng = np.random.default_rng(4)
    start = ln.init.gaussian(key, ln.factorization(np.eye(3)), 5, 1.0)
    assert start.balance() is None
    assert ln.init.balanced(rng.normal(size=(3, 4)), (50,)).balance() == pytest.approx(0.0, abs=1e-14)
    layers = ln.init.lambda_balanced(key, ln.factorization(np.eye(3)), 2.0, 3).layers
    nearly = ln.Weights((layers[0] + 1e-7, layers[1]))
    assert nearly.balance() is None
    assert nearly.balance(tol=1e-5) == pytest.approx(2.0, abs=1e-5)
    assert ln.Weights((np.ones((1, 3)), np.ones((2, 1)))).balance() == pytest.approx(-1.0)  # one neuron always is
    with pytest.raises(ln.InputError, match="3 layers: lambda is a number of two layers"):
        ln.init.identity(ln.factorization(np.eye(2)), 0.1, 3).balance()
    with pytest.raises(ln.InputError, match=r"balance\(\) cannot be traced"):
        jax.jit(lambda s: s.balance())(nearly)
