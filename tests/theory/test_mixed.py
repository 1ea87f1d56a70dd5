"""Mixed dynamics: closed forms against 60-digit arithmetic, tight integration and known figures."""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import linnet as ln
from linnet.theory import mixed

mp.mp.dps = 60


def exact_mode(t, s0, goal, c):
    """The closed form in p, in 60 digits, where nothing cancels badly."""
    t, s0, goal, c = map(mp.mpf, (t, s0, goal, c))
    h = mp.sqrt(goal * goal + c * c)
    p0, q = s0 + mp.sqrt(s0 * s0 + c * c), mp.exp(-2 * h * t)
    p = (p0 * (goal + h + (h - goal) * q) + c * c * (1 - q)) / (p0 * (1 - q) + h - goal + (goal + h) * q)
    return (p - c * c / p) / 2


def exact_time(s0, s1, goal, c):
    s0, s1, goal, c = map(mp.mpf, (s0, s1, goal, c))
    h = mp.sqrt(goal * goal + c * c)
    p0, p1 = (s + mp.sqrt(s * s + c * c) for s in (s0, s1))
    return (mp.log((goal + h - p0) / (goal + h - p1)) + mp.log((p1 + h - goal) / (p0 + h - goal))) / (2 * h)


def random_sets(count, seed=0):
    rng = np.random.default_rng(seed)
    c, goal = 10 ** rng.uniform(-8, 2, count), 10 ** rng.uniform(-8, 2, count)
    s0 = 10 ** rng.uniform(-8, 2, count) * rng.choice([-1, 0, 1, 1], count)
    return rng, s0, goal, c, 10 ** rng.uniform(-3, 3, count) / np.hypot(goal, c)


def test_the_reference_solves_the_equation():
    """ds/dt = 2 hypot(s, c) (s_star - s), by differentiation in 60 digits."""
    for s0, goal, c in [(0.3, 2.0, 0.5), (-1.0, 2.0, 0.1), (3.0, 0.2, 1.0)]:
        for t in (0.1, 1.0):
            slope = mp.diff(lambda x, a=s0, b=goal, d=c: exact_mode(x, a, b, d), t)
            s = exact_mode(t, s0, goal, c)
            assert abs(slope - 2 * mp.sqrt(s * s + mp.mpf(c) ** 2) * (goal - s)) < 1e-40
        assert abs(exact_mode(exact_time(s0, (s0 + goal) / 2, goal, c), s0, goal, c) - (s0 + goal) / 2) < 1e-40


def test_mode_keeps_all_digits_over_ten_decades():
    _, s0, goal, c, t = random_sets(3000)
    got = np.asarray(jax.vmap(mixed.mode)(t, s0, goal, c))
    for i in range(len(got)):
        right = exact_mode(t[i], s0[i], goal[i], c[i])
        size = abs(right)
        if s0[i] < 0:  # near the sign change: relative to what is there to be resolved
            size = max(size, min(c[i], max(-s0[i], goal[i])))
        assert abs(mp.mpf(got[i]) - right) < 2e-14 * size, (t[i], s0[i], goal[i], c[i])


@pytest.mark.parametrize("transform", [np.vectorize, jax.vmap])
def test_mode_keeps_its_digits_between_numbers_of_any_sizes(transform):
    """c beside the others, the others beside c, and their squares may be no doubles: logarithms have 13 digits."""
    rng = np.random.default_rng(3)
    c, goal, s0 = 10 ** rng.uniform(-300, 300, (3, 600))
    s0 *= rng.choice([-1, 0, 1, 1], len(s0))
    t = 10 ** rng.uniform(-3, 3.5, len(s0)) / np.where(rng.random(len(s0)) < 0.5, np.hypot(goal, c), np.hypot(s0, goal))
    with np.errstate(all="ignore"), mp.workdps(1400):
        got, checked = np.asarray(transform(mixed.mode)(t, s0, goal, c)), 0
        for i in range(len(got)):
            right = exact_mode(t[i], s0[i], goal[i], c[i])
            size = max(abs(right), min(c[i], max(-s0[i], goal[i])) if s0[i] < 0 else 0)
            if size > max(1e-290, 1e-300 * c[i]):
                checked += 1
                assert abs(mp.mpf(float(got[i])) - right) < 1e-12 * size, (t[i], s0[i], goal[i], c[i])
    assert checked > 400


def test_mode_is_odd_and_scales():
    _, s0, goal, c, t = random_sets(200, seed=1)
    mode = jax.vmap(mixed.mode)
    base = mode(t, s0, goal, c)
    assert jnp.allclose(mode(t, -s0, -goal, c), -base, rtol=1e-14, atol=0)
    for k in (1e-150, 1e150):
        assert jnp.allclose(mode(t / k, s0 * k, goal * k, c * k) / k, base, rtol=1e-12, atol=0)
    assert jnp.allclose(mode(t / 3, s0, goal, c, np.full(len(t), 3.0)), base, rtol=1e-13, atol=0)


def test_mode_limits_without_a_threshold():
    t = jnp.array([0.0, 0.5, 3.0])
    q = jnp.exp(-4 * t)
    assert jnp.allclose(mixed.mode(t, 0.1, 2.0, 0.0), 0.2 / (0.1 * (1 - q) + 2 * q))
    stuck = mixed.mode(t, -0.1, 2.0, 0.0)  # mixed/C11: dies at zero, never crosses
    assert jnp.allclose(stuck, -0.2 * q / (2 + 0.1 * (1 - q)))
    assert jnp.all(stuck < 0)
    assert jnp.allclose(mixed.mode(t, 0.1, 0.0, 0.0), 0.1 / (1 + 0.2 * t))
    assert jnp.all(mixed.mode(t, 0.0, 2.0, 0.0) == 0)
    assert jnp.allclose(mixed.mode(1e3, -5.0, 2.0, 1e-6), 2.0)  # any c > 0 gets there


def test_mode_time_keeps_all_digits():
    rng, s0, goal, c, _ = random_sets(3000, seed=2)
    s1 = s0 + (goal - s0) * rng.choice([1e-6, 0.1, 0.5, 0.9, 1 - 1e-9], len(s0))
    got = np.asarray(mixed.mode_time(s0, s1, goal, c))
    for i in range(len(got)):
        if s0[i] < s1[i] < goal[i] or s0[i] > s1[i] > goal[i]:
            right = exact_time(s0[i], s1[i], goal[i], c[i])
            # s1 itself is rounded: its last digit moves the time by eps s1 / |ds/dt|
            s = mp.mpf(s1[i])
            rounding = 2e-16 * abs(s) / (2 * mp.sqrt(s * s + mp.mpf(c[i]) ** 2) * abs(goal[i] - s))
            assert abs(mp.mpf(got[i]) - right) < 1e-13 * abs(right) + 4 * rounding
    assert np.isclose(mixed.mode_time(2.0, 0.5, 0.0, 0.0), 0.75)  # s = s0 / (1 + 2 s0 t)
    assert np.isnan(mixed.mode_time(0.0, 3.0, 2.0, 1.0))
    assert np.isnan(mixed.mode_time(-1.0, 1.0, 2.0, 0.0))


@pytest.mark.parametrize(("d_out", "d_in"), [pytest.param(4, 4, marks=pytest.mark.slow), (3, 5), (5, 3)])
@pytest.mark.parametrize("c", [0.0, 1e-8, 1e-4, 0.1, 50.0, 1e3])
def test_matrix_is_the_mixed_flow(d_out, d_in, c):
    rng = np.random.default_rng(d_out * d_in)
    initial, goal = rng.normal(size=(d_out, d_in)), rng.normal(size=(d_out, d_in))
    if d_out == d_in and np.linalg.det(initial) * np.linalg.det(goal) < 0 and c == 0:
        initial[0] *= -1  # the other half of the starts ends at a saddle without a threshold
    problem = ln.factorization(goal, half=False)  # kappa = 2
    time = 0.5 / max(1.0, c)
    flow = ln.simulate(
        problem,
        ln.EndToEnd(initial, ln.states.Mixed(c)),
        ln.optim.GradientFlow(rtol=1e-13),
        time=time,
        record=ln.record.linear(2),
    )
    closed = jax.jit(mixed.matrix)(time, initial, goal, c, 2.0)
    assert jnp.max(jnp.abs(closed - flow.final.matrix)) < 1e-10 * jnp.max(jnp.abs(closed))
    assert jnp.max(jnp.abs(mixed.matrix(1e5, initial, goal, c, 2.0) - goal)) < 1e-12  # and it arrives
    assert jnp.allclose(mixed.matrix(0.0, initial, goal, c, 2.0), initial)


def test_matrix_crosses_the_wrong_determinant():
    """det A_0 det A_obs < 0 with c << |A_0|: where the form with an inverse loses everything."""
    rng = np.random.default_rng(3)
    initial, goal = rng.normal(size=(3, 3)), rng.normal(size=(3, 3))
    initial[0] *= -np.sign(np.linalg.det(initial) * np.linalg.det(goal))
    assert np.linalg.det(initial) * np.linalg.det(goal) < 0
    for c in (1e-3, 1e-6, 1e-8):
        problem = ln.factorization(goal)
        flow = ln.simulate(
            problem,
            ln.EndToEnd(initial, ln.states.Mixed(c)),
            ln.optim.GradientFlow(rtol=1e-12),
            time=3.0,
            record=ln.record.linear(2),
        )
        closed = mixed.matrix(3.0, initial, goal, c)
        assert jnp.max(jnp.abs(closed - flow.final.matrix)) < 1e-9


def test_matrix_of_aligned_modes_is_the_mode():
    rng = np.random.default_rng(4)
    u, v = (np.linalg.qr(rng.normal(size=(5, 3)))[0] for _ in range(2))
    goal, initial = np.array([3.0, 1.0, 0.0]), np.array([0.1, -0.4, 0.7])
    times = jnp.array([0.01, 0.4, 2.0])
    whole = mixed.matrix(times, (u * initial) @ v.T, (u * goal) @ v.T, 0.2)
    modes = jnp.einsum("ik,tij,jk->tk", u, whole, v)
    assert jnp.allclose(modes, mixed.mode(times, initial, goal, 0.2), rtol=1e-12, atol=1e-13)


def test_lazy_predictions(key):
    problem = ln.low_rank_recovery(key, 30, 3)
    initial = 0.1 * jax.random.normal(key, (30, 30))
    kappa, c = 2 / 30**2, 5.0
    run = ln.simulate(problem, ln.EndToEnd(initial, ln.states.Lazy(c)), ln.optim.GradientFlow(), time=40.0)
    assert jnp.allclose(mixed.lazy(40.0, initial, problem.target, c, kappa), run.final.matrix, rtol=1e-9, atol=1e-11)
    truth, noise = problem.truth, problem.target - problem.truth
    best = mixed.lazy_optimum(truth, noise)
    grid = jnp.linspace(0, 1, 2001)
    errors = jax.vmap(lambda q: jnp.sum((-q * truth + (1 - q) * noise) ** 2))(grid)
    assert abs(grid[jnp.argmin(errors)] - best.left) < 1e-3
    assert best.square <= jnp.min(errors) < best.square * (1 + 1e-5)
    inner = jnp.sum(truth * noise)
    closed = (jnp.sum(truth**2) * jnp.sum(noise**2) - inner**2) / jnp.sum(problem.target**2)
    assert np.isclose(best.square, closed, rtol=1e-12)


@pytest.mark.parametrize("factor", [0.98, 1.02])
def test_largest_step_is_where_a_small_perturbation_grows(factor):
    goal, c, kappa = np.diag([2.0, 0.5]), 0.3, 1.0
    initial = ln.init.mixed_manifold(goal, c)
    kicked = ln.Weights(
        [w + 1e-7 * np.random.default_rng(i).normal(size=w.shape) for i, w in enumerate(initial.layers)]
    )
    lr = factor * mixed.largest_lr(2.0, c, kappa)
    run = ln.simulate(ln.factorization(goal), kicked, ln.optim.SGD(lr), steps=200, record=ln.record.every(50))
    assert bool(run["loss"][-1] > run["loss"][0]) == (factor > 1)


@pytest.mark.parametrize(("lazy", "c", "top"), [(False, 0.3, 2.0), (True, 40.0, 2.0)])
def test_the_papers_step_size_is_a_share_of_the_stable_one(lazy, c, top):
    """With kappa = 2/d^2 the fastest mode's stable lr is d^2 / (2 |A_star|), or d^2 / (2 c) where lazy."""
    d = 30.0
    lr = mixed.step_size(d, c, top, lazy=lazy, c_lr=2.0)
    assert np.isclose(lr, mixed.largest_lr(0.0 if lazy else top, c if lazy else 0.0, 2 / d**2), rtol=1e-14)
    assert np.isclose(mixed.step_size(d, c, top, lazy=lazy), lr / 25, rtol=1e-14)
    both = mixed.step_size(d, np.array([0.3, 40.0]), 2.0, lazy=np.array([False, True]))
    assert np.allclose(both, [d**2 / 100, d**2 / 2000], rtol=1e-14)


def test_signals_in_noise():
    """Singular values and overlaps with A_star of a matrix of 400, seen and hidden signals."""
    d, levels = 400, np.array([1.0, 0.3, 0.02])
    problem = ln.low_rank_recovery(jax.random.key(2), d, 3, levels=levels)
    u, s, vt = np.linalg.svd(np.asarray(problem.target))
    value, lost, seen = mixed.spiked_signals(levels, d)
    assert np.allclose(value, s[:3], rtol=0.02)
    assert seen.tolist() == [True, True, False]
    overlaps = np.einsum("ik,ij,kj->k", u[:, :2], np.asarray(problem.truth), vt[:2])
    assert np.allclose(levels[:2] * d - lost[:2], overlaps, rtol=0.02)
    assert lost[2] == levels[2] * d
    late = mixed.recovery_error(1e9, [0.02], d, 1.0, spiked=True)  # all noise is learned, and of the signal nothing
    assert np.isclose(late, 1 + 0.02**2, rtol=1e-9)


def test_phases_and_transition():
    assert mixed.phase(2.25, -1.85) is mixed.Phase.RICH
    assert mixed.phase(2.7, -1.5) is mixed.Phase.LAZY
    assert mixed.phase(0.9, -3.0) is mixed.Phase.UNDERPARAMETRIZED
    assert mixed.phase(2.0, -0.5) is mixed.Phase.INFINITE_NOISE
    assert mixed.transition(2.0) == -1.0  # the corners with the finite-variance line
    assert mixed.transition(1.0, low_rank=False) == -0.5


def test_the_transition_of_a_target_is_where_c_is_its_norm():
    rng = np.random.default_rng(0)
    for target in (rng.normal(size=(7, 4)), np.outer(rng.normal(size=4), rng.normal(size=9)), 1e-3 * np.eye(5)):
        d, gammas = max(target.shape), np.array([1.5, 2.0])
        there = mixed.transition(gammas, target=target)
        assert np.allclose(d ** (there + gammas), np.linalg.norm(target, 2))
        assert np.allclose(jax.jit(lambda x: mixed.transition(2.0, target=x))(target), there[1])
    # what it says of the two kinds of target as d grows is the two lines
    d = 400
    assert np.isclose(mixed.transition(2.0, target=np.outer(*rng.normal(size=(2, d)))), -1, atol=0.02)
    full = float(mixed.transition(2.0, target=rng.normal(size=(d, d)))) - np.log(2) / np.log(d)  # |B| = 2 sqrt d
    assert np.isclose(full, mixed.transition(2.0, low_rank=False), atol=0.02)


@pytest.mark.parametrize("width", [3, 6, 40])
def test_sandwich_holds_along_the_flow(width):
    rng = np.random.default_rng(width)
    problem = ln.problems.logistic(np.sign(rng.normal(size=(3, 4))))
    initial = ln.Weights((rng.normal(size=(width, 4)), rng.normal(size=(3, width))))
    run = ln.simulate(
        problem, initial, ln.optim.GradientFlow(), time=5.0, observe=["matrix", "input_gram", "output_gram"]
    )
    (imbalance,) = initial.imbalance()
    for i in range(0, 201, 25):
        first, second = mixed.sandwich(run["matrix"][i], imbalance)
        for bound, gram in ((first, run["input_gram"][i]), (second, run["output_gram"][i])):
            scale = jnp.max(jnp.abs(gram))
            assert jnp.linalg.eigvalsh(gram - bound.low)[0] > -1e-8 * scale
            assert jnp.linalg.eigvalsh(bound.high - gram)[0] > -1e-8 * scale
    wrong, _ = mixed.sandwich(run["matrix"][-1], 0.1 * imbalance)  # bounds that know too little imbalance fail
    assert jnp.linalg.eigvalsh(wrong.high - run["input_gram"][-1])[0] < 0


def test_theorem_two_quantities():
    """The figures of `mixed/C14`, `mixed/E20` and `mixed/E28`."""
    printed = [
        float(mixed.recovery_error(mixed.recovery([1.0], 2.0, -1.6, d, 1.0, variant="printed").steps, [1.0], d, d**0.4))
        for d in (500, 1e4, 1e6, 1e8, 1e10)
    ]
    assert np.allclose(printed, [0.96, 0.28, 2.4e-3, 1.8e-5, 1.1e-7], rtol=0.03)
    assert np.isclose(mixed.recovery([1.0, 0.9], 2.0, -1.6, 100, 1.0).rate, 0.081)
    equal = mixed.recovery([0.6, 0.6, 0.6], 2.25, -1.85, 400, 8.0)
    assert np.isclose(equal.rate, 0.6 * 0.6**2 / 0.6**2)
    two = [mixed.recovery([1.0], 2.0, -1.6, 100, 1.0, variant=v).steps for v in ("printed", "derived")]
    assert two[0] > two[1]  # Delta = 0.6: max(1, 1.2) against min(1, 1.2)
    d, lr = 400, 8.0
    c = float(d) ** (2.25 - 1.85)
    measured = mixed.mode_time(0.0, 0.5 * 0.6 * d, 0.6 * d, c, 2 / d**2) / lr
    assert 0.5 < measured / mixed.recovery([1.0, 0.8, 0.6], 2.25, -1.85, d, lr).leading_steps < 2
    with pytest.raises(ln.InputError, match="variant"):
        mixed.recovery([1.0], 2.0, -1.6, 100, 1.0, variant="guessed")
    with pytest.raises(ln.InputError, match="levels must be a vector, each entry a finite number greater than 0"):
        mixed.recovery([1.0, 0.0], 2.0, -1.6, 100, 1.0)


def test_mode_model_of_the_test_error_against_a_run(key):
    """At a d that can be run: planted levels, lazy start of exactly zero, the best test error within 10%."""
    d, levels = 150, np.array([1.0, 0.8])
    rng = np.random.default_rng(0)
    u, v = (np.linalg.qr(rng.normal(size=(d, 2)))[0] for _ in range(2))
    truth = (u * levels * d) @ v.T
    noise = rng.normal(size=(d, d))
    c, kappa = 0.05, 2 / d**2
    times = jnp.geomspace(10.0, 20_000.0, 60)
    model = mixed.recovery_error(times, levels, d, c)
    exact = jax.vmap(
        lambda t: jnp.sum((mixed.matrix(t, jnp.zeros((d, d)), truth + noise, c, kappa) - truth) ** 2) / d**2
    )
    true = exact(times[::6])
    assert jnp.max(jnp.abs(model[::6] - true)) < 0.05
    assert float(model[-1]) > 10 * float(jnp.min(model))  # it does turn up again


def test_regions():
    s, levels = np.array([10.0, 6.0, 0.5, 0.1]), [1.0, 0.6]
    assert mixed.in_p1(s, levels, 1.0, 0.3, 5.0, 1.0)
    assert not mixed.in_p1(s, levels, 1.0, 0.45, 5.0, 1.0)  # gap between the signals too small
    assert mixed.in_p1(s, [1.0, 1.0], 1.0, 0.45, 5.0, 1.0)  # equal levels need none
    assert not mixed.in_p1(s, levels, 2.0, 0.3, 5.0, 1.0)
    assert mixed.in_p2(0.01, 100, 1.0, 1.0)
    assert not mixed.in_p2(0.011, 100, 1.0, 1.0)


def test_the_spiked_model_ends_where_it_must():
    """Fully learned, A = A_star + E: the error is |E|^2 / d^2 = 1, up to 1/d^2."""
    for d, levels in ((50, [1.0]), (200, [0.7, 0.5, 0.5])):
        a = np.asarray(levels)
        end = float(mixed.recovery_error(1e9, a, d, 1.0, spiked=True))
        assert abs(end - 1 - (len(a) ** 2 + 3 * np.sum(a**-2)) / d**2) < 1e-9
        initial = float(mixed.recovery_error(0.0, a, d, 1.0, spiked=True, initial=0.25))
        assert abs(initial - np.sum(a**2) - 0.25) < 1e-12  # nothing is learned yet: |A_star|^2 / d^2 and the start


def test_the_spiked_model_against_drawn_matrices():
    """Mean over draws of the error of the mixed flow from A = 0, which stays in the singular vectors of A_star + E."""
    levels = np.array([0.8, 0.5])
    stop = jax.jit(mixed.early_stopping)
    predict = jax.jit(lambda t, d, c: mixed.recovery_error(t, levels, d, c, spiked=True))
    mode = jax.jit(mixed.mode)
    for d, draws in ((60, 30), (180, 10)):
        gaps = []
        for seed in range(draws):
            problem = ln.low_rank_recovery(jax.random.key(seed), d, 2, levels=levels)
            truth = np.asarray(problem.truth)
            u, s, vt = np.linalg.svd(np.asarray(problem.target))
            row = []
            for c in (0.3, 3.0, 30.0):
                best = float(stop(levels, float(d), c).time)
                for time in (0.5 * best, best, 3 * best):
                    learned = np.asarray(mode(time, 0.0, s, c, 2 / d**2))
                    error = np.sum(((u * learned) @ vt - truth) ** 2) / d**2
                    row.append(error / float(predict(time, float(d), c)) - 1)
            gaps.append(row)
        mean, spread = np.mean(gaps, axis=0), np.std(gaps, axis=0, ddof=1) / np.sqrt(draws)
        # nine means each: four standard errors, and the terms of order 1/d^2 that the model leaves out
        assert np.all(np.abs(mean) < 30 / d**2 + 4 * spread), (d, mean, spread)
        assert np.max(spread) < 0.02


def test_early_stopping_is_the_minimum():
    levels = np.array([0.6, 0.4])
    find = jax.jit(mixed.early_stopping)
    predict = jax.jit(lambda t, c, initial: mixed.recovery_error(t, levels, 100.0, c, spiked=True, initial=initial))
    for c, initial in ((0.01, 0.0), (5.0, 0.1), (300.0, 0.5)):
        stop = find(levels, 100.0, c, initial=initial)
        times = np.linspace(0.05, 3, 60) * float(stop.time)
        errors = [float(predict(t, c, initial)) for t in times]
        assert min(errors) >= float(stop.error) * (1 - 1e-4)
        assert abs(times[int(np.argmin(errors))] / float(stop.time) - 1) < 0.06


def test_the_scale_of_a_mode_is_a_constant_of_its_flow_at_any_width():
    problem = ln.factorization([[1.5]])
    for seed, (first, second) in enumerate(((0.3, 0.3), (0.5, 0.0), (1e-3, 0.2), (2.0, 1.0))):
        state = ln.init.gaussian(jax.random.key(seed), problem, 3.0, [first, second])
        w1, w2 = state.layers
        s = float(state.matrix[0, 0])
        c = mixed.mode_scale(jnp.sum(w1**2), jnp.sum(w2**2), s)
        run = ln.simulate(
            problem, state, ln.optim.GradientFlow(rtol=1e-11), time=2.0, record=ln.record.linear(5), observe=["modes"]
        )
        np.testing.assert_allclose(run["modes"][:, 0], mixed.mode(run.times, s, 1.5, c), rtol=1e-8)
    assert mixed.mode_scale(2e-3, 0.0, 0.0) == pytest.approx(1e-3)  # I_gamma
    assert mixed.mode_scale(1.0, 1.0, 1.0) == 0  # balanced


@pytest.mark.parametrize("width", [1, 2, 5])
def test_the_sharpness_of_one_mode(width):
    """Against the dense Hessian of (kappa/2) (x.y - s_star)^2, at the start, on the way and in the end."""
    rng = np.random.default_rng(width)
    for goal, scale in ((1.5, 0.7), (-0.4, 0.7), (2.0, 1e-3), (0.01, 3.0)):
        x, y = scale * rng.normal(size=(2, width))
        loss = lambda w, goal=goal: 0.35 * (w[:width] @ w[width:] - goal) ** 2  # noqa: E731
        s, first, second = float(x @ y), float(x @ x), float(y @ y)
        top = float(np.linalg.eigvalsh(jax.hessian(loss)(jnp.concatenate([x, y])))[-1])
        told = float(mixed.mode_sharpness(s, goal, mixed.mode_scale(first, second, s), 0.7))
        assert told == pytest.approx(top, rel=1e-9)
    way = np.linspace(-0.3, 1.5, 50)
    told = np.asarray(mixed.mode_sharpness(way, 1.5, 0.2, 0.7))
    assert told.max() == max(told[0], told[-1])
    assert told[-1] == pytest.approx(2 / float(mixed.largest_lr(1.5, 0.2, 0.7)))


def test_times_never_pair_with_rows():
    """As many times as rows: each time gets the whole matrix; c and kappa are one number each."""
    rng = np.random.default_rng(3)
    initial, goal = 0.3 * rng.normal(size=(2, 3, 2))
    times = np.array([0.1, 0.7, 2.0])
    for flow in (mixed.matrix, mixed.lazy):
        found = flow(times, initial, goal, 0.2, 1.3)
        one_by_one = [flow(t, initial, goal, 0.2, 1.3) for t in times]
        np.testing.assert_allclose(found, one_by_one, rtol=1e-13, atol=1e-15)
        for wrong in ({"c": np.full(3, 0.2)}, {"kappa": np.full(3, 1.3)}, {"time": -1.0}, {"c": -0.1}, {"c": np.nan}):
            given = {"time": times, "initial": initial, "observed": goal, "c": 0.2, "kappa": 1.3} | wrong
            with pytest.raises(ln.InputError, match=f"{next(iter(wrong))} = "):
                flow(**given)


def test_phase_and_recovery_know_where_they_apply():
    for exponents in ((np.nan, -1.0), (2.0, np.nan), (np.inf, -1.0)):
        with pytest.raises(ln.InputError, match="must be a finite number"):
            mixed.phase(*exponents)
    for exponents, said in (
        ((2.7, -1.5), "lazy phase"),
        ((0.9, -3.0), "underparametrized phase"),
        ((2.0, -0.5), "infinite_noise phase"),
        ((2.5, -1.5), "line between lazy and rich"),
    ):
        with pytest.raises(ln.InputError, match=said):
            mixed.recovery([1.0], *exponents, 100, 1.0)
    assert mixed.recovery([1.0], 2.0, -1.6, 100, 1.0).steps > 0


def two_layer_flow(first, second, goal, time):
    """W_2 W_1 after gradient flow on 1/2 |W_2 W_1 - goal|^2, by Runge-Kutta on all weights."""
    w, d_in = first.shape

    def velocity(_, flat):
        w1, w2 = flat[: w * d_in].reshape(w, d_in), flat[w * d_in :].reshape(-1, w)
        force = goal - w2 @ w1
        return np.concatenate([(w2.T @ force).ravel(), (force @ w1.T).ravel()])

    begin = np.concatenate([first.ravel(), second.ravel()])
    end = solve_ivp(velocity, (0, time), begin, method="DOP853", rtol=1e-12, atol=1e-13).y[:, -1]
    return end[w * d_in :].reshape(-1, w) @ end[: w * d_in].reshape(w, d_in)


@pytest.mark.parametrize("heavy", ["first", "second"])
def test_the_closure_needs_as_many_neurons_as_inputs(heavy):
    """W_1 W_1^T - W_2^T W_2 = 2c I: exact for w = d_in, for fewer neurons only where they see the target's rows."""
    rng = np.random.default_rng(5)
    c, d_in, d_out = 0.4, 4, 3
    for width in (4, 3, 2):
        second = 0.5 * rng.normal(size=(d_out, width))
        values, frame = np.linalg.eigh(2 * c * np.eye(width) + second.T @ second)
        seen = np.linalg.qr(rng.normal(size=(d_in, width)))[0]
        first = (frame * np.sqrt(values)) @ frame.T @ seen.T
        np.testing.assert_allclose(first @ first.T - second.T @ second, 2 * c * np.eye(width), atol=1e-12)
        inside = rng.normal(size=(d_out, width)) @ seen.T
        for goal, exact in ((inside, True), (rng.normal(size=(d_out, d_in)), width == d_in)):
            turned = (second.T, first.T, goal.T) if heavy == "second" else (first, second, goal)
            right = two_layer_flow(*turned, 1.5)
            gap = np.max(np.abs(mixed.matrix(1.5, turned[1] @ turned[0], turned[2], c) - right))
            assert gap < 1e-9 if exact else gap > 0.1, (width, gap)


def test_descent_bound_holds_and_the_printed_one_does_not():
    """F(A) = -sin(A) entry by entry: |F| <= sqrt(entries) and |F'| <= 1; flow and descent side by side."""
    initial = np.array([0.3, 1.2, 2.9])

    def force(a):
        return -np.sin(a)

    for lr in (0.3, 0.01):
        flow = solve_ivp(lambda _, a: force(a), (0, 60 * lr), initial, rtol=1e-12, atol=1e-14, dense_output=True).sol
        now, gaps = initial, []
        for k in range(61):
            gaps.append(np.linalg.norm(flow(k * lr) - now))
            now = now + lr * force(now)
        bound = np.asarray(mixed.descent_bound(np.arange(61), lr, 3**0.5, 1.0))
        assert np.all(gaps <= bound)
        assert bound[1] == pytest.approx(lr / 2 * 3**0.5 * lr)
        printed = np.asarray(mixed.descent_bound(np.arange(61), lr, 3**0.5, 1.0, variant="printed"))
        assert printed[1] == 0 < gaps[1]
        np.testing.assert_allclose(printed[1:], bound[:-1], rtol=1e-12)


def test_pair_rate_is_that_of_the_flow():
    """Singular vectors of a small rotation, turned by the closed form of the whole matrix for a short time."""
    turn, dt = 1e-6, 1e-5

    def rotation(angle):
        return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])

    for a, s, c, kappa in (
        ((2.0, 1.0), (1.5, 0.4), 0.0, 1.0),
        ((2.0, 1.9), (1.5, 0.4), 0.3, 1.7),
        ((0.5, 3.0), (1.5, 0.4), 0.2, 1.0),
        ((1.0, 0.0), (0.9, 0.05), 0.01, 0.3),
    ):
        rates = []
        for sign in (1, -1):  # both frames alike, and against each other
            begin = rotation(turn) @ np.diag(s) @ rotation(sign * turn).T
            end = np.asarray(mixed.matrix(dt, begin, np.diag(a), c, kappa))
            u = np.linalg.svd(end)[0]
            rates.append(-np.log(abs(u[1, 0] / u[0, 0]) / np.tan(turn)) / dt)
        assert float(mixed.pair_rate(a[0], a[1], s[0], s[1], c, kappa)) == pytest.approx(min(rates), rel=1e-3, abs=1e-4)


def test_alignment_rate_counts_the_noise():
    levels = [1.0, 0.9]
    assert mixed.alignment_rate(levels) == pytest.approx(0.1 * 0.81 / 1.0)
    assert mixed.alignment_rate(levels, variant="printed") == pytest.approx(0.1 * 0.81 / 0.19)
    assert mixed.recovery(levels, 2.0, -1.6, 100, 1.0).rate == mixed.alignment_rate(levels)
    with pytest.raises(ln.InputError, match="two levels must differ"):
        mixed.alignment_rate([1.0], variant="printed")


def test_the_right_hand_side_of_lemma_a4():
    rng = np.random.default_rng(4)
    target, size = np.diag([3.0, 3.0, 2.0, 0.5, 0.0]), 1e-3
    x = target + size * rng.normal(size=target.shape)
    spectral, frobenius = (np.linalg.norm(x, order) + np.linalg.norm(target, order) for order in (2, None))
    distance = np.linalg.norm(x - target, 2)
    # two blocks of signal, (3, 3) and (2); the smaller gap of squares is 2^2 - 0.5^2
    quotient = 2 * min(np.sqrt(3) * spectral, frobenius) / (2**2 - 0.5**2)
    expected = 3 * distance / 2 + 2 * (3 / 2) * quotient**2 * distance**2
    assert mixed.misalignment_bound(x, target, 3) == pytest.approx(expected, rel=1e-12)
    turns = [np.linalg.qr(rng.normal(size=(5, 5)))[0] for _ in range(2)]
    turned = [turns[0] @ m @ turns[1] for m in (x, target)]
    assert mixed.misalignment_bound(*turned, 3) == pytest.approx(expected, rel=1e-9)
    with pytest.raises(ln.InputError, match="singular values 1 and 2 of target are equal"):
        mixed.misalignment_bound(x, target, 1)
