"""Figures of spectral bias."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from linnet.plot.style import NOISE, QUIET, SIGNAL, TEST, THEORY, TRAIN, finish, label_outer, panels
from linnet.theory import spectral

_VALUES = "singular values of $W_1$"


def fig1a(data: xarray.Dataset, d_out: int, shown: float) -> Figure:
    """The largest singular values of the first layer in time, a panel for each initialization, of the first problem."""
    figure, grid = panels(11, 6.4, 2, 2, sharex=True)
    part = data.isel(problem=0).sel(time=slice(0, shown))
    for axes, name in zip(grid.ravel(), data["initialization"].values, strict=True):
        values = part["first"].sel(initialization=name)
        end = data["first"].isel(problem=0, time=-1).sel(initialization=name).values
        axes.plot(part["time"], values[:, :d_out], color=SIGNAL, lw=1.8)
        axes.plot(part["time"], values[:, d_out], color=NOISE, lw=1.8)
        title = f"{name}:  σ{d_out + 1}/σ{d_out} ends at {end[d_out] / end[d_out - 1]:.3f}"
        finish(axes, title=title, title_size=11, ylim=(0, None))
    grid[0, 0].plot([], [], color=SIGNAL, lw=1.8, label=f"the first {d_out}, as many as outputs")
    grid[0, 0].plot([], [], color=NOISE, lw=1.8, label="the next")
    finish(grid[0, 0], legend="lower right")
    label_outer(grid, xlabel="time $t$", ylabel=_VALUES)
    return figure


fig4 = fig1a


def fig1b(data: xarray.Dataset, lr: float, delta: float, norm: float, d: int, gamma: float) -> Figure:
    """Singular values of the first layer under descent without and with label noise, with the small-noise law."""
    figure, (left, right) = panels(11, 4.2, 1, 2, sharey=True)
    steps = data["step"].values
    for axes, values, title in (
        (left, data["descent"].values, "Gradient descent"),
        (right, data["noisy"].values[0], f"Label noise, δ = {delta:g}"),
    ):
        axes.plot(steps, values[:, 1:], color=NOISE, lw=1.1)
        axes.plot(steps, values[:, 0], color=SIGNAL, lw=1.8)
        finish(axes, log="y", xlabel="step", title=title)
    decay, first, _ = spectral.label_noise(math.sqrt(lr) * delta, norm, d)
    law = math.sqrt(2 * gamma) * np.exp(-float(decay) * lr * steps)
    right.plot(steps, law, color=THEORY, lw=1.2, ls=":", label="small-noise law of the others")
    label = "small-noise limit of the first, $d^{1/4}|A|^{1/2}$"
    right.axhline(float(first), color=THEORY, lw=1, ls="--", label=label)
    left.plot([], [], color=SIGNAL, lw=1.8, label="first singular value")
    left.plot([], [], color=NOISE, lw=1.1, label="the others (all equal)")
    left.set_ylabel(_VALUES)
    finish((left, right), legend="lower left")
    return figure


def fig3(data: xarray.Dataset) -> Figure:
    """Three paths and the central 80% of all, of both singular values and of the commutator."""
    figure, grid = panels(12, 4.2, 1, 3)
    series = (
        (data["s"].values[:, :, 0], r"$\sigma_1(W_1)$", SIGNAL),
        (data["s"].values[:, :, 1], r"$\sigma_2(W_1)$", TRAIN),
        (data["commutator"].values, r"$|K_1|_F$,  $K_1 = c_1 a^T - a c_1^T$", TEST),
    )
    later = data["time"].values > 0
    time = data["time"].values[later]
    for axes, (values, title, color) in zip(grid, series, strict=True):
        low, middle, high = np.quantile(values[:, later], (0.1, 0.5, 0.9), axis=0)
        label = f"80% of {data.sizes['path']} paths"
        axes.fill_between(time, low, high, color=color, alpha=0.15, lw=0, label=label)
        axes.plot(time, middle, color=color, lw=2, label="median")
        for i, style in enumerate(("-", "--", ":")):
            axes.plot(time, values[i, later], color=THEORY, lw=0.9, ls=style, label=f"path {i + 1}")
        finish(axes, log="y", xlabel="time $t$", title=title)
    grown = float(np.mean(data["s"].values[:, -1, 0] > data["s"].values[:, 0, 0]))
    grid[0].text(0.03, 0.04, f"{grown:.0%} of the paths have grown", transform=grid[0].transAxes, fontsize=9)
    rate = spectral.lyapunov(2)[1]
    label = rf"$e^{{\lambda_2 t}}$, $\lambda_2 = {rate:.3f}$"
    grid[1].plot(data["time"].values, np.exp(rate * data["time"].values), color=QUIET, lw=3, zorder=0, label=label)
    finish(grid[1], legend="lower left", legend_size=8)
    finish(grid[0], legend="upper left", legend_size=8)
    return figure


def fig2(data: xarray.Dataset, ranks: Mapping[float, np.ndarray], example: int, scales: Sequence[float]) -> Figure:
    """One student from a small and one from a large initialization, and sigma_3 / sigma_2 of all that fit, by
    initialization.
    """
    figure, (left, middle, right) = panels(13, 4.2, 1, 3)
    for axes, scale, size in ((left, scales[0], "small"), (middle, scales[-1], "large")):
        run = data.sel(scale=scale).isel(problem=min(example, data.sizes["problem"] - 1))
        later = run["step"].values > 0
        _draw_values(axes, run["step"].values[later], run["s"].values[later])
        finish(
            axes, log="x", xlabel="step", title=f"A {size} initialization, {scale:g} (problem {int(run['problem'])})"
        )
    finish(left, ylabel=_VALUES, legend="upper left", legend_size=8)
    for (scale, ratio), color in zip(ranks.items(), (SIGNAL, TEST, NOISE), strict=True):
        label = f"initialization {scale:g}: {int(np.sum(ratio < 0.1))} of {len(ratio)} below 0.1"
        _draw_distribution(right, ratio, color, label)
    label = r"$\sigma_3 / \sigma_2$ of $W_1$ at the end"
    _finish_distribution(right, 0.1, xlabel=label, title="All problems", legend="upper left", legend_size=8)
    return figure


def fig5(data: xarray.Dataset, example_run: xarray.Dataset, first_phase: np.ndarray, shown: int) -> Figure:
    """Loss and singular values of one student from a small initialization; how clear its first phase is over all
    problems.
    """
    figure, (left, middle, right) = panels(13, 4.2, 1, 3)
    part = example_run.sel(step=slice(0, shown))
    left.plot(part["step"], part["loss"], color=TRAIN, lw=1.8)
    title = f"Problem {int(part['problem'])}: two drops"
    finish(left, log="y", xlabel="step", ylabel="training loss", title=title)
    _draw_values(middle, part["step"].values, part["s"].values)
    legend = {"loc": "center left", "bbox_to_anchor": (0.0, 0.3)}
    title = "One direction after another"
    finish(middle, xlabel="step", ylabel=_VALUES, title=title, legend=legend, legend_size=8)
    _draw_distribution(right, first_phase, TEST)
    title = f"All problems: {int(np.sum(first_phase < 0.05))} of {len(first_phase)} below 0.05"
    _finish_distribution(right, 0.05, xlabel=r"$\sigma_2 / \sigma_1$ when $\sigma_1$ is half grown", title=title)
    return figure


def _draw_distribution(axes: Axes, ratio: np.ndarray, color: str, label: str | None = None) -> None:
    """The share of ratios below each value."""
    share = np.arange(1, len(ratio) + 1) / max(len(ratio), 1)
    axes.step(np.sort(ratio), share, where="post", color=color, label=label)


def _finish_distribution(axes: Axes, level: float, **properties: Any) -> None:
    axes.axvline(level, color=THEORY, lw=0.9, ls=":")
    finish(axes, log="x", ylabel="share of the students that fit", ylim=(0, 1.02), **properties)


def _draw_values(axes: Axes, steps: np.ndarray, values: np.ndarray) -> None:
    """Singular values: as many as the teacher has, which is two, and the others."""
    axes.plot(steps, values[:, 2:], color=NOISE, lw=1)
    axes.plot(steps, values[:, :2], color=SIGNAL, lw=1.8)
    axes.plot([], [], color=SIGNAL, lw=1.8, label="the first 2, as many as the teacher has")
    axes.plot([], [], color=NOISE, lw=1, label="the others")
    axes.set_ylim(bottom=0)
