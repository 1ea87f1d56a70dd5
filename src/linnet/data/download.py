"""Fetching published sets by pooch, which checks what comes by its checksum."""

import shutil
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

from linnet import _check
from linnet._check import InputError
from linnet._files import locked, writing
from linnet.data import files
from linnet.data.sets import SETS, Published, home, whole

_PIECE = 2**16  # bytes between two reports
_PLAIN = {"Accept-Encoding": "identity"}  # the file as it is: its checksum is that of the packed one


def fetch(name: str, *, progress: Callable[[float, float], None] | None = None) -> Path:
    """Fetches what is missing or damaged of a set into the folder of that name in LINNET_DATA, or else in the user's
    cache; gives the folder. Every file is checked by its MD5 before it is put in place.

    `progress` is called with the bytes received and the bytes in all.
    """
    known = SETS[_check.choice("name", name, tuple(SETS))]
    if not known.downloads:
        raise InputError(f"name = {name!r} is not allowed: digits are not fetched, they come with scikit-learn.")
    place = home().absolute() / name
    with writing(place):
        place.mkdir(parents=True, exist_ok=True)
    with locked(place, place, wait=True), writing(place):
        wanted = {file: names for file in known.downloads if (names := _lacking(place, known, file))}
        meter = _Meter(sum(known.downloads[file].size for file in wanted), progress)
        pieces = place / ".partial"  # of a fetch that was interrupted, maybe
        shutil.rmtree(pieces, ignore_errors=True)
        try:
            for file, names in wanted.items():
                came = _download(_pooch(), name, file, pieces, meter)
                if f"{names[0]}.gz" != file:
                    _unpack(came, names)
                for content in names:
                    _put(pieces, content, place, known.files[content], known.address + file)
        finally:
            shutil.rmtree(pieces, ignore_errors=True)
    return place


def _lacking(place: Path, known: Published, file: str) -> list[str]:
    """The files that this download would bring and that are not there as published."""
    packed = file.removesuffix(".gz")
    brought = [packed] if packed in known.files else list(known.files)
    return [content for content in brought if not whole(place, content, known.files[content])]


def _unpack(archive: Path, names: Sequence[str]) -> None:
    """Puts these files of an archive beside it, whatever folders they are in there."""
    with tarfile.open(archive) as packed:
        for part in packed:
            file = archive.with_name(Path(part.name).name)
            inside = packed.extractfile(part) if file.name in names and part.isfile() else None
            if inside is not None:
                with inside, file.open("wb") as out:
                    shutil.copyfileobj(inside, out)


def _put(pieces: Path, content: str, place: Path, md5: str, address: str) -> None:
    """Puts one file of what came in place, if it is the published one."""
    ready = files.find(pieces, content)
    if ready is None or not whole(pieces, content, md5):
        why = f"{content} is not in it" if ready is None else f"the MD5 of {content} in it is another"
        raise InputError(f"{address} is not what was published: {why}.")
    while (other := files.find(place, content)) is not None:  # a damaged one, gzipped or not
        other.unlink()
    ready.replace(place / ready.name)


def _pooch() -> ModuleType:
    try:
        import pooch
    except ImportError:
        raise InputError("fetching data sets needs pooch: pip install 'linnet[data]' (or pip install pooch).") from None
    pooch.get_logger().setLevel("WARNING")  # it logs every file
    return pooch


def _download(pooch: ModuleType, name: str, file: str, pieces: Path, meter: "_Meter") -> Path:
    from requests.exceptions import HTTPError, RequestException

    known = SETS[name]
    address, md5 = known.address + file, known.downloads[file].md5
    again = (
        f"linnet data fetch {name} tries again and gets what is missing, or put the published files into a folder "
        f"{name} and name the one around it with LINNET_DATA=FOLDER."
    )
    try:
        by = pooch.HTTPDownloader(progressbar=meter, chunk_size=_PIECE, headers=_PLAIN)
        return Path(pooch.retrieve(address, f"md5:{md5}", fname=file, path=pieces, downloader=by))
    except HTTPError as error:
        if error.response is not None:
            error.response.close()  # nobody has read it
        raise InputError(f"{name} was not fetched: the server says {error}; {again}") from None
    except RequestException:
        raise InputError(f"{name} was not fetched: {address} cannot be reached or broke off; {again}") from None
    except ValueError:  # of the checksum
        raise InputError(
            f"{name} was not fetched: what came from {address} is not the published file, by its MD5, and was thrown "
            f"away; {again}"
        ) from None


class _Meter:
    """Adds up pooch's progress over all files."""

    def __init__(self, whole: int, progress: Callable[[float, float], None] | None):
        self.whole, self.progress = whole, progress
        self.total = self.before = self.now = 0
        self.update(0)

    def update(self, size: int) -> None:
        self.now = min(self.now + size, self.total)  # the last piece is smaller than it says
        if self.progress is not None and self.whole:
            self.progress(self.before + self.now, self.whole)

    def reset(self) -> None:
        self.now = 0

    def close(self) -> None:
        self.before, self.now = self.before + self.now, 0
