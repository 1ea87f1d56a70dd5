"""What an observable is."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from linnet import _check
from linnet._check import InputError
from linnet._compiler import unrounded
from linnet.states import Pair, cast, precision


class When(NamedTuple):
    """When something is looked at: the step or time, the motion, and what it remembers then."""

    clock: Any
    motion: Any = None
    memory: Any = None


@dataclass(frozen=True)
class Observable:
    """A function of (state, problem) with a name, the names of its axes, and what it needs once for a whole run.

    - `preparation(problem, start)` is computed once; its result is the function's third argument.
    - Of a `Pair` of states an observable sees the first, unless it is about `pairs`.
    - One about the `motion` has that and its memory as further arguments; it can be seen in a run only.
    - One that remembers its last look has `past(problem, start)`, what it remembers before the first. Its function has
      `When` it looks and the past as further arguments and returns its value and the next past.
    - One with `parts`, (name, axes, text) each, returns a dictionary of values by their names; a run has them as
      `name_part`.
    """

    name: str
    function: Callable[..., Any]
    dims: tuple[str, ...] | None = None
    preparation: Callable[..., Any] | None = field(default=None, compare=False)  # its result is data of the program
    pairs: bool = False
    motion: bool = False
    past: Callable[..., Any] | None = field(default=None, compare=False)
    parts: tuple[tuple[str, tuple[str, ...], str], ...] = ()

    @property
    def text(self) -> str:
        """The first line of the function's docstring."""
        return (self.function.__doc__ or "").strip().split("\n")[0]

    def labels(self, name: str) -> list[tuple[str, tuple[str, ...] | None, str]]:
        """Name, axes and text of each value that a run has of it under `name`."""
        if self.parts:
            return [(f"{name}_{part}", dims, text) for part, dims, text in self.parts]
        return [(name, self.dims, self.text)]

    def prepare(self, problem: Any, start: Any) -> Any:
        """What the function needs once for a whole run."""
        return None if self.preparation is None else self.preparation(problem, self._seen(start))

    def begin(self, problem: Any, start: Any) -> Any:
        """What it remembers before its first look."""
        return None if self.past is None else self.past(problem, self._seen(start))

    def _seen(self, state: Any) -> Any:
        return state.first if isinstance(state, Pair) and not self.pairs else state

    def look(self, state: Any, problem: Any, prepared: Any, moment: When, past: Any) -> tuple[Any, Any]:
        """What it sees in a run, and what it remembers of that."""
        if not self.motion and self.past is None:
            return self(state, problem, prepared), None
        given = [self._seen(state), problem, *([] if self.preparation is None else [prepared])]
        with _check.traceable(f"the observable {self.name!r}"):
            if self.motion:
                return self.function(*given, moment.motion, moment.memory), None
            return self.function(*given, moment, past)

    def __call__(self, state: Any, problem: Any, prepared: Any = None) -> Any:
        if self.motion:
            raise InputError(f"{self.name} is about a motion and what it remembers: ask simulate to observe it.")
        seen = self._seen(state)
        problem = problem if _check.traced((state, problem)) else cast(problem, precision(seen))
        given = [seen, problem]
        with _check.traceable(f"the observable {self.name!r}"):
            if self.preparation is not None:
                given.append(self.prepare(problem, state) if prepared is None else prepared)
            if self.past is not None:
                given += [When(np.zeros((), np.int64)), self.begin(problem, state)]
            with unrounded():
                seen = (self.function if _check.traced(given) else _compiled(self.function))(*given)
            return seen if self.past is None else seen[0]


@lru_cache(maxsize=256)
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function in one program; alone, each of its operations would be one."""
    return eqx.filter_jit(function)


def observable(
    *dims: str, preparation: Callable[..., Any] | None = None, pairs: bool = False, motion: bool = False
) -> Callable[[Callable[..., Any]], Observable]:
    """Makes a function of (state, problem) an observable with these axes."""
    return lambda function: Observable(function.__name__, function, dims, preparation, pairs, motion)
