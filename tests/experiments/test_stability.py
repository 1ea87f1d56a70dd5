"""The figures about the edge of stability at toy size: they run, draw, and their acceptance can fail."""

import numpy as np
import pytest
from toys import all_hold, broken, run

import linnet as ln
from linnet.experiments import experiments
from linnet.experiments.stability_balance import StabilityFig4
from linnet.experiments.stability_cross import StabilityFig5, StabilityFig18
from linnet.experiments.stability_initialization import StabilityFig3
from linnet.experiments.stability_orbits import StabilityFig1, StabilityFig6
from linnet.experiments.stability_sharpness import StabilityFig2, StabilityFig7


def test_they_are_listed_and_quick_is_not_paper():
    known = experiments()
    for kind in (
        StabilityFig1,
        StabilityFig2,
        StabilityFig3,
        StabilityFig4,
        StabilityFig5,
        StabilityFig6,
        StabilityFig7,
        StabilityFig18,
    ):
        assert known[kind.id] is kind
        assert kind().at_paper_size
        assert not kind.of_size("quick", {}).at_paper_size


def test_cascade(tmp_path):
    toy = {"count": 89, "skip": 10_000, "tested": (2.1, 2.3, 2.52), "matrix_steps": 2000}
    figure, data, findings = run(StabilityFig1, tmp_path, **toy)
    all_hold(findings)
    assert "matrices, κ = 2.52: period" in findings
    assert len(figure.draw(data).axes) == 2
    later = data.assign_coords(kappa=data["kappa"].values + 0.05)
    assert {"period 2 begins", "period 4 begins", "period 8 begins"} <= broken(figure, later)
    assert "chaos begins (positive Lyapunov exponent)" in broken(figure, data.assign(exponent=-data["exponent"]))
    noise = 1 + 1e-5 * np.random.default_rng(0).normal(size=data["matrices"].shape)
    spoilt = broken(figure, data.assign(matrices=data["matrices"] * noise, modes=data["modes"] * 1.001))
    # against maps, modes at rest, three periods, two or more values
    assert len([n for n in spoilt if n.startswith("matrices, ")]) >= 5
    assert any(n.startswith("matrices against") for n in spoilt)
    assert any(n.startswith("the other modes") for n in spoilt)
    still = broken(figure, data.assign(curvature=data["curvature"] * 0 + 1, sharpness=data["sharpness"] * 0 + 1))
    assert len([n for n in still if "has the same period" in n]) == 2


def test_sharpness_in_time(tmp_path):
    figure, data, findings = run(StabilityFig2, tmp_path, steps=700)
    all_hold(findings)
    assert len(findings) == 10
    assert len(figure.draw(data).axes) == 3
    assert len(broken(figure, data.assign(loss=("step", np.sort(data["loss"])[::-1] * 1.01))) & set(findings)) == 2
    assert len(broken(figure, data.assign(sharpness=1.001 * data["sharpness"]))) >= 5
    assert broken(figure, data.assign(dense=data["dense"] + 1e-6)) == {
        "sharpness from blocks against the dense Hessian: largest gap"
    }
    below = StabilityFig2.of_size("quick", {"kappa": 1.9})
    assert len(below.accept(data)) == 1  # no orbit to compare with


def test_singular_vectors(tmp_path):
    figure, data, findings = run(StabilityFig3, tmp_path, kappas=(1.5, 2.48), steps=1500)
    all_hold(findings)
    assert any("in the order of the values" in name for name in findings)
    assert len(figure.draw(data).axes) == 6
    assert len(broken(figure, data.assign(overlap=data["overlap"] - 1e-9))) == 2
    assert len(broken(figure, data.assign(in_order=0.5 + 0 * data["in_order"]))) == 2
    assert len(broken(figure, data.assign(modes=data["modes"] * 1.01))) == 2


def test_balancing(tmp_path):
    figure, data, findings = run(StabilityFig4, tmp_path)
    all_hold(findings)
    assert len(figure.draw(data).axes) == 2
    assert len(broken(figure, data.isel(step=slice(None, None, -1)))) >= 4
    # what the paper says: that every gap closes
    assert {"mode 2 is at rest: what is left of its gap", "mode 3 is at rest: what is left of its gap"} <= broken(
        figure, data.assign(gap=data["gap"].isel(mode=[0, 0, 0]))
    )


def test_matrix_and_diagonal_networks(tmp_path):
    figure, data, findings = run(StabilityFig5, tmp_path, d=5, steps=1600, levels=(62.5, 57.0))
    all_hold(findings)
    assert "K = 57, single precision: step at which the cross component passes 0.01" in findings
    assert len(figure.draw(data).axes) == 8
    aligned = data.assign(cross=0 * data["cross"], modes=data["diagonal"] + 0 * data["modes"])
    assert {name.split(":")[0] for name in broken(figure, aligned)} == {
        "K = 57",
        "K = 57, double precision",
        "K = 57, single precision",
    }
    unsorted = data.assign(sorted=data["modes"])
    assert broken(figure, unsorted) == {"K = 62.5: sorted second value, low"}
    noisy = data.assign(cross=data["cross"] + 1e-16, ended=data["ended"] - 1, outside=data["outside"] + 1e-6)
    names = {name.split(":")[0] for name in broken(figure, noisy)}
    assert {"diagonal target", "runs that diverged", "double precision"} <= names


def test_amplitude(tmp_path):
    figure, data, findings = run(StabilityFig6, tmp_path, count=20, steps=50_000, depths=(2, 3))
    all_hold(findings)
    assert len(figure.draw(data).axes) == 2
    swapped = data.assign(range=data["printed"], printed=data["exact"])
    assert len(broken(figure, swapped)) == 4
    assert len(broken(figure, data.assign(onset=data["onset"] ** 1.2))) == 4


def test_plateaus(tmp_path):
    figure, data, findings = run(StabilityFig7, tmp_path, firsts=(5.0, 12.0, 15.0), steps=1500)
    all_hold(findings)
    assert len(figure.draw(data).axes) == 2
    assert len(broken(figure, data.assign(sharpness=1.2 * data["sharpness"], alone=data["sharpness"][-1]))) >= 8


def test_sorting(tmp_path):
    figure, data, findings = run(StabilityFig18, tmp_path, count=41)
    all_hold(findings)
    assert len(figure.draw(data).axes) == 6
    modes = data.assign(sorted=data["modes"], sorted_range=data["range"])
    assert len(broken(figure, modes)) == 5
    assert len(broken(figure, data.assign(modes=data["sorted"], range=data["sorted_range"]))) >= 4


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    [
        (StabilityFig1, {"spectrum": (6.0, 10.0)}, "spectrum = (6.0, 10.0) must descend"),
        (StabilityFig1, {"alpha": 4.0}, "alpha = 4 must be below the smallest singular value, 3"),
        (StabilityFig1, {"low": 3.0, "high": 2.0}, "low = 3 must be below high = 2"),
        (StabilityFig1, {"d": 2}, "d = 2 must be at least the number of modes, 3"),
        (StabilityFig2, {"d": 30, "depth": 5}, "d = 30 is too large for a dense Hessian of 5 layers"),
        (StabilityFig3, {"kappas": (2.0, 3.0)}, "kappas = (2.0, 3.0) must lie between 0 and 2.6"),
        (StabilityFig5, {"levels": (40.0,)}, "must be at least 52.12, where the period doubles"),
        (StabilityFig6, {"alpha": 1e-4}, "leaving the saddle takes"),
        (StabilityFig6, {"depths": (3, 2)}, "depths = (3, 2) must ascend"),
        (StabilityFig7, {"lr": 0.05}, "takes s_1 = 15 to"),
        (StabilityFig18, {"high": 0.03}, "keep κ below 2.48"),
    ],
)
def test_parameters_are_checked(kind, changes, words):
    with pytest.raises(ln.InputError) as error:
        kind.of_size("paper", changes)
    assert words in str(error.value)
