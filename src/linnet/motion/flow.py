"""Gradient flow."""

from typing import Any, ClassVar, Literal

import diffrax
import equinox as eqx
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
        """One call of the solver, with an event for each way to end."""
        problem, stop, points = task.problem, task.stop, task.points
        halts = [task.spoilt]
        already = jnp.asarray(False)
        if stop is not None:
            already = jnp.asarray(stop(task.state, problem), dtype=bool)
            level = getattr(stop, "level", None)  # a real number that falls through zero is located inside a step
            halts.append(
                (lambda y: level(y, problem)) if level else lambda y: jnp.asarray(stop(y, problem), dtype=bool)
            )
        solution = self._solve(task, halts)
        hit = solution.event_mask
        final = jax.tree.map(lambda start, x: jnp.where(already, start, x[0]), task.state, solution.ys[2])
        end = jnp.where(already, points[0], solution.ts[2][0])
        values, states = self._records(task, solution.ys, final, end)
        task.tell(jnp.searchsorted(points, end) + 1)
        code = jnp.where(solution.result == diffrax.RESULTS.successful, Status.HORIZON.code, Status.STALLED.code)
        if stop is not None:
            code = jnp.where(hit[1] | already, Status.CONVERGED.code, code)
        code = jnp.where(hit[0], Status.DIVERGED.code, code)
        clock = jnp.minimum(points, end)
        # an event ends the run inside a step: what the solver knows of the step's end is of no use then
        cut = jnp.any(jnp.stack(hit)) | already
        blank = self.solver.init(_term(problem), end, end, final, None)
        inside = jax.tree.map(lambda a, b: jnp.where(cut, a, b), blank, solution.solver_state)
        memory = (solution.controller_state.inner_state, inside)
        kept = _extremes(task, values, states, clock)
        return Outcome(values, clock, code, end, final, memory, kept, states if task.states else None)

    def _solve(self, task: Task, halts: list[Any]) -> Any:
        """The `diffrax.Solution`: records before the horizon, the record there, and the final state."""
        points, (pace, inside) = task.points, task.memory

        def see(time: Array, current: Any) -> Any:
            task.tell(jnp.searchsorted(points, time) + 1)
            return _record(task, current)

        def before(time: Array, current: Any, _: Any) -> Any:
            """Repetitions of the last point cost nothing."""
            blank = jax.tree.map(jnp.zeros_like, jax.eval_shape(see, time, current))
            return jax.lax.cond(time < points[-1], lambda: see(time, current), lambda: blank)

        return diffrax.diffeqsolve(
            _term(task.problem),
            self.solver,
            t0=points[0],
            t1=points[-1],
            dt0=None,
            y0=task.state,
            saveat=diffrax.SaveAt(
                subs=[
                    diffrax.SubSaveAt(ts=points, fn=before),
                    diffrax.SubSaveAt(ts=points[-1:], fn=lambda t, y, args: see(t, y)),
                    diffrax.SubSaveAt(t1=True),
                ],
                solver_state=True,
                controller_state=True,
            ),
            stepsize_controller=diffrax.ClipStepSizeController(
                _Paced(self._controller(task.start), pace), step_ts=points
            ),
            event=diffrax.Event(
                [lambda t, y, args, halt=halt, **kwargs: halt(y) for halt in halts],
                root_finder=optimistix.Newton(rtol=1e-10, atol=1e-10),
            ),
            max_steps=self.max_steps,
            throw=False,
            solver_state=inside,
            adjoint=diffrax.RecursiveCheckpointAdjoint() if task.reverse else diffrax.ForwardMode(),
        )

    def _records(self, task: Task, seen: Any, final: Any, end: Array) -> Any:
        """The records in one piece; those that the run did not reach are of its end."""
        points = task.points
        last = points == points[-1]
        missing = (points > end) | (end <= points[0])  # diffrax leaves these at infinity

        def along(flags: Array, many: Array) -> Array:
            return flags.reshape((-1,) + (1,) * (many.ndim - 1))

        return jax.tree.map(
            lambda many, one, at_end: jnp.where(
                along(missing, many), at_end, jnp.where(along(last, many), one[0], many)
            ),
            seen[0],
            seen[1],
            _record(task, final),
        )


class _Paced(diffrax.AbstractAdaptiveStepSizeController[Any, Any]):
    """A controller whose state tells where the next step would end, so that another solve can begin with that step."""

    controller: diffrax.PIDController
    pace: tuple[Array, Any]
    rtol: Any
    atol: Any
    norm: Any

    def __init__(self, controller: diffrax.PIDController, pace: tuple[Array, Any]):
        self.controller, self.pace = controller, pace
        self.rtol, self.atol, self.norm = controller.rtol, controller.atol, controller.norm

    def wrap(self, direction: Any) -> "_Paced":
        return _Paced(self.controller.wrap(direction), self.pace)

    def init(
        self, terms: Any, t0: Any, t1: Any, y0: Any, dt0: Any, args: Any, func: Any, error_order: Any
    ) -> tuple[Any, Any]:
        return self.pace[0], self.pace

    def adapt_step_size(
        self, t0: Any, t1: Any, y0: Any, y1_candidate: Any, args: Any, y_error: Any, error_order: Any, pace: Any
    ) -> Any:
        keep, here, there, jump, inner, result = self.controller.adapt_step_size(
            t0, t1, y0, y1_candidate, args, y_error, error_order, pace[1]
        )
        return keep, here, there, jump, (there, inner), result


def _term(problem: Problem) -> Any:
    return diffrax.ODETerm(lambda t, y, args: y.velocity(problem))


def _record(task: Task, state: Any) -> tuple[dict[str, Array], Any]:
    return task.look(state), state if task.states or task.keeps else None


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
