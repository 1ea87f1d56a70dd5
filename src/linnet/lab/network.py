"""One network: its modes, its loss, its layers, its curvature and its kernel, predicted and exact."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from linnet import observe, predict
from linnet.lab.control import Bars, Choice, Slider, Values
from linnet.lab.dress import COLOURS, SOFT, plain
from linnet.lab.room import Plate, Room, Sight, Sources
from linnet.motion import GradientDescent, Momentum
from linnet.record import linear
from linnet.simulation import simulate
from linnet.trajectory import Trajectory

_MODES = 5
_RECORDS = 201  # of what costs little
_LOOKS = 26  # of what costs more
_WIDTHS = [a * 10**b for b in range(1, 7) for a in (1, 2, 5)] + [10**7]
_OPTIMISERS = {"descent": "gradient descent", "momentum": "momentum 0.9", "nesterov": "Nesterov 0.9"}
_STARTS = {"gaussian": "Gaussian", "balanced": "balanced", "one-zero": "last layer zero"}


class Network(Room):
    """A target's spectrum, a depth, a width, a start and a step size: what is learned, when, and at what curvature."""

    name = "network"
    title = "One network"
    lead = (
        "Drag the singular values of the target, change depth, width and start: thick lines are the prediction, thin ones "
        "the exact training."
    )
    formula = r"W_l \leftarrow W_l - \eta\,\frac{\partial}{\partial W_l}\,\frac12\,\lVert W_L \cdots W_1 - A_\star \rVert^2"
    theory = ("mixed", "stability", "convergence")
    claims = ("mixed/C9", "spectral/C25", "stability/C1", "stability/C7")
    controls = (
        Bars(name="spectrum", label="Target: singular values", value=[3.0, 2.4, 1.8, 1.2, 0.6], low=0.1, high=4.0),
        Slider(name="depth", label="Depth", value=2, low=1, high=6, whole=True, group="Network"),
        Slider(
            name="width", label="Width", value=1000, low=10, high=10**7, whole=True, rungs=_WIDTHS, unit="neurons", group="Network"
        ),
        Slider(
            name="inputs", label="Inputs and outputs", value=10, low=5, high=50, whole=True, rungs=(5, 10, 20, 50), group="Network"
        ),
        Choice(name="start", label="Start", value="gaussian", options=_STARTS, group="Start"),
        Slider(
            name="scale",
            label="Size of the start",
            value=0.01,
            low=1e-6,
            high=3.0,
            log=True,
            hint="Of a layer's typical singular value: a Gaussian entry has this over the root of the width.",
            group="Start",
        ),
        Slider(name="seed", label="Draw", value=0, low=0, high=99, whole=True, group="Start"),
        Choice(name="optimiser", label="Optimiser", value="descent", options=_OPTIMISERS, group="Training"),
        Slider(name="lr", label="Step size", value=0.05, low=1e-3, high=2.0, log=True, group="Training"),
        Slider(name="steps", label="Steps", value=300, low=50, high=2000, log=True, whole=True, group="Training"),
    )
    presets = {
        "lazy: a wide network from a large start": {"width": 10**6, "scale": 3.0, "lr": 0.03, "steps": 100},
        "rich: modes one after the other": {"scale": 1e-4, "lr": 0.05, "steps": 600},
        "mixed: large modes rich, small ones lazy": {"width": 10**5, "scale": 1.0, "lr": 0.05, "steps": 200},
        "deeper: plateaus": {"depth": 3, "start": "balanced", "scale": 0.05, "lr": 0.03, "steps": 1000},
        "beyond the edge of stability": {"start": "balanced", "scale": 0.1, "lr": 0.36, "steps": 300},
        "two steps for ever, depth 3": {"depth": 3, "start": "one-zero", "scale": 0.3, "lr": 0.105, "steps": 300},
    }

    files = (*Room.files, "gif", "mp4")

    def draw(self, sources: Sources) -> list[Plate]:
        said = sources.empty("said", "step", "value", "colour")
        seen = sources.empty("seen", "step", "value", "colour")
        loss = sources.empty("loss", "step", "loss")
        sharp = sources.empty("sharp", "step", "sharpness")
        edge = sources.empty("edge", "step", "edge")
        layers = sources.empty("layers", "step", "first", "last", "colour")
        kernel = sources.empty("kernel", "step", "drift")
        modes = plain(height=320, x_axis_label="step", y_axis_label="mode of W_L … W_1")
        modes.multi_line("step", "value", source=said, color="colour", line_width=6, alpha=0.3, legend_label="prediction")
        modes.multi_line("step", "value", source=seen, color="colour", line_width=1.8, legend_label="exact training")
        modes.legend.location = "bottom_right"
        losses = plain(x_axis_label="step", y_axis_label="loss", y_axis_type="log")
        losses.line("step", "loss", source=loss, color=COLOURS[1], line_width=2)
        curved = plain(x_axis_label="step", y_axis_label="sharpness")
        curved.line("step", "edge", source=edge, color=COLOURS[0], line_dash="dashed", line_width=2, legend_label="what the step bears")
        curved.line("step", "sharpness", source=sharp, color=COLOURS[2], line_width=2, legend_label="largest eigenvalue of the Hessian")
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
            Plate("sharpness", "Sharpness against the edge", "Above the dashed line a step makes this direction larger.", curved),
            Plate("layers", "Layers", "The largest singular values of the first and of the last layer.", values),
            Plate("kernel", "Tangent kernel", "How far the kernel has moved, relative to its start: lazy networks keep theirs.", drift),
        ]

    def situation(self, values: Values) -> predict.Situation:
        """The network as `predict` is asked about it."""
        return predict.Situation(**self._tables(values))

    def look(self, values: Values) -> Iterator[Sight]:
        asked = self.situation(values)
        problem, state = predict.network_start(asked)
        steps, motion = values["steps"], _motion(values)
        run = simulate(problem, state, motion, steps=steps, record=linear(min(_RECORDS, steps + 1)), observe=["loss", "modes"])
        colours = list(COLOURS[:_MODES])
        clock, modes = np.asarray(run.steps), np.asarray(run["modes"])[:, :_MODES]
        top = 1.6 * max(values["spectrum"])
        shown = np.where(np.abs(modes) <= top, modes, np.nan)
        last = float(clock[-1])
        columns = {
            "seen": {"step": [clock] * _MODES, "value": list(shown.T), "colour": colours},
            "loss": {"step": clock, "loss": np.asarray(run["loss"])},
        }
        yield Sight(columns, sentence=_ended(run, None))
        said = predict.network(asked)
        lines = [said.curve(i) for i in range(len(said.modes[:_MODES]))]
        curves = [_until(x, y, last) for x, y in lines]
        edge = float(motion.threshold(0))
        yield Sight(
            {
                "said": {"step": [x for x, _ in curves], "value": [y for _, y in curves], "colour": colours[: len(curves)]},
                "edge": {"step": np.array([0.0, last]), "edge": np.array([edge, edge])},
            },
            sentence=_ended(run, said),
            numbers=_numbers(said),
        )
        look = simulate(problem, state, motion, steps=steps, record=linear(min(_LOOKS, steps + 1)), observe=_dear(values))
        clock = np.asarray(look.steps)
        first, final = (np.asarray(look[name])[:, :_MODES] for name in ("first", "last"))
        count = first.shape[1]
        yield Sight(
            {
                "sharp": {"step": clock, "sharpness": np.asarray(look["sharpness"])},
                "layers": {
                    "step": [clock] * count,
                    "first": list(first.T),
                    "last": list(final.T[:count]),
                    "colour": colours[:count],
                },
                "kernel": {"step": clock[1:], "drift": np.asarray(look["kernel_drift"])[1:]},
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
        lines = []
        for name, table in self._tables(values).items():
            lines += [f"[{name}]", *(f"{key} = {_written(value)}" for key, value in table.items()), ""]
        return "\n".join(lines[:-1]) + "\n"

    def _tables(self, values: Values) -> dict[str, dict[str, Any]]:
        depth, kind, scale = values["depth"], values["start"], values["scale"]
        network: dict[str, Any] = {"depth": depth}
        if depth > 1:
            network["width"] = values["width"] if depth == 2 or kind != "gaussian" else min(values["width"], 100)
        if kind == "gaussian":
            scale = float(f"{scale / math.sqrt(network.get('width', values['inputs'])):.6g}")
        training: dict[str, Any] = {"lr": values["lr"]}
        if values["optimiser"] != "descent":
            training |= {"beta": 0.9, "nesterov": values["optimiser"] == "nesterov"}
        return {
            "data": {"spectrum": values["spectrum"], "inputs": values["inputs"], "outputs": values["inputs"]},
            "network": network,
            "start": {"kind": kind, "scale": scale, "seed": values["seed"]},
            "training": training,
        }


def _motion(values: Values) -> GradientDescent | Momentum:
    if values["optimiser"] == "descent":
        return GradientDescent(values["lr"])
    return Momentum(values["lr"], 0.9, nesterov=values["optimiser"] == "nesterov")


def _dear(values: Values) -> dict[str, Any]:
    """What costs a decomposition at every look."""
    return {
        "sharpness": observe.sharpness,
        "kernel_drift": observe.kernel_drift,
        "first": observe.layer_singular_values(1),
        "last": observe.layer_singular_values(-1),
    }


def _until(steps: np.ndarray, values: np.ndarray, last: float) -> tuple[np.ndarray, np.ndarray]:
    """A predicted curve as far as the run goes."""
    inside = np.isfinite(steps) & (steps <= last)
    if not inside.any():
        return np.array([0.0, last]), np.full(2, values[0])
    x, y = steps[inside], values[inside]
    return np.append(x, last), np.append(y, np.interp(last, steps[np.isfinite(steps)], values[np.isfinite(steps)]))


def _ended(run: Trajectory, said: predict.NetworkPrediction | None) -> str:
    """How it went, and what to do."""
    from linnet.predict.words.network import advice
    from rich.text import Text

    if run.status == "diverged":
        how = f"The training diverged at step {int(run.ended)}. "
    else:
        how = ""
    return how + ("" if said is None else Text.from_markup(advice(said)).plain)


def _numbers(said: predict.NetworkPrediction) -> dict[str, str]:
    grown = ", ".join(str(mode.regime) for mode in said.modes[:_MODES])
    return {
        "regime": str(said.regime),
        "modes": grown,
        "largest stable step where it ends": f"{said.largest_stable_lr:.3g}",
        "at the start": f"{said.largest_stable_lr_at_start:.3g}",
        "99 % learned at step": f"{said.learned.step:,.0f}" if math.isfinite(said.learned.step or math.nan) else "not told",
    }


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else repr(value)
