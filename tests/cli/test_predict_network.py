"""`linnet predict network`: as in Python, and every mistake as one sentence."""

import json

import numpy as np
import pytest

import linnet as ln
from linnet import prediction
from linnet._files import dumps
from linnet.prediction.situation import examples

COMMAND = ("predict", "network")


@pytest.mark.quick(1)
@pytest.mark.parametrize("run", [False, True])
def test_the_command_tells_every_field_of_the_answer(run, typed, tmp_path):
    for arguments, said in (
        (("small-start",), prediction.read_situation("small-start").predict()),
        (("edge",), prediction.read_situation("edge").predict()),
        (
            ("--spectrum", "3,1", "--width", 40, "--scale", "0.1,0.05", "--seed", 3, "--lr", 0.01, "--signal", 1),
            prediction.Situation(
                data={"spectrum": [3, 1]},
                network={"width": 40},
                init={"scale": [0.1, 0.05], "seed": 3},
                training={"lr": 0.01, "signal": 1},
            ).predict(),
        ),
    ):
        code, out, _ = typed(*arguments, "--json", *(["--run"] if run else []), "--plot", "p.png")
        assert code == 0
        assert json.loads(out) == json.loads(dumps((said.measure() if run else said).to_dict())) | {"figure": "p.png"}
        assert (tmp_path / "p.png").stat().st_size > 10_000


def test_sum_is_the_default_and_average_the_mean(typed, tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(9, 3)), rng.normal(size=(9, 1))
    np.savetxt(tmp_path / "d.csv", np.hstack([x, y]), delimiter=",")
    for option, average in (((), False), (("--sum",), False), (("--average",), True)):
        answer = json.loads(typed("--data", "d.csv", "--width", 5, "--scale", 0.1, *option, "--json")[1])
        situation = prediction.Situation(network={"width": 5}, init={"scale": 0.1})
        said = situation.predict(ln.regression(x, y, average=average))
        assert answer["normalization"] == ("mean" if average else "sum")
        assert answer["lr"] == pytest.approx(said.lr, rel=1e-12)


def test_samples_are_read_as_the_options_say(typed, tmp_path):
    rng = np.random.default_rng(1)
    table, frozen = rng.normal(size=(12, 5)) + 3, rng.normal(size=(2, 3))
    np.savetxt(tmp_path / "d.csv", table, delimiter=";", header="p;a;q;b;c", comments="", fmt="%.17g")
    np.save(tmp_path / "w0.npy", frozen)
    both = {"outputs": ["p", "q"]}
    for options, how in (
        (("--outputs", "p,q"), both),
        (("--outputs", 2), {"outputs": 2}),
        (("--outputs", "p", "--inputs", "a,b"), {"outputs": "p", "inputs": ["a", "b"]}),
        (("--outputs", "p,q", "--standardize", "--center"), both | {"standardize": True, "center": True}),
        (("--outputs", "p,q", "--intercept"), both | {"intercept": True}),
        (("--outputs", "p,q", "--frozen", "w0.npy"), both | {"frozen": frozen}),
    ):
        # one layer is a formula, where two are followed step by step
        code, out, _ = typed("--data", "d.csv", *options, "--depth", 1, "--scale", 0.1, "--average", "--json")
        assert code == 0
        own = prediction.read_regression(tmp_path / "d.csv", **how, average=True)
        said = prediction.Situation(network={"depth": 1}, init={"scale": 0.1}).predict(own)
        assert json.loads(out) == json.loads(dumps(said.to_dict()))


def test_counts_are_typed_as_people_write_them(typed):
    answers = [
        json.loads(typed("--spectrum", "3,1", "--width", width, "--seed", seed, "--scale", 0.001, "--json")[1])
        for width, seed in (("1000000", "20"), ("1e6", "2e1"), ("1_000_000", "2_0"))
    ]
    assert answers[0]["hidden"] == [1_000_000]
    assert answers[0]["init"]["seed"] == 20
    assert answers[1] == answers[2] == answers[0]


def test_adapters_as_engineers_write_them(typed):
    flags = ("--spectrum", "4,2,1", "--inputs", 64, "--outputs", 32, "--width", 16, "--alpha", 32, "--init", "lora")
    said = prediction.Situation(
        data={"spectrum": [4, 2, 1], "inputs": 64, "outputs": 32},
        network={"width": 16, "alpha": 32},
        init={"kind": "lora"},
    ).predict()
    assert json.loads(typed(*flags, "--json")[1]) == json.loads(dumps(said.to_dict()))
    words = " ".join(typed(*flags)[1].split())  # without the line breaks of a terminal
    assert "loss 1/2 |2 A - A*|^2; 2 layers, width 16, lora initialization of scale 0.0722, 0." in words


def test_words_are_those_of_the_answer(typed):
    code, out, _ = typed("lora")
    assert code == 0
    assert "A low-rank adapter" in out
    assert "Rich: of 3 modes 3 rich" in out
    assert "nonlocal/C1, nonlocal/C4" in out


def test_every_example_is_shown_and_named(typed):
    assert set(examples()) == {"edge", "lazy", "lora", "own-data", "small-start"}
    for name, path in examples().items():
        code, out, _ = typed(name, "--show")
        assert code == 0
        assert out == path.read_text()
    assert "name an example" in typed("--show")[2]
    for option in (["--json"], ["--run"], ["--plot", "x.png"], ["--momentum", "2"], ["--intercept"], ["--seed", "1"]):
        code, out, err = typed("edge", "--show", *option)
        assert (code, out) == (2, "")
        assert f"{option[0][2:]} is not allowed with --show: the file alone is printed." in err


def test_flags_say_what_a_file_says(typed, tmp_path):
    (tmp_path / "mine.toml").write_text(
        "[data]\nspectrum = [3, 1]\n[network]\nwidth = 40\n"
        "[init]\nscale = [0.1, 0.05]\nseed = 3\n[training]\nlr = 0.01\n"
    )
    flags = ("--spectrum", "3,1", "--width", 40, "--scale", "0.1,0.05", "--seed", 3, "--lr", 0.01)
    one, two = (json.loads(typed(*given, "--json")[1]) for given in (("mine.toml",), flags))
    assert one == two
    with (tmp_path / "mine.toml").open("a") as file:
        file.write("momentum = 0.9\nnesterov = true\ndampening = 0.9\nweight_decay = 0.1\ndecoupled = true\n")
    moved = ("--momentum", 0.9, "--nesterov", "--dampening", 0.9, "--weight-decay", 0.1, "--decoupled")
    three, four = (json.loads(typed(*given, "--json")[1]) for given in (("mine.toml",), (*flags, *moved)))
    assert three == four
    assert (three["momentum"], three["nesterov"], three["dampening"]) == (0.9, True, 0.9)
    assert (three["weight_decay"], three["decoupled"], three["modes"][0]["value"]) == (0.1, True, pytest.approx(2.9))
    assert three["largest_stable_lr"] > 5 * one["largest_stable_lr"]
    batched = json.loads(typed("own-data", "--batch-size", 8, "--json")[1])
    assert (batched["batch_size"], batched["largest_stable_lr_with_batches"]) == (8, None)  # not every sample is fitted
    assert "how the run on batches of 8 ended" in typed("own-data", "--batch-size", 8, "--run")[1]
    changed = json.loads(typed("mine.toml", "--lr", 0.02, "--json")[1])
    assert changed["lr"] == 0.02
    assert changed["modes"][0]["value"] == three["modes"][0]["value"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("empty.toml",), "is empty"),
        (("latin.toml",), "not text in UTF-8"),
        (("broken.toml",), "is not TOML"),
        (("other.toml",), "data.color is not known"),
        (("nothing.toml",), "one of edge, lazy"),
        ((), "data is missing"),
        (("--data", "empty.csv", "--width", 5), "no rows of numbers"),
        (("--data", "latin.csv", "--width", 5), "not text in UTF-8"),
        (("--data", "zero.csv", "--width", 5), "nothing to learn"),
        (("--spectrum", "0,0"), "one must be positive"),
        (("--spectrum", "1e-300"), "between 1e-50"),
        (("--spectrum", "1,1e-20"), "ratio of 1e+12"),
        (("--spectrum", "nan"), "data.spectrum"),
        (("--spectrum", "3,x"), "numbers with commas"),
        (("--spectrum", "3", "--data", "one.csv"), "one of file and spectrum"),
        (("--spectrum", "3", "--average"), "data.loss is not allowed with spectrum"),
        (("--spectrum", "3,1"), "network.width is missing"),
        (("--spectrum", "3,1", "--width", "4,4"), "network.width has 2 numbers"),
        (("--spectrum", "3,1", "--width", 0), "give 1 to 1e+15 neurons"),
        (("--spectrum", "3,1", "--width", 10**6, "--depth", 3), "drawn in full"),
        (("--spectrum", "3,1", "--width", 10**400), "give 1 to 1e+15 neurons"),
        (("--spectrum", "3,1", "--init", "balanced", "--depth", 5, "--scale", "1e50"), "10th power"),
        (("capital.toml",), "network.Width is not known"),
        (("words.toml",), "network.width = 'x'"),
        (("--spectrum", "3,1", "--depth", 0), "network.depth = 0"),
        (("--spectrum", "3,1", "--depth", 1, "--width", 3), "no hidden neurons"),
        (("--spectrum", "3,1", "--init", "funny"), "init.kind = 'funny'"),
        (("--spectrum", "3,1", "--init", "one-zero", "--width", 1), "gaussian initialization takes any width"),
        (("--spectrum", "3,1", "--init", "one-zero", "--scale", "1,2"), "one positive scale"),
        (("--spectrum", "3,1", "--width", 5, "--scale", "1e-300"), "init.scale = 1e-300"),
        (("--spectrum", "3,1", "--width", 5, "--scale", "1,2,3"), "init.scale has 3 numbers"),
        (("--spectrum", "3,1", "--width", 5, "--scale", 0), "never moves"),
        (("--spectrum", "3,1", "--width", "1e0,2.5", "--depth", 3), "width = '1e0,2.5' is not allowed: give whole"),
        (("--spectrum", "3,1", "--width", "1e400"), "give whole numbers"),
        (("--spectrum", "3,1", "--depth", "2.5"), "'2.5' is not a whole number"),
        (("--spectrum", "3,1", "--outputs", "price"), "data.outputs = 'price' is not allowed with spectrum"),
        (("--spectrum", "3,1", "--center"), "data.center is not allowed with spectrum"),
        (("--spectrum", "3,1", "--frozen", "w.npy"), "data.frozen is not allowed with spectrum"),
        (("--spectrum", "3,1", "--alpha", 2), "network.alpha needs depth 2 and a width"),
        (("--spectrum", "3,1", "--init", "lora", "--depth", 3, "--width", 4), "an adapter has two factors"),
        (
            ("--data", "named.csv", "--outputs", "pirce", "--width", 5),
            "(did you mean 'price'?): data = 'named.csv' has",
        ),
        (("--data", "named.csv", "--inputs", 2, "--width", 5), "data.inputs = 2 is not allowed with file"),
        (
            ("--data", "named.csv", "--frozen", "one.csv", "--width", 5),
            "frozen = 'one.csv' cannot be used: it has shape",
        ),
        (("edge", "--lr", 0), "training.lr = 0.0"),
        (("edge", "--lr", "nan"), "training.lr = nan"),
        (("edge", "--lr", "-1"), "training.lr = -1.0"),
        (("edge", "--signal", 7), "signal = 7"),
        (("edge", "--plot", "x.bmp"), "plot = 'x.bmp'"),
    ],
)
def test_mistakes_get_one_sentence(arguments, said, typed, tmp_path):
    (tmp_path / "empty.toml").write_text("")
    (tmp_path / "latin.toml").write_bytes(b'title = "\xe9"\n')
    (tmp_path / "broken.toml").write_text("[data\n")
    (tmp_path / "other.toml").write_text("[data]\nspectrum = [1]\ncolor = 3\n")
    (tmp_path / "capital.toml").write_text("[data]\nspectrum = [1]\n[network]\nWidth = 3\n")
    (tmp_path / "words.toml").write_text('[data]\nspectrum = [1]\n[network]\nwidth = "x"\n')
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "latin.csv").write_bytes(b"\xff\xfe,1\n2,3\n")
    (tmp_path / "zero.csv").write_text("1,0\n2,0\n")
    (tmp_path / "one.csv").write_text("1,2,3\n")
    (tmp_path / "named.csv").write_text("area,age,price\n1,2,3\n2,1,3\n")
    code, out, err = typed(*arguments)
    assert code == 2
    assert said in err
    assert "Traceback" not in err
    assert not out


NASTY = {
    "one row": ("--data", "one.csv", "--width", 5, "--average"),
    "constant labels": ("--data", "constant.csv", "--width", 50, "--average"),
    "repeated values": ("--spectrum", "2,2,1", "--init", "one-zero"),
    "some zeros": ("--spectrum", "2,0,0", "--init", "one-zero"),
    "width 1": ("--spectrum", "3,1", "--width", 1),
    "depth 1": ("--spectrum", "3,1", "--depth", 1),
    "depth 30": ("--spectrum", "3,1", "--depth", 30, "--init", "one-zero", "--scale", 0.9),
    "lr 1e9": ("--spectrum", "3,1", "--width", 10, "--lr", "1e9"),
    "tiny scale": ("--spectrum", "3,1", "--init", "one-zero", "--scale", "1e-45", "--depth", 30),
    "deep gaussian": ("--spectrum", "3,1", "--depth", 4, "--width", 50),
}


def within(answer):
    """Every stated error holds, every certain bound too, and something was stated."""
    said = 0
    for mode, measured in zip(answer["modes"], answer["run"]["modes"], strict=True):
        half, seen = mode["half_learned"], measured["half_learned"]
        if half["error"] is not None:
            assert abs(half["step"] - seen["step"]) <= (half["error"] + 1e-3) * seen["step"]
            said += 1
        if half["not_before"] is not None:
            assert half["not_before"] <= seen["time"] <= half["not_after"]
            said += 1
    assert said


@pytest.mark.parametrize("name", NASTY)
def test_strange_situations_are_answered(name, typed, tmp_path):
    (tmp_path / "one.csv").write_text("1,2,3\n")
    (tmp_path / "constant.csv").write_text("".join(f"{i},{i * i},5\n" for i in range(1, 7)))
    ran = name not in ("tiny scale", "depth 30", "some zeros")
    code, out, err = typed(*NASTY[name], "--json", *(["--run"] if ran else []))
    assert code == 0
    assert not err
    answer = json.loads(out)
    run = answer.get("run")
    match name:
        case "one row" | "repeated values" | "depth 1":
            within(answer)
        case "constant labels":
            assert answer["loss"]["final"] == pytest.approx(0.651, abs=1e-3)
            assert run["predictor_error"] < 1e-5
            within(answer)  # a condition number of 21
        case "some zeros":
            assert len(answer["modes"]) == 1
        case "width 1":
            assert len(answer["modes"]) == 1
            assert answer["modes_out_of_reach"] == 1
            assert answer["loss"]["final"] == pytest.approx(0.5)
            assert run["predictor_error"] < 1e-5
        case "depth 30":
            values = np.array([mode["layers"] for mode in answer["modes"]])
            np.testing.assert_allclose(np.prod(values, axis=1), [3, 1], rtol=1e-9)
        case "lr 1e9":
            assert answer["outcome"] == "diverges"
            assert run["status"] == "diverged"
        case "tiny scale":
            assert answer["modes"][0]["half_learned"]["step"] is None  # beyond all numbers
            assert answer["regime"] == "rich"
        case "deep gaussian":
            within(answer)
            assert run["status"] == "converged"
            assert run["layer_error"] < 1e-4
            assert "descent itself" in answer["sources"][0]["origin"]
