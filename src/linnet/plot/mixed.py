"""Figures of mixed dynamics."""

from typing import Any

import matplotlib as mpl
import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize, TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Polygon

from linnet.plot.style import NOISE, SIGNAL, TEST, THEORY, TRAIN, finish, panels


def fig1(data: xarray.Dataset, rank: int) -> Figure:
    """Errors and all singular values of gradient descent (dashed) and of the mixed equation (solid)."""
    figure, (left, right) = panels(11, 4.4, 1, 2)
    steps, test = data["step"].values, data["test"].values
    best = int(np.argmin(test))
    for name, color in (("test", TEST), ("train", TRAIN)):
        left.plot(steps, data[f"{name}_mixed"], color=color, lw=3, alpha=0.4, label=f"{name}, mixed equation")
        left.plot(steps, data[name], color=color, lw=1.4, ls="--", label=f"{name}, gradient descent")
    left.plot(
        data["shown"], data["test_closed_form"], "o", color=THEORY, ms=3, label="test, closed form (no simulation)"
    )
    left.annotate(
        f"best {test[best]:.3f}\nstep {steps[best]}",
        (steps[best], test[best]),
        (0.42, 0.30),
        textcoords="axes fraction",
        arrowprops={"arrowstyle": "->", "color": TEST},
        color=TEST,
        fontsize=9,
    )
    title = "Stop between signal and noise"
    finish(left, xlabel="step", ylabel="mean squared error", title=title, ylim=(0, None), legend="best", legend_size=8)

    descent, mixed = data["values"].values, data["values_mixed"].values
    # hundreds of noise modes: pixels in the vector files too
    right.plot(steps, mixed[:, rank:], color=NOISE, lw=0.5, alpha=0.35, rasterized=True)
    shown = np.unique(np.round(np.geomspace(rank, descent.shape[1] - 1, 12)).astype(int))
    right.plot(steps, descent[:, shown], color=THEORY, lw=0.7, ls="--", dashes=(6, 5), rasterized=True)
    right.plot(steps, mixed[:, :rank], color=SIGNAL, lw=2.4, alpha=0.45)
    right.plot(steps, descent[:, :rank], color=SIGNAL, lw=1, ls="--")
    c = float(data.attrs["c"])
    right.axhline(c, color=THEORY, lw=0.9, ls=":")
    box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.5}
    right.text(steps[-1], c * 0.93, f"lazy below c = {c:.3g}", ha="right", va="top", fontsize=8, bbox=box)
    for color, width, style, label in (
        (SIGNAL, 2.4, "-", f"{rank} signals, mixed equation"),
        (SIGNAL, 1.0, "--", "… gradient descent"),
        (NOISE, 1.2, "-", f"{descent.shape[1] - rank} noise modes, mixed equation"),
        (THEORY, 0.7, "--", "… gradient descent (a dozen)"),
    ):
        right.plot([], [], color=color, lw=width, ls=style, label=label)
    white = {"frameon": True, "facecolor": "white", "edgecolor": "none", "framealpha": 0.85}
    finish(
        right,
        log="y",
        xlabel="step",
        ylabel="singular values of $A$",
        title="One mode after another leaves the lazy regime",
        ylim=(max(descent[:, -1].max() * 0.3, c / 30), descent.max() * 1.6),
        legend={"loc": "lower right", "ncols": 2, **white},
        legend_size=8,
    )
    return figure


def fig2(data: xarray.Dataset, signal_rank: float) -> Figure:
    """Maps over the exponents of variance and width, with the transition lines and the degenerate regions; and the
    smallest test error over the sum of the exponents, measured and as d grows.
    """
    figure, grid = panels(16.5, 9, 2, 3)
    test, rank, step = (data[n].transpose("gamma_w", "gamma_sigma2") for n in ("test", "stable_rank", "step"))
    most = float(np.clip(rank.max(), 2 * signal_rank, 4 * signal_rank))
    _panel(figure, grid[0, 0], test, "Smallest test error on the way", LogNorm(float(test.min()), 1.0), "viridis")
    title = f"Stable rank there (the signal has {signal_rank:.1f})"
    bar = _panel(figure, grid[0, 1], rank.clip(max=most), title, TwoSlopeNorm(signal_rank, 1, most), "RdBu_r")
    inner = (signal_rank, 2 * signal_rank)
    bar.set_ticks([1, *inner, most], labels=["1", *(f"{value:.1f}" for value in inner), f"≥ {most:.0f}"])
    norm = LogNorm(max(1, float(step.min())), float(step.max()))
    _panel(figure, grid[1, 0], step.clip(min=1), "Step of the minimum", norm, "cividis")
    distances = {grid[1, 2]: ("distance", "the closure's own part")}
    if "distance_euler" in data:
        distances = {grid[1, 1]: ("distance_euler", "to the iterated equation"), **distances}
    else:
        figure.delaxes(grid[1, 1])
    over = {axes: _exponents(data[name]) for axes, (name, _) in distances.items()}
    logs = {axes: values.copy(data=np.log(values.values)) for axes, values in over.items()}
    least = min(float(np.quantile(log, 0.01)) for log in logs.values())
    for axes, log in logs.items():
        _panel(figure, axes, log, f"ln |A − Â|² / d², {distances[axes][1]}", Normalize(least, 0), "magma")
    _trend(grid[0, 2], data)
    variance = r"$\gamma_{\sigma^2}$   (variance $d^{\gamma_{\sigma^2}}$)"
    for axes in (grid[0, 0], grid[0, 1], grid[1, 0], *distances):
        axes.set_xlabel(variance)
    for axes in grid[:, 0]:
        axes.set_ylabel(r"$\gamma_w$   (width $d^{\gamma_w}$)")
    handles: list[Any] = [
        mpl.lines.Line2D([], [], color="black", lw=2, label=r"lazy above: $\gamma_{\sigma^2} + \gamma_w = 1$"),
        mpl.lines.Line2D(
            [], [], color="#ef4444", lw=2, label=r"infinite noise above: $2\gamma_{\sigma^2} + \gamma_w = 0$"
        ),
        Patch(facecolor="none", edgecolor="#ef4444", hatch="///", label="initialization drowns the signal"),
        Patch(facecolor="none", edgecolor="0.35", hatch="...", label="fewer neurons than dimensions"),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=4, frameon=False, fontsize=9)
    return figure


def _exponents(values: xarray.DataArray) -> xarray.DataArray:
    """Values over the two exponents, whichever grid they are of."""
    names = {name: name.removesuffix("_euler") for name in map(str, values.dims)}
    return values.rename(names).transpose("gamma_w", "gamma_sigma2")


def _trend(axes: Axes, data: xarray.Dataset) -> None:
    """The smallest test error over the sum of the exponents: of networks, and of the mode model as d grows."""
    sizes, sums = data["trend_d"].values, data["trend_sum"].values
    colors = mpl.colormaps["viridis"](np.linspace(0.85, 0.1, len(sizes)))
    for d, errors, color in zip(sizes, data["trend_test"].values, colors, strict=True):
        exponent = int(np.floor(np.log10(d)))
        power = f"10^{{{exponent}}}" if d == 10.0**exponent else f"{d:g}"
        axes.plot(sums, errors, color=color, lw=1.6, label=f"mode model, $d = {power}$")
    total = data["gamma_sigma2"] + data["gamma_w"]
    inside = (data["gamma_w"] > 1) & (2 * data["gamma_sigma2"] + data["gamma_w"] < 0)
    chosen = (inside & (total > sums[0]) & (total < sums[-1])).transpose(*data["test"].dims).values
    x = total.transpose(*data["test"].dims).values[chosen]
    axes.plot(x, data["test"].values[chosen], ".", color=THEORY, ms=4, label=f"networks, $d = {sizes[0]:g}$")
    axes.axvline(1, color="black", lw=1.2)
    finish(
        axes,
        log="y",
        xlabel=r"$\gamma_{\sigma^2} + \gamma_w$ (lazy beyond 1)",
        ylabel="smallest test error",
        title="Below the line, as d grows",
        legend="lower right",
        legend_size=8,
    )


def _panel(figure: Figure, axes: Axes, values: xarray.DataArray, title: str, norm: Any, colors: str) -> Any:
    x, y = values["gamma_sigma2"].values, values["gamma_w"].values
    image = axes.pcolormesh(x, y, values.values, norm=norm, cmap=colors, shading="nearest", rasterized=True)
    left, right, bottom, top = x[0], x[-1], y[0], y[-1]
    edge_x, edge_y = (x[1] - x[0]) / 2, (y[1] - y[0]) / 2
    axes.set_xlim(left - edge_x, right + edge_x)
    axes.set_ylim(bottom - edge_y, top + edge_y)
    line = np.array([left - edge_x, right + edge_x])
    for color, lw in (("white", 4), ("black", 2)):  # a light rim keeps it visible on dark cells
        axes.plot(line, 1 - line, color=color, lw=lw)
    for color, lw in (("white", 4), ("#ef4444", 2)):
        axes.plot(line, -2 * line, color=color, lw=lw)
    corner = [(-(top + edge_y) / 2, top + edge_y), (right + edge_x, top + edge_y), (right + edge_x, 0), (0, 0)]
    axes.add_patch(Polygon(corner, facecolor="none", edgecolor="#ef4444", hatch="///", lw=0, alpha=0.6))
    narrow = [
        (left - edge_x, bottom - edge_y),
        (right + edge_x, bottom - edge_y),
        (right + edge_x, 1),
        (left - edge_x, 1),
    ]
    axes.add_patch(Polygon(narrow, facecolor="none", edgecolor="0.85", hatch="...", lw=0, alpha=0.5))
    axes.set_title(title, fontsize=11)
    return figure.colorbar(image, ax=axes)
