"""The connection to a browser: changes that belong together are one message, sent at once."""

import asyncio
from collections.abc import Awaitable
from typing import Any

from panel.io.server import Server, per_app_patterns
from tornado.websocket import WebSocketClosedError

_BASE: Any = next(handler for path, handler, *_ in per_app_patterns if path == "/ws")


class Socket(_BASE):
    """Panel's connection with fewer, undelayed messages.

    Bokeh sends a message for every property that changes, each in small pieces. The operating system would delay the
    pieces until those before have been acknowledged, 40 ms for every change; and a browser would paint between the
    messages, the same panel several times.
    """

    _patch: Any = None  # changes that are not sent yet

    def open(self, *args: str, **kwargs: str) -> None:
        """Opens the connection."""
        super().open(*args, **kwargs)
        self.set_nodelay(True)

    def send_message(self, message: Any) -> Awaitable[None]:
        """Merges waiting changes into one message: Bokeh collects them while it holds a document, and then waits."""
        if message.msgtype != "PATCH-DOC":
            return super().send_message(message)
        if self._patch is None:
            self._patch = message
        else:
            self._patch.content["events"] += message.content["events"]
            self._patch.add_buffers(*message.buffers)
        return self._flush()

    async def _flush(self) -> None:
        message, self._patch = self._patch, None
        if message is not None:
            await super().send_message(message)


def use_socket(server: Server) -> None:
    """Makes this server's connections `Socket`s; other servers of the process keep Panel's."""
    for rule in server._tornado.wildcard_router.rules:
        if rule.target is _BASE:
            rule.target = Socket


def ignore_closed(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """An exception handler of a server's loop: ignores that a browser left while it was sent to.

    Panel abandons what it was sending to a closed page, so that nobody awaits the error.
    """
    if not isinstance(context.get("exception"), WebSocketClosedError):
        loop.default_exception_handler(context)
