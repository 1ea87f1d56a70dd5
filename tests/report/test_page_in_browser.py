"""The page in a real browser: no errors, nothing from elsewhere, accessible, on screens of every kind and on paper."""

import json
import shutil
from urllib.parse import unquote, urlparse

import pytest
import xarray

from linnet import report
from linnet.cli import reproduce, verify

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install '.[test]'")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed: pip install '.[test]'")

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no browser: install chromium to test the page in it")
PHONE, DESK = {"width": 390, "height": 844}, {"width": 1280, "height": 900}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two quick experiments, the data of one put into a store, and a few claims, one of them made to fail."""
    out = tmp_path_factory.mktemp("report")
    for figure in ("stability/fig13", "stability/fig23"):
        reproduce.run([figure], "quick", out, [], quiet=True)  # one by one: in this process
    stored = out / "stability" / "fig23"
    with xarray.open_dataset(stored / "data.nc", engine="scipy") as data:
        data.to_zarr(stored / "data.zarr", zarr_format=3, consolidated=False)
    told = json.loads((stored / "result.json").read_text())
    (stored / "result.json").write_text(json.dumps({**told, "data": "data.zarr"}))
    verify.run(["mixed/C17", "mixed/C22", "mixed/C19", "mixed/E20"], None, "quick", out, quiet=True)
    found = json.loads((out / "claims.json").read_text())
    found["claims"][2]["holds"] = False
    (out / "claims.json").write_text(json.dumps(found))
    report.write(out)
    return out


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def opened(browser, folder):
    """A function that opens the page; what went wrong in it, and what it asked for, is looked at in the end."""
    contexts, wrong, asked = [], [], []

    def go(viewport=DESK, scheme="light"):
        context = browser.new_context(viewport=viewport, color_scheme=scheme)
        context.set_default_timeout(300_000)  # a machine may be busy with other work
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("requestfailed", lambda request: wrong.append(request.url))
        page.on("request", lambda request: asked.append(request.url))
        page.goto((folder / "index.html").as_uri(), wait_until="load")
        return page

    yield go
    for context in contexts:
        context.close()
    assert wrong == []
    assert asked
    assert {urlparse(url).scheme for url in asked} == {"file"}


def test_pictures_and_links_are_there(opened, folder):
    page = opened()
    images = page.evaluate("Array.from(document.images, (i) => [i.complete, i.naturalWidth, i.width / i.height])")
    assert len(images) == 2
    assert all(complete and wide > 100 for complete, wide, _ in images)
    links = page.evaluate("Array.from(document.links, (a) => a.href)")
    paths = {unquote(urlparse(link).path) for link in links}
    assert {p.rsplit(folder.name, 1)[1] for p in paths} >= {
        "/claims.json",
        "/stability/fig23/data.zarr/",
        "/index.html",
    }
    for link in links:
        target = urlparse(link)
        assert target.scheme == "file"
        assert folder.joinpath(unquote(target.path)).exists()
        if target.fragment:
            assert page.evaluate("(id) => !!document.getElementById(id)", unquote(target.fragment)), link


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [PHONE, DESK], ids=["phone", "desk"])
def test_it_is_accessible(opened, viewport, scheme):
    page = opened(viewport, scheme)
    page.evaluate(
        """document.querySelectorAll("details").forEach((d) => (d.open = true));
           // a hundred rows that are like the first ones only take time
           const like = 'tr[data-verdict="not run"]:nth-child(n+4), .errata > li:nth-child(n+5):not(:has(.yes))';
           document.querySelectorAll(like).forEach((e) => e.remove());"""
    )
    assert page.locator("#mixed-table tbody tr").count() >= 5
    assert page.locator("#mixed-errata li").count() >= 5
    found = axe.Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).every((c) => c < 64)")
    assert dark == (scheme == "dark")


@pytest.mark.parametrize("width", [320, 390, 768])
def test_nothing_is_cut_off_on_narrow_screens(opened, width):
    page = opened({"width": width, "height": 800})
    page.evaluate("document.querySelectorAll('details').forEach((d) => (d.open = true))")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    beyond = page.evaluate(
        """Array.from(document.querySelectorAll("main *, header *"))
           .filter((e) => e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.outerHTML.slice(0, 200))"""
    )
    assert beyond == []


def test_claims_are_filtered(opened):
    page = opened()
    form = page.get_by_role("search", name="Claims of Mixed dynamics")
    rows = page.locator("#mixed-table tbody tr")
    count = form.locator("output")
    everything = rows.count()
    shown = page.locator("#mixed-table tbody tr:visible")
    assert shown.count() == everything
    form.get_by_label("Words").fill("lemma C.6 exact")
    assert shown.all_inner_texts()[0].startswith("C17")
    assert count.inner_text() == f"1 of {everything} shown"
    assert count.get_attribute("aria-live") == "polite"
    form.get_by_label("Words").fill("no such words")
    assert shown.count() == 0
    form.get_by_label("Words").fill("")
    assert shown.count() == everything
    form.get_by_label("Kind").select_option("refuted")
    assert shown.count() == 1
    assert "fails, as stated here" in shown.inner_text()
    form.get_by_label("Kind").select_option("")
    form.get_by_label("Verdict").select_option("not as stated")
    assert shown.count() == 1
    assert shown.inner_text().startswith("C19")
    form.get_by_label("Verdict").select_option("not run")
    assert shown.count() == everything - 3
    form.get_by_label("Words").press("Enter")  # sends no form anywhere
    assert "?" not in page.url


def test_details_open_by_hand_and_on_paper(opened, tmp_path):
    page = opened()
    command = page.get_by_text("linnet reproduce stability/fig23 --size quick")
    assert not command.is_visible()
    page.get_by_text("how to make it again").nth(1).click()
    assert command.is_visible()
    page.get_by_text("how to make it again").nth(1).click()
    assert page.get_by_role("navigation").is_visible()
    page.emulate_media(media="print")
    assert not page.get_by_role("navigation").is_visible()
    assert not page.locator("form.filter").first.is_visible()
    assert command.is_visible()
    page.pdf(path=tmp_path / "page.pdf", format="A4")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF-")
    assert (tmp_path / "page.pdf").stat().st_size > 20_000
