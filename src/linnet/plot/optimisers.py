"""Pictures of optimisers."""

import xarray
from matplotlib.figure import Figure

from linnet.plot.style import NOISE, SIGNAL, THEORY, canvas, tidy


def edges(data: xarray.Dataset, beta: float, lr: float) -> Figure:
    """A column for each optimiser: sharpness over its limit, and the loss."""
    limits = {
        "descent": r"$2/\eta$",
        "heavy ball": rf"$2(1+b)/\eta$, $b = {beta:g}$",
        "Nesterov": rf"$2(1+b)/((1+2b)\eta)$, $b = {beta:g}$",
        "Adam": rf"$38/\eta$, $\eta = {lr:g}$",
    }
    figure = canvas(14, 5.6)
    panels = figure.subplots(2, len(limits), sharex=True, sharey="row", height_ratios=(1.5, 1))
    step = data["step"]
    for (above, below), (name, limit) in zip(panels.T, limits.items(), strict=True):
        label = "optimiser" if name == "descent" else None
        above.plot(step, data["sharpness"].sel(optimiser=name), color=SIGNAL, lw=1, label=label)
        if name in data["following"].values:
            above.plot(step, data["flow"].sel(following=name), color=NOISE, lw=1.4, ls="--", label="gradient flow")
        above.axhline(1, color=THEORY, lw=1, label="limit")
        above.set_title(f"{name}: limit {limit}", fontsize=10)
        below.plot(step, data["loss"].sel(optimiser=name), color=SIGNAL, lw=1)
        below.set(xlabel="step", yscale="log", ylim=(1e-13, 3 * float(data["loss"].max())))
        for axes in (above, below):
            tidy(axes)
    panels[0, 0].set(ylabel="sharpness / limit", ylim=(0, 1.05 * float(data["sharpness"].max())))
    panels[0, 3].set_ylabel(r"sharpness of $P^{-1/2} H P^{-1/2}$ / limit", fontsize=8)
    panels[1, 0].set_ylabel("loss")
    panels[0, 0].legend(frameon=False, fontsize=8, loc="lower right")
    return figure
