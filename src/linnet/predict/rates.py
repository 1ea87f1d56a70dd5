"""How fast a balanced deep network of bottleneck one learns, from its start to its end."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float

from linnet import _check
from linnet._check import InputError
from linnet.dynamics.root import crossing
from linnet.predict import asked, given
from linnet.predict.answer import Hypothesis, Measured, Prediction, Progress, Source, When, hidden
from linnet.theory import convergence
from linnet.theory.convergence import Coordinates

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType

NEAR = 0.01  # learned: |A - Z_1| is this share of |Z_1|
FAR = 1.5  # the far phase ends here at the latest, in sizes of the target: the sharper form of Theorem 20
_SMALL = 0.1  # starts below this share of the target have a time of escape
_RECORDS = 400
_TIMES = 32  # that are asked about at once


class Curves(NamedTuple):
    """In time: |A - Z_1| and |A|, both over |Z_1| (A's own end for Z_1 where several fits are equally good)."""

    time: Float[np.ndarray, " records"]
    distance: Float[np.ndarray, " records"]
    size: Float[np.ndarray, " records"]


@dataclass(frozen=True, kw_only=True)
class RankOneStart:
    """A balanced start of rank one: A_0 = size u v^T."""

    kind: str = "balanced, of rank one"
    scale: float  # size over that of the target
    size: float
    alignment: float  # the product of both cosines with the target's largest mode
    seed: int


@dataclass(frozen=True, kw_only=True)
class ProvedRates:
    """Least rates of |A - Z_1| that are proved: before and after the far phase ends."""

    fast: float
    slow: float


@dataclass(frozen=True, kw_only=True)
class RatesPrediction(Prediction):
    """The flow of a balanced network of rank one on whitened data: rates are -d ln|A - Z_1| / dt, in 1/flow time."""

    depth: int
    inputs: int
    outputs: int
    samples: int
    normalisation: str  # of the loss
    curvature: float  # c: the loss is c/2 |A - Z|^2 and a constant; n where it is summed
    whitened_first: bool  # whether the inputs had to be whitened, so that other inputs than the given ones are meant
    spectrum: tuple[float, ...]  # singular values z_i of the target Z
    ratio: float  # z_2 / z_1, gamma in the paper
    start: RankOneStart
    reaches_the_best_rank_one_fit: bool
    limit: float  # the size at which the flow ends
    far_rate: float | None  # at the start; None at the target itself and between equally good fits
    far_phase_ends: When  # size 1.5 of the target's
    half_grown: When | None  # |A| = z_1 / 2; None from larger starts
    escape: When | None  # the law of small starts for it
    learned: When  # |A - Z_1| is 1 % of |Z_1|
    near_rate: float | None  # in the end, if it gets there
    near_rate_of_one_layer_more: float | None
    largest_stable_lr: float  # of gradient descent at the end
    proved_rates: ProvedRates | None
    theory: tuple[Source, ...]
    target: Float[np.ndarray, "d_out d_in"] = hidden()
    coordinates: Coordinates = hidden()  # of the start, in the singular vectors of the target
    goal: Coordinates = hidden()  # where the flow ends
    left: Float[np.ndarray, " d_out"] = hidden()
    right: Float[np.ndarray, " d_in"] = hidden()

    @property
    def unit(self) -> float:
        """The flow's unit of time, 1 / (c z_1^(2 - 2/L))."""
        return _unit(self.spectrum[0], self.depth, self.curvature)

    def curves(self, times: Any = None) -> Curves:
        """The closed form at these times, by default from the start to well after the end."""
        if times is None:
            ends = self.learned.time
            horizon = max(1.5 * ends, self.unit) if math.isfinite(ends) else 20 * self.unit / min(1.0, self.start.scale)
            early = min(self.far_phase_ends.time or horizon, horizon) / 10
            spaced = np.linspace(0, horizon, _RECORDS // 2), np.geomspace(min(early, horizon / 1e3), horizon, _RECORDS)
            times = np.unique(np.concatenate(spaced))
        clock = np.asarray(times, dtype=float)
        flow = convergence.modes(clock, self.coordinates, self.depth, self.curvature).at
        z1 = self.spectrum[0]
        return Curves(clock, np.asarray(_gap(flow, self.goal, self.ratio)) / z1, np.asarray(flow.s) / z1)

    def measure(self, *, progress: Progress | None = None) -> "RatesMeasured":
        """The layers' own flow, by an adaptive solver."""
        from linnet.predict.rates_run import measure

        return measure(self, progress)

    def plot(self) -> "Figure":
        """Distance and size in time."""
        from linnet.plot.convergence import flow

        return flow(self)

    def __rich__(self) -> "RenderableType":
        from linnet.predict.words.rates import words

        return words(self)


@dataclass(frozen=True, kw_only=True)
class RatesMeasured(Measured):
    """The layers' own flow beside the closed form."""

    prediction: RatesPrediction = hidden()
    status: str
    ended: float  # in flow time
    far_phase_ends: When
    half_grown: When | None
    learned: When
    largest_gap_in_distance: float  # over |Z_1|
    largest_relative_gap_in_size: float
    curves: Curves = hidden()

    def plot(self) -> "Figure":
        """Distance and size in time, with the layers' own flow."""
        from linnet.plot.convergence import flow

        return flow(self.prediction, self)

    def __rich__(self) -> "RenderableType":
        from linnet.predict.words.rates import words

        return words(self.prediction, self)


def rates(
    problem: Any, *, depth: int, scale: float = 0.01, alignment: float | None = None, seed: int = 0
) -> RatesPrediction:
    """How fast a balanced network of `depth` layers and any widths learns from a start of rank one.

    `problem` is a regression, whitened first where X^T X is not a multiple of the identity, or the singular values of a
    target (`whitened`). The start is `scale` times as large as the target; its directions are random, or such that
    their cosines with the target's largest mode have the product `alignment`. The whole flow has a closed form; Z_1 is
    the best fit of rank one, and almost all starts reach it (nonlocal/C12, C13, C15, C18).
    """
    depth = _check.integer("depth", depth, least=2, most=1000)
    scale = _check.real("scale", scale, least=1e-100, most=1e100)
    first, key = given.regression(problem), asked.seed(seed)
    white, spread = given.white(first)
    c = float(white.scale) * float(white.output_scale) ** 2 * float(np.sum(np.square(white.root))) / white.shape[1]
    target = np.asarray(white.target)
    values = np.linalg.svd(target, compute_uv=False)
    start, u, v = _start(target, scale, alignment, key)
    z1, ab = float(values[0]), float(start.a[0] * start.b[0])
    ratio = float(values[1] / z1) if len(values) > 1 else 0.0
    goal = convergence.limit(start)
    reaches = bool(abs(float(goal.s) - z1) <= 1e-9 * z1)
    near, more = (_slowest(start, layers, c) if reaches else None for layers in (depth, depth + 1))
    here = float(_gap(start, goal, ratio)) / z1
    grows, leaves = reaches and scale < 0.5, reaches and scale < _SMALL and depth > 2
    ends = float(convergence.transition_time(start, depth, c, FAR)) if scale > FAR else 0.0
    return RatesPrediction(
        prepared=given.prepared(problem),
        depth=depth,
        inputs=target.shape[1],
        outputs=target.shape[0],
        samples=first.samples,
        normalisation=given.normalisation(first),
        curvature=c,
        whitened_first=white is not first,
        spectrum=tuple(map(float, values)),
        ratio=ratio,
        start=RankOneStart(scale=scale, size=scale * z1, alignment=ab, seed=key),
        reaches_the_best_rank_one_fit=reaches,
        limit=float(goal.s),
        far_rate=float(convergence.far_rate(start, depth, c)) if ratio < 1 - 1e-9 and here > 1e-9 else None,
        far_phase_ends=When(ends, error=0.0),
        half_grown=When(float(convergence.passage_time(z1 / 2, start, depth, c)), error=0.0) if grows else None,
        escape=When(convergence.escape_time(start, depth, c)) if leaves else None,
        learned=When(_learned(start, goal, depth, c, ratio) if reaches else math.inf, error=0.0),
        near_rate=near,
        near_rate_of_one_layer_more=more,
        largest_stable_lr=float(convergence.largest_lr(z1, depth, c)),
        proved_rates=_proved(start, ab, scale, ratio, depth, c),
        theory=_theory(spread, scale),
        target=target,
        coordinates=start,
        goal=goal,
        left=u,
        right=v,
    )


def _start(
    z: np.ndarray, scale: float, alignment: float | None, seed: int
) -> tuple[Coordinates, np.ndarray, np.ndarray]:
    """A start of rank one: random directions, or a given product of both cosines with the largest mode."""
    rng = np.random.default_rng(seed)
    p, values, qt = np.linalg.svd(z)
    sides: list[np.ndarray] = [rng.normal(size=(d,)) for d in z.shape]
    if alignment is not None:
        c = _check.real("alignment", alignment, least=-1, most=1)
        one = [d == 1 for d in z.shape]
        if all(one) and abs(c) < 1:
            raise InputError(f"alignment = {c:g} is not allowed here: one input and one output are aligned by +-1.")
        # both cosines equal would be the exceptional start for c <= 0, which never gets there: split it unevenly
        first = 1.0 if one[0] else abs(c) if one[1] else math.sqrt(c) if c > 0 else abs(c) ** (1 / 3)
        for side, cosine in zip(sides, (math.copysign(first, c), abs(c) / first if first else 0.5), strict=True):
            side[0] = 0.0
            size = float(np.linalg.norm(side))
            side *= math.sqrt(max(0.0, 1 - cosine**2)) / (size or 1.0)
            side[0] = cosine
    u, v = p @ sides[0], qt.T @ sides[1]
    return convergence.coordinates(scale * float(values[0]), u, v, z)[0], u, v


def _gap(place: Coordinates, goal: Coordinates, ratio: float) -> Float[np.ndarray, "..."]:
    """|A - A_end|: the distance to the best fit, or to the one of several that the flow chooses."""
    if ratio < 1 - 1e-9:
        return np.sqrt(2 * np.asarray(convergence.distance(place)))
    (s, a, b, _), (end, u, v, _) = ([np.asarray(x) for x in at] for at in (place, goal))
    inner = np.sum(a * u, axis=-1) * np.sum(b * v, axis=-1)
    return np.sqrt(np.maximum(s**2 + end**2 - 2 * s * end * inner, 0.0))


def _slowest(start: Coordinates, depth: int, curvature: float) -> float:
    """The rate in the end from this start: that of the slowest direction which it excites.

    In units of c z_1^(1-2/L), a_i + b_i falls at z_1 - z_i, a_i - b_i at z_1 + z_i and the size at L z_1
    (`convergence.near_rates`). Among several best fits nothing moves, and these directions do not count.
    """
    a, b, z = (np.asarray(x)[1:] for x in (start.a, start.b, start.z))
    z1 = float(start.z[0])
    excited = np.concatenate([[depth * z1], (z1 - z)[np.abs(a + b) > 1e-12], (z1 + z)[np.abs(a - b) > 1e-12]])
    return float(curvature * z1 ** (1 - 2 / depth) * np.min(excited[excited > 1e-9 * z1]))


def _unit(z1: float, depth: int, curvature: float) -> float:
    return 1 / (curvature * z1 ** (2 - 2 / depth))


def _learned(start: Coordinates, goal: Coordinates, depth: int, curvature: float, ratio: float) -> float:
    """When A has come within a share of its end, in the closed form: between powers of two, then by Brent's method."""
    z1 = float(goal.s)

    def far(t: Any) -> Any:
        """log(|A - A_end| / |A_end|) above that of the share."""
        with np.errstate(divide="ignore"):
            left = np.log(_gap(convergence.modes(t, start, depth, curvature).at, goal, ratio) / (NEAR * z1))
        return np.maximum(left, -700.0)

    unit = _unit(z1, depth, curvature)
    times = unit * 2.0 ** np.arange(_TIMES)
    while not np.any(there := far(times) <= 0):
        times = 2 * times[-1] * 2.0 ** np.arange(_TIMES)
        if times[-1] > 1e250:
            return math.inf
    high = float(times[np.argmax(there)])
    if high == unit and far(0.0) <= 0:
        return 0.0
    low = 0.0 if high == unit else high / 2
    return crossing(far, low, high)


def _proved(
    start: Coordinates, ab: float, scale: float, ratio: float, depth: int, curvature: float
) -> ProvedRates | None:
    """The sharpest form of Theorem 20, for |A - Z_1| itself and not its square; None where it does not apply."""
    if ab <= ratio:
        return None
    alpha, beta = min(0.999 * min(ab, scale + ratio), 0.999), 1.001 * max(1.0, scale)
    proved = convergence.envelope(start, alpha, beta, depth, curvature, form="sharpest")
    return ProvedRates(fast=float(proved.fast) / 2, slow=float(proved.slow) / 2) if bool(proved.applies) else None


def _theory(spread: float, scale: float) -> tuple[Source, ...]:
    white = Hypothesis.of("white inputs: X^T X is a multiple of the identity", spread)
    small = Hypothesis.of("a start that is small beside the target", scale)
    closed, edge = "the whole flow of a balanced network of rank one in closed form", "2 / (c L z_1^(2-2/L))"
    told = (
        ("limit, learned, half_grown, far_phase_ends", closed, ("nonlocal/C8", "nonlocal/C9", "nonlocal/C12")),
        ("far_rate", "the exact derivative of |A - Z_1|", ("nonlocal/C13",)),
        ("near_rate", "the flow linearised at its end, in the directions that the start excites", ("nonlocal/C18",)),
        ("proved_rates", "Theorem 20 corrected, its sharpest form", ("nonlocal/C15",)),
        ("largest_stable_lr", f"the Hessian at the balanced minimum, {edge}", ()),
    )
    escape = Source("escape", "the time to leave the origin as the start shrinks", (), (white, small))
    return (*(Source(figure, origin, claims, (white,)) for figure, origin, claims in told), escape)
