import math

import numpy as np
import pytest

import linnet as ln
from linnet.curves import crossing, first_record, last_crossing, powers


def test_the_first_record_of_each_run():
    assert first_record(np.array([[False, True, True], [False, False, False], [True, False, True]])).tolist() == [
        1,
        -1,
        0,
    ]


@pytest.mark.parametrize(("between", "error"), [("spline", 1e-6), ("line", 2e-3), ("records", 0.06)])
def test_when_a_curve_rises_through_a_level(between, error):
    clock = np.concatenate([[0.0], np.geomspace(0.01, 100, 200)])
    curve = 1 - np.exp(-clock)
    for level in (0.1, 0.5, 0.99):
        found = crossing(clock, curve, level, between)
        assert found == pytest.approx(-math.log1p(-level), rel=error)
        assert found != pytest.approx(-math.log1p(-level), rel=error / 1e4)


def test_what_is_there_from_the_beginning_and_what_never_comes():
    clock, curve = np.arange(4.0), np.array([0.5, 0.2, 0.7, 0.9])
    assert crossing(clock, curve, 0.5) == 0.0
    assert math.isnan(crossing(clock, curve, 1.0))
    assert crossing(clock, curve, 0.6, "records") == 2.0
    assert crossing(clock, np.array([0.0, 0.4, 0.8, 1.0]), 0.2) == pytest.approx(0.5)  # on a line out of time 0
    assert crossing(clock, np.array([0.0, math.nan, 0.8, 1.0]), 0.2) == 2.0


def test_last_crossings():
    """A curve that comes back: the last time it rises counts, on the line between its own two records."""
    clock, curve = np.arange(6.0), np.array([0.0, 0.8, 0.2, 0.6, 0.55, 0.9])
    assert last_crossing(clock, curve, 0.5) == pytest.approx(2.75)
    assert last_crossing(clock, curve, 0.7) == pytest.approx(4 + 0.15 / 0.35)
    assert last_crossing(clock, curve, -1.0) == 0.0
    assert math.isnan(last_crossing(clock, curve, 0.95))
    assert math.isnan(last_crossing(clock[:3], curve[:3], 0.5))


def test_the_clocks_of_a_curve():
    step = np.arange(512 + 64)
    trend, fast, slow = 1e-3 * step, (-1.0) ** step, np.sin(2 * np.pi * step / 64)
    frequency, share = powers(trend + 2 * fast)
    assert frequency[-1] == 0.5
    assert len(frequency) == 257
    assert share[-1] == pytest.approx(1.0, abs=1e-12)  # a line is taken off whole
    assert 1 / frequency[np.argmax(powers(slow)[1])] == pytest.approx(64)
    both = powers(np.stack([slow, 3 * fast]))[1]  # each with its own power: a sine has half of its squared height
    assert both[-1] == pytest.approx(9 / (9 + 0.5), rel=5e-3)
    assert both.sum() == pytest.approx(1.0)


def test_the_share_of_rises():
    loss = [4.0, 3.0, 3.5, 3.5, 2.0, 2.5, np.nan, 1.0, 2.0]
    np.testing.assert_allclose(ln.curves.rises(loss, last=3), [np.nan, 0, 1 / 2, 1 / 3, 1 / 3, 1 / 3, 1 / 2, 1, 1])
    rng = np.random.default_rng(0)
    curves = rng.normal(size=(2, 60))
    for k in (1, 7, 100):
        shares = ln.curves.rises(curves, last=k)
        for t in range(1, 60):
            up = np.diff(curves, axis=-1)[:, max(t - k, 0) : t] > 0
            np.testing.assert_allclose(shares[:, t], up.mean(axis=-1))
    assert ln.curves.rises([1.0, math.inf])[1] == 1


def test_a_catapult_has_two_signs():
    t = np.arange(100.0)
    sharpness = 10 + 5 * np.exp(-(((t - 50) / 6) ** 2))
    loss = np.exp(-t / 50) * (1 + 0.2 * (np.abs(t - 52) <= 1))
    seen = ln.curves.catapults(loss, sharpness)
    assert list(np.flatnonzero(seen.falls)) == [50]
    assert list(np.flatnonzero(seen.jumps)) == [51, 52, 53]
    assert list(seen.events) == [50]
    # the second sign alone
    smooth = ln.curves.catapults(np.exp(-t / 50), sharpness)
    assert smooth.falls[50]
    assert not smooth.jumps.any()
    assert smooth.events.size == 0
    # neither a fall from the start nor a peak that stays, and looks may be rare
    assert not ln.curves.catapults(loss, 10 + 5 * np.exp(-t / 10)).falls.any()
    assert not ln.curves.catapults(loss, 10 + np.tanh(t / 10)).falls.any()
    rare = np.where(t % 25 == 0, sharpness, np.nan)
    assert list(ln.curves.catapults(loss, rare).events) == [50]
    assert not ln.curves.catapults(loss, sharpness, fall=0.4).falls.any()
    assert not ln.curves.catapults(loss, sharpness, rise=0.3).jumps.any()


def test_curves_are_checked():
    with pytest.raises(ln.InputError, match="sharpness has 3 records: it must have 2, as loss has"):
        ln.curves.catapults([1.0, 2.0], [1.0, 2.0, 3.0])
    with pytest.raises(ln.InputError, match="loss = 'abc' is not allowed: it must be recorded numbers"):
        ln.curves.rises("abc")
    with pytest.raises(ln.InputError, match=r"loss has shape \(\): it must be a curve"):
        ln.curves.rises(1.0)
    with pytest.raises(ln.InputError, match="last = 0"):
        ln.curves.rises([1.0, 2.0], last=0)
    with pytest.raises(ln.InputError, match="fall = 1"):
        ln.curves.catapults([1.0, 2.0], [1.0, 2.0], fall=1.0)
