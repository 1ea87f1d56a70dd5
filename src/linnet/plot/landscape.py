"""Pictures of the landscape."""

import numpy as np
import xarray
from matplotlib.figure import Figure

from linnet.plot.style import NOISE, SIGNAL, THEORY, TRAIN, canvas, tidy

_KINDS = {
    "strict_saddle": (NOISE, "o", "strict saddle"),
    "degenerate_sosp": (SIGNAL, "s", "degenerate: no second-order descent"),
    "global_min": (TRAIN, "*", "global minimum"),
}


def critical_map(data: xarray.Dataset) -> Figure:
    """Every critical point by loss and index, one panel for each depth, with the modes that it keeps."""
    depths, kinds = data["depth"].values, str(data.attrs["kinds"]).split()
    figure = canvas(4.2 * len(depths), 4.8)
    panels = figure.subplots(1, len(depths), sharey=True, squeeze=False)[0]
    kept = data["kept"].values.astype(bool)
    names = ["".join(str(i + 1) for i in np.flatnonzero(k)) or "none" for k in kept]
    losses = data["loss"].values
    height = float(losses.max() - losses.min()) or 1.0
    for axes, row in zip(panels, range(len(depths)), strict=True):
        x, y = data["negative"].values[row], losses[row]
        label = [kinds[i] for i in data["label"].values[row]]
        # a step of the ladder: one mode more
        for a in range(len(kept)):
            for b in range(len(kept)):
                if kept[b].sum() == kept[a].sum() + 1 and np.all(kept[b] >= kept[a]):
                    axes.plot(x[[a, b]], y[[a, b]], color=NOISE, lw=0.5, alpha=0.3, zorder=1)
        for kind, (colour, marker, words) in _KINDS.items():
            chosen = [i for i, name in enumerate(label) if name == kind]
            size = 170 if marker == "*" else 42
            axes.scatter(
                x[chosen], y[chosen], s=size, c=colour, marker=marker, label=words, zorder=3, edgecolor="white"
            )
        wide = max(float(x.max()), 1.0)
        for i in range(len(kept)):
            # words stand on the right, unless another point is there
            crowded = np.any((x > x[i]) & (x < x[i] + 0.14 * wide) & (np.abs(y - y[i]) < 0.05 * height))
            axes.annotate(
                names[i],
                (x[i], y[i]),
                (-7 if crowded else 7, 0),
                textcoords="offset points",
                fontsize=8,
                color=THEORY,
                va="center",
                ha="right" if crowded else "left",
            )
        axes.set_title(f"{depths[row]} layers", fontsize=11)
        axes.set_xlabel("negative eigenvalues of the Hessian")
        axes.set_xlim(-0.08 * wide, 1.16 * wide)
        axes.xaxis.get_major_locator().set_params(integer=True)
        tidy(axes)
    panels[0].set_ylabel("loss")
    handles, words = panels[-1].get_legend_handles_labels()
    figure.legend(handles, words, loc="outside upper center", ncols=3, frameon=False, fontsize=9)
    return figure
