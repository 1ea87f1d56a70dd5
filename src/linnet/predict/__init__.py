"""Predictions: what theory says about a network before anyone trains it, as typed results.

Each can `measure()` (the exact run beside it), `plot()`, `to_dict()` (what `--json` prints) and show itself.
"""

from linnet.predict.answer import Answer, Holds, Hypothesis, Measured, Prediction, Source, When
from linnet.predict.network import (
    Between,
    Loss,
    MeasuredMode,
    MeasuredNetwork,
    Network,
    NetworkMode,
    NetworkOutcome,
    NetworkStart,
    StopWindow,
    network,
)
from linnet.predict.situation import Situation, read_situation
from linnet.theory.regime import Regime

__all__ = [
    "Answer",
    "Between",
    "Holds",
    "Hypothesis",
    "Loss",
    "Measured",
    "MeasuredMode",
    "MeasuredNetwork",
    "Network",
    "NetworkMode",
    "NetworkOutcome",
    "NetworkStart",
    "Prediction",
    "Regime",
    "Situation",
    "Source",
    "StopWindow",
    "When",
    "network",
    "read_situation",
]
