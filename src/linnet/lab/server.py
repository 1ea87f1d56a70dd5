"""The lab's server: interactive pages, their downloads, theory and claims; no resources of other machines."""

import signal
import socket
import sys
import threading
import tomllib
import webbrowser
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import panel as pn
from tornado.ioloop import PeriodicCallback
from tornado.web import RedirectHandler

from linnet._check import InputError, choice
from linnet.lab.control import write
from linnet.lab.export import DownloadHandler
from linnet.lab.guard import guard
from linnet.lab.page import Page
from linnet.lab.pages import PAGES
from linnet.lab.programs import programs
from linnet.lab.reference import HANDLERS, style, top
from linnet.lab.socket import ignore_closed, use_socket
from linnet.lab.view import PageView
from linnet.report import mathml

_HERE = Path(__file__).parent
_ALL = ("", "0.0.0.0")
_AWAKE = 500  # milliseconds after which an idle loop handles signals
_SWITCH = 5e-4  # seconds between switches of threads, a tenth of the default, so that the loop answers sooner
FILES = {
    "nc": "Data (netCDF)",
    "svg": "Picture (SVG)",
    "png": "Picture (PNG)",
    "gif": "Animation (GIF)",
    "mp4": "Animation (MP4)",
}


def template(kind: type[Page]) -> Callable[[], pn.Template]:
    """A function that makes this page for each visitor, with the values in the address."""
    markup = (_HERE / "page.html").read_text(encoding="utf-8")

    def made() -> pn.Template:
        page = kind()
        query = {name: values[0].decode("utf-8", "replace") for name, values in pn.state.session_args.items()}
        warning, values = "", page.first()
        try:
            values = page.read(query)
        except InputError as error:
            warning = f"{error} The page shows its first values instead."
        view = PageView(page, values, addressed=True, warning=warning)
        template = pn.Template(markup)
        template.add_variable("page", page)
        template.add_variable("top", top(page.name))
        template.add_variable("panels", view.panels)
        template.add_variable("style", style())
        template.add_variable("files", [(end, FILES[end]) for end in page.files])
        template.add_variable("formula", mathml(page.formula, "block"))
        for name, part in (("controls", view.controls), ("summary", view.summary), ("export", view.export)):
            template.add_panel(name, part)
        for name, pane in view.panes.items():
            template.add_panel(f"panel_{name}", pane)
        return template

    return made


def served(*, address: str = "127.0.0.1", port: int = 0) -> "pn.io.server.Server":
    """A server that listens but does not run yet, on a free port unless one is given.

    Requests and connections to known host names only are accepted; a server for all machines cannot know its own.
    """
    try:
        with socket.socket() as probe:  # a free port, known before the server runs
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address, port))
            port = probe.getsockname()[1]
    except (OSError, OverflowError) as error:
        raise InputError(
            f"{address}:{port} cannot be served at ({str(error).rstrip('.')}): give an address of this machine and "
            "another port, or 0 for a free one."
        ) from None
    programs()  # counts from now on
    names = ["*"] if address in _ALL else ["127.0.0.1", "localhost", address]
    server = pn.io.server.get_server(
        {page.name: template(page) for page in PAGES},
        port=port,
        address=address,
        websocket_origin=[f"{name}:{port}" for name in dict.fromkeys(names)],
        title={page.name: f"{page.title} · Linnet" for page in PAGES},
        extra_patterns=[
            (r"/", RedirectHandler, {"url": f"/{PAGES[0].name}", "permanent": False}),
            (r"/download/([a-z]+)\.([a-z0-9]+)", DownloadHandler),
            *HANDLERS,
        ],
        start=False,
        show=False,
    )
    use_socket(server)
    guard(server, None if names == ["*"] else names)
    server.io_loop.asyncio_loop.set_exception_handler(ignore_closed)
    return server


def run(page: str | None, file: str | PathLike[str] | None, *, address: str, port: int, browser: bool) -> None:
    """Serves until interrupted or terminated; prints the address, and opens a browser at the page."""
    from rich.console import Console

    path = _path(None if file is None else Path(file), page)
    server = served(address=address, port=port)
    sys.setswitchinterval(_SWITCH)
    loop = server.io_loop
    if threading.current_thread() is threading.main_thread():
        # raises nothing, because an exception in a finalizer would be lost; what was uploaded is removed after the loop
        signal.signal(signal.SIGTERM, lambda *_: loop.asyncio_loop.call_soon_threadsafe(loop.stop))
        PeriodicCallback(lambda: None, _AWAKE).start()
    place = f"http://{'127.0.0.1' if address in _ALL else address}:{server.port}/{path}"
    try:
        Console().print(f"Linnet's lab is at {place} (Ctrl-C ends it).", highlight=False, soft_wrap=True)
        server.start()
        if browser:
            webbrowser.open(place)
        loop.start()
    except KeyboardInterrupt:
        pass
    server.stop()


def _path(file: Path | None, page: str | None) -> str:
    pages = {kind.name: kind for kind in PAGES}
    if file is None:
        return "" if page is None else choice("page", page, list(pages))
    if page is not None:
        raise InputError(f"page = {page!r} is not allowed with a file: the file says which page it is.")
    table = _table(file)
    made: Page = pages[choice("page", table.get("page"), list(pages))]()
    given = table.get("controls", {})
    if not isinstance(given, dict):
        raise InputError(f"{file}: controls = {given!r} is not allowed: give a table.")
    known = {control.name for control in made.controls}
    for name in given:
        if name not in known:
            raise InputError(f"{file}: {name} is not a control of this page; controls are {', '.join(sorted(known))}.")
    query = write(made.controls, made.checked(given))
    return f"{made.name}?{query}" if query else made.name


def _table(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{file} is no TOML file: {error}.") from None
