"""At which steps a probe measures, and what."""

import collections
import math
import statistics
import time
from collections.abc import Callable, Mapping

# of what reading steps leaves of the budget: the loss on the probe's batch, forward passes along a step, curvature, and
# finding the status; beside it forward passes of alarms, which borrow as much as half of the budget
SHARES: Mapping[str, float] = {"anchor": 0.25, "forward": 0.4, "curvature": 0.3, "status": 0.05, "alarm": 0.5}
_LEFT = 0.5  # of the budget: so much is left at least
_COMPARE = 0.1  # of the budget for reading steps, up to which they are compared with the ones before
_ESTIMATE = {"anchor": 0.5, "forward": 6.0, "curvature": 300.0, "status": 0.0}  # training steps, before it is known
ANCHOR_GAP, GAP = 20, 10  # steps between two of one kind at least
_ADVANCE, _LONGER = 0.005, 0.25  # seconds that anchors may take in advance, and the share of steps from one to the next
_FIRST, _SELDOM, _SHORT = 200, 100, 1e-3  # after so many steps so seldom is asked what is due, if they are so short
_STATUS = 0.002  # seconds that the status may take in advance
_RECENT, _TYPICAL, _UNUSUAL = (
    5,
    31,
    4.0,
)  # costs of measurements and of updates whose median is typical; times that other processes were in the way


class Schedule:
    """Each kind of measurement takes at most its share of the `budget`, a share of the time that the training itself
    takes, from the first one on: so measurements of each kind are spread over the whole run, and what is too slow for
    its share is not made. Costs are judged by medians, since other processes delay some. Losses on the probe's batch
    get a few milliseconds in advance: alarms of the first steps need some to compare with. With `every`, all kinds
    every so many steps, at two consecutive steps: an orbit at the edge has two sides.
    """

    def __init__(self, budget: float, every: int | None, clock: Callable[[], float] = time.perf_counter):
        self._budget, self._every, self._clock = budget, every, clock
        self._began, self._past, self._steps = clock(), dict.fromkeys(SHARES, 0.0), 0
        self._updates = collections.deque[float](maxlen=_TYPICAL)  # the cost of an update
        self._reading, self._read = 0.0, 0  # the time of all updates that were read, by their median, and their number
        self._gap = GAP  # updates from one at which to ask what is due to the next
        self._measuring = 0.0  # and of all measurements
        self._recent = {kind: collections.deque[float]() for kind in SHARES}  # the last five
        self._last: dict[str, int] = {}  # the step of the last measurement of a kind
        self._at: dict[str, int] = {}  # and its update
        self._trained: dict[str, float] = {}  # the training's own time until then
        self._pair: int | None = None
        self.compares = every is not None  # whether to compare steps with the ones before

    @property
    def steps(self) -> int:
        """The updates so far."""
        return self._steps

    @property
    def every(self) -> bool:
        """Whether measurements come every so many steps."""
        return self._every is not None

    def trained(self) -> float:
        """The time that the training has taken without measurements."""
        return max(0.0, self._clock() - self._began - self._reading - self._measuring)

    def step_seconds(self) -> float:
        """The mean time of a training step."""
        return self.trained() / max(1, self._steps)

    def _share(self, kind: str, trained: float) -> float:
        """The seconds that a kind may have taken after so much training."""
        whole = self._budget * trained
        return SHARES[kind] * max(whole - self._reading, _LEFT * whole)

    def affordable(self, kind: str) -> bool:
        """Whether one more of a kind keeps to its share."""
        trained = self.trained()
        advance = _STATUS if kind == "status" else 0.0
        return self._taken(kind) + self._cost(kind, trained) <= self._share(kind, trained) + advance

    def _in_advance(self) -> bool:
        """Whether an anchor may be measured before its share allows it: seldom, and within a few milliseconds."""
        trained, last = self.trained(), self._at.get("anchor", 0)
        cost = self._taken("anchor") + self._cost("anchor", trained)
        return self._steps >= (1 + _LONGER) * last and cost <= self._share("anchor", trained) + _ADVANCE

    def may_borrow(self) -> bool:
        """Whether an alarm may take one more forward pass: while something of its share is left."""
        return self.every or self._taken("alarm") <= self._share("alarm", self.trained()) + 2 * _ADVANCE

    def _known(self, kind: str, otherwise: float) -> float:
        """What one of a kind takes: the median of the last five."""
        return statistics.median_low(self._recent[kind]) if self._recent[kind] else otherwise

    def _cost(self, kind: str, trained: float) -> float:
        """What one more takes: before one is known so many training steps, or forward passes if one is timed."""
        step = trained / max(1, self._steps)
        anchor = self._known("anchor", 0.0)
        if kind == "forward" and anchor:
            return self._known(kind, _ESTIMATE[kind] / _ESTIMATE["anchor"] * anchor)  # which is one forward pass
        return self._known(kind, _ESTIMATE[kind] * max(step, anchor))

    def due(self, kind: str, step: int) -> bool:
        """Whether to make a measurement of this kind at this step."""
        last = self._last.get(kind)
        if self._every is not None:
            first = self._pair is None or step >= self._pair + self._every
            second = kind == "curvature" and self._pair is not None and step == self._pair + 1
            return first or second or (kind == "anchor" and (last is None or step >= last + ANCHOR_GAP))
        if last is not None and step < last + (ANCHOR_GAP if kind == "anchor" else GAP):
            return False
        if kind == "anchor" and self._in_advance():
            return True
        return (last is None or self._spread(kind)) and self.affordable(kind)

    def _spread(self, kind: str) -> bool:
        """Whether half of the time has passed in which one of this kind takes its share."""
        return self._share(kind, self.trained() - self._trained[kind]) >= self._known(kind, 0.0) / 2

    def read(self, seconds: float, updates: int = 1) -> None:
        """Adds the time that the probe took at so many updates without a measurement."""
        self._updates.append(seconds / updates)
        self._read += updates
        self._reading = self._read * sorted(self._updates)[len(self._updates) // 2]

    def _taken(self, kind: str) -> float:
        """The time that a kind has taken; what other processes have added to it is no cost."""
        recent = self._recent[kind]
        most = _UNUSUAL * self._known(kind, math.inf)
        return self._past[kind] + sum(min(one, most) for one in recent)

    def spent(self, kind: str, seconds: float) -> None:
        """Adds time to a kind."""
        self._past[kind] += min(seconds, _UNUSUAL * self._known(kind, math.inf))
        self._measuring = sum(map(self._taken, SHARES))

    def passed(self, updates: int = 1) -> bool:
        """Counts updates; whether to ask what is due, at every tenth, or hundredth of short ones. Consecutive steps
        are compared from one of these to the next where this keeps to its share.
        """
        before, self._steps = self._steps, self._steps + updates
        if self._every is not None:
            return True
        if before // self._gap == self._steps // self._gap:
            return False
        many = self._steps >= _FIRST and self._steps % _SELDOM == 0 and self.step_seconds() < _SHORT
        self._gap = _SELDOM if many else self._gap
        self.compares = self._reading <= _COMPARE * self._budget * self.trained()
        return True

    def until_check(self) -> int:
        """How many updates may pass before the next one at which something may be due."""
        return 0 if self._every is not None else self._gap - 1 - self._steps % self._gap

    def measured(self, kind: str, step: int, seconds: float) -> None:
        """Adds a measurement of a kind."""
        self._recent[kind].append(seconds)
        if len(self._recent[kind]) > _RECENT:
            self.spent(kind, self._recent[kind].popleft())
        self._measuring = sum(map(self._taken, SHARES))
        self._last[kind], self._at[kind], self._trained[kind] = step, self._steps, self.trained()
        if kind == "curvature" and (self._pair is None or step > self._pair + 1):
            self._pair = step
