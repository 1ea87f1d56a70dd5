"""What a server of many does: changes that are one message, and programs that are let go."""

import asyncio
import gc
from concurrent.futures import ThreadPoolExecutor

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("panel", reason="panel is not installed: pip install '.[lab]'")

from bokeh.document import Document
from bokeh.models import ColumnDataSource
from bokeh.protocol.messages.patch_doc import patch_doc
from bokeh.settings import settings
from panel.io.server import per_app_patterns
from tornado.websocket import WebSocketClosedError

from linnet.lab.pages import PAGES
from linnet.lab.programs import ProgramCounter
from linnet.lab.server import served
from linnet.lab.socket import Socket, ignore_closed


class Recorded(Socket):
    """A connection to nowhere that keeps what it would have sent."""

    def __init__(self):
        self.sent = []

    async def write_message(self, message, binary=False, locked=True):
        self.sent.append(message)


def test_changes_that_wait_are_one_message_in_their_order():
    document, socket = Document(), Recorded()
    sources = [ColumnDataSource({"x": [0.0]}) for _ in range(3)]
    for source in sources:
        document.add_root(source)
    events = []
    document.on_change(events.append)
    for number, source in enumerate(sources):
        source.data = {"x": np.full(50, number)}
    waiting = [socket.send_message(patch_doc.create([event])) for event in events]

    async def sent():
        for one in waiting:
            await one

    socket.write_lock = Lock()
    with ThreadPoolExecutor(1) as pool:  # a browser of other tests has a loop in this thread
        pool.submit(asyncio.run, sent()).result()
    header, _, content, *buffers = socket.sent
    assert '"num_buffers": 3' in header
    places = [content.index(f'"{source.id}"') for source in sources]
    assert places == sorted(places)
    assert len(buffers) == 6


def test_a_browser_that_leaves_is_no_error_and_others_are(caplog):
    async def lost(error):
        raise error

    async def unheard():
        asyncio.get_running_loop().set_exception_handler(ignore_closed)
        for error in (WebSocketClosedError(), ValueError("of another kind")):
            await asyncio.wait([asyncio.ensure_future(lost(error))])
            gc.collect()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, unheard()).result()
    (record,) = caplog.records
    assert "of another kind" in str(record.exc_info[1])


class Lock:
    """Bokeh's lock of a connection, that nobody else wants."""

    async def acquire(self):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def test_programs_are_let_go_when_there_are_many():
    held = ProgramCounter(most=5)
    twice = eqx.filter_jit(lambda x: 2 * x)
    for size in range(101, 106):
        twice(jnp.zeros(size))
    assert held.count >= 5
    before = held.count
    twice(jnp.zeros(101))
    assert held.count == before  # a program that is held is not made again
    jax.jit(lambda x: x + 3)(jnp.zeros(107))
    held.limit()
    assert held.count == 0
    twice(jnp.zeros(101))
    assert held.count > 0


def test_a_server_leaves_panel_and_bokeh_as_they_are():
    before = [*per_app_patterns], settings.log_level()
    server = served()
    targets = [rule.target for rule in server._tornado.wildcard_router.rules]
    server.stop()
    assert targets.count(Socket) == len(PAGES)
    assert ([*per_app_patterns], settings.log_level()) == before
