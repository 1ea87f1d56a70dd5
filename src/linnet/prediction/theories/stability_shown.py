"""The quantities, tables, and the headline of a prediction of stability."""

import math
from typing import Any

from linnet.prediction.assumption import Source
from linnet.prediction.prediction import Column, Quantity, Row
from linnet.theory import mode_fate
from linnet.theory.mode_fate import Fate, Outcome


def quantities(values: dict[str, Any], sources: dict[str, Source], plain: bool) -> tuple[Quantity, ...]:
    """The quantities of these values, in the order in which they are shown; `plain`: without momentum and decay."""

    def shown(name: str, description: str = "", **how: Any) -> Quantity:
        return Quantity(name, values[name], description, source=sources.get(name), **how)

    unnamed: tuple[str, ...] = ("depth", "d", "normalization", "lr", "momentum", "dampening", "nesterov")
    unnamed += ("weight_decay", "decoupled", "batch_size", "spectrum")
    thresholds = tuple(Row(value=mode.value, **mode.thresholds) for mode in values["modes"])
    batches = f"  with batches of {values['batch_size']} fresh Gaussian samples"
    return (
        shown("init", "initialization"),
        shown("alpha", "  alpha"),
        *(shown(name) for name in unnamed),
        shown("modes", columns=_MODES, rows=50),
        Quantity(
            "thresholds",
            thresholds,
            "Thresholds",
            source=sources["largest_stable_lr"],
            columns=_thresholds_shown(plain, values["depth"]),
            rows=50,
        ),
        shown("largest_stable_lr", "largest stable lr at the balanced minimum", format=".6g"),
        shown("largest_stable_lr_at_flow_end", "  at the minimum that gradient flow finds from here", format=".6g"),
        shown("largest_stable_lr_with_batches", batches, format=".6g"),
        shown("cross", "Cross components, entries of A between two modes", columns=_CROSS),
        shown("sorting", "Sorted singular values mislead where mode 1 passes below mode 2", columns=_SORTING),
        shown("balancing", "Balance of the layers", columns=_BALANCING),
    )


def _thresholds_shown(plain: bool, depth: int) -> tuple[Column, ...]:
    if not plain:
        stages = {"oscillates": "stable below lr ="}
    elif depth == 1:
        stages = {"oscillates": "diverges from lr ="}
    else:
        stages = {"oscillates": "period 2 from lr =", "doubles": "period 4", "chaos": "chaos", "diverges": "diverges"}
    columns = (Column(name, title, ".6g", spare) for spare, (name, title) in enumerate(stages.items()))
    return (Column("value", "target", ".6g", 4), *columns)


def _fate(mode: Row) -> str:
    if mode.fate is Fate.DIVERGES:
        return f"diverges after {mode.diverges_after} steps"
    if mode.fate is Fate.CONVERGES:
        return "converges"
    if mode.fate is Fate.TRAPPED:
        return "trapped at 0"
    exponent = "" if mode.lyapunov is None else f", exponent {mode.lyapunov:+.2f}"
    return str(Outcome(mode.fate, mode.period)) + (", now near 0 for long" if mode.lingers else "") + exponent


def _pair(pair: Any) -> str:
    if pair is None:
        return "–"
    return f"{pair.first} and " + ("the null space" if pair.second is None else str(pair.second))


def _percent(share: float) -> str:
    """Rounding has no sign."""
    return f"{round(share, 6) + 0.0:.2%}"


def _onset(lr: float) -> str:
    return "never" if math.isinf(lr) else "–" if math.isnan(lr) else f"{lr:.6g}"


def _visible(after: Any) -> str:
    """Predicted in double and single precision, or measured."""
    if after is None:
        return "–"
    return f"{after.double:.0f} (single: {after.single:.0f})" if isinstance(after, mode_fate.Visible) else str(after)


_MODES = (
    Column("value", "target", ".6g"),
    Column(None, "at this lr", _fate, prose=True),
    Column("low", "lowest", ".6g"),
    Column("high", "highest", ".6g"),
    Column("gap_left", "left of y_1^2 - y_L^2", lambda gap: "–" if gap is None else f"{gap:.1%}", 1),
)


_CROSS = (
    Column("state", "here", prose=True),
    Column("pair", "modes", _pair),
    Column("growth", "growth a step", lambda rate: "–" if rate is None else _percent(math.expm1(rate))),
    Column("visible_after", "visible after", _visible),
    Column("orbit_lr", "1 and 2 mix from lr =", _onset, 1),
    Column("minimum_lr", "at the minimum from", _onset, 2),
)
_SORTING = Column("lr", "from lr =", ".6g"), Column("here", "here")
_BALANCING = (
    Column("largest_alpha", "no difference grows for alpha up to"),
    Column("gap_multiplier", "the 2-cycle multiplies them by", ".3f"),
)


def headline(rows: tuple[Row, ...], mixes: Any, *, decays: bool) -> str:
    """What the learning rate does to the modes; `mixes` is when cross components become visible, if they do."""
    lost = [mode.diverges_after for mode in rows if mode.diverges_after is not None]
    if lost:
        return f"[bold]It diverges[/] after {min(lost)} steps."
    stuck, moving = (
        [i + 1 for i, mode in enumerate(rows) if mode.fate in fates]
        for fates in ((Fate.TRAPPED,), (Fate.CYCLE, Fate.CHAOS))
    )
    others = {0: ".", 1: "; the other converges."}.get(len(rows) - len(moving) - len(stuck), "; the others converge.")
    zero = "at 0, which decay has made a minimum" if decays else "at the saddle 0"
    saddle = f"{_listed(stuck)} end{'s' * (len(stuck) == 1)} {zero}"
    unknown = [i + 1 for i, mode in enumerate(rows) if mode.fate is Fate.UNKNOWN]
    if unknown and not moving:
        return f"[bold]It has not settled:[/] {_listed(unknown)} moved still at the last step that was computed."
    if not moving:
        place = "the minimum with decay" if decays else "its target"
        return (
            f"[bold]It gets stuck:[/] {saddle}{others}" if stuck else f"[bold]It converges:[/] every mode to {place}."
        )
    first, more = rows[moving[0] - 1], moving[1:]
    also = f", and {_listed(more)} move{'s' * (len(more) == 1)} too" if more else ""
    until = ""
    if mixes is not None:
        until = f" Until about step {mixes.double:.0f}: then modes mix, and anything may follow."
    return (
        f"[bold]It does not settle:[/] mode {moving[0]} moves between {first.low:.6g} and {first.high:.6g} "
        f"({_fate(first)}){also}{'; ' + saddle if stuck else ''}{others}{until}"
    )


def _listed(modes: list[int]) -> str:
    return f"mode{'s' * (len(modes) != 1)} {', '.join(map(str, modes))}"
