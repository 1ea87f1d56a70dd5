"""The gradient flow of balanced deep networks of rank one on white data, in closed form."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from linnet.maps import crossing
from linnet.theory import convergence
from linnet.theory.convergence import Coordinates

NEAR = 0.01  # learned: |A - Z_1| is this share of |Z_1|
FAR = 1.5  # the far phase ends here at the latest, in sizes of the target: the sharper form of Theorem 20
SMALL = 0.1  # initializations below this share of the target have a time of escape
_RECORDS = 400
_TIMES = 32  # evaluated at once


class RateCurves(NamedTuple):
    """In time: |A - Z_1| and |A|, both over |Z_1| (A's own end for Z_1 where several fits are equally good)."""

    time: Float[np.ndarray, " records"]
    distance: Float[np.ndarray, " records"]
    size: Float[np.ndarray, " records"]


@dataclass(frozen=True)
class ClosedForm:
    """The flow of the loss c/2 |A - Z|^2 through `depth` layers, from `initial`; `curvature` is c."""

    initial: Coordinates
    depth: int
    curvature: float

    @property
    def spectrum(self) -> tuple[float, ...]:
        """Singular values of the target, descending."""
        return tuple(map(float, self.initial.z))

    @property
    def ratio(self) -> float:
        """z_2 / z_1, gamma in the paper."""
        return self.spectrum[1] / self.spectrum[0] if len(self.spectrum) > 1 else 0.0

    @property
    def scale(self) -> float:
        """The size of the initial A over that of the target."""
        return float(self.initial.s) / self.spectrum[0]

    @property
    def unit(self) -> float:
        """The flow's unit of time, 1 / (c z_1^(2 - 2/L))."""
        return 1 / (self.curvature * self.spectrum[0] ** (2 - 2 / self.depth))

    @cached_property
    def goal(self) -> Coordinates:
        """Where the flow ends."""
        return convergence.limit(self.initial)

    @property
    def reaches(self) -> bool:
        """Whether it ends at the best fit of rank one."""
        return bool(abs(float(self.goal.s) - self.spectrum[0]) <= 1e-9 * self.spectrum[0])

    def gap(self, place: Coordinates) -> Float[np.ndarray, "..."]:
        """|A - A_end|: the distance to the best fit, or to the one of several that the flow ends at."""
        if self.ratio < 1 - 1e-9:
            return np.sqrt(2 * np.asarray(convergence.distance(place)))
        (s, a, b, _), (end, u, v, _) = ([np.asarray(x) for x in at] for at in (place, self.goal))
        inner = np.sum(a * u, axis=-1) * np.sum(b * v, axis=-1)
        return np.sqrt(np.maximum(s**2 + end**2 - 2 * s * end * inner, 0.0))

    @cached_property
    def far_phase_ends(self) -> float:
        """When |A| is down to `FAR` times the target's size; 0 from smaller initializations."""
        return float(convergence.transition_time(self.initial, self.depth, self.curvature, FAR)) * (self.scale > FAR)

    @cached_property
    def learned(self) -> float:
        """When A has come within a share of its end: between powers of two, then by Brent's method."""
        if not self.reaches:
            return math.inf
        z1 = float(self.goal.s)

        def far(t: Any) -> Any:
            """log(|A - A_end| / |A_end|) above that of the share."""
            with np.errstate(divide="ignore"):
                left = np.log(self.gap(self._at(t)) / (NEAR * z1))
            return np.maximum(left, -700.0)

        times = self.unit * 2.0 ** np.arange(_TIMES)
        while not np.any(there := far(times) <= 0):
            times = 2 * times[-1] * 2.0 ** np.arange(_TIMES)
            if times[-1] > 1e250:
                return math.inf
        high = float(times[np.argmax(there)])
        if high == self.unit and far(0.0) <= 0:
            return 0.0
        low = 0.0 if high == self.unit else high / 2
        return crossing(far, low, high)

    def near_rate(self, depth: int) -> float:
        """The rate in the end through so many layers: that of the slowest direction which the initialization excites.

        In units of c z_1^(1-2/L), a_i + b_i falls at z_1 - z_i, a_i - b_i at z_1 + z_i and the size at L z_1
        (`convergence.near_rates`). Among several best fits nothing moves, and these directions do not count.
        """
        a, b, z = (np.asarray(x)[1:] for x in (self.initial.a, self.initial.b, self.initial.z))
        z1 = self.spectrum[0]
        excited = np.concatenate([[depth * z1], (z1 - z)[np.abs(a + b) > 1e-12], (z1 + z)[np.abs(a - b) > 1e-12]])
        return float(self.curvature * z1 ** (1 - 2 / depth) * np.min(excited[excited > 1e-9 * z1]))

    def proved_rates(self) -> tuple[float, float] | None:
        """Lower bounds of the rate in the fast and the slow phase: Theorem 20 in its sharpest form, for |A - Z_1| and
        not its square; None where it does not apply.
        """
        alignment = float(self.initial.a[0] * self.initial.b[0])
        if alignment <= self.ratio:
            return None
        alpha = min(0.999 * min(alignment, self.scale + self.ratio), 0.999)
        beta = 1.001 * max(1.0, self.scale)
        proved = convergence.envelope(self.initial, alpha, beta, self.depth, self.curvature, form="sharpest")
        return (float(proved.fast) / 2, float(proved.slow) / 2) if bool(proved.applies) else None

    def times(self) -> Float[np.ndarray, " times"]:
        """From the initialization to well after the end."""
        if math.isfinite(self.learned):
            horizon = max(1.5 * self.learned, self.unit)
        else:
            horizon = 20 * self.unit / min(1.0, self.scale)
        early = min(self.far_phase_ends or horizon, horizon) / 10
        spaced = np.linspace(0, horizon, _RECORDS // 2), np.geomspace(min(early, horizon / 1e3), horizon, _RECORDS)
        return np.unique(np.concatenate(spaced))

    def curves(self, times: Any = None) -> RateCurves:
        """Distance and size at these times."""
        clock = self.times() if times is None else np.asarray(times, dtype=float)
        place, z1 = self._at(clock), self.spectrum[0]
        return RateCurves(clock, self.gap(place) / z1, np.asarray(place.s) / z1)

    def _at(self, times: Any) -> Coordinates:
        return convergence.modes(times, self.initial, self.depth, self.curvature).at
