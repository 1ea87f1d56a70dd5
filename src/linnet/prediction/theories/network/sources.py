"""Where the quantities of a network's prediction come from."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from linnet.optim import SGD
from linnet.prediction.assumption import Assumption, Source
from linnet.prediction.reduced import ReducedRegression
from linnet.prediction.theories.network.analysis import Analysis
from linnet.prediction.theories.network.end import NetworkEnd
from linnet.prediction.theories.network.initialization import Initialization
from linnet.prediction.theories.network.modes import ALONE
from linnet.prediction.theories.network.thresholds import is_plain, largest_monotone_lr
from linnet.prediction.theories.network.times import FollowedTimes
from linnet.states import measured_balance
from linnet.theory.regime import LAZY_BELOW, RICH_ABOVE

if TYPE_CHECKING:
    from linnet.prediction.theories.network.result import Setup

_BALANCED = 1e-10
_WHERE = {
    NetworkEnd.REACHED: "where this initialization ends",
    NetworkEnd.ESTIMATED: "where this initialization ends, if its modes share no neurons",
    NetworkEnd.BALANCED: "where balanced layers end; other ends are sharper",
}


def regimes(end: NetworkEnd) -> Source:
    """Of the regimes."""
    least = " of balanced layers, the least there is" if end is NetworkEnd.BALANCED else ""
    return Source(f"growth of each mode's kernel{least}: lazy below {LAZY_BELOW:g}, rich above {RICH_ABOVE:g}")


def final(reduction: ReducedRegression, optimizer: SGD) -> Source:
    """Of the predictor where training ends."""
    decay = float(optimizer.effective_decay)
    if not decay:
        return Source("the best fit of the rank that the widths allow", ("nonlocal/C1", "nonlocal/C4"))
    origin = f"the minimum with {optimizer.description} to which the flow leads from this initialization"
    if reduction.spread > ALONE:
        return Source(origin)
    white = Assumption.of("inputs are white (spread of X^T X)", reduction.spread)
    ratio = decay / reduction.scales[0] ** 2
    return Source(f"{origin}: (s - value) value^(1 - 2/L) = {ratio:.4g}", ("optimizers/C6",), (white,))


def rates(end: NetworkEnd, optimizer: SGD) -> Source:
    """Of the largest stable learning rates."""
    if is_plain(optimizer):
        return Source(f"2 over the sharpness {_WHERE[end]}", ("spectral/C25", "stability/C1"))
    decay = () if optimizer.weight_decay is None else ("optimizers/C4",)
    claims = ("optimizers/C1", "optimizers/C2", "optimizers/C3", *decay)
    return Source(f"the limit of {optimizer.description} at the sharpness {_WHERE[end]}", claims)


def times(setup: "Setup", initialization: Initialization, layers: Sequence[np.ndarray], analysis: Analysis) -> Source:
    """Of times and layers."""
    times, optimizer = analysis.times, setup.optimizer
    if isinstance(times, FollowedTimes):
        what = f"training itself with {optimizer.description}" if optimizer.momentum is not None else "descent itself"
        origin = f"{what}, step by step up to step {times.solution.exact:,}"
        if times.last > times.solution.exact:
            origin += f", then integrated as the flow that it follows, up to step {times.last:,.0f}"
        if optimizer.momentum is None:
            return Source(origin)
        if times.solution.arrived:
            return Source(origin, ("optimizers/C8",))
        top = max(analysis.sharpness.initial, analysis.sharpness.end)
        short = analysis.lr / largest_monotone_lr(optimizer, top)
        follows = Assumption.of("steps follow the flow (lr over the least that overshoots)", short)
        return Source(f"{origin}; layers where the flow ends", ("optimizers/C8",), (follows,))
    modes, reduction = times.modes, setup.reduction
    off = reduction.scales[:, None] ** 2 * modes.right - modes.curvature * modes.right
    apart = float(np.max(np.linalg.norm(off, axis=0) / modes.curvature))
    assumptions = [Assumption.of("modes are principal axes of the inputs", apart)]
    if initialization.mixed:
        assumptions.append(Assumption.of("modes share no neurons", float(np.max(modes.crosstalk))))
    if initialization.unknown:
        assumptions.append(Assumption.of("the kernel stays as drawn", float(np.max(times.growth))))
    steps = float(np.max(times.lr * modes.curvature * times.kernel))
    assumptions.append(Assumption.of("steps are short (lr times curvature)", steps))
    origin, claims = _closed_form(initialization)
    if initialization.depth == 2 and initialization.aligned and reduction.spread <= ALONE:
        balance = measured_balance(*layers)
        if balance.defect <= _BALANCED:
            lam = float(balance.lam)
            origin += f"; layers in balance (lambda = {lam:.4g}) on white inputs: closed form, exact"
            claims += ("balance/C9",)
    return Source(origin, claims, tuple(assumptions))


def _closed_form(initialization: Initialization) -> tuple[str, tuple[str, ...]]:
    """The theory of times and layers, and its claims."""
    if initialization.depth == 1:
        return "one layer, whose modes decay exponentially", ()
    if initialization.depth == 2 and initialization.kind == "one-zero":
        return "spectral bias from I_gamma, gamma = scale^2/2", ("spectral/C8", "spectral/C14")
    if initialization.depth == 2:
        return "the mixed flow, each mode with the c that it starts with", ("mixed/C4", "mixed/C6")
    if initialization.aligned:
        return "modes of aligned layers, by quadrature", ("stability/C7", "stability/C9")
    return "a constant kernel, where it is far above what the target needs; otherwise unknown", ()
