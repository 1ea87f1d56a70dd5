"""Pictures of mild sharpening: which images take a network to the edge, and how many of them."""

from typing import Any

import matplotlib as mpl
import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from linnet.curves import rise_count
from linnet.plot.style import NOISE, QUIET, SIGNAL, TEST, THEORY, TRAIN, canvas, tidy

_ROWS = ((SIGNAL, 2.2, "-"), (TRAIN, 2.2, "-"), (SIGNAL, 1.0, "--"), (NOISE, 1.0, "--"), (TRAIN, 1.0, "--"))
_CALM = {"bumps": SIGNAL, "CIFAR-10": TEST, "texture": TRAIN}


def _band(axes: Axes, look: np.ndarray, pair: np.ndarray, label: str, colour: str, width: float, style: str) -> None:
    """Pairs of consecutive steps: their mean, and from the lower to the higher of the two."""
    axes.fill_between(look[:, 0], pair.min(axis=1), pair.max(axis=1), color=colour, alpha=0.25, lw=0)
    axes.plot(look[:, 0], pair.mean(axis=1), color=colour, lw=width, ls=style, label=label)


def _line(axes: Axes, lr: float) -> None:
    axes.axhline(2 / lr, color=THEORY, lw=1.2, ls=":", label="2 / lr")


def mild(data: xarray.Dataset, *, lr: float, picture_lr: float, calm_lr: float, law: float | None) -> Figure:
    """The UNet's sharpness and its images above; below that of N samples, in time and in the end."""
    calm = "calm_sharpness" in data
    figure = canvas(15 if calm else 13, 8)
    rows: Any = figure.subfigures(2, 1)
    above, below = rows
    parts = above.subfigures(1, 3 if calm else 2, width_ratios=(1.3, 0.9, 0.9) if calm else (1.2, 0.8))
    _pictures(parts[0].subplots(), data, picture_lr)
    if calm:
        _calm(parts[1].subplots(), data, calm_lr)
    images = parts[-1].subplots(2, 3).ravel()
    for i, image in enumerate(data["picture"].values[:, 0]):
        images[i].imshow(image, cmap="gray", vmin=0, vmax=1)
        images[i].set_title(str(data["row"].values[i]), fontsize=9, color=_ROWS[i][0])
    for axes in images:
        axes.axis("off")
    parts[-1].suptitle("image and contrast (standard deviation)", fontsize=10)
    in_time, in_the_end = below.subplots(1, 2, width_ratios=(1.4, 1))
    _samples(in_time, data, lr, "CIFAR-10" if law else "synthetic stand-in, Gaussian classes")
    _ends(in_the_end, data, lr, law)
    for axes in figure.axes:
        if axes.axison:
            tidy(axes)
    return figure


def _pictures(axes: Axes, data: xarray.Dataset, lr: float) -> None:
    look = data["picture_look"].values
    for (colour, width, style), name in zip(_ROWS, data["row"].values, strict=True):
        part = data.sel(row=name)
        count = int(rise_count(part["picture_loss"].values[0]))
        _band(axes, look, part["picture_sharpness"].values[0], f"{name}: {count} rises", colour, width, style)
    _line(axes, lr)
    axes.set(xlabel="step", ylabel="sharpness", title=f"UNet on one image, lr {lr:g}", ylim=(0, 3.6 / lr))
    words = "image, contrast: rises of the loss"
    axes.legend(frameon=False, fontsize=8, loc="upper right", ncols=2, title=words, title_fontsize=8)


def _calm(axes: Axes, data: xarray.Dataset, lr: float) -> None:
    look = data["calm_look"].values
    for name in data["calm"].values:
        for draw, pair in enumerate(data["calm_sharpness"].sel(calm=name).values):
            label = {"label": str(name), "lw": 1.8} if draw == 0 else {"lw": 0.7, "alpha": 0.6}
            axes.plot(look[:, 0], pair.mean(axis=1), color=_CALM[str(name)], **label)
    _line(axes, lr)
    axes.set(xlabel="step", title=f"the same near gradient flow, lr {lr:g}", ylim=(0, 2.9 / lr))
    axes.legend(frameon=False, fontsize=8, loc="upper left", ncols=2)


def _samples(axes: Axes, data: xarray.Dataset, lr: float, what: str) -> None:
    look = data["look"].values
    for colour, n in zip(_colours(data.sizes["samples"]), data["samples"].values, strict=True):
        part = data.sel(samples=n)
        count = int(rise_count(part["loss"].values[0]))
        for pair in part["sharpness"].values[1:]:
            axes.plot(look[:, 0], pair.mean(axis=1), color=colour, lw=0.7, alpha=0.5)
        _band(axes, look, part["sharpness"].values[0], f"N = {n}: {count} rises", colour, 1.8, "-")
    _line(axes, lr)
    axes.set(xlabel="step", ylabel="sharpness", title=f"ReLU network, {what}, lr {lr:g}", ylim=(0, 2.8 / lr))
    axes.legend(frameon=False, fontsize=8, loc="upper left", ncols=3)


def _ends(axes: Axes, data: xarray.Dataset, lr: float, law: float | None) -> None:
    n, ends = data["samples"].values, data["end"].values
    at_lr = data["sharpness"].values[:, :, -5:].mean(axis=(2, 3))
    axes.plot(n, ends, "o", color=SIGNAL, ms=6, mfc="none")
    axes.plot(n, at_lr, "x", color=THEORY, ms=5)
    axes.plot(
        [], [], "o", color=SIGNAL, mfc="none", label=f"without an edge (lr {lr:g}, or {lr / 2:g} where it is met)"
    )
    axes.plot([], [], "x", color=THEORY, label=f"lr {lr:g}")
    if law is not None:
        wide = np.geomspace(n[0] / 1.3, n[-1] * 1.3, 50)
        axes.plot(wide, law * np.sqrt(wide), color=QUIET, lw=1.4, label=rf"${law:g}\,\sqrt{{N}}$")
        axes.axvline((2 / (law * lr)) ** 2, color=QUIET, lw=1, ls=":")
    _line(axes, lr)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set(xlabel="samples $N$", ylabel="sharpness", title="in the end")
    axes.set_xticks(n, [str(one) for one in n])
    axes.minorticks_off()
    axes.set_xlim(n[0] / 1.3, n[-1] * 1.3)
    low, high = min(ends.min(), at_lr.min()), max(ends.max(), 2 / lr)
    axes.set_ylim(0.8 * low, 1.6 * high)
    ticks = [t for t in (0.1, 0.2, 0.3, 0.5, 1, 2, 3, 5, 10, 20, 30, 50, 100) if 0.8 * low < t < 1.6 * high]
    axes.set_yticks(ticks, [f"{t:g}" for t in ticks])
    axes.legend(frameon=False, fontsize=8, loc="upper left")


def _colours(count: int) -> np.ndarray:
    return np.asarray(mpl.colormaps["viridis"](np.linspace(0, 0.85, count)))
