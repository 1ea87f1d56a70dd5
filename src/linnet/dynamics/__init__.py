"""Dynamical systems: maps, their orbits, periods, cycles, multipliers, cascades and Lyapunov exponents.

A map is a function of a point and a parameter, and any will do; those of a deep network's modes are among `maps`.
"""

from linnet.dynamics.cascade import Cascade, cascade
from linnet.dynamics.cycle import TwoCycle, cycle, multiplier, two_cycle
from linnet.dynamics.floquet import floquet, free
from linnet.dynamics.lyapunov import Lyapunov, lyapunov
from linnet.dynamics.maps import Map, balanced, descent, exponential, one_zero
from linnet.dynamics.orbit import LIMIT, Orbits, orbits
from linnet.dynamics.period import APERIODIC, DIVERGED, label, period
from linnet.dynamics.root import roots

__all__ = [
    "APERIODIC",
    "DIVERGED",
    "LIMIT",
    "Cascade",
    "Lyapunov",
    "Map",
    "Orbits",
    "TwoCycle",
    "balanced",
    "cascade",
    "cycle",
    "descent",
    "exponential",
    "floquet",
    "free",
    "label",
    "lyapunov",
    "multiplier",
    "one_zero",
    "orbits",
    "period",
    "roots",
    "two_cycle",
]
