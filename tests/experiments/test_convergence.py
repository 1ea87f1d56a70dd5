"""The figures about non-local convergence at toy size: they run, draw, and their acceptance can fail."""

import numpy as np
import pytest
from toys import all_hold, broken, run

import linnet as ln
from linnet.experiments.convergence import Fig1, Peeling, Rates


def test_depth_near_and_far(tmp_path):
    figure, data, findings = run(Fig1, tmp_path, lr=1e-5, steps=10_000, depths=(2, 3, 5))
    all_hold(findings)
    faster = data.assign(distance=data["distance"].where(data["time"] == 0, 0.9999 * data["distance"]))
    assert "slope of the first step above theory: largest share of what a step may add" in broken(figure, faster)
    slower = data.assign(distance=data["distance"].where(data["time"] == 0, 1.001 * data["distance"]))
    assert "slope of the first step below theory: largest share of what a step may take off" in broken(figure, slower)
    assert len(figure.draw(data).axes) == 2
    turned = data.isel(depth=slice(None, None, -1)).assign_coords(depth=data["depth"].values)
    assert len(broken(figure, turned)) >= 4
    sudden = data.assign(distance=data["distance"][..., :1] * np.exp(-np.minimum(100 * data["time"], 2 + data["time"])))
    assert {name.split(":")[0] for name in broken(figure, sudden)} >= {"no sudden change"}
    assert len(broken(figure, data.assign(exact=1.1 * data["exact"])) - broken(figure, data)) == 1


def test_rates_in_the_end(tmp_path):
    figure, data, findings = run(Rates, tmp_path)
    all_hold(findings)
    assert len(figure.draw(data).axes) == 4
    turned = data.isel(depth=slice(None, None, -1)).assign_coords(depth=data["depth"].values)
    assert len(broken(figure, turned)) >= 3
    assert len(broken(figure, data.assign(transition=1.01 * data["transition"]))) == 5


def test_modes_one_after_another(tmp_path):
    figure, data, findings = run(Peeling, tmp_path, draws=1, starts=(1e-4, 1.0))
    all_hold(findings)
    assert len(figure.draw(data).axes) == 4
    turned = data.isel(start=slice(None, None, -1)).assign_coords(start=data["start"].values)
    assert len(broken(figure, turned)) >= 3


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    [
        (Fig1, {"n": 3}, "n = 3 must be at least d = 5: fewer samples cannot be whitened"),
        (Fig1, {"depths": (3, 2)}, "depths = (3, 2) must ascend"),
        (Fig1, {"lr": 0.1}, "Euler steps overshoot zero"),
        (Rates, {"sizes": (0.0,)}, "sizes = (0.0,) must be above 0"),
        (Peeling, {"rank": 5}, "rank = 5 must be below the number of modes, 5"),
        (Peeling, {"starts": (1.0, 0.1)}, "starts = (1.0, 0.1) must ascend"),
    ],
)
def test_parameters_are_checked(kind, changes, words):
    with pytest.raises(ln.InputError) as error:
        kind.of_size("paper", changes)
    assert words in str(error.value)
