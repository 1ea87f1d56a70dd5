"""`simulate`: trains a network on a problem and records the run."""

from collections.abc import Callable, Sequence
from typing import Any

from linnet._check import KeyLike
from linnet.optim import Dynamics
from linnet.problems import Problem
from linnet.record import Record
from linnet.simulation.chain import run_chain
from linnet.simulation.single import Observe, Stop, run_one
from linnet.states import State, cast
from linnet.trajectory import Trajectory

__all__ = ["cast", "run_one", "simulate"]


def simulate(
    problem: Problem | Sequence[Problem],
    state: State,
    optimizer: Dynamics,
    *,
    steps: int | Sequence[int] | None = None,
    time: float | Sequence[float] | None = None,
    observe: Observe = ("loss",),
    record: Record | None = None,
    stop: Stop | None = None,
    checkpoint: str | Sequence[str] = (),
    divergence_limit: float = 1e9,
    key: KeyLike | None = None,
    progress: Callable[[int, int], None] | None = None,
    resume_from: Trajectory | None = None,
    differentiable: bool = False,
) -> Trajectory:
    """Trains `state` on `problem` with `optimizer` and records the observables.

    - `steps` for descent and noise, `time` for flows: the horizon. Under `jax.vmap` every run may have its own number
      of steps: give the steps to record by `record=at(...)`; runs that end earlier repeat their last record.
    - `observe`: names from `linnet.observe`, observables, or functions of (state, problem), which are called by their
      names ("lambda", "lambda_2", ... if they have none); or a dict of name -> function. Functions use `jax.numpy`.
    - `record`: `every(k)`, `at(points)`, `linear(n)`, `logarithmic(n)`; default every step, at most 1001 records
      (201 for flows). Observables are computed only there.
    - `stop`: an `Event` such as `loss_below(x)` or `change_below(x)`, or any function of (state, problem) that returns
      a boolean.
    - `checkpoint`: for example ("lowest test_error", "highest loss"): the states recorded when these were lowest or
      highest, in `run.checkpoints` (the first such record). "states": the states of all records, in `run.states`.
    - `divergence_limit`: the run is called diverged once an entry of the state exceeds divergence_limit * max(1,
      largest initial entry), or the cost is no longer finite.
    - `key`: for optimizers with noise.
    - `progress`: called with (records done, records in all) during the run.
    - `resume_from`: a run to continue. Give everything else as it was given then, `state` too; `steps` or `time`
      counts further ones, and so does `record`. The result is the whole run, as if it had not been interrupted.
    - `differentiable`: derivatives may go backwards through the run (`jax.grad`), which takes a second run in time and
      the square root of the number of steps in memory. Forward mode (`jax.jvp`, `jax.jacfwd`) needs nothing.

    With a list of problems the network is trained on one after the other, each from the final state of the one before,
    with an optimizer memory and a `key` of its own; `steps` or `time` is one number for all, or one for each. The
    trajectory has `task`, the number of the problem; where a task begins the state is recorded twice, for both tasks.
    "losses" has the loss of every task at all times, "forgetting" how much those that are over have risen
    since they ended. A run that diverges ends the chain.

    Steps are made in the precision of the state (`cast(state, jnp.float32)` for single), flows in double.
    The loop is compiled once for each set of shapes: other numbers (lr, variance, seed, target, width, steps) reuse it,
    and so does another number of records up to the next power of two.
    It may be called under `jax.vmap` over keys, learning rates, initial states, and targets of one shape.
    """
    run: Any = run_chain if isinstance(problem, Sequence) else run_one
    return run(
        problem,
        state,
        optimizer,
        steps=steps,
        time=time,
        observe=observe,
        record=record,
        stop=stop,
        checkpoint=checkpoint,
        divergence_limit=divergence_limit,
        key=key,
        progress=progress,
        resume_from=resume_from,
        differentiable=differentiable,
    )
