"""Predictions: what theory says about a network before anyone trains it, as typed results.

Each can `measure()` (the exact run beside it), `plot()`, `to_dict()` (what `--json` prints) and show itself.
"""

from linnet.predict.answer import Answer, Holds, Hypothesis, Measured, Prediction, Source, When
from linnet.predict.features import features, gaussian_features
from linnet.predict.features_result import FeaturesMeasured, FeaturesPrediction
from linnet.predict.phase import PhaseMeasured, PhasePrediction, phase
from linnet.predict.stability import Balancing, Diagram, Sorting, Stability, StabilityMode, Thresholds, stability
from linnet.predict.stability_run import MeasuredCross, MeasuredStability, MeasuredStabilityMode
from linnet.theory.regime import Regime

__all__ = [
    "Answer",
    "Balancing",
    "Diagram",
    "FeaturesMeasured",
    "FeaturesPrediction",
    "Holds",
    "Hypothesis",
    "Measured",
    "MeasuredCross",
    "MeasuredStability",
    "MeasuredStabilityMode",
    "PhaseMeasured",
    "PhasePrediction",
    "Prediction",
    "Regime",
    "Sorting",
    "Source",
    "Stability",
    "StabilityMode",
    "Thresholds",
    "When",
    "features",
    "gaussian_features",
    "phase",
    "stability",
]
