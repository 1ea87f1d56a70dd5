"""What an observable is."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import equinox as eqx

from linnet import _check
from linnet._check import InputError
from linnet.states import Pair


@dataclass(frozen=True)
class Observable:
    """A function of (state, problem) with a name, the names of its axes, and what it needs once for a whole run.

    `preparation(problem, start)` is computed once; its result is the function's third argument. Of a `Pair` of states
    an observable sees the first, unless it is about `pairs`. One about the `motion` has that and its memory as further
    arguments; it can be seen in a run only.
    """

    name: str
    function: Callable[..., Any]
    dims: tuple[str, ...] | None = None
    preparation: Callable[..., Any] | None = field(default=None, compare=False)  # its result is data of the program
    pairs: bool = False
    motion: bool = False

    @property
    def text(self) -> str:
        """The first line of the function's docstring."""
        return (self.function.__doc__ or "").strip().split("\n")[0]

    def prepare(self, problem: Any, start: Any) -> Any:
        """What the function needs once for a whole run."""
        return None if self.preparation is None else self.preparation(problem, self._seen(start))

    def _seen(self, state: Any) -> Any:
        return state.first if isinstance(state, Pair) and not self.pairs else state

    def look(self, state: Any, problem: Any, prepared: Any, motion: Any, memory: Any) -> Any:
        """What it sees in a run."""
        if not self.motion:
            return self(state, problem, prepared)
        with _check.traceable(f"the observable {self.name!r}"):
            return self.function(self._seen(state), problem, motion, memory)

    def __call__(self, state: Any, problem: Any, prepared: Any = None) -> Any:
        if self.motion:
            raise InputError(f"{self.name} is about a motion and what it remembers: ask simulate to observe it.")
        given = [self._seen(state), problem]
        with _check.traceable(f"the observable {self.name!r}"):
            if self.preparation is not None:
                given.append(self.prepare(problem, state) if prepared is None else prepared)
            return (self.function if _check.traced(given) else _compiled(self.function))(*given)


@lru_cache(maxsize=256)
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function in one program; alone, each of its operations would be one."""
    return eqx.filter_jit(function)


def observable(
    *dims: str, preparation: Callable[..., Any] | None = None, pairs: bool = False, motion: bool = False
) -> Callable[[Callable[..., Any]], Observable]:
    """Makes a function of (state, problem) an observable with these axes."""
    return lambda function: Observable(function.__name__, function, dims, preparation, pairs, motion)
