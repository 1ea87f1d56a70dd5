"""The store of a sweep: one zarr group, written chunk by chunk; a chunk's status is written last and means done."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import zarr

try:
    import fcntl
except ImportError:  # not on every system
    fcntl = None  # type: ignore[assignment]

from linnet._check import InputError
from linnet.outcome import Status
from linnet.sweep.cells import Quantity
from linnet.sweep.spec import Sweep

WORDS = ("missing", *(status.value for status in Status))  # the meanings of the status codes 0, 1, 2 ...


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Nobody else writes into the store meanwhile."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{str(path)!r} cannot be made: {error.strerror}.") from None
    lock = path.with_name(f".{path.name}.lock")
    with lock.open("a") as file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InputError(
                    f"{str(path)!r} is being written by another process: wait for it or stop it."
                ) from None
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


class Store:
    """A grid of results on disk. Every chunk file is put in place by one rename, so a kill leaves whole files only."""

    def __init__(self, path: Path):
        self.path = path
        try:
            self.group = zarr.open_group(path, mode="r+")
            self.attributes: dict[str, Any] = dict(self.group.attrs)
            self.status = np.asarray(self._array("status")[...])
        except (OSError, KeyError, ValueError) as error:
            raise InputError(f"{str(path)!r} is not a store of a sweep: give another --out or delete it.") from error
        self.chunks: tuple[int, ...] = self._array("status").chunks

    def _array(self, name: str) -> "zarr.Array[Any]":
        array = self.group[name]
        if not isinstance(array, zarr.Array):
            raise KeyError(name)
        return array

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
        grid = spec.grid()
        lead, shape = tuple(grid), tuple(len(values) for values in grid.values())
        building = path.with_name(f".{path.name}.{os.getpid()}.new")
        for leftover in path.parent.glob(f".{path.name}.*.new"):  # of a run killed while it began
            shutil.rmtree(leftover)
        group = zarr.open_group(
            building, mode="w", zarr_format=2, attributes={"title": spec.title, "sweep": json.dumps(spec.identity())}
        )

        def make(name: str, shape: Any, chunks: Any, dtype: Any, fill: Any, dims: Sequence[str], **more: Any) -> Any:
            attributes = {"_ARRAY_DIMENSIONS": list(dims), **more}
            return group.create_array(
                name, shape=shape, chunks=chunks, dtype=dtype, fill_value=fill, attributes=attributes
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
        building.rename(path)
        return cls(path)

    def sweep_leftovers(self) -> None:
        """Removes what a killed writer left half done."""
        for leftover in self.path.glob("*/*.partial"):
            leftover.unlink(missing_ok=True)

    def agrees(self, spec: Sweep) -> None:
        """Refuses a store that was made with other parameters."""
        there, here = (
            _flat(json.loads(self.attributes.get("sweep", "{}"))),
            _flat(json.loads(json.dumps(spec.identity()))),
        )
        for field in [*here, *there]:
            if there.get(field) != here.get(field):
                raise InputError(
                    f"{str(self.path)!r} holds another sweep: {field} is {there.get(field)!r} there and "
                    f"{here.get(field)!r} here; give another --out or delete it."
                )

    def missing(self) -> Iterator[tuple[slice, ...]]:
        """The chunks that are not done."""
        counts = [-(-n // c) for n, c in zip(self.status.shape, self.chunks, strict=True)]
        for index in np.ndindex(*counts):
            block = tuple(
                slice(i * c, min((i + 1) * c, n)) for i, c, n in zip(index, self.chunks, self.status.shape, strict=True)
            )
            if not self.status[block].all():
                yield block

    def write(
        self, block: tuple[slice, ...], values: Mapping[str, np.ndarray], code: np.ndarray, ended: np.ndarray
    ) -> None:
        """Puts a finished chunk in place."""
        for name, value in {**values, "ended": ended}.items():
            array, lead = self._array(name), len(self.chunks)
            here, there = value.shape[lead:], array.shape[lead:]
            if here != there:
                raise InputError(
                    f"store.{name} has shape {here} in some cells and {there} in others: it must not vary."
                )
            array[block] = value
        self._array("status")[block] = (code + 1).astype(np.int8)
        self.status[block] = code + 1


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
