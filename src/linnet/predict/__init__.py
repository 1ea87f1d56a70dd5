"""Predictions: what theory says about a network before anyone trains it, as typed results.

Each can `measure()` (the exact run beside it), `plot()`, `to_dict()` (what `--json` prints) and show itself.
"""

from linnet.predict.answer import Answer, Holds, Hypothesis, Measured, Prediction, Source, When
from linnet.predict.stability import Balancing, Diagram, Sorting, Stability, StabilityMode, Thresholds, stability
from linnet.predict.stability_run import MeasuredCross, MeasuredStability, MeasuredStabilityMode
from linnet.theory.regime import Regime

__all__ = [
    "Answer",
    "Balancing",
    "Diagram",
    "Holds",
    "Hypothesis",
    "Measured",
    "MeasuredCross",
    "MeasuredStability",
    "MeasuredStabilityMode",
    "Prediction",
    "Regime",
    "Sorting",
    "Source",
    "Stability",
    "StabilityMode",
    "Thresholds",
    "When",
    "stability",
]
