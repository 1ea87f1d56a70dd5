"""Figures of the sharpness in time."""

from collections.abc import Sequence

import numpy as np
import xarray
from matplotlib.figure import Figure

from linnet.plot.style import SIGNAL, THEORY, TRAIN, finish, panels, ramp
from linnet.theory import stability


def fig2(data: xarray.Dataset, edge: float, kappa: float) -> Figure:
    """Loss and sharpness in time, and the last steps of the sharpness."""
    figure, (left, middle, right) = panels(13, 4.2, 1, 3)
    step, sharpness = data["step"].values, data["sharpness"].values
    left.plot(step, data["loss"], color=TRAIN, lw=1)
    finish(left, log="y", xlabel="step", ylabel=r"loss $\frac{1}{2}|A - A_\star|^2$", title="Loss")
    middle.plot(step, sharpness, color=SIGNAL, lw=0.8)
    middle.plot(data["recorded"], data["dense"], "x", color=THEORY, ms=4, mew=0.9, label="dense Hessian of matrices")
    last = slice(-24, None)
    right.plot(step[last], sharpness[last], "o-", color=SIGNAL, lw=1, ms=4, label="sharpness")
    mean, level = sharpness[-2:].mean(), 2 * edge / kappa
    right.axhline(mean, color=SIGNAL, lw=1, ls=":", label=f"its mean, {mean:.2f}")
    for axes in (middle, right):
        axes.axhline(level, color=THEORY, lw=1.2, ls="--", label=rf"$2/\eta = {level:.2f}$")
    legend = {"loc": "lower right", "bbox_to_anchor": (1.0, 0.2)}
    finish(middle, xlabel="step", ylabel="sharpness", title="Sharpness: climbs, then alternates", legend=legend)
    top = sharpness.max() + 0.3 * np.ptp(sharpness[last])
    finish(right, xlabel="step", title="The last steps", ylim=(None, top), legend="upper right")
    return figure


def fig7(data: xarray.Dataset, firsts: Sequence[float], depth: int, lr: float) -> Figure:
    """Sharpness in time for each target, against its plateau and 2/lr."""
    figure, (left, right) = panels(11, 4.4, 1, 2, width_ratios=(2, 1), sharey=True)
    step = data["step"].values
    early, level = step <= 1200, 2 / lr
    edges = stability.curvature(np.array(firsts), depth)
    for color, s, edge in zip(ramp(data.sizes["first"]), data["first"].values, edges, strict=False):
        run = data["sharpness"].sel(first=s).values
        label = f"$s_1 = {s:g}$, $S = {edge:.1f}$"
        # the band of an oscillation must not cover what is at rest
        left.plot(step[early], run[early], color=color, lw=1, zorder=3 - s / 1e6, label=label)
        right.plot(step[-24:], run[-24:], "o-", color=color, lw=1, ms=3)
        left.axhline(edge, color=color, lw=0.8, ls=":")
    right.plot(step[-24:], data["alone"][-24:], ":", color=THEORY, lw=1, label="largest target, one mode alone")
    for axes in (left, right):
        axes.axhline(level, color=THEORY, lw=1.2, ls="--", zorder=4, label=rf"$2/\eta = {level:g}$")
    legend = {"loc": "upper right", "ncol": 3}
    finish(left, xlabel="step", ylabel="sharpness", title="Sharpness (dotted: $S$ of the target)", legend=legend)
    finish(right, xlabel="step", title="The last steps", legend="upper right")
    low, high = left.get_ylim()
    left.set_ylim(low, high + 0.3 * (high - low))
    return figure
