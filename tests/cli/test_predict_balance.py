"""`linnet predict balance` as a user meets it: text, JSON, pictures, files, and mistakes as one sentence."""

import json

import jax
import numpy as np
import pytest

import linnet as ln
from linnet import prediction
from linnet.prediction.prediction import Quantity, Row

COMMAND = ("predict", "balance")


@pytest.mark.slow
def test_the_command_says_what_python_says(typed, close, tmp_path):
    """Every number, measured ones included."""
    other = np.arange(6.0).reshape(2, 3)
    np.savetxt(tmp_path / "other.csv", other, delimiter=",")
    for arguments, spectrum, sizes, (lam, width), options, switch in (
        (("--spectrum", "3,2,1", "--lam", 0.5), [3, 2, 1], {}, (0.5, 3), {"scale": 0.01}, {}),
        (
            ("--spectrum", "3,2", "--lam", 0, "--scale", 0.1, "--aligned"),
            [3, 2],
            {},
            (0, 2),
            {"scale": 0.1, "aligned": True},
            {},
        ),
        (
            ("--spectrum", "3,2", "--lam", -1, "--samples", 5, "--width", 1, "--seed", 3),
            [3, 2],
            {"samples": 5},
            (-1, 1),
            {"scale": 0.01, "seed": 3},
            {},
        ),
        (
            ("--spectrum", "2,3", "--lam", 0.5, "--inputs", 3, "--switch", "other.csv"),
            [3, 2],
            {"inputs": 3},
            (0.5, 2),
            {"scale": 0.01},
            {"switch": other},
        ),
    ):
        problem, seed = prediction.whitened(spectrum, **sizes), options.pop("seed", 0)
        network = ln.init.lambda_balanced(jax.random.key(seed), problem, lam, width, **options)
        aligned = "aligned" in options
        facts = Row(
            kind="aligned" if aligned else "random frames", scale=options["scale"], seed=None if aligned else seed
        )
        said = prediction.balance(problem, network, **switch).including(Quantity("initialization", facts))
        told = json.loads(typed(*arguments, "--json")[1])
        assert told.pop("notes")[0].startswith("Initialization aligned" if aligned else "Initialization in random")
        expected = said.to_dict()
        expected.pop("notes")
        assert told == close(expected)
    run = json.loads(typed(*arguments, "--run", "--plot", "s.svg", "--json")[1])
    assert (run.pop("figure"), (tmp_path / "s.svg").read_text()[:5]) == ("s.svg", "<?xml")
    seen = said.measure().to_dict()
    assert run.pop("notes")[1:] == seen.pop("notes")
    for gaps in (run["run"], run["run"]["switch"], seen["run"], seen["run"]["switch"]):  # rounding
        assert max(gaps.pop("largest_gap_in_modes"), gaps.pop("largest_gap_in_kernel")) < 1e-9
    assert run == close(seen)


def test_the_keys_of_its_json(typed):
    told = json.loads(typed("--spectrum", "3,2", "--lam", 0.5, "--json")[1])
    task = {
        "topic", "headline", "spectrum", "regime", "modes", "rank", "missing", "saddle", "loss", "fit", "kernel_change",
        "input_gram_change", "output_gram_change", "largest_stable_lr", "notes", "sources",
    }  # fmt: skip
    own = {"prepared", "inputs", "outputs", "width", "curvature", "lam", "initialization", "defect", "switch"}
    assert set(told) == task | own
    assert set(told["switch"]) == task | {"to", "explanation"}
    assert set(told["modes"][0]) == {"value", "initial", "final", "regime", "kernel_growth", "half_learned", "learned"}
    assert told["initialization"] == {"kind": "random frames", "scale": 0.01, "seed": 0}


def test_text_and_picture(typed, tmp_path):
    code, out, err = typed("--spectrum", "3,2,1", "--lam", 0.5, "--run", "--plot", "p.png")
    assert code == 0, err
    told = " ".join(out.split())
    for words in (
        "mixed: the kernel is partly what it was",
        "lambda = 0.5, 2 s_1 / |lambda| = 12",
        "3 inputs, 3 outputs, 3 hidden neurons, white inputs, loss 1/2 |A - Y|^2.",
        "closed form, exact",
        "Initialization in random frames, lighter layer of scale 0.01.",
        "half at measured",
        "It ends at the target",
        "Then the reversed task, -Y: learned up to 1% of the loss",
        "modes: largest gap to the closed form over s_1",
    ):
        assert words in told
    assert (tmp_path / "p.png").stat().st_size > 20_000
    told = " ".join(typed("--spectrum", "3,2,1", "--lam", 0, "--plot", "p.pdf")[1].split())
    assert "Then the reversed task, -Y: never learned. It stays at 0" in told
    told = " ".join(typed("--spectrum", "3,2,1", "--lam", -50, "--width", 2)[1].split())
    assert "It ends at the best fit of rank 2, which is what 2 neurons can hold" in told
    told = " ".join(typed("--spectrum", "3,2,1", "--lam", 50)[1].split())
    assert "lazy: the kernel stays nearly what it was" in told


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "Missing option '--spectrum'"),
        (("--spectrum", "3,2"), "Missing option '--lam'"),
        (("--spectrum", "3,x", "--lam", "1"), "spectrum = '3,x' is not allowed"),
        (("--spectrum", "0", "--lam", "1"), "one must be positive"),
        (("--spectrum", "3,2", "--lam", "nan"), "lam = nan is not allowed"),
        (("--spectrum", "3,2", "--lam", "1", "--width", "3"), "needs a width of at most d_out = 2"),
        (("--spectrum", "3,2", "--lam", "-1", "--width", "4", "--inputs", "3"), "needs a width of at most d_in = 3"),
        (("--spectrum", "3,2", "--lam", "1", "--outputs", "1"), "outputs = 1 is not allowed"),
        (("--spectrum", "3,2", "--lam", "0", "--scale", "0"), "network has layers of zero"),
        (("--spectrum", "3,2", "--lam", "1", "--switch", "another"), "switch = 'another' is not allowed"),
        (("--spectrum", "3,2", "--lam", "1", "--switch", "none.csv"), "there is no such file"),
        (("--spectrum", "3,2", "--lam", "1", "--switch", "three.csv"), "it has shape (3, 3), and (2, 2) is needed"),
        (("--spectrum", "3,2", "--lam", "1", "--plot", "x.bmp"), "plot = 'x.bmp'"),
        (("--spectrum", "3,2", "--lam", "1", "--inputs", "300"), "--aligned"),
    ],
)
def test_bad_options_are_one_sentence(arguments, words, typed, tmp_path):
    (tmp_path / "three.csv").write_text("1,0,0\n0,1,0\n0,0,1\n")
    code, _, told = typed(*arguments)
    assert code == 2
    assert words in told
    assert "Traceback" not in told
