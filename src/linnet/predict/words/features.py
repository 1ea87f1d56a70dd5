"""What `linnet predict features` shows."""

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from linnet._table import Column, Fitted
from linnet.predict.answer import When, preparation
from linnet.predict.features_result import ALIGNED, Data, FeaturesMeasured, FeaturesPrediction
from linnet.theory.regime import Regime

_REGIMES = {Regime.LAZY: "Lazy", Regime.MIXED: "Between lazy and rich", Regime.RICH: "Rich"}
_DATA = {
    Data.GAUSSIAN: "one draw of standard normal inputs with a linear teacher",
    Data.OWN: "your data, covariance and beta estimated from them",
}


def told(result: FeaturesPrediction | FeaturesMeasured) -> RenderableType:
    """Words and tables."""
    run = result if isinstance(result, FeaturesMeasured) else None
    answer = result.prediction if isinstance(result, FeaturesMeasured) else result
    given = " (a tenth of the largest stable one)" if answer.lr_chosen else ""
    before = [
        f"[bold]{_REGIMES[answer.regime]}:[/] R = {answer.richness:.4g}; the kernel grows "
        f"{_number(answer.kernel_growth)}-fold along the labels.",
        f"n = {answer.samples}, d = {answer.inputs}, width {answer.width}, v0 = {answer.v0:g}, "
        f"sigma0 = {answer.sigma0:g}, {_DATA[answer.data]}; v* = {answer.v_star:.4g}.",
        *preparation(answer),
        f"lr = {answer.lr:.4g}{given}, dimensionless step x = {answer.x:.4g}.",
        _stages(answer),
    ]
    after = _gram(answer)
    if run is not None:
        left = run.loss.end / answer.loss.start
        after.append(f"Exact descent ({run.status}, {run.steps} steps): loss {left:.2e} of its start.")
    after.append(f"The paper's assumption, with the constant that each part needs (eps = {answer.eps:.3g}):")
    notes = [f"Note: {escape(note)}." for note in answer.notes]
    return Group(
        *map(Text.from_markup, before),
        _table(answer, run),
        *map(Text.from_markup, after),
        _conditions(answer),
        *map(Text.from_markup, notes),
    )


def _stages(answer: FeaturesPrediction) -> str:
    found = answer.stages
    if found is None:
        return f"[bold]This step size will not settle:[/] the largest stable lr is {answer.largest_stable_lr:.4g}."
    if found.loss_left_at_t1 is not None:
        which = "Two stages" if found.two_stages else "No clear stages"
        return f"{which}: {found.loss_left_at_t1:.0%} of the loss is left when the neurons are aligned."
    if found.half_loss is not None:
        return "One stage: the loss is halved before the neurons are aligned."
    return f"No stages: the neurons are never aligned to a slope of {ALIGNED:g}."


def _gram(answer: FeaturesPrediction) -> list[str]:
    if answer.floor > 0.5 and (answer.stages is None or answer.stages.half_loss is None):
        return [
            f"The loss is halved only in a third stage: along X^T y alone {answer.floor:.0%} of it would stay, "
            "because the Gram matrix is far from a multiple of the identity."
        ]
    if answer.condition**2 > 3:
        return [
            f"The Gram matrix has condition {answer.condition**2:.3g}: times are those of the isotropic model, "
            f"whose loss stays at {answer.floor:.2g} of its start; a third stage learns the rest."
        ]
    return []


def _table(answer: FeaturesPrediction, run: FeaturesMeasured | None) -> Fitted:
    beside = (Column("measured", 1, right=True),) if run else ()
    table = Fitted(Column("", prose=True), Column("predicted", right=True), *beside, header=run is not None)

    def row(name: str, *values: float | None) -> None:
        cells = [_number(value) for value in values[: 1 if run is None else 2]]
        table.add(name, *cells)

    if answer.stages is not None or run is not None:
        both = [answer.stages, None if run is None else run.stages]
        t1, half = ([None if one is None else getattr(one, name) for one in both] for name in ("t1", "half_loss"))
        row(f"aligned (slope {ALIGNED:g}) at step t1", *map(_step, t1))
        row("  loss left there", *(None if one is None else one.loss_left_at_t1 for one in both))
        row("  growth of the kernel until then", *(None if one is None else one.kernel_growth_at_t1 for one in both))
        row("loss halved at step", *map(_step, half))
    row("growth of the kernel, whole training", answer.kernel_growth, None if run is None else run.kernel_growth)
    ends = [answer.end, None if run is None else run.end]
    for words, name in (
        ("distance from the target-aligned kernel, end", "target_distance"),
        ("mean of v² at the end", "mean_square_v"),
        ("largest eigenvalue of the kernel there", "kernel_norm"),
    ):
        row(words, *(None if end is None else getattr(end, name) for end in ends))
    for words, value in (
        ("factor of the residual in a late step", answer.end.late_factor),
        ("largest lr without overshoot", answer.largest_lr_without_overshoot),
        ("largest stable lr", answer.largest_stable_lr),
    ):
        row(words, value)
    return table


def _conditions(answer: FeaturesPrediction) -> Fitted:
    table = Fitted(Column("", prose=True), Column("value", 1, right=True), Column("must be", 2), Column("holds"))
    for condition in answer.assumptions:
        limit = "a constant" if condition.limit is None else _number(condition.limit)
        holds = {None: "open", True: "yes", False: "no"}[condition.holds]
        table.add(
            f"{condition.id}: {escape(condition.text)}", _number(condition.value), f"{condition.sense} {limit}", holds
        )
    return table


def _step(when: When | None) -> float | None:
    return None if when is None else when.step


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:d}" if isinstance(value, int) else f"{value:.4g}"
