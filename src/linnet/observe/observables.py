"""The class of observables, and the context in which one is measured."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, NamedTuple, Self

import equinox as eqx
import numpy as np

from linnet import _check
from linnet._compiler import unrounded
from linnet.states import Pair, cast, precision


class ObservationContext(NamedTuple):
    """The argument of an observable's function: everything that is known where a state is measured.

    - `state` and `problem`; of a `Pair` the state is its first member, unless the observable is about `pairs`.
    - `clock`: the step, for flows the time.
    - `optimizer` and its `memory` at this step; None outside of a run.
    - `prepared`: what the observable's `preparation` returned for this run.
    - `past`: what the observable's function returned beside its previous value.
    - `member`: which member of a `Pair` the state is, None where the state is no member of one.
    """

    state: Any
    problem: Any
    clock: Any = np.zeros((), np.int64)
    optimizer: Any = None
    memory: Any = None
    prepared: Any = None
    past: Any = None
    member: Literal["first", "second"] | None = None

    def select(self, member: Literal["first", "second"]) -> Self:
        """The context of one member of a `Pair`."""
        return self._replace(state=getattr(self.state, member), member=member)

    def preconditioner(self) -> Any:
        """What the optimizer divides the gradient by at this step, a tree like `state`; None if it does not."""
        tree = None if self.optimizer is None else self.optimizer.preconditioner(self.memory)
        return tree if self.member is None else getattr(tree, self.member, tree)


@dataclass(frozen=True)
class Observable:
    """A named function of an `ObservationContext`, with the names of the axes of its value.

    - `preparation(problem, initial_state)` is computed once for a run; `context.prepared` is its result.
    - With `initial_past(problem, initial_state)` the function returns its value and the next `context.past`; this is
      the past of the first measurement.
    - `pairs`: the function takes a `Pair` of states as it is. Others are given its first member.
    - With `parts`, (name, axes, text) each, the function returns a dictionary of values by their names; a run has them
      as `name_part`.

    `observable` makes one of a function of (state, problem). Called with a state and a problem it returns the value.
    """

    name: str
    function: Callable[[ObservationContext], Any]
    dims: tuple[str, ...] | None = None
    preparation: Callable[..., Any] | None = field(default=None, compare=False)  # its result is data of the program
    pairs: bool = False
    initial_past: Callable[..., Any] | None = field(default=None, compare=False)
    parts: tuple[tuple[str, tuple[str, ...], str], ...] = ()

    @classmethod
    def from_function(
        cls, name: str, function: Callable[..., Any], dims: tuple[str, ...] | None = None
    ) -> "Observable":
        """The observable of a function of (state, problem)."""
        return cls(name, _OnState(function), dims)

    @property
    def text(self) -> str:
        """The first line of the function's docstring."""
        function = self.function.function if isinstance(self.function, _OnState) else self.function
        return (function.__doc__ or "").strip().split("\n")[0]

    def labels(self, name: str) -> list[tuple[str, tuple[str, ...] | None, str]]:
        """Name, axes, and text of each value that a run records of it under `name`."""
        if self.parts:
            return [(f"{name}_{part}", dims, text) for part, dims, text in self.parts]
        return [(name, self.dims, self.text)]

    def prepare(self, problem: Any, initial: Any) -> Any:
        """What the function needs once for a run."""
        return None if self.preparation is None else self.preparation(problem, self._member(initial))

    def begin(self, problem: Any, initial: Any) -> Any:
        """The past of the first measurement."""
        return None if self.initial_past is None else self.initial_past(problem, self._member(initial))

    def _member(self, state: Any) -> Any:
        return state.first if isinstance(state, Pair) and not self.pairs else state

    def measure(self, context: ObservationContext) -> tuple[Any, Any]:
        """The value and the next past, inside a compiled program."""
        if isinstance(context.state, Pair) and not self.pairs:
            context = context.select("first")
        with _check.traceable(f"the observable {self.name!r}"):
            value = self.function(context)
        return (value, None) if self.initial_past is None else value

    def __call__(self, state: Any, problem: Any, prepared: Any = None) -> Any:
        """The value of a state outside of a run, or of a traced one inside another program."""
        member = self._member(state)
        problem = problem if _check.traced((state, problem)) else cast(problem, precision(member))
        with _check.traceable(f"the observable {self.name!r}"):
            given = self.prepare(problem, state) if prepared is None else prepared
            context = ObservationContext(member, problem, prepared=given, past=self.begin(problem, state))
            with unrounded():
                value = (self.function if _check.traced(context) else _compiled(self.function))(context)
        return value if self.initial_past is None else value[0]


@dataclass(frozen=True)
class _OnState:
    """A function of (state, problem) as one of a context; equal to another of the same function."""

    function: Callable[..., Any]

    def __call__(self, context: ObservationContext) -> Any:
        return self.function(context.state, context.problem)


@lru_cache(maxsize=256)
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function in one program; alone, each of its operations would be one."""
    return eqx.filter_jit(function)


def observable(*dims: str) -> Callable[[Callable[[Any, Any], Any]], Observable]:
    """Makes a function of (state, problem) an observable with these axes, called by the function's name.

    `dims` are the names of the axes of its value; none for a number.
    """
    return lambda function: Observable.from_function(function.__name__, function, dims)


def context_observable(
    *dims: str, preparation: Callable[..., Any] | None = None, pairs: bool = False
) -> Callable[[Callable[[ObservationContext], Any]], Observable]:
    """Makes a function of an `ObservationContext` an observable with these axes, called by the function's name."""
    return lambda function: Observable(function.__name__, function, dims, preparation, pairs)
