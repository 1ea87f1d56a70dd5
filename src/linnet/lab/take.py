"""What can be taken away: made by the very lines that the page shows."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from tornado.web import RequestHandler

from linnet._check import InputError
from linnet.lab.control import Values
from linnet.lab.room import Room
from linnet.lab.rooms import ROOMS

_KINDS = {
    "nc": "application/x-netcdf",
    "svg": "image/svg+xml",
    "png": "image/png",
    "gif": "image/gif",
    "mp4": "video/mp4",
}


def made(room: Room, values: Values) -> dict[str, Any]:
    """What the room's lines leave: `data`, `figure` and, where something moves, `run`.

    The lines are the room's own, with checked values in them, and no text of anyone else's.
    """
    names: dict[str, Any] = {"print": lambda *_: None}
    exec(compile(room.ran(values), f"<{room.name}>", "exec"), names)
    return names


def write(room: Room, values: Values, path: Path) -> None:
    """Writes what the suffix says: the data, a picture or an animation."""
    end = path.suffix.removeprefix(".")
    if end not in room.files:
        raise InputError(f"{path.name} is not allowed: {room.title} can be taken away as {', '.join(room.files)}.")
    found = made(room, values)
    if end == "nc":
        found["data"].to_netcdf(path, engine="scipy")
    elif end in ("svg", "png"):
        found["figure"].savefig(path)
    else:
        found["run"].animate(path)


class Away(RequestHandler):
    """GET /take/ROOM.SUFFIX?STATE: the file that a page in this state would give."""

    async def get(self, name: str, end: str) -> None:
        rooms = {room.name: room() for room in ROOMS}
        query = {key: self.get_argument(key) for key in self.request.arguments}
        try:
            if name not in rooms or end not in rooms[name].files:
                raise InputError(f"{name}.{end} is not allowed: there are {', '.join(rooms)}.")
            values = await asyncio.to_thread(rooms[name].read, query)
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / f"{name}.{end}"
                await asyncio.to_thread(write, rooms[name], values, path)
                content = path.read_bytes()
        except InputError as error:
            self._refuse(400, str(error))
            return
        except Exception as error:  # whatever it is, a sentence
            said = f"{type(error).__name__}: {error}".replace("\n", " ")
            self._refuse(500, f"{name}.{end} could not be made ({said}); other values may work.")
            return
        self.set_header("Content-Type", _KINDS[end])
        self.set_header("Content-Disposition", f'attachment; filename="linnet-{name}.{end}"')
        self.finish(content)

    def _refuse(self, status: int, sentence: str) -> None:
        self.set_status(status)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(sentence)
