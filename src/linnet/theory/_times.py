"""How times broadcast in all of theory: their axes come first, those of the quantity follow."""

from typing import Any

import numpy as np


def leading(times: Any, *others: Any) -> Any:
    """The times, an array of NumPy or JAX, with an axis of length one behind for each axis that the others share.

    So times never pair with modes, neurons or rows, however many there are of either.
    """
    own = np.broadcast_shapes(*(np.shape(other) for other in others))
    return times.reshape(times.shape + (1,) * len(own))
