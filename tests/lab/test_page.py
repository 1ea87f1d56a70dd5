"""A page before its browser has it."""

import time

import pytest

pytest.importorskip("panel", reason="panel is not installed: pip install '.[lab]'")

from linnet.lab.own import Own
from linnet.lab.page import Stand


def test_what_is_computed_before_the_browser_has_the_page_is_shown_then():
    stand = Stand(Own())
    end = time.monotonic() + 60
    while stand.words.busy:
        assert time.monotonic() < end
        time.sleep(0.02)
    shown = []
    stand._held = []  # as on a server, until the browser says that it has the page
    stand._later(stand._asked, lambda: shown.append("last"))
    stand._later(stand._asked - 1, lambda: shown.append("older"))
    assert not shown
    stand._arrived()
    assert shown == ["last"]
    stand._later(stand._asked, lambda: shown.append("next"))
    assert shown == ["last", "next"]
