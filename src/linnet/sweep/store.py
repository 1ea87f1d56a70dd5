"""The store of a sweep: one zarr group, written chunk by chunk; a chunk's status is written last and means done.

Every chunk of every array carries a checksum, and none is left out because it is empty: so a file that was changed or
lost on the disk is found, and what it belongs to is computed again.
"""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numcodecs import CRC32
from pydantic import ValidationError

from linnet._check import InputError
from linnet._files import hushed, writing
from linnet.outcome import Status
from linnet.sweep.cells import StoredQuantity
from linnet.sweep.place import Place, located
from linnet.sweep.spec import Sweep

WORDS = ("missing", *(status.value for status in Status))  # the meanings of the status codes 0, 1, 2 ...
Block = tuple[slice, ...]


class Store:
    """A grid of results. Every chunk is put in place at once, by a rename or as one object: none is half there."""

    @hushed()
    def __init__(self, out: Path | str | Place):
        self.place = located(out)
        try:
            with zarr.config.set({"array.write_empty_chunks": True}):
                self.group = zarr.open_group(self.place.zarr(), mode="r+", zarr_format=2)
                self.arrays: dict[str, zarr.Array[Any]] = dict(self.group.arrays())
            dims = {name: list(array.attrs["_ARRAY_DIMENSIONS"]) for name, array in self.arrays.items()}  # type: ignore[arg-type]
            self.attributes: dict[str, Any] = dict(self.group.attrs)
            self.identity: dict[str, Any] = json.loads(self.attributes["sweep"])
            self.chunks: tuple[int, ...] = self.arrays["status"].chunks
            self.status = np.zeros(self.arrays["status"].shape, dtype=np.int8)
        except InputError:
            raise
        except (OSError, KeyError, ValueError, TypeError) as error:
            raise self.place.none() from error
        self.axes = sorted(name for name in dims if dims[name] == [name])
        self.results = sorted(set(self.arrays) - {"status", *self.axes})
        self.damaged: list[tuple[Block, list[str]]] = []
        self.names = self.place.names()
        self.part = (1, 1)
        self.threads = ThreadPoolExecutor(self.place.threads)  # which wait for the place
        for block, bad in zip(self.blocks(), self.threads.map(self._load_status, self.blocks()), strict=True):
            if bad:
                self.damaged.append((block, bad))

    def _load_status(self, block: Block) -> list[str]:
        """Loads the status of a chunk and returns its damaged arrays; a damaged chunk counts as missing."""
        if not self.names.issuperset(self.stored("status", block)):
            return []
        found = self._values("status", block)
        if found is None:
            return ["status"]
        if not found.all():
            return []
        bad = [name for name in self.results if self._values(name, block) is None]
        if not bad:
            self.status[block] = found
        return bad

    def stored(self, name: str, block: Block) -> list[str]:
        """Under which names an array is stored in a chunk of the grid."""
        array = self.arrays[name]
        lead = [[part.start // chunk] for part, chunk in zip(block, array.chunks, strict=False)]
        inner = [range(max(1, -(-n // c))) for n, c in zip(array.shape, array.chunks, strict=True)][len(lead) :]
        return [f"{name}/{'.'.join(map(str, index))}" for index in itertools.product(*lead, *inner)]

    def _values(self, name: str, block: Block) -> np.ndarray | None:
        """The values of an array in a chunk; None if it is damaged or lost."""
        # stores of old left out what is empty
        if "checksum" in self.attributes and not self.names.issuperset(self.stored(name, block)):
            return None
        try:
            return np.asarray(self.arrays[name][block])
        except InputError:  # the place is out of reach, which says nothing of the chunk
            raise
        except Exception:  # a damaged chunk is reason for anything
            return None

    def lost_axes(self) -> list[str]:
        """The axes, and the clock of records, that cannot be read."""
        return [name for name in self.axes if self._values(name, (slice(0, None),)) is None]

    @classmethod
    def there(cls, out: Path | str | Place) -> "Store":
        """The store that must be there."""
        where = located(out)
        if not where.exists():
            raise InputError(f"{where.text!r} is not a store of a sweep: there is nothing.")
        return cls(where)

    def spec(self) -> Sweep:
        """The sweep that is stored here."""
        fields = {name: value for name, value in self.identity.items() if name in Sweep.model_fields}
        try:
            return Sweep.model_validate({**fields, "title": self.attributes.get("title", "")})
        except ValidationError:
            raise self.place.none() from None

    def agrees(self, spec: Sweep) -> None:
        """Refuses a store that was made with other parameters."""
        if differs := self.differs(json.loads(json.dumps(spec.identity()))):
            field, there, here = differs
            raise InputError(
                f"{self.place.text!r} holds another sweep: {field} is {there!r} there and {here!r} here; give another "
                "--out or delete it."
            )

    def differs(self, identity: Mapping[str, Any]) -> tuple[str, Any, Any] | None:
        """The first field in which a sweep is another than this one, with its values there and here."""
        there, here = _flat(self.identity), _flat(identity)
        for field in [*here, *there]:
            if there.get(field) != here.get(field):
                return field, there.get(field), here.get(field)
        return None

    def blocks(self) -> Iterator[Block]:
        """All chunks."""
        counts = [-(-n // c) for n, c in zip(self.status.shape, self.chunks, strict=True)]
        for index in np.ndindex(*counts):
            yield tuple(
                slice(i * c, min((i + 1) * c, n)) for i, c, n in zip(index, self.chunks, self.status.shape, strict=True)
            )

    def missing(self) -> Iterator[Block]:
        """The chunks that are not done, of those that are this driver's part."""
        part, parts = self.part
        mine = itertools.islice(self.blocks(), part - 1, None, parts)
        return (block for block in mine if not self.status[block].all())

    def write(self, block: Block, values: Mapping[str, np.ndarray], code: np.ndarray, ended: np.ndarray) -> None:
        """Puts a finished chunk in place."""
        results = {**values, "ended": ended}
        for name, value in results.items():
            here, there = value.shape[len(self.chunks) :], self.arrays[name].shape[len(self.chunks) :]
            if here != there:
                raise InputError(
                    f"store.{name} has shape {here} in some cells and {there} in others: it must not vary."
                )
        wait(written := [self.threads.submit(self._put, self.arrays[name], block, results[name]) for name in results])
        for future in written:
            future.result()
        self._put(self.arrays["status"], block, (code + 1).astype(np.int8))
        self.status[block] = code + 1

    def restore(self, axes: Mapping[str, np.ndarray]) -> None:
        """Writes axes or clocks again."""
        for name, values in axes.items():
            self._put(self.arrays[name], ..., values)

    def _put(self, array: "zarr.Array[Any]", block: Any, values: np.ndarray) -> None:
        self.place.ours()
        with writing(self.place.text):
            array[block] = values


@hushed()
def create(
    where: Place,
    spec: Sweep,
    quantities: Sequence[StoredQuantity],
    shapes: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]],
    chunks: tuple[int, ...],
    clock: np.ndarray | None,
) -> None:
    """Makes a store with its axes and nothing in the grid, built aside and then put in its place."""
    with where.new() as building:
        grid = spec.grid()
        lead, shape = tuple(grid), tuple(len(values) for values in grid.values())
        group = zarr.open_group(
            building,
            mode="w",
            zarr_format=2,
            attributes={"title": spec.title, "sweep": json.dumps(spec.identity()), "checksum": CRC32.codec_id},
        )

        def make(name: str, shape: Any, chunks: Any, dtype: Any, fill: Any, dims: Sequence[str], **more: Any) -> Any:
            attributes = {"_ARRAY_DIMENSIONS": list(dims), **more}
            return group.create_array(
                name,
                shape=shape,
                chunks=chunks,
                dtype=dtype,
                fill_value=fill,
                attributes=attributes,
                filters=[CRC32()],
                config={"write_empty_chunks": True},
            )

        for name, values in grid.items():
            fill = np.nan if values.dtype.kind == "f" else None
            make(name, values.shape, values.shape, values.dtype, fill, [name])[...] = values
        if clock is not None:
            words = "Step of the record" if spec.run.time is None else "Time of the record"
            make("record", clock.shape, clock.shape, "f8", np.nan, ["record"], long_name=words)[...] = clock
        meanings = {"flag_values": list(range(len(WORDS))), "flag_meanings": " ".join(WORDS)}
        make("status", shape, chunks, "i1", None, lead, long_name="How the run ended", **meanings)
        make("ended", shape, chunks, "f8", np.nan, lead, long_name="Step or time at which the run ended")
        for q in quantities:
            inner, dtype = shapes[q.name]
            fill = np.nan if dtype.kind == "f" else None
            names = _dims(q, inner)
            apart = spec.chunks == "records"  # for who reads one record of all runs, rather than all records of one
            sizes = tuple(1 if apart and dim == "record" else max(1, n) for dim, n in zip(names, inner, strict=True))
            make(q.name, shape + inner, chunks + sizes, dtype, fill, [*lead, *names], long_name=q.text)
        zarr.consolidate_metadata(building, zarr_format=2)


def _dims(quantity: StoredQuantity, inner: tuple[int, ...]) -> list[str]:
    named = list(quantity.dims)
    return named if len(named) == len(inner) else [f"{quantity.name}_{i}" for i in range(len(inner))]


def _flat(tree: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(tree, dict):
        return {
            k: v
            for name, value in tree.items()
            for k, v in _flat(value, f"{prefix}.{name}" if prefix else name).items()
        }
    return {prefix: tree}
