"""What others cost a visitor of the lab: 500 random visits, then 200 connections and slow clients, on one server.

    python benchmarks/abuse.py [--visits 500] [--connections 200] [--slow 100] [--seconds 120]

A visit loads a random page at a random address, one in ten with nonsense in it, connects as a browser does, waits until
everything is computed, and leaves. Then so many connections stay open, each with a page of its own that makes a random
move as soon as the last one is answered, while slow clients send a byte of a request each second, or connect to a page
and read nothing. Before, during, and after it one visitor more loads one page after the other.

Prints the time until that visitor sees everything (median, largest), the memory of the server, and what was answered
otherwise than it should be. The exit code is 1 if anything was.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import random
import re
import sys
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any
from urllib.parse import urlencode, urlparse

import numpy as np
from lab import memory, serving
from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from linnet.lab.control import Choice, Slider, Switch, write
from linnet.lab.page import Page
from linnet.lab.pages import PAGES

TOGETHER = 4  # visits at a time
PATIENCE = 900  # seconds until a page must show everything
NONSENSE = ("nan", "1e999", "<script>", "\0", "9" * 2000, "-1", "__import__('os')")
READY = {
    "kind": "MessageSent",
    "msg_type": "bokeh_event",
    "msg_data": {"type": "event", "name": "document_ready", "values": {"type": "map", "entries": []}},
}
wrong: list[str] = []


def note(what: str) -> None:
    """Prints and counts what should not happen."""
    wrong.append(what)
    print(f"  {what[:300]}", flush=True)


def moved(page: Page, draw: random.Random) -> dict[str, Any]:
    """Half of the controls at random values."""
    values: dict[str, Any] = {}
    for control in page.controls:
        if draw.random() < 0.5:
            continue
        if isinstance(control, Slider):
            ends = np.log([control.low, control.high]) if control.log else np.array([control.low, control.high])
            drawn = float(np.interp(draw.random(), [0, 1], ends))
            value = min(max(float(np.exp(drawn)) if control.log else drawn, control.low), control.high)
            values[control.name] = (
                draw.choice(control.rungs) if control.rungs else round(value) if control.whole else value
            )
        elif isinstance(control, Choice):
            values[control.name] = draw.choice(list(control.options))
        elif isinstance(control, Switch):
            values[control.name] = draw.choice([True, False])
    return values


class Tab:
    """A connection to a page, as a browser makes it."""

    def __init__(self, page: Page, connection: WebSocketClientConnection):
        self.page, self.connection, self.requested, self.model = page, connection, 1, ""

    async def send(self, kind: str, content: Any) -> None:
        for part in ({"msgid": f"m{random.random()}", "msgtype": kind}, {}, content):
            await self.connection.write_message(json.dumps(part))

    async def receive(self) -> tuple[str, str]:
        """The kind and the content of the next message."""
        head = await self.connection.read_message()
        if head is None:
            raise ConnectionError("the connection was closed")
        header = json.loads(head)
        _, content = [await self.connection.read_message() for _ in range(2)]
        for _ in range(2 * header.get("num_buffers", 0)):
            await self.connection.read_message()
        return header["msgtype"], content

    async def seen(self) -> None:
        """Waits until everything is shown."""
        while True:
            kind, content = await self.receive()
            if kind == "PATCH-DOC":
                events = json.loads(content)["events"]
                if any(one.get("attr") == "complete" and one["new"] == self.requested for one in events):
                    return
            elif kind == "ERROR":
                raise ConnectionError(content[:300])

    async def move(self, values: dict[str, Any]) -> None:
        """Changes values of controls and waits until everything is shown."""
        self.requested += 1
        changes = {"values": self.page.first() | values, "requested": self.requested}
        await self.send(
            "PATCH-DOC",
            {
                "events": [
                    {"kind": "ModelChanged", "model": {"id": self.model}, "attr": name, "new": new}
                    for name, new in changes.items()
                ]
            },
        )
        await self.seen()


def controls(part: Any) -> Iterable[str]:
    """Ids of the models with the values of controls in a document."""
    if isinstance(part, dict):
        if {"presets", "fields"} <= set(part.get("attributes", ())):
            yield part["id"]
        part = part.values()
    elif not isinstance(part, list):
        return
    for one in part:
        yield from controls(one)


@contextlib.asynccontextmanager
async def opened(address: str, page: Page, query: str = "") -> AsyncIterator[Tab]:
    """A page that shows everything."""
    answer = await AsyncHTTPClient().fetch(f"{address}/{page.name}?{query}", request_timeout=PATIENCE)
    (token,) = set(re.findall(r'"token":"([^"]+)"', answer.body.decode()))
    connection = await websocket_connect(
        HTTPRequest(
            f"{address.replace('http', 'ws')}/{page.name}/ws",
            headers={"Origin": address},
            request_timeout=PATIENCE,
            connect_timeout=PATIENCE,
        ),
        subprotocols=["bokeh", token],
        max_message_size=2**28,
    )
    try:
        tab = Tab(page, connection)
        await tab.receive()  # the server's ACK
        await tab.send("PULL-DOC-REQ", {})
        kind, content = "", ""
        while kind != "PULL-DOC-REPLY":
            kind, content = await tab.receive()
        (tab.model,) = controls(json.loads(content))
        await tab.send("PATCH-DOC", {"events": [READY]})
        await tab.seen()
        yield tab
    finally:
        connection.close()


async def visit(address: str, draw: random.Random) -> None:
    """A visit to a random page at a random address; one in ten has nonsense in it, of which the page must say so."""
    page = draw.choice(PAGES)()
    query = write(page.controls, page.first() | moved(page, draw))
    if draw.random() < 0.1:
        query = urlencode({page.controls[0].name: draw.choice(NONSENSE)})
    try:
        async with opened(address, page, query):
            pass
    except Exception as error:
        note(f"{page.name}?{query}: {type(error).__name__}: {error}")


async def visits(address: str, draw: random.Random, left: Iterator[int], server: int) -> None:
    """Visits one after the other until none is left."""
    for number in left:
        await visit(address, draw)
        if number % 50 == 0:
            print(f"  {number} visits, {memory(server):.0f} MiB", flush=True)


async def busy(address: str, draw: random.Random, end: asyncio.Event, moves: list[float]) -> None:
    """An open page that moves as soon as its last move is answered."""
    page = draw.choice(PAGES)()
    try:
        async with opened(address, page) as tab:
            while not end.is_set():
                began = time.perf_counter()
                await tab.move(moved(page, draw))
                moves.append(time.perf_counter() - began)
    except Exception as error:
        note(f"a busy {page.name}: {type(error).__name__}: {error}")


async def trickle(address: str, end: asyncio.Event) -> None:
    """A client that sends a byte of a request each second, and never ends it."""
    place = urlparse(address)
    _, writer = await asyncio.open_connection(place.hostname, place.port)
    for byte in itertools.chain(b"GET /network HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ", itertools.repeat(120)):
        if end.is_set():
            break
        with contextlib.suppress(OSError):  # the server may end the connection
            writer.write(bytes([byte]))
            await writer.drain()
        await asyncio.sleep(1)
    writer.close()


async def deaf(address: str, end: asyncio.Event) -> None:
    """A client that asks for pages and reads nothing."""
    place = urlparse(address)
    _, writer = await asyncio.open_connection(place.hostname, place.port, limit=1)
    for _ in range(20):
        with contextlib.suppress(OSError):
            writer.write(f"GET /theory/mixed HTTP/1.1\r\nHost: {place.netloc}\r\n\r\n".encode())
    await end.wait()
    writer.close()


async def bystander(address: str, end: asyncio.Event) -> list[float]:
    """The seconds in which a visitor who loads the pages one after the other sees everything."""
    found = []
    for kind in itertools.cycle(PAGES):
        began = time.perf_counter()
        async with opened(address, kind()):
            found.append(time.perf_counter() - began)
        if end.is_set() and len(found) >= len(PAGES):
            return found
        await asyncio.sleep(0.2)
    return found


def report(what: str, found: list[float], server: int) -> None:
    seconds = f"{np.median(found):.1f} s, {max(found):.1f} s at most ({len(found)})" if found else "none"
    print(f"{what}: {seconds}; {memory(server):.0f} MiB", flush=True)


async def abuse(address: str, server: int, asked: argparse.Namespace) -> None:
    """Everything, in order."""
    draw, once = random.Random(0), asyncio.Event()
    once.set()
    await bystander(address, once)  # compiles
    report("a visitor alone", await bystander(address, once), server)
    if asked.visits:
        end, left = asyncio.Event(), iter(range(1, asked.visits + 1))
        others = asyncio.gather(*(visits(address, draw, left, server) for _ in range(TOGETHER)))
        others.add_done_callback(lambda _: end.set())
        report(f"beside {asked.visits} visits, {TOGETHER} at a time", await bystander(address, end), server)
    if asked.connections:
        end, moves = asyncio.Event(), list[float]()
        slow = [asyncio.ensure_future(kind(address, end)) for kind in (trickle, deaf) for _ in range(asked.slow // 2)]
        report(f"beside {asked.slow} slow clients", await bystander(address, once), server)
        crowd = [asyncio.ensure_future(busy(address, draw, end, moves)) for _ in range(asked.connections)]
        asyncio.get_running_loop().call_later(asked.seconds, end.set)
        found = await bystander(address, end)
        report(f"beside {asked.connections} busy connections and the slow clients", found, server)
        await asyncio.gather(*crowd, *slow)
        report("a move of the busy connections", moves, server)
    await asyncio.sleep(40)  # sessions without a visitor end
    report("a visitor alone", await bystander(address, once), server)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--visits", type=int, default=500)
    parser.add_argument("--connections", type=int, default=200)
    parser.add_argument("--slow", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=120, help="of the busy connections")
    asked = parser.parse_args()
    AsyncHTTPClient.configure(None, max_clients=1000)
    with serving() as (address, server):
        asyncio.run(abuse(address, server, asked))
    print(f"{len(wrong)} answers were not as they should be")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
