"""Uploaded files, kept by their content while the server runs; how much they unpack to is checked first."""

import hashlib
import shutil
import tempfile
import threading
import weakref
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Generic, TypeVar

import numpy as np

from linnet._check import InputError

_T = TypeVar("_T")
_BYTES, _FILES = 64 << 20, 32
_CELLS = 4_000_000  # numbers of a table: 32 MB of them
# what reads the table explains what is damaged or encrypted
_DAMAGED = (ValueError, EOFError, OSError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error)


class UploadCache(Generic[_T]):
    """A bounded number of files in a temporary folder of this process, each with the result of `read`.

    A file is named by the sha256 of its content and its suffix, never by its uploaded name. Where there are too many,
    the least recently used ones are removed.
    """

    def __init__(self, read: Callable[[Path], _T], *, most_bytes: int = _BYTES, most_files: int = _FILES):
        self._read, self._most = read, (most_bytes, most_files)
        self._folder: Path | None = None
        self._there: OrderedDict[str, tuple[int, _T]] = OrderedDict()
        self._lock = threading.Lock()

    def keep(self, content: bytes, suffix: str, name: str) -> str:
        """Keeps a file and returns its digest; raises `InputError`, with the uploaded `name`, if it cannot be read."""
        digest = hashlib.sha256(content).hexdigest()
        with self._lock:
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="linnet-lab-"))
                weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
            folder = self._folder
            known = digest + suffix in self._there
        if known:
            return digest
        with tempfile.TemporaryDirectory(dir=folder) as aside:
            path = Path(aside) / (digest + suffix)
            path.write_bytes(content)
            with called(path, name):
                bounded(path)
                read = self._read(path)
            with self._lock:
                path.replace(folder / path.name)
                self._there[path.name] = len(content), read
                self._there.move_to_end(path.name)
                while self._crowded():
                    (folder / self._there.popitem(last=False)[0]).unlink(missing_ok=True)
        return digest

    def find(self, digest: str, suffix: str) -> tuple[Path, _T] | None:
        """The path of a file and the result of `read`, if it is still kept."""
        with self._lock:
            name = digest + suffix
            if self._folder is None or name not in self._there:
                return None
            self._there.move_to_end(name)
            return self._folder / name, self._there[name][1]

    def _crowded(self) -> bool:
        size = sum(size for size, _ in self._there.values())
        return size > self._most[0] or len(self._there) > self._most[1]


@contextmanager
def called(path: Path, name: str) -> Iterator[None]:
    """Replaces the path of a file in error messages by its uploaded name."""
    try:
        yield
    except InputError as error:
        raise InputError(str(error).replace(repr(str(path)), repr(name))) from None


def bounded(path: Path) -> None:
    """Refuses a file that unpacks to more than `_CELLS` numbers, before anything is unpacked."""
    try:
        cells = _cells(path)
    except _DAMAGED:
        return
    if cells > _CELLS:
        raise InputError(
            f"data = {str(path)!r} cannot be used: it unpacks to {cells:,} numbers, and {_CELLS:,} are the most here; "
            "use linnet predict network --data FILE."
        )


def _cells(path: Path) -> int:
    """The count of numbers in a file by its headers; a text has fewer than bytes, and is counted as 0."""
    if path.suffix == ".npz":
        with zipfile.ZipFile(path) as arrays:  # no more of a member is read than its stated size
            return sum(max(_member(arrays, member), member.file_size // 8) for member in arrays.infolist())
    if path.suffix == ".npy":
        with path.open("rb") as file:
            return _entries(file)
    return _parquet(path) if path.suffix == ".parquet" else 0


def _member(arrays: zipfile.ZipFile, member: zipfile.ZipInfo) -> int:
    try:
        with arrays.open(member) as file:
            return _entries(file)
    except _DAMAGED:
        return 0


def _entries(file: BinaryIO | Any) -> int:
    """The number of entries of an array, from NumPy's header."""
    from numpy.lib import format as npy

    version = npy.read_magic(file)
    shape, _, _ = (npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0)(file)
    return int(np.prod(shape, dtype=object))


def _parquet(path: Path) -> int:
    try:
        from pyarrow.parquet import ParquetFile
    except ImportError:  # so that nothing can be unpacked either
        return 0
    with ParquetFile(path) as file:
        schema = file.metadata.schema
        for i in range(len(schema)):
            if schema.column(i).physical_type == "BYTE_ARRAY":  # of any length each
                raise InputError(
                    f"data = {str(path)!r} cannot be used: its column {schema.column(i).name} holds text, and numbers "
                    "are needed."
                )
        return int(file.metadata.num_rows * file.metadata.num_columns)
