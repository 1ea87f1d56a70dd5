"""Gradient flow."""

from typing import Any, ClassVar, Literal, NamedTuple

import diffrax
import equinox as eqx
import equinox.internal
import jax
import jax.numpy as jnp
import optimistix
from jaxtyping import Array, Float

from linnet import _check
from linnet._check import InputError
from linnet.motion.motion import Motion, Task
from linnet.outcome import Kept, Outcome, Status
from linnet.problems import Problem
from linnet.states import State

_RUNNING = -1


class GradientFlow(Motion):
    """dtheta/dt = -dC/dtheta by an adaptive Runge-Kutta solver (diffrax), stepping exactly onto the recording times.

    The absolute tolerance is atol times the state's own initial size: modes that start small are amplified
    exponentially, so an absolute number that is fine at scale 1 is wrong at 1e-8. `loss_below` and `change_below` end a
    flow at the time they begin to hold; other conditions are looked at after each step of the solver. It remembers
    what the solver knows between two steps, so that a run that goes on makes the steps it would have made.
    """

    unit: ClassVar[Literal["steps", "time"]] = "time"
    rtol: Float[Array, ""]
    atol: Float[Array, ""]
    solver: diffrax.AbstractAdaptiveSolver[Any]
    max_steps: int = eqx.field(static=True)

    def __init__(
        self,
        rtol: Any = 1e-10,
        atol: Any = None,
        *,
        solver: diffrax.AbstractAdaptiveSolver[Any] | None = None,
        max_steps: int = 1_000_000,
    ):
        self.rtol = _check.number("rtol", rtol, above=0)
        self.atol = self.rtol if atol is None else _check.number("atol", atol, above=0)
        if solver is not None and not isinstance(solver, diffrax.AbstractAdaptiveSolver):
            raise InputError(
                f"solver = {_check.show(solver)} is not allowed: use an adaptive one such as diffrax.Tsit5()."
            )
        self.solver = diffrax.Dopri8() if solver is None else solver
        self.max_steps = _check.integer("max_steps", max_steps, least=1)

    def precision(self, state: Any) -> Any:
        """Double: single would not hold the tolerances."""
        return jnp.dtype(jnp.float64)

    def memory(self, problem: Problem, state: Any) -> Any:
        """Where the solver's next step ends with the state of its controller, and the solver's own state."""
        term, zero = _term(problem), jnp.zeros(())
        order = self.solver.error_order(term)
        pace = self._controller(state).init(term, zero, zero, state, None, None, self.solver.func, order)
        return jax.tree.map(jnp.asarray, (pace, self.solver.init(term, zero, zero, state, None)))

    def _controller(self, start: State) -> diffrax.PIDController:
        size = start.size
        return diffrax.PIDController(rtol=self.rtol, atol=self.atol * jnp.where(jnp.isfinite(size), size, 1.0))

    def run(self, task: Task) -> Outcome:
        """One compiled loop: a scan over the points, and steps of the solver between them."""
        return _Loop(self, task).outcome()


class _Run(NamedTuple):
    """Where a flow is: its state and time, where its next step would end, and what solver and controller know."""

    state: Any
    time: Array
    pace: tuple[Array, Any]
    inside: Any
    level: Array  # what falls through zero where the run stops
    steps: Array
    code: Array


class _Loop:
    """The loop of one run. Steps and their sizes are diffrax's; with its loop the program is three times as large."""

    def __init__(self, motion: GradientFlow, task: Task):
        self.motion, self.task, self.term = motion, task, _term(task.problem)
        self.controller: Any = motion._controller(task.start)
        self.solver = _ready(motion.solver, self.controller, reverse=bool(task.reverse))
        self.order = self.solver.error_order(self.term)

    def step(self, run: _Run, goal: Array) -> _Run:
        """One step of the solver, kept or refused, no further than to the next point."""
        end = jnp.minimum(run.pace[0], goal)
        new, error, dense, inside, result = self.solver.step(
            self.term, run.time, end, run.state, None, run.inside, made_jump=False
        )
        error = jax.tree.map(lambda x: jnp.where(jnp.isnan(x), jnp.inf, x), error)  # a step out of the domain
        keep, time, there, _, inner, _ = self.controller.adapt_step_size(
            run.time, end, run.state, new, None, error, self.order, run.pace[1]
        )
        state, inside = jax.tree.map(lambda a, b: jnp.where(keep, a, b), (new, inside), (run.state, run.inside))
        failed = keep & (result != diffrax.RESULTS.successful)
        code = jnp.where(failed, Status.STALLED.code, _RUNNING)
        moved = _Run(state, time, (there, inner), inside, run.level, run.steps + 1, code)
        path = self.solver.interpolation_cls(t0=run.time, t1=end, **dense)
        return self.halted(moved, path)

    def halted(self, run: _Run, path: Any) -> _Run:
        """The run after a step, ended where it has diverged or where its condition holds."""
        task = self.task
        spoilt = task.spoilt(run.state)
        if task.stop is not None and (level := _level(task)) is None:
            halt = jnp.asarray(task.stop(run.state, task.problem), dtype=bool)
            run = run._replace(code=jnp.where(halt, Status.CONVERGED.code, run.code))
        elif task.stop is not None:
            value = level(run.state)
            halt = (jnp.sign(value) != jnp.sign(run.level)) & ~spoilt
            time, state = jax.lax.cond(halt, lambda: _crossing(level, path), lambda: (run.time, run.state))
            code = jnp.where(halt, Status.CONVERGED.code, run.code)
            run = run._replace(state=state, time=time, level=value, code=code)
        return run._replace(code=jnp.where(spoilt, Status.DIVERGED.code, run.code))

    def going(self, run: _Run, goal: Array) -> Array:
        return (run.time < goal) & (run.code < 0) & (run.steps < self.motion.max_steps)

    def travel(self, run: _Run, goal: Array) -> _Run:
        """Goes to the next point, or to where the run ends."""
        return eqx.internal.while_loop(
            lambda now: self.going(now, goal),
            lambda now: self.step(now, goal),
            run,
            max_steps=self.motion.max_steps if self.task.reverse else None,
            kind="checkpointed" if self.task.reverse else "lax",
        )

    def look(self, carry: tuple[_Run, Any], point: tuple[Array, Array]) -> Any:
        """Goes to the next point and looks there; a run that has ended is not looked at again."""
        index, goal = point
        run, last = carry
        moving = self.going(run, goal) | (index == 0)
        run = self.travel(run, goal)
        self.task.tell(index + 1)
        seen = jax.lax.cond(moving, lambda: _record(self.task, run.state), lambda: last)
        return (run, seen), seen

    def start(self) -> _Run:
        task = self.task
        pace, inside = task.memory
        level = None if task.stop is None else _level(task)
        already = jnp.asarray(task.stop is not None and task.stop(task.state, task.problem), dtype=bool)
        return _Run(
            task.state,
            task.points[0],
            pace,
            inside,
            jnp.zeros(()) if level is None else level(task.state),
            jnp.asarray(0),
            jnp.where(already, Status.CONVERGED.code, _RUNNING),
        )

    def outcome(self) -> Outcome:
        task, points = self.task, self.task.points
        blank = jax.tree.map(
            lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(lambda s: _record(task, s), task.state)
        )
        body = jax.checkpoint(self.look, prevent_cse=False) if task.reverse else self.look
        indices = jnp.arange(points.shape[0])
        (run, _), (values, states) = jax.lax.scan(body, (self.start(), blank), (indices, points))
        code = jnp.where(run.time < points[-1], Status.STALLED.code, Status.HORIZON.code)
        code = jnp.where(run.code >= 0, run.code, code)
        # a run that stops ends inside a step: what the solver knows of the step's end is of no use then
        cut = (code == Status.CONVERGED.code) | (code == Status.DIVERGED.code)
        unknown = self.solver.init(self.term, run.time, run.time, run.state, None)
        inside = jax.tree.map(lambda a, b: jnp.where(cut, a, b), unknown, run.inside)
        clock = jnp.minimum(points, run.time)
        kept = _extremes(task, values, states, clock)
        memory = (run.pace, inside)
        return Outcome(values, clock, code, run.time, run.state, memory, kept, states if task.states else None)


def _ready(solver: Any, controller: diffrax.PIDController, *, reverse: bool) -> Any:
    """The solver as `diffrax.diffeqsolve` prepares it: forward derivatives, an implicit one with our tolerances."""
    if isinstance(solver, diffrax.AbstractImplicitSolver):
        root_finder: Any = diffrax.with_stepsize_controller_tols(optimistix.Newton)
        asked = root_finder().rtol  # the word for "that of the controller"
        names = [name for name in ("rtol", "atol", "norm") if getattr(solver.root_finder, name) is asked]
        own = [getattr(controller, name) for name in names]
        solver = eqx.tree_at(lambda s: [getattr(s.root_finder, name) for name in names], solver, own)
    if not reverse and getattr(solver, "scan_kind", "lax") is None:
        solver = eqx.tree_at(lambda s: s.scan_kind, solver, "lax", is_leaf=lambda x: x is None)
    return solver


def _level(task: Task) -> Any:
    """The real number whose fall through zero ends the run inside a step, if its condition has one."""
    level = getattr(task.stop, "level", None)
    return None if level is None else lambda state: level(state, task.problem)


def _crossing(level: Any, path: Any) -> tuple[Array, Any]:
    """Where on a step's path the level vanishes, from its end by Newton."""
    found: Any = optimistix.root_find(
        lambda time, _: level(path.evaluate(time)),
        optimistix.Newton(rtol=1e-10, atol=1e-10),
        path.t1,
        options={"lower": path.t0, "upper": path.t1},
        throw=False,
    )
    return found.value, path.evaluate(found.value)


def _term(problem: Problem) -> Any:
    return diffrax.ODETerm(lambda t, y, args: y.velocity(problem))


def _record(task: Task, state: Any) -> tuple[dict[str, Array], Any]:
    return task.look(state, task.memory), state if task.states or task.keeps else None


def _extremes(task: Task, values: dict[str, Array], states: Any, clock: Array) -> dict[str, Kept]:
    """The states to keep: the first where the value is lowest or highest, unless one from before is as good."""
    kept = {}
    for how, name in task.keeps:
        title = f"{how} {name}"
        ranks = values[name] if how == "lowest" else -values[name]
        if title in task.kept:  # which has seen the first record
            ranks = ranks.at[0].set(jnp.inf)
        index = jnp.nanargmin(ranks)
        new = Kept(jax.tree.map(lambda x, index=index: x[index], states), clock[index], values[name][index])
        old = task.kept.get(title, new)
        better = new.value < old.value if how == "lowest" else new.value > old.value
        kept[title] = jax.tree.map(lambda a, b, better=better: jnp.where(better, a, b), new, old)
    return kept
