"""Dynamical systems: maps, their orbits, periods, cycles, multipliers, cascades and Lyapunov exponents.

A map is a function of a point and a parameter, and any will do; those of a deep network's modes are among `maps`.
"""

from linnet.maps.cascades import Cascade, cascade
from linnet.maps.cycles import TwoCycle, cycle, multiplier, two_cycle
from linnet.maps.exponents import Lyapunov, lyapunov
from linnet.maps.modes import Map, balanced, descent, exponential, one_zero
from linnet.maps.multipliers import floquet, free
from linnet.maps.orbit import LIMIT, Orbits, orbits
from linnet.maps.periods import APERIODIC, DIVERGED, label, period
from linnet.maps.root import crossing, roots

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
    "crossing",
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
