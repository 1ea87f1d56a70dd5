"""What becomes of modes from a start: against their chains, iterated in plain NumPy."""

import math

import numpy as np
import pytest

from linnet.theory import mode_fate, stability
from linnet.theory.mode_fate import CrossState, Fate, Outcome


def asked(s, depth, kappa, alpha, initial="one-zero"):
    """Fates, points and the steps to leave the start, for a step with this kappa of the first mode."""
    s = np.asarray(s, dtype=float)
    lr = kappa / float(stability.curvature(s[0], depth))
    escape = mode_fate.escape_steps(s, alpha, depth, initial, lr)
    fates, points = mode_fate.mode_fates(s, depth, lr * stability.curvature(s, depth), alpha, initial, escape)
    return fates, points, escape, lr


def test_the_worst_of_several():
    rest, two, chaos, gone = (
        Outcome(fate, period)
        for fate, period in ((Fate.CONVERGES, 1), (Fate.CYCLE, 2), (Fate.CHAOS, None), (Fate.DIVERGES, None))
    )
    assert mode_fate.worst([rest, rest]) == rest
    assert mode_fate.worst([rest, two, chaos]) == two
    assert mode_fate.worst(iter([two, gone])) == gone
    assert str(mode_fate.worst([rest, two])) == "period 2"


@pytest.mark.parametrize("initial", ["one-zero", "balanced"])
@pytest.mark.parametrize("depth", [2, 3, 4])
def test_orbits_are_those_of_the_chain(depth, initial):
    s, alpha = np.array([5.0, 2.0]), 0.3
    for kappa in (1.5, 2.2, 2.53):
        fates, points, _, lr = asked(s, depth, kappa, alpha, initial)
        x, y = (alpha if initial == "balanced" else 0.0) * np.ones(2), np.full(2, alpha)
        seen = []
        for k in range(6000):
            r = lr * (s - x * y ** (depth - 1))
            x, y = x + r * y ** (depth - 1), y + r * x * y ** (depth - 2)
            seen += [x * y ** (depth - 1)] if k >= 5936 else []
        for i, mode in enumerate(fates):
            low, high = np.min(seen, axis=0)[i], np.max(seen, axis=0)[i]
            assert (mode.low, mode.high) == pytest.approx((low, high), rel=1e-8)
            assert mode.kappa == pytest.approx(lr * mode.curvature)
        assert fates[1].outcome == Outcome(Fate.CONVERGES, 1)
        # the points are layer values of the same orbit
        product = points[:, 0] ** (depth - 1) * points[:, 1]
        assert product.min(axis=0) == pytest.approx([mode.low for mode in fates], rel=1e-8)
        assert product.max(axis=0) == pytest.approx([mode.high for mode in fates], rel=1e-8)


def test_no_mode_can_mix_alone():
    fates, points, escape, lr = asked([5.0], 3, 2.2, 0.3)
    assert mode_fate.cross_fate(np.array([5.0]), 3, lr, points, fates, escape, 0.3, null=False) is None
    beside = mode_fate.cross_fate(np.array([5.0]), 3, lr, points, fates, escape, 0.3, null=True)
    assert beside.pair == (1, None)
    assert math.isnan(beside.orbit_lr)
    fates, points, escape, lr = asked([5.0, 4.0], 1, 1.5, 0.3)
    assert mode_fate.cross_fate(np.array([5.0, 4.0]), 1, lr, points, fates, escape, 0.3, null=False) is None


def test_growth_across_an_orbit_without_a_period():
    """In chaos the rate is a mean: compared with the growth of a small cross entry in plain descent of matrices."""
    s, depth, alpha = np.array([5.0, 4.6]), 2, 0.3
    fates, points, escape, lr = asked(s, depth, 3.0, alpha)
    found = mode_fate.cross_fate(s, depth, lr, points, fates, escape, alpha, null=False)
    assert fates[0].fate is Fate.CHAOS
    assert found.state is CrossState.UNSTABLE
    size, along = 1e-8, np.eye(2)
    w, v, rates = np.array([[1.9, size], [0, 2.0]]), np.diag([1.9, 2.0]), []
    for _ in range(4000):
        miss = v @ w - np.diag(s)
        w, v = w - lr * v.T @ miss, v - lr * miss @ w.T
        grown = math.hypot(w[0, 1], w[1, 0], v[0, 1], v[1, 0]) / size
        rates.append(math.log(grown))
        w, v = (m * along + m * (1 - along) / grown for m in (w, v))  # small again
    assert found.growth == pytest.approx(np.mean(rates[1000:]), rel=0.2)


def test_what_is_left_of_a_gap():
    s, depth, alpha = np.array([5.0, 2.0]), 4, 0.2
    lr = 1.7 / float(stability.curvature(5.0, depth))
    kappas = lr * stability.curvature(s, depth)
    x, y = np.zeros(2), np.full(2, alpha)
    for _ in range(20_000):
        r = lr * (s - x * y**3)
        x, y = x + r * y**3, y + r * x * y**2
    left = mode_fate.gaps_left(s, depth, kappas, alpha)
    assert left == pytest.approx(list((y**2 - x**2) / alpha**2), rel=1e-9)
    assert mode_fate.gaps_left(s, depth, 1.3 * kappas, alpha)[0] is None
    assert mode_fate.gaps_left(s, depth, 100 * kappas, alpha) == [None, None]  # beyond all numbers
