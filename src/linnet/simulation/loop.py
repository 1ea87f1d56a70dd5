"""The compiled program of one run: a loop over the records, for steps and flows alike."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Key, Num

from linnet._check import InputError
from linnet.observe import Observable, ObservationContext
from linnet.optim import Dynamics, Event
from linnet.outcome import Checkpoint
from linnet.problems import Problem
from linnet.trajectory import Label, Trajectory


class Resumed(NamedTuple):
    """The end of the run that is resumed."""

    state: Any
    memory: Any
    clock: Any
    past: Any
    checkpoints: dict[str, Checkpoint]


class Request(eqx.Module):
    """Everything that the compiled program is given; what is not an array is static.

    - `points`: the steps or times to record, in order, from where the run begins to its horizon; the last one may be
      repeated. `dense`: no two of them are more than a step apart; `open_horizon`: except perhaps the last two.
    - `stop`: the event that ends the run. `divergence_limit`: the run has diverged once an entry of the state exceeds
      this times max(1, largest initial entry); `leaps`: whether several steps may be made between two such checks.
    - `extremes`: ("lowest" or "highest", name of an observable) for each checkpoint; `states`: whether to record all
      states.
    - `reverse`: 0, or, where derivatives must go backwards through the run, the most steps between two points.
    - `batch_axis`: the name of an axis of `jax.vmap` along which runs have different lengths; None for one run alone.
    """

    problem: Problem
    initial: Any
    optimizer: Dynamics
    resumed: Resumed | None
    points: Num[Array, " records"]
    observables: OrderedDict[str, Observable]
    prepared: dict[str, Any]
    stop: Event | None
    divergence_limit: Array
    key: Key[Array, ""] | None
    dense: bool
    open_horizon: bool
    leaps: bool
    extremes: tuple[tuple[str, str], ...]
    states: bool
    reverse: int
    batch_axis: str | None

    def measure(self, state: Any, memory: Any, clock: Any, past: Any) -> tuple[dict[str, Array], dict[str, Any]]:
        """The recorded values of a state, and the next past of the observables that have one."""
        values: dict[str, Any] = {}
        next_past: dict[str, Any] = {}
        for name, observable in self.observables.items():
            context = ObservationContext(
                state, self.problem, clock, self.optimizer, memory, self.prepared[name], past.get(name)
            )
            value, new = observable.measure(context)
            values |= {f"{name}_{part}": value[part] for part, *_ in observable.parts} or {name: value}
            if observable.initial_past is not None:
                next_past[name] = new
        return {name: jnp.asarray(value) for name, value in values.items()}, next_past

    def initial_past(self) -> dict[str, Any]:
        """The past of the first measurement, of the observables that have one."""
        given = self.observables.items()
        return {name: one.begin(self.problem, self.initial) for name, one in given if one.initial_past is not None}


class _Record(NamedTuple):
    """The last record, the best checkpoints so far, and the past of the observables after and before that record.

    A run that is resumed measures its last point again, with the past from before.
    """

    clock: Array
    values: dict[str, Array]
    state: Any
    checkpoints: dict[str, Checkpoint]
    past: Any
    before: Any


class Loop:
    """Integrates between recording points; `report(done)` is called after each record."""

    def __init__(self, request: Request, *, one_kernel: bool, report: Callable[[Any], None]):
        problem, initial, optimizer = request.problem, request.initial, request.optimizer
        limit = request.divergence_limit * jnp.maximum(1.0, _largest(initial))

        def diverged(state: Any) -> Bool[Array, ""]:
            """Whether an entry exceeds the limit or the cost is not finite; true for NaN as well."""
            grown = ~(_largest(state) <= limit)
            return grown if problem.finite else grown | ~jnp.isfinite(problem.cost(state.matrix))

        self.request, self.report = request, report
        self.stepper = optimizer.stepper(
            problem,
            initial,
            stop=request.stop,
            diverged=diverged,
            key=request.key,
            leaps=request.leaps,
            one_kernel=one_kernel,
            reverse=request.reverse,
        )

    def run(self) -> Trajectory:
        """The whole run, with the records after its end as they are."""
        request, points, optimizer = self.request, self.request.points, self.request.optimizer
        resumed = request.resumed
        if resumed is None:
            resumed = Resumed(request.initial, optimizer.memory(request.problem, request.initial), None, None, {})
        first = self.stepper.init(resumed.state, resumed.memory, points[0])
        carry = first, self._blank(first, resumed)
        indices = jnp.arange(points.shape[0])
        if not request.dense or request.reverse:
            body = jax.checkpoint(self._advance_and_record, prevent_cse=False) if request.reverse else None
            (run, last), records = jax.lax.scan(body or self._advance_and_record, carry, (indices, points))
        elif not request.open_horizon:
            # at the last point it records and rests: a record of its own there would be compiled again
            goals = jnp.concatenate([points[1:], points[-1:]])
            (run, last), records = jax.lax.scan(self._record_and_step, carry, (indices, goals))
        else:
            (run, last), records, made = self._record_batch(carry, indices[:-1], points[1:])
            run = jax.lax.while_loop(lambda r: self.stepper.running(r, points[-1]), self.stepper.step, run)
            last = jax.lax.cond(run.clock > last.clock, lambda: self._record(run, last), lambda: last)
            self.report(points.shape[0])
            records = jax.tree.map(
                lambda many, one: jnp.concatenate([_filled(many, made, one), one[None]]), records, last[:3]
            )
        clock, values, states = records
        final = self.stepper.state(run)
        code, ended, memory = self.stepper.finish(run, points[-1])
        labels = tuple(Label(*label) for name, one in request.observables.items() for label in one.labels(name))
        return Trajectory(
            values=OrderedDict((label.name, values[label.name]) for label in labels),
            steps=clock if optimizer.unit == "steps" else None,
            times=optimizer.time(clock.astype(optimizer.precision(final))),
            code=code,
            ended=ended,
            final=final,
            labels=labels,
            checkpoints=last.checkpoints,
            memory=memory,
            past=last.before,
            states=states,
        )

    def _blank(self, run: Any, resumed: Resumed) -> _Record:
        """Placeholders in the shapes of the first record, and the checkpoints of the run that is resumed."""
        request, state, clock = self.request, self.stepper.state(run), run.clock
        past = request.initial_past() | (resumed.past or {})
        shapes, _ = jax.eval_shape(request.measure, state, self.stepper.memory(run), clock, past)
        values = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        checkpoints = dict(resumed.checkpoints)
        for extreme, name in request.extremes:
            if name not in values or values[name].shape != ():
                raise InputError(f"checkpoint = '{extreme} {name}' is not allowed: {name} is not one number.")
            worst = jnp.full_like(values[name], jnp.inf if extreme == "lowest" else -jnp.inf)
            checkpoints.setdefault(f"{extreme} {name}", Checkpoint(state, clock, worst))
        return _Record(clock, values, state if request.states else None, checkpoints, past, past)

    def _record(self, run: Any, last: _Record) -> _Record:
        """Measures the run where it is."""
        state = self.stepper.state(run)
        values, past = self.request.measure(state, self.stepper.memory(run), run.clock, last.past)
        checkpoints = {}
        for extreme, name in self.request.extremes:
            title, value = f"{extreme} {name}", values[name]
            old = last.checkpoints[title]
            better = value < old.value if extreme == "lowest" else value > old.value
            new = Checkpoint(state, run.clock, value)
            checkpoints[title] = jax.tree.map(lambda a, b, better=better: jnp.where(better, a, b), new, old)
        return _Record(run.clock, values, state if self.request.states else None, checkpoints, past, last.past)

    def _advance_and_record(self, carry: tuple[Any, _Record], point: tuple[Array, Array]) -> Any:
        """Goes to the next point and records it; a run that has ended is not measured again."""
        index, goal = point
        run, last = carry
        moving = self.stepper.running(run, goal) | (index == 0)
        run = self.stepper.advance(run, goal)
        self.report(index + 1)
        last = jax.lax.cond(moving, lambda: self._record(run, last), lambda: last)
        return (run, last), last[:3]

    def _record_and_step(self, carry: tuple[Any, _Record], point: tuple[Array, Array]) -> Any:
        """Records and makes one step: the two share the matrix."""
        index, goal = point
        run, last = carry
        resting = ~self.stepper.running(run, goal)
        new = (run.clock > last.clock) | (index == 0)
        self.report(index + 1)
        run, last = jax.lax.cond(
            new | ~resting, lambda: (self.stepper.step(run, resting), self._record(run, last)), lambda: (run, last)
        )
        return (run, last), last[:3]

    def _record_batch(self, carry: tuple[Any, _Record], indices: Array, goals: Array) -> Any:
        """Records and makes a step at each point, until all runs along the batch axis have ended."""
        axis = self.request.batch_axis
        if axis is None:
            return *jax.lax.scan(self._record_and_step, carry, (indices, goals)), indices.shape[0]
        _, record = jax.eval_shape(self._record_and_step, carry, (indices[0], goals[0]))
        records = jax.tree.map(lambda x: jnp.zeros((indices.shape[0], *x.shape), x.dtype), record)

        def any_running(now: Any) -> Array:
            index, (run, _), _ = now
            more = jax.lax.pmax(self.stepper.running(run, goals[-1]).astype(int), axis) > 0
            return (index < indices.shape[0]) & (more | (index == 0))

        def visit(now: Any) -> Any:
            index, carry, records = now
            carry, record = self._record_and_step(carry, (index, goals[index]))
            return index + 1, carry, jax.tree.map(lambda many, one: many.at[index].set(one), records, record)

        made, carry, records = jax.lax.while_loop(any_running, visit, (indices[0], carry, records))
        return carry, records, made


def _filled(many: Array, made: Any, last: Array) -> Array:
    """Records of which so many were made, the rest as the last one."""
    if isinstance(made, int):
        return many
    index = jnp.arange(many.shape[0]).reshape(-1, *(1,) * last.ndim)
    return jnp.where(index < made, many, last)


def _largest(state: Any) -> Array:
    leaves = jax.tree.leaves(eqx.filter(state.trained(), eqx.is_array))
    return jnp.max(jnp.stack([jnp.max(jnp.abs(leaf)) for leaf in leaves]))
