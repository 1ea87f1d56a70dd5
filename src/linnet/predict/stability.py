"""What descent at one step size makes of each mode of a deep factorisation, beyond the edge of stability too."""

import math
from typing import Any

import numpy as np

from linnet import _check
from linnet._check import InputError
from linnet.predict import asked
from linnet.predict.answer import Hypothesis, Source
from linnet.predict.optimiser import Optimiser
from linnet.predict.stability_optimiser import fields, minimum
from linnet.predict.stability_result import (
    NORMALISATIONS,
    Balancing,
    Sorting,
    StabilityMode,
    StabilityPrediction,
    Thresholds,
)
from linnet.theory import mode_fate
from linnet.theory import stability as theory
from linnet.theory.mode_fate import Fate, ModeFate
from linnet.theory.optimisers import largest_online_lr

STARTS = ("one-zero", "balanced", "orthogonal")
_MOST_MODES, _MOST_SAMPLES = 50, 10**9
_SMALLEST, _LARGEST = 1e-12, 1e12


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
    beta: float = 0.0,
    nesterov: bool = False,
    averaged: bool = False,
    decay: float = 0.0,
    decoupled: bool = False,
    batch: int | None = None,
) -> StabilityPrediction:
    """What a step size does to W_L ... W_1 fitted to a d x d target of these singular values, mode by mode.

    The loss is 1/2 |A - A_star|^2, or |A - A_star|^2 with `half` false. The start is "one-zero" (layers alpha I, the
    last 0), "orthogonal" (alpha times rotations, the last 0) or "balanced" (alpha I in all layers, for a symmetric
    target). Each mode is then a chain of numbers, exactly (stability/C7), and is followed from its start; thresholds
    and cycles are those of balanced layers (stability/C3 to C5). By default lr is chosen between the edge of stability
    and what comes next, and alpha small.

    With momentum `beta` (v <- beta v + g; `nesterov` steps along g + beta v; `averaged`: v <- beta v + (1 - beta) g) or
    `decay` (of the loss + decay/2 sum |W_l|^2; `decoupled`: weights shrink by lr decay beside the step) the largest
    stable steps are those of `theory.optimisers`, and each mode is followed step by step. What no theory tells is None:
    period doubling and chaos, and how modes mix beyond the edge.

    With `batch` a step sees so many fresh samples (x, A_star x), x ~ N(0, I), in place of the loss itself, which is
    their mean: the largest step that is stable in mean square with them at the balanced minimum is told as well, and
    `measure` trains on them. All else is told of the loss itself. Samples of your own are for `predict.network`.
    """
    depth = _check.integer("depth", depth, least=1, most=100)
    s = _spectrum(spectrum)
    _check.choice("start", start, STARTS)
    d = _check.integer("d", len(s) if d is None else d, least=len(s), most=1000, reason="the modes, or more")
    seed = asked.seed(seed)
    unit = 1.0 if _check.flag("half", half) else 2.0  # a step on |A - A_star|^2 counts twice
    scale = _alpha(alpha, s, depth)
    how = Optimiser.of(beta=beta, nesterov=nesterov, averaged=averaged, decay=decay, decoupled=decoupled)
    asked_for: dict[str, Any] = {
        "depth": depth,
        "d": d,
        "start": start,
        "alpha": scale,
        "alpha_chosen": alpha is None,
        "seed": seed,
        "normalisation": NORMALISATIONS[half],
        "lr_chosen": lr is None,
        **how._asdict(),
        "batch": None if batch is None else _check.integer("batch", batch, least=1, most=_MOST_SAMPLES),
    }
    most, from_where = _batches(asked_for["batch"], s, depth, d, unit, how)
    if not how.plain:
        at = minimum(s, depth, d, unit, how)
        step_size, reason = _lr(lr, s, depth, unit, at.largest_of_all)
        found = fields(s, depth, scale, start, unit, step_size, how, at)
        found["notes"] = (*_sorted(spectrum, s), *found["notes"])
    else:
        step_size, reason = _lr(lr, s, depth, unit)
        found = _descent(spectrum, s, depth, d, scale, start, unit, step_size)
    found["theory"] += from_where
    return StabilityPrediction(
        **asked_for, lr=step_size, lr_reason=reason, largest_stable_lr_with_batches=most, **found
    )


def _descent(
    spectrum: Any, s: np.ndarray, depth: int, d: int, scale: float, start: str, unit: float, lr: float
) -> dict[str, Any]:
    """What plain descent does."""
    step = unit * lr
    kappas = step * theory.curvature(s, depth)
    escape = mode_fate.escape_steps(s, scale, depth, start, step)
    fates, points = mode_fate.mode_fates(s, depth, kappas, scale, start, escape)
    cross = mode_fate.cross_fate(s, depth, step, points, fates, escape, scale, d > len(s) and start != "balanced")
    if cross is not None:
        cross = cross._replace(minimum_lr=cross.minimum_lr / unit, orbit_lr=cross.orbit_lr / unit)
    apart = depth > 1 and start != "balanced"
    gaps = mode_fate.gaps_left(s, depth, kappas, scale) if apart else [None] * len(s)
    return {
        "modes": tuple(
            _mode(value, fate, depth, unit, float(leave), gap)
            for value, fate, leave, gap in zip(s, fates, escape, gaps, strict=True)
        ),
        "largest_stable_lr": 2 / (unit * float(theory.curvature(s[0], depth))),
        "largest_stable_lr_at_flow_end": (
            2 / (unit * float(theory.flow_sharpness(scale, s[0], depth))) if apart else None
        ),
        "cross": cross,
        "sorting": _sorting(s, depth, unit, fates[0]),
        "balancing": _balancing(s, depth, kappas),
        "notes": _notes(spectrum, s, float(escape.max())),
        "theory": _sources(s, depth, scale, start),
    }


def _batches(
    batch: int | None, s: np.ndarray, depth: int, d: int, unit: float, how: Optimiser
) -> tuple[float | None, tuple[Source, ...]]:
    """The step below which fresh batches are stable in mean square at the balanced minimum, and its source."""
    if batch is None:
        return None, ()
    figure = "largest_stable_lr_with_batches"
    if how.beyond_batches:
        return math.nan, (Source(figure, f"unknown: {how.beyond_batches}"),)
    # of the entries of A in the row of mode 1, those with the null space included
    row = theory.cross_curvature(s[0], s, depth)
    row = np.append(row, np.full(d - len(s), s[0] ** (2 - 2 / depth)))
    lr = largest_online_lr(unit * row, batch, beta=how.beta, average=how.averaged)
    words = f"in mean square, {batch} fresh Gaussian samples a step, at the balanced minimum"
    return lr, (Source(figure, words, ("optimisers/C10",)),)


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


def _lr(lr: float | None, s: np.ndarray, depth: int, unit: float, largest: float | None = None) -> tuple[float, str]:
    """A step size, and why this one; `largest` is the largest stable one where it is all that is known."""
    if lr is not None:
        return _check.real("lr", lr, above=0), "as given"
    if largest is not None:
        # with momentum a mode that leaves a small start overshoots, and half of it may be too much
        return largest / 10, "chosen here: a tenth of the largest stable one"
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
        rest=float(value),
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
    notes = [*_sorted(given, s)]
    if slowest > mode_fate.MOST_STEPS / 2:
        notes.append(f"The last mode leaves the start only after about {slowest:.1e} steps: a larger alpha is quicker.")
    return tuple(notes)


def _sorted(given: Any, s: np.ndarray) -> tuple[str, ...]:
    same = np.array_equal(s, np.asarray(given, dtype=float))
    return () if same else ("The spectrum was sorted, largest first.",)


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
