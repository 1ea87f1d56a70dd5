"""How many compiled programs a server holds: shapes are without end, and every shape has its own."""

import contextlib
import ctypes
import gc
import threading
from functools import cache

import jax

_MOST = 192  # programs that are held, of some 4 MiB each
_COMPILED = "/jax/core/compile/backend_compile_duration"  # what JAX calls it when a program is made or read


class Held:
    """Counts programs, and lets all of them go when there are too many.

    Those that are needed again are read from the folder of programs, which is quick; what is running goes on.
    """

    def __init__(self, most: int = _MOST):
        self.most, self.count, self._lock = most, 0, threading.Lock()
        jax.monitoring.register_event_duration_secs_listener(self._heard)

    def _heard(self, event: str, duration_secs: float, **kwargs: str | int) -> None:
        if event == _COMPILED:
            with self._lock:
                self.count += 1

    def bound(self) -> None:
        """Between two moves."""
        with self._lock:
            if self.count <= self.most:
                return
            self.count = 0
        jax.clear_caches()
        gc.collect()
        with contextlib.suppress(OSError, AttributeError, TypeError):  # other systems give back by themselves
            ctypes.CDLL(None).malloc_trim(0)


@cache
def held() -> Held:
    """Those of this process."""
    return Held()
