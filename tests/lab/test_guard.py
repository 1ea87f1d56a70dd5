"""What the lab's server refuses, over its own port: other hosts, other sites, other paths."""

import asyncio
import http.client
import threading
from types import SimpleNamespace

import pytest

pytest.importorskip("panel", reason="panel is not installed: pip install '.[lab]'")

from tornado.httputil import HTTPHeaders

from linnet.lab import guard
from linnet.lab.guard import Foreign
from linnet.lab.server import served

SOCKET = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Protocol": "bokeh, none",
}


@pytest.fixture(scope="module")
def ask():
    """Sends a request to a lab of its own: (status, headers, body)."""
    there, found = threading.Event(), {}

    def serve():
        asyncio.set_event_loop(asyncio.new_event_loop())
        server = served()
        found.update(server=server, port=server.port)
        server.start()
        server.io_loop.add_callback(there.set)
        server.io_loop.start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    assert there.wait(120)

    def get(path, method="GET", **headers):
        connection = http.client.HTTPConnection("127.0.0.1", found["port"], timeout=60)
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        text = b"" if answer.status == 101 else answer.read()
        connection.close()
        return answer.status, dict(answer.getheaders()), text

    get.port = found["port"]
    yield get
    loop = found["server"].io_loop
    loop.add_callback(found["server"].stop)
    loop.add_callback(loop.stop)
    thread.join(30)


def test_its_own_address_is_served(ask):
    for host in (f"127.0.0.1:{ask.port}", f"localhost:{ask.port}", f"LOCALHOST:{ask.port}"):
        assert ask("/claims", Host=host)[0] == 200
    assert ask("/claims", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")[0] == 200  # a link in a mail


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "[::1]", "localhost."])
@pytest.mark.parametrize("path", ["/network", "/claims", "/download/edge.nc", "/network/autoload.js", "/static/x.js"])
def test_other_hosts_are_refused(host, path, ask):
    status, _, text = ask(path, Host=host)
    assert status == 403
    assert text == b"Not allowed: this lab answers to its own address and to its own pages only."


def test_other_sites_are_refused(ask):
    for path in ("/download/edge.nc", "/edge/autoload.js?bokeh-autoload-element=1"):
        for mode in ("no-cors", "cors", "same-origin"):
            assert ask(path, Sec_Fetch_Site="cross-site", Sec_Fetch_Mode=mode)[0] == 403
    status, _, _ = ask("/edge/ws", **SOCKET, Origin="http://evil.example")
    assert status == 403
    assert ask("/edge/ws", **SOCKET, Origin="http://evil.example", Host="evil.example")[0] == 403
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert ask("/edge", method)[0] == 405


@pytest.mark.parametrize(
    "path",
    [
        "/download/../../etc/passwd.nc",
        "/static/../../../../etc/passwd",
        "/static/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        "/theory/../../etc/passwd",
        "/theory/%2e%2e%2f%2e%2e%2fsecurity",
        "/claims/../../etc/passwd",
        "/theory/mixed%00",
        "/download/network.py",
        "/download/os.nc",
    ],
)
def test_no_path_leads_outside(path, ask):
    status, _, text = ask(path)
    assert status in (400, 403, 404)
    assert b"root:" not in text
    assert b"Traceback" not in text


HOSTILE = [
    "lr=%3Cscript%3Ealert(1)%3C/script%3E",
    "lr=__import__('os').system('true')",
    "lr=nan",
    "lr=1e999",
    "lr=%00",
    "lr=%ff%fe",
    "spectrum=" + ",".join(["1"] * 5000),
    "depth=6.5",
    "depth=" + "9" * 5000,
    "optimizer=descent%22%2C%22x",
    "init=%7B%7B7*7%7D%7D",
    "seed=-1",
]


@pytest.mark.parametrize("query", HOSTILE)
def test_a_hostile_address_is_one_sentence(query, ask):
    status, headers, text = ask(f"/download/network.nc?{query}")
    assert status == 400
    assert headers["Content-Type"].startswith("text/plain")
    said = text.decode()
    assert "is not allowed" in said
    assert "\n" not in said.strip()
    assert len(said) < 1000


def test_a_page_never_holds_what_an_address_says(ask):
    for query in (HOSTILE[0], "%3Cimg%20src%3Dx%3E=1", "lr=%22%3E%3Cscript%3Ealert(1)%3C/script%3E"):
        status, _, text = ask(f"/network?{query}")
        assert status == 200
        assert b"<script>alert" not in text
        assert b"<img src=x>" not in text
    for name in ("%3Cscript%3Ealert(1)%3C/script%3E", "mixed/%3Cimg%20src=x%3E"):
        for place in ("claims", "theory"):
            status, _, text = ask(f"/{place}/{name}")
            assert status == 404
            assert b"<script>alert" not in text
            assert b"<img src=x>" not in text


@pytest.mark.parametrize(
    "file", ["../../etc/passwd", "0" * 64 + "/../x.csv", "0" * 64 + "/x.csv", "/etc/passwd", "0" * 64 + "/a\x00b.csv"]
)
def test_files_are_named_by_their_content_only(file, ask):
    from urllib.parse import quote

    status, _, text = ask(f"/download/data.nc?file={quote(file, safe='')}")
    assert status == 400
    assert b"is not allowed" in text or b"is not kept here any more" in text


def test_a_full_lab_refuses_pages_and_nothing_else(ask, monkeypatch):
    monkeypatch.setattr(guard, "MOST", 0)
    for path in ("/network", "/edge/", "/edge/autoload.js?bokeh-autoload-element=1"):
        status, _, text = ask(path)
        assert (status, text) == (503, b"This lab is full: 256 pages are open; close some, or try again later.")
    assert ask("/edge/ws", **SOCKET, Origin=f"http://127.0.0.1:{ask.port}")[0] == 503
    assert ask("/claims")[0] == 200


def test_a_page_that_was_answered_has_room_for_its_connection(monkeypatch):
    monkeypatch.setattr(guard, "MOST", 3)
    open_pages = []
    full = guard.Full(SimpleNamespace(get_sessions=lambda: open_pages))

    def refused(path):
        return full.match(SimpleNamespace(path=path)) is not None

    open_pages += [None] * 2
    assert not refused("/network")
    open_pages += [None]
    assert refused("/network")
    assert not refused("/network/ws")
    open_pages += [None] * 3
    assert refused("/network/ws")
    assert not refused("/download/network.nc")


def test_a_server_for_all_machines_knows_no_names():
    def request(**headers):
        return SimpleNamespace(headers=HTTPHeaders(headers))

    assert Foreign(None).match(request(Host="lab.example")) is None
    assert Foreign(None).match(request(Host="lab.example", **{"Sec-Fetch-Site": "cross-site"})) == {}
    assert Foreign({"::1"}).match(request(Host="[::1]:80")) is None
    assert Foreign({"lab"}).match(request()) == {}
