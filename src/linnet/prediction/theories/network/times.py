"""When modes are learned, by closed forms or read off training that was followed, with the error to expect."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from linnet.curves import crossing, last_crossing
from linnet.prediction.prediction import Time
from linnet.prediction.reduced import ReducedRegression
from linnet.prediction.theories.network.following import Solution
from linnet.prediction.theories.network.initialization import Initialization
from linnet.prediction.theories.network.modes import HALF, NetworkModes, Samples
from linnet.theory import mixed, spectral
from linnet.theory import stability as edge
from linnet.theory.regime import RICH_ABOVE

_OVER = 0.01  # of the excess loss is left
_SHARED = 0.5  # of a mode's kernel may be crosstalk
_READING, _BETWEEN = 1e-3, 0.1  # relative, and in steps: the error of what is read between two steps


@dataclass(frozen=True, eq=False)
class ClosedFormTimes:
    """When each mode passes which value, in the time of gradient flow; NaN where no closed form holds.

    `growth` is the factor by which each mode's kernel grows until the mode is learned, `kernel` its largest value.
    """

    modes: NetworkModes
    initialization: Initialization
    growth: Float[np.ndarray, " modes"]
    kernel: Float[np.ndarray, " modes"]
    lr: float
    reduction: ReducedRegression

    def times(self, i: int, values: Any, factor: float = 1.0) -> Float[np.ndarray, " values"]:
        """The times at which mode i passes `values` between its initial value and its target; 0 for values outside.

        With two layers, for an initial kernel that is `factor` times as large.
        """
        modes, goals = self.modes, np.asarray(values, dtype=float)
        begin, s = modes.begin[i], modes.value[i]
        ahead = ((begin < goals) & (goals < s)) | ((s < goals) & (goals < begin))
        out = np.zeros(goals.shape)
        if ahead.any():
            out[ahead] = self._times(i, goals[ahead], factor)
        return out

    def learned(self, i: int, share: float) -> float:
        """When mode i has come to its target up to 1 - share of it, from below or from above."""
        s = self.modes.value[i]
        return float(self.times(i, [share * s if self.modes.begin[i] < s else (2 - share) * s])[0])

    def reached(self, i: int, share: float) -> float:
        """When mode i is at this share of its target."""
        return float(self.times(i, [share * self.modes.value[i]])[0])

    def _times(self, i: int, goals: np.ndarray, factor: float) -> np.ndarray:
        modes, initialization = self.modes, self.initialization
        s, begin, k = modes.value[i], modes.begin[i], modes.curvature[i]
        if initialization.depth == 1:
            times = np.log(np.abs(s - begin) / np.abs(s - goals))
        elif initialization.depth == 2:
            second, first = modes.grams[:, i]
            c = float(mixed.mode_scale(first, second, begin))
            times = np.asarray(mixed.mode_time(begin, goals, s, factor * c))
        elif initialization.aligned:
            values = np.full(initialization.depth, initialization.scale[0])
            if initialization.kind == "one-zero":
                values[-1] = 0.0
            times = edge.flow_time(values, goals, s)
        elif self.growth[i] < 1 / RICH_ABOVE:  # the kernel stays as at initialization
            times = np.log(np.abs(s - begin) / np.abs(s - goals)) / np.sum(modes.grams[:, i])
        else:
            times = np.full(goals.shape, math.nan)
        return np.asarray(times / k)

    def curve(self, i: int) -> Samples:
        """Values of mode i from its initial value to its target, and their times."""
        s, begin = self.modes.value[i], self.modes.begin[i]
        if begin < s:  # dense at both ends, in logarithms
            low = np.geomspace(1e-6, 0.5, 120)
            shares = np.concatenate([low, 1 - low[::-1][1:]])
            values = shares * s
            values = values[values > begin]
        else:
            values = s + (begin - s) * np.geomspace(1, 1e-6, 200)[1:]
        values = np.concatenate([[begin], values])
        return values, np.concatenate([[0.0], self.times(i, values[1:])])

    @cached_property
    def curves(self) -> tuple[Samples, ...]:
        """Those of all modes."""
        return tuple(self.curve(i) for i in range(self.modes.value.size))

    def fit(self, share: float) -> float:
        """When the excess loss 1/2 sum k_i (s_i - a_i)^2 is down to a share of its initial value."""
        return self._down(self.modes.curvature, self.modes.rest, share)

    def predictor(self, share: float) -> float:
        """When |A - A_end| is down to a share of its initial value."""
        rest = self.modes.rest / np.mean(self.modes.curvature)
        return self._down(np.ones_like(self.modes.curvature), rest, share**2)

    def _down(self, weights: Float[np.ndarray, " modes"], rest: float, share: float) -> float:
        """When sum w_i (s_i - a_i)^2 is down to a share of its initial value; NaN where it is unknown."""
        modes = self.modes
        curves = self.curves
        if any(np.isnan(times).any() for _, times in curves):
            return math.nan
        moments = np.unique(np.concatenate([times[np.isfinite(times)] for _, times in curves]))
        left = np.zeros(moments.size)
        for i, (values, times) in enumerate(curves):
            now = np.interp(moments, times, values)
            left += weights[i] * (modes.value[i] - now) ** 2
        # the rest has no target and decays with the initial kernel
        left += rest * np.exp(-2 * np.mean(modes.curvature) * np.mean(modes.kernel) * moments)
        if left[0] == 0:
            return 0.0
        if left[-1] > share * left[0]:  # some mode is never learned, or the rest outlives them all
            return math.inf if any(np.isinf(times).any() for _, times in curves) else math.nan
        k = int(np.flatnonzero(left > share * left[0])[-1])  # the last point above the share
        a, b = math.log(left[k]), math.log(max(left[k + 1], 1e-300))
        return float(moments[k] + (moments[k + 1] - moments[k]) * (a - math.log(share * left[0])) / (a - b))

    def error(self, i: int) -> float | None:
        """The relative error to expect of a time in steps, None where it is unknown.

        Descent in place of flow: what closes its gap by a share x = lr k_i kernel_i in each step needs -x / ln(1 - x)
        of the time. Neurons that modes share act as an initial kernel that is larger by the crosstalk, unless that is
        large beside the kernel of the half-learned mode, too.
        """
        modes, initialization = self.modes, self.initialization
        step = self.lr * modes.curvature[i] * self.kernel[i]
        if not modes.alone.all() or initialization.unknown or step >= 1:
            return None
        descent = float(-math.log1p(-step) / step - 1) if step > 0 else 0.0
        if not initialization.mixed:
            return descent
        s, c = modes.value[i], float(np.sum(modes.grams[:, i])) / 2
        if modes.crosstalk[i] * c > _SHARED * math.hypot(s / 2, c):  # still there when the mode is half learned
            return None
        half = [HALF * s]
        time, less = float(self.times(i, half)[0]), float(self.times(i, half, 1 + modes.crosstalk[i])[0])
        return descent + (1 - less / time if time > 0 else 0.0)

    @property
    def errors(self) -> list[float | None]:
        """Of all modes."""
        return [self.error(i) for i in range(self.modes.value.size)]

    def half(self, i: int) -> Time:
        """When mode i is half learned; unknown where no error can be stated, with proved bounds where there are any."""
        bounds, error, time = self._bounds(), self.error(i), self.reached(i, HALF)
        if error is None and time > 0:
            time = math.nan
        if bounds is None:
            return Time(time, time / self.lr, error)
        return Time(time, time / self.lr, error, float(bounds.least[i]), float(bounds.most[i]))

    def when(self, time: float) -> Time:
        """A time that depends on all modes, with the largest of their errors."""
        known = [error for error in self.errors if error is not None]
        if len(known) < len(self.errors):
            return Time(math.nan, math.nan)
        return Time(time, time / self.lr, max(known))

    @property
    def last(self) -> float:
        """A step well after all is learned; NaN where it is unknown."""
        times = [self.fit(_OVER), *(self.reached(i, HALF) for i in range(self.modes.value.size))]
        return 20 * float(np.max(times)) / self.lr

    def _bounds(self) -> spectral.Activation | None:
        """Proved bounds on data whose axes are not the modes': two layers from one-zero, which is I_gamma."""
        initialization = self.initialization
        if self.modes.alone.all() or initialization.kind != "one-zero" or initialization.depth != 2:
            return None
        inputs = np.diag(self.reduction.scales)
        return spectral.activation(HALF, inputs, self.reduction.limit, initialization.scale[0] ** 2 / 2)


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
