"""The picture of a run: what was recorded, against its step or time."""

import textwrap
from collections.abc import Collection, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from linnet.plot.style import CROWDED, TRAIN, finish, panels, ramp
from linnet.trajectory import Trajectory

_COLUMNS = 3


def trajectory(run: Trajectory, names: Sequence[str], *, time: bool, log_clock: bool, log: Collection[str]) -> Figure:
    """One panel for each name; a line for each entry of a value and each run of a batch. `log` are names, too."""
    batch = np.ndim(run.code)
    clock = np.asarray(run.times if time or run.steps is None else run.steps)
    clock = clock.reshape(-1, clock.shape[-1])
    rows = -(-len(names) // _COLUMNS)
    columns = -(-len(names) // rows)
    figure, grid = panels(max(4.8, 4.2 * columns), 3.2 * rows, rows, columns, squeeze=False)
    texts = {label.name: label.text for label in run.labels}
    for axes, name in zip(grid.ravel(), names, strict=False):
        value = np.asarray(run[name])
        value = value.reshape(len(clock), clock.shape[1], int(np.prod(value.shape[batch + 1 :])))
        _lines(axes, clock, value)
        finish(
            axes,
            xlabel="time" if time or run.steps is None else "step",
            ylabel=textwrap.fill((texts[name] or name).replace("$", r"\$"), 36),
            title=name.replace("$", r"\$"),
            xscale="symlog" if log_clock else "linear",
            yscale="log" if name in log else "linear",
        )
    for axes in grid.ravel()[len(names) :]:
        axes.remove()
    return figure


def _lines(axes: Axes, clock: np.ndarray, value: np.ndarray) -> None:
    runs, _, entries = value.shape
    colors = ramp(entries, 0.9) if entries > 1 else [TRAIN]
    crowded = runs * entries > CROWDED
    for times, lines in zip(clock, value, strict=True):
        for entry, color in enumerate(colors):
            axes.plot(times, lines[:, entry], color=color, lw=0.8 if crowded else 1.8, alpha=0.6 if crowded else 1.0)
