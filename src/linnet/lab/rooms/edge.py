"""Edge and chaos: where one mode of a deep network goes, by step size, and what happens at one of them."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from linnet import dynamics
from linnet._check import InputError
from linnet.initial import identity, one_zero
from linnet.lab.control import Choice, Slider, Values
from linnet.lab.dress import COLOURS, SOFT, plain
from linnet.lab.room import Plate, Room, Sight, Sources
from linnet.motion import GradientDescent
from linnet.observe.hessian import blocks_of_values
from linnet.problems import factorisation
from linnet.simulation import simulate
from linnet.theory import stability
from linnet.trajectory import Trajectory

_COLUMNS, _ROWS, _KEEP = 800, 320, 400  # step sizes and values that a diagram tells apart, and points of each orbit
_LATE, _PERIOD = 128, 64  # points of the orbit in the end, and the longest period that is looked for
_STRETCH = 2000  # steps over which an exponent is taken
_LONGEST = 60_000  # steps before anything of an orbit is kept
_SHOWN = (60, 120, 250, 500, 1000, 2000)  # steps in time: a program each
_WINDOW = ("left", "right", "bottom", "top")
_THINNEST = 1e-9  # a window: beyond it rounding would be shown
_FAR = 3.0  # targets away: nothing is drawn there
_BORDER = 64  # left of both pictures over the step size, so that one stands below the other
_STARTS = {"balanced": "all layers alike", "one-zero": "last layer zero"}
_SHADES = [f"{COLOURS[0]}{shade:02x}" for shade in range(256)]


class Edge(Room):
    """A depth, a target, a start and a step size: the whole diagram, and the orbit at one place of it."""

    name = "edge"
    title = "Edge and chaos"
    lead = (
        "Beyond the edge of stability a mode neither converges nor diverges: it alternates, doubles its period and "
        "becomes chaotic. Click a step size in the diagram; drag a box or turn the wheel to look closer."
    )
    formula = (
        r"\rho \leftarrow \rho + \eta\,(s - \rho^L)\,\rho^{L-1}, \qquad \kappa = \eta S = \eta\, L\, s^{2 - 2/L},"
        r" \qquad \kappa < 2: \text{ converges}"
    )
    theory = ("stability",)
    claims = ("stability/C1", "stability/C3", "stability/C4", "stability/C5", "stability/C8")
    controls = (
        Slider(
            name="kappa",
            label="Step size × curvature, κ",
            value=2.55,
            low=0.5,
            high=5.5,
            step=0.001,
            digits=5,
            hint="In units of 1/S, S the curvature at the minimum: the edge is at 2, whatever depth and target.",
        ),
        Slider(name="depth", label="Depth", value=3, low=2, high=6, whole=True, group="Network"),
        Slider(name="target", label="Target value", value=10.0, low=0.5, high=20.0, step=0.1, group="Network"),
        Choice(name="start", label="Start", value="balanced", options=_STARTS, group="Network"),
        Slider(name="alpha", label="Initial value of a layer", value=0.5, low=0.2, high=2.0, group="Network"),
        Slider(
            name="steps", label="Steps shown", value=120, low=60, high=2000, whole=True, rungs=_SHOWN, group="Network"
        ),
        Slider(name="left", label="κ from", value=1.8, low=0.5, high=5.5, digits=6, group="Window of the diagram"),
        Slider(name="right", label="κ to", value=4.4, low=0.5, high=5.5, digits=6, group="Window of the diagram"),
        Slider(
            name="bottom",
            label="Mode / target from",
            value=-0.1,
            low=-1.0,
            high=2.5,
            digits=4,
            group="Window of the diagram",
        ),
        Slider(
            name="top", label="Mode / target to", value=2.1, low=-1.0, high=2.5, digits=4, group="Window of the diagram"
        ),
    )
    backs: ClassVar[Mapping[str, tuple[str, ...]]] = {"Whole diagram": _WINDOW}
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "below the edge: it converges": {"kappa": 1.9},
        "two values in turn": {"kappa": 2.3, "steps": 60},
        "four values in turn": {"kappa": 2.55, "left": 1.9, "right": 2.75},
        "chaos": {"kappa": 2.9, "steps": 250},
        "the period-3 window, two layers": {
            "depth": 2,
            "kappa": 2.92,
            "left": 2.55,
            "right": 3.2,
            "top": 1.8,
            "steps": 250,
        },
        "the same picture, again and again": {
            "kappa": 2.6316,
            "left": 2.58,
            "right": 2.66,
            "bottom": 0.9,
            "top": 1.35,
            "steps": 250,
        },
        "trapped at the saddle, three layers": {"kappa": 3.75, "steps": 250},
        "six layers, the last one at zero": {"depth": 6, "start": "one-zero", "alpha": 0.8, "kappa": 3.0, "right": 5.4},
    }
    files = (*Room.files, "gif", "mp4")

    def draw(self, sources: Sources) -> list[Plate]:
        return [self._diagram(sources), self._exponents(sources), *_orbit_plates(sources)]

    def _diagram(self, sources: Sources) -> Plate:
        from bokeh.models import LinearColorMapper, Range1d

        seen = sources.empty("diagram", "image", "x", "y", "dw", "dh")
        cycle, lost = sources.empty("cycle", "kappa", "value"), sources.empty("lost", "kappa", "value")
        marks = sources.empty("marks", "kappa", "from", "to", "text")
        here, points = sources.empty("here", "kappa", "value"), sources.empty("points", "kappa", "value")
        made = plain(
            height=420,
            x_axis_label="step size × curvature, κ = ηS",
            y_axis_label="mode of W_L … W_1",
            x_range=Range1d(1.8, 4.4),
            y_range=Range1d(0, 1),
            tools="box_zoom,wheel_zoom",
            active_scroll="wheel_zoom",
            min_border_left=_BORDER,
        )
        shades = LinearColorMapper(palette=_SHADES, low=0, high=255)
        made.image("image", x="x", y="y", dw="dw", dh="dh", source=seen, color_mapper=shades)
        made.multi_line("kappa", "value", source=cycle, color=COLOURS[4], line_width=1.6)
        made.multi_line("kappa", "value", source=lost, color=COLOURS[4], line_width=1, line_dash="dotted")
        made.segment("kappa", "from", "kappa", "to", source=marks, color=SOFT, line_dash="dotted")
        made.text(
            "kappa",
            "to",
            "text",
            source=marks,
            angle=math.pi / 2,
            text_align="right",
            text_color=SOFT,
            text_font_size="11px",
        )
        made.line("kappa", "value", source=here, color=COLOURS[1], line_width=2)
        made.scatter("kappa", "value", source=points, color=COLOURS[1], size=6)
        caption = (
            "Where the mode is after many steps, for every step size; blue, the cycle of two that theory gives, dotted "
            "where it repels. Click to choose a step size, drag a box or turn the wheel: the window is computed anew."
        )
        return Plate("diagram", "Bifurcation diagram", caption, made, clicked=True, zoomed=True, wide=True)

    def _exponents(self, sources: Sources) -> Plate:
        from bokeh.models import Range1d

        exponents, zero = sources.empty("exponents", "kappa", "exponent"), sources.empty("zero", "kappa", "exponent")
        here = sources.empty("exponent", "kappa", "exponent")
        made = plain(
            height=200,
            x_axis_label="step size × curvature, κ = ηS",
            y_axis_label="Lyapunov exponent",
            x_range=Range1d(1.8, 4.4),
            y_range=Range1d(-1.5, 1.0),
            min_border_left=_BORDER,
        )
        made.line("kappa", "exponent", source=zero, color=SOFT, line_dash="dashed")
        made.line("kappa", "exponent", source=exponents, color=COLOURS[2], line_width=1.5)
        made.scatter("kappa", "exponent", source=here, color=COLOURS[1], size=8)
        caption = (
            "How fast two neighbouring orbits part, a step: above zero is chaos, and its gaps are windows of order."
        )
        return Plate("exponents", "Order and chaos", caption, made, clicked=True, wide=True)

    def look(self, values: Values) -> Iterator[Sight]:
        depth, s, kappa = values["depth"], values["target"], values["kappa"]
        left, right, bottom, top = window = _checked_window(values)
        run = _run(values)
        clock, modes = np.asarray(run.steps), np.asarray(run["modes"])[:, 0]
        near = np.abs(modes) <= _FAR * s
        modes, sharpness = (np.where(near, y, np.nan) for y in (modes, np.asarray(run["sharpness"])))
        edge, ends = 2 * float(stability.curvature(s, depth)) / kappa, clock[[0, -1]].astype(float)
        yield Sight(
            {
                "orbit": {"step": clock, "value": modes},
                "target": {"step": ends, "value": np.full(2, s)},
                "sharp": {"step": clock, "sharpness": sharpness},
                "edge": {"step": ends, "edge": np.full(2, edge)},
                "here": {"kappa": np.full(2, kappa), "value": s * np.array([bottom, top])},
                **_web(modes, s, depth, kappa),
            },
            windows={"diagram": (left, right, bottom * s, top * s), "exponents": (left, right, -1.5, 1.0)},
        )
        start = _start(values)
        late = _late(depth, start, kappa)
        points = late[:, 0] * late[:, 1] ** (depth - 1) * s if late is not None else np.array([])
        exponent = _exponent(depth, start, kappa)
        yield Sight(
            {
                "points": {"kappa": np.full(len(points), kappa), "value": points},
                "exponent": {"kappa": np.array([kappa]), "exponent": np.array([max(exponent, -1.5)])},
            },
            sentence=_sentence(values, late, exponent, run),
            numbers=_numbers(values, late, exponent),
        )
        yield Sight({"diagram": _picture(depth, start, s, window), **_marks(depth, s, window)})
        yield Sight(_curve(depth, start, (left, right)))

    def clicked(self, plate: str, x: float, y: float, values: Values) -> Values:
        return values | {"kappa": min(max(float(f"{x:.12g}"), 0.5), 5.5)}

    def zoomed(self, plate: str, window: tuple[float, float, float, float], values: Values) -> Values:
        first = self.first()
        if any(math.isnan(side) for side in window):
            return values | {name: first[name] for name in _WINDOW}
        sides = (*window[:2], *(side / values["target"] for side in window[2:]))
        limits = {control.name: control for control in self.controls if isinstance(control, Slider)}
        moved = {
            name: min(max(float(f"{side:.12g}"), limits[name].low), limits[name].high)
            for name, side in zip(_WINDOW, sides, strict=True)
        }
        thin = min(moved["right"] - moved["left"], moved["top"] - moved["bottom"]) < _THINNEST
        return values if thin else values | moved

    def code(self, values: Values) -> str:
        depth, left, right = values["depth"], values["left"], values["right"]
        start = "identity" if values["start"] == "balanced" else "one_zero"
        x = "alpha" if values["start"] == "balanced" else "0.0"
        return f"""\
import linnet as ln
import numpy as np
from linnet import dynamics
from linnet.theory import stability
from matplotlib.figure import Figure

depth, s, alpha, kappa = {depth}, {values["target"]!r}, {values["alpha"]!r}, {values["kappa"]!r}
lr = kappa / float(stability.curvature(s, depth))  # the edge of stability is at kappa = 2
print(ln.predict.stability([s], depth=depth, lr=lr, start="{values["start"]}", alpha=alpha))

# one step size: the mode and the sharpness at every step
problem = ln.factorisation([s])
run = ln.simulate(
    problem,
    ln.{start}(problem, alpha, depth),
    ln.GradientDescent(lr),
    steps={values["steps"]},
    observe={{"modes": ln.observe.modes, "sharpness": ln.observe.aligned_sharpness}},
)

# all step sizes: the last layer x and the others y after many steps, in units of s ** (1 / depth)
kappas = np.linspace({left!r}, {right!r}, {_COLUMNS})
first = np.array([[{x}, alpha]]) / s ** (1 / depth)
skip = {_skip(depth, _start(values), left)}
orbits = dynamics.orbits(dynamics.one_zero(depth), first, kappas, skip=skip, keep={_KEEP})
x, y = np.moveaxis(np.asarray(orbits.values), -1, 0)
modes = np.where(np.asarray(orbits.diverged)[:, None], np.nan, s * x * y ** (depth - 1))
data = run.to_xarray().assign(diagram=(("kappa", "point"), modes)).assign_coords(kappa=kappas)

figure = Figure(figsize=(9, 5), layout="constrained")
axes = figure.subplots()
axes.plot(kappas, modes, ",", color="#c2410c", alpha=0.3, rasterized=True)
axes.axvline(kappa, color="#0f766e")
axes.set(xlabel="step size x curvature", ylabel="mode", xlim=({left!r}, {right!r}))
axes.set_ylim({values["bottom"]!r} * s, {values["top"]!r} * s)
"""

    def toml(self, values: Values) -> str:
        lr = values["kappa"] / float(stability.curvature(values["target"], values["depth"]))
        return f"""\
[data]
spectrum = [{values["target"]!r}]

[network]
depth = {values["depth"]}
width = 1

[start]
kind = "{values["start"]}"
scale = {values["alpha"]!r}

[training]
lr = {lr!r}
"""


# Pictures ------------------------------------------------------------------------------------------------------------


def _orbit_plates(sources: Sources) -> list[Plate]:
    """What happens at one step size."""
    orbit, target = sources.empty("orbit", "step", "value"), sources.empty("target", "step", "value")
    curve, same = sources.empty("curve", "now", "next"), sources.empty("same", "now", "next")
    web, last = sources.empty("web", "now", "next"), sources.empty("last", "now", "next")
    sharp, edge = sources.empty("sharp", "step", "sharpness"), sources.empty("edge", "step", "edge")
    time = plain(x_axis_label="step", y_axis_label="mode of W_L … W_1")
    time.line("step", "value", source=target, color=SOFT, line_dash="dashed", line_width=1.5, legend_label="target")
    time.line("step", "value", source=orbit, color=COLOURS[1], line_width=1, alpha=0.6, legend_label="exact training")
    time.scatter("step", "value", source=orbit, color=COLOURS[1], size=3)
    cobweb = plain(x_axis_label="mode now", y_axis_label="mode after a step")
    cobweb.line("now", "next", source=same, color=SOFT, line_dash="dashed")
    cobweb.line("now", "next", source=curve, color=COLOURS[4], line_width=2.5)
    cobweb.line("now", "next", source=web, color=COLOURS[1], line_width=1, alpha=0.35)
    cobweb.line("now", "next", source=last, color=COLOURS[0], line_width=1.6)
    curved = plain(x_axis_label="step", y_axis_label="sharpness")
    curved.line(
        "step",
        "edge",
        source=edge,
        color=COLOURS[0],
        line_dash="dashed",
        line_width=2,
        legend_label="2/η, what the step bears",
    )
    curved.line("step", "sharpness", source=sharp, color=COLOURS[2], line_width=1, alpha=0.6, legend_label="sharpness")
    curved.scatter("step", "sharpness", source=sharp, color=COLOURS[2], size=3)
    for made in (time, curved):
        made.legend.orientation = "horizontal"
        made.add_layout(made.legend[0], "above")
    return [
        Plate("orbit", "The orbit in time", "The mode at every step, from its start.", time),
        Plate(
            "cobweb",
            "The cobweb",
            "From the mode now up to the curve, over to the dashed line, and so on; the last steps in red. The curve "
            "is for layers that are alike.",
            cobweb,
        ),
        Plate(
            "sharpness",
            "Sharpness against 2/η",
            "Above the dashed line a step throws the mode further away, below it closer: it finds no rest between.",
            curved,
            wide=True,
        ),
    ]


def _web(modes: np.ndarray, s: float, depth: int, kappa: float) -> dict[str, dict[str, np.ndarray]]:
    """The map of a balanced mode, and the steps that were made as a cobweb."""
    known = modes[np.isfinite(modes)]
    low, high = (float(np.min(known)), float(np.max(known))) if known.size else (0.0, s)
    low, high = min(low, 0.0) if depth % 2 else 0.0, max(high, 1.1 * s)
    now = np.linspace(low, high, 400)
    layer = np.sign(now) * np.abs(now / s) ** (1 / depth)
    step = dynamics.orbits(dynamics.balanced(depth), layer, np.full(len(now), kappa), skip=1, keep=1)
    after = s * np.asarray(step.values)[:, 0] ** depth
    path = np.repeat(modes, 2)
    x, y = path[:-1], path[1:]
    return {
        "curve": {"now": now, "next": after},
        "same": {"now": np.array([low, high]), "next": np.array([low, high])},
        "web": {"now": x, "next": y},
        "last": {"now": x[-33:], "next": y[-33:]},
    }


def _marks(depth: int, s: float, window: tuple[float, float, float, float]) -> dict[str, Any]:
    """What theory says about the window: thresholds, and the cycle of two, before and after it loses its hold."""
    left, right, bottom, top = window
    table = stability.stages(depth)
    places = {  # what matters most comes first
        "edge: period 2": 2.0,
        "chaos": table.accumulation,
        "period 4": float(table.doublings[1]),
        "trapped at 0" if depth % 2 else "signs flip": table.leaves,
        "diverges": table.diverges,
        **{f"period {2 ** (n + 1)}": float(kappa) for n, kappa in enumerate(table.doublings) if n > 1},
    }
    inside: dict[str, float] = {}
    for text, kappa in places.items():  # no text over another
        if left <= kappa <= right and all(abs(kappa - other) > 0.02 * (right - left) for other in inside.values()):
            inside[text] = kappa
    count = len(inside)

    def cycle(low: float, high: float) -> dict[str, Any]:
        if high <= low:
            return {"kappa": [], "value": []}
        kappas = np.linspace(low, high, 200)
        found = stability.orbit(s, depth, kappas / stability.curvature(s, depth))
        return {"kappa": [kappas, kappas], "value": [found.bottom, found.top]}

    turn = min(max(float(table.doublings[1]), left), right)
    return {
        "marks": {
            "kappa": np.array(list(inside.values())),
            "from": np.full(count, bottom * s),
            "to": np.full(count, top * s),
            "text": [f"{text}  " for text in inside],
        },
        "cycle": cycle(max(left, 2.0), turn),
        "lost": cycle(max(turn, 2.0), right),
    }


@lru_cache(maxsize=32)
def _picture(
    depth: int, start: tuple[float, float], s: float, window: tuple[float, float, float, float]
) -> Mapping[str, Any]:
    """How often each place of the window is visited, as an image; the same object for the same window."""
    left, right, bottom, top = window
    kappas = np.linspace(left, right, _COLUMNS)
    skip = _skip(depth, start, left)
    found = dynamics.orbits(dynamics.one_zero(depth), np.array([start]), kappas, skip=skip, keep=_KEEP)
    points = np.asarray(found.values)
    modes = points[..., 0] * points[..., 1] ** (depth - 1)
    row = np.floor((modes - bottom) / (top - bottom) * _ROWS)
    inside = (row >= 0) & (row < _ROWS) & (np.asarray(found.escaped) < 0)[:, None]
    place = row * _COLUMNS + np.arange(_COLUMNS)[:, None]
    counts = np.bincount(place[inside].astype(int), minlength=_ROWS * _COLUMNS).reshape(_ROWS, _COLUMNS)
    shade = (255 * (1 - 0.75**counts)).astype(np.uint8)  # each visit a film of ink
    half = (right - left) / (_COLUMNS - 1) / 2  # a column stands around its step size
    return {
        "image": [shade],
        "x": np.array([left - half]),
        "y": np.array([bottom * s]),
        "dw": np.array([right - left + 2 * half]),
        "dh": np.array([(top - bottom) * s]),
    }


@lru_cache(maxsize=32)
def _curve(depth: int, start: tuple[float, float], span: tuple[float, float]) -> Mapping[str, Any]:
    """The Lyapunov exponent over the window."""
    kappas = np.linspace(*span, _COLUMNS)
    skip = _skip(depth, start, span[0])
    found = dynamics.lyapunov(dynamics.one_zero(depth), np.array([start]), kappas, skip=skip, steps=_STRETCH)
    exponent = np.asarray(found.exponent)
    shown = np.where(np.isfinite(exponent), exponent, np.nan)
    return {
        "exponents": {"kappa": kappas, "exponent": shown},
        "zero": {"kappa": np.array(span), "exponent": np.zeros(2)},
    }


# One step size -------------------------------------------------------------------------------------------------------


def _checked_window(values: Values) -> tuple[float, float, float, float]:
    left, right, bottom, top = window = tuple(values[name] for name in _WINDOW)
    for low, high, a, b in (("left", "right", left, right), ("bottom", "top", bottom, top)):
        if b - a < _THINNEST:
            raise InputError(f"{low} = {a:g} and {high} = {b:g} are not allowed: the window must have some width.")
    return window


def _start(values: Values) -> tuple[float, float]:
    """The value of the last layer and of the others, in units of the target's layers."""
    y = values["alpha"] / values["target"] ** (1 / values["depth"])
    return (y if values["start"] == "balanced" else 0.0), y


def _skip(depth: int, start: tuple[float, float], kappa: float) -> int:
    """Steps after which an orbit has left the saddle and settled."""
    kind = "balanced" if start[0] else "one_zero"
    escape = max(float(stability.escape_time(1.0, start[1], depth, kind)), 0.0) / (kappa / depth)
    return int(min(4000 + 3 * escape, _LONGEST))


def _run(values: Values) -> Trajectory:
    from linnet import observe

    depth, s = values["depth"], values["target"]
    problem = factorisation([s])
    start = (identity if values["start"] == "balanced" else one_zero)(problem, values["alpha"], depth)
    lr = values["kappa"] / float(stability.curvature(s, depth))
    looks = {"modes": observe.modes, "sharpness": observe.aligned_sharpness}
    return simulate(problem, start, GradientDescent(lr), steps=values["steps"], observe=looks)


def _late(depth: int, start: tuple[float, float], kappa: float) -> np.ndarray | None:
    """The last points of the orbit, last layer and others; None where it has left for infinity."""
    found = dynamics.orbits(
        dynamics.one_zero(depth), np.array([start]), kappa, skip=_skip(depth, start, kappa), keep=_LATE
    )
    return None if bool(found.diverged[0]) else np.asarray(found.values)[0]


def _exponent(depth: int, start: tuple[float, float], kappa: float) -> float:
    skip = _skip(depth, start, kappa)
    found = dynamics.lyapunov(dynamics.one_zero(depth), np.array([start]), kappa, skip=skip, steps=_STRETCH)
    return float(found.exponent[0])


def _period(late: np.ndarray) -> int:
    """Of an orbit's last points; 0 for none."""
    run = dynamics.Orbits(jnp.asarray(late[None]), jnp.full(1, -1))
    found = dynamics.period(run, most=_PERIOD, tol=1e-7)
    return int(found[0])


def _multipliers(late: np.ndarray, depth: int, kappa: float) -> str:
    """Of the cycle that the last points are on: what a step around it does to a small change of the layers."""
    cycle = late[: _period(late)]
    layers: Any = np.concatenate([np.repeat(cycle[:, 1:], depth - 1, axis=1), cycle[:, :1]], axis=1)[..., None]
    goal: Any = np.ones((len(cycle), 1))
    blocks = np.asarray(blocks_of_values(np, layers, goal)[0])[:, 0]
    found = dynamics.floquet(np.eye(depth) - kappa / depth * blocks)
    told = Counter(f"{m.real:.3f}" if abs(m.imag) < 5e-4 else f"{m.real:.3f}{m.imag:+.3f}i" for m in found)
    return ", ".join(text if count == 1 else f"{text} ({count} times)" for text, count in told.items()).replace(
        "-", "−"
    )


def _numbers(values: Values, late: np.ndarray | None, exponent: float) -> dict[str, str]:
    depth, s, kappa = values["depth"], values["target"], values["kappa"]
    edge = float(stability.curvature(s, depth))
    period, (fate,) = 0 if late is None else _period(late), stability.outcome(kappa, depth)
    return {
        "step size η": f"{kappa / edge:.5g}",
        "curvature S at the minimum": f"{edge:.4g}",
        "2/η": f"{2 * edge / kappa:.4g}",
        "theory": f"{fate}, or a window in it" if fate.fate is stability.Fate.CHAOS else str(fate),
        "period": "diverged" if late is None else str(period) if period else f"none up to {_PERIOD}",
        "Lyapunov exponent": f"{exponent:.3f}".replace("-", "−") if math.isfinite(exponent) else "infinite",
        "multipliers": _multipliers(late, depth, kappa) if late is not None and period else "none: no cycle",
    }


def _sentence(values: Values, late: np.ndarray | None, exponent: float, run: Trajectory) -> str:
    depth, kappa = values["depth"], values["kappa"]
    if late is None:
        if run.status == "diverged":
            return f"The mode diverges, at step {int(run.ended)}: the step is too large for any orbit."
        return "The mode diverges in the end, after more steps than are shown."
    modes, period = late[:, 0] * late[:, 1] ** (depth - 1), _period(late)
    if np.max(np.abs(modes)) < 0.2:
        return "The mode has come to the saddle at zero and stays there: a step that is too large can unlearn for ever."
    if period == 1:
        told = "below what the step bears" if kappa < 2 else "at a minimum that is less sharp than 2/η"
        return f"The mode converges to its target: it ends {told}."
    if period:
        return (
            f"The mode goes round {period} values for ever, {100 * (kappa / 2 - 1):.3g} % beyond the edge of "
            "stability; the loss neither reaches zero nor grows."
        )
    if exponent > 1e-3:
        lost = math.log(1e16) / exponent
        return f"Chaos: two starts that differ in the 16th digit have nothing in common after some {lost:.0f} steps."
    return "The orbit settles very slowly: this step size is close to one at which the period changes."
