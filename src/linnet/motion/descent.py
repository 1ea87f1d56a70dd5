"""Gradient descent."""

from typing import Any

from jaxtyping import Array, Float, Key, Num

from linnet import _check
from linnet.motion.stepping import Stepping
from linnet.problems import Problem
from linnet.states import State


class GradientDescent(Stepping):
    """theta <- theta - lr dC/dtheta, all coordinates at once.

    On an `EndToEnd` state this is forward Euler on its closed flow.
    """

    lr: Float[Array, ""]

    def __init__(self, lr: Any):
        self.lr = _check.number("lr", lr, above=0)

    def time(self, clock: Num[Array, "*n"]) -> Float[Array, "*n"]:
        return clock * self.lr

    def step(
        self, problem: Problem, state: State, memory: Any, prepared: Any, key: Key[Array, ""] | None
    ) -> tuple[State, Any]:
        return state.descend(problem, self.lr), memory
