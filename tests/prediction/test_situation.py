from pathlib import Path

import numpy as np
import pytest

from linnet import prediction
from linnet._check import InputError
from linnet.prediction.situation import Situation, examples, read_situation, situation_text


@pytest.mark.parametrize("name", examples())
def test_a_situation_is_what_its_tables_say(name):
    """Read, told as tables and made again: the same."""
    read = read_situation(name)
    assert Situation(**read.model_dump()) == read
    assert situation_text(name) == examples()[name].read_text()


def test_changes_replace_what_they_name():
    read = read_situation("small-start", training={"lr": 0.5, "signal": None}, init={"seed": 3})
    assert (read.training.lr, read.training.signal) == (0.5, 3)
    assert (read.init.kind, read.init.scale, read.init.seed) == ("one-zero", 0.01, 3)
    other = read_situation("own-data", data={"spectrum": [2.0]})
    assert other.data.spectrum == [2.0]
    assert (other.data.file, other.data.loss, other.data.outputs) == (None, None, None)
    assert read_situation("own-data", data={"loss": "sum"}).data.loss == "sum"


def test_files_are_read_beside_their_toml(tmp_path):
    (tmp_path / "mine.csv").write_text("1,2\n2,1\n")
    (tmp_path / "mine.toml").write_text('[data]\nfile = "mine.csv"\n')
    assert read_situation(tmp_path / "mine.toml").data.file == str(tmp_path / "mine.csv")


def test_arrays_numpy_numbers_and_paths_are_taken():
    plain = Situation(data={"spectrum": [3.0, 1.0]}, network={"width": 64}, init={"scale": [0.1, 0.2], "seed": 4})
    mine = Situation(
        data={"spectrum": np.array([3.0, 1.0])},
        network={"width": np.int64(64)},
        init={"scale": (np.float32(0.1).astype(float).round(7), 0.2), "seed": np.int64(4)},
    )
    assert mine == plain
    assert Situation(data={"file": Path("x.csv")}).data.file == "x.csv"


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"color": {}}, "color is not known"),
        ({"data": {"spectrum": [1.0], "color": 3}}, "data.color is not known"),
        ({"data": {}}, "data needs one of file and spectrum"),
        ({"data": {"spectrum": [3, -1]}}, "data.spectrum"),
        ({"data": {"spectrum": [1.0], "loss": "mean"}}, "data.loss is not allowed with spectrum"),
        ({"data": {"spectrum": [1, 1], "inputs": 1}}, "data.inputs = 1 is less than the 2 singular values"),
        ({"data": {"file": "x.csv", "loss": "median"}}, "data.loss = 'median' is not allowed"),
        ({"data": [1, 2]}, "data = [1, 2] is not allowed"),
        ({"network": {"depth": 3, "width": [4]}}, "network.width has 1 numbers"),
        ({"init": {"seed": -1}}, "init.seed = -1 is not allowed"),
        ({"training": {"lr": "fast"}}, "training.lr = 'fast' is not allowed"),
        ({"training": {"lr": True}}, "training.lr = True is not allowed"),
        ({"training": {"momentum": 1.0}}, "training.momentum = 1.0 is not allowed"),
        ({"title": 3}, "title = 3 is not allowed"),
    ],
)
def test_mistakes_are_one_sentence(tables, said):
    with pytest.raises(InputError) as error:
        Situation(**tables)
    assert said in str(error.value)
    assert str(error.value).endswith(".")
    assert not str(error.value).endswith("..")
    assert "\n" not in str(error.value)


def test_mistakes_of_a_file_name_it(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("[network]\ndepth = 0\n")
    with pytest.raises(InputError, match=r"mine.toml: network.depth = 0 is not allowed"):
        prediction.read_situation(path)
