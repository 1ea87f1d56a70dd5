"""At which steps a probe measures, and what."""

import time
from collections.abc import Callable, Mapping

# of the budget: at every step, the loss on the probe's batch, forward passes along a step, and curvature
SHARES: Mapping[str, float] = {"step": 0.1, "anchor": 0.2, "forward": 0.4, "curvature": 0.3}
_ESTIMATE = {"anchor": 0.5, "forward": 6.0, "curvature": 300.0}  # training steps, before it is known
ANCHOR_GAP, GAP = 20, 10  # steps between two of one kind at least
_READ, _STRIDE = 1 / 3, 5  # of the budget for reading steps; at least one of so many is read
_ALARM = 1.5  # times the budget, up to which an alarm may be looked into


class Schedule:
    """Each kind of measurement takes at most its share of the `budget`, a share of the time that the training itself
    takes, from the first one on: so measurements of each kind are spread over the whole run, and what is too slow for
    its share is not made. With `every`, all kinds every so many steps, at two consecutive steps: an orbit at the edge
    has two sides.
    """

    def __init__(self, budget: float, every: int | None, clock: Callable[[], float] = time.perf_counter):
        self._budget, self._every, self._clock = budget, every, clock
        self._began, self._spent, self._steps = clock(), dict.fromkeys(SHARES, 0.0), 0
        self._seconds: dict[str, float] = {}  # of a kind, the lesser of the last two
        self._recent: dict[str, float] = {}  # of the last one
        self._last: dict[str, int] = {}  # the step of the last measurement of a kind
        self._trained: dict[str, float] = {}  # the training's own time until then
        self._pair: int | None = None
        self._stride = 1
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
        return self._clock() - self._began - sum(self._spent.values())

    def affordable(self, kind: str, seconds: float | None = None) -> bool:
        """Whether one more of a kind keeps to its share, and all to the budget."""
        trained = self.trained()
        cost = self._estimate(kind, trained) if seconds is None else seconds
        mine = self._spent[kind] + cost <= SHARES[kind] * self._budget * trained
        return mine and sum(self._spent.values()) + cost <= self._budget * trained

    def may_borrow(self) -> bool:
        """Whether an alarm may take one more forward pass: up to half of the budget is borrowed."""
        trained = self.trained()
        cost = self._seconds.get("anchor", 0.0)
        return self.every or sum(self._spent.values()) + cost <= _ALARM * self._budget * trained

    def _estimate(self, kind: str, trained: float) -> float:
        """What one more takes: as long as the last, before that so many training steps, or forward passes if timed."""
        if kind in self._seconds:
            return self._seconds[kind]
        step, anchor = trained / max(1, self._steps), self._seconds.get("anchor")
        if kind == "forward" and anchor is not None:
            return _ESTIMATE[kind] / _ESTIMATE["anchor"] * anchor  # which is one forward pass
        return _ESTIMATE[kind] * max(step, anchor or 0.0)

    def due(self, kind: str, step: int) -> bool:
        """Whether to make a measurement of this kind at this step."""
        last = self._last.get(kind)
        if self._every is not None:
            first = self._pair is None or step >= self._pair + self._every
            second = kind == "curvature" and self._pair is not None and step == self._pair + 1
            return first or second or (kind == "anchor" and (last is None or step >= last + ANCHOR_GAP))
        gap = ANCHOR_GAP if kind == "anchor" else GAP
        return (last is None or (step >= last + gap and self._spread(kind))) and self.affordable(kind)

    def _spread(self, kind: str) -> bool:
        """Whether half of the time has passed in which one of this kind takes its share."""
        since = self.trained() - self._trained[kind]
        return since * SHARES[kind] * self._budget >= self._seconds[kind] / 2

    def spent(self, kind: str, seconds: float) -> None:
        """Adds time to a kind."""
        self._spent[kind] += seconds

    def passed(self) -> bool:
        """Counts an update; whether to ask what is due, at every tenth. Consecutive steps are compared from one of
        these to the next where this keeps to its share.
        """
        self._steps += 1
        if self._every is not None:
            return True
        if self._steps % GAP:
            return False
        self.compares = self.affordable("step", 0.0)
        return True

    def until_check(self) -> int:
        """How many updates may be skipped before the next one at which something may be due."""
        return 0 if self._every is not None else GAP - 1 - self._steps % GAP

    def stride(self) -> int:
        """One step of how many to read: more than one where reading all takes more than a third of the budget."""
        over = self._spent["step"] > _READ * self._budget * self.trained()
        self._stride = min(_STRIDE, self._stride + 1) if over else max(1, self._stride - 1)
        return self._stride

    def skipped(self, updates: int) -> None:
        """Counts updates at which nothing was asked."""
        self._steps += updates

    def measured(self, kind: str, step: int, seconds: float) -> None:
        """Adds a measurement of a kind."""
        self._spent[kind] += seconds
        # the first forward pass of a process also loads and chooses kernels
        usual = self._estimate(kind, self.trained()) if kind == "anchor" and kind not in self._recent else seconds
        earlier, self._recent[kind] = self._recent.get(kind, usual), seconds
        self._seconds[kind] = min(earlier, seconds)  # one that other processes have delayed says nothing
        self._last[kind], self._trained[kind] = step, self.trained()
        if kind == "curvature" and (self._pair is None or step > self._pair + 1):
            self._pair = step
