"""`predict`: what theory says about a problem, a network, and an optimizer."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from linnet import _check
from linnet._check import InputError
from linnet.optim import Dynamics
from linnet.prediction import coerce
from linnet.prediction.assumption import Assumption, Holds, NotApplicable
from linnet.prediction.prediction import Prediction
from linnet.prediction.theories import balance, bias, edge, features, landscape, layer, network, phase, rates, stability
from linnet.problems import Problem
from linnet.states import State

# the theories of a triple, in the order in which they are shown
_THEORIES: dict[str, Callable[..., Prediction]] = {
    "network": network.network,
    "stability": stability.stability,
    "balance": balance.balance,
    "bias": bias.for_triple,
    "phase": phase.for_triple,
    "rates": rates.rates,
    "landscape": landscape.for_triple,
    "features": features.for_triple,
    "layer": layer.for_triple,
    "edge": edge.for_triple,
}
_LAST = "edge"  # evaluated after the others: their results decide whether the learning rate is beyond the edge


def predict(problem: Problem, network: State, optimizer: Any = None) -> Prediction:
    """Predicts the outcome of `simulate(problem, network, optimizer)` from theory.

    - `problem`: such as `regression(X, y)` or `factorization(M)`.
    - `network`: `Weights` or any other state that a theory knows.
    - `optimizer`: such as `SGD(lr)`; None is gradient descent with a learning rate that the theory chooses.

    Every theory is evaluated where it applies. The first that applies is the prediction, with the others under
    `parts`, and under `unmet` those that do not apply, each with the assumption that fails. `linnet.prediction` has
    each by its name. Raises `InputError` where none applies.

        problem = ln.regression(X, y)
        network = ln.init.gaussian(jax.random.key(0), problem, width=64, variance=0.01)
        prediction = ln.predict(problem, network, ln.optim.SGD(0.1, momentum=0.9))
        prediction.learned.step, prediction["largest_stable_lr"].source
        prediction.measure()                              # the exact run beside it
    """
    if not isinstance(problem, Problem) or not isinstance(network, State):
        raise InputError(
            f"predict takes a problem and a network, such as ln.regression(X, y) and ln.Weights(layers): it was given "
            f"{type(problem).__name__} and {type(network).__name__}."
        )
    if optimizer is not None and not isinstance(optimizer, Dynamics):
        raise InputError(
            f"optimizer = {_check.show(optimizer)} is not allowed: use an optimizer such as ln.optim.SGD(lr=0.1)."
        )
    coerce.same_shape(network, problem.shape)
    found: list[Prediction] = []
    unmet: list[tuple[str, Assumption]] = []
    for name, theory in _THEORIES.items():
        try:
            known = (tuple(found),) if name == _LAST else ()
            found.append(theory(problem, network, optimizer, *known))
        except NotApplicable as error:
            unmet.append((name, error.assumption))
        except InputError as error:  # a size or a number that this theory does not take
            unmet.append((name, Assumption(str(error).removesuffix("."), math.nan, Holds.NOT)))
    if not found:
        reasons = "; ".join(f"{name} needs {assumption.name}" for name, assumption in unmet)
        raise InputError(f"no theory applies to this problem, network, and optimizer: {reasons}.")
    return replace(found[0], parts=tuple(found[1:]), unmet=tuple(unmet))
