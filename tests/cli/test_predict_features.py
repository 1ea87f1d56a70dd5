"""`linnet predict features`: predictions beside the exact descent, and every mistake as one sentence."""

import json

import numpy as np
import pytest

COMMAND = ("predict", "features")


PAPER = ("--samples", 10, "--d", 10_000, "--width", 1024, "--noise2", 0.01)


def test_the_papers_setting(typed, tmp_path):
    code, out, _ = typed(*PAPER, "--v0", 0.001, "--sigma0", 0.01, "--lr", 0.1, "--run", "--plot", "p.png", "--json")
    assert code == 0
    answer = json.loads(out)
    run = answer["run"]
    assert answer["regime"] == "rich"
    assert (answer["t1"], answer["half_loss_step"]) == (run["t1"], run["half_loss_step"])
    assert answer["loss_left_at_t1"] == pytest.approx(run["loss_left_at_t1"], abs=5e-3)
    assert answer["kernel_growth"] == pytest.approx(run["kernel_growth"], rel=0.15)
    assert answer["end"]["distance_from_target_aligned"] == pytest.approx(run["distance_at_the_end"], rel=0.02)
    assert run["loss_left_at_the_end"] < 1e-12
    conditions = {c["id"]: c for c in answer["assumptions"]}
    for name, value in (("c1", 342), ("c2a", 3.2e4), ("c3", 31.6), ("c4", 0.31), ("c6", 30.7)):
        assert conditions[name]["value"] == pytest.approx(value, rel=0.02)
    assert conditions["extra"]["holds"] is False
    assert conditions["c1"]["holds"] is None
    assert (tmp_path / "p.png").stat().st_size > 10_000


def test_a_lazy_start_keeps_its_kernel(typed):
    code, out, _ = typed(*PAPER, "--v0", 10, "--sigma0", 0.3, "--run", "--json")
    answer = json.loads(out)
    assert code == 0
    assert answer["regime"] == "lazy"
    assert answer["t1"] is answer["run"]["t1"] is None
    assert answer["kernel_growth"] == pytest.approx(answer["run"]["kernel_growth"], abs=0.01)
    assert answer["end"]["distance_from_target_aligned"] == pytest.approx(
        answer["run"]["distance_at_the_end"], rel=0.02
    )
    assert answer["half_loss_step"] == answer["run"]["half_loss_step"]
    code, out, _ = typed(*PAPER, "--v0", 10, "--sigma0", 0.3, "--lr", 1.1 * answer["largest_stable_lr"], "--run")
    assert code == 0
    assert "This step size will not settle" in out
    _, out, _ = typed(*PAPER, "--v0", 10, "--sigma0", 0.3)
    assert "One stage: the loss is halved before the neurons are aligned" in out


def test_own_data(typed, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(12, 40)) + 3.0
    y = x @ rng.normal(size=40)
    np.savez(tmp_path / "d.npz", X=x, Y=y)
    code, out, _ = typed("--data", "d.npz", "--samples", 8, "--width", 128, "--v0", 0.01, "--sigma0", 0.01, "--json")
    answer = json.loads(out)
    assert code == 0
    gram = x[:8] @ x[:8].T
    gamma, phi = y[:8] @ gram @ y[:8], np.sum((gram @ y[:8]) ** 2)
    assert answer["richness"] == pytest.approx(2 * gamma**1.5 / phi / 2e-4)
    assert answer["end"]["mean_square_of_v"] == pytest.approx(np.sqrt(y[:8] @ np.linalg.solve(gram, y[:8])))
    assert answer["samples"] == 8
    assert any("not centred" in note for note in answer["notes"])
    code, out, _ = typed("--data", "d.npz", "--width", 128, "--v0", 0.01, "--sigma0", 0.01, "--lr", 1e-9)
    assert code == 0
    assert "your data" in out


def test_the_largest_stable_step_knows_the_width(typed):
    """About as many neurons as samples: the start's kernel has a top eigenvalue of nearly four times the mean one."""
    start = ("--samples", 10, "--d", 10_000, "--width", 11, "--v0", 0.1, "--sigma0", 300, "--run", "--json")
    wide = 2 * 10 * 11 / (300**2 * 1e4)  # of a wide network
    _, out, _ = typed(*start, "--lr", 0.9 * wide)
    answer = json.loads(out)
    assert not answer["settles"]
    assert answer["run"]["status"] == "diverged"
    assert any("width 11 is not large beside the 10 directions" in note for note in answer["notes"])
    _, out, _ = typed(*start, "--lr", 0.95 * answer["largest_stable_lr"])
    answer = json.loads(out)
    assert answer["settles"]
    assert answer["run"]["status"] == "horizon"
    assert answer["run"]["loss_left_at_the_end"] < 0.5


@pytest.mark.parametrize(("size", "regime"), [(0.2, "rich"), (1.0, "between lazy and rich")])
def test_the_regime_of_spread_data(size, regime, typed, tmp_path):
    """Condition 100: the growth of the kernel is that of any K, not the isotropic one, which is of another regime."""
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(10, 10)))[0]
    np.savez(tmp_path / "s.npz", X=basis * np.sqrt(np.geomspace(100, 1, 10)), Y=rng.normal(size=10))
    _, out, _ = typed("--data", "s.npz", "--width", 10**6, "--v0", size, "--sigma0", size, "--run", "--json")
    answer = json.loads(out)
    run = answer["run"]
    assert run["loss_left_at_the_end"] < 1e-5
    assert answer["kernel_growth"] == pytest.approx(run["kernel_growth"], rel=0.01)
    assert answer["end"]["distance_from_target_aligned"] == pytest.approx(run["distance_at_the_end"], rel=0.01)
    assert answer["regime"] == regime


def test_small_singular_values_count_everywhere(typed, tmp_path):
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    np.savez(tmp_path / "s.npz", X=basis * [1, 1, 1, 1, 1, 3e-7], Y=rng.normal(size=6))
    _, out, _ = typed("--data", "s.npz", "--width", 64, "--v0", 0.1, "--sigma0", 0.1, "--json")
    answer = json.loads(out)
    assert answer["condition_of_gram"] == pytest.approx(1 / 9e-14, rel=1e-6)
    assert answer["end"]["mean_square_of_v"] > 1e6


def test_times_between_records(typed):
    """Steps so small that the flow stands for descent: t1 as the law of stage one has it, not of the nearest record."""
    code, out, _ = typed(
        "--samples", 10, "--d", 10_000, "--width", 1024, "--v0", 1e-40, "--sigma0", 0, "--lr", 1e-7, "--json"
    )
    assert code == 0
    answer = json.loads(out)
    law = np.arctanh(0.95) / np.arctanh(answer["x"])
    assert answer["t1"] == pytest.approx(law, rel=5e-3)
    assert f"{answer['t1']:.3g}" == f"{law:.3g}"


def test_the_teacher_of_the_assumption_is_the_one_drawn(typed):
    """In one dimension c3 = v0 sqrt(n) |beta| with the teacher's own norm: y = X beta without noise."""
    for seed in range(2):
        _, out, _ = typed("--samples", 1, "--d", 1, "--width", 8, "--v0", 1, "--sigma0", 0, "--seed", seed, "--json")
        answer = json.loads(out)
        beta = next(c["value"] for c in answer["assumptions"] if c["id"] == "c3")
        # one sample: gamma = (x y)^2 = x^4 beta^2 and v*^2 = |y| / |x| = |beta|
        assert beta == pytest.approx(answer["v_star"] ** 2, rel=1e-9)


def test_what_is_said_of_stages(typed, tmp_path):
    """Labels along a small direction of the inputs: neither aligned nor halved by the model."""
    np.savez(tmp_path / "s.npz", X=np.diag([30.0, *[1.0] * 9]), Y=np.array([0.1, *[1.0] * 9]))
    code, out, _ = typed("--data", "s.npz", "--width", 64, "--v0", 30, "--sigma0", 0.1)
    assert code == 0
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
        ((*PAPER, "--v0", 1, "--sigma0", 1, "--plot", "/proc/a.png"), "'/proc/a.png' cannot be used: no such file"),
        ((*PAPER, "--v0", 0.01, "--sigma0", 0.01, "--lr", 1e-7, "--run"), "20000 are the most; raise it, up to"),
        ((*PAPER, "--v0", 0.01, "--sigma0", 0.01, "--lr", 1e7, "--plot", "p.png"), "plot needs a stable step size"),
        (("--width", 0, "--v0", 1, "--sigma0", 1), "width = 0"),
        (("--width", 8, "--v0", 1, "--sigma0", 1), "samples and d are missing"),
        (("--width", 8, "--v0", 1, "--sigma0", 1, "--samples", 0, "--d", 3), "samples = 0"),
        (("--width", 8, "--v0", 1, "--sigma0", 1, "--data", "d.csv", "--samples", 9), "'d.csv' holds 3 samples"),
        (("--width", 8, "--v0", 1, "--sigma0", 1, "--data", "d.csv", "--d", 2), "d = 2 is not allowed with --data"),
        (("--width", 8, "--v0", 1, "--sigma0", 1, "--data", "d.csv", "--samples", 1), "are all zero"),
        (("--width", 8, "--v0", 1, "--sigma0", 1, "--data", "o.csv"), "its labels are orthogonal to its inputs"),
        (("--width", 8, "--v0", 1, "--sigma0", 1, "--data", "two.npz"), "2 label columns"),
        (("--width", 8, "--v0", 1, "--sigma0", 1, "--data", "long.npz"), "its inputs hold 6 NaN or infinite"),
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
