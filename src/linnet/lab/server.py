"""The laboratory's server: one page a room, what can be taken away, theory and claims; nothing from elsewhere."""

import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path

import panel as pn
from bokeh.settings import settings
from tornado.web import RedirectHandler

from linnet._check import InputError
from linnet.lab.page import Stand
from linnet.lab.pages import PAGES, style, top
from linnet.lab.programs import held
from linnet.lab.room import Room
from linnet.lab.rooms import ROOMS
from linnet.lab.socket import complain, install
from linnet.lab.take import Away
from linnet.report.formulas import mathml

_HERE = Path(__file__).parent
_ALL = ("", "0.0.0.0")
_TURN = 5e-4  # seconds after which a thread that computes lets the loop go on, ten times as often as Python would
FILES = {
    "nc": "Data (netCDF)",
    "svg": "Picture (SVG)",
    "png": "Picture (PNG)",
    "gif": "Animation (GIF)",
    "mp4": "Animation (MP4)",
}


def page(kind: type[Room]) -> Callable[[], pn.Template]:
    """A function that makes a room's page for whoever comes, with what the address says."""
    markup = (_HERE / "page.html").read_text(encoding="utf-8")

    def made() -> pn.Template:
        room = kind()
        query = {name: values[0].decode("utf-8", "replace") for name, values in pn.state.session_args.items()}
        trouble, values = "", room.first()
        try:
            values = room.read(query)
        except InputError as error:
            trouble = f"{error} The page shows its first values instead."
        stand = Stand(room, values, addressed=True)
        if trouble:
            stand.warn(trouble)
        template = pn.Template(markup)
        template.add_variable("room", room)
        template.add_variable("top", top(room.name))
        template.add_variable("plates", stand.plates)
        template.add_variable("style", style())
        template.add_variable("files", [(end, FILES[end]) for end in room.files])
        template.add_variable("formula", mathml(room.formula, "block"))
        for name, part in (("controls", stand.controls), ("words", stand.words), ("take", stand.take)):
            template.add_panel(name, part)
        for name, pane in stand.panes.items():
            template.add_panel(f"plate_{name}", pane)
        return template

    return made


def served(*, address: str = "127.0.0.1", port: int = 0) -> "pn.io.server.Server":
    """A server that listens and does not run yet: on a free port unless one is named, for this machine alone.

    Bokeh answers pages of known names only. A server for all cannot know by which name it is called.
    """
    pn.extension()
    settings.log_level = "error"  # what the browser's console says of pictures that are still empty
    try:
        with socket.socket() as probe:  # a free port, to be told before the server runs
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address, port))
            port = probe.getsockname()[1]
    except (OSError, OverflowError) as error:
        raise InputError(
            f"{address}:{port} cannot be served at ({str(error).rstrip('.')}): give an address of this machine and "
            "another port, or 0 for a free one."
        ) from None
    install()
    held()  # counts from now on
    names = ["*"] if address in _ALL else ["127.0.0.1", "localhost", address]
    server = pn.io.server.get_server(
        {room.name: page(room) for room in ROOMS},
        port=port,
        address=address,
        websocket_origin=[f"{name}:{port}" for name in dict.fromkeys(names)],
        title={room.name: f"{room.title} · Linnet" for room in ROOMS},
        extra_patterns=[
            (r"/", RedirectHandler, {"url": f"/{ROOMS[0].name}", "permanent": False}),
            (r"/take/([a-z]+)\.([a-z0-9]+)", Away),
            *PAGES,
        ],
        start=False,
        show=False,
    )
    server.io_loop.asyncio_loop.set_exception_handler(complain)
    return server


def run(*, address: str, port: int, browser: bool, path: str) -> None:
    """Serves until it is interrupted or told to end; says where, and opens a browser there."""
    from rich.console import Console

    server = served(address=address, port=port)
    sys.setswitchinterval(_TURN)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: what visitors dropped is removed
    place = f"http://{'127.0.0.1' if address in _ALL else address}:{server.port}/{path}"
    try:
        Console().print(f"Linnet's laboratory is at {place} (Ctrl-C ends it).", highlight=False, soft_wrap=True)
        server.start()
        if browser:
            webbrowser.open(place)
        server.io_loop.start()
    except KeyboardInterrupt:
        server.stop()
