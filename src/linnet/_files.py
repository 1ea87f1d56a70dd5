"""Files that are put in place by a rename, JSON, versions, and locks."""

import contextlib
import errno
import json
import math
import os
import platform
import re
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # not on every system
    fcntl = None  # type: ignore[assignment]

from linnet._version import __version__

_TRIED = 2**16  # bytes: a small picture
LIBRARIES = ("jax", "equinox", "diffrax", "numpy", "scipy", "xarray", "zarr", "matplotlib")


def put(path: Path, text: str) -> None:
    """Puts a text in place by one rename."""
    with placed(path) as partial:
        partial.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def placed(path: Path) -> Iterator[Path]:
    """A place beside `path` to write to. What was written there is put in place by one rename; what fails leaves the
    file that was there before, and nothing else.
    """
    real = path.resolve()  # a link stays one
    partial = _beside(real)
    with writing(path):
        try:
            yield partial
            partial.replace(real)
        finally:
            partial.unlink(missing_ok=True)


@contextlib.contextmanager
def writing(path: Path | str) -> Iterator[None]:
    """What the disk refuses inside is one sentence with the path."""
    try:
        yield
    except OSError as error:
        from linnet._input import InputError

        raise InputError(f"{str(path)!r} cannot be written: {refusal(error)}.") from None


def refusal(error: OSError) -> str:
    """What the system says, with the cure where there is one."""
    words = error.strerror or str(error) or type(error).__name__
    if error.errno in (errno.EEXIST, errno.ENOTDIR):
        return "there is a file where a folder should be"
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return words[:1].lower() + words[1:] + "; make space and give the same command again" * full


def ready(path: Path) -> None:
    """Refuses a file that cannot be written, before there is anything to write: a few bytes are tried beside it."""
    with writing(path):
        if path.exists() and not (path.is_file() and os.access(path, os.W_OK)):
            raise PermissionError(errno.EACCES, "it is write-protected" if path.is_file() else "it is not a file")
        partial = _beside(path.resolve())
        try:
            partial.write_bytes(bytes(_TRIED))
        finally:
            partial.unlink(missing_ok=True)


@contextlib.contextmanager
def hushed() -> Iterator[None]:
    """Warnings of the libraries that write and read files, about strange files beside ours and the like, are not for
    users, who get a sentence where it concerns them.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _beside(path: Path) -> Path:
    """By process, since two may write at once; the suffix stays, because writers choose the format by it."""
    return path.with_name(f".{path.stem}.{os.getpid()}.partial{path.suffix}")


@contextlib.contextmanager
def locked(place: Path, path: Path, *, wait: bool = False) -> Iterator[None]:
    """Nobody else who locks the file or folder `place` writes to `path` meanwhile; whoever comes second waits, or is
    refused in one sentence. The system lifts the lock of a process that ends, however it ends.
    """
    if fcntl is None:
        yield
        return
    with writing(path):
        descriptor = os.open(place, os.O_RDONLY)
    try:
        if not _lock(descriptor, place, wait):
            from linnet._input import InputError

            raise InputError(f"{str(path)!r} is being written by another process: wait for it or stop it.")
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, place: Path, wait: bool) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        return place.exists() and os.path.samestat(os.fstat(descriptor), place.stat())  # the one before may remove it
    except BlockingIOError:
        return False
    except OSError:  # some network drives have no locks: better without than not at all
        return True


def dumps(tree: Any) -> str:
    """JSON that every program can read; what is not a finite number becomes null, for which JSON has no other word."""
    return json.dumps(plain(tree), indent=2, allow_nan=False)


def plain(tree: Any) -> Any:
    """Dictionaries, lists and what JSON has a word for; a number that is not finite is None."""
    if isinstance(tree, dict):
        return {name: plain(value) for name, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [plain(value) for value in tree]
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
    """A time in seconds or minutes."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
