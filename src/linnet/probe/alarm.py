"""Alarms of a training with their causes, from its numbers alone, one step after the other.

An alarm is raised where a loss or a gradient is not finite, a step was skipped, the loss is 10 % and five robust
deviations above its last fifty values (twice in a row: 3.5 deviations), or the loss on the probe's own batch, the
anchor, is 20 % and five deviations above its last three. The anchor at the weights before the step separates the
causes: where it was up, the weights were bad before the batch came, which the learning rate did; else it was the batch,
or all batches since. It is compared with the anchor at weights of some steps ago where these were kept, else with the
last anchors. Where the anchor has risen while losses rose and fell again, the data have become others. Without
the weights before the step those after it serve where they are good; else, and without an anchor to compare with, the
cause is unknown.
"""

import collections
import enum
import itertools
import math
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from linnet.probe.record import ProbeRecord

_FROM = 100  # losses before the first alarm that compares them
_WINDOW = 50  # losses that one is compared with, and steps for which an alarm counts
_LOUD, _UP = 5.0, 1.1  # deviations and factor of an alarm by the loss
_PAIR = 3.5  # deviations of two losses in a row
_RISEN, _FALLEN = 1.5, 1.25  # times what it was, and is: data with such a loss in between have been learned
_AS_HIGH = 0.5  # of the losses' factor: an anchor with such a factor is as high as they are
_BY_WEIGHTS, _BY_DATA = 0.5, 0.25  # shares of a loss's rise that the weights made: the cause at least and at most
_ANCHOR_LOUD, _ANCHOR_UP = 5.0, 1.2  # of an alarm by the anchor
_BEFORE_LOUD, _BEFORE_UP = 4.0, 1.1  # of an anchor that was up before the step
_FEW_UP, _FEW_DOWN = 1.5, 1.1  # times the median of one or two anchors: certainly up above, and not up below
_LEAST = 0.005  # the smallest deviation that an anchor's logarithm is given
_LAST, _ROSE = 5, 3.0  # of so many losses one above so many medians: the loss rose before
REFRESH = 10  # losses after which the limit of the next ones is computed again
_NEXT = 3  # losses after an alarm that separate a bad batch from a shift of the data


class Cause(enum.StrEnum):
    """What an alarm comes from."""

    LEARNING_RATE = "learning_rate"
    BAD_BATCH = "bad_batch"
    PRECISION = "precision"
    DATA_SHIFT = "data_shift"


class Alarm(NamedTuple):
    """At `step`, by a `trigger` (`non_finite`, `skipped`, `loss`, or `anchor`): this is `factor` times what it was, and
    `usual` the median of the last losses.

    The cause is None where it is unknown, and until the next losses have separated a bad batch from a shift.
    """

    step: int
    trigger: str
    factor: float | None = None
    usual: float | None = None
    cause: Cause | None = None


class Watch:
    """Raises alarms from losses and anchors, one after the other; for fifty steps after one only for worse."""

    def __init__(self) -> None:
        self._losses = collections.deque[float](maxlen=_WINDOW)
        self._logs = collections.deque[float](maxlen=_WINDOW)  # of the losses, NaN where there is none
        self._anchors = collections.deque[float](maxlen=12)
        self._level = math.nan  # the median of the losses at the last anchor
        self._seen, self._since, self._high, self._finite = 0, 0, False, True
        self._limit = self._pair = math.inf  # for one loss, and for two in a row
        self._last: Alarm | None = None
        # an alarm, the middle between its loss and what is usual, the losses since, and the anchors before and after it
        self._open: tuple[Alarm, float, list[float], float | None, float | None] | None = None

    def step(
        self,
        step: int,
        loss: float | None,
        *,
        skipped: bool = False,
        finite: bool = True,
        before: Callable[[], float | None] = lambda: None,
        after: Callable[[], float | None] = lambda: None,
        earlier: Callable[[], float | None] = lambda: None,
    ) -> list[Alarm]:
        """Takes a step: its loss (None: unknown), whether the optimizer skipped it, and whether its gradient was
        finite. `before` gives the anchor at the weights before the step, `after` that at the current ones, and
        `earlier` that at weights of some steps ago; they are called at an alarm only.
        """
        found = self._decide(loss, before, after)
        bad = not finite or (loss is not None and not math.isfinite(loss))
        limit, high = self._pair if self._high else self._limit, loss is not None and loss > self._pair
        if bad or (skipped and self._seen >= _FROM):
            blown = bool(self._anchors) and self._was_up(self._anchors[-1]) is True
            cause = Cause.LEARNING_RATE if blown or self._rose() else Cause.PRECISION
            if not bad or self._finite:
                found += self._raise(Alarm(step, "non_finite" if bad else "skipped", None, self._usual(), cause))
        elif loss is not None and loss > limit and not self._is_quiet(step):
            usual = _median(self._losses)
            alarm = Alarm(step, "loss", loss / usual if usual > 0 else None, usual)
            value, usual_anchor = before(), earlier()

            def was_up(value: float) -> bool | None:
                if usual_anchor is None:
                    return self._was_up(value)
                share = _share((usual_anchor, value), (usual, loss))
                return True if share >= _BY_WEIGHTS else False if share <= _BY_DATA else None

            up = None if value is None else was_up(value)
            if value is None and (later := after()) is not None and was_up(later) is False:
                up = False  # no step makes bad weights good
            found += (raised := self._raise(alarm._replace(cause=Cause.LEARNING_RATE if up else None)))
            if raised and up is False:
                middle = (loss + usual) / 2 if usual <= 0 else math.sqrt(loss * usual)
                self._open = alarm, middle, [], usual_anchor, None
        self._finite = not bad
        if loss is not None and not bad:
            self.passed([loss])
            self._high = high and loss > self._pair
        else:
            self._seen += 1
            self._high = high
        return found

    @property
    def safe(self) -> float:
        """A loss up to which a step raises no alarm; up to ten such losses may be given to `passed` instead."""
        return self._pair if self._open is None else -math.inf

    def passed(self, losses: Sequence[float]) -> float:
        """Takes losses that raise no alarm; `safe` afterwards."""
        if losses:
            self._losses.extend(losses)
            self._logs.extend([math.log(loss) if loss > 0 else math.nan for loss in losses])
            self._seen += len(losses)
            self._since += len(losses)
            self._high = False
        if self._since >= REFRESH:
            self._since = 0
            self._limit, self._pair = self._limits()
        return self.safe

    def resume(self, record: ProbeRecord) -> None:
        """Takes the last losses and anchors of a record."""
        self.passed([line["loss"] for line in record.steps[-_FROM:] if line.get("loss") is not None])
        for line in record.anchors[-12:]:
            if line.get("anchor") is not None:
                self._anchors.append(line["anchor"])
        self._level = self._usual() or math.nan

    def anchor(self, step: int, value: float) -> list[Alarm]:
        """Takes the loss on the probe's own batch after a step."""
        found = []
        if not math.isfinite(value):
            cause = Cause.LEARNING_RATE if self._rose() else Cause.PRECISION
            found = self._raise(Alarm(step, "non_finite", None, self._usual(), cause)) if self._finite else []
        elif self._seen >= _FROM and self._anchor_is_up(value, self._anchors, before=False):
            factor = value / _median(list(self._anchors)[-3:])
            losses = list(self._losses)
            then, now = _median(losses[: _WINDOW // 2]), _median(losses[-_LAST:])
            peak = max(_median(losses[k : k + _LAST]) for k in range(_WINDOW // 2, len(losses) - _LAST + 1))
            learned = then > 0 and peak > _RISEN * then and peak > _FALLEN * now
            cause = Cause.DATA_SHIFT if learned else Cause.LEARNING_RATE
            found = self._raise(Alarm(step, "anchor", factor, self._usual(), cause))
        self._anchors.append(value)
        self._level = self._usual() or math.nan
        return found

    def _was_up(self, value: float) -> bool | None:
        """Whether this anchor, at the weights before a step, is above the last ones; None if that is not known."""
        if not math.isfinite(value):
            return True
        anchors = [one for one in list(self._anchors)[-3:] if math.isfinite(one)]
        if not anchors:
            return None
        usual = _median(anchors)
        if len(anchors) < 3 or len(self._anchors) < 3 or min(*self._anchors, value) <= 0:
            if usual <= 0 or value > _FEW_UP * usual:
                return True if usual > 0 else None
            up = False if value <= _FEW_DOWN * usual else None
        else:
            up = self._anchor_is_up(value, self._anchors, before=True)
        now = self._usual()
        if (
            up is False
            and now is not None
            and 0 < now < self._level
            and value > _FEW_UP * anchors[-1] * now / self._level
        ):
            return None  # losses have fallen since: it may be above what it was just before
        return up

    def _raise(self, alarm: Alarm) -> list[Alarm]:
        quiet = self._is_quiet(alarm.step)
        worse = self._last is not None and alarm.trigger == "non_finite" != self._last.trigger
        if quiet and not worse:
            return []
        self._last = alarm
        return [alarm]

    def _is_quiet(self, step: int) -> bool:
        """Whether the last alarm still covers this step."""
        return self._last is not None and step - self._last.step < _WINDOW

    def _decide(
        self, loss: float | None, before: Callable[[], float | None], now: Callable[[], float | None]
    ) -> list[Alarm]:
        """The cause of an alarm whose weights were good, from the next losses: a shift if they stay high and the anchor
        after the step is not as high, as it is where the step of one batch has made the weights worse.
        """
        if self._open is None or loss is None:
            return []
        alarm, middle, since, usual_anchor, after = self._open
        if not since:
            after = before()
            after = now() if after is None else after
        since.append(loss)
        if len(since) < _NEXT:
            self._open = alarm, middle, since, usual_anchor, after
            return []
        self._open = None
        high, usual = _median(since), alarm.usual or 0.0
        one_batch = high <= middle
        if not one_batch and after is not None and usual_anchor is not None:
            one_batch = not _share((usual_anchor, after), (usual, high)) < _BY_WEIGHTS
        elif not one_batch and after is not None and self._anchor_is_up(after, self._anchors, before=False):
            one_batch = not after / _median(list(self._anchors)[-3:]) < _AS_HIGH * high / (usual or high)
        return [alarm._replace(cause=Cause.BAD_BATCH if one_batch else Cause.DATA_SHIFT)]

    def _usual(self) -> float | None:
        return _median(self._losses) if self._losses else None

    def _rose(self) -> bool:
        """Whether one of the last five losses was above three medians."""
        losses = list(self._losses)
        return len(losses) > _LAST and max(losses[-_LAST:]) > _ROSE * _median(losses)

    def _limits(self) -> tuple[float, float]:
        """The losses above which one, and two in a row, raise an alarm; infinite before the hundredth."""
        if self._seen < _FROM:
            return math.inf, math.inf
        if min(self._losses) > 0:
            middle, spread = _robust(self._logs)
            one, two = (math.exp(middle + max(math.log(_UP), loud * spread)) for loud in (_LOUD, _PAIR))
        else:
            middle, spread = _robust(list(self._losses))
            one, two = (middle + max((_UP - 1) * abs(middle), loud * spread) for loud in (_LOUD, _PAIR))
        return one, two

    @staticmethod
    def _anchor_is_up(value: float, anchors: Sequence[float], *, before: bool) -> bool:
        """Whether an anchor is far above the median of its last three; deviations are those of its changes."""
        if not math.isfinite(value):
            return True
        if len(anchors) < 3 or min(anchors) <= 0 or value <= 0 or not all(map(math.isfinite, anchors)):
            return False
        logs = [math.log(one) for one in anchors]
        spread = max(_LEAST, _robust([b - a for a, b in itertools.pairwise(logs)])[1])
        loud, up = (_BEFORE_LOUD, _BEFORE_UP) if before else (_ANCHOR_LOUD, _ANCHOR_UP)
        return math.log(value) - _median(logs[-3:]) > max(math.log(up), loud * spread)


def _share(anchors: tuple[float, float], losses: tuple[float, float]) -> float:
    """The part of a rise of the loss that a rise of the anchor is, of their logarithms where all are above 0."""
    if not math.isfinite(anchors[1]):
        return math.inf
    if min(*anchors, *losses) > 0:
        return math.log(anchors[1] / anchors[0]) / math.log(losses[1] / losses[0])
    return (anchors[1] - anchors[0]) / (losses[1] - losses[0])


def _median(values: Collection[float]) -> float:
    """That of `statistics`, in less time."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return (ordered[half] + ordered[~half]) / 2


def _robust(values: Collection[float]) -> tuple[float, float]:
    """Median, and the deviation that the median distance from it stands for."""
    middle = _median(values)
    return middle, 1.4826 * _median([abs(one - middle) for one in values])
