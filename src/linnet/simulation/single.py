"""One run of one problem: checks the arguments, compiles the program, and runs it."""

import dataclasses
import functools
import itertools
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array

from linnet import _check, observe
from linnet._check import InputError, KeyLike
from linnet._compiler import hurried, inside, unrounded
from linnet.observe import Observable
from linnet.optim import Dynamics, Event
from linnet.problems import Problem
from linnet.record import At, Record, linear
from linnet.simulation.loop import Loop, Request, Resumed
from linnet.states import State, cast
from linnet.trajectory import RESERVED, Trajectory

_PADDING = 2**24  # bytes of records that may be spent on not compiling again for another number of them
_listeners: dict[int, Callable[[int, int], None]] = {}
_tokens = itertools.count(1)
_known_row_bytes: dict[Any, int] = {}

Stop = Event | Callable[[Any, Any], Any]
Observe = Mapping[str, Callable[[Any, Any], Any] | str] | Sequence[Observable | str]


def run_one(
    problem: Problem,
    state: State,
    optimizer: Dynamics,
    *,
    steps: Any,
    time: Any,
    observe: Observe,
    record: Record | None,
    stop: Stop | None,
    checkpoint: str | Sequence[str],
    divergence_limit: float,
    key: KeyLike | None,
    progress: Callable[[int, int], None] | None,
    resume_from: Trajectory | None,
    differentiable: bool,
    batch_axis: str | None = None,
) -> Trajectory:
    """`simulate` for one problem.

    `batch_axis` is the name of an axis of `jax.vmap` along which runs have different numbers of steps: the loop ends
    when all of them have ended, so that one program serves runs of any length that it has records for.
    """
    check_network(problem, state, optimizer)
    event = _event(problem, state, stop)
    if progress is not None and not callable(progress):
        raise InputError(f"progress = {_check.show(progress)} is not allowed: it must be a function of (done, total).")
    points, gap = recorded(optimizer, steps, time, record)
    observed = observables(observe)
    extremes, states = _checkpoints(checkpoint, observed)
    if _check.flag("differentiable", differentiable) and _check.traced(points):
        raise InputError("differentiable = True is not allowed where the number of steps is traced: give a known one.")
    random: Any = None
    if key is not None:
        random = _check.key("key", key)
    elif optimizer.random:
        raise InputError(f"key is missing: {type(optimizer).__name__} draws noise; give key=jax.random.key(seed).")
    limit = _check.number("divergence_limit", divergence_limit, above=1)
    precision = optimizer.precision(state)
    state, problem, optimizer = cast(state, precision), cast(problem, precision), cast(optimizer, precision)
    resumed = None
    if resume_from is not None:
        resumed = _resumed(resume_from, problem, state, optimizer, observed, extremes, states)
    request = Request(
        problem=problem,
        initial=state,
        optimizer=optimizer,
        resumed=resumed,
        points=_array(points if resumed is None else resumed.clock + points),
        observables=OrderedDict(observed),  # a plain dict would come back sorted
        prepared={name: one.prepare(problem, state) for name, one in observed.items()},
        stop=event,
        divergence_limit=limit,
        key=random,
        dense=optimizer.unit == "steps" and gap <= 1,
        open_horizon=_check.traced(points),  # a horizon that is traced may lie beyond the others
        # a small limit, or the domain of a cost, may well be left and entered again between two checks
        leaps=problem.finite and not _check.traced(divergence_limit) and float(divergence_limit) >= 1e6,
        extremes=extremes,
        states=states,
        reverse=max(1, gap) if differentiable else 0,
        batch_axis=batch_axis,
    )
    _check_memory(request)
    run = _execute(request, len(points), progress)
    if not _check.traced(run):
        optimizer.warn(run.memory)
    return run if resume_from is None else resume_from.followed_by(run)


def _row_bytes(request: Request) -> int:
    """The bytes of a record; computed once for each set of shapes, because that takes a millisecond."""
    leaves, structure = jax.tree.flatten(
        (request.problem, request.initial, request.optimizer, request.observables, request.prepared, request.states)
    )
    known = structure, tuple((x.shape, x.dtype) if eqx.is_array(x) else x for x in leaves)
    if known not in _known_row_bytes:
        if len(_known_row_bytes) >= 1000:
            _known_row_bytes.clear()
        memory = eqx.filter_eval_shape(request.optimizer.memory, request.problem, request.initial)
        values, _ = eqx.filter_eval_shape(
            request.measure, request.initial, memory, request.points[0], request.initial_past()
        )
        stored = (values, request.initial if request.states else None)
        _known_row_bytes[known] = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(stored))
    return _known_row_bytes[known]


def _check_memory(request: Request) -> None:
    """Refuses records that memory cannot hold: they are there twice, in the program and in the trajectory."""
    count = request.points.shape[0]
    if not _check.traced(request):
        size = _row_bytes(request)
        what = f"{count:,} records of {size:,} bytes" + " with their states" * request.states
        _check.fits("record", f"{count:,} points", count * size / 4, what)


def _padded(request: Request) -> Request:
    """The last point repeated, so that other numbers of records find the same program."""
    count = request.points.shape[0]
    more = max(16, 1 << (count - 1).bit_length()) - count
    if more * _row_bytes(request) > _PADDING:
        return request
    points = np.pad(np.asarray(request.points), (0, more), mode="edge")
    return dataclasses.replace(request, points=_array(points))


def _execute(request: Request, count: int, progress: Callable[[int, int], None] | None) -> Trajectory:
    """Runs the compiled program; listeners are called from inside it by their token."""
    token = next(_tokens) if progress is not None else 0
    if progress is not None:
        if _check.traced(request):
            raise InputError("progress is not allowed in a run that JAX is tracing: call simulate without it there.")
        _listeners[token] = _in_order(progress)
    try:
        request = request if _check.traced(request) else _padded(request)
        # noise runs a tenth slower in kernels that were compiled in a hurry
        program = _program(hurry=request.key is None and not inside(request))
        with unrounded():
            run = program(request, progress is not None, *(_array(np.asarray(x)) for x in (token, count)))
        if progress is not None:
            jax.block_until_ready(run.code)
            jax.effects_barrier()
    finally:
        _listeners.pop(token, None)
    return run.first(count) if _check.traced(run) else run.trimmed()


@functools.cache
def _program(*, hurry: bool) -> Callable[..., Trajectory]:
    compiled: Any = eqx.filter_jit  # which hands options on, as its types do not say
    run = functools.partial(_run, hurry)
    return compiled(run, compiler_options=hurried()) if hurry else compiled(run)


def _run(hurry: bool, request: Request, reports: bool, token: Array, count: Array) -> Trajectory:
    def report(done: Any) -> None:
        if reports:
            jax.debug.callback(_report, token, done, count)

    run = Loop(request, one_kernel=hurry, report=report).run()
    if request.reverse:
        return run
    bound = jax.tree.map(lambda x: _forward_only.bind(x) if eqx.is_inexact_array(x) else x, run)
    return bound if run.steps is None else dataclasses.replace(bound, times=run.times)


def _refuse(cotangent: Any, *primals: Any) -> Any:
    raise InputError(
        "derivatives cannot go backwards through this run: give simulate(..., differentiable=True), or use forward "
        "mode, jax.jvp or jax.jacfwd."
    )


# The identity, which cannot be transposed: loops without a bound have no short message of their own.
_forward_only = jax.extend.core.Primitive("forward_only")
_forward_only.def_impl(lambda x: x)
_forward_only.def_abstract_eval(lambda x: x)
mlir.register_lowering(_forward_only, lambda context, x: [x])
batching.defvectorized(_forward_only)
ad.deflinear2(_forward_only, _refuse)


def _array(numbers: Any) -> Array:
    return jnp.asarray(numbers, dtype=numbers.dtype)  # without its type JAX would compile a program for every shape


def _in_order(progress: Callable[[int, int], None]) -> Callable[[int, int], None]:
    """Reports each record once, and no repetition of the last one."""
    reported = 0

    def listener(done: int, total: int) -> None:
        nonlocal reported
        if reported < done <= total:
            reported = done
            progress(done, total)

    return listener


def _report(token: Any, done: Any, total: Any) -> None:
    listener = _listeners.get(int(token))
    if listener is not None:
        listener(int(done), int(total))


def check_network(problem: Any, state: Any, optimizer: Any) -> None:
    """Raises `InputError` for a state that the optimizer cannot train on the problem."""
    if not isinstance(problem, Problem):
        raise InputError(f"problem = {_check.show(problem)} is not allowed: use a problem such as factorization(M).")
    if not isinstance(state, State):
        raise InputError(f"state = {_check.show(state)} is not allowed: use Weights, Modes or EndToEnd.")
    if not isinstance(optimizer, Dynamics):
        raise InputError(f"optimizer = {_check.show(optimizer)} is not allowed: use an optimizer such as SGD(lr=0.1).")
    shape = jax.eval_shape(lambda s: s.matrix, state).shape
    if shape != problem.shape:
        raise InputError(f"the state's matrix has shape {shape}: it must have the problem's shape {problem.shape}.")
    if state.rotated and not optimizer.rotation_equivariant:
        raise InputError(
            f"{type(optimizer).__name__} does not treat all neurons alike, and this network is compressed: give every "
            "neuron, for example gaussian(key, problem, (width,), variance)."
        )
    optimizer.check(problem, state)


def _event(problem: Problem, state: State, stop: Any) -> Event | None:
    """The event of `stop`, which may be a plain condition."""
    if stop is None:
        return None
    if not isinstance(stop, Event) and not callable(stop):
        raise InputError(
            f"stop = {_check.show(stop)} is not allowed: stop must be an Event or a function of (state, problem)."
        )
    event = stop if isinstance(stop, Event) else Event(stop)
    event.check(problem, state)
    return event


def recorded(optimizer: Dynamics, steps: Any, time: Any, record: Any) -> tuple[np.ndarray | Array, int]:
    """The steps or times to record, from the beginning of this run, and the most steps between two of them."""
    if record is not None and not isinstance(record, Record):
        raise InputError(f"record = {_check.show(record)} is not allowed: use every, at, linear or logarithmic.")
    given, other = (steps, time) if optimizer.unit == "steps" else (time, steps)
    if given is None or other is not None:
        unit, wrong = ("steps", "time") if optimizer.unit == "steps" else ("time", "steps")
        raise InputError(f"{type(optimizer).__name__} runs in {unit}: give {unit}=..., not {wrong}.")
    if optimizer.unit == "time":
        horizon = _check.real("time", time, above=0)
        return (record or linear(201)).points(horizon, discrete=False), 1
    if _check.traced(steps):
        if not isinstance(record, At):
            raise InputError(
                "record is missing: where the number of steps is traced, give the steps to record by record=at(...)."
            )
        known = record.points(max(record.where), discrete=True)
        return jnp.append(jnp.minimum(known, steps), steps), int(np.max(np.diff(known), initial=0))
    count = _check.integer("steps", steps, least=1, most=10**15)
    points = (record or linear(min(count, 1000) + 1)).points(count, discrete=True)
    return points, int(np.max(np.diff(points)))


def _resumed(
    resume_from: Any,
    problem: Problem,
    state: State,
    optimizer: Dynamics,
    observed: Mapping[str, Observable],
    extremes: Sequence[tuple[str, str]],
    states: bool,
) -> Resumed:
    """The end of `resume_from`, if it is the same run."""
    if not isinstance(resume_from, Trajectory):
        raise InputError(
            f"resume_from = {_check.show(resume_from)} is not allowed: give a run, what simulate returned."
        )
    if jnp.ndim(resume_from.code) != 0:
        raise InputError("resume_from is a batch of runs: call simulate under jax.vmap over its runs.")
    if (resume_from.steps is None) != (optimizer.unit == "time"):
        raise InputError(
            f"resume_from is not a run of this optimizer: {type(optimizer).__name__} runs in {optimizer.unit}."
        )
    for what, here, there in (
        (
            "observe",
            {label for name, one in observed.items() for label, *_ in one.labels(name)},
            set(resume_from.values),
        ),
        ("checkpoint", {f"{extreme} {name}" for extreme, name in extremes}, set(resume_from.checkpoints)),
        ("checkpoint", {"states"} if states else set(), set() if resume_from.states is None else {"states"}),
    ):
        if here != there:
            raise InputError(
                f"{what} asks for {_listed(here)} and resume_from has {_listed(there)}: ask for the same as before."
            )
    if _shapes(resume_from.final) != _shapes(state):
        raise InputError("resume_from ended in a state of other type or shape: give the state that it began with.")
    if _shapes(resume_from.memory) != _shapes(eqx.filter_eval_shape(optimizer.memory, problem, state)):
        raise InputError(
            f"resume_from does not have the memory of {type(optimizer).__name__}: give the optimizer that it had."
        )
    clock = resume_from.times if resume_from.steps is None else resume_from.steps
    last = clock[-1] if _check.traced(clock) else np.asarray(clock)[-1]
    return Resumed(resume_from.final, resume_from.memory, last, resume_from.past, resume_from.checkpoints)


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


def _shapes(tree: Any) -> Any:
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves]


def _checkpoints(checkpoint: Any, observed: Mapping[str, Observable]) -> tuple[tuple[tuple[str, str], ...], bool]:
    """The extremes whose states are stored, and whether the states of all records are."""
    titles = [checkpoint] if isinstance(checkpoint, str) else list(checkpoint)
    extremes = []
    for title in titles:
        if title == "states":
            continue
        extreme, _, name = str(title).partition(" ")
        if extreme not in ("lowest", "highest") or name not in observed:
            raise InputError(
                f"checkpoint = {_check.show(title)} is not allowed: give states, or lowest or highest and one of "
                f"{', '.join(observed)}."
            )
        extremes.append((extreme, name))
    return tuple(extremes), "states" in titles


def observables(given: Any) -> dict[str, Observable]:
    """What to observe, by name."""
    if isinstance(given, str) or callable(given):
        given = [given]
    if not isinstance(given, Mapping | Sequence):
        raise InputError(f"observe = {_check.show(given)} is not allowed: give a list of names or a dict of functions.")
    if not isinstance(given, Mapping):
        given = _named(given)
    out: dict[str, Observable] = {}
    for name, item in given.items():
        if name in RESERVED:
            raise InputError(f"observe[{name!r}] is not allowed: {', '.join(RESERVED)} are the dataset's own.")
        if isinstance(item, str):
            item = observe.named(item)
        if not callable(item):
            raise InputError(f"observe[{name!r}] = {_check.show(item)} is not allowed: give a function or a name.")
        out[name] = item if isinstance(item, Observable) else Observable.from_function(name, item)
    labels = [label for name, one in out.items() for label, *_ in one.labels(name)]
    if twice := [label for label in labels if labels.count(label) > 1]:
        raise InputError(f"observe has {twice[0]!r} twice, once as a part of another: give one of them another name.")
    return out


def _named(given: Sequence[Any]) -> dict[str, Any]:
    """Observables by name: functions by theirs, nameless ones as "lambda"; a name that is taken gets a number."""
    out: dict[str, Any] = {}
    for item in given:
        if isinstance(item, str | Observable) or not callable(item):
            out[item if isinstance(item, str) else getattr(item, "name", repr(item))] = item
            continue
        function = getattr(item, "func", item)  # of functools.partial
        name = getattr(function, "__name__", type(item).__name__).strip("<>")
        numbered = (f"{name}_{number}" for number in itertools.count(2))
        out[name if name not in out else next(one for one in numbered if one not in out)] = item
    return out
