"""What a page refuses to compute, and how visitors share the threads, without a browser."""

import asyncio
import threading
import time
from urllib.parse import parse_qsl

import numpy as np
import pytest

pytest.importorskip("panel", reason="panel is not installed: pip install '.[lab]'")

from linnet._check import InputError
from linnet.lab import export, view, work
from linnet.lab.page import Update
from linnet.lab.pages.data import DataPage
from linnet.lab.pages.edge import EdgePage
from linnet.lab.pages.flows import FlowsPage
from linnet.lab.pages.network import NetworkPage
from linnet.lab.pages.phase import PhasePage
from linnet.lab.view import AT_ONCE, THREADS, PageView
from linnet.prediction.theories.network import result

LONG = "spectrum=4,0.1,4,4,0.1&depth=6&width=10&inputs=50&scale=3&optimizer=nesterov&lr=0.001&steps=2000&seed=99"


def settle(one):
    end = time.monotonic() + 300
    while one.summary.busy and time.monotonic() < end:
        time.sleep(0.01)
    assert not one.summary.busy


def test_an_address_that_would_compute_long_is_one_sentence(monkeypatch):
    page = NetworkPage()
    values = page.read(dict(parse_qsl(LONG)))
    monkeypatch.setattr(NetworkPage, "updates", lambda self, values: pytest.fail("it computes"))
    monkeypatch.setattr(export, "execute", lambda page, values: pytest.fail("it computes"))
    began = time.process_time()
    shown = PageView(page, values)
    settle(shown)
    assert shown.summary.error
    assert shown.summary.headline == (
        "depth = 6 is too much here: 700 weights take about 14 s to follow, and 10 s are the most that a page computes"
        "; give fewer layers, or use linnet predict network."
    )
    assert time.process_time() - began < 5
    with pytest.raises(InputError, match="depth = 6 is too much here"):
        export.write(page, values, view.Path("run.nc"))


def test_nothing_that_a_page_offers_is_refused():
    for page in (NetworkPage(), DataPage()):
        for changed in ({}, *page.presets.values()):
            page.afford(page.checked(page.first() | dict(changed)))
    page = NetworkPage()
    for depth in range(2, 7):  # the only network of the sliders that is too much is the deepest narrow one
        for width in (10, 20, 1000):
            for inputs in (10, 50):
                values = page.checked({"depth": depth, "width": width, "inputs": inputs})
                if (depth, width, inputs) == (6, 10, 50):
                    with pytest.raises(InputError, match="700 weights"):
                        page.afford(values)
                else:
                    page.afford(values)


def test_samples_of_ones_own_are_estimated_too(monkeypatch):
    monkeypatch.setattr(work, "LONGEST", 1e-9)
    page = DataPage()
    page.afford(page.first())  # two layers
    with pytest.raises(InputError, match="depth = 3 is too much here"):
        page.afford(page.checked(page.first() | {"depth": 3}))
    monkeypatch.setattr(result, "STIFF", 0)
    with pytest.raises(InputError, match="take about 4 s to follow"):
        page.afford(page.checked(page.first() | {"depth": 3}))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "values"),
    [(PhasePage(), {"d": 100, "steps": 2000}), (FlowsPage(), {"lr": 0.5}), (FlowsPage(), {"lr": 0.1})],
)
def test_the_longest_moves_of_pages_without_an_estimate(page, values):
    """Once their programs are compiled they take less than a second; the bound is that of all pages."""
    checked = page.checked(page.first() | values)
    for _ in range(2):
        began = time.process_time()
        assert list(page.updates(checked))
    assert time.process_time() - began < work.LONGEST


class Waiting(EdgePage):
    """A page that computes until it is let go."""

    def __init__(self):
        super().__init__()
        self.running, self.most, self.began, self.go = 0, 0, threading.Semaphore(0), threading.Event()
        self.lock, self.done = threading.Lock(), []

    def updates(self, values):
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
        self.began.release()
        assert self.go.wait(600)
        with self.lock:
            self.running -= 1
            self.done.append(values["kappa"])
        yield Update({}, headline="done")


def test_one_visitor_does_not_starve_another():
    """Forty moves of a page that never answers take two of the four threads: other pages go on."""
    page, quick = Waiting(), Waiting()
    quick.go.set()
    slow = PageView(page)
    try:
        kappas = np.linspace(2.0, 3.0, 40)
        assert page.began.acquire(timeout=300)
        slow.move(kappa=float(kappas[0]))
        assert page.began.acquire(timeout=300)  # both threads compute, and the next moves wait
        for kappa in kappas[1:]:
            slow.move(kappa=float(kappa))
        others = [PageView(quick) for _ in range(8)]
        for other in others:
            settle(other)
            assert other.summary.headline == "done"
        assert page.most == AT_ONCE < THREADS
        assert slow.summary.busy
    finally:
        page.go.set()
    settle(slow)
    assert page.done.count(slow.values["kappa"]) == 1  # the last move is computed
    assert len(page.done) <= 2 * AT_ONCE  # and most of those before it never
    assert page.most == AT_ONCE


def test_exports_wait_in_their_own_threads_and_not_without_end(monkeypatch):
    let, began = threading.Event(), threading.Semaphore(0)

    def written(page, values, name):
        began.release()
        assert let.wait(600)
        return b"file"

    monkeypatch.setattr(export, "_written", written)
    monkeypatch.setattr(export, "_WAITING", 5)

    class Handler(export.DownloadHandler):
        waiting = 0

        def __init__(self):
            pass

    async def asked():
        page = EdgePage()
        first = [asyncio.ensure_future(Handler()._made(page, {}, "edge.nc")) for _ in range(5)]
        await asyncio.sleep(0)
        with pytest.raises(export._BusyError, match=r"edge.nc cannot be made now: 5 other exports are waiting"):
            await Handler()._made(page, {}, "edge.nc")
        let.set()
        assert await asyncio.gather(*first) == [b"file"] * 5
        assert Handler.waiting == 0
        assert await Handler()._made(page, {}, "edge.nc") == b"file"

    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:  # a browser of other tests has a loop in this thread
        pool.submit(asyncio.run, asked()).result()
