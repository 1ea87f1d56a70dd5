"""What `linnet predict rates` shows."""

from rich.console import Group, RenderableType
from rich.markup import escape

from linnet._table import Column, Fitted
from linnet.predict.answer import When, number, preparation
from linnet.predict.rates import NEAR, RatesMeasured, RatesPrediction


def words(said: RatesPrediction, seen: RatesMeasured | None = None) -> RenderableType:
    """Where the flow ends, how fast it is and when it is where; measured times beside predicted ones."""
    z1, start, near = said.spectrum[0], said.start, said.near_rate
    there = said.reaches_the_best_rank_one_fit
    if there:
        first = f"[bold]It gets there:[/] the flow ends at the best fit of rank one, of size {z1:.4g}."
    else:
        first = f"[bold]It does not get there:[/] the flow ends at size {said.limit:.4g}, not at {z1:.4g}."
    data = "your data, whitened first" if said.whitened_first else "whitened data"
    beside = () if seen is None else (Column("exact flow", 1, right=True),)
    table = Fitted(Column("", prose=True), Column("closed form", right=True), *beside, header=seen is not None)

    def row(name: str, value: float | When | None, found: When | None = None) -> None:
        if value is not None:
            moment = value.time if isinstance(value, When) else value
            measured = [] if seen is None else ["" if found is None else number(found.time)]
            table.add(escape(name), number(moment), *measured)

    row("rate of |A - Z_1| at the start", said.far_rate)  # none at the target itself
    if said.far_phase_ends.time:
        name = "far phase ends (size 1.5 of the target's) at time"
        row(name, said.far_phase_ends, None if seen is None else seen.far_phase_ends)
    row("half grown at time", said.half_grown, None if seen is None else seen.half_grown)
    row("  by the law of small starts", said.escape)
    row(f"within {NEAR:.0%} of the target at time", said.learned, None if seen is None else seen.learned)
    if there:
        row("rate of |A - Z_1| in the end", near)
        if said.proved_rates is not None:
            row("  proved: at least, in the fast phase", said.proved_rates.fast)
            row("  proved: at least, in the slow phase", said.proved_rates.slow)
        row("gradient descent settles there below lr =", said.largest_stable_lr)
    parts: list[RenderableType] = [
        first,
        f"{said.inputs} inputs, {said.outputs} outputs, {said.depth} balanced layers, {data}, loss "
        f"{said.curvature:.4g}/2 |A - Z|^2; start of rank one and size {start.size:.4g}, {start.scale:.3g} of the "
        f"target's, alignment {start.alignment:+.3f}.",
        *preparation(said),
        table,
    ]
    more = said.near_rate_of_one_layer_more
    if near is not None and more is not None:
        word = "faster" if more > near * (1 + 1e-9) else "slower" if more < near * (1 - 1e-9) else "no different"
        parts.append(f"With one layer more the end would be {word} (rate {more:.4g}).")
    if seen is not None:
        parts.append(
            f"Exact flow of the layers ({seen.status}): distance / |Z_1| within {seen.largest_gap_in_distance:.1e} "
            f"of the closed form, size within {seen.largest_relative_gap_in_size:.1e}."
        )
        if seen.status == "stalled":
            parts.append("[yellow]Caution:[/] the solver gave up on the way; the closed form needs none.")
    return Group(*parts)
