"""Motions in steps, and the compiled loop that makes them."""

import abc
import math
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, Num

from linnet._compiler import in_one_kernel
from linnet.motion.motion import Motion, Task
from linnet.outcome import Kept, Outcome, Status
from linnet.problems import Problem
from linnet.states import State

_RUNNING, _SUSPECT = -1, -2
_LEAP = 16  # steps between two looks at the size of the state


class Stepping(Motion):
    """A motion in steps. A subclass gives `step` and the time that steps take; what it remembers goes into `memory`.

    Descent with momentum, m <- beta m - dC/dtheta, theta <- theta + lr m (Polyak's heavy ball), is

        class HeavyBall(ln.Stepping):
            lr: jax.Array = eqx.field(converter=jnp.asarray)
            beta: jax.Array = eqx.field(converter=jnp.asarray)

            def time(self, clock):
                return clock * self.lr

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

    def at(self, step: Int[Array, ""]) -> "Stepping":
        """The motion that makes the step after `step` others; itself unless its steps change on the way."""
        return self

    def prepare(self, problem: Problem, state: State) -> Any:
        """Arrays that every step needs and no step changes, from the start of the run."""
        return None

    @abc.abstractmethod
    def step(
        self, problem: Problem, state: Any, memory: Any, prepared: Any, key: Key[Array, ""] | None
    ) -> tuple[Any, Any]:
        """The next state and the next memory."""

    def run(self, task: Task) -> Outcome:
        """One compiled loop: a scan over the points, and steps or leaps between them."""
        return _Loop(self, task).outcome()


class _Run(NamedTuple):
    state: Any
    memory: Any
    step: Array
    code: Array


class _Seen(NamedTuple):
    """The last record, what is kept of all of them, and what observables remember: now, and before that record.

    A run that goes on looks at its last point again, with what was remembered before.
    """

    step: Array
    values: dict[str, Array]
    state: Any
    kept: dict[str, Kept]
    past: Any
    before: Any


class _Loop:
    """The loop of one run."""

    def __init__(self, motion: Stepping, task: Task):
        self.motion, self.task = motion, task
        self.prepared = motion.prepare(task.problem, task.start)

    def move(self, state: Any, memory: Any, step: Any) -> tuple[Any, Any]:
        noise = None if self.task.key is None else jax.random.fold_in(self.task.key, step)
        new = self.motion.at(step).step(self.task.problem, state, memory, self.prepared, noise)
        like, structure = jax.tree.flatten((state, memory))
        leaves = zip(like, jax.tree.leaves(new), strict=True)  # a motion may make its states anew, without their marks
        return jax.tree.unflatten(structure, [b.astype(a.dtype) for a, b in leaves])

    def leap(self, run: _Run) -> _Run:
        """Many steps with one look: what has grown by then is walked again from here, step by step."""
        here = (run.state, run.memory)
        new = in_one_kernel(self.many, here, run.step) if self.task.hurry else self.many(here, run.step)
        grown = self.task.spoilt(new[0])
        state, memory = jax.tree.map(lambda a, b: jnp.where(grown, a, b), here, new)
        return _Run(state, memory, jnp.where(grown, run.step, run.step + _LEAP), jnp.where(grown, _SUSPECT, _RUNNING))

    def many(self, here: tuple[Any, Any], step: Array) -> tuple[Any, Any]:
        """As many steps as a leap is."""
        return jax.lax.fori_loop(0, _LEAP, lambda i, now: self.move(now[0], now[1], step + i), here)

    def walk(self, run: _Run, resting: Array | bool = False) -> _Run:
        """One step, unless the run ends here or rests."""
        here = (run.state, run.memory)
        new = self.move(*here, run.step)
        grown = self.task.spoilt(new[0])
        # the condition looks at the old state, whose matrix the step computes anyway
        halt = jnp.asarray(False) if self.task.stop is None else self.halts(run.state)
        stay = grown | halt | resting
        how = jnp.where(halt, Status.CONVERGED.code, jnp.where(grown, Status.DIVERGED.code, _RUNNING))
        state, memory = jax.tree.map(lambda a, b: jnp.where(stay, a, b), here, new)
        return _Run(state, memory, jnp.where(stay, run.step, run.step + 1), jnp.where(resting, run.code, how))

    def halts(self, state: Any) -> Array:
        assert self.task.stop is not None
        return jnp.asarray(self.task.stop(state, self.task.problem), dtype=bool)

    def see(self, run: _Run, last: _Seen) -> _Seen:
        values, past = self.task.look(run.state, run.memory, run.step, last.past)
        kept = {}
        for how, name in self.task.keeps:
            title, value = f"{how} {name}", values[name]
            old = last.kept[title]
            better = value < old.value if how == "lowest" else value > old.value
            new = Kept(run.state, run.step, value)
            kept[title] = jax.tree.map(lambda a, b, better=better: jnp.where(better, a, b), new, old)
        return _Seen(run.step, values, run.state if self.task.states else None, kept, past, last.past)

    def travel(self, run: _Run, goal: Array) -> _Run:
        """Goes to the next point, or to where the run ends."""
        if self.task.reverse:
            return self.travel_in_scans(run, goal)
        if self.task.stop is None and self.task.leaps:
            run = jax.lax.while_loop(lambda r: (r.step + _LEAP <= goal) & (r.code == _RUNNING), self.leap, run)
        return jax.lax.while_loop(lambda r: _going(r, goal), self.walk, run)

    def travel_in_scans(self, run: _Run, goal: Array) -> _Run:
        """The same in loops that have a reverse: pieces of sqrt(n) steps, made again on the way back."""
        side = math.isqrt(self.task.reverse - 1) + 1

        def one(run: _Run, _: None) -> tuple[_Run, None]:
            return jax.lax.cond(_going(run, goal), self.walk, lambda r: r, run), None

        def piece(run: _Run, _: None) -> tuple[_Run, None]:
            walked = jax.lax.cond(_going(run, goal), lambda r: jax.lax.scan(one, r, length=side)[0], lambda r: r, run)
            return walked, None

        return jax.lax.scan(jax.checkpoint(piece, prevent_cse=False), run, length=side)[0]

    def sparse(self, carry: tuple[_Run, _Seen], point: tuple[Array, Array]) -> Any:
        """Goes to the next point and looks there."""
        index, goal = point
        run, last = carry
        moving = _going(run, goal) | (index == 0)
        run = self.travel(run, goal)
        self.task.tell(index + 1)
        # a run that has ended is not looked at again
        seen = jax.lax.cond(moving, lambda: self.see(run, last), lambda: last)
        return (run, seen), seen[:3]

    def close(self, carry: tuple[_Run, _Seen], point: tuple[Array, Array]) -> Any:
        """Looks and makes one step: records and steps share the matrix."""
        index, goal = point
        run, last = carry
        resting = ~_going(run, goal)
        news = (run.step > last.step) | (index == 0)
        self.task.tell(index + 1)
        run, seen = jax.lax.cond(
            news | ~resting, lambda: (self.walk(run, resting), self.see(run, last)), lambda: (run, last)
        )
        return (run, seen), seen[:3]

    def visits(self, start: tuple[_Run, _Seen], indices: Array, goals: Array) -> Any:
        """Looks and makes a step at each point, or until the last of the runs that go together has ended."""
        axis = self.task.together
        if axis is None:
            return *jax.lax.scan(self.close, start, (indices, goals)), indices.shape[0]
        _, record = jax.eval_shape(self.close, start, (indices[0], goals[0]))
        records = jax.tree.map(lambda x: jnp.zeros((indices.shape[0], *x.shape), x.dtype), record)

        def going(now: Any) -> Array:
            index, (run, _), _ = now
            more = jax.lax.pmax(_going(run, goals[-1]).astype(int), axis) > 0
            return (index < indices.shape[0]) & (more | (index == 0))

        def visit(now: Any) -> Any:
            index, carry, records = now
            carry, record = self.close(carry, (index, goals[index]))
            return index + 1, carry, jax.tree.map(lambda many, one: many.at[index].set(one), records, record)

        made, carry, records = jax.lax.while_loop(going, visit, (indices[0], start, records))
        return carry, records, made

    def blank(self) -> _Seen:
        """Nothing seen yet."""
        task = self.task
        shapes, _ = jax.eval_shape(task.look, task.state, task.memory, task.points[0], task.past)
        values = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        worst = {"lowest": jnp.inf, "highest": -jnp.inf}
        kept = dict(task.kept)
        for how, name in task.keeps:
            kept.setdefault(f"{how} {name}", Kept(task.state, task.points[0], jnp.full_like(values[name], worst[how])))
        return _Seen(task.points[0], values, task.state if task.states else None, kept, task.past, task.past)

    def outcome(self) -> Outcome:
        task, points = self.task, self.task.points
        start = (_Run(task.state, task.memory, points[0], jnp.asarray(_RUNNING)), self.blank())
        indices = jnp.arange(points.shape[0])
        if task.dense and task.far and not task.reverse:
            (run, seen), records, made = self.visits(start, indices[:-1], points[1:])
            run = jax.lax.while_loop(lambda r: _going(r, points[-1]), self.walk, run)
            seen = jax.lax.cond(run.step > seen.step, lambda: self.see(run, seen), lambda: seen)
            task.tell(points.shape[0])
            records = jax.tree.map(
                lambda many, one: jnp.concatenate([_filled(many, made, one), one[None]]), records, seen[:3]
            )
        elif task.dense and not task.reverse:
            # at the last point it looks and rests: a look of its own there would be compiled again
            goals = jnp.concatenate([points[1:], points[-1:]])
            (run, seen), records = jax.lax.scan(self.close, start, (indices, goals))
        else:
            body = jax.checkpoint(self.sparse, prevent_cse=False) if task.reverse else self.sparse
            (run, seen), records = jax.lax.scan(body, start, (indices, points))
        code = run.code
        if task.stop is not None:
            code = jnp.where((code < 0) & self.halts(run.state), Status.CONVERGED.code, code)
        code = jnp.where(code < 0, Status.HORIZON.code, code)
        ended = jnp.where(code == Status.DIVERGED.code, run.step + 1, run.step)  # the step that could not be taken
        taken, values, states = records
        return Outcome(values, taken, code, ended, run.state, run.memory, seen.before, seen.kept, states)


def _filled(many: Array, made: Any, last: Array) -> Array:
    """Records of which so many were made, the rest as the last one."""
    if isinstance(made, int):
        return many
    index = jnp.arange(many.shape[0]).reshape(-1, *(1,) * last.ndim)
    return jnp.where(index < made, many, last)


def _going(run: _Run, goal: Array) -> Array:
    return (run.step < goal) & (run.code < 0)
