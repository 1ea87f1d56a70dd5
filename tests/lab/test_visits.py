"""The lab in a real browser: every page is driven as a person would, and nothing leaves the machine."""

import json
import sys

import numpy as np
import pytest

from linnet.lab.control import Bars, Choice, File, Slider, Switch
from linnet.lab.pages import PAGES

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install '.[test]'").expect
expect.set_options(timeout=300_000)  # a machine may be busy with other work
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed: pip install '.[test]'")


def findings(page):
    return [(one["id"], one["nodes"][0]["html"]) for one in axe.Axe().run(page).response["violations"]]


@pytest.mark.quick(3)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_as_a_person_uses_it(visit, page, tmp_path, request):
    """One visit: it is accessible, its code makes its data, every control changes it, its address is the page."""
    here = visit(permissions=["clipboard-read", "clipboard-write"]).go(page.name)
    assert here.page.locator("canvas").count() >= 1
    assert here.page.locator("h1").inner_text() == page.title
    accessible(here, every=request.config.getoption("--slow"))
    copied_code_makes_the_file(here, tmp_path / "exported.nc")
    every_control_changes_the_page(here, page)
    again = visit().go(here.page.url.removeprefix(here.address + "/"))
    assert again.code == here.code
    assert again.sentence == here.sentence


def accessible(here, *, every):
    """No finding of axe and no horizontal scrolling: light and wide, dark on a phone (with --slow dark and wide)."""
    sizes = [("light", 1280), *[("dark", 1280)][:every], ("dark", 390)]
    for scheme, width in sizes:
        here.page.emulate_media(color_scheme=scheme)
        here.page.set_viewport_size({"width": width, "height": 844})
        assert findings(here.page) == [], (scheme, width)
        assert here.page.evaluate("document.documentElement.scrollWidth") <= width
    here.page.emulate_media(color_scheme="light")
    here.page.set_viewport_size({"width": 1280, "height": 900})


def copied_code_makes_the_file(here, file):
    """The Python code in the clipboard, executed, has the data of the netCDF file."""
    here.page.get_by_role("button", name="Copy Python").click()
    copied = here.page.evaluate("navigator.clipboard.readText()")
    assert copied == here.code
    names = {}
    exec(copied, names)
    with here.page.expect_download() as waited:
        here.page.get_by_role("link", name="Data (netCDF)").click()
    waited.value.save_as(file)
    import xarray

    with xarray.open_dataset(file, engine="scipy") as taken:
        for name in names["data"].data_vars:
            np.testing.assert_allclose(taken[name], names["data"][name], rtol=1e-9, atol=1e-12, err_msg=name)


def every_control_changes_the_page(here, page):
    for control in page().controls:
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
    assert f"SGD(lr={shown!r})" in here.code


def test_two_browsers_keep_apart(visit):
    one, other = visit().go("network"), visit().go("network?depth=3&init=balanced")
    one.slide("steps", "End")
    assert "optimizer, 2000," in one.code
    assert "optimizer, 300," in other.code
    assert "'depth': 3" in other.code


def test_a_diverging_run_is_reported(visit):
    here = visit().go("network").slide("lr", "End")
    assert "diverged at step" in here.sentence
    assert json.loads(here.page.evaluate("JSON.stringify(performance.getEntriesByName('drawn 1').length)")) == 1


def click(here, panel, x, y):
    """Clicks into a picture, at these shares of its width and height."""
    box = here.page.locator(f"figure:has-text('{panel}') canvas").first.bounding_box()
    here.page.mouse.click(box["x"] + x * box["width"], box["y"] + y * box["height"])
    return here


def changed(here, before):
    """Waits until the address is another one, and what it asks for is seen."""
    here.page.wait_for_function("before => location.href !== before", arg=before, polling=50)
    here.page.wait_for_function("!document.querySelector('.busy')", polling=50)
    return here


@pytest.mark.parametrize(
    ("page", "panel", "names"),
    [
        ("phase", "The plane of widths", ("gamma_w=", "gamma_sigma2=")),
        ("edge", "Bifurcation diagram", ("kappa=",)),
        ("landscape", "Critical points", ("point=",)),
    ],
)
def test_a_click_on_a_picture_is_a_move(visit, page, panel, names):
    here = visit().go(page)
    before = here.page.url
    if page == "landscape":  # at the point that has learned the first mode
        for x in np.linspace(0.1, 0.95, 18):
            for y in np.linspace(0.1, 0.9, 12):
                if here.page.url == before:
                    click(here, panel, x, y)
    else:
        click(here, panel, 0.6, 0.4)
    changed(here, before)
    assert all(name in here.page.url for name in names), here.page.url


def test_the_diagram_is_computed_anew_where_it_is_looked_into(visit):
    here = visit().go("edge")
    before = here.page.url
    box = here.page.locator("figure:has-text('Bifurcation diagram') canvas").first.bounding_box()
    here.page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.4 * box["height"])
    here.page.mouse.wheel(0, -400)
    changed(here, before)
    assert "left=" in here.page.url
    zoomed = here.page.url
    here.page.get_by_role("button", name="Whole diagram").click()
    changed(here, zoomed)
    assert "left=" not in here.page.url


def test_a_training_plays(visit):
    here = visit().go("rich")
    before = here.page.url
    here.page.get_by_role("button", name="Play").click()
    changed(here, before)
    here.page.get_by_role("button", name="Pause").click()
    assert "time=" in here.page.url


def test_ones_own_table_is_read_and_a_wrong_one_is_refused(visit, tmp_path):
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(80, 3))
    table = np.column_stack([inputs, inputs @ [1.0, -2.0, 0.5]])
    good, bad = tmp_path / "mine.csv", tmp_path / "wrong.csv"
    np.savetxt(good, table, delimiter=",", header="a,b,c,price", comments="")
    bad.write_text("a,b\nx,y\nz,w\n")
    here = visit().go("data")
    before = here.page.url
    here.page.locator("input[type=file]").set_input_files(good)
    expect(here.page.locator("pre[data-name=code]")).to_contain_text("read_regression(\n    'mine.csv'")
    assert here.page.url != before
    here.page.locator("input[type=file]").set_input_files(bad)
    status = here.page.locator("[role=status]").first
    expect(status).to_contain_text("wrong.csv")
    here.page.locator(".drop").evaluate(
        """place => {
            const data = new DataTransfer();
            data.items.add(new File([new ArrayBuffer(9e6)], "huge.csv"));
            place.dispatchEvent(new DragEvent("drop", {dataTransfer: data, bubbles: true, cancelable: true}));
        }"""
    )
    expect(status).to_contain_text("huge.csv")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux answers at all of 127.0.0.0/8")
def test_others_come_in_where_they_are_asked_to(browser, open_address):
    page = browser.new_page()
    page.set_default_timeout(300_000)
    page.goto(f"{open_address}/landscape")
    expect(page.locator("pre[data-name=code]")).to_contain_text("ln.init.critical")
    page.close()
