"""Gradient flow, with and without inertia."""

import abc
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import diffrax
import equinox as eqx
import equinox.internal
import jax
import jax.numpy as jnp
import optimistix
from jaxtyping import Array, Bool, Float, Int, Key, Num

from linnet import _check
from linnet._check import InputError
from linnet.optim.dynamics import Dynamics, Stepper
from linnet.optim.event import Event
from linnet.optim.optimizer import layer_multipliers, optional
from linnet.outcome import Status
from linnet.problems import Problem
from linnet.states import State

_RUNNING = -1


class Flow(Dynamics):
    """An ordinary differential equation for the parameters, by an adaptive Runge-Kutta solver of diffrax.

    The solver steps exactly onto the recording times. The absolute tolerance is atol times the size of the initial
    state: modes that begin small are amplified exponentially, so an absolute number that is fine at scale 1 is wrong at
    1e-8. Events with a root (`loss_below`, `change_below`) end a flow at the time they occur; other conditions are
    checked after each step of the solver. Its memory is the state of the solver and its controller, so that a resumed
    run makes the steps that the uninterrupted run would have made.

    A subclass gives `derivative`, and, where more is integrated than the parameters, `begin`, `integrated`, `state`,
    and `rest`.
    """

    unit: ClassVar[Literal["steps", "time"]] = "time"
    rtol: Float[Array, ""]
    atol: Float[Array, ""]
    solver: diffrax.AbstractAdaptiveSolver[Any]
    max_steps: int = eqx.field(static=True)

    def __init__(self, rtol: Any, atol: Any, solver: diffrax.AbstractAdaptiveSolver[Any] | None, max_steps: int):
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
        """The end of the solver's next step with the state of its controller, the solver's own state, and `rest`."""
        term, zero, begin = self.term(problem, state), jnp.zeros(()), self.begin(state)
        order = self.solver.error_order(term)
        controller = self.controller(state).init(term, zero, zero, begin, None, None, self.solver.func, order)
        solver = self.solver.init(term, zero, zero, begin, None)
        return jax.tree.map(jnp.asarray, (controller, solver, self.rest(begin)))

    def term(self, problem: Problem, like: State) -> Any:
        """The right side of the equation, for diffrax; `like` has the fields that training does not move."""
        return diffrax.ODETerm(lambda t, y, args: self.derivative(problem, y, like))

    @abc.abstractmethod
    def derivative(self, problem: Problem, y: Any, like: State) -> Any:
        """dy/dt of what is integrated."""

    def begin(self, state: Any) -> Any:
        """What is integrated, at the initial state."""
        return state.trained()

    def integrated(self, state: Any, rest: Any) -> Any:
        """What is integrated, from a state and `rest`."""
        return state.trained()

    def state(self, y: Any) -> Any:
        """The trained part of the state in what is integrated."""
        return y

    def rest(self, y: Any) -> Any:
        """What is integrated beside the state."""
        return None

    def controller(self, initial: State) -> diffrax.PIDController:
        """The step size controller, with tolerances relative to the size of the initial state."""
        size = initial.size
        return diffrax.PIDController(rtol=self.rtol, atol=self.atol * jnp.where(jnp.isfinite(size), size, 1.0))

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
        return _SolverSteps(self, problem, initial, stop, diverged, reverse=bool(reverse))


class GradientFlow(Flow):
    """dtheta/dt = -dC/dtheta.

    `weight_decay` mu adds the flow of C + mu/2 |theta|^2, under which imbalances fade as e^{-2 mu t}
    (`optimizers/C5`); `lr_multipliers` m_l, the first layer first: dW_l/dt = -m_l dC/dW_l. `rtol` and `atol` (rtol by
    default) are the solver's tolerances, as `Flow` explains them; `solver` is Dopri8 by default.
    """

    weight_decay: Float[Array, ""] | None  # None where there is none
    lr_multipliers: Float[Array, " depth"] | None

    def __init__(
        self,
        rtol: Any = 1e-10,
        atol: Any = None,
        *,
        solver: diffrax.AbstractAdaptiveSolver[Any] | None = None,
        max_steps: int = 1_000_000,
        weight_decay: Any = 0.0,
        lr_multipliers: Sequence[float] | None = None,
    ):
        super().__init__(rtol, atol, solver, max_steps)
        self.weight_decay = optional(_check.number("weight_decay", weight_decay, least=0))
        self.lr_multipliers = layer_multipliers(lr_multipliers)

    def check(self, problem: Problem, state: State) -> None:
        if (self.weight_decay is not None or self.lr_multipliers is not None) and not state.weighted:
            raise InputError(
                f"{type(state).__name__} has no weights for weight_decay or lr_multipliers: use Weights or Modes."
            )

    def derivative(self, problem: Problem, y: Any, like: State) -> Any:
        """dtheta/dt."""
        moved = eqx.combine(y, like).velocity(problem).trained()
        if self.weight_decay is not None:
            decay = self.weight_decay
            moved = jax.tree.map(lambda v, w: v - decay * w, moved, y)
        return moved if self.lr_multipliers is None else moved.by_layer(self.lr_multipliers)


class InertialFlow(GradientFlow):
    """theta'' + friction theta' = -dC/dtheta: the limit of descent with momentum for small learning rates.

    With SGD's lr and momentum b, steps of sqrt(lr) and friction (1 - b)/sqrt(lr). The imbalance W_1 W_1^T -
    W_2^T W_2 is not conserved, but W_1 W_1'^T - W_1' W_1^T + W_2^T W_2' - W_2'^T W_2 fades as e^{-friction t}
    (`optimizers/C9`). `velocity` is the initial theta', in the shape of the state; 0 if none is given.
    """

    friction: Float[Array, ""]
    velocity: Any

    def __init__(
        self,
        friction: Any,
        *,
        velocity: State | None = None,
        rtol: Any = 1e-10,
        atol: Any = None,
        solver: diffrax.AbstractAdaptiveSolver[Any] | None = None,
        max_steps: int = 1_000_000,
        weight_decay: Any = 0.0,
        lr_multipliers: Sequence[float] | None = None,
    ):
        super().__init__(
            rtol, atol, solver=solver, max_steps=max_steps, weight_decay=weight_decay, lr_multipliers=lr_multipliers
        )
        self.friction = _check.number("friction", friction, least=0)
        if velocity is not None and not isinstance(velocity, State):
            raise InputError(
                f"velocity = {_check.show(velocity)} is not allowed: velocity must have the shape of the state."
            )
        self.velocity = velocity

    def check(self, problem: Problem, state: State) -> None:
        super().check(problem, state)
        if not state.weighted:
            raise InputError(f"{type(state).__name__} has no weights that could have inertia: use Weights or Modes.")
        shapes, wanted = ([x.shape for x in jax.tree.leaves(part)] for part in (self.velocity, state))
        if self.velocity is not None and (type(self.velocity) is not type(state) or shapes != wanted):
            raise InputError(
                f"velocity is a {type(self.velocity).__name__} of shapes {shapes}: it must be like the state."
            )

    def derivative(self, problem: Problem, y: Any, like: State) -> Any:
        state, speed = y
        force = super().derivative(problem, state, like)
        return speed, jax.tree.map(lambda f, v: f - self.friction * v, force, speed)

    def begin(self, state: Any) -> Any:
        weights = state.trained()
        if self.velocity is None:
            return weights, jax.tree.map(jnp.zeros_like, weights)
        speed = jax.tree.unflatten(jax.tree.structure(state), jax.tree.leaves(self.velocity))
        return weights, speed.trained()

    def integrated(self, state: Any, rest: Any) -> Any:
        return state.trained(), rest

    def state(self, y: Any) -> Any:
        return y[0]

    def rest(self, y: Any) -> Any:
        return y[1]


class _Run(NamedTuple):
    """All that is integrated, its time, the end of the solver's next step with its controller's state, the solver's own
    state, the value of the event's root, and the number of the solver's steps.
    """

    integrated: Any
    clock: Array
    controller: tuple[Array, Any]
    solver: Any
    root: Array
    steps: Array
    code: Array


class _SolverSteps(Stepper):
    """Adaptive steps by diffrax's solvers and controller; with diffrax's loop the program is three times as large."""

    def __init__(
        self,
        flow: Flow,
        problem: Problem,
        initial: State,
        stop: Event | None,
        diverged: Callable[[Any], Bool[Array, ""]],
        *,
        reverse: bool,
    ):
        self.flow, self.problem, self.initial, self.stop, self.diverged = flow, problem, initial, stop, diverged
        self.reverse, self.term = reverse, flow.term(problem, initial)
        self.controller: Any = flow.controller(initial)
        self.solver = _ready(flow.solver, self.controller, reverse=reverse)
        self.order = self.solver.error_order(self.term)

    def init(self, state: Any, memory: Any, clock: Num[Array, ""]) -> _Run:
        controller, solver, rest = memory
        integrated = self.flow.integrated(state, rest)
        root = jnp.zeros(()) if self.stop is None or self.stop.root is None else self._root(integrated)
        halt = jnp.asarray(False) if self.stop is None else self.stop(state, self.problem)
        code = jnp.where(halt, Status.CONVERGED.code, _RUNNING)
        return _Run(integrated, clock, controller, solver, root, jnp.asarray(0), code)

    def running(self, run: _Run, goal: Num[Array, ""]) -> Bool[Array, ""]:
        return (run.clock < goal) & (run.code < 0) & (run.steps < self.flow.max_steps)

    def state(self, run: _Run) -> Any:
        return self._state(run.integrated)

    def _state(self, integrated: Any) -> Any:
        return eqx.combine(self.flow.state(integrated), self.initial)

    def memory(self, run: _Run) -> Any:
        return run.controller, run.solver, self.flow.rest(run.integrated)

    def advance(self, run: _Run, goal: Num[Array, ""]) -> _Run:
        return eqx.internal.while_loop(
            lambda now: self.running(now, goal),
            lambda now: self._step(now, goal),
            run,
            max_steps=self.flow.max_steps if self.reverse else None,
            kind="checkpointed" if self.reverse else "lax",
        )

    def _step(self, run: _Run, goal: Array) -> _Run:
        """One step of the solver, accepted or rejected, no further than to the goal."""
        end = jnp.minimum(run.controller[0], goal)
        new, error, dense, solver, result = self.solver.step(
            self.term, run.clock, end, run.integrated, None, run.solver, made_jump=False
        )
        error = jax.tree.map(lambda x: jnp.where(jnp.isnan(x), jnp.inf, x), error)  # a step out of the domain
        accepted, clock, next_end, _, inner, _ = self.controller.adapt_step_size(
            run.clock, end, run.integrated, new, None, error, self.order, run.controller[1]
        )
        integrated, solver = jax.tree.map(
            lambda a, b: jnp.where(accepted, a, b), (new, solver), (run.integrated, run.solver)
        )
        failed = accepted & (result != diffrax.RESULTS.successful)
        code = jnp.where(failed, Status.STALLED.code, _RUNNING)
        moved = _Run(integrated, clock, (next_end, inner), solver, run.root, run.steps + 1, code)
        return self._halted(moved, self.solver.interpolation_cls(t0=run.clock, t1=end, **dense))

    def _halted(self, run: _Run, interpolation: Any) -> _Run:
        """The run after a step, ended where it has diverged or where its event occurs."""
        diverged = self.diverged(self.state(run))
        if self.stop is not None and self.stop.root is None:
            halt = self.stop(self.state(run), self.problem)
            run = run._replace(code=jnp.where(halt, Status.CONVERGED.code, run.code))
        elif self.stop is not None:
            root = self._root(run.integrated)
            halt = (jnp.sign(root) != jnp.sign(run.root)) & ~diverged
            clock, integrated = jax.lax.cond(
                halt, lambda: _crossing(self._root, interpolation), lambda: (run.clock, run.integrated)
            )
            code = jnp.where(halt, Status.CONVERGED.code, run.code)
            run = run._replace(integrated=integrated, clock=clock, root=root, code=code)
        return run._replace(code=jnp.where(diverged, Status.DIVERGED.code, run.code))

    def _root(self, integrated: Any) -> Array:
        assert self.stop is not None
        assert self.stop.root is not None
        return self.stop.root(self._state(integrated), self.problem)

    def finish(self, run: _Run, horizon: Num[Array, ""]) -> tuple[Int[Array, ""], Num[Array, ""], Any]:
        code = jnp.where(run.clock < horizon, Status.STALLED.code, Status.HORIZON.code)
        code = jnp.where(run.code >= 0, run.code, code)
        # an event ends a run inside a step: what the solver knows of the end of that step cannot be used then
        inside = (code == Status.CONVERGED.code) | (code == Status.DIVERGED.code)
        fresh = self.solver.init(self.term, run.clock, run.clock, run.integrated, None)
        solver = jax.tree.map(lambda a, b: jnp.where(inside, a, b), fresh, run.solver)
        return code, run.clock, self.memory(run._replace(solver=solver))


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


def _crossing(root: Any, interpolation: Any) -> tuple[Array, Any]:
    """The time in a step at which the event's root is zero, by Newton from the end, and what is integrated there."""
    found: Any = optimistix.root_find(
        lambda time, _: root(interpolation.evaluate(time)),
        optimistix.Newton(rtol=1e-10, atol=1e-10),
        interpolation.t1,
        options={"lower": interpolation.t0, "upper": interpolation.t1},
        throw=False,
    )
    return found.value, interpolation.evaluate(found.value)
