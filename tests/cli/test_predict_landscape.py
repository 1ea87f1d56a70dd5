"""`linnet predict landscape` as a user meets it."""

import json
import re

import numpy as np
import pytest

import linnet as ln
from linnet import prediction

COMMAND = ("predict", "landscape")


def test_the_table_and_the_json(typed):
    network = ("--depth", "3", "--width", "2", "--spectrum", "1,3,2", "--samples", "10")
    code, told, _ = typed(*network)
    assert code == 0
    assert "3 -> 2 -> 2 -> 3 neurons, bottleneck 2: 7 sets of modes." in told
    assert "Degenerate points are no minima" in told
    answer = json.loads(typed(*network, "--json")[1])
    assert answer["spectrum"] == pytest.approx([3, 2, 1])
    assert answer["critical_sets"] == answer["shown"] == 7
    points = {tuple(point["kept"]): point for point in answer["points"]}
    assert points[1, 2]["label"] == "global_min"
    assert points[()]["label"] == points[1,]["label"] == "degenerate_sosp"
    assert points[1, 3] == {
        "kept": [1, 3],
        "loss": pytest.approx(20),  # n/2 z_2^2
        "excess": pytest.approx(15),
        "label": "strict_saddle",
        "negative_eigenvalues": 1,
        "smallest_eigenvalue": pytest.approx(-10),  # n z_3^{1/3} (z_3 - z_2)
    }
    assert [p["loss"] for p in answer["points"]] == sorted(p["loss"] for p in answer["points"])


def test_two_layers_and_too_many_sets(typed):
    code, told, _ = typed("--width", "6", "--spectrum", "5,4,3,2,1,0.5", "--most", "9", "--inputs", "7")
    assert code == 0
    assert "64 sets of modes; here are 1 ... k and those of the smallest loss, 9 in all." in told.replace("\n", "")
    assert "Every critical point but the global minima has a descent direction" in told
    assert "1-6" in told  # runs are short
    assert re.search(r"^ *\d+ +1-4 6 ", told, re.MULTILINE)


def test_width_is_a_number(typed):
    answer = json.loads(typed("--width", "1000000", "--spectrum", "2,1", "--samples", "5", "--json")[1])
    assert [p["negative_eigenvalues"] for p in answer["points"]] == [0, 999_999, 1_000_000, 2_000_000]


def test_the_command_says_what_python_says(typed, close, tmp_path):
    """Every field, measured ones included."""
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(5, 4)), rng.normal(size=(5, 2))
    np.savez(tmp_path / "d.npz", X=x, Y=y)
    for arguments, problem in (
        (("--data", "d.npz"), ln.regression(x, y)),
        (("--data", "d.npz", "--average"), ln.regression(x, y, average=True)),
        (("--spectrum", "1,2", "--samples", 9), prediction.whitened([1, 2], samples=9)),
    ):
        network = ("--width", "3,2", *arguments)
        said = prediction.landscape(problem, (3, 2))
        assert json.loads(typed(*network, "--json")[1]) == close(said.to_dict())
        run = json.loads(typed(*network, "--run", "--plot", "p.svg", "--json")[1])
        assert (run.pop("figure"), (tmp_path / "p.svg").read_text()[:5]) == ("p.svg", "<?xml")
        assert len(run["run"]["points"]) == said.shown
        assert run == close(said.measure().to_dict())
    assert "4 of 4 points" in typed("--width", 2, "--spectrum", "2,1", "--run")[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--width", "2"), "data or spectrum: give one of them"),
        (("--width", "0", "--spectrum", "1"), "width = 0"),
        (("--width", "1.5", "--spectrum", "1"), "width = '1.5' is not allowed: give whole numbers"),
        (("--width", "a", "--spectrum", "1"), "width = 'a'"),
        (("--width", "2", "--spectrum", "1,x"), "spectrum = '1,x'"),
        (("--width", "2", "--spectrum", "1,-2"), "must not be negative"),
        (("--width", "2", "--spectrum", "1,nan"), "spectrum holds 1 NaN or infinite entries"),
        (("--width", "2", "--spectrum", "1,2", "--samples", "1"), "whitened data need n >= d_in"),
        (("--width", "2", "--spectrum", "1,2", "--inputs", "1"), "inputs = 1"),
        (("--width", "2,3", "--spectrum", "1,2", "--depth", "2"), "has 1 hidden width;"),
        (("--width", "2", "--spectrum", "1", "--depth", "1"), "depth = 1"),
        (("--width", "2", "--spectrum", "1", "--most", "0"), "most = 0"),
        (("--width", "2", "--spectrum", "1", "--inputs", "2001"), "inputs = 2001"),
        (("--width", "2", "--spectrum", "1", "--average"), "average is not allowed with --spectrum"),
        (("--width", "2", "--spectrum", "1", "--plot", "a.txt"), "plot = 'a.txt'"),
        (("--width", "2000", "--spectrum", "1", "--run"), "4,000 weights cannot be measured"),
    ],
)
def test_mistakes_are_one_sentence(arguments, words, typed):
    code, _, told = typed(*arguments)
    assert code == 2
    assert words in told
    assert "Traceback" not in told


def test_data_of_ones_own(typed, tmp_path):
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(20, 4)), rng.normal(size=(20, 2))
    file = tmp_path / "mine.csv"
    np.savetxt(file, np.hstack([x, y]), delimiter=",")
    answer = json.loads(typed("--width", "2", "--data", str(file), "--outputs", "2", "--json")[1])
    points = {tuple(point["kept"]): point for point in answer["points"]}
    a = np.linalg.lstsq(x, y, rcond=None)[0]
    assert points[1, 2]["loss"] == pytest.approx(np.sum((x @ a - y) ** 2) / 2)
    assert points[1, 2]["smallest_eigenvalue"] == 0
    assert points[()]["smallest_eigenvalue"] == pytest.approx(-np.linalg.norm(y.T @ x, 2))  # zero weights, nonlocal/C5
    both = typed("--width", "2", "--data", str(file), "--spectrum", "3,1")
    assert (both[0], "give one of them" in both[2]) == (2, True)
    assert "inputs = 4 is not allowed with --data" in typed("--width", "2", "--data", str(file), "--inputs", "4")[2]
