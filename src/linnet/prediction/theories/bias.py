"""Which predictor gradient flow from I_gamma finds in a regression, by which layers, in which order and when.

Spectral bias of two-layer networks: from W_1^T W_1 = 2 gamma I and W_2 = 0 the flow ends at the predictor of minimum
norm whatever gamma is, and gamma decides whether the first layer has low rank there.
"""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from linnet import _check
from linnet._check import InputError
from linnet.optim import SGD
from linnet.prediction import coerce
from linnet.prediction.assumption import Assumption, Source
from linnet.prediction.numbers import plural
from linnet.prediction.prediction import Column, Prediction, Quantity, Row, Time, facts, rows
from linnet.prediction.reduced import ReducedRegression, reduce_regression
from linnet.prediction.theories.bias_run import ERROR, FIT, HALF, experiment, follow, panels, shown_time
from linnet.prediction.theories.gradient_flow import in_steps, learning_rate, require
from linnet.prediction.theories.network.times import FollowedTimes
from linnet.states import Weights
from linnet.theory import spectral
from linnet.theory.regime import Regime

GROWN = 2.0  # a singular value of W_1 counts into its rank once it is this many times its initial one
_LISTED = 100_000  # entries up to which the predictor itself is a quantity
_MODES = (
    Column("value", "value", spare=3),
    Column("regime", "", spare=4),
    Column("first_layer", "in W_1", spare=5),
    Column("second_layer", "in W_2", spare=6),
    Column("half_learned", "half at", shown_time),
)
_BOUNDS = (  # of times that are not exact
    Column(None, "not before", lambda row: f"{row.half_learned.not_before:.3g}", spare=2),
    Column(None, "not after", lambda row: f"{row.half_learned.not_after:.3g}", spare=1),
)


def bias(problem: Any, network: Any = None, *, gamma: float | None = None) -> Prediction:
    """Which predictor gradient flow from I_gamma finds, by which layers, in which order, when.

    The predictor is that of minimum norm whatever gamma is (spectral/C5); sigma_i(W_1) is sqrt(hypot(s_i, gamma) +
    gamma) (spectral/C8); times are exact where the predictor's directions are principal axes of the inputs
    (spectral/C14), else the flow is integrated, or estimated where that would cost too much. All widths from d_in on
    move alike (spectral/C1). There is no intercept: center the columns.

    Args:
        problem: a regression on any data with its own normalization, or the singular values of a target (`whitened`).
        network: the initialization, `ln.init.i_gamma(problem, gamma)` of any width.
        gamma: in its place the scale alone, for more inputs than a network can be built for.

    Raises:
        NotApplicable: if the network has other than two layers, W_2 is not 0, or W_1^T W_1 not a multiple of I.

    """
    asked = coerce.regression(problem)
    if (network is None) == (gamma is None):
        raise InputError("network or gamma: give one of them, the initialization or its scale.")
    width, slack = None, 1.0
    if network is not None:
        gamma, width = _recognized(network, asked.shape)
        slack = 1 + 1e-9  # the weights are rounded
    gamma = _check.real("gamma", gamma, least=1e-100 / slack, most=1e100 * slack)
    reduced = reduce_regression(asked)
    prediction = _prediction(_Flow.of(reduced, gamma)).including(
        *facts(prepared=coerce.prepared(problem), gamma=gamma, samples=asked.samples),
        *facts(inputs=reduced.d_in, outputs=reduced.limit.shape[0]),
        Quantity("width", width),  # nothing depends on it
        Quantity("normalization", coerce.normalization(asked)),
        notes=coerce.preparation_notes(coerce.prepared(problem)),
    )
    counts = (asked.samples, "sample"), (reduced.d_in, "input"), (reduced.limit.shape[0], "output")
    kind = coerce.normalization(asked)
    loss = {"sum": "1/2 sum of squares", "mean": "1/(2n) sum of squares"}.get(kind, kind)
    about = f"{', '.join(plural(number, word) for number, word in counts)}, loss {loss}. {prediction.setting}"
    return replace(prediction, setting=about, problem=asked, network=network)


def for_triple(problem: Any, network: Any, optimizer: Any = None) -> Prediction:
    """`bias` under gradient flow, or under gradient descent with a small learning rate: its steps follow the flow.

    Raises:
        NotApplicable: if `bias` does not apply, or the optimizer is another one.

    """
    learning_rate("bias", optimizer)
    prediction = replace(bias(problem, network), optimizer=optimizer)
    return in_steps(prediction, optimizer) if isinstance(optimizer, SGD) else prediction


def _recognized(network: Any, shape: tuple[int, ...]) -> tuple[float, int]:
    """gamma and the width of an initialization I_gamma."""
    two = isinstance(network, Weights) and network.depth == 2
    require("bias", "a linear network of two layers", float(not two))
    coerce.same_shape(network, shape)
    first, second = (np.asarray(layer) for layer in network.layers)
    size = float(np.linalg.norm(first))
    require("bias", "a first layer that is not zero", float(not size > 0))
    require("bias", "a second layer of zeros (its norm over the first layer's)", float(np.linalg.norm(second)) / size)
    width, d_in = first.shape
    scale = size**2 / d_in
    if width != d_in or np.count_nonzero(first - np.diag(np.diagonal(first))):
        off = first.T @ first - scale * np.eye(d_in)
    else:
        off = np.diagonal(first) ** 2 - scale
    require("bias", "W_1^T W_1 = 2 gamma I", float(np.linalg.norm(off)) / (scale * math.sqrt(d_in)))
    return scale / 2, width


class _Flow(NamedTuple):
    """The flow from I_gamma in the span of the samples; `times` are in closed form where they are exact."""

    reduced: ReducedRegression
    gamma: float
    limit: spectral.Limit
    times: spectral.Activation
    followed: FollowedTimes | None  # integrated, where no closed form holds

    @classmethod
    def of(cls, reduced: ReducedRegression, gamma: float) -> "_Flow":
        limit = spectral.Limit(np.diag(reduced.scales), reduced.limit)
        times = limit.activation(HALF, gamma)
        return cls(reduced, gamma, limit, times, None if times.exact.all() else follow(reduced, gamma, limit))

    def halves(self) -> list[Time]:
        """When each mode is half learned."""
        least, most = ([float(x) for x in bounds] for bounds in (self.times.least, self.times.most))
        if self.followed is not None:
            times = [self.followed.reached(i, HALF) for i in range(len(least))]
            return [Time(time, None, ERROR, *bounds) for time, *bounds in zip(times, least, most, strict=True)]
        parts = zip(self.times.time, self.times.exact, least, most, strict=True)
        return [_time(float(time), bool(exact), low, high) for time, exact, low, high in parts]

    def fit(self) -> Time:
        """When the excess loss is down to a share."""
        ends = self.limit.fit_time(FIT, self.gamma)
        if self.followed is not None:
            return Time(self.followed.fit(FIT), error=ERROR, not_after=float(ends.most))
        return _time(float(ends.time), bool(ends.exact), None, float(ends.most))


def _time(time: float, exact: bool, least: float | None, most: float) -> Time:
    """Exact, or an estimate of unknown error between bounds that are certain."""
    if exact:
        return Time(time, error=0.0, not_before=time, not_after=time)
    return Time(time, not_before=least, not_after=most)


def _prediction(flow: _Flow) -> Prediction:
    reduced, gamma, values = flow.reduced, flow.gamma, flow.limit.values
    scales, limit, count = reduced.scales, reduced.limit, values.size  # what is left has no target
    layers = spectral.layer_values(values, gamma, count)
    first, second = np.asarray(layers.first), np.asarray(layers.second)
    initial, unmoved = math.sqrt(2 * gamma), reduced.d_in - count
    halves, fit = flow.halves(), flow.fit()
    kinds = [Regime.RICH if value > gamma else Regime.LAZY for value in values]
    layer_values = {"first_layer": first, "second_layer": second}
    modes = rows(value=values, over_gamma=values / gamma, regime=kinds, **layer_values, half_learned=halves)
    lr = flow.limit.largest_lr(gamma)
    steps = math.ceil(fit.time / lr) if fit.time / lr < 1e18 else math.inf
    excess, few = flow.limit.excess, limit.shape[0] * reduced.d_in <= _LISTED
    loss = Row(initial=excess + reduced.unexplained, final=reduced.unexplained)
    layer = Row(
        initial=initial,  # all its singular values
        rank=int(np.sum(first >= GROWN * initial)),  # how many end at twice that or more
        stable_rank=float((np.sum(first**2) + unmoved * 2 * gamma) / first[0] ** 2),
        unmoved=unmoved,  # how many stay
    )
    regime = Regime.of_all(kinds)
    exact, known = all(half.exact for half in halves), all(half.error is not None for half in halves)
    whitened = bool(scales[-1] >= (1 - 1e-9) * scales[0])
    predictor, singular_values, regimes, times, fits, hessian = _sources(flow)
    order = tuple(int(i) + 1 for i in np.argsort([half.time for half in halves], kind="stable"))
    norm = float(np.linalg.norm(limit))
    condition = float(scales[0] / scales[-1])
    return Prediction(
        topic="bias",
        headline=_headline(regime, modes, layer, reduced.d_in),
        setting=(
            f"Rank {scales.size}, {'whitened' if whitened else f'condition number {condition:.3g}'}; gamma = "
            f"{gamma:.4g}: W_1 has all its initial singular values at sqrt(2 gamma) = {initial:.4g}.\n"
            f"The flow ends at the predictor of minimum norm {norm:.4g} "
            f"({'least squares' if reduced.unexplained else 'an exact fit'}); initial loss "
            f"{loss.initial:.4g}, final loss {loss.final:.4g}."
        ),
        quantities=(
            Quantity("rank", scales.size),  # of the inputs
            Quantity("condition", condition),  # largest over smallest nonzero singular value of the inputs
            Quantity("whitened", whitened),
            Quantity("regime", regime, source=regimes),
            Quantity("loss", loss, source=predictor),
            Quantity("predictor_norm", norm, source=predictor),
            Quantity("predictor", limit @ reduced.basis if few else None, source=predictor),
            Quantity("first_layer", layer, source=singular_values),
            Quantity("modes", modes, source=times, columns=_MODES if exact else (*_MODES, *_BOUNDS), rows=10),
            Quantity("order", order, source=times),  # numbers of modes, the first to be half learned first
            Quantity("fit", fit, f"excess loss down to {FIT:.0%} at", source=fits, format=shown_time),
            Quantity("largest_stable_lr", lr, "gradient descent settles there below lr =", source=hessian),
            Quantity("steps_to_fit", steps, "steps to that fit with this lr", unit="step"),
        ),
        notes=_notes(exact, known, layer),
        panels=panels,
        experiment=experiment(reduced, gamma, modes, fit, steps),
        data={"reduced": reduced, "limit": flow.limit, "followed": flow.followed},
    )


def _headline(regime: Regime, modes: tuple[Row, ...], layer: Row, inputs: int) -> str:
    rich = sum(mode.regime is Regime.RICH for mode in modes)
    return (
        f"[bold]{regime}[/]: {rich} of {len(modes)} mode{'s' * (len(modes) != 1)} larger than gamma. Of the {inputs} "
        f"singular values of the first layer {layer.rank or 'none'} grow{'s' * (layer.rank == 1)} to {GROWN:g} times "
        f"their initial size or more; its stable rank ends at {layer.stable_rank:.3g}."
    )


def _notes(exact: bool, known: bool, layer: Row) -> tuple[str, ...]:
    notes = []
    if layer.unmoved:
        notes.append(f"The {layer.unmoved} other singular values of W_1 stay at {layer.initial:.4g}.")
    if known and not exact:
        notes.append("No closed form holds on these data: the flow itself was integrated for the times.")
    if not known:
        notes.append(
            "~ marks estimates: exact where the predictor's directions are principal axes of the inputs, good for "
            "condition numbers near 1, and a rough guide, often several times too early, from 5 on. The exact run "
            "has the true times."
        )
    return tuple(notes)


def _sources(flow: _Flow) -> tuple[Source, ...]:
    """Of the predictor, the layers, the regime, the times, the fit, and the largest learning rate."""
    scales = flow.reduced.scales
    off = 0.0 if flow.times.exact.all() else float(1 - (scales[-1] / scales[0]) ** 2)
    axes = Assumption.of("the predictor's directions are principal axes of the inputs", off)
    closed = "the closed form of whitened data; bounds from the loss and the mirror"
    times = Source(closed, ("spectral/C14", "spectral/C16", "spectral/C6", "spectral/C10"), (axes,))
    fits = Source("the same modes, and the bound of the loss", ("spectral/C6", "spectral/C14"), (axes,))
    if flow.followed is not None:
        integrated = "the flow itself, integrated; bounds from the loss and the mirror"
        times = fits = Source(integrated, ("spectral/C6", "spectral/C10"))
    return (
        Source("the least-squares predictor of minimum norm", ("spectral/C4", "spectral/C5")),
        Source("singular values of the layers from those of A", ("spectral/C8",)),
        Source(
            "a mode is rich where s > gamma: its singular value in W_1 is then made by s and not by the initialization",
            ("spectral/C8",),
        ),
        times,
        fits,
        Source("the Hessian where the flow ends"),
    )
