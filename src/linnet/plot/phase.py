"""The picture of a prediction: when to stop, and where the network lies on the predicted map."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import LogNorm

from linnet.plot.style import SIGNAL, TEST, THEORY, canvas, tidy


def phase(
    answer: dict[str, Any],
    place: tuple[float, float],
    steps: np.ndarray,
    errors: np.ndarray,
    measured: tuple[np.ndarray, np.ndarray] | None,
    plane: tuple[np.ndarray, np.ndarray, np.ndarray],
    out: Path,
) -> None:
    """Predicted test error in time (with the exact run if there is one), and the plane of exponents."""
    figure = canvas(10.5, 4.2)
    left, right = figure.subplots(1, 2)
    left.plot(steps, errors, color=TEST, lw=3, alpha=0.45, label="predicted")
    if measured is not None:
        left.plot(*measured, color=THEORY, lw=1.2, ls="--", label="exact run")
    stop = answer["stop"]
    left.plot(
        stop["step"],
        stop["test_error"],
        "o",
        color=TEST,
        label=f"stop: {stop['test_error']:.3f} at step {stop['step']:.0f}",
    )
    for i, signal in enumerate(answer["signals"]):
        left.axvline(
            signal["half_learned_at_step"],
            color=SIGNAL,
            lw=0.8,
            alpha=0.6,
            label="signals half learned" if i == 0 else None,
        )
    left.set(xlabel="step of gradient descent", ylabel="test error", title="When to stop", xlim=(0, steps[-1]))
    left.set_ylim(0, 1.05 * max(float(errors.max()), 0.1))
    left.legend(frameon=False, fontsize=8)
    tidy(left)

    x, y, values = plane
    image = right.pcolormesh(
        x, y, values, norm=LogNorm(float(values.min()), 1.0), cmap="viridis", shading="gouraud", rasterized=True
    )
    figure.colorbar(image, ax=right, label="predicted smallest test error")
    right.plot(x, 1 - x, color="black", lw=2, label="lazy above")
    right.plot(x, -2 * x, color="#ef4444", lw=2, label="infinite noise above")
    right.axhline(1, color="0.85", lw=1.5, ls=":", label="fewer neurons than dimensions below")
    right.plot(*place, "*", color="white", mec="black", ms=16, label="this network", clip_on=False)
    right.set(xlim=(x[0], x[-1]), ylim=(y[0], y[-1]), title=f"Where it lies: {answer['phase'].replace('_', ' ')}")
    right.set_xlabel(r"$\gamma_{\sigma^2}$")
    right.set_ylabel(r"$\gamma_w$")
    right.legend(fontsize=7, loc="lower left")
    figure.savefig(out)
