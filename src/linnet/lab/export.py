"""Exports of a page, made by executing the code that it shows."""

import asyncio
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tornado.web import RequestHandler

from linnet._check import InputError
from linnet.lab.control import Values
from linnet.lab.page import Page
from linnet.lab.pages import PAGES

_KINDS = {
    "nc": "application/x-netcdf",
    "svg": "image/svg+xml",
    "png": "image/png",
    "gif": "image/gif",
    "mp4": "video/mp4",
}
_POOL = ThreadPoolExecutor(max_workers=2, thread_name_prefix="linnet-export")
_WAITING = 16


class _BusyError(Exception):
    """Too many exports wait already."""


def execute(page: Page, values: Values) -> dict[str, Any]:
    """The names that the page's code leaves: `data`, `figure` and, where there is a training, `run`.

    The code is Linnet's own with checked values in it, and contains no text of visitors but as string literals.
    """
    names: dict[str, Any] = {"print": lambda *_: None}
    exec(compile(page.executed_code(values), f"<{page.name}>", "exec"), names)
    return names


def write(page: Page, values: Values, path: Path) -> None:
    """Writes the data, a figure or an animation, by the suffix of the path."""
    end = path.suffix.removeprefix(".")
    if end not in page.files:
        raise InputError(f"{path.name} is not allowed: {page.title} can be exported as {', '.join(page.files)}.")
    page.afford(values)
    found = execute(page, values)
    if end == "nc":
        found["data"].to_netcdf(path, engine="scipy")
    elif end in ("svg", "png"):
        found["figure"].savefig(path)
    else:
        found["run"].animate(path)


def _written(page: Page, values: Values, name: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        write(page, values, path)
        return path.read_bytes()


class DownloadHandler(RequestHandler):
    """GET /download/PAGE.SUFFIX?STATE: the file that a page in this state would give."""

    waiting = 0  # exports that are made or wait, of all visitors

    def decode_argument(self, value: bytes, name: str | None = None) -> str:
        """As pages read addresses: bytes that are no text are refused by the control that gets them."""
        return value.decode("utf-8", "replace")

    async def get(self, name: str, end: str) -> None:
        pages = {page.name: page() for page in PAGES}
        query = {key: self.get_argument(key) for key in self.request.arguments}
        try:
            if name not in pages or end not in pages[name].files:
                raise InputError(f"{name}.{end} is not allowed: there are {', '.join(pages)}.")
            values = await asyncio.to_thread(pages[name].read, query)
            content = await self._made(pages[name], values, f"{name}.{end}")
        except _BusyError as error:
            self._refuse(503, str(error))
            return
        except InputError as error:
            self._refuse(400, str(error))
            return
        except Exception as error:  # whatever it is, a sentence
            message = f"{type(error).__name__}: {error}".replace("\n", " ")
            self._refuse(500, f"{name}.{end} could not be made ({message}); other values may work.")
            return
        self.set_header("Content-Type", _KINDS[end])
        self.set_header("Content-Disposition", f'attachment; filename="linnet-{name}.{end}"')
        self.finish(content)

    async def _made(self, page: Page, values: Values, name: str) -> bytes:
        """The file, made in its turn: exports share two threads, which pages do not use."""
        cls = type(self)
        if cls.waiting >= _WAITING:
            raise _BusyError(f"{name} cannot be made now: {_WAITING} other exports are waiting; try again later.")
        cls.waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(_POOL, _written, page, values, name)
        finally:
            cls.waiting -= 1

    def _refuse(self, status: int, sentence: str) -> None:
        self.set_status(status)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(sentence)
