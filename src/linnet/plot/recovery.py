"""The picture of noisy low-rank recovery: errors and singular values in time."""

import numpy as np
from matplotlib.figure import Figure

from linnet.plot.style import NOISE, SIGNAL, TEST, TRAIN, finish, panels
from linnet.trajectory import Trajectory


def recovery(run: Trajectory, c: float, rank: int) -> Figure:
    """Train and test error, and every singular value with the threshold c between lazy and rich."""
    figure, (left, right) = panels(10, 4, 1, 2)
    steps = np.asarray(run.steps)
    train, test, values = (np.asarray(run[name]) for name in ("train", "test", "singular values"))

    best = int(np.argmin(test))
    left.plot(steps, test, color=TEST, lw=2, label=f"test error, best {test[best]:.3f} at step {steps[best]}")
    left.plot(steps, train, color=TRAIN, lw=2, label="train error")
    left.plot(steps[best], test[best], "o", color=TEST, ms=6)
    step, title = "step of gradient descent", "It learns the signal, then the noise"
    finish(left, xlabel=step, ylabel="mean squared error", title=title, ylim=(0, None), legend="best", legend_size=10)

    right.plot(steps, values[:, rank:], color=NOISE, lw=0.4, alpha=0.5)
    right.plot(steps, values[:, :rank], color=SIGNAL, lw=1.2)
    right.plot([], [], color=SIGNAL, lw=1.8, label=f"the {rank} largest: signal")
    right.plot([], [], color=NOISE, lw=1, label="the others: noise")
    right.axhline(c, color="black", lw=1, ls="--", label=f"lazy below, rich above: c = {c:.3g}")
    finish(
        right,
        log="y",
        xlabel=step,
        ylabel="singular values of $A$",
        title="One mode after another leaves the lazy regime",
        ylim=(max(values[values > 0].min(), values.max() * 1e-4), values.max() * 2),
        legend="lower right",
        legend_size=10,
    )
    return figure
