"""At the edge: descent on a small network beside the rod and the central flow, loss and sharpness step by step."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

import linnet as ln
from linnet.lab.control import Choice, Slider, Values
from linnet.lab.page import Page, Update, arguments, call
from linnet.lab.panel import COLORS, BokehPanel, Sources
from linnet.prediction import Quantity

_STEPS = 240
_LATE = 40  # steps of which the headline has a mean
_NAMES = {"descent": "gradient descent", "rod": "rod", "central": "central flow"}
_LINES = {"rod": COLORS[1], "central": COLORS[2]}
_TARGETS = {"cubic": "4x³ − 3x", "sine": "sin 4x", "square": "2x² − 1"}


# The code that the page shows -----------------------------------------------------------------------------------------


def setup(target: str, seed: int) -> tuple[ln.problems.Problem, ln.Network]:
    """Twenty samples of a function, and a network with tanh of two hidden layers of eight neurons."""
    x = jnp.linspace(-1, 1, 20)[:, None]
    y = {"cubic": 4 * x**3 - 3 * x, "sine": jnp.sin(4 * x), "square": 2 * x**2 - 1}[target]
    problem = ln.supervised(y, "half squares", average="samples")
    return problem, ln.networks.mlp(seed, x, (8, 8, 1), activation="tanh", bias=True)


def train(
    problem: ln.problems.Problem, network: ln.Network, optimizer: ln.optim.SGD | ln.optim.AveragedDescent
) -> ln.Trajectory:
    """240 steps: the loss, that of descent as a flow predicts it, and at two of eight steps the sharpness."""
    loss = ln.observe.loss if isinstance(optimizer, ln.optim.SGD) else ln.observe.predicted_loss
    sharpness = ln.observe.only(ln.observe.sharpness, ln.record.pairs(8))
    return ln.simulate(problem, network, optimizer, steps=240, observe={"loss": loss, "sharpness": sharpness})


# The page ------------------------------------------------------------------------------------------------------------


class FlowsPage(Page):
    """Loss and sharpness of descent, of the rod, and of the central flow, by learning rate."""

    name = "flows"
    title = "At the edge"
    lead = (
        "Training sharpens a network until its sharpness reaches 2/η. From there on descent oscillates: dots are its "
        "steps, lines are two flows that predict its mean. Drag the learning rate."
    )
    formula = (
        r"\text{rod: } \dot c = -\tfrac{\eta}{2} (g_+ + g_-),\; \dot D = -2 D + \tfrac{\eta}{2} (g_+ - g_-),\;"
        r" g_\pm = \nabla C(c \pm D); \qquad \text{central flow: } \dot c = -\eta\, \nabla \bigl( C +"
        r" \tfrac12 \langle H, \Sigma \rangle \bigr),\; H \preceq \tfrac{2}{\eta}"
    )
    theory = ("flows", "stability")
    claims = ("flows/C1", "flows/C2", "flows/C3", "flows/C4")
    controls = (
        Slider("lr", "Learning rate", 0.3, low=0.1, high=0.5, step=0.005),
        Choice("target", "Function to learn", "cubic", options=_TARGETS, group="Network"),
        Slider("seed", "Seed", 1, low=0, high=9, whole=True, group="Network"),
    )
    hints: ClassVar = {
        "lr": "The edge is at the sharpness 2/η: a larger learning rate reaches it earlier.",
    }
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "below the edge: nothing oscillates": {"lr": 0.12},
        "it sharpens up to the edge": {"lr": 0.3},
        "soon at the edge: bursts": {"lr": 0.45},
        "a smoother function": {"target": "square", "lr": 0.35, "seed": 2},
    }
    functions = (setup, train)
    imports = (
        "import jax.numpy as jnp",
        "import linnet as ln",
        "import numpy as np",
        "from matplotlib.figure import Figure",
    )

    def panels(self, sources: Sources) -> list[BokehPanel]:
        caption = "Descent at every step, and its mean as the two flows predict it."
        loss = BokehPanel(sources, "loss", "Loss", caption, "step", "loss", log="y", height=320, wide=True)
        caption = "At the weights of descent, and at the mean weights of the flows. The central flow never passes 2/η."
        title, ylabel = "Sharpness against 2/η", "largest eigenvalue of the Hessian"
        sharpness = BokehPanel(sources, "sharpness", title, caption, "step", ylabel, height=320, wide=True)
        sharpness.line("edge", "step", "edge", "dashed", color=COLORS[0], label="2/η")
        for panel, suffix in ((loss, "loss"), (sharpness, "sharpness")):
            panel.points(f"descent_{suffix}", "step", suffix, size=4, label=_NAMES["descent"])
            for name, color in _LINES.items():
                panel.line(f"{name}_{suffix}", "step", suffix, color=color, label=_NAMES[name])
            panel.legend("above")
        return [loss, sharpness]

    def updates(self, values: Values) -> Iterator[Update]:
        problem, network = setup(**arguments(setup, values))
        threshold, last = 2 / values["lr"], float(_STEPS)
        edge = {"edge": {"step": np.array([0.0, last]), "edge": np.full(2, threshold)}}
        descent = train(problem, network, ln.optim.SGD(values["lr"]))
        yield Update(edge | _columns("descent", descent), headline=_headline(descent, threshold))
        rod = train(problem, network, ln.optim.RodFlow(values["lr"]))
        yield Update(_columns("rod", rod))
        central = train(problem, network, ln.optim.CentralFlow(values["lr"], directions=3))
        runs = {"descent": descent, "rod": rod, "central": central}
        yield Update(_columns("central", central), quantities=_quantities(runs, threshold))

    def script(self, values: Values) -> str:
        return f"""\
problem, network = {call(setup, values)}
lr = {values["lr"]!r}
run = train(problem, network, ln.optim.SGD(lr))
rod = train(problem, network, ln.optim.RodFlow(lr))
central = train(problem, network, ln.optim.CentralFlow(lr, directions=3))
data = run.to_xarray()
for name, flow in (("rod", rod), ("central", central)):
    data[f"{{name}}_loss"] = "step", np.asarray(flow["loss"])
    data[f"{{name}}_sharpness"] = "step", np.asarray(flow["sharpness"])

figure = Figure(figsize=(9, 6), layout="constrained")
top, bottom = figure.subplots(2, 1, sharex=True)
for label, style, one in (("descent", ".", run), ("rod", "-", rod), ("central flow", "-", central)):
    steps, sharpness = np.asarray(one.steps), np.asarray(one["sharpness"])
    measured = np.isfinite(sharpness)
    top.plot(steps, one["loss"], style, label=label)
    bottom.plot(steps[measured], sharpness[measured], style, label=label)
bottom.axhline(2 / lr, color="gray", ls="--", label="2/lr")
top.set(ylabel="loss", yscale="log")
bottom.set(xlabel="step", ylabel="sharpness")
bottom.legend(frameon=False)
"""


# What is shown -------------------------------------------------------------------------------------------------------


def _sharpness(run: ln.Trajectory) -> tuple[np.ndarray, np.ndarray]:
    """The steps at which the sharpness is measured, and its values."""
    sharpness = np.asarray(run["sharpness"])
    measured = np.isfinite(sharpness)
    return np.asarray(run.steps)[measured], sharpness[measured]


def _columns(name: str, run: ln.Trajectory) -> dict[str, dict[str, Any]]:
    steps, sharpness = _sharpness(run)
    return {
        f"{name}_loss": {"step": np.asarray(run.steps), "loss": np.asarray(run["loss"])},
        f"{name}_sharpness": {"step": steps, "sharpness": sharpness},
    }


def _reached(descent: ln.Trajectory, threshold: float) -> int | None:
    """The first measured step at which descent is beyond the edge."""
    steps, sharpness = _sharpness(descent)
    beyond = steps[sharpness > threshold]
    return int(beyond[0]) if len(beyond) else None


def _headline(descent: ln.Trajectory, threshold: float) -> str:
    reached = _reached(descent, threshold)
    if reached is None:
        top = float(np.max(_sharpness(descent)[1]))
        return (
            f"The sharpness comes to {100 * top / threshold:.0f} % of 2/η within {_STEPS} steps: below the edge "
            "descent does not oscillate, and both flows are descent."
        )
    loss = np.asarray(descent["loss"])
    rises = float(np.mean(np.diff(loss[reached:]) > 0))
    return (
        f"Descent is at the edge from step {reached} on: the loss rises at {100 * rises:.0f} % of the steps; its mean "
        f"over the last {_LATE} is {np.mean(loss[-_LATE:]) / loss[0]:.2g} of the initial loss."
    )


def _quantities(runs: Mapping[str, ln.Trajectory], threshold: float) -> tuple[Quantity, ...]:
    """Mean losses and sharpness from the edge on, or over the whole run if it is not reached."""
    reached = _reached(runs["descent"], threshold)
    first = reached or 0
    losses = {name: float(np.mean(np.asarray(run["loss"])[first:])) for name, run in runs.items()}
    means = []
    for run in runs.values():
        steps, sharpness = _sharpness(run)
        means.append(float(np.mean(sharpness[steps >= first])) / threshold)
    when = "not within these steps" if reached is None else f"at step {reached}"
    period = "mean loss" if reached is None else "mean loss at the edge"
    return (
        Quantity("edge", when, "beyond 2/η"),
        *(Quantity(f"{name}_loss", losses[name], f"{period}, {_NAMES[name]}", format=".3g") for name in runs),
        *(
            Quantity(f"{name}_error", losses[name] / losses["descent"] - 1, f"{_NAMES[name]} off by", format="+.1%")
            for name in ("rod", "central")
        ),
        *(
            Quantity(f"{name}_sharpness", mean, f"mean sharpness over 2/η, {_NAMES[name]}", format=".3f")
            for name, mean in zip(runs, means, strict=True)
        ),
    )
