"""The figures about non-local convergence at toy size: they run, draw, and their acceptance can fail."""

import jax
import jax.flatten_util
import numpy as np
import pytest
import xarray
from toys import all_hold, broken, run

import linnet as ln
from linnet.experiments.convergence import NonlocalFig1, NonlocalPeeling, NonlocalRates
from linnet.experiments.convergence_lazy import NonlocalLazy


def test_depth_near_and_far(tmp_path):
    figure, data, findings = run(NonlocalFig1, tmp_path, lr=1e-5, steps=10_000, depths=(2, 3, 5))
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
    figure, data, findings = run(NonlocalRates, tmp_path)
    all_hold(findings)
    assert len(figure.draw(data).axes) == 4
    turned = data.isel(depth=slice(None, None, -1)).assign_coords(depth=data["depth"].values)
    assert len(broken(figure, turned)) >= 3
    assert len(broken(figure, data.assign(transition=1.01 * data["transition"]))) == 5


def test_modes_one_after_another(tmp_path):
    figure, data, findings = run(NonlocalPeeling, tmp_path, draws=1, initializations=(1e-4, 1.0))
    all_hold(findings)
    assert len(figure.draw(data).axes) == 4
    turned = data.isel(initialization=slice(None, None, -1)).assign_coords(initialization=data["initialization"].values)
    assert len(broken(figure, turned)) >= 3


def test_lazy_and_non_local_starts(tmp_path):
    figure, data, findings = run(NonlocalLazy, tmp_path, depths=(2, 3), scales=9, angles=9)
    all_hold(findings)
    assert len(figure.draw(data).axes) == 4  # and the bar of colors
    # the closed forms are those of the layers, the kernel, and the weights
    for depth, angle, scale in ((3, 20.0, data["scale"].values[6]), (2, 80.0, data["scale"].values[1])):
        ends = []
        for size, turn in ((scale, angle), (1.0, 0.0)):
            a = size * np.array([[np.cos(np.radians(turn)), np.sin(np.radians(turn)), 0, 0, 0]])
            ends.append(ln.init.balanced(a, (1,) * (depth - 1), rank=1))
        first, last = (np.asarray(ln.observe.kernel_matrix(state)) for state in ends)
        place = {"depth": depth, "angle": angle, "scale": scale}
        change = np.linalg.norm(last - first) / np.linalg.norm(first)
        assert figure.kernel_change(data).sel(place) == pytest.approx(change)
        assert data["kernel"].sel(place) == pytest.approx(change, rel=1e-5)
    spoilt = data.assign(kernel=0.9 * data["kernel"], distance=data["distance"] + 1e-3)
    assert {name.split(":")[0] for name in broken(figure, spoilt)} >= {"kernel", "every start reaches the target"}
    turned = data.isel(depth=slice(None, None, -1)).assign_coords(depth=data["depth"].values)
    assert any("more with depth" in name for name in broken(figure, turned))
    still = data.assign(kernel=0 * data["kernel"] + 0.05)  # as if all starts were lazy
    assert any("smallest change of the kernel" in name for name in broken(figure, still))


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_the_factor_of_lazy_training_is_that_of_its_definition(depth):
    """|A_0 - Z| |D^2 A| / |DA|^2 by derivatives of the layers' product, its operator norms by search."""
    size, turn = 1.7, 0.4
    initial = ln.init.balanced(size * np.array([[np.cos(turn), np.sin(turn)]]), (1,) * (depth - 1), rank=1)
    flat, rebuilt = jax.flatten_util.ravel_pytree(initial.layers)

    def product(flat):
        return ln.Weights(rebuilt(flat)).matrix[0]

    first, second = jax.jacfwd(product)(flat), jax.hessian(product)(flat)
    # of a quadratic map to a plane: the largest eigenvalue over all directions of the plane
    angles = np.linspace(0, np.pi, 2001)
    along = np.cos(angles)[:, None, None] * second[0] + np.sin(angles)[:, None, None] * second[1]
    largest = np.max(np.abs(np.linalg.eigvalsh(along)))
    kappa = np.linalg.norm(np.asarray(initial.matrix[0]) - [1, 0]) * largest / np.linalg.norm(first, 2) ** 2
    figure = NonlocalLazy(depths=(2, 3, 4))
    place = xarray.Dataset(coords={"depth": depth, "angle": np.degrees(turn), "scale": size})
    assert float(figure.laziness(place)) == pytest.approx(kappa, rel=1e-5)


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    [
        (NonlocalFig1, {"n": 3}, "n = 3 must be at least d = 5: fewer samples cannot be whitened"),
        (NonlocalFig1, {"depths": (3, 2)}, "depths = (3, 2) must ascend"),
        (NonlocalFig1, {"lr": 0.1}, "Euler steps overshoot zero"),
        (NonlocalRates, {"sizes": (0.0,)}, "sizes.0 = 0.0 is not allowed: input should be greater than 0"),
        (NonlocalLazy, {"depths": (3, 2)}, "depths = (3, 2) must ascend"),
        (NonlocalLazy, {"depth": 7}, "depth = 7 must be one of depths"),
        (NonlocalLazy, {"scales": 6}, "scales = 6 must be odd"),
        (NonlocalPeeling, {"rank": 5}, "rank = 5 must be below the number of modes, 5"),
        (NonlocalPeeling, {"initializations": (1.0, 0.1)}, "initializations = (1.0, 0.1) must ascend"),
    ],
)
def test_parameters_are_checked(kind, changes, words):
    with pytest.raises(ln.InputError) as error:
        kind.of_size("paper", changes)
    assert words in str(error.value)
