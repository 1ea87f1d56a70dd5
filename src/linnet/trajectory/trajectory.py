"""Trajectories: what was recorded of a run, and how it ended."""

import dataclasses
import html
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Num

from linnet import _check
from linnet._check import InputError
from linnet.outcome import Checkpoint, Status
from linnet.states import State

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

RESERVED = ("step", "time", "record", "status", "ended")  # axes and variables of the dataset itself


class Label(NamedTuple):
    """What a recorded value is called, the names of its axes (None: not known) and what it is."""

    name: str
    dims: tuple[str, ...] | None
    text: str


class RecordedPoint(NamedTuple):
    """One record of a run: values by name, the step (None for flows), the time, and the state if it was recorded."""

    values: dict[str, Num[Array, "..."]]
    step: Int[Array, ""] | None
    time: Float[Array, ""]
    state: Any


class Trajectory(eqx.Module):
    """Recorded values of a run with their steps and times, the final state, and how the run ended.

    `status` is a `Status`: "horizon", "converged", "diverged" (`ended` is that step or time, and steps keep the last
    healthy state) or "stalled". After its end a run repeats its last record, with its step. `checkpoints` and
    `states` hold the states that `checkpoint` asked for, `memory` and `past` what the optimizer and the observables
    need to go on (`simulate(resume_from=run)`). Batches made with `jax.vmap` carry leading axes everywhere.
    """

    # a plain dict would be sorted by every transformation of JAX
    values: dict[str, Num[Array, "..."]] = eqx.field(converter=OrderedDict)
    steps: Int[Array, "*batch records"] | None
    times: Float[Array, "*batch records"]
    code: Int[Array, "*batch"]
    ended: Num[Array, "*batch"]
    final: State
    labels: tuple["Label", ...] = eqx.field(static=True)
    checkpoints: dict[str, Checkpoint] = eqx.field(default_factory=dict)
    memory: Any = None
    states: Any = None
    past: Any = None

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
        if _check.traced(self):
            return f"Trajectory(traced, {', '.join(self.values)})"
        unit = "time" if self.steps is None else "step"
        batch = np.shape(self.code)
        names = ", ".join(self.values)
        if batch:
            words, counts = np.unique(self.status, return_counts=True)
            how = ", ".join(f"{n} {w}" for w, n in zip(words, counts, strict=True))
            return f"Trajectory(batch of {'x'.join(map(str, batch))}: {how}; {self.times.shape[-1]} records of {names})"
        ended = f"{self.ended:g}" if unit == "step" else f"{self.ended:.4g}"  # an event is found to a few digits
        return f"Trajectory({self.status} at {unit} {ended}; {self.times.shape[-1]} records of {names})"

    def at(self, point: float, *, nearest: bool = False) -> "RecordedPoint":
        """What was recorded at a step (for flows a time), with the state if `checkpoint="states"` asked for it; single
        runs.

        Points that were not recorded are refused, unless the `nearest` record is asked for.
        """
        if np.ndim(self.code):
            raise InputError("a batch has many clocks: take one run of it, jax.tree.map(lambda x: x[i], runs).")
        point, unit = _check.real("point", point), "time" if self.steps is None else "step"
        clock = np.asarray(self.times if self.steps is None else self.steps)
        index = int(np.argmin(np.abs(clock - point)))
        if not nearest and not np.isclose(clock[index], point, rtol=1e-12, atol=0):
            raise InputError(
                f"nothing was recorded at {unit} {point:g}: the nearest record is at {clock[index]:g}; "
                f"give nearest=True to take it."
            )
        values, steps, times, states = jax.tree.map(lambda x: _rows(x, index), self._records)
        return RecordedPoint(values, steps, times, states)

    def plot(self, *names: str, log: str | Sequence[str] = "", time: bool = False) -> "Figure":
        """A matplotlib figure of what was recorded (all of it, or these names) against the step or the `time`.

        `log` names logarithmic axes: "x", "y" or "xy"; or it lists whose y axes are, as in `log=["loss"]`. Vectors and
        matrices give a line for each entry, batches for each run.
        """
        from linnet.plot.trajectory import trajectory

        if _check.traced(self):
            raise InputError("this run is being traced by JAX: draw it outside of jit, vmap and grad.")
        if not self.values:
            raise InputError("there is nothing to draw: this run was not observed; give simulate something to observe.")
        drawn = names or tuple(self.values)
        axes = _check.choice("log", log, ("", "x", "y", "xy")) if isinstance(log, str) else ""
        logarithmic = (drawn if "y" in axes else ()) if isinstance(log, str) else tuple(log)
        for name in (*drawn, *logarithmic):
            self[name]  # refuses unknown names
        return trajectory(self, drawn, time=time, log_clock="x" in axes, log=logarithmic)

    def animate(
        self,
        path: str | os.PathLike[str],
        *names: str,
        log: str | Sequence[str] = "",
        time: bool = False,
        frames: int = 100,
        seconds: float = 8.0,
        dpi: int = 100,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Writes the picture that `plot` draws as a film, a .gif or a .mp4 (which needs ffmpeg), its lines growing.

        The frames are the recorded points, at most `frames` of them, spaced evenly. They take `seconds`, and the last
        one stays a second more; there are no more than fifty a second. `progress` is called with (done, total).
        """
        from linnet.plot.animation import film

        figure = self.plot(*names, log=log, time=time)
        film(figure, path, frames=frames, seconds=seconds, dpi=dpi, progress=progress)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the run into a folder (by custom named .zarr), which `load` reads back bit for bit, or refuses.

        It is a zarr group that `xarray.open_zarr` opens, with the arrays of the states in groups beside;
        `linnet.trajectory.store` describes it.
        """
        from linnet.trajectory.store import save

        save(self, path)

    def _repr_html_(self) -> str:
        """A small table for notebooks."""
        if _check.traced(self):
            return f"<code>{html.escape(repr(self))}</code>"
        batch = len(np.shape(self.code))
        head = html.escape(repr(self).partition("; ")[0].partition("(")[2].capitalize())
        message = "" if batch else f" {html.escape(self.status.message)}"
        rows = []
        for label in self.labels:
            value = np.asarray(self.values[label.name])
            shape = value.shape[batch + 1 :]
            low, high = np.nanmin(value[..., -1], initial=np.inf), np.nanmax(value[..., -1], initial=-np.inf)
            final = "" if shape else f"{low:.6g} to {high:.6g}" if batch else f"{low:.6g}"
            cells = (label.name, " x ".join(map(str, shape)) or "number", final, label.text)
            rows.append("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>")
        titles = "".join(f"<th>{title}</th>" for title in ("recorded", "shape", "at the end", ""))
        return (
            f"<p><b>{head}.</b>{message} {self.times.shape[-1]} records.</p>"
            f"<table><tr>{titles}</tr>{''.join(rows)}</table>"
        )

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
        # steps are measured at the cut as at any other; a flow's record there belongs to the solver's step before it
        before, later = (slice(-1), slice(None)) if self.steps is not None else (slice(None), slice(1, None))
        pair = jax.tree.map(lambda a, b: _joined(_rows(a, before), _rows(b, later)), self._records, other._records)
        return other._with(pair)

    def then(self, other: "Trajectory") -> "Trajectory":
        """A single run and another one that began where it ended; the state between them is recorded twice."""
        steps = None if self.steps is None or other.steps is None else other.steps + _rows(self.steps, -1)
        offset = _rows(self.times, -1)
        moved = dataclasses.replace(other, steps=steps, times=other.times + offset)
        clock = offset if self.steps is None else _rows(self.steps, -1)
        whole = moved._with(jax.tree.map(_joined, self._records, moved._records))
        lost = self.code == Status.DIVERGED.code  # a batch goes on, with a code for each run
        code, ended = jnp.where(lost, self.code, other.code), jnp.where(lost, self.ended, other.ended + clock)
        return dataclasses.replace(whole, code=code, ended=ended)

    def with_value(self, label: Label, value: Num[Array, "records ..."]) -> "Trajectory":
        """The same run with one more thing recorded."""
        values = {**self.values, label.name: value}
        return dataclasses.replace(self, values=values, labels=(*self.labels, label))

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


def _rows(array: Array, which: slice | int) -> Array:
    # by NumPy where it can be: JAX would compile a slice for every length
    return array[which] if _check.traced(array) else jnp.asarray(np.asarray(array)[which], dtype=array.dtype)


def _joined(one: Array, other: Array) -> Array:
    if _check.traced((one, other)):
        return jnp.concatenate([one, other])
    return jnp.asarray(np.concatenate([np.asarray(one), np.asarray(other)]), dtype=one.dtype)
