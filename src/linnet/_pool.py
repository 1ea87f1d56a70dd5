"""Processes of our own: each on one core, each ending with the program that started it, however that ends."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any

Call = tuple[Callable[..., Any], tuple[Any, ...]]


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def pool(workers: int) -> ProcessPoolExecutor:
    """An executor with one process for each core.

    Work that keeps one core busy at a time, such as compilation or many small products, goes as many times faster.
    Programs that use it outside the command line need the usual `if __name__ == "__main__":`.
    """
    context = multiprocessing.get_context("spawn")  # a fork would copy JAX's threads half-way
    return ProcessPoolExecutor(workers, mp_context=context, initializer=_settle, initargs=(context.Value("i", 0),))


def finished(calls: Sequence[Call], workers: int) -> Iterator[tuple[int, Any]]:
    """The number of each call and what it returned, as they finish; in this process if there is one worker only."""
    if min(workers, len(calls)) < 2:
        yield from ((number, function(*arguments)) for number, (function, arguments) in enumerate(calls))
        return
    with pool(min(workers, len(calls))) as processes:
        try:
            waiting = {processes.submit(function, *arguments): n for n, (function, arguments) in enumerate(calls)}
            for done in as_completed(waiting):
                yield waiting[done], done.result()
        except BaseException:
            processes.shutdown(wait=False, cancel_futures=True)
            raise


def _settle(counter: Any) -> None:
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as in commands that a shell starts in the background
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    with counter.get_lock():
        number = counter.value
        counter.value += 1
    if hasattr(os, "sched_setaffinity"):
        mine = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {mine[number % len(mine)]})
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
