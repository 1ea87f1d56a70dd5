"""Figures of low-rank adapters on a pre-trained model."""

import numpy as np
import xarray
from matplotlib.figure import Figure

from linnet.plot.style import NOISE, QUIET, SIGNAL, TEST, THEORY, TRAIN, finish, panels, ramp

_COLORS = (TRAIN, SIGNAL, TEST, NOISE, THEORY)


def fig20(data: xarray.Dataset, lr: float) -> Figure:
    """The loss of each batch beside that of a constant output, the same on a fixed batch, rises, and curvature."""
    figure, ((batches, fixed), (rises, sharp)) = panels(12, 8, 2, 2)
    step, level = data["step"].values, 2 / lr
    batches.plot(step, data["constant"][0], color=QUIET, lw=3.5, label="a constant output, same batches", zorder=1)
    for color, rank in zip(ramp(data.sizes["rank"]), data["rank"].values, strict=True):
        one = data.sel(rank=rank)
        batches.plot(step, one["loss"], color=color, lw=1, label=f"rank {rank}")
        fixed.plot(step, one["fixed"], color=color, lw=1.6, label=f"rank {rank}")
    title = "A new batch at each step"
    finish(batches, title=title, xlabel="step", ylabel="loss of the batch", legend="best")
    title, limits = "One fixed batch, no dropout", batches.get_ylim()
    finish(fixed, title=title, xlabel="step", ylabel="loss", ylim=limits, legend="best")
    places = np.arange(data.sizes["rank"])
    named = (("loss", SIGNAL, "new batches"), ("constant", QUIET, "a constant output"), ("fixed", TRAIN, "fixed batch"))
    for i, (name, color, word) in enumerate(named):
        share = (np.diff(data[name].values, axis=1) > 0).mean(axis=1)
        rises.bar(places + 0.27 * (i - 1), share, 0.25, color=color, label=word)
    rises.axhline(0.5, color=THEORY, lw=1, ls="--")
    rises.set_xticks(places, [f"rank {rank}" for rank in data["rank"].values])
    legend = {"loc": "upper center", "ncol": 3}
    finish(rises, title="Share of steps at which the loss rises", ylim=(0, 0.75), legend=legend)
    at = data["record"].values
    sharp.plot(at, data["sharpness"] / level, "o-", color=SIGNAL, label=r"sharpness / $(2/\eta)$")
    adaptive = (data["adaptive"] / data["threshold"]).values
    sharp.plot(at, adaptive, "s-", color=TEST, label="preconditioned / Adam's threshold")
    sharp.plot(at[:1], data["saddle"][:1] / level, "x", color=THEORY, ms=10, mew=2, label=r"$\max_l |dL/dW_l|$")
    sharp.axhline(1, color=THEORY, lw=1.2, ls="--", label="the edge")
    title = f"Curvature over its threshold, rank {data['rank'].values[-1]}"
    legend = {"loc": "center right", "bbox_to_anchor": (1.0, 0.52)}
    finish(sharp, log="y", title=title, xlabel="step", legend=legend)
    return figure


def fig21(data: xarray.Dataset) -> Figure:
    """A row for each head: loss, Pearson's correlation, and the outputs, one standard deviation either way."""
    figure, grid = panels(13, 3.8 * data.sizes["head"], data.sizes["head"], 3, squeeze=False)
    check, mean, spread = data["check"].values, data["scores"].values.mean(), data["scores"].values.std()
    for (loss, pearson, outputs), head in zip(grid, data["head"].values, strict=True):
        for color, lr in zip(_COLORS, data["lr"].values, strict=False):
            one = data.sel(head=head, lr=lr)
            loss.plot(data["step"], one["loss"], color=color, lw=0.5, alpha=0.5)
            loss.plot(check, one["development loss"], "o-", color=color, ms=3, lw=1.8, label=rf"$\eta$ = {lr:g}")
            pearson.plot(check, one["pearson"], "o-", color=color, ms=3, lw=1.6)
            center, side = one["mean"].values, one["spread"].values
            outputs.fill_between(check, center - side, center + side, color=color, alpha=0.25, lw=0)
            outputs.plot(check, center, "o-", color=color, ms=3, lw=1.4)
        title = f"{head}: loss (bold: development)"
        finish(loss, xlabel="step", title=title, ylabel="mean of $(f - y)^2$", legend="best")
        pearson.axhline(0, color=THEORY, lw=0.8)
        finish(pearson, xlabel="step", title="Pearson, development", ylim=(-0.4, 1))
        outputs.axhspan(mean - spread, mean + spread, color=QUIET, alpha=0.2, lw=0, label="scores")
        outputs.axhline(mean, color=THEORY, lw=0.9, ls="--")
        finish(outputs, xlabel="step", title="Outputs: mean ± spread", ylim=(-0.2, 4.4), legend="upper left")
    return figure
