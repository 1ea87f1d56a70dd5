"""The phase diagram: networks of every width and variance on one noisy low-rank matrix, and the run of one of them."""

import re
from collections.abc import Iterator
from functools import lru_cache
from importlib import resources
from typing import Any, ClassVar

import jax
import numpy as np

import linnet as ln
from linnet.lab.control import Slider, Values
from linnet.lab.page import Page, Update, headline
from linnet.lab.panel import COLORS, BokehPanel, Sources, image_columns
from linnet.prediction import Quantity, phase_plane
from linnet.theory import mixed

_RECORDS = 201
_TIMES = 41  # at which singular values are shown
_NOISE = 8  # noise modes that are shown, the strongest among them; the weakest are noise of the noise
_VARIANCES, _WIDTHS = (-3.0, 0.0), (0.0, 2.8)  # exponents, the plane of `predict`
_BORDER = 0.05  # around the plane
_SIGNAL, _REST = COLORS[0], COLORS[7]
_TEST, _TRAIN = COLORS[4], COLORS[1]


# The code that the page shows -----------------------------------------------------------------------------------------


@jax.jit  # a traced width has 2 d neurons, those beyond it zero: one program for all widths
def initialize(key: jax.Array, problem: ln.problems.Factorization, width: float, variance: float) -> ln.Weights:
    """Two Gaussian layers."""
    return ln.init.gaussian(key, problem, width, variance)


def setup(
    d: int, levels: list[float], width: float, variance: float, seed: int
) -> tuple[ln.problems.Factorization, ln.Weights]:
    """A noisy matrix whose signal has the singular values d levels, and a network of this width and variance."""
    key = jax.random.key(seed)
    problem = ln.low_rank_recovery(key, d, len(levels), levels=levels)
    return problem, initialize(key, problem, width, variance)


def train(problem: ln.problems.Factorization, network: ln.Weights, lr: float, steps: int, *names: str) -> ln.Trajectory:
    """Gradient descent, with 201 records of these observables."""
    return ln.simulate(
        problem, network, ln.optim.SGD(lr), steps=steps, record=ln.record.linear(201), observe=list(names)
    )


# The page ------------------------------------------------------------------------------------------------------------


class PhasePage(Page):
    """Width and variance as exponents of the dimension: which networks learn the signal without the noise."""

    name = "phase"
    title = "Phase diagram"
    lead = (
        "Which networks find a signal of low rank in a noisy matrix, and when must they stop? Click a point of the "
        "plane: the network of that width and variance is trained."
    )
    formula = (
        r"\dot A = \frac{2}{d^2}\left[\sqrt{AA^\top + c^2}\,(A_\star + E - A) "
        r"+ (A_\star + E - A)\sqrt{A^\top A + c^2}\right], \qquad c = \sigma^2 w"
    )
    theory = ("mixed",)
    claims = ("mixed/C6", "mixed/C13", "mixed/C14", "mixed/C15", "mixed/C26")
    controls = (
        Slider("gamma_w", "Width: exponent of d", 2.2, low=_WIDTHS[0], high=_WIDTHS[1], group="Network"),
        Slider("gamma_sigma2", "Variance: exponent of d", -2.1, low=_VARIANCES[0], high=_VARIANCES[1], group="Network"),
        Slider("seed", "Seed", 0, low=0, high=99, whole=True, group="Network"),
        Slider("d", "Dimension d", 50, low=10, high=100, whole=True, rungs=(10, 20, 30, 50, 100), group="Matrix"),
        Slider("rank", "Signals", 3, low=1, high=5, whole=True, rungs=(1, 2, 3, 5), group="Matrix"),
        Slider("signal", "Size of the signal", 1.5, low=0.2, high=4.0, step=0.05, group="Matrix"),
        Slider("steps", "Steps", 300, low=250, high=2000, log=True, whole=True, group="Training"),
    )
    hints: ClassVar = {
        "gamma_w": "The network has d to this power of hidden neurons.",
        "gamma_sigma2": "Initial weights have variance d to this power.",
        "signal": "Root mean square of its entries; the noise has 1.",
    }
    presets: ClassVar = {
        "Figure 1: between lazy and rich": {"gamma_w": 2.25, "gamma_sigma2": -1.85, "d": 100, "rank": 5, "signal": 1.0},
        "rich: signals first, one after the other": {"gamma_w": 1.6, "gamma_sigma2": -2.6},
        "lazy: signal and noise together": {"gamma_w": 2.6, "gamma_sigma2": -1.45},
        "the initial matrix is larger than the signal": {"gamma_w": 2.2, "gamma_sigma2": -0.7},
        "fewer neurons than dimensions": {"gamma_w": 0.6, "gamma_sigma2": -2.0},
        "one neuron: one signal": {"gamma_w": 0.0, "gamma_sigma2": -1.5},
        "a signal that the noise hides": {"signal": 0.3, "rank": 5},
    }
    functions = (initialize, setup, train)
    imports = ("import jax", "import linnet as ln")

    def panels(self, sources: Sources) -> list[BokehPanel]:
        return [_plane_panel(sources), _error_panel(sources), _value_panel(sources)]

    def on_click(self, panel: str, x: float, y: float, values: Values) -> Values:
        place = {"gamma_sigma2": (x, _VARIANCES), "gamma_w": (y, _WIDTHS)}
        if any(not low - _BORDER <= number <= high + _BORDER for number, (low, high) in place.values()):
            return values  # outside the plane
        return values | {name: round(min(max(number, low), high), 2) for name, (number, (low, high)) in place.items()}

    def updates(self, values: Values) -> Iterator[Update]:
        prediction = ln.prediction.phase(
            **{name: values[name] for name in ("d", "gamma_w", "gamma_sigma2", "seed")}, levels=_levels(values)
        )
        lr, stop = prediction.lr, prediction.stop.step
        steps = np.linspace(0, values["steps"], _RECORDS)
        within = stop <= values["steps"]
        yield Update(
            {
                "here": {"x": np.array([prediction.gamma_sigma2]), "y": np.array([prediction.gamma_w])},
                "predicted": {"step": steps, "test": prediction.data["flow"].test_errors(lr * steps)},
                "stop": {"step": np.array([stop] * within), "test": np.array([prediction.test_error] * within)},
            },
            headline=headline(None, prediction, notes=True),
            quantities=prediction.quantities,
        )
        problem, network = setup(values["d"], _levels(values), prediction.width, prediction.variance, values["seed"])
        run = train(problem, network, lr, values["steps"], "loss", "test_error", "matrix")
        clock, test, loss = (np.asarray(part) for part in (run.steps, run["test_error"], run["loss"]))
        best = int(np.argmin(test))
        yield Update(
            {
                "run": {"step": clock, "test": test, "train": loss},
                "best": {"step": clock[[best]], "test": test[[best]]},
            },
            headline=headline(run, prediction, notes=True),
            quantities=(*prediction.quantities, *_measured(run, best)),
        )
        chosen = np.unique((np.linspace(0, 1, _TIMES) ** 1.5 * (len(clock) - 1)).astype(int))  # more at the beginning
        shown = _shown(prediction.rank, prediction.d)
        measured = np.linalg.svd(np.asarray(run["matrix"])[chosen], compute_uv=False)[:, shown]
        flow = mixed.matrix(lr * clock[chosen], network.matrix, problem.target, prediction.c, 2 / prediction.d**2)
        predicted = np.linalg.svd(np.asarray(flow), compute_uv=False)[:, shown]
        colors = [_SIGNAL if i < prediction.rank else _REST for i in shown]
        names = ["signal" if i < prediction.rank else "noise" for i in shown]
        step = [clock[chosen].astype(float)] * len(shown)
        yield Update(
            {
                "flow": {"step": step, "value": _above_rounding(predicted), "color": colors},
                "values": {"step": step, "value": _above_rounding(measured), "color": colors, "name": names},
                "threshold": {"step": np.array([0.0, clock[-1]]), "c": np.full(2, prediction.c)},
            }
        )
        yield Update({"plane": _plane(values["d"], tuple(_levels(values)))})

    def script(self, values: Values) -> str:
        return f"""\
levels, d, seed = {_levels(values)!r}, {values["d"]}, {values["seed"]}
gammas = {{"gamma_w": {values["gamma_w"]!r}, "gamma_sigma2": {values["gamma_sigma2"]!r}}}  # exponents of d
prediction = ln.prediction.phase(d=d, levels=levels, seed=seed, **gammas)
print(prediction)
problem, network = setup(d, levels, prediction.width, prediction.variance, seed)
run = train(problem, network, prediction.lr, {values["steps"]}, "loss", "test_error", "singular_values")
data = run.to_xarray()
figure = prediction.plot()
figure.axes[0].plot(run.steps, run["test_error"], "k--", lw=1, label="exact run")
"""

    def toml(self, values: Values) -> str:
        """The sweep of Figure 2 for this matrix: every cell of the plane is trained."""
        text = resources.files("linnet.experiments").joinpath("mixed_fig2.toml").read_text(encoding="utf-8")
        levels = ", ".join(f"{level!r}" for level in _levels(values))
        for old, new in {
            r"# Figure 2 .*\n.*\n": "# linnet sweep phase.toml --out phase.zarr\n",
            r"seed = 0": f"seed = {values['seed']}",
            r"d = 200": f"d = {values['d']}",
            r"rank = 5": f"rank = {values['rank']}",
            r'rank = "rank"': f'rank = "rank"\nlevels = [{levels}]',
            r"count = 35": "count = 15",
        }.items():
            text = re.sub(old, new, text)
        return text


def _levels(values: Values) -> list[float]:
    """Singular values of the signal over d, not all alike: mean square 1/rank for entries of size 1."""
    ladder = np.linspace(1.2, 0.8, values["rank"]) if values["rank"] > 1 else np.ones(1)
    return [float(f"{level:.6g}") for level in values["signal"] * ladder / np.linalg.norm(ladder)]


def _shown(rank: int, d: int) -> list[int]:
    """The signals, and some of the noise."""
    last = rank + round(0.8 * (d - 1 - rank))
    return [*range(rank), *np.unique(np.linspace(rank, last, _NOISE).astype(int)).tolist()]


def _above_rounding(values: np.ndarray) -> list[np.ndarray]:
    """Lines, with holes where a value is zero but for rounding: a network of few neurons has few."""
    return list(np.where(values > 1e-9 * np.max(values), values, np.nan).T)


@lru_cache(maxsize=64)
def _plane(d: int, levels: tuple[float, ...]) -> dict[str, Any]:
    """The predicted plane, which width and variance do not change."""
    x, y, errors = phase_plane(d, levels)
    (left, right), (bottom, top) = ((a[0] - (a[1] - a[0]) / 2, a[-1] + (a[1] - a[0]) / 2) for a in (x, y))
    return image_columns(errors, left, right, bottom, top)


def _measured(run: ln.Trajectory, best: int) -> tuple[Quantity, ...]:
    test = run["test_error"]
    return (
        Quantity("measured_stop", int(np.asarray(run.steps)[best]), "exact training: best step"),
        Quantity("measured_test_error", float(test[best]), "test error there", format=".4f"),
        Quantity("last_test_error", float(test[-1]), "test error at its last step", format=".4f"),
    )


# Panels --------------------------------------------------------------------------------------------------------------


def _plane_panel(sources: Sources) -> BokehPanel:
    from bokeh.palettes import Viridis256

    ends = np.array([_VARIANCES[0] - _BORDER, _VARIANCES[1] + _BORDER])
    panel = BokehPanel(
        sources,
        "plane",
        "The plane of widths and variances",
        "Smallest test error along the run, predicted without any training. Click to train the network there.",
        "exponent of the variance",
        "exponent of the width",
        height=400,
        clickable=True,
        x_range=tuple(ends),
        y_range=(_WIDTHS[0] - _BORDER, _WIDTHS[1] + _BORDER),
    )
    panel.image("plane", Viridis256, 0.03, 1.0, log=True, title="test error")
    for corner, slope, color, label in (
        (1.0, -1.0, COLORS[5], "lazy above"),
        (0.0, -2.0, COLORS[0], "initial matrix larger than the signal above"),
        (1.0, 0.0, COLORS[7], "fewer neurons than dimensions below"),
    ):
        panel.figure.line(ends, corner + slope * ends, color="white", line_width=5)
        panel.figure.line(ends, corner + slope * ends, color=color, line_width=2.5, legend_label=label)
    panel.points("here", "x", "y", color="white", size=26, marker="star", line_color="black", line_width=1.5)
    panel.legend("below")
    return panel


def _error_panel(sources: Sources) -> BokehPanel:
    caption = "Thick: predicted test error. Thin: exact training. The dot is the best step to stop at."
    panel = BokehPanel(sources, "errors", "When to stop", caption, "step", "mean squared error", height=400)
    panel.line("predicted", "step", "test", "predicted", color=_TEST, label="test, predicted")
    panel.line("run", "step", "test", "measured", color=_TEST, label="test, exact")
    panel.line("run", "step", "train", "dashed", color=_TRAIN, label="train, exact")
    panel.points("stop", "step", "test", color=_TEST, size=16, alpha=0.35)
    panel.points("best", "step", "test", color=_TEST)
    panel.figure.y_range.start = 0
    panel.legend("top_right")
    return panel


def _value_panel(sources: Sources) -> BokehPanel:
    caption = "Singular values of what is learned. Thick: the mixed flow in closed form. Thin: exact training."
    panel = BokehPanel(
        sources, "values", "Signal and noise", caption, "step", "singular values of A", log="y", wide=True
    )
    panel.line("flow", "step", "value", "predicted", color="color")
    sources.columns("values", "name")
    panel.line("values", "step", "value", "measured", color="color", legend_field="name")
    panel.line("threshold", "step", "c", "dotted", color=COLORS[2], label="c: lazy below")
    panel.legend("bottom_right")
    return panel
