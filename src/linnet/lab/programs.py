"""A bound on the compiled programs of a server: every shape has its own, and there is no end of shapes."""

import contextlib
import ctypes
import gc
import threading
from functools import cache

import jax

_MOST = 192  # programs, of some 4 MiB each
_COMPILED = "/jax/core/compile/backend_compile_duration"  # JAX's event when a program is compiled or read


class ProgramCounter:
    """Counts compiled programs, and clears JAX's caches when there are too many.

    Programs that are needed again are read from the cache folder, which is quick; running ones are not affected.
    """

    def __init__(self, most: int = _MOST):
        self.most, self.count, self._lock = most, 0, threading.Lock()
        jax.monitoring.register_event_duration_secs_listener(self._compiled)

    def _compiled(self, event: str, duration_secs: float, **kwargs: str | int) -> None:
        if event == _COMPILED:
            with self._lock:
                self.count += 1

    def limit(self) -> None:
        """Clears the caches if there are too many programs; called between two changes of a page."""
        with self._lock:
            if self.count <= self.most:
                return
            self.count = 0
        jax.clear_caches()
        gc.collect()
        with contextlib.suppress(OSError, AttributeError, TypeError):  # other systems return memory by themselves
            ctypes.CDLL(None).malloc_trim(0)


@cache
def programs() -> ProgramCounter:
    """The counter of this process."""
    return ProgramCounter()
