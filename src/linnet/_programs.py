"""Compiled programs kept on disk, so that what was compiled once is read the next time.

JAX finds them by a key of the program, its own versions, the options and the device; of a CPU's instructions we make a
folder each, since a home may be shared by machines. JAX can bound its folder too, but it needs another package for it,
takes a lock for every program it reads and lists all others for every one it writes: here the programs that were not
used for longest are removed once, at the end of a process.
"""

import atexit
import contextlib
import functools
import hashlib
import os
import platform
import sys
import warnings
from pathlib import Path

_MOST = 2**28  # bytes: ten thousand programs of small networks
_FOLDER = "programs-"  # and a hash of the CPU's instructions
_OPTIONS = {"jax_persistent_cache_min_compile_time_secs": 0, "jax_persistent_cache_min_entry_size_bytes": -1}
_DIRECTORY = "jax_compilation_cache_dir"
_HUSHED = tuple(f"Error {doing} persistent compilation cache entry" for doing in ("reading", "writing"))


def cache_programs(folder: str | Path | None = None) -> Path | None:
    """Keeps compiled programs in `folder`, for this process and those that it starts; gives where, None for nowhere.

    Without a folder: the one of LINNET_CACHE ("off": none), or the folder that JAX is configured with, or the user's
    cache folder; one that cannot be used is none. The commands do so by themselves. Programs take at most
    256 MiB after a process has ended, and those that were not used for longest go first. A damaged one is compiled
    again. Whoever can write there can make this process run what they like: a folder that belongs to somebody else, or
    that everybody can write to, is not used.
    """
    wish = os.environ.get("LINNET_CACHE", "")
    if folder is None and wish == "off":
        return None
    if folder is None and not wish:
        theirs = _configured_folder()
        if theirs is not None:
            return theirs
    base = Path(folder) if folder else cache_folder()
    place = None if base is None else base.absolute() / f"{_FOLDER}{_instructions()}"
    if place is None or not _usable(place):
        if folder is not None:
            from linnet._check import InputError

            raise InputError(
                f"folder = {str(folder)!r} is not allowed: folder must be one that can be written to, of your own, and "
                "closed to others."
            )
        return None
    _configure_jax(place)
    _hush()
    _trim_at_the_end(place.parent)
    return place


def cache_folder() -> Path | None:
    """The folder of LINNET_CACHE if that names one, else the user's cache folder; None without a home."""
    wish = os.environ.get("LINNET_CACHE", "")
    return _home() if wish in ("", "off") else Path(wish)


def _configured_folder() -> Path | None:
    """The cache folder that JAX is configured with."""
    jax = sys.modules.get("jax")
    theirs = os.environ.get(_DIRECTORY.upper()) if jax is None else getattr(jax.config, _DIRECTORY)
    return Path(theirs) if theirs else None


def _home() -> Path | None:
    """The user's cache folder, where this system has it; None without a home."""
    try:
        home = Path.home()
    except RuntimeError:
        return None
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "linnet"
    if os.name == "nt":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "linnet" / "Cache"
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (named if named.is_absolute() else home / ".cache") / "linnet"


def _instructions() -> str:
    """A hash of the CPU's instruction sets; of the machine's name where they are not known."""
    words = platform.node()
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as cpuinfo:
        words = next((line for line in cpuinfo if line.startswith(("flags", "Features"))), words)  # of the first core
    return hashlib.sha256(f"{platform.machine()} {words}".encode()).hexdigest()[:12]


def _usable(place: Path) -> bool:
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.mkdir(mode=0o700, exist_ok=True)
        status = place.stat()
    except (OSError, ValueError):  # a name with a zero in it
        return False
    ours = not hasattr(os, "getuid") or (status.st_uid == os.getuid() and not status.st_mode & 0o002)
    return ours and os.access(place, os.R_OK | os.W_OK | os.X_OK)


def _configure_jax(place: Path) -> None:
    """By the environment, which JAX reads when it loads, here or in a process to come; and now if it is loaded."""
    before = _configured_folder()
    options = {_DIRECTORY: str(place), **_OPTIONS}
    os.environ.update({name.upper(): str(value) for name, value in options.items()})
    if "jax" in sys.modules:
        for name, value in options.items():
            sys.modules["jax"].config.update(name, value)
        if before not in (None, place):
            from jax.experimental.compilation_cache.compilation_cache import reset_cache

            reset_cache()  # it holds on to the folder it began with


def _hush() -> None:
    """A program that cannot be read is compiled, one that cannot be written is not stored, without a warning."""
    ignored = [f"ignore:{words}" for words in _HUSHED]
    there = [words for words in os.environ.get("PYTHONWARNINGS", "").split(",") if words and words not in ignored]
    os.environ["PYTHONWARNINGS"] = ",".join([*there, *ignored])
    for words in _HUSHED:
        warnings.filterwarnings("ignore", message=words)


@functools.cache
def _trim_at_the_end(base: Path) -> None:
    atexit.register(lambda: trim(base) if "jax" in sys.modules else None)


def trim(base: Path, most: int = _MOST) -> None:
    """Removes what was not used for longest until no more than `most` bytes of programs are left."""
    found = []
    for file in base.glob(f"{_FOLDER}*/*-cache"):
        with contextlib.suppress(OSError):  # another process may have removed it
            status = file.stat()
            found.append((max(status.st_atime, status.st_mtime), status.st_size, file))
    left = sum(size for _, size, _ in found)
    for _, size, file in sorted(found):
        if left <= most:
            return
        with contextlib.suppress(OSError):
            file.unlink()
        left -= size
