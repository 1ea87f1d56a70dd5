"""The figures of averages at the edge at quick size: they run, draw, and their acceptance can fail."""

import pytest
from toys import broken, passed

import linnet as ln
from linnet.experiments.flows_batches import FlowsBatches, FlowsReal


@pytest.mark.slow
def test_sharpness_over_the_batch_size(tmp_path):
    figure, data = passed(FlowsBatches, tmp_path)
    assert len(figure.draw(data).axes) == 3
    late = figure.means(data)
    assert (late["mean_square_edge"].diff("batch") > 0).all()
    for changed, words in (
        ({"noise_numerator": 0.5 * data["noise_numerator"]}, "linear network: largest distance"),
        ({"sharpness": 2 * data["sharpness"]}, "linear network: largest sharpness"),
        ({"sharpness": 0.95 * data["sharpness"]}, "tanh, all samples"),
        ({"sharpness": data["sharpness"].isel(batch=slice(None, None, -1))}, "tanh: least growth"),
        ({"batch_numerator": 2 * data["batch_numerator"]}, "tanh: largest batch sharpness"),
        ({"sharpness": 1.4 * data["sharpness"]}, "tanh, smallest batches"),
    ):
        new = data.assign({name: (data[name].dims, values.values) for name, values in changed.items()})
        assert any(failed.startswith(words) for failed in broken(figure, new)), words


@pytest.mark.slow
def test_rod_beside_training(tmp_path):
    figure, data = passed(FlowsReal, tmp_path)
    assert len(figure.draw(data).axes) == 3
    flow = {"rod_loss": data["flow_loss"], "rod_sharpness": data["flow_sharpness"]}
    assert broken(figure, data.assign(flow | {"rod_distance": data["flow_distance"]})) == {
        "mean loss from there on: median error of the rod",
        "the same of the flow, over the rod's",
        "sharpness lr/2 along the rod: median",
        "mean weights at the end: distance of the rod over that of the flow",
    }
    below = data.assign(descent_sharpness=0.5 * data["descent_sharpness"])
    assert broken(figure, below) == {"descent reaches the edge: step"}


def test_what_is_refused():
    for sizes in ((50, 10), (0, 10), (10, 100)):
        with pytest.raises(ln.InputError, match="must ascend, from 1 to 99"):
            FlowsBatches.of_size("quick", {"sizes": sizes})
    with pytest.raises(ln.InputError, match="images"):
        FlowsReal.of_size("quick", {"images": "cats"})


def test_a_machine_without_images_is_named_the_cure(monkeypatch, tmp_path):
    monkeypatch.setenv("LINNET_DATA", str(tmp_path))
    monkeypatch.setenv("LINNET_CACHE", str(tmp_path))
    assert FlowsReal().missing().endswith("--set images=digits needs no files.")
    assert FlowsReal(images="digits").missing() is None
