"""A page in a browser or a notebook: its components, and the thread that computes what they show."""

import base64
import math
import threading
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
from linnet.lab.page import Page, Update
from linnet.lab.panel import BokehPanel, Sources
from linnet.lab.programs import programs
from linnet.prediction import render

_HERE = Path(__file__).parent
_STYLE = [(_HERE / "inside.css").read_text(encoding="utf-8")]
_SHORT = 32  # numbers of an array that is sent as a list
THREADS, AT_ONCE = 4, 2  # that compute for all pages, and for one: a newer move does not wait for an older one to stop
_POOL = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="linnet-lab")


class Controls(JSComponent):
    """The inputs of a page."""

    fields = param.List()
    values = param.Dict()
    presets = param.Dict()
    resets = param.Dict()
    requested = param.Integer(1)
    addressed = param.Boolean(False)
    upload = param.Dict()
    dark = param.Boolean(False)
    _debounce = 0  # Panel need not wait: here a newer change cancels an older one
    _esm = (_HERE / "controls.js").read_text(encoding="utf-8")
    _stylesheets = _STYLE


class Summary(JSComponent):
    """Headline, quantities, and tables of a page, and whether it is still computing."""

    headline = param.String("")
    error = param.Boolean(False)
    quantities = param.Dict({})
    tables = param.List([])
    busy = param.Boolean(False)
    drawn = param.Integer(0)
    complete = param.Integer(0)
    _esm = (_HERE / "summary.js").read_text(encoding="utf-8")
    _stylesheets = _STYLE


class Export(JSComponent):
    """The code and the TOML file of what is shown."""

    code = param.String("")
    toml = param.String("")
    _esm = (_HERE / "export.js").read_text(encoding="utf-8")
    _stylesheets = _STYLE


class PageView(pn.viewable.Viewer):
    """A page with the current values of its controls, for one visitor or one notebook cell.

    Each change of a value is computed in a thread. A newer change cancels an older one, so that the page ends at the
    last of many changes and never shows an older one after it. Errors are shown as a sentence. However many changes a
    page makes, two of the four threads compute for it at most and one change waits; pages take turns as they come.
    """

    def __init__(
        self,
        page: Page,
        values: Mapping[str, Any] | None = None,
        *,
        addressed: bool = False,
        dark: bool = False,
        warning: str = "",
    ):
        super().__init__()
        self.page, self._document, self._latest, self._warning = page, pn.state.curdoc, 0, warning
        self._sources = Sources()
        self._sent: dict[str, Any] = {}  # the columns that each source has, the very objects
        self._turn, self._running = threading.Lock(), 0
        self._next: Callable[[], None] | None = None  # what waits for a thread of this page
        self._queue: deque[tuple[int, Callable[[], None]]] = deque()  # what is to be shown, in order
        self._opened = self._document is None or self._document.session_context is None
        self._loop = None if self._opened else IOLoop.current()
        self.panels = page.panels(self._sources)
        first = page.checked({} if values is None else values)
        self.controls = Controls(
            fields=self._fields(first),
            values=first,
            presets={name: dict(changed) for name, changed in page.presets.items()},
            resets={label: list(names) for label, names in page.resets.items()},
            addressed=addressed,
            dark=dark,
        )
        self.summary, self.export = Summary(sizing_mode="stretch_width"), Export(sizing_mode="stretch_width")
        self.panes = {panel.name: self._pane(panel) for panel in self.panels}
        self._set_colors(dark)
        for name, react in (
            ("values", self._change),
            ("upload", self._upload),
            ("requested", self._count),
            ("dark", self._set_colors),
        ):
            self.controls.param.watch(lambda event, react=react: react(event.new), name)
        if not self._opened:
            self._document.on_session_destroyed(lambda _: self.cancel())
            pn.state.onload(self._open)
        self._change(first)

    def cancel(self) -> None:
        """Cancels what is being computed."""
        self._latest += 1

    @property
    def values(self) -> Values:
        """The current values of the controls."""
        return dict(self.controls.values)

    @property
    def code(self) -> str:
        """The Python code that computes what is shown."""
        return self.page.code(self.page.checked(self.values))

    def write(self, path: str | Path) -> None:
        """Exports data (.nc), a figure (.svg, .png) or, where there is a training, an animation (.gif, .mp4)."""
        from linnet.lab.export import write

        with placed(Path(path)) as place:
            write(self.page, self.page.checked(self.values), place)

    def move(self, **values: Any) -> None:
        """Changes values of controls."""
        self.controls.values = self.page.checked(self.values | values)

    def __panel__(self) -> pn.viewable.Viewable:
        panels = [pn.Column(pn.pane.Markdown(f"**{panel.title}**"), self.panes[panel.name]) for panel in self.panels]
        results = pn.Column(self.summary, pn.FlexBox(*panels), self.export, sizing_mode="stretch_width")
        return pn.Row(pn.Column(self.controls, width=300), results, sizing_mode="stretch_width")

    def _pane(self, panel: BokehPanel) -> pn.pane.Bokeh:
        figure = panel.figure
        if panel.clickable:
            figure.on_event(Tap, lambda event: self._set(self.page.on_click(panel.name, event.x, event.y, self.values)))
        if panel.zoomable:

            def zoom(left: float, right: float, bottom: float, top: float) -> None:
                self._set(self.page.on_zoom(panel.name, (left, right, bottom, top), self.values))

            figure.on_event(RangesUpdate, lambda event: zoom(event.x0, event.x1, event.y0, event.y1))
            figure.on_event(Reset, lambda _: zoom(*(math.nan,) * 4))
        return pn.pane.Bokeh(figure, sizing_mode="stretch_width")

    def _fields(self, values: Values) -> list[dict[str, Any]]:
        """What the browser needs to draw the controls."""
        return [
            {"kind": type(c).__name__.lower(), "name": c.name, "label": c.label, "value": c.value}
            | {"hint": self.page.hints.get(c.name, ""), "group": c.group, **c.field()}
            for c in self.page.controls_for(values)
        ]

    def _set_colors(self, dark: bool) -> None:
        for panel in self.panels:
            panel.set_colors(dark=dark)

    def _set(self, values: Values) -> None:
        if values != self.values:
            self.controls.values = values

    def _upload(self, upload: Mapping[str, Any]) -> None:
        self._latest += 1
        self.summary.busy = True
        self._submit(partial(self._receive, self._latest, upload))

    def _receive(self, number: int, upload: Mapping[str, Any]) -> None:
        """Reads an uploaded file in a thread: large ones take a while."""
        with self._errors(number, "This file could not be read ({0}: {1})."):
            content = None if upload["content"] is None else base64.b64decode(upload["content"])
            values = self.page.on_upload(str(upload["name"]), int(upload["size"]), content, self.values)
            # a file that was there already changes no value, and is computed again
            self._later(number, lambda: self._set(values) if values != self.values else self._change(values))

    def _change(self, given: Mapping[str, Any]) -> None:
        self._latest += 1
        if self._latest > 1:
            self._warning = ""
        number = self._latest
        try:
            values = self.page.checked(given)
            if (fields := self._fields(values)) != self.controls.fields:
                self.controls.fields = fields
        except InputError as error:
            self._fail(str(error))
            return
        self.summary.busy = True
        self._submit(partial(self._compute, number, values))

    def _submit(self, work: Callable[[], None]) -> None:
        """Runs this in a thread, after what this page runs there already; what waited before it is superseded."""
        with self._turn:
            self._next = work
            if self._running >= AT_ONCE:
                return
            self._running += 1
        _POOL.submit(self._work)

    def _work(self) -> None:
        with self._turn:
            work, self._next = self._next, None
        try:
            if work is not None:
                work()
        finally:
            with self._turn:
                again = self._next is not None
                self._running -= not again
            if again:
                _POOL.submit(self._work)  # behind the pages that wait

    def _count(self, requested: int) -> None:
        """The number of a change arrives after it; one that was undone at once has nothing to compute."""
        if not self.summary.busy:
            self.summary.param.update(drawn=requested, complete=requested)

    def _compute(self, number: int, values: Values) -> None:
        """Computes in a thread, and passes on the updates until there is a newer change."""
        if number != self._latest:
            return
        try:
            with self._errors(number, "This could not be computed ({0}: {1}); other values may work."):
                self.page.afford(values)
                for update in self.page.updates(values):
                    if number != self._latest:
                        return
                    self._later(number, partial(self._show, update))
                exported = {"code": self.page.code(values), "toml": self.page.toml(values)}
                self._later(number, lambda: self._done(exported))
        finally:
            if self._loop is not None:  # the programs of a notebook are not the lab's
                programs().limit()

    @contextmanager
    def _errors(self, number: int, sentence: str) -> Iterator[None]:
        """Shows an error as a sentence, whatever it is: the page goes on."""
        try:
            yield
        except InputError as error:
            self._later(number, partial(self._fail, str(error)))
        except Exception as error:
            self._later(number, partial(self._fail, sentence.format(type(error).__name__, error)))

    def _later(self, number: int, what: Callable[[], None]) -> None:
        self._queue.append((number, what))
        if self._loop is None:
            self._drain()
        else:
            self._loop.add_callback(self._wake, number)

    def _wake(self, number: int) -> None:
        """Schedules from the loop: from a thread, Bokeh may lose the callback while it sends held changes."""
        if number == self._latest:
            self._document.add_next_tick_callback(self._drain)

    def _open(self) -> None:
        """The browser has loaded the page; changes sent before would be delayed and end after newer ones."""
        self._opened = True
        self._drain()

    def _drain(self) -> None:
        """Shows what is queued, in order: callbacks of the next tick have no order among themselves."""
        with _held(self._document):
            while self._opened and self._queue:
                number, what = self._queue.popleft()
                if number == self._latest:
                    what()

    def _show(self, update: Update) -> None:
        for name, columns in update.columns.items():
            if self._sent.get(name) is not columns:
                self._sources[name].data = {column: _short(values) for column, values in columns.items()}
                self._sent[name] = columns
        for panel in self.panels:
            if panel.name in update.ranges:
                panel.show_range(*update.ranges[panel.name])
        if update.headline is not None:
            headline = f"{self._warning} {update.headline}" if self._warning else update.headline
            self.summary.param.update(headline=headline, error=bool(self._warning))
        if update.quantities is not None:
            self.summary.param.update(
                quantities=render.listing(update.quantities), tables=render.tables(update.quantities)
            )
        self.summary.drawn = self.controls.requested

    def _done(self, exported: Mapping[str, str]) -> None:
        self.export.param.update(**exported)
        self.summary.param.update(busy=False, complete=self.controls.requested)

    def _fail(self, sentence: str) -> None:
        number = self.controls.requested
        self.summary.param.update(headline=sentence, error=True, busy=False, drawn=number, complete=number)


@contextmanager
def _held(document: Any) -> Iterator[None]:
    """Sends the changes inside together, by Bokeh's own hold: changes that Panel holds are lost while a page loads."""
    if document is None:
        yield
        return
    document.hold("combine")
    try:
        yield
    finally:
        document.unhold()


def _short(values: Any) -> Any:
    """Short arrays as lists: each array is a message of its own, and a few numbers are quicker among the others."""
    if isinstance(values, np.ndarray):
        return values.tolist() if values.size <= _SHORT else values
    return [_short(part) for part in values] if isinstance(values, list) else values
