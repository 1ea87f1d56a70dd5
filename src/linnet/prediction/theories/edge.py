"""Where gradient descent settles beyond the edge of stability, on average: the end of the rod flow.

At rest the ends of the rod, c + D and c - D, are a 2-cycle of descent, at any distance from the edge (flows/C1). That
descent comes to the 2-cycle to which the rod comes is no theorem: it is measured (docs/trust.md), and predicted only
where that 2-cycle attracts descent.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from linnet import observe
from linnet._check import InputError, has_kinks
from linnet.observe import observable
from linnet.optim import SGD, RodFlow
from linnet.outcome import Status
from linnet.prediction.assumption import Assumption, NotApplicable, Source
from linnet.prediction.numbers import plural
from linnet.prediction.panel import Curve, Panel
from linnet.prediction.prediction import Comparison, ExactRun, Prediction, Progress, Quantity, facts
from linnet.prediction.theories.gradient_flow import descent_lr, require
from linnet.problems import Custom, Problem
from linnet.record import every, linear
from linnet.simulation import simulate
from linnet.states import Network, State, Weights
from linnet.trajectory import Trajectory

STEPS = 20_000  # of the rod, at most
WINDOW = 200  # steps of descent over which is averaged
_CHUNK, _RECORD = 2000, 10  # steps of the rod between two checks of it, and between two records
_AT_REST, _NEARLY = 1e-9, 1e-4  # of the rod's length, what a step of descent misses the other end by
_POINT = 1e-6  # of the weights' length: a shorter rod is a point
_LEAST = 1e-3  # of the weights' length, with which what is missed is compared there
_ROUNDING = 1e-20  # of the initial loss
_BEYOND = 0.05  # by which lr S / 2 may exceed 1 at the initialization
_PRODUCTS, _GROWTH = 1000, 1e-3  # two steps of descent, linearized, and the most that they may grow by at the end

# relative errors to expect of linear networks: above the worst of 24 random situations (docs/trust.md), with a margin
# of three to fifty times, because these few do not show the worst there is
ERRORS: dict[str, dict[str, float]] = {
    "2-cycle": {"mean_loss": 1e-5, "amplitude": 1e-4, "mean_predictor_norm": 1e-3, "distance": 1e-2},
    "minimum": {"mean_loss": 1e-12, "mean_predictor_norm": 5e-3, "distance": 0.1},
}


_AVERAGES = {
    "mean_loss": "mean loss",
    "amplitude": "amplitude of the weights, the root of the trace of their covariance",
    "mean_predictor_norm": "norm of the averaged predictor",
    "distance": "distance of the averaged weights from the initialization",
}


class _End(NamedTuple):
    """The ends c + D and c - D of the rod, by how much descent misses each from the other, and |D| over |c|."""

    ahead: Any
    behind: Any
    defect: float
    length: float


def edge(problem: Problem, network: State, optimizer: Any) -> Prediction:
    """Mean loss, amplitude, and mean weights of gradient descent where it settles beyond the edge of stability.

    `RodFlow` is followed for at most 20,000 steps. The prediction is its end, where that is at rest and attracts
    descent: a 2-cycle of descent, or a minimum with lr S < 2, at which no oscillation is left.

    - `problem`, `network`: a cost with three derivatives, and a state with the weights of one network.
    - `optimizer`: `SGD` with a constant learning rate and nothing else.

    `measure()` trains for as many steps as the rod took, and averages over the last 200. `compare(run)` takes a run
    recorded at each of its last 200 steps: of its `loss`, and where they were observed of its `matrix` and of
    `weights`, which is an observable of all weights in a row.

    Raises:
        NotApplicable: for other problems, states, and optimizers; where the initialization is beyond the edge
            (lr S / 2 > 1.05), where the rod does not settle, and where its end does not attract descent, as in chaos.

    """
    lr = _lr(problem, network, optimizer)
    smooth = Assumption.of("a cost with three derivatives", float(_kinked(problem, network))).required("edge")
    sharp = float(observe.sharpness(network, problem))
    initial = Assumption.of(
        "an initialization that is not beyond the edge (lr S / 2 - 1)",
        max(0.0, lr * sharp / 2 - 1),
        rough=_BEYOND * (1 + 1e-12),
    ).required("edge")
    run, end = _followed(problem, network, lr)
    rest = Assumption.of("a rod that settles (what a step misses its other end by)", end.defect, rough=_NEARLY)
    rest.required("edge")
    growth = _growth(problem, end, lr)
    name = "an end that attracts descent (growth of a perturbation in two steps, less 1)"
    attracts = Assumption.of(name, max(0.0, growth - 1), exact=1e-6, rough=_GROWTH).required("edge")
    cycles, steps = end.length > _POINT, int(run.ended)
    values = _averages(problem, network, end, cycles)
    source = Source(
        "the end of the rod flow, a " + ("2-cycle of descent" if cycles else "minimum"),
        ("flows/C1",),
        (smooth, initial, rest, attracts),
    )
    settles_at = "2-cycle" if cycles else "minimum"
    errors = ERRORS[settles_at] if isinstance(network, Weights) else {}
    averages = (
        Quantity(name, values[name], text, error=errors.get(name), source=source) for name, text in _AVERAGES.items()
    )
    return Prediction(
        topic="edge",
        headline=(
            f"[bold]It settles on a 2-cycle[/] of mean loss {values['mean_loss']:.4g}."
            if cycles
            else f"[bold]It converges[/] to a minimum that is stable at this lr, of loss {values['mean_loss']:.4g}."
        ),
        setting=f"lr = {lr:.6g}, the rod followed for {plural(steps, 'step')} of at most {STEPS:,}.",
        quantities=(
            *facts(lr=lr, steps=steps),
            Quantity("settles_at", settles_at, "it settles at a", source=source),
            *averages,
            Quantity("growth", growth, "growth of a perturbation of it in two steps", source=source),
        ),
        problem=problem,
        network=network,
        optimizer=optimizer,
        panels=_panels,
        experiment=_experiment(problem, network, lr, steps),
        data={"rod": run, "ends": (end.ahead, end.behind)},
    )


def for_triple(problem: Any, network: Any, optimizer: Any, found: Sequence[Prediction] = ()) -> Prediction:
    """`edge` where another theory knows the sharpness at the end of training, and the learning rate is beyond it.

    - `found`: predictions of other theories about this triple.
    """
    lr = _lr(problem, network, optimizer)
    largest = [one.largest_stable_lr for one in found if one.topic in ("network", "stability")]
    known = [value for value in largest if math.isfinite(value)]
    if not known:
        why = "a theory that knows the sharpness at the end of training (prediction.edge itself follows the rod)"
        raise NotApplicable("edge", Assumption.fails(why))
    require(
        "edge", "a learning rate beyond the edge (largest stable lr over lr, less 1)", min(known) / lr - 1, exact=0.0
    )
    return edge(problem, network, optimizer)


def _lr(problem: Any, network: Any, optimizer: Any) -> float:
    """The learning rate of a triple to which the theory may apply; nothing is computed."""
    if not isinstance(problem, Problem) or not isinstance(network, State):
        raise InputError(
            f"edge takes a problem and a network, such as ln.regression(X, y) and ln.Weights(layers): it was given "
            f"{type(problem).__name__} and {type(network).__name__}."
        )
    lr = descent_lr("edge", optimizer)
    try:
        RodFlow(jnp.asarray(lr)).check(problem, network)
    except InputError as error:
        raise NotApplicable("edge", Assumption.fails("a state with the weights of one network"), str(error)) from None
    return lr


def _kinked(problem: Problem, network: State) -> bool:
    """Whether the cost lacks derivatives, as with relu."""
    kinks = isinstance(network, Network) and has_kinks(lambda w: eqx.combine(w, network).matrix, network.trained())
    return kinks or (isinstance(problem, Custom) and has_kinks(problem.cost, jnp.zeros(problem.shape)))


def _followed(problem: Any, network: Any, lr: float) -> tuple[Any, _End]:
    """The rod, until it is at rest or for `STEPS` steps, and its end."""
    run = None
    for _ in range(STEPS // _CHUNK):
        run = simulate(
            problem,
            network,
            RodFlow(jnp.asarray(lr)),
            steps=_CHUNK,
            record=every(_RECORD),
            observe=["predicted_loss", "oscillation"],
            resume_from=run,
        )
        if run.status == Status.DIVERGED:
            raise NotApplicable("edge", Assumption.fails("a rod that settles: it diverges"))
        end = _end(problem, run, lr)
        if end.defect <= _AT_REST:
            break
    return run, end


def _end(problem: Any, run: Any, lr: float) -> _End:
    center, rod = run.final, run.memory
    ahead, behind = (eqx.combine(jax.tree.map(add, center.trained(), rod), center) for add in (jnp.add, jnp.subtract))
    missed = max(
        float(np.linalg.norm(_flat(here.descend(problem, lr)) - _flat(there)))
        for here, there in ((ahead, behind), (behind, ahead))
    )
    size, length = (float(np.linalg.norm(_flat(part))) for part in (center, run.memory))
    share = length / max(size, 1e-300)
    return _End(ahead, behind, missed / (length if share > _POINT else _LEAST * size), share)


def _flat(tree: Any) -> np.ndarray:
    return np.asarray(ravel_pytree(tree.trained() if isinstance(tree, State) else tree)[0])


def _growth(problem: Any, end: _End, lr: float) -> float:
    """The largest modulus of an eigenvalue of the derivative of two steps of descent around the end.

    By powers of it: the geometric mean of the growth in the second half of them.
    """
    points = [point.trained() for point in (end.ahead, end.behind)]
    flat, tree = ravel_pytree(points[0])

    def step(weights: Any) -> Any:
        return eqx.combine(weights, end.ahead).descend(problem, lr).trained()

    def twice(along: Any, _: None) -> tuple[Any, Any]:
        moved = tree(along)
        for point in points:
            moved = jax.jvp(step, (point,), (moved,))[1]
        out = ravel_pytree(moved)[0]
        norm = jnp.maximum(jnp.linalg.norm(out), np.finfo(out.dtype).tiny)
        return out / norm, norm

    first = jax.random.normal(jax.random.key(0), flat.shape, flat.dtype)
    _, norms = jax.jit(lambda v: jax.lax.scan(twice, v / jnp.linalg.norm(v), None, length=_PRODUCTS))(first)
    return float(np.exp(np.mean(np.log(np.asarray(norms)[_PRODUCTS // 2 :]))))


def _averages(problem: Any, network: Any, end: _End, cycles: bool) -> dict[str, float]:
    """Means over the two ends; a rod that is a point has no amplitude."""
    states = (end.ahead, end.behind)
    ahead, behind = map(_flat, states)
    loss = sum(float(problem.cost(state.matrix)) for state in states) / 2
    return {
        "mean_loss": loss if loss > _ROUNDING * float(problem.cost(network.matrix)) else 0.0,
        "amplitude": float(np.linalg.norm(ahead - behind)) / 2 if cycles else 0.0,
        "mean_predictor_norm": float(np.linalg.norm(sum(np.asarray(state.matrix) for state in states) / 2)),
        "distance": float(np.linalg.norm((ahead + behind) / 2 - _flat(network))),
    }


# Descent itself ------------------------------------------------------------------------------------------------------


@observable()
def weights(state: Any, problem: Any) -> Float[Array, " weights"]:
    """All weights, in a row"""
    return ravel_pytree(state.trained())[0]


def _experiment(problem: Any, network: Any, lr: float, steps: int) -> ExactRun:
    """Descent for so many steps; of the last ones all are recorded."""
    observed: dict[str, Any] = {"loss": "loss", "matrix": "matrix", "weights": weights}

    def run(progress: Progress | None) -> Trajectory:
        first = simulate(problem, network, SGD(lr), steps=steps - WINDOW, record=linear(2), progress=progress)
        if first.status == Status.DIVERGED:
            return first
        return simulate(problem, first.final, SGD(lr), steps=WINDOW - 1, record=every(1), observe=observed)

    def read(run: Trajectory) -> tuple[Quantity, ...]:
        return _read(network, run)

    return ExactRun(run, read, observed, optional=("matrix", "weights"))


def _read(network: Any, run: Trajectory) -> tuple[Quantity, ...]:
    """Averages over the last steps, of what the run has recorded."""
    status = Quantity("status", str(run.status), "status")
    if run.status == Status.DIVERGED:
        return (status, Quantity("mean_loss", math.inf))
    taken = np.asarray(run.steps)
    if not np.array_equal(taken[-WINDOW:], np.arange(taken[-1] - WINDOW + 1, taken[-1] + 1)):
        raise InputError(
            f"the run is not recorded at each of its last {WINDOW} steps, over which the loss is averaged."
        )
    late = {name: np.asarray(run[name])[-WINDOW:] for name in run.values}
    found = [status, Quantity("mean_loss", float(np.mean(late["loss"])))]
    if "matrix" in late:
        found.append(Quantity("mean_predictor_norm", float(np.linalg.norm(np.mean(late["matrix"], axis=0)))))
    if "weights" in late:
        initial = np.asarray(ravel_pytree(network.trained())[0])
        found.append(Quantity("amplitude", float(np.sqrt(np.sum(np.var(late["weights"], axis=0))))))
        found.append(Quantity("distance", float(np.linalg.norm(np.mean(late["weights"], axis=0) - initial))))
    return tuple(found)


def _panels(prediction: Prediction, comparison: Comparison | None) -> list[Panel]:
    """The mean loss and the amplitude along the rod, with those of the run's last steps if there is one."""
    rod = prediction.data["rod"]
    steps = np.asarray(rod.steps)
    loss = [Curve("rod, mean loss", steps, np.asarray(rod["predicted_loss"]), "theory")]
    size = [Curve("rod", steps, np.sqrt(np.asarray(rod["oscillation"])), "theory")]
    if comparison is not None:
        last = steps[-1:]
        loss.append(Curve("descent, last steps", last, np.array([comparison["mean_loss"].value]), "squares"))
        if "amplitude" in comparison:
            size.append(Curve("descent, last steps", last, np.array([comparison["amplitude"].value]), "squares"))
    return [Panel(tuple(loss), "", "step", "loss", log="y"), Panel(tuple(size), "", "step", "amplitude", log="y")]
