"""Verifying claims and errata, a process on each core or the workers of a cluster."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax

from linnet import sweep
from linnet._pool import Call, as_completed, cores
from linnet.claims import Claim, Erratum, Verdict, find, settle
from linnet.papers import reload, sources
from linnet.reproduction.files import Verdicts, Verified

if TYPE_CHECKING:
    from distributed import Client


def verify(
    entries: Sequence[Claim | Erratum],
    size: str = "quick",
    changes: Mapping[str, Any] | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    *,
    client: "Client | None" = None,
) -> Verdicts:
    """The verdicts, in the order of the entries, with parameters of their checks changed where they have them; by a
    process on each core, or by the workers of a Dask `client`'s cluster.

    `changes` are these parameters by name.
    """
    changed = settle(entries, changes or {})
    calls = [call(entry, size, changed[entry.id]) for entry in entries]
    found: dict[int, Verdict] = {}
    progress(0, len(entries))
    if client is None:
        done = as_completed(calls, workers(len(entries)))
    else:
        done = sweep.as_completed(client, calls, lambda number: entries[number].id)
    for number, verdict in done:
        found[number] = verdict
        progress(len(found), len(entries))
    return Verdicts(size, [Verified.of(entry, found[number]) for number, entry in enumerate(entries)])


def workers(count: int) -> int:
    """How many processes verify so many entries. Checks are seeded and are independent, and most of their
    time is compilation, which keeps one core busy: on a CPU each core has a process of its own.
    """
    return cores() if count >= 4 and jax.default_backend() == "cpu" else 1


def call(entry: Claim | Erratum, size: str, changes: Mapping[str, Any]) -> Call:
    """The verification of an entry, for any process."""
    return _verify, (sources(), entry.id, size, dict(changes))


def _verify(own: Mapping[str, str], name: str, size: str, changes: Mapping[str, Any]) -> Verdict:
    reload(own)
    entry = find([name])[0]
    _begin(entry.paper)
    return entry.verify(size, **changes)


@functools.lru_cache(maxsize=1)
def _begin(paper: str) -> None:
    """Drops what was compiled for another paper: it serves no more, and all of it together takes gigabytes."""
    jax.clear_caches()
