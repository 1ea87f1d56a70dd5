"""The picture of `predict stability`."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from linnet.plot.style import NOISE, SIGNAL, THEORY, canvas, tidy


def bifurcation(answer: dict[str, Any], diagram: dict[str, Any], out: Path) -> None:
    """Where every mode goes, by step size: points of its orbit, with this step and the thresholds marked."""
    figure = canvas(9, 5)
    axes = figure.subplots()
    rates, values = diagram["lr"], diagram["values"]
    colours = [SIGNAL, *np.asarray(mpl.colormaps["viridis"](np.linspace(0.1, 0.8, max(1, values.shape[1] - 1))))]
    for i in reversed(range(values.shape[1])):
        label = f"mode {i + 1}, target {diagram['modes'][i]:g}"
        axes.plot(np.repeat(rates, values.shape[2]), values[:, i].ravel(), ",", color=colours[i], rasterized=True)
        axes.plot([], [], "o", ms=4, color=colours[i], label=label)
    first = answer["modes"][0]["lr"]
    marks = (("oscillates", "period 2", "center"), ("doubles", "period 4", "right"), ("chaos", " chaos", "left"))
    for name, word, side in marks:
        if name in first and rates[0] < first[name] < rates[-1]:
            axes.axvline(first[name], color=NOISE, lw=0.8, ls=":")
            axes.text(first[name], 1.01, word, transform=axes.get_xaxis_transform(), fontsize=8, color=NOISE, ha=side)
    cross = answer["cross"]
    if cross is not None and rates[0] < cross["lr_at_which_the_orbit_is_unstable"] < rates[-1]:
        where = cross["lr_at_which_the_orbit_is_unstable"]
        axes.axvline(where, color=NOISE, lw=1, ls="-.", label="modes 1 and 2 mix, out of rounding")
    inside = rates[0] <= answer["lr"] <= rates[-1]
    told = f"lr = {answer['lr']:.4g}"
    if inside:
        axes.axvline(answer["lr"], color=THEORY, lw=1.4, label=told)
    axes.set(
        xlabel="step size, loss "
        + ("$|A - A_*|^2/2$" if answer["loss"].startswith("1/2") else "$|A - A_*|^2$")
        + ("" if inside else f"  ({told} lies beyond)"),
        ylabel="modes $u_i^T A\\, v_i$",
        xlim=(rates[0], rates[-1]),
    )
    axes.set_title(f"{answer['depth']} layers, balanced modes", pad=18)
    if answer["depth"] == 1 or not np.isfinite(values).any():
        axes.set_ylim(0, 1.5 * diagram["modes"][0])
    tidy(axes)
    shown, names = axes.get_legend_handles_labels()
    order = [*reversed(range(values.shape[1])), *range(values.shape[1], len(names))]
    listed = [shown[i] for i in order], [names[i] for i in order]
    axes.legend(*listed, frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.savefig(out)
