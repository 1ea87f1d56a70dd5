"""Landscape: the critical points of a linear network, and the way down from any of them."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import combinations
from typing import Any, ClassVar

import numpy as np

from linnet import predict
from linnet._check import InputError
from linnet.initial import critical
from linnet.lab.control import Bars, Choice, Slider, Values
from linnet.lab.dress import COLOURS, SOFT, plain
from linnet.lab.room import Plate, Room, Sight, Sources
from linnet.motion import GradientDescent
from linnet.observe import Kind
from linnet.predict.landscape import CriticalSet
from linnet.record import linear
from linnet.simulation import simulate
from linnet.states import Weights
from linnet.theory import landscape as theory
from linnet.trajectory import Trajectory

_MODES = 4
_RECORDS = 401
_NEAR = 0.15  # of a mode's target: so close to it the mode is learned, so close to zero it is not
_SETS = [kept for size in range(_MODES + 1) for kept in combinations(range(1, _MODES + 1), size)]
_KINDS = {
    Kind.STRICT_SADDLE: (COLOURS[4], "strict saddle", "a strict saddle"),
    Kind.DEGENERATE_SOSP: (COLOURS[3], "saddle without a slope", "a saddle without negative curvature"),
    Kind.GLOBAL_MIN: (COLOURS[1], "global minimum", "a global minimum"),
}


def _word(kept: tuple[int, ...]) -> str:
    return " ".join(map(str, kept)) or "none"


def _told(kept: tuple[int, ...]) -> str:
    return "nothing" if not kept else f"mode {kept[0]}" if len(kept) == 1 else f"modes {_word(kept)}"


class Landscape(Room):
    """A target's spectrum, a depth and a width: where training can rest, and how it leaves."""

    name = "landscape"
    title = "Landscape"
    lead = (
        "At every critical point a network has learned some modes of its target and no others. Click one: a tiny push, "
        "and the exact training goes down from it, from saddle to saddle."
    )
    formula = (
        r"\nabla C = 0: \quad W_L \cdots W_1 = \sum_{i \in I} s_i\, u_i v_i^\top, \qquad"
        r" C = \frac12 \sum_{i \notin I} s_i^2"
    )
    theory = ("landscape", "convergence")
    claims = ("nonlocal/C2", "nonlocal/C3", "nonlocal/C4", "nonlocal/C5", "nonlocal/C6")
    controls = (
        Bars(name="spectrum", label="Target: singular values", value=[3.0, 2.2, 1.4, 0.7], low=0.2, high=4.0),
        Choice(
            name="point",
            label="From the point that has learned",
            value="none",
            options={_word(kept): _told(kept) for kept in _SETS},
        ),
        Slider(name="depth", label="Depth", value=2, low=2, high=4, whole=True, group="Network"),
        Slider(name="width", label="Width", value=4, low=1, high=6, whole=True, unit="neurons", group="Network"),
        Slider(name="push", label="Size of the push", value=1e-6, low=1e-8, high=0.3, log=True, group="Descent"),
        Slider(name="seed", label="Draw of the push", value=0, low=0, high=99, whole=True, group="Descent"),
        Slider(name="lr", label="Step size", value=0.03, low=1e-3, high=0.5, log=True, group="Descent"),
        Slider(name="steps", label="Steps", value=1000, low=500, high=20_000, log=True, whole=True, group="Descent"),
    )
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "from saddle to saddle": {"push": 1e-8, "steps": 1300},
        "from the wrong modes": {"point": "3 4", "steps": 700},
        "no room: two neurons must exchange their modes": {"width": 2, "point": "3 4", "steps": 1000},
        "three layers: a saddle without a slope": {"depth": 3, "push": 0.02, "lr": 0.05, "steps": 8000},
        "three layers: a mode is exchanged for a larger one": {"depth": 3, "point": "4", "steps": 500},
        "four layers wait longer": {"depth": 4, "push": 0.1, "lr": 0.05, "steps": 20_000},
        "a large push: hardly a rest": {"push": 0.3, "steps": 500},
    }
    files = (*Room.files, "gif", "mp4")

    def draw(self, sources: Sources) -> list[Plate]:
        return [*_graph(sources), *_descent(sources)]

    def look(self, values: Values) -> Iterator[Sight]:
        said, kept = _asked(values), _kept(values)
        run = _run(said, values)
        clock, losses, modes = (np.asarray(x) for x in (run.steps, run["loss"], run["modes"]))
        points = {point.kept: point for point in said.points}
        highest = 1.2 * max(point.loss for point in said.points)
        losses = np.where(losses <= highest, losses, np.nan)
        modes = np.where(np.abs(modes) <= 1.6 * said.spectrum[0], modes, np.nan)
        way = [kept, *(found for found in _visited(modes, said) if found != kept)]
        last = clock[[0, -1]].astype(float)
        yield Sight(
            {
                **_points(said),
                **_path(way, points),
                "loss": {"step": clock, "loss": losses},
                "levels": _levels([point.loss for point in said.points], last),
                "lit": _levels([points[found].loss for found in way], last),
                "modes": {"step": [clock] * _MODES, "value": list(modes.T), "colour": list(COLOURS[:_MODES])},
                "targets": _levels(said.spectrum, last, "value") | {"colour": list(COLOURS[:_MODES])},
                "hessian": _hessian(said, kept),
            },
            sentence=_sentence(points[kept], way, points, run),
            numbers=_numbers(said, points[kept]),
        )

    def clicked(self, plate: str, x: float, y: float, values: Values) -> Values:
        said = _asked(values)
        wide = max(point.negative_eigenvalues for point in said.points) or 1
        high = max(point.loss for point in said.points)

        def away(point: CriticalSet) -> float:
            return ((point.negative_eigenvalues - x) / wide) ** 2 + ((point.loss - y) / high) ** 2

        return values | {"point": _word(min(said.points, key=away).kept)}

    def code(self, values: Values) -> str:
        hidden = (values["width"],) * (values["depth"] - 1)
        return f"""\
import linnet as ln
import numpy as np

said = ln.predict.landscape({_spectrum(values)!r}, {hidden!r})
print(said)

# a critical point, a tiny push, and down
saddle = ln.critical(said.problem, {hidden!r}, {_kept(values)!r})
rng = np.random.default_rng({values["seed"]})
start = ln.Weights([w + {values["push"]!r} * rng.normal(size=w.shape) for w in saddle.layers])
run = ln.simulate(
    said.problem,
    start,
    ln.GradientDescent({values["lr"]!r}),
    steps={values["steps"]},
    record=ln.linear({_RECORDS}),
    observe=["loss", "modes"],
)

data = run.to_xarray().assign(
    point_loss=("point", [point.loss for point in said.points]),
    point_negative=("point", [point.negative_eigenvalues for point in said.points]),
)
data = data.assign_coords(point=[point.name for point in said.points])
figure = said.plot()
"""


# Pictures ------------------------------------------------------------------------------------------------------------


def _graph(sources: Sources) -> list[Plate]:
    from bokeh.models import DataRange1d

    points = sources.empty("points", "negative", "loss", "colour", "kind", "name")
    edges = sources.empty("edges", "negative", "loss")
    path, stops = sources.empty("path", "negative", "loss"), sources.empty("stops", "negative", "loss", "size")
    loss, levels, lit = (sources.empty(name, "step", "loss") for name in ("loss", "levels", "lit"))
    graph = plain(
        height=380,
        x_axis_label="negative directions of the Hessian",
        y_axis_label="loss",
        x_range=DataRange1d(range_padding=0.3),
        y_range=DataRange1d(range_padding=0.15),
    )
    graph.multi_line("negative", "loss", source=edges, color=SOFT, alpha=0.3)
    graph.line("negative", "loss", source=path, color=COLOURS[0], line_width=3)
    graph.scatter("negative", "loss", source=stops, size="size", color=COLOURS[0], alpha=0.35)
    graph.scatter("negative", "loss", source=points, size=11, color="colour", legend_field="kind")
    graph.text(
        "negative",
        "loss",
        "name",
        source=points,
        text_align="right",
        x_offset=-8,
        y_offset=-4,
        text_color=SOFT,
        text_font_size="12px",
    )
    graph.legend.location = "bottom_right"
    losses = plain(height=380, x_axis_label="step", y_axis_label="loss")
    losses.multi_line("step", "loss", source=levels, color=SOFT, alpha=0.3)
    losses.multi_line("step", "loss", source=lit, color=COLOURS[0], line_dash="dashed", line_width=1.5)
    losses.line("step", "loss", source=loss, color=COLOURS[2], line_width=2.5)
    return [
        Plate(
            "graph",
            "Critical points",
            "Each by its loss and the number of ways down; numbers are the modes it has learned, lines lead to one "
            "mode more. Red: the way of the descent. Click a point to start there.",
            graph,
            clicked=True,
        ),
        Plate(
            "loss",
            "Loss on the way down",
            "Grey lines are the losses of all critical points, dashed those that the descent has visited.",
            losses,
        ),
    ]


def _descent(sources: Sources) -> list[Plate]:
    modes, targets = (sources.empty(name, "step", "value", "colour") for name in ("modes", "targets"))
    hessian = sources.empty("hessian", "rank", "value", "colour")
    learned = plain(x_axis_label="step", y_axis_label="mode of W_L … W_1")
    learned.multi_line("step", "value", source=targets, color="colour", line_dash="dotted")
    learned.multi_line("step", "value", source=modes, color="colour", line_width=2.2)
    curved = plain(x_axis_label="direction", y_axis_label="curvature")
    curved.vbar(x="rank", top="value", source=hessian, width=0.8, color="colour")
    return [
        Plate("modes", "Modes on the way down", "Dotted: the target's singular values.", learned),
        Plate(
            "hessian",
            "Curvature where it starts",
            "Every eigenvalue of the Hessian at the chosen point, in closed form; red ones lead down.",
            curved,
        ),
    ]


def _points(said: predict.LandscapePrediction) -> dict[str, Mapping[str, Any]]:
    place = {point.kept: (float(point.negative_eigenvalues), point.loss) for point in said.points}
    pairs = [
        (place[less], here)
        for kept, here in place.items()
        for less in (tuple(m for m in kept if m != mode) for mode in kept)
    ]
    return {
        "points": {
            "negative": np.array([x for x, _ in place.values()]),
            "loss": np.array([y for _, y in place.values()]),
            "colour": [_KINDS[point.label][0] for point in said.points],
            "kind": [_KINDS[point.label][1] for point in said.points],
            "name": [_word(point.kept) for point in said.points],
        },
        "edges": {
            "negative": [np.array([a[0], b[0]]) for a, b in pairs],
            "loss": [np.array([a[1], b[1]]) for a, b in pairs],
        },
    }


def _path(way: list[tuple[int, ...]], points: Mapping[tuple[int, ...], CriticalSet]) -> dict[str, Mapping[str, Any]]:
    x = np.array([float(points[kept].negative_eigenvalues) for kept in way])
    y = np.array([points[kept].loss for kept in way])
    size = np.array([30.0] + [22.0] * (len(way) - 1))
    return {"path": {"negative": x, "loss": y}, "stops": {"negative": x, "loss": y, "size": size}}


def _levels(losses: Any, span: np.ndarray, name: str = "loss") -> dict[str, Any]:
    """A level line for each."""
    return {"step": [span] * len(losses), name: [np.full(2, loss) for loss in losses]}


def _hessian(said: predict.LandscapePrediction, kept: tuple[int, ...]) -> dict[str, Any]:
    found = theory.spectrum(said.spectrum, said.widths, kept).all()
    return {
        "rank": np.arange(1, len(found) + 1),
        "value": found,
        "colour": [COLOURS[0] if value < 0 else COLOURS[7] for value in found],
    }


# The descent ---------------------------------------------------------------------------------------------------------


def _spectrum(values: Values) -> list[float]:
    return sorted(values["spectrum"], reverse=True)


def _asked(values: Values) -> predict.LandscapePrediction:
    return _landscape(tuple(_spectrum(values)), values["depth"], values["width"])


@lru_cache(maxsize=64)
def _landscape(spectrum: tuple[float, ...], depth: int, width: int) -> predict.LandscapePrediction:
    return predict.landscape(list(spectrum), (width,) * (depth - 1))


def _kept(values: Values) -> tuple[int, ...]:
    """The modes of the chosen point, which need as many neurons."""
    kept = next(kept for kept in _SETS if _word(kept) == values["point"])
    if len(kept) > values["width"]:
        raise InputError(
            f"point = {values['point']} is not allowed: a layer of width {values['width']} carries no more modes than "
            "that; take more neurons, or a point with fewer modes."
        )
    return kept


def _run(said: predict.LandscapePrediction, values: Values) -> Trajectory:
    saddle = critical(said.problem, said.widths[1:-1], _kept(values))
    rng = np.random.default_rng(values["seed"])
    start = Weights([np.asarray(w) + values["push"] * rng.normal(size=w.shape) for w in saddle.layers])
    motion, records = GradientDescent(values["lr"]), linear(_RECORDS)
    return simulate(said.problem, start, motion, steps=values["steps"], record=records, observe=["loss", "modes"])


def _visited(modes: np.ndarray, said: predict.LandscapePrediction) -> list[tuple[int, ...]]:
    """The critical points that the descent came close to, in order: each mode nearly learned or nearly absent."""
    share = modes / np.array(said.spectrum)
    learned, absent = np.abs(share - 1) <= _NEAR, np.abs(share) <= _NEAR
    known = {point.kept for point in said.points}
    rows = learned[np.all(learned | absent, axis=1)]
    order = dict.fromkeys(tuple((np.flatnonzero(row) + 1).tolist()) for row in rows)
    return [kept for kept in order if kept in known]


def _sentence(
    start: CriticalSet,
    way: list[tuple[int, ...]],
    points: Mapping[tuple[int, ...], CriticalSet],
    run: Trajectory,
) -> str:
    here = f"Where the network has learned {_told(start.kept)} it is at {_KINDS[start.label][2]}."
    if run.status == "diverged":
        return f"{here} The descent diverged at step {int(run.ended)}: take a smaller step size."
    if start.label is Kind.GLOBAL_MIN:
        return f"{here} There is no way down: after the push it only settles again."
    if len(way) == 1:
        wait = " Nothing of second order leads down, so it waits long." if not start.negative_eigenvalues else ""
        return f"{here} The descent has reached no other point yet.{wait} Take more steps, or a larger push."
    down = " → ".join(_word(kept) for kept in way)
    if points[way[-1]].label is Kind.GLOBAL_MIN:
        return f"{here} The descent learns {down}, a global minimum."
    return f"{here} The descent learns {down} and goes on: more steps, or a larger push, show the rest."


def _numbers(said: predict.LandscapePrediction, start: CriticalSet) -> dict[str, str]:
    count = {kind: sum(point.label is kind for point in said.points) for kind in _KINDS}
    return {
        "critical points": f"{said.critical_sets} sets of modes",
        "saddles": f"{count[Kind.STRICT_SADDLE]} strict, {count[Kind.DEGENERATE_SOSP]} without a slope",
        "here: loss above the minimum": f"{start.excess:.4g}",
        "here: negative directions": str(start.negative_eigenvalues),
        "here: smallest curvature": f"{start.smallest_eigenvalue:.4g}".replace("-", "−"),
    }
