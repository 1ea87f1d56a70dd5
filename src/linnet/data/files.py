"""The published files as numbers: IDX (MNIST, Fashion-MNIST), gzipped or not, and the binary version of CIFAR-10.

Nothing is ever unpickled, since that would run code of the file.
"""

import gzip
import hashlib
import math
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from linnet._check import InputError
from linnet.data.images import CLASSES, Images

_COLORED = (3, 32, 32)  # an image of CIFAR-10
_ROW = 1 + math.prod(_COLORED)  # its class and its pixels
_LARGEST = 2**31  # bytes of a file's contents; the largest published one has 47 million
_PIECE = 2**20  # bytes that are read at once


def find(folder: Path, name: str) -> Path | None:
    """The file, gzipped or not; some unpackers write a dot for the last dash but one."""
    dotted = name.replace("-idx", ".idx")
    for candidate in (name, f"{name}.gz", dotted, f"{dotted}.gz"):
        if (folder / candidate).is_file():
            return folder / candidate
    return None


def md5(path: Path) -> str:
    """The sum of a file's contents, unzipped if it is gzipped: whoever packs it again changes nothing."""
    found = hashlib.md5(usedforsecurity=False)  # which files these are, no more: they are read as numbers
    try:
        with _opened(path) as file:
            while piece := file.read(_PIECE):
                found.update(piece)
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(path, error) from None
    return found.hexdigest()


def idx(images: Path, labels: Path) -> Images:
    """Images of a pair of IDX files."""
    pixels, classes = _array(images, 3), _array(labels, 1)
    if len(pixels) != len(classes):
        raise InputError(
            f"{str(images)!r} holds {len(pixels)} images and {str(labels)!r} {len(classes)} labels: they do not belong "
            "together."
        )
    _known(labels, classes)
    return Images(pixels.reshape(len(pixels), -1), classes, pixels.shape[1:])


def cifar(paths: Sequence[Path]) -> Images:
    """Images of files of CIFAR-10's binary version, one after the other."""
    rows = []
    for path in paths:
        try:
            with _opened(path) as file:
                bytes_ = np.frombuffer(file.read(_LARGEST), dtype=np.uint8)
        except (OSError, EOFError, zlib.error) as error:
            raise _unreadable(path, error) from None
        if not len(bytes_) or len(bytes_) % _ROW:
            raise damaged(path, f"it has {len(bytes_)} bytes, not a multiple of {_ROW}")
        rows.append(bytes_.reshape(-1, _ROW))
        _known(path, rows[-1][:, 0])
    table = np.concatenate(rows)
    return Images(table[:, 1:], table[:, 0], _COLORED)


def damaged(path: Path, why: str) -> InputError:
    """The sentence about a file that is not what it should be."""
    return InputError(f"{str(path)!r} cannot be read: {why}; get it again.")


def _array(path: Path, dims: int) -> np.ndarray:
    """An array of unsigned bytes: 0, 0, type 8, number of dimensions, their sizes as 32-bit big-endian, the bytes."""
    head_size = 4 + 4 * dims
    try:
        with _opened(path) as file:
            head = file.read(head_size)
            if len(head) < head_size or head[:4] != bytes([0, 0, 8, dims]):
                raise damaged(path, f"it does not begin like an IDX file of {dims}-dimensional bytes")
            shape = struct.unpack(f">{dims}I", head[4:])
            size = math.prod(shape)
            if size == 0 or size > _LARGEST:
                raise damaged(path, f"it announces an array of shape {shape}")
            body = file.read(size + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(path, error) from None
    if len(body) != size:
        what = f"only {len(body)}" if len(body) < size else "more"
        raise damaged(path, f"it announces {size} bytes and holds {what}")
    return np.frombuffer(body, dtype=np.uint8).reshape(shape)


def _opened(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb"))


def _known(path: Path, classes: np.ndarray) -> None:
    if (worst := int(classes.max())) >= CLASSES:
        raise damaged(path, f"it has an image of class {worst}, and there are 0 to {CLASSES - 1}")


def _unreadable(path: Path, error: Any) -> InputError:
    return damaged(path, getattr(error, "strerror", None) or "it is not a whole gzip file")
