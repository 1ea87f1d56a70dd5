"""The figures of balance at toy size: they run, draw, and their acceptance can fail."""

import pytest
from toys import broken, passed

import linnet as ln
from linnet.experiments.balance import BalanceReversal, OneNeuron, Representations


def test_representations_over_lambda(tmp_path):
    figure, data = passed(Representations, tmp_path, lams=(-20.0, 0.0, 20.0), points=11)
    assert len(figure.draw(data).axes) == 9
    assert len(broken(figure, data.assign(closed=1.03 * data["closed"]))) == 2
    assert len(broken(figure, data.assign(drift=data["drift"].isel(lam=[1, 0, 2]).assign_coords(lam=data["lam"])))) == 3
    swapped = data.assign(inputs=data["inputs"].isel(lam=slice(None, None, -1)).assign_coords(lam=data["lam"]))
    assert len(broken(figure, swapped)) == 1


def test_change_of_task_over_lambda(tmp_path):
    figure, data = passed(BalanceReversal, tmp_path, lams=(0.0, 1.0, 10.0), grid=9, points=200)
    assert len(figure.draw(data).axes) == 3
    assert len(broken(figure, data.assign(learned=1.2 * data["learned"]))) == 3
    assert len(broken(figure, data.assign(simulated=1.02 * data["simulated"]))) == 2
    assert len(broken(figure, data.assign(loss=0.9 * data["loss"]))) == 2
    other = data.assign(learned=data["learned"].isel(task=[1, 0]).assign_coords(task=data["task"]))
    assert len(broken(figure, other)) == 2


def test_roads_of_one_neuron(tmp_path):
    figure, data = passed(OneNeuron, tmp_path, ratios=(0.25, 1.0), grid=8, trajectories=4)
    assert len(figure.draw(data).axes) == 6
    turned = data.assign(end=data["end"].isel(ratio=[1, 0]).assign_coords(ratio=data["ratio"]))
    assert len(broken(figure, turned)) == 3
    assert (
        len(
            broken(
                figure, data.assign(trajectory=data["trajectory"].isel(lam=[2, 1, 0]).assign_coords(lam=data["lam"]))
            )
        )
        == 1
    )
    assert len(broken(figure, data.assign(end=1.01 * data["end"], gap=data["gap"] + 1))) == 3


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    [
        (Representations, {"lams": (-1.0, 1.0, 2.0)}, "lams = (-1.0, 1.0, 2.0) must ascend and have 0 among them"),
        (BalanceReversal, {"lams": (1.0, 2.0, 3.0)}, "lams = (1.0, 2.0, 3.0) must ascend from 0"),
        (OneNeuron, {"lams": (0.0, 1.0)}, "lams = (0.0, 1.0) must ascend from below 0 to above 0"),
    ],
)
def test_parameters_are_checked(kind, changes, words):
    with pytest.raises(ln.InputError) as error:
        kind.of_size("paper", changes)
    assert words in str(error.value)
