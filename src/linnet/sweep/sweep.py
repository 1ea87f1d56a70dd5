"""Runs a sweep into its store: cells of one shape together, chunk by chunk, from wherever it was left."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import jax
import numpy as np

from linnet import _check
from linnet._check import InputError
from linnet._pool import pool
from linnet.sweep.cells import Builder, Cell, Runner
from linnet.sweep.place import Place, located
from linnet.sweep.spec import Sweep
from linnet.sweep.store import WORDS, Store, alone

Progress = Callable[[int, int], None]
_MOST = 512  # runs in one batch
_BUSY = 4000  # a state with more numbers keeps a CPU busy on its own


def run(
    spec: Sweep,
    out: Path | str,
    progress: Progress | None = None,
    *,
    workers: int = 1,
    part: tuple[int, int] = (1, 1),
) -> dict[str, int]:
    """Makes or completes the store `out`, a folder or a URL (`s3://`, `gs://`, `memory://`, `file://`); returns how
    many cells ended in which way, how many were computed now, and how many chunks were computed again because they
    were found damaged.

    Killed at any moment, the same call goes on where it was: finished chunks are never computed again, and since a
    chunk is always computed from the same cells in the same batches, the result is the same to the last bit. A kill
    costs the chunks in the making. On a CPU `workers` processes share the chunks, each on a core of its own (with the
    command line: all cores). With `part=(2, 3)` every third chunk is computed, from the second on; `merge` joins
    stores of different parts.
    """
    if not 1 <= part[0] <= part[1]:
        raise InputError(f"part = {part[0]}/{part[1]} is not allowed: it must be 1/N, 2/N ... or N/N.")
    where = located(out)
    plan = None if where.exists() else _plan(spec)  # mistakes show before anything is written
    with alone(where):
        return _run(spec, where, plan, progress, workers, part)


def _plan(spec: Sweep) -> tuple[Any, ...]:
    """What a new store needs to know."""
    builder = Builder(spec)
    first, runner = builder.cell(_points(spec, np.arange(1))[0]), Runner(spec, builder.quantities)
    sizes = tuple(map(len, spec.grid().values()))
    _check.fits("axes", " x ".join(map(str, sizes)), 2 * math.prod(sizes), "a grid of so many runs")
    chunks, shapes = _chunks(sizes, spec.batch or _batch(first)), runner.shapes(first)
    _try_names(spec, builder, runner, shapes)
    each = sum(math.prod(shape) for shape, _ in shapes.values())
    _check.fits("batch", math.prod(chunks), 3 * each * math.prod(chunks), f"{each:,} numbers of each run")
    return builder.quantities, shapes, chunks, runner.clock(first) if runner.series else None


def _try_names(spec: Sweep, builder: Builder, runner: Runner, shapes: dict[str, Any]) -> None:
    """Every combination of named problems, starts and motions, without running any; equal programs once."""
    places = [range(len(axis)) if isinstance(axis, dict) else range(1) for axis in spec.axes.values()]
    sizes, tried = tuple(map(len, spec.grid().values())), set()
    for index in itertools.product(*places) if any(len(names) > 1 for names in places) else ():
        cell = builder.cell(_points(spec, np.array([np.ravel_multi_index(index, sizes)]))[0])
        if cell.signature() not in tried:
            tried.add(cell.signature())
            for name, (shape, _) in runner.shapes(cell).items():
                if shape != shapes[name][0]:
                    _varies(name, shapes[name][0])


def _varies(name: str, shape: tuple[int, ...]) -> NoReturn:
    raise InputError(f"store.{name} has shape {shape} in some cells and not in others: it must not vary.")


def _run(
    spec: Sweep,
    out: Place,
    plan: tuple[Any, ...] | None,
    progress: Progress | None,
    workers: int,
    part: tuple[int, int],
) -> dict[str, int]:
    if plan is not None and not out.exists():
        Store.create(out, spec, *plan)
    store = Store(out)
    store.agrees(spec)
    store.part = part
    out.tidy()
    if lost := store.lost_axes():
        axes = {**spec.grid(), "record": _plan(spec)[3]}
        store.restore({name: axes[name] for name in lost})
    numbers = np.arange(store.status.size).reshape(store.status.shape)
    done = before = int(np.count_nonzero(store.status))

    def tell(count: int) -> None:
        if progress is not None:
            progress(done + count, numbers.size)

    tell(0)
    for block, (values, code, ended) in _results(spec, store, numbers, workers, tell):
        shape = numbers[block].shape
        store.write(
            block,
            {name: value.reshape(shape + value.shape[1:]) for name, value in values.items()},
            code.reshape(shape),
            ended.reshape(shape).astype(float),
        )
        done += numbers[block].size
        tell(0)
    ends = Counter(WORDS[code] for code in store.status.flat)
    counts = {"cells": numbers.size, "computed": done - before, "damaged": len(store.damaged)}
    return counts | {word: ends[word] for word in WORDS[1:]}


class Damage(NamedTuple):
    """Arrays of a store that cannot be read in some cells: the range of each axis; all cells for an axis itself."""

    arrays: list[str]
    cells: dict[str, list[Any]]


class Checked(NamedTuple):
    """What a store holds: its cells, how many of them are finished and whole, and what is damaged."""

    cells: int
    finished: int
    damage: list[Damage]


def check(spec: Sweep | None, out: Path | str) -> Checked:
    """Reads all that is finished in the store `out` and says what is damaged, by checksums; changes nothing. Without
    `spec` the store itself says which sweep it holds.
    """
    store = Store.there(out)
    if spec is not None:
        store.agrees(spec)
    grid = store.spec().grid()
    damage = [Damage([name], ranges(grid)) for name in store.lost_axes()]
    damage += [Damage(arrays, ranges(grid, block)) for block, arrays in store.damaged]
    return Checked(store.status.size, int(np.count_nonzero(store.status)), damage)


def ranges(grid: Mapping[str, np.ndarray], block: tuple[slice, ...] | None = None) -> dict[str, list[Any]]:
    """The range of each axis in a chunk, or in all."""
    parts = block or (slice(None),) * len(grid)
    found = {name: values[part] for (name, values), part in zip(grid.items(), parts, strict=True)}
    return {name: [part[0].item(), part[-1].item()] for name, part in found.items()}


def place(cells: Mapping[str, list[Any]]) -> str:
    """Such ranges in words."""
    told = {name: [x if isinstance(x, str) else f"{x:g}" for x in ends] for name, ends in cells.items()}
    return ", ".join(f"{name} = {' to '.join(dict.fromkeys(ends))}" for name, ends in told.items())


Results = tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]


def _results(
    spec: Sweep, store: Store, numbers: np.ndarray, workers: int, tell: Callable[[int], None]
) -> Iterator[tuple[tuple[slice, ...], Results]]:
    """The chunks that are missing, as they are finished."""
    text = spec.model_dump_json()
    # by the size of the whole store, so that a chunk is computed in the same way whenever it is
    if workers > 1 and numbers.size >= 4 * workers * math.prod(store.chunks) and jax.default_backend() == "cpu":
        with pool(workers) as processes:
            blocks = store.missing()
            waiting: dict[Future[Results], tuple[slice, ...]] = {}
            try:
                while True:
                    for block in itertools.islice(blocks, 2 * workers - len(waiting)):
                        waiting[processes.submit(_chunk, text, numbers[block].ravel())] = block
                    if not waiting:
                        return
                    for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                        yield waiting.pop(future), future.result()
            except BaseException:
                processes.shutdown(wait=False, cancel_futures=True)
                raise
    else:
        for block in store.missing():
            yield block, _chunk(text, numbers[block].ravel(), tell)


def _chunk(text: str, chosen: np.ndarray, tell: Callable[[int], None] | None = None) -> Results:
    spec, builder, runner = _prepared(text)
    cells = [builder.cell(point) for point in _points(spec, chosen)]
    if runner.series:
        first = builder.cell(_points(spec, np.arange(1))[0])
        runner.cap([first, *cells], alone=True)  # one number of steps for all
    return _compute(runner, cells, tell or (lambda count: None))


@lru_cache(maxsize=1)
def _prepared(text: str) -> tuple[Sweep, Builder, Runner]:
    spec = Sweep.model_validate_json(text)
    builder = Builder(spec)
    return spec, builder, Runner(spec, builder.quantities)


def _points(spec: Sweep, chosen: np.ndarray) -> list[dict[str, Any]]:
    """The numbers and names on the axes of the cells chosen, which are counted with the last axis first."""
    grid = spec.grid()
    indices = np.unravel_index(chosen, tuple(map(len, grid.values())))
    columns = [values[index] for values, index in zip(grid.values(), indices, strict=True)]
    return [{name: value.item() for name, value in zip(grid, row, strict=True)} for row in zip(*columns, strict=True)]


def _compute(runner: Runner, cells: list[Cell], tell: Callable[[int], None]) -> Results:
    """All cells of a chunk, those of one signature together and the long ones together."""
    alone = len(cells) == 1
    groups: dict[Any, list[int]] = {}
    for i in sorted(range(len(cells)), key=lambda i: cells[i].steps):
        groups.setdefault(cells[i].signature(), []).append(i)
    found: list[Any] = [None] * len(cells)
    count = 0
    for members in groups.values():
        # the longest run of a batch decides its length: begin a new one where the number of steps has doubled
        while members:
            least = cells[members[0]].steps
            batch = [i for i in members if cells[i].steps <= 2 * least][:_MOST]
            members = members[len(batch) :]
            chosen = [cells[i] for i in batch]
            values, code, ended = runner.run(chosen, runner.cap(chosen, alone=alone))
            for place, i in enumerate(batch):
                found[i] = {name: value[place] for name, value in values.items()}, code[place], ended[place]
            count += len(batch)
            tell(count)
    for name, value in found[0][0].items():
        shapes = {cell[0][name].shape for cell in found}
        if len(shapes) > 1:
            _varies(name, value.shape)
    values = {name: np.stack([cell[0][name] for cell in found]) for name in found[0][0]}
    return values, np.array([cell[1] for cell in found]), np.array([cell[2] for cell in found])


def _batch(cell: Cell) -> int:
    """How many runs at once: what a quarter of the device's memory holds, one on a CPU that is busy with one."""
    numbers = sum(np.size(leaf) for leaf in jax.tree.leaves(cell.state))
    room = _check.memory()
    if jax.default_backend() == "cpu":
        if numbers > _BUSY:
            return 1
        room //= 2
    bytes_each = 8 * (16 * numbers + 8 * max(cell.steps, 256))  # state, its new value, gradients, what is kept; records
    return int(np.clip(room // 4 // bytes_each, 1, _MOST))


def _chunks(shape: tuple[int, ...], batch: int) -> tuple[int, ...]:
    """The largest block of the grid, last axes first, with at most `batch` cells."""
    out: list[int] = []
    for size in reversed(shape):
        room = max(1, batch // math.prod(out))
        out.insert(0, min(size, room) if math.prod(out) * min(size, room) <= batch else 1)
    return tuple(out)
