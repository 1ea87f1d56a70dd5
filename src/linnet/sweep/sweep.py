"""Runs a sweep into its store: cells of one shape together, chunk by chunk, from wherever it was left."""

import itertools
import json
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import jax
import numpy as np
from threadpoolctl import threadpool_limits

from linnet import _check
from linnet._check import InputError
from linnet._compiler import cpu
from linnet._pool import in_processes
from linnet.sweep import cluster
from linnet.sweep.cells import Batch, Builder, Cell, Runner, widened
from linnet.sweep.place import Place, located
from linnet.sweep.spec import Sweep, placed
from linnet.sweep.store import WORDS, Store, create

if TYPE_CHECKING:
    from distributed import Client

Progress = Callable[[int, int], None]
_MOST = 512  # runs in one batch
_FEW = 64  # runs in a batch are worth a program of their own
_FULL = 4_000_000  # numbers in all states of a batch keep a GPU busy
_BUSY = 4000  # a state with more numbers keeps a CPU busy on its own
_SAMPLE = 16  # cells that are measured on a CPU to say how long all will take


class Crew(NamedTuple):
    """Who computes: processes of this machine or the workers of a cluster, on devices of one kind."""

    workers: int
    platform: str
    device: str
    memory: int
    client: "Client | None" = None

    @classmethod
    def of(cls, workers: int, client: "Client | None") -> "Crew":
        """So many processes, or the workers of a cluster, after a check."""
        if client is None:
            return cls(workers, jax.default_backend(), jax.devices()[0].device_kind, _check.memory())
        found = cluster.workers(client)
        kinds = sorted({worker.device for worker in found})
        if len(kinds) > 1:
            raise InputError(
                f"the workers compute on {' and '.join(kinds)}: all must be of one kind for equal numbers."
            )
        return cls(len(found), found[0].platform, kinds[0], min(worker.memory for worker in found), client)

    def pooled(self, cells: int, chunk: int) -> bool:
        """Whether processes share a store of so many cells. By the size of the whole store, so that a chunk is computed
        in the same way whenever it is.
        """
        return self.client is None and self.workers > 1 and cells >= 4 * self.workers * chunk and self.platform == "cpu"

    def active(self, cells: int, chunk: int) -> int:
        """How many of them work on such a store now: those of a cluster come and go."""
        if self.client is not None:
            return max(1, cluster.count(self.client))
        return self.workers if self.pooled(cells, chunk) else 1


class Throughput(NamedTuple):
    """How a sweep goes: the steps that its runs made so far (0 of flows), how many a second, on how many workers, and
    the percentage of their time in which they computed.
    """

    steps: int
    speed: float
    workers: int
    use: int


def run(
    spec: Sweep,
    out: Path | str,
    progress: Progress | None = None,
    *,
    throughput: Callable[[Throughput], None] | None = None,
    workers: int = 1,
    part: tuple[int, int] = (1, 1),
    client: "Client | None" = None,
) -> dict[str, int]:
    """Makes or completes the store `out`, a folder or a URL (`s3://`, `gs://`, `memory://`, `file://`).

    Returns the number of cells that ended in each way, that were computed now, and of damaged chunks that were computed
    again; the `steps` made (0 of flows), the number of `workers`, and their `use`, the percentage of the time in which
    they computed. `progress` is called with the finished cells and all of them, `throughput` after every chunk.

    After a kill at any moment the same call continues: finished chunks are never computed again, and since a chunk is
    always computed from the same cells in the same batches, the result is the same to the last bit. On a CPU `workers`
    processes share the chunks, one on each core (the command line uses all cores). With a Dask `client` (see `connect`)
    the workers of its cluster compute; chunks of a worker that dies are computed by others, and this program alone
    writes the store. With `part=(2, 3)` every third chunk is computed, from the second on; `merge` joins the stores of
    different parts.
    """
    if not 1 <= part[0] <= part[1]:
        raise InputError(f"part = {part[0]}/{part[1]} is not allowed: it must be 1/N, 2/N ... or N/N.")
    where, crew = located(out), Crew.of(workers, client)
    plan = None if where.exists() else _plan(spec, crew)  # mistakes show before anything is written
    with where.alone():
        return _run(spec, where, plan, progress, throughput, crew, part)


def _plan(spec: Sweep, crew: Crew) -> tuple[Any, ...]:
    """Quantities, shapes, chunks, and records of a new store."""
    builder = Builder(spec)
    first, runner = builder.cell(_points(spec, np.arange(1))[0]), Runner(spec, builder.quantities)
    sizes = tuple(map(len, spec.grid().values()))
    _check.fits("axes", " x ".join(map(str, sizes)), 2 * math.prod(sizes), "a grid of so many runs")
    chunks, shapes = _chunks(sizes, spec.batch or _batch(first, crew)), runner.shapes(first)
    _try_names(spec, builder, runner, shapes)
    each = sum(math.prod(shape) for shape, _ in shapes.values())
    _check.fits("batch", math.prod(chunks), 3 * each * math.prod(chunks), f"{each:,} numbers of each run")
    return builder.quantities, shapes, chunks, runner.clock(first) if runner.series else None


def _try_names(spec: Sweep, builder: Builder, runner: Runner, shapes: dict[str, Any]) -> None:
    """Builds every combination of named problems, initializations, and optimizers without running it; equal programs
    once.
    """
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
    throughput: Callable[[Throughput], None] | None,
    crew: Crew,
    part: tuple[int, int],
) -> dict[str, int]:
    if plan is not None and not out.exists():
        create(out, spec, *plan)
    store = Store(out)
    store.agrees(spec)
    store.part = part
    out.tidy()
    if lost := store.lost_axes():
        axes = {**spec.grid(), "record": _plan(spec, crew)[3]}
        store.restore({name: axes[name] for name in lost})
    numbers = np.arange(store.status.size).reshape(store.status.shape)
    done = before = int(np.count_nonzero(store.status))

    def tell(count: int) -> None:
        if progress is not None:
            progress(done + count, numbers.size)

    tell(0)
    began, busy, steps = time.perf_counter(), 0.0, 0.0

    def current() -> Throughput:
        count, seconds = crew.active(numbers.size, math.prod(store.chunks)), time.perf_counter() - began
        return Throughput(int(steps), steps / seconds, count, round(100 * busy / (count * seconds)))

    for block, (values, code, ended, seconds) in _results(spec, store, numbers, crew, tell):
        shape = numbers[block].shape
        store.write(
            block,
            {name: value.reshape(shape + value.shape[1:]) for name, value in values.items()},
            code.reshape(shape),
            ended.reshape(shape).astype(float),
        )
        done += numbers[block].size
        busy += seconds
        steps += 0 if spec.run.steps is None else float(ended.sum())
        tell(0)
        if throughput is not None:
            throughput(current())
    last = current()
    ends = Counter(WORDS[code] for code in store.status.flat)
    counts = {"cells": numbers.size, "computed": done - before, "damaged": len(store.damaged)}
    spent = {"steps": last.steps, "workers": last.workers, "use": last.use}
    return counts | {word: ends[word] for word in WORDS[1:]} | spent


class Damage(NamedTuple):
    """Arrays of a store that cannot be read in some cells: the range of each axis; all cells for an axis itself."""

    arrays: list[str]
    cells: dict[str, list[Any]]

    @property
    def place(self) -> str:
        """The cells in words."""
        return place(self.cells)


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
    shown = {name: [x if isinstance(x, str) else f"{x:g}" for x in ends] for name, ends in cells.items()}
    return ", ".join(f"{name} = {' to '.join(dict.fromkeys(ends))}" for name, ends in shown.items())


class Expected(NamedTuple):
    """What a sweep will take: its cells and those not in the store yet, the chunks they make, how many cells are in a
    chunk, the bytes that a chunk takes in a worker's memory and all results in the store, the workers and their device,
    and the seconds expected, compilation apart.
    """

    cells: int
    missing: int
    chunks: int
    batch: int
    memory: int
    store: int
    workers: int
    device: str
    seconds: float
    compilation: float


def expect(spec: Sweep, out: Path | str, *, workers: int = 1, client: "Client | None" = None) -> Expected:
    """What `run` would take, from some cells spread over the grid that are computed twice; writes nothing."""
    where, crew = located(out), Crew.of(workers, client)
    _, shapes, chunks, _ = _plan(spec, crew)
    sizes = tuple(map(len, spec.grid().values()))
    cells = missing = math.prod(sizes)
    pieces = math.prod(-(-size // chunk) for size, chunk in zip(sizes, chunks, strict=True))
    if where.exists():
        store = Store(where)
        store.agrees(spec)
        chunks, pieces = store.chunks, sum(1 for _ in store.missing())
        missing = cells - int(np.count_nonzero(store.status))
    batch = math.prod(chunks)
    chosen = np.unique(np.linspace(0, cells - 1, min(cells, _SAMPLE if crew.platform == "cpu" else batch)).astype(int))
    call = _measured, (_text(spec), chosen, batch == 1)
    first, again = (
        call[0](*call[1]) if client is None else dict(cluster.as_completed(client, [call], lambda _: "a cell"))[0]
    )
    active = crew.active(cells, batch)
    each = 9 + sum(math.prod(shape) * dtype.itemsize for shape, dtype in shapes.values())
    taken = _bytes(Builder(spec).cell(_points(spec, np.arange(1))[0])) * batch
    seconds = again * missing / len(chosen) / active
    return Expected(cells, missing, pieces, batch, taken, each * cells, active, crew.device, seconds, first - again)


def _measured(text: str, chosen: np.ndarray, alone: bool) -> tuple[float, float]:
    """The seconds that these cells take the first time, with compilation, and the second."""
    parts = [chosen[i : i + 1] for i in range(len(chosen))] if alone else [chosen]
    moments = [time.perf_counter()]
    for _ in range(2):
        for part in parts:
            _chunk(text, part)
        moments.append(time.perf_counter())
    return moments[1] - moments[0], moments[2] - moments[1]


Results = tuple[dict[str, np.ndarray], np.ndarray, np.ndarray, float]


def _results(
    spec: Sweep, store: Store, numbers: np.ndarray, crew: Crew, tell: Callable[[int], None]
) -> Iterator[tuple[tuple[slice, ...], Results]]:
    """The chunks that are missing, as they are finished."""
    text, blocks = _text(spec), list(store.missing())
    calls = ((_chunk, (text, numbers[block].ravel())) for block in blocks)
    if crew.client is not None:
        done = cluster.as_completed(
            crew.client, calls, lambda number: f"the chunk {place(ranges(spec.grid(), blocks[number]))}"
        )
    elif crew.pooled(numbers.size, math.prod(store.chunks)):
        done = in_processes(calls, crew.workers)
    elif crew.platform == "cpu":  # where programs that call LAPACK in two threads may deadlock
        done = ((number, call(*given, tell)) for number, (call, given) in enumerate(calls))
    else:
        done = _ahead(text, [numbers[block].ravel() for block in blocks], tell)
    for number, found in done:
        yield blocks[number], found


def _text(spec: Sweep) -> str:
    """The sweep for another process, which may stand in another folder."""
    return json.dumps(placed(spec.model_dump(mode="json"), Path.cwd()))


def _ahead(text: str, parts: Sequence[np.ndarray], tell: Callable[[int], None]) -> Iterator[tuple[int, Results]]:
    """The chunks one after the other; the cells of the next one are made while a device computes those of this one."""
    with ThreadPoolExecutor(1) as ahead:
        made = deque(ahead.submit(_made, text, part) for part in parts[:1])
        for number in range(len(parts)):
            made.extend(ahead.submit(_made, text, part) for part in parts[number + 1 : number + 2])
            yield number, _compute(made.popleft().result(), tell)


def _chunk(text: str, chosen: np.ndarray, tell: Callable[[int], None] | None = None) -> Results:
    """The cells with these numbers: values, status codes, ends, and the seconds that it took to compute them."""
    return _compute(_made(text, chosen), tell or (lambda count: None))


def _made(text: str, chosen: np.ndarray) -> list[Batch]:
    """The cells with these numbers, made on a CPU whatever they will run on; those of one signature together, in
    batches of one size, the long ones together: the longest run of a batch decides how long it takes. They come first.
    """
    spec, builder, runner = _prepared(text)
    with cpu(), threadpool_limits(1):  # their matrices are too small to be shared by the cores
        cells = [builder.cell(point) for point in _points(spec, chosen)]
        if runner.series:
            first = builder.cell(_points(spec, np.arange(1))[0])
            runner.cap([first, *cells])  # one number of steps for all
        if jax.default_backend() != "cpu":
            cells = widened(cells)
        groups: dict[Any, list[int]] = {}
        for i in sorted(range(len(cells)), key=lambda i: -cells[i].steps):
            groups.setdefault(cells[i].signature(), []).append(i)
        made = []
        for members in groups.values():
            size = -(-len(members) // -(-len(members) // _together(cells[members[0]])))
            parts = (members[first : first + size] for first in range(0, len(members), size))
            made += [runner.batch(cells, part, size) for part in parts]
    return made


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


def _compute(batches: list[Batch], tell: Callable[[int], None]) -> Results:
    """All cells of a chunk. A device is given all batches at once, and is at work while they are sent to it."""
    began = time.perf_counter()
    under_way = [(batch.numbers, batch.program(*batch.arguments)) for batch in batches]
    found: dict[int, Any] = {}
    for numbers, results in under_way:
        values, code, ended = jax.tree.map(np.asarray, results)
        if np.ndim(code) == 0:
            values, code, ended = jax.tree.map(lambda x: x[None], (values, code, ended))
        for place, number in enumerate(numbers):
            found[number] = {name: value[place] for name, value in values.items()}, code[place], ended[place]
        tell(len(found))
    seconds = time.perf_counter() - began
    cells = [found[number] for number in range(len(found))]
    for name, value in cells[0][0].items():
        shapes = {cell[0][name].shape for cell in cells}
        if len(shapes) > 1:
            _varies(name, value.shape)
    values = {name: np.stack([cell[0][name] for cell in cells]) for name in cells[0][0]}
    return values, np.array([cell[1] for cell in cells]), np.array([cell[2] for cell in cells]), seconds


def _together(cell: Cell) -> int:
    """How many such runs keep a device busy: more would wait for the longest of them."""
    wanted = 1 if jax.default_backend() == "cpu" else _FULL // _numbers(cell)
    return int(np.clip(wanted, _FEW, _MOST))


def _batch(cell: Cell, crew: Crew) -> int:
    """How many runs at once: what a quarter of the device's memory holds, one on a CPU that is busy with one."""
    available = crew.memory
    if crew.platform == "cpu":
        if _numbers(cell) > _BUSY:
            return 1
        available //= 2
    return int(np.clip(available // 4 // _bytes(cell), 1, _MOST))


def _numbers(cell: Cell) -> int:
    return sum(np.size(leaf) for leaf in jax.tree.leaves(cell.state))


def _bytes(cell: Cell) -> int:
    """What a run takes: its state, the new value, gradients, what is kept; and records."""
    return 8 * (16 * _numbers(cell) + 8 * max(cell.cap, 256))


def _chunks(shape: tuple[int, ...], batch: int) -> tuple[int, ...]:
    """The largest block of the grid, last axes first, with at most `batch` cells."""
    out: list[int] = []
    for size in reversed(shape):
        available = max(1, batch // math.prod(out))
        out.insert(0, min(size, available) if math.prod(out) * min(size, available) <= batch else 1)
    return tuple(out)
