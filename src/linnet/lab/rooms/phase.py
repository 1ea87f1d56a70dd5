"""The phase diagram: networks of every width and variance on one noisy low-rank matrix, and the run of one of them."""

import re
from collections.abc import Iterator
from functools import lru_cache
from importlib import resources
from typing import Any, ClassVar

import jax
import numpy as np

from linnet import observe, predict
from linnet._random import sampler
from linnet.initial import gaussian
from linnet.lab.control import Slider, Values
from linnet.lab.dress import COLOURS, plain
from linnet.lab.room import Plate, Room, Sight, Sources
from linnet.motion import GradientDescent
from linnet.predict.words.phase import MEANING
from linnet.problems import Factorisation, low_rank_recovery
from linnet.record import linear
from linnet.simulation import simulate
from linnet.states import Weights
from linnet.theory import mixed
from linnet.trajectory import Trajectory

_RECORDS = 201
_TIMES = 41  # at which singular values are shown
_NOISE = 8  # noise modes that are shown, the strongest among them; the weakest only flicker
_VARIANCES, _WIDTHS = (-3.0, 0.0), (0.0, 2.8)  # exponents, the plane of `predict`
_RIM = 0.05  # around the plane
_SIGNAL, _REST = COLOURS[0], COLOURS[7]
_TEST, _TRAIN = COLOURS[4], COLOURS[1]


class Phases(Room):
    """Width and variance as exponents of the dimension: which networks learn the signal without the noise."""

    name: ClassVar[str] = "phase"
    title: ClassVar[str] = "Phase diagram"
    lead: ClassVar[str] = (
        "Which networks find a signal of low rank in a noisy matrix, and when must they stop? Click a point of the "
        "plane: the network of that width and that start is trained beside it."
    )
    formula: ClassVar[str] = (
        r"\dot A = \frac{2}{d^2}\left[\sqrt{AA^\top + c^2}\,(A_\star + E - A) "
        r"+ (A_\star + E - A)\sqrt{A^\top A + c^2}\right], \qquad c = \sigma^2 w"
    )
    theory: ClassVar[tuple[str, ...]] = ("mixed",)
    claims: ClassVar[tuple[str, ...]] = ("mixed/C6", "mixed/C13", "mixed/C14", "mixed/C15", "mixed/C26")
    controls: ClassVar = (
        Slider(
            name="gamma_w",
            label="Width: exponent of d",
            value=2.2,
            low=_WIDTHS[0],
            high=_WIDTHS[1],
            hint="The network has d to this power of hidden neurons.",
            group="Network",
        ),
        Slider(
            name="gamma_sigma2",
            label="Variance: exponent of d",
            value=-2.1,
            low=_VARIANCES[0],
            high=_VARIANCES[1],
            hint="Weights start with variance d to this power.",
            group="Network",
        ),
        Slider(name="seed", label="Draw", value=0, low=0, high=99, whole=True, group="Network"),
        Slider(
            name="d",
            label="Dimension d",
            value=50,
            low=10,
            high=100,
            whole=True,
            rungs=(10, 20, 30, 50, 100),
            group="Matrix",
        ),
        Slider(name="rank", label="Signals", value=3, low=1, high=5, whole=True, rungs=(1, 2, 3, 5), group="Matrix"),
        Slider(
            name="signal",
            label="Size of the signal",
            value=1.5,
            low=0.2,
            high=4.0,
            step=0.05,
            hint="Root mean square of its entries; the noise has 1.",
            group="Matrix",
        ),
        Slider(name="steps", label="Steps", value=300, low=250, high=2000, log=True, whole=True, group="Training"),
    )
    presets: ClassVar = {
        "Figure 1: between lazy and rich": {"gamma_w": 2.25, "gamma_sigma2": -1.85, "d": 100, "rank": 5, "signal": 1.0},
        "rich: signals first, one after the other": {"gamma_w": 1.6, "gamma_sigma2": -2.6},
        "lazy: signal and noise together": {"gamma_w": 2.6, "gamma_sigma2": -1.45},
        "the start drowns the signal": {"gamma_w": 2.2, "gamma_sigma2": -0.7},
        "fewer neurons than dimensions": {"gamma_w": 0.6, "gamma_sigma2": -2.0},
        "one neuron: one signal": {"gamma_w": 0.0, "gamma_sigma2": -1.5},
        "a signal that the noise hides": {"signal": 0.3, "rank": 5},
    }
    files: ClassVar[tuple[str, ...]] = (*Room.files, "gif", "mp4")

    def draw(self, sources: Sources) -> list[Plate]:
        return [
            Plate(
                "plane",
                "The plane of widths and variances",
                "Smallest test error on the way, predicted without any training. Click to train the network there.",
                _draw_plane(sources),
                clicked=True,
            ),
            Plate(
                "errors",
                "When to stop",
                "Thick: predicted test error. Thin: exact training. The dot is the best moment to stop.",
                _draw_errors(sources),
            ),
            Plate(
                "values",
                "Signal and noise",
                "Singular values of what is learned. Thick: the mixed flow in closed form. Thin: exact training.",
                _draw_values(sources),
                wide=True,
            ),
        ]

    def clicked(self, plate: str, x: float, y: float, values: Values) -> Values:
        place = {"gamma_sigma2": (x, _VARIANCES), "gamma_w": (y, _WIDTHS)}
        if any(not low - _RIM <= number <= high + _RIM for number, (low, high) in place.values()):
            return values  # beside the plane
        return values | {name: round(min(max(number, low), high), 2) for name, (number, (low, high)) in place.items()}

    def look(self, values: Values) -> Iterator[Sight]:
        told = predict.phase(**_asked(values))
        steps = np.linspace(0, values["steps"], _RECORDS)
        stop = told.stop.time / told.lr
        yield Sight(
            {
                "here": {"x": np.array([told.gamma_sigma2]), "y": np.array([told.gamma_w])},
                "said": {"step": steps, "test": told.test_errors(steps)},
                "stop": {"step": np.array([stop]), "test": np.array([told.test_error])}
                if stop <= values["steps"]
                else {"step": np.array([]), "test": np.array([])},
            },
            sentence=_sentence(told),
            numbers=_numbers(told),
        )
        key = jax.random.key(told.seed)
        problem = low_rank_recovery(key, told.d, told.rank, levels=told.levels)
        start = _start(key, problem, told.width, told.variance)
        run = simulate(
            problem,
            start,
            GradientDescent(told.lr),
            steps=values["steps"],
            record=linear(_RECORDS),
            observe={"loss": observe.loss, "test_error": observe.test_error, "matrix": observe.matrix},
        )
        clock, test, loss = (np.asarray(part) for part in (run.steps, run["test_error"], run["loss"]))
        best = int(np.argmin(test))
        yield Sight(
            {
                "run": {"step": clock, "test": test, "train": loss},
                "best": {"step": clock[[best]], "test": test[[best]]},
            },
            sentence=_sentence(told, run),
        )
        chosen = np.unique((np.linspace(0, 1, _TIMES) ** 1.5 * (len(clock) - 1)).astype(int))  # the beginning is fast
        shown = _shown(told)
        seen = np.linalg.svd(np.asarray(run["matrix"])[chosen], compute_uv=False)[:, shown]
        flow = mixed.matrix(told.lr * clock[chosen], start.matrix, problem.target, told.c, 2 / told.d**2)
        says = np.linalg.svd(np.asarray(flow), compute_uv=False)[:, shown]
        colours = [_SIGNAL if i < told.rank else _REST for i in shown]
        names = ["signal" if i < told.rank else "noise" for i in shown]
        step = [clock[chosen].astype(float)] * len(shown)
        yield Sight(
            {
                "flow": {"step": step, "value": _above_rounding(says), "colour": colours},
                "values": {"step": step, "value": _above_rounding(seen), "colour": colours, "name": names},
                "threshold": {"step": np.array([0.0, clock[-1]]), "c": np.full(2, told.c)},
            }
        )
        yield Sight({"plane": _plane(values["d"], tuple(told.levels))})

    def code(self, values: Values) -> str:
        asked = ", ".join(f"{name}={value!r}" for name, value in _asked(values).items())
        start = "ln.gaussian(key, problem, told.width, told.variance)"
        if values["d"] ** values["gamma_w"] < 2 * values["d"]:  # the page's own draw of so few
            start = "jax.jit(lambda width: ln.gaussian(key, problem, width, told.variance))(told.width)"
        return f"""\
import jax
import linnet as ln

told = ln.predict.phase({asked})
print(told)
key = jax.random.key({values["seed"]})
problem = ln.low_rank_recovery(key, told.d, told.rank, levels=told.levels)
run = ln.simulate(
    problem,
    {start},
    ln.GradientDescent(told.lr),
    steps={values["steps"]},
    record=ln.linear({_RECORDS}),
    observe=["loss", "test_error", "singular_values"],
)
data = run.to_xarray()
figure = told.plot()
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


def _asked(values: Values) -> dict[str, Any]:
    """What `predict.phase` is asked."""
    plain = {name: values[name] for name in ("d", "gamma_w", "gamma_sigma2")}
    return {**plain, "levels": _levels(values), "seed": values["seed"]}


@sampler()  # a width that is not known has 2d neurons, those beyond it zero for ever: one program for all widths
def _start(key: Any, problem: Factorisation, width: Any, variance: Any) -> Weights:
    return gaussian(key, problem, width, variance)


def _shown(told: predict.PhasePrediction) -> list[int]:
    """The signals, and some of the noise."""
    last = told.rank + round(0.8 * (told.d - 1 - told.rank))
    return [*range(told.rank), *np.unique(np.linspace(told.rank, last, _NOISE).astype(int)).tolist()]


def _above_rounding(values: np.ndarray) -> list[np.ndarray]:
    """Lines, with holes where a value is zero but for rounding: a network of few neurons has few."""
    return list(np.where(values > 1e-9 * np.max(values), values, np.nan).T)


@lru_cache(maxsize=64)
def _plane(d: int, levels: tuple[float, ...]) -> dict[str, Any]:
    """The predicted plane, which the place of a network does not change."""
    x, y, errors = predict.phase(d=d, gamma_w=1.0, gamma_sigma2=-1.0, levels=levels).plane()
    left, low = (axis[0] - (axis[1] - axis[0]) / 2 for axis in (x, y))
    wide, high = (axis[-1] - axis[0] + axis[1] - axis[0] for axis in (x, y))
    return {
        "error": [errors],
        "x": np.array([left]),
        "y": np.array([low]),
        "dw": np.array([wide]),
        "dh": np.array([high]),
    }


def _sentence(told: predict.PhasePrediction, run: Trajectory | None = None) -> str:
    """What the plane says, and what the training did."""
    name, stop = told.phase.replace("_", " ").capitalize(), told.stop.time / told.lr
    said = f"{name}: {MEANING[told.phase]}. Predicted: stop at step {stop:,.0f}, with test error {told.test_error:.2g}."
    notes = "".join(f" Caution: {note}." for note in told.notes)
    if run is None:
        return said + notes
    if run.status == "diverged":
        return f"{said} The training diverged at step {int(run.ended):,}.{notes}"
    clock, test = np.asarray(run.steps), np.asarray(run["test_error"])
    best = int(np.argmin(test))
    if best == len(test) - 1:
        return f"{said} The training still falls at its last step, with {test[-1]:.2g}.{notes}"
    there = f"at step {clock[best]:,}, with {test[best]:.2g}"
    return f"{said} The training was best {there}, and ends with {test[-1]:.2g}.{notes}"


def _numbers(told: predict.PhasePrediction) -> dict[str, str]:
    return {
        "regime": told.phase.replace("_", " "),
        "width": f"{told.width:,.0f}",
        "variance": f"{told.variance:.3g}",
        "c = variance × width": f"{told.c:.3g}",
        "largest signal": f"{told.signals[0].value:.3g}",
        "best step to stop": f"{told.stop.time / told.lr:,.0f}",
        "test error there": f"{told.test_error:.3g}",
    }


# Pictures ------------------------------------------------------------------------------------------------------------


def _draw_plane(sources: Sources) -> Any:
    from bokeh.models import ColorBar, LogColorMapper
    from bokeh.palettes import Viridis256

    image = sources.empty("plane", "error", "x", "y", "dw", "dh")
    here = sources.empty("here", "x", "y")
    made = plain(
        height=400,
        x_range=(_VARIANCES[0] - _RIM, _VARIANCES[1] + _RIM),
        y_range=(_WIDTHS[0] - _RIM, _WIDTHS[1] + _RIM),
        x_axis_label="exponent of the variance",
        y_axis_label="exponent of the width",
    )
    mapper = LogColorMapper(palette=Viridis256, low=0.03, high=1.0)
    made.image("error", x="x", y="y", dw="dw", dh="dh", source=image, color_mapper=mapper)
    ends = np.array([_VARIANCES[0] - _RIM, _VARIANCES[1] + _RIM])
    for corner, slope, colour, words in (
        (1.0, -1.0, COLOURS[5], "lazy above"),
        (0.0, -2.0, COLOURS[0], "the start drowns the signal above"),
        (1.0, 0.0, COLOURS[7], "fewer neurons than dimensions below"),
    ):
        made.line(ends, corner + slope * ends, color="white", line_width=5)
        made.line(ends, corner + slope * ends, color=colour, line_width=2.5, legend_label=words)
    made.scatter("x", "y", source=here, marker="star", size=26, color="white", line_color="black", line_width=1.5)
    made.add_layout(ColorBar(color_mapper=mapper, title="test error", width=14), "right")
    made.add_layout(made.legend[0], "below")
    made.grid.visible = False
    return made


def _draw_errors(sources: Sources) -> Any:
    run, said = sources.empty("run", "step", "test", "train"), sources.empty("said", "step", "test")
    stop, best = sources.empty("stop", "step", "test"), sources.empty("best", "step", "test")
    made = plain(height=400, x_axis_label="step", y_axis_label="mean squared error")
    made.line("step", "test", source=said, color=_TEST, line_width=6, alpha=0.3, legend_label="test, predicted")
    made.line("step", "test", source=run, color=_TEST, line_width=1.8, legend_label="test, exact")
    made.line(
        "step", "train", source=run, color=_TRAIN, line_width=1.8, line_dash="dashed", legend_label="train, exact"
    )
    made.scatter("step", "test", source=stop, size=16, color=_TEST, alpha=0.35)
    made.scatter("step", "test", source=best, size=8, color=_TEST)
    made.y_range.start = 0
    made.legend.location = "top_right"
    return made


def _draw_values(sources: Sources) -> Any:
    flow = sources.empty("flow", "step", "value", "colour")
    values = sources.empty("values", "step", "value", "colour", "name")
    threshold = sources.empty("threshold", "step", "c")
    made = plain(x_axis_label="step", y_axis_label="singular values of A", y_axis_type="log")
    made.multi_line("step", "value", source=flow, color="colour", line_width=6, alpha=0.3)
    made.multi_line("step", "value", source=values, color="colour", line_width=1.6, legend_field="name")
    made.line(
        "step",
        "c",
        source=threshold,
        color=COLOURS[2],
        line_width=1.5,
        line_dash="dotted",
        legend_label="c: lazy below",
    )
    made.legend.location = "bottom_right"
    return made
