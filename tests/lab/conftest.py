"""A lab that serves, and a browser that visits it."""

import contextlib
import os
import shutil
import subprocess
import sys
from urllib.parse import urlparse

import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
PATIENCE = 300_000  # milliseconds: a machine may be busy with other work
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


@contextlib.contextmanager
def serving(log, *arguments):
    """Where `linnet lab` serves, in a process of its own."""
    command = [sys.executable, "-c", "from linnet.cli import main; main()", "lab", "--no-browser", *arguments]
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=os.environ) as server,
    ):
        try:
            printed = server.stdout.readline()
            assert "http://127.0.0.1:" in printed, log.read_text()
            yield printed.split()[4].rstrip("/")
            server.terminate()
            server.wait(timeout=300)
        finally:
            server.kill()
    assert "Traceback" not in log.read_text(), log.read_text()


@pytest.fixture(scope="session")
def address(tmp_path_factory):
    pytest.importorskip("panel", reason="panel is not installed: pip install '.[lab]'")
    with serving(tmp_path_factory.mktemp("lab") / "log.txt") as place:
        yield place


@pytest.fixture
def open_address(tmp_path):
    """A lab for all, under a name that its server does not know."""
    pytest.importorskip("panel", reason="panel is not installed: pip install '.[lab]'")
    with serving(tmp_path / "log.txt", "--address", "0.0.0.0") as place:
        yield place.replace("127.0.0.1", "127.0.0.2")


@pytest.fixture(scope="session")
def browser():
    """A real browser, where there is one."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install '.[test]'")
    if BROWSER is None:
        pytest.skip("no browser: install chromium to test the lab in it")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=BROWSER, args=QUIET)
        yield chromium
        chromium.close()


class Visit:
    """Somebody in a page: moves, and waits until what was asked for is seen."""

    def __init__(self, page, address):
        self.page, self.address = page, address

    def go(self, path):
        self.page.goto(f"{self.address}/{path}")
        self.page.wait_for_selector("#c-preset, form.controls", state="attached")
        return self.seen()

    def seen(self, what="complete"):
        """Waits until the last move is drawn as a whole."""
        root = "document.documentElement.dataset"
        self.page.wait_for_function(f"{root}.{what} !== undefined && {root}.{what} === {root}.requested", polling=50)
        return self

    def slide(self, name, keys="ArrowRight", times=1):
        """Moves a slider as a keyboard does."""
        slider = self.page.locator(f"#c-{name}")
        slider.focus()
        for _ in range(times):
            slider.press(keys)
        return self.seen()

    def choose(self, name, value):
        self.page.locator(f"#c-{name}").select_option(value)
        return self.seen()

    @property
    def sentence(self):
        return self.page.locator("[role=status]").first.inner_text()

    @property
    def code(self):
        return self.page.locator("pre[data-name=code]").text_content()


@pytest.fixture
def visit(browser, address):
    """A function that opens a visit; in the end nothing went wrong in any, and nothing was asked of other machines."""
    contexts, wrong, asked = [], [], []

    def begin(width=1280, height=900, scheme="light", **options):
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, **options)
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: message.type in ("error", "warning") and wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        return Visit(page, address)

    yield begin
    for context in contexts:
        context.close()
    assert not wrong
    places = {urlparse(url.removeprefix("blob:")).netloc for url in asked if not url.startswith("data:")}
    assert places <= {urlparse(address).netloc}
