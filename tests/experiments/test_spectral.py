"""The figures of the spectral-bias paper at toy size: they run, draw, and their acceptance can fail."""

import jax
import numpy as np
import pytest
import xarray
from toys import all_hold, broken, run

import linnet as ln
from linnet.experiments.spectral import (
    SpectralFig1a,
    SpectralFig1b,
    SpectralFig2,
    SpectralFig3,
    SpectralFig4,
    SpectralFig5,
)


def test_flows_from_small_and_large_starts(tmp_path):
    toy = {"n": 3, "d_in": 5, "d_out": 2, "problems": 1, "shown": 20.0}
    figure, data, findings = run(SpectralFig1a, tmp_path, **toy)
    all_hold(findings)
    assert [axes.get_title().split(":")[0] for axes in figure.draw(data).axes] == list(data["initialization"].values)
    swapped = data.assign_coords(initialization=data["initialization"].values[[1, 0, 3, 2]])
    assert len(broken(figure, swapped)) == 8
    # the same flows from two random layers, judged by the other figure
    other = SpectralFig4.of_size("quick", toy)
    names = list(other.initializations(jax.random.key(0), ln.regression(np.eye(5), np.eye(5)[:, :2])))
    assert names == [
        "deviations 0.001, 0.01",
        "deviations 0.001, 0.001",
        "variances 0.001, 0.01",
        "variances 0.001, 0.001",
    ]
    small, large = data["initialization"].values[1], data["initialization"].values[0]
    renamed = data.sel(initialization=[small, small, large, large]).assign_coords(initialization=names)
    assert not broken(other, renamed)
    assert len(broken(other, renamed.assign_coords(initialization=names[::-1]))) >= 4


def test_label_noise(tmp_path):
    figure, data, findings = run(SpectralFig1b, tmp_path, runs=2)
    all_hold(findings)
    assert len(figure.draw(data).axes) == 2
    still = data.assign(noisy=data["noisy"] * 0 + data["descent"])
    assert {name.split(":")[0] for name in broken(figure, still)} == {"noise"}


def test_pure_noise(tmp_path):
    figure, data, findings = run(SpectralFig3, tmp_path, paths=100)
    all_hold(findings)
    assert data["time"][-1] == pytest.approx(19.85, abs=0.01)
    assert len(figure.draw(data).axes) == 3
    turned = data.assign(s=data["s"][:, :, ::-1])
    assert len(broken(figure, turned)) >= 3


def test_students(tmp_path):
    toy = {"problems": 2, "steps": 1000, "seed": 10, "example": 0}
    figure, data, findings = run(SpectralFig5, tmp_path, **toy)
    assert not findings["problems"].holds  # two problems are no statistics
    assert not findings["share of students below 0.05 there"].holds  # and after so few steps none of them fits
    assert float(data["loss"].sel(step=550)[0, 0]) == pytest.approx(0.0922, abs=1e-4)
    assert len(figure.draw(data).axes) == 3
    assert len(SpectralFig5().accept(data.isel(problem=[0] * 48).assign_coords(problem=range(48)))) == 12
    second = SpectralFig2.of_size("quick", {**toy, "scales": (1e-4, 1e-2, 1.0)})
    three = xarray.concat([data, data, data], "scale").assign_coords(scale=list(second.scales))
    found = second.accept(three)
    assert "initialization 1: share with rank two" in found
    share = "initialization 1: median share in the span of the teacher, random layers having 2/d"
    fit = three.assign(loss=three["loss"] * 0, span=three["span"] * 0 + 0.4)
    assert second.accept(fit)[share].holds
    assert not second.accept(fit.assign(span=fit["span"] * 0 + 1))[share].holds  # students that learn the directions
    assert len(second.draw(three).axes) == 3


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    [
        (SpectralFig1a, {"d_out": 12}, "d_out = 12 must be below d_in = 10"),
        (SpectralFig1a, {"width": 11}, "width = 11 must be at least d_in + d_out = 13"),
        (SpectralFig1a, {"shown": 400.0}, "shown = 400 must not exceed horizon = 300"),
        (SpectralFig4, {"second": (0.0, 1.0)}, "second.0 = 0.0 is not allowed: input should be greater than 0"),
        (SpectralFig3, {"dt": 1.0}, "dt = 1.0 is not allowed"),
    ],
)
def test_parameters_are_checked(kind, changes, words):
    with pytest.raises(ln.InputError) as error:
        kind.of_size("paper", changes)
    assert words in str(error.value)
