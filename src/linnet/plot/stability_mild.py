"""Figures of mild sharpening: which images take a network to the edge, and how many of them."""

from typing import Any

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from linnet.curves import rise_count
from linnet.plot.style import NOISE, QUIET, SIGNAL, TEST, THEORY, TRAIN, canvas, finish, ramp

_COLORS = {"bumps": SIGNAL, "texture": TRAIN, "checkerboard": NOISE, "CIFAR-10": TEST}


def _draw_pairs(axes: Axes, steps: np.ndarray, pair: np.ndarray, label: str, color: str, lw: float, ls: str) -> None:
    """Pairs of consecutive steps: their mean, and from the lower to the higher of the two."""
    axes.fill_between(steps[:, 0], pair.min(axis=1), pair.max(axis=1), color=color, alpha=0.25, lw=0)
    axes.plot(steps[:, 0], pair.mean(axis=1), color=color, lw=lw, ls=ls, label=label)


def _draw_threshold(axes: Axes, lr: float) -> None:
    axes.axhline(2 / lr, color=THEORY, lw=1.2, ls=":", label="2 / lr")


def fig9(data: xarray.Dataset, lr: float, picture_lr: float, large_lr: float, law: float | None) -> Figure:
    """The UNet's sharpness and its images above; below that of N samples, in time and in the end."""
    figure = canvas(15, 8)
    rows: Any = figure.subfigures(2, 1)
    above, below = rows
    parts = above.subfigures(1, 3, width_ratios=(1.3, 1.0, 0.8))
    _pictures(parts[0].subplots(), data, "picture", picture_lr)
    _pictures(parts[1].subplots(), data, "large", large_lr)
    images = parts[2].subplots(2, 2).ravel()
    for axes, kind in zip(images, data["kind"].values, strict=False):
        axes.imshow(data["picture"].sel(kind=kind).values[0], cmap="gray", vmin=0, vmax=1)
        axes.set_title(str(kind), fontsize=9, color=_COLORS[str(kind)])
    for axes in images:
        axes.axis("off")
    parts[2].suptitle("images of one contrast", fontsize=10)
    in_time, in_the_end = below.subplots(1, 2, width_ratios=(1.4, 1))
    _samples(in_time, data, lr, "CIFAR-10" if law else "synthetic stand-in, Gaussian classes")
    _ends(in_the_end, data, lr, law)
    return figure


def _pictures(axes: Axes, data: xarray.Dataset, name: str, lr: float) -> None:
    """All draws of every kind; in the legend how often the loss rose, of the least to the most."""
    record = data[f"{name}_record"].values
    runs, losses = data[f"{name}_sharpness"], data[f"{name}_loss"]
    for kind, each, loss in zip(runs[runs.dims[0]].values, runs.values, losses.values, strict=True):
        color, risen = _COLORS[str(kind)], np.atleast_1d(rise_count(loss))
        counts = f"{risen.min()}" if risen.min() == risen.max() else f"{risen.min()} to {risen.max()}"
        _draw_pairs(axes, record, each[0], f"{kind}: {counts}", color, 1.8, "-")
        for pair in each[1:]:
            axes.plot(record[:, 0], pair.mean(axis=1), color=color, lw=0.7, alpha=0.6)
    _draw_threshold(axes, lr)
    legend = {"loc": "upper left", "ncols": 2, "title": "rises of the loss", "title_fontsize": 8}
    title = f"UNet on one image, lr {lr:g}"
    finish(axes, xlabel="step", legend_size=8, title=title, ylabel="sharpness", ylim=(0, 3.2 / lr), legend=legend)


def _samples(axes: Axes, data: xarray.Dataset, lr: float, what: str) -> None:
    record = data["record"].values
    for color, n in zip(ramp(data.sizes["samples"]), data["samples"].values, strict=True):
        part = data.sel(samples=n)
        count = int(rise_count(part["loss"].values[0]))
        for pair in part["sharpness"].values[1:]:
            axes.plot(record[:, 0], pair.mean(axis=1), color=color, lw=0.7, alpha=0.5)
        _draw_pairs(axes, record, part["sharpness"].values[0], f"N = {n}: {count} rises", color, 1.8, "-")
    _draw_threshold(axes, lr)
    legend, title = {"loc": "upper left", "ncols": 3}, f"ReLU network, {what}, lr {lr:g}"
    finish(axes, xlabel="step", legend_size=8, title=title, ylabel="sharpness", ylim=(0, 2.8 / lr), legend=legend)


def _ends(axes: Axes, data: xarray.Dataset, lr: float, law: float | None) -> None:
    n, ends = data["samples"].values, data["end"].values
    at_lr = data["sharpness"].values[:, :, -5:].mean(axis=(2, 3))
    axes.plot(n, ends, "o", color=SIGNAL, ms=6, mfc="none")
    axes.plot(n, at_lr, "x", color=THEORY, ms=5)
    label = f"without an edge (lr {lr:g}, or {lr / 2:g} where it is met)"
    axes.plot([], [], "o", color=SIGNAL, mfc="none", label=label)
    axes.plot([], [], "x", color=THEORY, label=f"lr {lr:g}")
    if law is not None:
        wide = np.geomspace(n[0] / 1.3, n[-1] * 1.3, 50)
        axes.plot(wide, law * np.sqrt(wide), color=QUIET, lw=1.4, label=rf"${law:g}\,\sqrt{{N}}$")
        axes.axvline((2 / (law * lr)) ** 2, color=QUIET, lw=1, ls=":")
    _draw_threshold(axes, lr)
    low, high = min(ends.min(), at_lr.min()), max(ends.max(), 2 / lr)
    finish(
        axes,
        log="xy",
        xlabel="samples $N$",
        ylabel="sharpness",
        title="in the end",
        xlim=(n[0] / 1.3, n[-1] * 1.3),
        ylim=(0.8 * low, 1.6 * high),
        legend="upper left",
        legend_size=8,
    )
    axes.set_xticks(n, [str(one) for one in n])
    axes.minorticks_off()
    ticks = [t for t in (0.1, 0.2, 0.3, 0.5, 1, 2, 3, 5, 10, 20, 30, 50, 100) if 0.8 * low < t < 1.6 * high]
    axes.set_yticks(ticks, [f"{t:g}" for t in ticks])
