"""Requests that the lab refuses before any page sees them: for other hosts, and from inside other sites."""

import re
from collections.abc import Collection
from typing import Any

from panel.io.server import Server
from tornado.httputil import HTTPServerRequest
from tornado.routing import Matcher, Rule
from tornado.web import RequestHandler


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


class Refused(RequestHandler):
    """Answers 403 in a sentence."""

    def prepare(self) -> None:
        """The answer, whatever the method."""
        self.set_status(403)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish("Not allowed: this lab answers to its own address and to its own pages only.")


def guard(server: Server, names: Collection[str] | None) -> None:
    """Lets this server refuse what `Foreign` matches."""
    known = None if names is None else {name.strip("[]").lower() for name in names}
    server._tornado.wildcard_router.rules.insert(0, Rule(Foreign(known), Refused))
