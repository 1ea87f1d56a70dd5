"""Trajectories: what was recorded of a run, and how it ended."""

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Num

from linnet import _check
from linnet._check import InputError
from linnet.outcome import Kept, Status
from linnet.states import State

if TYPE_CHECKING:
    import xarray

RESERVED = ("step", "time", "record", "status", "ended")  # axes and variables of the dataset itself


class Label(NamedTuple):
    """What a recorded value is called, the names of its axes (None: not known) and what it is."""

    name: str
    dims: tuple[str, ...] | None
    text: str


class Trajectory(eqx.Module):
    """Recorded values of a run with their steps and times, the final state, and how the run ended.

    `status` is a `Status`: "horizon", "converged", "diverged" (`ended` is that step or time, and steps keep the last
    healthy state) or "stalled". After its end a run repeats its last record, at the step it was taken. `kept` and
    `states` hold the states that `keep` asked for, `memory` what the motion needs to go on (`simulate(after=run)`).
    Batches made with `jax.vmap` carry leading axes everywhere.
    """

    values: dict[str, Num[Array, "..."]]
    steps: Int[Array, "*batch records"] | None
    times: Float[Array, "*batch records"]
    code: Int[Array, "*batch"]
    ended: Num[Array, "*batch"]
    final: State
    labels: tuple["Label", ...] = eqx.field(static=True)
    kept: dict[str, Kept] = eqx.field(default_factory=dict)
    memory: Any = None
    states: Any = None

    def __getitem__(self, name: str) -> Num[Array, "..."]:
        if name not in self.values:
            raise InputError(f"{name!r} was not recorded: this run has {', '.join(map(repr, self.values))}.")
        return self.values[name]

    @property
    def status(self) -> Any:
        """How the run ended, a `Status`; an array of words for a batch."""
        codes = np.asarray(self.code)
        return list(Status)[codes] if codes.ndim == 0 else np.array(list(Status))[codes]

    def __repr__(self) -> str:
        if _check.traced(self.code):
            return f"Trajectory(traced, {', '.join(self.values)})"
        unit = "time" if self.steps is None else "step"
        batch = np.shape(self.code)
        names = ", ".join(self.values)
        if batch:
            words, counts = np.unique(self.status, return_counts=True)
            how = ", ".join(f"{n} {w}" for w, n in zip(words, counts, strict=True))
            return f"Trajectory(batch of {'x'.join(map(str, batch))}: {how}; {self.times.shape[-1]} records of {names})"
        return f"Trajectory({self.status} at {unit} {self.ended:g}; {self.times.shape[-1]} records of {names})"

    def trimmed(self) -> "Trajectory":
        """A single run without the repeated records after its end."""
        clock = np.asarray(self.times if self.steps is None else self.steps)
        kept = int(np.sum(clock < clock[-1])) + 1
        return self if kept == clock.shape[0] else self.first(kept)

    def first(self, count: int) -> "Trajectory":
        """The same run with its first `count` records only."""
        return self._with(jax.tree.map(lambda x: _rows(x, slice(count)), self._records))

    def followed_by(self, other: "Trajectory") -> "Trajectory":
        """A single run with what came after it, whose first record is the last one here."""
        later = jax.tree.map(lambda x: _rows(x, slice(1, None)), other._records)
        return other._with(jax.tree.map(_joined, self._records, later))

    @property
    def _records(self) -> tuple[Any, ...]:
        return self.values, self.steps, self.times, self.states

    def _with(self, records: tuple[Any, ...]) -> "Trajectory":
        values, steps, times, states = records
        return dataclasses.replace(self, values=values, steps=steps, times=times, states=states)

    def to_xarray(self, **axes: Any) -> "xarray.Dataset":
        """An `xarray.Dataset` with named axes. For a batch, name its axes in order: `to_xarray(lr=lrs)`."""
        import xarray

        batch = np.shape(self.code)
        if len(axes) != len(batch):
            raise InputError(
                f"to_xarray got {len(axes)} axes and the run has {len(batch)} batch axes: name each one in order, "
                f"for example to_xarray(lr=lrs)."
            )
        coords: dict[str, Any] = {}
        for (name, values), size in zip(axes.items(), batch, strict=True):
            labels = np.asarray(values)
            if labels.shape != (size,):
                raise InputError(f"{name} has shape {labels.shape}: it must label the {size} runs along its axis.")
            coords[name] = labels
        lead = tuple(axes)
        index = "record"
        clock: dict[str, Any] = {} if self.steps is None else {"step": self.steps}
        clock["time"] = self.times
        if not batch:  # one run is indexed by its own clock
            index = next(iter(clock))
        data = {}
        for label in self.labels:
            value = np.asarray(self.values[label.name])
            inner = value.ndim - len(batch) - 1
            known = label.dims is not None and len(label.dims) == inner
            names = label.dims if known and label.dims else tuple(f"{label.name}_{i}" for i in range(inner))
            # spectra of different lengths must not share an axis
            names = tuple(f"{label.name}_index" if name == "index" else name for name in names)
            data[label.name] = ((*lead, index, *names), value, {"long_name": label.text} if label.text else {})
        for name, value in clock.items():
            coords[name] = ((*lead, index), np.asarray(value))
        dataset = xarray.Dataset(data, coords=coords)
        if batch:
            dataset["status"] = (lead, self.status)
            dataset["ended"] = (lead, np.asarray(self.ended))
        else:
            dataset.attrs.update(status=self.status.value, ended=float(self.ended))
        return dataset


def _rows(array: Array, which: slice) -> Array:
    # by NumPy where it can be: JAX would compile a slice for every length
    return array[which] if _check.traced(array) else jnp.asarray(np.asarray(array)[which])


def _joined(one: Array, other: Array) -> Array:
    if _check.traced((one, other)):
        return jnp.concatenate([one, other])
    return jnp.asarray(np.concatenate([np.asarray(one), np.asarray(other)]))
