"""Which steps or times of a run are recorded. The initial state and the end always are."""

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from linnet import _check
from linnet._check import InputError


class Record(abc.ABC):
    """A choice of recording points between 0 and the horizon."""

    @abc.abstractmethod
    def inner(self, horizon: float, discrete: bool) -> np.ndarray:
        """The points; they are rounded for discrete optimizers and clipped by `points`."""

    def holds(self, step: Any) -> Any:
        """Whether a step of a run is one of the points, whatever the horizon; may be traced."""
        raise InputError(f"record = {self} is not allowed here: use every, pairs or at, whose steps are known before.")

    def points(self, horizon: float, discrete: bool) -> np.ndarray:
        """Sorted points from 0 to the horizon without repetitions, whole numbers if discrete."""
        raw = np.concatenate([[0.0], np.asarray(self.inner(horizon, discrete), dtype=float), [horizon]])
        kept = np.unique(np.round(raw) if discrete else raw)
        return kept.astype(np.int64) if discrete else kept


@dataclass(frozen=True)
class Every(Record):
    """Every `interval` steps (or units of time)."""

    interval: float

    def inner(self, horizon: float, discrete: bool) -> np.ndarray:
        if discrete and self.interval != round(self.interval):
            raise InputError(f"interval = {self.interval:g} is not allowed: steps are whole numbers.")
        count = horizon / self.interval
        _check.fits("interval", self.interval, 4 * count, f"a record at each of {count:.3g} points")
        return self.interval * np.arange(np.ceil(horizon / self.interval * (1 - 1e-12)))

    def holds(self, step: Any) -> Any:
        return step % self.interval == 0


@dataclass(frozen=True)
class Pairs(Record):
    """Every `interval` steps, and the step after."""

    interval: int

    def inner(self, horizon: float, discrete: bool) -> np.ndarray:
        if not discrete:
            raise InputError("pairs is not allowed for a flow: it has no steps; use every.")
        first = Every(self.interval).inner(horizon, discrete)
        both = np.concatenate([first, first + 1])
        return both[both <= horizon]

    def holds(self, step: Any) -> Any:
        return step % self.interval <= 1


@dataclass(frozen=True)
class At(Record):
    """At the given steps or times."""

    where: tuple[float, ...]

    def inner(self, horizon: float, discrete: bool) -> np.ndarray:
        points = np.asarray(self.where, dtype=float)
        if np.any(points > horizon):
            raise InputError(f"record asks for {points.max():g}: it must not exceed the horizon {horizon:g}.")
        if discrete and np.any(points != np.round(points)):
            raise InputError("record asks for fractions of a step: steps are whole numbers.")
        return points

    def holds(self, step: Any) -> Any:
        return (step == np.asarray(self.where)).any()


@dataclass(frozen=True)
class Linear(Record):
    """`count` points evenly spaced from 0 to the horizon (fewer if there are fewer steps)."""

    count: int

    def inner(self, horizon: float, discrete: bool) -> np.ndarray:
        _check.fits("count", self.count, 4 * self.count, "so many records")
        return np.linspace(0, horizon, self.count)


@dataclass(frozen=True)
class Logarithmic(Record):
    """`count` points with equal ratios from `first` to the horizon, after the start."""

    count: int
    first: float | None

    def inner(self, horizon: float, discrete: bool) -> np.ndarray:
        first = self.first if self.first is not None else (1.0 if discrete else horizon * 1e-4)
        if first > horizon:
            raise InputError(f"first = {first:g} is not allowed: it must not exceed the horizon {horizon:g}.")
        _check.fits("count", self.count, 4 * self.count, "so many records")
        return np.minimum(np.geomspace(first, horizon, self.count), horizon)


def every(interval: float) -> Record:
    """Record every `interval` steps (or units of time)."""
    return Every(_check.real("interval", interval, above=0))


def pairs(interval: int) -> Record:
    """Record every `interval` steps, and the step after each: an orbit of period two has two sides.

    At the edge of stability weights flip at every step, so that records at an even interval show one side alone.
    """
    return Pairs(_check.integer("interval", interval, least=2))


def at(points: Sequence[float] | Any) -> Record:
    """Record at these steps or times (and at the start and the end).

    `points` are whole numbers of steps, or times of a flow, in any order.

    >>> import linnet as ln
    >>> problem = ln.factorization([[2.0]])
    >>> network = ln.Weights([[[1.0]], [[1.0]]])
    >>> run = ln.simulate(problem, network, ln.optim.SGD(0.1), steps=9, record=ln.record.at([3, 5]))
    >>> run.steps.tolist()
    [0, 3, 5, 9]
    """
    try:
        where = np.atleast_1d(np.asarray(points, dtype=float))
    except (TypeError, ValueError):
        raise InputError(f"points = {_check.show(points)} is not allowed: points must be numbers.") from None
    if where.ndim != 1 or not np.all(np.isfinite(where)) or np.any(where < 0):
        raise InputError(f"points = {_check.show(points)} is not allowed: points must be finite and not negative.")
    return At(tuple(where.tolist()))


def linear(count: int) -> Record:
    """Record at `count` evenly spaced points."""
    return Linear(_check.integer("count", count, least=2))


def logarithmic(count: int, first: float | None = None) -> Record:
    """Record at `count` logarithmically spaced points, from `first` (default: step 1, or 1e-4 of the time) on."""
    first_point = None if first is None else _check.real("first", first, above=0)
    return Logarithmic(_check.integer("count", count, least=2), first_point)
