"""What every motion answers."""

import abc
from collections.abc import Callable
from typing import Any, ClassVar, Literal, NamedTuple

import equinox as eqx
from jaxtyping import Array, Float, Key, Num

from linnet.outcome import Kept, Outcome
from linnet.problems import Problem
from linnet.states import precision


class Task(NamedTuple):
    """What `simulate` asks of a motion, inside a compiled program.

    - `state` and `memory`: where the run begins; `start`: where it began before it was ever cut.
    - `points`: the steps or times to look at, in order, from where the run begins to its horizon; the last one may be
      repeated. `dense`: no two of them are more than a step apart; `far`: except perhaps the last two.
    - `look(state, memory, clock, past)`: the values to record, and what observables remember of that look; `past`: what
      they remember where the run begins. `states`: whether to record the states too.
    - `stop`: a condition of (state, problem), or None. `spoilt(state)`: whether the run has diverged; `leaps`: whether
      steps may be made without asking that. `hurry`: whether the program is compiled as `_compiler.hurried` says.
    - `keeps`: ("lowest" or "highest", name) for each state to keep; `kept`: those kept before the run was cut.
    - `reverse`: 0, or, where derivatives must go backwards through the run, the most steps between two points.
    - `together`: the name of an axis of `jax.vmap` along which runs of different lengths go; None for one run alone.
    - `tell(done)`: to be called when so many records are done.
    """

    problem: Problem
    start: Any
    state: Any
    memory: Any
    points: Num[Array, " records"]
    dense: bool
    far: bool
    look: Callable[[Any, Any, Any, Any], tuple[dict[str, Array], Any]]
    past: Any
    states: bool
    stop: Callable[[Any, Any], Any] | None
    spoilt: Callable[[Any], Array]
    leaps: bool
    hurry: bool
    keeps: tuple[tuple[str, str], ...]
    kept: dict[str, Kept]
    reverse: int
    together: str | None
    key: Key[Array, ""] | None
    tell: Callable[[Any], None]


class Motion(eqx.Module):
    """A rule of motion: in which unit its horizon is, what it needs, what it remembers, and how it runs.

    Most motions go in steps: make them from `Stepping`.
    """

    unit: ClassVar[Literal["steps", "time"]]

    @property
    def random(self) -> bool:
        """Whether it draws, so that it needs a key."""
        return False

    @property
    def isotropic(self) -> bool:
        """Whether it treats all directions of weights alike, so that a compressed network moves as the whole one."""
        return True

    def check(self, problem: Problem, state: Any) -> None:
        """Refuses what it cannot move, in a sentence."""
        return

    def precision(self, state: Any) -> Any:
        """The type of real numbers it runs in: that of the state."""
        return precision(state)

    def memory(self, problem: Problem, state: Any) -> Any:
        """What it remembers at the start besides the state, a tree of arrays: nothing."""
        return None

    def preconditioner(self, memory: Any) -> Any:
        """What divides the gradient in a step after this memory, a tree in the shape of the state; None: nothing."""
        return None

    def threshold(self, step: Any) -> Float[Array, ""] | None:
        """The curvature at which its steps stop being stable; None where that is not one number, or not known.

        Of P^{-1/2} H P^{-1/2} where it divides by a preconditioner P.
        """
        return None

    def time(self, clock: Num[Array, "*n"]) -> Float[Array, "*n"]:
        """The time at these points of its clock."""
        return clock

    @abc.abstractmethod
    def run(self, task: Task) -> Outcome:
        """Does what `simulate` asks."""
