"""A network's prediction in words."""

import math

from rich.console import Group, RenderableType
from rich.markup import escape

from linnet._table import Column, Fitted
from linnet.predict.answer import Holds, Source, When, plural, preparation
from linnet.predict.network.end import NetworkEnd
from linnet.predict.network.plan import WHITENED
from linnet.predict.network.result import FIT, LEARNED, NOISE, SIGNAL, NetworkMeasured, NetworkPrediction
from linnet.predict.network.run import LATE
from linnet.predict.network.step import NetworkOutcome
from linnet.theory.mode_fate import worst
from linnet.theory.regime import Regime

_SHOWN = 8  # modes in the table; JSON has all
_COLOURS = {Holds.EXACTLY: "green", Holds.ROUGHLY: "yellow", Holds.NOT: "red"}
_WHERE = {
    NetworkEnd.REACHED: "where this start ends",
    NetworkEnd.ESTIMATED: "where this start should end",
    NetworkEnd.BALANCED: "where balanced layers end",
}
_LOSSES = {"sum": "1/2 sum of squares", "mean": "1/(2n) sum of squares", WHITENED: f"{WHITENED} (whitened)"}


def words(said: NetworkPrediction, seen: NetworkMeasured | None = None) -> RenderableType:
    """The setting, a table of the modes, step sizes, the end, and where each figure is from."""
    parts: list[RenderableType] = [f"[bold]{escape(said.title)}[/]"] if said.title else []
    parts += [advice(said)]
    regimes = [mode.regime for mode in said.modes]
    counts = ", ".join(f"{regimes.count(one)} {one}" for one in Regime if one in regimes)
    beyond = said.modes_out_of_reach
    more = f"; {beyond} more need{'s' * (beyond == 1)} wider layers" if beyond else ""
    lost = said.modes_lost_to_decay
    more += f"; decay takes {lost} more to 0" if lost else ""
    parts += [
        _setting(said),
        *preparation(said),
        f"[bold]{said.regime.capitalize()}[/]: of {plural(len(regimes), 'mode')} {counts}{more}.",
        _table(said, seen),
    ]
    if len(regimes) > _SHOWN:
        parts.append(f"… and {len(regimes) - _SHOWN} more: --json lists them.")
    bound = said.modes[0].half_learned
    if bound.not_before is not None and bound.not_after is not None and said.settles:
        first, last = (_step(time / said.lr) for time in (bound.not_before, bound.not_after))
        parts.append(f"Certain of mode 1: half learned between steps {first} and {last}.")
    parts += [
        f"lr = {said.lr:.4g}{_momentum(said)}: [bold]{_outcome(said)}[/]; {said.explanation}.",
        f"Largest stable lr: {said.largest_stable_lr:.4g} {_WHERE[said.end]}, "
        f"{said.largest_stable_lr_at_start:.4g} at the start{_flattest(said)}.",
        *_batches(said),
        *(_end(said, seen) if said.settles else ()),
        *map(source, said.theory),
    ]
    if seen is not None:
        parts.append(_run(said, seen))
    return Group(*parts)


def _flattest(said: NetworkPrediction) -> str:
    most = said.largest_stable_lr_at_flattest_end
    return "" if math.isnan(most) else f", at most {most:.4g} at any end"


def _batches(said: NetworkPrediction) -> list[str]:
    most = said.largest_stable_lr_with_batches
    if most is None:
        return []
    told = "unknown" if math.isnan(most) else f"{most:.4g}, {'above' if most > said.lr else 'below'} this lr"
    return [f"With batches of {said.batch}: {told}; all else is told of training on all samples."]


def _momentum(said: NetworkPrediction) -> str:
    return "" if said.optimiser.plain else f", {said.optimiser.words()}"


def advice(said: NetworkPrediction) -> str:
    """What to do: learning rate, initial scale, number of steps, and why."""
    # with momentum half of it may overshoot
    part, words = (0.1, "a tenth") if said.beta else (0.5, "half")
    bearable = min(said.largest_stable_lr, said.largest_stable_lr_at_start)
    safe = part * bearable
    scale = ", ".join(f"{x:.3g}" for x in _scales(said))
    if not said.settles:
        return (
            f"[bold]Lower the learning rate[/]: at {said.lr:.4g} it {_doing(said)}; {safe:.3g} is {words} of what "
            "start and end bear."
        )
    enough = said.learned.step
    if enough is None or not math.isfinite(enough):
        count = "an unknown number of steps"
    else:
        count = f"{_step(math.ceil(enough))} steps"
    bears = f"up to {bearable:.3g} is stable" if said.lr <= bearable else "more than its start bears"
    kind = {Regime.LAZY: "features stay as they start", Regime.RICH: "features are learned"}.get(
        said.regime, "features are learned in part"
    )
    return (
        f"[bold]Train with lr = {said.lr:.3g} for {count}[/] ({1 - LEARNED:.0%} learned; {bears}), "
        f"initial scale {scale}: {said.regime}, {kind}."
    )


def _doing(said: NetworkPrediction) -> str:
    """The outcome as a verb."""
    word = _outcome(said)
    if said.outcome is NetworkOutcome.CYCLE:
        return f"oscillates ({word})"
    return {
        NetworkOutcome.CHAOS: "moves on in chaos",
        NetworkOutcome.FLIPS: "flips to and fro",
        NetworkOutcome.TRAPPED: "is trapped at a saddle",
        NetworkOutcome.SURVIVES: "may not survive its start",
    }.get(said.outcome, word)


def _scales(said: NetworkPrediction) -> tuple[float, ...]:
    return said.start.scale[:1] if len(set(said.start.scale)) == 1 else said.start.scale


def _setting(said: NetworkPrediction) -> str:
    told = f"{said.inputs} inputs, {plural(said.outputs, 'output')}"
    if said.samples:
        told = f"{plural(said.samples, 'sample')}, {told}, rank {said.rank}, condition {said.condition:.3g}"
    layers = plural(said.depth, "layer")
    widths = said.hidden[:1] if len(set(said.hidden)) == 1 else said.hidden
    if widths:
        layers += f", width{'s' * (len(widths) > 1)} " + ", ".join(f"{w:,}" for w in widths)
    scales = ", ".join(f"{x:.4g}" for x in _scales(said))
    loss = _LOSSES.get(said.normalisation, said.normalisation)
    return f"{told}; loss {loss}; {layers}, {said.start.kind} start of scale {scales}."


def _table(said: NetworkPrediction, seen: NetworkMeasured | None) -> Fitted:
    table = Fitted(
        Column("mode", right=True),
        Column("value", right=True),
        Column("regime", spare=2),
        Column("kernel", spare=3, right=True),
        Column("half at", right=True),
        Column("+-", spare=1, right=True),
        *([Column("measured", right=True)] if seen else []),
        *((Column("W_1", spare=5, right=True), Column("W_L", spare=4, right=True)) if said.settles else ()),
        *(() if said.settles else (Column("at this lr"),)),
    )
    for i, mode in enumerate(said.modes[:_SHOWN]):
        half = mode.half_learned
        cells = [str(i + 1), f"{mode.value:.4g}", mode.regime, f"x {_growth(mode.kernel_growth)}"]
        cells += [_step(half.step), _percent(half.error)]
        cells += [_step(seen.modes[i].half_learned.step)] if seen else []
        if said.settles:
            cells += ["?", "?"] if mode.layers is None else [f"{mode.layers[0]:.4g}", f"{mode.layers[-1]:.4g}"]
        else:
            span = mode.between
            moves = f", {span.low:.3g}..{span.high:.3g}" if span is not None and mode.oscillates else ""
            cells.append(f"{mode.outcome}{moves}")
        table.add(*cells)
    return table


def _outcome(said: NetworkPrediction) -> str:
    """Cycles by their period."""
    if said.outcome is NetworkOutcome.CYCLE:
        return str(worst(mode.outcome for mode in said.modes))
    return said.outcome


def _end(said: NetworkPrediction, seen: NetworkMeasured | None) -> list[str]:
    """The loss, the fit, and when to stop."""
    where = " on the span of the samples" if said.rank < said.inputs else ""
    fit, learned = (
        f"{_moment(ours)}{f' (measured {_step(theirs.step)})' if theirs else ''}"
        for ours, theirs in ((said.fit, seen and seen.fit), (said.learned, seen and seen.learned))
    )
    of_what = "the excess is left, that of decay included" if said.decay else "that is left"
    told = [
        f"The loss falls from {said.loss.start:.4g} to {said.loss.end:.4g}; at step {fit} {FIT:.0%} of {of_what}.",
        f"The predictor ends with norm {said.predictor_norm:.4g}{where}; it is {1 - LEARNED:.0%} learned at step "
        f"{learned}.",
    ]
    stop = said.stop
    if stop is not None and stop.open is None:
        told.append("No theory says when to stop here.")
    elif stop is not None:
        state = "Stop between" if stop.open else "[yellow]There is no clean moment to stop:[/]"
        told.append(
            f"{state} step {_step(stop.signal_learned.step)}, when {stop.signal} modes of signal are {SIGNAL:.0%} "
            f"learned, and {_step(stop.noise_begins.step)}, when the next is at {NOISE:.0%}."
        )
    return told


def source(told: Source) -> str:
    """Where a figure is from, and how far what it needs is true."""
    needs = "; ".join(
        f"[{_COLOURS[need.holds]}]{need.holds}[/]: {need.text} ({need.measured:.2g})" for need in told.needs
    )
    claims = f" ({', '.join(told.claims)})" if told.claims else ""
    return f"[dim]{told.figure}:[/] {told.origin}{claims}" + (f"\n  {needs}" if needs else "")


def _moment(when: When) -> str:
    """A step with how sure it is, or how far it is known."""
    if when.step is None or not math.isnan(when.step):
        return _step(when.step) + ("" if when.error is None or not when.step else f" +- {_percent(when.error)}")
    return "?" if when.not_before is None else f"? (time {when.not_before:.3g} or later)"


def _run(said: NetworkPrediction, seen: NetworkMeasured) -> str:
    far, name = "", "Exact descent" if said.batch is None else f"Descent on batches of {said.batch}"
    if said.settles and seen.status == "horizon":
        if said.batch is not None:
            return f"{name}: {seen.steps:,} steps, and {seen.excess_loss_left:.1e} of the excess loss is left."
        way = max(0.0, 1 - math.sqrt(seen.excess_loss_left))
        return f"{name}: stopped at the horizon of {seen.steps:,} steps, {way:.1%} of the way."
    if said.settles:
        far = f"; relative distance from the predicted end: predictor {seen.predictor_error:.1e}"
        far += "" if seen.layer_error is None else f", layers {seen.layer_error:.1e}"
    ranges = [mode.between for mode in seen.modes[:_SHOWN] if mode.between is not None]
    if ranges:
        far = f"; modes in its last {LATE} steps: " + ", ".join(f"{low:.4g} to {high:.4g}" for low, high in ranges)
    return f"{name}: {seen.status} after {seen.steps:,} steps{far}."


def _growth(factor: float) -> str:
    return f"{factor:.3g}" if factor < 100 else f"{factor:,.0f}" if factor < 1e5 else f"{factor:.0e}"


def _percent(error: float | None) -> str:
    return "?" if error is None else "0" if error == 0 else f"{max(100 * error, 0.1):.2g}%"


def _step(step: float | None) -> str:
    if step is None or math.isnan(step):
        return "?"
    if math.isinf(step):
        return "never"
    return f"{step:,.0f}" if 100 <= step < 1e7 else f"{step:.3g}"
