"""Times read off a training run that was followed numerically."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from linnet.curves import crossing, last_crossing
from linnet.prediction.prediction import Time
from linnet.prediction.theories.network.following import Solution
from linnet.prediction.theories.network.modes import HALF, NetworkModes, Samples

_READING, _BETWEEN = 1e-3, 0.1  # relative, and in steps: the error of what is read between two steps


class FollowedTimes(NamedTuple):
    """When each mode passes which value, read off a solution; NaN beyond its end. Times are lr times steps."""

    modes: NetworkModes
    solution: Solution
    lr: float

    def curve(self, i: int) -> Samples:
        """Values of mode i, and their times."""
        return self.solution.values[:, i], self.lr * self.solution.steps

    def reached(self, i: int, share: float) -> float:
        """When mode i is at this share of its target."""
        s = self.modes.value[i]
        return 0.0 if self.modes.begin[i] >= share * s else self._crossing(self.solution.values[:, i] / s, share)

    def learned(self, i: int, share: float) -> float:
        """When mode i has come to its target up to 1 - share of it, from below or from above."""
        s = self.modes.value[i]
        if self.modes.begin[i] < s:
            return self.reached(i, share)
        return self._crossing(-self.solution.values[:, i] / s, share - 2)

    def fit(self, share: float) -> float:
        """When the excess loss is down to a share of its initial value."""
        return self._down(self.solution.values[:, -1], share)

    def predictor(self, share: float) -> float:
        """When |A - A_end| is down to a share of its initial value."""
        return self._down(self.solution.values[:, -2], share)

    def half(self, i: int) -> Time:
        """When mode i is half learned."""
        return self.when(self.reached(i, HALF))

    def when(self, time: float) -> Time:
        """A time with its error: of reading between steps, and of the flow that stands for them."""
        step = time / self.lr
        if math.isnan(step):
            return Time(step, step, not_before=float(self.lr * self.solution.steps[-1]))
        if step <= 0:
            return Time(time, step, 0.0)
        if step > self.solution.left:
            return Time(time, step, None)
        flow = self.solution.flow_error * max(step - self.solution.exact, 0.0) / step
        return Time(time, step, max(_READING, _BETWEEN / step) + flow)

    @property
    def last(self) -> float:
        """The last step of the solution."""
        return float(self.solution.steps[-1])

    def _down(self, curve: Float[np.ndarray, " points"], share: float) -> float:
        if curve[0] <= 0:
            return 0.0
        learned = -np.log(np.maximum(curve / curve[0], 1e-300))
        if self.solution.returns:
            return self.lr * last_crossing(self.solution.steps, learned, -math.log(share))
        return self._crossing(learned, -math.log(share))

    def _crossing(self, curve: Float[np.ndarray, " points"], level: float) -> float:
        return self.lr * crossing(self.solution.steps, curve, level, "line")
