"""Balanced layers of any lambda: the closed form against 60 digits, simulation and what it must end at."""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import linnet as ln
from linnet import observe
from linnet.theory import balance, convergence, mixed

mp.mp.dps = 60
LAMBDAS = (-10.0, -1.0, -1e-8, 0.0, 1e-8, 0.1, 3.0, 10.0)
SHAPES = [(1, 1, 1), (3, 3, 3), (3, 3, 2), (4, 2, 3), (2, 4, 2), (3, 4, 1), (2, 3, 8), (4, 3, 4)]  # d_out, d_in, width


def exists(lam, d_out, d_in, width):
    return lam == 0 or width <= (d_out if lam > 0 else d_in)


def draw(seed, d_out, d_in, width, lam, *, scale=1.0):
    """A target and a start; where lambda is next to nothing, one on the right side of the saddle."""
    target = np.random.default_rng(seed).normal(size=(d_out, d_in))
    initial = ln.init.lambda_balanced(jax.random.key(seed), ln.factorization(target), lam, width, scale=scale)
    if d_out == d_in and np.linalg.det(target) * np.linalg.det(initial.matrix) < 0 and abs(lam) < 1e-6:
        target[0] *= -1
    return target, initial


def whole(at):
    """Q Q^T."""
    return np.block(
        [[np.asarray(at.input_gram), np.asarray(at.matrix).T], [np.asarray(at.matrix), np.asarray(at.output_gram)]]
    )


def stack(initial):
    return np.concatenate([np.asarray(initial.layers[0]).T, np.asarray(initial.layers[1])])


def field(target, lam):
    d_out, d_in = target.shape
    return np.block([[-lam / 2 * np.eye(d_in), target.T], [target, lam / 2 * np.eye(d_out)]])


def exact(initial, target, lam):
    """Q Q^T in 60 digits as a function of time: exponentials of F, one inverse."""
    q0, f = mp.matrix(stack(initial).tolist()), mp.matrix(field(target, 0.0).tolist())
    d_in = target.shape[1]
    for i in range(f.rows):
        f[i, i] = mp.mpf(lam) / (-2 if i < d_in else 2)
    values, frame = mp.eigsy(f)
    p = frame.T * q0

    def at(time):
        gain = mp.diag([mp.exp(x * time) for x in values])
        phi = mp.diag([mp.expm1(2 * x * time) / (2 * x) if abs(x) > 1e-40 else mp.mpf(time) for x in values])
        grown = frame * gain * p
        return grown * ((mp.eye(p.cols) + p.T * phi * p) ** -1) * grown.T

    return at


def digits(matrix):
    return np.array(matrix.tolist(), dtype=float)


def relative(found, right):
    return np.max(np.abs(np.asarray(found) - np.asarray(right))) / np.max(np.abs(np.asarray(right)))


# The flow ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lam", [-1.0, 0.0, 3.0])
def test_the_reference_solves_the_equation(lam):
    """X' = F X + X F - X^2 with X = Q Q^T, in 60 digits, and the layers' gradient flow says the same of the start."""
    target, initial = draw(1, 3, 2, 2, lam)
    at = exact(initial, target, lam)
    f = mp.matrix(field(target, lam).tolist())
    for time in (mp.mpf("0.1"), mp.mpf(1)):
        step = mp.mpf(10) ** -20
        slope = (at(time + step) - at(time - step)) / (2 * step)
        x = at(time)
        assert mp.mnorm(slope - f * x - x * f + x * x) < 1e-35
    w1, w2 = (np.asarray(w) for w in initial.layers)
    gap = target - w2 @ w1
    moved = np.concatenate([(w2.T @ gap).T, gap @ w1.T])
    q = stack(initial)
    assert relative(field(target, lam) @ q - q @ q.T @ q / 2, moved) < 1e-14


@pytest.mark.parametrize(("d_out", "d_in", "width"), SHAPES)
def test_flow_keeps_all_digits(d_out, d_in, width):
    for number, lam in enumerate(LAMBDAS):
        if not exists(lam, d_out, d_in, width):
            continue
        target, initial = draw(number, d_out, d_in, width, lam)
        right = exact(initial, target, initial.balance())
        found = balance.flow(np.array([1e-3, 0.3, 5.0]), initial, target)
        for i, time in enumerate((1e-3, 0.3, 5.0)):
            at = jax.tree.map(lambda x, i=i: x[i], found)
            assert relative(whole(at), digits(right(time))) < 1e-13, (lam, time)


@pytest.mark.parametrize(("values", "lam"), [((2.0, 2.0, 1.0), 0.0), ((2.0, 2.0, 0.0), 0.0), ((1.0, 0.0, 0.0), 0.3)])
def test_repeated_and_vanishing_values_and_a_start_of_low_rank(values, lam):
    rng = np.random.default_rng(2)
    u, v = (np.linalg.qr(rng.normal(size=(3, 3)))[0] for _ in range(2))
    target = (u * values) @ v.T
    initializations = [ln.init.lambda_balanced(jax.random.key(3), ln.factorization(target), lam, 2, scale=1.0)]
    if lam == 0:
        initializations.append(ln.init.balanced(np.outer(rng.normal(size=3), rng.normal(size=3)), (3,)))
    for initial in initializations:
        right = exact(initial, target, initial.balance())
        for time in (0.4, 6.0):
            assert relative(whole(balance.flow(time, initial, target)), digits(right(time))) < 1e-13
    nothing = ln.Weights((np.zeros((2, 3)), np.zeros((3, 2))))
    assert not np.any(whole(balance.flow(5.0, nothing, target)))


def test_who_wins_is_right_at_long_times():
    """Fewer neurons than growing modes: exponents that are cut would decide it wrongly; the limit is Eckart-Young's."""
    rng = np.random.default_rng(4)
    target = rng.normal(size=(5, 4))
    for lam in (0.0, 1.0, -0.5):
        initial = ln.init.lambda_balanced(jax.random.key(5), ln.factorization(target), lam, 2, scale=0.3)
        best = ln.factorization(target).optimum(2).matrix
        for time in (300.0, 1e4):
            at = balance.flow(time, initial, target)
            assert relative(at.matrix, best) < 1e-13
            assert relative(whole(at), whole(balance.end(initial, target).at)) < 1e-13
    # a mode that starts 1e-9 behind overtakes one of nearly the same rate: at what time decides the ratio
    target = np.diag([1.0, 0.9])
    initial = ln.Weights((np.array([[1e-9, 1.0]]), np.array([[1e-9], [1.0]])))
    for time in (100.0, 207.0, 300.0):
        right = digits(exact(initial, target, 0.0)(time))
        assert relative(whole(balance.flow(time, initial, target)), right) < 1e-12


@pytest.mark.parametrize("seed", [0, 2, 3, 4])
def test_a_badly_conditioned_start_keeps_its_digits(seed):
    """Singular values 1e3, 1, 1e-4: a Cholesky factor of M would square the condition and lose at least 4e-12."""
    rng = np.random.default_rng(seed)
    z1, z2, k, _ = (np.linalg.qr(rng.normal(size=(3, 3)))[0] for _ in range(4))
    inner = k * [1e3, 1.0, 1e-4]
    initial, target = ln.Weights((inner @ z1.T, z2 @ inner.T)), rng.normal(size=(3, 3))
    target[0] *= np.sign(np.linalg.det(target) * np.linalg.det(initial.matrix))
    right = digits(exact(initial, target, 0.0)(1.0))
    assert relative(whole(balance.flow(1.0, initial, target)), right) < 5e-13


SIZES = st.integers(1, 4)


@pytest.mark.compiles
@given(SIZES, SIZES, SIZES, st.sampled_from([-2.0, -0.3, 0.0, 0.5, 4.0]), st.floats(0.2, 3.0), st.integers(0, 99))
def test_flow_is_that_of_simulated_layers(d_out, d_in, width, lam, scale, seed):
    if not exists(lam, d_out, d_in, width):
        return
    target, initial = draw(seed, d_out, d_in, width, lam, scale=0.7)
    problem = ln.problems.Factorization(target, scale)
    run = ln.simulate(problem, initial, ln.optim.GradientFlow(rtol=1e-12), time=1.5, record=ln.record.linear(2))
    at = balance.flow(1.5, initial, target, scale)
    assert relative(at.matrix, run.final.matrix) < 1e-9
    for ours, theirs in zip(at[1:], observe.grams(run.final), strict=True):
        assert relative(ours, theirs) < 1e-9
    assert run.final.balance(tol=1e-9) == pytest.approx(lam, abs=1e-9)


def test_flow_is_the_known_one_where_others_have_it():
    target, initial = draw(7, 3, 4, 3, 0.0)
    assert (
        relative(
            balance.flow(0.8, initial, target, 2.0).matrix, convergence.two_layers(0.8, initial.matrix, target, 2.0)
        )
        < 1e-13
    )
    for sign in (1, -1):
        initial = ln.init.two_c_balanced(initial.matrix, 0.4, sign=sign)
        assert initial.balance() == pytest.approx(-0.8 * sign, rel=1e-14)
        closed = mixed.matrix(0.8, initial.matrix, target, 0.4, 2.0)
        assert relative(balance.flow(0.8, initial, target, 2.0).matrix, closed) < 1e-13


def test_flow_is_traced_and_batched():
    target, initial = draw(8, 3, 2, 2, 0.5)
    times = np.array([0.1, 2.0])
    right = balance.flow(times, initial, target, 1.5)
    for found in (
        jax.jit(balance.flow)(times, initial, target, 1.5),
        jax.vmap(lambda t: balance.flow(t, initial, target, 1.5))(times),
        jax.tree.map(
            lambda x: x[0],
            jax.vmap(lambda s: balance.flow(times, s, target, 1.5))(
                jax.tree.map(lambda x: jnp.stack([x, 2 * x]), initial)
            ),
        ),
    ):
        jax.tree.map(
            lambda ours, theirs: np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-13), found, right
        )


def test_kernel_is_the_observed_one():
    rng = np.random.default_rng(9)
    target, initial = draw(9, 3, 2, 3, 0.7)
    inputs = rng.normal(size=(4, 2))
    problem = ln.regression(inputs, rng.normal(size=(4, 3)))
    at = balance.flow(np.zeros(2), initial, target)
    assert at.kernel(inputs).shape == (2, 12, 12)
    assert relative(at.kernel(inputs)[1], observe.sample_kernel(initial, problem)) < 1e-13
    hidden = inputs @ initial.layers[0].T
    assert relative(at.similarity(inputs)[1], hidden @ hidden.T) < 1e-13
    with pytest.raises(ln.InputError, match=r"inputs has shape \(4, 3\): it must have d_in = 2 columns\."):
        at.kernel(np.ones((4, 3)))


@pytest.mark.parametrize("lam", [-1.0, -1e-8, 0.0, 1e-8, 5.0])
@pytest.mark.parametrize("shape", [(3, 3), (2, 4), (4, 2)])
def test_eigenvectors_are_orthonormal_whatever_lambda(shape, lam):
    target = np.random.default_rng(10).normal(size=shape)
    target[0] = target[1]  # a singular value of zero for square and wide ones
    values, vectors = (np.asarray(x) for x in balance.eigenvectors(target, lam))
    assert relative((vectors * values) @ vectors.T, field(target, lam)) < 1e-14
    assert np.max(np.abs(vectors.T @ vectors - np.eye(6))) < 1e-14


# One neuron, decay ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rates", [(1.0, 1.0), (3.0, 0.2)])
def test_the_weights_of_one_neuron(rates):
    rng = np.random.default_rng(11)
    target, w1, w2 = rng.normal(size=(2, 3)), rng.normal(size=(1, 3)), rng.normal(size=(2, 1))
    found = balance.neuron(np.array([0.3, 2.0]), ln.Weights((w1, w2)), target, 1.5, lr_multipliers=rates)

    def velocity(_, flat):
        gap = 1.5 * (target - np.outer(flat[3:], flat[:3]))
        return np.concatenate([rates[0] * flat[3:] @ gap, rates[1] * gap @ flat[:3]])

    from scipy.integrate import solve_ivp

    run = solve_ivp(velocity, (0, 2), np.append(w1, w2), t_eval=[0.3, 2.0], method="DOP853", rtol=1e-13, atol=1e-15)
    assert relative(found.first, run.y[:3].T) < 1e-10
    assert relative(found.second, run.y[3:].T) < 1e-10
    if rates == (1.0, 1.0):
        at = balance.flow(2.0, ln.Weights((w1, w2)), target, 1.5)
        assert relative(np.outer(found.second[1], found.first[1]), at.matrix) < 1e-13
        assert relative(np.outer(found.first[1], found.first[1]), at.input_gram) < 1e-13


def test_decay_ends_at_the_soft_threshold():
    target, initial = draw(12, 3, 4, 3, 0.0)
    u, s, vt = np.linalg.svd(target, full_matrices=False)
    mu, scale = 1.3 * s[1], 2.0
    soft = (u * np.maximum(s - mu / scale, 0)) @ vt
    end = balance.end(initial, target, scale, weight_decay=mu)
    assert relative(end.at.matrix, soft) < 1e-13
    assert not end.saddle
    assert relative(balance.flow(60.0, initial, target, scale, weight_decay=mu).matrix, soft) < 1e-13
    cost = ln.custom(lambda a: jnp.sum((a - target) ** 2), (3, 4))

    def velocity(_, flat):
        w1, w2 = flat[:12].reshape(3, 4), flat[12:].reshape(3, 3)
        gap = np.asarray(-cost.gradient(jnp.asarray(w2 @ w1)))
        return np.concatenate([(w2.T @ gap - mu * w1).ravel(), (gap @ w1.T - mu * w2).ravel()])

    from scipy.integrate import solve_ivp

    flat = np.concatenate([np.asarray(w).ravel() for w in initial.layers])
    run = solve_ivp(velocity, (0, 0.6), flat, method="DOP853", rtol=1e-12, atol=1e-14).y[:, -1]
    assert (
        relative(
            balance.flow(0.6, initial, target, scale, weight_decay=mu).matrix,
            run[12:].reshape(3, 3) @ run[:12].reshape(3, 4),
        )
        < 1e-9
    )


# Grams, modes, limits ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("d_out", "d_in", "width"), [(3, 3, 3), (4, 2, 2), (2, 4, 2), (4, 2, 4), (2, 4, 4), (3, 4, 2)])
@pytest.mark.parametrize("lam", [-2.0, -1e-9, 0.0, 1e-9, 0.5])
def test_grams_are_functions_of_the_matrix(d_out, d_in, width, lam):
    if not exists(lam, d_out, d_in, width):
        return
    initial = draw(13, d_out, d_in, width, lam)[1]
    found = balance.grams(initial.matrix, lam, width)
    for ours, theirs in zip(found[1:], observe.grams(initial), strict=True):
        assert relative(ours, theirs) < 1e-13


def test_grams_that_the_matrix_does_not_decide_are_refused():
    initial = draw(14, 4, 2, 3, 1.0)[1]
    with pytest.raises(ln.InputError, match=r"width = 3 is not allowed: A has rank 2 and decides .* 2 and 4 alone\."):
        balance.grams(initial.matrix, 1.0, 3)
    with pytest.raises(ln.InputError, match=r"width = 1 is not allowed: A has rank 2 .* from 2 on alone\."):
        balance.grams(initial.matrix, 0.0, 1)
    with pytest.raises(ln.InputError, match=r"width = 3 is not allowed: lambda < 0 needs a width of at most d_in = 2"):
        balance.grams(initial.matrix, -1.0, 3)
    # and rightly: two networks with the same A, lambda and width, and other grams
    first, second = (np.asarray(w) for w in initial.layers)
    u = np.linalg.svd(first)[0]
    seen, blind = second @ u[:, :2] @ u[:, :2].T, u[:, 2:]  # the third neuron has no input
    free = np.linalg.svd(seen)[0][:, 2:]  # outputs that A does not reach
    others = [ln.Weights((first, seen + free[:, [i]] @ blind.T)) for i in (0, 1)]
    assert all(abs(other.balance() - 1) < 1e-13 for other in others)
    assert relative(others[0].matrix, others[1].matrix) < 1e-14
    assert relative(*(observe.grams(other)[1] for other in others)) > 0.1


def test_modes_are_those_of_aligned_layers():
    problem = ln.factorization(np.diag([3.0, 1.0, 0.2]))
    for lam in (-0.7, 0.0, 1e-10, 2.0):
        initial = ln.init.lambda_balanced(jax.random.key(15), problem, lam, 3, scale=0.1, aligned=True)
        at = balance.flow(0.9, initial, problem.target, 2.0).matrix
        modes = balance.mode(0.9, np.diagonal(initial.matrix), [3.0, 1.0, 0.2], lam, 2.0)
        assert relative(np.diag(modes), at) < 1e-13
    lams = np.array([-2.0, 2.0])
    assert relative(jax.vmap(lambda x: balance.mode(0.3, 0.1, 1.0, x))(lams), balance.mode(0.3, 0.1, 1.0, lams)) < 1e-14


@pytest.mark.parametrize(("d_out", "d_in", "width", "sign"), [(3, 4, 3, 1), (3, 4, 2, 1), (4, 3, 2, -1), (3, 3, 3, -1)])
def test_large_imbalance_is_lazy(d_out, d_in, width, sign):
    errors = []
    for size in (1e3, 1e5):
        rng = np.random.default_rng(16)
        target = rng.normal(size=(d_out, d_in))
        initial = ln.init.lambda_balanced(
            jax.random.key(16), ln.factorization(target), sign * size, width, scale=1 / np.sqrt(size)
        )
        times = np.array([0.3, 1.0, 3.0]) / (2.0 * size)
        at = balance.flow(times, initial, target, 2.0).matrix
        errors.append(np.max(np.abs(at - balance.lazy(times, initial, target, 2.0))))
    assert errors[0] < 0.1
    assert errors[1] < errors[0] / 50


def test_nothing_is_lazy_without_imbalance():
    problem = ln.factorization(np.diag([2.0, 1.0]))
    with pytest.raises(ln.InputError, match="lambda = 0"):
        balance.lazy(1.0, ln.init.lambda_balanced(0, problem, 0.0, 2), problem.goal)


def test_half_of_all_square_starts_end_at_a_saddle():
    ends = []
    for seed in range(8):
        target = np.random.default_rng(seed).normal(size=(3, 3))
        initial = ln.init.lambda_balanced(jax.random.key(seed), ln.factorization(target), 0.0, 4, scale=0.5)
        end = balance.end(initial, target)
        wrong = np.linalg.det(target) * np.linalg.det(initial.matrix) < 0
        assert end.saddle == wrong
        assert end.missing == int(wrong)
        best = ln.factorization(target).optimum(2 if wrong else 3).matrix
        assert relative(end.at.matrix, best) < 1e-12
        s = np.linalg.svd(target, compute_uv=False)
        assert relative(balance.flow(15 / s[2] if wrong else 100 / s[2], initial, target).matrix, best) < 1e-5
        ends.append(wrong)
    assert 0 < sum(ends) < 8
    # lambda opens the way
    initial = ln.init.lambda_balanced(jax.random.key(1), ln.factorization(target), 0.1, 3, scale=0.5)
    assert not balance.end(initial, target).saddle


def test_ends_of_starts_that_lack_a_mode():
    target = np.diag([3.0, 2.0, 1.0])
    initial = ln.Weights((0.1 * np.eye(3)[1:2], 0.1 * np.eye(3)[:, 1:2]))
    end = balance.end(initial, target)
    assert end.missing == 1
    np.testing.assert_allclose(end.at.matrix, np.diag([0.0, 2.0, 0.0]), atol=1e-14)
    assert not np.any(balance.end(initial, 0 * target).at.matrix)
    assert not balance.end(initial, 0 * target).saddle
    opposed = ln.Weights((np.eye(3)[:1], -np.eye(3)[:, :1]))
    assert balance.end(opposed, target).missing == 1
    np.testing.assert_allclose(balance.end(opposed, target).at.matrix, 0 * target, atol=1e-14)


def test_mistakes_are_one_sentence():
    target, initial = draw(17, 3, 2, 2, 0.5)
    loose = ln.Weights((initial.layers[0], 1.1 * initial.layers[1]))
    for words, call in {
        r"initial is not balanced: W_2\^T W_2 - W_1 W_1\^T differs from .* I by \d\.\de-0\d of": lambda: balance.flow(
            1.0, loose, target
        ),
        r"decay is not allowed from this start: it has lambda = 0\.5": lambda: balance.flow(
            1.0, initial, target, weight_decay=0.1
        ),
        r"time = 1000000000\.0 is not allowed: it would take .* steps": lambda: balance.flow(1e9, initial, target),
        r"initial has 2 hidden neurons: this is the flow of one": lambda: balance.neuron(1.0, initial, target),
        r"lr_multipliers = 3 is not allowed": lambda: balance.neuron(1.0, initial, target, lr_multipliers=3),
        r"initial has shape \(3, 2\): it must have the target's shape \(2, 2\)": lambda: balance.end(
            initial, np.eye(2)
        ),
    }.items():
        with pytest.raises(ln.InputError, match=words):
            call()
    # the measured lambda is the mean, and a tolerance is a tolerance
    assert balance.flow(0.1, loose, target, tol=0.5).matrix.shape == (3, 2)
