"""What becomes of a user's own network, from all subjects at once.

`plan` is what was asked, `modes` what is learned, `chain` the network in NumPy, `end` where it ends and how sharp that
is, `rest` where with decay, `batch` which steps batches bear there, `clock` when by closed forms, `path` when by
following it, `step` what a step size does, `course` all of these in their order, `result` what is told, `run` the exact
training beside it.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from linnet._check import InputError
from linnet.predict.answer import Hypothesis, Loss, Source, When
from linnet.predict.data import OwnSamples
from linnet.predict.frame import Frame
from linnet.predict.network.batch import bearable, checked
from linnet.predict.network.chain import Chain
from linnet.predict.network.clock import Clock
from linnet.predict.network.course import Course, coursed
from linnet.predict.network.end import NetworkEnd
from linnet.predict.network.modes import ALONE, matrix_of, modes_of
from linnet.predict.network.path import Path
from linnet.predict.network.plan import Plan, begun, framed, hidden_widths, planned
from linnet.predict.network.rest import rested
from linnet.predict.network.result import (
    FIT,
    LEARNED,
    NEVER,
    NOISE,
    SIGNAL,
    MeasuredMode,
    NetworkMeasured,
    NetworkMode,
    NetworkPrediction,
    NetworkStart,
    StopWindow,
)
from linnet.predict.network.step import Between, NetworkOutcome
from linnet.predict.optimiser import Optimiser
from linnet.predict.situation import Situation
from linnet.problems import Regression
from linnet.states import Weights
from linnet.theory.regime import LAZY_BELOW, RICH_ABOVE, Regime

__all__ = [
    "Between",
    "MeasuredMode",
    "NetworkEnd",
    "NetworkMeasured",
    "NetworkMode",
    "NetworkOutcome",
    "NetworkPrediction",
    "NetworkStart",
    "StopWindow",
    "network",
    "network_start",
]

_WHERE = {
    NetworkEnd.REACHED: "where this start ends",
    NetworkEnd.ESTIMATED: "where this start ends, if its modes share no neurons",
    NetworkEnd.BALANCED: "where balanced layers end; other ends are sharper",
}
_ROUNDING = 1e-12  # of the largest singular value: less is no mode
_DECAYED = 1e-6  # and so little is left where decay wins


class _Begun(NamedTuple):
    """A network before its training: its data, what they allow it to learn, and its weights."""

    frame: Frame
    normalisation: str
    prepared: tuple[str, ...]
    hidden: tuple[int, ...]
    bottleneck: int
    best: Float[np.ndarray, "d_out rank"]
    floor: float
    u: np.ndarray
    s: np.ndarray
    vt: np.ndarray
    kept: int
    plan: Plan
    state: Weights


def _begun(situation: Situation, problem: Regression | OwnSamples | None) -> _Begun:
    if not isinstance(situation, Situation):
        raise InputError("situation must be a Situation, such as predict.read_situation('lora').")
    frame, normalisation, prepared = framed(situation, problem)
    hidden = hidden_widths(situation, frame)
    bottleneck = min([*hidden, frame.d_in, frame.d_out] if frame.samples is None else [*hidden, *frame.limit.shape])
    best, floor = frame.best(bottleneck)
    u, s, vt = np.linalg.svd(best, full_matrices=False)
    kept = int(np.sum(s > _ROUNDING * s[0]))
    checked(situation.training.batch, frame)
    plan = planned(situation, frame, hidden, s[0])
    state = begun(plan, situation.start.seed, frame, u[:, :kept], vt[:kept])
    return _Begun(frame, normalisation, prepared, hidden, bottleneck, best, floor, u, s, vt, kept, plan, state)


def network_start(
    situation: Situation, *, problem: Regression | OwnSamples | None = None
) -> tuple[Regression, Weights]:
    """The network of a situation before its training, in the frame of its samples and compressed where that is exact:
    the regression and the weights that `network` speaks of, for `simulate` with anything of your own.
    """
    made = _begun(situation, problem)
    return made.frame.problem, made.state


def network(situation: Situation, *, problem: Regression | OwnSamples | None = None) -> NetworkPrediction:
    """What becomes of this network: which modes are lazy or rich, when each is learned, which steps are stable, when to
    stop and where it ends, each figure with the theory it is from and how far what that needs is true here.

    `problem` is a regression in place of the situation's data: `ln.regression(inputs, labels)`, or samples that
    `read_regression` read.
    """
    return _told(situation, problem, follow=True)


def estimated(situation: Situation, *, problem: Regression | OwnSamples | None = None) -> NetworkPrediction:
    """The same by closed forms alone, at once: where they are not exact, times are unknown and the end is estimated."""
    return _told(situation, problem, follow=False)


def _told(situation: Situation, problem: Regression | OwnSamples | None, *, follow: bool) -> NetworkPrediction:
    frame, normalisation, prepared, hidden, bottleneck, best, floor, u, s, vt, kept, plan, state = _begun(
        situation, problem
    )
    within_reach, training = kept, situation.training
    optimiser = Optimiser(training.beta, training.nesterov, training.averaged, training.decay, training.decoupled)
    chain = Chain(frame, [np.asarray(w) for w in state.layers], hidden, optimiser.mu)
    beyond = int(np.sum(np.linalg.svd(frame.limit, compute_uv=False) > _ROUNDING * s[0]) - kept)
    rest = rested(chain, s[0]) if optimiser.mu else None
    if rest is not None:
        best = chain.matrix(rest)
        floor = frame.loss(best)
        u, s, vt = np.linalg.svd(best, full_matrices=False)
        kept = int(np.sum(s > _DECAYED * s[0]))
    signal = training.signal
    if signal is not None and signal > kept:
        raise InputError(f"training.signal = {signal} is not allowed: there are {kept} modes to learn.")
    modes = modes_of(frame, state, u[:, :kept], s[:kept], vt[:kept].T)
    course = coursed(frame, state, chain, modes, plan, training.lr, optimiser, rest, follow=follow)
    lr, verdict, clock, end = course.lr, course.verdict, course.clock, course.end
    settles = verdict.outcome is NetworkOutcome.CONVERGES
    told = _modes(course)
    cost = frame.loss(matrix_of(state))
    fits = floor + frame.unexplained <= _ROUNDING * cost
    batches = None if training.batch is None else bearable(chain, frame, end, training.batch, optimiser, fits)
    return NetworkPrediction(
        prepared=prepared,
        title=situation.title,
        samples=frame.samples,
        inputs=frame.d_in,
        outputs=frame.d_out,
        rank=frame.d_in if frame.samples is None else frame.scales.size,
        condition=float(frame.scales[0] / frame.scales[-1]),
        normalisation=normalisation,
        depth=plan.depth,
        hidden=hidden,
        bottleneck=bottleneck,
        start=NetworkStart(kind=situation.start.kind, scale=plan.scale, seed=situation.start.seed),
        loss=Loss(cost + frame.unexplained, (floor if floor > 1e-20 * cost else 0.0) + frame.unexplained),
        regime=Regime.of_all([mode.regime for mode in told]),
        modes=told,
        modes_out_of_reach=beyond,
        modes_lost_to_decay=within_reach - kept,
        predictor_norm=float(np.linalg.norm(s[:kept])),
        lr=lr,
        lr_chosen=training.lr == "auto",
        **optimiser._asdict(),
        end=end.kind,
        largest_stable_lr=_bears(course.edges.end, optimiser),
        largest_stable_lr_at_start=_bears(course.edges.start, optimiser),
        largest_stable_lr_at_flattest_end=_bears(course.edges.flattest, optimiser),
        batch=training.batch,
        largest_stable_lr_with_batches=None if batches is None else batches[0],
        outcome=verdict.outcome,
        explanation=verdict.explanation,
        modes_mix=None if verdict.mix is None else When(verdict.mix * lr, verdict.mix),
        fit=clock.when(clock.fit(FIT)) if settles else NEVER,
        learned=clock.when(clock.predictor(LEARNED)) if settles else NEVER,
        stop=_stop(clock, signal) if signal is not None and settles else None,
        theory=_sources(frame, plan, state, course, optimiser) + (() if batches is None else batches[1:]),
        frame=frame,
        state=state,
        clock=clock,
    )


def _bears(sharpness: float, optimiser: Optimiser) -> float:
    """The largest stable step at this sharpness."""
    if math.isnan(sharpness):
        return math.nan
    if not optimiser.plain:
        return float(optimiser.largest(sharpness))
    return 2 / sharpness if sharpness > 0 else math.inf


def _modes(course: Course) -> tuple[NetworkMode, ...]:
    """What is told of every mode."""
    modes, verdict, end = course.clock.modes, course.verdict, course.end
    # a kernel that shrinks has changed as well; of deep layers at an unknown end only the least that it grows is known
    growth = course.growth
    changed = growth if end.kind is NetworkEnd.BALANCED else np.maximum(growth, 1 / np.maximum(growth, 1e-300))
    return tuple(
        NetworkMode(
            value=float(value),
            regime=Regime.of_growth(changed[i]),
            kernel_growth=float(growth[i]),
            crosstalk=float(modes.crosstalk[i]),
            half_learned=course.clock.half(i),
            layers=None if end.kind is NetworkEnd.BALANCED else tuple(map(float, end.layers[:, i])),
            fate=verdict.modes[i].fate,
            period=verdict.modes[i].period,
            between=verdict.between[i],
        )
        for i, value in enumerate(modes.value)
    )


def _stop(clock: Clock | Path, signal: int) -> StopWindow:
    """Between signal and noise, where the user says which modes are signal."""
    learned = float(np.max([clock.learned(i, SIGNAL) for i in range(signal)]))
    noise = [clock.reached(i, NOISE) for i in range(signal, clock.modes.value.size)]
    begins = float(np.min(noise, initial=math.inf))
    return StopWindow(
        signal=signal,
        signal_learned=clock.when(learned),
        noise_begins=clock.when(begins) if noise else When(math.inf, math.inf),
        open=None if math.isnan(learned + begins) else learned < begins,
    )


def _sources(frame: Frame, plan: Plan, state: Weights, course: Course, optimiser: Optimiser) -> tuple[Source, ...]:
    """For each figure where it is from, and how far what it needs is true here."""
    least = " of balanced layers, the least there is" if course.end.kind is NetworkEnd.BALANCED else ""
    words = f"lazy below {LAZY_BELOW:g}, rich above {RICH_ABOVE:g}"
    return (
        Source("regimes", f"growth of each mode's kernel{least}: {words}"),
        _times_with_momentum(course, optimiser) if optimiser.beta else _times(frame, plan, state, course),
        _steps(course, optimiser),
        _end(frame, optimiser),
    )


def _end(frame: Frame, optimiser: Optimiser) -> Source:
    """Where the end is from."""
    if not optimiser.mu:
        return Source("the end", "the best fit of the rank that the widths allow", ("nonlocal/C1", "nonlocal/C4"))
    spread = float(1 - (frame.scales[-1] / frame.scales[0]) ** 2)
    words = f"the minimum with {optimiser.words()} to which the flow leads from this start"
    if spread > ALONE:
        return Source("the end", words)
    white, ratio = Hypothesis.of("inputs are white (spread of X^T X)", spread), optimiser.mu / frame.scales[0] ** 2
    return Source("the end", f"{words}: (s - value) value^(1 - 2/L) = {ratio:.4g}", ("optimisers/C6",), (white,))


def _steps(course: Course, optimiser: Optimiser) -> Source:
    """Where step sizes are from."""
    where = _WHERE[course.end.kind]
    if optimiser.plain:
        return Source("step sizes", f"2 over the sharpness {where}", ("spectral/C25", "stability/C1"))
    claims = ("optimisers/C1", "optimisers/C2", "optimisers/C3") + (("optimisers/C4",) if optimiser.decay else ())
    return Source("step sizes", f"the limit of {optimiser.words()} at the sharpness {where}", claims)


def _times_with_momentum(course: Course, optimiser: Optimiser) -> Source:
    """The steps themselves tell times, then the flow that they follow; where neither arrives, layers are those of the
    flow of the loss.
    """
    clock = course.clock
    assert isinstance(clock, Path)
    words = f"training itself with {optimiser.words()}, step by step up to step {clock.way.exact:,}"
    if clock.last > clock.way.exact:
        words += f", then integrated as the flow that it follows, up to step {clock.last:,.0f}"
    if clock.way.arrived:
        return Source("times and layers", words, ("optimisers/C8",))
    short = course.lr / optimiser.short(max(course.edges.start, course.edges.end))
    needs = Hypothesis.of("steps follow the flow (lr over the shortest that overshoots)", short)
    return Source("times and layers", f"{words}; layers where the flow ends", ("optimisers/C8",), (needs,))


def _times(frame: Frame, plan: Plan, state: Weights, course: Course) -> Source:
    """Where times and layers are from."""
    clock = course.clock
    if isinstance(clock, Path):
        followed = f"descent itself, step by step up to step {clock.way.exact:,}"
        if clock.last > clock.way.exact:
            followed += f", then integrated as the flow that it follows, up to step {clock.last:,.0f}"
        return Source("times and layers", followed)
    modes = clock.modes
    off = frame.scales[:, None] ** 2 * modes.right - modes.curvature * modes.right
    apart = float(np.max(np.linalg.norm(off, axis=0) / modes.curvature))
    needs = [Hypothesis.of("modes are principal axes of the inputs", apart)]
    if plan.drawn:
        needs.append(Hypothesis.of("modes share no neurons", float(np.max(modes.crosstalk))))
    if plan.guess:
        needs.append(Hypothesis.of("the kernel stays as drawn", float(np.max(clock.growth))))
    steps = float(np.max(clock.lr * modes.curvature * clock.kernel))
    needs.append(Hypothesis.of("steps are short (lr times curvature)", steps))
    origin, claims = _times_from(plan)
    lam = state.balance() if plan.depth == 2 and plan.aligned else None
    if lam is not None and np.ptp(frame.scales) <= ALONE * frame.scales[0]:
        origin += f"; layers in balance (lambda = {lam:.4g}) on white inputs: closed form, exact"
        claims += ("balance/C9",)
    return Source("times and layers", origin, claims, tuple(needs))


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
