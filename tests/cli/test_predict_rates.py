"""`linnet predict rates`: every number against the layers' own flow, and every mistake as one sentence."""

import json

import jax
import numpy as np
import pytest

import linnet as ln
from linnet import prediction

COMMAND = ("predict", "rates")


@pytest.mark.slow
def test_the_command_says_what_python_says(typed, close, tmp_path):
    """Every field, measured ones included."""
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(9, 3)), rng.normal(size=(9, 2))
    np.savez(tmp_path / "d.npz", X=x, Y=y)
    for arguments, problem, options in (
        (("--data", "d.npz"), ln.regression(x, y), {}),
        (("--data", "d.npz", "--average", "--seed", 3), ln.regression(x, y, average=True), {"seed": 3}),
        (
            ("--spectrum", "1,2", "--samples", 5, "--inputs", 3, "--scale", 2.5, "--alignment", 0.4),
            prediction.whitened([1, 2], samples=5, inputs=3),
            {"scale": 2.5, "alignment": 0.4},
        ),
    ):
        white = problem if "--spectrum" in arguments else problem.whiten().problem
        seed, scale, alignment = (options.get(name) for name in ("seed", "scale", "alignment"))
        network = ln.init.rank_one(jax.random.key(seed or 0), white, scale or 0.01, 3, alignment=alignment)
        said = prediction.rates(white, network)
        told = json.loads(typed("--depth", 3, *arguments, "--json")[1])
        assert (told.pop("seed"), told.pop("whitened_first")) == (seed or 0, white is not problem)
        scales = np.linalg.svd(problem.root, compute_uv=False)
        assert told.pop("anisotropy") == pytest.approx(1 - (scales[-1] / scales[0]) ** 2)
        assert told.pop("normalization") == ("mean" if "--average" in arguments else "sum")
        if white is not problem:
            assert told.pop("notes") == ["This is about your data, whitened first."]
        assert told == {name: part for name, part in close(said.to_dict()).items() if name in told}
        assert set(said.to_dict()) - set(told) <= {"normalization", "notes"}
    measured = said.measure().to_dict()["run"]
    assert json.loads(typed("--depth", 3, *arguments, "--run", "--json")[1])["run"] == close(measured)


def test_what_is_told(typed, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 4))
    np.savez(tmp_path / "d.npz", X=x, Y=x @ rng.normal(size=(4, 1)) + rng.normal(size=(30, 1)))
    code, out, _ = typed("--depth", 3, "--data", "d.npz", "--scale", 6, "--alignment", 0.9, "--plot", "r.png")
    assert code == 0
    assert "your data, whitened first" in out
    assert "far phase ends" in out
    assert "proved" in out
    assert (tmp_path / "r.png").stat().st_size > 10_000
    code, out, _ = typed("--depth", 3, "--spectrum", "3,1", "--alignment", -0.5)
    assert "It gets there" in out  # both signs do, but for a null set of directions
    answer = json.loads(typed("--depth", 2, "--spectrum", "1,1", "--scale", 1e-6, "--json")[1])
    assert answer["near_rate"] == pytest.approx(2)  # along the fits that are equally good nothing moves
    assert answer["learned"]["time"] == pytest.approx(np.log(1e6 * 100) / 2, rel=0.1)
    at_rest = json.loads(typed("--depth", 2, "--spectrum", "3,1", "--alignment", 1, "--scale", 1, "--run", "--json")[1])
    assert at_rest["far_rate"] is None
    assert at_rest["learned"]["time"] == 0
    code, out, _ = typed("--depth", 4, "--spectrum", "0.5", "--alignment", -1)
    assert code == 0
    assert "It does not get there: the flow ends at size 0" in out
    assert "never" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--depth", "1", "--spectrum", "2"), "depth = 1"),
        (("--depth", "3"), "data or spectrum: give one of them"),
        (("--depth", "3", "--spectrum", "2,x"), "spectrum = '2,x'"),
        (("--depth", "3", "--spectrum", "2,-1"), "spectrum = 2, -1"),
        (("--depth", "3", "--spectrum", "0"), "one must be positive"),
        (("--depth", "3", "--spectrum", "2", "--scale", "0"), "scale = 0"),
        (("--depth", "3", "--spectrum", "2,1", "--alignment", "2"), "alignment = 2"),
        (("--depth", "3", "--spectrum", "2", "--samples", "0"), "samples = 0"),
        (("--depth", "3", "--spectrum", "2,1", "--outputs", "1"), "outputs = 1"),
        (("--depth", "3", "--spectrum", "2", "--average"), "average is not allowed with --spectrum"),
        (("--depth", "3", "--data", "few.csv"), "cannot be whitened: 2 samples for 3 inputs; give at least as many"),
        (("--depth", "3", "--data", "few.csv", "--samples", "3"), "samples = 3 is not allowed with --data"),
        (("--depth", "3", "--data", "twice.csv"), "its 2 inputs have rank 1; leave out columns that depend on others"),
        (("--depth", "3", "--data", "across.csv"), "labels that are zero or orthogonal to its inputs"),
        (("--depth", "3", "--spectrum", "1e300,1"), "keep its values between 1e-50 and 1e+50"),
        (("--depth", "3", "--spectrum", "1", "--alignment", "0.5"), "one input and one output are aligned by +-1"),
        (("--depth", "3", "--spectrum", "1", "--scale", "1e-90", "--run"), "scale = 1e-90 cannot be measured"),
        (("--depth", "3", "--spectrum", "1", "--seed", "1" + "0" * 400), "seed = 1000"),
        (("--depth", "3", "--spectrum", "2", "--plot", "a.txt"), "plot = 'a.txt'"),
    ],
)
def test_mistakes_are_one_sentence(arguments, words, typed, tmp_path):
    (tmp_path / "few.csv").write_text("1,2,3,4\n5,6,7,9\n")
    (tmp_path / "twice.csv").write_text("1,2,3\n2,4,6\n5,10,1\n")
    (tmp_path / "across.csv").write_text("1,1\n1,-1\n")
    code, _, told = typed(*arguments)
    assert code == 2
    assert words in told
    assert "Traceback" not in told
