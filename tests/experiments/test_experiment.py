"""What the figures are written with: datasets along an axis, and fields in order."""

import jax.numpy as jnp
import numpy as np
import pytest
from pydantic import BaseModel, PositiveFloat, ValidationError

from linnet.experiments.experiment import Ascending, Descending, along


def test_along_stacks_what_is_measured_of_each_item():
    reported = []

    def powers(base):
        def power(exponent):
            curve = base**exponent * jnp.arange(3.0)
            return {"curve": ("step", curve, {"long_name": "A curve"}), "last": ((), curve[-1])}

        return along("exponent", (1, 2), power)

    data = along("base", (2.0, 3.0), powers, lambda done, total: reported.append((done, total)))
    assert reported == [(0, 2), (1, 2)]
    assert data["curve"].dims == ("base", "exponent", "step")
    assert data["curve"].attrs == {"long_name": "A curve"}
    assert isinstance(data["curve"].data, np.ndarray)
    assert data.sel(base=3.0, exponent=2)["last"].item() == 18
    assert data["curve"].sel(base=2.0, exponent=1).values.tolist() == [0, 2, 4]


class Ordered(BaseModel):
    up: Ascending[int] = (1, 2)
    down: Descending[PositiveFloat] = (2.0, 1.0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"up": (2, 1)}, r"up = \(2, 1\) must ascend"),
        ({"up": (1, 1)}, r"up = \(1, 1\) must ascend"),
        ({"down": (1.0, 2.0)}, r"down = \(1.0, 2.0\) must descend"),
        ({"down": (1.0, 1.0)}, "must descend"),
        ({"down": (1.0, 0.0)}, "greater than 0"),
    ],
)
def test_fields_in_order(changes, words):
    assert Ordered(up=(0, 3, 9), down=[0.5]).down == (0.5,)
    with pytest.raises(ValidationError, match=words):
        Ordered(**changes)
