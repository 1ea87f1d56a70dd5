"""Requests that the lab refuses before any page sees them: for other hosts, from other sites, for too many pages."""

import re
from collections.abc import Collection
from typing import Any

from panel.io.server import Server
from tornado.httputil import HTTPServerRequest
from tornado.routing import Matcher, Rule
from tornado.web import RequestHandler

from linnet.lab.pages import PAGES

MOST = 256  # pages that are open at a time, of some MiB each


class Foreign(Matcher):
    """Matches requests whose Host is none of these names (None: all are known), and those that a page of another site
    makes without leaving it: browsers say so in Sec-Fetch-Site and Sec-Fetch-Mode.

    A name that an attacker's server resolves to this machine would otherwise read pages in a visitor's browser.
    """

    def __init__(self, names: Collection[str] | None):
        self.names = names

    def match(self, request: HTTPServerRequest) -> dict[str, Any] | None:
        """An empty dictionary if the request is refused."""
        host = re.sub(r":\d+$", "", request.headers.get("Host", "")).strip("[]").lower()
        if self.names is not None and host not in self.names:
            return {}
        get = request.headers.get
        inside = get("Sec-Fetch-Site") == "cross-site" and get("Sec-Fetch-Mode") not in ("navigate", "websocket")
        return {} if inside else None


class Full(Matcher):
    """Matches requests for a page while `MOST` pages are open, and new connections to pages while twice as many are.

    A page that was answered is connected to later, so connections have room of their own.
    """

    def __init__(self, server: Server):
        self.server = server
        self.paths = {f"/{page.name}": 1 for page in PAGES} | {f"/{page.name}/autoload.js": 1 for page in PAGES}
        self.paths |= {f"/{page.name}/ws": 2 for page in PAGES}

    def match(self, request: HTTPServerRequest) -> dict[str, Any] | None:
        """An empty dictionary if the request is refused."""
        times = self.paths.get(request.path.rstrip("/"))
        return None if times is None or len(self.server.get_sessions()) < times * MOST else {}


class Refused(RequestHandler):
    """Answers with a status and a sentence, whatever the method."""

    def initialize(self, status: int, sentence: str) -> None:
        """Takes what the rule gives."""
        self.status, self.sentence = status, sentence

    def prepare(self) -> None:
        """The answer."""
        self.set_status(self.status)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(self.sentence)


def guard(server: Server, names: Collection[str] | None) -> None:
    """Lets this server refuse what `Foreign` and `Full` match."""
    known = None if names is None else {name.strip("[]").lower() for name in names}
    foreign = "Not allowed: this lab answers to its own address and to its own pages only."
    full = f"This lab is full: {MOST} pages are open; close some, or try again later."
    server._tornado.wildcard_router.rules[:0] = [
        Rule(Foreign(known), Refused, {"status": 403, "sentence": foreign}),
        Rule(Full(server), Refused, {"status": 503, "sentence": full}),
    ]
