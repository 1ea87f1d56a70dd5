"""Predictions: what theory says about a network before anyone trains it, as typed results.

Each can `measure()` (the exact run beside it), `plot()`, `to_dict()` (what `--json` prints) and show itself.
"""

from linnet.predict.answer import Answer, Holds, Hypothesis, Loss, Measured, Prediction, Source, When
from linnet.predict.bias import Bias, BiasMode, FirstLayer, MeasuredBias, MeasuredMode, bias
from linnet.predict.given import whitened
from linnet.predict.landscape import CriticalSet, Landscape, MeasuredLandscape, landscape
from linnet.predict.rates import MeasuredRates, ProvedRates, RankOneStart, Rates, rates
from linnet.theory.regime import Regime

__all__ = [
    "Answer",
    "Bias",
    "BiasMode",
    "CriticalSet",
    "FirstLayer",
    "Holds",
    "Hypothesis",
    "Landscape",
    "Loss",
    "Measured",
    "MeasuredBias",
    "MeasuredLandscape",
    "MeasuredMode",
    "MeasuredRates",
    "Prediction",
    "ProvedRates",
    "RankOneStart",
    "Rates",
    "Regime",
    "Source",
    "When",
    "bias",
    "landscape",
    "rates",
    "whitened",
]
