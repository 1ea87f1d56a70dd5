"""The laboratory in a real browser: every room is driven as a person would, and nothing leaves the machine."""

import json

import numpy as np
import pytest

from linnet.lab.control import Bars, Choice, File, Slider, Switch
from linnet.lab.rooms import ROOMS

axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed: pip install '.[test]'")


def findings(page):
    return [(one["id"], one["nodes"][0]["html"]) for one in axe.Axe().run(page).response["violations"]]


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.name)
def test_every_control_moves_the_page(visit, room):
    here = visit().go(room.name)
    assert here.page.locator("canvas").count() >= 1
    assert here.page.locator("h1").inner_text() == room.title
    for control in room().controls:
        before = here.page.url
        if isinstance(control, Slider):
            here.slide(control.name, "ArrowLeft" if control.value == control.high else "ArrowRight")
        elif isinstance(control, Choice):
            here.choose(control.name, next(name for name in control.options if name != control.value))
        elif isinstance(control, Switch):
            here.page.locator(f"#c-{control.name}").click()
        elif isinstance(control, Bars):
            here.page.locator("input.bar").nth(1).press("ArrowDown")
        elif isinstance(control, File):
            continue
        assert here.seen().page.url != before, control.name
    again = visit().go(here.page.url.removeprefix(here.address + "/"))
    assert again.code == here.code  # the address is the page
    assert again.sentence == here.sentence


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.name)
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
def test_anyone_can_use_it(visit, room, width, scheme):
    here = visit(width=width, height=844, scheme=scheme).go(room.name)
    assert findings(here.page) == []
    assert here.page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.name)
def test_the_copied_lines_make_the_same_file(visit, room, tmp_path):
    here = visit(permissions=["clipboard-read", "clipboard-write"]).go(room.name)
    here.page.get_by_role("button", name="Copy Python").click()
    copied = here.page.evaluate("navigator.clipboard.readText()")
    assert copied == here.code
    names = {}
    exec(copied, names)
    with here.page.expect_download() as waited:
        here.page.get_by_role("link", name="Data (netCDF)").click()
    waited.value.save_as(tmp_path / "taken.nc")
    import xarray

    with xarray.open_dataset(tmp_path / "taken.nc", engine="scipy") as taken:
        for name in names["data"].data_vars:
            np.testing.assert_allclose(taken[name], names["data"][name], rtol=1e-9, atol=1e-12, err_msg=name)


def test_a_wrong_address_is_a_sentence_and_a_page(visit):
    here = visit().go("network?lr=seven")
    assert "lr = 'seven' is not allowed: give a number from 0.001 to 2." in here.sentence
    here.slide("lr")
    assert "seven" not in here.sentence


def test_the_last_of_many_moves_is_what_is_seen(visit):
    here = visit().go("network")
    slider = here.page.locator("#c-lr")
    slider.focus()
    for _ in range(25):
        slider.press("ArrowRight")  # nobody waits
    here.seen()
    shown = float(here.page.locator("output[for=c-lr]").inner_text())
    assert f"GradientDescent({shown!r})" in here.code


def test_two_browsers_keep_apart(visit):
    one, other = visit().go("network"), visit().go("network?depth=3&start=balanced")
    one.slide("steps", "End")
    assert "steps=2000" in one.code
    assert "steps=300" in other.code
    assert "'depth': 3" in other.code


def test_a_diverging_step_is_told(visit):
    here = visit().go("network").slide("lr", "End")
    assert "diverged at step" in here.sentence
    assert json.loads(here.page.evaluate("JSON.stringify(performance.getEntriesByName('drawn 1').length)")) == 1
