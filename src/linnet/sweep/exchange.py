"""What becomes of stores: files for other programs, and two stores of one grid that become one."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from linnet import _check
from linnet._check import InputError
from linnet._files import hushed, placed
from linnet.sweep.place import Place, located
from linnet.sweep.store import Block, Store
from linnet.sweep.sweep import place, ranges

if TYPE_CHECKING:
    import xarray

SUFFIXES = (".nc", ".parquet")


class Merged(NamedTuple):
    """What two stores became: the cells of the grid, how many are finished now, and how many came from each; those
    that both had are counted with the first.
    """

    cells: int
    finished: int
    first: int
    second: int


def merge(first: Path | str, second: Path | str, out: Path | str) -> Merged:
    """Puts the finished chunks of two stores of one grid into the store `out`, which is made, or completed if it holds
    the same grid. Bytes are copied: nothing is computed, and the result is that of one run. What both have must agree
    to the last byte. Killed at any moment, the same call goes on; damaged chunks count as missing.

    `first` and `second` are folders or addresses of stores.
    """
    stores = [Store.there(first), Store.there(second)]
    _agree(*stores)
    where = located(out)
    with where.alone():
        if not where.exists():
            _begin(where, stores)
        made = Store(where)
        _agree(made, stores[0])
        where.tidy()
        came = [0, 0]
        for block in made.blocks():
            have = [number for number, store in enumerate(stores) if store.status[block].all()]
            if have:
                _copy(made, [stores[number] for number in have], block)
                came[have[0]] += made.status[block].size
    return Merged(made.status.size, int(np.count_nonzero(made.status)), *came)


def _agree(one: Store, other: Store) -> None:
    """Refuses stores of two grids, or of one in different chunks."""
    pair = f"{one.place.text!r} and {other.place.text!r}"
    if differs := one.differs(other.identity):
        field, there, here = differs
        raise InputError(f"{pair} hold two sweeps: {field} is {there!r} in the first and {here!r} in the second.")
    if {name: _layout(array) for name, array in one.arrays.items()} != {
        name: _layout(array) for name, array in other.arrays.items()
    }:
        raise InputError(f"{pair} hold one sweep in different chunks: give both the same batch and chunks.")


def _layout(array: Any) -> tuple[Any, ...]:
    return array.shape, array.chunks, array.dtype


def _begin(where: Place, stores: list[Store]) -> None:
    """An empty store with the same metadata; an axis comes from a store that can read it."""
    whole = [store for store in stores if not store.lost_axes()]
    if not whole:
        raise InputError(f"{stores[0].place.text!r} and {stores[1].place.text!r} have lost axes: complete one of them.")
    source = whole[0]
    with where.new() as building:
        for name in source.names:
            if name.rpartition("/")[2].startswith(".z") or name.partition("/")[0] in source.axes:
                file = building / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(source.place.read(name) or b"")


def _copy(made: Store, sources: list[Store], block: Block) -> None:
    """One chunk of all arrays, its status last; what is there already is compared."""
    done = bool(made.status[block].all())
    names = [name for array in (*made.results, "status") for name in made.stored(array, block)]
    found = {name: [store.place.read(name) or b"" for store in (*sources, *[made] * done)] for name in names}
    for name, copies in found.items():
        if len(set(copies)) > 1 or b"" in copies:  # which went away meanwhile
            where = f"{name.partition('/')[0]} at {place(ranges(made.spec().grid(), block))}"
            raise InputError(f"{where} is not the same in all stores that have it: nothing of it was merged.")
    if not done:
        for name, (data, *_) in found.items():
            made.place.ours()
            made.place.put(name, data)
        made.status[block] = sources[0].status[block]


def export(out: Path | str, file: Path) -> int:
    """Writes what a store holds to one file, and returns how many of its runs are finished.

    `.nc` is a netCDF file of the same variables, as xarray writes it; `.parquet` (with pyarrow) is a table with a row
    for each run, in which what has more numbers, such as a series, is a list. Unfinished runs have status 0.
    """
    if file.suffix not in SUFFIXES:
        raise InputError(f"{str(file)!r} cannot be written: it must end in {' or '.join(SUFFIXES)}.")
    if file.suffix == ".parquet":
        _needs_pyarrow(file)
    store = Store.there(out)
    if store.damaged or store.lost_axes():
        raise InputError(f"{store.place.text!r} is damaged: the command that made it computes that again.")
    numbers = sum(array.size for array in store.arrays.values())
    _check.fits("export", str(out), 2 * numbers, f"{numbers:,} numbers")
    with hushed(), placed(file) as partial:
        data = load(out)
        if file.suffix == ".nc":
            data.to_netcdf(partial, engine="scipy")
        else:
            _table(data, tuple(store.spec().grid())).to_parquet(partial, index=False)
    return int(np.count_nonzero(store.status))


def _needs_pyarrow(file: Path) -> None:
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise InputError(f"{str(file)!r} cannot be written: it needs pyarrow (pip install pyarrow).") from None


def load(out: Path | str) -> "xarray.Dataset":
    """What a store holds, in memory; unfinished runs have status 0."""
    import xarray

    return xarray.open_zarr(located(out).zarr(), chunks=None, zarr_format=2).load()


def _table(data: Any, axes: tuple[str, ...]) -> Any:
    """A row for each run; what has more axes than the grid is a list in it."""
    import pandas

    shape = tuple(data.sizes[name] for name in axes)
    columns = dict(
        zip(axes, (x.ravel() for x in np.meshgrid(*(data[n].values for n in axes), indexing="ij")), strict=True)
    )
    for name, variable in data.data_vars.items():
        values = variable.values.reshape(-1, *variable.shape[len(shape) :])
        columns[str(name)] = values if values.ndim == 1 else list(values.tolist())
    if "record" in data:
        columns["record"] = [data["record"].values.tolist()] * int(np.prod(shape))
    return pandas.DataFrame(columns)
