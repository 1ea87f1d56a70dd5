"""The laboratory's server: one page a room, what can be taken away, theory and claims; nothing from elsewhere."""

import socket
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import panel as pn
from tornado.web import RedirectHandler

from linnet._check import InputError
from linnet.lab.control import read
from linnet.lab.page import Stand
from linnet.lab.room import Room
from linnet.lab.rooms import ROOMS
from linnet.lab.take import Away
from linnet.report.formulas import mathml

_HERE = Path(__file__).parent
FILES = {"nc": "Data (netCDF)", "svg": "Picture (SVG)", "png": "Picture (PNG)", "gif": "Animation (GIF)", "mp4": "Animation (MP4)"}


def page(kind: type[Room]) -> Callable[[], pn.Template]:
    """A function that makes a room's page for whoever comes, with what the address says."""
    palette = resources.files("linnet.report").joinpath("palette.css").read_text(encoding="utf-8")
    style = palette + (_HERE / "page.css").read_text(encoding="utf-8")
    markup = (_HERE / "page.html").read_text(encoding="utf-8")

    def made() -> pn.Template:
        room = kind()
        query = {name: values[0].decode("utf-8", "replace") for name, values in pn.state.session_args.items()}
        trouble, values = "", room.first()
        try:
            values = read(room.controls, query)
        except InputError as error:
            trouble = f"{error} The page shows its first values instead."
        stand = Stand(room, values, addressed=True)
        if trouble:
            stand.warn(trouble)
        template = pn.Template(markup)
        template.add_variable("room", room)
        template.add_variable("rooms", ROOMS)
        template.add_variable("plates", stand.plates)
        template.add_variable("style", style)
        template.add_variable("files", [(end, FILES[end]) for end in room.files])
        template.add_variable("formula", mathml(room.formula, "block"))
        for name, part in (("controls", stand.controls), ("words", stand.words), ("take", stand.take)):
            template.add_panel(name, part)
        for name, pane in stand.panes.items():
            template.add_panel(f"plate_{name}", pane)
        return template

    return made


def served(*, address: str = "127.0.0.1", port: int = 0, origins: tuple[str, ...] = ()) -> "pn.io.server.Server":
    """A server that listens and does not run yet: on a free port unless one is named, for this machine unless it is asked.

    `origins` are the names under which other machines reach it.
    """
    pn.extension()
    if port == 0:
        with socket.socket() as probe:  # a free port, to be told before the server runs
            probe.bind((address, 0))
            port = probe.getsockname()[1]
    allowed = [f"{name}:{port}" for name in ("127.0.0.1", "localhost", address)]
    return pn.io.server.get_server(
        {room.name: page(room) for room in ROOMS},
        port=port,
        address=address,
        websocket_origin=[*dict.fromkeys(allowed), *origins],
        title={room.name: f"{room.title} · Linnet" for room in ROOMS},
        extra_patterns=[
            (r"/", RedirectHandler, {"url": f"/{ROOMS[0].name}", "permanent": False}),
            (r"/take/([a-z]+)\.([a-z0-9]+)", Away),
        ],
        start=False,
        show=False,
    )
