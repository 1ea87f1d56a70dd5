"""A room as a page: its controls, its pictures, what it says, and a thread that computes while the page stays awake."""

import base64
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import panel as pn
import param
from bokeh.events import RangesUpdate, Reset, Tap
from panel.custom import JSComponent
from tornado.ioloop import IOLoop

from linnet._check import InputError
from linnet._files import placed
from linnet.lab.control import Values
from linnet.lab.dress import dress
from linnet.lab.programs import held
from linnet.lab.room import Plate, Room, Sight, Sources

_HERE = Path(__file__).parent
_STYLE = [(_HERE / "inside.css").read_text(encoding="utf-8")]
_SHORT = 32  # numbers
_POOL = ThreadPoolExecutor(max_workers=4, thread_name_prefix="linnet-lab")


class Controls(JSComponent):
    """The inputs of a room."""

    fields = param.List()
    values = param.Dict()
    presets = param.Dict()
    backs = param.Dict()
    asked = param.Integer(1)
    addressed = param.Boolean(False)
    dropped = param.Dict()
    dark = param.Boolean(False)
    _debounce = 0  # ms for which Panel would wait: here a newer move makes an older one void
    _esm = (_HERE / "controls.js").read_text(encoding="utf-8")
    _stylesheets = _STYLE


class Words(JSComponent):
    """What a room says."""

    sentence = param.String("")
    trouble = param.Boolean(False)
    numbers = param.Dict({})
    busy = param.Boolean(False)
    drawn = param.Integer(0)
    whole = param.Integer(0)
    _esm = (_HERE / "words.js").read_text(encoding="utf-8")
    _stylesheets = _STYLE


class Take(JSComponent):
    """The lines that make what is seen."""

    code = param.String("")
    toml = param.String("")
    _esm = (_HERE / "take.js").read_text(encoding="utf-8")
    _stylesheets = _STYLE


class Stand(pn.viewable.Viewer):
    """A room that somebody stands in: on the laboratory's page, or in a notebook.

    A move is computed in a thread; a newer one makes it void, so that the page shows the last of many moves and never
    an older one after it. What goes wrong is a sentence.
    """

    def __init__(
        self, room: Room, values: Mapping[str, Any] | None = None, *, addressed: bool = False, dark: bool = False
    ):
        super().__init__()
        self.room, self._document, self._asked, self._warning = room, pn.state.curdoc, 0, ""
        self._sources = Sources()
        self._shown: dict[str, Any] = {}  # the columns that each source has, the very objects
        self._queue: deque[tuple[int, Callable[[], None]]] = deque()  # what is to be shown, in its order
        self._opened = self._document is None or self._document.session_context is None
        self._loop = None if self._opened else IOLoop.current()
        self.plates = room.draw(self._sources)
        first = room.checked({} if values is None else values)
        presets = {name: dict(moved) for name, moved in room.presets.items()}
        backs = {label: list(names) for label, names in room.backs.items()}
        self.controls = Controls(
            fields=self._fields(first), values=first, presets=presets, backs=backs, addressed=addressed, dark=dark
        )
        self.words, self.take = Words(sizing_mode="stretch_width"), Take(sizing_mode="stretch_width")
        self.panes = {plate.name: self._pane(plate) for plate in self.plates}
        self._dress(dark)
        self.controls.param.watch(lambda event: self._move(event.new), "values")
        self.controls.param.watch(lambda event: self._drop(event.new), "dropped")
        self.controls.param.watch(lambda event: self._count(event.new), "asked")
        self.controls.param.watch(lambda event: self._dress(event.new), "dark")
        if not self._opened:
            self._document.on_session_destroyed(lambda _: self.leave())
            pn.state.onload(self._open)
        self._move(first)

    def leave(self) -> None:
        """Nobody looks any more: what is being computed is void."""
        self._asked += 1

    @property
    def values(self) -> Values:
        """Where the controls stand."""
        return dict(self.controls.values)

    @property
    def code(self) -> str:
        """The Python lines that make what is seen."""
        return self.room.code(self.room.checked(self.values))

    def write(self, path: str | Path) -> None:
        """Takes away what is seen: data (.nc), a picture (.svg, .png) or, where things move, a film (.gif, .mp4)."""
        from linnet.lab.take import write

        with placed(Path(path)) as place:
            write(self.room, self.room.checked(self.values), place)

    def move(self, **values: Any) -> None:
        """Moves controls, as a person would."""
        self.controls.values = self.room.checked(self.values | values)

    def __panel__(self) -> pn.viewable.Viewable:
        pictures = [pn.Column(pn.pane.Markdown(f"**{plate.title}**"), self.panes[plate.name]) for plate in self.plates]
        seen = pn.Column(self.words, pn.FlexBox(*pictures), self.take, sizing_mode="stretch_width")
        return pn.Row(pn.Column(self.controls, width=300), seen, sizing_mode="stretch_width")

    def warn(self, sentence: str) -> None:
        """Says it beside whatever is shown."""
        self._warning = sentence

    def _pane(self, plate: Plate) -> pn.pane.Bokeh:
        if plate.clicked:
            plate.figure.on_event(
                Tap, lambda event: self._to(self.room.clicked(plate.name, event.x, event.y, self.values))
            )
        if plate.zoomed:
            plate.figure.on_event(
                RangesUpdate,
                lambda e: self._to(self.room.zoomed(plate.name, (e.x0, e.x1, e.y0, e.y1), self.values)),
            )
            whole = (math.nan,) * 4
            plate.figure.on_event(Reset, lambda _: self._to(self.room.zoomed(plate.name, whole, self.values)))
        return pn.pane.Bokeh(plate.figure, sizing_mode="stretch_width")

    def _fields(self, values: Values) -> list[dict[str, Any]]:
        """What the page needs to draw the controls."""
        return [
            {"kind": type(c).__name__.lower(), "name": c.name, "label": c.label, "value": c.value}
            | {"hint": c.hint, "group": c.group, **c.field()}
            for c in self.room.offered(values)
        ]

    def _dress(self, dark: bool) -> None:
        for plate in self.plates:
            dress(plate.figure, dark=dark)

    def _to(self, values: Values) -> None:
        if values != self.values:
            self.controls.values = values

    def _drop(self, dropped: Mapping[str, Any]) -> None:
        self._asked += 1
        self.words.busy = True
        _POOL.submit(self._receive, self._asked, dropped)

    def _receive(self, number: int, dropped: Mapping[str, Any]) -> None:
        """Reads a dropped file in a thread: large ones take a while."""
        try:
            content = None if dropped["content"] is None else base64.b64decode(dropped["content"])
            values = self.room.dropped(str(dropped["name"]), int(dropped["size"]), content, self.values)
            # a file that was there already moves nothing, and is looked at again
            self._later(number, lambda: self._to(values) if values != self.values else self._move(values))
        except InputError as error:
            said = str(error)
            self._later(number, lambda: self._trouble(said))
        except Exception as error:
            said = f"This file could not be read ({type(error).__name__}: {error})."
            self._later(number, lambda: self._trouble(said))

    def _move(self, given: Mapping[str, Any]) -> None:
        self._asked += 1
        if self._asked > 1:
            self._warning = ""
        number = self._asked
        try:
            values = self.room.checked(given)
            if (fields := self._fields(values)) != self.controls.fields:
                self.controls.fields = fields
        except InputError as error:
            self._trouble(str(error))
            return
        self.words.busy = True
        _POOL.submit(self._work, number, values)

    def _count(self, asked: int) -> None:
        """A move has its number after it is there; one that was taken back at once has nothing to compute."""
        if not self.words.busy:
            self.words.param.update(drawn=asked, whole=asked)

    def _work(self, number: int, values: Values) -> None:
        """Computes in a thread, and hands over what there is to see as long as nobody has moved on."""
        if number != self._asked:
            return
        try:
            for sight in self.room.look(values):
                if number != self._asked:
                    return
                self._later(number, partial(self._show, sight))
            taken = {"code": self.room.code(values), "toml": self.room.toml(values)}
            self._later(number, lambda: self._done(taken))
        except InputError as error:
            said = str(error)
            self._later(number, lambda: self._trouble(said))
        except Exception as error:  # whatever it is, the page lives and says it
            said = f"This could not be computed ({type(error).__name__}: {error}); other values may work."
            self._later(number, lambda: self._trouble(said))
        finally:
            if self._loop is not None:  # a notebook's programs are its own
                held().bound()

    def _later(self, number: int, what: Callable[[], None]) -> None:
        self._queue.append((number, what))
        if self._loop is None:
            self._drain()
        else:
            self._loop.add_callback(self._wake, number)

    def _wake(self, number: int) -> None:
        """Asks for the document from the loop: from a thread, Bokeh may lose it while it sends what it held."""
        if number == self._asked:
            self._document.add_next_tick_callback(self._drain)

    def _open(self) -> None:
        """The page is there. Before, changes would be put off and end after newer ones."""
        self._opened = True
        self._drain()

    def _drain(self) -> None:
        """Shows what waits, one after the other: callbacks of the next tick have no order among themselves."""
        with _held(self._document):
            while self._opened and self._queue:
                number, what = self._queue.popleft()
                if number == self._asked:
                    what()

    def _show(self, sight: Sight) -> None:
        for name, columns in sight.columns.items():
            if self._shown.get(name) is not columns:
                self._sources[name].data = {column: _sent(values) for column, values in columns.items()}
                self._shown[name] = columns
        for plate in self.plates:
            if plate.name in sight.windows:
                _frame(plate, sight.windows[plate.name])
        if sight.sentence is not None:
            said = f"{self._warning} {sight.sentence}" if self._warning else sight.sentence
            self.words.param.update(sentence=said, trouble=bool(self._warning))
        if sight.numbers is not None:
            self.words.numbers = dict(sight.numbers)
        self.words.drawn = self.controls.asked

    def _done(self, taken: Mapping[str, str]) -> None:
        self.take.param.update(**taken)
        self.words.param.update(busy=False, whole=self.controls.asked)

    def _trouble(self, sentence: str) -> None:
        asked = self.controls.asked
        self.words.param.update(sentence=sentence, trouble=True, busy=False, drawn=asked, whole=asked)


@contextmanager
def _held(document: Any) -> Iterator[None]:
    """Sends what changes inside together; Bokeh's own hold, since what Panel's holds is lost while a page comes."""
    if document is None:
        yield
        return
    document.hold("combine")
    try:
        yield
    finally:
        document.unhold()


def _sent(values: Any) -> Any:
    """Short arrays as lists: every array travels by itself, and a few numbers are quicker among the others."""
    if isinstance(values, np.ndarray):
        return values.tolist() if values.size <= _SHORT else values
    return [_sent(part) for part in values] if isinstance(values, list) else values


def _frame(plate: Plate, window: tuple[float, float, float, float]) -> None:
    """Shows this window, unless a wheel has already put the picture there."""
    for span, start, end in ((plate.figure.x_range, *window[:2]), (plate.figure.y_range, *window[2:])):
        if max(abs(span.start - start), abs(span.end - end)) > 1e-9 * abs(end - start):
            span.update(start=start, end=end)
