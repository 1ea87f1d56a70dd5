"""The published sets of images: their addresses, where they are on this machine, and whether they are intact."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from linnet import _check
from linnet._check import InputError
from linnet._programs import cache_folder
from linnet.data import files
from linnet.data.images import Images

PARTS = ("train", "test")


class Download(NamedTuple):
    """A file at the published address: its bytes and its MD5."""

    size: int
    md5: str


class Published(NamedTuple):
    """A set of images as its authors published it."""

    title: str
    train: int
    test: int
    address: str
    downloads: Mapping[str, Download]
    contents: Mapping[str, Mapping[str, str]]  # of the parts train and test: files and the MD5 of what is in them

    @property
    def files(self) -> dict[str, str]:
        """All files of the set, with the MD5 of what is in them."""
        return {name: md5 for part in self.contents.values() for name, md5 in part.items()}


class SetStatus(NamedTuple):
    """Where a set lies on this machine, and what is wrong with it: None if every file is the published one."""

    name: str
    title: str
    train: int
    test: int
    megabytes: int  # to be fetched
    folder: str | None  # None where nothing of it was found
    trouble: str | None

    @property
    def whole(self) -> bool:
        """Whether all of it is there."""
        return self.trouble is None


_IMAGES, _LABELS = "{}-images-idx3-ubyte", "{}-labels-idx1-ubyte"
_OF = {"train": "train", "test": "t10k"}  # what MNIST calls its parts


def _like_mnist(title: str, address: str, packed: tuple[tuple[int, str], ...], inside: tuple[str, ...]) -> Published:
    """60,000 and 10,000 images in four gzipped IDX files, in this order: images and labels to train, then to test."""
    names = [(part, pattern.format(_OF[part])) for part in PARTS for pattern in (_IMAGES, _LABELS)]
    downloads = {f"{name}.gz": Download(*entry) for (_, name), entry in zip(names, packed, strict=True)}
    contents: dict[str, dict[str, str]] = {part: {} for part in PARTS}
    for (part, name), md5 in zip(names, inside, strict=True):
        contents[part][name] = md5
    return Published(title, 60_000, 10_000, address, downloads, contents)


SETS: Mapping[str, Published] = {
    "digits": Published("digits of scikit-learn, 8 x 8", 1797, 0, "", {}, {}),
    "mnist": _like_mnist(
        "MNIST, 28 x 28",
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        (
            (9_912_422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
            (28_881, "d53e105ee54ea40749a09fcbcd1e9432"),
            (1_648_877, "9fb629c4189551a2d022fa330f9573f3"),
            (4_542, "ec29112dd5afa0611ce80d1b7f02629c"),
        ),
        (
            "6bbc9ace898e44ae57da46a324031adb",
            "a25bea736e30d166cdddb491f175f624",
            "2646ac647ad5339dbf082846283269ea",
            "27ae3e4e09519cfbb04c329615203637",
        ),
    ),
    "fashion": _like_mnist(
        "Fashion-MNIST, 28 x 28",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        (
            (26_421_880, "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
            (29_515, "25c81989df183df01b3e8a0aad5dffbe"),
            (4_422_102, "bef4ecab320f06d8554ea6380940ec79"),
            (5_148, "bb300cfdad3c16e7a12a480ee83cd310"),
        ),
        (
            "f4a8712d7a061bf5bd6d2ca38dc4d50a",
            "9018921c3c673c538a1fc5bad174d6f9",
            "8181f5470baa50b63fa0f6fddb340f0a",
            "15d484375f8d13e6eb1aabb0c3f46965",
        ),
    ),
    "cifar10": Published(
        "CIFAR-10, 32 x 32 in three colors",
        50_000,
        10_000,
        "https://www.cs.toronto.edu/~kriz/",
        {"cifar-10-binary.tar.gz": Download(170_052_171, "c32a1d4ab5d03f1284b67883e8d87530")},
        {
            "train": {
                "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
                "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
                "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
                "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
                "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
            },
            "test": {"test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d"},
        },
    ),
}


# Reading -------------------------------------------------------------------------------------------------------------


def load(name: str, *, part: str = "train", folder: str | Path | None = None) -> Images:
    """The images of a set: digits from scikit-learn; mnist, fashion and cifar10 from their published files.

    They are searched in the folder that the environment's LINNET_DATA names, then where `fetch` puts them, each with
    a folder mnist, fashion or cifar10 in it; what is found there must be what was published, by its checksums. With
    `folder` that one is read, or the one of the set's name in it, whatever images are in its files.

    `part` is "train" or "test"; digits have no test images.
    """
    _check_part(name, part)
    if name == "digits":
        if folder is not None:
            raise InputError(f"folder = {str(folder)!r} is not allowed with 'digits': they need no files.")
        return _digits()
    if folder is not None:
        return _read(name, part, _own(name, Path(folder)))
    found = _found(name, part)
    if found is None:
        raise InputError(_absent([name], part))
    for file, md5 in SETS[name].contents[part].items():
        if (trouble := _trouble(found, file, md5, name)) is not None:
            raise InputError(trouble)
    return _read(name, part, found)


def missing(*names: str, part: str = "train", folder: str | Path | None = None) -> str | None:
    """What this machine lacks for `load` of these sets, as a sentence with the cure; None if the files are there.

    `names` are sets, `part` is as in `load`.
    """
    absent = []
    for name in names:
        _check_part(name, part)
        if name != "digits" and folder is None:
            absent += [] if _found(name, part) else [name]
            continue
        try:
            load(name, part=part, folder=folder)
        except InputError as error:
            return str(error)
    return _absent(absent, part) if absent else None


def status(name: str) -> SetStatus:
    """Where a set is and whether it is whole: all its files are read and compared with the published checksums.

    `name` is one of `SETS`.
    """
    known = SETS[_check.choice("name", name, tuple(SETS))]
    size = round(sum(file.size for file in known.downloads.values()) / 1e6)
    known_facts = (name, known.title, known.train, known.test, size)
    if name == "digits":
        lacks = missing(name)
        return SetStatus(*known_facts, None if lacks else "scikit-learn", lacks)
    found = next((place for place in places(name) if any(files.find(place, f) for f in known.files)), None)
    if found is None:
        return SetStatus(*known_facts, None, _absent([name], "train"))
    troubles = (_trouble(found, file, md5, name) for file, md5 in known.files.items())
    return SetStatus(*known_facts, str(found), next((words for words in troubles if words is not None), None))


def home() -> Path:
    """Where sets are put that are fetched: in LINNET_DATA's folder, or in the user's cache."""
    bases = _bases()
    if not bases:
        raise InputError("there is no home folder to keep data sets in: name a folder with LINNET_DATA=FOLDER.")
    return bases[0]


def whole(folder: Path, file: str, md5: str) -> bool:
    """Whether the file is in the folder, gzipped or not, with the published contents."""
    path = files.find(folder, file)
    try:
        return path is not None and files.md5(path) == md5
    except InputError:
        return False


def _check_part(name: str, part: str) -> None:
    _check.choice("name", name, tuple(SETS))
    if name == "digits" and part != "train":
        raise InputError(f"part = {part!r} is not allowed with 'digits': they have one part, 'train'.")
    _check.choice("part", part, PARTS)


def _bases() -> list[Path]:
    """The folders in which sets are searched by their names, the first one first."""
    named, cache = os.environ.get("LINNET_DATA", ""), cache_folder()
    return [*([Path(named)] if named else []), *([] if cache is None else [cache / "data"])]


def places(name: str) -> list[Path]:
    """The folders in which a set of this name is searched, the first one first."""
    return [base.absolute() / name for base in _bases()]


def _found(name: str, part: str) -> Path | None:
    """The first place with a file of that part."""
    wanted = SETS[name].contents[part]
    return next((place for place in places(name) if any(files.find(place, file) for file in wanted)), None)


def _own(name: str, folder: Path) -> Path:
    if not folder.is_dir():
        raise InputError(f"folder = {str(folder)!r} is not allowed: there is no such folder.")
    return folder / name if (folder / name).is_dir() else folder


def _absent(names: Sequence[str], part: str) -> str:
    where = " and ".join(repr(str(base.absolute())) for base in _bases()) or "no folder"
    one = len(names) == 1
    beside = ", ".join(f"{name}/{next(iter(SETS[name].contents[part]))}" for name in names)
    return (
        f"{', '.join(names)}{' (test images)' * (part == 'test')} {'is' if one else 'are'} not on this machine, "
        f"searched in {where}: linnet data fetch {' '.join(names)} gets {'it' if one else 'them'}, or "
        f"LINNET_DATA=FOLDER names a folder that has {beside} and the files beside."
    )


def _trouble(folder: Path, file: str, md5: str, name: str) -> str | None:
    """What is wrong with a file of a set, as a sentence with the cure."""
    path = files.find(folder, file)
    cure = f"linnet data fetch {name} gets it"
    if path is None:
        return f"{str(folder / file)!r} is missing: {cure}."
    try:
        return None if files.md5(path) == md5 else f"{str(path)!r} is not the published file, by its MD5: {cure}."
    except InputError as error:
        return f"{str(error).removesuffix('; get it again.')}: {cure}."


def _read(name: str, part: str, folder: Path) -> Images:
    return _cifar(folder, part) if name == "cifar10" else _idx(folder, part, name)


def _idx(folder: Path, part: str, name: str) -> Images:
    wanted = [pattern.format(_OF[part]) for pattern in (_IMAGES, _LABELS)]
    images, labels = (files.find(folder, file) for file in wanted)
    if images is None or labels is None:
        raise InputError(
            f"folder = {str(folder)!r} is not allowed: {name} needs {' and '.join(wanted)} there, with or without .gz."
        )
    return files.idx(images, labels)


def _cifar(folder: Path, part: str) -> Images:
    wanted = list(SETS["cifar10"].contents[part])
    there = [path for file in wanted if (path := files.find(folder, file)) is not None]
    if not there:
        pickled = any((folder / Path(file).stem).exists() for file in wanted)
        python = "holds the Python version, which is not opened because unpickling runs code; " if pickled else ""
        needed = "data_batch_1.bin (to 5)" if part == "train" else wanted[0]
        raise InputError(
            f"folder = {str(folder)!r} is not allowed: it {python}{'it ' * pickled}needs {needed} of the binary "
            "version, cifar-10-binary.tar.gz."
        )
    return files.cifar(there)


def _digits() -> Images:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise InputError(
            "'digits' needs scikit-learn: pip install 'linnet[images]' (or pip install scikit-learn)."
        ) from None
    found = load_digits()
    return Images(np.asarray(found.data), np.asarray(found.target), (8, 8), 16)
