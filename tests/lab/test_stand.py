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
