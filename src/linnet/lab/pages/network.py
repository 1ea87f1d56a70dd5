"""One network: its modes, its loss, its layers, its curvature, and its kernel, predicted and exact."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

import linnet as ln
from linnet.lab.control import Bars, Choice, Control, Slider, Values
from linnet.lab.page import Page, Update, as_toml, headline
from linnet.lab.panel import COLORS, BokehPanel, Sources
from linnet.lab.work import affordable
from linnet.optim import SGD
from linnet.prediction import Prediction, Quantity, mode_curve

_MODES = 5
_POINTS, _FEW = 51, 21  # records at which the sharpness is computed
_MANY = 2000  # weights from which on that is slow
_QUICK = 3e8  # multiplications of a run that seems to take no time
_WIDTHS = [a * 10**b for b in range(1, 7) for a in (1, 2, 5)] + [10**7]
_OPTIMIZERS = {"descent": "gradient descent", "momentum": "momentum 0.9", "nesterov": "Nesterov 0.9"}
_INITS = {"gaussian": "Gaussian", "balanced": "balanced", "one-zero": "last layer zero"}
INIT_HINTS = {
    "scale": "Of a layer's typical singular value: a Gaussian entry has this over the square root of the width."
}


# The code that the page shows -----------------------------------------------------------------------------------------


def train(
    problem: ln.problems.Regression, network: ln.Weights, optimizer: SGD, steps: int, *names: str
) -> ln.Trajectory:
    """The exact training, with 201 records of these observables."""
    observe = {name: weights if name == "weights" else getattr(ln.observe, name) for name in names}
    record = ln.record.linear(min(201, steps + 1))
    return ln.simulate(problem, network, optimizer, steps=steps, record=record, observe=observe)


def weights(state: ln.Weights, problem: ln.problems.Regression) -> Array:
    """All weights in a row, layer by layer."""
    return jnp.concatenate([w.ravel() for w in state.layers])


# The page ------------------------------------------------------------------------------------------------------------


def network_controls(width: int) -> tuple[Control, ...]:
    """Depth and width of a network, with this default width."""
    return (
        Slider("depth", "Depth", 2, low=1, high=6, whole=True, group="Network"),
        Slider("width", "Width", width, low=10, high=10**7, whole=True, rungs=_WIDTHS, unit="neurons", group="Network"),
    )


def init_controls(scale: float, largest: float) -> tuple[Control, ...]:
    """Kind, scale, and seed of the initialization."""
    return (
        Choice("init", "Initialization", "gaussian", options=_INITS, group="Initialization"),
        Slider("scale", "Scale", scale, low=1e-6, high=largest, log=True, group="Initialization"),
        Slider("seed", "Seed", 0, low=0, high=99, whole=True, group="Initialization"),
    )


class NetworkPage(Page):
    """The training of one network on a target of given singular values, beside its prediction."""

    name = "network"
    title = "One network"
    lead = (
        "Drag the singular values of the target, change depth, width, and initialization: thick lines are the "
        "prediction, thin ones the exact training."
    )
    formula = (
        r"W_l \leftarrow W_l - \eta\,\frac{\partial}{\partial W_l}\,\frac12\,\lVert W_L \cdots W_1 - A_\star \rVert^2"
    )
    theory = ("mixed", "stability", "convergence")
    claims = ("mixed/C9", "spectral/C25", "stability/C1", "stability/C7")
    controls = (
        Bars("spectrum", "Target: singular values", [3.0, 2.4, 1.8, 1.2, 0.6], low=0.1, high=4.0),
        *network_controls(width=1000),
        Slider("inputs", "Inputs and outputs", 10, low=5, high=50, whole=True, rungs=(5, 10, 20, 50), group="Network"),
        *init_controls(scale=0.01, largest=3.0),
        Choice("optimizer", "Optimizer", "descent", options=_OPTIMIZERS, group="Training"),
        Slider("lr", "Learning rate", 0.05, low=1e-3, high=2.0, log=True, group="Training"),
        Slider("steps", "Steps", 300, low=50, high=2000, log=True, whole=True, group="Training"),
    )
    hints = INIT_HINTS
    presets: ClassVar = {
        "lazy: a wide network from a large initialization": {"width": 10**6, "scale": 3.0, "lr": 0.03, "steps": 100},
        "rich: modes one after the other": {"scale": 1e-4, "lr": 0.05, "steps": 600},
        "mixed: large modes rich, small ones lazy": {"width": 10**5, "scale": 1.0, "lr": 0.05, "steps": 200},
        "deeper: plateaus": {"depth": 3, "init": "balanced", "scale": 0.05, "lr": 0.03, "steps": 1000},
        "beyond the edge of stability": {"init": "balanced", "scale": 0.1, "lr": 0.36, "steps": 300},
        "period 2, depth 3": {"depth": 3, "init": "one-zero", "scale": 0.3, "lr": 0.105, "steps": 300},
    }

    functions = (train, weights)
    imports = (
        "import jax.numpy as jnp",
        "import linnet as ln",
        "from jax import Array",
        "from linnet.optim import SGD",
    )

    def panels(self, sources: Sources) -> list[BokehPanel]:
        caption = "Each singular direction of the target, against the step."
        modes = mode_panel(sources, caption, "mode of W_L … W_1")
        loss = BokehPanel(
            sources, "loss", "Loss", "Half the squared distance from the target.", "step", "loss", log="y"
        )
        loss.line("loss", "step", "loss", color=COLORS[1])
        caption = "Where the sharpness is above the dashed line a step increases this direction."
        sharpness = BokehPanel(sources, "sharpness", "Sharpness against the edge", caption, "step", "sharpness")
        sharpness.line("edge", "step", "edge", "dashed", color=COLORS[0], label="stable up to here")
        label = "largest eigenvalue of the Hessian"
        sharpness.line("sharp", "step", "sharpness", color=COLORS[2], label=label)
        caption = "The largest singular values of the first and of the last layer."
        layers = BokehPanel(sources, "layers", "Layers", caption, "step", "singular values")
        layers.line("layers", "step", "first", "measured", color="color", label="first layer")
        layers.line("layers", "step", "last", "dotted", color="color", label="last layer")
        caption = "Distance of the kernel from the initial one, relative to it: lazy networks keep theirs."
        kernel = BokehPanel(sources, "kernel", "Tangent kernel", caption, "step", "|Θ − Θ₀| / |Θ₀|", log="y")
        kernel.line("kernel", "step", "drift")
        for panel in (sharpness, layers):
            panel.legend("bottom_right")
        return [modes, loss, sharpness, layers, kernel]

    def afford(self, values: Values) -> None:
        affordable(ln.prediction.Situation(**self.tables(values)).setup())

    def updates(self, values: Values) -> Iterator[Update]:
        situation = ln.prediction.Situation(**self.tables(values))
        setup = situation.setup()
        problem, network = setup.reduction.problem, ln.Weights(setup.layers, compressed=True)
        optimizer, colors = SGD(**self.tables(values)["training"]), list(COLORS[:_MODES])
        names = ("loss", "modes", "weights", "kernel_drift")
        cost = values["steps"] * sum(3.0 * w.size * min(w.shape) for w in network.layers)
        for steps in (values["steps"],) if cost < _QUICK else (values["steps"] // 8, values["steps"]):
            run = train(problem, network, optimizer, steps, *names)
            clock, modes = np.asarray(run.steps), np.asarray(run["modes"])[:, :_MODES]
            shown = np.where(np.abs(modes) <= 1.6 * max(values["spectrum"]), modes, np.nan)
            yield Update(
                {
                    "measured": {"step": [clock] * _MODES, "value": list(shown.T), "color": colors},
                    "loss": {"step": clock, "loss": np.asarray(run["loss"])},
                    "kernel": {"step": clock[1:], "drift": np.asarray(run["kernel_drift"])[1:]},
                },
                headline=headline(run),
            )
        last = float(clock[-1])
        prediction = setup.predict()
        curves = [until(*mode_curve(prediction, i), last) for i in range(len(prediction.modes[:_MODES]))]
        edge = float(np.asarray(optimizer.stability_threshold(0)))
        yield Update(
            {
                "predicted": mode_columns(curves),
                "edge": {"step": np.array([0.0, last]), "edge": np.array([edge, edge])},
            },
            headline=headline(run, prediction),
            quantities=quantities(prediction),
        )
        yield Update(_weight_columns(run, prediction))

    def script(self, values: Values) -> str:
        return f"""\
situation = ln.prediction.Situation(
    {tables_as_arguments(self.tables(values))}
)
prediction = situation.predict()
print(prediction)
problem, network = prediction.problem, prediction.network
optimizer = SGD({", ".join(f"{name}={value!r}" for name, value in self.tables(values)["training"].items())})
run = train(problem, network, optimizer, {values["steps"]}, "loss", "modes", "sharpness", "kernel_drift")
data = run.to_xarray()
figure = run.plot()
"""

    def toml(self, values: Values) -> str:
        return as_toml(self.tables(values))

    def tables(self, values: Values) -> dict[str, Any]:
        """The tables of a `Situation`."""
        training: dict[str, Any] = {"lr": values["lr"]}
        if values["optimizer"] != "descent":
            training |= {"momentum": 0.9, "nesterov": values["optimizer"] == "nesterov"}
        return {
            "data": {"spectrum": values["spectrum"], "inputs": values["inputs"], "outputs": values["inputs"]},
            **network_tables(values, values["inputs"]),
            "training": training,
        }


def mode_panel(sources: Sources, caption: str, ylabel: str, **options: Any) -> BokehPanel:
    """The sources `predicted` and `measured`: a thick line for each mode, predicted, and a thin one, exact."""
    modes = BokehPanel(sources, "modes", "Modes", caption, "step", ylabel, height=320, wide=True, **options)
    modes.line("predicted", "step", "value", "predicted", color="color", label="prediction")
    modes.line("measured", "step", "value", "measured", color="color", label="exact training")
    modes.legend("bottom_right")
    return modes


def mode_columns(curves: list[tuple[np.ndarray, np.ndarray]]) -> dict[str, Any]:
    """Columns of `mode_panel` for these curves."""
    colors = list(COLORS[: len(curves)])
    return {"step": [x for x, _ in curves], "value": [y for _, y in curves], "color": colors}


def network_tables(values: Values, inputs: int) -> dict[str, dict[str, Any]]:
    """The tables of a `Situation` for the values of `network_controls` and `init_controls`.

    The scale is a layer's typical singular value; deep Gaussian layers are drawn in full, so they are narrower.
    """
    depth, kind, scale = values["depth"], values["init"], values["scale"]
    network: dict[str, Any] = {"depth": depth}
    if depth > 1:
        network["width"] = values["width"] if depth == 2 or kind != "gaussian" else min(values["width"], 50)
    if kind == "gaussian":
        scale = float(f"{scale / math.sqrt(network.get('width') or inputs):.6g}")
    return {"network": network, "init": {"kind": kind, "scale": scale, "seed": values["seed"]}}


def tables_as_arguments(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """The tables as keyword arguments of `Situation`, one on a line."""
    return "\n    ".join(f"{name}={table!r}," for name, table in tables.items())


def until(steps: np.ndarray, values: np.ndarray, last: float) -> tuple[np.ndarray, np.ndarray]:
    """A predicted curve up to the last step of the run."""
    inside = np.isfinite(steps) & (steps <= last)
    if not inside.any():
        return np.array([0.0, last]), np.full(2, values[0])
    x, y = steps[inside], values[inside]
    return np.append(x, last), np.append(y, np.interp(last, steps[np.isfinite(steps)], values[np.isfinite(steps)]))


def quantities(prediction: Prediction) -> tuple[Quantity, ...]:
    """Regime, stability, and time of the prediction, and the table of its modes."""
    return (
        Quantity("regime", str(prediction.regime), "regime"),
        Quantity("lr", float(prediction.lr), "learning rate", format=".3g"),
        Quantity("largest_stable_lr", prediction.largest_stable_lr, "largest stable at the end", format=".3g"),
        Quantity(
            "largest_stable_lr_at_initialization", prediction.largest_stable_lr_at_initialization, "at initialization"
        ),
        Quantity("learned", prediction.learned.step, "99 % learned at step", unit="step", format=",.0f"),
        prediction["modes"],
    )


def _weight_columns(run: ln.Trajectory, prediction: Prediction) -> dict[str, Any]:
    """Sharpness and layers from the recorded weights, in NumPy, which compiles nothing."""
    weights = np.asarray(run["weights"])
    count = _POINTS if weights.shape[1] <= _MANY else _FEW
    some = np.unique(np.linspace(0, len(weights) - 1, count).astype(int))
    steps, weights = np.asarray(run.steps)[some], weights[some]
    objective = prediction.data["training"].objective
    layers = objective.layers(weights)
    first, last = (np.linalg.svd(w, compute_uv=False)[:, :_MODES].T for w in (layers[0], layers[-1]))
    shown = min(len(first), len(last))
    return {
        "sharp": {"step": steps, "sharpness": np.array([objective.sharpness(one) for one in weights])},
        "layers": {
            "step": [steps] * shown,
            "first": list(first[:shown]),
            "last": list(last[:shown]),
            "color": list(COLORS[:shown]),
        },
    }
