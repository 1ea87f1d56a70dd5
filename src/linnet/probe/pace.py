"""When a look is worth its time."""

import collections
import time
from collections.abc import Callable

_APART = 10  # steps between two pairs of looks at least
_REGULAR = 0.5  # of the budget; the rest is for what happens between
_GLANCES = 0.25  # of the budget, for what is seen at every step
_RISE, _MEMORY = 0.03, 5  # a loss so far above the least of the last ones is a rise to look at


class Pace:
    """Looks come in pairs at consecutive steps, because an orbit at the edge has two sides.

    With `every`, a pair at every so many steps. Else pairs come as often as half of the `budget`, a share of the time
    of training, affords; and as the whole of it does where a step has turned back on the one before it, or the loss
    has risen by 3 % above the least of its last five values: such things cost nothing to see.
    """

    def __init__(self, budget: float, every: int | None, clock: Callable[[], float] = time.perf_counter):
        self._budget, self._every, self._clock = budget, every, clock
        self._began, self._spent, self._dear, self._passing = clock(), 0.0, 0.0, 0.0
        self._row = 0  # glances without a pause
        self._pair: int | None = None  # the step of the last pair's first look
        self._second = self._alarmed = False
        self._flip: float | None = None
        self._losses = collections.deque[float](maxlen=_MEMORY)

    def noticed(self, flip: float | None, loss: float | None) -> None:
        """What a step has shown by itself."""
        if flip is not None:
            self._alarmed |= flip < 0 and (self._flip is None or self._flip >= 0)
            self._flip = flip
        if loss is not None:
            self._alarmed |= bool(self._losses) and loss > (least := min(self._losses)) + _RISE * abs(least)
            self._losses.append(loss)

    def glance(self) -> bool:
        """Whether to see what a step shows by itself. With many parameters and small batches that is not nothing: where
        it takes more than a quarter of the budget there are pauses between three steps, which is what a turn needs.
        """
        trained = self._clock() - self._began - self._spent
        on = self._every is not None or self._row % 3 > 0 or self._passing <= _GLANCES * self._budget * trained
        self._row = self._row + 1 if on else 0
        return on

    def due(self, step: int) -> bool:
        """Whether to look now."""
        if self._second or self._pair is None:
            return True
        if self._every is not None:
            return step >= self._pair + self._every
        trained = self._clock() - self._began - self._spent
        share = self._budget * (1.0 if self._alarmed else _REGULAR)
        return step >= self._pair + _APART and self._spent + 2 * self._dear <= share * trained

    def passed(self, seconds: float) -> None:
        """So long took what is done at every step."""
        self._spent += seconds
        self._passing += seconds

    def looked(self, step: int, seconds: float) -> None:
        """So long took a look."""
        self._spent += seconds
        self._dear = seconds
        if not self._second:
            self._pair = step
        self._second, self._alarmed = not self._second, False
