"""The dynamical-systems room against closed forms, high precision and plain loops."""

import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

import linnet as ln
from linnet import maps
from linnet.maps.root import crossing


def logistic(x, r):
    return r * x * (1 - x)


def test_orbits_equal_a_plain_loop():
    kappas = np.linspace(1.5, 2.6, 7)
    run = maps.orbits(maps.balanced(3), 0.9, kappas, skip=37, keep=11)
    x, seen = np.full(7, 0.9), []
    for count in range(48):
        if count >= 37:
            seen.append(x)
        x = x + kappas / 3 * (1 - x**3) * x**2
    assert np.max(np.abs(np.asarray(run.values) - np.array(seen).T)) < 1e-12
    assert np.all(np.asarray(run.escaped) == -1)


def test_one_zero_from_equal_layers_is_balanced_and_descent_on_the_chain():
    kappas = np.array([1.7, 2.3])
    pair = maps.orbits(maps.one_zero(4), np.array([[0.9, 0.9]]), kappas, skip=50, keep=3)
    one = maps.orbits(maps.balanced(4), 0.9, kappas, skip=50, keep=3)
    assert np.max(np.abs(np.asarray(pair.values) - np.asarray(one.values)[..., None])) < 1e-12
    initializations = np.array([[0.2, 0.7]])
    pair = maps.orbits(maps.one_zero(4), initializations, kappas, skip=6, keep=3)
    chain = maps.descent(chain_of_four)
    full = maps.orbits(chain, np.array([[0.7, 0.7, 0.7, 0.2]]), kappas / 4, skip=6, keep=3)
    assert np.max(np.abs(np.asarray(full.values)[..., [3, 0]] - np.asarray(pair.values))) < 1e-13


def chain_of_four(y):
    return (jnp.prod(y) - 1) ** 2 / 2


def test_divergence_has_a_step_and_no_nan():
    run = maps.orbits(maps.balanced(3), 0.9, [2.2, 50.0, 1e300], skip=60, keep=130)
    assert list(np.asarray(run.diverged)) == [False, True, True]
    x, step = 0.9, 0
    while abs(x) <= 1e3:
        x, step = x + 50 / 3 * (1 - x**3) * x**2, step + 1
    assert int(run.escaped[1]) == step
    assert np.all(np.isfinite(np.asarray(run.values)))
    assert maps.label(maps.period(run)) == ["period 2", "diverged", "diverged"]
    exponents = maps.lyapunov(maps.balanced(3), 0.9, [2.2, 50.0], skip=10, steps=100)
    assert np.isinf(exponents.exponent[1])
    assert int(exponents.escaped[1]) == step


def test_periods():
    run = maps.orbits(maps.balanced(3), 0.9, [1.9, 2.2, 2.52, 2.615, 2.629, 2.66], skip=20_000, keep=200)
    assert list(maps.period(run)) == [1, 2, 4, 8, 16, 0]
    with pytest.raises(ln.InputError, match="keep = 200 is not enough for periods up to 128: keep at least 256"):
        maps.period(run, most=128)
    window = maps.orbits(logistic, 0.3, [3.83], skip=5000, keep=200)
    assert list(maps.period(window)) == [3]


def exact_cycle(depth, kappa):
    """The 2-cycle from its polynomial in high precision: G(rho) = rho^L (1+w^{2L-1})/(1+w^{L-1}) - 1 = 0."""
    k = mp.mpf(float(kappa))

    def g(x):
        w = 1 + k / depth * (1 - x**depth) * x ** (depth - 2)
        return x**depth * (1 + w ** (2 * depth - 1)) / (1 + w ** (depth - 1)) - 1

    # the trivial root is 1; the low point lies below it by about the square-root law
    guess = 1 - mp.sqrt(3 * (k - 2) / ((depth - 1) * (5 * depth - 4))) / 2
    low = mp.findroot(lambda x: g(x) / (1 - x), (guess, guess * (1 - mp.mpf("1e-3") * (1 - guess))))
    return low, low + k / depth * (1 - low**depth) * low ** (depth - 1)


def test_two_cycles_against_high_precision_iteration_and_closed_form():
    depths = np.arange(2, 51)
    low, high = np.full(49, 2.1), np.full(49, 3.0)  # kappa_4, where the multiplier passes -1, by bisection
    for _ in range(60):
        middle = (low + high) / 2
        stable = maps.two_cycle(depths, middle).multiplier > -1
        low, high = np.where(stable, middle, low), np.where(stable, high, middle)
    last = low
    assert abs(last[0] - 2 * (np.sqrt(5) - 1)) < 1e-12
    assert abs(last[1] - 2.489215) < 1e-6
    with mp.workdps(40):
        for kappa in (2 + 1e-12, 2 + 1e-6, 2.001, 2.1):
            found = maps.two_cycle(depths, kappa)
            for i in (0, 1, 2, 8, 23, 48):
                low, high = exact_cycle(int(depths[i]), kappa)
                assert low < 1 < high
                assert abs(mp.mpf(float(found.low[i])) - low) < 1e-14
                assert abs(mp.mpf(float(found.high[i])) - high) < 1e-14
                assert abs(mp.mpf(float(found.ratio[i])) - high / low) < 1e-14
    for kappa in (2 + 1e-6, 2.01, 2.3, last):
        found = maps.two_cycle(depths, kappa)
        low, high = found.low, found.high
        step = lambda x, k=kappa: x + k / depths * (1 - x**depths) * x ** (depths - 1)  # noqa: E731
        assert np.max(np.abs(step(low) - high)) < 1e-12
        assert np.max(np.abs(step(high) - low)) < 1e-12
    for depth in (2, 3, 7, 50):  # and where iteration itself goes
        kappas = np.linspace(2.01, last[depth - 2] - 0.01, 40)
        run = maps.orbits(maps.balanced(depth), 0.9, kappas, skip=20_000, keep=2)
        ends = np.sort(np.asarray(run.values), axis=1)
        found = maps.two_cycle(depth, kappas)
        assert np.max(np.abs(ends - np.stack([found.low, found.high], axis=1))) < 1e-12
    mu = np.array([1.01, 1.2, 3.0, 1e4])
    found = maps.two_cycle(2, 2 * mu)
    assert np.allclose(found.low, (np.sqrt(1 + 3 / mu) - np.sqrt(1 - 1 / mu)) / 2, rtol=1e-9, atol=1e-13)
    assert np.allclose(found.multiplier, 9 - 2 * (1 + mu) ** 2, rtol=1e-12)
    assert np.allclose(found.ratio + 1 / found.ratio, 1 + mu, rtol=1e-13)


def test_no_two_cycle_at_or_below_the_edge():
    found = maps.two_cycle(3, [1.5, 2.0])
    assert list(np.asarray(found.low)) == [1.0, 1.0]
    assert np.allclose(found.multiplier, [0.25, 1.0])


def test_multipliers_and_newton_on_cycles():
    kappa = 2.55
    found = maps.two_cycle(4, kappa)  # unstable: iteration would not stay there
    points = maps.cycle(maps.balanced(4), float(found.low) + 1e-3, kappa, 2)
    assert np.max(np.abs(np.asarray(points) - [found.low, found.high])) < 1e-13
    assert abs(maps.multiplier(maps.balanced(4), points, kappa) - found.multiplier) < 1e-11
    assert found.multiplier < -1
    # logistic map: multiplier of the fixed point 2 - r, of the 2-cycle 4 + 2r - r^2
    (fixed,) = maps.cycle(logistic, 0.7, 3.3, 1)
    assert abs(fixed - (1 - 1 / 3.3)) < 1e-14
    both = maps.cycle(logistic, 0.48, 3.3, 2)
    assert abs(maps.multiplier(logistic, both, 3.3) - (4 + 2 * 3.3 - 3.3**2)) < 1e-12
    with pytest.raises(ln.InputError, match="leads to no cycle of period 1"):
        maps.cycle(lambda x, q: x + 1 + x**2, 0.5, 2.0, 1)


def test_the_logistic_cascade():
    found = maps.cascade(logistic, 0.4, 1.8, 9)
    assert np.allclose(found.thresholds[:3], [3, 1 + np.sqrt(6), 3.5440903595519228], rtol=1e-12)
    assert np.allclose(found.superstable[:2], [2, 1 + np.sqrt(5)], rtol=1e-12)
    assert abs(found.accumulation - 3.5699456718709449) < 1e-9
    assert abs(found.ratios[-1] - 4.669201609) < 1e-4
    for monotone in (lambda x, q: q + x + x**3, lambda x, q: q + x):  # no critical point, no doubling
        with pytest.raises(ln.InputError, match="no cycle of period 1 with multiplier 0"):
            maps.cascade(monotone, 0.5, 1.0, 3)


def test_the_limit_of_infinite_depth():
    """u = L log x turns the balanced map into the exponential one as L grows."""
    limit = maps.cascade(maps.exponential, 0.0, 1.0, 4)
    gaps = [
        np.abs(maps.cascade(maps.balanced(depth), 1.0, 1.0, 4).thresholds - limit.thresholds)[1:] for depth in (20, 40)
    ]
    assert np.all(gaps[1] < 0.6 * gaps[0])
    assert np.max(gaps[1]) < 1e-2


def test_lyapunov_exponents():
    # r = 4: log 2; a stable 2-cycle: half the logarithm of its multiplier
    assert abs(float(maps.lyapunov(logistic, 0.3, [4.0], skip=100, steps=400_000).exponent[0]) - np.log(2)) < 2e-3
    found = maps.two_cycle(3, 2.2)
    measured = maps.lyapunov(maps.balanced(3), 0.9, [2.2, 2.45, 2.5, 2.65], skip=2000, steps=100_000).exponent
    assert abs(float(measured[0]) - np.log(abs(float(found.multiplier))) / 2) < 1e-9
    assert np.allclose(measured, [-0.823, -0.089, -0.050, 0.119], atol=2e-3)
    edge = maps.lyapunov(maps.balanced(2), 0.9, [4.0], skip=10, steps=100_000).exponent[0]
    assert abs(float(edge) - np.log(3)) < 0.01
    # a linear map of two numbers: the largest modulus
    linear = np.array([[0.5, 0.3], [0.0, 0.9]])
    found = maps.lyapunov(lambda x, q: q * (jnp.asarray(linear) @ x), [[1.0, 1.0]], [1.0], skip=0, steps=2000)
    assert abs(float(found.exponent[0]) - np.log(0.9)) < 2e-3


def test_floquet_multipliers():
    rng = np.random.default_rng(0)
    steps = rng.normal(size=(3, 5, 4, 4))
    found = maps.floquet(steps)
    for i in range(5):
        values = np.linalg.eigvals(steps[2, i] @ steps[1, i] @ steps[0, i])
        assert np.allclose(np.sort_complex(found[i]), np.sort_complex(values))
        assert np.all(np.diff(np.abs(found[i])) <= 1e-12)
    assert np.allclose(maps.free([1 + 1e-12, 0.3, -2.0, 1 + 0.1j], 1), [-2.0, 1 + 0.1j, 0.3])


def test_bad_input():
    for call, match in (
        (lambda: maps.balanced(0), "depth = 0"),
        (lambda: maps.one_zero(1), "depth = 1"),
        (lambda: maps.two_cycle(1, 2.1), "depth = 1"),
        (lambda: maps.two_cycle([2, 2.5], 2.1), "whole depths"),
        (lambda: maps.two_cycle(3, -1.0), "kappa = -1.0"),
        (lambda: maps.two_cycle(3, [np.nan]), "NaN"),
        (lambda: maps.orbits(logistic, 0.3, [], skip=1, keep=1), "must not be empty"),
        (lambda: maps.orbits(logistic, [0.3, 0.4], [3.0, 3.1, 3.2], skip=1, keep=1), "1 entry or 3"),
        (lambda: maps.orbits(logistic, 0.3, [3.0], skip=-1, keep=1), "skip = -1"),
        (lambda: maps.orbits(logistic, 0.3, [3.0], skip=1, keep=0), "keep = 0"),
        (lambda: maps.lyapunov(logistic, 0.3, [3.0], skip=0, steps=0), "steps = 0"),
        (lambda: maps.cascade(logistic, 0.4, 1.8, 40), "doublings = 40"),
        (lambda: maps.floquet(np.eye(3)), "must be \\(period"),
        (lambda: maps.floquet(np.full((2, 2, 2), np.nan)), "NaN"),
        (lambda: maps.free([1.0, 2.0], 3), "neutral = 3"),
    ):
        with pytest.raises(ln.InputError, match=match):
            call()


@pytest.mark.parametrize("shape", [lambda x: x, np.expm1, np.arctan, lambda x: np.tanh(50 * x), np.sign])
def test_a_crossing_is_found_to_the_last_digits(shape):
    """Straight, bent, flat at both ends, steep and broken functions, from brackets of any size."""
    rng = np.random.default_rng(0)
    for root, width in zip(
        rng.normal(size=50) * 10 ** rng.uniform(-3, 3, 50), 10 ** rng.uniform(-2, 2, 50), strict=True
    ):
        low, high = root - width * rng.uniform(0.01, 2), root + width * rng.uniform(0.01, 2)
        calls = []

        def function(x, root=root, width=width, calls=calls):
            calls.append(x)
            return -shape((x - root) / width)

        found = crossing(function, low, high)
        assert abs(found - root) <= 4 * np.finfo(float).eps * abs(root)
        assert len(calls) < 100  # halving all the way takes sixty


def test_a_crossing_may_lie_at_an_end_and_must_be_there():
    assert crossing(lambda x: x - 3, 1, 3) == 3
    assert crossing(lambda x: x - 1, 1, 3) == 1
    assert abs(crossing(lambda x: x**3 - 8, 0, 5, tolerance=1e-3) - 2) < 1e-3
    for bad in (lambda x: x**2 + 1, lambda x: np.nan):
        with pytest.raises(ValueError, match="it must change its sign"):
            crossing(bad, -1, 2)
