"""A page that somebody stands in, without a browser: what is sent to the page, and what is not sent again."""

import time

import pytest

from linnet.lab.pages.edge import EdgePage
from linnet.lab.view import PageView


def settle(view):
    end = time.monotonic() + 300
    while view.summary.busy and time.monotonic() < end:
        time.sleep(0.02)
    assert not view.summary.busy


def test_pictures_show_their_window_and_are_not_sent_twice():
    view = PageView(EdgePage(), {"left": 2.0, "right": 3.0})
    settle(view)
    figures = {panel.name: panel.figure for panel in view.panels}
    x, y = figures["diagram"].x_range, figures["diagram"].y_range
    assert (x.start, x.end, y.start, y.end) == (2.0, 3.0, -1.0, 21.0)
    sources = view._sources
    picture, orbit = sources["diagram"].data, sources["orbit"].data["value"]
    view.move(kappa=2.2)
    settle(view)
    assert sources["diagram"].data is picture  # the same window
    assert sources["orbit"].data["value"].tolist() != orbit.tolist()
    view.move(target=5.0)
    settle(view)
    assert (y.start, y.end) == (-0.5, 10.5)
    assert sources["diagram"].data["dh"][0] == pytest.approx(11.0)


def test_a_move_that_is_taken_back_at_once_is_answered_too():
    """The page counts moves; where two of them come together, nothing may be left to compute."""
    view = PageView(EdgePage())
    settle(view)
    there = view.values
    view.controls.param.update(values=there, requested=3)
    assert (view.summary.drawn, view.summary.complete, view.summary.busy) == (3, 3, False)
    view.controls.param.update(values=there | {"kappa": 2.2}, requested=4)
    assert view.summary.busy
    settle(view)
    assert (view.summary.drawn, view.summary.complete) == (4, 4)
    view.controls.values = there  # its number comes after it
    view.controls.requested = 5
    settle(view)
    assert (view.summary.drawn, view.summary.complete) == (5, 5)
