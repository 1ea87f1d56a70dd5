"""What gradient descent does to each mode of a deep factorization, also beyond the edge of stability.

Each mode is then a map of numbers, exactly (stability/C7), and is iterated from its initialization; thresholds and
cycles are those of balanced layers (stability/C3 to C5).
"""

import math
from typing import Any

import jax
import numpy as np

from linnet.optim import SGD, Online
from linnet.prediction.assumption import Assumption, Source
from linnet.prediction.numbers import plural
from linnet.prediction.prediction import Prediction, Row
from linnet.prediction.theories import momentum_modes
from linnet.prediction.theories.aligned_modes import AlignedModes, recognize
from linnet.prediction.theories.gradient_flow import require
from linnet.prediction.theories.momentum_modes import Minimum
from linnet.prediction.theories.stability_run import Triple, experiment, panels
from linnet.prediction.theories.stability_shown import headline, quantities
from linnet.theory import mode_fate, optimizers
from linnet.theory import stability as theory
from linnet.theory.mode_fate import Fate

_NORMALIZATIONS = {1.0: "1/2 |A - A_star|^2", 2.0: "|A - A_star|^2"}


def stability(problem: Any, network: Any, optimizer: Any = None) -> Prediction:
    """What this learning rate does to the modes of W_L ... W_1: which converge, oscillate, become chaotic, or diverge.

    Args:
        problem: a factorization of at most 50 modes, or a regression on white inputs.
        network: `Weights` or `Modes` whose modes are those of the target: layers alpha times orthogonal matrices with
            the last one zero (`ln.init.one_zero`, `ln.init.orthogonal`), or alpha I in all layers for a symmetric
            target (`ln.init.identity`).
        optimizer: SGD with a constant learning rate, with momentum and decay or without; plain gradient descent with
            the learning rate of `suggested_lr` if None. With momentum or decay the largest stable learning rates are
            those of `theory.optimizers`, and what no theory predicts is None: period doubling, chaos, mixing of modes.
            With `Online` batches of Gaussian samples the largest lr that is stable in mean square is predicted too;
            the rest is about the loss itself.

    Raises:
        NotApplicable: if the network's modes are not those of the target, or for another optimizer.

    """
    modes = recognize("stability", problem, network)
    notes: tuple[str, ...] = ()
    if optimizer is None:
        lr, reason = suggested_lr(problem, network)
        optimizer, notes = SGD(lr), (chosen_note(lr, reason),)
    own = _coefficients(optimizer)
    lr = float(optimizer.lr)
    plain = not optimizer.acts_on_weights
    found, sources = _descent(modes, lr) if plain else _with_momentum(modes, lr, own)
    batch_size = None if optimizer.batches is None else optimizer.batches.size
    rows: tuple[Row, ...] = found["modes"]
    with_batches = None
    if batch_size is not None:
        with_batches, sources["largest_stable_lr_with_batches"] = _largest_with_batches(modes, batch_size, own)
    values = found | {
        "largest_stable_lr_with_batches": with_batches,
        "depth": modes.depth,
        "d": modes.d,
        "init": modes.init,
        "alpha": modes.alpha,
        "normalization": _normalization(modes.scale),
        "lr": lr,
        **own,
        "batch_size": batch_size,
        "spectrum": tuple(map(float, modes.s)),
    }
    cross = values["cross"]
    key = None if batch_size is None else jax.random.key(0)
    triple = Triple(problem, network, optimizer, key, modes.u, modes.v)
    return Prediction(
        topic="stability",
        headline=headline(
            rows, None if cross is None else cross.visible_after, decays=optimizer.weight_decay is not None
        ),
        setting=(
            f"{plural(modes.depth, 'layer')}, loss {values['normalization']}, lr = {lr:.6g}"
            + (
                f", {optimizer.description}."
                if optimizer.description
                else f" = {rows[0].kappa:.4f} over the sharpness."
            )
        ),
        quantities=quantities(values, sources, plain),
        notes=(*notes, *found["notes"]),
        problem=problem,
        network=network,
        optimizer=optimizer,
        panels=panels,
        experiment=experiment(modes, lambda: triple, optimizer, rows, cross),
        data={"aligned": modes},
    )


def suggested_lr(problem: Any, network: Any, optimizer: SGD | None = None) -> tuple[float, str]:
    """A learning rate that shows what is beyond the edge of stability, and why this one.

    For plain descent it is between the edge and what comes next; with the momentum and decay of `optimizer`, whose own
    lr does not matter, a tenth of the largest stable one.
    """
    modes = recognize("stability", problem, network)
    s, depth = modes.s, modes.depth
    if optimizer is not None and optimizer.acts_on_weights:
        # with momentum a mode that leaves a small initialization overshoots, and half of it may be too much
        at = momentum_modes.minimum(s, depth, modes.d, modes.scale, _coefficients(optimizer))
        return at.largest_of_all / 10, "a tenth of the largest stable one"
    sharp = modes.scale * float(theory.curvature(s[0], depth))
    if depth == 1:
        return 1 / sharp, "half of the largest stable one"
    following, what = float(theory.stages(depth).doublings[1]), "the orbit of mode 1 doubles"
    onset = theory.cross_threshold(float(s[1] / s[0]), depth) if len(s) > 1 else math.inf
    if onset < following:
        following, what = onset, "modes 1 and 2 mix"
    if following < 2.1:  # too narrow a window to see anything in
        return 2.05 / sharp, "a little beyond the edge of stability"
    return (1 + following / 2) / sharp, f"halfway from the edge of stability to where {what}"


def chosen_note(lr: float, reason: str) -> str:
    """That a learning rate is the one of `suggested_lr`."""
    return f"lr = {lr:.6g} is chosen here: {reason}."


def _coefficients(optimizer: Any) -> dict[str, Any]:
    """Of an SGD to which the theory applies."""
    constant = isinstance(optimizer, SGD) and not callable(optimizer.lr) and optimizer.lr_multipliers is None
    require("stability", "SGD with one constant learning rate", float(not constant))
    fresh = optimizer.batches is None or (isinstance(optimizer.batches, Online) and optimizer.batches.draw is None)
    require("stability", "steps on the loss itself or on fresh Gaussian samples (Online)", float(not fresh))
    return optimizer.coefficients


def _normalization(scale: float) -> str:
    return _NORMALIZATIONS.get(scale, f"{scale / 2:.4g} |A - A_star|^2")


# Plain descent -------------------------------------------------------------------------------------------------------


def _descent(modes: AlignedModes, lr: float) -> tuple[dict[str, Any], dict[str, Source]]:
    """Quantities of plain descent, and their sources."""
    s, depth, alpha, scale, init = modes.s, modes.depth, modes.alpha, modes.scale, modes.init
    step = scale * lr
    kappas = step * theory.curvature(s, depth)
    escape = mode_fate.escape_steps(s, alpha, depth, init, step)
    fates, points = mode_fate.mode_fates(s, depth, kappas, alpha, init, escape)
    cross = mode_fate.cross_fate(s, depth, step, points, fates, escape, alpha, modes.null)
    if cross is not None:
        cross = cross._replace(minimum_lr=cross.minimum_lr / scale, orbit_lr=cross.orbit_lr / scale)
    apart = depth > 1 and not modes.balanced
    gaps = mode_fate.gaps_left(s, depth, kappas, alpha) if apart else [None] * len(s)
    rows = tuple(
        Row(
            value=float(value),
            rest=float(value),
            **fate._replace(curvature=scale * fate.curvature)._asdict(),
            escapes_after=float(after),
            gap_left=gap,
            thresholds=_thresholds(depth, scale * fate.curvature),
        )
        for value, fate, after, gap in zip(s, fates, escape, gaps, strict=True)
    )
    slowest, notes = float(escape.max()), []
    if slowest > mode_fate.MOST_STEPS / 2:
        notes.append(
            f"The last mode leaves the saddle only after about {slowest:.1e} steps: a larger alpha is quicker."
        )
    edge = 2 / (scale * float(theory.curvature(s[0], depth)))
    at_end = 2 / (scale * float(theory.flow_sharpness(alpha, s[0], depth))) if apart else None
    return {
        "modes": rows,
        "largest_stable_lr": edge,
        "largest_stable_lr_at_flow_end": at_end,
        "cross": None if cross is None else Row(**cross._asdict()),
        "sorting": _sorting(modes, rows[0]),
        "balancing": _balancing(s, depth, float(kappas[0])),
        "notes": notes,
    }, _sources(modes)


def _thresholds(depth: int, curvature: float) -> Row:
    """The learning rates at which the fate of a mode changes; None where one layer has no such stage."""
    if depth == 1:
        return Row(oscillates=2 / curvature, doubles=None, chaos=None, leaves=None, diverges=2 / curvature)
    table = theory.stages(depth)
    kappas = (2.0, float(table.doublings[1]), table.accumulation, table.leaves, table.diverges)
    names = ("oscillates", "doubles", "chaos", "leaves", "diverges")
    return Row(**{name: kappa / curvature for name, kappa in zip(names, kappas, strict=True)})


def _sorting(modes: AlignedModes, first: Row) -> Row | None:
    """From which lr on mode 1 passes below mode 2, so that sorted values alternate, and whether it does."""
    s, depth = modes.s, modes.depth
    if len(s) < 2 or depth == 1 or s[1] >= s[0]:
        return None
    onset = theory.sorting_onset(s[1] / s[0], depth) / (modes.scale * float(theory.curvature(s[0], depth)))
    moves = first.fate in (Fate.CYCLE, Fate.CHAOS)
    return Row(lr=onset, here=bool(moves and first.low is not None and first.low < s[1]))


def _balancing(s: np.ndarray, depth: int, kappa: float) -> Row | None:
    """Differences y_l^2 - y_m^2 between layers of mode 1: up to which alpha they cannot grow, and by what the 2-cycle
    multiplies them; None where that does not apply.
    """
    if depth == 1:
        return None
    largest = multiplier = None
    if kappa < 2 * math.sqrt(2):
        largest = theory.largest_alpha(s[0], depth, kappa)
    if 2 < kappa < theory.stages(depth).doublings[1]:
        multiplier = float(theory.orbit(s[0], depth, kappa / theory.curvature(s[0], depth)).gap)
    return Row(largest_alpha=largest, gap_multiplier=multiplier)


def _sources(modes: AlignedModes) -> dict[str, Source]:
    s, depth, alpha = modes.s, modes.depth, modes.alpha
    if depth == 1:
        one = Source("one layer: the loss is quadratic, with the same curvature everywhere")
        return {"modes": one, "largest_stable_lr": one}
    gap = 0.0 if modes.balanced else float(alpha**2 / s[-1] ** (2 / depth))
    balanced = Assumption.of("layers of a mode are alike: alpha^2 / s^(2/L)", gap)
    small = Assumption.of("the initialization is small: alpha / s^(1/L)", float(alpha / s[-1] ** (1 / depth)))
    return {
        "modes": Source(
            "the mode's own map of numbers from this initialization, its limits and 2-cycles in closed form; "
            "escapes_after from the flow near the saddle, gap_left from the product over all steps",
            ("stability/C3", "stability/C4", "stability/C7"),
            (small,),
        ),
        "largest_stable_lr": Source(
            "the cascade of balanced modes (thresholds too)", ("stability/C1", "stability/C5"), (balanced,)
        ),
        "largest_stable_lr_at_flow_end": Source("2 over the sharpness where gradient flow ends", ("stability/C10",)),
        "cross": Source(
            "multipliers of cross components on the orbit, growing from a rounding error",
            ("stability/C2", "stability/C12"),
        ),
        "balancing": Source("the product of what every step leaves of a gap", ("stability/C8", "stability/E14")),
    }


# Momentum, decay, and batches ----------------------------------------------------------------------------------------


def _with_momentum(modes: AlignedModes, lr: float, own: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Source]]:
    """Quantities with momentum or decay, and their sources."""
    s, depth, decays = modes.s, modes.depth, own["weight_decay"] > 0
    at = momentum_modes.minimum(s, depth, modes.d, modes.scale, own)
    fates, steps = momentum_modes.momentum_fates(
        s, depth, modes.alpha, lr, at, own, balanced=modes.balanced, scale=modes.scale
    )
    rows = tuple(
        Row(
            value=float(value),
            rest=float(at.values[i]),
            curvature=float(at.curvatures[i]),
            kappa=2 * lr / float(at.largest[i]),
            **fate._asdict(),
            lyapunov=None,
            lingers=False,
            gap_left=None,
            thresholds=Row(oscillates=float(at.largest[i]), doubles=None, chaos=None, leaves=None, diverges=None),
        )
        for i, (value, fate) in enumerate(zip(s, fates, strict=True))
    )
    at_end = None
    if not (decays or modes.balanced or depth == 1):
        sharp = modes.scale * theory.flow_sharpness(modes.alpha, s[0], depth)
        at_end = float(optimizers.largest_stable_lr(sharp, **own))
    claims = ("optimizers/C1", "optimizers/C2", "optimizers/C3", "optimizers/C4")
    sources = {
        "largest_stable_lr": Source(
            "both roots of a step's characteristic polynomial inside the unit circle"
            + (", the whole Hessian at the minimum with decay" if decays else ""),
            (*claims, "optimizers/C6", "optimizers/C7") if decays else claims,
        ),
        "modes": Source("the mode's own map of numbers from this initialization", ("optimizers/C12",)),
        "largest_stable_lr_at_flow_end": Source(
            "the sharpness where gradient flow ends", ("stability/C10", "optimizers/C1")
        ),
    }
    return {
        "modes": rows,
        "largest_stable_lr": at.largest_of_all,
        "largest_stable_lr_at_flow_end": at_end,
        "cross": None,
        "sorting": None,
        "balancing": None,
        "notes": _momentum_notes(rows, steps, lr, at),
    }, sources


def _momentum_notes(rows: tuple[Row, ...], steps: int, lr: float, at: Minimum) -> list[str]:
    notes = []
    if any(mode.fate is Fate.UNKNOWN for mode in rows):
        notes.append(f"Modes were iterated for {steps:,} steps: no theory predicts where those go that still move.")
    early = [i + 1 for i, mode in enumerate(rows) if mode.fate is Fate.DIVERGES and lr < at.largest[i]]
    if early:
        notes.append(f"Mode {early[0]} would be stable at its minimum: it diverges on the way there.")
    if at.largest_of_all < lr < at.largest[0]:
        notes.append(
            f"Entries of A between modes grow from lr = {at.largest_of_all:.6g} on: each mode alone is stable."
        )
    return notes


def unknown_with_batches(*, weight_decay: float, nesterov: bool, **_: Any) -> str:
    """Why no formula gives the largest stable lr of batches with these coefficients; empty where one does."""
    if weight_decay:
        return "no formula covers a minimum that does not fit every sample"
    return "no formula covers Nesterov's form" if nesterov else ""


def _largest_with_batches(modes: AlignedModes, batch_size: int, own: dict[str, Any]) -> tuple[float, Source]:
    """The lr below which fresh batches are stable in mean square at the balanced minimum, NaN if unknown."""
    if why := unknown_with_batches(**own):
        return math.nan, Source(f"unknown: {why}")
    s, depth = modes.s, modes.depth
    # of the entries of A in the row of mode 1, those with the null space included
    row = np.append(theory.cross_curvature(s[0], s, depth), np.full(modes.d - len(s), s[0] ** (2 - 2 / depth)))
    how = {"momentum": own["momentum"], "dampening": own["dampening"]}
    words = f"in mean square, {batch_size} fresh Gaussian samples a step, at the balanced minimum"
    return optimizers.largest_online_lr(modes.scale * row, batch_size, **how), Source(words, ("optimizers/C10",))
