"""The one way to run anything."""

from collections.abc import Callable, Sequence
from typing import Any

from jaxtyping import Array, Key

from linnet.motion import Motion
from linnet.problems import Problem
from linnet.record import Record
from linnet.simulation.chain import run_chain
from linnet.simulation.single import Observe, Stop, run_one
from linnet.states import State, cast
from linnet.trajectory import Trajectory

__all__ = ["cast", "simulate"]


def simulate(
    problem: Problem | Sequence[Problem],
    state: State,
    motion: Motion,
    *,
    steps: int | Sequence[int] | None = None,
    time: float | Sequence[float] | None = None,
    observe: Observe = ("loss",),
    record: Record | None = None,
    stop: Stop | None = None,
    keep: str | Sequence[str] = (),
    blowup: float = 1e9,
    key: Key[Array, ""] | None = None,
    progress: Callable[[int, int], None] | None = None,
    after: Trajectory | None = None,
    differentiable: bool = False,
) -> Trajectory:
    """Runs `state` on `problem` by `motion` and records what was asked for.

    - `steps` for descent and noise, `time` for flows: the horizon. Under `jax.vmap` every run may have its own number
      of steps: say then by `record=at(...)` where to look; runs that end earlier repeat their last record.
    - `observe`: names from `linnet.observe`, observables, or functions of (state, problem), which are called by their
      names ("lambda", "lambda_2", ... if they have none); or a dict of name -> function. Functions use `jax.numpy`.
    - `record`: `every(k)`, `at(points)`, `linear(n)`, `logarithmic(n)`; default every step, at most 1001 records
      (201 for flows). Observables are computed only there.
    - `stop`: `loss_below(x)`, `change_below(x)` or any function of (state, problem) that returns a boolean.
    - `keep`: for example ("lowest test_error", "highest loss"): the states recorded when these were lowest or highest,
      in `run.kept` (the first such record). "states": the states of all records, in `run.states`.
    - `blowup`: the run is called diverged once an entry of the state exceeds blowup * max(1, largest initial entry), or
      the cost is no longer finite.
    - `key`: for motions with noise.
    - `progress`: called with (records done, records in all) while the run goes on.
    - `after`: a run to go on with. Give everything else as it was given then, `state` too; `steps` or `time` counts
      further ones, and so does `record`. The answer is the whole run, as if it had not been cut.
    - `differentiable`: derivatives may go backwards through the run (`jax.grad`), which costs a second run in time and
      the square root of the number of steps in memory. Forward mode (`jax.jvp`, `jax.jacfwd`) needs nothing.

    A list of problems is learned one after the other, each from where the last one was left, with a motion and a `key`
    of its own; `steps` or `time` is one number for all, or one for each. The record is one, with `task`, the number of
    the problem; where a task begins the state is looked at twice, for the old one and for the new one. "losses" has the
    loss of every task at all times, "forgetting" how much those that are over have risen since they ended. A run that
    diverges ends the chain.

    Steps are made in the precision of the state (`cast(state, jnp.float32)` for single), flows in double.
    The loop is compiled once for each set of shapes: other numbers (lr, variance, seed, target, width, steps) reuse it,
    and so does another number of records up to the next power of two.
    It may be called under `jax.vmap` over keys, step sizes, starts and targets of one shape.
    """
    given: dict[str, Any] = {"steps": steps, "time": time, "observe": observe, "record": record, "stop": stop}
    given |= {"keep": keep, "blowup": blowup, "key": key, "progress": progress, "after": after}
    given["differentiable"] = differentiable
    if isinstance(problem, Sequence):
        return run_chain(problem, state, motion, **given)
    return run_one(problem, state, motion, **given)
