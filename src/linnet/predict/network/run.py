"""The exact descent of a network, beside its prediction."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from linnet import observe
from linnet.curves import crossing
from linnet.motion import MiniBatch, loss_below
from linnet.predict.answer import Progress, When
from linnet.predict.network.modes import HALF, Modes, layer_values, squares
from linnet.predict.network.path import Path
from linnet.predict.network.result import FIT, LEARNED, Curves, MeasuredMode, NetworkMeasured, NetworkPrediction
from linnet.predict.network.step import Between
from linnet.record import at, every
from linnet.simulation import simulate
from linnet.states import Weights

LATE = 128  # steps over which the range of what goes on moving is told
_MOST_STEPS, _RECORDS, _CLOSELY = 300_000, 300, 8
_ENTRIES = 10_000_000  # of the matrices that are kept
_FADED = 15  # over decay times steps: layers are alike, to all digits of the loss


def measured(said: NetworkPrediction, progress: Progress | None) -> NetworkMeasured:
    """Training of the network itself, in the frame of the samples and compressed: exact."""
    modes, lr, mu = said.clock.modes, said.lr, said.optimiser.mu
    floor = said.frame.best(said.bottleneck)[1]
    begin = said.frame.loss(np.asarray(said.state.matrix))
    if mu:  # all losses are those with decay in them
        floor = said.frame.loss(modes.matrix) + mu / 2 * squares(modes.value, said.depth)
        begin += mu / 2 * float(_weights(said.state))
    begin = max(begin - floor, 1e-300)
    steps, goal = _horizon(said), floor + 1e-12 * begin
    how: dict[str, Any] = {
        "state": said.state,
        **_seeing(said),
        "observe": {"loss": observe.loss, "matrix": observe.matrix} | ({"weights": _weights} if mu else {}),
    }
    stop = _Below(jnp.asarray(goal), jnp.asarray(mu)) if mu else loss_below(goal)
    result = simulate(**how, steps=steps, record=at(_moments(said, steps)), stop=stop, progress=progress)
    clock, seen, loss = (np.asarray(x) for x in (result.steps, result["matrix"], result["loss"]))
    clock = clock.astype(float)
    loss = loss + mu / 2 * np.asarray(result["weights"]) if mu else loss
    final = result.final
    assert isinstance(final, Weights)
    shares = _along(modes, seen) / modes.value
    ranges: list[Between | None] = [None] * modes.value.size
    if result.status == "horizon" and not said.settles:  # where it goes on moving
        late = simulate(**how, steps=LATE, record=every(1), blowup=1e300, after=result)
        last = np.asarray(late["matrix"])[-LATE - 1 :]
        ranges = [Between(float(x.min()), float(x.max())) for x in _along(modes, last).T]
    rising = modes.begin < HALF * modes.value
    crossed = [crossing(clock, shares[:, i], HALF, "line") if rising[i] else 0.0 for i in range(modes.value.size)]
    away = np.linalg.norm(seen - modes.matrix, axis=(1, 2))
    return NetworkMeasured(
        prediction=said,
        status=result.status,
        steps=int(result.ended),
        modes=tuple(
            MeasuredMode(half_learned=_at(step, lr), between=range_)
            for step, range_ in zip(crossed, ranges, strict=True)
        ),
        fit=_at(_down(said, clock, (loss - floor) / begin, FIT), lr),
        learned=_at(_down(said, clock, away / max(away[0], 1e-300), LEARNED), lr),
        excess_loss_left=float(max(loss[-1] - floor, 0.0) / begin),
        predictor_error=float(away[-1] / np.linalg.norm(modes.value)),
        layer_error=_layer_error(said, final) if result.status == "converged" else None,
        curves=Curves(np.rint(clock).astype(int), shares * modes.value),
    )


def _seeing(said: NetworkPrediction) -> dict[str, Any]:
    """What a step sees: all samples by their moments, or a fresh batch of them, of which theory speaks."""
    if said.batch is None:
        return {"problem": said.problem, "motion": said.optimiser.motion(said.lr)}
    motion = said.optimiser.motion(said.lr, batch=MiniBatch(said.batch, draw="subset"))
    return {"problem": said.frame.sampled, "motion": motion, "key": jax.random.key(said.start.seed)}


def _along(modes: Modes, matrices: Float[np.ndarray, "records d_out rank"]) -> Float[np.ndarray, "records modes"]:
    return np.einsum("oi,toj,ji->ti", modes.left, matrices, modes.right, optimize=True)


def _weights(state: Any, problem: Any = None) -> Float[Array, ""]:
    """|W_1|^2 + ... + |W_L|^2."""
    return sum((jnp.sum(w**2) for w in state.layers), start=jnp.zeros(()))


class _Below(eqx.Module):
    """True once the loss with decay in it is below a value."""

    value: Float[Array, ""]
    decay: Float[Array, ""]

    def __call__(self, state: Any, problem: Any) -> Array:
        return problem.cost(state.matrix) + self.decay / 2 * _weights(state) < self.value


def _down(
    said: NetworkPrediction, clock: Float[np.ndarray, " records"], left: Float[np.ndarray, " records"], share: float
) -> float:
    """The step at which a share is left; with momentum, which comes back, the last one, but batches bring back all."""
    if said.beta and said.batch is None:
        left = np.append(left[:1], np.maximum.accumulate(left[:0:-1])[::-1])
    return crossing(clock, -np.log(np.maximum(left, 1e-300)), -math.log(share), "line")


def _at(step: float, lr: float) -> When:
    return When(step * lr, step, 0.0)


def _horizon(said: NetworkPrediction) -> int:
    """Far enough to settle; where no theory knows how far that is, the loss says when to stop."""
    clock = said.clock
    known = said.settles and not (said.beta and isinstance(clock, Path) and not clock.way.arrived)
    far = 1.5 * clock.last if known else math.nan
    mu = said.optimiser.mu
    # on batches nothing comes to rest with decay
    far += _FADED / (said.lr * said.optimiser.speed * mu) if mu and said.batch is None else 0.0
    return int(min(max(far, 2000), _MOST_STEPS)) if not math.isnan(far) else _unknown(said)


def _unknown(said: NetworkPrediction) -> int:
    """What is unknown may take long; what goes on moving shows soon what it does."""
    times = [mode.half_learned.step for mode in said.modes]
    known = [time for time in times if time is not None and math.isfinite(time)]
    return _MOST_STEPS if said.settles or len(known) < len(times) else int(min(max(20 * max(known), 2000), _MOST_STEPS))


def _moments(said: NetworkPrediction, steps: int) -> list[int]:
    """Steps to look at: evenly in the logarithm, and closely where something is expected to happen."""
    entries = said.frame.limit.size
    count = int(min(_RECORDS, max(_ENTRIES / entries, 20)))
    halves = [mode.half_learned.step for mode in said.modes[:_CLOSELY]]
    moments = [x for x in (*halves, said.fit.step, said.learned.step) if x is not None and math.isfinite(x)]
    near = [moment * np.linspace(0.7, 1.5, count // 5) for moment in moments]
    if said.beta:  # to and fro, so that each step counts
        assert isinstance(said.clock, Path)
        near.append(np.arange(min(said.clock.way.exact, _ENTRIES / entries) + 1))
    every_one = np.unique(np.rint(np.concatenate([[0], np.geomspace(1, steps, count), *near])))
    return [int(step) for step in every_one if step <= steps]


def _layer_error(said: NetworkPrediction, final: Weights) -> float | None:
    """Of what each layer does to each mode."""
    told = [mode.layers for mode in said.modes if mode.layers is not None]
    if not told or final.depth == 1:
        return None
    modes = said.clock.modes
    found = layer_values([np.asarray(w) for w in final.layers], modes.left, modes.right)
    return float(np.max(np.abs(found / np.array(told).T - 1)))
