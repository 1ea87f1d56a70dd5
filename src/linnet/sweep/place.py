"""Where the store of a sweep lies: a folder, or a URL of an object store; the bytes and their names are the same.

An object store has no renames and no locks. A new store is whole there when its consolidated metadata is, which is put
last; and a driver holds a lease, an object with its name and the time, which it renews as long as it lives.
"""

import contextlib
import json
import os
import platform
import re
import shutil
import tempfile
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from linnet._check import InputError
from linnet._files import locked, placed, refusal, writing
from linnet._stores import DamagedChunkError, FolderStore, RemoteStore

SCHEMES = ("file", "memory", "s3", "gs")
LEASE = ".lease"  # inside the store, since a key may be good for nothing else
TERM = 60.0  # seconds after which a lease that was not renewed has expired
SETTLE = 1.0  # seconds in which others who take over the same lease have written theirs
_BEGUN, _WHOLE = ".zattrs", ".zmetadata"  # what is put first and last into a new store


class Place(ABC):
    """Named bytes in one place."""

    text: str  # as the user wrote it
    threads: int  # how many may read at once

    @abstractmethod
    def exists(self) -> bool:
        """Whether there is something, which may be a store."""

    @abstractmethod
    def zarr(self) -> Any:
        """What zarr and xarray open."""

    @abstractmethod
    def names(self) -> set[str]:
        """The names of all that is stored."""

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """What is stored under a name; None if there is nothing."""

    @abstractmethod
    def put(self, name: str, data: bytes) -> None:
        """Stores bytes, all or none of them."""

    @abstractmethod
    def new(self) -> contextlib.AbstractContextManager[Path]:
        """A folder in which a new store is built; then it is put in place."""

    @abstractmethod
    def alone(self) -> contextlib.AbstractContextManager[None]:
        """Nobody else writes here meanwhile; a second writer is refused in one sentence."""

    @abstractmethod
    def ours(self) -> None:
        """Refuses to go on where another driver has taken over."""

    @abstractmethod
    def tidy(self) -> None:
        """Removes what a killed writer left half done."""

    def none(self) -> InputError:
        """What is here is something else."""
        return InputError(f"{self.text!r} is not a store of a sweep: give another --out or delete it.")


def located(out: "Path | str | Place") -> Place:
    """The place that a path or a URL names: `file://`, `memory://`, `s3://` or `gs://`."""
    if isinstance(out, Place):
        return out
    text = str(out)
    scheme, mark, rest = text.partition("://")
    if not mark and not re.match(rf"({'|'.join(SCHEMES)}):/", text):
        return Folder(Path(text))
    allowed = ", ".join(f"{name}://" for name in SCHEMES)
    if not mark:
        raise InputError(f"out = {text!r} is not allowed: a URL must be a text with two slashes, not a path.")
    if scheme not in SCHEMES or not rest.strip("/"):
        raise InputError(f"out = {text!r} is not allowed: it must be a folder or a URL that begins with {allowed}.")
    return Folder(Path(rest), text) if scheme == "file" else Remote(text)


class Folder(Place):
    """A folder on this machine, or on a mounted drive."""

    threads = 1

    def __init__(self, path: Path, text: str = ""):
        self.path, self.text = path, text or str(path)

    def exists(self) -> bool:
        return self.path.exists()

    def zarr(self) -> FolderStore:
        return FolderStore(self.path)

    def names(self) -> set[str]:
        return _inside(path.relative_to(self.path).as_posix() for path in self.path.rglob("*") if path.is_file())

    def read(self, name: str) -> bytes | None:
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _sentence(self.text, "read", error) from None

    def put(self, name: str, data: bytes) -> None:
        with placed(self.path / name) as partial:
            partial.parent.mkdir(exist_ok=True)
            partial.write_bytes(data)

    @contextlib.contextmanager
    def new(self) -> Iterator[Path]:
        path = self.path
        building = path.with_name(f".{path.name}.{os.getpid()}.new")
        for leftover in path.parent.glob(f".{path.name}.*.new"):  # of a run killed while it began
            shutil.rmtree(leftover, ignore_errors=True)
        with writing(path):
            try:
                yield building
                building.rename(path)
            finally:
                shutil.rmtree(building, ignore_errors=True)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        lock = self.path.with_name(f".{self.path.name}.lock")  # beside it, since it may not be there yet
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock.touch()
        with locked(lock, self.path):
            try:
                yield
            finally:
                lock.unlink(missing_ok=True)

    def ours(self) -> None:
        return  # the system keeps the lock

    def tidy(self) -> None:
        for leftover in self.path.glob("*/*.partial"):
            leftover.unlink(missing_ok=True)


def _inside(names: Iterable[str]) -> set[str]:
    """The names that lie below the store: a key of an object store may be any text, and is copied to a file."""
    return {name for name in names if not Path(name).is_absolute() and ".." not in Path(name).parts}


class Remote(Place):
    """A prefix of an object store. Keys and addresses come from the environment, as fsspec and its parts read them."""

    threads = 16  # a read waits for the network

    def __init__(self, url: str):
        self.text = url.rstrip("/")
        with self._served("reached"):
            try:
                from fsspec.core import url_to_fs

                self.files, self.root = url_to_fs(self.text, use_listings_cache=False)
            except ImportError:
                package = "gcsfs" if url.startswith("gs:") else "'linnet[stores]'"
                raise InputError(f"{url!r} cannot be reached: pip install {package} first.") from None
        self._lost = ""

    def exists(self) -> bool:
        return self.read(_WHOLE) is not None

    def zarr(self) -> "_Served":
        from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper

        return _Served(AsyncFileSystemWrapper(self.files, asynchronous=True), path=self.root)

    def names(self) -> set[str]:
        with self._served("read"):
            try:
                return _inside(name.removeprefix(f"{self.root}/") for name in self.files.find(self.root))
            except FileNotFoundError:
                return set()

    def read(self, name: str) -> bytes | None:
        with self._served("read"):
            try:
                return bytes(self.files.cat_file(f"{self.root}/{name}"))
            except FileNotFoundError:
                return None

    def put(self, name: str, data: bytes) -> None:
        with self._served("written"):
            self.files.pipe_file(f"{self.root}/{name}", data)

    @contextlib.contextmanager
    def new(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="linnet-") as folder:
            yield Path(folder) / "new"
            made = {name: (Path(folder) / "new" / name).read_bytes() for name in Folder(Path(folder) / "new").names()}
        there = self.names() - {LEASE}
        if there and (_BEGUN not in there or any(self.read(name) != made[name] for name in there & set(made))):
            raise self.none()
        for name in sorted(made, key=lambda name: (name != _BEGUN, name == _WHOLE, name)):
            self.put(name, made[name])

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        own, ended = uuid.uuid4().hex, threading.Event()
        self._take(own)
        keeper = threading.Thread(target=self._keep, args=(own, ended), daemon=True)
        keeper.start()
        try:
            yield
        finally:
            ended.set()
            keeper.join()
            with contextlib.suppress(InputError):  # what cannot be removed runs out
                if (self._lease() or {}).get("owner") == own:
                    with self._served("written"):
                        self.files.rm_file(f"{self.root}/{LEASE}")

    def ours(self) -> None:
        if self._lost:
            raise InputError(self._lost)

    def tidy(self) -> None:
        return  # an object is there or not

    def _lease(self) -> dict[str, Any] | None:
        """What stands in the lease; None if there is none that can be read."""
        with contextlib.suppress(ValueError, TypeError, KeyError):
            found = json.loads(self.read(LEASE) or b"")
            return {**found, "time": float(found["time"]), "owner": str(found["owner"])}
        return None

    def _take(self, own: str) -> None:
        found = self._lease()
        if found is None:
            try:
                with self._served("written"):  # by the first only, where the object store supports conditions
                    self.files.pipe_file(f"{self.root}/{LEASE}", _written(own), mode="create")
                    return
            except InputError:
                found = self._lease()
        if found is not None and found["owner"] != own and _held(found):
            raise self._foreign(found)
        self.put(LEASE, _written(own))
        time.sleep(SETTLE)
        found = self._lease()
        if found is not None and found["owner"] != own:
            raise self._foreign(found)

    def _keep(self, own: str, ended: threading.Event) -> None:
        while not ended.wait(TERM / 3):
            with contextlib.suppress(InputError):  # the network is away: the next time, perhaps
                found = self._lease()
                if found is None or found["owner"] != own:
                    self._lost = f"{self.text!r} was taken over by another process: this one has stopped."
                    return
                self.put(LEASE, _written(own))

    def _foreign(self, found: dict[str, Any]) -> InputError:
        return InputError(
            f"{self.text!r} is being written by another process ({found.get('process')} on {found.get('host')}, seen "
            f"{max(0.0, time.time() - found['time']):.0f} s ago): wait for it or stop it."
        )

    @contextlib.contextmanager
    def _served(self, done: str) -> Iterator[None]:
        """What the object store refuses inside is one sentence."""
        try:
            yield
        except InputError:
            raise
        except Exception as error:  # of botocore, aiohttp, google: they share no ancestor
            raise _sentence(self.text, done, error) from None


class _Served(RemoteStore):
    """What zarr reads and writes by; what the object store refuses is one sentence, and not a damaged chunk."""

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        try:
            return await super().get(key, prototype, byte_range)
        except (InputError, DamagedChunkError):
            raise
        except Exception as error:
            raise _sentence(self._url(), "read", error) from None

    async def set(self, key: str, value: Any, byte_range: Any = None) -> None:
        try:
            await super().set(key, value, byte_range)
        except Exception as error:
            raise _sentence(self._url(), "written", error) from None

    def _url(self) -> str:
        return str(self.fs.sync_fs.unstrip_protocol(self.path))


def _sentence(text: str, done: str, error: Exception) -> InputError:
    words = refusal(error) if isinstance(error, OSError) else str(error) or type(error).__name__
    return InputError(f"{text!r} cannot be {done}: {words[:1].lower()}{' '.join(words[1:].split()).rstrip('.')}.")


def _written(own: str) -> bytes:
    """A lease of this process, from now on."""
    return json.dumps(
        {"owner": own, "time": time.time(), "host": platform.node(), "process": os.getpid(), "machine": _machine()}
    ).encode()


def _held(found: dict[str, Any]) -> bool:
    """Whether the owner of a lease may be alive: it was renewed lately, and is not known to have ended."""
    if time.time() - found["time"] > TERM:
        return False
    if not found.get("machine") or found["machine"] != _machine():
        return True
    try:
        os.kill(int(found["process"]), 0)
    except (ProcessLookupError, KeyError, ValueError, TypeError):
        return False
    except OSError:  # someone else's
        return True
    return True


def _machine() -> str:
    """An id of this machine and process namespace; empty where the system has none."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{platform.node()} {boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""
