"""Pictures of low-rank adapters on a pre-trained model."""

import matplotlib as mpl
import numpy as np
import xarray
from matplotlib.figure import Figure

from linnet.plot.style import NOISE, QUIET, SIGNAL, TEST, THEORY, TRAIN, canvas, tidy

_COLOURS = (TRAIN, SIGNAL, TEST, NOISE, THEORY)


def ranks(data: xarray.Dataset, level: float) -> Figure:
    """The loss of each batch beside that of a constant output, the same on a fixed batch, rises, and curvature."""
    figure = canvas(12, 8)
    panels = figure.subplots(2, 2)
    (batches, fixed), (rises, sharp) = panels
    step = data["step"].values
    batches.plot(step, data["constant"][0], color=QUIET, lw=3.5, label="a constant output, same batches", zorder=1)
    shades = mpl.colormaps["viridis"](np.linspace(0, 0.85, data.sizes["rank"]))  # ranks have an order
    for colour, rank in zip(shades, data["rank"].values, strict=True):
        one = data.sel(rank=rank)
        batches.plot(step, one["loss"], color=colour, lw=1, label=f"rank {rank}")
        fixed.plot(step, one["fixed"], color=colour, lw=1.6, label=f"rank {rank}")
    batches.set(title="A new batch at each step", xlabel="step", ylabel="loss of the batch")
    fixed.set(title="One fixed batch, no dropout", xlabel="step", ylabel="loss", ylim=batches.get_ylim())
    for axes in (batches, fixed):
        axes.legend(frameon=False, fontsize=9, loc="lower left")
    places = np.arange(data.sizes["rank"])
    named = (("loss", SIGNAL, "new batches"), ("constant", QUIET, "a constant output"), ("fixed", TRAIN, "fixed batch"))
    for i, (name, colour, word) in enumerate(named):
        share = (np.diff(data[name].values, axis=1) > 0).mean(axis=1)
        rises.bar(places + 0.27 * (i - 1), share, 0.25, color=colour, label=word)
    rises.axhline(0.5, color=THEORY, lw=1, ls="--")
    rises.set_xticks(places, [f"rank {rank}" for rank in data["rank"].values])
    rises.set(title="Share of steps at which the loss rises", ylim=(0, 0.75))
    rises.legend(frameon=False, fontsize=9, ncol=3, loc="upper center")
    at = data["look"].values
    sharp.plot(at, data["sharpness"] / level, "o-", color=SIGNAL, label=r"sharpness / $(2/\eta)$")
    adaptive = (data["adaptive"] / data["threshold"]).values
    sharp.plot(at, adaptive, "s-", color=TEST, label="preconditioned / Adam's threshold")
    sharp.plot(at[:1], data["saddle"][:1] / level, "x", color=THEORY, ms=10, mew=2, label=r"$\max_l |dL/dW_l|$")
    sharp.axhline(1, color=THEORY, lw=1.2, ls="--", label="the edge")
    sharp.set(title=f"Curvature over its threshold, rank {data['rank'].values[-1]}", xlabel="step", yscale="log")
    sharp.legend(frameon=False, fontsize=9, loc="center right", bbox_to_anchor=(1.0, 0.52))
    for axes in panels.ravel():
        tidy(axes)
    return figure


def heads(data: xarray.Dataset) -> Figure:
    """A row for each head: loss, Pearson's correlation, and the outputs, one standard deviation either way."""
    figure = canvas(13, 7.6)
    panels = figure.subplots(data.sizes["head"], 3, squeeze=False)
    check, mean, spread = data["check"].values, data["scores"].values.mean(), data["scores"].values.std()
    for (loss, pearson, outputs), head in zip(panels, data["head"].values, strict=True):
        for colour, lr in zip(_COLOURS, data["lr"].values, strict=False):
            one = data.sel(head=head, lr=lr)
            loss.plot(data["step"], one["loss"], color=colour, lw=0.5, alpha=0.5)
            loss.plot(check, one["development loss"], "o-", color=colour, ms=3, lw=1.8, label=rf"$\eta$ = {lr:g}")
            pearson.plot(check, one["pearson"], "o-", color=colour, ms=3, lw=1.6)
            centre, side = one["mean"].values, one["spread"].values
            outputs.fill_between(check, centre - side, centre + side, color=colour, alpha=0.25, lw=0)
            outputs.plot(check, centre, "o-", color=colour, ms=3, lw=1.4)
        loss.set(title=f"{head}: loss (bold: development)", ylabel="mean of $(f - y)^2$")
        loss.legend(frameon=False, fontsize=9, loc="best")
        pearson.set(title="Pearson, development", ylim=(-0.4, 1))
        pearson.axhline(0, color=THEORY, lw=0.8)
        outputs.axhspan(mean - spread, mean + spread, color=QUIET, alpha=0.2, lw=0, label="scores")
        outputs.axhline(mean, color=THEORY, lw=0.9, ls="--")
        outputs.set(title="Outputs: mean ± spread", ylim=(-0.2, 4.4))
        outputs.legend(frameon=False, fontsize=9, loc="upper left")
        for axes in (loss, pearson, outputs):
            axes.set_xlabel("step")
            tidy(axes)
    return figure
