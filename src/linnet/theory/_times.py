"""How times broadcast in all of theory: their axes come first, those of the quantity follow."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def leading(times: Any, *others: Any) -> Float[Array, "..."]:
    """The times with an axis of length one behind them for each axis that the others have together.

    So times never pair with modes, neurons or rows, however many there are of either.
    """
    t = jnp.asarray(times, dtype=jnp.float64)
    own = np.broadcast_shapes(*(np.shape(other) for other in others))
    return t.reshape(t.shape + (1,) * len(own))
