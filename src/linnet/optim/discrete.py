"""Dynamics in steps."""

import abc
import math
from collections.abc import Callable
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, Num

from linnet._compiler import in_one_kernel
from linnet.optim.dynamics import Dynamics, Stepper
from linnet.optim.event import Event
from linnet.outcome import Status
from linnet.problems import Problem
from linnet.states import State

_RUNNING, _SUSPECT = -1, -2
_LEAP = 16  # steps between two checks of the size of the state


class DiscreteDynamics(Dynamics):
    """Dynamics in steps. A subclass gives `step` and the time that steps take; what it remembers goes into `memory`.

    Descent with momentum, m <- beta m - dC/dtheta, theta <- theta + lr m (Polyak's heavy ball), is

        class HeavyBall(ln.optim.DiscreteDynamics):
            lr: jax.Array = eqx.field(converter=jnp.asarray)
            beta: jax.Array = eqx.field(converter=jnp.asarray)

            def time(self, clock):
                return clock * self.lr / (1 - self.beta)

            def memory(self, problem, state):
                return jax.tree.map(jnp.zeros_like, state)

            def step(self, problem, state, memory, prepared, key):
                m = jax.tree.map(lambda m, v: self.beta * m + v, memory, state.velocity(problem))
                return jax.tree.map(lambda x, v: x + self.lr * v, state, m), m
    """

    unit: ClassVar[Literal["steps", "time"]] = "steps"

    @abc.abstractmethod
    def time(self, clock: Num[Array, "*n"]) -> Float[Array, "*n"]:
        """The time that so many steps take."""

    def at(self, step: Int[Array, ""]) -> "DiscreteDynamics":
        """The dynamics of the step with this number, 0 for the first; itself unless its steps change on the way."""
        return self

    def prepare(self, problem: Problem, state: State) -> Any:
        """Arrays that every step needs and no step changes, from the initial state."""
        return None

    @abc.abstractmethod
    def step(
        self, problem: Problem, state: Any, memory: Any, prepared: Any, key: Key[Array, ""] | None
    ) -> tuple[Any, Any]:
        """The next state and the next memory."""

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
        return _Steps(self, problem, initial, stop, diverged, key, leaps, one_kernel, reverse)


class _Run(NamedTuple):
    state: Any
    memory: Any
    clock: Array
    code: Array


class _Steps(Stepper):
    """Single steps, or leaps of several where nothing has to be checked in between."""

    def __init__(
        self,
        optimizer: DiscreteDynamics,
        problem: Problem,
        initial: State,
        stop: Event | None,
        diverged: Callable[[Any], Bool[Array, ""]],
        key: Key[Array, ""] | None,
        leaps: bool,
        one_kernel: bool,
        reverse: int,
    ):
        self.optimizer, self.problem, self.stop, self.diverged, self.key = optimizer, problem, stop, diverged, key
        self.leaps, self.one_kernel, self.reverse = leaps and stop is None, one_kernel, reverse
        self.prepared = optimizer.prepare(problem, initial)

    def init(self, state: Any, memory: Any, clock: Num[Array, ""]) -> _Run:
        return _Run(state, memory, clock, jnp.asarray(_RUNNING))

    def running(self, run: _Run, goal: Num[Array, ""]) -> Bool[Array, ""]:
        return (run.clock < goal) & (run.code < 0)

    def state(self, run: _Run) -> Any:
        return run.state

    def memory(self, run: _Run) -> Any:
        return run.memory

    def advance(self, run: _Run, goal: Num[Array, ""]) -> _Run:
        if self.reverse:
            return self._advance_in_scans(run, goal)
        if self.leaps:
            run = jax.lax.while_loop(lambda r: (r.clock + _LEAP <= goal) & (r.code == _RUNNING), self._leap, run)
        return jax.lax.while_loop(lambda r: self.running(r, goal), self.step, run)

    def step(self, run: _Run, resting: Bool[Array, ""] | bool = False) -> _Run:
        before = (run.state, run.memory)
        after = self._move(*before, run.clock)
        diverged = self.diverged(after[0])
        # the condition is asked of the old state, whose matrix the step computes anyway
        halt = jnp.asarray(False) if self.stop is None else self.stop(run.state, self.problem)
        stay = diverged | halt | resting
        code = jnp.where(halt, Status.CONVERGED.code, jnp.where(diverged, Status.DIVERGED.code, _RUNNING))
        state, memory = jax.tree.map(lambda a, b: jnp.where(stay, a, b), before, after)
        return _Run(state, memory, jnp.where(stay, run.clock, run.clock + 1), jnp.where(resting, run.code, code))

    def finish(self, run: _Run, horizon: Num[Array, ""]) -> tuple[Int[Array, ""], Num[Array, ""], Any]:
        code = run.code
        if self.stop is not None:
            code = jnp.where((code < 0) & self.stop(run.state, self.problem), Status.CONVERGED.code, code)
        code = jnp.where(code < 0, Status.HORIZON.code, code)
        # a run that diverged ends at the step that could not be made
        return code, jnp.where(code == Status.DIVERGED.code, run.clock + 1, run.clock), run.memory

    def _move(self, state: Any, memory: Any, step: Any) -> tuple[Any, Any]:
        key = None if self.key is None else jax.random.fold_in(self.key, step)
        new = self.optimizer.at(step).step(self.problem, state, memory, self.prepared, key)
        # an optimizer may build new states, with other static fields
        like, structure = jax.tree.flatten((state, memory))
        leaves = zip(like, jax.tree.leaves(new), strict=True)
        return jax.tree.unflatten(structure, [b.astype(a.dtype) for a, b in leaves])

    def _leap(self, run: _Run) -> _Run:
        """Several steps with one check: a run that diverged within them is made again from here, step by step."""
        before = (run.state, run.memory)
        if self.one_kernel:
            after = in_one_kernel(self._move_often, before, run.clock)
        else:
            after = self._move_often(before, run.clock)
        diverged = self.diverged(after[0])
        state, memory = jax.tree.map(lambda a, b: jnp.where(diverged, a, b), before, after)
        clock, code = jnp.where(diverged, run.clock, run.clock + _LEAP), jnp.where(diverged, _SUSPECT, _RUNNING)
        return _Run(state, memory, clock, code)

    def _move_often(self, before: tuple[Any, Any], step: Array) -> tuple[Any, Any]:
        """As many steps as a leap has."""
        return jax.lax.fori_loop(0, _LEAP, lambda i, now: self._move(now[0], now[1], step + i), before)

    def _advance_in_scans(self, run: _Run, goal: Array) -> _Run:
        """The same in loops that have a reverse: pieces of sqrt(n) steps, computed again on the way back."""
        side = math.isqrt(self.reverse - 1) + 1

        def one(run: _Run, _: None) -> tuple[_Run, None]:
            return jax.lax.cond(self.running(run, goal), self.step, lambda r: r, run), None

        def piece(run: _Run, _: None) -> tuple[_Run, None]:
            after = jax.lax.cond(
                self.running(run, goal), lambda r: jax.lax.scan(one, r, length=side)[0], lambda r: r, run
            )
            return after, None

        return jax.lax.scan(jax.checkpoint(piece, prevent_cse=False), run, length=side)[0]
