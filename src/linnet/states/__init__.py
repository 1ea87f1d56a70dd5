"""States: coordinates of a network."""

from linnet.states.end_to_end import Balanced, Closure, EndToEnd, Lazy, Mixed
from linnet.states.mirror import ScalarMirror, SpectralMirror
from linnet.states.modes import Modes
from linnet.states.network import Network, ReluNetwork
from linnet.states.pair import Pair
from linnet.states.rank_one import RankOne
from linnet.states.state import State, cast, precision
from linnet.states.weights import Weights, balance_exists, junctions, measured_balance

__all__ = [
    "Balanced",
    "Closure",
    "EndToEnd",
    "Lazy",
    "Mixed",
    "Modes",
    "Network",
    "Pair",
    "RankOne",
    "ReluNetwork",
    "ScalarMirror",
    "SpectralMirror",
    "State",
    "Weights",
    "balance_exists",
    "cast",
    "junctions",
    "measured_balance",
    "precision",
]
