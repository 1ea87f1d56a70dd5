"""`linnet predict stability`: the same as in Python, words for every outcome, and every mistake as one sentence."""

import json

import pytest

import linnet as ln
from linnet import prediction
from linnet._files import dumps
from linnet.cli.models import StabilityTopic

COMMAND = ("predict", "stability")


def answer(typed, *arguments):
    code, out, err = typed(*arguments, "--json")
    assert code == 0, err
    assert "NaN" not in out
    return json.loads(out)


@pytest.mark.parametrize("depth", [1, 3])
def test_python_and_the_command_agree_in_every_field(depth, typed):
    told = answer(
        typed, *("--depth", depth, "--spectrum", "6,10,8", "--lr", 0.0166, "--alpha", 0.2, "--d", 4, "--seed", 3),
        *("--init", "orthogonal", "--whole", "--run", "--plot", "a.png"),
    )  # fmt: skip
    options = {"depth": depth, "lr": 0.0166, "alpha": 0.2, "d": 4, "seed": 3, "init": "orthogonal", "half": False}
    said = StabilityTopic(spectrum=[6.0, 10.0, 8.0], **options).predict()
    assert told.pop("figure") == "a.png"
    assert told == json.loads(dumps(said.measure().to_dict()))


def test_momentum_and_decay_are_told_as_in_python(typed):
    told = answer(
        typed,
        "--depth",
        3,
        "--spectrum",
        "3,1",
        "--momentum",
        0.9,
        "--nesterov",
        "--dampening",
        0.9,
        "--weight-decay",
        0.1,
        "--decoupled",
    )
    problem = ln.factorization([3.0, 1.0])
    network = ln.init.one_zero(problem, told["alpha"], 3)
    how = {"nesterov": True, "dampening": 0.9, "decoupled": True}
    optimizer = ln.optim.SGD(told["lr"], momentum=0.9, weight_decay=0.1, **how)
    said = json.loads(dumps(prediction.stability(problem, network, optimizer).to_dict()))
    assert {name: told[name] for name in said if name != "notes"} == {k: v for k, v in said.items() if k != "notes"}
    words = typed("--depth", 3, "--spectrum", "3,1", "--momentum", 0.9, "--weight-decay", 0.1)[1]
    assert "momentum 0.9 and weight decay 0.1 in the gradient" in words
    assert "stable below lr =" in words


def test_batches_are_told_as_in_python(typed):
    asked = ("--depth", 3, "--spectrum", "3,1", "--batch-size", 8, "--momentum", 0.5)
    told = answer(typed, *asked)
    problem = ln.factorization([3.0, 1.0])
    optimizer = ln.optim.SGD(told["lr"], momentum=0.5, batches=ln.optim.Online(8))
    said = prediction.stability(problem, ln.init.one_zero(problem, told["alpha"], 3), optimizer)
    assert told["largest_stable_lr_with_batches"] == said.largest_stable_lr_with_batches
    assert told["batch_size"] == 8
    assert 0 < told["largest_stable_lr_with_batches"] < told["largest_stable_lr"]
    assert "with batches of 8 fresh Gaussian samples" in " ".join(typed(*asked)[1].split())
    assert answer(typed, *asked, "--nesterov")["largest_stable_lr_with_batches"] is None
    whole = answer(typed, *asked[:4])
    assert (whole["batch_size"], whole["largest_stable_lr_with_batches"]) == (None, None)


def test_every_outcome_has_its_word(typed, tmp_path):
    base = ("--depth", 3, "--spectrum", "10,6")
    edge = 1 / (3 * 10 ** (4 / 3))  # lr of kappa = 1
    assert "It converges" in typed(*base, "--lr", 1.5 * edge)[1]
    assert "period 4" in typed(*base, "--lr", 2.52 * edge)[1]
    assert "chaos, exponent +" in typed(*base, "--lr", 2.66 * edge)[1]
    assert "trapped at 0" in typed(*base, "--lr", 3.8 * edge)[1]
    code, out, _ = typed(*base, "--lr", 100 * edge, "--run", "--plot", "far.png")
    assert code == 0
    assert "It diverges after" in out
    assert "Exact run" in out
    assert "diverged" in out
    assert "nan" not in out.lower()
    assert (tmp_path / "far.png").stat().st_size > 10_000
    assert "leaves the saddle only after about" in typed("--depth", 9, "--spectrum", "2", "--alpha", 0.01)[1]
    assert "now near 0 for long" in typed("--depth", 4, "--spectrum", 10, "--lr", 0.0332039, "--init", "balanced")[1]
    chosen = typed(*base)[1]
    assert "chosen here: halfway from the edge of stability" in chosen
    assert "It converges" in typed("--depth", 1, "--spectrum", "2,1", "--init", "balanced")[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--depth", "0", "--spectrum", "2"), "depth = 0"),
        (("--depth", "3", "--spectrum", ""), "spectrum = ''"),
        (("--depth", "3", "--spectrum", "2,x"), "spectrum = '2,x'"),
        (("--depth", "3", "--spectrum", "2,-1"), "its values must be positive"),
        (("--depth", "3", "--spectrum", "2,0"), "leave out zeros"),
        (("--depth", "3", "--spectrum", "1e30"), "must be from 1e-12 to 1e12"),
        (("--depth", "3", "--spectrum", "2,1", "--alpha", "1"), "alpha must be below the smallest singular value, 1"),
        (("--depth", "3", "--spectrum", "2,1", "--alpha", "0"), "alpha = 0"),
        (("--depth", "3", "--spectrum", "2,1", "--lr", "0"), "lr = 0"),
        (("--depth", "3", "--spectrum", "2,1", "--lr", "nan"), "lr = nan"),
        (("--depth", "3", "--spectrum", "2,1", "--init", "zero"), "init = 'zero'"),
        (("--depth", "3", "--spectrum", "2,1", "--d", "1"), "d = 1"),
        (("--depth", "3", "--spectrum", "2,1", "--batch-size", "0"), "batch_size = 0"),
        (("--depth", "3", "--spectrum", "2", "--plot", "a.txt"), "plot = 'a.txt'"),
    ],
)
def test_mistakes_are_one_sentence(arguments, words, typed):
    code, _, told = typed(*arguments)
    assert code == 2
    assert words in told
    assert "Traceback" not in told
