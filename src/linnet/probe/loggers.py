"""Where a probe's numbers go while it runs: functions of loggers, TensorBoard's writers, and CSV files."""

import csv
import inspect
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linnet import _input
from linnet._files import writing
from linnet._input import InputError

if TYPE_CHECKING:
    from linnet.probe.probe import Probe

Log = Callable[[Mapping[str, float], int], None]
STEP = "linnet/step"
_OWN_STEPS = ("wandb", "trackio")  # they number what they are given, and refuse a number that has passed


def logger(log: Any) -> Log:
    """A function of (values, step) that passes them on to `log`: a `SummaryWriter` (one scalar for each value), or a
    function that takes a dictionary, such as `wandb.log`, `trackio.log`, or `mlflow.log_metrics`, and its `step` if it
    has such an argument. Loggers that count steps of their own get the step among the values, as `linnet/step`.
    """
    if callable(add := getattr(log, "add_scalar", None)):

        def add_all(values: Mapping[str, float], step: int) -> None:
            for name, value in values.items():
                add(name, value, step)

        return add_all
    if not callable(log):
        raise InputError(
            f"log = {_input.show(log)} is not allowed: give a function of a dictionary, or a SummaryWriter."
        )
    place = getattr(log, "__module__", None) or type(log).__module__
    if place.partition(".")[0] not in _OWN_STEPS and _takes_step(log):
        return lambda values, step: log(dict(values), step=step)
    return lambda values, step: log({**values, STEP: float(step)})


def _takes_step(log: Callable[..., Any]) -> bool:
    try:
        return "step" in inspect.signature(log).parameters
    except (TypeError, ValueError):  # a built-in function
        return False


class CsvLog:
    """Appends values to a CSV file with the columns step, name, value: one row for each number."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        with writing(self.path.parent):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if not self.path.exists():
                self._append([("step", "name", "value")])

    def __call__(self, values: Mapping[str, float], step: int) -> None:
        self._append([(step, name, value) for name, value in values.items()])

    def _append(self, rows: list[tuple[Any, ...]]) -> None:
        with self.path.open("a", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows)


class Fresh:
    """A probe's values, each time that a measurement or an alarm has been added to them."""

    def __init__(self) -> None:
        self._known = 0

    def take(self, probe: "Probe") -> dict[str, float]:
        """All values, or none if nothing was measured since they were taken."""
        if probe.measured == self._known:
            return {}
        self._known = probe.measured
        return probe.values()
