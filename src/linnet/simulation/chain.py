"""Tasks learned one after the other."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from linnet import _check, observe
from linnet._check import InputError
from linnet.motion import Motion
from linnet.problems import Problem
from linnet.record import Record
from linnet.simulation.single import Observe, check_network, observables, recorded, run_one
from linnet.states import State
from linnet.trajectory import Label, Trajectory


def run_chain(
    problems: Sequence[Problem],
    state: State,
    motion: Motion,
    *,
    steps: Any,
    time: Any,
    observe: Observe,
    record: Record | None,
    keep: Any,
    key: Any,
    progress: Callable[[int, int], None] | None,
    after: Trajectory | None,
    **rest: Any,
) -> Trajectory:
    """Runs of one problem after the other, joined."""
    if not problems or not all(isinstance(one, Problem) for one in problems):
        raise InputError(f"problem = {_check.show(problems)} is not allowed: a chain needs problems, at least one.")
    if after is not None or keep not in ((), [], "states", ["states"], ("states",)):
        raise InputError("after and keep are for one problem: of a chain only keep='states' can be asked.")
    for one in problems:
        check_network(one, state, motion)
    horizons = list(zip(_each("steps", steps, problems), _each("time", time, problems), strict=True))
    looks, asked = _tasks(observe, tuple(problems))
    counts = [len(recorded(motion, *horizon, record)[0]) for horizon in horizons]
    ends: list[Any] = []
    whole: Trajectory | None = None
    for i, (one, horizon) in enumerate(zip(problems, horizons, strict=True)):
        told = None if progress is None else _counting(progress, sum(counts[:i]), sum(counts))
        own = None if key is None else jax.random.fold_in(_check.key("key", key), i)
        given = {"steps": horizon[0], "time": horizon[1], "record": record, "keep": keep, "after": None}
        run = run_one(one, state, motion, observe=looks, key=own, progress=told, **given, **rest)
        run = run.with_value(Label("task", (), "Which task is learned, 0 for the first"), jnp.full(run.times.shape, i))
        whole, state = run if whole is None else whole.then(run), run.final
        ends.append(whole.times.shape[-1] - 1)
        if not _check.traced(run.code) and run.status == "diverged":
            break
    assert whole is not None
    if "forgetting" in asked:
        whole = whole.with_value(_FORGETTING, _forgotten(whole["losses"], ends))
    return whole


_FORGETTING = Label("forgetting", ("task",), "Loss of each finished task, less what it was at its end")


def _each(name: str, value: Any, problems: Sequence[Problem]) -> list[Any]:
    if not isinstance(value, Sequence):
        return [value] * len(problems)
    if len(value) != len(problems):
        count = len(problems)
        raise InputError(f"{name} has {len(value)} numbers: it must be one, or one for each of {count} problems.")
    return list(value)


def _tasks(given: Any, problems: tuple[Problem, ...]) -> tuple[dict[str, Any], set[str]]:
    """What to observe of each task, and which words of chains were among it."""
    given = [given] if isinstance(given, str) or callable(given) else given
    pairs = list(given.items()) if isinstance(given, Mapping) else [(None, item) for item in given]
    asked = {item for _, item in pairs if item in ("losses", "forgetting")}
    left = [(name, item) for name, item in pairs if item not in asked]
    looks: dict[str, Any] = dict(observables(dict(left) if isinstance(given, Mapping) else [item for _, item in left]))
    if "task" in looks:
        raise InputError("observe['task'] is not allowed: a chain says by this name which problem is learned.")
    if asked:
        looks["losses"] = observe.losses(problems)
    return looks, asked


def _counting(progress: Callable[[int, int], None], before: int, total: int) -> Callable[[int, int], None]:
    return lambda done, _: progress(before + done, total)


def _forgotten(losses: Array, ends: Sequence[int]) -> Array:
    """losses_j - losses_j at the end of task j, 0 until then."""
    columns = []
    for j in range(losses.shape[-1]):
        end = ends[j] if j < len(ends) else losses.shape[0] - 1
        over = np.arange(losses.shape[0]) > end
        columns.append(jnp.where(over, losses[:, j] - losses[end, j], 0.0))
    return jnp.stack(columns, axis=-1)
