"""The laboratory: rooms in which a network is moved by hand and seen at once, on a page or in a notebook.

    pip install 'linnet[lab]'

`linnet lab` opens all of them in a browser. In a notebook each is a function: `ln.lab.network(depth=3)` shows the room
with its controls at these values, `room.values` is where they stand, `room.write("mine.nc")` takes away what is seen.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from linnet.lab.page import Stand

__all__ = ["data", "edge", "landscape", "network", "phase", "rich", "serve"]


def network(**values: Any) -> "Stand":
    """One network: its modes, loss, layers, curvature and kernel, predicted and exact."""
    return _stand("network", values)


def phase(**values: Any) -> "Stand":
    """The phase diagram of lazy and rich networks, and the run of any of its points."""
    return _stand("phase", values)


def edge(**values: Any) -> "Stand":
    """The bifurcation diagram beyond the edge of stability, and the orbit of any step size."""
    return _stand("edge", values)


def rich(**values: Any) -> "Stand":
    """Two stages of feature learning: neurons that move, a kernel that turns, lazy or rich."""
    return _stand("rich", values)


def data(**values: Any) -> "Stand":
    """What theory says about a network on your own table."""
    return _stand("data", values)


def landscape(**values: Any) -> "Stand":
    """All critical points by loss and index, and the descent from any of them."""
    return _stand("landscape", values)


def serve(*, address: str = "127.0.0.1", port: int = 0, browser: bool = True, path: str = "") -> None:
    """Serves all rooms until it is interrupted: on this machine only unless `address` says more, on a free port."""
    _panel()
    from linnet.lab.server import run

    run(address=address, port=port, browser=browser, path=path)


def _stand(name: str, values: dict[str, Any]) -> "Stand":
    _panel()
    import panel as pn

    from linnet.lab.page import Stand
    from linnet.lab.rooms import ROOMS

    pn.extension(inline=True)  # nothing from elsewhere
    (kind,) = (room for room in ROOMS if room.name == name)
    return Stand(kind(), values)


def _panel() -> None:
    import importlib.util

    from linnet._check import InputError

    if importlib.util.find_spec("panel") is None:
        raise InputError("linnet.lab needs Panel: pip install 'linnet[lab]'.")
