"""The client for `--cluster WHERE`."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from distributed import Client


@contextlib.contextmanager
def client_of(where: str | None, console: Console) -> Iterator["Client | None"]:
    """A client of the cluster, after printing its workers; None without a cluster: this machine computes then."""
    if where is None:
        yield None
        return
    from linnet.sweep import connect, workers

    if where.endswith(".toml"):
        console.print("Waiting for the batch system to start a worker.")
    with connect(where) as client:
        found = workers(client)
        kinds = ", ".join(sorted({worker.device for worker in found}))
        console.print(f"{len(found)} worker{'s' * (len(found) > 1)} of {where} on {kinds}", highlight=False)
        yield client
