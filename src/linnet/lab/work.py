"""How long a move of a page would compute, estimated before anything is computed."""

from linnet._check import InputError
from linnet.prediction import Setup

LONGEST = 10.0  # seconds of one core that a prediction may take


def affordable(setup: Setup) -> None:
    """Refuses a network whose prediction would take too long for a page."""
    seconds = setup.expected_seconds()
    if seconds > LONGEST:
        depth, count = len(setup.layers), sum(w.size for w in setup.layers)
        raise InputError(
            f"depth = {depth} is too much here: {count} weights take about {seconds:.0f} s to follow, and "
            f"{LONGEST:g} s are the most that a page computes; give fewer layers, or use linnet predict network."
        )
