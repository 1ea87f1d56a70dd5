"""Pictures of spectral bias."""

from collections.abc import Mapping

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from linnet.plot.style import NOISE, QUIET, SIGNAL, TEST, THEORY, TRAIN, canvas, tidy


def layers(data: xarray.Dataset, rank: int, shown: float) -> Figure:
    """The largest singular values of the first layer in time, a panel for each start, of the first problem."""
    figure = canvas(11, 6.4)
    panels = figure.subplots(2, 2, sharex=True).ravel()
    part = data.isel(problem=0).sel(time=slice(0, shown))
    for axes, name in zip(panels, data["start"].values, strict=True):
        values = part["first"].sel(start=name)
        end = data["first"].isel(problem=0, time=-1).sel(start=name).values
        axes.plot(part["time"], values[:, :rank], color=SIGNAL, lw=1.8)
        axes.plot(part["time"], values[:, rank], color=NOISE, lw=1.8)
        ratio = end[rank] / end[rank - 1]
        axes.set_title(f"{name}:  σ{rank + 1}/σ{rank} ends at {ratio:.3f}", fontsize=11)
        axes.set_ylim(bottom=0)
        tidy(axes)
    panels[0].plot([], [], color=SIGNAL, lw=1.8, label=f"the first {rank}, as many as outputs")
    panels[0].plot([], [], color=NOISE, lw=1.8, label="the next")
    panels[0].legend(frameon=False, fontsize=9, loc="lower right")
    for axes in panels[2:]:
        axes.set_xlabel("time $t$")
    for axes in panels[::2]:
        axes.set_ylabel("singular values of $W_1$")
    return figure


def label_noise(data: xarray.Dataset, law: np.ndarray, first: float, delta: float) -> Figure:
    """Singular values of the first layer under descent without and with label noise."""
    figure = canvas(11, 4.2)
    left, right = figure.subplots(1, 2, sharey=True)
    steps = data["step"].values
    for axes, values, title in (
        (left, data["descent"].values, "Gradient descent"),
        (right, data["noisy"].values[0], f"Label noise, δ = {delta:g}"),
    ):
        axes.plot(steps, values[:, 1:], color=NOISE, lw=1.1)
        axes.plot(steps, values[:, 0], color=SIGNAL, lw=1.8)
        axes.set(xlabel="step", title=title)
        axes.set_yscale("log")
        tidy(axes)
    right.plot(steps, law, color=THEORY, lw=1.2, ls=":", label="small-noise law of the others")
    right.axhline(first, color=THEORY, lw=1, ls="--", label="small-noise limit of the first, $d^{1/4}|A|^{1/2}$")
    left.plot([], [], color=SIGNAL, lw=1.8, label="first singular value")
    left.plot([], [], color=NOISE, lw=1.1, label="the others (all equal)")
    left.set_ylabel("singular values of $W_1$")
    for axes in (left, right):
        axes.legend(frameon=False, fontsize=9, loc="lower left")
    return figure


def noise_paths(data: xarray.Dataset, exponents: np.ndarray) -> Figure:
    """Three paths and the middle 80% of all, of both singular values and of the commutator."""
    figure = canvas(12, 4.2)
    panels = figure.subplots(1, 3)
    time, paths = data["time"].values, data.sizes["path"]
    series = (
        (data["s"].values[:, :, 0], r"$\sigma_1(W_1)$", SIGNAL),
        (data["s"].values[:, :, 1], r"$\sigma_2(W_1)$", TRAIN),
        (data["commutator"].values, r"$|K_1|_F$,  $K_1 = c_1 a^T - a c_1^T$", TEST),
    )
    for axes, (values, title, colour) in zip(panels, series, strict=True):
        seen = time > 0
        low, middle, high = np.quantile(values[:, seen], (0.1, 0.5, 0.9), axis=0)
        axes.fill_between(time[seen], low, high, color=colour, alpha=0.15, lw=0, label=f"80% of {paths} paths")
        axes.plot(time[seen], middle, color=colour, lw=2, label="median")
        for i, style in enumerate(("-", "--", ":")):
            axes.plot(time[seen], values[i, seen], color=THEORY, lw=0.9, ls=style, label=f"path {i + 1}")
        axes.set(xlabel="time $t$", title=title)
        axes.set_yscale("log")
        tidy(axes)
    grown = float(np.mean(data["s"].values[:, -1, 0] > data["s"].values[:, 0, 0]))
    panels[0].text(0.03, 0.04, f"{grown:.0%} of the paths have grown", transform=panels[0].transAxes, fontsize=9)
    guide = np.exp(exponents[1] * time)
    panels[1].plot(
        time, guide, color=QUIET, lw=3, zorder=0, label=rf"$e^{{\lambda_2 t}}$, $\lambda_2 = {exponents[1]:.3f}$"
    )
    panels[1].legend(frameon=False, fontsize=8, loc="lower left")
    panels[0].legend(frameon=False, fontsize=8, loc="upper left")
    return figure


def students(
    data: xarray.Dataset, ranks: Mapping[float, np.ndarray], example: int, scales: tuple[float, float]
) -> Figure:
    """One student from a small and one from a large start, and sigma_3 / sigma_2 of all that fit, by start."""
    figure = canvas(13, 4.2)
    left, middle, right = figure.subplots(1, 3)
    for axes, scale, word in ((left, scales[0], "small"), (middle, scales[1], "large")):
        run = data.sel(scale=scale).isel(problem=example)
        seen = run["step"].values > 0
        _values(axes, run["step"].values[seen], run["s"].values[seen], 2)
        axes.set(xlabel="step", title=f"A {word} start, {scale:g} (problem {int(run['problem'])})")
        axes.set_xscale("log")
    left.set_ylabel("singular values of $W_1$")
    left.legend(frameon=False, fontsize=8, loc="upper left")
    for (scale, ratio), colour in zip(ranks.items(), (SIGNAL, TEST, NOISE), strict=True):
        label = f"start {scale:g}: {int(np.sum(ratio < 0.1))} of {len(ratio)} below 0.1"
        _distribution(right, ratio, colour, label)
    right.axvline(0.1, color=THEORY, lw=0.9, ls=":")
    right.set(
        xlabel=r"$\sigma_3 / \sigma_2$ of $W_1$ at the end",
        ylabel="share of the students that fit",
        title="All problems",
    )
    right.set_xscale("log")
    right.set_ylim(0, 1.02)
    right.legend(frameon=False, fontsize=8, loc="upper left")
    tidy(right)
    return figure


def phases(run: xarray.Dataset, ratio: np.ndarray, shown: int) -> Figure:
    """Loss and singular values of one student from a small start; how clear its first phase is over all problems."""
    figure = canvas(13, 4.2)
    left, middle, right = figure.subplots(1, 3)
    part = run.sel(step=slice(0, shown))
    left.plot(part["step"], part["loss"], color=TRAIN, lw=1.8)
    left.set(xlabel="step", ylabel="training loss", title=f"Problem {int(run['problem'])}: two drops")
    left.set_yscale("log")
    tidy(left)
    _values(middle, part["step"].values, part["s"].values, 2)
    middle.set(xlabel="step", ylabel="singular values of $W_1$", title="One direction after another")
    middle.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(0.0, 0.3))
    below = int(np.sum(ratio < 0.05))
    _distribution(right, ratio, TEST)
    right.axvline(0.05, color=THEORY, lw=0.9, ls=":")
    right.set(
        xlabel=r"$\sigma_2 / \sigma_1$ when $\sigma_1$ is half grown",
        ylabel="share of the students that fit",
        title=f"All problems: {below} of {len(ratio)} below 0.05",
    )
    right.set_xscale("log")
    right.set_ylim(0, 1.02)
    tidy(right)
    return figure


def _distribution(axes: Axes, ratio: np.ndarray, colour: str, label: str | None = None) -> None:
    """The share of ratios below each value."""
    share = np.arange(1, len(ratio) + 1) / max(len(ratio), 1)
    axes.step(np.sort(ratio), share, where="post", color=colour, label=label)


def _values(axes: Axes, steps: np.ndarray, values: np.ndarray, rank: int) -> None:
    """The teacher's directions, the one after them and the rest."""
    axes.plot(steps, values[:, rank:], color=NOISE, lw=1)
    axes.plot(steps, values[:, :rank], color=SIGNAL, lw=1.8)
    axes.plot([], [], color=SIGNAL, lw=1.8, label=f"the first {rank}, as many as the teacher has")
    axes.plot([], [], color=NOISE, lw=1, label="the others")
    axes.set_ylim(bottom=0)
    tidy(axes)
