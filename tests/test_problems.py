"""Costs, their gradients and normalizations, optima, projection and whitening."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import linnet as ln

RNG = np.random.default_rng(0)
A = RNG.normal(size=(3, 4))
M = RNG.normal(size=(3, 4))
X, Y = RNG.normal(size=(7, 4)), RNG.normal(size=(7, 3))
MASK = RNG.integers(0, 2, size=(3, 4))

CLASSES = np.array([0, 2, 1, 2, 2, 0, 1])


def cross_entropy(a):
    """Of each sample, as it is written."""
    outputs = X @ a.T
    return np.log(np.sum(np.exp(outputs), axis=1)) - outputs[np.arange(7), CLASSES]


COSTS = {
    "half": (ln.factorization(M), lambda a: 0.5 * np.sum((a - M) ** 2)),
    "whole": (ln.factorization(M, half=False), lambda a: np.sum((a - M) ** 2)),
    "sum": (ln.regression(X, Y), lambda a: 0.5 * np.sum((X @ a.T - Y) ** 2)),
    "average": (ln.regression(X, Y, average=True), lambda a: np.sum((X @ a.T - Y) ** 2) / 14),
    "few samples": (ln.regression(X[:2], Y[:2]), lambda a: 0.5 * np.sum((X[:2] @ a.T - Y[:2]) ** 2)),
    "mean field": (ln.problems.mean_field_regression(X, Y, width=50), lambda a: np.sum((X @ a.T / 50 - Y) ** 2) / 14),
    "classes": (ln.classification(X, CLASSES), lambda a: np.sum(cross_entropy(a))),
    "classes, average": (ln.classification(X, CLASSES, average=True), lambda a: np.mean(cross_entropy(a))),
    "masked": (ln.problems.masked(M, MASK, scale=0.3), lambda a: 0.15 * np.sum(MASK * (a - M) ** 2)),
    "logistic": (ln.problems.logistic(np.sign(M), scale=2.0), lambda a: 2 * np.sum(np.log1p(np.exp(-np.sign(M) * a)))),
    "huber": (ln.problems.pseudo_huber(M, delta=0.4), lambda a: np.sum(0.16 * (np.sqrt(1 + ((a - M) / 0.4) ** 2) - 1))),
    "custom": (ln.custom(lambda a: jnp.sum(jnp.cosh(a)), (3, 4)), lambda a: np.sum(np.cosh(a))),
}


@pytest.mark.parametrize("name", COSTS)
def test_cost_gradient_and_curvature(name):
    problem, plain = COSTS[name]
    assert problem.shape == (3, 4)
    assert np.isclose(problem.cost(jnp.asarray(A)), plain(A), rtol=1e-13)
    assert jnp.allclose(
        problem.gradient(jnp.asarray(A)), jax.grad(problem.cost)(jnp.asarray(A)), rtol=1e-12, atol=1e-14
    )
    direction, h = RNG.normal(size=(3, 4)), 1e-5
    slope = (plain(A + h * direction) - plain(A - h * direction)) / (2 * h)
    assert np.isclose(jnp.sum(problem.gradient(jnp.asarray(A)) * direction), slope, rtol=1e-7)
    ahead, back = (problem.gradient(jnp.asarray(A + s * h * direction)) for s in (1, -1))
    assert jnp.allclose(problem.curvature(jnp.asarray(A), jnp.asarray(direction)), (ahead - back) / (2 * h), atol=1e-7)


def test_recovery_has_the_papers_normalization(key):
    problem = ln.low_rank_recovery(key, d=300, rank=5)
    truth, observed = problem.truth, problem.target
    assert jnp.linalg.matrix_rank(truth) == 5
    assert np.isclose(problem.cost(truth), jnp.sum((truth - observed) ** 2) / 300**2)
    assert np.isclose(problem.test_error(observed), problem.cost(truth))
    assert problem.test_error(truth) == 0
    assert abs(problem.cost(truth) - 1) < 0.02  # unit noise: mean of 9e4 squares, 4 standard errors
    assert abs(problem.test_error(jnp.zeros((300, 300))) - 1) < 0.3  # |A_star|^2 / d^2 ~ 1
    wide = ln.low_rank_recovery(key, d=(3, 8), rank=2)
    assert wide.shape == (3, 8)
    assert np.isclose(wide.cost(wide.truth), jnp.mean((wide.truth - wide.target) ** 2))


def test_regression_keeps_second_moments_only():
    many = RNG.normal(size=(5000, 4))
    labels = RNG.normal(size=(5000, 3))
    problem = ln.regression(many, labels)
    assert all(leaf.size <= 16 for leaf in jax.tree.leaves(problem))
    assert jnp.allclose(problem.gram, many.T @ many)
    assert jnp.allclose(problem.cross, labels.T @ many)
    assert np.isclose(problem.square, np.sum(labels**2))
    assert problem.samples == 5000
    assert jnp.allclose(problem.target, np.linalg.lstsq(many, labels, rcond=None)[0].T)


def test_loss_near_a_perfect_fit_does_not_cancel():
    truth = RNG.normal(size=(3, 4))
    problem = ln.regression(X, X @ truth.T)
    for size in (1e-6, 1e-9):
        step = size * RNG.normal(size=(3, 4))
        got = problem.cost(jnp.asarray(truth + step)) - problem.scale / 2 * problem.unexplained
        assert np.isclose(got, 0.5 * np.sum((X @ step.T) ** 2), rtol=1e-5)


@pytest.mark.parametrize(("n", "deficient"), [(7, False), (7, True), (2, False), (30, True)])
@pytest.mark.parametrize("rank", [0, 1, 2, 3])
def test_rank_constrained_optimum(n, deficient, rank):
    """Nonlocal, eq. 10a: Eckart-Young through the projection of Y, n < d_in and rank-deficient X included."""
    x, y = RNG.normal(size=(n, 4)), RNG.normal(size=(n, 3))
    if deficient:
        x[:, 3] = x[:, 0] - x[:, 1]
    for scale in (1.0, 0.1):
        problem = ln.regression(x, y, average=True, output_scale=scale)
        best = problem.optimum(rank)
        assert np.linalg.matrix_rank(best.matrix, tol=1e-10) <= rank
        assert np.isclose(problem.cost(best.matrix), best.cost, rtol=1e-10)
        fitted = x @ np.linalg.pinv(x) @ y
        s = np.linalg.svd(fitted, compute_uv=False)
        assert np.isclose(best.cost, (np.sum((y - fitted) ** 2) + np.sum(s[rank:] ** 2)) / (2 * n))
        # no descent direction among products of that rank: random neighbors are worse
        for _ in range(20):
            if rank == 0:
                break
            u, s, vt = np.linalg.svd(best.matrix + 1e-3 * RNG.normal(size=(3, 4)), full_matrices=False)
            assert problem.cost(jnp.asarray((u[:, :rank] * s[:rank]) @ vt[:rank])) >= best.cost - 1e-12


@pytest.mark.parametrize("n", [7, 2])
def test_fit_mode_by_mode(n):
    """Cost at any set of modes, and criticality: G is orthogonal to the columns and to the rows of A_I."""
    x, y = RNG.normal(size=(n, 4)), RNG.normal(size=(n, 3))
    for problem in (ln.regression(x, y, average=True, output_scale=0.1), ln.factorization(M, half=False)):
        fit = problem.fit()
        assert fit.rank == (2 if n == 2 and isinstance(problem, ln.problems.Regression) else 3)
        for kept in ((), (1,), (2,), (1, 2)):
            a = fit.matrix(kept)
            left_out = [i for i in range(fit.gains.shape[0]) if i + 1 not in kept]
            assert np.isclose(problem.cost(a), fit.floor + np.sum(np.asarray(fit.gains)[left_out]), rtol=1e-12)
            g = np.asarray(problem.gradient(a))
            unit = np.linalg.norm(a) * np.linalg.norm(problem.gradient(0 * a))
            assert max(np.max(np.abs(a.T @ g)), np.max(np.abs(a @ g.T))) <= 1e-12 * unit
    with pytest.raises(ln.InputError, match="from 1 to 3"):
        ln.factorization(M).fit().matrix((4,))
    with pytest.raises(ln.InputError, match="needs a matrix problem"):
        ln.factorization(np.ones(3)).fit()


def test_factorization_optimum_is_eckart_young():
    s = np.linalg.svd(M, compute_uv=False)
    best = ln.factorization(M, half=False).optimum(2)
    assert np.isclose(best.cost, s[2] ** 2)
    assert np.isclose(np.sum((np.asarray(best.matrix) - M) ** 2), s[2] ** 2)


def test_whitening():
    problem = ln.regression(X, Y)
    white, back = problem.whiten()
    assert jnp.allclose(white.gram / 7, jnp.eye(4), atol=1e-13)
    assert jnp.allclose(white.cost(jnp.asarray(A)), problem.cost(A @ back))
    assert jnp.allclose(white.target @ back, problem.target)
    with pytest.raises(ln.InputError, match="project"):
        ln.regression(X[:2], Y[:2]).whiten()
    small = ln.regression(X[:2], Y[:2]).project().problem
    assert small.whiten().problem.shape == (3, 2)


def test_diagonal_problems_take_vectors():
    problem = ln.problems.diagonal_regression(X, Y[:, 0], average=True)
    b = jnp.asarray(RNG.normal(size=4))
    assert problem.shape == (4,)
    assert np.isclose(problem.cost(b), np.sum((X @ np.asarray(b) - Y[:, 0]) ** 2) / 14)
    assert jnp.allclose(problem.gradient(b), X.T @ (X @ b - Y[:, 0]) / 7)
    run = ln.simulate(problem, ln.init.identity(problem, 0.5, 3), ln.optim.SGD(0.1), steps=4000)
    assert run["loss"][-1] < run["loss"][0]
    aligned = ln.factorization(M).aligned()
    assert jnp.allclose(aligned.target, jnp.linalg.svd(M, compute_uv=False))


def test_held_out_samples_are_the_test_error():
    problem = ln.regression(X, Y, test=(X[:3], Y[:3]))
    assert np.isclose(problem.test_error(jnp.asarray(A)), np.sum((X[:3] @ A.T - Y[:3]) ** 2) / 6)


def test_completion_has_a_test_error_and_modes():
    problem = ln.problems.masked(M, MASK, test=ln.factorization(M))
    assert np.isclose(problem.test_error(jnp.asarray(A)), 0.5 * np.sum((A - M) ** 2))
    assert jnp.allclose(ln.observe.modes(ln.Weights([M]), problem), jnp.linalg.svd(M, compute_uv=False))
    held_out = ln.regression(X, Y, test=(X[:3], Y[:3]))  # a test set measures, it does not define the truth
    assert jnp.allclose(held_out.truth, ln.regression(X, Y).target)


def test_single_precision_data_keep_their_rank():
    x = RNG.normal(size=(30, 8)).astype(np.float32)
    x[:, 7] = x[:, 0]
    problem = ln.regression(x, RNG.normal(size=(30, 2)).astype(np.float32))
    assert problem.project().problem.shape == (2, 7)
    assert jnp.max(jnp.abs(problem.target)) < 10


def test_label_noise_is_the_change_of_the_force():
    """With noise e on the labels, -dC/dA changes by what `label_noise` says, sign included."""
    rng, key = np.random.default_rng(4), jax.random.key(7)
    matrix = jnp.asarray(rng.normal(size=(2, 3)))
    plain = ln.factorization(rng.normal(size=(2, 3)))
    fitted = ln.regression(rng.normal(size=(6, 3)), rng.normal(size=(6, 2)), average=True, output_scale=0.5)
    for problem, name in ((plain, "goal"), (fitted, "labels")):
        labels = getattr(problem, name)
        noise = jax.random.normal(key, labels.shape, dtype=labels.dtype)
        noisy = eqx.tree_at(lambda problem, name=name: getattr(problem, name), problem, labels + noise)
        change = problem.gradient(matrix) - noisy.gradient(matrix)
        np.testing.assert_allclose(problem.label_noise(key), change, rtol=1e-12, atol=1e-14)


def test_label_noise_has_the_covariance_of_the_data():
    problem = ln.regression(X, Y, average=True, output_scale=0.5)
    noise = jax.vmap(problem.label_noise)(jax.random.split(jax.random.key(0), 20_000))
    covariance, outputs = problem.noise_covariance()
    assert outputs == 3
    assert jnp.allclose(covariance, X.T @ X * (0.5 / 7) ** 2)
    sample = jnp.einsum("noi,noj->ij", noise, noise) / (20_000 * 3)
    error = jnp.sqrt((jnp.outer(jnp.diag(covariance), jnp.diag(covariance)) + covariance**2) / 60_000)
    assert jnp.max(jnp.abs(sample - covariance) / error) < 4.5


# Samples -------------------------------------------------------------------------------------------------------------

SAMPLED = {
    "sum": ln.regression(X, Y),
    "average": ln.regression(X, Y, average=True),
    "output scale": ln.regression(X, Y, output_scale=0.3),
    "few samples": ln.regression(X[:2], Y[:2], average=True),
    "diagonal": ln.problems.diagonal_regression(X, Y[:, 0]),
    "classes": ln.classification(X, CLASSES),
    "classes, average": ln.classification(X, CLASSES, average=True),
}


@pytest.mark.parametrize("name", SAMPLED)
def test_the_mean_over_batches_is_the_cost(name):
    """All batches of b samples, cost and gradient; the whole batch is the problem."""
    problem = SAMPLED[name]
    a = jnp.asarray(A[0] if len(problem.shape) == 1 else A)
    x, y = problem.sampled()
    n = x.shape[0]
    for b in {1, 2, n}:
        chosen = np.array(list(itertools.combinations(range(n), b)))
        seen = jax.vmap(
            lambda rows: (
                problem.on_samples(x[rows], y[rows]).cost(a),
                problem.on_samples(x[rows], y[rows]).gradient(a),
            )
        )
        cost, gradient = seen(chosen)
        np.testing.assert_allclose(np.mean(cost), problem.cost(a), rtol=1e-12)
        np.testing.assert_allclose(np.mean(gradient, axis=0), problem.gradient(a), rtol=1e-12, atol=1e-13)
    if "average" in name:  # PyTorch's mean over the batch
        plain = cross_entropy(A)[3:5] if "classes" in name else 0.5 * np.sum((x[3:5] @ A.T - y[3:5]) ** 2, axis=1)
        np.testing.assert_allclose(problem.on_samples(x[3:5], y[3:5]).cost(a), np.mean(plain), rtol=1e-12)


@pytest.mark.parametrize("name", ["average", "output scale", "few samples", "diagonal", "rank deficient"])
def test_fresh_samples_have_the_cost_on_average(name):
    """Of 20000 batches, for matrices near and far from the fit, within 4.5 standard errors; moments likewise."""
    deficient = ln.regression(X[:, [0, 0, 1, 1]], Y, output_scale=0.5)
    problem = deficient if name == "rank deficient" else SAMPLED[name]
    a = jnp.asarray(A[0] if len(problem.shape) == 1 else A)
    for matrix in (a, problem.target, problem.target + 0.1 * a):
        # made once outside, drawn in a loop
        law = problem.sampler()

        @jax.vmap
        def cost(key, law=law, matrix=matrix):
            return problem.on_samples(*law.draw(key, 3)).cost(matrix)

        costs = cost(jax.random.split(jax.random.key(1), 20_000))
        error = jnp.std(costs) / np.sqrt(costs.size)
        assert jnp.abs(jnp.mean(costs) - problem.cost(matrix)) <= 4.5 * error + 1e-13
    drawn = problem.fresh(jax.random.key(2), 40_000)
    assert drawn.labels.shape == (40_000, *problem.shape[:-1])
    gram = problem.gram / problem.samples
    error = jnp.sqrt((jnp.outer(jnp.diag(gram), jnp.diag(gram)) + gram**2) / 40_000)
    assert jnp.max(jnp.abs(drawn.inputs.T @ drawn.inputs / 40_000 - gram) / error) < 4.5
    # what the fit leaves is independent of the inputs and alike in all outputs
    noise = (drawn.labels - problem.output_scale * drawn.inputs @ problem.target.T).reshape(40_000, -1)
    left = 2 * problem.cost(problem.target) / (problem.scale * problem.samples * noise.shape[1])
    assert (
        jnp.max(jnp.abs(noise.T @ noise / 40_000 - left * jnp.eye(noise.shape[1])))
        <= 4.5 * left * np.sqrt(2 / 40_000) + 1e-13
    )
    size = jnp.sqrt(left * jnp.diag(gram) / 40_000)
    assert jnp.max(jnp.abs(noise.T @ drawn.inputs / 40_000) / (size + 1e-15)) < 4.5


def test_a_batch_is_made_without_a_factorization():
    """`on_samples` stands in a loop of steps: products alone."""
    for problem in (ln.regression(X, Y), ln.classification(X, CLASSES)):
        x, y = problem.sampled()
        text = (
            jax.jit(lambda x, y, problem=problem: problem.on_samples(x, y).gradient(jnp.asarray(A)))
            .lower(x, y)
            .as_text()
        )
        assert "custom_call" not in text


def test_classes_against_other_implementations():
    from sklearn.metrics import accuracy_score, log_loss

    problem = ln.classification(X, CLASSES, average=True, test=(X[:3], [1, 1, 0]))
    p = jax.nn.softmax(X @ jnp.asarray(A).T)
    np.testing.assert_allclose(problem.cost(jnp.asarray(A)), log_loss(CLASSES, p), rtol=1e-12)
    plain = jax.grad(lambda a: -jnp.mean(jax.nn.log_softmax(X @ a.T)[jnp.arange(7), CLASSES]))
    np.testing.assert_allclose(problem.gradient(jnp.asarray(A)), plain(jnp.asarray(A)), rtol=1e-12)
    state = ln.Weights([A])
    guess = np.argmax(X @ A.T, axis=1)
    assert ln.observe.accuracy(state, problem) == accuracy_score(CLASSES, guess)
    assert ln.observe.test_accuracy(state, problem) == accuracy_score([1, 1, 0], guess[:3])
    np.testing.assert_allclose(problem.test_error(jnp.asarray(A)), log_loss([1, 1, 0], p[:3], labels=[0, 1, 2]))
    assert ln.classification(X, CLASSES, classes=5).shape == (5, 4)


def test_well_fitted_classes_keep_their_digits():
    """Two classes are the logistic cost of the difference of outputs, also where it is 1e-30."""
    rows = jnp.asarray([[1.0, 0.0], [0.0, 1.0]])
    problem = ln.classification(rows, [0, 1])
    for size in (0.1, 5.0, 35.0, 400.0):
        a = size * jnp.asarray([[1.0, -1.0], [-1.0, 1.0]])
        other = ln.problems.logistic([[1.0, -1.0]])
        apart = 2 * size * jnp.asarray([[1.0, -1.0]])
        np.testing.assert_allclose(problem.cost(a), other.cost(apart), rtol=1e-13)
        np.testing.assert_allclose(problem.gradient(a)[0], other.gradient(apart)[0], rtol=1e-13)
        np.testing.assert_allclose(problem.gradient(-a), jax.grad(problem.cost)(-a), rtol=1e-12)


def test_classes_in_the_span_of_their_samples(key):
    """n < d_in: training in the span and back is training."""
    x = np.random.default_rng(8).normal(size=(5, 9))
    problem = ln.classification(x, [0, 1, 2, 1, 0], average=True)
    small, basis = problem.project()
    assert small.shape == (3, 5)
    state = ln.init.gaussian(key, problem, 4, 0.3)
    full = ln.simulate(problem, state, ln.optim.SGD(0.5), steps=50)
    short = ln.simulate(small, state.project(basis), ln.optim.SGD(0.5), steps=50)
    np.testing.assert_allclose(short["loss"], full["loss"], rtol=1e-11)
    np.testing.assert_allclose(short.final.lift(basis, state).layers[0], full.final.layers[0], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ln.factorization([[1.0, np.nan]]), "NaN"),
        (lambda: ln.factorization(np.ones((2, 2, 2))), "shape (2, 2, 2)"),
        (lambda: ln.factorization(np.ones((0, 2))), "empty"),
        (lambda: ln.factorization("matrix"), "target = 'matrix'"),
        (lambda: ln.factorization(np.ones((2, 2)) * 1j), "complex"),
        (lambda: ln.low_rank_recovery(jax.random.key(0), 4, 5), "rank = 5"),
        (lambda: ln.low_rank_recovery(jax.random.key(0), 4, 0), "rank = 0"),
        (lambda: ln.low_rank_recovery(jax.random.key(0), 2.5, 1), "d = 2.5"),
        (lambda: ln.regression(X, Y[:3]), "one row a sample"),
        (lambda: ln.regression(X, Y, output_scale=0.0), "output_scale = 0.0"),
        (lambda: ln.regression(np.zeros((3, 2)), np.ones(3)).project(), "all zero"),
        (lambda: ln.problems.mean_field_regression(X, Y, width=-1), "width = -1"),
        (lambda: ln.problems.masked(M, np.ones((3, 3))), "mask has shape (3, 3)"),
        (lambda: ln.problems.masked(M, 2 * np.ones((3, 4))), "mask"),
        (lambda: ln.problems.logistic(M), "labels"),
        (lambda: ln.problems.pseudo_huber(M, delta=-1.0), "delta = -1.0"),
        (lambda: ln.custom(3, (2, 2)), "cost = 3"),
        (lambda: ln.custom(lambda a: jnp.sum(a > 0), (2, 2)), "one real number"),
        (lambda: ln.low_rank_recovery(-1, 4, 1), "key = -1"),
        (lambda: ln.low_rank_recovery(jax.random.key(0), (3, 4, 5), 1), "d = (3, 4, 5)"),
        (lambda: ln.regression(X, Y, average="no"), "average = 'no'"),
        (lambda: ln.regression(X, Y, test=X), "test ="),
        (lambda: ln.problems.diagonal_regression(X, Y[:, 0]).project(), "needs a matrix problem"),
        (lambda: ln.problems.diagonal_regression(X, Y[:, 0]).whiten(), "needs a matrix problem"),
        (lambda: ln.factorization(M, test=ln.factorization(np.eye(2))), "test has shape (2, 2)"),
        (lambda: ln.custom(lambda a: a, (2, 2)), "one real number"),
        (lambda: ln.custom(jnp.sum, (2, 2, 2)), "shape = (2, 2, 2)"),
        (lambda: ln.custom(lambda a: jnp.sum(a @ jnp.ones(7)), (2, 2)), "cannot be called"),
        (lambda: ln.factorization(M).optimum(4), "rank = 4"),
        (lambda: ln.factorization(M).test_error(A), "no test problem"),
        (lambda: ln.problems.logistic(np.sign(M)).target, "no target"),
        (lambda: ln.problems.logistic(np.sign(M)).label_noise(jax.random.key(0)), "no labels"),
        (lambda: ln.factorization(np.ones(3)).optimum(1), "needs a matrix problem"),
        (lambda: ln.factorization(M).sampled(), "no samples: use regression or classification"),
        (lambda: ln.factorization(M).on_samples(X, Y), "no samples: use regression or classification"),
        (lambda: ln.classification(X, CLASSES).fresh(jax.random.key(0), 3), "no law for fresh samples: use regression"),
        (lambda: ln.regression(X, Y).fresh(jax.random.key(0), 0), "size = 0"),
        (lambda: ln.regression(X, Y, samples=False).sampled(), "samples=True"),
        (lambda: ln.regression(X, Y, samples="all"), "samples = 'all'"),
        (lambda: ln.classification(X, CLASSES[:3]), "one row a sample"),
        (lambda: ln.classification(X, CLASSES + 0.5), "whole numbers"),
        (lambda: ln.classification(X, CLASSES - 1), "whole numbers"),
        (lambda: ln.classification(X, CLASSES, classes=2), "0, ..., 1"),
        (lambda: ln.classification(X, CLASSES, classes=1), "classes = 1"),
        (lambda: ln.classification(X, CLASSES, test=X), "test ="),
        (lambda: ln.classification(X, Y), "labels must be a vector"),
        (lambda: ln.classification(np.zeros((2, 2)), [0, 1]).project(), "all zero"),
        (lambda: ln.observe.accuracy(ln.Weights([A]), ln.regression(X, Y)), "accuracy needs a classification"),
        (lambda: ln.observe.test_accuracy(ln.Weights([A]), ln.classification(X, CLASSES)), "no test problem"),
    ],
)
def test_bad_input_is_one_sentence(call, words):
    with pytest.raises(ln.InputError) as caught:
        call()
    assert words in str(caught.value)
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize("shape", [(30, 4), (4, 30), (6, 6)])
def test_a_regression_takes_one_svd_of_its_data(shape, monkeypatch):
    rng = np.random.default_rng(8)
    x, y = rng.normal(size=shape) @ np.diag(np.logspace(0, -9, shape[1])), rng.normal(size=(shape[0], 3))
    count, svd = [], np.linalg.svd

    def counted(*given, **options):
        count.append(given[0].shape)
        return svd(*given, **options)

    monkeypatch.setattr(np.linalg, "svd", counted)
    problem = ln.regression(x, y)
    small, basis = problem.project()
    target, values = problem.target, small.singular_values
    assert len(count) == 1
    problem.optimum(1), small.optimum(1)
    assert len(count) == 3  # one of the fitted labels for each
    np.testing.assert_allclose(values, svd(x, compute_uv=False), rtol=1e-12, atol=1e-16)
    np.testing.assert_allclose(problem.singular_values, values, rtol=1e-13)
    np.testing.assert_allclose(basis @ basis.T, np.eye(min(shape)), atol=1e-13)
    np.testing.assert_allclose(
        x @ target.T, y if shape[0] <= shape[1] else x @ np.linalg.pinv(x, rcond=1e-13) @ y, atol=1e-5
    )


def test_data_of_deficient_rank_are_reduced_to_their_rank():
    rng = np.random.default_rng(9)
    x, y = rng.normal(size=(9, 2)) @ rng.normal(size=(2, 7)), rng.normal(size=(9, 3))
    problem = ln.regression(x, y)
    assert problem.project().problem.shape == (3, 2)
    assert problem.singular_values.shape == (2,)
    np.testing.assert_allclose(problem.target, (np.linalg.pinv(x, rcond=1e-10) @ y).T, atol=1e-12)
    np.testing.assert_array_equal(ln.regression(np.zeros((4, 3)), y[:4]).target, np.zeros((3, 3)))
