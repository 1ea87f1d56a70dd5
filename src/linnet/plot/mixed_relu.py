"""The figure of mixed regimes in ReLU networks."""

import numpy as np
import xarray
from matplotlib.figure import Figure

from linnet.plot.style import QUIET, THEORY, finish, panels, ramp
from linnet.theory.regime import LAZY_BELOW


def relu(data: xarray.Dataset) -> Figure:
    """How much the kernel and C1 grow along each mode over s/c, for each kind of network; bars span the draws."""
    count = data.sizes["kind"]
    figure, axes = panels(4.3 * count, 4.6, 1, count, sharey=True)
    modes, scales = data["mode"].values, data["scale"].values
    ratios = np.geomspace(modes[-1] / scales[-1] / 1.5, modes[0] / scales[0] * 1.5, 200)
    for i, (panel, kind) in enumerate(zip(axes, data["kind"].values, strict=True)):
        over = "$2s / c$" if i else "$s / c$"
        law = r"$\sqrt{1 + (2s/c)^2}$" if i else r"$\sqrt{1 + (s/c)^2}$"
        panel.axhspan(0.5, LAZY_BELOW, color=QUIET, alpha=0.2, lw=0)
        panel.plot(ratios, np.hypot(1, ratios), color=THEORY, lw=1.2, label=law)
        for color, mode in zip(ramp(len(modes)), modes, strict=True):
            part = data.sel(kind=kind, mode=mode)
            for name, marker, fill in (("kernel", "o", color), ("gram", "s", "none")):
                middle, low, high = (getattr(part[name], how)("draw").values for how in ("mean", "min", "max"))
                panel.errorbar(
                    mode / scales, middle, [middle - low, high - middle], fmt=marker, ms=6, color=color, mfc=fill, lw=1
                )
            panel.plot([], [], "o", color=color, label=f"s = {mode:g}")
        finish(panel, log="xy", xlabel=over, title=str(kind), xlim=(ratios[0], ratios[-1]), ylim=(0.7, 150))
    axes[0].plot([], [], "s", color=THEORY, mfc="none", label="$C_1$ (dots: kernel)")
    axes[0].text(ratios[0] * 1.2, 0.75, "lazy: grows by less than 1.1", fontsize=8, va="bottom")
    finish(axes[0], ylabel="growth along the mode until it is learned", legend="upper left")
    return figure
