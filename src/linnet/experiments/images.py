"""Small sets of images: scikit-learn's digits, or MNIST, Fashion-MNIST and CIFAR-10 from their published files.

IDX files (gzipped or not) and the binary version of CIFAR-10 are read as numbers. Nothing is ever unpickled, since that
would run code of the file.
"""

import gzip
import math
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from linnet import _check
from linnet._check import InputError

SETS = ("digits", "mnist", "fashion", "cifar10")
_PIXELS = 3 * 32 * 32  # of an image of CIFAR-10, after a byte for its class
_LARGEST = 2**31  # bytes of an IDX file's contents; the largest published one has 47 million


class Images(NamedTuple):
    """Images as rows of numbers, and the class of each."""

    pixels: np.ndarray
    classes: np.ndarray


def load(images: str, folder: Path | None = None) -> Images:
    """The set of that name: digits from scikit-learn, the others from a folder with their published files.

    Training images if they are there, else test images.
    """
    _check.choice("images", images, SETS)
    if images == "digits":
        if folder is not None:
            raise InputError(f"folder = {str(folder)!r} is not allowed with images = 'digits': they need no files.")
        return _digits()
    if folder is None:
        raise InputError(f"folder is missing: images = {images!r} needs the folder with the published files.")
    if not folder.is_dir():
        raise InputError(f"folder = {str(folder)!r} is not allowed: there is no such folder.")
    return _cifar(folder) if images == "cifar10" else _idx(folder, images)


def pair(images: Images, classes: Sequence[int], n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """n images of two classes, half of each, less their mean; labels +1 and -1 (feature learning, section 6)."""
    if len(classes) != 2 or classes[0] == classes[1]:
        raise InputError(f"classes = {tuple(classes)} is not allowed: give two different classes.")
    half = _check.integer("n", n, least=2) // 2
    if n != 2 * half:
        raise InputError(f"n = {n} is not allowed: n must be even, half of the images from each class.")
    there = [np.flatnonzero(images.classes == name) for name in classes]
    for name, found in zip(classes, there, strict=True):
        if not len(found):
            known = ", ".join(str(c) for c in np.unique(images.classes))
            raise InputError(f"class {name} is not known: the images have {known}.")
        if len(found) < half:
            raise InputError(
                f"n = {n} is not allowed: it takes {half} images of class {name}, and there are {len(found)}."
            )
    chosen = [rng.permutation(found)[:half] for found in there]
    x = images.pixels[np.concatenate(chosen)].astype(float)
    return x - x.mean(axis=0), np.repeat([1.0, -1.0], half)


def _digits() -> Images:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise InputError(
            "images = 'digits' needs scikit-learn: pip install 'linnet[images]' (or pip install scikit-learn)."
        ) from None
    found = load_digits()
    return Images(np.asarray(found.data), np.asarray(found.target))


# IDX (MNIST, Fashion-MNIST) ------------------------------------------------------------------------------------------


def _idx(folder: Path, images: str) -> Images:
    for part in ("train", "t10k"):
        files = [_either(folder, f"{part}-{what}") for what in ("images-idx3-ubyte", "labels-idx1-ubyte")]
        if None not in files:
            pixels, classes = (_read_idx(path, dims) for path, dims in zip(files, (3, 1), strict=True) if path)
            if len(pixels) != len(classes):
                raise InputError(
                    f"{str(files[0])!r} holds {len(pixels)} images and {str(files[1])!r} {len(classes)} labels: they "
                    "do not belong together."
                )
            return Images(pixels.reshape(len(pixels), -1), classes)
    raise InputError(
        f"folder = {str(folder)!r} is not allowed: {images} needs train-images-idx3-ubyte and train-labels-idx1-ubyte "
        "there (or those of t10k), with or without .gz."
    )


def _either(folder: Path, name: str) -> Path | None:
    """The file, gzipped or not; some unpackers write a dot for the last dash but one."""
    dotted = name.replace("-idx", ".idx")
    for candidate in (name, f"{name}.gz", dotted, f"{dotted}.gz"):
        if (folder / candidate).is_file():
            return folder / candidate
    return None


def _read_idx(path: Path, dims: int) -> np.ndarray:
    """An array of unsigned bytes: 0, 0, type 8, number of dimensions, their sizes as 32-bit big-endian, the bytes."""
    head_size = 4 + 4 * dims
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            head = file.read(head_size)
            if len(head) < head_size or head[:4] != bytes([0, 0, 8, dims]):
                raise _damaged(path, f"it does not begin like an IDX file of {dims}-dimensional bytes")
            shape = struct.unpack(f">{dims}I", head[4:])
            size = math.prod(shape)
            if size == 0 or size > _LARGEST:
                raise _damaged(path, f"it announces an array of shape {shape}")
            body = file.read(size + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise _damaged(path, getattr(error, "strerror", None) or "it is not a whole gzip file") from None
    if len(body) != size:
        what = f"only {len(body)}" if len(body) < size else "more"
        raise _damaged(path, f"it announces {size} bytes and holds {what}")
    return np.frombuffer(body, dtype=np.uint8).reshape(shape)


# CIFAR-10, binary version --------------------------------------------------------------------------------------------


def _cifar(folder: Path) -> Images:
    files = sorted(folder.glob("data_batch_[1-5].bin")) or sorted(folder.glob("test_batch.bin"))
    if not files:
        pickled = (folder / "data_batch_1").exists() or (folder / "test_batch").exists()
        seen = "holds the Python version, which is not opened because unpickling runs code; " if pickled else ""
        raise InputError(
            f"folder = {str(folder)!r} is not allowed: it {seen}{'it ' * pickled}needs data_batch_1.bin (to 5) or "
            "test_batch.bin of the binary version, cifar-10-binary.tar.gz."
        )
    rows = []
    for path in files:
        try:
            bytes_ = np.frombuffer(path.read_bytes(), dtype=np.uint8)
        except OSError as error:
            raise _damaged(path, error.strerror or "it is damaged") from None
        if not len(bytes_) or len(bytes_) % (_PIXELS + 1):
            raise _damaged(path, f"it has {len(bytes_)} bytes, not a multiple of {_PIXELS + 1}")
        rows.append(bytes_.reshape(-1, _PIXELS + 1))
        if (worst := int(rows[-1][:, 0].max())) > 9:
            raise _damaged(path, f"it has an image of class {worst}, and there are 0 to 9")
    table = np.concatenate(rows)
    return Images(table[:, 1:], table[:, 0])


def _damaged(path: Path, why: Any) -> InputError:
    return InputError(f"{str(path)!r} cannot be read: {why}; get it again.")
