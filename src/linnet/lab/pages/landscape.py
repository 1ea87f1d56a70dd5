"""Landscape: the critical points of a linear network, and the descent from any of them."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import combinations
from typing import Any, ClassVar

import numpy as np

import linnet as ln
from linnet._check import InputError
from linnet.lab.control import Bars, Choice, Slider, Values
from linnet.lab.page import Page, Update, arguments, call
from linnet.lab.panel import COLORS, BokehPanel, Sources
from linnet.observe import Kind
from linnet.prediction import Quantity
from linnet.theory import landscape as theory

_MODES = 4
_NEAR = 0.15  # of a mode's target: so close to it the mode is learned, so close to zero it is not
_SETS = [kept for size in range(_MODES + 1) for kept in combinations(range(1, _MODES + 1), size)]
_KINDS = {
    Kind.STRICT_SADDLE: (COLORS[4], "strict saddle", "a strict saddle"),
    Kind.DEGENERATE_SOSP: (COLORS[3], "saddle without a slope", "a saddle without negative curvature"),
    Kind.GLOBAL_MIN: (COLORS[1], "global minimum", "a global minimum"),
}


def _name(kept: tuple[int, ...]) -> str:
    return " ".join(map(str, kept)) or "none"


def _sentence(kept: tuple[int, ...]) -> str:
    return "nothing" if not kept else f"mode {kept[0]}" if len(kept) == 1 else f"modes {_name(kept)}"


def descend(
    problem: ln.problems.Problem,
    hidden: tuple[int, ...],
    kept: tuple[int, ...],
    perturbation: float,
    seed: int,
    lr: float,
    steps: int,
) -> ln.Trajectory:
    """Training from the critical point that has learned the modes `kept`, after a small random perturbation."""
    saddle = ln.init.critical(problem, hidden, kept)
    rng = np.random.default_rng(seed)
    network = ln.Weights([w + perturbation * rng.normal(size=w.shape) for w in saddle.layers])
    return ln.simulate(
        problem, network, ln.optim.SGD(lr), steps=steps, record=ln.record.linear(401), observe=["loss", "modes"]
    )


class LandscapePage(Page):
    """The critical points of a target, a depth, and a width, and the training that leaves one of them."""

    name = "landscape"
    title = "Landscape"
    lead = (
        "At every critical point a network has learned some modes of its target and no others. Click one: from a tiny "
        "perturbation the exact training leaves it, from saddle to saddle."
    )
    formula = (
        r"\nabla C = 0: \quad W_L \cdots W_1 = \sum_{i \in I} s_i\, u_i v_i^\top, \qquad"
        r" C = \frac12 \sum_{i \notin I} s_i^2"
    )
    theory = ("landscape", "convergence")
    claims = ("nonlocal/C2", "nonlocal/C3", "nonlocal/C4", "nonlocal/C5", "nonlocal/C6")
    controls = (
        Bars("spectrum", "Target: singular values", [3.0, 2.2, 1.4, 0.7], low=0.2, high=4.0),
        Choice(
            "point", "From the point that has learned", "none", options={_name(kept): _sentence(kept) for kept in _SETS}
        ),
        Slider("depth", "Depth", 2, low=2, high=4, whole=True, group="Network"),
        Slider("width", "Width", 4, low=1, high=6, whole=True, unit="neurons", group="Network"),
        Slider("perturbation", "Perturbation", 1e-6, low=1e-8, high=0.3, log=True, group="Descent"),
        Slider("seed", "Seed of the perturbation", 0, low=0, high=99, whole=True, group="Descent"),
        Slider("lr", "Learning rate", 0.03, low=1e-3, high=0.5, log=True, group="Descent"),
        Slider("steps", "Steps", 1000, low=500, high=20_000, log=True, whole=True, group="Descent"),
    )
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "from saddle to saddle": {"perturbation": 1e-8, "steps": 1300},
        "from the wrong modes": {"point": "3 4", "steps": 700},
        "no page: two neurons must exchange their modes": {"width": 2, "point": "3 4", "steps": 1000},
        "three layers: a saddle without a slope": {"depth": 3, "perturbation": 0.02, "lr": 0.05, "steps": 8000},
        "three layers: a mode is exchanged for a larger one": {"depth": 3, "point": "4", "steps": 500},
        "four layers wait longer": {"depth": 4, "perturbation": 0.1, "lr": 0.05, "steps": 20_000},
        "a large perturbation: hardly a plateau": {"perturbation": 0.3, "steps": 500},
    }
    functions = (descend,)
    imports = ("import linnet as ln", "import numpy as np")

    def panels(self, sources: Sources) -> list[BokehPanel]:
        return [*_graph(sources), *_descent(sources)]

    def updates(self, values: Values) -> Iterator[Update]:
        prediction, kept = _predicted(values), _kept(values)
        run = descend(prediction.problem, **_arguments(values))
        steps, losses, modes = (np.asarray(x) for x in (run.steps, run["loss"], run["modes"]))
        points = {point.kept: point for point in prediction.points}
        losses = np.where(losses <= 1.2 * max(point.loss for point in prediction.points), losses, np.nan)
        modes = np.where(np.abs(modes) <= 1.6 * prediction.spectrum[0], modes, np.nan)
        visited = [kept, *(found for found in _visited(modes, prediction) if found != kept)]
        ends = steps[[0, -1]].astype(float)
        curvature = theory.spectrum(prediction.spectrum, prediction.widths, kept).all()
        yield Update(
            {
                **_points(prediction),
                **_path(visited, points),
                "loss": {"step": steps, "loss": losses},
                "levels": _levels([point.loss for point in prediction.points], ends),
                "visited": _levels([points[found].loss for found in visited], ends),
                "modes": {"step": [steps] * _MODES, "value": list(modes.T), "color": list(COLORS[:_MODES])},
                "targets": _levels(prediction.spectrum, ends, "value") | {"color": list(COLORS[:_MODES])},
                "hessian": {
                    "rank": np.arange(1, len(curvature) + 1),
                    "value": curvature,
                    "color": [COLORS[0] if value < 0 else COLORS[7] for value in curvature],
                },
            },
            headline=_headline(points[kept], visited, points, run),
            quantities=_quantities(prediction, points[kept]),
        )

    def on_click(self, panel: str, x: float, y: float, values: Values) -> Values:
        points = _predicted(values).points
        wide = max(point.negative_eigenvalues for point in points) or 1
        high = max(point.loss for point in points)

        def distance(point: Any) -> float:
            return ((point.negative_eigenvalues - x) / wide) ** 2 + ((point.loss - y) / high) ** 2

        return values | {"point": _name(min(points, key=distance).kept)}

    def script(self, values: Values) -> str:
        given = call(descend, _arguments(values)).replace("descend(", "descend(prediction.problem, ", 1)
        return f"""\
prediction = ln.prediction.landscape({_spectrum(values)!r}, {_hidden(values)!r})
print(prediction)
run = {given}

data = run.to_xarray().assign(
    point_loss=("point", [point.loss for point in prediction.points]),
    point_negative=("point", [point.negative_eigenvalues for point in prediction.points]),
)
data = data.assign_coords(point=[" ".join(map(str, point.kept)) or "none" for point in prediction.points])
figure = prediction.plot()
"""


# Panels --------------------------------------------------------------------------------------------------------------


def _graph(sources: Sources) -> list[BokehPanel]:
    from bokeh.models import DataRange1d

    graph = BokehPanel(
        sources,
        "graph",
        "Critical points",
        "Each by its loss and the number of descent directions; numbers are the modes it has learned, lines lead to "
        "one mode more. Red: the points that the descent visits. Click a point to begin there.",
        "negative directions of the Hessian",
        "loss",
        height=380,
        clickable=True,
        x_range=DataRange1d(range_padding=0.3),
        y_range=DataRange1d(range_padding=0.15),
    )
    graph.line("edges", "negative", "loss", "thin", many=True)
    graph.line("path", "negative", "loss", color=COLORS[0])
    graph.points("stops", "negative", "loss", color=COLORS[0], size="size", alpha=0.35)
    graph.points("points", "negative", "loss", color="color", size=11, legend_field="kind")
    graph.text("points", "negative", "loss", "name", x_offset=-8, y_offset=-4)
    graph.legend("bottom_right")
    caption = "Gray lines are the losses of all critical points, dashed those that the descent has visited."
    losses = BokehPanel(sources, "loss", "Loss of the descent", caption, "step", "loss", height=380)
    losses.line("levels", "step", "loss", "thin", many=True)
    losses.line("visited", "step", "loss", "dashed", color=COLORS[0], many=True)
    losses.line("loss", "step", "loss", color=COLORS[2])
    return [graph, losses]


def _descent(sources: Sources) -> list[BokehPanel]:
    caption = "Dotted: the target's singular values."
    learned = BokehPanel(sources, "modes", "Modes of the descent", caption, "step", "mode of W_L … W_1")
    learned.line("targets", "step", "value", "dotted", color="color")
    learned.line("modes", "step", "value", color="color")
    caption = "Every eigenvalue of the Hessian at the chosen point, in closed form; red ones are descent directions."
    curved = BokehPanel(sources, "hessian", "Curvature at the critical point", caption, "direction", "curvature")
    columns = sources.columns("hessian", "rank", "value", "color")
    curved.figure.vbar(x="rank", top="value", source=columns, width=0.8, color="color")
    return [learned, curved]


def _points(prediction: Any) -> dict[str, Mapping[str, Any]]:
    place = {point.kept: (float(point.negative_eigenvalues), point.loss) for point in prediction.points}
    pairs = [
        (place[less], here)
        for kept, here in place.items()
        for less in (tuple(m for m in kept if m != mode) for mode in kept)
    ]
    return {
        "points": {
            "negative": np.array([x for x, _ in place.values()]),
            "loss": np.array([y for _, y in place.values()]),
            "color": [_KINDS[point.label][0] for point in prediction.points],
            "kind": [_KINDS[point.label][1] for point in prediction.points],
            "name": [_name(point.kept) for point in prediction.points],
        },
        "edges": {
            "negative": [np.array([a[0], b[0]]) for a, b in pairs],
            "loss": [np.array([a[1], b[1]]) for a, b in pairs],
        },
    }


def _path(visited: list[tuple[int, ...]], points: Mapping[tuple[int, ...], Any]) -> dict[str, Mapping[str, Any]]:
    x = np.array([float(points[kept].negative_eigenvalues) for kept in visited])
    y = np.array([points[kept].loss for kept in visited])
    size = np.array([30.0] + [22.0] * (len(visited) - 1))
    return {"path": {"negative": x, "loss": y}, "stops": {"negative": x, "loss": y, "size": size}}


def _levels(losses: Any, span: np.ndarray, name: str = "loss") -> dict[str, Any]:
    """A level line for each."""
    return {"step": [span] * len(losses), name: [np.full(2, loss) for loss in losses]}


# The descent ---------------------------------------------------------------------------------------------------------


def _spectrum(values: Values) -> list[float]:
    return sorted(values["spectrum"], reverse=True)


def _predicted(values: Values) -> Any:
    return _landscape(tuple(_spectrum(values)), _hidden(values))


@lru_cache(maxsize=64)
def _landscape(spectrum: tuple[float, ...], hidden: tuple[int, ...]) -> Any:
    return ln.prediction.landscape(list(spectrum), hidden)


def _hidden(values: Values) -> tuple[int, ...]:
    return (values["width"],) * (values["depth"] - 1)


def _arguments(values: Values) -> Values:
    return arguments(descend, values | {"hidden": _hidden(values), "kept": _kept(values)})


def _kept(values: Values) -> tuple[int, ...]:
    """The modes of the chosen point, which need as many neurons."""
    kept = next(kept for kept in _SETS if _name(kept) == values["point"])
    if len(kept) > values["width"]:
        raise InputError(
            f"point = {values['point']} is not allowed: a layer of width {values['width']} carries no more modes than "
            "that; take more neurons, or a point with fewer modes."
        )
    return kept


def _visited(modes: np.ndarray, prediction: Any) -> list[tuple[int, ...]]:
    """The critical points that the descent came close to, in order: each mode nearly learned or nearly absent."""
    share = modes / np.array(prediction.spectrum)
    learned, absent = np.abs(share - 1) <= _NEAR, np.abs(share) <= _NEAR
    known = {point.kept for point in prediction.points}
    rows = learned[np.all(learned | absent, axis=1)]
    order = dict.fromkeys(tuple((np.flatnonzero(row) + 1).tolist()) for row in rows)
    return [kept for kept in order if kept in known]


def _headline(
    initial: Any, visited: list[tuple[int, ...]], points: Mapping[tuple[int, ...], Any], run: ln.Trajectory
) -> str:
    here = f"A network that has learned {_sentence(initial.kept)} is at {_KINDS[initial.label][2]}."
    if run.status == "diverged":
        return f"{here} The descent diverged at step {int(run.ended)}: take a smaller learning rate."
    if initial.label is Kind.GLOBAL_MIN:
        return f"{here} No direction descends: after the perturbation it only returns."
    if len(visited) == 1:
        wait = " No direction of second order descends, so it waits long." if not initial.negative_eigenvalues else ""
        return f"{here} The descent has reached no other point yet.{wait} Take more steps, or a larger perturbation."
    names = " → ".join(map(_name, visited))
    if points[visited[-1]].label is Kind.GLOBAL_MIN:
        return f"{here} The descent learns {names}, a global minimum."
    return f"{here} The descent learns {names} and goes on: more steps, or a larger perturbation, show the rest."


def _quantities(prediction: Any, initial: Any) -> tuple[Quantity, ...]:
    count = {kind: sum(point.label is kind for point in prediction.points) for kind in _KINDS}
    return (
        Quantity("critical_sets", prediction.critical_sets, "sets of modes with critical points"),
        Quantity("strict_saddles", count[Kind.STRICT_SADDLE], "strict saddles"),
        Quantity("degenerate_saddles", count[Kind.DEGENERATE_SOSP], "saddles without negative curvature"),
        Quantity("excess", initial.excess, "here: loss above the minimum"),
        Quantity("negative_eigenvalues", initial.negative_eigenvalues, "here: negative directions"),
        Quantity("smallest_eigenvalue", initial.smallest_eigenvalue, "here: smallest curvature"),
    )
