"""The semidefinite complementarity problem: random problems over twelve decades, an oracle, and exact cases."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from linnet.optim.complementarity import congruence, pairs, smat, solve, svec

K = 8
M = K * (K + 1) // 2


def drawn(rng, k, decades):
    """A symmetric and not definite, B positive definite; their sizes over so many decades."""
    m = k * (k + 1) // 2
    part = rng.normal(size=(m, m + 3))
    a = rng.normal(size=(k, k))
    a = (a + a.T) / 2 - rng.uniform(-1, 1) * np.eye(k)
    return a * 10 ** rng.uniform(-decades / 2, decades / 2), part @ part.T * 10 ** rng.uniform(
        -decades / 2, decades / 2
    )


def placed(problems):
    """Problems of several sizes as the first rows and columns of larger ones."""
    a, b = np.zeros((len(problems), K, K)), np.zeros((len(problems), M, M))
    for i, (one, form) in enumerate(problems):
        a[i, : len(one), : len(one)], b[i, : len(form), : len(form)] = one, form
    return a, b, np.array([len(one) for one, _ in problems])


def vector(matrix):
    rows, columns = pairs(len(matrix))
    return matrix[rows, columns] * np.where(rows == columns, 1, np.sqrt(2))


def matrix(entries, k):
    rows, columns = pairs(k)
    out = np.zeros((k, k))
    out[rows, columns] = out[columns, rows] = entries / np.where(rows == columns, 1, np.sqrt(2))
    return out


def violation(a, b, x):
    """The largest of -min X, -min Y, and |<X, Y>|, in units of the problem and of X where it is above 1."""
    y = a + matrix(b @ vector(x), len(a))
    size_a = np.abs(a).max()
    size_x = size_a / np.abs(b).max()
    scale = max(1, np.abs(x).max() / size_x)
    lowest = [-np.linalg.eigvalsh(x)[0] / size_x, -np.linalg.eigvalsh(y)[0] / size_a]
    return max(*lowest, abs(np.sum(x * y)) / (size_a * size_x)) / scale


@pytest.fixture(scope="module")
def many():
    rng = np.random.default_rng(0)
    problems = [drawn(rng, 1 + i % K, 12) for i in range(1000)]
    program = jax.jit(lambda *given: jax.lax.map(lambda one: solve(*one), given, batch_size=250))
    return problems, program(*placed(problems))


def test_a_thousand_problems(many):
    problems, found = many
    x = np.asarray(found.x)
    off = [violation(a, b, x[i, : len(a), : len(a)]) for i, (a, b) in enumerate(problems)]
    assert max(off) <= 1e-8
    assert int(found.steps.max()) < 60
    assert not any(np.any(x[i, len(a) :]) or np.any(x[i, :, len(a) :]) for i, (a, _) in enumerate(problems))
    ranks = {
        np.linalg.matrix_rank(one[: len(a), : len(a)], tol=1e-6 * np.abs(one).max())
        for one, (a, _) in zip(x, problems, strict=True)
    }
    assert len(ranks) > 4  # none of them at the boundary alone
    wrong = violation(*problems[7], 1.01 * x[7])
    assert wrong > 1e-6


def oracle(a, b, steps=20_000):
    """FISTA with restart: X <- (X - (A + B[X]) / lambda_max(B))_+."""
    k, rate = len(a), 1 / np.linalg.eigvalsh(b)[-1]
    target, x = vector(a), np.zeros(len(b))
    ahead, momentum = x, 1.0
    for _ in range(steps):
        values, basis = np.linalg.eigh(matrix(ahead - rate * (target + b @ ahead), k))
        new = vector(basis * np.maximum(values, 0) @ basis.T)
        if (ahead - new) @ (new - x) > 0:
            momentum, ahead = 1.0, x
            continue
        faster = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead, moved = new + (momentum - 1) / faster * (new - x), np.abs(new - x).max()
        x, momentum = new, faster
        if moved < 1e-13 * max(1e-300, np.abs(new).max()):
            break
    return matrix(x, k)


def test_against_an_oracle(many):
    problems, found = many
    for i in (1, 2, 3, 4, 9, 10):
        a, b = problems[i]
        a, b = a / np.abs(a).max(), b / np.abs(b).max()
        mine = np.asarray(found.x[i, : len(a), : len(a)]) * np.abs(problems[i][1]).max() / np.abs(problems[i][0]).max()
        np.testing.assert_allclose(mine, oracle(a, b, 5000), rtol=0, atol=1e-6 * max(1, np.abs(mine).max()))


def test_inactive_degenerate_and_full_cases_are_exact():
    rng = np.random.default_rng(1)
    _, b = drawn(rng, 3, 0)
    b = jnp.asarray(b)
    for a in (np.zeros((3, 3)), np.diag([1.0, 0, 0]), np.eye(3), np.full((3, 3), 2.0)):
        given = jnp.asarray(a)
        np.testing.assert_array_equal(solve(given, b).x, 0)
        np.testing.assert_array_equal(solve(given, b).y, a)
        np.testing.assert_array_equal(solve(given, 0 * b).x, 0)  # B may vanish where nothing pushes
    wanted = np.diag([1.0, 2.0, 0.5]) + 0.1
    full = solve(-smat(b @ svec(jnp.asarray(wanted)), 3), b)
    np.testing.assert_allclose(full.x, wanted, rtol=1e-12)
    assert int(full.steps) == 0
    one = solve(jnp.array([[-3.0]]), jnp.array([[2.0]]))
    np.testing.assert_array_equal(one.x, [[1.5]])
    # neither X nor Y is definite along the second axis: a gap of 1e-11 is an error of its root
    edge = solve(jnp.diag(jnp.array([-1.0, 0.0, 1.0])), jnp.eye(6))
    np.testing.assert_allclose(edge.x, np.diag([1.0, 0, 0]), rtol=0, atol=np.sqrt(1e-11))


def test_forms_of_large_condition():
    """B of condition up to 1e12, as of third derivatives that nearly depend on each other."""
    rng = np.random.default_rng(3)
    problems = []
    for i in range(160):
        k = 1 + i % K
        m = k * (k + 1) // 2
        a = rng.normal(size=(k, k))
        basis = np.linalg.qr(rng.normal(size=(m, m)))[0]
        rates = np.logspace(0, -rng.uniform(0, 12), m)
        problems.append(((a + a.T) / 2, (basis * rates) @ basis.T))
    program = jax.jit(lambda *given: jax.lax.map(lambda one: solve(*one), given, batch_size=80))
    found = program(*placed(problems))
    off = [violation(a, b, np.asarray(found.x[i, : len(a), : len(a)])) for i, (a, b) in enumerate(problems)]
    assert max(off) <= 1e-8


@pytest.mark.slow
def test_single_precision():
    a, b = jnp.array([[-1, 0.2], [0.2, 0.5]], jnp.float32), jnp.eye(3, dtype=jnp.float32)
    values, basis = np.linalg.eigh(-np.asarray(a, float))
    np.testing.assert_allclose(solve(a, b).x, basis * np.maximum(values, 0) @ basis.T, atol=1e-5)
    rng = np.random.default_rng(0)
    for k in (1, 3, 5):
        program = jax.jit(solve)
        for _ in range(20):
            given = [np.float32(part) for part in drawn(rng, k, 12)]
            assert violation(*(part.astype(float) for part in given), np.asarray(program(*given).x, float)) < 2e-5
    assert not np.all(np.isfinite(solve(-jnp.eye(1, dtype=jnp.float32), jnp.zeros((1, 1), jnp.float32)).x))


def test_nothing_solves_a_problem_without_a_solution():
    for a, b in (
        (-jnp.eye(1), jnp.zeros((1, 1))),
        (jnp.diag(jnp.array([1.0, -1.0])), jnp.diag(jnp.array([1.0, 0, 0]))),
    ):
        assert not np.all(np.isfinite(solve(a, b).x))


def test_svec_keeps_traces_and_congruences():
    rng = np.random.default_rng(2)
    x, y, g = (jnp.asarray(rng.normal(size=(4, 4))) for _ in range(3))
    x, y = x + x.T, y + y.T
    np.testing.assert_allclose(svec(x) @ svec(y), jnp.trace(x @ y), rtol=1e-12)
    np.testing.assert_array_equal(smat(svec(x), 4), smat(svec(x), 4).T)
    np.testing.assert_allclose(smat(svec(x), 4), x, rtol=1e-14)
    np.testing.assert_allclose(smat(congruence(g) @ svec(x), 4), g @ x @ g.T, rtol=1e-12)
