"""Edge and chaos: the late behavior of one mode of a deep network by learning rate, and its orbit at one of them."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

import linnet as ln
from linnet import maps
from linnet._check import InputError
from linnet.lab.control import Choice, Slider, Values
from linnet.lab.page import Page, Update, arguments, as_toml, call
from linnet.lab.panel import COLORS, BokehPanel, Sources, image_columns
from linnet.linalg import blocks_of_values
from linnet.prediction import Quantity
from linnet.theory import stability

_ROWS = 320  # values that the diagram tells apart
_LATE, _PERIOD = 128, 64  # late points of an orbit, and the longest period that is recognized
_STEPS = 2000  # over which an exponent is taken
_SHOWN = (60, 120, 250, 500, 1000, 2000)  # steps in time: a program each
_WINDOW = ("left", "right", "bottom", "top")
_WINDOW_GROUP = "Window of the diagram"
_THINNEST = 1e-9  # a window: beyond it rounding would be shown
_FAR = 3.0  # targets away: nothing is drawn there
_BORDER = 64  # left of both panels over the learning rate, so that their axes are aligned
_INITS = {"balanced": "all layers alike", "one-zero": "last layer zero"}
_SHADES = [f"{COLORS[0]}{shade:02x}" for shade in range(256)]


# The code that the page shows -----------------------------------------------------------------------------------------


def setup(
    depth: int, target: float, init: str, alpha: float, kappa: float
) -> tuple[ln.problems.Factorization, ln.states.State, ln.optim.SGD]:
    """One mode of a deep network, and the learning rate that is kappa over the sharpness at the minimum."""
    problem = ln.factorization([target])
    draw = ln.init.identity if init == "balanced" else ln.init.one_zero
    lr = kappa / float(stability.curvature(target, depth))
    return problem, draw(problem, alpha, depth), ln.optim.SGD(lr)


def train(
    problem: ln.problems.Factorization, network: ln.states.State, optimizer: ln.optim.SGD, steps: int
) -> ln.Trajectory:
    """The mode and its sharpness at every step."""
    observe = {"modes": ln.observe.modes, "sharpness": ln.observe.aligned_sharpness}
    return ln.simulate(problem, network, optimizer, steps=steps, observe=observe)


def initial_point(depth: int, target: float, init: str, alpha: float, kappa: float) -> tuple[np.ndarray, int]:
    """(last layer, other layers) in units of the target's, and steps after which an orbit has settled."""
    y = alpha / target ** (1 / depth)
    point = np.array([[y if init == "balanced" else 0.0, y]])
    escape = float(stability.escape_time(1.0, y, depth, init.replace("-", "_"))) / (kappa / depth)
    return point, int(min(4000 + 3 * max(escape, 0.0), 60_000))


def diagram(
    depth: int, target: float, init: str, alpha: float, left: float, right: float
) -> tuple[np.ndarray, np.ndarray]:
    """800 values of kappa, and the mode at 400 late steps for each of them; NaN where it diverges."""
    kappas = np.linspace(left, right, 800)
    point, skip = initial_point(depth, target, init, alpha, left)
    found = maps.orbits(maps.one_zero(depth), point, kappas, skip=skip, keep=400)
    last, others = np.moveaxis(np.asarray(found.values), -1, 0)
    modes = target * last * others ** (depth - 1)
    return kappas, np.where(np.asarray(found.diverged)[:, None], np.nan, modes)


# The page ------------------------------------------------------------------------------------------------------------


class EdgePage(Page):
    """The bifurcation diagram of a mode, by depth, target, and initialization; its orbit at one learning rate."""

    name = "edge"
    title = "Edge and chaos"
    lead = (
        "Beyond the edge of stability a mode neither converges nor diverges: it alternates, doubles its period and "
        "becomes chaotic. Click a learning rate in the diagram; drag a box or turn the wheel to zoom in."
    )
    formula = (
        r"\rho \leftarrow \rho + \eta\,(s - \rho^L)\,\rho^{L-1}, \qquad \kappa = \eta S = \eta\, L\, s^{2 - 2/L},"
        r" \qquad \kappa < 2: \text{ converges}"
    )
    theory = ("stability",)
    claims = ("stability/C1", "stability/C3", "stability/C4", "stability/C5", "stability/C8")
    controls = (
        Slider("kappa", "Learning rate × curvature, κ", 2.55, low=0.5, high=5.5, step=0.001, digits=5),
        Slider("depth", "Depth", 3, low=2, high=6, whole=True, group="Network"),
        Slider("target", "Target value", 10.0, low=0.5, high=20.0, step=0.1, group="Network"),
        Choice("init", "Initialization", "balanced", options=_INITS, group="Network"),
        Slider("alpha", "Initial value of a layer", 0.5, low=0.2, high=2.0, group="Network"),
        Slider("steps", "Steps shown", 120, low=60, high=2000, whole=True, rungs=_SHOWN, group="Network"),
        Slider("left", "κ from", 1.8, low=0.5, high=5.5, digits=6, group=_WINDOW_GROUP),
        Slider("right", "κ to", 4.4, low=0.5, high=5.5, digits=6, group=_WINDOW_GROUP),
        Slider("bottom", "Mode / target from", -0.1, low=-1.0, high=2.5, digits=4, group=_WINDOW_GROUP),
        Slider("top", "Mode / target to", 2.1, low=-1.0, high=2.5, digits=4, group=_WINDOW_GROUP),
    )
    hints: ClassVar = {
        "kappa": "In units of 1/S, S the curvature at the minimum: the edge is at 2, whatever depth and target.",
    }
    resets: ClassVar[Mapping[str, tuple[str, ...]]] = {"Whole diagram": _WINDOW}
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
        "six layers, the last one at zero": {"depth": 6, "init": "one-zero", "alpha": 0.8, "kappa": 3.0, "right": 5.4},
    }
    functions = (setup, train, initial_point, diagram)
    imports = (
        "import linnet as ln",
        "import numpy as np",
        "from linnet import maps",
        "from linnet.theory import stability",
        "from matplotlib.figure import Figure",
    )

    def panels(self, sources: Sources) -> list[BokehPanel]:
        return [*_diagram_panels(sources), *_orbit_panels(sources)]

    def updates(self, values: Values) -> Iterator[Update]:
        depth, s, kappa = values["depth"], values["target"], values["kappa"]
        left, right, bottom, top = _checked_window(values)
        run = train(*setup(**arguments(setup, values)), values["steps"])
        steps, modes = np.asarray(run.steps), np.asarray(run["modes"])[:, 0]
        near = np.abs(modes) <= _FAR * s
        modes, sharpness = (np.where(near, y, np.nan) for y in (modes, np.asarray(run["sharpness"])))
        edge, ends = 2 * float(stability.curvature(s, depth)) / kappa, steps[[0, -1]].astype(float)
        yield Update(
            {
                "orbit": {"step": steps, "value": modes},
                "target": {"step": ends, "value": np.full(2, s)},
                "sharp": {"step": steps, "sharpness": sharpness},
                "edge": {"step": ends, "edge": np.full(2, edge)},
                "here": {"kappa": np.full(2, kappa), "value": s * np.array([bottom, top])},
                **_cobweb(modes, s, depth, kappa),
            },
            ranges={"diagram": (left, right, bottom * s, top * s), "exponents": (left, right, -1.5, 1.0)},
        )
        point, skip = initial_point(**arguments(initial_point, values))
        found = maps.orbits(maps.one_zero(depth), point, kappa, skip=skip, keep=_LATE)
        late = None if bool(found.diverged[0]) else np.asarray(found.values)[0]
        points = late[:, 0] * late[:, 1] ** (depth - 1) * s if late is not None else np.array([])
        exponent = float(_exponents(depth, point, np.array([kappa]), skip)[0])
        yield Update(
            {
                "points": {"kappa": np.full(len(points), kappa), "value": points},
                "exponent": {"kappa": np.array([kappa]), "exponent": np.array([max(exponent, -1.5)])},
            },
            headline=_headline(values, late, exponent, run),
            quantities=_quantities(values, late, exponent),
        )
        yield Update({"diagram": _image(bottom, top, **arguments(diagram, values)), **_theory(values)})
        yield Update(_exponent_curve(**arguments(diagram, values)))

    def on_click(self, panel: str, x: float, y: float, values: Values) -> Values:
        return values | {"kappa": min(max(float(f"{x:.12g}"), 0.5), 5.5)}

    def on_zoom(self, panel: str, window: tuple[float, float, float, float], values: Values) -> Values:
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

    def script(self, values: Values) -> str:
        window = ", ".join(f"{name}={values[name]!r}" for name in _WINDOW)
        return f"""\
problem, network, optimizer = {call(setup, values)}
print(ln.prediction.stability(problem, network, optimizer))
run = train(problem, network, optimizer, {values["steps"]})
kappas, modes = {call(diagram, values)}
data = run.to_xarray().assign(diagram=(("kappa", "point"), modes)).assign_coords(kappa=kappas)

window, target = dict({window}), {values["target"]!r}
figure = Figure(figsize=(9, 5), layout="constrained")
axes = figure.subplots()
axes.plot(kappas, modes, ",", color="#c2410c", alpha=0.3, rasterized=True)
axes.axvline({values["kappa"]!r}, color="#0f766e")
axes.set(xlabel="learning rate x sharpness", ylabel="mode", xlim=(window["left"], window["right"]))
axes.set_ylim(window["bottom"] * target, window["top"] * target)
"""

    def toml(self, values: Values) -> str:
        lr = values["kappa"] / float(stability.curvature(values["target"], values["depth"]))
        return as_toml(
            {
                "data": {"spectrum": [values["target"]]},
                "network": {"depth": values["depth"], "width": 1},
                "init": {"kind": values["init"], "scale": values["alpha"]},
                "training": {"lr": lr},
            }
        )


# Panels --------------------------------------------------------------------------------------------------------------


def _diagram_panels(sources: Sources) -> list[BokehPanel]:
    """What happens at all learning rates."""
    from bokeh.models import Range1d

    xlabel = "learning rate × curvature, κ = ηS"
    diagram = BokehPanel(
        sources,
        "diagram",
        "Bifurcation diagram",
        "The mode at late steps, for every learning rate; blue: the cycle of period 2 by theory, dotted where it is "
        "unstable. Click to choose a learning rate, drag a box or turn the wheel to zoom: the diagram is recomputed.",
        xlabel,
        "mode of W_L … W_1",
        height=420,
        clickable=True,
        zoomable=True,
        wide=True,
        x_range=Range1d(1.8, 4.4),
        y_range=Range1d(0, 1),
        tools="box_zoom,wheel_zoom",
        active_scroll="wheel_zoom",
        min_border_left=_BORDER,
    )
    diagram.image("diagram", _SHADES, 0, 255)
    diagram.line("cycle", "kappa", "value", color=COLORS[4], many=True)
    diagram.line("unstable", "kappa", "value", "dotted", color=COLORS[4], many=True)
    diagram.line("marks", "kappas", "span", "dotted", many=True)
    diagram.text("marks", "kappa", "top", "text", angle=math.pi / 2, text_font_size="11px")
    diagram.line("here", "kappa", "value", color=COLORS[1])
    diagram.points("points", "kappa", "value", color=COLORS[1], size=6)
    exponents = BokehPanel(
        sources,
        "exponents",
        "Order and chaos",
        "The rate at which two neighboring orbits separate, per step: positive is chaos, gaps are windows of order.",
        xlabel,
        "Lyapunov exponent",
        height=200,
        clickable=True,
        wide=True,
        x_range=Range1d(1.8, 4.4),
        y_range=Range1d(-1.5, 1.0),
        min_border_left=_BORDER,
    )
    exponents.line("zero", "kappa", "exponent", "dashed")
    exponents.line("exponents", "kappa", "exponent", color=COLORS[2])
    exponents.points("exponent", "kappa", "exponent", color=COLORS[1])
    return [diagram, exponents]


def _orbit_panels(sources: Sources) -> list[BokehPanel]:
    """What happens at one learning rate."""
    caption = "The mode at every step, from its initialization."
    time = BokehPanel(sources, "orbit", "The orbit in time", caption, "step", "mode of W_L … W_1")
    time.line("target", "step", "value", "dashed", label="target")
    time.line("orbit", "step", "value", "thin", color=COLORS[1], label="exact training")
    time.points("orbit", "step", "value", color=COLORS[1], size=3)
    time.legend("above")
    caption = (
        "From the mode now up to the curve, over to the dashed line, and so on; the last steps in red. The curve "
        "is for layers that are alike."
    )
    cobweb = BokehPanel(sources, "cobweb", "The cobweb", caption, "mode now", "mode after a step")
    cobweb.line("same", "now", "next", "dashed")
    cobweb.line("curve", "now", "next", color=COLORS[4])
    cobweb.line("web", "now", "next", "thin", color=COLORS[1])
    cobweb.line("last", "now", "next", color=COLORS[0])
    caption = "Above the dashed line a step moves the mode away from its target, below it closer."
    sharpness = BokehPanel(sources, "sharpness", "Sharpness against 2/η", caption, "step", "sharpness", wide=True)
    sharpness.line("edge", "step", "edge", "dashed", color=COLORS[0], label="2/η, stable up to here")
    sharpness.line("sharp", "step", "sharpness", "thin", color=COLORS[2], label="sharpness")
    sharpness.points("sharp", "step", "sharpness", color=COLORS[2], size=3)
    sharpness.legend("above")
    return [time, cobweb, sharpness]


def _cobweb(modes: np.ndarray, s: float, depth: int, kappa: float) -> dict[str, dict[str, np.ndarray]]:
    """The map of a balanced mode, and the orbit as a cobweb."""
    known = modes[np.isfinite(modes)]
    low, high = (float(np.min(known)), float(np.max(known))) if known.size else (0.0, s)
    low, high = min(low, 0.0) if depth % 2 else 0.0, max(high, 1.1 * s)
    now = np.linspace(low, high, 400)
    layer = np.sign(now) * np.abs(now / s) ** (1 / depth)
    step = maps.orbits(maps.balanced(depth), layer, np.full(len(now), kappa), skip=1, keep=1)
    after = s * np.asarray(step.values)[:, 0] ** depth
    path = np.repeat(modes, 2)
    x, y = path[:-1], path[1:]
    return {
        "curve": {"now": now, "next": after},
        "same": {"now": np.array([low, high]), "next": np.array([low, high])},
        "web": {"now": x, "next": y},
        "last": {"now": x[-33:], "next": y[-33:]},
    }


def _theory(values: Values) -> dict[str, Any]:
    """Thresholds within the window, and the cycle of period 2 where it is stable and where it is not."""
    depth, s, (left, right, bottom, top) = values["depth"], values["target"], _checked_window(values)
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

    def cycle(low: float, high: float) -> dict[str, Any]:
        if high <= low:
            return {"kappa": [], "value": []}
        kappas = np.linspace(low, high, 200)
        found = stability.orbit(s, depth, kappas / stability.curvature(s, depth))
        return {"kappa": [kappas, kappas], "value": [found.bottom, found.top]}

    turn = min(max(float(table.doublings[1]), left), right)
    return {
        "marks": {
            "kappas": [np.full(2, kappa) for kappa in inside.values()],
            "span": [np.array([bottom * s, top * s])] * len(inside),
            "kappa": np.array(list(inside.values())),
            "top": np.full(len(inside), top * s),
            "text": [f"{text}  " for text in inside],
        },
        "cycle": cycle(max(left, 2.0), turn),
        "unstable": cycle(max(turn, 2.0), right),
    }


@lru_cache(maxsize=32)
def _image(bottom: float, top: float, **given: Any) -> Mapping[str, Any]:
    """How often each cell of the window is visited, as an image; the same object for the same window."""
    kappas, modes = diagram(**given)
    s, columns = given["target"], len(kappas)
    row = np.floor((modes / s - bottom) / (top - bottom) * _ROWS)
    inside = (row >= 0) & (row < _ROWS)
    cell = row * columns + np.arange(columns)[:, None]
    counts = np.bincount(cell[inside].astype(int), minlength=_ROWS * columns).reshape(_ROWS, columns)
    shade = (255 * (1 - 0.75**counts)).astype(np.uint8)
    half = (kappas[1] - kappas[0]) / 2  # a column is centered at its kappa
    return image_columns(shade, kappas[0] - half, kappas[-1] + half, bottom * s, top * s)


@lru_cache(maxsize=32)
def _exponent_curve(**given: Any) -> Mapping[str, Any]:
    """The Lyapunov exponent over the window."""
    kappas = np.linspace(given["left"], given["right"], 800)
    point, skip = initial_point(**arguments(initial_point, given | {"kappa": given["left"]}))
    exponents = _exponents(given["depth"], point, kappas, skip)
    return {
        "exponents": {"kappa": kappas, "exponent": np.where(np.isfinite(exponents), exponents, np.nan)},
        "zero": {"kappa": kappas[[0, -1]], "exponent": np.zeros(2)},
    }


def _exponents(depth: int, point: np.ndarray, kappas: np.ndarray, skip: int) -> np.ndarray:
    found = maps.lyapunov(maps.one_zero(depth), point, kappas, skip=skip, steps=_STEPS)
    return np.asarray(found.exponent)


# One learning rate ----------------------------------------------------------------------------------------------------


def _checked_window(values: Values) -> tuple[float, float, float, float]:
    left, right, bottom, top = window = tuple(values[name] for name in _WINDOW)
    for low, high, a, b in (("left", "right", left, right), ("bottom", "top", bottom, top)):
        if b - a < _THINNEST:
            raise InputError(f"{low} = {a:g} and {high} = {b:g} are not allowed: the window must have some width.")
    return window


def _period(late: np.ndarray) -> int:
    """Of an orbit's last points; 0 for none."""
    found = maps.period(maps.Orbits(jnp.asarray(late[None]), jnp.full(1, -1)), most=_PERIOD, tol=1e-7)
    return int(found[0])


def _multipliers(late: np.ndarray, depth: int, kappa: float) -> str:
    """Of the cycle that the last points are on: how a small change of the layers grows around it."""
    cycle = late[: _period(late)]
    layers: Any = np.concatenate([np.repeat(cycle[:, 1:], depth - 1, axis=1), cycle[:, :1]], axis=1)[..., None]
    goal: Any = np.ones((len(cycle), 1))
    blocks = np.asarray(blocks_of_values(np, layers, goal)[0])[:, 0]
    found = maps.floquet(np.eye(depth) - kappa / depth * blocks)
    counts = Counter(f"{m.real:.3f}" if abs(m.imag) < 5e-4 else f"{m.real:.3f}{m.imag:+.3f}i" for m in found)
    return ", ".join(text if count == 1 else f"{text} ({count} times)" for text, count in counts.items())


def _quantities(values: Values, late: np.ndarray | None, exponent: float) -> tuple[Quantity, ...]:
    depth, kappa = values["depth"], values["kappa"]
    edge = float(stability.curvature(values["target"], depth))
    (fate,) = stability.outcome(kappa, depth)
    period = 0 if late is None else _period(late)
    name = "diverged" if late is None else f"period {period}" if period else f"none up to {_PERIOD}"
    return (
        Quantity("lr", kappa / edge, "learning rate η", format=".5g"),
        Quantity("sharpness_at_end", edge, "curvature S at the minimum"),
        Quantity("stability_threshold", 2 * edge / kappa, "2/η"),
        Quantity("fate", f"{fate}, or a window in it" if fate.fate is stability.Fate.CHAOS else str(fate), "theory"),
        Quantity("period", name, "orbit"),
        Quantity("lyapunov_exponent", exponent, "Lyapunov exponent", format=".3f"),
        Quantity(
            "multipliers", _multipliers(late, depth, kappa) if late is not None and period else None, "multipliers"
        ),
    )


def _headline(values: Values, late: np.ndarray | None, exponent: float, run: ln.Trajectory) -> str:
    depth, kappa = values["depth"], values["kappa"]
    if late is None:
        when = f"at step {int(run.ended)}" if run.status == "diverged" else "after more steps than are shown"
        return f"The mode diverges {when}."
    modes, period = late[:, 0] * late[:, 1] ** (depth - 1), _period(late)
    if np.max(np.abs(modes)) < 0.2:
        return "The mode has reached the saddle at zero and stays there: too large a learning rate can unlearn forever."
    if period == 1:
        where = "at a learning rate that is stable" if kappa < 2 else "at a minimum that is less sharp than 2/η"
        return f"The mode converges to its target, {where}."
    if period:
        return (
            f"The mode cycles through {period} values, {100 * (kappa / 2 - 1):.3g} % beyond the edge of stability; the "
            "loss neither reaches zero nor grows."
        )
    if exponent > 1e-3:
        steps = math.log(1e16) / exponent
        return f"Chaos: two orbits that differ in the 16th digit have nothing in common after some {steps:.0f} steps."
    return "The orbit settles very slowly: this learning rate is close to one at which the period changes."
