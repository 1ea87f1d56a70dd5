"""What `linnet predict balance` shows."""

import math

from rich.console import Group, RenderableType
from rich.markup import escape

from linnet._table import Column, Fitted
from linnet.predict.answer import number, plural, preparation
from linnet.predict.balance_course import NEAR
from linnet.predict.balance_result import (
    REVERSAL,
    BalanceLearning,
    BalanceMeasured,
    BalancePrediction,
    MeasuredLearning,
)
from linnet.theory.regime import LAZY_BELOW, RICH_ABOVE, Regime

_SHOWN = 10  # modes in a table; JSON has all
_KINDS = {"random frames": "in random frames", "aligned": "aligned with the target", "given": "as given"}
_WORDS = {
    Regime.LAZY: "the kernel stays nearly what it was at the start",
    Regime.MIXED: "the kernel is partly what it was and partly made by what is learned",
    Regime.RICH: "the kernel is made by what is learned",
}


def words(said: BalancePrediction, seen: BalanceMeasured | None = None) -> RenderableType:
    """Regime, modes in a table, the end, and the task that follows; measured times beside predicted ones."""
    parts: list[RenderableType] = [*_setting(said), *preparation(said), *_modes(said, seen), *_end(said)]
    parts.append(_switched(said))
    if said.switch.rank:
        parts += _modes(said.switch, None if seen is None else seen.switch)
    if seen is not None:
        parts += [_measured("on the first task", seen), _measured("on the second", seen.switch)]
    return Group(*parts)


def _setting(said: BalancePrediction) -> list[str]:
    start, loss = said.start, f"{'1' if said.curvature == 1 else f'{said.curvature:.4g}'}/2 |A - Y|^2"
    scale = "" if start.scale is None else f", lighter layer of scale {start.scale:.3g}"
    moved = ", ".join(
        f"{name} by {number(change, 3)}" if math.isfinite(change) else f"{name} from zero"
        for name, change in (("C1", said.input_gram_change), ("C2", said.output_gram_change))
    )
    against = math.inf if said.lam == 0 else 2 * said.spectrum[0] / abs(said.lam)
    beside = "lambda = 0" if said.lam == 0 else f"lambda = {said.lam:.4g}, 2 s_1 / |lambda| = {against:.3g}"
    return [
        f"[bold]{said.regime}[/]: {_WORDS[said.regime]} ({beside}). Until the end the tangent kernel changes by "
        f"{number(said.kernel_change, 3)} times its start, {moved}.",
        f"{plural(said.inputs, 'input')}, {plural(said.outputs, 'output')}, {plural(said.width, 'hidden neuron')}, "
        f"white inputs, loss {loss}; start {_KINDS[start.kind]}{scale}. All that follows is the closed form, exact.",
    ]


def _modes(said: BalanceLearning, seen: MeasuredLearning | None) -> list[RenderableType]:
    share = f"{1 - NEAR:.0%}"
    beside = () if seen is None else (Column("exact half", 1, right=True), Column(f"exact {share}", 2, right=True))
    table = Fitted(
        Column("mode", right=True),
        Column("value", 3, right=True),
        Column("", 4),
        Column("kernel grows", 5, right=True),
        Column("half at", right=True),
        Column(f"{share} at", right=True),
        *beside,
    )
    for i, mode in enumerate(said.modes[:_SHOWN]):
        growth = f"{mode.kernel_growth:.4g}" if math.isfinite(mode.kernel_growth) else "from 0"
        cells = [str(i + 1), f"{mode.value:.4g}", str(mode.regime), growth]
        cells += [number(mode.half_learned.time), number(mode.learned.time)]
        if seen is not None:
            found = seen.modes[i].half_learned, seen.modes[i].learned
            cells += ["–" if math.isnan(when.time) else number(when.time) for when in found]
        table.add(*cells)
    parts: list[RenderableType] = [table]
    if len(said.modes) > _SHOWN:
        parts.append(f"… and {len(said.modes) - _SHOWN} more: --json lists them.")
    if any(math.isnan(when.time) for mode in said.modes for when in (mode.half_learned, mode.learned)):
        parts.append(
            "[yellow]?[/] comes later than the flow was looked at; an aligned start has formulas for every time."
        )
    return parts


def _end(said: BalancePrediction) -> list[str]:
    if said.saddle:
        signed = said.lam == 0 and said.inputs == said.outputs == len(said.modes) <= said.width and said.missing == 1
        one = said.missing == 1
        why = (
            "the sign of det A never changes at lambda = 0"
            if signed
            else f"the start has nothing of {'it' if one else 'them'}"
        )
        missing = f"{plural(said.missing, 'mode')} that the width has room for never come{'s' * one}"
        where = f"at a [bold]saddle[/]: {missing}, since {why}"
    elif said.rank < len(said.modes):
        where = f"at the best fit of rank {said.rank}, which is what {plural(said.width, 'neuron')} can hold"
    else:
        where = "at the target"
    lines = [
        f"It ends {where}; loss {said.loss.start:.4g} at the start, {said.loss.end:.4g} there, all but {NEAR:.0%} of "
        f"the way at time {number(said.fit.time)}.",
        _leaves(said) if said.saddle else f"Gradient descent settles there below lr = {said.largest_stable_lr:.4g}.",
    ]
    if said.regime is Regime.MIXED:
        lines.append(f"A mode is lazy where its kernel grows by less than {LAZY_BELOW:g}, rich above {RICH_ABOVE:g}.")
    return lines


def _switched(said: BalancePrediction) -> str:
    then = said.switch
    task = "the reversed task, -Y" if then.to == REVERSAL else "the other task"
    if then.saddle:
        return f"[bold]Then {task}: never learned.[/] {escape(_capital(then.explanation))}. {_leaves(then)}"
    last = max(mode.learned.time for mode in then.modes)
    slowest = "" if not math.isfinite(last) else f", the last mode at {last:.4g}"
    return (
        f"[bold]Then {task}: learned[/] up to {NEAR:.0%} of the loss at time {number(then.fit.time)} after the "
        f"switch{slowest}: {escape(then.explanation)}."
    )


def _leaves(said: BalanceLearning) -> str:
    """When rounding, 1e-16 of a neuron, has grown into a mode that is missing."""
    value = next(mode.value for mode in said.modes if math.isinf(mode.learned.time))
    late = 36 / (said.course.curvature * value)
    return f"In floating point rounding may lead out of it from a time of about {late:.2g} on."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _measured(task: str, seen: MeasuredLearning) -> str:
    return (
        f"Exact flow of the layers {task} ({seen.status}): modes within {seen.largest_gap_in_modes:.1e} of the closed "
        f"form, the kernel's change within {seen.largest_gap_in_kernel:.1e}."
    )
