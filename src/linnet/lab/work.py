"""How long a move of a page would compute, estimated before anything is computed."""

from linnet._check import InputError
from linnet.prediction.theories.network.following import STIFF
from linnet.prediction.theories.network.result import Setup

LONGEST = 10.0  # seconds of one core that a prediction may take
_DENSE = 1e-8  # seconds over layers beyond two and the cube of the weights, measured: systems of implicit steps
_OTHERS = 4.0  # seconds at most with more weights, whose steps are explicit and counted


def expected_seconds(setup: Setup) -> float:
    """The time of a network's prediction on one core, about; closed forms and two layers take less than a second."""
    count, depth = sum(w.size for w in setup.layers), len(setup.layers)
    if depth < 3 or (setup.reduction.white and setup.kind in ("balanced", "one-zero")):
        return 0.0
    return _DENSE * (depth - 2) * count**3 if count <= STIFF else _OTHERS


def affordable(setup: Setup) -> None:
    """Refuses a network whose prediction would take too long for a page."""
    seconds = expected_seconds(setup)
    if seconds > LONGEST:
        depth, count = len(setup.layers), sum(w.size for w in setup.layers)
        raise InputError(
            f"depth = {depth} is too much here: {count} weights take about {seconds:.0f} s to follow, and "
            f"{LONGEST:g} s are the most that a page computes; give fewer layers, or use linnet predict network."
        )
