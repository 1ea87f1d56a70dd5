"""Figures of training at the edge on average: mini-batches, and the rod beside training."""

import xarray
from matplotlib.figure import Figure

from linnet.plot.style import NOISE, QUIET, SIGNAL, TEST, THEORY, TRAIN, finish, panels, ramp


def batches(data: xarray.Dataset, means: xarray.Dataset, lr: float, linear_lr: float) -> Figure:
    """A panel for each network over batch sizes, and batch sharpness in time."""
    figure, (left, middle, right) = panels(13.5, 4.4, 1, 3)
    curves = (
        ("sharpness", "sharpness of all samples", SIGNAL, "o"),
        ("batch_sharpness", "batch sharpness", TRAIN, "s"),
        ("interaction", "gradient-noise interaction", TEST, "^"),
    )
    titles = {"linear": rf"linear, label noise, $\eta = {linear_lr:g}$", "tanh": rf"tanh, $\eta = {lr:g}$"}
    for axes, name in ((left, "linear"), (middle, "tanh")):
        part = means.sel(network=name)
        for what, label, color, marker in curves:
            shown = part[what][: -1 if (name, what) == ("linear", "interaction") else None]  # all samples have no noise
            axes.plot(shown["batch"], shown, color=color, marker=marker, ms=5, lw=1.4, label=label)
        edge = part["mean_square_edge"]
        axes.plot(part["batch"], edge, color=NOISE, ls=":", lw=1.4, label="mean-square edge of one direction")
        axes.axhline(1, color=THEORY, lw=1)
        axes.set_xscale("log")
        axes.set_xticks(part["batch"].values, [f"{size}" for size in part["batch"].values])
        axes.minorticks_off()
        finish(axes, xlabel="samples in a batch, of 100", title=titles[name], title_size=10, ylim=(0, 1.2))
        axes.margins(x=0.05)
    left.set_ylabel(r"in units of $2/\eta$")
    left.legend(frameon=False, fontsize=8)
    part = data.sel(network="tanh")
    pieces = 12
    width = data.sizes["step"] // pieces
    sizes = part["batch"].values[:-1]  # descent's own falls between bursts of its oscillation
    for color, size in zip(ramp(len(sizes)), sizes, strict=True):
        sums = [
            part[f"batch_{name}"].sel(batch=size).values[: pieces * width].reshape(pieces, width).mean(axis=1)
            for name in ("numerator", "denominator")
        ]
        steps = part["step"].values[: pieces * width].reshape(pieces, width).mean(axis=1)
        right.plot(steps, sums[0] / sums[1], color=color, lw=1.4, label=f"{size}")
    right.axhline(1, color=THEORY, lw=1)
    finish(right, xlabel="step", title="tanh: batch sharpness in time", title_size=10, ylim=(0, 1.2))
    right.legend(title="samples in a batch", loc="lower right", ncols=2, frameon=False, fontsize=8, title_fontsize=8)
    return figure


def real(data: xarray.Dataset, mean_losses: xarray.Dataset, images: str, lr: float) -> Figure:
    """Loss, sharpness, and distance of the mean weights, over steps."""
    figure, (left, middle, right) = panels(13.5, 4.4, 1, 3)
    styles = {
        "descent": ("descent, mean of a window", THEORY, "-"),
        "rod": ("rod, mean of a window", SIGNAL, "-"),
        "flow": ("flow, mean of a window", NOISE, "--"),
    }
    left.plot(data["step"], data["descent_loss"], ".", color=QUIET, ms=1.2, label="descent, each step")
    for name, (label, color, line) in styles.items():
        left.plot(mean_losses["step"], mean_losses[f"{name}_loss"], color=color, ls=line, lw=1.8, label=label)
        sharp = data[f"{name}_sharpness"]
        middle.plot(data["measured"], sharp, color=color, ls=line, lw=1.2, alpha=0.8, label=label.split(",")[0])
    middle.axhline(1, color=QUIET, lw=1)
    for name, (label, color, line) in list(styles.items())[1:]:
        right.plot(data["window"], data[f"{name}_distance"], color=color, ls=line, lw=1.8, label=label.split(",")[0])
    right.plot(data["window"], data["moved"], color=QUIET, lw=1.2, label="descent from its initialization")
    lowest = 0.7 * float(mean_losses.to_array().min())
    highest = float(data["descent_loss"][20:].max())
    finish(
        left, log="y", xlabel="step", title=rf"loss, {images}, $\eta = {lr:g}$", title_size=10, ylim=(lowest, highest)
    )
    finish(middle, xlabel="step", title=r"sharpness in units of $2/\eta$", title_size=10, ylim=(0, None))
    finish(right, log="y", xlabel="step", title="distance from the mean weights of descent", title_size=10)
    for axes in (left, middle, right):
        axes.legend(frameon=False, fontsize=8)
    return figure
