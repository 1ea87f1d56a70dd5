"""One run of one problem: what is asked for is checked, compiled and made."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Key

from linnet import _check, observe
from linnet._check import InputError
from linnet._compiler import hurried, inside, unrounded
from linnet.motion import Motion, Task
from linnet.observe import Observable, When
from linnet.outcome import Kept
from linnet.problems import Problem
from linnet.record import At, Record, linear
from linnet.states import State, cast
from linnet.trajectory import RESERVED, Label, Trajectory

_PADDING = 2**24  # bytes of records that may be spent on not compiling again for another number of them
_listeners: dict[int, Callable[[int, int], None]] = {}
_tokens = itertools.count(1)
_row_bytes: dict[Any, int] = {}

Stop = Callable[[Any, Any], Any]
Observe = Mapping[str, Callable[[Any, Any], Any] | str] | Sequence[Observable | str]


def run_one(
    problem: Problem,
    state: State,
    motion: Motion,
    *,
    steps: Any,
    time: Any,
    observe: Observe,
    record: Record | None,
    stop: Stop | None,
    keep: str | Sequence[str],
    blowup: float,
    key: Key[Array, ""] | None,
    progress: Callable[[int, int], None] | None,
    after: Trajectory | None,
    differentiable: bool,
    together: str | None = None,
) -> Trajectory:
    """What `simulate` does with one problem.

    `together` is the name of an axis of `jax.vmap` along which runs have numbers of steps of their own: where all have
    ended the loop does, so that one program serves runs of any length that it has records for.
    """
    check_network(problem, state, motion)
    _check_functions(problem, state, stop, progress)
    points, gap = recorded(motion, steps, time, record)
    looks = observables(observe)
    keeps, states = _keeps(keep, looks, problem, state, motion)
    if _check.flag("differentiable", differentiable) and _check.traced(points):
        raise InputError("differentiable = True is not allowed where the number of steps is traced: give a known one.")
    if key is not None:
        _check.key("key", key)
    elif motion.random:
        raise InputError(f"key is missing: {type(motion).__name__} draws noise; give key=jax.random.key(seed).")
    limit = _check.number("blowup", blowup, above=1)
    precision = motion.precision(state)
    state, problem, motion = cast(state, precision), cast(problem, precision), cast(motion, precision)
    before = None if after is None else _before(after, problem, state, motion, looks, keeps, states)
    order = _Order(
        problem,
        state,
        motion,
        before,
        _array(points if before is None else before.clock + points),
        looks,
        {name: look.prepare(problem, state) for name, look in looks.items()},
        stop,
        limit,
        key,
        dense=gap <= 1,
        far=_check.traced(points),  # a horizon that is traced may lie beyond the others
        # a small limit, or the domain of a cost, may well be left and entered again between two looks
        leaps=problem.finite and not _check.traced(blowup) and float(blowup) >= 1e6,
        keeps=keeps,
        states=states,
        reverse=max(1, gap) if differentiable else 0,
        together=together,
    )
    order.fits()
    return _go(order, len(points), progress, after)


class _Before(NamedTuple):
    """Where a run that goes on was left."""

    state: Any
    memory: Any
    clock: Any
    past: Any
    kept: dict[str, Kept]


class _Order(eqx.Module):
    """Everything that the compiled program is given; what is not an array is static."""

    problem: Problem
    state: Any
    motion: Motion
    before: _Before | None
    points: Array
    looks: dict[str, Observable]
    prepared: dict[str, Any]
    stop: Stop | None
    limit: Array
    key: Key[Array, ""] | None
    dense: bool
    far: bool
    leaps: bool
    keeps: tuple[tuple[str, str], ...]
    states: bool
    reverse: int
    together: str | None

    def look(self, state: Any, memory: Any, clock: Any, past: Any) -> tuple[dict[str, Array], dict[str, Any]]:
        """What is recorded of a state, and what the observables remember of it."""
        values: dict[str, Any] = {}
        kept: dict[str, Any] = {}
        for name, see in self.looks.items():
            moment = When(clock, self.motion, memory)
            seen, new = see.look(state, self.problem, self.prepared[name], moment, past.get(name))
            values |= {f"{name}_{part}": seen[part] for part, *_ in see.parts} if see.parts else {name: seen}
            if see.past is not None:
                kept[name] = new
        return {name: jnp.asarray(value) for name, value in values.items()}, kept

    def past(self) -> dict[str, Any]:
        """What the observables remember before their first look."""
        looks = self.looks.items()
        return {name: see.begin(self.problem, self.state) for name, see in looks if see.past is not None}

    def row(self) -> int:
        """The bytes of a record; asked once for each set of shapes, because asking costs a millisecond."""
        leaves, structure = jax.tree.flatten(
            (self.problem, self.state, self.motion, self.looks, self.prepared, self.states)
        )
        known = structure, tuple((x.shape, x.dtype) if eqx.is_array(x) else x for x in leaves)
        if known not in _row_bytes:
            if len(_row_bytes) >= 1000:
                _row_bytes.clear()
            memory = eqx.filter_eval_shape(self.motion.memory, self.problem, self.state)
            values, _ = eqx.filter_eval_shape(self.look, self.state, memory, self.points[0], self.past())
            seen = (values, self.state if self.states else None)
            _row_bytes[known] = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(seen))
        return _row_bytes[known]

    def fits(self) -> None:
        """Refuses records that memory cannot hold: they are there twice, in the program and in the trajectory."""
        count = self.points.shape[0]
        if not _check.traced(self):
            what = f"{count:,} records of {self.row():,} bytes" + " with their states" * self.states
            _check.fits("record", f"{count:,} points", count * self.row() / 4, what)

    def padded(self) -> "_Order":
        """The last point repeated, so that other numbers of records find the same program."""
        count = self.points.shape[0]
        more = max(16, 1 << (count - 1).bit_length()) - count
        if more * self.row() > _PADDING:
            return self
        points = np.pad(np.asarray(self.points), (0, more), mode="edge")
        return dataclasses.replace(self, points=_array(points))


def _go(order: _Order, count: int, progress: Callable[[int, int], None] | None, after: Trajectory | None) -> Trajectory:
    """Runs the compiled program; listeners are called from inside it by their token."""
    token = next(_tokens) if progress is not None else 0
    if progress is not None:
        if _check.traced(order):
            raise InputError("progress is not allowed in a run that JAX is tracing: call simulate without it there.")
        _listeners[token] = _in_order(progress)
    try:
        order = order if _check.traced(order) else order.padded()
        # noise runs a tenth slower in kernels that were compiled in a hurry
        program = _program(hurry=order.key is None and not inside(order))
        with unrounded():
            run = program(order, progress is not None, *(_array(np.asarray(x)) for x in (token, count)))
        if progress is not None:
            jax.block_until_ready(run.code)
            jax.effects_barrier()
    finally:
        _listeners.pop(token, None)
    run = run.first(count) if _check.traced(run) else run.trimmed()
    return run if after is None else after.followed_by(run)


@functools.cache
def _program(*, hurry: bool) -> Callable[..., Trajectory]:
    compiled: Any = eqx.filter_jit  # which hands options on, as its types do not say
    run = functools.partial(_run, hurry)
    return compiled(run, compiler_options=hurried()) if hurry else compiled(run)


def _run(hurry: bool, order: _Order, report: bool, token: Array, count: Array) -> Trajectory:
    problem, motion = order.problem, order.motion
    limit = order.limit * jnp.maximum(1.0, _largest(order.state))

    def spoilt(state: Any) -> Array:
        """Whether the state has outgrown the limit or its cost is lost; true for NaN as well."""
        grown = ~(_largest(state) <= limit)
        return grown if problem.finite else grown | ~jnp.isfinite(problem.cost(state.matrix))

    def tell(done: Any) -> None:
        if report:
            jax.debug.callback(_tell, token, done, count)

    before = order.before
    out = motion.run(
        Task(
            problem=problem,
            start=order.state,
            state=order.state if before is None else before.state,
            memory=motion.memory(problem, order.state) if before is None else before.memory,
            points=order.points,
            dense=order.dense,
            far=order.far,
            look=order.look,
            past=order.past() | ({} if before is None else before.past or {}),
            states=order.states,
            stop=order.stop,
            spoilt=spoilt,
            leaps=order.leaps,
            hurry=hurry,
            keeps=order.keeps,
            kept={} if before is None else before.kept,
            reverse=order.reverse,
            together=order.together,
            key=order.key,
            tell=tell,
        )
    )
    if not order.reverse:
        out = jax.tree.map(lambda x: _forward_only.bind(x) if eqx.is_inexact_array(x) else x, out)
    return Trajectory(
        values=out.values,
        steps=out.clock if motion.unit == "steps" else None,
        times=motion.time(out.clock.astype(motion.precision(out.final))),
        code=out.code,
        ended=out.ended,
        final=out.final,
        labels=tuple(Label(*label) for name, see in order.looks.items() for label in see.labels(name)),
        kept=out.kept,
        memory=out.memory,
        past=out.past,
        states=out.states,
    )


def _refuse(cotangent: Any, *primals: Any) -> Any:
    raise InputError(
        "derivatives cannot go backwards through this run: give simulate(..., differentiable=True), or use forward "
        "mode, jax.jvp or jax.jacfwd."
    )


# The identity, which cannot be transposed: loops without a bound would say so in many more words.
_forward_only = jax.extend.core.Primitive("forward_only")
_forward_only.def_impl(lambda x: x)
_forward_only.def_abstract_eval(lambda x: x)
mlir.register_lowering(_forward_only, lambda context, x: [x])
batching.defvectorized(_forward_only)
ad.deflinear2(_forward_only, _refuse)


def _array(numbers: Any) -> Array:
    return jnp.asarray(numbers, dtype=numbers.dtype)  # without its type JAX would compile a program for every shape


def _largest(state: Any) -> Array:
    moving = jax.tree.leaves(eqx.filter(state.trained(), eqx.is_array))
    return jnp.max(jnp.stack([jnp.max(jnp.abs(leaf)) for leaf in moving]))


def _in_order(progress: Callable[[int, int], None]) -> Callable[[int, int], None]:
    """Tells each record once: repetitions of the last point are none."""
    told = 0

    def listener(done: int, total: int) -> None:
        nonlocal told
        if told < done <= total:
            told = done
            progress(done, total)

    return listener


def _tell(token: Any, done: Any, total: Any) -> None:
    listener = _listeners.get(int(token))
    if listener is not None:
        listener(int(done), int(total))


def check_network(problem: Any, state: Any, motion: Any) -> None:
    """Refuses what cannot move together."""
    if not isinstance(problem, Problem):
        raise InputError(f"problem = {_check.show(problem)} is not allowed: use a problem such as factorisation(M).")
    if not isinstance(state, State):
        raise InputError(f"state = {_check.show(state)} is not allowed: use Weights, Modes or EndToEnd.")
    if not isinstance(motion, Motion):
        raise InputError(
            f"motion = {_check.show(motion)} is not allowed: use a motion such as GradientDescent(lr=0.1)."
        )
    shape = jax.eval_shape(lambda s: s.matrix, state).shape
    if shape != problem.shape:
        raise InputError(f"the state's matrix has shape {shape}: it must have the problem's shape {problem.shape}.")
    if state.turned and not motion.isotropic:
        raise InputError(
            f"{type(motion).__name__} does not treat all neurons alike, and this network is compressed: give every "
            "neuron, for example gaussian(key, problem, (width,), variance)."
        )
    motion.check(problem, state)


def _check_functions(problem: Problem, state: State, stop: Any, progress: Any) -> None:
    if stop is not None and not callable(stop):
        raise InputError(f"stop = {_check.show(stop)} is not allowed: stop must be a function of (state, problem).")
    if stop is not None:
        with _check.traceable("stop"):
            answer = jax.eval_shape(lambda s: jnp.asarray(stop(s, problem)), state)
        if answer.shape != () or answer.dtype != bool:
            raise InputError(f"stop returns {answer.dtype} of shape {answer.shape}: it must return one boolean.")
    if progress is not None and not callable(progress):
        raise InputError(f"progress = {_check.show(progress)} is not allowed: it must be a function of (done, total).")


def recorded(motion: Motion, steps: Any, time: Any, record: Any) -> tuple[np.ndarray | Array, int]:
    """Where to look, from the beginning of this run, and the most steps between two points."""
    if record is not None and not isinstance(record, Record):
        raise InputError(f"record = {_check.show(record)} is not allowed: use every, at, linear or logarithmic.")
    given, other = (steps, time) if motion.unit == "steps" else (time, steps)
    if given is None or other is not None:
        unit, wrong = ("steps", "time") if motion.unit == "steps" else ("time", "steps")
        raise InputError(f"{type(motion).__name__} runs in {unit}: give {unit}=..., not {wrong}.")
    if motion.unit == "time":
        horizon = _check.real("time", time, above=0)
        return (record or linear(201)).points(horizon, discrete=False), 1
    if _check.traced(steps):
        if not isinstance(record, At):
            raise InputError(
                "record is missing: where the number of steps is traced, say where to look by record=at(...)."
            )
        known = record.points(max(record.where), discrete=True)
        return jnp.append(jnp.minimum(known, steps), steps), int(np.max(np.diff(known), initial=0))
    count = _check.integer("steps", steps, least=1, most=10**15)
    points = (record or linear(min(count, 1000) + 1)).points(count, discrete=True)
    return points, int(np.max(np.diff(points)))


def _before(
    after: Any,
    problem: Problem,
    state: State,
    motion: Motion,
    looks: Mapping[str, Observable],
    keeps: Sequence[tuple[str, str]],
    states: bool,
) -> _Before:
    """Where `after` was left, if it is the same run that goes on."""
    if not isinstance(after, Trajectory):
        raise InputError(f"after = {_check.show(after)} is not allowed: give a run, what simulate returned.")
    if jnp.ndim(after.code) != 0:
        raise InputError("after is a batch of runs: call simulate under jax.vmap over its runs.")
    if (after.steps is None) != (motion.unit == "time"):
        raise InputError(f"after is not a run of this motion: {type(motion).__name__} runs in {motion.unit}.")
    for what, here, there in (
        ("observe", {label for name, look in looks.items() for label, *_ in look.labels(name)}, set(after.values)),
        ("keep", {f"{how} {name}" for how, name in keeps}, set(after.kept)),
        ("keep", {"states"} if states else set(), set() if after.states is None else {"states"}),
    ):
        if here != there:
            raise InputError(
                f"{what} asks for {_listed(here)} and after has {_listed(there)}: ask for the same as before."
            )
    if _shapes(after.final) != _shapes(state):
        raise InputError("after ended in a state of other type or shape: give the state that it began with.")
    if _shapes(after.memory) != _shapes(eqx.filter_eval_shape(motion.memory, problem, state)):
        raise InputError(f"after does not have the memory of {type(motion).__name__}: give the motion that it had.")
    clock = after.times if after.steps is None else after.steps
    last = clock[-1] if _check.traced(clock) else np.asarray(clock)[-1]
    return _Before(after.final, after.memory, last, after.past, after.kept)


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


def _shapes(tree: Any) -> Any:
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves]


def _keeps(
    keep: Any, looks: Mapping[str, Observable], problem: Problem, state: State, motion: Motion
) -> tuple[tuple[tuple[str, str], ...], bool]:
    """The records whose states are kept, and whether those of all are."""
    out = []
    titles = [keep] if isinstance(keep, str) else list(keep)
    for title in titles:
        if title == "states":
            continue
        how, _, name = str(title).partition(" ")
        if how not in ("lowest", "highest") or name not in looks:
            raise InputError(
                f"keep = {_check.show(title)} is not allowed: give states, or lowest or highest and one of "
                f"{', '.join(looks)}."
            )
        memory = eqx.filter_eval_shape(motion.memory, problem, state)
        see = looks[name]
        seen = eqx.filter_eval_shape(lambda s, m, see=see: _value(see, s, problem, motion, m), state, memory)
        if see.parts or jnp.shape(seen) != ():
            raise InputError(f"keep = {title!r} is not allowed: {name} is not one number.")
        out.append((how, name))
    return tuple(out), "states" in titles


def _value(look: Observable, state: Any, problem: Problem, motion: Motion, memory: Any) -> Any:
    """What an observable sees at the start."""
    moment = When(jnp.zeros((), jnp.int64), motion, memory)
    return look.look(state, problem, look.prepare(problem, state), moment, look.begin(problem, state))[0]


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
        out[name] = item if isinstance(item, Observable) else Observable(name, item)
    labels = [label for name, look in out.items() for label, *_ in look.labels(name)]
    if twice := [label for label in labels if labels.count(label) > 1]:
        raise InputError(f"observe has {twice[0]!r} twice, once as a part of another: give one of them another name.")
    return out


def _named(given: Sequence[Any]) -> dict[str, Any]:
    """Observables by name: functions by theirs, nameless ones as "lambda"; those that share a name are counted."""
    out: dict[str, Any] = {}
    for item in given:
        if isinstance(item, str | Observable) or not callable(item):
            out[item if isinstance(item, str) else getattr(item, "name", repr(item))] = item
            continue
        function = getattr(item, "func", item)  # of functools.partial
        name = getattr(function, "__name__", type(item).__name__).strip("<>")
        same = sum(known == name or known.startswith(f"{name}_") for known in out)
        out[f"{name}_{same + 1}" if same else name] = item
    return out
