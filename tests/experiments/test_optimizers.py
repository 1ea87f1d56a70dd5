"""The figures of optimizers at quick size: they run, draw, and their acceptance can fail."""

import pytest
from toys import broken, passed

import linnet as ln
from linnet.experiments.optimizers import OptimizersDecay, OptimizersEdge, OptimizersNoise


def test_edge_of_each_optimizer(tmp_path):
    figure, data = passed(OptimizersEdge, tmp_path)
    assert len(figure.draw(data).axes) == 8
    # each by the limit of another: heavy ball by that of descent, Nesterov and descent by that of heavy ball
    for name, factor, words in (
        ("heavy ball", 1.5, "heavy ball rests below"),
        ("Nesterov", 0.5, "Nesterov reaches"),
        ("descent", 1 / 1.5, "descent reaches"),
        ("Adam", 2.0, "Adam passes"),
        ("Adam", 0.5, "Adam passes"),
    ):
        told = data["sharpness"].where(data["optimizer"] != name, factor * data["sharpness"])
        assert any(failed.startswith(words) for failed in broken(figure, data.assign(sharpness=told))), name
    assert len(broken(figure, data.assign(flow=0.7 * data["flow"]))) == 6
    assert len(broken(figure, data.assign(loss=1 / data["loss"]))) == 5


def test_spectrum_under_decay(tmp_path):
    figure, data = passed(OptimizersDecay, tmp_path, depths=(2, 3), steps=4000)
    assert len(figure.draw(data).axes) == 2
    soft = (data["target"] - data["decay"]).clip(min=0)
    assert broken(figure, data.assign(large=soft.expand_dims(depth=data["depth"]))) == {
        "depth 3, from the target: largest gap of a value to its formula",
        "depth 3 jumps: smallest learned value / target",
        "depth 3: modes whose minimum is on the wrong side of the threshold",
    }
    assert len(broken(figure, data.assign(small=data["large"]))) == 1
    assert len(broken(figure, data.assign(saved=-data["saved"]))) == 1


@pytest.mark.slow
def test_stable_steps_over_the_batch_size(tmp_path):
    figure, data = passed(OptimizersNoise, tmp_path, batches=(4,))
    assert len(figure.draw(data).axes) == 2
    # the formulas with and without replacement differ, and neither is that of shuffled passes
    swapped = data["predicted"].isel(draw=[1, 0, 0]).assign_coords(draw=data["draw"])
    failed = broken(figure, data.assign(predicted=swapped))
    assert {name.split(":")[0] for name in failed} >= {
        "subset, momentum 0",
        "subset, momentum 0.9",
        "replacement, momentum 0",
        "replacement, momentum 0.9",
        "shuffled, momentum 0",
        "shuffled, momentum 0.9",
    }
    assert "largest error of a step / the step" in broken(figure, data.assign(error=data["error"] + 0.1))


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    [
        (OptimizersDecay, {"values": (1.0, 2.0)}, "values = (1.0, 2.0) must descend"),
        (OptimizersNoise, {"batches": (4, 1)}, "batches = (4, 1) must ascend"),
        (OptimizersNoise, {"batches": (3,)}, "batches"),
    ],
)
def test_parameters_are_checked(kind, changes, words):
    with pytest.raises(ln.InputError) as error:
        kind.of_size("paper", changes)
    assert words in str(error.value)
