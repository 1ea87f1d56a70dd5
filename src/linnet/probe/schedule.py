"""At which steps a probe measures."""

import collections
import time
from collections.abc import Callable

_MIN_GAP = 10  # steps between two pairs of measurements at least
_REGULAR = 0.5  # of the budget; the rest is for measurements after an event
_STEP_SHARE = 0.25  # of the budget, for comparisons of consecutive steps
_RISE, _MEMORY = 0.03, 5  # a loss so far above the least of the last ones is an event


class Schedule:
    """Measurements come in pairs at consecutive steps, because an orbit at the edge has two sides.

    With `every`, a pair every so many steps. Otherwise pairs come as often as half of the `budget`, a share of the
    training time, allows; and as the whole of it allows after an event: a step that reversed the one before it, or a
    loss 3 % above the least of its last five values.
    """

    def __init__(self, budget: float, every: int | None, clock: Callable[[], float] = time.perf_counter):
        self._budget, self._every, self._clock = budget, every, clock
        self._began, self._spent, self._last_seconds, self._step_seconds = clock(), 0.0, 0.0, 0.0
        self._compared = 0  # consecutive steps that were compared
        self._pair: int | None = None  # the step of the last pair's first measurement
        self._second = self._event = False
        self._flip: float | None = None
        self._losses = collections.deque[float](maxlen=_MEMORY)

    def observe_step(self, flip: float | None, loss: float | None) -> None:
        """Takes the cosine of a step with the one before, and its loss: they may be an event."""
        if flip is not None:
            self._event |= flip < 0 and (self._flip is None or self._flip >= 0)
            self._flip = flip
        if loss is not None:
            self._event |= bool(self._losses) and loss > (least := min(self._losses)) + _RISE * abs(least)
            self._losses.append(loss)

    def compares_step(self) -> bool:
        """Whether to compare this step with the one before. With many parameters and small batches the overhead is
        noticeable: where it exceeds a quarter of the budget, there are pauses between runs of three steps, as many as
        a reversal needs.
        """
        trained = self._clock() - self._began - self._spent
        within = self._step_seconds <= _STEP_SHARE * self._budget * trained
        compares = self._every is not None or self._compared % 3 > 0 or within
        self._compared = self._compared + 1 if compares else 0
        return compares

    def due(self, step: int) -> bool:
        """Whether to measure now."""
        if self._second or self._pair is None:
            return True
        if self._every is not None:
            return step >= self._pair + self._every
        trained = self._clock() - self._began - self._spent
        share = self._budget * (1.0 if self._event else _REGULAR)
        return step >= self._pair + _MIN_GAP and self._spent + 2 * self._last_seconds <= share * trained

    def spent(self, seconds: float) -> None:
        """Adds the time of what is done at every step."""
        self._spent += seconds
        self._step_seconds += seconds

    def measured(self, step: int, seconds: float) -> None:
        """Adds the time of a measurement."""
        self._spent += seconds
        self._last_seconds = seconds
        if not self._second:
            self._pair = step
        self._second, self._event = not self._second, False
