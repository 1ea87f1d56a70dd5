"""Training on one problem after the other."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from linnet import _check, observe
from linnet._check import InputError
from linnet.optim import Dynamics
from linnet.problems import Problem
from linnet.record import Record
from linnet.simulation.single import Observe, check_network, observables, recorded, run_one
from linnet.states import State
from linnet.trajectory import Label, Trajectory


def run_chain(
    problems: Sequence[Problem],
    state: State,
    optimizer: Dynamics,
    *,
    steps: Any,
    time: Any,
    observe: Observe,
    record: Record | None,
    checkpoint: Any,
    key: Any,
    progress: Callable[[int, int], None] | None,
    resume_from: Trajectory | None,
    **rest: Any,
) -> Trajectory:
    """Runs of one problem after the other, joined."""
    if not problems or not all(isinstance(one, Problem) for one in problems):
        raise InputError(f"problem = {_check.show(problems)} is not allowed: a chain needs problems, at least one.")
    if resume_from is not None or checkpoint not in ((), [], "states", ["states"], ("states",)):
        raise InputError(
            "resume_from and checkpoint are for one problem: of a chain only checkpoint='states' can be asked."
        )
    for one in problems:
        check_network(one, state, optimizer)
    horizons = list(zip(_each("steps", steps, problems), _each("time", time, problems), strict=True))
    observed, asked = _tasks(observe, tuple(problems))
    counts = [len(recorded(optimizer, *horizon, record)[0]) for horizon in horizons]
    ends: list[Any] = []
    joined: Trajectory | None = None
    for i, (one, horizon) in enumerate(zip(problems, horizons, strict=True)):
        listener = None if progress is None else _counting(progress, sum(counts[:i]), sum(counts))
        own = None if key is None else jax.random.fold_in(_check.key("key", key), i)
        run = run_one(
            one,
            state,
            optimizer,
            steps=horizon[0],
            time=horizon[1],
            observe=observed,
            record=record,
            checkpoint=checkpoint,
            key=own,
            progress=listener,
            resume_from=None,
            **rest,
        )
        run = run.with_value(Label("task", (), "Which task is learned, 0 for the first"), jnp.full(run.times.shape, i))
        joined, state = run if joined is None else joined.then(run), run.final
        ends.append(joined.times.shape[-1] - 1)
        if not _check.traced(run.code) and run.status == "diverged":
            break
    assert joined is not None
    if "forgetting" in asked:
        joined = joined.with_value(_FORGETTING, _forgotten(joined["losses"], ends))
    return joined


_FORGETTING = Label("forgetting", ("task",), "Loss of each finished task, less what it was at its end")


def _each(name: str, value: Any, problems: Sequence[Problem]) -> list[Any]:
    if not isinstance(value, Sequence):
        return [value] * len(problems)
    if len(value) != len(problems):
        count = len(problems)
        raise InputError(f"{name} has {len(value)} numbers: it must be one, or one for each of {count} problems.")
    return list(value)


def _tasks(given: Any, problems: tuple[Problem, ...]) -> tuple[dict[str, Any], set[str]]:
    """What to observe of each task, and which of "losses" and "forgetting" are among it."""
    given = [given] if isinstance(given, str) or callable(given) else given
    pairs = list(given.items()) if isinstance(given, Mapping) else [(None, item) for item in given]
    asked = {item for _, item in pairs if item in ("losses", "forgetting")}
    left = [(name, item) for name, item in pairs if item not in asked]
    observed: dict[str, Any] = dict(
        observables(dict(left) if isinstance(given, Mapping) else [item for _, item in left])
    )
    if "task" in observed:
        raise InputError("observe['task'] is not allowed: a chain records the number of the problem by this name.")
    if asked:
        observed["losses"] = observe.losses(problems)
    return observed, asked


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
