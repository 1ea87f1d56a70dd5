"""The experiments' frame, and the figures of the mixed-dynamics paper at toy size."""

import json

import numpy as np
import pytest
import xarray
from toys import all_hold, quiet

import linnet as ln
from linnet.experiments import Experiment, experiments, find
from linnet.experiments.mixed import MixedFig1, MixedFig2
from linnet.experiments.mixed_relu import KINDS, MixedRelu

TOY1 = {"d": 24, "rank": 2, "steps": 150}
TOY2 = {"d": 16, "rank": 2, "grid": 3, "c_lr": 20, "euler": 2}


def test_the_registry():
    known = experiments()
    assert list(known)[:2] == ["mixed/fig1", "mixed/fig2"]
    for name, kind in known.items():
        assert kind.id == name
        assert kind.__doc__
        assert set(kind.minutes) == {"quick", "paper"}
        assert kind.of_size("paper", {}).at_paper_size
        assert not kind.of_size("quick", {}).at_paper_size
    assert find(["mixed/fig2", "mixed/fig2"]) == [MixedFig2]
    with pytest.raises(ln.InputError, match="'mixed/fig9' is not known"):
        find(["mixed/fig9"])
    for name, words in (("mixed/fig1", "registered twice"), ("mixd/fig3", "is no id"), ("mixed/Fig 3", "is no id")):
        with pytest.raises(ValueError, match=words):
            type("Again", (Experiment,), {"id": name, "__annotations__": {}})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"d": 3}, "mixed/fig1: d = 3 is not allowed: input should be greater than or equal to 10."),
        ({"d": "many"}, "d = 'many' is not allowed"),
        ({"c_lr": 0}, "c_lr = 0 is not allowed"),
        ({"rank": 60}, "rank = 60 must be below d / 2"),
        ({"speed": 1}, "speed is not known: mixed/fig1 has seed, d, rank"),
    ],
)
def test_parameters_are_checked(changes, words):
    with pytest.raises(ln.InputError) as error:
        MixedFig1.of_size("quick", changes)
    assert words in str(error.value)
    with pytest.raises(ln.InputError, match="size = 'huge'"):
        MixedFig1.of_size("huge", {})


def test_figure_one_and_its_acceptance_can_fail(tmp_path):
    figure = MixedFig1.of_size("quick", TOY1)
    data, kept = figure.data(tmp_path, quiet)
    assert not kept
    findings = figure.accept(data)
    all_hold(findings)
    again, kept = figure.data(tmp_path, quiet)
    assert kept
    xarray.testing.assert_identical(again.drop_attrs(), data.drop_attrs())
    other, kept = MixedFig1.of_size("quick", {**TOY1, "seed": 1}).data(tmp_path, quiet)
    assert not kept
    assert not np.allclose(other["test"], data["test"])
    # a closure with another threshold is not this network's
    spoilt = data.assign(test_mixed=1.5 * data["test_mixed"], values=data["values"][:, ::-1])
    assert sum(not finding.holds for finding in figure.accept(spoilt).values()) >= 5
    # signals that grow at one speed do not speed up
    ramp = np.linspace(0, 1, len(data["step"]))[:, None] * data["values"].values[-1]
    straight = figure.accept(data.assign(values=(data["values"].dims, ramp)))
    assert not next(finding for name, finding in straight.items() if name.startswith("signals speed up")).holds
    paper = MixedFig1()
    assert sum(not finding.holds for finding in paper.accept(data).values()) > 5
    picture = figure.draw(data)
    assert [axes.get_xlabel() for axes in picture.axes] == ["step", "step"]


def test_figure_two_is_a_sweep(tmp_path):
    figure = MixedFig2.of_size("quick", TOY2)
    data, _ = figure.data(tmp_path, quiet)
    assert (tmp_path / "data.zarr").is_dir()
    assert data["test"].shape == (3, 3)
    findings = figure.accept(data)
    assert findings["one neuron: stable rank"].holds
    assert findings["every cell ran its course: diverged or missing cells"].holds
    spoilt = data.assign(status=0 * data["status"], stable_rank=1 + data["stable_rank"])
    worse = figure.accept(spoilt)
    assert not worse["one neuron: stable rank"].holds
    assert not worse["every cell ran its course: diverged or missing cells"].holds
    assert len(figure.draw(data).axes) == 11
    assert len(figure.draw(data.drop_vars(["distance_euler", "largest_distance_euler"])).axes) == 9
    # errors that do not fall with d, and runs that end before the smallest error
    spoilt = data.assign(trend_test=data["trend_test"] * 0 + 0.5, last=data["test"] / 2)
    worse = {name for name, finding in figure.accept(spoilt).items() if not finding.holds} - {
        name for name, finding in findings.items() if not finding.holds
    }
    assert sum(name.startswith("mode model") for name in worse) == 3
    assert any("to the last" in name for name in worse) == any("to the last" in name for name in findings)
    sweep = json.loads(data.attrs["sweep"])
    assert sweep["let"]["d"] == 16


@pytest.mark.slow
def test_the_spec_ranges_are_asked_for_where_they_were_measured():
    paper, axes = MixedFig2(), {"gamma_sigma2": np.linspace(-3, 0, 35), "gamma_w": np.linspace(0, 2.8, 35)}
    names = ("test", "stable_rank", "step", "distance", "status", "train", "last")
    blank = xarray.Dataset({name: (tuple(axes), np.ones((35, 35))) for name in names}, coords=axes)
    second = {f"{name}_euler": np.linspace(values[0], values[-1], 8) for name, values in axes.items()}
    euler = xarray.Dataset({"distance_euler": (tuple(second), np.ones((8, 8)))}, coords=second)
    blank = blank.merge(euler).merge(paper.trend())
    findings = paper.accept(blank)
    assert sum(name.startswith("sum ") for name in findings) == 22
    # the regions are asked for where they are: a failure in the active corner is seen, one among the narrow is not
    spoilt = blank.copy(deep=True)
    spoilt["test"][:] = 0.01
    active = "active networks (sum of the exponents <= 0): largest test error"
    assert paper.accept(spoilt)[active].holds
    spoilt["test"][{"gamma_sigma2": 34, "gamma_w": 10}] = 1.0
    assert paper.accept(spoilt)[active].holds
    spoilt["test"][{"gamma_sigma2": 0, "gamma_w": 20}] = 1.0
    assert not paper.accept(spoilt)[active].holds
    assert sum("log distance" in name for name in findings) == 6
    assert not findings["sum -1.81 to -0.5: largest test error"].holds


def test_relu_networks_have_mixed_regimes(tmp_path):
    figure = MixedRelu.of_size("quick", {"samples": 128, "width": 128, "draws": 1})
    data, _ = figure.data(tmp_path, quiet)
    findings = figure.accept(data)
    assert len(findings) == 21
    loose = {name: finding for name, finding in findings.items() if "law" not in name}  # of wider networks
    all_hold(loose)
    assert figure.middle == 1
    assert np.allclose(figure.law(data).sel(mode=4, scale=4), np.sqrt(2))
    assert len(figure.draw(data).axes) == 3
    # one regime for all modes, lazy or active, is seen; so is a mode that is not learned
    for growth, words in ((0 * data["kernel"] + 1, "active"), (0 * data["kernel"] + 5, "lazy")):
        broken = {name for name, finding in figure.accept(data.assign(kernel=growth)).items() if not finding.holds}
        assert {kind for kind in KINDS if any(name.startswith(kind) and words in name for name in broken)} == set(KINDS)
    missed = figure.accept(data.assign(learned=0.5 * data["learned"]))
    assert sum(not finding.holds for name, finding in missed.items() if "learned" in name) == 3
    # ranges that were measured are asked for where they were
    assert len(MixedRelu.of_size("quick", {"values": (2.0, 1.0)}).accept(data.sel(mode=[4.0, 1.0]))) == 3


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"values": (1.0, 4.0)}, "values = (1.0, 4.0) must descend"),
        ({"values": (4.0, 3.0, 2.0, 1.0), "d": 3}, "must be at most d = 3 numbers"),
        ({"scales": (1.0, 0.5, 2.0)}, "scales = (1.0, 0.5, 2.0) must ascend"),
        ({"samples": 33, "d": 20}, "samples = 33 must be at least 4 d = 80"),
    ],
)
def test_parameters_of_relu_networks_are_checked(changes, words):
    with pytest.raises(ln.InputError) as error:
        MixedRelu.of_size("quick", changes)
    assert words in str(error.value)
