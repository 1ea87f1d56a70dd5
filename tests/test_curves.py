import math

import numpy as np
import pytest

from linnet.curves import crossing, first_record


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
