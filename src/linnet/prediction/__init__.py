"""Predictions: what theory says about a problem, a network, and an optimizer before anyone trains.

`predict` asks all theories, the functions named after topics ask one. A `Prediction` is data: `measure()` puts the
exact run beside it, `compare(run)` one that was made, `plot()` draws it, `to_dict()` is what `--json` prints.
`coerce` makes regressions of what users give, `render` texts and tables of quantities; `render` loads on first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

from linnet.prediction import coerce
from linnet.prediction.all_theories import predict
from linnet.prediction.assumption import Assumption, Holds, NotApplicable, Source
from linnet.prediction.coerce import whitened
from linnet.prediction.data import OwnSamples, read_regression
from linnet.prediction.panel import Curve, Panel
from linnet.prediction.prediction import Comparison, Prediction, Quantity, Row, Time
from linnet.prediction.situation import Situation, read_situation, situation_text
from linnet.prediction.theories.balance import balance
from linnet.prediction.theories.bias import bias
from linnet.prediction.theories.edge import edge
from linnet.prediction.theories.features import features, gaussian_features
from linnet.prediction.theories.landscape import critical_point_panel, landscape
from linnet.prediction.theories.layer import layer
from linnet.prediction.theories.network import Setup, mode_curve, network
from linnet.prediction.theories.phase import phase
from linnet.prediction.theories.phase_run import phase_plane
from linnet.prediction.theories.rates import rates
from linnet.prediction.theories.stability import stability
from linnet.prediction.theories.stability_of_spectrum import stability_of_spectrum

if TYPE_CHECKING:
    from linnet.prediction import render

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
    "Setup",
    "Situation",
    "Source",
    "Time",
    "balance",
    "bias",
    "coerce",
    "critical_point_panel",
    "edge",
    "features",
    "gaussian_features",
    "landscape",
    "layer",
    "mode_curve",
    "network",
    "phase",
    "phase_plane",
    "predict",
    "rates",
    "read_regression",
    "read_situation",
    "render",
    "situation_text",
    "stability",
    "stability_of_spectrum",
    "whitened",
]


def __getattr__(name: str) -> Any:
    if name != "render":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")
