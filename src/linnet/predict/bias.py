"""What a two-layer network from I_gamma makes of a regression, and when (spectral bias)."""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float

from linnet import _check, observe
from linnet._check import InputError
from linnet.curves import crossing
from linnet.initial import i_gamma
from linnet.motion import loss_below
from linnet.outcome import Status
from linnet.predict import bias_flow, given
from linnet.predict.answer import Hypothesis, Loss, Measured, Prediction, Progress, Source, When, hidden
from linnet.predict.frame import Frame, of_samples
from linnet.predict.network.path import Path
from linnet.problems import regression
from linnet.record import logarithmic
from linnet.simulation import simulate
from linnet.states import ScalarMirror, State
from linnet.theory import spectral
from linnet.theory.regime import Regime

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType

SHARE, FIT = 0.5, 0.01  # a mode is learned at half its value, the data are fitted at 1 % of the excess loss
GROWN = 2.0  # a singular value of W_1 counts into its rank once it is this many times where it started
STEPS = 50_000  # of a solver, after which a measurement is left
_LISTED = 100_000  # entries up to which the predictor itself is told
_RECORDS, _FITTED, _LARGEST = 240, 1e-16, 600
_STIFF = 3000  # steps of descent to the fit


class Curves(NamedTuple):
    """In flow time: the modes u_i^T A v_i of the predictor, and the singular values of W_1."""

    time: Float[np.ndarray, " records"]
    modes: Float[np.ndarray, "records modes"]
    first_layer: Float[np.ndarray, "records k"]


@dataclass(frozen=True, kw_only=True)
class FirstLayer:
    """The first layer where the flow ends."""

    start: float  # all its singular values at the start, sqrt(2 gamma)
    rank: int  # how many of them end at twice that or more
    stable_rank: float  # |W_1|^2 over its largest squared singular value
    unmoved: int  # how many stay at the start


@dataclass(frozen=True, kw_only=True)
class BiasMode:
    """A mode s u v^T of the predictor that the flow ends with."""

    value: float  # s
    over_gamma: float  # s / gamma
    regime: Regime  # rich where s > gamma: its layers are made by what is learned
    first_layer: float  # its singular value in W_1 in the end
    second_layer: float  # and in W_2
    half_learned: When  # u^T A v = s/2; bounds are certain


@dataclass(frozen=True, kw_only=True)
class BiasPrediction(Prediction):
    """The end of gradient flow from I_gamma, its layers, its times and its step size. Times are flow times."""

    gamma: float
    samples: int
    inputs: int
    outputs: int
    width: int | None  # hidden neurons, on which nothing depends
    normalisation: str  # of the loss
    rank: int  # of the inputs
    condition: float  # of the inputs: their largest singular value over the smallest nonzero one
    whitened: bool  # whether all nonzero singular values of the inputs are equal
    regime: Regime
    loss: Loss
    predictor_norm: float
    predictor: Float[np.ndarray, "outputs inputs"] | None = field(compare=False)  # None beyond 100,000 entries
    first_layer: FirstLayer
    modes: tuple[BiasMode, ...]  # the largest first
    order: tuple[int, ...]  # numbers of modes, the first to be half learned first
    fit: When  # the excess loss is down to 1 %
    largest_stable_lr: float  # of gradient descent at the end of the flow
    steps_to_fit: float  # of descent with that step size
    theory: tuple[Source, ...]
    frame: Frame = hidden()
    path: Path | None = hidden()  # the flow, where it had to be integrated

    def curves(self, times: Any = None) -> Curves:
        """Modes as their times are told (closed form, integrated, estimated), and W_1's values that follow."""
        moments = [mode.half_learned.time for mode in self.modes]
        if times is None:
            times = np.geomspace(min(moments) / 30, max(6 * max(moments), 1.5 * self.fit.time), 300)
        clock, values = np.asarray(times, dtype=float), np.array([mode.value for mode in self.modes])
        if self.path is not None:
            modes = bias_flow.at(self.path, clock)
        else:
            curvature = spectral.activation(SHARE, np.diag(self.frame.scales), self.frame.limit, self.gamma).curvature
            modes = np.asarray(spectral.whitened(clock, values, self.gamma, np.sqrt(curvature)))
        return Curves(clock, modes, np.sqrt(np.hypot(modes, self.gamma) + self.gamma))

    def measure(self, *, progress: Progress | None = None) -> "BiasMeasured":
        """The exact flow of both layers in the frame of the samples, until the excess loss has vanished.

        Twice: to find its end, then with records spaced for it. `progress` is told after each of them.
        """
        import diffrax  # which a prediction does not need, nor the flow

        from linnet.motion import GradientFlow

        frame, gamma, count = self.frame, self.gamma, len(self.modes)
        if frame.scales.size > _LARGEST:
            raise InputError(
                f"data of rank {frame.scales.size} cannot be measured: the exact flow needs <= {_LARGEST}."
            )
        problem = regression(np.diag(frame.scales), (frame.limit * frame.scales).T)
        # inputs of many scales are stiff, and explicit solvers would go in steps of descent: implicit ones do well in
        # the mirror coordinate of one output, which needs no layers (they follow from A), and badly in weights
        stiff = frame.limit.shape[0] == 1 and self.steps_to_fit > _STIFF
        start: State = ScalarMirror(np.zeros(problem.shape), gamma) if stiff else i_gamma(problem, gamma)
        motion = GradientFlow(1e-8 if stiff else 1e-10, solver=diffrax.Kvaerno5() if stiff else None, max_steps=STEPS)
        looks = {"loss": observe.loss, "modes": observe.modes, "values": observe.singular_values}
        if not stiff:
            looks |= {"first": observe.layer_singular_values(1), "second": observe.layer_singular_values(2)}
        values = np.array([mode.value for mode in self.modes])
        excess = _excess(frame)
        moments = [mode.half_learned for mode in self.modes]
        early = min(_bound(moment.not_before) for moment in moments) / 30
        late = 10 * max(_bound(moment.not_after) for moment in (self.fit, *moments))
        ends: list[Status] = []
        for turn in range(2):
            result = simulate(  # without its progress, which would double the time to compile it
                problem,
                start,
                motion,
                time=late,
                observe=looks,
                record=logarithmic(_RECORDS, first=early),
                stop=loss_below(_FITTED * excess),
            )
            clock, seen = np.asarray(result.times), np.asarray(result["modes"])[:, :count]
            halves = [crossing(clock, seen[:, i] / values[i], SHARE) for i in range(count)]
            ends.append(result.status)
            early, late = np.nanmin([*halves, result.ended]) / 30, float(result.ended)
            if progress is not None:
                progress(turn + 1, 2)
        loss, wide = np.asarray(result["loss"]), frame.scales.size
        errors: tuple[float | None, float | None] = (None, None)
        if stiff:
            curve = np.asarray(result["values"])[:, :count]
            first = np.array([spectral.layer_values(s, gamma, wide).first for s in curve])
        else:
            first, second = np.asarray(result["first"]), np.asarray(result["second"])[-1, :count]
            said = np.asarray(spectral.layer_values(values, gamma, wide).first)
            # what is below the rounding of the largest value cannot be measured
            gap = np.max(np.abs(first[-1] - said) / np.maximum(said, 1e-12 * said[0]))
            lower = np.array([mode.second_layer for mode in self.modes])
            errors = float(gap), float(np.max(np.abs(second / lower - 1)))
        final = np.asarray(result.final.matrix)
        fit = crossing(clock, -np.log(np.maximum(loss / loss[0], 1e-300)), -math.log(FIT))
        return BiasMeasured(
            prediction=self,
            status=ends[0],  # the second run ends where this one did
            ended=float(result.ended),
            excess_loss_left=float(loss[-1] / excess),
            modes=tuple(MeasuredMode(half_learned=When(half, error=0.0)) for half in halves),
            fit=When(fit, error=0.0),
            predictor_error=float(np.linalg.norm(final - frame.limit) / np.linalg.norm(frame.limit)),
            first_layer_error=errors[0],
            second_layer_error=errors[1],
            curves=Curves(clock, seen, first),
        )

    def plot(self) -> "Figure":
        """Modes one after another, and what they leave in the first layer."""
        from linnet.plot.bias import bias as draw

        return draw(self)

    def __rich__(self) -> "RenderableType":
        from linnet.predict.words.bias import words

        return words(self)


@dataclass(frozen=True, kw_only=True)
class MeasuredMode:
    """When a mode was half learned in the exact flow; NaN if it was left before."""

    half_learned: When


@dataclass(frozen=True, kw_only=True)
class BiasMeasured(Measured):
    """The exact flow of both layers; errors are relative distances from the prediction at its end."""

    prediction: BiasPrediction = hidden()
    status: Status  # converged once the excess loss has vanished
    ended: float  # in flow time
    excess_loss_left: float  # over that at the start
    modes: tuple[MeasuredMode, ...]
    fit: When
    predictor_error: float
    first_layer_error: float | None  # None where the flow was followed without layers
    second_layer_error: float | None
    curves: Curves = hidden()

    def plot(self) -> "Figure":
        """Modes one after another with the exact flow, and what they leave in the first layer."""
        from linnet.plot.bias import bias as draw

        return draw(self.prediction, self)

    def __rich__(self) -> "RenderableType":
        from linnet.predict.words.bias import words

        return words(self.prediction, self)


def bias(problem: Any, *, gamma: float, width: int | None = None) -> BiasPrediction:
    """Which predictor gradient flow from W_1 = sqrt(2 gamma) Q, W_2 = 0 finds, by which layers, in which order, when.

    `problem` is a regression on any data with its own normalisation, or the singular values of a target (`whitened`).
    The predictor is that of minimum norm whatever gamma is (spectral/C5); sigma_i(W_1) is sqrt(hypot(s_i, gamma) +
    gamma) (spectral/C8); times are exact where the predictor's directions are principal axes of the inputs
    (spectral/C14), else the flow is integrated, or estimated where that would cost too much.
    From d_in neurons on all widths move alike (spectral/C1). There is no intercept: centre the columns.
    """
    gamma = _check.real("gamma", gamma, least=1e-100, most=1e100)
    asked = given.regression(problem)
    frame = of_samples(asked)
    scales, limit = frame.scales, frame.limit
    if width is not None:
        width = _check.integer("width", width, least=frame.d_in, reason="d_in: I_gamma needs orthonormal columns")
    inputs = np.diag(scales)
    times = spectral.activation(SHARE, inputs, limit, gamma)
    count = times.time.size  # what is left has no target
    values = np.linalg.svd(limit, compute_uv=False)[:count]
    layers = spectral.layer_values(values, gamma, count)
    first, second = np.asarray(layers.first), np.asarray(layers.second)
    start, unmoved = math.sqrt(2 * gamma), frame.d_in - count
    regimes = [Regime.RICH if value > gamma else Regime.LAZY for value in values]
    ends = spectral.fit_time(FIT, inputs, limit, gamma)
    path = None if times.exact.all() else bias_flow.integrated(frame, gamma)
    halves = [_moment(times.time[i], times.exact[i], times.least[i], times.most[i]) for i in range(count)]
    fit = _moment(ends.time, ends.exact, None, ends.most)
    if path is not None:
        halves = [
            bias_flow.moment(path.reached(i, SHARE), half.not_before, _bound(half.not_after))
            for i, half in enumerate(halves)
        ]
        fit = bias_flow.moment(path.fit(FIT), None, float(ends.most))
    lr = spectral.largest_lr(inputs, limit, gamma)
    return BiasPrediction(
        prepared=given.prepared(problem),
        gamma=gamma,
        samples=asked.samples,
        inputs=frame.d_in,
        outputs=limit.shape[0],
        width=width,
        normalisation=given.normalisation(asked),
        rank=scales.size,
        condition=float(scales[0] / scales[-1]),
        whitened=bool(scales[-1] >= (1 - 1e-9) * scales[0]),
        regime=Regime.of_all(regimes),
        loss=Loss(_excess(frame) + frame.unexplained, frame.unexplained),
        predictor_norm=float(np.linalg.norm(limit)),
        predictor=limit @ frame.basis if limit.shape[0] * frame.d_in <= _LISTED else None,
        first_layer=FirstLayer(
            start=start,
            rank=int(np.sum(first >= GROWN * start)),
            stable_rank=float((np.sum(first**2) + unmoved * 2 * gamma) / first[0] ** 2),
            unmoved=unmoved,
        ),
        modes=tuple(
            BiasMode(
                value=float(values[i]),
                over_gamma=float(values[i] / gamma),
                regime=regimes[i],
                first_layer=float(first[i]),
                second_layer=float(second[i]),
                half_learned=halves[i],
            )
            for i in range(count)
        ),
        order=tuple(int(i) + 1 for i in np.argsort([half.time for half in halves], kind="stable")),
        fit=fit,
        largest_stable_lr=lr,
        steps_to_fit=math.ceil(fit.time / lr) if fit.time / lr < 1e18 else math.inf,
        theory=_theory(times, scales, path),
        frame=frame,
        path=path,
    )


def _excess(frame: Frame) -> float:
    return float(np.sum((frame.limit * frame.scales) ** 2) / 2)


def _moment(time: float, exact: bool, least: float | None, most: float) -> When:
    """Exact, or an estimate of which nobody knows the error, between bounds that are certain."""
    if exact:
        return When(float(time), error=0.0, not_before=float(time), not_after=float(time))
    return When(float(time), not_before=None if least is None else float(least), not_after=float(most))


def _bound(value: float | None) -> float:
    assert value is not None
    return value


def _theory(times: spectral.Activation, scales: np.ndarray, path: Path | None) -> tuple[Source, ...]:
    axes = Hypothesis.of(
        "the predictor's directions are principal axes of the inputs",
        0.0 if times.exact.all() else float(1 - (scales[-1] / scales[0]) ** 2),
    )
    followed = None if path is None else Source("half_learned, order, fit", "the flow itself, integrated")
    return (
        Source("predictor, loss", "the least-squares predictor of minimum norm", ("spectral/C4", "spectral/C5")),
        Source("first_layer, second_layer", "singular values of the layers from those of A", ("spectral/C8",)),
        Source(
            "regime",
            "a mode is rich where s > gamma: its singular value in W_1 is then made by s and not by the start",
            ("spectral/C8",),
        ),
        followed
        or Source("half_learned, order", "the closed form of whitened data", ("spectral/C14", "spectral/C16"), (axes,)),
        Source("not_before, not_after", "bounds from the loss and the mirror", ("spectral/C6", "spectral/C10")),
        *(
            ()
            if followed
            else (Source("fit", "the same modes, and the bound of the loss", ("spectral/C6", "spectral/C14"), (axes,)),)
        ),
        Source("largest_stable_lr", "the Hessian where the flow ends", ()),
    )
