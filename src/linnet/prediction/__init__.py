"""Predictions: what theory says about a problem, a network, and an optimizer before anyone trains.

`predict` asks all theories, the functions named after topics ask one. A `Prediction` is data: `measure()` puts the
exact run beside it, `compare(run)` one that was made, `plot()` draws it, `to_dict()` is what `--json` prints.
"""

from linnet.prediction.all_theories import predict
from linnet.prediction.assumption import Assumption, Holds, NotApplicable, Source
from linnet.prediction.coerce import whitened
from linnet.prediction.data import OwnSamples, read_regression
from linnet.prediction.prediction import Comparison, Curve, Panel, Prediction, Quantity, Row, Time
from linnet.prediction.situation import Situation, read_situation
from linnet.prediction.theories.balance import balance
from linnet.prediction.theories.bias import bias
from linnet.prediction.theories.edge import edge
from linnet.prediction.theories.features import features, gaussian_features
from linnet.prediction.theories.landscape import landscape
from linnet.prediction.theories.layer import layer
from linnet.prediction.theories.network import network
from linnet.prediction.theories.phase import phase
from linnet.prediction.theories.rates import rates
from linnet.prediction.theories.stability import stability

__all__ = [
    "Assumption",
    "Comparison",
    "Curve",
    "Holds",
    "NotApplicable",
    "OwnSamples",
    "Panel",
    "Prediction",
    "Quantity",
    "Row",
    "Situation",
    "Source",
    "Time",
    "balance",
    "bias",
    "edge",
    "features",
    "gaussian_features",
    "landscape",
    "layer",
    "network",
    "phase",
    "predict",
    "rates",
    "read_regression",
    "read_situation",
    "stability",
    "whitened",
]
