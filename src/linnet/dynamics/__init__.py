"""Dynamical systems: maps, their orbits, periods, cycles, multipliers, cascades and Lyapunov exponents.

Nothing here knows about networks: a map is a function of a point and a parameter, and any will do.
"""

from linnet.dynamics.cascade import Cascade, cascade
from linnet.dynamics.cycle import TwoCycle, cycle, multiplier, two_cycle
from linnet.dynamics.floquet import floquet, free
from linnet.dynamics.lyapunov import Lyapunov, lyapunov
from linnet.dynamics.maps import Map, balanced, descent, exponential, one_zero
from linnet.dynamics.orbit import Orbits, orbits
from linnet.dynamics.period import APERIODIC, DIVERGED, label, period

__all__ = [
    "APERIODIC",
    "DIVERGED",
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
    "two_cycle",
]
