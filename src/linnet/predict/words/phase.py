"""What `linnet predict phase` shows."""

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from linnet._table import Column, Fitted
from linnet.predict.answer import When
from linnet.predict.phase import PhaseMeasured, PhasePrediction
from linnet.theory.mixed import Phase

MEANING = {
    Phase.RICH: "signals are learned first and alone, so stopping early removes most of the noise",
    Phase.LAZY: "signal and noise are learned at one rate, so stopping early helps little",
    Phase.INFINITE_NOISE: "the start itself is larger than the signal",
    Phase.UNDERPARAMETRIZED: "with fewer neurons than dimensions these figures are a guide only",
}


def told(result: PhasePrediction | PhaseMeasured) -> RenderableType:
    """Words and a table."""
    run = result if isinstance(result, PhaseMeasured) else None
    answer = result.prediction if isinstance(result, PhaseMeasured) else result
    lines = [
        f"[bold]{answer.phase.replace('_', ' ')}[/]: {MEANING[answer.phase]}.",
        f"{answer.d} -> {answer.width:,.0f} -> {answer.d} neurons, variance {answer.variance:.3g}: "
        f"threshold c = {answer.c:.3g}, {answer.c_over_signal:.2g} of the strongest signal.",
        f"Exponent {answer.exponent_from_transition:+.2f} from the transition, which at this width is at variance "
        f"{answer.variance_at_transition:.3g}.",
        f"Step size {answer.lr:.4g}; stable below {answer.largest_stable_lr:.4g}.",
    ]
    after = [f"[yellow]Caution:[/] {escape(note)}." for note in answer.notes]
    if answer.first_noise is not None:
        after.insert(0, f"The first noise mode is half learned at step {answer.first_noise.half_learned.step:.0f}.")
    return Group(*map(Text.from_markup, lines), _table(answer, run), *map(Text.from_markup, after))


def _table(answer: PhasePrediction, run: PhaseMeasured | None) -> Fitted:
    beside = (Column("exact run", 1, right=True), Column("error", 2, right=True)) if run else ()
    table = Fitted(Column("", prose=True), Column("predicted", right=True), *beside)

    def row(name: str, shape: str, predicted: float, measured: float | None) -> None:
        cells = [name, format(predicted, shape)]
        if run is not None:
            cells.append("–" if measured is None else format(measured, shape))
            cells.append(f"{predicted / measured - 1:+.1%}" if measured else "")
        table.add(*cells)

    def moment(name: str, predicted: When, measured: When | None) -> None:
        row(name, ".0f", predicted.time / answer.lr, None if measured is None else measured.time / answer.lr)

    for i, signal in enumerate(answer.signals):
        name = f"signal {i + 1} (level {signal.level:.3g}) half learned at step"
        moment(name, signal.half_learned, None if run is None else run.signals[i].half_learned)
    moment("stop at step", answer.stop, None if run is None else run.stop)
    row("test error there", ".4f", answer.test_error, None if run is None else run.test_error)
    return table
