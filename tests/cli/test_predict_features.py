"""`linnet predict features`: what Python says, what is shown, and every mistake as one sentence."""

import json

import numpy as np
import pytest

from linnet import prediction
from linnet._files import dumps

COMMAND = ("predict", "features")
PAPER = ("--samples", 10, "--inputs", 10_000, "--width", 1024, "--noise2", 0.01)


def plain(result):
    return json.loads(dumps(result.to_dict()))


def test_python_and_the_command_say_the_same(typed, tmp_path):
    start = ("--v0", 0.001, "--sigma0", 0.01, "--lr", 0.1, "--teacher", 90, "--eps", 2, "--seed", 4)
    code, out, _ = typed(*PAPER, *start, "--run", "--plot", "p.png", "--json")
    assert code == 0
    assert (tmp_path / "p.png").stat().st_size > 10_000
    drawn = prediction.gaussian_features(
        samples=10, inputs=10_000, width=1024, noise2=0.01, v0=0.001, sigma0=0.01, lr=0.1, teacher=90, eps=2, seed=4
    )
    # with a bar, as the command has one: the program that tells of its progress rounds in its own way
    assert json.loads(out) == plain(drawn.measure(progress=lambda *_: None)) | {"figure": "p.png"}

    rng = np.random.default_rng(0)
    x = rng.normal(size=(12, 40))
    y = x @ rng.normal(size=40)
    np.savez(tmp_path / "d.npz", X=x, Y=y)
    code, out, _ = typed("--data", "d.npz", "--samples", 8, "--width", 128, "--v0", 0.01, "--sigma0", 0.01, "--json")
    assert code == 0
    assert json.loads(out) == plain(prediction.features(x[:8], y[:8], width=128, v0=0.01, sigma0=0.01))


def test_what_is_shown(typed, tmp_path):
    told = prediction.gaussian_features(samples=10, inputs=10_000, width=1024, noise2=0.01, v0=0.001, sigma0=0.01)
    run = told.measure()
    code, out, _ = typed(*PAPER, "--v0", 0.001, "--sigma0", 0.01, "--run")
    assert code == 0
    for words in (
        f"Rich: R = {told.richness:.4g}; the kernel grows {told.kernel_growth:.4g}-fold along the labels.",
        f"n = 10, d = 10000, width 1024, v0 = 0.001, sigma0 = 0.01, one draw of standard normal inputs with a linear "
        f"teacher; v* = {told.v_star:.4g}.",
        f"lr = {told.lr:.4g} (a tenth of the largest stable one), dimensionless step x = {told.x:.4g}.",
        f"Two stages: {told.loss_left_at_t1:.0%} of the loss is left when the neurons are aligned.",
        f"horizon at step {run.steps}",
        f"(eps = {told.eps:.3g})",
    ):
        assert words in out
    for words, *values in (
        ("at step t1", told.t1.step, run.t1.step),
        ("loss left there", told.loss_left_at_t1, run.loss_left_at_t1),
        ("kernel until then", told.kernel_growth_at_t1, run.kernel_growth_at_t1),
        ("loss halved at step", told.half_loss.step, run.half_loss.step),
        ("over that of an output of zero", run.loss.final / told.loss.initial),
        ("whole training", told.kernel_growth, run.kernel_growth),
        ("target-aligned kernel, end", told.target_distance, run.target_distance),
        ("mean of v² at the end", told.mean_square_v, run.mean_square_v),
        ("eigenvalue of the kernel there", told.kernel_norm, run.kernel_norm),
        ("in a late step", told.late_factor),
        ("lr without overshoot", told.largest_lr_without_overshoot),
        ("largest stable lr", told.largest_stable_lr),
    ):
        (line,) = (line for line in out.splitlines() if words + "  " in line)
        assert line.split()[-len(values) :] == [f"{value:.4g}" for value in values]
    for condition in told.conditions:
        (line,) = (line for line in out.splitlines() if f"  {condition.id}: {condition.text}  " in line)
        assert f" {condition.value:.4g}  " in line
        assert f" {condition.sense} " in line


def test_other_words(typed, tmp_path):
    code, out, _ = typed(*PAPER, "--v0", 10, "--sigma0", 0.3)
    assert code == 0
    assert "One stage: the loss is halved before the neurons are aligned" in out
    code, out, _ = typed(*PAPER, "--v0", 10, "--sigma0", 0.3, "--lr", 1e3, "--run")
    assert code == 0
    assert "This learning rate will not settle" in out
    # labels along a small direction of the inputs: neither aligned nor halved by the model
    np.savez(tmp_path / "s.npz", X=np.diag([30.0, *[1.0] * 9]), Y=np.array([0.1, *[1.0] * 9]))
    code, out, _ = typed("--data", "s.npz", "--width", 64, "--v0", 30, "--sigma0", 0.1)
    assert code == 0
    assert "your data, covariance and beta estimated from them" in out
    assert "One stage" not in out
    assert "No stages: the neurons are never aligned" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((*PAPER, "--v0", 0, "--sigma0", 1), "v0 = 0.0 is not allowed"),
        ((*PAPER, "--v0", 1, "--sigma0", -1), "sigma0 = -1.0"),
        ((*PAPER, "--v0", 1e200, "--sigma0", 1), "v0 must be a number from 1e-50 to 1e+50"),
        ((*PAPER, "--v0", 1, "--sigma0", 1e-200), "sigma0 must be 0 or at least 1e-50"),
        ((*PAPER, "--v0", 1, "--sigma0", 1, "--lr", 0), "lr = 0.0"),
        ((*PAPER, "--v0", 1, "--sigma0", 1, "--eps", -1), "eps = -1.0"),
        ((*PAPER, "--v0", 1, "--sigma0", 1, "--teacher", 0), "teacher = 0.0"),
        ((*PAPER, "--v0", 1, "--sigma0", 1, "--plot", "p.txt"), "plot = 'p.txt'"),
        ((*PAPER, "--v0", 1, "--sigma0", 1, "--plot", "folder.png"), "plot = 'folder.png' is not allowed"),
        ((*PAPER, "--v0", 1, "--sigma0", 1, "--plot", "/proc/a.png"), "'/proc/a.png' cannot be written: no such file"),
        ((*PAPER, "--v0", 0.01, "--sigma0", 0.01, "--lr", 1e-7, "--run"), "20000 are the most; raise it, up to"),
        ((*PAPER, "--v0", 0.01, "--sigma0", 0.01, "--lr", 1e7, "--plot", "p.png"), "plot needs a stable learning rate"),
        (("--width", 0, "--v0", 1, "--sigma0", 1, "--samples", 2, "--inputs", 3), "width = 0"),
        (("--width", 8, "--v0", 1, "--sigma0", 1), "samples and inputs are missing"),
        (("--width", 8, "--v0", 1, "--sigma0", 1, "--samples", 0, "--inputs", 3), "samples = 0"),
        (("--width", 8, "--v0", 1, "--sigma0", 1, "--data", "d.csv", "--samples", 9), "'d.csv' holds 3 samples"),
        (("--width", 8, "--v0", 1, "--sigma0", 1, "--data", "d.csv", "--inputs", 2), "inputs = 2 is not allowed with"),
        (("--width", 8, "--v0", 1, "--sigma0", 1, "--data", "d.csv", "--samples", 1), "are all zero"),
        (("--width", 8, "--v0", 1, "--sigma0", 1, "--data", "o.csv"), "labels must not be orthogonal to the inputs"),
        (("--width", 8, "--v0", 1, "--sigma0", 1, "--data", "two.npz"), "labels has 2 columns"),
        (
            ("--width", 8, "--v0", 1, "--sigma0", 1, "--data", "long.npz"),
            "row 1, column 1 of X holds inf, and a finite number is needed",
        ),
    ],
)
def test_bad_input_is_one_sentence(arguments, words, typed, tmp_path):
    (tmp_path / "d.csv").write_text("1,2,0\n3,4,1\n5,6,2\n")
    (tmp_path / "o.csv").write_text("1,1\n1,-1\n")
    np.savez(tmp_path / "two.npz", X=np.eye(3), Y=np.ones((3, 2)))
    np.savez(tmp_path / "long.npz", X=np.full((3, 2), np.longdouble(10) ** 4000), Y=np.arange(3))
    (tmp_path / "folder.png").mkdir()
    code, _, err = typed(*arguments)
    assert code == 2
    assert words in err
    assert "Traceback" not in err
