"""Averages at the edge of stability: against 60 digits, cycles of polynomials, descent, and all batches."""

from itertools import combinations, permutations, product

import mpmath as mp
import numpy as np
import pytest

import linnet as ln
from linnet import maps
from linnet.theory import flows, optimizers

DEPTHS, KAPPAS = (2, 3, 4, 7), (2.001, 2.1, 2.45)


def exact(depth, kappa):
    """Mean, variance, and mean loss of the 2-cycle, from the map iterated twice."""
    k = mp.mpf(kappa)

    def step(x):
        return x + k / depth * (1 - x**depth) * x ** (depth - 1)

    low = mp.findroot(lambda x: step(step(x)) - x, mp.mpf(float(maps.two_cycle(depth, kappa).low)))
    high = step(low)
    return (low + high) / 2, ((high - low) / 2) ** 2, ((1 - low**depth) ** 2 + (1 - high**depth) ** 2) / 4


def resting(depth, kappa, corrected):
    """Where f' + f''' v/2 = 0 at the threshold, with derivatives of the loss taken by mpmath."""
    goal = 2 * depth**2 / mp.mpf(kappa)

    def f(x):
        return (1 - x**depth) ** 2 / 2

    def variance(x):
        return -2 * mp.diff(f, x) / mp.diff(f, x, 3)

    def miss(x):
        return mp.diff(f, x, 2) + corrected * mp.diff(f, x, 4) * variance(x) / 6 - goal

    x = mp.findroot(miss, mp.mpf(float(flows.central_mode(depth, kappa, corrected=corrected).center)))
    v = variance(x)
    return x, v, f(x) + mp.diff(f, x, 2) * v / 2 + corrected * mp.diff(f, x, 4) * v**2 / 24


@pytest.mark.parametrize("depth", DEPTHS)
def test_one_mode_against_sixty_digits(depth):
    with mp.workdps(60):
        for kappa in KAPPAS:
            for found, right in (
                (flows.exact_mode(depth, kappa), exact(depth, kappa)),
                (flows.central_mode(depth, kappa), resting(depth, kappa, False)),
                (flows.central_mode(depth, kappa, corrected=True), resting(depth, kappa, True)),
            ):
                np.testing.assert_allclose([float(x) for x in found], [float(x) for x in right], rtol=1e-9)


def test_one_mode_has_no_oscillation_below_the_edge_and_no_correction_far_beyond():
    for mode in (flows.exact_mode, flows.central_mode):
        rest = mode(3, [0.5, 2.0])
        np.testing.assert_array_equal(rest, [[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]])
    assert np.isnan(flows.central_mode(3, 4.1, corrected=True)).all()
    assert np.isfinite(flows.central_mode(3, 4.1)).all()
    x = flows.central_mode(2, np.array([2.2, 3.0])).center
    np.testing.assert_allclose(x**2, (1 + 4 / np.array([2.2, 3.0])) / 3, rtol=1e-14)


def test_ratio_of_one_mode_is_the_general_law():
    """With the derivatives of the loss at the minimum, which mpmath takes."""
    for depth in DEPTHS:
        second, third, fourth = (float(mp.diff(lambda x: (1 - x**depth) ** 2 / 2, 1, k)) for k in (2, 3, 4))  # noqa: B023
        ratio = float(flows.central_ratio(third**2 / second, fourth))
        assert flows.mode_ratio(depth) == pytest.approx(ratio, rel=1e-12)
        near = flows.central_mode(depth, 2 + 1e-6).variance / flows.exact_mode(depth, 2 + 1e-6).variance
        assert near == pytest.approx(ratio, rel=1e-5)
    assert flows.mode_ratio(2) == pytest.approx(8 / 9, rel=1e-15)


@pytest.mark.parametrize("seed", range(3))
def test_variance_of_two_cycles_of_polynomials(seed):
    """A random cost of degree four around an isolated minimum: the error halves with the excess."""
    rng = np.random.default_rng(seed)
    h = np.diag([1.0, 0.4, 0.7])
    third = symmetric(rng.normal(size=(3, 3, 3)))
    fourth = 0.3 * symmetric(rng.normal(size=(3, 3, 3, 3)))
    cubic, quartic = third[0, 0] @ np.linalg.solve(h, third[0, 0]), fourth[0, 0, 0, 0]

    def gradient(w):
        return h @ w + np.einsum("ijk,j,k->i", third, w, w) / 2 + np.einsum("ijkl,j,k,l->i", fourth, w, w, w) / 6

    def hessian(w):
        return h + third @ w + fourth @ w @ w / 2

    errors = []
    for excess in (2e-4, 1e-4):
        lr = 2 / (1 - excess)
        predicted = float(flows.two_cycle_variance(1.0, lr, cubic, quartic))

        z = np.concatenate([-predicted / 2 * np.linalg.solve(h, third[0, 0]), [np.sqrt(predicted), 0, 0]])
        for _ in range(20):  # Newton for g+ + g- = 0 and D = lr/4 (g+ - g-)
            (plus, minus), (up, down) = ([f(z[:3] + z[3:]), f(z[:3] - z[3:])] for f in (gradient, hessian))
            miss = np.concatenate([plus + minus, z[3:] - lr / 4 * (plus - minus)])
            slope = np.block([[up + down, up - down], [lr / 4 * (down - up), np.eye(3) - lr / 4 * (up + down)]])
            z = z - np.linalg.solve(slope, miss)
        w = z[:3] - z[3:]
        np.testing.assert_allclose(w - lr * gradient(w), z[:3] + z[3:], atol=1e-12)  # a step of descent
        errors.append(np.sum(z[3:] ** 2) / predicted - 1)
    assert abs(errors[1]) < 0.02
    assert errors[0] / errors[1] == pytest.approx(2, abs=0.2)


def symmetric(tensor):
    return np.mean([tensor.transpose(order) for order in permutations(range(tensor.ndim))], axis=0)


def test_two_cycle_variance_where_there_is_none():
    assert flows.two_cycle_variance(1.0, 1.9, 2.0, 0.1) == 0
    assert np.isnan(flows.two_cycle_variance(1.0, 2.1, 1.0, 3.0))
    assert flows.central_ratio(1e9, 5.0) == pytest.approx(1, abs=1e-8)


def test_catapult_on_the_hyperbola():
    """(xy - 1)^2 / 2 by its own descent: the sum of the excess at both ends is of second order."""
    lr, sums = 0.3, []
    for share in (0.02, 0.01):
        sharp = 2 / lr * (1 + share)
        x = np.sqrt((sharp + np.sqrt(sharp**2 - 4)) / 2)
        slope = (2 * x - 2 / x**3) ** 2 / (1 + x**-4)  # |dS/dx|^2 along (x, 1/x)
        w, peak = np.array([x + 1e-7, 1 / x]), 0.0
        for _ in range(20_000):
            middle = w
            w = w - lr * (w[0] * w[1] - 1) * w[::-1]
            peak = max(peak, float(np.sum((w - middle) ** 2)) / 4)
        law = flows.catapult(share * 2 / lr, slope)
        sums.append((np.sum(w**2) - 2 / lr) - float(law.final))
        assert peak == pytest.approx(float(law.peak), rel=4 * share)
    assert abs(sums[1]) < 0.05 * 0.01 * 2 / lr
    assert sums[0] / sums[1] == pytest.approx(4, rel=0.2)


def test_catapult_counts_the_amplitude_of_the_start():
    moved = flows.catapult(0.3, 2.0, 0.1)
    along = flows.catapult(np.sqrt(0.3**2 + 0.1), 2.0)
    assert moved.final == pytest.approx(float(along.final), rel=1e-14)
    assert moved.peak == pytest.approx(float(along.peak), rel=1e-14)
    assert flows.catapult(-0.3, 2.0, 0.1).peak == 0.1  # it only shrinks


# Batches --------------------------------------------------------------------------------------------------------------


def batches(n, size, replacement):
    return list(product(range(n), repeat=size) if replacement else combinations(range(n), size))


def drawn_hessians(n, d, seed=0, rank=1):
    x = np.random.default_rng(seed).normal(size=(n, d, rank))
    return x @ x.swapaxes(1, 2)


CASES = [
    (5, 1, False),
    (5, 2, False),
    (5, 3, False),
    (5, 5, False),
    (2, 1, False),
    (3, 1, True),
    (3, 2, True),
    (3, 4, True),
]


@pytest.mark.parametrize(("n", "size", "replacement"), CASES)
def test_ratios_against_all_batches(n, size, replacement):
    h = drawn_hessians(n, 3, rank=2)
    root = np.random.default_rng(1).normal(size=(3, 3))
    x = root @ root.T
    means = [h[list(rows)].mean(axis=0) for rows in batches(n, size, replacement)]
    first, second, third = (np.mean([np.trace(np.linalg.matrix_power(m, k) @ x) for m in means]) for k in (1, 2, 3))
    found = flows.batch_ratios(h, x, size, replacement=replacement)
    np.testing.assert_allclose(found[:2], [second / first, third / second], rtol=1e-12)
    assert found.batch_sharpness >= found.mean_square - 1e-12
    assert found.sharpness == pytest.approx(np.linalg.eigvalsh(h.mean(axis=0))[-1], rel=1e-12)


@pytest.mark.parametrize(("n", "size", "replacement"), CASES)
def test_mean_square_edge_against_all_batches(n, size, replacement):
    h = drawn_hessians(n, 3)
    edge = flows.mean_square_edge(h, size, replacement=replacement)
    steps = [np.eye(3) - edge.lr * h[list(rows)].mean(axis=0) for rows in batches(n, size, replacement)]
    moved = np.mean([step @ edge.covariance @ step for step in steps], axis=0)
    np.testing.assert_allclose(moved, edge.covariance, atol=1e-12)
    assert np.trace(edge.covariance) == pytest.approx(1, rel=1e-12)
    assert np.linalg.eigvalsh(edge.covariance)[0] > -1e-12
    ratios = flows.batch_ratios(h, edge.covariance, size, replacement=replacement)
    assert ratios.mean_square == pytest.approx(2 / edge.lr, rel=1e-11)


def test_mean_square_edge_leaves_out_flat_directions():
    h = np.zeros((6, 4, 4))
    h[:, :3, :3] = drawn_hessians(6, 3)
    edge = flows.mean_square_edge(h, 2)
    assert edge.lr == pytest.approx(optimizers.largest_batch_lr(h, 2), rel=1e-14)
    assert np.max(np.abs(edge.covariance[3])) == 0


@pytest.mark.parametrize(("n", "size", "replacement"), [case for case in CASES if case[1] < case[0] or case[2]])
def test_stationary_covariance_against_all_batches(n, size, replacement):
    h, xi = drawn_hessians(n, 2, rank=2), np.random.default_rng(2).normal(size=(n, 2))
    lr = 0.4 * optimizers.largest_batch_lr(h, size, replacement=replacement)
    found = flows.stationary(h, xi, size, lr, replacement=replacement)
    xi = xi - xi.mean(axis=0)
    x, gradients = np.zeros((2, 2)), np.zeros((2, 2))
    for rows in batches(n, size, replacement):
        hessian, noise = h[list(rows)].mean(axis=0), xi[list(rows)].mean(axis=0)
        step = np.eye(2) - lr * hessian
        x += step @ found.covariance @ step + lr**2 * np.outer(noise, noise)
        gradients += hessian @ found.covariance @ hessian + np.outer(noise, noise)
    count, whole = len(batches(n, size, replacement)), h.mean(axis=0)
    np.testing.assert_allclose(x / count, found.covariance, rtol=1e-11, atol=1e-13)
    ratio = np.trace(whole @ gradients) / count / np.trace(whole @ whole @ found.covariance)
    assert found.interaction == pytest.approx(ratio, rel=1e-10)
    assert found.interaction == pytest.approx(2 / lr, rel=1e-9)


def test_what_batches_refuse():
    h = drawn_hessians(4, 2, rank=2)
    with pytest.raises(ln.InputError, match="beyond the mean-square edge"):
        flows.stationary(h, np.ones((4, 2)), 1, 10.0)
    with pytest.raises(ln.InputError, match="nothing is stationary"):
        flows.stationary(drawn_hessians(1, 2), np.ones((1, 2)), 1, 0.01)
    with pytest.raises(ln.InputError, match="at most 40"):
        flows.mean_square_edge(np.eye(41)[None], 1)
    with pytest.raises(ln.InputError, match="covariance must be a symmetric 2 x 2"):
        flows.batch_ratios(h, np.eye(3), 1)
    assert np.isnan(flows.stationary(h, np.ones((4, 2)), 1, 0.01).interaction)


def test_sharpness_gap_balances_noise_and_is_offered_where_it_is_small():
    """The squared amplitude of x <- (1 - eta h) x - eta xi, curvature and gradient of a batch drawn each step."""
    lr, beta, noise, alpha, spread = 0.1, 3.0, 0.4, 30.0, 1.5
    gap, amplitude = float(flows.sharpness_gap(lr, beta, noise, alpha, spread)), 2 * alpha / beta
    kept = ((1 - lr * (2 / lr - gap)) ** 2 + lr**2 * spread) * amplitude + lr**2 * noise
    assert kept == pytest.approx(amplitude, rel=2 * (lr * gap) ** 2)
    assert 0.003 < gap * lr / 2 < flows.LARGEST_GAP
    assert np.isnan(flows.sharpness_gap(lr, beta, 0.0, alpha, 2 * 0.031 * 2 / lr**2))
    assert np.isfinite(flows.sharpness_gap(lr, beta, 0.0, alpha, 2 * 0.029 * 2 / lr**2))
