"""What a step size does, in words."""

import math

from rich.console import Group, RenderableType

from linnet._table import Column, Fitted
from linnet.predict.answer import plural
from linnet.predict.stability_result import StabilityMode, StabilityPrediction
from linnet.predict.stability_run import StabilityMeasured
from linnet.theory.mode_fate import VISIBLE, CrossState, Fate, Outcome


def words(said: StabilityPrediction, seen: StabilityMeasured | None = None) -> RenderableType:
    """The fate of the network and of each mode, thresholds, what mixes, what balances; and the exact run."""
    alpha = "chosen here" if said.alpha_chosen else "as given"
    parts: list[RenderableType] = [
        _headline(said),
        f"{plural(said.depth, 'layer')}, loss {said.normalisation}, {_step(said)}; {said.start} start, alpha = "
        f"{said.alpha:.4g} ({alpha}).",
        _table(said),
        "[bold]Thresholds:[/]",
        _thresholds(said),
        f"[bold]Largest stable lr[/] at the balanced minimum: {said.largest_stable_lr:.6g}{_of_flow(said)}.",
        *_batches(said),
        *_mixing(said),
        *_balance(said),
        *said.notes,
        *([] if seen is None else _run(said, seen)),
    ]
    return Group(*parts)


def _step(said: StabilityPrediction) -> str:
    told = f"lr = {said.lr:.6g} ({said.lr_reason})"
    if said.optimiser.plain:
        return f"{told}, lr times sharpness at the minimum = {said.modes[0].kappa:.4f}"
    return f"{told}, {said.optimiser.words()}"


def _of_flow(said: StabilityPrediction) -> str:
    lr = said.largest_stable_lr_at_flow_end
    return "" if lr is None else f"; at the minimum that gradient flow finds from this start: {lr:.6g}"


def _batches(said: StabilityPrediction) -> list[str]:
    most = said.largest_stable_lr_with_batches
    if most is None:
        return []
    told = f"{most:.6g}, {'above' if most > said.lr else 'below'} this lr"
    if math.isnan(most):
        told = f"unknown, {said.optimiser.beyond_batches}"
    return [f"[bold]With batches[/] of {_fresh(said)}: {told}; all else is told of training on the loss itself."]


def _on(said: StabilityPrediction) -> str:
    return "" if said.batch is None else f", {_fresh(said)} a step"


def _fresh(said: StabilityPrediction) -> str:
    return "" if said.batch is None else plural(said.batch, "fresh Gaussian sample")


def _fate(mode: StabilityMode) -> str:
    return str(Outcome(mode.fate, mode.period)) + (", now near 0 for long" if mode.lingers else "")


def _headline(said: StabilityPrediction) -> str:
    modes = said.modes
    lost = [mode.diverges_after for mode in modes if mode.diverges_after is not None]
    if lost:
        return f"[bold]It diverges[/] after {min(lost)} steps."
    stuck, moving = (
        [i + 1 for i, mode in enumerate(modes) if mode.fate in fates]
        for fates in ((Fate.TRAPPED,), (Fate.CYCLE, Fate.CHAOS))
    )
    resting = len(modes) - len(moving) - len(stuck)
    rest = {0: ".", 1: "; the other comes to rest."}.get(resting, "; the others come to rest.")
    zero = "at 0, which decay has made a minimum" if said.decay else "at the saddle 0"
    saddle = f"{_listed(stuck)} end{'s' * (len(stuck) == 1)} {zero}"
    open_ = [i + 1 for i, mode in enumerate(modes) if mode.fate is Fate.UNKNOWN]
    if open_ and not moving:
        return f"[bold]It has not settled:[/] {_listed(open_)} moved still when last looked at."
    if not moving:
        place = "where decay leaves it" if said.decay else "at its target"
        calm = f"[bold]It converges:[/] every mode comes to rest {place}."
        return f"[bold]It gets stuck:[/] {saddle}{rest}" if stuck else calm
    first, more = modes[moving[0] - 1], moving[1:]
    also = f", and {_listed(more)} move{'s' * (len(more) == 1)} too" if more else ""
    until = ""
    if said.cross is not None and said.cross.visible_after is not None:
        until = f" Until about step {said.cross.visible_after.double:.0f}: then modes mix, and anything may follow."
    return (
        f"[bold]It does not settle:[/] mode {moving[0]} moves between {first.low:.6g} and {first.high:.6g} "
        f"({_fate(first)}){also}{'; ' + saddle if stuck else ''}{rest}{until}"
    )


def _listed(modes: list[int]) -> str:
    return f"mode{'s' * (len(modes) != 1)} {', '.join(map(str, modes))}"


def _cells(mode: StabilityMode) -> list[str]:
    if mode.low is None or mode.high is None:
        return [f"diverges after {mode.diverges_after} steps", "", ""]
    if mode.fate is Fate.CONVERGES:
        return ["at rest", f"{mode.low:.6g}", ""]
    if mode.fate is Fate.TRAPPED:
        return ["trapped at 0", "0", ""]
    told = _fate(mode) + (f", exponent {mode.lyapunov:+.2f}" if mode.lyapunov is not None else "")
    return [told, f"{mode.low:.6g} .. {mode.high:.6g}", f"{mode.high - mode.low:.4g}"]


def _table(said: StabilityPrediction) -> Fitted:
    table = Fitted(
        Column("mode", right=True),
        Column("target", 2, right=True),
        Column("at this lr", prose=True),
        Column("values of u^T A v", 1),
        Column("amplitude", 3),
    )
    for i, mode in enumerate(said.modes):
        table.add(str(i + 1), f"{mode.value:.6g}", *_cells(mode))
    return table


def _thresholds(said: StabilityPrediction) -> Fitted:
    names = ["diverges from lr ="] if said.optimiser.plain else ["stable below lr ="]
    if said.depth > 1 and said.optimiser.plain:
        names = ["period 2 from lr =", "period 4", "chaos", "diverges"]
    columns = (Column(name, spare, right=True) for spare, name in enumerate(names))
    table = Fitted(Column("mode", right=True), Column("target", 4, right=True), *columns)
    for i, mode in enumerate(said.modes):
        at = mode.thresholds
        rates = [at.oscillates] if len(names) == 1 else [at.oscillates, at.doubles, at.chaos, at.diverges]
        table.add(str(i + 1), f"{mode.value:.6g}", *(f"{rate:.6g}" for rate in rates))
    return table


def _mixing(said: StabilityPrediction) -> list[str]:
    parts, cross, sorting = [], said.cross, said.sorting
    if sorting is not None and sorting.here:
        since = f" (from lr = {sorting.lr:.4g} on)" if sorting.lr <= said.lr else ""
        parts.append(
            f"[bold]Sorted singular values mislead here:[/] mode 1 passes below mode 2{since}, so the second largest "
            "value alternates whatever mode 2 does."
        )
    if cross is None:
        return parts
    told = "" if len(said.modes) < 2 else " Modes 1 and 2: the 2-cycle of mode 1 is safe until it doubles."
    if math.isfinite(cross.orbit_lr):
        told = (
            f" Modes 1 and 2: they mix from lr = {cross.orbit_lr:.6g} on (around the minimum itself from "
            f"{cross.minimum_lr:.6g})."
        )
    if cross.pair is not None and cross.growth is not None and cross.visible_after is not None:
        one, other = cross.pair
        pair = f"Mode {one} and the null space" if other is None else f"Modes {one} and {other}"
        parts.append(
            f"[bold]{pair} mix:[/] cross components grow by {math.expm1(cross.growth):.2%} a step; out of rounding "
            f"they are seen after about {cross.visible_after.double:.0f} steps (single precision: "
            f"{cross.visible_after.single:.0f}).{told}"
        )
    elif cross.state is CrossState.STABLE:
        parts.append(f"[bold]Modes stay apart:[/] cross components do not grow.{told}")
    else:
        parts.append(f"[bold]Each mode for itself:[/] no orbit is left whose cross components could be followed.{told}")
    return parts


def _balance(said: StabilityPrediction) -> list[str]:
    balance, first = said.balancing, said.modes[0]
    if balance is None:
        return []
    parts = []
    if balance.gap_multiplier is not None and first.period == 2:
        parts.append(f"in mode 1 differences vanish, times {abs(balance.gap_multiplier):.3f} every two steps")
    left = [f"{mode.gap_left:.1%} in mode {i + 1}" for i, mode in enumerate(said.modes) if mode.gap_left is not None]
    if left and first.fate is not Fate.DIVERGES:
        kept = ", ".join([*left[:4], *(["..."] if len(left) > 4 else [])])
        parts.append(f"of y_l^2 - y_L^2 = alpha^2 there remains {kept}")
    if balance.largest_alpha is not None:
        parts.append(f"differences cannot grow for alpha up to {balance.largest_alpha:.4g}")
    return [f"[bold]Balance of the layers:[/] {'; '.join(parts)}."] if parts else []


def _run(said: StabilityPrediction, seen: StabilityMeasured) -> list[RenderableType]:
    begin = f"[bold]Exact run[/] of {said.d} x {said.d} matrices with random singular vectors{_on(said)}: "
    if seen.status == "diverged":
        return [f"{begin}diverged at step {seen.steps}."]
    cross = "no cross components" if seen.cross is None else f"cross components up to {seen.cross.largest:.1e} of s_1"
    since = None if seen.cross is None else seen.cross.visible_after
    when = "." if since is None else f", above {VISIBLE:.0%} from step {since} on."
    parts: list[RenderableType] = [f"{begin}{seen.steps} steps, {cross}{when}"]
    if not seen.long_enough:
        parts.append("It is too short to see where the modes end: a larger alpha leaves the start sooner.")
    names = ("mode", "last steps of the run", "predicted", "largest error of the map")
    table = Fitted(*(Column(name, spare, right=True) for name, spare in zip(names, (0, 0, 1, 2), strict=True)))
    for i, (found, mode) in enumerate(zip(seen.modes, said.modes, strict=True)):
        table.add(
            str(i + 1),
            f"{found.low:.6g} .. {found.high:.6g}",
            "diverges" if mode.low is None else f"{mode.low:.6g} .. {mode.high:.6g}",
            f"{found.error:.1e}" + (" (chaos)" if mode.fate is Fate.CHAOS and not mode.lingers else ""),
        )
    return [*parts, table]
