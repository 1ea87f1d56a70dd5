"""The prediction for a linear network on a regression: regimes, times, stable learning rates, and the end of training.

In the order in which things are known: `initialization`, `modes`, `end`, `regularized_minimum`, `following`, `times`,
`copies` (beyond the edge), `verdict` (what a learning rate does), `batches`, `analysis` (all of these), `result` (the
prediction), `run` (the exact training beside it). `objective` is the loss of the flattened weights.
"""

from linnet.prediction.theories.network.picture import mode_curve
from linnet.prediction.theories.network.result import Setup, network

__all__ = ["Setup", "mode_curve", "network"]
