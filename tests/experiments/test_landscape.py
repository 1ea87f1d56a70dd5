"""The map of critical points: it is accepted, its acceptance can fail, and its parameters are checked."""

import numpy as np
import pytest
from toys import all_hold

import linnet as ln
from linnet.experiments import find
from linnet.experiments.landscape import NonlocalLandscape
from linnet.observe import Kind

TOY = {"spectrum": (3.0, 2.0, 1.0), "bottleneck": 2, "inputs": 3, "samples": 4}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    figure = NonlocalLandscape.of_size("quick", TOY)
    folder = tmp_path_factory.mktemp("landscape")
    data, kept = figure.data(folder, lambda done, total: None)
    assert not kept
    again, kept = figure.data(folder, lambda done, total: None)
    assert kept
    assert again.drop_attrs().identical(data.drop_attrs())
    return figure, data


def test_it_is_accepted_and_drawn(made):
    figure, data = made
    assert find(["nonlocal/landscape"]) == [NonlocalLandscape]
    findings = figure.accept(data)
    all_hold(findings)
    assert data["loss"].shape == (2, 7)
    picture = figure.draw(data)
    assert [axes.get_title() for axes in picture.axes] == ["2 layers", "3 layers"]
    assert {text.get_text() for text in picture.axes[0].texts} == {"none", "1", "2", "3", "1 2", "1 3", "2 3"}


@pytest.mark.parametrize(
    ("spoil", "count"),
    [
        (lambda d: d.assign(gap=d["gap"] + 1e-9), 1),
        (lambda d: d.assign(measured=0 * d["measured"]), 1),
        (lambda d: d.assign(measured_skew=0 * d["measured_skew"]), 1),
        (lambda d: d.assign(negative=0 * d["negative"]), 1),
        (lambda d: d.assign(excess=1.001 * d["excess"]), 1),
        (lambda d: d.assign(label=0 * d["label"] + list(Kind).index("degenerate_sosp")), 5),
        (lambda d: d.assign(label=0 * d["label"] + list(Kind).index("global_min")), 5),
    ],
)
def test_its_acceptance_can_fail(spoil, count, made):
    figure, data = made
    assert sum(not finding.holds for finding in figure.accept(spoil(data)).values()) == count


def test_equal_modes_stand_for_each_other(tmp_path):
    figure = NonlocalLandscape.of_size("quick", {**TOY, "spectrum": (2.0, 1.0, 1.0), "seed": 3})
    data, _ = figure.data(tmp_path, lambda done, total: None)
    findings = figure.accept(data)
    all_hold(findings)
    assert np.sum(data["label"].values[0] == list(Kind).index("global_min")) == 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"spectrum": (1.0, 2.0)}, "descending"),
        ({"spectrum": (1.0, 0.0)}, "positive"),
        ({"inputs": 2}, "number of modes"),
        ({"samples": 3, "inputs": 4}, "whitened data"),
        ({"depths": (1, 2)}, "depths.0 = 1 is not allowed: input should be greater than or equal to 2"),
        ({"bottleneck": 0}, "bottleneck = 0"),
    ],
)
def test_parameters_are_checked(changes, words):
    with pytest.raises(ln.InputError) as error:
        NonlocalLandscape.of_size("quick", changes)
    assert words in str(error.value)
