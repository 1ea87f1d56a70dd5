"""The exact descent of a network, beside its prediction."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from linnet import observe
from linnet.curves import crossing
from linnet.motion import GradientDescent, loss_below
from linnet.predict.answer import Progress, When
from linnet.predict.network.clock import HALF
from linnet.predict.network.result import FIT, Curves, MeasuredMode, NetworkMeasured, NetworkPrediction
from linnet.predict.network.step import Between
from linnet.record import at, every
from linnet.simulation import simulate
from linnet.states import Weights

LATE = 128  # steps over which the range of what goes on moving is told
_MOST_STEPS, _RECORDS, _CLOSELY = 300_000, 300, 8


def measured(said: NetworkPrediction, progress: Progress | None) -> NetworkMeasured:
    """Gradient descent on the network itself, in the frame of the samples and compressed: exact."""
    modes, problem, lr = said.clock.modes, said.problem, said.lr
    floor = float(problem.optimum(said.bottleneck).cost)
    begin = max(float(problem.cost(said.state.matrix)) - floor, 1e-300)
    halves = [mode.half_learned.time / lr for mode in said.modes]
    steps = _horizon(said, halves)

    def along(state: Any, _: Any) -> Any:
        return jnp.einsum("oi,oj,ji->i", modes.left, state.matrix, modes.right)

    result = simulate(
        problem,
        said.state.compress(),
        GradientDescent(lr),
        steps=steps,
        observe={"loss": observe.loss, "modes": along},
        record=at(_moments(halves, steps)),
        stop=loss_below(floor + 1e-12 * begin),
        progress=progress,
    )
    clock, seen, loss = (np.asarray(x) for x in (result.times, result["modes"], result["loss"]))
    clock = clock / lr
    final = result.final
    assert isinstance(final, Weights)
    ranges: list[Between | None] = [None] * modes.value.size
    if result.status == "horizon" and not said.settles:  # where it goes on moving
        late = simulate(
            problem, final, GradientDescent(lr), steps=LATE, observe={"modes": along}, record=every(1), blowup=1e300
        )
        found = np.asarray(late["modes"])
        ranges = [Between(float(x.min()), float(x.max())) for x in found.T]
    rising = modes.begin < HALF * modes.value
    crossed = [crossing(clock, seen[:, i] / s, HALF) if rising[i] else 0.0 for i, s in enumerate(modes.value)]
    fit = crossing(clock, -np.log(np.maximum((loss - floor) / begin, 1e-300)), -math.log(FIT))
    return NetworkMeasured(
        prediction=said,
        status=result.status,
        steps=int(result.ended),
        modes=tuple(
            MeasuredMode(half_learned=_at(step, lr), between=range_)
            for step, range_ in zip(crossed, ranges, strict=True)
        ),
        fit=_at(fit, lr),
        excess_loss_left=float(max(loss[-1] - floor, 0.0) / begin),
        predictor_error=float(np.linalg.norm(final.matrix - modes.matrix) / np.linalg.norm(modes.value)),
        layer_error=_layer_error(said, final) if result.status == "converged" else None,
        curves=Curves(np.rint(clock).astype(int), seen),
    )


def _at(step: float, lr: float) -> When:
    return When(step * lr, step, 0.0)


def _horizon(said: NetworkPrediction, halves: list[float]) -> int:
    """Far enough to settle; where no theory knows how far that is, the loss says when to stop."""
    known = [x for x in (said.fit.time / said.lr, *halves) if not math.isnan(x)]
    far = math.inf if any(math.isnan(x) for x in halves) else 20 * max(known)
    return int(min(max(far, 2000), _MOST_STEPS))


def _moments(halves: list[float], steps: int) -> list[int]:
    """Steps to look at: evenly in the logarithm, and closely where modes are expected to be half learned."""
    wide = np.geomspace(1, steps, _RECORDS)
    near = [half * np.linspace(0.7, 1.5, 60) for half in halves[:_CLOSELY] if math.isfinite(half)]
    every_one = np.unique(np.rint(np.concatenate([[0], wide, *near])))
    return [int(step) for step in every_one if step <= steps]


def _layer_error(said: NetworkPrediction, final: Weights) -> float | None:
    told = [mode.layers for mode in said.modes if mode.layers is not None]
    if not told or final.depth == 1:
        return None
    errors = []
    for predicted, weights in zip(np.array(told).T, final.layers, strict=True):
        values = np.linalg.svd(np.asarray(weights), compute_uv=False)[: predicted.size]
        errors.append(float(np.max(np.abs(values / np.sort(predicted)[::-1] - 1))))
    return max(errors)
