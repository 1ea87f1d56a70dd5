"""What is asked of a network: its data, widths, scales and where it starts."""

import math
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from linnet._check import InputError
from linnet.predict import given
from linnet.predict.data import OwnSamples, read_regression
from linnet.predict.frame import Frame, of_samples, whitened
from linnet.predict.initialisers import INITIALISERS, deviations
from linnet.predict.situation import Situation
from linnet.problems import Regression
from linnet.states import Weights

WHITENED = "1/2 |A - A*|^2"
_LARGEST = 2000  # inputs and outputs in which a start has weights
_WIDEST = 10**15  # more than there are neurons
_POWERS = 250  # decades that powers of a start may reach
_ENTRIES = 20_000_000  # of the weights of a deep Gaussian network, which are drawn in full


class Plan(NamedTuple):
    """How a network is built and where it starts: `scale` has one number a layer, standard deviations or alpha."""

    kind: str
    depth: int
    hidden: tuple[int, ...]
    scale: tuple[float, ...]

    @property
    def drawn(self) -> bool:
        """Whether modes are those of two Gaussian layers."""
        return self.depth == 2 and self.kind == "gaussian"

    @property
    def aligned(self) -> bool:
        """Whether its layers are aligned with the modes, so that each moves alone where it is a principal axis."""
        return self.kind != "gaussian"

    @property
    def guess(self) -> bool:
        """Whether no theory follows the modes: deep Gaussian layers."""
        return self.depth > 2 and self.kind == "gaussian"


def framed(situation: Situation, problem: Regression | OwnSamples | None) -> tuple[Frame, str, tuple[str, ...]]:
    """The data in the frame of their samples, the normalisation of the loss, and what was done to the samples first."""
    data, c = situation.data, situation.network.scaling
    if problem is not None:
        if data is not None:
            raise InputError("data and problem: give one of them.")
        asked: Regression | OwnSamples = problem
    elif data is None:
        raise InputError("data is missing: give a spectrum, such as 3,1,0.5, or a file (or, in Python, a problem).")
    elif data.spectrum is not None:
        d_in, d_out = (size if isinstance(size, int) else None for size in (data.inputs, data.outputs))
        frame = whitened(np.sort(np.array(data.spectrum))[::-1], d_out, d_in, _touched(situation))
        loss = WHITENED if c == 1 else f"1/2 |{c:.4g} A - A*|^2"
        return frame._replace(scales=c * frame.scales, limit=frame.limit / c), loss, ()
    else:
        table = data.model_dump(exclude={"file", "spectrum", "loss"})
        asked = read_regression(data.file, **table, average=data.loss == "mean")
    problem = given.regression(asked, samples=None if situation.training.batch is None else True)
    problem = replace(problem, output_scale=c * problem.output_scale)
    return of_samples(problem), given.normalisation(problem), given.prepared(asked)


def _touched(situation: Situation) -> tuple[int, int]:
    """In how many inputs and outputs beside those of the modes a start has weights, on whitened data.

    Gaussian layers have them in as many as they have neurons. Aligned ones are alike in all of them: one is enough.
    """
    start, network = situation.start, situation.network
    if start.family != "gaussian":
        return 1, 1
    if network.depth == 1 or network.width is None:
        return _WIDEST, _WIDEST
    hidden = network.hidden(1)
    empty = start.kind == "lora" or (isinstance(start.scale, list) and start.scale[-1] == 0)
    return hidden[0], 1 if empty else hidden[-1]


def hidden_widths(situation: Situation, frame: Frame) -> tuple[int, ...]:
    """Hidden neurons of every layer, as many as its start needs and no more than can be drawn."""
    kind, depth = situation.start.family, situation.network.depth
    if kind == "gaussian" and depth > 1 and situation.network.width is None:
        raise InputError("network.width is missing: a gaussian start depends on it.")
    hidden = situation.network.hidden(max(frame.d_in, frame.d_out))
    if max(frame.limit.shape) > _LARGEST:
        largest, wide = max(frame.d_in, frame.d_out), max(hidden, default=1)
        raise InputError(
            f"data.inputs or data.outputs = {largest} is not allowed with {wide:,} neurons: a Gaussian start this wide "
            f"has weights everywhere; give at most {_LARGEST} inputs and outputs, or fewer neurons (adapters)."
        )
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
    return tuple(hidden)


def planned(situation: Situation, frame: Frame, hidden: tuple[int, ...], top: float) -> Plan:
    """The scales of all layers; `top` is the largest singular value that the network shall learn."""
    told, depth, kind = situation.start.scale, situation.network.depth, situation.start.family
    if situation.start.kind in INITIALISERS:
        scale = deviations(situation.start.kind, (frame.d_in, *hidden, frame.d_out))
    elif isinstance(told, list):
        if len(told) != depth:
            raise InputError(f"start.scale has {len(told)} numbers: give one, or one for each of the {depth} layers.")
        scale = told
    elif told is None and kind == "gaussian":
        scale = [1 / math.sqrt(fan_in) for fan_in in (frame.d_in, *hidden)]
    else:
        scale = [0.01 * top ** (1 / depth) if told is None else told] * depth
    if 2 * depth * math.log10(max(scale)) > _POWERS:
        raise InputError(
            f"start.scale = {max(scale):g} is not allowed with depth {depth}: its {2 * depth}th power is beyond all "
            "numbers."
        )
    return Plan(kind, depth, hidden, tuple(scale))


def begun(plan: Plan, seed: int, frame: Frame, u: np.ndarray, vt: np.ndarray) -> Weights:
    """The layers at the start in the frame of the samples, compressed where that is exact."""
    depth, (d_out, rank) = plan.depth, frame.limit.shape
    if plan.kind == "gaussian":
        return _drawn(plan, np.random.default_rng(seed), frame, len(vt))
    alpha = plan.scale[0]
    if plan.kind == "one-zero":
        return Weights([*[alpha * np.eye(rank)] * (depth - 1), np.zeros((d_out, rank))])
    if depth == 1:
        return Weights([alpha * u @ vt])
    return Weights([alpha * vt, *[alpha * np.eye(len(vt))] * (depth - 2), alpha * u])


def _drawn(plan: Plan, rng: np.random.Generator, frame: Frame, modes: int) -> Weights:
    """Gaussian layers, in NumPy: a compiler would take longer than all the rest.

    The neurons of two wide layers are turned into the span of their weights. On whitened data so are the inputs and
    outputs beside those of the modes: W_1 is R^T Q^T there, with an R that is drawn directly, and Q turns away.
    """
    rows, columns = frame.limit.shape
    sizes = [columns, *plan.hidden, rows]
    if plan.depth == 2 and plan.hidden[0] > rows + columns:
        r = _triangle(rng, plan.hidden[0], rows + columns, rows + columns)
        layers = [r[:, :columns], r[:, columns:].T]
    else:
        layers = [rng.normal(size=(after, before)) for before, after in pairwise(sizes)]
    if frame.beyond[0]:
        layers[0][:, modes:] = _triangle(rng, frame.d_in - modes, columns - modes, sizes[1]).T
    if frame.beyond[1] and plan.scale[-1]:  # a layer of zeros is one however it is turned
        layers[-1][modes:] = _triangle(rng, frame.d_out - modes, rows - modes, sizes[-2])
    drawn = Weights([scale * layer for scale, layer in zip(plan.scale, layers, strict=True)])
    spare = plan.depth > 2 and any(b > a + c for a, b, c in zip(sizes, sizes[1:], sizes[2:], strict=False))
    return drawn.compress() if spare else drawn


def _triangle(rng: np.random.Generator, degrees: int, rows: int, columns: int) -> Float[np.ndarray, "rows columns"]:
    """The R factor of a `degrees` x `columns` standard Gaussian matrix (Bartlett), as `_random.bartlett` draws it."""
    r = np.triu(rng.normal(size=(rows, columns)), 1)
    count = min(rows, columns, degrees)
    r[count:] = 0.0
    r[np.arange(count), np.arange(count)] = np.sqrt(rng.chisquare(degrees - np.arange(count, dtype=float)))
    return r
