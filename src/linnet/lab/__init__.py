"""Interactive pages on which a network's controls are changed and its training shown at once, in a browser or notebook.

    pip install 'linnet[lab]'

`linnet lab` opens all of them in a browser. In a notebook each is a function: `ln.lab.network(depth=3)` shows the page
with these values of its controls, `page.values` are the current ones, `page.write("run.nc")` exports what is shown.
"""

from os import PathLike
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from linnet.lab.view import PageView

__all__ = ["data", "edge", "flows", "landscape", "network", "phase", "rich", "serve"]


def network(**values: Any) -> "PageView":
    """One network: its modes, loss, layers, curvature, and kernel, predicted and exact."""
    return _view("network", values)


def phase(**values: Any) -> "PageView":
    """The phase diagram of lazy and rich networks, and the run at any of its points."""
    return _view("phase", values)


def edge(**values: Any) -> "PageView":
    """The bifurcation diagram beyond the edge of stability, and the orbit at any learning rate."""
    return _view("edge", values)


def flows(**values: Any) -> "PageView":
    """Descent at the edge of stability beside the rod and the central flow, by learning rate."""
    return _view("flows", values)


def rich(**values: Any) -> "PageView":
    """Two stages of feature learning: alignment of neurons and growth of the kernel, lazy or rich."""
    return _view("rich", values)


def data(**values: Any) -> "PageView":
    """What theory predicts for a network on a table of samples."""
    return _view("data", values)


def landscape(**values: Any) -> "PageView":
    """All critical points by loss and index, and the descent from any of them."""
    return _view("landscape", values)


def serve(
    *,
    page: str | None = None,
    file: str | PathLike[str] | None = None,
    address: str = "127.0.0.1",
    port: int = 0,
    browser: bool = True,
) -> None:
    """Serves all pages until interrupted: to this machine only unless `address` says otherwise, on a free port.

    The browser opens `page`, or the page and the values of its controls in a TOML `file` that a page has exported.
    """
    _require_panel()
    from linnet.lab.server import run

    run(page, file, address=address, port=port, browser=browser)


def _view(name: str, values: dict[str, Any]) -> "PageView":
    _require_panel()
    import panel as pn

    from linnet.lab.pages import PAGES
    from linnet.lab.view import PageView

    pn.extension(inline=True)  # no downloads from other machines
    (kind,) = (page for page in PAGES if page.name == name)
    return PageView(kind(), values)


def _require_panel() -> None:
    import importlib.util

    from linnet._check import InputError

    if importlib.util.find_spec("panel") is None:
        raise InputError("linnet.lab needs Panel: pip install 'linnet[lab]'.")
