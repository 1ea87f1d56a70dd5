"""The figures of flows of averages at quick size: they run, draw, and their acceptance can fail."""

import pytest
from toys import broken, passed

from linnet.experiments.flows import EdgeOfNetwork, Mirror, ModeOnAverage


def failing(figure, data, **changed):
    """What is not found with other values of some variables."""
    return broken(figure, data.assign({name: (data[name].dims, values) for name, values in changed.items()}))


def with_run(data, name, run, values, axis="run"):
    """A variable with other values for one of its runs."""
    return data[name].where(data[name][axis] != run, values).values


@pytest.mark.slow
def test_edge_of_a_network(tmp_path):
    figure, data = passed(EdgeOfNetwork, tmp_path)
    assert len(figure.draw(data).axes) == 3
    stable = data["loss"].sel(run="stable")
    for flow in ("central", "rod"):
        assert failing(figure, data, loss=with_run(data, "loss", flow, stable)) == {
            f"mean loss of the run, {flow}: relative error",
            f"the same over that of gradient flow, {flow}",
        }
        far = with_run(data, "distance", flow, data["distance"].sel(run="stable"))
        assert failing(figure, data, distance=far) == {f"end, {flow}: distance over that of gradient flow"}
    same = with_run(data, "loss", "stable", data["loss"].sel(run="descent"))
    assert failing(figure, data, loss=same) == {
        f"the same over that of gradient flow, {flow}" for flow in ("central", "rod")
    }
    assert failing(figure, data, sharpness=1.01 * data["sharpness"].values) == {
        "central flow: largest distance of the sharpness from 2/lr, over 2/lr"
    }
    assert failing(figure, data, central_cost=data["central_cost"].values[::-1]) == {
        "central flow at the edge: largest relative rise of the cost in a step"
    }
    assert failing(figure, data, central_oscillation=0 * data["central_oscillation"].values) == {
        "loss below the edge, central flow: relative error"
    }


@pytest.mark.slow
def test_one_mode_on_average(tmp_path):
    figure, data = passed(ModeOnAverage, tmp_path)
    assert len(figure.draw(data).axes) == 4

    for flow, name, words in (
        ("rod run", "variance", "the rod against the 2-cycle, variance"),
        ("rod run", "loss", "the rod against the 2-cycle, loss"),
        ("central run", "variance", "the simulated central flow"),
        ("descent", "variance", "descent against its 2-cycle"),
        ("corrected", "variance", "the corrected central flow"),
    ):
        spoiled = with_run(data, name, flow, 1.05 * data[name].sel(flow=flow), "flow")
        found = failing(figure, data, **{name: spoiled})
        assert len(found) == 2, found
        assert all(words in one for one in found)
    tame = with_run(data, "variance", "descent", data["variance"].sel(flow="exact"), "flow")
    assert all("chaos" in one for one in failing(figure, data, variance=tame))
    assert len(failing(figure, data, variance=tame)) == 2


def test_the_mirror_of_catapults(tmp_path):
    figure, data = passed(Mirror, tmp_path)
    assert len(figure.draw(data).axes) == 2
    for flow, words in (
        ("descent", "descent: final excess over the mirror law, minus 1, over the initial excess"),
        ("rod", "rod: final excess over the mirror law, minus 1"),
    ):
        central = with_run(data, "excess", flow, data["excess"].sel(flow="central"), "flow")
        assert words in failing(figure, data, excess=central)
    down = with_run(data, "excess", "central", data["excess"].sel(flow="rod"), "flow")
    assert failing(figure, data, excess=down) == {"central flow: final distance from the edge"}
    short = with_run(data, "excess", "descent", 0.5 * data["excess"].sel(flow="descent"), "flow")
    assert "smallest fall of descent below the edge, over the initial excess" in failing(figure, data, excess=short)
