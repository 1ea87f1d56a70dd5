"""What is kept on disk: files put in place by a rename, JSON, and what its numbers depend on."""

import contextlib
import json
import math
import platform
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

from linnet._version import __version__

LIBRARIES = ("jax", "equinox", "diffrax", "numpy", "scipy", "xarray", "zarr", "matplotlib")


def put(path: Path, text: str) -> None:
    """Puts a text in place by one rename."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def dumps(tree: Any) -> str:
    """JSON that every program can read; what is not a finite number becomes null, for which JSON has no other word."""
    return json.dumps(_plain(tree), indent=2, allow_nan=False)


def _plain(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {name: _plain(value) for name, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_plain(value) for value in tree]
    return None if isinstance(tree, float) and not math.isfinite(tree) else tree


def versions() -> dict[str, str]:
    """What numbers depend on besides parameters; data made by other versions is made again."""
    return {"linnet": __version__, "python": platform.python_version(), **{name: version(name) for name in LIBRARIES}}


def machine() -> dict[str, str]:
    """What times depend on."""
    processor = platform.processor()
    with contextlib.suppress(OSError):
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
        processor = found[1] if found else processor
    return {
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "processor": processor or "unknown",
    }


def duration(seconds: float) -> str:
    """A time as a person says it."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
