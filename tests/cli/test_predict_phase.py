"""`linnet predict phase`: what Python says, and every mistake as one sentence."""

import json

import numpy as np
import pytest

from linnet import prediction
from linnet._files import dumps

COMMAND = ("predict", "phase")
NETWORK = ("--gamma-w", 2.2, "--gamma-sigma2", -2, "--d", 40)


def test_python_and_the_command_say_the_same(typed):
    code, out, _ = typed(*NETWORK, "--levels", "0.5,1", "--c-lr", 40, "--seed", 3, "--run", "--json")
    assert code == 0
    same = prediction.phase(d=40, gamma_w=2.2, gamma_sigma2=-2, levels=[1, 0.5], c_lr=40, seed=3).measure()
    assert json.loads(out) == json.loads(dumps(same.to_dict()))
    code, out, _ = typed(*NETWORK, "--rank", 2, "--json")
    assert code == 0
    assert json.loads(out) == json.loads(dumps(prediction.phase(d=40, gamma_w=2.2, gamma_sigma2=-2, rank=2).to_dict()))


def test_what_is_shown(typed):
    code, out, _ = typed(*NETWORK, "--levels", "1,0.1")
    assert code == 0
    told = prediction.phase(d=40, gamma_w=2.2, gamma_sigma2=-2, levels=[1, 0.1])
    for words in (
        "rich: signals are learned first and alone",
        "40 -> 3,346 -> 40 neurons, variance 0.000625: threshold c = 2.09, 0.052 of the strongest signal.",
        "Exponent -0.80 from the transition, which at this width is at variance 0.012.",
        f"Learning rate 0.8; stable below {told.largest_stable_lr:.4g}.",
        "Levels 0.1 are below d^-1/2",
    ):
        assert words in out
    lines = [line.split() for line in out.splitlines()]
    first = told.signals[0]
    times = [f"{time.step:.3g}" for time in (first.half_learned, first.learned)]
    assert ["1", "1", f"{first.value:.4g}", *times] in lines
    noise = told.first_noise
    times = [f"{time.step:.3g}" for time in (noise.half_learned, noise.learned)]
    assert ["1", f"{noise.value:.4g}", *times] in lines
    assert ["stop", "at", "step", f"{told.stop.step:.3g}"] in lines
    assert ["test", "error", "there", f"{told.test_error:.4f}"] in lines


def test_a_matrix_of_a_file(typed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    target = np.random.default_rng(0).normal(size=(6, 9))
    np.save("b.npy", target)
    np.savetxt("b.csv", target, delimiter=",")
    said = []
    for name in ("b.npy", "b.csv"):
        code, out, _ = typed("--target", name, "--gamma-w", 3, "--gamma-sigma2", -2.5, "--run", "--json")
        assert code == 0
        said.append(json.loads(out))
    same = prediction.phase(target=target, gamma_w=3, gamma_sigma2=-2.5).measure()
    assert said == [json.loads(dumps(same.to_dict()))] * 2
    code, out, _ = typed("--target", "b.csv", "--gamma-w", 3, "--gamma-sigma2", -2.5)
    assert code == 0
    norm = np.linalg.norm(target, 2)
    assert f"The transition is at c = {norm:.4g}, at this width at variance {norm / 729:.3g}" in out
    assert "9 -> 729 -> 6 neurons" in out


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("none.csv", None, "target = 'none.csv' cannot be used: there is no such file."),
        ("nan.csv", "1,2\nnan,4\n", "target = 'nan.csv' cannot be used: line 2, column 1 holds nan"),
        ("zero.csv", "0,0\n0,0\n", "target = 'zero.csv' is zero everywhere"),
        ("column.csv", "1\n2\n3\n", "target = 'column.csv' has shape (3, 1): it must have two rows and two columns"),
        ("vector.npy", np.ones(4), "target = 'vector.npy' has shape (4,): it must be a matrix"),
        ("text.npy", "no array", "target = 'text.npy' cannot be used"),
        ("b.xls", "1,2\n", "target = 'b.xls' is not allowed: it must end in .csv"),
    ],
)
def test_a_file_that_is_no_such_matrix(name, content, words, typed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if isinstance(content, str):
        (tmp_path / name).write_text(content)
    elif content is not None:
        np.save(name, content)
    code, _, told = typed("--target", name, "--gamma-w", 2, "--gamma-sigma2", -1)
    assert code == 2
    assert words in told
    assert "Traceback" not in told


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--gamma-w", 2, "--gamma-sigma2", -1, "--d", 9, "--target", "b.csv"), "d = 9 is not allowed with target"),
        (("--gamma-w", 2, "--gamma-sigma2", -1), "d is missing: give the dimension d"),
        (("--gamma-w", 2, "--gamma-sigma2", -1, "--d", 1), "d = 1"),
        (("--gamma-w", 2, "--gamma-sigma2", -1, "--d", 9999, "--run"), "needs d <= 3000"),
        ((*NETWORK, "--levels", "1,x"), "levels = '1,x'"),
        ((*NETWORK, "--levels", "1,-1"), "levels = 1, -1 is not allowed"),
        ((*NETWORK, "--plot", "x.bmp"), "plot = 'x.bmp'"),
        ((*NETWORK, "--rank", 41), "rank = 41 is not allowed: rank must be a whole number from 1 to 40"),
        ((*NETWORK, "--c-lr", 1), "c_lr = 1.0 is not allowed"),
        ((*NETWORK, "--seed", -1), "seed = -1"),
        ((*NETWORK, "--levels", "1,0.001", "--c-lr", 1e6, "--run"), "100000 are the most"),
        (("--gamma-w", 21, "--gamma-sigma2", -1, "--d", 9), "gamma_w = 21"),
        (("--gamma-w", 20, "--gamma-sigma2", -1, "--d", 10**6), "must be at most 1e100"),
        (("--gamma-w", 0, "--gamma-sigma2", -20, "--d", 10**6), "beyond reason"),
    ],
)
def test_mistakes_are_one_sentence(arguments, words, typed):
    code, _, told = typed(*arguments)
    assert code == 2
    assert words in told
    assert "Traceback" not in told
