"""What a network from I_gamma makes of a regression, in words."""

import math

from rich.console import Group, RenderableType

from linnet._table import Column, Fitted
from linnet.outcome import Status
from linnet.predict.answer import plural, preparation
from linnet.predict.bias import FIT, GROWN, STEPS, BiasMeasured, BiasPrediction
from linnet.theory.regime import Regime

_SHOWN = 10  # modes in the table; JSON has all


def words(said: BiasPrediction, seen: BiasMeasured | None = None) -> RenderableType:
    """Regime, predictor, modes in a table, times and step size; measured times beside predicted ones."""
    layer, modes = said.first_layer, said.modes
    exact = all(mode.half_learned.exact for mode in modes)
    known = all(mode.half_learned.error is not None for mode in modes)
    parts: list[RenderableType] = [*_setting(said), *preparation(said), _table(said, seen, exact)]
    if len(modes) > _SHOWN:
        parts.append(f"… and {len(modes) - _SHOWN} more: --json lists them.")
    if layer.unmoved:
        parts.append(f"The {layer.unmoved} other singular values of W_1 stay at {layer.start:.4g}.")
    fit, steps = said.fit, said.steps_to_fit
    how = "" if fit.error is not None else f" (estimate; certainly by {fit.not_after:.3g})"
    parts.append(f"The excess loss is down to {FIT:.0%} at time {'' if not how else '~ '}{fit.time:.4g}{how}.")
    count = plural(int(steps), "such step") if math.isfinite(steps) else "more such steps than anyone can make"
    parts.append(
        f"Gradient descent settles there below lr = {said.largest_stable_lr:.4g} (larger steps look for flatter "
        f"layers); that time is {count}."
    )
    if known and not exact:
        parts.append("No closed form holds on these data: the flow itself was integrated for the times.")
    if not known:
        parts.append(
            "[yellow]~ marks estimates:[/] exact where the predictor's directions are principal axes of the inputs, "
            "good for condition numbers near 1, and a rough guide, often several times too early, from 5 on."
            + ("" if seen is not None else " --run makes the exact flow.")
        )
    if seen is not None:
        parts += _measured(said, seen)
    return Group(*parts)


def _setting(said: BiasPrediction) -> list[RenderableType]:
    layer, modes = said.first_layer, said.modes
    rich = sum(mode.regime is Regime.RICH for mode in modes)
    loss = {"sum": "1/2 sum of squares", "mean": "1/(2n) sum of squares"}.get(said.normalisation, said.normalisation)
    ends = "least squares" if said.loss.end else "an exact fit"
    lines = [
        f"[bold]{said.regime}[/]: {rich} of {plural(len(modes), 'mode')} larger than gamma. Of the {said.inputs} "
        f"singular values of the first layer {layer.rank or 'none'} grow{'s' * (layer.rank == 1)} to {GROWN:g} times "
        f"their start or more; its stable rank ends at {layer.stable_rank:.3g}.",
        f"{plural(said.samples, 'sample')}, {plural(said.inputs, 'input')}, {plural(said.outputs, 'output')}, rank "
        f"{said.rank}, {'whitened' if said.whitened else f'condition number {said.condition:.3g}'}; loss {loss}; "
        f"gamma = {said.gamma:.4g}: W_1 starts at sqrt(2 gamma) = {layer.start:.4g} in all directions.",
        f"The flow ends at the predictor of minimum norm {said.predictor_norm:.4g} ({ends}); "
        f"loss {said.loss.start:.4g} at the start, {said.loss.end:.4g} there.",
    ]
    if said.width is not None:
        lines.append(f"The width {said.width:,} changes nothing of this: from d_in on all widths move alike.")
    return list(lines)


def _table(said: BiasPrediction, seen: BiasMeasured | None, exact: bool) -> Fitted:
    # what is measured needs no bounds
    beside = {"exact flow": 1, "error": 2} if seen is not None else {} if exact else {"not before": 2, "not after": 1}
    table = Fitted(
        Column("mode", right=True),
        Column("value", 3, right=True),
        Column("", 4),
        Column("in W_1", 5, right=True),
        Column("in W_2", 6, right=True),
        Column("half at", right=True),
        *(Column(name, spare, right=True) for name, spare in beside.items()),
    )
    for i, mode in enumerate(said.modes[:_SHOWN]):
        when = mode.half_learned
        cells = [str(i + 1), f"{mode.value:.4g}", str(mode.regime), f"{mode.first_layer:.4g}"]
        cells += [f"{mode.second_layer:.4g}", f"{'' if when.error is not None else '~ '}{when.time:.4g}"]
        if seen is not None:
            cells += _compared(when.time, seen.modes[i].half_learned.time)
        elif not exact:
            cells += [f"{bound:.3g}" for bound in (when.not_before, when.not_after)]
        table.add(*cells)
    return table


def _compared(predicted: float, measured: float) -> list[str]:
    if math.isnan(measured):
        return ["not reached", ""]
    return [f"{measured:.4g}", f"{predicted / measured - 1:+.1%}"]


def _measured(said: BiasPrediction, seen: BiasMeasured) -> list[RenderableType]:
    errors = {"predictor": seen.predictor_error, "W_1": seen.first_layer_error, "W_2": seen.second_layer_error}
    apart = ", ".join(f"{part} {error:.1e}" for part, error in errors.items() if error is not None)
    how = "fitted" if seen.status is Status.CONVERGED else seen.status
    fitted = "not reached" if math.isnan(seen.fit.time) else f"reached at {seen.fit.time:.4g}"
    parts: list[RenderableType] = [
        f"Exact flow: {how} at time {seen.ended:.4g}; {FIT:.0%} of the excess loss {fitted}. "
        f"Relative distance from the prediction at its end: {apart}."
    ]
    if seen.status is not Status.CONVERGED:
        parts.append(
            f"[yellow]Caution:[/] the flow was left after {STEPS:,} solver steps with {seen.excess_loss_left:.1e} of "
            f"the excess loss left: inputs of condition number {said.condition:.3g} are slow; standardise the columns."
        )
    return parts
