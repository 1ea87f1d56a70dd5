"""Timing shared by the benchmarks: the best of a few repetitions, compilation apart."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax


class Timed(NamedTuple):
    """Seconds of the first call (with compilation) and of the best later one."""

    first: float
    best: float


def timed(call: Callable[[], Any], repeats: int = 3) -> Timed:
    """Times `call`, waiting for the device to finish."""

    def once() -> float:
        began = time.perf_counter()
        jax.block_until_ready(call())
        return time.perf_counter() - began

    first = once()
    return Timed(first, min(once() for _ in range(repeats)))


def table(rows: list[tuple[str, ...]], header: tuple[str, ...]) -> str:
    """A Markdown table."""
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
