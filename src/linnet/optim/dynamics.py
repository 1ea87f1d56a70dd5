"""The base class of optimizers and flows, and of what advances a run."""

import abc
from collections.abc import Callable
from typing import Any, ClassVar, Literal, NamedTuple

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int, Key, Num

from linnet.optim.event import Event
from linnet.problems import Problem
from linnet.states import State, precision


class Stepper(abc.ABC):
    """Advances one run from record to record, inside a compiled program; made by `Dynamics.stepper`.

    What it carries through the program's loops is a named tuple, a "run", with `clock`, the step or time, and `code`,
    negative while the run goes on and the code of a `Status` once it has ended.
    """

    @abc.abstractmethod
    def init(self, state: Any, memory: Any, clock: Num[Array, ""]) -> Any:
        """The run at this step or time."""

    @abc.abstractmethod
    def running(self, run: Any, goal: Num[Array, ""]) -> Bool[Array, ""]:
        """Whether the run has neither ended nor reached the goal."""

    @abc.abstractmethod
    def advance(self, run: Any, goal: Num[Array, ""]) -> Any:
        """The run at the goal, or where it ended before."""

    def step(self, run: Any, resting: Bool[Array, ""] | bool = False) -> Any:
        """The run after one step, or as it is where `resting`; for dynamics in steps."""
        raise NotImplementedError

    @abc.abstractmethod
    def state(self, run: Any) -> Any:
        """The network's state."""

    @abc.abstractmethod
    def memory(self, run: Any) -> Any:
        """The optimizer's memory."""

    @abc.abstractmethod
    def finish(self, run: Any, horizon: Num[Array, ""]) -> tuple[Int[Array, ""], Num[Array, ""], Any]:
        """The code of the `Status` of a run at its end, its last step or time, and the memory to resume it from."""


class Averages(NamedTuple):
    """What dynamics of averaged weights c predict of w = c + xi over its oscillation xi, Sigma = E[xi xi^T].

    - `loss`: the mean of C(w); `oscillation`: tr Sigma.
    - `directions`: how many eigenvalues of the Hessian at c are at the edge; None where they are not computed.
    """

    loss: Float[Array, ""]
    oscillation: Float[Array, ""]
    directions: Int[Array, ""] | None


class Dynamics(eqx.Module):
    """How the parameters move: the unit of the horizon, what is needed, what is remembered, and how a run advances.

    `DiscreteDynamics` (steps) and `Flow` (time) are its two kinds.
    """

    unit: ClassVar[Literal["steps", "time"]]

    @property
    def random(self) -> bool:
        """Whether it draws random numbers, so that it needs a key."""
        return False

    @property
    def rotation_equivariant(self) -> bool:
        """Whether it commutes with rotations of the hidden neurons, so that a compressed network is exact."""
        return True

    def check(self, problem: Problem, state: Any) -> None:
        """Raises `InputError` for a state or problem that it cannot train."""
        return

    def warn(self, memory: Any) -> None:
        """Warns of what this memory of a finished run says against its result: nothing."""
        return

    def precision(self, state: Any) -> Any:
        """The type of real numbers it runs in: that of the state."""
        return precision(state)

    def memory(self, problem: Problem, state: Any) -> Any:
        """What it remembers before the first step besides the state, a tree of arrays: nothing."""
        return None

    def preconditioner(self, memory: Any) -> Any:
        """What divides the gradient in a step after this memory, a tree in the shape of the state; None: nothing."""
        return None

    def stability_threshold(self, step: Any) -> Float[Array, ""] | None:
        """The curvature up to which its steps are stable; None where that is not one number, or not known.

        Of P^{-1/2} H P^{-1/2} where it divides by a preconditioner P.
        """
        return None

    def averages(self, problem: Problem, state: Any, memory: Any) -> Averages | None:
        """What it predicts of the oscillation around this state; None unless the state is averaged over one."""
        return None

    def time(self, clock: Num[Array, "*n"]) -> Float[Array, "*n"]:
        """The time at these steps (for flows, times)."""
        return clock

    @abc.abstractmethod
    def stepper(
        self,
        problem: Problem,
        initial: State,
        *,
        stop: Event | None,
        diverged: Callable[[Any], Bool[Array, ""]],
        key: Key[Array, ""] | None,
        leaps: bool,
        one_kernel: bool,
        reverse: int,
    ) -> Stepper:
        """What advances a run from the state `initial`.

        - `diverged(state)`: whether the run ends there. `leaps`: whether several steps may be made between two checks.
        - `one_kernel`: whether the program is compiled with the options of `_compiler.hurried`.
        - `reverse`: 0, or, where derivatives must go backwards through the run, the most steps between two records.
        """
