import math

import numpy as np
import pytest

from linnet.curves import crossing, first_record, powers


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
