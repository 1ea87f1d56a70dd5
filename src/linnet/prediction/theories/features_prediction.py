"""The quantities, curves, and sources of a prediction of two-stage feature learning."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from rich.markup import escape

from linnet import _check, observe
from linnet.optim import SGD
from linnet.prediction.assumption import Assumption, Source
from linnet.prediction.coerce import preparation_notes
from linnet.prediction.numbers import number
from linnet.prediction.prediction import Column, Prediction, Quantity, Row, facts
from linnet.prediction.theories.features_run import (
    FeatureCurves,
    Law,
    end_quantities,
    experiment,
    panels,
    stages,
)
from linnet.prediction.validation import LARGEST, SMALLEST
from linnet.theory import feature
from linnet.theory.feature import ALIGNED, Covariance, EndState, FeatureTask
from linnet.theory.regime import Regime

_REGIMES = {Regime.LAZY: "Lazy", Regime.MIXED: "Between lazy and rich", Regime.RICH: "Rich"}
_DISTRIBUTIONS = {
    "gaussian": "one draw of standard normal inputs with a linear teacher",
    "own": "your data, covariance and beta estimated from them",
}


class Population(NamedTuple):
    """The distribution of the samples, as far as the paper's assumption needs it."""

    covariance: Covariance
    beta_bar: float
    noise2: float = 0.0


def predicted(
    law: Law,
    population: Population,
    distribution: str,
    *,
    lr: Any,
    eps: Any = None,
    seed: int | None = None,
    prepared: tuple[str, ...] = (),
    notes: Sequence[str] = (),
) -> Prediction:
    """The prediction for a problem and an initialization; `lr` and `eps` are chosen where they are None."""
    task, v, sigma = feature.task(law.problem), law.v0, law.sigma0
    initial_loss, spectrum = float(task.initial_loss), law.problem.singular_values
    eps = 0.01 * initial_loss if eps is None else _check.real("eps", eps, least=SMALLEST, most=LARGEST)
    limits, end = feature.step_limits(task, v, sigma), feature.end_state(task, v, sigma)
    stable = min(float(limits.initial), float(limits.end))
    smooth = min(float(limits.monotone), stable)
    rate = 0.1 * stable if lr is None else _check.real("lr", lr, least=SMALLEST, most=LARGEST)
    richness = float(feature.richness(task.vstar2, v, sigma))
    grown = float(feature.total_growth(task, v, sigma))
    regime, x, settles = Regime.of_growth(grown), float(task.step(rate)), rate < stable
    curves = _model(task, x, richness, v, sigma) if settles else None
    floor, left = float(task.floor) / initial_loss, _left(task, end)
    two_stages, ends, stable_lrs = _sources(law, apart=floor - left, step=rate / stable)
    found = stages(curves, rate, rounded=curves is not None and bool(curves.step[1] > 1), source=two_stages)
    late = float(feature.late_factor(task, rate, end))
    chosen = " (a tenth of the largest stable one)" * (lr is None)
    setting = _setting(law, population, distribution) + f"lr = {rate:.4g}{chosen}, dimensionless step x = {x:.4g}.\n"
    condition = float(spectrum[0] / spectrum[-1])
    values = {value.name: value.value for value in found}
    about = *_width_notes(law, len(spectrum)), *_gram(floor, condition, values)
    quantities = (
        *facts(samples=law.problem.samples, inputs=population.covariance.dimension, width=law.width),
        *facts(v0=v, sigma0=sigma, **({} if seed is None else {"seed": seed})),
        *facts(distribution=distribution, prepared=prepared),
        *facts(
            gamma=float(task.gamma),  # |X^T y|^2
            condition=condition,  # of the inputs
            v_star=math.sqrt(float(task.vstar2)),  # where v saturates
            richness=richness,  # R = 2 v_star^2 / (v0^2 + sigma0^2)
        ),
        *facts(regime=regime, lr=rate, lr_chosen=lr is None, x=x, settles=settles),
        Quantity("floor", floor),  # share of the loss that no output along X X^T y removes
        Quantity("eps", eps),
        *found,
        Quantity("kernel_growth", grown, "growth of the kernel, whole training", source=ends),
        Quantity("kernel_growth_isotropic", float(feature.kernel_growth(richness))),  # if X X^T were c times identity
        *end_quantities(float(end.mean_square), float(np.asarray(end.values)[0]), _distance(task, end), source=ends),
        Quantity("late_factor", late, "factor of the residual in a late step", source=ends),
        Quantity("largest_lr_without_overshoot", smooth, "largest lr without overshoot", source=stable_lrs),
        Quantity("largest_stable_lr", stable, "largest stable lr", source=stable_lrs),
        Quantity("loss", Row(initial=initial_loss, final=left * initial_loss)),
        _conditions(law, population, rate, eps),
    )
    return Prediction(
        topic="features",
        headline=(
            f"[bold]{_REGIMES[regime]}:[/] R = {richness:.4g}; the kernel grows {number(grown)}-fold along the labels."
        ),
        setting=setting + _stages_sentence(values, stable, settles),
        quantities=quantities,
        notes=(*preparation_notes(prepared), *notes, *about),
        problem=law.problem,
        network=None if callable(law.network) else law.network,
        optimizer=SGD(rate),
        panels=panels,
        experiment=experiment(law, rate, initial_loss=initial_loss, stable=stable, late=late, curves=curves),
        data={"curves": curves, "task": task},
    )


def _setting(law: Law, population: Population, distribution: str) -> str:
    return (
        f"n = {law.problem.samples}, d = {population.covariance.dimension}, width {law.width}, v0 = {law.v0:g}, "
        f"sigma0 = {law.sigma0:g}, {_DISTRIBUTIONS[distribution]}; "
        f"v* = {math.sqrt(float(feature.task(law.problem).vstar2)):.4g}.\n"
    )


def _stages_sentence(values: dict[str, Any], stable: float, settles: bool) -> str:
    if not settles:
        return f"[bold]This learning rate will not settle:[/] the largest stable lr is {stable:.4g}."
    if values["loss_left_at_t1"] is not None:
        which = "Two stages" if values["two_stages"] else "No clear stages"
        return f"{which}: {values['loss_left_at_t1']:.0%} of the loss is left when the neurons are aligned."
    if values["half_loss"] is not None:
        return "One stage: the loss is halved before the neurons are aligned."
    return f"No stages: the neurons are never aligned to a slope of {ALIGNED:g}."


def _gram(floor: float, condition: float, values: dict[str, Any]) -> list[str]:
    if floor > 0.5 and values["half_loss"] is None:
        return [
            f"The loss is halved only in a third stage: along X^T y alone {floor:.0%} of it would stay, because the "
            "Gram matrix is far from a multiple of the identity."
        ]
    if condition**2 > 3:
        return [
            f"The Gram matrix has condition {condition**2:.3g}: times are those of the isotropic model, whose loss "
            f"stays at {floor:.2g} of its initial value; a third stage learns the rest."
        ]
    return []


def _width_notes(law: Law, directions: int) -> list[str]:
    notes = []
    if law.small.measured > 0.1:
        notes.append("The initial output is not small beside the labels, as the model assumes: the loss will differ.")
    if law.sigma0 / law.v0 > 0.1 and law.width < 10 * directions:
        notes.append(
            f"The width {law.width} is not large beside the {directions} directions of the samples, as the model "
            "assumes: the initial kernel is uneven, and times and growth will differ."
        )
    return notes


def _sources(law: Law, *, apart: float, step: float) -> tuple[Source, Source, Source]:
    """Of the stages, of the end, and of the learning rates."""
    along = Assumption.of("X X^T y is along y (the share of the loss that is not)", apart, exact=1e-12)
    short = Assumption.of("steps are short (lr over the largest stable)", step)
    return (
        Source("two scalars for the whole training", ("feature/C17", "feature/C21"), (along, law.even, law.small)),
        Source(
            "the flow multiplies [W_1, v] by a Lorentz matrix, which the labels fix",
            ("feature/C22", "feature/C24", "feature/C25", "feature/C26"),
            (law.even, short),
        ),
        Source("kernels at initialization and at the end; no overshoot up to x = 1/2", ("feature/C23",), (law.even,)),
    )


def _conditions(law: Law, population: Population, lr: float, eps: float) -> Quantity:
    """The paper's assumption as a table."""
    found = feature.assumptions(
        law.problem.samples,
        population.covariance.dimension,
        law.width,
        population.covariance,
        beta_bar=population.beta_bar,
        sigma0=law.sigma0,
        v0=law.v0,
        lr=lr,
        eps=eps,
        noise2=population.noise2,
    )
    return Quantity(
        "conditions",
        tuple(Row(**condition._asdict()) for condition in found),
        f"The paper's assumption, with the constant that each condition needs (eps = {eps:.3g})",
        rows=len(found),
        columns=(
            Column(None, "", lambda row: escape(f"{row.id}: {row.text}"), prose=True),
            Column("value", "value", spare=1),
            Column(
                None,
                "must be",
                lambda row: f"{row.sense} {'a constant' if row.limit is None else number(row.limit)}",
                2,
            ),
            Column("holds", "holds", lambda holds: {None: "open", True: "yes", False: "no"}[holds]),
        ),
    )


def _left(task: FeatureTask, end: EndState) -> float:
    """The share of the loss that no linear function of the samples removes."""
    inside = float(np.sum((np.asarray(task.inside) - np.asarray(end.fitted(task.root))) ** 2))
    left = (inside + float(task.problem.unexplained)) / float(task.square)
    return left if left > 1e-14 else 0.0


def _distance(task: FeatureTask, end: EndState) -> float:
    root = np.asarray(task.root)
    target = observe.target_kernel(root @ root.T, task.inside, float(end.mean_square) / float(task.width))
    return float(observe.kernel_distance(end.kernel(task.root), target))


def _model(task: FeatureTask, x: float, richness: float, v0: float, sigma0: float) -> FeatureCurves:
    """Loss, slope and growth of the kernel by the aligned model: map of descent, or the flow where steps are tiny.

    Steps of the flow are those of descent to a share of x/2, below 1/2000.
    """
    initial = feature.expected_amplitudes(v0, sigma0)
    share = float(feature.kernel_growth(richness)) / richness  # 1/x of the largest step
    rapidity = float(feature.total_rapidity(richness)) + 8 / share
    if x * share >= 1e-3:
        steps = np.arange(math.ceil(rapidity / math.log1p(x)) + 2.0)
        path = feature.aligned_descent(initial, x, task.vstar2, len(steps) - 1)
    else:
        theta = np.linspace(0, rapidity, 8001)
        steps, path = theta / x, feature.aligned_flow(theta, initial, task.vstar2)
    return FeatureCurves(
        step=steps,
        loss=np.asarray(path.loss(task)) / float(task.initial_loss),
        slope=np.asarray(path.slope(initial, v0)),
        growth=np.asarray(path.kernel_growth(initial)),
    )
