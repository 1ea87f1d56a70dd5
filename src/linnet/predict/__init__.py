"""Predictions: what theory says about a network before anyone trains it, as typed results.

Each can `measure()` (the exact run beside it), `plot()`, `to_dict()` (what `--json` prints) and show itself.
"""

from linnet.predict.answer import Answer, Holds, Hypothesis, Measured, Prediction, Source, When
from linnet.predict.features import features, gaussian_features
from linnet.predict.features_result import FeaturesMeasured, FeaturesPrediction
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
from linnet.predict.phase import PhaseMeasured, PhasePrediction, phase
from linnet.predict.situation import Situation, read_situation
from linnet.predict.stability import Balancing, Diagram, Sorting, Stability, StabilityMode, Thresholds, stability
from linnet.predict.stability_run import MeasuredCross, MeasuredStability, MeasuredStabilityMode
from linnet.theory.regime import Regime

__all__ = [
    "Answer",
    "Balancing",
    "Between",
    "Diagram",
    "FeaturesMeasured",
    "FeaturesPrediction",
    "Holds",
    "Hypothesis",
    "Loss",
    "Measured",
    "MeasuredCross",
    "MeasuredMode",
    "MeasuredNetwork",
    "MeasuredStability",
    "MeasuredStabilityMode",
    "Network",
    "NetworkMode",
    "NetworkOutcome",
    "NetworkStart",
    "PhaseMeasured",
    "PhasePrediction",
    "Prediction",
    "Regime",
    "Situation",
    "Sorting",
    "Source",
    "Stability",
    "StabilityMode",
    "StopWindow",
    "Thresholds",
    "When",
    "features",
    "gaussian_features",
    "network",
    "phase",
    "read_situation",
    "stability",
]
