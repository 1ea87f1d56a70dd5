"""Lazy to rich: neurons that align with what is to be learned, and their kernel, step by step."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

import linnet as ln
from linnet.curves import crossing
from linnet.lab.control import Choice, Player, Slider, Values
from linnet.lab.page import Page, Update, arguments, call
from linnet.lab.panel import COLORS, BokehPanel, Sources, image_columns
from linnet.prediction import Quantity
from linnet.theory import feature
from linnet.theory.regime import Regime

_STEPS = 200
_RICHNESS = np.geomspace(1e-2, 1e8, 121)
_INITS = {"readout": "random neurons, readout ±v₀", "balanced": "λ-balanced layers"}


# The code that the page shows -----------------------------------------------------------------------------------------


def setup(
    init: str, v0: float, sigma0: float, lam: float, seed: int, width: int, samples: int, inputs: int
) -> tuple[ln.problems.Regression, ln.Weights, ln.optim.SGD]:
    """A regression with one output, a network of two layers, and a learning rate with which 160 steps learn 99.9 %.

    v0, sigma0 and the square root of |lam| / width are in units of v_star, the final readout of a tiny initialization.
    """
    key = jax.random.key(seed)
    width = width if init == "readout" else samples
    problem = ln.problems.mean_field_regression(*ln.problems.gaussian_samples(key, samples, inputs), width=width)
    task = feature.task(problem)
    unit = float(np.sqrt(task.vstar2))
    if init == "readout":
        network = ln.init.readout(key, problem, [width], sigma0=sigma0 * unit, v0=v0 * unit)
    else:
        network = ln.init.lambda_balanced(key, problem, -lam * width * unit**2, width, scale=1e-3 * unit)
    # the mean of both amplitudes: their difference is random, and does not change the time
    plus, minus = feature.amplitudes(network.layers[0], network.layers[1], task)
    mean = (plus + minus) / 2
    time = feature.aligned_time(0.999, feature.Amplitudes(mean, mean), task.vstar2)
    return problem, network, ln.optim.SGD(float(time) / (160 * float(task.rate)))


def neurons(state: ln.Weights, problem: ln.problems.Regression) -> jax.Array:
    """Each neuron's weight along X^T y, and its readout."""
    direction = problem.cross[0] / jnp.linalg.norm(problem.cross[0])
    return jnp.stack([state.layers[0] @ direction, state.layers[1][0]])


def train(problem: ln.problems.Regression, network: ln.Weights, optimizer: ln.optim.SGD, *names: str) -> ln.Trajectory:
    """200 steps, with these observables."""
    observe = {name: neurons if name == "neurons" else getattr(ln.observe, name) for name in names}
    return ln.simulate(problem, network, optimizer, steps=200, observe=observe)


# The page ------------------------------------------------------------------------------------------------------------


class RichPage(Page):
    """One output: two stages of feature learning from a small initialization, none from a large one."""

    name = "rich"
    title = "Lazy to rich"
    lead = (
        "Play the training. From a small initialization all neurons first align with the diagonal while the loss stays "
        "constant, then they grow and the loss falls; from a large one nothing aligns, and the kernel stays constant."
    )
    formula = (
        r"f = \frac{1}{w} X W_1^\top v, \qquad "
        r"R = \frac{2 v_\star^2}{v_0^2 + \sigma_0^2} = \frac{2 w v_\star^2}{|\lambda|}, \qquad "
        r"\frac{y^\top \Theta_\infty y}{y^\top \Theta_0 y} = \sqrt{1 + R^2}"
    )
    theory = ("feature", "balance")
    claims = (
        "feature/C2",
        "feature/C4",
        "feature/C8",
        "feature/C21",
        "feature/C22",
        "balance/C1",
    )
    controls = (
        Player("time", "Step", 24, low=0, high=_STEPS, step=4, whole=True),
        Choice("init", "Initialization", "readout", options=_INITS, group="Initialization"),
        Slider("v0", "Readout v₀", 0.002, low=1e-4, high=10.0, log=True, group="Initialization"),
        Slider("sigma0", "First layer σ₀", 0.003, low=1e-4, high=10.0, log=True, group="Initialization"),
        Slider("lam", "Imbalance |λ|", 1e-3, low=1e-6, high=100.0, log=True, group="Initialization"),
        Slider("seed", "Seed", 0, low=0, high=99, whole=True, group="Initialization"),
        Slider("width", "Neurons", 200, low=50, high=500, whole=True, rungs=(50, 100, 200, 500), group="Network"),
        Slider("samples", "Samples", 20, low=10, high=40, whole=True, rungs=(10, 20, 40), group="Data"),
        Slider("inputs", "Inputs", 1000, low=50, high=10**5, log=True, whole=True, group="Data"),
    )
    hints: ClassVar = {
        "v0": "Over v⋆, where a neuron's readout ends from a tiny initialization.",
        "sigma0": "Over v⋆.",
        "lam": "Of λ-balanced layers alone, over w v⋆²: W₁W₁ᵀ − vvᵀ = |λ| I, with as many neurons as samples.",
        "inputs": "The fewer, the more a third stage of other directions follows.",
    }
    presets: ClassVar = {
        "Figure 1: two stages": {"samples": 10, "inputs": 10_000, "v0": 1e-3, "sigma0": 0.01, "time": 80},
        "rich: a tiny initialization": {"v0": 1e-4, "sigma0": 1e-4, "time": 100},
        "between: aligning and learning at once": {"v0": 0.5, "sigma0": 0.5, "time": 40},
        "lazy: a large initialization": {"v0": 5.0, "sigma0": 0.05, "time": 40},
        "λ-balanced, rich": {"init": "balanced", "lam": 1e-4, "time": 100},
        "λ-balanced, lazy": {"init": "balanced", "lam": 30.0, "time": 100},
    }
    functions = (setup, neurons, train)
    imports = (
        "import jax",
        "import jax.numpy as jnp",
        "import linnet as ln",
        "import numpy as np",
        "from linnet.theory import feature",
    )

    def panels(self, sources: Sources) -> list[BokehPanel]:
        return [*_network_panels(sources), *_training_panels(sources)]

    def updates(self, values: Values) -> Iterator[Update]:
        training, step = _training(**_given(values)), values["time"]
        neurons, kernel = training.run["neurons"][step], training.kernels[step]
        largest = np.max(np.abs(kernel - np.diag(np.diag(kernel))))  # the diagonal would hide all else
        reach = 1.1 * float(np.max(np.abs(neurons))) * np.array([-1.0, 1.0])
        yield Update(
            {
                "neurons": {"w": neurons[0], "v": neurons[1], "color": training.colors},
                "diagonal": {"w": reach, "v": reach},
                "kernel": image_columns(kernel / largest, 0, len(kernel), 0, len(kernel)),
                "now": _vertical(float(step)),
            },
            headline=_headline(training, step),
            quantities=_quantities(training, step),
        )
        yield Update(training.columns)

    def script(self, values: Values) -> str:
        return f"""\
problem, network, optimizer = {call(setup, values)}
run = train(problem, network, optimizer, "loss", "slope", "label_kernel", "target_distance", "neurons")
kernel = train(problem, network, optimizer, "sample_kernel")["sample_kernel"][{values["time"]}]
data = run.to_xarray().assign(kernel=(("sample", "other"), kernel))
figure = run.plot()
"""


# The training --------------------------------------------------------------------------------------------------------


def _given(values: Values) -> Values:
    """What decides a training; what the chosen initialization does not use does not start another one."""
    used = ("v0", "sigma0", "width") if values["init"] == "readout" else ("lam",)
    unused = {"v0": 1e-3, "sigma0": 0.0, "lam": 0.0, "width": 0}
    return arguments(setup, values | {name: value for name, value in unused.items() if name not in used})


@dataclass(frozen=True)
class _Training:
    """A whole training, step by step, with the theory in two numbers; samples are in the order of the labels."""

    problem: ln.problems.Regression
    network: ln.Weights
    optimizer: ln.optim.SGD
    run: dict[str, np.ndarray]

    @cached_property
    def task(self) -> feature.FeatureTask:
        return feature.task(self.problem)

    @cached_property
    def kernels(self) -> np.ndarray:
        order = np.argsort(np.asarray(self.task.labels))
        return self.run["sample_kernel"][:, order][:, :, order]

    @cached_property
    def colors(self) -> list[str]:
        """By the sign of the readout at the end."""
        weight, readout = self.run["neurons"][0]
        return [COLORS[0] if positive else COLORS[4] for positive in weight + readout > 0]

    @cached_property
    def growth(self) -> np.ndarray:
        """Of the kernel along the labels."""
        return self.run["label_kernel"] / self.run["label_kernel"][0]

    @cached_property
    def aligned(self) -> float:
        """The step at which the neurons are aligned, NaN if there is none."""
        return float(crossing(np.arange(_STEPS + 1), self.run["slope"], feature.ALIGNED, "records"))

    @cached_property
    def amplitudes(self) -> feature.Amplitudes:
        return feature.amplitudes(self.network.layers[0], self.network.layers[1], self.task)

    @cached_property
    def richness(self) -> float:
        return float(4 * self.task.vstar2 / (self.amplitudes.plus + self.amplitudes.minus))

    @cached_property
    def columns(self) -> dict[str, dict[str, Any]]:
        """What is shown of the whole training: the same object for every step, which is not sent again."""
        steps, task = np.arange(_STEPS + 1.0), self.task
        theory = feature.aligned_descent(self.amplitudes, task.step(self.optimizer.lr), task.vstar2, _STEPS)
        readout = float(np.sqrt(np.mean(np.asarray(self.network.layers[1]) ** 2)))
        loss, slope = self.run["loss"], self.run["slope"]
        # a norm at each step, which takes longer than all else
        distance = np.asarray(train(self.problem, self.network, self.optimizer, "target_distance")["target_distance"])
        return {
            "predicted": {
                "step": steps,
                "loss": np.asarray(theory.loss(task)) / loss[0],
                "slope": np.asarray(theory.slope(self.amplitudes, readout)),
            },
            "measured": {"step": steps, "loss": loss / loss[0], "slope": slope, "distance": distance},
            "aligned": _vertical(self.aligned),
            "law": {"richness": _RICHNESS, "growth": np.asarray(feature.kernel_growth(_RICHNESS))},
            "here": {"richness": np.array([self.richness]), "growth": self.growth[-1:]},
        }


@lru_cache(maxsize=8)
def _training(**given: Any) -> _Training:
    problem, network, optimizer = setup(**given)
    names = ("loss", "slope", "label_kernel", "sample_kernel", "neurons")
    run = train(problem, network, optimizer, *names)
    return _Training(problem, network, optimizer, {name: np.asarray(run[name]) for name in names})


def _headline(training: _Training, step: int) -> str:
    loss, regime = training.run["loss"], Regime.of_growth(float(training.growth[-1]))
    left = f"{100 * loss[step] / loss[0]:.3g} % of the loss is left"
    if loss[step] < 0.05 * loss[0]:
        return f"Learned: {left}, and the kernel has grown {training.growth[step]:.3g}-fold along the labels."
    if regime is Regime.LAZY:
        return f"Lazy: no neuron aligns. {left}, and the kernel is nearly the initial one."
    if step >= training.aligned:  # never where they do not align
        return f"Stage two: the neurons are aligned and grow together. {left}."
    if regime is Regime.RICH:
        return f"Stage one: the neurons align with Xᵀy while the output is small. {left}."
    return f"Between lazy and rich: the neurons align while the loss falls. {left}."


def _quantities(training: _Training, step: int) -> tuple[Quantity, ...]:
    run, kernel = training.run, training.run["sample_kernel"][step]
    cosine = run["label_kernel"][step] / (float(training.task.square) * np.linalg.norm(kernel))
    aligned = f"at step {training.aligned:.0f}" if np.isfinite(training.aligned) else "not within these steps"
    return (
        Quantity("regime", str(Regime.of_growth(float(training.growth[-1]))), "regime"),
        Quantity("richness", training.richness, "R", format=".3g"),
        Quantity("loss", float(run["loss"][step] / run["loss"][0]), "loss left", format=".3g"),
        Quantity("slope", float(run["slope"][step]), "slope of the neurons", format=".3f"),
        Quantity("cosine", float(cosine), "cosine of kernel and yyᵀ", format=".3f"),
        Quantity("growth", float(training.growth[step]), "growth of the kernel along y", format=",.4g"),
        Quantity("aligned", aligned, "aligned"),
        Quantity("lr", float(np.asarray(training.optimizer.lr)), "learning rate", format=".3g"),
    )


# Panels --------------------------------------------------------------------------------------------------------------


def _vertical(step: float) -> dict[str, Any]:
    """A vertical line at this step, or none if it is NaN."""
    return (
        {"step": np.full(2, step), "level": np.array([0.0, 1.05])} if np.isfinite(step) else {"step": [], "level": []}
    )


def _network_panels(sources: Sources) -> list[BokehPanel]:
    from bokeh.palettes import RdBu11

    caption = "Each dot is a neuron: its weight along Xᵀy, and its readout. Aligned ones lie on the dotted line."
    neurons = BokehPanel(sources, "neurons", "Neurons", caption, "weight along Xᵀy", "readout v", height=360)
    neurons.line("diagonal", "w", "v", "dotted")
    neurons.points("neurons", "w", "v", color="color", size=7, alpha=0.6)
    caption = "Between the samples, ordered by label, over its largest entry off the diagonal. Features add yyᵀ."
    kernel = BokehPanel(sources, "kernel", "Tangent kernel", caption, "sample", "sample", height=360)
    kernel.image("kernel", RdBu11[::-1], -1.0, 1.0, title="")
    kernel.figure.x_range.range_padding = kernel.figure.y_range.range_padding = 0
    return [neurons, kernel]


def _training_panels(sources: Sources) -> list[BokehPanel]:
    caption = "Thick: theory in two numbers. Thin: exact training. The vertical line is the step that is shown."
    curves = BokehPanel(
        sources,
        "curves",
        "Two stages",
        caption,
        "step",
        "",
        height=300,
        wide=True,
        x_range=(0, _STEPS),
        y_range=(-0.03, 1.08),
    )
    for name, color, label in (
        ("loss", COLORS[1], "loss, over its initial value"),
        ("slope", COLORS[0], "slope of the neurons"),
    ):
        curves.line("predicted", "step", name, "predicted", color=color)
        curves.line("measured", "step", name, "measured", color=color, label=label)
    label = "kernel's distance from the aligned one"
    curves.line("measured", "step", "distance", "measured", color=COLORS[2], label=label)
    curves.line("aligned", "step", "level", "dashed", label="aligned: stage one ends")
    curves.line("now", "step", "level", color=COLORS[3], label="shown")
    curves.legend("center_right")
    caption = "Growth of the kernel along the labels, over R. Line: theory. Dot: the training of this network."
    growth = BokehPanel(
        sources, "growth", "Lazy or rich, in one number", caption, "richness R", "growth of yᵀΘy", log="xy", wide=True
    )
    growth.line("law", "richness", "growth", "predicted", color=COLORS[4], label="√(1 + R²)")
    growth.points("here", "richness", "growth", color=COLORS[4], size=12, label="this network")
    growth.legend("top_left")
    return [curves, growth]
