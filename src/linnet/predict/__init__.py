"""Predictions: what theory says about a network before anyone trains it, as typed results.

Each can `measure()` (the exact run beside it), `plot()`, `to_dict()` (what `--json` prints) and show itself.
"""

from linnet.predict.answer import Answer, Holds, Hypothesis, Loss, Measured, Prediction, Source, When
from linnet.predict.balance import balance
from linnet.predict.balance_result import BalanceMeasured, BalancePrediction
from linnet.predict.bias import BiasMeasured, BiasPrediction, bias
from linnet.predict.data import OwnSamples, read_regression
from linnet.predict.features import features, gaussian_features
from linnet.predict.features_result import FeaturesMeasured, FeaturesPrediction
from linnet.predict.given import whitened
from linnet.predict.landscape import LandscapeMeasured, LandscapePrediction, landscape
from linnet.predict.layer import layer
from linnet.predict.layer_result import LayerMeasured, LayerMode, LayerPrediction, LayerRun
from linnet.predict.network import (
    NetworkEnd,
    NetworkMeasured,
    NetworkOutcome,
    NetworkPrediction,
    network,
    network_start,
)
from linnet.predict.phase import PhaseMeasured, PhasePrediction, phase
from linnet.predict.rates import RatesMeasured, RatesPrediction, rates
from linnet.predict.situation import Situation, read_situation
from linnet.predict.stability import stability
from linnet.predict.stability_result import StabilityPrediction
from linnet.predict.stability_run import StabilityMeasured
from linnet.theory.regime import Regime

__all__ = [
    "Answer",
    "BalanceMeasured",
    "BalancePrediction",
    "BiasMeasured",
    "BiasPrediction",
    "FeaturesMeasured",
    "FeaturesPrediction",
    "Holds",
    "Hypothesis",
    "LandscapeMeasured",
    "LandscapePrediction",
    "LayerMeasured",
    "LayerMode",
    "LayerPrediction",
    "LayerRun",
    "Loss",
    "Measured",
    "NetworkEnd",
    "NetworkMeasured",
    "NetworkOutcome",
    "NetworkPrediction",
    "OwnSamples",
    "PhaseMeasured",
    "PhasePrediction",
    "Prediction",
    "RatesMeasured",
    "RatesPrediction",
    "Regime",
    "Situation",
    "Source",
    "StabilityMeasured",
    "StabilityPrediction",
    "When",
    "balance",
    "bias",
    "features",
    "gaussian_features",
    "landscape",
    "layer",
    "network",
    "network_start",
    "phase",
    "rates",
    "read_regression",
    "read_situation",
    "stability",
    "whitened",
]
