"""Measures health, critical steps, curvature, and layer spectra of PyTorch trainings while they run.

    pip install 'linnet[torch]'

Records are read without PyTorch.
"""

from typing import TYPE_CHECKING, Any

from linnet.probe.alarm import Cause
from linnet.probe.health import Health, HealthStatus, assess
from linnet.probe.loggers import CsvLog
from linnet.probe.record import ProbeRecord, dataset, read
from linnet.probe.summary import format_interval, pair_assumptions, verdict

if TYPE_CHECKING:
    from linnet.probe.callbacks import ProbeCallback
    from linnet.probe.probe import Probe, ProbeWarning
    from linnet.probe.rule import Rule
    from linnet.probe.tuning import FineTuning, FineTuningSetting

_PLACES = {"Probe": "probe", "ProbeWarning": "probe", "Rule": "rule"}
_PLACES |= {"ProbeCallback": "callbacks", "FineTuning": "tuning", "FineTuningSetting": "tuning"}
__all__ = [
    "Cause",
    "CsvLog",
    "FineTuning",
    "FineTuningSetting",
    "Health",
    "HealthStatus",
    "Probe",
    "ProbeCallback",
    "ProbeRecord",
    "ProbeWarning",
    "Rule",
    "assess",
    "dataset",
    "format_interval",
    "pair_assumptions",
    "read",
    "verdict",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'linnet.probe' has no attribute {name!r}")
    import importlib
    import importlib.util

    from linnet._input import InputError

    if importlib.util.find_spec("torch") is None:
        raise InputError("linnet.probe needs PyTorch: pip install 'linnet[torch]', or pip install torch.")
    return getattr(importlib.import_module(f"linnet.probe.{_PLACES[name]}"), name)
