"""Predictions: what theory says about a network before anyone trains it, as typed results.

Each can `measure()` (the exact run beside it), `plot()`, `to_dict()` (what `--json` prints) and show itself.
"""

from linnet.predict.answer import Answer, Holds, Hypothesis, Measured, Prediction, Source, When
from linnet.predict.features import features, gaussian_features
from linnet.predict.features_result import FeaturesMeasured, FeaturesPrediction
from linnet.predict.phase import PhaseMeasured, PhasePrediction, phase
from linnet.theory.regime import Regime

__all__ = [
    "Answer",
    "FeaturesMeasured",
    "FeaturesPrediction",
    "Holds",
    "Hypothesis",
    "Measured",
    "PhaseMeasured",
    "PhasePrediction",
    "Prediction",
    "Regime",
    "Source",
    "When",
    "features",
    "gaussian_features",
    "phase",
]
