"""The server's pages to read: the theory with its formulas and links, claims and errata, and nothing else."""

import asyncio
import re
from pathlib import Path

import pytest

pytest.importorskip("panel", reason="panel is not installed: pip install '.[lab]'")
pytest.importorskip("latex2mathml", reason="latex2mathml is not installed: pip install '.[lab]'")

from tornado.httpclient import AsyncHTTPClient
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application

from linnet.claims import Erratum, registry
from linnet.lab import export, reference
from linnet.lab.pages import PAGES
from linnet.lab.pages.data import DataPage

ROOT = Path(__file__).parents[2]
NAMES = sorted(path.stem for path in (ROOT / "docs" / "theory").glob("*.md"))


def fetch(*paths):
    """(status, text) of each, from a server with the lab's handlers."""

    async def asked():
        (socket,) = bind_sockets(0, "127.0.0.1")
        server = HTTPServer(
            Application([*reference.HANDLERS, (r"/download/([a-z]+)\.([a-z0-9]+)", export.DownloadHandler)])
        )
        server.add_socket(socket)
        address = f"http://127.0.0.1:{socket.getsockname()[1]}"
        client = AsyncHTTPClient(force_instance=True)
        try:
            return [await client.fetch(address + path, raise_error=False, request_timeout=300) for path in paths]
        finally:
            client.close()
            server.stop()
            await server.close_all_connections()

    return [(answer.code, answer.body) for answer in asyncio.run(asked())]


def text(html):
    return re.sub(r"<(style|script|pre|code|math)\b.*?</\1>|<[^>]+>", "", html, flags=re.DOTALL)


def test_all_pages_lead_somewhere():
    for page in PAGES:
        assert set(page.theory) <= set(reference.theory())
        assert set(page.claims) <= set(registry())


@pytest.mark.parametrize("name", NAMES)
def test_theory(name):
    ((status, body),) = fetch(f"/theory/{name}")
    html = body.decode()
    assert status == 200
    assert f"<h1>{reference.theory_page(name)[0]}</h1>" in html
    assert html.count("<math") >= (4 if name != "layer" else 0)
    assert "$" not in text(html)
    assert "merror" not in html
    assert not re.findall(r'(?:src|href)="(?:https?:)?//', html)
    for link in re.findall(r"<main.*</main>", html, re.DOTALL)[0].split('href="')[1:]:
        target = link.split('"')[0]
        assert re.fullmatch(rf"\.\./claims(/\w+/[CE]\d+)?|(?:{'|'.join(NAMES)})(#[\w-]+)?|https?://.*", target), target
    # every id that the page names leads to its claim
    named = set(re.findall(r"`(\w+/[CE]\d+)`", (ROOT / "docs" / "theory" / f"{name}.md").read_text(encoding="utf-8")))
    assert named == set(re.findall(r'href="\.\./claims/(\w+/[CE]\d+)"', html))
    assert named <= set(registry())


def test_the_first_page_of_theory():
    (first, bare) = fetch("/theory/index", "/theory/")
    assert first == bare
    assert b'<a href="mixed">' in first[1]
    assert b'<a href="../claims">' in first[1]


@pytest.mark.parametrize(
    "name", ["nosuch", "..%2f..%2fREADME", "../../README", "%2fetc%2fpasswd", "mixed.md", "mixed/", "mixed%00"]
)
def test_there_is_no_other_page(name):
    ((status, body),) = fetch(f"/theory/{name}")
    assert status in (400, 404)
    if status == 404:
        assert "is not known: there are balance, convergence" in body.decode()


def test_claims_and_errata():
    entries = registry()
    claim = next(entry for entry in entries.values() if entry.hypotheses and entry.parameters)
    erratum = next(entry for entry in entries.values() if isinstance(entry, Erratum) and entry.check and entry.reading)
    noted = next(entry for entry in entries.values() if entry.check is None)
    found = fetch(*(f"/claims/{entry.id}" for entry in (claim, erratum, noted)))
    assert [status for status, _ in found] == [200] * 3
    first, second, third = (body.decode() for _, body in found)
    assert f"<h1>{claim.id}</h1>" in first
    assert f"linnet verify {claim.id}\n" in first
    for word in ("paper", "place", "kind", "hypothesis", "parameter"):
        assert f"<dt>{word}</dt>" in first
    for word in ("grade", "charitable reading", "printed", "corrected", "evidence"):
        assert f"<dt>{word}</dt>" in second
    assert "No computation decides it." in third
    assert "linnet verify" not in third
    assert 'href="../../theory/mixed"' in fetch("/claims/mixed/C9")[0][1].decode()


def test_all_claims():
    ((status, body),) = fetch("/claims")
    assert status == 200
    assert set(re.findall(r'href="claims/(\w+/[CE]\d+)"', body.decode())) == set(registry())


@pytest.mark.parametrize("name", ["mixed/C999", "nosuch/C1", "", "<b>", "../theory"])
def test_no_such_claim(name):
    ((status, body),) = fetch(f"/claims/{name.replace('<', '%3C').replace('>', '%3E').replace('../', '..%2f')}")
    assert status == 404
    assert "is not known" in body.decode()
    assert "<b>" not in body.decode()


def test_pages_carry_the_way_back():
    for path, root in (("/theory/mixed", "../"), ("/claims", "./"), ("/claims/mixed/C9", "../../")):
        ((_, body),) = fetch(path)
        for page in PAGES:
            assert f'href="{root}{page.name}"' in body.decode()


def test_data_of_a_dropped_file_are_taken_away(tmp_path):
    xarray = pytest.importorskip("xarray")
    page, content = DataPage(), b"a,b,c\n1,2,3\n2,3,5\n4,4,1\n0,1,1\n"
    values = page.on_upload("mine.csv", len(content), content, page.first())
    good, gone, odd = fetch(
        "/download/data.nc?depth=1&file=" + values["file"].replace("/", "%2F"),
        "/download/data.nc?file=" + "0" * 64 + "%2Fmine.csv",
        "/download/data.nc?file=" + values["file"].replace("/", "%2F") + "&outputs=9",
    )
    assert good[0] == 200
    (tmp_path / "data.nc").write_bytes(good[1])
    with xarray.open_dataset(tmp_path / "data.nc") as data:
        assert data["modes"].sizes["mode"] == 1
    assert gone == (400, b"mine.csv is not kept here any more: drop the file again.")
    assert odd == (400, b"outputs = ['9'] is not allowed: give one or more of 1, 2, 3.")


def test_a_file_that_cannot_be_made_is_a_sentence(monkeypatch):
    def broken(page, values, path):
        raise ValueError("no\nink")

    monkeypatch.setattr(export, "write", broken)
    assert fetch("/download/edge.png") == [
        (500, b"edge.png could not be made (ValueError: no ink); other values may work.")
    ]
