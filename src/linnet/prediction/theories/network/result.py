"""The prediction for a linear network on a regression."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from linnet._check import InputError
from linnet.optim import SGD
from linnet.prediction import coerce
from linnet.prediction.assumption import Assumption, NotApplicable, Source
from linnet.prediction.prediction import ExactRun, Prediction, Quantity, Row, Time, facts, rows
from linnet.prediction.reduced import ReducedRegression, reduce_regression
from linnet.prediction.theories.network import sources
from linnet.prediction.theories.network.analysis import Analysis, analyze
from linnet.prediction.theories.network.batches import batch_threshold, check_batch
from linnet.prediction.theories.network.end import NetworkEnd
from linnet.prediction.theories.network.following import STIFF
from linnet.prediction.theories.network.initialization import Initialization, recognized
from linnet.prediction.theories.network.modes import FIT, LEARNED, NOISE, SIGNAL, modes_of
from linnet.prediction.theories.network.objective import Objective, prefixes
from linnet.prediction.theories.network.picture import panels
from linnet.prediction.theories.network.regularized_minimum import regularized_minimum
from linnet.prediction.theories.network.run import TrainingRun
from linnet.prediction.theories.network.shown import COLUMNS, END, counts, headline, notes, setting
from linnet.prediction.theories.network.thresholds import largest_lr, with_lr
from linnet.states import Weights
from linnet.theory.regime import Regime

_DENSE = 1e-8  # seconds over layers beyond two and the cube of the weights, measured: systems of implicit steps
_OTHERS = 4.0  # seconds at most with more weights, whose steps are explicit and counted
_NEVER = Time(math.nan, math.nan)  # it does not converge
_ROUNDING = 1e-12  # of the largest singular value: smaller ones are no modes
_DECAYED = 1e-6  # and so little is left of a mode that weight decay removes
_LEAST = 1e-20  # of the initial loss: rounding


@dataclass(frozen=True)
class Setup:
    """A regression, a network, and an optimizer in the coordinates of the samples.

    - `layers`: of the network in these coordinates; `hidden`: its widths. `compressed`: there are further neurons.
    - `kind`, `scale`: how the network was drawn, in words and numbers, None where it was given as weights.
    - `lr`: None chooses a tenth of what is stable at initialization and at the end.
    - `signal`: how many of the modes are signal.
    """

    reduction: ReducedRegression
    layers: Sequence[Float[np.ndarray, "rows columns"]]
    hidden: tuple[int, ...]
    compressed: bool
    normalization: str
    optimizer: SGD
    lr: float | None = None
    batch_size: int | None = None
    signal: int | None = None
    seed: int = 0
    kind: str | None = None
    scale: tuple[float, ...] | None = None

    def predict(self) -> Prediction:
        """The prediction of `linnet.prediction.network`."""
        return predicted(self)

    def expected_seconds(self) -> float:
        """The time of the prediction on one core, about; closed forms and two layers take less than a second."""
        count, depth = sum(w.size for w in self.layers), len(self.layers)
        if depth < 3 or (self.reduction.white and self.kind in ("balanced", "one-zero")):
            return 0.0
        return _DENSE * (depth - 2) * count**3 if count <= STIFF else _OTHERS


def network(problem: Any, network: Any, optimizer: Any = None, *, signal: int | None = None) -> Prediction:
    """What training makes of a linear network: regimes, times, stable learning rates, and where it ends.

    - `problem`: a regression on a matrix, or samples that `read_regression` has read.
    - `network`: `Weights` of any depth, widths, and values, compressed or not.
    - `optimizer`: `SGD` with a constant learning rate, with momentum, weight decay, and batches or without; None is
      gradient descent with a tenth of the largest stable learning rate.
    - `signal`: how many of the modes are signal; then `stop` says when to stop.

    Closed forms are used where they are exact; otherwise training is followed numerically, if that takes seconds at
    most. Every quantity has its source and how far the assumptions hold; what is unknown is NaN. Raises `NotApplicable`
    for other problems, networks, and optimizers.
    """
    if not isinstance(network, Weights):
        assumption = Assumption.of("the weights of a linear network", 1.0)
        message = f"network = {type(network).__name__} is not allowed: this theory needs Weights."
        raise NotApplicable("network", assumption, message)
    regression = coerce.regression(problem)
    coerce.same_shape(network, regression.shape)
    how, lr, batch_size = _sgd(optimizer)
    reduction = reduce_regression(regression)
    layers = [np.asarray(network.layers[0]) @ reduction.basis.T, *map(np.asarray, network.layers[1:])]
    small = Weights(layers).compress()
    setup = Setup(
        reduction,
        [np.asarray(w) for w in small.layers],
        network.widths[1:-1],
        network.compressed,
        coerce.normalization(regression),
        how,
        lr,
        batch_size,
        signal,
    )
    return predicted(setup, triple=(regression, network, optimizer))


def _sgd(optimizer: Any) -> tuple[SGD, float | None, int | None]:
    """Coefficients, learning rate, and batch size of an optimizer."""
    if optimizer is None:
        return SGD(), None, None
    constant = isinstance(optimizer, SGD) and not callable(optimizer.lr) and optimizer.lr_multipliers is None
    if not constant:
        kind = type(optimizer).__name__
        assumption = Assumption.of("SGD with one constant learning rate", 1.0)
        raise NotApplicable("network", assumption, f"optimizer = {kind} is not allowed: it needs {assumption.name}.")
    size = None if optimizer.batches is None else getattr(optimizer.batches, "size", None)
    return optimizer, float(optimizer.lr), size


def predicted(setup: Setup, *, triple: tuple[Any, Any, Any] | None = None, follow: bool = True) -> Prediction:
    """The prediction for a setup; without `follow` by closed forms alone. `triple` is what it was made from."""
    reduction, how = setup.reduction, setup.optimizer
    decay = float(how.effective_decay)
    check_batch(setup.batch_size, reduction)
    sizes = (reduction.d_in, reduction.d_out) if reduction.samples is None else reduction.limit.shape
    bottleneck = min([*setup.hidden, *sizes])
    best, floor = reduction.best(bottleneck)
    u, s, vt = np.linalg.svd(best, full_matrices=False)
    reachable = kept = int(np.sum(s > _ROUNDING * s[0]))
    initialization, layers = recognized(setup.layers, setup.hidden, u[:, :kept], vt[:kept].T)
    objective = Objective(reduction, layers, initialization.spare(layers, setup.compressed), decay)
    flat = initialization.kind != "one-zero" and not np.any(objective.loss_gradient(objective.initial))
    if flat and reduction.loss(prefixes(layers)[-1]) > floor:
        raise InputError("network is not allowed: its gradient is zero there, and training never moves it.")
    minimum = regularized_minimum(objective, s[0]) if decay else None
    if minimum is not None:
        best = objective.matrix(minimum)
        floor = reduction.loss(best)
        u, s, vt = np.linalg.svd(best, full_matrices=False)
        kept = int(np.sum(s > _DECAYED * s[0]))
    if setup.signal is not None and setup.signal > kept:
        raise InputError(f"signal = {setup.signal} is not allowed: there are {kept} modes to learn.")
    modes = modes_of(reduction, layers, u[:, :kept], s[:kept], vt[:kept].T)
    analysis = analyze(reduction, objective, layers, modes, initialization, setup.lr, how, minimum, follow=follow)
    begin = reduction.loss(prefixes(layers)[-1])
    fits = floor + reduction.unexplained <= _ROUNDING * begin
    batches: tuple[float | None, Source | None] = (None, None)
    if setup.batch_size is not None:
        batches = batch_threshold(objective, reduction, analysis.end, setup.batch_size, how, fits)
    about = {
        "samples": reduction.samples,
        "inputs": reduction.d_in,
        "outputs": reduction.d_out,
        "rank": reduction.d_in if reduction.samples is None else reduction.scales.size,
        "condition": float(reduction.scales[0] / reduction.scales[-1]),
        "normalization": setup.normalization,
        "depth": len(layers),
        "hidden": setup.hidden,
        "compressed": setup.compressed,
        "bottleneck": bottleneck,
        "init": Row(kind=setup.kind or initialization.kind, scale=setup.scale or initialization.scale, seed=setup.seed),
        "loss": Row(
            initial=begin + reduction.unexplained,
            final=(floor if floor > _LEAST * begin else 0.0) + reduction.unexplained,
        ),
        "modes_out_of_reach": int(np.sum(reduction.fit.values > _ROUNDING * reduction.fit.values[0])) - reachable,
        "modes_lost_to_decay": reachable - kept,
        "lr": analysis.lr,
        "lr_chosen": setup.lr is None,
        **how.coefficients,
        "batch_size": setup.batch_size,
    }
    quantities = _quantities(setup, about, initialization, layers, analysis, batches)
    values = {quantity.name: quantity.value for quantity in quantities}
    training = TrainingRun(setup, objective, analysis, values)
    if triple is None:
        triple = reduction.problem, Weights(layers, compressed=True), None
    optimizer = with_lr(how, analysis.lr) if triple[2] is None else triple[2]
    return Prediction(
        topic="network",
        headline=headline(values),
        quantities=quantities,
        setting=setting(values, how.description),
        notes=notes(values),
        problem=triple[0],
        network=triple[1],
        optimizer=optimizer,
        panels=panels,
        experiment=ExactRun(training.run, training.read, {"loss": "loss", "matrix": "matrix"}, ("loss", "matrix")),
        data={"analysis": analysis, "training": training},
    )


def _quantities(
    setup: Setup,
    about: dict[str, Any],
    initialization: Initialization,
    layers: Sequence[np.ndarray],
    analysis: Analysis,
    batches: tuple[float | None, Source | None],
) -> tuple[Quantity, ...]:
    """All quantities; a terminal shows those with a description, the setting and the headline tell of the others."""
    how, times, end, sharpness = setup.optimizer, analysis.times, analysis.end, analysis.sharpness
    verdict, converges = analysis.verdict, analysis.converges
    rates, timing = sources.rates(end.kind, how), sources.times(setup, initialization, layers, analysis)
    modes, decay = _modes(analysis), "" if how.weight_decay is None else ", that of decay included"
    stop = _stop(times, setup.signal) if setup.signal is not None and converges else None
    fit = times.when(times.fit(FIT)) if converges else _NEVER
    learned = times.when(times.predictor(LEARNED)) if converges else _NEVER
    norm = float(np.linalg.norm(times.modes.value))
    mix = None if verdict.mix is None else Time(verdict.mix * analysis.lr, verdict.mix)
    largest = [largest_lr(how, sharp) for sharp in (sharpness.end, sharpness.initial, sharpness.flattest)]
    at_initialization = "largest stable lr at initialization"
    flattest = "" if math.isnan(largest[2]) else "largest stable lr at the flattest end"
    on_batches = f"largest stable lr with batches of {setup.batch_size}"
    ends = converges * "norm of the predictor in the end"  # no text for what does not converge
    fitted = converges * f"step with {FIT:.0%} of the excess loss left{decay}"
    trained = converges * f"step with the predictor {1 - LEARNED:.0%} learned"
    return (
        *facts(**about),
        Quantity("modes", modes, counts(modes, about), source=timing, columns=COLUMNS[converges]),
        Quantity("regime", Regime.of_all([mode.regime for mode in modes]), source=sources.regimes(end.kind)),
        Quantity("predictor_norm", norm, ends, source=sources.final(setup.reduction, how)),
        Quantity("end", end.kind, source=rates),
        Quantity("largest_stable_lr", largest[0], f"largest stable lr {END[end.kind]}", source=rates),
        Quantity("largest_stable_lr_at_initialization", largest[1], at_initialization, source=rates),
        Quantity("largest_stable_lr_at_flattest_end", largest[2], flattest, source=rates),
        Quantity("largest_stable_lr_with_batches", batches[0], on_batches, source=batches[1] or rates),
        Quantity("outcome", verdict.outcome, source=rates),
        Quantity("converges", converges, source=rates),
        Quantity("explanation", verdict.explanation),
        Quantity("modes_mix", mix, "modes mix visibly at step"),
        Quantity("fit", fit, fitted, source=timing),
        Quantity("learned", learned, trained, source=timing),
        Quantity("stop", stop, source=timing),
    )


def _modes(analysis: Analysis) -> tuple[Row, ...]:
    """A row for each mode.

    Of `kernel_growth` the regime follows: a kernel that shrinks has changed as well; of deep layers at an unknown end
    only the least growth is known.
    """
    modes, verdict, end = analysis.times.modes, analysis.verdict, analysis.end
    growth = end.growth(modes)
    changed = growth if end.kind is NetworkEnd.BALANCED else np.maximum(growth, 1 / np.maximum(growth, 1e-300))
    unknown = [None] * modes.value.size
    return rows(
        value=modes.value,
        regime=map(Regime.of_growth, changed),
        kernel_growth=growth,
        crosstalk=modes.crosstalk,
        half_learned=map(analysis.times.half, range(modes.value.size)),
        layers=unknown if end.kind is NetworkEnd.BALANCED else map(tuple, end.layers.T.tolist()),
        fate=[one.fate for one in verdict.modes],
        period=[one.period for one in verdict.modes],
        between=verdict.between,
    )


def _stop(times: Any, signal: int) -> Row:
    """When the signal is learned to 90 %, and when the first other mode is at 10 %."""
    learned = float(np.max([times.learned(i, SIGNAL) for i in range(signal)]))
    noise = [times.reached(i, NOISE) for i in range(signal, times.modes.value.size)]
    begins = float(np.min(noise, initial=math.inf))
    return Row(
        signal=signal,
        signal_learned=times.when(learned),
        noise_begins=times.when(begins) if noise else Time(math.inf, math.inf),
        open=None if math.isnan(learned + begins) else learned < begins,
    )
