"""What becomes of a user's own network, from all subjects at once.

`plan` is what was asked, `modes` what is learned and how sharp that is, `clock` when, `step` what a step size does,
`result` what is told, `run` the exact descent beside it.
"""

import math

import numpy as np

from linnet._check import InputError
from linnet.predict.answer import Hypothesis, Loss, Source, When
from linnet.predict.data import OwnSamples
from linnet.predict.frame import Frame
from linnet.predict.network.clock import HALF, Clock, certain
from linnet.predict.network.modes import end_grams, ends_of, kernels, modes_of, state_grams
from linnet.predict.network.plan import Plan, begun, framed, hidden_widths, planned
from linnet.predict.network.result import (
    FIT,
    NOISE,
    SIGNAL,
    MeasuredMode,
    NetworkMeasured,
    NetworkMode,
    NetworkPrediction,
    NetworkStart,
    StopWindow,
)
from linnet.predict.network.step import Between, NetworkOutcome, Verdict, edges_of, judged
from linnet.predict.situation import Situation
from linnet.problems import Regression, regression
from linnet.theory.regime import LAZY_BELOW, RICH_ABOVE, Regime

__all__ = [
    "Between",
    "MeasuredMode",
    "NetworkMeasured",
    "NetworkMode",
    "NetworkOutcome",
    "NetworkPrediction",
    "NetworkStart",
    "StopWindow",
    "network",
]

_ROUNDING = 1e-12  # of the largest singular value: less is no mode


def network(situation: Situation, *, problem: Regression | OwnSamples | None = None) -> NetworkPrediction:
    """What becomes of this network: which modes are lazy or rich, when each is learned, which steps are stable, when to
    stop and where it ends, each figure with the theory it is from and how far what that needs is true here.

    `problem` is a regression in place of the situation's data: `ln.regression(inputs, labels)`, or samples that
    `read_regression` read.
    """
    if not isinstance(situation, Situation):
        raise InputError("situation must be a Situation, such as predict.read_situation('lora').")
    frame, normalisation, prepared = framed(situation, problem)
    small = regression(np.diag(frame.scales), (frame.limit * frame.scales).T)
    hidden = hidden_widths(situation, frame)
    bottleneck = min([*hidden, *frame.limit.shape])
    best = small.optimum(bottleneck)
    u, s, vt = np.linalg.svd(np.asarray(best.matrix), full_matrices=False)
    kept = int(np.sum(s > _ROUNDING * s[0]))
    signal = situation.training.signal
    if signal is not None and signal > kept:
        raise InputError(f"training.signal = {signal} is not allowed: there are {kept} modes to learn.")
    plan = planned(situation, frame, hidden, s[0])
    state = begun(plan, situation.start.seed, small, u[:, :kept], vt[:kept])
    modes = modes_of(frame, state, u[:, :kept], s[:kept], vt[:kept].T)
    ends = ends_of(modes, plan)
    kernel, begin = kernels(ends), np.sum(modes.grams, axis=0)
    growth = np.divide(kernel, begin, out=np.full(kept, math.inf), where=begin > 0)
    clock = Clock(modes, plan, growth)
    edges = edges_of(frame, modes, plan.depth, state_grams(state), end_grams(frame, state, modes, ends, plan))
    lr = edges.step(situation.training.lr)
    verdict = judged(frame, modes, plan, edges, lr)
    settles = verdict.outcome is NetworkOutcome.CONVERGES
    told = _modes(frame, clock, verdict, ends, np.maximum(kernel, begin), lr)
    cost, floor = float(small.cost(state.matrix)), float(best.cost)
    return NetworkPrediction(
        prepared=prepared,
        title=situation.title,
        samples=frame.samples,
        inputs=frame.d_in,
        outputs=frame.limit.shape[0],
        rank=frame.scales.size,
        condition=float(frame.scales[0] / frame.scales[-1]),
        normalisation=normalisation,
        depth=plan.depth,
        hidden=hidden,
        bottleneck=bottleneck,
        start=NetworkStart(kind=situation.start.kind, scale=plan.scale, seed=situation.start.seed),
        loss=Loss(cost + frame.unexplained, (floor if floor > 1e-20 * cost else 0.0) + frame.unexplained),
        regime=Regime.of_all([mode.regime for mode in told]),
        modes=told,
        modes_out_of_reach=int(np.sum(np.linalg.svd(frame.limit, compute_uv=False) > _ROUNDING * s[0]) - kept),
        predictor_norm=float(np.linalg.norm(s[:kept])),
        lr=lr,
        lr_chosen=situation.training.lr == "auto",
        largest_stable_lr=2 / edges.end,
        largest_stable_lr_at_start=2 / edges.start if edges.start > 0 else math.inf,
        largest_stable_lr_at_flattest_end=2 / edges.flattest,
        outcome=verdict.outcome,
        explanation=verdict.explanation,
        modes_mix=None if verdict.mix is None else When(verdict.mix * lr, verdict.mix),
        fit=_fit(clock, told, lr, settles),
        stop=_stop(clock, signal, lr) if signal is not None and settles else None,
        theory=_sources(frame, clock, float(np.max(lr * modes.curvature * kernel))),
        frame=frame,
        problem=small,
        state=state,
        clock=clock,
    )


def _modes(
    frame: Frame, clock: Clock, verdict: Verdict, ends: np.ndarray, kernel: np.ndarray, lr: float
) -> tuple[NetworkMode, ...]:
    """What is told of every mode; `kernel` is the largest on its way."""
    modes, plan, growth = clock.modes, clock.plan, clock.growth
    bounds = certain(frame, modes, plan)
    # a kernel that shrinks has changed as well; of deep Gaussian layers only the least that it grows is known
    changed = growth if plan.guess else np.maximum(growth, 1 / np.maximum(growth, 1e-300))
    settles = verdict.outcome is NetworkOutcome.CONVERGES
    told = []
    for i, value in enumerate(modes.value):
        time = clock.reached(i, HALF)
        half = When(
            time,
            time / lr,
            clock.error(i, lr * modes.curvature[i] * kernel[i]) if settles else None,
            None if bounds is None else float(bounds.least[i]),
            None if bounds is None else float(bounds.most[i]),
        )
        told.append(
            NetworkMode(
                value=float(value),
                regime=Regime.of_growth(changed[i]),
                kernel_growth=float(growth[i]),
                crosstalk=float(modes.crosstalk[i]),
                half_learned=half,
                layers=None if plan.guess else tuple(map(float, ends[:, i])),
                fate=verdict.modes[i].fate,
                period=verdict.modes[i].period,
                between=verdict.between[i],
            )
        )
    return tuple(told)


def _fit(clock: Clock, modes: tuple[NetworkMode, ...], lr: float, settles: bool) -> When:
    """When 1 % of the excess loss is left, as sure as the least sure of the modes."""
    time = clock.fit(FIT) if settles else math.nan
    errors = [mode.half_learned.error for mode in modes]
    known = [error for error in errors if error is not None]
    return When(time, time / lr, max(known) if len(known) == len(errors) else None)


def _stop(clock: Clock, signal: int, lr: float) -> StopWindow:
    """Between signal and noise, where the user says which modes are signal."""
    learned = float(np.max([clock.learned(i, SIGNAL) for i in range(signal)]))
    noise = [clock.reached(i, NOISE) for i in range(signal, clock.modes.value.size)]
    begins = float(np.min(noise, initial=math.inf))
    return StopWindow(
        signal=signal,
        signal_learned=When(learned, learned / lr),
        noise_begins=When(begins, begins / lr),
        open=None if math.isnan(learned + begins) else learned < begins,
    )


def _sources(frame: Frame, clock: Clock, steps: float) -> tuple[Source, ...]:
    """For each figure where it is from, and how far what it needs is true here."""
    modes, plan = clock.modes, clock.plan
    off = frame.scales[:, None] ** 2 * modes.right - modes.curvature * modes.right
    apart = float(np.max(np.linalg.norm(off, axis=0) / modes.curvature))
    needs = [Hypothesis.of("modes are principal axes of the inputs", apart)]
    wide: tuple[Hypothesis, ...] = ()
    if plan.drawn:
        needs.append(Hypothesis.of("modes share no neurons", float(np.max(modes.crosstalk))))
        crowd = (frame.scales.size + frame.limit.shape[0]) / plan.hidden[0]
        wide = (Hypothesis.of("layers are wide (inputs + outputs over width)", crowd),)
    if plan.guess:
        needs.append(Hypothesis.of("the kernel stays as drawn", float(np.max(clock.growth))))
    needs.append(Hypothesis.of("steps are short (lr times curvature)", steps))
    least = " of balanced layers, the least there is" if plan.guess else ""
    words = f"lazy below {LAZY_BELOW:g}, rich above {RICH_ABOVE:g}"
    curvature = f"2 over the largest curvature, at the end{least}"
    return (
        Source("regimes", f"growth of each mode's kernel{least}: {words}"),
        Source("times and layers", *_times_from(plan), tuple(needs)),
        Source("step sizes", curvature, ("spectral/C25", "stability/C1"), wide),
        Source("the end", "the best fit of the rank that the widths allow", ("nonlocal/C1", "nonlocal/C4")),
    )


def _times_from(plan: Plan) -> tuple[str, tuple[str, ...]]:
    """The theory of times and layers, and its claims."""
    if plan.depth == 1:
        return "one layer, whose modes decay exponentially", ()
    if plan.depth == 2 and plan.kind == "one-zero":
        return "spectral bias from I_gamma, gamma = scale^2/2", ("spectral/C8", "spectral/C14")
    if plan.depth == 2:
        return "the mixed flow, each mode with the c that it starts with", ("mixed/C4", "mixed/C6")
    if plan.guess:
        return "a frozen kernel, where it is far above what the target needs; else no theory knows", ()
    return "modes of aligned layers, by quadrature", ("stability/C7", "stability/C9")
