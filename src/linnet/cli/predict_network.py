"""`linnet predict network`: what becomes of a user's own network, from all subjects at once."""

import math
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from linnet import initial, observe
from linnet._check import InputError
from linnet.cli.bar import bar
from linnet.cli.predict_stability import cross_at, escape_times, modes_at
from linnet.cli.situation import Situation
from linnet.cli.typed import picture
from linnet.curves import crossing
from linnet.linalg import top_of_products
from linnet.motion import GradientDescent, loss_below
from linnet.predict.data import read_regression
from linnet.predict.frame import Frame, of_samples, whitened
from linnet.problems import Regression, regression
from linnet.record import at, every
from linnet.simulation import simulate
from linnet.states import Weights
from linnet.theory import mixed, spectral
from linnet.theory import stability as edge

_HALF, _FIT, _SIGNAL, _NOISE = 0.5, 0.01, 0.9, 0.1
_LAZY, _ACTIVE = 1.1, 10.0  # by how much a mode's kernel grows until it is learned
_CHOSEN = 0.1  # of the largest stable step
_TRIPLES = 1e-9  # an axis is a principal one to this accuracy
_POWERS = 250  # decades that powers of a start may reach
_SHARED = 0.5  # of a mode's kernel may be crosstalk
_SHOWN = 8  # modes in the table; JSON has all
_MOST_STEPS, _RECORDS, _LATE, _LARGEST_RUN = 300_000, 300, 128, 600
_COLOURS = {"exactly": "green", "roughly": "yellow", "not": "red"}
_ENTRIES = 20_000_000  # of the weights of a deep Gaussian network, which are drawn in full


class Modes(NamedTuple):
    """The modes s_i u_i v_i^T of where training ends, in the frame of the samples, and what decides how they move."""

    value: np.ndarray  # s_i
    left: np.ndarray  # u_i as columns
    right: np.ndarray  # v_i as columns
    curvature: np.ndarray  # k_i = v_i^T X^T X v_i
    alone: np.ndarray  # whether v_i is a principal axis of the inputs
    begin: np.ndarray  # u_i^T A v_i at the start
    grams: np.ndarray  # |W_{l-1} ... W_1 v_i|^2 |u_i^T W_L ... W_{l+1}|^2 at the start, layer by layer
    rest: float  # what of the start's loss is not in these entries of A
    crosstalk: np.ndarray  # what the kernel makes of u_i v_i^T besides itself, at the start, over what it makes of it


def network(situation: Situation, *, run: bool, plot: Path | None, quiet: bool) -> dict[str, Any]:
    """Regimes, times, steps, limits and the end of training; returns what `--json` prints."""
    picture(plot)
    frame = _frame(situation)
    depth, kind = situation.network.depth, situation.start.kind
    problem = regression(np.diag(frame.scales), (frame.limit * frame.scales).T)
    hidden = _hidden(situation, frame)
    if run and frame.scales.size > _LARGEST_RUN:
        raise InputError(f"data of rank {frame.scales.size} are not allowed with --run: it needs <= {_LARGEST_RUN}.")
    bottleneck = min([*hidden, *frame.limit.shape])
    best = problem.optimum(bottleneck)
    floor = float(best.cost)
    u, s, vt = np.linalg.svd(np.asarray(best.matrix), full_matrices=False)
    kept = int(np.sum(s > 1e-12 * s[0]))
    scale = _scale(situation, frame, hidden, s[0])
    if 2 * depth * math.log10(max(scale)) > _POWERS:
        raise InputError(
            f"start.scale = {max(scale):g} is not allowed with depth {depth}: its {2 * depth}th power is beyond all "
            "numbers."
        )
    state = _start(situation, scale, problem, hidden, u[:, :kept], vt[:kept])
    modes = _modes(frame, state, u[:, :kept], s[:kept], vt[:kept].T)
    ends = _ends(modes, kind, depth, scale)
    kernel = np.sum(_layer_kernels(ends), axis=0)
    begin = np.sum(modes.grams, axis=0)
    growth = np.divide(kernel, begin, out=np.full(kept, math.inf), where=begin > 0)
    tops = {
        "start": _top(frame, _state_grams(state)),
        "end": _top(frame, _end_grams(frame, state, modes, ends, kind, depth, scale)),
    }
    # with one layer all ends are alike; else no end is flatter, and on whitened data one is as flat
    flattest = float(np.max(modes.curvature * edge.curvature(modes.value, depth))) if depth > 1 else tops["end"]
    largest = 2 / max(tops.values())
    lr = _CHOSEN * largest if situation.training.lr == "auto" else float(situation.training.lr)
    clock = _Clock(modes, kind, depth, scale, growth)
    told = not clock.guess
    bounds = _bounds(frame, modes, kind, depth, scale)
    outcome = _outcome(modes, tops, flattest, lr, kind, depth, scale, frame)
    settles = outcome["word"] == "converges"
    # a kernel that shrinks has changed as well; of deep Gaussian layers only the least that it grows is known
    changed = np.maximum(growth, 1 / np.maximum(growth, 1e-300)) if told else growth
    rows = []
    for i in range(kept):
        time = float(clock.times(i, [_HALF * modes.value[i]])[0])
        fastest = lr * modes.curvature[i] * max(kernel[i], begin[i])
        error = _error(modes, clock, i, fastest) if settles else None
        rows.append(
            {
                "value": float(modes.value[i]),
                "regime": "lazy" if changed[i] < _LAZY else "active" if changed[i] > _ACTIVE else "mixed",
                "kernel_growth": float(growth[i]),
                "crosstalk": float(modes.crosstalk[i]),
                "half_learned": {
                    "time": time,
                    "step": time / lr,
                    "error": error,
                    "not_before": None if bounds is None else float(bounds.least[i]),
                    "not_after": None if bounds is None else float(bounds.most[i]),
                },
                "layers": [float(y) for y in ends[:, i]] if told else None,
                "outcome": outcome["modes"][i],
                "between": outcome["between"][i],
            }
        )
    fit = clock.fit(_FIT) if settles else math.nan
    errors = [row["half_learned"]["error"] for row in rows]
    unsure = None if None in errors else max(errors)
    crowd = (frame.scales.size + frame.limit.shape[0]) / hidden[0] if hidden else 0.0
    answer: dict[str, Any] = {
        "title": situation.title,
        "data": {
            "samples": frame.samples,
            "inputs": frame.d_in,
            "outputs": frame.limit.shape[0],
            "rank": frame.scales.size,
            "condition": float(frame.scales[0] / frame.scales[-1]),
            "loss": "1/2 |A - A*|^2 (whitened)" if frame.samples is None else _loss_name(situation),
        },
        "network": {"depth": depth, "hidden": hidden, "modes_it_can_hold": bottleneck},
        "start": {"kind": kind, "scale": scale if len(set(scale)) > 1 else scale[0], "seed": situation.start.seed},
        "loss": {
            "start": float(problem.cost(state.matrix)) + frame.unexplained,
            "end": (floor if floor > 1e-20 * float(problem.cost(state.matrix)) else 0.0) + frame.unexplained,
        },
        "regime": _regime([row["regime"] for row in rows]),
        "modes": rows,
        "modes_out_of_reach": int(np.sum(np.linalg.svd(frame.limit, compute_uv=False) > 1e-12 * s[0]) - kept),
        "predictor_norm": float(np.linalg.norm(s[:kept])),
        "lr": {
            "value": lr,
            "chosen": situation.training.lr == "auto",
            "largest_by_the_kernel_at_the_start": 2 / tops["start"] if tops["start"] > 0 else math.inf,
            "largest_at_the_end": 2 / tops["end"],
            "largest_at_the_flattest_end": 2 / flattest,
            "outcome": outcome["word"],
            "explanation": outcome["text"],
        },
        "stopping": _stopping(situation, clock, fit, unsure, lr, kept, settles),
        "theory": _sources(frame, modes, clock, float(np.max(lr * modes.curvature * kernel)), crowd),
    }
    measured = None
    if run:
        measured = _measure(problem, state, modes, answer, floor, quiet)
        answer["run"] = {name: value for name, value in measured.items() if name != "curves"}
    _show(answer, Console(quiet=quiet))
    if plot is not None:
        from linnet.plot.network import network as draw

        draw(answer, clock.curves(lr), None if measured is None else measured["curves"], plot)
        answer["figure"] = str(plot)
    return answer


# What is asked --------------------------------------------------------------------------------------------------------


def _frame(situation: Situation) -> Frame:
    data = situation.data
    if data.spectrum is not None:
        values = np.sort(np.array(data.spectrum))[::-1]
        small = values[values > 0][-1]
        if small < 1e-12 * values[0]:
            raise InputError(f"data.spectrum goes from {values[0]:g} to {small:g}: keep it within a ratio of 1e12.")
        return whitened(values, data.outputs, data.inputs)
    assert data.file is not None
    inputs, labels = read_regression(Path(data.file), outputs=data.outputs)
    return of_samples(regression(inputs, labels, average=data.loss != "sum"))


def _loss_name(situation: Situation) -> str:
    return "1/2 sum of squares" if situation.data.loss == "sum" else "1/(2n) sum of squares"


def _hidden(situation: Situation, frame: Frame) -> list[int]:
    kind, depth = situation.start.kind, situation.network.depth
    if kind == "gaussian" and depth > 1 and situation.network.width is None:
        raise InputError("network.width is missing: a gaussian start depends on it.")
    hidden = situation.network.hidden(max(frame.d_in, frame.limit.shape[0]))
    if kind == "one-zero" and hidden and min(hidden) < frame.d_in:
        raise InputError(
            f"network.width = {min(hidden)} is not allowed with a one-zero start: its layers have orthonormal columns "
            f"and need {frame.d_in} neurons or more (the inputs); a gaussian start takes any width."
        )
    if kind == "gaussian" and depth > 2:
        sizes = [frame.scales.size, *hidden, frame.limit.shape[0]]
        entries = sum(a * b for a, b in pairwise(sizes))
        if entries > _ENTRIES:
            raise InputError(
                f"network.width = {max(hidden)} is not allowed with depth {depth}: {entries:,} weights are drawn in "
                f"full, and {_ENTRIES:,} are the most (two layers take any width)."
            )
    return hidden


def _scale(situation: Situation, frame: Frame, hidden: list[int], top: float) -> list[float]:
    """One number a layer: standard deviations, or alpha."""
    given, depth = situation.start.scale, situation.network.depth
    if isinstance(given, list):
        if len(given) != depth:
            raise InputError(f"start.scale has {len(given)} numbers: give one, or one for each of the {depth} layers.")
        return given
    if given is None and situation.start.kind == "gaussian":
        return [1 / math.sqrt(fan_in) for fan_in in (frame.d_in, *hidden)]
    return [0.01 * top ** (1 / depth) if given is None else given] * depth


def _start(
    situation: Situation, scale: list[float], problem: Regression, hidden: list[int], u: np.ndarray, vt: np.ndarray
) -> Weights:
    """The layers in the frame of the samples, compressed where that is exact."""
    depth, (d_out, rank) = situation.network.depth, problem.shape
    if situation.start.kind == "gaussian":
        key = jax.random.key(situation.start.seed)
        width: Any = hidden[0] if depth == 2 else hidden
        return initial.gaussian(key, problem, width, [x**2 for x in scale])
    alpha = scale[0]
    if situation.start.kind == "one-zero":
        return Weights([*[alpha * np.eye(rank)] * (depth - 1), np.zeros((d_out, rank))])
    if depth == 1:
        return Weights([alpha * u @ vt])
    return Weights([alpha * vt, *[alpha * np.eye(len(vt))] * (depth - 2), alpha * u])


# What decides ---------------------------------------------------------------------------------------------------------


def _modes(frame: Frame, state: Weights, u: np.ndarray, s: np.ndarray, v: np.ndarray) -> Modes:
    layers = [np.asarray(w) for w in state.layers]
    below, above = [v], [u]
    for layer in layers[:-1]:
        below.append(layer @ below[-1])
    for layer in layers[:0:-1]:
        above.append(layer.T @ above[-1])
    above.reverse()
    grams = np.stack([np.sum(b**2, axis=0) * np.sum(a**2, axis=0) for b, a in zip(below, above, strict=True)])
    pairs = _state_grams(state)
    crosstalk = np.empty(s.size)
    for i in range(s.size):
        moved = np.sum([np.outer(outputs @ u[:, i], inputs @ v[:, i]) for inputs, outputs in pairs], axis=0)
        along = float(u[:, i] @ moved @ v[:, i])
        beside = np.linalg.norm(moved - along * np.outer(u[:, i], v[:, i]))
        crosstalk[i] = beside / along if along > 0 else 0.0
    gram = frame.scales[:, None] ** 2
    curvature = np.sum(gram * v**2, axis=0)
    alone = np.linalg.norm(gram * v - curvature * v, axis=0) <= _TRIPLES * curvature
    begin = np.einsum("oi,oj,ji->i", u, np.asarray(state.matrix), v)
    rest = float(np.sum(((np.asarray(state.matrix) - (u * begin) @ v.T) * frame.scales) ** 2))
    return Modes(s, u, v, curvature, alone, begin, grams, rest, crosstalk)


def _state_grams(state: Weights) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each layer what its inputs and its outputs weigh: P^T P of the layers below, S S^T of those above."""
    layers = [np.asarray(w) for w in state.layers]
    below, above = [np.eye(layers[0].shape[1])], [np.eye(layers[-1].shape[0])]
    for layer in layers[:-1]:
        below.append(layer @ below[-1])
    for layer in layers[:0:-1]:
        above.append(above[-1] @ layer)
    return [(p.T @ p, q @ q.T) for p, q in zip(below, reversed(above), strict=True)]


def _ends(modes: Modes, kind: str, depth: int, scale: list[float]) -> np.ndarray:
    """Layer values of each mode where gradient flow ends; balanced ones where no theory knows better."""
    s = modes.value
    if depth == 1:
        return s[None]
    if depth == 2:
        second, first = modes.grams  # C2 and C1 of each mode
        c = np.asarray(mixed.mode_scale(first, second, modes.begin))
        shift = (first - second) / 2
        total = np.hypot(s, c) + np.abs(shift)
        # C1 C2 - s^2 is constant, so the smaller one needs no difference
        other = (s**2 + np.maximum(first * second - modes.begin**2, 0)) / total
        return np.sqrt(np.where(shift >= 0, [total, other], [other, total]))
    if kind == "gaussian":
        return np.tile(s ** (1 / depth), (depth, 1))
    start = np.full((depth, s.size), scale[0])
    if kind == "one-zero":
        start[-1] = 0.0
    return edge.flow_values(start, s)


def _layer_kernels(values: np.ndarray) -> np.ndarray:
    """prod_{m != l} y_m^2, without dividing."""
    squares = values**2
    ones = np.ones((1, values.shape[1]))
    below = np.cumprod(np.concatenate([ones, squares[:-1]]), axis=0)
    above = np.cumprod(np.concatenate([ones, squares[:0:-1]]), axis=0)[::-1]
    return below * above


def _end_grams(
    frame: Frame, state: Weights, modes: Modes, ends: np.ndarray, kind: str, depth: int, scale: list[float]
) -> list[tuple[np.ndarray, np.ndarray]]:
    u, v = modes.left, modes.right
    rank, d_out = frame.scales.size, frame.limit.shape[0]
    if depth == 2 and kind != "balanced":  # what the modes do not touch stays as it was drawn
        (one, second), (first, other) = _state_grams(state)
        c2, c1 = modes.grams
        grown = (v * (ends[0] ** 2 - c1)) @ v.T, (u * (ends[1] ** 2 - c2)) @ u.T
        return [(one, second + grown[1]), (first + grown[0], other)]
    rest = np.eye(rank) - v @ v.T
    out = []
    for layer in range(depth):
        inputs = (v * np.prod(ends[:layer] ** 2, axis=0)) @ v.T
        outputs = (u * np.prod(ends[layer + 1 :] ** 2, axis=0)) @ u.T
        if layer == 0 or kind == "one-zero":
            inputs += scale[0] ** (2 * layer) * rest if layer else rest
        if layer == depth - 1:
            outputs = np.eye(d_out)
        out.append((inputs, outputs))
    return out


def _top(frame: Frame, grams: list[tuple[np.ndarray, np.ndarray]]) -> float:
    """The largest eigenvalue of E -> sum over layers of X P^T P X^T E S S^T: the sharpness of a minimum."""
    x = frame.scales
    return top_of_products([(x[:, None] * inputs * x, outputs) for inputs, outputs in grams])


# When -----------------------------------------------------------------------------------------------------------------


class _Clock:
    """When each mode passes which value, in the time of gradient flow; NaN where no theory says."""

    def __init__(self, modes: Modes, kind: str, depth: int, scale: list[float], growth: np.ndarray):
        self.modes, self.kind, self.depth, self.scale, self.growth = modes, kind, depth, scale, growth

    @property
    def drawn(self) -> bool:
        """Whether modes are those of two Gaussian layers."""
        return self.depth == 2 and self.kind == "gaussian"

    @property
    def guess(self) -> bool:
        """Whether no theory follows the modes: deep Gaussian layers."""
        return self.depth > 2 and self.kind == "gaussian"

    def times(self, i: int, ends: Any, larger: float = 1.0) -> np.ndarray:
        """The times at which mode i passes the values `ends` on its way from its start to its target, 0 for others.

        With two layers for a kernel at the start that is `larger` times what it is.
        """
        modes, values = self.modes, np.asarray(ends, dtype=float)
        begin, s = modes.begin[i], modes.value[i]
        ahead = ((begin < values) & (values < s)) | ((s < values) & (values < begin))
        out = np.zeros(values.shape)
        if ahead.any():
            out[ahead] = self._times(i, values[ahead], larger)
        return out

    def learned(self, i: int, share: float) -> float:
        """When mode i has come to its target up to 1 - share of it, from below or from above."""
        s = self.modes.value[i]
        return float(self.times(i, [share * s if self.modes.begin[i] < s else (2 - share) * s])[0])

    def _times(self, i: int, ends: np.ndarray, larger: float) -> np.ndarray:
        modes = self.modes
        s, begin, k = modes.value[i], modes.begin[i], modes.curvature[i]
        if self.depth == 1:
            times = np.log(np.abs(s - begin) / np.abs(s - ends))
        elif self.depth == 2:
            second, first = modes.grams[:, i]
            c = float(mixed.mode_scale(first, second, begin))
            times = np.asarray(mixed.mode_time(begin, ends, s, larger * c))
        elif not self.guess:
            values = np.full(self.depth, self.scale[0])
            if self.kind == "one-zero":
                values[-1] = 0.0
            times = edge.flow_time(values, ends, s)
        elif self.growth[i] < 1 / _ACTIVE:  # the kernel stays as it is drawn
            times = np.log(np.abs(s - begin) / np.abs(s - ends)) / np.sum(modes.grams[:, i])
        else:
            times = np.full(ends.shape, math.nan)
        return np.asarray(times / k)

    def table(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """Values on the way of mode i from its start to its target, and their times."""
        s, begin = self.modes.value[i], self.modes.begin[i]
        if begin < s:  # dense at both ends, in logarithms
            low = np.geomspace(1e-6, 0.5, 120)
            shares = np.concatenate([low, 1 - low[::-1][1:]])
            values = shares * s
            values = values[values > begin]
        else:
            values = s + (begin - s) * np.geomspace(1, 1e-6, 200)[1:]
        values = np.concatenate([[begin], values])
        return values, np.concatenate([[0.0], self.times(i, values[1:])])

    def curves(self, lr: float) -> list[tuple[np.ndarray, np.ndarray]]:
        """Steps and values of every mode."""
        tables = [self.table(i) for i in range(self.modes.value.size)]
        return [(times / lr, values) for values, times in tables]

    def fit(self, share: float) -> float:
        """When the excess loss 1/2 sum k_i (s_i - a_i)^2 is down to a share of its start; NaN where nobody knows."""
        modes = self.modes
        tables = [self.table(i) for i in range(modes.value.size)]
        if any(np.isnan(times).any() for _, times in tables):
            return math.nan
        moments = np.unique(np.concatenate([times[np.isfinite(times)] for _, times in tables]))
        left = np.zeros(moments.size)
        for i, (values, times) in enumerate(tables):
            now = np.interp(moments, times, values)
            left += modes.curvature[i] * (modes.value[i] - now) ** 2
        # the rest has no target and decays by the kernel that it starts with
        left += modes.rest * np.exp(-2 * np.mean(modes.curvature) * np.mean(np.sum(modes.grams, axis=0)) * moments)
        if left[0] == 0:
            return 0.0
        if left[-1] > share * left[0]:
            return math.inf
        # the last moment at which it is above
        k = int(np.flatnonzero(left > share * left[0])[-1])
        a, b = math.log(left[k]), math.log(max(left[k + 1], 1e-300))
        return float(moments[k] + (moments[k + 1] - moments[k]) * (a - math.log(share * left[0])) / (a - b))


def _bounds(frame: Frame, modes: Modes, kind: str, depth: int, scale: list[float]) -> spectral.Activation | None:
    """What is certain on data whose axes are not the modes': two layers from one-zero, which is I_gamma."""
    if modes.alone.all() or kind != "one-zero" or depth != 2:
        return None
    return spectral.activation(_HALF, np.diag(frame.scales), frame.limit, scale[0] ** 2 / 2)


def _error(modes: Modes, clock: _Clock, i: int, step: float) -> float | None:
    """The relative error to expect of a time in steps, None where nothing is known about it.

    Descent in place of flow: what closes its gap by a share `step` in each step needs -step / ln(1 - step) of the time.
    Neurons that modes share: as if the mode's kernel at the start were larger by the crosstalk, unless that is large
    beside the kernel of the half learned mode, too.
    """
    if not modes.alone.all() or clock.guess or step >= 1:
        return None
    descent = -math.log1p(-step) / step - 1 if step > 0 else 0.0
    if not clock.drawn:
        return descent
    s, c = modes.value[i], float(np.sum(modes.grams[:, i])) / 2
    if modes.crosstalk[i] * c > _SHARED * math.hypot(s / 2, c):  # still there when the mode is half learned
        return None
    half = [_HALF * s]
    time, less = float(clock.times(i, half)[0]), float(clock.times(i, half, 1 + modes.crosstalk[i])[0])
    return descent + (1 - less / time if time > 0 else 0.0)


# What a step size does ------------------------------------------------------------------------------------------------


def _outcome(
    modes: Modes,
    tops: dict[str, float],
    flattest: float,
    lr: float,
    kind: str,
    depth: int,
    scale: list[float],
    frame: Frame,
) -> dict[str, Any]:
    kappas = lr * modes.curvature * edge.curvature(modes.value, depth)
    at_start, at_end, at_best = lr * tops["start"], lr * tops["end"], lr * flattest
    calm = ["converges"] * modes.value.size
    none: list[list[float] | None] = [None] * modes.value.size

    def told(word: str, text: str, words: list[str], between: list[list[float] | None] = none) -> dict[str, Any]:
        return {"word": word, "text": text, "modes": words, "between": between}

    if at_end < 2 and (at_start < 2 or depth == 1):
        text = f"lr times the sharpness is {at_end:.3g} in the end, below 2, and by the kernel at the start"
        return told("converges", text, calm)
    if at_end < 2:
        text = f"the start's kernel is too sharp for it (lr times curvature {at_start:.3g}, above 2): it jumps first"
        return told("converges if it survives its start", text, calm)
    if depth == 1:
        return told("diverges", f"lr times the curvature is {at_end:.3g}, above 2", ["diverges"] * modes.value.size)
    alike = bool(np.all(frame.scales >= (1 - _TRIPLES) * frame.scales[0]))
    flow = f"lr times the sharpness is {at_end:.3g} where the flow ends and {at_best:.3g} at the flattest end"
    if alike and kind != "gaussian":  # each mode is a chain of numbers
        leave = escape_times(modes.value, scale[0], depth, kind) / (lr * float(frame.scales[0] ** 2))
        found, points = modes_at(modes.value, depth, kappas, scale[0], kind, leave)
        null = kind == "one-zero" and min(frame.limit.shape) > modes.value.size
        step = lr * float(frame.scales[0] ** 2)
        cross = cross_at(modes.value, depth, step, 1.0, points, found, leave, scale[0], null)
        if cross is not None and cross["visible_after_steps"] is not None:
            flow += f"; modes mix, visibly after about step {cross['visible_after_steps']['double']:,.0f}"
        words = [str(mode["outcome"]) for mode in found]
        ranges = [None if mode["low"] is None else [mode["low"], mode["high"]] for mode in found]
        return told(_worst(words), flow, words, ranges)
    if at_best < 2:
        return told(
            "settles elsewhere or not at all", f"{flow}: descent has to find a flatter one", ["unknown"] * len(calm)
        )
    words = [str(word) for word in edge.outcome(kappas, depth)]
    return told(f"{_worst(words)}, as balanced layers would", flow, words)


def _worst(words: list[str]) -> str:
    return "diverges" if "diverges" in words else next((word for word in words if word != "converges"), "converges")


def _stopping(
    situation: Situation, clock: _Clock, fit: float, error: float | None, lr: float, kept: int, settles: bool
) -> dict[str, Any]:
    """When to stop: at a fit of 1 %, and between signal and noise where the user says which modes are signal.

    At a step that does not settle nothing is said: `fit` is NaN.
    """
    answer: dict[str, Any] = {"fit": {"share": _FIT, "time": fit, "step": fit / lr, "error": error}, "window": None}
    signal = situation.training.signal
    if signal is None:
        return answer
    if signal > kept:
        raise InputError(f"training.signal = {signal} is not allowed: there are {kept} modes to learn.")
    if not settles:
        return answer
    learned = float(np.max([clock.learned(i, _SIGNAL) for i in range(signal)]))
    noise = [float(clock.times(i, [_NOISE * clock.modes.value[i]])[0]) for i in range(signal, kept)]
    begins = float(np.min(noise, initial=math.inf))
    answer["window"] = {
        "signal": signal,
        "signal_learned": {"share": _SIGNAL, "time": learned, "step": learned / lr},
        "noise_begins": {"share": _NOISE, "time": begins, "step": begins / lr},
        "open": None if math.isnan(learned + begins) else learned < begins,
    }
    return answer


# Which theory, and how far it holds -----------------------------------------------------------------------------------


def _regime(words: list[str]) -> str:
    return words[0] if len(set(words)) == 1 else "mixed"


def _sources(frame: Frame, modes: Modes, clock: _Clock, steps: float, crowd: float) -> list[dict[str, Any]]:
    """For each figure where it is from, and how far what it needs is true here."""
    off = frame.scales[:, None] ** 2 * modes.right - modes.curvature * modes.right
    needs = [
        _need("modes are principal axes of the inputs", float(np.max(np.linalg.norm(off, axis=0) / modes.curvature)))
    ]
    wide: list[dict[str, Any]] = []
    if clock.drawn:
        needs.append(_need("modes share no neurons", float(np.max(modes.crosstalk))))
        wide.append(_need("layers are wide (inputs + outputs over width)", crowd))
    if clock.guess:
        needs.append(_need("the kernel stays as drawn", float(np.max(clock.growth))))
    needs.append(_need("steps are short (lr times curvature)", steps))
    if clock.depth == 1:
        source = "one layer, whose modes decay exponentially"
    elif clock.depth == 2 and clock.kind == "one-zero":
        source = "spectral bias from I_gamma, gamma = scale^2/2 (spectral/C8, C14)"
    elif clock.depth == 2:
        source = "the mixed flow, each mode with the c that it starts with (mixed/C4, C6)"
    elif not clock.guess:
        source = "modes of aligned layers, by quadrature (stability/C7, C9)"
    else:
        source = "a frozen kernel, where it is far above what the target needs; else no theory knows"
    least = " of balanced layers, the least there is" if clock.guess else ""
    return [
        {
            "figure": "regimes",
            "from": f"growth of each mode's kernel{least}: lazy below 1.1, active above 10",
            "needs": [],
        },
        {"figure": "times and layers", "from": source, "needs": needs},
        {
            "figure": "step sizes",
            "from": f"2 over the largest curvature, at the end{least} (spectral/C25, stability/C1)",
            "needs": wide,
        },
        {"figure": "the end", "from": "the best fit of the rank that the widths allow (nonlocal/C1, C4)", "needs": []},
    ]


def _need(text: str, measured: float) -> dict[str, Any]:
    holds = "exactly" if measured <= _TRIPLES else "roughly" if measured < 0.5 else "not"
    return {"hypothesis": text, "measured": measured, "holds": holds}


# The exact run --------------------------------------------------------------------------------------------------------


def _measure(
    problem: Regression, state: Weights, modes: Modes, answer: dict[str, Any], floor: float, quiet: bool
) -> dict[str, Any]:
    """Gradient descent on the network itself, in the frame of the samples and compressed: exact."""
    lr = answer["lr"]["value"]
    begin = max(float(problem.cost(state.matrix)) - floor, 1e-300)
    known = [answer["stopping"]["fit"]["step"], *(row["half_learned"]["step"] for row in answer["modes"])]
    # ten times the end is far enough to settle; where no theory knows it, the loss says when to stop
    unknown = any(math.isnan(x) for x in known[1:])
    far = math.inf if unknown else 20 * max(x for x in known if not math.isnan(x))
    steps = int(min(max(far, 2000), _MOST_STEPS))
    left, right = np.asarray(modes.left), np.asarray(modes.right)

    def along(state: Any, _: Any) -> Any:
        return jax.numpy.einsum("oi,oj,ji->i", left, state.matrix, right)

    with bar("exact descent", quiet=quiet):
        result = simulate(
            problem,
            state.compress(),
            GradientDescent(lr),
            steps=steps,
            observe={"loss": observe.loss, "modes": along},
            record=at(_moments(known[1:], steps)),
            stop=loss_below(floor + 1e-12 * begin),
        )
    clock, seen, loss = (np.asarray(x) for x in (result.times, result["modes"], result["loss"]))
    clock = clock / lr
    halves = []
    for i, value in enumerate(modes.value):
        rising = modes.begin[i] < _HALF * value
        halves.append(crossing(clock, seen[:, i] / value, _HALF) if rising else 0.0)
    final = result.final
    assert isinstance(final, Weights)
    ranges = None
    if result.status == "horizon" and answer["lr"]["outcome"] != "converges":  # where it goes on moving
        late = simulate(
            problem, final, GradientDescent(lr), steps=_LATE, observe={"modes": along}, record=every(1), blowup=1e300
        )
        found = np.asarray(late["modes"])
        ranges = np.stack([found.min(axis=0), found.max(axis=0)], axis=1).tolist()
    errors: list[float] = []
    if result.status == "converged" and answer["modes"][0]["layers"] is not None and final.depth > 1:
        for layer, weights in enumerate(final.layers):
            values = np.linalg.svd(np.asarray(weights), compute_uv=False)
            predicted = np.sort([row["layers"][layer] for row in answer["modes"]])[::-1]
            errors.append(float(np.max(np.abs(values[: predicted.size] / predicted - 1))))
    goal = (modes.left * modes.value) @ modes.right.T
    return {
        "status": result.status,
        "steps": int(result.ended),
        "half_learned_at_step": halves,
        "fit_at_step": crossing(clock, -np.log(np.maximum((loss - floor) / begin, 1e-300)), -math.log(_FIT)),
        "excess_loss_left": float(max(loss[-1] - floor, 0.0) / begin),
        "between": ranges,
        "predictor_error": float(np.linalg.norm(np.asarray(final.matrix) - goal) / np.linalg.norm(goal)),
        "layer_error": max(errors) if errors else None,
        "curves": (clock, seen),
    }


def _moments(halves: list[float], steps: int) -> list[int]:
    """Steps to look at: evenly in the logarithm, and closely where modes are expected to be half learned."""
    wide = np.geomspace(1, steps, _RECORDS)
    near = [half * np.linspace(0.7, 1.5, 60) for half in halves[:_SHOWN] if math.isfinite(half)]
    every_one = np.unique(np.rint(np.concatenate([[0], wide, *near])))
    return [int(step) for step in every_one if step <= steps]


# The answer on one screen ---------------------------------------------------------------------------------------------


def _show(answer: dict[str, Any], console: Console) -> None:
    say = partial(console.print, highlight=False)
    lr, run, modes = answer["lr"], answer.get("run"), answer["modes"]
    settles = lr["outcome"] == "converges"
    if answer["title"]:
        say(f"[bold]{escape(answer['title'])}[/]")
    say(_setting(answer))
    words = [mode["regime"] for mode in modes]
    counts = ", ".join(f"{words.count(word)} {word}" for word in ("lazy", "mixed", "active") if word in words)
    beyond = answer["modes_out_of_reach"]
    more = f"; {beyond} more need{'s' * (beyond == 1)} wider layers" if beyond else ""
    say(f"[bold]{answer['regime'].capitalize()}[/]: of {len(words)} mode{'s' * (len(words) != 1)} {counts}{more}.")
    table = Table(box=None, pad_edge=False)
    columns = ["mode", "value", "regime", "kernel", "half at", "+-", *(["measured"] if run else [])]
    for column in [*columns, *(["W_1", "W_L"] if settles else ["at this lr"])]:
        table.add_column(column, justify="left" if column in ("regime", "at this lr") else "right", no_wrap=True)
    for i, mode in enumerate(modes[:_SHOWN]):
        half, ends = mode["half_learned"], mode["layers"]
        error = _percent(half["error"])
        cells = [str(i + 1), f"{mode['value']:.4g}", mode["regime"], f"x {_growth(mode['kernel_growth'])}"]
        cells += [_step(half["step"]), error, *([_step(run["half_learned_at_step"][i])] if run else [])]
        if settles:
            cells += ["?", "?"] if ends is None else [f"{ends[0]:.4g}", f"{ends[-1]:.4g}"]
        else:
            between = mode["between"]
            oscillates = between is not None and between[1] - between[0] > 1e-6 * mode["value"]
            cells.append(mode["outcome"] + (f", {between[0]:.3g}..{between[1]:.3g}" if oscillates else ""))
        table.add_row(*cells)
    console.print(table)
    if len(words) > _SHOWN:
        say(f"… and {len(words) - _SHOWN} more: --json lists them.")
    bounded = modes[0]["half_learned"]
    if bounded["not_before"] is not None and settles:
        first, last = (bounded[name] / lr["value"] for name in ("not_before", "not_after"))
        say(f"Certain of mode 1: half learned between steps {_step(first)} and {_step(last)}.")
    who = "a tenth of the largest" if lr["chosen"] else "given"
    say(f"lr = {lr['value']:.4g} ({who}): [bold]{lr['outcome']}[/]; {lr['explanation']}.")
    say(
        f"Largest stable lr: {lr['largest_at_the_end']:.4g} at the end, at most "
        f"{lr['largest_at_the_flattest_end']:.4g} at any end; by the kernel "
        f"{lr['largest_by_the_kernel_at_the_start']:.4g} at the start."
    )
    if settles:
        _show_end(answer, say)
    for source in answer["theory"]:
        needs = "; ".join(
            f"[{_COLOURS[need['holds']]}]{need['holds']}[/]: {need['hypothesis']} ({need['measured']:.2g})"
            for need in source["needs"]
        )
        say(f"[dim]{source['figure']}:[/] {source['from']}" + (f"\n  {needs}" if needs else ""))
    if run:
        apart = f"predictor {run['predictor_error']:.1e}"
        if run["layer_error"] is not None:
            apart += f", layers {run['layer_error']:.1e}"
        far = f"; relative distance from the predicted end: {apart}" if settles else ""
        if run["between"] is not None:
            seen = ", ".join(f"{low:.4g} to {high:.4g}" for low, high in run["between"][:_SHOWN])
            far = f"; modes in its last {_LATE} steps: {seen}"
        say(f"Exact descent: {run['status']} after {run['steps']:,} steps{far}.")


def _setting(answer: dict[str, Any]) -> str:
    data, net, start = answer["data"], answer["network"], answer["start"]
    told = f"{data['inputs']} inputs, {data['outputs']} output{'s' * (data['outputs'] != 1)}"
    if data["samples"]:
        rows = f"{data['samples']} sample{'s' * (data['samples'] != 1)}"
        told = f"{rows}, {told}, rank {data['rank']}, condition {data['condition']:.3g}"
    layers = f"{net['depth']} layer{'s' * (net['depth'] != 1)}"
    widths = sorted(set(net["hidden"]))
    if widths:
        layers += f", width{'s' * (len(widths) > 1)} " + ", ".join(
            f"{w:,}" for w in (net["hidden"][:1] if len(widths) == 1 else net["hidden"])
        )
    sizes = start["scale"] if isinstance(start["scale"], list) else [start["scale"]]
    scales = ", ".join(f"{x:.4g}" for x in sizes)
    return f"{told}; loss {data['loss']}; {layers}, {start['kind']} start of scale {scales}."


def _show_end(answer: dict[str, Any], say: Any) -> None:
    fit, window, loss, run = (
        *(answer["stopping"][name] for name in ("fit", "window")),
        answer["loss"],
        answer.get("run"),
    )
    data = answer["data"]
    where = " on the span of the samples" if data["rank"] < data["inputs"] else ""
    when = _step(fit["step"]) + (", rough" if fit["error"] is None else f" +- {_percent(fit['error'])}")
    when += f" (measured {_step(run['fit_at_step'])})" if run else ""
    say(
        f"The loss falls from {loss['start']:.4g} to {loss['end']:.4g}; {fit['share']:.0%} of the way is left at step "
        f"{when}; the predictor ends with norm {answer['predictor_norm']:.4g}{where}."
    )
    if window is not None:
        if window["open"] is None:
            say("No theory says when to stop here.")
            return
        state = "Stop between" if window["open"] else "[yellow]There is no clean moment to stop:[/]"
        say(
            f"{state} step {_step(window['signal_learned']['step'])}, when {window['signal']} modes of signal are "
            f"{_SIGNAL:.0%} learned, and {_step(window['noise_begins']['step'])}, when the next is at {_NOISE:.0%}."
        )


def _growth(factor: float) -> str:
    return f"{factor:.3g}" if factor < 100 else f"{factor:,.0f}" if factor < 1e5 else f"{factor:.0e}"


def _percent(error: float | None) -> str:
    return "rough" if error is None else f"{100 * error:.2g}%"


def _step(step: float) -> str:
    if math.isnan(step):
        return "?"
    if math.isinf(step):
        return "never"
    return f"{step:,.0f}" if 100 <= step < 1e7 else f"{step:.3g}"
