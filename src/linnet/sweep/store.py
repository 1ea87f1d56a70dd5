"""The store of a sweep: one zarr group, written chunk by chunk; a chunk's status is written last and means done.

Every chunk of every array carries a checksum, and none is left out because it is empty: so a file that was changed or
lost on the disk is found, and what it belongs to is computed again.
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numcodecs import CRC32

from linnet._check import InputError
from linnet._files import hushed, locked, writing
from linnet.outcome import Status
from linnet.sweep.cells import Quantity
from linnet.sweep.spec import Sweep

WORDS = ("missing", *(status.value for status in Status))  # the meanings of the status codes 0, 1, 2 ...
Block = tuple[slice, ...]


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Nobody else writes into the store meanwhile."""
    lock = path.with_name(f".{path.name}.lock")  # beside it, since it may not be there yet
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.touch()
    with locked(lock, path):
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


class Store:
    """A grid of results on disk. Every chunk file is put in place by one rename, so a kill leaves whole files only."""

    @hushed()
    def __init__(self, path: Path):
        self.path = path
        try:
            with zarr.config.set({"array.write_empty_chunks": True}):
                self.group = zarr.open_group(path, mode="r+")
                self.arrays: dict[str, zarr.Array[Any]] = dict(self.group.arrays())
            dims = {name: list(array.attrs["_ARRAY_DIMENSIONS"]) for name, array in self.arrays.items()}  # type: ignore[arg-type]
            self.attributes: dict[str, Any] = dict(self.group.attrs)
            self.identity: dict[str, Any] = json.loads(self.attributes["sweep"])
            self.chunks: tuple[int, ...] = self.arrays["status"].chunks
            self.status = np.zeros(self.arrays["status"].shape, dtype=np.int8)
        except (OSError, KeyError, ValueError, TypeError) as error:
            raise InputError(f"{str(path)!r} is not a store of a sweep: give another --out or delete it.") from error
        self.axes = sorted(name for name in dims if dims[name] == [name])
        self.damaged: list[tuple[Block, list[str]]] = []
        for block in self.blocks():
            self._look(block)

    def _look(self, block: Block) -> None:
        """Takes the status of a chunk; one that is done and cannot be read counts as missing."""
        found = self._values("status", block)
        if found is None:
            self.damaged.append((block, ["status"]))
        elif found.all():
            results = sorted(set(self.arrays) - {"status", *self.axes})
            if bad := [name for name in results if self._values(name, block) is None]:
                self.damaged.append((block, bad))
            else:
                self.status[block] = found

    def _values(self, name: str, block: Block) -> np.ndarray | None:
        """The values of an array in a chunk; None if the file is damaged or lost."""
        array = self.arrays[name]
        try:
            values = np.asarray(array[block])
        except Exception:  # a damaged file is reason for anything
            return None
        index = [part.start // chunk for part, chunk in zip(block, array.chunks, strict=False)]
        file = self.path / name / ".".join(map(str, index + [0] * (array.ndim - len(index))))
        # without a status nothing is done; stores of old left out what is empty
        return values if name == "status" or "checksum" not in self.attributes or file.exists() else None

    def lost_axes(self) -> list[str]:
        """The axes, and the clock of records, that cannot be read."""
        return [name for name in self.axes if self._values(name, (slice(0, None),)) is None]

    @classmethod
    def create(
        cls,
        path: Path,
        spec: Sweep,
        quantities: Sequence[Quantity],
        shapes: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]],
        chunks: tuple[int, ...],
        clock: np.ndarray | None = None,
    ) -> "Store":
        """An empty store, built beside its place and then renamed into it."""
        building = path.with_name(f".{path.name}.{os.getpid()}.new")
        for leftover in path.parent.glob(f".{path.name}.*.new"):  # of a run killed while it began
            shutil.rmtree(leftover, ignore_errors=True)
        with writing(path):
            try:
                _build(building, spec, quantities, shapes, chunks, clock)
                building.rename(path)
            finally:
                shutil.rmtree(building, ignore_errors=True)
        return cls(path)

    def sweep_leftovers(self) -> None:
        """Removes what a killed writer left half done."""
        for leftover in self.path.glob("*/*.partial"):
            leftover.unlink(missing_ok=True)

    def agrees(self, spec: Sweep) -> None:
        """Refuses a store that was made with other parameters."""
        there, here = _flat(self.identity), _flat(json.loads(json.dumps(spec.identity())))
        for field in [*here, *there]:
            if there.get(field) != here.get(field):
                raise InputError(
                    f"{str(self.path)!r} holds another sweep: {field} is {there.get(field)!r} there and "
                    f"{here.get(field)!r} here; give another --out or delete it."
                )

    def blocks(self) -> Iterator[Block]:
        """All chunks."""
        counts = [-(-n // c) for n, c in zip(self.status.shape, self.chunks, strict=True)]
        for index in np.ndindex(*counts):
            yield tuple(
                slice(i * c, min((i + 1) * c, n)) for i, c, n in zip(index, self.chunks, self.status.shape, strict=True)
            )

    def missing(self) -> Iterator[Block]:
        """The chunks that are not done."""
        return (block for block in self.blocks() if not self.status[block].all())

    def write(self, block: Block, values: Mapping[str, np.ndarray], code: np.ndarray, ended: np.ndarray) -> None:
        """Puts a finished chunk in place."""
        for name, value in {**values, "ended": ended}.items():
            array, lead = self.arrays[name], len(self.chunks)
            here, there = value.shape[lead:], array.shape[lead:]
            if here != there:
                raise InputError(
                    f"store.{name} has shape {here} in some cells and {there} in others: it must not vary."
                )
            with writing(self.path):
                array[block] = value
        with writing(self.path):
            self.arrays["status"][block] = (code + 1).astype(np.int8)
        self.status[block] = code + 1

    def restore(self, axes: Mapping[str, np.ndarray]) -> None:
        """Writes axes or clocks again."""
        for name, values in axes.items():
            with writing(self.path):
                self.arrays[name][...] = values


@hushed()
def _build(
    building: Path,
    spec: Sweep,
    quantities: Sequence[Quantity],
    shapes: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]],
    chunks: tuple[int, ...],
    clock: np.ndarray | None,
) -> None:
    """The group, with its axes and with nothing in the grid."""
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
        make(name, values.shape, values.shape, "f8", np.nan, [name])[...] = values
    if clock is not None:
        words = "Step of the record" if spec.run.time is None else "Time of the record"
        make("record", clock.shape, clock.shape, "f8", np.nan, ["record"], long_name=words)[...] = clock
    meanings = {"flag_values": list(range(len(WORDS))), "flag_meanings": " ".join(WORDS)}
    make("status", shape, chunks, "i1", None, lead, long_name="How the run ended", **meanings)
    make("ended", shape, chunks, "f8", np.nan, lead, long_name="Step or time at which the run ended")
    for q in quantities:
        inner, dtype = shapes[q.name]
        fill = np.nan if dtype.kind == "f" else None
        names = [*lead, *_dims(q, inner)]
        make(q.name, shape + inner, chunks + tuple(max(1, n) for n in inner), dtype, fill, names, long_name=q.text)
    zarr.consolidate_metadata(building, zarr_format=2)


def _dims(quantity: Quantity, inner: tuple[int, ...]) -> list[str]:
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
