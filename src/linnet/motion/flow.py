"""Gradient flow, with and without inertia."""

from collections.abc import Sequence
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
from linnet.motion.optimiser import decayed, layer_rates
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

    `decay` mu adds weight decay, the flow of C + mu/2 |theta|^2, under which imbalances fade as e^{-2 mu t}
    (`optimisers/C5`); `rates` are the layers' own, the first layer first: dW_l/dt = -rate_l dC/dW_l.
    """

    unit: ClassVar[Literal["steps", "time"]] = "time"
    rtol: Float[Array, ""]
    atol: Float[Array, ""]
    solver: diffrax.AbstractAdaptiveSolver[Any]
    max_steps: int = eqx.field(static=True)
    decay: Float[Array, ""] | None  # None where there is none
    rates: Float[Array, " depth"] | None

    def __init__(
        self,
        rtol: Any = 1e-10,
        atol: Any = None,
        *,
        solver: diffrax.AbstractAdaptiveSolver[Any] | None = None,
        max_steps: int = 1_000_000,
        decay: Any = 0.0,
        rates: Sequence[float] | None = None,
    ):
        self.rtol = _check.number("rtol", rtol, above=0)
        self.atol = self.rtol if atol is None else _check.number("atol", atol, above=0)
        if solver is not None and not isinstance(solver, diffrax.AbstractAdaptiveSolver):
            raise InputError(
                f"solver = {_check.show(solver)} is not allowed: use an adaptive one such as diffrax.Tsit5()."
            )
        self.solver = diffrax.Dopri8() if solver is None else solver
        self.max_steps = _check.integer("max_steps", max_steps, least=1)
        self.decay, self.rates = decayed(decay), layer_rates(rates)

    def check(self, problem: Problem, state: State) -> None:
        if (self.decay is not None or self.rates is not None) and not state.weighted:
            raise InputError(f"{type(state).__name__} has no weights for decay or rates: use Weights or Modes.")

    def precision(self, state: Any) -> Any:
        """Double: single would not hold the tolerances."""
        return jnp.dtype(jnp.float64)

    def memory(self, problem: Problem, state: Any) -> Any:
        """Where the solver's next step ends with the state of its controller, and the solver's own state."""
        term, zero, begin = self.term(problem, state), jnp.zeros(()), self.begin(state)
        order = self.solver.error_order(term)
        pace = self._controller(state).init(term, zero, zero, begin, None, None, self.solver.func, order)
        inside = self.solver.init(term, zero, zero, begin, None)
        return jax.tree.map(jnp.asarray, (pace, inside, self.rest(begin)))

    def term(self, problem: Problem, like: State) -> Any:
        """The right side of the equation, for diffrax; `like` has what does not move."""
        return diffrax.ODETerm(lambda t, y, args: self.derivative(problem, y, like))

    def derivative(self, problem: Problem, y: Any, like: State) -> Any:
        """dtheta/dt."""
        moved = eqx.combine(y, like).velocity(problem).trained()
        if self.decay is not None:
            decay = self.decay
            moved = jax.tree.map(lambda v, w: v - decay * w, moved, y)
        return moved if self.rates is None else moved.by_layer(self.rates)

    # what moves of the state is integrated, and in a subclass more: a pair of functions leads there, and one back

    def begin(self, state: Any) -> Any:
        """What is integrated, at the start."""
        return state.trained()

    def whole(self, state: Any, rest: Any) -> Any:
        """What is integrated, from a state and the rest of it."""
        return state.trained()

    def state(self, y: Any) -> Any:
        """What moves of the state in what is integrated."""
        return y

    def rest(self, y: Any) -> Any:
        """The rest of what is integrated."""
        return None

    def _controller(self, start: State) -> diffrax.PIDController:
        size = start.size
        return diffrax.PIDController(rtol=self.rtol, atol=self.atol * jnp.where(jnp.isfinite(size), size, 1.0))

    def run(self, task: Task) -> Outcome:
        """One compiled loop: a scan over the points, and steps of the solver between them."""
        return _Loop(self, task).outcome()


class InertialFlow(GradientFlow):
    """theta'' + friction theta' = -dC/dtheta: what descent with momentum follows at small steps.

    With the heavy ball's lr and beta, steps of sqrt(lr) and friction (1 - beta)/sqrt(lr). The imbalance W_1 W_1^T -
    W_2^T W_2 is no constant of it, but W_1 W_1'^T - W_1' W_1^T + W_2^T W_2' - W_2'^T W_2 fades as e^{-friction t}
    (`optimisers/C9`). `speed` is theta' at the start, in the shape of the state; 0 if none is given.
    """

    friction: Float[Array, ""]
    speed: Any

    def __init__(
        self,
        friction: Any,
        *,
        speed: State | None = None,
        rtol: Any = 1e-10,
        atol: Any = None,
        solver: diffrax.AbstractAdaptiveSolver[Any] | None = None,
        max_steps: int = 1_000_000,
        decay: Any = 0.0,
        rates: Sequence[float] | None = None,
    ):
        super().__init__(rtol, atol, solver=solver, max_steps=max_steps, decay=decay, rates=rates)
        self.friction = _check.number("friction", friction, least=0)
        if speed is not None and not isinstance(speed, State):
            raise InputError(f"speed = {_check.show(speed)} is not allowed: speed must have the shape of the state.")
        self.speed = speed

    def check(self, problem: Problem, state: State) -> None:
        super().check(problem, state)
        if not state.weighted:
            raise InputError(f"{type(state).__name__} has no weights that could have inertia: use Weights or Modes.")
        shapes, wanted = ([x.shape for x in jax.tree.leaves(part)] for part in (self.speed, state))
        if self.speed is not None and (type(self.speed) is not type(state) or shapes != wanted):
            raise InputError(f"speed is a {type(self.speed).__name__} of shapes {shapes}: it must be like the state.")

    def derivative(self, problem: Problem, y: Any, like: State) -> Any:
        state, speed = y
        force = super().derivative(problem, state, like)
        return speed, jax.tree.map(lambda f, v: f - self.friction * v, force, speed)

    def begin(self, state: Any) -> Any:
        weights = state.trained()
        if self.speed is None:
            return weights, jax.tree.map(jnp.zeros_like, weights)
        speed = jax.tree.unflatten(jax.tree.structure(state), jax.tree.leaves(self.speed))
        return weights, speed.trained()

    def whole(self, state: Any, rest: Any) -> Any:
        return state.trained(), rest

    def state(self, y: Any) -> Any:
        return y[0]

    def rest(self, y: Any) -> Any:
        return y[1]


class _Run(NamedTuple):
    """Where a flow is: all that is integrated, its time, where its next step would end, and what the solver knows."""

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
        self.motion, self.task, self.term = motion, task, motion.term(task.problem, task.start)
        self.controller: Any = motion._controller(task.start)
        self.solver = _ready(motion.solver, self.controller, reverse=bool(task.reverse))
        self.order = self.solver.error_order(self.term)

    def state(self, y: Any) -> Any:
        """The state in what is integrated."""
        return eqx.combine(self.motion.state(y), self.task.start)

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
        spoilt = task.spoilt(self.state(run.state))
        if task.stop is not None and (level := self.level()) is None:
            halt = jnp.asarray(task.stop(self.state(run.state), task.problem), dtype=bool)
            run = run._replace(code=jnp.where(halt, Status.CONVERGED.code, run.code))
        elif task.stop is not None:
            value = level(run.state)
            halt = (jnp.sign(value) != jnp.sign(run.level)) & ~spoilt
            time, state = jax.lax.cond(halt, lambda: _crossing(level, path), lambda: (run.time, run.state))
            code = jnp.where(halt, Status.CONVERGED.code, run.code)
            run = run._replace(state=state, time=time, level=value, code=code)
        return run._replace(code=jnp.where(spoilt, Status.DIVERGED.code, run.code))

    def level(self) -> Any:
        """The real number whose fall through zero ends the run inside a step, if its condition has one."""
        level = getattr(self.task.stop, "level", None)
        return None if level is None else lambda y: level(self.state(y), self.task.problem)

    def record(self, y: Any, time: Array, past: Any) -> tuple[tuple[dict[str, Array], Any], Any]:
        state = self.state(y)
        values, past = self.task.look(state, self.task.memory, time, past)
        return (values, state if self.task.states or self.task.keeps else None), past

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
        run, (last, past, before) = carry
        moving = self.going(run, goal) | (index == 0)
        run = self.travel(run, goal)
        self.task.tell(index + 1)
        seen = jax.lax.cond(
            moving, lambda: (*self.record(run.state, run.time, past), past), lambda: (last, past, before)
        )
        return (run, seen), seen[0]

    def start(self) -> _Run:
        task = self.task
        pace, inside, rest = task.memory
        begin = self.motion.whole(task.state, rest)
        level = None if task.stop is None else self.level()
        already = jnp.asarray(task.stop is not None and task.stop(task.state, task.problem), dtype=bool)
        return _Run(
            begin,
            task.points[0],
            pace,
            inside,
            jnp.zeros(()) if level is None else level(begin),
            jnp.asarray(0),
            jnp.where(already, Status.CONVERGED.code, _RUNNING),
        )

    def outcome(self) -> Outcome:
        task, points = self.task, self.task.points
        begin = self.start()
        shapes, _ = jax.eval_shape(self.record, begin.state, begin.time, task.past)
        blank = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        body = jax.checkpoint(self.look, prevent_cse=False) if task.reverse else self.look
        indices = jnp.arange(points.shape[0])
        carry = (begin, (blank, task.past, task.past))
        (run, (_, _, past)), (values, states) = jax.lax.scan(body, carry, (indices, points))
        code = jnp.where(run.time < points[-1], Status.STALLED.code, Status.HORIZON.code)
        code = jnp.where(run.code >= 0, run.code, code)
        # a run that stops ends inside a step: what the solver knows of the step's end is of no use then
        cut = (code == Status.CONVERGED.code) | (code == Status.DIVERGED.code)
        unknown = self.solver.init(self.term, run.time, run.time, run.state, None)
        inside = jax.tree.map(lambda a, b: jnp.where(cut, a, b), unknown, run.inside)
        clock = jnp.minimum(points, run.time)
        kept = _extremes(task, values, states, clock)
        memory = (run.pace, inside, self.motion.rest(run.state))
        final = self.state(run.state)
        return Outcome(values, clock, code, run.time, final, memory, past, kept, states if task.states else None)


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
