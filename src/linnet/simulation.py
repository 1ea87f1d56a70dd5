"""The one way to run anything."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from linnet import _check, observe
from linnet._check import InputError
from linnet.motion import GradientFlow, Motion, Stepping
from linnet.observe import Observable
from linnet.problems import Problem
from linnet.record import At, Record, linear
from linnet.states import State
from linnet.trajectory import CONVERGED, DIVERGED, HORIZON, RESERVED, STALLED, Kept, Label, Trajectory

_RUNNING, _SUSPECT = -1, -2
_LEAP = 16  # steps between two looks at the size of the state
_listeners: dict[int, Callable[[int, int], None]] = {}
_tokens = itertools.count(1)

_T = TypeVar("_T")
Stop = Callable[[Any, Any], Any]
Observe = Mapping[str, Callable[[Any, Any], Any] | str] | Sequence[Observable | str]


def simulate(
    problem: Problem,
    state: State,
    motion: Motion,
    *,
    steps: int | None = None,
    time: float | None = None,
    observe: Observe = ("loss",),
    record: Record | None = None,
    stop: Stop | None = None,
    keep: Sequence[str] = (),
    blowup: float = 1e9,
    key: Key[Array, ""] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Trajectory:
    """Runs `state` on `problem` by `motion` and records what was asked for.

    - `steps` for descent and noise, `time` for flows: the horizon. Under `jax.vmap` every run may have its own number
      of steps: say then by `record=at(...)` where to look; runs that end earlier repeat their last record.
    - `observe`: names from `linnet.observe`, observables, or a dict of name -> function of (state, problem).
    - `record`: `every(k)`, `at(points)`, `linear(n)`, `logarithmic(n)`; default every step, at most 1001 records
      (201 for flows). Observables are computed only there.
    - `stop`: `loss_below(x)`, `change_below(x)` or any function of (state, problem) that returns a boolean.
    - `keep`: for example ("lowest test_error", "highest loss"): the states recorded when these were lowest or highest,
      in `run.kept` (the first such record; motions in steps only).
    - `blowup`: the run is called diverged once an entry of the state exceeds blowup * max(1, largest initial entry), or
      the cost is no longer finite.
    - `key`: for motions with noise.
    - `progress`: called with (records done, records in all) while the run goes on.

    Steps are made in the precision of the state (`cast(state, jnp.float32)` for single), flows in double.
    The loop is compiled once for each set of shapes and number of records: other numbers (lr, variance, seed, target,
    width) reuse it.
    It may be called under `jax.vmap` over keys, step sizes, starts and targets of one shape.
    """
    points, dense = _points(problem, state, motion, steps, time, record)
    looks = _observables(observe)
    keeps = _keeps(keep, looks, problem, state, motion)
    if stop is not None and not callable(stop):
        raise InputError(f"stop = {_check.show(stop)} is not allowed: stop must be a function of (state, problem).")
    if stop is not None:
        answer = jax.eval_shape(lambda s: jnp.asarray(stop(s, problem)), state)
        if answer.shape != () or answer.dtype != bool:
            raise InputError(f"stop returns {answer.dtype} of shape {answer.shape}: it must return one boolean.")
    if key is not None:
        _check.key("key", key)
    if isinstance(motion, Stepping) and motion.random and key is None:
        raise InputError(f"key is missing: {type(motion).__name__} draws noise; give key=jax.random.key(seed).")
    limit = _check.number("blowup", blowup, above=1)
    # a small limit, or the domain of a cost, may well be left and entered again between two looks
    leaps = problem.finite and not _check.traced(blowup) and float(blowup) >= 1e6
    if progress is not None and not callable(progress):
        raise InputError(f"progress = {_check.show(progress)} is not allowed: it must be a function of (done, total).")
    if progress is not None and _check.traced((problem, state, motion, key)):
        raise InputError("progress is not allowed in a run that JAX is tracing: call simulate without it there.")
    precision = jnp.result_type(*jax.tree.leaves(eqx.filter(state, eqx.is_inexact_array)))
    if isinstance(motion, GradientFlow):
        precision = jnp.dtype(jnp.float64)
    state, problem, motion = cast(state, precision), cast(problem, precision), cast(motion, precision)
    prepared = {name: look.prepare(problem, state) for name, look in looks.items()}
    token = next(_tokens) if progress is not None else 0
    if progress is not None:
        _listeners[token] = progress
    try:
        run = _run(
            leaps,
            problem,
            state,
            motion,
            jnp.asarray(points),
            dense,
            looks,
            prepared,
            stop,
            keeps,
            limit,
            key,
            progress is not None,
            jnp.asarray(token),
        )
        if _check.traced(run.code):
            return run
        if progress is not None:
            jax.block_until_ready(run.code)
            jax.effects_barrier()
        return run.trimmed()
    finally:
        _listeners.pop(token, None)


def cast(tree: _T, dtype: Any) -> _T:
    """A state, problem or motion with all its real numbers in this precision."""
    return jax.tree.map(lambda x: x.astype(dtype) if eqx.is_inexact_array(x) else x, tree)


@eqx.filter_jit
def _run(
    leaps: bool,
    problem: Problem,
    state: Any,
    motion: Motion,
    points: Array,
    dense: bool,
    looks: dict[str, Observable],
    prepared: dict[str, Any],
    stop: Stop | None,
    keeps: tuple[tuple[str, str], ...],
    blowup: Array,
    key: Key[Array, ""] | None,
    report: bool,
    token: Array,
) -> Trajectory:
    limit = blowup * jnp.maximum(1.0, _largest(state))

    def look(current: State) -> dict[str, Array]:
        return {name: jnp.asarray(see(current, problem, prepared[name])) for name, see in looks.items()}

    def tell(done: Any) -> None:
        if report:
            jax.debug.callback(_tell, token, done, points.shape[0])

    labels = tuple(Label(name, see.dims, see.text) for name, see in looks.items())
    if isinstance(motion, GradientFlow):
        return _flow(problem, state, motion, points, look, stop, limit, tell, labels)
    assert isinstance(motion, Stepping)
    return _steps(leaps, dense, problem, state, motion, points, look, stop, keeps, limit, key, tell, labels)


class _Seen(NamedTuple):
    """The last record, and what is kept of all of them."""

    step: Array
    values: dict[str, Array]
    kept: dict[str, Kept]


def _steps(
    leaps: bool,
    dense: bool,
    problem: Problem,
    state: Any,
    motion: Stepping,
    points: Array,
    look: Callable[[Any], dict[str, Array]],
    stop: Stop | None,
    keeps: tuple[tuple[str, str], ...],
    limit: Array,
    key: Key[Array, ""] | None,
    tell: Callable[[Any], None],
    labels: tuple[Label, ...],
) -> Trajectory:
    prepared = motion.prepare(problem, state)
    Run = tuple[Any, Array, Array]  # state, step, code

    def move(current: Any, step: Any) -> Any:
        noise = None if key is None else jax.random.fold_in(key, step)
        new = motion.at(step).step(problem, current, prepared, noise)
        return jax.tree.map(lambda a, b: b.astype(a.dtype), current, new)

    def spoilt(current: Any) -> Array:
        return _spoilt(current, problem, limit)

    def leap(run: Run) -> Run:
        """Many steps with one look: what has grown by then is walked again from here, step by step."""
        current, step, _ = run
        new = jax.lax.fori_loop(0, _LEAP, lambda i, state: move(state, step + i), current)
        grown = spoilt(new)
        after = jax.tree.map(lambda a, b: jnp.where(grown, a, b), current, new)
        return after, step + _LEAP * ~grown, jnp.where(grown, _SUSPECT, _RUNNING)

    def walk(run: Run, resting: Array | bool = False) -> Run:
        current, step, before = run
        new = move(current, step)
        grown = spoilt(new)
        # the condition looks at the old state, whose matrix the step computes anyway
        halt = jnp.asarray(False) if stop is None else jnp.asarray(stop(current, problem), dtype=bool)
        stay = grown | halt | resting
        code = jnp.where(resting, before, jnp.where(halt, CONVERGED, jnp.where(grown, DIVERGED, _RUNNING)))
        return jax.tree.map(lambda a, b: jnp.where(stay, a, b), current, new), step + ~stay, code

    def see(run: Run, last: _Seen) -> _Seen:
        values = look(run[0])
        kept = {}
        for how, name in keeps:
            title, value = f"{how} {name}", values[name]
            old = last.kept[title]
            better = value < old.value if how == "lowest" else value > old.value
            kept[title] = jax.tree.map(lambda a, b, better=better: jnp.where(better, a, b), Kept(*run[:2], value), old)
        return _Seen(run[1], values, kept)

    def sparse(carry: tuple[Run, _Seen], point: tuple[Array, Array]) -> Any:
        """Goes to the next point and looks there."""
        index, goal = point
        run, last = carry
        moving = ((run[2] < 0) & (run[1] < goal)) | (index == 0)
        if stop is None and leaps:
            run = jax.lax.while_loop(lambda c: (c[1] + _LEAP <= goal) & (c[2] == _RUNNING), leap, run)
        run = jax.lax.while_loop(lambda c: (c[1] < goal) & (c[2] < 0), walk, run)
        tell(index + 1)
        # a run that has ended is not looked at again
        seen = jax.lax.cond(moving, lambda: see(run, last), lambda: last)
        return (run, seen), (seen.step, seen.values)

    def close(carry: tuple[Run, _Seen], point: tuple[Array, Array]) -> Any:
        """Looks and makes one step: records and steps share the matrix."""
        index, goal = point
        run, last = carry
        resting = (run[2] >= 0) | (run[1] >= goal)
        news = (run[1] > last.step) | (index == 0)
        tell(index + 1)
        run, seen = jax.lax.cond(news | ~resting, lambda: (walk(run, resting), see(run, last)), lambda: (run, last))
        return (run, seen), (seen.step, seen.values)

    origin = jnp.asarray(0, dtype=points.dtype)
    blank = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(look, state))
    worst = {"lowest": jnp.inf, "highest": -jnp.inf}
    kept = {f"{how} {name}": Kept(state, origin, jnp.full_like(blank[name], worst[how])) for how, name in keeps}
    start = ((state, origin, jnp.asarray(_RUNNING)), _Seen(origin, blank, kept))
    indices = jnp.arange(points.shape[0])
    if dense:
        (run, seen), records = jax.lax.scan(close, start, (indices[:-1], points[1:]))
        # a horizon of the run's own may lie beyond the points given
        run = jax.lax.while_loop(lambda c: (c[1] < points[-1]) & (c[2] < 0), walk, run)
        seen = jax.lax.cond(run[1] > seen.step, lambda: see(run, seen), lambda: seen)
        tell(points.shape[0])
        last = (seen.step, seen.values)
        taken, values = jax.tree.map(lambda many, one: jnp.concatenate([many, one[None]]), records, last)
        final, step, code = run
    else:
        ((final, step, code), seen), (taken, values) = jax.lax.scan(sparse, start, (indices, points))
    if stop is not None:
        code = jnp.where((code < 0) & jnp.asarray(stop(final, problem), dtype=bool), CONVERGED, code)
    code = jnp.where(code < 0, HORIZON, code)
    ended = step + (code == DIVERGED)  # the step that could not be taken
    return Trajectory(values, taken, motion.time(taken), code, ended, final, labels, seen.kept)


def _flow(
    problem: Problem,
    state: Any,
    motion: GradientFlow,
    points: Array,
    look: Callable[[Any], dict[str, Array]],
    stop: Stop | None,
    limit: Array,
    tell: Callable[[Any], None],
    labels: tuple[Label, ...],
) -> Trajectory:
    halts: list[Callable[[Any], Array]] = [lambda y: _spoilt(y, problem, limit)]
    already = jnp.asarray(False)
    if stop is not None:
        already = jnp.asarray(stop(state, problem), dtype=bool)
        level = getattr(stop, "level", None)  # a real number that falls through zero is located inside a solver step
        halts.append((lambda y: level(y, problem)) if level else lambda y: jnp.asarray(stop(y, problem), dtype=bool))

    def see(time: Array, current: Any) -> dict[str, Array]:
        tell(jnp.searchsorted(points, time) + 1)
        return look(current)

    solution = motion.solve(problem, state, points, see, tuple(halts))
    values, last = solution.ys
    final = jax.tree.map(lambda start, x: jnp.where(already, start, x[0]), state, last)
    at_end = look(final)
    end = jnp.where(already, points[0], solution.ts[1][0])
    missing = (points > end) | (end <= points[0])  # diffrax leaves these at infinity
    values = {
        name: jnp.where(missing.reshape((-1,) + (1,) * (value.ndim - 1)), at_end[name], value)
        for name, value in values.items()
    }
    tell(jnp.searchsorted(points, end) + 1)
    hit = solution.event_mask
    finished = solution.result == diffrax.RESULTS.successful
    code = jnp.where(finished, HORIZON, STALLED)
    if stop is not None:
        code = jnp.where(hit[1] | already, CONVERGED, code)
    code = jnp.where(hit[0], DIVERGED, code)
    return Trajectory(values, None, jnp.minimum(points, end), code, end, final, labels, {})


def _largest(state: Any) -> Array:
    return jnp.max(jnp.stack([jnp.max(jnp.abs(leaf)) for leaf in jax.tree.leaves(eqx.filter(state, eqx.is_array))]))


def _spoilt(state: Any, problem: Problem, limit: Array) -> Array:
    """Whether the state has outgrown the limit or its cost is lost; true for NaN as well."""
    grown = ~(_largest(state) <= limit)
    return grown if problem.finite else grown | ~jnp.isfinite(problem.cost(state.matrix))


def _tell(token: Any, done: Any, total: Any) -> None:
    listener = _listeners.get(int(token))
    if listener is not None:
        listener(int(done), int(total))


def _points(
    problem: Problem, state: State, motion: Motion, steps: Any, time: Any, record: Record | None
) -> tuple[np.ndarray | Array, bool]:
    """Where to look, and whether no two points are more than a step apart."""
    if not isinstance(problem, Problem):
        raise InputError(f"problem = {_check.show(problem)} is not allowed: use a problem such as factorisation(M).")
    if not isinstance(state, State):
        raise InputError(f"state = {_check.show(state)} is not allowed: use Weights, Modes or EndToEnd.")
    shape = jax.eval_shape(lambda s: s.matrix, state).shape
    if shape != problem.shape:
        raise InputError(f"the state's matrix has shape {shape}: it must have the problem's shape {problem.shape}.")
    if record is not None and not isinstance(record, Record):
        raise InputError(f"record = {_check.show(record)} is not allowed: use every, at, linear or logarithmic.")
    if isinstance(motion, GradientFlow):
        if time is None or steps is not None:
            raise InputError("GradientFlow runs in time: give time=..., not steps.")
        horizon = _check.real("time", time, above=0)
        return (record or linear(201)).points(horizon, discrete=False), False
    if not isinstance(motion, Stepping):
        raise InputError(
            f"motion = {_check.show(motion)} is not allowed: use a motion such as GradientDescent(lr=0.1)."
        )
    if steps is None or time is not None:
        raise InputError(f"{type(motion).__name__} runs in steps: give steps=..., not time.")
    if _check.traced(steps):
        if not isinstance(record, At):
            raise InputError(
                "record is missing: where the number of steps is traced, say where to look by record=at(...)."
            )
        known = record.points(max(record.where), discrete=True)
        return jnp.append(jnp.minimum(known, steps), steps), bool(np.all(np.diff(known) <= 1))
    count = _check.integer("steps", steps, least=1)
    points = (record or linear(min(count, 1000) + 1)).points(count, discrete=True)
    return points, bool(np.all(np.diff(points) <= 1))


def _keeps(
    keep: Any, looks: Mapping[str, Observable], problem: Problem, state: State, motion: Motion
) -> tuple[tuple[str, str], ...]:
    out = []
    for title in (keep,) if isinstance(keep, str) else keep:
        how, _, name = str(title).partition(" ")
        if how not in ("lowest", "highest") or name not in looks:
            raise InputError(
                f"keep = {_check.show(title)} is not allowed: give lowest or highest and one of {', '.join(looks)}."
            )
        if not isinstance(motion, Stepping):
            raise InputError(
                f"keep = {title!r} is not allowed with {type(motion).__name__}: it needs a motion in steps."
            )
        if jax.eval_shape(lambda s, name=name: jnp.asarray(looks[name](s, problem)), state).shape != ():
            raise InputError(f"keep = {title!r} is not allowed: {name} is not one number.")
        out.append((how, name))
    return tuple(out)


def _observables(given: Any) -> dict[str, Observable]:
    if isinstance(given, str | Observable):
        given = [given]
    if not isinstance(given, Mapping | Sequence):
        raise InputError(f"observe = {_check.show(given)} is not allowed: give a list of names or a dict of functions.")
    if not isinstance(given, Mapping):
        given = {item if isinstance(item, str) else getattr(item, "name", repr(item)): item for item in given}
    out: dict[str, Observable] = {}
    for name, item in given.items():
        if name in RESERVED:
            raise InputError(f"observe[{name!r}] is not allowed: {', '.join(RESERVED)} are the dataset's own.")
        if isinstance(item, str):
            item = observe.named(item)
        if not callable(item):
            raise InputError(f"observe[{name!r}] = {_check.show(item)} is not allowed: give a function or a name.")
        out[name] = item if isinstance(item, Observable) else Observable(name, item)
    return out
