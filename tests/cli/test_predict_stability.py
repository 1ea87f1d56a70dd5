"""`linnet predict stability`: every number against plain matrix descent, and every mistake as one sentence."""

import json

import numpy as np
import pytest

COMMAND = ("predict", "stability")


def answer(typed, *arguments):
    code, out, err = typed(*arguments, "--json")
    assert code == 0, err
    assert "NaN" not in out
    return json.loads(out)


def brute(s, depth, lr, alpha, steps, keep, seed=0):
    """Matrix descent from the one-zero start with random singular vectors: modes of the last steps and all cross
    components in time.
    """
    rng = np.random.default_rng(seed)
    d = len(s)
    u, v = (np.linalg.qr(rng.normal(size=(d, d)))[0] for _ in range(2))
    goal = (u * s) @ v.T
    w = [alpha * np.eye(d) for _ in range(depth - 1)] + [np.zeros((d, d))]
    modes, cross = [], []
    for k in range(steps):
        below = [np.eye(d)]
        for layer in w:
            below.append(layer @ below[-1])
        inner = u.T @ below[-1] @ v
        cross.append(np.max(np.abs(inner - np.diag(np.diag(inner)))))
        if k >= steps - keep:
            modes.append(np.diag(inner))
        back = below[-1] - goal
        for level in range(depth - 1, -1, -1):
            w[level], back = w[level] - lr * back @ below[level].T, w[level].T @ back
    return np.array(modes), np.array(cross)


def test_an_orbit_of_period_two(typed):
    s, lr, alpha = np.array([10.0, 8.0, 6.0]), 0.0332, 0.1
    told = answer(typed, "--depth", 3, "--spectrum", "6,10,8", "--lr", lr, "--alpha", alpha, "--run", "--d", 5)
    assert told["spectrum"] == [10, 8, 6]
    assert told["spectrum_was"].startswith("sorted")
    modes, _ = brute(s, 3, lr, alpha, 3000, 50)
    for i, mode in enumerate(told["modes"]):
        assert mode["low"] == pytest.approx(modes[:, i].min(), rel=1e-9)
        assert mode["high"] == pytest.approx(modes[:, i].max(), rel=1e-9)
        assert told["run"]["modes"][i]["gap"] < 1e-11
        assert mode["lr"]["oscillates"] == pytest.approx(2 / (3 * s[i] ** (4 / 3)))
    first = told["modes"][0]
    assert (first["low"], first["high"]) == pytest.approx((7.706699, 11.732886), abs=1e-6)
    assert [mode["outcome"] for mode in told["modes"]] == ["period 2", "converges", "converges"]
    assert told["sorting"]["here"]
    assert told["cross"]["state"] == "stable"
    assert told["run"]["largest_cross_component"] < 1e-12
    # the same step in the paper's convention
    half = answer(typed, "--depth", 3, "--spectrum", "10,8,6", "--lr", lr / 2, "--whole")
    assert half["modes"][0]["low"] == pytest.approx(first["low"], rel=1e-12)
    assert half["largest_stable_lr"] == pytest.approx(told["largest_stable_lr"] / 2)


def test_when_modes_mix(typed):
    s, lr = np.array([10.0, 9.0, 6.0]), 2 / 57
    told = answer(typed, "--depth", 3, "--spectrum", "10,9,6", "--lr", lr, "--alpha", 0.01, "--run")
    cross = told["cross"]
    assert cross["state"] == "unstable"
    assert cross["pair"] == [1, 2]
    assert cross["lr_at_which_the_minimum_is_unstable"] == pytest.approx(2 / 60.34809, rel=1e-6)
    _, seen = brute(s, 3, lr, 0.01, 1600, 10)
    step = int(np.argmax(seen > 0.01 * s[0]))
    assert cross["visible_after_steps"]["double"] == pytest.approx(step, rel=0.15)
    assert told["run"]["cross_component_seen_at_step"] == pytest.approx(step, rel=0.15)
    # its growth between 1e-10 and 1e-3 of s_1
    one, two = (int(np.argmax(seen > level)) for level in (1e-9, 1e-2))
    assert np.log(seen[two] / seen[one]) / (two - one) == pytest.approx(cross["growth_a_step"], rel=0.1)


def test_balance_of_the_layers(typed):
    told = answer(typed, "--depth", 3, "--spectrum", "10,6", "--lr", 1.8 / (3 * 10 ** (4 / 3)), "--alpha", 0.01)
    x, y = np.zeros(2), np.full(2, 0.01)
    s = np.array([10.0, 6.0])
    for _ in range(4000):
        r = told["lr"] * (s - x * y**2)
        x, y = x + r * y**2, y + r * x * y
    np.testing.assert_allclose(told["balancing"]["gap_left"], (y**2 - x**2) / 1e-4, rtol=1e-6)
    assert told["balancing"]["gap_left"][0] == pytest.approx(0.603, abs=1e-3)
    assert told["balancing"]["gap_multiplier_over_the_cycle"] is None
    assert told["largest_lr_of_the_flows_minimum"] < told["largest_stable_lr"]


def test_every_outcome_has_its_word(typed, tmp_path):
    base = ("--depth", 3, "--spectrum", "10,6")
    edge = 1 / (3 * 10 ** (4 / 3))  # lr of kappa = 1
    assert "It converges" in typed(*base, "--lr", 1.5 * edge)[1]
    assert "period 4" in typed(*base, "--lr", 2.52 * edge)[1]
    chaos = typed(*base, "--lr", 2.66 * edge)[1]
    assert "chaos, exponent +" in chaos
    window = answer(typed, *base, "--lr", 3.0 * edge)["modes"][0]
    assert window["outcome"] == f"period {window['period']}"
    assert window["period"] % 3 == 0
    assert "trapped at 0" in typed(*base, "--lr", 3.8 * edge)[1]
    code, out, _ = typed(*base, "--lr", 100 * edge, "--run", "--plot", "far.png")
    assert code == 0
    assert "It diverges after" in out
    assert "diverged at step" in out
    assert "nan" not in out.lower()
    assert (tmp_path / "far.png").stat().st_size > 10_000
    assert "leaves the start only after about" in typed("--depth", 9, "--spectrum", "2", "--alpha", 0.01)[1]
    chosen = typed(*base)[1]
    assert "chosen here: halfway from the edge of stability" in chosen
    one = answer(typed, "--depth", 1, "--spectrum", "2,1", "--lr", 2.5, "--run")
    assert [mode["outcome"] for mode in one["modes"]] == ["diverges", "diverges"]
    assert one["run"]["status"] == "diverged"
    assert "It converges" in typed("--depth", 1, "--spectrum", "2,1", "--start", "balanced")[1]


@pytest.mark.parametrize("start", ["balanced", "orthogonal"])
def test_other_starts(start, typed):
    told = answer(typed, "--depth", 3, "--spectrum", "10,6", "--start", start, "--run")
    assert told["modes"][0]["outcome"] == "period 2"
    assert max(mode["gap"] for mode in told["run"]["modes"]) < 1e-11
    assert told["run"]["modes"][0]["low"] == pytest.approx(told["modes"][0]["low"], rel=1e-9)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--depth", "0", "--spectrum", "2"), "depth = 0"),
        (("--depth", "3", "--spectrum", ""), "spectrum = ''"),
        (("--depth", "3", "--spectrum", "2,x"), "spectrum = '2,x'"),
        (("--depth", "3", "--spectrum", "2,-1"), "give positive singular values"),
        (("--depth", "3", "--spectrum", "2,0"), "leave out zeros"),
        (("--depth", "3", "--spectrum", "1e30"), "must be from 1e-12 to 1e12"),
        (("--depth", "3", "--spectrum", "2,1", "--alpha", "1"), "alpha must be below the smallest singular value, 1"),
        (("--depth", "3", "--spectrum", "2,1", "--alpha", "0"), "alpha = 0"),
        (("--depth", "3", "--spectrum", "2,1", "--lr", "0"), "lr = 0"),
        (("--depth", "3", "--spectrum", "2,1", "--lr", "nan"), "lr = nan"),
        (("--depth", "3", "--spectrum", "2,1", "--start", "zero"), "start = 'zero'"),
        (("--depth", "3", "--spectrum", "2,1", "--d", "1"), "d = 1"),
        (("--depth", "3", "--spectrum", "2", "--plot", "a.txt"), "plot = 'a.txt'"),
    ],
)
def test_mistakes_are_one_sentence(arguments, words, typed):
    code, _, told = typed(*arguments)
    assert code == 2
    assert words in told
    assert "Traceback" not in told


def test_what_a_review_found(typed):
    """Large starts that end elsewhere, the null space, even depths near 0, slow divergence of one layer, extremes."""
    stuck = answer(typed, "--depth", 3, "--spectrum", 10, "--lr", 0.0267338, "--alpha", 3.2386173)
    assert stuck["modes"][0]["outcome"] == "trapped"
    null = answer(typed, "--depth", 2, "--spectrum", 10, "--lr", 0.12, "--alpha", 3.1, "--d", 5, "--run")
    assert null["cross"]["pair"] == [1, "null"]
    seen = null["run"]["cross_component_seen_at_step"]
    assert null["cross"]["visible_after_steps"]["double"] == pytest.approx(seen, rel=0.15)
    long = answer(typed, "--depth", 4, "--spectrum", 10, "--lr", 0.0332039, "--start", "balanced")
    assert long["modes"][0]["outcome"].startswith("chaos")
    one = answer(typed, "--depth", 1, "--spectrum", 10, "--lr", 2.0001)
    assert one["modes"][0]["diverges_after_steps"] == pytest.approx(np.log(1e3) / 1e-4, rel=1e-3)
    assert answer(typed, "--depth", 2, "--spectrum", "1,1e-10", "--lr", 0.1)["modes"][1]["outcome"] == "converges"
    assert answer(typed, "--depth", 3, "--spectrum", 10, "--lr", 1e-300)["modes"][0]["outcome"] == "converges"
