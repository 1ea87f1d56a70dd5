"""When modes are learned by closed forms, and how far those can be trusted."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from linnet.predict.answer import When
from linnet.predict.frame import Frame
from linnet.predict.network.modes import HALF, Curve, Modes
from linnet.predict.network.plan import Plan
from linnet.theory import mixed, spectral
from linnet.theory import stability as edge
from linnet.theory.regime import RICH_ABOVE

_OVER = 0.01  # of the excess loss is left
_SHARED = 0.5  # of a mode's kernel may be crosstalk


@dataclass(frozen=True, eq=False)
class Clock:
    """When each mode passes which value, in the time of gradient flow; NaN where no theory says.

    `growth` is what each mode's kernel grows by until the mode is learned, `kernel` the largest on its way.
    """

    modes: Modes
    plan: Plan
    growth: Float[np.ndarray, " modes"]
    kernel: Float[np.ndarray, " modes"]
    lr: float
    frame: Frame

    def times(self, i: int, ends: Any, larger: float = 1.0) -> Float[np.ndarray, " values"]:
        """The times at which mode i passes the values `ends` on its way from its start to its target, 0 for others.

        With two layers for a kernel at the start that is `larger` times what it is.
        """
        modes, values = self.modes, np.asarray(ends, dtype=float)
        begin, s = modes.begin[i], modes.value[i]
        ahead = ((begin < values) & (values < s)) | ((s < values) & (values < begin))
        out = np.zeros(values.shape)
        if ahead.any():
            out[ahead] = self._times(i, values[ahead], larger)
        return out

    def learned(self, i: int, share: float) -> float:
        """When mode i has come to its target up to 1 - share of it, from below or from above."""
        s = self.modes.value[i]
        return float(self.times(i, [share * s if self.modes.begin[i] < s else (2 - share) * s])[0])

    def reached(self, i: int, share: float) -> float:
        """When mode i is at this share of its target."""
        return float(self.times(i, [share * self.modes.value[i]])[0])

    def _times(self, i: int, ends: np.ndarray, larger: float) -> np.ndarray:
        modes, plan = self.modes, self.plan
        s, begin, k = modes.value[i], modes.begin[i], modes.curvature[i]
        if plan.depth == 1:
            times = np.log(np.abs(s - begin) / np.abs(s - ends))
        elif plan.depth == 2:
            second, first = modes.grams[:, i]
            c = float(mixed.mode_scale(first, second, begin))
            times = np.asarray(mixed.mode_time(begin, ends, s, larger * c))
        elif not plan.guess:
            values = np.full(plan.depth, plan.scale[0])
            if plan.kind == "one-zero":
                values[-1] = 0.0
            times = edge.flow_time(values, ends, s)
        elif self.growth[i] < 1 / RICH_ABOVE:  # the kernel stays as it is drawn
            times = np.log(np.abs(s - begin) / np.abs(s - ends)) / np.sum(modes.grams[:, i])
        else:
            times = np.full(ends.shape, math.nan)
        return np.asarray(times / k)

    def curve(self, i: int) -> Curve:
        """Values on the way of mode i from its start to its target, and their times."""
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
    def curves(self) -> tuple[Curve, ...]:
        """Those of all modes."""
        return tuple(self.curve(i) for i in range(self.modes.value.size))

    def fit(self, share: float) -> float:
        """When the excess loss 1/2 sum k_i (s_i - a_i)^2 is down to a share of its start."""
        return self._down(self.modes.curvature, self.modes.rest, share)

    def predictor(self, share: float) -> float:
        """When |A - A_end| is down to a share of its start."""
        rest = self.modes.rest / np.mean(self.modes.curvature)
        return self._down(np.ones_like(self.modes.curvature), rest, share**2)

    def _down(self, weights: Float[np.ndarray, " modes"], rest: float, share: float) -> float:
        """When sum w_i (s_i - a_i)^2 is down to a share of its start; NaN where nobody knows."""
        modes = self.modes
        curves = self.curves
        if any(np.isnan(times).any() for _, times in curves):
            return math.nan
        moments = np.unique(np.concatenate([times[np.isfinite(times)] for _, times in curves]))
        left = np.zeros(moments.size)
        for i, (values, times) in enumerate(curves):
            now = np.interp(moments, times, values)
            left += weights[i] * (modes.value[i] - now) ** 2
        # the rest has no target and decays by the kernel that it starts with
        left += rest * np.exp(-2 * np.mean(modes.curvature) * np.mean(np.sum(modes.grams, axis=0)) * moments)
        if left[0] == 0:
            return 0.0
        if left[-1] > share * left[0]:  # some mode never comes, or the rest outlives them all
            return math.inf if any(np.isinf(times).any() for _, times in curves) else math.nan
        # the last moment at which it is above
        k = int(np.flatnonzero(left > share * left[0])[-1])
        a, b = math.log(left[k]), math.log(max(left[k + 1], 1e-300))
        return float(moments[k] + (moments[k + 1] - moments[k]) * (a - math.log(share * left[0])) / (a - b))

    def error(self, i: int) -> float | None:
        """The relative error to expect of a time in steps, None where nothing is known about it.

        Descent in place of flow: what closes its gap by a share x = lr k_i kernel_i in each step needs -x / ln(1 - x)
        of the time. Neurons that modes share: as if the mode's kernel at the start were larger by the crosstalk, unless
        that is large beside the kernel of the half learned mode, too.
        """
        modes = self.modes
        step = self.lr * modes.curvature[i] * self.kernel[i]
        if not modes.alone.all() or self.plan.guess or step >= 1:
            return None
        descent = float(-math.log1p(-step) / step - 1) if step > 0 else 0.0
        if not self.plan.drawn:
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

    def half(self, i: int) -> When:
        """When mode i is half learned, unknown where no error can be stated; what is certain is told in any case."""
        bounds, error, time = self._certain(), self.error(i), self.reached(i, HALF)
        if error is None and time > 0:
            time = math.nan
        if bounds is None:
            return When(time, time / self.lr, error)
        return When(time, time / self.lr, error, float(bounds.least[i]), float(bounds.most[i]))

    def when(self, time: float) -> When:
        """A moment that all modes have a part in, as sure as the least sure of them."""
        known = [error for error in self.errors if error is not None]
        if len(known) < len(self.errors):
            return When(math.nan, math.nan)
        return When(time, time / self.lr, max(known))

    @property
    def last(self) -> float:
        """The step at which all is over; NaN where nobody knows."""
        times = [self.fit(_OVER), *(self.reached(i, HALF) for i in range(self.modes.value.size))]
        return 20 * float(np.max(times)) / self.lr

    def _certain(self) -> spectral.Activation | None:
        """What is certain on data whose axes are not the modes': two layers from one-zero, which is I_gamma."""
        if self.modes.alone.all() or self.plan.kind != "one-zero" or self.plan.depth != 2:
            return None
        return spectral.activation(HALF, np.diag(self.frame.scales), self.frame.limit, self.plan.scale[0] ** 2 / 2)
