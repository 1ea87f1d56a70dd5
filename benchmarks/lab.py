"""How fast the lab answers: moves of each page's controls through a real browser, until they are painted.

    python benchmarks/lab.py [--moves 200] [--pages network,edge]

A move is a key on a slider, a new choice or a dragged bar, at random; the time is the browser's own, from the input to
the frame that shows the answer (`drawn`, the first of it; `complete`, all of it). What has to be compiled is compiled
before: all moves are made twice in the same order, and the second time counts. `paint` is the first picture of a tab
in a browser that has never been there.

    python benchmarks/lab.py --crowd 20 --seconds 120

So many browsers on one server, all moving at random without waiting; in the end each must show what its own address
says, and the server's memory is printed.
"""

import argparse
import contextlib
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl, urlparse

import numpy as np
from playwright.sync_api import Browser, sync_playwright
from playwright.sync_api import Page as Tab

from linnet._check import InputError
from linnet.lab.control import Bars, Choice, Control, Slider
from linnet.lab.page import Page
from linnet.lab.pages import PAGES

QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
SERVER = [sys.executable, "-c", "from linnet.cli import main; main()", "lab", "--no-browser"]
MARK = "performance.getEntriesByName('{0} {1}').map(mark => mark.startTime)[0]"


def seen(tab: Tab, what: str = "complete") -> None:
    root = "document.documentElement.dataset"
    tab.wait_for_function(f"{root}.{what} === {root}.requested", timeout=120_000, polling=20)


def moves(controls: tuple[Control, ...], count: int, seed: int) -> list[tuple[str, str]]:
    """Which control, and what is done with it: a key for a slider or a bar, a value for a choice."""
    draw = random.Random(seed)
    able = [control for control in controls if isinstance(control, Slider | Choice | Bars)]
    found = []
    for _ in range(count):
        control = draw.choice(able)
        key = draw.choice(list(control.options)) if isinstance(control, Choice) else draw.choice(["Right", "Left"])
        found.append((control.name, key))
    return found


def move(tab: Tab, controls: dict[str, Control], name: str, key: str) -> tuple[float, float]:
    """Milliseconds until the first of the answer and all of it are painted."""
    before = tab.evaluate("document.documentElement.dataset.requested")
    press(tab, controls, name, key)
    asked = tab.evaluate("document.documentElement.dataset.requested")
    if asked == before:  # at its end
        return np.nan, np.nan
    seen(tab)
    begin, drawn, whole = (tab.evaluate(MARK.format(what, asked)) for what in ("requested", "drawn", "complete"))
    return drawn - begin, whole - begin


def press(tab: Tab, controls: dict[str, Control], name: str, key: str) -> None:
    """Makes a move."""
    if isinstance(controls[name], Choice):
        tab.locator(f"#c-{name}").select_option(key)
    elif isinstance(controls[name], Bars):
        tab.locator("input.bar").nth(1).press(f"Arrow{key}")
    else:
        tab.locator(f"#c-{name}").press(f"Arrow{key}")


def crowd(chromium: Browser, address: str, server: int, count: int, seconds: float) -> None:
    """Browsers that do not wait for each other, in all pages; what went wrong, and the memory of the server."""
    draw, wrong, visits = random.Random(1), [], []
    for i in range(count):
        page = PAGES[i % len(PAGES)]()
        tab = chromium.new_context(viewport={"width": 900, "height": 700}).new_page()
        tab.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        tab.goto(f"{address}/{page.name}")
        tab.wait_for_selector("form.controls", state="attached")
        visits.append((page, tab))
    print(f"{count} browsers, memory of the server {memory(server):.0f} MiB", flush=True)
    made, end, told = 0, time.perf_counter() + seconds, time.perf_counter()
    while time.perf_counter() < end:
        page, tab = draw.choice(visits)
        ((name, key),) = moves(page.controls, 1, seed=made)
        press(tab, {control.name: control for control in page.controls}, name, key)
        made += 1
        if time.perf_counter() - told > seconds / 6:
            told = time.perf_counter()
            print(f"  {made} moves, {memory(server):.0f} MiB", flush=True)
    ended, right = time.perf_counter(), 0
    for page, tab in visits:
        seen(tab)
        right += faithful(page, tab)
    print(
        f"{made} moves, all answered {time.perf_counter() - ended:.0f} s after the last, {right} of {count} pages show "
        f"what their address says, {len(wrong)} errors, {memory(server):.0f} MiB"
    )


def faithful(page: Page, tab: Tab) -> bool:
    """Whether a tab shows what its address says: the lines that make it, or why there is nothing to see."""
    query = dict(parse_qsl(urlparse(tab.url).query, keep_blank_values=True))
    try:
        code = page.code(page.read(query))
    except InputError as error:
        return tab.locator("[role=status]").first.inner_text() == str(error)
    return tab.locator("pre[data-name=code]").text_content() == code


@contextlib.contextmanager
def serving() -> Iterator[tuple[str, int]]:
    """The address of a lab and its process, which ends with the context."""
    with subprocess.Popen(SERVER, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield server.stdout.readline().split()[4].rstrip("/"), server.pid
        finally:
            server.terminate()


def memory(process: int) -> float:
    """MiB that a process holds."""
    (line,) = (x for x in Path(f"/proc/{process}/status").read_text().splitlines() if x.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--moves", type=int, default=200)
    parser.add_argument("--pages", default=",".join(page.name for page in PAGES))
    parser.add_argument("--crowd", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--start", default="", help="a query, such as inputs=50&steps=2000, to begin at")
    asked = parser.parse_args()
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with serving() as (address, server), sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=QUIET)
        if asked.crowd:
            crowd(chromium, address, server, asked.crowd, asked.seconds)
            chromium.close()
            return
        heads = ("moves", "drawn", "95 %", "complete", "95 %", "paint")
        print(f"{'ms, medians':12}" + "".join(f"{head:>8}" for head in heads))
        for page in (page for page in PAGES if page.name in asked.pages.split(",")):
            controls = {control.name: control for control in page().controls}
            place = f"{address}/{page.name}?{asked.start}"
            for _ in range(2):  # the second time nothing has to be compiled
                context = chromium.new_context()
                tab = context.new_page()
                began = time.perf_counter()
                tab.goto(place)
                tab.wait_for_selector("canvas", state="attached")
                paint = 1e3 * (time.perf_counter() - began)
                seen(tab)
                context.close()
            tab = chromium.new_page()
            plan = moves(page().controls, asked.moves, seed=0)
            times = np.array([])
            for _ in range(2):
                tab.goto(place)
                tab.wait_for_selector("form.controls", state="attached")
                seen(tab)
                times = np.array([move(tab, controls, name, key) for name, key in plan])
            times = times[np.isfinite(times[:, 0])]
            (a, b), (c, d) = (np.percentile(times[:, i], [50, 95]) for i in (0, 1))
            print(f"{page.name:12}" + "".join(f"{x:8.0f}" for x in (len(times), a, b, c, d, paint)), flush=True)
            tab.close()
        chromium.close()


if __name__ == "__main__":
    main()
