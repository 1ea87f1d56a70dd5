"""Calls side by side: in processes of our own, each on one core, each ending with the program that started it, however
that ends; or by anybody else who keeps to `concurrent.futures`.
"""

import itertools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
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


def as_completed(calls: Sequence[Call], workers: int) -> Iterator[tuple[int, Any]]:
    """The number of each call and what it returned, as they finish; in this process if there is one worker only."""
    if min(workers, len(calls)) < 2:
        return ((number, function(*arguments)) for number, (function, arguments) in enumerate(calls))
    return in_processes(calls, workers)


def in_processes(calls: Iterable[Call], workers: int) -> Iterator[tuple[int, Any]]:
    """The same, never in this process."""
    with pool(workers) as processes:
        try:
            yield from through(processes, calls, lambda: 2 * workers)
        except BaseException:
            processes.shutdown(wait=False, cancel_futures=True)
            raise


def through(
    executor: Executor,
    calls: Iterable[Call],
    most: Callable[[], int],
    blame: Callable[[int, Exception], None] = lambda number, error: None,
) -> Iterator[tuple[int, Any]]:
    """The same by any executor, with at most so many calls under way, so that memory does not grow with their number.

    `blame` may raise the error of a call in better words.
    """
    waiting: dict[Future[Any], int] = {}
    numbered = enumerate(calls)
    while True:
        for number, (function, arguments) in itertools.islice(numbered, max(0, most() - len(waiting))):
            waiting[executor.submit(function, *arguments)] = number
        if not waiting:
            return
        for future in wait(waiting, return_when=FIRST_COMPLETED).done:
            try:
                value = future.result()
            except Exception as error:
                blame(waiting[future], error)
                raise
            yield waiting.pop(future), value


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
