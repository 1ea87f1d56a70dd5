"""What flows of the averaged weights share: the center of descent's oscillation at the edge of stability."""

import abc
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float, Num

from linnet import _check
from linnet._check import InputError
from linnet.optim.discrete import DiscreteDynamics
from linnet.optim.dynamics import Averages
from linnet.problems import Problem
from linnet.states import Pair, State


class AveragedDescent(DiscreteDynamics):
    """Steps of the center of gradient descent, averaged over its oscillation; the state is that center.

    A step stands for one step of descent with the learning rate `lr`, so that the two compare step by step. A subclass
    gives `averages`, which the observables `predicted_loss`, `oscillation`, and `critical_directions` read.
    """

    lr: Float[Array, ""]

    def __init__(self, lr: Any):
        self.lr = _check.number("lr", lr, above=0)

    def time(self, clock: Num[Array, "*n"]) -> Float[Array, "*n"]:
        """lr times the number of steps, as for descent."""
        return clock * self.lr

    def check(self, problem: Problem, state: State) -> None:
        if isinstance(state, Pair) or not state.weighted:
            raise InputError(
                f"{type(state).__name__} does not have the weights of one network, whose oscillation "
                f"{type(self).__name__} averages: use Weights, Modes, RankOne or Network."
            )

    def stability_threshold(self, step: Any) -> Float[Array, ""] | None:
        """2/lr, that of the descent it averages."""
        return 2 / self.lr

    @abc.abstractmethod
    def averages(self, problem: Problem, state: Any, memory: Any) -> Averages:
        """The predicted mean loss and covariance of descent around this state."""


def gradient(problem: Problem, state: Any, weights: Any) -> Any:
    """dC/dtheta with these weights in the place of the state's own, a tree in the shape of `state.trained()`."""
    return jax.tree.map(lambda v: -v, eqx.combine(weights, state).velocity(problem).trained())


def cost(problem: Problem, state: Any, weights: Any) -> Float[Array, ""]:
    """C with these weights in the place of the state's own."""
    return problem.cost(eqx.combine(weights, state).matrix)
