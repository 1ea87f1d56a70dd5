"""A room that somebody stands in, without a browser: what is sent to the page, and what is not sent again."""

import time

import pytest

from linnet.lab.page import Stand
from linnet.lab.rooms.edge import Edge


def settle(stand):
    end = time.monotonic() + 120
    while stand.words.busy and time.monotonic() < end:
        time.sleep(0.02)
    assert not stand.words.busy


def test_pictures_show_their_window_and_are_not_sent_twice():
    stand = Stand(Edge(), {"left": 2.0, "right": 3.0})
    settle(stand)
    figures = {plate.name: plate.figure for plate in stand.plates}
    x, y = figures["diagram"].x_range, figures["diagram"].y_range
    assert (x.start, x.end, y.start, y.end) == (2.0, 3.0, -1.0, 21.0)
    sources = stand._sources
    picture, orbit = sources["diagram"].data, sources["orbit"].data["value"]
    stand.move(kappa=2.2)
    settle(stand)
    assert sources["diagram"].data is picture  # the same window
    assert sources["orbit"].data["value"].tolist() != orbit.tolist()
    stand.move(target=5.0)
    settle(stand)
    assert (y.start, y.end) == (-0.5, 10.5)
    assert sources["diagram"].data["dh"][0] == pytest.approx(11.0)


def test_a_move_that_is_taken_back_at_once_is_answered_too():
    """The page counts moves; where two of them come together, nothing may be left to compute."""
    stand = Stand(Edge())
    settle(stand)
    there = stand.values
    stand.controls.param.update(values=there, asked=3)
    assert (stand.words.drawn, stand.words.whole, stand.words.busy) == (3, 3, False)
    stand.controls.param.update(values=there | {"kappa": 2.2}, asked=4)
    assert stand.words.busy
    settle(stand)
    assert (stand.words.drawn, stand.words.whole) == (4, 4)
    stand.controls.values = there  # its number comes after it
    stand.controls.asked = 5
    settle(stand)
    assert (stand.words.drawn, stand.words.whole) == (5, 5)
