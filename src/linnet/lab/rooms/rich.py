"""Lazy to rich: neurons that turn towards what is to be learned, and the kernel that they make, frame by frame."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from linnet import observe
from linnet.curves import crossing
from linnet.initial import lambda_balanced, readout
from linnet.lab.control import Choice, Player, Slider, Values
from linnet.lab.dress import COLOURS, SOFT, plain
from linnet.lab.room import Plate, Room, Sight, Sources
from linnet.motion import GradientDescent
from linnet.predict.features_result import ALIGNED
from linnet.problems import Regression, gaussian_samples, mean_field_regression
from linnet.simulation import simulate
from linnet.states import Weights
from linnet.theory import feature
from linnet.theory.regime import Regime

_STEPS = 200
_LEARNED, _UNTIL = 0.999, 160  # the share of the output that is learned after so many steps
_LIGHT = 1e-3  # of a readout that starts lambda-balanced, over v_star
_RICHNESS = np.geomspace(1e-2, 1e8, 121)
_STARTS = {"readout": "random neurons, readout ±v₀", "balanced": "λ-balanced layers"}


class Rich(Room):
    """One output: two stages of feature learning from a small start, none from a large one."""

    name: ClassVar[str] = "rich"
    title: ClassVar[str] = "Lazy to rich"
    lead: ClassVar[str] = (
        "Play the training. From a small start all neurons first turn to the diagonal while the loss stands still, "
        "then they grow and the loss falls; from a large start nothing turns, and the kernel stays what it was."
    )
    formula: ClassVar[str] = (
        r"f = \frac{1}{w} X W_1^\top v, \qquad "
        r"R = \frac{2 v_\star^2}{v_0^2 + \sigma_0^2} = \frac{2 w v_\star^2}{|\lambda|}, \qquad "
        r"\frac{y^\top \Theta_\infty y}{y^\top \Theta_0 y} = \sqrt{1 + R^2}"
    )
    theory: ClassVar[tuple[str, ...]] = ("feature", "balance")
    claims: ClassVar[tuple[str, ...]] = (
        "feature/C2",
        "feature/C4",
        "feature/C8",
        "feature/C21",
        "feature/C22",
        "balance/C1",
    )
    controls: ClassVar = (
        Player(name="time", label="Step", value=24, low=0, high=_STEPS, step=4, whole=True),
        Choice(name="start", label="Start", value="readout", options=_STARTS, group="Start"),
        Slider(
            name="v0",
            label="Readout v₀",
            value=0.002,
            low=1e-4,
            high=10.0,
            log=True,
            hint="Over v⋆, where a neuron's readout ends if it starts from nothing.",
            group="Start",
        ),
        Slider(
            name="sigma0",
            label="First layer σ₀",
            value=0.003,
            low=1e-4,
            high=10.0,
            log=True,
            hint="Over v⋆.",
            group="Start",
        ),
        Slider(
            name="lam",
            label="Imbalance |λ|",
            value=1e-3,
            low=1e-6,
            high=100.0,
            log=True,
            hint="Of λ-balanced layers alone, over w v⋆²: W₁W₁ᵀ − vvᵀ = |λ| I, with as many neurons as samples.",
            group="Start",
        ),
        Slider(name="seed", label="Draw", value=0, low=0, high=99, whole=True, group="Start"),
        Slider(
            name="width",
            label="Neurons",
            value=200,
            low=50,
            high=500,
            whole=True,
            rungs=(50, 100, 200, 500),
            group="Network",
        ),
        Slider(
            name="samples", label="Samples", value=20, low=10, high=40, whole=True, rungs=(10, 20, 40), group="Data"
        ),
        Slider(
            name="inputs",
            label="Inputs",
            value=1000,
            low=50,
            high=10**5,
            log=True,
            whole=True,
            hint="The fewer, the more a third stage of other directions follows.",
            group="Data",
        ),
    )
    presets: ClassVar = {
        "Figure 1: two stages": {"samples": 10, "inputs": 10_000, "v0": 1e-3, "sigma0": 0.01, "time": 80},
        "rich: a tiny start": {"v0": 1e-4, "sigma0": 1e-4, "time": 100},
        "between: turning and learning at once": {"v0": 0.5, "sigma0": 0.5, "time": 40},
        "lazy: a large start": {"v0": 5.0, "sigma0": 0.05, "time": 40},
        "λ-balanced, rich": {"start": "balanced", "lam": 1e-4, "time": 100},
        "λ-balanced, lazy": {"start": "balanced", "lam": 30.0, "time": 100},
    }
    files: ClassVar[tuple[str, ...]] = (*Room.files, "gif", "mp4")

    def draw(self, sources: Sources) -> list[Plate]:
        return [
            Plate(
                "neurons",
                "Neurons",
                "Each dot is a neuron: its weight along Xᵀy, and its readout. Aligned ones lie on the dotted line.",
                _draw_neurons(sources),
            ),
            Plate(
                "kernel",
                "Tangent kernel",
                "Between the samples, ordered by label, over its largest entry off the diagonal. Features add yyᵀ.",
                _draw_kernel(sources),
            ),
            Plate(
                "curves",
                "Two stages",
                "Thick: theory in two numbers. Thin: exact training. The upright line is the step that is shown.",
                _draw_curves(sources),
                wide=True,
            ),
            Plate(
                "growth",
                "Lazy or rich, in one number",
                "How much the kernel grows along the labels, over R. Line: theory. Dot: the training of this network.",
                _draw_growth(sources),
                wide=True,
            ),
        ]

    def look(self, values: Values) -> Iterator[Sight]:
        film = _film(**_network(values))
        at = values["time"]
        span = np.array([0.0, 1.0])
        side = float(len(film.kernels[at]))
        yield Sight(
            {
                "neurons": {"w": film.neurons[at, 0], "v": film.neurons[at, 1], "colour": film.colours},
                "diagonal": _diagonal(film.neurons[at]),
                "kernel": {"kernel": [_contrast(film.kernels[at])], "side": np.array([side])},
                "now": {"step": np.full(2, float(at)), "level": 1.05 * span},
            },
            sentence=_sentence(film, at),
            numbers=_numbers(film, at),
        )
        yield Sight(film.whole)

    def code(self, values: Values) -> str:
        asked = _network(values)
        setting, at = _setting(**asked), values["time"]
        start = f"ln.readout(key, problem, [{setting.width}], sigma0={setting.sigma0!r}, v0={setting.v0!r})"
        if values["start"] == "balanced":
            start = f"ln.lambda_balanced(key, problem, {setting.lam!r}, {setting.width}, scale={setting.v0!r})"
        shown = f"ln.simulate(problem, start, motion, steps={at}).final" if at else "start"
        return f"""\
import jax
import jax.numpy as jnp
import linnet as ln

key = jax.random.key({values["seed"]})
X, y = ln.gaussian_samples(key, {values["samples"]}, {values["inputs"]})
problem = ln.mean_field_regression(X, y, width={setting.width})
start = {start}
motion = ln.GradientDescent({setting.lr!r})


def neurons(state, problem):
    \"\"\"Each neuron's weight along X^T y, and its readout\"\"\"
    feature = problem.cross[0] / jnp.linalg.norm(problem.cross[0])
    return jnp.stack([state.layers[0] @ feature, state.layers[1][0]])


run = ln.simulate(
    problem,
    start,
    motion,
    steps={_STEPS},
    observe={{
        "loss": ln.observe.loss,
        "slope": ln.observe.slope,
        "label_kernel": ln.observe.label_kernel,
        "target_distance": ln.observe.target_distance,
        "neurons": neurons,
    }},
)
shown = {shown}
kernel = ln.observe.sample_kernel(shown, problem)
data = run.to_xarray().assign(kernel=(("sample", "other"), kernel))
figure = run.plot()
"""


# The training --------------------------------------------------------------------------------------------------------


class _Setting(NamedTuple):
    """A network, its start and its step size, in the problem's own units."""

    problem: Regression
    start: Weights
    width: int
    v0: float
    sigma0: float
    lam: float
    lr: float


@dataclass(frozen=True, kw_only=True)
class _Film:
    """A whole training, step by step; what is drawn sample by sample is in the order of the labels."""

    neurons: Float[np.ndarray, "steps 2 w"]
    kernels: Float[np.ndarray, "steps n n"]
    loss: Float[np.ndarray, " steps"]  # over its start
    slope: Float[np.ndarray, " steps"]
    cosine: Float[np.ndarray, " steps"]  # of the kernel and of y y^T
    growth: Float[np.ndarray, " steps"]
    said_loss: Float[np.ndarray, " steps"]
    said_slope: Float[np.ndarray, " steps"]
    colours: list[str]
    t1: float
    richness: float
    setting: _Setting

    @cached_property
    def distance(self) -> Float[np.ndarray, " steps"]:
        """How far the kernel is from the aligned one: a norm at each step, which takes longer than all else."""
        setting = self.setting
        motion, look = GradientDescent(setting.lr), observe.target_distance
        return np.asarray(simulate(setting.problem, setting.start, motion, steps=_STEPS, observe=[look])[look.name])

    @cached_property
    def whole(self) -> dict[str, dict[str, np.ndarray]]:
        """What is drawn of the whole training: the same object for every frame, which the page need not draw again."""
        steps = np.arange(_STEPS + 1.0)
        return {
            "said": {"step": steps, "loss": self.said_loss, "slope": self.said_slope},
            "seen": {"step": steps, "loss": self.loss, "slope": self.slope, "distance": self.distance},
            "aligned": _upright(self.t1, np.array([0.0, 1.0])),
            "law": {"richness": _RICHNESS, "growth": np.asarray(feature.kernel_growth(_RICHNESS))},
            "here": {"richness": np.array([self.richness]), "growth": self.growth[-1:]},
        }


def _network(values: Values) -> dict[str, Any]:
    """What decides a training: what is moved, but for the step that is shown and what the other start has."""
    kind = values["start"]
    used = ("v0", "sigma0", "width") if kind == "readout" else ("lam",)
    return {name: values[name] for name in ("start", *used, "seed", "samples", "inputs")}


@lru_cache(maxsize=8)
def _setting(
    *,
    start: str,
    seed: int,
    samples: int,
    inputs: int,
    v0: float = _LIGHT,
    sigma0: float = 0.0,
    lam: float = 0.0,
    width: int = 0,
) -> _Setting:
    """Sizes are over v_star. The step is so long that nearly all is learned before the last one."""
    key = jax.random.key(seed)
    neurons = width or samples
    problem = mean_field_regression(*gaussian_samples(key, samples, inputs), width=neurons)
    task = feature.task(problem)
    size = float(np.sqrt(task.vstar2))
    light, heavy, number = _short(v0 * size), _short(sigma0 * size), -_short(lam * neurons * size**2)
    if start == "readout":
        state = readout(key, problem, [neurons], sigma0=heavy, v0=light)
    else:
        state = lambda_balanced(key, problem, number, neurons, scale=light)
    # its two amplitudes alike: what the start itself puts out is random, and no part of how long it takes
    plus, minus = feature.amplitudes(state.layers[0], state.layers[1], task)
    rapidity = feature.aligned_time(_LEARNED, feature.Amplitudes((plus + minus) / 2, (plus + minus) / 2), task.vstar2)
    lr = _short(float(rapidity) / (_UNTIL * float(task.rate)))
    return _Setting(problem, state, neurons, light, heavy, number, lr)


@lru_cache(maxsize=8)
def _film(**asked: Any) -> _Film:
    setting = _setting(**asked)
    problem, start = setting.problem, setting.start
    looks: dict[str, Any] = {"loss": observe.loss, "slope": observe.slope, "label": observe.label_kernel}
    looks |= {"kernel": observe.sample_kernel, "neurons": _neurons}
    run = simulate(problem, start, GradientDescent(setting.lr), steps=_STEPS, observe=looks)
    loss, slope, label, kernels, neurons = (np.asarray(run[name]) for name in looks)
    task = feature.task(problem)
    size = feature.amplitudes(start.layers[0], start.layers[1], task)
    told = feature.aligned_descent(size, task.step(setting.lr), task.vstar2, _STEPS)
    mean = float(np.sqrt(np.mean(np.asarray(start.layers[1]) ** 2)))
    order = np.argsort(np.asarray(task.labels))
    late = neurons[0, 0] + neurons[0, 1] > 0  # whose readout ends above zero
    return _Film(
        neurons=neurons,
        kernels=kernels[:, order][:, :, order],
        loss=loss / loss[0],
        slope=slope,
        cosine=label / (float(task.square) * np.linalg.norm(kernels, axis=(1, 2))),
        growth=label / label[0],
        said_loss=np.asarray(told.loss(task)) / loss[0],
        said_slope=np.asarray(told.slope(size, mean)),
        colours=[COLOURS[0] if up else COLOURS[4] for up in late],
        t1=float(crossing(np.arange(_STEPS + 1), slope, ALIGNED, "records")),
        richness=float(4 * task.vstar2 / (size.plus + size.minus)),
        setting=setting,
    )


def _neurons(state: Weights, problem: Regression) -> Float[Array, "2 w"]:
    """Each neuron's weight along X^T y, and its readout"""
    direction = problem.cross[0] / jnp.linalg.norm(problem.cross[0])
    return jnp.stack([state.layers[0] @ direction, state.layers[1][0]])


def _short(number: float) -> float:
    """Six digits, as the lines have it that make the same."""
    return float(f"{number:.6g}")


# Words ---------------------------------------------------------------------------------------------------------------


def _sentence(film: _Film, at: int) -> str:
    left, regime = film.loss[at], Regime.of_growth(float(film.growth[-1]))
    rest = f"{100 * left:.3g} % of the loss is left"
    if left < 0.05:
        return f"Learned: {rest}, and the kernel has grown {film.growth[at]:.3g}-fold along the labels."
    if regime is Regime.LAZY:
        return f"Lazy: no neuron turns. {rest}, and the kernel is nearly what it was at the start."
    if at >= film.t1:  # never where they do not align
        return f"Stage two: the neurons are aligned and grow together. {rest}."
    if regime is Regime.RICH:
        return f"Stage one: the neurons turn towards Xᵀy while the output is small. {rest}."
    return f"Between lazy and rich: the neurons turn while the loss falls. {rest}."


def _numbers(film: _Film, at: int) -> dict[str, str]:
    aligned = f"step {film.t1:.0f}" if np.isfinite(film.t1) else "not within these steps"
    return {
        "regime": str(Regime.of_growth(float(film.growth[-1]))),
        "R": f"{film.richness:.3g}",
        "loss left": f"{film.loss[at]:.3g}",
        "slope of the neurons": f"{film.slope[at]:.3f}",
        "cosine of kernel and yyᵀ": f"{film.cosine[at]:.3f}",
        "kernel along y, over its start": f"{film.growth[at]:,.4g}",
        "aligned": aligned,
        "step size": f"{film.setting.lr:.3g}",
    }


# Pictures ------------------------------------------------------------------------------------------------------------


def _contrast(kernel: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
    """In units of the largest entry off the diagonal, which would outshine them all."""
    apart = kernel - np.diag(np.diag(kernel))
    return kernel / np.max(np.abs(apart))


def _diagonal(neurons: Float[np.ndarray, "2 w"]) -> dict[str, Any]:
    """w = v, as far as the neurons go."""
    reach = 1.1 * float(np.max(np.abs(neurons))) * np.array([-1.0, 1.0])
    return {"w": reach, "v": reach}


def _upright(step: float, span: np.ndarray) -> dict[str, Any]:
    """An upright line, where there is one."""
    there = span if np.isfinite(step) else span[:0]
    return {"step": np.full(len(there), step), "level": 1.05 * there}


def _draw_neurons(sources: Sources) -> Any:
    neurons, diagonal = sources.empty("neurons", "w", "v", "colour"), sources.empty("diagonal", "w", "v")
    made = plain(height=360, x_axis_label="weight along Xᵀy", y_axis_label="readout v")
    made.line("w", "v", source=diagonal, color=SOFT, line_dash="dotted", line_width=1.5)
    made.scatter("w", "v", source=neurons, color="colour", size=7, alpha=0.6)
    return made


def _draw_kernel(sources: Sources) -> Any:
    from bokeh.models import ColorBar, LinearColorMapper
    from bokeh.palettes import RdBu11

    kernel = sources.empty("kernel", "kernel", "side")
    made = plain(height=360, x_axis_label="sample", y_axis_label="sample")
    mapper = LinearColorMapper(palette=RdBu11[::-1], low=-1.0, high=1.0)
    made.image("kernel", x=0, y=0, dw="side", dh="side", source=kernel, color_mapper=mapper)
    made.x_range.range_padding = made.y_range.range_padding = 0
    made.add_layout(ColorBar(color_mapper=mapper, width=14), "right")
    made.grid.visible = False
    return made


def _draw_curves(sources: Sources) -> Any:
    said, seen = (
        sources.empty("said", "step", "loss", "slope"),
        sources.empty("seen", "step", "loss", "slope", "distance"),
    )
    now, aligned = sources.empty("now", "step", "level"), sources.empty("aligned", "step", "level")
    made = plain(height=300, x_axis_label="step", y_range=(-0.03, 1.08), x_range=(0, _STEPS))
    for name, colour, words in (
        ("loss", COLOURS[1], "loss, over its start"),
        ("slope", COLOURS[0], "slope of the neurons"),
    ):
        made.line("step", name, source=said, color=colour, line_width=6, alpha=0.3)
        made.line("step", name, source=seen, color=colour, line_width=1.8, legend_label=words)
    made.line(
        "step",
        "distance",
        source=seen,
        color=COLOURS[2],
        line_width=1.8,
        legend_label="kernel's distance from the aligned one",
    )
    made.line("step", "level", source=aligned, color=SOFT, line_dash="dashed", legend_label="aligned: stage one ends")
    made.line("step", "level", source=now, color=COLOURS[3], line_width=2.5, legend_label="shown")
    made.legend.location = "center_right"
    return made


def _draw_growth(sources: Sources) -> Any:
    law, here = sources.empty("law", "richness", "growth"), sources.empty("here", "richness", "growth")
    made = plain(x_axis_label="richness R", y_axis_label="growth of yᵀΘy", x_axis_type="log", y_axis_type="log")
    made.line("richness", "growth", source=law, color=COLOURS[4], line_width=6, alpha=0.3, legend_label="√(1 + R²)")
    made.scatter("richness", "growth", source=here, color=COLOURS[4], size=12, legend_label="this network")
    made.legend.location = "top_left"
    return made
