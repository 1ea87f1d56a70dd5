"""What descent at one step size makes of each mode of a deep factorisation, beyond the edge of stability too."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float

from linnet import _check, dynamics
from linnet._check import InputError
from linnet.predict import asked
from linnet.predict.answer import Hypothesis, Prediction, Progress, Source, hidden
from linnet.theory import mode_fate
from linnet.theory import stability as theory
from linnet.theory.mode_fate import Cross, Fate, ModeFate

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType

    from linnet.predict.stability_run import StabilityMeasured

STARTS = ("one-zero", "balanced", "orthogonal")
_MOST_MODES, _DRAWN = 50, 6
_SMALLEST, _LARGEST = 1e-12, 1e12


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """The step sizes at which the motion of a mode changes; None where one layer has no such stage."""

    oscillates: float
    doubles: float | None  # period 2 becomes period 4
    chaos: float | None  # where the doublings end
    leaves: float | None  # a chaotic orbit reaches 0: trapped there (odd depth) or changing its sign (even depth)
    diverges: float


@dataclass(frozen=True, kw_only=True)
class StabilityMode:
    """One mode u^T A v: what becomes of it at this step size, and which steps would change that."""

    value: float  # of the target
    curvature: float  # of the loss along the mode at the balanced minimum
    kappa: float  # lr times the curvature: it converges below 2
    fate: Fate
    period: int | None  # in steps: 1 at rest, that of a cycle, None for all else
    low: float | None  # of the values of u^T A v in the end; None where it diverges
    high: float | None
    diverges_after: int | None  # steps
    lyapunov: float | None  # of chaos, a step
    lingers: bool  # the chaotic orbit is near 0 for long
    leaves_start_after: float  # steps, for a small start
    gap_left: float | None  # of y_l^2 - y_L^2 = alpha^2, where the mode converges from a start of that kind
    thresholds: Thresholds


@dataclass(frozen=True, kw_only=True)
class Sorting:
    """From the step size `lr` on mode 1 passes below mode 2, so that sorted values alternate; and whether it does."""

    lr: float
    here: bool


@dataclass(frozen=True, kw_only=True)
class Balancing:
    """Differences between the layers of a mode, y_l^2 - y_m^2."""

    largest_alpha: float | None  # the start scale up to which they cannot grow; None from kappa = 2 sqrt(2) on
    gap_multiplier: float | None  # of a difference in mode 1 over its 2-cycle, where there is one


class Diagram(NamedTuple):
    """A bifurcation diagram: points of the orbit of the first modes at many step sizes, NaN where they diverge."""

    lr: Float[np.ndarray, " rates"]
    values: Float[np.ndarray, "rates modes points"]


@dataclass(frozen=True, kw_only=True)
class StabilityPrediction(Prediction):
    """Descent with a constant step on a deep factorisation, mode by mode."""

    depth: int
    d: int  # dimension of the matrices
    start: str
    alpha: float  # scale of the start
    alpha_chosen: bool
    seed: int  # of singular vectors, for `measure`
    normalisation: str  # of the loss
    lr: float
    lr_chosen: bool
    modes: tuple[StabilityMode, ...]
    largest_stable_lr: float  # at the balanced minimum
    largest_stable_lr_at_flow_end: float | None  # at the minimum that gradient flow finds; None where that is the same
    cross: Cross | None  # entries of A between two modes; None where nothing can mix
    sorting: Sorting | None  # None where there is no smaller second mode, or one layer
    balancing: Balancing | None  # None for one layer
    notes: tuple[str, ...]
    theory: tuple[Source, ...]
    lr_reason: str = hidden()

    @property
    def unit(self) -> float:
        """How often a step counts: twice on |A - A_star|^2."""
        return 1.0 if self.normalisation == _NORMALISATIONS[True] else 2.0

    @property
    def spectrum(self) -> Float[np.ndarray, " modes"]:
        """The target's singular values."""
        return np.array([mode.value for mode in self.modes])

    def measure(self, *, progress: Progress | None = None) -> "StabilityMeasured":
        """Descent of the matrices, with random singular vectors, beside the chains of its modes."""
        from linnet.predict.stability_run import measure

        return measure(self, progress)

    def diagram(self) -> Diagram:
        """Orbits of the first modes, from below the edge to beyond this step or divergence."""
        first = self.modes[0].thresholds
        edge, lr = first.oscillates, self.lr
        end = max(1.25 * edge, 1.08 * lr)
        if first.leaves is not None:
            end = min(max(end, first.leaves), 1.02 * first.diverges)
        rates = np.linspace(min(0.9 * edge, 0.95 * lr if lr < edge else edge), end, 900)
        shown = self.spectrum[:_DRAWN]
        kappas = (self.unit * rates[:, None] * theory.curvature(shown, self.depth)).ravel()
        found = dynamics.orbits(dynamics.balanced(self.depth), 0.9, kappas, skip=4000, keep=96)
        values = np.asarray(found.values) ** self.depth
        values[np.asarray(found.escaped) >= 0] = np.nan
        return Diagram(rates, values.reshape(len(rates), len(shown), -1) * shown[:, None])

    def plot(self) -> "Figure":
        """The bifurcation diagram of its modes, with this step and the thresholds marked."""
        from linnet.plot.stability_predict import bifurcation

        return bifurcation(self)

    def __rich__(self) -> "RenderableType":
        from linnet.predict.words.stability import words

        return words(self)


_NORMALISATIONS = {True: "1/2 |A - A_star|^2", False: "|A - A_star|^2"}


def stability(
    spectrum: Any,
    *,
    depth: int,
    lr: float | None = None,
    start: str = "one-zero",
    alpha: float | None = None,
    d: int | None = None,
    seed: int = 0,
    half: bool = True,
) -> StabilityPrediction:
    """What a step size does to W_L ... W_1 fitted to a d x d target of these singular values, mode by mode.

    The loss is 1/2 |A - A_star|^2, or |A - A_star|^2 with `half` false. The start is "one-zero" (layers alpha I, the
    last 0), "orthogonal" (alpha times rotations, the last 0) or "balanced" (alpha I in all layers, for a symmetric
    target). Each mode is then a chain of numbers, exactly (stability/C7), and is followed from its start; thresholds
    and cycles are those of balanced layers (stability/C3 to C5). By default lr is chosen between the edge of stability
    and what comes next, and alpha small.
    """
    depth = _check.integer("depth", depth, least=1, most=100)
    s = _spectrum(spectrum)
    _check.choice("start", start, STARTS)
    d = _check.integer("d", len(s) if d is None else d, least=len(s), most=1000, reason="the modes, or more")
    seed = asked.seed(seed)
    unit = 1.0 if _check.flag("half", half) else 2.0  # a step on |A - A_star|^2 counts twice
    scale = _alpha(alpha, s, depth)
    step_size, reason = _lr(lr, s, depth, unit)
    step = unit * step_size
    kappas = step * theory.curvature(s, depth)
    escape = mode_fate.escape_steps(s, scale, depth, start, step)
    fates, points = mode_fate.mode_fates(s, depth, kappas, scale, start, escape)
    cross = mode_fate.cross_fate(s, depth, step, points, fates, escape, scale, d > len(s) and start != "balanced")
    if cross is not None:
        cross = cross._replace(minimum_lr=cross.minimum_lr / unit, orbit_lr=cross.orbit_lr / unit)
    apart = depth > 1 and start != "balanced"
    gaps = mode_fate.gaps_left(s, depth, kappas, scale) if apart else [None] * len(s)
    flow = 2 / (unit * float(theory.flow_sharpness(scale, s[0], depth))) if apart else None
    return StabilityPrediction(
        depth=depth,
        d=d,
        start=start,
        alpha=scale,
        alpha_chosen=alpha is None,
        seed=seed,
        normalisation=_NORMALISATIONS[half],
        lr=step_size,
        lr_chosen=lr is None,
        lr_reason=reason,
        modes=tuple(
            _mode(value, fate, depth, unit, float(leave), gap)
            for value, fate, leave, gap in zip(s, fates, escape, gaps, strict=True)
        ),
        largest_stable_lr=2 / (unit * float(theory.curvature(s[0], depth))),
        largest_stable_lr_at_flow_end=flow,
        cross=cross,
        sorting=_sorting(s, depth, unit, fates[0]),
        balancing=_balancing(s, depth, kappas),
        notes=_notes(spectrum, s, float(escape.max())),
        theory=_sources(s, depth, scale, start),
    )


# What is asked --------------------------------------------------------------------------------------------------------


def _spectrum(given: Any) -> np.ndarray:
    s = asked.spectrum(given)
    if len(s) > _MOST_MODES:
        raise InputError(f"spectrum has {len(s)} values: give at most {_MOST_MODES}, the largest.")
    if s[0] > _LARGEST or s[-1] < _SMALLEST:
        worst = s[0] if s[0] > _LARGEST else s[-1]
        raise InputError(f"spectrum holds {worst:g}: its singular values must be from 1e-12 to 1e12.")
    return s


def _alpha(alpha: float | None, s: np.ndarray, depth: int) -> float:
    """A start scale below s_r."""
    if alpha is None:
        # small against the first mode, and not so small that a deep network never leaves the saddle
        return float(min(s[-1] / 2, 0.1 * s[0] ** (1 / depth)))
    value = _check.real("alpha", alpha, above=0)
    if value >= s[-1]:
        raise InputError(
            f"alpha = {value:g} is not allowed: alpha must be below the smallest singular value, {s[-1]:g}."
        )
    return value


def _lr(lr: float | None, s: np.ndarray, depth: int, unit: float) -> tuple[float, str]:
    """A step size, and why this one."""
    if lr is not None:
        return _check.real("lr", lr, above=0), "as given"
    sharp = unit * float(theory.curvature(s[0], depth))
    if depth == 1:
        return 1 / sharp, "chosen here: half of what one layer can bear"
    following, what = float(theory.stages(depth).doublings[1]), "the orbit of mode 1 doubles"
    onset = theory.cross_threshold(float(s[1] / s[0]), depth) if len(s) > 1 else math.inf
    if onset < following:
        following, what = onset, "modes 1 and 2 mix"
    if following < 2.1:  # too narrow a window to see anything in
        return 2.05 / sharp, "chosen here: a little beyond the edge of stability"
    return (1 + following / 2) / sharp, f"chosen here: halfway from the edge of stability to where {what}"


# What is answered -----------------------------------------------------------------------------------------------------


def _mode(value: float, fate: ModeFate, depth: int, unit: float, leave: float, gap: float | None) -> StabilityMode:
    curvature = unit * fate.curvature
    return StabilityMode(
        value=float(value),
        **fate._replace(curvature=curvature)._asdict(),
        leaves_start_after=leave,
        gap_left=gap,
        thresholds=_thresholds(depth, curvature),
    )


def _thresholds(depth: int, curvature: float) -> Thresholds:
    if depth == 1:
        edge = 2 / curvature
        return Thresholds(oscillates=edge, doubles=None, chaos=None, leaves=None, diverges=edge)
    table = theory.stages(depth)
    return Thresholds(
        oscillates=2 / curvature,
        doubles=float(table.doublings[1]) / curvature,
        chaos=table.accumulation / curvature,
        leaves=table.leaves / curvature,
        diverges=table.diverges / curvature,
    )


def _sorting(s: np.ndarray, depth: int, unit: float, first: ModeFate) -> Sorting | None:
    """From which step on sorted values of mode 2 alternate although it is at rest."""
    if len(s) < 2 or depth == 1 or s[1] >= s[0]:
        return None
    onset = theory.sorting_onset(s[1] / s[0], depth) / (unit * float(theory.curvature(s[0], depth)))
    moves = first.fate in (Fate.CYCLE, Fate.CHAOS)
    return Sorting(lr=onset, here=moves and first.low is not None and first.low < s[1])


def _balancing(s: np.ndarray, depth: int, kappas: np.ndarray) -> Balancing | None:
    if depth == 1:
        return None
    largest = multiplier = None
    if kappas[0] < 2 * math.sqrt(2):
        largest = theory.largest_alpha(s[0], depth, float(kappas[0]))
    if 2 < kappas[0] < theory.stages(depth).doublings[1]:
        multiplier = float(theory.orbit(s[0], depth, kappas[0] / theory.curvature(s[0], depth)).gap)
    return Balancing(largest_alpha=largest, gap_multiplier=multiplier)


def _notes(given: Any, s: np.ndarray, slowest: float) -> tuple[str, ...]:
    notes = []
    if not np.array_equal(s, np.asarray(given, dtype=float)):
        notes.append("The spectrum was sorted, largest first.")
    if slowest > mode_fate.MOST_STEPS / 2:
        notes.append(f"The last mode leaves the start only after about {slowest:.1e} steps: a larger alpha is quicker.")
    return tuple(notes)


def _sources(s: np.ndarray, depth: int, alpha: float, start: str) -> tuple[Source, ...]:
    if depth == 1:
        figures = "fate, thresholds, largest_stable_lr"
        return (Source(figures, "one layer: the loss is quadratic, with the same curvature everywhere"),)
    gap = 0.0 if start == "balanced" else float(alpha**2 / s[-1] ** (2 / depth))
    balanced = Hypothesis.of("layers of a mode are alike: alpha^2 / s^(2/L)", gap)
    small = Hypothesis.of("the start is small: alpha / s^(1/L)", float(alpha / s[-1] ** (1 / depth)))
    return (
        Source(
            "fate, period, low, high",
            "the mode's own chain of numbers from this start; at rest and on 2-cycles the exact ones",
            ("stability/C3", "stability/C4", "stability/C7"),
        ),
        Source(
            "thresholds, largest_stable_lr",
            "the cascade of balanced modes",
            ("stability/C1", "stability/C5"),
            (balanced,),
        ),
        Source("largest_stable_lr_at_flow_end", "2 over the sharpness where gradient flow ends", ("stability/C10",)),
        Source("leaves_start_after", "the flow near the saddle", (), (small,)),
        Source(
            "cross",
            "multipliers of cross components on the orbit, growing from a rounding error",
            ("stability/C2", "stability/C12"),
        ),
        Source(
            "gap_left, balancing", "the product of what every step leaves of a gap", ("stability/C8", "stability/E14")
        ),
    )
