"""The connection to a browser: what changes at once is one message, and it leaves at once."""

import asyncio
from collections.abc import Awaitable
from typing import Any

from panel.io.server import per_app_patterns  # Bokeh's, with Panel's own connection among them
from tornado.websocket import WebSocketClosedError

_PLACE = next(i for i, (path, *_) in enumerate(per_app_patterns) if path == "/ws")
_BASE: Any = per_app_patterns[_PLACE][1]


class Socket(_BASE):
    """Panel's connection, made quick.

    Bokeh sends a message for every property that changes, each in small pieces. The system would hold the pieces back
    until those before have been acknowledged, 40 ms for every move; and a browser would paint between the messages,
    the same picture several times.
    """

    _patch: Any = None  # changes that are not sent yet

    def open(self, *args: str, **kwargs: str) -> None:
        """A browser has come."""
        super().open(*args, **kwargs)
        self.set_nodelay(True)

    def send_message(self, message: Any) -> Awaitable[None]:
        """Changes that wait to be sent become one: Bokeh collects them while it holds a document, and then waits."""
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


def install() -> None:
    """Every server of Panel that is made from now on speaks so."""
    per_app_patterns[_PLACE] = ("/ws", Socket)


def complain(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What a server's loop does with errors that nobody hears: all but that a browser has left while it was sent to.

    Panel gives up what it was sending to a page that is closed, so that nobody hears how it ended.
    """
    if not isinstance(context.get("exception"), WebSocketClosedError):
        loop.default_exception_handler(context)
