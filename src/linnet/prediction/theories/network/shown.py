"""What a person reads of a network's prediction: the recommendation, the setting, and descriptions of quantities."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.markup import escape

from linnet.prediction.numbers import percent, plural, step
from linnet.prediction.prediction import Column, Row, Time
from linnet.prediction.theories.network.end import NetworkEnd
from linnet.prediction.theories.network.modes import LEARNED, NOISE, SIGNAL
from linnet.prediction.theories.network.verdict import Between, NetworkOutcome
from linnet.theory.mode_fate import Fate, Outcome, worst
from linnet.theory.regime import Regime

WHITENED = "1/2 |A - A*|^2"
_MOVES = 1e-6  # of its target: a mode that oscillates by less is at rest
_LOSSES = {"sum": "1/2 sum of squares", "mean": "1/(2n) sum of squares", WHITENED: f"{WHITENED} (whitened)"}
END = {
    NetworkEnd.REACHED: "where this initialization ends",
    NetworkEnd.ESTIMATED: "where this initialization should end",
    NetworkEnd.BALANCED: "where balanced layers end",
}
Values = Mapping[str, Any]  # of all quantities, by name


def _growth(factor: float) -> str:
    return f"x {factor:.3g}" if factor < 100 else f"x {factor:,.0f}" if factor < 1e5 else f"x {factor:.0e}"


def oscillates(row: Row) -> bool:
    """Whether a mode goes on moving between two known values."""
    return row.between is not None and row.between.high - row.between.low > _MOVES * row.value


def _fate(row: Row) -> str:
    return str(Outcome(Fate(row.fate), row.period))


def _between(between: Between | None) -> str:
    return "" if between is None else f"{between.low:.4g} to {between.high:.4g}"


def _layer(index: int) -> Column:
    title = "W_1" if index == 0 else "W_L"
    return Column(None, title, lambda row: "?" if row.layers is None else f"{row.layers[index]:.4g}", 4 - index)


_BASE = (
    Column("value", "value"),
    Column("regime", "regime", str, 2, prose=True),
    Column("kernel_growth", "kernel", _growth, 3),
    Column("half_learned", "half at"),
    Column(None, "+-", lambda row: percent(row.half_learned.error) or "?", 1),
)
COLUMNS = {
    True: (*_BASE, _layer(0), _layer(-1)),
    False: (*_BASE, Column(None, "at this lr", _fate, prose=True), Column("between", "between", _between, 1)),
}


def counts(modes: Sequence[Row], about: Values) -> str:
    """How many modes of which regime, and what is out of reach."""
    regimes = [row.regime for row in modes]
    counts = ", ".join(f"{regimes.count(one)} {one}" for one in Regime if one in regimes)
    beyond, lost = about["modes_out_of_reach"], about["modes_lost_to_decay"]
    more = f"; {beyond} more need{'s' * (beyond == 1)} wider layers" if beyond else ""
    more += f"; weight decay takes {lost} more to 0" if lost else ""
    overall = Regime.of_all(regimes)
    return f"{overall.capitalize()}: of {plural(len(regimes), 'mode')} {counts}{more}"


def setting(get: Values, optimizer: str) -> str:
    """Data, loss, network, and what the learning rate of this optimizer ("" for plain descent) does."""
    text = f"{get['inputs']} inputs, {plural(get['outputs'], 'output')}"
    if get["samples"]:
        text = f"{plural(get['samples'], 'sample')}, {text}, rank {get['rank']}, condition {get['condition']:.3g}"
    layers, hidden = plural(get["depth"], "layer"), get["hidden"]
    if hidden:
        widths = hidden[:1] if len(set(hidden)) == 1 else hidden
        kind = "compressed to width" if get["compressed"] else "width"
        layers += f", {kind}{'s' * (len(widths) > 1)} " + ", ".join(f"{w:,}" for w in widths)
    loss = _LOSSES.get(get["normalization"], get["normalization"])
    first = f"{text}; loss {loss}; {layers}, {get['init'].kind} initialization of scale {_scale(get['init'])}."
    second = (
        f"lr = {get['lr']:.4g}{optimizer and f', {optimizer}'}: [bold]{_outcome(get)}[/]; {escape(get['explanation'])}."
    )
    loss_line = f"The loss falls from {get['loss'].initial:.4g} to {get['loss'].final:.4g}."
    converges = get["outcome"] is NetworkOutcome.CONVERGES
    return "\n".join([escape(first), second, *([loss_line, *_stop(get["stop"])] if converges else [])])


def _stop(stop: Row | None) -> list[str]:
    if stop is None:
        return []
    if stop.open is None:
        return ["When to stop is unknown here."]
    between = "Stop between" if stop.open else "[yellow]No step separates signal from noise:[/]"
    return [
        f"{between} step {step(stop.signal_learned.step)}, when {stop.signal} modes of signal are {SIGNAL:.0%} "
        f"learned, and {step(stop.noise_begins.step)}, when the next is at {NOISE:.0%}."
    ]


def _scale(init: Row) -> str:
    scales = init.scale[:1] if len(set(init.scale)) == 1 else init.scale
    return ", ".join(f"{x:.3g}" for x in scales)


def _outcome(get: Values) -> str:
    """The outcome, cycles by their period."""
    if get["outcome"] is NetworkOutcome.CYCLE:
        return str(worst(Outcome(Fate(row.fate), row.period) for row in get["modes"]))
    return str(get["outcome"])


def headline(get: Values) -> str:
    """What to do: learning rate, number of steps, initial scale, and why."""
    # with momentum half of the largest stable learning rate may overshoot
    part, words = (0.1, "a tenth") if get["momentum"] else (0.5, "half")
    largest, lr = min(get["largest_stable_lr"], get["largest_stable_lr_at_initialization"]), get["lr"]
    if get["outcome"] is not NetworkOutcome.CONVERGES:
        return (
            f"[bold]Lower the learning rate[/]: at {lr:.4g} it {_verb(get)}; {part * largest:.3g} is {words} of the "
            "largest that is stable at initialization and at the end."
        )
    enough = get["learned"].step
    known = enough is not None and math.isfinite(enough)
    count = f"{step(enough)} steps" if known else "an unknown number of steps"
    stable = f"up to {largest:.3g} is stable" if lr <= largest else "more than is stable at initialization"
    features = {Regime.LAZY: "features stay as they are", Regime.RICH: "features are learned"}
    kind = features.get(get["regime"], "features are learned in part")
    return (
        f"[bold]Train with lr = {lr:.3g} for {count}[/] ({1 - LEARNED:.0%} learned; {stable}), "
        f"initial scale {_scale(get['init'])}: {get['regime']}, {kind}."
    )


def _verb(get: Values) -> str:
    word = _outcome(get)
    return {
        NetworkOutcome.CYCLE: f"oscillates ({word})",
        NetworkOutcome.CHAOS: "moves chaotically",
        NetworkOutcome.FLIPS: "flips between two signs",
        NetworkOutcome.TRAPPED: "is trapped at a saddle",
        NetworkOutcome.SURVIVES: "may diverge from its initialization",
        NetworkOutcome.MIXED: "may diverge, since modes mix",
    }.get(get["outcome"], word)


def notes(get: Values) -> tuple[str, ...]:
    """Proved bounds of the first mode's time, how far unknown times are known, and what batches change."""
    converges, lr = get["outcome"] is NetworkOutcome.CONVERGES, get["lr"]
    found = [*(_bounds(get["modes"][0].half_learned, lr, converges) if get["modes"] else [])]
    if get["batch_size"] is not None:
        most = get["largest_stable_lr_with_batches"]
        stable = "unknown" if math.isnan(most) else f"{most:.4g}, {'above' if most > lr else 'below'} this lr"
        found.append(
            f"Largest stable lr with batches of {get['batch_size']}: {stable}; all other quantities are those of "
            "training on all samples."
        )
    return tuple(found)


def _bounds(half: Time, lr: float, converges: bool) -> list[str]:
    """What is known of the time at which the first mode is half learned, beside an estimate."""
    if half.not_before is not None and half.not_after is not None and converges:
        first, last = (step(bound / lr) for bound in (half.not_before, half.not_after))
        return [f"Proved of mode 1: half learned between steps {first} and {last}."]
    if half.not_before is not None and math.isnan(half.time):
        return [f"Mode 1 is half learned at step {step(half.not_before / lr)} or later."]
    return []
