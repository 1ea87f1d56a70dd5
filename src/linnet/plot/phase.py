"""The picture of a prediction: when to stop, and where the network lies on the predicted map."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from linnet.plot.style import SIGNAL, TEST, THEORY, canvas, tidy
from linnet.predict.phase import PhaseMeasured, PhasePrediction


def phase(result: PhasePrediction | PhaseMeasured) -> Figure:
    """Predicted test error in time (with the exact run if there is one), and the plane of exponents."""
    run = result if isinstance(result, PhaseMeasured) else None
    answer = result.prediction if isinstance(result, PhaseMeasured) else result
    figure = canvas(10.5, 4.2)
    left, right = figure.subplots(1, 2)
    _errors(left, answer, run)
    _plane(figure, right, answer)
    return figure


def _errors(axes: Axes, answer: PhasePrediction, run: PhaseMeasured | None) -> None:
    steps = np.linspace(0, answer.horizon, 400)
    errors = answer.test_errors(steps)
    axes.plot(steps, errors, color=TEST, lw=3, alpha=0.45, label="predicted")
    if run is not None:
        axes.plot(run.test_errors, color=THEORY, lw=1.2, ls="--", label="exact run")
    stop = answer.stop.time / answer.lr
    words = f"stop: {answer.test_error:.3f} at step {stop:.0f}"
    axes.plot(stop, answer.test_error, "o", color=TEST, label=words)
    for i, signal in enumerate(answer.signals):
        label = "signals half learned" if i == 0 else None
        axes.axvline(signal.half_learned.time / answer.lr, color=SIGNAL, lw=0.8, alpha=0.6, label=label)
    axes.set(xlabel="step of gradient descent", ylabel="test error", title="When to stop", xlim=(0, steps[-1]))
    axes.set_ylim(0, 1.05 * max(float(errors.max()), 0.1))
    axes.legend(frameon=False, fontsize=8)
    tidy(axes)


def _plane(figure: Figure, axes: Axes, answer: PhasePrediction) -> None:
    x, y, values = answer.plane()
    image = axes.pcolormesh(
        x, y, values, norm=LogNorm(float(values.min()), 1.0), cmap="viridis", shading="gouraud", rasterized=True
    )
    figure.colorbar(image, ax=axes, label="predicted smallest test error")
    axes.plot(x, 1 - x, color="black", lw=2, label="lazy above")
    axes.plot(x, -2 * x, color="#ef4444", lw=2, label="infinite noise above")
    axes.axhline(1, color="0.85", lw=1.5, ls=":", label="fewer neurons than dimensions below")
    place = answer.gamma_sigma2, answer.gamma_w
    axes.plot(*place, "*", color="white", mec="black", ms=16, label="this network", clip_on=False)
    axes.set(xlim=(x[0], x[-1]), ylim=(y[0], y[-1]), title=f"Where it lies: {answer.phase.replace('_', ' ')}")
    axes.set_xlabel(r"$\gamma_{\sigma^2}$")
    axes.set_ylabel(r"$\gamma_w$")
    axes.legend(fontsize=7, loc="lower left")
