"""Figures of the edge of stability about landscapes, starts and balance at toy size: they run, draw, and can fail."""

import pytest
from toys import broken, run

import linnet as ln
from linnet.experiments.stability_balance import StabilityFig13, StabilityFig22, StabilityFig23
from linnet.experiments.stability_initialization import StabilityFig12, StabilityFig14, StabilityFig15
from linnet.experiments.stability_landscape import StabilityFig8, StabilityFig10, StabilityFig11
from linnet.experiments.stability_orbits import SADDLE, StabilityFig16


def test_landscapes(tmp_path):
    figure, data, _ = run(StabilityFig8, tmp_path / "8", grid=41, steps=400)
    assert not broken(figure, data)
    assert len(figure.draw(data).axes) == 4  # with their color bars
    assert len(broken(figure, data.assign(minima=data["minima"] + 1e-3))) == 4
    assert broken(figure, data.assign(around=data["around"] * 0 + 1, thrown=data["thrown"] * 0))
    figure, data, findings = run(StabilityFig10, tmp_path / "10", average=5000)
    assert not broken(figure, data)
    assert len(findings) == 12
    assert len(figure.draw(data).axes) == 4
    exchanged = data.assign(orbit=data["orbit"].copy(data=data["orbit"].values[:, :, ::-1]))  # as in the caption
    assert len(broken(figure, exchanged)) >= 6
    figure, data, findings = run(StabilityFig11, tmp_path / "11", others=2)
    assert not broken(figure, data)
    assert len(findings) == 11
    assert len(figure.draw(data).axes) == 3
    assert len(broken(figure, data.assign(sharpness=2 * data["sharpness"]))) == 6


def test_aligned_starts(tmp_path):
    figure, data, _ = run(StabilityFig12, tmp_path / "12", d=6, spectrum=(3.0, 1.0), alpha=0.1)
    assert not broken(figure, data)
    assert len(figure.draw(data).axes) == 3
    assert len(broken(figure, data.assign(deviation=data["deviation"] + 1e-11, distance=data["distance"] + 1))) == 2
    figure, data, findings = run(StabilityFig13, tmp_path / "13", alphas=(0.01, 0.5))
    assert not broken(figure, data)
    assert len(findings) == 8
    assert len(figure.draw(data).axes) == 3
    assert len(broken(figure, data.assign(last=data["first"]))) >= 5  # balanced, as the print has it


def test_starts_beyond_the_edge(tmp_path):
    figure, data, findings = run(StabilityFig14, tmp_path / "14", d=4, steps=2500, shown=20)
    assert not broken(figure, data)
    assert len(findings) == 17
    assert len(figure.draw(data).axes) == 4
    balanced = broken(figure, data.assign(gaps=0 * data["gaps"]))
    assert {name.split(": ")[0] for name in balanced} == {"alpha 0.01", "alpha 0.5"}
    assert len(broken(figure, data.assign(gaps=data["gaps"] + 1))) == 2
    unsorted = data.assign(sorted=data["modes"].rename(mode="index"))
    assert {name.split(": ")[1] for name in broken(figure, unsorted)} == {"sorted second value, low"}
    figure, data, _ = run(StabilityFig15, tmp_path / "15", d=4, steps=2500, shown=20, draws=3)
    # so few draws in four dimensions are no statistics, but the orbits are the same
    assert not {name for name in broken(figure, data) if not name.startswith("random")}
    assert len(figure.draw(data).axes) == 6
    assert "identity: largest subspace distance in the end" in broken(
        figure, data.assign(distance=data["distance"] + 1e-3)
    )
    assert len(broken(figure, data.assign(modes=data["modes"] * 1.001))) >= 6


def test_depth(tmp_path):
    figure, data, _ = run(StabilityFig16, tmp_path, rates=13, depths=(2, 3), alpha=0.1)
    assert not broken(figure, data)
    assert len(figure.draw(data).axes) == 1
    assert "cells still at the saddle" in broken(figure, data.assign(kind=data["kind"] * 0 + SADDLE))
    assert len(broken(figure, data.isel(lr=slice(None, None, -1)).assign_coords(lr=data["lr"].values))) >= 2


def test_the_minimum_of_the_flow(tmp_path):
    figure, data, findings = run(StabilityFig22, tmp_path / "22", points=60, depths=(2, 3), flows=2, s=3.0)
    assert not broken(figure, data)
    assert len(findings) == 7
    assert len(figure.draw(data).axes) == 2
    assert len(broken(figure, data.assign(published=1 + 0 * data["psi"], flow=1.001 * data["flow"]))) >= 3
    figure, data, findings = run(StabilityFig23, tmp_path / "23", points=60, depths=(2, 3), s=3.0)
    assert not broken(figure, data)
    assert len(findings) == 5
    assert len(figure.draw(data).axes) == 1
    assert len(broken(figure, data.assign(p=data["p"].copy(data=data["p"].values[:, ::-1])))) >= 3


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    [
        (StabilityFig10, {"rates": (0.08, 0.07)}, "rates = (0.08, 0.07) must ascend"),
        (StabilityFig12, {"d": 3}, "d = 3 must be at least the number of modes, 5"),
        (StabilityFig12, {"spectrum": (1.0, 2.0)}, "spectrum = (1.0, 2.0) must descend"),
        (
            StabilityFig12,
            {"alpha": 1e-6},
            "alpha = 1e-06 must be larger: this initialization leaves the saddle too late",
        ),
        (StabilityFig13, {"alphas": (0.1, 3.0)}, "must ascend between 0 and the smallest singular value, 2"),
        (StabilityFig14, {"lr": 0.03}, "lr = 0.03 must lie between the edge of stability and the first doubling"),
        (StabilityFig15, {"d": 2}, "d = 2 must be at least the number of modes, 3"),
        (
            StabilityFig16,
            {"alpha": 1e-3, "depths": (2, 6)},
            "alpha = 0.001 must be larger: leaving the saddle would take",
        ),
        (StabilityFig16, {"low": 3.0}, "low = 3 must be below high = 2.2"),
        (StabilityFig22, {"depths": (2, 20), "reach": 2.0}, "reach = 2 must be smaller"),
        (StabilityFig23, {"depths": (1, 2)}, "depths.0 = 1 is not allowed: input should be greater than or equal to 2"),
    ],
)
def test_parameters_are_checked(kind, changes, words):
    with pytest.raises(ln.InputError) as error:
        kind.of_size("paper", changes)
    assert words in str(error.value)


def test_quick_is_not_the_paper_size():
    for kind in (
        StabilityFig8,
        StabilityFig10,
        StabilityFig11,
        StabilityFig12,
        StabilityFig13,
        StabilityFig14,
        StabilityFig15,
        StabilityFig16,
        StabilityFig22,
        StabilityFig23,
    ):
        assert kind().at_paper_size
        assert not kind.of_size("quick", {}).at_paper_size
