"""One network: its modes, its loss, its layers, its curvature and its kernel, predicted and exact."""

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from linnet import observe, predict
from linnet.lab.control import Bars, Choice, Control, Slider, Values
from linnet.lab.dress import COLOURS, SOFT, plain
from linnet.lab.room import Plate, Room, Sight, Sources, written
from linnet.linalg import below_and_above
from linnet.motion import GradientDescent, Momentum
from linnet.predict.network.chain import Chain
from linnet.problems import Regression
from linnet.record import at, linear
from linnet.simulation import simulate
from linnet.states import Weights
from linnet.trajectory import Trajectory

if TYPE_CHECKING:
    from bokeh.plotting import figure

_MODES = 5
_RECORDS = 201  # of what costs little
_LOOKS, _FEW = 51, 21  # of what costs more
_MANY = 2000  # weights from which on that is dear
_BLINK = 3e8  # multiplications of a run that is not seen to take time
_WIDTHS = [a * 10**b for b in range(1, 7) for a in (1, 2, 5)] + [10**7]
_OPTIMISERS = {"descent": "gradient descent", "momentum": "momentum 0.9", "nesterov": "Nesterov 0.9"}
_STARTS = {"gaussian": "Gaussian", "balanced": "balanced", "one-zero": "last layer zero"}


def building(width: int) -> tuple[Control, ...]:
    """Depth and width of a network, which begins this wide."""
    return (
        Slider(name="depth", label="Depth", value=2, low=1, high=6, whole=True, group="Network"),
        Slider(
            name="width",
            label="Width",
            value=width,
            low=10,
            high=10**7,
            whole=True,
            rungs=_WIDTHS,
            unit="neurons",
            group="Network",
        ),
    )


def starting(scale: float, largest: float) -> tuple[Control, ...]:
    """The start of a network: its kind, its size and its draw."""
    return (
        Choice(name="start", label="Start", value="gaussian", options=_STARTS, group="Start"),
        Slider(
            name="scale",
            label="Size of the start",
            value=scale,
            low=1e-6,
            high=largest,
            log=True,
            hint="Of a layer's typical singular value: a Gaussian entry has this over the root of the width.",
            group="Start",
        ),
        Slider(name="seed", label="Draw", value=0, low=0, high=99, whole=True, group="Start"),
    )


class Network(Room):
    """A target's spectrum, a depth, a width, a start and a step size: what is learned, when, and at what curvature."""

    name = "network"
    title = "One network"
    lead = (
        "Drag the singular values of the target, change depth, width and start: thick lines are the prediction, thin "
        "ones the exact training."
    )
    formula = (
        r"W_l \leftarrow W_l - \eta\,\frac{\partial}{\partial W_l}\,\frac12\,\lVert W_L \cdots W_1 - A_\star \rVert^2"
    )
    theory = ("mixed", "stability", "convergence")
    claims = ("mixed/C9", "spectral/C25", "stability/C1", "stability/C7")
    controls = (
        Bars(name="spectrum", label="Target: singular values", value=[3.0, 2.4, 1.8, 1.2, 0.6], low=0.1, high=4.0),
        *building(width=1000),
        Slider(
            name="inputs",
            label="Inputs and outputs",
            value=10,
            low=5,
            high=50,
            whole=True,
            rungs=(5, 10, 20, 50),
            group="Network",
        ),
        *starting(scale=0.01, largest=3.0),
        Choice(name="optimiser", label="Optimiser", value="descent", options=_OPTIMISERS, group="Training"),
        Slider(name="lr", label="Step size", value=0.05, low=1e-3, high=2.0, log=True, group="Training"),
        Slider(name="steps", label="Steps", value=300, low=50, high=2000, log=True, whole=True, group="Training"),
    )
    presets: ClassVar = {
        "lazy: a wide network from a large start": {"width": 10**6, "scale": 3.0, "lr": 0.03, "steps": 100},
        "rich: modes one after the other": {"scale": 1e-4, "lr": 0.05, "steps": 600},
        "mixed: large modes rich, small ones lazy": {"width": 10**5, "scale": 1.0, "lr": 0.05, "steps": 200},
        "deeper: plateaus": {"depth": 3, "start": "balanced", "scale": 0.05, "lr": 0.03, "steps": 1000},
        "beyond the edge of stability": {"start": "balanced", "scale": 0.1, "lr": 0.36, "steps": 300},
        "two steps for ever, depth 3": {"depth": 3, "start": "one-zero", "scale": 0.3, "lr": 0.105, "steps": 300},
    }

    files = (*Room.files, "gif", "mp4")

    def draw(self, sources: Sources) -> list[Plate]:
        loss = sources.empty("loss", "step", "loss")
        sharp = sources.empty("sharp", "step", "sharpness")
        edge = sources.empty("edge", "step", "edge")
        layers = sources.empty("layers", "step", "first", "last", "colour")
        kernel = sources.empty("kernel", "step", "drift")
        modes = two_ways(sources, height=320, x_axis_label="step", y_axis_label="mode of W_L … W_1")
        losses = plain(x_axis_label="step", y_axis_label="loss", y_axis_type="log")
        losses.line("step", "loss", source=loss, color=COLOURS[1], line_width=2)
        curved = plain(x_axis_label="step", y_axis_label="sharpness")
        curved.line(
            "step",
            "edge",
            source=edge,
            color=COLOURS[0],
            line_dash="dashed",
            line_width=2,
            legend_label="what the step bears",
        )
        curved.line(
            "step",
            "sharpness",
            source=sharp,
            color=COLOURS[2],
            line_width=2,
            legend_label="largest eigenvalue of the Hessian",
        )
        curved.legend.location = "bottom_right"
        values = plain(x_axis_label="step", y_axis_label="singular values")
        values.multi_line("step", "first", source=layers, color="colour", line_width=1.8, legend_label="first layer")
        values.multi_line(
            "step", "last", source=layers, color="colour", line_width=1.8, line_dash="dotted", legend_label="last layer"
        )
        values.legend.location = "bottom_right"
        drift = plain(x_axis_label="step", y_axis_label="|Θ − Θ₀| / |Θ₀|", y_axis_type="log")
        drift.line("step", "drift", source=kernel, color=SOFT, line_width=2)
        return [
            Plate("modes", "Modes", "Each singular direction of the target, against the step.", modes, wide=True),
            Plate("loss", "Loss", "Half the squared distance from the target.", losses),
            Plate(
                "sharpness",
                "Sharpness against the edge",
                "Above the dashed line a step makes this direction larger.",
                curved,
            ),
            Plate("layers", "Layers", "The largest singular values of the first and of the last layer.", values),
            Plate(
                "kernel",
                "Tangent kernel",
                "How far the kernel has moved, relative to its start: lazy networks keep theirs.",
                drift,
            ),
        ]

    def situation(self, values: Values) -> predict.Situation:
        """The network as `predict` is asked about it."""
        return predict.Situation.model_validate(self._tables(values))

    def look(self, values: Values) -> Iterator[Sight]:
        asked = self.situation(values)
        problem, state = predict.network_start(asked)
        motion, colours = _motion(values), list(COLOURS[:_MODES])
        for run in _legs(problem, state, motion, values["steps"]):
            clock, modes = np.asarray(run.steps), np.asarray(run["modes"])[:, :_MODES]
            shown = np.where(np.abs(modes) <= 1.6 * max(values["spectrum"]), modes, np.nan)
            columns: dict[str, dict[str, Any]] = {
                "seen": {"step": [clock] * _MODES, "value": list(shown.T), "colour": colours},
                "loss": {"step": clock, "loss": np.asarray(run["loss"])},
            }
            yield Sight(columns, sentence=ended(run, None))
        last = float(clock[-1])
        said = predict.network(asked)
        lines = [said.curve(i) for i in range(len(said.modes[:_MODES]))]
        curves = [until(x, y, last) for x, y in lines]
        edge = float(np.asarray(motion.threshold(0)))
        yield Sight(
            {
                "said": {
                    "step": [x for x, _ in curves],
                    "value": [y for _, y in curves],
                    "colour": colours[: len(curves)],
                },
                "edge": {"step": np.array([0.0, last]), "edge": np.array([edge, edge])},
            },
            sentence=ended(run, said),
            numbers=_numbers(said),
        )
        yield self._dear(run, state, said, colours)

    def _dear(self, run: Trajectory, state: Weights, said: predict.NetworkPrediction, colours: list[str]) -> Sight:
        """What costs a decomposition at every look: of the recorded weights, in NumPy, which compiles nothing."""
        weights = np.asarray(run["weights"])
        some = np.unique(np.linspace(0, len(weights) - 1, _LOOKS if weights.shape[1] <= _MANY else _FEW).astype(int))
        clock, weights = np.asarray(run.steps)[some], weights[some]
        chain = Chain(said.frame, [np.asarray(w) for w in state.layers], said.hidden, said.optimiser.mu)
        layers = chain.layers(weights)
        first, last = (np.linalg.svd(w, compute_uv=False)[:, :_MODES].T for w in (layers[0], layers[-1]))
        count = min(len(first), len(last))
        drift = np.zeros(len(some)) + _drift(layers, [np.asarray(w)[None] for w in state.layers])  # one layer: 0
        return Sight(
            {
                "sharp": {"step": clock, "sharpness": np.array([chain.sharpness(one) for one in weights])},
                "layers": {
                    "step": [clock] * count,
                    "first": list(first[:count]),
                    "last": list(last[:count]),
                    "colour": colours[:count],
                },
                "kernel": {"step": clock[1:], "drift": drift[1:]},
            }
        )

    def code(self, values: Values) -> str:
        tables = ",\n".join(f"    {name}={table!r}" for name, table in self._tables(values).items())
        motion = f"ln.GradientDescent({values['lr']!r})"
        if values["optimiser"] != "descent":
            motion = f"ln.Momentum({values['lr']!r}, 0.9, nesterov={values['optimiser'] == 'nesterov'})"
        return f"""\
import linnet as ln

situation = ln.predict.Situation(
{tables},
)
print(ln.predict.network(situation))
problem, start = ln.predict.network_start(situation)
run = ln.simulate(
    problem,
    start,
    {motion},
    steps={values["steps"]},
    record=ln.linear({min(_RECORDS, values["steps"] + 1)}),
    observe=["loss", "modes", "sharpness", "kernel_drift"],
)
data = run.to_xarray()
figure = run.plot()
"""

    def toml(self, values: Values) -> str:
        return as_toml(self._tables(values))

    def _tables(self, values: Values) -> dict[str, dict[str, Any]]:
        training: dict[str, Any] = {"lr": values["lr"]}
        if values["optimiser"] != "descent":
            training |= {"beta": 0.9, "nesterov": values["optimiser"] == "nesterov"}
        return {
            "data": {"spectrum": values["spectrum"], "inputs": values["inputs"], "outputs": values["inputs"]},
            **built(values, values["inputs"]),
            "training": training,
        }


def two_ways(sources: Sources, **axes: Any) -> "figure":
    """A picture of the sources `said` and `seen`: each mode as a thick line, predicted, and a thin one, exact."""
    said = sources.empty("said", "step", "value", "colour")
    seen = sources.empty("seen", "step", "value", "colour")
    modes = plain(**axes)
    modes.multi_line("step", "value", source=said, color="colour", line_width=6, alpha=0.3, legend_label="prediction")
    modes.multi_line("step", "value", source=seen, color="colour", line_width=1.8, legend_label="exact training")
    modes.legend.location = "bottom_right"
    return modes


def built(values: Values, inputs: int) -> dict[str, dict[str, Any]]:
    """The tables `network` and `start` of a situation, from what `building` and `starting` ask for.

    The scale is a layer's typical singular value; deep Gaussian layers are drawn in full, so that they are narrower.
    """
    depth, kind, scale = values["depth"], values["start"], values["scale"]
    network: dict[str, Any] = {"depth": depth}
    if depth > 1:
        network["width"] = values["width"] if depth == 2 or kind != "gaussian" else min(values["width"], 50)
    if kind == "gaussian":
        scale = float(f"{scale / math.sqrt(network.get('width') or inputs):.6g}")
    return {"network": network, "start": {"kind": kind, "scale": scale, "seed": values["seed"]}}


def as_toml(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """The tables of a situation as `linnet predict network FILE` reads them."""
    lines = []
    for name, table in tables.items():
        lines += [f"[{name}]", *(f"{key} = {written(value)}" for key, value in table.items()), ""]
    return "\n".join(lines)


def _motion(values: Values) -> GradientDescent | Momentum:
    if values["optimiser"] == "descent":
        return GradientDescent(values["lr"])
    return Momentum(values["lr"], 0.9, nesterov=values["optimiser"] == "nesterov")


def _legs(problem: Regression, state: Weights, motion: GradientDescent | Momentum, steps: int) -> Iterator[Trajectory]:
    """The run, looked at evenly; a dear one first as far as a blink allows, so that its beginning is seen at once."""
    seen: dict[str, Any] = {"loss": observe.loss, "modes": observe.modes, "weights": _weights}
    points = linear(min(_RECORDS, steps + 1)).points(steps, discrete=True)
    cost = steps * sum(3.0 * w.size * min(w.shape) for w in state.layers)
    if cost < _BLINK or steps < _RECORDS:
        yield simulate(problem, state, motion, steps=steps, record=at(points), observe=seen)
        return
    cut = len(points) // 4
    first = int(points[cut])
    run = simulate(problem, state, motion, steps=first, record=at(points[: cut + 1]), observe=seen)
    yield run
    if run.status != "diverged":
        rest = at(points[cut:] - first)
        yield simulate(problem, state, motion, steps=steps - first, record=rest, observe=seen, after=run)


def _weights(state: Weights, problem: Regression) -> Array:
    """All weights in a row, layer by layer"""
    return jnp.concatenate([w.ravel() for w in state.layers])


def _drift(layers: list[np.ndarray], start: list[np.ndarray]) -> np.ndarray:
    """|Theta - Theta_0| / |Theta_0| of the tangent kernel: sums of L x R, whose products are those of small traces."""
    now, then = _factors(layers), _factors(start)
    zero = _inner(then, then)
    return np.sqrt(np.maximum(_inner(now, now) - 2 * _inner(now, then) + zero, 0.0) / zero)


def _factors(layers: list[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Theta(G) = sum_l L_l G R_l."""
    below, above = below_and_above(layers, np.eye(layers[0].shape[-1]), np.eye(layers[-1].shape[-2]))
    return [(q @ q.swapaxes(-1, -2), p.swapaxes(-1, -2) @ p) for p, q in zip(below, above, strict=True)]


def _inner(one: list[tuple[np.ndarray, np.ndarray]], other: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    def alike(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.sum(a * b, axis=(-2, -1))

    return np.asarray(sum(alike(a, c) * alike(b, d) for a, b in one for c, d in other))


def until(steps: np.ndarray, values: np.ndarray, last: float) -> tuple[np.ndarray, np.ndarray]:
    """A predicted curve as far as the run goes."""
    inside = np.isfinite(steps) & (steps <= last)
    if not inside.any():
        return np.array([0.0, last]), np.full(2, values[0])
    x, y = steps[inside], values[inside]
    return np.append(x, last), np.append(y, np.interp(last, steps[np.isfinite(steps)], values[np.isfinite(steps)]))


def ended(run: Trajectory | None, said: predict.NetworkPrediction | None) -> str:
    """How it went, and what to do."""
    from rich.text import Text

    from linnet.predict.words.network import advice

    how = "" if run is None or run.status != "diverged" else f"The training diverged at step {int(run.ended)}. "
    return how + ("" if said is None else Text.from_markup(advice(said)).plain)


def _numbers(said: predict.NetworkPrediction) -> dict[str, str]:
    grown = ", ".join(str(mode.regime) for mode in said.modes[:_MODES])
    return {
        "regime": str(said.regime),
        "modes": grown,
        "largest stable step where it ends": f"{said.largest_stable_lr:.3g}",
        "at the start": f"{said.largest_stable_lr_at_start:.3g}",
        "99 % learned at step": told(said.learned),
    }


def told(when: predict.When) -> str:
    """A step, where it is known."""
    if when.step is None or math.isnan(when.step):
        return "not told"
    return f"{when.step:,.0f}" if math.isfinite(when.step) else "never"
