"""Zarr stores that hold numbers and texts only: nothing in a store that someone else wrote becomes code.

What a store says of its arrays is checked before zarr acts on it: the codecs and the types against a list, whatever
numcodecs has installed (its pickle codec would run code), and the sizes against the memory. A chunk must not unpack to
more than its array says.
"""

import json
import math
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from zarr.storage import FsspecStore, LocalStore

from linnet import _check
from linnet._check import InputError

COMPRESSORS = ("blosc", "zstd")  # those that zarr chooses; both write down how long the data are
FILTERS = ("crc32",)
KINDS = "biufcmMSU"  # numbers, times and texts; no objects, no records
CHUNKS = 10_000_000
_ARRAY, _ALL = ".zarray", ".zmetadata"
_CHECKSUM = 4  # bytes that a filter adds


class DamagedChunkError(ValueError):
    """A chunk is not what its array says."""


class _Guard:
    """What a store states of its arrays, by which its chunks are checked when they are read."""

    def __init__(self, name: str):
        self.name = name
        self.limits: dict[str, tuple[str | None, int]] = {}  # the compressor, and the most bytes of a chunk

    def check(self, key: str, data: Any) -> None:
        """Refuses metadata that are not allowed, and chunks that are larger than the metadata say."""
        if data is None:
            return
        path, _, name = key.rpartition("/")
        if name in (_ARRAY, _ALL):
            tree = json.loads(data.to_bytes())
            for place, array in (tree["metadata"] if name == _ALL else {key: tree}).items():
                inner, _, kind = place.rpartition("/")
                if kind == _ARRAY:
                    self.limits[inner] = self._allowed(inner, array)
        elif not name.startswith("."):
            compressor, most = self.limits[path]
            if compressor and (size := _unpacked(compressor, data.to_bytes()[:32])) > most:
                raise DamagedChunkError(f"{key} unpacks to {size} bytes, and its array has chunks of {most}.")

    def _allowed(self, name: str, array: Any) -> tuple[str | None, int]:
        """Refuses an array of codecs, types, or sizes that are not on the list."""

        def refused(reason: str) -> InputError:
            return InputError(f"{self.name!r} is not allowed: its array {_check.show(name)} {reason}.")

        if not isinstance(array, dict):
            raise refused("is not described")
        compressor, filters = _codec(array.get("compressor")), [_codec(x) for x in array.get("filters") or ()]
        unknown = [codec for codec in filters if codec not in FILTERS]
        if compressor is not None and compressor not in COMPRESSORS:
            unknown.append(compressor)
        if unknown:
            allowed = ", ".join((*COMPRESSORS, *FILTERS))
            raise refused(f"has the codec {_check.show(unknown[0])}, allowed are {allowed}")
        kind, shape, chunks = array.get("dtype"), _lengths(array.get("shape"), 0), _lengths(array.get("chunks"), 1)
        if not isinstance(kind, str) or (dtype := _dtype(kind)) is None:
            raise refused(f"has the type {_check.show(kind)}, allowed are numbers, times, and texts of fixed length")
        if shape is None or chunks is None or len(shape) != len(chunks):
            given = (_check.show(array.get(key)) for key in ("shape", "chunks"))
            raise refused(f"has the shape {' in chunks of '.join(given)}")
        if array.get("dimension_separator", ".") != ".":
            raise refused("has chunks in folders")
        whole, part = (math.prod(lengths) * dtype.itemsize for lengths in (shape, chunks))
        if (size := max(whole, part)) > (memory := _check.memory()):
            raise refused(f"takes {_check.gibibytes(size)}, and there are {_check.gibibytes(memory)} of memory")
        if math.prod(-(-n // c) for n, c in zip(shape, chunks, strict=True)) > CHUNKS:
            raise refused(f"has more than {CHUNKS:,} chunks")
        return compressor, part + _CHECKSUM * len(filters)


class FolderStore(LocalStore):
    """A folder whose arrays zarr reads and writes."""

    def __init__(self, root: Path | str, *, read_only: bool = False):
        super().__init__(root, read_only=read_only)
        self._guard = _Guard(str(root))

    def with_read_only(self, read_only: bool = False) -> Self:
        found: Any = super().with_read_only(read_only)
        found._guard = self._guard
        return cast("Self", found)

    async def get(self, key: str, *args: Any, **options: Any) -> Any:
        self._regular(key)
        found = await super().get(key, *args, **options)
        self._guard.check(key, found)
        return found

    def get_sync(self, key: str, **options: Any) -> Any:
        self._regular(key)
        found = super().get_sync(key, **options)
        self._guard.check(key, found)
        return found

    def _regular(self, key: str) -> None:
        path = self.root / key
        if path.exists() and not path.is_file() and not path.is_dir():  # a device or a pipe may never end
            raise DamagedChunkError(f"{key} is not a file.")


class RemoteStore(FsspecStore):
    """A prefix of an object store whose arrays zarr reads and writes."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self._guard = _Guard(self.path)

    def with_read_only(self, read_only: bool = False) -> Self:
        found: Any = super().with_read_only(read_only)
        found._guard = self._guard
        return cast("Self", found)

    async def get(self, key: str, *args: Any, **options: Any) -> Any:
        found = await super().get(key, *args, **options)
        self._guard.check(key, found)
        return found


def _codec(described: Any) -> str | None:
    return None if described is None else str(described.get("id")) if isinstance(described, dict) else str(described)


def _dtype(text: str) -> np.dtype[Any] | None:
    try:
        found = np.dtype(text)
    except (TypeError, ValueError, SyntaxError):
        return None
    return found if found.kind in KINDS and found.names is None and found.itemsize else None


def _lengths(given: Any, least: int) -> list[int] | None:
    fine = isinstance(given, list) and all(type(n) is int and n >= least for n in given)
    return given if fine else None


def _unpacked(compressor: str, head: bytes) -> float:
    """How many bytes a compressed chunk says that it holds; infinitely many where it does not say."""
    if compressor == "blosc":
        return int.from_bytes(head[4:8], "little") if len(head) >= 8 else math.inf
    if len(head) < 5:
        return math.inf
    described = head[4]  # the header of a frame of zstd, RFC 8878, 3.1.1.1
    single = described >> 5 & 1
    length = (single, 2, 4, 8)[described >> 6]
    begin = 5 + (not single) + (0, 1, 2, 4)[described & 3]
    return int.from_bytes(head[begin : begin + length], "little") + 256 * (length == 2) if length else math.inf
