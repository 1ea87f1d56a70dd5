"""Clusters: Dask's workers, on this machine or on many, run the calls that our own processes would.

A call is pure: whoever makes it, and however often, it returns the same. So what a worker that dies leaves undone is
given to another, and nobody but the program that asked writes the store of a sweep.
"""

import contextlib
import functools
import json
import logging
import os
import platform
import re
import threading
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from linnet import _check
from linnet._check import InputError
from linnet._files import versions
from linnet._pool import Call, cores, through

if TYPE_CHECKING:
    from distributed import Client

_ANSWER = 5  # seconds in which a scheduler must answer
_WORKERS = 30  # seconds in which the first worker of a cluster must be there,
_QUEUE: float | None = None  # and of one that a batch system starts: queues may be long
_RENEW = 30  # seconds after which workers that were lost for good are started again
_AHEAD = 4  # calls under way for each worker: one is computed, the others wait beside it or are on their way back
_JOBS = ("SLURM", "PBS", "LSF", "SGE", "OAR", "Moab", "HTCondor")
_SILENT = logging.CRITICAL
_TURN = threading.Lock()  # a worker with several threads makes one call at a time: the device is one


class Worker(NamedTuple):
    """A process that computes: its address, what it computes on, and the versions that its numbers depend on."""

    address: str
    device: str
    platform: str
    memory: int
    double: bool
    versions: dict[str, str]


@contextlib.contextmanager
def connect(where: str) -> Iterator["Client"]:
    """A client of the cluster `where`, for as long as the block runs; what was started for it ends with it.

    `where` is "local" (a process on each core, or one for each GPU) or "local:8", the address of a scheduler
    ("tcp://..."), the file that a scheduler has written, or a TOML file about a cluster of dask-jobqueue. Programs that
    use "local" need the usual `if __name__ == "__main__":`.
    """
    if not isinstance(where, str) or not where:
        raise _strange(where)
    with _there(where), contextlib.ExitStack() as open_:
        from distributed import Client
        from distributed.utils import silence_logging_cmgr

        open_.enter_context(silence_logging_cmgr(_SILENT))  # lost workers are replaced, or reported in a sentence
        kind, _, count = where.partition(":")
        jobs = Path(where).suffix == ".toml"
        if kind == "local":
            goal: Any = open_.enter_context(_local(_count(where, count)))
        elif jobs:
            goal = open_.enter_context(_queued(Path(where)))
        else:
            goal = _address(where, where if "://" in where else _written(where))
        try:
            client = open_.enter_context(Client(goal, timeout=_ANSWER, set_as_default=False))
        except OSError as error:
            words = str(error)
            raise InputError(f"cluster = {where!r} cannot be reached: {words[:1].lower()}{words[1:]}.") from None
        if jobs:
            client.wait_for_workers(1, timeout=_QUEUE)
        yield client


def workers(client: "Client") -> list[Worker]:
    """The workers as they are now; one that would compute other numbers than this program is refused."""
    with contextlib.suppress(TimeoutError):
        client.wait_for_workers(1, timeout=_WORKERS)
    mine = _versions()
    found = []
    for address, worker in sorted(client.run(about, on_error="return").items()):
        if isinstance(worker, OSError):  # it has just gone
            continue
        if isinstance(worker, Exception):
            raise InputError(f"the worker {address} cannot run this Linnet {mine['linnet']}: {_line(worker)}.")
        found.append(worker._replace(address=address))
        _same(found[-1], mine)
    if not found:
        raise InputError("the cluster has no workers: start some, such as `dask worker`.")
    return found


@functools.cache
def about() -> Worker:
    """What this process is. Asked first of all, so that JAX takes no more memory of its device than it needs."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    device = jax.devices()[0]
    double = jnp.zeros(()).dtype == jnp.float64
    return Worker("", device.device_kind, device.platform, _check.memory(), double, _versions())


def count(client: "Client") -> int:
    """How many workers there are now; none where the scheduler has gone."""
    try:
        return len(client.nthreads())
    except OSError:
        return 0


def as_completed(client: "Client", calls: Iterable[Call], what: Callable[[int], str]) -> Iterator[tuple[int, Any]]:
    """The number of each call and what it returned, as they finish on the cluster; `what` names one for its error.

    A few are under way for each worker, so that neither scheduler nor workers hold many results. The calls of a worker
    that has died are made again by others; one that ends several is an error.
    """
    from distributed import KilledWorker

    def blame(number: int, error: Exception) -> None:
        if isinstance(error, KilledWorker):
            raise InputError(
                f"{what(number)} cannot be computed: {error.allowed_failures + 1} workers ended while they tried (too "
                "little memory?); what was finished is kept."
            ) from None
        if isinstance(error, CancelledError):
            raise InputError(
                "the cluster's scheduler has gone; what was finished is kept: give the same command again once there "
                "is one."
            ) from None

    @functools.lru_cache(maxsize=1)
    def most(_: int) -> int:
        return _AHEAD * max(1, count(client))

    mine = _versions()
    executor = client.get_executor(pure=False)
    begun = ((_checked, (mine, *call)) for call in calls)
    try:  # workers come and go: they are counted once a second
        yield from through(executor, begun, lambda: most(int(time.monotonic())), blame)
    finally:
        with contextlib.suppress(Exception):  # of a scheduler that has gone
            executor.shutdown(wait=False)


def _checked(expected: Mapping[str, str], function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """A call in a worker, which may have come after the others were checked."""
    with _TURN:
        _same(about()._replace(address=platform.node()), expected)
        return function(*arguments)


def _same(worker: Worker, expected: Mapping[str, str]) -> None:
    for name, mine in expected.items():
        if worker.versions.get(name) != mine:
            raise InputError(
                f"the worker {worker.address} has {name} {worker.versions.get(name)} and this program {mine}: they "
                "must be the same."
            )
    if not worker.double:
        raise InputError(f"the worker {worker.address} computes in single precision: it must not switch off float64.")


def _versions() -> dict[str, str]:
    known = versions()
    return {name: known[name] for name in ("linnet", "python", "jax", "numpy")}


@contextlib.contextmanager
def _there(where: str) -> Iterator[None]:
    """Dask is an extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("dask", "distributed", "dask_jobqueue"):
            raise
        raise InputError(
            f"cluster = {where!r} needs Dask, which is not installed: pip install 'linnet[cluster]'."
        ) from None


def _strange(where: Any) -> InputError:
    return InputError(
        f"cluster = {where!r} is not allowed: it must be local, local:8, an address such as tcp://10.0.0.1:8786, a "
        "scheduler file, or a TOML file with a cluster of dask-jobqueue."
    )


def _count(where: str, count: str) -> int | None:
    if where == "local":
        return None
    if not count.isdecimal() or not 1 <= int(count) <= 10_000:
        raise InputError(f"cluster = {where!r} is not allowed: after local: comes a number of workers, 1 to 10000.")
    return int(count)


def _address(where: str, address: str) -> str:
    if not re.fullmatch(r"(tcp|tls|ucx|ws|wss)://[^/]+:\d+", address):
        raise _strange(where)
    return address


def _written(where: str) -> str:
    """The address in a scheduler's file."""
    if not Path(where).exists():
        raise _strange(where)
    try:
        return str(json.loads(Path(where).read_text(encoding="utf-8"))["address"])
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(f"cluster = {where!r} is not allowed: no scheduler has written this file.") from None


def _local(count: int | None) -> Any:
    """Processes of this machine, each on a core of its own as in a plain run, or each with a GPU of its own."""
    from distributed import Nanny, Scheduler, SpecCluster

    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    devices = jax.device_count() if jax.default_backend() != "cpu" else 0
    if devices and count is not None and count > devices:
        raise InputError(
            f"cluster = 'local:{count}' is not allowed: this machine has {devices} GPUs, one for a worker."
        )
    options = {"nthreads": 1, "memory_limit": 0, "host": "127.0.0.1", "dashboard": False, "silence_logs": _SILENT}
    workers = {
        number: {"cls": Nanny, "options": {**options, **(_on_device(number) if devices else _on_core(number))}}
        for number in range(count or devices or cores())
    }
    # two sweeps may run on one machine, and they need no remote access
    options = {"host": "127.0.0.1", "port": 0, "dashboard": False, "dashboard_address": "127.0.0.1:0"}
    scheduler = {"cls": Scheduler, "options": options}
    return _at_size(SpecCluster(workers=workers, scheduler=scheduler, silence_logs=_SILENT), n=len(workers))


def _on_device(number: int) -> dict[str, Any]:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    named = visible.split(",")[number] if visible else str(number)
    return {"env": {"CUDA_VISIBLE_DEVICES": named}}


def _on_core(number: int) -> dict[str, Any]:
    if not hasattr(os, "sched_setaffinity"):
        return {}
    mine = sorted(os.sched_getaffinity(0))
    # a text that Dask's worker runs as it begins, before there are threads to inherit it
    return {"preload": [f"import os; os.sched_setaffinity(0, [{mine[number % len(mine)]}])"]}


def _queued(path: Path) -> Any:
    """Workers that a batch system starts: `kind`, `jobs`, and what else dask-jobqueue's class of this kind takes."""
    import dask_jobqueue

    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        raise InputError(f"cluster = {str(path)!r} cannot be read: give a TOML file about a cluster.") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} is not TOML: {error}.") from None
    kind = _check.choice("kind", given.pop("kind", None), _JOBS)
    jobs = _check.integer("jobs", given.pop("jobs", None), least=1, most=100_000)
    options = {"dashboard_address": ":0", **given.pop("scheduler_options", {})}  # two sweeps may run on one machine
    try:
        cluster = getattr(dask_jobqueue, f"{kind}Cluster")(**given, scheduler_options=options)
        cluster.scale(jobs=jobs)
    except (ValueError, TypeError, OSError, RuntimeError) as error:
        raise InputError(f"{path}: dask-jobqueue refuses this {kind} cluster: {_line(error)}.") from None
    return _at_size(cluster, jobs=jobs)


def _at_size(cluster: Any, **size: int) -> Any:
    """A cluster that keeps its size: Dask itself gives up a worker that is not back after a while."""
    from tornado.ioloop import PeriodicCallback

    again = PeriodicCallback(lambda: cluster.scale(**size), 1000 * _RENEW)
    cluster.periodic_callbacks["size"] = again  # which end with the cluster
    cluster.loop.add_callback(again.start)
    return cluster


def _line(error: Exception) -> str:
    """What an error says, on one line and without a full stop."""
    return f"{type(error).__name__}, {' '.join(str(error).split())}".rstrip(".")
